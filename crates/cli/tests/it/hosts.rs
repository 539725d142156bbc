//! `portolan run --hosts` over a real sshd on the hosts of a lab. Needs root
//! and openssh-server.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::cluster::{Cluster, PORT, User};
use crate::common::{
    Said, example, executable, finish, keeper_of, none_left, portolan, probe, read_until, signal,
};
use rustix::process::Signal;

#[test]
fn a_job_runs_across_hosts_that_ssh_reaches() {
    let cluster = Cluster::up("t-ssh");
    let said = cluster
        .run(&["--hosts", "h0:2,h1:2", "--", &probe(), "table"])
        .expect(0);
    said.has_table();
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
            "lanes of rank 0: shm to 1 (same host: shared memory); xdp to 2 (another host: host port on eth0)",
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
    // The first address of h1 becomes one that h0 cannot reach: ranks take the
    // one by which ssh came.
    let own = cluster.lab.exec("h1", &["getent", "ahostsv4", "h1"]).out;
    let own = format!("{}/24", own.split(' ').next().unwrap());
    let script = format!(
        "ip addr add 203.0.113.9/32 dev eth0 && ip addr del {own} dev eth0 && \
         ip addr add {own} dev eth0 && ip -4 -brief addr show dev eth0"
    );
    let said = cluster.lab.exec("h1", &["sh", "-c", &script]).expect(0);
    assert!(said.out.contains("203.0.113.9/32 10."), "{said:#?}");
    let job = ["--hosts", "h0,h1", "--timeout", "120", "--", &ring, "50"];
    let said = cluster.run(&job).expect(0);
    assert!(said.out.contains("the sum is right"), "{said:#?}");
    cluster.nothing_left();
}

#[test]
fn hosts_are_reached_through_others() {
    let cluster = Cluster::up("t-tree");
    // h2 starts h0, that h1, and that h2 again,
    // under its address.
    let own = cluster.lab.exec("h2", &["getent", "ahostsv4", "h2"]).out;
    let own = own.split(' ').next().unwrap();
    let hosts = format!("h0:1,h1:2,{own}:1");
    let tree = ["--fan-out", "1", "--hosts", &hosts];
    let job = |program: &[&str]| cluster.run(&[&tree[..], &["--"], program].concat());
    let said = job(&[&example("ring"), "50"]).expect(0);
    assert!(said.out.contains("4 ranks") && said.out.contains("the sum is right"));
    assert_eq!(said.err, "");
    let said = job(&["hostname"]).expect(0);
    for line in ["[0] h0", "[1] h1", "[2] h1", "[3] h2"] {
        assert!(said.lines().contains(&line), "{line} {said:#?}");
    }
    // The code of one at the end of the tree, which the others are told.
    let script = "[ $(hostname) = h2 ] && exit 9; exec sleep 100";
    job(&["sh", "-c", script])
        .expect(9)
        .complains(&["rank 3 (process"]);
    // Much output from the end of the tree.
    let said = job(&["sh", "-c", "[ $(hostname) = h2 ] && seq 300000; true"]).expect(0);
    assert_eq!(said.out.lines().count(), 300_000);
    cluster.nothing_left();
    // An agent in the middle takes those behind it along.
    let probe = probe();
    let wait = [&tree[..], &["--", &probe, "wait"]].concat();
    let mut child = cluster.start("hosts-tree", &wait);
    read_until(&mut child, "waiting", 4);
    signal(cluster.agent("h0"), Signal::KILL);
    finish(child)
        .expect(1)
        .complains(&["host h0 is lost", "host h1: the host through which"]);
    cluster.nothing_left();
    let mut child = cluster.start("hosts-tree", &wait);
    read_until(&mut child, "waiting", 4);
    signal(child.id(), Signal::KILL);
    child.wait().unwrap();
    cluster.nothing_left();
    // Who is missing, and from where it was looked for.
    let tree = ["--fan-out", "1", "--hosts", "h0,h1,nowhere.invalid", "--"];
    cluster
        .run(&[&tree[..], &["true"]].concat())
        .expect(1)
        .complains(&["from host h1", "nowhere.invalid is not known", "--fan-out"]);
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
    signal(child.id(), Signal::KILL);
    child.wait().unwrap();
    cluster.nothing_left();
    // An agent: the launcher says so and ends the rest.
    let mut child = cluster.start("hosts-agent", &job);
    read_until(&mut child, "secret", 3);
    signal(cluster.agent("h1"), Signal::KILL);
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
    signal(child.id(), Signal::INT);
    finish(child).expect(130).complains(&["interrupted"]);
    cluster.nothing_left();
}

#[test]
fn silent_agents_and_hosts_hold_nobody_up() {
    let cluster = Cluster::up("t-silent");
    let probe = probe();
    let job = ["--hosts", "h0:2,h1:1", "--", &probe, "wait"];
    // An agent that is stopped is as good as gone.
    let mut child = cluster.start("hosts-stop", &job);
    read_until(&mut child, "waiting", 3);
    let agent = cluster.agent("h1");
    signal(agent, Signal::STOP);
    signal(child.id(), Signal::INT);
    let said = finish(child).expect(130);
    said.complains(&["host h1", "nothing was heard of it for 2.5 s"]);
    signal(agent, Signal::CONT);
    cluster.nothing_left();
    // A host that vanishes. Its agent gives up too.
    let hasty = [&["--host-silence", "1000"], &job[..]].concat();
    let mut child = cluster.start("hosts-vanish", &hasty);
    read_until(&mut child, "waiting", 3);
    let down = ["ip", "link", "set", "eth0", "down"];
    cluster.lab.exec("h1", &down).expect(0);
    let said = finish(child).expect(1);
    let silent = "host h1: nothing was heard of it for 1.0 s";
    said.complains(&[silent, "rank 2", "the loss of its host"]);
    cluster.nothing_left();
}

