//! The view that ties the tables and the seal together for one call: it finds peer, connection,
//! path and frame by index, opens and seals, keeps the lists of who has something to send and the
//! earliest deadline, and hands events out. What follows from an event is decided by the values.

mod acknowledge;
mod active;
mod check;
mod connect;
mod networks;
mod peers;
mod quick;
mod receive;
mod rx;
mod transmit;

use core::hash::Hasher;

use portolan_seal::Seal;

use crate::base::{
    ConnIndex, Counters, DeathReason, Event, FrameIndex, NetAddress, PathIndex, PeerEvent, PeerId,
    Transmit, Unusual,
};
use crate::memory::{Memory, MemoryOwner, Need, Use};
use crate::path::Path;
use crate::received::Owed;
use crate::silence::{Judgement, Keepalive};
use crate::tables::{
    Conn, Core, Listed, PathSnapshot, Peer, PeerSnapshot, PeerState, State, Tables,
};

pub use check::Credit;
pub use peers::AddPeerError;
pub use quick::{Foreseen, One, Taken};
pub use rx::Rx;

/// An endpoint, for the length of one call: a view over its tables.
#[derive(Debug)]
pub struct Endpoint<'m, S: Seal> {
    core: &'m mut State,
    peers: &'m mut [Peer],
    parked: &'m mut [PeerSnapshot],
    parked_paths: &'m mut [PathSnapshot],
    conns: &'m mut [Conn],
    paths: &'m mut [Path],
    memory: Memory<'m>,
    seal: &'m mut S,
}

impl<'m, S: Seal> Endpoint<'m, S> {
    /// View over tables that [`Tables::init`] made, and the seal that goes with them.
    #[inline]
    pub fn new(tables: Tables<'m>, seal: &'m mut S) -> Self {
        let Tables {
            core,
            peers,
            parked,
            parked_paths,
            conns,
            paths,
            cargo,
            flights,
            longs,
            frames,
        } = tables;
        let Core { state, pool } = core;
        Self {
            core: state,
            peers,
            parked,
            parked_paths,
            conns,
            paths,
            memory: Memory {
                pool,
                cargo,
                flights,
                longs,
                bytes: frames,
            },
            seal,
        }
    }

