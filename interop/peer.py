"""A second, small implementation of the Portolan protocol.

It was written from docs/protocol.md alone; "(2.3)" names a section of it. What
a minimal peer may leave out (15) is left out. It opens no socket and reads no
clock: exchange.py beside it does, and is what to run.

Needs Python 3.9 and its package cryptography.
"""

import collections
import hashlib
import secrets
import struct
from dataclasses import dataclass, replace

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric import x25519
from cryptography.hazmat.primitives.ciphers import aead
from cryptography.hazmat.primitives.hashes import SHA256, BLAKE2s, Hash
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

M32 = (1 << 32) - 1
FLOWS = 16
PACKET_MAX = 1232  # (9) what every path takes: no larger size is searched
PIECE = 896  # payload bytes of a head or body: words and an acknowledgement fit beside it
WINDOW = 32  # (8) packets under way
ROOM = 64  # (7.2) packets beyond the last that came which may be under way to us
CREDIT = 48  # (7.3) chunks beyond what was taken
REORDERING = 8  # (6.1) numbers
TIMER = 0.05  # (6.5) seconds until a packet counts as lost


def since(a, b):
    """How far `a` is behind `b`, of 32-bit numbers that wrap."""
    return ((a - b + (1 << 31)) & M32) - (1 << 31)


def nearest(expected, low):
    """The full packet number with these low 32 bits (2.1)."""
    return expected + since(low, expected & M32)


# ---- Keys (3)


def kdf(secret, info):
    return HKDF(SHA256(), 32, salt=b"", info=info).derive(secret)


def key_info(label, suite, words):
    return label + suite.encode().ljust(24, b"\0") + struct.pack(f"<{len(words)}Q", *words)


def crc_of(byte):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


CRC_TABLE = [crc_of(byte) for byte in range(256)]


class Checksum:
    """Security `none`: CRC-32C in the place of a tag."""

    def encrypt(self, nonce, body, header):
        crc = M32
        for byte in nonce + header + body:
            crc = CRC_TABLE[(crc ^ byte) & 255] ^ crc >> 8
        return body + struct.pack("<I12x", crc ^ M32)

    def decrypt(self, nonce, sealed, header):
        if self.encrypt(nonce, sealed[:-16], header) != sealed:
            raise ValueError("checksum")
        return sealed[:-16]


def times_two(byte):
    """In the field of AES (FIPS 197, 4.2)."""
    return (byte << 1 ^ (0x11B if byte & 0x80 else 0)) & 255


def substitutions():
    """The S-box of AES: inverses in its field, and an affine map (FIPS 197, 5.1.1)."""
    powers = [1]
    while len(powers) < 255:
        powers.append(powers[-1] ^ times_two(powers[-1]))
    box = []
    for byte in range(256):
        inverse = powers[-powers.index(byte) % 255] if byte else 0
        turned = inverse * 0x101
        box.append(0x63 ^ (inverse ^ turned >> 4 ^ turned >> 5 ^ turned >> 6 ^ turned >> 7) & 255)
    return box


def column_table(row):
    """What a byte in `row` of a column gives of the column, substituted and mixed."""
    column = []
    for byte in substitutions():
        mixed = [times_two(byte), byte, byte, times_two(byte) ^ byte]
        column.append(int.from_bytes(bytes(mixed[(i - row) % 4] for i in range(4)), "little"))
    return column


COLUMNS = [column_table(row) for row in range(4)]


def aes_round(block, key):
    """One round of AES, key last (RFC 10032, 2). Blocks are numbers, first byte lowest."""
    block, out = block.to_bytes(16, "little"), 0
    for column in range(4):
        for row in range(4):
            out ^= COLUMNS[row][block[(4 * (column + row) + row) % 16]] << 32 * column
    return out ^ key


def blocks(data):
    """As numbers of 16 bytes, an even count of them, padded with zeros."""
    data += bytes(-len(data) % 32)
    return [int.from_bytes(data[i : i + 16], "little") for i in range(0, len(data), 16)]


