//! Matched messages: sends, receives, probes, operations.

use std::ffi::{c_int, c_void};

use super::error::{EINVAL, Errno};
use super::pieces::{Piece, gather, scatter};
use super::send::{bytes, limit};
use super::types::{
    ADDED, CCompletion, CHANGED, CProbed, CTaggedOptions, FLUSHED, GOT, MESSAGE, PUT, RECEIVED,
    RECEIVED_MANY, Record, SENT, SWAPPED, SYNC, WITH_DATA, read,
};
use super::{Slot, endpoint};
use crate::{
    Action, Completion, CounterId, Death, Endpoint, MessageId, Notify, OpError, OpId, Probed,
    QueueId, Selector, TaggedOptions,
};

/// `PORTOLAN_ANY`: any rank as source.
const ANY: u32 = u32::MAX;

/// Queue of a number of C, where 0 is none and ours are one higher. Counters likewise.
pub(super) const fn queue(number: u32) -> QueueId {
    QueueId(number.wrapping_sub(1))
}

pub(super) const fn counter(number: u32) -> CounterId {
    CounterId(number.wrapping_sub(1))
}

/// How a completion is reported, from numbers of C (0: none).
pub(super) fn told(context: u64, of_queue: u32, of_counter: u32) -> Notify {
    Notify {
        context,
        queue: (of_queue != 0).then(|| queue(of_queue)),
        counter: (of_counter != 0).then(|| counter(of_counter)),
        ..Notify::NONE
    }
}

/// Checks that a number is or was in use: by a rank or, outside of a job, a peer.
pub(super) fn check_rank(endpoint: &Endpoint, rank: u32) -> Result<(), Errno> {
    if rank >= endpoint.size() {
        endpoint.death(rank)?;
    }
    Ok(())
}

fn selector(endpoint: &Endpoint, source: u32, tag: u64, ignore: u64) -> Result<Selector, Errno> {
    let from = match source {
        ANY => Selector::any(tag),
        rank => {
            check_rank(endpoint, rank)?;
            Selector::from(rank, tag)
        }
    };
    Ok(from.ignoring(ignore))
}

/// # Safety
/// `options` is null or as the header says.
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
        notify: told(c.context, c.queue, c.counter),
    })
}

/// Options of a receive: only how its completion is reported.
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

/// Returns the error of a completed operation; `None`: it succeeded.
///
/// # Errors
/// Misuse: the endpoint cannot be asked how the peer died.
pub fn failure(endpoint: &Endpoint, c: &Completion) -> Result<Option<Errno>, Errno> {
    Ok(match c.result {
        Ok(()) => None,
        Err(OpError::PeerDead) => {
            // A peer that is not dead any more was restarted.
            let death = endpoint.death(c.peer)?.unwrap_or(Death::Restarted);
            Some(death.into())
        }
        Err(why) => Some(why.into()),
    })
}

