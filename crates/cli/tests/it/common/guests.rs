//! What the tests of jobs under other launchers share.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::{c_program, example, executable};

/// The command that the processes of a host run as their agent.
pub const AGENT: (&str, &str) = ("PORTOLAN_AGENT", env!("CARGO_BIN_EXE_portolan"));
/// What is told of a process that was killed: how, where its parent had not
/// asked before the agent did.
pub const ENDED: [&str; 2] = ["its process ended", "signal 9"];
pub const RIGHT: &str = "the sum is right";
pub const CHECKED: &str = "every product was checked: all elements are right";
/// A product that is soon done.
pub const SMALL: [&str; 2] = ["--size", "64"];

/// The C examples, built once.
fn c_examples() -> &'static [String; 2] {
    static BUILT: OnceLock<[String; 2]> = OnceLock::new();
    BUILT.get_or_init(|| ["ring", "matmul"].map(|name| c_program(&format!("examples/c/{name}.c"))))
}

/// Each example with its arguments and what it says in the end.
pub fn programs() -> Vec<(Vec<String>, &'static str)> {
    let words = |program: String, more: &[&str]| {
        let more = more.iter().map(|word| (*word).to_owned());
        std::iter::once(program).chain(more).collect::<Vec<_>>()
    };
    let [c_ring, c_matmul] = c_examples().clone();
    vec![
        (words(example("ring"), &["50"]), RIGHT),
        (words(c_ring, &["50"]), RIGHT),
        (words(example("matmul"), &SMALL), CHECKED),
        (words(c_matmul, &SMALL), CHECKED),
    ]
}

pub fn as_words(program: &[String]) -> Vec<&str> {
    program.iter().map(String::as_str).collect()
}

/// A folder that is removed when its test ends, well or not.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = format!("/tmp/portolan-guest-{name}-{}", std::process::id());
        fs::create_dir(&path).unwrap();
        Self(path.into())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes a script that runs a program whose messages go to a file.
pub fn wrapper(path: &Path, program: &str, errors: &Path) -> String {
    let script = format!("exec {program} \"$@\" 2>>{}", errors.display());
    executable(path, &script);
    path.to_str().unwrap().to_owned()
}
