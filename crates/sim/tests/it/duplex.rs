//! Messages in both directions of the same cables at once: acknowledgements wait behind
//! the messages of their own direction, and that must not be taken for congestion.

use portolan_sim::goodput::Course;
use portolan_sim::net::{Faults, Pipe};

/// Goodput of a direction, bytes, between hosts whose own queues hold all that they send.
fn goodput(mbit: u64, at_once: u32, both_ways: bool) -> f64 {
    let rate = mbit * 1_000_000;
    let course = Course {
        up: Pipe::new(rate, 64 << 20),
        down: Pipe::new(rate, 64 << 10),
        faults: Faults {
            delay_ns: 10_000,
            ..Course::SWITCH.faults
        },
        both_ways,
        at_once,
        parts: 1,
        run_ns: 1_000_000_000,
        ..Course::SWITCH
    };
    let directions = 1.0 + f64::from(u8::from(both_ways));
    course.run().parts[0].bytes as f64 / directions
}

#[test]
fn traffic_in_the_other_direction_costs_little_more_than_its_acknowledgements() {
    for (mbit, at_once, least) in [(200, 1, 0.9), (200, 2, 0.9), (1_000, 2, 0.96)] {
        let [one_way, both_ways] = [false, true].map(|both| goodput(mbit, at_once, both));
        assert!(
            both_ways >= least * one_way,
            "{mbit} Mbit/s, {at_once} messages: {both_ways} of {one_way} bytes"
        );
    }
}
