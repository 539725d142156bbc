//! Starting ranks on this machine: what `run` and `bench` have in common.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use portolan_boot::launch::{Event, Place};
use portolan_link::shm::{Config, Segment};
use portolan_sys::features::Disabled;

use super::RANK_COMMAND;
use crate::failure::{Failure, Result};
use crate::lab::Lab;

/// This host or a lab's hosts, and the memory that their ranks share.
pub struct Local {
    own: PathBuf,
    lab: Option<Lab>,
    config: Config,
    /// By host.
    segments: BTreeMap<u16, Segment>,
}

impl Local {
    /// For ranks on the hosts of `lab`, or on this one.
    pub fn new(lab: Option<Lab>) -> Result<Self> {
        let own = std::env::current_exe().map_err(Failure::io("finding the portolan command"))?;
        let disabled = Disabled::from_env().map_err(|error| Failure::usage(error.to_string()))?;
        let config = Config {
            remote_barrier: !disabled.membarrier,
            ..Config::default()
        };
        Ok(Self {
            own,
            lab,
            config,
            segments: BTreeMap::new(),
        })
    }

    /// This program.
    pub fn own(&self) -> &Path {
        &self.own
    }

    /// Makes the segment of a host.
    pub fn segment(&mut self, host_index: u16, ranks: u32) -> io::Result<OwnedFd> {
        let made = Segment::create(ranks, &self.config)
            .and_then(|segment| Ok((segment.duplicate_fd()?, segment)));
        let (descriptor, segment) = made.map_err(|error| io::Error::other(error.to_string()))?;
        self.segments.insert(host_index, segment);
        Ok(descriptor)
    }

    /// The command that enters the rank's host and core and becomes `program`.
    pub fn command<T: AsRef<OsStr>>(
        &self,
        place: &Place,
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
        if let Some(lab) = &self.lab {
            command
                .arg("--lab")
                .arg(lab.name())
                .arg("--host")
                .arg(place.host_index.to_string());
        }
        command.arg("--").args(program);
        command
    }

    /// Marks a rank that ended as dead for its neighbours. They are woken
    /// when the launcher has told of this event.
    pub fn heed(&self, event: &Event) {
        if let Event::Ended { place, .. } = event
            && let Some(segment) = self.segments.get(&place.host_index)
        {
            segment.mark_dead(place.local_index);
        }
    }
}
