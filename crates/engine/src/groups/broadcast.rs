//! Broadcasts along a tree, as they travel.

use portolan_wire::{ARGS_MAX, MessageNo, Priority};

use crate::values::Meta;

/// A broadcast as it travels: this header, argument words, the ranks below this one in the
/// tree, the payload.
#[derive(Clone, Copy, Debug)]
pub struct Broadcast<'a> {
    pub root: u32,
    /// Number of the last return that the root knew of: the broadcast is meant for those lives.
    pub turn: u32,
    pub port: u16,
    pub flow: u16,
    pub priority: Priority,
    pub number: MessageNo,
    pub args: &'a [u8],
    /// Four bytes each, little-endian.
    pub ranks: &'a [u8],
    pub payload: &'a [u8],
}

const HEADER: usize = 24;

/// Returns the maximum number of bytes before the payload of a broadcast, for `args` argument
/// words and a tree of `ranks` ranks.
#[must_use]
pub const fn broadcast_head_bytes(args: usize, ranks: usize) -> usize {
    HEADER + 8 * args + 4 * ranks
}

impl<'a> Broadcast<'a> {
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let (args, ranks) = (header[9] as usize, word(16) as usize);
        if args > ARGS_MAX {
            return None;
        }
        let (args, rest) = rest.split_at_checked(8 * args)?;
        let (ranks, payload) = rest.split_at_checked(ranks.checked_mul(4)?)?;
        Some(Self {
            root: word(0),
            turn: word(20),
            port: word(4) as u16,
            flow: (word(4) >> 16) as u16,
            priority: if header[8] == 0 {
                Priority::Request
            } else {
                Priority::Reply
            },
            number: MessageNo(word(12)),
            args,
            ranks,
            payload,
        })
    }

    fn to_bytes(self) -> Vec<u8> {
        let head = broadcast_head_bytes(self.args.len() / 8, self.ranks.len() / 4);
        let mut b = Vec::with_capacity(head + self.payload.len());
        b.extend(self.root.to_le_bytes());
        b.extend(self.port.to_le_bytes());
        b.extend(self.flow.to_le_bytes());
        b.extend([self.priority as u8, (self.args.len() / 8) as u8, 0, 0]);
        b.extend(self.number.0.to_le_bytes());
        b.extend(((self.ranks.len() / 4) as u32).to_le_bytes());
        b.extend(self.turn.to_le_bytes());
        b.extend(self.args);
        b.extend(self.ranks);
        b.extend(self.payload);
        b
    }

    /// Returns the messages to this rank's children in the binomial tree.
    pub fn children(&self) -> Vec<(u32, Vec<u8>)> {
        let mut all = Vec::new();
        let mut rest = self.ranks;
        while !rest.is_empty() {
            let mine = rest.len() / 4 / 2 * 4;
            let (keep, give) = rest.split_at(mine);
            if let Some((child, below)) = give.split_first_chunk::<4>() {
                all.push((
                    u32::from_le_bytes(*child),
                    Self {
                        ranks: below,
                        ..*self
                    }
                    .to_bytes(),
                ));
            }
            rest = keep;
        }
        all
    }
}

pub const fn broadcast_meta(b: &Broadcast<'_>) -> Meta {
    Meta {
        from: b.root,
        port: b.port,
        flow: b.flow,
        priority: b.priority,
        number: b.number,
        direct: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every rank is reached once, in about log2(n) steps.
    #[test]
    fn a_tree_reaches_all() {
        for n in 0..70u32 {
            let ranks: Vec<u8> = (1..=n).flat_map(u32::to_le_bytes).collect();
            let root = Broadcast {
                root: 0,
                turn: 3,
                port: 7,
                flow: 2,
                priority: Priority::Reply,
                number: MessageNo(9),
                args: &5u64.to_le_bytes(),
                ranks: &ranks,
                payload: b"payload",
            };
            let mut seen = Vec::new();
            let mut level = root.children();
            let mut depth = 0;
            while !level.is_empty() {
                depth += 1;
                let mut next = Vec::new();
                for (rank, bytes) in level {
                    seen.push(rank);
                    let b = Broadcast::parse(&bytes).unwrap();
                    assert_eq!(
                        (b.root, b.turn, b.port, b.flow, b.number.0),
                        (0, 3, 7, 2, 9)
                    );
                    assert_eq!((b.priority, b.payload), (Priority::Reply, &b"payload"[..]));
                    assert_eq!(b.args, 5u64.to_le_bytes());
                    next.extend(b.children());
                }
                level = next;
            }
            seen.sort_unstable();
            assert_eq!(seen, (1..=n).collect::<Vec<_>>());
            assert!(
                depth <= n.checked_ilog2().map_or(0, |l| l + 1),
                "{n} ranks, {depth} steps"
            );
        }
    }

    #[test]
    fn cut_broadcasts_are_no_broadcasts() {
        let ranks = [1u32, 2, 3].map(u32::to_le_bytes).concat();
        let b = Broadcast {
            root: 0,
            turn: 0,
            port: 1,
            flow: 0,
            priority: Priority::Request,
            number: MessageNo(0),
            args: &[],
            ranks: &ranks,
            payload: &[],
        };
        let bytes = b.to_bytes();
        for cut in 0..bytes.len() {
            assert!(Broadcast::parse(&bytes[..cut]).is_none());
        }
        assert!(Broadcast::parse(&bytes).is_some());
    }
}
