//! BSPlib from C programs: `tests/bsp`, checked as C99 and C++17, and run as jobs of
//! several processes, over shared memory and over UDP.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::programs::{SYSTEM, library, run, run_job, run_pair, succeeds, with_cxx};
use portolan_boot::LinkChoice;
use portolan_boot::launch::{JobSpec, OnDeath};

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn build(name: &str) -> PathBuf {
    build_source(name, &folder().join(format!("tests/bsp/{name}.c")))
}

fn build_source(name: &str, source: &Path) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bsp-{name}"));
    let flags = [
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
        "-I",
        &format!("{}/../bsp/include", folder().display()),
    ];
    if with_cxx() {
        let mut check = Command::new("g++");
        check.args(["-x", "c++", "-std=c++17", "-fsyntax-only"]);
        succeeds(check.args(flags).arg(source));
    }
    let mut command = Command::new("cc");
    command.args(["-std=c99", "-O1", "-g"]).args(flags);
    command.arg(source).arg("-o").arg(&program);
    command.arg(library()).args(SYSTEM);
    if let Ok(flags) = std::env::var("PORTOLAN_TEST_CFLAGS") {
        command.args(flags.split_whitespace());
    }
    succeeds(&mut command);
    program
}

/// Runs a program, with these variables beside those of this process: its exit code, what it
/// said, and what the launcher told.
fn heard(
    program: &Path,
    mode: &str,
    spec: JobSpec,
    variables: &[(&str, &str)],
) -> (i32, String, String) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bsp-said-{count}"));
    let file = File::create(&path).unwrap();
    let (code, told) = run_job(program, mode, spec, variables, Some(&file));
    let said = fs::read_to_string(&path).unwrap();
    fs::remove_file(&path).unwrap();
    (code, said, told)
}

static SEMANTICS: LazyLock<PathBuf> = LazyLock::new(|| build("semantics"));
static BEGIN: LazyLock<PathBuf> = LazyLock::new(|| build("begin"));

#[test]
fn calls_do_what_the_standard_says() {
    run_pair(&SEMANTICS, "");
    for link in [LinkChoice::Auto, LinkChoice::Udp] {
        for ranks in [1, 3, 5] {
            let (code, told) = run(&SEMANTICS, "", ranks, link, None);
            assert_eq!(code, 0, "{ranks} processes over {link:?}: {told}");
        }
    }
}

/// The program in the document, in a language.
fn page_program(language: &str, file: &str) -> PathBuf {
    let text = fs::read_to_string(folder().join("../../docs/bsp.md")).unwrap();
    let begin = format!("\n```{language}\n");
    let (_, program) = text.split_once(&begin).expect("it has one");
    let (program, _) = program.split_once("\n```\n").expect("it ends");
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
    fs::write(&source, format!("{program}\n")).unwrap();
    source
}

#[test]
fn the_page_has_a_program_that_runs() {
    let program = build_source("page", &page_program("c", "page-bsp.c"));
    let (code, told) = run(&program, "", 4, LinkChoice::Auto, None);
    assert_eq!(code, 0, "{told}");
}

/// Compiles the module, and a program that uses it, in a folder of their own.
fn build_fortran(name: &str, source: &Path) -> PathBuf {
    let modules = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bsp-{name}-modules"));
    fs::create_dir_all(&modules).unwrap();
    let program = modules.join("program");
    let mut command = Command::new("gfortran");
    command.args(["-std=f2018", "-O2", "-g", "-Wall", "-Wextra", "-Werror"]);
    command.args(["-pedantic", "-Wno-compare-reals", "-J"]);
    command.arg(&modules);
    command.arg(folder().join("../bsp/include/bsp.f90"));
    command.arg(source).arg("-o").arg(&program);
    command.arg(library()).args(SYSTEM);
    if let Ok(flags) = std::env::var("PORTOLAN_TEST_CFLAGS") {
        command.args(flags.split_whitespace());
    }
    succeeds(&mut command);
    program
}

