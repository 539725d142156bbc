#!/usr/bin/env bash
# Every test, from the fastest to the slowest. Runs as root: labs are network
# namespaces, and a test that cannot make one fails instead of being skipped.
# With `check`: what needs neither root nor packages beyond Rust and a C compiler.
# No program can hang (bounded.sh), all run whatever fails, and the end is a list
# of what ran and what failed (results.sh).
set -uo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/bounded.sh
source scripts/bounded.sh
# shellcheck source=scripts/results.sh
source scripts/results.sh
target=${CARGO_TARGET_DIR:-target}
# Seconds to compile and to test, several times what a slow machine takes. A
# single program has ten minutes, and so has a script.
compile=1800 test=5400 long=600
began=$(date +%s)
PORTOLAN_TEST_RESULTS=$(mktemp)
PORTOLAN_TEST_TIMES=$(realpath -m "$target/test-times.tsv")
export PORTOLAN_TEST_RESULTS PORTOLAN_TEST_TIMES
mkdir -p "$target" && : >"$PORTOLAN_TEST_TIMES"
trap 'rm -f "$PORTOLAN_TEST_RESULTS" "$PORTOLAN_TEST_RESULTS".*' EXIT
with_runner=(--config "target.'cfg(unix)'.runner = '$PWD/scripts/program.sh'")
missing=()

# Labs of the programs that this run has tested, whose numbers their names end with.
# Others on this machine have theirs.
labs() {
    local pids
    pids=$(paste -sd'|' "$PORTOLAN_TEST_RESULTS.pids") || return
    ip netns list 2>/dev/null | sed -nE "s/^ptl-(.*-($pids))-[^-]* ?.*/\1/p" | sort -u
}

# `tests NAME CRATES...` compiles and runs the tests of crates and the programs
# in their documents.
tests() {
    local name=$1
    shift
    part $compile "$name: compiling" cargo test --locked --no-run "$@" || return
    part $test "$name" cargo "${with_runner[@]}" test --locked --no-fail-fast --tests "$@"
    part $test "$name: documents" cargo test --locked --no-fail-fast --doc "$@"
}

if [ "${1:-}" = check ]; then
    command -v g++ >/dev/null || {
        export PORTOLAN_TEST_WITHOUT_CXX=1
        missing+=("the C interfaces as C++: there is no g++")
    }
    command -v gfortran >/dev/null || {
        export PORTOLAN_TEST_WITHOUT_FORTRAN=1
        missing+=("BSPlib from Fortran: there is no gfortran")
    }
    missing+=("the command and labs, loom, miri, the address sanitizer: make test has them")
    tests "unit, packet-script, simulator and library tests" --workspace --exclude portolan-cli --exclude portolan-hosts
else
    tests "unit, packet-script, simulator and end-to-end tests" --workspace

    part $long "installed and removed: make install" scripts/test-install.sh make "$target"
    part $long "installed and removed: Debian packages" scripts/test-install.sh deb "$target"

    RUSTFLAGS="--cfg loom" part $compile "loom: ring, inbox, ownership, sleep and wake, queue, regions" \
        cargo "${with_runner[@]}" test --locked --release -p portolan-ring --test loom --target-dir "$target/loom"

    if cargo +nightly miri --version >/dev/null 2>&1; then
        part $compile "miri: wire" cargo +nightly miri test --locked -p portolan-wire --target-dir "$target/miri"
        part $compile "miri: ring" cargo +nightly miri test --locked -p portolan-ring --lib --target-dir "$target/miri"
    else
        missing+=("miri: the component is not installed for a nightly toolchain")
    fi

    if cargo +nightly --version >/dev/null 2>&1; then
        part $compile "address sanitizer: ring, link and the C interfaces" scripts/sanitize.sh "${with_runner[@]}"
        part $compile "the fuzz targets compile" cargo +nightly check --locked --manifest-path fuzz/Cargo.toml --target-dir "$target/fuzz"
    else
        missing+=("the address sanitizer, and the fuzz targets: there is no nightly toolchain")
    fi

    part $long "README and tutorial, in a fresh clone" scripts/readme.sh
    part $long "demo" scripts/demo.sh "$target/release"

    nothing_is_left() {
        local shm
        [ -z "$(labs)" ] || echo "labs are up, take them down ($target/debug/portolan lab down NAME):" $(labs)
        shm=$(find /dev/shm -name 'portolan*' -newermt "@$began" 2>/dev/null)
        [ -z "$shm" ] || echo "files of shared memory:" $shm
        [ -z "$(labs)$shm" ]
    }
    part 60 "nothing is left behind" nothing_is_left
fi

tell_times
tell_results
code=$?
printf '\n'
for what in "${missing[@]}"; do echo "*** DID NOT RUN: $what"; done
[ $code -ne 0 ] || echo "All that ran passed, in $((SECONDS / 60)) min $((SECONDS % 60)) s."
exit $code
