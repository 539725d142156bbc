# shellcheck shell=bash
# Sourced by the soaks: jobs are marked in their environment, and so found.
mark=PORTOLAN_TEST_SOAK_MARK=$$

# Processes of the job that runs now, zombies not counted.
ours() {
    local pid
    for pid in $(grep -lzsx "$mark" /proc/[0-9]*/environ | cut -d/ -f3); do
        grep -qs '^State:[[:space:]]*Z' "/proc/$pid/status" || echo "$pid"
    done
}
