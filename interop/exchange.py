#!/usr/bin/env python3
"""Joins a real rank and exchanges messages with it, in both directions, while
packets are lost, repeated and delayed on purpose, in both directions too:

    PMI_PORT=HOST:PORT PMI_ID=1 interop/exchange.py --release 0.1.0 --seed 1

It is one of two ranks that a PMI-1 server joins; the other is the example
`interop` of crates/cli. Each sends messages that both know beforehand, and
fails where one is missing, comes twice, out of order or changed.
"""

import argparse
import heapq
import os
import random
import select
import socket
import struct
import sys
import time

from cryptography.hazmat.primitives.asymmetric import x25519

import peer

M64 = (1 << 64) - 1
CARD_VERSION, PACKET_VERSION = 11, 1
SUITES = ["aes-128-gcm", "chacha20-poly1305", "aegis-128l", "none"]
PORT = 1
SPOILED = 40  # the message that `--spoil` is about


# ---- Finding the other rank (3.2 to 3.4)


def fnv(*parts):
    value = 0xCBF29CE484222325
    for part in parts:
        for byte in struct.pack("<Q", len(part)) + part:
            value = (value ^ byte) * 0x100000001B3 & M64
    return value


def own_host():
    with open("/proc/sys/kernel/random/boot_id", "rb") as file:
        boot = file.read().rstrip()
    return max(1, fnv(boot, struct.pack("<Q", os.stat("/proc/self/ns/net").st_ino)))


def mapped(ip):
    return socket.inet_pton(socket.AF_INET6, ip if ":" in ip else f"::ffff:{ip}")


def card(release, host, pid, name, choices, addresses):
    fixed = b"PTLG" + struct.pack("<IIB", CARD_VERSION, PACKET_VERSION, len(release))
    fixed += release.encode() + struct.pack("<QI", host, pid) + name
    fixed += bytes(choices) + bytes([len(addresses)])
    return fixed + b"".join(ip + bytes([prefix]) for ip, prefix in addresses)


def address(port, ip, public, host):
    return struct.pack("<BBH", 1, 1, port) + ip + public + struct.pack("<Q4x", host)


class Pmi:
    """A client of PMI-1."""

    def __init__(self, port, ident):
        host, port = port.rsplit(":", 1)
        self.file = socket.create_connection((host, int(port))).makefile("rw")
        self.say(f"initack pmiid={ident}")
        told = dict(pair for _ in range(3) for pair in self.hear().items())
        self.size, self.rank = int(told["size"]), int(told["rank"])
        self.say("init pmi_version=1 pmi_subversion=1")
        self.say("get_maxes")
        self.space = self.say("get_my_kvsname")["kvsname"]

    def say(self, command):
        self.file.write(f"cmd={command}\n")
        self.file.flush()
        return self.hear()

    def hear(self):
        return dict(word.split("=", 1) for word in self.file.readline().split())

    def exchange(self, name, value):
        """The values of all ranks under this name."""
        key = f"kvsname={self.space} key={name}"
        self.say(f"put {key}-{self.rank} value={value.hex()}")
        self.say("barrier_in")
        return [bytes.fromhex(self.say(f"get {key}-{rank}")["value"]) for rank in range(self.size)]


# ---- Faults


class Faults:
    """Loses, repeats and delays what passes, as a seed says."""

    def __init__(self, seed, percent):
        self.rng, self.percent, self.waiting, self.count = random.Random(seed), percent, [], 0
        self.done = dict.fromkeys(("lost", "repeated", "delayed"), 0)

    def put(self, now, packet):
        for _ in range(2 if self.hits("repeated") else 1):
            if not self.hits("lost"):
                due = now + self.rng.uniform(0, 0.01) if self.hits("delayed") else now
                self.count += 1
                heapq.heappush(self.waiting, (due, self.count, packet))

    def hits(self, what):
        hit = self.rng.uniform(0, 100) < self.percent
        self.done[what] += hit
        return hit

    def due(self, now):
        while self.waiting and self.waiting[0][0] <= now:
            yield heapq.heappop(self.waiting)[2]

    def next_at(self):
        return self.waiting[0][0] if self.waiting else float("inf")


# ---- The messages, the same in crates/cli/examples/interop.rs


def mixed(value):
    value = (value + 0x9E3779B97F4A7C15) & M64
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & M64
    value = (value ^ value >> 27) * 0x94D049BB133111EB & M64
    return value ^ value >> 31


