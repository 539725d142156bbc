//! Labs whose lines have a rate. Needs root.

use std::fs;
use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{scope, sleep, spawn};
use std::time::Instant;

use crate::common::{PATIENCE, TestLab, moments, need_root, none_left, say, start, until};
use portolan_sys::net::{SocketOptions, UdpSocket as Watched};
use rustix::net::sockopt;
use rustix::process::Signal;

/// Payload of a datagram that fills a packet of 1,500 bytes over IPv4, bytes.
const FULL: usize = 1472;
const MBIT: f64 = 1e6;

/// Holds all that a test sends, however late it is read.
const BUFFER: usize = 8 << 20;

fn socket(lab: &TestLab, host: usize) -> UdpSocket {
    let at = lab.address(host, "ipv4");
    let socket = lab.within(&format!("h{host}"), || UdpSocket::bind((at, 0)).unwrap());
    sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER).unwrap();
    socket
}

fn send(says: &UdpSocket, bytes: usize, count: usize, to: SocketAddr) {
    for _ in 0..count {
        says.send_to(&vec![1; bytes], to).unwrap();
    }
}

/// Takes all datagrams that are there; how many.
fn take_all(hears: &UdpSocket) -> usize {
    hears.set_nonblocking(true).unwrap();
    let mut bytes = [0; 2048];
    (0..).find(|_| hears.recv(&mut bytes).is_err()).unwrap()
}

fn port(lab: &TestLab, host: usize, what: &str) -> u64 {
    lab.status()["hosts"][host]["port"][what].as_u64().unwrap()
}

#[test]
fn one_sender_is_held_back_and_loses_nothing() {
    let lab = TestLab::with(
        TestLab::own("t-rate-one"),
        &["--rate", "20mbit", "--buffer", "16k"],
    );
    let (says, hears) = (socket(&lab, 0), socket(&lab, 1));
    let to = hears.local_addr().unwrap();
    let (count, begin) = (1000, Instant::now());
    // It waits while the line is behind: nothing is ever thrown away.
    send(&says, FULL, count, to);
    let took = begin.elapsed();
    let mut taken = 0;
    let all = || {
        taken += take_all(&hears);
        taken == count
    };
    until(|| format!("not all of {count} came"), all);
    // Its socket holds some 90 of them, which it need not wait for.
    let least = 900.0 * 1514.0 * 8.0 / (20.0 * MBIT);
    assert!(took.as_secs_f64() > least, "{took:?}");
    assert_eq!(port(&lab, 1, "dropped"), 0);
    assert_eq!(port(&lab, 0, "own_dropped"), 0);
}

#[test]
fn two_senders_fill_the_port_of_one() {
    let lab = TestLab::with(
        TestLab::own("t-rate-two"),
        &["--hosts", "3", "--rate", "20mbit", "--buffer", "16k"],
    );
    let hears = socket(&lab, 0);
    let to = hears.local_addr().unwrap();
    let sockets = [1, 2].map(|host| socket(&lab, host));
    let senders = sockets.map(|says| spawn(move || send(&says, FULL, 1000, to)));
    senders.into_iter().for_each(|one| one.join().unwrap());
    let dropped = || port(&lab, 0, "dropped") as usize;
    let mut taken = 0;
    let all = || {
        taken += take_all(&hears);
        taken + dropped() == 2000
    };
    until(|| format!("of 2000 {} were dropped", dropped()), all);
    // About half of it: how much depends on when which of them was alone.
    let dropped = dropped();
    assert!(taken > 0 && dropped > 0, "{taken} {dropped}");
    for host in 0..3 {
        assert_eq!(port(&lab, host, "own_dropped"), 0);
    }
    let said = say(&["lab", "status", lab.0]).expect(0).out;
    assert!(said.contains(&format!("port: {dropped} dropped")), "{said}");
    assert!(said.contains("20mbit, buffer 16384 bytes"), "{said}");
}

