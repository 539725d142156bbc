//! What a seed stands for.

use portolan_proto::Config;
use portolan_proto::congestion::Mode;

use crate::net::{Faults, Pipe};
use crate::rng::Rng;
use crate::steer::Steering;
use crate::suite::Suite;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// Chance of its own: whether flows are stopped.
const STOPS: u64 = 0x5707;
/// Likewise: whether a pair has more than 8 flows.
const MANY_FLOWS: u64 = 0xf1;
const BLOCKED: u64 = 0xb10c;

/// Who talks to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Anybody to anybody.
    All,
    /// Everybody to node 0, which answers.
    Incast,
    /// Each to its neighbour.
    Ring,
}

/// Everything that shapes a run. Follows from the seed alone.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed that it came from; also of all chance within the run.
    pub seed: u64,
    /// Nodes.
    pub nodes: usize,
    /// How packets are sealed.
    pub suite: Suite,
    /// Settings of each node's endpoint.
    pub configs: Vec<Config>,
    /// Congestion control that peers are added with.
    pub mode: Mode,
    /// Faults of every pair until the network heals.
    pub faults: Faults,
    /// Cable of each host, both directions.
    pub pipe: Pipe,
    /// Packets that a node's inbox holds.
    pub inbox: usize,
    /// Who talks to whom.
    pub pattern: Pattern,
    /// Messages that each node wants to send of its own accord.
    pub messages: u32,
    /// Mean time between them, ns.
    pub gap_ns: u64,
    /// Of a million messages, how many are long.
    pub long_ppm: u32,
    /// Their largest size, bytes.
    pub long_max: u64,
    /// Of a million deliveries, how many are answered.
    pub reply_ppm: u32,
    /// Of a million offers, how many are put off.
    pub not_now_ppm: u32,
    /// Of a million messages that begin to arrive, after how many their flow is
    /// stopped for a while.
    pub stop_ppm: u32,
    /// Of a million messages, how many are refused.
    pub refuse_ppm: u32,
    /// Nodes that take no request until all replies are through.
    pub blocked: Vec<usize>,
    /// Times that a node is killed.
    pub kills: u32,
    /// Killed nodes that do not come back.
    pub stay_dead: bool,
    /// Others are told of a death at once.
    pub told: bool,
    /// Partitions between two groups of nodes.
    pub partitions: u32,
    /// How long each lasts, ns.
    pub partition_ns: u64,
    /// Largest packet of the path, once it shrinks; 0: it does not.
    pub path_mtu: usize,
    /// Some nodes start this late, ns.
    pub late_ns: u64,
    /// A node's tables move after every so many passes; 0: never.
    pub move_every: u32,
    /// A node notices what it is woken for this late at most, ns.
    pub wake_ns: u64,
    /// The link gives frames back this late at most, ns.
    pub link_ns: u64,
    /// Packets that a pass takes from the inbox.
    pub burst: u64,
    /// Of a million packets, how many are followed by a forged or old one.
    pub forge_ppm: u32,
    /// Faults end after this long at the latest, ns.
    pub chaos_ns: u64,
    /// Everything must be through this long after faults have ended, ns.
    pub drain_ns: u64,
    /// Nodes close with messages under way at the end.
    pub close_early: bool,
    /// Networks that each node is on.
    pub networks: usize,
    /// What those beside the first do to packets.
    pub other_faults: Faults,
    /// Times that one of several networks fails, for some nodes or for all.
    pub outages: u32,
    /// How long each lasts, ns.
    pub outage_ns: u64,
    /// How each node gets its packets.
    pub steering: Steering,
    /// Times that a node's packets go through its kernel for a while.
    pub detours: u32,
    /// How long each lasts, ns.
    pub detour_ns: u64,
}

/// Seeds from this one on stand for clusters on two networks.
pub const TWO_NETWORKS: u64 = 1 << 40;

/// And from this one on for clusters whose packets arrive past the kernel and
/// through it.
pub const TWO_WAYS: u64 = 1 << 41;

/// And from this one on for the shipped engine: [`crate::stage`].
pub const STAGE: u64 = 1 << 42;

/// And from this one on for endpoints outside of a job: [`crate::meeting`].
pub const MEETING: u64 = 1 << 43;

/// Of those: all are on one host.
pub const NEAR: u64 = 1 << 42;

/// And from this one on for supersteps of BSPlib on the shipped engine:
/// [`crate::stage`].
pub const SUPERSTEPS: u64 = 1 << 44;

