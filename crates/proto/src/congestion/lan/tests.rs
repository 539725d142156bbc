//! Steps of the judgement, one by one.

use super::*;

const US: u64 = 1_000;

/// A path with a base round trip and a window that the flight fills.
fn path(base: u64, packets: u32) -> Lan {
    Lan {
        base,
        window: fixed(packets),
        opening: false,
        ..Lan::new(1_400, 512)
    }
}

/// An epoch of a round trip in which all of the flight arrived.
fn epoch(rtt: u64, flight: u32) -> Epoch {
    Epoch {
        rtt,
        flight,
        acked: flight,
        ..Epoch::new(0, 0, false)
    }
}

#[test]
fn only_what_arrives_counts_as_flight() {
    let lossy = Epoch {
        acked: 30,
        lost: 10,
        ..epoch(US, 80)
    };
    assert_eq!(flight_of(fixed(100), &lossy), fixed(60));
    assert_eq!(flight_of(fixed(40), &lossy), fixed(30));
    assert_eq!(flight_of(fixed(40), &epoch(US, 0)), 0);
}

#[test]
fn a_cut_leaves_a_quarter_of_the_target() {
    // The target is 475 us: of 780 us, 300 + 475 / 4 are to stay.
    let mut lan = path(300 * US, 64);
    lan.cut(0, &epoch(780 * US, 64), 480 * US);
    assert_eq!(lan.window(), 34);
    let Phase::Check { rtt, flight } = lan.phase else {
        panic!("{:?}", lan.phase);
    };
    assert_eq!((rtt, flight), (780 * US, fixed(64)));
    // The cut is by half at most.
    let mut lan = path(300 * US, 64);
    lan.cut(0, &epoch(3_000 * US, 64), 2_700 * US);
    assert_eq!(lan.window(), 32);
}

#[test]
fn a_queue_that_the_peer_keeps_in_its_direction_is_allowed_for() {
    // 600 us of queue: too long for one direction, but not for two, or for one and a half.
    for (came, cut) in [
        (0, true),
        (16, true),
        (32, false),
        (64, false),
        (1_000, false),
    ] {
        let mut lan = path(100 * US, 64);
        let sample = AckSample {
            acked_packets: 64,
            came_packets: came,
            rtt_ns: Some(700 * US),
            ..AckSample::default()
        };
        lan.on_sent(64);
        lan.on_ack(EPOCH_NS, &sample);
        assert_eq!(lan.window() < 64, cut, "{came}");
        assert_eq!(matches!(lan.phase, Phase::Check { .. }), cut, "{came}");
    }
    // An epoch between two bursts of the peer's changes little; when the peer
    // sends no more, its queue is forgotten.
    let mut lan = path(100 * US, 64);
    let mut target = |came| {
        lan.epoch = Epoch {
            came,
            ..epoch(200 * US, 64)
        };
        lan.judge(0);
        lan.target()
    };
    let bursts = [64, 0, 32, 64].map(&mut target);
    assert_eq!(bursts, [825_000, 775_000, 731_250, 825_000]);
    let last = (0..64).map(|_| target(0)).last();
    assert!(last.is_some_and(|last| last < 426 * US), "{last:?}");
}

#[test]
fn in_reordering_a_delay_tells_of_a_queue_only_beyond_the_lateness_seen() {
    for (late, follows) in [(370 * US, false), (380 * US, true)] {
        let mut lan = Lan {
            late,
            mean: 2_000 * US,
            epoch: epoch(900 * US, 64),
            ..path(100 * US, 64)
        };
        lan.judge(50_000 * US);
        assert_eq!(lan.phase == Phase::Follow, follows, "{late}");
    }
}

#[test]
fn in_reordering_a_window_is_for_the_mean_time_of_packets() {
    // The mean is 2,000 us, the round trip 1,000: of 1,000 + 1,000, 300 + 475 /
    // 4 + 1,000 are to stay.
    let mut lan = Lan {
        mean: 2_000 * US,
        epoch: epoch(1_000 * US, 128),
        ..path(300 * US, 128)
    };
    lan.cut(0, &lan.epoch.clone(), 700 * US);
    assert_eq!(lan.window(), 90);
    // The window is paced, a little faster than that.
    lan.repace(PACED_NS);
    let rate = 90 * 1_400 * 17 / 16 * 1_000_000 / (775 + 1_000);
    assert!(lan.rate().abs_diff(rate) < rate / 50, "{}", lan.rate());
}

#[test]
fn reordering_seen_first_starts_again_and_losses_end_that() {
    let mut lan = Lan {
        restore: fixed(100),
        phase: Phase::Compete,
        ..path(100 * US, 64)
    };
    let sample = AckSample {
        mean_ns: 1_000 * US,
        in_flight_packets: 64,
        ..AckSample::default()
    };
    lan.on_ack(0, &sample);
    assert_eq!((lan.window(), lan.phase), (100, Phase::Follow));
    for (lost, window) in [(6, 200), (7, 50)] {
        let mut lan = lan;
        let epoch = Epoch {
            acked: 100,
            lost,
            ..epoch(100 * US, 100)
        };
        lan.epoch = epoch;
        lan.follow(0, &epoch, 0);
        assert_eq!(lan.window(), window, "{lost}");
    }
}

