# shellcheck shell=bash disable=SC2034,SC2153
# backtrail: the store, the cache and the settings lie beside each other, none of the user's is read.
NAME=backtrail
export XDG_CACHE_HOME=${STORE:-}.cache XDG_CONFIG_HOME=${STORE:-}.config XDG_STATE_HOME=${STORE:-}.state
export BACKTRAIL_MAX_FILE=8GiB BACKTRAIL_MAX_FILES=200000
B() { "$BACKTRAIL" "$@" -w "$TREE" --store "$STORE"; }
available() { "$BACKTRAIL" --version; }
init() { :; }
capture() { B capture --quiet; }
restore() { if [[ $1 == "$TREE" ]]; then B restore latest --yes --quiet; else B restore latest --into "$1" --yes --quiet; fi; }
list() { B list; }
prune() { B prune --keep "$1" --instant --yes --quiet; }
