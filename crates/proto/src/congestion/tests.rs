mod model;

extern crate std;

use super::*;
use model::{Control, Link, MS, Net, Noise, PACKET, S, US, WINDOW_MAX};

/// The bottleneck of most tests: 200 Mbit/s, 64 KiB, 100 us.
fn narrow() -> Link {
    Link::mbit(200, 65_536, 100 * US)
}

/// Two flows, the second 300 ms later; the shares in percent of the time from
/// `from` to `until`.
fn shares(link: Link, first: Flow, second: Flow, from: u64, until: u64) -> (u64, u64) {
    let mut net = Net::new(link, 1);
    add(&mut net, first, 0, u64::MAX);
    add(&mut net, second, 300 * MS, u64::MAX);
    net.run(from);
    net.reset();
    net.run(until);
    (net.percent(0, until - from), net.percent(1, until - from))
}

#[derive(Clone, Copy, Debug)]
enum Flow {
    Ours(Mode),
    Twin,
}

fn add(net: &mut Net, flow: Flow, start: u64, stop: u64) {
    match flow {
        Flow::Ours(mode) => net.ours(mode, WINDOW_MAX, start, stop),
        Flow::Twin => net.twin(start, stop),
    }
}

const LAN: Flow = Flow::Ours(Mode::Lan);
const SHARED: Flow = Flow::Ours(Mode::Shared);

/// Bottlenecks with a fifth to all of `narrow`'s buffer, in time.
fn bottlenecks() -> [Link; 6] {
    [
        narrow(),
        Link::mbit(200, 65_536, 10 * US),
        Link::mbit(200, 32_768, 100 * US),
        Link::mbit(1_000, 65_536, 10 * US),
        Link::mbit(1_000, 65_536, 100 * US),
        Link::mbit(1_000, 262_144, 50 * US),
    ]
}

fn name(link: &Link) -> (u64, u64, u64) {
    (link.rate, link.buffer, link.base)
}

#[test]
fn starts_within_bounds() {
    for mode in [Mode::Lan, Mode::Shared] {
        let congestion = Congestion::new(mode, 1400, 0);
        assert_eq!(congestion.window(), WINDOW_MIN);
        assert_eq!(congestion.rate(), 0);
        assert_eq!(congestion.mode(), mode);
    }
}

#[test]
fn the_twin_fills_the_link() {
    // The yardstick itself must be sound.
    let mut net = Net::new(narrow(), 1);
    net.twin(0, u64::MAX);
    net.run(2 * S);
    assert!(net.percent(0, 2 * S) >= 97);
    let (first, second) = shares(narrow(), Flow::Twin, Flow::Twin, S, 4 * S);
    assert!(first >= 30 && second >= 30, "{first} {second}");
}

/// Checks P8.1.
#[test]
fn lan_alone_fills_the_link_and_drops_little() {
    for link in bottlenecks() {
        let mut net = Net::new(link, 1);
        net.ours(Mode::Lan, WINDOW_MAX, 0, u64::MAX);
        net.run(S);
        let percent = net.percent(0, S);
        assert!(percent >= 96, "{:?}: {percent}", name(&link));
        // Drops at the start included.
        let packets = net.flows[0].packets;
        assert!(net.drops * 50 < packets, "{:?}: {}", name(&link), net.drops);
        net.reset();
        net.run(2 * S);
        assert!(net.percent(0, S) >= 96);
        assert!(net.queue_ns() < 600 * US, "{:?}", name(&link));
    }
}

/// Checks P8.1.
#[test]
fn lan_finds_a_buffer_too_small_to_show_a_delay() {
    for link in [
        Link::mbit(1_000, 32_768, 10 * US),
        Link::mbit(2_500, 65_536, 20 * US),
    ] {
        let mut net = Net::new(link, 1);
        net.ours(Mode::Lan, WINDOW_MAX, 0, u64::MAX);
        net.run(200 * MS);
        net.reset();
        net.run(S);
        let percent = net.percent(0, 800 * MS);
        assert!(percent >= 95, "{:?}: {percent}", name(&link));
        let packets = net.flows[0].packets;
        assert!(net.drops * 50 < packets, "{:?}: {}", name(&link), net.drops);
    }
}

/// Checks P8.1.
#[test]
fn lan_keeps_its_rate_under_random_loss() {
    for link in [narrow(), Link::mbit(1_000, 65_536, 50 * US)] {
        for (per_thousand, kept) in [(10, 95), (50, 90), (200, 80)] {
            for seed in 1..4 {
                let mut net = Net::new(link.lossy(per_thousand), seed);
                net.ours(Mode::Lan, WINDOW_MAX, 0, u64::MAX);
                net.run(S);
                let arriving = (1_000 - per_thousand) / 10;
                let least = arriving * kept / 100;
                let percent = net.percent(0, S);
                assert!(
                    percent >= least,
                    "{:?} {per_thousand}: {percent}",
                    name(&link)
                );
            }
        }
    }
}

