//! What two endpoints make of a link: goodput and windows over time.
//!
//! One endpoint sends long messages one after the other, a few at once, over
//! the simulated network; each is charged for its packets as a processor
//! would be. A run follows from its figures alone.

use portolan_proto::congestion::Mode;
use portolan_proto::{
    Config, Counters, Endpoint, Event, Identity, Message, NetAddress, PeerId, Release, Rx,
    SourceId, Sources, Spare, Verdict,
};
use portolan_seal::Checksum;
use portolan_wire::{EndpointId, Life, Priority};

use crate::memory::EndpointMemory;
use crate::net::{Arrival, Faults, Network, Pipe};
use crate::node::{address, address_on, places, set_networks};

/// A link and what is sent over it.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    /// Congestion control of the sender.
    pub mode: Mode,
    /// Cable of each host towards the switch.
    pub up: Pipe,
    /// And from the switch.
    pub down: Pipe,
    /// What the switch does to packets, in either direction.
    pub faults: Faults,
    /// It does so for every second part of the run only, and else keeps to the
    /// delay.
    pub now_and_then: bool,
    /// At this time, ns, the rate becomes that, bits/s; 0: it stays.
    pub change: (u64, u64),
    /// Networks between the hosts, each of them like that.
    pub networks: usize,
    /// That one of them fails at the first time, ns, and is back at the second;
    /// 0: it does not.
    pub outage: (usize, u64, u64),
    /// What a host takes for a packet, ns.
    pub packet_ns: u64,
    /// Bytes of a message.
    pub message: u64,
    /// Messages under way at once.
    pub at_once: u32,
    /// The receiver sends as many to the sender.
    pub both_ways: bool,
    /// How long it runs, ns.
    pub run_ns: u64,
    /// Parts of it that are told apart.
    pub parts: u32,
}

/// What happened in a part of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Bytes handed over, in both directions.
    pub bytes: u64,
    /// The sender's window at its end, packets.
    pub window: u32,
    /// The sender's smoothed round trip at its end, ns.
    pub rtt_ns: u64,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Outcomes {
    /// Part by part.
    pub parts: Vec<Part>,
    /// The sender's counters.
    pub sender: Counters,
    /// The receiver's.
    pub receiver: Counters,
}

#[derive(Default)]
struct App {
    bytes: u64,
    sent: u32,
    done: u32,
}

impl Sources for App {
    fn read(&self, _: SourceId, _: u64, into: &mut [u8]) {
        into.fill(0x5a);
    }
}

impl App {
    /// Takes all that came of a packet.
    fn take(&mut self, e: &mut Endpoint<'_, Checksum>, mut rx: Rx<'_>) {
        while let Some(delivery) = rx.next(e) {
            self.bytes += delivery.payload.len() as u64;
            rx.answer(e, Verdict::Take(0));
        }
    }

    fn hear(&mut self, e: &mut Endpoint<'_, Checksum>) {
        while let Some(event) = e.poll_event() {
            match event {
                Event::Released(..) => self.done += 1,
                Event::Refused { .. } | Event::Peer(..) | Event::OtherSuite { .. } => {}
            }
        }
    }
}

struct Node {
    memory: EndpointMemory,
    app: App,
    spare: Spare,
    /// The processor is busy until then.
    busy_until: u64,
    timeout: u64,
}

impl Node {
    fn new(who: usize, course: &Course) -> Self {
        let ids = [1, 2].map(EndpointId);
        let lives = [11, 22].map(Life);
        let me = Identity {
            id: ids[who],
            life: lives[who],
        };
        let config = Config {
            more_paths: course.networks as u32 - 1,
            ..Config::default()
        };
        let mut node = Self {
            memory: EndpointMemory::new(&config, me, &[5; 32], who as u64 + 2),
            app: App::default(),
            spare: Spare::default(),
            busy_until: 0,
            timeout: 0,
        };
        let other = 1 - who;
        node.with(|e, _| set_networks(e, who, course.networks, config.packet_max));
        node.with(|e, _| e.add_peer(ids[other], lives[other], address(other), course.mode))
            .expect("room for one peer");
        node
    }