#[test]
fn marks_cut_by_half_their_share_and_nothing_grows_meanwhile() {
    let mut lan = path(100 * US, 64);
    lan.epoch = Epoch {
        marked: 64,
        ..epoch(100 * US, 64)
    };
    lan.follow(0, &lan.epoch.clone(), 0);
    assert_eq!(lan.window, fixed(32));
    lan.epoch = epoch(100 * US, 32);
    lan.follow(0, &lan.epoch.clone(), 0);
    assert_eq!(lan.window, fixed(33));
}

#[test]
fn in_competition_a_round_trip_that_falls_by_a_quarter_is_joined() {
    for (rtt, drains) in [(1_600 * US, false), (1_490 * US, true)] {
        let mut lan = Lan {
            phase: Phase::Compete,
            rival: Rival {
                last_rtt: 2_000 * US,
                ..Rival::default()
            },
            epoch: epoch(rtt, 64),
            ..path(100 * US, 64)
        };
        lan.judge(10 * US);
        assert_eq!(matches!(lan.phase, Phase::Drain(_)), drains, "{rtt}");
        assert_eq!(lan.window(), if drains { 16 } else { 64 });
    }
}

#[test]
fn a_cut_tells_of_others_only_if_the_queue_should_have_shrunk() {
    // The flight is a tenth smaller, or a fifth; the queue is the same.
    for (flight, strikes) in [(72, 4), (64, 8 + STRIKE_FAR)] {
        let mut lan = Lan {
            phase: Phase::Check {
                rtt: 2_000 * US,
                flight: fixed(80),
            },
            strikes: 8,
            epoch: epoch(2_000 * US, flight),
            ..path(100 * US, 80)
        };
        lan.judge(500 * US);
        assert_eq!(lan.strikes, strikes, "{flight}");
    }
    // The queue shrank as our flight did.
    let mut lan = Lan {
        phase: Phase::Check {
            rtt: 2_000 * US,
            flight: fixed(80),
        },
        strikes: 8,
        epoch: epoch(1_000 * US, 40),
        ..path(100 * US, 80)
    };
    lan.judge(500 * US);
    assert_eq!(lan.strikes, 4);
}

#[test]
fn in_competition_losses_count_with_a_full_queue_once_a_round() {
    let lan = Lan {
        phase: Phase::Compete,
        rival: Rival {
            peak: 2_100 * US,
            ..Rival::default()
        },
        epoch: epoch(2_100 * US, 100),
        ..path(100 * US, 100)
    };
    let sample = AckSample {
        acked_packets: 9,
        lost_packets: 1,
        rtt_ns: Some(2_000 * US),
        in_flight_packets: 90,
        ..AckSample::default()
    };
    let mut full = lan;
    full.compete(&sample, 10);
    assert_eq!(full.window, (fixed(100) * BETA_LOSS) >> 10);
    // The rest of that flight has no further effect.
    for _ in 0..9 {
        full.compete(&sample, 10);
    }
    assert_eq!(full.window(), 70);
    full.compete(&sample, 10);
    assert_eq!(full.window(), 49);
    // A loss that no queue explains, and a mark.
    let mut random = lan;
    random.compete(
        &AckSample {
            rtt_ns: Some(1_500 * US),
            ..sample
        },
        10,
    );
    assert_eq!(random.window, fixed(100) + ALPHA * 9 / 100);
    let mut marked = lan;
    marked.compete(
        &AckSample {
            lost_packets: 0,
            ce_packets: 1,
            ..sample
        },
        10,
    );
    assert_eq!(marked.window, (fixed(100) * BETA_MARK) >> 10);
}

#[test]
fn the_base_round_trip_rises_slowly() {
    let mut lan = Lan {
        period: Period {
            base: 200 * US,
            until: 1,
        },
        ..path(100 * US, 64)
    };
    lan.see(1, 150 * US);
    assert_eq!(lan.base, 107_250);
    assert_eq!((lan.period.base, lan.period.until), (150 * US, 1 + BASE_NS));
    lan.see(2, 90 * US);
    assert_eq!((lan.base, lan.period.base), (90 * US, 90 * US));
    assert_eq!(lan.target(), TARGET_NS + 22_500);
}

#[test]
fn a_standing_queue_is_looked_into_where_little_is_lost() {
    // A quarter of the target is 106 us; one of 16 may be lost.
    for (queue, lost, looks) in [
        (150 * US, 4, true),
        (100 * US, 4, false),
        (150 * US, 5, false),
    ] {
        let mut lan = Lan {
            look_in: 1,
            ..path(100 * US, 64)
        };
        let epoch = Epoch {
            lost,
            ..epoch(100 * US + queue, 64)
        };
        lan.epoch = epoch;
        lan.follow(0, &epoch, queue);
        assert_eq!(lan.phase == Phase::Look, looks, "{queue} {lost}");
        assert_eq!(lan.window(), if looks { 8 } else { 66 });
    }
}

