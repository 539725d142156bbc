//! `portolan lab impair`. Needs root.

use std::fs;
use std::io::Write;
use std::net::UdpSocket;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{
    PATIENCE, Said, TestLab, c_program, example, finish, marked, moments, none_left, portolan, say,
    signal, start, traces, try_signal, until,
};
use rustix::net::sockopt;
use rustix::process::Signal;

fn impair(lab: &TestLab, options: &[&str]) {
    say(&[&["lab", "impair", lab.0], options].concat()).expect(0);
}

/// Sockets on h0 and h1, the first of which sends to the second.
fn pair(lab: &TestLab) -> [UdpSocket; 2] {
    let at = [0, 1].map(|host| lab.address(host, "ipv4"));
    let bind = |host: usize| {
        let socket = lab.within(&format!("h{host}"), || UdpSocket::bind((at[host], 0)));
        let socket = socket.unwrap();
        sockopt::set_socket_recv_buffer_size_force(&socket, 8 << 20).unwrap();
        socket
    };
    let [says, hears] = [bind(0), bind(1)];
    says.connect(hears.local_addr().unwrap()).unwrap();
    [says, hears]
}

/// The numbers of `count` datagrams from h0 to h1 that arrive, in their order.
fn arriving([says, hears]: &[UdpSocket; 2], count: u32) -> Vec<u32> {
    let mut arrived = Vec::new();
    // Until nothing has come so many times, a while after each other.
    let mut take = |looks: u32, wait_ms| {
        let wait = Duration::from_millis(wait_ms);
        hears.set_read_timeout(Some(wait)).unwrap();
        let mut bytes = [0; 500];
        let mut in_vain = 0;
        while in_vain < looks {
            let Ok(len) = hears.recv(&mut bytes) else {
                in_vain += 1;
                continue;
            };
            assert_eq!((len, &bytes[4..]), (500, &[9; 496][..]), "another's bytes");
            arrived.push(u32::from_le_bytes(bytes[..4].try_into().unwrap()));
            in_vain = 0;
        }
    };
    for number in 0..count {
        let mut bytes = [9; 500];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        says.send(&bytes).unwrap();
        // What holds packets back has room for some hundreds.
        if number % 50 == 49 {
            take(1, 2);
        }
    }
    // A busy machine delivers late, and these looks then take longer.
    take(30, 10);
    arrived
}

/// What a killed process held is closed after it has left the list of
/// processes; until then packets go to it.
fn soon_all_arrive(pair: &[UdpSocket; 2]) {
    let all = || arriving(pair, 100).len() == 100;
    until(|| "packets wait still".into(), all);
}

fn impaired(lab: &TestLab) -> serde_json::Value {
    lab.status()["impaired"].clone()
}

/// Lengths of the gaps in ascending numbers.
fn gaps(arrived: &[u32]) -> Vec<u32> {
    let pairs = arrived.windows(2).map(|pair| pair[1] - pair[0] - 1);
    pairs.filter(|gap| *gap > 0).collect()
}

#[test]
fn losses_come_in_bursts_and_repeat_under_a_seed() {
    let lab = TestLab::up(TestLab::own("t-imp-burst"), "2");
    let pair = pair(&lab);
    let lose = |seed: &str| {
        impair(&lab, &["--loss", "20", "--burst", "8-16", "--seed", seed]);
        arriving(&pair, 4000)
    };
    let arrived = lose("3");
    // About 67 bursts of 12 on average: 800 lost, with a deviation of 90.
    assert!((2750..3650).contains(&arrived.len()), "{}", arrived.len());
    let gaps = gaps(&arrived);
    // The kernel's own packets may take a place in a burst.
    let long = gaps.iter().filter(|gap| **gap >= 8).count();
    assert!(long * 10 >= gaps.len() * 9, "{gaps:?}");
    assert!(gaps.iter().any(|gap| *gap != 8), "{gaps:?}");
    assert_ne!(lose("4"), lose("5"));
    assert!((0..5).any(|_| lose("6") == lose("6")));
}

