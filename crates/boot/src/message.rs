//! What launcher and rank say to each other.
//!
//! A message is one byte of kind and a body: JSON for what is said once, so
//! that other versions can read at least the greeting; fixed records for
//! addresses, of which there are as many as ranks.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::IpAddr;

use portolan_seal::derive;
use serde::{Deserialize, Serialize};

use crate::error::Refusal;
use crate::host_port::HostPortInfo;
use crate::job::PeerInfo;
use crate::socket::MESSAGE_BYTES_MAX;

/// Version of the messages between launcher, agent and rank.
pub(crate) const BOOT_VERSION: u32 = 8;

const KIND_JSON: u8 = b'J';
const KIND_MEMBERSHIP: u8 = b'W';
const KIND_JOIN: u8 = b'A';
const KIND_TABLE: u8 = b'T';
const KIND_BACK: u8 = b'B';

/// Bytes of a peer's record in the table: address, process id, host, index,
/// restarts, number of the last return.
const RECORD_BYTES: usize = 64 + 4 + 2 + 2 + 4 + 4;
/// Records of the table that one message carries.
pub(crate) const RECORDS_MAX: usize = (MESSAGE_BYTES_MAX - 5) / RECORD_BYTES;

/// Versions that must agree in a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// Of the Portolan release.
    pub portolan: String,
    /// Of the messages between launcher and rank.
    pub boot: u32,
    /// Of the packets.
    pub wire: u32,
}

impl Versions {
    /// Those that this code was built with.
    #[must_use]
    pub fn ours() -> Self {
        Self {
            portolan: env!("CARGO_PKG_VERSION").to_owned(),
            boot: BOOT_VERSION,
            wire: u32::from(portolan_wire::VERSION),
        }
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            portolan,
            boot,
            wire,
        } = self;
        write!(f, "Portolan {portolan} (boot {boot}, wire {wire})")
    }
}

/// Whether packets on the network are sealed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Security {
    /// Encrypted and authenticated.
    #[default]
    Encrypt,
    /// Only a checksum.
    None,
}

/// The job's cipher suite; of no effect under [`Security::None`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Suite {
    /// AES-128-GCM.
    #[default]
    #[serde(rename = "aes-128-gcm")]
    Aes128Gcm,
    /// ChaCha20-Poly1305, for hosts without AES instructions.
    #[serde(rename = "chacha20-poly1305")]
    ChaCha20Poly1305,
}

/// Which link carries messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkChoice {
    /// `shm` within a host; between hosts `xdp` for ranks that have a host
    /// port, else `udp`.
    #[default]
    Auto,
    /// Shared memory only: all ranks must be on one host.
    Shm,
    /// UDP only, within a host too.
    Udp,
    /// UDP packets past the kernel: every rank must have a host port.
    Xdp,
}

/// How the job shares the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Congestion {
    /// `Lan` for a peer on a directly connected subnet, else `Shared`.
    #[default]
    Auto,
    /// Queueing delay and ECN are the signals, random loss is not.
    Lan,
    /// Fair to TCP.
    Shared,
}

/// How a rank ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// With this exit code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
    /// It is not known: its host is lost.
    Lost,
    /// By `exec`, without leaving the job: the process is another program now.
    Replaced,
    /// It is not known: the process was not the launcher's own child.
    Gone,
}

impl How {
    /// As wait(2) gives it.
    pub(crate) fn of_status(status: u32) -> Self {
        match status & 0x7f {
            0 => Self::Exited((status >> 8 & 0xff).cast_signed()),
            signal => Self::Killed(signal.cast_signed()),
        }
    }

    /// As a shell shows it: the code, or 128 and the signal; 1 where neither
    /// is known.
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            Self::Exited(code) => code,
            Self::Killed(signal) => 128 + signal,
            Self::Lost | Self::Replaced | Self::Gone => 1,
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Exited(code) => write!(f, "exit code {code}"),
            Self::Killed(signal) => match signal_name(signal) {
                Some(name) => write!(f, "signal {signal} ({name})"),
                None => write!(f, "signal {signal}"),
            },
            Self::Lost => write!(f, "the loss of its host"),
            Self::Replaced => write!(f, "becoming another program (exec)"),
            Self::Gone => write!(f, "an end that nobody saw"),
        }
    }
}

/// Names of the signals that end processes, as numbered on x86-64 and aarch64.
fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return None,
    })
}

