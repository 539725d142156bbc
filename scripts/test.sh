#!/usr/bin/env bash
# Every test, from the fastest to the slowest. Runs as root: labs are network
# namespaces, and a test that cannot make one fails instead of being skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n=== %s\n' "$*"; }

step "unit, packet-script, simulator and end-to-end tests"
cargo test --locked --workspace

step "loom: ring, inbox, ownership, sleep and wake"
RUSTFLAGS="--cfg loom" cargo test --locked --release -p portolan-ring --test loom \
    --target-dir "${CARGO_TARGET_DIR:-target}/loom"

step "miri: ring and wire"
if cargo +nightly miri --version >/dev/null 2>&1; then
    cargo +nightly miri test --locked -p portolan-wire --target-dir "${CARGO_TARGET_DIR:-target}/miri"
    cargo +nightly miri test --locked -p portolan-ring --lib --target-dir "${CARGO_TARGET_DIR:-target}/miri"
else
    echo "*** MIRI DID NOT RUN: the component is not installed for a nightly toolchain ***"
fi

step "nothing is left behind"
left=$(ip netns list 2>/dev/null | grep -c '^ptl-' || true)
shm=$(find /dev/shm -name 'portolan*' 2>/dev/null | wc -l)
if [ "$left" -ne 0 ] || [ "$shm" -ne 0 ]; then
    echo "left behind: $left network namespaces, $shm files in /dev/shm" >&2
    exit 1
fi
echo "no namespace, no shared memory file"
