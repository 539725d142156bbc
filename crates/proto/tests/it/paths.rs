//! Two networks between two endpoints, packet by packet.

use std::collections::HashSet;

use crate::common::{Node, address};
use portolan_proto::congestion::Mode;
use portolan_proto::{
    Config, Endpoint, LocalNetwork, Message, NetAddress, PeerEvent, PeerId, Release, SourceId,
    Transmit,
};
use portolan_seal::AnySeal;
use portolan_wire::{
    Ack, Chunk, Chunks, EndpointId, Flags, HEADER_BYTES, Header, Life, PacketType, Priority,
    TAG_BYTES,
};

const SECOND: u64 = 1_000_000_000;

/// Path and number of a packet that left, and whether it carries messages.
type Left = (u8, u32, bool);

fn carries_messages(packet: &[u8]) -> bool {
    let header = Header::parse(packet).unwrap();
    let mut rest = &packet[HEADER_BYTES..packet.len() - TAG_BYTES];
    if header.flags.has(Flags::HAS_ACK) {
        rest = &rest[Ack::parse(rest).unwrap().1..];
    }
    let first = Chunks::new(rest).next();
    matches!(first, Some(Ok(Chunk::Head(_) | Chunk::Body(_))))
}

fn second(node: usize, net: u8) -> LocalNetwork {
    LocalNetwork {
        address: NetAddress {
            ip: [net; 16],
            port: 500 + node as u16,
        },
        prefix: 64,
        packet_max: 1_472,
    }
}

/// The networks of two that list them in different orders.
const CROSSED: [[u8; 2]; 2] = [[8, 9], [9, 8]];

/// Two endpoints, the second network of each, and all that left of each.
struct Two {
    now: u64,
    nodes: [Node; 2],
    wire: [Vec<(NetAddress, Vec<u8>)>; 2],
    /// Addresses of each on its networks.
    own: [[NetAddress; 2]; 2],
    left: [Vec<Left>; 2],
}

impl Two {
    fn new(nets: [u8; 2]) -> Self {
        let config = Config {
            more_paths: 2,
            ..Config::default()
        };
        let mut nodes = [Node::new(&config, 1, 11), Node::new(&config, 2, 22)];
        for (i, (id, life)) in [(2, 22), (1, 11)].into_iter().enumerate() {
            nodes[i].with(|e, _| {
                e.set_network(1, second(i, nets[i]));
                e.add_peer(EndpointId(id), Life(life), address(id), Mode::Lan)
                    .unwrap()
            });
        }
        let own = [0, 1].map(|i| [address(i as u64 + 1), second(i, nets[i]).address]);
        Self::of(nodes, own)
    }

    /// Two that list the same networks, as [`CROSSED`] says.
    fn crossed() -> Self {
        let config = Config {
            more_paths: 2,
            ..Config::default()
        };
        let mut nodes = [Node::new(&config, 1, 11), Node::new(&config, 2, 22)];
        for (i, (id, life)) in [(2, 22), (1, 11)].into_iter().enumerate() {
            let known_by = second(1 - i, CROSSED[1 - i][0]).address;
            nodes[i].with(|e, _| {
                for (number, net) in CROSSED[i].into_iter().enumerate() {
                    e.set_network(number, second(i, net));
                }
                e.add_peer(EndpointId(id), Life(life), known_by, Mode::Lan)
                    .unwrap()
            });
        }
        let own = [0, 1].map(|i| CROSSED[i].map(|net| second(i, net).address));
        Self::of(nodes, own)
    }

    fn of(nodes: [Node; 2], own: [[NetAddress; 2]; 2]) -> Self {
        Self {
            now: SECOND,
            nodes,
            wire: [vec![], vec![]],
            own,
            left: [vec![], vec![]],
        }
    }