#[test]
fn older_kernels_impair_by_filters_until_it_is_taken_back() {
    let lab = TestLab::up(TestLab::own("t-imp-old"), "2");
    let pair = pair(&lab);
    let impair = |options: &[&str]| {
        let mut command = portolan(&[&["lab", "impair", lab.0], options].concat());
        Said::from(command.env("PORTOLAN_DISABLE", "tcx").output().unwrap()).expect(0);
    };
    for _ in 0..2 {
        impair(&["--loss", "100", "--to", "h1"]);
        assert_eq!(arriving(&pair, 100).len(), 0);
        let lost = impaired(&lab)["dropped"].as_u64().unwrap();
        assert!(lost >= 100, "{lost}");
        impair(&["--loss", "0"]);
        assert_eq!(arriving(&pair, 100).len(), 100);
    }
    // Loss first, then what is held back.
    impair(&["--loss", "100", "--delay", "10"]);
    assert_eq!(arriving(&pair, 100).len(), 0);
    impair(&["--delay", "10"]);
    let begin = Instant::now();
    pair[0].send(&[1]).unwrap();
    pair[1].recv(&mut [0; 9]).unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(10));
    impair(&["--loss", "0"]);
    assert_eq!(arriving(&pair, 100).len(), 100);
}

#[test]
fn copies_follow_their_packet() {
    let lab = TestLab::up(TestLab::own("t-imp-twice"), "2");
    let pair = pair(&lab);
    impair(&lab, &["--repeat", "25"]);
    let arrived = arriving(&pair, 2000);
    let twice = arrived.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert_eq!(arrived.len(), 2000 + twice);
    // 500 with a deviation of 19.
    assert!((400..600).contains(&twice), "{twice}");
    let counted = impaired(&lab)["repeated"].as_u64().unwrap();
    assert!(counted >= twice as u64, "{counted} {twice}");
    // Not towards others.
    impair(&lab, &["--repeat", "100", "--to", "h0"]);
    assert_eq!(arriving(&pair, 100).len(), 100);
    impair(&lab, &["--repeat", "100", "--host", "h0"]);
    assert_eq!(arriving(&pair, 100).len(), 200);
    // What is held back, its copy is too.
    impair(&lab, &["--repeat", "100", "--delay", "10"]);
    let [says, hears] = &pair;
    let begin = Instant::now();
    says.send(&[1]).unwrap();
    for _ in 0..2 {
        hears.recv(&mut [0; 9]).unwrap();
        assert!(begin.elapsed() >= Duration::from_millis(10));
    }
}

#[test]
fn one_direction_suffers() {
    let lab = TestLab::up(TestLab::own("t-imp-way"), "3");
    let pair = pair(&lab);
    for (options, all) in [
        (["--from", "h0", "--to", "h1"], 0),
        (["--from", "h1", "--to", "h0"], 100),
        (["--from", "h2", "--to", "h1"], 100),
        (["--from", "h0", "--to", "h2"], 100),
        (["--from", "h0", "--seed", "1"], 0),
        (["--to", "h1", "--seed", "1"], 0),
        (["--host", "h1", "--seed", "1"], 0),
        (["--host", "h2", "--seed", "1"], 100),
    ] {
        impair(&lab, &[&["--loss", "100"], &options[..]].concat());
        assert_eq!(arriving(&pair, 100).len(), all, "{options:?}");
    }
    let said = say(&["lab", "status", lab.0]).expect(0).out;
    assert!(
        said.contains("loss 100 %, from and to h2, seed 1"),
        "{said}"
    );
}

