#!/usr/bin/env bash
# Cuts the network of labs of 2, 3, 5 and 8 hosts, in one direction or in both,
# for 1 to 20 s, under jobs that go on without who is dead. All ranks that come
# to their end must know the same ones to be dead, each that is not dead must
# come there, and no call may have taken longer than the bound. Needs root.
#   soak-cuts.sh BUILD_DIR [CUTS] [SEED]
set -euo pipefail
portolan=$1/portolan together=$1/examples/together
cuts=${2:-20} RANDOM=${3:-1}
# Twice the silence (who still hears the other in one direction notices later),
# what is waited for others' reports, and what a full machine needs.
bound_ms=8000
lab=cuts-$$ said=/tmp/soak-cuts.$$
trap '"$portolan" lab down "$lab" >/dev/null 2>&1 || true; rm -f "$said"' EXIT

fails() {
    echo "cut $1: $2" >&2
    cat "$said" >&2
    exit 1
}

for cut in $(seq "$cuts"); do
    sizes=(2 3 5 8)
    hosts=${sizes[RANDOM % 4]}
    one=$((RANDOM % hosts)) other=$((RANDOM % (hosts - 1)))
    [ $other -lt $one ] || other=$((other + 1))
    kinds=("--from h$one --to h$other" "--host h$one" "--from h$one" "--to h$one")
    kind=${kinds[RANDOM % 4]}
    length=$((1000 + RANDOM % 19001))
    seconds=$((length / 1000 + 9))
    "$portolan" lab up "$lab" --hosts "$hosts" >/dev/null
    "$portolan" run -n "$hosts" --lab "$lab" --on-death notify -- "$together" $seconds >"$said" 2>&1 &
    job=$!
    for try in $(seq 1000); do
        [ "$(grep -c 'all are here' "$said")" -lt "$hosts" ] || break
        sleep 0.02
    done
    # shellcheck disable=SC2086 # Several words.
    "$portolan" lab impair "$lab" --loss 100 $kind
    sleep "$((length / 1000)).$(printf %03d $((length % 1000)))"
    "$portolan" lab impair "$lab" --loss 0
    code=0
    wait "$job" || code=$?
    "$portolan" lab down "$lab" >/dev/null
    known=$(sed -n 's/.* knows dead \(\[.*\]\), met .*/\1/p' "$said" | sort | uniq -c)
    [ "$(echo "$known" | wc -l)" -eq 1 ] && [ -n "$known" ] || fails "$cut" "not all agree"
    dead=$(echo "$known" | grep -o '[0-9]\+' | tail -n +2 | wc -l)
    ended=$(echo "$known" | awk '{print $1}')
    [ $((dead + ended)) -eq "$hosts" ] || fails "$cut" "$ended of $hosts ended, $dead are dead"
    [ $code -eq $((dead > 0)) ] || fails "$cut" "exit code $code"
    longest=$(sed -n 's/.*, longest //p' "$said" | sort -n | tail -n 1)
    [ "$longest" -le $bound_ms ] || fails "$cut" "a call took $longest ms"
    echo "cut $cut of $cuts: $hosts hosts, $kind for $length ms: dead $(echo "$known" | sed 's/.*\[/[/'), longest call $longest ms"
done
