//! Programs of MPI over the provider for libfabric, started by `portolan run --mpi openmpi`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use super::{CLOSES_LATE, LIMIT, MARK, Said, newest_library, own_mark};

/// A folder with the command and the provider, as `make build` leaves it.
pub static TOOLS: LazyLock<PathBuf> = LazyLock::new(|| {
    let name = concat!("mpi-tree-", env!("CARGO_CRATE_NAME"));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&target);
    let release = target.join("release");
    fs::create_dir_all(&release).unwrap();
    let provider = newest_library("portolan_fi");
    fs::hard_link(provider, release.join("libportolan_fi.a")).unwrap();
    // It looks beside itself, so a symbolic link would not do.
    let portolan = env!("CARGO_BIN_EXE_portolan");
    fs::hard_link(portolan, release.join("portolan")).unwrap();
    let mut make = Command::new("make");
    make.args(["-C", concat!(env!("CARGO_MANIFEST_DIR"), "/../ofi")])
        .arg(format!("TARGET={}", target.display()))
        .env_remove("MAKEFLAGS");
    Said::from(make.output().unwrap()).expect(0);
    release
});

/// Point to point in a ring of wildcard receives, probes, children, collective operations.
pub const RING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../ofi/tests/mpi.py");
/// Python of Debian, which has mpi4py.
pub const PYTHON: &str = "/usr/bin/python3";

/// The command under test.
pub fn portolan(arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command
        .arg(LIMIT)
        .arg(TOOLS.join("portolan"))
        .args(arguments);
    command.envs([
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        CLOSES_LATE,
    ]);
    command.stdin(Stdio::null());
    command
}

/// Runs the command to its end.
pub fn say(arguments: &[&str]) -> Said {
    Said::from(portolan(arguments).output().unwrap())
}

/// A job that is to be started; its processes are marked with `mark`.
pub fn job(mark: &str, options: &[&str], program: &[&str]) -> Command {
    let words = [&["run", "--mpi", "openmpi"], options, &["--"], program].concat();
    let mut job = portolan(&words);
    job.env(MARK, own_mark(mark));
    job.stdout(Stdio::piped()).stderr(Stdio::piped());
    job
}
