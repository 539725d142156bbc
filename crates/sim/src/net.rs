//! The network: hosts on a switch, in virtual time.
//!
//! A packet leaves its host's uplink (rate, finite queue), meets its fate,
//! crosses the switch, and waits in the queue of the receiving host's downlink
//! before it reaches the inbox of its node. Several nodes may share a host and
//! so its queues.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use portolan_link::xdp::SourcePort;

use crate::fate::{Fate, FateList};
pub use crate::pipe::Pipe;
use crate::rng::Rng;
use crate::steer::{Places, ReceivePath, Steering};

/// Bytes that a packet takes on the wire beside the UDP payload: preamble and
/// gap 20, Ethernet 18, IPv4 20, UDP 8.
pub const WIRE_OVERHEAD: u64 = 66;

/// What a directed pair of nodes does to packets; parts per million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// One-way delay, ns.
    pub delay_ns: u64,
    /// Added to it at random, up to this, ns. Reorders, unless `queued`.
    pub jitter_ns: u64,
    /// No packet overtakes another because of its delay: as in a queue that
    /// now and then stands still, not on many paths.
    pub queued: bool,
    /// Lost at random.
    pub loss: u32,
    /// From good to bad state before a packet (Gilbert, Elliott).
    pub burst_start: u32,
    /// From bad to good.
    pub burst_end: u32,
    /// Lost while in the bad state.
    pub burst_loss: u32,
    /// Comes more than once.
    pub repeat: u32,
    /// Copies come up to this late, ns.
    pub repeat_ns: u64,
    /// Held back behind later packets.
    pub reorder: u32,
    /// By up to this, ns.
    pub reorder_ns: u64,
    /// One bit flips.
    pub corrupt: u32,
    /// Loses its end.
    pub truncate: u32,
    /// Marked congestion-experienced, if capable.
    pub mark: u32,
}

impl Faults {
    /// None.
    pub const NONE: Self = Self {
        delay_ns: 0,
        jitter_ns: 0,
        queued: false,
        loss: 0,
        burst_start: 0,
        burst_end: 0,
        burst_loss: 0,
        repeat: 0,
        repeat_ns: 0,
        reorder: 0,
        reorder_ns: 0,
        corrupt: 0,
        truncate: 0,
        mark: 0,
    };
}

#[derive(Clone, Debug, Default)]
struct Pair {
    faults: Faults,
    /// When the last packet arrives, ns.
    last: u64,
    bad: bool,
    cut: bool,
    /// Largest packet that passes, bytes; 0: any.
    mtu: usize,
    /// From which port packets leave.
    from_port: SourcePort,
}

/// Bytes of a packet that an ICMP error quotes.
const QUOTE_BYTES: usize = 28;

/// A packet that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Sending node.
    pub from: usize,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// It carries the congestion mark.
    pub ce: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Flight {
    time: u64,
    order: u64,
    stage: Stage,
    ecn: bool,
    places: Places,
    packet: Arrival,
}

/// What a packet comes to next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The switch of the host that it is for.
    Switch,
    Inbox,
}

impl Ord for Flight {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.time, self.order).cmp(&(other.time, other.order))
    }
}

impl PartialOrd for Flight {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// What the network did, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetCounters {
    /// Handed in.
    pub sent: u64,
    /// Put into an inbox.
    pub arrived: u64,
    /// Of these, through the kernel.
    pub by_kernel: u64,
    /// Lost by fate, partition or size.
    pub lost: u64,
    /// Dropped by a full queue of a pipe.
    pub overflowed: u64,
    /// Dropped by a full inbox.
    pub inbox_full: u64,
    /// Further copies.
    pub repeated: u64,
    /// Altered or shortened.
    pub corrupted: u64,
    /// Marked.
    pub marked: u64,
}

