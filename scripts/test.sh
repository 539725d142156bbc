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
# shellcheck source=scripts/groups.sh
source scripts/groups.sh
# shellcheck source=scripts/left.sh
source scripts/left.sh
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

# Crates whose tests compute. Those of the others mostly wait.
computing='^portolan-(atoll|bsp|exchange|matching|properties|proto|ring|seal|sim|wire)$'

# `compiled CARGO_OPTIONS...` compiles tests and lists their groups in $target/test-groups.
compiled() {
    cargo test --locked --no-run "$@" && groups "$@" | slow_first >"$target/test-groups"
}

# A module for each two processors: ranks of its tests spin, and more at once take turns.
waiting_groups() {
    awk -F'\t' -v re="$computing" '$2 !~ re' "$target/test-groups" | run_groups $((($(nproc) + 1) / 2))
}

computing_groups() {
    awk -F'\t' -v re="$computing" '$2 ~ re' "$target/test-groups" | run_groups 1
}

instructions() {
    cargo build --locked --release -p portolan-runtime --example instructions &&
        scripts/instructions.sh "$target/release"
}

# What takes the processors' time: it runs at low priority beside the tests that wait.
computing_steps() {
    renice -n 10 $BASHPID >/dev/null
    part $test "simulator, packet scripts and others that compute" computing_groups
    [ "$1" = all ] || return 0
    part $compile "instructions of a message" instructions
    # Its dependencies are optimized, as the models take minutes, but not across crates.
    RUSTFLAGS="--cfg loom" CARGO_PROFILE_RELEASE_LTO=off part $compile "loom: ring, inbox, ownership, sleep and wake, queue, regions" \
        cargo "${with_runner[@]}" test --locked --release -p portolan-ring --test loom --target-dir "$target/loom"
    if cargo +nightly --version >/dev/null 2>&1; then
        part $compile "address sanitizer: ring, link and the C interfaces" scripts/sanitize.sh "${with_runner[@]}"
        part $compile "the fuzz targets compile" cargo +nightly check --locked --manifest-path fuzz/Cargo.toml --target-dir "$target/fuzz"
    fi
    if cargo +nightly miri --version >/dev/null 2>&1; then
        part $compile "miri: wire" cargo +nightly miri test --locked -p portolan-wire --target-dir "$target/miri"
        part $compile "miri: ring" cargo +nightly miri test --locked -p portolan-ring --lib --target-dir "$target/miri"
    fi
}

# `tests all|check CARGO_OPTIONS...` compiles and runs the tests of crates, and the programs
# in their documents. The computing lane may still run when it returns: `await_computing`
# waits for that lane, and prints its output.
beside=
tests() {
    local which=$1
    shift
    part $compile "compiling the tests" compiled "$@" || return
    (computing_steps "$which") >"$target/test-beside.log" 2>&1 &
    beside=$!
    part $test "unit and end-to-end tests" waiting_groups
    part $test "programs in documents" cargo test --locked --no-fail-fast --doc "$@"
}

await_computing() {
    [ -n "$beside" ] || return 0
    wait "$beside"
    cat "$target/test-beside.log"
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
    tests check --workspace --exclude portolan-cli --exclude portolan-hosts
    await_computing
else
    tests all --workspace
    part $long "installed and removed: make install" scripts/test-install.sh make "$target"
    part $long "installed and removed: Debian packages" scripts/test-install.sh deb "$target"
    await_computing
    part $long "README and tutorial, in a fresh clone" scripts/readme.sh
    part $long "demo" scripts/demo.sh "$target/release"
    part 60 "nothing is left behind" nothing_is_left "$began"

    cargo +nightly --version >/dev/null 2>&1 ||
        missing+=("the address sanitizer, and the fuzz targets: there is no nightly toolchain")
    cargo +nightly miri --version >/dev/null 2>&1 ||
        missing+=("miri: the component is not installed for a nightly toolchain")
fi

tell_times
tell_results
code=$?
printf '\n'
for what in "${missing[@]}"; do echo "*** DID NOT RUN: $what"; done
[ $code -ne 0 ] || echo "All that ran passed, in $((SECONDS / 60)) min $((SECONDS % 60)) s."
exit $code
