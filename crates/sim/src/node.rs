//! One simulated process: an endpoint, its application and its link.

mod gate;
mod hands;
mod quick;

use std::collections::{BTreeMap, VecDeque};

use portolan_link::xdp::PollCadence;
use portolan_proto::{
    Config, Credit, Endpoint, FrameIndex, Identity, LocalNetwork, NetAddress, PeerId, Release,
    Transmit, key_slots,
};
use portolan_seal::Seal;
use portolan_wire::{EndpointId, Life, Priority};

use crate::ledger::{Ledger, LifeId};
use crate::memory::EndpointMemory;
use crate::net::{Arrival, Network};
use crate::rng::{Rng, mix};
use crate::scenario::Scenario;
use crate::steer::ReceivePath;
use crate::suite::{NonceBook, SimSeal, Suite};
use crate::trace::Trace;
use gate::Gate;
use hands::{Hands, Sent};

/// What all nodes share.
#[derive(Debug)]
pub struct World {
    /// Virtual time, ns.
    pub now: u64,
    /// The network.
    pub net: Network,
    /// The record.
    pub ledger: Ledger,
    /// Chance outside the network.
    pub rng: Rng,
    /// Who listens.
    pub trace: Trace,
    /// Keys and nonces.
    pub book: NonceBook,
    /// Faults and whims have ended.
    pub calm: bool,
    /// When each node last died or closed, ns.
    pub lost_at: Vec<Option<u64>>,
    /// Silence may have been mistaken for death: some partition was long.
    pub silence_possible: bool,
    /// Packets as an attacker on the wire remembers them.
    pub overheard: Vec<(usize, Vec<u8>)>,
    /// How often the quick way was free, of what was sent both ways.
    pub quick: u64,
    /// Packets whose one chunk took the quick way, of those that were taken both ways: whole
    /// messages, and further parts.
    pub foreseen: [u64; 2],
}

/// A message that an application wants to send.
#[derive(Clone, Debug)]
pub struct Want {
    /// To whom.
    pub to: usize,
    /// Request or reply.
    pub priority: Priority,
    /// Flow; cut to what both sides keep.
    pub flow: u16,
    /// Bytes.
    pub total: u64,
    /// Argument words.
    pub args: usize,
    /// By [`Endpoint::send_long`] even where it would fit.
    pub long: Option<Release>,
}

/// The application of a node.
#[derive(Debug)]
pub struct App {
    node: usize,
    life: LifeId,
    rng: Rng,
    config: Config,
    peer_of: Vec<Option<PeerId>>,
    node_of: Vec<usize>,
    /// Peers that have died, and the gate has not heard it.
    gone: Vec<PeerId>,
    waiting: VecDeque<Want>,
    /// Takes no requests.
    pub blocked: bool,
    resume_at: Option<u64>,
    /// Flows that it has stopped, each until when.
    stopped: Vec<(u64, PeerId, Priority, u16)>,
    stop_rng: Rng,
    stop_ppm: u32,
    delivered: bool,
    reply_ppm: u32,
    not_now_ppm: u32,
    refuse_ppm: u32,
}

/// A frame that the link has not given back.
#[derive(Debug)]
struct FrameInFlight {
    frame: FrameIndex,
    start: usize,
    bytes: Vec<u8>,
    until: u64,
}

/// A node.
pub struct Node {
    memory: EndpointMemory,
    seal: SimSeal,
    /// Its application.
    pub app: App,
    held: Vec<FrameInFlight>,
    gate: Gate,
    /// When the kernel's socket is looked at.
    cadence: PollCadence,
    passes: u32,
    next_pass: u64,
    timeout: Option<u64>,
    wake_ns: u64,
    link_ns: u64,
    burst: u64,
    move_every: u32,
    forge_ppm: u32,
    /// Networks that each node is on, and nodes.
    networks: usize,
    nodes: usize,
    /// Its seal has keys.
    keyed: bool,
    idle_spins: u32,
}

/// Passes until messages are sent and packets taken both ways: tables are copied for it.
const COMPARED_PASSES: u32 = 32;

