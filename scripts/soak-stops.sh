#!/usr/bin/env bash
# Stops the launcher of four ranks for 20 s while two busy loops run on each core.
# Time in which a process did not run is nobody's silence: none may be declared dead.
#   soak-stops.sh RELEASE_DIR [TIMES]
set -euo pipefail
portolan=$1/portolan together=$1/examples/together
times=${2:-5}
over=/tmp/soak-stops.$$ said=/tmp/soak-stops-said.$$ loops=()
finish() {
    kill "${loops[@]}" 2>/dev/null || true
    touch "$over"
    wait
    rm -f "$over" "$said"
}
trap finish EXIT

for _ in $(seq $((2 * $(nproc)))); do
    while :; do :; done &
    loops+=($!)
done

for time in $(seq "$times"); do
    rm -f "$over"
    "$portolan" run -n 4 --link udp --on-death notify -- "$together" "$over" >"$said" 2>&1 &
    job=$!
    for try in $(seq 3000); do
        [ "$(grep -c 'all are here' "$said")" -lt 4 ] || break
        sleep 0.02
    done
    kill -STOP "$job"
    sleep 20
    kill -CONT "$job"
    sleep 3
    touch "$over"
    code=0
    wait "$job" || code=$?
    if [ $code -ne 0 ] || [ "$(grep -c 'knows dead \[\], met' "$said")" -ne 4 ]; then
        echo "stop $time: exit code $code" >&2
        cat "$said" >&2
        exit 1
    fi
    echo "stop $time of $times: nobody is dead, longest call $(sed -n 's/.*, longest //p' "$said" | sort -n | tail -n 1) ms"
done
