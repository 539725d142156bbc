//! Who may push how much before anybody asks for it. Counts are absolute, of
//! bytes since connect, so a count that is told twice does no harm.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Lines, Outbox};
use crate::values::PUSHED_MIN;

/// What is known of a rank that messages were exchanged with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// Bytes that we have pushed.
    pub pushed: u64,
    /// Bytes that we may have pushed.
    pub limit: u64,
    /// Bytes that it has pushed.
    pub taken: u64,
    /// Those of them that are no longer kept.
    pub freed: u64,
    /// What it was told that it may have pushed.
    pub told: u64,
    /// Offers of its that are kept.
    pub offers: u32,
    /// Its gets whose answers have not left, or whose memory is still read.
    pub serving: u32,
    /// Its puts that have arrived in part.
    pub putting: u32,
    /// Its signals that our program has not been told.
    pub telling: u32,
    /// What is to be done with it.
    pub lines: Lines,
    pub dead: bool,
    /// Messages that were lost when it died.
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

    /// What we may push now.
    pub const fn may_push(&self) -> u64 {
        self.limit.saturating_sub(self.pushed)
    }

    /// Bytes of its that are kept.
    pub const fn kept(&self) -> u64 {
        self.taken - self.freed
    }

    /// What it is to be told, if that is worth a message.
    pub fn limit_update(&mut self, room: Room) -> Option<u64> {
        let limit = self.freed.saturating_add(room.bytes);
        if limit < self.told.saturating_add(room.slack.max(1)) {
            return None;
        }
        self.told = limit;
        Some(limit)
    }
}

/// What a sender may have kept here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub bytes: u64,
    /// It is told of free room when it does not know of so much.
    pub slack: u64,
}

impl Room {
    /// So many bytes, of which it need not know the half.
    pub const fn of(bytes: u64) -> Self {
        Self {
            bytes,
            slack: bytes / 2,
        }
    }

    /// Enough for a push of so many bytes, however many short ones came before it.
    pub const fn for_push(bytes: u64) -> Self {
        let slack = bytes / 8;
        Self {
            bytes: bytes.saturating_add(slack),
            slack,
        }
    }
}

/// All of them, by rank; those that were never met take a pointer.
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

    /// There are so many from now on.
    pub fn grow(&mut self, size: u32) {
        self.all.resize_with(size as usize, || None);
    }

    /// `None`: there is no such rank.
    #[inline]
    pub fn get(&mut self, rank: u32) -> Option<&mut Peer> {
        let slot = self.all.get_mut(rank as usize)?;
        Some(slot.get_or_insert_with(Peer::new))
    }

    /// It begins anew: nothing was pushed in its new life. What its life before has
    /// told our program stays told.
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

/// Long messages that it looks back on.
const LAST: usize = 16;

/// Who has sent the last long messages that met queues.
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

    /// Nothing of a rank is under way any more.
    pub fn forget(&mut self, rank: u32) {
        self.last.retain(|it| *it != rank);
        self.count();
    }

    fn count(&mut self) {
        let first = |(at, rank): &(usize, &u32)| !self.last.iter().take(*at).any(|it| it == *rank);
        self.senders = self.last.iter().enumerate().filter(first).count() as u64;
    }

    /// How many they are.
    pub const fn senders(&self) -> u64 {
        self.senders
    }
}
