#!/usr/bin/env bash
# Lowers the MTU of an interface for 3 s under a stream between two hosts of a lab, by
# udp and xdp: 9000 to 1500 and 1500 to 1300. Five seconds after it came back packets must
# be as long again as the interface takes; what the stream carried before, meanwhile and
# from then on is printed. Needs root.
#   soak-mtu.sh RELEASE_DIR
set -euo pipefail
portolan=$1/portolan stream=$1/examples/stream
# The headers of IPv6 and UDP: a socket for both families leaves room for them.
headers=48
lab=mtu-$$ said=/tmp/soak-mtu.$$ job=
finish() {
    if [ -n "$job" ]; then
        kill "$job" 2>/dev/null || true
        wait "$job" || true
    fi
    "$portolan" lab down "$lab" >/dev/null 2>&1 || true
    rm -f "$said"
}
trap finish EXIT

fail() {
    echo "$link, $full to $dip: $1" >&2
    cat "$said" >&2
    exit 1
}

# Bytes of the longest packet of each rank.
sizes() {
    local id
    id=$(grep -o 'the job is [0-9a-f]*' "$said" | cut -d' ' -f4)
    "$portolan" top --json --dump "$id" 2>/dev/null | tr -d ' \n' |
        grep -o "\"${link}_path\":\[{[^}]*" | grep -o '"packet_max":[0-9]*' | cut -d: -f2 | xargs
}

# Whether both are as long as an interface with this MTU takes.
are_full() {
    local size all
    read -ra all <<<"$(sizes)"
    [ ${#all[@]} -eq 2 ] || return 1
    for size in "${all[@]}"; do [ "$size" -ge $(($1 - headers)) ] || return 1; done
}

set_mtu() { "$portolan" lab exec "$lab" h1 -- ip link set eth0 mtu "$1"; }

# Megabytes a second in the next seconds, so many.
rate() {
    local lines
    lines=$(grep -c 'MB/s' "$said")
    sleep "$1"
    grep 'MB/s' "$said" | tail -n +$((lines + 1)) | sed 's/.*\] //' |
        awk '{ sum += $1; n++ } END { printf "%d", n ? sum / n : 0 }'
}

for link in udp xdp; do
    for mtus in "9000 1500" "1500 1300"; do
        read -r full dip <<<"$mtus"
        "$portolan" lab up "$lab" --hosts 2 --mtu "$full" >/dev/null
        # What crosses a bridge whole is as long as it likes.
        PORTOLAN_DISABLE=gso,gro "$portolan" run -v -n 2 --lab "$lab" --link $link -- "$stream" >"$said" 2>&1 &
        job=$!
        for try in $(seq 300); do
            ! are_full "$full" || break
            sleep 0.1
        done
        are_full "$full" || fail "packets of $(sizes) bytes before the dip"
        before=$(rate 5)
        set_mtu "$dip"
        during=$(rate 3)
        set_mtu "$full"
        sleep 5
        are_full "$full" || fail "packets of $(sizes) bytes 5 s after the dip"
        packets=$(sizes) after=$(rate 5)
        kill "$job"
        wait "$job" || true
        job=
        "$portolan" lab down "$lab" >/dev/null
        echo "$link, $full to $dip: packets of $packets bytes 5 s later; $before MB/s before, $during during, $after after"
    done
done
