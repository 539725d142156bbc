//! Packets that are held back: when each goes on, and what becomes of it.
//!
//! Nothing here knows a clock or a device. The n-th packet of a port has
//! always the same fate under the same seed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::impairment::{ALL, Impairment, threshold};
use super::loss::port_seed;
use crate::failure::Result;

/// Longest that a packet waits for those that overtake it, nanoseconds:
/// there may be none.
const OVERTAKE_NS_MAX: u64 = 10_000_000;
/// Bytes of an Ethernet header, which are never changed: another host or
/// none would have got the packet.
const ETHERNET: usize = 14;

/// What was done to packets, at all ports together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct LateCounters {
    /// Packets that came by.
    pub carried: u64,
    /// Of them, those in which a byte was changed.
    pub corrupted: u64,
    /// Of them, those that others overtook.
    pub reordered: u64,
}

/// A packet that goes on at its time.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    due_ns: u64,
    /// Those of one moment go as they came.
    order: u64,
    port: usize,
    number: u64,
    packet: Vec<u8>,
}

/// A packet that goes on when enough have overtaken it.
struct Held {
    overtakers: u64,
    number: u64,
    until_ns: u64,
    packet: Vec<u8>,
}

#[derive(Default)]
struct Port {
    seed: u64,
    count: u64,
    last_due_ns: u64,
    held: Vec<Held>,
}

/// All packets that are held back.
pub(super) struct Late {
    corrupt: u64,
    reorder: u64,
    overtakers: u64,
    delay_ns: u64,
    jitter_ns: u64,
    ports: Vec<Port>,
    waiting: BinaryHeap<Reverse<Waiting>>,
    order: u64,
    counters: LateCounters,
}

/// What a number is drawn for.
#[derive(Clone, Copy)]
enum For {
    Corruption = 16,
    Byte,
    Reorder,
    Overtakers,
    Jitter,
}

impl Late {
    /// For so many ports.
    ///
    /// # Errors
    /// Shares that cannot be.
    pub fn new(with: &Impairment, ports: usize) -> Result<Self> {
        let port = |place| Port {
            seed: port_seed(with.seed, place),
            ..Port::default()
        };
        // Where nothing else is done, only those to be corrupted come here.
        let corrupt = if with.holds_back() {
            threshold("corruption", with.corrupt)?
        } else {
            ALL
        };
        Ok(Self {
            corrupt,
            reorder: threshold("reorder", with.reorder)?,
            overtakers: u64::from(with.overtakers),
            delay_ns: with.delay.us * 1000,
            jitter_ns: with.jitter.us * 1000,
            ports: (0..).take(ports).map(port).collect(),
            waiting: BinaryHeap::new(),
            order: 0,
            counters: LateCounters::default(),
        })
    }

    pub fn counters(&self) -> LateCounters {
        self.counters
    }

    /// Takes a packet to the host of `port`.
    pub fn take(&mut self, now_ns: u64, port: usize, packet: &[u8]) {
        let mut packet = packet.to_vec();
        let at = &mut self.ports[port];
        let (seed, number) = (at.seed, at.count);
        let draws = |what, share| draw(seed, what, number) >> 32 < share;
        at.count += 1;
        self.counters.carried += 1;
        if draws(For::Corruption, self.corrupt) && packet.len() > ETHERNET {
            let drawn = draw(seed, For::Byte, number);
            let place = ETHERNET + (drawn % (packet.len() - ETHERNET) as u64) as usize;
            packet[place] ^= 1 + ((drawn >> 32) % 255) as u8;
            self.counters.corrupted += 1;
        }
        if draws(For::Reorder, self.reorder) {
            self.counters.reordered += 1;
            at.held.push(Held {
                overtakers: 1 + draw(seed, For::Overtakers, number) % self.overtakers,
                number,
                until_ns: now_ns + self.delay_ns + OVERTAKE_NS_MAX,
                packet,
            });
            return;
        }
        let jitter_ns = draw(seed, For::Jitter, number) % (self.jitter_ns + 1);
        // What follows it is never sooner: as in a queue, not on many paths.
        at.last_due_ns = at.last_due_ns.max(now_ns + self.delay_ns + jitter_ns);
        self.waiting.push(Reverse(Waiting {
            due_ns: at.last_due_ns,
            order: self.order,
            port,
            number,
            packet,
        }));
        self.order += 1;
    }

    /// When the next packet goes on, nanoseconds.
    pub fn next_ns(&self) -> Option<u64> {
        let waiting = self.waiting.peek().map(|Reverse(first)| first.due_ns);
        let held = self.ports.iter().flat_map(|port| &port.held);
        held.map(|held| held.until_ns).chain(waiting).min()
    }

