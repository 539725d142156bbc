//! Packets that arrive past the kernel and through it: pairs find the queue
//! that leads past it, and whichever way a packet comes it counts once.

use portolan_sim::cluster::{Cluster, Summary};
use portolan_sim::net::Faults;
use portolan_sim::scenario::{Pattern, Scenario};
use portolan_sim::steer::Steering;
use portolan_sim::suite::Suite;

const MS: u64 = 1_000_000;

/// Four processes that talk for a second on a network without faults.
fn calm(steering: Steering) -> Scenario {
    let any = Scenario::from_seed(0);
    let config = portolan_proto::Config {
        peers: 4,
        active: 4,
        frames: 256,
        ..Default::default()
    };
    Scenario {
        nodes: 4,
        suite: Suite::Aegis,
        configs: vec![config; 4],
        faults: Faults {
            delay_ns: 20_000,
            ..Faults::NONE
        },
        pipe: portolan_sim::net::Pipe::FREE,
        inbox: 4_096,
        pattern: Pattern::All,
        messages: 4_000,
        gap_ns: MS / 4,
        long_ppm: 20_000,
        long_max: 50_000,
        reply_ppm: 200_000,
        not_now_ppm: 0,
        refuse_ppm: 0,
        blocked: Vec::new(),
        kills: 0,
        partitions: 0,
        path_mtu: 0,
        late_ns: 0,
        move_every: 0,
        wake_ns: 2_000,
        link_ns: 0,
        burst: 64,
        forge_ppm: 0,
        close_early: false,
        steering,
        detours: 0,
        ..any
    }
}

fn run(scenario: Scenario) -> Summary {
    let sum = Cluster::new(scenario, false).run();
    assert_eq!(sum.delivered, sum.accepted);
    println!("{} of {} by the kernel", sum.net.by_kernel, sum.net.arrived);
    sum
}

#[test]
fn pairs_find_the_queue_that_leads_past_the_kernel() {
    for queues in [2, 4, 8] {
        let sum = run(calm(Steering {
            queues,
            ..Steering::FAST
        }));
        // By chance all but one in so many would go through the kernel.
        let share = sum.net.by_kernel as f64 / sum.net.arrived as f64;
        assert!(share > 0.0 && share < 0.25, "{share:.3} of {queues} queues");
    }
}

#[test]
fn what_comes_both_ways_is_delivered_once() {
    let sum = run(calm(Steering {
        both: 1_000_000,
        ..Steering::FAST
    }));
    // But for what comes after faults have ended.
    assert!(sum.net.by_kernel * 200 > sum.net.arrived * 99);
}

#[test]
fn steering_that_changes_in_the_middle_loses_nothing() {
    let scenario = Scenario {
        detours: 200,
        detour_ns: 5 * MS,
        // So that something waits.
        wake_ns: 200_000,
        ..calm(Steering {
            strays: 50_000,
            ..Steering::FAST
        })
    };
    let sum = run(scenario);
    // Half of the changes take along what has come past the kernel.
    assert!(sum.net.lost > 0 && sum.net.by_kernel * 20 > sum.net.arrived);
}
