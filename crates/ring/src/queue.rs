//! The fill and the completion ring of one AF_XDP queue, used by several
//! processes that have a socket each on it.
//!
//! The kernel wants one process at a time at its ends of these rings. So they
//! are held under a lock, for at most [`BATCH`] entries of each. A holder that
//! stops is not waited for: the others find the lock [held](QueueTurn::Held)
//! and live on what they have. From a holder that died the lock is robbed,
//! and what it had begun is done: it stands in a log from before its first
//! step to after its last, and doing it twice does it once.
//!
//! | words | content |
//! | --- | --- |
//! | 0 | who holds the lock: a process, or 0 |
//! | 1 | a bit for each part that has had an owner |
//! | 8 | log of the fill ring: place of the first entry, and how many |
//! | 9 | log of the completion ring, likewise |
//! | 16 to 79 | chunks on their way into the fill ring |
//! | 80 to 143 | chunks out of the completion ring, and their states |
//! | 144 on | state of each chunk that is for sending |
//!
//! A chunk for sending belongs to one process. Its state is twice the number
//! of packets that it has carried, plus one while the kernel has it; whoever
//! finds it in the completion ring sets it free. A chunk for receiving belongs
//! to whoever has it: the fill ring, the kernel, or a process. What a process
//! that dies had of these is lost, and is less than it brought along. The first
//! owner of a part brings its chunks along; those after it find them there.

use std::ops::Range;

#[cfg(not(loom))]
use crate::CacheLine;
use crate::Corrupt;
#[cfg(not(loom))]
use crate::atomic::Ordering::{AcqRel, Acquire, Release};

/// Most entries of each ring that are moved while the lock is held.
pub const BATCH: usize = 64;

/// Chunks for sending that are looked at for one that is free: they come back
/// nearly in the order in which they left.
const NEAR: u32 = 8;

const LOCK: usize = 0;
const OWNED: usize = 1;
const FILL_LOG: usize = 8;
const DONE_LOG: usize = 9;
const FILLING: usize = 16;
const DONE: usize = FILLING + BATCH;
const STATES: usize = DONE + BATCH;

/// Words that the processes share. Loads acquire, stores release.
pub trait Words {
    /// Word `at`.
    fn load(&self, at: usize) -> u64;
    /// Sets word `at`.
    fn store(&self, at: usize, value: u64);
    /// Sets word `at` to `to` if it is `from`; gives whether it was.
    fn replace(&self, at: usize, from: u64, to: u64) -> bool;
}

/// A ring of offsets whose other end the kernel has. Loads of counters
/// acquire, stores release.
pub trait Offsets {
    /// How many entries it has: a power of two.
    fn count(&self) -> u32;
    /// Entries that were ever written.
    fn producer(&self) -> u32;
    /// Shows that so many were written.
    fn set_producer(&self, to: u32);
    /// Entries that were ever read.
    fn consumer(&self) -> u32;
    /// Shows that so many were read.
    fn set_consumer(&self, to: u32);
    /// Entry `at`, modulo the count.
    fn entry(&self, at: u32) -> u64;
    /// Writes entry `at`, modulo the count.
    fn set_entry(&self, at: u32, value: u64);
}

#[cfg(not(loom))]
impl Words for [CacheLine] {
    #[inline]
    fn load(&self, at: usize) -> u64 {
        self[at / 8].word(at % 8).load(Acquire)
    }

    #[inline]
    fn store(&self, at: usize, value: u64) {
        self[at / 8].word(at % 8).store(value, Release);
    }

    #[inline]
    fn replace(&self, at: usize, from: u64, to: u64) -> bool {
        let word = self[at / 8].word(at % 8);
        word.compare_exchange(from, to, AcqRel, Acquire).is_ok()
    }
}

/// Lines that a queue with so many chunks for sending needs, of all its
/// processes together.
#[cfg(not(loom))]
#[must_use]
pub const fn queue_lines(tx_chunks: u32) -> usize {
    (STATES + tx_chunks as usize).div_ceil(8)
}

/// How a turn at the rings went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueTurn {
    /// It is done.
    Done,
    /// This process holds the lock.
    Held(u32),
}

/// Entries of a log, and the place of the first.
const fn log(first: u32, count: usize) -> u64 {
    first as u64 | (count as u64) << 32
}

fn unlog(word: u64) -> Result<(u32, usize), Corrupt> {
    let count = (word >> 32) as usize;
    if count > BATCH {
        return Err(Corrupt);
    }
    Ok((word as u32, count))
}

