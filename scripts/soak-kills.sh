#!/usr/bin/env bash
# Kills a rank, the launcher or the node service (`kill -9`) of jobs that are busy
# over host ports of a lab, each many times; ranks and launchers without node
# services too. Nothing may stay, the next job must have host ports, and a job
# whose service is killed must go on. Needs root.
#   soak-kills.sh RELEASE_DIR [KILLS] [SEED]
set -euo pipefail
portolan=$1/portolan ring=$1/examples/ring
kills=${2:-100} RANDOM=${3:-1}
source "$(dirname "$0")/soak-mark.sh"
lab=soak-kills-$$
folder=$(mktemp -d)
declare -A service=()

if [ "$(id -u)" -ne 0 ]; then
    echo "*** JOBS OVER HOST PORTS WERE NOT KILLED: they need root ***"
    exit 0
fi

finish() {
    kill -KILL $(ours) "${service[@]}" 2>/dev/null || true
    "$portolan" lab down "$lab" 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT

fail() {
    echo "kill $kill of $kind: $1" >&2
    cat "$folder"/* >&2
    exit 1
}

# Waits up to 10 s until a command succeeds.
until_so() {
    local try
    for try in $(seq 1000); do
        ! "$@" >/dev/null 2>&1 || return 0
        sleep 0.01
    done
    return 1
}

ranks() {
    local pid
    for pid in $(ours); do
        ! [ "/proc/$pid/exe" -ef "$ring" ] || echo "$pid"
    done
}

there() { "$portolan" lab exec "$lab" "$1" -- sh -c "$2"; }

# What a job, or who opened its host ports, might leave on a host; run there.
left_on_host='
    ip link show eth0 | grep prog/xdp
    find /sys/fs/bpf/portolan -mindepth 1 2>/dev/null
    find /run/portolan -name "rules-*" 2>/dev/null
    grep -h "^ *[0-9]*:" /proc/net/udp /proc/net/udp6
    grep @portolan /proc/net/unix
    grep -o "\"given\":\[[^]].*" /run/portolan/node/node.state
    true'

left() {
    ours
    grep "@portolan.*$job" /proc/net/unix || true
    there h0 "$left_on_host"
    there h1 "$left_on_host"
}

none_left() { [ -z "$(left)" ]; }
four_ranks() { [ "$(ranks | wc -l)" -eq 4 ]; }
is_ready() { grep -q "ready at" "$folder/node-$1"; }
running() { kill -0 "$launcher"; }

# Packets that a host has received past the kernel and otherwise.
received() { there h0 'cut -d: -f2 /proc/net/dev | tail -n +3' | awk '{ n += $2 } END { print n }'; }

start_service() {
    : >"$folder/node-$1"
    echo "linger_seconds = 1" >"$folder/config"
    "$portolan" lab exec "$lab" "$1" -- "$portolan" node --config "$folder/config" \
        2>"$folder/node-$1" &
    service[$1]=$!
    until_so is_ready "$1" || fail "no node service on $1"
}

# round KIND: one job, and one kill.
round() {
    local victim code=0 host before candidates
    env "$mark" "$portolan" run -v -n 4 --lab "$lab" --link xdp -- "$ring" 1000000000 \
        >"$folder/job" 2>&1 &
    launcher=$!
    until_so four_ranks || fail "the job did not start"
    until_so grep -q 'the job is' "$folder/job" || fail "the job was not named"
    job=$(grep -o 'the job is [0-9a-f]*' "$folder/job" | cut -d' ' -f4)
    sleep "0.$(printf %03d $((RANDOM % 400)))"
    case $1 in
        rank)
            mapfile -t candidates < <(ranks)
            victim=${candidates[RANDOM % ${#candidates[@]}]}
            kill -KILL "$victim"
            ;;
        launcher)
            kill -KILL "$launcher"
            ;;
        node)
            host=h$((RANDOM % 2))
            kill -KILL "${service[$host]}"
            wait "${service[$host]}" 2>/dev/null || true
            before=$(received)
            sleep 0.1
            [ "$(received)" -gt $((before + 100)) ] || fail "the job stands still"
            start_service "$host"
            grep -q "taken over" "$folder/node-$host" || fail "the next service took nothing over"
            running || fail "the job has ended"
            kill -TERM "$launcher"
            ;;
    esac
    wait "$launcher" 2>/dev/null || code=$?
    [ $code -ne 0 ] || fail "the job ended well"
    until_so none_left || fail "left behind: $(left)"
    env "$mark" "$portolan" run -v -n 4 --lab "$lab" --link xdp -- "$ring" 20 \
        >"$folder/job" 2>&1 || fail "the next job did not run"
    until_so none_left || fail "the next job left behind: $(left)"
}

# many KIND...: of each as many as were asked for.
many() {
    for kind in "$@"; do
        for kill in $(seq "$kills"); do
            round "$kind"
            [ $((kill % 25)) -ne 0 ] && [ "$kill" -ne "$kills" ] || echo "$kill of $kills times: $kind killed ($with)"
        done
    done
}

kind=none kill=0
"$portolan" lab up "$lab" --hosts 2
with="without node services"
many rank launcher
with="with node services"
start_service h0
start_service h1
many rank launcher node
kill -TERM "${service[@]}"
wait "${service[@]}" || true
service=()
"$portolan" lab down "$lab"
kind="all" kill=$((5 * kills))
shm=$(find /dev/shm /run/portolan/lab /run/netns -name 'portolan*' -o -name "$lab*" 2>/dev/null || true)
[ -z "$shm" ] || fail "left behind: $shm"
