//! Tagged and untagged messages: matched messages of the engine. The highest bit of the tag
//! marks untagged ones; the other bits are the program's.

use std::borrow::Cow;
use std::ffi::c_void;
use std::sync::atomic::Ordering;

use portolan::c_edge::{Piece, gather, scatter, slice};
use portolan::{Notify, Probed, Scatter, Selector, TaggedOptions};

use crate::abi::{self, Fid, FidEp, Msg, MsgTagged, Ssize};
use crate::attachment::Attachment;
use crate::cq::Event;
use crate::ep::{Ep, enabled};
use crate::error::{EBADFLAGS, EINVAL, EMSGSIZE, ENOENT, ENOMSG, Result, calls};
use crate::fid::{errno, given, lock, object};
use crate::info::INJECT_MAX;

/// Bits of tags that are the program's.
pub const TAG: u64 = u64::MAX >> 1;
/// Tag of untagged messages.
const UNTAGGED: u64 = 1 << 63;

/// A completion's flag: whether the message was tagged.
#[inline]
pub const fn kind(tag: u64) -> u64 {
    if tag & UNTAGGED == 0 {
        abi::TAGGED
    } else {
        abi::MSG
    }
}

/// Arguments of a send, common to all calls.
struct Send<'a> {
    from: &'a [Piece],
    to: abi::Addr,
    tag: u64,
    data: Option<u64>,
    context: *mut c_void,
    /// `None`: the flags that the endpoint was opened with.
    flags: Option<u64>,
}

/// Arguments of a receive, common to all calls.
struct Receive<'a> {
    into: &'a [Piece],
    from: abi::Addr,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
    flags: Option<u64>,
}

const fn piece(start: *const c_void, bytes: usize) -> [Piece; 1] {
    let start = start.cast_mut();
    [Piece { start, bytes }]
}

/// Flags that sends accept; some have no effect.
const SEND_FLAGS: u64 = abi::COMPLETION
    | abi::INJECT
    | abi::INJECT_COMPLETE
    | abi::TRANSMIT_COMPLETE
    | abi::DELIVERY_COMPLETE
    | abi::MATCH_COMPLETE
    | abi::REMOTE_CQ_DATA
    | abi::MORE
    | abi::FENCE;
const RECEIVE_FLAGS: u64 =
    abi::COMPLETION | abi::MORE | abi::PEEK | abi::CLAIM | abi::DISCARD | abi::MULTI_RECV;

impl Send<'_> {
    /// # Safety
    /// As [`enabled`]; the program lends the memory until the completion.
    #[inline(always)]
    unsafe fn begin(&self, ep: *mut FidEp) -> Result<Ssize> {
        // SAFETY: as promised.
        let on = unsafe { enabled(ep) }?;
        let flags = self.flags.unwrap_or(on.tx.op_flags);
        if flags & !SEND_FLAGS != 0 {
            return Err(EBADFLAGS);
        }
        let peer = on.peer(self.to)?;
        let options = TaggedOptions {
            data: self.data,
            sync: flags & (abi::DELIVERY_COMPLETE | abi::MATCH_COMPLETE) != 0,
            notify: on.notify(&on.tx, &on.counters.send, self.context.addr(), flags),
        };
        if flags & abi::INJECT != 0 {
            // SAFETY: the memory is there during the call.
            return unsafe { inject_on(on, peer, self.tag, &options, self.from) };
        }
        // SAFETY: as promised.
        let from = unsafe { gather(self.from.as_ptr(), self.from.len()) }?;
        let posted = on.endpoint.post_send(peer, self.tag, &options, from);
        let op = posted.map_err(|(why, _)| errno(why))?;
        forget_unheard(on, options.notify, op)?;
        Ok(0)
    }
}

/// Forgets an operation without a queue: its completion is never read.
#[inline]
pub fn forget_unheard(on: &Attachment, notify: Notify, op: portolan::OpId) -> Result<()> {
    if notify.queue.is_none() {
        on.endpoint.forget(op).map_err(errno)?;
    }
    Ok(())
}

