//! The receive that its caller waits for. It is not posted: a message that is
//! here whole ends it without a look at any table. Of receives it is the
//! first, for there was no other when it began.

use portolan_matching::{Envelope, Selector};

use crate::exchange::Exchange;
use crate::host::{Sink, Source};
use crate::message::Probed;
use crate::ops::{Action, Body, Completion, Notify, OpError, OpId, Receive, ReceiveStage};

#[derive(Debug)]
pub(crate) struct Standing<K> {
    selector: Selector,
    stage: Stood<K>,
}

/// What became of a receive that its caller waits for.
#[derive(Debug)]
pub enum Stood<K> {
    /// No message has met it; this is its memory.
    Waits(K),
    /// It is an operation: a message has met it that is not here whole, or it
    /// has failed.
    Became(OpId),
    /// It has got its message. The number of the operation is 0, which is
    /// none's.
    Ended(Completion, K),
}

impl<S: Source, K: Sink> Exchange<S, K> {
    /// Begins to receive the first message that fits, for a caller that waits
    /// for it: [`Exchange::stood`] tells of its end.
    ///
    /// # Errors
    /// The memory: there is such a caller already, or another receive, or a
    /// message that fits, or the rank is none that may yet send. Post it.
    #[inline]
    pub fn stand(&mut self, selector: &Selector, sink: K) -> Result<(), K> {
        let alone = self.standing.is_none()
            && self.matcher.posted_len() == 0
            && (self.matcher.unexpected_len() == 0 || self.matcher.peek(selector).is_none());
        let hopeless = selector.source.is_some_and(|source| {
            // Nothing of a dead sender comes any more.
            self.peers.get(source).is_none_or(|peer| peer.dead)
        });
        if !alone || hopeless {
            return Err(sink);
        }
        self.standing = Some(Standing {
            selector: *selector,
            stage: Stood::Waits(sink),
        });
        Ok(())
    }

    /// What became of it, once it waits no more; told once.
    #[inline]
    pub fn stood(&mut self) -> Option<Stood<K>> {
        match &self.standing {
            None
            | Some(Standing {
                stage: Stood::Waits(_),
                ..
            }) => None,
            Some(_) => self.standing.take().map(|standing| standing.stage),
        }
    }

    /// Takes it back, if no message has met it: gives its memory.
    pub fn unstand(&mut self) -> Option<K> {
        match self.standing.take() {
            Some(Standing {
                stage: Stood::Waits(sink),
                ..
            }) => Some(sink),
            other => {
                self.standing = other;
                None
            }
        }
    }

    /// Whether a receive stands that no message has met, and of which `of`
    /// says so.
    pub(crate) fn stands(&self, of: impl FnOnce(&Selector) -> bool) -> bool {
        (self.standing.as_ref())
            .is_some_and(|s| matches!(s.stage, Stood::Waits(_)) && of(&s.selector))
    }

    /// Gives it a message that is here whole; false: it does not stand, or
    /// the message does not fit.
    #[inline]
    pub(crate) fn end_standing(&mut self, what: &Probed, payload: &[u8]) -> bool {
        let Some(standing) = &mut self.standing else {
            return false;
        };
        if !standing.selector.fits(&envelope(what)) {
            return false;
        }
        let stage = core::mem::replace(&mut standing.stage, Stood::Became(OpId(0)));
        let Stood::Waits(mut sink) = stage else {
            standing.stage = stage;
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
            data: what.data,
            context: 0,
            result: if what.total > bytes {
                Err(OpError::Truncated)
            } else {
                Ok(())
            },
        };
        standing.stage = Stood::Ended(completion, sink);
        true
    }

    /// Makes it an operation, that nothing is known of yet.
    pub(crate) fn raise(&mut self, of: impl FnOnce(&Selector) -> bool) -> Option<OpId> {
        if !self.stands(of) {
            return None;
        }
        let Standing {
            selector,
            stage: Stood::Waits(sink),
        } = self.standing.take()?
        else {
            return None;
        };
        let receive = Receive {
            sink: Some(sink),
            source: selector.source,
            stage: ReceiveStage::Posted(None),
        };
        let body = Body::Receive(receive);
        let id = (self.ops).insert(body, Notify::default(), selector.tag, None);
        self.standing = Some(Standing {
            selector,
            stage: Stood::Became(id),
        });
        Some(id)
    }

    /// ...because a message has met it.
    pub(crate) fn raise_for(&mut self, what: &Probed) -> Option<OpId> {
        self.standing.as_ref()?;
        self.raise(|selector| selector.fits(&envelope(what)))
    }
}

const fn envelope(what: &Probed) -> Envelope {
    Envelope {
        source: what.from,
        tag: what.tag,
    }
}
