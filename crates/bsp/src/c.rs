//! The functions of `bsp.h`: each checks its arguments, and calls this process. The header
//! says what pointers must be. Sizes are `int` in the standard's functions, and `size_t` in
//! those that end in `_64`.

use std::ffi::{CStr, c_char, c_double, c_int, c_void};

use crate::ending::abort;
use crate::exchange::Wanted;
use crate::process::{self, peer, with};

/// Checks a number of bytes, or an offset.
#[inline]
fn size<T>(call: &str, what: &str, number: T) -> u64
where
    T: Copy + std::fmt::Display + TryInto<u64>,
{
    number
        .try_into()
        .unwrap_or_else(|_| negative(call, what, number))
}

/// Checks offset and size; the offset does not matter where the size is 0.
fn span(call: &str, at: c_int, count: c_int) -> (u64, u64) {
    match size(call, "the size", count) {
        0 => (0, 0),
        count => (size(call, "the offset", at), count),
    }
}

#[cold]
fn negative(call: &str, what: &str, number: impl std::fmt::Display) -> ! {
    abort(call, &format!("{what} is {number}: give 0 or more"))
}

/// Returns the bytes that a caller names.
///
/// # Safety
/// `count` bytes may be read at `start`.
unsafe fn bytes<'a>(call: &str, start: *const c_void, count: u64) -> &'a [u8] {
    if count == 0 {
        return &[];
    }
    if start.is_null() || isize::try_from(count).is_err() {
        abort(call, &format!("{count} bytes cannot be at {start:p}"));
    }
    // SAFETY: promised by the caller.
    unsafe { std::slice::from_raw_parts(start.cast(), count as usize) }
}

/// Returns the target of a caller's pointer; aborts if it is null.
///
/// # Safety
/// `pointer` is null, or a `T` may be read and written there.
unsafe fn there<'a, T>(call: &str, what: &str, pointer: *mut T) -> &'a mut T {
    // SAFETY: promised by the caller.
    let it = unsafe { pointer.as_mut() };
    it.unwrap_or_else(|| abort(call, &format!("the pointer to {what} is NULL")))
}

/// Checks a pointer to be written to.
fn room(call: &str, into: *mut c_void, count: usize) -> *mut u8 {
    if count > 0 && into.is_null() {
        abort(call, &format!("{count} bytes cannot be at NULL"));
    }
    into.cast()
}

#[unsafe(no_mangle)]
extern "C" fn bsp_init(spmd: Option<extern "C" fn()>, _argc: c_int, _argv: *mut *mut c_char) {
    if process::rank("bsp_init") == 0 {
        return;
    }
    match spmd {
        Some(spmd) => spmd(),
        None => abort("bsp_init", "it was given no function"),
    }
    std::process::exit(0);
}

#[unsafe(no_mangle)]
extern "C" fn bsp_begin(most: c_int) {
    process::begin(most.into());
}

#[unsafe(no_mangle)]
extern "C" fn bsp_end() {
    process::end();
}

/// # Safety
/// `text` is a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn bsp_abort_text(text: *const c_char) -> ! {
    if text.is_null() {
        abort("bsp_abort", "NULL");
    }
    // SAFETY: promised by the caller.
    let text = unsafe { CStr::from_ptr(text) };
    abort("bsp_abort", text.to_string_lossy().trim_end());
}

#[unsafe(no_mangle)]
extern "C" fn bsp_nprocs() -> c_int {
    process::nprocs() as c_int
}

