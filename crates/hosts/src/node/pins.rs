//! What of the XDP program of an interface stays when the service ends: its
//! link and its maps, pinned in the kernel's file system for BPF.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use portolan_sys::bpf::{self, Map, MapKind, XdpProgram};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::steering::MAPS;

/// Where the kernel's file system for BPF is mounted.
const MOUNT: &str = "/sys/fs/bpf";
/// Below it, a folder for each network, in it one for each interface.
const ROOT: &str = "/sys/fs/bpf/portolan";
/// The same, where the unit of a service that may not go there binds it.
const BOUND: &str = "/run/portolan/node/bpf";

const LINK: &str = "link";

/// Mounts the file system if it is not; whether that had to be done.
///
/// # Errors
/// What the kernel answers.
pub fn mount_file_system() -> io::Result<bool> {
    if is_mounted() {
        return Ok(false);
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("bpf", MOUNT, "bpf", flags, Some(c"mode=0700"))?;
    Ok(true)
}

/// Whether it is mounted.
pub fn is_mounted() -> bool {
    bpf::is_file_system(Path::new(MOUNT))
}

/// Unmounts it, if nobody has pinned anything there.
pub fn unmount_if_empty() {
    // The kernel puts two files of its own there.
    let pinned = |entry: fs::DirEntry| !entry.file_name().as_encoded_bytes().ends_with(b".debug");
    let empty = |entries: fs::ReadDir| !entries.flatten().any(pinned);
    if is_mounted() && fs::read_dir(MOUNT).is_ok_and(empty) {
        // Somebody else may use it.
        let _ = unmount(MOUNT, UnmountFlags::NOFOLLOW);
    }
}

/// The pins of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pins(PathBuf);

impl Pins {
    /// Those of interface `index` of network namespace `network`. Its folder is
    /// made when something is pinned.
    pub fn of(network: u64, index: u32) -> Self {
        Self(folder(network).join(index.to_string()))
    }

    /// All that were left in a network namespace, with their interfaces.
    pub fn all(network: u64) -> Vec<(u32, Self)> {
        let entries = fs::read_dir(folder(network)).into_iter().flatten();
        let index = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
        let found = entries.flatten().filter_map(index);
        found
            .map(|index| (index, Self::of(network, index)))
            .collect()
    }

    /// The map that is pinned by that name, or else a new one, pinned.
    pub(super) fn map(
        &self,
        name: &str,
        kind: MapKind,
        create: impl FnOnce() -> io::Result<Map>,
    ) -> io::Result<Map> {
        let path = self.0.join(name);
        match Map::pinned(&path, kind) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(&self.0)?;
                let map = create()?;
                bpf::pin(map.as_fd(), &path)?;
                Ok(map)
            }
            pinned => pinned,
        }
    }

    /// Attaches a program in the driver of interface `index` so that it stays:
    /// in the place of the one that was left, between two packets, or anew.
    pub(super) fn attach(&self, program: &XdpProgram, index: u32) -> io::Result<()> {
        let path = self.0.join(LINK);
        if let Ok(left) = bpf::open_pinned(&path) {
            if program.replace(left.as_fd()).is_ok() {
                return Ok(());
            }
            // Of an interface that is gone and whose number has come back.
            fs::remove_file(&path)?;
        }
        bpf::pin(program.attach(index)?.as_fd(), &path)
    }

    /// Detaches the program and removes its pins.
    ///
    /// # Errors
    /// What the kernel answers; then some of it may be left.
    pub fn discard(&self) -> io::Result<()> {
        let present = |done: io::Result<()>| match done {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        };
        let link = self.0.join(LINK);
        present(bpf::detach_pinned(&link))?;
        present(fs::remove_file(link))?;
        for map in MAPS {
            present(fs::remove_file(self.0.join(map)))?;
        }
        present(fs::remove_dir(&self.0))?;
        for above in self.0.ancestors().skip(1).take(2) {
            // Others may have theirs there.
            let _ = fs::remove_dir(above);
        }
        Ok(())
    }
}

fn folder(network: u64) -> PathBuf {
    let bound = Path::new(BOUND);
    let root = if bpf::is_file_system(bound) {
        bound
    } else {
        Path::new(ROOT)
    };
    root.join(format!("net-{network}"))
}
