//! One-sided memory: puts and gets of the engine, by a key without a salt.

use std::ffi::c_void;

use portolan::c_edge::{Piece, gather, scatter, slice};
use portolan::{Notify, Place, PutEnd, PutOptions, RemoteKey, SendError, Signal};

use crate::abi::{self, FidEp, MsgRma, RmaIov, Ssize};
use crate::attachment::Attachment;
use crate::ep::{SIGNALS, enabled};
use crate::error::{EBADFLAGS, EINVAL, Result, calls};
use crate::fid::{errno, given};
use crate::message::{forget_unheard, joined};

/// Arguments of an access, common to all calls.
struct Access<'a> {
    /// The program's memory.
    here: &'a [Piece],
    peer: abi::Addr,
    /// Offset in the region. The length is that of the program's memory.
    there: u64,
    key: u64,
    data: Option<u64>,
    context: *mut c_void,
    /// `None`: the flags that the endpoint was opened with.
    flags: Option<u64>,
}

const FLAGS: u64 = abi::COMPLETION
    | abi::INJECT
    | abi::INJECT_COMPLETE
    | abi::TRANSMIT_COMPLETE
    | abi::DELIVERY_COMPLETE
    | abi::REMOTE_CQ_DATA
    | abi::MORE
    | abi::FENCE;

/// Flags that define completion.
const LEVELS: u64 = abi::INJECT_COMPLETE | abi::TRANSMIT_COMPLETE | abi::DELIVERY_COMPLETE;

/// Checks the flags and finds the target; with `FI_FENCE` fences earlier accesses.
pub fn begin(on: &Attachment, peer: abi::Addr, flags: u64) -> Result<u32> {
    if flags & !FLAGS != 0 {
        return Err(EBADFLAGS);
    }
    let peer = on.peer(peer)?;
    if flags & abi::FENCE != 0 {
        on.endpoint.fence(peer).map_err(errno)?;
    }
    Ok(peer)
}

/// The error of an access that was not begun. Without credit makes progress, so that a retry
/// may succeed.
pub fn refused(on: &Attachment, why: SendError) -> portolan::c_edge::Errno {
    if why == SendError::NoCredit {
        let _ = on.endpoint.progress();
    }
    errno(why)
}

/// A place in a region that is known by its key, without a salt.
pub const fn place(key: u64, offset: u64) -> Place {
    let key = RemoteKey::any(key);
    Place { key, offset }
}

impl Access<'_> {
    /// # Safety
    /// As [`enabled`]; the program lends the memory until the completion.
    unsafe fn read(&self, ep: *mut FidEp) -> Result<Ssize> {
        // SAFETY: as promised, as all below.
        let on = unsafe { enabled(ep) }?;
        let flags = self.flags.unwrap_or(on.tx.op_flags);
        let peer = begin(on, self.peer, flags)?;
        let notify = on.notify(&on.tx, &on.counters.read, self.context.addr(), flags);
        // SAFETY: as promised.
        let into = unsafe { scatter(self.here.as_ptr(), self.here.len()) }?;
        let posted = on
            .endpoint
            .post_get(peer, place(self.key, self.there), into, notify);
        let op = posted.map_err(|(why, _)| refused(on, why))?;
        forget_unheard(on, notify, op)?;
        Ok(0)
    }

    /// # Safety
    /// As [`Access::read`].
    unsafe fn write(&self, ep: *mut FidEp) -> Result<Ssize> {
        // SAFETY: as promised, as all below.
        let on = unsafe { enabled(ep) }?;
        let flags = self.flags.unwrap_or(on.tx.op_flags);
        let notify = on.notify(&on.tx, &on.counters.write, self.context.addr(), flags);
        // SAFETY: as promised.
        unsafe { self.write_told(on, flags, notify) }
    }

    /// `fi_inject_write` and its variants: no completion.
    ///
    /// # Safety
    /// As [`enabled`]; the memory is there during the call.
    unsafe fn inject(&self, ep: *mut FidEp) -> Result<Ssize> {
        // SAFETY: as promised, as all below.
        let on = unsafe { enabled(ep) }?;
        let notify = on.notify_bad(&on.counters.write);
        // SAFETY: as promised.
        unsafe { self.write_told(on, abi::INJECT, notify) }
    }

    /// # Safety
    /// As [`Access::read`].
    unsafe fn write_told(&self, on: &Attachment, flags: u64, notify: Notify) -> Result<Ssize> {
        let peer = begin(on, self.peer, flags)?;
        // SAFETY: as promised.
        let from = unsafe {
            if flags & abi::INJECT != 0 {
                joined(self.here)?.into_owned().into()
            } else {
                gather(self.here.as_ptr(), self.here.len())?
            }
        };
        let options = PutOptions {
            // By default visible, or the target's errors would be lost.
            end: match flags & LEVELS {
                abi::INJECT_COMPLETE | abi::TRANSMIT_COMPLETE => PutEnd::Local,
                _ => PutEnd::Visible,
            },
            signal: self.data.map(|word| Signal {
                port: SIGNALS.into(),
                word,
            }),
            notify,
        };
        let posted = on
            .endpoint
            .post_put(peer, place(self.key, self.there), from, &options);
        let op = posted.map_err(|(why, _)| refused(on, why))?;
        forget_unheard(on, notify, op)?;
        Ok(0)
    }
}

