//! A virtual Ethernet device whose packets a process reads and writes
//! (kernel: Documentation/networking/tuntap.rst).

use std::ffi::{c_char, c_int, c_short};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::ioctl::{Setter, ioctl, opcode};

use crate::raw::Errno;

const DEVICE: &str = "/dev/net/tun";
const TUNSETIFF: rustix::ioctl::Opcode = opcode::write::<c_int>(b'T', 202);
const IFF_TAP: c_short = 0x0002;
/// Packets come and go without a header before them.
const IFF_NO_PI: c_short = 0x1000;
/// Bytes of a name with its end (`IFNAMSIZ`).
const NAME_BYTES: usize = 16;

/// The kernel's `struct ifreq`, of which the name and the flags are used.
#[repr(C)]
struct Request {
    name: [c_char; NAME_BYTES],
    flags: c_short,
    rest: [u8; 22],
}
const _: () = assert!(size_of::<Request>() == 40);

/// A device that lives as long as this. It never blocks.
pub struct Tap(OwnedFd);

impl Tap {
    /// Makes device `name` in the network of the calling thread, not yet up.
    ///
    /// # Errors
    /// - `NAMETOOLONG`: the name has more than 15 bytes.
    /// - `NOENT`: the kernel has no TUN/TAP driver.
    /// - `PERM` without CAP_NET_ADMIN, `BUSY` when there is such a device.
    pub fn make(name: &str) -> Result<Self, Errno> {
        if name.len() >= NAME_BYTES {
            return Err(Errno::NAMETOOLONG);
        }
        let mut request = Request {
            name: [0; NAME_BYTES],
            flags: IFF_TAP | IFF_NO_PI,
            rest: [0; 22],
        };
        for (to, from) in request.name.iter_mut().zip(name.bytes()) {
            *to = from.cast_signed();
        }
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = open(DEVICE, flags, Mode::empty())?;
        // SAFETY: TUNSETIFF reads and writes a `struct ifreq`, which `Request`
        // is, and keeps no pointer to it.
        unsafe { ioctl(&fd, Setter::<TUNSETIFF, Request>::new(request)) }?;
        Ok(Self(fd))
    }

    /// Takes the next packet that the kernel sent out here; its length.
    ///
    /// # Errors
    /// `AGAIN` when there is none.
    pub fn receive(&self, packet: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::read(&self.0, packet)
    }

    /// Lets a packet come in from here.
    ///
    /// # Errors
    /// `IO` while the device is down, `INVAL` for less than a header.
    pub fn send(&self, packet: &[u8]) -> Result<(), Errno> {
        rustix::io::write(&self.0, packet).map(drop)
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
