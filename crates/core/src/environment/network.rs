//! What the network lane needs of the links below it.

use portolan_link::{LinkAddress, LinkError, RxFrame, TxFrame};

/// One or several networks that carry packets, by the numbers of their paths.
pub trait Network {
    /// The time of what follows, ns.
    fn set_now(&mut self, _now: u64) {}

    /// Sends frames by a network; returns how many were taken, as
    /// [`portolan_link::Link::tx_burst`].
    ///
    /// # Errors
    /// Only when the first frame could not be taken.
    fn tx_burst(&mut self, number: u8, frames: &[TxFrame<'_>]) -> Result<usize, LinkError>;

    /// Shows what has arrived, about `max` frames from each network.
    ///
    /// # Errors
    /// [`LinkError::Broken`].
    fn rx_burst(&mut self, max: usize, sink: impl FnMut(RxFrame<'_>)) -> Result<usize, LinkError>;

    /// Shows the beginning of each packet that came back: nobody listens where it
    /// was sent to.
    fn take_unreachable(&mut self, _sink: impl FnMut(&[u8])) {}

    /// The largest packets that their interfaces take now, bytes.
    fn sizes_now(&self) -> impl Iterator<Item = (u8, usize)>;

    /// Makes its descriptors fit to be waited on.
    ///
    /// # Errors
    /// The first link that cannot.
    fn arm(&mut self) -> Result<(), LinkError> {
        Ok(())
    }

    /// Nobody waits on its descriptors.
    fn disarm(&mut self) {}

    /// Whether the first network has a fast path, which packets may miss.
    fn has_fast_path(&self) -> bool {
        false
    }

    /// Packets of `peer` carry these connection numbers and no others.
    fn admit(&mut self, _peer: u32, _numbers: impl Iterator<Item = u32> + Clone) {}

    /// A packet to `to` follows from which that may learn our address.
    fn introduce(&mut self, _to: &LinkAddress) {}

    /// Packets to `to` arrive by a detour.
    fn mis_steered(&mut self, _to: &LinkAddress) {}
}