#[test]
fn programs_in_fortran() {
    // `make check` does without where there is no compiler for it, and says so.
    if std::env::var_os("PORTOLAN_TEST_WITHOUT_FORTRAN").is_some() {
        return;
    }
    let program = build_fortran("fortran", &folder().join("tests/bsp/fortran.f90"));
    for link in [LinkChoice::Auto, LinkChoice::Udp] {
        let (code, told) = run(&program, "", 3, link, None);
        assert_eq!(code, 0, "over {link:?}: {told}");
    }
    let (code, said, told) = heard(&program, "abort", job(1), &[]);
    assert_eq!(code, 1, "{told}: {said}");
    assert_eq!(said, "bsp: process 0 of 1, bsp_abort: as it should\n");
    let page = build_fortran("page-fortran", &page_program("fortran", "page-bsp.f90"));
    // gfortran's library reads formats as strings, which they are not: a sanitizer's strict
    // checks of strings find that.
    let lenient = [("ASAN_OPTIONS", "abort_on_error=1:strict_string_checks=0")];
    let (code, told) = run_job(&page, "", job(3), &lenient, None);
    assert_eq!(code, 0, "{told}");
}

/// Columns of a process's profile, by superstep.
fn profile(folder: &Path, process: u32, columns: &[&str]) -> Vec<Vec<f64>> {
    let text = fs::read_to_string(folder.join(format!("{process:05}.bsp.tsv"))).unwrap();
    let mut lines = text.lines();
    let head = lines.next().unwrap();
    assert!(head.starts_with(&format!("# process {process}\tprocesses 3\tlink udp\t")));
    let names: Vec<&str> = lines.next().unwrap().split('\t').collect();
    let place = |name: &&str| names.iter().position(|it| it == name).unwrap();
    let places: Vec<usize> = columns.iter().map(place).collect();
    let row = |line: &str| -> Vec<f64> {
        let fields: Vec<&str> = line.split('\t').collect();
        assert_eq!(fields.len(), names.len());
        places
            .iter()
            .map(|at| fields[*at].parse().unwrap())
            .collect()
    };
    lines.map(row).collect()
}

#[test]
fn a_profile_has_what_each_superstep_moved() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bsp-profile-of-3");
    let _ = fs::remove_dir_all(&folder);
    let program = build("profile");
    let mode = folder.to_str().unwrap();
    let (code, told) = run(&program, mode, 3, LinkChoice::Udp, None);
    assert_eq!(code, 0, "{told}");
    for process in 0..3 {
        let volumes = profile(
            &folder,
            process,
            &["superstep", "sent_bytes", "received_bytes"],
        );
        let got = if process == 0 {
            [200.0, 0.0]
        } else {
            [0.0, 100.0]
        };
        let expected = [
            [0.0, 0.0, 0.0],
            [1.0, 10008.0, 10008.0],
            [2.0, got[0], got[1]],
            [3.0, 0.0, 0.0],
            [4.0, 0.0, 0.0],
        ];
        assert_eq!(volumes, expected);
        let times = [
            "start_us",
            "compute_us",
            "communicate_us",
            "wait_us",
            "packets",
        ];
        let times = profile(&folder, process, &times);
        // One begins when the one before is over.
        let mut end = 0.0;
        for row in &times {
            assert!(
                row[0] >= end && row.iter().all(|it| *it >= 0.0),
                "{times:?}"
            );
            end = row[0] + row[1] + row[2] + row[3];
        }
        let packets: f64 = times.iter().map(|row| row[4]).sum();
        assert!(packets > 8.0, "{times:?}");
    }
    // One that is gone in the end.
    let gone = folder.join("00001.bsp.tsv");
    let gone = gone.to_str().unwrap();
    let (code, said, told) = heard(&program, mode, job(2), &[("REMOVE", gone)]);
    assert_eq!(code, 1, "{told}: {said}");
    let expected = format!(
        "bsp: process 1 of 2, bsp_end: superstep 4: writing the profile {gone}: it was removed \
         meanwhile"
    );
    assert!(said.starts_with(&expected), "{said}");
    // A pipe that nobody reads.
    let made = Command::new("mkfifo").arg(gone).status().unwrap();
    assert!(made.success(), "{made}");
    let (code, said, told) = heard(&program, mode, job(2), &[]);
    assert_eq!(code, 1, "{told}: {said}");
    assert!(said.contains("it is no regular file"), "{said}");
    // A folder that cannot be made.
    let (code, _) = run(&program, "/dev/null/x", 2, LinkChoice::Auto, None);
    assert_eq!(code, 1);
    fs::remove_dir_all(&folder).unwrap();
}

