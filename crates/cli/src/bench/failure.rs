//! The bench's use of the command's [`Failure`]: what went wrong, and what
//! was being tried.

use std::fmt;

pub use crate::failure::{Failure, Result};

/// The error of a failed check.
pub fn fail<T>(text: impl Into<String>) -> Result<T> {
    Err(Failure::new(text))
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(error.to_string())
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(errno: rustix::io::Errno) -> Self {
        std::io::Error::from(errno).into()
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::new(format!(
            "a message between the processes of the bench: {error}"
        ))
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
