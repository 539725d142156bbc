//! `portolan node`.

use std::fs::{self, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use portolan_boot::node::{READY, RUNS_ALREADY, node_socket, own_network};
use portolan_sys::features::Disabled;
use portolan_sys::process::raise_open_files;
use portolan_sys::tell::tell;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};

use super::config::Config;
use super::pins;
use super::privileges;
use super::service::Service;
use super::state::Files;
use super::{check, clean};
use crate::detached::{leave, start_again};
use crate::failure::{Failure, Result};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;

const ABOUT: &str = "\
It runs in the foreground, as root or with the three capabilities that it needs
(etc/portolan-node.service makes systemd start it so). It gives host ports to the
users that its settings name; without settings, only to root.
A HOST PORT LETS ITS OWNER WRITE ANY FRAME ON THAT INTERFACE, PAST EVERY FILTER OF
THE HOST.

Data never passes through it. If it is stopped or killed, the jobs whose host ports
it has opened go on. The next service takes over the host ports that are still held.

Exit code:
  0  it was asked to stop; with --check: the settings are right and this host can do it
  1  something went wrong
  2  bad arguments or settings";

/// Of `portolan node`.
#[derive(clap::Args)]
#[command(after_help = ABOUT)]
pub struct Arguments {
    /// Read settings from this file instead of /etc/portolan/node.conf
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Listen at this socket, and keep state beside it [default: PORTOLAN_NODE, else
    /// /run/portolan/node/node.sock]
    #[arg(long, value_name = "FILE")]
    socket: Option<PathBuf>,
    /// Report what the settings allow and what this host can do, and exit
    #[arg(long, conflicts_with = "clean")]
    check: bool,
    /// Remove all that a killed or stopped service has left (programs, pins,
    /// files), and exit; running jobs go on through the kernel
    #[arg(long)]
    clean: bool,
    /// As nobody's child, until the last host port is given back
    #[arg(long, hide = true)]
    on_demand: bool,
    /// As that child
    #[arg(long, hide = true)]
    detached: bool,
}

/// Serves, checks or cleans.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let files = Files::beside(&arguments.socket.clone().unwrap_or_else(node_socket));
    let file = arguments.config.as_deref();
    if arguments.clean {
        need_root()?;
        return clean::run(&files);
    }
    let config = Config::read(file).map_err(|e| Failure::usage(e.to_string()))?;
    let disabled = Disabled::from_env().map_err(|e| Failure::usage(e.to_string()))?;
    if arguments.check {
        return check::run(&config, &files, &disabled);
    }
    if !privileges::has_needed() {
        need_root()?;
    }
    if arguments.on_demand && !arguments.detached {
        return start_again();
    }
    if arguments.detached {
        leave()?;
    }
    serve(config, disabled, files, arguments.on_demand)
}

fn need_root() -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Failure::new(
        "the node service gives away what root alone may do: run this as root (sudo)",
    ))
}

fn serve(config: Config, disabled: Disabled, files: Files, on_demand: bool) -> Result<ExitCode> {
    let place = files.socket.display().to_string();
    // Held until this process ends.
    let _lock = files
        .lock()
        .map_err(Failure::io(format!("locking beside {place}")))?
        .ok_or_else(|| Failure::new(format!("{RUNS_ALREADY} ({place})")))?;
    let mounted = pins::mount_file_system()
        .map_err(Failure::io("mounting the kernel's file system for BPF"))?;
    let listens = crate::ranks::stops().and_then(|stops| {
        files.remove_socket();
        Ok((stops, open_listener(&files.socket)?))
    });
    let (stops, listener) = listens.inspect_err(|_| {
        if mounted {
            pins::unmount_if_empty();
        }
    })?;
    privileges::drop_all_but_needed().map_err(Failure::os(
        "giving up privileges (CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and, where locked memory is \
         limited, CAP_IPC_LOCK are needed)",
    ))?;
    // Each host port that was given has one, and each connection two.
    raise_open_files().map_err(Failure::os("raising the limit of open files"))?;
    let service = Service::new(config, disabled, files, own_network(), mounted, listener)?;
    tell(format_args!("{READY} at {place}"));
    service.serve(&stops, on_demand)?;
    Ok(ExitCode::SUCCESS)
}

/// Listens where every user may ask.
pub(super) fn open_listener(path: &Path) -> Result<OwnedFd> {
    let failed = || Failure::os(format!("listening at {}", path.display()));
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(failed())?;
    bind(&socket, &SocketAddrUnix::new(path).map_err(failed())?).map_err(failed())?;
    let open = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
    open(path, 0o666).map_err(Failure::io(format!(
        "opening {} to all users",
        path.display()
    )))?;
    listen(&socket, BACKLOG).map_err(failed())?;
    Ok(socket)
}
