//! Settings of the node that hold for every process of the host, with the node
//! service or without: read from the service's settings file.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use portolan_sys::files::{self, SETTINGS_BYTES_MAX};
use rustix::process::geteuid;

/// The node's settings file.
pub const NODE_CONFIG: &str = "/etc/portolan/node.conf";

/// The setting that names users whose processes let no others put to their
/// memory or get from it.
pub const NO_ONE_SIDED: &str = "no_one_sided";

/// The word for all users.
const ANY: &str = "any";

/// Users whose memory others may not access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoOneSided {
    all: bool,
    users: Vec<u32>,
}

/// Why the setting is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The file cannot be read.
    #[error("{0}: {1}")]
    Unreadable(PathBuf, String),
    /// Others than root may write it.
    #[error("{0}: others than root may write it: chown root {0}; chmod go-w {0}")]
    Open(PathBuf),
    /// On this line, from 1, this word is neither a user's number nor `any`.
    #[error("{}:{}: {}", .0.display(), .1, NoOneSided::wrong(.2))]
    Word(PathBuf, usize, String),
}

impl fmt::Display for NoOneSided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.all {
            return f.write_str("any user");
        }
        let users: Vec<String> = self.users.iter().map(u32::to_string).collect();
        match users.as_slice() {
            [] => f.write_str("no user"),
            users => write!(f, "user {}", users.join(", ")),
        }
    }
}

impl NoOneSided {
    /// Parses the setting's value: numbers of users, separated by commas, or
    /// `any`. Names are not allowed: not every process should look them up.
    ///
    /// # Errors
    /// The word that is neither.
    pub fn parse(value: &str) -> Result<Self, &str> {
        let mut found = Self::default();
        for word in value.split(',').map(str::trim).filter(|w| !w.is_empty()) {
            match word.parse() {
                Ok(user) => found.users.push(user),
                Err(_) if word == ANY => found.all = true,
                Err(_) => return Err(word),
            }
        }
        Ok(found)
    }

    /// Returns what is wrong with a word that is neither.
    #[must_use]
    pub fn wrong(word: &str) -> String {
        format!("{NO_ONE_SIDED}: {word} is no number of a user (id -u {word}), nor {ANY}")
    }

    /// Whether the setting names `user`.
    #[must_use]
    pub fn names(&self, user: u32) -> bool {
        self.all || self.users.contains(&user)
    }

    /// Reads the setting from `file`, skipping others. Without a file, no user is named.
    ///
    /// # Errors
    /// [`PolicyError`].
    pub fn read(file: &Path) -> Result<Self, PolicyError> {
        let unreadable = |e: io::Error| PolicyError::Unreadable(file.to_owned(), e.to_string());
        let open = match files::open(file) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            open => open.map_err(unreadable)?,
        };
        if !files::is_roots(&open).map_err(unreadable)? {
            return Err(PolicyError::Open(file.to_owned()));
        }
        let text = files::read_text(open, SETTINGS_BYTES_MAX).map_err(unreadable)?;
        Self::find(&text).map_err(|(line, word)| PolicyError::Word(file.to_owned(), line, word))
    }

    /// Finds the setting in the text of a file; the error is line and word.
    fn find(text: &str) -> Result<Self, (usize, String)> {
        let mut found = Self::default();
        for line in files::lines(text) {
            let wrong = |word: &str| (line.number, word.to_owned());
            match line.setting() {
                Some((NO_ONE_SIDED, value)) => {
                    let more = Self::parse(value).map_err(wrong)?;
                    found.all |= more.all;
                    found.users.extend(more.users);
                }
                // A line without the sign was meant to forbid.
                None if line.words.starts_with(NO_ONE_SIDED) => return Err(wrong(line.words)),
                _ => {}
            }
        }
        Ok(found)
    }
}

