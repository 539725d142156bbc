//! The command line of `portolan bench`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use portolan_boot::LinkChoice;
use portolan_boot::launch::JobSpec;
pub use portolan_hosts::choices::Link;
use portolan_hosts::choices::{Bytes, Network, bytes, value_name};
use portolan_hosts::failure::{Context, Result};
use portolan_hosts::lab::{Burst, Impairment, Lab};
use portolan_hosts::ranks::allowed_cores;

use crate::busy;
use crate::control::Pattern;
use crate::experiment::{Experiment, ExperimentSetup, wrong};
use crate::experiments::barrier::Barrier;
use crate::experiments::bsp::Bsp;
use crate::experiments::connect::Connect;
use crate::experiments::death::Death;
use crate::experiments::early_late::EarlyLate;
use crate::experiments::external_mpi::{Netpipe, once};
use crate::experiments::fairness::Fairness;
use crate::experiments::forged::Forged;
use crate::experiments::idle::Idle;
use crate::experiments::incast::{Flooding, Incast, Shape};
use crate::experiments::lanes::Lanes;
use crate::experiments::logp::Logp;
use crate::experiments::matching::Matching;
use crate::experiments::memory::MemoryUse;
use crate::experiments::mpi;
use crate::experiments::networks::Networks;
use crate::experiments::outage::Outage;
use crate::experiments::overlap::Overlap;
use crate::experiments::paired::Paired;
use crate::experiments::pushpull::Pushpull;
use crate::experiments::ring::Ring;
use crate::experiments::rma::Rma;
use crate::experiments::spray::Spraying;
use crate::experiments::stalled::Stalled;
use crate::experiments::start::Start;
use crate::experiments::threads::{Calling, Threading};
use crate::plan::{Kind, Peer};
use crate::ranks::asleep::Wait;
use crate::report::stats::SLICES_MIN;
use crate::report::summary::Setting;
use crate::slice::SLICE_MS_MAX;

const HOW: &str = "\
All systems are measured by the same processes, each pinned to a core, in turns (slices) of at
most 100 ms (fairness and outage: of seconds). A ratio is the median over the slices: in each, one
system's figure is divided by the other's. `noisy` means that the quartiles are more than 20 % of
the median apart: run the bench again.";

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
    Stalled(Stalled),
    /// Time of a barrier
    Barrier(Barrier),
    /// Costs of BSPlib: a superstep, a word, a byte
    ///
    /// A plain program of BSPlib measures them: it is built by bspcc and run by bsprun of each
    /// library in turn. Round trips, barriers and matched messages of Portolan's own interfaces
    /// alternate with it. The last figures of each link and number of processes are kept in
    /// $XDG_CACHE_HOME/portolan/bsp, else in ~/.cache/portolan/bsp.
    Bsp(Bsp),
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
    Idle(Idle),
    /// Gain of a second network: streams over the first of a lab's networks and over all
    Networks(Networks),
    /// Latency over shared memory with and without a connected peer on another host
    Lanes(Lanes),
    /// Shares of a line that a flow of Portolan and one of kernel TCP get
    Fairness(Fairness),
    /// Recovery of a stream after a cable was unplugged: how soon it goes on, and what is missing
    Outage(Outage),
    /// Effect of a flood of forged packets on good traffic
    Forged(Forged),
    /// Gap of messages when many are sent before any reply is read
    Spray(Spraying),
    /// Overheads, latency and gap of the LogP model, and the half-power point
    Logp(Logp),
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
    /// Programs of MPI over Portolan, compared with the same MPI over TCP and in shared memory
    ///
    /// A plain program of MPI measures them: it is built by the compiler of each MPI, and started by
    /// its launcher once in each slice and for each system. Each process is bound to a core.
    Mpi(mpi::Asked),
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
    Overlap(Overlap),
    /// One-sided access: puts and gets, compared with messages of the same size to a port
    ///
    /// A put's time is half of a ping-pong in which each rank waits until the other's put shows
    /// in its memory; a get's is a round trip. Times are means of the middle 80 % of a slice's. The
    /// time to register memory of that size, and to end the registration, is measured too.
    Rma(Rma),
    /// Round trips of matched messages, by the endpoint's thread mode
    ///
    /// Each mode is a job of two ranks: one thread calls; any thread, one at a time; any thread at
    /// any time. In the last mode several threads of either rank also call at once, each with one of
    /// the other's.
    Threads(Threading),
    /// Memory of a peer, never talked to and quiet, and of an endpoint, in bytes
    Memory(MemoryUse),
    /// Time from starting a job until rank 0 has heard from every other rank
    Start(Start),
    /// Time from killing a rank until the others are notified
    Death(Death),
    /// Time until two endpoints without a launcher have heard from each other, compared with TCP
    /// and TLS
    ///
    /// A fresh endpoint adds the other's address, sends 8 bytes and gets them back. TCP and TLS 1.3
    /// connect, send and get as many. The time to add and to remove peers that are nowhere is
    /// measured too.
    Connect(Connect),
}

