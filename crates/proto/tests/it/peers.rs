//! Packet scripts: many peers and little state for those that are active;
//! peers that fall quiet and come back.
use std::collections::VecDeque;

use crate::common::{Node, Pair, address};
use portolan_proto::congestion::Mode;
use portolan_proto::{Config, Message, PeerId, SendError};
use portolan_wire::{EndpointId, Flags, Life, PacketType, Priority};

const SECOND: u64 = 1_000_000_000;

const fn message(priority: Priority, flow: u16, payload: &[u8]) -> Message<'_> {
    Message {
        priority,
        flow,
        port: flow,
        args: &[],
        payload,
    }
}

/// An endpoint that knows many others, each of which knows only it.
struct Star {
    now: u64,
    hub: Node,
    others: Vec<Node>,
    /// On the way to the hub, and from whom.
    wire: VecDeque<(u64, Vec<u8>)>,
}

/// Packets that the hub reads in one pass: as in the engine, no more than peers
/// can be active.
const BURST: usize = 8;

/// Ids of the others begin here, in the order of their numbers as peers.
const FIRST: u64 = 100;

impl Star {
    fn new(hub: &Config, others: u32) -> Self {
        let mut hub = Node::new(
            &Config {
                peers: others,
                ..*hub
            },
            1,
            11,
        );
        let small = Config {
            peers: 1,
            active: 1,
            frames: 32,
            frame_bytes: 1_664,
            longs: 2,
            ..Config::default()
        };
        let others = (0..u64::from(others)).map(|i| {
            let (id, life) = (EndpointId(FIRST + i), Life(1_000 + i));
            let at = address(FIRST + i);
            hub.with(|e, _| e.add_peer(id, life, at, Mode::Lan).unwrap());
            let mut other = Node::new(&small, id.0, life.0);
            other.with(|e, _| {
                e.add_peer(EndpointId(1), Life(11), address(1), Mode::Lan)
                    .unwrap()
            });
            other
        });
        let others = others.collect();
        Self {
            now: SECOND,
            hub,
            others,
            wire: VecDeque::new(),
        }
    }

    /// Lets everything travel that can, for as long as something does.
    fn run(&mut self) {
        loop {
            let now = self.now;
            let mut moved = false;
            let mut out = Vec::new();
            self.hub.with(|e, log| {
                while let Some(t) = e.poll_transmit(now, true, log) {
                    out.push((u64::from(t.to.port) - FIRST, e.frame(&t).to_vec()));
                    e.transmitted(t.frame);
                }
            });
            for (to, mut packet) in out {
                moved = true;
                self.others[to as usize].with(|e, log| {
                    log.packet(e, now, address(1), false, &mut packet);
                });
            }
            for (i, other) in (FIRST..).zip(&mut self.others) {
                other.with(|e, log| {
                    while let Some(t) = e.poll_transmit(now, true, log) {
                        self.wire.push_back((i, e.frame(&t).to_vec()));
                        e.transmitted(t.frame);
                    }
                });
            }
            for _ in 0..BURST.min(self.wire.len()) {
                moved = true;
                let (from, mut packet) = self.wire.pop_front().unwrap();
                self.hub.with(|e, log| {
                    log.packet(e, now, address(from), false, &mut packet);
                });
            }
            self.now += 5_000;
            if !moved {
                return;
            }
        }
    }

    /// So long passes, with all that falls due in it.
    fn pass(&mut self, ns: u64) {
        let end = self.now + ns;
        while self.now < end {
            self.run();
            let all = std::iter::once(&mut self.hub).chain(&mut self.others);
            let due = all.filter_map(|node| node.with(|e, _| e.next_timeout()));
            self.now = due.min().unwrap_or(end).clamp(self.now, end);
            let now = self.now;
            for node in std::iter::once(&mut self.hub).chain(&mut self.others) {
                node.with(|e, log| log.timeouts(e, now));
            }
        }
        self.run();
    }

    /// Sends to a peer as soon as there is credit.
    fn send(&mut self, to: u32, m: &Message<'_>) {
        for _ in 0..100 {
            let now = self.now;
            match self.hub.with(|e, _| e.send(now, PeerId(to), m)) {
                Ok(_) => return,
                Err(SendError::NoCredit) => self.pass(SECOND / 1_000),
                Err(e) => panic!("to peer {to}: {e:?}"),
            }
        }
        panic!("peer {to} never gets its turn");
    }

    /// Places for parked state that were ever written.
    fn parked(&self) -> usize {
        let used = |words: &&[u64; size_of::<portolan_proto::PeerSnapshot>() / 8]| {
            words.iter().any(|word| *word != 0)
        };
        self.hub.parked.iter().filter(used).count()
    }
}

