//! What the tests of the command share.

pub mod cluster;
pub mod figures;
pub mod guests;
pub mod lingering;
pub mod mpi;
pub mod pmi;
pub mod slurm;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Marks a test's processes in their environment.
pub const MARK: &str = "PORTOLAN_TEST_MARK";

/// How long something may take to come about that surely does. It only ends a
/// test that would hang: nothing is measured by it.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The same for the command `timeout`, seconds.
pub const LIMIT: &str = "120";

/// Waits until something is so; fails with `what` where it never is.
pub fn until(what: impl FnOnce() -> String, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < PATIENCE, "{}", what());
        sleep(Duration::from_millis(5));
    }
}

/// Ever later moments of something that takes a while, from its beginning on.
pub fn moments() -> impl Iterator<Item = Duration> {
    let next = |moment: &Duration| Some(*moment * 9 / 8 + Duration::from_millis(4));
    std::iter::successors(Some(Duration::ZERO), next)
}

/// A mark of this run of the test program alone.
pub fn own_mark(mark: &str) -> String {
    format!("{mark}-{}", std::process::id())
}

/// For ranks on a busy machine: a close may take long.
pub const CLOSES_LATE: (&str, &str) = ("PORTOLAN_CLOSE_MS", "60000");

/// A bench that is over in a moment, and writes its figures to `file`.
pub fn measuring(file: &str) -> [&str; 10] {
    [
        "bench",
        "latency",
        "--link",
        "shm",
        "--slices",
        "2",
        "--slice-ms",
        "2",
        "--json",
        file,
    ]
}

