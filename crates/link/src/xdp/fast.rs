//! The fast path itself: a socket on a queue, its rings and its chunks. When
//! the last of it is dropped the kernel steers to the UDP socket.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use portolan_ring::{BATCH, Corrupt, Descriptor, KernelConsumer, KernelProducer};
use portolan_sys::memory::{SharedMemory, prefetch};
use portolan_sys::raw::Errno;
use portolan_sys::xdp::{self, Rings, Sizes, XdpError};

use super::XdpCounters;
use super::packet::{Template, parse};
use super::turns::{Sharing, Turn, Turns, memory_bytes};
use crate::{RxFrame, TxFrame};

/// Calls in a row that may leave packets in the ring.
const KICKS_MAX: u32 = 64;

/// Turns that are waited for until the kernel has sent all that it was given.
const FILL_TRIES: u32 = 100_000;

/// How a frame was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    Done,
    Full,
    TooBig,
    Failed(Failed),
}

/// What has become of the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// It may work again.
    ForNow,
    /// What all at the queue need will not be free again.
    ForGood,
}

#[derive(Debug)]
pub(super) struct Fast {
    socket: OwnedFd,
    area: SharedMemory,
    /// Bytes of it that are chunks.
    chunks_bytes: usize,
    chunk: usize,
    rx: KernelConsumer,
    tx: KernelProducer,
    turns: Turns,
    /// Packets are in the ring that the kernel has yet to take.
    owed: bool,
}

impl Fast {
    /// Maps what belongs to `socket`.
    ///
    /// # Errors
    /// [`XdpError`].
    pub fn map(
        area: OwnedFd,
        socket: OwnedFd,
        sizes: &Sizes,
        sharing: Sharing,
    ) -> Result<Self, XdpError> {
        let bytes = memory_bytes(sizes, sharing).ok_or(XdpError::Sizes)?;
        let area = SharedMemory::from_fd(area, Some(bytes)).map_err(XdpError::Memory)?;
        let rings = Rings::map(socket.as_fd(), sizes)?;
        let mut turns = Turns::new(rings.fill, rings.completion, sizes, sharing);
        turns.begin(&area);
        Ok(Self {
            socket,
            area,
            chunks_bytes: sizes.area_bytes().ok_or(XdpError::Sizes)?,
            chunk: sizes.chunk as usize,
            rx: KernelConsumer::new(rings.rx),
            tx: KernelProducer::new(rings.tx),
            turns,
            owed: false,
        })
    }

    /// Readable when something has arrived.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Chunks that we brought along for what arrives.
    pub fn rx_chunks(&self) -> usize {
        self.turns.rx_chunks()
    }

    /// Whether the kernel has yet to take packets.
    #[inline]
    pub fn is_owed(&self) -> bool {
        self.owed
    }

    /// The kernel is to be called for what it has not taken.
    pub fn owe_pending(&mut self) {
        self.owed |= self.tx.pending() > 0;
    }

    /// Packets in the ring that the kernel has not taken.
    pub fn pending(&self) -> u32 {
        self.tx.pending()
    }

    /// The bytes of the area from `at`, `len` of them within one chunk; `None`
    /// if they are not.
    #[inline]
    fn bytes(&mut self, at: u64, len: usize) -> Option<&mut [u8]> {
        let at = usize::try_from(at).ok()?;
        let within = at % self.chunk;
        if at >= self.chunks_bytes || len > self.chunk - within {
            return None;
        }
        // SAFETY: the range lies within the mapping, which lives as long as
        // `self`. The kernel writes only to chunks in the fill ring and reads
        // only from those in the transmit ring, and callers name neither, nor
        // chunks of another process. No other slice of the chunks exists: this
        // one borrows `self`.
        Some(unsafe { std::slice::from_raw_parts_mut(self.area.start().as_ptr().add(at), len) })
    }

    #[inline]
    fn offset(&self, chunk: u32) -> u64 {
        u64::from(chunk) * self.chunk as u64
    }

    /// Puts a frame into the ring. It leaves after [`Self::submit`].
    #[inline]
    pub fn put(&mut self, headers: &Template, frame: &TxFrame<'_>, now: u64) -> Put {
        let number = match self.chunk_to_send(now) {
            Ok(Some(number)) => number,
            Ok(None) => return Put::Full,
            Err(failed) => return Put::Failed(failed),
        };
        let (at, chunk) = (self.offset(number), self.chunk);
        let written = self
            .bytes(at, chunk)
            .and_then(|packet| headers.write(packet, frame.bytes, frame.ecn));
        match written {
            None => Put::TooBig,
            Some(len) if self.put_again(number, len as u32) => Put::Done,
            Some(_) => Put::Full,
        }
    }

