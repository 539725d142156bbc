//! How a command of `portolan` fails.

use std::fmt::{self, Write as _};
use std::io;
use std::process::ExitCode;

use portolan_boot::control::ControlError;
use portolan_sys::calls;
use portolan_sys::process::soft_limit;
use rustix::io::Errno;
use rustix::process::Resource;

/// So much of the beginning and of the end of a long text is shown, characters.
const SHOWN_MAX: usize = 2_000;

/// What a command says and returns when it fails.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    text: String,
}

/// What a command or a part of one gives.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Something went wrong that the user's input did not cause. Exit code 1.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            code: 1,
            text: text.into(),
        }
    }

    /// The user's input is at fault. Exit code 2, as for unknown options.
    pub fn usage(text: impl Into<String>) -> Self {
        Self {
            code: 2,
            text: text.into(),
        }
    }

    /// With an exit code of its own.
    pub fn with_code(code: u8, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
        }
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        self.code
    }

    /// A system call failed: says what it was for. For `map_err`.
    pub fn io(doing: impl fmt::Display) -> impl FnOnce(io::Error) -> Self {
        move |error| {
            if let Some(remedy) = calls::remedy_of(&error) {
                return Self::new(format!("{doing}: {error}; {remedy}"));
            }
            let remedy = match Errno::from_io_error(&error) {
                Some(Errno::PERM) if rustix::process::geteuid().is_root() => {
                    "; a container's profile (seccomp) or a missing capability refuses it: allow it"
                }
                Some(Errno::ACCESS | Errno::PERM) => "; run it as root (sudo)",
                Some(Errno::MFILE) => "; raise the limit of open files (ulimit -n 1024)",
                Some(Errno::NFILE) => "; all processes of this host have too many open files",
                // What starts a process or a thread answers so, also where its
                // stack finds no place.
                Some(Errno::AGAIN) if soft_limit(Resource::As).is_some() => {
                    "; raise the limits of address space (ulimit -v) and of processes (ulimit -u)"
                }
                Some(Errno::AGAIN) => "; raise the limit of processes (ulimit -u), or end some",
                _ => "",
            };
            Self::new(format!("{doing}: {error}{remedy}"))
        }
    }

    /// As [`Failure::io`], for the error type of rustix.
    pub fn os(doing: impl fmt::Display) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::io(doing)(errno.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It may hold what the user, a file or another host has written: no
        // terminal obeys it, and it stays one line.
        let count = self.text.chars().count();
        let left_out = count.saturating_sub(2 * SHOWN_MAX);
        let left_out = SHOWN_MAX..SHOWN_MAX + left_out;
        for (at, character) in self.text.chars().enumerate() {
            if at == left_out.start && !left_out.is_empty() {
                write!(f, "... ({} more characters) ...", left_out.len())?;
            }
            match character {
                _ if left_out.contains(&at) => {}
                control if control.is_control() => write!(f, "{}", control.escape_default())?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

/// The error of a failed check.
pub fn fail<T>(text: impl Into<String>) -> Result<T> {
    Err(Failure::new(text))
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(error.to_string())
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        io::Error::from(errno).into()
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::new(format!("writing or reading JSON: {error}"))
    }
}

/// Names what was being tried when an error struck.
pub trait Context<T> {
    /// Puts `context` in front of the error's text.
    fn context(self, context: impl fmt::Display) -> Result<T>;
}

impl<T, E: Into<Failure>> Context<T> for std::result::Result<T, E> {
    fn context(self, context: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Failure::new(format!("{context}: {}", error.into())))
    }
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::NoJob(_) | ControlError::Several(_) => Self::usage(error.to_string()),
            error => Self::new(error.to_string()),
        }
    }
}

impl From<Failure> for ExitCode {
    fn from(failure: Failure) -> Self {
        failure.code.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_a_remedy() {
        for (errno, part) in [
            (Errno::AGAIN, "ulimit -u"),
            (Errno::MFILE, "ulimit -n"),
            (Errno::ACCESS, "sudo"),
        ] {
            let said = Failure::os("doing it")(errno).to_string();
            assert!(
                said.starts_with("doing it: ") && said.contains(part),
                "{said}"
            );
        }
    }

    #[test]
    fn the_middle_of_a_long_text_is_left_out() {
        let said = |text: &str| Failure::new(text).to_string();
        let whole = format!("{}\n", "é".repeat(2 * SHOWN_MAX - 1));
        assert_eq!(said(&whole), whole.replace('\n', "\\n"));
        let long = format!("a{}b", "x".repeat(2 * SHOWN_MAX));
        let shown = said(&long);
        let (begin, end) = shown.split_once("... (2 more characters) ...").unwrap();
        assert_eq!((begin.len(), end.len()), (SHOWN_MAX, SHOWN_MAX));
        assert!(begin.starts_with('a') && end.ends_with('b'));
    }
}
