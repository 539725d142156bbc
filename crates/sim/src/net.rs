//! The network: hosts on a switch, in virtual time.
//!
//! A packet leaves its host's uplink (rate, finite queue), meets its fate,
//! crosses the switch, and waits in the queue of the receiving host's downlink
//! before it reaches the inbox of its node. Several nodes may share a host and
//! so its queues.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::fate::{Fate, FateList};
use crate::rng::Rng;

/// Bytes that a packet takes on the wire beside the UDP payload: preamble and
/// gap 20, Ethernet 18, IPv4 20, UDP 8.
pub const WIRE_OVERHEAD: u64 = 66;

/// One direction of a host's cable: a drop-tail queue before a fixed rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pipe {
    /// Bits a second; 0: instant.
    pub rate: u64,
    /// Bytes that may wait; what does not fit is dropped.
    pub buffer: u64,
    /// Waiting bytes from which on ECN-capable packets are marked.
    pub mark_at: u64,
    busy_until: u64,
    /// Packets dropped because the queue was full.
    pub overflows: u64,
}

impl Pipe {
    /// No limit at all.
    pub const FREE: Self = Self {
        rate: 0,
        buffer: u64::MAX,
        mark_at: u64::MAX,
        busy_until: 0,
        overflows: 0,
    };

    /// A rate in bits a second and a queue of so many bytes.
    #[must_use]
    pub const fn new(rate: u64, buffer: u64) -> Self {
        Self {
            rate,
            buffer,
            ..Self::FREE
        }
    }

    /// The same, marking from so many waiting bytes on.
    #[must_use]
    pub const fn marking(self, mark_at: u64) -> Self {
        Self { mark_at, ..self }
    }

    /// Bytes that wait at `now`.
    #[must_use]
    pub fn backlog(&self, now: u64) -> u64 {
        let ns = self.busy_until.saturating_sub(now);
        (ns as u128 * self.rate as u128 / 8_000_000_000) as u64
    }

    /// When `bytes` that come at `now` have left, and whether they were
    /// marked; `None` if the queue is full.
    fn pass(&mut self, now: u64, bytes: u64) -> Option<(u64, bool)> {
        if self.rate == 0 {
            return Some((now, false));
        }
        let waiting = self.backlog(now);
        if waiting + bytes > self.buffer {
            self.overflows += 1;
            return None;
        }
        let takes = (bytes as u128 * 8_000_000_000 / self.rate as u128) as u64;
        self.busy_until = self.busy_until.max(now) + takes;
        Some((self.busy_until, waiting >= self.mark_at))
    }
}

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
}

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
    at_switch: bool,
    ecn: bool,
    to: usize,
    packet: Arrival,
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
    inboxes: Vec<VecDeque<Arrival>>,
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
            pairs: vec![Pair::default(); nodes * nodes],
            host_of: (0..nodes).collect(),
            up: vec![Pipe::FREE; nodes],
            down: vec![Pipe::FREE; nodes],
            inbox_max: usize::MAX,
            inboxes: vec![VecDeque::new(); nodes],
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

    /// Ends all faults and partitions; delays stay.
    pub fn heal(&mut self) {
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
        for copy in 0..=u64::from(fate.repeat) {
            self.counters.repeated += u64::from(copy > 0);
            self.order += 1;
            self.flights.push(Reverse(Flight {
                time: arrives + copy * fate.every,
                order: self.order,
                at_switch: true,
                ecn,
                to,
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
        self.inbox(to, Arrival { from, bytes, ce });
    }

    fn inbox(&mut self, to: usize, packet: Arrival) {
        if self.inboxes[to].len() >= self.inbox_max {
            self.counters.inbox_full += 1;
            return;
        }
        self.counters.arrived += 1;
        self.inboxes[to].push_back(packet);
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
            if !flight.at_switch {
                self.inbox(flight.to, flight.packet);
                continue;
            }
            let wire = flight.packet.bytes.len() as u64 + WIRE_OVERHEAD;
            let pipe = &mut self.down[self.host_of[flight.to]];
            match pipe.pass(flight.time, wire) {
                None => self.counters.overflowed += 1,
                Some((left, marked)) => {
                    flight.packet.ce |= marked && flight.ecn;
                    self.counters.marked += u64::from(flight.packet.ce);
                    if left == flight.time {
                        self.inbox(flight.to, flight.packet);
                    } else {
                        flight.at_switch = false;
                        flight.time = left;
                        self.flights.push(Reverse(flight));
                    }
                }
            }
        }
        self.now = self.now.max(now);
    }

    /// The oldest packet that waits for a node.
    pub fn receive(&mut self, node: usize) -> Option<Arrival> {
        self.inboxes[node].pop_front()
    }

    /// Packets that wait for a node.
    #[must_use]
    pub fn waiting(&self, node: usize) -> usize {
        self.inboxes[node].len()
    }

    /// Empties a node's inbox: its process is gone.
    pub fn clear_inbox(&mut self, node: usize) {
        self.inboxes[node].clear();
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
