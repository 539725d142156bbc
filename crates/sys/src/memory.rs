//! Memory that several processes share, and memory that nobody else gets.

use std::ffi::c_void;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr::{self, NonNull};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::process::Resource;

use crate::calls::is_refusal;
use crate::process::soft_limit;
use crate::raw;

/// Why memory could not be had. Each text names cause and remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// The kernel gives no memfd.
    #[error(
        "no memfd ({0}): shared memory needs memfd_create; allow it in the seccomp profile, or use \
         --link udp"
    )]
    NoMemfd(Errno),
    /// So many bytes are not to be had.
    #[error(
        "{} bytes of shared memory are not available ({}): {}",
        .0,
        .1,
        match *.1 {
            Errno::FBIG => "raise `ulimit -f`",
            e if is_refusal(e) => "allow ftruncate and fallocate in the container's profile \
                  (seccomp), or use --link udp",
            _ => "raise the memory limit of the container or cgroup, run fewer processes on this host, \
                  or use --link udp",
        }
    )]
    TooLittle(usize, Errno),
    /// So many bytes may not be locked.
    #[error("{0} bytes may not be locked in memory ({1}): raise `ulimit -l` (RLIMIT_MEMLOCK)")]
    Lock(usize, Errno),
    /// The descriptor is no memfd, or may still be truncated by its maker.
    #[error(
        "the descriptor is not a memfd sealed against truncation: pass the one that the launcher \
         of the job made"
    )]
    NotSealed,
    /// The descriptor holds another number of bytes: (wanted, found).
    #[error(
        "shared memory holds {1} bytes where {0} belong: launcher and process are of different \
         versions or settings"
    )]
    WrongSize(u64, u64),
    /// The mapping was refused.
    #[error("memory cannot be mapped ({0}): raise `ulimit -v` or the container's limit")]
    Map(Errno),
    /// An advice that the caller relies on was refused.
    #[error(
        "the kernel cannot keep memory from a forked child or a core dump ({}): {}",
        .0,
        match *.0 {
            e if is_refusal(e) => "allow madvise in the container's profile (seccomp)",
            _ => "Linux 4.14 or later is needed",
        }
    )]
    Advice(Errno),
}

impl From<MemoryError> for std::io::Error {
    fn from(error: MemoryError) -> Self {
        Self::other(error)
    }
}

/// A mapping that is unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; this type gives
// out nothing but its address and length.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn shared(fd: BorrowedFd<'_>, bytes: usize) -> Result<Self, MemoryError> {
        Self::of_file(fd, bytes, 0, MapFlags::SHARED)
    }

    /// What a device offers to be mapped at `offset` (a multiple of the page
    /// size).
    pub(crate) fn of_device(
        fd: BorrowedFd<'_>,
        bytes: usize,
        offset: u64,
    ) -> Result<Self, MemoryError> {
        Self::of_file(fd, bytes, offset, MapFlags::SHARED | MapFlags::POPULATE)
    }

    fn of_file(
        fd: BorrowedFd<'_>,
        bytes: usize,
        offset: u64,
        flags: MapFlags,
    ) -> Result<Self, MemoryError> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel picks the address, so nothing of ours is replaced.
        let start = unsafe { rustix::mm::mmap(ptr::null_mut(), bytes, access, flags, fd, offset) };
        Self::new(start, bytes)
    }

    /// Its first byte, at least page-aligned; valid as long as `self` lives.
    #[must_use]
    pub const fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// How many bytes it has.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    fn private(bytes: usize) -> Result<Self, MemoryError> {
        // SAFETY: the kernel picks the address, so nothing of ours is replaced.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        Self::new(start, bytes)
    }

    fn new(start: Result<*mut c_void, Errno>, bytes: usize) -> Result<Self, MemoryError> {
        match start {
            Ok(start) => NonNull::new(start.cast())
                .map(|start| Self { start, bytes })
                .ok_or(MemoryError::Map(Errno::FAULT)),
            // Within `ulimit -v` there is no other limit of addresses.
            Err(Errno::NOMEM) if !bounded(Resource::As) => {
                Err(MemoryError::TooLittle(bytes, Errno::NOMEM))
            }
            Err(e) => Err(MemoryError::Map(e)),
        }
    }

    fn address(&self) -> *mut c_void {
        self.start.as_ptr().cast()
    }

    fn lock(&self) -> Result<(), MemoryError> {
        // SAFETY: the range is ours and mapped; locking changes no content.
        unsafe { rustix::mm::mlock(self.address(), self.bytes) }
            .map_err(|e| MemoryError::Lock(self.bytes, e))
    }

    fn advise(&self, advice: Advice) -> Result<(), MemoryError> {
        // SAFETY: the range is ours; the two advices used change what a
        // child and a core dump get, not what we see.
        unsafe { rustix::mm::madvise(self.address(), self.bytes, advice) }
            .map_err(MemoryError::Advice)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by us, and whoever borrowed from it
        // is gone. A failure would only leak the range.
        let _ = unsafe { rustix::mm::munmap(self.address(), self.bytes) };
    }
}

