//! The rooms of the house: which crate may use which.

use std::collections::BTreeMap;
use std::process::Command;

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

/// Crates whose folders must not use each other in circles.
const WITHOUT_CIRCLES: &[&str] = &["proto", "exchange", "engine", "runtime"];

/// Which module of a crate uses which, those right below its root: of each use an
/// example.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// A file without comments and strings, as words and signs, each with its line.
fn tokens(source: &str) -> Vec<(usize, String)> {
    let all: Vec<char> = source.chars().collect();
    let is = |at: usize, text: &str| all[at..].iter().take(text.len()).copied().eq(text.chars());
    let (mut found, mut line, mut at) = (Vec::new(), 1, 0);
    while at < all.len() {
        let from = at;
        at += 1;
        if is(from, "//") {
            at = (from..all.len())
                .find(|&i| all[i] == '\n')
                .unwrap_or(all.len());
        } else if is(from, "/*") {
            at = (from..all.len())
                .find(|&i| is(i, "*/"))
                .map_or(all.len(), |i| i + 2);
        } else if all[from] == '"' {
            while at < all.len() && all[at] != '"' {
                at += if all[at] == '\\' { 2 } else { 1 };
            }
            at = (at + 1).min(all.len());
        } else if all[from] == '\'' {
            // A character; otherwise a lifetime.
            if is(at, "\\") {
                at = (at + 2..all.len())
                    .find(|&i| all[i] == '\'')
                    .map_or(all.len(), |i| i + 1);
            } else if all.get(at + 1) == Some(&'\'') {
                at += 2;
            }
        } else if all[from].is_alphanumeric() || all[from] == '_' {
            while at < all.len() && (all[at].is_alphanumeric() || all[at] == '_') {
                at += 1;
            }
            found.push((line, all[from..at].iter().collect()));
        } else if is(from, "::") {
            at += 1;
            found.push((line, "::".into()));
        } else if !all[from].is_whitespace() {
            found.push((line, all[from].into()));
        }
        line += all[from..at].iter().filter(|&&c| c == '\n').count();
    }
    found
}

/// The place behind the bracket that closes the one at `at`.
fn behind(tokens: &[(usize, String)], at: usize) -> usize {
    let mut open = 0;
    for (i, (_, token)) in tokens.iter().enumerate().skip(at) {
        match token.as_str() {
            "{" | "[" | "(" => open += 1,
            "}" | "]" | ")" => open -= 1,
            _ => continue,
        }
        if open == 0 {
            return i + 1;
        }
    }
    tokens.len()
}

/// A file without what only tests have.
fn without_tests(tokens: Vec<(usize, String)>) -> Vec<(usize, String)> {
    let mut rest = Vec::new();
    let mut at = 0;
    let word = |i: usize| tokens.get(i).map_or("", |(_, token)| token.as_str());
    while at < tokens.len() {
        if (0..7).all(|i| word(at + i) == ["#", "[", "cfg", "(", "test", ")", "]"][i]) {
            at += 7;
            // The item ends with its body, or with a semicolon before that.
            while at < tokens.len() && !["{", ";"].contains(&word(at)) {
                at = match word(at) {
                    "[" | "(" => behind(&tokens, at),
                    _ => at + 1,
                };
            }
            at = match word(at) {
                "{" => behind(&tokens, at),
                _ => at + 1,
            };
        } else {
            rest.push(tokens[at].clone());
            at += 1;
        }
    }
    rest
}

/// A path, and the name by which it is known from then on.
type Named = (Vec<String>, String);

/// The paths that begin at `at`, behind the `::` of their common beginning: of a group
/// each of its members.
fn members(tokens: &[(usize, String)], at: usize, path: &[String], found: &mut Vec<Named>) {
    let word = |i: usize| tokens.get(i).map_or("", |(_, token)| token.as_str());
    if word(at) == "{" {
        let end = behind(tokens, at) - 1;
        let mut at = at + 1;
        while at < end {
            members(tokens, at, path, found);
            while at < end && word(at) != "," {
                at = match word(at) {
                    "{" => behind(tokens, at),
                    _ => at + 1,
                };
            }
            at += 1;
        }
        return;
    }
    let mut path = path.to_vec();
    path.push(word(at).into());
    if word(at + 1) == "::" {
        members(tokens, at + 2, &path, found);
    } else {
        let name = if word(at + 1) == "as" { at + 2 } else { at };
        found.push((path, word(name).into()));
    }
}

