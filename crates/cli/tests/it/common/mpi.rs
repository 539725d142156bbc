//! Programs of MPI over the provider for libfabric, started by `portolan run --mpi openmpi`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use super::{CLOSES_LATE, MARK, Said, built, newest_library, own_mark};

/// A folder with the command and the provider, as `make build` leaves it.
pub static TOOLS: LazyLock<PathBuf> = LazyLock::new(|| {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mpi-tree");
    let library = newest_library("portolan_fi");
    built(&target, "ofi", &library, "libportolan_fi.a")
});

/// Point to point in a ring of wildcard receives, probes, children, collective operations.
pub const RING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../ofi/tests/mpi.py");
/// Python of Debian, which has mpi4py.
pub const PYTHON: &str = "/usr/bin/python3";

/// How long a job may take, seconds. Ranks of MPI poll while they wait: beside a busy program on
/// each core a message waits for several turns, and seconds become minutes.
const LIMIT: &str = "500";

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
