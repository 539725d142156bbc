//! `portolan run --hosts` over a real sshd on the hosts of a lab. Needs root
//! and openssh-server.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{Said, TestLab, example, finish, none_left, portolan, probe, read_until, say, start};
use rustix::process::{Pid, Signal, kill_process};

const SSHD: &str = "/usr/sbin/sshd";
/// sshd's folder for the process without privileges.
const SEPARATION: &str = "/run/sshd";
const PORT: u16 = 2222;

/// sshd's folder is one for all, and so is the machine's patience.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Three hosts: sshd on h0 and h1, users on h2. All of it is removed when the
/// test ends, well or not.
struct Cluster {
    lab: TestLab,
    folder: PathBuf,
    daemons: Vec<Child>,
    made_separation: bool,
    _turn: MutexGuard<'static, ()>,
}

fn succeeds(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
}

impl Cluster {
    fn up(name: &'static str) -> Self {
        // A test that failed has poisoned nothing.
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
        assert!(
            Path::new(SSHD).exists(),
            "{SSHD} is missing: install openssh-server (make deps)"
        );
        let folder = PathBuf::from(format!("/tmp/portolan-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("prefix/bin")).unwrap();
        let made_separation = !Path::new(SEPARATION).exists();
        let mut cluster = Self {
            lab: TestLab::up(name, "3"),
            folder,
            daemons: Vec::new(),
            made_separation,
            _turn: turn,
        };
        if made_separation {
            fs::create_dir(SEPARATION).unwrap();
        }
        let binary = cluster.path("prefix/bin/portolan");
        symlink(env!("CARGO_BIN_EXE_portolan"), binary).unwrap();
        cluster.make_key("key");
        cluster.make_key("foreign");
        fs::copy(cluster.path("key.pub"), cluster.path("authorized_keys")).unwrap();
        for host in ["h0", "h1"] {
            cluster.make_key(&format!("host-{host}"));
            cluster.start_daemon(host);
        }
        cluster.know("known_hosts", "host-h0", "host-h1");
        cluster.configure("ssh", "known_hosts", "key");
        cluster
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    fn make_key(&self, name: &str) {
        let arguments = ["-q", "-t", "ed25519", "-N", "", "-C", "portolan-test", "-f"];
        succeeds(
            Command::new("ssh-keygen")
                .args(arguments)
                .arg(self.path(name)),
        );
    }

    /// Writes the keys that hosts are known by.
    fn know(&self, file: &str, h0: &str, h1: &str) {
        let line = |host: &str, key: &str| {
            let key = fs::read_to_string(self.path(&format!("{key}.pub"))).unwrap();
            format!("[{host}]:{PORT} {key}")
        };
        let text = [line("h0", h0), line("h1", h1)].concat();
        fs::write(self.path(file), text).unwrap();
    }

    /// Writes a configuration for ssh.
    fn configure(&self, name: &str, known: &str, key: &str) {
        let text = format!(
            "Host *\n  Port {PORT}\n  IdentityFile {}\n  IdentitiesOnly yes\n  \
             IdentityAgent none\n  UserKnownHostsFile {}\n  GlobalKnownHostsFile /dev/null\n  \
             StrictHostKeyChecking yes\n",
            self.path(key),
            self.path(known)
        );
        fs::write(self.path(&format!("{name}.config")), text).unwrap();
    }

    fn start_daemon(&mut self, host: &str) {
        let config = self.path(&format!("sshd-{host}"));
        let text = format!(
            "Port {PORT}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
             UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             PermitRootLogin prohibit-password\n",
            self.path(&format!("host-{host}")),
            self.path("authorized_keys")
        );
        fs::write(&config, text).unwrap();
        let log = fs::File::create(self.path(&format!("log-{host}"))).unwrap();
        let command = [
            "lab", "exec", self.lab.0, host, "--", SSHD, "-D", "-e", "-f", &config,
        ];
        let daemon = portolan(&command).stderr(log).spawn().unwrap();
        self.daemons.push(daemon);
        // It listens before it answers.
        let start = Instant::now();
        let log = self.path(&format!("log-{host}"));
        while !fs::read_to_string(&log).unwrap().contains("listening") {
            assert!(start.elapsed() < Duration::from_secs(10), "{config}");
            sleep(Duration::from_millis(5));
        }
    }

    /// The words of `portolan run` with these arguments on `host`; `config`
    /// is one for ssh.
    fn words(&self, host: &str, config: &str, arguments: &[&str]) -> Vec<String> {
        let ssh = format!("ssh -F {}", self.path(&format!("{config}.config")));
        let before = ["lab", "exec", self.lab.0, host, "--"];
        let run = [env!("CARGO_BIN_EXE_portolan"), "run", "--ssh", &ssh];
        let mut words: Vec<String> = [&before[..], &run]
            .concat()
            .iter()
            .map(|w| (*w).into())
            .collect();
        if !arguments.contains(&"--prefix") {
            words.extend(["--prefix".to_owned(), self.path("prefix")]);
        }
        words.extend(arguments.iter().map(|w| (*w).to_owned()));
        words
    }

    fn run(&self, arguments: &[&str]) -> Said {
        self.run_from("h2", "ssh", arguments)
    }

    fn run_from(&self, host: &str, config: &str, arguments: &[&str]) -> Said {
        let words = self.words(host, config, arguments);
        say(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn start(&self, mark: &str, arguments: &[&str]) -> Child {
        let words = self.words("h2", "ssh", arguments);
        start(mark, &words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Process ids on the hosts, but for the waiting sshds.
    fn processes(&self) -> Vec<u32> {
        let network = |path: String| fs::metadata(path).map(|about| about.ino());
        let hosts: Vec<u64> = (0..3)
            .map(|host| network(format!("/run/netns/ptl-{}-h{host}", self.lab.0)).unwrap())
            .collect();
        let daemons: Vec<u32> = self.daemons.iter().map(Child::id).collect();
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|e| e.file_name().to_str()?.parse().ok());
        pids.filter(|pid| {
            let here = network(format!("/proc/{pid}/ns/net")).is_ok_and(|n| hosts.contains(&n));
            here && !daemons.contains(pid) && !is_zombie(*pid)
        })
        .collect()
    }

    /// Waits until nothing runs on the hosts any more.
    fn nothing_left(&self) {
        let start = Instant::now();
        loop {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            let about = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/cmdline"));
            let about: Vec<_> = left.iter().filter_map(|pid| about(pid).ok()).collect();
            assert!(
                start.elapsed() < Duration::from_secs(10),
                "{left:?} {about:?}"
            );
            sleep(Duration::from_millis(5));
        }
    }

    /// The agent on a host.
    fn agent(&self, host: &str) -> u32 {
        let namespace = format!("/run/netns/ptl-{}-{host}", self.lab.0);
        let host = fs::metadata(namespace).unwrap().ino();
        let is_agent = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let there = fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|n| n.ino() == host);
            there && line.ends_with(b"/portolan\0internal-agent\0")
        };
        self.processes().into_iter().find(is_agent).unwrap()
    }
}

fn is_zombie(pid: u32) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    state
        .rsplit(')')
        .next()
        .is_none_or(|rest| rest.is_empty() || rest.starts_with(" Z"))
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
        if self.made_separation {
            let _ = fs::remove_dir(SEPARATION);
        }
    }
}

fn kill(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

#[test]
fn a_job_runs_across_hosts_that_ssh_reaches() {
    let cluster = Cluster::up("t-ssh");
    let said = cluster
        .run(&["--hosts", "h0:2,h1:2", "--", &probe(), "table"])
        .expect(0);
    for rank in 0..4 {
        let (host, local) = (rank / 2, rank % 2);
        let locals = [2 * host, 2 * host + 1];
        let about =
            format!("[{rank}] rank {rank} of 4 host {host} of 2 local {local} of {locals:?}");
        assert!(said.out.contains(&about), "no {about:?} in {said:#?}");
        let name = format!("[{rank}] name h{host}");
        assert!(said.lines().contains(&name.as_str()), "{said:#?}");
    }
    assert_eq!(said.err, "");
    // Messages, also with ranks of the launcher's own host.
    let hostfile = cluster.path("hostfile");
    fs::write(&hostfile, "h0:2 # here\nh1 slots=2\n").unwrap();
    let ring = example("ring");
    for from in ["h2", "h0"] {
        let job = ["--hostfile", &hostfile, "-v", "-n", "3", "--", &ring, "50"];
        let said = cluster.run_from(from, "ssh", &job).expect(0);
        assert!(said.out.contains("the sum is right"), "{said:#?}");
        said.complains(&[
            "on host h1, core ",
            "lanes of rank 0: shm to 1 (same host: shared memory); udp to 2 (another host)",
            "3 of 3 ranks on 2 hosts ended, exit code 0",
        ]);
    }
    let job = [
        "--hosts",
        "h0,h1",
        "--exclude",
        "h0",
        "--report-bindings",
        "--",
        "hostname",
    ];
    let said = cluster.run(&job).expect(0);
    assert_eq!(said.out, "[0] h1\n");
    said.complains(&["rank 0: host h1, core "]);
    cluster.nothing_left();
}

#[test]
fn streams_and_codes_pass_through_ssh() {
    let cluster = Cluster::up("t-pass");
    // More input and output than fits any window; rank 1 reads nothing.
    let text: String = (0..200_000).map(|n| format!("line {n}\n")).collect();
    let input = cluster.path("input");
    fs::write(&input, &text).unwrap();
    let words = cluster.words(
        "h2",
        "ssh",
        &[
            "--hosts",
            "h0,h1",
            "--no-prefix",
            "--",
            "sh",
            "-c",
            "cat; echo end",
        ],
    );
    let output = Command::new(env!("CARGO_BIN_EXE_portolan"))
        .args(&words)
        .stdin(fs::File::open(&input).unwrap())
        .output()
        .unwrap();
    let said = Said::from(output).expect(0);
    let mut lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(lines.iter().filter(|l| **l == "end").count(), 2);
    lines.retain(|line| *line != "end");
    assert_eq!(lines.join("\n") + "\n", text);
    // Files, several programs, variables, the exit code of the one that fails.
    let folder = cluster.path("out");
    let script = "echo $0 $GREETING; echo bad >&2; exit $1";
    let job = [
        "-n",
        "1",
        "--hosts",
        "h0,h1:2",
        "-x",
        "GREETING=ahoy",
        "--output",
        &folder,
        "--on-death",
        "notify",
        "--",
        "sh",
        "-c",
        script,
        "A",
        "0",
        ":",
        "-n",
        "2",
        "sh",
        "-c",
        script,
        "B",
        "7",
    ];
    let said = cluster.run(&job).expect(7);
    assert_eq!(said.out, "");
    for (file, wanted) in [
        ("0.out", "A ahoy\n"),
        ("1.out", "B ahoy\n"),
        ("2.out", "B ahoy\n"),
        ("2.err", "bad\n"),
    ] {
        let got = fs::read_to_string(cluster.path(&format!("out/{file}"))).unwrap();
        assert_eq!(got, wanted, "{file}");
    }
    said.complains(&["rank 1 (process", "host h1) ended: exit code 7"]);
    // Time.
    let job = ["--hosts", "h0,h1", "--timeout", "1", "--", "sleep", "100"];
    cluster.run(&job).expect(124).complains(&["--timeout 1"]);
    cluster.nothing_left();
}

#[test]
fn whoever_is_killed_nothing_is_left() {
    let cluster = Cluster::up("t-kill");
    // Ranks are grandchildren: a script started them and waits.
    let script = format!("{} secret; echo unreachable", probe());
    let job = ["--hosts", "h0:2,h1:1", "--", "sh", "-c", &script];
    let mut child = cluster.start("hosts-kill", &job);
    let lines = read_until(&mut child, "secret", 3);
    let secret = lines[0].split(' ').nth(2).unwrap().to_owned();
    assert_eq!(secret.len(), 64);
    let bytes: Vec<u8> = (0..32)
        .map(|i| u8::from_str_radix(&secret[2 * i..2 * i + 2], 16).unwrap())
        .collect();
    let holds = |text: &[u8], part: &[u8]| text.windows(part.len()).any(|w| w == part);
    let processes = cluster.processes();
    // Launcher, guards, ssh, sshd, agents, scripts and ranks.
    assert!(processes.len() > 12, "{processes:?}");
    for pid in processes {
        for file in ["cmdline", "environ"] {
            let text = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            assert!(
                !holds(&text, secret.as_bytes()) && !holds(&text, &bytes),
                "{pid} {file}"
            );
        }
    }
    kill(child.id(), Signal::KILL);
    child.wait().unwrap();
    cluster.nothing_left();
    // An agent: the launcher says so and ends the rest.
    let mut child = cluster.start("hosts-agent", &job);
    read_until(&mut child, "secret", 3);
    kill(cluster.agent("h1"), Signal::KILL);
    finish(child).expect(1).complains(&[
        "host h1 is lost",
        "rank 2",
        "ended without leaving the job",
    ]);
    cluster.nothing_left();
    none_left("hosts-agent");
    // Ctrl-C.
    let mut child = cluster.start("hosts-int", &job);
    read_until(&mut child, "secret", 3);
    kill(child.id(), Signal::INT);
    finish(child).expect(130).complains(&["interrupted"]);
    cluster.nothing_left();
}

#[test]
fn each_failure_has_cause_and_remedy() {
    let cluster = Cluster::up("t-fail");
    let fails_with = |config: &str, more: &[&str], program: &[&str], code, parts: &[&str]| {
        let start = Instant::now();
        let job = [more, &["--hosts", "h0,h1", "--"], program].concat();
        let said = cluster.run_from("h2", config, &job).expect(code);
        let took = start.elapsed();
        assert!(took < Duration::from_secs(10), "{took:?} {said:#?}");
        said.complains(parts);
        cluster.nothing_left();
    };
    let fails = |config, more: &[&str], parts: &[&str]| {
        fails_with(config, more, &["sleep", "100"], 1, parts);
    };
    // ssh says no.
    cluster.know("changed", "host-h0", "foreign");
    cluster.configure("changed", "changed", "key");
    fails(
        "changed",
        &[],
        &["h1 shows another host key", "ssh-keygen -R h1"],
    );
    fs::write(cluster.path("nobody"), "").unwrap();
    cluster.configure("unknown", "nobody", "key");
    fails("unknown", &[], &["is not known: compare and accept"]);
    cluster.configure("foreign", "known_hosts", "foreign");
    fails("foreign", &[], &["wants a password", "ssh-copy-id"]);
    let config = fs::read_to_string(cluster.path("ssh.config")).unwrap();
    let elsewhere = config.replace(&format!("Port {PORT}"), "Port 2223");
    fs::write(cluster.path("port.config"), elsewhere).unwrap();
    fails("port", &[], &["refuses ssh", "start sshd"]);
    // Nobody there.
    let job = ["--hosts", "h0,nowhere.invalid", "--", "true"];
    cluster
        .run(&job)
        .expect(1)
        .complains(&["nowhere.invalid is not known by that name"]);
    let network = cluster.lab.exec("h2", &["getent", "ahostsv4", "h0"]).out;
    let silent = format!("{}77", &network[..=network.find(".1 ").unwrap()]);
    let start = Instant::now();
    let list = format!("h0,{silent}");
    cluster
        .run(&["--hosts", &list, "--", "true"])
        .expect(1)
        .complains(&[&silent, "does not answer"]);
    assert!(start.elapsed() < Duration::from_secs(10));
    cluster.nothing_left();
    // Portolan is not there, or another one, or somebody else speaks.
    let none = cluster.path("none");
    fails(
        "ssh",
        &["--prefix", &none],
        &["`portolan` was not found on host h", "--prefix"],
    );
    let prefix = cluster.path("mixed");
    let replace = |on_h1: &str| {
        fs::create_dir_all(format!("{prefix}/bin")).unwrap();
        let real = cluster.path("prefix/bin/portolan");
        let script = format!(
            "#!/bin/sh\n[ $(hostname) = h1 ] && {{ {on_h1}; exit; }}\nexec {real} \"$@\"\n"
        );
        let file = format!("{prefix}/bin/portolan");
        fs::write(&file, script).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let hello =
        r#"J{"Hello":{"versions":{"portolan":"9.8.7","boot":9,"wire":1},"aes":true,"ip":null}}"#;
    let mut bytes = b"\0PTLNAG1".to_vec();
    bytes.extend(u32::try_from(hello.len()).unwrap().to_le_bytes());
    bytes.extend(hello.as_bytes());
    fs::write(cluster.path("hello"), bytes).unwrap();
    replace(&format!("cat {} -", cluster.path("hello")));
    let mixed = ["--prefix", &prefix];
    fails(
        "ssh",
        &mixed,
        &[
            "host h1: mixed versions",
            "Portolan 9.8.7",
            "install one version",
        ],
    );
    replace("echo Welcome to h1; cat");
    fails("ssh", &mixed, &["host h1", "\"Welcome to h1", "~/.bashrc"]);
    replace("cat > /dev/null");
    let slow = ["--connect-timeout", "1", "--prefix", &prefix];
    fails("ssh", &slow, &["host h1: no answer within 2 s"]);
    // The program or the folder is missing on one host only.
    let only = cluster.path("only");
    fs::create_dir(&only).unwrap();
    symlink("/bin/true", format!("{only}/program")).unwrap();
    let hide = ["mount", "-t", "tmpfs", "none", &only];
    cluster.lab.exec("h1", &hide).expect(0);
    let program = format!("{only}/program");
    fails_with(
        "ssh",
        &[],
        &[&program],
        127,
        &["host h1: program", "not found"],
    );
    // The disk is full.
    let full = cluster.path("full");
    fs::create_dir(&full).unwrap();
    let small = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", &full];
    cluster.lab.exec("h2", &small).expect(0);
    let much = ["sh", "-c", "yes | head -c 1000000; sleep 100"];
    let parts = ["No space left", "free some space", "ending the job"];
    fails_with("ssh", &["--output", &full], &much, 1, &parts);
    fails(
        "ssh",
        &["--output", "/proc/none"],
        &["choose another folder"],
    );
}

/// A user for a test, removed with it.
struct User(&'static str);

impl User {
    fn add(name: &'static str) -> Self {
        let user = Self(name);
        // One that an earlier test left.
        let _ = Command::new("userdel").arg(name).output();
        let new = [
            "--no-create-home",
            "--home-dir",
            "/",
            "--password",
            "*",
            "--shell",
            "/bin/sh",
        ];
        succeeds(Command::new("useradd").args(new).arg(name));
        user
    }

    fn ids(&self) -> (u32, u32) {
        let number = |option| {
            let output = Command::new("id").args([option, self.0]).output().unwrap();
            String::from_utf8(output.stdout)
                .unwrap()
                .trim()
                .parse()
                .unwrap()
        };
        (number("-u"), number("-g"))
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = Command::new("userdel").arg(self.0).output();
    }
}

#[test]
fn two_users_share_hosts_and_hear_nothing_of_each_other() {
    let cluster = Cluster::up("t-users");
    let users = [User::add("ptl-test-a"), User::add("ptl-test-b")];
    // Where every user may execute them.
    let copy = |cluster: &Cluster, from: &str, to: &str| {
        fs::copy(from, cluster.path(to)).unwrap();
        cluster.path(to)
    };
    fs::remove_file(cluster.path("prefix/bin/portolan")).unwrap();
    let binary = copy(
        &cluster,
        env!("CARGO_BIN_EXE_portolan"),
        "prefix/bin/portolan",
    );
    let ring = copy(&cluster, &example("ring"), "ring");
    let start_as = |user: &User| {
        let (uid, gid) = user.ids();
        let key = format!("key-{}", user.0);
        fs::copy(cluster.path("key"), cluster.path(&key)).unwrap();
        std::os::unix::fs::chown(cluster.path(&key), Some(uid), Some(gid)).unwrap();
        cluster.configure(user.0, "known_hosts", &key);
        let ssh = format!("ssh -F {}", cluster.path(&format!("{}.config", user.0)));
        let (uid, gid) = (uid.to_string(), gid.to_string());
        let prefix = cluster.path("prefix");
        let script = format!("id -u; exec {ring} 100");
        portolan(&[
            "lab",
            "exec",
            cluster.lab.0,
            "h2",
            "--",
            "setpriv",
            "--reuid",
            &uid,
            "--regid",
            &gid,
            "--clear-groups",
            &binary,
            "run",
            "--ssh",
            &ssh,
            "--prefix",
            &prefix,
            "--hosts",
            "h0:2,h1:2",
            "--",
            "sh",
            "-c",
            &script,
        ])
        .current_dir("/")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
    };
    let mut jobs = users.each_ref().map(start_as);
    // All ranks of both run at once before either is read to its end.
    let mut outputs = Vec::new();
    for (job, user) in jobs.iter_mut().zip(&users) {
        let mut output = BufReader::new(job.stdout.take().unwrap());
        let uid = format!("] {}\n", user.ids().0);
        let mut line = String::new();
        for _ in 0..4 {
            line.clear();
            output.read_line(&mut line).unwrap();
            assert!(line.ends_with(&uid), "{line:?}");
        }
        outputs.push(output);
    }
    for (job, mut output) in jobs.into_iter().zip(outputs) {
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        finish(job).expect(0);
        assert!(
            rest.contains("4 ranks") && rest.contains("the sum is right"),
            "{rest}"
        );
    }
    cluster.nothing_left();
}
