//! Memory of matched messages, in one piece or several.

use std::io::{IoSlice, IoSliceMut};

use portolan_exchange::{Sink, Source as ExchangeSource};
use portolan_link::memory::{populate, read_own, write_own};
use portolan_ring::Lent;

use crate::values::{Buffer, Payload, Source, read_pieces};

/// Memory that a message is sent from: pieces, in order, each owned or lent. They are not
/// packed into one on the way.
#[derive(Debug)]
pub struct Gather {
    first: Piece,
    more: Vec<Piece>,
    bytes: usize,
    /// Sent by a call that makes progress until the message has been received.
    waits: bool,
}

#[derive(Debug)]
enum Piece {
    Given(Payload),
    Lent(Lent),
}

impl Piece {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Given(payload) => payload.as_slice(),
            Self::Lent(lent) => lent.as_slice(),
        }
    }
}

impl Gather {
    const fn of(first: Piece, bytes: usize) -> Self {
        Self {
            first,
            more: Vec::new(),
            bytes,
            waits: false,
        }
    }

    /// Marks the memory as sent by a call that waits for the end.
    #[must_use]
    pub const fn waiting(mut self) -> Self {
        self.waits = true;
        self
    }

    /// Whether the call that sends it waits for the end.
    pub(crate) const fn waits(&self) -> bool {
        self.waits
    }

    /// Wraps memory that the program keeps owning.
    ///
    /// # Safety
    /// `bytes` bytes at `start` must stay valid and unchanged, for any thread,
    /// until the operation has ended or the endpoint is closed.
    #[must_use]
    pub const unsafe fn lent(start: *const u8, bytes: usize) -> Self {
        // SAFETY: promised by the caller.
        Self::of(Piece::Lent(unsafe { Lent::new(start, bytes) }), bytes)
    }

    /// Appends other pieces.
    #[must_use]
    pub fn and(mut self, next: impl Into<Self>) -> Self {
        let next = next.into();
        self.bytes += next.bytes;
        self.more.push(next.first);
        self.more.extend(next.more);
        self
    }

    /// Returns the bytes, piece by piece.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&self.first)
            .chain(&self.more)
            .map(Piece::as_slice)
    }

    /// Returns the pieces that were passed as vectors.
    pub fn into_vecs(self) -> impl Iterator<Item = Vec<u8>> {
        let all = std::iter::once(self.first).chain(self.more);
        all.filter_map(|piece| match piece {
            Piece::Given(Payload::Vec(memory)) => Some(memory),
            Piece::Given(_) | Piece::Lent(_) => None,
        })
    }

    /// Returns the bytes of an owned piece that is alone; otherwise a copy.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        if !self.more.is_empty() {
            return self.slices().collect::<Vec<_>>().concat();
        }
        match self.first {
            Piece::Given(payload) => payload.into_vec(),
            Piece::Lent(lent) => lent.as_slice().to_vec(),
        }
    }
}

impl<P: Into<Payload>> From<P> for Gather {
    fn from(payload: P) -> Self {
        let payload = payload.into();
        let bytes = payload.as_slice().len();
        Self::of(Piece::Given(payload), bytes)
    }
}

