//! Congestion control on scripted links: what changes its behaviour shows as a
//! change of `goldens/congestion.txt`, to be looked at in review. Written anew
//! with `UPDATE_GOLDENS=1 cargo test -p portolan-sim --test it goldens`.

use std::fmt::Write;

use portolan_proto::congestion::Mode;
use portolan_sim::goodput::{Course, Outcomes};
use portolan_sim::net::{Faults, Pipe};

const GOLDEN: &str = include_str!("../goldens/congestion.txt");

const SWITCH: Course = Course::SWITCH;

/// A network that takes so many nanoseconds from host to host.
const fn after(delay_ns: u64) -> Faults {
    Faults {
        delay_ns,
        ..Faults::NONE
    }
}

fn courses() -> [(&'static str, Course); 6] {
    [
        ("no loss", SWITCH),
        (
            "1 % loss",
            Course {
                faults: Faults {
                    loss: 10_000,
                    ..SWITCH.faults
                },
                ..SWITCH
            },
        ),
        (
            "5 % loss",
            Course {
                faults: Faults {
                    loss: 50_000,
                    ..SWITCH.faults
                },
                ..SWITCH
            },
        ),
        (
            "20 % loss",
            Course {
                faults: Faults {
                    loss: 200_000,
                    ..SWITCH.faults
                },
                ..SWITCH
            },
        ),
        (
            "rate halved at 100 ms",
            Course {
                change: (100_000_000, 500_000_000),
                ..SWITCH
            },
        ),
        (
            "bufferbloat: 100 Mbit/s, 4 MB",
            Course {
                up: Pipe::new(100_000_000, 4_000_000),
                down: Pipe::new(100_000_000, 4_000_000),
                run_ns: 1_000_000_000,
                ..SWITCH
            },
        ),
    ]
}

fn table() -> String {
    let mut text = String::from("goodput, window and round trip, part by part of a run\n");
    for (name, course) in courses() {
        for mode in [Mode::Lan, Mode::Shared] {
            let course = Course { mode, ..course };
            let run = course.run();
            let part_us = course.run_ns / u64::from(course.parts) / 1_000;
            let _ = writeln!(text, "\n{mode:?}, {name}");
            let mut row = |what: &str, of: &dyn Fn(usize) -> u64| {
                let cells: String = (0..run.parts.len())
                    .map(|i| format!("{:>7}", of(i)))
                    .collect();
                let _ = writeln!(text, "  {what:<12}{cells}");
            };
            row("kB/ms", &|i| run.parts[i].bytes / part_us);
            row("packets", &|i| u64::from(run.parts[i].window));
            row("us", &|i| run.parts[i].rtt_ns / 1_000);
            let s = run.sender;
            let _ = writeln!(
                text,
                "  data packets {}, again {}, needlessly {}, probes {}; acknowledgements {}",
                s.data_packets_sent, s.resent, s.spurious, s.probes_sent, run.receiver.acks_sent
            );
        }
    }
    text
}

#[test]
fn congestion_control_does_what_it_did() {
    let text = table();
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/goldens/congestion.txt");
        std::fs::write(path, text).unwrap();
        return;
    }
    for (i, (now, golden)) in text.lines().zip(GOLDEN.lines()).enumerate() {
        assert_eq!(now, golden, "line {} of the golden file", i + 1);
    }
    assert_eq!(text.lines().count(), GOLDEN.lines().count());
}

/// Messages of a megabyte, one at a time, between hosts whose processors are
/// the bottleneck: what gets lost must cost little more than its resending.
#[test]
fn random_loss_of_any_packet_costs_little_goodput() {
    let course = Course {
        up: Pipe::FREE,
        down: Pipe::FREE,
        faults: after(8_000),
        at_once: 1,
        parts: 1,
        ..SWITCH
    };
    let free = course.run().parts[0].bytes as f64;
    for (loss_ppm, least) in [(10_000, 0.95), (50_000, 0.9), (200_000, 0.75)] {
        let faults = Faults {
            loss: loss_ppm,
            ..course.faults
        };
        let run = Course { faults, ..course }.run();
        let bytes = run.parts[0].bytes as f64;
        let arriving = 1.0 - f64::from(loss_ppm) / 1e6;
        let kept = bytes / free / arriving;
        // Bytes of a body in the largest packet.
        let packets = run.sender.data_packets_sent as f64 * 1408.0 * arriving / bytes;
        println!("{loss_ppm} ppm: {kept:.3} of the goodput, {packets:.3} of the packets");
        assert!(kept >= least, "{loss_ppm} ppm: {kept:.3} of the goodput");
        assert!(
            packets <= 1.1,
            "{loss_ppm} ppm: {packets:.3} of the packets"
        );
    }
}

