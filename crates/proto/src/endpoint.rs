//! The view that ties the tables and the seal together for one call.

mod events;

use portolan_seal::Seal;

use crate::base::{
    ConnIndex, Counters, DeathReason, FrameIndex, NetAddress, PathIndex, PeerId, Transmit,
};
use crate::memory::{Memory, Need, Use};
use crate::path::Path;
use crate::tables::{
    Conn, Core, Listed, PathSnapshot, Peer, PeerSnapshot, PeerState, State, Tables,
};

/// An endpoint, for the length of one call: a view over its tables.
#[derive(Debug)]
pub struct Endpoint<'m, S: Seal> {
    pub(crate) core: &'m mut State,
    pub(crate) peers: &'m mut [Peer],
    pub(crate) parked: &'m mut [PeerSnapshot],
    pub(crate) parked_paths: &'m mut [PathSnapshot],
    pub(crate) conns: &'m mut [Conn],
    pub(crate) paths: &'m mut [Path],
    pub(crate) memory: Memory<'m>,
    pub(crate) seal: &'m mut S,
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
            meta,
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
                meta,
                longs,
                bytes: frames,
            },
            seal,
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
        let mut used = self.conns[..self.core.conns_used as usize].iter();
        self.core.closes_owed == 0
            && used.all(|c| c.listed == Listed::Free || c.outbound.is_settled())
    }

    /// Peers that have stopped flows of ours.
    pub fn stopped_by(&self) -> impl Iterator<Item = PeerId> {
        let used = self.conns[..self.core.conns_used as usize].iter();
        used.filter(|c| c.listed != Listed::Free && c.outbound.stopped.any())
            .map(|c| c.peer)
    }

    /// Whether everything sent to all peers has left at least once. Packets
    /// that wait for a resend have not.
    #[must_use]
    pub fn has_left(&self) -> bool {
        let mut used = self.conns[..self.core.conns_used as usize].iter();
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
    pub(crate) fn take_frame(
        &mut self,
        need: Need,
        usage: Use,
        conn: ConnIndex,
    ) -> Option<FrameIndex> {
        let frame = self.memory.take(need, usage, conn);
        if frame.is_none() {
            self.note_lack();
        }
        frame
    }

    /// The link is done with the frame of a [`Transmit`]. Call once for each, whether the link sent
    /// it or failed to.
    pub fn transmitted(&mut self, frame: FrameIndex) {
        let meta = &mut self.memory.meta[frame];
        meta.in_link = false;
        match meta.usage {
            Use::Passing | Use::Leaving => self.memory.free(frame),
            Use::Parting => {
                let conn = meta.conn;
                self.go_on_with_rest(conn, frame);
            }
            _ => {}
        }
    }

    #[inline]
    pub(crate) fn path_mut(&mut self, path: PathIndex) -> &mut Path {
        &mut self.paths[path]
    }
}
