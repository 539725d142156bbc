//! `portolan node`: host ports for users without privilege, on hosts of a lab.
//! Needs root and, for jobs of other users, openssh-server.

mod common;

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

use common::cluster::{Cluster, User};
use common::{
    Said, TestLab, example, finish, marked, none_left, portolan, read_until, say, signal, start,
};
use portolan_boot::HostPort;
use portolan_boot::node::{NodeError, NodeService, Question};
use portolan_sys::bpf::SharedWords;
use portolan_sys::features::Disabled;
use portolan_sys::memory::SharedMemory;
use rustix::fs::{fstat, ftruncate};
use rustix::io::read;
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
    common::until(|| what.to_owned(), so);
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
        common::until(|| format!("no {text:?}: {}", self.log()), found);
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
    service.host_port(None, ranks, &Disabled::default())
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

#[test]
fn unbound_sockets_are_given_to_root_alone_who_does_without_the_service() {
    let lab = TestLab::up(own("old"), "2");
    // As Linux before 6.4 would have it.
    let disabled = "remap";
    let config = "users = nobody\n";
    let _nodes = ["h0", "h1"].map(|host| Node::without(lab.0, host, config, disabled));
    let why = match ask(lab.0) {
        Err(NodeError::Unserved(why)) => why,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("a host port was given"),
    };
    assert!(why.contains("only jobs that root starts"), "{why}");
    let ring = example("ring");
    let words = [
        "run", "-v", "-n", "4", "--lab", lab.0, "--link", "xdp", "--", &ring, "200",
    ];
    let mut job = portolan(&words);
    job.env("PORTOLAN_DISABLE", disabled);
    let said = Said::from(job.output().unwrap()).expect(0);
    assert!(said.out.contains(RIGHT), "{said:#?}");
    said.complains(&["xdp to 2-3 (another host: host port on eth0)"]);
}

#[test]
fn users_that_are_named_have_host_ports_and_others_do_without() {
    let cluster = Cluster::up(own("user"));
    let lab = cluster.lab.0;
    let pid = std::process::id();
    let user = |name: &str| User::add(format!("ptl-{name}-{pid}").leak());
    let (named, other) = (user("nodea"), user("nodeb"));
    let config = format!("users = {} # and nobody else\n", named.0);
    let nodes = ["h0", "h1"].map(|host| Node::start(lab, host, &config));
    // Where every user may execute them.
    let copy = |from: &str, to: &str| {
        let _ = fs::remove_file(cluster.path(to));
        fs::copy(from, cluster.path(to)).unwrap();
        cluster.path(to)
    };
    let binary = copy(OWN, "prefix/bin/portolan");
    let ring = copy(&example("ring"), "ring");
    let as_user = |user: &User, host: &str, words: &[&str]| {
        let exec = ["lab", "exec", lab, host, "--"];
        let mut command = portolan(&[&exec[..], &user.becomes(), words].concat());
        Said::from(command.current_dir("/").output().unwrap())
    };
    let run = |user: &User, link: &str| {
        let ssh = cluster.ssh_of(user);
        let prefix = cluster.path("prefix");
        let words = [
            &binary,
            "run",
            "-v",
            "--ssh",
            &ssh,
            "--prefix",
            &prefix,
            "--connect-timeout",
            "120",
            "--hosts",
            "h0:1,h1:1",
            "--link",
            link,
            "--",
            &ring,
            "300",
        ];
        as_user(user, "h2", &words)
    };
    let said = run(&named, "xdp").expect(0).complains(&[
        "lanes of rank 0: xdp to 1 (another host: host port on eth0)",
        "lanes of rank 1: xdp to 0 (another host: host port on eth0)",
    ]);
    assert!(said.out.contains(RIGHT), "{said:#?}");
    let uid = named.ids().0;
    for node in &nodes {
        node.says(&format!("user {} ({uid})", named.0));
        node.says("host port back: eth0");
    }
    let uid = other.ids().0;
    let why = format!("no host port: user {uid} may not have host ports: root can allow it in");
    let said = run(&other, "auto")
        .expect(0)
        .complains(&[&format!("udp to 1 (another host; {why}")]);
    assert!(said.out.contains(RIGHT), "{said:#?}");
    run(&other, "xdp")
        .expect(1)
        .complains(&[&why, "link auto does without"]);
    // Each is told what holds for it, and where no service runs.
    // Columns are as wide as what stands in them.
    let doctor = |user: &User, host: &str| {
        let out = as_user(user, host, &[&binary, "doctor"]).out;
        let words: Vec<&str> = out.split_whitespace().collect();
        words.join(" ")
    };
    let told = doctor(&named, "h0");
    assert!(
        told.contains("runs; this user may have up to 16 host ports"),
        "{told}"
    );
    assert!(told.contains("xdp to hosts of"), "{told}");
    let told = doctor(&other, "h0");
    assert!(
        told.contains(&format!("runs, and user {uid} may not have")),
        "{told}"
    );
    let told = doctor(&named, "h2");
    assert!(told.contains("node-service does not run"), "{told}");
    assert!(
        told.contains("only root may open one, and no node service runs here"),
        "{told}"
    );
}