#[test]
fn each_failure_has_cause_and_remedy() {
    let cluster = Cluster::up("t-fail");
    let fails_with = |config: &str, more: &[&str], program: &[&str], code, parts: &[&str]| {
        let job = [more, &["--hosts", "h0,h1", "--"], program].concat();
        let said = cluster.run_from("h2", config, &job).expect(code);
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
    let list = format!("h0,{silent}");
    cluster
        .run(&["--hosts", &list, "--", "true"])
        .expect(1)
        .complains(&[&silent, "does not answer"]);
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
        let script = format!("[ $(hostname) = h1 ] && {{ {on_h1}; exit; }}\nexec {real} \"$@\"");
        executable(format!("{prefix}/bin/portolan"), &script);
    };
    let hello =
        r#"J{"Hello":{"versions":{"portolan":"9.8.7","boot":10,"wire":1},"aes":true,"ip":null}}"#;
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
    let job = ["--prefix", &prefix, "--hosts", "h0,h1", "--", "true"];
    let mut child = cluster.start("hosts-wait", &job);
    while !cluster.has_agent("h0") {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
    }
    signal(child.id(), Signal::INT);
    finish(child)
        .expect(130)
        .complains(&["before all hosts had answered"]);
    cluster.nothing_left();
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
        let ssh = cluster.ssh_of(user);
        let prefix = cluster.path("prefix");
        // Rank 0 waits for a word; the others have opened their sockets.
        let script = format!("id -u; read word; exec {ring} 100");
        let there = ["lab", "exec", cluster.lab.0, "h2", "--"];
        let job = [
            &binary,
            "run",
            "--ssh",
            &ssh,
            "--prefix",
            &prefix,
            "--connect-timeout",
            "120",
            "--hosts",
            "h0:2,h1:2",
            "--",
            "sh",
            "-c",
            &script,
        ];
        portolan(&[&there[..], &user.becomes(), &job].concat())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut jobs = users.each_ref().map(start_as);
    // All ranks of both run at once.
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
    // Agents know all keys of their job.
    for host in ["h0", "h1"] {
        let mut keepers: Vec<u32> = cluster.agents(host).into_iter().map(keeper_of).collect();
        keepers.sort_unstable();
        let mut all = users.each_ref().map(|user| user.ids().0);
        all.sort_unstable();
        assert_eq!(keepers, all, "{host}");
    }
    // One user sends to every socket of both.
    for (host, sockets) in [("h0", 2), ("h1", 4)] {
        let script = format!(
            "for i in 1 2 3 4 5; do for port in {}; do head -c 300 /dev/urandom \
             > /dev/udp/{host}/$port; done; done",
            cluster.udp_ports(host, sockets).join(" ")
        );
        let junk = [&users[1].becomes()[..], &["bash", "-c", &script]].concat();
        cluster.lab.exec("h2", &junk).expect(0);
    }
    for (mut job, mut output) in jobs.into_iter().zip(outputs) {
        writeln!(job.stdin.take().unwrap(), "go").unwrap();
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

/// The folder of all users, as far as a test has made it.
struct SystemFolder;

impl Drop for SystemFolder {
    fn drop(&mut self) {
        for folder in ["/etc/portolan/tuned.d", "/etc/portolan"] {
            let _ = fs::remove_dir(folder);
        }
    }
}

#[test]
fn hosts_that_ssh_reaches_are_tuned_for_all_their_users() {
    let _folder = SystemFolder;
    let cluster = Cluster::up("t-ssh-tune");
    // Their names are no other host's.
    let files = ["h0", "h1"].map(|host| {
        let name = format!("{host}.{}-udp.conf", cluster.lab.0);
        Path::new("/etc/portolan/tuned.d").join(name)
    });
    let at = ["--hosts", "h0,h1", "--link", "udp", "--system"];
    let said = cluster
        .tune(&[&at[..], &["--rounds", "1"]].concat())
        .expect(0);
    for file in &files {
        let kept = format!("kept in {}", file.display());
        assert!(said.out.contains(&kept), "{said:#?}");
        let text = fs::read_to_string(file).unwrap();
        assert!(text.contains("link udp, 2 ranks"), "{text}");
    }
    let doctor = [env!("CARGO_BIN_EXE_portolan"), "doctor"];
    let unset = ["env", "-u", "PORTOLAN_TUNED"];
    let said = cluster.lab.exec("h1", &[&unset[..], &doctor].concat());
    let path = files[1].to_str().unwrap();
    assert!(said.out.contains(path), "{said:#?}");
    let said = cluster.tune(&[&at[..], &["--forget"]].concat()).expect(0);
    assert!(said.out.contains("removed"), "{said:#?}");
    assert!(files.iter().all(|file| !file.exists()));
    cluster.nothing_left();
}