impl Bench {
    /// What was asked for, and where it runs.
    pub fn experiment(self) -> (ExperimentSetup, Box<dyn Experiment>) {
        let paired = |kind: Kind, measure: Measure, pattern| {
            let asked = Paired {
                kind,
                pattern,
                measure,
            };
            both(asked.measure.common.place(kind.name()), asked)
        };
        let between = |shape, asked: Flooding| {
            let asked = Incast { shape, asked };
            both(asked.asked.common.place(&asked.name()), asked)
        };
        match self {
            Self::Latency(it) => paired(Kind::Latency, it, None),
            Self::Bandwidth { measure, pattern } => paired(Kind::Bandwidth, measure, pattern),
            Self::Rate(it) => paired(Kind::Rate, it, None),
            Self::Jitter(it) => paired(Kind::Jitter, it, None),
            Self::Stalled(it) => both(it.common.place("stalled"), it),
            Self::Barrier(it) => both(it.common.place("barrier"), it),
            Self::Bsp(it) => both(it.common.place("bsp"), it),
            Self::Ring(it) => both(it.common.place("ring"), it),
            Self::Incast(it) => between(Shape::Incast, it),
            Self::Alltoall(it) => between(Shape::Alltoall, it),
            Self::Idle(it) => {
                let place = ExperimentSetup {
                    polls: false,
                    ..it.common.place("idle")
                };
                both(place, it)
            }
            Self::Networks(it) => both(it.common.place("networks"), it),
            Self::Lanes(it) => both(it.common.place("lanes"), it),
            Self::Fairness(it) => both(it.common.place("fairness"), it),
            Self::Outage(it) => both(it.common.place("outage"), it),
            Self::Forged(it) => both(it.common.place("forged"), it),
            Self::Spray(it) => both(it.common.place("spray"), it),
            Self::Logp(it) => both(it.common.place("logp"), it),
            Self::Match(it) => both(ExperimentSetup::without_ranks("match", &it.json, None), it),
            Self::Mpi(it) => both(it.common.place("mpi"), it),
            Self::Netpipe(it) => {
                let place = ExperimentSetup {
                    polls: true,
                    ..ExperimentSetup::without_ranks("netpipe", &it.json, None)
                };
                both(place, it)
            }
            Self::Pushpull(it) => both(it.common.place("pushpull"), it),
            Self::EarlyLate(it) => both(it.common.place("early-late"), it),
            Self::Overlap(it) => both(it.common.place("overlap"), it),
            Self::Rma(it) => both(it.common.place("rma"), it),
            Self::Threads(it) => both(it.common.place("threads"), it),
            Self::Memory(it) => both(ExperimentSetup::without_ranks("memory", &it.json, None), it),
            Self::Start(it) => both(
                ExperimentSetup::without_ranks("start", &it.json, it.lab.as_ref()),
                it,
            ),
            Self::Connect(it) => both(it.common.place("connect"), it),
            Self::Death(it) => both(
                ExperimentSetup::without_ranks("death", &it.json, it.lab.as_ref()),
                it,
            ),
        }
    }
}

fn both(
    place: ExperimentSetup,
    it: impl Experiment + 'static,
) -> (ExperimentSetup, Box<dyn Experiment>) {
    (place, Box::new(it))
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

/// Sizes of messages.
#[derive(Args)]
pub struct Sizes {
    /// Message sizes, bytes, or with K or M; several are measured in turns
    #[arg(
        long = "size",
        value_name = "BYTES[,BYTES...]",
        value_delimiter = ',',
        default_value = "8,64K,1M"
    )]
    sizes: Vec<Bytes>,
}

impl Sizes {
    /// Each once, in order; none outside of the bounds.
    pub fn within(&self, bounds: RangeInclusive<usize>) -> Result<Vec<usize>> {
        let sizes: Vec<usize> = self.sizes.iter().map(|size| size.0).collect();
        check_sizes(sizes.iter().copied(), bounds)?;
        Ok(once(&sizes))
    }
}

#[derive(Args, Clone, Default)]
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
    /// Busy loops on each core beside the ranks, 1 to 8, in turns with none; several numbers
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
    /// Measure endpoints without a launcher too, by the link of --link
    #[arg(long)]
    pub standalone: bool,
}

