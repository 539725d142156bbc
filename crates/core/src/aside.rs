//! Messages that could not be taken when they came. They are set aside, each flow of a
//! sender in its order, and what comes in other flows is taken meanwhile. Where more than
//! a little gathers, the sender is told to stop that flow, and to go on once all of it
//! was taken.
//!
//! What is set aside is not charged to any budget. It is bounded all the same: what a
//! sender has under way when it hears of the stop is bounded by its credit, or by the
//! rings of shared memory. A sender that does not stop is judged corrupt.

use std::collections::VecDeque;

use crate::collective::BROADCAST;
use crate::core::{Arrival, Core, Finding, Took};
use crate::error::Death;
use crate::incoming::{Dest, Incoming, Parts};
use crate::lanes::Lane;
use crate::matched::Matched;
use crate::out::Out;
use crate::ports::{FlowOf, Meta};
use crate::send::FLOWS_ALL;
use crate::shm::Offer;

/// From so many messages on, or bytes, the sender is told to stop. A shortage that ends
/// soon costs no word.
const STOP_MESSAGES: usize = 32;
const STOP_BYTES: usize = 32 << 10;

/// No message begins beyond so many bytes of a flow: it stays with its lane, and holds up
/// what comes behind it. Only what is sent in spite of a stop meets this.
const BEGIN_BYTES_MAX: usize = 16 << 20;

/// A sender of which more bytes of a flow come does not do as it is told. More than the
/// largest ring and inbox hold.
const BYTES_MAX: usize = 144 << 20;

/// What is set aside of one flow.
#[derive(Debug)]
struct Queue {
    of: FlowOf,
    /// Cookies, in the order in which the messages came.
    waiting: VecDeque<u64>,
    bytes: usize,
    /// The sender was told to stop.
    stopped: bool,
}

/// All that is set aside.
#[derive(Debug, Default)]
pub struct Aside {
    queues: VecDeque<Queue>,
    /// Flows of which there is anything, whoever sends it: a bit each, by priority.
    flows: [u32; 2],
    /// Flows whose sender is to hear that it is to stop, or to go on.
    untold: Vec<(FlowOf, bool)>,
}

/// One that is shared by all flows beyond those there can be.
const fn bit(flow: u16) -> u32 {
    1 << (flow % 32)
}

impl Aside {
    #[inline(always)]
    pub const fn is_any(&self) -> bool {
        self.flows[0] | self.flows[1] != 0
    }

    fn of(&mut self, of: FlowOf) -> Option<&mut Queue> {
        self.queues.iter_mut().find(|queue| queue.of == of)
    }

    /// Whether what comes in a flow has to go behind others.
    #[inline(always)]
    pub fn has(&self, of: FlowOf) -> bool {
        self.flows[of.priority.index()] & bit(of.flow) != 0 && self.finds(of)
    }

    fn finds(&self, of: FlowOf) -> bool {
        self.queues.iter().any(|queue| queue.of == of)
    }

    /// Counts bytes of a flow that is in the list; gives how many there are now.
    fn grow(&mut self, of: FlowOf, bytes: usize) -> usize {
        let Some(queue) = self.of(of) else { return 0 };
        queue.bytes += bytes;
        let much = queue.waiting.len() >= STOP_MESSAGES || queue.bytes >= STOP_BYTES;
        let total = queue.bytes;
        if much && !queue.stopped {
            queue.stopped = true;
            self.untold.push((of, true));
        }
        total
    }

    /// Puts a message behind those of its flow.
    fn push(&mut self, of: FlowOf, cookie: u64, bytes: usize) {
        if !self.has(of) {
            self.queues.push_back(Queue {
                of,
                waiting: VecDeque::new(),
                bytes: 0,
                stopped: false,
            });
            self.flows[of.priority.index()] |= bit(of.flow);
        }
        if let Some(queue) = self.of(of) {
            queue.waiting.push_back(cookie);
        }
        self.grow(of, bytes);
    }

