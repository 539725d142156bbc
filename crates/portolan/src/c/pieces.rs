//! Memory of matched messages and one-sided operations, in one piece or several.

use std::ffi::c_void;

use super::error::{EFAULT, EINVAL, EMSGSIZE, Errno};
use super::slice;
use crate::{Buffer, Gather, Scatter};

/// `struct iovec`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// The first byte.
    pub start: *mut c_void,
    /// Its length.
    pub bytes: usize,
}

/// Maximum number of pieces, as in one call of the kernel (IOV_MAX).
const PIECES_MAX: usize = 1024;

/// Checks pieces of the program's memory.
///
/// # Safety
/// `pieces` is null or readable for `count` pieces during `'a`.
pub(super) unsafe fn pieces<'a>(pieces: *const Piece, count: usize) -> Result<&'a [Piece], Errno> {
    if count > PIECES_MAX {
        return Err(EINVAL);
    }
    // SAFETY: see above.
    let pieces = unsafe { slice(pieces, count) }?;
    if pieces.iter().any(|it| it.start.is_null() && it.bytes > 0) {
        return Err(EFAULT);
    }
    let all = (pieces.iter()).try_fold(0_usize, |sum, it| sum.checked_add(it.bytes));
    match all {
        Some(bytes) if bytes <= isize::MAX as usize => Ok(pieces),
        _ => Err(EMSGSIZE),
    }
}

/// The memory of a send.
///
/// # Errors
/// [`EFAULT`], [`EINVAL`], [`EMSGSIZE`].
///
/// # Safety
/// As [`pieces`], and they are as [`Gather::lent`] asks.
pub unsafe fn gather(from: *const Piece, count: usize) -> Result<Gather, Errno> {
    // SAFETY: see above.
    let pieces = unsafe { pieces(from, count) }?;
    let mut some = pieces.iter().filter(|it| it.bytes > 0).map(|it| {
        // SAFETY: see above.
        unsafe { Gather::lent(it.start.cast(), it.bytes) }
    });
    Ok(match some.next() {
        Some(first) => some.fold(first, Gather::and),
        None => Gather::from(Vec::new()),
    })
}

/// The memory of a receive.
///
/// # Errors
/// As [`gather`].
///
/// # Safety
/// As [`pieces`], and they are as [`Buffer::lent`] asks, until the operation has
/// ended.
pub unsafe fn scatter(into: *const Piece, count: usize) -> Result<Scatter, Errno> {
    // SAFETY: see above.
    let pieces = unsafe { pieces(into, count) }?;
    let mut some = pieces.iter().filter(|it| it.bytes > 0).map(|it| {
        // SAFETY: see above.
        Scatter::from(unsafe { Buffer::lent(it.start.cast(), it.bytes) })
    });
    Ok(match some.next() {
        Some(first) => some.fold(first, Scatter::and),
        None => Scatter::from(Vec::new()),
    })
}
