//! Others' accesses that are under way.

use super::Spot;
use crate::values::Signal;

/// A put whose bytes are arriving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arriving {
    pub from: u32,
    /// Where its bytes go, and how many.
    pub spot: Spot,
    pub bytes: u64,
    /// The initiator's operation; 0: no answer.
    pub op: u64,
    pub signal: Option<Signal>,
}

/// An answer to a get that has not left, or whose memory is still read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub from: u32,
    pub spot: Spot,
    pub bytes: u64,
    /// The initiator's operation, and where in it.
    pub op: u64,
    pub at: u64,
    pub lent: bool,
}
