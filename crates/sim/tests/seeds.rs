//! Five hundred clusters, each from its seed alone: the ledger must find
//! nothing wrong with any of them.

use std::sync::Mutex;
use std::thread::available_parallelism;

use portolan_sim::run::{run_seed, run_seeds};

const SEEDS: u64 = 500;

/// Seeds beyond those that once broke a rule; `docs/testing.md` says which.
const REGRESSIONS: &[u64] = &[
    680, 709, 734, 852, 863, 885, 1038, 1502, 1733, 2047, 2356, 2453, 2978, 2980, 3031, 3751, 3896,
    3938, 4168, 5002, 5714, 15171, 19352,
];

#[test]
fn seeds_that_once_failed_pass() {
    for &seed in REGRESSIONS {
        run_seed(seed, false).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn five_hundred_seeds_pass() {
    let failures = Mutex::new(Vec::new());
    let threads = available_parallelism().map_or(1, usize::from);
    let sum = run_seeds(0, SEEDS, threads, |_, failure| {
        failures.lock().unwrap().extend(failure);
    });
    let text: Vec<_> = failures
        .into_inner()
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(
        text.is_empty(),
        "{} seeds failed:\n{}",
        text.len(),
        text.join("\n")
    );
    println!("{sum:?}");
}
