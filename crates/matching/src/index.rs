//! From a key to the first entry that has it.

use alloc::vec::Vec;
use core::mem::{replace, take};

use crate::hash::hash;

/// Where a list ends.
const NONE: u32 = u32::MAX;
/// In `before`: what follows is a bucket and not an entry.
const BUCKET: u32 = 1 << 31;
/// Buckets of the smallest table.
const BUCKETS_MIN: usize = 16;

/// What entries are found by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Key {
    pub tag: u64,
    pub source: u32,
    pub lane: u32,
}

impl Key {
    const fn words(&self) -> [u64; 2] {
        [self.tag, (self.lane as u64) << 32 | self.source as u64]
    }
}

/// An entry's places in two lists, and what the caller keeps with it: to find
/// it and to use it touches one place in memory. Entries of one key are a ring
/// in the order in which they came; the first of them, and it alone, stands in
/// its bucket's chain. So however many have one key, they are a single step to
/// the others.
#[derive(Clone, Copy, Debug)]
struct Node<T> {
    key: Key,
    /// The first of its key: who is before it in the chain, or [`BUCKET`] and
    /// the number of the bucket. Others: [`NONE`].
    before: u32,
    /// The first of its key: who comes after it in the chain.
    after: u32,
    /// The one before it in the ring.
    elder: u32,
    /// The next in the ring.
    younger: u32,
    load: T,
}

/// Two of those that are only found share a cache line, and one of those that
/// hold a handle of 8 bytes fits one.
const _: () = assert!(size_of::<Node<()>>() == 32 && size_of::<Node<Option<(u64, u64)>>>() <= 64);

/// Finds entries, which are numbers of slots that the caller gives out.
#[derive(Debug)]
pub(crate) struct Index<T> {
    secret: [u64; 2],
    /// The first entry of each bucket's chain; a power of two, or none.
    heads: Vec<u32>,
    /// By slot.
    nodes: Vec<Node<T>>,
    /// How many keys are in buckets: never more than those.
    keys: usize,
    /// The only entry there is, while it was never joined by another: it is
    /// found without its hash. Most programs wait for one message at a time.
    lone: u32,
}

impl<T: Default> Index<T> {
    pub const fn new(secret: [u64; 2]) -> Self {
        Self {
            secret,
            heads: Vec::new(),
            nodes: Vec::new(),
            keys: 0,
            lone: NONE,
        }
    }

    /// Empties it and makes it ready for so many entries.
    pub fn restart(&mut self, entries: usize) {
        self.heads.clear();
        let buckets = entries.next_power_of_two().max(BUCKETS_MIN);
        self.heads.resize(buckets, NONE);
        self.keys = 0;
        self.lone = NONE;
    }

    #[inline]
    fn bucket(&self, key: &Key) -> usize {
        hash(self.secret, key.words()) as usize & (self.heads.len() - 1)
    }

    /// The first entry with this key in the chain of `bucket`.
    #[inline]
    fn first_of(&self, bucket: usize, key: &Key) -> Option<u32> {
        let mut at = self.heads[bucket];
        while at != NONE {
            let node = &self.nodes[at as usize];
            if node.key == *key {
                return Some(at);
            }
            at = node.after;
        }
        None
    }

    /// The entry with this key that was added first.
    #[inline]
    pub fn first(&self, key: &Key) -> Option<u32> {
        if self.keys == 0 {
            let lone = self.nodes.get(self.lone as usize)?;
            return (lone.key == *key).then_some(self.lone);
        }
        self.first_of(self.bucket(key), key)
    }

    /// The key under which an entry was added, and its load.
    pub fn get(&self, slot: u32) -> Option<(Key, &T)> {
        let node = self.nodes.get(slot as usize)?;
        Some((node.key, &node.load))
    }

