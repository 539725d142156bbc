#!/usr/bin/env python3
"""Makes docs/protocol-vectors.txt again from the inputs that it names, by the
second implementation, and compares: interop/vectors.py FILE"""

import struct
import sys

from cryptography.hazmat.primitives.asymmetric import x25519

import exchange
import peer

KINDS = {"head": peer.HEAD, "body": peer.BODY, "refuse": peer.REFUSE, "close": peer.CLOSE,
         "ping": peer.PING, "networks": peer.NETWORKS, "stopped": peer.STOPPED}


def read(lines):
    """Inputs and bytes by name; inputs are lists, for a name may come again."""
    inputs, values, name = {}, {}, None
    for line in lines:
        if line.startswith("  "):
            values[name] += bytes.fromhex(line)
        elif " = " in line and not line.startswith("#"):
            name, value = line.rstrip("\n").split(" = ", 1)
            inputs.setdefault(name, []).append(value)
        elif line.strip() and not line.startswith("#"):
            name = line.strip()
            values[name] = b""
    return inputs, values


def fields(text):
    return dict(pair.split("=") for pair in text.split() if "=" in pair)


def numbers(text):
    return [int(number, 0) for number in text.split(",") if number]


def chunk(text):
    named = fields(text)
    payload = bytes.fromhex(named.pop("payload", ""))
    for entry in filter(None, named.pop("entries", "").split(",")):
        ip, port, most = entry.split("/")
        payload += bytes.fromhex(ip) + struct.pack("<HH", int(port), int(most))
    if "serial" in named:
        payload = struct.pack("<3H", int(named.pop("serial")), *numbers(named.pop("flows")))
    words = tuple(numbers(named.pop("words", "")))
    rest = {name: int(value) for name, value in named.items()}
    return peer.Chunk(KINDS[text.split()[0]], words=words, payload=payload, **rest)


def acknowledgement(text):
    named = fields(text)
    received, credit = set(numbers(named.pop("received"))), numbers(named.pop("credit"))
    rest = {name: int(value) for name, value in named.items()}
    return peer.Ack(credit=tuple(credit), received=received, **rest)


def packet(inputs, values, name):
    """Info, key, nonce, header, body and the packet, from the inputs alone."""

    def one(what, default=None):
        return inputs.get(f"{name}-{what}", [default])[0]

    number, path = int(one("packet-number")), int(one("path", "0"))
    both = [[int(inputs[f"{end}-{what}"][0], 0) for end in "ab"] for what in ("id", "life", "nonce")]
    (a, b), (a_life, b_life), nonces = both
    ends = [a, a_life, b, b_life]
    if one("offer"):
        clear = peer.HEADER.pack(peer.CONNECT, 0, 0, 0, 0, number) + peer.IDS.pack(*ends, number)
        body = offer_bytes(offered(inputs, name))
        label, rest = b"ptl1conn", []
    else:
        phase, ack = int(one("key-phase")), one("acknowledgement")
        flags = int(one("acknowledgement-wanted")) | (phase & 1) << 1 | (peer.HAS_ACK if ack else 0)
        connection = int(one("connection"), 0)
        clear = peer.HEADER.pack(peer.DATA, flags, path, 0, connection, number & peer.M32)
        body = acknowledgement(ack).encode() if ack else b""
        body += b"".join(chunk(text).encode() for text in inputs.get(f"{name}-chunk", []))
        body += bytes(int(one("padding", "0")))
        label, rest = b"ptl1data", [*nonces, phase]
    info = peer.key_info(label, one("suite"), ends + rest)
    key = peer.kdf(values["job-secret"], info)
    cipher = peer.cipher(one("suite"), key)
    made = {"nonce": peer.nonce_of(cipher, path, number), "associated-data": clear, "plain": body,
            "packet": peer.seal(cipher, path, number, clear, body)}
    return made if one("suite") == "none" else {"info": info, "key": key, **made}


def offered(inputs, name):
    """The offer of a connect packet, field by field."""
    text = inputs[f"{name}-offer"][0]
    return {key: numbers(value) for key, value in fields(text).items()}


def offer_bytes(offer):
    order = ("nonce echo first-packet connection first-message credit window packet-max flows "
             "settled").split()
    return peer.OFFER.pack(*(value for key in order for value in offer[key]))


