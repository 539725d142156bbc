//! What the network lane needs from the links below it.

use portolan_link::{LinkAddress, LinkError, Looked, RxFrame, TxFrame};

/// One or several networks that carry packets, addressed by path number.
pub trait Network {
    /// Sets the time for the calls that follow, ns.
    fn set_now(&mut self, _now: u64) {}

    /// Sends frames by a network; returns how many were taken, as
    /// [`portolan_link::Link::tx_burst`].
    ///
    /// # Errors
    /// Only when the first frame could not be taken.
    fn tx_burst(&mut self, number: u8, frames: &[TxFrame<'_>]) -> Result<usize, LinkError>;

    /// Makes one quick look for a frame, where the network is one and has such a look.
    fn receive_one(&mut self) -> Looked<'_> {
        Looked::Unknown
    }

    /// Passes received frames to `sink`, about `max` from each network.
    ///
    /// # Errors
    /// [`LinkError::Broken`].
    fn rx_burst(&mut self, max: usize, sink: impl FnMut(RxFrame<'_>)) -> Result<usize, LinkError>;

    /// Passes to `sink` the beginning of each packet whose destination port was reported
    /// unreachable.
    fn take_unreachable(&mut self, _sink: impl FnMut(&[u8])) {}

    /// Returns the largest packets that the interfaces take now, bytes, by path.
    fn sizes_now(&self) -> impl Iterator<Item = (u8, usize)>;

    /// Prepares the descriptors to be waited on.
    ///
    /// # Errors
    /// The first link that cannot.
    fn arm(&mut self) -> Result<(), LinkError> {
        Ok(())
    }

    /// Reverts [`Network::arm`]: the descriptors are not waited on.
    fn disarm(&mut self) {}

    /// Whether the first network has a fast path, which packets may miss.
    fn has_fast_path(&self) -> bool {
        false
    }

    /// Admits only packets with these connection numbers from `peer`.
    fn admit(&mut self, _peer: u32, _numbers: impl Iterator<Item = u32> + Clone) {}

    /// Announces a packet from which `to` may learn our address.
    fn introduce(&mut self, _to: &LinkAddress) {}

    /// Reports that packets to `to` arrive by a detour.
    fn mis_steered(&mut self, _to: &LinkAddress) {}
}
