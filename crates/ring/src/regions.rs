//! An endpoint's memory regions, in a table that other processes read before
//! they reach into that memory themselves.
//!
//! | lines | what |
//! | --- | --- |
//! | 1 | word 0: [`Terms`] |
//! | buckets × 4 | eight slots of four words: state, key, start, length |
//! | buckets | the salts of eight slots |
//!
//! A state is 0 or, from the lowest bit: two bits of [`Permission`], one that says
//! that the slot is published, one that its salt must be known, and the slot's generation.
//!
//! A key may stand in either of two buckets, and an entry never moves: a look
//! reads 16 slots at most, usually the first line of one bucket.
//!
//! Who copies (the user) first names the slot in a word of its own, and then
//! looks whether the slot's state is still the one that it found. The owner
//! withdraws an entry by making it invalid first and looking at all users'
//! words then. Of these two "write, then read the other's" at least one sees
//! the other: either the user leaves the memory alone, or the owner waits. The
//! generation tells the user that key, start and length were of one entry.
//!
//! The owner decides by a private copy alone. A user believes the table, in
//! which garbage gives wrong numbers and nothing worse.

mod owner;

use crate::CacheLine;
use crate::atomic::{AtomicU64, Ordering, fence};

pub use owner::{PublishError, RegionId, RegionOwner, WithdrawError};

const SLOTS: usize = 8;
const SLOT_WORDS: usize = 4;
const BUCKET_LINES: usize = SLOTS * SLOT_WORDS / 8;

const STATE: usize = 0;
const KEY: usize = 1;
const START: usize = 2;
const LENGTH: usize = 3;

const RIGHTS: u64 = 3;
const PUBLISHED: u64 = 1 << 2;
const SALTED: u64 = 1 << 3;
const GENERATION_ONE: u64 = 1 << 4;

/// In a user's word: it copies.
const IN_USE: u64 = 1 << 63;

/// Regions at most.
const REGIONS_MAX: u32 = 1 << 16;

/// What others may do with a region; nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Permission {
    /// Nothing.
    #[default]
    None,
    /// Read it.
    Get,
    /// Write it.
    Put,
    /// Read and write it.
    Both,
}

impl Permission {
    const fn of(state: u64) -> Self {
        match state & RIGHTS {
            0 => Self::None,
            1 => Self::Get,
            2 => Self::Put,
            _ => Self::Both,
        }
    }

    /// Whether others may read.
    #[must_use]
    pub const fn allow_get(self) -> bool {
        matches!(self, Self::Get | Self::Both)
    }

    /// Whether others may write.
    #[must_use]
    pub const fn allow_put(self) -> bool {
        matches!(self, Self::Put | Self::Both)
    }
}

/// What an owner says of all its regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Terms {
    /// All stand in the table (default).
    #[default]
    Complete,
    /// There may be others: a key that is not found is to be asked for.
    Elsewhere,
    /// Nobody may reach into its memory.
    Forbidden,
}

impl Terms {
    const fn of(word: u64) -> Self {
        match word {
            0 => Self::Complete,
            2 => Self::Forbidden,
            _ => Self::Elsewhere,
        }
    }
}

/// By what others name a region: any 64 bits, and a salt that tells regions apart which
/// have the same key one after another. Salt 0: whatever region has the key, unless it
/// [demands its salt](Region::demands_salt).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionKey {
    /// The key.
    pub key: u64,
    /// The salt.
    pub salt: u64,
}

impl From<u64> for RegionKey {
    fn from(key: u64) -> Self {
        Self { key, salt: 0 }
    }
}

/// A range of the owner's address space under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// By which others name it. No two have the same key at once, whatever their salts.
    pub key: RegionKey,
    /// Address of its first byte in the owner's process.
    pub start: u64,
    /// Bytes; `start + length` does not overflow.
    pub length: u64,
    /// What others may do.
    pub rights: Permission,
    /// Whoever names it by salt 0 does not find it.
    pub demands_salt: bool,
}

/// Size of a table. All its users must agree on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionsLayout {
    /// Regions at most, 0 to 65,536; half as many slots stay free.
    pub regions: u32,
}

impl RegionsLayout {
    /// Whether the number is as its description asks.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.regions <= REGIONS_MAX
    }

    /// A power of two, or none. Half full at most: two full buckets are then
    /// as good as never met before the table is full.
    const fn buckets(&self) -> usize {
        match self.regions {
            0 => 0,
            n => (n as usize).div_ceil(SLOTS / 2).next_power_of_two(),
        }
    }

    /// Lines that a table takes.
    #[must_use]
    pub const fn lines(&self) -> usize {
        1 + self.buckets() * (BUCKET_LINES + 1)
    }

    /// The slots where `key` may stand.
    fn slots_of(&self, key: u64) -> impl Iterator<Item = usize> + use<> {
        self.buckets_of(key)
            .into_iter()
            .flatten()
            .flat_map(|bucket| bucket * SLOTS..(bucket + 1) * SLOTS)
    }

    fn buckets_of(&self, key: u64) -> [Option<usize>; 2] {
        let Some(mask) = self.buckets().checked_sub(1) else {
            return [None; 2];
        };
        // Keys are often addresses or count up: both halves depend on all
        // bits (the finisher of splitmix64).
        let mut mixed = key ^ key >> 30;
        mixed = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^= mixed >> 27;
        mixed = mixed.wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let first = mixed as usize & mask;
        let second = (mixed >> 32) as usize & mask;
        match second {
            _ if mask == 0 => [Some(0), None],
            same if same == first => [Some(first), Some(first ^ 1)],
            other => [Some(first), Some(other)],
        }
    }
}