#[test]
fn nobody_has_more_than_the_settings_allow() {
    let lab = TestLab::up(own("quota"), "1");
    let refused = |config: &str, told: &str| {
        let node = Node::start(lab.0, "h0", config);
        let first = ask(lab.0).unwrap();
        let why = refusal(ask(lab.0));
        assert!(why.contains(told), "{config}: {why}");
        drop(first);
        // What is given back may be had again.
        node.says("host port back");
        drop(ask(lab.0).unwrap());
    };
    refused(
        "user_ports = 1",
        "user root (0) has 1 host ports, which are all",
    );
    refused("ports = 1", "all users together have 1 host ports");
    let memory = "has 5 MiB of packet memory, one more host port takes 5, and it may have 9";
    refused("user_memory_mib = 9", memory);
    refused("", "queue 0 of eth0 belongs to another job");
    let _node = Node::start(lab.0, "h0", "interfaces = eth7\nuser_connections = 3");
    let why = refusal(ask(lab.0));
    assert!(
        why.contains("eth0 may not carry host ports (interfaces)"),
        "{why}"
    );
    let path = socket(lab.0, "h0");
    let _three = [0; 3].map(|_| NodeService::connect(&path).unwrap());
    let why = refusal(NodeService::connect(&path).unwrap().may());
    assert!(
        why.contains("has 3 connections") && why.contains("(user_connections)"),
        "{why}"
    );
    // Who is in another network is not served, whatever it says.
    drop(_three);
    until("connections stay", || {
        let asked = raw_here(lab.0);
        send(&asked, &QUESTION.encode(), SendFlags::NOSIGNAL).unwrap();
        answer(&asked).contains("another network namespace")
    });
}

#[test]
fn who_asks_too_often_is_told_so_and_others_are_not() {
    let lab = TestLab::up(own("rate"), "1");
    let _node = Node::start(lab.0, "h0", "users = 4711\nuser_requests = 3");
    let path = socket(lab.0, "h0");
    // Six at once, of which one is the connection; and more while time passes.
    let service = NodeService::connect(&path).unwrap();
    let answers: Vec<_> = (0..5).map(|_| service.may()).collect();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let mut last = service.may();
    until("all questions are answered", || {
        last = service.may();
        last.is_err()
    });
    assert!(refusal(last).contains("asks too often: 3 times a second"));
    let words = [
        "setpriv",
        "--reuid",
        "4711",
        "--clear-groups",
        OWN,
        "doctor",
    ];
    let told = lab.exec("h0", &words).out;
    assert!(told.contains("runs; this user may have"), "{told}");
    sleep(Duration::from_millis(700));
    service.may().unwrap();
}

/// A connection to the service of h0 that says what it likes.
fn raw(lab: &str) -> OwnedFd {
    within(lab, || raw_here(lab))
}

/// The same from the network that the caller is in.
fn raw_here(lab: &str) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let socket_fd = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    connect(&socket_fd, &SocketAddrUnix::new(socket(lab, "h0")).unwrap()).unwrap();
    socket_fd
}

/// The answer there, whatever it is.
fn answer_bytes(from: &OwnedFd) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    // A reset connection has the answer behind it.
    let read = read(from, &mut bytes).or_else(|_| read(from, &mut bytes));
    bytes.truncate(read.unwrap());
    bytes
}

/// The same as text.
fn answer(from: impl AsFd) -> String {
    let from = from.as_fd().try_clone_to_owned().unwrap();
    String::from_utf8_lossy(&answer_bytes(&from)).into_owned()
}

/// That for a host port.
const QUESTION: Question = Question::Open {
    at: None,
    copy: false,
    one_buffer: false,
    ranks: 1,
};

