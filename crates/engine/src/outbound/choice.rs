//! Which way long messages go to a peer: in pieces through the ring, which two cores copy in
//! parallel, or in one copy by the receiver out of the sender's memory.
//!
//! Which is faster depends on how close the two cores are, and on what else they do, by a
//! factor of two either way. So both are tried now and then, and the better one is used in
//! between.

/// Classes of length, each with its own choice: from 2^16, 2^18, 2^20 bytes.
const CLASSES: usize = 3;
/// Messages in one trial.
pub(super) const TRIAL: u32 = 6;
/// Messages from one pair of trials to the next.
const PERIOD: u32 = 512;

/// The way of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShmTransfer {
    /// Through the ring.
    Ring,
    /// Copied by the receiver.
    Copy,
}

/// Measurements of a trial so far.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    messages: u32,
    bytes: u64,
    ns: u64,
}

impl Tally {
    /// Whether it moved more bytes in the same time than `other`.
    fn beats(&self, other: &Self) -> bool {
        u128::from(self.bytes) * u128::from(other.ns)
            > u128::from(other.bytes) * u128::from(self.ns)
    }
}

#[derive(Clone, Copy, Debug)]
struct Class {
    /// Messages begun since the trials began.
    begun: u32,
    copy: Tally,
    ring: Tally,
    best: ShmTransfer,
}

/// The choices for one peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    classes: [Class; CLASSES],
    /// When the last message was done, ns.
    last_done: u64,
}

/// Record of a trial's message, kept until the receiver has all of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    pub way: ShmTransfer,
    began: u64,
    bytes: u64,
}

const fn class_of(bytes: u64) -> usize {
    match bytes {
        0x10_0000.. => 2,
        0x4_0000.. => 1,
        _ => 0,
    }
}

impl Choice {
    pub const fn new() -> Self {
        Self {
            classes: [Class {
                begun: 0,
                copy: Tally {
                    messages: 0,
                    bytes: 0,
                    ns: 0,
                },
                ring: Tally {
                    messages: 0,
                    bytes: 0,
                    ns: 0,
                },
                best: ShmTransfer::Copy,
            }; CLASSES],
            last_done: 0,
        }
    }

    /// Returns the way of the next message of `bytes` bytes.
    pub const fn way(&self, bytes: u64) -> ShmTransfer {
        let class = &self.classes[class_of(bytes)];
        if class.begun < TRIAL {
            ShmTransfer::Copy
        } else if class.begun < 2 * TRIAL {
            ShmTransfer::Ring
        } else {
            class.best
        }
    }

    /// Counts a message that was begun; returns a ticket if it is one of a trial.
    pub fn begin(&mut self, way: ShmTransfer, bytes: u64, now: u64) -> Option<Ticket> {
        let class = &mut self.classes[class_of(bytes)];
        class.begun += 1;
        let ticket = Ticket {
            way,
            began: now,
            bytes,
        };
        let tried = class.begun <= 2 * TRIAL;
        if class.begun >= PERIOD {
            (class.begun, class.copy, class.ring) = (0, Tally::default(), Tally::default());
        }
        tried.then_some(ticket)
    }

    /// Whether both ways have had their trial.
    #[cfg(test)]
    pub const fn has_both(&self, bytes: u64) -> bool {
        let class = &self.classes[class_of(bytes)];
        class.copy.messages >= TRIAL && class.ring.messages >= TRIAL
    }

    /// Records that the receiver has a message. Its time counts from its begin, or from the end
    /// of the one before if that was later.
    pub fn done(&mut self, ticket: &Ticket, now: u64) {
        let ns = now.saturating_sub(ticket.began.max(self.last_done)).max(1);
        self.last_done = now;
        let class = &mut self.classes[class_of(ticket.bytes)];
        let tally = match ticket.way {
            ShmTransfer::Copy => &mut class.copy,
            ShmTransfer::Ring => &mut class.ring,
        };
        tally.messages += 1;
        // The first still overlaps with what went the other way.
        if tally.messages == 1 || tally.messages > TRIAL {
            return;
        }
        tally.bytes += ticket.bytes;
        tally.ns += ns;
        if class.copy.messages >= TRIAL && class.ring.messages >= TRIAL {
            class.best = if class.ring.beats(&class.copy) {
                ShmTransfer::Ring
            } else {
                ShmTransfer::Copy
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends messages one after the other; returns how many went by the ring.
    fn run(choice: &mut Choice, now: &mut u64, count: u32, copy_ns: u64, ring_ns: u64) -> u32 {
        let mut by_ring = 0;
        for _ in 0..count {
            let way = choice.way(1 << 20);
            let ticket = choice.begin(way, 1 << 20, *now);
            *now += match way {
                ShmTransfer::Copy => copy_ns,
                ShmTransfer::Ring => ring_ns,
            };
            by_ring += u32::from(way == ShmTransfer::Ring);
            if let Some(ticket) = ticket {
                choice.done(&ticket, *now);
            }
        }
        by_ring
    }

    #[test]
    fn the_faster_way_is_found_and_found_again() {
        let (mut choice, mut now) = (Choice::new(), 0);
        let by_ring = run(&mut choice, &mut now, 500, 100_000, 80_000);
        assert_eq!(by_ring, 500 - TRIAL);
        // The cores have moved apart.
        let by_ring = run(&mut choice, &mut now, 5_000, 100_000, 200_000);
        assert!(by_ring < 200, "{by_ring}");
    }

    #[test]
    fn most_messages_have_no_ticket() {
        let (mut choice, bytes) = (Choice::new(), 1 << 20);
        let tickets = (0..2 * PERIOD).filter_map(|_| choice.begin(choice.way(bytes), bytes, 0));
        assert_eq!(tickets.count() as u32, 4 * TRIAL);
    }

    #[test]
    fn lengths_are_told_apart() {
        let (mut choice, mut now) = (Choice::new(), 0);
        run(&mut choice, &mut now, 100, 2, 1);
        assert_eq!(choice.way(1 << 20), ShmTransfer::Ring);
        assert_eq!(choice.way(1 << 16), ShmTransfer::Copy);
    }
}
