//! Programs of MPI over the provider for libfabric when something goes wrong: packets are lost,
//! a cable is out, a rank is killed or stopped, and others share the machine. Needs root.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::common::mpi::{PYTHON, RING, TOOLS, job};
use crate::common::{
    Said, TestLab, finish, need_root, none_left, own_mark, shared_files, signal, static_library,
    until,
};
use rustix::process::Signal;

const ROUNDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mpi/rounds.py");

fn ring(mark: &str, options: &[&str], ranks: &str) {
    // One-sided communication by the provider's.
    let options = [options, &["-n", ranks, "-x", "OMPI_MCA_btl=^uct,openib"]].concat();
    let program = [PYTHON, RING, "one-sided"];
    let said = finish(job(mark, &options, &program).spawn().unwrap()).expect(0);
    assert_eq!(
        said.out,
        format!("{ranks} ranks: all is well\n"),
        "{said:#?}"
    );
}

/// A job that exchanges messages until it is told to end.
struct Rounds {
    job: Child,
    /// Ends it when it is there.
    file: String,
    /// The process of the last rank.
    last: u32,
}

impl Rounds {
    /// Starts it, and waits until messages go around.
    fn begin(mark: &str, options: &[&str]) -> Self {
        let file = format!("/tmp/portolan-{}", own_mark(mark));
        let mut job = job(mark, options, &[PYTHON, ROUNDS, &file])
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::with_capacity(1, job.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let Some(last) = line.trim().strip_prefix("begun by ") else {
            panic!("{line:?} {:#?}", finish(job));
        };
        let last = last.parse().unwrap();
        Self { job, file, last }
    }

    /// Ends it well.
    fn end(self) {
        fs::write(&self.file, "").unwrap();
        let said = finish(self.job).expect(0);
        fs::remove_file(&self.file).unwrap();
        assert!(said.out.contains("all is well"), "{said:#?}");
    }
}

#[test]
fn a_ring_goes_round_in_a_lab_and_with_more_ranks_than_cores() {
    let lab = TestLab::up(TestLab::own("t-mpi-ring"), "2");
    for link in ["udp", "xdp"] {
        ring("mpi-ring", &["--lab", lab.0, "--link", link], "4");
    }
    for link in ["shm", "udp"] {
        ring("mpi-ring", &["--link", link], "8");
    }
    none_left("mpi-ring");
}

#[test]
fn packets_are_lost_and_come_twice_and_late() {
    let lab = TestLab::up(TestLab::own("t-mpi-loss"), "2");
    let faults = ["--loss", "5", "--repeat", "5", "--reorder", "5"];
    crate::common::say(&[&["lab", "impair", lab.0], &faults[..]].concat()).expect(0);
    for link in ["udp", "xdp"] {
        ring("mpi-loss", &["--lab", lab.0, "--link", link], "4");
    }
}

#[test]
fn a_cable_is_out_and_a_rank_is_stopped_for_a_while() {
    let lab = TestLab::up(TestLab::own("t-mpi-cable"), "2");
    for link in ["udp", "xdp"] {
        let options = ["--lab", lab.0, "--link", link, "-n", "2"];
        let rounds = Rounds::begin("mpi-cable", &options);
        crate::common::say(&["lab", "link", lab.0, "h1", "down"]).expect(0);
        sleep(Duration::from_secs(1));
        crate::common::say(&["lab", "link", lab.0, "h1", "up"]).expect(0);
        rounds.end();
    }
    let options = ["--lab", lab.0, "--link", "udp", "-n", "2"];
    let far = Rounds::begin("mpi-stop-far", &options);
    let near = Rounds::begin("mpi-stop-near", &["-n", "2"]);
    for rounds in [&far, &near] {
        signal(rounds.last, Signal::STOP);
    }
    sleep(Duration::from_secs(10));
    for rounds in [far, near] {
        signal(rounds.last, Signal::CONT);
        rounds.end();
    }
}

#[test]
fn a_killed_rank_ends_its_job_and_nothing_stays() {
    let lab = TestLab::up(TestLab::own("t-mpi-kill"), "2");
    let mark = "mpi-kill";
    for options in [
        &["--link", "shm", "-n", "3"][..],
        &["--link", "udp", "-n", "3"],
        &["--link", "xdp", "-n", "4", "--lab", lab.0],
    ] {
        let rounds = Rounds::begin(mark, options);
        signal(rounds.last, Signal::KILL);
        let said: Said = finish(rounds.job);
        assert_ne!(said.code, 0, "{said:#?}");
        none_left(mark);
    }
    // Other tests of this program have some while they run.
    let left = || format!("left: {:?}", shared_files());
    until(left, || shared_files().is_empty());
    // Nobody is left who would answer on a host port.
    until(
        || "an XDP program stays".into(),
        || {
            ["h0", "h1"].iter().all(|host| {
                let said = lab.exec(host, &["ip", "link", "show", "eth0"]).expect(0);
                !said.out.contains("prog/xdp")
            })
        },
    );
}

/// A folder that everybody may read, removed when the test ends.
struct Open(PathBuf);

impl Drop for Open {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn jobs_of_two_users_run_at_once() {
    need_root();
    let open = Open(format!("/tmp/portolan-{}", own_mark("mpi-users")).into());
    fs::create_dir(&open.0).unwrap();
    for name in ["portolan", "libportolan-fi.so"] {
        fs::copy(TOOLS.join(name), open.0.join(name)).unwrap();
    }
    fs::copy(RING, open.0.join("ring.py")).unwrap();
    let theirs = Path::new("/tmp")
        .join(open.0.file_name().unwrap())
        .join("home");
    fs::create_dir(&theirs).unwrap();
    let give = Command::new("chown")
        .args(["-R", "nobody"])
        .arg(&open.0)
        .status();
    assert!(give.unwrap().success());
    for link in ["shm", "udp"] {
        let ours = [1, 2].map(|job| {
            let mark = format!("mpi-users-{job}");
            Rounds::begin(&mark, &["-n", "2", "--link", link])
        });
        let mut other = Command::new("setpriv");
        other
            .args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"])
            .arg(open.0.join("portolan"))
            .args(["run", "--mpi", "openmpi", "-n", "2", "--link", link, "--"])
            .arg(PYTHON)
            .arg(open.0.join("ring.py"))
            .env("HOME", &theirs)
            .env("TMPDIR", &theirs)
            .current_dir(&theirs)
            .stdin(Stdio::null());
        let said = Said::from(other.output().unwrap()).expect(0);
        assert_eq!(said.out, "2 ranks: all is well\n", "{said:#?}");
        for rounds in ours {
            rounds.end();
        }
    }
}

/// An endpoint by PMIx beside the provider's.
#[test]
fn a_native_job_and_mpi_are_in_one_process() {
    need_root();
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mpi-both");
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mpi/both.c");
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../portolan/include");
    let built = Command::new("mpicc.openmpi")
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"])
        .arg("-I")
        .arg(headers)
        .arg("-o")
        .arg(&program)
        .arg(tests)
        .arg(static_library())
        .args(["-lgcc_s", "-lpthread", "-lm", "-ldl"])
        .status();
    assert!(built.unwrap().success());
    for link in ["shm", "udp"] {
        let options = ["-n", "3", "--link", link];
        let job = job("mpi-both", &options, &[program.to_str().unwrap()]);
        let said = finish({ job }.spawn().unwrap()).expect(0);
        assert_eq!(said.out, "both are well\n", "{said:#?}");
    }
}
