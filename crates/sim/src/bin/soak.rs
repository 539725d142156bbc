//! Runs the cluster simulator over many seeds, or one in detail.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use portolan_sim::cluster::Cluster;
use portolan_sim::fate::FateList;
use portolan_sim::run::{caught, run_seed, run_seeds};
use portolan_sim::scenario::{MEETING, STAGE, SUPERSTEPS, Scenario};
use portolan_sim::search::Case;
use portolan_sim::stage::plan::Plan;

const USAGE: &str = "\
soak --seeds N [--from N] [--threads N] [--keep-going]   run many seeds
soak --seed N [--trace] [--record FILE] [--fates FILE]   run one

soak --search [--states N]                                every order of a small case

A run follows from its seed alone. --record writes every packet's fate,
--fates takes them from such a file instead of from chance.";

#[derive(Default)]
struct Options {
    seeds: Option<u64>,
    from: u64,
    threads: Option<usize>,
    keep_going: bool,
    seed: Option<u64>,
    trace: bool,
    record: Option<String>,
    fates: Option<String>,
    search: bool,
    states: Option<u64>,
}

fn options() -> Result<Options, String> {
    let mut o = Options::default();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        let number = |text: String| {
            text.parse::<u64>()
                .map_err(|_| format!("{arg} needs a number, not `{text}`"))
        };
        match arg.as_str() {
            "--seeds" => o.seeds = Some(number(value()?)?),
            "--from" => o.from = number(value()?)?,
            "--threads" => o.threads = Some(number(value()?)? as usize),
            "--keep-going" => o.keep_going = true,
            "--seed" => o.seed = Some(number(value()?)?),
            "--trace" => o.trace = true,
            "--record" => o.record = Some(value()?),
            "--search" => o.search = true,
            "--states" => o.states = Some(number(value()?)?),
            "--fates" => o.fates = Some(value()?),
            _ => return Err(format!("unknown option `{arg}`\n{USAGE}")),
        }
    }
    if o.seeds.is_none() && o.seed.is_none() && !o.search {
        return Err(USAGE.into());
    }
    Ok(o)
}

fn one(seed: u64, o: &Options) -> Result<(), String> {
    if (STAGE..MEETING).contains(&seed) || seed >= SUPERSTEPS {
        println!("{:#?}", Plan::from_seed(seed));
    }
    let scenario = Scenario::from_seed(seed);
    if seed < STAGE {
        println!("{scenario:#?}");
    }
    if seed >= STAGE || o.record.is_none() && o.fates.is_none() {
        let summary = run_seed(seed, o.trace).map_err(|f| f.to_string())?;
        println!("{summary:#?}");
        return Ok(());
    }
    let mut cluster = Cluster::new(scenario, o.trace);
    if let Some(path) = &o.fates {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
        cluster.set_script(FateList::parse(&text).map_err(|e| format!("{path}: {e}"))?);
    }
    if o.record.is_some() {
        cluster.start_record();
    }
    let result = caught(|| cluster.run());
    if let Some(path) = &o.record {
        let text = cluster.take_record().to_string();
        std::fs::write(path, text).map_err(|e| format!("{path}: {e}"))?;
    }
    println!("{:#?}", result?);
    Ok(())
}

fn many(count: u64, o: &Options) -> Result<(), String> {
    let threads = o
        .threads
        .or_else(|| std::thread::available_parallelism().ok().map(usize::from))
        .unwrap_or(1);
    let started = Instant::now();
    let failures = AtomicU64::new(0);
    let sum = run_seeds(o.from, count, threads, |done, failure| {
        if let Some(failure) = failure {
            failures.fetch_add(1, Ordering::Relaxed);
            eprintln!("FAILED {failure}");
            if !o.keep_going {
                std::process::exit(1);
            }
        }
        if done.is_multiple_of((count / 100).max(100)) {
            let seconds = started.elapsed().as_secs_f64();
            println!("{done} of {count} seeds, {seconds:.0} s");
        }
    });
    println!("{sum:#?}");
    match failures.into_inner() {
        0 => {
            println!("{count} seeds from {} passed", o.from);
            Ok(())
        }
        n => Err(format!("{n} of {count} seeds failed")),
    }
}

/// Case after case, each searched to its end or until it has seen so many
/// states.
fn search(o: &Options) -> Result<(), String> {
    for case in Case::ALL {
        let started = Instant::now();
        let seen = case.search(o.states.unwrap_or(u64::MAX))?;
        let seconds = started.elapsed().as_secs_f64();
        println!("{case:?}: {seen}, {seconds:.1} s");
    }
    Ok(())
}

fn main() -> ExitCode {
    let result = options().and_then(|o| match (o.seed, o.seeds) {
        _ if o.search => search(&o),
        (Some(seed), _) => one(seed, &o),
        (None, Some(count)) => many(count, &o),
        (None, None) => Err(USAGE.into()),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}
