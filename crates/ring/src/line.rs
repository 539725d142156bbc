//! The unit of shared memory: one cache line that begins with a header word.

use std::marker::PhantomData;
#[cfg(not(loom))]
use std::ptr::NonNull;

use crate::atomic::{AtomicU64, Ordering};

/// Bytes of a line. Also right where the hardware's lines are longer: two
/// neighbours then share one, which costs time only.
pub const LINE_BYTES: usize = 64;

/// Payload bytes that fit beside the header in one line.
pub const INLINE_BYTES: usize = LINE_BYTES - 8;

/// 64 bytes of shared memory. All zeros is a valid value.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct CacheLine {
    words: [AtomicU64; 8],
}

#[cfg(not(loom))]
const _: () =
    assert!(size_of::<CacheLine>() == LINE_BYTES && align_of::<CacheLine>() == LINE_BYTES);

impl Default for CacheLine {
    fn default() -> Self {
        Self {
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl CacheLine {
    /// Word `index` of eight; 0 is the header.
    ///
    /// # Panics
    /// From index 8 on.
    #[inline(always)]
    #[must_use]
    pub fn word(&self, index: usize) -> &AtomicU64 {
        &self.words[index]
    }

    #[inline(always)]
    pub(crate) fn header(&self) -> &AtomicU64 {
        &self.words[0]
    }

    /// A copy of the seven words behind the header.
    #[cfg(not(loom))]
    #[inline(always)]
    fn payload(&self) -> [u64; INLINE_BYTES / 8] {
        // SAFETY: the line is 64 bytes of integers. Volatile, because another
        // process may write meanwhile: the copy is then some mixture, and no
        // decision rests on its being anything else. Unlike seven atomic
        // loads this may use wide registers.
        unsafe {
            self.words
                .as_ptr()
                .add(1)
                .cast::<[u64; 7]>()
                .read_volatile()
        }
    }

    /// A copy of the seven words behind the header.
    #[cfg(loom)]
    fn payload(&self) -> [u64; INLINE_BYTES / 8] {
        std::array::from_fn(|i| self.words[i + 1].load(Ordering::Relaxed))
    }
}

/// Address of the first byte of `lines`, good for all of them: their cells
/// may be written through it while nobody else uses them.
#[cfg(not(loom))]
#[inline(always)]
#[must_use]
pub fn address_of(lines: &[CacheLine]) -> *mut u8 {
    lines.as_ptr().cast_mut().cast()
}

/// Lines that hold so many bytes.
#[inline(always)]
pub(crate) const fn lines_of(bytes: usize) -> usize {
    bytes.div_ceil(LINE_BYTES)
}

/// A slot's header: turn or sequence, payload bytes, tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub sequence: u32,
    pub bytes: u16,
    pub tag: u16,
}

impl Header {
    #[inline(always)]
    pub const fn pack(self) -> u64 {
        self.sequence as u64 | (self.bytes as u64) << 32 | (self.tag as u64) << 48
    }

    #[inline(always)]
    pub const fn unpack(word: u64) -> Self {
        Self {
            sequence: word as u32,
            bytes: (word >> 32) as u16,
            tag: (word >> 48) as u16,
        }
    }
}

/// A message at the head of a ring or inbox. What fits a line has been copied
/// out of shared memory already; of a longer one only the length has.
#[derive(Debug)]
pub struct RingMessage<'a> {
    inline: [u64; INLINE_BYTES / 8],
    bytes: usize,
    tag: u16,
    long: &'a [CacheLine],
}

impl<'a> RingMessage<'a> {
    /// A message whose payload lies beside its header.
    #[inline(always)]
    pub(crate) fn short(line: &CacheLine, header: Header) -> Self {
        Self {
            inline: line.payload(),
            bytes: header.bytes as usize,
            tag: header.tag,
            long: &[],
        }
    }

    /// A message whose payload lies in `lines`, which hold enough for it.
    #[inline]
    pub(crate) fn long(lines: &'a [CacheLine], header: Header) -> Self {
        debug_assert!(lines.len() == lines_of(header.bytes as usize));
        Self {
            inline: [0; INLINE_BYTES / 8],
            bytes: header.bytes as usize,
            tag: header.tag,
            long: lines,
        }
    }

    /// Payload bytes.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a length, not a container")]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// What the producer wrote beside the length.
    #[inline(always)]
    #[must_use]
    pub fn tag(&self) -> u16 {
        self.tag
    }

    /// The whole payload, if it came in one line; else `None`: copy it.
    #[inline(always)]
    #[must_use]
    pub fn short_bytes(&self) -> Option<&[u8]> {
        if self.bytes > INLINE_BYTES {
            return None;
        }
        // SAFETY: any 56 initialised bytes are bytes; the length was checked
        // above. The array is private to this value.
        let all: &[u8; INLINE_BYTES] = unsafe { &*self.inline.as_ptr().cast() };
        Some(&all[..self.bytes])
    }

    /// Payload word `index` (eight bytes each), 0 beyond the end.
    #[must_use]
    pub fn word(&self, index: usize) -> u64 {
        if index * 8 >= self.bytes {
            0
        } else if self.bytes <= INLINE_BYTES {
            self.inline[index]
        } else {
            self.long[index / 8].words[index % 8].load(Ordering::Relaxed)
        }
    }

