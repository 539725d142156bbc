//! What the node service allows to whom.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use portolan_boot::node::{NO_ONE_SIDED, NoOneSided};
use portolan_sys::children::Start;
use portolan_sys::files;

use crate::file;

/// Where the settings stand, unless the command line says otherwise. Without
/// that file nobody but root has host ports.
pub const CONFIG_FILE: &str = portolan_boot::node::NODE_CONFIG;

const ROOT: u32 = 0;
/// The word for all interfaces.
const ANY: &str = "any";

/// Who may have how much. Bounds are those of root too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where that stands.
    pub file: PathBuf,
    /// User numbers and their names; root is always among them.
    pub users: BTreeMap<u32, String>,
    /// Names of interfaces that may carry host ports; none: all.
    pub interfaces: Option<Vec<String>>,
    /// Host ports of all users together.
    pub ports: u32,
    /// Host ports of one user.
    pub user_ports: u32,
    /// Packet memory of one user's host ports, MiB.
    pub user_memory_mib: u32,
    /// Connections of one user.
    pub user_connections: u32,
    /// Connections and questions of one user, each second; twice as many at
    /// once.
    pub user_requests: u32,
    /// Seconds that the program stays on an interface after its last host port.
    pub linger_seconds: u32,
    /// Whose processes let no others access their memory. They read this
    /// themselves; here it is only looked at.
    pub no_one_sided: NoOneSided,
}

impl Default for Config {
    /// A host's 16 ranks, three jobs that start at once.
    fn default() -> Self {
        Self {
            file: CONFIG_FILE.into(),
            users: BTreeMap::from([(ROOT, "root".to_owned())]),
            interfaces: None,
            ports: 64,
            user_ports: 16,
            user_memory_mib: 256,
            user_connections: 16,
            user_requests: 50,
            linger_seconds: 60,
            no_one_sided: NoOneSided::default(),
        }
    }
}

/// Settings that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{0}: {1}")]
    Unreadable(PathBuf, String),
    /// Others than root may write it.
    #[error("{0}: others than root may write it: chown root {0}; chmod go-w {0}")]
    Open(PathBuf),
    /// What stands at a line and column, both from 1, makes no sense.
    #[error("{file}:{line}:{column}: {what}")]
    Text {
        /// Which file.
        file: PathBuf,
        /// Its line.
        line: usize,
        /// Its column, characters.
        column: usize,
        /// What is wrong, and what would be right.
        what: String,
    },
}

