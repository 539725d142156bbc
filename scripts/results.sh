# To be sourced. What ran and what failed, in the file that PORTOLAN_TEST_RESULTS
# names. Its lines have the step, the program, its exit code, how many of its
# tests passed, and which failed. And how long steps, programs and tests took, in the
# file that PORTOLAN_TEST_TIMES names: which of these it is, seconds, its name.
# shellcheck shell=bash

# Seconds of the clock, with a point in every locale.
clock() { echo "${EPOCHREALTIME/,/.}"; }

# `took KIND BEGAN NAME` adds the time since BEGAN, a reading of the clock.
took() {
    [ -n "${PORTOLAN_TEST_TIMES:-}" ] || return 0
    awk -v kind="$1" -v from="$2" -v to="$(clock)" -v name="$3" \
        'BEGIN { printf "%s\t%.1f\t%s\n", kind, to - from, name }' >>"$PORTOLAN_TEST_TIMES"
}

# `took_each PROGRAM FILE` adds the tests of a program that has said what is in FILE.
took_each() {
    [ -n "${PORTOLAN_TEST_TIMES:-}" ] || return 0
    sed -nE "s/^test (.*) \.\.\. [a-z]+ <([0-9.]+)s>\$/\2\t\1/p" "$2" |
        awk -F'\t' -v program="$1" '{ printf "test\t%.1f\t%s %s\n", $1, program, $2 }' >>"$PORTOLAN_TEST_TIMES"
}

# Prints the time of each step, and the slowest programs and tests.
tell_times() {
    local kind
    printf '\n=== how long it took, in seconds\n'
    awk -F'\t' '$1 == "step" { printf "%8.1f  %s\n", $2, $3 }' "$PORTOLAN_TEST_TIMES"
    for kind in program test; do
        printf -- '--- the slowest %ss\n' "$kind"
        awk -F'\t' -v kind="$kind" '$1 == kind { printf "%8.1f  %s\n", $2, $3 }' "$PORTOLAN_TEST_TIMES" |
            sort -rn | awk 'NR <= 20'
    done
}

# `note PROGRAM CODE FILE` adds the line of a program that has said what is in FILE.
note() {
    local passed failed
    passed=$(awk '/^test result: / { for (i = 2; i <= NF; i++) if ($i == "passed;") n += $(i - 1); seen = 1 }
        END { if (seen) print n }' "$3")
    # Without a test harness it is one test.
    [ -n "$passed" ] || passed=$(($2 == 0))
    failed=$(sed -nE 's/^---- (.*) stdout ----$/\1/p' "$3" | sort -u | paste -sd'|')
    printf '%s\t%s\t%s\t%s\t%s\n' "$PORTOLAN_TEST_STEP" "$1" "$2" "$passed" "$failed" >>"$PORTOLAN_TEST_RESULTS"
    # Whoever sees only the end of all that was printed needs the reasons too.
    if [ "$2" -ne 0 ] && grep -q 'panicked at' "$3"; then
        { echo "--- why: $1" && grep -h -A 3 'panicked at' "$3" | head -n 40 | cut -c 1-400; } >>"$PORTOLAN_TEST_RESULTS.said"
    fi
}

# `part SECONDS NAME COMMAND...` runs a step, bounded, and notes what came of
# it. Those after it run all the same.
part() {
    local seconds=$1 code said noted began
    began=$(clock)
    export PORTOLAN_TEST_STEP=$2
    shift 2
    printf '\n=== %s\n' "$PORTOLAN_TEST_STEP"
    said=$(mktemp)
    bounded "$seconds" "$PORTOLAN_TEST_STEP" "$@" 2>&1 | tee "$said"
    code=${PIPESTATUS[0]}
    took step "$began" "$PORTOLAN_TEST_STEP"
    # Programs that cargo ran by program.sh have noted themselves.
    noted=$(awk -F'\t' -v part="$PORTOLAN_TEST_STEP" -v code="$code" \
        '$1 == part && (code == 0 || $3 != 0 && code != 124)' "$PORTOLAN_TEST_RESULTS")
    if [ -z "$noted" ] && { [ "$code" -ne 0 ] || grep -q '^test result:' "$said"; }; then
        note "$PORTOLAN_TEST_STEP" "$code" "$said"
        [ "$code" -eq 0 ] || { echo "--- the end of what it said: $PORTOLAN_TEST_STEP" && tail -n 20 "$said"; } >>"$PORTOLAN_TEST_RESULTS.said"
    fi
    rm -f "$said"
    return "$code"
}

# Says of each step how much ran, then what failed; returns 1 if anything did.
tell_results() {
    printf '\n=== what ran\n'
    awk -F'\t' '
        function many(n, what) { return n " " what (n == 1 ? "" : "s") }
        !($1 in programs) { order[++steps] = $1 }
        { programs[$1]++; passed[$1] += $4; n = split($5, names, "|"); failed[$1] += $3 && !n ? 1 : n }
        END { for (i = 1; i <= steps; i++) { s = order[i]
            print s ": " many(passed[s], "test") " passed, " failed[s] " failed, in " many(programs[s], "program") } }' "$PORTOLAN_TEST_RESULTS"
    awk -F'\t' '
        $3 != 0 {
            if (!any++) print "\n=== what failed"
            n = split($5, names, "|")
            for (i = 1; i <= n; i++) print $2 ": " names[i]
            if ($3 == 124) print $2 ": it hung and was ended, see \"HUNG\" above"
            else if (!n) print $2 ": exit code " $3 ", see above" }
        END { exit any > 0 }' "$PORTOLAN_TEST_RESULTS" && return
    cat "$PORTOLAN_TEST_RESULTS.said" 2>/dev/null
    return 1
}
