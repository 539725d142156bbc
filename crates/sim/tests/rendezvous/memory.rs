//! One-sided accesses of the model's ranks: each has a region for the other.

use portolan_exchange::{
    DeregisterError, Notify, Place, PutOptions, RegionId, RemoteKey, Rights, Signal,
};

use super::{Bytes, Ending, Node, content};

/// Bytes of a region; the first 8 are counted up.
pub const REGION: usize = 90_000;
/// What a region holds at first is the content of a message of this tag.
const FIRST: u64 = 99;
/// The port of all signals, of which one at a time finds room.
pub const PORT: u32 = 1;
const KEY: u64 = 7;
/// What is added at a time.
pub const ADDED: u64 = 3;

/// An access to the other's region.
#[derive(Clone, Copy, Debug)]
pub enum Access {
    /// Writes the content of this tag; with a signal that has the tag as its
    /// word, or without.
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

/// A region before anybody has written to it; its counter is 0.
pub fn untouched() -> Vec<u8> {
    let mut bytes = content(FIRST, REGION);
    bytes[..8].fill(0);
    bytes
}

impl Node {
    pub fn register(&mut self) -> RegionId {
        let x = self.app.exchange.as_mut().expect("it is at work nowhere");
        let memory = Bytes(untouched());
        x.register(memory, Some(KEY), Rights::Both)
            .expect("the key is free")
    }

    /// The region's bytes, which nobody reaches any more.
    pub fn deregister(&mut self) -> Result<Vec<u8>, DeregisterError> {
        let x = self.app.exchange.as_mut().expect("it is at work nowhere");
        let memory = x.deregister(self.region)?;
        Ok(memory.expect("it is one region's only").0)
    }

    pub fn access(&mut self, now: u64, access: Access) {
        let to = 1 - self.who as u32;
        let none = Notify::default();
        let place = |at: usize| Place {
            key: RemoteKey::any(KEY),
            offset: at as u64,
        };
        let begun = self.with(now, |x, host| match access {
            Access::Put {
                tag,
                at,
                bytes,
                signal,
            } => {
                let options = PutOptions {
                    signal: signal.then_some(Signal {
                        port: PORT,
                        word: tag,
                    }),
                    ..PutOptions::default()
                };
                let source = Bytes(content(tag, bytes));
                let put = x.put(host, to, place(at), source, &options);
                put.map_err(|(why, _)| why)
            }
            Access::Get { at, bytes } => {
                let got = x.get(host, to, place(at), Bytes(vec![0; bytes]), none);
                got.map_err(|(why, _)| why)
            }
            Access::Add => x.fetch_add(host, to, place(0), ADDED, none),
        });
        // Refused only because the other is known to be dead.
        self.app.accesses.push(begun.ok());
    }

    /// Takes what has ended, in the order of beginning; `None`: it was never begun.
    pub fn access_endings(&mut self) -> Vec<Option<Ending>> {
        let ops = std::mem::take(&mut self.app.accesses);
        ops.into_iter()
            .map(|op| op.map(|op| self.ending(op)))
            .collect()
    }

    /// Words of the signals that have come.
    pub fn signals(&self) -> &[u64] {
        &self.app.load.signals
    }

    /// Whether room is kept for a signal.
    pub fn keeps_room(&self) -> bool {
        self.app.load.reserved
    }
}
