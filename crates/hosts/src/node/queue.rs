//! A queue of an interface: taking it, and how it is divided among the ranks of
//! one job.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use portolan_boot::node::PACKET_MEMORY;
use portolan_link::xdp::{SHARES_MAX, Sharing, Sizes, memory_bytes, packet_max, sizes};
use portolan_sys::features::Disabled;
use portolan_sys::memory::{MemoryError, SharedMemory};
use portolan_sys::missing::RefuseMissing;
use portolan_sys::net::Interface;
use portolan_sys::raw::Errno;
use portolan_sys::xdp::{self, Modes, XdpError};

/// The smallest and the largest chunk that the kernel takes.
const CHUNK_MIN: u32 = 2_048;

const CHUNK_MAX: u32 = 4_096;

/// Longest IP packet that a host port sends in one buffer, bytes.
pub const ONE_BUFFER_MAX: usize = packet_max(CHUNK_MAX, 0, false) as usize;

/// The queue that is used of an interface.
pub const QUEUE: u32 = 0;

/// How often, and after what pause, a busy queue is tried again: the kernel
/// frees it a while after its socket was closed.
pub const BUSY_TRIES: u32 = 50;

pub const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Whose a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Whoever asks over one connection: a job.
    Connection(u64),
    /// Those of a user that give the same name.
    Named { uid: u32, name: u64 },
}

/// A queue that the ranks of one job share, or the endpoints of one group. Others,
/// and other users, get no part: each sees the packets of all.
pub struct Queue {
    /// Whose it is.
    pub group: Group,
    /// What the ranks' sockets join.
    pub base: OwnedFd,
    pub binding: Binding,
    pub memory: SharedMemory,
    pub sizes: Sizes,
    /// A packet may lie in several chunks.
    pub multi_buffer: bool,
    /// The first part that nobody has had, and how many there are.
    next: Sharing,
    /// Parts that were given back.
    back: Vec<u32>,
    /// Parts that were not.
    held: u32,
}

/// When a queue's sockets are bound.
pub enum Binding {
    /// At once: the ranks map their rings later.
    First,
    /// Once all ranks have mapped their rings: no other order works before Linux
    /// 6.4.
    Last,
    /// It was done, or failed for this reason.
    Tried(Result<(), String>),
}

impl Queue {
    /// Takes the queue of `interface` for `ranks` ranks of `group`, with the
    /// packet memory that was lent, or else new one.
    pub fn take(
        interface: &Interface,
        group: Group,
        ranks: u32,
        disabled: &Disabled,
        lent: Option<&OwnedFd>,
    ) -> Result<Self, PortError> {
        let (sizes, next) = division(interface, ranks);
        let bytes = memory_bytes(&sizes, next).ok_or_else(|| "sizes make no sense".to_owned())?;
        let memory = match lent {
            Some(lent) => lent
                .try_clone()
                .map_err(|e| e.to_string())
                .and_then(|fd| SharedMemory::from_fd(fd, Some(bytes)).map_err(|e| e.to_string())),
            None => SharedMemory::create(PACKET_MEMORY, bytes).map_err(|e| e.to_string()),
        }?;
        // Pages of lent memory are charged to who took them, or to nobody: who
        // lends it may take some away at any time.
        let refuse = lent.map(|_| refuse_missing(&memory)).transpose()?;
        let holes = || refuse.is_some() && memory.has_holes();
        let first = || xdp::first(&memory, &sizes).map_err(|error| refused(error, holes));
        let open = |multi_buffer| {
            let base = first()?;
            xdp::bind_first(
                base.as_fd(),
                interface.index,
                QUEUE,
                modes(disabled, multi_buffer),
            )?;
            Ok(base)
        };
        let failed = |e| failed(&interface.name, e);
        let several = interface.mtu > ONE_BUFFER_MAX && !disabled.multibuffer;
        let (base, multi_buffer) = or_in_one_buffer(several, open).map_err(failed)?;
        let maps = !disabled.remap && xdp::maps_when_bound(base.as_fd()).map_err(failed)?;
        let (base, binding) = if maps {
            (base, Binding::First)
        } else {
            // The one that shows it frees the queue while ranks start.
            drop(base);
            (first().map_err(failed)?, Binding::Last)
        };
        drop(refuse);
        Ok(Self {
            group,
            base,
            binding,
            memory,
            sizes,
            multi_buffer,
            next,
            back: Vec::new(),
            held: 0,
        })
    }

    /// A part that nobody has; none if there is none.
    pub fn vacant(&self) -> Option<Sharing> {
        let Sharing { index, count } = self.next;
        let index = self.back.last().copied().unwrap_or(index);
        (index < count).then_some(Sharing { index, count })
    }

    /// Somebody has the vacant part.
    pub fn give(&mut self) {
        self.next.index += u32::from(self.back.pop().is_none());
        self.held += 1;
    }

    /// A part was given back; whether it was the last.
    pub fn take_back(&mut self, part: u32) -> bool {
        self.back.push(part);
        self.held -= 1;
        self.held == 0
    }

    /// How many parts there are.
    pub const fn parts(&self) -> u32 {
        self.next.count
    }
}

