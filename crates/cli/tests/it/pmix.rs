//! Jobs of launchers that offer PMIx: Open MPI's mpirun on one host and on hosts
//! of a lab, Slurm's `srun --mpi=pmix`; and libraries in the place of
//! `libpmix.so.2` that hang, lack something or tell of deaths. Needs root for the
//! labs.

use std::fs;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::cluster::Cluster;
use crate::common::guests::{AGENT, ENDED, Folder, RIGHT, as_words, programs, wrapper};
use crate::common::pmi::PmiServer;
use crate::common::slurm::Slurm;
use crate::common::{
    CLOSES_LATE, LIMIT, MARK, Said, example, finish, marked, none_left, own_mark, shared_files,
    until,
};
use portolan_sys::pmix::abi;

/// Where Debian's libpmix-dev has its headers.
const HEADERS: &str = "/usr/lib/x86_64-linux-gnu/pmix2/include";
/// What mpirun asks of root, and of more processes than cores.
const MPIRUN: [&str; 3] = [
    "/usr/bin/mpirun.openmpi",
    "--allow-run-as-root",
    "--oversubscribe",
];

fn mpirun(words: &[&str]) -> Command {
    assert!(
        Path::new(MPIRUN[0]).exists(),
        "{} is missing: install openmpi-bin, as `make test` does",
        MPIRUN[0]
    );
    let mut command = Command::new("timeout");
    command
        .arg(LIMIT)
        .args(MPIRUN)
        .args(words)
        .env(CLOSES_LATE.0, CLOSES_LATE.1)
        .stdin(Stdio::null());
    command
}

fn run(command: &mut Command) -> Said {
    Said::from(command.output().unwrap())
}

/// Compiles one of the C files beside this one.
fn compile(source: &str, words: &[&str], to: &Path) {
    assert!(
        Path::new(HEADERS).join("pmix.h").exists(),
        "{HEADERS}/pmix.h is missing: install libpmix-dev, as `make test` does"
    );
    let source = format!("{}/tests/pmix/{source}", env!("CARGO_MANIFEST_DIR"));
    let built = Command::new("cc")
        .args(["-std=gnu99", "-Wall", "-Wextra", "-Werror"])
        .args(["-isystem", HEADERS, "-o"])
        .arg(to)
        .arg(&source)
        .args(words)
        .status();
    assert!(built.unwrap().success(), "{source}");
}

/// A folder with a library in the place of `libpmix.so.2`.
fn stand_in(folder: &Folder, name: &str, version: &str, more: &[&str]) -> PathBuf {
    let at = folder.0.join(name);
    fs::create_dir(&at).unwrap();
    let version = format!("-DVERSION=\"{version}\"");
    let words = [&["-shared", "-fPIC", &version][..], more].concat();
    compile("library.c", &words, &at.join("libpmix.so.2"));
    at
}

#[test]
fn declarations_are_those_of_the_installed_header() {
    let folder = Folder::new("layout");
    let program = folder.0.join("layout");
    compile("layout.c", &["-lpmix"], &program);
    let said = run(&mut Command::new(&program)).expect(0);
    let number = |name: &str, value: i64| format!("{name} {value}\n");
    let place = |name: &str, value: usize| number(name, value.try_into().unwrap());
    let ours = [
        place("proc", size_of::<abi::Proc>()),
        place("proc.rank", offset_of!(abi::Proc, rank)),
        place("value", size_of::<abi::Value>()),
        place("value.kind bytes", size_of_val(&abi::KIND_BOOL)),
        place("value.data", offset_of!(abi::Value, data)),
        place("value.data.string", offset_of!(abi::Value, data.string)),
        place("value.data.proc", offset_of!(abi::Value, data.proc)),
        place("info", size_of::<abi::Info>()),
        place("info.flags", offset_of!(abi::Info, flags)),
        place("info.value", offset_of!(abi::Info, value)),
        number("PMIX_RANK_WILDCARD", abi::RANK_WILDCARD.into()),
        number("PMIX_GLOBAL", abi::SCOPE_GLOBAL.into()),
        number("PMIX_SUCCESS", abi::SUCCESS.into()),
        number("PMIX_ERR_TYPE_MISMATCH", abi::ERR_TYPE_MISMATCH.into()),
        number(
            "PMIX_ERR_PROC_TERM_WO_SYNC",
            abi::ERR_PROC_TERM_WO_SYNC.into(),
        ),
        number(
            "PMIX_ERR_PROC_KILLED_BY_CMD",
            abi::ERR_PROC_KILLED_BY_CMD.into(),
        ),
        number(
            "PMIX_ERR_PROC_ABORTED_BY_SIG",
            abi::ERR_PROC_ABORTED_BY_SIG.into(),
        ),
        number(
            "PMIX_EVENT_ACTION_COMPLETE",
            abi::EVENT_ACTION_COMPLETE.into(),
        ),
        number("PMIX_BOOL", abi::KIND_BOOL.into()),
        number("PMIX_STRING", abi::KIND_STRING.into()),
        number("PMIX_UINT32", abi::KIND_UINT32.into()),
        number("PMIX_PROC", abi::KIND_PROC.into()),
        format!("PMIX_JOB_SIZE {}\n", abi::JOB_SIZE),
        format!("PMIX_COLLECT_DATA {}\n", abi::COLLECT_DATA),
        format!("PMIX_EVENT_AFFECTED_PROC {}\n", abi::EVENT_AFFECTED_PROC),
    ];
    assert_eq!(said.out, ours.concat());
}

