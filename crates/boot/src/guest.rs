//! A job of processes that another launcher started: they find each other
//! through its PMI server, or its PMIx library.
//!
//! There are two exchanges. In the first each process publishes its [`Card`];
//! then the first process of each host makes the memory that its processes
//! share. In the second each publishes its endpoint's address, which holds a
//! public key.

mod addresses;
mod agent;
mod card;
mod share;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use portolan_sys::environment;
use portolan_sys::lives::Pulse;
use portolan_sys::memory::Hidden;
use portolan_sys::net::Subnet;

use crate::host::{fnv, host_identity};
use crate::job::{PeerInfo, fill_random, random_secret};
use crate::pmi::{Found, Pmi, is_socket};
use crate::{
    BootError, Congestion, JOB_VARIABLE, LinkChoice, Membership, Security, Suite, Versions,
};
use agent::HostCard;
use agent::call::{Brief, Called, meet};
pub use agent::{call::GUEST_AGENT_WORDS, serve_guests};
use card::{Card, Choices, hex, unhex};
use share::{Neighbours, SegmentShare};

/// Settings of a guest, which `portolan run` would pass otherwise.
#[derive(Clone, Debug)]
pub struct GuestOptions {
    /// Whether packets are sealed.
    pub security: Security,
    /// The cipher suite.
    pub suite: Suite,
    /// Which link to use.
    pub link: LinkChoice,
    /// How to share the network.
    pub congestion: Congestion,
    /// A secret of the job that goes into the keys.
    pub mix: Option<Arc<Hidden<32>>>,
    /// The addresses that other hosts may use, the best first.
    pub addresses: Vec<Subnet>,
    /// Whether ends of processes can be watched (the feature `pidfd`).
    pub watches: bool,
    /// The program that is run as the agent of a host; none: no agent.
    pub agent: Option<OsString>,
    /// A host whose agent was silent for this long is lost.
    pub host_silence: Duration,
    /// Timeout of each wait for the other processes.
    pub join_timeout: Duration,
    /// Timeout of calls of the launcher's library, if there is one, that need
    /// no other process.
    pub library_timeout: Duration,
}

/// Why guests cannot form a job. Each is final for the process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuestError {
    /// Two processes were built from different versions.
    #[error(
        "mixed versions: rank {rank} was built with {theirs}, this program with {ours}; build all \
         programs of the job with one version"
    )]
    Version {
        /// Rank of the other process.
        rank: u32,
        /// Its versions.
        theirs: Versions,
        /// Versions of this process.
        ours: Versions,
    },
    /// Two processes have different settings that must agree.
    #[error(
        "setting {setting} is {theirs} for rank {rank} and {ours} here: give all ranks the same \
         (PORTOLAN_{})",
        .setting.to_uppercase()
    )]
    Differs {
        /// Rank of the other process.
        rank: u32,
        /// Name of the setting.
        setting: &'static str,
        /// Its value there.
        theirs: String,
        /// Its value here.
        ours: String,
    },
    /// What a process published is malformed.
    #[error(
        "what rank {rank} told by PMI makes no sense: do all ranks use Portolan, in one version?"
    )]
    Garbled {
        /// Its rank.
        rank: u32,
    },
    /// A host has no address that this one could use.
    #[error(
        "the host of rank {rank} has no address that this one could use: it needs one beside the \
         loopback that is not this host's own too"
    )]
    Unreachable {
        /// A rank there.
        rank: u32,
    },
}

/// Whether another launcher than Portolan's has started this process.
///
/// # Errors
/// [`BootError::Pmi`]: the launcher's variables are invalid. [`BootError::Untrusted`]: variables of
/// some launcher are set, but this process ignores them.
pub fn is_guest() -> Result<bool, BootError> {
    Ok(look()?.is_some())
}

fn look() -> Result<Option<Found>, BootError> {
    let in_vain = Found::look(environment::ignored, is_socket);
    if environment::ignored(JOB_VARIABLE).is_some() || !matches!(in_vain, Ok(None)) {
        return Err(BootError::Untrusted);
    }
    if environment::var_os(JOB_VARIABLE).is_some() {
        return Ok(None);
    }
    Ok(Found::look(environment::var_os, is_socket)?)
}

/// This process's place among the others.
#[derive(Debug)]
pub(crate) struct Guest {
    pmi: Option<Pmi>,
    job_id: u64,
    cards: Vec<Card>,
    /// Each rank's host and number there, by rank.
    places: Vec<(u16, u16)>,
    join_timeout: Duration,
    /// The agent of this host, if this process runs it, or why it cannot.
    agent: Option<Result<Called, String>>,
    /// Why this process does not share memory with its neighbours.
    apart: Option<String>,
    /// Ranks of this host that do not share memory with theirs.
    others_apart: Vec<u32>,
}

