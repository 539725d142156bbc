//! The process that sets up a host's namespaces from within.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

use rustix::fs::CWD;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount,
    mount_bind, mount_bind_recursive, mount_change, mount_move, move_mount, open_tree, unmount,
};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::system::{setdomainname, sethostname};

use super::{Lab, enter, store};
use crate::failure::{Failure, Result};
use crate::print::print;

/// Of the hidden command that sets up a host.
#[derive(clap::Args)]
pub struct HostArguments {
    #[arg(long)]
    lab: String,
    #[arg(long)]
    host: u32,
}

/// Makes the namespaces, says "ready", and holds them until its input ends.
pub fn become_host(arguments: &HostArguments) -> Result<ExitCode> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(Failure::os("asking to end with the parent"))?;
    let lab = store::read(&arguments.lab)?
        .ok_or_else(|| Failure::new(format!("lab {} is gone", arguments.lab)))?;
    let host = arguments.host;
    enter::enter_network(&lab.host_namespace(host))?;
    portolan_sys::inherit::unshare_mount_and_uts()
        .map_err(Failure::io("making mount and UTS namespaces"))?;
    // What the machine mounts later shows here too, and nothing of this there.
    mount_change(
        "/",
        MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC,
    )
    .map_err(Failure::os("separating the host's mounts"))?;
    sethostname(format!("h{host}").as_bytes()).map_err(Failure::os("setting the host's name"))?;
    // What is kept by host is kept by lab too.
    setdomainname(arguments.lab.as_bytes()).map_err(Failure::os("setting the host's domain"))?;
    mount_bind(lab.folder().join("hosts"), "/etc/hosts")
        .map_err(Failure::os("mounting the host's /etc/hosts"))?;
    mount_sys(&lab, host)?;
    separate_run(&lab, host)?;
    let files = ["accept_dad", "accept_ra", "router_solicitations"];
    let own = lab.cables().filter(|cable| cable.host == host);
    for cable in own {
        for file in files {
            set_kernel_value(&format!("net/ipv6/conf/{}/{file}", cable.interface()), "0")?;
        }
    }
    for (file, value) in [
        // Addresses work at once, and there is no router to wait for.
        ("net/ipv6/conf/all/accept_dad", "0"),
        ("net/ipv6/conf/default/accept_dad", "0"),
        ("net/ipv6/conf/all/accept_ra", "0"),
        // Who sets an interface down and up has its addresses still.
        ("net/ipv6/conf/all/keep_addr_on_down", "1"),
    ] {
        set_kernel_value(file, value)?;
    }
    print("ready\n")?;
    let _ = io::stdin().read_to_end(&mut Vec::new());
    Ok(ExitCode::SUCCESS)
}

/// Mounts a folder of the host's own where services of Portolan have theirs.
fn separate_run(lab: &Lab, host: u32) -> Result<()> {
    let doing = "mounting the host's /run/portolan";
    let own = lab.run_folder(host);
    fs::create_dir_all(&own).map_err(Failure::io(doing))?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let own = open_tree(CWD, own, flags).map_err(Failure::os(doing))?;
    // It holds the namespaces of all hosts, which would outlive `lab down`.
    unmount(store::labs(), UnmountFlags::DETACH)
        .map_err(Failure::os("unmounting the lab's folder within the host"))?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(&own, "", CWD, store::root(), flags).map_err(Failure::os(doing))
}

/// Mounts a /sys that shows the host's own network devices, and takes over
/// what is mounted below the old one.
fn mount_sys(lab: &Lab, host: u32) -> Result<()> {
    let doing = "mounting the host's /sys";
    let place = lab.folder().join(format!("h{host}.sys"));
    fs::create_dir_all(&place).map_err(Failure::io(doing))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("sysfs", &place, "sysfs", flags, None).map_err(Failure::os(doing))?;
    // Not fs/bpf: what is pinned there on a host goes with it.
    for below in ["fs/cgroup", "kernel/debug", "kernel/tracing"] {
        let old = Path::new("/sys").join(below);
        if store::is_mounted(&old)? {
            mount_bind_recursive(&old, place.join(below)).map_err(Failure::os(doing))?;
        }
    }
    if store::is_mounted(Path::new("/sys"))? {
        unmount("/sys", UnmountFlags::DETACH).map_err(Failure::os(doing))?;
    }
    mount_move(&place, "/sys").map_err(Failure::os(doing))
}

/// Sets a value below /proc/sys for the calling thread's network namespace; a
/// kernel without it needs none.
pub(super) fn set_kernel_value(file: &str, value: &str) -> Result<()> {
    match fs::write(Path::new("/proc/sys").join(file), value) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Failure::io(format!(
            "writing {value} to /proc/sys/{file}"
        ))(error)),
        _ => Ok(()),
    }
}
