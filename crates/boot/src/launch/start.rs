//! Starting a job: reach its hosts, agree on what all must agree on, start
//! the ranks.

use portolan_sys::net::{is_link_local, route_to};
use portolan_sys::process::limits;
use rustix::event::epoll;
use rustix::process::{Resource, setrlimit};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

use super::agent_protocol::{Order, TASK_BYTES_MAX};
use super::host::Host;
use super::member::Member;
use super::output::Room;
use super::plan::{HostPlan, Seat};
use super::remote::HostFailure;
use super::source::Source;
use super::watch::{Side, Token, index_of};
use super::{
    Event, JobSpec, LaunchError, RANKS_MAX, RankPlace, Running, SETTINGS_BYTES_MAX, Starter, Stop,
    Task, Wanted,
};
use crate::host::keep_from_dumps;
use crate::job::{fill_random, random_secret};
use crate::{LinkChoice, Security, Suite};

/// Descriptors that the launcher holds for each rank: process, control
/// socket, two pipes, doorbell (two), those of a host port, and a passing one.
pub const DESCRIPTORS_PER_RANK: u64 = 10;
/// Descriptors for each host: three pipes, process, and what watches them.
const DESCRIPTORS_PER_HOST: u64 = 6;
/// Descriptors for the launcher itself.
const DESCRIPTORS_OWN: u64 = 64;

impl Running {
    /// Reaches all hosts and starts all ranks. The calling thread must stay
    /// alive as long as they do, if they ask to be killed when their parent is.
    ///
    /// # Errors
    /// [`LaunchError`]; all that was started until then is ended.
    pub fn start(
        spec: JobSpec,
        starter: &mut dyn Starter,
        stops: Vec<Stop>,
        tell: &mut dyn FnMut(Event),
    ) -> Result<Self, LaunchError> {
        let size: u64 = spec.hosts.iter().map(|&n| u64::from(n)).sum();
        if size == 0 || size > u64::from(RANKS_MAX) {
            return Err(LaunchError::Size(size));
        }
        if spec.link == LinkChoice::Shm && spec.hosts.iter().filter(|&&n| n > 0).count() > 1 {
            return Err(LaunchError::ShmAcrossHosts);
        }
        let lives = spec.size() * if spec.respawn > 0 { 2 } else { 1 };
        make_room(lives, spec.hosts.len())?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (index, stop) in stops.iter().enumerate() {
            let data = Token::Stop(index).data();
            epoll::add(&epoll, &stop.descriptor, data, epoll::EventFlags::IN)?;
        }
        let room = Room::new(spec.hosts.len())?;
        let data = Token::Room.data();
        epoll::add(&epoll, room.descriptor(), data, epoll::EventFlags::IN)?;
        let mut running = Self::new(spec, stops, epoll, room);
        log::debug!("reaching hosts: {}", running.spec.hosts.len());
        let tasks = running.reach(starter)?;
        running.await_greetings(tell)?;
        log::debug!(
            "all hosts have answered: starting {} ranks",
            running.spec.size()
        );
        running.start_ranks(starter, tasks)?;
        Ok(running)
    }

    /// The suite that was asked for, or one that all hosts can.
    fn choose_suite(&self) -> Result<Suite, LaunchError> {
        let cannot = |suite: Suite| {
            let can = |(side, ranks): (&Side, &u32)| match side.greeting() {
                Some(greeting) => greeting.can(suite),
                // This one, or one that takes no part.
                None => *ranks == 0 && self.spec.respawn == 0 || suite.is_supported(),
            };
            let mut all = self.hosts.iter().zip(&self.spec.hosts);
            all.position(|it| !can(it))
        };
        match (self.spec.suite, cannot(Suite::Aegis128L)) {
            (Some(suite), _) if self.spec.security == Security::None => Ok(suite),
            (Some(suite), _) => match cannot(suite) {
                Some(host) => Err(self.host_error(host, HostFailure::Suite(suite))),
                None => Ok(suite),
            },
            (None, None) => Ok(Suite::Aegis128L),
            (None, Some(_)) => Ok(Suite::ChaCha20Poly1305),
        }
    }

