//! Sends: whole, offered, to oneself.

use alloc::vec::Vec;

use super::Exchange;
use crate::state::{Body, Origin, Send, SendStage, Waiting};
use crate::values::{
    Args, Did, Kind, Located, NOBODY, Notify, OVERHEAD, OVERLAP, OpError, OpId, Outgoing, Payload,
    Probed, Range, SECOND, SHARES, SYNC, Sink, Source, Task,
};

/// Options of a send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SendOptions {
    /// A word for the receiver's completion. Default none.
    pub data: Option<u64>,
    /// The send ends when a receive has met the message, not before. Default
    /// off.
    pub sync: bool,
    /// How its end is reported.
    pub notify: Notify,
}

/// Why an operation was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendRefused {
    /// No such rank.
    BadRank,
    /// The rank is dead.
    PeerDead,
    /// Longer than any message can be, 2^38 bytes.
    TooLong,
    /// No such atomic operation on these elements or this number of them, or the values have other
    /// lengths.
    BadAtomic,
}

/// Longest message, bytes: what the protocol's fragment numbers count.
pub const BYTES_MAX: u64 = 1 << 38;

impl<S: Source, K: Sink> Exchange<S, K> {
    /// Begins to send a message. The send ends when the memory is the program's again: its bytes
    /// have been copied or received.
    ///
    /// # Errors
    /// [`SendRefused`], with the memory; nothing was begun.
    pub fn post_send(
        &mut self,
        to: u32,
        tag: u64,
        options: &SendOptions,
        source: S,
    ) -> Result<OpId, (SendRefused, S)> {
        let total = source.len();
        if let Err(why) = self.may_begin(to, total) {
            return Err((why, source));
        }
        let send = Send {
            source: Some(source),
            to,
            total,
            sync: options.sync,
            stage: SendStage::Waiting,
            lent: 0,
            whole: false,
            located: None,
            gone: 0,
            due: 0,
            first: 0,
            second: 0,
        };
        let id = (self.ops).insert(Body::Send(send), options.notify, tag, options.data);
        if to == self.config.rank {
            self.send_self(id);
        } else {
            self.peers.push(to, Waiting::Start(id));
        }
        Ok(id)
    }

    /// Checks whether an operation of `total` bytes towards a rank may be begun.
    pub(crate) fn may_begin(&mut self, to: u32, total: u64) -> Result<(), SendRefused> {
        match self.peers.get(to) {
            None => Err(SendRefused::BadRank),
            Some(_) if total > BYTES_MAX => Err(SendRefused::TooLong),
            Some(peer) if peer.dead => Err(SendRefused::PeerDead),
            Some(_) => Ok(()),
        }
    }

    /// Takes credit for a message that is pushed whole and copied at once; false: not possible.
    /// The caller then sends the message, by the kind [`Kind::Eager`] with the tag, or returns the
    /// credit by [`Exchange::unpush`].
    #[inline]
    pub fn may_push_whole(&mut self, to: u32, bytes: u64) -> bool {
        if to == self.config.rank || self.has_backlog() || bytes > self.terms(to).push.whole {
            return false;
        }
        let charge = bytes + OVERHEAD;
        match self.peers.get(to) {
            Some(peer) if !peer.dead && charge <= peer.may_push() => {
                peer.pushed += charge;
                true
            }
            _ => false,
        }
    }

    /// Returns credit that [`Exchange::may_push_whole`] took.
    pub fn unpush(&mut self, to: u32, bytes: u64) {
        if let Some(peer) = self.peers.get(to) {
            peer.pushed -= bytes + OVERHEAD;
        }
    }