/// With sizes and numbers of processes that have no sign.
#[test]
fn programs_may_have_unsigned_sizes() {
    let (code, told) = run(&build("unsigned"), "", 3, LinkChoice::Auto, None);
    assert_eq!(code, 0, "{told}");
}

#[test]
fn programs_begin_with_all_with_fewer_and_by_init() {
    for mode in ["all", "fewer", "one", "init", "later"] {
        let (code, told) = run(&BEGIN, mode, 3, LinkChoice::Auto, None);
        assert_eq!(code, 0, "{mode}: {told}");
    }
}

/// Programs, a size for each, and numbers of processes that it can have.
const PROGRAMS: [(&str, &str, &[u32]); 6] = [
    ("inner", "1000", &[1, 2, 3, 4]),
    ("psrs", "5000", &[1, 2, 3, 4]),
    ("lu", "40", &[1, 2, 3, 4]),
    ("fft", "8", &[1, 2, 4]),
    ("spmv", "300", &[1, 2, 3, 4]),
    ("cg", "12", &[1, 2, 3, 4]),
];

fn build_example(name: &str) -> PathBuf {
    let source = folder().join(format!("../../examples/bsp/{name}.c"));
    build_source(name, &source)
}

/// Each checks its result, and ends with 1 if that is wrong.
#[test]
fn the_examples_compute_what_they_should() {
    for (name, size, numbers) in PROGRAMS {
        let program = build_example(name);
        let over_udp = if name == "fft" { 4 } else { 3 };
        let jobs = numbers.iter().map(|&ranks| (ranks, LinkChoice::Auto));
        for (ranks, link) in jobs.chain([(over_udp, LinkChoice::Udp)]) {
            let (code, told) = run(&program, size, ranks, link, None);
            assert_eq!(code, 0, "{name}: {ranks} processes over {link:?}: {told}");
        }
        // Fewer items than processes.
        if name != "fft" {
            let (code, told) = run(&program, "1", 3, LinkChoice::Auto, None);
            assert_eq!(code, 0, "{name} of 1: {told}");
        }
        refuses(&program, "none", 3, "usage: ");
        refuses(&program, "", 1, "usage: ");
    }
    let fft = build_example("fft");
    refuses(
        &fft,
        "8",
        3,
        "the number of processes must be a power of two",
    );
    refuses(&fft, "1", 2, "too few elements");
}

/// Wrong arguments are refused with exit code 2.
fn refuses(program: &Path, argument: &str, ranks: u32, text: &str) {
    let (code, said, told) = heard(program, argument, job(ranks), &[]);
    let name = program.display();
    assert_eq!(code, 2, "{name} {argument:?}: {told}: {said}");
    assert!(said.contains(text), "{name} {argument:?}: {said}");
}

#[test]
fn conjugate_gradients_read_a_file() {
    let program = build_source("cg-file", &folder().join("../../examples/bsp/cg.c"));
    let path = program.with_extension("mtx");
    let path = path.to_str().unwrap();
    let symmetric = "%%MatrixMarket matrix coordinate real symmetric\n";
    let entries = "1 1 4\n2 2 3.5\n3 3 2e0\n2 1 -1\n3 1 0.5\n";
    let write = |head: &str, rest: &str| fs::write(path, format!("{head}{rest}")).unwrap();
    let run = |ranks| run(&program, path, ranks, LinkChoice::Auto, None);
    write(symmetric, &format!("% three rows\n3 3 5\n{entries}"));
    for ranks in [1, 2, 3, 4] {
        let (code, told) = run(ranks);
        assert_eq!(code, 0, "{ranks} processes: {told}");
    }
    // These are found when the program runs.
    write(symmetric, &format!("3 3 6\n{entries}"));
    assert_eq!(run(3).0, 1, "an entry is missing");
    write(symmetric, "2 2 2\n1 1 1\n2 2 -1\n");
    assert_eq!(run(3).0, 1, "it is not positive definite");
    let general = symmetric.replace("symmetric", "general");
    write(&general, &format!("3 3 5\n{entries}"));
    refuses(&program, path, 3, "the file does not begin with");
    write(symmetric, "3 2 5\n");
    refuses(&program, path, 3, "the file has no line with rows");
}

