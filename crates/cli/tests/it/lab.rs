//! `portolan lab`, and `portolan run` in a lab. Needs root.

use std::fs;
use std::process::{Command, Stdio};

use crate::common::{
    Said, TestLab, finish, marked, moments, need_root, none_left, portolan, probe, read_until, say,
    start, traces,
};
use rustix::process::{Pid, Signal, kill_process};

/// Sends a datagram from one host to another and awaits the answer.
fn talk(lab: &TestLab, from: &str, to: &str, address: &str) -> Said {
    let mut hears = portolan(&["lab", "exec", lab.0, to, "--", &probe(), "hear", address])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    read_until(&mut hears, "bound", 1);
    let said = lab.exec(from, &[&probe(), "say", address, "1"]);
    drop(hears.stdin.take());
    hears.wait().unwrap();
    said
}

fn address(lab: &TestLab, host: usize, kind: &str) -> String {
    let said = say(&["lab", "status", lab.0, "--json"]).expect(0);
    let about: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    about["labs"][0]["hosts"][host][kind]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn hosts_reach_each_other_by_name_and_nothing_is_left() {
    let lab = TestLab::up("t-reach", "3");
    for kind in ["ipv4", "ipv6"] {
        let to = address(&lab, 1, kind);
        assert_eq!(
            talk(&lab, "h0", "h1", &to).expect(0).out,
            "answer hello\n",
            "{kind}"
        );
        let known = lab.exec("h2", &["getent", "ahosts", "h1"]).expect(0);
        assert!(known.out.contains(&to), "{known:#?}");
    }
    let script = "cat /proc/sys/kernel/hostname; ls /sys/class/net; pwd";
    let said = lab.exec("h2", &["sh", "-c", script]).expect(0);
    let here = std::env::current_dir().unwrap();
    assert_eq!(said.out, format!("h2\neth0\nlo\n{}\n", here.display()));
    lab.exec("h0", &["sh", "-c", "exit 9"]).expect(9);
    lab.exec("h0", &["no-such-program"]).expect(127);
    lab.exec("h3", &["true"])
        .expect(2)
        .complains(&["no host h3", "h0 to h2"]);
    assert!(!traces(lab.0).is_empty());
    say(&["lab", "down", lab.0]).expect(0);
    assert_eq!(traces(lab.0), Vec::<String>::new());
    assert!(!lab.exec("h0", &["true"]).err.is_empty());
}

#[test]
fn labs_live_side_by_side() {
    let one = TestLab::up("t-side", "2");
    // Its name begins with the other's, and one of its hosts' too.
    let two = TestLab::up(format!("{}-h0", one.0).leak(), "2");
    let (a, b) = (address(&one, 1, "ipv4"), address(&two, 1, "ipv4"));
    assert_ne!(a, b);
    assert_eq!(talk(&one, "h0", "h1", &a).expect(0).out, "answer hello\n");
    assert_eq!(talk(&two, "h0", "h1", &b).expect(0).out, "answer hello\n");
    let labs = TestLab::status_of(&["lab", "list", "--json"]);
    // In one shape with what `status` tells of each.
    let listed = labs["labs"].as_array().unwrap();
    let listed = listed.iter().find(|lab| lab["name"] == one.0).unwrap();
    let status = one.status();
    for key in ["mtu", "queues", "switches", "ready"] {
        assert_eq!(listed[key], status[key], "{key}");
    }
    for key in ["name", "namespace", "ipv4", "ipv6", "mac"] {
        assert_eq!(listed["hosts"][1][key], status["hosts"][1][key], "{key}");
    }
    let names: Vec<&str> = labs["labs"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|lab| lab["name"].as_str())
        .collect();
    assert!(
        names.contains(&one.0) && names.contains(&two.0),
        "{names:?}"
    );
    // One that is damaged, or on its way down, hides no other.
    let switch = format!("ptl-{}-sw", one.0);
    let gone = Command::new("ip")
        .args(["netns", "delete", &switch])
        .status();
    assert!(gone.unwrap().success());
    say(&["lab", "status", one.0])
        .expect(1)
        .complains(&["No such file"]);
    let all = say(&["lab", "status"]).expect(0).out;
    let line = |name: &str| {
        all.lines()
            .any(|line| line.starts_with(&format!("lab {name}: ")))
    };
    assert!(
        line(one.0) && line(two.0) && all.contains("No such file"),
        "{all}"
    );
    let all = TestLab::status_of(&["lab", "status", "--json"]);
    let of = |name: &str| {
        let labs = all["labs"].as_array().unwrap();
        labs.iter().find(|lab| lab["name"] == name).unwrap().clone()
    };
    assert!(
        of(one.0)["error"].is_string() && of(two.0).get("error").is_none(),
        "{all}"
    );
    let name = one.0;
    drop(one);
    assert_eq!(traces(name), Vec::<String>::new());
    assert_eq!(
        talk(&two, "h1", "h0", &address(&two, 0, "ipv6"))
            .expect(0)
            .out,
        "answer hello\n"
    );
}

#[test]
fn a_second_up_finds_the_first() {
    let lab = TestLab::up("t-twice", "2");
    let before = fs::metadata(format!("/run/netns/ptl-{}-h0", lab.0)).unwrap();
    let said = say(&["lab", "up", lab.0, "--hosts", "2"]).expect(0);
    assert!(said.out.contains("was up already"), "{said:#?}");
    let after = fs::metadata(format!("/run/netns/ptl-{}-h0", lab.0)).unwrap();
    use std::os::unix::fs::MetadataExt;
    assert_eq!(before.ino(), after.ino());
    for other in [["--hosts", "3"], ["--mtu", "9000"]] {
        say(&[&["lab", "up", lab.0], &other[..]].concat())
            .expect(2)
            .complains(&[
                "is up with 2 hosts and MTU 1500",
                &format!("portolan lab down {}", lab.0),
            ]);
    }
    lab.exec("h1", &["true"]).expect(0);
}

#[test]
fn an_up_after_a_crash_works() {
    need_root();
    let lab = TestLab(TestLab::own("t-crash"));
    // Killed at ever later moments of its work.
    for (turn, delay) in moments().enumerate() {
        let mut child = start("crash", &["lab", "up", lab.0, "--hosts", "2"]);
        std::thread::sleep(delay);
        let _ = kill_process(
            Pid::from_raw(child.id().cast_signed()).unwrap(),
            Signal::KILL,
        );
        let ready = child.wait().unwrap().success();
        none_left("crash");
        if ready {
            break;
        }
        if turn % 2 == 0 {
            // Sometimes removed at once, sometimes built upon.
            say(&["lab", "down", lab.0]);
            assert_eq!(traces(lab.0), Vec::<String>::new());
        }
    }
    // A lab that lost a namespace is built again.
    say(&["lab", "up", lab.0, "--hosts", "2"]).expect(0);
    assert!(
        std::process::Command::new("umount")
            .arg(format!("/run/netns/ptl-{}-h1", lab.0))
            .status()
            .unwrap()
            .success()
    );
    let said = say(&["lab", "up", lab.0, "--hosts", "2"]).expect(0);
    assert!(said.out.contains("is up"), "{said:#?}");
    assert_eq!(
        talk(&lab, "h0", "h1", &address(&lab, 1, "ipv4"))
            .expect(0)
            .out,
        "answer hello\n"
    );
}

#[test]
fn down_ends_the_processes_within() {
    let lab = TestLab::up("t-within", "1");
    let mut child = start(
        "within",
        &[
            "lab",
            "exec",
            lab.0,
            "h0",
            "--",
            "sh",
            "-c",
            "trap '' TERM; echo on; while :; do sleep 1; done",
        ],
    );
    read_until(&mut child, "on", 1);
    say(&["lab", "down", lab.0]).expect(0);
    assert!(finish(child).code < 0);
    none_left("within");
    assert_eq!(traces(lab.0), Vec::<String>::new());
}

#[test]
fn a_rank_that_gets_no_answer_says_so() {
    let lab = TestLab::up("t-mute", "2");
    say(&["lab", "impair", lab.0, "--loss", "100"]).expect(0);
    let ring = crate::common::example("ring");
    let job = [
        "run",
        "-n",
        "2",
        "--lab",
        lab.0,
        "--timeout",
        "6",
        "--",
        &ring,
        "3",
    ];
    say(&job)
        .expect(124)
        .complains(&["no answer from rank", "firewall"]);
}

#[test]
fn loss_is_seeded_and_counted() {
    let lab = TestLab::up("t-loss", "2");
    let to = address(&lab, 1, "ipv4");
    let lose = |percent: &str, seed: &str| {
        say(&["lab", "impair", lab.0, "--loss", percent, "--seed", seed]).expect(0);
        lab.exec("h0", &[&probe(), "say", &to, "2000"]).expect(0);
        let said = say(&["lab", "status", lab.0, "--json"]).expect(0);
        let about: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        let count = |key: &str| about["labs"][0]["impaired"][key].as_u64().unwrap();
        (count("dropped"), count("passed"))
    };
    // The kernel's own packets may pass while the ports are being prepared.
    let (dropped, passed) = lose("100", "1");
    assert!(dropped > 0 && passed < 10, "{dropped} {passed}");
    let (dropped, passed) = lose("25", "7");
    // What arrives is answered by "nobody listens", a few times a second.
    assert!(dropped + passed >= 2000);
    let share = dropped as f64 / (dropped + passed) as f64;
    assert!((0.22..0.28).contains(&share), "{share}");
    say(&["lab", "impair", lab.0, "--loss", "0"]).expect(0);
    let said = say(&["lab", "status", lab.0]).expect(0);
    assert!(!said.out.contains("dropped"), "{said:#?}");
    assert_eq!(talk(&lab, "h0", "h1", &to).expect(0).out, "answer hello\n");
    say(&["lab", "impair", lab.0, "--loss", "120"])
        .expect(2)
        .complains(&["0 to 100"]);
    // Removed with the lab.
    say(&["lab", "impair", lab.0, "--loss", "5"]).expect(0);
    say(&["lab", "down", lab.0]).expect(0);
    assert_eq!(traces(lab.0), Vec::<String>::new());
}

#[test]
fn a_job_runs_on_the_hosts_of_a_lab_in_blocks() {
    let lab = TestLab::up("t-job", "2");
    let said = say(&["run", "-n", "4", "--lab", lab.0, "--", &probe(), "table"]).expect(0);
    said.has_table();
    let said = say(&["run", "-n", "1", "--lab", lab.0, "--", &probe(), "table"]).expect(0);
    assert!(said.out.contains("host 0 of 1"), "{said:#?}");
    say(&[
        "run", "-n", "2", "--lab", lab.0, "--link", "shm", "--", "true",
    ])
    .expect(2)
    .complains(&["does not reach other hosts", "--link udp"]);
    let run = ["run", "--lab", lab.0, "--hosts", "h1:2,h0"];
    let said = say(&[&run[..], &["--", "hostname"]].concat()).expect(0);
    assert_eq!(said.lines(), ["[0] h1", "[1] h1", "[2] h0"]);
    let run = ["run", "-n", "2", "--lab", lab.0, "--exclude", "h0"];
    let said = say(&[&run[..], &["--", "hostname"]].concat()).expect(0);
    assert_eq!(said.lines(), ["[0] h1", "[1] h1"]);
    say(&["run", "--lab", lab.0, "--hosts", "h7", "--", "true"])
        .expect(2)
        .complains(&["has no host h7"]);
    let mut child = start(
        "job",
        &["run", "-n", "4", "--lab", lab.0, "--", &probe(), "wait"],
    );
    read_until(&mut child, "waiting", 4);
    assert!(marked("job").len() >= 5);
    kill_process(
        Pid::from_raw(child.id().cast_signed()).unwrap(),
        Signal::KILL,
    )
    .unwrap();
    child.wait().unwrap();
    none_left("job");
}

#[test]
fn the_summary_tells_lanes_between_hosts() {
    need_root();
    let lab = TestLab::up("t-lanes", "2");
    let ring = crate::common::example("ring");
    let said = say(&["run", "-n", "3", "--lab", lab.0, "-v", "--", &ring, "3"]).expect(0);
    said.complains(&[
        "lanes of rank 0: shm to 1 (same host: shared memory); xdp to 2 (another host: host port on eth0)",
        "lanes of rank 2: xdp to 0-1 (another host: host port on eth0); others are told ",
    ]);
}

/// The file of a host's mount namespace is empty in other mount namespaces.
#[test]
fn a_lab_of_another_mount_namespace_is_told_as_such() {
    let lab = TestLab::up("t-mounts", "1");
    for job in [
        &["run", "-n", "1", "--lab", lab.0, "--", "true"][..],
        &["lab", "exec", lab.0, "h0", "--", "true"],
    ] {
        let own = portolan(job);
        let mut command = Command::new("unshare");
        command.arg("--mount").arg(own.get_program());
        let said = Said::from(command.args(own.get_args()).output().unwrap());
        said.expect(1).complains(&[
            "entering host h0 of lab",
            "made in another mount namespace",
            "run this where the lab was made",
        ]);
    }
}

#[test]
fn bad_input_is_refused() {
    need_root();
    let lab = |arguments: &[&str]| say(&[&["lab"], arguments].concat());
    lab(&["up", "t-bad", "--hosts", "0"])
        .expect(2)
        .complains(&["--hosts 1 to 250"]);
    lab(&["up", "t-bad", "--hosts", "1000000"])
        .expect(2)
        .complains(&["--hosts 1 to 250"]);
    lab(&["up", "t-bad", "--mtu", "100"])
        .expect(2)
        .complains(&["--mtu 1280"]);
    lab(&["up", "T/x"])
        .expect(2)
        .complains(&["cannot name a lab"]);
    lab(&["down", "t-bad"])
        .expect(2)
        .complains(&["lab t-bad does not exist"]);
    lab(&["exec", "t-bad", "h0", "--", "true"])
        .expect(2)
        .complains(&["does not exist"]);
    lab(&["status", "t-bad"])
        .expect(2)
        .complains(&["does not exist"]);
    lab(&["impair", "t-bad", "--loss", "1"])
        .expect(2)
        .complains(&["does not exist"]);
    assert_eq!(traces("t-bad"), Vec::<String>::new());
}

#[test]
fn without_root_the_remedy_is_named() {
    use std::os::unix::process::CommandExt;
    let lab = TestLab::up("t-user", "1");
    // Where every user may execute it.
    let copy = format!("/tmp/portolan-test-{}", std::process::id());
    fs::copy(env!("CARGO_BIN_EXE_portolan"), &copy).unwrap();
    let as_user = |arguments: &[&str]| {
        let mut command = std::process::Command::new(&copy);
        Said::from(
            command
                .args(arguments)
                .uid(65_534)
                .gid(65_534)
                .output()
                .unwrap(),
        )
    };
    let all: [&[&str]; 5] = [
        &["lab", "up", "t-other"],
        &["lab", "down", lab.0],
        &["lab", "impair", lab.0, "--loss", "1"],
        &["lab", "exec", lab.0, "h0", "--", "true"],
        &["run", "-n", "2", "--lab", lab.0, "--", "true"],
    ];
    for arguments in all {
        as_user(arguments).expect(1).complains(&["root (sudo)"]);
    }
    as_user(&["lab", "status", lab.0]).expect(0);
    as_user(&["run", "-n", "2", "--", "true"]).expect(0);
    fs::remove_file(copy).unwrap();
}