#[test]
fn all_may_talk_though_few_can_be_active() {
    const PEERS: u32 = 300;
    const ROUNDS: u8 = 3;
    let config = Config {
        active: BURST as u32,
        // As after a while: what is kept begins nowhere near zero.
        first_packet: u64::from(u32::MAX) - 2,
        first_message: u32::MAX - 1,
        ..Config::default()
    };
    let mut star = Star::new(&config, PEERS);
    let mut expected = vec![Vec::new(); PEERS as usize];
    for round in 0..ROUNDS {
        // Those that wait are never the ones that come next.
        for i in 0..PEERS {
            let to = (i * 7) % PEERS;
            for flow in [0, 1, 7] {
                let payload = [round, flow as u8, to as u8];
                star.send(to, &message(Priority::Request, flow, &payload));
                star.send(to, &message(Priority::Reply, flow, &payload));
                let one = (flow, Vec::new(), payload.to_vec());
                expected[to as usize].extend([one.clone(), one]);
            }
        }
        star.run();
    }
    for (other, mut expected) in star.others.iter_mut().zip(expected) {
        let by_flow = |m: &(u16, Vec<u64>, Vec<u8>)| (m.0, m.2[0]);
        expected.sort_by_key(by_flow);
        // In order within each flow.
        other.log.got.sort_by_key(|m| m.0);
        assert_eq!(other.log.got, expected);
    }
    // And the other way: each is quiet here, or is made so.
    let now = star.now;
    for other in &mut star.others {
        let m = message(Priority::Request, 2, b"ahoy");
        other.with(|e, _| e.send(now, PeerId(0), &m).unwrap());
    }
    star.pass(5 * SECOND);
    assert_eq!(star.hub.log.got.len(), PEERS as usize);
    assert_eq!(star.parked(), PEERS as usize);
    star.hub.with(|e, _| e.check());
}

#[test]
fn only_who_was_talked_to_takes_a_place_on_the_shelf() {
    let mut star = Star::new(&Config::default(), 200);
    for to in [150, 3, 77] {
        star.send(to, &message(Priority::Request, 0, b"ahoy"));
    }
    star.run();
    assert_eq!(star.parked(), 0);
    star.pass(30 * SECOND);
    assert_eq!(star.parked(), 3);
    // Whoever comes back has one.
    star.send(77, &message(Priority::Request, 0, b"again"));
    star.pass(30 * SECOND);
    assert_eq!(star.parked(), 3);
    assert_eq!(star.others[77].log.got.len(), 2);
}

/// Checks P12.4.
#[test]
fn after_ten_quiet_seconds_the_active_state_is_given_back() {
    let mut pair = Pair::new(&Config::default());
    let active = |pair: &mut Pair| {
        let mut of = |i: usize| pair.nodes[i].with(|e, _| e.window(PeerId(0)).is_some());
        [of(0), of(1)]
    };
    let mut recorded = Vec::new();
    let mut connects = 0;
    for round in 0..4 {
        for flow in 0..8 {
            let now = pair.now;
            let payload = [round, flow];
            let m = message(Priority::Request, flow.into(), &payload);
            pair.nodes[0].with(|e, _| e.send(now, PeerId(0), &m).unwrap());
        }
        let talked_at = pair.now;
        pair.run(SECOND, |packet| {
            let header = portolan_wire::Header::parse(packet).unwrap();
            connects += usize::from(header.kind == PacketType::Connect);
            recorded.push(packet.to_vec());
            true
        });
        let until = talked_at + 9 * SECOND + SECOND / 2;
        pair.run(until - pair.now, |_| true);
        assert_eq!(active(&mut pair), [true; 2], "round {round}");
        let until = talked_at + 11 * SECOND;
        pair.run(until.saturating_sub(pair.now), |_| true);
        assert_eq!(active(&mut pair), [false; 2], "round {round}");
        // What was received stays so.
        let before = pair.nodes[1].log.got.len();
        pair.wire[1].extend(recorded.clone());
        pair.deliver(1);
        assert_eq!(pair.nodes[1].log.got.len(), before);
        pair.run(30 * SECOND, |_| true);
    }
    // They knew each other all the time.
    assert!((2..=4).contains(&connects), "{connects} connect packets");
    let got = pair.nodes[1].log.got.iter();
    let got: Vec<_> = got
        .map(|(_, _, payload)| [payload[0], payload[1]])
        .collect();
    let all: Vec<_> = (0..4)
        .flat_map(|round| (0..8).map(move |flow| [round, flow]))
        .collect();
    assert_eq!(got, all);
}

