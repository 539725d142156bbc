//! Where labs are kept: files and mounts under `/run/portolan`.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
};

use super::Lab;
use crate::failure::{Failure, Result};
use crate::file::{self, FOLDER};

const LABS: &str = "/run/portolan/lab";
const LOCK: &str = "/run/portolan/lock";

/// Where the files of lab `name` are.
pub(super) fn folder(name: &str) -> PathBuf {
    Path::new(LABS).join(name)
}

/// What services and labs share.
pub(super) fn root() -> &'static Path {
    Path::new(FOLDER)
}

/// The place that propagates nowhere.
pub(super) fn labs() -> &'static Path {
    Path::new(LABS)
}

/// Lab `name`, in whatever state; none if there is none, or remains that no
/// longer say what they were.
pub(super) fn read(name: &str) -> Result<Option<Lab>> {
    match file::read(&folder(name).join("lab.json")) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        // A FIFO, a device or a folder: no lab wrote that.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::Other) => {
            Ok(None)
        }
        Err(error) => Err(Failure::io(format!("reading lab {name}"))(error)),
    }
}

/// Writes a lab's file; readers see the old or the new one.
pub(super) fn write(lab: &Lab) -> Result<()> {
    let folder = lab.folder();
    let bytes = serde_json::to_vec(lab).expect("plain data in memory");
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(folder.join("lab.json.new"), bytes))
        .and_then(|()| fs::rename(folder.join("lab.json.new"), folder.join("lab.json")))
        .map_err(Failure::io(format!("writing {}", folder.display())))
}

/// All labs, also those half built, by name.
pub(super) fn list() -> Result<Vec<Lab>> {
    let mut labs = Vec::new();
    for name in folders()? {
        labs.extend(read(&name)?);
    }
    labs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(labs)
}

fn folders() -> Result<Vec<String>> {
    let entries = match fs::read_dir(LABS) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(Failure::io(format!("reading {LABS}")))?,
    };
    let folders = entries.flatten().filter(|entry| entry.path().is_dir());
    Ok(folders
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect())
}

/// Says at once what the kernel would refuse.
pub(super) fn need_root() -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Failure::new(
        "a lab is made of namespaces: run this as root (sudo)",
    ))
}

/// Keeps others from building or removing labs at the same time.
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits for its turn. Makes `/run/portolan` if there is none.
    pub fn take() -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err(Failure::new(
                "a lab is made of namespaces: run it as root (sudo)",
            ));
        }
        loop {
            let attempt = || -> io::Result<Option<Self>> {
                fs::create_dir_all(FOLDER)?;
                let file = file::open_lock(Path::new(LOCK))?;
                flock(&file, FlockOperation::LockExclusive)?;
                // Whoever had it may have removed the file with the last lab.
                let same = fs::metadata(LOCK)?.ino() == file.metadata()?.ino();
                Ok(same.then_some(Self { _file: file }))
            };
            match attempt() {
                Ok(Some(lock)) => return Ok(lock),
                Ok(None) => {}
                // Folder or file went away between two steps.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(Failure::io(format!("locking {LOCK}"))(error)),
            }
        }
    }

    /// Makes the place for labs, if it is not there.
    pub fn make_place(&self) -> Result<()> {
        let doing = || format!("mounting {LABS}");
        fs::create_dir_all(LABS).map_err(Failure::io(doing()))?;
        if !is_mounted(Path::new(LABS))? {
            // What an earlier boot left on a disk would be hidden for ever.
            let _ = fs::remove_dir_all(LABS);
            fs::create_dir_all(LABS).map_err(Failure::io(doing()))?;
            let flags = MountFlags::NOSUID | MountFlags::NODEV;
            mount("portolan-lab", LABS, "tmpfs", flags, Some(c"mode=0755"))
                .map_err(Failure::os(doing()))?;
        }
        mount_change(LABS, MountPropagationFlags::PRIVATE).map_err(Failure::os(doing()))
    }

    /// Removes the place for labs, if no lab is in it.
    pub fn remove_place(&self) -> Result<()> {
        if !folders()?.is_empty() {
            return Ok(());
        }
        if is_mounted(Path::new(LABS))? {
            unmount(LABS, UnmountFlags::DETACH)
                .map_err(Failure::os(format!("unmounting {LABS}")))?;
        }
        let _ = fs::remove_dir(LABS);
        let _ = fs::remove_file(LOCK);
        // Others may keep things there.
        let _ = fs::remove_dir(FOLDER);
        Ok(())
    }
}

/// Whether something is mounted exactly at `path`.
pub(super) fn is_mounted(path: &Path) -> Result<bool> {
    let table = fs::read_to_string("/proc/self/mountinfo")
        .map_err(Failure::io("reading /proc/self/mountinfo"))?;
    let mut points = table.lines().filter_map(|line| line.split(' ').nth(4));
    Ok(points.any(|point| Path::new(point) == path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_else_can_hold_the_lock() {
        let lock = Lock::take().unwrap();
        assert_eq!(lock._file.metadata().unwrap().mode() & 0o777, 0o600);
    }
}
