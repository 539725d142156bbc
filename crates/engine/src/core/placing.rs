//! Ports with a function that decides where each message goes, before any of it is written.

use std::panic::{AssertUnwindSafe, catch_unwind};

use portolan_wire::Priority;

use super::ports::Placement;
use super::{Arrival, ArrivalOutcome, Core, CoreState};
use crate::matched::Onward;
use crate::values::{Buffer, Charge};
use crate::waiting::{Dest, Filled};

impl Core {
    /// Handles a message, or its first part, for such a port.
    pub(super) fn arrive_placing(
        &mut self,
        on: &mut Onward<'_>,
        a: &Arrival<'_>,
    ) -> ArrivalOutcome {
        let run = self.run;
        let slot = self.ports.get_or_make(a.meta.port_id());
        if slot.paused || !slot.held.is_empty() {
            self.reply_waits |= !slot.paused && a.meta.priority == Priority::Reply;
            return self.not_now();
        }
        if !run && !slot.any_thread {
            self.unasked = true;
            self.note_work();
            return self.not_now();
        }
        match self.ask_where(a) {
            Placement::Later => self.not_now(),
            to if a.is_whole() => {
                self.place_whole(on, a, to);
                ArrivalOutcome::Whole
            }
            Placement::Here => self.keep(a, Charge::Queued),
            Placement::Into(buffer) => self.begin_in(a, buffer, true),
        }
    }

    /// Puts a whole message where it goes and runs the handler.
    pub(super) fn place_whole(&mut self, on: &mut Onward<'_>, a: &Arrival<'_>, to: Placement) {
        match to {
            Placement::Into(buffer) => self.run_in(on, a, buffer, true),
            _ => drop(self.run_handler(on, a)),
        }
    }

    /// Copies a whole message to `buffer`, as far as there is room, and runs the handler.
    /// `placed`: the buffer is not the port's own.
    pub(super) fn run_in(
        &mut self,
        on: &mut Onward<'_>,
        a: &Arrival<'_>,
        mut buffer: Buffer,
        placed: bool,
    ) {
        let bytes = write_cut(&mut buffer, a.payload);
        let payload = &buffer.as_slice()[..bytes];
        let slot = self.ports.get_or_make(a.meta.port_id());
        let generation = slot.generation;
        let seen = self.run_handler(on, &Arrival { payload, ..*a });
        let filled = Filled {
            buffer,
            bytes,
            total: a.total,
            generation,
            placed,
        };
        let slot = self.ports.get_or_make(a.meta.port_id());
        slot.put_back(filled, seen);
    }
}

impl CoreState {
    /// Asks a port where a message goes.
    pub(super) fn ask_where(&mut self, a: &Arrival<'_>) -> Placement {
        let slot = self.ports.get_or_make(a.meta.port_id());
        let Some(placing) = &mut slot.placing else {
            return Placement::Here;
        };
        let to = match catch_unwind(AssertUnwindSafe(|| placing(&a.message()))) {
            Ok(to) => to,
            Err(panic) => {
                self.panicked(panic);
                Placement::Later
            }
        };
        let paused = matches!(to, Placement::Later);
        self.ports.get_or_make(a.meta.port_id()).paused = paused;
        to
    }

    /// Begins a message of several parts in `buffer`; `placed` as above.
    pub(super) fn begin_in(
        &mut self,
        a: &Arrival<'_>,
        mut buffer: Buffer,
        placed: bool,
    ) -> ArrivalOutcome {
        write_cut(&mut buffer, a.payload);
        let filled = Filled {
            buffer,
            bytes: 0,
            total: a.total,
            generation: self.ports.get_or_make(a.meta.port_id()).generation,
            placed,
        };
        self.begin_arrival(a, Dest::Bound(filled))
    }
}

/// Writes as many bytes as there is room for; returns their number.
fn write_cut(buffer: &mut Buffer, payload: &[u8]) -> usize {
    let bytes = buffer.len().min(payload.len());
    buffer.as_mut_slice()[..bytes].copy_from_slice(&payload[..bytes]);
    bytes
}

/// Places a part of `len` bytes at `at`, written by `fill`, of a message that exceeds its room.
#[cold]
pub(super) fn place_cut<R>(
    room: &mut [u8],
    at: usize,
    len: usize,
    fill: impl FnOnce(&mut [u8]) -> R,
) -> R {
    let mut bytes = vec![0; len];
    let filled = fill(&mut bytes);
    if let Some(rest) = room.get_mut(at..) {
        let n = rest.len().min(len);
        rest[..n].copy_from_slice(&bytes[..n]);
    }
    filled
}
