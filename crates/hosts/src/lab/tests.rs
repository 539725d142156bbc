//! Tests of what the benches use of a lab; the commands are tested as commands,
//! in `tests/lab.rs`. Needs root.

use std::net::UdpSocket;

use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

use super::built::{Built, command};
use super::*;

fn shape(hosts: u32, mtu: u32) -> Shape {
    Shape {
        hosts,
        mtu,
        line: None,
        queues: 1,
        switches: 1,
        cable: false,
    }
}

fn lab() -> Lab {
    Lab {
        name: "a".to_owned(),
        shape: shape(3, 1500),
        network: [7, 200],
        second: None,
        ready: true,
    }
}

#[test]
fn hosts_are_found_by_name_number_and_address() {
    let lab = lab();
    assert_eq!(lab.find_host("h2").unwrap(), 2);
    assert_eq!(lab.find_host("0").unwrap(), 0);
    assert_eq!(lab.find_host("10.7.200.2").unwrap(), 1);
    assert_eq!(lab.find_host("fd70:746c:7c8::3").unwrap(), 2);
    for none in ["h3", "x", "", "h-1", "10.7.200.4"] {
        assert!(lab.find_host(none).is_err(), "{none}");
    }
}

#[test]
fn names_and_numbers_are_checked() {
    for good in ["a", "lab-1", "9", "L"] {
        assert!(check_name(good).is_ok());
    }
    for bad in ["", "-a", "a_b", "a/b", "..", "a b", &"a".repeat(33)] {
        assert!(check_name(bad).is_err(), "{bad}");
    }
    assert!(shape(0, 1500).check().is_err());
    assert!(shape(251, 1500).check().is_err());
    assert!(shape(250, 1279).check().is_err());
    assert!(shape(250, 65_536).check().is_err());
    assert!(shape(250, 1280).check().is_ok());
}

#[test]
fn every_host_resolves_over_both_protocols() {
    let text = lab().hosts_file();
    for line in [
        "10.7.200.1 h0",
        "fd70:746c:7c8::1 h0",
        "10.7.200.3 h2",
        "fd70:746c:7c8::3 h2",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}");
    }
}

/// Which of `count` datagrams from h0 to h1 arrive. Where `some` do, it waits until a
/// further one has come behind them, however late a busy machine delivers. The calling thread
/// stays on its core, since what is sent by another one may be overtaken.
fn arriving(lab: &Lab, count: u32, some: bool) -> Vec<u32> {
    let mut core = CpuSet::new();
    core.set(sched_getcpu());
    sched_setaffinity(None, &core).unwrap();
    let to = (lab.ipv4(1), 7000);
    let hears = lab.in_host(1, || Ok(UdpSocket::bind(to).unwrap())).unwrap();
    let says = lab
        .in_host(0, || Ok(UdpSocket::bind("0.0.0.0:0").unwrap()))
        .unwrap();
    let say = |n: u32| says.send_to(&n.to_le_bytes(), to).unwrap();
    let mut arrived = Vec::new();
    // Reads until the mark has come, or nothing has for so long.
    let mut take = |wait_ms, mark: Option<u32>| {
        let timeout = std::time::Duration::from_millis(wait_ms);
        hears.set_read_timeout(Some(timeout)).unwrap();
        let mut bytes = [0; 4];
        while hears.recv(&mut bytes).is_ok() {
            match u32::from_le_bytes(bytes) {
                n if n < count => arrived.push(n),
                n if Some(n) == mark => return true,
                _ => {}
            }
        }
        false
    };
    // A socket buffer holds about 270 of them, a queue on the way 256: the next leave when a
    // mark behind the last has arrived. A second mark is sent only where the first is surely
    // lost, for each is one more draw of the losses.
    let (tries, wait_ms) = if some { (600, 200) } else { (5, 1) };
    for n in 0..count {
        say(n);
        if n % 50 == 49 || n + 1 == count {
            let mark = count + n;
            let passes = |_| {
                say(mark);
                take(wait_ms, Some(mark))
            };
            assert_eq!((0..tries).any(passes), some);
        }
    }
    arrived
}

