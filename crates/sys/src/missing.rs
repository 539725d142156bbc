//! Keeping the kernel from taking pages for memory that is another process's to
//! pay for (userfaultfd(2)).

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::mm::UserfaultfdFlags;

use crate::memory::SharedMemory;
use crate::raw::{Errno, number, syscall};

/// `UFFD_USER_MODE_ONLY` (from Linux 5.11), which needs no privilege: a page
/// that is missing within a system call fails that call.
const USER_MODE_ONLY: UserfaultfdFlags = UserfaultfdFlags::from_bits_retain(1);

/// `UFFD_API`.
const API: u64 = 0xaa;
/// `UFFDIO_API`, `UFFDIO_REGISTER`.
const IOCTL_API: usize = 0xc018_aa3f;
const IOCTL_REGISTER: usize = 0xc020_aa00;
/// `UFFDIO_REGISTER_MODE_MISSING`.
const MODE_MISSING: u64 = 1;

/// `struct uffdio_api`.
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_register`.
#[repr(C)]
struct Register {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

const _: () = assert!(size_of::<Api>() == 24 && size_of::<Register>() == 32);

/// While it lives, system calls of this process that reach a page of `memory`
/// that nobody has allocated fail, instead of allocating it at this process's
/// cost. Who has the descriptor may punch holes at any time, so that a look
/// beforehand does not suffice. This process's own accesses of such a page
/// would wait; make none meanwhile.
#[derive(Debug)]
pub struct RefuseMissing<'a> {
    /// Closing it ends the watch.
    _watch: OwnedFd,
    _memory: &'a SharedMemory,
}

impl<'a> RefuseMissing<'a> {
    /// Begins.
    ///
    /// # Errors
    /// `ENOSYS`, `EPERM` or `EINVAL` where the kernel or a filter has no
    /// userfaultfd (from Linux 5.11).
    pub fn begin(memory: &'a SharedMemory) -> Result<Self, Errno> {
        // SAFETY: the descriptor stays here, and is used for one range only.
        let watch = unsafe { rustix::mm::userfaultfd(USER_MODE_ONLY | UserfaultfdFlags::CLOEXEC) }?;
        let mut api = Api {
            api: API,
            features: 0,
            ioctls: 0,
        };
        ioctl(&watch, IOCTL_API, &mut api)?;
        let page = rustix::param::page_size();
        let mut register = Register {
            start: memory.start().as_ptr() as u64,
            len: memory.bytes().next_multiple_of(page) as u64,
            mode: MODE_MISSING,
            ioctls: 0,
        };
        ioctl(&watch, IOCTL_REGISTER, &mut register)?;
        Ok(Self {
            _watch: watch,
            _memory: memory,
        })
    }
}

fn ioctl<T>(watch: &OwnedFd, request: usize, argument: &mut T) -> Result<(), Errno> {
    let at = std::ptr::from_mut(argument) as usize;
    let args = [watch.as_raw_fd() as usize, request, at, 0, 0, 0];
    // SAFETY: `argument` is the structure of that request, and lives beyond the
    // call.
    unsafe { syscall(number::IOCTL, args) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FallocateFlags, fallocate, fstat};
    use std::os::fd::AsFd;

    const PAGES: usize = 16;

    fn area() -> SharedMemory {
        SharedMemory::create("missing", PAGES * rustix::param::page_size()).unwrap()
    }

    /// Has the kernel read from all of the memory, in one call.
    fn read_all(memory: &SharedMemory) -> Result<(), Errno> {
        let sink = rustix::fs::memfd_create("sink", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        // SAFETY: the range is mapped, and nobody writes to it.
        let bytes = unsafe { std::slice::from_raw_parts(memory.start().as_ptr(), memory.bytes()) };
        match rustix::io::write(&sink, bytes) {
            Ok(written) if written < bytes.len() => Err(Errno::FAULT),
            done => done.map(drop),
        }
    }

    fn blocks(memory: &SharedMemory) -> i64 {
        fstat(memory.as_fd()).unwrap().st_blocks
    }

    #[test]
    fn a_call_that_meets_a_hole_fails_and_fills_it_not() {
        let page = rustix::param::page_size() as u64;
        let memory = area();
        let whole = blocks(&memory);
        let refuse = RefuseMissing::begin(&memory).unwrap();
        read_all(&memory).unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(memory.as_fd(), punch, 5 * page, 3 * page).unwrap();
        let holed = blocks(&memory);
        assert!(holed < whole);
        assert_eq!(read_all(&memory), Err(Errno::FAULT));
        assert_eq!(blocks(&memory), holed);
        // Afterwards the kernel fills them again.
        drop(refuse);
        read_all(&memory).unwrap();
        assert_eq!(blocks(&memory), whole);
    }
}