/// All paths of a file that begin with `crate` or `super`, from the root of the crate
/// on, each with its line. `module`: where the file stands.
fn paths(tokens: &[(usize, String)], module: &[String]) -> Vec<(usize, Vec<String>)> {
    let word = |i: usize| tokens.get(i).map_or("", |(_, token)| token.as_str());
    // Modules in the file itself, and how deep in brackets each stands.
    let mut inner: Vec<(String, usize)> = Vec::new();
    let mut depth = 0;
    let mut all = Vec::new();
    for (i, (line, token)) in tokens.iter().enumerate() {
        match token.as_str() {
            "{" => {
                depth += 1;
                if i >= 2 && word(i - 2) == "mod" {
                    inner.push((word(i - 1).into(), depth));
                }
            }
            "}" => {
                inner.pop_if(|(_, at)| *at == depth);
                depth -= 1;
            }
            "crate" | "super" if word(i + 1) == "::" && (i == 0 || word(i - 1) != "::") => {
                let mut from = module.to_vec();
                from.extend(inner.iter().map(|(name, _)| name.clone()));
                if token == "crate" {
                    from.clear();
                }
                let mut at = i;
                while word(at) == "super" && word(at + 1) == "::" {
                    from.pop();
                    at += 2;
                }
                let mut found = Vec::new();
                let at = if token == "crate" { i + 2 } else { at };
                members(tokens, at, &from, &mut found);
                all.extend(found.into_iter().map(|(path, _)| (*line, path)));
            }
            _ => {}
        }
    }
    all
}

/// A file of a crate: where it stands among the modules, its name, and its tokens.
type File = (Vec<String>, String, Vec<(usize, String)>);

/// All files of a crate without what only tests have, the root first. `read` gives a file of
/// its sources, if there is one.
fn files(read: &dyn Fn(&str) -> Option<String>) -> Vec<File> {
    let file = |name: &str| Some(without_tests(tokens(&read(name)?)));
    let root = file("lib.rs").or_else(|| file("main.rs"));
    let root = root.expect("lib.rs, or main.rs of a command");
    let mut modules = vec![(Vec::new(), "lib.rs".to_owned(), root)];
    let mut all = Vec::new();
    while let Some((module, name, tokens)) = modules.pop() {
        for declared in tokens.windows(3) {
            let [(_, word), (_, child), (_, end)] = declared else {
                continue;
            };
            if (word.as_str(), end.as_str()) != ("mod", ";") {
                continue;
            }
            let path = [&module[..], std::slice::from_ref(child)].concat();
            let names = [path.join("/") + ".rs", path.join("/") + "/mod.rs"];
            let (name, tokens) = names
                .into_iter()
                .find_map(|name| file(&name).map(|tokens| (name, tokens)))
                .unwrap_or_else(|| panic!("{name}: there is no file of mod {child}"));
            modules.push((path, name, tokens));
        }
        all.push((module, name, tokens));
    }
    all
}

/// Which module of a crate uses which. `read`: see [`files`].
fn uses(read: &dyn Fn(&str) -> Option<String>) -> Uses {
    let files = files(read);
    let ((_, _, root), all) = files.split_first().expect("lib.rs");
    // What the root hands on, and whose it is.
    let mut handed_on = BTreeMap::new();
    for i in (0..root.len()).filter(|&i| root[i].1 == "use") {
        let mut found = Vec::new();
        members(root, i + 1, &[], &mut found);
        for (path, name) in found {
            handed_on.insert(name, path[0].clone());
        }
    }
    let mut uses: Uses = all
        .iter()
        .map(|m| (m.0[0].clone(), BTreeMap::new()))
        .collect();
    for (module, name, tokens) in all {
        for (line, path) in paths(tokens, module) {
            assert_ne!(path[0], "*", "{name}:{line} uses all of the crate's root");
            let used = handed_on.get(&path[0]).unwrap_or(&path[0]);
            if *used != module[0] && uses.contains_key(used) {
                let example = format!("{name}:{line} uses {}", path.join("::"));
                let known = uses.get_mut(&module[0]).expect("a module");
                known.entry(used.clone()).or_insert(example);
            }
        }
    }
    uses
}

