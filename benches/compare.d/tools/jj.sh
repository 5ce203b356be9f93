# shellcheck shell=bash disable=SC2034,SC2153
# jj with its git backend. Its store lies in the tree itself (.jj), so its size is not that of STORE.
NAME=jj
JJ=${JJ:-jj}
export JJ_CONFIG=${STORE:-}.toml
available() { "$JJ" --version; }
init() {
  mkdir -p "$STORE"
  printf '[user]\nname="x"\nemail="x@x"\n[snapshot]\nmax-new-file-size="8GiB"\n' >"$JJ_CONFIG"
  if [[ -e $TREE/.jj ]]; then mv "$TREE/.jj" "$STORE/old"; fi
  "$JJ" git init --no-colocate "$TREE"
}
capture() { cd "$TREE" && "$JJ" util snapshot --quiet; }
restore() {
  if [[ $1 == "$TREE" ]]; then
    cd "$TREE" || return
    "$JJ" util snapshot --quiet
    "$JJ" undo --quiet
  else
    "$JJ" -R "$TREE" workspace add --quiet -r @ "$1"
  fi
}
list() { cd "$TREE" && "$JJ" op log --no-graph --ignore-working-copy; }
