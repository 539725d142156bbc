//! Payloads of sends, and memory that messages are written to.

use std::sync::Arc;

use portolan_ring::{Lent, LentMut};

/// A payload that a send takes over, without a copy, and returns with its completion.
#[derive(Clone, Debug)]
pub enum Payload {
    /// Owned.
    Vec(Vec<u8>),
    /// Shared, for one message to many.
    Shared(Arc<[u8]>),
    /// In static memory.
    Static(&'static [u8]),
}

impl Payload {
    /// Returns the bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Vec(v) => v,
            Self::Shared(v) => v,
            Self::Static(v) => v,
        }
    }

    /// Returns the bytes as a vector; copies unless they are a vector already.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        match self {
            Self::Vec(v) => v,
            Self::Shared(v) => v.to_vec(),
            Self::Static(v) => v.to_vec(),
        }
    }
}

impl From<Vec<u8>> for Payload {
    fn from(v: Vec<u8>) -> Self {
        Self::Vec(v)
    }
}

impl From<Arc<[u8]>> for Payload {
    fn from(v: Arc<[u8]>) -> Self {
        Self::Shared(v)
    }
}

impl From<&'static [u8]> for Payload {
    fn from(v: &'static [u8]) -> Self {
        Self::Static(v)
    }
}

/// Memory of a long message's payload until its operation is done.
#[derive(Debug)]
pub enum Source {
    /// Owned by the operation.
    Given(Payload),
    /// Lent by the program.
    Lent(Lent),
    /// Lent in several pieces, in order.
    Pieces(Box<[Lent]>),
}

impl Source {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Given(p) => p.as_slice().len(),
            Self::Lent(l) => l.as_slice().len(),
            Self::Pieces(pieces) => pieces.iter().map(|l| l.as_slice().len()).sum(),
        }
    }

    /// Returns the bytes, if they lie in one piece.
    pub(crate) fn as_slice(&self) -> Option<&[u8]> {
        match self {
            Self::Given(p) => Some(p.as_slice()),
            Self::Lent(l) => Some(l.as_slice()),
            Self::Pieces(_) => None,
        }
    }

    /// Copies the bytes from offset `at` on, as far as there are any.
    pub(crate) fn read(&self, at: usize, into: &mut [u8]) {
        match self {
            Self::Given(p) => read_pieces([p.as_slice()], at, into),
            Self::Lent(l) => read_pieces([l.as_slice()], at, into),
            Self::Pieces(pieces) => read_pieces(pieces.iter().map(Lent::as_slice), at, into),
        }
    }
}

/// Copies the bytes of `pieces` from offset `at` on, as far as there are any.
pub fn read_pieces<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    mut at: usize,
    mut into: &mut [u8],
) {
    for piece in pieces {
        let Some(piece) = piece.get(at..) else {
            at -= piece.len();
            continue;
        };
        let n = piece.len().min(into.len());
        let (now, later) = into.split_at_mut(n);
        now.copy_from_slice(&piece[..n]);
        if later.is_empty() {
            return;
        }
        (into, at) = (later, 0);
    }
}

/// Memory that a port's messages are written to.
#[derive(Debug)]
pub struct Buffer(Kind);

#[derive(Debug)]
enum Kind {
    Owned(Vec<u8>),
    Lent(LentMut),
}

impl Buffer {
    /// Wraps memory that the program keeps owning: `bytes` bytes at `start`.
    ///
    /// # Safety
    /// The memory must be valid for reads and writes, from any thread. Outside of the port's
    /// handler nothing else may access it until the port is closed, bound anew or given another
    /// buffer, or the endpoint closes.
    #[must_use]
    pub const unsafe fn lent(start: *mut u8, bytes: usize) -> Self {
        // SAFETY: the caller promises what `LentMut::new` asks for.
        Self::of(unsafe { LentMut::new(start, bytes) })
    }

    /// Makes a buffer of memory whose lender has promised what [`Buffer::lent`] asks for.
    pub const fn of(lent: LentMut) -> Self {
        Self(Kind::Lent(lent))
    }

    /// Returns the length, bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Kind::Owned(v) => v.len(),
            Kind::Lent(lent) => lent.len(),
        }
    }

    /// Whether the length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Kind::Owned(v) => v,
            Kind::Lent(lent) => lent.as_slice(),
        }
    }

    /// Returns the bytes for writing.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Kind::Owned(v) => v,
            Kind::Lent(lent) => lent.as_mut_slice(),
        }
    }

    /// Returns the address of the first byte.
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        match &mut self.0 {
            Kind::Owned(v) => v.as_mut_ptr(),
            Kind::Lent(lent) => lent.as_mut_ptr(),
        }
    }

    pub(crate) const fn is_lent(&self) -> bool {
        matches!(self.0, Kind::Lent(..))
    }

    /// Returns the vector that the buffer was made of; `None` for lent memory.
    #[must_use]
    pub fn into_vec(self) -> Option<Vec<u8>> {
        match self.0 {
            Kind::Owned(v) => Some(v),
            Kind::Lent(..) => None,
        }
    }
}

/// Messages up to the vector's length (not its capacity) fit.
impl From<Vec<u8>> for Buffer {
    fn from(v: Vec<u8>) -> Self {
        Self(Kind::Owned(v))
    }
}
