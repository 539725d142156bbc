//! How calls and handlers reach the lanes, whichever of them is being read
//! at the time.

use std::io::{IoSlice, IoSliceMut};

use portolan_link::shm::{
    Exposed, OneSidedError, Outlet, Permission, Place, RegionId, WithdrawError,
};
use portolan_proto::{Endpoint as View, Message, PeerId, Release, SendError as NetError, SourceId};
use portolan_seal::Seal;
use portolan_sys::process::CopyError;
use portolan_wire::MessageNo;

use crate::memory::Source;
use crate::message::SendOptions;
use crate::net::NetLane;
use crate::shm::{ShmFailure, ShmLane, ShmTx};

/// The lanes to other processes.
pub(crate) trait Ways {
    /// Queues a message that fits one packet.
    fn net_send(&mut self, peer: PeerId, m: &Message<'_>) -> Result<MessageNo, NetError>;

    /// Queues a message of any length.
    fn net_send_long(
        &mut self,
        peer: PeerId,
        m: &Message<'_>,
        total: u64,
        source: SourceId,
        release: Release,
    ) -> Result<MessageNo, NetError>;

    /// Something is awaited of a peer on the network.
    fn net_await(&mut self, peer: PeerId);

    /// Largest payload for [`Ways::net_send`].
    fn net_inline_max(&mut self, peer: PeerId, args: usize) -> usize;

    /// Sends a message that fits one frame.
    fn shm_send(
        &mut self,
        to: u16,
        port: u16,
        o: &SendOptions<'_>,
        payload: &[u8],
    ) -> Result<MessageNo, ShmFailure>;

    /// Begins a message of any length.
    fn shm_send_long(
        &mut self,
        to: u16,
        port: u16,
        o: &SendOptions<'_>,
        source: &Source,
        id: SourceId,
    ) -> Result<MessageNo, ShmFailure>;

    /// Largest payload for [`Ways::shm_send`].
    fn shm_inline_max(&self, args: usize) -> usize;

    /// Whether a process of this host may copy from our memory, as far as it
    /// has said so. Asks it where it has not.
    fn shm_may_copy(&mut self, to: u16) -> bool;

    /// What is sent to and copied from processes of this host by.
    fn shm_outlet(&mut self) -> Option<Outlet<'_>>;

    /// Whether we can copy from and to the memory of a process of this host.
    fn shm_can_copy(&mut self, peer: u16) -> bool {
        (self.shm_outlet()).is_some_and(|mut outlet| outlet.can_copy(peer))
    }

    /// Lets other processes of this host write to memory, by a key in our table.
    /// `None`: there is no room, or it is forbidden.
    fn shm_show(&mut self, key: u64, memory: Exposed) -> Option<RegionId> {
        let mut outlet = self.shm_outlet()?;
        outlet.publish(key, memory, Permission::Put).ok()
    }

    /// Takes that back. False: somebody still writes there; try again.
    fn shm_withdraw(&mut self, entry: RegionId) -> bool {
        (self.shm_outlet()).is_some_and(|mut outlet| withdraw(&mut outlet, entry))
    }

    /// Copies from address `remote` of a process of this host.
    fn shm_copy_from(&mut self, from: u16, remote: u64, into: &mut [u8]) -> Result<(), CopyError> {
        let mut outlet = self.shm_outlet().ok_or(CopyError::Gone)?;
        copy_from(&mut outlet, from, remote, into)
    }

    /// Writes to a region of a process of this host, by its key in the table.
    fn shm_put(
        &mut self,
        to: u16,
        key: u64,
        offset: u64,
        from: &[IoSlice<'_>],
    ) -> Result<(), OneSidedError> {
        let mut outlet = self.shm_outlet().ok_or(OneSidedError::NoPeer)?;
        outlet.put(to, key, Place::Offset(offset), from)
    }

    /// Reads from a region of a process of this host, likewise.
    fn shm_get(
        &mut self,
        from: u16,
        key: u64,
        offset: u64,
        into: &mut [IoSliceMut<'_>],
    ) -> Result<(), OneSidedError> {
        let mut outlet = self.shm_outlet().ok_or(OneSidedError::NoPeer)?;
        outlet.get(from, key, Place::Offset(offset), into)
    }
}

/// Both lanes, outside of any pass.
pub(crate) struct Both<'a> {
    pub net: Option<&'a mut NetLane>,
    pub shm: Option<&'a mut ShmLane>,
}

/// Within a pass of the network lane.
pub(crate) struct InNet<'a, 'm, S: Seal> {
    pub view: &'a mut View<'m, S>,
    pub now: u64,
    pub shm: Option<&'a mut ShmLane>,
}

/// Within a pass of the shared memory lane.
pub(crate) struct InShm<'a, 'o> {
    pub outlet: &'a mut Outlet<'o>,
    pub tx: &'a mut ShmTx,
    pub net: Option<&'a mut NetLane>,
}

/// The half of [`Ways`] that goes to a shared memory lane or nowhere.
macro_rules! shm_by_lane {
    () => {
        #[inline]
        fn shm_send(
            &mut self,
            to: u16,
            port: u16,
            o: &SendOptions<'_>,
            payload: &[u8],
        ) -> Result<MessageNo, ShmFailure> {
            match &mut self.shm {
                Some(ShmLane { link, tx, .. }) => tx.send(&mut link.outlet(), to, port, o, payload),
                None => Err(ShmFailure::NoPeer),
            }
        }

        fn shm_send_long(
            &mut self,
            to: u16,
            port: u16,
            o: &SendOptions<'_>,
            source: &Source,
            id: SourceId,
        ) -> Result<MessageNo, ShmFailure> {
            match &mut self.shm {
                Some(ShmLane { link, tx, .. }) => {
                    tx.send_long(&mut link.outlet(), to, port, o, source, id)
                }
                None => Err(ShmFailure::NoPeer),
            }
        }

        fn shm_inline_max(&self, args: usize) -> usize {
            self.shm.as_ref().map_or(0, |shm| shm.tx.inline_max(args))
        }

        fn shm_may_copy(&mut self, to: u16) -> bool {
            match &mut self.shm {
                Some(ShmLane { link, tx, .. }) => tx.may_copy(&mut link.outlet(), to),
                None => false,
            }
        }

        fn shm_outlet(&mut self) -> Option<Outlet<'_>> {
            self.shm.as_mut().map(|shm| shm.link.outlet())
        }
    };
}

/// The half of [`Ways`] that goes to a network lane or nowhere.
macro_rules! net_by_lane {
    () => {
        fn net_send(&mut self, peer: PeerId, m: &Message<'_>) -> Result<MessageNo, NetError> {
            match &mut self.net {
                Some(net) => net.send(peer, m),
                None => Err(NetError::BadPeer),
            }
        }

        fn net_send_long(
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

        fn net_await(&mut self, peer: PeerId) {
            if let Some(net) = &mut self.net {
                net.await_peer(peer);
            }
        }

        fn net_inline_max(&mut self, peer: PeerId, args: usize) -> usize {
            self.net
                .as_mut()
                .map_or(0, |net| net.inline_max(peer, args))
        }
    };
}

impl Ways for Both<'_> {
    net_by_lane!();
    shm_by_lane!();
}

impl<S: Seal> Ways for InNet<'_, '_, S> {
    fn net_send(&mut self, peer: PeerId, m: &Message<'_>) -> Result<MessageNo, NetError> {
        self.view.send(self.now, peer, m)
    }

