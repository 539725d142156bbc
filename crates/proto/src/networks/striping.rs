//! Choice of the path by which the next packet leaves.

use portolan_seal::Seal;

use crate::base::{ConnIndex, PATHS_MAX, PathIndex};
use crate::endpoint::Endpoint;
use crate::path::Path;

/// Packets that leave by one path before another is considered: enough for
/// one unit of segmentation offload, few beside a window.
const STRIPE: u8 = 16;

impl<S: Seal> Endpoint<'_, S> {
    /// Whether a connection has other paths than the first.
    #[inline]
    pub(crate) fn has_more(&self, conn: ConnIndex) -> bool {
        self.conns[conn].more != [PathIndex::NONE; PATHS_MAX - 1]
    }

    /// A connection's paths, the first one first.
    #[inline]
    pub(crate) fn paths_of(&self, conn: ConnIndex) -> impl Iterator<Item = PathIndex> + use<S> {
        let more = self.conns[conn].more;
        core::iter::once(conn.first_path()).chain(more.into_iter().filter(|&path| path.is_some()))
    }

    /// The path of a number, if there is one.
    #[inline]
    pub(crate) fn path_of(&self, conn: ConnIndex, id: u8) -> Option<PathIndex> {
        if id == 0 {
            return Some(conn.first_path());
        }
        let more = &self.conns[conn].more;
        let path = *more.get(usize::from(id) - 1)?;
        path.is_some().then_some(path)
    }

    /// Path by which the next packet of chunks is to leave. If it has to wait
    /// for its window or its pacer, so do all others.
    #[inline]
    pub(crate) fn way(&mut self, now: u64, conn: ConnIndex) -> PathIndex {
        if !self.has_more(conn) {
            return conn.first_path();
        }
        self.best_way(now, conn)
    }

    fn best_way(&mut self, now: u64, conn: ConnIndex) -> PathIndex {
        let c = &self.conns[conn];
        let (way, striped) = (c.way, c.striped);
        let free = |path: PathIndex| {
            let p = &self.paths[path];
            p.way.is_usable() && self.window_open(path, 0) && p.pacer.ready_at(now) <= now
        };
        if striped < STRIPE && free(way) && self.paths[way].quiet == 0 {
            return way;
        }
        let all = || self.paths_of(conn);
        if let Some(probes) = all().find(|&path| self.paths[path].probe_owed) {
            return probes;
        }
        // Paths that answer come first; then the one with the fewest unanswered
        // probes, as nothing else asks it again where its last answer was lost.
        // Then the one with the least of its window used.
        let load = |&path: &PathIndex| {
            let p = &self.paths[path];
            let used = (u64::from(p.flying) << 16) / u64::from(p.congestion.window().max(1));
            (p.quiet, used)
        };
        let best = all().filter(|&path| free(path)).min_by_key(load);
        let paced = |&path: &PathIndex| self.paths[path].pacer.ready_at(now);
        let best = best.or_else(|| {
            let open =
                |&path: &PathIndex| self.paths[path].way.is_usable() && self.window_open(path, 0);
            all().filter(open).min_by_key(paced)
        });
        let usable = |&path: &PathIndex| self.paths[path].way.is_usable();
        let best = best
            .or_else(|| all().find(usable))
            .unwrap_or(conn.first_path());
        let c = &mut self.conns[conn];
        c.way = best;
        c.striped = 0;
        if best != way {
            self.arm_probe(now, best);
        }
        best
    }

    /// Path by which an acknowledgement of a path's packets leaves: by the
    /// network by which they come, if it is in use or no other answers. Where
    /// those in use have failed, nothing else would show that this one works.
    pub(crate) fn ack_way(&self, conn: ConnIndex, path: PathIndex) -> PathIndex {
        let mate = self.path_of(conn, self.paths[path].way.mate);
        let is = |of: fn(&Path) -> bool| move |other: &PathIndex| of(&self.paths[*other]);
        mate.filter(is(|p| p.way.is_usable()))
            .or_else(|| {
                self.paths_of(conn)
                    .find(is(|p| p.way.is_usable() && p.quiet == 0))
            })
            .or_else(|| mate.filter(is(|p| p.way.leads())))
            .or_else(|| self.paths_of(conn).find(is(|p| p.way.is_usable())))
            .unwrap_or(conn.first_path())
    }

    /// Path whose packets are acknowledged by a packet that leaves by `path`.
    #[inline]
    pub(crate) fn told_by(&self, conn: ConnIndex, path: PathIndex) -> PathIndex {
        let tells = |other: PathIndex| self.paths[other].received.has_news();
        if !self.has_more(conn) {
            return path;
        }
        let id = self.paths[path].way.id;
        let is_mate = |&other: &PathIndex| self.paths[other].way.mate == id && tells(other);
        let mut mates = self.paths_of(conn).filter(is_mate);
        let all = || self.paths_of(conn).find(|&other| tells(other));
        mates.next().or_else(all).unwrap_or(path)
    }

    /// Nothing more may leave for now: sends pings on other paths whose packets
    /// were not asked about.
    #[inline]
    pub(crate) fn ask_others(&mut self, conn: ConnIndex, path: PathIndex) {
        if !self.has_more(conn) {
            return;
        }
        for other in self.paths_of(conn).filter(|&other| other != path) {
            let p = self.path_mut(other);
            if p.since_ask > 0 && p.flying > 0 && p.way.is_usable() {
                p.since_ask = 0;
                p.ping_owed = true;
            }
        }
    }

    /// Largest packet that every path in use takes.
    #[inline]
    pub(crate) fn packet_size(&self, conn: ConnIndex) -> u16 {
        let first = &self.paths[conn.first_path()];
        if !self.has_more(conn) {
            return first.mtu.current();
        }
        let used = self.paths_of(conn).map(|path| &self.paths[path]);
        let sizes = used.filter(|p| p.way.is_usable()).map(|p| p.mtu.current());
        sizes.min().unwrap_or(first.mtu.current())
    }
}
