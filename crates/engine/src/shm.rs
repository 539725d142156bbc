//! The lane through shared memory: the protocol's chunks in ring slots, and
//! long messages either streamed through the ring or copied at once by the
//! receiver out of the sender's memory. Its sending half is in `outbound`.
//!
//! A frame is a head or body chunk as `wire` defines it, or one of these:
//!
//! | first byte | what | bytes that follow |
//! | --- | --- | --- |
//! | 0x80 | ask: can you copy from my memory? | |
//! | 0x81 | answer | 1: yes or no |
//! | 0x82 | offer: a long message, to be copied | 7 unused, address 8, operation 8, head chunk without payload |
//! | 0x83 | done with an offer | 1: refused, 6 unused, operation 8 |
//! | 0x84 | mark: return this when you have read all before it | 1: returned, 6 unused, number 8 |
//! | 0x85 | part: nothing more comes at this priority, and nothing more is taken | 1: the priority |
//!
//! Outside of a job, each of two peers that share memory sends *part* when it is done with the
//! other. The memory is released when both have.

mod receive;

use portolan_link::shm::{PeerState, ShmPort};
use portolan_wire::Priority;

pub(crate) use self::receive::{ShmRx, hand_over_whole};
use crate::outbound::frame::{PART, control};
use crate::outbound::{ShmOut, ShmTx, why};
use crate::values::{Death, FLOWS_ALL};

const FLOWS: usize = FLOWS_ALL as usize;

/// The shared memory lane.
#[derive(Debug)]
pub struct ShmLane {
    /// The port by which it sends and receives.
    pub link: ShmPort,
    /// The sending half's own state.
    pub tx: ShmTx,
    /// The receiving half's own state.
    pub(crate) rx: ShmRx,
    /// Rank of each index, dead or alive; [`NOBODY`] for none.
    places: Vec<u32>,
    /// Outside of a job: indices of peers that have parted, or are gone, and not yet free.
    leaving: Vec<u16>,
    /// Where the search for a free index begins.
    next: u16,
    /// The last pass left a frame where it was.
    pub blocked: bool,
}

/// No rank.
const NOBODY: u32 = u32::MAX;

impl ShmLane {
    /// Makes the lane. `ranks`: index and rank of each other. Messages longer than `cached_max`
    /// bytes do not stay in the caches.
    pub fn new(link: ShmPort, ranks: &[(u16, u32)], copy_min: usize, cached_max: u64) -> Self {
        let endpoints = link.endpoints() as usize;
        let frame_max = link.frame_bytes_max();
        let mut by_index = vec![NOBODY; endpoints];
        for (index, rank) in ranks {
            if let Some(slot) = by_index.get_mut(*index as usize) {
                *slot = *rank;
            }
        }
        Self {
            tx: ShmTx::new(endpoints, frame_max, copy_min),
            places: by_index.clone(),
            leaving: Vec::new(),
            next: 1,
            rx: ShmRx::new(endpoints, by_index, frame_max, cached_max),
            link,
            blocked: false,
        }
    }

    /// Whether nothing waits: the usual case while an answer is awaited. Ends then a row of short
    /// messages.
    #[inline(always)]
    pub fn note_if_quiet(&mut self) -> bool {
        let quiet = !self.tx.has_work() && self.link.is_quiet();
        if quiet {
            self.link.end_streak();
            self.blocked = false;
        }
        quiet
    }

