//! Accesses of other ranks that are in flight.

use alloc::vec::Vec;

use super::Spot;
use crate::values::{Kind, Signal};

/// A put whose bytes are arriving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arriving {
    pub from: u32,
    /// Place and number of its bytes.
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
    /// The initiator's operation, and the offset in it.
    pub op: u64,
    pub at: u64,
    pub lent: bool,
    /// Set in the last answer of a get: region whose read is counted when this has left.
    pub reads: Option<u64>,
}

/// The bytes of an answer.
#[derive(Debug)]
pub(crate) enum Told {
    /// This number of bytes of a region, as they are when the answer leaves.
    Region(Spot, u64),
    /// Bytes that were read before.
    Bytes(Vec<u8>),
}
