//! Receiving bursts: by which call, how many messages to ask for, and taking
//! coalesced ones apart.

use std::cell::Cell;
use std::os::fd::AsFd;

use portolan_sys::net::{Received, UdpSocket};
use portolan_sys::raw::Errno;

use super::direct::Direct;
use super::unreachable::may_be_earlier;
use super::{Udp, UdpCounters, broken};
use crate::{LinkAddress, LinkError, Looked, RxFrame};

/// Most messages in one call.
const BUFFERS: usize = 16;
/// Bytes of one buffer: the longest message, coalesced or not, is shorter.
const BUFFER_BYTES: usize = 65_536;
/// Bytes from one buffer to the next: somewhat more than its size, so that
/// the heads of all buffers do not share one set of the cache.
const BUFFER_STRIDE: usize = BUFFER_BYTES + 1_088;
/// After this many full calls in a row traffic may be dense: ask for a small batch,
/// and if it is full too, for large ones. Each message that is asked for costs some
/// 40 instructions, come or not.
const DENSE_CALLS: u32 = 2;
const SMALL_BATCH: usize = 2;
/// So many messages in one batch are more than a coincidence.
const BULK_MESSAGES: usize = 4;
/// A message up to this long is small: what it carries is latency, and
/// neither coalescing nor a congestion mark would help it.
const SMALL_BYTES: usize = 256;
/// So many calls with large or dense traffic, none of them long ago, are bulk:
/// a probe of the packet size or a few acknowledgements that have piled up
/// must not cost the messages after them their latency.
const BULK_CALLS: u32 = 3;
/// Looks without such traffic after which the calls before are long ago, and
/// looks that find few small messages after which the shortest call is taken again.
const SPARSE_CALLS: u32 = 64;

/// How the socket is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// Small messages come one by one: the kernel coalesces nothing, and the
    /// shortest call takes them, without traffic class.
    Plain,
    /// The kernel coalesces, and traffic classes are looked at.
    Whole,
    /// As `Whole`, but coalescing was switched off: what the kernel put
    /// together before may wait still.
    Draining,
}

/// Whether the kernel can coalesce. The first time is slow (the kernel
/// rewrites its code), so it happens here, at start; it is left off.
pub(super) fn probe_gro(socket: &UdpSocket) -> bool {
    socket
        .set_gro(true)
        .and_then(|()| socket.set_gro(false))
        .is_ok()
}

/// One socket, as it is read.
#[derive(Debug)]
pub(super) struct Port {
    pub socket: UdpSocket,
    /// A call has failed, maybe because of a packet that came back.
    pub failed: Cell<bool>,
    /// Calls in a row that gave as many messages as they asked for.
    dense_calls: u32,
}

impl Port {
    pub const fn new(socket: UdpSocket) -> Self {
        Self {
            socket,
            failed: Cell::new(false),
            dense_calls: 0,
        }
    }
}

/// What the sockets are to be set to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wishes {
    coalesce: bool,
    classes: bool,
}

/// The buffers, and how they are filled.
#[derive(Debug)]
pub(super) struct Reader {
    /// [`BUFFERS`] receive buffers, [`BUFFER_STRIDE`] apart; the kernel
    /// backs only what was ever written.
    memory: Box<[u8]>,
    received: [Received; BUFFERS],
    reading: Reading,
    /// Calls with large or dense traffic, while they are counted.
    bulk_calls: u32,
    /// Calls in a row since then that found few small messages or, unless
    /// `Whole` is read, nothing.
    thin_calls: u32,
    /// Frames in the last message.
    segments_last: usize,
    mmsg: bool,
}

impl Reader {
    pub fn new(mmsg: bool) -> Self {
        Self {
            memory: vec![0; BUFFERS * BUFFER_STRIDE].into_boxed_slice(),
            received: [Received::default(); BUFFERS],
            reading: Reading::Plain,
            bulk_calls: 0,
            thin_calls: 0,
            segments_last: 1,
            mmsg,
        }
    }

    /// Whether the kernel is to coalesce now, and to report traffic classes.
    pub fn wishes(&self) -> Wishes {
        Wishes {
            coalesce: self.reading == Reading::Whole,
            classes: self.reading != Reading::Plain,
        }
    }

