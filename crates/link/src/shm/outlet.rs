//! The sending half of a port, on its own while the other half shows frames.

use portolan_sys::process::CopyError;
use portolan_wire::Priority;

use super::cma::Cma;
use super::onesided::OneSided;
use super::segment::{Map, PeerState};
use super::send::{Outgoing, ShmError, Slot};

/// What a port can do beside receiving.
#[derive(Debug)]
pub struct Outlet<'a> {
    pub(super) out: &'a mut Outgoing,
    pub(super) map: &'a Map,
    pub(super) cma: &'a mut Cma,
    pub(super) onesided: &'a mut OneSided,
}

impl Outlet<'_> {
    /// The same for a shorter time.
    pub fn again(&mut self) -> Outlet<'_> {
        Outlet {
            out: self.out,
            map: self.map,
            cma: self.cma,
            onesided: self.onesided,
        }
    }

    /// As [`ShmPort::reserve`](super::ShmPort::reserve).
    ///
    /// # Errors
    /// [`ShmError`]; nothing has changed.
    #[inline(always)]
    pub fn reserve(
        &mut self,
        to: u16,
        priority: Priority,
        bytes: usize,
    ) -> Result<Slot<'_>, ShmError> {
        self.out.reserve(self.map, to, priority, None, bytes)
    }

    /// Sends a frame of two parts at once, and wakes the peer if it sleeps: the shortest way.
    /// False: it was not sent, and [`Outlet::reserve_in`] says why.
    #[inline(always)]
    pub fn send_short<const N: usize>(
        &mut self,
        to: u16,
        priority: Priority,
        head: &[u8; N],
        rest: &[u8],
    ) -> bool {
        self.out.send_short(to, priority, head, rest)
    }

    /// As [`Outlet::reserve`] in a flow, which the peer may have stopped: then there is no room.
    ///
    /// # Errors
    /// [`ShmError`]; nothing has changed.
    #[inline(always)]
    pub fn reserve_in(
        &mut self,
        to: u16,
        priority: Priority,
        flow: u16,
        bytes: usize,
    ) -> Result<Slot<'_>, ShmError> {
        self.out.reserve(self.map, to, priority, Some(flow), bytes)
    }

    /// Lets a peer send nothing more in a flow, or go on. Who sleeps for want of room is
    /// woken when it may. What the peer has sent already comes.
    pub fn set_stopped(&mut self, peer: u16, priority: Priority, flow: u16, stopped: bool) {
        self.out
            .set_stopped(self.map, peer, priority, flow, stopped);
    }

    /// Bars a peer from our regions: it is to ask by messages. As all that stands in shared
    /// memory it is the peer that keeps to it.
    pub fn set_barred(&mut self, peer: u16, barred: bool) {
        self.out.set_barred(self.map, peer, barred);
    }

    /// Whether a peer has barred us from its regions.
    #[must_use]
    pub fn is_barred(&self, peer: u16) -> bool {
        self.out.is_barred(peer)
    }

    /// Memory that was lent to a peer, for it to copy from, is ours again. The peer sees that
    /// when it has copied.
    pub fn leave(&mut self, peer: u16) {
        self.out.leave(self.map, peer);
    }

    /// Whether a peer has left us: what was copied from its memory may have been other bytes.
    #[must_use]
    pub fn has_left(&self, peer: u16) -> bool {
        self.out.has_left(peer)
    }

    /// Longest frame, bytes.
    #[inline]
    #[must_use]
    pub fn frame_bytes_max(&self) -> usize {
        self.map.layout.frame_bytes_max
    }

    /// As [`ShmPort::can_copy`](super::ShmPort::can_copy).
    #[inline]
    pub fn can_copy(&mut self, peer: u16) -> bool {
        self.cma.pid(self.map, peer).is_ok()
    }

    /// As [`ShmPort::peer_state`](super::ShmPort::peer_state).
    #[inline]
    #[must_use]
    pub fn peer_state(&self, peer: u16) -> PeerState {
        self.map.state(peer)
    }

    /// As [`ShmPort::copy_from_peer`](super::ShmPort::copy_from_peer).
    ///
    /// # Errors
    /// [`CopyError`]; `into` may be filled in part.
    pub fn copy_from_peer(
        &mut self,
        peer: u16,
        remote: u64,
        into: &mut [u8],
    ) -> Result<(), CopyError> {
        self.cma.copy_from(self.map, peer, remote, into)
    }
}
