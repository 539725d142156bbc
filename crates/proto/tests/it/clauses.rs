//! The numbered rules of `docs/protocol.md`, such as P4.3: the code that keeps one cites it in a
//! comment, and so does a test that fails without it.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Section of the page, and number within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rule(u32, u32);

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "P{}.{}", self.0, self.1)
    }
}

/// The rules that `text` names, as often as it does.
fn named(text: &str) -> Vec<Rule> {
    let starts = text.match_indices('P').filter(|(at, _)| {
        let before = text[..*at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    });
    let rules = starts.filter_map(|(at, _)| {
        let (section, rest) = text[at + 1..].split_once('.')?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        Some(Rule(section.parse().ok()?, rest[..digits].parse().ok()?))
    });
    rules.collect()
}

/// The rules that the page gives, `**P4.3**`, and what is wrong with their numbers.
fn given(page: &str) -> (BTreeSet<Rule>, Vec<String>) {
    let (mut rules, mut wrong, mut section) = (BTreeSet::new(), Vec::new(), 0);
    for line in page.lines() {
        if let Some((number, _)) = line.strip_prefix("## ").and_then(|l| l.split_once('.')) {
            section = number.parse().unwrap_or(0);
        }
        let bold = line.split("**").skip(1).step_by(2);
        for rule in bold.filter(|it| it.starts_with('P')).flat_map(named) {
            if rule.0 != section {
                wrong.push(format!("{rule} stands in section {section}"));
            }
            if !rules.insert(rule) {
                wrong.push(format!("{rule} is given twice"));
            }
        }
    }
    let gaps = rules
        .iter()
        .filter(|it| it.1 != 1 && !rules.contains(&Rule(it.0, it.1 - 1)));
    wrong.extend(gaps.map(|it| format!("{it} follows a gap")));
    (rules, wrong)
}

/// The comments of a source file: those of its code, and those of its tests.
fn comments(path: &str, source: &str) -> [String; 2] {
    let mut parts = [String::new(), String::new()];
    let is_test = |name: &str| matches!(name, "tests" | "tests.rs") || name.ends_with("_tests.rs");
    let mut test = path.split('/').any(is_test);
    let mut lines = source.lines().peekable();
    while let Some(line) = lines.next() {
        let next = lines.peek().map_or("", |next| next.trim_start());
        test |= line.trim() == "#[cfg(test)]" && next.contains("mod ") && next.ends_with('{');
        if let Some((_, comment)) = line.split_once("//") {
            parts[usize::from(test)] += comment;
            parts[usize::from(test)].push('\n');
        }
    }
    parts
}

/// The Rust files below a folder.
fn files(folder: &Path, all: &mut Vec<PathBuf>) {
    for path in fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()) {
        if path.is_dir() {
            files(&path, all);
        } else if path.extension().is_some_and(|it| it == "rs") {
            all.push(path);
        }
    }
}

#[test]
fn each_rule_is_cited_by_code_and_by_a_test() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(crates.join("../docs/protocol.md")).unwrap();
    let (rules, mut wrong) = given(&page);
    assert!(rules.len() >= 100, "{} rules", rules.len());
    let mut all = Vec::new();
    files(&crates, &mut all);
    let mut cited = [BTreeSet::new(), BTreeSet::new()];
    // This file names rules that there are not.
    for path in all.iter().filter(|it| !it.ends_with("it/clauses.rs")) {
        let name = path.strip_prefix(&crates).unwrap().to_string_lossy();
        let parts = comments(&name, &fs::read_to_string(path).unwrap()).map(|part| named(&part));
        let unknown = parts.iter().flatten().filter(|it| !rules.contains(it));
        wrong.extend(unknown.map(|rule| format!("{rule}, cited in {name}, is no rule")));
        cited
            .iter_mut()
            .zip(parts)
            .for_each(|(c, part)| c.extend(part));
    }
    for (cited, what) in cited.iter().zip(["code", "test"]) {
        let missing = rules.difference(cited);
        wrong.extend(missing.map(|rule| format!("no {what} cites {rule}")));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn rules_are_found_and_told_apart() {
    let found = |text: &str| named(text).iter().map(Rule::to_string).collect::<Vec<_>>();
    assert_eq!(
        found("P4.3 (P4.12, P10.1). P4.3"),
        ["P4.3", "P4.12", "P10.1", "P4.3"]
    );
    assert_eq!(found("XP4.3 P4 P.3 4.3 P4.x UDP4.3"), [""; 0]);
    let page = "such as P9.9\n## 2. A\n**P2.1** x\n| **P2.2** | **other** |\n## 10. B\n**P10.1** y";
    let all = BTreeSet::from([Rule(2, 1), Rule(2, 2), Rule(10, 1)]);
    assert_eq!(given(page), (all, Vec::new()));
    let (_, wrong) = given("## 2. A\n**P2.2** **P2.2** **P3.1**");
    let expected = [
        "P2.2 is given twice",
        "P3.1 stands in section 2",
        "P2.2 follows a gap",
    ];
    assert_eq!(wrong, expected);
    let source = "/// P1.1\nfn a() {} // P1.2\nP1.3\n#[cfg(test)]\nmod tests {\n    /// P1.4\n}";
    let of = |path, source| comments(path, source).map(|part| found(&part));
    assert_eq!(
        of("x/src/a.rs", source),
        [vec!["P1.1", "P1.2"], vec!["P1.4"]]
    );
    assert_eq!(
        of("x/src/a.rs", "#[cfg(test)]\nmod tests;\n// P1.1"),
        [vec!["P1.1"], vec![]]
    );
    for path in [
        "x/tests/it/a.rs",
        "x/src/tests.rs",
        "x/src/a_tests.rs",
        "x/src/a/tests/b.rs",
    ] {
        assert_eq!(of(path, "// P1.1"), [vec![], vec!["P1.1"]], "{path}");
    }
}