/// Asks there, and gives the packet memory that is lent, and its bytes.
fn lent(by: &OwnedFd) -> (OwnedFd, usize) {
    send(by, &QUESTION.encode(), SendFlags::NOSIGNAL).unwrap();
    let mut bytes = [0; 64];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(&mut bytes)];
    recvmsg(by, parts, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
    let memory = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let size = u32::from_le_bytes(*bytes[12..].first_chunk().unwrap());
    (memory.unwrap(), size as usize)
}

#[test]
fn senseless_and_silent_callers_disturb_nobody_and_leave_nothing() {
    let lab = TestLab::up(own("garbage"), "1");
    let settings = "user_connections = 100\nuser_requests = 10000";
    let node = Node::start(lab.0, "h0", settings);
    let say_to = |to: &OwnedFd, bytes: &[u8]| {
        let _ = send(to, bytes, SendFlags::NOSIGNAL);
    };
    // The gate of one host port stays with the service.
    drop(ask(lab.0).unwrap());
    node.says("host port back");
    let before = node.descriptors();
    let silent: Vec<OwnedFd> = (0..50).map(|_| raw(lab.0)).collect();
    let open = QUESTION;
    let mut other = open.encode();
    other[7] = b'9';
    let senseless: [&[u8]; 6] = [
        b"x",
        &[0; 48],
        &[0xff; 20_000],
        &other,
        &open.encode()[..47],
        &Question::Release { number: 7 }.encode(),
    ];
    for bytes in senseless {
        let one = raw(lab.0);
        say_to(&one, bytes);
        let told = answer(one);
        assert!(
            told.contains("does not understand"),
            "{bytes:02x?}: {told:?}"
        );
    }
    // One that asks for host ports and reads nothing, with the same breath.
    let greedy = raw(lab.0);
    let (memory, bytes) = lent(&greedy);
    SharedMemory::allocate(memory.as_fd(), bytes).unwrap();
    for _ in 0..2_000 {
        let _ = send(
            &greedy,
            &open.encode(),
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        );
    }
    let said = |what| node.log().matches(what).count();
    until("it is given none", || said("host port given") > 1);
    // Others are served meanwhile.
    NodeService::connect(&socket(lab.0, "h0"))
        .unwrap()
        .may()
        .unwrap();
    drop(greedy);
    until("it is not given back", || {
        said("host port back") == said("host port given")
    });
    drop(ask(lab.0).unwrap());
    drop(silent);
    until("descriptors stay open", || node.descriptors() <= before);
    // Silence is not for ever.
    let start = Instant::now();
    let silent = raw(lab.0);
    assert_eq!(answer(silent), "");
    assert!(
        start.elapsed() > Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn a_host_port_is_held_as_long_as_somebody_has_its_socket() {
    let lab = TestLab::up(own("held"), "1");
    let node = Node::start(lab.0, "h0", "");
    let HostPort {
        lease, descriptors, ..
    } = ask(lab.0).unwrap();
    // The connection ends with the lease, and the descriptors stay.
    drop(lease);
    sleep(Duration::from_millis(300));
    let why = refusal(ask(lab.0));
    assert!(
        why.contains("belongs to another job") && attached(&lab, "h0"),
        "{why}"
    );
    drop(descriptors);
    let HostPort {
        lease, descriptors, ..
    } = ask(lab.0).unwrap();
    // Who comes while somebody leaves is not sent away.
    drop(lease);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sleep(Duration::from_millis(150));
            drop(descriptors);
        });
        drop(ask(lab.0).unwrap());
    });
    // Nothing stays on an interface that nobody uses.
    until("the program stays", || !attached(&lab, "h0"));
    assert_eq!(
        node.log().matches("host port back").count(),
        3,
        "{}",
        node.log()
    );
    // One connection may have several asked for, one after the other.
    let service = within(lab.0, || connected(lab.0)).unwrap();
    let copy = Disabled::parse("zerocopy").unwrap();
    for _ in 0..3 {
        drop(within(lab.0, || service.host_port(None, 1, &copy)).unwrap());
    }
}

/// Users of this machine that have nothing.
const NAMED: u32 = 4711;
const OTHER: u32 = 4712;

