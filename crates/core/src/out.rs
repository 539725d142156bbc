//! The sending halves of both lanes, whichever of them is being read at the time.

mod choice;
pub mod frame;
mod net;
mod shm;

use std::io::{IoSlice, IoSliceMut};

use portolan_link::memory::CopyError;
use portolan_link::shm::{
    Exposed, OneSidedError, Outlet, Permission, Place, RegionId, WithdrawError,
};
use portolan_proto::{Message, PeerId, Release, SendError as NetError, SourceId};
use portolan_wire::{MessageNo, Priority};

use self::frame::CONTROL_BYTES;
pub use self::net::{Credentials, NetTx, ProtoTables, Suites};
pub use self::shm::{Proof, STREAMED_MIN, ShmFailure, ShmTx, why};
use crate::environment::Clock;
use crate::values::{SendOptions, Source};

/// The way out to other processes.
pub struct Out<'a> {
    pub(crate) net: Option<&'a mut NetTx>,
    pub(crate) shm: Option<ShmOut<'a>>,
    pub(crate) clock: &'a dyn Clock,
}

/// The part of shared memory.
pub struct ShmOut<'a> {
    pub outlet: Outlet<'a>,
    pub tx: &'a mut ShmTx,
}

impl ShmOut<'_> {
    #[inline(always)]
    fn again(&mut self) -> ShmOut<'_> {
        ShmOut {
            outlet: self.outlet.again(),
            tx: self.tx,
        }
    }

    /// Sends a control frame, now or as soon as there is room.
    pub fn send_control(&mut self, to: u16, frame: [u8; CONTROL_BYTES]) {
        self.tx.send_control(&mut self.outlet, to, frame);
    }

    /// Copies from a process's memory. One that closes takes back what it lent:
    /// looked at after the copy, its state tells whether the bytes were still
    /// those.
    pub fn copy_from(&mut self, from: u16, remote: u64, into: &mut [u8]) -> Result<(), CopyError> {
        self.outlet.copy_from_peer(from, remote, into)?;
        if self.outlet.peer_state(from).is_gone() {
            return Err(CopyError::Gone);
        }
        Ok(())
    }
}