/// The address of a node on the first of its networks.
#[must_use]
pub fn address(node: usize) -> NetAddress {
    address_on(0, node)
}

/// The address of a node on one of its networks.
#[must_use]
pub fn address_on(network: usize, node: usize) -> NetAddress {
    let mut ip = [0xfd; 16];
    ip[0] -= network as u8;
    NetAddress {
        ip,
        port: node as u16,
    }
}

/// Gives an endpoint the networks beside its first.
pub fn set_networks<S: Seal>(e: &mut Endpoint<'_, S>, node: usize, networks: usize, size: u16) {
    for network in 1..networks {
        let local = LocalNetwork {
            address: address_on(network, node),
            prefix: 8,
            packet_max: size,
        };
        e.set_network(network, local);
    }
}

/// Where in a network of so many nodes, each there once for each of its own
/// networks, a packet goes: from which place, to which.
///
/// # Panics
/// If its address is none of the network that it is to leave by.
#[must_use]
pub fn places(t: &Transmit, from: usize, nodes: usize) -> (usize, usize) {
    let network = usize::from(t.network);
    let to = usize::from(t.to.port);
    assert_eq!(
        t.to,
        address_on(network, to),
        "an address of network {network}"
    );
    (network * nodes + from, network * nodes + to)
}

impl App {
    /// When the next flow goes on that is stopped.
    fn next_go(&self) -> u64 {
        let times = self.stopped.iter().map(|(until, ..)| *until);
        times.min().unwrap_or(u64::MAX)
    }
}

impl Node {
    /// Starts a process in a new life.
    pub fn new(world: &mut World, s: &Scenario, node: usize, life: u64) -> Self {
        let config = s.configs[node];
        let ledger_life = world.ledger.birth(node);
        let mut rng = world.rng.fork(mix(node as u64) ^ life);
        let me = Identity {
            id: EndpointId(1000 + node as u64),
            life: Life(life),
        };
        let secret = &[7; 32];
        // A phase ends when the one before is settled, on all paths: a window or
        // two late, or as long as it takes to see that packets are too big.
        let late = 2048 * (s.networks * s.networks) as u64;
        let limit = config.rekey_packets.saturating_add(late);
        let mut made = Self {
            memory: EndpointMemory::new(&config, me, secret, rng.word()),
            seal: SimSeal::new(
                s.suite,
                key_slots(config.active as usize),
                limit,
                &world.book,
            ),
            app: App {
                node,
                life: ledger_life,
                config,
                peer_of: vec![None; s.nodes],
                node_of: Vec::new(),
                gone: Vec::new(),
                waiting: VecDeque::new(),
                blocked: s.blocked.contains(&node),
                resume_at: None,
                stopped: Vec::new(),
                stop_rng: rng.fork(life),
                stop_ppm: s.stop_ppm,
                delivered: false,
                reply_ppm: s.reply_ppm,
                not_now_ppm: s.not_now_ppm,
                refuse_ppm: s.refuse_ppm,
                rng,
            },
            held: Vec::new(),
            gate: Gate::default(),
            cadence: PollCadence::default(),
            passes: 0,
            next_pass: world.now,
            timeout: None,
            wake_ns: s.wake_ns,
            link_ns: s.link_ns,
            burst: s.burst,
            move_every: s.move_every,
            forge_ppm: s.forge_ppm,
            networks: s.networks,
            nodes: s.nodes,
            keyed: s.suite != Suite::Checksum,
            idle_spins: 0,
        };
        made.with(world, |e, _| {
            set_networks(e, node, s.networks, config.packet_max);
        });
        made
    }

    /// The oldest packet that came by a way and waits for it on any of its
    /// networks.
    fn receive(&self, way: ReceivePath, world: &mut World) -> Option<Arrival> {
        let me = self.app.node;
        (0..self.networks).find_map(|network| world.net.receive_by(way, network * self.nodes + me))
    }

    /// Whether packets wait for it that came by a way.
    fn has_packets(&self, way: ReceivePath, world: &World) -> bool {
        let me = self.app.node;
        (0..self.networks).any(|network| world.net.waiting_by(way, network * self.nodes + me) > 0)
    }

