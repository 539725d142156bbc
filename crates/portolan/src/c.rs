//! The C interface, as the headers in `include` document it.
//!
//! Every function checks null, converts, calls one safe function of the Rust
//! interface, and maps the result to a count or a negative errno; panics end
//! here: see `interface!`. Whether a pointer that is not null may be used is the C
//! program's promise: the header says what each must point to, and for how long.

/// Functions of the interface: `fn NAME(ARGUMENTS) -> TYPE { NAME = CONVERSION, ...; BODY }`.
/// A conversion checks what can be checked of a pointer, by an unsafe call; the next
/// one may use its result. In the body `?` returns any error of the library; the body's
/// value is an [`Answer`].
macro_rules! interface {
    ($(
        fn $function:ident($($argument:ident: $type:ty),* $(,)?) -> $answer:ty {
            $($name:pat_param = $conversion:expr),+; $($body:tt)+
        }
    )+) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $function($($argument: $type),*) -> $answer {
            $crate::c::edge(|| {
                $(
                    #[allow(unused_unsafe, clippy::macro_metavars_in_unsafe)]
                    // SAFETY: the caller promises that pointers are as the header says.
                    let $name = unsafe { $conversion }?;
                )+
                Ok({ $($body)+ })
            })
        }
    )+};
}

mod context;
pub mod error;
mod group;
mod matched;
mod onesided;
mod open;
mod peers;
pub mod pieces;
mod ports;
mod progress;
mod queues;
mod send;
mod types;

use std::any::Any;
use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::Endpoint;
use error::{EFAULT, EIO, EMSGSIZE, Errno};
pub use matched::failure;

/// Conversion of a call's result to its type in C.
pub trait Answer<T> {
    /// Converts the result.
    fn answer(self) -> T;
}

impl<T> Answer<T> for T {
    #[inline(always)]
    fn answer(self) -> T {
        self
    }
}

macro_rules! answers {
    ($($from:ty => $to:ty: $answer:expr;)*) => {$(
        impl Answer<$to> for $from {
            #[inline(always)]
            fn answer(self) -> $to {
                let answer: fn(Self) -> $to = $answer;
                answer(self)
            }
        }
    )*};
}

answers! {
    () => c_int: |()| 0;
    bool => c_int: c_int::from;
    u32 => i64: i64::from;
    u64 => i64: |count| i64::try_from(count).unwrap_or(i64::MAX);
    usize => i64: |count| i64::try_from(count).unwrap_or(i64::MAX);
}

/// Runs one call; a panic is a bug of the library and must not reach C. A negative
/// result is an errno value.
#[inline(always)]
pub fn edge<T: From<i32>, A: Answer<T>>(call: impl FnOnce() -> Result<A, Errno>) -> T {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => value.answer(),
        Ok(Err(errno)) => T::from(-errno.0),
        Err(panic) => T::from(-panicked(panic).0),
    }
}

/// The error for a panic, which the panic hook has reported.
#[cold]
fn panicked(panic: Box<dyn Any + Send>) -> Errno {
    // The payload may panic once more when dropped.
    std::mem::forget(panic);
    EIO
}

/// # Safety
/// `endpoint` is null or a handle from [`open::portolan_open`] that is not closed.
#[inline(always)]
unsafe fn endpoint<'a>(endpoint: *const Endpoint) -> Result<&'a Endpoint, Errno> {
    // SAFETY: see above.
    unsafe { endpoint.as_ref() }.ok_or(EFAULT)
}

/// A slice of memory that the program lends for a call.
///
/// # Errors
/// `EFAULT`: `start` is null. `EMSGSIZE`: no object is that long.
///
/// # Safety
/// `start` is null or readable for `count` items, and not written, for `'a`.
#[inline(always)]
pub unsafe fn slice<'a, T>(start: *const T, count: usize) -> Result<&'a [T], Errno> {
    if count == 0 {
        return Ok(&[]);
    }
    if start.is_null() {
        return Err(EFAULT);
    }
    if count > isize::MAX as usize / size_of::<T>() {
        return Err(EMSGSIZE);
    }
    // SAFETY: see above; the length is one that an object can have.
    Ok(unsafe { std::slice::from_raw_parts(start, count) })
}

/// Stores a result at `place`, unless that is null.
///
/// # Safety
/// `place` is null or may be written.
pub unsafe fn store<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: see above.
        unsafe { place.write(value) };
    }
}

/// The place where a call stores a result. Not a reference, since a program may name
/// one place twice.
struct Slot<T>(*mut T);

impl<T> Slot<T> {
    /// A slot that may be null: then results are dropped.
    ///
    /// # Safety
    /// `place` is null or may be written for as long as the slot is used.
    unsafe fn optional(place: *mut T) -> Result<Self, Errno> {
        Ok(Self(place))
    }

    /// # Safety
    /// As [`Slot::optional`].
    unsafe fn required(place: *mut T) -> Result<Self, Errno> {
        if place.is_null() {
            Err(EFAULT)
        } else {
            Ok(Self(place))
        }
    }

    /// A required slot that holds `empty` until there is a result.
    ///
    /// # Safety
    /// As [`Slot::optional`].
    unsafe fn begun(place: *mut T, empty: T) -> Result<Self, Errno> {
        // SAFETY: see above.
        let slot = unsafe { Self::required(place) }?;
        slot.store(empty);
        Ok(slot)
    }

    fn store(&self, value: T) {
        // SAFETY: promised when the slot was made.
        unsafe { store(self.0, value) };
    }
}

/// Writes text for C with a final 0, cut to `room` bytes. Returns the length of the
/// whole text, bytes.
///
/// # Safety
/// `place` is null or may be written for `room` bytes.
pub unsafe fn store_text(place: *mut c_char, room: usize, text: &str) -> c_int {
    if !place.is_null() && room > 0 {
        let mut end = text.len().min(room - 1);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        // SAFETY: `end` is below `room` and within the text.
        unsafe {
            place
                .cast::<u8>()
                .copy_from_nonoverlapping(text.as_ptr(), end);
            place.add(end).write(0);
        }
    }
    c_int::try_from(text.len()).unwrap_or(c_int::MAX)
}

/// A pointer of the program's own that is passed to its handlers.
#[derive(Clone, Copy)]
struct User(*mut std::ffi::c_void);

// SAFETY: the library never dereferences the pointer. The header says in which threads
// handlers run.
unsafe impl Send for User {}

impl User {
    /// A method, so that closures capture the whole.
    const fn get(self) -> *mut std::ffi::c_void {
        self.0
    }
}

const NUMBER: [u32; 3] = [
    parse(env!("CARGO_PKG_VERSION_MAJOR")),
    parse(env!("CARGO_PKG_VERSION_MINOR")),
    parse(env!("CARGO_PKG_VERSION_PATCH")),
];

const fn parse(text: &str) -> u32 {
    match u32::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => panic!("a version is three numbers"),
    }
}

#[unsafe(no_mangle)]
extern "C" fn portolan_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[unsafe(no_mangle)]
extern "C" fn portolan_version_number() -> u32 {
    NUMBER[0] << 16 | NUMBER[1] << 8 | NUMBER[2]
}
