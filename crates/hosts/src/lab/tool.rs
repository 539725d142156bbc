//! The programs of iproute2, which know rtnetlink.

use std::io::{self, Read, Write};
use std::process::{Command, Stdio};

use portolan_sys::children::Start;
use portolan_sys::environment;

use crate::failure::{Failure, Result};

/// Runs `program` with `arguments`, and `lines` as a batch on its input if
/// there are any.
///
/// # Errors
/// It is not installed, or what it says on its standard error.
pub(super) fn run(program: &str, arguments: &[&str], lines: &[String]) -> Result<String> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Failure::new(format!(
            "`{program}` is not installed; install it (Debian: apt install iproute2 ethtool)"
        )),
        _ => Failure::io(format!("running {program}"))(error),
    };
    let mut child = Command::new(program)
        .args(arguments)
        // Its folder is not in every user's PATH.
        .env("PATH", path())
        .stdin(if lines.is_empty() {
            Stdio::null()
        } else {
            Stdio::piped()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .start()
        .map_err(failed)?;
    // A batch is read to its end before much is answered: no pipe fills up.
    let written = child.stdin.take().map_or(Ok(()), |mut input| {
        lines.iter().try_for_each(|line| writeln!(input, "{line}"))
    });
    // One after the other: what it complains of fits into its pipe.
    let out = read(child.stdout.take());
    let complaint = read(child.stderr.take());
    let status = child.wait().map_err(failed)?;
    if !status.success() || written.is_err() {
        return Err(Failure::new(format!(
            "`{program} {}` failed ({status}): {}",
            arguments.join(" "),
            complaint.trim()
        )));
    }
    Ok(out)
}

fn read(from: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        let _ = from.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Runs `ip -batch` in a network namespace.
pub(super) fn ip_batch(namespace: &str, lines: &[String]) -> Result<()> {
    run("ip", &["-n", namespace, "-batch", "-"], lines).map(drop)
}

fn path() -> std::ffi::OsString {
    let mut path = environment::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin:/usr/bin:/bin");
    path
}
