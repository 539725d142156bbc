//! Running the program's handlers: for messages that arrive, for kept messages, and for errors.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use portolan_wire::{MessageNo, Priority};

use super::context::Context;
use super::ports::{Handler, HandlerId, HeldMessage, Placement, PortState};
use super::{Arrival, Core, CoreState};
use crate::matched::{Lend, Onward};
use crate::outbound::Outbound;
use crate::values::{Event, Failure, Message, Meta, PortId, SpaceId};

impl Core {
    /// Runs the handler of a message that has been kept.
    pub(crate) fn deliver(&mut self, on: &mut Onward<'_>, mut held: HeldMessage) {
        let meta = held.meta;
        let port = meta.port_id();
        self.outbox.make_room(port.space);
        let slot = self.ports.get_or_make(port);
        if slot.state == PortState::Closed {
            return self.refuse_held(&mut on.out, held);
        }
        if let Some(filled) = held.in_buffer.take() {
            let a = Arrival {
                meta,
                args: &held.args,
                total: filled.total,
                payload: &filled.buffer.as_slice()[..filled.bytes],
            };
            let seen = self.run_handler(on, &a);
            self.ports.get_or_make(port).put_back(filled, seen);
        } else {
            let a = Arrival {
                meta,
                args: &held.args,
                total: held.body.len() as u64,
                payload: &held.body,
            };
            let room = slot.buffer.as_ref().map(|buffer| buffer.len() as u64);
            if slot.placing.is_some() && !held.placed {
                match self.ask_where(&a) {
                    Placement::Later => return self.hold(held, true),
                    to => self.place_whole(on, &a, to),
                }
            } else if slot.placing.is_some() || room.is_none() {
                self.run_handler(on, &a);
            } else if let Some(room) = room.filter(|room| a.total > *room) {
                self.too_long(&meta, a.total, room);
                self.refuse_kept(&mut on.out, &meta);
            } else {
                self.copy_and_run(on, &a);
            }
        }
        self.release(held);
        if self.ports.get_or_make(port).placing.is_some() {
            // Messages behind it were set aside.
            self.note_freed();
        }
        self.list(port);
    }

    /// Copies a whole message to the port's free buffer and runs the handler.
    pub(super) fn copy_and_run(&mut self, on: &mut Onward<'_>, a: &Arrival<'_>) {
        let port = a.meta.port_id();
        let slot = self.ports.get_or_make(port);
        let Some(buffer) = slot.buffer.take() else {
            return;
        };
        slot.busy = true;
        self.run_in(on, a, buffer, false);
        // The handler may have sent to its own port.
        self.list(port);
    }

    /// Runs a port's handler; false if it has none.
    pub(crate) fn run_handler(&mut self, on: &mut Onward<'_>, a: &Arrival<'_>) -> bool {
        let slot = self.ports.get_or_make(a.meta.port_id());
        slot.arrived += 1;
        let Some(handler) = slot.handler else {
            let state = &mut self.state;
            state.count_arrival(a.meta.flow, a.payload.len());
            if let Some(trace) = &mut state.trace {
                let now = trace.time();
                trace.handled(&a.meta, a.payload.len(), now, !state.run);
            }
            return false;
        };
        self.call(on, handler, a);
        true
    }

    /// Calls a port's handler, and notes that in the timeline.
    pub(super) fn call(&mut self, on: &mut Onward<'_>, handler: HandlerId, a: &Arrival<'_>) {
        self.update_handlers();
        let Self { handlers, state } = self;
        let Some(handler) = handlers.get(handler) else {
            return;
        };
        let (flow, bytes) = (a.meta.flow, a.payload.len());
        let began = state.trace.as_ref().map_or(0, |trace| trace.time());
        state.run(handler, on, flow, &a.message());
        if let Some(trace) = &mut state.trace {
            trace.handled(&a.meta, bytes, began, !state.run);
        }
    }

    /// Runs handlers of kept messages; returns the number of messages.
    pub(crate) fn run_ready(&mut self, on: &mut Onward<'_>) -> usize {
        let mut ran = 0;
        for _ in 0..self.ready.len() {
            let Some(port) = self.ready.pop_front() else {
                break;
            };
            let slot = self.ports.get_or_make(port);
            slot.listed = false;
            // Only what waits now: a handler may send to its own port.
            for _ in 0..slot.held.len() {
                if !self.may_run(port) {
                    break;
                }
                let slot = self.ports.get_or_make(port);
                if !slot.may_hand_over() {
                    break;
                }
                let Some(held) = slot.held.pop_front() else {
                    break;
                };
                slot.update_fast();
                self.deliver(on, held);
                ran += 1;
            }
            self.list(port);
        }
        ran
    }
}

impl CoreState {
    /// Whether a kept message may be handed to its handler.
    pub(super) fn may_run(&mut self, port: PortId) -> bool {
        let run = self.run && (!self.outbox.is_full(port.space) || self.reply_waits);
        let slot = self.ports.get_or_make(port);
        run || slot.any_thread || (slot.handler.is_none() && slot.placing.is_none())
    }