    /// Makes the node run when it is to look for packets that wait for it.
    pub fn notice(&mut self, world: &World) {
        let by_kernel = self.has_packets(ReceivePath::Kernel, world);
        if self.has_packets(ReceivePath::Fast, world)
            || by_kernel && self.cadence.kernel_is_due(world.now)
        {
            self.wake(world.now);
        } else if by_kernel {
            self.next_pass = self.next_pass.min(self.cadence.kernel_due_at());
        }
    }

    /// Its life in the ledger.
    #[must_use]
    pub fn life(&self) -> LifeId {
        self.app.life
    }

    fn with<R>(
        &mut self,
        world: &mut World,
        call: impl FnOnce(&mut Endpoint<'_, SimSeal>, &mut Hands<'_>) -> R,
    ) -> R {
        let mut endpoint = Endpoint::new(self.memory.tables(), &mut self.seal);
        let mut hands = Hands {
            world,
            app: &mut self.app,
        };
        let result = call(&mut endpoint, &mut hands);
        hands.hear(&mut endpoint);
        result
    }

    /// Adds a peer by its life.
    pub fn add_peer(&mut self, world: &mut World, s: &Scenario, peer: usize, life: u64) {
        let id = EndpointId(1000 + peer as u64);
        let added = self.with(world, |e, _| {
            e.add_peer(id, Life(life), address(peer), s.mode)
        });
        let added = added.expect("room for every peer");
        assert_eq!(added.0 as usize, self.app.node_of.len());
        self.app.peer_of[peer] = Some(added);
        self.app.node_of.push(peer);
    }

    /// Somebody else says that a peer died.
    pub fn told_dead(&mut self, world: &mut World, peer: usize) {
        if let Some(id) = self.app.peer_of[peer] {
            self.with(world, |e, _| e.peer_died(id));
            self.wake(world.now);
        }
    }

    /// The application wants to send.
    pub fn want(&mut self, now: u64, want: Want) {
        self.app.waiting.push_back(want);
        self.wake(now);
    }

    /// Whether it waits to send a reply.
    #[must_use]
    pub fn wants_reply(&self) -> bool {
        self.app
            .waiting
            .iter()
            .any(|w| w.priority == Priority::Reply)
    }

    /// Whether no frame is in use.
    pub fn frames_back(&mut self, world: &mut World) -> bool {
        let frames = self.app.config.frames;
        self.held.is_empty() && self.with(world, |e, _| e.free_frames() == frames)
    }

    /// Requests are welcome from now on.
    pub fn unblock(&mut self, now: u64) {
        self.app.blocked = false;
        self.app.resume_at = Some(now);
        self.wake(now);
    }

    /// Closes the endpoint.
    pub fn close(&mut self, world: &mut World) {
        world.ledger.closing(self.app.life);
        world.lost_at[self.app.node] = Some(world.now);
        let now = world.now;
        self.app.waiting.clear();
        self.with(world, |e, _| e.close(now));
        self.wake(now);
    }

    /// Everything that it sent is acknowledged and nothing waits.
    pub fn idle(&mut self, world: &mut World) -> bool {
        self.app.waiting.is_empty() && self.with(world, |e, _| e.idle())
    }

    /// Checks the tables; with `all_free` also that no frame is in use.
    pub fn check(&mut self, world: &mut World, all_free: bool) {
        let frames = self.app.config.frames;
        let held = self.held.len();
        let node = self.app.node;
        self.with(world, |e, _| {
            e.check();
            assert_eq!(e.counters().unstopped, 0, "whoever is told to stop does");
            if all_free {
                assert_eq!(held, 0);
                assert_eq!(e.free_frames(), frames, "node {node} leaks frames");
            }
        });
    }

    /// How credit stands with the node `peer`, and how many chunks this one has
    /// cut.
    pub fn credit_with(&mut self, world: &mut World, peer: usize) -> Option<(Credit, u64)> {
        let peer = self.app.peer_of[peer]?;
        self.with(world, |e, _| Some((e.credit_with(peer)?, e.counters().cut)))
    }

