//! Jobs that another launcher starts: mpiexec.hydra (of mpich) on one host
//! and on hosts of a lab, Slurm's srun, and a PMI server of the test's own.
//! Needs root for the labs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::cluster::Cluster;
use crate::common::guests::{AGENT, ENDED, Folder, RIGHT, as_words, programs, wrapper};
use crate::common::pmi::PmiServer;
use crate::common::slurm::Slurm;
use crate::common::{
    CLOSES_LATE, LIMIT, Said, example, finish, keeper_of, marked, none_left, until,
};
use rustix::process::Signal;

fn hydra(words: &[&str]) -> Command {
    let program = "/usr/bin/mpiexec.hydra";
    assert!(
        Path::new(program).exists(),
        "{program} is missing: install mpich, as `make test` does"
    );
    let mut command = Command::new("timeout");
    command
        .args([LIMIT, program])
        .args(words)
        .env(CLOSES_LATE.0, CLOSES_LATE.1)
        .stdin(Stdio::null());
    command
}

fn run(command: &mut Command) -> Said {
    Said::from(command.output().unwrap())
}

#[test]
fn hydra_starts_jobs_on_one_host() {
    for (program, says) in programs() {
        // Each link alone, so that it is known which one it was.
        for link in ["shm", "udp"] {
            let words = [&["-n", "4"], &as_words(&program)[..]].concat();
            let said = run(hydra(&words).env("PORTOLAN_LINK", link)).expect(0);
            assert!(said.out.contains(says), "{program:?} {link} {said:#?}");
            assert_eq!(said.err, "");
        }
    }
    let ring = example("ring");
    let job = |settings: &[(&str, &str)], words: &[&str]| {
        let words = [words, &[&ring, "50"]].concat();
        let said = run(hydra(&words).envs(settings.iter().copied())).expect(0);
        assert!(said.out.contains(RIGHT), "{said:#?}");
        said
    };
    job(&[], &["-n", "1"]);
    job(&[], &["-pmi-port", "-n", "3"]);
    job(&[AGENT], &["-n", "3"]);
    let udp = ("PORTOLAN_LINK", "udp");
    job(
        &[udp, ("PORTOLAN_SUITE", "chacha20-poly1305")],
        &["-n", "3"],
    );
    job(&[udp, ("PORTOLAN_SECURITY", "none")], &["-n", "3"]);
    job(&[udp, ("PORTOLAN_ADDRESS", "127.0.0.1")], &["-n", "3"]);
    // Without watching processes, which shared memory needs.
    job(&[("PORTOLAN_DISABLE", "pidfd")], &["-n", "3"]);
    // More processes than cores; and our own launcher as one.
    job(&[], &["-n", "12"]);
    let said = job(
        &[],
        &["-n", "1", env!("CARGO_BIN_EXE_portolan"), "run", "-n", "2"],
    );
    assert!(said.out.contains("over 2 ranks"), "{said:#?}");
}