    fn with<R>(&mut self, i: usize, f: impl FnOnce(&mut Endpoint<'_, AnySeal>, u64) -> R) -> R {
        let now = self.now;
        self.nodes[i].with(|e, _| f(e, now))
    }

    fn send(&mut self, from: usize, payload: &[u8]) {
        let m = Message {
            priority: Priority::Request,
            flow: 0,
            port: 3,
            args: &[],
            payload,
        };
        self.with(from, |e, now| e.send(now, PeerId(0), &m))
            .unwrap();
    }

    fn send_long(&mut self, from: usize, bytes: usize) {
        self.nodes[from].log.source = vec![7; bytes];
        let m = Message {
            priority: Priority::Request,
            flow: 0,
            port: 3,
            args: &[],
            payload: &[],
        };
        let release = Release::Acknowledged;
        let id = SourceId(1);
        self.with(from, |e, now| {
            e.send_long(now, PeerId(0), &m, bytes as u64, id, release)
        })
        .unwrap();
    }

    /// Runs both for a while; `passes` says of a packet which arrive.
    fn run(&mut self, ns: u64, passes: impl Fn(&Transmit) -> bool) {
        let end = self.now + ns;
        loop {
            let mut moved = 0;
            for i in 0..2 {
                let (now, come) = (self.now, std::mem::take(&mut self.wire[i]));
                moved += come.len();
                let (left, wire) = (&mut self.left[i], &mut self.wire[1 - i]);
                let own = self.own[i];
                self.nodes[i].with(|e, log| {
                    for (from, mut packet) in come {
                        log.packet(e, now, from, false, &mut packet);
                    }
                    if e.next_timeout().is_some_and(|at| at <= now) {
                        log.timeouts(e, now);
                    }
                    while let Some(t) = e.poll_transmit(now, true, log) {
                        moved += 1;
                        let bytes = e.frame(&t).to_vec();
                        let header = Header::parse(&bytes).unwrap();
                        assert_eq!(header.path, t.path);
                        if header.kind == PacketType::Data {
                            left.push((header.path, header.number, carries_messages(&bytes)));
                        }
                        if passes(&t) {
                            wire.push((own[usize::from(t.network)], bytes));
                        }
                        e.transmitted(t.frame);
                    }
                    e.check();
                });
            }
            if moved > 0 {
                self.now += 5_000;
                continue;
            }
            let due = (0..2).filter_map(|i| self.with(i, |e, _| e.next_timeout()));
            match due.collect::<Vec<_>>().into_iter().min() {
                Some(at) if at <= end => self.now = self.now.max(at),
                _ => return self.now = end,
            }
        }
    }

    /// Packets with messages that left by each path since then.
    fn by_path(&self, from: usize, since: usize) -> [usize; 2] {
        let count = |path| {
            self.left[from][since..]
                .iter()
                .filter(|l| l.0 == path && l.2)
                .count()
        };
        [count(0), count(1)]
    }

    fn bytes_got(&self, i: usize) -> usize {
        self.nodes[i]
            .log
            .got
            .iter()
            .map(|(_, _, bytes)| bytes.len())
            .sum()
    }
}

/// Checks P2.5, P12.2.
#[test]
fn a_network_is_used_once_an_answer_came_and_its_size_is_known() {
    for answers in [true, false] {
        let mut two = Two::new([9, 9]);
        two.send(0, b"hello");
        // What went there comes back only if the peer can answer.
        let passes = |t: &Transmit| {
            if t.path == 1 {
                assert_eq!(t.to.ip, [9; 16]);
            }
            t.path == 0 || answers
        };
        two.run(SECOND, passes);
        let first = two.left[0].iter().find(|left| left.0 == 1);
        assert_eq!(first.map(|left| left.1), Some(0), "its numbers begin at 0");
        let before = two.left[0].len();
        two.send_long(0, 300_000);
        two.run(SECOND, passes);
        assert_eq!(two.bytes_got(1), 300_005);
        let [first, second] = two.by_path(0, before);
        if answers {
            assert!(first > 60 && second > 60, "{first} and {second} packets");
        } else {
            assert!(first > 200 && second == 0, "{first} and {second} packets");
        }
    }
}

/// Checks P12.1.
#[test]
fn a_peer_on_another_network_is_reached_by_the_first_alone() {
    let mut two = Two::new([9, 8]);
    two.send(0, b"hello");
    two.run(SECOND, |t| t.path == 0);
    two.send_long(0, 300_000);
    two.run(SECOND, |_| true);
    assert_eq!(two.bytes_got(1), 300_005);
    assert!(two.left.iter().flatten().all(|l| l.0 == 0));
}

/// Checks P12.1.
#[test]
fn networks_in_different_orders_are_paired_by_their_subnets() {
    let net_of = |t: &Transmit| {
        let to = usize::from(t.to.port) - 500;
        let net = CROSSED[1 - to][usize::from(t.network)];
        assert_eq!(
            t.to,
            second(to, net).address,
            "not of the network it left by"
        );
        net
    };
    for gone in [8, 9] {
        let mut two = Two::crossed();
        for from in 0..2 {
            two.send(from, b"hello");
        }
        two.run(SECOND, |t| net_of(t) > 0);
        let before = [0, 1].map(|i| two.left[i].len());
        for from in 0..2 {
            two.send_long(from, 300_000);
        }
        two.run(SECOND, |t| net_of(t) > 0);
        assert_eq!([0, 1].map(|i| two.bytes_got(i)), [300_005; 2]);
        for (from, since) in before.into_iter().enumerate() {
            let [first, second] = two.by_path(from, since);
            assert!(first > 60 && second > 60, "{first} and {second} packets");
            two.send_long(from, 300_000);
        }
        // Answers, too, come by the network that is left.
        two.run(SECOND, |t| net_of(t) != gone);
        let got = [0, 1].map(|i| two.bytes_got(i));
        assert_eq!(got, [600_005; 2], "without network {gone}");
    }
}

#[test]
fn connections_that_come_later_leave_further_paths_alone() {
    const ABSENT: u32 = 100;
    let mut two = Two::new([9, 9]);
    let config = Config {
        active: 1,
        more_paths: 1,
        introduces: true,
        ..Config::default()
    };
    two.nodes[0] = Node::new(&config, 1, 11);
    two.with(0, |e, _| {
        e.set_network(1, second(0, 9));
        let mut add = |id: u64| {
            let (at, life) = (address(id), Life(11 * id));
            e.add_peer(EndpointId(id), life, at, Mode::Lan).unwrap();
        };
        (2..=2 + u64::from(ABSENT)).for_each(&mut add);
    });
    let message = Message {
        priority: Priority::Request,
        flow: 0,
        port: 3,
        args: &[],
        payload: b"hello",
    };
    // Its first connection is for one that is not there, and so are many others.
    for to in (1..=ABSENT).chain([0]) {
        for turn in 0.. {
            assert!(turn < 2, "no room for peer {to}");
            if (two.with(0, |e, now| e.send(now, PeerId(to), &message))).is_ok() {
                break;
            }
            two.nodes[0].grow();
            two.run(SECOND / 1_000, |t| t.peer == PeerId(0));
        }
    }
    let there = two.nodes[0].conns.len();
    assert_eq!(there, two.nodes[0].paths.len());
    assert!((1 + 1 + ABSENT as usize..1 + 1 + ABSENT as usize + 64).contains(&there));
    two.run(SECOND, |t| t.peer == PeerId(0));
    let before = two.left[0].len();
    two.send_long(0, 300_000);
    two.run(SECOND, |t| t.peer == PeerId(0));
    assert_eq!(two.bytes_got(1), 300_005);
    let [first, second] = two.by_path(0, before);
    assert!(first > 60 && second > 60, "{first} and {second} packets");
}

/// Checks P2.7, P12.4.
#[test]
fn numbers_of_a_path_go_on_after_a_quiet_time() {
    let mut two = Two::new([9, 9]);
    let talk = |two: &mut Two| {
        let before = two.left[0].len();
        for from in 0..2 {
            two.send_long(from, 200_000);
        }
        two.run(SECOND, |_| true);
        two.by_path(0, before)[1]
    };
    two.send(0, b"hello");
    two.run(SECOND, |_| true);
    assert!(talk(&mut two) > 20);
    two.run(30 * SECOND, |_| true);
    // Their active state was given back: of the next message the path may be
    // tried only, of the one after it carries its part.
    talk(&mut two);
    assert!(talk(&mut two) > 20);
    assert_eq!(two.bytes_got(1), 600_005);
    for left in &two.left {
        let different: HashSet<_> = left.iter().map(|l| (l.0, l.1)).collect();
        assert_eq!(different.len(), left.len(), "a number was used twice");
    }
}

/// Checks P2.3, P12.5.
#[test]
fn a_forged_packet_of_a_new_path_takes_no_state() {
    let mut two = Two::new([9, 9]);
    two.send(0, b"hello");
    // Nothing goes by the second network yet.
    let mut captured = Vec::new();
    two.run(SECOND / 100, |t| t.path == 0);
    two.send(0, b"again");
    two.with(0, |e, now| {
        let log = crate::common::Log::default();
        while let Some(t) = e.poll_transmit(now, true, &log) {
            captured.push(e.frame(&t).to_vec());
            e.transmitted(t.frame);
        }
    });
    for path in 1..=255 {
        let mut packet = captured[0].clone();
        packet[2] = path;
        let (now, from) = (two.now, address(1));
        two.nodes[1].with(|e, log| log.packet(e, now, from, false, &mut packet));
    }
    let drops = two.with(1, |e, _| e.counters().drops);
    // Path 1 has state already; there is room for one more.
    assert_eq!((drops.bad_tag, drops.no_room, drops.malformed), (3, 0, 252));
    two.run(SECOND, |_| true);
    let before = two.left[0].len();
    two.send_long(0, 300_000);
    two.run(SECOND, |_| true);
    assert!(two.by_path(0, before)[1] > 60);
}

/// Both networks are in use.
fn in_use() -> Two {
    let mut two = Two::new([9, 9]);
    two.send(0, b"hello");
    two.run(SECOND, |_| true);
    let before = two.left[0].len();
    two.send_long(0, 300_000);
    two.run(SECOND, |_| true);
    assert!(two.by_path(0, before)[1] > 60);
    two
}

/// Checks P12.3.
#[test]
fn a_path_whose_last_answer_was_lost_carries_on_when_the_other_fails() {
    let mut in_doubt = 0;
    for packets in 1..40 {
        let mut two = in_use();
        let (before, bytes) = (two.left[0].len(), packets * 1_300);
        // What the second network loses comes by the first; then nothing is sent
        // that the second could answer.
        two.send_long(0, bytes);
        two.run(SECOND, |t| t.path == 0);
        assert_eq!(two.bytes_got(1), 300_005 + bytes);
        let given_up = two.with(0, |e, _| e.counters().paths_given_up);
        in_doubt += u32::from(two.by_path(0, before)[1] > 0 && given_up == 0);
        two.send(0, b"again");
        two.run(SECOND, |t| t.path == 1);
        assert_eq!(two.bytes_got(1), 300_010 + bytes, "{packets} packets");
    }
    assert!(in_doubt > 0);
}

#[test]
fn a_path_that_came_back_unasked_carries_on_when_the_other_fails() {
    for (ms, fails) in (10..800).step_by(10).flat_map(|ms| [(ms, 0), (ms, 1)]) {
        let mut two = in_use();
        // Both fail at once, so that neither is given up for the other; then the
        // answer comes by one, and nothing is sent that the other could answer.
        two.send(0, b"first");
        two.run(ms * 1_000_000, |_| false);
        two.run(SECOND, |_| true);
        two.send(0, b"again");
        two.run(10 * SECOND, |t| t.path != fails);
        assert_eq!(two.bytes_got(1), 300_015, "{ms} ms, path {fails}");
        assert_eq!(two.nodes[0].log.events, [PeerEvent::Up], "{ms} ms");
    }
}

/// Checks P6.9.
#[test]
fn a_peer_that_is_waited_for_is_asked_by_all_paths() {
    for left in 0..2 {
        let mut two = in_use();
        two.nodes[0].log.awaits = true;
        let now = two.now;
        two.with(0, |e, _| e.await_peer(now, PeerId(0)));
        two.run(20 * SECOND, |t| t.path == left);
        assert_eq!(two.nodes[0].log.events, [PeerEvent::Up]);
    }
}
