//! The environment. The library reads it here alone, and starts commands here alone.
//!
//! A program that is set-user-id or set-group-id, or whose file has capabilities, has rights
//! that whoever started it may lack; the kernel says so by `AT_SECURE`. The environment is the
//! other's word then: no variable counts, and no command is started, for its name and what it
//! does would follow from the environment.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::process::Command;

/// Why something of the environment does not count.
pub const WHY_IGNORED: &str = "this program has rights that whoever started it may lack \
                               (set-user-id, set-group-id, or capabilities of its file)";

/// Whether this process has rights that whoever started it may lack.
#[must_use]
pub fn is_secure() -> bool {
    // SAFETY: it reads a table that the kernel has left, and knows every number.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// A variable, if it is set and counts.
#[must_use]
pub fn var_os(name: &str) -> Option<OsString> {
    if is_secure() { None } else { env::var_os(name) }
}

/// A variable, if it is set, counts and is UTF-8.
#[must_use]
pub fn var(name: &str) -> Option<String> {
    var_os(name)?.into_string().ok()
}

/// All variables that count.
pub fn vars_os() -> impl Iterator<Item = (OsString, OsString)> {
    env::vars_os().filter(|_| !is_secure())
}

/// A variable that is set and does not count, to say so.
#[must_use]
pub fn ignored(name: &str) -> Option<OsString> {
    if is_secure() { env::var_os(name) } else { None }
}

/// A command that is to be run.
///
/// # Errors
/// `PermissionDenied`: none is, see above.
pub fn command(program: &OsStr) -> io::Result<Command> {
    if is_secure() {
        let why = format!("no command is started: {WHY_IGNORED}");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(Command::new(program))
}