#[derive(Args, Clone, Default)]
pub struct Common {
    /// Measure between hosts of this lab
    #[arg(long, value_name = "NAME")]
    pub lab: Option<String>,
    #[command(flatten)]
    pub network: Network,
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
pub fn slices(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(slices @ 1..=SLICES_MAX) => Ok(slices),
        _ => Err(format!(
            "give 1 to {SLICES_MAX}; a claim needs {SLICES_MIN} or more"
        )),
    }
}

/// Refuses sizes outside of the bounds, bytes.
pub fn check_sizes(
    sizes: impl IntoIterator<Item = usize>,
    bounds: RangeInclusive<usize>,
) -> Result<()> {
    match sizes.into_iter().find(|size| !bounds.contains(size)) {
        Some(size) => {
            let (least, most) = bounds.into_inner();
            wrong(format!("--size {size}: give {least} to {most} bytes"))
        }
        None => Ok(()),
    }
}

/// Refuses peers that the bench cannot have beside it.
pub fn check_tcp_only(bench: &str, vs: &[Peer]) -> Result<()> {
    if vs.iter().any(|peer| *peer != Peer::Tcp) {
        return wrong(format!("bench {bench} runs beside --vs tcp only"));
    }
    Ok(())
}

/// Whose queues ranks and endpoints outside of their job share.
pub fn queue_group() -> String {
    format!("bench-{}", std::process::id())
}

impl Common {
    /// Where the bench of this name runs.
    pub fn place(&self, name: &str) -> ExperimentSetup {
        ExperimentSetup {
            name: name.to_owned(),
            json: self.json.clone(),
            lab: self.lab.clone(),
            polls: true,
        }
    }

    /// Slices of each figure.
    pub fn slices(&self) -> usize {
        self.slices.unwrap_or(SLICES_MIN)
    }

    /// Length of a slice, nanoseconds, `usual` where it was not asked for.
    pub fn slice_ns(&self, usual: u64) -> u64 {
        self.slice_ms.map_or(usual, |ms| ms * 1_000_000)
    }

    /// Length of a slice, nanoseconds, as long as may be where it was not asked for.
    pub fn whole_slice_ns(&self) -> u64 {
        self.slice_ns(SLICE_MS_MAX * 1_000_000)
    }

    /// Whether the ranks will talk through shared memory.
    pub fn shm(&self, lab: Option<&Lab>) -> Result<bool> {
        match (self.network.link, lab) {
            (Link::Shm, Some(_)) => wrong(
                "--link shm reaches no other host, and a lab's hosts are others: leave out --lab or --link",
            ),
            (Link::Xdp, None) => wrong("--link xdp goes between hosts: add --lab NAME"),
            (Link::Udp | Link::Xdp, _) | (Link::Auto, Some(_)) => Ok(false),
            (Link::Shm | Link::Auto, None) => Ok(true),
        }
    }

    /// The same for each link of a bench of every link.
    pub fn each_link(&self, lab: Option<&Lab>) -> Vec<Self> {
        self.with_links(match (self.network.link, lab) {
            (Link::Auto, None) => &[Link::Shm, Link::Udp],
            (Link::Auto, Some(_)) => &[Link::Udp],
            _ => std::slice::from_ref(&self.network.link),
        })
    }

    /// The same for each of these links.
    pub fn with_links(&self, links: &[Link]) -> Vec<Self> {
        let with = |link: &Link| {
            let mut with = self.clone();
            with.network.link = *link;
            with
        };
        links.iter().map(with).collect()
    }

    /// The job of `ranks` ranks, over the hosts of the lab in blocks, or on this one.
    pub fn spec(&self, lab: Option<&Lab>, ranks: u32) -> Result<JobSpec> {
        let mut spec = self.network.spec(match lab {
            Some(lab) => JobSpec::blocks(ranks, lab.hosts().min(ranks)),
            None => vec![ranks],
        });
        spec.link = match self.network.link {
            _ if self.shm(lab)? => LinkChoice::Shm,
            Link::Xdp => LinkChoice::Xdp,
            _ => LinkChoice::Udp,
        };
        let cores = allowed_cores().context("asking for the allowed cores")?;
        spec.cores = (0..ranks as usize)
            .map(|rank| Some(cores[rank % cores.len()]))
            .collect();
        Ok(spec)
    }

    /// The same for endpoints outside of the job; `shm`: it shares memory.
    pub fn standalone_settings(&self, shm: bool) -> Vec<(String, String)> {
        let mut network = self.network.clone();
        if !shm && network.link != Link::Xdp {
            network.link = Link::Udp;
        }
        let mut settings = network.standalone_settings(shm);
        settings.push(("group".to_owned(), queue_group()));
        settings
    }

    /// What rows say of the job.
    pub fn setting(&self, link: String, ranks: u32) -> Setting {
        Setting {
            link,
            security: value_name(&self.network.security),
            congestion: value_name(&self.network.congestion),
            ranks,
        }
    }
}
