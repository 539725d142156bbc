//! Looking at running jobs: `portolan top`.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::Stdio;
use std::sync::mpsc::channel;

use crate::common::cluster::Cluster;
use crate::common::lingering::{lingering, send_with};
use crate::common::{
    MARK, TestLab, example, finish, job_id, need_root, none_left, own_mark, own_name, portolan,
    probe, ranks, read_until, say, signal, start, until,
};
use rustix::io::Errno;
use rustix::process::Signal;

#[test]
fn jobs_are_listed_and_found_by_the_beginning_of_their_id() {
    let mark = "observe-list";
    let mut job = start(mark, &["run", "-v", "-n", "3", "--", &probe(), "wait"]);
    let id = job_id(&mut job);
    let said = say(&["top", "--list"]).expect(0);
    assert!(
        said.out
            .contains(&format!("{id}  3 ranks on {}", own_name())),
        "{said:#?}"
    );
    assert_eq!(ranks(&["--once", &id[..9]]).len(), 3);
    say(&["top", "zz"])
        .expect(2)
        .complains(&["portolan top --list"]);
    signal(job.id(), Signal::TERM);
    job.wait().unwrap();
    none_left(mark);
    let said = say(&["top", &id]).expect(2);
    said.complains(&["no job of this user", "begins with"]);
}

/// The user `nobody`.
const NOBODY: u32 = 65_534;

/// `nobody` listens under the name of a job of user `uid`, and says `answers` to
/// whoever asks.
fn pretend(uid: u32, id: &str, answers: &[&str]) {
    let name = format!("portolan/{uid}/{id}");
    let frame = |json: &&str| {
        let length = json.len() as u32 + 1;
        [&length.to_le_bytes()[..], b"J", json.as_bytes()].concat()
    };
    let bytes: Vec<u8> = answers.iter().flat_map(frame).collect();
    let (listens, ready) = channel();
    std::thread::spawn(move || {
        // Of this thread alone.
        rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(NOBODY)).unwrap();
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        listens.send(()).unwrap();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            if stream.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {
                let _ = stream.write_all(&bytes);
            }
        }
    });
    ready.recv().unwrap();
}