#[test]
fn lan_keeps_its_rate_under_random_loss_without_a_bottleneck() {
    // Nothing overflows, so every loss is random: the window must stay wide.
    for per_thousand in [10, 50, 200] {
        let mut net = Net::new(Link::mbit(10_000, 1 << 20, 20 * US).lossy(per_thousand), 1);
        net.ours(Mode::Lan, WINDOW_MAX, 0, u64::MAX);
        // A false alarm may narrow it for a moment.
        let narrow = (10..210)
            .filter(|step| {
                net.run(step * MS);
                net.window(0) < 100
            })
            .count();
        assert!(narrow <= 10, "{per_thousand}: {narrow} of 200");
    }
}

/// Checks P8.1.
#[test]
fn lan_and_tcp_leave_each_other_a_quarter() {
    for link in [
        narrow(),
        Link::mbit(200, 65_536, 10 * US),
        Link::mbit(200, 32_768, 100 * US),
        Link::mbit(1_000, 65_536, 100 * US),
        Link::mbit(1_000, 262_144, 50 * US),
    ] {
        let (ours, twin) = shares(link, LAN, Flow::Twin, S, 3 * S);
        assert!(ours >= 25 && twin >= 25, "{:?}: {ours} {twin}", name(&link));
        let (twin, ours) = shares(link, Flow::Twin, LAN, S, 3 * S);
        assert!(ours >= 25 && twin >= 25, "{:?}: {ours} {twin}", name(&link));
    }
}

/// Checks P8.1.
#[test]
fn lan_flows_share() {
    for link in bottlenecks() {
        let (first, second) = shares(link, LAN, LAN, S, 2 * S);
        assert!(
            first >= 25 && second >= 25,
            "{:?}: {first} {second}",
            name(&link)
        );
        assert!(first + second >= 95, "{:?}: {first} {second}", name(&link));
    }
}

/// Checks P8.1.
#[test]
fn lan_stops_competing_once_the_others_left() {
    let mut net = Net::new(narrow(), 1);
    net.ours(Mode::Lan, WINDOW_MAX, 0, u64::MAX);
    net.ours(Mode::Lan, WINDOW_MAX, 100 * MS, u64::MAX);
    net.twin(200 * MS, S);
    net.run(600 * MS);
    net.reset();
    net.run(S);
    assert!(net.queue_ns() > 1_500 * US, "the twin must fill the queue");
    net.run(2 * S);
    net.reset();
    net.run(3 * S);
    assert!(net.queue_ns() < 800 * US, "{}", net.queue_ns());
    assert!(net.percent(0, S) >= 25 && net.percent(1, S) >= 25);
}

/// Checks P8.1.
#[test]
fn lan_shrugs_off_late_hosts() {
    // 5 us of base, spikes of 1 ms, 10 Gbit/s: five packets fill the pipe, a
    // wide window also bridges the spikes.
    let mut link = Link::mbit(10_000, 1 << 20, 5 * US);
    link.noise = Noise::Spikes(30_000);
    // How late each acknowledgement is is chance, so several runs add up.
    let (mut ours, mut best) = (0, 0);
    for seed in 1..9 {
        let mut wide = Net::new(link, seed);
        wide.fixed(WINDOW_MAX);
        wide.run(200 * MS);
        best += wide.flows[0].arrived;
        let mut net = Net::new(link, seed);
        net.ours(Mode::Lan, WINDOW_MAX, 0, u64::MAX);
        for step in 5..=200 {
            net.run(step * MS);
            assert!(net.window(0) >= 16, "{} at {step} ms", net.window(0));
        }
        ours += net.flows[0].arrived;
    }
    assert!(ours * 100 >= best * 95, "{ours} of {best}");
}

#[test]
fn lan_follows_a_receiver_that_runs_in_slices() {
    for slices in [Noise::Slices(MS, 4 * MS), Noise::Slices(2 * MS, 20 * MS)] {
        let mut link = Link::mbit(10_000, 1 << 20, 5 * US);
        link.noise = slices;
        let mut wide = Net::new(link, 1);
        wide.fixed(WINDOW_MAX);
        wide.run(500 * MS);
        let mut net = Net::new(link, 1);
        net.ours(Mode::Lan, WINDOW_MAX, 0, u64::MAX);
        net.run(500 * MS);
        let (ours, best) = (net.flows[0].arrived, wide.flows[0].arrived);
        assert!(ours * 10 >= best * 9, "{ours} of {best}");
    }
}

