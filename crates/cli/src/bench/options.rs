//! The command line of `portolan bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use portolan_boot::Suite;
use portolan_boot::launch::JobSpec;

use super::asleep::Wait;
use super::busy;
use super::control::Pattern;
use super::early_late::PushedBuffer;
use super::failure::{Context, Result};
use super::flood::Matched;
use super::idle;
use super::mpi;
use super::netpipe::Buffers;
use super::plan::Peer;
use super::pushpull::{Beside, Copies, Mode};
use super::slice::SLICE_MS_MAX;
use super::spray;
use super::summary::Setting;
use super::threads::Calling;
pub use crate::choices::Link;
use crate::choices::{Bytes, Congestion, Security, bytes};
use crate::lab::{Burst, Impairment};

const HOW: &str = "\
All systems are measured by the same processes, each pinned to a core, in turns (slices) of at
most 100 ms (fairness and outage: of seconds). A ratio is the median over the slices: in each, one
system's figure is divided by the other's. `noisy` means that the quartiles are more than 20 % of
the median apart: run the bench again.";

#[derive(Args)]
#[command(after_help = HOW)]
pub struct Arguments {
    #[command(subcommand)]
    pub bench: Bench,
}

/// Of the hidden command that is a rank.
#[derive(Args)]
pub struct RankArguments {
    /// Open the endpoint without a helper thread
    #[arg(long)]
    pub no_helper: bool,
    /// Which threads may call the endpoint
    #[arg(long, value_enum, default_value_t)]
    pub threads: Calling,
}