#[test]
fn names_that_another_user_has_taken_are_not_believed() {
    need_root();
    let id = |n: u32| format!("{:08x}{n:08x}", std::process::id());
    let rank = r#"{"rank":0,"pid":1,"core":null,"restarts":0,"phase":"joined",
        "process":"R","tables":[],"unread":null}"#;
    let name = r"\u001b]0;title\u0007\nh0";
    let host =
        format!(r#"{{"Host":{{"host_index":0,"name":"{name}","now_ns":0,"ranks":[{rank}]}}}}"#);
    pretend(0, &id(1), &[&host, r#""End""#]);
    pretend(NOBODY, &id(2), &[&host, r#""End""#]);
    let long = "x".repeat(1 << 20);
    let silent = format!(r#"{{"Silent":{{"host_index":0,"name":"{long}"}}}}"#);
    pretend(NOBODY, &id(3), &vec![&silent[..]; 70]);
    let listed = say(&["top", "--list"]).expect(0).out;
    assert!(!listed.contains(&id(1)), "{listed}");
    assert!(
        listed.contains(&format!("{}  of user {NOBODY}", id(2))),
        "{listed}"
    );
    let top = |id: &str| say(&["top", "--once", id]);
    top(&id(1)).expect(2).complains(&["no job of this user"]);
    // Another user's is asked only by who means it, and what it says is shown.
    top(&id(2)[..15])
        .expect(2)
        .complains(&["no job of this user"]);
    for meant in [id(2), format!("{NOBODY}/{}", id(2))] {
        let shown = top(&meant).expect(0).out;
        assert!(shown.contains(r"\u{1b}]0;title\u{7}\nh0"), "{shown:?}");
        assert!(!shown.contains(['\x1b', '\x07']), "{shown:?}");
    }
    top(&id(3)).expect(1).complains(&["more than 64 MiB"]);
}

/// Another user cannot stop a launcher by what it sends to its control socket.
#[test]
fn descriptors_whose_close_lingers_keep_no_launcher() {
    need_root();
    for disabled in ["", "passrights"] {
        let mark = "observe-linger";
        let mut job = portolan(&["run", "-v", "-n", "2", "--", &probe(), "wait"]);
        let job = job
            .env(MARK, own_mark(mark))
            .env("PORTOLAN_DISABLE", disabled);
        let mut job = job
            .stderr(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let id = job_id(&mut job);
        read_until(&mut job, "waiting", 2);
        let (socket, _peer) = lingering();
        let address = SocketAddr::from_abstract_name(format!("portolan/0/{id}")).unwrap();
        // It waits when the launcher accepts the connection.
        signal(job.id(), Signal::STOP);
        let send = || {
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(NOBODY)).unwrap();
            let stream = UnixStream::connect_addr(&address).unwrap();
            send_with(&stream, b"x", socket.as_fd())
        };
        let sent = std::thread::scope(|scope| scope.spawn(send).join().unwrap());
        // From Linux 6.16 on the kernel refuses it.
        assert!(sent.is_ok() || disabled.is_empty() && sent == Err(Errno::PERM));
        if sent.is_ok() {
            drop(socket);
        }
        signal(job.id(), Signal::CONT);
        assert_eq!(ranks(&["--once", &id]).len(), 2);
        signal(job.id(), Signal::TERM);
        job.wait().unwrap();
        none_left(mark);
    }
}

#[test]
fn a_host_leaves_a_job_that_goes_on() {
    let lab = TestLab::up("t-leave", "2");
    let (mark, probe) = ("observe-leave", probe());
    let hosts = ["run", "-v", "--lab", lab.0, "--hosts", "h0:2,h1:1", "--"];
    let mut job = start(mark, &[&hosts[..], &[&probe, "wait"]].concat());
    let id = job_id(&mut job);
    read_until(&mut job, "waiting", 3);
    let exclude = |host: &str| say(&["job", &id, "exclude", host]);
    exclude("h7")
        .expect(1)
        .complains(&["no rank of the job runs on a host h7 (there are h0, h1)"]);
    exclude("h1").expect(0);
    // Those who stay are told, and stay.
    read_until(&mut job, "died: rank 2, signal 15 (SIGTERM)", 2);
    assert_eq!(ranks(&["--once", &id]).len(), 3);
    exclude("h0").expect(1).complains(&["the only host"]);
    exclude("h1").expect(1).complains(&["(there are h0)"]);
    assert!(job.try_wait().unwrap().is_none());
    signal(job.id(), Signal::INT);
    finish(job).expect(130);
    none_left(mark);
}

#[test]
fn a_launcher_that_is_stopped_is_told_from_one_that_is_gone() {
    let mark = "observe-stopped";
    let mut job = start(mark, &["run", "-v", "-n", "1", "--", &probe(), "wait"]);
    let id = job_id(&mut job);
    signal(job.id(), Signal::STOP);
    say(&["top", "--once", &id])
        .expect(1)
        .complains(&["is it stopped?"]);
    signal(job.id(), Signal::CONT);
    say(&["top", "--once", &id]).expect(0);
    signal(job.id(), Signal::KILL);
    job.wait().unwrap();
    none_left(mark);
}

#[test]
fn all_hosts_of_a_job_are_seen_from_each() {
    let cluster = Cluster::up("t-top");
    // h1 is reached through h0.
    let hosts = ["--hosts", "h0:2,h1", "--fan-out", "1", "-v"];
    let program = probe();
    let words = [&hosts[..], &["--", &program, "wait"]].concat();
    let mut job = cluster.start("observe-hosts", &words);
    let id = job_id(&mut job);
    // Until then an agent may still have to open its door.
    read_until(&mut job, "waiting", 3);
    let portolan = env!("CARGO_BIN_EXE_portolan");
    for host in ["h0", "h1", "h2"] {
        let said = cluster
            .lab
            .exec(host, &[portolan, "top", "--dump", &id])
            .expect(0);
        for about in [
            "rank 0 on host h0:",
            "rank 1 on host h0:",
            "rank 2 on host h1:",
        ] {
            assert!(said.out.contains(about), "from {host}: {said:#?}");
        }
    }
    // One that does not answer is named, and the others are shown.
    let agent = cluster.agent("h1");
    signal(agent, Signal::STOP);
    let said = cluster
        .lab
        .exec("h2", &[portolan, "top", "--dump", &id])
        .expect(0);
    assert!(said.out.contains("rank 1 on host h0"), "{said:#?}");
    let said = said.complains(&["host h1 does not answer"]);
    assert!(!said.out.contains("rank 2"), "{said:#?}");
    signal(agent, Signal::CONT);
    signal(job.id(), Signal::TERM);
    job.wait().unwrap();
    cluster.nothing_left();
}

#[test]
fn what_the_steering_program_does_is_seen() {
    let lab = TestLab::up("t-top-steer", "2");
    let mark = "observe-steer";
    let words = ["run", "-v", "-n", "2", "--lab", lab.0, "--link", "xdp"];
    let mut job = start(
        mark,
        &[&words[..], &["--", &example("ring"), "100000000"]].concat(),
    );
    let id = job_id(&mut job);
    let counter = |rank: &serde_json::Value, name: &str| rank["counters"][name].as_u64();
    let steered = |rank: &serde_json::Value| counter(rank, "steered") > Some(100);
    let before = ranks_until(&["--once", &id], steered);
    for rank in &before {
        assert_eq!(counter(rank, "filtered_unknown"), Some(0), "{rank}");
        let fast = counter(rank, "fast_packets_received");
        assert!(fast > Some(100), "{rank}");
    }
    // Packets of ours to all UDP ports there, with numbers that nobody gave
    // out; one in 262,144 of them passes all the same.
    let hosts = say(&["lab", "status", lab.0, "--json"]).expect(0).out;
    let hosts: serde_json::Value = serde_json::from_str(&hosts).unwrap();
    let to = hosts["labs"][0]["hosts"][1]["ipv4"].as_str().unwrap();
    let ports = lab.exec("h1", &["cat", "/proc/net/udp6"]).expect(0).out;
    let port = |line: &str| {
        let at = line.split_whitespace().nth(1)?.rsplit_once(':')?.1;
        u16::from_str_radix(at, 16).ok()
    };
    let ports: Vec<u16> = ports.lines().skip(1).filter_map(port).collect();
    for port in &ports {
        let send = "$s = IO::Socket::INET->new(Proto => 'udp', PeerAddr => $ARGV[0]) or die; \
                    $s->send(pack('C4V', 18, 0, 0, 0, $_ * 7919) . 'x' x 40) for 1 .. 1000";
        let to = format!("{to}:{port}");
        lab.exec("h0", &["perl", "-MIO::Socket::INET", "-e", send, &to])
            .expect(0);
    }
    let after = ranks(&["--once", &id]);
    let dropped = counter(&after[1], "filtered_unknown").unwrap();
    // A busy machine's interface may have dropped some before.
    assert!((1..=1_000).contains(&dropped), "{ports:?} {}", after[1]);
    assert_eq!(counter(&after[0], "filtered_unknown"), Some(0));
    // And by each other way to look.
    let said = say(&["top", "--once", &id]).expect(0);
    assert!(
        said.out
            .contains("shm/net  resent nocredit  steered   passed  dropped")
    );
    let said = say(&["top", "--dump", &id]).expect(0);
    assert!(said.out.contains("  xdp, rank 1: "), "{said:#?}");
    assert!(!said.out.contains("udp"), "{said:#?}");
    let file = std::env::temp_dir().join(format!("portolan-steer-{}", std::process::id()));
    let path = file.to_str().unwrap();
    let mut watch = portolan(&["top", &id, "--interval", "1", "--prometheus", path])
        .spawn()
        .unwrap();
    let wanted = format!(
        "portolan_filtered_unknown_total{{job_id=\"{id}\",rank=\"1\",host=\"h1\"}} {dropped}"
    );
    let text = || std::fs::read_to_string(&file).unwrap_or_default();
    until(text, || text().contains(&wanted));
    signal(watch.id(), Signal::TERM);
    watch.wait().unwrap();
    std::fs::remove_file(&file).unwrap();
    signal(job.id(), Signal::TERM);
    finish(job);
    none_left(mark);
}

/// Asks until all ranks are as wanted.
fn ranks_until(
    arguments: &[&str],
    wanted: impl Fn(&serde_json::Value) -> bool,
) -> Vec<serde_json::Value> {
    let seen = RefCell::new(Vec::new());
    let all = || {
        seen.replace(ranks(arguments));
        seen.borrow().iter().all(&wanted)
    };
    until(|| format!("{:#?}", seen.borrow()), all);
    seen.take()
}

#[test]
fn counters_are_read_of_ranks_that_run_and_that_are_stopped() {
    let mark = "observe-counters";
    for link in ["shm", "udp"] {
        let ring = example("ring");
        let words = [
            "run",
            "-v",
            "-n",
            "3",
            "--link",
            link,
            "--",
            &ring,
            "100000000",
        ];
        let mut job = start(mark, &words);
        let id = job_id(&mut job);
        let sent = |rank: &serde_json::Value| rank["counters"]["sent"].as_u64().unwrap_or(0);
        let first = ranks_until(&["--once", &id], |rank| sent(rank) > 100);
        let later = ranks_until(&["--once", &id], |rank| sent(rank) > sent(&first[2]) + 100);
        for (rank, now) in later.iter().enumerate() {
            let counters = &now["counters"];
            assert_eq!(now["rank"], rank);
            assert_eq!(counters[format!("{link}_peers")], 2, "{now:#}");
            let packets = counters["packets_sent"].as_u64().unwrap_or(0);
            assert_eq!(packets > 100, link == "udp", "{now:#}");
        }
        // One is stopped: the others wait, and all can still be seen.
        let pid = u32::try_from(later[1]["pid"].as_u64().unwrap()).unwrap();
        signal(pid, Signal::STOP);
        let waits = |rank: &serde_json::Value| {
            rank["process"] == "stopped" || rank["waits"]["ns"].as_u64() > Some(300_000_000)
        };
        let seen = ranks_until(&["--once", &id], waits);
        assert_eq!(seen[1]["process"], "stopped", "{seen:#?}");
        assert_eq!(seen[0]["waits"]["in"], "condition", "{seen:#?}");
        let said = say(&["top", "--dump", &id]).expect(0);
        assert!(said.out.contains("waits in condition since"), "{said:#?}");
        assert!(said.out.contains(", joined, stopped, core "), "{said:#?}");
        let way = format!("  {link}, rank 1: ");
        if link == "shm" {
            assert!(said.out.contains(&way), "{said:#?}");
        } else {
            let stuck = |_| {
                // Stopped again at another place: the token may be where nothing
                // else is to be told of it.
                signal(pid, Signal::CONT);
                let before = sent(&ranks(&["--once", &id])[0]);
                ranks_until(&["--once", &id], |rank| sent(rank) > before);
                signal(pid, Signal::STOP);
                ranks_until(&["--once", &id], waits);
                let paths = ranks(&["--dump", &id])[0]["state"]["udp_path"].clone();
                let flies = |path: &serde_json::Value| path["in_flight"].as_u64() > Some(0);
                paths.as_array().unwrap().iter().any(flies)
            };
            assert!(
                (0..20).any(stuck),
                "nothing under way to a rank that is stopped"
            );
            let said = say(&["top", "--dump", &id]).expect(0);
            assert!(said.out.contains(&way), "{said:#?}");
            assert!(said.out.contains("nothing acknowledged since"), "{said:#?}");
        }
        signal(pid, Signal::CONT);
        let counted = sent(&later[0]);
        ranks_until(&["--once", &id], |rank| sent(rank) > counted);
        signal(job.id(), Signal::TERM);
        job.wait().unwrap();
    }
    none_left(mark);
}

#[test]
fn metrics_are_a_whole_file_for_prometheus() {
    let mark = "observe-prometheus";
    let ring = example("ring");
    let words = ["run", "-v", "-n", "2", "--", &ring, "100000000"];
    let mut job = start(mark, &words);
    let id = job_id(&mut job);
    ranks_until(&["--once", &id], |rank| {
        rank["counters"]["received"].as_u64() > Some(10)
    });
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("observe.prom");
    let path = file.to_str().unwrap();
    say(&["top", "--once", "--prometheus", path, &id]).expect(0);
    let text = std::fs::read_to_string(&file).unwrap();
    let mut kinds = std::collections::BTreeSet::new();
    let mut samples = 0;
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            assert!(kinds.insert(kind), "told twice: {kind}");
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap();
        assert!(
            kinds
                .iter()
                .any(|kind| kind.split(' ').next() == Some(name)),
            "{line}"
        );
        assert!(
            labels.starts_with(&format!("job_id=\"{id}\",rank=\"")),
            "{line}"
        );
        assert!(value.parse::<f64>().unwrap() >= 0.0, "{line}");
        samples += 1;
    }
    assert!(samples >= 2 * 12, "{text}");
    assert!(kinds.contains("portolan_sent_total counter"), "{kinds:?}");
    assert!(kinds.contains("portolan_shm_peers gauge"), "{kinds:?}");
    std::fs::remove_file(&file).unwrap();
    say(&["top", "--once", "--prometheus", "/proc/nowhere/x", &id])
        .expect(1)
        .complains(&["/proc/nowhere/x"]);
    signal(job.id(), Signal::TERM);
    job.wait().unwrap();
    none_left(mark);
}

/// Clocks of processes on one host agree so well, us.
const CLOCK_US: f64 = 50.0;

#[test]
fn a_trace_pairs_what_was_sent_with_what_was_handled() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("observe-trace");
    let _ = std::fs::remove_dir_all(&folder);
    let path = folder.to_str().unwrap();
    for link in ["shm", "udp"] {
        let ring = example("ring");
        let words = [
            "run", "-n", "4", "--link", link, "--trace", path, "--", &ring, "200",
        ];
        let said = say(&words).expect(0);
        assert!(!said.err.contains("trace"), "{said:#?}");
        let text = std::fs::read_to_string(folder.join("trace.json")).unwrap();
        let events: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        let of = |kind: &'static str| events.iter().filter(move |event| event["ph"] == kind);
        let time = |event: &serde_json::Value| event["ts"].as_f64().unwrap();
        let mut sent = std::collections::BTreeMap::new();
        for event in of("s") {
            let id = event["id"].as_str().unwrap();
            assert!(
                sent.insert(id, time(event)).is_none(),
                "sent twice: {event}"
            );
        }
        // 200 times round four ranks.
        assert!(sent.len() >= 800, "{} messages", sent.len());
        let mut handled = 0;
        for event in of("f") {
            let began = sent.remove(event["id"].as_str().unwrap());
            let began = began.unwrap_or_else(|| panic!("never sent: {event}"));
            assert!(
                time(event) > began - CLOCK_US,
                "handled before it was sent: {event}"
            );
            handled += 1;
        }
        assert!(sent.is_empty(), "never handled: {sent:?}");
        assert!(handled >= 800);
        let mut named = std::collections::BTreeSet::new();
        for event in of("X") {
            assert!(event["dur"].as_f64().unwrap() > 0.0, "{event}");
            named.insert(event["name"].as_str().unwrap());
        }
        for name in ["send", "handle", "wait: condition", "wait: barrier"] {
            assert!(named.contains(name), "no {name:?} in {named:?}");
        }
        // Of each rank its name, and that nothing is missing.
        assert_eq!(
            of("i")
                .filter(|event| event["args"]["dropped"] == 0)
                .count(),
            4
        );
        assert_eq!(
            of("M")
                .filter(|event| event["name"] == "process_name")
                .count(),
            4
        );
    }
    std::fs::remove_dir_all(&folder).unwrap();
    say(&["run", "-n", "1", "--trace", "/proc/nowhere", "--", "true"])
        .expect(1)
        .complains(&["--trace /proc/nowhere"]);
}

#[test]
fn a_trace_that_may_not_grow_ends_no_rank() {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(own_mark("observe-limit"));
    let ring = example("ring");
    let script = "ulimit -f 8 && exec \"$0\" 2000";
    let path = file.to_str().unwrap();
    let words = [
        "run", "-n", "2", "--trace", path, "--", "sh", "-c", script, &ring,
    ];
    let said = say(&words).expect(0);
    assert!(said.out.contains("the sum is right"), "{said:#?}");
    said.complains(&["writing the trace", "File too large"]);
    let _ = std::fs::remove_file(file);
}