    /// Puts the packet of `len` bytes that a chunk holds into the ring; false
    /// if it is full.
    #[inline]
    pub fn put_again(&mut self, number: u32, len: u32) -> bool {
        let put = self.tx.put(Descriptor {
            address: self.offset(number),
            len,
            options: 0,
        });
        if put {
            self.turns.send(&self.area, number);
        }
        put
    }

    /// Writes a packet into all of our chunks that are sent from, once the kernel
    /// has none of them; gives its length.
    pub fn fill_all(&mut self, headers: &Template, payload: &[u8], now: u64) -> Option<usize> {
        // One that came back later would leave with what it held before.
        let mut tries = 0;
        let numbers = loop {
            self.take_turn(now).ok()?;
            match self.turns.all_to_send(&self.area) {
                Some(numbers) => break numbers,
                None if tries == FILL_TRIES => return None,
                None => tries += 1,
            }
            std::thread::yield_now();
        };
        let (mut len, chunk) = (0, self.chunk);
        for number in numbers {
            let packet = self.bytes(self.offset(number), chunk)?;
            len = headers.write(packet, payload, false)?;
        }
        Some(len)
    }

    /// Shows the kernel what was put into the ring.
    #[inline]
    pub fn submit(&mut self) {
        self.tx.submit();
        self.owed = true;
    }

    /// A chunk of ours that nobody uses.
    #[inline]
    pub fn chunk_to_send(&mut self, now: u64) -> Result<Option<u32>, Failed> {
        let found = self.turns.chunk_to_send(&self.area);
        if found.is_some() {
            return Ok(found);
        }
        self.take_turn(now)?;
        Ok(self.turns.chunk_to_send(&self.area))
    }

    /// Gives back chunks for what arrives, and takes back those whose packets
    /// have left.
    #[cold]
    fn take_turn(&mut self, now: u64) -> Result<(), Failed> {
        match self.turns.take(&self.area, now) {
            Turn::Done { wake: true } => {
                // Only what could not be filled would be lost.
                let _ = xdp::wake(self.socket.as_fd());
                Ok(())
            }
            Turn::Done { .. } | Turn::Later => Ok(()),
            Turn::Never => Err(Failed::ForGood),
        }
    }

    /// Has the kernel send what is in the ring.
    #[inline]
    pub fn kick(&mut self, counters: &mut XdpCounters) -> Result<(), Failed> {
        if !self.tx.needs_wakeup() {
            self.owed = false;
            return Ok(());
        }
        for _ in 0..KICKS_MAX {
            counters.tx_calls += 1;
            match xdp::kick(self.socket.as_fd()) {
                Ok(()) => {
                    self.owed = false;
                    return Ok(());
                }
                // A batch has left, or its first packet was dropped below.
                Err(Errno::AGAIN | Errno::BUSY | Errno::INTR) => {}
                Err(Errno::NOBUFS | Errno::NOMEM) => return Ok(()),
                Err(_) => return Err(Failed::ForNow),
            }
            if self.tx.pending() == 0 {
                self.owed = false;
                break;
            }
        }
        Ok(())
    }

    /// Shows what has arrived for `port`, at most `max` frames; gives how many
    /// that was, and what failed thereby.
    #[inline]
    pub fn receive(
        &mut self,
        port: u16,
        max: usize,
        now: u64,
        counters: &mut XdpCounters,
        sink: &mut impl FnMut(RxFrame<'_>),
    ) -> (usize, Option<Failed>) {
        match self.rx.waiting() {
            Ok(0) => return (0, None),
            Ok(_) => {}
            Err(Corrupt) => return (0, Some(Failed::ForNow)),
        }
        let (mut taken, mut shown, mut bytes) = (0, 0, 0);
        while taken < max
            && let Some(descriptor) = self.rx.take()
        {
            taken += 1;
            let at = descriptor.address;
            let Some(packet) = self.bytes(at, descriptor.len as usize) else {
                // Not a chunk: it cannot be given back either.
                return (shown, Some(Failed::ForNow));
            };
            prefetch(packet);
            if let Some(found) = parse(packet, port) {
                shown += 1;
                bytes += found.end - found.start;
                sink(RxFrame {
                    from: found.from,
                    bytes: &mut packet[found.start..found.end],
                    ce: found.ce,
                    detour: false,
                });
            } else {
                counters.rx_strange += 1;
            }
            self.turns.keep((at / self.chunk as u64) as u32);
        }
        self.rx.release();
        counters.rx_frames += shown as u64;
        counters.rx_bytes += bytes as u64;
        // A turn moves so many at most.
        for _ in 0..taken.div_ceil(BATCH) {
            if self.turns.is_due()
                && let Err(how) = self.take_turn(now)
            {
                return (shown, Some(how));
            }
        }
        (shown, None)
    }
}