#[derive(Subcommand)]
pub enum Bench {
    /// One-way latency: half of a round trip
    Latency(Measure),
    /// Bandwidth, bytes per second; without --size, --loss and --harm over all sizes
    Bandwidth {
        #[command(flatten)]
        measure: Measure,
        /// Pattern of the messages [default: stream]
        #[arg(long, value_enum)]
        pattern: Option<Pattern>,
    },
    /// Message rate: small messages per second of one pair
    Rate(Measure),
    /// Distribution of latencies over a minute of each system
    Jitter(Measure),
    /// Effect of a receiver that makes no calls on the other ranks; 4 ranks
    Stalled {
        #[command(flatten)]
        common: Common,
        /// Message size, bytes
        #[arg(long, value_name = "BYTES", default_value_t = 8, value_parser = bytes)]
        size: usize,
    },
    /// Time of a barrier
    Barrier {
        #[command(flatten)]
        common: Common,
        /// Number of ranks
        #[arg(short = 'n', long, value_name = "N", default_value_t = 8)]
        ranks: u32,
        /// Peers to benchmark against in the same run, on this host
        #[arg(long, value_enum, value_name = "PEER[,PEER...]", value_delimiter = ',')]
        vs: Vec<mpi::Kind>,
    },
    /// Time of a token of 8 bytes around a ring of all ranks, which wait in blocking calls
    Ring(Ring),
    /// Many hosts of a lab send long messages to one
    ///
    /// Each sender has one message in flight. Its time runs from the send until the sender knows
    /// that it has arrived. If the lab has a rate, goodput is divided by the line's. The time of the
    /// slowest messages is divided by that of one when all senders have equal shares of the line.
    Incast(Flooding),
    /// Each host of a lab sends long messages to all others
    Alltoall(Flooding),
    /// Processor time of ranks that do nothing, in percent of a core
    Idle {
        #[command(flatten)]
        common: Common,
        /// Number of ranks
        #[arg(short = 'n', long, value_name = "N", default_value_t = 2)]
        ranks: u32,
        /// How long each state is measured, seconds; with --slice-ms, slices of that length instead
        #[arg(long, value_name = "S", default_value_t = idle::SECONDS, conflicts_with = "slice_ms")]
        seconds: f64,
    },
    /// Gain of a second network: streams over the first of a lab's networks and over all
    Networks {
        #[command(flatten)]
        common: Common,
        /// Message size, bytes, or with K or M
        #[arg(long, value_name = "BYTES", default_value = "1M")]
        size: Bytes,
    },
    /// Latency over shared memory with and without a connected peer on another host
    Lanes {
        #[command(flatten)]
        common: Common,
        /// Message size, bytes
        #[arg(long, value_name = "BYTES", default_value_t = 8, value_parser = bytes)]
        size: usize,
    },
    /// Shares of a line that a flow of Portolan and one of kernel TCP get
    Fairness(Fairness),
    /// Recovery of a stream after a cable was unplugged: how soon it goes on, and what is missing
    Outage(Outage),
    /// Effect of a flood of forged packets on good traffic
    Forged(Forged),
    /// Gap of messages when many are sent before any reply is read
    Spray {
        #[command(flatten)]
        common: Common,
        /// Largest number of messages; 1, 10, 100 and so on below it are measured too
        #[arg(long, value_name = "N", default_value_t = spray::MESSAGES)]
        messages: u64,
    },
    /// Overheads, latency and gap of the LogP model, and the half-power point
    Logp {
        #[command(flatten)]
        common: Common,
    },
    /// Time to match a receive and a message, by the number of others that wait
    Match(Matching),
    /// Messages of other MPIs through shared memory of this host, compared with memcpy
    ///
    /// NetPIPE, as Debian builds it for each MPI, sends messages of one size back and forth
    /// between two processes, each bound to a core. Only the MPI's shared memory is in use. The
    /// MPI's methods for that are tried in the first round with each size, and the fastest is
    /// measured. Half of the mean round trip is one way. memcpy is one copy by one core.
    /// With cold buffers NetPIPE (-I) walks through two areas of 10 MB in either process, and
    /// memcpy through two of 20 MB. That is more than a core's own caches hold, but a large shared
    /// cache may keep some of it. Each reports the best of three trials in a slice.
    Netpipe(Netpipe),
    /// Round trips of matched messages: gain of pushing, masking and overlapping
    ///
    /// Each size is compared with the same message to a port. Times are half of a round trip of
    /// blocking calls, the mean of the middle 80 % of a slice's (Push-Pull Messaging, section 3).
    /// With --vs, NetPIPE measures other MPIs through this host's shared memory, as `bench netpipe`
    /// does.
    Pushpull(Pushpull),
    /// Matched messages to an early receiver (it surely waits already) and to a late one
    ///
    /// Both ranks synchronize; then one calls at once, and the other computes first. Time runs from
    /// the later call until the receiver has the message: the mean of the middle 80 % of a slice's.
    EarlyLate(EarlyLate),
    /// Overlap: share of a matched message's time that is hidden behind computing
    ///
    /// A rank begins to send or to receive, computes as long as the message takes alone, and waits.
    /// The share is (message + computing - both) / the shorter of message and computing.
    Overlap {
        #[command(flatten)]
        common: Common,
        /// Message size, bytes, or with K or M
        #[arg(long, value_name = "BYTES", default_value = "1M")]
        size: Bytes,
        /// Peers to benchmark against in the same run: tcp
        #[arg(long, value_enum, value_name = "PEER", value_delimiter = ',')]
        vs: Vec<Peer>,
    },
    /// One-sided access: puts and gets, compared with messages of the same size to a port
    ///
    /// A put's time is half of a ping-pong in which each rank waits until the other's put shows
    /// in its memory; a get's is a round trip. Times are means of the middle 80 % of a slice's. The
    /// time to register memory of that size, and to end the registration, is measured too.
    Rma {
        #[command(flatten)]
        common: Common,
        /// Sizes of an access, 8 bytes or more, or with K or M; several are measured in turns
        #[arg(
            long = "size",
            value_name = "BYTES[,BYTES...]",
            value_delimiter = ',',
            default_value = "8,64K,1M"
        )]
        sizes: Vec<Bytes>,
    },
    /// Round trips of matched messages, by the endpoint's thread mode
    ///
    /// Each mode is a job of two ranks: one thread calls; any thread, one at a time; any thread at
    /// any time. In the last mode several threads of either rank also call at once, each with one of
    /// the other's.
    Threads(Threading),
    /// Memory of a peer, never talked to and quiet, and of an endpoint, in bytes
    Memory {
        /// Write the rows to this file, as JSON
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Time from starting a job until rank 0 has heard from every other rank
    Start(Start),
    /// Time from killing a rank until the others are notified
    Death(Death),
}