    /// How many slots have been in use.
    pub const fn slots(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// Adds an entry that is not in it, as the last of its key.
    pub fn add(&mut self, slot: u32, key: Key, load: T) {
        assert!(slot < BUCKET, "2^31 entries are the most");
        if self.nodes.len() <= slot as usize {
            self.nodes.resize_with(slot as usize + 1, || Node {
                key,
                before: NONE,
                after: NONE,
                elder: NONE,
                younger: NONE,
                load: T::default(),
            });
        }
        self.nodes[slot as usize] = Node {
            key,
            before: NONE,
            after: NONE,
            elder: slot,
            younger: slot,
            load,
        };
        if self.keys == 0 {
            let lone = replace(&mut self.lone, NONE);
            if lone == NONE {
                self.lone = slot;
                return;
            }
            self.join(lone);
        }
        self.join(slot);
    }

    /// Puts an entry in the chain of its key.
    fn join(&mut self, slot: u32) {
        if self.keys == self.heads.len() {
            self.grow();
        }
        let key = self.nodes[slot as usize].key;
        let bucket = self.bucket(&key);
        if let Some(first) = self.first_of(bucket, &key) {
            let last = self.nodes[first as usize].elder;
            let node = &mut self.nodes[slot as usize];
            (node.elder, node.younger) = (last, first);
            self.nodes[last as usize].younger = slot;
            self.nodes[first as usize].elder = slot;
        } else {
            self.hang(slot, bucket);
            self.keys += 1;
        }
    }

    /// Puts the first of a key into a bucket's chain.
    fn hang(&mut self, slot: u32, bucket: usize) {
        let next = self.heads[bucket];
        let node = &mut self.nodes[slot as usize];
        node.before = BUCKET | bucket as u32;
        node.after = next;
        if next != NONE {
            self.nodes[next as usize].before = slot;
        }
        self.heads[bucket] = slot;
    }

    /// Removes an entry that is in it; gives its load, which becomes the default.
    pub fn remove(&mut self, slot: u32) -> T {
        let node = &mut self.nodes[slot as usize];
        let load = take(&mut node.load);
        if slot == self.lone {
            self.lone = NONE;
            return load;
        }
        let Node {
            before,
            after,
            elder,
            younger,
            ..
        } = *node;
        let alone = younger == slot;
        if !alone {
            self.nodes[elder as usize].younger = younger;
            self.nodes[younger as usize].elder = elder;
        }
        if before == NONE {
            return load;
        }
        // It was the first of its key.
        if alone {
            self.keys -= 1;
            self.follow(before, after);
        } else {
            self.replace(slot, younger);
        }
        load
    }

    /// Has `next` follow in a chain on what is before it: an entry or the bucket.
    fn follow(&mut self, before: u32, next: u32) {
        if before & BUCKET == 0 {
            self.nodes[before as usize].after = next;
        } else {
            self.heads[(before & !BUCKET) as usize] = next;
        }
        if next != NONE {
            self.nodes[next as usize].before = before;
        }
    }

    /// Another of its key takes the place of the first in the chain.
    fn replace(&mut self, first: u32, heir: u32) {
        let Node { before, after, .. } = self.nodes[first as usize];
        self.nodes[first as usize].before = NONE;
        self.follow(before, heir);
        self.nodes[heir as usize].after = after;
        if after != NONE {
            self.nodes[after as usize].before = heir;
        }
    }

    /// The entry of the same key that follows on this one.
    pub fn next(&self, slot: u32) -> Option<u32> {
        let next = self.nodes[slot as usize].younger;
        let is_first = next == slot || self.nodes[next as usize].before != NONE;
        (!is_first).then_some(next)
    }

    /// Puts the last entry of a key before another of it.
    pub fn put_before(&mut self, last: u32, other: u32) {
        if self.nodes[other as usize].before != NONE {
            // In the ring it stands there already.
            return self.replace(other, last);
        }
        let Node { elder, younger, .. } = self.nodes[last as usize];
        self.nodes[elder as usize].younger = younger;
        self.nodes[younger as usize].elder = elder;
        let elder = replace(&mut self.nodes[other as usize].elder, last);
        self.nodes[elder as usize].younger = last;
        let node = &mut self.nodes[last as usize];
        (node.elder, node.younger) = (elder, other);
    }

    /// Doubles the buckets.
    fn grow(&mut self) {
        let buckets = (2 * self.heads.len()).max(BUCKETS_MIN);
        let old = self.heads.len();
        self.heads.resize(buckets, NONE);
        for bucket in 0..old {
            let mut at = replace(&mut self.heads[bucket], NONE);
            while at != NONE {
                let Node { key, after, .. } = self.nodes[at as usize];
                self.hang(at, self.bucket(&key));
                at = after;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tag: u64) -> Key {
        Key {
            tag,
            source: 1,
            lane: 2,
        }
    }

    /// The longest chain, and how many keys all of them have.
    fn chains(index: &Index<()>) -> (usize, usize) {
        let length = |&head: &u32| {
            let next = |&at: &u32| Some(index.nodes[at as usize].after).filter(|&at| at != NONE);
            core::iter::successors(Some(head).filter(|&at| at != NONE), next).count()
        };
        let lengths = index.heads.iter().map(length);
        (lengths.clone().max().unwrap_or(0), lengths.sum())
    }

    #[test]
    fn chains_stay_short_whatever_the_tags_have_in_common() {
        for shift in [0, 8, 32, 47] {
            let mut index = Index::new([3, 4]);
            (0..100_000).for_each(|slot| index.add(slot, key(u64::from(slot) << shift), ()));
            let (longest, keys) = chains(&index);
            assert!(longest <= 12, "{longest}");
            assert_eq!((keys, index.keys), (100_000, 100_000));
        }
    }

    #[test]
    fn many_of_one_key_are_one_step_to_others() {
        let mut index = Index::new([3, 4]);
        (0..10_000).for_each(|slot| index.add(slot, key(7), ()));
        index.add(10_000, key(8), ());
        assert_eq!((chains(&index).1, index.heads.len()), (2, BUCKETS_MIN));
        assert_eq!(
            (index.first(&key(7)), index.first(&key(8))),
            (Some(0), Some(10_000))
        );
    }

    #[test]
    fn the_first_of_a_key_is_followed_by_the_next() {
        // Few buckets, so that chains have several keys.
        for from in 0..6 {
            let mut index = Index::new([3, 4]);
            (0..6 * 16).for_each(|slot| index.add(slot, key(u64::from(slot) % 16), ()));
            // One of each key goes, the first, the last, or one in between.
            (16 * from..16 * (from + 1)).for_each(|slot| index.remove(slot));
            for tag in 0..16 {
                let left = (0..6_u32).filter(|&row| row != from);
                for slot in left.map(|row| 16 * row + tag) {
                    assert_eq!(index.first(&key(tag.into())), Some(slot));
                    index.remove(slot);
                }
                assert_eq!(index.first(&key(tag.into())), None);
            }
            assert_eq!((chains(&index), index.keys), ((0, 0), 0));
        }
    }

    #[test]
    fn the_last_of_a_key_goes_before_any_other() {
        for at in 0..5 {
            // One bucket's chain has several keys.
            let mut index = Index::new([3, 4]);
            (0..5 * 16).for_each(|slot| index.add(slot, key(u64::from(slot) % 16), ()));
            for tag in 0..16 {
                let last = 5 * 16 + tag;
                index.add(last, key(tag.into()), ());
                index.put_before(last, 16 * at + tag);
            }
            for tag in 0..16 {
                let first = index.first(&key(tag.into()));
                let found = core::iter::successors(first, |&slot| index.next(slot));
                let mut all: Vec<u32> = (0..5).map(|row| 16 * row + tag).collect();
                all.insert(at as usize, 5 * 16 + tag);
                assert_eq!(found.collect::<Vec<_>>(), all);
                for slot in all {
                    assert_eq!(index.first(&key(tag.into())), Some(slot));
                    index.remove(slot);
                }
            }
            assert_eq!((chains(&index), index.keys), ((0, 0), 0));
        }
    }

    #[test]
    fn lanes_and_sources_are_parts_of_the_key() {
        let mut index = Index::new([3, 4]);
        index.add(0, key(1), ());
        for other in [
            Key { lane: 1, ..key(1) },
            Key {
                source: 2,
                ..key(1)
            },
            key(2),
        ] {
            assert_eq!(index.first(&other), None);
        }
        assert_eq!(
            (index.first(&key(1)), index.get(0)),
            (Some(0), Some((key(1), &())))
        );
        index.restart(0);
        assert_eq!((index.first(&key(1)), index.keys), (None, 0));
    }
}
