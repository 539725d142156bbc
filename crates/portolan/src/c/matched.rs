//! Matched messages: sends, receives, probes, operations.

use std::ffi::{c_int, c_void};

use super::error::{EFAULT, EINVAL, ENXIO, Errno};
use super::pieces::{Piece, gather, pieces, scatter};
use super::send::{bytes, limit};
use super::types::{
    ADDED, CCompletion, CProbed, CTaggedOptions, FLUSHED, GOT, PUT, RECEIVED, SENT, SWAPPED, SYNC,
    WITH_DATA, check, read, write,
};
use super::{edge, endpoint};
use crate::{
    Action, Completion, CounterId, Death, Endpoint, MessageId, Notify, OpError, OpId, Probed,
    QueueId, Selector, TaggedOptions,
};

/// Any rank, as C says it.
const ANY: u32 = u32::MAX;

/// Of queues and counters C knows the number after ours: 0 is none.
pub(super) const fn queue(number: u32) -> QueueId {
    QueueId(number.wrapping_sub(1))
}

pub(super) const fn counter(number: u32) -> CounterId {
    CounterId(number.wrapping_sub(1))
}

fn selector(endpoint: &Endpoint, source: u32, tag: u64, ignore: u64) -> Result<Selector, Errno> {
    let from = match source {
        ANY => Selector::any(tag),
        rank if rank < endpoint.size() => Selector::from(rank, tag),
        _ => return Err(ENXIO),
    };
    Ok(from.ignoring(ignore))
}

/// # Safety
/// `options` is null or what the header says.
unsafe fn options(options: *const CTaggedOptions) -> Result<TaggedOptions, Errno> {
    if options.is_null() {
        return Ok(TaggedOptions::default());
    }
    // SAFETY: see above.
    let c = unsafe { read(options) }?;
    let data = (c.flags & WITH_DATA != 0).then_some(c.data);
    if c.flags & !(WITH_DATA | SYNC) != 0 || (data.is_none() && c.data != 0) {
        return Err(EINVAL);
    }
    Ok(TaggedOptions {
        data,
        sync: c.flags & SYNC != 0,
        notify: Notify {
            context: c.context,
            queue: (c.queue != 0).then(|| queue(c.queue)),
            counter: (c.counter != 0).then(|| counter(c.counter)),
        },
    })
}

/// Options of a receive: only how its end is told.
///
/// # Safety
/// As [`options`].
unsafe fn notify(from: *const CTaggedOptions) -> Result<Notify, Errno> {
    // SAFETY: see above.
    let o = unsafe { options(from) }?;
    if o.sync || o.data.is_some() {
        return Err(EINVAL);
    }
    Ok(o.notify)
}

/// How an operation ended, as an errno value or 0.
fn errno_of(endpoint: &Endpoint, c: &Completion) -> Result<i32, Errno> {
    Ok(match c.result {
        Ok(()) => 0,
        Err(OpError::PeerDead) => {
            // One that is not dead any more has come back.
            let death = endpoint.death(c.peer)?.unwrap_or(Death::Restarted);
            Errno::from(death).0
        }
        Err(why) => Errno::from(why).0,
    })
}

pub(super) fn completion(endpoint: &Endpoint, c: &Completion) -> Result<CCompletion, Errno> {
    Ok(CCompletion {
        size: 0,
        error: -errno_of(endpoint, c)?,
        operation: c.op.0,
        action: match c.action {
            Action::Send => SENT,
            Action::Receive => RECEIVED,
            Action::Put => PUT,
            Action::Get => GOT,
            Action::FetchAdd => ADDED,
            Action::CompareSwap => SWAPPED,
            Action::Flush => FLUSHED,
        },
        peer: c.peer,
        tag: c.tag,
        bytes: c.bytes,
        total: c.total,
        data: c.data.unwrap_or(0),
        has_data: c.data.is_some().into(),
        reserved: 0,
        context: c.context,
    })
}

fn probed(p: &Probed) -> CProbed {
    CProbed {
        size: 0,
        from: p.from,
        tag: p.tag,
        total: p.total,
        data: p.data.unwrap_or(0),
        has_data: p.data.is_some().into(),
        reserved: 0,
    }
}

/// One piece of the program's memory.
pub(super) fn one(start: *const c_void, bytes: usize) -> Piece {
    Piece {
        start: start.cast_mut(),
        bytes,
    }
}