    fn start_ranks(
        &mut self,
        starter: &mut dyn Starter,
        tasks: Vec<Option<Task>>,
    ) -> Result<(), LaunchError> {
        let settings = self.spec.settings.iter();
        let bytes = settings.map(|(name, value)| name.len() + value.len()).sum();
        if bytes > SETTINGS_BYTES_MAX {
            return Err(LaunchError::SettingsTooLarge(bytes));
        }
        keep_from_dumps()?;
        let mut job_id = [0; 8];
        fill_random(&mut job_id)?;
        let job_id = u64::from_le_bytes(job_id);
        self.open_control_socket(job_id);
        let partitions = self.spec.partitions.clone();
        let mut secrets = BTreeMap::new();
        for &partition in partitions.iter().chain(&[0]) {
            secrets.insert(partition, Rc::new(random_secret()?));
        }
        let addresses = self.addresses();
        let suite = self.choose_suite()?;
        let seats = Seat::each(&self.seats_here(&tasks));
        let mut first = 0;
        for (host, task) in tasks.into_iter().enumerate() {
            let ranks = self.spec.hosts[host];
            let plan = HostPlan {
                host_index: index_of(host),
                hosts: index_of(self.spec.hosts.len()),
                first,
                ranks,
                size: self.spec.size(),
                spare: if self.spec.respawn > 0 {
                    self.spec.size() - ranks
                } else {
                    0
                },
                job_id,
                partitions: partitions.clone(),
                security: self.spec.security,
                suite,
                link: self.spec.link,
                congestion: self.spec.congestion,
                settings: self.spec.settings.clone(),
                host_silence: self.spec.host_silence,
                stopped_limit: self.spec.stopped_limit,
                ip: addresses[host].or_else(|| starter.address(index_of(host))),
            };
            let partition = partitions.get(host).copied().unwrap_or_default();
            let secret = Rc::clone(&secrets[&partition]);
            for local in 0..ranks {
                self.members.push(Member::new(RankPlace {
                    rank: first + local,
                    host_index: plan.host_index,
                    local_index: u16::try_from(local).expect("at most RANKS_MAX"),
                    core: None,
                    restarts: 0,
                }));
            }
            let here = first as usize..(first + ranks) as usize;
            first += ranks;
            match (&mut self.hosts[host], task) {
                (Side::There(_), Some(task)) => {
                    let has_input = task.input;
                    let plan = Box::new(plan);
                    let frame = Order::Start { secret, plan, task }.encode();
                    if frame.len() > TASK_BYTES_MAX {
                        return Err(LaunchError::TaskTooLarge(frame.len()));
                    }
                    self.transmit(host, frame);
                    let input = if has_input { starter.input()? } else { None };
                    if let Some(descriptor) = input {
                        self.source = Some(Source::new(host, descriptor, &self.epoll)?);
                    }
                }
                _ if ranks > 0 || self.spec.respawn > 0 => {
                    let started = Host::start(plan, secret, &seats[here], starter)?;
                    let data = Token::Host(host).data();
                    let descriptor = started.descriptor();
                    epoll::add(&self.epoll, descriptor, data, epoll::EventFlags::IN)?;
                    self.hosts[host] = Side::Here(Box::new(started));
                }
                _ => {}
            }
        }
        self.alive = self.members.len();
        self.open_host_ports(starter);
        Ok(())
    }

    /// Opens the host ports of all ranks that run here in one call: that takes
    /// the kernel a while, and those of one host do not wait for another's.
    fn open_host_ports(&mut self, starter: &mut dyn Starter) {
        let here = |side: &Side| match side {
            Side::Here(host) => host.wanted(),
            _ => Vec::new(),
        };
        let wanted: Vec<Vec<Wanted>> = self.hosts.iter().map(here).collect();
        let mut ports = starter.host_ports(&wanted.concat()).into_iter();
        for (side, wanted) in self.hosts.iter_mut().zip(&wanted) {
            if let Side::Here(host) = side {
                host.grant(ports.by_ref().take(wanted.len()));
            }
        }
    }

    /// Returns the core of each rank that runs here, none for others. All hosts
    /// that are reached without a connection are hosts of this machine.
    fn seats_here(&self, tasks: &[Option<Task>]) -> Vec<Option<u32>> {
        let mut cores = Vec::new();
        for (ranks, task) in self.spec.hosts.iter().zip(tasks) {
            for _ in 0..*ranks {
                let core = self.spec.cores.get(cores.len()).copied().flatten();
                cores.push(core.filter(|_| task.is_none()));
            }
        }
        cores
    }