#[unsafe(no_mangle)]
extern "C" fn bsp_pid() -> c_int {
    with("bsp_pid", |it| it.me) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn bsp_time() -> c_double {
    with("bsp_time", |it| it.seconds())
}

/// Returns seconds since the last call, or since bsp_begin.
#[unsafe(no_mangle)]
extern "C" fn bsp_dtime() -> f64 {
    with("bsp_dtime", |it| it.seconds_since())
}

/// Speed measured last for this number of processes by this link, Mflop/s.
#[unsafe(no_mangle)]
extern "C" fn bsp_s() -> f64 {
    with("bsp_s", |it| it.measured.mflop_s)
}

/// Operations that take as long as an empty superstep.
#[unsafe(no_mangle)]
extern "C" fn bsp_l() -> f64 {
    with("bsp_l", |it| it.measured.l())
}

/// Operations that take as long as a word of 8 bytes.
#[unsafe(no_mangle)]
extern "C" fn bsp_g() -> f64 {
    with("bsp_g", |it| it.measured.g())
}

#[unsafe(no_mangle)]
extern "C" fn bsp_sync() {
    with("bsp_sync", |it| it.sync("bsp_sync", false));
}

fn push_reg(start: *const c_void, bytes: u64) {
    const CALL: &str = "bsp_push_reg";
    if start.is_null() && bytes > 0 {
        abort(CALL, &format!("NULL has no {bytes} bytes: give 0 with it"));
    }
    if start.addr().checked_add(bytes as usize).is_none() {
        abort(CALL, &format!("{bytes} bytes cannot be at {start:p}"));
    }
    with(CALL, |it| it.push(start.addr(), bytes));
}

#[unsafe(no_mangle)]
extern "C" fn bsp_push_reg(start: *const c_void, bytes: c_int) {
    push_reg(start, size("bsp_push_reg", "the size", bytes));
}

#[unsafe(no_mangle)]
extern "C" fn bsp_push_reg_64(start: *const c_void, bytes: usize) {
    push_reg(start, bytes as u64);
}

#[unsafe(no_mangle)]
extern "C" fn bsp_pop_reg(start: *const c_void) {
    const CALL: &str = "bsp_pop_reg";
    if !with(CALL, |it| it.areas.pop(start.addr())) {
        abort(CALL, "the area is not registered");
    }
}

/// # Safety
/// A word may be read at `from`.
#[inline]
unsafe fn put_word(pid: u32, from: *const c_void, to: *mut c_void, at: u64) -> bool {
    // SAFETY: promised by the caller.
    let word = unsafe { from.cast::<[u8; 8]>().as_ref() };
    word.is_some_and(|word| with("bsp_put", |it| it.put_word(pid, word, to.addr(), at)))
}

/// # Safety
/// `count` bytes may be read at `from`; if `hp`, until the superstep ends.
#[inline(never)]
unsafe fn put<P>(
    call: &str,
    pid: P,
    from: *const c_void,
    to: *mut c_void,
    (at, count): (u64, u64),
    hp: bool,
) where
    P: Copy + std::fmt::Display + TryInto<u32>,
{
    if count == 0 {
        return;
    }
    with(call, |it| {
        let pid = peer(call, it, pid);
        // SAFETY: promised by the caller.
        let bytes = unsafe { bytes(call, from, count) };
        if hp {
            // SAFETY: as above.
            unsafe { it.hpput(call, pid, bytes, to.addr(), at) };
        } else {
            it.put(call, pid, bytes, to.addr(), at);
        }
    });
}

/// Returns the target of a get.
fn wanted(call: &str, into: *mut c_void, count: u64, hp: bool) -> Wanted {
    if into.is_null() || isize::try_from(count).is_err() {
        abort(call, &format!("{count} bytes cannot be at {into:p}"));
    }
    Wanted {
        into: into.cast(),
        bytes: count as usize,
        hp,
    }
}

/// # Safety
/// `count` bytes may be written at `into` until the superstep ends.
unsafe fn get<P>(
    call: &str,
    pid: P,
    from: *const c_void,
    at: u64,
    (into, count): (*mut c_void, u64),
    hp: bool,
) where
    P: Copy + std::fmt::Display + TryInto<u32>,
{
    if count == 0 {
        return;
    }
    let wanted = wanted(call, into, count, hp);
    with(call, |it| {
        let pid = peer(call, it, pid);
        it.get(call, pid, from.addr(), at, wanted);
    });
}

/// Gets at once (`mcbsp.h`).
///
/// # Safety
/// `count` bytes may be written at `into`.
#[unsafe(no_mangle)]
unsafe extern "C" fn bsp_direct_get(
    pid: u32,
    from: *const c_void,
    at: usize,
    into: *mut c_void,
    count: usize,
) {
    const CALL: &str = "bsp_direct_get";
    if count == 0 {
        return;
    }
    let wanted = wanted(CALL, into, count as u64, true);
    with(CALL, |it| {
        let pid = peer(CALL, it, pid);
        // SAFETY: promised by the caller.
        unsafe { it.direct_get(CALL, pid, (from.addr(), at as u64), &wanted) };
    });
}

macro_rules! accesses {
    ($($put:ident, $put_64:ident, $hp:literal, $get:ident, $get_64:ident;)*) => {$(
        /// # Safety
        /// As `bsp.h` says.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $put(
            pid: c_int,
            from: *const c_void,
            to: *mut c_void,
            at: c_int,
            count: c_int,
        ) {
            const CALL: &str = stringify!($put);
            // SAFETY: promised by the caller.
            if !$hp && count == 8 && at >= 0 && unsafe { put_word(pid as u32, from, to, at as u64) }
            {
                return;
            }
            let span = span(CALL, at, count);
            // SAFETY: promised by the caller.
            unsafe { put(CALL, pid, from, to, span, $hp) };
            // Prevents a tail call, as a jump leaves no frame of this function in a trace.
            std::hint::black_box(());
        }

        /// # Safety
        /// As `bsp.h` says.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $put_64(
            pid: u32,
            from: *const c_void,
            to: *mut c_void,
            at: usize,
            count: usize,
        ) {
            // SAFETY: promised by the caller.
            if !$hp && count == 8 && unsafe { put_word(pid, from, to, at as u64) } {
                return;
            }
            // SAFETY: promised by the caller.
            unsafe { put(stringify!($put), pid, from, to, (at as u64, count as u64), $hp) };
            // As above.
            std::hint::black_box(());
        }

        /// # Safety
        /// As `bsp.h` says.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $get(
            pid: c_int,
            from: *const c_void,
            at: c_int,
            into: *mut c_void,
            count: c_int,
        ) {
            const CALL: &str = stringify!($get);
            let (at, count) = span(CALL, at, count);
            // SAFETY: promised by the caller.
            unsafe { get(CALL, pid, from, at, (into, count), $hp) };
        }

        /// # Safety
        /// As `bsp.h` says.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $get_64(
            pid: u32,
            from: *const c_void,
            at: usize,
            into: *mut c_void,
            count: usize,
        ) {
            // SAFETY: promised by the caller.
            unsafe { get(stringify!($get), pid, from, at as u64, (into, count as u64), $hp) };
        }
    )*};
}

