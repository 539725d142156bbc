//! Messages that no receive has met, or whose pushes have not all arrived.

use alloc::vec::Vec;

use super::Arriving;
use crate::values::{OpId, Probed};

/// Where the missing bytes of a message are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Nothing is missing.
    Eager,
    /// At the sender, which waits for an answer. `op`: the sender's operation; `address`: where
    /// its memory can be copied from, or 0; `shares`: it helps to copy; `sync`: it waits for a
    /// receive.
    Offer {
        op: u64,
        address: u64,
        shares: bool,
        sync: bool,
    },
    /// In memory of this process.
    Local(OpId),
}

#[derive(Debug)]
pub(crate) struct Message {
    pub what: Probed,
    pub origin: Origin,
    /// The request for the rest need not wait for the pushes.
    pub overlap: bool,
    /// Pushed bytes, as they arrive.
    pub body: Vec<u8>,
    /// Number of pushes that have not arrived in full.
    pub pushes: u32,
    /// Pushed bytes that are charged to the sender.
    pub charge: u64,
    /// The receive that it has met, while pushes are missing.
    pub met: Option<OpId>,
    /// Taken out of the matcher by a claim.
    pub claimed: bool,
    /// The sender died before the message was complete.
    pub lost: bool,
    /// Bytes of [`Late`](super::Late) memory held.
    pub late: u64,
}

impl Message {
    /// Operation of the sender `rank`, if it waits for an answer to this message.
    pub fn offer_of(&self, rank: u32) -> Option<u64> {
        match self.origin {
            Origin::Offer { op, .. } if self.what.from == rank => Some(op),
            _ => None,
        }
    }
}

/// Where the bytes of a push, a put or an answer go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dest {
    /// To a receive's memory.
    Receive(OpId),
    /// To a message that is kept.
    Message(u64),
    /// To a region, for a put.
    Put(Arriving),
    /// To a get's memory.
    Get(OpId),
    /// Nowhere: the put was refused.
    Nowhere,
}

/// A payload that arrives in several parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub from: u32,
    pub dest: Dest,
    /// Offset of its bytes in the matched message or the get.
    pub at: u64,
    /// Bytes of the request that it answers, if it does.
    pub pulled: Option<u64>,
    /// Some bytes had no memory to be written to.
    pub lacks: bool,
}
