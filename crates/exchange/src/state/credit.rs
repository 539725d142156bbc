//! Credit: how many bytes a sender may push before the receiver asks for them. Counts are
//! absolute, bytes since connect, so a repeated report does no harm.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Lines, Outbox};
use crate::values::PUSHED_MIN;

/// State of a rank that messages were exchanged with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// Bytes that we have pushed.
    pub pushed: u64,
    /// Credit limit: bound of `pushed`.
    pub limit: u64,
    /// Bytes that it has pushed.
    pub taken: u64,
    /// Bytes of `taken` that are no longer kept.
    pub freed: u64,
    /// Credit limit last reported to it.
    pub told: u64,
    /// Number of its offers that are kept.
    pub offers: u32,
    /// Number of answers with bytes to it that have not left, or whose memory is still read.
    pub serving: u32,
    /// Number of its puts that have arrived in part.
    pub putting: u32,
    /// Number of its signals that were not delivered to our program yet.
    pub telling: u32,
    /// Pending tasks for it.
    pub lines: Lines,
    pub dead: bool,
    /// Number of messages that were lost when it died.
    pub lost: u64,
}

impl Peer {
    const NEW: Self = Self {
        pushed: 0,
        limit: PUSHED_MIN,
        taken: 0,
        freed: 0,
        told: PUSHED_MIN,
        offers: 0,
        serving: 0,
        putting: 0,
        telling: 0,
        lines: Lines::NONE,
        dead: false,
        lost: 0,
    };

    pub fn new() -> Box<Self> {
        Box::new(Self::NEW)
    }

    /// Bytes that we may push now.
    pub const fn may_push(&self) -> u64 {
        self.limit.saturating_sub(self.pushed)
    }

    /// Bytes that it has pushed and that are kept.
    pub const fn kept(&self) -> u64 {
        self.taken - self.freed
    }

    /// Returns the credit limit to report to it, if the increase is worth a message.
    pub fn limit_update(&mut self, room: Room) -> Option<u64> {
        let limit = self.freed.saturating_add(room.bytes);
        if limit < self.told.saturating_add(room.slack.max(1)) {
            return None;
        }
        self.told = limit;
        Some(limit)
    }
}

/// Room for the pushed bytes of a sender that are kept here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub bytes: u64,
    /// Least increase of its credit limit that is reported, bytes.
    pub slack: u64,
}

impl Room {
    /// Room for `bytes` bytes, of which up to half may be unreported.
    pub const fn of(bytes: u64) -> Self {
        Self {
            bytes,
            slack: bytes / 2,
        }
    }

    /// Room for one push of `bytes` bytes, however many short ones came before it.
    pub const fn for_push(bytes: u64) -> Self {
        let slack = bytes / 8;
        Self {
            bytes: bytes.saturating_add(slack),
            slack,
        }
    }
}

/// All peers, by rank; a rank that was never met takes one pointer.
#[derive(Debug)]
pub(crate) struct Peers {
    pub all: Vec<Option<Box<Peer>>>,
    pub out: Outbox,
}

impl Peers {
    pub fn new(size: u32) -> Self {
        let (all, out) = (Vec::new(), Outbox::default());
        let mut peers = Self { all, out };
        peers.grow(size);
        peers
    }

    /// Grows to `size` ranks.
    pub fn grow(&mut self, size: u32) {
        self.all.resize_with(size as usize, || None);
    }

    /// `None`: no such rank.
    #[inline]
    pub fn get(&mut self, rank: u32) -> Option<&mut Peer> {
        let slot = self.all.get_mut(rank as usize)?;
        Some(slot.get_or_insert_with(Peer::new))
    }

    /// Resets a rank for its new life, in which nothing was pushed yet. Queued tasks, and signals
    /// not yet delivered, stay.
    pub fn renew(&mut self, rank: u32) {
        if let Some(peer) = self.get(rank) {
            let Peer { telling, lines, .. } = *peer;
            *peer = Peer {
                telling,
                lines,
                ..Peer::NEW
            };
        }
    }

    pub fn met(&self) -> impl Iterator<Item = (u32, &Peer)> {
        let all = (0..).zip(&self.all);
        all.filter_map(|(rank, slot)| Some((rank, slot.as_deref()?)))
    }
}

/// Number of last messages that [`IncastDetector`] remembers.
const LAST: usize = 16;

/// Counts the senders of the last long messages that came through queues.
#[derive(Debug)]
pub(crate) struct IncastDetector {
    last: VecDeque<u32>,
    senders: u64,
}

impl IncastDetector {
    pub const fn new() -> Self {
        Self {
            last: VecDeque::new(),
            senders: 0,
        }
    }

    pub fn note(&mut self, from: u32) {
        if self.last.len() == LAST {
            self.last.pop_front();
        }
        self.last.push_back(from);
        self.count();
    }

    /// Forgets a rank of which nothing is in flight any more.
    pub fn forget(&mut self, rank: u32) {
        self.last.retain(|it| *it != rank);
        self.count();
    }

    fn count(&mut self) {
        let first = |(at, rank): &(usize, &u32)| !self.last.iter().take(*at).any(|it| it == *rank);
        self.senders = self.last.iter().enumerate().filter(first).count() as u64;
    }

    /// Number of different senders.
    pub const fn senders(&self) -> u64 {
        self.senders
    }
}
