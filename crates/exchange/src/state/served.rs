//! Others' accesses that are under way.

use alloc::vec::Vec;

use super::Spot;
use crate::values::{Kind, Signal};

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

/// An answer with bytes that has not left, or whose memory is still read.
#[derive(Debug)]
pub(crate) struct Served {
    pub from: u32,
    pub kind: Kind,
    pub bytes: Told,
    /// The initiator's operation, and where in it.
    pub op: u64,
    pub at: u64,
    pub lent: bool,
    /// The region that was read when this has left, if it is the last of a get's answers.
    pub reads: Option<u64>,
}

/// The bytes of an answer.
#[derive(Debug)]
pub(crate) enum Told {
    /// So many of a region, as they are when it leaves.
    Region(Spot, u64),
    /// These.
    Bytes(Vec<u8>),
}