#[test]
fn what_does_not_fit_together_is_told() {
    let folder = Folder::new("fit");
    // Hydra drops what processes said last when it ends a job.
    let errors = folder.0.join("errors");
    let ring = wrapper(&folder.0.join("ring"), &example("ring"), &errors);
    let fails = |settings: &[(&str, &str)], words: &[&str], parts: &[&str]| {
        let mut said = run(hydra(words).envs(settings.iter().copied()));
        assert_ne!(said.code, 0, "{said:#?}");
        said.err = fs::read_to_string(&errors).unwrap();
        said.complains(parts);
        fs::remove_file(&errors).unwrap();
    };
    let one_else = |name, value| ["-n", "1", "-env", name, value, &ring, ":", "-n", "1", &ring];
    fails(
        &[],
        &one_else("PORTOLAN_SECURITY", "none"),
        &[
            "setting security is ",
            "give all ranks the same (PORTOLAN_SECURITY)",
        ],
    );
    fails(
        &[("PORTOLAN_JOIN_MS", "500")],
        &["-n", "1", &ring, ":", "-n", "1", "sleep", LIMIT],
        &["within 0.5 s", "join_ms"],
    );
    fails(
        &[("PORTOLAN_LINK", "tcp")],
        &["-n", "2", &ring],
        &["setting link (environment) is \"tcp\": give auto, shm or udp"],
    );
    fails(
        &[("PORTOLAN_ADDRESS", "203.0.113.7")],
        &["-n", "2", &ring],
        &["203.0.113.7, and no interface of this host"],
    );
    let [ours, theirs] = ["ours", "theirs"].map(|name| secret_file(&folder.0.join(name), name));
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o644)).unwrap();
    let name = "PORTOLAN_JOB_SECRET_FILE";
    fails(
        &[(name, &theirs)],
        &["-n", "2", &ring],
        &["(mode 0644)", "chmod 600"],
    );
    fails(
        &[],
        &one_else(name, &ours),
        &["setting job_secret_file is "],
    );
    // Different ones: nobody hears anybody.
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o600)).unwrap();
    fails(
        &[
            (name, &ours),
            ("PORTOLAN_LINK", "udp"),
            ("PORTOLAN_JOIN_MS", "4000"),
        ],
        &one_else(name, &theirs),
        &["it never answered", "the same secret"],
    );
}