    #[inline(never)]
    fn read(
        &mut self,
        port: &mut Port,
        counters: &mut UdpCounters,
        max: usize,
        sink: &mut impl FnMut(RxFrame<'_>),
    ) -> Result<usize, LinkError> {
        let wanted = self.messages_wanted(port, max);
        let count = match self.receive(port, counters, wanted) {
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => return Err(broken(errno)),
        };
        if count == 0 {
            port.dense_calls = 0;
            counters.rx_empty += 1;
            self.note_thin(0);
            return Ok(0);
        }
        Ok(self.hand_out(port, counters, wanted, count, sink))
    }

    /// Makes one look at a connected socket where small messages come one by one:
    /// no name, no batch, no control messages.
    #[inline]
    fn look(&mut self, direct: &mut Direct, counters: &mut UdpCounters) -> Looked<'_> {
        let Direct {
            port,
            to,
            is_drained,
        } = direct;
        if !*is_drained || self.reading != Reading::Plain || port.dense_calls >= DENSE_CALLS {
            return Looked::Unknown;
        }
        counters.rx_calls += 1;
        let got = (port.socket).receive_connected(&mut self.memory[..BUFFER_BYTES]);
        let len = match got {
            Ok(len) => len,
            Err(Errno::AGAIN) => {
                counters.rx_empty += 1;
                port.dense_calls = 0;
                self.note_thin(0);
                return Looked::Nothing;
            }
            // This call has taken the error; the next one reads messages.
            Err(_) => {
                port.failed.set(true);
                return Looked::Unknown;
            }
        };
        port.dense_calls += 1;
        self.segments_last = 1;
        if len > SMALL_BYTES {
            self.note_bulk();
        } else {
            self.note_thin(1);
        }
        // Longer than any of ours.
        let Some(bytes) = self.memory[..BUFFER_BYTES].get_mut(..len) else {
            return Looked::Nothing;
        };
        counters.rx_frames += 1;
        Looked::One(RxFrame {
            from: *to,
            bytes,
            ce: false,
            detour: false,
        })
    }

