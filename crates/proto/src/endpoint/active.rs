//! Active state of peers: making and parking it, want of it, and the end of peers and of the
//! endpoint.

use portolan_seal::Seal;
use portolan_wire::{Chunk, Life};

use crate::base::{ConnIndex, DeathReason, FrameIndex, NetAddress, PeerEvent, PeerId, WINDOW_SPAN};
use crate::congestion::{Congestion, Mode};
use crate::endpoint::Endpoint;
use crate::handshake::Handshake;
use crate::inbound::Inbound;
use crate::memory::Use;
use crate::outbound::Outbound;
use crate::path::Path;
use crate::paths::Paths;
use crate::received::Owed;
use crate::silence::Silence;
use crate::tables::{Conn, Listed, NO_PLACE, Parked, Peer, PeerState};

impl<S: Seal> Endpoint<'_, S> {
    /// Returns the active state of a peer, made if it has none; `None` if all
    /// are in use by peers that are not idle.
    #[inline]
    pub(super) fn activate(&mut self, now: u64, peer: PeerId) -> Option<ConnIndex> {
        match self.peers[peer].conn {
            ConnIndex::NONE => self.make_active(now, peer),
            conn => Some(conn),
        }
    }

    #[cold]
    fn make_active(&mut self, now: u64, peer: PeerId) -> Option<ConnIndex> {
        if !self.has_connection() {
            return None;
        }
        let conn = self.core.places.free_conns.pop_front(self.conns)?;
        self.core.places.conns_used = self.core.places.conns_used.max(conn.index() as u32 + 1);
        let kept = self.restore(peer);
        let p = &mut self.peers[peer];
        p.conn = conn;
        let window = WINDOW_SPAN as u32;
        let up = p.state == PeerState::Up || matches!(p.state, PeerState::Dead(_));
        let mut silence = Silence::new(now);
        silence.part_by = now.saturating_add(self.core.config.silence_ns);
        // A peer parked while we close has acknowledged our close.
        silence.finished = p.bits.cut_short()
            || p.bits.parting()
            || up && self.core.closing && !p.bits.close_owed();
        self.conns[conn] = Conn {
            peer,
            listed: Listed::None,
            silence,
            paths: Paths::new(conn.first_path()),
            handshake: Handshake::new(up),
            kept: kept.pair,
            outbound: Outbound::new(kept.outbound),
            inbound: Inbound::new(kept.inbound, &kept.outbound.next),
            ..Conn::default()
        };
        let (marks, most) = (self.core.config.first_message, self.core.config.packet_max);
        let congestion = Congestion::new(p.bits.mode(), most, window);
        self.paths[conn.first_path()] = Path::resume(conn, &kept.path, marks, congestion);
        if up {
            let own = self.own_packet_max(self.network_of(peer, 0));
            let mtu = &mut self.path_mut(conn.first_path()).sent.mtu;
            // The size that the peer offered is not kept.
            mtu.resume(kept.path.packet_max, own, most);
            mtu.search_soon(now);
            self.install_keys(conn);
            self.resume_paths(conn);
            self.arm_keepalive(conn);
        }
        self.arm(now.saturating_add(self.core.config.idle_ns));
        self.note_unusual(conn);
        Some(conn)
    }

    /// Whether a connection is free; parks the one that is idle longest if none is.
    pub(super) fn has_connection(&mut self) -> bool {
        if !self.core.places.free_conns.is_empty() {
            return true;
        }
        let used = (0..self.core.places.conns_used as usize).map(ConnIndex::new);
        let quiet = used.filter(|&conn| self.is_quiet(conn));
        let Some(conn) = quiet.min_by_key(|&conn| self.conns[conn].silence.used_at()) else {
            self.lack_connection();
            return false;
        };
        self.deactivate(conn);
        true
    }

    /// Whether nothing is under way in either direction.
    pub(super) fn is_quiet(&self, conn: ConnIndex) -> bool {
        let c = &self.conns[conn];
        c.listed == Listed::None
            && !c.busy
            && c.outbound.is_settled()
            && c.inbound.is_quiet()
            && !c.outbound.stopped.any()
            && self.owed(conn) == Owed::Nothing
            && !c.handshake.is_under_way()
            && !matches!(
                self.peers[c.peer].state,
                PeerState::Connecting | PeerState::Come
            )
    }

    /// Parks the state of a quiet connection, and frees it.
    pub(super) fn deactivate(&mut self, conn: ConnIndex) {
        self.park(conn);
        self.release_conn(conn);
    }

    /// Frees a connection whose peer has been detached from it.
    pub(super) fn release_conn(&mut self, conn: ConnIndex) {
        self.remove_keys(conn);
        for path in self.conns[conn].paths.iter().skip(1) {
            self.release_path(path);
        }
        self.conns[conn] = Conn::default();
        self.paths[conn.first_path()] = Path::default();
        // Connections that were added later are used when the first are not enough.
        if conn.index() < self.core.config.active as usize {
            self.core.places.free_conns.push_front(self.conns, conn);
        } else {
            self.core.places.free_conns.push_back(self.conns, conn);
        }
        let used = &self.conns[..self.core.places.conns_used as usize];
        let last = used.iter().rposition(|c| c.listed != Listed::Free);
        self.core.places.conns_used = last.map_or(0, |last| last as u32 + 1);
    }

    /// Returns a peer's parked state, to make it active; assigns a place for it
    /// if there was none.
    pub(super) fn restore(&mut self, peer: PeerId) -> Parked {
        let p = &mut self.peers[peer];
        if p.place != NO_PLACE {
            return Parked::from_words(&self.parked[p.place as usize]);
        }
        p.place = self.core.places.parked_used;
        self.core.places.parked_used += 1;
        Parked::new(&self.core.config)
    }

    /// Parks the state of a connection's peer, and detaches the peer.
    pub(super) fn park(&mut self, conn: ConnIndex) {
        self.park_paths(conn);
        let c = &self.conns[conn];
        let p = &mut self.peers[c.peer];
        p.conn = ConnIndex::NONE;
        let parked = Parked {
            pair: c.kept,
            outbound: c.outbound.kept,
            inbound: c.inbound.kept,
            path: self.paths[conn.first_path()].kept(),
        };
        self.parked[p.place as usize] = parked.to_words();
    }

    /// Nonce that a peer offered last; 0: none yet.
    pub(super) fn nonce_theirs(&self, peer: PeerId) -> u64 {
        let p = &self.peers[peer];
        match self.conns.get(p.conn.index()) {
            Some(c) => c.kept.nonce_theirs,
            None => {
                let words = self.parked.get(p.place as usize);
                words.map_or(0, |words| Parked::from_words(words).pair.nonce_theirs)
            }
        }
    }
}

