//! Shortage: adds connections; and, where peers come and go, removes silent strangers that hold what
//! others need. A job has no strangers.

use portolan_seal::Seal;

use crate::base::{ConnIndex, DeathReason, PeerId};
use crate::endpoint::Endpoint;
use crate::tables::{Listed, Peer, PeerState};

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
        if !self.core.lacks_conn {
            return None;
        }
        let more = self.core.config.connections() - self.core.conn_count;
        (more > 0).then(|| self.paths.len() + CONNS_AT_ONCE.min(more as usize))
    }

    /// Takes connections into use that the caller has added.
    fn use_new_connections(&mut self) {
        // New ones lie behind the further paths.
        let known = self.core.conn_count + self.core.config.more_paths;
        let known = known as usize;
        for conn in (known..self.conns.len()).map(ConnIndex::new) {
            self.core.free_conns.push_back(self.conns, conn);
            self.core.conn_count += 1;
        }
    }

    /// A peer has found no connection: asks for more, or for the removal of a silent one.
    ///
    /// As long as each peer can have one, none waits for what others hold. If they did, peers whose
    /// connections are all waiting for each other would wait for ever.
    #[cold]
    pub(crate) fn lack_connection(&mut self) {
        self.core.lacks_conn = true;
        if self.wanted_connections().is_some() {
            // No need to wait for the next search.
            self.core.short_at = 0;
            self.arm(0);
        } else {
            self.fall_short();
        }
    }

    /// No connection, frame or long message was found: arranges for the removal of strangers that
    /// do not answer.
    #[cold]
    pub(crate) fn fall_short(&mut self) {
        if self.core.config.introduces && self.core.short_at == u64::MAX {
            self.core.short_at = 0;
            self.arm(0);
        }
    }

    /// As [`Self::fall_short`], if the pool has refused something.
    #[inline]
    pub(crate) fn note_lack(&mut self) {
        if core::mem::take(&mut self.memory.pool.lacked) {
            self.fall_short();
        }
    }

    /// Whether nothing more is queued for peers that are not up, as they may never answer.
    pub(crate) fn saves_for_others(&self) -> bool {
        self.core.config.introduces && !self.memory.pool.has_free(PLENTY_PARTS)
    }

    /// Uses new connections, and removes silent strangers until there is room, or tries again soon.
    #[cold]
    pub(crate) fn make_room(&mut self, now: u64) {
        self.use_new_connections();
        self.core.lacks_conn &= self.core.free_conns.is_empty();
        // Strangers, and removed peers.
        let may_go = |p: &Peer| p.bits.stranger() || p.bits.parting();
        self.core.short_at = u64::MAX;
        let may_remove = self.core.config.introduces;
        while may_remove && (self.core.lacks_conn || !self.memory.pool.has_free(ENOUGH_PARTS)) {
            let Some(peer) = self.most_silent(now, may_go) else {
                let soon = self.unanswered_ns().div_ceil(LOOKS);
                self.core.short_at = now.saturating_add(soon);
                return;
            };
            self.mark_dead(peer, DeathReason::Silent);
            self.core.lacks_conn = false;
        }
    }

    /// Longest silence of a peer while others need what it holds, ns.
    fn unanswered_ns(&self) -> u64 {
        let part = self.core.config.silence_ns / UNANSWERED_PARTS;
        UNANSWERED_NS.min(part).max(1)
    }

    /// Among the peers that `may_go`, the one that has been silent for longest, if that is long
    /// enough.
    pub(crate) fn most_silent(&self, now: u64, may_go: impl Fn(&Peer) -> bool) -> Option<PeerId> {
        let silent_ns_min = self.unanswered_ns();
        let used = (0..self.core.conns_used as usize).map(ConnIndex::new);
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
