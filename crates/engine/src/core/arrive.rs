//! Handles a message that arrives: its handler runs, it waits, or it is refused. Independent of
//! how messages travel.

use portolan_wire::Priority;

use super::placing::place_cut;
use super::ports::{Handler, HeldMessage, PortState};
use super::{Arrival, ArrivalOutcome, Core, CoreState, SPARE_MAX, WORK, is_matched};
use crate::matched::{MATCHED, Matched, Onward};
use crate::values::{Charge, Event, FIRST_FLOW, Message, Meta, PORTS_RESERVED, PortId};
use crate::waiting::{Dest, Incoming, Offer};

impl Core {
    /// Whether nothing is unusual for a whole message of the program's own space:
    /// [`Core::usual_handler`] takes it.
    #[inline(always)]
    pub(crate) const fn is_usual(&self, message: &Message<'_>) -> bool {
        !self.state.is_unusual() && message.flow < FIRST_FLOW
    }

    /// Returns the handler of a port of the program's own space, if it can run at once on a whole
    /// message, which is counted.
    #[inline(always)]
    pub(crate) fn usual_handler(&mut self, port: u16) -> Option<(&mut Handler, &mut CoreState)> {
        let Self { handlers, state } = self;
        let slot = state.ports.own(port)?;
        let handler = handlers.get(slot.fast?)?;
        slot.arrived += 1;
        Some((handler, state))
    }

    /// Handles a first part, which is set aside if it cannot be taken.
    pub(crate) fn arrive(&mut self, on: &mut Onward<'_>, a: &Arrival<'_>) -> ArrivalOutcome {
        if self.aside.is_any() && self.aside.has(a.meta.flow_of()) {
            return self.set_aside(a, None);
        }
        match self.arrive_now(on, a) {
            ArrivalOutcome::NotNow => self.set_aside(a, None),
            took => took,
        }
    }

    /// Handles an offer to copy a message; `None` if it was set aside.
    pub(crate) fn arrive_offer(
        &mut self,
        on: &mut Onward<'_>,
        a: &Arrival<'_>,
        offer: Offer,
    ) -> Option<ArrivalOutcome> {
        if !self.aside.has(a.meta.flow_of()) {
            match self.arrive_now(on, a) {
                ArrivalOutcome::NotNow => {}
                took => return Some(took),
            }
        }
        let left = self.set_aside(a, Some(offer)) == ArrivalOutcome::NotNow;
        left.then_some(ArrivalOutcome::NotNow)
    }

    /// Offers a first part to its exchange or its port.
    pub(crate) fn arrive_now(&mut self, on: &mut Onward<'_>, a: &Arrival<'_>) -> ArrivalOutcome {
        if a.meta.port >= MATCHED {
            return self.arrive_matched(on, a);
        }
        self.arrive_at_port(on, a)
    }

    /// Offers a first part to its port: a message of no exchange.
    pub(crate) fn arrive_at_port(
        &mut self,
        on: &mut Onward<'_>,
        a: &Arrival<'_>,
    ) -> ArrivalOutcome {
        if a.is_whole()
            && self.run
            && !self.outbox.is_any_full()
            && let Some(slot) = self.ports.get(a.meta.port_id())
            && let Some(handler) = slot.fast
        {
            slot.arrived += 1;
            self.call(on, handler, a);
            return ArrivalOutcome::Whole;
        }
        self.arrive_slow(on, a)
    }

