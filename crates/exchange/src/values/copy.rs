//! Copies within this process.

use super::{Sink, Source};

/// Longest piece that is copied at once where memory is in several pieces,
/// bytes.
const PIECE: u64 = 4096;

/// Fills `bytes` bytes of `into` from `at` on with the first of a source. False: some of the
/// places are missing.
pub(crate) fn copy_source(from: &impl Source, into: &mut impl Sink, at: u64, bytes: u64) -> bool {
    let read = |at, piece: &mut [u8]| {
        from.read(at, piece);
        true
    };
    copy(read, into, at, bytes)
}

/// Fills `bytes` bytes of `into` from `at` on; `read` gives those from an offset
/// of the source on. False: some of the source, or of the places, are missing.
pub(crate) fn copy(
    read: impl Fn(u64, &mut [u8]) -> bool,
    into: &mut impl Sink,
    at: u64,
    bytes: u64,
) -> bool {
    if bytes == 0 {
        return true;
    }
    if let Some(whole) = into.slice(at, bytes as usize) {
        return read(0, whole);
    }
    let mut piece = [0; PIECE as usize];
    let mut done = 0;
    while done < bytes {
        let n = (bytes - done).min(PIECE);
        let piece = &mut piece[..n as usize];
        if !read(done, piece) || !into.write(at + done, piece) {
            return false;
        }
        done += n;
    }
    true
}
