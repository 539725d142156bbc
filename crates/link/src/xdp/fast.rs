//! The fast path itself: a socket on a queue, its rings and its chunks. When
//! the last of it is dropped the kernel steers to the UDP socket.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use portolan_ring::{BATCH, Corrupt, Descriptor, KernelConsumer, KernelProducer};
use portolan_sys::memory::{SharedMemory, prefetch};
use portolan_sys::raw::Errno;
use portolan_sys::xdp::{self, PACKET_HEADROOM, Rings, Sizes, XdpError};

use super::XdpCounters;
use super::chunks::{BUFFERS_MAX, Chunks};
use super::multi_buffer::MultiBuffer;
use super::packet::{Template, parse};
use super::queue_lock::{QueueLock, Sharing, Turn, memory_bytes};
use crate::{RxFrame, TxFrame};

/// Calls in a row that may leave packets in the ring.
const KICKS_MAX: u32 = 64;

/// QueueLock that are waited for until the kernel has sent all that it was given.
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
    chunks: Chunks,
    rx: KernelConsumer,
    tx: KernelProducer,
    queue_lock: QueueLock,
    /// Where a packet may lie in several chunks: those that arrive so.
    multi_buffer: Option<MultiBuffer>,
    /// Packets of full length that are kept until the next look.
    rx_full: usize,
    /// Packets are in the ring that the kernel has yet to take.
    owed: bool,
    /// Where the next packet is likely to lie: chunks mostly come in their order.
    next_at: u64,
}

impl Fast {
    /// Maps what belongs to `socket`, and to `first` where neither is bound yet.
    /// `several`: a packet may lie in several chunks, and has up to so many
    /// bytes.
    ///
    /// # Errors
    /// [`XdpError`].
    pub fn map(
        area: OwnedFd,
        socket: OwnedFd,
        first: Option<BorrowedFd<'_>>,
        sizes: &Sizes,
        sharing: Sharing,
        several: Option<usize>,
    ) -> Result<Self, XdpError> {
        let bytes = memory_bytes(sizes, sharing).ok_or(XdpError::Sizes)?;
        let area = SharedMemory::from_fd(area, Some(bytes)).map_err(XdpError::Memory)?;
        let chunks = Chunks::new(area, sizes, sharing.count > 1).ok_or(XdpError::Sizes)?;
        let rings = Rings::map(socket.as_fd(), first, sizes)?;
        let mut queue_lock = QueueLock::new(rings.fill, rings.completion, sizes, sharing);
        queue_lock.begin(chunks.memory());
        let rx_full = match several {
            None => queue_lock.rx_chunks(),
            Some(bytes) => {
                let each = bytes.div_ceil((sizes.chunk - PACKET_HEADROOM) as usize);
                queue_lock.rx_chunks().min(sizes.rx as usize) / each.max(1)
            }
        };
        Ok(Self {
            socket,
            chunks,
            rx: KernelConsumer::new(rings.rx),
            tx: KernelProducer::new(rings.tx),
            queue_lock,
            multi_buffer: several.map(MultiBuffer::new),
            rx_full,
            owed: false,
            next_at: 0,
        })
    }

