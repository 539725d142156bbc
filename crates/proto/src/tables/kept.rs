//! State of a peer that outlives its connection.
//!
//! Part of the connection while the peer is active, and parked when that is
//! freed. A peer gets a place for parked state with its first connection and
//! keeps it; there are as many places as peers.

use portolan_wire::MessageNo;

use crate::base::{Config, FLOWS_MAX, NetAddress};
use crate::keys::Keys;
use crate::path::KeptPath;

/// Everything that must outlive the active state. Plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Kept {
    pub nonce_theirs: u64,
    pub connection_theirs: u32,
    pub keys: Keys,
    /// Further paths that were in use in this life, a bit each.
    pub paths: u32,
    /// Fresh chunks sent, by priority; and the credit for them.
    pub sent: [u32; 2],
    pub credit: [u32; 2],
    /// Fresh chunks taken by the caller, by priority.
    pub taken: [u32; 2],
    pub next_out: [[MessageNo; FLOWS_MAX]; 2],
    pub next_in: [[MessageNo; FLOWS_MAX]; 2],
}

/// `Kept` and `KeptPath` of path 0 as parked: words, so that untouched memory
/// can be a table of them.
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

impl Kept {
    /// State of a peer in a new life.
    pub fn new(config: &Config) -> Self {
        let message = MessageNo(config.first_message);
        // Credit of both priorities counts from there on too.
        let credit = [message.0; 2];
        Self {
            next_out: [[message; FLOWS_MAX]; 2],
            sent: credit,
            credit,
            ..Self::default()
        }
    }

    /// Whether credit allows a fresh chunk.
    #[inline]
    pub const fn has_credit(&self, priority: usize) -> bool {
        self.credit[priority].wrapping_sub(self.sent[priority]) as i32 > 0
    }

    pub fn to_words(self, path: KeptPath) -> PeerSnapshot {
        let mut words = [0; WORDS];
        words[0] = self.nonce_theirs;
        words[1] = path.next_number;
        words[2] = path.received;
        words[3] = path.packet_limit;
        let sizes = u32::from(path.missing) | u32::from(path.packet_max) << 16;
        words[4] = join(sizes, self.connection_theirs);
        words[5] = join(self.keys.sending, self.keys.receiving);
        words[6] = join(self.keys.sealed, self.paths);
        words[7] = join(self.sent[0], self.sent[1]);
        words[8] = join(self.credit[0], self.credit[1]);
        words[9] = join(self.taken[0], self.taken[1]);
        for f in 0..FLOWS_MAX {
            words[10 + f] = join(self.next_out[0][f].0, self.next_out[1][f].0);
            words[10 + FLOWS_MAX + f] = join(self.next_in[0][f].0, self.next_in[1][f].0);
        }
        words
    }

    pub fn from_words(words: &PeerSnapshot) -> (Self, KeptPath) {
        let [sizes, connection_theirs] = part(words[4]);
        let [sending, receiving] = part(words[5]);
        let [sealed, paths] = part(words[6]);
        let flows = |from: usize| {
            let number = |p: usize, f: usize| MessageNo(part(words[from + f])[p]);
            [0, 1].map(|p| core::array::from_fn(|f| number(p, f)))
        };
        let path = KeptPath {
            next_number: words[1],
            received: words[2],
            packet_limit: words[3],
            missing: sizes as u16,
            packet_max: (sizes >> 16) as u16,
        };
        let kept = Self {
            nonce_theirs: words[0],
            connection_theirs,
            keys: Keys {
                sending,
                receiving,
                sealed,
            },
            paths,
            sent: part(words[7]),
            credit: part(words[8]),
            taken: part(words[9]),
            next_out: flows(10),
            next_in: flows(10 + FLOWS_MAX),
        };
        (kept, path)
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
        let kept = Kept {
            nonce_theirs: u64::MAX - 1,
            connection_theirs: u32::MAX - 3,
            keys: Keys {
                sending: 4,
                receiving: 5,
                sealed: 1 << 23,
            },
            paths: 6,
            sent: [6, 7],
            credit: [8, 9],
            taken: [10, 11],
            next_out: numbers(100),
            next_in: numbers(u32::MAX - 100),
        };
        let path = KeptPath {
            next_number: 1 << 63,
            received: (1 << 40) + 1,
            packet_limit: (1 << 40) + 2,
            missing: 65_534,
            packet_max: 65_533,
        };
        assert_eq!(Kept::from_words(&kept.to_words(path)), (kept, path));
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