    /// Returns the address by which others reach each host: for a remote one,
    /// where our connection reached it; for this one, the source of the route
    /// to the first of those. None if it is no use to others.
    fn addresses(&self) -> Vec<Option<IpAddr>> {
        let there = |side: &Side| side.greeting().and_then(|g| g.ip).filter(is_reachable);
        let first = self.hosts.iter().find_map(there);
        let here = first.and_then(|ip| route_to(ip, 0).ok()?.source);
        let of = |side: &Side| match side {
            Side::There(_) => there(side),
            _ => here.filter(is_reachable),
        };
        self.hosts.iter().map(of).collect()
    }
}

/// Whether other hosts can use an address.
fn is_reachable(ip: &IpAddr) -> bool {
    !ip.is_loopback() && !ip.is_unspecified() && !is_link_local(ip)
}

/// Raises the soft limit of open files as far as `ranks` need.
fn make_room(ranks: u32, hosts: usize) -> Result<(), LaunchError> {
    let needed = u64::from(ranks) * DESCRIPTORS_PER_RANK
        + hosts as u64 * DESCRIPTORS_PER_HOST
        + DESCRIPTORS_OWN;
    // If a filter refuses the question, too low a limit shows later.
    let Ok(mut limit) = limits(Resource::Nofile) else {
        return Ok(());
    };
    if limit.maximum.is_some_and(|hard| hard < needed) {
        let limit = limit.maximum.unwrap_or_default();
        return Err(LaunchError::TooFewFiles {
            ranks,
            needed,
            limit,
        });
    }
    if limit.current.is_some_and(|soft| soft < needed) {
        limit.current = Some(needed);
        setrlimit(Resource::Nofile, limit)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Versions;
    use crate::launch::Greeting;
    use crate::launch::remote::{AgentRoute, Remote};

    #[test]
    fn addresses_of_one_host_are_no_use_to_others() {
        for (text, good) in [
            ("10.0.0.1", true),
            ("fd00::1", true),
            ("127.0.0.1", false),
            ("::1", false),
            ("169.254.1.1", false),
            ("fe80::1", false),
            ("0.0.0.0", false),
        ] {
            assert_eq!(is_reachable(&text.parse().unwrap()), good, "{text}");
        }
    }

    /// A job with an agent on each host, which can AES-128-GCM and AEGIS-128L or not.
    fn suite_for(asked: Option<Suite>, can: &[(bool, bool)]) -> Result<Suite, LaunchError> {
        let mut spec = JobSpec::new(vec![1; can.len()]);
        spec.suite = asked;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let room = Room::new(can.len()).unwrap();
        let mut job = Running::new(spec, Vec::new(), epoll, room);
        let agent = |&(aes, aegis): &(bool, bool)| {
            let mut remote = Remote::new(AgentRoute::Via(0));
            remote.greeting = Some(Greeting {
                versions: Versions::ours(),
                aes,
                aegis,
                ip: None,
            });
            Side::There(Box::new(remote))
        };
        job.hosts = can.iter().map(agent).collect();
        job.choose_suite()
    }

    #[test]
    fn the_suite_is_one_that_all_hosts_can_or_the_one_that_was_asked_for() {
        use Suite::{Aegis128L, Aes128Gcm, ChaCha20Poly1305};
        let [all, none, no_avx] = [(true, true), (false, false), (true, false)];
        assert_eq!(suite_for(None, &[all, all]).unwrap(), Aegis128L);
        for other in [none, no_avx] {
            let chosen = suite_for(None, &[all, other]);
            assert_eq!(chosen.unwrap(), ChaCha20Poly1305);
        }
        for (asked, other, cannot) in [
            (Aegis128L, no_avx, true),
            (Aes128Gcm, no_avx, false),
            (Aes128Gcm, none, true),
            (ChaCha20Poly1305, none, false),
        ] {
            match suite_for(Some(asked), &[all, other, all]) {
                Ok(suite) => assert!(!cannot && suite == asked),
                Err(error) => {
                    let said = error.to_string();
                    assert!(cannot && said.starts_with("host 1: "), "{said}");
                    assert!(said.contains(asked.name()), "{said}");
                }
            }
        }
    }
}
