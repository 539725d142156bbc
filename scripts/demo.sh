#!/usr/bin/env bash
# Portolan in under a minute: two programs that get faster, one that outlives the
# loss of two hosts, and how long a message takes beside the kernel's. Needs root.
#   demo.sh [RELEASE_DIR]
set -euo pipefail
export LC_ALL=C
release=$(realpath "${1:-target/release}")
examples=$release/examples
PATH=$release:$PATH
lab=demo$$ job=
work=$(mktemp -d)

cleanup() {
    [ -z "$job" ] || kill "$job" 2>/dev/null || true
    portolan lab down "$lab" >/dev/null 2>&1 || true
    wait
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

heading() { printf '\n=== %s\n' "$*"; }
# What went wrong, and all that was said.
fails() {
    printf '\n*** the demo failed: %s\n' "$1" >&2
    cat "$work/said" >&2
    exit 1
}
since() { awk -v from="$1" -v to="$EPOCHREALTIME" 'BEGIN { printf "%.1f", to - from }'; }

heading "A heat equation: the upper edge of a plate is hot in the middle, the left edge everywhere"
portolan run --no-prefix -n 2 -- "$examples/heat" 256 20000 - >"$work/said" 2>&1 || fails "heat"
cat "$work/said"
faster=$(sed -n 's/.*, \([0-9.]*\) times as fast$/\1/p' "$work/said")

heading "Five million numbers, sorted by sort -n and by two ranks (samplesort)"
shuf -r -n 5000000 -i 0-999999999 >"$work/numbers"
start=$EPOCHREALTIME
sort -n -o "$work/by-sort" "$work/numbers"
sort=$(since "$start")
start=$EPOCHREALTIME
portolan run -n 2 -- "$examples/samplesort" "$work/numbers" "$work/by-ranks" >"$work/said" 2>&1 || fails "samplesort"
ranks=$(since "$start")
cmp "$work/by-sort" "$work/by-ranks" || fails "samplesort sorts in another way than sort"
echo "sort -n: $sort s; samplesort: $ranks s, the same file"

heading "Three ranks on a virtual cluster of five hosts; h1 is unplugged, h2 is killed"
steps=150
# `results FILE` is what each rank has computed.
results() { grep -o 'rank [0-9]* has [0-9a-f]*$' "$1" | sort; }
mkdir "$work/undisturbed" "$work/steps"
portolan run -n 3 -- "$examples/steps" $steps "$work/undisturbed" >"$work/said" 2>&1 || fails "steps on one host"
results "$work/said" >"$work/wanted"
portolan lab up "$lab" --hosts 5
# Reaches a host of the lab as ssh reaches a real one: OPTIONS... HOST -- COMMAND.
cat >"$work/ssh" <<END
#!/bin/sh
while [ "\$1" != -- ]; do host=\$1; shift; done
shift
exec portolan lab exec $lab "\$host" -- sh -c "\$*"
END
chmod +x "$work/ssh"
# Each step takes 40 ms, so that there is time to watch.
portolan run --respawn 1 --ssh "$work/ssh" --hosts h0,h1,h2,h3,h4 -n 3 -- \
    "$examples/steps" $steps "$work/steps" 40 > >(tee "$work/said") 2>&1 &
job=$!

# `await TEXT` until the job has said it.
await() {
    until grep -q "$1" "$work/said"; do
        kill -0 "$job" 2>/dev/null || fails "the job ended before it said: $1"
        sleep 0.05
    done
}
await_step() {
    until [ "$(tail -n 1 "$work/steps/0" 2>/dev/null | cut -d' ' -f1)0" -ge "${1}0" ]; do
        kill -0 "$job" 2>/dev/null || fails "the job ended before step $1"
        sleep 0.05
    done
}

await_step 30
echo "--- the cable of h1 is pulled out, and stays out"
start=$EPOCHREALTIME
portolan lab link "$lab" h1 down
await 'rank 1 is here again'
unplugged=$(since "$start")
await_step 90
echo "--- all processes on h2 are killed"
start=$EPOCHREALTIME
# shellcheck disable=SC2046 # Several numbers.
kill -KILL $(ip netns pids "ptl-$lab-h2")
await 'rank 2 is here again'
killed=$(since "$start")
wait "$job" || fails "the job ended with exit code $?"
job=
sleep 0.1 # What it said last is being copied.
results "$work/said" | cmp -s - "$work/wanted" || fails "the results are others than without faults"
portolan lab link "$lab" h1 up

heading "How long 8 bytes take, one way"
# `latencies FILE OPTION...` runs a short bench.
latencies() {
    local file=$1
    shift
    portolan bench latency --size 8 --slice-ms 20 --json "$file" "$@" >"$work/said" 2>&1 || fails "bench latency $*"
}
# `latency FILE SYSTEM` is its median, us.
latency() {
    awk -F'[:,] *' -v wanted="\"$2\"" '
        /"system"/ { system_is = $2 }
        /"metric"/ { metric = $2 }
        /"p50"/ && system_is == wanted && metric == "\"latency_us\"" { printf "%.2g", $2; exit }' "$1"
}
latencies "$work/shm" --link shm
latencies "$work/udp" --lab "$lab" --link udp --vs udp,tcp
latencies "$work/xdp" --lab "$lab" --link xdp
shm=$(latency "$work/shm" portolan-shm) udp=$(latency "$work/udp" portolan-udp) xdp=$(latency "$work/xdp" portolan-xdp)
bare=$(latency "$work/udp" kernel-udp) tcp=$(latency "$work/udp" kernel-tcp)
row() { printf '%-14s  %-46s %6s us\n' "$@"; }
row "within a host" "Portolan, shared memory" "$shm"
row "between hosts" "Portolan, AF_XDP, encrypted" "$xdp"
row "" "Portolan, UDP, encrypted" "$udp"
row "" "kernel UDP, polled, not reliable, in the clear" "$bare"
row "" "kernel TCP, polled, in the clear" "$tcp"

heading "What was seen, on this machine, in $SECONDS s"
# Two ranks cannot be more than twice as fast: one of the two was held up.
claim=$(awk -v n="$faster" 'BEGIN { if (n > 2.2) print " (other programs were in the way: that is no figure)" }')
echo "Faster:   on two ranks the heat equation is $faster times as fast as on one$claim; sorting takes $ranks s instead of $sort s."
echo "Survives: rank 1 was back $unplugged s after its host was unplugged, rank 2 $killed s after its host was killed; the results are the same, bit for bit."
echo "Quick:    a message takes $shm us within a host, and between hosts, encrypted, $xdp us past the kernel; kernel TCP takes $tcp us, in the clear."
