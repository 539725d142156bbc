//! Several networks between two endpoints: announcing and validating them,
//! giving paths up.
//!
//! Each side sends the other, encrypted, the further addresses by which it is
//! reached. Where one of them lies in the subnet of a network of ours, a path
//! leads there; its number is that of our network. Path 0, to the known address
//! of the peer, leaves by the network whose subnet that lies in, which need not
//! be the first: hosts may list theirs in different orders. Then the path with
//! that network's number uses the first network.
//!
//! A further path carries messages once a packet went there and an answer came
//! back. When its probes stay without an answer while another path's do not, it
//! is given up: its packets go on elsewhere, and it is tried now and then.

use portolan_seal::Seal;
use portolan_wire::{Chunk, HEADER_BYTES, NETWORK_BYTES, Network, TAG_BYTES};

use crate::base::{ConnIndex, NetAddress, PATHS_MAX, PathIndex, PeerId, WINDOW_SPAN};
use crate::congestion::{Congestion, Mode};
use crate::endpoint::Endpoint;
use crate::path::{KeptPath, Path};
use crate::paths::{Answerer, Candidate};
use crate::received::Owed;
use crate::tables::{KeptFurther, LocalNetwork};
use crate::way::Way;

/// At this many unanswered probes in a row a path is given up, in place of the
/// last: after three times SRTT + 4 RTTVAR and the slack.
const PROBES_DEAD: u8 = 3;