#[derive(Args)]
pub struct Ring {
    #[command(flatten)]
    pub common: Common,
    /// Number of ranks
    #[arg(short = 'n', long, value_name = "N", default_value_t = 6)]
    pub ranks: u32,
    /// Busy loops on each core beside the ranks
    #[arg(
        long,
        value_name = "LOOPS",
        default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(0..=busy::LOOPS_MAX)
    )]
    pub busy: u32,
    /// Peers to benchmark against in the same run: tcp
    #[arg(long, value_enum, value_name = "PEER", value_delimiter = ',')]
    pub vs: Vec<Peer>,
}

#[derive(Args)]
pub struct Flooding {
    #[command(flatten)]
    pub common: Common,
    /// Message size, bytes, or with K or M
    #[arg(long, value_name = "BYTES", default_value = "64K")]
    pub size: Bytes,
    /// Send matched messages instead of messages to ports [default of HOW: sync]
    #[arg(long, value_enum, value_name = "HOW", num_args = 0..=1, default_missing_value = "sync")]
    pub matched: Option<Matched>,
    /// Peers to benchmark against in the same run: tcp
    #[arg(long, value_enum, value_name = "PEER", value_delimiter = ',')]
    pub vs: Vec<Peer>,
}

#[derive(Args)]
pub struct Threading {
    #[command(flatten)]
    pub common: Common,
    /// Message size, bytes, or with K or M
    #[arg(long, value_name = "BYTES", default_value = "8")]
    pub size: Bytes,
    /// Threads of each rank that call at once
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub callers: u32,
}

#[derive(Args)]
pub struct Matching {
    /// Slices of each figure
    #[arg(long, value_name = "N", default_value_t = super::stats::SLICES_MIN, value_parser = slices)]
    pub slices: usize,
    /// Write rows and ratios to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Args)]
pub struct Netpipe {
    /// Message sizes, bytes, or with K or M; several are measured in turns
    #[arg(
        long = "size",
        value_name = "BYTES[,BYTES...]",
        value_delimiter = ',',
        default_value = "8,64K,1M"
    )]
    pub sizes: Vec<Bytes>,
    /// Which memory messages use
    #[arg(
        long,
        value_enum,
        value_name = "WHERE[,WHERE]",
        value_delimiter = ',',
        default_value = "warm,cold"
    )]
    pub buffers: Vec<Buffers>,
    /// The MPIs to measure
    #[arg(
        long,
        value_enum,
        value_name = "PEER[,PEER...]",
        value_delimiter = ',',
        default_value = "openmpi,mpich"
    )]
    pub vs: Vec<mpi::Kind>,
    /// Slices of each figure
    #[arg(long, value_name = "N", default_value_t = super::stats::SLICES_MIN, value_parser = slices)]
    pub slices: usize,
    /// Length of a slice, milliseconds, at most 100 [default: 100]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=SLICE_MS_MAX))]
    pub slice_ms: Option<u64>,
    /// Write rows and ratios to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Args)]
