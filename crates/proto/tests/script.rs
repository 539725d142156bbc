//! Packet scripts: an endpoint, and a peer whose every packet is written by
//! hand: what a sender and a receiver say and do in answer to single packets.

mod common;

use std::hash::{DefaultHasher, Hasher};

use common::{Pair, address};
use portolan_proto::congestion::Mode;
use portolan_proto::{Config, Message, PeerId, Verdict};
use portolan_seal::{Checksum, Nonce, Seal};
use portolan_wire::{
    Ack, Body, Chunk, Chunks, Flags, HEADER_BYTES, Head, Header, MessageNo, PacketType, Priority,
    TAG_BYTES,
};

const SECOND: u64 = 1_000_000_000;

/// What the endpoint said in one packet.
struct Said {
    header: Header,
    ack: Option<Ack>,
    /// Messages that begin in it.
    heads: usize,
    /// It says that the node closes.
    closes: bool,
    /// Flows and numbers of messages that it refuses.
    refuses: Vec<(u16, u32)>,
}

impl Said {
    fn number(&self) -> u32 {
        self.header.number
    }
}

/// Node 0 of a pair, and in place of node 1 whatever the test says.
struct Script {
    pair: Pair,
    /// Connection number of packets to node 0, and the next packet number.
    connection: u32,
    number: u64,
}

impl Script {
    /// Both have sent one message and heard that it came.
    fn new(config: &Config) -> Self {
        let mut pair = Pair::new(config);
        pair.send(0, b"warm");
        pair.send(1, b"warm");
        pair.run(SECOND, |_| true);
        pair.send(1, b"last");
        pair.flush(1, true, &mut |_| true);
        let header = Header::parse(&pair.wire[0][0]).unwrap();
        pair.deliver(0);
        let mut script = Self {
            pair,
            connection: header.connection,
            number: u64::from(header.number) + 1,
        };
        script.say();
        script
    }

    /// Queues messages, each in a packet of its own that leaves; gives the
    /// packets' numbers.
    fn send(&mut self, messages: usize) -> Vec<u32> {
        let mut numbers = Vec::new();
        for _ in 0..messages {
            // Long enough for any pacing.
            self.pair.now += 100_000;
            self.pair.send(0, b"data");
            let said = self.say();
            numbers.extend(said.iter().filter(|s| s.heads > 0).map(Said::number));
        }
        numbers
    }

    /// A reply leaves; gives its packet's number.
    fn reply(&mut self) -> u32 {
        let reply = Message {
            priority: Priority::Reply,
            flow: 0,
            port: 3,
            args: &[],
            payload: b"data",
        };
        let now = self.pair.now;
        self.pair.nodes[0]
            .with(|e, _| e.send(now, PeerId(0), &reply))
            .unwrap();
        self.say()[0].number()
    }

    /// The window of congestion control, packets.
    fn window(&mut self) -> u32 {
        self.pair.nodes[0].with(|e, _| e.window(PeerId(0)).unwrap())
    }

    fn resent(&mut self) -> u64 {
        self.pair.nodes[0].with(|e, _| e.counters().resent)
    }

    /// Time passes until the node probes; gives that time.
    fn probe(&mut self) -> u64 {
        let probes = |s: &mut Self| s.pair.nodes[0].with(|e, _| e.counters().probes_sent);
        let before = probes(self);
        while probes(self) == before {
            let at = self.pair.nodes[0].with(|e, _| e.next_timeout()).unwrap();
            self.pair.now = self.pair.now.max(at);
            let now = self.pair.now;
            self.pair.nodes[0].with(|e, log| e.handle_timeouts(now, log));
        }
        self.pair.now
    }