#[test]
fn mpirun_starts_jobs_on_one_host() {
    let mark = "pmix-mpirun";
    for (program, says) in programs() {
        // Each link alone, so that it is known which one it was.
        for link in ["shm", "udp"] {
            let words = [&["-n", "4"], &as_words(&program)[..]].concat();
            let mut job = mpirun(&words);
            job.env("PORTOLAN_LINK", link).env(MARK, own_mark(mark));
            let said = run(&mut job).expect(0);
            assert!(said.out.contains(says), "{program:?} {link} {said:#?}");
            assert_eq!(said.err, "");
        }
    }
    let ring = example("ring");
    let job = |settings: &[(&str, &str)], words: &[&str]| {
        let words = [words, &[&ring, "50"]].concat();
        let mut job = mpirun(&words);
        let said = run(job.envs(settings.iter().copied()).env(MARK, own_mark(mark))).expect(0);
        assert!(said.out.contains(RIGHT), "{said:#?}");
        said
    };
    job(&[], &["-n", "1"]);
    job(&[AGENT], &["-n", "3"]);
    // Two programs are one job; more processes than cores.
    job(&[], &["-n", "1", &ring, "50", ":", "-n", "2"]);
    job(&[], &["-n", "12"]);
    // Our own launcher as one of the processes.
    let said = job(
        &[],
        &["-n", "1", env!("CARGO_BIN_EXE_portolan"), "run", "-n", "2"],
    );
    assert!(said.out.contains("over 2 ranks"), "{said:#?}");
    none_left(mark);
    assert_eq!(shared_files(), Vec::<PathBuf>::new());
}

#[test]
fn of_several_launchers_the_last_one_counts() {
    let ring = example("ring");
    let over = |said: Said, ranks: &str| assert!(said.expect(0).out.contains(ranks));
    // What a launcher before mpirun has left, whose descriptor is closed.
    let left = [("PMI_FD", "99"), ("PMI_RANK", "0"), ("PMI_SIZE", "5")];
    let said = run(mpirun(&["-n", "3", &ring, "50"]).envs(left));
    over(said, "over 3 ranks");
    let words = [&["-n", "1"], &MPIRUN[..], &["-n", "3", &ring, "50"]].concat();
    let hydra = "/usr/bin/mpiexec.hydra";
    over(run(Command::new(hydra).args(&words)), "over 3 ranks");
    let inner = ["-n", "1", hydra, "-n", "3", &ring, "50"];
    over(run(&mut mpirun(&inner)), "over 3 ranks");
    // PMI by a port goes before PMIx, whose server is not even there.
    let server = PmiServer::start(2);
    let all = [0, 1].map(|rank| {
        let mut command = Command::new(&ring);
        command.args(["50"]);
        command.env("PMIX_NAMESPACE", "gone").env("PMIX_RANK", "0");
        server.spawn(rank, "pmix-port", &mut command)
    });
    let [first, second] = all.map(|child| finish(child).expect(0));
    assert!(first.out.contains("over 2 ranks"), "{first:#?} {second:#?}");
}

