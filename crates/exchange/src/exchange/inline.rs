//! The receive that its caller waits for. This receive is not posted: a message that is here whole
//! ends it without a table lookup. No other receive was posted when it began, so it is the first.

use portolan_matching::{ReceivePlace, Selector};

use super::Exchange;
use crate::state::{Body, Receive, ReceiveStage};
use crate::values::{Action, Completion, Notify, OpError, OpId, Probed, Sink, Source};

#[derive(Debug)]
pub(crate) struct InlineSlot<K> {
    selector: Selector,
    stage: InlineReceive<K>,
}

/// State of a receive that its caller waits for.
#[derive(Debug)]
pub enum InlineReceive<K> {
    /// No message has met it; this is its memory.
    Waits(K),
    /// Now an operation: the receive has met a message that is not here whole, or has failed.
    Became(OpId),
    /// The message was received. The operation's number is 0, which is not used for others.
    Ended(Completion, K),
}

impl<S: Source, K: Sink> Exchange<S, K> {
    /// Begins to receive the first message that fits, for a caller that waits for it:
    /// [`Exchange::poll_inline`] reports its end.
    ///
    /// # Errors
    /// The memory: such a receive, another receive or a message that fits is there already, or the
    /// rank cannot send any more. Post the receive instead.
    #[inline]
    pub fn post_inline(&mut self, selector: &Selector, sink: K) -> Result<(), K> {
        let alone = self.inline.is_none()
            && self.matcher.posted_len() == 0
            && (self.matcher.unexpected_len() == 0 || self.matcher.peek(selector).is_none());
        let hopeless = selector.source.is_some_and(|source| {
            // A dead sender sends nothing more.
            self.peers.get(source).is_none_or(|peer| peer.dead)
        });
        if !alone || hopeless {
            return Err(sink);
        }
        self.inline = Some(InlineSlot {
            selector: *selector,
            stage: InlineReceive::Waits(sink),
        });
        if let Some(rank) = selector.source {
            self.ops.lanes.expect(rank, 0);
        }
        Ok(())
    }

    /// Returns the receive's state once it no longer waits; once only.
    #[inline]
    pub fn poll_inline(&mut self) -> Option<InlineReceive<K>> {
        match &self.inline {
            None
            | Some(InlineSlot {
                stage: InlineReceive::Waits(_),
                ..
            }) => None,
            Some(_) => self.inline.take().map(|slot| slot.stage),
        }
    }

    /// Withdraws the receive if no message has met it; returns its memory.
    pub fn withdraw_inline(&mut self) -> Option<K> {
        match self.inline.take() {
            Some(InlineSlot {
                stage: InlineReceive::Waits(sink),
                ..
            }) => Some(sink),
            other => {
                self.inline = other;
                None
            }
        }
    }

    /// Whether such a receive waits for a message, and `of` selects it.
    pub(crate) fn stands(&self, of: impl FnOnce(&Selector) -> bool) -> bool {
        (self.inline.as_ref())
            .is_some_and(|s| matches!(s.stage, InlineReceive::Waits(_)) && of(&s.selector))
    }

    /// Ends the receive with a message that is here whole; false: none waits, or the message does
    /// not fit.
    #[inline]
    pub(crate) fn end_standing(&mut self, what: &Probed, payload: &[u8]) -> bool {
        let Some(slot) = &mut self.inline else {
            return false;
        };
        if !slot.selector.fits(&what.envelope()) {
            return false;
        }
        let stage = core::mem::replace(&mut slot.stage, InlineReceive::Became(OpId(0)));
        let InlineReceive::Waits(mut sink) = stage else {
            slot.stage = stage;
            return false;
        };
        let bytes = what.total.min(sink.len());
        if bytes > 0 {
            sink.write(0, &payload[..bytes as usize]);
        }
        let completion = Completion {
            op: OpId(0),
            action: Action::Receive,
            peer: what.from,
            tag: what.tag,
            bytes,
            total: what.total,
            at: 0,
            data: what.data,
            context: 0,
            result: if what.total > bytes {
                Err(OpError::Truncated)
            } else {
                Ok(())
            },
        };
        slot.stage = InlineReceive::Ended(completion, sink);
        true
    }

    /// Turns the receive into an operation that is not posted yet, if it waits and `of` selects
    /// it.
    pub(crate) fn raise(&mut self, of: impl FnOnce(&Selector) -> bool) -> Option<OpId> {
        if !self.stands(of) {
            return None;
        }
        let InlineSlot {
            selector,
            stage: InlineReceive::Waits(sink),
        } = self.inline.take()?
        else {
            return None;
        };
        let receive = Receive {
            sink: Some(sink),
            slice: None,
            selector,
            place: ReceivePlace::default(),
            stage: ReceiveStage::Posted(None),
        };
        let body = Body::Receive(receive);
        let id = (self.ops).insert(body, Notify::default(), selector.tag, None);
        self.inline = Some(InlineSlot {
            selector,
            stage: InlineReceive::Became(id),
        });
        Some(id)
    }

    /// Turns the receive into an operation if it waits and this message fits.
    pub(crate) fn raise_for(&mut self, what: &Probed) -> Option<OpId> {
        self.inline.as_ref()?;
        self.raise(|selector| selector.fits(&what.envelope()))
    }
}