impl Gather {
    /// Calls `act` with all pieces.
    pub(crate) fn with_slices<R>(&self, act: impl FnOnce(&[IoSlice<'_>]) -> R) -> R {
        if self.more.is_empty() {
            return act(&[IoSlice::new(self.first.as_slice())]);
        }
        act(&self.slices().map(IoSlice::new).collect::<Vec<_>>())
    }
}

impl ExchangeSource for Gather {
    #[inline]
    fn len(&self) -> u64 {
        self.bytes as u64
    }

    fn read(&self, at: u64, into: &mut [u8]) {
        read_pieces(self.slices(), at as usize, into);
    }
}

/// Bytes in a sequence of pieces.
pub(crate) trait Row {
    /// The pieces, in order.
    fn slices(&self) -> impl Iterator<Item = &[u8]>;

    /// Returns the only piece, if there is just one.
    fn only(&self) -> Option<&[u8]>;

    /// Returns the range as one slice, if it lies in one piece.
    #[inline]
    fn part(&self, at: usize, bytes: usize) -> Option<&[u8]> {
        if let Some(only) = self.only() {
            return only.get(at..at.checked_add(bytes)?);
        }
        let mut at = at;
        for piece in self.slices() {
            if at < piece.len() || (bytes == 0 && at == piece.len()) {
                return piece.get(at..at.checked_add(bytes)?);
            }
            at -= piece.len();
        }
        None
    }

    /// Lends the range, to be read until its operation ends.
    fn lend(&self, at: usize, bytes: usize) -> Source {
        let lend = |slice: &[u8]| {
            // SAFETY: the exchange keeps this memory, at its place even if the value that names
            // it moves, until it is told that every message that reads from it is done.
            unsafe { Lent::new(slice.as_ptr(), slice.len()) }
        };
        let mut pieces = Vec::new();
        let (mut at, mut left) = (at, bytes);
        for piece in self.slices() {
            let Some(rest) = piece.get(at..) else {
                at -= piece.len();
                continue;
            };
            let n = rest.len().min(left);
            if n > 0 {
                pieces.push(lend(&rest[..n]));
            }
            (at, left) = (0, left - n);
        }
        match pieces.as_slice() {
            [] => Source::Lent(lend(&[])),
            [only] => Source::Lent(*only),
            _ => Source::Pieces(pieces.into()),
        }
    }
}

impl Row for Gather {
    #[inline]
    fn only(&self) -> Option<&[u8]> {
        self.more.is_empty().then(|| self.first.as_slice())
    }

    fn slices(&self) -> impl Iterator<Item = &[u8]> {
        Self::slices(self)
    }
}

impl Row for [u8] {
    fn only(&self) -> Option<&[u8]> {
        Some(self)
    }

    fn slices(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(self)
    }
}

impl Row for Scatter {
    #[inline]
    fn only(&self) -> Option<&[u8]> {
        self.more.is_empty().then(|| self.first.as_slice())
    }

    fn slices(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&self.first)
            .chain(&self.more)
            .map(Buffer::as_slice)
    }
}

/// Memory that a message is received in: pieces, filled in order.
#[derive(Debug)]
pub struct Scatter {
    first: Buffer,
    more: Vec<Buffer>,
    bytes: usize,
    /// The whole address space of this process; there are no pieces.
    is_all: bool,
}

/// Returns the whole address space of this process. The kernel copies its bytes, and so detects
/// those that are not mapped.
///
/// # Safety
/// A write to it may change any memory of this process. The caller must ensure that all who can
/// write may do so.
#[must_use]
pub unsafe fn address_space() -> Scatter {
    Scatter {
        first: Vec::new().into(),
        more: Vec::new(),
        bytes: usize::MAX,
        is_all: true,
    }
}

impl Scatter {
    /// Whether this is the whole address space of this process.
    #[must_use]
    pub const fn is_address_space(&self) -> bool {
        self.is_all
    }

    /// Appends other pieces.
    #[must_use]
    pub fn and(mut self, next: impl Into<Self>) -> Self {
        let next = next.into();
        self.bytes += next.bytes;
        self.more.push(next.first);
        self.more.extend(next.more);
        self
    }

    /// Returns the pieces, in order.
    #[must_use]
    pub fn into_buffers(self) -> Vec<Buffer> {
        let mut all = vec![self.first];
        all.extend(self.more);
        all
    }

