//! All interleavings of small cases. Run by
//! `RUSTFLAGS="--cfg loom" cargo test -p portolan-ring --release --test loom`.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU64;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use portolan_ring::{
    BATCH, CacheLine, Consumer, Fence, Holder, InboxConsumer, InboxLayout, InboxProducer, Offsets,
    Ownership, Permission, Position, Producer, QueueTurn, Region, RegionId, RegionOwner,
    RegionTable, RegionsLayout, RingLayout, Share, SleepWord, Slumber, UseWord, WithdrawError,
    Words,
};

fn lines(count: usize) -> Arc<Vec<CacheLine>> {
    Arc::new(
        std::iter::repeat_with(CacheLine::default)
            .take(count)
            .collect(),
    )
}

/// An eventfd: a ring that comes first is not lost.
#[derive(Default)]
struct Bell(Mutex<bool>, Condvar);

impl Bell {
    fn ring(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }

    fn wait(&self) {
        let mut rung = self.0.lock().unwrap();
        while !*rung {
            rung = self.1.wait(rung).unwrap();
        }
        *rung = false;
    }
}

/// The memory of a queue: its words and its rings, with few entries.
struct Queue {
    words: Vec<AtomicU64>,
    fill: [AtomicU64; 6],
    completion: [AtomicU64; 6],
}

/// Sees a queue as a process does that is killed at the so manieth store.
#[derive(Clone)]
struct Mortal {
    queue: Arc<Queue>,
    left: std::rc::Rc<std::cell::Cell<u32>>,
}

impl Mortal {
    fn new(queue: &Arc<Queue>, left: u32) -> Self {
        let left = std::rc::Rc::new(std::cell::Cell::new(left));
        let queue = queue.clone();
        Self { queue, left }
    }

    fn step(&self) {
        if self.left.get() == 0 {
            std::panic::resume_unwind(Box::new("killed"));
        }
        self.left.set(self.left.get() - 1);
    }
}

impl Words for Mortal {
    fn load(&self, at: usize) -> u64 {
        self.queue.words[at].load(Acquire)
    }

    fn store(&self, at: usize, value: u64) {
        self.step();
        self.queue.words[at].store(value, Release);
    }

    fn replace(&self, at: usize, from: u64, to: u64) -> bool {
        self.step();
        let word = &self.queue.words[at];
        word.compare_exchange(from, to, AcqRel, Acquire).is_ok()
    }
}

/// One of its rings: producer, consumer, four entries.
struct MortalRing(Mortal, fn(&Queue) -> &[AtomicU64; 6]);

impl MortalRing {
    fn word(&self, at: usize) -> &AtomicU64 {
        &self.1(&self.0.queue)[at]
    }

    fn set(&self, at: usize, value: u64) {
        self.0.step();
        self.word(at).store(value, Release);
    }
}

impl Offsets for MortalRing {
    fn count(&self) -> u32 {
        4
    }

    fn producer(&self) -> u32 {
        self.word(0).load(Acquire) as u32
    }

    fn set_producer(&self, to: u32) {
        self.set(0, to.into());
    }

    fn consumer(&self) -> u32 {
        self.word(1).load(Acquire) as u32
    }

    fn set_consumer(&self, to: u32) {
        self.set(1, to.into());
    }

    fn entry(&self, at: u32) -> u64 {
        self.word(2 + at as usize % 4).load(Acquire)
    }

    fn set_entry(&self, at: u32, value: u64) {
        self.set(2 + at as usize % 4, value);
    }
}

/// A process's share of a queue with two chunks for sending, 10 and 11.
fn share(mortal: &Mortal, own: u32) -> Share<MortalRing, MortalRing> {
    let fill = MortalRing(mortal.clone(), |queue| &queue.fill);
    let completion = MortalRing(mortal.clone(), |queue| &queue.completion);
    Share::new(fill, completion, own, (10, 2), (9 + own, 1))
}

/// Bounded, because each preemption multiplies the cases.
fn model(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(f);
}