/// The command under test.
pub fn portolan(arguments: &[&str]) -> Command {
    // `make test &` in a script ignores it, and what is ignored at the start stays so.
    portolan_sys::signals::set_default(Signal::INT.as_raw());
    let mut command = Command::new(env!("CARGO_BIN_EXE_portolan"));
    command.args(arguments).stdin(Stdio::null());
    // Not by what somebody tuned on this machine.
    command.env("PORTOLAN_TUNED", "");
    command.env(CLOSES_LATE.0, CLOSES_LATE.1);
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

/// A program whose ranks exchange messages until they are told to end.
pub struct Rounds {
    pub program: String,
    /// Ends it when it is there.
    pub file: String,
}

impl Rounds {
    pub fn new(name: &str) -> Self {
        let file = format!("/tmp/portolan-{}", own_mark(name));
        Self {
            program: probe().replace("probe", "round"),
            file,
        }
    }

    /// Ends the job well; nothing was lost and nothing came twice.
    pub fn end(&self, job: Child) -> Said {
        fs::write(&self.file, "").unwrap();
        let said = finish(job).expect(0);
        assert!(said.out.contains("the sum is right"), "{said:#?}");
        fs::remove_file(&self.file).unwrap();
        said
    }
}

impl Drop for Rounds {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

/// How many messages a rank has sent.
pub fn sent(rank: &serde_json::Value) -> u64 {
    rank["counters"]["sent"].as_u64().unwrap_or(0)
}

/// Waits until all ranks of a job exchange messages.
pub fn await_messages(id: &str) {
    let seen = || ranks(&["--once", id]);
    let all = || seen().iter().all(|rank| sent(rank) > 10);
    until(|| format!("{:#?}", seen()), all);
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

/// A C program of this tree, built against the static library of this build.
pub fn c_program(source: &str) -> String {
    static BUILT: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    // Once for all tests of a process: one would write what another runs.
    let mut built = BUILT.lock().unwrap();
    let program = built.entry(source.to_owned());
    program.or_insert_with(|| build_c(source)).clone()
}

/// The static library of this build.
pub fn static_library() -> PathBuf {
    newest_library("portolan_library")
}

/// A static library that cargo has built beside the command, by the name of its crate.
pub fn newest_library(name: &str) -> PathBuf {
    let built = |path: &PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    let libraries = Path::new(env!("CARGO_BIN_EXE_portolan")).with_file_name("deps");
    let start = format!("lib{name}-");
    fs::read_dir(libraries)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with(&start) && name.ends_with(".a")
        })
        .max_by_key(built)
        .unwrap_or_else(|| panic!("cargo builds lib{name}.a with the tests: cargo test"))
}

fn build_c(source: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let name = format!("c-{}", source.replace('/', "-"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Tests of another module may run it meanwhile.
    let new = program.with_extension(std::process::id().to_string());
    let built = Command::new("cc")
        .args(["-std=c99", "-O2", "-I"])
        .arg(root.join("crates/portolan/include"))
        .arg("-I")
        .arg(root.join("crates/atoll/include"))
        .arg("-o")
        .arg(&new)
        .arg(root.join(source))
        .arg(static_library())
        .args(["-lgcc_s", "-lpthread", "-lm", "-ldl"])
        .status();
    assert!(built.unwrap().success(), "{source}");
    fs::rename(&new, &program).unwrap();
    program.to_str().unwrap().to_owned()
}

/// This machine's name.
pub fn own_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_str().unwrap().to_owned()
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
    /// Exit code; of a command that a signal has ended, the signal's number, negative.
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    pub fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self {
            code: (output.status.code()).unwrap_or_else(|| -output.status.signal().unwrap()),
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

    /// Fails unless four ranks on two hosts have printed `probe table`.
    pub fn has_table(&self) {
        for rank in 0..4 {
            let (host, local) = (rank / 2, rank % 2);
            let locals = [2 * host, 2 * host + 1];
            let about =
                format!("[{rank}] rank {rank} of 4 host {host} of 2 local {local} of {locals:?}");
            assert!(self.out.contains(&about), "no {about:?} in {self:#?}");
            let name = format!("[{rank}] name h{host}");
            assert!(self.lines().contains(&name.as_str()), "{self:#?}");
        }
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
        .env(MARK, own_mark(mark))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Copies a program, by a process of its own: a file that this process had open for writing
/// would be busy (ETXTBSY) as long as a child that another test starts has not run exec.
pub fn install(from: impl AsRef<Path>, to: impl AsRef<Path>, mode: u32) {
    let mut command = install_command(from.as_ref(), to.as_ref(), mode);
    assert!(command.status().unwrap().success(), "{command:?}");
}

fn install_command(from: &Path, to: &Path, mode: u32) -> Command {
    let mut command = Command::new("install");
    command.arg(format!("--mode={mode:o}")).args([from, to]);
    command
}

/// Writes a program of the shell.
pub fn executable(path: impl AsRef<Path>, script: &str) {
    let mut command = install_command(Path::new("/dev/stdin"), path.as_ref(), 0o755);
    let mut writer = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = writer.stdin.take().unwrap();
    writeln!(input, "#!/bin/sh\n{script}").unwrap();
    drop(input);
    assert!(writer.wait().unwrap().success(), "{command:?}");
}

/// Files in /dev/shm that somebody might have left.
pub fn shared_files() -> Vec<PathBuf> {
    let entries = fs::read_dir("/dev/shm").unwrap().flatten();
    let ours = entries.filter(|it| it.file_name().to_string_lossy().contains("portolan"));
    ours.map(|it| it.path()).collect()
}

/// A folder with the command and what the Makefile of a crate makes of its static library, as
/// `make build` leaves it.
pub fn built(target: &Path, krate: &str, library: &Path, called: &str) -> PathBuf {
    // Modules of tests that run at once share it.
    let _one_builds = lock(target.file_name().unwrap().to_str().unwrap());
    let release = target.join("release");
    let is_same = |name: &str, as_file: &Path| {
        let inode = |path: &Path| fs::metadata(path).map(|it| it.ino()).ok();
        inode(&release.join(name)) == inode(as_file)
    };
    let done = target.join("done");
    let portolan = Path::new(env!("CARGO_BIN_EXE_portolan"));
    if done.exists() && is_same(called, library) && is_same("portolan", portolan) {
        return release;
    }
    let _ = fs::remove_dir_all(target);
    fs::create_dir_all(&release).unwrap();
    fs::hard_link(library, release.join(called)).unwrap();
    // It looks beside itself, so a symbolic link would not do.
    fs::hard_link(portolan, release.join("portolan")).unwrap();
    let mut make = Command::new("make");
    make.arg("-C")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(krate))
        .arg(format!("TARGET={}", target.display()))
        .env_remove("MAKEFLAGS");
    Said::from(make.output().unwrap()).expect(0);
    File::create(done).unwrap();
    release
}

/// Held by one test at a time, of whatever process.
pub struct Lock(#[allow(dead_code, reason = "closing it gives the lock back")] File);

/// Waits for the lock of a name.
pub fn lock(name: &str) -> Lock {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.lock"));
    let file = File::create(path).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    Lock(file)
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

/// What a job that is given up has said since it was started.
pub fn last_words(job: &mut Child) -> Said {
    let _ = job.kill();
    let status = job.wait().unwrap();
    let read = |from: Option<&mut dyn Read>| {
        let mut text = Vec::new();
        let _ = from.unwrap().read_to_end(&mut text);
        text
    };
    let stdout = read(job.stdout.as_mut().map(|it| it as _));
    let stderr = read(job.stderr.as_mut().map(|it| it as _));
    Said::from(Output {
        status,
        stdout,
        stderr,
    })
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

/// Whose a process is; fails if that user, who is not root, may look into it.
pub fn keeper_of(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let user = status.split_once("\nUid:\t").unwrap().1.split('\t').next();
    let user = user.unwrap().parse().unwrap();
    assert_ne!(user, 0, "root's are root's in any case: {status}");
    // The kernel's word for a process that is not dumpable.
    let owner = fs::metadata(format!("/proc/{pid}/mem")).unwrap().uid();
    assert_eq!(owner, 0, "its memory is that of user {owner}: {status}");
    user
}

/// Process ids that bear a mark.
pub fn marked(mark: &str) -> Vec<u32> {
    let wanted = format!("{MARK}={}", own_mark(mark));
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
    let still = || format!("still there: {:?}", marked(mark));
    until(still, || marked(mark).is_empty());
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

/// A lab that is removed when its test ends, well or not. Its name is this
/// test program's alone, so that the program may run twice at the same time.
pub struct TestLab(pub &'static str);

impl TestLab {
    pub fn up(name: &'static str, hosts: &str) -> Self {
        Self::with(name, &["--hosts", hosts])
    }

    /// Made with these options.
    pub fn with(name: &'static str, options: &[&str]) -> Self {
        need_root();
        let lab = Self(Self::own(name));
        say(&["lab", "down", lab.0]);
        say(&[&["lab", "up", lab.0], options].concat()).expect(0);
        lab
    }

    /// The name of a lab of this run of the test program alone.
    pub fn own(name: &str) -> &'static str {
        let own = format!("-{}", std::process::id());
        let ending = if name.contains(&own) { "" } else { &own };
        format!("{name}{ending}").leak()
    }

    /// What `lab status` says of it.
    pub fn status(&self) -> serde_json::Value {
        let mut all = Self::status_of(&["lab", "status", self.0, "--json"]);
        all["labs"][0].take()
    }

    /// What is told of labs as JSON.
    pub fn status_of(words: &[&str]) -> serde_json::Value {
        serde_json::from_str(&say(words).expect(0).out).unwrap()
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
