//! Programs of Debian that use MPI, small, over the provider for libfabric. Each checks its own
//! results, and what it says of them is read.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::mpi::job;
use crate::common::{Said, finish};

/// Where the testers of ScaLAPACK and of the BLACS are, and their input files.
const TESTERS: &str = "/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests";
const INPUT: &str = "/usr/share/scalapack";

/// A folder for the files that a program reads and writes where it is started.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mpi-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Runs a program to its end, by a link, in a folder.
fn run(folder: &Path, link: &str, ranks: &str, program: &[&str]) -> Said {
    assert!(
        Path::new(program[0]).exists(),
        "{} is missing: make test installs it",
        program[0]
    );
    let mut job = job("mpi-programs", &["-n", ranks, "--link", link], program);
    // Each rank has a part of a core only.
    job.env("OPENBLAS_NUM_THREADS", "1").current_dir(folder);
    finish(job.spawn().unwrap()).expect(0)
}

#[test]
fn netpipe_finds_all_messages_whole() {
    let folder = folder("netpipe");
    let words = ["/usr/bin/NPopenmpi", "-i", "-n", "3", "-u", "300000"];
    for link in ["shm", "udp"] {
        let said = run(&folder, link, "2", &words);
        let text = said.out.clone() + &said.err;
        let passed = text.matches("Integrity check passed").count();
        assert!(passed > 30, "{link} {said:#?}");
        assert_eq!(text.matches("Integrity check").count(), passed, "{said:#?}");
    }
}

/// The input of HPCC: HPL's file, with a small problem on 2 ranks.
fn input_of_hpcc() -> String {
    let example = "/usr/share/doc/hpcc/examples/_hpccinf.txt";
    let text = fs::read_to_string(example).unwrap_or_else(|e| panic!("{example}: {e}"));
    let line = |line: &str| match line.split_whitespace().nth(1) {
        Some("Ns") => "400 Ns\n".into(),
        Some("NBs") => "32 NBs\n".into(),
        Some("Ps") => "1 Ps\n".into(),
        Some("Qs") => "2 Qs\n".into(),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

#[test]
fn hpcc_finds_its_results_right() {
    for link in ["shm", "udp"] {
        let folder = folder(&format!("hpcc-{link}"));
        fs::write(folder.join("hpccinf.txt"), input_of_hpcc()).unwrap();
        run(&folder, link, "2", &["/usr/bin/hpcc"]);
        let said = fs::read_to_string(folder.join("hpccoutf.txt")).unwrap();
        assert!(said.contains("\nSuccess=1\n"), "{said}");
        assert!(said.contains("PASSED"), "{said}");
        assert!(!said.contains("FAILED"), "{said}");
        for figure in [
            "PTRANS_residual",
            "HPL_Tflops",
            "MPIFFT_Gflops",
            "MaxPingPongLatency",
        ] {
            assert!(said.contains(figure), "no {figure} in {said}");
        }
    }
}

#[test]
fn the_testers_of_the_blacs_pass() {
    for tester in ["xFbtest", "xCbtest"] {
        let folder = folder(tester);
        for file in fs::read_dir(format!("{INPUT}/BLACS")).unwrap() {
            let file = file.unwrap().path();
            // The auxiliary tests end all by an abort, so an exit code would say nothing.
            let text = fs::read_to_string(&file).unwrap();
            let text = text.replace("'T'                             Run AUX?", "'F' Run AUX?");
            fs::write(folder.join(file.file_name().unwrap()), text).unwrap();
        }
        let said = run(&folder, "auto", "4", &[&format!("{TESTERS}/{tester}")]);
        let all = said.out.lines().filter(|line| line.contains(" TESTS;"));
        let good = all.clone().filter(|line| line.ends_with(" 0 FAILED."));
        // Point to point and broadcasts of five types; sums, largest, smallest of four.
        assert_eq!((all.count(), good.count()), (22, 22), "{said:#?}");
    }
}

#[test]
fn lu_of_scalapack_solves_what_it_is_given() {
    let folder = folder("lu");
    fs::copy(format!("{INPUT}/LU.dat"), folder.join("LU.dat")).unwrap();
    for (tester, link) in [("xdlu", "udp"), ("xzlu", "auto")] {
        let said = run(&folder, link, "4", &[&format!("{TESTERS}/{tester}")]);
        let passed = "240 tests completed and passed residual checks.";
        assert!(said.out.contains(passed), "{said:#?}");
    }
}
