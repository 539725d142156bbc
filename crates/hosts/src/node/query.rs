//! Host ports for a launcher: from the node service where it runs, else by this
//! process, if it is root.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use portolan_boot::HostPort;
use portolan_boot::node::{NodeError, NodeService, host_port_of, node_socket};
use portolan_sys::features::Disabled;

use super::ports::{HostPorts, Networks, possible, switched_on};

/// Who opens the host ports of one network.
#[derive(Default)]
pub struct Opener {
    service: Option<Arc<NodeService>>,
    /// It has not answered in time: it is waited for no second time.
    silent: bool,
    own: HostPorts,
    /// They share a queue with others of this group, whom a service serves.
    group: Option<u64>,
}

impl Opener {
    /// Of one more of several networks; for a `group`, if there is one.
    pub fn of_another(networks: &mut Networks, group: Option<u64>) -> Self {
        Self {
            own: networks.another(),
            group,
            ..Self::default()
        }
    }

    /// Opens a host port, one of `ranks` in all, on the interface that has
    /// address `at`, or else the first that has one. To be called by a thread
    /// in that network, where the service listens at `socket`.
    ///
    /// # Errors
    /// Why there is none, for people to read.
    pub fn open(
        &mut self,
        socket: &Path,
        at: Option<IpAddr>,
        ranks: u32,
        disabled: &Disabled,
    ) -> Result<HostPort, String> {
        switched_on(disabled)?;
        if let Some(group) = self.group {
            let program = std::env::current_exe().map_err(|error| error.to_string())?;
            let asked = host_port_of(socket, Some(program.as_os_str()), at, group, disabled);
            return asked.map_err(|error| error.to_string());
        }
        match self.ask(socket, at, ranks, disabled) {
            Err(absent @ (NodeError::Absent(_) | NodeError::Unserved(_))) => {
                alone(absent, disabled)?;
                self.own.open(at, ranks, disabled)
            }
            asked => asked.map_err(|error| error.to_string()),
        }
    }

    fn ask(
        &mut self,
        socket: &Path,
        at: Option<IpAddr>,
        ranks: u32,
        disabled: &Disabled,
    ) -> Result<HostPort, NodeError> {
        if self.silent {
            return Err(NodeError::Silent);
        }
        let asked = self.ask_anew(socket, at, ranks, disabled);
        self.silent = matches!(asked, Err(NodeError::Silent));
        asked
    }

    fn ask_anew(
        &mut self,
        socket: &Path,
        at: Option<IpAddr>,
        ranks: u32,
        disabled: &Disabled,
    ) -> Result<HostPort, NodeError> {
        if let Some(service) = &self.service {
            match service.host_port(at, ranks, None, disabled) {
                // It was started anew, or has long heard nothing of us.
                Err(NodeError::Gone) => {}
                asked => return asked,
            }
        }
        let service = NodeService::connect(socket)?;
        let service = self.service.insert(service);
        service.host_port(at, ranks, None, disabled)
    }
}

/// Whether jobs that this user starts on this host can have host ports, as far
/// as can be told without one.
///
/// # Errors
/// Why not, for people to read.
pub fn reachable(disabled: &Disabled) -> Result<(), String> {
    switched_on(disabled)?;
    match service() {
        Err(absent @ (NodeError::Absent(_) | NodeError::Unserved(_))) => alone(absent, disabled),
        asked => asked.map(drop).map_err(|error| error.to_string()),
    }
}

/// What the service of this host allows this user.
///
/// # Errors
/// [`NodeError`].
pub fn service() -> Result<String, NodeError> {
    NodeService::connect(&node_socket())?.may()
}

/// Whether this process can do without the service.
fn alone(absent: NodeError, disabled: &Disabled) -> Result<(), String> {
    if rustix::process::geteuid().is_root() {
        return possible(disabled);
    }
    Err(match absent {
        NodeError::Unserved(why) => why,
        absent => format!("only root may open one, and {absent}"),
    })
}

#[cfg(test)]
mod tests {
    use super::super::command::open_listener;
    use super::*;
    use portolan_boot::node::{Answer, Heard, answer, hear};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::net::{SocketFlags, accept_with};
    use std::os::fd::{AsFd, OwnedFd};
    use std::time::Duration;

    fn ready(fd: &OwnedFd) {
        let soon = Timespec::try_from(Duration::from_secs(120)).unwrap();
        let found = poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&soon));
        assert_eq!(found, Ok(1), "nobody comes");
    }

    #[test]
    fn a_silent_service_is_waited_for_once() {
        let name = format!("portolan-node-silent-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let listener = open_listener(&path).unwrap();
        let mut opener = Opener::default();
        let mut ask = || {
            opener
                .open(&path, None, 1, &Disabled::default())
                .err()
                .unwrap()
        };
        for _ in 0..2 {
            assert!(ask().contains("has not answered"));
        }
        ready(&listener);
        let one = accept_with(&listener, SocketFlags::CLOEXEC).unwrap();
        assert!(matches!(hear(one.as_fd()), Heard::Question(_)));
        assert!(!matches!(hear(one.as_fd()), Heard::Question(_)));
        let at_once = Some(&Timespec::default());
        let others = poll(&mut [PollFd::new(&listener, PollFlags::IN)], at_once);
        assert_eq!(others, Ok(0), "asked by another connection");
        std::fs::remove_file(path).unwrap();
    }

    /// Needs root: nobody else is believed to be the service.
    #[test]
    fn a_service_that_was_started_anew_is_found_again() {
        let name = format!("portolan-node-ask-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let listener = open_listener(&path).unwrap();
        let serve = || {
            ready(&listener);
            let one = accept_with(&listener, SocketFlags::CLOEXEC).unwrap();
            for why in ["first", "second"] {
                ready(&one);
                assert!(matches!(hear(one.as_fd()), Heard::Question(_)));
                answer(one.as_fd(), &Answer::Refused(why.to_owned()), &[]).unwrap();
            }
        };
        let mut opener = Opener::default();
        let mut ask = || {
            opener
                .open(&path, None, 1, &Disabled::default())
                .err()
                .unwrap()
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let service = scope.spawn(serve);
                assert_eq!([ask(), ask()], ["first", "second"]);
                service.join().unwrap();
            }
        });
        std::fs::remove_file(path).unwrap();
        let off = Disabled::parse("xdp").unwrap();
        let why = opener.open(Path::new("/nowhere"), None, 1, &off).err();
        assert_eq!(why.unwrap(), "xdp is switched off");
    }
}
