//! Objects of BPF: those pinned in its file system, and maps that a process
//! shares with a program.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use rustix::fs::statfs;

use crate::memory::{Mapping, MemoryError};
use crate::raw::{Errno, number, syscall};

/// `BPF_FS_MAGIC` of the kernel's magic.h.
const FILE_SYSTEM: u64 = 0xcafe_4a11;

/// `BPF_MAP_CREATE`, `BPF_OBJ_GET` and `BPF_LINK_DETACH` of the kernel's bpf.h.
const MAP_CREATE: usize = 0;
const OBJECT_GET: usize = 7;
const LINK_DETACH: usize = 34;

/// The words of an array map (`BPF_F_MMAPABLE`), which the program and others
/// may write at any time. No privilege is needed, only the descriptor.
#[derive(Debug)]
pub struct SharedWords {
    mapping: Mapping,
    count: usize,
}

impl SharedWords {
    /// Maps the first `count` words. The descriptor may be closed afterwards.
    ///
    /// # Errors
    /// [`MemoryError::Map`]: it has fewer, or is no such map.
    pub fn map(map: BorrowedFd<'_>, count: usize) -> Result<Self, MemoryError> {
        let mapping = Mapping::of_device(map, count * size_of::<u64>(), 0)?;
        Ok(Self { mapping, count })
    }

    /// All of them.
    #[must_use]
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        let start = self.mapping.start().as_ptr().cast();
        // SAFETY: so many words lie within the mapping, which is page-aligned,
        // lives as long as `self` and does not shrink, as no map does. All
        // contents are valid for atomics, which others may write.
        unsafe { std::slice::from_raw_parts(start, self.count) }
    }
}

/// `BPF_MAP_TYPE_ARRAY` and `BPF_F_MMAPABLE`, there too.
const ARRAY: u32 = 2;
const MMAPABLE: u32 = 1 << 10;

/// Makes an array map with one entry of `count` words, all zero, to be
/// [mapped](SharedWords::map) by whoever is given the descriptor, which is
/// close-on-exec.
///
/// # Errors
/// What the kernel answers; it takes privilege.
pub fn create_shared_words(count: usize) -> io::Result<OwnedFd> {
    let bytes = u32::try_from(count * size_of::<u64>()).map_err(|_| Errno::TOOBIG)?;
    // Type, bytes of a key, bytes of a value, entries, flags.
    let attributes = [pair(ARRAY, 4), pair(bytes, 1), pair(MMAPABLE, 0)];
    // SAFETY: the attributes hold no pointer and live beyond the call.
    let fd = unsafe { bpf(MAP_CREATE, &attributes) }?;
    // SAFETY: the kernel has just opened it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).map_err(|_| Errno::BADF)?) })
}

/// Two 32-bit numbers that follow each other in memory.
const fn pair(first: u32, second: u32) -> u64 {
    let [a, b, c, d] = first.to_ne_bytes();
    let [e, f, g, h] = second.to_ne_bytes();
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// Whether objects can be pinned below `path`.
#[must_use]
pub fn is_file_system(path: &Path) -> bool {
    // The type's sign differs between architectures.
    statfs(path).is_ok_and(|about| about.f_type as u64 & 0xffff_ffff == FILE_SYSTEM)
}

/// Detaches the program of the link that is pinned at `path`, at once and
/// whoever else holds the link. The pin stays.
///
/// # Errors
/// `NotFound` where nothing is pinned; else what the kernel answers.
pub fn detach_pinned(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // `union bpf_attr` as far as each command reads it: a pointer and zeros.
    let get = [path.as_ptr() as u64, 0, 0];
    // SAFETY: `get` lives beyond the call, and so does the text, which ends
    // with a zero, that its first word points to.
    let fd = unsafe { bpf(OBJECT_GET, &get) }?;
    let fd = i32::try_from(fd).map_err(|_| Errno::BADF)?;
    // SAFETY: the kernel has just opened it for us.
    let link = unsafe { OwnedFd::from_raw_fd(fd) };
    let detach = [pair(link.as_raw_fd().cast_unsigned(), 0), 0, 0];
    // SAFETY: `detach` lives beyond the call and holds no pointer.
    unsafe { bpf(LINK_DETACH, &detach) }?;
    Ok(())
}

/// # Safety
/// `attributes` must be valid for `command`: pointers among them are to what
/// that reads.
unsafe fn bpf(command: usize, attributes: &[u64; 3]) -> Result<usize, Errno> {
    let args = [
        command,
        attributes.as_ptr() as usize,
        size_of_val(attributes),
        0,
        0,
        0,
    ];
    // SAFETY: the attributes are valid for reads of the size given, and the
    // caller vouches for what they point to.
    unsafe { syscall(number::BPF, args) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_map_are_shared() {
        use std::os::fd::AsFd;
        use std::sync::atomic::Ordering::Relaxed;

        // Needs root.
        let map = create_shared_words(1_000).unwrap();
        let [a, b] = [0; 2].map(|_| SharedWords::map(map.as_fd(), 1_000).unwrap());
        assert!(a.words().iter().all(|word| word.load(Relaxed) == 0));
        a.words()[999].store(7, Relaxed);
        assert_eq!((b.words().len(), b.words()[999].load(Relaxed)), (1_000, 7));
        // Two pages are there.
        assert!(SharedWords::map(map.as_fd(), 1_025).is_err());
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        assert!(SharedWords::map(pipe.as_fd(), 1).is_err());
    }

    #[test]
    fn what_is_not_pinned_cannot_be_detached() {
        let nowhere = Path::new("/proc/self/no-such-pin");
        let error = detach_pinned(nowhere).unwrap_err();
        let kinds = [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied];
        assert!(kinds.contains(&error.kind()), "{error}");
        assert!(!is_file_system(Path::new("/proc")));
    }
}