/// A link that carries a rank's messages to some others, and why that one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane {
    /// Name of the link.
    pub link: String,
    /// For the user to read.
    pub why: String,
    /// To whom: first and last rank of each run of neighbours.
    pub ranks: Vec<(u32, u32)>,
}

impl Lane {
    /// Puts together what is said of each rank, in ascending order.
    pub(crate) fn gather(each: impl IntoIterator<Item = (u32, String, String)>) -> Vec<Self> {
        let mut lanes: Vec<Self> = Vec::new();
        for (rank, link, why) in each {
            let at = lanes.iter().position(|l| l.link == link && l.why == why);
            let at = at.unwrap_or_else(|| {
                lanes.push(Self {
                    link,
                    why,
                    ranks: Vec::new(),
                });
                lanes.len() - 1
            });
            match lanes[at].ranks.last_mut() {
                Some((_, last)) if *last + 1 == rank => *last = rank,
                _ => lanes[at].ranks.push((rank, rank)),
            }
        }
        lanes
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to", self.link)?;
        for (i, (first, last)) in self.ranks.iter().enumerate() {
            write!(f, "{} {first}", if i == 0 { "" } else { "," })?;
            if first != last {
                write!(f, "-{last}")?;
            }
        }
        write!(f, " ({})", self.why)
    }
}

/// Where in a rank's memory whoever watches it finds numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// What it holds.
    pub name: String,
    /// Its address.
    pub address: u64,
    /// From the beginning of one entry to that of the next, bytes.
    pub stride: u32,
    /// How many entries.
    pub count: u32,
    /// The numbers in each.
    pub fields: Vec<Field>,
}

/// A number in the entries of a [`Table`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Where it begins in the entry, bytes.
    pub offset: u32,
    /// Its length: 1, 2, 4 or 8 bytes.
    pub bytes: u8,
    /// An entry is left out where each field that has this has this value.
    pub idle: Option<u64>,
}

/// Why a rank has given another up, of whose end nobody had told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GaveUp {
    /// It did not answer while something waited for it.
    Silent,
    /// What it wrote to shared memory makes no sense.
    Corrupt,
    /// It was not heard, and the kernel refused the packets to it.
    NotSent {
        /// What the kernel answered.
        errno: i32,
    },
    /// It was not heard, and the kernel let nobody's packets be read.
    NotReceived {
        /// What the kernel answered.
        errno: i32,
    },
}

impl GaveUp {
    /// That `rank` has given up `other` for something that is not the fault of
    /// that one, for people to read; none where it may be.
    pub(crate) fn refused(self, rank: u32, other: u32) -> Option<String> {
        let error = io::Error::from_raw_os_error;
        match self {
            Self::Silent | Self::Corrupt => None,
            Self::NotSent { errno } => Some(format!(
                "rank {rank} cannot send packets to rank {other}: {}",
                error(errno)
            )),
            Self::NotReceived { errno } => Some(format!(
                "rank {rank} cannot receive packets, those of rank {other} among them: {}",
                error(errno)
            )),
        }
    }
}

/// From rank to launcher.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToLauncher {
    /// First of all.
    Hello { versions: Versions, pid: u32 },
    /// The rank's endpoint is open: which links it uses.
    Lanes(Vec<Lane>),
    /// The rank's endpoint is open: where its counters and state are.
    Tables(Vec<Table>),
    /// The rank has given these up: which, and how often each had been started
    /// again by then.
    GaveUp { ranks: Vec<(u32, u32)>, why: GaveUp },
    /// To an agent that has [doubts](ToRank::Doubted): of this one the rank has
    /// heard so long ago.
    Heard { rank: u32, ago_ms: u64 },
    /// The rank closed its endpoint in good order.
    Leave,
    /// End the job with this code.
    Abort { code: u8 },
}

/// From launcher to rank.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToRank {
    /// Answer to the greeting or the key check.
    Refused(Refusal),
    /// From the agent of a host whose processes another launcher started: the
    /// first that it says. The lives' descriptor may go with it.
    Watched,
    /// More doorbells go with it.
    Doorbells,
    /// The host port that the rank has mapped could not be bound: it goes on
    /// without. Said before its table.
    NotBound { why: String },
    /// A rank has ended, or is about to.
    Died { rank: u32, how: How },
    /// A rank on this host has given up the one that hears this: the memory
    /// that they share makes no sense.
    GivenUp { by: u32 },
    /// A rank's process is stopped: its silence means nothing. Said again
    /// and again as long as it is.
    Stopped { rank: u32 },
    /// From an agent: it has heard nothing of the host of these for a while.
    /// Has the rank, of one of them?
    Doubted { ranks: Vec<u32> },
    /// A rank has closed its endpoint in good order. Said to those that were
    /// started again: it may not know them.
    Left { rank: u32 },
    /// The job is being ended.
    Abort { why: String },
}

