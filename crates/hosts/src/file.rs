//! Files that somebody else may have made.

use std::fs::{File, Permissions, remove_file};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use portolan_sys::files;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::de::DeserializeOwned;

use crate::failure::{Failure, Result};
use crate::print::write_fully;

/// Where running labs and services keep their files. Only root can have made it.
pub(crate) const FOLDER: &str = "/run/portolan";

/// Longest file of ours that is read: configurations, states, reports.
pub const BYTES_MAX: u64 = 16 << 20;

/// The first `bytes_max` bytes of an ordinary file, or of a pipe as a shell makes
/// one for `<(COMMAND)`. A pipe's writer may take `patience` until it ends.
///
/// # Errors
/// What the kernel answers; it is something else; the pipe's writer wrote nothing,
/// or has not ended.
pub fn read_or_await(path: &Path, bytes_max: u64, patience: Duration) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = files::open_at_once(path)?;
    let kind = file.metadata()?.file_type();
    let mut file = file.take(bytes_max);
    if kind.is_file() {
        file.read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    if !kind.is_fifo() {
        return Err(io::Error::other("it is no ordinary file and no pipe"));
    }
    let start = Instant::now();
    loop {
        // What was read stays when there is no more yet.
        match file.read_to_end(&mut bytes) {
            Ok(_) if bytes.is_empty() => {
                return Err(io::Error::other("it is a pipe, and nobody wrote into it"));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return read.map(|_| bytes),
        }
        let left = patience.saturating_sub(start.elapsed());
        if left.is_zero() {
            let seconds = patience.as_secs();
            return Err(io::Error::other(format!(
                "it is a pipe, whose writer has not ended within {seconds} s"
            )));
        }
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(
            &mut [PollFd::new(file.get_ref(), PollFlags::IN)],
            Some(&left),
        ) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// All of an ordinary file.
///
/// # Errors
/// As [`files::open`]; it is longer than any of ours.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    files::read(files::open(path)?, BYTES_MAX)
}

/// A file that a command writes at its end. It is opened at the beginning, so that
/// nothing is lost for a wrong name; one that was made and never written goes again.
pub struct Output {
    file: File,
    path: PathBuf,
    is_new: bool,
}

impl Output {
    /// Opens or makes the file; what is there stays.
    ///
    /// # Errors
    /// It cannot be written; it is a pipe that nobody reads, which would keep us.
    pub fn open(path: &Path) -> Result<Self> {
        let is_new = !path.exists();
        let mut options = File::options();
        options.write(true).create(true).truncate(false);
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let opened = options.custom_flags(flags).open(path);
        let file = opened.map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::NXIO) => Failure::new(format!(
                "writing {}: it is a pipe that nobody reads; begin to read it before",
                path.display()
            )),
            _ => Failure::io(format!("writing {}", path.display()))(error),
        })?;
        let path = path.to_owned();
        Ok(Self { file, path, is_new })
    }

    /// Puts `bytes` in the place of what was there.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        // Only an ordinary file can be cut.
        let cut = match self.file.metadata() {
            Ok(about) if about.is_file() => self.file.set_len(0),
            _ => Ok(()),
        };
        cut.and_then(|()| write_fully(&mut &self.file, &self.file, bytes))
            .map_err(Failure::io(format!("writing {}", self.path.display())))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // What somebody else has written meanwhile stays.
        let is_empty = self.file.metadata().is_ok_and(|about| about.len() == 0);
        if self.is_new && is_empty {
            let _ = remove_file(&self.path);
        }
    }
}

/// Opens, or makes, a file to be locked, which is never one that somebody else's
/// link leads to. Whoever can open it could hold it: only its owner can.
///
/// # Errors
/// What the kernel answers.
pub fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(0o600);
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = options
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// What a file of JSON records; nothing where there is none or it is damaged.
pub fn read_record<T: Default + DeserializeOwned>(path: &Path) -> T {
    let bytes = read(path).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of this test run's own.
    fn folder(name: &str) -> std::path::PathBuf {
        let name = format!("portolan-file-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        folder
    }

    fn make_pipe(path: &Path) {
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.unwrap().success());
    }

    #[test]
    fn a_file_that_is_never_written_is_not_left() {
        let folder = folder("output");
        let [new, old] = ["new", "old"].map(|name| folder.join(name));
        File::create(&old).unwrap();
        drop([&new, &old].map(|path| Output::open(path).unwrap()));
        assert_eq!([new.exists(), old.exists()], [false, true]);
        Output::open(&new).unwrap().write(b"{}").unwrap();
        assert_eq!(std::fs::read(&new).unwrap(), b"{}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_pipe_is_read_to_its_end_and_awaited_for_a_bounded_time() {
        use std::io::Write;
        let folder = folder("pipe");
        let pipe = folder.join("pipe");
        make_pipe(&pipe);
        let long = Duration::from_secs(120);
        let read = |bytes_max, patience| read_or_await(&pipe, bytes_max, patience);
        let why = read(9, long).unwrap_err().to_string();
        assert!(why.contains("nobody wrote"), "{why}");
        // For reading too, so that opening it waits for no reader.
        let open_to_write = || {
            let mut options = File::options();
            options.read(true).write(true).open(&pipe).unwrap()
        };
        let opened = || {
            let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
            let leads_there = |path| std::fs::read_link(path).is_ok_and(|to| to == pipe);
            all.filter(|entry| leads_there(entry.path())).count()
        };
        for (bytes_max, expected) in [(9, b"host".as_slice()), (3, b"hos")] {
            let mut writer = open_to_write();
            writer.write_all(b"ho").unwrap();
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    // The reader has come.
                    while opened() < 2 {
                        std::thread::yield_now();
                    }
                    writer.write_all(b"st").unwrap();
                });
                assert_eq!(read(bytes_max, long).unwrap(), expected);
            });
        }
        // One that never ends.
        let writer = open_to_write();
        let why = read(9, Duration::from_millis(20)).unwrap_err().to_string();
        assert!(why.contains("has not ended within 0 s"), "{why}");
        drop(writer);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn only_ordinary_files_of_our_size_are_read() {
        let folder = folder("kinds");
        let [ordinary, long, endless, pipe] =
            ["ordinary", "long", "endless", "pipe"].map(|name| folder.join(name));
        std::fs::write(&ordinary, "text").unwrap();
        File::create(&long).unwrap().set_len(2 << 30).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &endless).unwrap();
        make_pipe(&pipe);
        let now = Duration::ZERO;
        assert_eq!(read_or_await(&ordinary, 3, now).unwrap(), b"tex");
        for path in [&endless, &folder] {
            let error = read_or_await(path, 3, now).unwrap_err().to_string();
            assert!(error.contains("no ordinary file and no pipe"), "{error}");
        }
        assert_eq!(read(&ordinary).unwrap(), b"text");
        for (path, why) in [
            (&long, "longer than 16 MiB"),
            (&endless, "not an ordinary file"),
            (&pipe, "not an ordinary file"),
            (&folder, "not an ordinary file"),
        ] {
            let error = read(path).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
