//! Settings, one table row each.
//!
//! If several sources give a value, the first of these counts: the call that opens
//! the endpoint, the launcher (`portolan run --set`), the environment
//! (`PORTOLAN_NAME`), the file that `PORTOLAN_CONFIG` names, the values that
//! `portolan tune` has found, the default.

mod table;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portolan_sys::{environment, files};

use self::table::ANY;
pub use self::table::SETTINGS;
use crate::environment::nearest;
use crate::tuned::Tuned;

/// A setting: its name, default, unit, meaning and range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The name that `--set` takes. The environment variable is `PORTOLAN_` and the
    /// name in capitals.
    pub name: &'static str,
    /// The default, as text.
    pub default: &'static str,
    /// Unit of the value, or the words that are possible.
    pub unit: &'static str,
    /// The setting's effect.
    pub help: &'static str,
    /// Smallest and largest allowed number. If the default is 0, that is allowed as
    /// well and means that something else decides.
    pub range: (u64, u64),
}

/// The row of a known name.
fn find(name: &'static str) -> &'static Setting {
    let row = SETTINGS.iter().find(|s| s.name == name);
    row.expect("only names of rows are asked for")
}

/// The source of a value. A later variant overrides an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The default in [`SETTINGS`].
    Default,
    /// The values that `portolan tune` has found for this host and link.
    Tuned,
    /// The file that `PORTOLAN_CONFIG` names.
    File,
    /// A `PORTOLAN_` variable.
    Environment,
    /// `portolan run --set`.
    Launcher,
    /// The call that opened the endpoint.
    Call,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::Tuned => "tuned",
            Self::File => "file",
            Self::Environment => "environment",
            Self::Launcher => "--set",
            Self::Call => "call",
        })
    }
}

/// What to do about a setting that does not exist.
fn remedy(name: &str) -> String {
    let known: Vec<String> = SETTINGS.iter().map(|s| s.name.to_owned()).collect();
    match nearest(name, &known) {
        Some(near) => format!("is {near} meant?"),
        None => "`portolan doctor --settings` lists those that exist".to_owned(),
    }
}

/// A setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// No setting has this name.
    #[error("unknown setting {name} ({origin}): {}", remedy(name))]
    Unknown {
        /// The name.
        name: String,
        /// Its source.
        origin: Origin,
    },
    /// The value has the wrong type or is outside the setting's range.
    #[error("setting {name} ({origin}) is {value:?}: give {possible}")]
    Value {
        /// The setting.
        name: &'static str,
        /// The value.
        value: String,
        /// Its source.
        origin: Origin,
        /// The values that it can have.
        possible: String,
    },
    /// The file that `PORTOLAN_CONFIG` names cannot be read, or a line of it is not
    /// `NAME = VALUE`. The text is the message.
    #[error("{0}")]
    File(String),
}

/// The values that a setting can have.
fn possible(row: &Setting) -> String {
    let unit = row.unit;
    if row.default.parse::<u64>().is_err() {
        return unit.to_owned();
    }
    let off = match (row.default, row.range.0) {
        ("0", 1..) => "0 or ",
        _ => "",
    };
    match row.range {
        (least, ANY) => format!("{off}{least} or more ({unit})"),
        (least, most) => format!("{off}{least} to {most} ({unit})"),
    }
}