/// A deterministic network. Everything that happens in it follows from its
/// seed, its settings and the calls made.
#[derive(Clone, Debug)]
pub struct Network {
    now: u64,
    order: u64,
    rng: Rng,
    nodes: usize,
    pairs: Vec<Pair>,
    host_of: Vec<usize>,
    /// From each host to the switch.
    pub up: Vec<Pipe>,
    /// From the switch to each host.
    pub down: Vec<Pipe>,
    /// Packets that an inbox holds.
    pub inbox_max: usize,
    /// What came past the kernel, and through it.
    inboxes: Vec<[VecDeque<Arrival>; 2]>,
    /// Beginnings of packets of each node that found nobody.
    unreachable: Vec<Vec<Vec<u8>>>,
    steering: Vec<Steering>,
    flights: BinaryHeap<Reverse<Flight>>,
    script: Option<FateList>,
    record: Option<FateList>,
    counters: NetCounters,
}

impl Network {
    /// `nodes` nodes, each on a host of its own, no faults, no limits.
    #[must_use]
    pub fn new(seed: u64, nodes: usize) -> Self {
        Self {
            now: 0,
            order: 0,
            rng: Rng::new(seed),
            nodes,
            pairs: (0..nodes * nodes)
                .map(|pair| Pair {
                    from_port: SourcePort::new((pair / nodes) as u16),
                    ..Pair::default()
                })
                .collect(),
            host_of: (0..nodes).collect(),
            up: vec![Pipe::FREE; nodes],
            down: vec![Pipe::FREE; nodes],
            inbox_max: usize::MAX,
            inboxes: vec![[VecDeque::new(), VecDeque::new()]; nodes],
            unreachable: vec![Vec::new(); nodes],
            steering: vec![Steering::FAST; nodes],
            flights: BinaryHeap::new(),
            script: None,
            record: None,
            counters: NetCounters::default(),
        }
    }