#[test]
fn whoever_has_the_port_next_gets_what_comes_for_it() {
    let lab = TestLab::up(own("next"), "2");
    let node = Node::start(lab.0, "h0", &format!("users = {NAMED}"));
    let service = as_user(lab.0, NAMED, || connected(lab.0)).unwrap();
    let to = lab.address(0, "ipv4");
    for (back, leaves) in [true, false].into_iter().enumerate() {
        let given = as_user(lab.0, NAMED, || open(&service, 1)).unwrap();
        // The lease and all but the UDP socket stay.
        let HostPort {
            lease: _lease,
            descriptors: [_memory, _fast, udp, _gate],
            ..
        } = given;
        let port = SocketAddr::try_from(getsockname(&udp).unwrap())
            .unwrap()
            .port();
        if leaves {
            // A socket that lets go of its port without being closed.
            as_user(lab.0, NAMED, || connect_unspec(&udp)).unwrap();
        } else {
            drop(udp);
        }
        let bind = || UdpSocket::bind(("0.0.0.0", port));
        let next = as_user(lab.0, OTHER, bind).unwrap();
        next.set_nonblocking(true).unwrap();
        let from = lab.within("h1", || UdpSocket::bind("0.0.0.0:0")).unwrap();
        let mut bytes = [0; 64];
        until("nothing comes", || {
            from.send_to(b"for the next", (to, port)).unwrap();
            next.recv(&mut bytes)
                .is_ok_and(|n| bytes[..n] == *b"for the next")
        });
        // It counts still.
        assert_eq!(node.log().matches("host port back").count(), back);
    }
}

#[test]
fn a_host_port_counts_until_both_of_its_sockets_are_closed() {
    let lab = TestLab::up(own("both"), "1");
    let config = &format!("users = {NAMED}\nuser_ports = 1\nports = 1");
    let mut node = Node::start(lab.0, "h0", config);
    let ask = || as_user(lab.0, NAMED, || open(&connected(lab.0)?, 1));
    let all = "has 1 host ports, which are all that";
    for kept in [1, 2] {
        let HostPort {
            lease, descriptors, ..
        } = ask().unwrap();
        drop(lease);
        // Whichever it is, nothing else is left of the port.
        let last = descriptors.into_iter().nth(kept).unwrap();
        for _ in 0..2 {
            let why = ask().map(drop).unwrap_err().to_string();
            assert!(
                why.contains(all) || why.contains("all users together"),
                "{why}"
            );
            assert!(!node.log().contains("back"), "{}", node.log());
            let state = socket(lab.0, "h0").with_extension("state");
            let state = fs::read_to_string(state).unwrap();
            assert!(state.contains("\"uid\":4711"), "{state}");
            // The next service knows it as well.
            node.end(Signal::KILL);
            node = Node::start(lab.0, "h0", config);
            node.says("host port taken over: eth0");
        }
        drop(last);
        node.says("host port back: eth0");
        drop(ask().unwrap());
        until("it is not given back", || {
            node.log().matches("host port back").count() == 2
        });
        node.end(Signal::KILL);
        node = Node::start(lab.0, "h0", config);
    }
}

#[test]
fn who_keeps_gates_is_given_the_same_again() {
    let lab = TestLab::up(own("gates"), "1");
    let config = &format!("users = {NAMED}\nuser_requests = 1000");
    let node = Node::start(lab.0, "h0", config);
    let mut rounds = 0;
    let mut gate_of = |user| {
        let HostPort { descriptors, .. } =
            as_user(lab.0, user, || open(&connected(lab.0)?, 1)).unwrap();
        let gate = descriptors.into_iter().last().unwrap();
        rounds += 1;
        until("it is not given back", || {
            node.log().matches("host port back").count() == rounds
        });
        gate
    };
    let number = |gate: &OwnedFd| {
        let about = format!("/proc/self/fdinfo/{}", gate.as_raw_fd());
        let about = fs::read_to_string(about).unwrap();
        let id = about.lines().find_map(|line| line.strip_prefix("map_id:"));
        id.unwrap().trim().parse::<u32>().unwrap()
    };
    let first = gate_of(NAMED);
    for word in SharedWords::map(first.as_fd(), 16).unwrap().words() {
        word.store(u64::MAX, Relaxed);
    }
    for _ in 0..5 {
        let again = gate_of(NAMED);
        assert_eq!(number(&again), number(&first));
        // What was left in it is not.
        let words = SharedWords::map(again.as_fd(), 16).unwrap();
        assert!(words.words().iter().all(|word| word.load(Relaxed) == 0));
    }
    // Nobody gets another's.
    assert_ne!(number(&gate_of(0)), number(&first));
}

