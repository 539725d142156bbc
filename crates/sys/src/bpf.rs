//! Objects of BPF: programs, maps, links, and those pinned in its file system.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use rustix::fs::statfs;

use crate::memory::{Mapping, MemoryError};
use crate::raw::{Errno, number, syscall};

/// `BPF_FS_MAGIC` of the kernel's magic.h.
const FILE_SYSTEM: u64 = 0xcafe_4a11;

/// Commands of the kernel's bpf.h, `BPF_MAP_CREATE` to `BPF_LINK_DETACH`.
const MAP_CREATE: usize = 0;
const MAP_LOOKUP: usize = 1;
const MAP_UPDATE: usize = 2;
const MAP_DELETE: usize = 3;
const MAP_NEXT: usize = 4;
const PROGRAM_LOAD: usize = 5;
const OBJECT_PIN: usize = 6;
const OBJECT_GET: usize = 7;
const PROGRAM_TEST: usize = 10;
const OBJECT_INFO: usize = 15;
const LINK_CREATE: usize = 28;
const LINK_UPDATE: usize = 29;
const LINK_DETACH: usize = 34;

/// `BPF_ANY` and `BPF_NOEXIST`, there too.
const ANY: u64 = 0;
const NO_EXIST: u64 = 1;

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
    let kind = MapKind {
        kind: ARRAY,
        key_bytes: 4,
        value_bytes: bytes,
        entries: 1,
        flags: MMAPABLE,
    };
    Ok(Map::create(kind, None)?.fd)
}

/// What a map is made with: numbers of the kernel's bpf.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapKind {
    /// `BPF_MAP_TYPE_*`.
    pub kind: u32,
    /// Bytes of a key.
    pub key_bytes: u32,
    /// Bytes of a value.
    pub value_bytes: u32,
    /// Most entries.
    pub entries: u32,
    /// `BPF_F_*`.
    pub flags: u32,
}

/// A map.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    kind: MapKind,
}

impl Map {
    /// Makes a map. One of maps holds such as `inner`.
    ///
    /// # Errors
    /// What the kernel answers; it takes privilege.
    pub fn create(kind: MapKind, inner: Option<&Self>) -> io::Result<Self> {
        let inner = inner.map_or(0, |map| number_of(&map.fd));
        let attributes = [
            pair(kind.kind, kind.key_bytes),
            pair(kind.value_bytes, kind.entries),
            pair(kind.flags, inner),
        ];
        // SAFETY: the attributes hold no pointer.
        let fd = opened(unsafe { bpf(MAP_CREATE, &attributes) })?;
        Ok(Self { fd, kind })
    }

    /// Opens the one that is pinned at `path`.
    ///
    /// # Errors
    /// `NotFound` where nothing is pinned, `InvalidData` if it is not of that
    /// kind; else what the kernel answers.
    pub fn pinned(path: &Path, kind: MapKind) -> io::Result<Self> {
        let fd = open_pinned(path)?;
        // As far as `struct bpf_map_info` is of use: kind, id, sizes, entries, flags.
        let mut about = [0_u64; 3];
        let bytes = u32::try_from(size_of_val(&about)).expect("24");
        let attributes = [pair(number_of(&fd), bytes), about.as_mut_ptr() as u64];
        // SAFETY: the kernel writes at most so many bytes to `about`, which
        // lives beyond the call.
        unsafe { bpf(OBJECT_INFO, &attributes) }?;
        let [first, sizes, rest] = about.map(unpair);
        let found = MapKind {
            kind: first.0,
            key_bytes: sizes.0,
            value_bytes: sizes.1,
            entries: rest.0,
            flags: rest.1,
        };
        if found != kind {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Self { fd, kind })
    }

