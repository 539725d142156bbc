# To be sourced. What tests have left behind.
# shellcheck shell=bash

# Labs of the programs whose processes' numbers stand in the file PORTOLAN_TEST_RESULTS.pids:
# the names of their labs end with these. Others on this machine have theirs.
labs_left() {
    local pids
    pids=$(paste -sd'|' "$PORTOLAN_TEST_RESULTS.pids") || return
    ip netns list 2>/dev/null | sed -nE "s/^ptl-(.*-($pids))-[^-]* ?.*/\1/p" | sort -u
}

# `nothing_is_left SINCE` fails where labs or files of shared memory are left that were made
# since then, in seconds of the clock, and names them.
nothing_is_left() {
    local labs shm
    labs=$(labs_left)
    [ -z "$labs" ] || echo "labs are up, take them down (portolan lab down NAME):" $labs
    shm=$(find /dev/shm -name 'portolan*' -newermt "@$1" 2>/dev/null)
    [ -z "$shm" ] || echo "files of shared memory:" $shm
    [ -z "$labs$shm" ]
}
