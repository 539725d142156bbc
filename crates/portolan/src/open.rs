//! Joining a job and opening this process's endpoint in it.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use portolan_boot::{BootError, Congestion as Sharing, GaveUp, How, Job, LinkChoice, PeerInfo};
use portolan_runtime as engine;
use portolan_runtime::{
    ADDRESS_BYTES, Address, Congestion, Death, Failure, KeyAddress, Misuse, Opening, PeerConfig,
    ShmAttachment, SpaceId, Threads,
};
use portolan_sys::environment;
use portolan_sys::features::UnknownFeature;
use portolan_sys::lives::Pulse;
use portolan_sys::net;
use portolan_sys::tell::tell;
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::configure::{adopt_tuned, job_config};
use crate::guest::{self, Keys, SecretFileError};
use crate::host_port::{self, Lease, NetworkAccess};
use crate::interfaces::{self, Chosen};
use crate::settings::{SettingError, Settings};
use crate::tuned::Link;

/// Options of the call that opens an endpoint. Everything else comes from the
/// launcher, the environment and the defaults.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Which threads may call the endpoint. Default [`Threads::Single`].
    pub threads: Threads,
    /// Meaning of the setting `region_peers` where it is not set.
    pub(crate) regions_for_added: bool,
    settings: Vec<(String, String)>,
}

impl Config {
    /// Sets a setting by name; see [`crate::SETTINGS`]. It overrides all other
    /// sources of the setting. A wrong name or value is an error of
    /// [`Endpoint::open`].
    #[must_use]
    pub fn set(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.settings.push((name.to_owned(), value.to_string()));
        self
    }

    /// The settings of this call.
    pub(crate) fn settings(&self) -> &[(String, String)] {
        &self.settings
    }

    /// Opens regions only to peers that were added once, unless the setting
    /// `region_peers` says otherwise. For interfaces whose programs choose all
    /// keys, which can be guessed.
    #[doc(hidden)]
    #[must_use]
    pub const fn regions_for_added(mut self) -> Self {
        self.regions_for_added = true;
        self
    }

    /// Sets which threads may call the endpoint. Default [`Threads::Single`].
    #[must_use]
    pub const fn threads(mut self, threads: Threads) -> Self {
        self.threads = threads;
        self
    }
}

/// Why an endpoint was not opened. The text of each error names its cause and its
/// remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The job cannot be joined. For example, the launcher has refused this
    /// process or has gone, a rank did not join in time, or this process has joined
    /// before.
    #[error("{0}")]
    Boot(BootError),
    /// A setting has an unknown name or an impossible value, or its file cannot be
    /// read.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The file that the setting `job_secret_file` names cannot be used.
    #[error("{0}")]
    SecretFile(SecretFileError),
    /// `PORTOLAN_DISABLE` names a feature that does not exist.
    #[error(transparent)]
    Disable(UnknownFeature),
    /// The endpoint cannot be made. For example, its UDP port is in use, memory or
    /// descriptors are short, or a system call failed.
    #[error(transparent)]
    Engine(#[from] engine::OpenError),
    /// The job asks for shared memory only (link `shm`), and a rank is on another
    /// host.
    #[error(
        "--link shm needs all ranks on one host, but rank {rank} is on another: use --link auto"
    )]
    NotOneHost {
        /// The first such rank.
        rank: u32,
    },
    /// The job asks for shared memory only (link `shm`), and a rank of this host
    /// cannot share memory.
    #[error("link shm: no memory is shared with rank {rank}, {why}; link auto does without")]
    NotShared {
        /// The first such rank.
        rank: u32,
        /// The reason.
        why: String,
    },
    /// Only host ports are requested (link `xdp`), and this process has none. A host
    /// port is an AF_XDP queue that one process owns.
    #[error("link xdp: there is no host port: {why}; link auto does without")]
    NoHostPort {
        /// The reason.
        why: String,
    },
    /// The setting `interface` names no network of this host, or too many.
    #[error("setting interface: {why}")]
    Interface {
        /// The reason.
        why: String,
    },
    /// The setting `address` is neither an address nor a network, or this host has no
    /// such address.
    #[error("setting address is {why}")]
    Address {
        /// The value, and the reason.
        why: String,
    },
    /// A space of the endpoint cannot be opened.
    #[error("{0}")]
    Space(Misuse),
    /// The endpoint of this process is open, for fewer threads than are requested now.
    #[error(
        "the endpoint of this process was opened with threads = {opened}, and now {asked} is \
         asked for: open it with {asked} first"
    )]
    OtherThreads {
        /// The value at opening.
        opened: &'static str,
        /// The value that is requested now.
        asked: &'static str,
    },
    /// The endpoint of this process is open, with another value of a setting.
    #[error(
        "the endpoint of this process was opened with {name} = {opened}, and now {asked} is \
         asked for: give one value to both"
    )]
    OtherSetting {
        /// Name of the setting.
        name: String,
        /// The value at opening.
        opened: String,
        /// The value that is requested now.
        asked: String,
    },
    /// A rank's address cannot be read: it probably runs another version.
    #[error("the address of rank {rank} makes no sense: do all ranks run one version?")]
    BadAddress {
        /// The rank.
        rank: u32,
    },
}

