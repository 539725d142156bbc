//! Interfaces whose MTU changes while a job sends. Needs root.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use crate::common::{TestLab, example, finish, none_left, portolan, signal, start};
use rustix::process::Signal;
use serde_json::Value;

/// How long a job may take until its packets have the size that is waited for;
/// what is searched again after ten minutes is not there by then.
const LOOKS: usize = 600;
const PAUSE: Duration = Duration::from_millis(100);

/// Waits until the packets of both ranks are as asked; gives their sizes.
fn packets(id: &str, link: &str, mut fit: impl FnMut(u64) -> bool) -> Vec<u64> {
    let path = format!("{link}_path");
    let size = |rank: &Value| rank["state"][&path][0]["packet_max"].as_u64();
    let mut seen = Vec::new();
    for _ in 0..LOOKS {
        let ranks = crate::common::ranks(&["--dump", id]);
        seen = ranks.iter().filter_map(size).collect();
        if seen.len() == 2 && seen.iter().all(|size| fit(*size)) {
            return seen;
        }
        sleep(PAUSE);
    }
    panic!("{link}: packets of {seen:?} bytes");
}

fn dip(name: &'static str, link: &str) {
    let lab = TestLab::with(TestLab::own(name), &["--mtu", "9000"]);
    let (mark, heat) = (lab.0, example("heat"));
    let words = ["run", "-v", "-n", "2", "--lab", lab.0, "--link", link, "--"];
    let job = portolan(&[&words[..], &[&heat, "1000", "1000000"]].concat())
        .env(crate::common::MARK, crate::common::own_mark(mark))
        // What crosses a bridge whole is as long as it likes.
        .env("PORTOLAN_DISABLE", "gso,gro")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut job = job.unwrap();
    let id = crate::common::job_id(&mut job);
    let full = packets(&id, link, |size| size > 8_900);
    // One end is told by its interface, the other one loses packets.
    for (less, most) in [("1500", 1_472), ("1300", 1_272)] {
        let set = |mtu: &str| {
            let words = ["ip", "link", "set", "eth0", "mtu", mtu];
            lab.exec("h1", &words).expect(0);
        };
        set(less);
        packets(&id, link, |size| size <= most);
        set("9000");
        assert_eq!(packets(&id, link, |size| size > 8_900), full);
    }
    signal(job.id(), Signal::TERM);
    finish(job);
    none_left(mark);
}

#[test]
fn packets_are_as_long_as_before_when_an_interface_takes_them_again_by_udp() {
    dip("t-mtu-udp", "udp");
}

#[test]
fn packets_are_as_long_as_before_when_an_interface_takes_them_again_by_xdp() {
    dip("t-mtu-xdp", "xdp");
}

/// Long messages wait meanwhile, and go on.
#[test]
fn an_interface_that_takes_less_than_every_path_must_is_told_of() {
    for link in ["udp", "xdp"] {
        let lab = TestLab::up(TestLab::own("t-mtu-least"), "2");
        let heat = example("heat");
        let words = ["run", "-v", "-n", "2", "--lab", lab.0, "--link", link, "--"];
        let mut job = start(lab.0, &[&words[..], &[&heat, "1000", "1000000"]].concat());
        let id = crate::common::job_id(&mut job);
        packets(&id, link, |size| size > 1_300);
        let set = |mtu: &str| {
            let words = ["ip", "link", "set", "eth0", "mtu", mtu];
            lab.exec("h1", &words).expect(0);
        };
        set("600");
        let said = BufReader::new(job.stderr.as_mut().unwrap()).lines();
        let told = "give it an MTU of 1,280 or more";
        assert!(said.map_while(Result::ok).any(|line| line.contains(told)));
        set("1500");
        packets(&id, link, |size| size > 1_300);
        signal(job.id(), Signal::TERM);
        finish(job);
        none_left(lab.0);
    }
}
