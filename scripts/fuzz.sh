#!/usr/bin/env bash
# Fuzzes each target for RUNS executions (default: ten million).
set -euo pipefail
cd "$(dirname "$0")/../fuzz"
runs=${RUNS:-10000000}
command -v cargo-fuzz >/dev/null || cargo fuzz --version >/dev/null 2>&1 || {
    echo "cargo-fuzz is missing: cargo install cargo-fuzz" >&2
    exit 1
}
# Longest input, bytes: all formats of a jumbo packet; some hundred steps of two endpoints, of the matcher, of an
# exchange with two peers; a few frames; what PMI and the node service take; a packet; turns at the rings;
# a head with its log; what two processes of BSPlib say in some supersteps.
for target in wire_parse:4096 proto_input:256 peers_input:256 matching:1024 exchange_input:512 \
    agent_frames:4096 pmi_values:1024 node_questions:1200 xdp_headers:512 queue_input:512 bsp_head:4200 bsp_parts:512; do
    echo "=== ${target%:*}, $runs executions"
    cargo +nightly fuzz run -s none "${target%:*}" -- -runs="$runs" -max_len="${target#*:}" -print_final_stats=1
done
