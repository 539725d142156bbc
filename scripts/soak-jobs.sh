#!/usr/bin/env bash
# Starts many jobs in a row and kills some process of every third one at a
# random moment: the launcher, its guard, a rank or a rank's child. No job may
# fail to start, and none may leave anything behind. First on this host, then
# (a third as many, as root) over host ports between two hosts of a lab, where
# a host port that is not free again would fail the next job.
#   soak-jobs.sh RELEASE_DIR [JOBS] [SEED]
set -euo pipefail
portolan=$1/portolan ring=$1/examples/ring
mpi=$(realpath "$(dirname "$0")/../crates/ofi/tests/mpi.py")
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# What a job that fails prints shows then who was given up, when, and why.
export PORTOLAN_LOG=info
jobs=${2:-1000} RANDOM=${3:-1}
source "$(dirname "$0")/soak-mark.sh"
killed=0 failed=0

left_behind() {
    echo "job $1 ($2) left behind: $3" >&2
    exit 1
}

# soak JOBS MS WORDS...: jobs that `run` starts by these words, hit within so
# many milliseconds.
soak() {
    local jobs=$1 ms=$2 job launcher what candidates after victim code try left
    shift 2
    for job in $(seq "$jobs"); do
        env "$mark" "$portolan" run "$@" >/tmp/soak-jobs.$$ 2>&1 &
        launcher=$!
        what="run to its end"
        if [ $((job % 3)) -eq 0 ]; then
            after=$((RANDOM % ms))
            sleep "$((after / 1000)).$(printf %03d $((after % 1000)))"
            mapfile -t candidates < <(ours)
            if [ ${#candidates[@]} -gt 0 ]; then
                victim=${candidates[RANDOM % ${#candidates[@]}]}
                # It may have ended by now.
                what="$(tr '\0' ' ' 2>/dev/null <"/proc/$victim/cmdline" | cut -c1-60 || true) killed"
                kill -KILL "$victim" 2>/dev/null && killed=$((killed + 1))
            fi
        fi
        code=0
        wait "$launcher" 2>/dev/null || code=$?
        if [ "$what" = "run to its end" ] && [ $code -ne 0 ] && [ $((job % 3)) -ne 0 ]; then
            echo "job $job failed with code $code:" >&2
            cat /tmp/soak-jobs.$$ >&2
            failed=$((failed + 1))
        fi
        for try in $(seq 1000); do
            left=$(ours)
            [ -n "$left" ] || break
            sleep 0.01
        done
        [ -z "$left" ] || left_behind "$job" "$what" "processes $left"
        [ $((job % 100)) -ne 0 ] || echo "$job of $jobs jobs (${*:1:4}), $killed with a process killed, $failed failed"
    done
}

children=(sh -c "sleep 0.02 & $ring; wait")
soak "$jobs" 70 -n 4 -- "${children[@]}"
soak "$jobs" 1500 --mpi openmpi -n 2 -- /usr/bin/python3 "$mpi"
if [ "$(id -u)" -eq 0 ]; then
    lab=soak-$$
    trap '"$portolan" lab down "$lab"' EXIT
    "$portolan" lab up "$lab" --hosts 2
    soak $((jobs / 3)) 70 -n 2 --lab "$lab" --link xdp -- "${children[@]}"
    soak $((jobs / 3)) 1500 --mpi openmpi -n 2 --lab "$lab" --link xdp -- /usr/bin/python3 "$mpi"
    for host in h0 h1; do
        ! "$portolan" lab exec "$lab" $host -- ip link show eth0 | grep -q prog/xdp ||
            left_behind "$jobs" all "an XDP program on $host"
    done
else
    echo "*** JOBS OVER HOST PORTS DID NOT RUN: they need root ***"
fi
rm -f /tmp/soak-jobs.$$
shm=$(find /dev/shm -name 'portolan*' 2>/dev/null)
[ -z "$shm" ] || left_behind "$jobs" all "$shm"
# An empty group stays only until the next job.
groups=$(find /sys/fs/cgroup -name 'portolan-*' -type d 2>/dev/null | wc -l)
[ "$groups" -le 1 ] || left_behind "$jobs" all "$groups control groups"
sockets=$(grep -c '@portolan/' /proc/net/unix || true)
[ "$sockets" -eq 0 ] || left_behind "$jobs" all "$sockets sockets"
[ "$failed" -eq 0 ]