#[test]
fn a_death_under_mpirun_is_noticed() {
    let folder = Folder::new("mpirun");
    let errors = folder.0.join("errors");
    let ring = wrapper(&folder.0.join("ring"), &example("ring"), &errors);
    let script = format!("[ $PMIX_RANK = 1 ] && (sleep 1; kill -9 $$) & exec {ring} 100000000");
    let mark = "pmix-dead";
    for agent in [("PORTOLAN_AGENT", ""), AGENT] {
        for link in ["shm", "udp"] {
            let _ = fs::remove_file(&errors);
            // Without --enable-recovery mpirun ends the others before they speak.
            let words = ["--enable-recovery", "-n", "3", "sh", "-c", &script];
            let mut job = mpirun(&words);
            job.env("PORTOLAN_LINK", link).env(agent.0, agent.1);
            let said = run(job.env(MARK, own_mark(mark)));
            let errors = fs::read_to_string(&errors).unwrap_or_default();
            let death = errors.lines().find(|line| line.contains("rank 1 is dead"));
            assert!(
                death.is_some_and(|death| ENDED.iter().any(|how| death.contains(how))),
                "{agent:?} {link} {said:#?} {errors}"
            );
            none_left(mark);
        }
    }
    // With mpirun's own way the job ends as well, and nothing stays.
    let said = run(mpirun(&["-n", "3", "sh", "-c", &script]).env(MARK, own_mark(mark)));
    assert_ne!(said.code, 0, "{said:#?}");
    none_left(mark);
    assert_eq!(shared_files(), Vec::<PathBuf>::new());
}

#[test]
fn who_loses_mpirun_ends() {
    let mark = "pmix-lost";
    let mut job = Command::new(MPIRUN[0]);
    job.args(&MPIRUN[1..])
        .args(["-n", "3", &example("ring"), "100000000"]);
    job.env(MARK, own_mark(mark)).env(AGENT.0, AGENT.1);
    job.stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut job = job.spawn().unwrap();
    // mpirun, three ranks, and their agent.
    let running = || marked(mark).len() == 5;
    until(|| format!("{:?}", marked(mark)), running);
    sleep(Duration::from_millis(500));
    job.kill().unwrap();
    job.wait().unwrap();
    none_left(mark);
}

/// A process that finds the library in `folder`.
fn alone(folder: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args([LIMIT, &example("ring"), "10"]);
    command.env("PMIX_NAMESPACE", "job").env("PMIX_RANK", "0");
    command.env("LD_LIBRARY_PATH", folder).stdin(Stdio::null());
    command
}

#[test]
fn libraries_that_do_not_fit_are_told() {
    let folder = Folder::new("library");
    let fails = |at: &Path, set: &[(&str, &str)], parts: &[&str]| {
        let mut command = alone(at);
        let start = Instant::now();
        run(command.envs(set.iter().copied()))
            .expect(1)
            .complains(parts);
        start.elapsed()
    };
    let hangs = stand_in(&folder, "hangs", "OpenPMIx 4.2.2", &["-DHANGS"]);
    let waits = ["libpmix.so.2 has not returned within", "LD_LIBRARY_PATH"];
    let also = |part| [&waits[..], &["join_ms", part]].concat();
    let took = fails(&hangs, &[], &also("within 10 s"));
    assert!(took >= Duration::from_secs(10), "{took:?}");
    let soon = [("PORTOLAN_JOIN_MS", "300")];
    let took = fails(&hangs, &soon, &also("within 0.3 s"));
    assert!(took >= Duration::from_millis(300), "{took:?}");
    let lacks = stand_in(&folder, "lacks", "OpenPMIx 4.2.2", &["-DLACKS"]);
    fails(&lacks, &[], &["has no PMIx_Put", "install", "libpmix2"]);
    for version in ["OpenPMIx 3.2.3", "OpenPMIx 6.0.0", "PMIx"] {
        let other = stand_in(&folder, version, version, &[]);
        let says = format!("says that it is {version:?}");
        fails(&other, &[], &[&says, "versions 4 and 5", "libpmix2"]);
    }
    // As where there is none, but for the loader's words.
    let none = folder.0.join("none");
    fs::create_dir(&none).unwrap();
    fs::write(none.join("libpmix.so.2"), "").unwrap();
    let parts = ["cannot be loaded", "install Debian's package libpmix2"];
    fails(&none, &[], &parts);
    // The installed one, without a launcher; and half of what a launcher says.
    let installed = folder.0.join("installed");
    let parts = ["unset PMIX_NAMESPACE", "is the launcher still there"];
    fails(&installed, &[], &parts);
    let mut half = alone(&installed);
    run(half.env_remove("PMIX_RANK"))
        .expect(1)
        .complains(&["PMIX_RANK is not set", "to run alone"]);
    // Another process that does not come.
    let ring = example("ring");
    let words = ["-n", "1", &ring, "50", ":", "-n", "1", "sleep", LIMIT];
    let said = run(mpirun(&words).env("PORTOLAN_JOIN_MS", "500"));
    assert_ne!(said.code, 0);
    said.complains(&["within 0.5 s", "join_ms"]);
}

