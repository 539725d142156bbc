//! AF_XDP sockets: setting one up, which needs privilege, and mapping its
//! rings, which does not (kernel: Documentation/networking/af_xdp.rst).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING,
    XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpOptionsFlags,
    XdpRingOffset, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use crate::memory::{Mapping, MemoryError, SharedMemory};
use crate::net::MSG_DONTWAIT;
use crate::raw::{Errno, number, syscall};

/// Room in front of each packet that the kernel keeps for XDP programs
/// (`XDP_PACKET_HEADROOM`), bytes of a chunk.
pub const PACKET_HEADROOM: u32 = 256;

/// How large a socket's packet area and rings are. Chunks and rings are
/// powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of a chunk, which holds one frame: 2,048 or 4,096.
    pub chunk: u32,
    /// Chunks of the packet area.
    pub chunks: u32,
    /// Entries of the receive ring.
    pub rx: u32,
    /// Entries of the transmit ring.
    pub tx: u32,
    /// Entries of the fill ring.
    pub fill: u32,
    /// Entries of the completion ring.
    pub completion: u32,
}

impl Sizes {
    /// As they are passed on between processes.
    #[must_use]
    pub const fn to_words(self) -> [u32; 6] {
        let Self {
            chunk,
            chunks,
            rx,
            tx,
            fill,
            completion,
        } = self;
        [chunk, chunks, rx, tx, fill, completion]
    }

    /// What [`Self::to_words`] gave.
    #[must_use]
    pub const fn from_words(words: [u32; 6]) -> Self {
        let [chunk, chunks, rx, tx, fill, completion] = words;
        Self {
            chunk,
            chunks,
            rx,
            tx,
            fill,
            completion,
        }
    }

    /// Bytes of the packet area; `None` if the sizes make no sense.
    #[must_use]
    pub fn area_bytes(&self) -> Option<usize> {
        let rings = [self.rx, self.tx, self.fill, self.completion];
        let sensible = matches!(self.chunk, 2048 | 4096)
            && (1..=1 << 24).contains(&self.chunks)
            && rings.iter().all(|n| n.is_power_of_two() && *n <= 1 << 20);
        sensible.then_some(self.chunk as usize * self.chunks as usize)
    }
}

/// What is asked of a queue beside its rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// Packets are copied even where the driver could do without.
    pub copy: bool,
    /// A packet may lie in several chunks (`XDP_USE_SG`, from Linux 6.6).
    pub multi_buffer: bool,
}

/// Why there is no socket. Each text names cause and remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XdpError {
    /// The kernel has no AF_XDP.
    #[error("the kernel has no AF_XDP (CONFIG_XDP_SOCKETS)")]
    Unknown,
    /// It may not be opened by this process.
    #[error("AF_XDP sockets need CAP_NET_RAW and CAP_BPF: start the job as root")]
    Denied,
    /// The queue belongs to another socket.
    #[error("the queue of the interface is taken by another program")]
    Busy,
    /// The interface, or its queue, cannot do it.
    #[error("the interface or its queue cannot carry AF_XDP ({0})")]
    Unsupported(Errno),
    /// The sizes make no sense.
    #[error("the sizes of a host port make no sense")]
    Sizes,
    /// The kernel maps no rings of a socket that is bound already.
    #[error(
        "the kernel maps no rings of an AF_XDP socket that is bound already (Linux before 6.4)"
    )]
    Bound,
    /// Some of the packet area has no pages, and may get none now.
    #[error("the packet memory is not allocated: use the `portolan` of the node service's version")]
    NotAllocated,
    /// The packet area, or its mapping.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The named call failed.
    #[error("AF_XDP: {0} failed: {1}")]
    System(&'static str, Errno),
}

fn failed(call: &'static str) -> impl Fn(Errno) -> XdpError {
    move |errno| XdpError::System(call, errno)
}

