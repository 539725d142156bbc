//! libfabric's error numbers, and the edge to C, which no panic crosses.

use std::any::Any;
use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use portolan::c_edge::{self, Errno};
use portolan::{Completion, Endpoint, OpError};

/// Error numbers that libfabric adds to errno's.
pub const ETOOSMALL: Errno = Errno(257);
pub const EOPBADSTATE: Errno = Errno(258);
pub const EAVAIL: Errno = Errno(259);
pub const EBADFLAGS: Errno = Errno(260);
pub const ENOCQ: Errno = Errno(263);
pub const ETRUNC: Errno = Errno(265);
pub const ENOKEY: Errno = Errno(266);
pub const ENOAV: Errno = Errno(267);

pub use portolan::c_edge::{
    EAGAIN, EBUSY, EFAULT, EINVAL, EIO, EMSGSIZE, ENOENT, ENOMEM, EOPNOTSUPP, ERANGE, ETIMEDOUT,
};
pub const ENOSYS: Errno = Errno(libc::ENOSYS);
pub const ENOPROTOOPT: Errno = Errno(libc::ENOPROTOOPT);
pub const ENODATA: Errno = Errno(libc::ENODATA);
pub const ENOMSG: Errno = Errno(libc::ENOMSG);

pub type Result<T> = std::result::Result<T, Errno>;

/// Type of a call's result in C.
pub trait Answer {
    fn failed(why: Errno) -> Self;
}

impl Answer for c_int {
    fn failed(why: Errno) -> Self {
        -why.0
    }
}

impl Answer for isize {
    fn failed(why: Errno) -> Self {
        -(why.0 as isize)
    }
}

/// Runs one call of C. A panic is a bug of the library; the panic hook has reported it.
#[inline(always)]
pub fn edge<T: Answer>(call: impl FnOnce() -> Result<T>) -> T {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => value,
        Ok(Err(why)) => T::failed(why),
        Err(panic) => T::failed(panicked(panic)),
    }
}

/// Functions that C calls: `fn NAME(ARGUMENTS) -> TYPE { BODY }`. In a body `?` returns an
/// error; the body's value is a `Result`. A body may make unsafe calls: the program keeps
/// to what libfabric's pages say of each argument.
macro_rules! calls {
    ($(
        $(#[$about:meta])*
        fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $answer:ty { $($body:tt)+ }
    )+) => {$(
        $(#[$about])*
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $answer {
            #[allow(unused_unsafe)]
            // SAFETY: see above.
            $crate::error::edge(|| unsafe { $($body)+ })
        }
    )+};
}
pub(crate) use calls;

#[cold]
fn panicked(panic: Box<dyn Any + Send>) -> Errno {
    // The payload may panic once more when dropped.
    std::mem::forget(panic);
    EIO
}

/// The error of a completed operation.
pub fn failure(endpoint: &Endpoint, done: &Completion) -> Option<Errno> {
    match done.result {
        Ok(()) => None,
        Err(OpError::Truncated) => Some(ETRUNC),
        Err(OpError::BadKey) => Some(ENOKEY),
        Err(_) => c_edge::failure(endpoint, done).unwrap_or(Some(EIO)),
    }
}

/// Returns the text of a provider's error number, which is libfabric's own, and copies it to
/// `buffer` as far as it fits.
///
/// # Safety
/// `buffer` is null or may be written for `room` bytes.
pub unsafe fn explain(error: c_int, buffer: *mut c_char, room: usize) -> *const c_char {
    let text: &'static CStr = match Errno(error.saturating_abs()) {
        ETRUNC => c"the message was longer than the memory for it",
        ENOKEY => c"the other side has no memory registered under this key",
        // Its flows are the provider's own matter.
        ERANGE => c"the access does not lie in its region, or nothing is mapped there",
        other => c_edge::meaning(other.0),
    };
    // SAFETY: as promised.
    unsafe { c_edge::store_text(buffer, room, &text.to_string_lossy()) };
    text.as_ptr()
}
