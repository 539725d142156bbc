//! What the caller is to do for the exchange.

use super::{Kind, Located, OpError, OpId, Place, Signal};

/// Argument words of a message, at most.
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

    /// Without zeros at the end, which need not travel.
    pub fn trimmed(args: &[u64]) -> Self {
        let last = args.iter().rposition(|word| *word != 0);
        Self::new(&args[..last.map_or(0, |last| last + 1)])
    }

    /// With what goes with a matched message, if anything does.
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
    /// There is none.
    Nothing,
    /// A send's or a put's memory.
    Source(Range<&'a S>),
    /// A region's.
    Region(Range<&'a K>),
    /// These bytes, which stay until then.
    Bytes(&'a [u8]),
}

/// A message to another rank's exchange. On [`Did::Lent`] its memory is read until
/// [`crate::Exchange::released`] says otherwise.
#[derive(Debug)]
pub struct Outgoing<'a, S, K> {
    /// What it is; says priority and flow too.
    pub kind: Kind,
    args: Args,
    /// Its payload.
    pub payload: Payload<'a, S, K>,
    /// What [`crate::Exchange::released`] names the memory by.
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

/// Where another process's memory is reached into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Where {
    /// At this address, which the process has told.
    Address(u64),
    /// From the beginning of what it publishes under this key.
    Published(u64),
    /// In a region, if that permits it.
    Region(Place),
}

/// A range of memory.
#[derive(Debug)]
pub struct Range<M> {
    /// The memory.
    pub of: M,
    /// Where in it the range begins.
    pub at: u64,
    /// Its bytes.
    pub bytes: u64,
}

impl<M> Range<M> {
    pub(crate) const fn new(of: M, at: u64, bytes: u64) -> Self {
        Self { of, at, bytes }
    }
}

/// What the caller is to do, and then to say by [`crate::Exchange::did`] what came of it.
/// Of a copy that fails a part may be there.
#[derive(Debug)]
pub enum Task<'a, S, K> {
    /// Say where a source lies in this process's memory, if this rank may copy it from
    /// there: [`Did::Located`].
    Locate(u32, &'a S),
    /// Send a message to a rank.
    Send(u32, Outgoing<'a, S, K>),
    /// Tell our program of a rank's signal: so many bytes of its put are visible.
    Signal(u32, Signal, u64),
    /// Make memory ready that is about to be written: whoever maps memory lazily
    /// does it now.
    Prepare(Range<&'a mut K>),
    /// Let a rank write to memory by itself, if it knows this key, which is not 0,
    /// until it is withdrawn.
    Publish(u32, u64, Range<&'a mut K>),
    /// End that, of this key and memory: from the first try on nobody begins to
    /// write there. [`Did::NoRoom`]: somebody still writes.
    Withdraw(u64, &'a mut K),
    /// Fill memory from a rank's.
    CopyFrom(u32, Where, Range<&'a mut K>),
    /// Write a source to a rank's memory.
    CopyTo(u32, Where, Range<&'a S>),
}

/// What came of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Did {
    /// It is done; bytes that were sent are copied.
    Done,
    /// The source lies there.
    Located(Located),
    /// The message was sent, and its memory is read later: [`crate::Exchange::released`]
    /// follows.
    Lent,
    /// Nothing was done for want of room: [`crate::Exchange::resume`] tries again.
    NoRoom,
    /// The rank is dead, or going to be declared so.
    Dead,
    /// It is not possible here, or not known to be: the exchange finds another way.
    NotPossible,
    /// The access was refused, as the target itself would have: this ends the
    /// operation. Nothing was touched there.
    Refused(OpError),
}
