#!/usr/bin/env bash
# Runs one test program, for cargo (its `runner`), for no longer than ten
# minutes, so that one that hangs does not keep the others from running. Adds
# what came of it to the file that PORTOLAN_TEST_RESULTS names, and its number to
# the one with .pids behind that.
set -uo pipefail
scripts=$(dirname "$0")
# shellcheck source=scripts/bounded.sh
source "$scripts/bounded.sh"
# shellcheck source=scripts/results.sh
source "$scripts/results.sh"
name="$CARGO_PKG_NAME $(basename "$1" | sed -E 's/-[0-9a-f]{16}$//')"
# No pipe: who reads one to its end waits for whatever the program leaves running.
said=$(mktemp)
trap 'rm -f "$said"' EXIT
# Its number is part of the names of its labs.
# shellcheck disable=SC2016
noted=(bash -c 'echo $$ >>"$PORTOLAN_TEST_RESULTS.pids"; exec "$@"' bash)
# The option --report-time of Rust's test harness is unstable: RUSTC_BOOTSTRAP=1 permits it on
# stable Rust. No test program starts rustc, which would inherit that.
timed=() bootstrap=()
if [ -n "${PORTOLAN_TEST_TIMES:-}" ] && grep -qaF 'report-time' "$1"; then
    timed=(-Z unstable-options --report-time) bootstrap=(env RUSTC_BOOTSTRAP=1)
fi
began=$(clock)
bounded "${PORTOLAN_TEST_SECONDS:-600}" "$name" "${bootstrap[@]}" "${noted[@]}" "$@" "${timed[@]}" >"$said" 2>&1
code=$?
took program "$began" "$name"
took_each "$name" "$said"
cat "$said"
note "$name" "$code" "$said"
exit "$code"
