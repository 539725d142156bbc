//! The command line of `portolan bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use portolan_boot::Suite;
use portolan_boot::launch::JobSpec;
use portolan_hosts::choices::{Bytes, Congestion, Security, bytes};
use portolan_hosts::failure::{Context, Result};
use portolan_hosts::lab::{Burst, Impairment};

use super::asleep::Wait;
use super::busy;
use super::control::Pattern;
use super::early_late::PushedBuffer;
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
pub use portolan_hosts::choices::Link;

const HOW: &str = "\
All systems are measured by the same processes, pinned one to a core, in turns of at most
100 ms (fairness and outage: of seconds); a claim is the median over slices of one figure
divided by the other of the same slice. `noisy` (quartiles more than 20 % of the median apart):
run it again.";

/// Of `portolan bench`.
#[derive(Args)]
#[command(after_help = HOW)]
pub struct Arguments {
    /// Which bench.
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
    /// Time of a message one way: half a round trip
    Latency(Measure),
    /// Bytes per second; without --size, --loss and --harm over all sizes
    Bandwidth {
        #[command(flatten)]
        measure: Measure,
        /// How messages follow each other [default: stream]
        #[arg(long, value_enum)]
        pattern: Option<Pattern>,
    },
    /// Small messages per second, one pair
    Rate(Measure),
    /// Distribution of latencies over a minute of each system
    Jitter(Measure),
    /// What a receiver that makes no call does to the others; 4 ranks
    Stalled {
        #[command(flatten)]
        common: Common,
        /// Bytes of a message
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
        /// Other systems to measure in the same run, on this host
        #[arg(long, value_enum, value_name = "PEER[,PEER...]", value_delimiter = ',')]
        vs: Vec<mpi::Kind>,
    },
    /// Time in which a token of 8 bytes goes round all ranks, which wait in blocking calls
    Ring(Ring),
    /// Many hosts of a lab send long messages to one
    ///
    /// Each sender has one message under way. A message takes from its send until the sender knows
    /// that it is there. Where the lab has a rate, goodput stands over the line's, and the slowest
    /// messages over the time of one while all senders have equal shares of the line.
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
        /// How long each state is watched; with --slice-ms so many slices of that length instead
        #[arg(long, value_name = "S", default_value_t = idle::SECONDS, conflicts_with = "slice_ms")]
        seconds: f64,
    },
    /// What a second network adds: streams by the first of a lab's networks and by all
    Networks {
        #[command(flatten)]
        common: Common,
        /// Bytes of a message, or with K or M
        #[arg(long, value_name = "BYTES", default_value = "1M")]
        size: Bytes,
    },
    /// Latency over shared memory with and without a connected peer on another host
    Lanes {
        #[command(flatten)]
        common: Common,
        /// Bytes of a message
        #[arg(long, value_name = "BYTES", default_value_t = 8, value_parser = bytes)]
        size: usize,
    },
    /// Shares of a line that a flow of ours and one of kernel TCP get
    Fairness(Fairness),
    /// How soon a stream goes on after a cable was pulled out, and what is missing
    Outage(Outage),
    /// What a flood of forged packets does to good traffic
    Forged(Forged),
    /// Sends many messages before it reads any reflection
    Spray {
        #[command(flatten)]
        common: Common,
        /// Most messages; 1, 10, 100 and so on are tried below
        #[arg(long, value_name = "N", default_value_t = spray::MESSAGES)]
        messages: u64,
    },
    /// Overheads, latency and gap of the LogP model, and the half-power point
    Logp {
        #[command(flatten)]
        common: Common,
    },
    /// Time to bring a receive and a message together, by how many others wait
    Match(Matching),
    /// Messages of other MPIs through shared memory of this host, beside memcpy
    ///
    /// NetPIPE, as Debian builds it for each MPI, sends messages of one size back and forth
    /// between two processes, each bound to a core, with nothing but the MPI's shared memory in
    /// use; the MPI's ways through that are tried in the first round with each size, and the
    /// fastest is measured. Half of the mean round trip is one way. memcpy is one copy by one core.
    /// With cold buffers NetPIPE (-I) walks through two areas of 10 MB in either process, and
    /// memcpy through two of 20 MB: more than a core's own caches hold, but a large shared cache
    /// may keep some of it. All give the best of three trials in a slice.
    Netpipe(Netpipe),
    /// Matched messages there and back: what pushing, masking and overlapping bring
    ///
    /// Beside each size the same message by a port. Times are half of a round trip of blocking
    /// calls, the mean of the middle 80 % of a slice's (Push-Pull Messaging, section 3). With --vs
    /// NetPIPE measures other MPIs through this host's shared memory, as `bench netpipe` does.
    Pushpull(Pushpull),
    /// Matched messages to a receiver that surely waits already, or surely does not yet
    ///
    /// They meet; then one calls at once, and the other computes first. Time is from the later
    /// one's call until the receiver has the message: the mean of the middle 80 % of a slice's.
    EarlyLate(EarlyLate),
    /// Share of a matched message's time that is hidden behind computing
    ///
    /// A rank begins to send or to receive, computes as long as the message takes alone, and waits:
    /// (message + computing - both) / the shorter of message and computing.
    Overlap {
        #[command(flatten)]
        common: Common,
        /// Bytes of a message, or with K or M
        #[arg(long, value_name = "BYTES", default_value = "1M")]
        size: Bytes,
        /// Peers to measure in the same run: tcp
        #[arg(long, value_enum, value_name = "PEER", value_delimiter = ',')]
        vs: Vec<Peer>,
    },
    /// One-sided memory: puts and gets, beside messages of the same size by a port
    ///
    /// A put's time is half of a ping-pong in which each rank waits until the other's put shows
    /// in its memory; a get's is a round trip. Means of the middle 80 % of a slice's. Beside them what
    /// registering memory of that size and ending that takes.
    Rma {
        #[command(flatten)]
        common: Common,
        /// Bytes of an access, 8 or more, or with K or M: several in turns
        #[arg(
            long = "size",
            value_name = "BYTES[,BYTES...]",
            value_delimiter = ',',
            default_value = "8,64K,1M"
        )]
        sizes: Vec<Bytes>,
    },
    /// Matched messages there and back by what the endpoint allows its threads
    ///
    /// A job each, of two ranks: one thread calls, any but one at a time, any at any time; and with
    /// the last also several threads of either rank at once, each with one of the other's.
    Threads(Threading),
    /// Bytes of memory that a peer costs, never talked to and quiet, and an endpoint
    Memory {
        /// Write rows to this file
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Time from starting a job until rank 0 has heard from every other rank
    Start(Start),
    /// Time from killing a rank until others know
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
    /// Peers to measure in the same run: tcp
    #[arg(long, value_enum, value_name = "PEER", value_delimiter = ',')]
    pub vs: Vec<Peer>,
}

