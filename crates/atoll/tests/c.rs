//! The interface from C programs, one for each call: `tests/c`, checked as C99
//! and C++17, linked with the shared library and run as a job of two, over
//! shared memory and over UDP.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use portolan_boot::LinkChoice;
use portolan_boot::launch::{JobSpec, Place, Running, SharedMemory, Starter};
use portolan_link::shm::{Config, Segment};

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

/// What Rust's standard library needs of the system.
const SYSTEM: [&str; 4] = ["-lgcc_s", "-lpthread", "-lm", "-ldl"];

fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn temporary() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

fn succeeds(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The static library that was built along with this test.
fn library() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let built = |path: &PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    fs::read_dir(exe.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with("libatoll-") && name.ends_with(".a")
        })
        .max_by_key(built)
        .expect("cargo builds the static library with the crate")
}

/// Where the shared library is, linked once.
static SHARED: LazyLock<PathBuf> = LazyLock::new(|| {
    let target = temporary().join("shared");
    let out = target.join("release");
    fs::create_dir_all(&out).unwrap();
    fs::copy(library(), out.join("libatoll.a")).unwrap();
    let mut make = Command::new("make");
    succeeds(
        make.arg("-C")
            .arg(crate_dir())
            .arg(format!("TARGET={}", target.display())),
    );
    fs::remove_file(out.join("libatoll.a")).unwrap();
    out
});

/// Builds a C program, which must be C++ as well.
fn build(name: &str, source: &Path) -> PathBuf {
    let program = temporary().join(name);
    let include = crate_dir().join("include");
    let mut check = Command::new("g++");
    check.args(["-x", "c++", "-std=c++17", "-fsyntax-only"]);
    succeeds(check.args(WARNINGS).arg("-I").arg(&include).arg(source));
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

/// Two processes of one program.
struct Pair<'a> {
    program: &'a Path,
    mode: &'a str,
}

impl Starter for Pair<'_> {
    fn segment(&mut self, _host: u16, ranks: u32) -> io::Result<SharedMemory> {
        let other = |e: &dyn std::fmt::Display| io::Error::other(e.to_string());
        let segment = Segment::create(ranks, &Config::default()).map_err(|e| other(&e))?;
        let descriptor = segment.duplicate_fd().map_err(|e| other(&e))?;
        Ok(SharedMemory {
            descriptor,
            mark_dead: Box::new(move |index| segment.mark_dead(index)),
        })
    }

    fn command(&mut self, _place: &Place) -> Command {
        let mut command = Command::new(self.program);
        command.arg(self.mode).stdin(Stdio::null());
        command
    }

    fn started(&mut self, _place: &Place, _pid: u32) {}
}

fn run(program: &Path, mode: &str) {
    for link in [LinkChoice::Auto, LinkChoice::Udp] {
        let spec = JobSpec {
            link,
            ..JobSpec::new(vec![2])
        };
        let mut starter = Pair { program, mode };
        let mut told = Vec::new();
        let mut tell = |event| told.push(event);
        let job = Running::start(spec, &mut starter, Vec::new(), &mut tell).unwrap();
        let code = job.wait(&mut starter, &mut tell).unwrap();
        let name = program.display();
        assert_eq!(code, 0, "{name} {mode} over {link:?}: {told:?}");
    }
}

fn test(name: &str, modes: &[&str]) {
    let source = crate_dir().join(format!("tests/c/{name}.c"));
    let program = build(name, &source);
    for mode in modes {
        run(&program, mode);
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
    run(&build("page-atoll", &source), "");
}

/// The header's functions.
fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(crate_dir().join("include/atoll.h")).unwrap();
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

/// What the header declares, no more, and under the version that programs are
/// linked with.
#[test]
fn the_shared_library_exports_the_header() {
    let so = SHARED.join("libatoll.so");
    let symbols = succeeds(Command::new("nm").args(["-D", "--defined-only"]).arg(&so));
    let exported: BTreeSet<String> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .filter(|name| *name != "ATOLL_0")
        .map(str::to_owned)
        .collect();
    let wanted = declared()
        .iter()
        .map(|name| format!("{name}@@ATOLL_0"))
        .collect();
    assert_eq!(exported, wanted);
    let dynamic = succeeds(Command::new("readelf").arg("-d").arg(&so));
    assert!(dynamic.contains("soname: [libatoll.so.0]"), "{dynamic}");
}
