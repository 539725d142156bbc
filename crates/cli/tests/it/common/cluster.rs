//! Hosts with sshd, for tests of `portolan run --hosts`.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::fs::{FlockOperation, flock};

use super::{Said, TestLab, executable, lock, portolan, say, start, until};

const SSHD: &str = "/usr/sbin/sshd";
/// sshd's folder for the process without privileges.
const SEPARATION: &str = "/run/sshd";
/// Where the daemons listen.
pub const PORT: u16 = 2222;

/// Keeps sshd's folder, which is one for all processes. The last that needs it removes it, if a
/// test has made it.
struct Separation(File);

impl Separation {
    /// Exists while the folder is one that a test has made.
    fn ours() -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("sshd-folder-is-ours")
    }

    fn keep() -> Self {
        let _one = lock("sshd-folder");
        let users = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sshd-folder-users.lock");
        let users = File::create(users).unwrap();
        if !Path::new(SEPARATION).exists() {
            File::create(Self::ours()).unwrap();
            fs::create_dir(SEPARATION).unwrap();
        }
        flock(&users, FlockOperation::LockShared).unwrap();
        Self(users)
    }
}

impl Drop for Separation {
    fn drop(&mut self) {
        let _one = lock("sshd-folder");
        let is_last = flock(&self.0, FlockOperation::NonBlockingLockExclusive).is_ok();
        if is_last && fs::remove_file(Self::ours()).is_ok() {
            let _ = fs::remove_dir(SEPARATION);
        }
    }
}

/// Three hosts with sshd; users are on h2. All of it is removed when the
/// test ends, well or not.
pub struct Cluster {
    pub lab: TestLab,
    folder: PathBuf,
    daemons: Vec<Child>,
    _separation: Separation,
}

pub fn succeeds(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
}

impl Cluster {
    pub fn up(name: &'static str) -> Self {
        assert!(
            Path::new(SSHD).exists(),
            "{SSHD} is missing: install openssh-server, as `make test` does"
        );
        let name = TestLab::own(name);
        let folder = PathBuf::from(format!("/tmp/portolan-{name}"));
        fs::create_dir_all(folder.join("prefix/bin")).unwrap();
        let mut cluster = Self {
            lab: TestLab::up(name, "3"),
            folder,
            daemons: Vec::new(),
            _separation: Separation::keep(),
        };
        let binary = cluster.path("prefix/bin/portolan");
        symlink(env!("CARGO_BIN_EXE_portolan"), binary).unwrap();
        cluster.make_key("key");
        cluster.make_key("foreign");
        fs::copy(cluster.path("key.pub"), cluster.path("authorized_keys")).unwrap();
        for host in ["h0", "h1", "h2"] {
            cluster.make_key(&format!("host-{host}"));
            cluster.start_daemon(host);
        }
        cluster.know("known_hosts", "host-h0", "host-h1");
        cluster.configure("ssh", "known_hosts", "key");
        cluster
    }

