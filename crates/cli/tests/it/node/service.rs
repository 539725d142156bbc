//! The service itself: its end, its successor, its settings and its privileges.

use super::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{accept_with, bind, listen};

const PATIENCE_MS: u64 = crate::common::PATIENCE.as_millis() as u64;

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
fn a_service_whose_state_was_lost_says_what_holds_the_queue() {
    let lab = TestLab::up(own("lost"), "1");
    let mut node = Node::start(lab.0, "h0", "");
    let state = socket(lab.0, "h0").with_extension("state");
    for (left, why) in [
        ("", "node.state is empty"),
        ("{\"mou", "node.state is damaged"),
    ] {
        let HostPort { descriptors, .. } = ask(lab.0).unwrap();
        node.end(Signal::KILL);
        fs::write(&state, left).unwrap();
        node = Node::start(lab.0, "h0", "");
        node.says(why);
        node.says("their queues stay taken until the jobs that have them end");
        let refused = refusal(ask(lab.0));
        assert!(
            refused.contains("whose state was lost") && refused.contains(why),
            "{refused}"
        );
        drop(descriptors);
        // The kernel frees it a while later.
        until("the queue stays taken", || ask(lab.0).is_ok());
    }
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
        NodeService::connect(&socket(lab.0, "h0"))?.host_port(
            Some(at),
            1,
            None,
            &Disabled::default(),
        )
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
        NodeService::connect(&socket(lab.0, "h0"))?.host_port(
            Some(at),
            1,
            None,
            &Disabled::default(),
        )
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
fn an_interface_that_takes_no_program_keeps_no_pins() {
    let lab = TestLab::up(own("refuses"), "1");
    let there = |script: &str| lab.exec("h0", &["sh", "-c", script]).expect(0).out;
    // Its driver knows no programs.
    there("ip link add vx type bridge && ip addr add 192.0.2.1/24 dev vx && ip link set vx up");
    let _node = Node::start(lab.0, "h0", "");
    let at = "192.0.2.1".parse().unwrap();
    let why = refusal(within(lab.0, || {
        let service = NodeService::connect(&socket(lab.0, "h0"))?;
        service.host_port(Some(at), 1, None, &Disabled::default())
    }));
    assert!(
        why.contains("no XDP program can be attached to vx"),
        "{why}"
    );
    assert_eq!(there("ls /sys/fs/bpf | grep -v debug || true"), "");
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

/// A user that has nothing.
pub const SERVICE: u32 = 4713;

/// Starts what follows as the service's unit does, as that user.
pub fn as_a_unit() -> String {
    format!(
        "set -e; node=/run/portolan/node pins=/sys/fs/bpf/portolan; mkdir -p $node/bpf
         mountpoint -q /sys/fs/bpf || mount -t bpf -o mode=700 bpf /sys/fs/bpf
         install -d -m 700 -o {SERVICE} $pins
         mount --bind $pins $node/bpf
         chown {SERVICE} $node
         few=-all,+net_admin,+net_raw,+bpf
         ulimit -l unlimited 2>/dev/null || few=$few,+ipc_lock
         exec setpriv --reuid {SERVICE} --regid {SERVICE} --clear-groups --no-new-privs \
           --inh-caps $few --ambient-caps $few --bounding-set $few \"$@\""
    )
}

fn ask_as_user(lab: &str) -> Result<HostPort, NodeError> {
    as_user(lab, NAMED, || open(&connected(lab)?, 1))
}

/// The service of h0 is killed: the one that is started `anew` takes over the
/// host port that a user has, and gets it back.
pub fn takes_over(lab: &TestLab, node: &mut Node, anew: impl FnOnce() -> Node) {
    let HostPort { descriptors, .. } = ask_as_user(lab.0).unwrap();
    assert!(attached(lab, "h0"));
    node.end(Signal::KILL);
    *node = anew();
    node.says("host port taken over: eth0");
    drop(descriptors);
    node.says("host port back: eth0");
    short(lab.0);
    until("the program stays", || !attached(lab, "h0"));
}

#[test]
fn a_service_needs_not_be_root() {
    let lab = TestLab::up(own("system"), "2");
    let script = as_a_unit();
    let by = ["sh", "-c", &script, "sh"];
    let config = format!("users = {NAMED}");
    let mut nodes = ["h0", "h1"].map(|host| Node::under(&by, lab.0, host, &config, ""));
    let status = fs::read_to_string(format!("/proc/{}/status", nodes[0].child.id())).unwrap();
    assert!(
        status.contains(&format!("\nUid:\t{SERVICE}\t{SERVICE}\t")),
        "{status}"
    );
    takes_over(&lab, &mut nodes[0], || {
        Node::under(&by, lab.0, "h0", &config, "")
    });
    // Whom the folder does not belong to is not believed.
    let socket = socket(lab.0, "h0");
    chown(socket.parent().unwrap(), Some(OTHER), None).unwrap();
    let why = ask_as_user(lab.0).map(drop).unwrap_err().to_string();
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

/// Who listens where a host's service does, and answers nobody.
fn mute(lab: &TestLab, host: &str) -> OwnedFd {
    let path = socket(lab.0, host);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let flags = SocketFlags::CLOEXEC;
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(path).unwrap()).unwrap();
    listen(&listener, 8).unwrap();
    listener
}

/// Which of these say something, or were hung up, within so many milliseconds.
fn heard<const N: usize>(from: [&OwnedFd; N], ms: u64) -> [bool; N] {
    let mut all = from.map(|fd| PollFd::new(fd, PollFlags::IN));
    let limit = Timespec::try_from(Duration::from_millis(ms)).unwrap();
    poll(&mut all, Some(&limit)).unwrap();
    all.map(|fd| !fd.revents().is_empty())
}

/// Services that are stopped cost a start three seconds together, and the job goes
/// on without them: each is asked while the others are waited for.
#[test]
fn services_that_do_not_answer_are_asked_at_the_same_time() {
    let lab = TestLab::up(own("mute"), "3");
    let listeners = ["h0", "h1", "h2"].map(|host| mute(&lab, host));
    let ring = example("ring");
    let words = ["run", "-v", "-n", "3", "--lab", lab.0, "--", &ring, "20"];
    let begun = Instant::now();
    loop {
        let job_begun = Instant::now();
        let job = start(lab.0, &words);
        // Each asks one thing, and hangs up when it has waited for long enough.
        let asked = listeners.each_ref().map(|listener| {
            assert_eq!(heard([listener], PATIENCE_MS), [true], "nobody asks");
            let asked = accept_with(listener, SocketFlags::CLOEXEC).unwrap();
            assert_eq!(heard([&asked], PATIENCE_MS), [true], "nobody asks");
            let mut question = [0; 64];
            assert!(read(&asked, &mut question).unwrap() > 0);
            asked
        });
        let is_together = heard(asked.each_ref(), 0) == [false; 3];
        let said = finish(job).expect(0);
        // It has waited for them, and once for each.
        assert!(job_begun.elapsed() >= Duration::from_secs(3));
        assert_eq!(heard(listeners.each_ref(), 0), [false; 3]);
        assert!(said.out.contains(RIGHT), "{said:#?}");
        said.complains(&[
            "udp to 1-2 (another host; no host port: the node service has not \
                          answered within 10 s",
        ]);
        if is_together {
            return;
        }
        // A busy machine may not have let all ask before the first hung up.
        assert!(
            begun.elapsed() < crate::common::PATIENCE,
            "one after the other"
        );
    }
}