#[test]
fn loss_can_be_changed_and_ends_with_its_owner() {
    let built = Built::up("t-unit-loss");
    let lab = &built.0;
    assert_eq!(arriving(lab, 500, true).len(), 500);
    let mut loss = Loss::attach(lab, 5).unwrap();
    assert_eq!(arriving(lab, 500, true).len(), 500);
    loss.set(100.0, Burst::SINGLE).unwrap();
    assert_eq!(arriving(lab, 500, false).len(), 0);
    loss.set(20.0, Burst::SINGLE).unwrap();
    let before = loss.counters().unwrap();
    let arrived = arriving(lab, 2000, true).len();
    let after = loss.counters().unwrap();
    // Of 2,000 draws, 400 are lost with a deviation of 18.
    assert!((1500..1700).contains(&arrived), "{arrived}");
    assert!(after.dropped - before.dropped >= 2000 - arrived as u64);
    assert!(after.passed - before.passed >= arrived as u64);
    assert!(loss.set(101.0, Burst::SINGLE).is_err());
    drop(loss);
    // A process that another test is starting may hold it for a moment more.
    let all_arrive = |_| arriving(lab, 500, true).len() == 500;
    assert!((0..10).any(all_arrive), "some are lost still");
}

#[test]
fn loss_repeats_under_the_same_seed() {
    let built = Built::up("t-unit-seed");
    let lab = &built.0;
    let run = |seed| {
        let mut loss = Loss::attach(lab, seed).unwrap();
        loss.set(30.0, Burst::SINGLE).unwrap();
        arriving(lab, 300, true)
    };
    assert_ne!(run(1), run(2));
    // Hosts that have just come up send packets of their own, which are judged
    // too; they soon stop.
    let repeats = |_| run(3) == run(3);
    assert!((0..5).any(repeats));
}

#[test]
fn a_bench_may_lose_in_bursts() {
    let built = Built::up("t-unit-burst");
    let mut loss = Loss::attach(&built.0, 5).unwrap();
    loss.set(20.0, Burst { min: 8, max: 16 }).unwrap();
    let arrived = arriving(&built.0, 2000, true);
    let pairs = arrived.windows(2).map(|pair| pair[1] - pair[0] - 1);
    let gaps: Vec<u32> = pairs.filter(|gap| *gap > 0).collect();
    // The kernel's own packets may take a place in a burst.
    let long = gaps.iter().filter(|gap| **gap >= 8).count();
    assert!(long > 10 && long * 10 >= gaps.len() * 8, "{gaps:?}");
}

fn offload(lab: &Lab) -> Vec<String> {
    let ask = || tool::run("ethtool", &["-k", "eth0"], &[]);
    let answer = lab.in_host(0, ask).unwrap();
    let lines = answer.lines().filter(|line| {
        [
            "generic-segmentation-offload",
            "tcp-segmentation-offload",
            "tx-udp-segmentation",
        ]
        .iter()
        .any(|name| line.trim().starts_with(name))
    });
    lines.map(|line| line.trim().to_owned()).collect()
}

#[test]
fn offload_is_off_and_comes_back() {
    let built = Built::up("t-unit-off");
    let lab = &built.0;
    let before = offload(lab);
    assert!(
        before.iter().any(|line| line.ends_with(": on")),
        "{before:?}"
    );
    let off = Offload::off(lab).unwrap();
    assert!(
        offload(lab).iter().all(|line| line.contains(": off")),
        "{:?}",
        offload(lab)
    );
    assert!(Offload::off(lab).is_err(), "two at once");
    drop(off);
    assert_eq!(offload(lab), before);
    drop(Offload::off(lab).unwrap());
    assert_eq!(offload(lab), before);
}

#[test]
fn what_a_killed_bench_left_is_repaired() {
    let built = Built::up("t-unit-rep");
    let lab = &built.0;
    let before = offload(lab);
    // What a killed process leaves: its file, without its lock.
    let off = Offload::off(lab).unwrap();
    off.abandon();
    assert_ne!(offload(lab), before);
    assert!(command(&["lab", "up", lab.name(), "--hosts", "2"]));
    assert_eq!(offload(lab), before);
    Offload::off(lab).unwrap().abandon();
    drop(Offload::off(lab).unwrap());
    assert_eq!(offload(lab), before);
}

/// What is started in a host pins, mounts and writes there, and not on this machine.
#[test]
fn what_runs_in_a_host_has_its_mounts() {
    let built = Built::up("t-unit-in");
    let lab = &built.0;
    let namespaces = || {
        ["net", "mnt", "uts"].map(|kind| {
            let file = format!("/proc/thread-self/ns/{kind}");
            std::fs::read_link(file).unwrap()
        })
    };
    let [own, other] = [(); 2].map(|()| lab.in_host(0, || Ok(namespaces())).unwrap());
    assert_eq!(own, other, "a host has one of each");
    for (its, ours) in own.iter().zip(namespaces()) {
        assert_ne!(*its, ours);
    }
    // A program too, and this process's other threads stay where they are.
    let asked = || tool::run("readlink", &["/proc/self/ns/mnt"], &[]);
    let said = lab.in_host(0, asked).unwrap();
    assert_eq!(said.trim(), own[1].to_str().unwrap());
}