accesses! {
    bsp_put, bsp_put_64, false, bsp_get, bsp_get_64;
    bsp_hpput, bsp_hpput_64, true, bsp_hpget, bsp_hpget_64;
}

/// # Safety
/// `bytes` points to a number.
#[unsafe(no_mangle)]
unsafe extern "C" fn bsp_set_tagsize(bytes: *mut c_int) {
    const CALL: &str = "bsp_set_tagsize";
    // SAFETY: promised by the caller.
    let bytes = unsafe { there(CALL, "the size", bytes) };
    let wanted = size(CALL, "the size", *bytes);
    let before = with(CALL, |it| it.set_tag_bytes(wanted));
    *bytes = c_int::try_from(before).unwrap_or(c_int::MAX);
}

/// # Safety
/// `bytes` points to a number.
#[unsafe(no_mangle)]
unsafe extern "C" fn bsp_set_tagsize_64(bytes: *mut usize) {
    const CALL: &str = "bsp_set_tagsize";
    // SAFETY: promised by the caller.
    let bytes = unsafe { there(CALL, "the size", bytes) };
    *bytes = with(CALL, |it| it.set_tag_bytes(*bytes as u64)) as usize;
}

/// # Safety
/// A tag may be read at `tag`, and `count` bytes at `payload`.
unsafe fn send<P>(pid: P, tag: *const c_void, payload: *const c_void, count: u64)
where
    P: Copy + std::fmt::Display + TryInto<u32>,
{
    const CALL: &str = "bsp_send";
    with(CALL, |it| {
        let pid = peer(CALL, it, pid);
        // SAFETY: promised by the caller.
        let (tag, payload) = unsafe {
            (
                bytes(CALL, tag, it.tag_bytes()),
                bytes(CALL, payload, count),
            )
        };
        it.send(pid, tag, payload);
    });
}

/// # Safety
/// As `bsp.h` says.
#[unsafe(no_mangle)]
unsafe extern "C" fn bsp_send(
    pid: c_int,
    tag: *const c_void,
    payload: *const c_void,
    count: c_int,
) {
    // SAFETY: promised by the caller.
    unsafe { send(pid, tag, payload, size("bsp_send", "the size", count)) };
}

/// # Safety
/// As `bsp.h` says.
#[unsafe(no_mangle)]
unsafe extern "C" fn bsp_send_64(
    pid: u32,
    tag: *const c_void,
    payload: *const c_void,
    count: usize,
) {
    // SAFETY: promised by the caller.
    unsafe { send(pid, tag, payload, count as u64) };
}

/// Converts a number; aborts if it does not fit.
fn fitting<T: TryFrom<u64>>(call: &str, number: u64) -> T {
    let too_large = |_| abort(call, &format!("{number} does not fit: use {call}_64"));
    T::try_from(number).unwrap_or_else(too_large)
}

/// # Safety
/// `messages` and `bytes` may be written; `bytes` may be null.
unsafe fn qsize<M: TryFrom<u64>, B: TryFrom<u64>>(messages: *mut M, bytes: *mut B) {
    const CALL: &str = "bsp_qsize";
    let (count, all) = with(CALL, |it| it.queue.size());
    // SAFETY: promised by the caller.
    unsafe {
        *there(CALL, "the number of messages", messages) = fitting(CALL, count);
        if let Some(bytes) = bytes.as_mut() {
            *bytes = fitting(CALL, all);
        }
    }
}

