//! Random one-sided operations on a random network, beside plain bytes.

mod arrivals;
mod atomics;
mod ends;
mod run;

use std::collections::BTreeMap;

use run::Run;

fn run(seed: u64, deaths: bool) -> Run {
    let size = 2 + (seed % 3) as u32;
    let mut run = Run::new(seed, size);
    for rank in 0..size {
        run.register(rank);
    }
    let steps = 60 + run.rng.below(250);
    for _ in 0..steps {
        let alive = run.alive();
        let rank = alive[run.rng.below(alive.len() as u64) as usize];
        match run.rng.below(30) {
            0..=8 => run.begin(rank),
            9 => run.register(rank),
            10 if !run.plain.regions.is_empty() => {
                let at = run.rng.below(run.plain.regions.len() as u64) as usize;
                if alive.contains(&run.plain.regions[at].rank) {
                    run.deregister(at);
                }
            }
            11 => {
                let to = run.rng.below(u64::from(size)) as u32;
                run.cluster.ranks[rank as usize].fence(to);
                *run.fences.entry((rank, to)).or_default() += 1;
            }
            12 => run.cancel(),
            13 => run.reap(),
            14 => run.compare(),
            15 if deaths && alive.len() > 1 && run.rng.chance(20) => run.kill(rank),
            _ => {
                run.carry();
            }
        }
    }
    run.drain();
    run
}

fn many(seeds: std::ops::Range<u64>, deaths: bool) {
    let mut ended: BTreeMap<&str, u32> = BTreeMap::new();
    let mut signals = 0;
    for seed in seeds {
        let run = run(seed, deaths);
        signals += run.signals;
        for (name, count) in run.ended {
            *ended.entry(name).or_default() += count;
        }
    }
    // Nothing of what it is for was left out.
    for name in ["key", "rights", "bounds", "alignment", "port"] {
        assert!(
            ended.get(name).is_some_and(|n| *n > 200),
            "{name}: {ended:?}"
        );
    }
    assert!(
        ended["done"] > 20_000 && signals > 1_000,
        "{ended:?} {signals}"
    );
}

#[test]
fn regions_hold_what_plain_bytes_hold() {
    many(0..2_000, false);
}

#[test]
fn deaths_give_all_memory_back() {
    many(10_000..12_000, true);
}