#[test]
fn packet_memory_is_that_of_who_asks() {
    let lab = TestLab::up(own("memory"), "1");
    let node = Node::start(lab.0, "h0", "");
    let one = raw(lab.0);
    let (memory, bytes) = lent(&one);
    // The service has taken none of its pages.
    let about = fstat(&memory).unwrap();
    assert_eq!((about.st_size as usize, about.st_blocks), (bytes, 0));
    assert!(ftruncate(&memory, 0).is_err());
    let ask = || {
        send(&one, &QUESTION.encode(), SendFlags::NOSIGNAL).unwrap();
        answer(&one)
    };
    let why = ask();
    assert!(why.contains("not allocated"), "{why}");
    SharedMemory::allocate(memory.as_fd(), bytes).unwrap();
    let granted = ask();
    assert!(granted.contains("eth0"), "{granted}");
    node.says("host port given");
}

#[test]
fn users_that_are_not_named_are_bounded_together() {
    let lab = TestLab::up(own("flood"), "1");
    let _node = Node::start(lab.0, "h0", "");
    let mut told = 0;
    until("all are told why", || {
        let asked = as_user(lab.0, OTHER, || {
            let all: Vec<_> = (0..120).map(|_| connected(lab.0)).collect();
            let may = |it: Result<Arc<NodeService>, _>| it?.may();
            all.into_iter().map(may).collect::<Vec<_>>()
        });
        let refused = |it: &&Result<_, _>| matches!(it, Err(NodeError::Refused(_)));
        told += asked.iter().filter(refused).count();
        asked.iter().any(|it| matches!(it, Err(NodeError::Gone)))
    });
    assert!(told > 0);
    connected(lab.0).unwrap().may().unwrap();
}

#[test]
fn who_has_no_process_here_is_refused() {
    let lab = TestLab::up(own("pid"), "1");
    let apart = ["unshare", "--pid", "--fork", "--kill-child"];
    let _node = Node::under(&apart, lab.0, "h0", "", "");
    let why = refusal(ask(lab.0));
    assert!(why.contains("cannot see the process that asks"), "{why}");
}

#[test]
fn the_program_stays_for_a_while_after_the_last_host_port() {
    let lab = TestLab::up(own("linger"), "1");
    let mut node = Node::start(lab.0, "h0", "linger_seconds = 600");
    for ports in 1..3 {
        drop(ask(lab.0).unwrap());
        until("it is not given back", || {
            node.log().matches("host port back").count() == ports
        });
        // Whoever answers has done what there was to do.
        connected(lab.0).unwrap().may().unwrap();
        assert!(attached(&lab, "h0"));
    }
    node.end(Signal::TERM);
    assert!(!attached(&lab, "h0"));
}

#[test]
fn ranks_that_one_launcher_asks_for_share_a_queue() {
    let lab = TestLab::up(own("share"), "1");
    let node = Node::start(lab.0, "h0", "user_ports = 3\nuser_memory_mib = 9");
    let open = |service: &Arc<NodeService>, ranks| within(lab.0, || open(service, ranks));
    let service = within(lab.0, || connected(lab.0)).unwrap();
    let (first, second) = (open(&service, 2).unwrap(), open(&service, 2).unwrap());
    assert_eq!([first.info.sharing, second.info.sharing], [[0, 2], [1, 2]]);
    let why = refusal(open(&service, 2));
    assert!(why.contains("all 2 parts of queue 0 of eth0"), "{why}");
    // Who asks over another connection is another job.
    let why = refusal(ask(lab.0));
    assert!(why.contains("has 5 MiB of packet memory"), "{why}");
    drop((first, second));
    until("they stay", || {
        node.log().matches("host port back").count() == 2
    });
    // No more parts are made than its user may have, nor beyond its memory.
    assert_eq!(
        open(&service, 100).map(|it| it.info.sharing).unwrap(),
        [0, 3]
    );
    drop(node);
    let _node = Node::start(lab.0, "h0", "user_ports = 100\nuser_memory_mib = 9");
    let service = within(lab.0, || connected(lab.0)).unwrap();
    let why = refusal(open(&service, 4));
    assert!(why.contains("one more host port takes 10"), "{why}");
}

