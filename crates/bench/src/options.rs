//! The command line of `portolan bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use portolan_boot::launch::JobSpec;
use portolan_boot::{LinkChoice, Suite};
pub use portolan_hosts::choices::Link;
use portolan_hosts::choices::{Bytes, Congestion, Security, bytes};
use portolan_hosts::failure::{Context, Result};
use portolan_hosts::lab::{Burst, Impairment, Lab};
use portolan_hosts::ranks::{allowed_cores, has_aes};

use crate::busy;
use crate::control::Pattern;
use crate::experiment::{Experiment, Place, wrong};
use crate::experiments::barrier::Barrier;
use crate::experiments::death::Death;
use crate::experiments::early_late::EarlyLate;
use crate::experiments::external_mpi::Netpipe;
use crate::experiments::fairness::Fairness;
use crate::experiments::forged::Forged;
use crate::experiments::idle::Idle;
use crate::experiments::incast::{Flooding, Incast, Shape};
use crate::experiments::lanes::Lanes;
use crate::experiments::logp::Logp;
use crate::experiments::matching::Matching;
use crate::experiments::memory::Memory;
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
    Stalled(Stalled),
    /// Time of a barrier
    Barrier(Barrier),
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
    Idle(Idle),
    /// What a second network adds: streams by the first of a lab's networks and by all
    Networks(Networks),
    /// Latency over shared memory with and without a connected peer on another host
    Lanes(Lanes),
    /// Shares of a line that a flow of ours and one of kernel TCP get
    Fairness(Fairness),
    /// How soon a stream goes on after a cable was pulled out, and what is missing
    Outage(Outage),
    /// What a flood of forged packets does to good traffic
    Forged(Forged),
    /// Sends many messages before it reads any reflection
    Spray(Spraying),
    /// Overheads, latency and gap of the LogP model, and the half-power point
    Logp(Logp),
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
    Overlap(Overlap),
    /// One-sided memory: puts and gets, beside messages of the same size by a port
    ///
    /// A put's time is half of a ping-pong in which each rank waits until the other's put shows
    /// in its memory; a get's is a round trip. Means of the middle 80 % of a slice's. Beside them what
    /// registering memory of that size and ending that takes.
    Rma(Rma),
    /// Matched messages there and back by what the endpoint allows its threads
    ///
    /// A job each, of two ranks: one thread calls, any but one at a time, any at any time; and with
    /// the last also several threads of either rank at once, each with one of the other's.
    Threads(Threading),
    /// Bytes of memory that a peer costs, never talked to and quiet, and an endpoint
    Memory(Memory),
    /// Time from starting a job until rank 0 has heard from every other rank
    Start(Start),
    /// Time from killing a rank until others know
    Death(Death),
}

impl Bench {
    /// What was asked for, and where it runs.
    pub fn experiment(self) -> (Place, Box<dyn Experiment>) {
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
            Self::Ring(it) => both(it.common.place("ring"), it),
            Self::Incast(it) => between(Shape::Incast, it),
            Self::Alltoall(it) => between(Shape::Alltoall, it),
            Self::Idle(it) => {
                let place = Place {
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
            Self::Match(it) => both(Place::without_ranks("match", &it.json, None), it),
            Self::Netpipe(it) => {
                let place = Place {
                    polls: true,
                    ..Place::without_ranks("netpipe", &it.json, None)
                };
                both(place, it)
            }
            Self::Pushpull(it) => both(it.common.place("pushpull"), it),
            Self::EarlyLate(it) => both(it.common.place("early-late"), it),
            Self::Overlap(it) => both(it.common.place("overlap"), it),
            Self::Rma(it) => both(it.common.place("rma"), it),
            Self::Threads(it) => both(it.common.place("threads"), it),
            Self::Memory(it) => both(Place::without_ranks("memory", &it.json, None), it),
            Self::Start(it) => both(Place::without_ranks("start", &it.json, it.lab.as_ref()), it),
            Self::Death(it) => both(Place::without_ranks("death", &it.json, it.lab.as_ref()), it),
        }
    }
}

fn both(place: Place, it: impl Experiment + 'static) -> (Place, Box<dyn Experiment>) {
    (place, Box::new(it))
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

#[derive(Args, Clone, Default)]
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

#[derive(Args, Clone, Default)]
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
pub fn slices(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(slices @ 1..=SLICES_MAX) => Ok(slices),
        _ => Err(format!(
            "give {SLICES_MIN} or more (fewer for a quick look), at most {SLICES_MAX}"
        )),
    }
}

/// Refuses sizes outside of the bounds, bytes.
pub fn check_sizes(
    sizes: impl IntoIterator<Item = usize>,
    bounds: std::ops::RangeInclusive<usize>,
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

/// The name of a choice on the command line.
pub fn value_name(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |it| it.get_name().to_owned())
}

impl Common {
    /// Where the bench of this name runs.
    pub fn place(&self, name: &str) -> Place {
        Place {
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
        match (self.link, lab) {
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
        self.with_links(match (self.link, lab) {
            (Link::Auto, None) => &[Link::Shm, Link::Udp],
            (Link::Auto, Some(_)) => &[Link::Udp],
            _ => std::slice::from_ref(&self.link),
        })
    }

    /// The same for each of these links.
    pub fn with_links(&self, links: &[Link]) -> Vec<Self> {
        let with = |link: &Link| Self {
            link: *link,
            ..self.clone()
        };
        links.iter().map(with).collect()
    }

    /// The job of `ranks` ranks, over the hosts of the lab in blocks, or on this one.
    pub fn spec(&self, lab: Option<&Lab>, ranks: u32) -> Result<JobSpec> {
        let mut spec = JobSpec::new(match lab {
            Some(lab) => JobSpec::blocks(ranks, lab.hosts().min(ranks)),
            None => vec![ranks],
        });
        spec.link = match self.link {
            _ if self.shm(lab)? => LinkChoice::Shm,
            Link::Xdp => LinkChoice::Xdp,
            _ => LinkChoice::Udp,
        };
        if let Some(networks) = &self.interface {
            spec.settings
                .insert("interface".to_owned(), networks.clone());
        }
        spec.security = self.security.into();
        spec.congestion = self.congestion.into();
        spec.suite = if has_aes() {
            Suite::Aes128Gcm
        } else {
            Suite::ChaCha20Poly1305
        };
        let cores = allowed_cores().context("asking for the allowed cores")?;
        spec.cores = (0..ranks as usize)
            .map(|rank| Some(cores[rank % cores.len()]))
            .collect();
        Ok(spec)
    }

    /// What rows say of the job.
    pub fn setting(&self, link: String, ranks: u32) -> Setting {
        Setting {
            link,
            security: value_name(&self.security),
            congestion: value_name(&self.congestion),
            ranks,
        }
    }
}
