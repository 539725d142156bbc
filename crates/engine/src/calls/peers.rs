//! Peers of an endpoint outside of a job.

use portolan_core::Misuse;
use portolan_wire::KeyAddress;

use crate::space::Space;

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
        if !self.inner.standalone {
            return Err(Misuse::InJob);
        }
        let mut s = self.enter_open()?;
        if peer == self.rank() {
            return Err(Misuse::BadRank);
        }
        s.stop_calling(peer);
        let removed = s.engine.remove_peer(peer);
        s.after();
        s.end();
        removed
    }
}
