#!/usr/bin/env bash
# All checks of the repository: tests/all.sh [arguments for nextest]
# Every step runs, also after one has failed; the tests come last, with nextest's summary.
# Needs the Rust toolchain; .ci/run installs what else is missing. Without cargo-nextest, cargo test runs the tests.
# The servers of the tests are started first and stopped at the end; BACKTRAIL_REQUIRE_SERVICES=1 (.ci/run sets it)
# makes a missing one a failure, else its tests say SKIPPED.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=()
step() { # name, command...
  local name=$1
  shift
  printf '\n== %s\n' "$name"
  "$@" || failed+=("$name")
}

shell_scripts() {
  local scripts=(.ci/run benches/compare) file rc=0
  while IFS= read -r file; do scripts+=("$file"); done < <(grep -rlE '^#(!/usr/bin/env bash| shellcheck shell=bash)' tests benches/compare.d)
  for file in "${scripts[@]}"; do bash -n "$file" || rc=1; done
  if command -v shellcheck >/dev/null; then shellcheck -x "${scripts[@]}" || rc=1; fi
  return $rc
}

compose_file() {
  if docker compose version >/dev/null 2>&1; then
    docker compose config -q
  else
    echo "no compose client here: only the repository tests read the file"
  fi
}

examples() {
  local example rc=0
  # Together with the rest: built alone they would want their dependencies in another form.
  cargo build --locked --quiet --workspace --examples || return 1
  for example in core/examples/*.rs backends/examples/*.rs; do
    [[ -e $example ]] || continue
    "${CARGO_TARGET_DIR:-target}/debug/examples/$(basename "$example" .rs)" || rc=1
  done
  return $rc
}

services() {
  # Data of an earlier run would only grow.
  tests/services.sh stop --wipe && tests/services.sh start || return 1
  local settings
  settings=$(tests/services.sh env) || return 1
  eval "$settings"
}

tests() {
  if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run --locked --workspace "$@"
  else
    cargo test --locked --workspace --all-targets "$@"
  fi
}

step "shell scripts" shell_scripts
step "compose file" compose_file
step "format" cargo fmt --all --check
step "lints" cargo clippy --locked --workspace --all-targets -- -D warnings
step "documentation" env RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet
step "documentation tests" cargo test --locked --workspace --doc --quiet
step "examples" examples
trap 'tests/services.sh stop --wipe' EXIT
if ! services; then
  echo "the servers did not start: what needs them is SKIPPED, or fails with BACKTRAIL_REQUIRE_SERVICES=1" >&2
fi
step "tests" tests "$@"

if ((${#failed[@]})); then
  printf '\nfailed: %s\n' "${failed[*]}" >&2
  exit 1
fi
printf '\nall checks passed\n'
