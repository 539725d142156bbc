//! Copies that go beyond the caches: for what would not stay in them.

/// Copies `bytes` bytes to memory that is not read soon, past the caches where
/// the processor can: so the lines that are written need not be read before,
/// and what the caches hold stays there. By the end all of it is visible to
/// whoever sees a later store of this thread.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`].
pub unsafe fn copy_beyond(from: *const u8, into: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
        const LINE: usize = 64;
        let head = into.align_offset(LINE).min(bytes);
        let lines = (bytes - head) / LINE;
        // SAFETY: the ranges are the caller's; the lines lie within them, and
        // begin where `into` is aligned to 64 bytes. SSE2 is part of x86-64.
        unsafe {
            std::ptr::copy_nonoverlapping(from, into, head);
            for line in 0..lines {
                let at = head + line * LINE;
                let (source, target) = (
                    from.add(at).cast::<__m128i>(),
                    into.add(at).cast::<__m128i>(),
                );
                let words = [0, 1, 2, 3].map(|i| _mm_loadu_si128(source.add(i)));
                for (i, word) in words.into_iter().enumerate() {
                    _mm_stream_si128(target.add(i), word);
                }
            }
            let done = head + lines * LINE;
            std::ptr::copy_nonoverlapping(from.add(done), into.add(done), bytes - done);
            // Such stores are not in order with others.
            _mm_sfence();
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's.
    unsafe {
        std::ptr::copy_nonoverlapping(from, into, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_lands_wherever_it_begins() {
        let from: Vec<u8> = (0..1_000_u32).map(|i| (i * 7) as u8).collect();
        for start in 0..70 {
            for bytes in [0, 1, 15, 63, 64, 65, 128, 200, 777] {
                let mut into = vec![0xee; 1_000];
                // SAFETY: both ranges lie in their vectors.
                unsafe { copy_beyond(from[3..].as_ptr(), into[start..].as_mut_ptr(), bytes) };
                assert_eq!(into[start..start + bytes], from[3..3 + bytes]);
                assert!(into[..start].iter().all(|b| *b == 0xee));
                assert!(into[start + bytes..].iter().all(|b| *b == 0xee));
            }
        }
    }
}
