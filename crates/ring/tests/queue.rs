//! The rings of a queue that several processes share: whoever holds them may
//! be killed at any step, and nothing is lost or there twice.
#![cfg(not(loom))]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use portolan_ring::{BATCH, CacheLine, Corrupt, Offsets, QueueTurn, Share, Words, queue_lines};

/// So many more stores, then the process that makes them is killed.
#[derive(Clone, Default)]
struct Life(Rc<Cell<Option<u32>>>);

impl Life {
    fn step(&self) {
        match self.0.get() {
            None => {}
            Some(0) => {
                self.0.set(None);
                std::panic::resume_unwind(Box::new("killed"));
            }
            Some(left) => self.0.set(Some(left - 1)),
        }
    }
}

struct Memory(Vec<CacheLine>, Life);

impl Words for Memory {
    fn load(&self, at: usize) -> u64 {
        self.0.load(at)
    }

    fn store(&self, at: usize, value: u64) {
        self.1.step();
        self.0.store(at, value);
    }

    fn replace(&self, at: usize, from: u64, to: u64) -> bool {
        self.1.step();
        self.0.replace(at, from, to)
    }
}

/// A ring as both ends see it.
#[derive(Clone)]
struct Ring {
    entries: Rc<RefCell<Vec<u64>>>,
    producer: Rc<Cell<u32>>,
    consumer: Rc<Cell<u32>>,
    life: Life,
}

impl Ring {
    fn new(count: usize, life: &Life) -> Self {
        // Near the end of the counters.
        let start = Rc::new(Cell::new(u32::MAX - 2));
        Self {
            entries: Rc::new(RefCell::new(vec![0; count])),
            producer: Rc::new(Cell::new(start.get())),
            consumer: start,
            life: life.clone(),
        }
    }

    /// As the kernel: takes an entry out.
    fn pop(&self) -> Option<u32> {
        let at = self.consumer.get();
        (at != self.producer.get()).then(|| {
            self.consumer.set(at.wrapping_add(1));
            self.entry(at) as u32
        })
    }

    /// As the kernel: puts an entry in.
    fn push(&self, chunk: u32) {
        let at = self.producer.get();
        let count = self.entries.borrow().len() as u32;
        self.entries.borrow_mut()[(at & (count - 1)) as usize] = chunk.into();
        self.producer.set(at.wrapping_add(1));
    }
}

impl Offsets for Ring {
    fn count(&self) -> u32 {
        self.entries.borrow().len() as u32
    }

    fn producer(&self) -> u32 {
        self.producer.get()
    }

    fn set_producer(&self, to: u32) {
        self.life.step();
        self.producer.set(to);
    }

    fn consumer(&self) -> u32 {
        self.consumer.get()
    }

    fn set_consumer(&self, to: u32) {
        self.life.step();
        self.consumer.set(to);
    }

    fn entry(&self, at: u32) -> u64 {
        let entries = self.entries.borrow();
        entries[at as usize & (entries.len() - 1)]
    }

    fn set_entry(&self, at: u32, value: u64) {
        self.life.step();
        let mut entries = self.entries.borrow_mut();
        let last = entries.len() - 1;
        entries[at as usize & last] = value;
    }
}

const TX: (u32, u32) = (100, 8);

struct Queue {
    memory: Memory,
    fill: Ring,
    completion: Ring,
    life: Life,
}

impl Queue {
    fn new() -> Self {
        let life = Life::default();
        let mut lines = Vec::new();
        lines.resize_with(queue_lines(TX.1), CacheLine::default);
        Self {
            memory: Memory(lines, life.clone()),
            fill: Ring::new(16, &life),
            completion: Ring::new(8, &life),
            life,
        }
    }

    fn share(&self, index: u32) -> Share<Ring, Ring> {
        let ours = (TX.0 + 4 * index, 4);
        Share::new(
            self.fill.clone(),
            self.completion.clone(),
            index + 1,
            TX,
            ours,
        )
    }
}

fn nobody(_: u32) -> bool {
    false
}