    /// A view of the same tables. Where only rare work gets a reference to it, the compiler keeps the
    /// tables of the one before in registers.
    #[inline(always)]
    fn reborrow(&mut self) -> Endpoint<'_, S> {
        Endpoint {
            core: self.core,
            peers: self.peers,
            parked: self.parked,
            parked_paths: self.parked_paths,
            conns: self.conns,
            paths: self.paths,
            memory: self.memory.reborrow(),
            seal: self.seal,
        }
    }

    /// State of a peer; [`PeerState::New`] if there is no such peer.
    #[must_use]
    pub fn peer_state(&self, peer: PeerId) -> PeerState {
        self.peers
            .get(peer.index())
            .map_or(PeerState::New, |p| p.state)
    }

    /// Connection numbers that packets of a peer may carry: the one offered to
    /// its known life, and those offered to lives that are not proven yet.
    pub fn connection_numbers(&self, peer: PeerId) -> impl Iterator<Item = u32> + Clone {
        let known = self.peers[..self.core.peer_count as usize].get(peer.index());
        let heard = |p: &&Peer| match p.state {
            PeerState::Dead(how) => matches!(how, DeathReason::Closed | DeathReason::Removed),
            PeerState::Free => false,
            _ => true,
        };
        let unproven = self.core.pending.iter();
        let unproven = unproven.filter(move |it| it.nonce != 0 && it.peer == peer);
        let own = known.filter(heard).map(move |p| p.connection(peer));
        own.into_iter().chain(unproven.map(|it| it.connection))
    }

    /// Address of path 0 to a peer, if the peer exists.
    #[must_use]
    pub fn peer_address(&self, peer: PeerId) -> Option<NetAddress> {
        self.peers.get(peer.index()).map(|p| p.to)
    }

    /// A peer's id, and its present life.
    #[must_use]
    pub fn peer_identity(
        &self,
        peer: PeerId,
    ) -> Option<(portolan_wire::EndpointId, portolan_wire::Life)> {
        self.peers.get(peer.index()).map(|p| (p.id, p.life))
    }

    /// Whether everything sent to a peer has been acknowledged.
    #[must_use]
    pub fn peer_idle(&self, peer: PeerId) -> bool {
        let Some(p) = self.peers.get(peer.index()) else {
            return true;
        };
        p.conn.is_none() || { self.conns[p.conn].outbound.is_settled() }
    }

    /// Whether everything sent to all peers has been acknowledged, closes included.
    #[must_use]
    pub fn idle(&self) -> bool {
        let mut used = self.conns[..self.core.places.conns_used as usize].iter();
        self.core.closes_owed == 0
            && used.all(|c| c.listed == Listed::Free || c.outbound.is_settled())
    }

    /// Peers that have stopped flows of ours.
    pub fn stopped_by(&self) -> impl Iterator<Item = PeerId> {
        let used = self.conns[..self.core.places.conns_used as usize].iter();
        used.filter(|c| c.listed != Listed::Free && c.outbound.stopped.any())
            .map(|c| c.peer)
    }

    /// Whether everything sent to all peers has left at least once. Packets
    /// that wait for a resend have not.
    #[must_use]
    pub fn has_left(&self) -> bool {
        let mut used = self.conns[..self.core.places.conns_used as usize].iter();
        used.all(|c| c.listed == Listed::Free || c.outbound.has_left())
    }

    /// Counters since the endpoint was made.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.core.counters
    }

    /// Frames that are not in use.
    #[must_use]
    pub const fn free_frames(&self) -> u32 {
        self.memory.pool.free_count
    }

    /// The bytes of a packet that is ready to leave.
    #[inline]
    #[must_use]
    pub fn frame(&self, t: &Transmit) -> &[u8] {
        &self.memory.bytes[t.start..t.start + t.len]
    }

    /// Packets that congestion control allows in flight on path 0 to a peer,
    /// while it is active.
    #[must_use]
    pub fn window(&self, peer: PeerId) -> Option<u32> {
        let conn = self.peers.get(peer.index())?.conn;
        Some(self.paths.get(conn.index())?.sent.window())
    }

    /// Smoothed round-trip time of path 0 to a peer, ns, once one was measured.
    #[must_use]
    pub fn round_trip(&self, peer: PeerId) -> Option<u64> {
        let conn = self.peers.get(peer.index())?.conn;
        self.paths.get(conn.index())?.sent.round_trip()
    }

    /// Takes a frame out of the pool.
    #[inline]
    fn take_frame(&mut self, need: Need, usage: Use, conn: ConnIndex) -> Option<FrameIndex> {
        let frame = self.memory.take(need, usage, conn);
        if frame.is_none() {
            self.note_lack();
        }
        frame
    }

    /// The link is done with the frame of a [`Transmit`]. Call once for each, whether the link sent
    /// it or failed to.
    pub fn transmitted(&mut self, frame: FrameIndex) {
        self.memory.flights[frame].in_link = false;
        let cargo = &self.memory.cargo[frame];
        match cargo.usage {
            Use::Passing | Use::Leaving => self.memory.free(frame),
            Use::Parting => {
                let conn = cargo.conn;
                self.go_on_with_rest(conn, frame);
            }
            _ => {}
        }
    }

    /// State of credit with a peer that is up. For tests.
    #[must_use]
    pub fn credit_with(&self, peer: PeerId) -> Option<Credit> {
        check::credit_with(self, peer)
    }

    /// Feeds a hasher with all state that later behaviour may depend on. For tests.
    pub fn hash_state(&self, state: &mut impl Hasher) {
        check::hash_state(self, state);
    }

    /// Asserts that every frame has exactly one owner and every counter agrees
    /// with the lists. Linear in all tables. For tests.
    ///
    /// # Panics
    /// If that does not hold.
    pub fn check(&self) {
        check::check(self);
    }

    #[inline]
    fn path_mut(&mut self, path: PathIndex) -> &mut Path {
        &mut self.paths[path]
    }
}

// Events for the caller.