/// Runs a program over the transport of this name; gives its exit code, and what was said.
fn run_over(transport: &str, spec: JobSpec, program: &Path, mode: &str) -> (i32, String) {
    let variables = [("BSP_TRANSPORT", transport)];
    let (code, said, told) = heard(program, mode, spec, &variables);
    (code, format!("{said}{told}"))
}

fn job(ranks: u32) -> JobSpec {
    JobSpec::new(vec![ranks])
}

#[test]
fn supersteps_travel_over_tcp() {
    for ranks in [1, 2, 3, 5, 8] {
        let (code, said) = run_over("tcp", job(ranks), &SEMANTICS, "");
        assert_eq!(code, 0, "{ranks} processes: {said}");
    }
    // By the host's own address in the place of the loopback's.
    let spec = JobSpec {
        link: LinkChoice::Udp,
        ..job(3)
    };
    let (code, said) = run_over("tcp", spec, &SEMANTICS, "");
    assert_eq!(code, 0, "{said}");
    for mode in ["all", "fewer", "one", "init", "later"] {
        let (code, said) = run_over("tcp", job(3), &BEGIN, mode);
        assert_eq!(code, 0, "{mode}: {said}");
    }
}

#[test]
fn all_may_send_more_at_once_than_is_buffered() {
    let program = build("flood");
    for transport in ["portolan", "tcp"] {
        let (code, said) = run_over(transport, job(3), &program, "");
        assert_eq!(code, 0, "{transport}: {said}");
    }
}

#[test]
fn over_tcp_all_others_say_who_is_gone() {
    for mode in ["dies", "exits"] {
        // The others say so, however long that takes, and end themselves.
        let spec = JobSpec {
            on_death: OnDeath::Notify,
            ..job(3)
        };
        let (code, said) = run_over("tcp", spec, &MISUSE, mode);
        assert_ne!(code, 0, "{mode}: {said}");
        for who in [0, 2] {
            let gone =
                format!("bsp: process {who} of 3, bsp_sync: superstep 1: process 1 is gone: ");
            assert!(said.contains(&gone), "{mode}: {said}");
        }
    }
}

#[test]
fn over_tcp_memory_that_cannot_be_read_ends_all() {
    let (code, said) = run_over("tcp", job(3), &MISUSE, "hpput-unreadable");
    assert_ne!(code, 0, "{said}");
    let text = "bsp: process 1 of 3, bsp_sync: superstep 1: memory that is sent to process 0 \
                cannot be read";
    assert!(said.contains(text), "{said}");
}

/// Also where nothing is under way that anybody could miss.
#[test]
fn over_any_transport_who_is_stopped_too_long_is_killed() {
    for (transport, link) in [
        ("portolan", LinkChoice::Shm),
        ("portolan", LinkChoice::Udp),
        ("tcp", LinkChoice::Auto),
    ] {
        let spec = JobSpec {
            link,
            stopped_limit: Some(Duration::from_secs(1)),
            // It would go on for ever.
            timeout: Some(Duration::from_secs(120)),
            ..job(3)
        };
        let (code, said) = run_over(transport, spec, &MISUSE, "stops");
        assert_eq!(code, 128 + 9, "{transport}, {link:?}: {said}");
        assert!(said.contains("Overdue { rank: 1 }"), "{said}");
    }
}