    /// Readable when something has arrived.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Packets that are kept until the next look: of full length, and of one
    /// chunk.
    pub fn rx_packets(&self) -> (usize, usize) {
        (self.rx_full, self.queue_lock.rx_chunks())
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

    /// Puts a frame into the ring. It leaves after [`Self::submit`].
    #[inline]
    pub fn put(&mut self, headers: &Template, frame: &TxFrame<'_>, now: u64) -> Put {
        let number = match self.chunk_to_send(now) {
            Ok(Some(number)) => number,
            Ok(None) => return Put::Full,
            Err(failed) => return Put::Failed(failed),
        };
        let at = self.chunks.offset(number);
        let write = |packet: &mut [u8]| headers.write(packet, frame.bytes, frame.ecn);
        let written = self.chunks.fill(at, write);
        match written {
            None if self.multi_buffer.is_some() => self.put_over_several(headers, frame, now),
            None => Put::TooBig,
            Some(len) if self.put_again(number, len as u32) => Put::Done,
            Some(_) => Put::Full,
        }
    }

    /// Puts a frame that one chunk does not hold into the ring. The kernel never
    /// sees a part of it alone: all are there before [`Self::submit`].
    #[inline(never)]
    fn put_over_several(&mut self, headers: &Template, frame: &TxFrame<'_>, now: u64) -> Put {
        let len = headers.len() + frame.bytes.len();
        let mut numbers = [0; BUFFERS_MAX];
        let Some(numbers) = numbers.get_mut(..len.div_ceil(self.chunks.size())) else {
            return Put::TooBig;
        };
        match self.chunks_to_send(numbers, now) {
            Ok(true) => {}
            Ok(false) => return Put::Full,
            Err(failed) => return Put::Failed(failed),
        }
        if self.chunks.lay(headers, frame, numbers).is_none() {
            return Put::TooBig;
        }
        if !self.tx.put_all(self.chunks.chain(numbers, len)) {
            return Put::Full;
        }
        for number in numbers {
            self.queue_lock.send(self.chunks.memory(), *number);
        }
        Put::Done
    }

    /// Puts the packet of `len` bytes that a chunk holds into the ring; false
    /// if it is full.
    #[inline]
    pub fn put_again(&mut self, number: u32, len: u32) -> bool {
        let put = self.tx.put(Descriptor {
            address: self.chunks.offset(number),
            len,
            options: 0,
        });
        if put {
            self.queue_lock.send(self.chunks.memory(), number);
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
            match self.queue_lock.all_to_send(self.chunks.memory()) {
                Some(numbers) => break numbers,
                None if tries == FILL_TRIES => return None,
                None => tries += 1,
            }
            std::thread::yield_now();
        };
        let mut len = 0;
        for number in numbers {
            let at = self.chunks.offset(number);
            let write = |packet: &mut [u8]| headers.write(packet, payload, false);
            len = self.chunks.fill(at, write)?;
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
        let found = self.queue_lock.chunk_to_send(self.chunks.memory());
        if found.is_some() {
            return Ok(found);
        }
        self.take_turn(now)?;
        Ok(self.queue_lock.chunk_to_send(self.chunks.memory()))
    }

    /// Several, as many as `found` takes; false if there are fewer.
    fn chunks_to_send(&mut self, found: &mut [u32], now: u64) -> Result<bool, Failed> {
        if self.queue_lock.chunks_to_send(self.chunks.memory(), found) {
            return Ok(true);
        }
        self.take_turn(now)?;
        Ok(self.queue_lock.chunks_to_send(self.chunks.memory(), found))
    }

    /// Gives back chunks for what arrives, and takes back those whose packets
    /// have left.
    #[cold]
    fn take_turn(&mut self, now: u64) -> Result<(), Failed> {
        match self.queue_lock.take(self.chunks.memory(), now) {
            Turn::Done { wake: true } => {
                // Only what could not be filled would be lost.
                let _ = xdp::wake(self.socket.as_fd());
                Ok(())
            }
            Turn::Done { .. } | Turn::Later => Ok(()),
            Turn::Never => Err(Failed::ForGood),
        }
    }

    /// Nothing has come for a while. Where nothing can, since no chunk waits for
    /// it, whoever holds the rings may be stopped: a turn tells, which otherwise
    /// is taken only by those who receive.
    pub fn look_after(&mut self, now: u64) -> Result<(), Failed> {
        if !matches!(self.rx.look(), Ok(0)) || !self.queue_lock.is_drained() {
            return Ok(());
        }
        self.take_turn(now)?;
        if self.queue_lock.may_recover(now) {
            Ok(())
        } else {
            Err(Failed::ForGood)
        }
    }

    /// Has the kernel send what is in the ring.
    #[inline]
    pub fn kick(&mut self) -> Result<(), Failed> {
        if !self.tx.needs_wakeup() {
            self.owed = false;
            return Ok(());
        }
        for _ in 0..KICKS_MAX {
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

    /// Whether nothing has arrived.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        matches!(self.rx.waiting(), Ok(0))
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
        // Another core has just written descriptor and packet: both are asked for at once.
        self.chunks.prefetch(self.next_at);
        let (mut taken, mut shown, mut bytes) = (0, 0, 0);
        // A packet counts once, however many parts it has.
        let mut most = max;
        while taken < most
            && let Some(descriptor) = self.rx.take()
        {
            taken += 1;
            let at = descriptor.address;
            self.next_at = at.wrapping_add(self.chunks.size() as u64);
            let Some(mut packet) = self.chunks.arrived(at, descriptor.len as usize) else {
                // Not a chunk: it cannot be given back either.
                return (shown, Some(Failed::ForNow));
            };
            prefetch(packet);
            if let Some(multi_buffer) = &mut self.multi_buffer {
                let is_last = descriptor.options & Descriptor::CONTINUED == 0;
                let Some(whole) = multi_buffer.add(packet, is_last) else {
                    most = most.saturating_add(1);
                    self.queue_lock.keep(self.chunks.number(at));
                    continue;
                };
                packet = whole;
            }
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
            self.queue_lock.keep(self.chunks.number(at));
        }
        self.rx.release();
        counters.rx_frames += shown as u64;
        counters.rx_bytes += bytes as u64;
        // A turn moves so many at most.
        for _ in 0..taken.div_ceil(BATCH) {
            if self.queue_lock.is_due()
                && let Err(how) = self.take_turn(now)
            {
                return (shown, Some(how));
            }
        }
        (shown, None)
    }
}

impl Drop for Fast {
    /// Chunks that nobody has read are given back, for who has the part next.
    fn drop(&mut self) {
        if self.rx.waiting().is_ok() {
            while let Some(Descriptor { address, len, .. }) = self.rx.take() {
                if self.chunks.arrived(address, len as usize).is_some() {
                    self.queue_lock.keep(self.chunks.number(address));
                }
            }
            self.rx.release();
        }
        self.queue_lock.settle(self.chunks.memory());
    }
}
