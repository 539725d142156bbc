//! Timers: deadlines are found by a scan of the active peers, which are few,
//! and not kept in a wheel. [`Endpoint::next_timeout`] is the earliest of all.

use portolan_seal::Seal;

use crate::base::{ConnIndex, DeathReason, PathIndex, PeerEvent, PeerId};
use crate::endpoint::Endpoint;
use crate::silence::{Judgement, Keepalive};
use crate::tables::{Listed, PeerState};

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
    pub(crate) const fn arm(&mut self, at: u64) {
        if at < self.core.next_deadline {
            self.core.next_deadline = at;
        }
    }

    /// Arms the probe timer of a path (P6.15).
    #[inline]
    pub(crate) fn arm_probe(&mut self, now: u64, path: PathIndex) {
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
        if self.core.short_at <= now {
            self.make_room(now);
        }
        self.arm(self.core.short_at);
        if self.core.closes_owed > 0 {
            self.tell_closing(now);
        }
        for conn in (0..self.core.conns_used as usize).map(ConnIndex::new) {
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
    pub(crate) fn arm_keepalive(&mut self, conn: ConnIndex) {
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
