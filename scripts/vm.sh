#!/usr/bin/env bash
# Runs a script as root under another kernel: a virtual machine (QEMU) with this
# machine's files (read-only; changes stay in memory), veth, and three virtio cards
# on one bridge, of which eth2 refuses XDP programs.
#
#   scripts/vm.sh KERNEL.deb OUT COMMAND...
#
# COMMAND runs in the present folder; the folder OUT is its /out, which it can write.
# Ends with its exit status, 125 if the kernel crashed or time ran out. Emulated, so
# 10 to 100 times slower than this machine: no figure from there means anything.
# Settings: CPUS=2 MEM=3072 (MiB) LIMIT=3600 (s) ACCEL=tcg,thread=multi (kvm where /dev/kvm is).
set -euo pipefail
[ $# -ge 3 ] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 2; }
deb=$(realpath "$1") out=$(realpath "$2")
shift 2
: "${CPUS:=2}" "${MEM:=3072}" "${LIMIT:=3600}" "${ACCEL:=tcg,thread=multi}"
kernel=$(dirname "$deb")/$(basename "$deb" .deb)

# An initrd that makes this machine's files the root and starts /out/.start.
if [ ! -e "$kernel/ready" ]; then
    rm -rf "$kernel"
    mkdir -p "$kernel"/init/{bin,m,ro,rw,new,proc,sys,dev}
    dpkg -x "$deb" "$kernel"
    version=$(ls "$kernel/lib/modules")
    depmod -b "$kernel" "$version"
    cp "$(command -v busybox)" "$kernel/init/bin/busybox"
    n=10
    # What the root file system and the cards need, in order.
    modprobe -d "$kernel" -S "$version" -a -D virtio_pci 9p 9pnet_virtio overlay virtio_net virtio_rng |
        awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r module; do
        copy=$kernel/init/m/$((n++))-$(basename "$module")
        case $module in *.xz) xz -dc "$module" >"${copy%.xz}" ;; *) cp "$module" "$copy" ;; esac
    done
    cat >"$kernel/init/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
for module in /m/*; do insmod "$module" || echo "no $module"; done
plan9=trans=virtio,version=9p2000.L,msize=524288
mount -t 9p -o ro,cache=loose,$plan9 root /ro
mount -t tmpfs -o size=80% rw /rw
mkdir /rw/up /rw/work
mount -t overlay -o lowerdir=/ro,upperdir=/rw/up,workdir=/rw/work root /new
for d in proc sys dev run out lib/modules; do mkdir -p /new/$d; done
mount -t tmpfs run /new/run
mount -t 9p -o ro,cache=loose,$plan9 modules /new/lib/modules
mount -t 9p -o cache=none,$plan9 out /new/out
for d in proc sys dev; do mount --move /$d /new/$d; done
exec switch_root /new /bin/bash /out/.start
INIT
    chmod 755 "$kernel/init/init"
    (cd "$kernel/init" && find . | cpio -o -H newc --quiet | gzip -1) >"$kernel/initrd"
    touch "$kernel/ready"
fi

rm -f "$out/.status"
cat >"$out/.start" <<START
export PATH=$(printf %q "$PATH") HOME=/root TERM=dumb
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts; mount -t tmpfs shm /dev/shm
mount -t cgroup2 cgroup /sys/fs/cgroup 2>/dev/null; mount -t bpf bpf /sys/fs/bpf 2>/dev/null
ln -sfn /proc/self/fd /dev/fd
hostname vm; ip link set lo up
cd $(printf %q "$PWD")
setsid $(printf '%q ' "$@") </dev/null
echo \$? >/out/.status
sync; echo o >/proc/sysrq-trigger; read -r -t 60 <>/dev/ptmx
START

queues=$((2 * CPUS)) cards=()
for i in 0 1 2; do
    # A card whose offloads cannot be switched off runs no XDP program.
    fixed=; [ $i -ne 2 ] || fixed=,ctrl_guest_offloads=off
    cards+=(-netdev "tap,id=n$i,ifname=t$i,script=no,downscript=no,queues=$queues"
        -device "virtio-net-pci,netdev=n$i,mac=52:54:00:00:00:0$i,mq=on,vectors=$((2 * queues + 2))$fixed")
done
share() { shares+=(-virtfs "local,path=$2,mount_tag=$1,security_model=passthrough,multidevs=remap$3"); }
share root / ,readonly=on
share modules "$kernel/lib/modules" ,readonly=on
share out "$out" ''
# What it makes on this machine's network lies in a namespace that ends with it, and it
# ends with this script.
# shellcheck disable=SC2016
setpriv --pdeathsig TERM timeout -k 5 "$LIMIT" unshare -n bash -c '
    ip link add bridge type bridge mcast_snooping 0; ip link set bridge up
    for t in t0 t1 t2; do
        ip tuntap add dev $t mode tap multi_queue vnet_hdr
        ip link set $t master bridge up
    done
    exec "$@"' - \
    qemu-system-x86_64 -accel "$ACCEL" -cpu max -smp "$CPUS" -m "$MEM" -nodefaults -display none \
    -no-reboot -serial stdio -kernel "$kernel"/boot/vmlinuz-* -initrd "$kernel/initrd" \
    -append "console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on net.ifnames=0" \
    -device virtio-rng-pci "${cards[@]}" "${shares[@]}" </dev/null | tr -d '\r' || true
exit "$(cat "$out/.status" 2>/dev/null || echo 125)"