impl Scenario {
    /// The scenario that a seed names.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let r = &mut rng;
        let nodes = if r.one_in(3) {
            2
        } else {
            r.between(2, 16) as usize
        };
        let suite = r.pick(&[
            Suite::Null,
            Suite::Checksum,
            Suite::Aegis,
            Suite::Aes,
            Suite::ChaCha,
        ]);
        let checked = suite != Suite::Null;
        let calm = r.one_in(8);
        let faults = faults(r, checked, calm);
        let silence_ns = r.pick(&[300 * MS, 1000 * MS, 3000 * MS]);
        let kills = if calm || r.one_in(2) {
            0
        } else {
            r.between(1, 4) as u32
        };
        let stay_dead = kills > 0 && r.one_in(4);
        let move_every = r.pick(&[0, 0, 1, 7, 50]);
        // Moving copies every frame: small pools then.
        let configs = configs(r, nodes, silence_ns, stay_dead, move_every != 0);
        let pipe = if r.one_in(2) {
            Pipe::FREE
        } else {
            Pipe::new(
                r.pick(&[100_000_000, 1_000_000_000, 10_000_000_000]),
                r.pick(&[32_000, 64_000, 300_000]),
            )
            .marking(r.pick(&[30_000, u64::MAX]))
        };
        let total = r.scale(50, 3000);
        let crowded = configs.iter().any(|c| (c.active as usize) + 1 < nodes);
        let blocked = if r.one_in(3) {
            // Drawn aside there, so that what follows is as in earlier versions.
            let mut aside = r.fork(BLOCKED);
            let r = if crowded { &mut aside } else { &mut *r };
            let first = r.index(nodes);
            let count = r.between(1, nodes as u64) as usize;
            (0..count).map(|i| (first + i) % nodes).collect()
        } else {
            Vec::new()
        };
        let partitions = if calm || r.one_in(2) {
            0
        } else {
            r.between(1, 3) as u32
        };
        Self {
            seed,
            nodes,
            suite,
            configs,
            mode: r.pick(&[Mode::Lan, Mode::Lan, Mode::Shared]),
            faults,
            pipe,
            inbox: if r.one_in(2) { 4096 } else { 200 },
            pattern: r.pick(&[Pattern::All, Pattern::All, Pattern::Incast, Pattern::Ring]),
            messages: (total / nodes as u64).max(3) as u32,
            gap_ns: r.scale(US, 500 * US),
            long_ppm: r.pick(&[0, 20_000, 100_000]),
            long_max: r.scale(2_000, 200_000),
            reply_ppm: r.pick(&[0, 200_000, 900_000]),
            not_now_ppm: r.pick(&[0, 0, 50_000, 300_000]),
            // A stopped flow that loses its connection is not stopped in the next one.
            stop_ppm: if crowded {
                0
            } else {
                r.fork(STOPS).pick(&[0, 0, 5_000, 100_000])
            },
            refuse_ppm: r.pick(&[0, 0, 20_000, 200_000]),
            blocked,
            kills,
            stay_dead,
            told: r.one_in(2),
            partitions,
            partition_ns: r.scale(MS, 2 * silence_ns),
            path_mtu: if !calm && r.one_in(4) {
                r.between(1232, 1472) as usize
            } else {
                0
            },
            late_ns: if r.one_in(3) {
                r.scale(100 * US, 2 * silence_ns)
            } else {
                0
            },
            move_every,
            wake_ns: r.pick(&[0, 2 * US, 60 * US, 2 * MS]),
            link_ns: r.pick(&[0, 0, 10 * US, 500 * US]),
            burst: r.pick(&[1, 8, 64]),
            forge_ppm: if checked && r.one_in(2) { 20_000 } else { 0 },
            chaos_ns: 20_000 * MS,
            drain_ns: 60_000 * MS + 20 * silence_ns,
            close_early: r.one_in(4),
            networks: 1,
            other_faults: Faults::default(),
            outages: 0,
            outage_ns: 0,
            steering: Steering::FAST,
            detours: 0,
            detour_ns: 0,
        }
        .on_networks(r)
        .with_arrivals(r)
    }
}

