//! Timers: deadlines are found by a scan of the active peers, which are few,
//! and not kept in a wheel. [`Endpoint::next_timeout`] is the earliest of all.

use core::ops::RangeInclusive;

use portolan_seal::Seal;

use crate::base::{ConnIndex, DeathReason, PathIndex, PeerEvent, PeerId};
use crate::endpoint::Endpoint;
use crate::tables::{Listed, PeerState};

/// Probes before backoff doubles the wait for each: as many as the longest
/// burst of losses that a link is to get over at its own pace.
const PROMPT: u8 = 64;
/// Minimum number of probes, in one silence, of a peer that is waited for. That
/// many must be lost in a row before a live peer counts as dead, and one that
/// was cut off is heard that soon after it is back.
const PROBES: u64 = 100;

/// `PROMPT` and `PROBES` for a peer that has no room: with each probe, all that
/// it refused leaves.
const PROMPT_ROUNDS: u8 = 8;
const ROUNDS: u64 = 16;

/// Pings between two probes, if the number of unanswered probes is in this
/// range and packets were lost within this time: a burst of losses may still go
/// on, and each ping takes one loss out of it.
const ASKS: u8 = 7;
const ASKED: RangeInclusive<u8> = 2..=16;
const MOMENT_NS: u64 = 1_000_000_000;

/// A side that closes takes a peer for closed that has answered none of this
/// many probes in this part of the silence.
const CLOSE_PROBES: u8 = 16;
const CLOSE_PARTS: u64 = 8;