#[test]
fn chunks_go_round() {
    let queue = Queue::new();
    let (mut a, mut b) = (queue.share(0), queue.share(1));
    let words = &queue.memory;
    (0..5).for_each(|chunk| a.keep(chunk));
    assert_eq!(a.exchange(words, nobody), Ok(QueueTurn::Done));
    assert_eq!(a.kept(), 0);
    let mut filled: Vec<u32> = std::iter::from_fn(|| queue.fill.pop()).collect();
    filled.sort_unstable();
    assert_eq!(filled, [0, 1, 2, 3, 4]);
    // Each sends from its own chunks only, and either takes back both's.
    for share in [&mut a, &mut b] {
        for _ in 0..4 {
            let chunk = share.chunk_to_send(words).unwrap();
            share.send(words, chunk);
            queue.completion.push(chunk);
        }
        assert_eq!(share.chunk_to_send(words), None);
    }
    assert_eq!(b.exchange(words, nobody), Ok(QueueTurn::Done));
    assert_eq!(a.chunk_to_send(words), Some(100));
    assert_eq!(b.chunk_to_send(words), Some(104));
    a.send(words, 100);
    assert_eq!(a.all_to_send(words), None);
    assert_eq!(b.all_to_send(words), Some(104..108));
}

#[test]
fn a_chain_takes_chunks_that_are_free_or_none() {
    let queue = Queue::new();
    let (mut a, mut b) = (queue.share(0), queue.share(1));
    let words = &queue.memory;
    let mut chain = [0; 3];
    assert!(a.chunks_to_send(words, &mut chain));
    assert_eq!(chain, [100, 101, 102]);
    // It was not sent yet.
    assert!(a.chunks_to_send(words, &mut chain));
    chain.iter().for_each(|chunk| a.send(words, *chunk));
    assert!(!a.chunks_to_send(words, &mut [0; 2]));
    assert_eq!(a.chunk_to_send(words), Some(103));
    // A part of it has come back, and by another's hand.
    queue.completion.push(101);
    queue.completion.push(102);
    assert_eq!(b.exchange(words, nobody), Ok(QueueTurn::Done));
    assert!(a.chunks_to_send(words, &mut chain));
    assert_eq!(chain, [103, 101, 102]);
    assert!(!a.chunks_to_send(words, &mut [0; 4]));
    chain.iter().for_each(|chunk| a.send(words, *chunk));
    assert_eq!(a.chunk_to_send(words), None);
    assert!(!a.chunks_to_send(words, &mut [0; 5]), "more than there are");
}

#[test]
fn a_full_ring_leaves_the_rest_and_nonsense_is_told() {
    let queue = Queue::new();
    let mut a = queue.share(0);
    (0..20).for_each(|chunk| a.keep(chunk));
    assert_eq!(a.exchange(&queue.memory, nobody), Ok(QueueTurn::Done));
    assert_eq!(a.kept(), 4);
    queue.completion.push(7);
    queue.completion.push(9_999);
    assert_eq!(a.exchange(&queue.memory, nobody), Ok(QueueTurn::Done));
    assert_eq!(queue.completion.consumer(), queue.completion.producer());
    queue
        .completion
        .producer
        .set(queue.completion.consumer().wrapping_sub(1));
    assert_eq!(a.exchange(&queue.memory, nobody), Err(Corrupt));
    let mut b = queue.share(1);
    assert_eq!(b.exchange(&queue.memory, nobody), Ok(QueueTurn::Held(1)));
    queue.memory.store(8, (BATCH as u64 + 1) << 32);
    assert_eq!(
        b.exchange(&queue.memory, |_| true),
        Err(Corrupt),
        "a log of nonsense"
    );
}