impl<S: Seal> Endpoint<'_, S> {
    /// Returns the next event. Call until `None` after each call that may bring
    /// some: after [`crate::Rx::next`], before the part that it returned is
    /// used, and after timeouts, sent packets and news of a peer from outside.
    ///
    /// When a peer dies, the memory of long messages to it is released first.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.core.events.count == 0 && self.memory.pool.released.head.is_none() {
            return None;
        }
        self.next_event()
    }

    #[cold]
    fn next_event(&mut self) -> Option<Event> {
        let released = &mut self.memory.pool.released;
        if let Some(long) = released.pop_front(self.memory.longs) {
            let l = &mut self.memory.longs[long];
            l.memory = MemoryOwner::Back;
            let event = Event::Released(l.source, l.outcome);
            if l.ended {
                self.memory.free_long(long);
            }
            return Some(event);
        }
        let events = &mut self.core.events;
        if let Some(event) = events.pop() {
            return Some(event);
        }
        let from = events.peers_from;
        let known = self.core.peer_count as usize;
        let mut rest = self.peers[from.index()..known].iter();
        let ahead = rest.position(|p| !p.events.is_empty())?;
        let peer = PeerId::new(from.index() + ahead);
        let mine = &mut self.peers[peer].events;
        let event = mine.take()?;
        events.peers_from = peer;
        if mine.is_empty() {
            events.count -= 1;
            if events.count == 0 {
                events.peers_from = PeerId::NONE;
            }
        }
        Some(Event::Peer(peer, event))
    }

    /// Queues an event that no table carries; returns false if the queue is full.
    fn tell(&mut self, event: Event) -> bool {
        self.core.events.push(event)
    }

    /// Queues an event of a peer.
    fn tell_peer(&mut self, peer: PeerId, event: PeerEvent) {
        let mine = &mut self.peers[peer].events;
        let events = &mut self.core.events;
        events.count += u32::from(mine.is_empty());
        events.peers_from = events.peers_from.min(peer);
        mine.add(event);
    }
}

// Connections that may have something to send.

impl<S: Seal> Endpoint<'_, S> {
    /// Notes that a connection may have something to send, and what is unusual about it.
    #[inline]
    fn make_ready(&mut self, conn: ConnIndex) {
        self.note_unusual(conn);
        self.list_ready(conn);
    }

    /// Puts a connection of which nothing unusual is new in the list of those that may have
    /// something to send.
    #[inline]
    fn list_ready(&mut self, conn: ConnIndex) {
        match self.conns[conn].listed {
            Listed::Ready => return,
            // Rare: few connections wait there, and only for one pass.
            Listed::Deferred => _ = self.core.queues.deferred.remove(self.conns, conn),
            Listed::Starved => _ = self.core.queues.starved.remove(self.conns, conn),
            Listed::None | Listed::Free => {}
        }
        self.conns[conn].listed = Listed::Ready;
        self.core.queues.ready.push_back(self.conns, conn);
    }

    /// Adds what has become unusual about a connection. Call after a change that may have brought
    /// a reason.
    fn note_unusual(&mut self, conn: ConnIndex) {
        let found = self.find_unusual(conn);
        self.conns[conn].unusual |= found;
    }

    /// What is unusual about a connection, as its values say.
    fn find_unusual(&self, conn: ConnIndex) -> Unusual {
        let c = &self.conns[conn];
        let p = &self.paths[conn.first_path()];
        c.outbound.unusual()
            | c.inbound.unusual()
            | c.silence.unusual()
            | c.paths.unusual()
            | c.handshake.unusual()
            | c.kept.keys.unusual(self.phase_limit())
            | p.sent.unusual()
            | p.received.unusual()
            | p.way.unusual()
    }

    /// Packets that a key phase may have.
    #[inline]
    fn phase_limit(&self) -> u64 {
        self.core.config.rekey_packets.min(self.seal.packets_max())
    }

    /// Whether a connection certainly has no packet now; false leaves that open.
    #[inline(always)]
    fn has_nothing(&self, now: u64, conn: ConnIndex, flush_delayed_acks: bool) -> bool {
        let c = &self.conns[conn];
        !c.outbound.has_queue()
            && (c.unusual.is_nothing() || self.needs_no_packet(conn))
            && self.core.closes_owed == 0
            && self.owes_nothing(now, conn, flush_delayed_acks)
    }

    /// Whether what is unusual about a connection needs no packet now.
    #[cold]
    fn needs_no_packet(&self, conn: ConnIndex) -> bool {
        let c = &self.conns[conn];
        let p = &self.paths[conn.first_path()];
        p.received.owed() != Owed::Now
            && !p.sent.probes.owes_ping()
            && p.way.is_usable()
            && !c.paths.has_more()
            && !c.paths.networks_owed
            && !c.inbound.stops.are_owed()
            && c.kept.keys.over(self.phase_limit()).is_none()
    }

    #[inline(never)]
    fn owes_nothing(&self, now: u64, conn: ConnIndex, flush_delayed_acks: bool) -> bool {
        let p = &self.paths[conn.first_path()];
        (p.received.owed() == Owed::Nothing || !flush_delayed_acks)
            && (self.conns[conn].deferred_ack.is_none()
                || !flush_delayed_acks && self.window_open(conn.first_path(), 0))
            && now < p.sent.mtu.due()
    }

    /// Defers a connection that owes what may wait for an answer of the
    /// application, or for the next pass that sends no answer.
    #[inline]
    fn make_deferred(&mut self, conn: ConnIndex) {
        let c = &self.conns[conn];
        match c.listed {
            Listed::Deferred => {}
            Listed::None if !c.outbound.has_queue() => {
                self.conns[conn].listed = Listed::Deferred;
                self.core.queues.deferred.push_back(self.conns, conn);
            }
            _ => self.list_ready(conn),
        }
    }

    /// Makes connections ready that found no frame, in the order in which they
    /// failed, once there are frames for one of them. Mostly another
    /// connection, or the link, has freed these.
    #[inline]
    fn wake_starved(&mut self) {
        if self.memory.pool.free_count <= self.core.queues.starved_above
            || self.core.queues.starved.is_empty()
        {
            return;
        }
        self.core.queues.starved_above = u32::MAX;
        while let Some(conn) = self.core.queues.starved.pop_front(self.conns) {
            self.conns[conn].listed = Listed::Ready;
            self.core.queues.ready.push_back(self.conns, conn);
        }
    }
}

