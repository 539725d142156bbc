//! One-sided memory: regions, and accesses to those of other ranks.

use std::ffi::{c_int, c_void};

use super::error::{EACCES, EFAULT, EINVAL, ENOENT, ERANGE, Errno};
use super::matched::{check_rank, one, told};
use super::pieces::{Piece, gather, pieces, scatter};
use super::types::{
    ADDRESS_SPACE, CACHED, CAccessOptions, CAtomic, CRegionOptions, LOCAL, MAY_GET, MAY_PUT,
    REGION_ANY, REGION_SALT, SIGNAL, WITH_KEY, read,
};
use super::{Slot, endpoint};
use crate::{
    Admission, Atomic, AtomicOp, AtomicType, Endpoint, Notify, PORTS_RESERVED, Place, PutEnd,
    PutOptions, RegionId, RemoteKey, Rights, Salt, Signal,
};

/// A [`RemoteKey`] in C.
#[repr(C)]
#[derive(Clone, Copy)]
struct CRemoteKey([u8; 16]);

/// Kind of the region to register.
enum Which {
    /// A new region, perhaps with a key of the program's.
    New(Option<u64>),
    /// A cached region, which is found again.
    Cached,
    /// The whole address space, perhaps with a key of the program's.
    AddressSpace(Option<u64>),
}

/// # Safety
/// `options` is null or as the header says.
unsafe fn region_options(options: *const CRegionOptions) -> Result<(Which, Admission), Errno> {
    if options.is_null() {
        return Ok((Which::New(None), Rights::None.into()));
    }
    // SAFETY: see above.
    let c = unsafe { read(options) }?;
    let salt = match c.flags & (REGION_SALT | REGION_ANY) {
        0 => Salt::Default,
        REGION_SALT => Salt::Demanded,
        REGION_ANY => Salt::Any,
        _ => return Err(EINVAL),
    };
    let which = match c.flags & !(REGION_SALT | REGION_ANY) {
        0 => Which::New(None),
        WITH_KEY => Which::New(Some(c.key)),
        CACHED => Which::Cached,
        ADDRESS_SPACE => Which::AddressSpace(None),
        both if both == ADDRESS_SPACE | WITH_KEY => Which::AddressSpace(Some(c.key)),
        _ => return Err(EINVAL),
    };
    if c.reserved != 0 || (c.flags & WITH_KEY == 0 && c.key != 0) {
        return Err(EINVAL);
    }
    let rights = match c.rights {
        0 => Rights::None,
        MAY_GET => Rights::Get,
        MAY_PUT => Rights::Put,
        both if both == MAY_GET | MAY_PUT => Rights::Both,
        _ => return Err(EINVAL),
    };
    Ok((which, rights.with(salt)))
}

/// # Safety
/// `options` is null or as the header says.
unsafe fn put_options(options: *const CAccessOptions) -> Result<PutOptions, Errno> {
    if options.is_null() {
        return Ok(PutOptions::default());
    }
    // SAFETY: see above.
    let c = unsafe { read(options) }?;
    let signal = (c.flags & SIGNAL != 0).then_some(Signal {
        port: c.port,
        word: c.word,
    });
    if c.flags & !(LOCAL | SIGNAL) != 0
        || c.reserved != 0
        || (signal.is_none() && (c.port != 0 || c.word != 0))
    {
        return Err(EINVAL);
    }
    if c.port >= u32::from(PORTS_RESERVED) {
        return Err(EACCES);
    }
    Ok(PutOptions {
        end: if c.flags & LOCAL != 0 {
            PutEnd::Local
        } else {
            PutEnd::Visible
        },
        signal,
        notify: told(c.context, c.queue, c.counter),
    })
}

/// Options of an access other than a put: only how its completion is reported.
///
/// # Safety
/// As [`put_options`].
unsafe fn notify(options: *const CAccessOptions) -> Result<Notify, Errno> {
    // SAFETY: see above.
    let o = unsafe { put_options(options) }?;
    if o.end != PutEnd::Visible || o.signal.is_some() {
        return Err(EINVAL);
    }
    Ok(o.notify)
}

/// The operation and the element type of these numbers.
fn atomic_of(operation: u32, element: u32) -> Option<(AtomicOp, AtomicType)> {
    let op = AtomicOp::of(u8::try_from(operation).ok()?)?;
    Some((op, AtomicType::of(u8::try_from(element).ok()?)?))
}