fn bounded(resource: Resource) -> bool {
    soft_limit(resource).is_some()
}

/// Bytes that can be had without harm to others, as far as this process can
/// tell: no more than the machine has free, and no more than the limits of its
/// cgroup and of those above leave, where they are visible.
fn available() -> u64 {
    let machine = read("/proc/meminfo".as_ref())
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .and_then(|kib| kib.trim().parse::<u64>().ok())
        // Without /proc: take the address space as the limit.
        .map_or(isize::MAX as u64, |kib| kib.saturating_mul(1024));
    let groups = read("/proc/self/cgroup".as_ref());
    let of_line = |line: &str| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, group) = (parts.next()?, parts.next()?, parts.next()?);
        let limits = match controllers {
            "" => &LIMITS_V2,
            _ if controllers.split(',').any(|it| it == "memory") => &LIMITS_V1,
            _ => return None,
        };
        limits.left_to(group)
    };
    groups.lines().filter_map(of_line).fold(machine, u64::min)
}

/// Where a version of cgroups tells of memory.
struct Limits {
    mount: &'static str,
    limit: &'static str,
    used: &'static str,
    /// Of what is used, the kernel can have back at once.
    idle: &'static str,
}

const LIMITS_V2: Limits = Limits {
    mount: "/sys/fs/cgroup",
    limit: "memory.max",
    used: "memory.current",
    idle: "inactive_file ",
};
const LIMITS_V1: Limits = Limits {
    mount: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    idle: "total_inactive_file ",
};

impl Limits {
    /// What `group` and those above it may still take; none without a limit.
    fn left_to(&self, group: &str) -> Option<u64> {
        let folder = Path::new(self.mount).join(group.trim_start_matches('/'));
        let inside = |folder: &&Path| folder.starts_with(self.mount);
        folder
            .ancestors()
            .take_while(inside)
            .filter_map(|at| self.left_in(at))
            .min()
    }

    fn left_in(&self, folder: &Path) -> Option<u64> {
        let number = |name: &str| read(&folder.join(name)).trim().parse::<u64>().ok();
        let stat = read(&folder.join("memory.stat"));
        let idle = stat.lines().find_map(|line| line.strip_prefix(self.idle));
        let idle = idle.and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
        let used = number(self.used)?.saturating_sub(idle);
        Some(number(self.limit)?.saturating_sub(used))
    }
}

/// The content of a file; nothing where it cannot be read.
fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Bytes of the largest cache of the first core, as the kernel tells it; `None`
/// where it does not.
#[must_use]
pub fn cache_bytes() -> Option<u64> {
    let caches = Path::new("/sys/devices/system/cpu/cpu0/cache");
    (0..8)
        .filter_map(|index| cache_size(&read(&caches.join(format!("index{index}/size")))))
        .max()
}

/// A size as the kernel writes it: `32768K`.
fn cache_size(text: &str) -> Option<u64> {
    let kib: u64 = text.trim().strip_suffix('K')?.parse().ok()?;
    kib.checked_mul(1024)
}

/// A memfd, mapped whole, that nobody can shrink or grow any more: touching
/// it never raises SIGBUS. Other processes may write it at any time, so its
/// bytes are reached by pointer only.
#[derive(Debug)]
pub struct SharedMemory {
    mapping: Mapping,
    fd: OwnedFd,
}

impl SharedMemory {
    const SEALS: SealFlags = SealFlags::SHRINK
        .union(SealFlags::GROW)
        .union(SealFlags::SEAL);

    /// What statfs(2) says of memory files, but for those of huge pages.
    const TMPFS: rustix::fs::FsWord = 0x0102_1994;

