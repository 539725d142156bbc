//! Jobs over host ports, between hosts of a lab. Needs root.

use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use crate::common::{
    Rounds, TestLab, example, finish, none_left, portolan, read_until, say, signal, start, until,
};
use rustix::process::Signal;
use serde_json::Value;

const RIGHT: &str = "the sum is right";

/// What `ip` says of a host's interface.
fn link(lab: &TestLab, host: &str) -> String {
    lab.exec(host, &["ip", "link", "show", "eth0"])
        .expect(0)
        .out
}

/// Waits until programs are attached to both hosts' interfaces, or none is.
fn await_programs(lab: &TestLab, wanted: bool) {
    let links = || ["h0", "h1"].map(|host| link(lab, host));
    let all = || {
        links()
            .iter()
            .all(|link| link.contains("prog/xdp") == wanted)
    };
    until(|| format!("{:?}", links()), all);
}

#[test]
fn too_little_lockable_memory_is_named_with_its_limit() {
    let lab = TestLab::up("t-xdp-locked", "2");
    // Root may lock all that it likes, unless it may not.
    let script = "ulimit -l 0 && exec setpriv --bounding-set=-ipc_lock \"$0\" \"$@\"";
    let job = ["run", "-n", "2", "--lab", lab.0, "--link", "xdp", "--"];
    let ring = example("ring");
    let job = [&job[..], &[&ring, "10"]].concat();
    let output = std::process::Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_portolan")])
        .args(job)
        .output();
    crate::common::Said::from(output.unwrap())
        .expect(1)
        .complains(&["may not be locked in memory", "ulimit -l"]);
}

#[test]
fn ranks_with_and_without_a_host_port_talk() {
    let lab = TestLab::up("t-xdp-mix", "2");
    let ring = example("ring");
    // Two ranks on each host; the last does not use its own.
    let words = ["run", "-v", "--lab", lab.0, "-n", "3", &ring, "300"];
    let last = [":", "-n", "1", "env", "PORTOLAN_DISABLE=xdp", &ring, "300"];
    let said = say(&[&words[..], &last].concat()).expect(0).complains(&[
        "lanes of rank 0: shm to 1 (same host: shared memory); \
             xdp to 2-3 (another host: host port on eth0)",
        "lanes of rank 3: udp to 0-1 (another host; no host port: xdp is switched off); \
             shm to 2 (same host: shared memory)",
    ]);
    assert!(said.out.contains(RIGHT), "{said:#?}");
    // Nothing stays on the interface.
    assert!(!link(&lab, "h0").contains("prog/xdp"));
    // One of two may do without; the other must not.
    let off = |link: &str| {
        let words = ["run", "-v", "-n", "2", "--lab", lab.0, "--link", link];
        let words = [&words[..], &["--", &ring, "30"]].concat();
        crate::common::Said::from(
            portolan(&words)
                .env("PORTOLAN_DISABLE", "xdp")
                .output()
                .unwrap(),
        )
    };
    off("auto")
        .expect(0)
        .complains(&["udp to 1 (another host; no host port: xdp is switched off)"]);
    off("xdp").expect(1).complains(&[
        "link xdp: there is no host port: xdp is switched off",
        "link auto does without",
    ]);
}

#[test]
fn all_ranks_of_a_host_share_its_queue() {
    let lab = TestLab::up("t-xdp-share", "2");
    let ring = example("ring");
    let words = [
        "run", "-v", "-n", "8", "--lab", lab.0, "--link", "xdp", "--", &ring,
    ];
    let mut job = start("xdp-share", &[&words[..], &["6000"]].concat());
    // Whoever is stopped may hold what the others need, and they go on.
    let is_rank = |pid: &u32| {
        let exe = std::fs::read_link(format!("/proc/{pid}/exe"));
        exe.is_ok_and(|exe| exe.ends_with("ring"))
    };
    let ranks = || {
        crate::common::marked("xdp-share")
            .into_iter()
            .filter(is_rank)
    };
    until(|| "not all ranks".into(), || ranks().count() == 8);
    for rank in ranks().collect::<Vec<_>>() {
        signal(rank, Signal::STOP);
        sleep(Duration::from_millis(15));
        signal(rank, Signal::CONT);
    }
    assert!(job.try_wait().unwrap().is_none(), "it has ended too soon");
    let said = finish(job).expect(0).complains(&[
        "lanes of rank 3: udp to 0-2 (same host, but the job asks for xdp: through the kernel); \
         xdp to 4-7 (another host: host port on eth0)",
        "xdp to 0-3 (another host: host port on eth0)",
    ]);
    assert!(said.out.contains(RIGHT), "{said:#?}");
    none_left("xdp-share");
    assert!(!link(&lab, "h0").contains("prog/xdp"));
}

