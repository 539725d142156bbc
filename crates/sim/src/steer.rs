//! Whether a packet goes past or through the kernel of the host that it is for,
//! which follows from its source port.

use crate::rng::mix;

/// How a packet comes to its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceivePath {
    /// Past the kernel.
    Fast,
    /// By the kernel's socket.
    Kernel,
}

/// How a node gets its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    /// Queues of its card, to which packets go by a hash: what comes by the
    /// first goes past the kernel.
    pub queues: u64,
    /// Of a million of these, how many go through the kernel all the same.
    pub strays: u32,
    /// Of a million, how many come both ways.
    pub both: u32,
    /// Nothing is steered past the kernel.
    pub off: bool,
}

impl Steering {
    /// Everything goes past the kernel.
    pub const FAST: Self = Self {
        queues: 1,
        strays: 0,
        both: 0,
        off: false,
    };

    /// The way by which a packet comes, and another by which it comes too;
    /// `which`: a number of its own.
    pub(crate) fn ways(&self, places: Places, which: u64) -> (ReceivePath, Option<ReceivePath>) {
        let chance = mix(which ^ 0x57ee);
        let strays = chance % 1_000_000 < u64::from(self.strays);
        if self.off || !places.hash().is_multiple_of(self.queues) || strays {
            (ReceivePath::Kernel, None)
        } else if (chance >> 32) % 1_000_000 < u64::from(self.both) {
            (ReceivePath::Fast, Some(ReceivePath::Kernel))
        } else {
            (ReceivePath::Fast, None)
        }
    }
}

/// What a card with several queues chooses by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    pub from: usize,
    pub to: usize,
    /// Source port.
    pub port: u16,
}

impl Places {
    fn hash(self) -> u64 {
        let places = (self.from as u64) << 16 | (self.to as u64) << 36;
        mix(u64::from(self.port) | places | 1 << 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_a_hosts_queues_gets_its_share_of_ports() {
        let steering = Steering {
            queues: 4,
            ..Steering::FAST
        };
        let fast = (0..4_000).filter(|&port| {
            let places = Places {
                from: 1,
                to: 2,
                port,
            };
            // The same port, the same way.
            let ways = steering.ways(places, 0);
            assert_eq!(ways, steering.ways(places, 1));
            ways == (ReceivePath::Fast, None)
        });
        assert!((900..1_100).contains(&fast.count()));
    }

    #[test]
    fn shares_are_as_asked() {
        let places = Places {
            from: 0,
            to: 1,
            port: 7,
        };
        let count = |steering: Steering, ways| {
            let all = 0..10_000;
            all.filter(|&i| steering.ways(places, i) == ways).count()
        };
        let both = Steering {
            strays: 200_000,
            both: 500_000,
            ..Steering::FAST
        };
        assert!((1_900..2_100).contains(&count(both, (ReceivePath::Kernel, None))));
        assert!(
            (3_800..4_200).contains(&count(both, (ReceivePath::Fast, Some(ReceivePath::Kernel))))
        );
        let off = Steering { off: true, ..both };
        assert_eq!(count(off, (ReceivePath::Kernel, None)), 10_000);
    }
}