/// Who a process is in its job, and what all of the job agree on.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// This process's number, below `size`.
    pub rank: u32,
    /// Number of processes.
    pub size: u32,
    /// Random, the same for all ranks; not secret.
    pub job_id: u64,
    /// Whether packets are sealed.
    pub security: Security,
    /// With which cipher suite.
    pub suite: Suite,
    /// Which link to use.
    pub link: LinkChoice,
    /// How to share the network.
    pub congestion: Congestion,
    /// Names this incarnation; random.
    pub life: u64,
    /// How often this rank was started before.
    pub restarts: u32,
    /// This host's number in the job.
    pub host_index: u16,
    /// Number of hosts.
    pub hosts: u16,
    /// This process's number among the ranks of its host.
    pub local_index: u16,
    /// The partition of each host; empty where all are in one. Hosts of two
    /// have no common secret.
    pub partitions: Vec<u16>,
    /// The ranks of this host in order of their local index.
    pub local_ranks: Vec<u32>,
    /// The core that this process was bound to.
    pub core: Option<u32>,
    /// Other ranks were bound to it too: whoever waits must give it up.
    pub core_shared: bool,
    /// Settings that the launcher passes on, by name.
    pub settings: BTreeMap<String, String>,
    /// Where the other hosts reach this one; none: each process finds out.
    #[serde(default)]
    pub ip: Option<IpAddr>,
    /// The host port that this process was given, or why it has none; none
    /// where nobody asked for one.
    pub host_port: Option<Result<HostPortInfo, String>>,
    /// The host's ranks share a segment, whose descriptor comes along.
    pub(crate) shared: bool,
    /// So does the memory in which each holds a word as long as it lives.
    pub(crate) watched: bool,
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Membership {{ rank: {}, size: {}, job_id: {:#x}, .. }}",
            self.rank, self.size, self.job_id
        )
    }
}

/// What both sides compute to see that they hold the same key.
///
/// It tells nothing of the secret.
pub(crate) fn key_check(secret: &[u8; 32], job_id: u64, security: Security, suite: Suite) -> u64 {
    let info = [
        &b"ptl1chck"[..],
        &job_id.to_le_bytes(),
        &[security as u8, suite as u8],
    ];
    let check = derive(secret, &info.concat());
    let (check, _) = check.as_bytes().split_first_chunk().expect("32 bytes");
    u64::from_le_bytes(*check)
}

/// The answer to a greeting, but for the job's secret, which goes right behind
/// it in the same message. The segment's descriptor, if `shared`, the lives', if
/// `watched`, those of the host port, if there is one, and the first doorbells
/// go with it.
pub(crate) fn encode_membership(membership: &Membership) -> Vec<u8> {
    said(KIND_MEMBERSHIP, membership)
}

/// Reads such an answer and the secret behind it; none: it is something else.
pub(crate) fn decode_membership(bytes: &[u8]) -> Option<(Membership, &[u8; 32])> {
    let body = bytes.strip_prefix(&[KIND_MEMBERSHIP])?;
    let (body, secret) = body.split_last_chunk()?;
    Some((serde_json::from_slice(body).ok()?, secret))
}

/// The body of a message, not understood.
#[derive(Debug)]
pub(crate) struct Garbled;

fn json(message: &impl Serialize) -> Vec<u8> {
    said(KIND_JSON, message)
}

fn said(kind: u8, message: &impl Serialize) -> Vec<u8> {
    let mut bytes = vec![kind];
    serde_json::to_writer(&mut bytes, message).expect("plain data in memory");
    bytes
}

impl ToLauncher {
    pub(crate) fn encode(&self) -> Vec<u8> {
        json(self)
    }
}

impl ToRank {
    pub(crate) fn encode(&self) -> Vec<u8> {
        json(self)
    }
}

/// A rank's address and key check.
pub(crate) fn encode_join(address: &[u8; 64], check: u64) -> Vec<u8> {
    [&[KIND_JOIN][..], address, &check.to_le_bytes()].concat()
}

/// What a rank sent.
pub(crate) enum FromRank {
    Said(ToLauncher),
    Join { address: [u8; 64], check: u64 },
}

