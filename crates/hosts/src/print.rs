//! The one writer of all commands: what they found goes to standard output,
//! what they are at to a terminal on standard error.

use std::fmt;
use std::io::{self, Write};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};

pub use portolan_sys::tell::tell;

use crate::failure::{Failure, Result};

/// Whether standard output is still read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// It is.
    Reads,
    /// As `| head` does once it has enough. What else a command does it does
    /// all the same.
    HasGone,
}

/// Prints `text` as it is.
///
/// # Errors
/// It cannot be written, and somebody wants it.
pub fn print(text: impl fmt::Display) -> Result<Reader> {
    let text = text.to_string();
    let (mut lock, descriptor) = (io::stdout().lock(), io::stdout());
    outcome(write_fully(&mut lock, &descriptor, text.as_bytes()))
}

/// What became of text for standard output.
///
/// # Errors
/// As [`print`].
pub fn outcome(written: io::Result<()>) -> Result<Reader> {
    match written {
        Ok(()) => Ok(Reader::Reads),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::HasGone),
        Err(error) => Err(Failure::new(format!(
            "writing standard output: {error}; free some space there, or send it elsewhere"
        ))),
    }
}

/// A number of things, `noun` being the word for one: "1 host", "2 hosts".
pub fn counted(number: usize, noun: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{ending}")
}

/// Shows how far something is, in the place of what stood there before.
pub fn show_progress(done: usize, of: usize, step: &str) {
    let bar = "#".repeat(30 * done.min(of) / of.max(1));
    draw(&format!("\r[{bar:<30}] {step}"));
}

/// Takes the progress away.
pub fn hide_progress() {
    draw(&format!("\r{:60}\r", ""));
}

fn draw(text: &str) {
    // It is only decoration.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Writes all, also where the descriptor happens to be non-blocking.
pub fn write_fully(to: &mut impl Write, fd: &impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll(&mut [PollFd::new(fd, PollFlags::OUT)], None)?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    to.flush()
}