impl Config {
    /// Reads `file`; none: the usual one, which need not be there.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn read(file: Option<&Path>) -> Result<Self, ConfigError> {
        let path = file.unwrap_or(Path::new(CONFIG_FILE));
        let unreadable = |e: io::Error| ConfigError::Unreadable(path.to_owned(), e.to_string());
        let open = match files::open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && file.is_none() => {
                return Ok(Self::default());
            }
            open => open.map_err(unreadable)?,
        };
        if !files::is_roots(&open).map_err(unreadable)? {
            return Err(ConfigError::Open(path.to_owned()));
        }
        let text = files::read_text(open, file::BYTES_MAX).map_err(unreadable)?;
        Self::parse(path, &text, &number_of)
    }

    /// `find` gives the number of a user by name.
    fn parse(
        file: &Path,
        text: &str,
        find: &dyn Fn(&str) -> Option<u32>,
    ) -> Result<Self, ConfigError> {
        let mut config = Self {
            file: file.to_owned(),
            ..Self::default()
        };
        let mut seen = Vec::new();
        for line in files::lines(text) {
            // `part` is a piece of `line`.
            let wrong = |part: &str, what: String| ConfigError::Text {
                file: file.to_owned(),
                line: line.number,
                column: line.column(part),
                what,
            };
            let Some((name, value)) = line.setting() else {
                return Err(wrong(line.words, "not NAME = VALUE".to_owned()));
            };
            if seen.contains(&name) {
                return Err(wrong(name, format!("{name} stands here a second time")));
            }
            seen.push(name);
            let words = || {
                value
                    .split(',')
                    .map(str::trim)
                    .filter(|word| !word.is_empty())
            };
            match name {
                "users" => {
                    for word in words() {
                        let number = match word.parse() {
                            Ok(number) => Some(number),
                            Err(_) => find(word),
                        };
                        let none =
                            || format!("no user is called {word} here (getent passwd {word})");
                        let number = number.ok_or_else(|| wrong(word, none()))?;
                        config
                            .users
                            .entry(number)
                            .or_insert_with(|| word.to_owned());
                    }
                }
                "interfaces" => {
                    config.interfaces =
                        (value != ANY).then(|| words().map(str::to_owned).collect());
                }
                NO_ONE_SIDED => {
                    let named = NoOneSided::parse(value);
                    config.no_one_sided =
                        named.map_err(|word| wrong(word, NoOneSided::wrong(word)))?;
                }
                _ => {
                    let Some((into, most)) = config.number(name) else {
                        return Err(wrong(name, unknown(name)));
                    };
                    let given = value.parse().ok().filter(|n| (1..=most).contains(n));
                    *into = given.ok_or_else(|| {
                        // Nothing stands behind the sign.
                        let at = if value.is_empty() { name } else { value };
                        wrong(at, format!("{name} is {value:?}: give 1 to {most}"))
                    })?;
                }
            }
        }
        Ok(config)
    }

    /// A setting that is a number, and the largest that it may be.
    fn number(&mut self, name: &str) -> Option<(&mut u32, u32)> {
        Some(match name {
            // As many as the XDP program knows of one interface.
            "ports" => (&mut self.ports, 256),
            "user_ports" => (&mut self.user_ports, 256),
            "user_memory_mib" => (&mut self.user_memory_mib, 1 << 20),
            "user_connections" => (&mut self.user_connections, 256),
            "user_requests" => (&mut self.user_requests, 100_000),
            "linger_seconds" => (&mut self.linger_seconds, 86_400),
            _ => return None,
        })
    }

    /// Whether an interface may carry host ports.
    pub fn allows(&self, interface: &str) -> bool {
        let named = |names: &Vec<String>| names.iter().any(|name| name == interface);
        self.interfaces.as_ref().is_none_or(named)
    }

    /// What a user is called, for people to read.
    pub fn name(&self, uid: u32) -> String {
        match self.users.get(&uid) {
            Some(name) if name.parse::<u32>().is_err() => format!("{name} ({uid})"),
            _ => uid.to_string(),
        }
    }
}

fn unknown(name: &str) -> String {
    format!(
        "unknown setting {name}; known are: users, interfaces, ports, user_ports, \
         user_memory_mib, user_connections, user_requests, linger_seconds, {NO_ONE_SIDED}"
    )
}