    /// Makes `bytes` of zeroed shared memory. Its pages are taken now, so
    /// that too little memory shows here and not at first touch. `name` is
    /// seen in `/proc/PID/maps` only.
    ///
    /// # Errors
    /// [`MemoryError::NoMemfd`], [`MemoryError::TooLittle`], [`MemoryError::Map`].
    pub fn create(name: &str, bytes: usize) -> Result<Self, MemoryError> {
        let fd = Self::unallocated(name, bytes)?;
        Self::allocate(fd.as_fd(), bytes)?;
        let mapping = Mapping::shared(fd.as_fd(), bytes)?;
        Ok(Self { mapping, fd })
    }

    /// Takes the pages of such memory, which count as the calling process's.
    ///
    /// # Errors
    /// [`MemoryError::TooLittle`].
    pub fn allocate(fd: BorrowedFd<'_>, bytes: usize) -> Result<(), MemoryError> {
        let too_little = |e| MemoryError::TooLittle(bytes, e);
        // Asking the kernel for more than there is would end other processes.
        if bytes as u64 > available() {
            return Err(too_little(Errno::NOMEM));
        }
        loop {
            match rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, bytes as u64) {
                Err(Errno::INTR) => {}
                done => return done.map_err(too_little),
            }
        }
    }

    /// Whether some of its pages are not allocated, as far as the kernel says.
    #[must_use]
    pub fn has_holes(&self) -> bool {
        /// Of a block that the kernel counts, bytes.
        const BLOCK: u64 = 512;
        let allocated = |about: rustix::fs::Stat| about.st_blocks.cast_unsigned() * BLOCK;
        let allocated = rustix::fs::fstat(&self.fd).map(allocated);
        allocated.is_ok_and(|bytes| bytes < self.bytes() as u64)
    }

    /// Makes what [`Self::create`] does, sealed, but without its pages.
    ///
    /// # Errors
    /// [`MemoryError::NoMemfd`], [`MemoryError::TooLittle`].
    pub fn unallocated(name: &str, bytes: usize) -> Result<OwnedFd, MemoryError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let too_little = |e| MemoryError::TooLittle(bytes, e);
        if bytes == 0 {
            return Err(too_little(Errno::INVAL));
        }
        // Beyond this limit the kernel would end the process by SIGXFSZ.
        if soft_limit(Resource::Fsize).is_some_and(|limit| bytes as u64 > limit) {
            return Err(too_little(Errno::FBIG));
        }
        // Kernels before 6.3 do not know NOEXEC_SEAL, some settings after
        // it demand it.
        let fd = match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
            other => other,
        }
        .map_err(MemoryError::NoMemfd)?;
        rustix::fs::ftruncate(&fd, bytes as u64).map_err(too_little)?;
        rustix::fs::fcntl_add_seals(&fd, Self::SEALS).map_err(MemoryError::NoMemfd)?;
        Ok(fd)
    }

    /// Whether a descriptor is of a memory file. The question waits for nobody.
    #[must_use]
    pub fn is_one(fd: BorrowedFd<'_>) -> bool {
        rustix::fs::fcntl_get_seals(fd).is_ok()
    }

    /// Maps a memfd that came from elsewhere, if it can no longer change its
    /// size and, where `bytes` is given, has exactly that size.
    ///
    /// # Errors
    /// [`MemoryError::NotSealed`], [`MemoryError::WrongSize`],
    /// [`MemoryError::TooLittle`], [`MemoryError::Map`].
    pub fn from_fd(fd: OwnedFd, bytes: Option<usize>) -> Result<Self, MemoryError> {
        match rustix::fs::fcntl_get_seals(&fd) {
            Ok(seals)
                if seals.contains(Self::SEALS)
                    && !seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) => {}
            _ => return Err(MemoryError::NotSealed),
        }
        // A file of huge pages may have holes. Touching one raises `SIGBUS` when no huge page is free.
        let found = rustix::fs::fstatfs(&fd).map_err(MemoryError::Map)?;
        if found.f_type != Self::TMPFS {
            return Err(MemoryError::NotSealed);
        }
        // Sealed: the size cannot change after this look at it.
        let found = rustix::fs::fstat(&fd).map_err(MemoryError::Map)?.st_size as u64;
        let wanted = bytes.map_or(found, |b| b as u64);
        match usize::try_from(found) {
            Ok(size) if found == wanted && size > 0 && size <= isize::MAX as usize => {
                let mapping = Mapping::shared(fd.as_fd(), size)?;
                Ok(Self { mapping, fd })
            }
            _ => Err(MemoryError::WrongSize(wanted, found)),
        }
    }

    /// The mapping, which needs no descriptor any more, and the descriptor.
    #[must_use]
    pub fn into_parts(self) -> (Mapping, OwnedFd) {
        (self.mapping, self.fd)
    }

    /// Keeps its pages in memory.
    ///
    /// # Errors
    /// [`MemoryError::Lock`]: beyond what `ulimit -l` allows.
    pub fn lock(&self) -> Result<(), MemoryError> {
        self.mapping.lock()
    }

    /// Another descriptor of the same memory, to be passed on; close-on-exec.
    ///
    /// # Errors
    /// [`MemoryError::Map`] when the process has no descriptor left.
    pub fn duplicate_fd(&self) -> Result<OwnedFd, MemoryError> {
        duplicate(self.fd.as_fd())
    }
}

