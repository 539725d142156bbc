//! Sequence numbers around their wraps.

use crate::common::Rng;
use portolan_wire::{MessageNo, PacketNo, Priority};

const HALF: u64 = 1 << 31;
const LAP: u64 = 1 << 32;

fn nearest(from: u64, to: u64) -> u64 {
    PacketNo(from).nearest(PacketNo(to).low()).0
}

/// Checks P2.8.
#[test]
fn nearest_finds_what_is_less_than_half_a_lap_away() {
    let mut rng = Rng(1);
    let around = |rng: &mut Rng| match rng.below(5) {
        0 => rng.below(1 << 8),
        1 => LAP - 128 + rng.below(1 << 8),
        2 => HALF - 128 + rng.below(1 << 8),
        3 => u64::MAX - rng.below(1 << 8),
        _ => rng.next(),
    };
    for _ in 0..20_000 {
        let from = around(&mut rng);
        let step = match rng.below(3) {
            0 => rng.below(300),
            1 => HALF - 1 - rng.below(300),
            _ => rng.below(HALF),
        };
        let both = [from.checked_add(step), from.checked_sub(step)];
        for to in both.into_iter().flatten() {
            assert_eq!(nearest(from, to), to, "from {from:#x}");
        }
    }
}

/// Checks P2.8.
#[test]
fn nearest_at_its_edges() {
    // Half a lap away: down, where there is something below.
    assert_eq!(nearest(5 * LAP, 5 * LAP + HALF), 5 * LAP - HALF);
    assert_eq!(nearest(0, HALF), HALF);
    // Nothing is below zero, nothing past the end.
    assert_eq!(PacketNo(0).nearest(u32::MAX), PacketNo(0xffff_ffff));
    assert_eq!(PacketNo(7).nearest(0xffff_fff0), PacketNo(0xffff_fff0));
    assert_eq!(PacketNo(LAP).nearest(u32::MAX), PacketNo(LAP - 1));
    assert_eq!(PacketNo(LAP - 1).nearest(0), PacketNo(LAP));
    assert_eq!(
        PacketNo(u64::MAX).nearest(0),
        PacketNo(u64::MAX - (LAP - 1))
    );
    assert_eq!(
        PacketNo(u64::MAX - 9).nearest(3),
        PacketNo(u64::MAX - LAP + 4)
    );
    assert_eq!(PacketNo(u64::MAX).nearest(u32::MAX), PacketNo(u64::MAX));
}

#[test]
fn packet_numbers_go_on() {
    assert_eq!(PacketNo(LAP - 1).next(), PacketNo(LAP));
    assert_eq!(PacketNo(u64::MAX).next(), PacketNo(0));
    assert_eq!(PacketNo(0x1234_5678_9abc_def0).low(), 0x9abc_def0);
    assert!(PacketNo(LAP) > PacketNo(LAP - 1));
}

/// Checks P5.1.
#[test]
fn message_numbers_compare_by_distance() {
    let mut rng = Rng(2);
    for _ in 0..10_000 {
        let from = match rng.below(3) {
            0 => rng.below(100) as u32,
            1 => u32::MAX - rng.below(100) as u32,
            _ => rng.next() as u32,
        };
        let step = rng.next() as i32;
        let to = MessageNo(from.wrapping_add_signed(step));
        assert_eq!(to.since(MessageNo(from)), step);
    }
    let (last, first) = (MessageNo(u32::MAX), MessageNo(0));
    assert_eq!(last.next(), first);
    assert_eq!((first.since(last), last.since(first)), (1, -1));
    assert_eq!(MessageNo(1 << 31).since(first), i32::MIN);
    assert_eq!(first.since(MessageNo(1 << 31)), i32::MIN);
}

#[test]
fn priorities() {
    assert_eq!((Priority::Request.index(), Priority::Reply.index()), (0, 1));
    assert_eq!(Priority::BY_URGENCY.map(Priority::index), [1, 0]);
    assert_eq!(Priority::default(), Priority::Request);
}
