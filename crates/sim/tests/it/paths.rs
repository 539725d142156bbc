//! Two networks between two endpoints: what they carry together, and what is
//! left when one of them fails.

use portolan_proto::congestion::Mode;
use portolan_sim::goodput::{Course, Outcomes};
use portolan_sim::net::Pipe;

const MS: u64 = 1_000_000;

/// Two hosts on switches of 200 Mbit/s with room for 64 KiB, looked at every
/// 5 ms.
const SLOW: Course = Course {
    up: Pipe::new(200_000_000, 65_536),
    down: Pipe::new(200_000_000, 65_536),
    run_ns: 2_000 * MS,
    parts: 400,
    ..Course::SWITCH
};

fn bytes(run: &Outcomes, parts: std::ops::Range<usize>) -> u64 {
    run.parts[parts].iter().map(|part| part.bytes).sum()
}

fn courses() -> impl Iterator<Item = Course> {
    let modes = [Mode::Lan, Mode::Shared].into_iter();
    modes.flat_map(|mode| {
        [(30_000, 16), (1_000_000, 2)].map(|(message, at_once)| Course {
            mode,
            message,
            at_once,
            ..SLOW
        })
    })
}

#[test]
fn two_paths_carry_1_9_times_as_much_as_one() {
    for one in courses() {
        let two = Course { networks: 2, ..one };
        let [one, two] = [one, two].map(|course| course.run());
        // The first tenth of a second is the start's.
        let ratio = bytes(&two, 20..400) as f64 / bytes(&one, 20..400) as f64;
        println!("{ratio:.3} times");
        assert!(ratio >= 1.9, "{ratio:.3} times: {:?}", two.sender);
    }
}

#[test]
fn a_path_that_fails_is_left_within_50_ms_and_comes_back() {
    for failed in [0, 1] {
        for course in courses() {
            let run = Course {
                networks: 2,
                outage: (failed, 500 * MS, 1_000 * MS),
                ..course
            }
            .run();
            let one = course.run();
            assert_eq!(run.sender.paths_given_up, 1);
            // The one that is left carries what one alone would: all of it that
            // the other owed is there by then.
            let alone = bytes(&one, 100..110);
            let left = bytes(&run, 110..120);
            assert!(
                left * 10 >= alone * 9,
                "{left} of {alone} bytes after 50 ms"
            );
            assert!(
                run.parts[105..110].iter().any(|part| part.bytes > 0),
                "nothing for 50 ms"
            );
            // And with the other again both.
            let again = bytes(&run, 230..330);
            let both = 2 * bytes(&one, 230..330);
            assert!(
                again * 10 >= both * 9,
                "{again} of {both} bytes after it is back"
            );
        }
    }
}