/// Keepalives, in one silence, to a peer that owes the rest of a message.
const KEEPALIVES: u64 = 16;

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

    /// Arms the probe timer of a path.
    #[inline]
    pub(crate) fn arm_probe(&mut self, now: u64, path: PathIndex) {
        let p = &self.paths[path];
        if p.flying == 0 && !self.conns[p.conn].has_queue() {
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
        c.has_queue() && c.way == path && self.flying(conn) == 0
    }

    /// When the probe timer fires, ns; `u64::MAX` if it does not run.
    #[inline]
    fn probe_at(&self, path: PathIndex) -> u64 {
        let p = &self.paths[path];
        let mut from = p.probe_from;
        if p.flying == 0 {
            if !self.waits_on(path) {
                return u64::MAX;
            }
            // A packet that has just been queued has not waited since the last answer.
            match self.conns[p.conn].waiting_since {
                u64::MAX => {}
                since => from = from.max(since),
            }
        }
        let slack = self.core.config.probe_slack_ns;
        let silence = self.core.config.silence_ns;
        // The usual case.
        if p.backoff == 0 && self.conns[p.conn].peer_full == [false; 2] {
            let wait = p.answer_after(slack, 0).min((silence / PROBES).max(1));
            return from.saturating_add(wait);
        }
        // Where packets are lost in bursts, several probes in a row often are.
        let (prompt, probes) = if self.waits_for_room(p.conn) {
            (PROMPT_ROUNDS, ROUNDS)
        } else {
            (PROMPT, PROBES)
        };
        let doublings = p.backoff.saturating_sub(prompt);
        let wait = p.answer_after(slack, doublings);
        let often = (silence / probes).max(1);
        let parts = u64::from(1 + self.asks_between(path));
        from.saturating_add(wait.min(often) / parts)
    }

    /// Pings between the last probe of a path and its next.
    #[inline]
    fn asks_between(&self, path: PathIndex) -> u8 {
        let p = &self.paths[path];
        let lately = || p.lost_at != 0 && p.probe_from.saturating_sub(p.lost_at) < MOMENT_NS;
        if ASKED.contains(&p.backoff) && lately() && !self.waits_for_room(p.conn) {
            ASKS
        } else {
            0
        }
    }

    /// The probe timer fired: sends a ping, if some are to leave before the
    /// probe, or else the probe.
    fn ask_or_probe(&mut self, now: u64, path: PathIndex) {
        let p = self.path_mut(path);
        if p.asks == 0 {
            self.probe(now, path);
            self.path_mut(path).asks = self.asks_between(path);
        } else {
            p.asks -= 1;
            p.probe_from = now;
            p.ping_owed = true;
            let conn = p.conn;
            self.make_ready(conn);
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
        let silent_for = match c.waiting_since {
            u64::MAX => 0,
            // ICMP errors show that the peer is gone, although we may have had no core.
            _ if self.is_closed(conn) => now.saturating_sub(c.unheard_since()),
            _ => now.saturating_sub(c.silent_since()),
        };
        if state == PeerState::Connecting {
            if silent_for >= config.connect_ns {
                self.mark_dead(peer, DeathReason::NoAnswer);
                return;
            }
            if silent_for >= config.silence_ns && !c.waiting_told {
                self.conns[conn].waiting_told = true;
                self.tell_peer(peer, PeerEvent::Waiting);
            }
        } else if silent_for >= self.patience(conn) {
            // A peer given up sooner because we close may live: it counts as closed.
            let why = if silent_for < config.silence_ns && self.is_closing(conn) {
                DeathReason::Closed
            } else {
                DeathReason::Silent
            };
            self.mark_dead(peer, why);
            return;
        }
        let c = &self.conns[conn];
        if c.connect_next <= now {
            self.connect_due(now, conn);
        }
        if state == PeerState::Up {
            for path in self.paths_of(conn) {
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
        if self.conns[conn].keepalive_at <= now {
            self.keepalive(now, conn, awaits);
            if self.conns[conn].peer != peer {
                return;
            }
        }
        let refusals = &mut self.conns[conn].refusals;
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
        let awaited = c.keepalive_at != u64::MAX;
        if now.saturating_sub(c.used_at) >= config.idle_ns && !awaited && self.is_quiet(conn) {
            self.deactivate(conn);
        }
    }

    /// Longest silence of a peer that is waited for, ns. Shorter if its port is
    /// closed, or if we close and many probes had no answer, as it is then gone:
    /// of two that close at once, the one whose close is acknowledged first does
    /// not wait to see its own acknowledgement arrive.
    fn patience(&self, conn: ConnIndex) -> u64 {
        let silence = self.core.config.silence_ns;
        let unanswered = |path: PathIndex| self.paths[path].backoff >= CLOSE_PROBES;
        let gone =
            self.is_closed(conn) || self.is_closing(conn) && self.paths_of(conn).any(unanswered);
        if gone { silence / CLOSE_PARTS } else { silence }
    }

    fn is_closing(&self, conn: ConnIndex) -> bool {
        self.core.closing || self.is_parting(conn)
    }

    /// Whether ICMP errors have long said that the peer's port is closed.
    fn is_closed(&self, conn: ConnIndex) -> bool {
        let c = &self.conns[conn];
        (c.closed).is_lasting(c.unheard_since(), self.core.config.silence_ns)
    }

    /// Whether part of a message is here, and the rest is to come from the peer.
    fn is_incomplete(&self, conn: ConnIndex) -> bool {
        let c = &self.conns[conn];
        let next = &c.kept.next_in;
        c.rx.iter()
            .flatten()
            .zip(next.iter().flatten())
            .any(|(rx, next)| {
                rx.active
                    || self
                        .meta
                        .get(rx.held.head.index())
                        .is_some_and(|first| first.message != *next || first.part != 0)
            })
    }

    /// Arms the keepalive, as something is awaited of the peer: it is probed in
    /// time when it falls silent.
    pub(crate) fn arm_keepalive(&mut self, conn: ConnIndex) {
        let half = self.core.config.silence_ns / 2;
        let c = &mut self.conns[conn];
        if c.keepalive_at == u64::MAX {
            c.keepalive_at = c.heard_at.saturating_add(half);
            let at = c.keepalive_at;
            self.arm(at);
        }
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
        let c = &mut self.conns[conn];
        if c.keepalive_at == u64::MAX {
            // Nothing was awaited until now: the peer may have had nothing to send.
            let asked_at = now.saturating_sub(self.core.config.silence_ns / 2);
            c.heard_at = c.heard_at.max(asked_at);
        }
        self.arm_keepalive(conn);
    }

    /// Pings a peer that owes the rest of a message. One that does not answer
    /// is dead; one that is dead anyway owes nothing more.
    fn keepalive(&mut self, now: u64, conn: ConnIndex, awaits: &impl Fn(PeerId) -> bool) {
        let silence = self.core.config.silence_ns;
        let peer = self.conns[conn].peer;
        let stopped = self.conns[conn].stops.are_stopped();
        let incomplete = stopped || self.is_incomplete(conn) || awaits(peer);
        let closed = self.is_closed(conn);
        let state = self.peers[peer].state;
        let connecting = matches!(state, PeerState::New | PeerState::Connecting);
        let c = &mut self.conns[conn];
        let quiet = now.saturating_sub(c.heard_at);
        if !incomplete {
            c.keepalive_at = u64::MAX;
        } else if connecting {
            // The peer offers a connection, and no ping can leave before there is one.
            let patience = self.core.config.connect_ns;
            c.keepalive_at = c.heard_at.saturating_add(patience);
            if quiet >= patience {
                c.keepalive_at = u64::MAX;
                self.mark_dead(peer, DeathReason::NoAnswer);
            }
        } else if quiet < silence / 2 {
            c.keepalive_at = c.heard_at.saturating_add(silence / 2);
        } else if quiet < silence && !closed {
            c.keepalive_at = now.saturating_add((silence / KEEPALIVES).max(1));
            // By all paths: nothing is in flight that would show that one has failed.
            for path in self.paths_of(conn) {
                let p = self.path_mut(path);
                p.ping_owed |= p.leads;
            }
            self.make_ready(conn);
        } else {
            c.keepalive_at = u64::MAX;
            let peer = c.peer;
            match self.peers[peer].state {
                PeerState::Dead(_) => {
                    self.drop_received(conn);
                    self.conns[conn].finished = true;
                    self.peers[peer].bits.set_cut_short();
                }
                _ => self.mark_dead(peer, DeathReason::Silent),
            }
        }
    }

    /// Earliest deadline of a connection.
    fn deadline(&self, now: u64, conn: ConnIndex) -> u64 {
        let config = &self.core.config;
        let c = &self.conns[conn];
        let state = self.peers[c.peer].state;
        let mut at = c.connect_next.min(c.paced_until);
        at = at.min(c.refusals.retry_at).min(c.keepalive_at);
        if state == PeerState::Up {
            let path = conn.first_path();
            at = at.min(self.probe_at(path)).min(self.trial_at(path));
            if self.has_more(conn) {
                for path in self.paths_of(conn).skip(1) {
                    at = at.min(self.probe_at(path)).min(self.trial_at(path));
                }
            }
            if c.listed == Listed::None {
                at = at.min(self.sizes_due(conn));
            }
        }
        if c.waiting_since != u64::MAX && !matches!(state, PeerState::Dead(_)) {
            let since = c.silent_since();
            let connecting = state == PeerState::Connecting;
            if !connecting || !c.waiting_told {
                at = at.min(since.saturating_add(config.silence_ns));
            }
            if connecting {
                at = at.min(since.saturating_add(config.connect_ns));
            }
            if self.is_closed(conn) {
                let first = c.unheard_since();
                at = at.min(first.saturating_add(config.silence_ns / CLOSE_PARTS));
            }
        }
        if c.refusals.repeats_until != 0 {
            at = at.min(c.refusals.repeats_until);
        }
        // The connection may fall quiet until then without another timer's help.
        let idle_at = c.used_at.saturating_add(config.idle_ns);
        if idle_at > now || (c.keepalive_at == u64::MAX && self.is_quiet(conn)) {
            at = at.min(idle_at);
        }
        at
    }
}