/// Why the kernel did not take packet memory; `holes`: some of it is missing, and
/// was to stay so.
fn refused(error: XdpError, holes: impl Fn() -> bool) -> XdpError {
    match error {
        XdpError::Memory(MemoryError::TooLittle(..)) | XdpError::System(_, Errno::FAULT)
            if holes() =>
        {
            XdpError::NotAllocated
        }
        error => error,
    }
}

/// Has the kernel take no pages of our own for `memory`.
///
/// # Errors
/// It cannot, for people to read.
pub fn refuse_missing(memory: &SharedMemory) -> Result<RefuseMissing<'_>, String> {
    RefuseMissing::begin(memory).map_err(|e| {
        format!(
            "packet memory of others cannot be told from the service's own ({e}): allow \
             userfaultfd for the node service (a kernel with CONFIG_USERFAULTFD, from Linux 5.11)"
        )
    })
}

pub const fn modes(disabled: &Disabled, multi_buffer: bool) -> Modes {
    Modes {
        copy: disabled.zerocopy,
        multi_buffer,
    }
}

/// Why there is no host port.
#[derive(Debug)]
pub enum PortError {
    /// The kernel has not yet freed the queue of a socket that was closed, or
    /// somebody else has it.
    Busy(String),
    /// For this reason.
    Failed(String),
}

impl PortError {
    /// Whether it may pass by itself.
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Busy(_))
    }
}

impl From<String> for PortError {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

pub fn failed(interface: &str, error: XdpError) -> PortError {
    let why = format!("queue {QUEUE} of {interface}: {error}");
    match error {
        XdpError::Busy => PortError::Busy(why),
        _ => PortError::Failed(why),
    }
}

/// Tries again as long as the kernel has yet to free a queue.
pub fn patiently<T>(mut open: impl FnMut() -> Result<T, PortError>) -> Result<T, String> {
    let mut tries = 0;
    loop {
        match open() {
            Err(error) if error.is_busy() && tries < BUSY_TRIES => {
                tries += 1;
                std::thread::sleep(BUSY_PAUSE);
            }
            Err(PortError::Busy(why) | PortError::Failed(why)) => return Err(why),
            Ok(opened) => return Ok(opened),
        }
    }
}

/// Opens something for packets in `several` buffers, or in one where kernel or
/// driver refuse that; gives which.
fn or_in_one_buffer<T>(
    several: bool,
    open: impl Fn(bool) -> Result<T, XdpError>,
) -> Result<(T, bool), XdpError> {
    match open(several) {
        Err(XdpError::Unsupported(_)) if several => Ok((open(false)?, false)),
        opened => Ok((opened?, several)),
    }
}

/// How the queue of an interface is divided among so many ranks.
fn division(interface: &Interface, ranks: u32) -> (Sizes, Sharing) {
    let small = interface.mtu <= packet_max(CHUNK_MIN, 0, false) as usize;
    let count = ranks.clamp(1, SHARES_MAX);
    let sizes = sizes(if small { CHUNK_MIN } else { CHUNK_MAX }, count);
    (sizes, Sharing { index: 0, count })
}

/// Packet memory of a queue of an interface for so many ranks, bytes, how
/// many have a part, and what it takes with what they have in common.
pub fn queue_bytes(interface: &Interface, ranks: u32) -> (u64, u32, u64) {
    let (sizes, sharing) = division(interface, ranks);
    let packets = sizes.area_bytes().unwrap_or_default();
    let all = memory_bytes(&sizes, sharing).unwrap_or_default();
    (packets as u64, sharing.count, all as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn only_memory_with_holes_is_said_not_to_be_allocated() {
        let full = XdpError::Memory(MemoryError::TooLittle(9, Errno::NOMEM));
        let unmapped = XdpError::System("XDP_UMEM_REG", Errno::FAULT);
        let limit = XdpError::Memory(MemoryError::Lock(9, Errno::NOBUFS));
        for (error, with_holes) in [
            (full, XdpError::NotAllocated),
            (unmapped, XdpError::NotAllocated),
            (limit, limit),
            (XdpError::Busy, XdpError::Busy),
        ] {
            assert_eq!(refused(error, || true), with_holes);
            assert_eq!(refused(error, || false), error);
        }
        assert!(full.to_string().contains("raise the memory limit"));
    }

    #[test]
    fn who_refuses_several_buffers_is_asked_for_one() {
        const OLD: XdpError = XdpError::Unsupported(Errno::INVAL);
        let (yes, no) = (Ok, Err(OLD));
        let busy = Err(XdpError::Busy);
        // What is asked for, what several buffers and one give, what comes of it
        // and what was tried.
        let cases = [
            (true, [yes(1), yes(2)], Ok((1, true)), &[true][..]),
            (true, [no, yes(2)], Ok((2, false)), &[true, false]),
            (true, [no, no], Err(OLD), &[true, false]),
            (true, [busy, yes(2)], Err(XdpError::Busy), &[true]),
            (false, [yes(1), yes(2)], Ok((2, false)), &[false]),
        ];
        for (several, [many, one], expected, questions) in cases {
            let asked = RefCell::new(Vec::new());
            let open = |several| {
                asked.borrow_mut().push(several);
                if several { many } else { one }
            };
            assert_eq!(or_in_one_buffer(several, open), expected);
            assert_eq!(*asked.borrow(), questions);
        }
    }
}
