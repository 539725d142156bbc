//! The view that ties the tables and the seal together for one call.

use portolan_seal::Seal;
use portolan_wire::{EndpointId, Life};

use crate::congestion::{Congestion, Mode};
use crate::conn::{Conn, Listed, Owed};
use crate::interface::{DeathReason, NetAddress, PeerId, Transmit};
use crate::kept::{Kept, KeptPath, PathSnapshot, PeerSnapshot};
use crate::path::Path;
use crate::peer::{Peer, PeerBits, PeerState};
use crate::pool::FrameMeta;
use crate::send::Long;
use crate::tables::{Core, Counters, NONE, Tables};

/// Why a peer was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum AddPeerError {
    /// [`crate::Config::peers`] are there already.
    #[error("no room for another peer: raise the setting `peers`")]
    Full,
    /// A peer with this id is there already.
    #[error("peer {} has this id already", .0.0)]
    Exists(PeerId),
}

/// An endpoint, for the length of one call: a view over its tables.
#[derive(Debug)]
pub struct Endpoint<'m, S: Seal> {
    pub(crate) core: &'m mut Core,
    pub(crate) peers: &'m mut [Peer],
    pub(crate) parked: &'m mut [PeerSnapshot],
    pub(crate) parked_paths: &'m mut [PathSnapshot],
    pub(crate) conns: &'m mut [Conn],
    pub(crate) paths: &'m mut [Path],
    pub(crate) meta: &'m mut [FrameMeta],
    pub(crate) longs: &'m mut [Long],
    pub(crate) frames: &'m mut [u8],
    pub(crate) seal: &'m mut S,
}

