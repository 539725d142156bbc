//! Ends other than success: cancels, deaths, the close of the endpoint.

use alloc::vec::Vec;

use portolan_matching::{Matcher, Selector};

use super::Exchange;
use crate::state::{Body, Origin, ReceiveStage, RemoteStage, RmaOp, SendStage, Slab};
use crate::values::{Kind, NOBODY, OpError, OpId, Sink, Source};

impl<S: Source, K: Sink> Exchange<S, K> {
    /// Cancels a receive that no message has met, or a one-sided operation that waits for a fence
    /// or for room to leave; it ends with [`OpError::Cancelled`]. False: it goes on, as it has met
    /// a message, has left, has ended or is a send. A receive of many messages takes no more, and
    /// ends once its messages have ended.
    pub fn cancel(&mut self, id: OpId) -> bool {
        if let Some(remote) = self.ops.remote(id) {
            let waits = remote.stage == RemoteStage::Waiting;
            if waits {
                self.end_remote(id, Err(OpError::Cancelled));
            }
            return waits;
        }
        let ticket = match self.ops.receive(id).map(|receive| &receive.stage) {
            Some(ReceiveStage::Posted(ticket)) => *ticket,
            Some(ReceiveStage::Many(many)) => many.ticket,
            Some(ReceiveStage::Met(_)) | None => None,
        };
        if let Some(ticket) = ticket {
            self.matcher.cancel(ticket);
            self.ops.end_posted(id, Err(OpError::Cancelled));
        }
        ticket.is_some()
    }

    /// Cancels a receive with this [`Notify::context`](crate::Notify::context) that still
    /// takes messages; false if there is none.
    pub fn cancel_named(&mut self, context: u64) -> bool {
        let takes = |body: &Body<S, K>| match body {
            Body::Receive(receive) => !matches!(receive.stage, ReceiveStage::Met(_)),
            _ => false,
        };
        let named =
            self.ops.slab.iter().find(|(_, op)| {
                op.notify.context == context && op.ended.is_none() && takes(&op.body)
            });
        let found = named.map(|(id, _)| OpId(id));
        found.is_some_and(|id| self.cancel(id))
    }

    /// Reports the death of a rank. Messages of it that have arrived in full stay. All else that
    /// depends on it ends with [`OpError::PeerDead`], but a receive from any source is posted
    /// again at its place. The caller has called, or will call, [`released`](Exchange::released)
    /// for messages that read a send's memory.
    pub fn peer_died(&mut self, rank: u32) {
        match self.peers.get(rank) {
            Some(peer) if !peer.dead => peer.dead = true,
            _ => return,
        }
        self.hand_over_no_more(Some(rank));
        let mut lost = self.lose(Some(rank), OpError::PeerDead);
        if let Some(id) = self.raise(|selector| selector.source == Some(rank)) {
            self.ops.end(id, Err(OpError::PeerDead));
        }
        let forgotten = self.matcher.forget(rank);
        for id in forgotten.receives {
            self.ops.end_posted(id, Err(OpError::PeerDead));
        }
        for number in forgotten.messages {
            lost += u64::from(!self.keep_or_lose(number));
        }
        let others: Vec<u64> = (self.messages.iter())
            .filter(|(_, m)| m.what.from == rank && (m.claimed || m.met.is_some()))
            .map(|(number, _)| number)
            .collect();
        for number in others {
            let Some(message) = self.messages.get_mut(number) else {
                continue;
            };
            if message.met.is_some() {
                self.release_message(number);
            } else {
                message.lost = message.pushes > 0 || message.origin != Origin::Eager;
                lost += u64::from(message.lost);
            }
        }
        if let Some(peer) = self.peers.get(rank) {
            peer.lost = lost;
        }
        self.stand_again();
        self.ask();
    }

    /// Gives up all in flight to and from a rank, or all ranks; returns the number of messages
    /// that had met a receive and had not arrived.
    fn lose(&mut self, whom: Option<u32>, why: OpError) -> u64 {
        let lost = |rank: u32| whom.is_none_or(|it| it == rank);
        let met = self.peers.met().map(|(rank, _)| rank);
        for rank in met.filter(|rank| lost(*rank)).collect::<Vec<_>>() {
            self.peers.drop_messages(rank);
            self.incast.forget(rank);
            if let Some(peer) = self.peers.get(rank) {
                peer.serving = 0;
                peer.putting = 0;
            }
        }
        self.second_pushes.retain(|(from, _), _| {
            let goes = lost(*from);
            if goes {
                self.ops.lanes.expect(*from, -1);
            }
            !goes
        });
        self.drop_parts(|part| lost(part.from));
        self.drop_served(whom);
        self.targets.retain(|rank, _| !lost(*rank));
        let mut messages = 0;
        for id in self.ops.all_live() {
            messages += u64::from(self.end_with(whom, id, why));
        }
        messages
    }

