//! Packet scripts: a job in which each talks to all, and few can be active at first.
use std::collections::VecDeque;

use crate::common::{Node, address};
use portolan_proto::congestion::Mode;
use portolan_proto::{Config, Message, PeerEvent, PeerId, SendError};
use portolan_wire::{EndpointId, Life, Priority};

const SECOND: u64 = 1_000_000_000;
/// Messages from each to each.
const EACH: u8 = 3;
/// Packets that one pass reads.
const BURST: usize = 4;

/// Endpoints that know each other: peer `p` of each is number `p`, or the next if that is its own.
struct Job {
    now: u64,
    nodes: Vec<Node>,
    /// On the way to each, and from whom.
    wires: Vec<VecDeque<(usize, Vec<u8>)>>,
    /// Still to be accepted by each: to whom, and the number.
    unsent: Vec<VecDeque<(usize, u8)>>,
}

impl Job {
    fn new(config: &Config, size: usize) -> Self {
        let config = Config {
            peers: size as u32 - 1,
            ..*config
        };
        let id = |i: usize| (EndpointId(100 + i as u64), Life(1_000 + i as u64));
        let node = |i: usize| {
            let (me, life) = id(i);
            let mut node = Node::new(&config, me.0, life.0);
            for other in (0..size).filter(|&other| other != i) {
                let (it, life) = id(other);
                node.with(|e, _| e.add_peer(it, life, address(it.0), Mode::Lan).unwrap());
            }
            node
        };
        let messages = |i: usize| {
            let to = (1..size).map(move |ahead| (i + ahead) % size);
            to.flat_map(|to| (0..EACH).map(move |n| (to, n))).collect()
        };
        Self {
            now: SECOND,
            nodes: (0..size).map(node).collect(),
            wires: vec![VecDeque::new(); size],
            unsent: (0..size).map(messages).collect(),
        }
    }

    /// One pass of a node, as the engine makes it; says whether anything moved.
    fn pass(&mut self, i: usize) -> bool {
        let (now, node) = (self.now, &mut self.nodes[i]);
        let mut moved = false;
        for _ in 0..BURST.min(self.wires[i].len()) {
            let (from, mut packet) = self.wires[i].pop_front().unwrap();
            moved = true;
            node.with(|e, log| {
                log.packet(e, now, address(100 + from as u64), false, &mut packet);
            });
        }
        if node
            .with(|e, _| e.next_timeout())
            .is_some_and(|at| at <= now)
        {
            node.grow();
            node.with(|e, log| log.timeouts(e, now));
        }
        // What finds no credit is tried again, and keeps nothing else back.
        for _ in 0..self.unsent[i].len() {
            let (to, n) = self.unsent[i].pop_front().unwrap();
            let m = Message {
                priority: Priority::Request,
                flow: 0,
                port: i as u16,
                args: &[],
                payload: &[n; 100],
            };
            let peer = PeerId((to - usize::from(to > i)) as u32);
            match node.with(|e, _| e.send(now, peer, &m)) {
                Ok(_) => {}
                Err(SendError::NoCredit) => self.unsent[i].push_back((to, n)),
                Err(e) => panic!("{i} to {to}: {e:?}"),
            }
        }
        let wires = &mut self.wires;
        node.with(|e, log| {
            while let Some(t) = e.poll_transmit(now, true, log) {
                let to = usize::from(t.to.port) - 100;
                wires[to].push_back((i, e.frame(&t).to_vec()));
                e.transmitted(t.frame);
                moved = true;
            }
            e.check();
        });
        moved
    }

    /// Lets it run until all has arrived, or for so long.
    fn run(&mut self, ns: u64) {
        let (end, size) = (self.now + ns, self.nodes.len());
        let all = (size - 1) * usize::from(EACH);
        while self.now < end && self.nodes.iter().any(|it| it.log.got.len() < all) {
            let moved = (0..size).fold(false, |moved, i| self.pass(i) | moved);
            let nodes = &mut self.nodes;
            let due = nodes
                .iter_mut()
                .filter_map(|it| it.with(|e, _| e.next_timeout()));
            let due = due.min().unwrap_or(end);
            self.now = if moved {
                self.now + 5_000
            } else {
                due.max(self.now + 1)
            };
        }
    }
}

#[test]
fn none_waits_in_a_circle_for_places_that_others_fill() {
    for (size, active) in [(3, 1), (8, 1), (8, 2), (12, 4), (24, 8)] {
        let config = Config {
            active,
            ..Config::default()
        };
        let mut job = Job::new(&config, size);
        job.run(SECOND);
        for (i, node) in job.nodes.iter_mut().enumerate() {
            let dead = |it: &&PeerEvent| matches!(it, PeerEvent::Dead(_));
            assert_eq!(node.log.events.iter().find(dead), None, "{size}, {active}");
            for from in (0..size).filter(|&from| from != i) {
                let of = node.log.got.iter().filter(|it| usize::from(it.0) == from);
                let of: Vec<u8> = of.map(|it| it.2[0]).collect();
                assert_eq!(of, [0, 1, 2], "{size}, {active}: {from} to {i}");
            }
        }
    }
}
