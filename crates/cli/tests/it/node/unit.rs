//! The unit that systemd runs the service by: how little it leaves to it, and that
//! the service lives with that.

use std::collections::{BTreeMap, BTreeSet};

use super::service::{SERVICE, as_a_unit, takes_over};
use super::*;

const UNIT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../etc/portolan-node.service"
);
/// Numbers of the system calls.
const NUMBERS: &str = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h";

/// What the command of systemd says; none where it is not installed.
fn analyze(words: &[&str]) -> Option<Said> {
    match Command::new("systemd-analyze").args(words).output() {
        Ok(output) => Some(Said::from(output)),
        Err(error) => {
            eprintln!("*** NOT TESTED: systemd-analyze (install systemd): {error} ***");
            None
        }
    }
}

#[test]
fn the_unit_exposes_little() {
    // Tenths: 0.0 exposes nothing, 10.0 all.
    let words = ["security", "--offline=true", "--threshold=20", UNIT];
    if let Some(said) = analyze(&words) {
        said.expect(0);
    }
}

/// The names of calls in each group, which may name other groups.
fn groups(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut groups = BTreeMap::<String, Vec<String>>::new();
    let mut group = String::new();
    for line in text.lines() {
        let word = line.trim();
        if line.starts_with('@') {
            group = word.to_owned();
        } else if line.starts_with(' ') && !word.starts_with('#') {
            groups
                .entry(group.clone())
                .or_default()
                .push(word.to_owned());
        }
    }
    groups
}

fn expand(word: &str, groups: &BTreeMap<String, Vec<String>>) -> BTreeSet<String> {
    match groups.get(word) {
        Some(all) => all.iter().flat_map(|it| expand(it, groups)).collect(),
        None => BTreeSet::from([word.to_owned()]),
    }
}

/// What the unit's filter allows.
fn allowed(unit: &str, groups: &BTreeMap<String, Vec<String>>) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let lines = unit.lines();
    for words in lines.filter_map(|line| line.strip_prefix("SystemCallFilter=")) {
        let bare = words.strip_prefix('~');
        let words = bare.unwrap_or(words).split_whitespace();
        let these: BTreeSet<_> = words.flat_map(|word| expand(word, groups)).collect();
        match bare {
            None => all.extend(these),
            Some(_) => all.retain(|name| !these.contains(name)),
        }
    }
    all
}

/// A command that runs the one after it and lets it have these calls alone.
fn allowing(names: &BTreeSet<String>) -> [String; 3] {
    let header = fs::read_to_string(NUMBERS).unwrap();
    let number = |line: &str| {
        let (name, number) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
        names.contains(name).then(|| number.trim().to_owned())
    };
    // Others are of other architectures.
    let numbers: Vec<String> = header.lines().filter_map(number).collect();
    assert!(numbers.len() > 200, "{numbers:?}");
    let script = format!(
        "my @calls = ({}); \
         my $code = pack('SCCL', 0x20, 0, 0, 0); \
         $code .= pack('SCCL', 0x15, 0, 1, $_) . pack('SCCL', 0x06, 0, 0, 0x7fff0000) for @calls; \
         $code .= pack('SCCL', 0x06, 0, 0, 0x00050001); \
         my $program = pack('S x6 p', 2 * @calls + 2, $code); \
         syscall(157, 38, 1, 0, 0, 0) == 0 or die 'no_new_privs'; \
         syscall(157, 22, 2, $program) == 0 or die 'seccomp'; \
         exec @ARGV or die",
        numbers.join(",")
    );
    ["perl".to_owned(), "-e".to_owned(), script]
}

#[test]
fn the_service_lives_under_the_units_filter() {
    let Some(said) = analyze(&["syscall-filter", "--no-pager"]) else {
        return;
    };
    let unit = fs::read_to_string(UNIT).unwrap();
    let allowed = allowed(&unit, &groups(&said.expect(0).out));
    for (name, is_allowed) in [
        ("read", true),
        ("bpf", true),
        ("mount", false),
        ("ptrace", false),
    ] {
        assert_eq!(allowed.contains(name), is_allowed, "{name}");
    }
    let filter = allowing(&allowed);
    let script = as_a_unit();
    let by = [
        "sh", "-c", &script, "sh", &filter[0], &filter[1], &filter[2],
    ];
    let lab = TestLab::up(own("filter"), "2");
    let config = format!("users = {NAMED}");
    let mut nodes = ["h0", "h1"].map(|host| Node::under(&by, lab.0, host, &config, ""));
    let status = fs::read_to_string(format!("/proc/{}/status", nodes[0].child.id())).unwrap();
    for line in [format!("\nUid:\t{SERVICE}\t"), "\nSeccomp:\t2\n".to_owned()] {
        assert!(status.contains(&line), "{status}");
    }
    takes_over(&lab, &mut nodes[0], || {
        Node::under(&by, lab.0, "h0", &config, "")
    });
    nodes.iter_mut().for_each(|node| node.end(Signal::TERM));
}
