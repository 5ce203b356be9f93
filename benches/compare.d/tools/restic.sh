# shellcheck shell=bash disable=SC2034,SC2153
# restic, the Debian package. Version 0.17 and later restore in place by difference; an older one writes everything
# again and deletes nothing.
NAME=restic
export RESTIC_PASSWORD=x
R() { "$RESTIC" -q -r "$STORE" --cache-dir "$STORE.cache" "$@"; }
available() { "$RESTIC" version | cut -d' ' -f1-2; }
init() { R init; }
capture() { cd "$TREE" && R backup .; }
restore() {
  local flags=()
  if [[ $1 == "$TREE" ]] && "$RESTIC" restore --help | grep -q -- --overwrite; then flags=(--overwrite if-changed --delete); fi
  R restore latest --target "$1" "${flags[@]}"
}
list() { R snapshots; }
prune() { R forget --keep-last "$1" --prune; }
