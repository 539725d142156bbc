//! Heads that have arrived. The receiver stores each where it stays until its superstep ends;
//! the process looks for them when it ends that. Nothing is allocated or locked.
//!
//! A process may be one superstep ahead, so each has two places, which it uses in turns. It
//! sends the head of superstep s + 2 only once it has this process's head of s + 1, and that
//! leaves when the places of s are free here.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Most bytes of a head with its log.
pub const HEAD_MAX: usize = 4096;

/// No process.
const NOBODY: u32 = u32::MAX;

struct HeadSlot {
    /// True: [`Heads`] owns `bytes`; false: [`Intake`] owns them.
    full: AtomicBool,
    bytes: UnsafeCell<Vec<u8>>,
}

struct HeadTable {
    /// Two places for each process.
    places: Box<[HeadSlot]>,
    /// Number of full places, for even and for odd supersteps.
    come: [AtomicU32; 2],
    /// Process that sent a malformed head, or one too many.
    broken: AtomicU32,
}

// SAFETY: `full` says which end owns the bytes of a place. Neither end is `Clone`, and each
// hands a place to the other by a release store.
unsafe impl Sync for HeadTable {}

const fn turn(step: u64) -> usize {
    (step & 1) as usize
}

impl HeadTable {
    fn place(&self, from: u32, step: u64) -> Option<&HeadSlot> {
        self.places.get(2 * from as usize + turn(step))
    }
}

/// End of the receiver.
pub struct Intake(Arc<HeadTable>);

/// End of the process.
pub struct Heads(Arc<HeadTable>);

/// Makes the places of `size` processes.
pub fn heads(size: u32) -> (Intake, Heads) {
    let place = |_| HeadSlot {
        full: AtomicBool::new(false),
        bytes: UnsafeCell::new(Vec::new()),
    };
    let shared = Arc::new(HeadTable {
        places: (0..2 * size as usize).map(place).collect(),
        come: [const { AtomicU32::new(0) }; 2],
        broken: AtomicU32::new(NOBODY),
    });
    (Intake(Arc::clone(&shared)), Heads(shared))
}

impl Intake {
    /// Stores a head of superstep `step`, or marks its sender as broken.
    #[inline]
    pub fn put(&mut self, from: u32, step: Option<u64>, head: &[u8]) {
        let shared = &*self.0;
        let place = step.and_then(|step| shared.place(from, step));
        match (place, step) {
            (Some(place), Some(step))
                if head.len() <= HEAD_MAX && !place.full.load(Ordering::Acquire) =>
            {
                // SAFETY: the place is not full, so it belongs to this end, of which there is one.
                let bytes = unsafe { &mut *place.bytes.get() };
                bytes.clear();
                bytes.extend_from_slice(head);
                place.full.store(true, Ordering::Release);
                // Only this end adds.
                let come = &shared.come[turn(step)];
                come.store(come.load(Ordering::Relaxed) + 1, Ordering::Release);
            }
            _ => shared.broken.store(from, Ordering::Release),
        }
    }
}

impl Heads {
    /// Number of heads that have arrived for a superstep.
    #[inline]
    pub fn count(&self, step: u64) -> u32 {
        self.0.come[turn(step)].load(Ordering::Acquire)
    }

    /// Returns a process that sent a malformed head, if any.
    #[inline]
    pub fn broken(&self) -> Option<u32> {
        let who = self.0.broken.load(Ordering::Acquire);
        (who != NOBODY).then_some(who)
    }

    /// Head of a process, if it has arrived.
    #[inline]
    pub fn get(&self, from: u32, step: u64) -> Option<&[u8]> {
        let place = self.0.place(from, step)?;
        if !place.full.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the place is full, so it belongs to this end until `end`, which borrows
        // `self` mutably.
        Some(unsafe { &*place.bytes.get() })
    }

    /// Frees the places of a superstep that has ended.
    #[inline]
    pub fn end(&mut self, step: u64) {
        // Reset before a place is free: nothing is counted meanwhile.
        self.0.come[turn(step)].store(0, Ordering::Relaxed);
        for place in self.0.places.iter().skip(turn(step)).step_by(2) {
            place.full.store(false, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_two_supersteps_stand_beside_each_other() {
        let (mut intake, mut heads) = heads(3);
        intake.put(2, Some(0), b"zero");
        intake.put(2, Some(1), b"one");
        assert_eq!((heads.count(0), heads.count(1)), (1, 1));
        assert_eq!(heads.get(2, 0), Some(&b"zero"[..]));
        assert_eq!(heads.get(2, 1), Some(&b"one"[..]));
        assert_eq!(heads.get(1, 0), None);
        heads.end(0);
        assert_eq!((heads.count(0), heads.count(1)), (0, 1));
        intake.put(2, Some(2), b"two");
        assert_eq!(heads.get(2, 2), Some(&b"two"[..]));
        assert_eq!(heads.broken(), None);
    }

    #[test]
    fn what_is_no_head_is_noted() {
        type Bad<'a> = (u32, Option<u64>, &'a [u8]);
        let long = vec![0; HEAD_MAX + 1];
        let bad: [Bad<'_>; 4] = [
            (7, Some(0), b"of nobody"),
            (1, None, b"short"),
            (1, Some(0), &long),
            // The place is full.
            (0, Some(2), b"too early"),
        ];
        for (from, step, head) in bad {
            let (mut intake, heads) = heads(2);
            intake.put(0, Some(0), b"a head");
            intake.put(from, step, head);
            assert_eq!(heads.broken(), Some(from));
            assert_eq!((heads.count(0), heads.get(0, 0)), (1, Some(&b"a head"[..])));
        }
    }

    #[test]
    fn two_threads_take_turns() {
        const STEPS: u64 = 20_000;
        let (mut intake, mut heads) = heads(1);
        let (go, gone) = std::sync::mpsc::channel();
        let receiver = std::thread::spawn(move || {
            for step in 0..STEPS {
                // As in the protocol: the head of step + 2 comes only after `step` has ended.
                if step >= 2 {
                    assert_eq!(gone.recv(), Ok(step - 2));
                }
                intake.put(0, Some(step), &step.to_le_bytes());
            }
        });
        for step in 0..STEPS {
            while heads.count(step) == 0 {
                std::thread::yield_now();
            }
            assert_eq!(heads.get(0, step), Some(&step.to_le_bytes()[..]));
            heads.end(step);
            let _ = go.send(step);
        }
        receiver.join().unwrap();
        assert_eq!(heads.broken(), None);
    }
}
