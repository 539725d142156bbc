#!/usr/bin/env bash
# What test-kernels.sh runs in the virtual machine, as root: test-kernels-guest.sh TARGET.
# With a further argument, `list`, it runs nothing: it lists the tests that it would run,
# on whatever kernel, and fails where a program or a filter names none.
set -uo pipefail
target=$(realpath "$1") list=${2:-} failed=()
portolan=$target/debug/portolan ring=$target/debug/examples/ring
read -r major minor _ < <(uname -r | tr . ' ')
remaps=$((major * 100 + minor >= 604))
[ -n "$list" ] || echo "Linux $(uname -r), $(nproc) cores, $(cut -d' ' -f1 /proc/uptime) s since the start"

# verdict NAME STATUS LOG
verdict() {
    if [ "$2" -eq 0 ]; then echo "well    $1"; else
        echo "FAILED  $1"; tail -n 60 "$3"; failed+=("$1")
    fi
}

# named PROGRAM NAME [FILTER...]: says how many tests each filter names.
named() {
    local program=$1 name=$2 filter count
    shift 2
    [ -n "$program" ] || { echo "missing $name: it was not built"; failed+=("$name"); return; }
    [ $# -gt 0 ] || set -- ''
    for filter in "$@"; do
        count=$("$program" --list "$filter" | grep -c ': test$')
        echo "$name $filter: $count tests"
        [ "$count" -gt 0 ] || failed+=("$name $filter")
    done
}

# tests CRATE/PROGRAM [FILTER...]: without filters all of its tests. Each for itself, so
# that one is not the other's load.
tests() {
    local name=$1 program
    program=$(awk -v n="$name" '$1 == n { print $2 }' "$target/test-kernels.programs")
    shift
    if [ -n "$list" ]; then
        named "$program" "$name" "$@"
        return
    fi
    local status crate=${name%%/*}
    (cd "crates/${crate#portolan-}" && timeout 1200 "$program" --test-threads 1 "$@") >/tmp/log 2>&1
    status=$?
    grep -q '^test result: ok. [1-9]' /tmp/log || status=1
    verdict "$name $*: $(grep -o '[0-9]* passed' /tmp/log)" $status /tmp/log
}

tests portolan-sys/portolan_sys xdp bpf net::
tests portolan-link/portolan_link xdp
tests portolan-link/it conformance:: udp::
tests portolan-runtime/it messages:: direct::
tests portolan-hosts/portolan_hosts node::steering node::query \
    node::tests::packets_go node::tests::ranks_of node::tests::what_cannot
tests portolan-cli/it xdp::ranks_with_and xdp::who_cannot xdp::sockets_are xdp::a_second_job
if [ -n "$list" ] || [ $remaps -eq 1 ]; then
    tests portolan-cli/it node::users::users_that_are_named node::held::a_host_port_is_held
fi
if [ -n "$list" ] || [ $remaps -eq 0 ]; then
    tests portolan-cli/it unbound_sockets
fi
if [ -n "$list" ]; then
    [ ${#failed[@]} -eq 0 ] || printf '*** NO SUCH TEST: %s\n' "${failed[@]}" >&2
    exit $((${#failed[@]} > 0))
fi

# Two cards, each in a network of its own with an sshd, and one that refuses.
mkdir -p /tmp/cards/prefix/bin /run/sshd
ln -sfn "$portolan" /tmp/cards/prefix/bin/portolan
ssh-keygen -q -t ed25519 -N '' -f /tmp/cards/key && ssh-keygen -q -t ed25519 -N '' -f /tmp/cards/host
printf '%s\n' 'Port 2222' 'HostKey /tmp/cards/host' 'AuthorizedKeysFile /tmp/cards/key.pub' \
    'PidFile none' 'StrictModes no' 'UsePAM no' 'PasswordAuthentication no' >/tmp/cards/sshd
for i in 0 1 2; do
    ip netns add card$i && ip link set eth$i netns card$i && ip -n card$i link set lo up &&
        ip -n card$i addr add 10.9.0.$((i + 1))/24 dev eth$i && ip -n card$i link set eth$i up
    ip netns exec card$i unshare -m sh -c 'mkdir -p /run/portolan; mount -t tmpfs t /run/portolan
        exec /usr/sbin/sshd -D -f /tmp/cards/sshd' &
done
sleep 2

# job NAME FROM TO LINK RANKS TEXT...: a ring between two cards, whose -v has each text.
job() {
    local name=$1 from=$2 to=$3 link=$4 ranks=$5 text status
    shift 5
    timeout 300 ip netns exec card"$from" "$portolan" run -v --connect-timeout 120 --join-timeout 120 --host-silence 120000 \
        --prefix /tmp/cards/prefix --link "$link" --hosts "10.9.0.$((from + 1)):$ranks,10.9.0.$((to + 1)):$ranks" \
        --ssh 'ssh -p 2222 -i /tmp/cards/key -o UserKnownHostsFile=/tmp/cards/known
            -o StrictHostKeyChecking=accept-new -o LogLevel=ERROR' -- "$ring" 200 >/tmp/log 2>&1
    status=$?
    for text in 'the sum is right' "$@"; do grep -qF "$text" /tmp/log || status=1; done
    verdict "$name" $status /tmp/log
}
ip netns exec card0 "$portolan" doctor | grep -E '^[a-z]+ +(kernel|host-ports|network-)'
job 'virtio: one rank a card, xdp' 0 1 xdp 1 'xdp to 1 (another host: host port on eth0)' 'xdp to 0 (another host: host port on eth1)'
job 'virtio: three ranks a card, xdp' 0 1 xdp 3 'xdp to 3-5 (another host: host port on eth0)'
PORTOLAN_DISABLE=zerocopy job 'virtio: with copies' 0 1 xdp 1 'xdp to 1 (another host: host port on eth0)'
job 'virtio: udp' 0 1 udp 1 'udp to 1'
job 'a card that refuses XDP says why, and udp is used' 0 2 auto 1 'xdp to 1 (another host: host port on eth0)' \
    'udp to 0 (another host; no host port: no XDP program can be attached to eth2' 'implementing GRO_HW/CSUM'
kill %1 %2 %3 2>/dev/null
if [ ${#failed[@]} -gt 0 ]; then
    printf '*** FAILED on %s: %s\n' "$(uname -r)" "${failed[@]}"
    exit 1
fi