impl From<BootError> for OpenError {
    fn from(e: BootError) -> Self {
        Self::Boot(e)
    }
}

impl From<SecretFileError> for OpenError {
    fn from(e: SecretFileError) -> Self {
        Self::SecretFile(e)
    }
}

/// This process's attachment to its job, or a further space of it. Dereferences to
/// [`engine::Space`], which has most methods.
#[derive(Debug)]
pub struct Endpoint {
    pub(crate) inner: engine::Space,
    pub(crate) opened: Arc<Opened>,
}

/// How an endpoint was opened.
#[derive(Debug)]
pub struct Opened {
    pub(crate) settings: Settings,
    pub(crate) job_id: u64,
    /// The endpoint's own address.
    pub(crate) address: [u8; ADDRESS_BYTES],
    /// Holds the host port that this process has requested itself.
    pub(crate) _lease: Option<Lease>,
}

impl Deref for Endpoint {
    type Target = engine::Space;

    fn deref(&self) -> &engine::Space {
        &self.inner
    }
}

/// Passes notices between the launcher and the engine.
struct Launcher(Job);

impl engine::Watch for Launcher {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.control_fd()
    }

    fn pulse(&mut self) -> Option<Pulse> {
        self.0.pulse.take()
    }

    fn poll(&mut self) -> Option<engine::Notice> {
        Some(match self.0.poll_notice()? {
            portolan_boot::Notice::Left { rank } => engine::Notice::Left(rank),
            portolan_boot::Notice::Back { rank, peer } => match returned(&self.0, rank, &peer) {
                Ok(it) => engine::Notice::Back(Box::new(it)),
                // On an error the rank stays dead here.
                Err(error) => {
                    tell(format_args!("portolan: {error}"));
                    return self.poll();
                }
            },
            portolan_boot::Notice::Died { rank, how } => engine::Notice::Died(rank, death(how)),
            portolan_boot::Notice::GivenUp { by } => engine::Notice::GivenUp(by),
            portolan_boot::Notice::Doubted { ranks } => engine::Notice::Doubted(ranks),
            portolan_boot::Notice::Stopped { rank } => engine::Notice::Stopped(rank),
            portolan_boot::Notice::Abort(why) => engine::Notice::Ending(why),
        })
    }

    fn has_heard(&mut self, rank: u32, ago: Duration) {
        self.0.has_heard(rank, ago);
    }

    fn give_up(&mut self, rank: u32, restarts: u32, why: Death, starved: bool) {
        let why = match why {
            Death::Corrupt => GaveUp::Corrupt,
            Death::CutOff(Failure::Send(errno)) => GaveUp::NotSent { errno },
            Death::CutOff(Failure::Receive(errno)) => GaveUp::NotReceived { errno },
            _ if self.0.local_ranks.contains(&rank) && loopback_is_down() => GaveUp::NotSent {
                errno: Errno::NETDOWN.raw_os_error(),
            },
            _ if starved => GaveUp::Starved,
            _ => GaveUp::Silent,
        };
        self.0.give_up(rank, restarts, why);
    }

    fn leave(&mut self) {
        self.0.leave();
    }
}

/// Whether the loopback is down, so that no packet passes between ranks of this host.
/// If it was up before, the kernel accepts packets and drops them without an error.
fn loopback_is_down() -> bool {
    let all = net::interfaces().unwrap_or_default();
    all.iter().any(|it| it.loopback && !it.up)
}

const fn death(how: How) -> Death {
    match how {
        How::Exited(code) => Death::Exited(code),
        How::Killed(signal) => Death::Killed(signal),
        How::Lost => Death::HostLost,
        How::Replaced => Death::Replaced,
        How::Gone => Death::Ended,
    }
}

