//! Runs seeds and says which failed and how to see it again.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cluster::{Cluster, Summary};
use crate::meeting::Meeting;
use crate::scenario::{MEETING, STAGE, SUPERSTEPS, Scenario};
use crate::stage::Stage;
use crate::stage::plan::Plan;

thread_local! {
    static WHERE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A run that broke a rule.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "seed {seed}: {what}\nagain: cargo run --release -p portolan-sim --bin soak -- --seed {seed} \
     --trace"
)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// What was seen.
    pub what: String,
}

/// Runs `body`; a panic inside becomes an error that says where it was.
///
/// # Errors
/// The panic's message and place.
pub fn caught<R>(body: impl FnOnce() -> R) -> Result<R, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // Only threads that run seeds; others' panics are told as ever.
            let ours = WHERE.with_borrow_mut(|place| {
                if let Some(text) = place {
                    *text = info.to_string();
                }
                place.is_some()
            });
            if !ours {
                previous(info);
            }
        }));
    });
    WHERE.set(Some(String::new()));
    let result = panic::catch_unwind(AssertUnwindSafe(body));
    let text = WHERE.take().unwrap_or_default();
    result.map_err(|_| text)
}

/// Runs one seed.
///
/// # Errors
/// [`Failure`] if it broke a rule.
pub fn run_seed(seed: u64, trace: bool) -> Result<Summary, Failure> {
    let fail = |what| Failure { seed, what };
    if (MEETING..SUPERSTEPS).contains(&seed) {
        let met = caught(|| Meeting::new(seed, trace).run());
        return met.map_err(fail);
    }
    if seed >= STAGE {
        return run_plan(Plan::from_seed(seed), trace).map_err(fail);
    }
    let scenario = caught(|| Scenario::from_seed(seed)).map_err(fail)?;
    let mut cluster = caught(|| Cluster::new(scenario, trace)).map_err(fail)?;
    let result = caught(|| cluster.run());
    if trace && result.is_err() {
        // The state may be broken: that must not hide the first finding.
        let _ = caught(|| println!("{}", cluster.report()));
    }
    result.map_err(fail)
}

/// Runs the shipped engine as a plan says.
///
/// # Errors
/// The broken rule.
pub fn run_plan(plan: Plan, trace: bool) -> Result<Summary, String> {
    let mut stage = caught(|| Stage::new(plan, trace))?;
    let result = caught(|| stage.run());
    if trace && result.is_err() {
        let _ = caught(|| println!("{}", stage.report()));
    }
    result
}

/// Runs seeds `from..from + count` on `threads` threads; `report` hears the
/// number done now and then and every failure. Gives the sum of the figures.
pub fn run_seeds(
    from: u64,
    count: u64,
    threads: usize,
    report: impl Fn(u64, Option<Failure>) + Sync,
) -> Summary {
    let next = AtomicU64::new(0);
    let work = || {
        let mut sum = Summary::default();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= count {
                return sum;
            }
            match run_seed(from + i, false) {
                Ok(summary) => {
                    sum.add(&summary);
                    report(i + 1, None);
                }
                Err(failure) => report(i + 1, Some(failure)),
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let mut sum = Summary::default();
        for worker in workers {
            if let Ok(part) = worker.join() {
                sum.add(&part);
            }
        }
        sum
    })
}