#[test]
fn lan_obeys_marks() {
    let mut link = Link::mbit(1_000, 1 << 20, 50 * US);
    link.mark = 30 * u64::from(PACKET);
    let mut net = Net::new(link, 1);
    net.ours(Mode::Lan, WINDOW_MAX, 0, u64::MAX);
    net.run(200 * MS);
    net.reset();
    net.run(S);
    assert!(net.percent(0, 800 * MS) >= 90);
    // The marks alone keep the queue below what the delay would allow.
    assert!(net.queue_ns() < 350 * US, "{}", net.queue_ns());
}

#[test]
fn lan_breaks_the_circuit() {
    let mut congestion = Congestion::new(Mode::Lan, 1400, WINDOW_MAX);
    let mut now = 0;
    let mut ack = |congestion: &mut Congestion, rtt: u64, acked: u32, lost: u32| {
        now += MS;
        congestion.on_sent(now, 1_400, congestion.window());
        let sample = AckSample {
            acked_packets: acked,
            rtt_ns: Some(rtt),
            lost_packets: lost,
            in_flight_packets: 0,
            ..AckSample::default()
        };
        congestion.on_ack(now, &sample);
    };
    for _ in 0..10 {
        ack(&mut congestion, 20 * US, 60, 0);
    }
    assert_eq!(congestion.window(), WINDOW_MAX);
    // Half is lost and the delay grew: whatever the reason, send less.
    for _ in 0..20 {
        ack(&mut congestion, 350 * US, 60, 60);
    }
    assert!(congestion.window() <= WINDOW_MAX / 2);
    for _ in 0..2_000 {
        ack(&mut congestion, 350 * US, 60, 60);
    }
    assert!(congestion.window() <= 8, "{}", congestion.window());
}

#[test]
fn lan_is_unpaced_until_congested() {
    let mut net = Net::new(Link::mbit(10_000, 1 << 20, 20 * US), 1);
    net.ours(Mode::Lan, WINDOW_MAX, 0, u64::MAX);
    net.run(50 * MS);
    let Control::Ours(congestion, _) = &net.flows[0].control else {
        panic!();
    };
    assert_eq!(congestion.rate(), 0);
    let mut net = Net::new(narrow(), 1);
    net.ours(Mode::Lan, WINDOW_MAX, 0, u64::MAX);
    net.run(50 * MS);
    let Control::Ours(congestion, _) = &net.flows[0].control else {
        panic!();
    };
    assert!(congestion.rate() >= narrow().rate, "{}", congestion.rate());
}

#[test]
fn shared_alone_fills_the_link() {
    for link in [narrow(), Link::mbit(200, 262_144, 5 * MS)] {
        let mut net = Net::new(link, 1);
        net.ours(Mode::Shared, 1_000, 0, u64::MAX);
        net.run(500 * MS);
        net.reset();
        net.run(3 * S);
        let percent = net.percent(0, 2_500 * MS);
        assert!(percent >= 95, "{:?}: {percent}", name(&link));
        assert!(net.drops * 100 < net.flows[0].packets);
    }
}

/// Checks P8.1.
#[test]
fn shared_is_fair_to_tcp() {
    for link in [narrow(), Link::mbit(200, 65_536, 2 * MS)] {
        for (first, second) in [(SHARED, Flow::Twin), (Flow::Twin, SHARED), (SHARED, SHARED)] {
            let (one, two) = shares(link, first, second, S, 6 * S);
            let fair = (30..=70).contains(&one) && (28..=70).contains(&two);
            assert!(fair, "{:?} {first:?} {second:?}: {one} {two}", name(&link));
        }
    }
}

#[test]
fn shared_obeys_marks() {
    let mut link = Link::mbit(200, 1 << 20, MS);
    link.mark = 30 * u64::from(PACKET);
    let mut net = Net::new(link, 1);
    net.ours(Mode::Shared, 1_000, 0, u64::MAX);
    net.run(500 * MS);
    net.reset();
    net.run(2 * S);
    assert_eq!(net.drops, 0);
    assert!(net.percent(0, 1_500 * MS) >= 95);
    assert!(net.queue_ns() < 3 * MS, "{}", net.queue_ns());
}

#[test]
fn shared_starts_again_after_a_long_silence() {
    let mut congestion = Congestion::new(Mode::Shared, 1400, 1_000);
    let acked = AckSample {
        acked_packets: 10,
        rtt_ns: Some(MS),
        ..AckSample::default()
    };
    for step in 0..5 {
        congestion.on_ack(step * MS, &acked);
    }
    assert_eq!(congestion.window(), 60);
    // One or two probes are no more than lost tails.
    congestion.on_timeout(10 * MS);
    congestion.on_timeout(12 * MS);
    assert_eq!(congestion.window(), 60);
    congestion.on_timeout(16 * MS);
    assert_eq!(congestion.window(), WINDOW_MIN);
    // Back to 0.7 of the old window in slow start, slower beyond.
    congestion.on_ack(20 * MS, &acked);
    congestion.on_ack(21 * MS, &acked);
    assert_eq!(congestion.window(), 22);
    congestion.on_ack(22 * MS, &acked);
    congestion.on_ack(23 * MS, &acked);
    assert_eq!(congestion.window(), 42);
    congestion.on_ack(24 * MS, &acked);
    assert_eq!(congestion.window(), 42);
}

