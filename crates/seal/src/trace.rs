//! What work with keys leaves on the stack: the libraries below copy them there
//! and do not wipe. A core dump holds the stack.

use zeroize::zeroize_stack;

/// Does `work`, then wipes the stack that it used, several times over.
pub(crate) fn without_trace<T>(work: impl FnOnce() -> T) -> T {
    without_trace_within::<8192, T>(work)
}

/// Does `work`, then wipes `BYTES` of the stack: no fewer than it used.
#[inline]
pub(crate) fn without_trace_within<const BYTES: usize, T>(work: impl FnOnce() -> T) -> T {
    let done = below(work);
    zeroize_stack::<BYTES>();
    done
}

/// Calls it in a frame where that of `zeroize_stack` will be.
#[inline(never)]
fn below<T>(work: impl FnOnce() -> T) -> T {
    work()
}
