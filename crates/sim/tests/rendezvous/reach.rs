//! Memory of the model's ranks, and what others reach of it without a message.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use portolan_exchange::{Sink, Source};

/// Bytes after which a content goes on with another shift of the same.
const ROW: usize = 251;

/// The bytes of a message.
pub fn content(tag: u64, bytes: usize) -> Vec<u8> {
    // From all shifts of a row: contents are most of what a run costs.
    static ROWS: LazyLock<Vec<[u8; ROW]>> = LazyLock::new(|| {
        let row = |shift: usize| std::array::from_fn(|i| (i * 31 + shift) as u8);
        (0..256).map(row).collect()
    });
    let mut content = Vec::with_capacity(bytes);
    for at in (0..bytes).step_by(ROW) {
        let shift = at * 31 + tag as usize * 7 + at / ROW;
        let row = &ROWS[shift % 256];
        content.extend_from_slice(&row[..ROW.min(bytes - at)]);
    }
    content
}

/// What tells contents of one round of a program from those of the next.
const ROUND: u64 = 1_000;

/// The number that names a message's content in a round of a program.
pub const fn in_round(round: u64, tag: u64) -> u64 {
    round * ROUND + tag
}

#[derive(Debug)]
pub struct Bytes(pub Vec<u8>);

impl Source for Bytes {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }
    fn read(&self, at: u64, into: &mut [u8]) {
        into.copy_from_slice(&self.0[at as usize..][..into.len()]);
    }
}

impl Sink for Bytes {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }
    fn read(&self, at: u64, into: &mut [u8]) {
        into.copy_from_slice(&self.0[at as usize..][..into.len()]);
    }
    fn write(&mut self, at: u64, bytes: &[u8]) {
        self.0[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    fn slice(&mut self, at: u64, bytes: usize) -> Option<&mut [u8]> {
        self.0.get_mut(at as usize..at as usize + bytes)
    }
}

/// Memory of a receive that its sender may write to.
pub struct Published {
    pub at: u64,
    pub bytes: usize,
    /// What somebody has written there.
    pub written: Option<Vec<u8>>,
    /// PollCadence that still find somebody writing.
    pub busy: u32,
    pub hidden: bool,
}

/// Memory that ranks of one host reach into by themselves.
#[derive(Default)]
pub struct Reach {
    /// Messages by address, with the rank that they are of.
    pub located: BTreeMap<u64, (usize, Vec<u8>)>,
    addresses: u64,
    /// By rank and key.
    pub published: BTreeMap<(usize, u64), Published>,
    /// Parts that were written, and such that their sender could not write.
    pub written: usize,
    pub unwritten: usize,
}

impl Reach {
    /// Gives a rank's message an address that none has had.
    pub fn locate(&mut self, who: usize, message: Vec<u8>) -> u64 {
        self.addresses += 1 << 40;
        self.located.insert(self.addresses, (who, message));
        self.addresses
    }

    /// A rank is no more, nor is its memory.
    pub fn die(&mut self, who: usize) {
        self.published.retain(|(owner, _), _| *owner != who);
        self.located.retain(|_, (owner, _)| *owner != who);
    }

    /// Bytes of a rank's message; `None`: the rank is no more.
    pub fn bytes(&self, who: usize, address: u64, bytes: u64) -> Option<&[u8]> {
        let (base, (owner, message)) = self.located.range(..=address).next_back()?;
        let start = (address - base) as usize;
        let bytes = message.get(start..start + bytes as usize);
        bytes.filter(|_| *owner == who)
    }

    /// A rank waits until nobody writes to memory of its.
    pub fn hides(&self, who: usize) -> bool {
        let mut published = self.published.iter();
        published.any(|((owner, _), it)| *owner == who && it.hidden)
    }

    /// Of a rank's memory nothing is shown any more.
    pub fn is_hidden(&self, who: usize) -> bool {
        self.published.keys().all(|(owner, _)| *owner != who)
    }
}
