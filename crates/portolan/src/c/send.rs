//! Sending.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::time::Duration;

use super::error::{E2BIG, EINVAL, ERANGE, Errno};
use super::matched::told;
use super::types::{CSendOptions, NOWAIT, read};
use super::{Slot, endpoint, slice};
use crate::{ARGS_MAX, Endpoint, Gather, Priority, SendOptions};

/// A message's bytes.
///
/// # Safety
/// As [`slice`].
#[inline(always)]
pub(super) unsafe fn bytes<'a>(data: *const c_void, length: usize) -> Result<&'a [u8], Errno> {
    // SAFETY: see above.
    unsafe { slice(data.cast(), length) }
}

/// A message's argument words.
///
/// # Safety
/// As [`slice`], if `count` is at most [`ARGS_MAX`].
#[inline(always)]
pub(super) unsafe fn args<'a>(words: *const u64, count: u32) -> Result<&'a [u64], Errno> {
    if count as usize > ARGS_MAX {
        return Err(E2BIG);
    }
    // SAFETY: see above.
    unsafe { slice(words, count as usize) }
}

/// Options of a send, read from C.
pub(super) struct Sending<'a> {
    pub options: SendOptions<'a>,
    pub wait: bool,
    pub number: Slot<u32>,
}

impl Sending<'_> {
    /// # Safety
    /// `options` is null or as the header says, for as long as this lives.
    #[inline]
    pub unsafe fn read(options: *const CSendOptions) -> Result<Self, Errno> {
        if options.is_null() {
            let options = SendOptions::default();
            return Ok(Self {
                options,
                wait: true,
                number: Slot(null_mut()),
            });
        }
        // SAFETY: see above.
        let c = unsafe { read(options) }?;
        if c.flags & !NOWAIT != 0 || c.reserved != 0 {
            return Err(EINVAL);
        }
        let options = SendOptions {
            flow: u16::try_from(c.flow).map_err(|_| ERANGE)?,
            priority: match c.priority {
                0 => Priority::Request,
                1 => Priority::Reply,
                _ => return Err(EINVAL),
            },
            // SAFETY: see above.
            args: unsafe { args(c.args, c.arg_count) }?,
            notify: told(c.context, c.queue, c.counter),
        };
        Ok(Self {
            options,
            wait: c.flags & NOWAIT == 0,
            // SAFETY: see above.
            number: unsafe { Slot::optional(c.number) }?,
        })
    }
}

interface! {
    fn portolan_send(
        handle: *mut Endpoint,
        rank: u32,
        port: u16,
        data: *const c_void,
        length: usize,
    ) -> c_int {
        endpoint = endpoint(handle), data = bytes(data, length);
        endpoint.send(rank, port, data)?;
    }

    fn portolan_try_send(
        handle: *mut Endpoint,
        rank: u32,
        port: u16,
        data: *const c_void,
        length: usize,
    ) -> c_int {
        endpoint = endpoint(handle), data = bytes(data, length);
        endpoint.try_send(rank, port, data)?;
    }

    fn portolan_sendx(
        handle: *mut Endpoint,
        rank: u32,
        port: u16,
        data: *const c_void,
        length: usize,
        options: *const CSendOptions,
    ) -> c_int {
        endpoint = endpoint(handle), data = bytes(data, length), o = Sending::read(options);
        let number = if o.wait {
            endpoint.send_with(rank, port, &o.options, data)?
        } else {
            endpoint.try_send_with(rank, port, &o.options, data)?
        };
        o.number.store(number.0);
    }

    fn portolan_post_message(
        handle: *mut Endpoint,
        rank: u32,
        port: u16,
        data: *const c_void,
        length: usize,
        options: *const CSendOptions,
        op: *mut u64,
    ) -> c_int {
        op = Slot::begun(op, 0), endpoint = endpoint(handle), data = bytes(data, length),
        o = Sending::read(options);
        // SAFETY: the caller leaves the bytes alone until the operation ends.
        let from = unsafe { Gather::lent(data.as_ptr(), data.len()) };
        let begun = endpoint.post_message(rank, port, &o.options, from).map_err(|(e, _)| e)?;
        op.store(begun.0);
    }
}

/// Converts a timeout from C; `None`: negative, no limit.
pub(super) fn limit(timeout_ns: i64) -> Option<Duration> {
    u64::try_from(timeout_ns).ok().map(Duration::from_nanos)
}