#[test]
fn what_a_peer_offered_is_known_active_or_quiet() {
    let mut pair = Pair::new(&Config::default());
    pair.send(0, b"ahoy");
    let mut first = None;
    pair.run(SECOND, |packet| {
        first.get_or_insert_with(|| packet.to_vec());
        true
    });
    let first = first.unwrap();
    // First while there is active state, then without.
    for _ in 0..2 {
        let replays = |node: &mut Node| node.with(|e, _| e.counters().drops.replay);
        let before = replays(&mut pair.nodes[1]);
        pair.wire[1].push_back(first.clone());
        pair.deliver(1);
        assert_eq!(replays(&mut pair.nodes[1]), before);
        // It asks again, so it is answered.
        assert_eq!(pair.flush(1, true, &mut |_| true), 1);
        pair.run(30 * SECOND, |_| true);
    }
}

/// Checks P4.7.
#[test]
fn nothing_is_kept_of_an_earlier_life() {
    let mut pair = Pair::new(&Config::default());
    for life in 0..3 {
        for payload in [[life, 0], [life, 1]] {
            pair.send(1, &payload);
            pair.run(SECOND, |_| true);
            pair.send(0, &payload);
            pair.run(30 * SECOND, |_| true);
        }
        for node in &mut pair.nodes {
            assert_eq!(node.log.got.len(), 2, "life {life}");
            node.log.got.clear();
        }
        pair.nodes[1] = Node::new(&Config::default(), 2, 23 + u64::from(life));
        pair.nodes[1].with(|e, _| {
            e.add_peer(EndpointId(1), Life(11), address(1), Mode::Lan)
                .unwrap()
        });
    }
}

#[test]
fn a_connection_number_goes_with_the_peer() {
    let mut pair = Pair::new(&Config::default());
    let numbers = |node: &mut Node| -> Vec<u32> {
        node.with(|e, _| e.connection_numbers(PeerId(0)).collect())
    };
    let first = numbers(&mut pair.nodes[0]);
    pair.send(1, b"hello");
    let mut told = Vec::new();
    pair.run(SECOND, |packet| {
        let header = portolan_wire::Header::parse(packet).unwrap();
        if header.kind == PacketType::Data {
            told.push(header.connection);
        }
        true
    });
    // Both have sent, and each by the number that the other knows.
    let second = numbers(&mut pair.nodes[1]);
    assert_eq!(numbers(&mut pair.nodes[0]), first);
    assert!(first.iter().all(|number| told.contains(number)));
    assert!(
        told.iter()
            .all(|it| first.contains(it) || second.contains(it))
    );
    pair.nodes[0].with(|e, _| e.peer_died(PeerId(0)));
    assert_eq!(numbers(&mut pair.nodes[0]), []);
    assert_eq!(
        pair.nodes[0].with(|e, _| e.connection_numbers(PeerId(1)).count()),
        0
    );
}

#[test]
fn a_peer_hears_that_its_packets_come_by_a_detour() {
    let mut pair = Pair::new(&Config::default());
    pair.send(0, b"hello");
    pair.run(SECOND, |_| true);
    let now = pair.now;
    // Node 1 takes a packet that came so, and answers; what the answer says.
    let mut exchange = |detour: bool| {
        pair.send(0, b"again");
        pair.flush(0, true, &mut |_| true);
        while let Some(mut packet) = pair.wire[1].pop_front() {
            pair.nodes[1].with(|e, log| {
                let heard = log.packet(e, now, address(1), false, &mut packet);
                e.note_detour(heard.unwrap().peer, detour);
            });
        }
        pair.send(1, b"yes");
        pair.flush(1, true, &mut |_| true);
        let mut answers = std::mem::take(&mut pair.wire[0]);
        let hear = |packet: &mut Vec<u8>| {
            let header = portolan_wire::Header::parse(packet).unwrap();
            let heard = pair.nodes[0]
                .with(|e, log| log.packet(e, now, address(2), false, packet))
                .unwrap();
            assert_eq!(heard.peer, PeerId(0));
            assert_eq!(header.flags.has(Flags::DETOUR), heard.detour);
            heard.detour
        };
        answers.iter_mut().map(hear).last().unwrap()
    };
    // One now and then is nothing.
    assert_eq!([true, true, true, false].map(&mut exchange), [false; 4]);
    assert_eq!([true; 3].map(&mut exchange), [false; 3]);
    assert_eq!([true; 300].map(&mut exchange), [true; 300]);
    assert_eq!([false, true].map(exchange), [false; 2]);
    // A packet that does not verify is from nobody.
    pair.send(0, b"x");
    pair.flush(0, true, &mut |_| true);
    let mut packet = pair.wire[1].pop_back().unwrap();
    *packet.last_mut().unwrap() ^= 1;
    packet[16] ^= 1;
    let heard = pair.nodes[1].with(|e, log| log.packet(e, now, address(1), false, &mut packet));
    assert_eq!(heard, None);
}
