//! Into a host's namespaces.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread::Builder;

use portolan_sys::inherit::unshare_folder;
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{Lab, namespace_file, store};
use crate::failure::{Failure, Result};

impl Lab {
    /// Whether this process may enter hosts.
    ///
    /// # Errors
    /// Not root.
    pub fn check_entry() -> Result<()> {
        store::need_root()
    }

    /// Moves the calling thread into a host, and with it what it starts from then on. It keeps
    /// its working folder.
    ///
    /// # Errors
    /// Not root; the lab was removed meanwhile.
    pub fn enter(&self, host: u32) -> Result<()> {
        let network = open(&namespace_file(&self.host_namespace(host)))?;
        let uts = open(&self.uts_file(host))?;
        let mounts = open(&self.mount_file(host))?;
        let folder = std::env::current_dir();
        // Who shares root and folder with other threads may not change its mounts.
        unshare_folder().map_err(Failure::io("taking a working folder of this thread's own"))?;
        for (file, kind) in [
            (network, LinkNameSpaceType::Network),
            (uts, LinkNameSpaceType::HostNameAndNISDomainName),
            (mounts, LinkNameSpaceType::Mount),
        ] {
            move_into_link_name_space(file.as_fd(), Some(kind)).map_err(refused(format!(
                "entering host h{host} of lab {}",
                self.name
            )))?;
        }
        if let Ok(folder) = folder {
            // It may not exist there; `/` it is then.
            let _ = std::env::set_current_dir(folder);
        }
        Ok(())
    }

    /// Runs `act` on a thread of its own within a host: with its mounts too, so that a service
    /// that is started there leaves its files and its pins with the host.
    ///
    /// # Errors
    /// As [`Lab::enter`], and those of `act`.
    pub fn in_host<T: Send>(&self, host: u32, act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        on_a_thread(|| {
            self.enter(host)?;
            act()
        })
    }

    /// Runs `act` on a thread of its own within the switch's network.
    ///
    /// # Errors
    /// As [`Lab::enter`], and those of `act`.
    pub fn in_switch<T: Send>(&self, act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        in_namespace(&self.switch_namespace(), act)
    }
}

/// Moves the calling thread into a network namespace.
pub(super) fn enter_network(namespace: &str) -> Result<()> {
    let file = open(&namespace_file(namespace))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(refused(format!("entering {namespace}")))
}

/// Why a namespace was not entered. Its file is a plain one wherever the mount over it is not
/// seen: a new mount namespace gets no copies of mounts that hold mount namespaces.
fn refused(doing: String) -> impl FnOnce(Errno) -> Failure {
    move |errno| match errno {
        Errno::INVAL => Failure::new(format!(
            "{doing}: the lab was made in another mount namespace (unshare, a container), whose \
             mounts are not seen here: run this where the lab was made, or make a lab of another \
             name here"
        )),
        other => Failure::os(doing)(other),
    }
}

/// Runs `act` on a thread of its own within a network namespace.
pub(super) fn in_namespace<T: Send>(
    namespace: &str,
    act: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    on_a_thread(|| {
        enter_network(namespace)?;
        act()
    })
}

fn on_a_thread<T: Send>(act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = Builder::new().spawn_scoped(scope, act);
        thread
            .map_err(Failure::io("starting a thread"))?
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(Failure::io(format!(
        "opening {} (a lab that lost it is repaired by `portolan lab up`)",
        path.display()
    )))
}