pub struct Pushpull {
    #[command(flatten)]
    pub common: Common,
    /// Message sizes, bytes, or with K or M; several are measured in turns [default: 8 to 1M; with
    /// --sweep 64K]
    #[arg(long = "size", value_name = "BYTES[,BYTES...]", value_delimiter = ',')]
    pub sizes: Vec<Bytes>,
    /// Which memory messages use
    #[arg(
        long,
        value_enum,
        value_name = "WHERE[,WHERE]",
        value_delimiter = ',',
        default_value = "warm"
    )]
    pub buffers: Vec<Buffers>,
    #[command(flatten)]
    pub thresholds: Thresholds,
    /// What is done while packets are in flight [default: all four if the network is used, else
    /// both]
    #[arg(long, value_enum, value_name = "MODE[,MODE...]", value_delimiter = ',')]
    pub modes: Vec<Mode>,
    /// Over shared memory: copy the same messages by these methods, whatever the settings say
    #[arg(
        long,
        value_enum,
        value_name = "WAY[,WAY...]",
        value_delimiter = ',',
        conflicts_with_all = ["whole", "first", "second", "modes"]
    )]
    pub copies: Vec<Copies>,
    /// Try many --first with many --second, and report the best of each size
    #[arg(long, conflicts_with_all = ["first", "second", "modes", "copies", "vs"])]
    pub sweep: bool,
    /// Peers to benchmark against in the same run, on this host
    #[arg(long, value_enum, value_name = "PEER[,PEER...]", value_delimiter = ',')]
    pub vs: Vec<Beside>,
}

/// Bytes that are pushed, if not as the endpoint's settings say.
#[derive(Args)]
pub struct Thresholds {
    /// Bytes of a longer message that leave with its offer (ready-to-send), BTP(1) [default: the
    /// link's]
    #[arg(long, value_name = "BYTES")]
    pub first: Option<Bytes>,
    /// Bytes that follow right after the offer, BTP(2) [default: the link's]
    #[arg(long, value_name = "BYTES")]
    pub second: Option<Bytes>,
    /// Longest message that is pushed whole (eager) [default: the link's; with --sweep 0]
    #[arg(long, value_name = "BYTES")]
    pub whole: Option<Bytes>,
}

#[derive(Args)]
pub struct EarlyLate {
    #[command(flatten)]
    pub common: Common,
    /// Message sizes, bytes, or with K or M; several are measured in turns
    #[arg(
        long = "size",
        value_name = "BYTES[,BYTES...]",
        value_delimiter = ',',
        default_value = "1,64,512,2K,4K,8K,16K,64K"
    )]
    pub sizes: Vec<Bytes>,
    /// How much a sender may push before the receiver asks: bytes, or default
    #[arg(
        long,
        value_name = "BYTES[,default]",
        value_delimiter = ',',
        default_value = "4K,default"
    )]
    pub pushed: Vec<PushedBuffer>,
    /// Thresholds of push-pull
    #[command(flatten)]
    pub thresholds: Thresholds,
}

#[derive(Args)]
pub struct Fairness {
    #[command(flatten)]
    pub common: Common,
    /// Message size, bytes, or with K or M
    #[arg(long, value_name = "BYTES", default_value = "64K")]
    pub size: Bytes,
    /// Measured time of a slice, milliseconds; before it the flows settle for half as long
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(20..=60_000))]
    pub span_ms: u64,
    /// Congestion control of the TCP flow, by the kernel's name, for example
    /// cubic or bbr [default: that of the kernel's settings]
    #[arg(long, value_name = "NAME")]
    pub tcp: Option<String>,
}

#[derive(Args)]
pub struct Outage {
    #[command(flatten)]
    pub common: Common,
    /// Message size, bytes, or with K or M
    #[arg(long, value_name = "BYTES", default_value = "1000")]
    pub size: Bytes,
    /// How long the receiver's cable is unplugged, milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=2_000))]
    pub down_ms: u64,
    /// Peers to benchmark against in the same run: tcp
    #[arg(long, value_enum, value_name = "PEER", value_delimiter = ',')]
    pub vs: Vec<Peer>,
}

