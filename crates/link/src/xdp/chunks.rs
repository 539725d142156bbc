//! The chunks of a packet area, and packets that lie in several of them.

use std::ptr::NonNull;

use portolan_ring::Descriptor;
use portolan_sys::memory::{SharedMemory, prefetch_line};
use portolan_sys::xdp::{PACKET_HEADROOM, Sizes};

use super::packet::{ETHERNET, Template};
use crate::TxFrame;

/// Most chunks of one packet: the least that drivers take which do not copy
/// (five; the kernel itself takes 18).
pub(super) const BUFFERS_MAX: usize = 5;

/// Longest IP packet that a host port has room for, bytes: in a chunk behind the
/// kernel's headroom and Ethernet's header, or, where a packet may lie in
/// several, in as many as the interface's MTU takes.
#[must_use]
pub const fn packet_max(chunk: u32, mtu: u32, multi_buffer: bool) -> u32 {
    let room = chunk.saturating_sub(PACKET_HEADROOM);
    let ethernet = ETHERNET as u32;
    if !multi_buffer {
        return room.saturating_sub(ethernet);
    }
    let most = room.saturating_mul(BUFFERS_MAX as u32);
    let most = most.saturating_sub(ethernet);
    if mtu < most { mtu } else { most }
}

/// The memory that holds them.
#[derive(Debug)]
pub(super) struct Chunks {
    memory: SharedMemory,
    /// Bytes of all of them, from its beginning on.
    all: usize,
    /// Bytes of one: a power of two.
    size: usize,
    /// A chunk's worth of our own, where others have the memory too.
    own: Option<Box<[u8]>>,
}

impl Chunks {
    /// `None` if the memory is smaller than that. `shared`: other processes have
    /// it too, and may write anywhere at any time.
    pub fn new(memory: SharedMemory, sizes: &Sizes, shared: bool) -> Option<Self> {
        let all = sizes.area_bytes().filter(|all| *all <= memory.bytes())?;
        Some(Self {
            memory,
            all,
            size: sizes.chunk as usize,
            own: shared.then(|| vec![0; sizes.chunk as usize].into()),
        })
    }

    /// All of the memory, what stands behind the chunks too.
    #[inline]
    pub fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// Bytes of a chunk.
    #[inline]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Where chunk `number` begins.
    #[inline]
    pub fn offset(&self, number: u32) -> u64 {
        u64::from(number) * self.size as u64
    }

    /// The chunk in which `at` lies, which [`Self::arrived`] has found to be one.
    #[inline]
    pub fn number(&self, at: u64) -> u32 {
        (at >> self.size.trailing_zeros()) as u32
    }

    /// Where the bytes of the area from `at` lie, `len` of them within one chunk;
    /// `None` if they are not.
    #[inline]
    fn place(&self, at: u64, len: usize) -> Option<NonNull<u8>> {
        let at = usize::try_from(at).ok()?;
        let within = at & (self.size - 1);
        if at >= self.all || len > self.size - within {
            return None;
        }
        // SAFETY: the range lies within the mapping, which lives as long as
        // `self`.
        Some(unsafe { self.memory.start().add(at) })
    }

    /// What has arrived at `at`, `len` bytes within one chunk; `None` if they are
    /// not. It stays as it is until the caller changes it: what others could
    /// write is copied first.
    #[inline]
    pub fn arrived(&mut self, at: u64, len: usize) -> Option<&mut [u8]> {
        let place = self.place(at, len)?;
        if let Some(own) = &mut self.own {
            let own = own.get_mut(..len)?;
            // SAFETY: `place` has so many bytes, and `own` is elsewhere. No
            // reference to the area is made: others may write it meanwhile.
            unsafe { place.copy_to_nonoverlapping(NonNull::from(&mut *own).cast(), len) };
            return Some(own);
        }
        // SAFETY: `place` has so many bytes, which only we and the kernel have. It
        // writes only to chunks in the fill ring and reads only from those in the
        // transmit ring, and callers name neither. No other slice of the chunks
        // exists: this one borrows `self`.
        Some(unsafe { NonNull::slice_from_raw_parts(place, len).as_mut() })
    }

