//! Messages between launcher and rank, encoded by [`codec`].

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::IpAddr;

use portolan_seal::derive;
use portolan_sys::socket::MESSAGE_BYTES_MAX;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::codec;
use crate::error::Refusal;
use crate::host_port::HostPortInfo;
use crate::job::PeerInfo;

/// Version of the messages between launcher, agent and rank.
pub(crate) const BOOT_VERSION: u32 = 11;

/// The kind of the answer to a greeting, a [`Membership`].
const KIND_MEMBERSHIP: u8 = b'W';

/// Longest record of a peer in the table, bytes: address, process id, host,
/// index, restarts, number of the last return.
const RECORD_BYTES_MAX: usize = 1 + 64 + 5 + 3 + 3 + 5 + 5;
/// Most records of the table in one message, behind 10 bytes.
pub(crate) const RECORDS_MAX: usize = (MESSAGE_BYTES_MAX - 10) / RECORD_BYTES_MAX;

/// Versions that must agree in a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// Release of Portolan.
    pub portolan: String,
    /// Version of the messages between launcher and rank.
    pub boot: u32,
    /// Version of the packets.
    pub wire: u32,
}

impl Versions {
    /// Returns the versions that this code was built with.
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
    #[serde(rename = "aes-128-gcm")]
    Aes128Gcm,
    /// ChaCha20-Poly1305, for hosts without AES instructions.
    #[serde(rename = "chacha20-poly1305")]
    ChaCha20Poly1305,
    /// AEGIS-128L.
    #[default]
    #[serde(rename = "aegis-128l")]
    Aegis128L,
}

impl Suite {
    /// Every suite, by its number in cards.
    pub const ALL: [Self; 3] = [Self::Aes128Gcm, Self::ChaCha20Poly1305, Self::Aegis128L];

    /// The suite's name, in settings and in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "aes-128-gcm",
            Self::ChaCha20Poly1305 => "chacha20-poly1305",
            Self::Aegis128L => "aegis-128l",
        }
    }

    /// Whether this host has instructions for it. Without them AEGIS would go on in software,
    /// slowly and not in constant time.
    #[must_use]
    pub fn is_supported(self) -> bool {
        Instructions::of_host().suffice_for(self)
    }
}

/// Instructions that suites need.
#[derive(Clone, Copy, Debug)]
struct Instructions {
    aes: bool,
    pclmulqdq: bool,
    avx: bool,
}

impl Instructions {
    /// Those of this host. On Arm only `aes` decides.
    fn of_host() -> Self {
        #[cfg(target_arch = "x86_64")]
        use std::arch::is_x86_feature_detected as has;
        #[cfg(target_arch = "x86_64")]
        let found = Self {
            aes: has!("aes"),
            pclmulqdq: has!("pclmulqdq"),
            avx: has!("avx"),
        };
        #[cfg(target_arch = "aarch64")]
        let found = Self {
            aes: std::arch::is_aarch64_feature_detected!("aes"),
            pclmulqdq: true,
            avx: true,
        };
        found
    }

    /// Whether a suite needs no others.
    const fn suffice_for(self, suite: Suite) -> bool {
        match suite {
            Suite::ChaCha20Poly1305 => true,
            Suite::Aes128Gcm => self.aes && self.pclmulqdq,
            Suite::Aegis128L => self.aes && self.avx,
        }
    }
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
    /// Not known: its host is lost.
    Lost,
    /// By `exec`, without leaving the job: the process is another program now.
    Replaced,
    /// Not known: the process was not the launcher's own child.
    Gone,
}

impl How {
    /// Converts a status of wait(2).
    pub(crate) fn of_status(status: u32) -> Self {
        match status & 0x7f {
            0 => Self::Exited((status >> 8 & 0xff).cast_signed()),
            signal => Self::Killed(signal.cast_signed()),
        }
    }

    /// Returns the exit code that a shell shows: the code, or 128 and the
    /// signal; 1 where neither is known.
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
    /// Reason, for the user to read.
    pub why: String,
    /// Receivers: first and last rank of each run of neighbours. Empty in the last entry of a rank
    /// that has an address: this names the address and why it was chosen.
    pub ranks: Vec<(u32, u32)>,
}

impl Lane {
    /// Groups the entries of all ranks by link and reason; they come by ascending rank.
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

