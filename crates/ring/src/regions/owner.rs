//! The owner's side of a table of memory regions.

use super::{
    GENERATION_ONE, KEY, LENGTH, PUBLISHED, RIGHTS, Region, RegionKey, RegionTable, SALTED, SLOTS,
    START, STATE, Terms, use_of,
};
use crate::atomic::{AtomicU64, Ordering, fence};

/// In the owner's private copy: not published any more, and still in use.
const LEAVING: u64 = 1 << 63;

/// Why a region was not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// One-sided access to this process is forbidden: [`Terms::Forbidden`].
    #[error("one-sided access to this process's memory is forbidden here")]
    Forbidden,
    /// No room: so many regions the table holds at most.
    #[error(
        "the table of memory regions, for {0} at most, has no room for another: withdraw one, or \
         serve this one by messages"
    )]
    Full(u32),
    /// Another region has this key.
    #[error("another memory region has this key")]
    KeyTaken,
    /// It ends beyond the address space.
    #[error("the memory region ends beyond the address space")]
    Range,
}

/// Why a region is not withdrawn, or not yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WithdrawError {
    /// This user still copies. Nobody begins anew; try again.
    #[error("endpoint {0} of this host still copies: try again")]
    InUse(u16),
    /// It has been withdrawn before.
    #[error("this memory region has been withdrawn before")]
    NoRegion,
}

/// Names a published region to its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionId {
    pub(super) slot: u32,
    /// The state that was published.
    state: u64,
}

/// The owner's side of a table.
#[derive(Debug)]
pub struct RegionOwner<'m> {
    table: RegionTable<'m>,
    /// Of each slot. What is free keeps its generation.
    states: Vec<u64>,
    keys: Vec<u64>,
    /// Slots that are not free.
    taken: u32,
    terms: Terms,
}

impl<'m> RegionOwner<'m> {
    /// The owner whose table is `table`: nothing published so far.
    #[must_use]
    pub fn new(table: RegionTable<'m>) -> Self {
        let slots = table.layout.buckets() * SLOTS;
        Self {
            table,
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
            .store(terms as u64, Ordering::SeqCst);
    }

    /// Shows a region to all. Its key may be that of one withdrawn just now,
    /// even where somebody still copies there.
    ///
    /// # Errors
    /// [`PublishError`]; nothing has changed.
    pub fn publish(&mut self, region: Region) -> Result<RegionId, PublishError> {
        let (layout, RegionKey { key, salt }) = (self.table.layout, region.key);
        if self.terms == Terms::Forbidden {
            return Err(PublishError::Forbidden);
        }
        if region.start.checked_add(region.length).is_none() {
            return Err(PublishError::Range);
        }
        if layout
            .slots_of(key)
            .any(|slot| self.states[slot] & PUBLISHED != 0 && self.keys[slot] == key)
        {
            return Err(PublishError::KeyTaken);
        }
        let slot = self
            .free_slot(key)
            .filter(|_| self.taken < layout.regions)
            .ok_or(PublishError::Full(layout.regions))?;
        let generation = (self.states[slot] & !(RIGHTS | PUBLISHED | SALTED)) + GENERATION_ONE;
        let salted = if region.demands_salt { SALTED } else { 0 };
        let state = generation | salted | PUBLISHED | region.rights as u64;
        // Behind the fence in which the slot's last entry was withdrawn: a
        // user that sees any of this sees that that one is gone.
        for (which, value) in [(KEY, key), (START, region.start), (LENGTH, region.length)] {
            self.table.word(slot, which).store(value, Ordering::Relaxed);
        }
        self.table.salt(slot).store(salt, Ordering::Relaxed);
        self.table.word(slot, STATE).store(state, Ordering::Release);
        self.states[slot] = state;
        self.keys[slot] = key;
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
    /// is `Ok` nobody does. `users` are the words of all users, each with the user's number
    /// and what that user calls the owner, and
    /// `is_over` whether a user has ended and with it all its copying.
    ///
    /// # Errors
    /// [`WithdrawError`].
    pub fn try_withdraw<'w>(
        &mut self,
        id: RegionId,
        users: impl Iterator<Item = (u16, u16, &'w AtomicU64)>,
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
        for (user, owner, word) in users {
            if word.load(Ordering::Acquire) == use_of(owner, slot) && !is_over(user) {
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