/// The only target of a message, as long as the program's memory.
unsafe fn place_of(msg: &MsgRma) -> Result<&RmaIov> {
    if msg.rma_iov_count != 1 {
        return Err(EINVAL);
    }
    // SAFETY: promised by the program, as all below.
    let place = unsafe { given(msg.rma_iov) }?;
    // SAFETY: as promised.
    let here = unsafe { slice(msg.msg_iov, msg.iov_count) }?;
    if here.iter().map(|it| it.bytes).sum::<usize>() != place.len {
        return Err(EINVAL);
    }
    Ok(place)
}

/// # Safety
/// `msg` is null or a message of the program.
unsafe fn of_msg<'a>(msg: *const MsgRma, flags: u64) -> Result<Access<'a>> {
    // SAFETY: as promised, as all below.
    let msg = unsafe { given(msg) }?;
    // SAFETY: as promised.
    let place = unsafe { place_of(msg) }?;
    Ok(Access {
        // SAFETY: as promised.
        here: unsafe { slice(msg.msg_iov, msg.iov_count) }?,
        peer: msg.addr,
        there: place.addr,
        key: place.key,
        data: (flags & abi::REMOTE_CQ_DATA != 0).then_some(msg.data),
        context: msg.context,
        flags: Some(flags),
    })
}

type Desc = *mut c_void;
type Descs = *mut *mut c_void;

const fn piece(start: *const c_void, bytes: usize) -> Piece {
    Piece {
        start: start.cast_mut(),
        bytes,
    }
}

calls! {
    fn read(ep: *mut FidEp, into: *mut c_void, bytes: usize, _d: Desc, peer: abi::Addr, there: u64, key: u64, context: *mut c_void) -> Ssize {
        let here = &[piece(into, bytes)];
        Access { here, peer, there, key, data: None, context, flags: None }.read(ep)
    }

    fn readv(ep: *mut FidEp, into: *const Piece, _d: Descs, count: usize, peer: abi::Addr, there: u64, key: u64, context: *mut c_void) -> Ssize {
        let here = slice(into, count)?;
        Access { here, peer, there, key, data: None, context, flags: None }.read(ep)
    }

    fn readmsg(ep: *mut FidEp, msg: *const MsgRma, flags: u64) -> Ssize {
        of_msg(msg, flags)?.read(ep)
    }

    fn write(ep: *mut FidEp, from: *const c_void, bytes: usize, _d: Desc, peer: abi::Addr, there: u64, key: u64, context: *mut c_void) -> Ssize {
        let here = &[piece(from, bytes)];
        Access { here, peer, there, key, data: None, context, flags: None }.write(ep)
    }

    fn writev(ep: *mut FidEp, from: *const Piece, _d: Descs, count: usize, peer: abi::Addr, there: u64, key: u64, context: *mut c_void) -> Ssize {
        let here = slice(from, count)?;
        Access { here, peer, there, key, data: None, context, flags: None }.write(ep)
    }

    fn writemsg(ep: *mut FidEp, msg: *const MsgRma, flags: u64) -> Ssize {
        of_msg(msg, flags)?.write(ep)
    }

    fn inject(ep: *mut FidEp, from: *const c_void, bytes: usize, peer: abi::Addr, there: u64, key: u64) -> Ssize {
        let here = &[piece(from, bytes)];
        Access { here, peer, there, key, data: None, context: std::ptr::null_mut(), flags: None }.inject(ep)
    }

    fn writedata(ep: *mut FidEp, from: *const c_void, bytes: usize, _d: Desc, data: u64, peer: abi::Addr, there: u64, key: u64, context: *mut c_void) -> Ssize {
        let here = &[piece(from, bytes)];
        Access { here, peer, there, key, data: Some(data), context, flags: None }.write(ep)
    }

    fn injectdata(ep: *mut FidEp, from: *const c_void, bytes: usize, data: u64, peer: abi::Addr, there: u64, key: u64) -> Ssize {
        let here = &[piece(from, bytes)];
        Access { here, peer, there, key, data: Some(data), context: std::ptr::null_mut(), flags: None }.inject(ep)
    }
}

pub static OPS: abi::OpsRma = abi::OpsRma {
    size: size_of::<abi::OpsRma>(),
    read,
    readv,
    readmsg,
    write,
    writev,
    writemsg,
    inject,
    writedata,
    injectdata,
};
