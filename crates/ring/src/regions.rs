//! An endpoint's memory regions, in a table that other processes read before
//! they reach into that memory themselves.
//!
//! | lines | what |
//! | --- | --- |
//! | 1 | word 0: [`Terms`] |
//! | buckets × 4 | eight slots of four words: state, key, start, length |
//!
//! A state is 0 or, from the lowest bit: two bits of [`Rights`], one that says
//! that the slot is published, and the slot's generation.
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

use std::fmt;

use crate::Line;
use crate::atomic::{AtomicU64, Ordering, fence};

const SLOTS: usize = 8;
const SLOT_WORDS: usize = 4;
const BUCKET_LINES: usize = SLOTS * SLOT_WORDS / 8;

const STATE: usize = 0;
const KEY: usize = 1;
const START: usize = 2;
const LENGTH: usize = 3;

const RIGHTS: u64 = 3;
const PUBLISHED: u64 = 1 << 2;
const GENERATION_ONE: u64 = 1 << 3;
/// In the owner's private copy: not published any more, and still in use.
const LEAVING: u64 = 1 << 63;

/// In a user's word: it copies.
const IN_USE: u64 = 1 << 63;

/// Regions at most.
const REGIONS_MAX: u32 = 1 << 16;

/// What others may do with a region; nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rights {
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

impl Rights {
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

/// A range of the owner's address space under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// By which others name it: any 64 bits.
    pub key: u64,
    /// Address of its first byte in the owner's process.
    pub start: u64,
    /// Bytes; `start + length` does not overflow.
    pub length: u64,
    /// What others may do.
    pub rights: Rights,
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
        1 + self.buckets() * BUCKET_LINES
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
    lines: &'m [Line],
    layout: RegionsLayout,
}

impl<'m> RegionTable<'m> {
    /// The table in `lines`, zero at first.
    ///
    /// # Panics
    /// If the layout is not valid, or `lines` not of its length.
    #[must_use]
    pub fn new(lines: &'m [Line], layout: RegionsLayout) -> Self {
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

    /// What stands in a slot with state `state`, as it seems.
    fn entry(&self, slot: usize, state: u64) -> Region {
        let word = |which| self.word(slot, which).load(Ordering::Relaxed);
        Region {
            key: word(KEY),
            start: word(START),
            length: word(LENGTH),
            rights: Rights::of(state),
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
    pub fn hold(&mut self, owner: u16, table: &RegionTable<'_>, key: u64) -> Option<Held<'_>> {
        for slot in table.layout.slots_of(key) {
            let state = table.word(slot, STATE).load(Ordering::Acquire);
            if state & PUBLISHED == 0 || table.word(slot, KEY).load(Ordering::Relaxed) != key {
                continue;
            }
            let region = table.entry(slot, state);
            self.0.store(use_of(owner, slot), Ordering::Relaxed);
            let held = Held {
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
pub struct Held<'u> {
    word: &'u AtomicU64,
    region: Region,
}

impl Held<'_> {
    /// The region.
    #[must_use]
    pub fn region(&self) -> Region {
        self.region
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.word.store(0, Ordering::Release);
    }
}

/// Why a region was not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishError {
    /// One-sided access to this process is forbidden: [`Terms::Forbidden`].
    Forbidden,
    /// No room: so many regions the table holds at most.
    Full(u32),
    /// Another region has this key.
    KeyTaken,
    /// It ends beyond the address space.
    Range,
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forbidden => {
                f.write_str("one-sided access to this process's memory is forbidden here")
            }
            Self::Full(most) => write!(
                f,
                "the table of memory regions, for {most} at most, has no room for another: \
                 withdraw one, or serve this one by messages"
            ),
            Self::KeyTaken => f.write_str("another memory region has this key"),
            Self::Range => f.write_str("the memory region ends beyond the address space"),
        }
    }
}

impl std::error::Error for PublishError {}

/// Why a region is not withdrawn, or not yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithdrawError {
    /// This user still copies. Nobody begins anew; try again.
    InUse(u16),
    /// It has been withdrawn before.
    NoRegion,
}

impl fmt::Display for WithdrawError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse(by) => {
                write!(f, "endpoint {by} of this host still copies: try again")
            }
            Self::NoRegion => f.write_str("this memory region has been withdrawn before"),
        }
    }
}

impl std::error::Error for WithdrawError {}

/// Names a published region to its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionId {
    slot: u32,
    /// The state that was published.
    state: u64,
}