#[test]
fn streams_with_offload_keep_the_rate_too() {
    let lab = TestLab::with(TestLab::own("t-rate-tcp"), &["--rate", "40mbit"]);
    let at = lab.address(1, "ipv6");
    let listener = lab.within("h1", || TcpListener::bind((at, 0)).unwrap());
    let to = listener.local_addr().unwrap();
    let bytes = 4 << 20;
    let taker = spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::copy(&mut stream, &mut std::io::sink()).unwrap()
    });
    let begin = Instant::now();
    let mut stream = lab.within("h0", || TcpStream::connect(to).unwrap());
    stream.write_all(&vec![1; bytes]).unwrap();
    drop(stream);
    assert_eq!(taker.join().unwrap(), bytes as u64);
    let least = bytes as f64 * 8.0 / (40.0 * MBIT);
    let took = begin.elapsed().as_secs_f64();
    assert!(took > least, "{took} s, not {least}");
}

#[test]
fn host_ports_do_not_go_round_the_line() {
    let lab = TestLab::with(TestLab::own("t-rate-xdp"), &["--rate", "40mbit"]);
    let rows = format!("/tmp/portolan-rate-{}.json", std::process::id());
    let words = [
        "bench",
        "bandwidth",
        "--lab",
        lab.0,
        "--link",
        "xdp",
        "--size",
        "65536",
        "--slices",
        "5",
        "--json",
        &rows,
    ];
    say(&words).expect(0);
    let text = fs::read_to_string(&rows).unwrap();
    fs::remove_file(&rows).unwrap();
    let rows: serde_json::Value = serde_json::from_str(&text).unwrap();
    let speed = rows["rows"][0]["p50"].as_f64().unwrap();
    assert!(speed > 0.0 && speed < 5.0, "{speed} MB/s of 5: {text}");
    assert_eq!(rows["rows"][0]["system"], "portolan-xdp");
    assert_eq!(port(&lab, 0, "dropped"), 0);
}

/// A socket that sees the marks of what arrives.
fn watching(lab: &TestLab, host: usize, at: IpAddr) -> Watched {
    let options = SocketOptions {
        address: Some(at),
        scope: 0,
        port: 0,
        receive_buffer: BUFFER,
        send_buffer: 1 << 16,
        ipv6: true,
        ecn: false,
        icmp_errors: false,
    };
    let socket = lab.within(&format!("h{host}"), || Watched::bind(&options).unwrap());
    socket.report_class(true).unwrap();
    socket.force_receive_buffer(BUFFER).unwrap();
    socket
}

#[test]
fn a_full_port_marks_who_understands_it() {
    let lab = TestLab::with(
        TestLab::own("t-rate-ecn"),
        &[
            "--hosts", "3", "--rate", "10mbit", "--buffer", "256k", "--ecn", "8k",
        ],
    );
    // Of packets that two hosts send to one: the class that each arrives with.
    let marks = |kind: &str, class: u8, count: usize| {
        let at = lab.address(0, kind);
        let hears = watching(&lab, 0, at);
        let to = hears.local_address().unwrap();
        let sockets = [1, 2].map(|host| {
            let from = lab.address(host, kind);
            let says = lab.within(&format!("h{host}"), || UdpSocket::bind((from, 0)).unwrap());
            match at {
                IpAddr::V4(_) => sockopt::set_ip_tos(&says, class).unwrap(),
                IpAddr::V6(_) => sockopt::set_ipv6_tclass(&says, class.into()).unwrap(),
            }
            says
        });
        let senders = sockets.map(|says| spawn(move || send(&says, 1400, count, to)));
        senders.into_iter().for_each(|one| one.join().unwrap());
        let mut bytes = [0; 2048];
        let mut classes = Vec::new();
        let all = || {
            while let Ok(got) = hears.receive(&mut bytes) {
                // A checksum that no longer fits would have kept it from coming.
                assert_eq!(bytes[..got.len], [1; 1400]);
                classes.push(got.class & 3);
            }
            classes.len() == 2 * count
        };
        until(|| format!("{kind}, class {class}: not all came"), all);
        classes
    };
    let mut counted = 0;
    for kind in ["ipv4", "ipv6"] {
        // Two packets are no queue.
        assert_eq!(marks(kind, 2, 1), [2, 2], "{kind}");
        for (class, understands) in [(2, true), (1, true), (0, false)] {
            let classes = marks(kind, class, 100);
            let marked = classes.iter().filter(|&&class| class == 3).count();
            let left = classes.iter().filter(|&&left| left == class).count();
            assert_eq!(marked + left, 200);
            // The first find less than 8 KB, and so may the last.
            assert_eq!(marked > 0, understands, "{kind} {class}");
            assert!(marked < 198, "{kind} {class}: {marked}");
            counted += marked as u64;
            assert_eq!(port(&lab, 0, "marked"), counted);
        }
    }
    assert_eq!(port(&lab, 0, "dropped"), 0);
}

