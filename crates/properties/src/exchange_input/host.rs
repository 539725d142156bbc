//! What the exchange is given: memory that knows who may touch it, and a
//! carrier that does what the fuzzer has chosen.

use std::collections::VecDeque;

use portolan_exchange::{
    ATOMIC_BYTES, Did, Kind, Located, OpError, OpId, Outgoing, Payload, Range, Sink, Source, Task,
    Where,
};

/// Ranks: the one under test, which is 0, and its peers.
pub(super) const SIZE: usize = 3;
/// What the program's memory holds before anybody writes to it.
pub(super) const FILL: u8 = 0x11;
/// Messages that a peer remembers having been sent.
const HEARD: usize = 12;
/// Ports from here on do not exist.
pub(super) const PORTS: u32 = 4;

/// What all payloads of a rank consist of.
pub(super) const fn mark(rank: u32) -> u8 {
    0xa0 | rank as u8
}

/// Whose memory it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Use {
    /// Of an operation with this rank.
    With(u32),
    /// Of a receive from anybody.
    Anybody,
    /// Of regions, by its number.
    Regions(usize),
}

#[derive(Debug)]
pub(super) struct Bytes {
    pub bytes: Vec<u8>,
    pub of: Use,
    /// Not in one slice.
    pub pieces: bool,
}

impl Bytes {
    pub fn range(&self, at: u64, bytes: u64) -> &[u8] {
        &self.bytes[at as usize..][..bytes as usize]
    }

    fn is_with(&self, rank: u32) -> bool {
        match self.of {
            Use::With(with) => with == rank,
            Use::Anybody => true,
            Use::Regions(_) => false,
        }
    }
}

impl Source for Bytes {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, at: u64, into: &mut [u8]) {
        into.copy_from_slice(self.range(at, into.len() as u64));
    }
}

impl Sink for Bytes {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, at: u64, into: &mut [u8]) -> bool {
        into.copy_from_slice(self.range(at, into.len() as u64));
        true
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> bool {
        self.bytes[at as usize..][..bytes.len()].copy_from_slice(bytes);
        true
    }

    fn slice(&mut self, at: u64, bytes: usize) -> Option<&mut [u8]> {
        let range = &mut self.bytes[at as usize..][..bytes];
        (!self.pieces).then_some(range)
    }

    fn owned(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            of: Use::Anybody,
            pieces: false,
        }
    }

    fn into_owned(self) -> Vec<u8> {
        self.bytes
    }
}

/// Memory of regions: which bytes of it others have been permitted to touch.
#[derive(Debug)]
pub(super) struct Permitted {
    pub get: Vec<bool>,
    pub put: Vec<bool>,
}

/// A message that a peer was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    pub kind: Kind,
    pub words: [u64; 7],
}

/// Memory of a receive that a peer may write to.
#[derive(Debug)]
pub(super) struct Published {
    key: u64,
    to: u32,
    at: u64,
    bytes: u64,
}

#[derive(Debug, Default)]
pub(super) struct Carrier {
    /// Messages that still find room.
    pub room: usize,
    /// Nothing can be sent there any more: it is going to be declared dead.
    pub doomed: [bool; SIZE],
    /// Longer payloads are lent.
    pub copied: u64,
    /// Peers reach into our memory, and help to copy.
    pub located: bool,
    pub shares: bool,
    /// We reach into theirs: 0 always, 1 it is not permitted, 2 it is gone.
    pub fetches: u8,
    /// By our own hand: 0 not possible, 1 done, 2 refused.
    pub directs: u8,
    /// Tries to hide memory that fail, and signals that find no room.
    pub busy: u8,
    pub deaf: u8,
    /// Memory of receives that peers may write to.
    pub published: Vec<Published>,
    /// The latest messages to each.
    pub heard: [VecDeque<Heard>; SIZE],
    /// What is read until it is released.
    pub lent: Vec<OpId>,
    pub permitted: Vec<Permitted>,
}

