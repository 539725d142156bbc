//! Messages and events as handlers receive them, and the options of a send.

use portolan_exchange::Notify;
use portolan_wire::{MessageNo, Priority};

use super::{Death, Failure, FlowOf, Misuse, SpaceId};

/// A message that has arrived; valid during the handler's call.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Rank of the sender (of a broadcast: of its root).
    pub from: u32,
    /// Destination port.
    pub port: u16,
    /// Flow of the message.
    pub flow: u16,
    /// Request or reply.
    pub priority: Priority,
    /// Sequence number within sender, priority and flow.
    pub number: MessageNo,
    /// The payload: in the port's buffer, where it was placed, or where it arrived.
    pub payload: &'a [u8],
    /// Length as sent, bytes: more than `payload` has if the message was truncated
    /// ([`crate::Placement::Into`]).
    pub total: u64,
    pub(crate) args: &'a [u8],
}

impl<'a> Message<'a> {
    /// Returns the number of argument words.
    #[inline]
    #[must_use]
    pub fn arg_count(&self) -> usize {
        self.args.len() / 8
    }

    /// Returns argument word `index`, or 0 if there is none.
    #[inline]
    #[must_use]
    pub fn arg(&self, index: usize) -> u64 {
        match self.args.get(index * 8..index * 8 + 8) {
            Some(word) => u64::from_le_bytes(word.try_into().unwrap_or_default()),
            None => 0,
        }
    }

    /// Returns all argument words.
    pub fn args(&self) -> impl ExactSizeIterator<Item = u64> + use<'a> {
        let args = self.args;
        args.chunks_exact(8)
            .map(|w| u64::from_le_bytes(w.try_into().unwrap_or_default()))
    }
}

/// An event that an error handler receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// For a port: a message was longer than its buffer or, without one, than the memory for
    /// arriving messages. Nothing of it was stored; its sender learns that it was refused.
    TooLong {
        /// Rank of the sender.
        from: u32,
        /// The port.
        port: u16,
        /// Length of the message, bytes.
        bytes: u64,
        /// Longest message that there was room for, bytes.
        room: u64,
    },
    /// For the endpoint: the receiver refused a message of ours, because it has closed the port
    /// or its endpoint, or the message was too long for it.
    Refused {
        /// Rank of the receiver.
        to: u32,
        /// Priority of the message.
        priority: Priority,
        /// Flow of the message.
        flow: u16,
        /// Number of the message, as the send returned it.
        number: MessageNo,
    },
    /// For the endpoint and every bound port: a peer has died. What it had not acknowledged was
    /// delivered at most once.
    PeerDead {
        /// Its rank.
        rank: u32,
        /// Why.
        why: Death,
        /// Number of its matched messages that were offered here or had begun to arrive in this
        /// space, and are lost.
        lost: u64,
    },
    /// For the endpoint and every bound port: a peer that had died was started again, is in the
    /// job and can be sent to. Nothing of its earlier life arrives any more.
    PeerBack {
        /// Its rank.
        rank: u32,
    },
    /// For the endpoint and every bound port: a peer has introduced itself, or a dead one is
    /// back. Sends to it are possible. Only outside of a job.
    PeerCome {
        /// Its number.
        rank: u32,
    },
    /// For the endpoint: a peer has not answered for long; retries continue.
    PeerSilent {
        /// Its rank.
        rank: u32,
        /// Error of this host's kernel, if that is the reason.
        failure: Option<Failure>,
    },
}

impl Event {
    /// Makes [`Event::PeerDead`]; `lost` is counted when its handlers run.
    pub(crate) const fn dead(rank: u32, why: Death) -> Self {
        Self::PeerDead { rank, why, lost: 0 }
    }
}

/// Options of a send. The default is a request in flow 0 without argument words.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendOptions<'a> {
    /// Flow: messages of one flow keep their order. A flow whose messages are not taken delays
    /// no other. Default 0.
    pub flow: u16,
    /// Request or reply. Default request.
    pub priority: Priority,
    /// At most [`portolan_wire::ARGS_MAX`] words beside the payload.
    pub args: &'a [u64],
    /// How completion is reported, for a send that begins an operation.
    pub notify: Notify,
}

impl SendOptions<'_> {
    /// The default, as a constant ready in memory.
    pub const PLAIN: Self = Self {
        flow: 0,
        priority: Priority::Request,
        args: &[],
        notify: Notify::NONE,
    };

    /// Returns the options with `flow` mapped to the flow on the wire of this space.
    ///
    /// # Errors
    /// [`Misuse::BadFlow`].
    #[inline(always)]
    pub const fn within(&self, space: SpaceId) -> Result<Self, Misuse> {
        match space.flow(self.flow) {
            Ok(flow) => Ok(Self { flow, ..*self }),
            Err(e) => Err(e),
        }
    }

    /// Returns the flow to a rank that these options name.
    pub(crate) const fn flow_to(&self, rank: u32) -> FlowOf {
        FlowOf {
            rank,
            priority: self.priority,
            flow: self.flow,
        }
    }
}