/// Converts a table to the launcher's form. No table is so large that its numbers
/// do not fit; the launcher would refuse such a one.
fn told(table: &engine::Table) -> portolan_boot::Table {
    let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let field = |field: &engine::Field| portolan_boot::Field {
        name: field.name.to_owned(),
        offset: small(field.offset),
        bytes: u8::try_from(field.bytes).unwrap_or(u8::MAX),
        idle: field.idle,
    };
    portolan_boot::Table {
        name: table.name.to_owned(),
        address: table.address,
        stride: small(table.stride),
        count: small(table.count),
        fields: table.fields.iter().map(field).collect(),
    }
}

/// Congestion control on the way to a peer.
pub(crate) fn mode(sharing: Sharing, to: &Address) -> Congestion {
    match sharing {
        Sharing::Lan => Congestion::Lan,
        Sharing::Shared => Congestion::Shared,
        Sharing::Auto => engine::congestion_towards(to.ip),
    }
}

/// The engine's configuration of a rank, and the link to it.
fn peer_config(
    job: &Job,
    way: &NetworkAccess,
    rank: u32,
    peer: &PeerInfo,
) -> Result<(PeerConfig, &'static str), OpenError> {
    let bad = |_| OpenError::BadAddress { rank };
    let (address, public_key) = if job.is_guest() {
        let address = KeyAddress::parse(&peer.address).map_err(bad)?;
        (guest::address_of(&address), Some(address.key))
    } else {
        (Address::parse(&peer.address).map_err(bad)?, None)
    };
    let here = peer.host_index == job.host_index;
    let apart = job.apart(rank).filter(|_| here && rank != job.rank);
    let shares = here && job.segment.is_some() && apart.is_none();
    let local_index = shares.then_some(peer.local_index);
    let (link, why) = match (here, shares) {
        (_, true) => ("shm", "".into()),
        (true, false) => ("udp", "".into()),
        (false, false) => way.to_host(&address),
    };
    let partition = |host: u16| job.partitions.get(usize::from(host));
    let barred = partition(peer.host_index) != partition(job.host_index);
    let reason: Cow<'static, str> = match (here, job.link, apart) {
        _ if barred => "its host is in another partition".into(),
        _ if here && job.restarts > 0 => "same host, but this rank was started again".into(),
        _ if peer.restarts > 0 => started_again(here),
        (true, LinkChoice::Udp, _) => "same host, but the job asks for udp".into(),
        (true, LinkChoice::Xdp, _) => {
            "same host, but the job asks for xdp: through the kernel".into()
        }
        (true, LinkChoice::Shm, Some(why)) => return Err(OpenError::NotShared { rank, why }),
        (true, _, Some(why)) => format!("same host, but no shared memory: {why}").into(),
        (true, _, None) => "same host: shared memory".into(),
        (false, LinkChoice::Shm, _) => return Err(OpenError::NotOneHost { rank }),
        (false, _, _) => why,
    };
    let config = PeerConfig {
        address,
        public_key,
        local_index,
        pid: if here { peer.pid } else { 0 },
        mode: mode(job.congestion, &address),
        barred,
        restarts: peer.restarts,
        since: peer.since,
        reason,
    };
    Ok((config, link))
}

/// The reason why a rank that was started again is reached by the network.
fn started_again(here: bool) -> Cow<'static, str> {
    if here {
        "same host, but started again".into()
    } else {
        "another host, started again".into()
    }
}

/// The engine's description of a rank that was started again.
fn returned(job: &Job, rank: u32, peer: &PeerInfo) -> Result<engine::Restarted, OpenError> {
    let address = Address::parse(&peer.address).map_err(|_| OpenError::BadAddress { rank })?;
    Ok(engine::Restarted {
        rank,
        address,
        restarts: peer.restarts,
        since: peer.since,
        mode: mode(job.congestion, &address),
        reason: started_again(peer.host_index == job.host_index),
    })
}

