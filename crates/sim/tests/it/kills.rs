//! The shipped engine, of which a rank is killed before every step of a run: for good, or
//! to come back in a new life.

use std::ops::Range;

use portolan_sim::cluster::Summary;
use portolan_sim::run::{caught, run_plan};
use portolan_sim::scenario::{STAGE, SUPERSTEPS};
use portolan_sim::stage::Stage;
use portolan_sim::stage::plan::Plan;

/// A short run of a few ranks, without other deaths.
fn plan(seed: u64, respawn: bool) -> Plan {
    let plan = Plan::from_seed(seed);
    let several = plan.hosts.iter().any(|host| *host != plan.hosts[0]);
    Plan {
        kills: 0,
        cuts: 0,
        failing: None,
        acts: plan.acts.min(6),
        doom: None,
        respawn: respawn && several,
        told: true,
        ..plan
    }
}

/// Steps of a run, as far as faults go.
fn steps(plan: &Plan) -> u64 {
    let mut stage = Stage::new(plan.clone(), false);
    caught(|| stage.run()).unwrap_or_else(|what| panic!("{what}"));
    stage.steps()
}

fn kill_at_every_step(seeds: Range<u64>, respawn: bool) -> Summary {
    let mut sum = Summary::default();
    for seed in seeds {
        let plan = plan(seed, respawn);
        let ranks = plan.hosts.len();
        let every = (steps(&plan) / 40).max(1);
        for step in (1..40 * every).step_by(every as usize) {
            let kill_at = Some((step, step as usize % ranks));
            let killing = Plan {
                kill_at,
                ..plan.clone()
            };
            let summary = run_plan(killing, false);
            let summary = summary.unwrap_or_else(|what| panic!("{seed}, {kill_at:?}: {what}"));
            sum.add(&summary);
        }
    }
    sum
}

#[test]
fn who_is_killed_at_any_step_leaves_nothing_behind() {
    let sum = kill_at_every_step(STAGE..STAGE + 12, false);
    assert!(sum.kills > 300, "{sum:?}");
}

#[test]
fn who_comes_back_in_a_new_life_begins_anew() {
    let sum = kill_at_every_step(STAGE..STAGE + 12, true);
    assert!(sum.kills > 300, "{sum:?}");
}

#[test]
fn who_is_killed_at_any_step_of_a_superstep_is_named() {
    for respawn in [false, true] {
        let sum = kill_at_every_step(SUPERSTEPS..SUPERSTEPS + 6, respawn);
        assert!(sum.kills > 150 && sum.failed > 150, "{sum:?}");
    }
}
