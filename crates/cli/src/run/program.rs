//! Starts the user's programs, here or by agents on other hosts.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Read, Write};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use portolan_boot::launch::{RankPlace, Reach, SharedMemory, Starter, Task, Wanted};
use portolan_boot::{HostPort, JOB_VARIABLE};
use portolan_hosts::failure::{Failure, Result};
use portolan_hosts::lab::Lab;
use portolan_hosts::print::tell;
use portolan_hosts::ranks::{Local, core_in_turn, disabled};

use super::arguments::{Arguments, Bind, Block};
use super::guard::Guard;
use super::hosts::{Host, HostPlace};
use super::ssh::{SSH_VARIABLE, Ssh};

/// What the ranks of a job run, and where.
pub struct Program {
    blocks: Vec<Block>,
    hosts: Vec<Host>,
    environment: Vec<(OsString, OsString)>,
    folder: PathBuf,
    bind: bool,
    respawns: bool,
    local: Local,
    pub ssh: Ssh,
    pub guard: Guard,
}

impl Program {
    /// Of a job with these programs on these hosts.
    pub fn new(
        arguments: &Arguments,
        blocks: Vec<Block>,
        hosts: Vec<Host>,
        lab: Option<Lab>,
    ) -> Result<Self> {
        let mut local = Local::new(lab, &disabled()?)?;
        let guard = Guard::start(local.own())?;
        local.set_group(guard.group());
        let folder = std::env::current_dir().map_err(Failure::io(
            "asking for the present folder (does it still exist?)",
        ))?;
        let environment = arguments.variables()?;
        for (name, value) in &environment {
            // What is ours is checked already.
            if std::env::var_os(name).as_ref() != Some(value) {
                for what in portolan::check_variable(name, value) {
                    tell(format_args!("portolan: {what}"));
                }
            }
        }
        Ok(Self {
            blocks,
            hosts,
            environment,
            folder,
            bind: arguments.bind == Bind::Core,
            respawns: arguments.respawn > 0,
            local,
            ssh: Ssh::new(arguments)?,
            guard,
        })
    }

    /// Programs of the ranks from `first` on, `ranks` of them.
    fn programs(&self, first: u32, ranks: u32) -> Vec<(u32, Vec<OsString>)> {
        let end = first + ranks;
        let mut before = 0;
        let mut programs = Vec::new();
        for block in &self.blocks {
            let after = block.ranks.map_or(u32::MAX, |ranks| before + ranks);
            let here = after.min(end).saturating_sub(before.max(first));
            if here > 0 {
                programs.push((here, block.program.clone()));
            }
            before = after;
        }
        programs
    }

    /// What agents set for their ranks: our settings, then what the user asks for.
    fn variables(&self) -> Vec<(OsString, OsString)> {
        let is_ours = |name: &OsString| {
            name.as_bytes().starts_with(b"PORTOLAN_")
                && name != JOB_VARIABLE
                && name != SSH_VARIABLE
        };
        let ours = std::env::vars_os().filter(|(name, _)| is_ours(name));
        ours.chain(self.environment.iter().cloned()).collect()
    }

    fn lab_host(&self, host_index: u16) -> u32 {
        lab_host(&self.hosts, host_index)
    }
}

/// The lab's host that a host of the job is; without a lab 0.
fn lab_host(hosts: &[Host], host_index: u16) -> u32 {
    match hosts[usize::from(host_index)].place {
        HostPlace::Lab(host) => host,
        _ => 0,
    }
}

/// Ranks are in background process groups, which may not read from a
/// terminal.
fn has_input() -> bool {
    !io::stdin().is_terminal()
}

impl Starter for Program {
    fn segment(&mut self, _host_index: u16, ranks: u32) -> io::Result<SharedMemory> {
        self.local.segment(ranks)
    }

    fn host_ports(&mut self, wanted: &[Wanted]) -> Vec<std::result::Result<HostPort, String>> {
        let hosts = &self.hosts;
        self.local
            .host_ports(wanted, |place| lab_host(hosts, place.host_index))
    }

    fn address(&mut self, host_index: u16) -> Option<IpAddr> {
        self.local.address(self.lab_host(host_index))
    }

    fn command(&mut self, place: &RankPlace) -> Command {
        let lab_host = self.lab_host(place.host_index);
        let program = self.programs(place.rank, 1).remove(0).1;
        let mut command = self.local.command(place, lab_host, program);
        command
            .envs(self.environment.iter().map(|(n, v)| (n, v)))
            .stdin(if (place.rank, place.restarts) == (0, 0) && has_input() {
                Stdio::inherit()
            } else {
                Stdio::null()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn started(&mut self, _place: &RankPlace, pid: u32) {
        self.guard.watch(pid);
    }

    fn spare_core(&mut self, _host_index: u16, local_index: u16) -> Option<u32> {
        self.bind.then(|| core_in_turn(local_index)).flatten()
    }

    fn reach(&mut self, host_index: u16) -> Option<Reach> {
        let index = usize::from(host_index);
        let host = &self.hosts[index];
        if host.place != HostPlace::Remote {
            return None;
        }
        let first = self.hosts[..index].iter().map(|h| h.ranks).sum();
        let task = Task {
            programs: self.programs(first, host.ranks),
            others: if self.respawns {
                let size = self.hosts.iter().map(|h| h.ranks).sum();
                self.programs(0, size)
            } else {
                Vec::new()
            },
            folder: self.folder.clone(),
            environment: self.variables(),
            bind: self.bind,
            input: first == 0 && has_input(),
        };
        let command = self.ssh.command(&host.name);
        Some(Reach { command, task })
    }

    fn reached(&mut self, pid: u32) {
        self.guard.watch(pid);
    }

    fn input(&mut self) -> io::Result<Option<OwnedFd>> {
        let (ours, theirs) = UnixStream::pair()?;
        // A thread of its own: files cannot be waited for, and a read of a
        // device may block. It ends with the process.
        std::thread::Builder::new()
            .name("input".to_owned())
            .spawn(move || forward(theirs))?;
        Ok(Some(ours.into()))
    }
}

/// Copies standard input until it or its reader ends.
fn forward(mut to: UnixStream) {
    let mut bytes = [0; 16 << 10];
    loop {
        match io::stdin().lock().read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(n) if n > 0 && to.write_all(&bytes[..n]).is_ok() => {}
            _ => return,
        }
    }
}
