//! `lab down`: removes a lab, or what a crash left of one.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};

use super::store::{self, Lock};
use super::tool::run;
use super::{Lab, check_name, namespace_file};
use crate::failure::{Failure, Result};

/// How long processes in a lab have between SIGTERM and SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(1);

/// Removes lab `name`: ends the processes in it, then nothing of it is left.
///
/// # Errors
/// There is none; not root; what the kernel says.
pub fn down(name: &str) -> Result<()> {
    check_name(name)?;
    let lock = Lock::take()?;
    if !store::folder(name).exists() && leftovers(name)?.is_empty() {
        lock.remove_place()?;
        return Lab::open(name).map(drop);
    }
    clear(name)?;
    lock.remove_place()
}

/// Network namespaces that bear the name of a lab.
fn leftovers(name: &str) -> Result<Vec<String>> {
    let entries = match fs::read_dir("/run/netns") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(Failure::io("reading /run/netns"))?,
    };
    let prefix = format!("ptl-{name}-");
    let is_ours = |namespace: &String| {
        namespace.strip_prefix(&prefix).is_some_and(|rest| {
            let number = rest.strip_prefix('h').unwrap_or_default();
            rest == "sw" || (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
        })
    };
    let names = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.filter(is_ours).collect())
}

/// Removes all of a lab, whatever state it is in.
pub(super) fn clear(name: &str) -> Result<()> {
    let namespaces = leftovers(name)?;
    end_processes(&namespaces)?;
    let folder = store::folder(name);
    if let Ok(entries) = fs::read_dir(&folder) {
        for path in entries.flatten().map(|entry| entry.path()) {
            while store::is_mounted(&path)? {
                unmount(&path, UnmountFlags::DETACH)
                    .map_err(Failure::os(format!("unmounting {}", path.display())))?;
            }
        }
    }
    // Deleting one end removes both; a namespace alone would take its time.
    let switch = format!("ptl-{name}-sw");
    if namespaces.contains(&switch) {
        let ports = namespaces
            .iter()
            .filter_map(|n| n.strip_prefix(&format!("ptl-{name}-")));
        let ports = ports.filter(|port| *port != "sw");
        let lines: Vec<String> = ports
            .flat_map(|port| {
                let line = port.replace('h', "l");
                [port, &line].map(|name| [format!("link del {name}"), format!("link del {name}b")])
            })
            .flatten()
            .collect();
        // A lab half built lacks some of them, as do those without a rate or
        // a second switch.
        let _ = run("ip", &["-n", &switch, "-force", "-batch", "-"], &lines);
    }
    if !namespaces.is_empty() {
        let lines: Vec<String> = namespaces
            .iter()
            .map(|namespace| format!("netns del {namespace}"))
            .collect();
        let deleted = run("ip", &["-force", "-batch", "-"], &lines);
        if namespaces
            .iter()
            .any(|namespace| namespace_file(namespace).exists())
        {
            deleted?;
        }
    }
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Failure::io(format!("removing {}", folder.display()))(error))
        }
        _ => Ok(()),
    }
}

/// Processes whose network is one of `namespaces`.
pub(super) fn processes(namespaces: &[String]) -> Result<Vec<Pid>> {
    let inode = |path: &std::path::Path| fs::metadata(path).ok().map(|about| about.ino());
    let wanted: BTreeSet<u64> = namespaces
        .iter()
        .filter_map(|namespace| inode(&namespace_file(namespace)))
        .collect();
    let own = rustix::process::getpid();
    let entries = fs::read_dir("/proc").map_err(Failure::io("reading /proc"))?;
    let is_within = |pid: &Pid| {
        let network = format!("/proc/{pid}/ns/net");
        *pid != own && inode(network.as_ref()).is_some_and(|inode| wanted.contains(&inode))
    };
    Ok(entries
        .flatten()
        .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
        .filter(is_within)
        .collect())
}

fn end_processes(namespaces: &[String]) -> Result<()> {
    if namespaces.is_empty() {
        return Ok(());
    }
    let start = Instant::now();
    let mut signal = Signal::TERM;
    for pid in processes(namespaces)? {
        let _ = kill_process(pid, signal);
    }
    loop {
        let left = processes(namespaces)?;
        if left.is_empty() {
            return Ok(());
        }
        if start.elapsed() > TERM_GRACE {
            signal = Signal::KILL;
            for &pid in &left {
                let _ = kill_process(pid, signal);
            }
        }
        if start.elapsed() > 5 * TERM_GRACE {
            return Err(Failure::new(format!(
                "processes {left:?} in the lab do not end"
            )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
