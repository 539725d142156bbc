//! Ends that are nobody's success: cancels, deaths, the close of the endpoint.

use alloc::vec::Vec;

use portolan_matching::Selector;

use super::Exchange;
use crate::state::{Dest, Origin, ReceiveStage, RemoteStage, RmaOp, SendStage};
use crate::values::{NOBODY, OpError, OpId, Sink, Source};

impl<S: Source, K: Sink> Exchange<S, K> {
    /// Cancels a receive that no message has met; it ends with
    /// [`OpError::Cancelled`]; or a one-sided operation that waits for a fence or for
    /// room to leave. False if it has met one or has left, or has ended, or
    /// is a send: then it goes on.
    pub fn cancel(&mut self, id: OpId) -> bool {
        if let Some(remote) = self.ops.remote(id) {
            let waits = remote.stage == RemoteStage::Waiting;
            if waits {
                self.end_remote(id, Err(OpError::Cancelled));
            }
            return waits;
        }
        let Some(receive) = self.ops.receive(id) else {
            return false;
        };
        let ReceiveStage::Posted(Some(ticket)) = receive.stage else {
            return false;
        };
        self.matcher.cancel(ticket);
        self.ops.end(id, Err(OpError::Cancelled));
        true
    }

    /// A rank is dead. What has arrived of it in full stays; all else that
    /// depends on it ends with [`OpError::PeerDead`]. Messages that are being
    /// read from a send's memory were [`released`](Exchange::released) before,
    /// or will be.
    pub fn peer_died(&mut self, rank: u32) {
        match self.peers.get(rank) {
            Some(peer) if !peer.dead => peer.dead = true,
            _ => return,
        }
        self.peers.drop_messages(rank);
        self.incast.forget(rank);
        self.second_pushes.retain(|(from, _), _| {
            let lost = *from == rank;
            if lost {
                self.ops.lanes.expect(rank, -1);
            }
            !lost
        });
        self.drop_parts(|part| part.from == rank);
        self.drop_served(Some(rank));
        if let Some(peer) = self.peers.get(rank) {
            peer.serving = 0;
            peer.putting = 0;
        }
        self.targets.remove(&rank);
        for id in self.ops.all_live() {
            self.end_with(rank, id);
        }
        if let Some(id) = self.raise(|selector| selector.source == Some(rank)) {
            self.ops.end(id, Err(OpError::PeerDead));
        }
        let forgotten = self.matcher.forget(rank);
        for id in forgotten.receives {
            self.ops.end(id, Err(OpError::PeerDead));
        }
        for number in forgotten.messages {
            self.keep_or_lose(number);
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
            }
        }
        self.ask();
    }

    /// Ends an operation, if it depends on a dead rank.
    fn end_with(&mut self, rank: u32, id: OpId) {
        if let Some(send) = self.ops.send(id).filter(|send| send.to == rank) {
            send.stage = SendStage::Lost;
            self.ops.set_awaits(id, NOBODY);
            self.end_send(id);
        } else if let Some(remote) = self.ops.remote(id).filter(|remote| remote.to == rank) {
            remote.counted = false;
            remote.direct = false;
            if remote.rma == RmaOp::Get {
                let (left, due) = (remote.total - remote.asked, remote.asked - remote.answered);
                self.pulls.wait_no_more(self.config.number, left, id);
                self.pulls.came(rank, due);
            }
            if !matches!(remote.stage, RemoteStage::Answered(_)) {
                remote.stage = RemoteStage::Answered(Err(OpError::PeerDead));
            }
            self.ops.set_awaits(id, NOBODY);
            self.end_answered(id);
        } else if let Some(&mut meeting) = self.ops.meeting(id)
            && meeting.from == rank
            && meeting.ending.is_none()
        {
            self.pulls.forget(self.config.number, id, &meeting);
            self.end_receive(id, Err(OpError::PeerDead));
        }
    }

    /// An unexpected message of a dead sender: receivable if it is whole.
    fn keep_or_lose(&mut self, number: u64) {
        let Some(message) = self.messages.get(number) else {
            return;
        };
        if message.pushes == 0 && message.origin == Origin::Eager {
            // What fits it would have taken it before.
            self.matcher.arrive(message.what.envelope(), number);
        } else {
            self.release_message(number);
        }
    }

    /// A rank that had died is back in a new life: nothing of the life before
    /// is received any more, but for messages that are claimed.
    pub fn peer_back(&mut self, rank: u32) {
        self.peer_died(rank);
        let all = Selector::from(rank, 0).ignoring(u64::MAX);
        while let Some((_, number)) = self.matcher.claim(&all) {
            self.release_message(number);
        }
        // Claimed ones are counted no more: the counts begin anew.
        for message in self.messages.iter_mut() {
            if message.what.from == rank {
                message.charge = 0;
                message.origin = Origin::Eager;
            }
        }
        self.peers.renew(rank);
    }

    /// The endpoint is closed: what has not ended ends with
    /// [`OpError::Closed`]. What was published is withdrawn already. Nobody reaches into
    /// regions any more; their memory comes back by [`Exchange::deregister`] once none of it is lent.
    pub fn end_all(&mut self) {
        self.raise(|_| true);
        for id in self.ops.all_live() {
            self.ops.end(id, Err(OpError::Closed));
        }
        self.pulls.clear();
        self.hiding.clear();
        self.targets.clear();
        self.regions.close_all();
        self.drop_served(None);
        // Parts of messages go on to nobody's memory.
        self.drop_parts(|part| matches!(part.dest, Dest::Put(_) | Dest::Get(_) | Dest::Nowhere));
    }
}