    /// Counters and peers, for a report.
    pub fn report(&mut self, world: &mut World) -> String {
        let peers = self.app.node_of.clone();
        let wants = self.app.waiting.len();
        let node = self.app.node;
        let frames = self.app.config.frames;
        let in_use = self.memory.frames_in_use();
        let shown = in_use
            .iter()
            .take(8)
            .fold(String::new(), |t, f| t + "\n      " + f);
        self.with(world, |e, _| {
            let states: Vec<_> = peers
                .iter()
                .enumerate()
                .map(|(i, p)| {
                    let id = PeerId(i as u32);
                    format!("{p}: {:?}{}", e.peer_state(id), if e.peer_idle(id) { "" } else { " busy" })
                })
                .collect();
            format!(
                "node {node}: idle {} free frames {} of {frames} next timeout {:?} wants {wants} peers [{}] {:?}{shown}",
                e.idle(),
                e.free_frames(),
                e.next_timeout(),
                states.join(", "),
                e.counters()
            )
        })
    }

    /// Makes the node run soon, if it was not going to.
    pub fn wake(&mut self, now: u64) {
        if self.next_pass != u64::MAX {
            return;
        }
        let late = self.app.rng.below(self.wake_ns + 1);
        self.next_pass = now + late;
    }

    /// When it next runs by itself.
    #[must_use]
    pub fn next_time(&self) -> u64 {
        let link = self.held.iter().map(|h| h.until).min();
        self.next_pass
            .min(self.timeout.unwrap_or(u64::MAX))
            .min(self.app.resume_at.unwrap_or(u64::MAX))
            .min(self.app.next_go())
            .min(link.unwrap_or(u64::MAX))
    }

    /// One pass of its progress loop.
    pub fn pass(&mut self, world: &mut World) {
        let now = world.now;
        self.next_pass = u64::MAX;
        self.passes += 1;
        if self.move_every != 0 && self.passes.is_multiple_of(self.move_every) {
            self.memory.relocate();
        }
        self.finish_frames(world, false);
        let me = self.app.node;
        self.app.delivered = false;
        let mut busy = self.take_all(world);
        let due = self.timeout.is_some_and(|t| t <= now);
        if due {
            // One at a time, so that peers go on making room for each other.
            if self.with(world, |e, _| e.wanted_connections()).is_some() {
                let count = self.memory.grow_by_one();
                self.seal.grow(key_slots(count));
            }
            self.with(world, |e, hands| hands.timeouts(e));
        }
        if self.app.next_go() <= now {
            self.with(world, |e, hands| hands.go_on(e));
        }
        if self.app.resume_at.is_some_and(|t| t <= now) {
            self.app.resume_at = None;
            busy = true;
            self.with(world, |e, hands| hands.resume(e));
        }
        busy |= self.send_waiting(world);
        busy |= self.transmit(world);
        self.timeout = self.with(world, |e, _| e.next_timeout());
        if self.app.delivered || self.has_packets(ReceivePath::Fast, world) {
            self.next_pass = self.next_pass.min(now + 1 + self.app.rng.below(500));
        }
        if self.has_packets(ReceivePath::Kernel, world) {
            let due = self.cadence.kernel_due_at().max(now + 1);
            self.next_pass = self.next_pass.min(due);
        }
        // Whoever was refused tries again after a pass that moved something.
        if busy && !self.app.waiting.is_empty() {
            self.next_pass = self.next_pass.min(now + 300);
        }
        if world.rng.one_in(64) {
            self.with(world, |e, _| e.check());
        }
        // A timeout may be early, but not for ever.
        self.idle_spins = if busy || !due { 0 } else { self.idle_spins + 1 };
        assert!(
            self.idle_spins < 1000,
            "node {me} spins: timeout {:?} at {now}",
            self.timeout
        );
        if self.timeout.is_some_and(|t| t <= now) {
            self.timeout = Some(now + 100);
        }
    }

