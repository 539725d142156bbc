//! Lines for people on standard error.

use std::fmt;
use std::io::{self, Write};

/// Writes `line` and its end in one call: ranks under one launcher may share
/// standard error, and lines that are written piece by piece mix.
pub fn tell(line: fmt::Arguments<'_>) {
    // Nobody is left to hear that standard error is closed.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}
