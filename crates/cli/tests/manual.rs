//! Man pages and completions have what `--help` has.

mod common;

use std::collections::BTreeSet;
use std::fs;

use common::say;

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

#[test]
fn every_command_has_a_page_and_no_hidden_one_has() {
    let directory = tempdir("man");
    say(&["man", directory.to_str().unwrap()]).expect(0);
    let pages: BTreeSet<String> = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    for command in commands() {
        assert!(
            pages.contains(&format!("portolan-{command}.1")),
            "{command}"
        );
    }
    assert!(pages.contains("portolan.1") && pages.contains("portolan-lab-up.1"));
    assert!(
        !pages.iter().any(|page| page.contains("internal")),
        "{pages:?}"
    );
    let run = fs::read_to_string(directory.join("portolan-run.1")).unwrap();
    assert!(
        run.contains("Number of ranks") && run.contains("Exit code"),
        "{run}"
    );
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

fn tempdir(name: &str) -> std::path::PathBuf {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    path
}