    /// Takes what has arrived, as the link `xdp` looks for it; says whether
    /// there was any.
    fn take_all(&mut self, world: &mut World) -> bool {
        let now = world.now;
        let kernel_first = self.cadence.kernel_first();
        let mut by_kernel = 0;
        if kernel_first {
            by_kernel = self.take(ReceivePath::Kernel, world);
            self.cadence.saw_kernel(now, by_kernel);
        }
        let fast = self.take(ReceivePath::Fast, world);
        if fast > 0 {
            self.cadence.saw_fast(now);
        }
        if !kernel_first && self.cadence.kernel_is_due(now) {
            by_kernel = self.take(ReceivePath::Kernel, world);
            self.cadence.saw_kernel(now, by_kernel);
        }
        by_kernel + fast > 0
    }

    /// Takes what has come by a way, a burst at most; gives how many packets.
    fn take(&mut self, way: ReceivePath, world: &mut World) -> usize {
        let (now, me, nodes) = (world.now, self.app.node, self.nodes);
        let mut taken = 0;
        while taken < self.burst as usize
            && let Some(mut packet) = self.receive(way, world)
        {
            taken += 1;
            world
                .trace
                .packet(now, "rx", packet.from, me, &packet.bytes, packet.ce);
            let admits = self.gate.admits(&packet.bytes);
            self.compare_takes(world, &packet);
            let (heard, taken) = self.with(world, |e, hands| {
                let from = address_on(packet.from / nodes, packet.from % nodes);
                let before = e.counters().packets_received;
                let heard = hands.packet(e, from, &mut packet);
                if let Some(heard) = heard.filter(|heard| heard.path == 0) {
                    e.note_detour(heard.peer, way == ReceivePath::Kernel);
                }
                (heard, e.counters().packets_received > before)
            });
            assert!(
                admits || !taken,
                "node {me} takes a packet with a connection number that it has not told of"
            );
            if let Some(heard) = heard.filter(|heard| heard.detour) {
                let to = self.app.node_of[heard.peer.0 as usize];
                let sent = world.net.counters().sent;
                world.net.port_mut(me, to).mis_steered(now, sent);
            }
        }
        taken
    }

    /// Takes a packet by the quick way and by the usual one, over copied tables.
    fn compare_takes(&mut self, world: &mut World, packet: &Arrival) {
        if !self.passes.is_multiple_of(COMPARED_PASSES) {
            return;
        }
        let now = world.now;
        let it = quick::Packet {
            from: address_on(packet.from / self.nodes, packet.from % self.nodes),
            ce: packet.ce,
            bytes: &packet.bytes,
        };
        let app = &mut self.app;
        let hands = Hands { world, app };
        let taken = quick::take_both_ways(&self.memory, &self.seal, now, &it, &hands);
        for (sum, taken) in world.foreseen.iter_mut().zip(taken) {
            *sum += u64::from(taken);
        }
    }

    /// Sends the next message by the quick way and by the usual one, over copied tables.
    fn compare_ways(&mut self, world: &mut World) {
        let Some(want) = self.app.waiting.front().cloned() else {
            return;
        };
        let short = want.long.is_none() && want.total <= 2_000;
        if let Some(peer) = self.app.peer_of[want.to]
            && short
            && self.passes.is_multiple_of(COMPARED_PASSES)
        {
            let now = world.now;
            let app = &mut self.app;
            let hands = Hands { world, app };
            let quick = quick::send_both_ways(&self.memory, now, peer, &want, &hands);
            world.quick += u64::from(quick);
        }
    }

    fn send_waiting(&mut self, world: &mut World) -> bool {
        let mut busy = false;
        self.compare_ways(world);
        let mut waiting = std::mem::take(&mut self.app.waiting);
        // A stalled peer must not delay others: each want stands alone, but
        // those of one (peer, priority) that failed once are not tried again.
        let mut stalled: BTreeMap<(usize, usize), ()> = BTreeMap::new();
        let mut kept = VecDeque::new();
        self.with(world, |e, hands| {
            for want in waiting.drain(..) {
                let key = (want.to, want.priority.index());
                if stalled.contains_key(&key) {
                    kept.push_back(want);
                    continue;
                }
                match hands.send(e, &want) {
                    Sent::Done => busy = true,
                    Sent::Gone => {}
                    Sent::Wait => {
                        stalled.insert(key, ());
                        kept.push_back(want);
                    }
                }
            }
        });
        kept.append(&mut self.app.waiting);
        self.app.waiting = kept;
        busy
    }