#[test]
fn a_packet_may_lie_in_several_chunks_unless_one_buffer_is_asked_for() {
    let lab = TestLab::with(own("long"), &["--hosts", "1", "--mtu", "9000"]);
    let _node = Node::start(lab.0, "h0", "");
    for (disabled, expected) in [("", true), ("multibuffer", false), ("zerocopy", true)] {
        let disabled = Disabled::parse(disabled).unwrap();
        let service = within(lab.0, || connected(lab.0)).unwrap();
        let port = within(lab.0, || service.host_port(None, 1, &disabled)).unwrap();
        assert_eq!(port.info.multi_buffer, expected, "{disabled:?}");
    }
}

#[test]
fn jobs_outlive_the_service_and_the_next_one_takes_over() {
    let (lab, mut nodes) = two(own("crash"), "");
    for by in [Signal::KILL, Signal::TERM] {
        let mark = format!("{}-{by:?}", lab.0);
        let job = endless(&lab, &mark);
        nodes.iter_mut().for_each(|node| node.end(by));
        // Packets are steered on, without anybody.
        assert!(attached(&lab, "h0") && attached(&lab, "h1"));
        let before = received(&lab);
        let grown = || {
            let after = received(&lab);
            [after[0] - before[0], after[1] - before[1]]
        };
        until("no packets come", || grown()[0] > 500);
        let [all, by_the_kernel] = grown();
        assert!(
            by_the_kernel * 10 < all,
            "after {by:?}: {by_the_kernel} of {all}"
        );
        nodes = ["h0", "h1"].map(|host| Node::start(lab.0, host, ""));
        for node in &nodes {
            let log = node.log();
            assert!(log.contains("taken over: eth0"), "after {by:?}: {log}");
        }
        let why = refusal(ask(lab.0));
        assert!(why.contains("is taken by another program"), "{why}");
        signal(job.id(), Signal::TERM);
        finish(job).complains(&[
            "lanes of rank 0: xdp to 1 (another host: host port on eth0)",
            "lanes of rank 1: xdp to 0 (another host: host port on eth0)",
        ]);
        none_left(&mark);
        short(lab.0);
        for host in ["h0", "h1"] {
            until("the program stays", || !attached(&lab, host));
        }
    }
    // What a service cannot use is replaced: here one map lies in the other's place.
    let mark = format!("{}-maps", lab.0);
    let job = endless(&lab, &mark);
    nodes[0].end(Signal::KILL);
    let swap = "cd /sys/fs/bpf/portolan/*/* && mv ports x && mv sockets ports && mv x sockets";
    lab.exec("h0", &["sh", "-c", swap]).expect(0);
    nodes[0] = Node::start(lab.0, "h0", "");
    signal(job.id(), Signal::TERM);
    finish(job);
    none_left(&mark);
    short(lab.0);
}

#[test]
fn an_interface_that_comes_back_under_its_number_is_attached_anew() {
    let lab = TestLab::up(own("anew"), "1");
    let make = "ip link add vx index 77 type veth peer name vy && ip addr add 192.0.2.1/24 dev vx \
                && ip link set vx up && ip link set vy up";
    let there = |script: &str| lab.exec("h0", &["sh", "-c", script]).expect(0).out;
    let has_program = || there("ip link show vx").contains("prog/xdp");
    there(make);
    let mut node = Node::start(lab.0, "h0", "");
    let at = "192.0.2.1".parse().unwrap();
    let port = within(lab.0, || {
        NodeService::connect(&socket(lab.0, "h0"))?.host_port(Some(at), 1, &Disabled::default())
    });
    let HostPort { descriptors, .. } = port.unwrap();
    assert!(has_program());
    node.end(Signal::KILL);
    there("ip link del vx");
    there(make);
    assert!(!has_program());
    // Its UDP socket is open still, so it is held.
    let node = Node::start(lab.0, "h0", "");
    node.says("host port taken over: vx");
    assert!(has_program());
    drop(descriptors);
    node.says("host port back: vx");
    until("the program stays", || !has_program());
    // One that is gone for good is forgotten.
    let port = within(lab.0, || {
        NodeService::connect(&socket(lab.0, "h0"))?.host_port(Some(at), 1, &Disabled::default())
    });
    there("ip link del vx");
    drop(port);
    until("it is not forgotten", || {
        node.log().matches("host port back: vx").count() == 2
    });
    let pins = "ls /sys/fs/bpf | grep -v debug || true";
    until("pins stay", || there(pins).is_empty());
    drop(ask(lab.0).unwrap());
}