    /// Hands out the frames of `count` messages, of `wanted`; gives how many.
    #[inline(never)]
    fn hand_out(
        &mut self,
        port: &mut Port,
        counters: &mut UdpCounters,
        wanted: usize,
        count: usize,
        sink: &mut impl FnMut(RxFrame<'_>),
    ) -> usize {
        // Two of a batch are better than two calls.
        port.dense_calls = if count == wanted || count > 1 {
            port.dense_calls.saturating_add(1)
        } else {
            0
        };
        let large = self.received[..count]
            .iter()
            .any(|it| it.len > SMALL_BYTES || it.segment < it.len);
        if large || count >= BULK_MESSAGES {
            self.note_bulk();
        } else {
            self.note_thin(count);
        }

        let mut frames = 0;
        let buffers = self.memory.chunks_exact_mut(BUFFER_STRIDE);
        for (received, buffer) in self.received[..count].iter().zip(buffers) {
            if let Some(dropped) = received.dropped {
                counters.rx_dropped = dropped.into();
            }
            // Longer than any of ours.
            if received.truncated {
                continue;
            }
            let Received {
                ip, port, scope, ..
            } = *received;
            let from = LinkAddress { ip, port, scope };
            let ce = received.ce();
            let mut rest = &mut buffer[..received.len];
            let mut segments = 0;
            // An empty datagram is a frame too.
            loop {
                let (bytes, after) = rest.split_at_mut(received.segment.min(rest.len()));
                segments += 1;
                let detour = false;
                sink(RxFrame {
                    from,
                    bytes,
                    ce,
                    detour,
                });
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            frames += segments;
            self.segments_last = segments;
            counters.rx_frames += segments as u64;
            counters.rx_gro += u64::from(segments > 1);
        }
        frames
    }

    /// One message at a time while traffic is thin, for the cheapest empty
    /// look and the least latency; else as many as bring about `max` frames.
    fn messages_wanted(&self, port: &Port, max: usize) -> usize {
        if !self.mmsg || port.dense_calls < DENSE_CALLS {
            return 1;
        }
        let batch = if port.dense_calls == DENSE_CALLS {
            SMALL_BATCH
        } else {
            BUFFERS
        };
        (max / self.segments_last).clamp(1, batch)
    }

    fn receive(
        &mut self,
        port: &Port,
        counters: &mut UdpCounters,
        mut wanted: usize,
    ) -> Result<usize, Errno> {
        let socket = &port.socket;
        // Mostly: as short as it can be.
        if wanted == 1 && self.reading == Reading::Plain {
            counters.rx_calls += 1;
            match socket.receive_plain(&mut self.memory[..BUFFER_BYTES]) {
                Ok(received) => {
                    self.received[0] = received;
                    return Ok(1);
                }
                Err(Errno::AGAIN) => return Ok(0),
                Err(_) => port.failed.set(true),
            }
        }
        let mut retried = false;
        loop {
            counters.rx_calls += 1;
            let buffer = &mut self.memory[..BUFFER_BYTES];
            let result = if wanted > 1 {
                let out = &mut self.received[..wanted];
                socket.receive_many(&mut self.memory, BUFFER_STRIDE, out)
            } else {
                let one = if self.reading == Reading::Plain {
                    socket.receive_plain(buffer)
                } else {
                    socket.receive(buffer)
                };
                one.map(|received| {
                    self.received[0] = received;
                    1
                })
            };
            match result {
                // An ICMP error that some sent packet brought back: read, it
                // is gone, and it says nothing of what waits here.
                Err(errno) if !retried && may_be_earlier(errno) => {
                    retried = true;
                    port.failed.set(true);
                }
                // A filter that came later than the probe may refuse this call
                // alone.
                Err(Errno::PERM | Errno::ACCESS | Errno::NOSYS) if wanted > 1 => {
                    self.mmsg = false;
                    wanted = 1;
                }
                // Errors come as fast as they are read.
                Err(errno) if errno != Errno::ACCESS && may_be_earlier(errno) => return Ok(0),
                result => return result,
            }
        }
    }

    fn note_bulk(&mut self) {
        self.thin_calls = 0;
        self.bulk_calls += 1;
        if self.reading != Reading::Plain || self.bulk_calls >= BULK_CALLS {
            self.reading = Reading::Whole;
            self.bulk_calls = 0;
        }
    }

    /// Notes a call that found few small messages, or none.
    fn note_thin(&mut self, found: usize) {
        // A pause says nothing of what comes after it.
        if self.reading == Reading::Whole && found == 0 {
            return;
        }
        self.thin_calls += 1;
        if self.thin_calls < SPARSE_CALLS {
            return;
        }
        self.thin_calls = 0;
        match self.reading {
            Reading::Plain => self.bulk_calls = 0,
            Reading::Whole => self.reading = Reading::Draining,
            // Should a coalesced message have been under way in the kernel
            // all that time, it is taken for one frame, does not verify, and
            // counts as lost.
            Reading::Draining => self.reading = Reading::Plain,
        }
    }
}

impl Udp {
    /// Makes one quick look, where all that is usual is a small message of the peer that has a
    /// socket of its own.
    #[inline]
    pub fn receive_one(&mut self) -> Looked<'_> {
        let has_failed = self.has_failed();
        let Some(direct) = &mut self.direct else {
            return Looked::Unknown;
        };
        let choice = &self.choice;
        if has_failed || choice.main_is_due(self.now) || choice.chosen().is_some() {
            return Looked::Unknown;
        }
        self.reader.look(direct, &mut self.counters)
    }

    #[inline]
    pub(super) fn receive_burst(
        &mut self,
        max: usize,
        mut sink: impl FnMut(RxFrame<'_>),
    ) -> Result<usize, LinkError> {
        let mut frames = 0;
        if let Some(direct) = &mut self.direct {
            let counters = &mut self.counters;
            let empty = counters.rx_empty;
            frames = (self.reader).read(&mut direct.port, counters, max, &mut sink)?;
            direct.is_drained |= counters.rx_empty > empty;
        }
        let direct_empty = frames == 0;
        if self.direct.is_none() || self.choice.main_is_due(self.now) {
            let (port, counters) = (&mut self.main, &mut self.counters);
            let found = self.reader.read(port, counters, max, &mut sink)?;
            self.choice.looked_at_main(self.now, found > 0);
            frames += found;
        }
        if self.reader.wishes() != self.wishes {
            self.grant_wishes();
        }
        // The old one is empty at this moment, so that nothing is lost.
        if direct_empty && self.choice.chosen().is_some() {
            self.open_direct();
        }
        Ok(frames)
    }

    #[cold]
    fn open_direct(&mut self) {
        // Closed first: two may share the port, not three.
        self.direct = None;
        let opened = self.choice.open(&self.main.socket, &self.options);
        let Some(direct) = opened else { return };
        if !grant(&direct.port.socket, self.gro, self.reader.wishes())
            || self.bell.add(direct.port.socket.as_fd()).is_err()
        {
            return;
        }
        self.direct = Some(direct);
    }

    #[cold]
    fn grant_wishes(&mut self) {
        let wishes = self.reader.wishes();
        self.wishes = wishes;
        let direct = self.direct.as_ref().map(|direct| &direct.port.socket);
        let granted = std::iter::once(&self.main.socket)
            .chain(direct)
            .all(|socket| grant(socket, self.gro, wishes));
        // Frames may then still come coalesced, and are taken apart as ever.
        self.gro &= granted;
    }
}

/// False if the kernel does not do as asked.
fn grant(socket: &UdpSocket, gro: bool, wishes: Wishes) -> bool {
    let classes = socket.report_class(wishes.classes).is_ok();
    let coalesce = !gro || socket.set_gro(wishes.coalesce).is_ok();
    classes && coalesce
}
