//! How long a host port is held, and what its owner has of it.

use super::*;

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
    let mut given = None;
    // A process that is being started beside this has copies of them until it
    // begins its program, and the port was released too long ago to be waited for.
    until("the port is given", || {
        given = ask(lab.0).ok();
        given.is_some()
    });
    let HostPort {
        lease, descriptors, ..
    } = given.unwrap();
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
        drop(within(lab.0, || service.host_port(None, 1, None, &copy)).unwrap());
    }
}

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
        let mut next = None;
        // The service closes its own copy after it has answered.
        until("the port is free", || {
            next = as_user(lab.0, OTHER, bind).ok();
            next.is_some()
        });
        let next = next.unwrap();
        next.set_nonblocking(true).unwrap();
        let from = lab.within("h1", || UdpSocket::bind("0.0.0.0:0")).unwrap();
        let mut bytes = [0; 64];
        until("nothing comes", || {
            from.send_to(b"for the next", (to, port)).unwrap();
            next.recv(&mut bytes)
                .is_ok_and(|n| bytes[..n] == *b"for the next")
        });
        // It counts still, and only the one before does not.
        let count = || node.log().matches("host port back").count();
        until("the one before is back", || count() >= back);
        assert_eq!(count(), back);
    }
}

#[test]
fn a_host_port_counts_until_both_of_its_sockets_are_closed() {
    let lab = TestLab::up(own("both"), "1");
    let config = &format!("users = {NAMED}\nuser_ports = 1\nports = 1");
    let mut node = Node::start(lab.0, "h0", config);
    let ask = || as_user(lab.0, NAMED, || open(&connected(lab.0)?, 1));
    let all = "has 1 host port, all that it may have";
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
fn who_names_a_group_shares_its_queue_over_any_connection() {
    let lab = TestLab::up(own("group"), "1");
    let node = Node::start(lab.0, "h0", &format!("users = {NAMED}"));
    let of = |group| {
        let service = connected(lab.0)?;
        service.host_port(None, 3, Some(group), &Disabled::default())
    };
    let open = |group| within(lab.0, || of(group));
    let (first, second) = (open(7).unwrap(), open(7).unwrap());
    let memory = |port: &HostPort| fstat(&port.descriptors[0]).unwrap().st_ino;
    assert_eq!(memory(&first), memory(&second));
    assert_eq!([first.info.sharing, second.info.sharing], [[0, 3], [1, 3]]);
    // Another group, another user's of that name, and a job have none of it.
    let others = [
        refusal(open(8)),
        refusal(as_user(lab.0, NAMED, || of(7))),
        refusal(ask(lab.0)),
    ];
    for why in others {
        assert!(why.contains("belongs to another job or group"), "{why}");
    }
    // Its parts go round, as long as somebody has one.
    let mut before = first;
    for round in 1..5 {
        drop(before);
        let back = || node.log().matches("host port back").count();
        until("it stays", || back() == round);
        before = open(7).unwrap();
        assert_eq!(before.info.sharing, [0, 3]);
        assert_eq!(memory(&before), memory(&second));
    }
}

#[test]
fn a_packet_may_lie_in_several_chunks_unless_one_buffer_is_asked_for() {
    let lab = TestLab::with(own("long"), &["--hosts", "1", "--mtu", "9000"]);
    let _node = Node::start(lab.0, "h0", "");
    for (disabled, expected) in [("", true), ("multibuffer", false), ("zerocopy", true)] {
        let disabled = Disabled::parse(disabled).unwrap();
        let service = within(lab.0, || connected(lab.0)).unwrap();
        let port = within(lab.0, || service.host_port(None, 1, None, &disabled)).unwrap();
        assert_eq!(port.info.multi_buffer, expected, "{disabled:?}");
    }
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