    fn with<R>(&mut self, f: impl FnOnce(&mut Endpoint<'_, Checksum>, &mut App) -> R) -> R {
        let mut seal = Checksum;
        f(
            &mut Endpoint::new(self.memory.tables(), &mut seal),
            &mut self.app,
        )
    }

    fn packet(&mut self, now: u64, from: NetAddress, packet: &mut Arrival) {
        let mut seal = Checksum;
        let e = &mut Endpoint::new(self.memory.tables(), &mut seal);
        let bytes = &mut packet.bytes;
        if let Some(rx) = e.handle_packet(now, from, packet.ce, bytes, &mut self.spare) {
            self.app.take(e, rx);
        }
        self.app.hear(e);
    }

    /// One pass of the progress loop: at most 32 packets in, 44 out.
    fn pass(&mut self, who: usize, now: u64, net: &mut Network, packet_ns: u64) {
        let mut packets = 0;
        while packets < 32
            && let Some(mut packet) = (who..net.nodes()).step_by(2).find_map(|p| net.receive(p))
        {
            packets += 1;
            let from = address_on(packet.from / 2, packet.from % 2);
            self.packet(now, from, &mut packet);
        }
        let mut sent = 0;
        self.with(|e, app| {
            e.handle_timeouts(now, |_| false);
            while sent < 44
                && let Some(t) = e.poll_transmit(now, packets == 0, app)
            {
                let (from, to) = places(&t, who, 2);
                net.send(from, to, e.frame(&t), t.ecn);
                e.transmitted(t.frame);
                sent += 1;
            }
            app.hear(e);
        });
        self.timeout = self.with(|e, _| e.next_timeout()).unwrap_or(u64::MAX);
        self.busy_until = now + (packets + sent).max(1) * packet_ns;
        if packets + sent > 0 {
            // Look again at once: there may be more.
            self.timeout = self.busy_until;
        }
    }
}

/// Whether packets wait for a node on any network.
fn has_packets(net: &Network, who: usize) -> bool {
    (who..net.nodes())
        .step_by(2)
        .any(|place| net.waiting(place) > 0)
}

impl Course {
    /// Two messages of a megabyte at a time for 200 ms, between hosts on a
    /// gigabit switch with little room, 20 us apart.
    pub const SWITCH: Self = Self {
        mode: Mode::Lan,
        up: Pipe::new(1_000_000_000, 128_000),
        down: Pipe::new(1_000_000_000, 128_000),
        faults: Faults {
            delay_ns: 20_000,
            ..Faults::NONE
        },
        now_and_then: false,
        change: (0, 0),
        networks: 1,
        outage: (0, 0, 0),
        packet_ns: 700,
        message: 1_000_000,
        at_once: 2,
        both_ways: false,
        run_ns: 200_000_000,
        parts: 10,
    };

    /// Runs it.
    #[must_use]
    pub fn run(&self) -> Outcomes {
        let mut net = Network::new(7, 2 * self.networks);
        net.set_faults(self.faults);
        if self.now_and_then {
            net.heal();
        }
        net.up.fill(self.up);
        net.down.fill(self.down);
        let mut nodes = [Node::new(0, self), Node::new(1, self)];
        let mut parts = Vec::new();
        let (mut now, mut before) = (0, 0);
        let part_ns = self.run_ns / u64::from(self.parts);
        while parts.len() < self.parts as usize {
            let next = (0..2).map(|i| {
                let n: &Node = &nodes[i];
                let waiting = has_packets(&net, i);
                let due = if waiting { now } else { n.timeout };
                due.max(n.busy_until)
            });
            let next = next.chain(net.next_time()).min().unwrap_or(u64::MAX);
            now = next.max(now).min((parts.len() as u64 + 1) * part_ns);
            if now >= (parts.len() as u64 + 1) * part_ns {
                if self.now_and_then && parts.len() % 2 == 0 {
                    net.set_faults(self.faults);
                } else if self.now_and_then {
                    net.heal();
                }
                let bytes = nodes.iter().map(|node| node.app.bytes).sum();
                let (window, rtt) =
                    nodes[0].with(|e, _| (e.window(PeerId(0)), e.round_trip(PeerId(0))));
                parts.push(Part {
                    bytes: bytes - before,
                    window: window.unwrap_or(0),
                    rtt_ns: rtt.unwrap_or(0),
                });
                before = bytes;
            }
            if self.change.1 != 0 && now >= self.change.0 {
                for pipe in net.up.iter_mut().chain(&mut net.down) {
                    pipe.rate = self.change.1;
                }
            }
            let (network, from, to) = self.outage;
            let (a, b) = (2 * network, 2 * network + 1);
            net.set_cut(a, b, (from..to).contains(&now));
            net.set_cut(b, a, (from..to).contains(&now));
            net.advance(now);
            for node in nodes.iter_mut().take(1 + usize::from(self.both_ways)) {
                while node.app.sent - node.app.done < self.at_once && self.send(now, node) {
                    node.app.sent += 1;
                }
            }
            for (who, node) in nodes.iter_mut().enumerate() {
                let due = has_packets(&net, who) || node.timeout <= now;
                if due && node.busy_until <= now {
                    node.pass(who, now, &mut net, self.packet_ns);
                }
            }
        }
        let [sender, receiver] = &mut nodes;
        Outcomes {
            parts,
            sender: sender.with(|e, _| *e.counters()),
            receiver: receiver.with(|e, _| *e.counters()),
        }
    }

    fn send(&self, now: u64, node: &mut Node) -> bool {
        let m = Message {
            priority: Priority::Request,
            flow: 0,
            port: 1,
            args: &[],
            payload: &[],
        };
        let release = Release::Acknowledged;
        node.timeout = now;
        node.with(|e, _| e.send_long(now, PeerId(0), &m, self.message, SourceId(0), release))
            .is_ok()
    }
}