    /// Gives away all whose time has come, with their ports.
    pub fn release(&mut self, now_ns: u64, mut give: impl FnMut(usize, &[u8])) {
        while let Some(Reverse(first)) = self.waiting.peek()
            && first.due_ns <= now_ns
        {
            let Some(Reverse(first)) = self.waiting.pop() else {
                break;
            };
            give(first.port, &first.packet);
            let overtaken = |held: &mut Held| {
                held.overtakers -= u64::from(held.number < first.number);
                held.overtakers == 0
            };
            for held in self.ports[first.port].held.extract_if(.., overtaken) {
                give(first.port, &held.packet);
            }
        }
        for (number, port) in self.ports.iter_mut().enumerate() {
            for held in port.held.extract_if(.., |held| held.until_ns <= now_ns) {
                give(number, &held.packet);
            }
        }
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014), as `impair.h` has it.
fn draw(seed: u64, what: For, n: u64) -> u64 {
    let mut x = seed
        .wrapping_add((what as u64).wrapping_mul(0xd1b5_4a32_d192_ed03))
        .wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn with(set: impl FnOnce(&mut Impairment)) -> Late {
        let mut with = Impairment {
            overtakers: 1,
            seed: 7,
            ..Impairment::NONE
        };
        set(&mut with);
        Late::new(&with, 2).unwrap()
    }

    /// When each packet of 1,000, one every 10 us, goes on at port 1: number,
    /// nanoseconds and bytes.
    fn run(mut late: Late) -> Vec<(u16, u64, Vec<u8>)> {
        let mut gone = Vec::new();
        let mut release = |late: &mut Late, now| {
            late.release(now, |port, packet| {
                assert_eq!(port, 1);
                let number = u16::from_be_bytes([packet[0], packet[1]]);
                gone.push((number, now, packet.to_vec()));
            });
        };
        for number in 0..1000_u16 {
            let now = u64::from(number) * 10_000;
            while let Some(next) = late.next_ns().filter(|&next| next < now) {
                release(&mut late, next);
            }
            let mut packet = vec![0; 60];
            packet[..2].copy_from_slice(&number.to_be_bytes());
            late.take(now, 1, &packet);
        }
        while let Some(next) = late.next_ns() {
            release(&mut late, next);
        }
        assert_eq!(gone.len(), 1000);
        gone
    }

    #[test]
    fn delay_and_jitter_keep_the_order() {
        let late = with(|with| {
            with.delay.us = 2000;
            with.jitter.us = 1000;
        });
        let gone = run(late);
        let mut delays = Vec::new();
        for (place, (number, at, _)) in gone.iter().enumerate() {
            assert_eq!(usize::from(*number), place);
            delays.push(at - u64::from(*number) * 10_000);
        }
        assert!(delays.iter().all(|delay| (2 * MS..=3 * MS).contains(delay)));
        // The first is drawn from all of it; later ones wait behind others.
        assert!(delays.iter().any(|delay| *delay > 2 * MS + MS / 2));
        assert!(delays.iter().min() < delays.iter().max());
    }

    #[test]
    fn who_is_overtaken_is_overtaken_by_no_more_than_asked_for() {
        let reorder = |seed| {
            with(|with| {
                (with.reorder, with.overtakers, with.seed) = (10.0, 256, seed);
            })
        };
        let gone = run(reorder(7));
        let numbers: Vec<u16> = gone.iter().map(|(number, ..)| *number).collect();
        let mut most = 0;
        let mut moved = 0;
        for (place, number) in numbers.iter().enumerate() {
            let overtakers = numbers[..place]
                .iter()
                .filter(|other| *other > number)
                .count();
            most = most.max(overtakers);
            moved += usize::from(overtakers > 0);
        }
        assert!((60..140).contains(&moved), "{moved}");
        // The last ones wait for overtakers that never come; those held back
        // at the same time overtake as well.
        assert!((200..=256 + 40).contains(&most), "{most}");
        let again: Vec<u16> = run(reorder(7)).iter().map(|(number, ..)| *number).collect();
        assert_eq!(numbers, again);
        let other: Vec<u16> = run(reorder(8)).iter().map(|(number, ..)| *number).collect();
        assert_ne!(numbers, other);
    }

    #[test]
    fn a_packet_that_none_follows_goes_on_all_the_same() {
        let mut late = with(|with| with.reorder = 100.0);
        late.take(5, 0, &[1; 60]);
        let mut gone = 0;
        late.release(OVERTAKE_NS_MAX + 4, |_, _| gone += 1);
        assert_eq!(gone, 0);
        assert_eq!(late.next_ns(), Some(OVERTAKE_NS_MAX + 5));
        late.release(OVERTAKE_NS_MAX + 5, |_, _| gone += 1);
        assert_eq!((gone, late.next_ns()), (1, None));
    }

    #[test]
    fn corruption_changes_one_byte_behind_the_ethernet_header() {
        let late = with(|with| {
            (with.corrupt, with.delay.us) = (20.0, 1);
        });
        let mut places = [0; 60];
        for (number, _, packet) in run(late) {
            let mut sent = [0; 60];
            sent[..2].copy_from_slice(&number.to_be_bytes());
            let changed: Vec<usize> = (0..60).filter(|&at| packet[at] != sent[at]).collect();
            assert!(changed.len() < 2, "{changed:?}");
            changed.iter().for_each(|&at| places[at] += 1);
        }
        assert_eq!(places[..ETHERNET], [0; ETHERNET]);
        assert!(
            places[ETHERNET..]
                .iter()
                .filter(|count| **count > 0)
                .count()
                > 40
        );
        let all: i32 = places.iter().sum();
        assert!((150..250).contains(&all), "{all}");
        // Where nothing else is asked for, only those to be changed come.
        let mut late = with(|with| with.corrupt = 0.1);
        late.take(0, 0, &[0; 60]);
        assert_eq!(late.counters().corrupted, 1);
    }
}