impl Carrier {
    /// Does what the exchange wants to be done.
    pub fn act(&mut self, task: Task<'_, Bytes, Bytes>) -> Did {
        match task {
            Task::Locate(to, source) => {
                assert!(source.is_with(to));
                let (address, shares) = (1 << 40, self.shares);
                if self.located {
                    Did::Located(Located { address, shares })
                } else {
                    Did::NotPossible
                }
            }
            Task::Send(to, m) => self.send(to, &m),
            Task::Signal(_, signal, _) => {
                assert!(signal.port < PORTS);
                let room = self.deaf.checked_sub(1);
                self.deaf = room.unwrap_or(0);
                room.map_or(Did::Done, |_| Did::NoRoom)
            }
            Task::Prepare(Range { of, at, bytes }) => {
                of.range(at, bytes);
                Did::Done
            }
            Task::Publish(to, key, Range { of, at, bytes }) => {
                assert!(of.is_with(to) && key != 0 && bytes > 0);
                assert!(self.published.iter().all(|it| it.key != key));
                of.range(at, bytes);
                if !self.shares {
                    return Did::NotPossible;
                }
                self.published.push(Published { key, to, at, bytes });
                Did::Done
            }
            Task::Withdraw(key, memory) => self.withdraw(key, memory),
            Task::CopyFrom(from, there, Range { of, at, bytes }) => {
                assert!(of.is_with(from));
                of.range(at, bytes);
                self.copy_from(from, there, of, at, bytes)
            }
            Task::CopyTo(to, _, Range { of, at, bytes }) => {
                assert!(of.is_with(to));
                of.range(at, bytes);
                self.direct()
            }
        }
    }

    fn send(&mut self, to: u32, m: &Outgoing<'_, Bytes, Bytes>) -> Did {
        assert!(to != 0 && (to as usize) < SIZE, "{m:?} to {to}");
        let bytes = match &m.payload {
            Payload::Nothing => 0,
            Payload::Source(Range { of, at, bytes }) => {
                assert!(of.is_with(to), "{m:?} is not for {to}");
                of.range(*at, *bytes);
                *bytes
            }
            Payload::Bytes(bytes) => {
                assert!(bytes.len() <= ATOMIC_BYTES);
                bytes.len() as u64
            }
            Payload::Region(Range { of, at, bytes }) => {
                let Use::Regions(number) = of.of else {
                    panic!("{of:?} is of no region");
                };
                let may = &self.permitted[number].get[*at as usize..][..*bytes as usize];
                assert!(may.iter().all(|may| *may), "{m:?} tells a secret");
                *bytes
            }
        };
        if self.doomed[to as usize] {
            return Did::Dead;
        }
        let Some(room) = self.room.checked_sub(1) else {
            return Did::NoRoom;
        };
        self.room = room;
        let mut words = [0; 7];
        words[..m.args().len()].copy_from_slice(m.args());
        let heard = &mut self.heard[to as usize];
        if heard.len() == HEARD {
            heard.pop_front();
        }
        let kind = m.kind;
        heard.push_back(Heard { kind, words });
        if bytes <= self.copied {
            return Did::Done;
        }
        self.lent.push(m.op);
        Did::Lent
    }

    /// What comes of an access by our own hand.
    const fn direct(&self) -> Did {
        match self.directs {
            0 => Did::NotPossible,
            1 => Did::Done,
            _ => Did::Refused(OpError::BadKey),
        }
    }

    fn copy_from(
        &mut self,
        from: u32,
        there: Where,
        memory: &mut Bytes,
        at: u64,
        bytes: u64,
    ) -> Did {
        match (there, self.fetches) {
            (Where::Address(address), 0) => {
                // No memory goes round the end of the addresses.
                assert!(address.checked_add(bytes).is_some());
            }
            (Where::Address(_), 1) => return Did::NotPossible,
            (Where::Address(_), _) => {
                self.doomed[from as usize] = true;
                return Did::Dead;
            }
            _ if self.directs == 0 => return Did::NotPossible,
            _ => {
                memory.write(at, &vec![mark(from); bytes as usize]);
                return self.direct();
            }
        }
        memory.write(at, &vec![mark(from); bytes as usize]);
        Did::Done
    }

    fn withdraw(&mut self, key: u64, memory: &mut Bytes) -> Did {
        let at = self.published.iter().position(|it| it.key == key);
        let at = at.expect("it is published");
        if self.busy > 0 {
            self.busy -= 1;
            return Did::NoRoom;
        }
        let Published { to, at, bytes, .. } = self.published.swap_remove(at);
        // Until now it was written to.
        memory.write(at, &vec![mark(to); bytes as usize]);
        Did::Done
    }
}
