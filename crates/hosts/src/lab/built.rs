//! Labs for unit tests. They need root.

use std::path::PathBuf;
use std::process::Command;

use portolan_sys::children::Start;

use super::Lab;

/// A lab that the real command builds: it runs itself to set up hosts.
pub struct Built(pub Lab);

impl Built {
    /// Made for two hosts, with nothing else asked for.
    pub fn up(name: &str) -> Self {
        Self::with(name, &[])
    }

    /// Made with these options, for two hosts; the run of the tests is part of its
    /// name, for others may test at the same time.
    pub fn with(name: &str, options: &[&str]) -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "this test builds a lab of network namespaces and needs root: run the tests as \
             root (sudo -E env PATH=$PATH cargo test --workspace)"
        );
        let name = format!("{name}-{}", std::process::id());
        let up = ["lab", "up", &name, "--hosts", "2"];
        assert!(command(&[&up, options].concat()));
        Self(Lab::open(&name).unwrap())
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        command(&["lab", "down", self.0.name()]);
    }
}

pub(super) fn command(arguments: &[&str]) -> bool {
    let own = std::env::current_exe().unwrap();
    let path: PathBuf = own.parent().unwrap().parent().unwrap().join("portolan");
    assert!(
        path.exists(),
        "{} is missing: build it first",
        path.display()
    );
    Command::new(path)
        .args(arguments)
        .start_and_read()
        .unwrap()
        .status
        .success()
}