class Aegis128L:
    """AEGIS-128L with a tag of 128 bits (RFC 10032, 3)."""

    C0, C1 = blocks(bytes.fromhex("000101020305080d1522375990e97962db3d18556dc22ff12011314273b528dd"))

    def __init__(self, key):
        self.key = int.from_bytes(key, "little")

    def update(self, m0, m1):
        s = self.state
        self.state = [aes_round(s[i - 1], s[i]) for i in range(8)]
        self.state[0] ^= m0
        self.state[4] ^= m1

    def start(self, nonce, header):
        nonce, key = int.from_bytes(nonce, "little"), self.key
        self.state = [key ^ nonce, self.C1, self.C0, self.C1]
        self.state += [key ^ nonce, key ^ self.C0, key ^ self.C1, key ^ self.C0]
        for _ in range(10):
            self.update(nonce, key)
        ad = blocks(header)
        for m0, m1 in zip(ad[::2], ad[1::2]):
            self.update(m0, m1)

    def stream(self):
        s = self.state
        return s[6] ^ s[1] ^ s[2] & s[3], s[5] ^ s[2] ^ s[6] & s[7]

    def tag(self, header, length):
        t = self.state[2] ^ (8 * len(header) | 8 * length << 64)
        for _ in range(7):
            self.update(t, t)
        s = self.state
        return (s[0] ^ s[1] ^ s[2] ^ s[3] ^ s[4] ^ s[5] ^ s[6]).to_bytes(16, "little")

    def run(self, nonce, text, header, seals):
        """The other text, and the tag."""
        self.start(nonce, header)
        out, given = b"", blocks(text)
        for i in range(0, len(given), 2):
            z = self.stream()
            other = b"".join((z[j] ^ given[i + j]).to_bytes(16, "little") for j in (0, 1))
            out += other
            plain = text[16 * i :] if seals else other[: len(text) - 16 * i]
            self.update(*blocks(plain[:32]))
        return out[: len(text)], self.tag(header, len(text))

    def encrypt(self, nonce, body, header):
        return b"".join(self.run(nonce, body, header, True))

    def decrypt(self, nonce, sealed, header):
        body, tag = self.run(nonce, sealed[:-16], header, False)
        if tag != sealed[-16:]:
            raise InvalidTag
        return body


def cipher(suite, key):
    if suite == "none":
        return Checksum()
    if suite == "aegis-128l":
        return Aegis128L(key[:16])
    if suite == "aes-128-gcm":
        return aead.AESGCM(key[:16])
    return aead.ChaCha20Poly1305(key)


def nonce_of(packet_cipher, path, number):
    wide = isinstance(packet_cipher, Aegis128L)
    return struct.pack("<I4xQ" if wide else "<IQ", path, number)


def public_bytes(private):
    return private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def identity(public):
    """Id and life of an endpoint with a public key (3.1)."""
    digest = Hash(BLAKE2s(32))
    digest.update(public)
    return struct.unpack("<QQ", digest.finalize()[:16])


def pair_secret(private, public, mix=bytes(32)):
    shared = private.exchange(x25519.X25519PublicKey.from_public_bytes(public))
    return kdf(shared + mix, b"ptl1pair" + b"".join(sorted((public_bytes(private), public))))


def mix_of(content):
    return kdf(content, b"ptl1file")


def sealed_key(ephemeral, own, to, mix=bytes(32)):
    """The public key `own`, for nobody but the one with the key `to` (4.3)."""
    shown = public_bytes(ephemeral)
    shared = ephemeral.exchange(x25519.X25519PublicKey.from_public_bytes(to))
    key = kdf(shared + mix, b"ptl1intr" + shown + to)
    return shown + aead.ChaCha20Poly1305(key).encrypt(bytes(12), own, b"")


def mark_of(to, packet):
    """Shows that the sender of `packet` was told the public key `to` (4.3)."""
    key = hashlib.blake2s(b"ptl1mark" + to).digest()
    return hashlib.blake2s(packet, key=key, digest_size=16).digest()


# ---- Packets (2)

HEADER = struct.Struct("<BBBBII")
ACK = struct.Struct("<BBHIIIIII")
HEAD_FIELDS = struct.Struct("<BBHIHHQ")
IDS = struct.Struct("<QQQQQ")
OFFER = struct.Struct("<QQQIIIIHHHH")
WANTED, HAS_ACK = 1, 4
CONNECT, DATA, INTRODUCTION, CHALLENGE = 0x11, 0x12, 0x13, 0x14
PAD, HEAD, BODY, REFUSE, CLOSE, PING, NETWORKS, STOPPED = range(8)