/// The owner's side of a table.
#[derive(Debug)]
pub struct RegionOwner<'m> {
    table: RegionTable<'m>,
    index: u16,
    /// Of each slot. What is free keeps its generation.
    states: Vec<u64>,
    keys: Vec<u64>,
    /// Slots that are not free.
    taken: u32,
    terms: Terms,
}

impl<'m> RegionOwner<'m> {
    /// Owner `index`, whose table is `table`: nothing published so far.
    #[must_use]
    pub fn new(table: RegionTable<'m>, index: u16) -> Self {
        let slots = table.layout.buckets() * SLOTS;
        Self {
            table,
            index,
            states: vec![0; slots],
            keys: vec![0; slots],
            taken: 0,
            terms: Terms::default(),
        }
    }

    /// What users are told of all regions. [`Terms::Forbidden`] ends new
    /// access to those already published too.
    pub fn set_terms(&mut self, terms: Terms) {
        self.terms = terms;
        self.table
            .terms_word()
            .store(terms as u64, Ordering::Release);
    }

    /// Shows a region to all. Its key may be that of one withdrawn just now,
    /// even where somebody still copies there.
    ///
    /// # Errors
    /// [`PublishError`]; nothing has changed.
    pub fn publish(&mut self, region: Region) -> Result<RegionId, PublishError> {
        let layout = self.table.layout;
        if self.terms == Terms::Forbidden {
            return Err(PublishError::Forbidden);
        }
        if region.start.checked_add(region.length).is_none() {
            return Err(PublishError::Range);
        }
        if layout
            .slots_of(region.key)
            .any(|slot| self.states[slot] & PUBLISHED != 0 && self.keys[slot] == region.key)
        {
            return Err(PublishError::KeyTaken);
        }
        let slot = self
            .free_slot(region.key)
            .filter(|_| self.taken < layout.regions)
            .ok_or(PublishError::Full(layout.regions))?;
        let generation = (self.states[slot] & !(RIGHTS | PUBLISHED)) + GENERATION_ONE;
        let state = generation | PUBLISHED | region.rights as u64;
        // Behind the fence in which the slot's last entry was withdrawn: a
        // user that sees any of this sees that that one is gone.
        for (which, value) in [
            (KEY, region.key),
            (START, region.start),
            (LENGTH, region.length),
        ] {
            self.table.word(slot, which).store(value, Ordering::Relaxed);
        }
        self.table.word(slot, STATE).store(state, Ordering::Release);
        self.states[slot] = state;
        self.keys[slot] = region.key;
        self.taken += 1;
        Ok(RegionId {
            slot: slot as u32,
            state,
        })
    }

    /// A free slot in the emptier of the key's buckets.
    fn free_slot(&self, key: u64) -> Option<usize> {
        let is_free = |slot: &usize| self.states[*slot] & (PUBLISHED | LEAVING) == 0;
        let slots = |bucket| bucket * SLOTS..(bucket + 1) * SLOTS;
        let buckets = self.table.layout.buckets_of(key).into_iter().flatten();
        let taken = |bucket: &usize| slots(*bucket).filter(|slot| !is_free(slot)).count();
        slots(buckets.min_by_key(taken)?).find(is_free)
    }

    /// Withdraws a region: nobody begins to copy there any more, and once it
    /// is `Ok` nobody does. `users` are the words of all users, and
    /// `is_over` whether a user has ended and with it all its copying.
    ///
    /// # Errors
    /// [`WithdrawError`].
    pub fn try_withdraw<'w>(
        &mut self,
        id: RegionId,
        users: impl Iterator<Item = (u16, &'w AtomicU64)>,
        mut is_over: impl FnMut(u16) -> bool,
    ) -> Result<(), WithdrawError> {
        let slot = id.slot as usize;
        let leaving = id.state & !PUBLISHED | LEAVING;
        match self.states.get_mut(slot) {
            Some(state) if *state == id.state => {
                *state = leaving;
                self.table.invalidate(slot, id.state);
                // Pairs with a user's between its word and this state.
                fence(Ordering::SeqCst);
            }
            Some(state) if *state == leaving => {}
            _ => return Err(WithdrawError::NoRegion),
        }
        let used = use_of(self.index, slot);
        for (user, word) in users {
            if word.load(Ordering::Acquire) == used && !is_over(user) {
                return Err(WithdrawError::InUse(user));
            }
        }
        self.states[slot] = leaving & !LEAVING;
        self.taken -= 1;
        Ok(())
    }