impl Endpoint {
    /// Joins the job that this process was started in and opens its endpoint. A
    /// process that no launcher started is a job of one rank. Returns when all
    /// ranks have joined. A process opens one endpoint in a job. If another interface of
    /// the process has opened it, this opens the program's own space of it.
    ///
    /// # Errors
    /// The text of each error says what to do.
    /// - [`OpenError::Boot`]: the job cannot be joined.
    /// - [`OpenError::Setting`], [`OpenError::Disable`], [`OpenError::Interface`],
    ///   [`OpenError::Address`], [`OpenError::SecretFile`]: a setting is wrong, here, in the environment,
    ///   in a file or in the launcher's options.
    /// - [`OpenError::NotOneHost`], [`OpenError::NotShared`],
    ///   [`OpenError::NoHostPort`]: a rank cannot be reached by the link that the
    ///   job asks for.
    /// - [`OpenError::BadAddress`]: a rank's address cannot be read.
    /// - [`OpenError::Engine`]: the kernel refused a socket, memory or a thread.
    /// - [`OpenError::Space`], [`OpenError::OtherThreads`], [`OpenError::OtherSetting`]: see
    ///   [`Endpoint::attach`].
    pub fn open(config: Config) -> Result<Self, OpenError> {
        Self::attach(SpaceId::PROGRAM, config)
    }

    pub(crate) fn of(inner: engine::Space, opened: &Arc<Opened>) -> Self {
        let opened = Arc::clone(opened);
        Self { inner, opened }
    }

    /// Opens a further space, as [`engine::Space::space`].
    ///
    /// # Errors
    /// As [`engine::Space::space`].
    pub fn space(&self, id: SpaceId) -> Result<Self, Misuse> {
        Ok(Self::of(self.inner.space(id)?, &self.opened))
    }

    /// Opens a space in the place of the program's own.
    pub(crate) fn instead_of_own(self, id: SpaceId) -> Result<Self, Misuse> {
        Ok(Self::of(self.inner.instead(id)?, &self.opened))
    }

    /// Joins the job.
    pub(crate) fn open_job(config: Config) -> Result<Self, OpenError> {
        crate::begin_log();
        let pairs = |(name, value): &'_ (String, String)| (name.clone(), value.clone());
        let call: Vec<_> = config.settings.iter().map(pairs).collect();
        let said = |launcher: &[(&str, &str)]| {
            let call = call.iter().map(|(n, v)| (n.as_str(), v.as_str()));
            Settings::gather(call, launcher.iter().copied())
        };
        let (mut job, keys) = if portolan_boot::is_guest()? {
            let settings = said(&[])?;
            let keys = Keys::make(&settings)?;
            (guest::join(&settings, &keys)?, Some(keys))
        } else {
            (Job::attach()?, None)
        };
        if job.rank == 0 && environment::var_os(portolan_boot::JOB_VARIABLE).is_none() {
            // Otherwise `portolan run` has reported them, once for all ranks.
            for what in crate::check_environment() {
                tell(format_args!("portolan: {what}"));
            }
        }
        let launcher: Vec<_> = job.settings.iter().map(|(n, v)| (&n[..], &v[..])).collect();
        let mut settings = said(&launcher)?;
        let mut engine_config = job_config(&mut job, &settings, config.threads)?;
        engine_config.one_sided = !portolan_boot::node::no_one_sided();
        let (networks, own_address) =
            interfaces::enter(&settings, job.is_guest(), &mut engine_config)?;
        if let Some(keys) = &keys {
            keys.enter(&mut engine_config);
        }
        let (mut way, host_port) = host_port(&mut job, &engine_config, networks.first())?;
        let shares = job.segment.is_some().then_some(Link::Shm);
        let network = match (&way, engine_config.network) {
            (_, false) => None,
            (NetworkAccess::HostPort { .. }, true) => Some(Link::Xdp),
            (NetworkAccess::Socket { .. }, true) => Some(Link::Udp),
        };
        let links: Vec<Link> = shares.into_iter().chain(network).collect();
        adopt_tuned(&mut settings, &links, &mut engine_config)?;
        let mut opening = match host_port {
            Some(port) => Opening::with_host_port(engine_config, port)?,
            None => Opening::new(engine_config)?,
        };
        let address = match &keys {
            Some(keys) => keys.address(opening.address()).to_bytes(),
            None => opening.address().to_bytes(),
        };
        let peers = job.exchange(address)?;
        let not_bound = job.not_bound.take();
        opening.set_bound(not_bound.is_none());
        if not_bound.is_some() {
            way = without(&job, not_bound)?;
        }
        let (peers, links): (Vec<_>, Vec<_>) = (0..)
            .zip(&peers)
            .map(|(rank, peer)| peer_config(&job, &way, rank, peer))
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .unzip();
        if let Some(pulse) = &job.pulse {
            pulse.mark_fatal_signals();
        }
        let doorbells = std::mem::take(&mut job.doorbells);
        let index = job.local_index;
        let shm = job.segment.take().map(|segment| ShmAttachment {
            segment,
            index,
            doorbells,
        });
        let job_id = job.job_id;
        let (me, reporter) = (job.rank, job.reporter()?);
        let inner = opening.finish(&peers, shm, Some(Box::new(Launcher(job))))?;
        if let Some(reporter) = reporter {
            // Not by calls of the endpoint: with `Threads::Single` the first call
            // would make this thread its owner.
            let lane = |((rank, peer), link): ((u32, &PeerConfig), &&str)| {
                (rank, (*link).to_owned(), peer.reason.to_string())
            };
            let all = (0..).zip(&peers).zip(&links);
            let others = all.filter(|((rank, _), _)| *rank != me);
            let own = own_address.map(|it| (it.ip, it.reason));
            reporter.lanes(others.map(lane), own);
            reporter.tables(inner.tables().iter().map(told).collect());
        }
        let opened = Arc::new(Opened {
            settings,
            job_id,
            address,
            _lease: None,
        });
        Ok(Self { inner, opened })
    }