    /// A sender has died: `left` tells how many bytes a message takes, if it can still be
    /// taken.
    pub fn died(&mut self, rank: u32, mut left: impl FnMut(u64) -> Option<usize>) {
        for queue in self.queues.iter_mut().filter(|queue| queue.of.rank == rank) {
            queue.bytes = 0;
            queue.waiting.retain(|cookie| {
                let bytes = left(*cookie);
                queue.bytes += bytes.unwrap_or_default();
                bytes.is_some()
            });
            // Whoever comes in its place knows nothing of it.
            queue.stopped = false;
        }
        self.untold.retain(|(of, _)| of.rank != rank);
        self.drop_empty();
    }

    fn drop_empty(&mut self) {
        self.queues.retain(|queue| !queue.waiting.is_empty());
        self.flows = [0; 2];
        for Queue { of, .. } in &self.queues {
            self.flows[of.priority.index()] |= bit(of.flow);
        }
    }

    /// Takes all cookies out.
    fn take_all(&mut self) -> Vec<u64> {
        let queues = std::mem::take(&mut self.queues);
        self.flows = [0; 2];
        queues.into_iter().flat_map(|queue| queue.waiting).collect()
    }
}

impl Core {
    /// Sets a message aside, or its first part, or an offer of one.
    #[cold]
    pub(crate) fn set_aside(&mut self, a: &Arrival<'_>, offer: Option<Offer>) -> Took {
        let of = a.meta.flow_of();
        let full = (self.aside.of(of)).is_some_and(|queue| queue.bytes >= BEGIN_BYTES_MAX);
        self.attention = true;
        if a.meta.flow >= FLOWS_ALL {
            let finding = Finding::Suspect(of.rank, Death::Corrupt);
            self.findings.push(finding);
            return Took::Refused;
        }
        if self.leaving || full {
            self.starved = true;
            return Took::NotNow;
        }
        let is_part = !a.is_whole() && offer.is_none();
        let it = Incoming {
            meta: a.meta,
            args: a.args.to_vec(),
            total: a.total,
            dest: Dest::Aside(Parts {
                first: a.payload.to_vec(),
                rest: Vec::new(),
                complete: !is_part,
                offer,
            }),
        };
        let bytes = it.bytes();
        let cookie = self.incoming.insert(it);
        self.aside.push(of, cookie, bytes);
        if is_part {
            Took::Part(cookie)
        } else {
            Took::Whole
        }
    }