impl<'a> Out<'a> {
    /// The same for a shorter time.
    #[inline(always)]
    pub fn again(&mut self) -> Out<'_> {
        Out {
            net: self.net.as_deref_mut(),
            shm: self.shm.as_mut().map(ShmOut::again),
            clock: self.clock,
        }
    }

    /// The part of shared memory, of which a frame is in hand.
    #[inline(always)]
    pub fn near(&mut self) -> &mut ShmOut<'a> {
        self.shm.as_mut().expect("one of its frames is in hand")
    }

    /// Queues a message that fits one packet.
    #[inline]
    pub fn net_send(&mut self, peer: PeerId, m: &Message<'_>) -> Result<MessageNo, NetError> {
        match &mut self.net {
            Some(net) => net.send(peer, m),
            None => Err(NetError::BadPeer),
        }
    }

    /// Queues a message of any length.
    pub fn net_send_long(
        &mut self,
        peer: PeerId,
        m: &Message<'_>,
        total: u64,
        source: SourceId,
        release: Release,
    ) -> Result<MessageNo, NetError> {
        match &mut self.net {
            Some(net) => net.send_long(peer, m, total, source, release),
            None => Err(NetError::BadPeer),
        }
    }

    /// Tells a peer to send nothing more of a flow, or to go on.
    pub fn net_stop(&mut self, peer: PeerId, priority: Priority, flow: u16, stop: bool) {
        if let Some(net) = &mut self.net {
            net.set_stopped(peer, priority, flow, stop);
        }
    }

    /// The same of a process of this host.
    pub fn shm_stop(&mut self, peer: u16, priority: Priority, flow: u16, stop: bool) {
        if let Some(shm) = &mut self.shm {
            shm.outlet.set_stopped(peer, priority, flow, stop);
        }
    }

    /// Something is awaited of a peer on the network.
    pub fn net_await(&mut self, peer: PeerId) {
        if let Some(net) = &mut self.net {
            net.await_peer(peer);
        }
    }

    /// Largest payload for [`Out::net_send`].
    #[inline]
    pub fn net_inline_max(&mut self, peer: PeerId, args: usize) -> usize {
        match &mut self.net {
            Some(net) => net.inline_max(peer, args),
            None => 0,
        }
    }

    /// Sends a message that fits one frame.
    #[inline]
    pub fn shm_send(
        &mut self,
        to: u16,
        port: u16,
        o: &SendOptions<'_>,
        payload: &[u8],
    ) -> Result<MessageNo, ShmFailure> {
        match &mut self.shm {
            Some(ShmOut { outlet, tx }) => tx.send(outlet, to, port, o, payload),
            None => Err(ShmFailure::NoPeer),
        }
    }

    /// Begins a message of any length.
    pub fn shm_send_long(
        &mut self,
        to: u16,
        port: u16,
        o: &SendOptions<'_>,
        source: &Source,
        id: SourceId,
    ) -> Result<MessageNo, ShmFailure> {
        match &mut self.shm {
            Some(ShmOut { outlet, tx }) => {
                tx.send_long(outlet, to, port, o, source, id, self.clock)
            }
            None => Err(ShmFailure::NoPeer),
        }
    }

    /// Largest payload for [`Out::shm_send`].
    #[inline]
    pub fn shm_inline_max(&self, args: usize) -> usize {
        self.shm.as_ref().map_or(0, |shm| shm.tx.inline_max(args))
    }

    /// Whether a process of this host may copy from our memory, as far as it
    /// has said so. Asks it where it has not.
    pub fn shm_may_copy(&mut self, to: u16) -> bool {
        match &mut self.shm {
            Some(ShmOut { outlet, tx }) => tx.may_copy(outlet, to),
            None => false,
        }
    }

    /// Whether we can copy from and to the memory of a process of this host.
    pub fn shm_can_copy(&mut self, peer: u16) -> bool {
        (self.shm.as_mut()).is_some_and(|shm| shm.outlet.can_copy(peer))
    }

    /// Lets other processes of this host write to memory, by a key in our table.
    /// `None`: there is no room, or it is forbidden.
    pub fn shm_show(&mut self, key: u64, memory: Exposed) -> Option<RegionId> {
        let shm = self.shm.as_mut()?;
        shm.outlet.publish(key, memory, Permission::Put).ok()
    }

    /// Takes that back. False: somebody still writes there; try again.
    pub fn shm_withdraw(&mut self, entry: RegionId) -> bool {
        (self.shm.as_mut()).is_some_and(|shm| withdraw(&mut shm.outlet, entry))
    }

    /// Copies from address `remote` of a process of this host.
    pub fn shm_copy_from(
        &mut self,
        from: u16,
        remote: u64,
        into: &mut [u8],
    ) -> Result<(), CopyError> {
        let shm = self.shm.as_mut().ok_or(CopyError::Gone)?;
        shm.copy_from(from, remote, into)
    }

    /// Writes to a region of a process of this host, by its key in the table.
    pub fn shm_put(
        &mut self,
        to: u16,
        key: u64,
        offset: u64,
        from: &[IoSlice<'_>],
    ) -> Result<(), OneSidedError> {
        let shm = self.shm.as_mut().ok_or(OneSidedError::NoPeer)?;
        shm.outlet.put(to, key, Place::Offset(offset), from)
    }

    /// Reads from a region of a process of this host, likewise.
    pub fn shm_get(
        &mut self,
        from: u16,
        key: u64,
        offset: u64,
        into: &mut [IoSliceMut<'_>],
    ) -> Result<(), OneSidedError> {
        let shm = self.shm.as_mut().ok_or(OneSidedError::NoPeer)?;
        shm.outlet.get(from, key, Place::Offset(offset), into)
    }
}

pub fn withdraw(outlet: &mut Outlet<'_>, entry: RegionId) -> bool {
    !matches!(outlet.try_withdraw(entry), Err(WithdrawError::InUse(_)))
}
