//! What work with keys leaves on the stack: the libraries below copy them there
//! and do not wipe. A core dump holds the stack.

use zeroize::Zeroize;

/// Words of stack that are wiped: several times what the work uses.
const WORDS: usize = 1024;

/// Does `work`, then wipes the stack that it used.
pub(crate) fn without_trace<T>(work: impl FnOnce() -> T) -> T {
    let done = below(work);
    wipe();
    done
}

/// Calls it in a frame where [`wipe`]'s will be.
#[inline(never)]
fn below<T>(work: impl FnOnce() -> T) -> T {
    work()
}

#[inline(never)]
fn wipe() {
    [0_u64; WORDS].zeroize();
}