/// All that a job needs to begin.
pub(crate) struct Joined {
    pub guest: Guest,
    pub membership: Membership,
    /// This process's own: the keys come from the public ones.
    pub secret: Hidden<32>,
    pub shared: Option<(OwnedFd, Vec<OwnedFd>)>,
}

impl Guest {
    /// Joins the processes that the launcher has started beside this one.
    /// `make` makes the segment of a host for a number of processes.
    pub fn join(
        options: &GuestOptions,
        make: &mut dyn FnMut(u32) -> io::Result<OwnedFd>,
    ) -> Result<Joined, BootError> {
        let found = look()?.ok_or(BootError::LauncherGone)?;
        let pmi = Pmi::open(&found, options.library_timeout)?;
        Self::over(pmi, options, make)
    }

    fn over(
        mut pmi: Pmi,
        options: &GuestOptions,
        make: &mut dyn FnMut(u32) -> io::Result<OwnedFd>,
    ) -> Result<Joined, BootError> {
        let drawing = || BootError::io("asking the kernel for random bytes");
        let mut random = [0; 24];
        fill_random(&mut random).map_err(drawing())?;
        let (name, life) = random.split_first_chunk::<16>().expect("24 bytes");
        let own = Card {
            versions: Versions::ours(),
            host: host_identity().map_err(BootError::io("reading /proc for the host's name"))?,
            pid: std::process::id(),
            random: *name,
            choices: Choices {
                security: options.security,
                suite: options.suite,
                link: options.link,
                congestion: options.congestion,
                has_secret: options.mix.is_some(),
            },
            addresses: options.addresses.clone(),
        };
        let (rank, size) = (pmi.rank, pmi.size);
        pmi.put(&format!("ptl-card-{rank}"), &own.encode())?;
        pmi.fence(options.join_timeout)?;
        let mut cards = Vec::with_capacity(size as usize);
        for other in 0..size {
            let text = pmi.get(other, &format!("ptl-card-{other}"))?;
            let card = Card::decode(&text, &own).ok_or(GuestError::Garbled { rank: other })?;
            agree(other, &card, &own)?;
            cards.push(card);
        }
        let parts: Vec<&[u8]> = cards.iter().map(|card| &card.random[..]).collect();
        let job_id = fnv(&parts);
        let (places, hosts) = places(&cards);
        let (host_index, local_index) = places[rank as usize];
        let here = (0..)
            .zip(&places)
            .filter(|(_, place)| place.0 == host_index);
        let local_ranks: Vec<u32> = here.map(|(rank, _)| rank).collect();
        let pids: Vec<u32> = local_ranks.iter().map(|r| cards[*r as usize].pid).collect();
        let called = options.agent.as_deref().filter(|_| {
            // A process that is alone in its job has no peers to watch.
            local_index == 0 && size > 1 && options.watches
        });
        let agent = called.map(|program| {
            let brief = Brief {
                versions: Versions::ours(),
                job_id,
                host: host_index,
                watched: local_ranks
                    .iter()
                    .copied()
                    .zip(pids.iter().copied())
                    .collect(),
                has_mix: options.mix.is_some(),
                silence: options.host_silence,
            };
            Called::run(program, &brief, options.mix.as_deref().map(|mix| &**mix))
        });
        let neighbours = Neighbours {
            job_id,
            pids: &pids,
            index: local_index.into(),
        };
        let shared = if options.link == LinkChoice::Udp || local_ranks.len() < 2 {
            Ok(None)
        } else if options.watches {
            neighbours.share(make).map(Some)
        } else {
            Err("the feature pidfd is switched off".to_owned())
        };
        let (shared, apart) = match shared {
            Ok(shared) => (shared, None),
            Err(why) => (None, Some(why)),
        };
        let membership = Membership {
            rank,
            size,
            job_id,
            security: options.security,
            suite: options.suite,
            link: options.link,
            congestion: options.congestion,
            life: u64::from_le_bytes(life.try_into().expect("8 bytes")),
            restarts: 0,
            host_index,
            hosts,
            local_index,
            partitions: Vec::new(),
            local_ranks,
            core: None,
            core_shared: false,
            settings: BTreeMap::new(),
            ip: None,
            host_port: None,
            shared: shared.is_some(),
            watched: false,
        };
        Ok(Joined {
            guest: Self {
                pmi: Some(pmi),
                job_id,
                cards,
                places,
                join_timeout: options.join_timeout,
                agent,
                apart,
                others_apart: Vec::new(),
            },
            membership,
            secret: random_secret().map_err(drawing())?,
            shared: shared.map(|SegmentShare { segment, doorbells }| (segment, doorbells)),
        })
    }

