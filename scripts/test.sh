#!/usr/bin/env bash
# Every test, from the fastest to the slowest. Runs as root: labs are network
# namespaces, and a test that cannot make one fails instead of being skipped.
# No step can hang: see bounded.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/bounded.sh
source scripts/bounded.sh
target=${CARGO_TARGET_DIR:-target}
# Seconds to compile and to test, several times what a slow machine takes.
compile=1800 test=1200

step() { printf '\n=== %s\n' "$*"; }

labs() { ip netns list 2>/dev/null | awk '/^ptl-/ { print $1 }' | sort; }

# A step that was cut short could not take its labs down; whether one is that
# step's or somebody else's cannot be told from here.
ended() {
    local code=$?
    [ "$code" -ne 124 ] || [ -z "$(labs)" ] ||
        echo "*** labs are up, take yours down ($target/debug/portolan lab down NAME):" $(labs | sed 's/^ptl-//; s/-[^-]*$//' | sort -u) >&2
}
trap ended EXIT

step "unit, packet-script, simulator and end-to-end tests"
bounded $compile "compiling the tests" cargo test --locked --workspace --no-run
bounded $test "unit, packet-script, simulator and end-to-end tests" cargo test --locked --workspace

step "loom: ring, inbox, ownership, sleep and wake, queue, regions"
RUSTFLAGS="--cfg loom" bounded $compile "loom" cargo test --locked --release -p portolan-ring --test loom \
    --target-dir "$target/loom"

step "miri: ring and wire"
if cargo +nightly miri --version >/dev/null 2>&1; then
    bounded $compile "miri: wire" cargo +nightly miri test --locked -p portolan-wire --target-dir "$target/miri"
    bounded $compile "miri: ring" cargo +nightly miri test --locked -p portolan-ring --lib --target-dir "$target/miri"
else
    echo "*** MIRI DID NOT RUN: the component is not installed for a nightly toolchain ***"
fi

step "address sanitizer: ring, link and the C interface"
if cargo +nightly --version >/dev/null 2>&1; then
    bounded $compile "address sanitizer" scripts/sanitize.sh
else
    echo "*** THE ADDRESS SANITIZER DID NOT RUN: there is no nightly toolchain ***"
fi

step "nothing is left behind"
left=$(labs | grep -c . || true)
shm=$(find /dev/shm -name 'portolan*' 2>/dev/null | wc -l)
if [ "$left" -ne 0 ] || [ "$shm" -ne 0 ]; then
    echo "left behind: $left network namespaces, $shm files in /dev/shm" >&2
    exit 1
fi
echo "no namespace, no shared memory file"
