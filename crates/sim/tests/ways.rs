//! Several ways of equal cost between two hosts: one that stays congested is
//! left for a better one, and where none is better the pair rests.

use portolan_proto::congestion::Mode;
use portolan_sim::goodput::{Course, Outcomes};
use portolan_sim::net::Pipe;

const MS: u64 = 1_000_000;
const RATE: u64 = 200_000_000;

const FREE: Pipe = Pipe::new(RATE, 65_536);
/// Three quarters are others'.
const BUSY: Pipe = FREE.shared(RATE / 4 * 3);

/// Hosts whose own lines are faster than the ways between them, looked at every
/// 5 ms.
const SLOW: Course = Course {
    run_ns: 2_000 * MS,
    parts: 400,
    ..Course::SWITCH
};

fn courses(ways: &'static [Pipe]) -> impl Iterator<Item = Course> {
    let modes = [Mode::Lan, Mode::Shared].into_iter();
    modes.flat_map(move |mode| {
        [(30_000, 16), (1_000_000, 2)].map(|(message, at_once)| Course {
            mode,
            message,
            at_once,
            ways,
            ..SLOW
        })
    })
}

fn bytes(run: &Outcomes, parts: std::ops::Range<usize>) -> u64 {
    run.parts[parts].iter().map(|part| part.bytes).sum()
}

#[test]
fn a_congested_way_is_left_for_a_free_one() {
    let mut began_busy = 0;
    // A pair begins with either of them.
    for ways in [&[FREE, BUSY], &[BUSY, FREE]] {
        for course in courses(ways) {
            let run = course.run();
            let alone = Course {
                ways: &[FREE],
                ..course
            }
            .run();
            let [start, free_start] = [&run, &alone].map(|run| bytes(run, 0..5));
            let [late, free] = [&run, &alone].map(|run| bytes(run, 100..400));
            println!("{start} of {free_start} bytes, then {late} of {free}");
            began_busy += u32::from(start * 2 < free_start);
            // The searches that follow are in vain and cost a little.
            assert!(late * 100 >= free * 95, "{late} of {free} bytes");
            // What is still on a way that was left is overtaken, not sent again.
            let sender = run.sender;
            assert!(sender.rerouted > 0);
            assert!(
                sender.spurious * 500 < sender.data_packets_sent,
                "{sender:?}"
            );
        }
    }
    assert_eq!(began_busy, 4, "of eight runs");
}

#[test]
fn where_no_way_is_better_a_pair_rests_soon() {
    for ways in [&[FREE][..], &[BUSY], &[BUSY, BUSY], &[FREE, FREE]] {
        for course in courses(ways) {
            let run = course.run();
            let fixed = Course {
                ways: &ways[..1],
                ..course
            };
            let [all, without] = [&run, &fixed.run()].map(|run| bytes(run, 0..400));
            println!("{all} of {without} bytes, {} changes", run.sender.rerouted);
            // Fourteen changes in two seconds may cost one a queue's worth of losses.
            assert!(all * 100 >= without * 92, "{all} of {without} bytes");
            // Seven changes at the start, seven a second later, then none.
            assert!(
                (1..=14).contains(&run.sender.rerouted),
                "{} changes",
                run.sender.rerouted
            );
        }
    }
}

#[test]
fn who_is_not_kept_back_by_the_way_does_not_change_it() {
    // Short messages, one at a time; and ways faster than the receiver's buffer
    // lets through.
    const WIDE: Pipe = Pipe::new(100_000_000_000, 1_000_000);
    for mode in [Mode::Lan, Mode::Shared] {
        let short = Course {
            mode,
            message: 20_000,
            at_once: 1,
            ways: &[BUSY, FREE],
            ..SLOW
        };
        let fast = Course {
            mode,
            up: WIDE,
            down: WIDE,
            ways: &[WIDE, WIDE],
            ..SLOW
        };
        for course in [short, fast] {
            let run = course.run();
            assert_eq!(run.sender.rerouted, 0, "{:?}", run.parts.last());
        }
    }
}
