//! What lies between the model's ranks, and what it does to packets.

use std::ops::Range;

use portolan_sim::net::{Faults, Network, Pipe};
use portolan_sim::steer::Steering;

/// A network, or several alike. Times are microseconds.
#[derive(Clone)]
pub struct Wires {
    pub faults: Faults,
    /// Cable of each rank, either direction.
    pub pipe: Pipe,
    /// Ways of equal cost, of which ranks choose one; empty: there is but one.
    pub ways: &'static [Pipe],
    /// How packets come to a rank.
    pub steering: Steering,
    /// Packets that a rank has not taken, at most.
    pub inbox: usize,
    pub networks: usize,
    /// One of the networks fails for good.
    pub failing: Option<(usize, u64)>,
    /// From then on, no packet of more bytes comes through.
    pub shrinking: Option<(u64, usize)>,
    pub cut: Option<Cut>,
}

/// Nothing comes through for a time.
#[derive(Clone)]
pub struct Cut {
    pub time: Range<u64>,
    /// From which rank.
    pub from: [bool; 2],
}

impl Wires {
    pub const fn new(faults: Faults) -> Self {
        Self {
            faults,
            pipe: Pipe::FREE,
            ways: &[],
            steering: Steering::FAST,
            inbox: usize::MAX,
            networks: 1,
            failing: None,
            shrinking: None,
            cut: None,
        }
    }

    pub fn network(&self, seed: u64) -> Network {
        let mut net = Network::new(seed, 2 * self.networks);
        net.set_faults(self.faults);
        net.up.fill(self.pipe);
        net.down.fill(self.pipe);
        net.set_ways(self.ways);
        net.inbox_max = self.inbox;
        for place in 0..net.nodes() {
            *net.steering_mut(place) = self.steering;
        }
        net
    }

    /// Lets happen what is due by `now`, ns.
    pub fn change(&self, now: u64, net: &mut Network) {
        for network in 0..self.networks {
            let failed = (self.failing).is_some_and(|it| it.0 == network && it.1 * 1_000 <= now);
            for from in 0..2 {
                let (here, there) = (2 * network + from, 2 * network + 1 - from);
                let cut = self.cut.as_ref().filter(|cut| cut.from[from]);
                net.set_cut(here, there, failed || cut.is_some_and(|it| it.lasts(now)));
                if let Some((_, bytes)) = self.shrinking.filter(|it| it.0 * 1_000 <= now) {
                    net.set_mtu(here, there, bytes);
                }
            }
        }
    }

    /// When something next happens, ns.
    pub fn next_change(&self, now: u64) -> Option<u64> {
        let times = [
            self.failing.map(|it| it.1),
            self.shrinking.map(|it| it.0),
            self.cut.as_ref().map(|cut| cut.time.start),
            self.cut.as_ref().map(|cut| cut.time.end),
        ];
        let times = times.into_iter().flatten().map(|at| at * 1_000);
        times.filter(|at| *at > now).min()
    }
}

impl Cut {
    pub fn lasts(&self, now: u64) -> bool {
        self.time.contains(&(now / 1_000))
    }
}

const DELAYED: Faults = Faults {
    delay_ns: 30_000,
    ..Faults::NONE
};

pub const GENTLE: Wires = Wires::new(DELAYED);

pub const ROUGH: Wires = Wires::new(Faults {
    jitter_ns: 20_000,
    loss: 50_000,
    burst_start: 2_000,
    burst_end: 150_000,
    burst_loss: 900_000,
    repeat: 20_000,
    repeat_ns: 100_000,
    reorder: 50_000,
    reorder_ns: 200_000,
    corrupt: 5_000,
    truncate: 2_000,
    ..DELAYED
});

/// A queue that stands still now and then, and marks what waits in it; of what
/// then comes at once a rank keeps little.
pub const CONGESTED: Wires = Wires {
    inbox: 3,
    ..Wires::new(Faults {
        jitter_ns: 300_000,
        queued: true,
        loss: 5_000,
        mark: 200_000,
        ..DELAYED
    })
};

/// A slow line with room for four packets, which drops what finds none.
pub const NARROW: Wires = Wires {
    pipe: Pipe::new(200_000_000, 6_400),
    ..GENTLE
};

/// The same with more room, which marks before it drops.
pub const MARKING: Wires = Wires {
    pipe: Pipe::new(200_000_000, 20_000).marking(4_000),
    ..GENTLE
};

/// Packets go past the kernel, through it, or both; and they may leave the
/// one of two ways that others fill.
pub const BRANCHED: Wires = Wires {
    ways: &[
        Pipe::new(100_000_000, 30_000).shared(90_000_000),
        Pipe::new(100_000_000, 30_000),
    ],
    steering: Steering {
        queues: 1,
        strays: 200_000,
        both: 100_000,
        off: false,
    },
    ..GENTLE
};

/// Two networks that lose packets.
pub const TWOFOLD: Wires = Wires {
    networks: 2,
    pipe: Pipe::new(100_000_000, 20_000),
    ..Wires::new(Faults {
        loss: 20_000,
        ..DELAYED
    })
};
