//! Peers of an endpoint outside of a job.

use portolan_engine::Misuse;
use portolan_wire::KeyAddress;

use crate::space::{Guard, Space};

/// Why a peer was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddPeerError {
    /// The bytes are no address of an endpoint that can be added.
    #[error("no address of an endpoint: {0}; give the 64 bytes that its address() returned")]
    NoAddress(&'static str),
    /// The address is the endpoint's own, which is number 0.
    #[error("the address is the endpoint's own, which is number 0")]
    Myself,
    /// There are as many peers as the setting `peers_max` allows.
    #[error("no room for another peer: remove one, or raise the setting peers_max")]
    Full,
    /// The call is not possible here: see [`Misuse`].
    #[error(transparent)]
    Misuse(#[from] Misuse),
}

impl Space {
    /// Refuses collective calls outside of a job: they need ranks that all members number alike.
    pub(super) fn check_job(&self) -> Result<(), Misuse> {
        if self.inner.standalone {
            return Err(Misuse::NoJob);
        }
        Ok(())
    }

    /// Adds a peer that has a public key; it need not be up. Returns its number.
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

    /// Removes a peer: nothing that it has sent is delivered from now on, operations with it end
    /// with [`portolan_exchange::OpError::PeerDead`], and it is notified. What was sent to it still
    /// arrives if it is connected and each message that it has not acknowledged fits one packet;
    /// else that is dropped. Its number may be reused; what it sends later comes under a new
    /// number, or is refused.
    ///
    /// # Errors
    /// [`Misuse::BadRank`]: no peer has the number. [`Misuse::InJob`].
    pub fn remove_peer(&self, peer: u32) -> Result<(), Misuse> {
        let mut s = self.enter_for_peer(peer)?;
        s.stop_calling(peer);
        let removed = s.engine.remove_peer(peer);
        s.notify_progress();
        s.end();
        removed
    }

    /// Takes back that a peer was [added](Self::add), and changes nothing else: what it sends still
    /// comes, operations with it go on, and added again it has the same number. Until then it
    /// counts as one that has introduced itself: if places are short it makes room for another, and
    /// its number may be reused.
    ///
    /// For interfaces with address tables of their own.
    ///
    /// # Errors
    /// [`Misuse::BadRank`]: no peer has the number. [`Misuse::InJob`].
    #[doc(hidden)]
    pub fn release_peer(&self, peer: u32) -> Result<(), Misuse> {
        let mut s = self.enter_for_peer(peer)?;
        let released = s.engine.release_peer(peer);
        s.end();
        released
    }

    /// Enters for a call about an added peer: refused in a job, and for this endpoint itself.
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
