//! Atomic operations on memory of peers. The engine's numbers of operations and types are
//! libfabric's.

use std::ffi::{c_int, c_void};

use portolan::c_edge::{Piece, scatter, slice};
use portolan::{Atomic, AtomicOp, AtomicType};

use crate::abi::{self, AtomicAttr, FidDomain, FidEp, Ioc, MsgAtomic, RmaIoc, Ssize};
use crate::ep::enabled;
use crate::error::{EBADFLAGS, EINVAL, EOPNOTSUPP, Result, calls, edge};
use crate::fid::given;
use crate::message::{forget_unheard, joined};
use crate::rma::{begin, place, refused};

/// Maximum length of the elements of one operation, bytes.
pub const BYTES_MAX: usize = portolan::ATOMIC_BYTES;

/// Arguments of an operation, common to all calls.
struct Change<'a> {
    /// Operands, values to compare with, and memory for the previous values.
    values: &'a [Ioc],
    compare: &'a [Ioc],
    results: Option<&'a [Ioc]>,
    peer: abi::Addr,
    there: u64,
    key: u64,
    /// The type and the operation.
    what: [c_int; 2],
    context: *mut c_void,
    /// `None`: the flags that the endpoint was opened with.
    flags: Option<u64>,
    /// Without a completion.
    inject: bool,
}

fn numbers([of, op]: [c_int; 2]) -> Result<(AtomicType, AtomicOp)> {
    let small = |it: c_int| u8::try_from(it).map_err(|_| EOPNOTSUPP);
    let of = AtomicType::of(small(of)?).ok_or(EOPNOTSUPP)?;
    let op = AtomicOp::of(small(op)?).ok_or(EOPNOTSUPP)?;
    Ok((of, op))
}

/// Elements as pieces of memory, and their number.
fn pieces(elements: &[Ioc], of: AtomicType) -> Result<(Vec<Piece>, usize)> {
    let count = elements
        .iter()
        .try_fold(0_usize, |sum, it| sum.checked_add(it.count));
    let piece = |it: &Ioc| {
        let bytes = it.count.checked_mul(of.bytes())?;
        let start = it.addr;
        Some(Piece { start, bytes })
    };
    let pieces: Option<Vec<_>> = elements.iter().map(piece).collect();
    Ok((pieces.ok_or(EINVAL)?, count.ok_or(EINVAL)?))
}

impl Change<'_> {
    /// # Safety
    /// As [`enabled`]; the program lends the results' memory until the completion.
    unsafe fn begin(&self, ep: *mut FidEp) -> Result<Ssize> {
        // SAFETY: as promised, as all below.
        let on = unsafe { enabled(ep) }?;
        let (of, op) = numbers(self.what)?;
        let flags = self.flags.unwrap_or(on.tx.op_flags);
        if flags & abi::REMOTE_CQ_DATA != 0 {
            return Err(EBADFLAGS);
        }
        let most = op.elements_max(of, self.results.is_some());
        let most = most.ok_or(EOPNOTSUPP)?;
        let peer = begin(on, self.peer, flags)?;
        let (values, count) = pieces(self.values, of)?;
        let (compare, compared) = pieces(self.compare, of)?;
        let results = self.results.map(|it| pieces(it, of)).transpose()?;
        let (is_read, compares) = (op == AtomicOp::Read, op.compares());
        let told = results.as_ref().map(|(_, told)| *told);
        let count = if is_read { told.unwrap_or(0) } else { count };
        if compares == self.compare.is_empty()
            || (compares && compared != count)
            || told.is_some_and(|told| told != count)
            || count == 0
            || count > most
        {
            return Err(EINVAL);
        }
        // A read ignores operands.
        let values = if is_read { &[][..] } else { &values };
        // SAFETY: as promised.
        let (operands, compare) = unsafe { (joined(values)?, joined(&compare)?) };
        let what = Atomic {
            op,
            of,
            count,
            operands: &operands,
            compare: &compare,
        };
        let counters = &on.counters;
        let counter = if told.is_some() {
            &counters.read
        } else {
            &counters.write
        };
        let notify = if self.inject {
            on.notify_bad(counter)
        } else {
            on.notify(&on.tx, counter, self.context.addr(), flags)
        };
        let place = place(self.key, self.there);
        let begun = match results {
            None => on.endpoint.post_atomic(peer, place, &what, notify),
            Some((into, _)) => {
                // SAFETY: as promised.
                let into = unsafe { scatter(into.as_ptr(), into.len()) }?;
                let begun = on
                    .endpoint
                    .post_fetch_atomic(peer, place, &what, into, notify);
                begun.map_err(|(why, _)| why)
            }
        };
        forget_unheard(on, notify, begun.map_err(|why| refused(on, why))?)?;
        Ok(0)
    }
}

