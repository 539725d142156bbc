//! `portolan run --respawn`: ranks of hosts that leave a job come back on
//! others.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Child;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::common::cluster::Cluster;
use crate::common::{
    PATIENCE, TestLab, example, marked, none_left, portolan, probe, say, signal, start, until,
};
use rustix::process::Signal;

/// A job, and all that it says, of either kind, as it comes.
struct Job {
    child: Child,
    lines: Receiver<String>,
    said: Vec<String>,
    id: String,
}

impl Job {
    /// One that was started with -v.
    fn new(mut child: Child) -> Self {
        let (tell, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        let err = BufReader::new(child.stderr.take().unwrap());
        for from in [Box::new(out) as Box<dyn BufRead + Send>, Box::new(err)] {
            let tell = tell.clone();
            std::thread::spawn(move || {
                for line in from.lines().map_while(Result::ok) {
                    let _ = tell.send(line);
                }
            });
        }
        let mut job = Self {
            child,
            lines,
            said: Vec::new(),
            id: String::new(),
        };
        job.hear("the job is ", 1);
        let said = job.said.last().unwrap();
        let (_, id) = said.split_once("the job is ").unwrap();
        job.id = id.split(' ').next().unwrap().to_owned();
        job
    }

    /// Waits until `count` lines have `text` in them, those heard before
    /// included.
    fn hear(&mut self, text: &str, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.count(text) < count {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.said.push(line),
                Err(_) => panic!("not {count} times {text:?} in {:#?}", self.said),
            }
        }
    }

    fn count(&self, text: &str) -> usize {
        self.said.iter().filter(|line| line.contains(text)).count()
    }

    fn exclude(&self, host: &str) -> crate::common::Said {
        say(&["job", &self.id, "exclude", host])
    }

    /// The process of a rank in its first life.
    fn process_of(&mut self, rank: u32) -> u32 {
        let text = format!("portolan: rank {rank} is process ");
        self.hear(&text, 1);
        let rest = self.said.iter().find_map(|line| line.strip_prefix(&text));
        rest.unwrap().split(' ').next().unwrap().parse().unwrap()
    }