    /// Entry for the address that is published to others.
    pub(crate) fn told(ip: IpAddr, why: String) -> Self {
        Self {
            link: format!("others are told {ip}"),
            why,
            ranks: Vec::new(),
        }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.link)?;
        if !self.ranks.is_empty() {
            f.write_str(" to")?;
        }
        for (i, (first, last)) in self.ranks.iter().enumerate() {
            write!(f, "{} {first}", if i == 0 { "" } else { "," })?;
            if first != last {
                write!(f, "-{last}")?;
            }
        }
        write!(f, " ({})", self.why)
    }
}

/// A table of numbers in a rank's memory, for the launcher or agent to read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// The table's name.
    pub name: String,
    /// Address in the rank's memory.
    pub address: u64,
    /// Distance between two entries, bytes.
    pub stride: u32,
    /// Number of entries.
    pub count: u32,
    /// The numbers in an entry.
    pub fields: Vec<Field>,
}

/// A number in the entries of a [`Table`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// The number's name.
    pub name: String,
    /// Offset in the entry, bytes.
    pub offset: u32,
    /// Length: 1, 2, 4 or 8 bytes.
    pub bytes: u8,
    /// Idle value: an entry is left out if each field that has one holds it.
    pub idle: Option<u64>,
}

/// Why a rank has given up another whose end was not reported to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GaveUp {
    /// No answer while something waited for it.
    Silent,
    /// No answer, and the rank that waited got too little of its cores to hear one.
    Starved,
    /// What it wrote to shared memory is corrupt.
    Corrupt,
    /// Not heard, and the kernel refused the packets to it.
    NotSent {
        /// The kernel's error.
        errno: i32,
    },
    /// Not heard, and the kernel refused to receive packets, from any sender.
    NotReceived {
        /// The kernel's error.
        errno: i32,
    },
}