/// Writes a file for a job's secret that holds `word` many times.
fn secret_file(path: &Path, word: &str) -> String {
    fs::write(path, word.repeat(20)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Three processes that a PMI server joins and that go on for ever.
fn pmi_job(mark: &str, settings: &[(&str, &str)]) -> (PmiServer, [Child; 3]) {
    let server = PmiServer::start(3);
    let all = [0, 1, 2].map(|rank| {
        let mut command = Command::new(example("ring"));
        command.arg("100000000").envs(settings.iter().copied());
        server.spawn(rank, mark, &mut command)
    });
    let all_have_joined = || server.heard().len() == 6;
    until(|| format!("{:?}", server.heard()), all_have_joined);
    sleep(Duration::from_millis(300));
    (server, all)
}

/// Kills the last of the ranks; what the others say then. One hears of it, the
/// other of that one or of the dead.
fn said_of_death([first, second, mut dead]: [Child; 3]) -> String {
    dead.kill().unwrap();
    dead.wait().unwrap();
    let said = [first, second].map(|child| finish(child).expect(1).err);
    said.concat()
}

#[test]
fn listeners_see_public_keys_only_and_the_dead_are_noticed() {
    let folder = Folder::new("dead");
    let word = "sesame";
    let file = secret_file(&folder.0.join("secret"), word);
    let hex: String = word.bytes().map(|byte| format!("{byte:02x}")).collect();
    for link in ["shm", "udp"] {
        let mark = format!("guest-{link}");
        let set = [("PORTOLAN_LINK", link), ("PORTOLAN_JOB_SECRET_FILE", &file)];
        let (server, all) = pmi_job(&mark, &set);
        for pid in marked(&mark) {
            for part in ["cmdline", "environ"] {
                let text = fs::read(format!("/proc/{pid}/{part}")).unwrap();
                let text = String::from_utf8_lossy(&text);
                assert!(
                    !text.contains(word) && !text.contains(&hex),
                    "{part} {text}"
                );
            }
        }
        // A card and an address each; of the address's bytes all but the key
        // are known: version and form, port, IP address, host, shares memory.
        let heard = server.heard();
        let mut keys = Vec::new();
        for rank in 0..3 {
            let card = &heard[&format!("ptl-card-{rank}")];
            assert!(card.starts_with("50544c47") && card.len() < 1000, "{card}");
            let address = &heard[&format!("ptl-address-{rank}")];
            assert_eq!(address.len(), 130);
            assert!(address.starts_with("0101"), "{address}");
            let shares = if link == "shm" { "01" } else { "00" };
            assert_eq!(address[120..], format!("00000000{shares}"));
            keys.push(address[40..104].to_owned());
        }
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 3);
        assert!(heard.values().all(|value| !value.contains(&hex)));
        // A death, which no launcher tells of. It is seen at once, not by the
        // silence, which would be another reason.
        let said = said_of_death(all);
        assert!(said.contains("rank 2 is dead: its process ended"), "{said}");
        none_left(&mark);
    }
}

#[test]
fn hydra_starts_jobs_across_hosts() {
    let cluster = Cluster::up("t-gh");
    let ssh = cluster.ssh();
    let job = |settings: &[&str], program: &[&str]| {
        let before = ["lab", "exec", cluster.lab.0, "h2", "--", "env"];
        let hydra = ["timeout", LIMIT, "mpiexec.hydra", "-launcher", "ssh"];
        let hosts = [
            "-launcher-exec",
            &ssh,
            "-hosts",
            "h0,h1",
            "-ppn",
            "2",
            "-n",
            "4",
        ];
        crate::common::say(&[&before[..], settings, &hydra, &hosts, program].concat())
    };
    for (program, says) in programs() {
        let said = job(&[], &as_words(&program)).expect(0);
        assert!(said.out.contains(says), "{program:?} {said:#?}");
    }
    let ring = example("ring");
    let agent = format!("{}={}", AGENT.0, AGENT.1);
    let said = job(&[&agent, "PORTOLAN_ADDRESS=::/0"], &[&ring, "50"]).expect(0);
    assert!(said.out.contains(RIGHT), "{said:#?}");
    let said = job(&["PORTOLAN_LINK=shm"], &[&ring, "50"]);
    assert_ne!(said.code, 0);
    said.complains(&["--link shm needs all ranks on one host"]);
    // Both hosts have a network of their own under the same addresses, and the
    // first address of h1 is one that h0 cannot reach.
    for host in ["h0", "h1"] {
        let script = "ip link add own0 type bridge && ip addr add 10.0.0.1/8 dev own0 && \
                      ip link set own0 up";
        cluster.lab.exec(host, &["sh", "-c", script]).expect(0);
    }
    let script = "ip addr add 203.0.113.9/32 dev lo";
    cluster.lab.exec("h1", &["sh", "-c", script]).expect(0);
    let said = job(&[], &[&ring, "50"]).expect(0);
    assert!(said.out.contains(RIGHT), "{said:#?}");
    cluster.nothing_left();
}

#[test]
fn srun_starts_jobs() {
    let slurm = Slurm::up("t-gs");
    for (program, says) in programs() {
        let words = [&["-N2", "-n4"], &as_words(&program)[..]].concat();
        let said = slurm.srun("pmi2", &words).expect(0);
        assert!(said.out.contains(says), "{program:?} {said:#?}");
    }
    let ring = example("ring");
    let said = slurm.srun(
        "pmi2",
        &["-N1", "-n3", "--export=ALL,PORTOLAN_LINK=shm", &ring, "50"],
    );
    assert!(said.expect(0).out.contains("over 3 ranks"));
    // Who dies is noticed, though srun ends nobody.
    let folder = Folder::new("srun");
    let errors = folder.0.join("errors");
    let ring = wrapper(&folder.0.join("ring"), &ring, &errors);
    let script = format!("[ $SLURM_PROCID = 1 ] && (sleep 1; kill -9 $$) & exec {ring} 100000000");
    let mark = "guest-srun";
    let with_agent = format!(
        "--export=ALL,{}={},{}={}",
        AGENT.0,
        AGENT.1,
        crate::common::MARK,
        crate::common::own_mark(mark)
    );
    for (nodes, export, how) in [
        ("-N1", "--export=ALL,PORTOLAN_AGENT=", &ENDED[..1]),
        (
            "-N2",
            "--export=ALL,PORTOLAN_AGENT=",
            &["it stopped answering"],
        ),
        ("-N1", &with_agent, &ENDED),
        ("-N2", &with_agent, &ENDED),
    ] {
        let _ = fs::remove_file(&errors);
        let said = slurm.srun("pmi2", &[nodes, "-n2", export, "sh", "-c", &script]);
        assert_ne!(said.code, 0);
        let errors = fs::read_to_string(&errors).unwrap();
        let death = errors.lines().find(|line| line.contains("rank 1 is dead"));
        assert!(
            death.is_some_and(|death| how.iter().any(|how| death.contains(how))),
            "{nodes} {export} {said:#?} {errors}"
        );
    }
    none_left(mark);
    // One that is stopped for longer than a peer may be silent goes on.
    let stopped = format!(
        "[ $SLURM_PROCID = 1 ] && (sleep 1; kill -STOP $$; sleep 4.5; kill -CONT $$) & \
         exec {} 100000",
        example("ring")
    );
    let start = Instant::now();
    let said = slurm.srun("pmi2", &["-N2", "-n2", &with_agent, "sh", "-c", &stopped]);
    assert!(said.expect(0).out.contains(RIGHT));
    let took = start.elapsed();
    assert!(took > Duration::from_millis(5_500), "not stopped: {took:?}");
    none_left(mark);
}

#[test]
fn an_agent_runs_beside_its_processes_and_ends_with_them() {
    for (link, agent_dies) in [("udp", false), ("shm", true)] {
        let mark = format!("guest-agent-{link}");
        let (server, all) = pmi_job(&mark, &[("PORTOLAN_LINK", link), AGENT]);
        let ranks = all.each_ref().map(Child::id);
        // The first process tells where its agent is, the others nothing.
        let heard = server.heard();
        let lengths = [0, 1, 2].map(|rank| heard[&format!("ptl-address-{rank}")].len());
        assert_eq!(lengths, [130 + 2 * 34, 130, 130]);
        let agents: Vec<u32> = marked(&mark)
            .into_iter()
            .filter(|pid| !ranks.contains(pid))
            .collect();
        let [agent] = agents[..] else {
            panic!("{agents:?}");
        };
        // It holds nothing of the process that ran it, which has no child.
        for entry in fs::read_dir(format!("/proc/{agent}/fd")).unwrap() {
            let target = fs::read_link(entry.unwrap().path()).unwrap_or_default();
            assert!(!target.to_string_lossy().starts_with("pipe:"), "{target:?}");
        }
        for rank in ranks {
            let children = fs::read_to_string(format!("/proc/{rank}/task/{rank}/children"));
            assert_eq!(children.unwrap_or_default(), "");
        }
        if agent_dies {
            crate::common::signal(agent, Signal::KILL);
            sleep(Duration::from_millis(300));
        }
        let said = said_of_death(all);
        let death = said.lines().find(|line| line.contains("rank 2 is dead"));
        let is_end = |death: &str| ENDED.iter().any(|how| death.contains(how));
        assert!(death.is_some_and(is_end), "{said}");
        none_left(&mark);
    }
}

#[test]
fn an_agent_is_kept_from_its_own_user() {
    /// A user that has nothing.
    const USER: u32 = 4711;
    crate::common::need_root();
    let folder = Folder::new("kept");
    // Where every user may execute them.
    let copy = |from: &str, to: &str| {
        let to = folder.0.join(to);
        fs::copy(from, &to).unwrap();
        to.to_str().unwrap().to_owned()
    };
    let ring = copy(&example("ring"), "ring");
    let agent = copy(AGENT.1, "portolan");
    let mark = "guest-kept";
    let server = PmiServer::start(2);
    let all = [0, 1].map(|rank| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &USER.to_string(), "--clear-groups"]);
        command.args([&ring, "100000000"]).env(AGENT.0, &agent);
        server.spawn(rank, mark, command.current_dir("/"))
    });
    let ranks = all.each_ref().map(Child::id);
    let agents = || -> Vec<u32> {
        let others = marked(mark).into_iter().filter(|pid| !ranks.contains(pid));
        let is_agent = |pid: &u32| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.contains("internal-agent")
        };
        others.filter(is_agent).collect()
    };
    let joined = || server.heard().len() == 4 && agents().len() == 1;
    until(|| format!("{:?} {:?}", server.heard(), agents()), joined);
    assert_eq!(keeper_of(agents()[0]), USER);
    for mut rank in all {
        rank.kill().unwrap();
        rank.wait().unwrap();
    }
    none_left(mark);
}