    /// Nodes.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Virtual time, ns.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> NetCounters {
        self.counters
    }

    /// Puts a node on the host of that number: nodes of one host share pipes.
    pub fn set_host(&mut self, node: usize, host: usize) {
        self.host_of[node] = host;
    }

    /// What the pair does to packets.
    pub fn faults_mut(&mut self, from: usize, to: usize) -> &mut Faults {
        &mut self.pairs[from * self.nodes + to].faults
    }

    /// Gives every pair these faults.
    pub fn set_faults(&mut self, faults: Faults) {
        for pair in &mut self.pairs {
            pair.faults = faults;
        }
    }

    /// The source port of a pair's packets, to be changed.
    pub fn port_mut(&mut self, from: usize, to: usize) -> &mut SourcePort {
        &mut self.pairs[from * self.nodes + to].from_port
    }

    /// How a node gets its packets.
    pub fn steering_mut(&mut self, node: usize) -> &mut Steering {
        &mut self.steering[node]
    }

    /// Ends all faults and partitions; delays stay, and so do queues.
    pub fn heal(&mut self) {
        for steering in &mut self.steering {
            *steering = Steering {
                queues: steering.queues,
                ..Steering::FAST
            };
        }
        for pair in &mut self.pairs {
            pair.cut = false;
            pair.bad = false;
            pair.faults = Faults {
                delay_ns: pair.faults.delay_ns,
                ..Faults::default()
            };
        }
    }

    /// Cuts or joins one direction between two nodes.
    pub fn set_cut(&mut self, from: usize, to: usize, cut: bool) {
        self.pairs[from * self.nodes + to].cut = cut;
    }

    /// Silently drops packets between two nodes above so many bytes; 0: none.
    pub fn set_mtu(&mut self, from: usize, to: usize, mtu: usize) {
        self.pairs[from * self.nodes + to].mtu = mtu;
    }

    /// From now on fates come from the list instead of chance.
    pub fn set_script(&mut self, script: FateList) {
        self.script = Some(script);
    }

    /// Starts to write down every packet's fate.
    pub fn start_record(&mut self) {
        self.record = Some(FateList::default());
    }

    /// The fates since [`Network::start_record`].
    pub fn take_record(&mut self) -> FateList {
        self.record.take().unwrap_or_default()
    }

    /// Hands a packet in at the present time.
    pub fn send(&mut self, from: usize, to: usize, bytes: &[u8], ecn: bool) {
        self.counters.sent += 1;
        let fate = match &mut self.script {
            Some(script) => script.take(from, to),
            None => self.fate(from, to, bytes.len()),
        };
        if let Some(record) = &mut self.record {
            record.push(from, to, fate);
        }
        let wire = bytes.len() as u64 + WIRE_OVERHEAD;
        let Some((left, marked)) = self.up[self.host_of[from]].pass(self.now, wire) else {
            self.counters.overflowed += 1;
            return;
        };
        let mtu = self.pairs[from * self.nodes + to].mtu;
        if fate.drop || (mtu != 0 && bytes.len() > mtu) {
            self.counters.lost += 1;
            return;
        }
        let mut bytes = bytes.to_vec();
        if let Some(keep) = fate.cut {
            bytes.truncate(keep as usize);
            self.counters.corrupted += 1;
        }
        if let Some(bit) = fate.flip
            && !bytes.is_empty()
        {
            let at = bit as usize % (8 * bytes.len());
            bytes[at / 8] ^= 1 << (at % 8);
            self.counters.corrupted += 1;
        }
        let faults = self.pairs[from * self.nodes + to].faults;
        // A recorded fate carries the chance part of the delay already.
        let ce = ecn && (marked || (self.script.is_none() && self.rng.ppm(faults.mark)));
        let mut arrives = left + faults.delay_ns + fate.delay;
        let last = &mut self.pairs[from * self.nodes + to].last;
        if faults.queued {
            arrives = arrives.max(*last);
        }
        *last = arrives;
        let port = self.pairs[from * self.nodes + to].from_port.get();
        let places = Places { from, to, port };
        for copy in 0..=u64::from(fate.repeat) {
            self.counters.repeated += u64::from(copy > 0);
            self.order += 1;
            self.flights.push(Reverse(Flight {
                time: arrives + copy * fate.every,
                order: self.order,
                stage: Stage::Switch,
                ecn,
                places,
                packet: Arrival {
                    from,
                    bytes: bytes.clone(),
                    ce,
                },
            }));
        }
    }

    fn fate(&mut self, from: usize, to: usize, len: usize) -> Fate {
        let pair = &mut self.pairs[from * self.nodes + to];
        let (f, rng) = (pair.faults, &mut self.rng);
        pair.bad = if pair.bad {
            !rng.ppm(f.burst_end)
        } else {
            rng.ppm(f.burst_start)
        };
        let mut fate = Fate::DELIVER;
        if pair.cut || rng.ppm(f.loss) || (pair.bad && rng.ppm(f.burst_loss)) {
            return Fate::DROP;
        }
        fate.delay = rng.below(f.jitter_ns + 1);
        if rng.ppm(f.reorder) {
            fate.delay += rng.below(f.reorder_ns + 1);
        }
        if rng.ppm(f.repeat) {
            fate.repeat = 1 + rng.below(3) as u32;
            fate.every = rng.scale(1, f.repeat_ns.max(1));
        }
        if rng.ppm(f.corrupt) {
            fate.flip = Some(rng.below(8 * len.max(1) as u64) as u32);
        }
        if rng.ppm(f.truncate) {
            fate.cut = Some(rng.below(len.max(1) as u64) as u32);
        }
        fate
    }

    /// Puts a packet of no node's making into an inbox, as an attacker would.
    pub fn inject(&mut self, from: usize, to: usize, bytes: Vec<u8>) {
        let ce = false;
        self.inbox(to, ReceivePath::Fast, Arrival { from, bytes, ce });
    }

    fn inbox(&mut self, to: usize, way: ReceivePath, packet: Arrival) {
        let inbox = &mut self.inboxes[to][way as usize];
        if inbox.len() >= self.inbox_max {
            self.counters.inbox_full += 1;
            return;
        }
        self.counters.arrived += 1;
        self.counters.by_kernel += u64::from(way == ReceivePath::Kernel);
        inbox.push_back(packet);
    }

    /// When something next happens in the network by itself.
    #[must_use]
    pub fn next_time(&self) -> Option<u64> {
        self.flights.peek().map(|f| f.0.time)
    }

    /// Lets time pass until `now`; due packets go to their inboxes.
    pub fn advance(&mut self, now: u64) {
        while let Some(Reverse(next)) = self.flights.peek() {
            if next.time > now {
                break;
            }
            let Some(Reverse(mut flight)) = self.flights.pop() else {
                break;
            };
            self.now = self.now.max(flight.time);
            let wire = flight.packet.bytes.len() as u64 + WIRE_OVERHEAD;
            let (pipe, next) = match flight.stage {
                Stage::Switch => (&mut self.down[self.host_of[flight.places.to]], Stage::Inbox),
                Stage::Inbox => {
                    self.hand_over(flight);
                    continue;
                }
            };
            let Some((left, marked)) = pipe.pass(flight.time, wire) else {
                self.counters.overflowed += 1;
                continue;
            };
            flight.packet.ce |= marked && flight.ecn;
            flight.stage = next;
            if next == Stage::Inbox {
                self.counters.marked += u64::from(flight.packet.ce);
                if left == flight.time {
                    self.hand_over(flight);
                    continue;
                }
            }
            flight.time = left;
            self.flights.push(Reverse(flight));
        }
        self.now = self.now.max(now);
    }

    /// A packet has arrived at its host.
    fn hand_over(&mut self, flight: Flight) {
        let to = flight.places.to;
        let (way, also) = self.steering[to].ways(flight.places, flight.order);
        if let Some(also) = also {
            self.inbox(to, also, flight.packet.clone());
        }
        self.inbox(to, way, flight.packet);
    }

    /// The oldest packet that has come past the kernel and waits for a node.
    pub fn receive(&mut self, node: usize) -> Option<Arrival> {
        self.receive_by(ReceivePath::Fast, node)
    }

    /// The oldest packet that has come by a way and waits for a node.
    pub fn receive_by(&mut self, way: ReceivePath, node: usize) -> Option<Arrival> {
        self.inboxes[node][way as usize].pop_front()
    }

    /// Packets that have come past the kernel and wait for a node.
    #[must_use]
    pub fn waiting(&self, node: usize) -> usize {
        self.waiting_by(ReceivePath::Fast, node)
    }

    /// Packets that have come by a way and wait for a node.
    #[must_use]
    pub fn waiting_by(&self, way: ReceivePath, node: usize) -> usize {
        self.inboxes[node][way as usize].len()
    }

    /// What has come past the kernel to a node is lost: its rings are gone.
    pub fn lose_fast(&mut self, node: usize) {
        let lost = std::mem::take(&mut self.inboxes[node][ReceivePath::Fast as usize]);
        self.counters.lost += lost.len() as u64;
    }

    /// Empties a node's inboxes: its process is gone.
    pub fn clear_inbox(&mut self, node: usize) {
        self.unreachable[node].clear();
        self.inboxes[node].iter_mut().for_each(VecDeque::clear);
    }

    /// Nobody listens at a node: what has come there is quoted to its senders.
    pub fn refuse_inbox(&mut self, node: usize) {
        self.quote_inbox(node);
        self.inboxes[node].iter_mut().for_each(VecDeque::clear);
    }

    /// What has come to a node is quoted to its senders, as by somebody who lies.
    pub fn quote_inbox(&mut self, node: usize) {
        for packet in self.inboxes[node].iter().flatten() {
            let quote = packet.bytes[..packet.bytes.len().min(QUOTE_BYTES)].to_vec();
            self.unreachable[packet.from].push(quote);
        }
    }

    /// Whether a node is to be told of packets that found nobody.
    #[must_use]
    pub fn has_unreachable(&self, node: usize) -> bool {
        !self.unreachable[node].is_empty()
    }

    /// The beginnings of packets of a node that found nobody since the last call.
    pub fn take_unreachable(&mut self, node: usize) -> Vec<Vec<u8>> {
        core::mem::take(&mut self.unreachable[node])
    }

    /// Packets on their way.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }
}

#[cfg(test)]
#[path = "net_tests.rs"]
mod tests;
