//! `portolan node`: host ports for users without privilege, on hosts of a lab.
//! Needs root and, for jobs of other users, openssh-server.

mod held;
mod service;
#[cfg(target_arch = "x86_64")]
mod unit;
mod users;

use std::fs;
use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::cluster::{Cluster, User};
use crate::common::lingering::{lingering, send_with};
use crate::common::{
    Said, TestLab, example, finish, marked, none_left, portolan, read_until, say, signal, start,
};
use portolan_boot::HostPort;
use portolan_boot::node::{Answer, NodeError, NodeService, Question};
use portolan_sys::bpf::SharedWords;
use portolan_sys::closing::refuse_descriptors;
use portolan_sys::features::Disabled;
use portolan_sys::memory::SharedMemory;
use rustix::fs::{FallocateFlags, fallocate, fstat, ftruncate};
use rustix::io::{Errno, read};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, connect_unspec, getsockname, recvmsg, send, socket_with,
};
use rustix::process::{Signal, Uid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space, set_thread_res_uid};

const RIGHT: &str = "the sum is right";

const OWN: &str = env!("CARGO_BIN_EXE_portolan");

/// A name that no other test and no other run of this one has.
fn own(name: &str) -> &'static str {
    format!("t-node-{name}-{}", std::process::id()).leak()
}

/// Waits until something is so.
fn until(what: &str, so: impl FnMut() -> bool) {
    crate::common::until(|| what.to_owned(), so);
}

/// A node service on a host of a lab; it is killed when its test ends.
struct Node {
    child: Child,
    log: PathBuf,
}

impl Node {
    /// Starts one with these settings and waits until it listens.
    fn start(lab: &str, host: &str, config: &str) -> Self {
        Self::without(lab, host, config, "")
    }

    /// The same, without what is `disabled`.
    fn without(lab: &str, host: &str, config: &str, disabled: &str) -> Self {
        Self::under(&[], lab, host, config, disabled)
    }

    /// The same, by a command that runs others.
    fn under(by: &[&str], lab: &str, host: &str, config: &str, disabled: &str) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let times = STARTED.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir();
        let file = folder.join(format!("portolan-{lab}-{host}-{times}.conf"));
        // Tests wait for programs to leave.
        let linger = if config.contains("linger_seconds") {
            ""
        } else {
            "\nlinger_seconds = 1\n"
        };
        fs::write(&file, format!("{config}{linger}")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let log = file.with_extension("log");
        let exec = ["lab", "exec", lab, host, "--"];
        let node = [OWN, "node", "--config"];
        let child = portolan(&[&exec[..], by, &node].concat())
            .arg(&file)
            .env("PORTOLAN_DISABLE", disabled)
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let node = Self { child, log };
        node.says("ready at");
        let _ = fs::remove_file(file);
        node
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until the log has a line with `text`.
    fn says(&self, text: &str) {
        let found = || self.log().contains(text);
        crate::common::until(|| format!("no {text:?}: {}", self.log()), found);
    }

    /// Ends it by a signal; waits until it has ended.
    fn end(&mut self, by: Signal) {
        signal(self.child.id(), by);
        self.child.wait().unwrap();
    }

    fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id()))
            .unwrap()
            .count()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.log);
    }
}

/// Two hosts with a service each.
fn two(name: &'static str, config: &str) -> (TestLab, [Node; 2]) {
    let lab = TestLab::up(name, "2");
    let nodes = ["h0", "h1"].map(|host| Node::start(name, host, config));
    (lab, nodes)
}

/// Where a host's service listens, seen from outside.
fn socket(lab: &str, host: &str) -> PathBuf {
    Path::new("/run/portolan/lab")
        .join(lab)
        .join(format!("{host}.run/node/node.sock"))
}

/// Does something in the network of host h0.
fn within<T: Send>(lab: &str, act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let there = scope.spawn(|| {
            let network = fs::File::open(format!("/run/netns/ptl-{lab}-h0")).unwrap();
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            act()
        });
        there.join().unwrap()
    })
}

/// The same as a user without privilege.
fn as_user<T: Send>(lab: &str, user: u32, act: impl FnOnce() -> T + Send) -> T {
    within(lab, || {
        let user = Uid::from_raw(user);
        set_thread_res_uid(user, user, user).unwrap();
        act()
    })
}

/// Asks the service of h0 for a host port.
fn ask(lab: &str) -> Result<HostPort, NodeError> {
    within(lab, || open(&connected(lab)?, 1))
}

/// A connection to the service of h0.
fn connected(lab: &str) -> Result<Arc<NodeService>, NodeError> {
    NodeService::connect(&socket(lab, "h0"))
}

/// A host port, one of so many.
fn open(service: &Arc<NodeService>, ranks: u32) -> Result<HostPort, NodeError> {
    service.host_port(None, ranks, None, &Disabled::default())
}

/// Why it is refused.
fn refusal<T>(asked: Result<T, NodeError>) -> String {
    match asked {
        Err(NodeError::Refused(why)) => why,
        Err(error) => panic!("not refused, but: {error}"),
        Ok(_) => panic!("not refused"),
    }
}

/// Whether a program is attached to a host's interface.
fn attached(lab: &TestLab, host: &str) -> bool {
    let said = lab.exec(host, &["ip", "link", "show", "eth0"]).expect(0);
    said.out.contains("prog/xdp")
}

/// Packets that h0's interface and its kernel's UDP sockets have received.
fn received(lab: &TestLab) -> [u64; 2] {
    let files = ["cat", "/proc/net/dev", "/proc/net/snmp", "/proc/net/snmp6"];
    let text = lab.exec("h0", &files).expect(0).out;
    let number = |line: &str, field: usize| -> u64 {
        let found = text.lines().filter(|it| it.trim_start().starts_with(line));
        let mut found = found.filter(|it| it.contains(|c: char| c.is_ascii_digit()));
        let mut fields = found.next_back().unwrap().split_whitespace();
        fields.nth(field).unwrap().parse().unwrap()
    };
    let sockets = number("Udp:", 1) + number("Udp6InDatagrams", 1);
    [number("eth0:", 2), sockets]
}

/// A job of two ranks on two hosts that does not end, under way.
fn endless(lab: &TestLab, mark: &str) -> Child {
    let script = "echo ready; exec \"$0\" 100000000";
    let ring = example("ring");
    let words = [
        "run", "-v", "-n", "2", "--lab", lab.0, "--link", "xdp", "--", "sh", "-c", script, &ring,
    ];
    let mut job = start(mark, &words);
    read_until(&mut job, "ready", 2);
    until("no host ports", || {
        attached(lab, "h0") && attached(lab, "h1")
    });
    sleep(Duration::from_millis(300));
    job
}

/// A short one, which must have host ports.
fn short(lab: &str) {
    let ring = example("ring");
    let words = [
        "run", "-v", "-n", "2", "--lab", lab, "--link", "xdp", "--", &ring, "200",
    ];
    let said = say(&words).expect(0);
    assert!(said.out.contains(RIGHT), "{said:#?}");
    said.complains(&["xdp to 1 (another host: host port on eth0)"]);
}

/// Users of this machine that have nothing.
const NAMED: u32 = 4711;

const OTHER: u32 = 4712;
