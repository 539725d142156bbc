//! Peers of an endpoint outside of a job.

use portolan_core::Misuse;
use portolan_wire::KeyAddress;

use crate::space::{Guard, Space};

/// Why a peer was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddPeerError {
    /// The bytes are no address of an endpoint that can be added.
    #[error("no address of an endpoint: {0}; give the 64 bytes that its address() returned")]
    NoAddress(&'static str),
    /// It is the endpoint's own address: it is number 0.
    #[error("the address is the endpoint's own, which is number 0")]
    Myself,
    /// As many peers are there as the setting `peers_max` says.
    #[error("no room for another peer: remove one, or raise the setting peers_max")]
    Full,
    /// See there.
    #[error(transparent)]
    Misuse(#[from] Misuse),
}

impl Space {
    /// Collective calls need ranks that all members number alike.
    pub(super) fn check_job(&self) -> Result<(), Misuse> {
        if self.inner.standalone {
            return Err(Misuse::NoJob);
        }
        Ok(())
    }

    /// Adds a peer that has a public key; it need not be up. Gives its number.
    ///
    /// # Errors
    /// [`AddPeerError`].
    pub fn add(&self, address: &KeyAddress) -> Result<u32, AddPeerError> {
        if !self.inner.standalone {
            return Err(Misuse::InJob.into());
        }
        let mut s = self.enter_open()?;
        let near = s.is_near(address.host);
        let it = s.new_peer(address);
        let added = s.add_peer(&it, near);
        s.end();
        added.ok_or(AddPeerError::Full)
    }

    /// Removes a peer: nothing that it has sent is delivered from now on, operations with
    /// it end with [`portolan_exchange::OpError::PeerDead`], and it hears that. What
    /// was sent to it still arrives if it is connected and each message that it has not
    /// acknowledged fits one packet; else that is dropped. Its number may become another's; what it
    /// sends later comes under a new number, or is refused.
    ///
    /// # Errors
    /// [`Misuse::BadRank`]: nobody has the number. [`Misuse::InJob`].
    pub fn remove_peer(&self, peer: u32) -> Result<(), Misuse> {
        let mut s = self.enter_for_peer(peer)?;
        s.stop_calling(peer);
        let removed = s.engine.remove_peer(peer);
        s.after();
        s.end();
        removed
    }

    /// Takes back that a peer was [added](Self::add), and changes nothing else: what it sends
    /// still comes, operations with it go on, and added again it has the number that it had.
    /// Until then it is as one that has introduced itself: where places are short it makes room
    /// for another, and its number may become another's.
    ///
    /// For interfaces whose tables of addresses are their own.
    ///
    /// # Errors
    /// [`Misuse::BadRank`]: nobody has the number. [`Misuse::InJob`].
    #[doc(hidden)]
    pub fn release_peer(&self, peer: u32) -> Result<(), Misuse> {
        let mut s = self.enter_for_peer(peer)?;
        let released = s.engine.release_peer(peer);
        s.end();
        released
    }

    /// For a call about a peer that was added: none may be in a job, nor about oneself.
    fn enter_for_peer(&self, peer: u32) -> Result<Guard<'_>, Misuse> {
        if !self.inner.standalone {
            return Err(Misuse::InJob);
        }
        let s = self.enter_open()?;
        if peer == self.rank() {
            return Err(Misuse::BadRank);
        }
        Ok(s)
    }
}
