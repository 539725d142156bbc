//! Looking at running jobs: `portolan top`.

mod common;

use std::io::{BufRead, BufReader};
use std::process::Child;
use std::time::{Duration, Instant};

use common::cluster::Cluster;
use common::{Said, none_left, probe, say, start};
use rustix::process::{Pid, Signal, kill_process};

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

/// The id of a job that was started with -v.
fn job_id(job: &mut Child) -> String {
    for line in BufReader::new(job.stderr.as_mut().unwrap()).lines() {
        if let Some((_, rest)) = line.unwrap().split_once("the job is ") {
            return rest.split(' ').next().unwrap().to_owned();
        }
    }
    panic!("the job was not named");
}

/// Asks until the answer has `text`.
fn top_until(arguments: &[&str], text: &str) -> Said {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let said = say(&[&["top"], arguments].concat());
        if said.out.contains(text) {
            return said;
        }
        assert!(Instant::now() < deadline, "no {text:?} in {said:#?}");
    }
}

#[test]
fn jobs_are_listed_and_found_by_the_beginning_of_their_id() {
    let mark = "observe-list";
    let mut job = start(mark, &["run", "-v", "-n", "3", "--", &probe(), "wait"]);
    let id = job_id(&mut job);
    let said = say(&["top", "--list"]).expect(0);
    assert!(
        said.out.contains(&format!("{id}  3 ranks on 0")),
        "{said:#?}"
    );
    let said = top_until(&[&id[..9]], "rank 2 host 0").expect(0);
    assert_eq!(said.out.lines().count(), 3, "{said:#?}");
    say(&["top", "zz"])
        .expect(2)
        .complains(&["portolan top --list"]);
    signal(job.id(), Signal::TERM);
    job.wait().unwrap();
    none_left(mark);
    let said = say(&["top", &id]).expect(2);
    said.complains(&["no job of this user", "begins with"]);
}

#[test]
fn a_launcher_that_is_stopped_is_told_from_one_that_is_gone() {
    let mark = "observe-stopped";
    let mut job = start(mark, &["run", "-v", "-n", "1", "--", &probe(), "wait"]);
    let id = job_id(&mut job);
    signal(job.id(), Signal::STOP);
    say(&["top", &id]).expect(1).complains(&["is it stopped?"]);
    signal(job.id(), Signal::CONT);
    say(&["top", &id]).expect(0);
    signal(job.id(), Signal::KILL);
    job.wait().unwrap();
    none_left(mark);
}

#[test]
fn all_hosts_of_a_job_are_seen_from_each() {
    let cluster = Cluster::up("t-top");
    // h1 is reached through h0.
    let hosts = ["--hosts", "h0:2,h1", "--fan-out", "1", "-v"];
    let program = probe();
    let words = [&hosts[..], &["--", &program, "wait"]].concat();
    let mut job = cluster.start("observe-hosts", &words);
    let id = job_id(&mut job);
    let portolan = env!("CARGO_BIN_EXE_portolan");
    for host in ["h0", "h1", "h2"] {
        let said = cluster.lab.exec(host, &[portolan, "top", &id]).expect(0);
        for about in ["rank 0 host h0 ", "rank 1 host h0 ", "rank 2 host h1 "] {
            assert!(said.out.contains(about), "from {host}: {said:#?}");
        }
    }
    // One that does not answer is named, and the others are shown.
    let agent = cluster.agent("h1");
    signal(agent, Signal::STOP);
    let said = cluster.lab.exec("h2", &[portolan, "top", &id]).expect(0);
    assert!(said.out.contains("rank 1 host h0"), "{said:#?}");
    let said = said.complains(&["host h1 does not answer"]);
    assert!(!said.out.contains("rank 2"), "{said:#?}");
    signal(agent, Signal::CONT);
    signal(job.id(), Signal::TERM);
    job.wait().unwrap();
    cluster.nothing_left();
}
