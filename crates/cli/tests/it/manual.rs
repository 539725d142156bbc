//! Man pages and completions have what `--help` and the C headers have, and are
//! pages that readers of man pages understand.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{portolan, say};

/// Commands that `portolan --help` names.
fn commands() -> Vec<String> {
    let help = say(&["--help"]).expect(0).out;
    let (_, list) = help.split_once("Commands:\n").unwrap();
    list.lines()
        .take_while(|line| !line.is_empty())
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .filter(|name| name != "help")
        .collect()
}

/// The pages, written to a folder of this test's own.
fn written(name: &str) -> (PathBuf, BTreeSet<String>) {
    let directory = tempdir(name);
    say(&["man", directory.to_str().unwrap()]).expect(0);
    let pages = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    (directory, pages)
}

#[test]
fn every_command_has_a_page_and_no_hidden_one_has() {
    let (directory, pages) = written("man");
    for command in commands() {
        assert!(
            pages.contains(&format!("portolan-{command}.1")),
            "{command}"
        );
    }
    for page in [
        "portolan.1",
        "portolan-lab-up.1",
        "bspcc.1",
        "bspcxx.1",
        "bsprun.1",
    ] {
        assert!(pages.contains(page), "{page}");
    }
    assert!(
        !pages.iter().any(|page| page.contains("internal")),
        "{pages:?}"
    );
    let run = fs::read_to_string(directory.join("portolan-run.1")).unwrap();
    for part in ["Number of ranks", "Exit code", "EXAMPLES", "SEE ALSO"] {
        assert!(run.contains(part), "{part}: {run}");
    }
    fs::remove_dir_all(directory).unwrap();
}

/// Functions that a header declares, as `grep` finds them.
fn declared(header: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(header);
    let text = fs::read_to_string(path).unwrap();
    let calls = text
        .lines()
        .filter(|line| !line.starts_with([' ', '/', '#', '}']));
    let calls = calls.filter(|line| !line.starts_with("typedef"));
    calls
        .filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next())
        .map(ToOwned::to_owned)
        .collect()
}

#[test]
fn every_call_has_a_page_that_says_what_its_header_says() {
    let (directory, pages) = written("calls");
    let mut calls = 0;
    for header in [
        "portolan/include/portolan.h",
        "portolan/include/portolan_matched.h",
        "portolan/include/portolan_onesided.h",
        "atoll/include/atoll.h",
        "bsp/include/bsp.h",
        "bsp/include/mcbsp.h",
    ] {
        let file = header.rsplit('/').next().unwrap();
        assert!(pages.contains(&format!("{file}.3")), "{file}");
        for call in declared(header) {
            calls += 1;
            let page = directory.join(format!("{call}.3"));
            let mut text = fs::read_to_string(&page).unwrap_or_else(|_| panic!("{call}"));
            if let Some(other) = text.strip_prefix(".so man3/") {
                text = fs::read_to_string(directory.join(other.trim())).unwrap();
            }
            assert!(text.contains(&format!("{call}(")), "{call}: {text}");
            assert!(text.contains(&format!("#include <{file}>")), "{call}");
        }
    }
    assert!(calls > 100, "{calls}");
    fs::remove_dir_all(directory).unwrap();
}

/// Nothing is wrong with a page by the word of two readers.
#[test]
fn pages_are_without_warnings() {
    let (directory, pages) = written("lint");
    let whole: Vec<PathBuf> = pages
        .iter()
        .map(|page| directory.join(page))
        .filter(|page| !fs::read_to_string(page).unwrap().starts_with(".so"))
        .collect();
    assert!(whole.len() > 50, "{whole:?}");
    let said = Command::new("mandoc")
        .args(["-T", "lint", "-W", "warning"])
        .args(&whole)
        .output()
        .expect("mandoc is installed: make test-deps");
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success() && text.is_empty(), "{text}");
    let said = Command::new("man")
        .args([
            "--warnings=w",
            "--encoding=UTF-8",
            "--local-file",
            "--troff-device=utf8",
            "--ditroff",
        ])
        .args(&whole)
        .env("MANROFFSEQ", "")
        .env("MANWIDTH", "80")
        .env("LC_ALL", "C.UTF-8")
        .output()
        .expect("man is installed: make test-deps");
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success() && text.is_empty(), "{text}");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn pages_bear_the_date_that_is_asked_for() {
    let directory = tempdir("dated");
    let write = |epoch: &str| {
        let mut command = portolan(&["man", directory.to_str().unwrap()]);
        command.env("SOURCE_DATE_EPOCH", epoch).output().unwrap()
    };
    assert!(write("951782400").status.success());
    for page in ["portolan.1", "portolan.7", "portolan_send.3"] {
        let text = fs::read_to_string(directory.join(page)).unwrap();
        assert!(text.contains(" 2000-02-29 "), "{page}");
    }
    let said = write("yesterday");
    assert_eq!(said.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&said.stderr).contains("SOURCE_DATE_EPOCH"));
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn completions_name_every_command_and_no_hidden_one() {
    for shell in ["bash", "zsh", "fish"] {
        let text = say(&["completions", shell]).expect(0).out;
        for command in commands() {
            assert!(text.contains(&command), "{shell}: {command}");
        }
        assert!(!text.contains("internal"), "{shell}");
    }
}

#[test]
fn where_nothing_can_be_written_the_place_is_named() {
    say(&["man", "/proc/nowhere"]).complains(&["/proc/nowhere"]);
}

fn tempdir(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    path
}
