//! The protocol between launcher and agent, over a stream of bytes.
//!
//! The agent begins with [`PREAMBLE`]. Then both send [frames](crate::frame),
//! whose content [`codec`](crate::codec) encodes: the greeting so that other
//! versions can read it. Frames that hold the job's secret, or may, are put
//! together from raw parts: a codec would leave copies of it in memory.

use std::ffi::OsString;
use std::rc::Rc;
use std::time::Duration;

use portolan_sys::memory::Hidden;
use serde::{Deserialize, Serialize};

use super::plan::{Greeting, HostPlan, Task};
use crate::codec::{self, KIND_JSON, KIND_PACKED, pack, unpack};
use crate::control::{Answer, HostView, Look, Request};
use crate::error::Refusal;
pub(super) use crate::frame::{Frames, Garbled, Outgoing, TASK_BYTES_MAX};
use crate::frame::{frame, json, packed};
use crate::job::PeerInfo;
use crate::message::{GaveUp, How, Lane, records};

/// An agent's first bytes. Anything else is not an agent's, but mostly from the
/// login shell's start files.
pub(super) const PREAMBLE: [u8; 8] = *b"\0PTLNAG1";

/// Most of a rank's output or input that one frame carries, bytes.
pub(super) const STREAM_BYTES_MAX: usize = 64 << 10;

/// Interval of heartbeats between launcher and agent.
pub(super) const BEAT_EVERY: Duration = Duration::from_millis(500);

const KIND_START: u8 = b'S';
const KIND_RELAY: u8 = b'R';