    /// Sets an entry.
    ///
    /// # Errors
    /// What the kernel answers.
    ///
    /// # Panics
    /// If key or value has another length than the map's: our bug.
    pub fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        Ok(self.update(key, value, ANY)?)
    }

    /// Sets an entry if there is none; whether it did.
    ///
    /// # Errors
    /// What the kernel answers.
    ///
    /// # Panics
    /// As [`Self::set`].
    pub fn set_new(&self, key: &[u8], value: &[u8]) -> io::Result<bool> {
        match self.update(key, value, NO_EXIST) {
            Err(Errno::EXIST) => Ok(false),
            done => Ok(done.map(|()| true)?),
        }
    }

    fn update(&self, key: &[u8], value: &[u8], flags: u64) -> Result<(), Errno> {
        assert_eq!(value.len(), self.kind.value_bytes as usize, "a value");
        let attributes = [
            pair(number_of(&self.fd), 0),
            self.key(key),
            value.as_ptr() as u64,
            flags,
        ];
        // SAFETY: key and value have the lengths that the kernel reads, and
        // live beyond the call.
        unsafe { bpf(MAP_UPDATE, &attributes) }.map(drop)
    }

    /// Removes an entry.
    ///
    /// # Errors
    /// What the kernel answers.
    ///
    /// # Panics
    /// If the key has another length than the map's: our bug.
    pub fn remove(&self, key: &[u8]) -> io::Result<()> {
        let attributes = [pair(number_of(&self.fd), 0), self.key(key)];
        // SAFETY: as in `set`.
        unsafe { bpf(MAP_DELETE, &attributes) }?;
        Ok(())
    }

    /// The value of an entry, with none where there is none.
    ///
    /// # Errors
    /// What the kernel answers.
    ///
    /// # Panics
    /// If the key has another length than the map's: our bug.
    pub fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let mut value = vec![0; self.kind.value_bytes as usize];
        let attributes = [
            pair(number_of(&self.fd), 0),
            self.key(key),
            value.as_mut_ptr() as u64,
            0,
        ];
        // SAFETY: the kernel reads a key and writes a value, for which there is
        // room; both live beyond the call.
        match unsafe { bpf(MAP_LOOKUP, &attributes) } {
            Err(Errno::NOENT) => Ok(None),
            done => Ok(done.map(|_| Some(value))?),
        }
    }

    /// All keys, unless others change them meanwhile.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn keys(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        while keys.len() < self.kind.entries as usize {
            let mut next = vec![0; self.kind.key_bytes as usize];
            let attributes = [
                pair(number_of(&self.fd), 0),
                keys.last().map_or(0, |last| self.key(last)),
                next.as_mut_ptr() as u64,
            ];
            // SAFETY: as in `get`, of keys; none stands for the first.
            match unsafe { bpf(MAP_NEXT, &attributes) } {
                Err(Errno::NOENT) => break,
                done => done?,
            };
            keys.push(next);
        }
        Ok(keys)
    }

    fn key(&self, key: &[u8]) -> u64 {
        assert_eq!(key.len(), self.kind.key_bytes as usize, "a key");
        key.as_ptr() as u64
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// `BPF_PROG_TYPE_XDP`, `BPF_F_XDP_HAS_FRAGS`, `BPF_XDP`, `XDP_FLAGS_DRV_MODE`.
const PROGRAM_XDP: u32 = 6;
const HAS_FRAGMENTS: u32 = 1 << 5;
const ATTACH_XDP: u32 = 37;
const IN_DRIVER: u32 = 1 << 2;
/// Bytes of the longest log that the verifier writes of ours, the last of which
/// count.
const LOG_BYTES: u32 = 16 << 20;

/// An XDP program that the kernel has accepted.
#[derive(Debug)]
pub struct XdpProgram(OwnedFd);

/// Why the kernel does not accept a program.
#[derive(Debug)]
pub struct NotLoaded {
    /// What it answers.
    pub error: io::Error,
    /// What its verifier says of it.
    pub log: String,
}

impl XdpProgram {
    /// Loads instructions under these terms, which understand packets in
    /// several buffers. The first 15 bytes of `name` are told to whoever asks.
    ///
    /// # Errors
    /// [`NotLoaded`].
    pub fn load(name: &str, instructions: &[u64], terms: &CStr) -> Result<Self, NotLoaded> {
        let mut called = [0; 16];
        for (to, byte) in called[..15].iter_mut().zip(name.bytes()) {
            *to = byte;
        }
        let called: [u64; 2] = [0, 8].map(|at| {
            let half = called[at..].first_chunk().expect("16 bytes");
            u64::from_ne_bytes(*half)
        });
        let load = |log: &mut [u8]| {
            let level = u32::from(!log.is_empty());
            let log_bytes = u32::try_from(log.len()).expect("at most LOG_BYTES");
            let at = if level == 0 {
                0
            } else {
                log.as_mut_ptr() as u64
            };
            let count = u32::try_from(instructions.len()).unwrap_or(u32::MAX);
            let attributes = [
                pair(PROGRAM_XDP, count),
                instructions.as_ptr() as u64,
                terms.as_ptr() as u64,
                pair(level, log_bytes),
                at,
                // A kernel's version and flags; the name; a device.
                pair(0, HAS_FRAGMENTS),
                called[0],
                called[1],
                pair(0, ATTACH_XDP),
            ];
            // SAFETY: the kernel reads so many instructions and the terms,
            // which end with a zero, and writes at most so many bytes of log.
            // All live beyond the call.
            opened(unsafe { bpf(PROGRAM_LOAD, &attributes) })
        };
        // Most need no log, and writing one takes time.
        load(&mut [])
            .or_else(|error| {
                let mut log = vec![0; LOG_BYTES as usize];
                load(&mut log).map_err(|_| {
                    let end = log.iter().position(|&byte| byte == 0);
                    let log =
                        String::from_utf8_lossy(&log[..end.unwrap_or(log.len())]).into_owned();
                    NotLoaded { error, log }
                })
            })
            .map(Self)
    }

    /// Attaches it to an interface of the calling thread's network, in its
    /// driver, as long as the link is open or pinned.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn attach(&self, interface: u32) -> io::Result<OwnedFd> {
        let attributes = [
            pair(number_of(&self.0), interface),
            pair(ATTACH_XDP, IN_DRIVER),
        ];
        // SAFETY: the attributes hold no pointer.
        opened(unsafe { bpf(LINK_CREATE, &attributes) })
    }

    /// Takes the place of the program of a link, between two packets.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn replace(&self, link: BorrowedFd<'_>) -> io::Result<()> {
        let attributes = [pair(number_of(&link), number_of(&self.0)), 0];
        // SAFETY: the attributes hold no pointer.
        unsafe { bpf(LINK_UPDATE, &attributes) }?;
        Ok(())
    }

    /// Runs it once on a packet; gives its verdict. For tests.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn try_on(&self, packet: &[u8]) -> io::Result<u32> {
        let bytes = u32::try_from(packet.len()).map_err(|_| Errno::TOOBIG)?;
        let mut attributes = [
            pair(number_of(&self.0), 0),
            pair(bytes, 0),
            packet.as_ptr() as u64,
            0,
            0,
        ];
        // SAFETY: the kernel reads the packet, which lives beyond the call, and
        // writes to the attributes, which may be written to.
        unsafe { bpf_mut(PROGRAM_TEST, &mut attributes) }?;
        Ok(unpair(attributes[0]).1)
    }
}

