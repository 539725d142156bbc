//! How a command of `portolan` fails.

use std::fmt::{self, Write as _};
use std::io;
use std::process::ExitCode;

use portolan_boot::control::ControlError;

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
            let remedy = match error.kind() {
                io::ErrorKind::PermissionDenied => "; run it as root (sudo)",
                _ => "",
            };
            Self::new(format!("{doing}: {error}{remedy}"))
        }
    }

    /// As [`Failure::io`], for the error type of rustix.
    pub fn os(doing: impl fmt::Display) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self::io(doing)(errno.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It may hold what the user, a file or another host has written: no
        // terminal obeys it, and it stays one line.
        for character in self.text.chars() {
            match character {
                control if control.is_control() => write!(f, "{}", control.escape_default())?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
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
