//! The results of `portolan tune`: thresholds of matched messages, in a file for
//! each host and link. [`crate::Endpoint::open`] uses them for settings that no
//! other source sets.
//!
//! The file of host `H` and link `udp` is `H-udp.conf`. It is looked for in the
//! user's own folder, and then in `/etc/portolan/tuned.d`. The user's folder is
//! `$XDG_CONFIG_HOME/portolan/tuned.d`, else `~/.config/portolan/tuned.d`.
//! `PORTOLAN_TUNED` names another folder instead of both. If it is empty, no file is
//! used.
//!
//! Home directories are often shared between hosts, so the file's name contains the
//! host's name, and its NIS domain if it has one.

use std::fmt;
use std::fs;
use std::io;
use std::io::Write;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use portolan_sys::environment;
use portolan_sys::files::{self, SettingsLine};

use crate::settings::SETTINGS;
use crate::user_path::user_path;

/// The environment variable that names the folder.
pub const FOLDER_VARIABLE: &str = "PORTOLAN_TUNED";
/// The folder of all users.
pub const SYSTEM_FOLDER: &str = "/etc/portolan/tuned.d";

/// A link (transport) that has a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// Shared memory.
    Shm,
    /// UDP sockets.
    Udp,
    /// Host ports: AF_XDP queues that are owned by a process.
    Xdp,
}

impl Link {
    /// All links.
    pub const ALL: [Self; 3] = [Self::Shm, Self::Udp, Self::Xdp];

    /// The link's name in settings and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Udp => "udp",
            Self::Xdp => "xdp",
        }
    }

    /// The settings that its file may contain. The unit of all of them is bytes.
    #[must_use]
    pub const fn settings(self) -> &'static [&'static str] {
        match self {
            Self::Shm => &[
                "push_shm_whole",
                "push_shm_first",
                "push_shm_second",
                "share_min",
            ],
            Self::Udp | Self::Xdp => &[
                "push_net_whole",
                "push_net_first",
                "push_net_second",
                "pull_window",
                "pull_chunk",
            ],
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A file that cannot be used. Jobs run without it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} is not used: {why}; {}", Self::REMEDY)]
pub struct TunedError {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    pub why: String,
}

impl TunedError {
    /// The remedy, as text for the user.
    pub const REMEDY: &str = "portolan tune writes it anew, portolan tune --forget removes it (in /etc with \
         --system)";
}

/// The contents of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuned {
    path: PathBuf,
    values: Vec<(&'static str, u64)>,
    notes: Vec<String>,
}

impl Tuned {
    /// The file's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The settings and their values, bytes.
    pub fn values(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.values.iter().copied()
    }

    /// The comments before the first value: what was measured, and what was found.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    fn parse(path: &Path, link: Link, text: &str) -> Result<Self, String> {
        let value = |line: SettingsLine<'_>| {
            let number = line.number;
            let setting = line.setting();
            let (name, value) =
                setting.ok_or_else(|| format!("line {number} is not NAME = VALUE"))?;
            checked(link, name, value).map_err(|why| format!("line {number}: {why}"))
        };
        let first = files::lines(text)
            .next()
            .map_or(usize::MAX, |line| line.number);
        let notes = text
            .lines()
            .take(first - 1)
            .filter_map(|line| line.split_once('#'));
        let notes = notes.map(|(_, note)| note).filter(|note| !note.is_empty());
        Ok(Self {
            path: path.to_owned(),
            values: files::lines(text).map(value).collect::<Result<_, _>>()?,
            notes: notes.map(|note| note.trim().to_owned()).collect(),
        })
    }
}

/// A value of a setting that the link's file may hold, in its range.
fn checked(link: Link, name: &str, value: &str) -> Result<(&'static str, u64), String> {
    let known = link.settings();
    let name = (known.iter().copied())
        .find(|known| *known == name)
        .ok_or_else(|| format!("{name} is none of {}", known.join(", ")))?;
    let row = SETTINGS.iter().find(|row| row.name == name);
    let (least, most) = row.map_or((0, u64::MAX), |row| row.range);
    match value.parse() {
        Ok(bytes) if (least..=most).contains(&bytes) => Ok((name, bytes)),
        _ => Err(format!(
            "{name} is {value:?}: give {least} bytes or more, up to {most}"
        )),
    }
}

/// This host's name as used in file names: letters, digits, `-`, `_` and dots.
#[must_use]
pub fn host() -> String {
    let names = rustix::system::uname();
    let own = names.nodename().to_string_lossy();
    let domain = names.domainname().to_string_lossy();
    let whole = match &*domain {
        "" | "(none)" => own.into_owned(),
        domain => format!("{own}.{domain}"),
    };
    let plain = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' | '.' => c,
        _ => '_',
    };
    whole.chars().map(plain).collect()
}

/// The user's own folder. `None` if there is no home directory, or if
/// `PORTOLAN_TUNED` is empty.
#[must_use]
pub fn own_folder() -> Option<PathBuf> {
    if let Some(folder) = environment::var_os(FOLDER_VARIABLE) {
        return (!folder.is_empty()).then(|| folder.into());
    }
    user_path("XDG_CONFIG_HOME", ".config", "portolan/tuned.d")
}

/// The folders that are searched, in this order.
#[must_use]
pub fn folders() -> Vec<PathBuf> {
    let system = environment::var_os(FOLDER_VARIABLE).is_none();
    let system = system.then(|| PathBuf::from(SYSTEM_FOLDER));
    own_folder().into_iter().chain(system).collect()
}

