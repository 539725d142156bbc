//! Heads that have come. Who receives them puts each where it stays until its superstep
//! ends; the process looks for them when it ends that. Nothing is allocated or locked.
//!
//! A process may be one superstep ahead, so each has two places, which it uses in turns: it
//! sends the head of the superstep after the next only once it has this process's of the
//! next, and that leaves when this one's places of the superstep before are free.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Most bytes of a head with its log.
pub const HEAD_MAX: usize = 4096;

/// No process.
const NOBODY: u32 = u32::MAX;

struct Place {
    /// The process owns `bytes`; else who receives.
    full: AtomicBool,
    bytes: UnsafeCell<Vec<u8>>,
}

struct Shared {
    /// Two of each process.
    places: Box<[Place]>,
    /// How many are full, of the even and the odd supersteps.
    come: [AtomicU32; 2],
    /// A process that sent what is no head, or too many.
    broken: AtomicU32,
}

// SAFETY: the bytes of a place belong to the one end or the other, as `full` says. Each end
// is not `Clone`, and gives it to the other by a store that releases.
unsafe impl Sync for Shared {}

const fn turn(step: u64) -> usize {
    (step & 1) as usize
}

impl Shared {
    fn place(&self, from: u32, step: u64) -> Option<&Place> {
        self.places.get(2 * from as usize + turn(step))
    }
}

/// The end of who receives.
pub struct Intake(Arc<Shared>);

/// The end of the process.
pub struct Heads(Arc<Shared>);

/// The places of so many processes.
pub fn heads(size: u32) -> (Intake, Heads) {
    let place = |_| Place {
        full: AtomicBool::new(false),
        bytes: UnsafeCell::new(Vec::new()),
    };
    let shared = Arc::new(Shared {
        places: (0..2 * size as usize).map(place).collect(),
        come: [const { AtomicU32::new(0) }; 2],
        broken: AtomicU32::new(NOBODY),
    });
    (Intake(Arc::clone(&shared)), Heads(shared))
}

impl Intake {
    /// A head has come, of the superstep that it says itself.
    #[inline]
    pub fn put(&mut self, from: u32, step: Option<u64>, head: &[u8]) {
        let shared = &*self.0;
        let place = step.and_then(|step| shared.place(from, step));
        match (place, step) {
            (Some(place), Some(step))
                if head.len() <= HEAD_MAX && !place.full.load(Ordering::Acquire) =>
            {
                // SAFETY: it is not full, so it belongs to this end, of which there is one.
                let bytes = unsafe { &mut *place.bytes.get() };
                bytes.clear();
                bytes.extend_from_slice(head);
                place.full.store(true, Ordering::Release);
                // Nobody else adds.
                let come = &shared.come[turn(step)];
                come.store(come.load(Ordering::Relaxed) + 1, Ordering::Release);
            }
            _ => shared.broken.store(from, Ordering::Release),
        }
    }
}

impl Heads {
    /// How many have come of a superstep.
    #[inline]
    pub fn count(&self, step: u64) -> u32 {
        self.0.come[turn(step)].load(Ordering::Acquire)
    }

    /// A process that sent what is no head.
    #[inline]
    pub fn broken(&self) -> Option<u32> {
        let who = self.0.broken.load(Ordering::Acquire);
        (who != NOBODY).then_some(who)
    }

    /// What came from a process.
    #[inline]
    pub fn get(&self, from: u32, step: u64) -> Option<&[u8]> {
        let place = self.0.place(from, step)?;
        if !place.full.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: it is full, so it belongs to this end, until `end`, which borrows this
        // mutably.
        Some(unsafe { &*place.bytes.get() })
    }

    /// A superstep has ended: its places are free.
    #[inline]
    pub fn end(&mut self, step: u64) {
        // Before any is free: nothing is counted meanwhile.
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
                // As the protocol has it: of the superstep after the next only when told.
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