/// A shortest circle, as the uses that close it.
fn circle(uses: &Uses) -> Option<Vec<String>> {
    let around = |start: &String| {
        let mut ways = vec![vec![start]];
        let mut seen = Vec::new();
        while !ways.is_empty() {
            let mut longer = Vec::new();
            for way in ways {
                for next in uses[way[way.len() - 1]].keys() {
                    let way = [&way[..], &[next]].concat();
                    if next == start {
                        let example = |w: &[&String]| uses[w[0]][w[1]].clone();
                        return Some(way.windows(2).map(example).collect::<Vec<_>>());
                    }
                    if !seen.contains(&next) {
                        seen.push(next);
                        longer.push(way);
                    }
                }
            }
            ways = longer;
        }
        None
    };
    uses.keys().filter_map(around).min_by_key(Vec::len)
}

#[test]
fn folders_use_each_other_in_no_circle() {
    for name in WITHOUT_CIRCLES {
        let root = format!("{}/../{name}/src", env!("CARGO_MANIFEST_DIR"));
        let uses = uses(&|file| std::fs::read_to_string(format!("{root}/{file}")).ok());
        assert!(uses.len() > 1, "{name}: {uses:?}");
        if let Some(circle) = circle(&uses) {
            panic!("{name}: a circle of imports:\n  {}", circle.join("\n  "));
        }
    }
}

#[test]
fn a_circle_is_found_however_it_is_written() {
    let found = |files: &[(&str, &str)]| {
        let read = |name: &str| {
            let file = files.iter().find(|(file, _)| *file == name)?;
            Some(file.1.to_owned())
        };
        circle(&uses(&read)).map(|circle| circle.join(", "))
    };
    let root = "mod a; mod b; mod c; pub use c::{Deep, inner::Other as Thing};";
    let b = "use super::a::A;";
    for (a, c, expected) in [
        (
            "use crate::b::B;",
            "",
            "a.rs:1 uses b::B, b/mod.rs:1 uses a::A",
        ),
        (
            "fn f() {\n crate::b::f(); }",
            "",
            "a.rs:2 uses b::f, b/mod.rs:1 uses a::A",
        ),
        (
            "use crate::{c::{C, D}, x};",
            "use crate::{b};",
            "a.rs:1 uses c::C, c.rs:1 uses b, b/mod.rs:1 uses a::A",
        ),
        // What the root hands on, and modules within a file.
        (
            "use crate::Thing;",
            "mod d { use super::super::b; } const C: char = '\"';",
            "a.rs:1 uses Thing, c.rs:1 uses b, b/mod.rs:1 uses a::A",
        ),
    ] {
        let files = [("lib.rs", root), ("a.rs", a), ("b/mod.rs", b), ("c.rs", c)];
        assert_eq!(found(&files).as_deref(), Some(expected), "{a} {c}");
    }
    for a in [
        "// use crate::b::B;",
        "const A: &str = \"crate::b::B\";",
        "#[cfg(test)] mod tests { use crate::b::B; }",
        "#[cfg(test)]\n#[path = \"x.rs\"]\nmod tests;",
        "use crate::c::C;",
        "fn f<'a>(x: &'a u8) { x.b(); self::b::f() }",
    ] {
        let files = [("lib.rs", root), ("a.rs", a), ("b/mod.rs", b), ("c.rs", "")];
        assert_eq!(found(&files), None, "{a}");
    }
    // Within one folder files may.
    let inside = [
        ("lib.rs", "mod a;"),
        ("a/mod.rs", "mod b; mod c;"),
        ("a/b.rs", "use super::c;"),
        ("a/c.rs", "use crate::a::b;"),
    ];
    assert_eq!(found(&inside), None);
}

