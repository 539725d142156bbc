//! Which folder's methods of a type call those of which other folder.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Source, sources, sources_of};
use super::uses::{Uses, WITHOUT_CIRCLES, circle};

/// Pairs of folders whose methods of a type call each other: crate, type, and the two folders
/// in alphabetical order. A pair that is new fails, and one that is gone is taken out.
const TWO_WAY: &[[&str; 4]] = &[];

/// For each type, which folder's methods call those of which other folder. `impl` blocks are
/// not bound to the folder of their type, so that imports do not show this.
fn calls(sources: &[Source]) -> BTreeMap<&str, Uses> {
    let mut folders: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for source in sources {
        for (of, method) in &source.methods {
            let known = folders.entry((of, method)).or_default();
            known.insert(source.folder());
        }
    }
    let mut all: BTreeMap<&str, Uses> = BTreeMap::new();
    for source in sources {
        for call in &source.calls {
            let defined = folders.get(&(&call.of[..], &call.method[..]));
            // A type of the same name in another folder is another type.
            let Some(defined) = defined.filter(|it| !it.contains(source.folder())) else {
                continue;
            };
            let uses = all.entry(&call.of).or_default();
            for to in defined {
                let (name, line, method) = (&source.name, call.line, &call.method);
                let example = format!("{name}:{line} calls {method} of {to}");
                uses.entry((*to).to_owned()).or_default();
                let known = uses.entry(source.folder().to_owned()).or_default();
                known.entry((*to).to_owned()).or_insert(example);
            }
        }
    }
    all
}

/// Pairs of folders that call each other, with an example of either direction.
fn two_way(uses: &Uses) -> BTreeMap<[&str; 2], [&str; 2]> {
    let ways = uses.iter().flat_map(|(from, to)| {
        let to = to.iter().filter(move |(to, _)| from < to);
        to.filter_map(move |(to, there)| {
            let back = uses[to].get(from)?;
            Some(([&from[..], &to[..]], [&there[..], &back[..]]))
        })
    });
    ways.collect()
}

/// What is wrong with the calls of a crate's methods. `known`: see [`TWO_WAY`].
fn complaints(name: &str, sources: &[Source], known: &[[&str; 4]]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut found = BTreeSet::new();
    for (of, uses) in calls(sources) {
        let pairs = two_way(&uses);
        if let (true, Some(circle)) = (pairs.is_empty(), circle(&uses)) {
            wrong.push(format!("{name}: {of}: a circle: {}", circle.join(", ")));
        }
        for ([a, b], [there, back]) in pairs {
            if !known.contains(&[name, of, a, b]) {
                wrong.push(format!("{name}: {of}: {a} and {b}: {there}, {back}"));
            }
            found.insert([of.to_owned(), a.to_owned(), b.to_owned()]);
        }
    }
    for [_, of, a, b] in known.iter().filter(|it| it[0] == name) {
        if !found.contains(&[of, a, b].map(|it| (*it).to_owned())) {
            wrong.push(format!(
                "{name}: {of}: {a} and {b}: take the pair out of TWO_WAY"
            ));
        }
    }
    wrong
}

#[test]
fn methods_call_those_of_other_folders_in_one_direction() {
    let all = WITHOUT_CIRCLES.iter();
    let wrong: Vec<_> = all
        .flat_map(|name| complaints(name, sources_of(name), TWO_WAY))
        .collect();
    assert!(wrong.is_empty(), "methods:\n  {}", wrong.join("\n  "));
}

#[test]
fn calls_both_ways_are_found_however_they_are_written() {
    let found = |a: &str, known: &[[&str; 4]]| {
        let read = |name: &str| {
            let text = match name {
                "lib.rs" => "mod a; mod b; mod c;",
                "a.rs" => a,
                "b.rs" => "mod d; impl T { pub fn b(&self) { self.a(); } fn own() {} }",
                "b/d.rs" => "impl T { fn d(&self) { self.b() } } impl U { fn b(&self) {} }",
                "c.rs" => "impl T { fn c(&self) { self.b() } }",
                _ => return None,
            };
            Some(text.to_owned())
        };
        complaints("m", &sources(&read), known)
    };
    let pair = "m: T: a and b: a.rs:1 calls b of b, b.rs:1 calls a of a";
    for a in [
        "impl T { fn a(&self) { self.b() } }",
        "impl<S: Seal> T<'_, S> { fn a(&self) { if x { f(|y| self.b()) } } }",
        "impl T { fn a(&self) { Self::b(self) } }",
        "impl T { fn a(&self) { x.map(T::b) } }",
        "impl T { fn a(&self) { assert!(matches!(self.b(), Some(x) if x), \"{x}\") } }",
        "impl Drop for T { fn drop(&mut self) { self.b() } } impl T { fn a(&self) {} }",
    ] {
        assert_eq!(found(a, &[]), [pair], "{a}");
        assert!(found(a, &[["m", "T", "a", "b"]]).is_empty(), "{a}");
    }
    let circle = "impl T { fn a(&self) { self.c() } }";
    let expected = "m: T: a circle: a.rs:1 calls c of c, c.rs:1 calls b of b, b.rs:1 calls a of a";
    assert_eq!(found(circle, &[]), [expected]);
    for a in [
        "impl T { fn a(&self) { self.a(); self.x.b(); T::new() } }",
        "impl T { fn a(&self) {} #[cfg(test)] fn t(&self) { self.b() } }",
        "impl T { fn a(&self) {} } #[cfg(test)] mod tests { impl T { fn t(&self) { self.b() } } }",
        "impl T { fn a(&self) {} } impl U { fn u(&self) { self.b() } }",
        "impl T { fn a(&self) {} } // self.b()",
    ] {
        assert!(found(a, &[]).is_empty(), "{a}: {:?}", found(a, &[]));
        let gone = found(a, &[["m", "T", "a", "b"], ["n", "T", "a", "b"]]);
        assert_eq!(gone, ["m: T: a and b: take the pair out of TWO_WAY"], "{a}");
    }
}
