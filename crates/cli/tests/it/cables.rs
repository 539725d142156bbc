//! Labs with several queues, large packets, two switches and cables that are
//! pulled out. Needs root.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};
use std::thread::sleep;
use std::time::Duration;

use crate::common::{
    Rounds, TestLab, await_messages, example, finish, job_id, moments, need_root, none_left, say,
    start, traces, try_signal, until,
};
use rustix::process::Signal;

fn run(lab: &TestLab, link: &str) {
    let ring = example("ring");
    let job = [
        "run", "-n", "2", "--lab", lab.0, "--link", link, "--", &ring, "30",
    ];
    let said = say(&job).expect(0);
    assert!(said.out.contains("the sum is right"), "{said:#?}");
}

fn own_address(lab: &TestLab, host: usize, switch: usize, kind: &str) -> IpAddr {
    let about = &lab.status()["hosts"][host];
    let about = [about, &about["second"]][switch];
    about[kind].as_str().unwrap().parse().unwrap()
}

/// Datagrams from h0 to h1 on one of the switches, by their numbers.
struct Way {
    says: UdpSocket,
    hears: UdpSocket,
    last: Cell<u32>,
}

impl Way {
    fn new(lab: &TestLab, switch: usize, kind: &str) -> Self {
        let bind = |host: usize| {
            let at = own_address(lab, host, switch, kind);
            let socket = lab.within(&format!("h{host}"), || UdpSocket::bind((at, 0)));
            socket.unwrap()
        };
        let [says, hears] = [bind(0), bind(1)];
        says.connect(hears.local_addr().unwrap()).unwrap();
        let wait = Duration::from_millis(200);
        hears.set_read_timeout(Some(wait)).unwrap();
        let last = Cell::new(0);
        Self { says, hears, last }
    }

    /// Whether one that is sent now arrives, while somebody waits for it.
    fn try_once(&self) -> bool {
        self.last.set(self.last.get() + 1);
        // Where no way is at all, the kernel says so at once.
        let _ = self.says.send(&self.last.get().to_le_bytes());
        let mut number = [0; 4];
        while self.hears.recv(&mut number).is_ok() {
            if u32::from_le_bytes(number) == self.last.get() {
                return true;
            }
        }
        false
    }

    /// Waits until one arrives. The kernel may take its time to see a cable,
    /// and a busy machine to deliver.
    fn opens(&self) -> bool {
        until(|| "nothing arrives".into(), || self.try_once());
        true
    }

    fn is_cut(&self) -> bool {
        !self.try_once()
    }
}