def introduction(inputs, values, name):
    suite = inputs[f"{name}-introduces"][0]
    private = x25519.X25519PrivateKey.from_private_bytes(values["pair-private-a"])
    own, to = peer.public_bytes(private), values["pair-public-b"]
    mix = peer.mix_of(values["pair-file"]) if inputs[f"{name}-file"] == ["1"] else bytes(32)
    number, offer = int(inputs[f"{name}-packet-number"][0]), offered(inputs, name)
    ends = [*peer.identity(own), *peer.identity(to)]
    made = {}
    if suite == "none":
        made["sealed-key"], key = bytes(32) + own + bytes(16), None
    else:
        ephemeral = values[f"{name}-ephemeral-private"]
        ephemeral = x25519.X25519PrivateKey.from_private_bytes(ephemeral)
        made["sealed-key"] = peer.sealed_key(ephemeral, own, to, mix)
        made["connect-info"] = peer.key_info(b"ptl1conn", suite, ends)
        made["connect-key"] = key = peer.kdf(peer.pair_secret(private, to, mix),
                                             made["connect-info"])
    clear = peer.HEADER.pack(peer.CONNECT, 0, 0, 0, 0, number) + peer.IDS.pack(*ends, number)
    made["connect"] = peer.seal(peer.cipher(suite, key), 0, number, clear, offer_bytes(offer))
    (connection,), (echo,) = offer["connection"], offer["echo"]
    marked = peer.HEADER.pack(peer.INTRODUCTION, 0, 0, 0, connection, 0)
    marked += struct.pack("<Q", echo) + made["sealed-key"] + made["connect"]
    made["mark"] = peer.mark_of(to, marked)
    made["packet"] = marked + made["mark"]
    made["challenge"] = peer.HEADER.pack(peer.CHALLENGE, 0, 0, 0, connection, 0) + made["mark"]
    made["challenge"] += struct.pack("<Q", int(inputs["b-nonce"][0], 0))
    return {f"{name}-{what}": value for what, value in made.items()}


def pair(values):
    private = {end: x25519.X25519PrivateKey.from_private_bytes(values[f"pair-private-{end}"])
               for end in "ab"}
    public = {end: peer.public_bytes(key) for end, key in private.items()}
    mix = peer.mix_of(values["pair-file"])
    made = {f"pair-public-{end}": key for end, key in public.items()}
    for end, key in public.items():
        made[f"pair-id-and-life-{end}"] = struct.pack("<QQ", *peer.identity(key))
    theirs = x25519.X25519PublicKey.from_public_bytes(public["b"])
    made["pair-x25519"] = private["a"].exchange(theirs)
    made["pair-mix"] = mix
    made["pair-secret"] = peer.pair_secret(private["a"], public["b"])
    made["pair-secret-with-mix"] = peer.pair_secret(private["b"], public["a"], mix)
    return made


def job(inputs, values):
    host = exchange.fnv(inputs["host-boot-id"][0].encode(),
                        struct.pack("<Q", int(inputs["host-inode"][0])))
    name = exchange.fnv(values["job-random-0"], values["job-random-1"])
    own = []
    for text in inputs["card-addresses"][0].split(", "):
        ip, prefix = text.split("/")
        own.append((exchange.mapped(ip), int(prefix)))
    choices = {"security": ["encrypt", "none"], "suite": exchange.SUITES,
               "link": ["auto", "shm", "udp"], "congestion": ["auto", "lan", "shared"]}
    codes = [codes.index(inputs[f"card-{what}"][0]) for what, codes in choices.items()]
    card = exchange.card(inputs["card-release"][0], int(inputs["card-host"][0], 0),
                         int(inputs["card-process"][0]), values["card-random"],
                         [*codes, int(inputs["card-file"][0])], own)
    address = exchange.address(int(inputs["address-port"][0]),
                               exchange.mapped(inputs["address-ip"][0]), values["pair-public-a"],
                               int(inputs["address-host"][0], 0))
    return {"host": struct.pack("<Q", host), "job-id": struct.pack("<Q", name), "card": card,
            "address": address}


def main():
    with open(sys.argv[1]) as file:
        inputs, values = read(file)
    made = {**pair(values), **job(inputs, values)}
    names = [name.removesuffix("-suite") for name in inputs if name.endswith("-suite")]
    for name in filter("card".__ne__, names):
        for what, value in packet(inputs, values, name).items():
            made[f"{name}-{what}"] = value
    names = [name.removesuffix("-introduces") for name in inputs if name.endswith("-introduces")]
    for name in names:
        made.update(introduction(inputs, values, name))
    wrong = [name for name, value in made.items() if values.get(name) != value]
    if wrong:
        sys.exit(f"not as the second implementation makes it: {', '.join(wrong)}")
    given = "job-secret pair-private-a pair-private-b pair-file card-random job-random-0 job-random-1"
    ephemeral = {name for name in values if name.endswith("-ephemeral-private")}
    left = set(values) - set(made) - set(given.split()) - ephemeral
    if left:
        sys.exit(f"nobody makes these: {', '.join(sorted(left))}")
    print(f"{len(made)} values are as the second implementation makes them")


if __name__ == "__main__":
    main()
