//! Nothing of a job stays, whoever is killed and however its programs hide.

use std::fs;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};

use crate::common::{finish, marked, need_root, none_left, read_until, signal, start, until};
use rustix::process::Signal;

/// A program whose child leaves its process group and its parent.
const HIDES: &str = "setsid sh -c 'sleep 1000 & echo hidden; wait' >&2 & echo ready; ";

/// Control groups of these launchers.
fn groups(launchers: &[u32]) -> Vec<String> {
    let found = std::process::Command::new("find")
        .args(["/sys/fs/cgroup", "-name", "portolan-*", "-type", "d"])
        .output()
        .unwrap();
    let text = String::from_utf8(found.stdout).unwrap();
    let is_theirs = |path: &&str| {
        let name = path.rsplit('/').next().unwrap();
        let pid = name.split('-').nth(1).unwrap();
        launchers.contains(&pid.parse().unwrap())
    };
    text.lines().filter(is_theirs).map(str::to_owned).collect()
}

/// Control groups v2 that this process may make, which the test relies on.
fn need_control_groups() {
    need_root();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(
        mounts.contains(" cgroup2 rw"),
        "no writable cgroup2 is mounted here, so hidden processes cannot be found: mount one \
         (mount -t cgroup2 none /sys/fs/cgroup/unified)"
    );
}

/// The process of a job whose command line begins so.
fn named(mark: &str, line: &str) -> Option<u32> {
    let words = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/cmdline"));
    let mut all = marked(mark).into_iter();
    all.find(|pid| words(pid).is_ok_and(|text| text.starts_with(line)))
}

fn guard(mark: &str) -> Option<u32> {
    let line = concat!(env!("CARGO_BIN_EXE_portolan"), "\0internal-guard");
    named(mark, line)
}

/// Waits for a guard that is not process `but`.
fn another_guard(mark: &str, but: u32) -> u32 {
    let other = || guard(mark).filter(|&pid| pid != but);
    let mut found = None;
    let is_there = || {
        found = other();
        found.is_some()
    };
    until(|| "no guard".into(), is_there);
    found.unwrap()
}

/// When a process was started, clock ticks after the host was.
fn started(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.split(' ').nth(19).unwrap().parse().unwrap()
}

#[test]
fn a_process_group_whose_number_was_used_again_is_left_alone() {
    let mut group = Command::new("sleep")
        .arg("1000")
        .process_group(0)
        .spawn()
        .unwrap();
    // The guard hears of an earlier one, then of this one, and of no farewell.
    let truth = started(group.id());
    for (told, ends) in [(truth - 1, false), (truth, true)] {
        let mut guard = Command::new(env!("CARGO_BIN_EXE_portolan"))
            .arg("internal-guard")
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let word = [&group.id().to_le_bytes()[..], &told.to_le_bytes()].concat();
        guard.stdin.take().unwrap().write_all(&word).unwrap();
        assert!(guard.wait().unwrap().success());
        if ends {
            assert_eq!(group.wait().unwrap().signal(), Some(9));
        } else {
            assert!(group.try_wait().unwrap().is_none());
        }
    }
}

#[test]
fn processes_that_hide_end_with_their_job() {
    need_control_groups();
    let job = |end: &str| format!("{HIDES}{end}");
    // Its programs end by themselves.
    let program = job("sleep 0.2; exit 0");
    let child = start("left-end", &["run", "-n", "2", "--", "sh", "-c", &program]);
    let mut launchers = vec![child.id()];
    finish(child).expect(0);
    none_left("left-end");
    // The launcher is killed; its guard is not.
    let program = job("sleep 1000");
    let mut child = start("left-kill", &["run", "-n", "2", "--", "sh", "-c", &program]);
    read_until(&mut child, "ready", 2);
    until(|| "nobody hides".into(), || marked("left-kill").len() > 4);
    signal(child.id(), Signal::KILL);
    launchers.push(child.id());
    finish(child);
    none_left("left-kill");
    // The guard is killed, and then a rank.
    let mut child = start(
        "left-guard",
        &["run", "-n", "2", "--", "sh", "-c", &program],
    );
    read_until(&mut child, "ready", 2);
    signal(guard("left-guard").unwrap(), Signal::KILL);
    signal(named("left-guard", "sh\0-c\0setsid").unwrap(), Signal::KILL);
    launchers.push(child.id());
    finish(child).expect(137);
    none_left("left-guard");
    // Guards are killed, and then the launcher.
    let mut child = start(
        "left-again",
        &["run", "-n", "2", "--", "sh", "-c", &program],
    );
    read_until(&mut child, "ready", 2);
    let mut victim = 0;
    for _ in 0..3 {
        victim = another_guard("left-again", victim);
        signal(victim, Signal::KILL);
    }
    another_guard("left-again", victim);
    signal(child.id(), Signal::KILL);
    launchers.push(child.id());
    finish(child);
    none_left("left-again");
    let left = || groups(&launchers);
    until(|| format!("{:?}", left()), || left().is_empty());
}
