//! Matched messages and one-sided memory over the protocol over networks that
//! lose, repeat, reorder, mark, spoil and drop what finds no room, that shrink
//! and fail; that are cut for a while; and with either side killed at every
//! step, for good or to come back in a new life.

#[path = "rendezvous/check.rs"]
mod check;
#[path = "rendezvous/node.rs"]
mod node;
#[path = "rendezvous/program.rs"]
mod program;
#[path = "rendezvous/run.rs"]
mod run;
#[path = "rendezvous/wires.rs"]
mod wires;

use check::{check_returned, check_survivor, check_whole};
use node::memory::Access;
use program::{Program, far_programs, programs};
use run::{Back, Kill, run};
use wires::{BRANCHED, CONGESTED, Cut, GENTLE, MARKING, NARROW, ROUGH, TWOFOLD, Wires};

#[test]
fn all_of_it_arrives_over_a_rough_network() {
    let (mut written, mut unwritten) = (0, 0);
    for program in programs() {
        for seed in 0..60 {
            for wires in [ROUGH, CONGESTED] {
                let mut outcome = run(&program, seed, &wires, None);
                check_whole(&program, &mut outcome);
                if program.near {
                    // The longer ones were copied by both sides, but where an answer
                    // waited for room.
                    let reach = outcome.reach();
                    assert!(reach.written + reach.unwritten <= 3);
                    written += reach.written;
                    unwritten += reach.unwritten;
                }
            }
        }
    }
    assert!(written > 200 && unwritten > 50, "{written} {unwritten}");
}

#[test]
fn so_it_does_where_queues_are_full() {
    let (mut full, mut marked, mut rerouted) = (0, 0, 0);
    for program in far_programs() {
        for seed in 0..30 {
            for wires in [NARROW, MARKING, BRANCHED] {
                let mut outcome = run(&program, seed, &wires, None);
                check_whole(&program, &mut outcome);
                full += u32::from(outcome.net.overflowed > 10);
                marked += u32::from(outcome.net.marked > 10);
                rerouted += outcome.nodes[0].counters().rerouted;
            }
        }
    }
    assert!(full > 300 && marked > 100, "{full} {marked}");
    assert!(rerouted > 50, "{rerouted}");
}

#[test]
fn so_it_does_where_packets_must_become_shorter() {
    let mut lost = 0;
    for program in far_programs() {
        for moment in 0..32 {
            for wires in [GENTLE, ROUGH] {
                let wires = Wires {
                    shrinking: Some((moment * 100, 1_250)),
                    ..wires
                };
                let mut outcome = run(&program, moment, &wires, None);
                check_whole(&program, &mut outcome);
                lost += u32::from(outcome.net.lost > 100);
            }
        }
    }
    assert!(lost > 150, "{lost}");
}

#[test]
fn so_it_does_where_one_of_two_networks_fails_for_good() {
    let mut given_up = 0;
    for mut program in far_programs() {
        // Whoever waits long asks for signs of life.
        program.sends.push((7, 500, 6_000_000));
        program.receives.push((7, 3_500));
        for moment in 0..32 {
            // On the first they find each other and tell of the second.
            for failing in [(0, 4_000 + moment * 500), (1, moment * 500)] {
                let wires = Wires {
                    failing: Some(failing),
                    ..TWOFOLD
                };
                let mut outcome = run(&program, moment, &wires, None);
                check_whole(&program, &mut outcome);
                for node in &mut outcome.nodes {
                    given_up += node.counters().paths_given_up;
                }
            }
        }
    }
    assert!(given_up > 200, "{given_up}");
}

/// Programs, and networks that are cut at many moments, for so long, microseconds.
fn cuts(micros: u64) -> impl Iterator<Item = (Program, Wires)> {
    let moments = far_programs().flat_map(|program| (0..32).map(move |at| (program.clone(), at)));
    moments.flat_map(move |(program, moment)| {
        let from = moment * 100;
        let ways = [[true; 2], [true, false], [false, true]];
        ways.into_iter().flat_map(move |ways| {
            let program = program.clone();
            [GENTLE, ROUGH].map(|wires| {
                let cut = Some(Cut {
                    time: from..from + micros,
                    from: ways,
                });
                (program.clone(), Wires { cut, ..wires })
            })
        })
    })
}