/// From the job to one of its hosts.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    Said(ToHost),
    /// A part of the table, for all ranks.
    Table {
        first: u32,
        #[serde(deserialize_with = "records")]
        peers: Vec<PeerInfo>,
    },
    /// A part of the table, for one rank that was started again.
    TableFor {
        to: u32,
        first: u32,
        #[serde(deserialize_with = "records")]
        peers: Vec<PeerInfo>,
    },
    /// For all ranks that have joined: the new entry of a rank that is back.
    Back {
        rank: u32,
        peer: PeerInfo,
    },
    /// For rank 0's standard input.
    Input(#[serde(with = "codec::bytes")] Vec<u8>),
    /// For this agent and all that are reached through it: a frame's content.
    All(#[serde(with = "codec::bytes")] Vec<u8>),
    /// For the agent of a host that this one reaches: whole frames.
    #[serde(skip)]
    Relay {
        host: u16,
        bytes: Vec<u8>,
    },
    /// To an agent, once: start these ranks, which share this secret.
    #[serde(skip)]
    Start {
        secret: Rc<Hidden<32>>,
        plan: Box<HostPlan>,
        task: Task,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToHost {
    /// To an agent: connect to the agent of this host, or cut that
    /// connection.
    Reach {
        host: u16,
        command: Vec<OsString>,
    },
    Cut {
        host: u16,
    },
    /// A rank has ended, or is about to; ignored by its own host.
    Died {
        rank: u32,
        how: How,
    },
    /// A rank is stopped; ignored by its own host. Repeated as long as it is.
    Stopped {
        rank: u32,
    },
    /// A rank has left the job in good order.
    Left {
        rank: u32,
    },
    /// Start a rank that began on a host which has left the job.
    Restart {
        rank: u32,
        restarts: u32,
    },
    /// To a rank that was started again, before its table: the ranks that are
    /// dead, and those that have left (no reason).
    Gone {
        to: u32,
        gone: Vec<(u32, Option<How>)>,
    },
    /// Heartbeat to an agent.
    Beat,
    /// The job is being ended.
    Abort {
        why: String,
    },
    /// Ask all ranks that run to end, or kill them.
    Terminate,
    Kill,
    /// Kill this rank.
    KillRank {
        rank: u32,
    },
    /// No more input comes.
    InputEnd,
    /// Bytes of output that have been written since the last such order.
    Taken {
        bytes: u64,
    },
    /// Send a view of your ranks.
    Look {
        ticket: u64,
        look: Look,
    },
    /// Answer to an agent's [`FromHost::Asked`].
    Answered {
        ticket: u64,
        answer: Answer,
    },
    /// The job is over; the agent may end.
    Farewell,
}

/// From a host to its job.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Report {
    Said(FromHost),
    /// A rank has sent its address.
    Joined {
        rank: u32,
        pid: u32,
        #[serde(with = "codec::bytes")]
        address: [u8; 64],
    },
    /// Output of a rank; empty at the end of the stream.
    Output {
        rank: u32,
        is_error: bool,
        #[serde(with = "codec::bytes")]
        bytes: Vec<u8>,
    },
    /// Bytes from the agent of a host that this one reaches.
    Relayed {
        host: u16,
        #[serde(with = "codec::bytes")]
        bytes: Vec<u8>,
    },
    /// Standard error of the program that reaches it.
    RelayErrors {
        host: u16,
        #[serde(with = "codec::bytes")]
        bytes: Vec<u8>,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromHost {
    /// An agent's first message.
    Hello(Greeting),
    /// No rank was started.
    Failed {
        code: u8,
        why: String,
    },
    Started {
        rank: u32,
        pid: u32,
        local_index: u16,
        core: Option<u32>,
    },
    /// A rank that was to be started again could not be.
    NotStarted {
        rank: u32,
        why: String,
    },
    /// The rank has closed its endpoint in good order.
    Left {
        rank: u32,
    },
    Lanes {
        rank: u32,
        lanes: Vec<Lane>,
    },
    /// The rank was refused, and was sent the reason.
    Refused {
        rank: u32,
        why: Refusal,
    },
    /// A rank asks to end the job.
    AbortAsked {
        rank: u32,
        code: u8,
    },
    /// Ranks that a rank has given up, with the restarts of each by then.
    GaveUp {
        rank: u32,
        ranks: Vec<(u32, u32)>,
        why: GaveUp,
    },
    /// A rank has sent a malformed message.
    Garbled {
        rank: u32,
    },
    /// A rank is about to end, which may take long if it is large. Its
    /// neighbours on the host were notified.
    Dying {
        rank: u32,
        how: How,
    },
    /// A rank is stopped; its neighbours were notified. Repeated as long as it is.
    Stopped {
        rank: u32,
    },
    /// A rank is stopped for longer than it may be. Repeated as long as it is.
    Overdue {
        rank: u32,
    },
    /// Heartbeat of an agent.
    Beat,
    /// A rank has ended; its neighbours on the host were notified.
    Ended {
        rank: u32,
        pid: u32,
        how: How,
        left: bool,
    },
    /// Bytes of input that rank 0 has taken since the last such report.
    InputTaken {
        bytes: u64,
    },
    /// The connection to a host ended; the status of its program, wait(2).
    RelayEnded {
        host: u16,
        status: Option<i32>,
    },
    /// Answer to [`ToHost::Look`].
    Seen {
        ticket: u64,
        view: HostView,
    },
    /// A process on the host sends the job a request.
    Asked {
        ticket: u64,
        request: Request,
    },
    /// All ranks have ended and all of their output was reported.
    Drained,
}

impl FromHost {
    /// Returns the rank that the report is about.
    pub fn rank(&self) -> Option<u32> {
        match self {
            Self::Started { rank, .. }
            | Self::NotStarted { rank, .. }
            | Self::Left { rank }
            | Self::Lanes { rank, .. }
            | Self::Refused { rank, .. }
            | Self::AbortAsked { rank, .. }
            | Self::GaveUp { rank, .. }
            | Self::Garbled { rank }
            | Self::Dying { rank, .. }
            | Self::Stopped { rank }
            | Self::Overdue { rank }
            | Self::Ended { rank, .. } => Some(*rank),
            Self::Hello(_)
            | Self::Failed { .. }
            | Self::InputTaken { .. }
            | Self::RelayEnded { .. }
            | Self::Beat
            | Self::Seen { .. }
            | Self::Asked { .. }
            | Self::Drained => None,
        }
    }
}

impl Order {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Start { secret, plan, task } => {
                let what = pack(&[], &(plan, task));
                frame(KIND_START, &[&secret[..], &what])
            }
            Self::Relay { host, bytes } => relayed(*host, bytes),
            order => packed(order),
        }
    }

    /// Reads the content of a frame.
    pub fn decode(content: &[u8]) -> Result<Self, Garbled> {
        let (&kind, body) = content.split_first().ok_or(Garbled::Length(0))?;
        let order = match kind {
            KIND_START => Self::start(body),
            KIND_RELAY => body.split_first_chunk().map(|(host, bytes)| Self::Relay {
                host: u16::from_le_bytes(*host),
                bytes: bytes.to_vec(),
            }),
            KIND_PACKED => unpack(body),
            _ => None,
        };
        order.ok_or(Garbled::Body(kind))
    }

    fn start(body: &[u8]) -> Option<Self> {
        let (secret, what) = body.split_first_chunk()?;
        let (plan, task) = unpack(what)?;
        let secret = Rc::new(Hidden::copy_of(secret).ok()?);
        Some(Self::Start { secret, plan, task })
    }
}

impl Report {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Said(greeting @ FromHost::Hello(_)) => json(greeting),
            report => packed(report),
        }
    }

    /// Reads the content of a frame.
    pub fn decode(content: &[u8]) -> Result<Self, Garbled> {
        let &kind = content.first().ok_or(Garbled::Length(0))?;
        let report = match kind {
            KIND_JSON => codec::decode(content).map(Self::Said),
            _ => codec::decode(content),
        };
        report.ok_or(Garbled::Body(kind))
    }
}

