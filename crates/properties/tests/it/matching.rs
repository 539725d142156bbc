//! The matcher beside plain lists: random calls, and all short orders of a few.

use portolan_matching::{Envelope, Selector};
use portolan_properties::{MatchStep, matching, matching_steps};
use portolan_sim::rng::Rng;

/// Runs of random calls.
const SEEDS: u64 = 1_500;

/// The shortest come first, so that what fails first is short.
#[test]
fn random_calls_meet_as_in_plain_lists() {
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed);
        let bytes: Vec<u8> = (0..8 + seed / 2).map(|_| rng.word() as u8).collect();
        matching(&bytes);
    }
}

/// Every order of so many calls.
const CALLS: u32 = 5;

#[test]
fn all_orders_of_a_few_calls_meet_as_in_plain_lists() {
    let envelope = |source, tag| Envelope { source, tag };
    let calls = [
        MatchStep::Post(Selector::from(0, 1)),
        MatchStep::Post(Selector::any(1)),
        MatchStep::Post(Selector::from(0, 0).ignoring(1)),
        MatchStep::Post(Selector::any(0).ignoring(u64::MAX)),
        MatchStep::Arrive(envelope(0, 0)),
        MatchStep::Arrive(envelope(0, 1)),
        MatchStep::Arrive(envelope(1, 1)),
        MatchStep::Peek(Selector::any(1)),
        MatchStep::Claim(Selector::any(0).ignoring(1)),
        MatchStep::ClaimTicket(0),
        MatchStep::Cancel(0),
        MatchStep::Cancel(1),
        MatchStep::Forget(0),
    ];
    for order in 0..calls.len().pow(CALLS) {
        let call = |k: u32| calls[order / calls.len().pow(k) % calls.len()];
        matching_steps([1, 2], &[0, 1, 2, 3, 4].map(call));
    }
}
