//! The C interface from C programs: `tests/c`, built as C99 and as C++17
//! against the static library, run alone and as a job of two, over shared
//! memory and over UDP.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use crate::programs::{SYSTEM, library, run_pair, succeeds, with_cxx};

/// The standards that programs are built by, and their compilers.
fn languages() -> impl Iterator<Item = (&'static str, &'static str)> {
    let all = [("c99", "cc"), ("c++17", "g++")];
    all.into_iter().take(1 + usize::from(with_cxx()))
}

fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where an interface's headers are.
fn headers(interface: &str) -> PathBuf {
    crate_dir().join(format!("../{interface}/include"))
}

/// Builds `tests/c/NAME.c` in one language, with every warning an error.
fn build(name: &str, language: (&str, &str)) -> PathBuf {
    let source = crate_dir().join(format!("tests/c/{name}.c"));
    build_source(name, &source, language)
}

fn build_source(name: &str, source: &Path, (standard, compiler): (&str, &str)) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{standard}"));
    let language = if standard.contains("++") { "c++" } else { "c" };
    let mut command = Command::new(compiler);
    command
        .args(["-x", language, &format!("-std={standard}"), "-O1", "-g"])
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic"])
        .arg("-I")
        .arg(headers("portolan"))
        .arg("-I")
        .arg(headers("atoll"))
        .arg(source)
        .arg("-o")
        .arg(&program)
        .args(["-x", "none"])
        .arg(library())
        .args(SYSTEM);
    // For sanitizers: see docs/native.md.
    if let Ok(flags) = std::env::var("PORTOLAN_TEST_CFLAGS") {
        command.args(flags.split_whitespace());
    }
    succeeds(&mut command);
    program
}

#[test]
fn every_call_and_its_edges_alone() {
    for language in languages() {
        let program = build("solo", language);
        let mut command = Command::new(program);
        command.env_remove(portolan_boot::JOB_VARIABLE);
        assert_eq!(succeeds(&mut command), "solo: all is well\n");
    }
}

/// Without a launcher.
#[test]
fn endpoints_outside_of_a_job() {
    for language in languages() {
        let program = build("peers", language);
        for link in [None, Some("udp")] {
            let mut command = Command::new(&program);
            command.env_remove(portolan_boot::JOB_VARIABLE);
            command.env_remove("PORTOLAN_LINK");
            command.envs(link.map(|link| ("PORTOLAN_LINK", link)));
            assert_eq!(succeeds(&mut command), "peers: all is well\n");
        }
    }
}

#[test]
fn signal_handlers_that_call() {
    for language in languages() {
        let mut command = Command::new(build("signals", language));
        command.env_remove(portolan_boot::JOB_VARIABLE);
        assert_eq!(succeeds(&mut command), "signals: all is well\n");
    }
}

#[test]
fn matched_messages_of_two_ranks() {
    for language in languages() {
        let program = build("tagged", language);
        run_pair(&program, "plain");
        run_pair(&program, "threads");
        run_pair(&build("misuse", language), "");
    }
}

#[test]
fn memory_of_two_ranks() {
    for language in languages() {
        let program = build("onesided", language);
        run_pair(&program, "plain");
        run_pair(&program, "threads");
        run_pair(&build("onesided_misuse", language), "");
        run_pair(&build("atomics", language), "");
    }
}

#[test]
fn two_ranks() {
    for language in languages() {
        let program = build("pair", language);
        run_pair(&program, "plain");
        run_pair(&program, "threads");
    }
}

/// Writes the program with this number in a document to a file.
fn of_page(page: &str, number: usize) -> (String, PathBuf) {
    let path = crate_dir().join(format!("../../docs/{page}.md"));
    let text = fs::read_to_string(path).unwrap();
    let program = text.split("\n```c\n").nth(number).expect("it has one");
    let (program, _) = program.split_once("\n```\n").expect("it ends");
    let name = format!("page-{page}-{number}");
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.c"));
    fs::write(&source, format!("{program}\n")).unwrap();
    (name, source)
}

/// The programs in the documents.
#[test]
fn pages_have_programs_that_run() {
    for page in ["native", "matched", "onesided"] {
        let (name, source) = of_page(page, 1);
        for language in languages() {
            run_pair(&build_source(&name, &source, language), "");
        }
    }
}

/// The one that needs no launcher: the first process says where it is.
#[test]
fn the_page_has_a_program_without_a_launcher() {
    let (name, source) = of_page("native", 2);
    for language in languages() {
        let program = build_source(&name, &source, language);
        let mut first = Command::new(&program);
        let mut first = first.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(first.stdout.take().unwrap()).lines();
        let address = said.next().unwrap().unwrap();
        assert_eq!(address.len(), 128);
        let answered = succeeds(Command::new(&program).arg(&address));
        assert_eq!(answered, "number 1 sent 3 bytes\n");
        assert_eq!(said.next().unwrap().unwrap(), "number 1 sent 4 bytes");
        assert!(first.wait().unwrap().success());
        let wrong = Command::new(&program).arg("1234").status().unwrap();
        assert_eq!(wrong.code(), Some(1));
    }
}