    /// Publishes an address and returns those of all, each with the IP address
    /// by which this host reaches it.
    pub fn exchange(&mut self, address: [u8; 64], shares: bool) -> Result<Met, BootError> {
        let agent = self
            .agent
            .take()
            .map(|called| called.and_then(Called::wait));
        let pmi = self.pmi.as_mut().ok_or(BootError::LauncherGone)?;
        let own = Told {
            address,
            shares,
            agent: agent.iter().flatten().map(|it| (it.port, it.key)).next(),
        };
        pmi.put(&format!("ptl-address-{}", pmi.rank), &hex(&own.encode()))?;
        pmi.fence(self.join_timeout)?;
        let own = pmi.rank as usize;
        let (own_host, own_index) = self.places[own];
        let mut table = Vec::with_capacity(self.cards.len());
        let mut hosts: Vec<HostCard> = Vec::new();
        let mut watched = false;
        for (rank, (card, place)) in (0..).zip(self.cards.iter().zip(&self.places)) {
            let text = pmi.get(rank, &format!("ptl-address-{rank}"))?;
            let told = unhex(&text).and_then(|bytes| Told::decode(&bytes));
            let mut told = told.ok_or(GuestError::Garbled { rank })?;
            let (host_index, local_index) = *place;
            let near = host_index == own_host;
            if near && !told.shares {
                self.others_apart.push(rank);
            }
            let ip = if near {
                let first = card.addresses.first();
                first.map_or(IpAddr::from([127, 0, 0, 1]), |own| own.ip)
            } else {
                addresses::choose(&self.cards[own].addresses, &card.addresses)
                    .ok_or(GuestError::Unreachable { rank })?
            };
            let ip = match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            told.address[IP_AT..][..16].copy_from_slice(&ip.octets());
            watched |= near && told.agent.is_some();
            if let Some(host) = hosts.iter_mut().find(|host| host.host == host_index) {
                host.ranks.push(rank);
            } else if let (false, Some((port, key))) = (near, told.agent) {
                hosts.push(HostCard {
                    host: host_index,
                    ip: ip.octets(),
                    port,
                    key,
                    ranks: vec![rank],
                });
            }
            table.push(PeerInfo {
                address: told.address,
                pid: card.pid,
                host_index,
                local_index,
                restarts: 0,
                since: 0,
            });
        }
        self.cards = Vec::new();
        let introduced = agent.map(|agent| agent.and_then(|agent| agent.introduce(&hosts)));
        let met = match introduced {
            Some(Err(why)) => Err(why),
            _ if watched => meet(self.job_id, own_index),
            _ => Err("the first process of this host runs none".to_owned()),
        };
        let agent = met.or_else(|why| {
            let deaths = pmi.deaths();
            log::info!(
                "no agent, so deaths on other hosts are known by silence{}: {why}",
                deaths.as_ref().map_or("", |_| " or from the launcher")
            );
            deaths.map(|socket| (socket, None)).ok_or(())
        });
        Ok(Met {
            table,
            agent: agent.ok(),
        })
    }

    /// Returns why no memory is shared with a rank of this host; none if it is.
    pub fn apart(&self, rank: u32) -> Option<String> {
        if let Some(why) = &self.apart {
            return Some(why.clone());
        }
        let is_apart = self.others_apart.contains(&rank);
        is_apart.then(|| format!("rank {rank} could not attach to it"))
    }

    /// Finalizes PMI: this process's end is then no failure.
    pub fn leave(&mut self) {
        if let Some(pmi) = self.pmi.take()
            && pmi.finalize().is_err()
        {
            // The launcher is gone, and the job with it.
        }
    }

    /// Asks for the end of the job.
    pub fn abort(&mut self, code: u8) {
        if let Some(pmi) = &mut self.pmi
            && pmi.abort(code).is_err()
        {
            // The launcher is gone.
        }
    }
}

/// Result of the second exchange.
pub(crate) struct Met {
    pub table: Vec<PeerInfo>,
    /// Connection to this host's agent, or to what reports deaths in its place.
    pub agent: Option<(OwnedFd, Option<Pulse>)>,
}