#[test]
fn shared_reduces_once_a_round_trip() {
    let mut congestion = Congestion::new(Mode::Shared, 1400, 1_000);
    let mut sample = AckSample {
        acked_packets: 90,
        rtt_ns: Some(MS),
        ..AckSample::default()
    };
    congestion.on_ack(0, &sample);
    assert_eq!(congestion.window(), 100);
    sample.acked_packets = 10;
    sample.lost_packets = 1;
    sample.in_flight_packets = 40;
    for step in 1..5 {
        congestion.on_ack(step * 100 * US, &sample);
        assert_eq!(congestion.window(), 70, "{step}");
    }
    // 44 packets were reported since: a new loss belongs to a new round.
    congestion.on_ack(500 * US, &sample);
    assert_eq!(congestion.window(), 70);
    congestion.on_ack(600 * US, &sample);
    assert_eq!(congestion.window(), 49);
    // A mark costs less than a loss.
    sample.lost_packets = 0;
    sample.in_flight_packets = 0;
    sample.acked_packets = 40;
    congestion.on_ack(700 * US, &sample);
    sample.ce_packets = 1;
    congestion.on_ack(800 * US, &sample);
    assert_eq!(congestion.window(), 41);
}

#[test]
fn shared_does_not_grow_unused() {
    let mut congestion = Congestion::new(Mode::Shared, 1400, 1_000);
    let sample = AckSample {
        acked_packets: 5,
        rtt_ns: Some(MS),
        app_limited: true,
        ..AckSample::default()
    };
    for step in 0..100 {
        congestion.on_ack(step * MS, &sample);
    }
    assert_eq!(congestion.window(), 10);
}

#[test]
fn any_input_keeps_the_bounds() {
    let mut state = 7_u64;
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state >> 33
    };
    for mode in [Mode::Lan, Mode::Shared] {
        for run in 0..200 {
            let window_max = 1 << (run % 33).min(31);
            let mut congestion = Congestion::new(mode, (random() & 0xffff) as u16, window_max);
            let mut now = random();
            // Ordinary, large and absurd values mixed.
            let mut number = |most: u64| match random() % 8 {
                0 => most,
                1 => 0,
                2 => random() % most,
                _ => random() % 200,
            };
            for _ in 0..500 {
                now = now.saturating_add(number(1 << 40));
                let sample = AckSample {
                    acked_packets: number(u32::MAX.into()) as u32,
                    rtt_ns: (number(2) > 0).then(|| number(u64::MAX)),
                    late_ns: number(u64::MAX),
                    mean_ns: number(u64::MAX),
                    spurious_packets: number(u32::MAX.into()) as u32,
                    ce_packets: number(u32::MAX.into()) as u32,
                    lost_packets: number(u32::MAX.into()) as u32,
                    came_packets: number(u32::MAX.into()) as u32,
                    in_flight_packets: number(u32::MAX.into()) as u32,
                    app_limited: number(2) > 100,
                };
                match number(4) % 4 {
                    0 => congestion.on_timeout(now),
                    1 => congestion.on_sent(now, 1_400, sample.in_flight_packets),
                    _ => congestion.on_ack(now, &sample),
                }
                let most = window_max.clamp(WINDOW_MIN, WINDOW_LIMIT);
                let window = congestion.window();
                assert!((WINDOW_MIN..=most).contains(&window), "{window} of {most}");
            }
        }
    }
}

#[test]
fn shared_grows_large_windows_by_single_packets() {
    let mut congestion = Congestion::new(Mode::Shared, 1400, 100_000);
    let mut sample = AckSample {
        acked_packets: 20_000,
        rtt_ns: Some(50 * MS),
        ..AckSample::default()
    };
    congestion.on_ack(0, &sample);
    sample.acked_packets = 1;
    sample.lost_packets = 1;
    congestion.on_ack(0, &sample);
    let reduced = congestion.window();
    assert_eq!(reduced, 14_010);
    sample.lost_packets = 0;
    // W_cubic is back at the old window after K = cbrt(0.3 W / 0.4) seconds.
    let plateau = 24_700;
    for packet in 0..400_000_u64 {
        congestion.on_ack(packet * plateau * MS / 400_000, &sample);
    }
    let window = congestion.window();
    assert!(window.abs_diff(20_010) < 200, "{window}");
}