    /// Makes all regions invalid, without waiting for who copies now.
    pub fn invalidate_all(&mut self) {
        for (slot, state) in self.states.iter_mut().enumerate() {
            if *state & PUBLISHED != 0 {
                self.table.invalidate(slot, *state);
                *state = *state & !PUBLISHED | LEAVING;
            }
        }
        fence(Ordering::SeqCst);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Host {
        lines: Vec<Line>,
        layout: RegionsLayout,
    }

    impl Host {
        fn new(regions: u32) -> Self {
            let layout = RegionsLayout { regions };
            let lines = std::iter::repeat_with(Line::default).take(layout.lines());
            let lines = lines.collect();
            Self { lines, layout }
        }

        fn table(&self) -> RegionTable<'_> {
            RegionTable::new(&self.lines, self.layout)
        }

        fn owner(&self) -> RegionOwner<'_> {
            RegionOwner::new(self.table(), 3)
        }
    }

    fn region(key: u64) -> Region {
        Region {
            key,
            start: key ^ 0x5555,
            length: 10,
            rights: Rights::Get,
        }
    }

    fn found(table: &RegionTable<'_>, key: u64) -> Option<Region> {
        let word = AtomicU64::new(0);
        let found = UseWord::new(&word).hold(3, table, key).map(|h| h.region());
        assert_eq!(word.into_inner(), 0);
        found
    }

    fn withdraw(owner: &mut RegionOwner<'_>, id: RegionId) -> Result<(), WithdrawError> {
        owner.try_withdraw(id, std::iter::empty(), |_| panic!("nobody copies"))
    }

    #[test]
    fn what_is_published_is_found_until_it_is_withdrawn() {
        let host = Host::new(8);
        let mut owner = host.owner();
        for rights in [Rights::None, Rights::Get, Rights::Put, Rights::Both] {
            let region = Region {
                rights,
                ..region(7)
            };
            let id = owner.publish(region).unwrap();
            assert_eq!(found(&host.table(), 7), Some(region));
            assert_eq!(found(&host.table(), 8), None);
            assert_eq!(withdraw(&mut owner, id), Ok(()));
            assert_eq!(found(&host.table(), 7), None);
            assert_eq!(withdraw(&mut owner, id), Err(WithdrawError::NoRegion));
            // The slot is another's now, the old name is still refused.
            let other = owner.publish(region).unwrap();
            assert_eq!(withdraw(&mut owner, id), Err(WithdrawError::NoRegion));
            assert_eq!(withdraw(&mut owner, other), Ok(()));
        }
        let whole = Region {
            key: 0,
            start: 0,
            length: u64::MAX,
            rights: Rights::Both,
        };
        owner.publish(whole).unwrap();
        assert_eq!(found(&host.table(), 0), Some(whole));
        owner.publish(region(u64::MAX)).unwrap();
        owner.invalidate_all();
        assert_eq!(found(&host.table(), 0), None);
        assert_eq!(found(&host.table(), u64::MAX), None);
    }

    #[test]
    fn what_cannot_be_published_is_refused() {
        let host = Host::new(2);
        let mut owner = host.owner();
        let id = owner.publish(region(1)).unwrap();
        assert_eq!(owner.publish(region(1)), Err(PublishError::KeyTaken));
        let beyond = Region {
            start: u64::MAX - 8,
            ..region(2)
        };
        assert_eq!(owner.publish(beyond), Err(PublishError::Range));
        owner.publish(region(2)).unwrap();
        assert_eq!(owner.publish(region(3)), Err(PublishError::Full(2)));
        assert_eq!(withdraw(&mut owner, id), Ok(()));
        owner.set_terms(Terms::Forbidden);
        assert_eq!(owner.publish(region(3)), Err(PublishError::Forbidden));
        assert_eq!(host.table().terms(), Terms::Forbidden);
        owner.set_terms(Terms::Elsewhere);
        assert_eq!(host.table().terms(), Terms::Elsewhere);
        owner.publish(region(3)).unwrap();
        let none = Host::new(0);
        assert_eq!(none.owner().publish(region(1)), Err(PublishError::Full(0)));
        assert_eq!(found(&none.table(), 1), None);
    }

    /// The keys that users choose: as many as there is room for, all found,
    /// over and over.
    #[test]
    fn a_table_takes_all_that_it_is_for() {
        let mut random = 1u64;
        for regions in [1, 3, 4, 5, 100, 1_024] {
            let host = Host::new(regions);
            let mut owner = host.owner();
            for family in 0..6 {
                let keys: Vec<u64> = (0..u64::from(regions))
                    .map(|i| match family {
                        0 => i,
                        1 => i << 12,
                        2 => 0x7fff_0000_0000 + i * 64,
                        3 => i << 48,
                        4 => u64::MAX - i * 7,
                        _ => {
                            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d) + 1;
                            random.rotate_left(32)
                        }
                    })
                    .collect();
                let ids: Vec<_> = keys
                    .iter()
                    .map(|key| owner.publish(region(*key)).unwrap())
                    .collect();
                assert_eq!(
                    owner.publish(region(1 << 62 | 1)),
                    Err(PublishError::Full(regions))
                );
                for key in &keys {
                    assert_eq!(found(&host.table(), *key), Some(region(*key)));
                }
                for id in ids {
                    withdraw(&mut owner, id).unwrap();
                }
            }
        }
    }

    #[test]
    fn a_withdrawal_waits_for_who_copies_and_not_for_the_dead() {
        let host = Host::new(8);
        let mut owner = host.owner();
        let words: [AtomicU64; 3] = Default::default();
        let users = || (0..).zip(&words);
        let table = host.table();
        let id = owner.publish(region(1)).unwrap();
        let other = owner.publish(region(2)).unwrap();
        let mut first = UseWord::new(&words[0]);
        let held = first.hold(3, &table, 1).unwrap();
        // Of another region, and of another owner's in the same slot.
        let mut second = UseWord::new(&words[1]);
        let elsewhere = second.hold(3, &table, 2).unwrap();
        words[2].store(use_of(4, id.slot as usize), Ordering::Relaxed);

        let alive = |_| false;
        let busy = Err(WithdrawError::InUse(0));
        assert_eq!(owner.try_withdraw(id, users(), alive), busy);
        assert_eq!(found(&table, 1), None);
        // The key is free at once, and another slot is taken for it.
        let again = owner.publish(region(1)).unwrap();
        assert_ne!(again.slot, id.slot);
        assert_eq!(owner.try_withdraw(id, users(), alive), busy);
        assert_eq!(owner.try_withdraw(again, users(), alive), Ok(()));
        drop(held);
        assert_eq!(owner.try_withdraw(id, users(), alive), Ok(()));

        // One that was killed says for ever that it copies.
        let dead = |user| user == 1;
        std::mem::forget(elsewhere);
        assert_eq!(
            owner.try_withdraw(other, users(), alive),
            Err(WithdrawError::InUse(1))
        );
        assert_eq!(owner.try_withdraw(other, users(), dead), Ok(()));
    }

    #[test]
    fn a_region_that_still_leaves_takes_room() {
        let host = Host::new(1);
        let mut owner = host.owner();
        let word = AtomicU64::new(0);
        let mut user = UseWord::new(&word);
        let id = owner.publish(region(1)).unwrap();
        let table = host.table();
        let held = user.hold(3, &table, 1).unwrap();
        let users = || std::iter::once((0, &word));
        assert!(owner.try_withdraw(id, users(), |_| false).is_err());
        assert_eq!(owner.publish(region(1)), Err(PublishError::Full(1)));
        drop(held);
        assert_eq!(owner.try_withdraw(id, users(), |_| false), Ok(()));
        owner.publish(region(1)).unwrap();
    }

    /// Whatever is scribbled over the table, looks end, and the owner goes by
    /// what it knows.
    #[test]
    fn garbage_misleads_no_owner() {
        let host = Host::new(16);
        let mut owner = host.owner();
        let table = host.table();
        let mut random = 7u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        for _ in 0..200 {
            let ids: Vec<_> = (0..16)
                .map(|key| owner.publish(region(key)).unwrap())
                .collect();
            for _ in 0..40 {
                let line = &host.lines[next() as usize % host.lines.len()];
                let value = if next() % 2 == 0 { next() } else { next() % 16 };
                line.word(next() as usize % 8)
                    .store(value, Ordering::Relaxed);
            }
            for key in 0..16 {
                let word = AtomicU64::new(next());
                let _ = UseWord::new(&word).hold(3, &table, key);
                let _ = table.terms();
            }
            let garbage = AtomicU64::new(next() & !IN_USE);
            for id in ids {
                let users = std::iter::once((0, &garbage));
                assert_eq!(owner.try_withdraw(id, users, |_| false), Ok(()));
            }
        }
    }
}