pub(crate) fn decode_from_rank(bytes: &[u8]) -> Result<FromRank, Garbled> {
    match bytes.split_first() {
        Some((&KIND_JSON, body)) => serde_json::from_slice(body)
            .map(FromRank::Said)
            .map_err(|_| Garbled),
        Some((&KIND_JOIN, body)) => {
            let (address, check) = body.split_first_chunk::<64>().ok_or(Garbled)?;
            let check = u64::from_le_bytes(check.try_into().map_err(|_| Garbled)?);
            Ok(FromRank::Join {
                address: *address,
                check,
            })
        }
        _ => Err(Garbled),
    }
}

/// A part of the table that begins with rank `first`.
pub(crate) fn encode_table(first: u32, peers: &[PeerInfo]) -> Vec<u8> {
    assert!(peers.len() <= RECORDS_MAX);
    encode_records(KIND_TABLE, first, peers)
}

/// A rank that is back, with its new entry in the table.
pub(crate) fn encode_back(rank: u32, peer: &PeerInfo) -> Vec<u8> {
    encode_records(KIND_BACK, rank, std::slice::from_ref(peer))
}

fn encode_records(kind: u8, first: u32, peers: &[PeerInfo]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend(first.to_le_bytes());
    for peer in peers {
        bytes.extend(peer.address);
        bytes.extend(peer.pid.to_le_bytes());
        bytes.extend(peer.host_index.to_le_bytes());
        bytes.extend(peer.local_index.to_le_bytes());
        bytes.extend(peer.restarts.to_le_bytes());
        bytes.extend(peer.since.to_le_bytes());
    }
    bytes
}

/// What the launcher sent.
pub(crate) enum FromLauncher {
    Said(ToRank),
    Table { first: u32, peers: Vec<PeerInfo> },
    Back { rank: u32, peer: PeerInfo },
}

pub(crate) fn decode_from_launcher(bytes: &[u8]) -> Result<FromLauncher, Garbled> {
    match bytes.split_first() {
        Some((&KIND_JSON, body)) => serde_json::from_slice(body)
            .map(FromLauncher::Said)
            .map_err(|_| Garbled),
        Some((&KIND_TABLE, body)) => {
            let (first, peers) = records(body).ok_or(Garbled)?;
            Ok(FromLauncher::Table { first, peers })
        }
        Some((&KIND_BACK, body)) => match records(body) {
            Some((rank, peers)) if peers.len() == 1 => Ok(FromLauncher::Back {
                rank,
                peer: peers[0],
            }),
            _ => Err(Garbled),
        },
        _ => Err(Garbled),
    }
}

/// A rank, and the records of those from it on.
fn records(body: &[u8]) -> Option<(u32, Vec<PeerInfo>)> {
    let (first, records) = body.split_first_chunk()?;
    if records.len() > RECORDS_MAX * RECORD_BYTES {
        return None;
    }
    let peers = records
        .chunks(RECORD_BYTES)
        .map(record)
        .collect::<Option<_>>()?;
    Some((u32::from_le_bytes(*first), peers))
}