    /// Copies payload bytes from `at` on until `into` is full. What a hostile
    /// process writes meanwhile may show in the copy, and nowhere else.
    ///
    /// # Panics
    /// If the range ends beyond the payload.
    #[cfg(not(loom))]
    #[inline]
    pub fn copy_to(&self, at: usize, into: &mut [u8]) {
        self.copy_by(at, into, |from, into, bytes| {
            // SAFETY: both ranges are good, as `copy_by` says.
            unsafe { std::ptr::copy_nonoverlapping(from, into, bytes) };
        });
    }

    /// As [`RingMessage::copy_to`], past the caches where the processor can: for
    /// messages that would not stay in them.
    ///
    /// # Panics
    /// As there.
    #[cfg(not(loom))]
    pub fn copy_beyond(&self, at: usize, into: &mut [u8]) {
        self.copy_by(at, into, |from, into, bytes| {
            // SAFETY: likewise.
            unsafe { crate::beyond::copy_beyond(from, into, bytes) };
        });
    }

    /// `copy`: gets a source and a target of so many bytes, which do not
    /// overlap.
    #[cfg(not(loom))]
    #[inline(always)]
    fn copy_by(&self, at: usize, into: &mut [u8], copy: impl FnOnce(*const u8, *mut u8, usize)) {
        let end = at.checked_add(into.len());
        assert!(
            end.is_some_and(|end| end <= self.bytes),
            "copy beyond the payload"
        );
        if let Some(short) = self.short_bytes() {
            into.copy_from_slice(&short[at..at + into.len()]);
            return;
        }
        // SAFETY: `long` covers `self.bytes` bytes (checked where it was made,
        // and `end` above), mapped for 'a. The bytes may change during the
        // copy; they are only moved, and no decision here depends on them.
        let from = unsafe { address_of(self.long).add(at) };
        copy(from, into.as_mut_ptr(), into.len());
    }
}

/// A message that fits a line, copied out of shared memory.
#[derive(Debug)]
pub struct Short {
    words: [u64; INLINE_BYTES / 8],
    bytes: usize,
}

impl Short {
    /// The payload of `line`, `bytes` long; `None` if it does not lie there.
    #[inline(always)]
    pub(crate) fn of(line: &CacheLine, bytes: usize) -> Option<Self> {
        (bytes <= INLINE_BYTES).then(|| Self {
            words: line.payload(),
            bytes,
        })
    }

    /// The payload.
    #[inline(always)]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: any 56 initialised bytes are bytes; `of` has checked the
        // length. The array is private to this value.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.bytes) }
    }
}

/// Room for a payload that a producer has reserved: one line's inline part,
/// or whole lines.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct Room<'a> {
    start: NonNull<u8>,
    bytes: usize,
    exclusive: PhantomData<&'a mut [u8]>,
}

#[cfg(not(loom))]
impl<'a> Room<'a> {
    #[inline(always)]
    pub fn short(line: &'a CacheLine, bytes: usize) -> Self {
        debug_assert!(bytes <= INLINE_BYTES);
        let line = NonNull::from(line).cast::<u8>();
        Self {
            // SAFETY: 8 bytes into a line of 64.
            start: unsafe { line.add(8) },
            bytes,
            exclusive: PhantomData,
        }
    }

    #[inline]
    pub fn long(lines: &'a [CacheLine], bytes: usize) -> Self {
        assert!(lines.len() == lines_of(bytes));
        Self {
            start: NonNull::from(lines).cast(),
            bytes,
            exclusive: PhantomData,
        }
    }

    /// Its first byte.
    #[inline(always)]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Writes payload word `index`.
    pub fn set_word(&mut self, index: usize, value: u64) {
        self.bytes_mut()[8 * index..][..8].copy_from_slice(&value.to_ne_bytes());
    }

    /// The room itself.
    #[inline(always)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: so many bytes were there when it was made, in lines that
        // live for 'a. The producer has reserved them, so no well-behaved
        // process touches them until it commits; the cells of the lines allow
        // writing through what a `&CacheLine` gave.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

/// The same, with every word one of loom's.
#[cfg(loom)]
#[derive(Debug)]
pub(crate) struct Room<'a> {
    lines: &'a [CacheLine],
    /// Words before the payload.
    skip: usize,
    exclusive: PhantomData<&'a mut [u8]>,
}

#[cfg(loom)]
impl<'a> Room<'a> {
    pub fn short(line: &'a CacheLine, _: usize) -> Self {
        Self {
            lines: std::slice::from_ref(line),
            skip: 1,
            exclusive: PhantomData,
        }
    }

    pub fn long(lines: &'a [CacheLine], _: usize) -> Self {
        Self {
            lines,
            skip: 0,
            exclusive: PhantomData,
        }
    }

    pub fn set_word(&mut self, index: usize, value: u64) {
        let at = index + self.skip;
        self.lines[at / 8].words[at % 8].store(value, Ordering::Relaxed);
    }
}
