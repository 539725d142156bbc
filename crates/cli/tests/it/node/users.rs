//! Who may have host ports, how many, and who is answered.

use super::*;

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
        "user root (0) has 1 host port, all that it may have (user_ports)",
    );
    refused("ports = 1", "all users together have 1 host port, all that");
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
    assert!(refusal(last).contains("asks too often: user_requests allows 3 requests a second"));
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
    group: None,
};

/// Asks there, and gives the packet memory that is lent, and its bytes.
fn lent(by: &OwnedFd) -> (OwnedFd, usize) {
    send(by, &QUESTION.encode(), SendFlags::NOSIGNAL).unwrap();
    let mut bytes = [0; 64];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(&mut bytes)];
    let got = recvmsg(by, parts, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
    let memory = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let Some(Answer::Allocate { bytes: size }) = Answer::decode(&bytes[..got.bytes]) else {
        panic!("{bytes:?}")
    };
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
    let open = QUESTION.encode();
    let mut other = open.clone();
    other[7] = b'9';
    let senseless: [&[u8]; 7] = [
        b"x",
        &[0; 48],
        &[0xff; 20_000],
        &other,
        &open[1..],
        &open[..open.len() - 1],
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
    // One that asks for more and more host ports and reads nothing.
    let said = |what| node.log().matches(what).count();
    let greedy = raw(lab.0);
    let (memory, bytes) = lent(&greedy);
    SharedMemory::allocate(memory.as_fd(), bytes).unwrap();
    say_to(&greedy, &open);
    until("it is given none", || said("host port given") > 1);
    for _ in 0..2_000 {
        let _ = send(&greedy, &open, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
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
    assert_eq!(fstat(&memory).unwrap().st_blocks, 0);
    // Nor does it fill a hole that was made since.
    SharedMemory::allocate(memory.as_fd(), bytes).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let whole = fstat(&memory).unwrap().st_blocks;
    // Of a part of a page nothing is taken away.
    let at = (bytes as u64 / 2).next_multiple_of(4_096);
    fallocate(&memory, punch, at, 4_096).unwrap();
    let holed = fstat(&memory).unwrap().st_blocks;
    assert!(holed < whole);
    let why = ask();
    assert!(why.contains("not allocated"), "{why}");
    assert_eq!(fstat(&memory).unwrap().st_blocks, holed);
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
fn a_flood_of_others_keeps_nobody_from_being_answered() {
    let lab = TestLab::up(own("among"), "1");
    let config = format!("users = {NAMED}\nuser_connections = 200\nuser_requests = 10000");
    let _node = Node::start(lab.0, "h0", &config);
    let (done, tried) = (AtomicU32::new(0), AtomicU32::new(0));
    // Some come at any moment: a service that took all who wait first would
    // never hear anybody else.
    let flood = || {
        as_user(lab.0, OTHER, || {
            while done.load(Relaxed) == 0 {
                drop(raw_here(lab.0));
                tried.fetch_add(1, Relaxed);
            }
        });
    };
    std::thread::scope(|scope| {
        scope.spawn(flood);
        let all = as_user(lab.0, NAMED, || {
            // No panic here: the flood would never end.
            while tried.load(Relaxed) < 100 {
                std::thread::yield_now();
            }
            let answered = |_| {
                let answer = connected(lab.0)?.may();
                answer.map(|_| tried.load(Relaxed))
            };
            (0..100).map(answered).collect::<Result<Vec<u32>, _>>()
        });
        done.store(1, Relaxed);
        // They came between others, not before or behind all of them.
        let all = all.unwrap();
        assert!(all[99] > all[0], "{all:?}");
    });
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
fn descriptors_are_refused_before_they_arrive() {
    let (mine, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    if refuse_descriptors(mine.as_fd()) == Err(Errno::NOPROTOOPT) {
        println!("*** DID NOT RUN: the kernel cannot refuse descriptors (Linux before 6.16)");
        return;
    }
    let lab = TestLab::up(own("rights"), "1");
    let _node = Node::start(lab.0, "h0", "");
    let one = raw(lab.0);
    // A socket whose close may linger would keep the service.
    assert_eq!(
        send_with(&one, &QUESTION.encode(), one.as_fd()),
        Err(Errno::PERM)
    );
    drop(ask(lab.0).unwrap());
}

#[test]
fn descriptors_whose_close_lingers_keep_nobody_waiting() {
    let lab = TestLab::up(own("linger"), "1");
    let config = format!("users = root, {NAMED}\nuser_connections = 3\nuser_requests = 1000");
    // As Linux before 6.16 would have it.
    let mut node = Node::without(lab.0, "h0", &config, "passrights");
    let to_node = |by| signal(node.child.id(), by);
    let send_lingering = |user| {
        let (socket, peer) = lingering();
        // It waits when the service accepts the connection.
        to_node(Signal::STOP);
        let one = as_user(lab.0, user, || {
            let one = raw_here(lab.0);
            send_with(&one, &QUESTION.encode(), socket.as_fd()).unwrap();
            one
        });
        (one, peer)
    };
    // One that is heard, one that is too many, and one that may not ask.
    for (user, others) in [(NAMED, 0), (NAMED, 3), (OTHER, 0)] {
        let connect = |_| as_user(lab.0, user, || connected(lab.0).unwrap());
        let _others: Vec<_> = (0..others).map(connect).collect();
        for hangs_up in [false, true] {
            let (one, peer) = send_lingering(user);
            let kept = (!hangs_up).then_some(one);
            to_node(Signal::CONT);
            let asked = within(lab.0, || connected(lab.0)?.may());
            assert!(asked.is_ok(), "{user}, {others}, {hangs_up}: {asked:?}");
            drop((kept, peer));
        }
    }
    let (_one, _peer) = send_lingering(NAMED);
    to_node(Signal::TERM);
    to_node(Signal::CONT);
    until("it does not end", || {
        node.child.try_wait().unwrap().is_some()
    });
}