/// The number of a user, from wherever this host has its users.
fn number_of(name: &str) -> Option<u32> {
    let found = Command::new("getent")
        .args(["passwd", "--", name])
        .start_and_read()
        .ok()?;
    let line = String::from_utf8(found.stdout).ok()?;
    let mut fields = line.lines().next()?.split(':');
    // A number would have found a user too.
    fields.next().filter(|found| *found == name)?;
    fields.nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan_link::conformance::Random;

    const FILE: &str = "node.conf";

    fn unset() -> Config {
        Config {
            file: FILE.into(),
            ..Config::default()
        }
    }

    fn parse(text: &str) -> Result<Config, String> {
        let find = |name: &str| (name == "ada").then_some(1001);
        Config::parse(Path::new(FILE), text, &find).map_err(|e| e.to_string())
    }

    #[test]
    fn users_are_names_and_numbers_and_root_is_always_one() {
        let config = parse("# ours\nusers = ada, 77 # two\n\nuser_ports=3\n").unwrap();
        let users: Vec<_> = config.users.keys().copied().collect();
        assert_eq!(users, [0, 77, 1001]);
        assert_eq!(
            (config.name(1001), config.name(77)),
            ("ada (1001)".into(), "77".into())
        );
        assert_eq!((config.user_ports, config.ports), (3, 64));
        assert!(config.allows("eth7"));
        let config = parse("interfaces = eth0, eth2").unwrap();
        assert!(config.allows("eth2") && !config.allows("eth1"));
        assert!(parse("interfaces = any").unwrap().allows("eth1"));
        assert_eq!(parse("users =").unwrap(), unset());
        assert_eq!(parse("\u{feff}users =").unwrap(), unset());
        let config = parse("no_one_sided = 7").unwrap();
        assert!(config.no_one_sided.names(7) && !config.no_one_sided.names(8));
    }

    #[test]
    fn what_is_wrong_is_told_with_line_and_column() {
        for (text, told) in [
            ("ports = 3\n  ports 4", "node.conf:2:3: not NAME = VALUE"),
            (
                "users = ada, bob",
                "node.conf:1:14: no user is called bob here",
            ),
            (
                "\u{feff}usres = ada",
                "node.conf:1:1: unknown setting usres",
            ),
            (
                "\n\tusres = ada",
                "node.conf:2:2: unknown setting usres; known are: users",
            ),
            ("ports = 0", "node.conf:1:9: ports is \"0\": give 1 to 256"),
            (
                "user_ports =",
                "node.conf:1:1: user_ports is \"\": give 1 to 256",
            ),
            (
                "ports = 1\nports = 2",
                "node.conf:2:1: ports stands here a second time",
            ),
            (
                "no_one_sided = 7, ada",
                "node.conf:1:19: no_one_sided: ada is no number of a user (id -u ada), nor any",
            ),
            (
                "user_memory_mib = lots",
                "node.conf:1:19: user_memory_mib is \"lots\"",
            ),
        ] {
            let why = parse(text).unwrap_err();
            assert!(why.starts_with(told), "{text:?}: {why}");
        }
    }

    #[test]
    fn random_settings_are_read_or_refused_in_a_sentence() {
        let words = [
            "users",
            "users = ",
            "interfaces = ",
            "ports",
            "ports=3",
            "user_ports = 0",
            "user_memory_mib = ",
            "no_one_sided = ",
            "linger_seconds=1",
            "ada",
            "bob",
            "eth0",
            " = ",
            "\n",
            " # note\n",
        ];
        let (mut right, mut wrong) = (0, 0);
        for seed in 0..20_000 {
            let mut random = Random(seed);
            let mut bytes = Vec::new();
            for _ in 0..random.below(9) {
                bytes.extend(words[random.below(words.len())].as_bytes());
            }
            for _ in 0..random.below(3) {
                if !bytes.is_empty() {
                    let at = random.below(bytes.len());
                    bytes[at] = random.draw() as u8;
                }
            }
            let text = String::from_utf8_lossy(&bytes);
            match parse(&text) {
                Ok(_) => right += 1,
                Err(why) => {
                    wrong += 1;
                    let what = why.strip_prefix("node.conf:").map(|it| it.splitn(3, ':'));
                    let what = what.and_then(|mut parts| parts.nth(2));
                    let what = what.unwrap_or_else(|| panic!("{text:?}: {why}"));
                    assert!(what.len() > 8 && what.len() < 400, "{text:?}: {why}");
                }
            }
        }
        assert!(right > 100 && wrong > 2_000, "{right} {wrong}");
    }

    #[test]
    fn the_sample_allows_nobody() {
        let sample = include_str!("../../../../etc/node.conf");
        assert_eq!(parse(sample).unwrap(), unset());
        // What it mentions is known, with the defaults.
        let shown = |line: &str| line.strip_prefix("#= ").map(str::to_owned);
        let all: Vec<String> = sample.lines().filter_map(shown).collect();
        assert!(all.len() >= 7, "{all:?}");
        let config = parse(&all.join("\n")).unwrap();
        assert_eq!(config.users.len(), 2);
        let users = unset().users;
        assert_eq!(Config { users, ..config }, unset());
    }
}
