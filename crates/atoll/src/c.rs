//! The functions of `atoll.h`: each checks null, converts, calls one function of
//! the host port, and maps the result to a count or a negative errno. What
//! pointers that are not null must be, the header says.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Instant;

use portolan::Rights;
use portolan::c_edge::{EFAULT, EINVAL, EMSGSIZE, Errno, edge, slice, store, store_text};

use crate::errors;
use crate::messages::{Header, Wanted};
use crate::port::{self, Port, named, ours};

/// Of the message that was received last.
static LENGTH: AtomicU64 = AtomicU64::new(0);
static FROM: AtomicI32 = AtomicI32::new(-1);

#[unsafe(no_mangle)]
extern "C" fn atoll_init() -> i32 {
    edge(port::open)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn atoll_why(text: *mut c_char, room: usize) -> c_int {
    // SAFETY: promised by the caller.
    edge(|| Ok(unsafe { store_text(text, room, &port::why()) }))
}

#[unsafe(no_mangle)]
extern "C" fn atoll_size(id: i32) -> i32 {
    edge(|| i32::try_from(named(id)?.endpoint.size()).map_err(|_| EINVAL))
}

#[unsafe(no_mangle)]
extern "C" fn atoll_finish(id: i32, how: c_int) -> c_int {
    edge(|| port::finish(id, how))
}

#[unsafe(no_mangle)]
extern "C" fn atoll_strerror(error: c_int) -> *const c_char {
    errors::text(error).as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn atoll_clock() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let since = BEGAN.get_or_init(Instant::now).elapsed();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[unsafe(no_mangle)]
extern "C" fn atoll_connect(id: i32, dest: i32) -> c_int {
    edge(|| named(id)?.connect(dest))
}

#[unsafe(no_mangle)]
extern "C" fn atoll_disconnect(id: i32, dest: i32) -> c_int {
    edge(|| named(id)?.disconnect(dest))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn atoll_send(
    id: i32,
    dest: i32,
    tag: u32,
    data: *const c_void,
    length: usize,
) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let (port, data) = unsafe { (named(id)?, slice(data.cast(), length)?) };
        port.send(dest, tag, data)
    })
}

/// Memory of the caller's that a message is received in.
fn room(start: *mut c_void, bytes: usize) -> Result<(*mut u8, usize), Errno> {
    match bytes {
        0 => {}
        _ if start.is_null() => return Err(EFAULT),
        _ if bytes > isize::MAX as usize => return Err(EMSGSIZE),
        _ => {}
    }
    Ok((start.cast(), bytes))
}

/// What a receive gives.
///
/// # Safety
/// `to` is null or may be written.
unsafe fn received((header, whole): (Header, bool), to: *mut Header) -> Result<i64, Errno> {
    LENGTH.store(header.length, Ordering::Relaxed);
    FROM.store(header.from, Ordering::Relaxed);
    // SAFETY: see above.
    unsafe { store(to, header) };
    if whole {
        i64::try_from(header.length).map_err(|_| EMSGSIZE)
    } else {
        Err(EMSGSIZE)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn atoll_recv(
    id: i32,
    from: i32,
    tag: u32,
    buffer: *mut c_void,
    bytes: usize,
    to: *mut Header,
) -> i64 {
    edge(|| {
        let port = named(id)?;
        let wanted = Wanted::new(&port, from, tag)?;
        let (start, bytes) = room(buffer, bytes)?;
        // SAFETY: promised by the caller.
        unsafe { received(port.receive(wanted, start, bytes)?, to) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn atoll_probe(id: i32, from: i32, tag: u32) -> c_int {
    edge(|| {
        let port = named(id)?;
        let wanted = Wanted::new(&port, from, tag)?;
        port.probe(wanted)
    })
}

/// # Safety
/// `to` is null or may be written.
unsafe fn found(port: &Port, wanted: Wanted, to: *mut Header) -> Result<bool, Errno> {
    if to.is_null() {
        return Err(EFAULT);
    }
    let header = port.find(wanted)?;
    if let Some(header) = header {
        // SAFETY: see above.
        unsafe { store(to, header) };
    }
    Ok(header.is_some())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn atoll_read_header(id: i32, to: *mut Header) -> c_int {
    edge(|| {
        let port = named(id)?;
        // SAFETY: promised by the caller.
        unsafe { found(&port, Wanted::ALL, to) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn atoll_find_header(id: i32, from: i32, tag: u32, to: *mut Header) -> c_int {
    edge(|| {
        let port = named(id)?;
        let wanted = Wanted::new(&port, from, tag)?;
        // SAFETY: promised by the caller.
        unsafe { found(&port, wanted, to) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn atoll_rcv_desc(
    id: i32,
    descriptor: u64,
    buffer: *mut c_void,
    bytes: usize,
) -> i64 {
    edge(|| {
        let port = named(id)?;
        let (start, bytes) = room(buffer, bytes)?;
        // SAFETY: promised by the caller.
        unsafe {
            let got = port.receive_descriptor(descriptor, start, bytes)?;
            received(got, std::ptr::null_mut())
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn atoll_len() -> u64 {
    LENGTH.load(Ordering::Relaxed)
}

#[unsafe(no_mangle)]
extern "C" fn atoll_from() -> i32 {
    FROM.load(Ordering::Relaxed)
}

#[unsafe(no_mangle)]
extern "C" fn atoll_allow_rdma(id: i32, how: c_int) -> c_int {
    edge(|| {
        let port = named(id)?;
        let rights = match how {
            0 => Rights::None,
            1 => Rights::Get,
            2 => Rights::Put,
            3 => Rights::Both,
            _ => return Err(EINVAL),
        };
        port.allow(rights)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn atoll_register_memory(start: *mut c_void, length: usize) -> c_int {
    // SAFETY: promised by the caller.
    edge(|| unsafe { ours()?.register(start.cast(), length) })
}

#[unsafe(no_mangle)]
extern "C" fn atoll_deregister_memory(start: *mut c_void, length: usize) -> c_int {
    edge(|| ours()?.deregister(start.cast(), length))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn atoll_put(
    id: i32,
    dest: i32,
    here: *mut c_void,
    there: *mut c_void,
    length: usize,
) -> c_int {
    // SAFETY: promised by the caller.
    edge(|| unsafe { named(id)?.put(dest, here.cast(), there as u64, length) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn atoll_get(
    id: i32,
    src: i32,
    here: *mut c_void,
    there: *mut c_void,
    length: usize,
    _route_offset: u32,
    _route_length: u32,
) -> c_int {
    // SAFETY: promised by the caller.
    edge(|| unsafe { named(id)?.get(src, here.cast(), there as u64, length) })
}
