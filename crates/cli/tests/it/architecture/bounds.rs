//! How many fields a structure of `proto` has, and over how many files a type's methods go.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Source, sources_of};

/// Most fields of a structure.
const FIELDS: usize = 26;
/// Structures with more. A count here may only fall.
const MORE_FIELDS: &[(&str, usize)] = &[];
/// Lists of settings and of counters, each of which is a field.
const LISTS: &[&str] = &["Config", "Counters"];

/// Most files with methods of one type.
const FILES: usize = 9;
/// Types with more. A count here may only fall.
const MORE_FILES: &[(&str, usize)] = &[];

type Counts<'a> = BTreeMap<&'a str, usize>;

fn fields(sources: &[Source]) -> Counts<'_> {
    let mut counts = Counts::new();
    for (name, fields) in sources.iter().flat_map(|source| &source.structures) {
        let count = counts.entry(name).or_default();
        *count = (*fields).max(*count);
    }
    counts
}

fn files(sources: &[Source]) -> Counts<'_> {
    let mut counts = Counts::new();
    for source in sources {
        let types: BTreeSet<_> = source.methods.iter().map(|it| &it.0).collect();
        for of in types {
            *counts.entry(of).or_default() += 1;
        }
    }
    counts
}

/// What is wrong with counts that may be up to `bound`, or up to what `known` has for them.
fn complaints(counts: &Counts, bound: usize, known: &[(&str, usize)]) -> Vec<String> {
    let known: Counts = known.iter().copied().collect();
    let grown = counts.iter().filter_map(|(name, &count)| {
        let most = *known.get(name).unwrap_or(&bound);
        (count > most).then(|| format!("{name}: {count}, at most {most}"))
    });
    let fallen = known.iter().filter_map(|(name, &most)| {
        let count = *counts.get(name).unwrap_or(&0);
        if count <= bound {
            return Some(format!("{name}: {count}: take it out of the table"));
        }
        (count < most).then(|| format!("{name}: {count}: write this in place of {most}"))
    });
    grown.chain(fallen).collect()
}

#[test]
fn structures_have_few_fields() {
    let mut counts = fields(sources_of("proto"));
    for name in LISTS {
        assert!(
            counts.remove(name).is_some(),
            "there is no structure {name}"
        );
    }
    let wrong = complaints(&counts, FIELDS, MORE_FIELDS);
    assert!(wrong.is_empty(), "fields:\n  {}", wrong.join("\n  "));
}

#[test]
fn methods_of_a_type_are_in_few_files() {
    let wrong = complaints(&files(sources_of("proto")), FILES, MORE_FILES);
    assert!(
        wrong.is_empty(),
        "files with methods:\n  {}",
        wrong.join("\n  ")
    );
}

#[test]
fn a_count_that_grew_is_found_and_one_that_fell() {
    let source = "struct A { a: u8, #[cfg(x)] b: u8 } struct B(u8, u8, u8); struct C;
        #[cfg(test)] mod tests { struct D { d: u8 } impl A { fn d() {} } }
        impl A { fn a() {} } impl A { fn b() {} } impl Drop for C { fn drop(&mut self) {} }";
    let sources = ["a.rs", "b.rs"].map(|name| Source::new(name, &[], source));
    let counts = fields(&sources);
    assert_eq!(counts, Counts::from([("A", 2), ("B", 3), ("C", 0)]));
    assert_eq!(files(&sources), Counts::from([("A", 2)]));
    for (bound, known, expected) in [
        (3, &[][..], &[][..]),
        (2, &[], &["B: 3, at most 2"]),
        (1, &[("A", 2), ("B", 3)], &[]),
        (1, &[("A", 2), ("B", 2)], &["B: 3, at most 2"]),
        (
            1,
            &[("A", 2), ("B", 4)],
            &["B: 3: write this in place of 4"],
        ),
        (
            2,
            &[("A", 3), ("B", 3)],
            &["A: 2: take it out of the table"],
        ),
        (3, &[("X", 9)], &["X: 0: take it out of the table"]),
    ] {
        assert_eq!(
            complaints(&counts, bound, known),
            expected,
            "{bound} {known:?}"
        );
    }
}
