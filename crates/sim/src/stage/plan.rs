//! What a seed of the stage stands for.

use portolan_exchange::Push;

use crate::net::{Faults, Pipe};
use crate::rng::Rng;
use crate::scenario::{SUPERSTEPS, faults};
use crate::steer::Steering;

/// Chance of its own: whether ranks use several spaces.
const SPACES: u64 = 0x5bace5;
/// Likewise whether they send to placing ports, and all that comes of it.
pub const PLACINGS: u64 = 0x91ace;
/// Likewise how they end supersteps.
const SUPERSTEPS_CHANCE: u64 = 0xb5b;
/// Likewise whether they leave a space.
pub const PARTINGS: u64 = 0x9a47;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// Where in a superstep a rank dies: nothing that it sends from then on leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// So many of its heads have left.
    Heads(u32),
    /// Before a log that does not fit its head.
    Log,
    /// Before results of gets.
    Results,
    /// Before bytes of long puts.
    Pieces,
    /// It has all that it needs, and has not returned.
    End,
}

/// Phases, of heads two: before the first, and after some.
pub const PHASES: usize = 6;

impl Phase {
    /// Its number, below [`PHASES`].
    #[must_use]
    pub const fn number(self) -> usize {
        match self {
            Self::Heads(0) => 0,
            Self::Heads(_) => 1,
            Self::Log => 2,
            Self::Results => 3,
            Self::Pieces => 4,
            Self::End => 5,
        }
    }
}

/// A rank that dies in a phase of a superstep, when it first comes to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doom {
    /// Which rank.
    pub rank: usize,
    /// From which superstep on.
    pub step: u64,
    /// Where in it.
    pub phase: Phase,
}

/// Everything that shapes a run. Follows from the seed alone.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed that it came from; also of all chance within the run.
    pub seed: u64,
    /// Host of each rank: those of one host share memory.
    pub hosts: Vec<usize>,
    /// Networks that each rank is on.
    pub networks: usize,
    /// What they do to packets.
    pub faults: Faults,
    /// Cable of each rank, both directions.
    pub pipe: Pipe,
    /// How packets come to a rank.
    pub steering: Steering,
    /// Packets that a rank has not taken, at most.
    pub inbox: usize,
    /// Of a million bursts, how many a link does not take.
    pub full_ppm: u32,
    /// Things that each rank does of its own accord.
    pub acts: u32,
    /// Mean time between them, ns.
    pub gap_ns: u64,
    /// Longest message, bytes.
    pub long_max: u64,
    /// Memory of the engine for messages that wait, for one sender, bytes.
    pub queue_share: usize,
    /// Likewise for answers that find no credit, bytes.
    pub reply_bytes: usize,
    /// How matched messages are pushed.
    pub push: Push,
    /// Each rank may have so much pushed; none: as the engine finds.
    pub pushed_share: Option<u64>,
    /// Messages from this length on may be copied by their receiver, bytes.
    pub copy_min: usize,
    /// Ranks can copy from and to each other's memory.
    pub cma: bool,
    /// A rank notices what it is woken for this late at most, ns.
    pub wake_ns: u64,
    /// One in so many passes is the helper thread's; 0: none.
    pub helped: u64,
    /// Times that a rank is killed.
    pub kills: u32,
    /// Ranks die with their host, and come back on others, where they share no memory.
    pub respawn: bool,
    /// All others are told of a death; else only those of its host.
    pub told: bool,
    /// Cuts between two groups of ranks.
    pub cuts: u32,
    /// How long each lasts, ns.
    pub cut_ns: u64,
    /// One of several networks fails for good.
    pub failing: Option<usize>,
    /// Largest packet of the paths once they shrink, bytes; 0: they do not.
    pub path_mtu: usize,
    /// After which a peer that owes something is dead, ns.
    pub silence_ns: u64,
    /// Ranks use three spaces, and open two of them some time after others do.
    pub spaces: bool,
    /// Ranks send to ports that say of each message where it goes.
    pub placings: bool,
    /// All open a space, and leave it while they go on.
    pub partings: bool,
    /// Supersteps that each rank ends; 0: none.
    pub supersteps: u64,
    /// Some of their puts are too long for a log.
    pub long_puts: bool,
    /// Who dies in one of them.
    pub doom: Option<Doom>,
    /// Some ranks close with messages under way.
    pub close_early: bool,
    /// A rank is killed before this step of the run.
    pub kill_at: Option<(u64, usize)>,
}

