//! Ends that are nobody's success: cancels, deaths, the close of the endpoint.

use alloc::vec::Vec;

use portolan_matching::{Envelope, Selector};

use crate::exchange::Exchange;
use crate::memory::{Sink, Source};
use crate::message::{Dest, Origin, Part};
use crate::ops::{Body, NOBODY, NOWHERE, OpError, OpId, ReceiveStage, SendStage};
use crate::remote::{RemoteStage, RmaOp};

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

    /// Nobody will ask how an operation ended: its number is void when it has.
    pub fn forget_end(&mut self, id: OpId) {
        if self.ops.is_done(id) == Some(true) {
            self.ops.take(id);
        } else if let Some(notify) = self.ops.notify(id) {
            notify.queue = Some(NOWHERE);
        }
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
        let parts: Vec<u64> = (self.parts.iter())
            .filter(|(_, part)| part.from == rank)
            .map(|(number, _)| number)
            .collect();
        for number in parts {
            if let Some(Part {
                dest: Dest::Put(put),
                ..
            }) = self.parts.remove(number)
            {
                self.drop_put(put);
            }
        }
        self.drop_served(Some(rank));
        if let Some(peer) = self.peers.get(rank) {
            peer.serving = 0;
            peer.putting = 0;
        }
        self.end_remotes(rank);
        let to_it = self
            .ops
            .live_where(|body| matches!(body, Body::Send(send) if send.to == rank));
        for id in to_it {
            if let Some(send) = self.ops.send(id) {
                send.stage = SendStage::Lost;
            }
            self.ops.set_awaits(id, NOBODY);
            self.end_send(id);
        }
        let from_it = self.ops.live_where(|body| match body {
            Body::Receive(receive) => {
                matches!(receive.stage, ReceiveStage::Met(m) if m.from == rank && m.ending.is_none())
            }
            Body::Send(_) | Body::Remote(_) => false,
        });
        for id in from_it {
            if let Some(&mut meeting) = self.ops.meeting(id) {
                self.pulls.forget(id, &meeting);
            }
            self.end_receive(id, Err(OpError::PeerDead));
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

    /// Ends what was begun on a dead rank's memory.
    fn end_remotes(&mut self, rank: u32) {
        self.targets.remove(&rank);
        let all =
            (self.ops).live_where(|body| matches!(body, Body::Remote(remote) if remote.to == rank));
        for id in all {
            let Some(remote) = self.ops.remote(id) else {
                continue;
            };
            remote.counted = false;
            remote.direct = false;
            if remote.rma == RmaOp::Get {
                let (left, due) = (remote.total - remote.asked, remote.asked - remote.answered);
                self.pulls.wait_no_more(left, id);
                self.pulls.came(rank, due);
            }
            if !matches!(remote.stage, RemoteStage::Answered(_)) {
                remote.stage = RemoteStage::Answered(Err(OpError::PeerDead));
            }
            self.ops.set_awaits(id, NOBODY);
            self.end_answered(id);
        }
    }

    /// An unexpected message of a dead sender: receivable if it is whole.
    fn keep_or_lose(&mut self, number: u64) {
        let Some(message) = self.messages.get(number) else {
            return;
        };
        if message.pushes == 0 && message.origin == Origin::Eager {
            let envelope = Envelope {
                source: message.what.from,
                tag: message.what.tag,
            };
            // What fits it would have taken it before.
            self.matcher.arrive(envelope, number);
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
    /// [`OpError::Closed`]. What was published is withdrawn already. Nobody reaches into regions any more; their memory
    /// comes back by [`Exchange::deregister`] once none of it is lent.
    pub fn end_all(&mut self) {
        self.raise(|_| true);
        for id in self.ops.live_where(|_| true) {
            self.ops.end(id, Err(OpError::Closed));
        }
        self.pulls.clear();
        self.hiding.clear();
        self.targets.clear();
        self.regions.close_all();
        self.drop_served(None);
        let parts: Vec<(u64, Dest)> = (self.parts.iter())
            .map(|(number, part)| (number, part.dest))
            .collect();
        for (number, dest) in parts {
            match dest {
                Dest::Put(put) => self.drop_put(put),
                Dest::Get(_) | Dest::Nowhere => {}
                Dest::Receive(_) | Dest::Message(_) => continue,
            }
            self.parts.remove(number);
        }
    }
}
