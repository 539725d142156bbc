//! Clusters, each from its seed alone: the ledger must find nothing wrong with any of them.
//! Each commit has seeds of its own too; those that once failed are tested with every one.

use std::process::Command;
use std::sync::{LazyLock, Mutex};
use std::thread::available_parallelism;

use portolan_sim::cluster::Summary;
use portolan_sim::run::{run_seed, run_seeds};
use portolan_sim::scenario::{MEETING, NEAR, STAGE, SUPERSTEPS, TWO_NETWORKS, TWO_WAYS};

/// Number of seeds of most kinds. `make soak` runs many more.
const SEEDS: u64 = 300;

/// The first of this commit's seeds, drawn from its hash. Without git it is 0.
static DRAWN: LazyLock<u64> = LazyLock::new(|| {
    let output = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    let hash = output.map(|output| output.stdout).unwrap_or_default();
    let first = hash
        .get(..9)
        .and_then(|digits| std::str::from_utf8(digits).ok());
    first.map_or(0, |digits| u64::from_str_radix(digits, 16).unwrap())
});

/// Seeds that once broke a rule; `docs/testing.md` says which.
const REGRESSIONS: &[u64] = &[
    17, 175, 186, 197, 215, 291, 292, 327, 337, 469, 680, 709, 734, 852, 863, 885, 1038, 1502,
    1733, 2047, 2356, 2453, 2978, 2980, 3031, 3751, 3896, 3938, 3969, 4168, 5002, 5714, 15171,
    19352, 88710,
];

#[test]
fn seeds_that_once_failed_pass() {
    for &seed in REGRESSIONS {
        run_seed(seed, false).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// The same on two networks.
const TWO_NETWORKS_REGRESSIONS: &[u64] =
    &[145, 146, 328, 335, 458, 543, 674, 812, 901, 1523, 31449];

#[test]
fn seeds_on_two_networks_that_once_failed_pass() {
    for &seed in TWO_NETWORKS_REGRESSIONS {
        run_seed(TWO_NETWORKS + seed, false).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// The same of the engine.
const STAGE_REGRESSIONS: &[u64] = &[2807, 4498, 6578, 7196];

#[test]
fn seeds_of_the_engine_that_once_failed_pass() {
    for &seed in STAGE_REGRESSIONS {
        run_seed(STAGE + seed, false).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// The same of endpoints outside of a job.
const MEETING_REGRESSIONS: &[u64] = &[0, 1, 4, 5, 8, 9, 668, 1763];

/// The same of those on one host.
const NEAR_REGRESSIONS: &[u64] = &[0, 3, 597, 964, 1117, 101_119];

#[test]
fn seeds_of_meetings_on_one_host_that_once_failed_pass() {
    for &seed in NEAR_REGRESSIONS {
        run_seed(MEETING + NEAR + seed, false).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn seeds_of_meetings_that_once_failed_pass() {
    for &seed in MEETING_REGRESSIONS {
        run_seed(MEETING + seed, false).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

// Those whose figures are compared have the same seeds for each commit.
#[test]
fn five_hundred_meetings_pass() {
    let sum = pass(MEETING, 500);
    assert!(sum.kills > 1_000 && sum.delivered > 15_000, "{sum:?}");
}

#[test]
fn three_hundred_meetings_on_one_host_pass() {
    let sum = pass(MEETING + NEAR, SEEDS);
    assert!(sum.kills > 600 && sum.delivered > 9_000, "{sum:?}");
}

#[test]
fn five_hundred_seeds_of_the_engine_pass() {
    let sum = pass(STAGE, 500);
    // What is rare elsewhere happens often enough here to be tested.
    assert!(sum.placings > 10_000, "{sum:?}");
    assert!(sum.pauses > 2_000, "{sum:?}");
    assert!(sum.stops > 150 && sum.goes > 150, "{sum:?}");
}

#[test]
fn three_hundred_seeds_of_supersteps_pass() {
    let sum = pass(SUPERSTEPS, SEEDS);
    assert!(sum.supersteps > 3_000, "{sum:?}");
    // Ranks die in each phase, and others find it out.
    assert!(sum.failed > 200, "{sum:?}");
    assert!(sum.phases.iter().all(|died| *died >= 5), "{sum:?}");
}

#[test]
fn drawn_seeds_on_two_networks_pass() {
    pass(TWO_NETWORKS + *DRAWN, SEEDS);
}

#[test]
fn drawn_seeds_by_two_ways_pass() {
    pass(TWO_WAYS + *DRAWN, 200);
}

/// Checks P2.23, P3.4, P7.6.
#[test]
fn drawn_seeds_pass() {
    let sum = pass(*DRAWN, SEEDS);
    let [whole, further] = sum.foreseen;
    assert!(
        sum.quick.min(whole).min(further) > SEEDS,
        "quick ways are hardly ever free: {sum:?}"
    );
}

/// Runs `count` clusters, from a seed on; returns the sum of their figures.
fn pass(from: u64, count: u64) -> Summary {
    let failures = Mutex::new(Vec::new());
    let threads = available_parallelism().map_or(1, usize::from);
    let sum = run_seeds(from, count, threads, |_, failure| {
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
    println!("seeds from {from} on: {sum:?}");
    sum
}