    /// A further part of a message that was set aside.
    #[cold]
    pub(crate) fn place_aside<R>(
        &mut self,
        matched: &mut Matched,
        cookie: u64,
        at: u64,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> Option<R> {
        let it = self.incoming.get(cookie)?;
        let of = it.meta.flow_of();
        match &mut it.dest {
            Dest::Aside(parts) => {
                let mut bytes = vec![0; len];
                let filled = fill(&mut bytes);
                parts.rest.push((at, bytes));
                self.attention = true;
                if self.aside.grow(of, len) > BYTES_MAX {
                    let finding = Finding::Suspect(of.rank, Death::Corrupt);
                    self.findings.push(finding);
                }
                Some(filled)
            }
            Dest::Passed(Some(to)) => {
                let to = *to;
                self.place(matched, to, at, len, fill)
            }
            // It was refused.
            Dest::Passed(None) => Some(fill(&mut vec![0; len])),
            Dest::Bound { .. } | Dest::Own { .. } => None,
        }
    }

    /// All parts of a message have come; true if it was set aside, and this is dealt with.
    pub(crate) fn finish_aside(
        &mut self,
        matched: &mut Matched,
        out: &mut Out<'_>,
        cookie: u64,
    ) -> bool {
        match self.incoming.get(cookie).map(|it| &mut it.dest) {
            Some(Dest::Aside(parts)) => parts.complete = true,
            Some(Dest::Passed(to)) => {
                let to = *to;
                self.incoming.remove(cookie);
                if let Some(to) = to {
                    self.finish(matched, out, to);
                }
            }
            _ => return false,
        }
        true
    }

    /// Offers again what was set aside; gives how many messages were taken.
    pub(crate) fn take_aside(&mut self, matched: &mut Matched, out: &mut Out<'_>) -> usize {
        let mut taken = 0;
        // Each time another flow is first: none has what becomes free to itself.
        self.aside
            .queues
            .rotate_left(1.min(self.aside.queues.len()));
        for at in 0..self.aside.queues.len() {
            while let Some(&cookie) = self.aside.queues[at].waiting.front()
                && let Some(bytes) = self.offer_again(matched, out, cookie)
            {
                let queue = &mut self.aside.queues[at];
                queue.waiting.pop_front();
                queue.bytes -= bytes.min(queue.bytes);
                taken += 1;
            }
            let queue = &mut self.aside.queues[at];
            if queue.waiting.is_empty() && queue.stopped {
                self.aside.untold.push((queue.of, false));
            }
        }
        self.aside.drop_empty();
        taken
    }

    /// Offers the first message of a flow; gives what it had taken if it is taken now.
    fn offer_again(
        &mut self,
        matched: &mut Matched,
        out: &mut Out<'_>,
        cookie: u64,
    ) -> Option<usize> {
        let mut it = self.incoming.lend(cookie)?;
        let bytes = it.bytes();
        let Dest::Aside(parts) = &mut it.dest else {
            return None;
        };
        let a = Arrival {
            meta: it.meta,
            args: &it.args,
            total: it.total,
            payload: &parts.first,
        };
        let took = self.arrive_now(matched, out, &a);
        if took == Took::NotNow {
            self.incoming.give_back(cookie, it);
            return None;
        }
        if let Some(offer) = parts.offer {
            self.incoming.free(cookie);
            offer.answer(self, matched, out, &a, took);
            return Some(bytes);
        }
        let to = match took {
            Took::Part(to) => Some(to),
            Took::Refused => {
                self.refuse_kept(out, &it.meta);
                None
            }
            Took::Whole | Took::NotNow => None,
        };
        if let Some(to) = to {
            for (at, bytes) in parts.rest.drain(..) {
                self.place(matched, to, at, bytes.len(), |into| {
                    into.copy_from_slice(&bytes);
                });
            }
        }
        if parts.complete {
            self.incoming.free(cookie);
            if let Some(to) = to {
                self.finish(matched, out, to);
            }
        } else {
            it.dest = Dest::Passed(to);
            self.incoming.give_back(cookie, it);
        }
        Some(bytes)
    }

    /// Tells senders which flows are to stop, and which to go on.
    pub(crate) fn tell_stops(&mut self, out: &mut Out<'_>) {
        for (of, stop) in self.aside.untold.drain(..) {
            match self.lanes.get(of.rank) {
                Some(Lane::Net(peer)) => out.net_stop(peer, of.priority, of.flow, stop),
                Some(Lane::Shm(index)) => out.shm_stop(index, of.priority, of.flow, stop),
                _ => {}
            }
        }
    }

    /// Refuses all that is set aside; gives how many messages.
    pub(crate) fn refuse_aside(&mut self, out: &mut Out<'_>) -> usize {
        let cookies = self.aside.take_all();
        for cookie in &cookies {
            let Some(mut it) = self.incoming.lend(*cookie) else {
                continue;
            };
            let (complete, offer) = match &it.dest {
                Dest::Aside(parts) => (parts.complete, parts.offer),
                _ => (true, None),
            };
            match offer {
                Some(offer) => offer.refuse(out),
                None => self.refuse_kept(out, &it.meta),
            }
            if complete {
                self.incoming.free(*cookie);
            } else {
                it.dest = Dest::Passed(None);
                self.incoming.give_back(*cookie, it);
            }
        }
        cookies.len()
    }

    /// A rank is back in a new life: drops what it sent in the one before.
    pub(crate) fn forget_aside(&mut self, rank: u32) {
        let incoming = &mut self.incoming;
        self.aside.died(rank, |cookie| {
            // A broadcast is its root's, whoever passed it on.
            let it = incoming.get(cookie)?;
            if it.meta.port == BROADCAST {
                return Some(it.bytes());
            }
            incoming.remove(cookie);
            None
        });
    }

    /// What names each message that is set aside.
    pub(crate) fn metas_aside(&self) -> impl Iterator<Item = &Meta> {
        let cookies = self.aside.queues.iter().flat_map(|queue| &queue.waiting);
        cookies.filter_map(|cookie| self.incoming.meta(*cookie))
    }
}