impl AsFd for XdpProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Pins a map or a link at `path`, which must be in the file system for that.
///
/// # Errors
/// What the kernel answers.
pub fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let attributes = [path.as_ptr() as u64, pair(number_of(&object), 0)];
    // SAFETY: the text ends with a zero and lives beyond the call.
    unsafe { bpf(OBJECT_PIN, &attributes) }?;
    Ok(())
}

/// Opens what is pinned at `path`.
///
/// # Errors
/// `NotFound` where nothing is; else what the kernel answers.
pub fn open_pinned(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let attributes = [path.as_ptr() as u64, 0];
    // SAFETY: the text ends with a zero and lives beyond the call.
    opened(unsafe { bpf(OBJECT_GET, &attributes) })
}

/// What a command has opened.
fn opened(answer: Result<usize, Errno>) -> io::Result<OwnedFd> {
    let fd = i32::try_from(answer?).map_err(|_| Errno::BADF)?;
    // SAFETY: the kernel has just opened it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn number_of(object: &impl AsFd) -> u32 {
    object.as_fd().as_raw_fd().cast_unsigned()
}

/// The way back.
const fn unpair(word: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    let first = u32::from_ne_bytes([a, b, c, d]);
    (first, u32::from_ne_bytes([e, f, g, h]))
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
    let link = open_pinned(path)?;
    let detach = [pair(number_of(&link), 0)];
    // SAFETY: the attributes hold no pointer.
    unsafe { bpf(LINK_DETACH, &detach) }?;
    Ok(())
}

/// # Safety
/// `attributes` must be what `command` reads of its `union bpf_attr`, and only
/// reads; pointers among them must be valid for what it does with them.
unsafe fn bpf(command: usize, attributes: &[u64]) -> Result<usize, Errno> {
    let at = attributes.as_ptr() as usize;
    let args = [command, at, size_of_val(attributes), 0, 0, 0];
    // SAFETY: the attributes are valid for reads of the size given, and the
    // caller vouches for the rest.
    unsafe { syscall(number::BPF, args) }
}

/// # Safety
/// As of [`bpf`], but that `command` may write to the attributes.
unsafe fn bpf_mut(command: usize, attributes: &mut [u64]) -> Result<usize, Errno> {
    let at = attributes.as_mut_ptr() as usize;
    let args = [command, at, size_of_val(attributes), 0, 0, 0];
    // SAFETY: the attributes are valid for reads and writes of the size given,
    // and the caller vouches for the rest.
    unsafe { syscall(number::BPF, args) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_map_are_shared() {
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
