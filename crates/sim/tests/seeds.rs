//! Five hundred clusters, each from its seed alone: the ledger must find
//! nothing wrong with any of them, but for what is known and not mended yet.

use std::sync::Mutex;
use std::thread::available_parallelism;

use portolan_sim::run::run_seeds;

const SEEDS: u64 = 500;

/// Seeds that are known to break a rule. Each is a defect to be mended, all in
/// clusters whose pools are of the smallest size: once its seed passes, this
/// test demands that it leaves the list.
const KNOWN_TO_FAIL: &[u64] = &[215, 291, 327, 337];

#[test]
fn five_hundred_seeds_pass() {
    let failures = Mutex::new(Vec::new());
    let threads = available_parallelism().map_or(1, usize::from);
    let sum = run_seeds(0, SEEDS, threads, |_, failure| {
        failures.lock().unwrap().extend(failure);
    });
    let (known, new): (Vec<_>, Vec<_>) = failures
        .into_inner()
        .unwrap()
        .into_iter()
        .partition(|f| KNOWN_TO_FAIL.contains(&f.seed));
    for failure in &known {
        eprintln!("*** KNOWN DEFECT, not mended: {failure}");
    }
    let mended: Vec<_> = KNOWN_TO_FAIL
        .iter()
        .filter(|s| known.iter().all(|f| f.seed != **s))
        .collect();
    assert!(
        mended.is_empty(),
        "take off the list, they pass: {mended:?}"
    );
    let text: Vec<_> = new.iter().map(ToString::to_string).collect();
    assert!(
        text.is_empty(),
        "{} seeds failed:\n{}",
        text.len(),
        text.join("\n")
    );
    println!("{sum:?}");
}
