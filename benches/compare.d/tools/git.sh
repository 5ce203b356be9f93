# shellcheck shell=bash disable=SC2034,SC2153
# Shadow git with its default settings, as agent tools use it: add -A, write-tree, commit-tree, update-ref.
NAME=git
SETTINGS=(core.bare=false user.name=x user.email=x@x gc.auto=0)
G() { git --git-dir="$STORE" --work-tree="$TREE" "$@"; }
available() { git --version; }
init() {
  git init -q --bare "$STORE"
  local s
  for s in "${SETTINGS[@]}"; do git --git-dir="$STORE" config "${s%%=*}" "${s#*=}"; done
}
capture() {
  cd "$TREE" || return
  G add -A
  local tree commit
  tree=$(G write-tree)
  commit=$(G commit-tree -m snap "$tree")
  G update-ref "refs/snap/$(date +%s%N)" "$commit"
  G update-ref refs/last "$commit"
}
restore() {
  if [[ $1 == "$TREE" ]]; then
    cd "$TREE" || return
    G read-tree --reset -u refs/last
    G clean -fdqx
    return
  fi
  mkdir -p "$1"
  export GIT_INDEX_FILE=$STORE/restore-index
  git --git-dir="$STORE" --work-tree="$1" read-tree refs/last
  git --git-dir="$STORE" --work-tree="$1" checkout-index -a -f
  rm -f "$GIT_INDEX_FILE"
}
list() { G for-each-ref refs/snap; }
prune() { # the newest $1 snapshots stay
  G for-each-ref --sort=-refname --format='delete %(refname)' refs/snap | tail -n "+$(($1 + 1))" | G update-ref --stdin
  G reflog expire --expire=now --all
  G gc --quiet --prune=now
}
