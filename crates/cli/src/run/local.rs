//! Starting ranks on this machine: what `run`, the agent and `bench` have in
//! common.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use portolan_boot::HostPort;
use portolan_boot::launch::{Place, SharedMemory};
use portolan_boot::node::node_socket;
use portolan_link::shm::{Config, Segment};
use portolan_sys::features::Disabled;

use super::RANK_COMMAND;
use crate::failure::{Failure, Result};
use crate::lab::Lab;
use crate::node::Opener;

/// This host or a lab's hosts, and the memory that their ranks share.
pub struct Local {
    own: PathBuf,
    lab: Option<Lab>,
    config: Config,
    group: Option<PathBuf>,
    disabled: Disabled,
    /// Who opens those of each network, by host of the lab.
    openers: BTreeMap<u32, Opener>,
}

impl Local {
    /// For ranks on the hosts of `lab`, or on this one; `disabled` features
    /// are done without.
    pub fn new(lab: Option<Lab>, disabled: &Disabled) -> Result<Self> {
        let own = std::env::current_exe().map_err(Failure::io("finding the portolan command"))?;
        let config = Config {
            remote_barrier: !disabled.membarrier,
            ..Config::default()
        };
        Ok(Self {
            own,
            lab,
            config,
            group: None,
            disabled: *disabled,
            openers: BTreeMap::new(),
        })
    }

    /// Ranks go into this control group.
    pub fn set_group(&mut self, group: Option<&Path>) {
        self.group = group.map(Path::to_owned);
    }

    /// This program.
    pub fn own(&self) -> &Path {
        &self.own
    }

    /// Makes the segment of a host.
    pub fn segment(&mut self, ranks: u32) -> io::Result<SharedMemory> {
        let made = Segment::create(ranks, &self.config)
            .and_then(|segment| Ok((segment.duplicate_fd()?, segment)));
        let (descriptor, segment) = made.map_err(|error| io::Error::other(error.to_string()))?;
        Ok(SharedMemory {
            descriptor,
            mark_dead: Box::new(move |index| segment.mark_dead(index)),
        })
    }

    /// The address of host `lab_host` of the lab. A rank that looks while its
    /// interface is down would find none.
    pub fn address(&self, lab_host: u32) -> Option<IpAddr> {
        self.lab.as_ref().map(|lab| lab.ipv4(lab_host).into())
    }

    /// Opens a host port, one of `ranks`, here or on host `lab_host` of the lab.
    ///
    /// # Errors
    /// Why there is none, for people to read.
    pub fn host_port(
        &mut self,
        lab_host: u32,
        ranks: u32,
        at: Option<IpAddr>,
    ) -> std::result::Result<HostPort, String> {
        let opener = self.openers.entry(lab_host).or_default();
        let disabled = self.disabled;
        match &self.lab {
            None => opener.open(&node_socket(), at, ranks, &disabled),
            Some(lab) => {
                let socket = lab.node_socket(lab_host);
                lab.in_host(lab_host, || Ok(opener.open(&socket, at, ranks, &disabled)))
                    .map_err(|failure| failure.to_string())?
            }
        }
    }

    /// The command that enters the rank's core and host, which in a lab is
    /// host `lab_host`, and becomes `program`.
    pub fn command<T: AsRef<OsStr>>(
        &self,
        place: &Place,
        lab_host: u32,
        program: impl IntoIterator<Item = T>,
    ) -> Command {
        let mut command = Command::new(&self.own);
        command
            .arg(RANK_COMMAND)
            .arg("--parent")
            .arg(std::process::id().to_string());
        if let Some(core) = place.core {
            command.arg("--core").arg(core.to_string());
        }
        if let Some(group) = &self.group {
            command.arg("--group").arg(group);
        }
        if let Some(lab) = &self.lab {
            command
                .arg("--lab")
                .arg(lab.name())
                .arg("--host")
                .arg(lab_host.to_string());
        }
        command.arg("--").args(program);
        command
    }
}

/// The features that `PORTOLAN_DISABLE` switches off here.
pub fn disabled() -> Result<Disabled> {
    Disabled::from_env().map_err(|error| Failure::usage(error.to_string()))
}