/// The path of this host's file for a link in a folder.
#[must_use]
pub fn path_in(folder: &Path, link: Link) -> PathBuf {
    folder.join(format!("{}-{link}.conf", host()))
}

/// Reads the tuned values for a link of this host, from the first file that exists
/// in [`folders`]. `None` if there is none.
///
/// # Errors
/// [`TunedError`]: that file cannot be read, is not a regular file, is longer than
/// 64 KiB, or has a line or a value that is not possible.
pub fn find(link: Link) -> Result<Option<Tuned>, TunedError> {
    for folder in folders() {
        let path = path_in(&folder, link);
        let text = match files::read_settings(&path) {
            Ok(text) => text,
            Err(error) if is_absent(&error) => continue,
            Err(error) => {
                return Err(TunedError {
                    why: format!("it cannot be read: {error}"),
                    path,
                });
            }
        };
        return match Tuned::parse(&path, link, &text) {
            Ok(tuned) => Ok(Some(tuned)),
            Err(why) => Err(TunedError { path, why }),
        };
    }
    Ok(None)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Writes values of a link of this host to its file in `folder`, which is created
/// if needed. The file is replaced as a whole or not at all. `notes` become comments
/// before the values, one line each. Returns the file's path.
///
/// # Errors
/// The folder or the file cannot be created, written or renamed; then the file is
/// as before.
pub fn keep(
    folder: &Path,
    link: Link,
    notes: &[String],
    values: &[(&str, u64)],
) -> io::Result<PathBuf> {
    let mut text = String::new();
    for note in notes {
        text.push_str(&format!("# {}\n", note.replace('\n', " ")));
    }
    for (name, value) in values {
        text.push_str(&format!("{name} = {value}\n"));
    }
    fs::create_dir_all(folder)?;
    let path = path_in(folder, link);
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let written = (|| {
        let mut file = fs::File::create(&new)?;
        if folder == Path::new(SYSTEM_FOLDER) {
            // All users' processes read it, whatever the umask is.
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
            file.set_permissions(fs::Permissions::from_mode(0o644))?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &path)
    })();
    if written.is_err() {
        // A failure here is ignored: the first error is returned.
        let _ = fs::remove_file(&new);
    }
    written.map(|()| path)
}

/// Removes this host's file for a link from `folder`. Returns its path, or `None` if
/// there was none.
///
/// # Errors
/// The file exists and cannot be removed.
pub fn forget(folder: &Path, link: Link) -> io::Result<Option<PathBuf>> {
    let path = path_in(folder, link);
    match fs::remove_file(&path) {
        Ok(()) => Ok(Some(path)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Origin, Settings};

    fn parse(text: &str) -> Result<Tuned, String> {
        Tuned::parse(Path::new("file"), Link::Udp, text)
    }

    #[test]
    fn what_was_tuned_gives_way_to_everybody() {
        let tuned = parse("# by us\npush_net_first = 77\npull_chunk=8192 # short\n").unwrap();
        assert_eq!(tuned.notes(), ["by us"]);
        let mut settings = Settings::gather([("pull_chunk", "9000")], []).unwrap();
        settings.adopt(&tuned);
        let of = |name| (settings.number::<u64>(name), settings.origin(name));
        assert_eq!(of("push_net_first"), (Ok(77), Origin::Tuned));
        assert_eq!(of("pull_chunk"), (Ok(9000), Origin::Call));
        assert_eq!(of("push_net_second").1, Origin::Default);
        // Values of the next link override it.
        settings.adopt(&parse("push_net_first = 78").unwrap());
        assert_eq!(settings.number::<u64>("push_net_first"), Ok(78));
    }

    #[test]
    fn a_file_holds_what_belongs_to_its_link_in_its_range() {
        for (text, told) in [
            ("push_net_first", "line 1 is not NAME = VALUE"),
            ("\npush_shm_first = 1", "line 2: push_shm_first is none of"),
            ("pull_window = 1", "give 4096 bytes or more"),
            ("pull_window = -1", "pull_window is \"-1\""),
            ("pull_window =", "pull_window is \"\""),
            ("\u{0}\u{1}", "line 1"),
        ] {
            let refused = parse(text).unwrap_err();
            assert!(refused.contains(told), "{text:?}: {refused}");
        }
        assert_eq!(parse("").unwrap().values().count(), 0);
        let marked = parse("\u{feff}# by us\npush_net_first = 7 # short\n# more").unwrap();
        assert_eq!(marked.notes(), ["by us"]);
        assert_eq!(marked.values().collect::<Vec<_>>(), [("push_net_first", 7)]);
    }

    #[test]
    fn a_kept_file_is_read_again_and_forgotten() {
        let folder = std::env::temp_dir().join(format!("tuned-{}", std::process::id()));
        let notes = ["one".to_owned(), "two\nlines".to_owned()];
        let values = [("push_net_whole", 5), ("pull_window", 65_536)];
        let path = keep(&folder, Link::Udp, &notes, &values).unwrap();
        let text = files::read_settings(&path).unwrap();
        let tuned = Tuned::parse(&path, Link::Udp, &text).unwrap();
        assert_eq!(tuned.values().collect::<Vec<_>>(), values);
        assert_eq!(tuned.notes(), ["one", "two lines"]);
        // No temporary file is left beside it.
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        assert_eq!(forget(&folder, Link::Shm).unwrap(), None);
        assert_eq!(forget(&folder, Link::Udp).unwrap(), Some(path));
        fs::remove_dir(&folder).unwrap();
    }
}
