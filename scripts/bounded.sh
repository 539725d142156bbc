# To be sourced. `bounded SECONDS NAME COMMAND...` runs a command that may not
# hang: when the time is over it says which step it was, shows where every
# process of the step stands, ends them all and returns 124. A step that ends
# in time but leaves a process behind fails too.
# shellcheck shell=bash

# Processes of a step carry its mark in their environment, so that those in
# other process groups and those whose parent is gone are found as well. Steps
# within a step have marks that begin with its own.
_marked() {
    grep -lszE "^PORTOLAN_TEST_BOUND=$1(/|\$)" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3 || true
}

_stacks() {
    local pid=$1 task
    printf '\n--- process %s: %s\n' "$pid" "$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null)"
    if command -v gdb >/dev/null; then
        timeout --kill-after=5 30 gdb -nx -p "$pid" -batch -iex 'set debuginfod enabled off' \
            -iex 'set auto-load off' -ex 'set pagination off' -ex 'thread apply all bt' 2>/dev/null |
            grep -E '^(Thread|#)' && return
    fi
    for task in /proc/"$pid"/task/*; do
        printf '%s %s: waits in %s\n' "${task##*/}" "$(cat "$task/comm" 2>/dev/null)" "$(cat "$task/wchan" 2>/dev/null)"
        sed 's/^/    /' "$task/stack" 2>/dev/null || true
    done
}

_end_marked() {
    local pids signal
    for signal in TERM TERM TERM KILL KILL KILL; do
        pids=$(_marked "$1")
        [ -n "$pids" ] || return 0
        # shellcheck disable=SC2086
        kill "-$signal" $pids 2>/dev/null || true
        sleep 1
    done
}

_watch() {
    local limit=$1 name=$2 mark=$3 fired=$4 pid
    while [ "$limit" -gt 0 ]; do
        sleep 1
        kill -0 $$ 2>/dev/null || return 0
        limit=$((limit - 1))
    done
    {
        printf '\n*** HUNG: "%s" did not end within %s s. Its processes:\n' "$name" "$5"
        for pid in $(_marked "$mark" | head -40); do
            case $(cat "/proc/$pid/comm" 2>/dev/null) in
            cargo | rustc | sleep | make | sh | bash) ;;
            *) _stacks "$pid" ;;
            esac
        done
        printf '\n*** HUNG: "%s" is ended.\n' "$name"
    } >&2
    echo hung >"$fired"
    _end_marked "$mark"
}

bounded() {
    local limit=$1 name=$2 mark fired watcher code=0 left
    shift 2
    mark=${PORTOLAN_TEST_BOUND:+$PORTOLAN_TEST_BOUND/}$$-$RANDOM$RANDOM
    fired=$(mktemp)
    _watch "$limit" "$name" "$mark" "$fired" "$limit" &
    watcher=$!
    PORTOLAN_TEST_BOUND=$mark "$@" || code=$?
    if [ -s "$fired" ]; then
        wait "$watcher" || true
        rm -f "$fired"
        return 124
    fi
    # By the signal that runs no trap: one that has just begun still has its parent's.
    kill -KILL "$watcher" 2>/dev/null || true
    wait "$watcher" 2>/dev/null || true
    rm -f "$fired"
    left=$(_marked "$mark")
    if [ -n "$left" ]; then
        sleep 1 # What is ending may end.
        left=$(_marked "$mark")
    fi
    if [ -n "$left" ]; then
        printf '*** "%s" left processes behind:\n' "$name" >&2
        # shellcheck disable=SC2086
        ps -o pid,ppid,stat,args -p "$(echo $left | tr ' ' ,)" >&2 || true
        _end_marked "$mark"
        [ "$code" -ne 0 ] || code=1
    fi
    return "$code"
}
