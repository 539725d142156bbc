//! `portolan node --clean`: undoes what a service has left.

use std::process::ExitCode;

use portolan_boot::node::own_network;
use portolan_sys::net::interfaces;

use super::pins::{Pins, unmount_if_empty};
use super::rules::Rules;
use super::state::Files;
use crate::failure::{Failure, Result};
use crate::print::print;

/// Detaches programs, removes pins and files; says what there was.
///
/// # Errors
/// A service runs; the kernel's, for people to read.
pub fn run(files: &Files) -> Result<ExitCode> {
    let place = files.socket.display();
    let lock = files
        .lock()
        .map_err(Failure::io(format!("locking beside {place}")))?
        .ok_or_else(|| {
            Failure::new(format!(
                "a node service runs ({place}): stop it first (systemctl stop portolan-node)"
            ))
        })?;
    let present = interfaces().unwrap_or_default();
    let left = Pins::all(own_network());
    for (index, pins) in &left {
        let interface = present.iter().find(|it| it.index == *index);
        // Nothing is steered any more.
        interface.map(Rules::clear);
        let name = interface.map_or_else(|| format!("interface {index}"), |it| it.name.clone());
        pins.discard()
            .map_err(Failure::io(format!("detaching the program of {name}")))?;
        print(format_args!(
            "{name}: the program is detached, its pins are removed\n"
        ))?;
    }
    if left.is_empty() {
        print("no program was attached\n")?;
    }
    if files.read().is_ok_and(|left| left.mounted) {
        unmount_if_empty();
    }
    files.remove();
    drop(lock);
    Ok(ExitCode::SUCCESS)
}