fn record(bytes: &[u8]) -> Option<PeerInfo> {
    let (address, rest) = bytes.split_first_chunk::<64>()?;
    let (pid, rest) = rest.split_first_chunk()?;
    let (host, rest) = rest.split_first_chunk()?;
    let (local, rest) = rest.split_first_chunk()?;
    let (restarts, rest) = rest.split_first_chunk()?;
    Some(PeerInfo {
        address: *address,
        pid: u32::from_le_bytes(*pid),
        host_index: u16::from_le_bytes(*host),
        local_index: u16::from_le_bytes(*local),
        restarts: u32::from_le_bytes(*restarts),
        since: u32::from_le_bytes(rest.try_into().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: u8) -> PeerInfo {
        PeerInfo {
            address: [n; 64],
            pid: 70_000 + u32::from(n),
            host_index: 300,
            local_index: 2,
            restarts: 70_001,
            since: 70_002,
        }
    }

    #[test]
    fn a_table_travels() {
        let peers = [peer(1), peer(2), peer(3)];
        let bytes = encode_table(9, &peers);
        let Ok(FromLauncher::Table {
            first: 9,
            peers: got,
        }) = decode_from_launcher(&bytes)
        else {
            panic!("not the table")
        };
        assert_eq!(got, peers);
        let Ok(FromLauncher::Back {
            rank: 9,
            peer: back,
        }) = decode_from_launcher(&encode_back(9, &peer(4)))
        else {
            panic!("not the one that is back")
        };
        assert_eq!(back, peer(4));
        let full = encode_table(0, &vec![peer(7); RECORDS_MAX]);
        assert!(full.len() <= MESSAGE_BYTES_MAX);
    }

    #[test]
    fn a_join_travels() {
        let bytes = encode_join(&[5; 64], 77);
        assert!(matches!(
            decode_from_rank(&bytes),
            Ok(FromRank::Join {
                address: [5, ..],
                check: 77
            })
        ));
    }

    #[test]
    fn lanes_are_told_by_runs() {
        let each = [(0, "shm"), (1, "shm"), (3, "udp"), (4, "udp"), (5, "shm")];
        let lanes = Lane::gather(each.map(|(r, l)| (r, l.to_owned(), "so".to_owned())));
        let told: Vec<String> = lanes.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["shm to 0-1, 5 (so)", "udp to 3-4 (so)"]);
    }

    #[test]
    fn why_a_rank_was_given_up_travels() {
        for why in [
            GaveUp::Silent,
            GaveUp::Corrupt,
            GaveUp::NotSent { errno: 101 },
            GaveUp::NotReceived { errno: 1 },
        ] {
            let ranks = vec![(3, 1)];
            let bytes = ToLauncher::GaveUp { ranks, why }.encode();
            let Ok(FromRank::Said(ToLauncher::GaveUp { why: got, .. })) = decode_from_rank(&bytes)
            else {
                panic!("{bytes:?}")
            };
            assert_eq!(got, why);
            let is_ours = matches!(why, GaveUp::NotSent { .. } | GaveUp::NotReceived { .. });
            assert_eq!(why.refused(0, 3).is_some(), is_ours);
        }
        let text = GaveUp::NotSent { errno: 101 }.refused(0, 3).unwrap();
        assert!(
            text.starts_with("rank 0 cannot send packets to rank 3: "),
            "{text}"
        );
        assert!(text.contains("(os error 101)"), "{text}");
    }

    #[test]
    fn cut_or_foreign_bytes_are_garbled() {
        let table = encode_table(0, &[peer(1)]);
        assert!(decode_from_launcher(&table[..table.len() - 1]).is_err());
        let join = encode_join(&[5; 64], 77);
        assert!(decode_from_rank(&join[..join.len() - 1]).is_err());
        // Who passes it on could not.
        let many = encode_records(KIND_TABLE, 0, &vec![peer(1); RECORDS_MAX + 1]);
        assert!(decode_from_launcher(&many).is_err());
        let mut two = encode_table(0, &[peer(1), peer(2)]);
        two[0] = KIND_BACK;
        for bytes in [&b""[..], b"J", b"J{}", b"X", b"T12", b"B1234", &two] {
            assert!(decode_from_launcher(bytes).is_err());
            assert!(decode_from_rank(bytes).is_err());
        }
    }

    #[test]
    fn the_key_check_sees_every_part() {
        let base = key_check(&[1; 32], 2, Security::Encrypt, Suite::Aes128Gcm);
        assert_ne!(
            base,
            key_check(&[3; 32], 2, Security::Encrypt, Suite::Aes128Gcm)
        );
        assert_ne!(
            base,
            key_check(&[1; 32], 4, Security::Encrypt, Suite::Aes128Gcm)
        );
        assert_ne!(
            base,
            key_check(&[1; 32], 2, Security::None, Suite::Aes128Gcm)
        );
        assert_ne!(
            base,
            key_check(&[1; 32], 2, Security::Encrypt, Suite::ChaCha20Poly1305)
        );
    }

    #[test]
    fn a_welcome_travels_with_the_secret_behind_it() {
        let membership = Membership {
            rank: 1,
            size: 2,
            job_id: 3,
            security: Security::Encrypt,
            suite: Suite::Aes128Gcm,
            link: LinkChoice::Auto,
            congestion: Congestion::Auto,
            life: 4,
            restarts: 0,
            host_index: 0,
            hosts: 1,
            local_index: 1,
            partitions: vec![0, 1],
            local_ranks: vec![0, 1],
            core: None,
            core_shared: false,
            settings: BTreeMap::new(),
            ip: Some([10, 1, 2, 3].into()),
            host_port: None,
            shared: false,
            watched: true,
        };
        let mut bytes = encode_membership(&membership);
        assert!(decode_membership(&bytes).is_none());
        bytes.extend([0xab; 32]);
        assert_eq!(decode_membership(&bytes), Some((membership, &[0xab; 32])));
        assert!(decode_from_launcher(&bytes).is_err());
    }
}
