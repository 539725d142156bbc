//! What handlers are given.

use portolan_exchange::Notify;
use portolan_wire::{MessageNo, Priority};

use super::{Death, Failure, FlowOf, Misuse, SpaceId};

/// A message that has arrived; valid during the handler's call.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Rank of the sender (of a broadcast: of its root).
    pub from: u32,
    /// The port that it came to.
    pub port: u16,
    /// Its flow.
    pub flow: u16,
    /// Request or reply.
    pub priority: Priority,
    /// Its number within sender, priority and flow.
    pub number: MessageNo,
    /// The bytes: in the port's buffer, where they were placed, or where they arrived.
    pub payload: &'a [u8],
    /// Bytes that were sent: more than there are here of one that was cut
    /// ([`crate::Placement::Into`]).
    pub total: u64,
    pub(crate) args: &'a [u8],
}

impl<'a> Message<'a> {
    /// How many argument words came with it.
    #[inline]
    #[must_use]
    pub fn arg_count(&self) -> usize {
        self.args.len() / 8
    }

    /// Argument word `index`, 0 where there is none.
    #[inline]
    #[must_use]
    pub fn arg(&self, index: usize) -> u64 {
        match self.args.get(index * 8..index * 8 + 8) {
            Some(word) => u64::from_le_bytes(word.try_into().unwrap_or_default()),
            None => 0,
        }
    }

    /// All argument words.
    pub fn args(&self) -> impl ExactSizeIterator<Item = u64> + use<'a> {
        let args = self.args;
        args.chunks_exact(8)
            .map(|w| u64::from_le_bytes(w.try_into().unwrap_or_default()))
    }
}

/// What an error handler is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// Of a port: a message came that is longer than its buffer, or, without
    /// one, than the memory for arriving messages. Nothing of it was stored;
    /// its sender is told that it was refused.
    TooLong {
        /// Rank of the sender.
        from: u32,
        /// The port.
        port: u16,
        /// Bytes of the message.
        bytes: u64,
        /// Bytes that there was room for.
        room: u64,
    },
    /// Of the endpoint: the receiver refused a message of ours, because it has
    /// closed the port or its endpoint, or the message was too long for it.
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
    /// Of the endpoint and of every bound port: a peer has died. What it had
    /// not acknowledged was delivered at most once.
    PeerDead {
        /// Its rank.
        rank: u32,
        /// Why.
        why: Death,
        /// Matched messages of its that were offered here or had begun to arrive in this
        /// space, and are lost.
        lost: u64,
    },
    /// Of the endpoint and of every bound port: a peer that had died was started
    /// again, is in the job and can be sent to. Nothing of its life before
    /// comes any more.
    PeerBack {
        /// Its rank.
        rank: u32,
    },
    /// Of the endpoint and of every bound port: a peer has introduced itself, or one that
    /// was dead is back. It can be sent to. Only outside of a job.
    PeerCome {
        /// Its number.
        rank: u32,
    },
    /// Of the endpoint: a peer has been silent for long; it is still tried.
    PeerSilent {
        /// Its rank.
        rank: u32,
        /// What the kernel refuses here, where that is why.
        failure: Option<Failure>,
    },
}

impl Event {
    /// A peer has died; what is lost with it is counted until handlers are told.
    pub(crate) const fn dead(rank: u32, why: Death) -> Self {
        Self::PeerDead { rank, why, lost: 0 }
    }
}

/// How a message is to be sent beside where and what. The default is a request
/// in flow 0 without argument words.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendOptions<'a> {
    /// Flow: messages of one flow keep order. One whose messages nobody takes delays no
    /// other. Default 0.
    pub flow: u16,
    /// Default request.
    pub priority: Priority,
    /// At most [`crate::ARGS_MAX`] words beside the payload.
    pub args: &'a [u64],
    /// How the end of the operation is told, of a send that begins one.
    pub notify: Notify,
}

impl SendOptions<'_> {
    /// The default. As a constant it lies ready in memory.
    pub const PLAIN: Self = Self {
        flow: 0,
        priority: Priority::Request,
        args: &[],
        notify: Notify::NONE,
    };

    /// The same with the flow that it travels in, of this space.
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

    /// The flow of such a message to a rank.
    pub(crate) const fn flow_to(&self, rank: u32) -> FlowOf {
        FlowOf {
            rank,
            priority: self.priority,
            flow: self.flow,
        }
    }
}