#[test]
fn over_tcp_differences_are_found_by_all() {
    for mode in ["pushes", "tagsizes", "ends", "pops-other", "put-beyond"] {
        let (_, text) = MISUSES.iter().find(|(name, _)| *name == mode).unwrap();
        let (code, said) = run_over("tcp", job(3), &MISUSE, mode);
        assert_eq!(code, 1, "{mode}: {said}");
        assert!(said.contains(text), "{mode}: {said}");
    }
}

#[test]
fn an_unknown_transport_is_refused() {
    for name in ["udp", "TCP", ""] {
        let (code, said) = run_over(name, job(2), &SEMANTICS, "");
        assert_eq!(code, 1, "{name}: {said}");
        let text = format!("bsp: bsp_begin: BSP_TRANSPORT is {name:?}: give portolan or tcp");
        assert!(said.contains(&text), "{name}: {said}");
    }
    let (code, said) = run_over("portolan", job(2), &SEMANTICS, "");
    assert_eq!(code, 0, "{said}");
}

/// What is refused, and a part of what is said of it.
const MISUSES: [(&str, &str); 55] = [
    (
        "transports",
        "bsp_begin: all processes must have the same BSP_TRANSPORT: process 0 has another than \
         process 1",
    ),
    ("abort-null", "of 3, bsp_abort: NULL\n"),
    ("abort-twice", "of 3, bsp_abort: second\n"),
    ("before", "bsp: bsp_sync: it comes before bsp_begin"),
    ("pid-before", "bsp_pid: it comes before bsp_begin"),
    ("none", "bsp_begin: 0 processes: give 1 or more"),
    ("minus", "bsp_begin: -3 processes: give 1 or more"),
    ("init-null", "bsp_init: it was given no function"),
    ("twice", "bsp_begin: it is called once"),
    ("init-late", "bsp_init: it comes before bsp_begin, and once"),
    ("abort", "of 3, bsp_abort: that was all: 7\n"),
    ("abort-one", "bsp: process 1 of 3, bsp_abort: one of them\n"),
    ("little-memory", "bsp_put: there is no process 3, of 3"),
    (
        "hpput-huge",
        "bsp_hpput: 4611686018427387904 bytes: give 2^38 at most",
    ),
    (
        "push-huge",
        "bsp_push_reg: 18446744073709551615 bytes cannot be at 0x",
    ),
    (
        "push-negative",
        "bsp_push_reg: the size is -1: give 0 or more",
    ),
    (
        "push-null",
        "bsp_push_reg: NULL has no 1 bytes: give 0 with it",
    ),
    ("pop-unknown", "bsp_pop_reg: the area is not registered"),
    ("put-unknown", "bsp_put: the area is not registered"),
    (
        "put-early",
        "bsp_put: the area is registered from the next bsp_sync on",
    ),
    ("put-nobody", "bsp_put: there is no process 3, of 3"),
    ("get-nobody", "bsp_get: there is no process -1, of 3"),
    ("put-offset", "bsp_put: the offset is -1: give 0 or more"),
    ("put-size", "bsp_put: the size is -1: give 0 or more"),
    ("put-null", "bsp_put: 1 bytes cannot be at 0x0"),
    ("get-null", "bsp_get: 1 bytes cannot be at 0x0"),
    (
        "put-beyond",
        "bsp: process 2 of 3, bsp_sync: superstep 1: process 1 puts 3 bytes at offset 14 of an \
         area of process 2: its area has 16 bytes (misuse.c:",
    ),
    (
        "get-beyond",
        "process 1 gets 1 bytes at offset 17 of an area of process 2: its area has 16 bytes (misuse.c:",
    ),
    (
        "get-absent",
        "process 0 gets 1 bytes at offset 0 of an area of process 2: it has registered NULL there",
    ),
    ("send-nobody", "bsp_send: there is no process 17, of 3"),
    ("send-size", "bsp_send: the size is -1: give 0 or more"),
    ("tagsize", "bsp_set_tagsize: the size is -1: give 0 or more"),
    ("move-empty", "bsp_move: there is no message left"),
    (
        "pushes",
        "bsp: process 0 of 3, bsp_sync: superstep 1: all processes must have the same number of \
         bsp_push_reg: process 2 has 1, process 0 has 0 (misuse.c:",
    ),
    (
        "pops",
        "all processes must have the same number of bsp_pop_reg: process 1 has 0, process 0 has 1 (misuse.c:",
    ),
    (
        "tagsizes",
        "all processes must have the same size in bsp_set_tagsize: process 1 has 8, process 0 \
         has 4 (misuse.c:",
    ),
    (
        "ends",
        "bsp: process 0 of 3, bsp_sync: superstep 1: process 1 has called bsp_end and process 0 \
         has not (misuse.c:",
    ),
    (
        "pops-other",
        "bsp: process 0 of 3, bsp_sync: superstep 1: process 1 has popped other areas than process \
         0 (misuse.c:",
    ),
    (
        "pops-null",
        "bsp: process 1 of 3, bsp_sync: superstep 2: it has popped NULL, and has not registered \
         NULL in what process 0 has popped by the same call",
    ),
    (
        "null-tagsize",
        "bsp_set_tagsize: the pointer to the size is NULL",
    ),
    (
        "null-qsize",
        "bsp_qsize: the pointer to the number of messages is NULL",
    ),
    (
        "null-status",
        "bsp_get_tag: the pointer to the status is NULL",
    ),
    ("null-hpmove", "bsp_hpmove: the pointer to the tag is NULL"),
    ("null-move", "bsp_move: 1 bytes cannot be at NULL"),
    ("null-tag", "bsp_get_tag: 4 bytes cannot be at NULL"),
    (
        "huge-send",
        "bsp_send: there is no memory for a copy of 1152921504606846976 bytes",
    ),
    (
        "huge-put",
        "bsp_put: there is no memory for a copy of 1152921504606846976 bytes",
    ),
    (
        "handler",
        "of 3, a call while another runs: in an exit handler\n",
    ),
    (
        "exits",
        "bsp: process 1 of 3, it has ended without bsp_end: exit code 0\n",
    ),
    ("dies", ""),
    ("after", "bsp_sync: it comes after bsp_end"),
    ("again", "bsp_begin: it is called once"),
    ("nprocs-after", ""),
    ("", ""),
    ("nothing", ""),
];