    fn net_send_long(
        &mut self,
        peer: PeerId,
        m: &Message<'_>,
        total: u64,
        source: SourceId,
        release: Release,
    ) -> Result<MessageNo, NetError> {
        self.view
            .send_long(self.now, peer, m, total, source, release)
    }

    fn net_await(&mut self, peer: PeerId) {
        self.view.await_peer(self.now, peer);
    }

    fn net_inline_max(&mut self, peer: PeerId, args: usize) -> usize {
        self.view.inline_max(peer, args)
    }

    shm_by_lane!();
}

impl Ways for InShm<'_, '_> {
    net_by_lane!();

    #[inline]
    fn shm_send(
        &mut self,
        to: u16,
        port: u16,
        o: &SendOptions<'_>,
        payload: &[u8],
    ) -> Result<MessageNo, ShmFailure> {
        self.tx.send(self.outlet, to, port, o, payload)
    }

    fn shm_send_long(
        &mut self,
        to: u16,
        port: u16,
        o: &SendOptions<'_>,
        source: &Source,
        id: SourceId,
    ) -> Result<MessageNo, ShmFailure> {
        self.tx.send_long(self.outlet, to, port, o, source, id)
    }

    fn shm_inline_max(&self, args: usize) -> usize {
        self.tx.inline_max(args)
    }

    fn shm_may_copy(&mut self, to: u16) -> bool {
        self.tx.may_copy(self.outlet, to)
    }

    fn shm_outlet(&mut self) -> Option<Outlet<'_>> {
        Some(self.outlet.again())
    }
}

pub(crate) fn withdraw(outlet: &mut Outlet<'_>, entry: RegionId) -> bool {
    !matches!(outlet.try_withdraw(entry), Err(WithdrawError::InUse(_)))
}

/// Copies from a process's memory. One that closes takes back what it lent:
/// looked at after the copy, its state tells whether the bytes were still
/// those.
pub(crate) fn copy_from(
    outlet: &mut Outlet<'_>,
    from: u16,
    remote: u64,
    into: &mut [u8],
) -> Result<(), CopyError> {
    outlet.copy_from_peer(from, remote, into)?;
    if outlet.peer_state(from).is_gone() {
        return Err(CopyError::Gone);
    }
    Ok(())
}
