//! Objects that libfabric's programs hold. Each begins with the structure that they see, and
//! lives until it is closed. An object that others depend on is held by them, and closing
//! it fails.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use portolan::c_edge::Errno;

use crate::abi::{Fid, Ops};
use crate::error::{EBUSY, EINVAL, ENOSYS, Result, edge};

/// The beginning of an object, which libfabric may write to.
#[repr(transparent)]
pub struct Head<T>(UnsafeCell<T>);

// SAFETY: the provider writes only before it shares the object, and reads plain numbers.
unsafe impl<T> Send for Head<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Head<T> {}

impl<T> Head<T> {
    pub const fn new(head: T) -> Self {
        Self(UnsafeCell::new(head))
    }

    pub const fn get(&self) -> *mut T {
        self.0.get()
    }
}

/// An object of libfabric.
///
/// # Safety
/// The type is `repr(C)` and begins with a [`Head`] of a structure that begins with a [`Fid`],
/// whose class is this one.
pub unsafe trait Object: Sized + Send + Sync {
    /// Value of `fclass`.
    const CLASS: usize;

    /// Called last; on an error the object stays open.
    fn end(&self) -> Result<()> {
        Ok(())
    }
}

/// The part that all heads have in common.
pub const fn fid<T: Object>(context: *mut c_void, ops: &'static Ops) -> Fid {
    Fid {
        fclass: T::CLASS,
        context,
        ops,
    }
}

/// Passes an object, with its reference, to the program.
///
/// # Safety
/// `place` may be written.
pub unsafe fn give<T: Object, F>(object: Arc<T>, place: *mut *mut F) {
    // SAFETY: promised by the caller.
    unsafe { place.write(Arc::into_raw(object).cast_mut().cast()) };
}

/// The object that a program passes.
///
/// # Errors
/// `EINVAL`: null, or an object of another class.
///
/// # Safety
/// `it` is null, or an object that is not closed during `'a`.
#[inline(always)]
pub unsafe fn object<'a, T: Object, F>(it: *mut F) -> Result<&'a T> {
    let fid: *mut Fid = it.cast();
    // SAFETY: every object begins with a `Fid`.
    if fid.is_null() || unsafe { (*fid).fclass } != T::CLASS {
        return Err(EINVAL);
    }
    // SAFETY: that class is this type's, and `give` has made the pointer.
    Ok(unsafe { &*it.cast() })
}

/// As [`object`], with a counted reference.
///
/// # Errors
/// As [`object`].
///
/// # Safety
/// As [`object`].
pub unsafe fn shared<T: Object, F>(it: *mut F) -> Result<Arc<T>> {
    // SAFETY: as promised; the program's own reference counts until the object is closed.
    unsafe {
        let it: &T = object(it)?;
        Arc::increment_strong_count(it);
        Ok(Arc::from_raw(it))
    }
}

/// `fi_close` of a class.
///
/// # Safety
/// `it` is an object, which the program does not use any more unless this fails.
pub unsafe extern "C" fn close<T: Object>(it: *mut Fid) -> c_int {
    edge(|| {
        // SAFETY: as promised.
        let object: &T = unsafe { object(it) }?;
        // SAFETY: this is the program's reference, from `give`.
        let this = unsafe { Arc::from_raw(object) };
        if Arc::strong_count(&this) > 1 {
            let _ = Arc::into_raw(this);
            return Err(EBUSY);
        }
        if let Err(why) = this.end() {
            let _ = Arc::into_raw(this);
            return Err(why);
        }
        drop(this);
        Ok(0)
    })
}

/// A call that a class does not have.
pub unsafe extern "C" fn no_call() -> c_int {
    -ENOSYS.0
}

/// # Safety
/// Any arguments.
pub unsafe extern "C" fn no_bind(_: *mut Fid, _: *mut Fid, _: u64) -> c_int {
    -ENOSYS.0
}

/// # Safety
/// Any arguments.
pub unsafe extern "C" fn no_control(_: *mut Fid, _: c_int, _: *mut c_void) -> c_int {
    -ENOSYS.0
}

/// The calls that all classes have.
pub const fn ops<T: Object>(
    bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
) -> Ops {
    Ops {
        size: size_of::<Ops>(),
        close: close::<T>,
        bind,
        control,
        ops_open: no_call,
        tostr: None,
        ops_set: None,
    }
}

/// A structure that the program must pass.
///
/// # Errors
/// `EINVAL`: null.
///
/// # Safety
/// `it` is null or readable during `'a`, up to what is read of it.
pub unsafe fn given<'a, T>(it: *const T) -> Result<&'a T> {
    // SAFETY: see above.
    unsafe { it.as_ref() }.ok_or(EINVAL)
}

/// Takes a lock, also after its holder panicked: the data is consistent after each step.
pub fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Converts an error of the library to libfabric's numbers.
pub fn errno(error: impl Into<Errno>) -> Errno {
    error.into()
}
