//! Files that somebody else may have made.

use std::fs::{File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use serde::de::DeserializeOwned;

/// Longest file of ours that is read: configurations, states, reports.
pub const BYTES_MAX: u64 = 16 << 20;

/// Opens an ordinary file for reading. Whatever else is there may never end,
/// or keep who opens it waiting, and is refused.
///
/// # Errors
/// What the kernel answers, or what it is instead.
pub fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    let file = options
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is not an ordinary file"))
    }
}

/// All of an ordinary file.
///
/// # Errors
/// As [`open`]; it is longer than any of ours.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        let limit = BYTES_MAX >> 20;
        return Err(io::Error::other(format!("it is longer than {limit} MiB")));
    }
    Ok(bytes)
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

    #[test]
    fn only_ordinary_files_of_our_size_are_read() {
        let folder = std::env::temp_dir().join(format!("portolan-file-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let [ordinary, long, endless, pipe] =
            ["ordinary", "long", "endless", "pipe"].map(|name| folder.join(name));
        std::fs::write(&ordinary, "text").unwrap();
        File::create(&long).unwrap().set_len(2 << 30).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &endless).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
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
