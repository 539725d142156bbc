//! What work with keys leaves on the stack: the libraries below copy them there
//! and do not wipe. A core dump holds the stack.

use core::mem::MaybeUninit;

use zeroize::Zeroize;

/// What is wiped by one instruction. A packet is followed by few of them: a call
/// of `memset` takes twice as many.
#[cfg(target_arch = "x86_64")]
type Word = core::arch::x86_64::__m128i;
#[cfg(not(target_arch = "x86_64"))]
type Word = u128;

/// Does `work`, then wipes 8 KiB of stack, several times what the work used.
pub(crate) fn without_trace<T>(work: impl FnOnce() -> T) -> T {
    without_trace_within::<512, T>(work)
}

/// Does `work`, then wipes `WORDS` times 16 bytes of stack: the caller has to know that the work
/// uses no more.
#[inline]
pub(crate) fn without_trace_within<const WORDS: usize, T>(work: impl FnOnce() -> T) -> T {
    let done = below(work);
    wipe::<WORDS>();
    done
}

/// Calls it in a frame where [`wipe`]'s will be.
#[inline(never)]
fn below<T>(work: impl FnOnce() -> T) -> T {
    work()
}

#[inline(never)]
fn wipe<const WORDS: usize>() {
    let mut words = [const { MaybeUninit::<Word>::uninit() }; WORDS];
    words.iter_mut().for_each(Zeroize::zeroize);
}
