//! Packet scripts: an endpoint, and a peer whose every packet is written by
//! hand: what a sender and a receiver say and do in answer to single packets.

mod common;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher};

use common::{Pair, address};
use portolan_proto::congestion::Mode;
use portolan_proto::{Config, DeathReason, Message, PeerId, PeerState, Verdict};
use portolan_seal::{Checksum, Nonce, Seal};
use portolan_wire::{
    Ack, Body, Chunk, Chunks, Flags, HEADER_BYTES, Head, Header, MessageNo, PacketType, Priority,
    TAG_BYTES,
};

const SECOND: u64 = 1_000_000_000;

/// What the endpoint said in one packet.
struct Said {
    header: Header,
    bytes: usize,
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

    /// Time passes until the node probes.
    fn probe(&mut self) {
        let probes = |s: &mut Self| s.pair.nodes[0].with(|e, _| e.counters().probes_sent);
        let before = probes(self);
        while probes(self) == before {
            let at = self.pair.nodes[0].with(|e, _| e.next_timeout()).unwrap();
            self.pair.now = self.pair.now.max(at);
            let now = self.pair.now;
            self.pair.nodes[0].with(|e, log| e.handle_timeouts(now, log));
        }
    }

    /// The node gets a packet with a number and flags of the test's choice.
    fn hear_as(&mut self, number: u64, flags: Flags, ack: Option<&Ack>, chunks: &[Chunk<'_>]) {
        self.hear_marked(number, flags, false, ack, chunks);
    }

    /// The same, perhaps with the congestion mark.
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
            e.handle_packet(now, address(2), ce, &mut packet, log);
            e.check();
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
                    bytes: packet.len(),
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

/// A whole request of the peer; of flow 0 it has sent two.
fn message(flow: u16, number: u32) -> Chunk<'static> {
    Chunk::Head(Head {
        priority: Priority::Request,
        flow,
        message: MessageNo(number),
        port: 3,
        total: 4,
        args: &[],
        payload: b"abcd",
    })
}

/// Says that every packet up to a number has come, but those, and that many
/// more may follow.
fn all_but(largest: u32, missing: &[u32]) -> Ack {
    let base = missing.first().map_or(largest + 1, |&m| m);
    let mut ack = Ack {
        largest,
        base,
        words: (largest + 1 - base).div_ceil(64) as u8,
        packet_limit: largest + 200,
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

#[test]
fn marks_told_with_nothing_new_count_with_the_next_that_is() {
    let mut s = Script::new(&Config {
        congestion: Some(Mode::Shared),
        ..Config::default()
    });
    let tell = |s: &mut Script, number: u32, ce: u32| {
        let ack = Ack {
            ce,
            ..all_but(number, &[])
        };
        s.hear(Some(&ack), &[]);
        s.say();
        s.window()
    };
    let first = s.send(1)[0];
    assert_eq!(tell(&mut s, first, 0), 10);
    // Our own acknowledgements may be what was marked.
    assert_eq!(tell(&mut s, first, 1), 10);
    let second = s.send(1)[0];
    assert_eq!(tell(&mut s, second, 1), 8);
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

fn part(message: u32, fragment: u32, payload: &[u8]) -> Chunk<'_> {
    Chunk::Body(Body {
        priority: Priority::Request,
        flow: 0,
        message: MessageNo(message),
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
        s.hear(None, &[part(2, 2 * fragment + 2, &unit)]);
    }
    assert_eq!(no_room(&mut s), 0);
    // One more is refused, even where it joins another.
    s.hear(None, &[part(2, 520, &unit)]);
    assert_eq!(no_room(&mut s), 1);
    s.hear(None, &[part(2, 513, &unit)]);
    assert_eq!(no_room(&mut s), 2);
    let refused = s.asked();
    // What is there already, and what fills the first hole, counts as come.
    s.hear(None, &[part(2, 0, &unit)]);
    s.hear(None, &[part(2, 1, &unit)]);
    assert_eq!(no_room(&mut s), 2);
    // Then there is room again.
    s.hear(None, &[part(2, 520, &unit)]);
    assert_eq!(no_room(&mut s), 2);
    let ack = s.asked();
    assert_eq!(ack.base, refused.base);
    for fragment in (3..600).filter(|f| f % 2 == 1 || *f > 512) {
        s.hear(None, &[part(2, fragment, &unit)]);
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
        s.hear(None, &[message(0, 2 + i)]);
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

/// The node's own messages take what the pool gives them.
fn fill(s: &mut Script) {
    let now = s.pair.now;
    for priority in [Priority::Request, Priority::Reply] {
        let m = Message {
            priority,
            flow: 0,
            port: 3,
            args: &[],
            payload: &[7; 1_400],
        };
        while s.pair.nodes[0]
            .with(|e, _| e.send(now, PeerId(0), &m))
            .is_ok()
        {}
    }
}

#[test]
fn refusals_without_a_frame_are_told_once_there_is_one() {
    let mut s = Script::new(&Config {
        frames: 32,
        ..Config::default()
    });
    fill(&mut s);
    let numbers: Vec<_> = s.say().iter().map(Said::number).collect();
    s.pair.nodes[0].log.verdict = Some(Verdict::Refuse);
    // For the first there is a frame. One more of its flow waits for its turn.
    for chunk in [message(0, 2), message(1, 0), message(2, 0), message(0, 3)] {
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

#[test]
fn what_is_said_of_a_number_is_not_taken_for_one_512_later() {
    let mut s = Script::new(&Config::default());
    let allow = |ack: Ack| Ack {
        packet_limit: 10_000,
        ..ack
    };
    // Given up, sent again, and watched for.
    let given_up = s.send(1)[0];
    let other = s.send(1)[0];
    s.hear(Some(&allow(all_but(other, &[given_up]))), &[]);
    let copy = s.say()[0].number();
    s.hear(Some(&allow(all_but(copy, &[given_up]))), &[]);
    // Answers to pings take the numbers between.
    for _ in copy..given_up + 511 {
        s.asked();
    }
    assert_eq!(s.send(1), [given_up + 512]);
    s.hear(Some(&allow(all_but(given_up + 511, &[]))), &[]);
    s.say();
    assert!(!s.pair.nodes[0].with(|e, _| e.idle()));
    s.hear(Some(&allow(all_but(given_up + 512, &[]))), &[]);
    s.say();
    assert!(s.pair.nodes[0].with(|e, _| e.idle()));
}

#[test]
fn an_acknowledgement_is_put_off_while_the_window_is_open_and_no_longer() {
    let mut s = Script::new(&Config {
        congestion: Some(Mode::Shared),
        ..Config::default()
    });
    let idle = |s: &mut Script| s.pair.nodes[0].with(|e, _| e.idle());
    let number = s.send(1)[0];
    s.hear(Some(&all_but(number, &[])), &[]);
    // A pass that has better to do looks at it later.
    s.pair.flush(0, false, &mut |_| true);
    assert!(!idle(&mut s));
    s.pair.flush(0, true, &mut |_| true);
    assert!(idle(&mut s));
    let window = s.window() as usize;
    let numbers = s.send(window);
    assert_eq!(numbers.len(), window);
    assert_eq!(s.send(1), []);
    // Where it is needed to send on, no pass waits.
    let last = *numbers.last().unwrap();
    s.hear(Some(&all_but(last, &[])), &[]);
    assert_eq!(s.pair.flush(0, false, &mut |_| true), 1);
    let numbers = s.send(window - 1);
    let last = *numbers.last().unwrap();
    s.hear(Some(&all_but(last, &[])), &[]);
    s.pair.now += 100_000;
    s.pair.send(0, b"data");
    assert_eq!(s.pair.flush(0, false, &mut |_| true), 1);
}

#[test]
fn refusals_of_replies_are_told_and_count_as_no_replies() {
    let mut s = Script::new(&Config::default());
    s.pair.nodes[0].log.verdict = Some(Verdict::Refuse);
    let reply = Chunk::Head(Head {
        priority: Priority::Reply,
        flow: 1,
        message: MessageNo(0),
        port: 3,
        total: 4,
        args: &[],
        payload: b"abcd",
    });
    // Each step checks what is counted.
    s.hear(None, &[reply]);
    let said = s.say();
    assert_eq!(said[0].refuses, [(1, 0)]);
    s.hear(Some(&all_but(said[0].number(), &[])), &[]);
    s.say();
    assert!(s.pair.nodes[0].with(|e, _| e.idle()));
}

/// Against a set, with numbers that come in any order.
#[test]
fn each_number_is_taken_once_and_acknowledgements_show_the_latest() {
    let mut x = 9_u64;
    let mut random = move |below: u64| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (x >> 33) % below
    };
    let mut s = Script::new(&Config::default());
    let first = s.number;
    let mut came: HashSet<u64> = HashSet::new();
    let mut next = first;
    let counts = |s: &mut Script| {
        let c = s.pair.nodes[0].with(|e, _| *e.counters());
        (c.packets_received, c.drops.replay)
    };
    for step in 0..20_000 {
        let number = match random(100) {
            0 => next + random(2_000),
            1 => next + [511, 512, 513, 1_023, 1_024, 1_025][random(6) as usize],
            2..30 => next + random(3),
            30..40 => next.saturating_sub(1_020 + random(10)).max(first),
            40..50 => next.saturating_sub(508 + random(10)).max(first),
            _ => next.saturating_sub(1 + random(40)).max(first),
        };
        let before = counts(&mut s);
        s.hear_as(number, Flags::NONE, None, &[Chunk::Ping]);
        let after = counts(&mut s);
        let known = number >= next || next - number <= 1_024;
        let taken = known && came.insert(number);
        next = next.max(number + 1);
        let expected = (before.0 + u64::from(taken), before.1 + u64::from(!taken));
        assert_eq!(after, expected, "step {step}: {number}, next {next}");
        if random(10) > 0 {
            continue;
        }
        // Ask with the next number, so that the answer comes at this time.
        let ack = s.asked();
        came.insert(next);
        next += 1;
        let oldest = next.saturating_sub(512).max(first);
        let base = (oldest..next).find(|n| !came.contains(n)).unwrap_or(next);
        assert_eq!(
            (u64::from(ack.largest), u64::from(ack.base)),
            (next - 1, base)
        );
        assert_eq!(u64::from(ack.words), (next - base).div_ceil(64));
        for n in base..next {
            let bit = (n - base) as usize;
            let shown = ack.bitmap[bit / 64] >> (bit % 64) & 1 == 1;
            assert_eq!(shown, came.contains(&n), "step {step}: {n}");
        }
    }
}

#[test]
fn an_acknowledgement_says_how_long_it_was_kept() {
    let mut s = Script::new(&Config::default());
    let old = s.number;
    s.hear_as(old + 1, Flags::NONE, None, &[Chunk::Ping]);
    // A gap is told at once, by a pass that has better to do too.
    assert_eq!(s.pair.flush(0, false, &mut |_| true), 1);
    s.pair.now += 6_400;
    s.hear_as(old, Flags::ACK_WANTED, None, &[Chunk::Ping]);
    // What asks for no more waits for an answer to ride on.
    assert_eq!(s.pair.flush(0, false, &mut |_| true), 0);
    assert_eq!(s.say()[0].ack.unwrap().delay, 100);
    assert_eq!(s.asked().delay, 0);
    s.pair.now += SECOND;
    s.hear_as(s.number + 1, Flags::NONE, None, &[Chunk::Ping]);
    s.say();
    s.pair.now += SECOND;
    s.hear_as(s.number - 2, Flags::ACK_WANTED, None, &[Chunk::Ping]);
    assert_eq!(s.say()[0].ack.unwrap().delay, u16::MAX);
}

#[test]
fn a_gap_is_lost_at_once_until_reordering_was_mistaken_for_loss() {
    let mut s = Script::new(&Config {
        // By the time nothing is lost.
        probe_slack_ns: SECOND,
        ..Config::default()
    });
    let spurious = |s: &mut Script| s.pair.nodes[0].with(|e, _| e.counters().spurious);
    // A network that keeps the order is trusted.
    let mut behind = 1;
    for mistakes in 1..=11 {
        let first = s.send(1)[0];
        let mut last = first;
        for later in 1..=behind {
            assert_eq!(s.resent(), mistakes - 1, "{later} of {behind}");
            last = s.send(1)[0];
            let ack = Ack {
                credit: [last + 100, 0],
                ..all_but(last, &[first])
            };
            s.hear(Some(&ack), &[]);
            s.say();
        }
        assert_eq!(s.resent(), mistakes);
        // It was only late. Its copy need not be acknowledged.
        s.hear(Some(&all_but(last, &[])), &[]);
        s.say();
        assert_eq!(spurious(&mut s), mistakes);
        assert!(s.pair.nodes[0].with(|e, _| e.idle()));
        behind = (2 * behind).min(385);
    }
}

#[test]
fn in_disorder_a_packet_is_lost_when_it_is_later_than_any_was() {
    let mut s = Script::new(&Config {
        probe_slack_ns: 100_000,
        ..Config::default()
    });
    // Sends others, of which the peer tells, until one is sent again; gives
    // their number. They leave one in 100 us.
    let overtakers = |s: &mut Script, first: u32| {
        let before = s.resent();
        let mut others = 0;
        while s.resent() == before && others < 400 {
            let last = s.send(1)[0];
            others += 1;
            let ack = Ack {
                credit: [last + 100, 0],
                ..all_but(last, &[first])
            };
            s.hear(Some(&ack), &[]);
            s.say();
        }
        s.hear(Some(&all_but(first + others, &[])), &[]);
        s.say();
        others
    };
    let mut gave_up_after = [0; 9];
    for others in &mut gave_up_after {
        let first = s.send(1)[0];
        *others = overtakers(&mut s, first);
    }
    // Each time it was only late. At first the number of others counts, then
    // the time, which grows by a quarter and the slack.
    assert_eq!(gave_up_after, [1, 2, 2, 4, 3, 5, 7, 9, 11]);
}

#[test]
fn what_comes_late_after_a_probe_tells_nothing_of_order() {
    let mut s = Script::new(&Config::default());
    let number = s.send(1)[0];
    s.probe();
    let said = s.say();
    assert_eq!((said.len(), said[0].heads), (1, 1));
    assert!(said[0].header.flags.has(Flags::ACK_WANTED));
    s.hear(Some(&all_but(number, &[])), &[]);
    s.say();
    assert_eq!(s.pair.nodes[0].with(|e, _| e.counters().spurious), 1);
    assert!(s.pair.nodes[0].with(|e, _| e.idle()));
    let numbers = s.send(2);
    s.hear(Some(&all_but(numbers[1], &numbers[..1])), &[]);
    assert_eq!(s.say().len(), 1);
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_acknowledges_nothing() {
    let mut s = Script::new(&Config::default());
    let idle = |s: &mut Script| s.pair.nodes[0].with(|e, _| e.idle());
    let number = s.send(1)[0];
    let sound = all_but(number, &[]);
    for wrong in [
        Ack { path: 1, ..sound },
        all_but(number + 1, &[]),
        Ack {
            base: number + 2,
            ..sound
        },
    ] {
        s.hear(Some(&wrong), &[]);
        assert_eq!(s.say().len(), 0);
        assert!(!idle(&mut s));
    }
    s.hear(Some(&sound), &[]);
    s.say();
    assert!(idle(&mut s));
}

/// The node has messages for twenty packets and sends as far as it may: gives
/// the last number that left, and the requests that have left by then.
fn blocked(s: &mut Script) -> (u32, u32) {
    for _ in 0..20 {
        s.pair.send(0, &[7; 1000]);
    }
    let said = s.say();
    // One was sent before.
    (said.last().unwrap().number(), 1 + said.len() as u32)
}

#[test]
fn credit_holds_and_never_shrinks() {
    let mut s = Script::new(&Config {
        hold_frames: 4,
        ..Config::default()
    });
    let (last, credit) = blocked(&mut s);
    let mut more = |requests: u32, replies: u32| {
        let ack = Ack {
            credit: [requests, replies],
            ..all_but(last, &[])
        };
        s.hear(Some(&ack), &[]);
        s.say().iter().map(|said| said.heads).sum::<usize>()
    };
    assert_eq!(more(credit, 0), 0);
    assert_eq!(more(credit + 2, 0), 2);
    assert_eq!(more(credit + 1, 100), 0);
    assert_eq!(more(credit + 3, 100), 1);
    assert_eq!(more(credit - 1, 100), 0);
    assert_eq!(more(credit + 4, 100), 1);
}

#[test]
fn the_packet_limit_holds_and_never_shrinks() {
    let mut s = Script::new(&Config {
        receive_packets: 4,
        ..Config::default()
    });
    let (last, _) = blocked(&mut s);
    let mut more = |limit: u32| {
        // Nothing new is acknowledged, so packets stay in flight.
        let ack = Ack {
            packet_limit: limit,
            ..all_but(0, &[])
        };
        s.hear(Some(&ack), &[]);
        s.say().len()
    };
    assert_eq!(more(last + 1), 0);
    assert_eq!(more(last + 3), 2);
    assert_eq!(more(last + 2), 0);
    assert_eq!(more(last + 4), 1);
}

#[test]
fn a_packet_carries_what_was_not_acknowledged_yet() {
    let mut s = Script::new(&Config::default());
    let number = s.send(1)[0];
    s.hear(Some(&all_but(number, &[])), &[]);
    assert_eq!(s.say().len(), 0);
    // Nothing to acknowledge, so nothing is said of it.
    s.pair.send(0, b"data");
    assert!(s.say()[0].ack.is_none());
    // A message that asks for no answer gets one with the next packet.
    let number = s.number;
    s.hear(None, &[Chunk::Ping]);
    assert_eq!(s.say().len(), 0);
    s.pair.send(0, b"data");
    assert_eq!(s.say()[0].ack.map(|a| u64::from(a.largest)), Some(number));
    s.pair.send(0, b"data");
    assert!(s.say()[0].ack.is_none());
}

#[test]
fn three_probes_in_vain_narrow_the_window_unless_the_peer_has_no_room() {
    for full in [false, true] {
        let mut s = Script::new(&Config {
            congestion: Some(Mode::Shared),
            ..Config::default()
        });
        s.send(2);
        let flags = Flags::NONE.with(Flags::REQUESTS_FULL, full);
        s.hear_as(s.number, flags, None, &[Chunk::Ping]);
        let windows = [(); 3].map(|()| {
            s.probe();
            s.say();
            s.window()
        });
        let narrow = if full { 10 } else { 2 };
        assert_eq!(windows, [10, 10, narrow], "{full}");
    }
}

#[test]
fn the_time_that_the_peer_kept_an_acknowledgement_is_not_the_networks() {
    // Of a millisecond the peer had it for 900 us: two windows in the rest.
    for (delay, leaves) in [(14_063, 1), (0, 0)] {
        let mut s = Script::new(&Config {
            congestion: Some(Mode::Shared),
            ..Config::default()
        });
        s.pair.run(SECOND, |_| true);
        for _ in 0..40 {
            let number = s.send(1)[0];
            s.pair.now += 1_000_000;
            let ack = Ack {
                delay,
                ..all_but(number, &[])
            };
            s.hear(Some(&ack), &[]);
            s.say();
        }
        // The bucket is emptied; the next leaves as soon as the rate allows.
        loop {
            s.pair.send(0, &[7; 1_400]);
            if s.say().is_empty() {
                break;
            }
            // The latest to come is an answer, so no round trip is measured.
            s.hear_as(s.number, Flags::ACK_WANTED, None, &[Chunk::Ping]);
            let answer = s.say()[0].number();
            s.hear(Some(&all_but(answer, &[])), &[]);
            s.say();
        }
        s.pair.now += 5_000;
        let now = s.pair.now;
        s.pair.nodes[0].with(|e, log| e.handle_timeouts(now, log));
        assert_eq!(s.say().len(), leaves, "{delay}");
    }
}

#[test]
fn without_a_frame_for_the_rest_packets_fit_a_path_that_shrank() {
    let mut s = Script::new(&Config {
        frames: 32,
        ..Config::default()
    });
    fill(&mut s);
    let mut missing: Vec<_> = s.say().iter().map(Said::number).collect();
    // A refusal takes one of the last frames.
    s.pair.nodes[0].log.verdict = Some(Verdict::Refuse);
    s.hear(None, &[message(1, 0)]);
    missing.extend(s.say().iter().map(Said::number));
    s.pair.nodes[0].with(|e, _| e.packet_too_big(PeerId(0), 0, 0));
    // All of it got lost, but what asked for nothing did not.
    s.hear_as(s.number, Flags::ACK_WANTED, None, &[Chunk::Ping]);
    let answer = s.say()[0].number();
    s.hear(Some(&all_but(answer, &missing)), &[]);
    let mut heads = 0;
    while !s.pair.nodes[0].with(|e, _| e.idle()) {
        // Long enough for any pacing.
        s.pair.now += 100_000;
        let said = s.say();
        heads += said.iter().map(|s| s.heads).sum::<usize>();
        assert!(said.iter().all(|s| s.bytes <= 1_232));
        // The last acknowledgement of all is looked at as nothing is left.
        let Some(last) = said.last().map(Said::number) else {
            continue;
        };
        let ack = Ack {
            credit: [100, 100],
            ..all_but(last, &[])
        };
        s.hear(Some(&ack), &[]);
    }
    assert_eq!(heads, 30);
}

#[test]
fn a_number_whose_slot_cannot_be_freed_is_left_out() {
    let mut s = Script::new(&Config {
        frames: 32,
        ..Config::default()
    });
    // The link keeps this one for very long.
    s.pair.send(0, b"data");
    let now = s.pair.now;
    let (kept, oldest) = s.pair.nodes[0].with(|e, log| {
        let t = e.poll_transmit(now, true, log).unwrap();
        let header = Header::parse(e.frame(&t)).unwrap();
        (t.frame, header.number)
    });
    // Meanwhile no frame is left to which its message could move.
    fill(&mut s);
    s.say();
    s.pair.nodes[0].log.verdict = Some(Verdict::Refuse);
    s.hear(None, &[message(1, 0)]);
    s.say();
    let mut numbers = Vec::new();
    while numbers.last().is_none_or(|&n| n < oldest + 512) {
        s.hear_as(s.number, Flags::ACK_WANTED, None, &[Chunk::Ping]);
        numbers.extend(s.say().iter().map(Said::number));
    }
    assert!(numbers.contains(&(oldest + 511)));
    assert_eq!(*numbers.last().unwrap(), oldest + 513);
    s.pair.nodes[0].with(|e, _| {
        e.transmitted(kept);
        e.check();
    });
}

#[test]
fn a_head_without_bytes_and_its_first_part_are_held_apart() {
    for reversed in [false, true] {
        let mut s = Script::new(&Config::default());
        let unit = [9; 64];
        let mut parts = [
            Chunk::Head(Head {
                priority: Priority::Request,
                flow: 0,
                message: MessageNo(3),
                port: 3,
                total: 128,
                args: &[],
                payload: &[],
            }),
            part(3, 0, &unit),
            part(3, 1, &unit),
        ];
        if reversed {
            parts.reverse();
        }
        for part in parts {
            s.hear(None, &[part]);
        }
        // They come before their turn.
        let held = s.pair.nodes[0].with(|e, _| e.counters().held);
        assert_eq!(held, 3);
        s.hear(None, &[message(0, 2)]);
        let got: Vec<_> = s.pair.nodes[0].log.got.iter().map(|g| &g.2[..]).collect();
        assert_eq!(got[2..], [&b"abcd"[..], &[9; 128]]);
    }
}

#[test]
fn both_parts_of_a_packet_that_became_too_big_leave_at_once() {
    let mut s = Script::new(&Config::default());
    s.pair.send(0, &[7; 1_400]);
    let number = s.say()[0].number();
    s.pair.nodes[0].with(|e, _| e.packet_too_big(PeerId(0), 0, 0));
    let last = s.send(1)[0];
    s.hear(Some(&all_but(last, &[number])), &[]);
    let sizes: Vec<_> = s.say().iter().map(|s| s.bytes).collect();
    assert_eq!(sizes.len(), 2);
    assert!(sizes.iter().all(|&bytes| bytes <= 1_232), "{sizes:?}");
}

#[test]
fn a_silent_peer_that_owes_a_message_is_asked_and_then_dead() {
    // The second of two came; or the first, which is not wanted now.
    for (number, owes) in [(3, true), (2, false)] {
        let mut s = Script::new(&Config::default());
        s.pair.nodes[0].log.verdict = Some(Verdict::NotNow);
        s.hear(None, &[message(0, number)]);
        let end = s.pair.now + 5 * SECOND;
        let mut asked = 0;
        while let Some(at) = s.pair.nodes[0].with(|e, _| e.next_timeout())
            && at < end
        {
            s.pair.now = s.pair.now.max(at);
            s.pair.nodes[0].with(|e, log| e.handle_timeouts(at, log));
            asked += s.say().len();
        }
        let state = s.pair.nodes[0].with(|e, _| e.peer_state(PeerId(0)));
        if owes {
            assert_eq!(state, PeerState::Dead(DeathReason::Silent));
            assert!((3..20).contains(&asked), "{asked} times");
        } else {
            assert_eq!((state, asked), (PeerState::Up, 0));
        }
    }
}

#[test]
fn news_of_room_lets_what_was_refused_leave_at_once() {
    let mut s = Script::new(&Config::default());
    let full = Flags::NONE.with(Flags::REQUESTS_FULL, true);
    let missing = s.send(4);
    s.hear_as(s.number, full, Some(&all_but(missing[3], &missing)), &[]);
    assert_eq!(s.say().len(), 0);
    // The packet that tells need not acknowledge anything.
    s.hear(None, &[Chunk::Ping]);
    assert_eq!(s.say().len(), 4);
}