/// Whether a file defines a function.
fn defines(source: &str, name: &str) -> bool {
    let tokens = tokens(source);
    (tokens.windows(2)).any(|two| two[0].1 == "fn" && two[1].1 == name)
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
            let source = read(path).expect(path);
            assert!(
                defines(&source, function),
                "docs/architecture.md: {path} has no function {function}"
            );
        }
    }
    assert!(functions > 50, "{functions} functions are named");
    for (name, there) in [("f", true), ("g", false), ("h", false), ("ff", false)] {
        let source = "fn f() {} // fn g() {}\nconst H: &str = \"fn h() {}\"; mod ff {}";
        assert_eq!(defines(source, name), there, "{name}");
    }
}

/// What a program is without: the simulator, properties for tests, and commands.
const NO_LIBRARIES: &[&str] = &["sim", "properties", "bench", "cli"];

/// Functions of `std::env` that read what whoever started the process has set.
const READS: &[&str] = &[
    "var", "var_os", "vars", "vars_os", "temp_dir", "home_dir", "*",
];

/// Lines that read the environment, or begin a command, which finds its program by it.
fn lines_that_trust(tokens: &[(usize, String)], commands: bool) -> Vec<usize> {
    let word = |i: usize| tokens.get(i).map_or("", |(_, token)| token.as_str());
    let trusts = |i: usize| match (word(i), word(i + 1)) {
        ("env", "::") if word(i + 2) == "{" => {
            let group = &tokens[i + 2..behind(tokens, i + 2)];
            group.iter().any(|(_, it)| READS.contains(&it.as_str()))
        }
        ("env", "::") => READS.contains(&word(i + 2)),
        ("env" | "Command", "as") => true,
        ("Command", "::") => commands && word(i + 2) == "new",
        ("getenv" | "secure_getenv" | "environ", _) => true,
        _ => false,
    };
    let all = (0..tokens.len()).filter(|&i| trusts(i));
    all.map(|i| tokens[i].0).collect()
}

/// A set-user-id program must not do as a variable says, and a new variable must not forget
/// that: there is one place that reads them.
#[test]
fn libraries_read_the_environment_in_one_place() {
    let names = ALLOWED
        .iter()
        .map(|(name, _)| name.trim_start_matches("portolan-"));
    for name in names.filter(|name| !NO_LIBRARIES.contains(name)) {
        let root = format!("{}/../{name}/src", env!("CARGO_MANIFEST_DIR"));
        let read = |file: &str| std::fs::read_to_string(format!("{root}/{file}")).ok();
        for (_, file, tokens) in files(&read) {
            if (name, file.as_str()) == ("sys", "environment.rs") {
                continue;
            }
            // To start ranks and tools is what `hosts` is there for.
            let lines = lines_that_trust(&tokens, name != "hosts");
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
        let root = format!("{}/../{name}/src", env!("CARGO_MANIFEST_DIR"));
        let read = |file: &str| std::fs::read_to_string(format!("{root}/{file}")).ok();
        for (_, file, tokens) in files(&read) {
            let words: Vec<&str> = tokens.iter().map(|(_, word)| word.as_str()).collect();
            let mut calls = words
                .windows(4)
                .filter(|it| [it[0], it[2], it[3]] == [".", "(", ")"]);
            let found = calls.find(|it| WAYS.contains(&it[1]));
            let instead = "use portolan_sys::children, or portolan_sys::signals::exec";
            assert_eq!(found, None, "{name}/src/{file}: {instead}");
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
        ("f(std::env::temp_dir)", &[1]),
        ("unsafe { libc::getenv(name) }", &[1]),
        ("let c = Command::new(it);", &[1]),
        (
            "env!(\"OUT_DIR\"); environment::var_os(name); env::args();",
            &[],
        ),
        (
            "#[cfg(test)]\nmod tests { fn f() { std::env::var(it) } }",
            &[],
        ),
        ("// std::env::var", &[]),
    ] {
        let tokens = without_tests(tokens(source));
        assert_eq!(lines_that_trust(&tokens, true), expected, "{source}");
    }
}