#[derive(Args)]
pub struct Flooding {
    #[command(flatten)]
    pub common: Common,
    /// Bytes of a message, or with K or M
    #[arg(long, value_name = "BYTES", default_value = "64K")]
    pub size: Bytes,
    /// Send matched messages, not messages to ports [default of HOW: sync]
    #[arg(long, value_enum, value_name = "HOW", num_args = 0..=1, default_missing_value = "sync")]
    pub matched: Option<Matched>,
    /// Peers to measure in the same run: tcp
    #[arg(long, value_enum, value_name = "PEER", value_delimiter = ',')]
    pub vs: Vec<Peer>,
}

#[derive(Args)]
pub struct Threading {
    #[command(flatten)]
    pub common: Common,
    /// Bytes of a message, or with K or M
    #[arg(long, value_name = "BYTES", default_value = "8")]
    pub size: Bytes,
    /// Threads of a rank that call at once
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub callers: u32,
}

#[derive(Args)]
pub struct Matching {
    /// Slices of each figure
    #[arg(long, value_name = "N", default_value_t = super::stats::SLICES_MIN, value_parser = slices)]
    pub slices: usize,
    /// Write rows and ratios to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Args)]
pub struct Netpipe {
    /// Bytes of a message, or with K or M: several in turns
    #[arg(
        long = "size",
        value_name = "BYTES[,BYTES...]",
        value_delimiter = ',',
        default_value = "8,64K,1M"
    )]
    pub sizes: Vec<Bytes>,
    /// Where messages lie
    #[arg(
        long,
        value_enum,
        value_name = "WHERE[,WHERE]",
        value_delimiter = ',',
        default_value = "warm,cold"
    )]
    pub buffers: Vec<Buffers>,
    /// The MPIs
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
    /// Length of a slice, at most 100 [default: 100]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=SLICE_MS_MAX))]
    pub slice_ms: Option<u64>,
    /// Write rows and ratios to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Args)]
