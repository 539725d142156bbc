//! Objects that libfabric's programs hold: each begins with the structure that they see, and
//! lives until it is closed. What others depend on is held by them, and cannot be closed.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use portolan::c_edge::Errno;

use crate::abi::{Fid, Ops};
use crate::error::{EBUSY, EINVAL, ENOSYS, Result, edge};

/// The beginning of an object, which libfabric may write to.
#[repr(transparent)]
pub struct Head<T>(UnsafeCell<T>);

// SAFETY: we write it before anybody sees the object, and read plain numbers of it.
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

/// An object.
///
/// # Safety
/// It is `repr(C)` and begins with a [`Head`] of a structure that begins with a [`Fid`], whose
/// class is this one.
pub unsafe trait Object: Sized + Send + Sync {
    /// What `fclass` says.
    const CLASS: usize;

    /// The last to be done before it goes.
    fn end(&self) -> Result<()> {
        Ok(())
    }
}

/// The part of the head that all have.
pub const fn fid<T: Object>(context: *mut c_void, ops: &'static Ops) -> Fid {
    Fid {
        fclass: T::CLASS,
        context,
        ops,
    }
}

/// Hands an object to the program, and keeps none.
///
/// # Safety
/// `place` may be written.
pub unsafe fn give<T: Object, F>(object: Arc<T>, place: *mut *mut F) {
    // SAFETY: promised by the caller.
    unsafe { place.write(Arc::into_raw(object).cast_mut().cast()) };
}

/// The object that a program names.
///
/// # Errors
/// It is null, or of another class.
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

/// The same, to keep.
///
/// # Errors
/// As [`object`].
///
/// # Safety
/// As [`object`].
pub unsafe fn shared<T: Object, F>(it: *mut F) -> Result<Arc<T>> {
    // SAFETY: as promised; what is not closed has been given, and counts once.
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
        // SAFETY: it was given, and counts once.
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

/// What a class does not have.
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

/// The calls that each class has.
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

/// A structure of the program's that it must pass.
///
/// # Errors
/// It is null.
///
/// # Safety
/// `it` is null or readable during `'a`, up to what is read of it.
pub unsafe fn given<'a, T>(it: *const T) -> Result<&'a T> {
    // SAFETY: see above.
    unsafe { it.as_ref() }.ok_or(EINVAL)
}

/// Takes a lock whose holder may have panicked: all that it guards is whole after each step.
pub fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// An error of the library's, in libfabric's numbers.
pub fn errno(error: impl Into<Errno>) -> Errno {
    error.into()
}
