//! Tasks that the caller executes for the exchange.

use super::{Kind, Located, OpError, OpId, Place, Signal};

/// Largest number of argument words of a message.
const ARGS: usize = 7;

/// Argument words of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Args {
    words: [u64; ARGS],
    used: usize,
}

impl Args {
    pub fn new(args: &[u64]) -> Self {
        let mut words = [0; ARGS];
        words[..args.len()].copy_from_slice(args);
        let used = args.len();
        Self { words, used }
    }

    /// Drops zeros at the end, which need not travel.
    pub fn trimmed(args: &[u64]) -> Self {
        let last = args.iter().rposition(|word| *word != 0);
        Self::new(&args[..last.map_or(0, |last| last + 1)])
    }

    /// Appends the word beside a matched message's tag, if it has one.
    pub fn with_data(args: &[u64], data: Option<u64>) -> Self {
        let mut all = Self::new(args);
        if let Some(data) = data {
            all.words[all.used] = data;
            all.used += 1;
        }
        all
    }
}

/// What the payload of a message is read from.
#[derive(Debug)]
pub enum Payload<'a, S, K> {
    /// No payload.
    Nothing,
    /// Memory of a send or a put.
    Source(Range<&'a S>),
    /// Memory of a region.
    Region(Range<&'a K>),
    /// Bytes, kept until the message was sent or released.
    Bytes(&'a [u8]),
}

/// A message to another rank's exchange. After [`Did::Lent`] its memory is read until
/// [`crate::Exchange::released`] is called.
#[derive(Debug)]
pub struct Outgoing<'a, S, K> {
    /// Kind of the message, which implies priority and flow.
    pub kind: Kind,
    args: Args,
    /// Payload of the message.
    pub payload: Payload<'a, S, K>,
    /// Number to pass to [`crate::Exchange::released`].
    pub op: OpId,
}

impl<'a, S, K> Outgoing<'a, S, K> {
    pub(crate) const fn new(kind: Kind, args: Args, payload: Payload<'a, S, K>, op: OpId) -> Self {
        Self {
            kind,
            args,
            payload,
            op,
        }
    }

    /// Argument words.
    #[inline]
    #[must_use]
    pub fn args(&self) -> &[u64] {
        &self.args.words[..self.args.used]
    }
}

/// A place in another process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Where {
    /// Address, as the process reported it.
    Address(u64),
    /// Start of the memory that the process publishes under this key.
    Published(u64),
    /// Place in a region, if its rights permit.
    Region(Place),
}

/// A range of memory.
#[derive(Debug)]
pub struct Range<M> {
    /// The memory.
    pub of: M,
    /// Offset of the range, bytes.
    pub at: u64,
    /// Length of the range, bytes.
    pub bytes: u64,
}

impl<M> Range<M> {
    pub(crate) const fn new(of: M, at: u64, bytes: u64) -> Self {
        Self { of, at, bytes }
    }
}

/// A task for the caller, which reports the outcome by [`crate::Exchange::did`]. A copy that fails
/// may be done in part.
#[derive(Debug)]
pub enum Task<'a, S, K> {
    /// Report where a source lies in this process's memory, if this rank may copy it from there:
    /// [`Did::Located`].
    Locate(u32, &'a S),
    /// Send a message to a rank.
    Send(u32, Outgoing<'a, S, K>),
    /// Deliver a rank's signal to our program, with the number of bytes of its put.
    Signal(u32, Signal, u64),
    /// Prepare memory that is about to be written: lazily mapped memory is mapped now.
    Prepare(Range<&'a mut K>),
    /// Publish memory: the rank may write to it directly, with this key, which is not 0, until it
    /// is withdrawn.
    Publish(u32, u64, Range<&'a mut K>),
    /// Withdraw memory published under this key: from the first try on no write begins.
    /// [`Did::NoRoom`]: a write is still in progress.
    Withdraw(u64, &'a mut K),
    /// Fill memory from a rank's.
    CopyFrom(u32, Where, Range<&'a mut K>),
    /// Write a source to a rank's memory.
    CopyTo(u32, Where, Range<&'a S>),
}

/// Outcome of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Did {
    /// Done; bytes that were sent are copied.
    Done,
    /// Location of the source.
    Located(Located),
    /// The message was sent, and its memory is read later: [`crate::Exchange::released`]
    /// follows.
    Lent,
    /// Nothing was done for want of room: [`crate::Exchange::resume`] tries again.
    NoRoom,
    /// The rank is dead, or going to be declared so.
    Dead,
    /// Not possible here, or not known to be: the exchange finds another way.
    NotPossible,
    /// The access was refused, as the target itself would have: this ends the
    /// operation. Nothing was touched there.
    Refused(OpError),
}
