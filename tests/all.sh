#!/usr/bin/env bash
# All checks of the repository: tests/all.sh [nextest arguments]
# Needs the Rust toolchain; .ci/run installs what else is missing. Without cargo-nextest, cargo test runs the tests.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*"; }

step "shell scripts"
scripts=(.ci/run benches/compare)
while IFS= read -r file; do scripts+=("$file"); done < <(find tests benches -name '*.sh' | sort)
for file in "${scripts[@]}"; do bash -n "$file"; done
if command -v shellcheck >/dev/null; then shellcheck -x "${scripts[@]}"; fi

step "docker-compose.yml"
if docker compose version >/dev/null 2>&1; then docker compose config -q; else echo "no compose client: parsed by the repository tests only"; fi

step "format"
cargo fmt --all --check

step "lints"
cargo clippy --locked --workspace --all-targets -- -D warnings

step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet
cargo test --locked --workspace --doc --quiet

step "examples"
for example in core/examples/*.rs backends/examples/*.rs; do
  [[ -e $example ]] || continue
  package=backtrail-${example%%/*}
  cargo run --locked --quiet -p "$package" --example "$(basename "$example" .rs)"
done

step "tests"
if cargo nextest --version >/dev/null 2>&1; then
  cargo nextest run --locked --workspace "$@"
else
  cargo test --locked --workspace --all-targets "$@"
fi