// Shortage: adds connections; and, where peers come and go, removes silent strangers that hold what
// others need. A job has no strangers.

/// Connections that are added at once.
const CONNS_AT_ONCE: usize = 64;

/// A peer may be removed if this many probes in a row had no answer, and nothing came for this
/// long, ns, or for this part of the silence if that is less: longer than other work mostly keeps a
/// host from answering.
const UNANSWERED: u8 = 8;
const UNANSWERED_NS: u64 = 500_000_000;
const UNANSWERED_PARTS: u64 = 8;
/// Searches for such a peer in that time.
const LOOKS: u64 = 8;

/// Divisor: enough is free if more than this fraction of all frames, and of all long messages, is.
const ENOUGH_PARTS: u32 = 8;
/// Divisor: so much must be free before peers that may never answer get some.
const PLENTY_PARTS: u32 = 2;

impl<S: Seal> Endpoint<'_, S> {
    /// Number of entries that [`crate::Tables::conns`] and [`crate::Tables::paths`] should have,
    /// each, if a peer has found no connection: the caller may make them longer, with default
    /// entries, and the seal too ([`crate::key_slots`]), before [`Endpoint::handle_timeouts`].
    #[inline]
    #[must_use]
    pub fn wanted_connections(&self) -> Option<usize> {
        if !self.core.places.lacks_conn {
            return None;
        }
        let more = self.core.config.connections() - self.core.places.conn_count;
        (more > 0).then(|| self.paths.len() + CONNS_AT_ONCE.min(more as usize))
    }

    /// Takes connections into use that the caller has added.
    fn use_new_connections(&mut self) {
        // New ones lie behind the further paths.
        let known = self.core.places.conn_count + self.core.config.more_paths;
        let known = known as usize;
        for conn in (known..self.conns.len()).map(ConnIndex::new) {
            self.core.places.free_conns.push_back(self.conns, conn);
            self.core.places.conn_count += 1;
        }
    }

    /// A peer has found no connection: asks for more, or for the removal of a silent one.
    ///
    /// As long as each peer can have one, none waits for what others hold. If they did, peers whose
    /// connections are all waiting for each other would wait for ever.
    #[cold]
    pub(super) fn lack_connection(&mut self) {
        self.core.places.lacks_conn = true;
        if self.wanted_connections().is_some() {
            // No need to wait for the next search.
            self.core.places.short_at = 0;
            self.arm(0);
        } else {
            self.fall_short();
        }
    }

    /// No connection, frame or long message was found: arranges for the removal of strangers that
    /// do not answer.
    #[cold]
    pub(super) fn fall_short(&mut self) {
        if self.core.config.introduces && self.core.places.short_at == u64::MAX {
            self.core.places.short_at = 0;
            self.arm(0);
        }
    }

    /// As [`Self::fall_short`], if the pool has refused something.
    #[inline]
    pub(super) fn note_lack(&mut self) {
        if core::mem::take(&mut self.memory.pool.lacked) {
            self.fall_short();
        }
    }

    /// Whether nothing more is queued for peers that are not up, as they may never answer.
    pub(super) fn saves_for_others(&self) -> bool {
        self.core.config.introduces && !self.memory.pool.has_free(PLENTY_PARTS)
    }

    /// Uses new connections, and removes silent strangers until there is room, or tries again soon.
    #[cold]
    pub(super) fn make_room(&mut self, now: u64) {
        self.use_new_connections();
        self.core.places.lacks_conn &= self.core.places.free_conns.is_empty();
        // Strangers, and removed peers.
        let may_go = |p: &Peer| p.bits.stranger() || p.bits.parting();
        self.core.places.short_at = u64::MAX;
        let may_remove = self.core.config.introduces;
        while may_remove
            && (self.core.places.lacks_conn || !self.memory.pool.has_free(ENOUGH_PARTS))
        {
            let Some(peer) = self.most_silent(now, may_go) else {
                let soon = self.unanswered_ns().div_ceil(LOOKS);
                self.core.places.short_at = now.saturating_add(soon);
                return;
            };
            self.mark_dead(peer, DeathReason::Silent);
            self.core.places.lacks_conn = false;
        }
    }

    /// Longest silence of a peer while others need what it holds, ns.
    fn unanswered_ns(&self) -> u64 {
        let part = self.core.config.silence_ns / UNANSWERED_PARTS;
        UNANSWERED_NS.min(part).max(1)
    }

    /// Among the peers that `may_go`, the one that has been silent for longest, if that is long
    /// enough.
    pub(super) fn most_silent(&self, now: u64, may_go: impl Fn(&Peer) -> bool) -> Option<PeerId> {
        let silent_ns_min = self.unanswered_ns();
        let used = (0..self.core.places.conns_used as usize).map(ConnIndex::new);
        let silent = used.filter_map(|conn| {
            let c = &self.conns[conn];
            if c.listed == Listed::Free || c.silence.waiting_since().is_none() {
                return None;
            }
            let p = &self.peers[c.peer];
            let for_ns = c.silence.waits_for_ns(now);
            let asked = || {
                (self.conns[conn].paths.iter())
                    .any(|path| self.paths[path].sent.probes.backoff() >= UNANSWERED)
            };
            let may_go = p.state == PeerState::Up && may_go(p);
            (may_go && for_ns >= silent_ns_min && asked()).then_some((for_ns, c.peer))
        });
        silent.max().map(|(_, peer)| peer)
    }
}

