#!/usr/bin/env bash
# The main job: four processes on two hosts of a virtual cluster multiply two
# matrices by messages over UDP and shared memory; then the latency of a small
# message beside the kernel's own.
set -euo pipefail
release=${1:-target/release}
lab=demo$$
trap 'portolan lab down "$lab" >/dev/null 2>&1 || true' EXIT
trap 'exit 130' INT TERM

echo "A virtual cluster of two hosts:"
portolan lab up "$lab" --hosts 2
echo
echo "Four processes multiply two 256 x 256 matrices (0, 1 on h0; 2, 3 on h1):"
portolan run -n 4 --lab "$lab" --verbose -- "$release/examples/matmul" --size 256
echo
echo "One way, 8 bytes, encrypted, between the two hosts, beside the kernel's sockets:"
portolan bench latency --lab "$lab" --link udp --size 8 --vs udp,tcp
echo
echo "One way, 8 bytes, between two processes of one host:"
portolan bench latency --link shm --size 8 --vs shm-floor
