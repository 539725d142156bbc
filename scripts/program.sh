#!/usr/bin/env bash
# Runs one test program, or one module of its tests, and adds what came of it to
# the file that PORTOLAN_TEST_RESULTS names, and its process's number to the one
# with .pids behind that. None may hang: it is ended after ten minutes. One that
# crashes is run again test by test, to name the test.
#
#     program.sh PROGRAM [OPTION...]               as cargo's runner
#     program.sh --group "FOLDER TAB CRATE TAB PROGRAM TAB MODULE"
#
# As cargo's runner it only adds the program to the list that PORTOLAN_TEST_PROGRAMS
# names, if that is set (groups.sh).
set -uo pipefail
scripts=$(dirname "$(realpath "$0")")
# shellcheck source=scripts/bounded.sh
source "$scripts/bounded.sh"
# shellcheck source=scripts/results.sh
source "$scripts/results.sh"

if [ "$1" = --group ]; then
    IFS=$'\t' read -r folder CARGO_PKG_NAME program module <<<"$2"
    cd "$folder" || exit 1
    options=()
else
    program=$1 module=
    options=("${@:2}")
    if [ -n "${PORTOLAN_TEST_PROGRAMS:-}" ]; then
        printf '%s\t%s\t%s\n' "$PWD" "$CARGO_PKG_NAME" "$program" >>"$PORTOLAN_TEST_PROGRAMS"
        exit
    fi
fi
name="$CARGO_PKG_NAME ${module:-$(basename "$program" | sed -E 's/-[0-9a-f]{16}$//')}"
# No pipe: who reads one to its end waits for whatever the program leaves running.
said=$(mktemp)
trap 'rm -f "$said"' EXIT

# Its number is part of the names of its labs.
# shellcheck disable=SC2016
noted=(bash -c 'echo $$ >>"$PORTOLAN_TEST_RESULTS.pids"; exec "$@"' bash)
# The option --report-time of Rust's test harness is unstable: RUSTC_BOOTSTRAP=1 permits it on
# stable Rust. No test program starts rustc, which would inherit that.
timed=() bootstrap=() tests=()
if grep -qaF 'report-time' "$program"; then
    mapfile -t tests < <("$program" --list --format terse | sed -nE "s/^(${module:+$module::}.*): test\$/\1/p")
    [ -z "$module" ] || options+=(--exact "${tests[@]}")
    if [ -n "${PORTOLAN_TEST_TIMES:-}" ]; then
        timed=(-Z unstable-options --report-time) bootstrap=(env RUSTC_BOOTSTRAP=1)
    fi
fi

# `run OPTION...` runs the program.
run() {
    bounded "${PORTOLAN_TEST_SECONDS:-$((600 + 60 * ${#tests[@]}))}" "$name" "${bootstrap[@]}" "${noted[@]}" "$program" "$@" "${timed[@]}" >>"$said" 2>&1
}

# Runs each test alone; those that fail are listed as the harness does it.
run_each() {
    local test code
    printf '\n*** CRASHED: "%s", exit code %s. Its tests run once more, each in a process of its own.\n' "$name" "$1" >>"$said"
    for test in "${tests[@]}"; do
        run --exact "$test" && continue
        code=$?
        [ "$code" = 101 ] || printf -- '---- %s stdout ----\npanicked at: its process ended with exit code %s\n' "$test" "$code" >>"$said"
    done
}

began=$(clock)
run "${options[@]}"
code=$?
if [ "${#tests[@]}" -gt 0 ] && [ $code -ne 0 ] && [ $code -ne 101 ] && [ $code -ne 124 ] && ! grep -q '^test result:' "$said"; then
    run_each $code
fi
# Beside others: what one prints stays together.
exec 9>>"${PORTOLAN_TEST_RESULTS:-/dev/null}" && flock 9
took program "$began" "$name"
took_each "$name" "$said"
[ -z "$module" ] || printf '\n     Running %s\n' "$name"
cat "$said"
note "$name" "$code" "$said"
exit "$code"
