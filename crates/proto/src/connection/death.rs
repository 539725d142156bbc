//! The end of peers and of the endpoint itself.

use portolan_seal::Seal;
use portolan_wire::{Chunk, Life};

use crate::base::{ConnIndex, DeathReason, FrameIndex, NetAddress, PeerEvent, PeerId, WINDOW_SPAN};
use crate::congestion::Mode;
use crate::endpoint::Endpoint;
use crate::inbound::Stops;
use crate::memory::Use;
use crate::tables::{Listed, PeerState};

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
        for conn in &mut self.conns[..self.core.conns_used as usize] {
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
    pub(crate) fn mark_dead(&mut self, peer: PeerId, why: DeathReason) {
        if matches!(self.peers[peer].state, PeerState::Dead(_)) {
            return;
        }
        self.detach(peer);
        self.peers[peer].state = PeerState::Dead(why);
        self.tell_peer(peer, PeerEvent::Dead(why));
    }

    /// Detaches a peer from its connection: drops what is queued, in flight or
    /// held, and parks the rest.
    pub(crate) fn detach(&mut self, peer: PeerId) {
        let conn = self.peers[peer].conn;
        if conn.is_none() {
            return;
        }
        self.drop_sending(conn);
        self.drop_received(conn);
        match self.conns[conn].listed {
            Listed::Ready => _ = self.core.ready.remove(self.conns, conn),
            Listed::Deferred => _ = self.core.deferred.remove(self.conns, conn),
            Listed::Starved => _ = self.core.starved.remove(self.conns, conn),
            Listed::None | Listed::Free => {}
        }
        self.park(conn);
        self.release_conn(conn);
    }

    /// Drops everything queued for or in flight to a peer.
    pub(crate) fn drop_sending(&mut self, conn: ConnIndex) {
        for path in self.conns[conn].paths.iter() {
            for slot in 0..WINDOW_SPAN {
                if let Some(frame) = self.path_mut(path).sent.take_slot(slot) {
                    self.memory.drop_frame(frame);
                }
            }
            self.path_mut(path).sent.drop_all();
        }
        for frame in (0..self.memory.meta.len()).map(FrameIndex::new) {
            let m = &self.memory.meta[frame];
            if m.usage == Use::Parting && m.conn == conn {
                self.memory.drop_frame(frame);
            }
        }
        let c = &mut self.conns[conn];
        c.silence.wait_no_more();
        c.deferred_ack = None;
        c.paths.networks_owed = false;
        c.inbound.refusals.drop_all();
        c.inbound.stops = Stops::default();
        c.handshake.stop();
        c.outbound.drop_all(&mut self.memory);
    }

    /// Drops what was received from a peer and not delivered.
    pub(crate) fn drop_received(&mut self, conn: ConnIndex) {
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
    pub(crate) fn owe_close(&mut self, peer: PeerId) {
        let was = self.peers[peer].bits.set_close_owed(true);
        self.core.closes_owed += u32::from(!was);
    }

    /// Notes that no close need be sent to a peer any more.
    pub(crate) fn close_told(&mut self, peer: PeerId) {
        let was = self.peers[peer].bits.set_close_owed(false);
        self.core.closes_owed -= u32::from(was);
    }

    /// Queues the closes that are owed. More peers may be connected than can be
    /// active: the rest have their turn when others are done (P10.1).
    #[cold]
    pub(crate) fn tell_closing(&mut self, now: u64) {
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
    pub(crate) fn queue_close(&mut self, now: u64, conn: ConnIndex) {
        let c = &self.conns[conn];
        let peer = c.peer;
        // A removed peer first gets what was sent to it before.
        let waits = self.is_parting(conn) && !self.core.closing && !c.outbound.is_settled();
        if waits || !self.peers[peer].bits.close_owed() {
            return;
        }
        let alive = !self.core.closing;
        if let Some(frame) = self.queue_control(now, conn, &Chunk::Close { alive }) {
            self.memory.meta[frame].close = true;
            self.close_told(peer);
        }
    }

    /// The peer has acknowledged our close. Its incomplete messages here would
    /// wait for their rest for ever: the peer answers probes, and has dropped
    /// the rest (P10.3).
    pub(crate) fn close_acked(&mut self, conn: ConnIndex) {
        self.drop_received(conn);
        let c = &mut self.conns[conn];
        c.silence.finished = true;
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
    pub(crate) fn go_on_finished(&mut self, now: u64, conn: ConnIndex) {
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
