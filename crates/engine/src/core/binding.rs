//! Binding and closing ports.

use super::ports::{Binding, PortState};
use super::{Core, CoreState, WORK};
use crate::outbound::Outbound;
use crate::values::{Buffer, Misuse, PortId};
use crate::waiting::News;

impl Core {
    /// Binds a port, anew if it is bound or closed.
    pub fn bind(&mut self, port: PortId, binding: Binding) -> Result<(), Misuse> {
        let bound = self.state.bind(port, binding);
        self.update_handlers();
        bound
    }

    /// Closes a port: messages that wait there, and further ones, are refused.
    pub fn close_port(&mut self, out: &mut Outbound<'_>, port: PortId) -> Result<(), Misuse> {
        let closed = self.state.close_port(out, port);
        self.update_handlers();
        closed
    }

    /// Lets what was bound and closed meanwhile take effect: no handler runs.
    pub(crate) fn update_handlers(&mut self) {
        if self.state.handler_changes.is_any() {
            self.handlers.update(&mut self.state.handler_changes);
        }
    }
}

impl CoreState {
    /// Binds a port: see [`Core::bind`].
    pub(super) fn bind(&mut self, port: PortId, binding: Binding) -> Result<(), Misuse> {
        if !port.is_programs() {
            return Err(Misuse::ReservedPort);
        }
        self.unbound.forget(|row| row.is_at(port));
        let slot = self.ports.get_or_make(port);
        slot.generation = slot.generation.wrapping_add(1);
        if slot.state == PortState::Closed {
            self.ops.news.push(News::Port(port, true));
        }
        self.unusual |= WORK;
        slot.state = PortState::Bound;
        slot.placing = binding.placing;
        slot.handler = self.handler_changes.replace(slot.handler, binding.handler);
        slot.error_handler = binding.error_handler;
        slot.buffer = binding.buffer;
        slot.any_thread = binding.any_thread;
        slot.replacement = None;
        (slot.busy, slot.paused) = (false, false);
        slot.arrived = 0;
        slot.update_fast();
        self.note_freed();
        self.list(port);
        Ok(())
    }

    /// Closes a port: see [`Core::close_port`].
    pub(super) fn close_port(
        &mut self,
        out: &mut Outbound<'_>,
        port: PortId,
    ) -> Result<(), Misuse> {
        if !port.is_programs() {
            return Err(Misuse::ReservedPort);
        }
        self.unbound.forget(|row| row.is_at(port));
        let slot = self.ports.get_or_make(port);
        slot.generation = slot.generation.wrapping_add(1);
        slot.state = PortState::Closed;
        self.ops.news.push(News::Port(port, false));
        self.unusual |= WORK;
        slot.placing = None;
        slot.handler = self.handler_changes.replace(slot.handler, None);
        slot.error_handler = None;
        slot.buffer = None;
        slot.replacement = None;
        (slot.busy, slot.paused) = (false, false);
        slot.update_fast();
        let held = std::mem::take(&mut slot.held);
        for held in held {
            self.refuse_held(out, held);
        }
        self.note_freed();
        Ok(())
    }

    /// Resumes a paused port: what waits there is offered to it again.
    pub fn resume_port(&mut self, port: PortId) {
        if let Some(slot) = self.ports.get(port) {
            slot.paused = false;
            self.list(port);
            self.note_freed();
        }
    }

    /// Replaces a port's buffer, or removes it, from the next message on. Returns the old one
    /// or, if it holds a message, leaves it for [`CoreState::take_buffer`] when the handler is done.
    pub fn set_buffer(&mut self, port: PortId, buffer: Option<Buffer>) -> Option<Buffer> {
        let slot = self.ports.get_or_make(port);
        if slot.busy {
            return slot.replacement.replace(buffer).flatten();
        }
        let old = std::mem::replace(&mut slot.buffer, buffer);
        slot.update_fast();
        old
    }

    /// Takes a buffer that goes back to the program after a message was written to it, with the
    /// message's length.
    pub fn take_buffer(&mut self, port: PortId) -> Option<(Buffer, usize)> {
        self.ports.get(port)?.returned.pop_front()
    }
}
