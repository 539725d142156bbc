//! The rooms of the house: which crate may use which.

mod bounds;
mod methods;
mod source;
mod uses;

use std::collections::BTreeMap;
use std::process::Command;

use source::{Named, Source, sources_of};

/// Crate and what of the workspace it may use. A crate that is missing here
/// fails the test: give it a place.
const ALLOWED: &[(&str, &[&str])] = &[
    ("portolan-wire", &[]),
    ("portolan-seal", &["wire"]),
    ("portolan-proto", &["wire", "seal"]),
    ("portolan-matching", &[]),
    // Pure as the protocol is: its links and memory are a trait's.
    ("portolan-exchange", &["matching"]),
    ("portolan-sys", &[]),
    ("portolan-ring", &["sys"]),
    ("portolan-link", &["sys", "ring", "wire"]),
    // No clock and no system call but its links' own: never sys.
    (
        "portolan-engine",
        &["wire", "seal", "proto", "exchange", "ring", "link"],
    ),
    (
        "portolan-runtime",
        &[
            "wire", "seal", "proto", "exchange", "sys", "ring", "link", "engine",
        ],
    ),
    (
        "portolan-sim",
        &[
            "wire", "seal", "proto", "exchange", "link", "engine", "sys", "bsp",
        ],
    ),
    // The fuzz targets' properties: tests only, nothing uses it. Of the simulator, which is
    // for tests too, it has the memory of the protocol's tables.
    (
        "portolan-properties",
        &[
            "wire", "seal", "proto", "matching", "exchange", "ring", "boot", "link", "sim", "bsp",
        ],
    ),
    ("portolan-boot", &["wire", "seal", "sys"]),
    (
        "portolan",
        &[
            "wire", "seal", "proto", "sys", "ring", "link", "runtime", "boot",
        ],
    ),
    // An interface: a thin translation of the native one, and no way round it.
    ("portolan-atoll", &["portolan"]),
    ("portolan-bsp", &["portolan"]),
    // An interface that others load: it has an engine of its own.
    ("portolan-ofi", &["portolan"]),
    // All interfaces for C in one library: nothing but its tests uses it.
    ("portolan-library", &["portolan", "atoll", "bsp"]),
    ("portolan-hosts", &["sys", "link", "boot"]),
    (
        "portolan-bench",
        &[
            "wire", "matching", "sys", "ring", "link", "runtime", "boot", "portolan", "hosts",
        ],
    ),
    (
        "portolan-cli",
        &["wire", "sys", "link", "boot", "portolan", "hosts", "bench"],
    ),
];

fn metadata() -> serde_json::Value {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--locked"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .expect("cargo runs");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    serde_json::from_slice(&out.stdout).expect("cargo metadata prints JSON")
}

#[test]
fn crates_use_only_the_rooms_above_them() {
    let allowed: BTreeMap<_, _> = ALLOWED.iter().copied().collect();
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    assert!(packages.len() >= 12);
    for package in packages {
        let name = package["name"].as_str().expect("name");
        let may = allowed
            .get(name)
            .unwrap_or_else(|| panic!("{name} has no place in the design"));
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let used = dependency["name"].as_str().expect("name");
            // Tests may look anywhere.
            if !used.starts_with("portolan") || dependency["kind"] == "dev" {
                continue;
            }
            let room = used.strip_prefix("portolan-").unwrap_or(used);
            assert!(may.contains(&room), "{name} may not use {used}");
        }
    }
}

#[test]
fn the_core_refuses_clocks_and_sockets() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    for (crate_name, no_std) in [
        ("wire", true),
        ("proto", true),
        ("seal", true),
        ("matching", true),
        ("sim", false),
    ] {
        let path = format!("{root}/{crate_name}/src/lib.rs");
        let source = std::fs::read_to_string(&path).expect(&path);
        assert!(
            source.contains("#![forbid(unsafe_code)]"),
            "{crate_name} forbids unsafe code"
        );
        assert_eq!(
            source.contains("#![no_std]"),
            no_std,
            "{crate_name} and no_std"
        );
        let std = source
            .lines()
            .any(|l| l.trim_start().starts_with("extern crate std"));
        assert!(!std || !no_std, "{crate_name} must not bring std back");
    }
}

