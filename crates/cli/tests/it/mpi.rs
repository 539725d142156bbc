//! `portolan run --mpi` and `portolan bench mpi`: programs of Open MPI over the provider for
//! libfabric, on this host and on those of a lab. They need root, Debian's Open MPI and mpi4py.

use std::fs;
use std::path::Path;

use crate::common::figures::{check_rows, set, texts};
use crate::common::mpi::{portolan, say};
use crate::common::{Said, TestLab, executable, need_root};
use serde_json::Value;

/// The sum of all ranks' numbers, and a message around the ring longer than what is pushed.
const PROGRAM: &str = "
from mpi4py import MPI
all = MPI.COMM_WORLD
right, left = (all.rank + 1) % all.size, (all.rank - 1) % all.size
got = bytearray(300000)
all.Sendrecv(bytes([all.rank]) * len(got), right, recvbuf=got, source=left)
assert got == bytes([left]) * len(got)
print('sum %d on %s' % (all.allreduce(all.rank + 1), MPI.Get_processor_name()))
";

fn run(options: &[&str], ranks: &str) -> Said {
    let program = ["-n", ranks, "--", "/usr/bin/python3", "-c", PROGRAM];
    say(&[&["run", "--mpi", "openmpi"], options, &program].concat())
}

#[test]
fn a_program_runs_on_this_host() {
    need_root();
    for link in ["auto", "shm", "udp"] {
        let said = run(&["--link", link, "-v"], "3").expect(0);
        assert_eq!(said.out.matches("sum 6").count(), 3, "{link}: {said:?}");
        said.complains(&["FI_PROVIDER=portolan", "PORTOLAN_LINK=", "-n 3"]);
    }
}

#[test]
fn what_the_environment_says_counts_unless_it_leads_past_portolan() {
    need_root();
    let says = |options: &[&str]| {
        let job = ["run", "--mpi", "openmpi", "-v", "-n", "1"];
        let mut job = portolan(&[&job[..], options, &["--", "true"]].concat());
        job.envs([("OMPI_MCA_osc", "^sm"), ("OMPI_MCA_pml", "ob1")]);
        Said::from(job.output().unwrap()).expect(0)
    };
    let in_vain = "OMPI_MCA_pml does not count here: use -x OMPI_MCA_pml";
    let said = says(&[]);
    let said = said.complains(&["OMPI_MCA_osc=^sm\n", "OMPI_MCA_pml=cm\n", in_vain]);
    assert_eq!(said.err.matches("does not count").count(), 1, "{said:?}");
    let said = says(&["-x", "OMPI_MCA_pml"]).complains(&["OMPI_MCA_pml=ob1\n"]);
    assert!(!said.err.contains("does not count"), "{said:?}");
}

#[test]
fn a_program_runs_on_hosts_of_a_lab() {
    let lab = TestLab::up(TestLab::own("t-mpi"), "2");
    for link in ["udp", "xdp"] {
        let said = run(&["--lab", lab.0, "--link", link], "4").expect(0);
        for host in ["h0", "h1"] {
            let line = format!("sum 10 on {host}");
            assert_eq!(said.out.matches(&line).count(), 2, "{link}: {said:?}");
        }
    }
    // The launcher's exit code is that of the job.
    let fails = ["--lab", lab.0, "-n", "2", "--", "sh", "-c", "exit 7"];
    say(&[&["run", "--mpi", "openmpi"], &fails[..]].concat()).expect(7);
    run(&["--lab", lab.0, "--link", "shm"], "2")
        .expect(2)
        .complains(&["--link shm needs all ranks on one host"]);
}

/// Signal of who writes to a pipe or socket that nobody reads.
const SIGPIPE: i32 = 13;

/// Answers as Intel's launcher does, and prints the hosts of its machine file as ranks would.
const STANDS_FOR_INTEL: &str = r#"
[ "$1" = --version ] && echo "Intel(R) MPI Library, a stand-in" && exit
while [ $# -gt 0 ]; do
    case "$1" in
        -n) ranks=$2; shift ;;
        -machinefile) machines=$2; shift ;;
        -hosts) echo "a list of hosts"; exit 1 ;;
    esac
    shift
done
while IFS=: read -r host count; do
    i=0
    while [ $i -lt $count ]; do echo $host; i=$((i + 1)); done
done <$machines | head -n $ranks"#;

