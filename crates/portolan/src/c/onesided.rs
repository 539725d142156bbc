//! One-sided memory: regions, and accesses to those of other ranks.

use std::ffi::{c_int, c_void};

use super::error::{EACCES, EFAULT, EINVAL, ENOENT, ENXIO, ERANGE, Errno};
use super::matched::{counter, number, one, queue};
use super::pieces::{Piece, gather, pieces, scatter};
use super::types::{
    CACHED, CAccessOptions, CRegionOptions, LOCAL, MAY_GET, MAY_PUT, SIGNAL, WITH_KEY, read,
};
use super::{edge, endpoint};
use crate::{
    Endpoint, Notify, OpId, PORTS_RESERVED, Place, PutEnd, PutOptions, RegionId, RemoteKey, Rights,
    SendError, Signal,
};

/// A [`RemoteKey`] as C has it.
#[repr(C)]
#[derive(Clone, Copy)]
struct CRemoteKey([u8; 16]);

/// Which region it is to be.
enum Which {
    /// One of its own, perhaps with a key of the program's.
    New(Option<u64>),
    /// One that is found again.
    Cached,
}

/// # Safety
/// `options` is null or what the header says.
unsafe fn region_options(options: *const CRegionOptions) -> Result<(Which, Rights), Errno> {
    if options.is_null() {
        return Ok((Which::New(None), Rights::None));
    }
    // SAFETY: see above.
    let c = unsafe { read(options) }?;
    let which = match c.flags {
        0 => Which::New(None),
        WITH_KEY => Which::New(Some(c.key)),
        CACHED => Which::Cached,
        _ => return Err(EINVAL),
    };
    if c.reserved != 0 || (c.flags != WITH_KEY && c.key != 0) {
        return Err(EINVAL);
    }
    let rights = match c.rights {
        0 => Rights::None,
        MAY_GET => Rights::Get,
        MAY_PUT => Rights::Put,
        both if both == MAY_GET | MAY_PUT => Rights::Both,
        _ => return Err(EINVAL),
    };
    Ok((which, rights))
}

/// # Safety
/// `options` is null or what the header says.
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
        notify: Notify {
            context: c.context,
            queue: (c.queue != 0).then(|| queue(c.queue)),
            counter: (c.counter != 0).then(|| counter(c.counter)),
        },
    })
}

/// Options of an access other than a put: only how its end is told.
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

/// # Safety
/// As the header says of `portolan_registerv`.
unsafe fn register(
    handle: *mut Endpoint,
    memory: Result<&[Piece], Errno>,
    o: *const CRegionOptions,
    region: *mut u64,
) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let (region, endpoint) = unsafe { (number(region)?, endpoint(handle)?) };
        // SAFETY: promised by the caller.
        let (which, rights) = unsafe { region_options(o) }?;
        let RegionId(id) = match (which, memory?) {
            (Which::New(key), pieces) => {
                // SAFETY: the caller lends the memory until it was deregistered.
                let memory = unsafe { scatter(pieces) };
                let registered = endpoint.register(memory, key, rights)?;
                registered.map_err(|(e, _)| e)?
            }
            (Which::Cached, [Piece { start, bytes }]) => {
                // SAFETY: the caller lends the memory until it was forgotten.
                unsafe { endpoint.register_cached(start.cast(), *bytes, rights) }??
            }
            (Which::Cached, _) => return Err(EINVAL),
        };
        *region = id;
        Ok(0)
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
    unsafe { register(handle, pieces(&raw const memory, 1), o, region) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_registerv(
    handle: *mut Endpoint,
    memory: *const Piece,
    count: usize,
    o: *const CRegionOptions,
    region: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { register(handle, pieces(memory, count), o, region) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_region_key(
    handle: *mut Endpoint,
    region: u64,
    to: *mut CRemoteKey,
) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let endpoint = unsafe { endpoint(handle) }?;
        if to.is_null() {
            return Err(EFAULT);
        }
        let key = endpoint.remote_key(RegionId(region))?.ok_or(ENOENT)?;
        // SAFETY: not null, so it may be written.
        unsafe { to.write(CRemoteKey(key.to_bytes())) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_remote_key_any(number: u64, to: *mut CRemoteKey) {
    // SAFETY: promised by the caller.
    unsafe { super::store(to, CRemoteKey(RemoteKey::any(number).to_bytes())) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_region_read(
    handle: *mut Endpoint,
    region: u64,
    offset: u64,
    to: *mut c_void,
    length: usize,
) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let endpoint = unsafe { endpoint(handle) }?;
        let checked = one(to, length);
        // SAFETY: the piece is here.
        unsafe { pieces(&raw const checked, 1) }?;
        let into = match length {
            0 => &mut [],
            // SAFETY: checked; the caller has the memory for this call.
            _ => unsafe { std::slice::from_raw_parts_mut(to.cast(), length) },
        };
        let region = RegionId(region);
        match endpoint.read_region(region, offset, into)? {
            Some(()) => Ok(0),
            None if endpoint.remote_key(region)?.is_none() => Err(ENOENT),
            None => Err(ERANGE),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_deregister(handle: *mut Endpoint, region: u64) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        unsafe { endpoint(handle) }?.deregister(RegionId(region))??;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_forget_memory(
    handle: *mut Endpoint,
    start: *const c_void,
    length: usize,
) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        unsafe { endpoint(handle) }?.forget_memory(start.cast(), length)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_forbid_onesided(handle: *mut Endpoint) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        unsafe { endpoint(handle) }?.forbid_one_sided()?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_register_again(
    handle: *mut Endpoint,
    of: u64,
    offset: u64,
    length: usize,
    o: *const CRegionOptions,
    region: *mut u64,
) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let (region, endpoint) = unsafe { (number(region)?, endpoint(handle)?) };
        // SAFETY: promised by the caller.
        let (Which::New(key), rights) = unsafe { region_options(o) }? else {
            return Err(EINVAL);
        };
        let again = endpoint.register_again(RegionId(of), offset, length as u64, key, rights)?;
        *region = again?.0;
        Ok(0)
    })
}

/// Where an access goes, as C says it.
#[derive(Clone, Copy)]
struct To {
    handle: *mut Endpoint,
    rank: u32,
    key: *const CRemoteKey,
    offset: u64,
}

/// # Safety
/// As the header says of `portolan_post_putv`.
unsafe fn post_put(
    to: To,
    from: Result<&[Piece], Errno>,
    o: *const CAccessOptions,
    op: *mut u64,
) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let (op, endpoint, o) = unsafe { (number(op)?, endpoint(to.handle)?, put_options(o)?) };
        // SAFETY: promised by the caller.
        let place = unsafe { place(to.key, to.offset) }?;
        // SAFETY: the caller leaves the memory alone until the operation has
        // ended.
        let from = unsafe { gather(from?) };
        let begun = endpoint.post_put(to.rank, place, from, &o);
        *op = begun.map_err(|(e, _)| e)?.0;
        Ok(0)
    })
}

/// # Safety
/// As the header says of `portolan_post_getv`.
unsafe fn post_get(
    from: To,
    into: Result<&[Piece], Errno>,
    o: *const CAccessOptions,
    op: *mut u64,
) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let (op, endpoint, notify) = unsafe { (number(op)?, endpoint(from.handle)?, notify(o)?) };
        // SAFETY: promised by the caller.
        let place = unsafe { place(from.key, from.offset) }?;
        // SAFETY: as for puts.
        let into = unsafe { scatter(into?) };
        let begun = endpoint.post_get(from.rank, place, into, notify);
        *op = begun.map_err(|(e, _)| e)?.0;
        Ok(0)
    })
}