/// One process's part of a queue.
#[derive(Debug)]
pub struct Share<F, C> {
    fill: F,
    completion: C,
    /// This process.
    own: u32,
    /// The first chunk for sending of all, and how many there are.
    tx: (u32, u32),
    /// The first of ours among them, how many, and which is next.
    ours: (u32, u32),
    next: u32,
    /// Chunks for receiving that wait to be given back.
    kept: Vec<u32>,
}

impl<F: Offsets, C: Offsets> Share<F, C> {
    /// Of process `own`, which is not 0, at a queue whose chunks for sending
    /// are the `tx.1` from `tx.0` on; the `ours.1` from `ours.0` on are its
    /// own.
    ///
    /// # Panics
    /// If its own are not among them.
    #[must_use]
    pub fn new(fill: F, completion: C, own: u32, tx: (u32, u32), ours: (u32, u32)) -> Self {
        let within = ours.0 >= tx.0 && ours.0 - tx.0 <= tx.1 && ours.1 <= tx.1 - (ours.0 - tx.0);
        assert!(within && own != 0);
        Self {
            fill,
            completion,
            own,
            tx,
            ours,
            next: 0,
            kept: Vec::new(),
        }
    }

    /// The fill ring.
    pub fn fill(&self) -> &F {
        &self.fill
    }

    /// Whether we are the first owner of part `part`, below 64. We are afterwards
    /// no more.
    pub fn is_first(&self, words: &(impl Words + ?Sized), part: u32) -> bool {
        loop {
            let owned = words.load(OWNED);
            if owned >> part & 1 == 1 {
                return false;
            }
            if words.replace(OWNED, owned, owned | 1 << part) {
                return true;
            }
        }
    }

    /// Nothing that an earlier owner of our part has sent comes back any more: its
    /// chunks are ours.
    pub fn reclaim(&self, words: &(impl Words + ?Sized)) {
        let (first, count) = self.ours;
        for at in (first..first + count).filter_map(|chunk| self.state_of(chunk)) {
            let state = words.load(at);
            if state % 2 == 1 {
                words.replace(at, state, (state + 1) & u64::from(u32::MAX));
            }
        }
    }

    /// Whether what was sent waits to be taken back.
    pub fn has_sent(&self) -> bool {
        self.completion.producer() != self.completion.consumer()
    }

    /// Keeps a chunk for receiving until it is given back.
    #[inline]
    pub fn keep(&mut self, chunk: u32) {
        self.kept.push(chunk);
    }

    /// How many wait to be given back.
    #[inline]
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    fn state_of(&self, chunk: u32) -> Option<usize> {
        let at = chunk.checked_sub(self.tx.0)?;
        (at < self.tx.1).then_some(STATES + at as usize)
    }

    /// Our chunks for sending, if the kernel has none of them.
    pub fn all_to_send(&self, words: &(impl Words + ?Sized)) -> Option<Range<u32>> {
        let (first, count) = self.ours;
        let mut all = first..first + count;
        let is_free = |at| words.load(at).is_multiple_of(2);
        let free = all.all(|chunk| self.state_of(chunk).is_some_and(is_free));
        free.then_some(first..first + count)
    }

    /// Chunks of ours that the kernel does not have, as far as is known, of so
    /// many that are next.
    #[inline]
    fn free(&self, words: &(impl Words + ?Sized), near: u32) -> impl Iterator<Item = u32> {
        let (first, count) = self.ours;
        (self.next..self.next + count.min(near)).filter_map(move |at| {
            let chunk = first + if at < count { at } else { at - count };
            let at = self.state_of(chunk)?;
            words.load(at).is_multiple_of(2).then_some(chunk)
        })
    }

    /// A chunk of ours that the kernel does not have, as far as is known.
    #[inline]
    pub fn chunk_to_send(&self, words: &(impl Words + ?Sized)) -> Option<u32> {
        self.free(words, NEAR).next()
    }

    /// Several of them, as many as `found` takes; false if there are fewer.
    pub fn chunks_to_send(&self, words: &(impl Words + ?Sized), found: &mut [u32]) -> bool {
        let mut free = self.free(words, NEAR + found.len() as u32);
        found.iter_mut().all(|it| {
            let chunk = free.next();
            *it = chunk.unwrap_or_default();
            chunk.is_some()
        })
    }

