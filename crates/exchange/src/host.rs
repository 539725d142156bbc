//! What passes between the exchange and its caller.

use crate::credit::OVERHEAD;
use crate::kind::Kind;
use crate::ops::{OpError, OpId};
use crate::remote::{Place, Signal};

/// Bytes that a message or a put is read from, in one piece or several.
pub trait Source {
    /// How many.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `into.len()` bytes from `at` on; the range lies within.
    fn read(&self, at: u64, into: &mut [u8]);
}

/// Memory that a message or a get is written to, or that is registered for
/// others to read and write, in one piece or several.
pub trait Sink {
    /// How many bytes there is room for.
    fn len(&self) -> u64;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `into.len()` bytes from `at` on; the range lies within.
    fn read(&self, at: u64, into: &mut [u8]);

    /// Writes bytes at `at`; the range lies within.
    fn write(&mut self, at: u64, bytes: &[u8]);

    /// The range as one slice; `None` if it lies in several pieces.
    fn slice(&mut self, at: u64, bytes: usize) -> Option<&mut [u8]>;
}

/// How much of a message leaves before it is asked for, bytes (Push-Pull
/// Messaging, section 2). Messages up to `whole` are pushed whole while the
/// receiver's credit lasts. Of a longer one `first` bytes leave with the offer,
/// BTP(1), and up to `second` more right behind, BTP(2); the receiver pulls the rest.
///
/// Push-zero is all zeros; push-all is `whole` at its largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Push {
    /// Longest message that is pushed whole.
    pub whole: u64,
    /// Bytes of a longer one that its offer carries.
    pub first: u64,
    /// Bytes that follow the offer at once, while the receiver's request is on
    /// its way.
    pub second: u64,
    /// The request leaves when the offer arrives (push-and-acknowledge
    /// overlapping), not when all that was pushed has.
    pub overlap: bool,
    /// Memory is made ready after the first packet of a message or the request has left
    /// (address translation overhead masking), not before.
    pub masking: bool,
}

impl Push {
    /// What suits a network.
    pub const DEFAULT: Self = Self {
        whole: 64 << 10,
        first: 1 << 10,
        second: 15 << 10,
        overlap: true,
        masking: true,
    };

    /// What one message counts at most of what is pushed, bytes: whole, or the
    /// two pushes of a longer one, max(BTP(1), BTP(2)) of Push-Pull Messaging where
    /// the receiver's request comes between them. Here both are kept if it is late.
    #[must_use]
    pub const fn most(&self) -> u64 {
        let two = self.first.saturating_add(self.second);
        let most = if self.whole > two { self.whole } else { two };
        most.saturating_add(OVERHEAD)
    }
}

impl Default for Push {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A message of the exchange's to another rank.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// What it is; says priority and flow too.
    pub kind: Kind,
    /// Argument words.
    pub args: &'a [u64],
}

/// How a message left whose payload is the program's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sent {
    /// Its bytes were copied: the memory is free.
    Copied,
    /// They are read later: [`crate::Exchange::released`] follows.
    Lent,
}

/// Why nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// No room now: [`crate::Exchange::resume`] tries again.
    NoRoom,
    /// The peer is dead, or going to be declared so.
    Dead,
}

/// Where a source lies in this process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Located {
    /// Address of its first byte; not 0.
    pub address: u64,
    /// Whoever sends it waits until it was received, and can write to the
    /// receiver's memory: the two may share the copy.
    pub shares: bool,
}

/// Why memory of another process was not copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FetchError {
    /// It is not permitted here: ask for it by messages.
    NotPermitted,
    /// The process is gone, or has no such memory.
    Gone,
}

/// Why memory of another process was not accessed directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DirectError {
    /// It is not possible here, or not known: ask for it by messages.
    NotPossible,
    /// It was refused, as the target itself would have: this ends the operation.
    /// Nothing was touched there.
    Refused(OpError),
}

/// Why the target of a put with a signal cannot take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SignalRefusal {
    /// There is no room for a signal now. Whoever makes room offers again what
    /// was answered by [`crate::Took::NotNow`].
    NoRoom,
    /// There is no such port.
    NoPort,
}

/// The caller's side. Calls come only from within calls of [`crate::Exchange`].
pub trait Host {
    /// Memory that is sent from.
    type Source: Source;
    /// Memory that is received in.
    type Sink: Sink;