/// What each process publishes in the second exchange.
struct Told {
    address: [u8; 64],
    /// Whether it shares memory with its neighbours.
    shares: bool,
    /// Port and public key of its host's agent, if it runs one.
    agent: Option<(u16, [u8; 32])>,
}

impl Told {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = self.address.to_vec();
        bytes.push(self.shares.into());
        if let Some((port, key)) = &self.agent {
            bytes.extend(port.to_le_bytes());
            bytes.extend(key);
        }
        bytes
    }

    /// Keeps P3.14.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (address, rest) = bytes.split_first_chunk::<64>()?;
        let (shares @ (0 | 1), rest) = rest.split_first()? else {
            return None;
        };
        let agent = match rest {
            [] => None,
            [low, high, key @ ..] => {
                let port = u16::from_le_bytes([*low, *high]);
                Some((port, key.try_into().ok()?))
            }
            [_] => return None,
        };
        Some(Self {
            address: *address,
            shares: *shares == 1,
            agent,
        })
    }
}

/// Decodes bytes as values that other processes put into PMI, and as answers of
/// its server. Checks that valid ones survive encoding and decoding. Returns
/// whether any was valid.
#[cfg(feature = "properties")]
pub fn values_travel(bytes: &[u8]) -> bool {
    use std::net::Ipv4Addr;
    let own = Card {
        versions: Versions::ours(),
        host: 1,
        pid: 2,
        random: [3; 16],
        choices: Choices {
            security: Security::Encrypt,
            suite: Suite::Aes128Gcm,
            link: LinkChoice::Auto,
            congestion: Congestion::Auto,
            has_secret: false,
        },
        addresses: portolan_sys::net::Subnet::new(Ipv4Addr::LOCALHOST.into(), 8)
            .into_iter()
            .collect(),
    };
    // The bytes as they are, as digits, and behind the beginning of a card of this version.
    let head = unhex(&own.encode()).expect("digits");
    let head = &head[..head.len() - Card::BODY_BYTES];
    let texts = [
        String::from_utf8_lossy(bytes).into_owned(),
        hex(bytes),
        hex(&[head, bytes].concat()),
    ];
    let mut understood = crate::pmi::answers_are_read(bytes);
    for text in texts {
        if let Some(card) = Card::decode(&text, &own) {
            understood = true;
            assert_eq!(Card::decode(&card.encode(), &own), Some(card));
        }
    }
    if let Some(told) = Told::decode(bytes) {
        understood = true;
        assert_eq!(told.encode(), bytes);
    }
    understood
}

/// Offset of the IP address in an address's bytes.
const IP_AT: usize = 4;

/// Fails unless another process fits this one (P3.13).
fn agree(rank: u32, card: &Card, own: &Card) -> Result<(), GuestError> {
    if card.versions != own.versions {
        return Err(GuestError::Version {
            rank,
            theirs: card.versions.clone(),
            ours: own.versions.clone(),
        });
    }
    let (a, b) = (card.choices, own.choices);
    let text = |setting: &dyn fmt::Debug| format!("{setting:?}").to_lowercase();
    let secret = |has: bool| if has { "set" } else { "not set" }.to_owned();
    let all = [
        ("security", text(&a.security), text(&b.security)),
        (
            "suite",
            a.suite.name().to_owned(),
            b.suite.name().to_owned(),
        ),
        ("link", text(&a.link), text(&b.link)),
        ("congestion", text(&a.congestion), text(&b.congestion)),
        (
            "job_secret_file",
            secret(a.has_secret),
            secret(b.has_secret),
        ),
    ];
    match all.into_iter().find(|(_, theirs, ours)| theirs != ours) {
        None => Ok(()),
        Some((setting, theirs, ours)) => Err(GuestError::Differs {
            rank,
            setting,
            theirs,
            ours,
        }),
    }
}

/// Returns each rank's host and its number there, by rank, and the number of
/// hosts. Hosts are numbered in order of their first ranks.
fn places(cards: &[Card]) -> (Vec<(u16, u16)>, u16) {
    let mut hosts: Vec<(u64, u16)> = Vec::new();
    let mut places = Vec::with_capacity(cards.len());
    for card in cards {
        let at = hosts.iter().position(|(host, _)| *host == card.host);
        let at = at.unwrap_or_else(|| {
            hosts.push((card.host, 0));
            hosts.len() - 1
        });
        places.push((at as u16, hosts[at].1));
        hosts[at].1 += 1;
    }
    (places, hosts.len() as u16)
}

#[cfg(test)]
mod tests;
