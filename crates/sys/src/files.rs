//! Files that somebody else may have made, and lines `NAME = VALUE` in them.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Longest file of settings that a program reads, bytes.
pub const SETTINGS_BYTES_MAX: u64 = 64 << 10;

/// Opens an ordinary file for reading. Whatever else is there may never end,
/// or keep who opens it waiting, and is refused.
///
/// # Errors
/// What the kernel answers, or what it is instead.
pub fn open(path: &Path) -> io::Result<File> {
    let file = open_at_once(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is not an ordinary file"))
    }
}

/// Opens whatever is there for reading, without waiting for anybody.
///
/// # Errors
/// What the kernel answers.
pub fn open_at_once(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
}

/// Whether a file is root's, and nobody else may write it.
///
/// # Errors
/// What the kernel answers.
pub fn is_roots(file: &File) -> io::Result<bool> {
    let about = file.metadata()?;
    Ok(about.uid() == 0 && about.mode() & 0o022 == 0)
}

/// All of a file.
///
/// # Errors
/// What the kernel answers; the file is longer than `bytes_max`.
pub fn read(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 <= bytes_max {
        return Ok(bytes);
    }
    let limit = match bytes_max >> 20 {
        0 => format!("{} KiB", bytes_max >> 10),
        mib => format!("{mib} MiB"),
    };
    Err(io::Error::other(format!("it is longer than {limit}")))
}

/// All of a file of text.
///
/// # Errors
/// As [`read`]; the file is not UTF-8.
pub fn read_text(file: File, bytes_max: u64) -> io::Result<String> {
    io::read_to_string(&read(file, bytes_max)?[..])
}

/// All of an ordinary file of settings, [`lines`].
///
/// # Errors
/// As [`open`] and [`read_text`].
pub fn read_settings(path: &Path) -> io::Result<String> {
    read_text(open(path)?, SETTINGS_BYTES_MAX)
}

/// A line of settings.
#[derive(Clone, Copy, Debug)]
pub struct SettingsLine<'a> {
    /// Its number, from 1.
    pub number: usize,
    whole: &'a str,
    /// What stands there besides space and a comment: something.
    pub words: &'a str,
}

impl<'a> SettingsLine<'a> {
    /// Its name and its value; none: it is not `NAME = VALUE`.
    #[must_use]
    pub fn setting(&self) -> Option<(&'a str, &'a str)> {
        let (name, value) = self.words.split_once('=')?;
        Some((name.trim(), value.trim()))
    }

    /// The column, from 1, where a piece of it begins.
    #[must_use]
    pub fn column(&self, piece: &str) -> usize {
        let before = piece.as_ptr() as usize - self.whole.as_ptr() as usize;
        self.whole[..before].chars().count() + 1
    }
}

/// The lines of a text of settings that hold more than a comment, which begins
/// with `#`.
pub fn lines(text: &str) -> impl Iterator<Item = SettingsLine<'_>> {
    // Some editors begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let line = |(number, whole): (usize, _)| SettingsLine {
        number,
        whole,
        words: str::split(whole, '#').next().unwrap_or_default().trim(),
    };
    (1..)
        .zip(text.lines())
        .map(line)
        .filter(|line| !line.words.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_numbers_columns_and_no_comments() {
        let text = "\u{feff}a = 1\r\n# note\n\n \u{e4}b=2 = 3 # c = 4\nno sign\n =\n";
        let all: Vec<_> = lines(text)
            .map(|line| (line.number, line.setting()))
            .collect();
        assert_eq!(
            all,
            [
                (1, Some(("a", "1"))),
                (4, Some(("\u{e4}b", "2 = 3"))),
                (5, None),
                (6, Some(("", ""))),
            ]
        );
        let fourth = lines(text).nth(1).unwrap();
        let (name, value) = fourth.setting().unwrap();
        assert_eq!((fourth.column(name), fourth.column(value)), (2, 5));
        assert_eq!(lines("").count(), 0);
    }

    #[test]
    fn only_bounded_text_of_ordinary_files_is_read() {
        let file = std::env::temp_dir().join(format!("portolan-settings-{}", std::process::id()));
        for (bytes, why) in [
            (vec![b'a'; SETTINGS_BYTES_MAX as usize], ""),
            (
                vec![b'a'; SETTINGS_BYTES_MAX as usize + 1],
                "longer than 64 KiB",
            ),
            (vec![0xff; 9], "UTF-8"),
        ] {
            std::fs::write(&file, &bytes).unwrap();
            match read_settings(&file) {
                Ok(text) => assert_eq!(text.into_bytes(), bytes),
                Err(error) => assert!(
                    !why.is_empty() && error.to_string().contains(why),
                    "{error}"
                ),
            }
        }
        std::fs::remove_file(&file).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&file).status();
        assert!(made.unwrap().success());
        for path in [&file, Path::new("/dev/zero"), Path::new("/")] {
            let why = read_settings(path).unwrap_err().to_string();
            assert!(why.contains("not an ordinary file"), "{why}");
        }
        std::fs::remove_file(&file).unwrap();
    }
}