#[test]
fn ring_keeps_order_and_content() {
    const LAYOUT: RingLayout = RingLayout {
        slots: 2,
        data_lines: 8,
    };
    model(4, || {
        let lines = lines(LAYOUT.lines());
        let start = Position {
            slots: u32::MAX - 1,
            data: u32::MAX,
        };
        // A ring that has come so far has no slot left with sequence 0.
        for line in &lines[1..3] {
            line.word(0).store(7, Relaxed);
        }
        // As whoever hands out rings does.
        Consumer::new(&lines, LAYOUT, start).publish();
        let theirs = lines.clone();
        let sender = thread::spawn(move || {
            let mut p = Producer::new(&theirs, LAYOUT, start);
            for i in 0..4u64 {
                // Every second message is long.
                let bytes = if i % 2 == 0 { 8 } else { 80 };
                loop {
                    if let Ok(mut slot) = p.reserve(bytes) {
                        slot.set_word(0, i);
                        slot.set_word(bytes / 8 - 1, i);
                        slot.commit(i as u16);
                        break;
                    }
                    thread::yield_now();
                }
            }
        });
        let mut c = Consumer::new(&lines, LAYOUT, start);
        let mut next = 0;
        while next < 4 {
            if let Some(m) = c.peek().unwrap() {
                assert_eq!(u64::from(m.tag()), next);
                assert_eq!((m.word(0), m.word(m.len() / 8 - 1)), (next, next));
                c.advance(&m);
                next += 1;
            } else {
                thread::yield_now();
            }
        }
        sender.join().unwrap();
        assert!(!c.is_ready());
    });
}

/// Reads `count` messages, each producer's payloads counting up from 0.
fn read_counting(lines: &[CacheLine], layout: InboxLayout, count: usize) {
    let mut c = InboxConsumer::new(lines, layout);
    let (mut next, mut got) = ([0u64; 2], 0);
    while got < count {
        let taken = c.poll(
            4,
            |_| false,
            |from, _, m| {
                let expected = &mut next[from as usize];
                let last = m.word(m.len() / 8 - 1);
                assert_eq!((m.word(0), last), (*expected, *expected));
                *expected += 1;
                true
            },
        );
        match taken.unwrap() {
            0 => thread::yield_now(),
            n => got += n,
        }
    }
    assert!(!c.is_ready());
}

fn send_word(p: &mut InboxProducer<'_>, bytes: usize, word: u64) -> bool {
    let Ok(mut slot) = p.reserve(bytes) else {
        return false;
    };
    slot.set_word(0, word);
    slot.set_word(bytes / 8 - 1, word);
    slot.commit(0);
    true
}