    /// The node gets a packet with a number of the test's choice.
    fn hear_as(&mut self, number: u64, flags: Flags, ack: Option<&Ack>, chunks: &[Chunk<'_>]) {
        self.hear_marked(number, flags, false, ack, chunks);
    }

    fn hear_marked(
        &mut self,
        number: u64,
        flags: Flags,
        ce: bool,
        ack: Option<&Ack>,
        chunks: &[Chunk<'_>],
    ) {
        let header = Header {
            kind: PacketType::Data,
            flags: flags.with(Flags::HAS_ACK, ack.is_some()),
            path: 0,
            connection: self.connection,
            number: number as u32,
        };
        let mut packet = header.to_bytes().to_vec();
        let mut room = [0; 2048];
        if let Some(ack) = ack {
            ack.write(&mut room);
            packet.extend_from_slice(&room[..ack.bytes()]);
        }
        for chunk in chunks {
            let n = chunk.write(&mut room);
            packet.extend_from_slice(&room[..n]);
        }
        let (head, body) = packet.split_at_mut(HEADER_BYTES);
        let tag = Checksum.seal(0, Nonce { path: 0, number }, head, body);
        packet.extend_from_slice(&tag);
        let now = self.pair.now;
        self.pair.nodes[0].with(|e, log| {
            let before = e.counters().packets_received;
            e.handle_packet(now, address(2), ce, &mut packet, log);
            e.check();
            assert!(e.counters().packets_received <= before + 1);
        });
        self.number = self.number.max(number + 1);
    }

    /// The node gets the next packet.
    fn hear(&mut self, ack: Option<&Ack>, chunks: &[Chunk<'_>]) {
        self.hear_as(self.number, Flags::NONE, ack, chunks);
    }

    /// All packets that leave the node now.
    fn say(&mut self) -> Vec<Said> {
        self.pair.wire[1].clear();
        self.pair.flush(0, true, &mut |_| true);
        self.pair.wire[1]
            .drain(..)
            .map(|packet| {
                let header = Header::parse(&packet).unwrap();
                let mut at = HEADER_BYTES;
                let ack = header.flags.has(Flags::HAS_ACK).then(|| {
                    let (ack, bytes) = Ack::parse(&packet[at..]).unwrap();
                    at += bytes;
                    ack
                });
                let mut said = Said {
                    header,
                    ack,
                    heads: 0,
                    closes: false,
                    refuses: Vec::new(),
                };
                for chunk in Chunks::new(&packet[at..packet.len() - TAG_BYTES]) {
                    said.heads += usize::from(matches!(chunk, Ok(Chunk::Head(_))));
                    said.closes |= chunk == Ok(Chunk::Close);
                    if let Ok(Chunk::Refuse { flow, message, .. }) = chunk {
                        said.refuses.push((flow, message.0));
                    }
                }
                said
            })
            .collect()
    }

    /// The acknowledgement that a ping asks for.
    fn asked(&mut self) -> Ack {
        self.hear_as(self.number, Flags::ACK_WANTED, None, &[Chunk::Ping]);
        let said = self.say();
        said.iter().find_map(|s| s.ack).unwrap()
    }
}

/// Says that every packet up to a number has come, but those.
fn all_but(largest: u32, missing: &[u32]) -> Ack {
    let base = missing.first().map_or(largest + 1, |&m| m);
    let mut ack = Ack {
        largest,
        base,
        words: (largest + 1 - base).div_ceil(64) as u8,
        ..Ack::default()
    };
    for bit in 0..largest + 1 - base {
        if !missing.contains(&(base + bit)) {
            ack.bitmap[bit as usize / 64] |= 1 << (bit % 64);
        }
    }
    ack
}

#[test]
fn marked_packets_are_counted_once_each_and_told() {
    let mut s = Script::new(&Config::default());
    let before = s.asked().ce;
    for ce in [true, true, false, true] {
        s.hear_marked(s.number, Flags::NONE, ce, None, &[Chunk::Ping]);
    }
    // A repeat is dropped unread.
    s.hear_marked(s.number - 1, Flags::NONE, true, None, &[Chunk::Ping]);
    assert_eq!(s.asked().ce, before + 3);
}

#[test]
fn each_mark_that_is_told_narrows_the_window_once() {
    let mut s = Script::new(&Config {
        congestion: Some(Mode::Shared),
        ..Config::default()
    });
    let tell = |s: &mut Script, ce: u32| {
        let number = s.send(1)[0];
        let ack = Ack {
            ce,
            ..all_but(number, &[])
        };
        s.hear(Some(&ack), &[]);
        s.say();
        s.window()
    };
    assert_eq!(tell(&mut s, 0), 10);
    assert_eq!(tell(&mut s, 1), 8);
    assert_eq!(tell(&mut s, 1), 8);
    // Who gave its state back counts anew, from wherever it likes.
    assert_eq!(tell(&mut s, 1 << 31), 8);
    assert_eq!(tell(&mut s, 1 + (1 << 31)), 7);
    // Of late acknowledgements each tells of fewer marks than were known.
    let numbers = s.send(2);
    let late = Ack {
        ce: 1 << 31,
        ..all_but(numbers[0], &[])
    };
    s.hear(
        Some(&Ack {
            ce: 2 + (1 << 31),
            ..all_but(numbers[1], &[])
        }),
        &[],
    );
    s.hear(Some(&late), &[]);
    s.say();
    assert_eq!(s.window(), 6);
    assert_eq!(tell(&mut s, 2 + (1 << 31)), 6);
}

fn head(total: u64, payload: &[u8]) -> Chunk<'_> {
    Chunk::Head(Head {
        priority: Priority::Request,
        flow: 0,
        message: MessageNo(2),
        port: 3,
        total,
        args: &[],
        payload,
    })
}

fn body(fragment: u32, payload: &[u8]) -> Chunk<'_> {
    Chunk::Body(Body {
        priority: Priority::Request,
        flow: 0,
        message: MessageNo(2),
        fragment,
        payload,
    })
}

#[test]
fn a_message_with_too_many_holes_takes_what_fills_them_and_nothing_beyond() {
    let mut s = Script::new(&Config::default());
    let no_room = |s: &mut Script| s.pair.nodes[0].with(|e, _| e.counters().drops.no_room);
    let unit = [7; 64];
    s.hear(None, &[head(64 * 600, &unit)]);
    // Every other part: as many holes as are kept track of.
    for fragment in 0..256 {
        s.hear(None, &[body(2 * fragment + 2, &unit)]);
    }
    assert_eq!(no_room(&mut s), 0);
    // One more is refused, even where it joins another.
    s.hear(None, &[body(520, &unit)]);
    assert_eq!(no_room(&mut s), 1);
    s.hear(None, &[body(513, &unit)]);
    assert_eq!(no_room(&mut s), 2);
    let refused = s.asked();
    // What is there already, and what fills the first hole, counts as come.
    s.hear(None, &[body(0, &unit)]);
    s.hear(None, &[body(1, &unit)]);
    assert_eq!(no_room(&mut s), 2);
    // Then there is room again.
    s.hear(None, &[body(520, &unit)]);
    assert_eq!(no_room(&mut s), 2);
    let ack = s.asked();
    assert_eq!(ack.base, refused.base);
    for fragment in (3..600).filter(|f| f % 2 == 1 || *f > 512) {
        s.hear(None, &[body(fragment, &unit)]);
    }
    assert_eq!(s.pair.nodes[0].log.got.last().unwrap().2, [7; 64 * 600]);
}

#[test]
fn what_has_left_and_what_is_done_with_are_told_apart() {
    let mut s = Script::new(&Config::default());
    let state = |s: &mut Script| {
        s.pair.nodes[0].with(|e, _| (e.has_left(), e.idle(), e.peer_idle(PeerId(0))))
    };
    assert_eq!(state(&mut s), (true, true, true));
    s.pair.send(0, b"data");
    assert_eq!(state(&mut s), (false, false, false));
    let number = s.say()[0].number();
    assert_eq!(state(&mut s), (true, false, false));
    // Given up, it is to leave again.
    s.probe();
    assert_eq!(state(&mut s), (false, false, false));
    let again = s.say()[0].number();
    assert_eq!(state(&mut s), (true, false, false));
    assert_eq!(again, number + 1);
    s.hear(Some(&all_but(again, &[])), &[]);
    s.say();
    assert_eq!(state(&mut s), (true, true, true));
}

#[test]
fn who_has_used_half_of_its_credit_hears_of_more_unasked() {
    let mut s = Script::new(&Config {
        hold_frames: 8,
        ..Config::default()
    });
    let before = s.asked();
    for i in 0..12 {
        let whole = Chunk::Head(Head {
            priority: Priority::Request,
            flow: 0,
            message: MessageNo(2 + i),
            port: 3,
            total: 4,
            args: &[],
            payload: b"abcd",
        });
        s.hear(None, &[whole]);
        let said = s.say();
        if i % 4 < 3 {
            assert!(said.is_empty(), "not needed after {} messages", i + 1);
        } else {
            let credit = said[0].ack.unwrap().credit;
            assert_eq!(credit, [before.credit[0] + i + 1, before.credit[1]]);
        }
    }
}

#[test]
fn the_digest_of_a_state_knows_what_matters_and_nothing_else() {
    let digest = |s: &mut Script| {
        let mut hasher = DefaultHasher::new();
        s.pair.nodes[0].with(|e, _| e.hash_state(&mut hasher));
        hasher.finish()
    };
    let mut one = Script::new(&Config::default());
    let mut other = Script::new(&Config::default());
    assert_eq!(digest(&mut one), digest(&mut other));
    // A packet that is dropped counts, and changes nothing else.
    one.hear_as(one.number - 1, Flags::NONE, None, &[Chunk::Ping]);
    assert_eq!(digest(&mut one), digest(&mut other));
    // Bytes of a free frame: the last message that was held, or is sent.
    one.pair.send(0, b"data");
    assert_ne!(digest(&mut one), digest(&mut other));
    other.pair.send(0, b"Data");
    assert_ne!(digest(&mut one), digest(&mut other));
    for s in [&mut one, &mut other] {
        let number = s.say()[0].number();
        s.hear(Some(&all_but(number, &[])), &[]);
        s.say();
    }
    assert_eq!(digest(&mut one), digest(&mut other));
    for s in [&mut one, &mut other] {
        s.asked();
    }
    assert_eq!(digest(&mut one), digest(&mut other));
}

#[test]
fn what_was_refused_leaves_again_once_some_of_it_was_taken() {
    let mut s = Script::new(&Config::default());
    let full = Flags::NONE.with(Flags::REQUESTS_FULL, true);
    let mut missing = s.send(4);
    s.hear_as(s.number, full, Some(&all_but(missing[3], &missing)), &[]);
    assert_eq!(s.say().len(), 0);
    s.probe();
    let again: Vec<_> = s.say().iter().map(Said::number).collect();
    assert_eq!(again.len(), 4);
    // None was taken: to try once more now would be in vain. Nor does a fresh
    // message that needed no room say anything of those.
    missing.extend(&again);
    s.hear_as(s.number, full, Some(&all_but(again[3], &missing)), &[]);
    assert_eq!(s.say().len(), 0);
    let fresh = s.reply();
    s.hear_as(s.number, full, Some(&all_but(fresh, &missing)), &[]);
    assert_eq!(s.say().len(), 0);
    s.probe();
    let again: Vec<_> = s.say().iter().map(Said::number).collect();
    assert_eq!(again.len(), 4);
    // The first was taken: the others may have become due by that.
    missing.extend(&again[1..]);
    s.hear_as(s.number, full, Some(&all_but(again[3], &missing)), &[]);
    assert_eq!(s.say().len(), 3);
}

#[test]
fn what_needs_no_room_for_requests_leaves_again_at_once() {
    let mut s = Script::new(&Config::default());
    let full = Flags::NONE.with(Flags::REQUESTS_FULL, true);
    let mut missing = s.send(2);
    s.hear_as(s.number, full, Some(&all_but(missing[1], &missing)), &[]);
    assert_eq!(s.say().len(), 0);
    // A reply that got lost.
    missing.push(s.reply());
    let seen = s.reply();
    s.hear_as(s.number, full, Some(&all_but(seen, &missing)), &[]);
    assert_eq!(s.say().len(), 1);
    // A close that got lost.
    let now = s.pair.now;
    s.pair.nodes[0].with(|e, _| e.close(now));
    let said = s.say();
    assert!(said[0].closes);
    missing.extend([seen + 1, said[0].number()]);
    s.hear_as(
        s.number,
        full.with(Flags::ACK_WANTED, true),
        None,
        &[Chunk::Ping],
    );
    let seen = s.say()[0].number();
    s.hear_as(s.number, full, Some(&all_but(seen, &missing)), &[]);
    assert!(s.say().iter().any(|s| s.closes));
}

#[test]
fn refusals_without_a_frame_are_told_once_there_is_one() {
    let mut s = Script::new(&Config {
        frames: 32,
        ..Config::default()
    });
    // The node's own messages take what the pool gives them.
    let now = s.pair.now;
    for priority in [Priority::Request, Priority::Reply] {
        let m = Message {
            priority,
            flow: 0,
            port: 3,
            args: &[],
            payload: &[7; 1000],
        };
        while s.pair.nodes[0]
            .with(|e, _| e.send(now, PeerId(0), &m))
            .is_ok()
        {}
    }
    let numbers: Vec<_> = s.say().iter().map(Said::number).collect();
    s.pair.nodes[0].log.verdict = Some(Verdict::Refuse);
    let unwanted = |flow: u16, number: u32| {
        Chunk::Head(Head {
            priority: Priority::Request,
            flow,
            message: MessageNo(number),
            port: 3,
            total: 4,
            args: &[],
            payload: b"abcd",
        })
    };
    // For the first there is a frame. One more of its flow waits for its turn.
    for chunk in [
        unwanted(0, 2),
        unwanted(1, 0),
        unwanted(2, 0),
        unwanted(0, 3),
    ] {
        s.hear(None, &[chunk]);
    }
    let refused =
        |said: &[Said]| -> Vec<_> { said.iter().flat_map(|s| s.refuses.clone()).collect() };
    assert_eq!(refused(&s.say()), [(0, 2)]);
    // Messages are acknowledged: frames are free again.
    s.hear(Some(&all_but(*numbers.last().unwrap(), &[])), &[]);
    assert_eq!(refused(&s.say()), []);
    s.pair.now += 1_000_000;
    let now = s.pair.now;
    s.pair.nodes[0].with(|e, log| e.handle_timeouts(now, log));
    let again = s.say();
    let mut told = refused(&again);
    told.retain(|r| *r != (0, 2));
    assert_eq!(told, [(1, 0), (2, 0)]);
    let last = again.last().unwrap().number();
    s.hear(Some(&all_but(last, &[])), &[]);
    assert_eq!(refused(&s.say()), [(0, 3)]);
}

#[test]
fn no_window_spans_more_numbers_than_a_bitmap() {
    for (answers, leaves) in [(510, 1), (511, 0)] {
        let mut s = Script::new(&Config::default());
        let number = s.send(1)[0];
        let ack = Ack {
            packet_limit: 10_000,
            ..all_but(number, &[])
        };
        s.hear(Some(&ack), &[]);
        // Nobody acknowledges this one. Answers to pings take numbers too.
        let oldest = s.send(1)[0];
        for _ in 0..answers {
            s.asked();
        }
        s.pair.send(0, b"data");
        let said = s.say();
        assert_eq!(said.len(), leaves, "{answers} after the oldest");
        if leaves == 0 {
            s.hear(Some(&all_but(oldest, &[])), &[]);
            let said = s.say();
            assert_eq!((said.len(), said[0].number()), (1, oldest + 512));
        }
        assert_eq!(s.resent(), 0);
    }
}