/// Whether this process must let no others access its memory. Settings that
/// cannot be read allow nothing; the log has the reason.
#[must_use]
pub fn no_one_sided() -> bool {
    let user = geteuid().as_raw();
    let forbidden = match NoOneSided::read(Path::new(NODE_CONFIG)) {
        Ok(named) if named.names(user) => format!("{NODE_CONFIG} names user {user}"),
        Ok(_) => return false,
        Err(e) => e.to_string(),
    };
    log::warn!("no other rank may access this one's memory: {forbidden}");
    true
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    #[test]
    fn numbers_and_any_are_found_among_other_settings() {
        let of = |text: &str| NoOneSided::find(text);
        let named = of("users = ada\n no_one_sided=7, 1001 # two\nports = 3").unwrap();
        assert!(named.names(7) && named.names(1001) && !named.names(0));
        assert_eq!(named.to_string(), "user 7, 1001");
        assert!(of("no_one_sided = any").unwrap().names(0));
        assert!(of("\u{feff}no_one_sided = any").unwrap().names(0));
        for nobody in ["", "no_one_sided =", "#no_one_sided = any", "users = 7"] {
            assert_eq!(of(nobody).unwrap(), NoOneSided::default(), "{nobody}");
        }
        let both = of("no_one_sided = 1\nno_one_sided = 2").unwrap();
        assert!(both.names(1) && both.names(2));
        let any_first = of("no_one_sided = any\nno_one_sided = 2").unwrap();
        assert!(any_first.names(1));
        assert_eq!(of("\nno_one_sided = 1, ada"), Err((2, "ada".to_owned())));
        // A line without the sign is no other setting.
        let unsigned = (1, "no_one_sided 7".to_owned());
        assert_eq!(of(" no_one_sided 7 # all"), Err(unsigned));
        assert_eq!(of("others 7"), Ok(NoOneSided::default()));
        assert_eq!(of("no_one_sided = -1"), Err((1, "-1".to_owned())));
    }

    #[test]
    fn only_roots_file_counts_and_none_names_nobody() {
        let dir = std::env::temp_dir().join(format!("portolan-policy-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let file = dir.join("node.conf");
        assert_eq!(NoOneSided::read(&file), Ok(NoOneSided::default()));
        fs::write(&file, "no_one_sided = 5\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        if geteuid().is_root() {
            assert!(NoOneSided::read(&file).unwrap().names(5));
            for open in [0o664, 0o646] {
                fs::set_permissions(&file, fs::Permissions::from_mode(open)).unwrap();
                let refused = NoOneSided::read(&file);
                assert_eq!(refused, Err(PolicyError::Open(file.clone())), "{open:o}");
            }
            fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
            // The part beyond the limit could forbid something.
            fs::write(&file, "#".repeat(SETTINGS_BYTES_MAX as usize + 1)).unwrap();
            let refused = NoOneSided::read(&file);
            assert!(matches!(refused, Err(PolicyError::Unreadable(..))));
            fs::write(&file, "#".repeat(SETTINGS_BYTES_MAX as usize)).unwrap();
            assert_eq!(NoOneSided::read(&file), Ok(NoOneSided::default()));
            // Reading a pipe would block.
            let pipe = dir.join("pipe");
            let made = std::process::Command::new("mkfifo").arg(&pipe).status();
            assert!(made.unwrap().success());
            fs::set_permissions(&pipe, fs::Permissions::from_mode(0o644)).unwrap();
            let refused = NoOneSided::read(&pipe).unwrap_err().to_string();
            assert!(refused.contains("not an ordinary file"), "{refused}");
            chown(&file, Some(1), None).unwrap();
        }
        assert_eq!(NoOneSided::read(&file), Err(PolicyError::Open(file)));
        let unreadable = NoOneSided::read(&dir.join("node.conf/x"));
        assert!(matches!(unreadable, Err(PolicyError::Unreadable(..))));
        fs::remove_dir_all(&dir).unwrap();
    }
}
