//! State of a peer that outlives its connection.
//!
//! Part of the connection while the peer is active, and parked when that is
//! freed. A peer gets a place for parked state with its first connection and
//! keeps it; there are as many places as peers.

use portolan_wire::MessageNo;

use crate::base::{Config, FLOWS_MAX, NetAddress};
use crate::inbound::KeptIn;
use crate::keys::Keys;
use crate::outbound::KeptOut;
use crate::path::KeptPath;

/// What outlives the active state of a pair. Plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Kept {
    pub nonce_theirs: u64,
    pub connection_theirs: u32,
    pub keys: Keys,
    /// Further paths that were in use in this life, a bit each.
    pub paths: u32,
}

/// Everything that is parked of a peer, with its path 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parked {
    pub pair: Kept,
    pub outbound: KeptOut,
    pub inbound: KeptIn,
    pub path: KeptPath,
}

/// [`Parked`] as words, so that untouched memory can be a table of them.
pub type PeerSnapshot = [u64; WORDS];

/// Snapshot of a peer that was never parked.
pub const NOT_PARKED: PeerSnapshot = [0; WORDS];

const WORDS: usize = 10 + 2 * FLOWS_MAX;

// Rule 4: a quiet peer costs at most 512 bytes, its `Peer` and the engine's
// part included.
const _: () = assert!(size_of::<PeerSnapshot>() <= 336);

/// A further path as parked, in a table of its own.
pub type PathSnapshot = [u64; 6];

const fn join(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

const fn part(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

impl Parked {
    /// State of a peer in a new life.
    pub fn new(config: &Config) -> Self {
        Self {
            pair: Kept::default(),
            outbound: KeptOut::new(config),
            inbound: KeptIn::default(),
            path: KeptPath::new(config.first_packet),
        }
    }

    pub fn to_words(self) -> PeerSnapshot {
        let Self {
            pair,
            outbound,
            inbound,
            path,
        } = self;
        let mut words = [0; WORDS];
        words[0] = pair.nonce_theirs;
        words[1] = path.next_number;
        words[2] = path.received;
        words[3] = path.packet_limit;
        let sizes = u32::from(path.missing) | u32::from(path.packet_max) << 16;
        words[4] = join(sizes, pair.connection_theirs);
        words[5] = join(pair.keys.sending, pair.keys.receiving);
        words[6] = join(pair.keys.sealed, pair.paths);
        words[7] = join(outbound.sent[0], outbound.sent[1]);
        words[8] = join(outbound.credit[0], outbound.credit[1]);
        words[9] = join(inbound.taken[0], inbound.taken[1]);
        for f in 0..FLOWS_MAX {
            words[10 + f] = join(outbound.next[0][f].0, outbound.next[1][f].0);
            words[10 + FLOWS_MAX + f] = join(inbound.next[0][f].0, inbound.next[1][f].0);
        }
        words
    }

    pub fn from_words(words: &PeerSnapshot) -> Self {
        let [sizes, connection_theirs] = part(words[4]);
        let [sending, receiving] = part(words[5]);
        let [sealed, paths] = part(words[6]);
        let flows = |from: usize| {
            let number = |p: usize, f: usize| MessageNo(part(words[from + f])[p]);
            [0, 1].map(|p| core::array::from_fn(|f| number(p, f)))
        };
        Self {
            pair: Kept {
                nonce_theirs: words[0],
                connection_theirs,
                keys: Keys {
                    sending,
                    receiving,
                    sealed,
                },
                paths,
            },
            outbound: KeptOut {
                sent: part(words[7]),
                credit: part(words[8]),
                next: flows(10),
            },
            inbound: KeptIn {
                taken: part(words[9]),
                next: flows(10 + FLOWS_MAX),
            },
            path: KeptPath {
                next_number: words[1],
                received: words[2],
                packet_limit: words[3],
                missing: sizes as u16,
                packet_max: (sizes >> 16) as u16,
            },
        }
    }
}

/// Parked state of a further path: the path's own, its address, and the packet
/// size that the peer's interface takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct KeptFurther {
    pub path: KeptPath,
    pub to: NetAddress,
    pub theirs: u16,
}

impl KeptFurther {
    pub fn to_words(self) -> PathSnapshot {
        let (path, ip) = (self.path, self.to.ip.as_chunks().0);
        let sizes = u32::from(path.missing) | u32::from(path.packet_max) << 16;
        let ends = u32::from(self.to.port) | u32::from(self.theirs) << 16;
        [
            path.next_number,
            path.received,
            path.packet_limit,
            join(sizes, ends),
            u64::from_le_bytes(ip[0]),
            u64::from_le_bytes(ip[1]),
        ]
    }

    pub fn from_words(words: &PathSnapshot) -> Self {
        let [sizes, ends] = part(words[3]);
        let mut ip = [0; 16];
        ip[..8].copy_from_slice(&words[4].to_le_bytes());
        ip[8..].copy_from_slice(&words[5].to_le_bytes());
        Self {
            path: KeptPath {
                next_number: words[0],
                received: words[1],
                packet_limit: words[2],
                missing: sizes as u16,
                packet_max: (sizes >> 16) as u16,
            },
            to: NetAddress {
                ip,
                port: ends as u16,
            },
            theirs: (ends >> 16) as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_survives_the_shelf() {
        let numbers = |from: u32| {
            [0, 1].map(|p| core::array::from_fn(|f| MessageNo(from + (10 * p + f) as u32)))
        };
        let path = KeptPath {
            next_number: 1 << 63,
            received: (1 << 40) + 1,
            packet_limit: (1 << 40) + 2,
            missing: 65_534,
            packet_max: 65_533,
        };
        let parked = Parked {
            pair: Kept {
                nonce_theirs: u64::MAX - 1,
                connection_theirs: u32::MAX - 3,
                keys: Keys {
                    sending: 4,
                    receiving: 5,
                    sealed: 1 << 23,
                },
                paths: 6,
            },
            outbound: KeptOut {
                sent: [6, 7],
                credit: [8, 9],
                next: numbers(100),
            },
            inbound: KeptIn {
                taken: [10, 11],
                next: numbers(u32::MAX - 100),
            },
            path,
        };
        assert_eq!(Parked::from_words(&parked.to_words()), parked);
        let further = KeptFurther {
            path,
            to: NetAddress {
                ip: core::array::from_fn(|i| 200 + i as u8),
                port: 65_532,
            },
            theirs: 65_531,
        };
        assert_eq!(KeptFurther::from_words(&further.to_words()), further);
    }
}