pub struct Pushpull {
    #[command(flatten)]
    pub common: Common,
    /// Bytes of a message, or with K or M: several in turns [default: 8 to 1M; with --sweep 64K]
    #[arg(long = "size", value_name = "BYTES[,BYTES...]", value_delimiter = ',')]
    pub sizes: Vec<Bytes>,
    /// Where messages lie
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
    /// What is done while packets are on their way [default: all four where the network is used,
    /// else both]
    #[arg(long, value_enum, value_name = "MODE[,MODE...]", value_delimiter = ',')]
    pub modes: Vec<Mode>,
    /// By shared memory: the same messages copied in different ways, whatever the settings say
    #[arg(
        long,
        value_enum,
        value_name = "WAY[,WAY...]",
        value_delimiter = ',',
        conflicts_with_all = ["whole", "first", "second", "modes"]
    )]
    pub copies: Vec<Copies>,
    /// Try many --first with many --second, and say the best of each size
    #[arg(long, conflicts_with_all = ["first", "second", "modes", "copies", "vs"])]
    pub sweep: bool,
    /// Peers to measure in the same run, on this host
    #[arg(long, value_enum, value_name = "PEER[,PEER...]", value_delimiter = ',')]
    pub vs: Vec<Beside>,
}

/// Bytes that are pushed, where they are not to be as the endpoint has them.
#[derive(Args)]
pub struct Thresholds {
    /// Bytes of a longer message that leave with its offer, BTP(1) [default: the link's]
    #[arg(long, value_name = "BYTES")]
    pub first: Option<Bytes>,
    /// Bytes that follow the offer at once, BTP(2) [default: the link's]
    #[arg(long, value_name = "BYTES")]
    pub second: Option<Bytes>,
    /// Longest message that is pushed whole [default: the link's; where `pushpull` sweeps 0]
    #[arg(long, value_name = "BYTES")]
    pub whole: Option<Bytes>,
}

#[derive(Args)]
pub struct EarlyLate {
    #[command(flatten)]
    pub common: Common,
    /// Bytes of a message, or with K or M: several in turns
    #[arg(
        long = "size",
        value_name = "BYTES[,BYTES...]",
        value_delimiter = ',',
        default_value = "1,64,512,2K,4K,8K,16K,64K"
    )]
    pub sizes: Vec<Bytes>,
    /// What a sender may push before it is asked: bytes, or default
    #[arg(
        long,
        value_name = "BYTES[,default]",
        value_delimiter = ',',
        default_value = "4K,default"
    )]
    pub pushed: Vec<PushedBuffer>,
    /// The thresholds of push-pull
    #[command(flatten)]
    pub thresholds: Thresholds,
}

#[derive(Args)]
pub struct Fairness {
    #[command(flatten)]
    pub common: Common,
    /// Bytes of a message, or with K or M
    #[arg(long, value_name = "BYTES", default_value = "64K")]
    pub size: Bytes,
    /// Time that counts of a slice; before it the flows settle for half as long
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(20..=60_000))]
    pub span_ms: u64,
    /// Congestion control of the TCP flow, as the kernel names it, for example
    /// cubic or bbr [default: that of the kernel's settings]
    #[arg(long, value_name = "NAME")]
    pub tcp: Option<String>,
}