/// A table as its readers see it.
#[derive(Clone, Copy, Debug)]
pub struct RegionTable<'m> {
    lines: &'m [CacheLine],
    layout: RegionsLayout,
}

impl<'m> RegionTable<'m> {
    /// The table in `lines`, zero at first.
    ///
    /// # Panics
    /// If the layout is not valid, or `lines` not of its length.
    #[must_use]
    pub fn new(lines: &'m [CacheLine], layout: RegionsLayout) -> Self {
        assert!(layout.is_valid() && lines.len() == layout.lines());
        Self { lines, layout }
    }

    /// What its owner says of all regions.
    #[must_use]
    pub fn terms(&self) -> Terms {
        Terms::of(self.terms_word().load(Ordering::Acquire))
    }

    fn terms_word(&self) -> &'m AtomicU64 {
        self.lines[0].word(0)
    }

    fn word(&self, slot: usize, which: usize) -> &'m AtomicU64 {
        let at = slot * SLOT_WORDS + which;
        self.lines[1 + at / 8].word(at % 8)
    }

    fn salt(&self, slot: usize) -> &'m AtomicU64 {
        let first = 1 + self.layout.buckets() * BUCKET_LINES;
        self.lines[first + slot / 8].word(slot % 8)
    }

    /// What stands in a slot with state `state`, as it seems.
    fn entry(&self, slot: usize, state: u64) -> Region {
        let word = |which| self.word(slot, which).load(Ordering::Relaxed);
        Region {
            key: RegionKey {
                key: word(KEY),
                salt: self.salt(slot).load(Ordering::Relaxed),
            },
            start: word(START),
            length: word(LENGTH),
            rights: Permission::of(state),
            demands_salt: state & SALTED != 0,
        }
    }

    fn invalidate(&self, slot: usize, state: u64) {
        let invalid = state & !PUBLISHED;
        self.word(slot, STATE).store(invalid, Ordering::Relaxed);
    }
}

/// The word in which a user says what it copies from or to: one for each
/// user, which makes one copy at a time.
#[derive(Debug)]
pub struct UseWord<'m>(&'m AtomicU64);

impl<'m> UseWord<'m> {
    /// A user's own word, zero at first; only it writes there.
    #[must_use]
    pub fn new(word: &'m AtomicU64) -> Self {
        Self(word)
    }

    /// Finds `key` in the table of owner `owner` and keeps the entry from
    /// being withdrawn. `None`: at some time during the call there was none.
    #[must_use]
    pub fn hold(
        &mut self,
        owner: u16,
        table: &RegionTable<'_>,
        key: impl Into<RegionKey>,
    ) -> Option<RegionUse<'_>> {
        let RegionKey { key, salt } = key.into();
        for slot in table.layout.slots_of(key) {
            let state = table.word(slot, STATE).load(Ordering::Acquire);
            if state & PUBLISHED == 0 || table.word(slot, KEY).load(Ordering::Relaxed) != key {
                continue;
            }
            let region = table.entry(slot, state);
            let is_meant = match salt {
                0 => !region.demands_salt,
                salt => region.key.salt == salt,
            };
            if !is_meant {
                continue;
            }
            self.0.store(use_of(owner, slot), Ordering::Relaxed);
            let held = RegionUse {
                word: self.0,
                region,
            };
            // Pairs with the owner's between making invalid and looking here.
            fence(Ordering::SeqCst);
            if table.word(slot, STATE).load(Ordering::Relaxed) == state {
                return Some(held);
            }
            // Withdrawn meanwhile, so the key was gone at some time, wherever
            // it may stand now.
        }
        None
    }
}

const fn use_of(owner: u16, slot: usize) -> u64 {
    IN_USE | (owner as u64) << 32 | slot as u64
}

/// A region that is not withdrawn until this is dropped.
#[derive(Debug)]
pub struct RegionUse<'u> {
    word: &'u AtomicU64,
    region: Region,
}

impl RegionUse<'_> {
    /// The region.
    #[must_use]
    pub fn region(&self) -> Region {
        self.region
    }
}

impl Drop for RegionUse<'_> {
    fn drop(&mut self) {
        self.word.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