/// The shared library, made once, in a folder of its own.
static SHARED: LazyLock<PathBuf> = LazyLock::new(|| {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shared-all");
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

/// A program that has functions of the names of libaegis, with either library: none takes
/// the other's.
#[test]
fn the_shared_library_leaves_libaegis_to_programs() {
    let [of_static, of_shared] = [&["-l:libportolan.a"][..], &["-lportolan"]];
    for (name, link) in [("static", of_static), ("shared", of_shared)] {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("own-aegis-{name}"));
        let mut command = Command::new("cc");
        command.args(
            ["peers", "own_aegis"].map(|it| format!("{}/tests/c/{it}.c", crate_dir().display())),
        );
        command
            .arg("-I")
            .arg(headers("portolan"))
            .arg("-L")
            .arg(&*SHARED);
        succeeds(command.args(link).args(SYSTEM).arg("-o").arg(&program));
        let mut command = Command::new(&program);
        command.env_remove(portolan_boot::JOB_VARIABLE);
        command
            .env("LD_LIBRARY_PATH", &*SHARED)
            .env("PORTOLAN_LINK", "udp");
        assert_eq!(succeeds(&mut command), "peers: all is well\n");
    }
    let archive = SHARED.join("libportolan.a");
    let symbols = succeeds(
        Command::new("nm")
            .args(["-gP", "--defined-only"])
            .arg(archive),
    );
    assert!(
        symbols
            .lines()
            .any(|line| line.starts_with("ptl_aegis128l_"))
    );
    let theirs = |line: &str| {
        ["aegis", "libaegis", "softaes"]
            .iter()
            .any(|it| line.starts_with(it))
    };
    assert!(!symbols.lines().any(theirs));
}

/// All interfaces at once, in a program that is linked with the static library.
#[test]
fn all_interfaces_in_one_program() {
    for language in languages() {
        let program = build("all", language);
        run_pair(&program, "native");
        run_pair(&program, "atoll");
    }
}

/// The same with the shared one, which `-latoll` names too.
#[test]
fn all_interfaces_in_one_shared_program() {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("all-shared");
    let mut command = Command::new("cc");
    command
        .args(["-std=c99", "-O1", "-g", "-I"])
        .arg(headers("portolan"))
        .arg("-I")
        .arg(headers("atoll"))
        .arg(crate_dir().join("tests/c/all.c"))
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(&*SHARED)
        .arg(format!("-Wl,-rpath,{}", SHARED.display()))
        .args(["-latoll", "-lportolan", "-lpthread"]);
    succeeds(&mut command);
    let needed = succeeds(Command::new("readelf").arg("-d").arg(&program));
    assert_eq!(needed.matches("libportolan.so.0").count(), 1, "{needed}");
    assert!(!needed.contains("libatoll"), "{needed}");
    run_pair(&program, "native");
    run_pair(&program, "atoll");
}

/// The shared library exports what the headers declare, no more, and under the
/// versions that programs are linked with.
#[test]
fn the_shared_library_exports_the_headers() {
    let mut wanted = BTreeSet::new();
    for (interface, headers) in [
        (
            "portolan",
            &["portolan.h", "portolan_matched.h", "portolan_onesided.h"][..],
        ),
        ("atoll", &["atoll.h"][..]),
        ("bsp", &["bsp.h", "mcbsp.h"][..]),
    ] {
        for header in headers {
            let text = fs::read_to_string(self::headers(interface).join(header)).unwrap();
            let version = format!("{}_0", interface.to_uppercase());
            let lines = text.lines();
            let declared = lines
                .filter(|line| !line.starts_with([' ', '/', '#']) && !line.starts_with("static"))
                .filter_map(|line| {
                    let name = line.split_once('(')?.0.rsplit([' ', '*']).next()?;
                    name.starts_with(&format!("{interface}_")).then_some(name)
                });
            wanted.extend(declared.map(|name| format!("{name}@@{version}")));
        }
    }
    assert!(wanted.len() > 100, "{wanted:?}");
    let so = SHARED.join("libportolan.so");
    let symbols = succeeds(Command::new("nm").args(["-D", "--defined-only"]).arg(&so));
    let exported: BTreeSet<String> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .filter(|name| name.contains("@@"))
        .map(str::to_owned)
        .collect();
    assert_eq!(exported, wanted);
    let dynamic = succeeds(Command::new("readelf").arg("-d").arg(&so));
    assert!(dynamic.contains("soname: [libportolan.so.0]"), "{dynamic}");
}
