//! The link `xdp`: packets past the kernel's network stack, by an AF_XDP
//! socket on one queue of one interface, which may be shared with other
//! processes of a job.
//!
//! It carries the same UDP packets as the link `udp`, whose socket at the same
//! port it keeps: what is not steered to the fast path arrives there, and who
//! cannot be reached by it is sent to from there. So both links talk to each
//! other, and nothing that is lost of the fast path loses a packet's content.

mod bare;
mod chunks;
mod fast;
mod gate;
mod multi_buffer;
mod packet;
mod poll_cadence;
mod port;
mod queue_lock;
mod route_cache;

#[cfg(feature = "properties")]
pub use packet::headers_travel;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use portolan_sys::epoll::Epoll;
use portolan_sys::net::BindError;
use portolan_sys::raw::Errno;
use portolan_sys::xdp;
pub use portolan_sys::xdp::{Sizes, XdpError};

pub use self::bare::Bare;
pub use self::chunks::packet_max;
use self::fast::{Failed, Fast, Put};
pub use self::gate::{GATE_COUNTERS, GATE_WORDS, Gate, GateCounters};
use self::packet::{ETHERNET, HEADERS_V6};
pub use self::poll_cadence::PollCadence;
pub use self::port::SourcePort;
pub use self::queue_lock::{SHARES_MAX, Sharing, memory_bytes, sizes};
use self::route_cache::{Own, RouteCache};
use crate::bell::Bell;
use crate::udp::{ReceiveCapacity, Udp, UdpConfig, UdpCounters};
use crate::{Capabilities, Link, LinkAddress, LinkError, Looked, RxFrame, TxFrame};

/// A fast path that failed is tried again after this, ns; sooner when the
/// network changes.
const RETRY_NS: u64 = 10_000_000;
/// So many frames of one length for one peer are a stream: the kernel takes
/// them in one segmented unit for less than the fast path takes one by one,
/// unless the driver copies nothing.
const STREAM_FRAMES: usize = 8;
/// Least length of such frames, bytes.
const STREAM_BYTES: usize = 1_024;

/// A host port as its opener passes it on. Whoever has these descriptors needs
/// no privilege.
#[derive(Debug)]
pub struct HostPort {
    /// The packet area and the words about it: a sealed memfd.
    pub area: OwnedFd,
    /// The AF_XDP socket.
    pub socket: OwnedFd,
    /// The socket whose fill and completion ring all at the queue have in common,
    /// where neither is bound yet: see [`Xdp::set_bound`].
    pub first: Option<OwnedFd>,
    /// The UDP socket at the port whose packets are steered.
    pub udp: OwnedFd,
    /// What it shares with the program that steers them.
    pub gate: OwnedFd,
    /// How large area and rings are.
    pub sizes: Sizes,
    /// Which part of the queue it has.
    pub sharing: Sharing,
    /// A packet may lie in several chunks.
    pub multi_buffer: bool,
    /// Index of the interface.
    pub interface: u32,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Its MTU, bytes of an IP packet.
    pub mtu: u32,
}

/// Why a host port cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdoptError {
    /// The AF_XDP socket or its memory.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// The UDP socket.
    #[error(transparent)]
    Udp(#[from] BindError),
}

/// What the fast path has done; counts since it was opened. What went through
/// the kernel counts in [`Xdp::kernel_counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpCounters {
    /// Frames sent.
    pub tx_frames: u64,
    /// Their bytes, without headers of UDP, IP and Ethernet.
    pub tx_bytes: u64,
    /// Frames that the kernel had to send instead.
    pub tx_kernel: u64,
    /// Frames received.
    pub rx_frames: u64,
    /// Their bytes, without headers of UDP, IP and Ethernet.
    pub rx_bytes: u64,
    /// Packets that were steered here and are not for this port.
    pub rx_strange: u64,
    /// How often the fast path was lost.
    pub lost: u64,
    /// How often another source port was tried for a peer to whom packets went
    /// mis_steered.
    pub tried: u64,
}