    /// Returns the sending half.
    #[inline(always)]
    pub fn sender(&mut self) -> ShmOut<'_> {
        ShmOut {
            outlet: self.link.outlet(),
            tx: &mut self.tx,
        }
    }

    /// Drops what was in flight with a peer.
    pub fn forget(&mut self, index: u16) {
        self.tx.forget(index);
        self.rx.forget(index);
        self.link.forget_stops(index);
    }

    /// Returns the ranks whose endpoints are gone without a report, and why.
    pub fn gone(&self) -> Vec<(u32, Death)> {
        let state = |index: usize| self.link.peer_state(index as u16);
        (self.rx.ranks().iter().enumerate())
            .filter(|(index, rank)| **rank != NOBODY && state(*index).is_gone())
            .map(|(index, rank)| (*rank, why(state(index))))
            .collect()
    }

    /// Notes that a rank's process has ended, even if the rank was marked dead before: it holds
    /// nothing of ours any more.
    pub fn mark_dead(&mut self, rank: u32) {
        if let Some(index) = self.places.iter().position(|of| *of == rank) {
            self.link.mark_dead(index as u16);
        }
    }

    /// Refines `said`, the reported end of a peer: it may have closed, or removed us, before.
    pub fn why(&self, index: u16, said: Death) -> Death {
        match self.link.peer_state(index) {
            PeerState::Closed if said.is_end() => Death::Closed,
            PeerState::Alive if said == Death::Ended && self.link.has_left(index) => Death::Removed,
            _ => said,
        }
    }

    /// Stops checks on a peer.
    pub fn settle(&mut self, index: u16) {
        self.rx.settle(index);
    }

    /// Returns a free index: not one that was released lately, if there is another.
    pub fn free_index(&mut self) -> Option<u16> {
        let is_free = |index: &u16| {
            self.places[usize::from(*index)] == NOBODY && !self.leaving.contains(index)
        };
        let known = self.places.len() as u16;
        let most = self.link.endpoints_max();
        let index = if known < most {
            known
        } else {
            let all = (self.next..known).chain(1..self.next);
            all.into_iter().find(is_free)?
        };
        self.next = if index + 1 < most { index + 1 } else { 1 };
        Some(index)
    }

    /// Assigns a free index to a rank outside of a job.
    pub fn begin(&mut self, index: u16, rank: u32) {
        let endpoints = self.places.len().max(usize::from(index) + 1);
        self.places.resize(endpoints, NOBODY);
        self.places[usize::from(index)] = rank;
        self.tx.begin(index);
        self.rx.begin(index, rank);
        self.link.set_awaited(index, true);
    }

    /// Returns the index of a rank, if memory is shared with it.
    pub fn index_of(&self, rank: u32) -> Option<u16> {
        let at = self.rx.ranks().iter().position(|of| *of == rank)?;
        (self.link.has(at as u16)).then_some(at as u16)
    }

    /// Returns the rank that was quiet longest, among those that `of` accepts.
    pub fn quietest(&self, of: impl Fn(u32) -> bool) -> Option<u32> {
        let all = (0..).zip(self.rx.ranks()).filter(|(_, rank)| of(**rank));
        // A peer with a ring has sent much lately.
        let quiet = |(index, _): &(u16, &u32)| (self.link.has_ring(*index), self.rx.used(*index));
        all.min_by_key(quiet).map(|(_, rank)| *rank)
    }

    /// Frees an index that [`ShmLane::begin`] assigned, and under which no peer was met.
    pub fn unbegin(&mut self, index: u16) {
        self.rx.settle(index);
        self.places[usize::from(index)] = NOBODY;
        self.link.set_awaited(index, false);
    }

    /// Gives up a peer that never learned its index, though its memory is mapped: it writes
    /// nothing.
    pub fn abandon(&mut self, index: u16) {
        self.unbegin(index);
        self.rx.set_parted(index);
        // The mapping goes, and the index is free, once nothing waits in the inbox.
        self.leaving.push(index);
    }

    /// Parts from a peer outside of a job: it is told, if it lives. Its index and its memory
    /// are released when it writes nothing more.
    pub fn part(&mut self, index: u16) {
        self.forget(index);
        self.settle(index);
        let outlet = &mut self.link.outlet();
        outlet.leave(index);
        for priority in Priority::BY_URGENCY {
            let frame = control(PART, priority.index() as u8, 0);
            self.tx.send_control(outlet, index, frame);
        }
        self.places[usize::from(index)] = NOBODY;
        self.leaving.push(index);
    }

    /// Releases indices and memory of peers that write nothing more; returns the indices.
    pub fn free_left(&mut self) -> Vec<u16> {
        let mut freed = Vec::new();
        let Self {
            link,
            tx,
            rx,
            leaving,
            ..
        } = self;
        leaving.retain(|&index| {
            let gone = link.peer_state(index).is_gone();
            let over = gone || (rx.has_parted(index) && !tx.owes(index));
            if !over || !link.disconnect(index) {
                return true;
            }
            tx.forget(index);
            freed.push(index);
            false
        });
        freed
    }

    /// Returns the rank of each index, [`NOBODY`] for one that is gone.
    pub fn ranks(&self) -> &[u32] {
        self.rx.ranks()
    }

    /// Whether nothing waits for room.
    pub fn idle(&self) -> bool {
        !self.tx.has_work()
    }
}