#[derive(Args)]
pub struct Forged {
    #[command(flatten)]
    pub common: Common,
    /// Forged packets per second
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub per_second: u64,
    /// Size of a forged packet, bytes; connect packets always have 116
    #[arg(long, value_name = "BYTES", default_value_t = 100, value_parser = forged_size)]
    pub size: usize,
    /// Peers to benchmark against under the same flood: udp, tcp
    #[arg(long, value_enum, value_name = "PEER[,PEER...]", value_delimiter = ',')]
    pub vs: Vec<Peer>,
}

/// Reads the size of a forged packet: at least that of ours, in one piece.
fn forged_size(text: &str) -> std::result::Result<usize, String> {
    match bytes(text) {
        Ok(size @ 28..=1_232) => Ok(size),
        _ => Err("give 28 to 1232 bytes: a packet without its headers".to_owned()),
    }
}

#[derive(Args)]
pub struct Death {
    /// Memory of the killed rank, bytes, or with K, M or G
    #[arg(
        long,
        value_name = "BYTES[,BYTES...]",
        value_delimiter = ',',
        default_value = "1M,3G"
    )]
    pub memory: Vec<Bytes>,
    /// Run on two hosts of this lab
    #[arg(long, value_name = "NAME", conflicts_with = "hosts")]
    pub lab: Option<String>,
    /// Run on these hosts, as for `portolan run --hosts`: two ranks on the first
    #[arg(long, value_name = "A:2,B:1")]
    pub hosts: Option<String>,
    /// Program that reaches them, as for `portolan run --ssh`
    #[arg(long, value_name = "COMMAND", requires = "hosts")]
    pub ssh: Option<String>,
    /// Deaths measured for each size
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = slices)]
    pub slices: usize,
    /// Write the rows to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Args)]
pub struct Start {
    /// Numbers of ranks
    #[arg(
        short = 'n',
        long,
        value_name = "N[,N...]",
        value_delimiter = ',',
        default_values_t = [2, 16, 64]
    )]
    pub ranks: Vec<u32>,
    /// Start them on the hosts of this lab, and the same over udp for comparison
    #[arg(long, value_name = "NAME", conflicts_with = "vs")]
    pub lab: Option<String>,
    /// Link (transport) between the ranks
    #[arg(long, value_enum, default_value_t)]
    pub link: Link,
    /// Peers to benchmark against in the same run
    #[arg(long, value_enum, value_name = "PEER[,PEER...]", value_delimiter = ',')]
    pub vs: Vec<mpi::Kind>,
    /// Starts measured for each figure
    #[arg(long, value_name = "N", default_value_t = super::stats::SLICES_MIN, value_parser = slices)]
    pub slices: usize,
    /// Write rows and ratios to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Args)]
pub struct Measure {
    #[command(flatten)]
    pub common: Common,
    /// Message size, bytes [default: 8; bandwidth: a sweep, with --loss or --harm 1048576]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub size: Option<usize>,
    /// Packet loss at the lab's switch, percent of all packets; several are measured in turns
    #[arg(long = "loss", value_name = "P[,P...]", value_delimiter = ',')]
    pub losses: Vec<f64>,
    /// Lose as many, in bursts with lengths drawn from MIN to MAX (3 to 64 packets)
    #[arg(long, value_name = "MIN-MAX", requires = "losses")]
    pub bursts: Option<Burst>,
    /// With --bursts: lose as many single packets too, in turns, and report what bursts cost more
    #[arg(long, requires = "bursts")]
    pub both: bool,
    /// Other faults at the lab's switch, in turns with none; each has parts named as the options of
    /// `lab impair`: repeat=50+jitter=10
    #[arg(
        long = "harm",
        value_name = "PART+PART[,...]",
        value_delimiter = ',',
        conflicts_with = "losses"
    )]
    pub harms: Vec<Impairment>,
    /// Busy loops on each core beside the ranks, in turns with none; several numbers
    #[arg(
        long,
        value_name = "LOOPS[,LOOPS...]",
        value_delimiter = ',',
        conflicts_with_all = ["losses", "harms"],
        value_parser = clap::value_parser!(u32).range(1..=busy::LOOPS_MAX)
    )]
    pub busy: Vec<u32>,
    /// How ranks wait for a message, those of the peers udp and tcp too [default: poll; with --busy
    /// call]
    #[arg(long, value_enum)]
    pub wait: Option<Wait>,
    /// Peers to benchmark against in the same run
    #[arg(long, value_enum, value_name = "PEER[,PEER...]", value_delimiter = ',')]
    pub vs: Vec<Peer>,
}