#[test]
fn what_is_cut_off_for_a_while_is_waited_for() {
    let mut asked = 0;
    for (program, wires) in cuts(2_000_000) {
        let mut outcome = run(&program, 7, &wires, None);
        check_whole(&program, &mut outcome);
        asked += u32::from(outcome.asked > 0);
    }
    // They were asked for signs of life.
    assert!(asked > 150, "{asked}");
}

#[test]
fn who_comes_back_after_too_long_is_dead_and_harmless() {
    let mut failed = 0;
    for (mut program, wires) in cuts(5_000_000) {
        // What is begun when the other is back ends too, some way.
        program.sends.push((7, 500, 7_000_000));
        program.receives.push((7, 7_000_100));
        if !program.accesses.is_empty() {
            let both = [(0, Access::Add, 7_000_200), (1, Access::Add, 7_000_300)];
            program.accesses.extend(both);
        }
        let mut outcome = run(&program, 7, &wires, None);
        for who in 0..2 {
            failed += check_survivor(&program, &mut outcome.nodes[who], who);
        }
    }
    assert!(failed > 500, "{failed}");
}

/// Kills a rank, and gives how many of the other's operations ended with that.
fn killed(program: &Program, seed: u64, wires: &Wires, kill: Kill) -> usize {
    let mut outcome = run(program, seed, wires, Some(kill));
    let survivor = 1 - kill.who;
    if kill.back.is_some() {
        return check_returned(program, &mut outcome, kill.who);
    }
    assert!(!program.near || outcome.reach().is_hidden(survivor));
    check_survivor(program, &mut outcome.nodes[survivor], survivor)
}

#[test]
fn a_side_that_is_killed_at_any_step_leaves_nothing_behind() {
    let mut failed = 0;
    for program in programs() {
        let steps = run(&program, 7, &GENTLE, None).steps;
        assert!(steps > 50, "{steps}");
        for step in 0..steps {
            for who in 0..2 {
                let kill = Kill {
                    who,
                    step,
                    // To notice takes seconds of the model's time.
                    told: step % 8 != 0,
                    back: None,
                };
                failed += killed(&program, 7, &GENTLE, kill);
            }
        }
    }
    assert!(failed > 500, "{failed}");
}

#[test]
fn so_it_is_on_a_rough_network() {
    for program in programs() {
        let mut failed = 0;
        for seed in 0..4 {
            let steps = run(&program, seed, &ROUGH, None).steps;
            // Each step, and whether it is told, has its seed.
            for step in (seed as usize % 2..steps).step_by(2) {
                for who in 0..2 {
                    let kill = Kill {
                        who,
                        step,
                        told: seed < 2,
                        back: None,
                    };
                    failed += killed(&program, seed, &ROUGH, kill);
                }
            }
        }
        assert!(failed > 1_000, "{failed}");
    }
}

#[test]
fn so_it_is_where_queues_are_full_and_on_two_networks() {
    for (seed, program) in (0..).zip(programs()) {
        for wires in [CONGESTED, NARROW, MARKING, BRANCHED, TWOFOLD] {
            let mut failed = 0;
            let steps = run(&program, seed, &wires, None).steps;
            for step in (seed as usize..steps).step_by(12) {
                for who in 0..2 {
                    let kill = Kill {
                        who,
                        step,
                        told: step % 24 < 12,
                        back: None,
                    };
                    failed += killed(&program, seed, &wires, kill);
                }
            }
            assert!(failed > 20, "{failed}");
        }
    }
}

#[test]
fn who_comes_back_in_a_new_life_begins_anew() {
    for (seed, program) in (0..).zip(programs()) {
        for wires in [GENTLE, ROUGH, CONGESTED, NARROW, TWOFOLD] {
            let mut failed = 0;
            let steps = run(&program, seed, &wires, None).steps;
            for (turn, step) in (seed as usize..steps).step_by(7).enumerate() {
                // So long after its death, and so long untold.
                let (after_ns, told_ns) = [
                    (0, 0),
                    (0, 20_000),
                    (50_000, 0),
                    (50_000, 3_000_000),
                    (4_000_000_000, 0),
                ][turn % 5];
                for who in 0..2 {
                    let kill = Kill {
                        who,
                        step,
                        told: turn % 2 == 0,
                        back: Some(Back { after_ns, told_ns }),
                    };
                    failed += killed(&program, seed, &wires, kill);
                }
            }
            assert!(failed > 20, "{failed}");
        }
    }
}
