//! Changes that all processes make alike in a superstep: registrations, of which the newest of
//! an address counts, and the length of tags.

use super::twin::{AREAS, Rng};

/// Most registrations at a time.
const MOST: usize = 8;

/// Registration: the memory of each process; `None` is NULL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    number: u64,
    pub memory: Vec<Option<usize>>,
}

#[derive(Clone, Debug)]
pub enum Change {
    Push(Entry),
    Pop(Entry),
}

/// Registrations and tags of a superstep, and the calls that all processes make alike.
#[derive(Clone, Debug)]
pub struct Collective {
    /// Registrations, the oldest first.
    pub entries: Vec<Entry>,
    pub changes: Vec<Change>,
    /// Length of tags in messages that are sent, and the length set for the next superstep.
    pub tag_bytes: u64,
    pub next_tag_bytes: u64,
    size: usize,
    /// Number of registrations ever made.
    made: u64,
}

impl Collective {
    /// Returns the first superstep: each process has registered its areas in order.
    pub fn first(size: usize, rng: &mut Rng) -> Self {
        let entry = |area: usize| Entry {
            number: area as u64,
            memory: vec![Some(area); size],
        };
        let mut first = Self {
            entries: (0..AREAS).map(entry).collect(),
            changes: Vec::new(),
            tag_bytes: 0,
            next_tag_bytes: rng.below(10),
            size,
            made: AREAS as u64,
        };
        first.change(rng);
        first
    }

    /// Returns the superstep after this one.
    pub fn next(&self, rng: &mut Rng) -> Self {
        let mut next = self.clone();
        next.entries = self.after();
        next.changes.clear();
        next.tag_bytes = self.next_tag_bytes;
        if rng.below(3) == 0 {
            next.next_tag_bytes = rng.below(10);
        }
        next.change(rng);
        next
    }

    fn after(&self) -> Vec<Entry> {
        let mut entries = self.entries.clone();
        for change in &self.changes {
            match change {
                Change::Push(entry) => entries.push(entry.clone()),
                Change::Pop(entry) => entries.retain(|it| it != entry),
            }
        }
        entries
    }

    fn change(&mut self, rng: &mut Rng) {
        for _ in 0..rng.below(4) {
            let now = self.after();
            if rng.below(2) == 0 && now.len() < MOST {
                self.push(rng);
                continue;
            }
            let can: Vec<Entry> = now.iter().filter(|it| can_pop(it, &now)).cloned().collect();
            if !can.is_empty() {
                let chosen = rng.below(can.len() as u64) as usize;
                self.changes.push(Change::Pop(can[chosen].clone()));
            }
        }
    }

    fn push(&mut self, rng: &mut Rng) {
        let some = |rng: &mut Rng| match rng.below(AREAS as u64 + 1) as usize {
            AREAS => None,
            area => Some(area),
        };
        let alike = some(rng).filter(|_| rng.below(2) == 0);
        let memory = (0..self.size).map(|_| alike.or_else(|| some(rng)));
        self.changes.push(Change::Push(Entry {
            number: self.made,
            memory: memory.collect(),
        }));
        self.made += 1;
    }

    /// Returns the registration that a process names by its memory.
    pub fn find(&self, me: usize, memory: usize) -> Option<&Entry> {
        let mut all = self.entries.iter().rev();
        all.find(|it| it.memory[me] == Some(memory))
    }
}

/// Whether each process names the registration by its address, as the newest there. NULL may
/// mean any that is left, as long as one process has memory.
fn can_pop(entry: &Entry, now: &[Entry]) -> bool {
    let has_memory = entry.memory.iter().any(Option::is_some);
    has_memory
        && entry.memory.iter().enumerate().all(|(me, memory)| {
            let mut all = now.iter().rev();
            let newest = all.find(|it| it.memory[me] == *memory);
            memory.is_none() || newest == Some(entry)
        })
}