pub(super) fn completion(endpoint: &Endpoint, c: &Completion) -> Result<CCompletion, Errno> {
    Ok(CCompletion {
        size: 0,
        error: failure(endpoint, c)?.map_or(0, |why| -why.0),
        operation: c.op.0,
        action: match c.action {
            Action::Send => SENT,
            Action::Receive => RECEIVED,
            Action::Put => PUT,
            Action::Get => GOT,
            Action::FetchAdd => ADDED,
            Action::CompareSwap => SWAPPED,
            Action::Flush => FLUSHED,
            Action::Message => MESSAGE,
            Action::ReceiveMany => RECEIVED_MANY,
            Action::Atomic => CHANGED,
            // C has no number for this action.
            _ => 0,
        },
        peer: c.peer,
        tag: c.tag,
        bytes: c.bytes,
        total: c.total,
        data: c.data.unwrap_or(0),
        has_data: c.data.is_some().into(),
        reserved: 0,
        context: c.context,
        offset: c.at,
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

interface! {
    fn portolan_send_tagged(
        handle: *mut Endpoint,
        rank: u32,
        tag: u64,
        data: *const c_void,
        length: usize,
    ) -> c_int {
        endpoint = endpoint(handle), data = bytes(data, length);
        endpoint.send_tagged(rank, tag, data)?
    }

    fn portolan_send_taggedv(
        handle: *mut Endpoint,
        rank: u32,
        tag: u64,
        from: *const Piece,
        count: usize,
        o: *const CTaggedOptions,
    ) -> c_int {
        endpoint = endpoint(handle), from = gather(from, count), o = options(o);
        if o.notify != Notify::default() {
            return Err(EINVAL);
        }
        let ended = endpoint.send_pieces(rank, tag, &o, from)?;
        failure(endpoint, &ended.completion)?.map_or(Ok(()), Err)?
    }
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
    unsafe { portolan_post_sendv(handle, rank, tag, &raw const from, 1, o, op) }
}

interface! {
    fn portolan_post_sendv(
        handle: *mut Endpoint,
        rank: u32,
        tag: u64,
        from: *const Piece,
        count: usize,
        o: *const CTaggedOptions,
        op: *mut u64,
    ) -> c_int {
        op = Slot::begun(op, 0), endpoint = endpoint(handle), o = options(o),
        from = gather(from, count);
        let begun = endpoint.post_send(rank, tag, &o, from);
        op.store(begun.map_err(|(e, _)| e)?.0);
    }
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
    unsafe { portolan_receive_taggedv(handle, source, tag, ignore, &raw const into, 1, to) }
}

interface! {
    fn portolan_receive_taggedv(
        handle: *mut Endpoint,
        source: u32,
        tag: u64,
        ignore: u64,
        into: *const Piece,
        count: usize,
        to: *mut CCompletion,
    ) -> c_int {
        endpoint = endpoint(handle), selector = selector(endpoint, source, tag, ignore),
        to = Record::optional(to), into = scatter(into, count);
        let ended = endpoint.receive_pieces(&selector, into)?;
        let done = completion(endpoint, &ended.completion)?;
        if let Some(to) = to {
            to.fill(&done);
        }
        done.error
    }
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
    unsafe { portolan_post_receivev(handle, source, tag, ignore, &raw const into, 1, o, op) }
}

interface! {
    fn portolan_post_receivev(
        handle: *mut Endpoint,
        source: u32,
        tag: u64,
        ignore: u64,
        into: *const Piece,
        count: usize,
        o: *const CTaggedOptions,
        op: *mut u64,
    ) -> c_int {
        op = Slot::begun(op, 0), endpoint = endpoint(handle), notify = notify(o),
        selector = selector(endpoint, source, tag, ignore), into = scatter(into, count);
        op.store(endpoint.post_receive(&selector, into, notify)?.0);
    }

    fn portolan_post_receive_many(
        handle: *mut Endpoint,
        source: u32,
        tag: u64,
        ignore: u64,
        start: *mut c_void,
        length: usize,
        room_min: u64,
        o: *const CTaggedOptions,
        op: *mut u64,
    ) -> c_int {
        op = Slot::begun(op, 0), endpoint = endpoint(handle), notify = notify(o),
        selector = selector(endpoint, source, tag, ignore),
        into = scatter(&one(start, length), 1);
        op.store(endpoint.post_receive_many(&selector, into, room_min, notify)?.0);
    }

    fn portolan_probe(
        handle: *mut Endpoint,
        source: u32,
        tag: u64,
        ignore: u64,
        to: *mut CProbed,
    ) -> c_int {
        endpoint = endpoint(handle), selector = selector(endpoint, source, tag, ignore),
        to = Record::optional(to);
        let found = endpoint.probe(&selector)?;
        if let (Some(found), Some(to)) = (&found, to) {
            to.fill(&probed(found));
        }
        found.is_some()
    }

    fn portolan_claim(
        handle: *mut Endpoint,
        source: u32,
        tag: u64,
        ignore: u64,
        message: *mut u64,
        to: *mut CProbed,
    ) -> c_int {
        message = Slot::begun(message, 0), endpoint = endpoint(handle),
        selector = selector(endpoint, source, tag, ignore), to = Record::optional(to);
        let Some((id, found)) = endpoint.claim(&selector)? else {
            return Ok(false);
        };
        message.store(id.0);
        if let Some(to) = to {
            to.fill(&probed(&found));
        }
        true
    }
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
    unsafe { portolan_receive_claimedv(handle, message, &raw const into, 1, o, op) }
}

interface! {
    fn portolan_receive_claimedv(
        handle: *mut Endpoint,
        message: u64,
        into: *const Piece,
        count: usize,
        o: *const CTaggedOptions,
        op: *mut u64,
    ) -> c_int {
        op = Slot::begun(op, 0), endpoint = endpoint(handle), notify = notify(o),
        into = scatter(into, count);
        op.store(endpoint.receive_claimed(MessageId(message), into, notify)?.0);
    }

    fn portolan_discard(handle: *mut Endpoint, message: u64) -> c_int {
        endpoint = endpoint(handle); endpoint.discard(MessageId(message))?
    }

    fn portolan_cancel(handle: *mut Endpoint, op: u64) -> c_int {
        endpoint = endpoint(handle); endpoint.cancel(OpId(op))?
    }

    fn portolan_operation_test(
        handle: *mut Endpoint,
        op: u64,
        to: *mut CCompletion,
    ) -> c_int {
        endpoint = endpoint(handle), to = Record::one(to);
        let Some(ended) = endpoint.poll_op(OpId(op))? else {
            return Ok(false);
        };
        to.fill(&completion(endpoint, &ended.completion)?);
        true
    }

    fn portolan_operation_forget(handle: *mut Endpoint, op: u64) -> c_int {
        endpoint = endpoint(handle); endpoint.forget(OpId(op))?
    }

    fn portolan_operation_wait(
        handle: *mut Endpoint,
        op: u64,
        to: *mut CCompletion,
        timeout_ns: i64,
    ) -> c_int {
        endpoint = endpoint(handle), to = Record::one(to);
        let ended = endpoint.wait_end(OpId(op), limit(timeout_ns))?;
        to.fill(&completion(endpoint, &ended.completion)?);
        true
    }
}
