//! Choice of the path by which the next packet leaves.

use portolan_seal::Seal;

use crate::base::{ConnIndex, PathIndex};
use crate::endpoint::Endpoint;
use crate::paths::{Answerer, Candidate};

impl<S: Seal> Endpoint<'_, S> {
    /// Path by which the next packet of chunks is to leave. If it has to wait
    /// for its window or its pacer, so do all others.
    #[inline]
    pub(crate) fn way(&mut self, now: u64, conn: ConnIndex) -> PathIndex {
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
    pub(crate) fn ack_way(&self, conn: ConnIndex, path: PathIndex) -> PathIndex {
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
    pub(crate) fn told_by(&self, conn: ConnIndex, path: PathIndex) -> PathIndex {
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
    pub(crate) fn ask_others(&mut self, conn: ConnIndex, path: PathIndex) {
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
    pub(crate) fn packet_size(&self, conn: ConnIndex) -> u16 {
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