/// Returns the injected pieces as one slice.
///
/// # Errors
/// `EMSGSIZE`: more than [`INJECT_MAX`] bytes.
///
/// # Safety
/// The memory is there during `'a`.
#[inline]
pub unsafe fn joined<'a>(from: &[Piece]) -> Result<Cow<'a, [u8]>> {
    if from
        .iter()
        .map(|it| it.bytes)
        .fold(0, usize::saturating_add)
        > INJECT_MAX
    {
        return Err(EMSGSIZE);
    }
    // SAFETY: as promised.
    let bytes = |it: &Piece| unsafe { slice::<u8>(it.start.cast_const().cast(), it.bytes) };
    Ok(match from {
        [one] => Cow::Borrowed(bytes(one)?),
        several => Cow::Owned(
            several
                .iter()
                .map(bytes)
                .collect::<Result<Vec<_>>>()?
                .concat(),
        ),
    })
}

/// Sends a copy.
///
/// # Safety
/// The memory is there during the call.
#[inline]
unsafe fn inject_on(
    on: &Attachment,
    peer: u32,
    tag: u64,
    options: &TaggedOptions,
    from: &[Piece],
) -> Result<Ssize> {
    // SAFETY: as promised.
    let payload = unsafe { joined(from) }?;
    on.endpoint
        .inject_tagged(peer, tag, options, &payload)
        .map_err(errno)?;
    Ok(0)
}

/// `fi_inject` and its variants: no completion.
///
/// # Safety
/// As [`enabled`]; the memory is there during the call.
#[inline(always)]
unsafe fn inject_call(
    ep: *mut FidEp,
    from: [Piece; 1],
    to: abi::Addr,
    tag: u64,
    data: Option<u64>,
) -> Result<Ssize> {
    // SAFETY: as promised.
    let on = unsafe { enabled(ep) }?;
    let options = TaggedOptions {
        data,
        sync: false,
        notify: on.notify_bad(&on.counters.send),
    };
    // SAFETY: as promised.
    unsafe { inject_on(on, on.peer(to)?, tag, &options, &from) }
}

impl Receive<'_> {
    fn selector(&self, on: &Attachment) -> Result<Selector> {
        let tag = self.tag;
        let from = if on.directed && self.from != abi::ADDR_UNSPEC {
            Selector::from(on.peer(self.from)?, tag)
        } else {
            Selector::any(tag)
        };
        Ok(from.ignoring(self.ignore))
    }

    /// # Safety
    /// As [`enabled`]; the program lends the memory until the completion.
    #[inline(always)]
    unsafe fn begin(&self, ep: *mut FidEp) -> Result<Ssize> {
        // SAFETY: as promised.
        let on = unsafe { enabled(ep) }?;
        let flags = self.flags.unwrap_or(on.rx.op_flags);
        if flags & !RECEIVE_FLAGS != 0 {
            return Err(EBADFLAGS);
        }
        let context = self.context.addr();
        let notify = on.notify(&on.rx, &on.counters.recv, context, flags);
        if flags & (abi::PEEK | abi::CLAIM) != 0 {
            // SAFETY: as promised.
            return unsafe { self.look(object(ep)?, on, flags, notify) };
        }
        if flags & abi::DISCARD != 0 {
            return Err(EBADFLAGS);
        }
        // SAFETY: as promised.
        let into = unsafe { scatter(self.into.as_ptr(), self.into.len()) }?;
        if flags & abi::MULTI_RECV != 0 {
            return self.begin_many(on, into, notify);
        }
        let posted = on.endpoint.post_receive(&self.selector(on)?, into, notify);
        forget_unheard(on, notify, posted.map_err(errno)?)?;
        Ok(0)
    }

    /// Posts a receive of many messages, one behind the other, in one piece of memory.
    fn begin_many(&self, on: &Attachment, into: Scatter, notify: Notify) -> Result<Ssize> {
        let [piece] = self.into else {
            return Err(EINVAL);
        };
        let selector = self.selector(on)?;
        let min = on.min_multi_recv.load(Ordering::Relaxed) as u64;
        // Successes too, since completions say where messages lie.
        let notify = Notify {
            only_errors: false,
            ..notify
        };
        on.begin_many(piece.start.addr(), || {
            let posted = on.endpoint.post_receive_many(&selector, into, min, notify);
            posted.map_err(errno)
        })?;
        Ok(0)
    }

    /// Peeks, claims, receives a claimed message, or discards.
    ///
    /// # Safety
    /// As [`Receive::begin`].
    #[cold]
    unsafe fn look(&self, ep: &Ep, on: &Attachment, flags: u64, notify: Notify) -> Result<Ssize> {
        let context = self.context.addr();
        let (peek, claim) = (flags & abi::PEEK != 0, flags & abi::CLAIM != 0);
        let discard = flags & abi::DISCARD != 0;
        let mut found = Event::new(context, abi::RECV | kind(self.tag));
        if !peek {
            let message = lock(&on.claims).remove(&context).ok_or(EINVAL)?;
            if !discard {
                // SAFETY: as promised.
                let into = unsafe { scatter(self.into.as_ptr(), self.into.len()) }?;
                let op = on
                    .endpoint
                    .receive_claimed(message, into, notify)
                    .map_err(errno)?;
                forget_unheard(on, notify, op)?;
                return Ok(0);
            }
            on.endpoint.discard(message).map_err(errno)?;
            ep.tell_receiver(found);
            return Ok(0);
        }
        let selector = self.selector(on)?;
        let probed: Option<Probed> = if claim || discard {
            match on.endpoint.claim(&selector).map_err(errno)? {
                Some((message, probed)) => {
                    if discard {
                        on.endpoint.discard(message).map_err(errno)?;
                    } else if let Some(before) = lock(&on.claims).insert(context, message) {
                        // The program has reused a context: the earlier message is out of reach.
                        on.endpoint.discard(before).map_err(errno)?;
                    }
                    Some(probed)
                }
                None => None,
            }
        } else {
            on.endpoint.probe(&selector).map_err(errno)?
        };
        let entry = &mut found.entry;
        match probed {
            Some(it) => {
                entry.len = it.total as usize;
                entry.tag = it.tag & TAG;
                if let Some(data) = it.data {
                    entry.flags |= abi::REMOTE_CQ_DATA;
                    entry.data = data;
                }
                found.from = on.name_of(it.from);
            }
            None => {
                entry.tag = self.tag & TAG;
                (entry.err, entry.prov_errno) = (ENOMSG.0, -ENOMSG.0);
            }
        }
        ep.tell_receiver(found);
        Ok(0)
    }
}