/// Makes a socket with the beginning of `area` as its packet area and with a
/// fill and a completion ring, to be [bound](bind_first) to a queue. It carries
/// nothing: others [`join`] it, and have its modes. The packet area may be
/// unmapped afterwards; whoever has its descriptor and that of a joined socket
/// can use both.
///
/// # Errors
/// [`XdpError`]; nothing stays open.
pub fn first(area: &SharedMemory, sizes: &Sizes) -> Result<OwnedFd, XdpError> {
    let bytes = sizes.area_bytes().filter(|bytes| *bytes <= area.bytes());
    let bytes = bytes.ok_or(XdpError::Sizes)?;
    let fd = unbound()?;
    let registration = XdpUmemReg {
        addr: area.start().as_ptr() as u64,
        len: bytes as u64,
        chunk_size: sizes.chunk,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    sockopt::set_xdp_umem_reg(&fd, registration).map_err(|errno| match errno {
        // The kernel's word for a limit of locked memory here.
        Errno::NOBUFS => MemoryError::Lock(bytes, errno).into(),
        Errno::NOMEM => MemoryError::TooLittle(bytes, errno).into(),
        errno => failed("XDP_UMEM_REG")(errno),
    })?;
    sockopt::set_xdp_umem_fill_ring_size(&fd, sizes.fill).map_err(failed("XDP_UMEM_FILL_RING"))?;
    sockopt::set_xdp_umem_completion_ring_size(&fd, sizes.completion)
        .map_err(failed("XDP_UMEM_COMPLETION_RING"))?;
    // The kernel wants one of them; nothing is ever steered there.
    sockopt::set_xdp_rx_ring_size(&fd, 1).map_err(failed("XDP_RX_RING"))?;
    Ok(fd)
}

/// Binds what [`first`] made to queue `queue` of interface `interface` of the
/// network that it was made in. It can be tried again.
///
/// # Errors
/// [`XdpError`]; [`XdpError::Unsupported`] too where the kernel does not know a
/// mode.
pub fn bind_first(
    first: BorrowedFd<'_>,
    interface: u32,
    queue: u32,
    modes: Modes,
) -> Result<(), XdpError> {
    let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
    if modes.copy {
        flags |= SocketAddrXdpFlags::XDP_COPY;
    }
    if modes.multi_buffer {
        flags |= SocketAddrXdpFlags::XDP_USE_SG;
    }
    bind(first, &SocketAddrXdp::new(flags, interface, queue)).map_err(not_bound)
}

/// Makes a further socket with its own receive and transmit ring, to
/// [`join`] another.
///
/// # Errors
/// [`XdpError`]; nothing stays open.
pub fn further(sizes: &Sizes) -> Result<OwnedFd, XdpError> {
    let fd = unbound()?;
    sockopt::set_xdp_rx_ring_size(&fd, sizes.rx).map_err(failed("XDP_RX_RING"))?;
    sockopt::set_xdp_tx_ring_size(&fd, sizes.tx).map_err(failed("XDP_TX_RING"))?;
    Ok(fd)
}

/// Binds what [`further`] made to the queue of `first`, which [`bind_first`]
/// has bound there, with that one's packet area, fill and completion ring.
///
/// # Errors
/// [`XdpError`].
pub fn join(
    further: BorrowedFd<'_>,
    first: BorrowedFd<'_>,
    interface: u32,
    queue: u32,
) -> Result<(), XdpError> {
    let flags = SocketAddrXdpFlags::XDP_SHARED_UMEM;
    let address = SocketAddrXdpWithSharedUmem {
        addr: SocketAddrXdp::new(flags, interface, queue),
        shared_umem_fd: first,
    };
    bind(further, &address).map_err(not_bound)
}

/// Whether the rings of `first`, which is bound, can still be mapped. Before
/// Linux 6.4 they cannot: whoever uses them maps them first.
///
/// # Errors
/// [`XdpError`].
pub fn maps_when_bound(first: BorrowedFd<'_>) -> Result<bool, XdpError> {
    let at = sockopt::xdp_mmap_offsets(first).map_err(failed("XDP_MMAP_OFFSETS"))?;
    match Ring::map(first, &at.rx, XDP_PGOFF_RX_RING, 1, DESCRIPTOR_BYTES) {
        Ok(_) => Ok(true),
        Err(XdpError::Bound) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The loopback's index in every network.
const LOOPBACK: u32 = 1;

/// Opens a socket at the loopback and maps a ring of it, before it is bound and
/// then; gives what [`maps_when_bound`] does.
///
/// # Errors
/// [`XdpError`]: sockets cannot be opened, or no ring can be mapped.
pub fn try_out() -> Result<bool, XdpError> {
    let sizes = Sizes {
        chunk: 2_048,
        chunks: 2,
        rx: 1,
        tx: 1,
        fill: 1,
        completion: 1,
    };
    let bytes = sizes.area_bytes().ok_or(XdpError::Sizes)?;
    let area = SharedMemory::create("portolan-try", bytes)?;
    let fd = first(&area, &sizes)?;
    maps_when_bound(fd.as_fd())?;
    let modes = Modes {
        copy: true,
        multi_buffer: false,
    };
    bind_first(fd.as_fd(), LOOPBACK, 0, modes)?;
    maps_when_bound(fd.as_fd())
}

/// Makes a socket without rings, which carries nothing.
///
/// # Errors
/// [`XdpError`].
pub fn unbound() -> Result<OwnedFd, XdpError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::XDP, SocketType::RAW, flags, None).map_err(|e| match e {
        Errno::AFNOSUPPORT => XdpError::Unknown,
        Errno::PERM => XdpError::Denied,
        e => XdpError::System("socket", e),
    })
}

fn not_bound(errno: Errno) -> XdpError {
    match errno {
        Errno::BUSY => XdpError::Busy,
        Errno::INVAL | Errno::OPNOTSUPP | Errno::NODEV => XdpError::Unsupported(errno),
        e => XdpError::System("bind", e),
    }
}

/// Whether the driver takes packets from the area, and puts them there, itself.
#[must_use]
pub fn is_zero_copy(socket: BorrowedFd<'_>) -> bool {
    sockopt::xdp_options(socket)
        .is_ok_and(|options| options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
}

/// Has the kernel send what the transmit ring holds.
///
/// # Errors
/// `EAGAIN` when some is left, `EBUSY`, `ENOBUFS` when a queue below is full,
/// `ENETDOWN`, `ENXIO` when the interface is down or gone.
#[inline]
pub fn kick(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    call(number::SENDTO, socket)
}

/// Has the driver look at the fill ring again.
///
/// # Errors
/// What `recvfrom` answers.
pub fn wake(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    call(number::RECVFROM, socket)
}

/// A call without data: what it is made for happens on the way.
#[inline]
fn call(number: usize, socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = MSG_DONTWAIT as usize;
    let args = [socket.as_raw_fd() as usize, 0, 0, flags, 0, 0];
    // SAFETY: no pointer is passed.
    unsafe { syscall(number, args) }.map(drop)
}

/// The rings of a socket, mapped.
#[derive(Debug)]
pub struct Rings {
    /// What has arrived.
    pub rx: Ring,
    /// What is to be sent.
    pub tx: Ring,
    /// Chunks for what arrives.
    pub fill: Ring,
    /// Chunks of what was sent.
    pub completion: Ring,
}

impl Rings {
    /// Maps the rings of `socket`, which has those sizes. Fill and completion
    /// ring are those of `first` if neither is bound yet, else of both.
    ///
    /// # Errors
    /// [`XdpError`]; [`XdpError::Bound`] only if they are bound.
    pub fn map(
        socket: BorrowedFd<'_>,
        first: Option<BorrowedFd<'_>>,
        sizes: &Sizes,
    ) -> Result<Self, XdpError> {
        sizes.area_bytes().ok_or(XdpError::Sizes)?;
        let at = sockopt::xdp_mmap_offsets(socket).map_err(failed("XDP_MMAP_OFFSETS"))?;
        let (own, all) = (socket, first.unwrap_or(socket));
        let (fill, completion) = (sizes.fill, sizes.completion);
        let completion_page = XDP_UMEM_PGOFF_COMPLETION_RING;
        Ok(Self {
            rx: Ring::map(own, &at.rx, XDP_PGOFF_RX_RING, sizes.rx, DESCRIPTOR_BYTES)?,
            tx: Ring::map(own, &at.tx, XDP_PGOFF_TX_RING, sizes.tx, DESCRIPTOR_BYTES)?,
            fill: Ring::map(all, &at.fr, XDP_UMEM_PGOFF_FILL_RING, fill, ADDRESS_BYTES)?,
            completion: Ring::map(all, &at.cr, completion_page, completion, ADDRESS_BYTES)?,
        })
    }
}

/// Bytes of an entry of the receive and transmit rings (`struct xdp_desc`).
const DESCRIPTOR_BYTES: usize = 16;
/// Bytes of an entry of the fill and completion rings.
const ADDRESS_BYTES: usize = 8;

/// One ring, shared with the kernel: two counters that only rise, flags, and
/// entries.
#[derive(Debug)]
pub struct Ring {
    mapping: Mapping,
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    count: u32,
    entry_bytes: usize,
}

impl Ring {
    fn map(
        socket: BorrowedFd<'_>,
        at: &XdpRingOffset,
        page: u64,
        count: u32,
        entry_bytes: usize,
    ) -> Result<Self, XdpError> {
        let unknown = || XdpError::System("XDP_MMAP_OFFSETS", Errno::NOSYS);
        let offset = |value: u64| usize::try_from(value).map_err(|_| unknown());
        let (producer, consumer) = (offset(at.producer)?, offset(at.consumer)?);
        // Kernel 5.4 and later.
        let flags = offset(at.flags.ok_or_else(unknown)?)?;
        let entries = offset(at.desc)?;
        let words_fit = [producer, consumer, flags]
            .iter()
            .all(|word| word % 4 == 0 && word + 4 <= entries);
        if !words_fit || !entries.is_multiple_of(8) {
            return Err(unknown());
        }
        let bytes = entries + count as usize * entry_bytes;
        Ok(Self {
            mapping: Mapping::of_device(socket, bytes, page).map_err(|e| match e {
                MemoryError::Map(Errno::BUSY) => XdpError::Bound,
                e => XdpError::Memory(e),
            })?,
            producer,
            consumer,
            flags,
            entries,
            count,
            entry_bytes,
        })
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: `map` has checked that the word lies within the mapping,
        // aligned; the mapping lives as long as `self`, and the kernel uses
        // the word atomically.
        unsafe {
            self.mapping
                .start()
                .add(offset)
                .cast::<AtomicU32>()
                .as_ref()
        }
    }

    /// Entries written so far, modulo 2^32.
    #[must_use]
    pub fn producer(&self) -> &AtomicU32 {
        self.word(self.producer)
    }

    /// Entries read so far, modulo 2^32.
    #[must_use]
    pub fn consumer(&self) -> &AtomicU32 {
        self.word(self.consumer)
    }

    /// Whether the kernel waits to be called.
    #[must_use]
    pub fn flags(&self) -> &AtomicU32 {
        self.word(self.flags)
    }

    /// How many entries it has: a power of two.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Bytes of an entry: 16 of the receive and transmit rings, 8 of the others.
    #[must_use]
    pub fn entry_bytes(&self) -> usize {
        self.entry_bytes
    }

    /// The first entry, aligned to 8 bytes; [`Self::count`] of them follow each
    /// other, valid as long as `self` lives.
    #[must_use]
    pub fn entries(&self) -> NonNull<u8> {
        // SAFETY: `entries` is within the mapping.
        unsafe { self.mapping.start().add(self.entries) }
    }
}

/// Whether the kernel gives this process AF_XDP sockets.
#[must_use]
pub fn available() -> bool {
    let flags = SocketFlags::CLOEXEC;
    socket_with(AddressFamily::XDP, SocketType::RAW, flags, None).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn sizes_are_checked() {
        let good = Sizes {
            chunk: 2048,
            chunks: 3,
            rx: 2,
            tx: 2,
            fill: 2,
            completion: 2,
        };
        assert_eq!(good.area_bytes(), Some(6144));
        for bad in [
            Sizes {
                chunk: 1024,
                ..good
            },
            Sizes { chunks: 0, ..good },
            Sizes { rx: 3, ..good },
            Sizes { fill: 0, ..good },
            Sizes {
                completion: 1 << 31,
                ..good
            },
        ] {
            assert_eq!(bad.area_bytes(), None, "{bad:?}");
        }
    }

    #[test]
    fn a_hole_in_packet_memory_is_not_filled_at_the_cost_of_who_registers_it() {
        use crate::missing::RefuseMissing;
        use rustix::fs::{FallocateFlags, fallocate, fstat};
        if let Err(error) = unbound() {
            eprintln!("*** NOT TESTED: packet memory cannot be registered here: {error} ***");
            return;
        }
        let sizes = Sizes {
            chunk: 4096,
            chunks: 64,
            rx: 2,
            tx: 2,
            fill: 2,
            completion: 2,
        };
        let bytes = sizes.area_bytes().unwrap();
        let area = SharedMemory::create("hole", bytes).unwrap();
        let blocks = || fstat(area.as_fd()).unwrap().st_blocks;
        let whole = blocks();
        assert!(!area.has_holes());
        let refuse = RefuseMissing::begin(&area).unwrap();
        first(&area, &sizes).unwrap();
        // As its owner does while it is registered.
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(area.as_fd(), punch, bytes as u64 / 2, 4096).unwrap();
        let holed = blocks();
        assert!(holed < whole && area.has_holes());
        let error = first(&area, &sizes).unwrap_err();
        assert!(
            matches!(
                error,
                XdpError::Memory(MemoryError::TooLittle(..)) | XdpError::System(_, Errno::FAULT)
            ),
            "{error:?}"
        );
        assert_eq!(blocks(), holed);
        drop(refuse);
        // Whoever owns it may fill it.
        first(&area, &sizes).unwrap();
        assert!(blocks() == whole && !area.has_holes());
    }

    #[test]
    fn a_descriptor_of_something_else_is_refused() {
        let sizes = Sizes {
            chunk: 2048,
            chunks: 2,
            rx: 2,
            tx: 2,
            fill: 2,
            completion: 2,
        };
        let (one, _) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(matches!(
            Rings::map(one.as_fd(), None, &sizes),
            Err(XdpError::System("XDP_MMAP_OFFSETS", _))
        ));
    }
}