/// # Safety
/// As `bsp.h` says.
#[unsafe(no_mangle)]
unsafe extern "C" fn bsp_qsize(messages: *mut c_int, bytes: *mut c_int) {
    // SAFETY: promised by the caller.
    unsafe { qsize(messages, bytes) };
}

/// # Safety
/// As `bsp.h` says.
#[unsafe(no_mangle)]
unsafe extern "C" fn bsp_qsize_64(messages: *mut u32, bytes: *mut usize) {
    // SAFETY: promised by the caller.
    unsafe { qsize(messages, bytes) };
}

/// # Safety
/// A tag may be written at `tag`; returns the payload's length.
unsafe fn get_tag(tag: *mut c_void) -> Option<u64> {
    with("bsp_get_tag", |it| {
        let (its, payload) = it.queue.peek()?;
        let into = room("bsp_get_tag", tag, its.len());
        // SAFETY: promised by the caller.
        unsafe { its.as_ptr().copy_to(into, its.len()) };
        Some(payload.len() as u64)
    })
}

/// # Safety
/// As `bsp.h` says.
#[unsafe(no_mangle)]
unsafe extern "C" fn bsp_get_tag(status: *mut c_int, tag: *mut c_void) {
    const CALL: &str = "bsp_get_tag";
    // SAFETY: promised by the caller.
    let (status, bytes) = unsafe { (there(CALL, "the status", status), get_tag(tag)) };
    *status = bytes.map_or(-1, |bytes| fitting(CALL, bytes));
}

/// # Safety
/// As `bsp.h` says.
#[unsafe(no_mangle)]
unsafe extern "C" fn bsp_get_tag_64(status: *mut usize, tag: *mut c_void) {
    const CALL: &str = "bsp_get_tag";
    // SAFETY: promised by the caller.
    let (status, bytes) = unsafe { (there(CALL, "the status", status), get_tag(tag)) };
    *status = bytes.map_or(usize::MAX, |bytes| bytes as usize);
}

/// # Safety
/// `most` bytes may be written at `into`.
unsafe fn take(into: *mut c_void, most: u64) {
    const CALL: &str = "bsp_move";
    with(CALL, |it| {
        let Some((_, payload)) = it.queue.peek() else {
            abort(CALL, "there is no message left");
        };
        let count = payload
            .len()
            .min(usize::try_from(most).unwrap_or(usize::MAX));
        let into = room(CALL, into, count);
        // SAFETY: promised by the caller.
        unsafe { payload.as_ptr().copy_to(into, count) };
        it.queue.advance();
    });
}

/// # Safety
/// As `bsp.h` says.
#[unsafe(no_mangle)]
unsafe extern "C" fn bsp_move(into: *mut c_void, room: c_int) {
    // SAFETY: promised by the caller.
    unsafe { take(into, size("bsp_move", "the room", room)) };
}

/// # Safety
/// As `bsp.h` says.
#[unsafe(no_mangle)]
unsafe extern "C" fn bsp_move_64(into: *mut c_void, room: usize) {
    // SAFETY: promised by the caller.
    unsafe { take(into, room as u64) };
}

/// # Safety
/// Pointers may be written at `tag` and `payload`; returns the payload's length.
unsafe fn hpmove(tag: *mut *mut c_void, payload: *mut *mut c_void) -> Option<u64> {
    const CALL: &str = "bsp_hpmove";
    // SAFETY: promised by the caller.
    let (tag, payload) = unsafe {
        (
            there(CALL, "the tag", tag),
            there(CALL, "the payload", payload),
        )
    };
    with(CALL, |it| {
        let (its, bytes) = it.queue.peek()?;
        let length = bytes.len() as u64;
        // Tag and payload stay until the next sync.
        *tag = its.as_ptr().cast_mut().cast();
        *payload = bytes.as_ptr().cast_mut().cast();
        it.queue.advance();
        Some(length)
    })
}

/// # Safety
/// As `bsp.h` says.
#[unsafe(no_mangle)]
unsafe extern "C" fn bsp_hpmove(tag: *mut *mut c_void, payload: *mut *mut c_void) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { hpmove(tag, payload) }.map_or(-1, |bytes| fitting("bsp_hpmove", bytes))
}

/// # Safety
/// As `bsp.h` says.
#[unsafe(no_mangle)]
unsafe extern "C" fn bsp_hpmove_64(tag: *mut *mut c_void, payload: *mut *mut c_void) -> usize {
    // SAFETY: promised by the caller.
    unsafe { hpmove(tag, payload) }.map_or(usize::MAX, |bytes| bytes as usize)
}