type Desc = *mut c_void;
type Descs = *mut *mut c_void;

calls! {
    fn send(ep: *mut FidEp, from: *const c_void, bytes: usize, _d: Desc, to: abi::Addr, context: *mut c_void) -> Ssize {
        let from = &piece(from, bytes);
        Send { from, to, tag: UNTAGGED, data: None, context, flags: None }.begin(ep)
    }

    fn sendv(ep: *mut FidEp, from: *const Piece, _d: Descs, count: usize, to: abi::Addr, context: *mut c_void) -> Ssize {
        let from = slice(from, count)?;
        Send { from, to, tag: UNTAGGED, data: None, context, flags: None }.begin(ep)
    }

    fn sendmsg(ep: *mut FidEp, msg: *const Msg, flags: u64) -> Ssize {
        let msg = given(msg)?;
        Send {
            from: slice(msg.msg_iov, msg.iov_count)?,
            to: msg.addr,
            tag: UNTAGGED,
            data: (flags & abi::REMOTE_CQ_DATA != 0).then_some(msg.data),
            context: msg.context,
            flags: Some(flags),
        }
        .begin(ep)
    }

    fn senddata(ep: *mut FidEp, from: *const c_void, bytes: usize, _d: Desc, data: u64, to: abi::Addr, context: *mut c_void) -> Ssize {
        let from = &piece(from, bytes);
        Send { from, to, tag: UNTAGGED, data: Some(data), context, flags: None }.begin(ep)
    }

    fn inject(ep: *mut FidEp, from: *const c_void, bytes: usize, to: abi::Addr) -> Ssize {
        inject_call(ep, piece(from, bytes), to, UNTAGGED, None)
    }

    fn injectdata(ep: *mut FidEp, from: *const c_void, bytes: usize, data: u64, to: abi::Addr) -> Ssize {
        inject_call(ep, piece(from, bytes), to, UNTAGGED, Some(data))
    }

    fn recv(ep: *mut FidEp, into: *mut c_void, bytes: usize, _d: Desc, from: abi::Addr, context: *mut c_void) -> Ssize {
        let into = &piece(into, bytes);
        Receive { into, from, tag: UNTAGGED, ignore: 0, context, flags: None }.begin(ep)
    }

    fn recvv(ep: *mut FidEp, into: *const Piece, _d: Descs, count: usize, from: abi::Addr, context: *mut c_void) -> Ssize {
        let into = slice(into, count)?;
        Receive { into, from, tag: UNTAGGED, ignore: 0, context, flags: None }.begin(ep)
    }

    fn recvmsg(ep: *mut FidEp, msg: *const Msg, flags: u64) -> Ssize {
        let msg = given(msg)?;
        Receive {
            into: slice(msg.msg_iov, msg.iov_count)?,
            from: msg.addr,
            tag: UNTAGGED,
            ignore: 0,
            context: msg.context,
            flags: Some(flags),
        }
        .begin(ep)
    }

    fn tsend(ep: *mut FidEp, from: *const c_void, bytes: usize, _d: Desc, to: abi::Addr, tag: u64, context: *mut c_void) -> Ssize {
        let from = &piece(from, bytes);
        Send { from, to, tag: tag & TAG, data: None, context, flags: None }.begin(ep)
    }

    fn tsendv(ep: *mut FidEp, from: *const Piece, _d: Descs, count: usize, to: abi::Addr, tag: u64, context: *mut c_void) -> Ssize {
        let from = slice(from, count)?;
        Send { from, to, tag: tag & TAG, data: None, context, flags: None }.begin(ep)
    }

    fn tsendmsg(ep: *mut FidEp, msg: *const MsgTagged, flags: u64) -> Ssize {
        let msg = given(msg)?;
        Send {
            from: slice(msg.msg_iov, msg.iov_count)?,
            to: msg.addr,
            tag: msg.tag & TAG,
            data: (flags & abi::REMOTE_CQ_DATA != 0).then_some(msg.data),
            context: msg.context,
            flags: Some(flags),
        }
        .begin(ep)
    }

    fn tsenddata(ep: *mut FidEp, from: *const c_void, bytes: usize, _d: Desc, data: u64, to: abi::Addr, tag: u64, context: *mut c_void) -> Ssize {
        let from = &piece(from, bytes);
        Send { from, to, tag: tag & TAG, data: Some(data), context, flags: None }.begin(ep)
    }

    fn tinject(ep: *mut FidEp, from: *const c_void, bytes: usize, to: abi::Addr, tag: u64) -> Ssize {
        inject_call(ep, piece(from, bytes), to, tag & TAG, None)
    }

    fn tinjectdata(ep: *mut FidEp, from: *const c_void, bytes: usize, data: u64, to: abi::Addr, tag: u64) -> Ssize {
        inject_call(ep, piece(from, bytes), to, tag & TAG, Some(data))
    }

    fn trecv(ep: *mut FidEp, into: *mut c_void, bytes: usize, _d: Desc, from: abi::Addr, tag: u64, ignore: u64, context: *mut c_void) -> Ssize {
        let into = &piece(into, bytes);
        Receive { into, from, tag: tag & TAG, ignore: ignore & TAG, context, flags: None }.begin(ep)
    }

    fn trecvv(ep: *mut FidEp, into: *const Piece, _d: Descs, count: usize, from: abi::Addr, tag: u64, ignore: u64, context: *mut c_void) -> Ssize {
        let into = slice(into, count)?;
        Receive { into, from, tag: tag & TAG, ignore: ignore & TAG, context, flags: None }.begin(ep)
    }

    fn trecvmsg(ep: *mut FidEp, msg: *const MsgTagged, flags: u64) -> Ssize {
        let msg = given(msg)?;
        Receive {
            into: slice(msg.msg_iov, msg.iov_count)?,
            from: msg.addr,
            tag: msg.tag & TAG,
            ignore: msg.ignore & TAG,
            context: msg.context,
            flags: Some(flags),
        }
        .begin(ep)
    }

    fn cancel(ep: *mut Fid, context: *mut c_void) -> Ssize {
        // Receives that have met a message, and other operations, go on.
        let on = enabled(ep.cast())?;
        match on.endpoint.cancel_named(context.addr() as u64).map_err(errno)? {
            true => Ok(0),
            false => Err(ENOENT),
        }
    }
}

pub static MSG: abi::OpsMsg = abi::OpsMsg {
    size: size_of::<abi::OpsMsg>(),
    recv,
    recvv,
    recvmsg,
    send,
    sendv,
    sendmsg,
    inject,
    senddata,
    injectdata,
};

pub static TAGGED: abi::OpsTagged = abi::OpsTagged {
    size: size_of::<abi::OpsTagged>(),
    recv: trecv,
    recvv: trecvv,
    recvmsg: trecvmsg,
    send: tsend,
    sendv: tsendv,
    sendmsg: tsendmsg,
    inject: tinject,
    senddata: tsenddata,
    injectdata: tinjectdata,
};