    fn arrive_slow(&mut self, on: &mut Onward<'_>, a: &Arrival<'_>) -> ArrivalOutcome {
        let space = a.meta.space();
        if !self.is_open(space) {
            return self.not_now();
        }
        if a.meta.port >= PORTS_RESERVED {
            return self.arrive_internal(on, a);
        }
        // Requests may need answers: take none while answers pile up.
        let crowded = self.outbox.is_full(space) && a.meta.priority == Priority::Request;
        if self.leaving || crowded {
            return self.not_now();
        }
        let (run, closed) = (self.run, self.is_closed(space));
        let slot = self.ports.get_or_make(a.meta.port_id());
        match slot.state {
            PortState::Closed => return ArrivalOutcome::Refused,
            PortState::Unbound if closed => return ArrivalOutcome::Refused,
            PortState::Unbound => return self.keep(a, Charge::Unexpected),
            PortState::Bound if slot.placing.is_some() => {
                return self.arrive_placing(on, a);
            }
            PortState::Bound => {}
        }
        let free = !slot.busy && slot.held.is_empty() && !crowded;
        let room = match &slot.buffer {
            Some(buffer) if free => Some(buffer.len() as u64),
            _ => None,
        };
        if room.is_some_and(|room| a.total > room) {
            self.too_long(&a.meta, a.total, room.unwrap_or(0));
            return ArrivalOutcome::Refused;
        }
        let no_handler = slot.handler.is_none();
        if !a.is_whole() {
            if room.is_some() {
                return self.begin_in_buffer(a);
            }
            return self.keep(a, Charge::Queued);
        }
        if free && (no_handler || run || slot.any_thread) {
            if room.is_some() {
                self.copy_and_run(on, a);
            } else {
                self.run_handler(on, a);
            }
            return ArrivalOutcome::Whole;
        }
        self.keep(a, Charge::Queued)
    }

    /// Completes a message: all its bytes are in place.
    pub(crate) fn finish(&mut self, on: &mut Onward<'_>, cookie: u64) {
        if is_matched(cookie) {
            return self.part_arrived(on, cookie);
        }
        if self.finish_aside(on, cookie) {
            return;
        }
        let Some(Incoming {
            meta,
            args,
            total,
            dest,
        }) = self.incoming.remove(cookie)
        else {
            return;
        };
        match dest {
            Dest::Bound(mut filled) => {
                let placed = filled.placed;
                filled.bytes = filled.buffer.len().min(total as usize);
                let held = HeldMessage {
                    meta,
                    args,
                    body: Vec::new(),
                    in_buffer: Some(filled),
                    placed,
                    charge: Charge::Queued,
                    charged: 0,
                };
                if self.may_run(meta.port_id()) {
                    self.deliver(on, held);
                } else {
                    self.hold(held, !placed);
                }
            }
            Dest::Own {
                body,
                charge,
                charged,
            } => {
                let held = HeldMessage {
                    meta,
                    args,
                    body,
                    in_buffer: None,
                    placed: charge == Charge::Queued,
                    charge,
                    charged,
                };
                if meta.port >= PORTS_RESERVED {
                    self.internal_whole(on, held);
                    return;
                }
                let slot = self.ports.get_or_make(meta.port_id());
                let free = !slot.busy && !slot.paused && slot.held.is_empty();
                let free = free && slot.state == PortState::Bound;
                if free && self.may_run(meta.port_id()) {
                    self.deliver(on, held);
                } else {
                    self.hold(held, false);
                }
            }
            // Handled by `finish_aside`.
            Dest::Aside(_) | Dest::Passed(_) => {}
        }
    }
}

impl CoreState {
    pub(crate) const fn not_now(&mut self) -> ArrivalOutcome {
        self.counters.not_now += 1;
        ArrivalOutcome::NotNow
    }

    /// Notes that memory has become free, or a port was bound: what was not taken may be now.
    pub(crate) const fn note_freed(&mut self) {
        self.resume = true;
        if self.starved || self.aside.is_any() {
            self.note_work();
        }
    }

    /// Reports a message that is longer than its room.
    pub(super) fn too_long(&mut self, meta: &Meta, bytes: u64, room: u64) {
        let event = Event::TooLong {
            from: meta.from,
            port: meta.port,
            bytes,
            room,
        };
        self.emit(meta.space(), event);
    }

