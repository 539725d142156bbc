//! Ports: handlers and buffers of messages.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::context::{handle, handle_event, place};
use super::error::{EFAULT, EINVAL, EMSGSIZE, Errno};
use super::types::{ANY_THREAD, CBinding, CErrorHandler, read};
use super::{Slot, User, endpoint};
use crate::{Binding, Buffer, Endpoint};

/// # Safety
/// As [`Buffer::lent`], unless `start` is null.
pub(super) unsafe fn buffer(start: *mut c_void, length: usize) -> Result<Option<Buffer>, Errno> {
    match (start.is_null(), length) {
        (true, 0) => Ok(None),
        (true, _) => Err(EFAULT),
        (false, _) if length > isize::MAX as usize => Err(EMSGSIZE),
        // SAFETY: see above.
        (false, _) => Ok(Some(unsafe { Buffer::lent(start.cast(), length) })),
    }
}

/// The address of a returned buffer; null if there is none.
pub(super) fn old_buffer(buffer: Option<Buffer>) -> *mut c_void {
    buffer.map_or(null_mut(), |mut b| b.as_mut_ptr().cast())
}

/// # Safety
/// As the header says of `portolan_bind`.
pub(super) unsafe fn binding(to: *const CBinding) -> Result<Binding, Errno> {
    // SAFETY: see above.
    let c = unsafe { read(to) }?;
    if c.flags & !ANY_THREAD != 0 {
        return Err(EINVAL);
    }
    // SAFETY: see above.
    let buffer = unsafe { buffer(c.buffer, c.buffer_bytes) }?;
    let user = User(c.user);
    let mut binding = Binding {
        buffer,
        any_thread: c.flags & ANY_THREAD != 0,
        ..Binding::default()
    };
    if let Some(handler) = c.handler {
        binding.handler = Some(Box::new(move |c, m| handle(c, m, handler, user)));
    }
    if let Some(placing) = c.placing {
        binding.placing = Some(Box::new(move |m| place(m, placing, user)));
    }
    if let Some(handler) = c.error_handler {
        binding.error_handler = Some(Box::new(move |c, e| handle_event(c, e, handler, user)));
    }
    Ok(binding)
}

interface! {
    fn portolan_bind(handle: *mut Endpoint, port: u16, to: *const CBinding) -> c_int {
        endpoint = endpoint(handle), to = binding(to);
        endpoint.bind(port, to)?
    }

    fn portolan_unbind(handle: *mut Endpoint, port: u16) -> c_int {
        endpoint = endpoint(handle); endpoint.close_port(port)?
    }

    fn portolan_resume_port(handle: *mut Endpoint, port: u16) -> c_int {
        endpoint = endpoint(handle); endpoint.resume_port(port)?
    }

    fn portolan_set_buffer(
        handle: *mut Endpoint,
        port: u16,
        start: *mut c_void,
        length: usize,
        old: *mut *mut c_void,
    ) -> c_int {
        endpoint = endpoint(handle), new = buffer(start, length), old = Slot::optional(old);
        old.store(old_buffer(endpoint.set_buffer(port, new)?))
    }

    fn portolan_take_buffer(
        handle: *mut Endpoint,
        port: u16,
        start: *mut *mut c_void,
        length: *mut usize,
    ) -> c_int {
        endpoint = endpoint(handle), start = Slot::optional(start), length = Slot::optional(length);
        let Some((buffer, filled)) = endpoint.take_buffer(port)? else {
            return Ok(false);
        };
        start.store(old_buffer(Some(buffer)));
        length.store(filled);
        true
    }

    fn portolan_arrived(handle: *mut Endpoint, port: u16) -> i64 {
        endpoint = endpoint(handle); endpoint.arrived(port)?
    }

    fn portolan_on_error(
        handle: *mut Endpoint,
        handler: Option<CErrorHandler>,
        user: *mut c_void,
    ) -> c_int {
        endpoint = endpoint(handle);
        let user = User(user);
        match handler {
            Some(handler) => endpoint.on_error(move |c, e| handle_event(c, e, handler, user))?,
            None => endpoint.on_error(|_, _| ())?,
        }
    }
}