    /// The kernel is about to get a chunk that [`Self::chunk_to_send`] or
    /// [`Self::chunks_to_send`] gave.
    #[inline]
    pub fn send(&mut self, words: &(impl Words + ?Sized), chunk: u32) {
        if let Some(at) = self.state_of(chunk) {
            words.store(at, words.load(at) | 1);
        }
        let next = chunk - self.ours.0 + 1;
        self.next = if next < self.ours.1 { next } else { 0 };
    }

    /// Gives back what was kept and takes back what was sent, at most
    /// [`BATCH`] of each. `is_dead` says whether the process that holds the
    /// lock has ended; it may say no without looking.
    ///
    /// # Errors
    /// [`Corrupt`]: the lock stays held, and nobody of the queue goes on.
    pub fn exchange(
        &mut self,
        words: &(impl Words + ?Sized),
        is_dead: impl FnOnce(u32) -> bool,
    ) -> Result<QueueTurn, Corrupt> {
        let own = u64::from(self.own);
        if !words.replace(LOCK, 0, own) {
            let holder = words.load(LOCK);
            let process = holder as u32;
            let dead = process != 0 && is_dead(process);
            if !dead || !words.replace(LOCK, holder, own) {
                return Ok(QueueTurn::Held(process));
            }
            self.repair(words)?;
        }
        self.give_back(words)?;
        self.take_back(words)?;
        words.store(LOCK, 0);
        Ok(QueueTurn::Done)
    }

    /// Does what a dead holder had begun.
    fn repair(&self, words: &(impl Words + ?Sized)) -> Result<(), Corrupt> {
        let (first, count) = unlog(words.load(FILL_LOG))?;
        if count > 0 && self.fill.producer() == first {
            self.publish(words, first, count);
        }
        words.store(FILL_LOG, 0);
        let (first, count) = unlog(words.load(DONE_LOG))?;
        if count > 0 {
            self.set_free(words, first, count);
        }
        words.store(DONE_LOG, 0);
        Ok(())
    }

    fn give_back(&mut self, words: &(impl Words + ?Sized)) -> Result<(), Corrupt> {
        if self.kept.is_empty() {
            return Ok(());
        }
        let first = self.fill.producer();
        let used = first.wrapping_sub(self.fill.consumer());
        let room = self.fill.count().checked_sub(used).ok_or(Corrupt)?;
        let count = self.kept.len().min(BATCH).min(room as usize);
        let from = self.kept.len() - count;
        for (n, chunk) in self.kept[from..].iter().enumerate() {
            words.store(FILLING + n, u64::from(*chunk));
        }
        words.store(FILL_LOG, log(first, count));
        // From here on they are the ring's, whatever becomes of us.
        self.kept.truncate(from);
        self.publish(words, first, count);
        words.store(FILL_LOG, 0);
        Ok(())
    }

    fn publish(&self, words: &(impl Words + ?Sized), first: u32, count: usize) {
        for n in 0..count {
            let at = first.wrapping_add(n as u32);
            self.fill.set_entry(at, words.load(FILLING + n));
        }
        self.fill.set_producer(first.wrapping_add(count as u32));
    }

    fn take_back(&mut self, words: &(impl Words + ?Sized)) -> Result<(), Corrupt> {
        let first = self.completion.consumer();
        let waiting = self.completion.producer().wrapping_sub(first);
        if waiting == 0 {
            return Ok(());
        }
        if waiting > self.completion.count() {
            return Err(Corrupt);
        }
        let count = (waiting as usize).min(BATCH);
        for n in 0..count {
            let chunk = self.completion.entry(first.wrapping_add(n as u32)) as u32;
            // One that is none of these is let go.
            let state = self.state_of(chunk).map_or(0, |at| words.load(at));
            words.store(DONE + n, u64::from(chunk) | state << 32);
        }
        words.store(DONE_LOG, log(first, count));
        self.set_free(words, first, count);
        words.store(DONE_LOG, 0);
        Ok(())
    }

    fn set_free(&self, words: &(impl Words + ?Sized), first: u32, count: usize) {
        if self.completion.consumer() == first {
            self.completion
                .set_consumer(first.wrapping_add(count as u32));
        }
        for n in 0..count {
            let entry = words.load(DONE + n);
            let (chunk, state) = (entry as u32, entry >> 32);
            // The state is kept whole in 32 bits: after as many packets an
            // entry would have to be this old to be taken for another.
            if state % 2 == 1
                && let Some(at) = self.state_of(chunk)
            {
                words.replace(at, state, (state + 1) & u64::from(u32::MAX));
            }
        }
    }
}