    /// Sends a message without payload.
    ///
    /// # Errors
    /// [`Refusal`]; nothing was sent.
    fn send(&mut self, to: u32, m: &Outgoing<'_>) -> Result<(), Refusal>;

    /// Sends a message whose payload is `bytes` bytes of `source` from `at` on.
    /// On [`Sent::Lent`] the memory is read until `released(op)` says otherwise.
    ///
    /// # Errors
    /// [`Refusal`]; nothing was sent.
    fn send_from(
        &mut self,
        to: u32,
        m: &Outgoing<'_>,
        source: &Self::Source,
        at: u64,
        bytes: u64,
        op: OpId,
    ) -> Result<Sent, Refusal>;

    /// Sends a message whose payload is `bytes` bytes of a region's memory from
    /// `at` on. On [`Sent::Lent`] it is read until `released(op)` says otherwise.
    ///
    /// # Errors
    /// [`Refusal`]; nothing was sent.
    fn send_region(
        &mut self,
        to: u32,
        m: &Outgoing<'_>,
        memory: &Self::Sink,
        at: u64,
        bytes: u64,
        op: OpId,
    ) -> Result<Sent, Refusal>;

    /// How messages to this rank are pushed.
    fn push(&self, to: u32) -> Push;

    /// Whether what this rank sends meets others' bytes in queues on its way.
    fn has_queues(&self, from: u32) -> bool;

    /// The most of a matched message that one request to this rank asks for,
    /// bytes, where [`crate::Config::pull_chunk`] is `usual`. Default: that.
    fn pull_chunk(&self, _from: u32, usual: u64) -> u64 {
        usual
    }

    /// Where a source lies in this process's memory, for a rank that may copy
    /// from it; `None` if it cannot.
    fn locate(&mut self, to: u32, source: &Self::Source) -> Option<Located>;

    /// Copies `bytes` bytes from address `address` of the process `from` to
    /// `at` of `into`.
    ///
    /// # Errors
    /// [`FetchError`]; part of it may have been written.
    fn fetch(
        &mut self,
        from: u32,
        address: u64,
        into: &mut Self::Sink,
        at: u64,
        bytes: u64,
    ) -> Result<(), FetchError>;

    /// Lets a rank write `bytes` bytes of `sink` from `at` on by itself, if it
    /// knows the key, until they are withdrawn. Default: not possible.
    fn publish(
        &mut self,
        _to: u32,
        _key: u64,
        _sink: &mut Self::Sink,
        _at: u64,
        _bytes: u64,
    ) -> bool {
        false
    }

    /// Withdraws what was published under a key, which is of `sink`: from the first call
    /// on nobody begins to write there. False: somebody still writes; ask again.
    fn withdraw(&mut self, _key: u64, _sink: &mut Self::Sink) -> bool {
        true
    }

    /// Writes `bytes` bytes of `source` from `at` on to the beginning of what
    /// another rank shows under a key. Default: not possible.
    ///
    /// # Errors
    /// [`DirectError`]; part of it may have been written.
    fn write_shown(
        &mut self,
        _to: u32,
        _key: u64,
        _source: &Self::Source,
        _at: u64,
        _bytes: u64,
    ) -> Result<(), DirectError> {
        Err(DirectError::NotPossible)
    }

    /// Something is awaited of a rank from now on: should it fall silent, and
    /// [`crate::Exchange::awaits`] still say so, it is to be asked for a sign of
    /// life.
    fn await_peer(&mut self, _rank: u32) {}

    /// The range of `sink` is about to be written: whoever maps memory lazily
    /// does it now. With masking it comes from [`crate::Exchange::make_ready`], for
    /// what a request of a receive or of a get asks for. Without, for all that a
    /// receive lacks, before its first request is sent; for gets not at all.
    fn prepare(&mut self, _sink: &mut Self::Sink, _at: u64, _bytes: u64) {}

    /// Writes all of `source` to another rank's memory at once. Default: not
    /// possible.
    ///
    /// # Errors
    /// [`DirectError`].
    fn direct_put(
        &mut self,
        _to: u32,
        _place: &Place,
        _source: &Self::Source,
    ) -> Result<(), DirectError> {
        Err(DirectError::NotPossible)
    }

    /// Fills all of `sink` from another rank's memory at once. Default: not
    /// possible.
    ///
    /// # Errors
    /// [`DirectError`]; part of `sink` may have been written.
    fn direct_get(
        &mut self,
        _from: u32,
        _place: &Place,
        _sink: &mut Self::Sink,
    ) -> Result<(), DirectError> {
        Err(DirectError::NotPossible)
    }

    /// A put with a signal begins to arrive: keeps room for that. What one rank
    /// can have kept should leave room for others: it may never end its put.
    ///
    /// # Errors
    /// [`SignalRefusal`]; nothing is kept.
    fn reserve_signal(&mut self, from: u32, port: u32) -> Result<(), SignalRefusal>;

    /// The bytes of a put, so many, are visible: tells this rank's program.
    /// Uses the room that [`Host::reserve_signal`] kept.
    fn signal(&mut self, from: u32, signal: &Signal, bytes: u64);

    /// The put will not come to its end: gives the room back.
    fn unreserve_signal(&mut self, from: u32, port: u32);
}