#[test]
fn an_interface_has_as_many_queues_as_asked_for() {
    let lab = TestLab::with(TestLab::own("t-cab-queue"), &["--queues", "3"]);
    let queues = |lab: &TestLab| {
        let said = lab
            .exec("h1", &["ls", "/sys/class/net/eth0/queues"])
            .expect(0);
        said.out.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(queues(&lab), "rx-0 rx-1 rx-2 tx-0 tx-1 tx-2");
    assert_eq!(lab.status()["queues"], 3);
    run(&lab, "xdp");
    run(&lab, "udp");
    let one = TestLab::up(TestLab::own("t-cab-one"), "2");
    assert!(queues(&one).starts_with("rx-0 tx-0"), "{}", queues(&one));
    for (option, remedy) in [("--queues", "--queues 1 to 64"), ("--switches", "1 or 2")] {
        for number in ["0", "65"] {
            say(&["lab", "up", "t-cab-bad", option, number])
                .expect(2)
                .complains(&[remedy]);
        }
    }
}

#[test]
fn what_a_large_mtu_means_is_said() {
    need_root();
    let name = TestLab::own("t-cab-mtu");
    for (mtu, is_said) in [("3506", false), ("3507", true), ("65535", true)] {
        let lab = TestLab(name);
        let up = say(&["lab", "up", name, "--mtu", mtu]).expect(0);
        let status = say(&["lab", "status", name]).expect(0);
        for said in [up.out, status.out] {
            assert_eq!(said.contains("several buffers only"), is_said, "{said}");
        }
        run(&lab, "xdp");
    }
}

/// What a host has: addresses, routes, neighbours.
fn belongings(lab: &TestLab, host: &str) -> String {
    let script = "ip -br addr show dev eth0 | tr -s ' ' | cut -d' ' -f3-; \
                  ip route | sed 's/ linkdown//'; ip -6 route | sed 's/ linkdown//'; \
                  ip neigh show nud permanent | sort";
    lab.exec(host, &["sh", "-c", script]).expect(0).out
}

#[test]
fn a_host_that_is_unplugged_keeps_what_it_has() {
    for (name, options) in [
        ("t-cab-plug", &["--hosts", "2"][..]),
        ("t-cab-plug-r", &["--rate", "100mbit"]),
    ] {
        let lab = TestLab::with(TestLab::own(name), options);
        let link = |state| say(&["lab", "link", lab.0, "h1", state]).expect(0);
        let ways = ["ipv4", "ipv6"].map(|kind| Way::new(&lab, 0, kind));
        let before = belongings(&lab, "h1");
        for part in ["/24", "/64", "fd70:746c", "PERMANENT"] {
            assert!(before.contains(part), "no {part} in {before}");
        }
        assert!(ways.iter().all(Way::opens));
        link("down");
        assert_eq!(belongings(&lab, "h1"), before);
        assert!(ways.iter().all(Way::is_cut));
        assert_eq!(lab.status()["hosts"][1]["up"], false);
        assert_eq!(lab.status()["hosts"][0]["up"], true);
        let said = say(&["lab", "status", lab.0]).expect(0).out;
        assert_eq!(said.matches("unplugged").count(), 1, "{said}");
        link("up");
        assert!(ways.iter().all(Way::opens));
        assert_eq!(belongings(&lab, "h1"), before);
        assert_eq!(lab.status()["hosts"][1]["up"], true);
    }
}

#[test]
fn a_host_that_sets_its_interface_down_keeps_its_addresses() {
    let lab = TestLab::up(TestLab::own("t-cab-down"), "2");
    let addresses = || {
        let words = ["ip", "-o", "addr", "show", "dev", "eth0", "scope", "global"];
        let said = lab.exec("h1", &words).expect(0).out;
        let kept = said.lines().map(|line| line.split_whitespace().nth(3));
        kept.map(|address| address.unwrap().to_owned())
            .collect::<BTreeSet<String>>()
    };
    let before = addresses();
    assert_eq!(before.len(), 2);
    for state in ["down", "up"] {
        lab.exec("h1", &["ip", "link", "set", "eth0", state])
            .expect(0);
        assert_eq!(addresses(), before, "{state}");
    }
}

#[test]
fn jobs_outlive_a_cable_that_is_pulled_out_for_a_moment() {
    let lab = TestLab::up(TestLab::own("t-cab-job"), "2");
    for link in ["udp", "xdp"] {
        let rounds = Rounds::new("cab-job");
        let Rounds { program, file } = &rounds;
        let words = ["run", "-v", "-n", "2", "--lab", lab.0, "--link", link];
        let mut job = start("cab-job", &[&words[..], &["--", program, file]].concat());
        await_messages(&job_id(&mut job));
        say(&["lab", "link", lab.0, "h1", "down"]).expect(0);
        sleep(Duration::from_millis(200));
        say(&["lab", "link", lab.0, "h1", "up"]).expect(0);
        rounds.end(job);
    }
}

#[test]
fn two_switches_are_two_networks() {
    let lab = TestLab::with(
        TestLab::own("t-cab-two"),
        &["--switches", "2", "--rate", "100mbit"],
    );
    let kinds = ["ipv4", "ipv6"];
    let ways = |switch| kinds.map(|kind| Way::new(&lab, switch, kind));
    let (first, second) = (ways(0), ways(1));
    assert!(first.iter().chain(&second).all(Way::opens));
    // One may be pulled out without the other.
    let link = |state, switch| {
        say(&["lab", "link", lab.0, "h0", state, "--switch", switch]).expect(0);
    };
    link("down", "0");
    assert!(first.iter().all(Way::is_cut));
    assert!(second.iter().all(Way::opens));
    link("down", "1");
    link("up", "0");
    assert!(first.iter().all(Way::opens));
    assert!(second.iter().all(Way::is_cut));
    link("up", "1");
    assert!(second.iter().all(Way::opens));
    say(&["lab", "link", lab.0, "h0", "down", "--switch", "2"])
        .expect(2)
        .complains(&["has no switch 2"]);
    // Harm is done on both.
    say(&["lab", "impair", lab.0, "--loss", "100", "--from", "h0"]).expect(0);
    assert!(first.iter().chain(&second).all(Way::is_cut));
    say(&["lab", "impair", lab.0, "--delay", "1"]).expect(0);
    assert!(first.iter().chain(&second).all(Way::opens));
    let carried = || {
        lab.status()["impaired"]["wire"]["carried"]
            .as_u64()
            .unwrap()
    };
    until(|| format!("{}", carried()), || carried() >= 4);
    say(&["lab", "impair", lab.0, "--loss", "0"]).expect(0);
    // Its addresses have names, and name their host.
    for kind in kinds {
        let at = own_address(&lab, 1, 1, kind).to_string();
        let known = lab.exec("h0", &["getent", "ahosts", "h1-eth1"]).expect(0);
        assert!(known.out.contains(&at), "{known:#?}");
        let said = lab.exec(&at, &["cat", "/proc/sys/kernel/hostname"]);
        assert_eq!(said.expect(0).out, "h1\n");
    }
    run(&lab, "udp");
    run(&lab, "xdp");
    say(&["lab", "down", lab.0]).expect(0);
    assert_eq!(traces(lab.0), Vec::<String>::new());
}

#[test]
fn labs_of_every_shape_live_side_by_side() {
    need_root();
    let shapes: [&[&str]; 4] = [
        &["--hosts", "3"],
        &["--rate", "50mbit", "--ecn", "8k"],
        &["--switches", "2", "--queues", "2"],
        &["--mtu", "9000", "--switches", "2", "--rate", "1gbit"],
    ];
    let names = [0, 1, 2, 3].map(|n| TestLab::own(&format!("t-cab-side{n}")));
    let labs = names.map(TestLab);
    // Built at the same time.
    let builds: Vec<_> = labs
        .iter()
        .zip(shapes)
        .map(|(lab, shape)| start("cab-side", &[&["lab", "up", lab.0], shape].concat()))
        .collect();
    for build in builds {
        finish(build).expect(0);
    }
    let ways: Vec<Way> = labs.iter().map(|lab| Way::new(lab, 0, "ipv4")).collect();
    assert!(ways.iter().all(Way::opens));
    let mut networks = BTreeSet::new();
    for (lab, switches) in labs.iter().zip([1, 1, 2, 2]) {
        for switch in 0..switches {
            assert!(networks.insert(own_address(lab, 0, switch, "ipv4")));
        }
    }
    // What one suffers the others do not.
    say(&["lab", "impair", labs[0].0, "--loss", "100"]).expect(0);
    say(&["lab", "impair", labs[1].0, "--delay", "2"]).expect(0);
    say(&["lab", "link", labs[2].0, "h0", "down"]).expect(0);
    assert!(ways[0].is_cut() && ways[1].opens() && ways[2].is_cut() && ways[3].opens());
    say(&["lab", "down", labs[1].0]).expect(0);
    assert!(ways[3].opens());
    let ends: Vec<_> = [0, 2, 3]
        .iter()
        .map(|&n: &usize| start("cab-side", &["lab", "down", names[n]]))
        .collect();
    for end in ends {
        finish(end).expect(0);
    }
    for name in names {
        assert_eq!(traces(name), Vec::<String>::new());
    }
}

#[test]
fn two_hosts_are_joined_without_a_switch() {
    let lab = TestLab::with("t-cab-pair", &["--cable", "--queues", "2"]);
    let status = lab.status();
    assert_eq!(status["cable"], true);
    assert_eq!(status["hosts"][1]["up"], true);
    assert!(
        ["ipv4", "ipv6"]
            .iter()
            .all(|kind| Way::new(&lab, 0, kind).opens())
    );
    for link in ["udp", "xdp"] {
        run(&lab, link);
    }
    let peers = ["--link", "xdp", "--vs", "raw-xdp,udp,tcp"];
    let slices = ["--slices", "1", "--slice-ms", "5"];
    let bench = ["bench", "latency", "--lab", lab.0];
    say(&[&bench[..], &peers, &slices].concat()).expect(0);
    // What only a switch can do.
    let name = lab.0;
    for refused in [
        &["lab", "link", name, "h1", "down"][..],
        &["lab", "impair", name, "--loss", "5"],
        &["bench", "latency", "--lab", name, "--loss", "1"],
        &["lab", "up", "t-cab-no", "--cable", "--rate", "1mbit"],
        &["lab", "up", "t-cab-no", "--cable", "--hosts", "3"],
    ] {
        say(refused).expect(2).complains(&["--cable"]);
    }
    // As it is asked for again, and otherwise.
    say(&["lab", "up", name, "--cable", "--queues", "2"]).expect(0);
    say(&["lab", "up", name, "--queues", "2"])
        .expect(2)
        .complains(&["joined by a cable"]);
    say(&["lab", "down", name]).expect(0);
    assert_eq!(traces(name), Vec::<String>::new());
}

#[test]
fn an_up_that_is_killed_leaves_nothing_of_two_switches() {
    need_root();
    let lab = TestLab(TestLab::own("t-cab-kill"));
    let mark = TestLab::own("cab-kill");
    let up = [
        "lab",
        "up",
        lab.0,
        "--switches",
        "2",
        "--queues",
        "2",
        "--rate",
        "50mbit",
        "--ecn",
        "8k",
    ];
    for delay in moments() {
        let mut child = start(mark, &up);
        sleep(delay);
        // It may have ended.
        let _ = try_signal(child.id(), Signal::KILL);
        let ready = child.wait().unwrap().success();
        none_left(mark);
        say(&["lab", "down", lab.0]);
        assert_eq!(traces(lab.0), Vec::<String>::new(), "{delay:?}");
        if ready {
            break;
        }
    }
}