    /// Keeps a message, or its first part, in the endpoint's memory.
    pub(crate) fn keep(&mut self, a: &Arrival<'_>, charge: Charge) -> ArrivalOutcome {
        let budget = self.budget(a.meta.space(), charge);
        let Some(charged) = budget.charge(a.meta.from, a.total) else {
            if charge == Charge::Queued && !budget.could_ever(a.total) {
                let room = budget.room();
                self.too_long(&a.meta, a.total, room);
                return ArrivalOutcome::Refused;
            }
            self.reply_waits |= a.meta.priority == Priority::Reply;
            return self.not_now();
        };
        self.counters.kept += 1;
        if charge == Charge::Unexpected && a.meta.port < PORTS_RESERVED {
            self.unbound.note(a.meta.port_id(), a.meta.from);
        }
        // Charged, so it fits memory.
        let total = a.total as usize;
        let mut body = self.spare.pop().unwrap_or_default();
        body.clear();
        body.reserve_exact(total);
        body.extend_from_slice(a.payload);
        if !a.is_whole() {
            body.resize(total, 0);
            return self.begin_arrival(
                a,
                Dest::Own {
                    body,
                    charge,
                    charged,
                },
            );
        }
        let held = HeldMessage {
            meta: a.meta,
            args: a.args.to_vec(),
            body,
            in_buffer: None,
            placed: false,
            charge,
            charged,
        };
        self.hold(held, false);
        ArrivalOutcome::Whole
    }

    /// Queues a whole message for its port; `first`: before the others.
    pub(crate) fn hold(&mut self, held: HeldMessage, first: bool) {
        let port = held.meta.port_id();
        let slot = self.ports.get_or_make(port);
        if first {
            slot.held.push_front(held);
        } else {
            slot.held.push_back(held);
        }
        slot.update_fast();
        self.list(port);
    }

    /// Lists a port as ready, if its handler has work.
    pub(crate) fn list(&mut self, port: PortId) {
        let slot = self.ports.get_or_make(port);
        if !slot.listed && slot.state != PortState::Unbound && slot.may_hand_over() {
            slot.listed = true;
            self.ready.push_back(port);
            self.unusual |= WORK;
        }
    }

    /// Begins a message of several parts that goes to the port's buffer.
    fn begin_in_buffer(&mut self, a: &Arrival<'_>) -> ArrivalOutcome {
        let slot = self.ports.get_or_make(a.meta.port_id());
        let Some(buffer) = slot.buffer.take() else {
            return ArrivalOutcome::Refused;
        };
        slot.busy = true;
        slot.fast = None;
        self.begin_in(a, buffer, false)
    }

    pub(crate) fn begin_arrival(&mut self, a: &Arrival<'_>, dest: Dest) -> ArrivalOutcome {
        ArrivalOutcome::Part(self.incoming.insert(Incoming {
            meta: a.meta,
            args: a.args.to_vec(),
            total: a.total,
            dest,
        }))
    }

    /// Places a further part of `len` bytes, written by `fill`. Returns what `fill` returns;
    /// `None` if there is no such message.
    #[inline]
    pub(crate) fn place<R>(
        &mut self,
        matched: &mut Matched,
        cookie: u64,
        at: u64,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> Option<R> {
        if is_matched(cookie) {
            return Some(matched.place(cookie, at, len, fill));
        }
        // The lanes have checked the range.
        let at = usize::try_from(at).ok()?;
        let Some(bytes) = self.incoming.get(cookie)?.bytes_mut() else {
            return self.place_aside(matched, cookie, at as u64, len, fill);
        };
        match bytes.get_mut(at..at.checked_add(len)?) {
            Some(part) => Some(fill(part)),
            None => Some(place_cut(bytes, at, len, fill)),
        }
    }

    /// Returns how many of an arriving message's `total` bytes there is room for.
    pub(crate) fn wanted(&mut self, cookie: u64, total: u64) -> u64 {
        if is_matched(cookie) {
            return total;
        }
        let room = self.incoming.get(cookie).and_then(Incoming::bytes_mut);
        room.map_or(total, |room| total.min(room.len() as u64))
    }

    /// Returns a count of what the program may answer: acknowledgements wait for its answers.
    pub(crate) const fn answerable(&self) -> u64 {
        self.counters.received + self.accesses
    }

    /// Releases a kept message's memory.
    pub(crate) fn release(&mut self, held: HeldMessage) {
        if held.charged > 0 {
            let budget = self.budget(held.meta.space(), held.charge);
            budget.release(held.meta.from, held.charged);
            self.reply_waits = false;
            self.note_freed();
        }
        if held.body.capacity() > 0 && self.spare.len() < SPARE_MAX {
            self.spare.push(held.body);
        }
    }
}