def message(sender, index):
    """Priority, flow, words and payload of a rank's message."""
    value = mixed(sender << 32 | index)
    length = value % (30_000 if index % 16 == 9 else 200)
    words = [index] + [value] * (value >> 8 & 3)
    whole = struct.pack(f"<{length // 8 + 1}Q", *(mixed(value + i) for i in range(length // 8 + 1)))
    return int(index % 7 == 3), index % 3, words, whole[:length]


class Checked:
    """The messages of the other rank as they come."""

    def __init__(self, sender, count):
        self.sender, self.count, self.came = sender, count, 0
        self.next = {}
        for index in reversed(range(count)):
            priority, flow, *_ = message(sender, index)
            self.next.setdefault((priority, flow), []).append(index)

    def deliver(self, chunk):
        expected = self.next.get((chunk.priority, chunk.flow))
        if not expected:
            sys.exit(f"one message more than was sent: {chunk.words}")
        index = expected.pop()
        priority, flow, words, payload = message(self.sender, index)
        got = chunk.port, list(chunk.words), chunk.payload
        if got != (PORT, words, payload):
            sys.exit(f"not message {index} of rank {self.sender}: {chunk.words[:1]}, or changed")
        self.came += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--release", required=True, help="text of the other rank's release")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=float, default=10, help="percent, of each kind")
    parser.add_argument("--messages", type=int, default=200)
    parser.add_argument("--suite", choices=SUITES, default="aegis-128l")
    parser.add_argument("--secret-file", help="goes into the keys")
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--spoil", choices=["lose", "repeat", "change"], help="breaks a message")
    options = parser.parse_args()

    private = x25519.X25519PrivateKey.generate()
    network = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    network.bind((options.address, 0))
    network.setblocking(False)
    mix = bytes(32)
    if options.secret_file:
        with open(options.secret_file, "rb") as file:
            mix = peer.mix_of(file.read())

    pmi = Pmi(os.environ["PMI_PORT"], os.environ["PMI_ID"])
    other = 1 - pmi.rank
    suite, host = SUITES.index(options.suite), own_host()
    choices = suite == 3, min(suite, 2), 2, 0, options.secret_file is not None
    name, own = os.urandom(16), [(mapped(options.address), 8)]
    cards = pmi.exchange("ptl-card", card(options.release, host, os.getpid(), name, choices, own))
    public = peer.public_bytes(private)
    told = address(network.getsockname()[1], own[0][0], public, host)
    theirs = pmi.exchange("ptl-address", told + b"\0")[other]
    if len(theirs) not in (65, 99):
        sys.exit(f"an address of {len(theirs)} bytes")
    port, their_public = struct.unpack_from("<H", theirs, 2)[0], theirs[20:52]
    fields = 13 + cards[other][12]
    pid = struct.unpack_from("<I", cards[other], fields + 8)[0]
    ip = socket.inet_ntop(socket.AF_INET, cards[other][fields + 34 + 12:fields + 34 + 16])

    out, into = (Faults(2 * options.seed + way, options.faults) for way in (0, 1))
    checked = Checked(other, options.messages)
    secret = peer.pair_secret(private, their_public, mix)
    me, they = peer.identity(public), peer.identity(their_public)
    connection = peer.Connection(options.suite, secret, me, they,
                                 lambda packet: out.put(time.monotonic(), packet),
                                 checked.deliver, random.Random(options.seed))
    for index in range(options.messages):
        priority, flow, words, payload = message(pmi.rank, index)
        if index == SPOILED and options.spoil == "change":
            payload = payload[:-1] + bytes([payload[-1] ^ 1])
        copies = {"lose": 0, "repeat": 2}.get(options.spoil, 1) if index == SPOILED else 1
        for _ in range(copies):
            connection.post(priority, flow, PORT, words, payload)

    # Until the other process has ended: it may ask for acknowledgements until then.
    watched = select.poll()
    watched.register(network, select.POLLIN)
    ended = os.pidfd_open(pid)
    watched.register(ended, select.POLLIN)
    closing = False
    while True:
        now = time.monotonic()
        for packet in into.due(now):
            connection.take(packet)
        if checked.came == options.messages and connection.has_left() and not closing:
            connection.close()
            closing = True
        connection.transmit(now)
        for packet in out.due(now):
            network.sendto(packet, (ip, port))
        until = min(connection.next_at(now), into.next_at(), out.next_at())
        ready = {fd for fd, _ in watched.poll(max(0, 1000 * (until - now) + 1))}
        while network.fileno() in ready:
            try:
                into.put(time.monotonic(), network.recv(65536))
            except BlockingIOError:
                break
        if ended in ready:
            break
    if checked.came < options.messages or not (connection.has_closed or closing):
        sys.exit(f"the other rank ended after {checked.came} of {options.messages} messages")
    pmi.say("finalize")
    for where, faults in ("out", out), ("in", into):
        print(where, *(f"{what} {count}" for what, count in faults.done.items()))
    print(f"all {checked.came} messages came, each once and as it was sent")


if __name__ == "__main__":
    main()