#[test]
fn a_drain_ends_when_the_queue_was_ours_or_in_vain() {
    // Five sixteenths of the largest queue are 500 us.
    let at = |left: u8, queue: u64| {
        let mut lan = Lan {
            phase: Phase::Drain(left),
            rival: Rival {
                peak: 1_700 * US,
                ..Rival::default()
            },
            restore: fixed(100),
            epoch: epoch(100 * US + queue, 25),
            ..path(100 * US, 25)
        };
        lan.judge(7);
        lan
    };
    assert_eq!(at(4, 490 * US).phase, Phase::Follow);
    assert_eq!(at(4, 510 * US).phase, Phase::Drain(3));
    let vain = at(1, 510 * US);
    assert_eq!((vain.phase, vain.window()), (Phase::Compete, 100));
    assert!(odd(7) > 1);
    assert_eq!(vain.drains.due_in, 2 * DRAIN_FIRST - odd(7));
}

#[test]
fn losses_beyond_what_was_usual_cut() {
    // One loss in a hundred is usual: of 925 or so, 13 (half more than that)
    // and a chance of 8.
    for (lost, until, window) in [(25, 9, 40), (21, 9, 64), (25, 5, 64)] {
        let mut lan = Lan {
            losses: Losses {
                baseline: Some(655),
                baseline_until: until,
                ..Losses::default()
            },
            ..path(100 * US, 64)
        };
        let epoch = Epoch {
            acked: 900,
            lost,
            ..epoch(100 * US, 64)
        };
        lan.look_at_losses(5, &epoch);
        assert_eq!(lan.window(), window, "{lost} {until}");
    }
}

#[test]
fn a_trial_cuts_and_believes_what_it_sees() {
    let mut lan = path(100 * US, 64);
    let seen = |acked: u32, lost: u32| Epoch {
        acked,
        lost,
        ..epoch(100 * US, 64)
    };
    lan.look_at_losses(0, &seen(1_000, 100));
    // A quarter less; congestion if less than half the share is lost.
    assert_eq!(lan.window(), 48);
    assert_eq!(lan.phase, Phase::Trial { below: 2_978 });
    let tried = lan;
    // Too few packets to tell.
    lan.end_trial(0, &seen(900, 10), 2_978);
    assert_eq!(lan.phase, tried.phase);
    for (lost, window, tight, baseline) in [
        (10, 48, true, Some(10 << 16)),
        (20, 48, true, None),
        (80, 64, false, Some(80 << 16)),
    ] {
        let mut lan = tried;
        lan.end_trial(0, &seen(1_100 - lost, lost), 2_978);
        assert_eq!(lan.phase, Phase::Follow);
        assert_eq!((lan.window(), lan.tight), (window, tight), "{lost}");
        assert_eq!(lan.losses.baseline, baseline.map(|b: u32| b / 1_100));
    }
    // As much as half the share is no congestion.
    let mut lan = tried;
    lan.end_trial(0, &seen(1_100 - 50, 50), (50 << 16) / 1_100);
    assert!(!lan.tight);
}

#[test]
fn the_circuit_breaks_after_four_epochs_of_most_lost() {
    for (lost, breaks) in [(41, true), (39, false)] {
        let mut lan = path(100 * US, 64);
        let epoch = Epoch {
            acked: 100 - lost,
            lost,
            ..epoch(400 * US, 64)
        };
        let tripped = [(); 8].map(|()| lan.trips(&epoch, 300 * US));
        let expected = [3, 7].map(|i| (i, breaks));
        for (i, trips) in tripped.into_iter().enumerate() {
            let due = expected.iter().any(|&(at, breaks)| at == i && breaks);
            assert_eq!(trips, due, "{lost} {i}");
        }
    }
}

#[test]
fn paced_is_a_quarter_more_than_the_window_for_a_while_after_congestion() {
    let mut lan = Lan {
        epoch: epoch(140 * US, 64),
        ..path(100 * US, 64)
    };
    lan.congested(0);
    lan.repace(PACED_NS - 1);
    assert_eq!(lan.rate(), 64 * 1_400 * 5 / 4 * 1_000_000 / 140);
    lan.repace(PACED_NS);
    assert_eq!(lan.rate(), 0);
}

#[test]
fn four_probes_in_a_row_without_an_answer_start_again() {
    let mut lan = path(100 * US, 512);
    (0..3).for_each(|_| lan.on_timeout());
    lan.on_ack(
        0,
        &AckSample {
            acked_packets: 1,
            in_flight_packets: 1,
            ..AckSample::default()
        },
    );
    (0..3).for_each(|_| lan.on_timeout());
    assert_eq!(lan.window(), 512);
    lan.on_timeout();
    assert_eq!(lan.window(), INITIAL);
}
