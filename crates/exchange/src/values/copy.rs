//! Copies within this process.

use super::Sink;

/// Longest piece that is copied at once where memory is in several pieces,
/// bytes.
const PIECE: u64 = 4096;

/// Fills `bytes` bytes of `into` from `at` on; `read` gives those from an offset
/// of the source on.
pub(crate) fn copy(read: impl Fn(u64, &mut [u8]), into: &mut impl Sink, at: u64, bytes: u64) {
    if bytes == 0 {
        return;
    }
    if let Some(whole) = into.slice(at, bytes as usize) {
        read(0, whole);
        return;
    }
    let mut piece = [0; PIECE as usize];
    let mut done = 0;
    while done < bytes {
        let n = (bytes - done).min(PIECE);
        let piece = &mut piece[..n as usize];
        read(done, piece);
        into.write(at + done, piece);
        done += n;
    }
}
