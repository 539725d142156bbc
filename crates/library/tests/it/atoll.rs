//! The interface from C programs, one for each call: `tests/atoll`, checked as C99
//! and C++17, linked with the shared library and run as a job of two, over
//! shared memory and over UDP.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use crate::programs::{SYSTEM, library, run_pair, succeeds, with_cxx};

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn temporary() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// Where the shared library is, linked once.
static SHARED: LazyLock<PathBuf> = LazyLock::new(|| {
    let target = temporary().join("shared");
    let out = target.join("release");
    fs::create_dir_all(&out).unwrap();
    fs::copy(library(), out.join("libportolan_library.a")).unwrap();
    let mut make = Command::new("make");
    succeeds(
        make.arg("-C")
            .arg(crate_dir())
            .arg(format!("TARGET={}", target.display())),
    );
    out
});

/// Builds a C program, which must be C++ as well.
fn build(name: &str, source: &Path) -> PathBuf {
    let program = temporary().join(name);
    let include = crate_dir().join("../atoll/include");
    if with_cxx() {
        let mut check = Command::new("g++");
        check.args(["-x", "c++", "-std=c++17", "-fsyntax-only"]);
        succeeds(check.args(WARNINGS).arg("-I").arg(&include).arg(source));
    }
    let mut command = Command::new("cc");
    command
        .args(["-std=c99", "-O1", "-g"])
        .args(WARNINGS)
        .arg("-I")
        .arg(&include)
        .arg(source)
        .arg("-o")
        .arg(&program);
    if let Ok(flags) = std::env::var("PORTOLAN_TEST_CFLAGS") {
        // For sanitizers: the shared library is linked without their runtime.
        command.arg(library()).args(SYSTEM);
        command.args(flags.split_whitespace());
    } else {
        let path = format!("-Wl,-rpath,{}", SHARED.display());
        command.arg("-L").arg(&*SHARED).arg(path);
        command.args(["-latoll", "-lpthread"]);
    }
    succeeds(&mut command);
    program
}

fn test(name: &str, modes: &[&str]) {
    let source = crate_dir().join(format!("tests/atoll/{name}.c"));
    let program = build(name, &source);
    for mode in modes {
        run_pair(&program, mode);
    }
}

macro_rules! tests {
    ($($name:ident: $modes:expr;)*) => {
        $(#[test]
        fn $name() {
            test(stringify!($name), &$modes);
        })*

        const PROGRAMS: &[&str] = &[$(stringify!($name)),*];
    };
}

tests! {
    init: [""];
    connect: [""];
    disconnect: [""];
    send: [""];
    recv: [""];
    probe: [""];
    read_header: [""];
    find_header: [""];
    rcv_desc: [""];
    finish: ["wait", "now", "lost", "thread"];
    register_memory: [""];
    deregister_memory: [""];
    put: [""];
    get: [""];
    allow_rdma: [""];
    clock: [""];
    threads: [""];
}

/// The program in the document.
#[test]
fn the_page_has_a_program_that_runs() {
    let text = fs::read_to_string(crate_dir().join("../../docs/atoll.md")).unwrap();
    let (_, program) = text.split_once("\n```c\n").expect("it has one");
    let (program, _) = program.split_once("\n```\n").expect("it ends");
    let source = temporary().join("page-atoll.c");
    fs::write(&source, format!("{program}\n")).unwrap();
    run_pair(&build("page-atoll", &source), "");
}

/// The header's functions.
fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(crate_dir().join("../atoll/include/atoll.h")).unwrap();
    (header.lines())
        .filter(|line| !line.starts_with([' ', '/', '#']))
        .filter_map(|line| {
            let name = line.split_once('(')?.0.rsplit([' ', '*']).next()?;
            name.starts_with("atoll_").then(|| name.to_owned())
        })
        .collect()
}

#[test]
fn every_call_has_a_program() {
    let declared = declared();
    assert_eq!(declared.len(), 21, "{declared:?}");
    for call in declared {
        let name = call.trim_start_matches("atoll_");
        // Those that have none of their own are in another's.
        let name = match name {
            "why" | "size" | "strerror" => "init",
            "len" | "from" => "recv",
            name => name,
        };
        assert!(PROGRAMS.contains(&name), "{call}");
    }
}