@dataclass
class Chunk:
    kind: int
    priority: int = 0
    flow: int = 0
    message: int = 0
    port: int = 0
    total: int = 0
    words: tuple = ()
    fragment: int = 0
    payload: bytes = b""
    alive: int = 0

    def encode(self):
        lead = self.kind | self.priority << 3
        if self.kind == HEAD:
            fixed = HEAD_FIELDS.pack(lead, len(self.words), self.flow, self.message, self.port,
                                     len(self.payload), self.total)
            return fixed + struct.pack(f"<{len(self.words)}Q", *self.words) + self.payload
        if self.kind == BODY:
            fixed = struct.pack("<BBHII", lead, 0, self.flow, self.message, self.fragment)
            return fixed + self.payload
        if self.kind == REFUSE:
            return struct.pack("<BBHI", lead, 0, self.flow, self.message)
        if self.kind == STOPPED:
            return bytes([self.kind, 0]) + self.payload
        count = self.alive if self.kind == CLOSE else len(self.payload) // 20
        return bytes([self.kind, count, 0, 0]) + self.payload

    @staticmethod
    def read_all(data):
        """Up to padding, or to what makes no sense: the rest is then ignored."""
        at = 0
        while at < len(data):
            try:
                chunk, size = Chunk.read(data[at:])
            except struct.error:
                return
            if chunk is None:
                return
            yield chunk
            at += size

    @staticmethod
    def read(data):
        kind, priority = data[0] & ~8, data[0] >> 3 & 1
        if kind == HEAD:
            _, count, flow, message, port, length, total = HEAD_FIELDS.unpack_from(data)
            words = struct.unpack_from(f"<{count}Q", data, 20)
            at = 20 + 8 * count
            payload = struct.unpack_from(f"{length}s", data, at)[0]
            good = count <= 20 and flow < FLOWS and length <= total <= 1 << 38
            if not good or length < total and length % 64:
                return None, 0
            return Chunk(HEAD, priority, flow, message, port, total, words, 0, payload), at + length
        if kind == BODY:
            _, zero, flow, message, fragment = struct.unpack_from("<BBHII", data)
            if zero or flow >= FLOWS or len(data) == 12:
                return None, 0
            body = Chunk(BODY, priority, flow, message, fragment=fragment, payload=data[12:])
            return body, len(data)
        if kind == REFUSE:
            _, _, flow, message = struct.unpack_from("<BBHI", data)
            return Chunk(REFUSE, priority, flow, message), 8
        if data[0] == STOPPED:
            # Who sends on all the same uses up its credit.
            return Chunk(kind, payload=struct.unpack_from("2x6s", data)[0]), 8
        if data[0] == CLOSE:
            alive, zeros = struct.unpack_from("<xBH", data)
            return (None, 0) if alive > 1 or zeros else (Chunk(CLOSE, alive=alive), 4)
        if data[0] in (PING, NETWORKS):
            _, count = struct.unpack_from("<BB2x", data)
            payload = struct.unpack_from(f"{20 * count}s", data, 4)[0]
            return Chunk(kind, payload=payload), 4 + 20 * count
        return None, 0