/// UDP datagrams that h1 has dropped because of their checksum.
fn checksum_errors(lab: &TestLab) -> u64 {
    let text = lab.within("h1", || {
        fs::read_to_string("/proc/thread-self/net/snmp").unwrap()
    });
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("Udp:"))
        .collect();
    let mut pairs = lines[0].split(' ').zip(lines[1].split(' '));
    pairs
        .find(|(name, _)| *name == "InCsumErrors")
        .unwrap()
        .1
        .parse()
        .unwrap()
}

#[test]
fn changed_bytes_are_found_by_checksums() {
    let lab = TestLab::up(TestLab::own("t-imp-bytes"), "2");
    let pair = pair(&lab);
    impair(&lab, &["--corrupt", "30", "--from", "h0"]);
    // Whatever arrives has its own bytes.
    let arrived = arriving(&pair, 2000);
    // 600 with a deviation of 20, of which those changed where no checksum is
    // (a bit of the header that none looks at) come all the same.
    assert!((1320..1520).contains(&arrived.len()), "{}", arrived.len());
    let changed = || impaired(&lab)["wire"]["corrupted"].as_u64();
    // It tells now and then.
    until(|| format!("{:?}", changed()), || changed() > Some(520));
    assert!(changed() < Some(680), "{:?}", changed());
    // 500 of 528 bytes are those of the payload.
    assert!(checksum_errors(&lab) > 450, "{}", checksum_errors(&lab));
}

#[test]
fn packets_come_later_and_in_order() {
    let lab = TestLab::up(TestLab::own("t-imp-late"), "2");
    let pair = pair(&lab);
    let [says, hears] = &pair;
    let round_trip = || {
        let begin = Instant::now();
        says.send(&[1]).unwrap();
        let (_, from) = hears.recv_from(&mut [0; 9]).unwrap();
        hears.send_to(&[2], from).unwrap();
        says.recv(&mut [0; 9]).unwrap();
        begin.elapsed()
    };
    let fastest = || (0..20).map(|_| round_trip()).min().unwrap();
    impair(&lab, &["--delay", "5", "--from", "h0", "--to", "h1"]);
    let (mut one_way, mut sent) = (Duration::MAX, 0);
    // A busy machine makes most of them slower.
    let is_one_way = || {
        (one_way, sent) = (one_way.min(fastest()), sent + 20);
        one_way < Duration::from_millis(10)
    };
    until(|| "back they wait too".into(), is_one_way);
    assert!(one_way > Duration::from_millis(5), "{one_way:?}");
    let carried = || impaired(&lab)["wire"]["carried"].as_u64();
    until(|| format!("{:?}", carried()), || carried() >= Some(sent));
    // The kernel sends a few of its own.
    assert!(carried() < Some(2 * sent), "{:?} of {sent}", carried());
    impair(&lab, &["--delay", "5", "--jitter", "4"]);
    let both = fastest();
    assert!(both > Duration::from_millis(10), "{both:?}");
    let arrived = arriving(&pair, 1000);
    assert_eq!(arrived, (0..1000).collect::<Vec<u32>>());
}

#[test]
fn some_packets_are_overtaken() {
    let lab = TestLab::up(TestLab::own("t-imp-order"), "2");
    let pair = pair(&lab);
    let reorder = |seed: &str| {
        impair(
            &lab,
            &["--reorder", "5", "--reorder-by", "32", "--seed", seed],
        );
        arriving(&pair, 1000)
    };
    let arrived = reorder("1");
    let mut sorted = arrived.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..1000).collect::<Vec<u32>>());
    let late = arrived.windows(2).filter(|pair| pair[1] < pair[0]).count();
    // 50 with a deviation of 7, of which some come next to each other.
    assert!((20..80).contains(&late), "{late}");
    let status = || say(&["lab", "status", lab.0]).expect(0).out;
    until(status, || status().contains(" reordered"));
    let said = status();
    assert!(said.contains("reorder 5 % by 1-32, seed 1"), "{said}");
}