impl Plan {
    /// The plan that a seed names.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let r = &mut rng;
        let ranks = r.between(2, 6) as usize;
        let hosts = r.between(1, ranks as u64);
        let hosts: Vec<usize> = (0..ranks).map(|_| r.below(hosts) as usize).collect();
        let several = hosts.iter().any(|host| *host != hosts[0]);
        let calm = r.one_in(4);
        let silence_ns = r.pick(&[300 * MS, 1_000 * MS]);
        let kills = if r.one_in(2) { 0 } else { r.between(1, 3) } as u32;
        let networks = if r.one_in(4) { 2 } else { 1 };
        let rate = r.pick(&[100_000_000, 1_000_000_000]);
        let kernel_too = networks == 1 && r.one_in(6);
        let little = Push {
            whole: 500,
            first: 80,
            second: 4_000,
            overlap: false,
            masking: false,
        };
        let zero = Push {
            whole: 0,
            first: 0,
            second: 0,
            ..Push::default()
        };
        Self {
            seed,
            hosts,
            networks,
            faults: faults(r, true, calm),
            pipe: if r.one_in(2) {
                Pipe::FREE
            } else {
                Pipe::new(rate, r.pick(&[6_400, 64_000])).marking(r.pick(&[4_000, u64::MAX]))
            },
            steering: if kernel_too {
                // Drawn for a setting that no longer exists: a seed's later draws must not shift.
                let _ = [r.below(3), r.below(3)];
                Steering {
                    queues: 1,
                    strays: 200_000,
                    both: 100_000,
                    off: false,
                }
            } else {
                Steering::FAST
            },
            inbox: if r.one_in(3) { 16 } else { 4_096 },
            full_ppm: r.pick(&[0, 20_000]),
            acts: r.between(10, 80) as u32,
            gap_ns: r.scale(2 * US, 300 * US),
            long_max: r.scale(4_000, 300_000),
            queue_share: r.pick(&[12_000, 400_000]),
            reply_bytes: r.pick(&[4_000, 1 << 20]),
            push: r.pick(&[Push::default(), zero, little]),
            pushed_share: r.pick(&[None, Some(16 << 10)]),
            copy_min: r.pick(&[8_000, usize::MAX]),
            cma: !r.one_in(4),
            wake_ns: r.pick(&[0, 2 * US, 60 * US, 2 * MS]),
            helped: r.pick(&[0, 3, 10]),
            kills,
            respawn: r.one_in(2) && several,
            told: kills == 0 || r.one_in(2),
            cuts: if calm { 0 } else { r.below(3) as u32 },
            cut_ns: r.scale(MS, 2 * silence_ns),
            failing: (networks == 2 && r.one_in(2)).then(|| r.index(2)),
            path_mtu: if r.one_in(5) { 1_250 } else { 0 },
            silence_ns,
            spaces: Rng::new(seed ^ SPACES).one_in(2),
            placings: !Rng::new(seed ^ PLACINGS).one_in(3),
            partings: Rng::new(seed ^ PARTINGS).one_in(2),
            supersteps: 0,
            long_puts: false,
            doom: None,
            close_early: r.one_in(4),
            kill_at: None,
        }
        .with_supersteps()
    }

    /// The same with supersteps, if its seed says so: mostly without all else.
    fn with_supersteps(mut self) -> Self {
        if self.seed < SUPERSTEPS {
            return self;
        }
        let r = &mut Rng::new(self.seed ^ SUPERSTEPS_CHANCE);
        self.supersteps = r.between(2, 8);
        self.long_puts = r.one_in(2);
        self.told = r.one_in(2);
        if !r.one_in(4) {
            self.acts = 0;
        }
        if !r.one_in(4) {
            // As much as nobody is taken for dead.
            self.faults.loss = self.faults.loss.min(50_000);
            self.faults.burst_start = 0;
            self.failing = None;
            self.cut_ns = self.cut_ns.min(self.silence_ns / 4);
        }
        let ranks = self.hosts.len();
        self.kills = 0;
        match r.below(5) {
            0 | 1 => {}
            2 => self.kills = r.between(1, 2) as u32,
            _ => {
                let some = 1 + r.below(ranks as u64 - 1) as u32;
                let phases = [
                    Phase::Heads(0),
                    Phase::Heads(some),
                    Phase::Log,
                    Phase::Results,
                    Phase::Pieces,
                    Phase::End,
                ];
                let phase = r.pick(&phases);
                self.long_puts |= matches!(phase, Phase::Log | Phase::Pieces);
                self.doom = Some(Doom {
                    rank: r.index(ranks),
                    step: r.below(self.supersteps),
                    phase,
                });
            }
        }
        self
    }

    /// Whether a rank that lives may be taken for dead.
    #[must_use]
    pub fn silence_possible(&self) -> bool {
        self.faults.loss > 50_000
            || self.faults.burst_start > 0
            || self.failing.is_some()
            || (self.cuts > 0 && 4 * self.cut_ns > self.silence_ns)
    }
}