    /// First message of a send: all of it, or an offer; or the task to locate its memory before
    /// that.
    pub(crate) fn first_message(&mut self, to: u32, id: OpId) -> Option<Task<'_, S, K>> {
        let push = self.terms(to).push;
        let credit = self.peers.get(to)?.may_push();
        let op = self.ops.get_mut(id)?;
        let Body::Send(send) = &mut op.body else {
            return None;
        };
        let (source, total) = (send.source.as_ref()?, send.total);
        send.whole = !send.sync && total <= push.whole && total + OVERHEAD <= credit;
        if send.whole {
            let args = Args::with_data(&[op.tag], op.data);
            let payload = Payload::Source(Range::new(source, 0, total));
            let message = Outgoing::new(Kind::Eager, args, payload, id);
            return Some(Task::Send(to, message));
        }
        // A receiver that can copy for itself needs no push.
        let Located { address, shares } = match send.located {
            Some(located) => located,
            None if total > push.whole || total > credit => {
                return Some(Task::Locate(to, source));
            }
            None => Located::default(),
        };
        let most = if address == 0 { total.min(credit) } else { 0 };
        // A synchronous send waits for its receive anyway: beyond both pushes the receiver pulls.
        let short = match (send.sync, push.first.saturating_add(push.second)) {
            (true, pushed @ 1..) => push.whole.min(pushed),
            _ => push.whole,
        };
        (send.first, send.second) = if total <= short && most == total {
            (total, 0)
        } else {
            // A message that lacks only credit is split too: its request leaves when the first
            // push is there.
            let first = push.first.min(most);
            let second = if total <= short { most } else { push.second };
            (first, second.min(most - first).min(SECOND))
        };
        let flags = if push.overlap { OVERLAP } else { 0 }
            | if shares { SHARES } else { 0 }
            | if send.sync { SYNC } else { 0 };
        let args = [op.tag, total, id.0, address, flags | send.second];
        let args = Args::with_data(&args, op.data);
        let payload = Payload::Source(Range::new(source, 0, send.first));
        Some(Task::Send(
            to,
            Outgoing::new(Kind::Offer, args, payload, id),
        ))
    }

    /// Handles the outcome of a send's first message; returns the task that follows it.
    pub(crate) fn has_started(&mut self, id: OpId, did: Did) -> Option<Waiting> {
        let send = self.ops.send(id)?;
        match did {
            Did::Done | Did::Lent => {}
            Did::Located(_) | Did::NotPossible if send.located.is_none() => {
                let short = send.total < self.config.share_min;
                send.located = Some(match did {
                    Did::Located(it) if !(it.shares && short) => it,
                    _ => Located::default(),
                });
                return Some(Waiting::Start(id));
            }
            _ => {
                self.ops.end(id, Err(OpError::PeerDead));
                return None;
            }
        }
        let peer = self.peers.get(send.to)?;
        send.lent += u32::from(did == Did::Lent);
        if send.whole {
            peer.pushed += send.total + OVERHEAD;
            send.stage = SendStage::Eager;
            if send.lent == 0 {
                self.ops.end(id, Ok(()));
            }
            return None;
        }
        let (to, second) = (send.to, send.second);
        send.stage = SendStage::Offered;
        send.gone = send.first + second;
        peer.pushed += send.gone;
        self.ops.set_awaits(id, to);
        // Before the next offer: if the receiver takes no more offers, it may need this to end
        // one.
        (second > 0).then_some(Waiting::Second(id))
    }

    /// Ends a send whose memory is not needed any more.
    pub(crate) fn end_send(&mut self, id: OpId) {
        if let Some(send) = self.ops.send(id)
            && send.lent == 0
        {
            match send.stage {
                SendStage::Eager | SendStage::Answered => self.ops.end(id, Ok(())),
                SendStage::Lost(why) => self.ops.end(id, Err(why)),
                SendStage::Waiting | SendStage::Offered | SendStage::Unwanted => {}
            }
        }
    }

    /// Handles the receiver's report that it needs no more of an offered message. An unwanted one
    /// ends when the receiver does, with the reason for that. If this rank closes, the bytes may
    /// have been taken before a receive came: a synchronous send then ends with
    /// [`OpError::Closed`].
    pub(crate) fn answered(&mut self, from: u32, id: OpId, wanted: bool) {
        if let Some(send) = self.ops.send(id)
            && send.to == from
            && send.stage == SendStage::Offered
        {
            send.stage = match self.is_over || self.is_refusing && send.sync {
                true => SendStage::Lost(OpError::Closed),
                false if wanted => SendStage::Answered,
                false => {
                    send.stage = SendStage::Unwanted;
                    return;
                }
            };
            self.ops.set_awaits(id, NOBODY);
            self.end_send(id);
        }
    }

    /// Notes that requested bytes of a message have left; returns their offset and number.
    pub(crate) fn answer_due(&mut self, id: OpId) -> Option<(u64, u64)> {
        let send = self.ops.send(id)?;
        let due = core::mem::take(&mut send.due);
        Some((send.gone - due, due))
    }

    /// Sends a message to this rank: kept as others' are if it is short and there is room, else
    /// left where it is.
    fn send_self(&mut self, id: OpId) {
        let Some(op) = self.ops.get(id) else { return };
        let Body::Send(send) = &op.body else { return };
        let (total, sync) = (send.total, send.sync);
        let what = Probed {
            from: send.to,
            tag: op.tag,
            total,
            data: op.data,
        };
        let push = self.terms(send.to).push;
        let room = self.room_of(send.to);
        let charge = total + OVERHEAD;
        let keeps = !sync
            && total <= push.whole
            && (self.peers.get(send.to)).is_some_and(|peer| peer.kept() + charge <= room.bytes);
        let origin = Origin::Local(id);
        if let Some(receive) = self.first_receive(&what) {
            self.meet(receive, &what, origin, 0, 0, true);
            self.copy_local(id, receive);
        } else if keeps {
            let mut body = self.vector(total);
            body.resize(total as usize, 0);
            if let Some(source) = self.ops.send(id).and_then(|send| send.source.as_ref()) {
                source.read(0, &mut body);
            }
            self.keep(what, Origin::Eager, body, charge, 0, true);
            self.ops.end(id, Ok(()));
        } else {
            self.keep(what, origin, Vec::new(), 0, 0, true);
            if let Some(send) = self.ops.send(id) {
                send.stage = SendStage::Offered;
            }
        }
    }
}