// Timers: deadlines are found by a scan of the active peers, which are few,
// and not kept in a wheel. `next_timeout` is the earliest of all.

/// A side that closes waits less long for a peer that has answered none of this
/// many probes.
const CLOSE_PROBES: u8 = 16;

impl<S: Seal> Endpoint<'_, S> {
    /// When [`Endpoint::handle_timeouts`] must be called, ns. May be earlier
    /// than anything is due, never later.
    #[inline]
    #[must_use]
    pub const fn next_timeout(&self) -> Option<u64> {
        match self.core.next_deadline {
            u64::MAX => None,
            at => Some(at),
        }
    }

    /// Arms the timer for `at`.
    #[inline]
    const fn arm(&mut self, at: u64) {
        self.core.arm(at);
    }

    /// Arms the probe timer of a path (P6.15).
    #[inline]
    fn arm_probe(&mut self, now: u64, path: PathIndex) {
        let p = &self.paths[path];
        if p.sent.flying == 0 && !self.conns[p.conn].outbound.has_queue() {
            return;
        }
        let at = self.probe_at(path);
        self.arm(at.max(now));
    }

    /// Whether something waits to be sent, nothing is in flight, and this is
    /// the path to probe.
    #[inline]
    fn waits_on(&self, path: PathIndex) -> bool {
        let conn = self.paths[path].conn;
        let c = &self.conns[conn];
        c.outbound.has_queue() && c.paths.current() == path && self.flying(conn) == 0
    }

    /// When the probe timer fires, ns; `u64::MAX` if it does not run.
    #[inline]
    fn probe_at(&self, path: PathIndex) -> u64 {
        let p = &self.paths[path];
        let c = &self.conns[p.conn];
        let mut since = 0;
        if p.sent.flying == 0 {
            if !self.waits_on(path) {
                return u64::MAX;
            }
            // A packet that has just been queued has not waited since the last answer.
            since = c.silence.waiting_since().unwrap_or(0);
        }
        let config = &self.core.config;
        let answer_after = |backoff| p.sent.answer_after(config.probe_slack_ns, backoff);
        let waits_for_room = || self.waits_for_room(p.conn);
        let is_full = c.outbound.is_refused();
        (p.sent.probes).at(since, config, is_full, answer_after, waits_for_room)
    }

    /// The probe clock fired: sends a ping, if some are to leave before the
    /// probe, or else the probe.
    fn ask_or_probe(&mut self, now: u64, path: PathIndex) {
        let p = self.path_mut(path);
        let conn = p.conn;
        if p.sent.probes.ask(now) {
            self.make_ready(conn);
        } else {
            self.probe(now, path);
            let waits_for_room = self.waits_for_room(conn);
            self.path_mut(path).sent.probes.plan_asks(waits_for_room);
        }
    }

    /// Handles what is due. `awaits`: whether the caller still waits for
    /// something from a peer ([`Endpoint::await_peer`]) beside what is
    /// arriving; called when that peer has been silent for half of
    /// [`crate::Config::silence_ns`].
    ///
    /// Call [`Endpoint::resume`] afterwards if [`Endpoint::is_resumable`].
    pub fn handle_timeouts(&mut self, now: u64, awaits: impl Fn(PeerId) -> bool) {
        if now < self.core.next_deadline {
            return;
        }
        self.core.next_deadline = u64::MAX;
        if self.core.places.short_at <= now {
            self.make_room(now);
        }
        self.arm(self.core.places.short_at);
        if self.core.closes_owed > 0 {
            self.tell_closing(now);
        }
        for conn in (0..self.core.places.conns_used as usize).map(ConnIndex::new) {
            if self.conns[conn].listed == Listed::Free {
                continue;
            }
            self.settle_deferred_ack(conn);
            let mut at = self.deadline(now, conn);
            if at <= now {
                self.handle_conn_timeouts(now, conn, &awaits);
                if self.conns[conn].listed == Listed::Free {
                    continue;
                }
                at = self.deadline(now, conn);
            }
            self.arm(at);
        }
    }

    fn handle_conn_timeouts(
        &mut self,
        now: u64,
        conn: ConnIndex,
        awaits: &impl Fn(PeerId) -> bool,
    ) {
        let config = self.core.config;
        let c = &self.conns[conn];
        let peer = c.peer;
        let state = self.peers[peer].state;
        let connecting = state == PeerState::Connecting;
        let closing = self.core.closing || self.is_parting(conn);
        let unanswered = |path: PathIndex| self.paths[path].sent.probes.backoff() >= CLOSE_PROBES;
        let unanswered = closing && self.conns[conn].paths.iter().any(unanswered);
        let silence = &mut self.conns[conn].silence;
        match silence.judge(now, &config, connecting, closing, unanswered) {
            Judgement::Nothing => {}
            Judgement::StillConnecting => self.tell_peer(peer, PeerEvent::Waiting),
            Judgement::Dead(why) => {
                self.mark_dead(peer, why);
                return;
            }
        }
        let c = &self.conns[conn];
        if c.handshake.due <= now {
            self.connect_due(now, conn);
        }
        if state == PeerState::Up {
            for path in self.conns[conn].paths.iter() {
                if self.probe_at(path) <= now {
                    self.ask_or_probe(now, path);
                }
                if self.trial_at(path) <= now {
                    self.make_ready(conn);
                }
            }
        }
        let c = &mut self.conns[conn];
        if c.paced_until <= now {
            c.paced_until = u64::MAX;
            self.make_ready(conn);
        }
        if self.conns[conn].silence.keepalive_at() <= now {
            self.keepalive(now, conn, awaits);
            if self.conns[conn].peer != peer {
                return;
            }
        }
        let refusals = &mut self.conns[conn].inbound.refusals;
        if refusals.repeats_until <= now {
            refusals.repeats_until = 0;
        }
        if refusals.retry_at <= now {
            self.retry_refusals(now, conn);
        }
        if self.conns[conn].peer != peer {
            return;
        }
        if self.sizes_due(conn) <= now && state == PeerState::Up {
            self.make_ready(conn);
        }
        let c = &self.conns[conn];
        let unused_ns = now.saturating_sub(c.silence.used_at());
        if unused_ns >= config.idle_ns && !c.silence.is_awaited() && self.is_quiet(conn) {
            self.deactivate(conn);
        }
    }

    /// Arms the keepalive, as something is awaited of the peer: it is probed in
    /// time when it falls silent.
    fn arm_keepalive(&mut self, conn: ConnIndex) {
        let at = self.conns[conn].silence.keep_alive(&self.core.config);
        self.arm(at);
    }

    /// Notes that the caller waits for something from a peer, which is then
    /// probed in time when it falls silent, as long as `awaits` in
    /// [`Endpoint::handle_timeouts`] returns true. A peer that has offered a
    /// connection has [`crate::Config::connect_ns`]. One that was never heard
    /// of is not probed; one whose connection makes room for another's is not
    /// until it is heard of again.
    pub fn await_peer(&mut self, now: u64, peer: PeerId) {
        let conn = self
            .peers
            .get(peer.index())
            .map_or(ConnIndex::NONE, |p| p.conn);
        if conn.is_none() {
            return;
        }
        let silence = &mut self.conns[conn].silence;
        silence.begin_await(now, &self.core.config);
        self.arm_keepalive(conn);
    }

    /// Pings a peer that owes the rest of a message. One that does not answer
    /// is dead; one that is dead anyway owes nothing more (P6.9).
    fn keepalive(&mut self, now: u64, conn: ConnIndex, awaits: &impl Fn(PeerId) -> bool) {
        let peer = self.conns[conn].peer;
        let stopped = self.conns[conn].outbound.stopped.any();
        let incomplete = self.conns[conn].inbound.is_incomplete(&self.memory);
        if !(stopped || incomplete || awaits(peer)) {
            self.conns[conn].silence.await_nothing();
            return;
        }
        let state = self.peers[peer].state;
        // While the peer only offers a connection, no ping can leave.
        let connecting = matches!(state, PeerState::New | PeerState::Connecting);
        let silence = &mut self.conns[conn].silence;
        match (silence.keepalive(now, &self.core.config, connecting), state) {
            (Keepalive::Nothing, _) => {}
            (Keepalive::Ask, _) => {
                // By all paths: nothing is in flight that would show that one has failed.
                for path in self.conns[conn].paths.iter() {
                    let p = self.path_mut(path);
                    if p.way.leads() {
                        p.sent.probes.owe_ping();
                    }
                }
                self.make_ready(conn);
            }
            (Keepalive::GiveUp, PeerState::Dead(_)) => {
                self.drop_received(conn);
                self.conns[conn].silence.finished = true;
                self.note_unusual(conn);
                self.peers[peer].bits.set_cut_short();
            }
            (Keepalive::GiveUp, _) if connecting => self.mark_dead(peer, DeathReason::NoAnswer),
            (Keepalive::GiveUp, _) => self.mark_dead(peer, DeathReason::Silent),
        }
    }

    /// Earliest deadline of a connection.
    fn deadline(&self, now: u64, conn: ConnIndex) -> u64 {
        let config = &self.core.config;
        let c = &self.conns[conn];
        let state = self.peers[c.peer].state;
        let mut at = c.handshake.due.min(c.paced_until);
        at = at
            .min(c.inbound.refusals.retry_at)
            .min(c.silence.keepalive_at());
        if state == PeerState::Up {
            let path = conn.first_path();
            at = at.min(self.probe_at(path)).min(self.trial_at(path));
            if self.conns[conn].paths.has_more() {
                for path in self.conns[conn].paths.iter().skip(1) {
                    at = at.min(self.probe_at(path)).min(self.trial_at(path));
                }
            }
            if c.listed == Listed::None {
                at = at.min(self.sizes_due(conn));
            }
        }
        if !matches!(state, PeerState::Dead(_)) {
            let connecting = state == PeerState::Connecting;
            at = at.min(c.silence.judge_at(config, connecting));
        }
        if c.inbound.refusals.repeats_until != 0 {
            at = at.min(c.inbound.refusals.repeats_until);
        }
        // The connection may fall quiet until then without another timer's help.
        let idle_at = c.silence.used_at().saturating_add(config.idle_ns);
        if idle_at > now || (!c.silence.is_awaited() && self.is_quiet(conn)) {
            at = at.min(idle_at);
        }
        at
    }
}