impl GaveUp {
    /// Returns why `rank` has given up `other` through no fault of that one,
    /// for people to read; none where it may be at fault.
    pub(crate) fn refused(self, rank: u32, other: u32) -> Option<String> {
        let error = io::Error::from_raw_os_error;
        match self {
            Self::Silent | Self::Starved | Self::Corrupt => None,
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
    /// First message. Launchers of version 10 and before believed the process id; now the kernel
    /// reports it.
    Hello { versions: Versions, pid: u32 },
    /// Address of the rank's endpoint, and its key check.
    Join {
        #[serde(with = "codec::bytes")]
        address: [u8; 64],
        check: u64,
    },
    /// Links that the rank's open endpoint uses.
    Lanes(Vec<Lane>),
    /// Counters and state of the rank's open endpoint.
    Tables(Vec<Table>),
    /// Ranks that the sender has given up, with the restarts of each by then.
    GaveUp { ranks: Vec<(u32, u32)>, why: GaveUp },
    /// Answer to [`ToRank::Doubted`]: how long ago something was heard of this rank.
    Heard { rank: u32, ago_ms: u64 },
    /// The rank closed its endpoint in good order.
    Leave,
    /// Asks to end the job with this code.
    Abort { code: u8 },
}

/// From launcher or agent to rank.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToRank {
    /// Refuses the greeting or the key check.
    Refused(Refusal),
    /// First message of the agent of a host of guests. Carries the futex words'
    /// descriptor, if there is one.
    Watched,
    /// Carries more doorbells.
    Doorbells,
    /// The host port that the rank has mapped could not be bound: it goes on
    /// without. Sent before its table.
    NotBound { why: String },
    /// A rank has ended, or is about to.
    Died { rank: u32, how: How },
    /// Rank `by` on this host has given up the receiver: the memory that they
    /// share is corrupt.
    GivenUp { by: u32 },
    /// A rank's process is stopped: its silence is no sign of death. Repeated
    /// as long as it is.
    Stopped { rank: u32 },
    /// An agent has heard nothing of the host of these ranks for a while, and
    /// asks whether the receiver has heard of one.
    Doubted { ranks: Vec<u32> },
    /// A rank has closed its endpoint in good order. Sent to ranks that were
    /// started again: it may not know them.
    Left { rank: u32 },
    /// The job is being ended.
    Abort { why: String },
    /// A part of the table that begins with rank `first`.
    Table {
        first: u32,
        #[serde(deserialize_with = "records")]
        peers: Vec<PeerInfo>,
    },
    /// A rank is back, with its new entry in the table.
    Back { rank: u32, peer: PeerInfo },
}

/// Deserializes a part of the table; refuses more than fits one message.
pub(crate) fn records<'a, D: Deserializer<'a>>(from: D) -> Result<Vec<PeerInfo>, D::Error> {
    let peers = Vec::deserialize(from)?;
    if peers.len() > RECORDS_MAX {
        return Err(D::Error::invalid_length(
            peers.len(),
            &"a part of the table",
        ));
    }
    Ok(peers)
}

/// A process's place in its job, and what all of the job agree on.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// This process's number, below `size`.
    pub rank: u32,
    /// Number of processes.
    pub size: u32,
    /// The job's id: random, the same for all ranks; not secret.
    pub job_id: u64,
    /// Whether packets are sealed.
    pub security: Security,
    /// The cipher suite.
    pub suite: Suite,
    /// Which link to use.
    pub link: LinkChoice,
    /// How to share the network.
    pub congestion: Congestion,
    /// Random number that names this incarnation.
    pub life: u64,
    /// Number of restarts of this rank.
    pub restarts: u32,
    /// This host's number in the job.
    pub host_index: u16,
    /// Number of hosts.
    pub hosts: u16,
    /// This process's number among the ranks of its host.
    pub local_index: u16,
    /// The partition of each host; empty where all are in one. Hosts of
    /// different partitions share no secret.
    pub partitions: Vec<u16>,
    /// The ranks of this host in order of their local index.
    pub local_ranks: Vec<u32>,
    /// The core that this process was bound to.
    pub core: Option<u32>,
    /// Other ranks were bound to the core too: a process that waits must yield it.
    pub core_shared: bool,
    /// Settings that the launcher passes on, by name.
    pub settings: BTreeMap<String, String>,
    /// Address by which the other hosts reach this one; none: each process finds out.
    pub ip: Option<IpAddr>,
    /// The host port that this process was given, or why it has none; none
    /// where the job wants none.
    pub host_port: Option<Result<HostPortInfo, String>>,
    /// The host's ranks share a segment, whose descriptor comes with this.
    pub(crate) shared: bool,
    /// The descriptor of the ranks' futex words comes with this too.
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

/// Computes what both sides compare to see that they hold the same key.
///
/// Reveals nothing of the secret.
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

/// Encodes the answer to a greeting, without the job's secret, which goes right
/// behind it in the same message. Its descriptors: the segment's, if `shared`,
/// the futex words', if `watched`, the host port's, if there is one, and the
/// first doorbells.
pub(crate) fn encode_membership(membership: &Membership) -> Vec<u8> {
    codec::pack(&[KIND_MEMBERSHIP], membership)
}

/// Decodes the answer to a greeting and the secret behind it; none if it is something else.
pub(crate) fn decode_membership(bytes: &[u8]) -> Option<(Membership, &[u8; 32])> {
    let body = bytes.strip_prefix(&[KIND_MEMBERSHIP])?;
    let (body, secret) = body.split_last_chunk()?;
    Some((codec::unpack(body)?, secret))
}

impl ToLauncher {
    pub(crate) fn encode(&self) -> Vec<u8> {
        codec::encode(self, matches!(self, Self::Hello { .. }))
    }
}

impl ToRank {
    pub(crate) fn encode(&self) -> Vec<u8> {
        codec::encode(self, matches!(self, Self::Refused(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::codec::decode;

    fn peer(n: u8) -> PeerInfo {
        PeerInfo {
            address: [n; 64],
            pid: u32::MAX - u32::from(n),
            host_index: u16::MAX,
            local_index: 32_768,
            restarts: u32::MAX,
            since: u32::MAX - 1,
        }
    }

    fn table(first: u32, peers: Vec<PeerInfo>) -> Vec<u8> {
        ToRank::Table { first, peers }.encode()
    }

    #[test]
    fn a_table_travels() {
        let sent = vec![peer(1), peer(2), peer(3)];
        let Some(ToRank::Table { first: 9, peers }) = decode(&table(9, sent.clone())) else {
            panic!("not the table")
        };
        assert_eq!(peers, sent);
        let back = ToRank::Back {
            rank: 9,
            peer: peer(4),
        };
        let Some(ToRank::Back { rank: 9, peer: got }) = decode(&back.encode()) else {
            panic!("not the one that is back")
        };
        assert_eq!(got, peer(4));
        let full = table(u32::MAX, vec![peer(7); RECORDS_MAX]);
        assert!(full.len() <= MESSAGE_BYTES_MAX);
        // More could not be passed on in one message.
        let more = table(u32::MAX, vec![peer(7); RECORDS_MAX + 1]);
        assert!(decode::<ToRank>(&more).is_none());
    }

    #[test]
    fn greetings_and_refusals_are_read_by_every_version() {
        let versions = Versions {
            portolan: "1.2.3".to_owned(),
            boot: 8,
            wire: 1,
        };
        let hello = ToLauncher::Hello { versions, pid: 7 }.encode();
        // The format up to version 8; later ones may add fields.
        let text = r#"J{"Hello":{"versions":{"portolan":"1.2.3","boot":8,"wire":1},"pid":7}}"#;
        assert_eq!(hello, text.as_bytes());
        let more = text.replace("}}", r#","more":[]}}"#);
        let Some(ToLauncher::Hello { versions, .. }) = decode(more.as_bytes()) else {
            panic!("not a greeting")
        };
        let launcher = Versions::ours();
        let refused = ToRank::Refused(Refusal::Version {
            launcher,
            process: versions,
        });
        let refused = String::from_utf8(refused.encode()).unwrap();
        let (told, process) = refused.split_once(r#""process":"#).unwrap();
        assert!(told.starts_with(r#"J{"Refused":{"Version":{"launcher":{"portolan":"#));
        assert_eq!(process, r#"{"portolan":"1.2.3","boot":8,"wire":1}}}}"#);
    }

    #[test]
    fn a_suite_needs_its_instructions() {
        // aes, pclmulqdq, avx; then AES-128-GCM, AEGIS-128L.
        let cases = [
            ([false, false, false], [false, false]),
            ([false, false, true], [false, false]),
            ([false, true, false], [false, false]),
            ([false, true, true], [false, false]),
            ([true, false, false], [false, false]),
            ([true, false, true], [false, true]),
            ([true, true, false], [true, false]),
            ([true, true, true], [true, true]),
        ];
        for ([aes, pclmulqdq, avx], can) in cases {
            let host = Instructions {
                aes,
                pclmulqdq,
                avx,
            };
            let suites = [Suite::Aes128Gcm, Suite::Aegis128L];
            assert_eq!(suites.map(|it| host.suffice_for(it)), can, "{host:?}");
            assert!(host.suffice_for(Suite::ChaCha20Poly1305));
        }
    }

    #[test]
    fn lanes_are_told_by_runs() {
        let each = [(0, "shm"), (1, "shm"), (3, "udp"), (4, "udp"), (5, "shm")];
        let lanes = Lane::gather(each.map(|(r, l)| (r, l.to_owned(), "so".to_owned())));
        let told: Vec<String> = lanes.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["shm to 0-1, 5 (so)", "udp to 3-4 (so)"]);
        let own = Lane::told([10, 0, 0, 1].into(), "so".to_owned());
        assert_eq!(own.to_string(), "others are told 10.0.0.1 (so)");
    }

    #[test]
    fn why_a_rank_was_given_up_travels() {
        for why in [
            GaveUp::Silent,
            GaveUp::Starved,
            GaveUp::Corrupt,
            GaveUp::NotSent { errno: 101 },
            GaveUp::NotReceived { errno: 1 },
        ] {
            let ranks = vec![(3, 1)];
            let bytes = ToLauncher::GaveUp { ranks, why }.encode();
            let Some(ToLauncher::GaveUp { why: got, .. }) = decode(&bytes) else {
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
    fn cut_longer_or_foreign_bytes_are_none() {
        let (address, check) = ([5; 64], 77);
        let join = ToLauncher::Join { address, check }.encode();
        assert!(matches!(
            decode(&join),
            Some(ToLauncher::Join {
                address: [5, ..],
                check: 77
            })
        ));
        let table = table(0, vec![peer(1)]);
        for end in 0..table.len().min(join.len()) {
            assert!(decode::<ToRank>(&table[..end]).is_none());
            assert!(decode::<ToLauncher>(&join[..end]).is_none());
        }
        let longer =
            [&table[..], &join, b"J", b"J{}", b"X", b"P\xff"].map(|it| [it, &[0]].concat());
        for bytes in longer {
            assert!(decode::<ToRank>(&bytes).is_none());
            assert!(decode::<ToLauncher>(&bytes).is_none());
        }
        // Text that is not UTF-8, and a count beyond what the bytes hold.
        let why = "no".to_owned();
        let mut abort = ToRank::Abort { why }.encode();
        *abort.last_mut().unwrap() = 0xff;
        assert!(decode::<ToRank>(&abort).is_none());
        let ranks = Vec::new();
        let mut doubted = ToRank::Doubted { ranks }.encode();
        doubted.pop();
        doubted.extend([0xff, 0xff, 0xff, 0xff, 0x0f, 1]);
        assert!(decode::<ToRank>(&doubted).is_none());
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
        assert!(decode::<ToRank>(&bytes).is_none());
    }
}