/// Runs a program to whom the kernel refuses the rings that ranks share, as
/// Linux before 6.4 does once they are bound: mmap beyond 4 GiB of a descriptor.
const REFUSE_RINGS: &str = r#"
    my @filter = ([0x20, 0, 0, 0], [0x15, 0, 3, 9], [0x20, 0, 0, 60], [0x15, 0, 1, 1],
                  [6, 0, 0, 0x50010], [6, 0, 0, 0x7fff0000]);
    my $filter = join "", map { pack "SCCL", @$_ } @filter;
    my $program = pack "S x6 P", scalar @filter, $filter;
    syscall(157, 38, 1, 0, 0, 0) == 0 and syscall(317, 1, 0, $program) == 0 or die "$!";
    exec @ARGV or die "$!";
"#;

/// System calls have these numbers on x86-64 only.
#[cfg(target_arch = "x86_64")]
#[test]
fn who_cannot_map_its_rings_goes_on_by_udp_and_the_others_past_the_kernel() {
    let lab = TestLab::up("t-xdp-map", "3");
    let ring = example("ring");
    for disabled in ["", "remap"] {
        let run = |link: &str, expected: i32| {
            let words = [
                "run", "-v", "--lab", lab.0, "--link", link, "-n", "2", &ring,
            ];
            let last = [":", "-n", "1", "perl", "-e", REFUSE_RINGS, &ring];
            let words = [&words[..], &["300"], &last[..], &["300"]].concat();
            let mut command = portolan(&words);
            command.env("PORTOLAN_DISABLE", disabled);
            crate::common::Said::from(command.output().unwrap()).expect(expected)
        };
        let said = run("auto", 0).complains(&[
            "lanes of rank 0: xdp to 1-2 (another host: host port on eth0)",
            "lanes of rank 2: udp to 0-1 (another host; no host port: host port: the kernel maps \
             no rings",
        ]);
        assert!(said.out.contains(RIGHT), "{said:#?}");
        run("xdp", 1).complains(&["link xdp: there is no host port: host port: the kernel"]);
    }
}

#[test]
fn sockets_are_bound_once_all_ranks_have_mapped_their_rings() {
    let lab = TestLab::up("t-xdp-order", "2");
    let ring = example("ring");
    let words = [
        "run", "-v", "--lab", lab.0, "--link", "xdp", "-n", "6", "--",
    ];
    let run = |program: &[&str]| {
        let words = [&words[..], program].concat();
        let mut command = portolan(&words);
        command.env("PORTOLAN_DISABLE", "remap");
        crate::common::Said::from(command.output().unwrap())
    };
    let said = run(&[&ring, "300"]).expect(0);
    assert!(said.out.contains(RIGHT), "{said:#?}");
    said.complains(&["xdp to 3-5 (another host: host port on eth0)"]);
    assert!(!link(&lab, "h0").contains("prog/xdp"));
}

