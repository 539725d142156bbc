//! Memory of the model's ranks, and what others reach of it without a message.

use std::collections::BTreeMap;

use portolan_exchange::{Sink, Source};

/// The bytes of a message.
pub fn content(tag: u64, bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|i| (i as u64 * 31 + tag * 7 + i as u64 / 251) as u8)
        .collect()
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
pub struct Shown {
    pub at: u64,
    pub bytes: usize,
    /// What somebody has written there.
    pub written: Option<Vec<u8>>,
    /// Looks that still find somebody writing.
    pub busy: u32,
    pub hidden: bool,
}

/// Memory that ranks of one host reach into by themselves.
#[derive(Default)]
pub struct Reach {
    /// Messages by address, with the rank that they are of.
    pub located: BTreeMap<u64, (usize, Vec<u8>)>,
    /// By rank and key.
    pub shown: BTreeMap<(usize, u64), Shown>,
    pub dead: [bool; 2],
    /// Parts that were written, and such that their sender could not write.
    pub written: usize,
    pub unwritten: usize,
}

impl Reach {
    /// A rank is no more, nor is its memory.
    pub fn die(&mut self, who: usize) {
        self.dead[who] = true;
        self.shown.retain(|(owner, _), _| *owner != who);
    }

    /// Of a rank's memory nothing is shown any more.
    pub fn is_hidden(&self, who: usize) -> bool {
        self.shown.keys().all(|(owner, _)| *owner != who)
    }
}