#[test]
fn inbox_keeps_each_producers_order() {
    const LAYOUT: InboxLayout = InboxLayout {
        slots: 4,
        blocks: 0,
        block_lines: 0,
    };
    model(2, || {
        let lines = lines(LAYOUT.lines());
        let senders: Vec<_> = [(0, 2), (1, 1)]
            .into_iter()
            .map(|(id, count)| {
                let lines = lines.clone();
                thread::spawn(move || {
                    let mut p = InboxProducer::new(&lines, LAYOUT, id);
                    for i in 0..count {
                        assert!(send_word(&mut p, 8, i));
                    }
                })
            })
            .collect();
        read_counting(&lines, LAYOUT, 3);
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

#[test]
fn inbox_blocks_are_used_again() {
    const LAYOUT: InboxLayout = InboxLayout {
        slots: 2,
        blocks: 1,
        block_lines: 1,
    };
    model(3, || {
        let lines = lines(LAYOUT.lines());
        let theirs = lines.clone();
        let sender = thread::spawn(move || {
            let mut p = InboxProducer::new(&theirs, LAYOUT, 0);
            for i in 0..3 {
                while !send_word(&mut p, 64, i) {
                    thread::yield_now();
                }
            }
        });
        read_counting(&lines, LAYOUT, 3);
        sender.join().unwrap();
    });
}

#[test]
fn inbox_passes_over_the_dead_but_not_what_they_committed() {
    const LAYOUT: InboxLayout = InboxLayout {
        slots: 2,
        blocks: 0,
        block_lines: 0,
    };
    model(3, || {
        let lines = lines(LAYOUT.lines());
        let theirs = lines.clone();
        let sender = thread::spawn(move || {
            let mut p = InboxProducer::new(&theirs, LAYOUT, 0);
            let mut slot = p.reserve(8).unwrap();
            slot.set_word(0, 1);
            slot.commit(0);
            // Dies between claim and commit.
            std::mem::forget(p.reserve(8).unwrap());
        });
        sender.join().unwrap();
        let theirs = lines.clone();
        let other = thread::spawn(move || {
            let mut p = InboxProducer::new(&theirs, LAYOUT, 1);
            loop {
                if let Ok(mut slot) = p.reserve(8) {
                    slot.set_word(0, 2);
                    slot.commit(0);
                    break;
                }
                thread::yield_now();
            }
        });
        let mut c = InboxConsumer::new(&lines, LAYOUT);
        let mut got = Vec::new();
        while got.len() < 2 {
            let taken = c
                .poll(
                    4,
                    |from| from == 0,
                    |from, _, m| {
                        got.push((from, m.word(0)));
                        true
                    },
                )
                .unwrap();
            if taken == 0 {
                thread::yield_now();
            }
        }
        assert_eq!(got, [(0, 1), (1, 2)]);
        other.join().unwrap();
    });
}

/// Loom reports a deadlock when the receiver sleeps through a message.
#[test]
fn no_wakeup_is_lost() {
    const LAYOUT: RingLayout = RingLayout {
        slots: 2,
        data_lines: 0,
    };
    model(3, || {
        let lines = lines(LAYOUT.lines() + 1);
        let bell = Arc::new(Bell::default());
        let (theirs, their_bell) = (lines.clone(), bell.clone());
        let sender = thread::spawn(move || {
            let (control, ring) = theirs.split_first().unwrap();
            let sleeper = SleepWord::new(control, 0, Fence::Local);
            let mut p = Producer::new(ring, LAYOUT, Position::default());
            for _ in 0..2 {
                p.reserve(0).unwrap().commit(0);
                if sleeper.must_ring() {
                    their_bell.ring();
                }
            }
        });
        let (control, ring) = lines.split_first().unwrap();
        let sleep = SleepWord::new(control, 0, Fence::Local);
        let mut c = Consumer::new(ring, LAYOUT, Position::default());
        let mut got = 0;
        while got < 2 {
            if let Some(m) = c.peek().unwrap() {
                c.advance(&m);
                got += 1;
                continue;
            }
            sleep.prepare(Slumber::Arrivals, || {});
            if !c.is_ready() {
                bell.wait();
            }
            sleep.cancel();
        }
        sender.join().unwrap();
    });
}

/// The same the other way: a sender that waits for room.
#[test]
fn no_room_is_freed_unnoticed() {
    const LAYOUT: RingLayout = RingLayout {
        slots: 2,
        data_lines: 0,
    };
    model(3, || {
        let lines = lines(LAYOUT.lines() + 1);
        let bell = Arc::new(Bell::default());
        let (theirs, their_bell) = (lines.clone(), bell.clone());
        let reader = thread::spawn(move || {
            let (control, ring) = theirs.split_first().unwrap();
            let sleeper = SleepWord::new(control, 0, Fence::Local);
            let mut c = Consumer::new(ring, LAYOUT, Position::default());
            let mut got = 0;
            while got < 3 {
                let Some(m) = c.peek().unwrap() else {
                    thread::yield_now();
                    continue;
                };
                got += 1;
                if c.advance(&m) && sleeper.must_ring_for_room() {
                    their_bell.ring();
                }
            }
        });
        let (control, ring) = lines.split_first().unwrap();
        let sleep = SleepWord::new(control, 0, Fence::Local);
        let mut p = Producer::new(ring, LAYOUT, Position::default());
        for _ in 0..3 {
            loop {
                if let Ok(slot) = p.reserve(0) {
                    slot.commit(0);
                    break;
                }
                sleep.prepare(Slumber::ArrivalsAndRoom, || {});
                if p.reserve(0).is_err() {
                    bell.wait();
                }
                sleep.cancel();
            }
        }
        reader.join().unwrap();
    });
}

#[test]
fn ownership_is_exclusive_and_handed_back() {
    model(4, || {
        struct LoomOwned(Ownership, loom::cell::UnsafeCell<u32>);
        // SAFETY: loom checks each access to the cell.
        unsafe impl Sync for LoomOwned {}
        // SAFETY: as above.
        unsafe impl Send for LoomOwned {}
        let shared = Arc::new(LoomOwned(
            Ownership::new(Fence::Local),
            loom::cell::UnsafeCell::new(0),
        ));
        let theirs = shared.clone();
        let helper = thread::spawn(move || {
            for _ in 0..2 {
                if theirs.0.try_help(|| true) {
                    // SAFETY: loom fails the test if this is not exclusive.
                    theirs.1.with_mut(|x| unsafe { *x += 1 });
                    let _ = theirs.0.is_wanted();
                    theirs.0.hand_back();
                }
                thread::yield_now();
            }
        });
        for _ in 0..2 {
            shared.0.acquire();
            // SAFETY: as above.
            shared.1.with_mut(|x| unsafe { *x += 1 });
            shared.0.release();
        }
        helper.join().unwrap();
        assert_eq!(shared.0.calls(), 2);
    });
}

#[test]
fn a_holder_is_one_thread_and_wakes_the_next() {
    model(3, || {
        struct LoomHeld(Holder, loom::cell::UnsafeCell<u32>);
        // SAFETY: loom checks each access to the cell.
        unsafe impl Sync for LoomHeld {}
        // SAFETY: as above.
        unsafe impl Send for LoomHeld {}
        let shared = Arc::new(LoomHeld(Holder::new(), loom::cell::UnsafeCell::new(0)));
        let takes = |shared: &LoomHeld, me| {
            if let Err(holder) = shared.0.try_take(me) {
                assert_ne!(holder, me);
                shared.0.wait(me);
            }
            assert!(shared.0.is(me));
            // SAFETY: loom fails the test if this is not exclusive.
            shared.1.with_mut(|x| unsafe { *x += 1 });
            shared.0.leave();
        };
        let others: Vec<_> = (2..3)
            .map(|me| {
                let shared = shared.clone();
                thread::spawn(move || takes(&shared, me))
            })
            .collect();
        takes(&shared, 1);
        for other in others {
            other.join().unwrap();
        }
        // SAFETY: the others have ended.
        shared.1.with(|x| assert_eq!(unsafe { *x }, 2));
    });
}

/// Two processes have their turns at a queue; the first is killed at its
/// `kill`th store. Nothing is lost, nothing is there twice, and a chunk that is
/// used again is not set free by an old entry.
fn queue_with_a_death(kill: u32) {
    model(2, move || {
        let atomic = |value| AtomicU64::new(value);
        let queue = Arc::new(Queue {
            words: (0..16 + 2 * BATCH + 2).map(|_| atomic(0)).collect(),
            fill: std::array::from_fn(|_| atomic(0)),
            completion: std::array::from_fn(|_| atomic(0)),
        });
        // Both chunks have been sent and have come back.
        for (n, chunk) in [10, 11].into_iter().enumerate() {
            queue.words[16 + 2 * BATCH + n].store(1, Relaxed);
            queue.completion[2 + n].store(chunk, Relaxed);
        }
        queue.completion[0].store(2, Relaxed);
        // A pidfd: says so only once all that it did is done.
        let ended = Arc::new(Mutex::new(None));
        let (theirs, their_end) = (queue.clone(), ended.clone());
        let first = thread::spawn(move || {
            let mortal = Mortal::new(&theirs, kill);
            let mut a = share(&mortal, 1);
            a.keep(1);
            let turn = std::panic::AssertUnwindSafe(|| a.exchange(&mortal, |_| false));
            let _ = std::panic::catch_unwind(turn);
            *their_end.lock().unwrap() = Some(a.kept());
        });
        let mortal = Mortal::new(&queue, u32::MAX);
        let mut b = share(&mortal, 2);
        b.keep(2);
        let mut sent_again = false;
        loop {
            let done = b.exchange(&mortal, |_| ended.lock().unwrap().is_some());
            if !sent_again && b.chunk_to_send(&mortal).is_some() {
                b.send(&mortal, 11);
                sent_again = true;
            }
            if done == Ok(QueueTurn::Done) && sent_again {
                break;
            }
            thread::yield_now();
        }
        first.join().unwrap();
        assert_eq!(b.exchange(&mortal, |_| true), Ok(QueueTurn::Done));
        let count = queue.fill[0].load(Relaxed) as usize;
        let mut filled: Vec<u64> = (0..count)
            .map(|n| queue.fill[2 + n].load(Relaxed))
            .collect();
        filled.sort_unstable();
        let kept = *ended.lock().unwrap() == Some(1) && filled == [2];
        assert!(filled == [1, 2] || kept, "{kill} {filled:?}");
        assert_eq!(queue.completion[1].load(Relaxed), 2);
        let states = [0, 1].map(|n| queue.words[16 + 2 * BATCH + n].load(Relaxed));
        assert_eq!(states, [2, 3], "{kill}");
        assert_eq!(queue.words[0].load(Relaxed), 0);
    });
}

#[test]
fn a_queue_survives_the_death_of_its_holder_at_every_step() {
    // The last ones live through it.
    (0..20).for_each(queue_with_a_death);
}

const REGIONS: RegionsLayout = RegionsLayout { regions: 2 };

fn region(key: u64, start: u64) -> Region {
    Region {
        key: key.into(),
        start,
        length: start,
        rights: Permission::Both,
        demands_salt: false,
    }
}

fn withdraw(owner: &mut RegionOwner<'_>, id: RegionId, users: &[AtomicU64]) {
    loop {
        match owner.try_withdraw(
            id,
            (0..).zip(users).map(|(user, word)| (user, 1, word)),
            |_| false,
        ) {
            Ok(()) => return,
            Err(WithdrawError::InUse(_)) => thread::yield_now(),
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
fn nobody_copies_where_a_region_was_withdrawn() {
    model(3, || {
        let lines = lines(REGIONS.lines());
        let words: Arc<Vec<_>> = Arc::new((0..2).map(|_| AtomicU64::new(0)).collect());
        // What users write and the owner reuses: loom finds any overlap.
        let memory: Arc<[UnsafeCell<u32>; 2]> = Arc::new(Default::default());
        let mut owner = RegionOwner::new(RegionTable::new(&lines, REGIONS));
        let id = owner.publish(region(5, 1)).unwrap();
        let users: Vec<_> = (0..2)
            .map(|user| {
                let (lines, words, memory) = (lines.clone(), words.clone(), memory.clone());
                thread::spawn(move || {
                    let table = RegionTable::new(&lines, REGIONS);
                    let mut word = UseWord::new(&words[user]);
                    if let Some(held) = word.hold(1, &table, 5) {
                        // SAFETY: loom checks that nobody else is there.
                        memory[user].with_mut(|at| unsafe { *at += 1 });
                        drop(held);
                    }
                })
            })
            .collect();
        withdraw(&mut owner, id, &words);
        for cell in &*memory {
            // SAFETY: as above.
            cell.with_mut(|at| unsafe { *at += 1 });
        }
        for user in users {
            user.join().unwrap();
        }
    });
}

#[test]
fn an_entry_is_never_a_mixture_of_two() {
    model(3, || {
        let lines = lines(REGIONS.lines());
        let words: Arc<Vec<_>> = Arc::new(vec![AtomicU64::new(0)]);
        let mut owner = RegionOwner::new(RegionTable::new(&lines, REGIONS));
        let first = owner.publish(region(5, 1)).unwrap();
        let (theirs, word) = (lines.clone(), words.clone());
        let user = thread::spawn(move || {
            let table = RegionTable::new(&theirs, REGIONS);
            let mut word = UseWord::new(&word[0]);
            for key in [5, 6] {
                if let Some(held) = word.hold(1, &table, key) {
                    let it = held.region();
                    assert_eq!((it.key.key, it.start), (key, it.length));
                    assert!(it.start == 2 || (it.start == 1 && key == 5));
                }
            }
        });
        // The same slot again, under the same key and under another.
        withdraw(&mut owner, first, &words);
        let second = owner.publish(region(5, 2)).unwrap();
        withdraw(&mut owner, second, &words);
        owner.publish(region(6, 2)).unwrap();
        user.join().unwrap();
    });
}