    pub fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    /// A program that other launchers take for ssh, which knows the way to these hosts.
    pub fn ssh(&self) -> String {
        let ssh = self.path("ssh");
        let config = self.path("ssh.config");
        executable(&ssh, &format!("exec ssh -F {config} \"$@\""));
        ssh
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
    pub fn know(&self, file: &str, h0: &str, h1: &str) {
        let line = |host: &str, key: &str| {
            let key = fs::read_to_string(self.path(&format!("{key}.pub"))).unwrap();
            format!("[{host}]:{PORT} {key}")
        };
        let own = self.lab.exec("h2", &["getent", "ahostsv4", "h2"]).out;
        let own = own.split(' ').next().unwrap();
        let text = [line("h0", h0), line("h1", h1), line(own, "host-h2")].concat();
        fs::write(self.path(file), text).unwrap();
    }

    /// Writes a configuration for ssh.
    pub fn configure(&self, name: &str, known: &str, key: &str) {
        let text = format!(
            "Host *\n  Port {PORT}\n  IdentityFile {}\n  IdentitiesOnly yes\n  \
             IdentityAgent none\n  UserKnownHostsFile {}\n  GlobalKnownHostsFile /dev/null\n  \
             StrictHostKeyChecking yes\n",
            self.path(key),
            self.path(known)
        );
        fs::write(self.path(&format!("{name}.config")), text).unwrap();
    }

    /// The command by which a user reaches hosts, with a key of its own.
    pub fn ssh_of(&self, user: &User) -> String {
        let (uid, gid) = user.ids();
        let key = format!("key-{}", user.0);
        fs::copy(self.path("key"), self.path(&key)).unwrap();
        std::os::unix::fs::chown(self.path(&key), Some(uid), Some(gid)).unwrap();
        self.configure(user.0, "known_hosts", &key);
        format!("ssh -F {}", self.path(&format!("{}.config", user.0)))
    }

    fn start_daemon(&mut self, host: &str) {
        let config = self.path(&format!("sshd-{host}"));
        let text = format!(
            "Port {PORT}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
             UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             PermitRootLogin prohibit-password\nClientAliveInterval 2\nClientAliveCountMax 3\n",
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
        let log = self.path(&format!("log-{host}"));
        let said = || fs::read_to_string(&log).unwrap();
        until(said, || said().contains("listening"));
    }

    /// The words of `portolan run` with these arguments on `host`; `config`
    /// is one for ssh.
    pub fn words(&self, host: &str, config: &str, arguments: &[&str]) -> Vec<String> {
        self.words_of("run", host, config, arguments)
    }

    /// Of another command that reaches hosts.
    fn words_of(&self, command: &str, host: &str, config: &str, arguments: &[&str]) -> Vec<String> {
        let ssh = format!("ssh -F {}", self.path(&format!("{config}.config")));
        let before = ["lab", "exec", self.lab.0, host, "--"];
        let run = [env!("CARGO_BIN_EXE_portolan"), command, "--ssh", &ssh];
        let mut words: Vec<String> = [&before[..], &run]
            .concat()
            .iter()
            .map(|w| (*w).into())
            .collect();
        if !arguments.contains(&"--prefix") {
            words.extend(["--prefix".to_owned(), self.path("prefix")]);
        }
        // On a busy machine a host may answer late.
        if command == "run" && !arguments.contains(&"--connect-timeout") {
            words.extend(["--connect-timeout".to_owned(), "120".to_owned()]);
        }
        words.extend(arguments.iter().map(|w| (*w).to_owned()));
        words
    }

    pub fn run(&self, arguments: &[&str]) -> Said {
        self.run_from("h2", "ssh", arguments)
    }

    pub fn run_from(&self, host: &str, config: &str, arguments: &[&str]) -> Said {
        let words = self.words(host, config, arguments);
        say(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// `portolan tune` on h2.
    pub fn tune(&self, arguments: &[&str]) -> Said {
        let words = self.words_of("tune", "h2", "ssh", arguments);
        say(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    pub fn start(&self, mark: &str, arguments: &[&str]) -> Child {
        let words = self.words("h2", "ssh", arguments);
        start(mark, &words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Process ids on the hosts, but for the waiting sshds.
    pub fn processes(&self) -> Vec<u32> {
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
    pub fn nothing_left(&self) {
        let about = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/cmdline"));
        let left = || {
            let left = self.processes();
            let about: Vec<_> = left.iter().filter_map(|pid| about(pid).ok()).collect();
            format!("{left:?} {about:?}")
        };
        until(left, || self.processes().is_empty());
    }

    /// UDP ports that are open on a host, once there are so many.
    pub fn udp_ports(&self, host: &str, count: usize) -> Vec<String> {
        let ports = || -> Vec<String> {
            let files = ["cat", "/proc/net/udp", "/proc/net/udp6"];
            let table = self.lab.exec(host, &files).expect(0).out;
            let port = |line: &str| {
                let port = line.split_whitespace().nth(1)?.rsplit(':').next()?;
                u16::from_str_radix(port, 16).ok()
            };
            let ports = table.lines().filter_map(port);
            ports.map(|port| port.to_string()).collect()
        };
        until(|| format!("{:?}", ports()), || ports().len() >= count);
        ports()
    }

    /// The agent on a host.
    pub fn agent(&self, host: &str) -> u32 {
        self.find_agent(host).unwrap()
    }

    /// Whether an agent runs on a host.
    pub fn has_agent(&self, host: &str) -> bool {
        self.find_agent(host).is_some()
    }

    fn find_agent(&self, host: &str) -> Option<u32> {
        self.agents(host).into_iter().next()
    }

    /// The agents on a host, of all jobs.
    pub fn agents(&self, host: &str) -> Vec<u32> {
        let namespace = format!("/run/netns/ptl-{}-{host}", self.lab.0);
        let host = fs::metadata(namespace).unwrap().ino();
        let is_agent = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let there = fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|n| n.ino() == host);
            there && line.ends_with(b"/portolan\0internal-agent\0")
        };
        self.processes().into_iter().filter(is_agent).collect()
    }
}

/// A user for a test, removed with it.
pub struct User(pub &'static str);

impl User {
    pub fn add(name: &'static str) -> Self {
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

    /// The words before a command that make it the user's.
    pub fn becomes(&self) -> [&str; 6] {
        [
            "setpriv",
            "--reuid",
            self.0,
            "--regid",
            self.0,
            "--clear-groups",
        ]
    }

    pub fn ids(&self) -> (u32, u32) {
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
    }
}
