//! What the caller says of the ways to other ranks, and of which of them something is
//! awaited.

use alloc::vec::Vec;

use crate::credit::OVERHEAD;

/// How much of a message leaves before it is asked for, bytes (Push-Pull
/// Messaging, section 2). Messages up to `whole` are pushed whole while the
/// receiver's credit lasts. Of a longer one `first` bytes leave with the offer,
/// BTP(1), and up to `second` more right behind, BTP(2); the receiver pulls the rest.
///
/// Push-zero is all zeros; push-all is `whole` at its largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Push {
    /// Longest message that is pushed whole.
    pub whole: u64,
    /// Bytes of a longer one that its offer carries.
    pub first: u64,
    /// Bytes that follow the offer at once, while the receiver's request is on
    /// its way.
    pub second: u64,
    /// The request leaves when the offer arrives (push-and-acknowledge
    /// overlapping), not when all that was pushed has.
    pub overlap: bool,
    /// Memory is made ready after the first packet of a message or the request has left
    /// (address translation overhead masking), not before.
    pub masking: bool,
}

impl Push {
    /// What suits a network.
    pub const DEFAULT: Self = Self {
        whole: 64 << 10,
        first: 1 << 10,
        second: 15 << 10,
        overlap: true,
        masking: true,
    };

    /// What one message counts at most of what is pushed, bytes: whole, or the
    /// two pushes of a longer one, max(BTP(1), BTP(2)) of Push-Pull Messaging where
    /// the receiver's request comes between them. Here both are kept if it is late.
    #[must_use]
    pub const fn most(&self) -> u64 {
        let two = self.first.saturating_add(self.second);
        let most = if self.whole > two { self.whole } else { two };
        most.saturating_add(OVERHEAD)
    }
}

impl Default for Push {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What carries messages to a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Shared memory, or the rank is this process.
    #[default]
    Host,
    /// The network.
    Network,
}

/// How messages travel by a kind of lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LaneTerms {
    /// How they are pushed.
    pub push: Push,
    /// They meet others' bytes in queues on their way. Default no.
    pub queues: bool,
    /// Bytes that one request asks for at least, of a matched message. Default 0:
    /// [`crate::Config::pull_chunk`] alone says how many.
    pub pull_min: u64,
    /// Its ranks may reach into each other's memory: [`crate::Task::CopyFrom`] and
    /// [`crate::Task::CopyTo`] are worth a try. Default no.
    pub direct: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Rank {
    lane: Lane,
    /// Operations and messages that depend on what it does next, by the network.
    awaited: u32,
    /// In `news`.
    listed: bool,
}

/// All of them, by rank.
#[derive(Debug)]
pub(crate) struct Lanes {
    terms: [LaneTerms; 2],
    ranks: Vec<Rank>,
    /// Ranks of which something is awaited that was not.
    news: Vec<u32>,
}

impl Lanes {
    pub fn new(size: u32, terms: [LaneTerms; 2]) -> Self {
        let mut ranks = Vec::new();
        ranks.resize(size as usize, Rank::default());
        Self {
            terms,
            ranks,
            news: Vec::new(),
        }
    }

    pub fn set(&mut self, rank: u32, lane: Lane) {
        if let Some(it) = self.ranks.get_mut(rank as usize) {
            it.lane = lane;
        }
    }

    pub fn pushes(&self) -> [Push; 2] {
        self.terms.map(|terms| terms.push)
    }

    pub const fn set_pushes(&mut self, [host, network]: [Push; 2]) {
        self.terms[Lane::Host as usize].push = host;
        self.terms[Lane::Network as usize].push = network;
    }

    /// How messages to and from a rank travel.
    #[inline]
    pub fn of(&self, rank: u32) -> &LaneTerms {
        let rank = self.ranks.get(rank as usize);
        &self.terms[rank.map_or(0, |it| it.lane as usize)]
    }

    /// So much more (or less) is awaited of a rank; 0: by a receive that is counted
    /// nowhere. Only of the network somebody wants to know it.
    #[inline]
    pub fn expect(&mut self, rank: u32, more: i32) {
        if let Some(it) = self.ranks.get_mut(rank as usize)
            && it.lane == Lane::Network
        {
            it.awaited = it.awaited.wrapping_add_signed(more);
            if more >= 0 && !it.listed {
                it.listed = true;
                self.news.push(rank);
            }
        }
    }

    pub fn awaits(&self, rank: u32) -> bool {
        (self.ranks.get(rank as usize)).is_some_and(|it| it.awaited > 0)
    }

    #[inline]
    pub const fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    pub fn next_news(&mut self) -> Option<u32> {
        let rank = self.news.pop()?;
        self.ranks[rank as usize].listed = false;
        Some(rank)
    }
}