/// The native interface, matched messages, ATOLL and a space of a program's own.
#[test]
fn all_interfaces_in_one_program_survive_losses() {
    let program = c_program("crates/library/tests/c/all.c");
    let lab = TestLab::up(TestLab::own("t-imp-all"), "2");
    impair(&lab, &["--loss", "5", "--reorder", "5"]);
    for first in ["native", "atoll"] {
        say(&["run", "-n", "2", "--lab", lab.0, "--", &program, first]).expect(0);
    }
}

#[test]
fn only_acknowledgements_are_lost() {
    let lab = TestLab::up(TestLab::own("t-imp-acks"), "2");
    let pair = pair(&lab);
    let [says, hears] = &pair;
    impair(&lab, &["--loss", "100", "--acks-only"]);
    // Version and type, flags, length: docs/protocol.md.
    for (first, flags, len, passes) in [
        (0x12, 4, 56, false),
        (0x12, 5, 64, false),
        (0x12, 4, 120, false),
        (0x12, 4, 128, true),
        (0x12, 4, 60, true),
        (0x12, 4, 48, true),
        (0x12, 1, 56, true),
        (0x11, 4, 56, true),
    ] {
        let mut bytes = vec![0; len];
        (bytes[0], bytes[1]) = (first, flags);
        let wait = if passes {
            PATIENCE
        } else {
            Duration::from_millis(100)
        };
        hears.set_read_timeout(Some(wait)).unwrap();
        says.send(&bytes).unwrap();
        let came = hears.recv(&mut [0; 200]).is_ok();
        assert_eq!(came, passes, "{first:x} {flags} {len}");
    }
    assert_eq!(impaired(&lab)["dropped"], 3);
    impair(&lab, &["--loss", "50", "--acks-only"]);
    let ring = example("ring");
    let job = [
        "run", "-n", "2", "--lab", lab.0, "--link", "udp", "--", &ring, "300",
    ];
    say(&job).expect(0);
    assert!(impaired(&lab)["dropped"].as_u64().unwrap() > 0);
}

#[test]
fn jobs_survive_all_of_it() {
    let lab = TestLab::up(TestLab::own("t-imp-all"), "2");
    let ring = example("ring");
    impair(
        &lab,
        &[
            "--loss",
            "2",
            "--burst",
            "3-6",
            "--repeat",
            "5",
            "--corrupt",
            "1",
            "--reorder",
            "5",
            "--jitter",
            "0.5",
        ],
    );
    for link in ["udp", "xdp"] {
        let job = [
            "run", "-n", "2", "--lab", lab.0, "--link", link, "--", &ring, "300",
        ];
        let said = say(&job).expect(0);
        assert!(said.out.contains("the sum is right"), "{said:#?}");
    }
    let all = || {
        let about = impaired(&lab);
        let wire = &about["wire"];
        let counts = [
            &about["dropped"],
            &about["repeated"],
            &wire["corrupted"],
            &wire["reordered"],
        ];
        counts.iter().all(|count| count.as_u64() > Some(0))
    };
    until(|| impaired(&lab).to_string(), all);
}

fn devices(lab: &TestLab) -> Vec<String> {
    let text = lab.within("sw", || {
        fs::read_to_string("/proc/thread-self/net/dev").unwrap()
    });
    let names = text.lines().skip(2).filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name.trim().to_owned()).collect()
}

