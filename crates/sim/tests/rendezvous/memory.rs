//! One-sided accesses of the model's ranks: each has a region for the other.

use portolan_exchange::{
    DeregisterError, Notify, Place, PutOptions, RegionId, RemoteKey, Rights, Signal,
};

use super::reach::{Bytes, content, in_round};
use super::{Ending, Node};

/// Bytes of a region; the first 8 are counted up.
pub const REGION: usize = 90_000;
/// What a region holds at first is the content of a message of this tag.
const FIRST: u64 = 99;
/// The port of all signals, of which one finds room in a pass.
pub const PORT: u32 = 1;
const KEY: u64 = 7;
/// What is added at a time.
pub const ADDED: u64 = 3;

/// An access to the other's region.
#[derive(Clone, Copy, Debug)]
pub enum Access {
    /// Writes the content of this tag in the present round; with a signal that
    /// has the content's number as its word, or without.
    Put {
        tag: u64,
        at: usize,
        bytes: usize,
        signal: bool,
    },
    Get {
        at: usize,
        bytes: usize,
    },
    Add,
}

/// The region of a life that begins with this round, before anybody has written
/// to it; its counter is 0.
pub fn untouched(round: u64) -> Vec<u8> {
    let mut bytes = content(in_round(round, FIRST), REGION);
    bytes[..8].fill(0);
    bytes
}

impl Node {
    pub fn register(&mut self) -> RegionId {
        let memory = Bytes(untouched(self.round));
        let x = &mut self.app.exchange;
        x.register(memory, Some(KEY), Rights::Both)
            .expect("the key is free")
    }

    /// The region's bytes, which nobody reaches any more.
    pub fn deregister(&mut self) -> Result<Vec<u8>, DeregisterError> {
        let memory = self.app.exchange.deregister(self.region)?;
        Ok(memory.expect("it is one region's only").0)
    }

    pub fn access(&mut self, now: u64, access: Access) {
        let (to, round) = (1 - self.who as u32, self.round);
        let none = Notify::default();
        let place = |at: usize| Place {
            key: RemoteKey::any(KEY),
            offset: at as u64,
        };
        let begun = self.with(now, |x| match access {
            Access::Put {
                tag,
                at,
                bytes,
                signal,
            } => {
                let word = in_round(round, tag);
                let options = PutOptions {
                    signal: signal.then_some(Signal { port: PORT, word }),
                    ..PutOptions::default()
                };
                let source = Bytes(content(word, bytes));
                let put = x.put(to, place(at), source, &options);
                put.map_err(|(why, _)| why)
            }
            Access::Get { at, bytes } => {
                let got = x.get(to, place(at), Bytes(vec![0; bytes]), none);
                got.map_err(|(why, _)| why)
            }
            Access::Add => x.fetch_add(to, place(0), ADDED, none),
        });
        // Refused only because the other is known to be dead.
        self.app.accesses.push((round, begun.ok()));
    }

    /// As [`Node::endings`], of accesses.
    pub fn access_endings(&mut self, round: u64) -> Vec<Option<Ending>> {
        let ops = self.app.accesses.extract_if(.., |(of, _)| *of == round);
        let ops = ops.collect();
        self.take_all(ops)
    }

    /// Words of the signals that have come.
    pub fn signals(&self) -> &[u64] {
        &self.app.load.signals
    }
}