#[test]
fn who_has_a_part_next_brings_nothing_and_has_all_that_was_sent() {
    let queue = Queue::new();
    let words = &queue.memory;
    let mut a = queue.share(0);
    assert!(a.is_first(words, 0) && a.is_first(words, 63));
    for _ in 0..3 {
        let chunk = a.chunk_to_send(words).unwrap();
        a.send(words, chunk);
    }
    queue.completion.push(101);
    drop(a);
    let mut next = queue.share(0);
    assert!(!next.is_first(words, 0) && !next.is_first(words, 63));
    assert!(next.is_first(words, 1));
    assert!(next.has_sent());
    assert_eq!(next.exchange(words, nobody), Ok(QueueTurn::Done));
    assert!(!next.has_sent());
    assert_eq!(next.all_to_send(words), None);
    next.reclaim(words);
    assert_eq!(next.all_to_send(words), Some(100..104));
}

#[test]
fn the_living_are_not_robbed() {
    let queue = Queue::new();
    let (mut a, mut b) = (queue.share(0), queue.share(1));
    queue.memory.store(0, 1);
    b.keep(3);
    assert_eq!(b.exchange(&queue.memory, nobody), Ok(QueueTurn::Held(1)));
    assert_eq!(b.kept(), 1);
    queue.memory.store(0, 0);
    assert_eq!(
        a.exchange(&queue.memory, |_| panic!("free")),
        Ok(QueueTurn::Done)
    );
}

/// Kills a process at its `kill`th store while it gives back chunks 0 to 2 and
/// takes back 100, 101 (its own) and 104, and, if told to, the one that repairs
/// at its `again`th. False: it lived through it.
fn killed(kill: u32, again: Option<u32>) -> bool {
    let queue = Queue::new();
    let (mut a, mut b) = (queue.share(0), queue.share(1));
    let words = &queue.memory;
    for (share, count) in [(&mut a, 2), (&mut b, 1)] {
        for _ in 0..count {
            let chunk = share.chunk_to_send(words).unwrap();
            share.send(words, chunk);
            queue.completion.push(chunk);
        }
    }
    (0..3).for_each(|chunk| a.keep(chunk));
    queue.life.0.set(Some(kill));
    let died = catch_unwind(AssertUnwindSafe(|| a.exchange(words, nobody))).is_err();
    queue.life.0.set(None);
    // Whoever of the living finds its chunk free may use it at once.
    let sent_again = words.load(16 + 2 * BATCH + 4) == 2;
    if sent_again {
        b.send(words, 104);
    }
    b.keep(10);
    if let Some(again) = again {
        let mut c = Share::new(
            queue.fill.clone(),
            queue.completion.clone(),
            3,
            TX,
            (108, 0),
        );
        queue.life.0.set(Some(again));
        let _ = catch_unwind(AssertUnwindSafe(|| c.exchange(words, |it| it == 1)));
        queue.life.0.set(None);
    }
    assert_eq!(b.exchange(words, |it| it != 2), Ok(QueueTurn::Done));
    assert_eq!(words.load(0), 0, "free again");
    let mut filled = BTreeMap::new();
    while let Some(chunk) = queue.fill.pop() {
        *filled.entry(chunk).or_insert(0) += 1;
    }
    assert!(
        filled.values().all(|times| *times == 1),
        "{kill} {again:?} {filled:?}"
    );
    // All three went, or none before they had left it.
    let given = (0..3).filter(|chunk| filled.contains_key(chunk)).count();
    let kept = died && a.kept() == 3 && given == 0;
    assert!(given == 3 || kept, "{kill} {again:?} {filled:?}");
    assert!(filled.contains_key(&10));
    // What was sent has come back, once: a chunk in use again is not free.
    assert_eq!(queue.completion.consumer(), queue.completion.producer());
    let states = [100, 101].map(|chunk| words.load(16 + 2 * BATCH + chunk - 100));
    assert_eq!(states, [2, 2], "{kill} {again:?}");
    let theirs = words.load(16 + 2 * BATCH + 4);
    assert_eq!(theirs, 2 + u64::from(sent_again), "{kill} {again:?}");
    died
}

#[test]
fn a_holder_that_is_killed_at_any_step_loses_nothing() {
    let steps = (0..).take_while(|kill| killed(*kill, None)).count() as u32;
    assert!((15..40).contains(&steps), "{steps}");
    for kill in 0..steps {
        (0..40).for_each(|again| {
            killed(kill, Some(again));
        });
    }
}