/// Those that are none.
const USES: [&str; 3] = ["", "nothing", "nprocs-after"];

static MISUSE: LazyLock<PathBuf> = LazyLock::new(|| build("misuse"));

#[test]
fn what_is_refused_ends_all_and_says_why() {
    for (mode, text) in MISUSES {
        let (code, said, told) = heard(&MISUSE, mode, job(3), &[]);
        // Who was killed tells its signal.
        let expected = i32::from(!USES.contains(&mode));
        let is_expected = code == expected || mode == "dies";
        assert!(is_expected, "{mode}: {code}: {told}: {said}");
        assert!(said.contains(text), "{mode}: {said}");
        if USES.contains(&mode) {
            assert_eq!(said, "", "{mode}");
        }
    }
}

/// What `BSP_CHECK` says, by argument.
const CHECKS: [(&str, &str); 8] = [
    ("right", ""),
    (
        "puts",
        "bsp: process 0 of 3, bsp_sync: superstep 2: bsp_hpput of process 1 and bsp_put of \
         process 2 overlap in memory of process 0, in 8 bytes: which of them is done first is \
         open (check.c:",
    ),
    (
        "get",
        "bsp_hpget of process 1 and bsp_put of process 2 overlap in memory of process 0, in 2 \
         bytes",
    ),
    (
        "source",
        "bsp_hpput of process 0 and bsp_put of process 2 overlap in memory of process 0, in 1 \
         bytes",
    ),
    (
        "target",
        "bsp_hpget of process 2 and bsp_get of process 2 overlap in memory of process 2, in 5 \
         bytes",
    ),
    (
        "changed",
        "bsp: process 1 of 3, bsp_sync: superstep 2: the 100 bytes that bsp_hpput sends to \
         process 2 have changed since it was called",
    ),
    ("value", "bsp_begin: BSP_CHECK=yes: give 1 or 0"),
    (
        "waits",
        "bsp: process 0 of 3, bsp_sync: superstep 2: still waiting: process 1 has not called it, \
         the others have\n",
    ),
];