/// A folder for PATH: with what makes a launcher out of Debian's MPICH that is accepted, since
/// `hostname` needs no libfabric, and with a stand-in of Intel's where there is none.
fn launchers(mpi: &str) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("launchers-{mpi}"));
    fs::create_dir_all(&folder).unwrap();
    let hydra = folder.join("mpiexec.hydra");
    if mpi == "mpich" {
        executable(&hydra, "exec /usr/bin/mpiexec.hydra \"$@\"");
        executable(folder.join("mpichversion"), "echo MPICH Device: ch4:ofi");
    } else if mpi == "intel" {
        executable(&hydra, STANDS_FOR_INTEL);
    }
    folder.into_os_string().into_string().unwrap()
}

#[test]
fn each_mpi_puts_ranks_on_the_hosts_that_are_asked_for() {
    let lab = TestLab::up(TestLab::own("t-mpi-hosts"), "2");
    let path = std::env::var("PATH").unwrap();
    for mpi in ["openmpi", "mpich", "intel"] {
        let mut before = String::new();
        if mpi != "intel" || !has_intel() {
            before = launchers(mpi) + ":";
        }
        let cases: [(&[&str], &[&str]); 5] = [
            // Smaller than the slots, and equal; one host has more than its cores.
            (&["--hosts", "h0:2,h1:1", "-n", "2"], &["h0", "h0"]),
            (&["--hosts", "h0:2,h1:1", "-n", "3"], &["h0", "h0", "h1"]),
            (&["--hosts", "h0:1,h1:2"], &["h0", "h1", "h1"]),
            (
                &["--hosts", "h1:4,h0:1", "-n", "5"],
                &["h0", "h1", "h1", "h1", "h1"],
            ),
            // Without slots hosts have equal parts.
            (&["-n", "5"], &["h0", "h0", "h0", "h1", "h1"]),
        ];
        let run = |hosts: &[&str]| {
            let job = [&["run", "--mpi", mpi, "--lab", lab.0], hosts].concat();
            let mut job = portolan(&[&job[..], &["--", "hostname"]].concat());
            let job = job.env("PATH", format!("{before}{path}"));
            let mut tries = 0;
            loop {
                let said = Said::from(job.output().unwrap());
                tries += 1;
                // MPICH's launcher writes to the process that it has on each host. On a busy machine
                // that may have ended with its short program, and SIGPIPE ends the launcher: in 6 of
                // 298 runs.
                if said.code != -SIGPIPE || tries == 10 {
                    break said;
                }
            }
        };
        for (hosts, expected) in cases {
            let said = run(hosts).expect(0);
            let mut found: Vec<&str> = said.out.lines().collect();
            found.sort_unstable();
            assert_eq!(found, expected, "{mpi} {hosts:?}: {said:?}");
        }
        // Larger than the slots.
        let said = run(&["--hosts", "h0:2,h1:1", "-n", "4"]).expect(2);
        said.complains(&["4 ranks", "3 slots"]);
    }
}

/// Whether Intel's launcher is in PATH; says loudly where it is not.
fn has_intel() -> bool {
    let there = say(&["run", "--mpi", "intel", "-n", "1", "--", "true"]).code == 0;
    if !there {
        eprintln!(
            "*** INTEL MPI IS NOT IN PATH: ONLY ITS MACHINE FILE IS TESTED, BY A STAND-IN ***"
        );
    }
    there
}

#[test]
fn an_endpoint_that_cannot_be_opened_says_why() {
    need_root();
    // A network of documentation (RFC 5737): no host has it.
    let said = run(&["--set", "interface=203.0.113.1"], "1");
    assert_ne!(said.code, 0, "{said:?}");
    said.complains(&["endpoint cannot be opened", "203.0.113.1"]);
}

#[test]
fn a_peer_that_does_not_answer_is_named() {
    let lab = TestLab::up(TestLab::own("t-mpi-mute"), "2");
    // Each tells the other that it listens where only its own host sends to.
    let mute = ["--set", "interface=lo", "--set", "silence_ms=2000"];
    let said = run(
        &[&["--lab", lab.0, "--link", "udp"], &mute[..]].concat(),
        "2",
    );
    assert_ne!(said.code, 0, "{said:?}");
    said.complains(&["peer at 127.0.0.1", "is given up: it never answered"]);
}

