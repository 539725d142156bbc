//! Sends: whole, offered, to oneself.

use alloc::vec::Vec;

use crate::credit::OVERHEAD;
use crate::exchange::{Exchange, Waiting};
use crate::host::{Host, Outgoing, Refusal, Sink, Source};
use crate::kind::{Kind, OVERLAP, SECOND, SHARES};
use crate::message::{Origin, Probed};
use crate::ops::{Body, Notify, OpError, OpId, Send, SendStage};

/// How a message is to be sent beside where and with what tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SendOptions {
    /// A word for the receiver's completion. Default none.
    pub data: Option<u64>,
    /// The send ends when a receive has met the message, not before. Default
    /// off.
    pub sync: bool,
    /// How its end is told.
    pub notify: Notify,
}

/// Why nothing was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendRefused {
    /// There is no such rank.
    BadRank,
    /// The rank is dead.
    PeerDead,
    /// Longer than any message can be, 2^38 bytes.
    TooLong,
}

/// Longest message, bytes: what the protocol's fragment numbers count.
pub(crate) const BYTES_MAX: u64 = 1 << 38;

impl<S: Source, K: Sink> Exchange<S, K> {
    /// Begins to send a message. It ends when the memory is the program's
    /// again: when its bytes have been copied or received.
    ///
    /// # Errors
    /// [`SendRefused`], with the memory; nothing was begun.
    pub fn post_send(
        &mut self,
        host: &mut impl Host<Source = S, Sink = K>,
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
            gone: 0,
            due: 0,
            first: 0,
            second: 0,
        };
        let id = (self.ops).insert(Body::Send(send), options.notify, tag, options.data);
        if to == self.config.rank {
            self.send_self(host, id);
        } else if self.waits_for(to, Kind::Eager) {
            self.put_off(to, Waiting::Start(id));
        } else {
            match self.start(host, id) {
                Ok(()) => {}
                Err(Refusal::NoRoom) => self.put_off(to, Waiting::Start(id)),
                Err(Refusal::Dead) => self.ops.end(id, Err(OpError::PeerDead)),
            }
        }
        Ok(id)
    }

    /// Whether something of this length may be begun towards a rank.
    pub(crate) fn may_begin(&mut self, to: u32, total: u64) -> Result<(), SendRefused> {
        match self.peers.get(to) {
            None => Err(SendRefused::BadRank),
            Some(peer) if peer.dead => Err(SendRefused::PeerDead),
            Some(_) if total > BYTES_MAX => Err(SendRefused::TooLong),
            Some(_) => Ok(()),
        }
    }

    /// Takes credit for a message that is pushed whole and copied at once, if
    /// it may be: then the caller sends it, by the kind [`Kind::Eager`] with
    /// the tag, or gives the credit back by [`Exchange::unpush`].
    #[inline]
    pub fn may_push_whole(&mut self, to: u32, bytes: u64) -> bool {
        if to == self.config.rank || self.has_backlog() {
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

    /// See [`Exchange::may_push_whole`].
    pub fn unpush(&mut self, to: u32, bytes: u64) {
        if let Some(peer) = self.peers.get(to) {
            peer.pushed -= bytes + OVERHEAD;
        }
    }

    /// Sends the first message of a send.
    pub(crate) fn start(
        &mut self,
        host: &mut impl Host<Source = S, Sink = K>,
        id: OpId,
    ) -> Result<(), Refusal> {
        let Some(op) = self.ops.get(id).filter(|op| op.ended.is_none()) else {
            return Ok(());
        };
        let Body::Send(send) = &op.body else {
            return Ok(());
        };
        let (Some(source), to, total) = (&send.source, send.to, send.total) else {
            return Ok(());
        };
        let Some(peer) = self.peers.get(to) else {
            return Ok(());
        };
        let push = host.push(to);
        let credit = peer.may_push();
        if !send.sync && total <= push.whole && total + OVERHEAD <= credit {
            let mut args = [op.tag, 0];
            let used = with_data(&mut args, op.data);
            let out = Outgoing {
                kind: Kind::Eager,
                args: &args[..used],
            };
            let sent = host.send_from(to, &out, source, 0, total, id)?;
            peer.pushed += total + OVERHEAD;
            if let Some(send) = self.ops.send(id) {
                send.stage = SendStage::Eager;
            }
            self.note_lent(id, sent);
            self.end_send(id);
            return Ok(());
        }
        // Where the receiver can copy for itself nothing need be pushed.
        let located = if total > push.whole || total > credit {
            let short = total < self.config.share_min;
            host.locate(to, source).filter(|it| !(it.shares && short))
        } else {
            None
        };
        let address = located.map_or(0, |it| it.address);
        let shares = located.is_some_and(|it| it.shares);
        let most = if address == 0 { total.min(credit) } else { 0 };
        // Who waits for the receive anyway lets the receiver say when.
        let short = match (send.sync, push.first.saturating_add(push.second)) {
            (true, pushed @ 1..) => push.whole.min(pushed),
            _ => push.whole,
        };
        let (first, second) = if total <= short && most == total {
            (total, 0)
        } else {
            // Also of one that would be pushed whole, but for the credit: its request
            // leaves when the first push is there.
            let first = push.first.min(most);
            let second = if total <= short { most } else { push.second };
            (first, second.min(most - first).min(SECOND))
        };
        let flags = if push.overlap { OVERLAP } else { 0 } | if shares { SHARES } else { 0 };
        let mut args = [op.tag, total, id.0, address, flags | second, 0];
        let used = 4 + with_data(&mut args[4..], op.data);
        let out = Outgoing {
            kind: Kind::Offer,
            args: &args[..used],
        };
        let sent = host.send_from(to, &out, source, 0, first, id)?;
        peer.pushed += first + second;
        if let Some(send) = self.ops.send(id) {
            send.stage = SendStage::Offered;
            send.gone = first + second;
            send.first = first;
            send.second = second;
        }
        self.note_lent(id, sent);
        host.await_peer(to);
        if second > 0 && self.send_second(host, id) == Err(Refusal::NoRoom) {
            self.put_off(to, Waiting::Second(id));
        }
        Ok(())
    }

    /// Sends the bytes that follow an offer's. The receiver waits for them
    /// before it answers.
    pub(crate) fn send_second(
        &mut self,
        host: &mut impl Host<Source = S, Sink = K>,
        id: OpId,
    ) -> Result<(), Refusal> {
        let Some(send) = self.ops.send(id) else {
            return Ok(());
        };
        let Some(source) = &send.source else {
            return Ok(());
        };
        let out = Outgoing {
            kind: Kind::Push,
            args: &[id.0],
        };
        let sent = host.send_from(send.to, &out, source, send.first, send.second, id)?;
        self.note_lent(id, sent);
        Ok(())
    }

    /// Ends a send whose memory nobody needs any more.
    pub(crate) fn end_send(&mut self, id: OpId) {
        if let Some(send) = self.ops.send(id)
            && send.lent == 0
        {
            match send.stage {
                SendStage::Eager | SendStage::Answered => self.ops.end(id, Ok(())),
                SendStage::Lost => self.ops.end(id, Err(OpError::PeerDead)),
                SendStage::Waiting | SendStage::Offered => {}
            }
        }
    }

    /// The receiver needs no more of an offered message.
    pub(crate) fn answered(&mut self, from: u32, id: OpId) {
        if let Some(send) = self.ops.send(id)
            && send.to == from
            && send.stage == SendStage::Offered
        {
            send.stage = SendStage::Answered;
            self.end_send(id);
        }
    }

    /// Sends the part of a message that its receiver has asked for.
    pub(crate) fn answer(
        &mut self,
        host: &mut impl Host<Source = S, Sink = K>,
        id: OpId,
        receive: u64,
        at: u64,
        bytes: u64,
    ) -> Result<(), Refusal> {
        let Some(send) = self.ops.send(id) else {
            return Ok(());
        };
        let Some(source) = &send.source else {
            return Ok(());
        };
        let out = Outgoing {
            kind: Kind::Pulled,
            args: &[receive, at],
        };
        let sent = host.send_from(send.to, &out, source, at, bytes, id)?;
        self.note_lent(id, sent);
        Ok(())
    }

    /// The same of all that waited for room.
    pub(crate) fn answer_due(
        &mut self,
        host: &mut impl Host<Source = S, Sink = K>,
        id: OpId,
        receive: u64,
    ) -> Result<(), Refusal> {
        let Some(&mut Send { gone, due, .. }) = self.ops.send(id) else {
            return Ok(());
        };
        self.answer(host, id, receive, gone - due, due)?;
        if let Some(send) = self.ops.send(id) {
            send.due = 0;
        }
        Ok(())
    }

    /// A message to ourselves: kept as others' are where it is short and there
    /// is room, else left where it is.
    fn send_self(&mut self, host: &mut impl Host<Source = S, Sink = K>, id: OpId) {
        let Some(op) = self.ops.get(id) else { return };
        let Body::Send(send) = &op.body else { return };
        let (total, sync) = (send.total, send.sync);
        let what = Probed {
            from: send.to,
            tag: op.tag,
            total,
            data: op.data,
        };
        let push = host.push(send.to);
        let room = self.room_of(host, send.to);
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
            self.keep(what, Origin::Eager, body, charge);
            self.ops.end(id, Ok(()));
        } else {
            self.keep(what, origin, Vec::new(), 0);
            if let Some(send) = self.ops.send(id) {
                send.stage = SendStage::Offered;
            }
        }
    }
}

/// Adds what goes with a message; gives how many words there are.
fn with_data(words: &mut [u64], data: Option<u64>) -> usize {
    if let Some(data) = data {
        words[1] = data;
        2
    } else {
        1
    }
}
