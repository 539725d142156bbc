//! What the exchange is given: memory that knows who may touch it, and a
//! carrier that does what the fuzzer has chosen.

use std::collections::VecDeque;

use portolan_exchange::{
    DirectError, FetchError, Host, Kind, Located, OpError, OpId, Outgoing, Place, Push, Refusal,
    Sent, Signal, SignalRefusal, Sink, Source,
};

/// Ranks: the one under test, which is 0, and its peers.
pub(super) const SIZE: usize = 3;
/// What the program's memory holds before anybody writes to it.
pub(super) const FILL: u8 = 0x11;
/// Messages that a peer remembers having been sent.
const HEARD: usize = 12;
/// Ports from here on do not exist; so many signals of one rank find room.
const PORTS: u32 = 4;
const SIGNALS: usize = 2;

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
    fn range(&self, at: u64, bytes: u64) -> &[u8] {
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

    fn read(&self, at: u64, into: &mut [u8]) {
        into.copy_from_slice(self.range(at, into.len() as u64));
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        self.bytes[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn slice(&mut self, at: u64, bytes: usize) -> Option<&mut [u8]> {
        let range = &mut self.bytes[at as usize..][..bytes];
        (!self.pieces).then_some(range)
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
    pub push: Push,
    /// Peers reach into our memory, and help to copy.
    pub located: bool,
    pub shares: bool,
    /// We reach into theirs: 0 always, 1 it is not permitted, 2 it is gone.
    pub fetches: u8,
    /// By our own hand: 0 not possible, 1 done, 2 refused.
    pub directs: u8,
    /// Tries to hide memory that fail.
    pub busy: u8,
    /// Memory of receives that peers may write to.
    pub published: Vec<Published>,
    /// The latest messages to each.
    pub heard: [VecDeque<Heard>; SIZE],
    /// What is read until it is released.
    pub lent: Vec<OpId>,
    /// Places for signals, by who is to send them.
    pub reserved: [usize; SIZE],
    pub permitted: Vec<Permitted>,
}

impl Carrier {
    fn carry(&mut self, to: u32, m: &Outgoing<'_>) -> Result<(), Refusal> {
        assert!(to != 0 && (to as usize) < SIZE, "{m:?} to {to}");
        if self.doomed[to as usize] {
            return Err(Refusal::Dead);
        }
        self.room = self.room.checked_sub(1).ok_or(Refusal::NoRoom)?;
        let mut words = [0; 7];
        words[..m.args.len()].copy_from_slice(m.args);
        let heard = &mut self.heard[to as usize];
        if heard.len() == HEARD {
            heard.pop_front();
        }
        let kind = m.kind;
        heard.push_back(Heard { kind, words });
        Ok(())
    }

    fn carry_payload(
        &mut self,
        to: u32,
        m: &Outgoing<'_>,
        bytes: u64,
        op: OpId,
    ) -> Result<Sent, Refusal> {
        self.carry(to, m)?;
        if bytes <= self.copied {
            return Ok(Sent::Copied);
        }
        self.lent.push(op);
        Ok(Sent::Lent)
    }

    /// What comes of an access by our own hand.
    fn direct(&self) -> Result<(), DirectError> {
        match self.directs {
            0 => Err(DirectError::NotPossible),
            1 => Ok(()),
            _ => Err(DirectError::Refused(OpError::BadKey)),
        }
    }
}

impl Host for Carrier {
    type Source = Bytes;
    type Sink = Bytes;

    fn send(&mut self, to: u32, m: &Outgoing<'_>) -> Result<(), Refusal> {
        self.carry(to, m)
    }

    fn send_from(
        &mut self,
        to: u32,
        m: &Outgoing<'_>,
        source: &Bytes,
        at: u64,
        bytes: u64,
        op: OpId,
    ) -> Result<Sent, Refusal> {
        assert!(source.is_with(to), "{m:?} is not for {to}");
        source.range(at, bytes);
        self.carry_payload(to, m, bytes, op)
    }

    fn send_region(
        &mut self,
        to: u32,
        m: &Outgoing<'_>,
        memory: &Bytes,
        at: u64,
        bytes: u64,
        op: OpId,
    ) -> Result<Sent, Refusal> {
        let Use::Regions(number) = memory.of else {
            panic!("{memory:?} is of no region");
        };
        let may = &self.permitted[number].get[at as usize..][..bytes as usize];
        assert!(may.iter().all(|may| *may), "{m:?} tells a secret");
        self.carry_payload(to, m, bytes, op)
    }

    fn has_queues(&self, _from: u32) -> bool {
        true
    }

    fn push(&self, _to: u32) -> Push {
        self.push
    }

    fn locate(&mut self, to: u32, source: &Bytes) -> Option<Located> {
        assert!(source.is_with(to));
        self.located.then_some(Located {
            address: 1 << 40,
            shares: self.shares,
        })
    }

    fn fetch(
        &mut self,
        from: u32,
        address: u64,
        into: &mut Bytes,
        at: u64,
        bytes: u64,
    ) -> Result<(), FetchError> {
        assert!(into.is_with(from));
        into.range(at, bytes);
        match self.fetches {
            // No memory goes round the end of the addresses.
            0 if address.checked_add(bytes).is_some() => {
                into.write(at, &vec![mark(from); bytes as usize]);
                Ok(())
            }
            1 => Err(FetchError::NotPermitted),
            _ => {
                self.doomed[from as usize] = true;
                Err(FetchError::Gone)
            }
        }
    }

    fn publish(&mut self, to: u32, key: u64, sink: &mut Bytes, at: u64, bytes: u64) -> bool {
        assert!(sink.is_with(to) && key != 0 && bytes > 0);
        assert!(self.published.iter().all(|it| it.key != key));
        sink.range(at, bytes);
        if self.shares {
            self.published.push(Published { key, to, at, bytes });
        }
        self.shares
    }

    fn withdraw(&mut self, key: u64, sink: &mut Bytes) -> bool {
        let at = self.published.iter().position(|it| it.key == key);
        let at = at.expect("it is published");
        if self.busy > 0 {
            self.busy -= 1;
            return false;
        }
        let Published { to, at, bytes, .. } = self.published.swap_remove(at);
        // Until now it was written to.
        sink.write(at, &vec![mark(to); bytes as usize]);
        true
    }

    fn write_shown(
        &mut self,
        to: u32,
        _key: u64,
        source: &Bytes,
        at: u64,
        bytes: u64,
    ) -> Result<(), DirectError> {
        assert!(source.is_with(to));
        source.range(at, bytes);
        self.direct()
    }

    fn prepare(&mut self, sink: &mut Bytes, at: u64, bytes: u64) {
        sink.range(at, bytes);
    }

    fn direct_put(&mut self, to: u32, _: &Place, source: &Bytes) -> Result<(), DirectError> {
        assert!(source.is_with(to));
        self.direct()
    }

    fn direct_get(&mut self, from: u32, _: &Place, sink: &mut Bytes) -> Result<(), DirectError> {
        assert!(sink.is_with(from));
        if self.directs > 0 {
            sink.bytes.fill(mark(from));
        }
        self.direct()
    }

    fn reserve_signal(&mut self, from: u32, port: u32) -> Result<(), SignalRefusal> {
        if port >= PORTS {
            return Err(SignalRefusal::NoPort);
        }
        let reserved = &mut self.reserved[from as usize];
        if *reserved == SIGNALS {
            return Err(SignalRefusal::NoRoom);
        }
        *reserved += 1;
        Ok(())
    }

    fn signal(&mut self, from: u32, signal: &Signal, _bytes: u64) {
        self.unreserve_signal(from, signal.port);
    }

    fn unreserve_signal(&mut self, from: u32, port: u32) {
        assert!(port < PORTS);
        let reserved = &mut self.reserved[from as usize];
        *reserved = reserved.checked_sub(1).expect("it was reserved");
    }
}