    /// The endpoint's address, with which others reach it. The address of an endpoint in
    /// a job is of use in that job alone.
    #[must_use]
    pub fn address(&self) -> [u8; ADDRESS_BYTES] {
        self.opened.address
    }

    /// The IP address by which others reach this endpoint. `None`: shared memory reaches
    /// all of them, and no socket is open.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        let of_job = Address::parse(&self.opened.address).map(|it| it.ip);
        let ip = of_job.or_else(|_| KeyAddress::parse(&self.opened.address).map(|it| it.ip));
        let ip = IpAddr::from(ip.ok()?).to_canonical();
        (!ip.is_unspecified()).then_some(ip)
    }

    /// The job's id: random, the same for all ranks, and not secret. 0 outside of a job.
    #[must_use]
    pub fn job_id(&self) -> u64 {
        self.opened.job_id
    }

    /// The value of every setting, with the source of each.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.opened.settings
    }
}

/// Maps the host port that the launcher has passed, if it is to be used.
fn host_port(
    job: &mut Job,
    config: &engine::Config,
    first: Option<&Chosen>,
) -> Result<(NetworkAccess, Option<engine::MappedHostPort>), OpenError> {
    let given = job.host_port.take().filter(|_| config.network);
    let other = given.as_ref().filter(|port| {
        let there = port.info.interface;
        first.is_some_and(|first| first.index != there)
    });
    let other = other.map(|port| format!("it is on {}", port.info.name));
    let why = match &job.membership().host_port {
        Some(Err(why)) => Some(why.clone()),
        _ if config.udp.disabled.xdp => Some("xdp is switched off".to_owned()),
        Some(Ok(_)) if config.udp.port != 0 => Some(host_port::OWN_PORT.to_owned()),
        Some(Ok(_)) if other.is_some() => {
            other.map(|it| format!("{it}, and the setting interface names another network first"))
        }
        _ => None,
    };
    let mapped = match (given, why) {
        (Some(port), None) => host_port::map(config, port).map_err(Some),
        (_, why) => Err(why),
    };
    match mapped {
        Ok((way, port)) => Ok((way, Some(port))),
        Err(why) if config.network => Ok((without(job, why)?, None)),
        Err(why) => Ok((NetworkAccess::Socket { why }, None)),
    }
}

/// The way of a rank that has no host port, and `why`; an error if the job requires
/// one (link `xdp`).
fn without(job: &Job, why: Option<String>) -> Result<NetworkAccess, OpenError> {
    if job.link == LinkChoice::Xdp {
        let why = why.unwrap_or_else(|| "nobody opened one".to_owned());
        return Err(OpenError::NoHostPort { why });
    }
    Ok(NetworkAccess::Socket { why })
}

/// Fresh random bytes from the kernel.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], OpenError> {
    let mut bytes = [0; N];
    fill_random(&mut bytes)?;
    Ok(bytes)
}

/// Fills `bytes`, at most 256, with fresh random bytes from the kernel.
pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<(), OpenError> {
    let got = getrandom(&mut *bytes, GetRandomFlags::empty())
        .map_err(|e| OpenError::Engine(engine::OpenError::System("getrandom", e.raw_os_error())))?;
    debug_assert_eq!(got, bytes.len(), "so few bytes always come whole");
    Ok(())
}