    /// Waits for its end; gives its exit code.
    fn end(&mut self) -> i32 {
        let mut status = None;
        let has_ended = || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        };
        until(|| format!("{:#?}", self.said), has_ended);
        self.said.extend(self.lines.iter());
        status.unwrap().code().unwrap_or(-1)
    }

    /// What the ranks of the example `steps` have in the end.
    fn results(&self) -> BTreeMap<String, String> {
        let result = |line: &String| {
            let (_, rest) = line.split_once("] rank ")?;
            let (rank, value) = rest.split_once(" has ")?;
            (value.len() == 16).then(|| (rank.to_owned(), value.to_owned()))
        };
        self.said.iter().filter_map(result).collect()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder of a test's own, which goes when it ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What four ranks of the example `steps` have after so many steps, where
/// nobody dies.
fn undisturbed(steps: &str) -> BTreeMap<String, String> {
    let folder = Folder::new(&format!("respawn-undisturbed-{steps}"));
    let program = example("steps");
    let words = ["run", "-v", "-n", "4", "--", &program, steps, folder.path()];
    let mut job = Job::new(start("respawn-undisturbed", &words));
    assert_eq!(job.end(), 0);
    let results = job.results();
    assert_eq!(results.len(), 4, "{:#?}", job.said);
    results
}

fn steps_done(folder: &Folder) -> u64 {
    let saved = fs::read_to_string(folder.0.join("0")).unwrap_or_default();
    let last = saved.lines().last().and_then(|line| line.split(' ').next());
    last.map_or(0, |step| step.parse().unwrap())
}

/// Waits until rank 0 has done so many.
fn await_steps(folder: &Folder, steps: u64) {
    let done = || steps_done(folder);
    until(|| format!("after step {}", done()), || done() >= steps);
}

#[test]
fn ranks_of_an_excluded_host_come_back_on_another() {
    let lab = TestLab::up("t-rsp-ex", "3");
    let folder = Folder::new("respawn-exclude");
    let wanted = undisturbed("60");
    let (mark, program) = ("respawn-exclude", example("steps"));
    // h2 is there for the case.
    let words = [
        "run",
        "-v",
        "--respawn",
        "2",
        "--lab",
        lab.0,
        "--hosts",
        "h0:2,h1:2,h2:3",
        "-n",
        "4",
        "--",
        &program,
        "60",
        folder.path(),
        "20",
    ];
    let mut job = Job::new(start(mark, &words));
    await_steps(&folder, 5);
    job.exclude("h1").expect(0);
    job.hear("is here again, after step ", 2);
    job.hear("goes on after step", 2);
    for rank in [2, 3] {
        job.hear(
            &format!("rank {rank} is started again on host h2 (restart 1)"),
            1,
        );
    }
    assert_eq!(job.count("no slot is free"), 0, "{:#?}", job.said);
    // They are shown where they are now, once.
    let seen = say(&["top", "--once", "--json", &job.id]).expect(0);
    let seen: serde_json::Value = serde_json::from_str(&seen.out).unwrap();
    let hosts = seen["hosts"].as_array().unwrap();
    let of = |host: &serde_json::Value| {
        let ranks = host["ranks"].as_array().unwrap().iter();
        let ranks = ranks.map(|r| (r["rank"].as_u64().unwrap(), r["restarts"].as_u64().unwrap()));
        (host["host"].as_str().unwrap().to_owned(), ranks.collect())
    };
    let shown: Vec<(String, Vec<_>)> = hosts.iter().map(of).collect();
    let wanted_places = [
        ("h0".to_owned(), vec![(0, 0), (1, 0)]),
        ("h2".to_owned(), vec![(2, 1), (3, 1)]),
    ];
    assert_eq!(shown, wanted_places);
    job.exclude("h1")
        .expect(1)
        .complains(&["(there are h0, h2)"]);
    // All that is left goes to where there is no slot.
    job.exclude("h2").expect(0);
    job.hear(
        "is started again on host h0, the least loaded: no slot is free (restart 2)",
        2,
    );
    job.exclude("h0").expect(1).complains(&["the only host"]);
    assert_eq!(job.end(), 0, "{:#?}", job.said);
    assert_eq!(job.results(), wanted, "{:#?}", job.said);
    job.hear("4 of 4 ranks on 2 hosts ended, exit code 0", 1);
    none_left(mark);
}

#[test]
fn ranks_of_a_lost_host_come_back_on_another() {
    let cluster = Cluster::up("t-rsp-lost");
    let folder = Folder::new("respawn-lost");
    let wanted = undisturbed("80");
    let program = example("steps");
    for way in ["killed", "going down", "cut off"] {
        for file in fs::read_dir(&folder.0).unwrap() {
            fs::remove_file(file.unwrap().path()).unwrap();
        }
        let words = [
            "-v",
            "--respawn",
            "1",
            "--host-silence",
            "1000",
            "--hosts",
            "h2:2,h0:1,h1:1",
            "--",
            &program,
            "80",
            folder.path(),
            "20",
        ];
        let mut job = Job::new(cluster.start("respawn-lost", &words));
        await_steps(&folder, 5);
        match way {
            "cut off" => {
                let words = ["ip", "link", "set", "eth0", "down"];
                cluster.lab.exec("h0", &words).expect(0);
            }
            "killed" => signal(cluster.agent("h0"), Signal::KILL),
            _ => {
                // Its ranks first, as where a host is shut down.
                let agent = cluster.agent("h0");
                signal(job.process_of(2), Signal::KILL);
                std::thread::sleep(Duration::from_millis(100));
                signal(agent, Signal::KILL);
            }
        }
        job.hear("rank 2 is started again on host h2, the least loaded", 1);
        job.hear("rank 2 is here again, after step ", 1);
        job.hear("goes on after step", 3);
        assert_eq!(job.end(), 0, "{way}: {:#?}", job.said);
        assert_eq!(job.results(), wanted, "{way}: {:#?}", job.said);
        let why = match way {
            "going down" => "rank 2 has died: signal 9 ended its process",
            _ => "rank 2 has died: its host is gone",
        };
        assert!(job.count(why) >= 1, "{:#?}", job.said);
        cluster.nothing_left();
    }
}

#[test]
fn a_rank_comes_back_no_more_often_than_asked() {
    let lab = TestLab::up("t-rsp-n", "3");
    let (mark, probe) = ("respawn-n", probe());
    let hosts = ["--lab", lab.0, "--hosts", "h0:1,h1:1,h2:1", "-n", "2"];
    let words = [
        &["run", "-v", "--respawn", "1"],
        &hosts[..],
        &["--", &probe, "wait"],
    ]
    .concat();
    let mut job = Job::new(start(mark, &words));
    job.hear("waiting", 2);
    job.exclude("h1").expect(0);
    job.hear("[0] died: rank 1, signal 15 (SIGTERM)", 1);
    job.hear("[0] back: rank 1, host 2", 1);
    job.hear("[1] waiting", 2);
    job.exclude("h2").expect(0);
    job.hear(
        "rank 1 is not started again: it was started again once (--respawn 1)",
        1,
    );
    job.hear("[0] died: rank 1, signal 15 (SIGTERM)", 2);
    // Who takes a host out wants the rest to go on.
    assert!(job.child.try_wait().unwrap().is_none());
    signal(job.child.id(), Signal::INT);
    assert_eq!(job.end(), 130);
    none_left(mark);
    // A host that is lost is another thing: then it is as --on-death says.
    let cluster = Cluster::up("t-rsp-n2");
    for (on_death, code) in [("end", 1), ("notify", 1)] {
        let hosts = ["--hosts", "h2,h0,h1", "-n", "2", "--respawn", "1", "-v"];
        let words = [&hosts[..], &["--on-death", on_death, "--", &probe, "wait"]].concat();
        let mut job = Job::new(cluster.start(mark, &words));
        job.hear("waiting", 2);
        signal(cluster.agent("h0"), Signal::KILL);
        job.hear("[0] back: rank 1, host 2", 1);
        signal(cluster.agent("h1"), Signal::KILL);
        job.hear("rank 1 is not started again: it was started again once", 1);
        job.hear("[0] died: rank 1, the loss of its host", 2);
        if on_death == "notify" {
            assert!(job.child.try_wait().unwrap().is_none());
            let rank = marked(mark).into_iter().find(|pid| {
                let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                line.ends_with(b"/probe\0wait\0")
            });
            signal(rank.unwrap(), Signal::TERM);
        } else {
            job.hear("ending the job: rank 1 died with its host", 1);
        }
        assert_eq!(job.end(), code, "{on_death}: {:#?}", job.said);
        cluster.nothing_left();
    }
}

#[test]
fn a_rank_stays_in_its_partition() {
    let lab = TestLab::up("t-rsp-part", "4");
    let (mark, probe) = ("respawn-part", probe());
    let words = [
        "run",
        "-v",
        "--respawn",
        "2",
        "--lab",
        lab.0,
        "--hosts",
        "h0:1,h1:1,h2:4,h3:1",
        "--partition",
        "left=h0,h1,h3",
        "-n",
        "3",
        "--",
        &probe,
        "wait",
    ];
    let mut job = Job::new(start(mark, &words));
    job.hear("waiting", 3);
    // h2 has slots, but is of the other partition.
    job.exclude("h1").expect(0);
    job.hear("rank 1 is started again on host h3 (restart 1)", 1);
    job.hear("back: rank 1, host 3", 2);
    job.exclude("h2").expect(0);
    job.hear(
        "rank 2 is not started again: no host of its partition is left",
        1,
    );
    signal(job.child.id(), Signal::INT);
    assert_eq!(job.end(), 130);
    none_left(mark);
}

#[test]
fn whoever_is_killed_after_a_return_nothing_is_left() {
    let cluster = Cluster::up("t-rsp-kill");
    let (mark, probe) = ("respawn-kill", probe());
    // A rank alone, on a host that stays, is not started again.
    let hosts = ["--hosts", "h2,h0,h1", "-n", "2", "--respawn", "1", "-v"];
    let mut job = Job::new(cluster.start(mark, &[&hosts[..], &["--", &probe, "wait"]].concat()));
    job.hear("waiting", 2);
    signal(job.process_of(1), Signal::KILL);
    assert_eq!(job.end(), 137, "{:#?}", job.said);
    assert_eq!(job.count("started again"), 0, "{:#?}", job.said);
    cluster.nothing_left();
    for victim in ["launcher", "agent"] {
        let hosts = ["--hosts", "h2,h0,h1:2", "-n", "2", "--respawn", "1", "-v"];
        let program = "sleep 1000 & exec \"$0\" wait";
        let words = [&hosts[..], &["--", "sh", "-c", program, &probe]].concat();
        let mut job = Job::new(cluster.start(mark, &words));
        job.hear("waiting", 2);
        signal(cluster.agent("h0"), Signal::KILL);
        job.hear("[0] back: rank 1, host 2", 1);
        match victim {
            "launcher" => {
                let launchers = marked(mark).into_iter().filter(|pid| {
                    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                    let line = String::from_utf8_lossy(&line);
                    line.contains("portolan\0run\0")
                });
                launchers.for_each(|pid| signal(pid, Signal::KILL));
            }
            _ => {
                signal(cluster.agent("h1"), Signal::KILL);
                job.hear("is not started again", 1);
                assert_eq!(job.end(), 1);
            }
        }
        cluster.nothing_left();
        none_left(mark);
    }
}

#[test]
fn output_environment_and_files_of_both_lives_are_kept() {
    let lab = TestLab::up("t-rsp-out", "2");
    let output = Folder::new("respawn-output");
    let mark = "respawn-output";
    let program = "echo life $PORTOLAN_RESTARTS; printf unended; cat; exec \"$0\" wait";
    let probe = probe();
    let words = [
        "run",
        "-v",
        "--respawn",
        "1",
        "--lab",
        lab.0,
        "--hosts",
        "h0:1,h1:1",
        "--output",
        output.path(),
        "--",
        "sh",
        "-c",
        program,
        &probe,
    ];
    let input = Folder::new("respawn-input");
    let file = input.0.join("in");
    fs::write(&file, "told once\n").unwrap();
    let child = portolan(&words)
        .env(crate::common::MARK, crate::common::own_mark(mark))
        .stdin(fs::File::open(&file).unwrap())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn();
    let mut job = Job::new(child.unwrap());
    let written = |name: &str| fs::read_to_string(output.0.join(name)).unwrap_or_default();
    let await_text = |name: &str, text: &str| {
        let found = || written(name).contains(text);
        until(|| format!("{name}: {:?}", written(name)), found);
    };
    await_text("0.out", "waiting");
    await_text("1.out", "waiting");
    job.exclude("h0").expect(0);
    await_text("0.out", "life 1\nunendedwaiting\n");
    await_text("1.out", "back: rank 0, host 1");
    job.hear("rank 0 is started again on host h1, the least loaded", 1);
    signal(job.child.id(), Signal::INT);
    assert_eq!(job.end(), 130);
    let first = "life 0\nunendedtold once\nwaiting\n";
    let both = written("0.out");
    assert!(both.starts_with(first), "{both:?}");
    assert!(
        both[first.len()..].contains("life 1\nunendedwaiting\n"),
        "{both:?}"
    );
    none_left(mark);
}

#[test]
fn what_cannot_be_is_said_at_once() {
    let run = |words: &[&str]| say(&[&["run"], words, &["--", "true"]].concat()).expect(2);
    run(&["-n", "2", "--respawn", "x"]).complains(&["--respawn", "invalid value 'x'"]);
    run(&["-n", "2", "--respawn", "-1"]).complains(&["--respawn"]);
    run(&["-n", "2", "--respawn", "1001"]).complains(&["--respawn", "1001 is not in 0..=1000"]);
    run(&["-n", "2", "--respawn", "1"]).complains(&["--respawn 1", "there is only one"]);
    let lab = TestLab::up("t-rsp-bad", "2");
    run(&[
        "-n",
        "1",
        "--respawn",
        "1",
        "--lab",
        lab.0,
        "--exclude",
        "h1",
    ])
    .complains(&["there is only one"]);
    run(&["-n", "1", "--respawn", "1", "--lab", lab.0, "--link", "shm"])
        .complains(&["shared memory does not reach", "--link udp"]);
    // A rank that fails on a host that stays is nobody's loss but its own.
    let probe = probe();
    let words = [
        "run",
        "-v",
        "--respawn",
        "3",
        "--lab",
        lab.0,
        "-n",
        "2",
        "--",
        &probe,
        "die",
        "1",
        "7",
    ];
    let said = say(&words).expect(7);
    assert!(!said.err.contains("started again"), "{said:#?}");
}
