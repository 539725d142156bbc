//! Setting aside messages that cannot be taken on arrival, and taking them later.

use super::collective::BROADCAST;
use super::{Arrival, ArrivalOutcome, Core, CoreState};
use crate::lanes::Lane;
use crate::matched::{Matched, Onward};
use crate::outbound::Outbound;
use crate::values::{Death, FLOWS_ALL, Meta};
use crate::waiting::{Dest, Incoming, Offer, Parts};

/// Bytes set aside of a flow at which no further message begins: it stays with its lane, and
/// blocks what comes behind it. Only what is sent in spite of a stop meets this.
const BEGIN_BYTES_MAX: usize = 16 << 20;

/// Bytes set aside of a flow above which the sender counts as corrupt: it ignores stops. More
/// than the largest ring and inbox hold.
const BYTES_MAX: usize = 144 << 20;

impl Core {
    /// Completes a message whose parts have all come, if it was set aside; returns whether it
    /// was.
    pub(crate) fn finish_aside(&mut self, on: &mut Onward<'_>, cookie: u64) -> bool {
        match self.incoming.get(cookie).map(|it| &mut it.dest) {
            Some(Dest::Aside(parts)) => parts.complete = true,
            Some(Dest::Passed(to)) => {
                let to = *to;
                self.incoming.remove(cookie);
                if let Some(to) = to {
                    self.finish(on, to);
                }
            }
            _ => return false,
        }
        true
    }

    /// Offers again what was set aside; returns the number of messages taken.
    pub(crate) fn take_aside(&mut self, on: &mut Onward<'_>) -> usize {
        let mut taken = 0;
        // Each time another flow is first: none takes all memory that becomes free.
        let flows = self.aside.queues.len();
        self.aside.queues.rotate_left(1.min(flows));
        for at in 0..flows {
            while let Some(&cookie) = self.aside.queues[at].waiting.front()
                && let Some(bytes) = self.offer_again(on, cookie)
            {
                let queue = &mut self.aside.queues[at];
                queue.waiting.pop_front();
                queue.bytes -= bytes.min(queue.bytes);
                taken += 1;
            }
            let queue = &self.aside.queues[at];
            if queue.waiting.is_empty() && queue.stopped {
                let go_on = (queue.of, false);
                self.aside.untold.push(go_on);
            }
        }
        self.aside.drop_empty();
        taken
    }

    /// Offers the first message of a flow. If it is taken now, returns the bytes that it had
    /// occupied.
    fn offer_again(&mut self, on: &mut Onward<'_>, cookie: u64) -> Option<usize> {
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
        let took = self.arrive_now(on, &a);
        if took == ArrivalOutcome::NotNow {
            self.incoming.give_back(cookie, it);
            return None;
        }
        if let Some(offer) = parts.offer {
            self.incoming.free(cookie);
            offer.answer(self, on, &a, took);
            return Some(bytes);
        }
        let to = match took {
            ArrivalOutcome::Part(to) => Some(to),
            ArrivalOutcome::Refused => {
                self.refuse_kept(&mut on.out, &it.meta);
                None
            }
            ArrivalOutcome::Whole | ArrivalOutcome::NotNow => None,
        };
        if let Some(to) = to {
            for (at, bytes) in parts.rest.drain(..) {
                self.place(on.matched, to, at, bytes.len(), |into| {
                    into.copy_from_slice(&bytes);
                });
            }
        }
        if parts.complete {
            self.incoming.free(cookie);
            if let Some(to) = to {
                self.finish(on, to);
            }
        } else {
            it.dest = Dest::Passed(to);
            self.incoming.give_back(cookie, it);
        }
        Some(bytes)
    }
}

impl CoreState {
    /// Sets a message aside, or its first part, or an offer of one (P13.16).
    #[cold]
    pub(crate) fn set_aside(&mut self, a: &Arrival<'_>, offer: Option<Offer>) -> ArrivalOutcome {
        let of = a.meta.flow_of();
        let full = (self.aside.of(of)).is_some_and(|queue| queue.bytes >= BEGIN_BYTES_MAX);
        self.note_work();
        if a.meta.flow >= FLOWS_ALL {
            self.suspect(of.rank, Death::Corrupt);
            return ArrivalOutcome::Refused;
        }
        if full || self.is_leaving(of.rank) {
            self.starved = true;
            return ArrivalOutcome::NotNow;
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
            ArrivalOutcome::Part(cookie)
        } else {
            ArrivalOutcome::Whole
        }
    }

    /// Places a further part of a message that was set aside.
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
                self.note_work();
                if self.aside.grow(of, len) > BYTES_MAX {
                    self.suspect(of.rank, Death::Corrupt);
                }
                Some(filled)
            }
            Dest::Passed(Some(to)) => {
                let to = *to;
                self.place(matched, to, at, len, fill)
            }
            // The message was refused.
            Dest::Passed(None) => Some(fill(&mut vec![0; len])),
            Dest::Bound(_) | Dest::Own { .. } => None,
        }
    }

    /// Tells senders which flows to stop, and which to go on with (P13.16).
    pub(crate) fn tell_stops(&mut self, out: &mut Outbound<'_>) {
        for (of, stop) in self.aside.untold.drain(..) {
            self.told[usize::from(!stop)] += 1;
            match (self.lanes.get(of.rank), &mut *out) {
                (Some(Lane::Net(peer)), Outbound { net: Some(net), .. }) => {
                    net.set_stopped(peer, of.priority, of.flow, stop);
                }
                (Some(Lane::Shm(index)), Outbound { shm: Some(shm), .. }) => {
                    (shm.outlet).set_stopped(index, of.priority, of.flow, stop);
                }
                _ => {}
            }
        }
    }

    /// Refuses all that is set aside; returns the number of messages.
    pub(crate) fn refuse_aside(&mut self, out: &mut Outbound<'_>) -> usize {
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

    /// Drops what a rank sent in its earlier life: it is back in a new one.
    pub(crate) fn forget_aside(&mut self, rank: u32) {
        let incoming = &mut self.incoming;
        self.aside.died(rank, |cookie| {
            // A broadcast belongs to its root, not to the rank that passed it on.
            let it = incoming.get(cookie)?;
            if it.meta.port == BROADCAST {
                return Some(it.bytes());
            }
            incoming.remove(cookie);
            None
        });
    }

    /// Returns the metadata of each message that is set aside.
    pub(crate) fn metas_aside(&self) -> impl Iterator<Item = &Meta> {
        let cookies = self.aside.queues.iter().flat_map(|queue| &queue.waiting);
        cookies.filter_map(|cookie| self.incoming.meta(*cookie))
    }
}