#[derive(Args)]
pub struct Outage {
    #[command(flatten)]
    pub common: Common,
    /// Bytes of a message, or with K or M
    #[arg(long, value_name = "BYTES", default_value = "1000")]
    pub size: Bytes,
    /// How long the receiver's cable is out
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=2_000))]
    pub down_ms: u64,
    /// Peers to measure in the same run: tcp
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
    /// Bytes of one; those that ask for a connection have the 116 that these have
    #[arg(long, value_name = "BYTES", default_value_t = 100, value_parser = forged_size)]
    pub size: usize,
    /// Peers to flood in the same run: udp, tcp
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
    /// Memory of the rank that is killed: bytes, or with K, M or G
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
    /// Run on these hosts, as of `portolan run --hosts`: two ranks on the first
    #[arg(long, value_name = "A:2,B:1")]
    pub hosts: Option<String>,
    /// The program that reaches them, as of `portolan run --ssh`
    #[arg(long, value_name = "COMMAND", requires = "hosts")]
    pub ssh: Option<String>,
    /// Deaths of each size
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = slices)]
    pub slices: usize,
    /// Write rows to this file
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
    /// Start them on the hosts of this lab, and the same by udp to compare with
    #[arg(long, value_name = "NAME", conflicts_with = "vs")]
    pub lab: Option<String>,
    /// Link between the ranks
    #[arg(long, value_enum, default_value_t)]
    pub link: Link,
    /// Other systems to measure in the same run
    #[arg(long, value_enum, value_name = "PEER[,PEER...]", value_delimiter = ',')]
    pub vs: Vec<mpi::Kind>,
    /// Starts of each figure
    #[arg(long, value_name = "N", default_value_t = super::stats::SLICES_MIN, value_parser = slices)]
    pub slices: usize,
    /// Write rows and ratios to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Args)]
pub struct Measure {
    #[command(flatten)]
    pub common: Common,
    /// Bytes of a message [default: 8; bandwidth: a sweep, with --loss or --harm 1048576]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub size: Option<usize>,
    /// Percent of all packets that the lab's switch drops, several in turns
    #[arg(long = "loss", value_name = "P[,P...]", value_delimiter = ',')]
    pub losses: Vec<f64>,
    /// Lose as many in bursts, of lengths drawn from these: 3 to 64 packets
    #[arg(long, value_name = "MIN-MAX", requires = "losses")]
    pub bursts: Option<Burst>,
    /// With --bursts: each loss singly too, in turns, and what bursts cost beside that
    #[arg(long, requires = "bursts")]
    pub both: bool,
    /// Other harm by the lab's switch, in turns with none; parts of one as of `lab impair`: repeat=50+jitter=10
    #[arg(
        long = "harm",
        value_name = "PART+PART[,...]",
        value_delimiter = ',',
        conflicts_with = "losses"
    )]
    pub harms: Vec<Impairment>,
    /// Busy loops on each core beside the ranks, in turns with none: several numbers
    #[arg(
        long,
        value_name = "LOOPS[,LOOPS...]",
        value_delimiter = ',',
        conflicts_with_all = ["losses", "harms"],
        value_parser = clap::value_parser!(u32).range(1..=busy::LOOPS_MAX)
    )]
    pub busy: Vec<u32>,
    /// How ranks wait for a message, those of the peers udp and tcp too [default: poll; with --busy call]
    #[arg(long, value_enum)]
    pub wait: Option<Wait>,
    /// Peers to measure in the same run
    #[arg(long, value_enum, value_name = "PEER[,PEER...]", value_delimiter = ',')]
    pub vs: Vec<Peer>,
}

#[derive(Args, Clone)]
pub struct Common {
    /// Measure between hosts of this lab
    #[arg(long, value_name = "NAME")]
    pub lab: Option<String>,
    /// Link between the ranks
    #[arg(long, value_enum, default_value_t)]
    pub link: Link,
    /// Networks of each host that messages go by, as of `portolan run`
    #[arg(long, value_name = "NAME|CIDR,...")]
    pub interface: Option<String>,
    /// Seal packets on the network
    #[arg(long, value_enum, default_value_t)]
    pub security: Security,
    /// How to share the network
    #[arg(long, value_enum, default_value_t)]
    pub congestion: Congestion,
    /// Slices of each figure [default: 21; jitter: 600, spray: 5]
    #[arg(long, value_name = "N", value_parser = slices)]
    pub slices: Option<usize>,
    /// Length of a slice, at most 100 [default: as long as the whole stays within 45 s]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=SLICE_MS_MAX))]
    pub slice_ms: Option<u64>,
    /// Write rows and ratios to this file
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
        spec.suite = if portolan_hosts::ranks::has_aes() {
            Suite::Aes128Gcm
        } else {
            Suite::ChaCha20Poly1305
        };
        let cores =
            portolan_hosts::ranks::allowed_cores().context("asking for the allowed cores")?;
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
