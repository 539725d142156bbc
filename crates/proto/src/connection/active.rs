//! Active state of peers: making and parking it.

use portolan_seal::Seal;

use crate::base::{ConnIndex, PeerId, WINDOW_SPAN};
use crate::congestion::Congestion;
use crate::endpoint::Endpoint;
use crate::handshake::Handshake;
use crate::inbound::Inbound;
use crate::outbound::Outbound;
use crate::path::Path;
use crate::paths::Paths;
use crate::received::Owed;
use crate::silence::Silence;
use crate::tables::{Conn, Listed, NO_PLACE, Parked, PeerState};

impl<S: Seal> Endpoint<'_, S> {
    /// Returns the active state of a peer, made if it has none; `None` if all
    /// are in use by peers that are not idle.
    #[inline]
    pub(crate) fn activate(&mut self, now: u64, peer: PeerId) -> Option<ConnIndex> {
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
        let conn = self.core.free_conns.pop_front(self.conns)?;
        self.core.conns_used = self.core.conns_used.max(conn.index() as u32 + 1);
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
        Some(conn)
    }

    /// Whether a connection is free; parks the one that is idle longest if none is.
    pub(crate) fn has_connection(&mut self) -> bool {
        if !self.core.free_conns.is_empty() {
            return true;
        }
        let used = (0..self.core.conns_used as usize).map(ConnIndex::new);
        let quiet = used.filter(|&conn| self.is_quiet(conn));
        let Some(conn) = quiet.min_by_key(|&conn| self.conns[conn].silence.used_at()) else {
            self.lack_connection();
            return false;
        };
        self.deactivate(conn);
        true
    }

    /// Whether nothing is under way in either direction.
    pub(crate) fn is_quiet(&self, conn: ConnIndex) -> bool {
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
    pub(crate) fn deactivate(&mut self, conn: ConnIndex) {
        self.park(conn);
        self.release_conn(conn);
    }

    /// Frees a connection whose peer has been detached from it.
    pub(crate) fn release_conn(&mut self, conn: ConnIndex) {
        self.remove_keys(conn);
        for path in self.conns[conn].paths.iter().skip(1) {
            self.release_path(path);
        }
        self.conns[conn] = Conn::default();
        self.paths[conn.first_path()] = Path::default();
        // Connections that were added later are used when the first are not enough.
        if conn.index() < self.core.config.active as usize {
            self.core.free_conns.push_front(self.conns, conn);
        } else {
            self.core.free_conns.push_back(self.conns, conn);
        }
        let used = &self.conns[..self.core.conns_used as usize];
        let last = used.iter().rposition(|c| c.listed != Listed::Free);
        self.core.conns_used = last.map_or(0, |last| last as u32 + 1);
    }

    /// Returns a peer's parked state, to make it active; assigns a place for it
    /// if there was none.
    pub(crate) fn restore(&mut self, peer: PeerId) -> Parked {
        let p = &mut self.peers[peer];
        if p.place != NO_PLACE {
            return Parked::from_words(&self.parked[p.place as usize]);
        }
        p.place = self.core.parked_used;
        self.core.parked_used += 1;
        Parked::new(&self.core.config)
    }

    /// Parks the state of a connection's peer, and detaches the peer.
    pub(crate) fn park(&mut self, conn: ConnIndex) {
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
    pub(crate) fn nonce_theirs(&self, peer: PeerId) -> u64 {
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