/// The value of every setting, with its source.
#[derive(Clone, Debug)]
pub struct Settings(BTreeMap<&'static str, (String, Origin)>);

impl Settings {
    /// Gathers values from all sources: `call` and `launcher`, the environment, and
    /// the file that `PORTOLAN_CONFIG` names. Values are checked when they are used;
    /// [`Settings::wrong`] checks all of them. Environment variables with other
    /// names are ignored.
    ///
    /// # Errors
    /// - [`SettingError::Unknown`]: `call`, `launcher` or the file has a name that is
    ///   no setting.
    /// - [`SettingError::File`]: the file cannot be read, or has a line that is not
    ///   `NAME = VALUE`.
    pub fn gather<'a>(
        call: impl IntoIterator<Item = (&'a str, &'a str)>,
        launcher: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, SettingError> {
        let all = SETTINGS
            .iter()
            .map(|s| (s.name, (s.default.to_owned(), Origin::Default)));
        let mut settings = Self(all.collect());
        // An empty variable counts as unset: a script can so undo one.
        let path = environment::var_os("PORTOLAN_CONFIG");
        if let Some(path) = path.filter(|path| !path.is_empty()) {
            let text = files::read_settings(Path::new(&path)).map_err(|e| {
                let path = path.to_string_lossy();
                SettingError::File(format!(
                    "PORTOLAN_CONFIG names {path}, which cannot be read: {e}"
                ))
            })?;
            settings.read_file(&text)?;
        }
        for s in SETTINGS {
            let variable = format!("PORTOLAN_{}", s.name.to_uppercase());
            let value = environment::var(&variable);
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                settings.set(s.name, &value, Origin::Environment)?;
            }
        }
        for (name, value) in launcher {
            settings.set(name, value, Origin::Launcher)?;
        }
        for (name, value) in call {
            settings.set(name, value, Origin::Call)?;
        }
        Ok(settings)
    }

    fn read_file(&mut self, text: &str) -> Result<(), SettingError> {
        for line in files::lines(text) {
            let (name, value) = line.setting().ok_or_else(|| {
                let number = line.number;
                SettingError::File(format!("PORTOLAN_CONFIG, line {number}: not NAME = VALUE"))
            })?;
            self.set(name, value, Origin::File)?;
        }
        Ok(())
    }

    /// Takes tuned values for settings that no other source sets. If called several
    /// times, later values override earlier ones.
    pub fn adopt(&mut self, tuned: &Tuned) {
        for (name, value) in tuned.values() {
            let entry = self.0.get_mut(name);
            let entry = entry.filter(|(_, origin)| *origin <= Origin::Tuned);
            if let Some(entry) = entry {
                *entry = (value.to_string(), Origin::Tuned);
            }
        }
    }

    fn set(&mut self, name: &str, value: &str, origin: Origin) -> Result<(), SettingError> {
        let entry = self.0.get_mut(name).ok_or_else(|| SettingError::Unknown {
            name: name.to_owned(),
            origin,
        })?;
        *entry = (value.to_owned(), origin);
        Ok(())
    }

    /// Every setting: its name, its value and the value's source.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str, Origin)> {
        self.0
            .iter()
            .map(|(name, (value, origin))| (*name, value.as_str(), *origin))
    }

    /// The source of a setting's value.
    pub(crate) fn origin(&self, name: &'static str) -> Origin {
        self.0[name].1
    }

    pub(crate) fn number<T: std::str::FromStr>(
        &self,
        name: &'static str,
    ) -> Result<T, SettingError> {
        let (value, _) = &self.0[name];
        let Setting { default, range, .. } = find(name);
        let allowed = value == default
            || value
                .parse()
                .is_ok_and(|v: u64| (range.0..=range.1).contains(&v));
        let parsed = value.parse().ok().filter(|_| allowed);
        parsed.ok_or_else(|| self.refused(name))
    }

    /// The error for an impossible value.
    fn refused(&self, name: &'static str) -> SettingError {
        self.refused_for(name, possible(find(name)))
    }

    pub(crate) fn refused_for(&self, name: &'static str, possible: String) -> SettingError {
        let (value, origin) = &self.0[name];
        SettingError::Value {
            name,
            value: value.clone(),
            origin: *origin,
            possible,
        }
    }

    /// An error for each value that is not a number in its setting's range, or not
    /// one of the setting's words. Names of files, hosts and networks are not looked
    /// up.
    pub fn wrong(&self) -> Vec<SettingError> {
        let is_right = |row: &Setting| {
            if row.default.parse::<u64>().is_ok() {
                return self.number::<u64>(row.name).is_ok();
            }
            let (value, _) = &self.0[row.name];
            match row.unit {
                "on or off" => self.switch(row.name).is_ok(),
                unit => {
                    let words: Vec<&str> =
                        unit.split(", ").flat_map(|it| it.split(" or ")).collect();
                    // Otherwise the unit describes the value: any text is right.
                    !words.contains(&row.default) || words.contains(&value.as_str())
                }
            }
        };
        let wrong = SETTINGS.iter().filter(|row| !is_right(row));
        wrong.map(|row| self.refused(row.name)).collect()
    }

    /// A setting in milliseconds.
    pub(crate) fn millis(&self, name: &'static str) -> Result<Duration, SettingError> {
        Ok(Duration::from_millis(self.number(name)?))
    }

    /// A setting whose value is any text; `None` if empty.
    pub(crate) fn text(&self, name: &'static str) -> Option<&str> {
        let (value, _) = &self.0[name];
        Some(value.as_str()).filter(|value| !value.is_empty())
    }

    /// A setting whose value is one of the words that its unit names: returns the
    /// entry of `choices` for that word. Not every endpoint permits all words.
    pub(crate) fn choice<T: Copy>(
        &self,
        name: &'static str,
        choices: &[(&str, T)],
    ) -> Result<T, SettingError> {
        let (value, _) = &self.0[name];
        let found = choices.iter().find(|(word, _)| word == value);
        found.map(|(_, it)| *it).ok_or_else(|| {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            let (last, others) = words.split_last().expect("there is a choice");
            self.refused_for(name, format!("{} or {last}", others.join(", ")))
        })
    }

    /// The file that a setting names for `owner`, one file each. `later`: how many
    /// of that number came before (restarts). `None`: the setting is empty.
    pub(crate) fn file_of(&self, name: &'static str, owner: u32, later: u32) -> Option<PathBuf> {
        let (value, _) = &self.0[name];
        let owner = match later {
            0 => owner.to_string(),
            times => format!("{owner}-{times}"),
        };
        (!value.is_empty()).then(|| match value.contains("%r") {
            true => value.replace("%r", &owner).into(),
            false => format!("{value}.{owner}").into(),
        })
    }

    pub(crate) fn switch(&self, name: &'static str) -> Result<bool, SettingError> {
        match self.0[name].0.as_str() {
            "on" | "1" => Ok(true),
            "off" | "0" => Ok(false),
            _ => Err(self.refused(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_call_goes_over_the_launcher() {
        let s = Settings::gather([("port", "7")], [("port", "8"), ("frames", "64")]).unwrap();
        assert_eq!(
            (s.number::<u16>("port"), s.origin("port")),
            (Ok(7), Origin::Call)
        );
        assert_eq!(
            (s.number::<u32>("frames"), s.origin("frames")),
            (Ok(64), Origin::Launcher)
        );
        assert_eq!(s.origin("silence_ms"), Origin::Default);
    }

    #[test]
    fn wrong_names_and_values_are_told_with_what_would_be_right() {
        let unknown = Settings::gather([("prot", "7")], []).unwrap_err();
        assert!(unknown.to_string().contains("is port meant?"), "{unknown}");
        let unknown = Settings::gather([("xyzzy", "7")], []).unwrap_err();
        assert!(
            unknown.to_string().contains("portolan doctor --settings"),
            "{unknown}"
        );
        let s = Settings::gather([("port", "70000"), ("helper", "maybe")], []).unwrap();
        assert!(
            s.number::<u16>("port")
                .unwrap_err()
                .to_string()
                .contains("UDP port")
        );
        assert!(
            s.switch("helper")
                .unwrap_err()
                .to_string()
                .contains("on or off")
        );
    }

    #[test]
    fn words_are_those_of_the_row() {
        let choices = [("auto", 1), ("lan", 2), ("shared", 3)];
        let s = Settings::gather([("congestion", "shared")], []).unwrap();
        assert_eq!(s.choice("congestion", &choices), Ok(3));
        let s = Settings::gather([("congestion", "wan")], []).unwrap();
        let told = s.choice("congestion", &choices).unwrap_err().to_string();
        let wanted = "setting congestion (call) is \"wan\": give auto, lan or shared";
        assert_eq!(told, wanted);
    }

    #[test]
    fn what_is_out_of_range_is_told_with_the_range() {
        let told = |name: &'static str, value: &str| {
            let s = Settings::gather([(name, value)], []).unwrap();
            s.number::<u64>(name).map_err(|e| e.to_string())
        };
        assert_eq!(told("frames", "32"), Ok(32));
        let frames = "setting frames (call) is \"31\": give 32 to 1048576 (frames)";
        assert_eq!(told("frames", "31").unwrap_err(), frames);
        assert!(told("active_peers", "0").is_err());
        assert_eq!(told("packet_max", "0"), Ok(0));
        let packet = told("packet_max", "1231").unwrap_err();
        assert!(
            packet.ends_with("give 0 or 1232 to 65507 (bytes)"),
            "{packet}"
        );
        let silence = told("silence_ms", "-1").unwrap_err();
        assert!(silence.ends_with("give 1 or more (ms)"), "{silence}");
        // The value must be in the setting's range, not only in that of the type.
        let s = Settings::gather([("port", "65536")], []).unwrap();
        assert!(s.number::<u64>("port").is_err());
    }

    #[test]
    fn every_default_is_a_value_of_its_setting() {
        assert_eq!(Settings::gather([], []).unwrap().wrong(), []);
    }

    #[test]
    fn all_that_is_wrong_is_told() {
        let given = [
            ("frames", "abc"),
            ("helper", "maybe"),
            ("link", "tcp"),
            ("suite", "chacha20-poly1305"),
            ("port", "9"),
            ("agent", "any"),
        ];
        let wrong = Settings::gather(given, []).unwrap().wrong();
        let told: Vec<String> = wrong.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "setting helper (call) is \"maybe\": give on or off",
                "setting frames (call) is \"abc\": give 32 to 1048576 (frames)",
                "setting link (call) is \"tcp\": give auto, shm, udp or xdp",
            ]
        );
    }

    #[test]
    fn a_file_has_comments_and_must_be_name_and_value() {
        let mut s = Settings::gather([], []).unwrap();
        s.read_file("# ours\nport = 9 # nine\n\n").unwrap();
        assert_eq!(
            (s.number::<u16>("port"), s.origin("port")),
            (Ok(9), Origin::File)
        );
        assert!(
            s.read_file("port 9")
                .unwrap_err()
                .to_string()
                .contains("line 1")
        );
    }
}