    /// Ends an operation that depends on a lost rank, once its memory is not read or written any
    /// more; returns whether that was a receive with its message.
    fn end_with(&mut self, whom: Option<u32>, id: OpId, why: OpError) -> bool {
        let lost = |rank: u32| whom.is_none_or(|it| it == rank);
        if let Some(send) = self.ops.send(id).filter(|send| lost(send.to)) {
            if whom.is_none() && send.may_be_copied() {
                return false;
            }
            send.stage = SendStage::Lost(why);
            self.ops.set_awaits(id, NOBODY);
            self.end_send(id);
        } else if let Some(remote) = self.ops.remote(id).filter(|remote| lost(remote.to)) {
            remote.counted = false;
            remote.direct = false;
            if remote.rma == RmaOp::Get {
                let (left, due) = (remote.total - remote.asked, remote.asked - remote.answered);
                self.pulls.wait_no_more(self.config.number, left, id);
                self.pulls.came(remote.to, due);
            }
            if !matches!(remote.stage, RemoteStage::Answered(_)) {
                remote.stage = RemoteStage::Answered(Err(why));
            }
            self.ops.set_awaits(id, NOBODY);
            self.end_answered(id);
        } else if let Some(&mut meeting) = self.ops.meeting(id)
            && lost(meeting.from)
            && meeting.ending.is_none()
        {
            self.pulls.forget(self.config.number, id, &meeting);
            let is_receive = !self.handovers.contains_key(&id);
            self.end_receive(id, Err(why));
            return is_receive;
        }
        false
    }

    /// Keeps an unexpected message of a dead sender if it is whole; false: it is lost.
    fn keep_or_lose(&mut self, number: u64) -> bool {
        let Some(message) = self.messages.get(number) else {
            return true;
        };
        let whole = message.pushes == 0 && message.origin == Origin::Eager;
        if whole {
            // No posted receive fits: it would have taken the message before.
            self.matcher.arrive(message.what.envelope(), number);
        } else {
            self.release_message(number);
        }
        whole
    }

    /// Number of messages of a dead rank that were offered or had begun to arrive, and are lost.
    #[must_use]
    pub fn lost_of(&mut self, rank: u32) -> u64 {
        self.peers.get(rank).map_or(0, |peer| peer.lost)
    }

    /// Reports that a dead rank is back in a new life: no message of its old life is received any
    /// more, but for claimed ones.
    pub fn peer_back(&mut self, rank: u32) {
        self.peer_died(rank);
        let all = Selector::from(rank, 0).ignoring(u64::MAX);
        while let Some((_, number)) = self.matcher.claim(&all) {
            self.release_message(number);
        }
        // Claimed messages are not charged any more: the counts begin anew.
        for message in self.messages.iter_mut() {
            if message.what.from == rank {
                message.charge = 0;
                message.origin = Origin::Eager;
            }
        }
        self.peers.renew(rank);
    }

    /// Reports that a rank has closed its exchange, though it is alive. As
    /// [`Exchange::peer_died`]; besides, its offers are answered, since its memory is not copied
    /// from any more.
    pub fn peer_left(&mut self, rank: u32) {
        let met = self.ops.slab.iter().filter_map(|(_, op)| op.offer_of(rank));
        let kept = self.messages.iter().filter_map(|(_, m)| m.offer_of(rank));
        let offers: Vec<u64> = met.chain(kept).collect();
        self.peer_died(rank);
        for op in offers {
            self.say(rank, Kind::Done, [op]);
        }
    }

    /// Closes the exchange: operations end with [`OpError::Closed`], at once or when others no
    /// longer read or write their memory, and [`Exchange::is_left`] reports that all have.
    /// Messages that arrive from now on are dropped. Regions are not found any more; their memory
    /// is returned by [`Exchange::deregister`] once none of it is lent.
    pub fn close(&mut self) {
        self.is_over = true;
        self.raise(|_| true);
        self.lose(None, OpError::Closed);
        for id in self.ops.all_live() {
            let stage = self.ops.receive(id).map(|it| &it.stage);
            if matches!(stage, Some(ReceiveStage::Posted(_) | ReceiveStage::Many(_))) {
                self.ops.end_posted(id, Err(OpError::Closed));
            }
        }
        self.matcher = Matcher::new(self.config.secret);
        self.hand_over_no_more(None);
        let messages = core::mem::replace(&mut self.messages, Slab::new());
        for (_, message) in messages.iter() {
            self.free_late(message.what.from, message.late);
        }
        for rank in 0..self.config.size {
            if self.peers.all[rank as usize].is_some() {
                self.peers.renew(rank);
            }
        }
        self.regions.close_all();
    }

    /// Whether every operation has ended after [`Exchange::close`].
    pub fn is_left(&self) -> bool {
        self.ops.live() == 0
    }

    /// Ends all operations with [`OpError::Closed`] when the endpoint is closed: others no longer
    /// read or write anything.
    pub fn end_all(&mut self) {
        self.close();
        for id in self.ops.all_live() {
            self.ops.end(id, Err(OpError::Closed));
        }
    }
}
