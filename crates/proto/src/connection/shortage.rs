//! Room for others, where peers come and go: connections that become more, and strangers
//! that answer nothing and hold what others need.
//!
//! In a job none of this happens: nobody there is a stranger, and its tables are as long as
//! they are.

use portolan_seal::Seal;

use crate::base::{ConnIndex, DeathReason, PeerId};
use crate::endpoint::Endpoint;
use crate::tables::{Listed, Peer, PeerState};

/// Connections that are made at once.
const CONNS_AT_ONCE: usize = 64;

/// A peer may go if so many probes in a row had no answer, and nothing came for this long, ns,
/// or for this part of the silence if that is less: longer than a host is mostly kept from
/// answering by what else it does.
const UNANSWERED: u8 = 8;
const UNANSWERED_NS: u64 = 500_000_000;
const UNANSWERED_PARTS: u64 = 8;
/// How often such a one is looked for in that time.
const LOOKS: u64 = 8;

/// This part of all frames, or of all long messages, is free if there is enough of them.
const ENOUGH_PARTS: u32 = 8;
/// This part, if also peers that may never answer can have some.
const PLENTY_PARTS: u32 = 2;

impl<S: Seal> Endpoint<'_, S> {
    /// How many entries [`crate::Tables::conns`] and [`crate::Tables::paths`] are to have, each,
    /// because a peer has found no connection: the caller may make them longer, with default
    /// entries, and the seal too ([`crate::key_slots`]), before
    /// [`Endpoint::handle_timeouts`].
    #[inline]
    #[must_use]
    pub fn wanted_connections(&self) -> Option<usize> {
        if !self.core.lacks_conn {
            return None;
        }
        let more = self.core.config.connections() - self.core.conn_count;
        (more > 0).then(|| self.paths.len() + CONNS_AT_ONCE.min(more as usize))
    }

    /// Takes connections into use that the caller has made.
    fn use_new_connections(&mut self) {
        // They lie behind the further paths.
        let known = self.core.conn_count + self.core.config.more_paths;
        let known = known as usize;
        for conn in (known..self.conns.len()).map(ConnIndex::new) {
            self.core.free_conns.push_back(self.conns, conn);
            self.core.conn_count += 1;
        }
    }

    /// A peer has found no connection: there may be more, or one that does not answer goes.
    #[cold]
    pub(crate) fn lack_connection(&mut self) {
        self.core.lacks_conn = true;
        if self.wanted_connections().is_some() {
            // It has not to wait until others are looked for again.
            self.core.short_at = u64::MAX;
        }
        self.fall_short();
    }

    /// Somebody has found no connection, frame or long message: if that is because of
    /// strangers that do not answer, they go.
    #[cold]
    pub(crate) fn fall_short(&mut self) {
        if self.core.config.introduces && self.core.short_at == u64::MAX {
            self.core.short_at = 0;
            self.arm(0);
        }
    }

    /// Whether a part of all frames and long messages is free.
    const fn has_free(&self, parts: u32) -> bool {
        let core = &*self.core;
        core.free_count > core.config.frames.div_ceil(parts)
            && core.free_long_count > core.config.longs.div_ceil(parts)
    }

    /// Whether a peer that is not up is sent nothing more for now, as it may never answer.
    pub(crate) fn saves_for_others(&self) -> bool {
        self.core.config.introduces && !self.has_free(PLENTY_PARTS)
    }

    /// Makes room, or looks for it again soon.
    #[cold]
    pub(crate) fn make_room(&mut self, now: u64) {
        self.use_new_connections();
        self.core.lacks_conn &= self.core.free_conns.is_empty();
        // Those that were not added, or are removed.
        let may_go = |p: &Peer| p.bits.stranger() || p.bits.parting();
        self.core.short_at = u64::MAX;
        while self.core.lacks_conn || !self.has_free(ENOUGH_PARTS) {
            let Some(peer) = self.most_silent(now, may_go) else {
                let soon = self.unanswered_ns().div_ceil(LOOKS);
                self.core.short_at = now.saturating_add(soon);
                return;
            };
            self.mark_dead(peer, DeathReason::Silent);
            self.core.lacks_conn = false;
        }
    }

    /// How long a peer may answer nothing while others need what it holds.
    fn unanswered_ns(&self) -> u64 {
        let part = self.core.config.silence_ns / UNANSWERED_PARTS;
        UNANSWERED_NS.min(part).max(1)
    }

    /// Of the peers that may go, the one that has answered nothing for longest, if that is
    /// long enough.
    pub(crate) fn most_silent(&self, now: u64, may_go: impl Fn(&Peer) -> bool) -> Option<PeerId> {
        let silent_ns_min = self.unanswered_ns();
        let used = (0..self.core.conns_used as usize).map(ConnIndex::new);
        let silent = used.filter_map(|conn| {
            let c = &self.conns[conn];
            if c.listed == Listed::Free || c.waiting_since == u64::MAX {
                return None;
            }
            let p = &self.peers[c.peer];
            let for_ns = now.saturating_sub(c.waiting_since.max(c.heard_at));
            let asked = || (self.paths_of(conn)).any(|path| self.paths[path].backoff >= UNANSWERED);
            let may_go = p.state == PeerState::Up && may_go(p);
            (may_go && for_ns >= silent_ns_min && asked()).then_some((for_ns, c.peer))
        });
        silent.max().map(|(_, peer)| peer)
    }
}