#[test]
fn what_the_page_names_exists() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let read = |path: &str| std::fs::read_to_string(format!("{root}/{path}"));
    let page = read("docs/architecture.md").expect("the page");
    let mut functions = 0;
    // Code between single backticks, in each line; fences have none.
    let spans = page
        .lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2));
    for span in spans.filter(|span| span.starts_with("crates/")) {
        let (path, function) = match span.split_once(": ") {
            Some((path, function)) => (path, Some(function)),
            None => (span, None),
        };
        let there = std::path::Path::new(root).join(path).exists();
        assert!(there, "docs/architecture.md: there is no {path}");
        if let Some(function) = function {
            functions += 1;
            let source = Source::new(path, &[], &read(path).expect(path));
            assert!(
                source.functions.iter().any(|name| name == function),
                "docs/architecture.md: {path} has no function {function}"
            );
        }
    }
    assert!(functions > 50, "{functions} functions are named");
    let source = "fn f() {} // fn g() {}\nconst H: &str = \"fn h() {}\"; mod ff {}";
    assert_eq!(Source::new("a.rs", &[], source).functions, ["f"]);
}

/// What a program is without: the simulator, properties for tests, and commands.
const NO_LIBRARIES: &[&str] = &["sim", "properties", "bench", "cli"];

/// Functions of `std::env` that read what whoever started the process has set.
const READS: &[&str] = &[
    "var", "var_os", "vars", "vars_os", "temp_dir", "home_dir", "*",
];

/// Lines that read the environment, or begin a command, which finds its program by it.
fn lines_that_trust(source: &Source, commands: bool) -> Vec<usize> {
    const OF_C: [&str; 3] = ["getenv", "secure_getenv", "environ"];
    let trusts = |path: &&Named| {
        let names: Vec<&str> = path.names.iter().map(String::as_str).collect();
        let last = *names.last().expect("a name");
        let renamed = path.known_as.as_ref().is_some_and(|name| name != last);
        (names.windows(2)).any(|two| {
            two[0] == "env" && READS.contains(&two[1]) || commands && two == ["Command", "new"]
        }) || renamed && ["env", "Command"].contains(&last)
            || names.iter().any(|name| OF_C.contains(name))
    };
    let all = source.paths.iter().filter(trusts);
    all.map(|path| path.line).collect()
}

/// A set-user-id program must not do as a variable says, and a new variable must not forget
/// that: there is one place that reads them.
#[test]
fn libraries_read_the_environment_in_one_place() {
    let names = ALLOWED
        .iter()
        .map(|(name, _)| name.trim_start_matches("portolan-"));
    for name in names.filter(|name| !NO_LIBRARIES.contains(name)) {
        for source in sources_of(name) {
            let file = &source.name;
            if (name, file.as_str()) == ("sys", "environment.rs") {
                continue;
            }
            // To start ranks and tools is what `hosts` is there for.
            let lines = lines_that_trust(source, name != "hosts");
            assert!(
                lines.is_empty(),
                "{name}/src/{file}: {lines:?}: use portolan_sys::environment"
            );
        }
    }
}

/// A launcher that is process 1 must tell the children that it has started from orphans: there is
/// one place that starts them. And a program begins with the signals that its caller ignored:
/// there is one place that becomes one.
#[test]
fn processes_are_started_in_one_place() {
    const WAYS: [&str; 4] = ["spawn", "output", "status", "exec"];
    for name in ["boot", "hosts", "bench", "cli"] {
        for source in sources_of(name) {
            let mut calls = source.plain_calls.iter();
            let found = calls.find(|(_, method)| WAYS.contains(&method.as_str()));
            let instead = "use portolan_sys::children, or portolan_sys::signals::exec";
            assert_eq!(found, None, "{name}/src/{}: {instead}", source.name);
        }
    }
}

#[test]
fn who_reads_the_environment_is_found_however_it_is_written() {
    for (source, expected) in [
        ("use std::env;\nfn f() { env::var_os(name) }", &[2][..]),
        ("use std::env::{args, var};", &[1]),
        ("use std::env::*;", &[1]),
        ("use std::env as e;", &[1]),
        ("use std::{env::{self as e}, io};", &[1]),
        ("#[error(\"{}\", std::env::var(it))]\nstruct A;", &[1]),
        ("fn f() { g(std::env::temp_dir) }", &[1]),
        ("fn f() { unsafe { libc::getenv(name) } }", &[1]),
        ("fn f() {\n let c = Command::new(it);\n}", &[2]),
        (
            "fn f() { env!(\"OUT_DIR\"); environment::var_os(name); env::args(); }",
            &[],
        ),
        (
            "#[cfg(test)]\nmod tests { fn f() { std::env::var(it) } }",
            &[],
        ),
        ("// std::env::var", &[]),
    ] {
        let read = Source::new("a.rs", &[], source);
        assert_eq!(lines_that_trust(&read, true), expected, "{source}");
    }
}