/// The same where they get lost in bursts, on the way of acknowledgements too:
/// what is sent or asked next is lost as well, until the burst is over.
#[test]
fn bursts_of_losses_are_asked_out_of() {
    let course = Course {
        up: Pipe::FREE,
        down: Pipe::FREE,
        run_ns: 1_000_000_000,
        parts: 1,
        packet_ns: 2_000,
        ..SWITCH
    };
    // Of the packets between bursts of 16 packets each so many begin one.
    for (loss_ppm, burst_start, least) in [
        (10_000, 631, 0.9),
        (50_000, 3_289, 0.7),
        (200_000, 15_625, 0.4),
    ] {
        let rate = |faults| Course { faults, ..course }.run().parts[0].bytes as f64;
        let single = rate(Faults {
            loss: loss_ppm,
            ..course.faults
        });
        let bursts = rate(Faults {
            burst_start,
            burst_end: 1_000_000 / 16,
            burst_loss: 1_000_000,
            ..course.faults
        });
        let kept = bursts / single;
        println!("{loss_ppm} ppm: {kept:.3} of the goodput with single losses");
        assert!(kept >= least, "{loss_ppm} ppm: {kept:.3}");
    }
}

/// Packets that come late, out of order or more than once, behind a line of
/// 200 Mbit/s with a buffer of 64 KB.
#[test]
fn reordering_costs_little_goodput_and_few_needless_packets() {
    let line = Course {
        up: Pipe::new(200_000_000, 64_000),
        down: Pipe::FREE,
        run_ns: 8_000_000_000,
        parts: 10,
        ..SWITCH
    };
    // 256 full packets of such a line.
    let behind_256 = 256 * 1_538 * 8 * 5;
    let reorderings = [
        (
            "repeats of one in two",
            Faults {
                repeat: 500_000,
                repeat_ns: 1_000_000,
                ..line.faults
            },
            [0.95, 0.95],
        ),
        (
            "one in a hundred overtaken by up to 256",
            Faults {
                reorder: 10_000,
                reorder_ns: behind_256,
                ..line.faults
            },
            [0.9, 0.85],
        ),
        (
            "one in four overtaken by up to 256",
            Faults {
                reorder: 250_000,
                reorder_ns: behind_256,
                ..line.faults
            },
            [0.9, 0.85],
        ),
        (
            "jitter of 1 ms",
            Faults {
                jitter_ns: 1_000_000,
                ..line.faults
            },
            [0.95, 0.95],
        ),
        (
            "jitter of 10 ms",
            Faults {
                jitter_ns: 10_000_000,
                ..line.faults
            },
            [0.85, 0.6],
        ),
        (
            "jitter of 1 ms in order",
            Faults {
                jitter_ns: 1_000_000,
                queued: true,
                ..line.faults
            },
            [0.9, 0.95],
        ),
        (
            "jitter of 10 ms in order",
            Faults {
                jitter_ns: 10_000_000,
                queued: true,
                ..line.faults
            },
            [0.45, 0.6],
        ),
    ];
    // Of each run but its beginning, in which the reordering is learnt.
    let goodput = |run: &Outcomes| run.parts[2..].iter().map(|part| part.bytes).sum::<u64>() as f64;
    for mode in [Mode::Lan, Mode::Shared] {
        let line = Course { mode, ..line };
        let free = goodput(&line.run());
        for (what, faults, least) in reorderings {
            let run = Course { faults, ..line }.run();
            let kept = goodput(&run) / free;
            let sent = run.sender;
            let needless = sent.spurious as f64 / sent.data_packets_sent as f64;
            println!("{mode:?}, {what}: {kept:.3} of the goodput, {needless:.4} needlessly again");
            let least = least[usize::from(mode == Mode::Shared)];
            assert!(kept >= least, "{mode:?}, {what}: {kept:.3} of the goodput");
            assert!(
                needless < 0.01,
                "{mode:?}, {what}: {needless:.4} needlessly"
            );
            // Where it comes and goes, half a second each.
            let run = Course {
                faults,
                now_and_then: true,
                parts: 16,
                ..line
            }
            .run();
            let harmed = run.parts.iter().skip(1).step_by(2);
            // Half of the run, and not eight of its ten parts.
            let kept = harmed.map(|part| part.bytes).sum::<u64>() as f64 / free * 0.8 / 0.5;
            println!("{mode:?}, {what}: {kept:.3} in turns");
            let least = match what {
                "jitter of 10 ms" => 0.25,
                "jitter of 10 ms in order" => 0.15,
                "jitter of 1 ms in order" => 0.5,
                _ => 0.85,
            };
            assert!(kept >= least, "{mode:?}, {what}: {kept:.3} in turns");
            let stalled = run.parts.iter().position(|part| part.bytes == 0);
            assert_eq!(stalled, None, "{mode:?}, {what}: nothing came");
        }
    }
}