impl<S: Seal> Endpoint<'_, S> {
    /// Sets a network of this endpoint: the first, 0, whose address peers know
    /// it by, and up to three more. Peers on none of these are reached by the
    /// first. Call before peers are added; further networks do nothing without
    /// [`crate::Config::more_paths`].
    ///
    /// # Panics
    /// If there is no such number: an error of the caller.
    pub fn set_network(&mut self, number: usize, network: LocalNetwork) {
        assert!(number < PATHS_MAX, "networks 0 to 3");
        self.core.networks[number] = LocalNetwork {
            packet_max: network.packet_max.min(self.core.config.packet_max),
            ..network
        };
    }

    /// Our network by which an address is reached.
    pub(super) fn network_to(&self, ip: [u8; 16]) -> u8 {
        let found = self.core.networks.iter().position(|n| n.has(ip));
        found.unwrap_or(0) as u8
    }

    /// Sets the destination of path 0 to a peer.
    pub(super) fn lead(&mut self, peer: PeerId, to: NetAddress) {
        let network = self.network_to(to.ip);
        let p = &mut self.peers[peer];
        p.to = to;
        p.bits.set_network(network);
    }

    /// Our network by which a path to a peer leaves.
    #[inline]
    pub(super) fn network_of(&self, peer: PeerId, path: u8) -> u8 {
        let lead = self.peers[peer].bits.network();
        match path {
            0 => lead,
            path if path == lead => 0,
            path => path,
        }
    }

    /// Notes from which address a packet has come by a path (P2.29).
    #[inline]
    pub(super) fn note_source(&mut self, conn: ConnIndex, path: PathIndex, from: NetAddress) {
        if self.conns[conn].paths.has_more() {
            let peer = self.conns[conn].peer;
            // `network_of` swaps two numbers, so it is its own inverse.
            let mate = self.network_of(peer, self.network_to(from.ip));
            self.path_mut(path).way.mate = mate;
        }
    }

    /// Queues a chunk with our networks, once there is a frame for it.
    pub(super) fn tell_networks(&mut self, now: u64, conn: ConnIndex) {
        let mut entries = [[0; NETWORK_BYTES]; PATHS_MAX - 1];
        let further = &self.core.networks[1..];
        let known = further.iter().filter(|n| n.packet_max > 0);
        let mut count = 0;
        for (entry, network) in entries.iter_mut().zip(known) {
            *entry = Network {
                ip: network.address.ip,
                port: network.address.port,
                packet_max: network.packet_max,
            }
            .to_bytes();
            count += 1;
        }
        let told = count == 0 || {
            let chunk = Chunk::Networks(&entries[..count]);
            self.queue_control(now, conn, &chunk).is_some()
        };
        self.conns[conn].paths.networks_owed = !told;
    }

    /// Handles a peer's networks: those that we share with it become paths (P12.1).
    pub(super) fn handle_networks(
        &mut self,
        now: u64,
        conn: ConnIndex,
        told: &[[u8; NETWORK_BYTES]],
    ) {
        let mut used = 0u16;
        let peer = self.conns[conn].peer;
        for id in 1..PATHS_MAX as u8 {
            let network = self.network_of(peer, id);
            let mine = self.core.networks[usize::from(network)];
            let own = self.own_packet_max(network);
            let found = told
                .iter()
                .map(Network::parse)
                .enumerate()
                .find(|(i, n)| used >> i & 1 == 0 && mine.has(n.ip));
            let Some((i, theirs)) = found else { continue };
            used |= 1 << i;
            let Some(path) = self.open_path(conn, id) else {
                continue;
            };
            self.keep_path(conn, id);
            let p = self.path_mut(path);
            if p.way.leads() {
                continue;
            }
            let to = NetAddress {
                ip: theirs.ip,
                port: theirs.port,
            };
            p.way.lead(now, to);
            p.sent.mtu.begin(now, own, theirs.packet_max);
            p.sent.probes.owe_ping();
            self.make_ready(conn);
        }
    }

    /// Returns the path of a number, made if there is none; `None` if all
    /// entries are in use.
    pub(super) fn open_path(&mut self, conn: ConnIndex, id: u8) -> Option<PathIndex> {
        if let Some(path) = self.conns[conn].paths.get(id) {
            return Some(path);
        }
        // Further paths lie behind the first paths of the initial connections.
        let config = &self.core.config;
        let first = config.active as usize;
        let free = &self.paths[first..first + config.more_paths as usize];
        let path = PathIndex::new(first + free.iter().position(|p| p.conn.is_none())?);
        let c = &mut self.conns[conn];
        c.paths.set(id, path);
        c.unusual |= c.paths.unusual();
        let known = c.kept.paths >> id & 1 == 1;
        let peer = c.peer;
        let place = self.peers[peer].place;
        let kept = if known {
            KeptFurther::from_words(&self.parked_paths[further_at(place, id)])
        } else {
            KeptFurther {
                path: KeptPath::new(0),
                ..KeptFurther::default()
            }
        };
        let mode = self.core.config.congestion.unwrap_or(Mode::Lan);
        let most = self.core.config.packet_max;
        let congestion = Congestion::new(mode, most, WINDOW_SPAN as u32);
        let marks = self.core.config.first_message;
        let own = self.own_packet_max(self.network_of(peer, id));
        let p = &mut self.paths[path];
        *p = Path::resume(conn, &kept.path, marks, congestion);
        p.way = Way::further(id, (kept.theirs > 0).then_some(kept.to));
        // Nothing of the present key phase was seen on it.
        p.phases.begin_receiving(None);
        if p.way.leads() {
            p.sent.mtu.resume(kept.path.packet_max, own, kept.theirs);
        }
        Some(path)
    }

    /// Marks a path whose numbers are parked from now on.
    pub(super) fn keep_path(&mut self, conn: ConnIndex, id: u8) {
        self.conns[conn].kept.paths |= 1 << id;
    }

    /// Makes the further paths of a connection that was parked. All its packets
    /// of earlier key phases arrived or are no more.
    pub(super) fn resume_paths(&mut self, conn: ConnIndex) {
        let known = self.conns[conn].kept.paths;
        for id in (1..PATHS_MAX as u8).filter(|id| known >> id & 1 == 1) {
            if let Some(path) = self.open_path(conn, id) {
                let p = self.path_mut(path);
                p.phases.begin_receiving(Some(p.received.next));
            }
        }
    }

    /// Parks the state of a connection's further paths (P12.4).
    pub(super) fn park_paths(&mut self, conn: ConnIndex) {
        let c = &self.conns[conn];
        let (known, further) = (c.kept.paths, c.paths.iter().skip(1));
        let place = self.peers[c.peer].place;
        for path in further {
            let p = &self.paths[path];
            if known >> p.way.id & 1 == 1 {
                let theirs = if p.way.leads() {
                    p.sent.mtu.theirs()
                } else {
                    0
                };
                let kept = KeptFurther {
                    path: p.kept(),
                    to: p.way.to(),
                    theirs,
                };
                self.parked_paths[further_at(place, p.way.id)] = kept.to_words();
            }
        }
    }

    /// Frees a further path. If its state was to be parked, it has been.
    pub(super) fn release_path(&mut self, path: PathIndex) {
        let Path { conn, way, .. } = self.paths[path];
        self.conns[conn].paths.set(way.id, PathIndex::NONE);
        self.paths[path] = Path::default();
    }

    /// Handles an acknowledgement of a path with a new largest number.
    #[cold]
    pub(super) fn path_answered(&mut self, now: u64, path: PathIndex, largest: u64) {
        let p = self.path_mut(path);
        p.sent.probes.answered();
        if p.way.answered(largest) {
            p.sent.mtu.go_on(now);
        }
        // Its packet size must be known too.
        if !p.sent.mtu.is_searching() && p.way.put_to_use() {
            let conn = p.conn;
            self.make_ready(conn);
        }
    }

    /// Gives a path up if its probes have no answer and another path's have:
    /// everything that it carries will leave by others. Returns false if the
    /// path stays (P12.3).
    pub(super) fn give_up_path(&mut self, now: u64, path: PathIndex) -> bool {
        let p = &self.paths[path];
        let conn = p.conn;
        if !self.conns[conn].paths.has_more()
            || (p.way.is_usable() && p.sent.probes.quiet() < PROBES_DEAD)
        {
            return false;
        }
        let alive = |&other: &PathIndex| {
            let o = &self.paths[other];
            other != path && o.way.is_usable() && o.sent.probes.quiet() == 0
        };
        let Some(other) = self.conns[conn].paths.iter().find(alive) else {
            self.ask_doubtful(conn, path);
            return false;
        };
        let p = self.path_mut(path);
        let numbers = p.sent.numbers();
        if p.way.is_usable() {
            self.core.counters.paths_given_up += 1;
            let most = self.core.config.packet_max;
            let p = self.path_mut(path);
            p.way.give_up(now, numbers.end);
            p.sent.begin_anew(most);
        }
        for number in numbers {
            if let Some(frame) = self.paths[path].sent.frame(number) {
                self.frame_lost(now, path, frame, true);
            }
        }
        let p = self.path_mut(path);
        p.sent.mtu.rest();
        p.sent.probes.take_probe();
        self.conns[conn].paths.turn_to(other);
        true
    }

    /// Sends pings on the other paths in use that have nothing in flight:
    /// nothing else would show that one which missed an answer is back.
    fn ask_doubtful(&mut self, conn: ConnIndex, path: PathIndex) {
        for other in self.conns[conn].paths.iter().filter(|&other| other != path) {
            let p = self.path_mut(other);
            if p.way.is_usable() && p.sent.flying == 0 {
                p.sent.probes.owe_ping();
            }
        }
    }

    /// Tries a path that is not in use, if it is time, and something is to be
    /// sent or messages come by it. A mere ping is no reason: two idle sides
    /// must not wake each other again and again.
    pub(super) fn try_path(&mut self, now: u64, path: PathIndex) {
        let p = &self.paths[path];
        let c = &self.conns[p.conn];
        let owes = p.received.owed() != Owed::Nothing && c.inbound.last_data_at != 0;
        let waits = c.outbound.queued > 0 || owes || self.is_stuck(p.conn);
        let p = &mut self.paths[path];
        if waits && p.way.trial_at() <= now {
            p.sent.probes.owe_ping();
            let next = p.way.tried(now);
            self.arm(next);
        }
    }

    /// When a path is to be tried, if nothing changes until then; `u64::MAX`: never.
    pub(super) fn trial_at(&self, path: PathIndex) -> u64 {
        let p = &self.paths[path];
        let at = p.way.trial_at();
        let waits = || self.conns[p.conn].outbound.queued > 0 || self.is_stuck(p.conn);
        if at != u64::MAX && waits() {
            at
        } else {
            u64::MAX
        }
    }

    /// Whether packets in flight on some path have no answer: should no other
    /// path be in use yet, they could leave by none.
    fn is_stuck(&self, conn: ConnIndex) -> bool {
        let mut paths = self.conns[conn].paths.iter().map(|path| &self.paths[path]);
        paths.any(|p| p.way.is_usable() && p.sent.probes.quiet() > 0 && p.sent.flying > 0)
    }

    /// Most urgent acknowledgement that is owed on any path.
    #[inline(always)]
    pub(super) fn owed(&self, conn: ConnIndex) -> Owed {
        let mine = self.paths[conn.first_path()].received.owed();
        if !self.conns[conn].paths.has_more() {
            return mine;
        }
        let all = self.conns[conn]
            .paths
            .iter()
            .map(|path| self.paths[path].received.owed());
        all.max().unwrap_or(mine)
    }

    /// Packets in flight to a connection's peer, on all paths.
    #[inline(always)]
    pub(super) fn flying(&self, conn: ConnIndex) -> u32 {
        let mine = self.paths[conn.first_path()].sent.flying;
        if !self.conns[conn].paths.has_more() {
            return mine;
        }
        self.conns[conn]
            .paths
            .iter()
            .map(|path| self.paths[path].sent.flying)
            .sum()
    }
}