#[derive(Args, Clone)]
pub struct Common {
    /// Measure between hosts of this lab
    #[arg(long, value_name = "NAME")]
    pub lab: Option<String>,
    /// Link (transport) between the ranks
    #[arg(long, value_enum, default_value_t)]
    pub link: Link,
    /// Networks for messages, as for `portolan run`
    #[arg(long, value_name = "NAME|CIDR,...")]
    pub interface: Option<String>,
    /// Encrypt and authenticate packets on the network
    #[arg(long, value_enum, default_value_t)]
    pub security: Security,
    /// Congestion control: how to share the network
    #[arg(long, value_enum, default_value_t)]
    pub congestion: Congestion,
    /// Slices of each figure [default: 21; jitter: 600, spray: 5]
    #[arg(long, value_name = "N", value_parser = slices)]
    pub slices: Option<usize>,
    /// Length of a slice, milliseconds, at most 100 [default: so long that the whole stays within
    /// 45 s]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=SLICE_MS_MAX))]
    pub slice_ms: Option<u64>,
    /// Write rows and ratios to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Most slices of a figure.
const SLICES_MAX: usize = 10_000;

/// Reads a number of slices.
fn slices(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(slices @ 1..=SLICES_MAX) => Ok(slices),
        _ => Err(format!(
            "give {} or more (fewer for a quick look), at most {SLICES_MAX}",
            super::stats::SLICES_MIN
        )),
    }
}

impl Common {
    /// Slices of each figure.
    pub fn slices(&self) -> usize {
        self.slices.unwrap_or(super::stats::SLICES_MIN)
    }

    /// The job of `ranks` ranks, on a host each where `spread`.
    pub fn spec(&self, ranks: u32, spread: bool, shm: bool) -> Result<JobSpec> {
        let hosts = if spread {
            vec![1; ranks as usize]
        } else {
            vec![ranks]
        };
        let mut spec = JobSpec::new(hosts);
        spec.link = match self.link {
            _ if shm => portolan_boot::LinkChoice::Shm,
            Link::Xdp => portolan_boot::LinkChoice::Xdp,
            _ => portolan_boot::LinkChoice::Udp,
        };
        if let Some(networks) = &self.interface {
            spec.settings
                .insert("interface".to_owned(), networks.clone());
        }
        spec.security = self.security.into();
        spec.congestion = self.congestion.into();
        spec.suite = if crate::run::has_aes() {
            Suite::Aes128Gcm
        } else {
            Suite::ChaCha20Poly1305
        };
        let cores = crate::run::allowed_cores().context("asking for the allowed cores")?;
        spec.cores = (0..ranks as usize)
            .map(|rank| Some(cores[rank % cores.len()]))
            .collect();
        Ok(spec)
    }

    /// What rows say of the job.
    pub fn setting(&self, link: String, ranks: u32) -> Setting {
        let name = |value: Option<clap::builder::PossibleValue>| {
            value
                .map(|value| value.get_name().to_owned())
                .unwrap_or_default()
        };
        Setting {
            link,
            security: name(self.security.to_possible_value()),
            congestion: name(self.congestion.to_possible_value()),
            ranks,
        }
    }
}