impl Scenario {
    /// Draws further networks, for seeds from [`TWO_NETWORKS`] to [`TWO_WAYS`].
    fn on_networks(mut self, r: &mut Rng) -> Self {
        if !(TWO_NETWORKS..TWO_WAYS).contains(&self.seed) {
            return self;
        }
        self.networks = 2;
        let checked = self.suite != Suite::Null;
        let calm = self.faults.loss == 0;
        self.other_faults = faults(r, checked, calm);
        self.outages = r.between(0, 4) as u32;
        self.outage_ns = r.scale(MS, self.configs[0].silence_ns);
        let nodes = self.nodes as u64;
        for config in &mut self.configs {
            // Now and then too few for all.
            config.more_paths = r.pick(&[nodes, nodes, 1]) as u32;
        }
        self
    }
}

impl Scenario {
    /// Draws how packets arrive: past the kernel, through it, or both. Seeds below
    /// [`TWO_WAYS`] keep to the first.
    fn with_arrivals(mut self, r: &mut Rng) -> Self {
        if self.seed < TWO_WAYS {
            return self;
        }
        self.steering = Steering {
            queues: r.pick(&[1, 1, 2, 4]),
            strays: r.pick(&[0, 10_000, 300_000]),
            both: r.pick(&[0, 100_000, 1_000_000]),
            off: false,
        };
        self.detours = r.between(0, 6) as u32;
        self.detour_ns = r.scale(10 * US, 20 * MS);
        self
    }
}

pub(crate) fn faults(r: &mut Rng, checked: bool, calm: bool) -> Faults {
    let mut faults = Faults {
        delay_ns: r.scale(US, 2 * MS),
        ..Faults::default()
    };
    if calm {
        return faults;
    }
    let level = |r: &mut Rng, max: u64| {
        if r.one_in(3) {
            0
        } else {
            r.scale(100, max) as u32
        }
    };
    faults.jitter_ns = u64::from(level(r, 500_000));
    faults.loss = level(r, 300_000);
    if r.one_in(3) {
        faults.burst_start = r.scale(100, 20_000) as u32;
        faults.burst_end = r.scale(20_000, 500_000) as u32;
        faults.burst_loss = r.between(300_000, 1_000_000) as u32;
    }
    faults.repeat = level(r, 200_000);
    faults.repeat_ns = r.scale(US, 500 * MS);
    faults.reorder = level(r, 300_000);
    faults.reorder_ns = r.scale(US, 5 * MS);
    faults.mark = level(r, 100_000);
    if checked {
        faults.corrupt = level(r, 50_000);
        faults.truncate = level(r, 20_000);
    }
    faults
}

fn configs(
    r: &mut Rng,
    nodes: usize,
    silence_ns: u64,
    stay_dead: bool,
    small: bool,
) -> Vec<Config> {
    let small = small || r.one_in(3);
    let jumbo = r.one_in(8);
    let wrap = r.one_in(2);
    let rekey = r.pick(&[u64::MAX, u64::MAX, 1000, 50]);
    let idle_ns = r.pick(&[10_000 * MS, 10_000 * MS, 20 * MS]);
    let few_active = r.one_in(5);
    let flows = (r.between(1, 8) + r.fork(MANY_FLOWS).pick(&[0, 8])) as u16;
    (0..nodes)
        .map(|_| {
            let packet_max = match r.pick(&[1232, 1280, 1452, 1472, 1472, 8972]) {
                8972 if !jumbo => 1472,
                size => size,
            };
            let frames = if small {
                r.between(64, 128)
            } else {
                r.between(256, 1024)
            };
            let mut config = Config {
                peers: nodes as u32,
                active: if few_active {
                    r.between(2, nodes as u64)
                } else {
                    nodes as u64
                } as u32,
                frames: frames as u32,
                frame_bytes: if packet_max > 2000 { 9216 } else { 2048 },
                longs: r.between(2, 32) as u32,
                flows,
                packet_max,
                receive_packets: r.pick(&[16, 64, 184]),
                hold_frames: r.between(8, frames / 4) as u32,
                queue_frames: r.between(8, frames) as u32,
                silence_ns,
                idle_ns,
                rekey_packets: rekey,
                ..Config::default()
            };
            if stay_dead {
                config.connect_ns = 4 * silence_ns;
            }
            if wrap {
                let near = r.between(1, 2000);
                config.first_packet = r.pick(&[
                    (1 << 32) - near,
                    (1 << 31) - near,
                    (1 << 63) - near,
                    portolan_proto::FIRST_PACKET_MAX,
                ]);
                config.first_message = r.pick(&[u32::MAX, i32::MAX as u32]) - r.below(40) as u32;
            }
            config
        })
        .collect()
}
