//! A job whose messages go by two networks, one of which fails. Needs root.

use std::cell::RefCell;
use std::process::Child;
use std::thread::sleep;
use std::time::Duration;

use crate::common::{Rounds, TestLab, example, job_id, last_words, none_left, say, start, until};

fn plug(lab: &TestLab, switch: &str, state: &str) {
    say(&["lab", "link", lab.0, "h1", state, "--switch", switch]).expect(0);
}

/// Rank 0's paths that are in use, and how many messages it has sent so far.
fn paths((job, id): (&mut Child, &str), link: &str) -> (usize, u64) {
    let said = say(&["top", "--json", "--dump", id]);
    assert_eq!(said.code, 0, "{said:#?}, of {:#?}", last_words(job));
    let dump: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let rank = &dump["hosts"][0]["ranks"][0];
    // A rank that is about to join has neither.
    let table = format!("{link}_path");
    let rows = rank["state"][&table].as_array().into_iter().flatten();
    let used = rows.filter(|row| row["usable"] == 1).count();
    (used, rank["counters"]["sent"].as_u64().unwrap_or(0))
}

/// Waits until the paths are as they should be.
fn await_paths(job: (&mut Child, &str), link: &str, fits: impl Fn((usize, u64)) -> bool) {
    let found = RefCell::new((0, 0));
    let looked = || {
        *found.borrow_mut() = paths((&mut *job.0, job.1), link);
        fits(*found.borrow())
    };
    until(|| format!("{:?}", found.borrow()), looked);
}

/// Waits until many more messages have been exchanged: by what is left.
fn goes_on((job, id): (&mut Child, &str), link: &str) {
    let (_, before) = paths((&mut *job, id), link);
    await_paths((job, id), link, |(_, sent)| sent > before + 1_000);
}

#[test]
fn a_job_on_two_networks_goes_on_when_either_fails() {
    let lab = TestLab::with(TestLab::own("t-nets"), &["--switches", "2"]);
    let mark = TestLab::own("nets-fail");
    let rounds = Rounds::new("nets-fail");
    for link in ["udp", "xdp"] {
        let words = [
            "run",
            "-v",
            "-n",
            "2",
            "--lab",
            lab.0,
            "--link",
            link,
            "--interface",
            "eth0,eth1",
            "--",
            &rounds.program,
            &rounds.file,
        ];
        let mut job = start(mark, &words);
        let id = job_id(&mut job);
        await_paths((&mut job, &id), link, |(used, _)| used == 2);
        plug(&lab, "0", "down");
        sleep(Duration::from_millis(500));
        plug(&lab, "0", "up");
        await_paths((&mut job, &id), link, |(used, _)| used == 2);
        plug(&lab, "1", "down");
        goes_on((&mut job, &id), link);
        // It ends with one network gone for good, and nothing was lost.
        rounds.end(job);
        plug(&lab, "1", "up");
    }
    none_left(mark);
}

/// The words of a job on a lab's hosts.
fn job<'a>(lab: &'a TestLab, link: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let words = ["run", "-v", "--lab", lab.0, "--link", link];
    [&words[..], more].concat()
}

#[test]
fn networks_are_paired_by_their_subnets() {
    let lab = TestLab::with(TestLab::own("t-pairs"), &["--switches", "2"]);
    let mark = TestLab::own("nets-pairs");
    let (ring, rounds) = (example("ring"), Rounds::new("nets-pairs"));
    // And the link that rank 0 has: its first network carries host ports.
    for (link, own) in [("udp", "udp"), ("auto", "xdp")] {
        // The hosts' names lead to eth0.
        let other = [
            "-n",
            "2",
            "--timeout",
            "60",
            "--interface",
            "eth1",
            "--",
            &ring,
            "100",
        ];
        let said = say(&job(&lab, link, &other)).expect(0);
        assert!(said.out.contains("the sum is right"), "{link}: {said:#?}");
        // Each lists them in its own order.
        let listed = ["eth0,eth1", "eth1,eth0"].map(|list| format!("PORTOLAN_INTERFACE={list}"));
        let [first, second] = &listed;
        let each = [
            "-n",
            "1",
            "--timeout",
            "600",
            "--",
            "env",
            first,
            &rounds.program,
            &rounds.file,
            ":",
            "-n",
            "1",
            "--",
            "env",
            second,
            &rounds.program,
            &rounds.file,
        ];
        let mut job = start(mark, &job(&lab, link, &each));
        let id = job_id(&mut job);
        await_paths((&mut job, &id), own, |(used, _)| used == 2);
        plug(&lab, "0", "down");
        goes_on((&mut job, &id), own);
        rounds.end(job);
        plug(&lab, "0", "up");
    }
    none_left(mark);
}

#[test]
fn who_has_joined_and_cannot_be_reached_is_not_waited_for_for_ever() {
    let lab = TestLab::with(TestLab::own("t-apart"), &["--switches", "2"]);
    plug(&lab, "0", "down");
    let ring = example("ring");
    let more = [
        "-n",
        "2",
        "--timeout",
        "60",
        "--join-timeout",
        "1",
        "--",
        &ring,
        "100",
    ];
    say(&job(&lab, "udp", &more))
        .expect(1)
        .complains(&["never answered", "interface"]);
}
