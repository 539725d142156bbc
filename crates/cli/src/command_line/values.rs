//! Random values of options, settings and files, many of which are nearly right.

use portolan_link::conformance::Random;

use portolan_hosts::failure::{Failure, Result};

/// Values that are tried of each kind.
const VALUES: u64 = 20_000;
/// What people write into all of them, and what they do not mean.
const PARTS: &[&str] = &[
    "",
    " ",
    ",",
    ",,",
    ":",
    "::",
    "=",
    "/",
    "#",
    "[",
    "]",
    "-",
    ".",
    "\t",
    "\n",
    "\r\n",
    "\0",
    "0",
    "1",
    "2",
    "-1",
    "4096",
    "4097",
    "1e9",
    "99",
    "18446744073709551616",
    "\u{feff}",
    "\u{1b}[2J",
    "\u{202e}",
    "é",
    "%s",
    "any",
    "all",
    "on",
    "off",
    "auto",
    "xdp",
];

/// A value of some of `words` and of parts that any value may have, with letters
/// changed here and there.
fn value(random: &mut Random, words: &[&str]) -> String {
    let mut bytes = Vec::new();
    for _ in 0..random.below(9) {
        let all = if random.below(2) == 0 { PARTS } else { words };
        bytes.extend(all[random.below(all.len())].as_bytes());
    }
    if random.below(500) == 0 {
        bytes = bytes.repeat(2_000);
    }
    for _ in 0..random.below(4) {
        if !bytes.is_empty() {
            let at = random.below(bytes.len());
            bytes[at] = random.draw() as u8;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Has `read` read random values, some of which are to be right and many wrong.
/// What is wrong is the user's fault, and said in a sentence of bounded length.
pub fn tried<T>(words: &[&str], read: impl Fn(&str) -> Result<T>) {
    let (mut right, mut wrong) = (0, 0);
    for seed in 0..VALUES {
        let value = value(&mut Random(seed), words);
        match read(&value) {
            Ok(_) => right += 1,
            Err(failure) => {
                wrong += 1;
                is_sentence(&failure, &value);
            }
        }
    }
    assert!(
        right > VALUES / 200 && wrong > VALUES / 10,
        "{right} {wrong}"
    );
}

fn is_sentence(failure: &Failure, value: &str) {
    let said = failure.to_string();
    assert_eq!(failure.code(), 2, "{value:?}: {said}");
    assert!(!said.contains(char::is_control), "{value:?}: {said:?}");
    // Twice the beginning and the end of a long text, escaped.
    assert!(said.len() > 8 && said.len() < 50_000, "{value:?}: {said}");
    let letters = said.chars().filter(|c| c.is_ascii_alphabetic()).count();
    assert!(letters > 8, "{value:?}: {said}");
}

#[test]
fn random_names_of_features_are_known_or_named() {
    use portolan_sys::features::{Disabled, FEATURES};
    let names: Vec<&str> = FEATURES.iter().map(|(name, _)| *name).collect();
    let words = [&names[..], &[", ", "gso,", "gso;cma", "GSO"]].concat();
    tried(&words, |value| {
        Disabled::parse(value).map_err(|error| Failure::usage(error.to_string()))
    });
}
