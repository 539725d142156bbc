//! Random command lines of all commands, many of which are nearly right.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::{Command, CommandFactory};
use portolan_link::conformance::Random;

use super::{Answer, read};

/// Command lines that are tried.
const LINES: u64 = 50_000;
/// Words that mean something somewhere, and words that mean nothing anywhere.
const WORDS: &[&str] = &[
    "",
    "-",
    "--",
    "---",
    "-n",
    "-np",
    "-x",
    "-v",
    "--=",
    "=",
    ",",
    ":",
    "0",
    "1",
    "2",
    "-1",
    "1e9",
    "18446744073709551616",
    "1Q",
    "64K",
    "99999999999G",
    "a,b",
    "h0:2",
    "h0:0",
    ",,,",
    "10.0.0.0/99",
    "all",
    "eth0",
    "udp",
    "upd",
    "xdp",
    "none",
    "on",
    "NAME=VALUE",
    "=x",
    "true",
    "/",
    "/dev/null",
    "/no/such",
    "./program",
    "\u{1b}[31m",
    "two\nlines",
    "%s%n",
    "${HOME}",
    "*",
    "\u{feff}",
    "ünï",
    "--help=x",
    "--set",
    "--json",
    "--no-such-option",
];

fn one_in(random: &mut Random, times: usize) -> bool {
    random.below(times) == 0
}

fn one_of<'a, T>(random: &mut Random, all: &'a [T]) -> &'a T {
    &all[random.below(all.len())]
}

/// A command's own name with those of what it is below, and its options.
struct Known {
    path: Vec<String>,
    options: Vec<String>,
}

fn known(command: &Command, path: &[String], all: &mut Vec<Known>) {
    let long = |arg: &clap::Arg| arg.get_long().map(|name| format!("--{name}"));
    let short = |arg: &clap::Arg| arg.get_short().map(|name| format!("-{name}"));
    all.push(Known {
        path: path.to_vec(),
        options: command
            .get_arguments()
            .flat_map(|arg| long(arg).into_iter().chain(short(arg)))
            .collect(),
    });
    for below in command.get_subcommands() {
        known(below, &[path, &[below.get_name().to_owned()]].concat(), all);
    }
}

/// A word, perhaps with a letter more, less or changed, or with bytes that are
/// no text.
fn spoil(random: &mut Random, word: &str) -> OsString {
    let mut bytes = word.as_bytes().to_vec();
    if one_in(random, 4) && !bytes.is_empty() {
        let at = random.below(bytes.len());
        match random.below(4) {
            0 => drop(bytes.remove(at)),
            1 => bytes.insert(at, b'e'),
            2 => bytes[at] = b'q',
            _ => bytes[at] = 0xff,
        }
    }
    OsString::from_vec(bytes)
}

fn line(random: &mut Random, all: &[Known]) -> Vec<OsString> {
    let mut words = vec![OsString::from("portolan")];
    let known = one_of(random, all);
    for name in &known.path {
        words.push(if one_in(random, 20) {
            spoil(random, name)
        } else {
            name.into()
        });
    }
    for _ in 0..random.below(7) {
        let word = if known.options.is_empty() || one_in(random, 2) {
            one_of(random, WORDS)
        } else {
            one_of(random, &known.options).as_str()
        };
        words.push(spoil(random, word));
        if one_in(random, 6) {
            let value = one_of(random, WORDS);
            let mut last = words.pop().unwrap_or_default();
            last.push("=");
            last.push(value);
            words.push(last);
        }
    }
    words
}

/// Each is understood, answered by help, or refused in one sentence that names
/// a remedy; none panics.
#[test]
fn random_command_lines_are_answered_in_a_sentence() {
    let mut command = crate::Arguments::command();
    command.build();
    let mut all = Vec::new();
    known(&command, &[], &mut all);
    let (mut right, mut wrong) = (0_u64, 0_u64);
    for seed in 0..LINES {
        let words = line(&mut Random(seed), &all);
        match read::<crate::Arguments>(&mut command, &words) {
            Ok(_) => right += 1,
            Err(Answer::Help(_)) => {}
            Err(Answer::Wrong(failure)) => {
                wrong += 1;
                let said = failure.to_string();
                assert_eq!(failure.code(), 2, "{words:?}: {said}");
                assert!(!said.contains(char::is_control), "{words:?}: {said:?}");
                assert!(
                    said.contains("; `portolan") && said.ends_with("--help` tells more"),
                    "{words:?}: {said}"
                );
                assert!(said.len() < 1_000, "{words:?}: {said}");
            }
        }
    }
    assert!(wrong > LINES / 2 && right > LINES / 50, "{right} {wrong}");
}
