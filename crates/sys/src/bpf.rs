//! Objects of BPF that are pinned in its file system.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::statfs;

use crate::raw::{Errno, number, syscall};

/// `BPF_FS_MAGIC` of the kernel's magic.h.
const FILE_SYSTEM: u64 = 0xcafe_4a11;

/// `BPF_OBJ_GET` and `BPF_LINK_DETACH` of the kernel's bpf.h.
const OBJECT_GET: usize = 7;
const LINK_DETACH: usize = 34;

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
    // A 32-bit descriptor, the first in memory, and zeros.
    let mut word = [0; 8];
    word[..4].copy_from_slice(&link.as_raw_fd().to_ne_bytes());
    let detach = [u64::from_ne_bytes(word), 0, 0];
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
    fn what_is_not_pinned_cannot_be_detached() {
        let nowhere = Path::new("/proc/self/no-such-pin");
        let error = detach_pinned(nowhere).unwrap_err();
        let kinds = [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied];
        assert!(kinds.contains(&error.kind()), "{error}");
        assert!(!is_file_system(Path::new("/proc")));
    }
}