    /// Refuses a message that has been kept: its port is closed.
    pub(super) fn refuse_held(&mut self, out: &mut Outbound<'_>, mut held: HeldMessage) {
        if let Some(filled) = held.in_buffer.take() {
            let slot = self.ports.get_or_make(held.meta.port_id());
            slot.put_back(filled, false);
        }
        self.refuse_kept(out, &held.meta);
        self.release(held);
    }

    #[inline(always)]
    pub(crate) fn count_arrival(&mut self, flow: u16, bytes: usize) {
        self.counters.received += 1;
        self.counters.bytes_received += bytes as u64;
        self.count_other(flow, |traffic| {
            traffic.received += 1;
            traffic.bytes_received += bytes as u64;
        });
    }

    /// Runs a port's handler. `flow`: that of the message, as it travels.
    #[inline(always)]
    pub(crate) fn run(
        &mut self,
        handler: &mut Handler,
        on: &mut impl Lend,
        flow: u16,
        message: &Message<'_>,
    ) {
        self.count_arrival(flow, message.payload.len());
        let mut context = Context::new(self, on, message.from, (message.port, flow));
        // A panic must not leave the tables half changed: it is resumed at the end of the call.
        let ended = catch_unwind(AssertUnwindSafe(|| handler(&mut context, message)));
        self.keep_panic(ended);
    }

    /// Keeps a handler's panic; of several, the first.
    #[inline(always)]
    pub(super) fn keep_panic(&mut self, ended: std::thread::Result<()>) {
        if let Err(panic) = ended {
            self.panicked(panic);
        }
    }

    #[cold]
    pub(super) fn panicked(&mut self, panic: Box<dyn Any + Send>) {
        self.note_work();
        self.panic.get_or_insert(panic);
    }

    /// Runs error handlers for pending events.
    pub(crate) fn run_events(&mut self, on: &mut Onward<'_>) {
        while let Some((space, mut event)) = self.events.pop_front() {
            if let Event::PeerDead { rank, lost, .. } = &mut event
                && let Some(part) = on.matched.part(space)
            {
                // By now the exchange has processed the death.
                *lost = part.exchange.lost_of(*rank);
            }
            let of_port = match event {
                Event::TooLong { port: number, .. } => {
                    self.run_error_handler(on, PortId { space, number }, &event)
                }
                _ => false,
            };
            let of_space = self.space(space).map(|it| &mut it.error_handler);
            if !of_port && let Some(mut handler) = of_space.and_then(Option::take) {
                let mut context = Context::of_port(self, on, PortId { space, number: 0 });
                let ended = catch_unwind(AssertUnwindSafe(|| handler(&mut context, &event)));
                if let Some(it) = self.space(space) {
                    it.error_handler.get_or_insert(handler);
                }
                self.keep_panic(ended);
            } else if let Event::PeerSilent { rank, failure } = event {
                self.tell_silence(space, rank, failure);
            }
            let of_peer = matches!(
                event,
                Event::PeerDead { .. } | Event::PeerBack { .. } | Event::PeerCome { .. }
            );
            if of_peer {
                let ports = self.ports.with_error_handler();
                for port in ports.into_iter().filter(|port| port.space == space) {
                    self.run_error_handler(on, port, &event);
                }
            }
        }
    }

    /// Prints that a peer is silent, if no error handler is called: the program would seem to
    /// hang.
    fn tell_silence(&self, space: SpaceId, rank: u32, failure: Option<Failure>) {
        let mut others = self.others.iter().flatten();
        if space != SpaceId::PROGRAM || others.any(|it| it.error_handler.is_some()) {
            return;
        }
        let me = self.rank;
        match failure {
            Some(failure) => (self.tell)(format_args!(
                "portolan: rank {me}: no answer from rank {rank}: {failure}; it is still tried"
            )),
            None => (self.tell)(format_args!(
                "portolan: rank {me}: no answer from rank {rank}; it is still tried. Does its \
                 process run and get a core, and does UDP get through between the two (firewall, \
                 route, address)?"
            )),
        }
    }

    fn run_error_handler(&mut self, on: &mut Onward<'_>, port: PortId, event: &Event) -> bool {
        let slot = self.ports.get_or_make(port);
        let generation = slot.generation;
        let Some(mut handler) = slot.error_handler.take() else {
            return false;
        };
        let mut context = Context::of_port(self, on, port);
        let ended = catch_unwind(AssertUnwindSafe(|| handler(&mut context, event)));
        let slot = self.ports.get_or_make(port);
        if slot.generation == generation {
            slot.error_handler = Some(handler);
        }
        self.keep_panic(ended);
        true
    }
    /// Returns metadata of a message of our own to a port.
    pub(crate) const fn own_meta(&self, port: PortId) -> Meta {
        Meta {
            from: self.rank,
            port: port.number,
            flow: port.space.first_flow(),
            priority: Priority::Request,
            number: MessageNo(0),
            direct: false,
        }
    }
}