    /// Calls `act` with all pieces.
    pub(crate) fn with_slices<R>(&mut self, act: impl FnOnce(&mut [IoSliceMut<'_>]) -> R) -> R {
        if self.more.is_empty() {
            return act(&mut [IoSliceMut::new(self.first.as_mut_slice())]);
        }
        let bytes = self.bytes;
        act(&mut self
            .pieces(0, bytes)
            .map(IoSliceMut::new)
            .collect::<Vec<_>>())
    }

    /// Returns the range, piece by piece.
    pub(crate) fn pieces(&mut self, at: usize, bytes: usize) -> impl Iterator<Item = &mut [u8]> {
        let (mut at, mut left) = (at, bytes);
        let all = std::iter::once(&mut self.first).chain(&mut self.more);
        all.filter_map(move |buffer| {
            let len = buffer.len();
            let start = at.min(len);
            let n = left.min(len - start);
            (at, left) = (at - start, left - n);
            (n > 0).then(|| &mut buffer.as_mut_slice()[start..start + n])
        })
    }
}

impl<B: Into<Buffer>> From<B> for Scatter {
    fn from(buffer: B) -> Self {
        let first = buffer.into();
        Self {
            bytes: first.len(),
            first,
            more: Vec::new(),
            is_all: false,
        }
    }
}

impl Sink for Scatter {
    #[inline]
    fn len(&self) -> u64 {
        self.bytes as u64
    }

    fn may_lack(&self) -> bool {
        self.is_all
    }

    fn is_aligned(&self, at: u64, of: u64) -> bool {
        if self.is_all {
            return at.is_multiple_of(of);
        }
        let mut at = at as usize;
        for slice in self.slices() {
            if at < slice.len() {
                return (slice[at..].as_ptr().addr() as u64).is_multiple_of(of);
            }
            at -= slice.len();
        }
        false
    }

    fn read(&self, at: u64, into: &mut [u8]) -> bool {
        if self.is_all {
            return read_own(at, into);
        }
        read_pieces(self.slices(), at as usize, into);
        true
    }

    #[inline]
    fn write(&mut self, at: u64, bytes: &[u8]) -> bool {
        if self.is_all {
            // SAFETY: promised by the caller of `address_space`.
            return unsafe { write_own(at, bytes) };
        }
        if self.more.is_empty() {
            let into = &mut self.first.as_mut_slice()[at as usize..];
            into[..bytes.len()].copy_from_slice(bytes);
            return true;
        }
        let mut rest = bytes;
        for piece in self.pieces(at as usize, bytes.len()) {
            let (now, later) = rest.split_at(piece.len());
            piece.copy_from_slice(now);
            rest = later;
        }
        true
    }

    #[inline]
    fn slice(&mut self, at: u64, bytes: usize) -> Option<&mut [u8]> {
        let mut at = usize::try_from(at).ok().filter(|_| !self.is_all)?;
        for buffer in std::iter::once(&mut self.first).chain(&mut self.more) {
            let len = buffer.len();
            if at < len || (bytes == 0 && at == len) {
                return buffer.as_mut_slice().get_mut(at..at.checked_add(bytes)?);
            }
            at -= len;
        }
        None
    }

    fn owned(bytes: Vec<u8>) -> Self {
        bytes.into()
    }

    fn into_owned(self) -> Vec<u8> {
        self.first.into_vec().unwrap_or_default()
    }
}

/// Maps now what is mapped lazily in this range.
pub fn prepare(memory: &mut Scatter, at: u64, bytes: u64) {
    for piece in memory.pieces(at as usize, bytes as usize) {
        populate(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_one_row_of_bytes() {
        let gather = Gather::from(vec![1, 2, 3])
            .and(Vec::new())
            .and(&b"\x04\x05"[..])
            .and(vec![6]);
        assert_eq!(gather.len(), 6);
        for at in 0..=6 {
            for bytes in 0..=6 - at {
                let mut read = vec![0; bytes];
                gather.read(at as u64, &mut read);
                let expected: Vec<u8> = (1..=6).skip(at).take(bytes).collect();
                assert_eq!(read, expected, "{at} {bytes}");
                let lent = gather.lend(at, bytes);
                let mut read = vec![0; bytes];
                lent.read(0, &mut read);
                assert_eq!((read, lent.len()), (expected.clone(), bytes));
                if let Some(slice) = gather.part(at, bytes) {
                    assert_eq!(slice, expected);
                }
            }
        }
        assert_eq!(gather.part(0, 3), Some(&[1, 2, 3][..]));
        assert_eq!(gather.part(2, 2), None);
        assert_eq!(gather.into_vec(), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn bytes_are_scattered_in_order() {
        for at in 0..=6 {
            for bytes in 0..=6 - at {
                let mut scatter = Scatter::from(vec![0; 3])
                    .and(vec![0; 0])
                    .and(vec![0; 2])
                    .and(vec![0; 1]);
                let data: Vec<u8> = (1..=bytes as u8).collect();
                scatter.write(at as u64, &data);
                let mut expected = vec![0; 6];
                expected[at..at + bytes].copy_from_slice(&data);
                if let Some(slice) = scatter.slice(at as u64, bytes) {
                    assert_eq!(slice, data);
                }
                let buffers = scatter.into_buffers();
                let all: Vec<u8> = buffers.iter().flat_map(|b| b.as_slice().to_vec()).collect();
                assert_eq!(all, expected, "{at} {bytes}");
            }
        }
    }
}
