extern crate std;

use std::vec::Vec;

use super::*;

/// A path whose round trips take 2 ms.
struct Run {
    rerouting: Rerouting,
    now: u64,
    number: u64,
    asked: Vec<Reroute>,
}

const ROUND: u64 = 2_000_000;

impl Run {
    fn new() -> Self {
        Self {
            rerouting: Rerouting::NONE,
            now: 1_000_000_000,
            number: 100,
            asked: Vec::new(),
        }
    }

    /// What a round trip shows in which `acked` packets come back, of a path
    /// that limits.
    fn pass(&mut self, acked: u32) -> Sight {
        self.now += ROUND;
        let largest = self.number;
        self.number += u64::from(acked);
        Sight {
            now: self.now,
            largest,
            next: self.number,
            acked,
            idle: false,
            narrow: true,
            full: true,
        }
    }

    /// Such a round trip, of a path that limits or does not.
    fn round(&mut self, acked: u32, limits: bool) -> Option<Reroute> {
        let sight = Sight {
            narrow: limits,
            ..self.pass(acked)
        };
        if self.rerouting.is_off(self.now, sight.idle) {
            return None;
        }
        let how = self.rerouting.see(&sight, || 0)?;
        self.rerouting.rerouted(self.number);
        self.asked.push(how);
        Some(how)
    }

    /// Round trips until something is asked for; how many that took.
    fn until_asked(&mut self, acked: u32) -> (Reroute, u32) {
        for rounds in 1.. {
            if let Some(how) = self.round(acked, true) {
                return (how, rounds);
            }
            assert!(rounds < 100_000, "nothing is asked for");
        }
        unreachable!()
    }
}

/// The round that begins a span before it is judged counts for none.
const TWO_SPANS: u32 = 2 * ROUNDS as u32 + 1;

#[test]
fn a_way_is_left_after_two_spans_that_it_limits() {
    let mut run = Run::new();
    assert_eq!(run.until_asked(50), (Reroute::Leave, TWO_SPANS));
    // Up to three more, as chance has it.
    let mut run = Run::new();
    let mut rounds = 0;
    loop {
        rounds += 1;
        let sight = run.pass(50);
        if run.rerouting.see(&sight, || 7).is_some() {
            break;
        }
    }
    assert_eq!(rounds, 5 * u32::from(ROUNDS) + 1);
}

#[test]
fn what_does_not_limit_is_not_left() {
    for (narrow, full, idle) in [
        (false, true, false),
        (true, false, false),
        (true, true, true),
    ] {
        let mut run = Run::new();
        for _ in 0..1_000 {
            let sight = Sight {
                idle,
                narrow,
                full,
                ..run.pass(50)
            };
            if !run.rerouting.is_off(run.now, idle) {
                assert_eq!(run.rerouting.see(&sight, || 0), None);
            }
        }
    }
    // Nor what limits five round trips of sixteen less, nor a single span.
    let mut run = Run::new();
    for round in 0..1_000 {
        assert_eq!(run.round(50, round % 16 < 11), None);
    }
    for round in 0..1_000 {
        assert_eq!(run.round(50, round % 48 < 17), None);
    }
}

#[test]
fn a_better_way_is_kept_for_a_second_at_least() {
    let mut run = Run::new();
    run.until_asked(50);
    for _ in 0..ROUNDS_SETTLE + ROUNDS {
        assert_eq!(run.round(70, true), None);
    }
    let kept = run.now;
    assert_eq!(run.until_asked(70).0, Reroute::Leave);
    assert!(run.now - kept >= REST_NS, "after {} ns", run.now - kept);
}

#[test]
fn after_six_ways_that_are_no_better_it_returns_and_rests_ever_longer() {
    let mut run = Run::new();
    let mut pauses = Vec::new();
    for _ in 0..9 {
        assert_eq!(run.until_asked(50).0, Reroute::Leave);
        for _ in 1..TRIES {
            assert_eq!(
                run.until_asked(60),
                (Reroute::Next, u32::from(ROUNDS_SETTLE + ROUNDS)),
                "a fifth better is not enough"
            );
        }
        assert_eq!(run.until_asked(50).0, Reroute::Return);
        let rested = run.now;
        while run.rerouting.is_off(run.now, false) {
            run.now += ROUND;
        }
        pauses.push((run.now - rested) / REST_NS);
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
}

#[test]
fn a_way_that_is_much_worse_is_not_judged_twice() {
    let mut run = Run::new();
    run.until_asked(50);
    assert_eq!(run.until_asked(30), (Reroute::Next, ROUNDS_SETTLE.into()));
}

#[test]
fn where_too_little_is_sent_nothing_is_judged_and_the_past_goes_out_of_date() {
    let mut run = Run::new();
    run.until_asked(50);
    for _ in 0..100 {
        assert_eq!(run.round(50, false), None);
    }
    assert_eq!(run.rerouting.phase, Phase::Judge);
    run.now += STALE_NS;
    for _ in 0..ROUNDS {
        assert_eq!(run.round(1, true), None);
    }
    assert_eq!(run.rerouting.phase, Phase::Watch);
}

#[test]
fn a_link_that_cannot_is_asked_once_a_minute() {
    let mut run = Run::new();
    run.until_asked(50);
    run.rerouting.cannot(run.now);
    let asked = run.now;
    assert_eq!(run.until_asked(50).0, Reroute::Leave);
    assert!(run.now - asked >= 64 * REST_NS);
}

#[test]
fn the_order_of_packets_by_two_ways_tells_nothing() {
    let mut rerouting = Rerouting::NONE;
    assert!(rerouting.same_way(0, 5));
    rerouting.rerouted(100);
    assert!(rerouting.same_way(98, 99) && rerouting.same_way(100, 101));
    assert!(!rerouting.same_way(99, 100) && !rerouting.same_way(3, 300));
}