/// Another descriptor of the same memory; close-on-exec.
///
/// # Errors
/// [`MemoryError::Map`] when the process has no descriptor left.
pub fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd, MemoryError> {
    rustix::io::fcntl_dupfd_cloexec(fd, 3).map_err(MemoryError::Map)
}

impl Deref for SharedMemory {
    type Target = Mapping;

    fn deref(&self) -> &Mapping {
        &self.mapping
    }
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// How private memory behaves beside being private; all off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrivateOptions {
    /// A forked child finds zeros (MADV_WIPEONFORK).
    pub wipe_on_fork: bool,
    /// Left out of core dumps (MADV_DONTDUMP).
    pub no_dump: bool,
    /// Kept out of swap (mlock).
    pub lock: bool,
}

/// Anonymous memory of this process, zeroed, page-aligned.
#[derive(Debug)]
pub struct PrivateMemory(Mapping);

impl PrivateMemory {
    /// Maps at least `bytes` (one byte where 0 is asked for).
    ///
    /// # Errors
    /// [`MemoryError::TooLittle`], [`MemoryError::Advice`], [`MemoryError::Lock`].
    pub fn new(bytes: usize, options: PrivateOptions) -> Result<Self, MemoryError> {
        if bytes > isize::MAX as usize {
            return Err(MemoryError::TooLittle(bytes, Errno::NOMEM));
        }
        let mapping = Mapping::private(bytes.max(1))?;
        if options.wipe_on_fork {
            mapping.advise(Advice::LinuxWipeOnFork)?;
        }
        if options.no_dump {
            mapping.advise(Advice::LinuxDontDump)?;
        }
        if options.lock {
            mapping.lock()?;
        }
        Ok(Self(mapping))
    }

    /// Its first byte; valid for [`Self::bytes`] as long as `self` lives.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.0.start
    }

    /// How many bytes it has.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }
}

/// `N` bytes, zeros at first, in memory of their own that a forked child finds
/// zeroed and a core dump leaves out. Whoever hands it on copies none of them.
pub struct Hidden<const N: usize>(PrivateMemory);

impl<const N: usize> Hidden<N> {
    /// With zeros.
    ///
    /// # Errors
    /// [`MemoryError::TooLittle`], [`MemoryError::Advice`].
    pub fn new() -> Result<Self, MemoryError> {
        let options = PrivateOptions {
            wipe_on_fork: true,
            no_dump: true,
            lock: false,
        };
        Ok(Self(PrivateMemory::new(N, options)?))
    }

    /// With these.
    ///
    /// # Errors
    /// As [`Hidden::new`].
    pub fn copy_of(bytes: &[u8; N]) -> Result<Self, MemoryError> {
        let mut hidden = Self::new()?;
        hidden.copy_from_slice(bytes);
        Ok(hidden)
    }
}

impl<const N: usize> Deref for Hidden<N> {
    type Target = [u8; N];

    fn deref(&self) -> &[u8; N] {
        // SAFETY: the memory is ours, of at least `N` bytes, and any bytes are
        // a value; only a fork changes them behind our back, to zeros.
        unsafe { self.0.start().cast().as_ref() }
    }
}

impl<const N: usize> DerefMut for Hidden<N> {
    fn deref_mut(&mut self) -> &mut [u8; N] {
        // SAFETY: as above; `&mut self` makes it exclusive.
        unsafe { self.0.start().cast().as_mut() }
    }
}

impl<const N: usize> fmt::Debug for Hidden<N> {
    /// Shows none of them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hidden(..)")
    }
}

/// Asks for all lines of `bytes` at once: where another core has just written
/// them, each would be waited for otherwise.
#[inline(always)]
pub fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(64) {
        prefetch_line(NonNull::from(line).cast());
    }
}

