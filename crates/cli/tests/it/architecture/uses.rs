//! Which folder of a crate uses which.

use std::collections::BTreeMap;

use super::source::{Source, sources, sources_of};

/// Crates whose folders must not use each other in circles.
pub const WITHOUT_CIRCLES: &[&str] = &["proto", "exchange", "engine", "runtime"];

/// Which module of a crate uses which, those right below its root: of each use an
/// example.
pub type Uses = BTreeMap<String, BTreeMap<String, String>>;

fn uses(sources: &[Source]) -> Uses {
    let (root, all) = sources.split_first().expect("lib.rs");
    // What the root hands on, and whose it is.
    let handed_on: BTreeMap<_, _> = (root.paths.iter())
        .filter_map(|path| {
            let owner = path.names.iter().find(|name| *name != "crate")?;
            Some((path.known_as.as_ref()?, owner))
        })
        .collect();
    let mut uses: Uses = (all.iter())
        .map(|source| (source.folder().to_owned(), BTreeMap::new()))
        .collect();
    for source in all {
        for path in source.paths.iter().filter(|path| path.names[0] == "crate") {
            let place = format!("{}:{}", source.name, path.line);
            let Some(first) = path.names.get(1).filter(|first| *first != "*") else {
                // `pub(crate)` is a path of its own.
                assert_eq!(path.known_as, None, "{place} uses all of the crate's root");
                continue;
            };
            let used = *handed_on.get(first).unwrap_or(&first);
            if used != source.folder() && uses.contains_key(used) {
                let example = format!("{place} uses {}", path.names[1..].join("::"));
                let known = uses.get_mut(source.folder()).expect("a module");
                known.entry(used.clone()).or_insert(example);
            }
        }
    }
    uses
}

/// A shortest circle, as the uses that close it.
pub fn circle(uses: &Uses) -> Option<Vec<String>> {
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
        let uses = uses(sources_of(name));
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
        circle(&uses(&sources(&read))).map(|circle| circle.join(", "))
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
        (
            "fn f(x: u8) { assert!(x > 1 && matches!(x, 0 | 9 if crate::b::f())) }",
            "",
            "a.rs:1 uses b::f, b/mod.rs:1 uses a::A",
        ),
        (
            "macro_rules! m { ($x:ty) => { impl A { fn f() -> $x { $crate::b::f() } } } }",
            "",
            "a.rs:1 uses b::f, b/mod.rs:1 uses a::A",
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
