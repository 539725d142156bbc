//! What the tests of the command share.
#![allow(dead_code)] // Each test program uses its part.

pub mod cluster;
pub mod figures;
pub mod pmi;
pub mod slurm;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Marks a test's processes in their environment.
pub const MARK: &str = "PORTOLAN_TEST_MARK";

/// The command under test.
pub fn portolan(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portolan"));
    command.args(arguments).stdin(Stdio::null());
    // Not by what somebody tuned on this machine.
    command.env("PORTOLAN_TUNED", "");
    command
}

/// The program that the tests run as ranks.
pub fn probe() -> String {
    let folder = PathBuf::from(env!("CARGO_BIN_EXE_portolan"))
        .parent()
        .unwrap()
        .join("examples");
    let path = folder.join("probe");
    assert!(
        path.exists(),
        "{} is missing: `cargo test -p portolan-cli` builds it, with `--test NAME` add \
         `--examples`",
        path.display()
    );
    path.to_str().unwrap().to_owned()
}

/// One of the examples of the crate `portolan`, built by `cargo test --workspace`.
pub fn example(name: &str) -> String {
    let path = probe().replace("probe", name);
    assert!(
        Path::new(&path).exists(),
        "{path} is missing: cargo build -p portolan --examples"
    );
    path
}

/// Labs need root. A test that cannot run has not passed.
pub fn need_root() {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test builds a lab of network namespaces and needs root: run the tests as root \
         (sudo -E env PATH=$PATH cargo test -p portolan-cli)"
    );
}

/// What a finished command said and returned.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    pub fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self {
            code: output.status.code().unwrap_or(-1),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    /// Fails unless the command returned `code`.
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    /// Fails unless all of `parts` are in the messages.
    pub fn complains(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.err.contains(part), "no {part:?} in {self:#?}");
        }
        self
    }

    /// Standard output's lines, sorted.
    pub fn lines(&self) -> Vec<&str> {
        let mut lines: Vec<&str> = self.out.lines().collect();
        lines.sort_unstable();
        lines
    }
}

/// Runs the command to its end.
pub fn say(arguments: &[&str]) -> Said {
    Said::from(portolan(arguments).output().unwrap())
}

/// Starts the command, its processes marked with `mark`.
pub fn start(mark: &str, arguments: &[&str]) -> Child {
    portolan(arguments)
        .env(MARK, mark)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The id of a job that was started with -v.
pub fn job_id(job: &mut Child) -> String {
    for line in BufReader::new(job.stderr.as_mut().unwrap()).lines() {
        if let Some((_, rest)) = line.unwrap().split_once("the job is ") {
            return rest.split(' ').next().unwrap().to_owned();
        }
    }
    panic!("the job was not named");
}

/// What `top --json` says of each rank.
pub fn ranks(arguments: &[&str]) -> Vec<serde_json::Value> {
    let said = say(&[&["top", "--json"], arguments].concat()).expect(0);
    let value: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let hosts = value["hosts"].as_array().unwrap();
    hosts
        .iter()
        .flat_map(|host| host["ranks"].as_array().unwrap().clone())
        .collect()
}

/// Sends a signal to a process.
pub fn signal(pid: u32, signal: Signal) {
    try_signal(pid, signal).unwrap();
}

/// Sends a signal to a process that may have ended.
pub fn try_signal(pid: u32, signal: Signal) -> rustix::io::Result<()> {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal)
}

/// Waits for the rest of what a started command says.
pub fn finish(child: Child) -> Said {
    Said::from(child.wait_with_output().unwrap())
}

/// Reads lines until `count` of them contain `text`; gives all.
pub fn read_until(child: &mut Child, text: &str, count: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut found = 0;
    for line in BufReader::new(child.stdout.as_mut().unwrap()).lines() {
        let line = line.unwrap();
        found += usize::from(line.contains(text));
        lines.push(line);
        if found == count {
            return lines;
        }
    }
    panic!("output ended before {count} lines with {text:?}: {lines:?}");
}

/// Process ids that bear a mark.
pub fn marked(mark: &str) -> Vec<u32> {
    let wanted = format!("{MARK}={mark}");
    let is_marked = |pid: &u32| {
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let is_zombie = state
            .rsplit(')')
            .next()
            .is_some_and(|rest| rest.starts_with(" Z"));
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        !is_zombie
            && environ
                .split(|&byte| byte == 0)
                .any(|entry| entry == wanted.as_bytes())
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .filter(is_marked)
        .collect()
}

/// Waits until no process bears a mark.
pub fn none_left(mark: &str) {
    let start = Instant::now();
    loop {
        let left = marked(mark);
        if left.is_empty() {
            return;
        }
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "still there: {left:?}"
        );
        sleep(Duration::from_millis(5));
    }
}

/// Traces of a lab: namespaces, mounts, files.
pub fn traces(name: &str) -> Vec<String> {
    let is_ours = |namespace: &str| {
        let rest = namespace.strip_prefix(&format!("ptl-{name}-"));
        rest.is_some_and(|rest| !rest.contains('-'))
    };
    let mut found = Vec::new();
    for entry in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let namespace = entry.file_name().to_string_lossy().into_owned();
        if is_ours(&namespace) {
            found.push(namespace);
        }
    }
    let folder = format!("/run/portolan/lab/{name}");
    if Path::new(&folder).exists() {
        found.push(folder.clone());
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    for point in mounts.lines().filter_map(|line| line.split(' ').nth(4)) {
        let namespace = point.strip_prefix("/run/netns/");
        if namespace.is_some_and(is_ours) || point.starts_with(&format!("{folder}/")) {
            found.push(format!("mount {point}"));
        }
    }
    found
}

/// A lab that is removed when its test ends, well or not.
pub struct TestLab(pub &'static str);

impl TestLab {
    pub fn up(name: &'static str, hosts: &str) -> Self {
        Self::with(name, &["--hosts", hosts])
    }

    /// Made with these options.
    pub fn with(name: &'static str, options: &[&str]) -> Self {
        need_root();
        let lab = Self(name);
        say(&["lab", "down", name]);
        say(&[&["lab", "up", name], options].concat()).expect(0);
        lab
    }

    /// The name of a lab of this test program alone, so that it may run twice
    /// at the same time.
    pub fn own(name: &str) -> &'static str {
        format!("{name}-{}", std::process::id()).leak()
    }

    /// What `lab status` says of it.
    pub fn status(&self) -> serde_json::Value {
        let said = say(&["lab", "status", self.0, "--json"]).expect(0);
        serde_json::from_str(&said.out).unwrap()
    }

    /// An address of a host, `kind` being `ipv4` or `ipv6`.
    pub fn address(&self, host: usize, kind: &str) -> IpAddr {
        let about = self.status();
        about["hosts"][host][kind]
            .as_str()
            .unwrap()
            .parse()
            .unwrap()
    }

    /// Runs `act` on a thread of its own within the network of a host, or of
    /// the switch (`sw`). Sockets that it makes stay there.
    pub fn within<T: Send>(&self, host: &str, act: impl FnOnce() -> T + Send) -> T {
        let file = File::open(format!("/run/netns/ptl-{}-{host}", self.0)).unwrap();
        let enter = || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(file.as_fd(), kind).unwrap();
            act()
        };
        std::thread::scope(|scope| scope.spawn(enter).join()).unwrap()
    }

    pub fn exec(&self, host: &str, command: &[&str]) -> Said {
        say(&[&["lab", "exec", self.0, host, "--"], command].concat())
    }
}

impl Drop for TestLab {
    fn drop(&mut self) {
        say(&["lab", "down", self.0]);
    }
}
