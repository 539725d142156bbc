//! Starting ranks on this machine: what `run`, the agent and `bench` have in
//! common.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::ScopedJoinHandle;

use portolan_boot::HostPort;
use portolan_boot::launch::{RankPlace, SharedMemory, Wanted};
use portolan_boot::node::{NODE_SOCKET, group_of, node_socket};
use portolan_link::shm::{Segment, SegmentConfig};
use portolan_sys::children::collect_orphans;
use portolan_sys::features::Disabled;
use portolan_sys::signals::are_children_ignored_in_exec;

use super::RANK_COMMAND;
use crate::failure::{Failure, Result};
use crate::lab::Lab;
use crate::node::{Networks, Opener};

/// This host or a lab's hosts, and the memory that their ranks share.
pub struct Local {
    own: PathBuf,
    lab: Option<Lab>,
    config: SegmentConfig,
    group: Option<PathBuf>,
    disabled: Disabled,
    /// Who opens those of each network, by host of the lab.
    openers: BTreeMap<u32, Opener>,
    networks: Networks,
    /// Whose queues their host ports share; none: the job's own.
    queue_group: Option<u64>,
}

impl Local {
    /// For ranks on the hosts of `lab`, or on this one; `disabled` features
    /// are done without.
    pub fn new(lab: Option<Lab>, disabled: &Disabled) -> Result<Self> {
        if !Path::new("/dev/null").exists() {
            return Err(Failure::new(
                "there is no /dev/null, which ranks read and write: mount /dev",
            ));
        }
        let own = std::env::current_exe().map_err(Failure::io("finding the portolan command"))?;
        collect_orphans().map_err(Failure::io("starting the thread that collects orphans"))?;
        let config = SegmentConfig {
            remote_barrier: !disabled.membarrier,
            ..SegmentConfig::default()
        };
        Ok(Self {
            own,
            lab,
            config,
            group: None,
            disabled: *disabled,
            openers: BTreeMap::new(),
            networks: Networks::default(),
            queue_group: None,
        })
    }

    /// Ranks go into this control group.
    pub fn set_group(&mut self, group: Option<&Path>) {
        self.group = group.map(Path::to_owned);
    }

    /// Host ports of ranks are those of the group of this name.
    pub fn set_queue_group(&mut self, name: Option<&str>) {
        self.queue_group = name.map(|name| group_of(Some(name)));
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

    /// Opens host ports, here or on the hosts of the lab, which `lab_host`
    /// names, on all of them at the same time; gives of each the port or why
    /// there is none, for people to read.
    pub fn host_ports(
        &mut self,
        wanted: &[Wanted],
        lab_host: impl Fn(&RankPlace) -> u32,
    ) -> Vec<std::result::Result<HostPort, String>> {
        let mut hosts: BTreeMap<u32, Vec<(usize, Wanted)>> = BTreeMap::new();
        for (place, it) in wanted.iter().enumerate() {
            let host = hosts.entry(lab_host(&it.place)).or_default();
            host.push((place, *it));
        }
        for &host in hosts.keys() {
            let (networks, group) = (&mut self.networks, self.queue_group);
            let opener = self.openers.entry(host);
            opener.or_insert_with(|| Opener::of_another(networks, group));
        }
        let (lab, disabled) = (self.lab.as_ref(), &self.disabled);
        let each = self.openers.iter_mut();
        let each = each.filter_map(|(host, opener)| Some((*host, opener, hosts.get(host)?)));
        let opened = at_once(each, |(host, opener, wanted)| {
            open_on(lab, host, opener, wanted, disabled)
        });
        let mut opened: Vec<_> = opened.into_iter().flatten().collect();
        opened.sort_by_key(|(place, _)| *place);
        opened.into_iter().map(|(_, port)| port).collect()
    }

    /// The command that enters the rank's core and host, which in a lab is
    /// host `lab_host`, and becomes `program`.
    pub fn command<T: AsRef<OsStr>>(
        &self,
        place: &RankPlace,
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
        if are_children_ignored_in_exec() {
            command.arg("--ignore-children");
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

/// Does something with each, with all at the same time.
fn at_once<T: Send, R: Send>(each: impl Iterator<Item = T>, act: impl Fn(T) -> R + Sync) -> Vec<R> {
    let act = &act;
    std::thread::scope(|scope| {
        let threads: Vec<_> = each.map(|it| scope.spawn(move || act(it))).collect();
        let join = |thread: ScopedJoinHandle<'_, R>| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    })
}

/// Opens host ports here, or on a host of the lab, each with its number.
fn open_on(
    lab: Option<&Lab>,
    host: u32,
    opener: &mut Opener,
    wanted: &[(usize, Wanted)],
    disabled: &Disabled,
) -> Vec<(usize, std::result::Result<HostPort, String>)> {
    let mut open = |socket: &Path| {
        let each = wanted.iter();
        each.map(|(place, it)| (*place, opener.open(socket, it.at, it.ranks, disabled)))
            .collect()
    };
    match lab {
        None => open(&node_socket()),
        Some(lab) => {
            let opened = lab.in_host(host, || Ok(open(Path::new(NODE_SOCKET))));
            opened.unwrap_or_else(|failure| {
                let why = failure.to_string();
                let each = wanted.iter();
                each.map(|(place, _)| (*place, Err(why.clone()))).collect()
            })
        }
    }
}

/// The features that `PORTOLAN_DISABLE` switches off here.
pub fn disabled() -> Result<Disabled> {
    Disabled::from_env().map_err(|error| Failure::usage(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Condvar, Mutex};
    use std::time::Duration;

    #[test]
    fn nobody_waits_for_the_one_before() {
        let (inside, changed) = (Mutex::new(0), Condvar::new());
        let met = at_once(1..=3, |number| {
            let mut count = inside.lock().unwrap();
            *count += 1;
            changed.notify_all();
            // Long enough for any machine; in turns nobody would ever come.
            let limit = Duration::from_secs(60);
            let (count, _) = changed
                .wait_timeout_while(count, limit, |count| *count < 3)
                .unwrap();
            (number, *count)
        });
        assert_eq!(met, [(1, 3), (2, 3), (3, 3)]);
    }
}