#[test]
fn without_the_process_packets_go_their_straight_way() {
    let lab = TestLab::up(TestLab::own("t-imp-kill"), "2");
    let pair = pair(&lab);
    let before = devices(&lab);
    let begin = |mark| {
        let child = start(mark, &["lab", "impair", lab.0, "--delay", "10"]);
        finish(child).expect(0);
        let found = marked(mark);
        assert_eq!(found.len(), 1, "{found:?}");
        found[0]
    };
    let own = |name: &str| TestLab::own(name);
    let (first, second) = (own("imp-kill-one"), own("imp-kill-two"));
    let pid = begin(first);
    assert!(devices(&lab).contains(&"w0".to_owned()));
    signal(pid, Signal::KILL);
    none_left(first);
    soon_all_arrive(&pair);
    assert_eq!(devices(&lab), before);
    assert!(impaired(&lab)["wire"].is_null());
    let said = say(&["lab", "status", lab.0]).expect(0).out;
    assert!(said.contains("was killed"), "{said}");
    // The next replaces what is left, and is replaced.
    begin(second);
    begin(first);
    none_left(second);
    impair(&lab, &["--loss", "0"]);
    none_left(first);
    assert_eq!(devices(&lab), before);
    assert!(impaired(&lab).is_null());
    // It ends with its lab.
    begin(first);
    say(&["lab", "down", lab.0]).expect(0);
    none_left(first);
    assert_eq!(traces(lab.0), Vec::<String>::new());
}

#[test]
fn a_wire_whose_starter_has_gone_does_not_begin() {
    let lab = TestLab::up(TestLab::own("t-imp-late"), "2");
    impair(&lab, &["--delay", "1"]);
    let file = format!("/run/portolan/lab/{}/impair.json", lab.0);
    let with = fs::read(file).unwrap();
    impair(&lab, &["--loss", "0"]);
    // Killed before the process that it started could follow it.
    let mut wire = portolan(&["internal-lab-wire", "--lab", lab.0]);
    wire.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut wire = wire.stderr(Stdio::piped()).spawn().unwrap();
    drop(wire.stdout.take());
    let _ = wire.stdin.take().unwrap().write_all(&with);
    let said = wire.wait_with_output().unwrap();
    let complaint = String::from_utf8_lossy(&said.stderr);
    assert!(complaint.contains("has gone"), "{complaint}");
}

#[test]
fn an_impairment_that_is_killed_can_be_taken_back() {
    let lab = TestLab::up(TestLab::own("t-imp-crash"), "2");
    let pair = pair(&lab);
    let mark = TestLab::own("imp-crash");
    let words = ["lab", "impair", lab.0, "--loss", "50", "--delay", "1"];
    for delay in moments() {
        let mut child = start(mark, &words);
        sleep(delay);
        // It may have ended.
        let _ = try_signal(child.id(), Signal::KILL);
        let ready = child.wait().unwrap().success();
        say(&["lab", "status", lab.0]).expect(0);
        impair(&lab, &["--loss", "0"]);
        none_left(mark);
        soon_all_arrive(&pair);
        if ready {
            break;
        }
    }
    start(mark, &words).wait().unwrap();
    say(&["lab", "down", lab.0]).expect(0);
    none_left(mark);
    assert_eq!(traces(lab.0), Vec::<String>::new());
}

#[test]
fn harm_that_cannot_be_is_refused() {
    let lab = TestLab::up(TestLab::own("t-imp-bad"), "2");
    for (options, remedy) in [
        (&[][..], "--loss"),
        (&["--burst", "8"], "--loss"),
        (&["--loss", "5", "--burst", "1-2"], "from 3 to 64"),
        (&["--loss", "101"], "0 to 100"),
        (&["--repeat=-1"], "0 to 100"),
        (&["--loss", "-1"], "0 to 100"),
        (&["--corrupt", "31"], "--corrupt 0.1 to 30"),
        (
            &["--reorder", "5", "--reorder-by", "257"],
            "--reorder-by 1 to 256",
        ),
        (&["--delay", "11"], "from 0 to 10"),
        (&["--loss", "5", "--to", "h2"], "has no host h2"),
        (
            &["--loss", "5", "--to", "h1", "--host", "h0"],
            "cannot be used with",
        ),
    ] {
        say(&[&["lab", "impair", lab.0], options].concat())
            .expect(2)
            .complains(&[remedy]);
    }
    assert!(impaired(&lab).is_null());
}