#[test]
fn cleaning_up_leaves_nothing_and_jobs_go_on() {
    let (lab, mut nodes) = two(own("clean"), "");
    let ring = example("ring");
    let script = "echo ready; exec \"$0\" 30000";
    let mark = lab.0;
    let words = [
        "run", "-n", "2", "--lab", lab.0, "--link", "xdp", "--", "sh", "-c", script, &ring,
    ];
    let mut job = start(mark, &words);
    read_until(&mut job, "ready", 2);
    nodes[0].says("host port given");
    let clean = |host: &str| lab.exec(host, &[OWN, "node", "--clean"]);
    clean("h0")
        .expect(1)
        .complains(&["a node service runs", "stop it first"]);
    lab.exec("h0", &[OWN, "node"])
        .expect(1)
        .complains(&["a node service runs already"]);
    nodes[0].end(Signal::KILL);
    let said = clean("h0").expect(0);
    assert!(
        said.out.contains("eth0: the program is detached"),
        "{said:#?}"
    );
    assert!(!attached(&lab, "h0"));
    let left = lab
        .exec("h0", &["sh", "-c", "ls -A /run/portolan; mount -t bpf"])
        .expect(0);
    assert_eq!(left.out, "");
    let said = finish(job).expect(0);
    assert!(said.out.contains(RIGHT), "{said:#?}");
    none_left(mark);
    let said = clean("h0").expect(0);
    assert!(said.out.contains("no program was attached"), "{said:#?}");
    // Without a service root opens host ports itself.
    short(lab.0);
}

#[test]
fn who_is_killed_leaves_its_host_port_free() {
    let (lab, nodes) = two(own("kill"), "");
    for rank in [true, false] {
        let job = endless(&lab, lab.0);
        nodes.iter().for_each(|node| node.says("host port given"));
        let is_ring = |pid: &u32| {
            let exe = fs::read_link(format!("/proc/{pid}/exe"));
            exe.is_ok_and(|exe| exe.ends_with("ring"))
        };
        until("no rank", || marked(lab.0).iter().any(is_ring));
        let victim = if rank {
            marked(lab.0).into_iter().find(is_ring).unwrap()
        } else {
            job.id()
        };
        signal(victim, Signal::KILL);
        finish(job);
        none_left(lab.0);
        drop(ask(lab.0).unwrap());
        short(lab.0);
    }
}