/// # Safety
/// `msg` is the program's, with valid compare values and results of these counts.
unsafe fn of_msg<'a>(
    msg: *const MsgAtomic,
    compare: (*const Ioc, usize),
    results: Option<(*const Ioc, usize)>,
    flags: u64,
) -> Result<Change<'a>> {
    // SAFETY: as promised, as all below.
    let msg = unsafe { given(msg) }?;
    if msg.rma_iov_count != 1 {
        return Err(EINVAL);
    }
    // SAFETY: as promised.
    let to: &RmaIoc = unsafe { given(msg.rma_iov) }?;
    // SAFETY: as promised.
    let values = unsafe { slice(msg.msg_iov, msg.iov_count) }?;
    // SAFETY: as promised.
    let results = results.map(|(at, count)| unsafe { slice(at, count) });
    let change = Change {
        values,
        // SAFETY: as promised.
        compare: unsafe { slice(compare.0, compare.1) }?,
        results: results.transpose()?,
        peer: msg.addr,
        there: to.addr,
        key: to.key,
        what: [msg.datatype, msg.op],
        context: msg.context,
        flags: Some(flags),
        inject: false,
    };
    let elements = change.results.unwrap_or(change.values);
    if elements
        .iter()
        .map(|it| it.count)
        .fold(0, usize::saturating_add)
        != to.len
    {
        return Err(EINVAL);
    }
    Ok(change)
}

const fn ioc(addr: *const c_void, count: usize) -> Ioc {
    Ioc {
        addr: addr.cast_mut(),
        count,
    }
}

type Bytes = *const c_void;
type Room = *mut c_void;
type Desc = *mut c_void;
type Descs = *mut *mut c_void;
const NONE: (*const Ioc, usize) = (std::ptr::null(), 0);

calls! {
    fn write(ep: *mut FidEp, values: Bytes, count: usize, _d: Desc, peer: abi::Addr, there: u64, key: u64, of: c_int, op: c_int, context: *mut c_void) -> Ssize {
        let values = &[ioc(values, count)];
        Change { values, compare: &[], results: None, peer, there, key, what: [of, op], context, flags: None, inject: false }.begin(ep)
    }

    fn writev(ep: *mut FidEp, values: *const Ioc, _d: Descs, count: usize, peer: abi::Addr, there: u64, key: u64, of: c_int, op: c_int, context: *mut c_void) -> Ssize {
        let values = slice(values, count)?;
        Change { values, compare: &[], results: None, peer, there, key, what: [of, op], context, flags: None, inject: false }.begin(ep)
    }

    fn writemsg(ep: *mut FidEp, msg: *const MsgAtomic, flags: u64) -> Ssize {
        of_msg(msg, NONE, None, flags)?.begin(ep)
    }

    fn inject(ep: *mut FidEp, values: Bytes, count: usize, peer: abi::Addr, there: u64, key: u64, of: c_int, op: c_int) -> Ssize {
        let values = &[ioc(values, count)];
        let context = std::ptr::null_mut();
        Change { values, compare: &[], results: None, peer, there, key, what: [of, op], context, flags: None, inject: true }.begin(ep)
    }

    fn readwrite(ep: *mut FidEp, values: Bytes, count: usize, _d: Desc, result: Room, _r: Desc, peer: abi::Addr, there: u64, key: u64, of: c_int, op: c_int, context: *mut c_void) -> Ssize {
        let (values, results) = (&[ioc(values, count)], &[ioc(result, count)]);
        Change { values, compare: &[], results: Some(results), peer, there, key, what: [of, op], context, flags: None, inject: false }.begin(ep)
    }

    fn readwritev(ep: *mut FidEp, values: *const Ioc, _d: Descs, count: usize, results: *mut Ioc, _r: Descs, result_count: usize, peer: abi::Addr, there: u64, key: u64, of: c_int, op: c_int, context: *mut c_void) -> Ssize {
        let (values, results) = (slice(values, count)?, slice(results, result_count)?);
        Change { values, compare: &[], results: Some(results), peer, there, key, what: [of, op], context, flags: None, inject: false }.begin(ep)
    }

    fn readwritemsg(ep: *mut FidEp, msg: *const MsgAtomic, results: *mut Ioc, _r: Descs, result_count: usize, flags: u64) -> Ssize {
        of_msg(msg, NONE, Some((results, result_count)), flags)?.begin(ep)
    }

    fn compwrite(ep: *mut FidEp, values: Bytes, count: usize, _d: Desc, compare: Bytes, _c: Desc, result: Room, _r: Desc, peer: abi::Addr, there: u64, key: u64, of: c_int, op: c_int, context: *mut c_void) -> Ssize {
        let (values, compare) = (&[ioc(values, count)], &[ioc(compare, count)]);
        let results = &[ioc(result, count)];
        Change { values, compare, results: Some(results), peer, there, key, what: [of, op], context, flags: None, inject: false }.begin(ep)
    }

    fn compwritev(ep: *mut FidEp, values: *const Ioc, _d: Descs, count: usize, compare: *const Ioc, _c: Descs, compare_count: usize, results: *mut Ioc, _r: Descs, result_count: usize, peer: abi::Addr, there: u64, key: u64, of: c_int, op: c_int, context: *mut c_void) -> Ssize {
        let (values, compare) = (slice(values, count)?, slice(compare, compare_count)?);
        let results = slice(results, result_count)?;
        Change { values, compare, results: Some(results), peer, there, key, what: [of, op], context, flags: None, inject: false }.begin(ep)
    }

    fn compwritemsg(ep: *mut FidEp, msg: *const MsgAtomic, compare: *const Ioc, _c: Descs, compare_count: usize, results: *mut Ioc, _r: Descs, result_count: usize, flags: u64) -> Ssize {
        of_msg(msg, (compare, compare_count), Some((results, result_count)), flags)?.begin(ep)
    }
}