/// # Safety
/// `from` is null or as the header says.
unsafe fn atomic<'a>(from: *const CAtomic, fetching: bool) -> Result<Atomic<'a>, Errno> {
    // SAFETY: see above.
    let c = unsafe { read(from) }?;
    let (op, of) = atomic_of(c.operation, c.element).ok_or(EINVAL)?;
    let most = op.elements_max(of, fetching).ok_or(EINVAL)?;
    let (reads, compares) = (op == AtomicOp::Read, op.compares());
    if c.reserved != 0
        || !(1..=most).contains(&c.count)
        || (reads && !c.operands.is_null())
        || (!compares && !c.compare.is_null())
    {
        return Err(EINVAL);
    }
    let values = |start: *const c_void, is_any: bool| match start {
        _ if !is_any => Ok::<&[u8], Errno>(&[]),
        start if start.is_null() => Err(EFAULT),
        // SAFETY: the caller has values for all elements there, for this call.
        start => Ok(unsafe { std::slice::from_raw_parts(start.cast(), c.count * of.bytes()) }),
    };
    Ok(Atomic {
        op,
        of,
        count: c.count,
        operands: values(c.operands, !reads)?,
        compare: values(c.compare, compares)?,
    })
}

/// # Safety
/// `key` is null or may be read.
unsafe fn place(key: *const CRemoteKey, offset: u64) -> Result<Place, Errno> {
    // SAFETY: see above.
    let CRemoteKey(bytes) = *unsafe { key.as_ref() }.ok_or(EFAULT)?;
    Ok(Place {
        key: RemoteKey::from_bytes(bytes),
        offset,
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_register(
    handle: *mut Endpoint,
    start: *mut c_void,
    length: usize,
    o: *const CRegionOptions,
    region: *mut u64,
) -> c_int {
    let memory = one(start, length);
    // SAFETY: promised by the caller; the piece is here.
    unsafe { portolan_registerv(handle, &raw const memory, 1, o, region) }
}

interface! {
    fn portolan_registerv(
        handle: *mut Endpoint,
        memory: *const Piece,
        count: usize,
        o: *const CRegionOptions,
        region: *mut u64,
    ) -> c_int {
        region = Slot::begun(region, 0), endpoint = endpoint(handle),
        (which, admission) = region_options(o), pieces = pieces(memory, count),
        memory = scatter(memory, count);
        let RegionId(id) = match (which, pieces) {
            (Which::New(key), _) => {
                (endpoint.register(memory, key, admission)).map_err(|(e, _)| e)?
            }
            (Which::Cached, [Piece { start, bytes }]) => {
                // SAFETY: the caller lends the memory until `portolan_forget_memory`.
                unsafe { endpoint.register_cached(start.cast(), *bytes, admission) }?
            }
            (Which::AddressSpace(key), [Piece { start, bytes: 0 }]) if start.is_null() => {
                // SAFETY: the caller permits peers with the key to access its memory.
                unsafe { endpoint.register_address_space(key, admission) }?
            }
            (Which::Cached | Which::AddressSpace(_), _) => return Err(EINVAL),
        };
        region.store(id);
    }

    fn portolan_region_key(
        handle: *mut Endpoint,
        region: u64,
        to: *mut CRemoteKey,
    ) -> c_int {
        endpoint = endpoint(handle), to = Slot::required(to);
        let key = endpoint.remote_key(RegionId(region))?.ok_or(ENOENT)?;
        to.store(CRemoteKey(key.to_bytes()));
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_remote_key_any(number: u64, to: *mut CRemoteKey) {
    // SAFETY: promised by the caller.
    unsafe { super::store(to, CRemoteKey(RemoteKey::any(number).to_bytes())) };
}

interface! {
    fn portolan_region_read(
        handle: *mut Endpoint,
        region: u64,
        offset: u64,
        to: *mut c_void,
        length: usize,
    ) -> c_int {
        endpoint = endpoint(handle), _ = pieces(&one(to, length), 1);
        let into = match length {
            0 => &mut [],
            // SAFETY: checked; the caller has the memory for this call.
            _ => unsafe { std::slice::from_raw_parts_mut(to.cast(), length) },
        };
        let region = RegionId(region);
        match endpoint.read_region(region, offset, into)? {
            Some(()) => {}
            None if endpoint.remote_key(region)?.is_none() => return Err(ENOENT),
            None => return Err(ERANGE),
        }
    }

    fn portolan_deregister(handle: *mut Endpoint, region: u64) -> c_int {
        endpoint = endpoint(handle); endpoint.deregister(RegionId(region))?;
    }

    fn portolan_forget_memory(
        handle: *mut Endpoint,
        start: *const c_void,
        length: usize,
    ) -> c_int {
        endpoint = endpoint(handle); endpoint.forget_memory(start.cast(), length)?;
    }

    fn portolan_forbid_onesided(handle: *mut Endpoint) -> c_int {
        endpoint = endpoint(handle); endpoint.forbid_one_sided()?;
    }

    fn portolan_register_again(
        handle: *mut Endpoint,
        of: u64,
        offset: u64,
        length: usize,
        o: *const CRegionOptions,
        region: *mut u64,
    ) -> c_int {
        region = Slot::begun(region, 0), endpoint = endpoint(handle),
        (which, admission) = region_options(o);
        let Which::New(key) = which else {
            return Err(EINVAL);
        };
        let length = length as u64;
        let again = endpoint.register_again(RegionId(of), offset, length, key, admission)?;
        region.store(again.0);
    }
}

#[unsafe(no_mangle)]
extern "C" fn portolan_atomic_elements_max(operation: u32, element: u32, fetching: c_int) -> c_int {
    let most =
        atomic_of(operation, element).and_then(|(op, of)| op.elements_max(of, fetching != 0));
    most.map_or(-EINVAL.0, |most| most as c_int)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_post_put(
    handle: *mut Endpoint,
    rank: u32,
    key: *const CRemoteKey,
    offset: u64,
    data: *const c_void,
    length: usize,
    o: *const CAccessOptions,
    op: *mut u64,
) -> c_int {
    let from = one(data, length);
    // SAFETY: promised by the caller; the piece is here.
    unsafe { portolan_post_putv(handle, rank, key, offset, &raw const from, 1, o, op) }
}

interface! {
    fn portolan_post_putv(
        handle: *mut Endpoint,
        rank: u32,
        key: *const CRemoteKey,
        offset: u64,
        from: *const Piece,
        count: usize,
        o: *const CAccessOptions,
        op: *mut u64,
    ) -> c_int {
        op = Slot::begun(op, 0), endpoint = endpoint(handle), o = put_options(o),
        place = place(key, offset), from = gather(from, count);
        let begun = endpoint.post_put(rank, place, from, &o);
        op.store(begun.map_err(|(e, _)| e)?.0);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_post_get(
    handle: *mut Endpoint,
    rank: u32,
    key: *const CRemoteKey,
    offset: u64,
    start: *mut c_void,
    length: usize,
    o: *const CAccessOptions,
    op: *mut u64,
) -> c_int {
    let into = one(start, length);
    // SAFETY: promised by the caller; the piece is here.
    unsafe { portolan_post_getv(handle, rank, key, offset, &raw const into, 1, o, op) }
}

interface! {
    fn portolan_post_getv(
        handle: *mut Endpoint,
        rank: u32,
        key: *const CRemoteKey,
        offset: u64,
        into: *const Piece,
        count: usize,
        o: *const CAccessOptions,
        op: *mut u64,
    ) -> c_int {
        op = Slot::begun(op, 0), endpoint = endpoint(handle), notify = notify(o),
        place = place(key, offset), into = scatter(into, count);
        let begun = endpoint.post_get(rank, place, into, notify);
        op.store(begun.map_err(|(e, _)| e)?.0);
    }

    fn portolan_post_atomic(
        handle: *mut Endpoint,
        rank: u32,
        key: *const CRemoteKey,
        offset: u64,
        what: *const CAtomic,
        found: *mut c_void,
        o: *const CAccessOptions,
        op: *mut u64,
    ) -> c_int {
        op = Slot::begun(op, 0), endpoint = endpoint(handle), notify = notify(o),
        at = place(key, offset), what = atomic(what, !found.is_null()),
        into = scatter(&one(found, what.count * what.of.bytes()), usize::from(!found.is_null()));
        let begun = if found.is_null() {
            endpoint.post_atomic(rank, at, &what, notify)?
        } else {
            let begun = endpoint.post_fetch_atomic(rank, at, &what, into, notify);
            begun.map_err(|(e, _)| e)?
        };
        op.store(begun.0);
    }

    fn portolan_post_fetch_add(
        handle: *mut Endpoint,
        rank: u32,
        key: *const CRemoteKey,
        offset: u64,
        add: u64,
        o: *const CAccessOptions,
        op: *mut u64,
    ) -> c_int {
        op = Slot::begun(op, 0), endpoint = endpoint(handle), notify = notify(o),
        at = place(key, offset);
        op.store(endpoint.post_fetch_add(rank, at, add, notify)?.0)
    }

    fn portolan_post_compare_swap(
        handle: *mut Endpoint,
        rank: u32,
        key: *const CRemoteKey,
        offset: u64,
        expected: u64,
        desired: u64,
        o: *const CAccessOptions,
        op: *mut u64,
    ) -> c_int {
        op = Slot::begun(op, 0), endpoint = endpoint(handle), notify = notify(o),
        at = place(key, offset);
        let begun = endpoint.post_compare_swap(rank, at, [expected, desired], notify);
        op.store(begun?.0);
    }

    fn portolan_post_flush(
        handle: *mut Endpoint,
        rank: u32,
        o: *const CAccessOptions,
        op: *mut u64,
    ) -> c_int {
        op = Slot::begun(op, 0), endpoint = endpoint(handle), notify = notify(o);
        op.store(endpoint.post_flush(rank, notify)?.0)
    }

    fn portolan_fence(handle: *mut Endpoint, rank: u32) -> c_int {
        endpoint = endpoint(handle), () = check_rank(endpoint, rank); endpoint.fence(rank)?;
    }
}
