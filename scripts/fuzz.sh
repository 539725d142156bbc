#!/usr/bin/env bash
# Fuzzes each target for RUNS executions (default: ten million).
set -euo pipefail
cd "$(dirname "$0")/../fuzz"
runs=${RUNS:-10000000}
command -v cargo-fuzz >/dev/null || cargo fuzz --version >/dev/null 2>&1 || {
    echo "cargo-fuzz is missing: cargo install cargo-fuzz" >&2
    exit 1
}
for target in wire_parse; do
    echo "=== $target, $runs executions"
    cargo +nightly fuzz run "$target" -- -runs="$runs" -max_len=4096 -print_final_stats=1
done