/// Maximum number of elements of an operation, and bytes of each.
fn most(what: [c_int; 2], fetching: bool, comparing: bool) -> Result<(usize, usize)> {
    let (of, op) = numbers(what)?;
    let most = op.elements_max(of, fetching || comparing);
    let most = most.filter(|_| op.compares() == comparing);
    Ok((most.ok_or(EOPNOTSUPP)?, of.bytes()))
}

/// # Safety
/// `count` may be written.
unsafe fn valid(what: [c_int; 2], fetching: bool, comparing: bool, count: *mut usize) -> c_int {
    edge(|| {
        let (most, _) = most(what, fetching, comparing)?;
        // SAFETY: as promised.
        *unsafe { count.as_mut() }.ok_or(EINVAL)? = most;
        Ok(0)
    })
}

unsafe extern "C" fn writevalid(_ep: *mut FidEp, of: c_int, op: c_int, count: *mut usize) -> c_int {
    // SAFETY: promised by the program.
    unsafe { valid([of, op], false, false, count) }
}

unsafe extern "C" fn readwritevalid(
    _ep: *mut FidEp,
    of: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    // SAFETY: promised by the program.
    unsafe { valid([of, op], true, false, count) }
}

unsafe extern "C" fn compwritevalid(
    _ep: *mut FidEp,
    of: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    // SAFETY: promised by the program.
    unsafe { valid([of, op], true, true, count) }
}

/// `fi_query_atomic`.
pub unsafe extern "C" fn query(
    _domain: *mut FidDomain,
    of: c_int,
    op: c_int,
    attr: *mut AtomicAttr,
    flags: u64,
) -> c_int {
    edge(|| {
        let (fetching, comparing) = match flags {
            0 => (false, false),
            abi::FETCH_ATOMIC => (true, false),
            abi::COMPARE_ATOMIC => (true, true),
            _ => return Err(EBADFLAGS),
        };
        let (count, size) = most([of, op], fetching, comparing)?;
        // SAFETY: promised by the program.
        *unsafe { attr.as_mut() }.ok_or(EINVAL)? = AtomicAttr { count, size };
        Ok(0)
    })
}

pub static OPS: abi::OpsAtomic = abi::OpsAtomic {
    size: size_of::<abi::OpsAtomic>(),
    write,
    writev,
    writemsg,
    inject,
    readwrite,
    readwritev,
    readwritemsg,
    compwrite,
    compwritev,
    compwritemsg,
    writevalid,
    readwritevalid,
    compwritevalid,
};