/// Where a number is stored; 0 until there is one.
///
/// # Safety
/// `place` is null or may be written.
pub(super) unsafe fn number<'a>(place: *mut u64) -> Result<&'a mut u64, Errno> {
    // SAFETY: see above.
    let place = unsafe { place.as_mut() }.ok_or(EFAULT)?;
    *place = 0;
    Ok(place)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_send_tagged(
    handle: *mut Endpoint,
    rank: u32,
    tag: u64,
    data: *const c_void,
    length: usize,
) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let (endpoint, data) = unsafe { (endpoint(handle)?, bytes(data, length)?) };
        endpoint.send_tagged(rank, tag, data)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_send_taggedv(
    handle: *mut Endpoint,
    rank: u32,
    tag: u64,
    from: *const Piece,
    count: usize,
    o: *const CTaggedOptions,
) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let (endpoint, from, o) = unsafe { (endpoint(handle)?, pieces(from, count)?, options(o)?) };
        if o.notify != Notify::default() {
            return Err(EINVAL);
        }
        // SAFETY: the call returns when the operation has ended.
        let ended = endpoint.send_pieces(rank, tag, &o, unsafe { gather(from) })?;
        Ok(-errno_of(endpoint, &ended.completion)?)
    })
}

/// # Safety
/// As the header says of `portolan_post_sendv`.
unsafe fn post_send(
    handle: *mut Endpoint,
    rank: u32,
    tag: u64,
    from: Result<&[Piece], Errno>,
    o: *const CTaggedOptions,
    op: *mut u64,
) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let (op, endpoint, o) = unsafe { (number(op)?, endpoint(handle)?, options(o)?) };
        // SAFETY: the caller leaves the memory alone until the operation has
        // ended.
        let from = unsafe { gather(from?) };
        *op = endpoint
            .post_send(rank, tag, &o, from)
            .map_err(|(e, _)| e)?
            .0;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_post_send(
    handle: *mut Endpoint,
    rank: u32,
    tag: u64,
    data: *const c_void,
    length: usize,
    o: *const CTaggedOptions,
    op: *mut u64,
) -> c_int {
    let from = one(data, length);
    // SAFETY: promised by the caller; the piece is here.
    unsafe { post_send(handle, rank, tag, pieces(&raw const from, 1), o, op) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_post_sendv(
    handle: *mut Endpoint,
    rank: u32,
    tag: u64,
    from: *const Piece,
    count: usize,
    o: *const CTaggedOptions,
    op: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { post_send(handle, rank, tag, pieces(from, count), o, op) }
}

/// # Safety
/// As the header says of `portolan_receive_taggedv`.
unsafe fn receive(
    handle: *mut Endpoint,
    (source, tag, ignore): (u32, u64, u64),
    into: Result<&[Piece], Errno>,
    to: *mut CCompletion,
) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let endpoint = unsafe { endpoint(handle) }?;
        let selector = selector(endpoint, source, tag, ignore)?;
        if !to.is_null() {
            // SAFETY: promised by the caller.
            unsafe { check(to) }?;
        }
        // SAFETY: the call returns when the operation has ended.
        let into = unsafe { scatter(into?) };
        let ended = endpoint.receive_pieces(&selector, into)?;
        let done = completion(endpoint, &ended.completion)?;
        if !to.is_null() {
            // SAFETY: promised by the caller.
            unsafe { write(to, &done) }?;
        }
        Ok(done.error)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_receive_tagged(
    handle: *mut Endpoint,
    source: u32,
    tag: u64,
    ignore: u64,
    start: *mut c_void,
    length: usize,
    to: *mut CCompletion,
) -> c_int {
    let into = one(start, length);
    // SAFETY: promised by the caller; the piece is here.
    unsafe {
        receive(
            handle,
            (source, tag, ignore),
            pieces(&raw const into, 1),
            to,
        )
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_receive_taggedv(
    handle: *mut Endpoint,
    source: u32,
    tag: u64,
    ignore: u64,
    into: *const Piece,
    count: usize,
    to: *mut CCompletion,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { receive(handle, (source, tag, ignore), pieces(into, count), to) }
}

/// # Safety
/// As the header says of `portolan_post_receivev`.
unsafe fn post_receive(
    handle: *mut Endpoint,
    (source, tag, ignore): (u32, u64, u64),
    into: Result<&[Piece], Errno>,
    o: *const CTaggedOptions,
    op: *mut u64,
) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let (op, endpoint, notify) = unsafe { (number(op)?, endpoint(handle)?, notify(o)?) };
        let selector = selector(endpoint, source, tag, ignore)?;
        // SAFETY: the caller leaves the memory alone until the operation has
        // ended.
        let into = unsafe { scatter(into?) };
        *op = endpoint.post_receive(&selector, into, notify)?.0;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_post_receive(
    handle: *mut Endpoint,
    source: u32,
    tag: u64,
    ignore: u64,
    start: *mut c_void,
    length: usize,
    o: *const CTaggedOptions,
    op: *mut u64,
) -> c_int {
    let into = one(start, length);
    // SAFETY: promised by the caller; the piece is here.
    unsafe {
        let into = pieces(&raw const into, 1);
        post_receive(handle, (source, tag, ignore), into, o, op)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_post_receivev(
    handle: *mut Endpoint,
    source: u32,
    tag: u64,
    ignore: u64,
    into: *const Piece,
    count: usize,
    o: *const CTaggedOptions,
    op: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        let into = pieces(into, count);
        post_receive(handle, (source, tag, ignore), into, o, op)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_probe(
    handle: *mut Endpoint,
    source: u32,
    tag: u64,
    ignore: u64,
    to: *mut CProbed,
) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let endpoint = unsafe { endpoint(handle) }?;
        let selector = selector(endpoint, source, tag, ignore)?;
        if !to.is_null() {
            // SAFETY: promised by the caller.
            unsafe { check(to) }?;
        }
        let Some(found) = endpoint.probe(&selector)? else {
            return Ok(0);
        };
        if !to.is_null() {
            // SAFETY: promised by the caller.
            unsafe { write(to, &probed(&found)) }?;
        }
        Ok(1)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_claim(
    handle: *mut Endpoint,
    source: u32,
    tag: u64,
    ignore: u64,
    message: *mut u64,
    to: *mut CProbed,
) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let (message, endpoint) = unsafe { (number(message)?, endpoint(handle)?) };
        let selector = selector(endpoint, source, tag, ignore)?;
        if !to.is_null() {
            // SAFETY: promised by the caller.
            unsafe { check(to) }?;
        }
        let Some((id, found)) = endpoint.claim(&selector)? else {
            return Ok(0);
        };
        *message = id.0;
        if !to.is_null() {
            // SAFETY: promised by the caller.
            unsafe { write(to, &probed(&found)) }?;
        }
        Ok(1)
    })
}

/// # Safety
/// As the header says of `portolan_receive_claimedv`.
unsafe fn receive_claimed(
    handle: *mut Endpoint,
    message: u64,
    into: Result<&[Piece], Errno>,
    o: *const CTaggedOptions,
    op: *mut u64,
) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let (op, endpoint, notify) = unsafe { (number(op)?, endpoint(handle)?, notify(o)?) };
        // SAFETY: the caller leaves the memory alone until the operation has
        // ended.
        let into = unsafe { scatter(into?) };
        *op = endpoint
            .receive_claimed(MessageId(message), into, notify)?
            .0;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_receive_claimed(
    handle: *mut Endpoint,
    message: u64,
    start: *mut c_void,
    length: usize,
    o: *const CTaggedOptions,
    op: *mut u64,
) -> c_int {
    let into = one(start, length);
    // SAFETY: promised by the caller; the piece is here.
    unsafe { receive_claimed(handle, message, pieces(&raw const into, 1), o, op) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_receive_claimedv(
    handle: *mut Endpoint,
    message: u64,
    into: *const Piece,
    count: usize,
    o: *const CTaggedOptions,
    op: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { receive_claimed(handle, message, pieces(into, count), o, op) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_discard(handle: *mut Endpoint, message: u64) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        unsafe { endpoint(handle) }?.discard(MessageId(message))?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_cancel(handle: *mut Endpoint, op: u64) -> c_int {
    // SAFETY: promised by the caller.
    edge(|| Ok(unsafe { endpoint(handle) }?.cancel(OpId(op))?.into()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_operation_test(
    handle: *mut Endpoint,
    op: u64,
    to: *mut CCompletion,
) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let endpoint = unsafe { endpoint(handle) }?;
        // SAFETY: promised by the caller.
        unsafe { check(to) }?;
        let Some(ended) = endpoint.poll_op(OpId(op))? else {
            return Ok(0);
        };
        // SAFETY: promised by the caller.
        unsafe { write(to, &completion(endpoint, &ended.completion)?) }?;
        Ok(1)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_operation_wait(
    handle: *mut Endpoint,
    op: u64,
    to: *mut CCompletion,
    timeout_ns: i64,
) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let endpoint = unsafe { endpoint(handle) }?;
        // SAFETY: promised by the caller.
        unsafe { check(to) }?;
        let ended = endpoint.wait_end(OpId(op), limit(timeout_ns))?;
        // SAFETY: promised by the caller.
        unsafe { write(to, &completion(endpoint, &ended.completion)?) }?;
        Ok(1)
    })
}