/// An access without memory here.
///
/// # Safety
/// `o` and `op` are as the header says.
unsafe fn post(
    handle: *mut Endpoint,
    o: *const CAccessOptions,
    op: *mut u64,
    begin: impl FnOnce(&Endpoint, Notify) -> Result<Result<OpId, SendError>, Errno>,
) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let (op, endpoint, notify) = unsafe { (number(op)?, endpoint(handle)?, notify(o)?) };
        *op = begin(endpoint, notify)??.0;
        Ok(0)
    })
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
    let (to, from) = (
        To {
            handle,
            rank,
            key,
            offset,
        },
        one(data, length),
    );
    // SAFETY: promised by the caller; the piece is here.
    unsafe { post_put(to, pieces(&raw const from, 1), o, op) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_post_putv(
    handle: *mut Endpoint,
    rank: u32,
    key: *const CRemoteKey,
    offset: u64,
    from: *const Piece,
    count: usize,
    o: *const CAccessOptions,
    op: *mut u64,
) -> c_int {
    let to = To {
        handle,
        rank,
        key,
        offset,
    };
    // SAFETY: promised by the caller.
    unsafe { post_put(to, pieces(from, count), o, op) }
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
    let (from, into) = (
        To {
            handle,
            rank,
            key,
            offset,
        },
        one(start, length),
    );
    // SAFETY: promised by the caller; the piece is here.
    unsafe { post_get(from, pieces(&raw const into, 1), o, op) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_post_getv(
    handle: *mut Endpoint,
    rank: u32,
    key: *const CRemoteKey,
    offset: u64,
    into: *const Piece,
    count: usize,
    o: *const CAccessOptions,
    op: *mut u64,
) -> c_int {
    let from = To {
        handle,
        rank,
        key,
        offset,
    };
    // SAFETY: promised by the caller.
    unsafe { post_get(from, pieces(into, count), o, op) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_post_fetch_add(
    handle: *mut Endpoint,
    rank: u32,
    key: *const CRemoteKey,
    offset: u64,
    add: u64,
    o: *const CAccessOptions,
    op: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        post(handle, o, op, |endpoint, notify| {
            Ok(endpoint.post_fetch_add(rank, place(key, offset)?, add, notify))
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_post_compare_swap(
    handle: *mut Endpoint,
    rank: u32,
    key: *const CRemoteKey,
    offset: u64,
    expected: u64,
    desired: u64,
    o: *const CAccessOptions,
    op: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        post(handle, o, op, |endpoint, notify| {
            let at = place(key, offset)?;
            Ok(endpoint.post_compare_swap(rank, at, [expected, desired], notify))
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_post_flush(
    handle: *mut Endpoint,
    rank: u32,
    o: *const CAccessOptions,
    op: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        post(handle, o, op, |endpoint, notify| {
            Ok(endpoint.post_flush(rank, notify))
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_fence(handle: *mut Endpoint, rank: u32) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let endpoint = unsafe { endpoint(handle) }?;
        if rank >= endpoint.size() {
            return Err(ENXIO);
        }
        endpoint.fence(rank)?;
        Ok(0)
    })
}