    fn transmit(&mut self, world: &mut World) -> bool {
        let now = world.now;
        let me = self.app.node;
        let flush_delayed_acks = !self.app.delivered;
        let mut busy = false;
        let mut count = 0;
        for peer in std::mem::take(&mut self.app.gone) {
            let numbers = self.with(world, |e, _| e.connection_numbers(peer).collect());
            self.gate.admit(peer, numbers);
        }
        loop {
            let sent = self.with(world, |e, hands| {
                let t = e.poll_transmit(now, flush_delayed_acks, hands)?;
                Some((t, e.frame(&t).to_vec()))
            });
            let Some((t, bytes)) = sent else { break };
            busy = true;
            count += 1;
            if t.connect {
                let numbers = self.with(world, |e, _| e.connection_numbers(t.peer).collect());
                self.gate.admit(t.peer, numbers);
                let to = self.app.node_of[t.peer.0 as usize];
                world.net.port_mut(me, to).become_own();
            }
            assert!(count < 100_000, "node {me} never stops sending");
            let (from, to) = places(&t, me, self.nodes);
            world.trace.packet(now, "tx", me, to, &bytes, t.ecn);
            if self.link_ns == 0 {
                self.with(world, |e, _| e.transmitted(t.frame));
            } else {
                self.held.push(FrameInFlight {
                    frame: t.frame,
                    start: t.start,
                    bytes: bytes.clone(),
                    until: now + self.app.rng.below(self.link_ns),
                });
            }
            world.net.send(from, to, &bytes, t.ecn);
            self.overhear(world, to, bytes);
        }
        busy
    }

    /// An attacker repeats old packets to anybody and invents new ones.
    fn overhear(&self, world: &mut World, to: usize, bytes: Vec<u8>) {
        if self.forge_ppm == 0 || world.calm {
            return;
        }
        if world.overheard.len() < 64 {
            world.overheard.push((to, bytes));
        } else if world.rng.one_in(16) {
            let at = world.rng.index(64);
            world.overheard[at] = (to, bytes);
        }
        if !world.rng.ppm(self.forge_ppm) {
            return;
        }
        let known = world.rng.index(world.overheard.len());
        let (meant_for, mut packet) = world.overheard[known].clone();
        match world.rng.below(4) {
            0 => {}
            1 => {
                packet = (0..world.rng.below(200))
                    .map(|_| world.rng.word() as u8)
                    .collect()
            }
            _ => {
                for _ in 0..world.rng.between(1, 4) {
                    let at = world.rng.index(packet.len().max(1));
                    if let Some(byte) = packet.get_mut(at) {
                        *byte ^= 1 << world.rng.below(8);
                    }
                }
            }
        }
        let from = world.rng.index(world.net.nodes());
        let to = if world.rng.one_in(2) {
            to
        } else {
            world.rng.index(world.net.nodes())
        };
        // A checksum defends against accidents, not against a packet of one
        // pair that is repeated to an endpoint whose connection happens to
        // have the same number.
        let to = if self.keyed { to } else { meant_for };
        world.net.inject(from, to, packet);
    }

    /// The link gives frames back; none may have changed meanwhile.
    fn finish_frames(&mut self, world: &mut World, all: bool) {
        let now = world.now;
        let mut held = std::mem::take(&mut self.held);
        held.retain(|h| {
            if h.until > now && !all {
                return true;
            }
            let tables = self.memory.tables();
            assert_eq!(
                tables.frames[h.start..h.start + h.bytes.len()],
                h.bytes,
                "a frame changed while the link read it"
            );
            self.with(world, |e, _| e.transmitted(h.frame));
            false
        });
        self.held = held;
    }
}