#[test]
fn numbers_that_cannot_be_are_refused() {
    need_root();
    let refused = |options: &[&str], remedy: &str| {
        say(&[&["lab", "up", "t-rate-bad"], options].concat())
            .expect(2)
            .complains(&[remedy]);
    };
    refused(&["--rate", "200"], "for example 64kbit, 200mbit or 1gbit");
    refused(&["--rate", "1kbit"], "from 64kbit to 40gbit");
    refused(&["--buffer", "64k"], "--rate");
    refused(&["--ecn", "16k"], "--rate");
    refused(&["--rate", "1mbit", "--buffer", "1k"], "--buffer 1514");
    refused(&["--rate", "1mbit", "--buffer", "x"], "64K");
    refused(
        &["--rate", "1mbit", "--buffer", "16k", "--ecn", "16k"],
        "--ecn 1 to 16383",
    );
    say(&["lab", "status", "t-rate-bad"]).expect(2);
    let lab = TestLab::with(TestLab::own("t-rate-same"), &["--rate", "1mbit"]);
    let up = |rate| say(&["lab", "up", lab.0, "--rate", rate]);
    assert!(up("1000kbit").expect(0).out.contains("was up already"));
    up("2mbit").expect(2).complains(&[
        "is up with 2 hosts and MTU 1500, 1mbit, buffer 65536 bytes",
        &format!("portolan lab down {}", lab.0),
    ]);
}

#[test]
fn an_up_that_is_killed_leaves_nothing_of_its_lines() {
    need_root();
    let lab = TestLab(TestLab::own("t-rate-kill"));
    let up = ["lab", "up", lab.0, "--rate", "50mbit", "--ecn", "8k"];
    for delay in moments() {
        let mut child = start("rate-kill", &up);
        sleep(delay);
        // It may have ended.
        let _ = crate::common::try_signal(child.id(), Signal::KILL);
        let ready = child.wait().unwrap().success();
        none_left("rate-kill");
        say(&["lab", "down", lab.0]);
        assert_eq!(
            crate::common::traces(lab.0),
            Vec::<String>::new(),
            "{delay:?}"
        );
        if ready {
            break;
        }
    }
}

#[test]
fn busy_cores_are_told_of() {
    let lab = TestLab::up(TestLab::own("t-rate-busy"), "1");
    let all = TestLab::status_of(&["lab", "status", lab.0, "--json"])["cores_busy_percent"]
        .as_array()
        .unwrap()
        .len();
    // All of the machine's, whichever this process may use.
    let cores = Command::new("getconf").arg("_NPROCESSORS_ONLN").output();
    let cores = String::from_utf8(cores.unwrap().stdout).unwrap();
    assert_eq!(Ok(all), cores.trim().parse());
    let told = AtomicBool::new(false);
    scope(|threads| {
        for _ in 0..all {
            threads.spawn(|| {
                while !told.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let status = || say(&["lab", "status", lab.0]).expect(0).out;
        let warns = || status().contains("more than 80 % busy, so cores and not wires limit");
        let limit = Instant::now() + PATIENCE;
        while !warns() && Instant::now() < limit {}
        told.store(true, Relaxed);
        assert!(Instant::now() < limit, "{}", status());
    });
    // To a file, and of all labs.
    let file = format!("/tmp/portolan-status-{}.json", std::process::id());
    let said = say(&["lab", "status", "--json", &file]).expect(0);
    assert_eq!(said.out, "");
    let text = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let about: serde_json::Value = serde_json::from_str(&text).unwrap();
    let labs = about["labs"].as_array().unwrap();
    assert!(labs.iter().any(|about| about["name"] == lab.0), "{text}");
}