#[test]
fn deaths_that_the_library_tells_of_are_known() {
    let folder = Folder::new("events");
    let library = stand_in(&folder, "works", "OpenPMIx 5.0.1, by hand", &[]);
    let mark = "pmix-events";
    let mut all: Vec<Child> = (0..3)
        .map(|rank: u32| {
            let mut command = Command::new(example("ring"));
            command.arg("100000000").env("LD_LIBRARY_PATH", &library);
            command
                .env("PMIX_TEST_FOLDER", &folder.0)
                .env("PMIX_TEST_SIZE", "3")
                .env("PMIX_NAMESPACE", "job")
                .env("PMIX_RANK", rank.to_string());
            // Nobody else tells: no agent, and no watch over processes.
            command
                .env("PORTOLAN_AGENT", "")
                .env("PORTOLAN_DISABLE", "pidfd")
                .env("PORTOLAN_LINK", "udp")
                .env("PORTOLAN_SILENCE_MS", "600000")
                .env(MARK, own_mark(mark));
            let command = command.stdin(Stdio::null());
            let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    let at = |name: &str| folder.0.join(name).exists();
    let joined = || (0..3).all(|rank| at(&format!("fence-2-{rank}")));
    until(|| format!("{:?}", fs::read_dir(&folder.0)), joined);
    let mut dead = all.pop().unwrap();
    dead.kill().unwrap();
    dead.wait().unwrap();
    fs::write(folder.0.join("dead-2"), "").unwrap();
    let said: Vec<Said> = all.into_iter().map(|it| finish(it).expect(1)).collect();
    let told = said
        .iter()
        .any(|it| it.err.contains("rank 2 is dead: its process ended"));
    assert!(told, "{said:#?}");
    assert!(at("heard-foreign") && at("heard-own"));
    none_left(mark);
}

#[test]
fn mpirun_starts_jobs_across_hosts() {
    let cluster = Cluster::up("t-px");
    let ssh = cluster.ssh();
    let agent = format!("{}={}", AGENT.0, AGENT.1);
    let job = |settings: &[&str], program: &[&str]| {
        let before = ["lab", "exec", cluster.lab.0, "h2", "--", "env"];
        let hosts = [
            &["timeout", LIMIT][..],
            &MPIRUN,
            &["--mca", "plm_rsh_agent", &ssh, "--host", "h0:2,h1:2"],
            &["-n", "4", "-x", "PORTOLAN_AGENT", "-x", "PORTOLAN_ADDRESS"],
        ];
        crate::common::say(&[&before[..], settings, &hosts.concat(), program].concat())
    };
    for (program, says) in programs() {
        for agent in ["PORTOLAN_AGENT=", &agent] {
            let settings = [agent, "PORTOLAN_ADDRESS="];
            let said = job(&settings, &as_words(&program)).expect(0);
            assert!(said.out.contains(says), "{program:?} {said:#?}");
        }
    }
    cluster.nothing_left();
}

#[test]
fn srun_starts_jobs_by_pmix() {
    let slurm = Slurm::up("t-ps");
    let list = slurm.command(&["srun", "--mpi=list"]);
    let list = format!("{}{}", list.out, list.err);
    assert!(
        list.contains("pmix"),
        "Slurm has no plugin for PMIx: install slurm-wlm-basic-plugins and libpmix2: {list}"
    );
    for (program, says) in programs() {
        let words = [&["-N2", "-n4"], &as_words(&program)[..]].concat();
        let said = slurm.srun("pmix", &words);
        assert!(
            said.out.contains(says),
            "{program:?} {said:#?} {}",
            slurm.logs()
        );
    }
    let ring = example("ring");
    let shm = "--export=ALL,PORTOLAN_LINK=shm";
    let said = slurm.srun("pmix", &["-N1", "-n3", shm, &ring, "50"]);
    assert!(said.expect(0).out.contains("over 3 ranks"));
    // Slurm ends the step when a process dies; who is quick has heard it before.
    let script = format!("[ $PMIX_RANK = 1 ] && (sleep 1; kill -9 $$) & exec {ring} 100000000");
    let mark = "pmix-srun";
    let export = format!("--export=ALL,{MARK}={}", own_mark(mark));
    for nodes in ["-N1", "-N2"] {
        let said = slurm.srun("pmix", &[nodes, "-n2", &export, "sh", "-c", &script]);
        assert_ne!(said.code, 0, "{said:#?}");
        none_left(mark);
    }
    assert_eq!(shared_files(), Vec::<PathBuf>::new());
}