/// How much of a burst went by the fast path, and what came next.
enum Went {
    All,
    Full,
    /// The next frame has to go through the kernel.
    Kernel,
    TooBig,
}

/// A host port as a [`Link`].
#[derive(Debug)]
pub struct Xdp {
    udp: Udp,
    /// None once it was given up.
    fast: Option<Box<Fast>>,
    gate: Gate,
    routes: RouteCache,
    port: u16,
    frame_max: usize,
    /// Index of the interface.
    interface: u32,
    /// Of the fast path; the kernel's socket has one of its own.
    bell: Bell,
    /// The clock, as far as we were told; ns.
    now: u64,
    cadence: PollCadence,
    /// The driver takes packets from the area without a copy.
    zero_copy: bool,
    /// The fast path has failed: not tried before this time.
    lost_until: u64,
    counters: XdpCounters,
}

impl Xdp {
    /// Takes over a host port. `config` says what the UDP socket has not been
    /// given yet: its buffers' sizes and what to leave alone.
    ///
    /// # Errors
    /// [`AdoptError`].
    pub fn adopt(port: HostPort, config: &UdpConfig) -> Result<Self, AdoptError> {
        let HostPort {
            area,
            socket,
            first,
            udp,
            gate,
            sizes,
            sharing,
            multi_buffer,
            interface,
            mac,
            mtu,
        } = port;
        let gate = Gate::map(gate.as_fd()).map_err(XdpError::Memory)?;
        let zero_copy = xdp::is_zero_copy(socket.as_fd());
        let udp = Udp::adopt(udp, config)?;
        let failed = |call| move |e| XdpError::System(call, e);
        let own = udp.local_address().map_err(|e| match e {
            LinkError::Broken(errno) => failed("getsockname")(Errno::from_raw_os_error(errno)),
            _ => XdpError::Sizes,
        })?;
        let bell = Bell::new().map_err(failed("epoll_create1"))?;
        let watch = |fd| bell.add(fd).map_err(failed("epoll_ctl"));
        let most = packet_max(sizes.chunk, mtu, multi_buffer) as usize;
        // Frames must fit whichever IP a peer has.
        let packet = most.min(mtu as usize) + ETHERNET;
        let largest = packet.saturating_sub(HEADERS_V6);
        let wanted = config.frame_max.unwrap_or(usize::MAX);
        let frame_max = largest.min(wanted).max(1);
        let several = multi_buffer.then_some(frame_max + HEADERS_V6);
        let first = first.as_ref().map(AsFd::as_fd);
        let fast = Fast::map(area, socket, first, &sizes, sharing, several)?;
        watch(udp.fd())?;
        watch(fast.fd())?;
        let routes = RouteCache::new(Own {
            interface,
            mac,
            port: own.port,
        });
        Ok(Self {
            udp,
            fast: Some(Box::new(fast)),
            gate,
            routes: routes.map_err(failed("netlink"))?,
            port: own.port,
            frame_max,
            interface,
            bell,
            now: 0,
            cadence: PollCadence::default(),
            zero_copy,
            lost_until: 0,
            counters: XdpCounters::default(),
        })
    }

    /// What was adopted before it was bound now is, or cannot be: then the kernel's
    /// socket carries all.
    pub fn set_bound(&mut self, bound: bool) {
        if !bound {
            self.lose(Failed::ForGood);
        }
        let fast = self.fast.as_ref();
        self.zero_copy = fast.is_some_and(|fast| xdp::is_zero_copy(fast.fd()));
    }

