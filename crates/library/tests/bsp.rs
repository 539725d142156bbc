//! BSPlib from C programs: `tests/bsp`, checked as C99 and C++17, and run as jobs of
//! several processes, over shared memory and over UDP.

mod programs;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use portolan_boot::LinkChoice;
use portolan_boot::launch::{JobSpec, OnDeath};
use programs::{SYSTEM, library, run, run_job, run_pair, succeeds, with_cxx};

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

/// The program in the document.
#[test]
fn the_page_has_a_program_that_runs() {
    let text = fs::read_to_string(folder().join("../../docs/bsp.md")).unwrap();
    let (_, program) = text.split_once("\n```c\n").expect("it has one");
    let (program, _) = program.split_once("\n```\n").expect("it ends");
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page-bsp.c");
    fs::write(&source, format!("{program}\n")).unwrap();
    let (code, told) = run(
        &build_source("page", &source),
        "",
        4,
        LinkChoice::Auto,
        None,
    );
    assert_eq!(code, 0, "{told}");
}

/// With sizes and numbers of processes that have no sign.
#[test]
fn programs_may_have_unsigned_sizes() {
    let (code, told) = run(&build("unsigned"), "", 3, LinkChoice::Auto, None);
    assert_eq!(code, 0, "{told}");
}

#[test]
fn programs_begin_with_all_with_fewer_and_by_init() {
    for mode in ["all", "fewer", "one", "init"] {
        let (code, told) = run(&BEGIN, mode, 3, LinkChoice::Auto, None);
        assert_eq!(code, 0, "{mode}: {told}");
    }
}

/// Runs a program over the transport of this name; gives its exit code, and what was said.
fn run_over(transport: &str, spec: JobSpec, program: &Path, mode: &str) -> (i32, String) {
    let name = format!("bsp-over-{transport}-{mode}-{}", spec.hosts[0]);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let file = File::create(&path).unwrap();
    let variables = [("BSP_TRANSPORT", transport)];
    let (code, told) = run_job(program, mode, spec, &variables, Some(&file));
    let said = fs::read_to_string(&path).unwrap();
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
    for mode in ["all", "fewer", "one", "init"] {
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
const MISUSES: [(&str, &str); 48] = [
    ("before", "bsp: bsp_sync: it comes before bsp_begin"),
    ("pid-before", "bsp_pid: it comes before bsp_begin"),
    ("none", "bsp_begin: 0 processes: give 1 or more"),
    ("minus", "bsp_begin: -3 processes: give 1 or more"),
    ("init-null", "bsp_init: it was given no function"),
    ("twice", "bsp_begin: it is called once"),
    ("init-late", "bsp_init: it comes before bsp_begin, and once"),
    ("abort", "of 3, bsp_abort: that was all: 7\n"),
    ("abort-one", "bsp: process 1 of 3, bsp_abort: one of them\n"),
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
         area of process 2: its area has 16 bytes\n",
    ),
    (
        "get-beyond",
        "process 1 gets 1 bytes at offset 17 of an area of process 2: its area has 16 bytes\n",
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
         bsp_push_reg: process 2 has 1, process 0 has 0\n",
    ),
    (
        "pops",
        "all processes must have the same number of bsp_pop_reg: process 1 has 0, process 0 has 1\n",
    ),
    (
        "tagsizes",
        "all processes must have the same size in bsp_set_tagsize: process 1 has 8, process 0 \
         has 4\n",
    ),
    (
        "ends",
        "bsp: process 0 of 3, bsp_sync: superstep 1: process 1 has called bsp_end and process 0 \
         has not\n",
    ),
    (
        "pops-other",
        "bsp: process 0 of 3, bsp_sync: superstep 1: process 1 has popped other areas than process \
         0\n",
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
    ("exits", ""),
    ("dies", ""),
    ("after", "bsp_sync: it comes after bsp_end"),
    ("again", "bsp_begin: it is called once"),
    ("nprocs-after", "bsp_nprocs: the program is over"),
    ("", ""),
    ("nothing", ""),
];

/// Those that are none.
const USES: [&str; 2] = ["", "nothing"];

static MISUSE: LazyLock<PathBuf> = LazyLock::new(|| build("misuse"));

#[test]
fn what_is_refused_ends_all_and_says_why() {
    for (mode, text) in MISUSES {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bsp-said-{mode}"));
        let file = File::create(&path).unwrap();
        let (code, told) = run(&MISUSE, mode, 3, LinkChoice::Auto, Some(&file));
        let said = fs::read_to_string(&path).unwrap();
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