#[test]
fn checks_find_what_the_standard_leaves_open() {
    let program = build("check");
    for (mode, text) in CHECKS {
        let (code, said, told) = heard(&program, mode, job(3), &[]);
        let is_right = ["right", "waits"].contains(&mode);
        assert_eq!(code, i32::from(!is_right), "{mode}: {told}: {said}");
        assert!(said.contains(text), "{mode}: {said}");
        assert!(mode != "right" || said.is_empty(), "{said}");
    }
}

#[test]
fn an_error_names_the_line_of_its_call() {
    let source = fs::read_to_string(folder().join("tests/bsp/misuse.c")).unwrap();
    for mode in ["put-nobody", "get-nobody"] {
        let (code, said, _) = heard(&MISUSE, mode, job(3), &[]);
        // The call stands behind the line that asks for its mode.
        let asks = format!("is(how, \"{mode}\")");
        let line = source
            .lines()
            .position(|line| line.contains(&asks))
            .unwrap()
            + 2;
        let expected = format!(" (misuse.c:{line})\n");
        assert!(code == 1 && said.contains(&expected), "{expected}: {said}");
    }
}

#[test]
fn other_languages_find_bsp_abort() {
    let program = build("plain");
    let (code, said, told) = heard(&program, "", job(1), &[]);
    assert_eq!(code, 1, "{told}: {said}");
    assert_eq!(said, "bsp: bsp_abort: numbers: 7, 0.5\n");
}

#[test]
fn direct_gets_read_while_the_other_computes() {
    let program = build("direct");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bsp-direct-has-read");
    for (ranks, link) in [
        (2, LinkChoice::Auto),
        (3, LinkChoice::Auto),
        (3, LinkChoice::Udp),
    ] {
        let _ = fs::remove_file(&path);
        let (code, told) = run(&program, path.to_str().unwrap(), ranks, link, None);
        assert_eq!(code, 0, "{ranks} over {link:?}: {told}");
    }
    fs::remove_file(&path).unwrap();
    for (mode, text) in [
        (
            "beyond",
            "bsp: process 1 of 2, bsp_direct_get: superstep 1: 10 bytes at offset 99990 of an area \
             of process 0: its area has 99999 bytes (direct.c:",
        ),
        ("unknown", "bsp_direct_get: the area is not registered"),
        ("nobody", "bsp_direct_get: there is no process 2, of 2"),
    ] {
        let (code, said, told) = heard(&program, mode, job(2), &[]);
        assert_eq!(code, 1, "{mode}: {told}: {said}");
        assert!(said.contains(text), "{mode}: {said}");
    }
}

/// What is refused for want of memory ends the program with words, not by a signal.
#[test]
fn memory_that_is_short_is_told() {
    if std::env::var_os("PORTOLAN_TEST_CFLAGS").is_some() {
        eprintln!("*** DID NOT RUN: a sanitizer needs more addresses than this test leaves ***");
        return;
    }
    let program = build("memory");
    for mode in ["put", "long-put", "hpput", "get", "send", "push"] {
        for link in [LinkChoice::Auto, LinkChoice::Udp] {
            let spec = JobSpec { link, ..job(1) };
            let (code, said, told) = heard(&program, mode, spec, &[]);
            assert_eq!(code, 1, "{mode}: {told}: {said}");
            assert!(said.contains(": there is no memory "), "{mode}: {said}");
        }
    }
}

#[test]
fn a_forked_child_takes_no_part_over_any_transport() {
    for transport in ["portolan", "tcp"] {
        let (code, said) = run_over(transport, job(3), &MISUSE, "forks");
        assert_eq!(code, 0, "{transport}: {said}");
        assert!(said.contains("a forked child"), "{transport}: {said}");
        let (code, said) = run_over(transport, job(3), &MISUSE, "forks-abort");
        assert_eq!(code, 0, "{transport}: {said}");
        let alone = "bsp: a forked child of process 0 of 3, bsp_abort: alone\n";
        assert!(said.contains(alone), "{transport}: {said}");
    }
}