    /// Asks for the line at `at`, if there is one.
    #[inline]
    pub fn prefetch(&self, at: u64) {
        if let Some(place) = self.place(at, 1) {
            prefetch_line(place);
        }
    }

    /// Has `write` write a packet, or a part of one, to the chunk at `at`; gives
    /// what that gave, the number of bytes. `None` where there is no chunk, too.
    #[inline]
    pub fn fill(
        &mut self,
        at: u64,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> Option<usize> {
        let place = self.place(at, self.size)?;
        let Some(own) = &mut self.own else {
            return write(self.arrived(at, self.size)?);
        };
        let len = write(own)?;
        let written = NonNull::from(own.get(..len)?).cast();
        // SAFETY: `place` has a chunk's bytes, as `own`, which is elsewhere. No
        // reference to the area is made: others may write it meanwhile.
        unsafe { place.copy_from_nonoverlapping(written, len) };
        Some(len)
    }

    /// Lays a packet that one chunk does not hold over the chunks `numbers`;
    /// gives its length, or `None` if they are not as many as it takes.
    pub fn lay(
        &mut self,
        headers: &Template,
        frame: &TxFrame<'_>,
        numbers: &[u32],
    ) -> Option<usize> {
        let (first, others) = numbers.split_first()?;
        let (at, size) = (self.offset(*first), self.size);
        let here = size.checked_sub(headers.len())?;
        let (_, rest) = frame.bytes.split_at_checked(here)?;
        self.fill(at, |packet| {
            headers.write_beginning(packet, frame.bytes, here, frame.ecn)?;
            Some(size)
        })?;
        let mut parts = rest.chunks(size);
        for number in others {
            let part = parts.next()?;
            self.fill(self.offset(*number), |chunk| {
                chunk.get_mut(..part.len())?.copy_from_slice(part);
                Some(part.len())
            })?;
        }
        let len = headers.len() + frame.bytes.len();
        parts.next().is_none().then_some(len)
    }

    /// How the kernel is told of a packet of `len` bytes that [`Self::lay`] has
    /// laid over the chunks `numbers`.
    pub fn chain(&self, numbers: &[u32], len: usize) -> impl ExactSizeIterator<Item = Descriptor> {
        let last = numbers.len() - 1;
        numbers.iter().enumerate().map(move |(n, number)| {
            let (len, options) = if n == last {
                (len - n * self.size, 0)
            } else {
                (self.size, Descriptor::CONTINUED)
            };
            Descriptor {
                address: self.offset(*number),
                len: len as u32,
                options,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::{Ends, parse};
    use super::*;
    use crate::LinkAddress;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    const CHUNK: usize = 2_048;
    const PORT: u16 = 7_000;

    fn chunks(shared: bool) -> Chunks {
        let sizes = Sizes {
            chunk: CHUNK as u32,
            chunks: 8,
            rx: 2,
            tx: 2,
            fill: 2,
            completion: 2,
        };
        let memory = SharedMemory::create("portolan-test", 8 * CHUNK).unwrap();
        Chunks::new(memory, &sizes, shared).unwrap()
    }

    fn headers() -> [Template; 2] {
        let (v4, v6) = (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
        [IpAddr::V4(v4), IpAddr::V6(v6)].map(|ip| {
            let ends = Ends {
                from_mac: [2, 0, 0, 0, 0, 1],
                to_mac: [2, 0, 0, 0, 0, 2],
                from: ip,
                to: ip,
                from_port: 1,
                to_port: PORT,
            };
            Template::new(&ends).unwrap()
        })
    }

    fn frame(bytes: &[u8]) -> TxFrame<'_> {
        TxFrame {
            to: LinkAddress::default(),
            bytes,
            ecn: true,
        }
    }

    #[test]
    fn a_packet_over_several_chunks_is_the_packet_in_one() {
        let mut chunks = chunks(true);
        let payload: Vec<u8> = (0..4 * CHUNK).map(|n| (n * 31 + n / 255) as u8).collect();
        for headers in headers() {
            let first = CHUNK - headers.len();
            // Just beyond one chunk, at and beyond the end of others, odd and even.
            for len in [
                first + 1,
                first + 2,
                first + CHUNK,
                first + CHUNK + 1,
                4 * CHUNK - 62,
            ] {
                let frame = frame(&payload[..len]);
                let mut whole = vec![0; 5 * CHUNK];
                let end = headers.write(&mut whole, frame.bytes, frame.ecn).unwrap();
                // Neither neighbours nor in order.
                let numbers = &[6, 1, 3, 2][..end.div_ceil(CHUNK)];
                assert_eq!(chunks.lay(&headers, &frame, numbers), Some(end));
                let chain: Vec<_> = chunks.chain(numbers, end).collect();
                let mut joined = Vec::new();
                for (n, part) in chain.iter().enumerate() {
                    let goes_on = part.options == Descriptor::CONTINUED;
                    assert_eq!(goes_on, n + 1 < chain.len(), "{len} {part:?}");
                    assert!(part.len > 0 && chunks.number(part.address) == numbers[n]);
                    joined.extend_from_slice(
                        chunks.arrived(part.address, part.len as usize).unwrap(),
                    );
                }
                assert_eq!(joined, whole[..end], "{len}");
                let found = parse(&joined, PORT).unwrap();
                assert_eq!(joined[found.start..found.end], *frame.bytes);
                // As many as it takes, and no more.
                assert_eq!(chunks.lay(&headers, &frame, &numbers[1..]), None);
                assert_eq!(chunks.lay(&headers, &frame, &[6, 1, 3, 2, 4]), None);
            }
        }
    }

    #[test]
    fn what_others_write_changes_no_packet_that_arrived() {
        let mut chunks = chunks(true);
        let area = chunks.memory().duplicate_fd().unwrap();
        let other = SharedMemory::from_fd(area, None).unwrap();
        let write = |chunk: &mut [u8]| {
            chunk[..4].fill(1);
            Some(4)
        };
        assert_eq!(chunks.fill(0, write), Some(4));
        let packet = chunks.arrived(0, 4).unwrap();
        // SAFETY: it is mapped, and no reference to it exists.
        unsafe { other.start().write_bytes(2, 4) };
        assert_eq!(std::hint::black_box(packet), [1; 4]);
        assert_eq!(chunks.arrived(0, 4).unwrap(), [2; 4]);
    }

    #[test]
    fn nothing_beyond_a_chunk_is_reached() {
        let mut chunks = chunks(false);
        let size = CHUNK as u64;
        assert!(chunks.arrived(7 * size, CHUNK).is_some());
        assert!(chunks.arrived(8 * size - 1, 1).is_some());
        for (at, len) in [
            (8 * size, 1),
            (8 * size, 0),
            (7 * size + 1, CHUNK),
            (256, CHUNK - 255),
            (u64::MAX, 1),
            (0, usize::MAX),
        ] {
            assert!(chunks.arrived(at, len).is_none(), "{at} {len}");
        }
    }

    #[test]
    fn the_longest_packet_is_that_of_a_chunk_or_of_the_interface() {
        assert_eq!(packet_max(2_048, 1_500, false), 1_778);
        assert_eq!(packet_max(4_096, 9_000, false), 3_826);
        assert_eq!(packet_max(4_096, 9_000, true), 9_000);
        assert_eq!(packet_max(4_096, u32::MAX, true), 5 * 3_840 - 14);
        assert_eq!(packet_max(0, 9_000, true), 0);
    }
}
