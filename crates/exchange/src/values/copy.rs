//! Copies within this process.

use super::{Sink, Source};

/// Longest piece that is copied at once where memory is in several pieces,
/// bytes.
const PIECE: u64 = 4096;

/// Copies the first `bytes` bytes of a source to `into`, at `at`. False: part of the destination
/// is missing.
pub(crate) fn copy_source(from: &impl Source, into: &mut impl Sink, at: u64, bytes: u64) -> bool {
    let read = |at, piece: &mut [u8]| {
        from.read(at, piece);
        true
    };
    copy(read, into, at, bytes)
}

/// Copies `bytes` bytes to `into`, at `at`; `read` fills a slice from an offset of the source.
/// False: part of the source or the destination is missing.
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
