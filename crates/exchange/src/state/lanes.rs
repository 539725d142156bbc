//! The ways to other ranks, and of which of them something is awaited.

use alloc::vec::Vec;

use crate::values::{Lane, LaneTerms, Push};

#[derive(Clone, Copy, Debug, Default)]
struct Rank {
    lane: Lane,
    /// Operations and messages that depend on what it does next, by the network.
    awaited: u32,
    /// In `news`.
    listed: bool,
    /// The program knows it.
    known: bool,
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
        let mut lanes = Self {
            terms,
            ranks: Vec::new(),
            news: Vec::new(),
        };
        lanes.grow(size);
        lanes
    }

    /// There are so many from now on.
    pub fn grow(&mut self, size: u32) {
        self.ranks.resize(size as usize, Rank::default());
    }

    pub fn set(&mut self, rank: u32, lane: Lane) {
        if let Some(it) = self.ranks.get_mut(rank as usize) {
            if it.lane != lane {
                // It is counted by the network only.
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