impl<'m, S: Seal> Endpoint<'m, S> {
    /// Over tables that [`Tables::init`] made, and the seal that goes with them.
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
        Self {
            core,
            peers,
            parked,
            parked_paths,
            conns,
            paths,
            meta,
            longs,
            frames,
            seal,
        }
    }

    /// Adds a peer; it need not be up, nothing is sent yet. `mode` is used
    /// unless the configuration fixes one.
    ///
    /// # Errors
    /// [`AddPeerError`].
    pub fn add_peer(
        &mut self,
        id: EndpointId,
        life: Life,
        to: NetAddress,
        mode: Mode,
    ) -> Result<PeerId, AddPeerError> {
        if let Some(peer) = self.find_peer(id) {
            return Err(AddPeerError::Exists(PeerId(peer)));
        }
        let i = self.core.peer_count;
        if i >= self.core.config.peers {
            return Err(AddPeerError::Full);
        }
        self.core.peer_count += 1;
        self.peers[i as usize] = Peer {
            id,
            bits: PeerBits::new(self.core.config.congestion.unwrap_or(mode)),
            ..Peer::default()
        };
        self.lead(i, to);
        self.begin_life(i, life);
        Ok(PeerId(i))
    }

    /// From now on the caller alone says in which life a peer is
    /// ([`Endpoint::peer_returned`]): whoever speaks up in another, such as one
    /// that was taken for dead and is not, is not listened to.
    pub fn pin_incarnation(&mut self, peer: PeerId) {
        self.peers[peer.0 as usize].bits.set_fixed();
    }

    /// Starts a peer's record for a life: counters, a nonce, a connection number.
    pub(crate) fn begin_life(&mut self, peer: u32, life: Life) {
        let nonce_mine = self.core.random();
        let lot = Peer::lot(self.new_connection(peer));
        self.close_told(peer);
        let p = &mut self.peers[peer as usize];
        *p = Peer {
            id: p.id,
            life,
            to: p.to,
            bits: p.bits.of_new_life(),
            nonce_mine,
            lot,
            place: p.place,
            events: p.events,
            ..Peer::default()
        };
        if let Some(words) = self.parked.get_mut(p.place as usize) {
            let config = &self.core.config;
            *words = Kept::new(config).to_words(KeptPath::new(config.first_packet));
        }
    }

    /// The peer with an id, where it has the place that launchers give it: they
    /// number ids in the order in which peers are added.
    pub(crate) fn guess_peer(&self, id: EndpointId) -> Option<u32> {
        let known = &self.peers[..self.core.peer_count as usize];
        let base = known.first()?.id.0;
        let guess = id.0.wrapping_sub(base) as usize;
        let right = known.get(guess).is_some_and(|p| p.id == id);
        right.then_some(guess as u32)
    }

    /// The peer with an id, wherever it is. Looked up at connects only.
    pub(crate) fn find_peer(&self, id: EndpointId) -> Option<u32> {
        let known = &self.peers[..self.core.peer_count as usize];
        let search = || known.iter().position(|p| p.id == id).map(|i| i as u32);
        self.guess_peer(id).or_else(search)
    }

    /// The state of a peer. A peer that does not exist is new.
    #[must_use]
    pub fn peer_state(&self, peer: PeerId) -> PeerState {
        self.peers
            .get(peer.0 as usize)
            .map_or(PeerState::New, |p| p.state)
    }

    /// The connection numbers by which a peer may speak to us: what we offered
    /// it in the life that we know, and in others that it has yet to prove.
    pub fn connection_numbers(&self, peer: PeerId) -> impl Iterator<Item = u32> + Clone {
        let known = self.peers[..self.core.peer_count as usize].get(peer.0 as usize);
        let heard =
            |p: &&Peer| !matches!(p.state, PeerState::Dead(how) if how != DeathReason::Closed);
        let unproven = self.core.pending.iter();
        let unproven = unproven.filter(move |it| it.nonce != 0 && it.peer == peer.0);
        let own = known.filter(heard).map(move |p| p.connection(peer.0));
        own.into_iter().chain(unproven.map(|it| it.connection))
    }

    /// Where packets to a peer go, if it exists.
    #[must_use]
    pub fn peer_address(&self, peer: PeerId) -> Option<NetAddress> {
        self.peers.get(peer.0 as usize).map(|p| p.to)
    }

    /// Whether everything sent to a peer has been acknowledged.
    #[must_use]
    pub fn peer_idle(&self, peer: PeerId) -> bool {
        let Some(p) = self.peers.get(peer.0 as usize) else {
            return true;
        };
        p.conn == NONE || { self.conns[p.conn as usize].is_settled() }
    }

    /// Whether everything sent to anybody has been acknowledged.
    #[must_use]
    pub fn idle(&self) -> bool {
        let mut used = self.conns[..self.core.conns_used as usize].iter();
        self.core.closes_owed == 0 && used.all(|c| c.listed == Listed::Free || c.is_settled())
    }

    /// Whether everything sent to anybody has left at least once. What was
    /// given up and is to leave again has not.
    #[must_use]
    pub fn has_left(&self) -> bool {
        let mut used = self.conns[..self.core.conns_used as usize].iter();
        used.all(|c| c.listed == Listed::Free || c.has_left())
    }

    /// What was done so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.core.counters
    }

    /// Frames that are not in use.
    #[must_use]
    pub const fn free_frames(&self) -> u32 {
        self.core.free_count
    }

    /// The bytes of a packet that is ready to leave.
    #[inline]
    #[must_use]
    pub fn frame(&self, t: &Transmit) -> &[u8] {
        &self.frames[t.start..t.start + t.len]
    }

    /// Packets that congestion control allows in flight to a peer, while it is
    /// active.
    #[must_use]
    pub fn window(&self, peer: PeerId) -> Option<u32> {
        let conn = self.peers.get(peer.0 as usize)?.conn;
        Some(self.paths.get(conn as usize)?.congestion.window())
    }

    /// Smoothed round-trip time to a peer, ns, once one was measured.
    #[must_use]
    pub fn round_trip(&self, peer: PeerId) -> Option<u64> {
        let conn = self.peers.get(peer.0 as usize)?.conn;
        self.paths.get(conn as usize)?.rtt.smoothed()
    }

    /// The active state of a peer, made if it has none; `None` if all are in
    /// use by peers that are not idle.
    #[inline]
    pub(crate) fn activate(&mut self, now: u64, peer: u32) -> Option<u32> {
        match self.peers[peer as usize].conn {
            NONE => self.make_active(now, peer),
            conn => Some(conn),
        }
    }

    #[cold]
    fn make_active(&mut self, now: u64, peer: u32) -> Option<u32> {
        let conn = if self.core.free_conns == NONE {
            self.evict()?
        } else {
            self.core.free_conns
        };
        self.core.free_conns = self.conns[conn as usize].next;
        self.core.conns_used = self.core.conns_used.max(conn + 1);
        let (kept, kept_path) = self.restore(peer);
        let p = &mut self.peers[peer as usize];
        p.conn = conn;
        let window = crate::WINDOW_SPAN as u32;
        let up = p.state == PeerState::Up || matches!(p.state, PeerState::Dead(_));
        self.conns[conn as usize] = Conn {
            peer,
            listed: Listed::None,
            advertised: kept.taken,
            used_at: now,
            heard_at: now,
            way: conn,
            heard_by: conn,
            confirmed: up,
            keyed: up,
            // It gave its state back once it had acknowledged our close.
            finished: p.bits.cut_short() || up && self.core.closing && !p.bits.close_owed(),
            refusals: crate::refusal::Refusals::new(&kept.next_out),
            kept,
            ..Conn::default()
        };
        let (marks, most) = (self.core.config.first_message, self.core.config.packet_max);
        let congestion = Congestion::new(p.bits.mode(), most, window);
        self.paths[conn as usize] = Path::resume(conn, &kept_path, marks, congestion);
        if up {
            let own = self.own_packet_max(self.network_of(peer, 0));
            let mtu = &mut self.path_mut(conn).mtu;
            // What the peer told is not kept.
            mtu.resume(kept_path.packet_max, own, most);
            mtu.search_soon(now);
            self.install_keys(conn);
            self.resume_paths(conn);
            self.arm_keepalive(conn);
        }
        self.arm(now.saturating_add(self.core.config.idle_ns));
        Some(conn)
    }

    /// Makes the longest idle connection give its state back.
    fn evict(&mut self) -> Option<u32> {
        let conn = (0..self.conns.len() as u32)
            .filter(|&i| self.is_quiet(i))
            .min_by_key(|&i| self.conns[i as usize].used_at)?;
        self.deactivate(conn);
        Some(conn)
    }

    /// Nothing under way in either direction.
    pub(crate) fn is_quiet(&self, conn: u32) -> bool {
        let c = &self.conns[conn as usize];
        c.listed == Listed::None
            && !c.busy
            && c.is_settled()
            && c.held == [0; 2]
            && c.refusals.is_quiet()
            && c.stops.is_quiet()
            && self.owed(conn) == Owed::Nothing
            && c.rx.iter().flatten().all(|f| !f.active)
            && c.connect_next == u64::MAX
            && self.peers[c.peer as usize].state != PeerState::Connecting
    }

    /// Keeps of a quiet connection what must be kept, and frees it.
    pub(crate) fn deactivate(&mut self, conn: u32) {
        self.park(conn);
        self.release_conn(conn);
    }

    /// Frees a connection whose peer has been detached from it.
    pub(crate) fn release_conn(&mut self, conn: u32) {
        self.remove_keys(conn);
        for path in self.paths_of(conn).skip(1) {
            self.release_path(path);
        }
        self.conns[conn as usize] = Conn {
            next: self.core.free_conns,
            ..Conn::default()
        };
        self.core.free_conns = conn;
        self.paths[conn as usize] = Path::default();
    }
}

/// Bits of a connection number that are the peer's index; the rest is random.
pub(crate) const PEER_BITS: u32 = 20;