// The end of peers and of the endpoint itself.

/// Retries, in one silence, of closes that could not be queued.
const CLOSE_RETRIES: u64 = 64;
/// Longest wait between two such retries, ns.
const CLOSE_RETRY_NS_MAX: u64 = 50_000_000;
/// Longest silence of a peer while the caller [was starved](Endpoint::was_starved), as a multiple
/// of [`crate::Config::silence_ns`].
const STARVED_SILENCES: u64 = 10;
/// Divisor of `silence_ns`: the caller counts as starved for that long after it
/// said so.
const STARVED_PARTS: u64 = 16;

impl<S: Seal> Endpoint<'_, S> {
    /// Reports, from outside, that a peer's process has died.
    pub fn peer_died(&mut self, peer: PeerId) {
        if peer.0 < self.core.peer_count {
            self.mark_dead(peer, DeathReason::Told);
        }
    }

    /// Reports, from outside, that a peer is there again, in a new life and
    /// perhaps at another address. Nothing of the life before goes on; if it
    /// was not dead yet, it is now ([`DeathReason::Restarted`]).
    pub fn peer_returned(&mut self, peer: PeerId, life: Life, to: NetAddress, mode: Mode) {
        if peer.0 >= self.core.peer_count || self.peers[peer].life == life {
            return;
        }
        self.mark_dead(peer, DeathReason::Restarted);
        // A peer that has closed may still have active state.
        self.detach(peer);
        self.locate(peer, to, mode);
        self.begin_life(peer, life);
    }

    /// Reports, from outside, that a silent peer is there: its process is
    /// stopped. Its silence counts from `now` on.
    pub fn reset_silence_timer(&mut self, now: u64, peer: PeerId) {
        let conn = match self.peers.get(peer.index()) {
            Some(peer) if peer.conn.is_some() => peer.conn,
            _ => return,
        };
        self.conns[conn].silence.heard(now);
    }

    /// The caller is back at `now`, and was here last at `last`. Time beyond
    /// [`Endpoint::next_timeout`] in which it did not run, and so received
    /// nothing, does not count as silence of peers.
    #[cold]
    pub fn came_late(&mut self, now: u64, last: u64) {
        let late = now.saturating_sub(self.core.next_deadline.max(last));
        self.defer_silence(now, late, u64::MAX);
    }

    /// The caller waited for a core for most of the last `ns` before `now`.
    /// That time does not count as silence of peers, up to [`STARVED_SILENCES`]
    /// times the usual. For a while neither we nor our peers take round trips
    /// for the network's.
    #[cold]
    pub fn was_starved(&mut self, now: u64, ns: u64) {
        let silence = self.core.config.silence_ns;
        self.core.starved_until = now.saturating_add(silence / STARVED_PARTS);
        let limit = silence.saturating_mul(STARVED_SILENCES);
        self.defer_silence(now, ns, limit);
    }

    /// Moves the start of all silences `ns` later, to `now` at most, unless
    /// they have lasted for `limit`.
    fn defer_silence(&mut self, now: u64, ns: u64, limit: u64) {
        for conn in &mut self.conns[..self.core.places.conns_used as usize] {
            conn.silence.defer(now, ns, limit);
        }
    }

    /// When a packet of a peer was last verified, or its silence last
    /// [reset](Self::reset_silence_timer); `None` if it has no active state.
    #[must_use]
    pub fn heard_at(&self, peer: PeerId) -> Option<u64> {
        let peer = self.peers.get(peer.index())?;
        Some(self.conns.get(peer.conn.index())?.silence.heard_at)
    }

    /// Declares a peer dead, and drops its active state.
    pub(super) fn mark_dead(&mut self, peer: PeerId, why: DeathReason) {
        if matches!(self.peers[peer].state, PeerState::Dead(_)) {
            return;
        }
        self.detach(peer);
        self.peers[peer].state = PeerState::Dead(why);
        self.tell_peer(peer, PeerEvent::Dead(why));
    }

    /// Detaches a peer from its connection: drops what is queued, in flight or
    /// held, and parks the rest.
    pub(super) fn detach(&mut self, peer: PeerId) {
        let conn = self.peers[peer].conn;
        if conn.is_none() {
            return;
        }
        self.drop_sending(conn);
        self.drop_received(conn);
        match self.conns[conn].listed {
            Listed::Ready => _ = self.core.queues.ready.remove(self.conns, conn),
            Listed::Deferred => _ = self.core.queues.deferred.remove(self.conns, conn),
            Listed::Starved => _ = self.core.queues.starved.remove(self.conns, conn),
            Listed::None | Listed::Free => {}
        }
        self.park(conn);
        self.release_conn(conn);
    }

    /// Drops everything queued for or in flight to a peer.
    pub(super) fn drop_sending(&mut self, conn: ConnIndex) {
        for path in self.conns[conn].paths.iter() {
            for slot in 0..WINDOW_SPAN {
                if let Some(frame) = self.path_mut(path).sent.take_slot(slot) {
                    self.memory.drop_frame(frame);
                }
            }
            self.path_mut(path).sent.drop_all();
        }
        for frame in (0..self.memory.cargo.len()).map(FrameIndex::new) {
            let m = &self.memory.cargo[frame];
            if m.usage == Use::Parting && m.conn == conn {
                self.memory.drop_frame(frame);
            }
        }
        let c = &mut self.conns[conn];
        c.silence.wait_no_more();
        c.deferred_ack = None;
        c.paths.networks_owed = false;
        c.inbound.drop_news();
        c.handshake.stop();
        c.outbound.drop_all(&mut self.memory);
    }

    /// Drops what was received from a peer and not delivered.
    pub(super) fn drop_received(&mut self, conn: ConnIndex) {
        self.conns[conn].inbound.drop_all(&mut self.memory);
    }

    /// Closes the endpoint: sends a close to every connected peer. Nothing can
    /// be sent afterwards. Let [`Endpoint::idle`] become true before, so that
    /// everything is delivered, and again after, or give up after a while (P10.1).
    pub fn close(&mut self, now: u64) {
        self.core.closing = true;
        for peer in (0..self.core.peer_count).map(PeerId) {
            if self.peers[peer].state == PeerState::Up {
                self.owe_close(peer);
            }
        }
        self.tell_closing(now);
    }

    /// Notes that a close must be sent to a peer.
    pub(super) fn owe_close(&mut self, peer: PeerId) {
        let was = self.peers[peer].bits.set_close_owed(true);
        self.core.closes_owed += u32::from(!was);
    }

    /// Notes that no close need be sent to a peer any more.
    pub(super) fn close_told(&mut self, peer: PeerId) {
        let was = self.peers[peer].bits.set_close_owed(false);
        self.core.closes_owed -= u32::from(was);
    }

    /// Queues the closes that are owed. More peers may be connected than can be
    /// active: the rest have their turn when others are done (P10.1).
    #[cold]
    pub(super) fn tell_closing(&mut self, now: u64) {
        for peer in (0..self.core.peer_count).map(PeerId) {
            if !self.peers[peer].bits.close_owed() {
                continue;
            }
            if self.peers[peer].state != PeerState::Up {
                self.close_told(peer);
            } else if let Some(conn) = self.activate(now, peer) {
                if self.is_parting(conn) && !self.core.closing {
                    // Acknowledgements lead to the close of a removed peer.
                    self.part(now, conn);
                    continue;
                }
                let c = &mut self.conns[conn];
                c.silence.wait(now);
                self.queue_close(now, conn);
                self.make_ready(conn);
                let way = self.conns[conn].paths.current();
                self.arm_probe(now, way);
            }
        }
        if self.core.closes_owed > 0 {
            let wait = (self.core.config.silence_ns / CLOSE_RETRIES).clamp(1, CLOSE_RETRY_NS_MAX);
            self.arm(now.saturating_add(wait));
        }
    }

    /// Queues the close that is owed to a peer, once there is a frame for it.
    pub(super) fn queue_close(&mut self, now: u64, conn: ConnIndex) {
        let c = &self.conns[conn];
        let peer = c.peer;
        // A removed peer first gets what was sent to it before.
        let waits = self.is_parting(conn) && !self.core.closing && !c.outbound.is_settled();
        if waits || !self.peers[peer].bits.close_owed() {
            return;
        }
        let alive = !self.core.closing;
        if let Some(frame) = self.queue_control(now, conn, &Chunk::Close { alive }) {
            self.memory.cargo[frame].close = true;
            self.close_told(peer);
        }
    }

    /// The peer has acknowledged our close. Its incomplete messages here would
    /// wait for their rest for ever: the peer answers probes, and has dropped
    /// the rest (P10.3).
    pub(super) fn close_acked(&mut self, conn: ConnIndex) {
        self.drop_received(conn);
        let c = &mut self.conns[conn];
        c.silence.finished = true;
        c.unusual |= c.silence.unusual();
        c.silence.await_nothing();
        let peer = c.peer;
        if self.is_parting(conn) && !matches!(self.peers[peer].state, PeerState::Dead(_)) {
            self.drop_sending(conn);
            // Freed by the caller, after the packet that brought this.
            self.peers[peer].state = PeerState::Dead(DeathReason::Told);
            self.tell_peer(peer, PeerEvent::Dead(DeathReason::Told));
        }
    }

    /// Goes on after an acknowledgement, where nothing more is taken from the peer.
    #[cold]
    pub(super) fn go_on_finished(&mut self, now: u64, conn: ConnIndex) {
        let c = &self.conns[conn];
        let gone = matches!(self.peers[c.peer].state, PeerState::Dead(_));
        if self.is_parting(conn) && !gone {
            self.part(now, conn);
        } else if !c.outbound.is_settled() {
            // The peer knows that we close. It takes and grants nothing more,
            // so whatever needs credit would wait for ever.
            self.drop_sending(conn);
            self.go_on_after_refusals(conn);
        }
    }
}