#[test]
fn everything_else_goes_on_beside_a_host_port() {
    let lab = TestLab::up("t-xdp-rest", "2");
    let ring = example("ring");
    let words = [
        "run", "-n", "2", "--lab", lab.0, "--link", "xdp", "--", &ring,
    ];
    let mut job = start("xdp-rest", &[&words[..], &["100000000"]].concat());
    await_programs(&lab, true);
    let hosts = say(&["lab", "status", lab.0, "--json"]).expect(0).out;
    let hosts: serde_json::Value = serde_json::from_str(&hosts).unwrap();
    let ip = |host: usize| {
        hosts["labs"][0]["hosts"][host]["ipv4"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    // TCP and UDP of others, both ways, by bash alone.
    let listen = format!(
        "until exec 3<>/dev/tcp/{}/7007; do sleep 0.05; done 2>/dev/null; \
         echo hello >&3 && read -r -u 3 line && echo got $line",
        ip(1)
    );
    let serve = "$s = IO::Socket::INET->new(Listen => 1, LocalPort => 7007, ReuseAddr => 1) \
                 or die; $c = $s->accept; print $c scalar <$c>";
    let words = [
        "lab",
        "exec",
        lab.0,
        "h1",
        "--",
        "perl",
        "-MIO::Socket::INET",
        "-e",
        serve,
    ];
    let server = portolan(&words).spawn();
    let mut server = server.unwrap();
    let said = lab.exec("h0", &["bash", "-c", &listen]).expect(0);
    assert_eq!(said.out, "got hello\n");
    server.wait().unwrap();
    assert!(job.try_wait().unwrap().is_none(), "the job has ended");
    signal(job.id(), Signal::TERM);
    finish(job);
    none_left("xdp-rest");
}

#[test]
fn a_second_job_on_the_same_interface_does_without() {
    let lab = TestLab::up("t-xdp-two", "2");
    let ring = example("ring");
    let words = ["run", "-v", "-n", "2", "--lab", lab.0, "--"];
    let first = ["sh", "-c", "echo ready; exec \"$0\" 100000000", &ring];
    let mut job = start("xdp-two", &[&words[..], &first].concat());
    read_until(&mut job, "ready", 2);
    await_programs(&lab, true);
    let said = say(&[&words[..], &[&ring, "100"]].concat()).expect(0);
    assert!(said.out.contains(RIGHT), "{said:#?}");
    said.complains(&[
        "udp to 1 (another host; no host port: no XDP program can be attached to eth0",
        "busy",
    ]);
    // The first has kept its own.
    assert!(job.try_wait().unwrap().is_none(), "the job has ended");
    assert!(link(&lab, "h0").contains("prog/xdp"));
    signal(job.id(), Signal::TERM);
    let said = finish(job);
    said.complains(&["xdp to 1 (another host: host port on eth0)"]);
    none_left("xdp-two");
}

#[test]
fn an_interface_that_goes_down_and_up_loses_nothing() {
    let lab = TestLab::up("t-xdp-down", "2");
    let rounds = Rounds::new("xdp-down");
    let Rounds { program, file } = &rounds;
    let words = ["run", "-v", "-n", "2", "--lab", lab.0, "--link", "xdp"];
    let mut job = start("xdp-down", &[&words[..], &["--", program, file]].concat());
    let id = crate::common::job_id(&mut job);
    let is_fast =
        |rank: &serde_json::Value| rank["counters"]["fast_packets_received"].as_u64() > Some(100);
    let both_are = || {
        let ranks = crate::common::ranks(&["--once", &id]);
        ranks.len() == 2 && ranks.iter().all(is_fast)
    };
    until(|| "no packet came by the fast path".into(), both_are);
    for _ in 0..2 {
        lab.exec("h1", &["ip", "link", "set", "eth0", "down"])
            .expect(0);
        sleep(Duration::from_millis(700));
        lab.exec("h1", &["ip", "link", "set", "eth0", "up"])
            .expect(0);
        sleep(Duration::from_millis(300));
    }
    rounds.end(job);
    none_left("xdp-down");
}

#[test]
fn packets_find_the_queue_of_a_host_port() {
    // By chance one flow in eight has found it already, and all four only once
    // in 4,096 times.
    let lab = TestLab::with("t-xdp-queues", &["--hosts", "4", "--queues", "8"]);
    let ring = example("ring");
    let words = ["run", "-v", "-n", "4", "--lab", lab.0, "--link", "xdp"];
    let mut job = start(
        "xdp-queues",
        &[&words[..], &["--", &ring, "100000000"]].concat(),
    );
    let id = crate::common::job_id(&mut job);
    // How many packets of each rank came by its queue, and how many by others.
    let arrived = || -> Vec<[u64; 2]> {
        let ranks = crate::common::ranks(&["--once", &id]);
        let count = |rank: &serde_json::Value, name| rank["counters"][name].as_u64();
        let both = |rank| {
            let names = ["fast_packets_received", "passed_other_queue"];
            names.map(|name| count(rank, name).unwrap_or_default())
        };
        ranks.iter().map(both).collect()
    };
    let mut before = arrived();
    let all_find_it = || {
        sleep(Duration::from_millis(300));
        let now = arrived();
        let found = |(now, before): (&[u64; 2], &[u64; 2])| {
            let [fast, other] = [0, 1].map(|i| now[i] - before[i]);
            fast > 100 && other * 20 < fast
        };
        let all = now.len() == 4 && before.len() == 4 && now.iter().zip(&before).all(found);
        before = now;
        all
    };
    until(|| format!("{:?}", arrived()), all_find_it);
    signal(job.id(), Signal::TERM);
    finish(job);
    none_left("xdp-queues");
}

#[test]
fn a_rank_whose_interface_is_down_at_first_joins_when_it_is_up() {
    let lab = TestLab::up("t-xdp-late", "2");
    let ring = example("ring");
    lab.exec("h1", &["ip", "link", "set", "eth0", "down"])
        .expect(0);
    for link in ["auto", "udp"] {
        let words = ["run", "-n", "2", "--lab", lab.0, "--link", link, "--"];
        let job = start("xdp-late", &[&words[..], &[&ring, "2000"]].concat());
        sleep(Duration::from_millis(700));
        let set = |to: &str| lab.exec("h1", &["ip", "link", "set", "eth0", to]).expect(0);
        set("up");
        let said = finish(job).expect(0);
        assert!(said.out.contains(RIGHT), "{link} {said:#?}");
        set("down");
    }
    none_left("xdp-late");
}

/// What a job of two ranks that exchange rows of 8,000 bytes says at its end,
/// and how many bytes the packets that each took past the kernel had on average,
/// once both send packets of up to `max` bytes.
fn exchange_rows(lab: &TestLab, disabled: &str, max: u64) -> (String, Vec<u64>) {
    let words = ["run", "-v", "-n", "2", "--lab", lab.0, "--link", "xdp"];
    let heat = example("heat");
    let words = [&words[..], &["--", &heat, "1000", "1000000"]].concat();
    let job = portolan(&words)
        .env(crate::common::MARK, crate::common::own_mark("xdp-long"))
        .env("PORTOLAN_DISABLE", disabled)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut job = job.unwrap();
    let id = crate::common::job_id(&mut job);
    let largest = |rank: &Value| rank["state"]["xdp_path"][0]["packet_max"].as_u64();
    let now = || crate::common::ranks(&["--dump", &id]);
    let both_have = || {
        let now = now();
        now.len() == 2 && now.iter().all(|rank| largest(rank) == Some(max))
    };
    until(|| format!("{:#?}", now()), both_have);
    let taken = || {
        let names = ["fast_packets_received", "fast_packet_bytes_received"];
        let count = |rank: &Value| names.map(|name| rank["counters"][name].as_u64().unwrap());
        let ranks = crate::common::ranks(&["--once", &id]);
        ranks.iter().map(count).collect::<Vec<_>>()
    };
    let before = taken();
    let more = |(now, before): (&[u64; 2], &[u64; 2])| now[0] > before[0] + 100;
    let both_took = || taken().iter().zip(&before).all(more);
    until(|| format!("{before:?}, then {:?}", taken()), both_took);
    let means = taken().into_iter().zip(before);
    let means = means.map(|(now, before)| (now[1] - before[1]) / (now[0] - before[0]).max(1));
    let means = means.collect();
    signal(job.id(), Signal::TERM);
    let said = finish(job).err;
    none_left("xdp-long");
    (said, means)
}

#[test]
fn packets_longer_than_a_chunk_go_past_the_kernel() {
    const IN_ONE: u64 = 3_826;
    let lab = TestLab::with("t-xdp-long", &["--mtu", "9000"]);
    let (said, means) = exchange_rows(&lab, "", 9_000 - 48);
    assert!(means.iter().any(|mean| *mean > IN_ONE), "{means:?}");
    assert!(said.contains("host port on eth0)"), "{said}");
    // Where the kernel takes one buffer only.
    let (said, means) = exchange_rows(&lab, "multibuffer", IN_ONE - 48);
    assert!(
        means.iter().all(|mean| (1_000..IN_ONE).contains(mean)),
        "{means:?}"
    );
    let limit = "host port on eth0, packets of up to 3826 bytes)";
    assert!(said.contains(limit), "{said}");
    assert!(!link(&lab, "h0").contains("prog/xdp"));
}

#[test]
fn who_is_killed_leaves_the_interface_free() {
    let lab = TestLab::up("t-xdp-kill", "2");
    let ring = example("ring");
    let words = [
        "run", "-v", "-n", "2", "--lab", lab.0, "--link", "xdp", "--",
    ];
    for rank in [false, true] {
        let wait = [
            &words[..],
            &["sh", "-c", "echo ready; exec \"$0\" 100000000", &ring],
        ]
        .concat();
        let mut job = start("xdp-kill", &wait);
        read_until(&mut job, "ready", 2);
        await_programs(&lab, true);
        let victim = if rank {
            crate::common::marked("xdp-kill")
                .into_iter()
                .find(|pid| {
                    std::fs::read_link(format!("/proc/{pid}/exe"))
                        .is_ok_and(|exe| exe.ends_with("ring"))
                })
                .expect("a rank runs")
        } else {
            job.id()
        };
        signal(victim, Signal::KILL);
        finish(job);
        none_left("xdp-kill");
        await_programs(&lab, false);
        say(&[&words[..], &[&ring, "50"]].concat())
            .expect(0)
            .complains(&["xdp to 1 (another host: host port on eth0)"]);
    }
}
