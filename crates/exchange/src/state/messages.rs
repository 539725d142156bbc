//! Messages that no receive has met, or whose pushes have not all arrived.

use alloc::vec::Vec;

use super::Arriving;
use crate::values::{OpId, Probed};

/// Where what is missing of a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Nothing is missing.
    Eager,
    /// At its sender, who waits for an answer: its operation, and the address
    /// of the memory where that can be copied from, or 0; whether it helps to copy; whether it
    /// is told when a receive has met it.
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
    /// The request need not wait for the pushes.
    pub overlap: bool,
    /// Its first bytes, as they come.
    pub body: Vec<u8>,
    /// Pushes that have not arrived in full.
    pub pushes: u32,
    /// Pushed bytes that are charged to its sender.
    pub charge: u64,
    /// The receive that it has met, while pushes are missing.
    pub met: Option<OpId>,
    /// It was taken out of the matcher by a claim.
    pub claimed: bool,
    /// Its sender died before it was complete.
    pub lost: bool,
    /// Bytes of the memory for messages of closing senders that it takes.
    pub late: u64,
}

impl Message {
    /// The sender's operation of a message of this rank, if it waits for an answer.
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
    /// Nowhere: they were refused.
    Nowhere,
}

/// A message of the exchange's that arrives in several parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub from: u32,
    pub dest: Dest,
    /// Where its bytes begin in the matched message, or in the get.
    pub at: u64,
    /// It answers a request for so many bytes.
    pub pulled: Option<u64>,
    /// Of some bytes the places are missing.
    pub lacks: bool,
}