#[test]
fn what_an_mpi_does_in_its_way_is_refused() {
    let cases: [(&[&str], i32, &str); 5] = [
        (&["--timeout", "3", "-n", "2", "--", "true"], 2, "--timeout"),
        (
            &["-n", "1", "--", "true", ":", "-n", "1", "true"],
            2,
            "one program",
        ),
        (&["--", "true"], 2, "how many ranks"),
        (&["-n", "2", "--", "/no/such/program"], 127, "not found"),
        (&["-n", "2", "--set", "frames=x", "--", "true"], 2, "frames"),
    ];
    for (arguments, code, words) in cases {
        let said = say(&[&["run", "--mpi", "openmpi"], arguments].concat());
        assert_eq!(said.code, code, "{arguments:?} {said:?}");
        said.complains(&[words]);
    }
    let mut none = portolan(&["run", "--mpi", "intel", "-n", "2", "--", "/bin/true"]);
    let said = Said::from(none.env("PATH", "/usr/bin:/bin").output().unwrap());
    said.expect(127)
        .complains(&["--mpi intel", "mpiexec.hydra"]);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("run-mpich");
    fs::create_dir_all(&folder).unwrap();
    executable(folder.join("mpiexec.hydra"), "echo HYDRA build details:");
    let path = format!("{}:/usr/bin:/bin", folder.display());
    let mut other = portolan(&["run", "--mpi", "intel", "-n", "2", "--", "/bin/true"]);
    let said = Said::from(other.env("PATH", &path).output().unwrap());
    said.expect(127)
        .complains(&["none of the launchers in PATH", "is that of Intel MPI"]);
    executable(folder.join("mpichversion"), "echo MPICH Device: ch4:ucx");
    let mut without = portolan(&["run", "--mpi", "mpich", "-n", "2", "--", "/bin/true"]);
    let said = Said::from(without.env("PATH", path).output().unwrap());
    said.expect(1)
        .complains(&["mpiexec.hydra", "without libfabric"]);
}

#[test]
fn a_bench_sets_mpi_beside_its_own_ways_and_ours() {
    need_root();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-mpi.json");
    let short = ["--slices", "2", "--slice-ms", "2"];
    let bench = |arguments: &[&str]| -> Value {
        let to = ["--json", file.to_str().unwrap()];
        say(&[&["bench", "mpi"], &short[..], arguments, &to].concat()).expect(0);
        let json = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        check_rows(&json);
        json
    };
    let json = bench(&["--size", "8,64K", "--vs", "tcp,own,native"]);
    let systems = ["openmpi-shm", "openmpi-tcp", "openmpi-own", "portolan-shm"];
    assert_eq!(texts(&json, "rows", "system"), set(&systems));
    assert_eq!(texts(&json, "rows", "metric"), set(&["latency_us"]));
    assert_eq!(texts(&json, "ratios", "over"), set(&systems[1..]));
    assert_eq!(json["rows"].as_array().unwrap().len(), 8);
    for (what, metric) in [
        ("bandwidth", "bandwidth_mb_s"),
        ("rate", "rate_msg_s"),
        ("alltoall", "alltoall_us"),
        ("start", "job_ms"),
    ] {
        let json = bench(&["--what", what, "--link", "udp"]);
        assert_eq!(texts(&json, "rows", "metric"), set(&[metric]));
        assert_eq!(texts(&json, "rows", "system"), set(&["openmpi-udp"]));
    }
    let nas = |name: &str, found: &str| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let says = " Time in seconds = 1.50\\n Verification = ";
        let told = format!("{says}{found}\\n timer 11( totcomm) : 0.2 0.4 0.3\\n");
        executable(&program, &format!("[ -e timer.flag ] && printf '{told}'"));
        program.into_os_string().into_string().unwrap()
    };
    let right = nas("right.W.x", "SUCCESSFUL");
    let json = bench(&["--what", "nas", "--nas", &right, "--vs", "tcp"]);
    assert_eq!(texts(&json, "rows", "metric"), set(&["nas_s", "nas_mpi_s"]));
    let medians = json["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["p50"].as_f64().unwrap());
    assert_eq!(medians.collect::<Vec<_>>(), [1.5, 0.3, 1.5, 0.3]);
    let wrong = nas("wrong.W.x", "UNSUCCESSFUL");
    let short = say(&[
        &["bench", "mpi", "--what", "nas", "--nas", &wrong][..],
        &short,
    ]
    .concat());
    short
        .expect(1)
        .complains(&["ran, and did not print the figures"]);
    for (arguments, words) in [
        (&["--what", "start", "--size", "8"][..], "--size"),
        (&["--what", "nas"], "--nas bin/mg.W.x"),
        (&["--nas", &right], "--what nas"),
        (
            &["--what", "nas", "--nas", &right, "--mpi", "openmpi,mpich"],
            "one MPI",
        ),
        (&["--what", "allreduce", "--size", "12"], "multiples of 8"),
        (&["--what", "bcast", "--vs", "native"], "--vs native"),
    ] {
        let said = say(&[&["bench", "mpi"], arguments].concat());
        said.expect(2).complains(&[words]);
    }
}
