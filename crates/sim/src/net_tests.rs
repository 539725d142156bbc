use super::*;

fn drain(net: &mut Network, node: usize) -> Vec<(u64, u8)> {
    let mut got = Vec::new();
    while let Some(time) = net.next_time() {
        net.advance(time);
        while let Some(arrival) = net.receive(node) {
            got.push((net.now(), arrival.bytes[0]));
        }
    }
    got
}

#[test]
fn without_faults_everything_arrives_in_order() {
    let mut net = Network::new(1, 2);
    net.faults_mut(0, 1).delay_ns = 100;
    for i in 0..10 {
        net.send(0, 1, &[i], false);
    }
    let got = drain(&mut net, 1);
    assert_eq!(got, (0..10).map(|i| (100, i)).collect::<Vec<_>>());
}

#[test]
fn a_rate_spaces_packets_and_a_full_queue_drops() {
    let mut net = Network::new(1, 2);
    // 1 Gbit/s: a byte takes 8 ns. Three packets of 100 bytes fit the queue.
    net.down[1] = Pipe::new(1_000_000_000, 300);
    for i in 0..5 {
        net.send(0, 1, &[i; 100 - WIRE_OVERHEAD as usize], false);
    }
    let got = drain(&mut net, 1);
    assert_eq!(got, [(800, 0), (1600, 1), (2400, 2)]);
    assert_eq!(net.counters().overflowed, 2);
    assert_eq!(net.down[1].overflows, 2);
}

#[test]
fn a_long_queue_marks_capable_packets() {
    let mut net = Network::new(1, 2);
    net.down[1] = Pipe::new(1_000_000_000, 10_000).marking(150);
    for i in 0..4 {
        net.send(0, 1, &[i; 100 - WIRE_OVERHEAD as usize], i != 3);
    }
    let mut marks = Vec::new();
    while let Some(time) = net.next_time() {
        net.advance(time);
        marks.extend(net.receive(1).map(|a| a.ce));
    }
    assert_eq!(marks, [false, false, true, false]);
}

#[test]
fn nodes_of_one_host_share_its_queue() {
    let mut net = Network::new(1, 3);
    net.set_host(2, 1);
    net.down[1] = Pipe::new(1_000_000_000, 10_000);
    net.send(0, 1, &[1; 100 - WIRE_OVERHEAD as usize], false);
    net.send(0, 2, &[2; 100 - WIRE_OVERHEAD as usize], false);
    assert_eq!(drain(&mut net, 2), [(1600, 2)]);
}

#[test]
fn loss_is_as_asked_and_bursts_are_longer() {
    let losses = |faults: Faults| {
        let mut net = Network::new(3, 2);
        *net.faults_mut(0, 1) = faults;
        let mut runs = 0;
        let mut lost_before = false;
        for _ in 0..20_000 {
            let before = net.counters().lost;
            net.send(0, 1, &[0], false);
            let lost = net.counters().lost > before;
            runs += u64::from(lost && !lost_before);
            lost_before = lost;
        }
        (net.counters().lost, runs)
    };
    let (single, single_runs) = losses(Faults {
        loss: 100_000,
        ..Faults::default()
    });
    assert!((1800..2200).contains(&single), "{single}");
    let (burst, burst_runs) = losses(Faults {
        burst_start: 12_000,
        burst_end: 100_000,
        burst_loss: 1_000_000,
        ..Faults::default()
    });
    assert!((1500..2900).contains(&burst), "{burst}");
    assert!(burst_runs * 3 < single_runs, "{burst_runs} {single_runs}");
}

#[test]
fn repeats_reorder_and_corruption_happen() {
    let mut net = Network::new(5, 2);
    *net.faults_mut(0, 1) = Faults {
        repeat: 200_000,
        repeat_ns: 5_000,
        reorder: 200_000,
        reorder_ns: 5_000,
        corrupt: 100_000,
        truncate: 100_000,
        ..Faults::default()
    };
    let mut order = Vec::new();
    for i in 0..200u8 {
        net.send(0, 1, &[i, 0xaa, 0xaa], false);
        net.advance(net.now() + 100);
        while let Some(a) = net.receive(1) {
            order.push(a.bytes);
        }
    }
    net.advance(1_000_000);
    while let Some(a) = net.receive(1) {
        order.push(a.bytes);
    }
    let count = net.counters();
    assert!(count.repeated > 20 && count.corrupted > 20, "{count:?}");
    assert_eq!(order.len() as u64, count.sent + count.repeated);
    assert!(order.windows(2).any(|w| w[0].first() > w[1].first()));
    assert!(order.iter().any(|b| b.len() < 3));
}

#[test]
fn a_partition_heals() {
    let mut net = Network::new(1, 2);
    net.set_cut(0, 1, true);
    net.send(0, 1, &[1], false);
    net.send(1, 0, &[2], false);
    net.advance(10);
    assert_eq!((net.waiting(1), net.waiting(0)), (0, 1));
    net.heal();
    net.send(0, 1, &[3], false);
    assert_eq!(drain(&mut net, 1), [(10, 3)]);
}

#[test]
fn a_full_inbox_drops() {
    let mut net = Network::new(1, 2);
    net.inbox_max = 2;
    for i in 0..3 {
        net.send(0, 1, &[i], false);
    }
    net.advance(1);
    assert_eq!((net.waiting(1), net.counters().inbox_full), (2, 1));
    net.clear_inbox(1);
    assert_eq!(net.waiting(1), 0);
}

#[test]
fn a_recorded_run_replays_from_its_fates() {
    let faults = Faults {
        delay_ns: 50,
        jitter_ns: 500,
        loss: 100_000,
        repeat: 100_000,
        repeat_ns: 900,
        corrupt: 100_000,
        ..Faults::default()
    };
    let run = |net: &mut Network| {
        let mut got = Vec::new();
        for i in 0..200u8 {
            net.send(
                usize::from(i % 2),
                usize::from(1 - i % 2),
                &[i, 1, 2],
                false,
            );
        }
        while let Some(time) = net.next_time() {
            net.advance(time);
            for node in 0..2 {
                while let Some(a) = net.receive(node) {
                    got.push((time, node, a.bytes));
                }
            }
        }
        got
    };
    let mut first = Network::new(9, 2);
    first.set_faults(faults);
    first.start_record();
    let expected = run(&mut first);
    let text = first.take_record().to_string();

    let mut second = Network::new(0, 2);
    second.set_faults(Faults {
        delay_ns: 50,
        ..Faults::default()
    });
    second.set_script(FateList::parse(&text).unwrap());
    assert_eq!(run(&mut second), expected);
}

#[test]
fn what_is_steered_off_comes_through_the_kernel_and_rings_that_go_lose_theirs() {
    let mut net = Network::new(1, 2);
    let count =
        |net: &Network| [ReceivePath::Fast, ReceivePath::Kernel].map(|way| net.waiting_by(way, 1));
    net.steering_mut(1).both = 1_000_000;
    net.send(0, 1, &[1], false);
    net.advance(1);
    assert_eq!(count(&net), [1, 1]);
    net.steering_mut(1).off = true;
    net.send(0, 1, &[2], false);
    net.advance(2);
    assert_eq!(count(&net), [1, 2]);
    net.lose_fast(1);
    assert_eq!((count(&net), net.counters().lost), ([0, 2], 1));
    assert_eq!(net.counters().by_kernel, 2);
    net.heal();
    net.send(0, 1, &[3], false);
    net.advance(3);
    assert_eq!(count(&net), [1, 2]);
}