/// Wraps frames for the agent of a host that another one reaches.
pub(super) fn relayed(host: u16, bytes: &[u8]) -> Vec<u8> {
    frame(KIND_RELAY, &[&host.to_le_bytes(), bytes])
}

/// Reads a stream in pieces of `piece` bytes. Checks that valid frames survive
/// encoding and decoding. Returns whether all of it was valid, from one of the
/// two sides.
#[cfg(feature = "properties")]
pub(crate) fn frames_travel(stream: &[u8], piece: usize) -> bool {
    fn read<T: std::fmt::Debug>(
        (stream, piece): (&[u8], usize),
        decode: impl Fn(&[u8]) -> Result<T, Garbled>,
        encode: impl Fn(&T) -> Vec<u8>,
    ) -> bool {
        let mut frames = Frames::default();
        for bytes in stream.chunks(piece) {
            frames.feed(bytes);
            loop {
                let said = match frames.next().and_then(|it| it.map(&decode).transpose()) {
                    Ok(Some(said)) => said,
                    Ok(None) => break,
                    Err(_) => return false,
                };
                let again = encode(&said);
                let heard = decode(&again[4..]).expect("what was understood before");
                assert_eq!(format!("{heard:?}"), format!("{said:?}"));
            }
        }
        !stream.is_empty() && frames.rest().is_empty()
    }
    let order = read((stream, piece), Order::decode, Order::encode);
    let report = read((stream, piece), Report::decode, Report::encode);
    order || report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FRAME_BYTES_MAX;
    use crate::{Congestion, LinkChoice, Security, Suite, Versions};

    fn plan() -> HostPlan {
        HostPlan {
            host_index: 1,
            hosts: 2,
            first: 2,
            ranks: 2,
            size: 4,
            spare: 0,
            job_id: 5,
            partitions: Vec::new(),
            security: Security::Encrypt,
            suite: Suite::Aes128Gcm,
            link: LinkChoice::Auto,
            congestion: Congestion::Auto,
            settings: [("a".to_owned(), "b".to_owned())].into(),
            host_silence: Duration::from_secs(2),
            stopped_limit: None,
            ip: Some("fd00::1".parse().unwrap()),
        }
    }

    fn orders() -> Vec<Order> {
        let peer = PeerInfo {
            address: [7; 64],
            pid: 70_000,
            host_index: 1,
            local_index: 0,
            restarts: 1,
            since: 2,
        };
        let task = Task {
            programs: vec![(2, vec!["prog".into(), "a b".into()])],
            others: Vec::new(),
            folder: "/tmp".into(),
            environment: vec![("X".into(), "y".into())],
            bind: true,
            input: true,
        };
        vec![
            Order::Start {
                secret: Rc::new(Hidden::copy_of(&[0xab; 32]).unwrap()),
                plan: Box::new(plan()),
                task,
            },
            Order::Table {
                first: 0,
                peers: vec![peer; 3],
            },
            Order::TableFor {
                to: 2,
                first: 1,
                peers: vec![peer; 2],
            },
            Order::Back { rank: 3, peer },
            Order::Said(ToHost::Gone {
                to: 2,
                gone: vec![(1, None), (3, Some(How::Lost))],
            }),
            Order::Input(b"line\n".to_vec()),
            Order::Relay {
                host: 300,
                bytes: b"frames".to_vec(),
            },
            Order::All(b"content".to_vec()),
            Order::Said(ToHost::Died {
                rank: 3,
                how: How::Killed(9),
            }),
            Order::Said(ToHost::Farewell),
        ]
    }

    fn reports() -> Vec<Report> {
        let greeting = Greeting {
            versions: Versions::ours(),
            aes: true,
            aegis: true,
            ip: None,
        };
        vec![
            Report::Said(FromHost::Hello(greeting)),
            Report::Joined {
                rank: 3,
                pid: 70_000,
                address: [9; 64],
            },
            Report::Output {
                rank: 2,
                is_error: true,
                bytes: b"text".to_vec(),
            },
            Report::Relayed {
                host: 300,
                bytes: b"frames".to_vec(),
            },
            Report::RelayErrors {
                host: 1,
                bytes: b"ssh: no".to_vec(),
            },
            Report::Said(FromHost::Ended {
                rank: 3,
                pid: 1,
                how: How::Exited(4),
                left: true,
            }),
        ]
    }

    /// Returns all that a stream holds, fed in pieces of `piece` bytes; the
    /// first error ends it.
    fn read<T>(
        stream: &[u8],
        piece: usize,
        decode: fn(&[u8]) -> Result<T, Garbled>,
    ) -> (Vec<T>, Option<Garbled>) {
        let mut frames = Frames::default();
        let mut all = Vec::new();
        for bytes in stream.chunks(piece) {
            frames.feed(bytes);
            loop {
                match frames.next().and_then(|c| c.map(decode).transpose()) {
                    Ok(Some(one)) => all.push(one),
                    Ok(None) => break,
                    Err(error) => return (all, Some(error)),
                }
            }
        }
        (all, None)
    }

    #[test]
    fn what_is_said_is_heard_however_it_is_cut() {
        let said: Vec<u8> = orders().iter().flat_map(Order::encode).collect();
        let told: Vec<u8> = reports().iter().flat_map(Report::encode).collect();
        for piece in [1, 2, 3, 7, 100, usize::MAX >> 1] {
            let (heard, error) = read(&said, piece, Order::decode);
            assert_eq!(error, None);
            let text = format!("{:?}", orders());
            assert_eq!(format!("{heard:?}"), text);
            assert!(!text.contains("171"), "the secret reaches a log: {text}");
            let (heard, error) = read(&told, piece, Report::decode);
            assert_eq!(error, None);
            assert_eq!(format!("{heard:?}"), format!("{:?}", reports()));
        }
    }

    #[test]
    fn an_endless_or_empty_frame_is_refused_before_it_is_held() {
        for length in [0, FRAME_BYTES_MAX as u32 + 1, u32::MAX] {
            let mut frames = Frames::default();
            frames.feed(&length.to_le_bytes());
            assert_eq!(frames.next(), Err(Garbled::Length(length)));
        }
        assert!(matches!(Order::decode(b"?"), Err(Garbled::Body(b'?'))));
        assert!(matches!(Report::decode(b"A12"), Err(Garbled::Body(b'A'))));
    }

    #[test]
    fn damaged_streams_end_in_an_error_or_in_other_words() {
        // A counter hashed, so that the run repeats.
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = || {
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (mixed ^ (mixed >> 27)) as usize
        };
        let said: Vec<u8> = orders().iter().flat_map(Order::encode).collect();
        let told: Vec<u8> = reports().iter().flat_map(Report::encode).collect();
        let mut refused = 0;
        for round in 0..4_000 {
            let mut stream = if round % 2 == 0 { &said } else { &told }.clone();
            for _ in 0..=random() % 4 {
                let at = random() % stream.len();
                match random() % 3 {
                    0 => stream[at] ^= 1 << (random() % 8),
                    1 => stream.truncate(at.max(1)),
                    _ => stream[at] = random() as u8,
                }
            }
            let piece = 1 + random() % 64;
            let error = if round % 2 == 0 {
                read(&stream, piece, Order::decode).1
            } else {
                read(&stream, piece, Report::decode).1
            };
            refused += usize::from(error.is_some());
        }
        assert!(refused > 1_000, "{refused} of 4,000");
    }
}