@dataclass
class Ack:
    path: int
    delay: int
    marks: int
    largest: int
    base: int
    limit: int
    credit: tuple
    received: set  # numbers from `base` on, their low 32 bits

    def encode(self):
        span = (self.largest + 1 - self.base) & M32
        words = [0] * ((span + 63) // 64)
        for number in self.received:
            bit = (number - self.base) & M32
            words[bit // 64] |= 1 << bit % 64
        fixed = ACK.pack(self.path, len(words), self.delay, self.marks, self.largest, self.base,
                         self.limit, *self.credit)
        return fixed + struct.pack(f"<{len(words)}Q", *words)

    @staticmethod
    def read(data):
        path, n, delay, marks, largest, base, limit, *credit = ACK.unpack_from(data)
        words = struct.unpack_from(f"<{n}Q", data, ACK.size)
        bits = (64 * w + i for w, word in enumerate(words) for i in range(64) if word >> i & 1)
        received = {(base + bit) & M32 for bit in bits}
        return Ack(path, delay, marks, largest, base, limit, tuple(credit), received), 28 + 8 * n


def seal(packet_cipher, path, number, clear, body):
    return clear + packet_cipher.encrypt(nonce_of(packet_cipher, path, number), body, clear)


# ---- What comes (5, 6.2, 7)


class Arrivals:
    """Which packet numbers have come on path 0."""

    def __init__(self, first):
        self.next, self.base, self.seen = first, first, set()

    def is_old(self, number):
        return number in self.seen or number < self.next - 512

    def note(self, number):
        """Returns whether it shows a gap."""
        gap = number > self.next
        self.seen.add(number)
        self.next = max(self.next, number + 1)
        self.base = max(self.base, self.next - 512)
        while self.base in self.seen:
            self.base += 1
        self.seen = {n for n in self.seen if n >= self.next - 512}
        return gap

    def ack(self, credit):
        received = {n & M32 for n in self.seen if n > self.base}
        return Ack(0, 0, 0, (self.next - 1) & M32, self.base & M32, (self.next + ROOM) & M32,
                   tuple(c & M32 for c in credit), received)


class Messages:
    """Puts the messages of one priority and flow together, in order."""

    def __init__(self, first):
        self.next, self.head, self.held = first, None, {}

    def take(self, chunk, done):
        """Returns how many chunks count against credit (7.3)."""
        ahead = since(chunk.message, self.next)
        if ahead < 0:
            return 0
        if ahead > 0 or chunk.kind == BODY and self.head is None:
            of_message = self.held.setdefault(chunk.message, {})
            place = chunk.kind, chunk.fragment
            if place not in of_message or len(of_message[place].payload) < len(chunk.payload):
                of_message[place] = chunk
            return 0
        counts = self.place(chunk)
        if not self.missing:
            done(replace(self.head, payload=bytes(self.bytes[:self.head.total])))
            self.next, self.head = (self.next + 1) & M32, None
        held = self.held.pop(self.next, {})
        return counts + sum(self.take(held[place], done) for place in sorted(held))

    def place(self, chunk):
        first = chunk.kind == HEAD and self.head is None
        if first:
            self.head = chunk
            units = (chunk.total + 63) // 64
            self.bytes, self.missing = bytearray(64 * units), set(range(units))
        units = set(range(chunk.fragment, chunk.fragment + (len(chunk.payload) + 63) // 64))
        if 64 * chunk.fragment + len(chunk.payload) > self.head.total:
            return 0
        fresh = units & self.missing
        self.missing -= units
        at = 64 * chunk.fragment
        self.bytes[at:at + len(chunk.payload)] = chunk.payload
        return int(first or chunk.kind == BODY and bool(fresh))


# ---- A connection


class Connection:
    """One peer: handshake, what leaves, what comes. `send` takes a packet."""

    def __init__(self, suite, secret, me, they, send, deliver, rng):
        self.suite, self.secret, self.me, self.they = suite, secret, me, they
        self.send, self.deliver, self.rng = send, deliver, rng
        self.nonce, self.connection = 1 + secrets.randbits(63), secrets.randbits(32)
        # Close to where they wrap, for that is where mistakes show.
        self.first_message = M32 - rng.randrange(20)
        self.next_number = self.first_number = (1 << 32) - rng.randrange(200)
        self.connect_number = 0
        self.theirs = None  # nonce and connection number of their offer
        self.is_up = self.is_confirmed = self.has_closed = self.close_acked = False
        self.connect_at, self.connect_wait = 0.0, 0.001
        self.drop_all()
        self.messages = [[self.first_message] * FLOWS for _ in range(2)]
        self.sent, self.credit = [self.first_message] * 2, [self.first_message] * 2
        self.unasked, self.ping_at, self.owes_ack = 0, 0.0, False

    def drop_all(self):
        """Nothing waits to leave, leaves again, or is under way."""
        self.fresh = [[collections.deque() for _ in range(FLOWS)] for _ in range(2)]
        self.again, self.flying = collections.deque(), {}

    # Handshake (4)

    def cipher(self, label, sender, receiver, *rest):
        info = key_info(label, self.suite, (*sender, *receiver, *rest))
        return cipher(self.suite, kdf(self.secret, info))

    def offer(self, settled):
        number, self.connect_number = self.connect_number, self.connect_number + 1
        clear = HEADER.pack(CONNECT, 0, 0, 0, 0, number & M32)
        clear += IDS.pack(*self.me, *self.they, number)
        echo = self.theirs[0] if self.theirs else 0
        body = OFFER.pack(self.nonce, echo, self.first_number, self.connection, self.first_message,
                          CREDIT, CREDIT, 10, 1472, FLOWS, settled)
        key = self.cipher(b"ptl1conn", self.me, self.they)
        self.send(seal(key, 0, number, clear, body))

    def take_connect(self, packet):
        *ids, number = IDS.unpack_from(packet, HEADER.size)
        if len(packet) != 116 or ids != [*self.they, *self.me] or self.has_closed:
            return
        key = self.cipher(b"ptl1conn", self.they, self.me)
        offer = OFFER.unpack(key.decrypt(nonce_of(key, 0, number), packet[52:], packet[:52]))
        nonce, echo, first, connection, message, *credit, window, _, flows, settled = offer
        if flows != FLOWS or self.theirs and nonce != self.theirs[0]:
            return
        if self.theirs is None:
            self.theirs = nonce, connection
            self.arrivals = Arrivals(first)
            self.incoming = [[Messages(message) for _ in range(FLOWS)] for _ in range(2)]
            self.taken, self.told = [message] * 2, [message + CREDIT] * 2
            self.unacked, self.limit = 0, self.first_number + window
            self.credit = [c + more for c, more in zip(self.credit, credit)]
            self.seal = self.cipher(b"ptl1data", self.me, self.they, self.nonce, nonce, 0)
            self.unseal = self.cipher(b"ptl1data", self.they, self.me, nonce, self.nonce, 0)
        self.is_up |= echo == self.nonce
        self.is_confirmed |= echo == self.nonce and settled
        if not settled:
            self.offer(settled=self.is_up)

    # What comes

    def take(self, packet):
        """Anything that does not verify or makes no sense is dropped."""
        try:
            first, flags, path, zero, connection, low = HEADER.unpack_from(packet)
            if zero or flags > 63:
                return
            if first == CONNECT:
                self.take_connect(packet)
            elif first == DATA and connection == self.connection and path == 0 and self.theirs:
                number = nearest(self.arrivals.next, low)
                if not self.arrivals.is_old(number):
                    nonce, clear = nonce_of(self.unseal, path, number), packet[:HEADER.size]
                    body = self.unseal.decrypt(nonce, packet[HEADER.size:], clear)
                    self.take_data(number, flags, body)
        except (struct.error, ValueError, InvalidTag):
            pass

    def take_data(self, number, flags, body):
        self.is_up = self.is_confirmed = True
        at = 0
        if flags & HAS_ACK:
            ack, at = Ack.read(body)
            self.take_ack(ack)
        chunks = list(Chunk.read_all(body[at:]))
        self.unacked += bool(chunks)
        for chunk in chunks:
            if chunk.kind in (HEAD, BODY):
                messages = self.incoming[chunk.priority][chunk.flow]
                self.taken[chunk.priority] += messages.take(chunk, self.deliver)
            elif chunk.kind == CLOSE:
                self.has_closed = self.owes_ack = True
                self.drop_all()  # (10) nobody takes it any more
        gap = self.arrivals.note(number)
        half = any(t + CREDIT - told >= CREDIT // 2 for t, told in zip(self.taken, self.told))
        self.owes_ack |= gap or half or bool(flags & WANTED) or 2 * self.unacked > ROOM

    def take_ack(self, ack):
        if ack.path:
            return
        self.limit = max(self.limit, nearest(self.limit, ack.limit))
        self.credit = [c + max(0, since(new, c & M32)) for c, new in zip(self.credit, ack.credit)]
        largest, base = (nearest(self.next_number, n) for n in (ack.largest, ack.base))
        if largest >= self.next_number or base > largest + 1:
            return
        for number, (chunks, _) in sorted(self.flying.items()):
            known = largest - 511 <= number <= largest
            if known and (number < base or number & M32 in ack.received):
                del self.flying[number]
                self.close_acked |= any(chunk.kind == CLOSE for chunk in chunks)
            elif number + REORDERING < largest or number == largest:
                self.lose(number)

    # What leaves

    def post(self, priority, flow, port, words, payload):
        message = self.messages[priority][flow]
        self.messages[priority][flow] = (message + 1) & M32
        queue, first = self.fresh[priority][flow], payload[:PIECE]
        queue.append(Chunk(HEAD, priority, flow, message, port, len(payload), words, 0, first))
        for at in range(PIECE, len(payload), PIECE):
            queue.append(Chunk(BODY, priority, flow, message, fragment=at // 64,
                               payload=payload[at:at + PIECE]))

    def close(self):
        self.again.append([Chunk(CLOSE)])

    def lose(self, number):
        """Its chunks leave again, each by itself; some are split (2.3)."""
        chunks, _ = self.flying.pop(number)
        for chunk in chunks:
            if len(chunk.payload) >= 128 and self.rng.random() < 0.25:
                at = len(chunk.payload) // 128 * 64
                rest = Chunk(BODY, chunk.priority, chunk.flow, chunk.message,
                             fragment=chunk.fragment + at // 64, payload=chunk.payload[at:])
                self.again += [replace(chunk, payload=chunk.payload[:at])], [rest]
            else:
                self.again.append([chunk])

    def has_left(self):
        waits = any(queue for flows in self.fresh for queue in flows)
        return not (waits or self.again or self.flying)

    def open_queues(self, priority):
        """The flows of which something may leave as far as credit goes (7.3)."""
        open = self.sent[priority] < self.credit[priority]
        return [queue for queue in self.fresh[priority] if queue and open]

    def has_ready(self):
        return self.again or self.open_queues(0) or self.open_queues(1)

    def fresh_chunks(self):
        """Of one flow as much as fits a packet; replies first."""
        priority = 1 if self.open_queues(1) else 0
        queue, chunks = self.rng.choice(self.open_queues(priority)), []
        room = PACKET_MAX - HEADER.size - ACK.size - 64 - 16
        while queue and len(chunks) < 32 and len(queue[0].encode()) <= room:
            chunks.append(queue.popleft())
            room -= len(chunks[-1].encode())
            if chunks[-1].kind == BODY:
                break
        self.sent[priority] += len(chunks)
        return chunks

    def may_leave(self):
        lowest = min(self.flying, default=self.next_number)
        return (len(self.flying) < WINDOW and self.next_number - lowest < 512
                and (self.next_number < self.limit or not self.flying))

    def transmit(self, now):
        if not self.is_up:
            if now >= self.connect_at:
                self.offer(settled=False)
                self.connect_at = now + self.connect_wait
                self.connect_wait = min(2 * self.connect_wait, 0.2)
            return
        late = [n for n, (_, sent_at) in self.flying.items() if now - sent_at >= TIMER]
        for number in late:
            self.lose(number)
        if late and not self.is_confirmed:
            self.offer(settled=True)  # (4) in case the last was lost
        while self.may_leave() and self.has_ready():
            self.depart(now, self.again.popleft() if self.again else self.fresh_chunks())
        if not self.flying and not self.has_left() and now >= self.ping_at:
            self.depart(now, [Chunk(PING)])  # (6.5) something waits for credit
        if self.owes_ack:
            self.depart(now, [])

    def depart(self, now, chunks):
        number, self.next_number = self.next_number, self.next_number + 1
        if chunks and chunks[0].kind != PING:
            self.flying[number] = chunks, now
        self.ping_at = now + TIMER
        self.unasked += 1
        is_last = not (self.may_leave() and self.has_ready())
        flags, body = 0, b""
        if chunks and (is_last or 2 * self.unasked >= WINDOW):
            flags, self.unasked = WANTED, 0
        if self.owes_ack or self.unacked or not chunks:
            self.told = [taken + CREDIT for taken in self.taken]
            body = self.arrivals.ack(self.told).encode()
            flags |= HAS_ACK
            self.owes_ack, self.unacked = False, 0
        body += b"".join(chunk.encode() for chunk in chunks)
        clear = HEADER.pack(DATA, flags, 0, 0, self.theirs[1], number & M32)
        self.send(seal(self.seal, 0, number, clear, body))

    def next_at(self, now):
        if not self.is_up:
            return self.connect_at
        if self.flying:
            return min(sent_at for _, sent_at in self.flying.values()) + TIMER
        return now + 1 if self.has_left() else self.ping_at