    /// A descriptor to wait on (poll, epoll): readable when a frame waits, unless
    /// it was [disarmed](Self::disarm).
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bell.fd()
    }

    /// Fast path and kernel's socket join `set` under these names, and
    /// [`Self::fd`] rings no more: who waits for other things too sleeps and
    /// wakes up sooner that way, and can [tell](Self::woken) which of them rang.
    ///
    /// # Errors
    /// `MFILE`, `NOSPC` or `NOMEM`: the kernel has no room for it.
    pub fn join(&mut self, set: &Epoll, fast: u64, kernel: u64) -> Result<(), Errno> {
        self.udp.join(set, kernel)?;
        let descriptor = self.fast.as_ref().map(|fast| fast.fd());
        self.bell.join(set, fast, descriptor)
    }

    /// Whether the kernel's socket rang when a sleep ended: if not, it need not
    /// be looked at.
    pub fn woken(&mut self, by_kernel: bool) {
        self.cadence.woken(by_kernel);
    }

    /// Makes [`Self::fd`] fit to be waited on again.
    ///
    /// # Errors
    /// [`LinkError::Broken`]: the kernel has no memory for it.
    pub fn arm(&mut self) -> Result<(), LinkError> {
        self.udp.arm()?;
        let fast = self.fast.as_ref().map(|fast| fast.fd());
        let armed = self.bell.arm(fast);
        armed.map_err(|errno| LinkError::Broken(errno.raw_os_error()))
    }

    /// Nobody will wait on [`Self::fd`] until it is [armed](Self::arm) again:
    /// each packet that arrives then costs the kernel less.
    pub fn disarm(&mut self) {
        self.udp.disarm();
        let fast = self.fast.as_ref().map(|fast| fast.fd());
        self.bell.disarm(fast);
    }

    /// Tells the time, ns of a monotonic clock. Without it the kernel's socket
    /// is looked at every time.
    #[inline]
    pub fn set_now(&mut self, now_ns: u64) {
        self.now = now_ns;
    }

    /// Own address; the IP is unspecified.
    ///
    /// # Errors
    /// [`LinkError::Broken`].
    pub fn local_address(&self) -> Result<LinkAddress, LinkError> {
        self.udp.local_address()
    }

    /// Packets that are kept until the next look, whichever way they come:
    /// what may be granted to all peers in sum.
    #[must_use]
    pub fn receive_capacity(&self) -> ReceiveCapacity {
        let fast = self.fast.as_ref();
        let (full, small) = fast.map_or((usize::MAX, usize::MAX), |fast| fast.rx_packets());
        let kernel = self.udp.receive_capacity();
        ReceiveCapacity {
            full_packets: kernel.full_packets.min(full),
            small_packets: kernel.small_packets.min(small),
        }
    }

    /// As [`Udp::frame_max_now`].
    #[must_use]
    pub fn frame_max_now(&self) -> Option<usize> {
        let now = self
            .udp
            .frame_max_on(self.interface, HEADERS_V6 - ETHERNET)?;
        Some(now.min(self.frame_max))
    }

    /// Makes one quick look, which tells of nothing where nothing has come and nothing is due.
    #[inline]
    pub fn receive_one(&mut self) -> Looked<'_> {
        let now = self.now;
        self.cadence.begin(now);
        let is_usual = self.lost_until == 0
            && !self.udp.has_failed()
            && !self.routes.has_news(now)
            && !self.cadence.kernel_first()
            && !self.cadence.kernel_is_due(now);
        if is_usual
            && let Some(fast) = &mut self.fast
            && !fast.is_owed()
            && fast.is_empty()
        {
            return Looked::Nothing;
        }
        Looked::Unknown
    }

    /// As [`Udp::take_unreachable`]: also what left past the kernel comes back to
    /// its socket.
    pub fn take_unreachable(&mut self, sink: impl FnMut(&[u8])) {
        self.udp.take_unreachable(sink);
    }

    /// From now on packets with these connection numbers of `peer` are let
    /// through, and with no others; those of other peers stay as they are.
    /// Before the first call all are.
    pub fn admit(&mut self, peer: u32, numbers: impl Iterator<Item = u32> + Clone) {
        self.gate.admit(peer, numbers);
    }

    /// What comes from `to` says that our packets lately arrive there by a
    /// detour. Those that left by the fast path then get another source port,
    /// by which a network card with several queues may put them into another.
    pub fn mis_steered(&mut self, to: &LinkAddress) {
        let sent = self.counters.tx_frames;
        if self.fast.is_some()
            && self.lost_until == 0
            && self.routes.mis_steered(to, self.now, sent)
        {
            self.counters.tried += 1;
        }
    }

    /// A packet to `to` follows from which that may learn our address: it and
    /// those that come after it have our own source port.
    pub fn introduce(&mut self, to: &LinkAddress) {
        self.routes.change_port(to, SourcePort::become_own);
    }

    /// What it shares with the program that steers packets to it.
    #[must_use]
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// What the fast path has done so far.
    #[must_use]
    pub fn counters(&self) -> &XdpCounters {
        &self.counters
    }

    /// What went through the kernel's socket.
    #[must_use]
    pub fn kernel_counters(&self) -> UdpCounters {
        self.udp.counters()
    }

    /// Sends from the head of `frames` what can go by the fast path; gives how
    /// many, and why not more.
    #[inline]
    fn send_fast(&mut self, frames: &[TxFrame<'_>]) -> (usize, Went) {
        let (mut count, mut failed) = (0, None);
        let went = loop {
            let Some(frame) = frames.get(count) else {
                break Went::All;
            };
            if frame.bytes.len() > self.frame_max {
                break Went::TooBig;
            }
            if self.lost_until != 0 || self.begins_stream(&frames[count..]) {
                break Went::Kernel;
            }
            let Some(headers) = self.routes.find(&frame.to, self.now) else {
                break Went::Kernel;
            };
            let Some(fast) = &mut self.fast else {
                break Went::Kernel;
            };
            match fast.put(headers, frame, self.now) {
                Put::Done => {}
                Put::Full => break Went::Full,
                Put::TooBig => break Went::TooBig,
                Put::Failed(how) => {
                    failed = Some(how);
                    break Went::Kernel;
                }
            }
            self.counters.tx_bytes += frame.bytes.len() as u64;
            count += 1;
        };
        if let Some(fast) = self.fast.as_mut().filter(|_| count > 0) {
            self.counters.tx_frames += count as u64;
            fast.submit();
        }
        self.kick();
        if let Some(how) = failed {
            self.lose(how);
        }
        (count, went)
    }

    /// Has the kernel send what is in the ring.
    #[inline]
    fn kick(&mut self) {
        if let Some(fast) = self.fast.as_mut().filter(|fast| fast.is_owed())
            && let Err(how) = fast.kick()
        {
            self.lose(how);
        }
    }

    /// The fast path has failed: the kernel's socket carries all, for now or for
    /// good.
    #[cold]
    fn lose(&mut self, how: Failed) {
        if self.lost_until == 0 {
            self.counters.lost += 1;
        }
        self.lost_until = self.now.max(1) + RETRY_NS;
        if how == Failed::ForGood
            && let Some(fast) = self.fast.take()
        {
            self.bell.disarm([fast.fd()]);
        }
    }

    /// Whether the head of `frames` is better sent by the kernel.
    #[inline]
    fn begins_stream(&self, frames: &[TxFrame<'_>]) -> bool {
        let [first, .., last] = frames.get(..STREAM_FRAMES).unwrap_or_default() else {
            return false;
        };
        let len = first.bytes.len();
        len >= STREAM_BYTES
            && (last.bytes.len(), last.to) == (len, first.to)
            && self.udp.uses_gso()
            && !self.zero_copy
    }

    /// Sends by the kernel's socket as many frames from the head of `frames`
    /// as have no other way.
    #[cold]
    fn send_by_kernel(&mut self, frames: &[TxFrame<'_>]) -> Result<usize, LinkError> {
        let first = frames[0];
        let lost = self.lost_until != 0;
        let stream = self.begins_stream(frames);
        let same =
            |frame: &TxFrame<'_>| frame.to == first.to && frame.bytes.len() == first.bytes.len();
        let more = frames[1..].iter().take_while(|frame| {
            lost || (stream && same(frame)) || self.routes.find(&frame.to, self.now).is_none()
        });
        let count = 1 + more.count();
        let sent = self.udp.tx_burst(&frames[..count])?;
        for frame in &frames[..if stream { 1 } else { sent }] {
            self.routes.went_by_kernel(&frame.to);
        }
        self.counters.tx_kernel += sent as u64;
        Ok(sent)
    }

    /// Shows what the kernel's socket has; gives how many frames.
    fn receive_by_kernel(
        &mut self,
        max: usize,
        sink: &mut impl FnMut(RxFrame<'_>),
    ) -> Result<usize, LinkError> {
        let detour = self.fast.is_some() && self.lost_until == 0;
        let found = self
            .udp
            .rx_burst(max, |frame| sink(RxFrame { detour, ..frame }))?;
        self.cadence.saw_kernel(self.now, found);
        // A driver that copies nothing takes all chunks long before packets come.
        let waits =
            !self.zero_copy && self.lost_until == 0 && self.cadence.fast_is_silent(self.now);
        if let Some(fast) = self.fast.as_mut().filter(|_| waits)
            && let Err(how) = fast.look_after(self.now)
        {
            self.lose(how);
        }
        Ok(found)
    }

    /// Shows what the fast path has; gives how many frames.
    #[inline]
    fn receive_fast(&mut self, max: usize, sink: &mut impl FnMut(RxFrame<'_>)) -> usize {
        if self.fast.as_mut().is_none_or(|fast| fast.is_empty()) {
            return 0;
        }
        self.take_fast(max, sink)
    }

    /// Shows what the fast path has, which is something.
    #[inline(never)]
    fn take_fast(&mut self, max: usize, sink: &mut impl FnMut(RxFrame<'_>)) -> usize {
        let Some(fast) = &mut self.fast else { return 0 };
        let counters = &mut self.counters;
        let (found, failed) = fast.receive(self.port, max, self.now, counters, sink);
        if found > 0 {
            self.cadence.saw_fast(self.now);
        }
        if let Some(how) = failed {
            self.lose(how);
        }
        found
    }
}

impl Link for Xdp {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "xdp",
            frame_max: self.frame_max,
            headroom: 0,
            ordered: false,
            reliable: false,
            // Measured between two hosts of the lab, where the sender's call
            // carries the packet as far as the receiver's ring.
            overhead_ns: 1_000,
            gap_ns: 800,
            latency_ns: 1_500,
        }
    }

    #[inline]
    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> Result<usize, LinkError> {
        let mut taken = 0;
        loop {
            let (sent, went) = self.send_fast(&frames[taken..]);
            taken += sent;
            let error = match went {
                Went::All => return Ok(taken),
                Went::Full => LinkError::Full,
                Went::TooBig => LinkError::TooBig(self.frame_max),
                Went::Kernel => match self.send_by_kernel(&frames[taken..]) {
                    Ok(sent) => {
                        taken += sent;
                        continue;
                    }
                    Err(error) => error,
                },
            };
            // It will be met again as the first frame of the next burst.
            return if taken > 0 { Ok(taken) } else { Err(error) };
        }
    }

    #[inline]
    fn rx_burst(
        &mut self,
        max: usize,
        mut sink: impl FnMut(RxFrame<'_>),
    ) -> Result<usize, LinkError> {
        let changed = self.routes.look(self.now);
        let over = self.lost_until != 0 && self.now >= self.lost_until;
        if let Some(fast) = self.fast.as_mut().filter(|_| changed || over) {
            self.lost_until = 0;
            fast.owe_pending();
        }
        if self.lost_until == 0 {
            self.kick();
        }
        self.cadence.begin(self.now);
        let mut shown = 0;
        let kernel_first = self.cadence.kernel_first();
        if kernel_first {
            shown += self.receive_by_kernel(max, &mut sink)?;
        }
        shown += self.receive_fast(max, &mut sink);
        if !kernel_first && self.cadence.kernel_is_due(self.now) {
            shown += self.receive_by_kernel(max, &mut sink)?;
        }
        Ok(shown)
    }
}