/// Index of the parked state of a further path of a peer.
const fn further_at(place: u32, id: u8) -> usize {
    place as usize * (PATHS_MAX - 1) + id as usize - 1
}

// Packet sizes: limits of links and interfaces, and probes.

impl<S: Seal> Endpoint<'_, S> {
    /// The link refused a packet of `bytes` on a path as too big: from now on
    /// packets have at most `max`, or if that is 0 what every path takes, until
    /// a search has found more.
    pub fn packet_too_big(&mut self, now: u64, peer: PeerId, path: u8, bytes: usize, max: usize) {
        let Some(p) = self.peers.get(peer.index()) else {
            return;
        };
        if p.conn.is_some()
            && let Some(path) = self.conns[p.conn].paths.get(path)
        {
            let [bytes, max] = [bytes, max].map(|n| n.min(usize::from(u16::MAX)) as u16);
            let p = self.path_mut(path);
            p.sent.mtu.refused(now, bytes, max);
            let at = p.sent.mtu.due();
            self.arm(at);
        }
    }

    /// Sets the size of packets (UDP payload) that the interface of one of our
    /// networks takes now, at most [`crate::Config::packet_max`]: frames have
    /// room for no more.
    pub fn set_packet_max(&mut self, now: u64, network: u8, size: usize) {
        let size = size.min(usize::from(self.core.config.packet_max)) as u16;
        if usize::from(network) >= PATHS_MAX || size == self.own_packet_max(network) {
            return;
        }
        match usize::from(network) {
            0 => self.core.packet_max = size,
            at if self.core.networks[at].packet_max > 0 => {
                self.core.networks[at].packet_max = size.max(1);
            }
            _ => return,
        }
        for path in (0..self.paths.len()).map(PathIndex::new) {
            let Path { conn, way, .. } = self.paths[path];
            if conn.is_none() || !self.conns[conn].handshake.is_keyed() {
                continue;
            }
            if self.network_of(self.conns[conn].peer, way.id) == network {
                self.path_mut(path).sent.mtu.set_own(now, size);
                self.make_ready(conn);
            }
        }
    }

    /// Size of packets that our interface on a network takes now.
    pub(super) fn own_packet_max(&self, network: u8) -> u16 {
        match usize::from(network) {
            0 => self.core.packet_max,
            at => self.core.networks[at].packet_max,
        }
    }

    /// Size of the probe to send now, if one is due.
    pub(super) fn mtu_probe_due(&mut self, now: u64, path: PathIndex) -> Option<u16> {
        let p = self.path_mut(path);
        if now < p.sent.mtu.due() {
            return None;
        }
        let size = p.sent.mtu.probe(now, p.sent.next);
        let room = self.memory.chunk_room(u16::MAX) + HEADER_BYTES + TAG_BYTES;
        (size > 0).then_some(size.min(room as u16))
    }
}