/// Asks for the line in which a byte lies.
#[inline(always)]
pub fn prefetch_line(at: NonNull<u8>) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which changes nothing and never faults.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(at.as_ptr().cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Pages that one question is about.
const PAGES_ASKED: usize = 64;

/// Lets the kernel give the pages of `memory` that it has not given yet, all at
/// once and before they are written: a fault for each would cost several times
/// as much. Of memory that is there only that is asked. Gives how many pages were
/// missing; 0 too where the kernel does not tell.
pub fn populate(memory: &mut [u8]) -> usize {
    let page = rustix::param::page_size();
    let start = memory.as_ptr().addr() & !(page - 1);
    let end = memory.as_ptr().addr() + memory.len();
    let pages = (end - start).div_ceil(page);
    let mut missing = 0;
    for from in (0..pages).step_by(PAGES_ASKED) {
        let count = PAGES_ASKED.min(pages - from);
        let mut there = [0_u8; PAGES_ASKED];
        let at = start + from * page;
        let asked = [at, count * page, there.as_mut_ptr().addr(), 0, 0, 0];
        // SAFETY: the kernel writes a byte for each page to `there`, which has
        // as many and lives on; of the pages themselves it touches nothing.
        if unsafe { raw::syscall(raw::number::MINCORE, asked) }.is_err() {
            return missing;
        }
        let absent = |it: &u8| it & 1 == 0;
        let there = &there[..count];
        let Some(first) = there.iter().position(absent) else {
            continue;
        };
        let last = there.iter().rposition(absent).unwrap_or(first);
        let start = memory.as_mut_ptr().with_addr(at + first * page).cast();
        let bytes = (last + 1 - first) * page;
        // SAFETY: it maps pages of memory that is `memory`'s, or lies in one page
        // with some of it, as writing there does, and changes no byte. What it
        // cannot do the write does.
        if unsafe { rustix::mm::madvise(start, bytes, Advice::LinuxPopulateWrite) }.is_err() {
            return missing;
        }
        missing += there.iter().filter(|it| absent(it)).count();
    }
    missing
}

/// Gives the whole pages of `memory` back to the kernel, if it is private and of
/// no file: they are zeros then, until they are written again. False: it did not.
pub fn give_back(memory: &mut [u8]) -> bool {
    let page = rustix::param::page_size();
    let skipped = memory.as_ptr().align_offset(page).min(memory.len());
    let bytes = (memory.len() - skipped) / page * page;
    if bytes == 0 {
        return false;
    }
    let start = memory[skipped..].as_mut_ptr().cast();
    // SAFETY: the pages are `memory`'s alone, which is borrowed for writing; what
    // they hold afterwards are bytes as well.
    unsafe { rustix::mm::madvise(start, bytes, Advice::LinuxDontNeed) }.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_caches_are_read_as_the_kernel_writes_them() {
        assert_eq!(cache_size("32768K\n"), Some(32 << 20));
        for other in ["", "32768", "K", "-1K", "99999999999999999999K"] {
            assert_eq!(cache_size(other), None, "{other}");
        }
    }

    #[test]
    fn missing_pages_are_given_once_and_given_back() {
        let page = rustix::param::page_size();
        let mut memory = vec![0_u8; 200 * page];
        let inner = &mut memory[page..];
        assert!(give_back(inner));
        let whole = inner.len() - 2 * page;
        assert!((whole / page..=inner.len() / page + 1).contains(&populate(inner)));
        assert_eq!(populate(inner), 0);
        // Of those between two only what is missing.
        assert!(give_back(&mut inner[10 * page..13 * page]));
        assert!((2..=3).contains(&populate(inner)));
        inner.fill(7);
        assert_eq!(populate(inner), 0);
        assert!(inner.iter().all(|byte| *byte == 7));
        assert_eq!(populate(&mut []), 0);
        assert!(!give_back(&mut inner[..10]));
    }

    #[test]
    fn two_mappings_show_the_same_bytes() {
        let a = SharedMemory::create("test", 10_000).unwrap();
        let b = SharedMemory::from_fd(a.duplicate_fd().unwrap(), Some(10_000)).unwrap();
        assert_ne!(a.start(), b.start());
        // SAFETY: both are mapped for 10,000 bytes.
        unsafe {
            assert_eq!(b.start().add(9_999).read_volatile(), 0);
            a.start().add(9_999).write_volatile(7);
            assert_eq!(b.start().add(9_999).read_volatile(), 7);
        }
    }

    #[test]
    fn what_could_be_truncated_is_refused() {
        let open = rustix::fs::memfd_create("open", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&open, 4096).unwrap();
        assert_eq!(
            SharedMemory::from_fd(open, None).unwrap_err(),
            MemoryError::NotSealed
        );
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        assert_eq!(
            SharedMemory::from_fd(pipe, None).unwrap_err(),
            MemoryError::NotSealed
        );
        // It needs no huge page as long as nobody looks into it.
        let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        let huge = rustix::fs::memfd_create("huge", flags).unwrap();
        rustix::fs::ftruncate(&huge, 2 << 20).unwrap();
        rustix::fs::fcntl_add_seals(&huge, SharedMemory::SEALS).unwrap();
        assert_eq!(
            SharedMemory::from_fd(huge, None).unwrap_err(),
            MemoryError::NotSealed
        );
        let sealed = SharedMemory::create("sealed", 4096).unwrap();
        assert!(rustix::fs::ftruncate(&sealed, 0).is_err());
        assert!(rustix::fs::ftruncate(&sealed, 8192).is_err());
        assert_eq!(
            SharedMemory::from_fd(sealed.duplicate_fd().unwrap(), Some(8192)).unwrap_err(),
            MemoryError::WrongSize(8192, 4096)
        );
    }

    #[test]
    fn the_limits_of_all_groups_above_count() {
        let mount = std::env::temp_dir().join(format!("portolan-groups-{}", std::process::id()));
        let limits = Limits {
            mount: mount.to_str().unwrap().to_owned().leak(),
            ..LIMITS_V2
        };
        let group = |path: &str, limit: &str, used: u64, idle: u64| {
            let folder = mount.join(path);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("memory.max"), limit).unwrap();
            std::fs::write(folder.join("memory.current"), format!("{used}\n")).unwrap();
            let stat = format!("anon 5\ninactive_file {idle}\n");
            std::fs::write(folder.join("memory.stat"), stat).unwrap();
        };
        group("job", "1000\n", 700, 100);
        group("job/step", "max\n", 10, 0);
        assert_eq!(limits.left_to("/job/step"), Some(400));
        group("job/step", "300\n", 10, 0);
        assert_eq!(limits.left_to("/job/step"), Some(290));
        assert_eq!(limits.left_to("/job"), Some(400));
        // A container sees itself at the mount, under a name of its host.
        assert_eq!(limits.left_to("/docker/4711"), None);
        group("", "5000\n", 4000, 0);
        assert_eq!(limits.left_to("/docker/4711"), Some(1000));
        std::fs::remove_dir_all(&mount).unwrap();
    }

    #[test]
    fn too_much_is_an_error_with_a_remedy() {
        for bytes in [0, usize::MAX, 1 << 46] {
            let error = SharedMemory::create("huge", bytes).unwrap_err();
            assert!(matches!(error, MemoryError::TooLittle(b, _) if b == bytes));
            assert!(error.to_string().contains("limit"), "{error}");
        }
        assert!(PrivateMemory::new(usize::MAX, PrivateOptions::default()).is_err());
        assert!(PrivateMemory::new(1 << 60, PrivateOptions::default()).is_err());
    }

    #[test]
    fn a_limit_of_file_sizes_is_an_error_and_no_signal() {
        // SAFETY: the child makes only system calls and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut limit = rustix::process::getrlimit(Resource::Fsize);
            limit.current = Some(1 << 12);
            let set = rustix::process::setrlimit(Resource::Fsize, limit);
            let refused = SharedMemory::create("limited", 1 << 20).map(|_| ());
            let right = Err(MemoryError::TooLittle(1 << 20, Errno::FBIG));
            let code = i32::from(set.is_err() || refused != right);
            // SAFETY: ends this process.
            unsafe { libc::_exit(code) };
        }
        let mut status = -1;
        // SAFETY: our own child, into a word of ours.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
    }

    #[test]
    fn private_memory_is_zero_and_ours() {
        let options = PrivateOptions {
            wipe_on_fork: true,
            no_dump: true,
            lock: true,
        };
        for (bytes, options) in [
            (0, PrivateOptions::default()),
            (5000, PrivateOptions::default()),
            (5000, options),
        ] {
            let m = PrivateMemory::new(bytes, options).unwrap();
            assert!(m.bytes() >= bytes);
            // SAFETY: at least one byte is mapped, and only we know of it.
            unsafe {
                assert_eq!(m.start().read(), 0);
                m.start().write(1);
            }
        }
    }
}
