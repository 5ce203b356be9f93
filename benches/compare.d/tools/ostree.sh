# shellcheck shell=bash disable=SC2034,SC2153
# ostree, the Debian package: uncompressed objects, synced. It has no stat cache.
NAME=ostree
O() { ostree --repo="$STORE" "$@"; }
available() { ostree --version | sed -n "s/ *Version: *'\{0,1\}\([0-9.]*\)'\{0,1\}/ostree \1/p"; }
init() { O init --mode=bare-user; }
capture() { O commit --branch=main --no-xattrs --tree=dir="$TREE"; }
restore() { if [[ $1 == "$TREE" ]]; then O checkout --user-mode --union --force-copy main "$1"; else O checkout --user-mode --force-copy main "$1"; fi; }
list() { O log main; }
prune() { O prune --refs-only --depth="$(($1 - 1))"; }
