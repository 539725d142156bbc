//! Lanes to other ranks, and which ranks are awaited.

use alloc::vec::Vec;

use crate::values::{Lane, LaneTerms, Push};

#[derive(Clone, Copy, Debug, Default)]
struct Rank {
    lane: Lane,
    /// Number of operations and messages that wait for the rank, by the network.
    awaited: u32,
    /// Whether the rank is in `news`.
    listed: bool,
    /// Whether the program knows the rank.
    known: bool,
}

/// Lanes of all ranks, by rank.
#[derive(Debug)]
pub(crate) struct Lanes {
    terms: [LaneTerms; 2],
    ranks: Vec<Rank>,
    /// Ranks that something new waits for, until [`Lanes::next_news`] returns them.
    news: Vec<u32>,
}

impl Lanes {
    pub fn new(size: u32, terms: [LaneTerms; 2]) -> Self {
        let mut lanes = Self {
            terms,
            ranks: Vec::new(),
            news: Vec::new(),
        };
        lanes.grow(size);
        lanes
    }

    /// Grows to `size` ranks.
    pub fn grow(&mut self, size: u32) {
        self.ranks.resize(size as usize, Rank::default());
    }

    pub fn set(&mut self, rank: u32, lane: Lane) {
        if let Some(it) = self.ranks.get_mut(rank as usize) {
            if it.lane != lane {
                // Only network lanes are counted.
                it.awaited = 0;
            }
            it.lane = lane;
        }
    }

    pub fn set_known(&mut self, rank: u32, known: bool) {
        if let Some(it) = self.ranks.get_mut(rank as usize) {
            it.known = known;
        }
    }

    pub fn knows(&self, rank: u32) -> bool {
        (self.ranks.get(rank as usize)).is_some_and(|it| it.known)
    }

    pub fn pushes(&self) -> [Push; 2] {
        self.terms.map(|terms| terms.push)
    }

    pub const fn set_pushes(&mut self, [host, network]: [Push; 2]) {
        self.terms[Lane::Host as usize].push = host;
        self.terms[Lane::Network as usize].push = network;
    }

    /// Terms of the lane to a rank.
    #[inline]
    pub fn of(&self, rank: u32) -> &LaneTerms {
        let rank = self.ranks.get(rank as usize);
        &self.terms[rank.map_or(0, |it| it.lane as usize)]
    }

    /// Adds `more` to the number of operations that wait for a rank; 0 only lists the rank, for a
    /// receive that is not counted. No effect unless the rank's lane is the network.
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