// Choice of the path by which the next packet leaves.

impl<S: Seal> Endpoint<'_, S> {
    /// Path by which the next packet of chunks is to leave. If it has to wait
    /// for its window or its pacer, so do all others.
    #[inline]
    pub(super) fn way(&mut self, now: u64, conn: ConnIndex) -> PathIndex {
        if !self.conns[conn].paths.has_more() {
            return conn.first_path();
        }
        self.best_way(now, conn)
    }

    fn best_way(&mut self, now: u64, conn: ConnIndex) -> PathIndex {
        let mut paths = self.conns[conn].paths;
        let before = paths.current();
        let path = paths.choose(now, |path| {
            let p = &self.paths[path];
            Candidate {
                usable: p.way.is_usable(),
                probes: p.sent.probes.owes_probe(),
                open: self.window_open(path, 0),
                ready_at: p.sent.ready_at(now),
                quiet: p.sent.probes.quiet(),
                load: p.sent.load(),
            }
        });
        self.conns[conn].paths = paths;
        if paths.current() != before {
            self.arm_probe(now, path);
        }
        path
    }

    /// Path by which an acknowledgement of a path's packets leaves.
    pub(super) fn ack_way(&self, conn: ConnIndex, path: PathIndex) -> PathIndex {
        let mate = self.paths[path].way.mate;
        self.conns[conn].paths.choose_for_ack(mate, |other| {
            let p = &self.paths[other];
            Answerer {
                usable: p.way.is_usable(),
                leads: p.way.leads(),
                doubtful: p.sent.probes.quiet() > 0,
            }
        })
    }

    /// Path whose packets are acknowledged by a packet that leaves by `path`.
    #[inline]
    pub(super) fn told_by(&self, conn: ConnIndex, path: PathIndex) -> PathIndex {
        let tells = |other: PathIndex| self.paths[other].received.has_news();
        if !self.conns[conn].paths.has_more() {
            return path;
        }
        let id = self.paths[path].way.id;
        let is_mate = |&other: &PathIndex| self.paths[other].way.mate == id && tells(other);
        let mut mates = self.conns[conn].paths.iter().filter(is_mate);
        let all = || self.conns[conn].paths.iter().find(|&other| tells(other));
        mates.next().or_else(all).unwrap_or(path)
    }

    /// Nothing more may leave for now: sends pings on other paths whose packets
    /// were not asked about.
    #[inline]
    pub(super) fn ask_others(&mut self, conn: ConnIndex, path: PathIndex) {
        if !self.conns[conn].paths.has_more() {
            return;
        }
        for other in self.conns[conn].paths.iter().filter(|&other| other != path) {
            let p = self.path_mut(other);
            if p.way.is_usable() {
                p.sent.ask_about_rest();
            }
        }
    }

    /// Largest packet that every path in use takes.
    #[inline]
    pub(super) fn packet_size(&self, conn: ConnIndex) -> u16 {
        let first = &self.paths[conn.first_path()];
        if !self.conns[conn].paths.has_more() {
            return first.sent.mtu.current();
        }
        let used = self.conns[conn].paths.iter().map(|path| &self.paths[path]);
        let sizes = used
            .filter(|p| p.way.is_usable())
            .map(|p| p.sent.mtu.current());
        sizes.min().unwrap_or(first.sent.mtu.current())
    }
}