#[test]
fn settings_that_make_no_sense_are_told_by_line_and_column() {
    let path = std::env::temp_dir().join(own("settings"));
    let name = path.to_str().unwrap().to_owned();
    let mut file = fs::File::create(&path).unwrap();
    file.write_all(b"users = nobody\n\n  user_ports = many # too many\n")
        .unwrap();
    let check = || say(&["node", "--check", "--config", &name]);
    let told = format!("{name}:3:16: user_ports is \"many\": give 1 to 256");
    check().expect(2).complains(&[&told]);
    say(&["node", "--config", &name])
        .expect(2)
        .complains(&[&told]);
    fs::write(&path, "users = nobody\ninterfaces = nosuch0\n").unwrap();
    let said = check().expect(1);
    for part in [
        "nobody (65534) may have host ports, and so write any frame",
        "missing  nosuch0",
        "64 host ports in all; each user 16 with 256 MiB",
    ] {
        assert!(said.out.contains(part), "no {part:?} in {said:#?}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).unwrap();
    check()
        .expect(2)
        .complains(&["others than root may write it", "chmod go-w"]);
    fs::remove_file(&path).unwrap();
    check().expect(2).complains(&["No such file"]);
    let user = ["--reuid", "4711", "--clear-groups", OWN, "node"];
    let said = Said::from(
        Command::new("setpriv")
            .args(user)
            .stdin(Stdio::null())
            .output()
            .unwrap(),
    );
    said.expect(1).complains(&["run this as root"]);
}

#[test]
fn a_service_keeps_few_capabilities() {
    let lab = TestLab::up(own("caps"), "1");
    let node = Node::start(lab.0, "h0", "");
    drop(ask(lab.0).unwrap());
    let status = fs::read_to_string(format!("/proc/{}/status", node.child.id())).unwrap();
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim().to_owned()
    };
    // CAP_NET_ADMIN 12, CAP_NET_RAW 13, CAP_BPF 39; and CAP_IPC_LOCK 14 where
    // locked memory is limited.
    let limits = fs::read_to_string(format!("/proc/{}/limits", node.child.id())).unwrap();
    let locked = limits
        .lines()
        .find(|line| line.starts_with("Max locked memory"));
    let limited = !locked.unwrap().contains("unlimited");
    let few: u64 = 1 << 12 | 1 << 13 | 1 << 39 | u64::from(limited) << 14;
    for set in ["CapPrm:", "CapEff:", "CapBnd:"] {
        assert_eq!(u64::from_str_radix(&of(set), 16), Ok(few), "{set}");
    }
    assert_eq!(of("NoNewPrivs:"), "1");
    assert_eq!(of("CapInh:"), "0000000000000000");
}

#[test]
fn a_service_needs_not_be_root() {
    let lab = TestLab::up(own("system"), "2");
    // What its unit does, with a user that has nothing.
    const SERVICE: u32 = 4713;
    let script = format!(
        "set -e; node=/run/portolan/node pins=/sys/fs/bpf/portolan; mkdir -p $node/bpf
         mountpoint -q /sys/fs/bpf || mount -t bpf -o mode=700 bpf /sys/fs/bpf
         install -d -m 700 -o {SERVICE} $pins
         mount --bind $pins $node/bpf
         chown {SERVICE} $node
         few=-all,+net_admin,+net_raw,+bpf
         ulimit -l unlimited 2>/dev/null || few=$few,+ipc_lock
         exec setpriv --reuid {SERVICE} --regid {SERVICE} --clear-groups --no-new-privs \
           --inh-caps $few --ambient-caps $few --bounding-set $few \"$@\""
    );
    let by = ["sh", "-c", &script, "sh"];
    let config = format!("users = {NAMED}");
    let mut nodes = ["h0", "h1"].map(|host| Node::under(&by, lab.0, host, &config, ""));
    let status = fs::read_to_string(format!("/proc/{}/status", nodes[0].child.id())).unwrap();
    assert!(
        status.contains(&format!("\nUid:\t{SERVICE}\t{SERVICE}\t")),
        "{status}"
    );
    let ask = || as_user(lab.0, NAMED, || open(&connected(lab.0)?, 1));
    let HostPort { descriptors, .. } = ask().unwrap();
    assert!(attached(&lab, "h0"));
    nodes[0].end(Signal::KILL);
    nodes[0] = Node::under(&by, lab.0, "h0", &config, "");
    nodes[0].says("host port taken over: eth0");
    drop(descriptors);
    nodes[0].says("host port back: eth0");
    short(lab.0);
    until("the program stays", || !attached(&lab, "h0"));
    // Whom the folder does not belong to is not believed.
    let socket = socket(lab.0, "h0");
    chown(socket.parent().unwrap(), Some(OTHER), None).unwrap();
    let why = ask().map(drop).unwrap_err().to_string();
    assert!(why.contains("neither root nor the owner"), "{why}");
}

#[test]
fn node_conf_forbids_one_sided_access_to_programs_that_read_it() {
    let folder = std::env::temp_dir().join(own("one-sided"));
    fs::create_dir_all(&folder).unwrap();
    // Each with an /etc of its own, where nothing else is different.
    let bench = |conf: &str, mode: u32| {
        let file = folder.join("node.conf");
        fs::write(&file, conf).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let script = "mount --make-rprivate / && cp -a /etc \"$0/etc\" \
             && mkdir -p \"$0/etc/portolan\" && cp -a \"$0/node.conf\" \"$0/etc/portolan/\" \
             && mount --bind \"$0/etc\" /etc && rm -f \"$0/node.conf\" && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script]).arg(&folder);
        command.args([OWN, "bench", "rma", "--link", "shm", "--size", "8"]);
        command.args(["--slices", "2", "--slice-ms", "1"]);
        let said = Said::from(command.output().unwrap());
        fs::remove_dir_all(folder.join("etc")).unwrap();
        said
    };
    bench("no_one_sided = 12345\n", 0o644).expect(0);
    let why = "one-sided access is forbidden here";
    for conf in [
        "no_one_sided = 0\n",
        "no_one_sided = any\n",
        "no_one_sided = ada\n",
    ] {
        bench(conf, 0o644).expect(1).complains(&[why]);
    }
    bench("", 0o666).expect(1).complains(&[why]);
    fs::remove_dir_all(&folder).unwrap();
}
