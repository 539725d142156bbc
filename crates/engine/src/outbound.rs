//! The sending halves of both lanes, usable while either lane is read.

mod choice;
pub mod frame;
mod gathering;
mod net;
mod shm;

use portolan_link::memory::CopyError;
use portolan_link::shm::{Outlet, RegionId, WithdrawError};
use portolan_proto::SendError as NetError;

use self::frame::CONTROL_BYTES;
pub(crate) use self::gathering::Gathering;
pub use self::net::{Credentials, NetTx, NewPeer, ProtoTables, Suites};
pub use self::shm::{Proof, STREAMED_MIN, ShmFailure, ShmTx, why};
use crate::environment::Clock;

/// The sending halves of an endpoint's lanes, and its clock.
pub struct Outbound<'a> {
    pub(crate) net: Option<&'a mut NetTx>,
    pub(crate) shm: Option<ShmOut<'a>>,
    pub(crate) clock: &'a dyn Clock,
}

/// The sending half of the shared memory lane.
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

    /// Copies from a process's memory. A process that closes or leaves us may reuse what it
    /// lent. So its state is checked after the copy: [`CopyError::Gone`] if the bytes may have
    /// changed.
    pub fn copy_from(&mut self, from: u16, remote: u64, into: &mut [u8]) -> Result<(), CopyError> {
        self.outlet.copy_from_peer(from, remote, into)?;
        if self.outlet.peer_state(from).is_gone() || self.outlet.has_left(from) {
            return Err(CopyError::Gone);
        }
        Ok(())
    }
}

impl<'a> Outbound<'a> {
    /// Reborrows for a shorter time.
    #[inline(always)]
    pub fn again(&mut self) -> Outbound<'_> {
        Outbound {
            net: self.net.as_deref_mut(),
            shm: self.shm.as_mut().map(ShmOut::again),
            clock: self.clock,
        }
    }

    /// Returns the half for shared memory, which exists: the caller handles one of its frames.
    #[inline(always)]
    pub fn near(&mut self) -> &mut ShmOut<'a> {
        self.shm.as_mut().expect("one of its frames is in hand")
    }

    /// Returns the half for the network, if there is one.
    #[inline]
    pub fn net(&mut self) -> Result<&mut NetTx, NetError> {
        self.net.as_deref_mut().ok_or(NetError::BadPeer)
    }

    /// Returns the half for shared memory, if there is one.
    #[inline]
    pub fn shm(&mut self) -> Result<&mut ShmOut<'a>, ShmFailure> {
        self.shm.as_mut().ok_or(ShmFailure::NoPeer)
    }
}

pub fn withdraw(outlet: &mut Outlet<'_>, entry: RegionId) -> bool {
    !matches!(outlet.try_withdraw(entry), Err(WithdrawError::InUse(_)))
}
