//! Host ports of processes without a common launcher: those of a user that name
//! one group share a queue.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use portolan_sys::children::Start;
use portolan_sys::environment;
use portolan_sys::features::{DISABLE_VARIABLE, Disabled};
use rustix::process::geteuid;

use super::client::{NodeError, NodeService, TIMEOUT};
use super::{ON_DEMAND_WORDS, READY, RUNS_ALREADY};
use crate::host::fnv;
use crate::host_port::HostPort;

/// Most processes of a group with host ports at a time: 20 MiB of packet memory
/// are locked for them when the first comes, twice as much with long packets.
const GROUP_PORTS: u32 = 8;

/// Pause between two attempts to reach a service that ends or begins.
const PAUSE: Duration = Duration::from_millis(5);

/// Variables that identify this process's job, by launcher: all of these that are set.
const JOBS: [&[&str]; 3] = [
    &["PMI_JOBID"],
    &["PMIX_NAMESPACE"],
    &["SLURM_JOB_ID", "SLURM_STEP_ID"],
];

/// Returns the group of this process: the one that is `named`, else its launcher's job, else all
/// processes of its user that are in no job.
#[must_use]
pub fn group_of(named: Option<&str>) -> u64 {
    group_among(named, environment::var_os)
}

fn group_among(named: Option<&str>, variable: impl Fn(&str) -> Option<OsString>) -> u64 {
    if let Some(named) = named {
        return fnv(&[b"group", named.as_bytes()]);
    }
    let set = |name: &&'static str| {
        let value = variable(name).filter(|it| !it.is_empty())?;
        Some([name.as_bytes().to_vec(), value.into_encoded_bytes()])
    };
    let mut jobs = JOBS
        .iter()
        .map(|names| names.iter().filter_map(set).flatten());
    let parts = jobs.find_map(|job| Some(job.collect::<Vec<_>>()).filter(|it| !it.is_empty()));
    let parts = parts.unwrap_or_default();
    fnv(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// Asks for a host port for a process of `group`, as [`NodeService::host_port`] does. For root,
/// where no service runs at `path`, `program` is started as one; it ends with its last host port.
///
/// # Errors
/// [`NodeError`].
pub fn host_port_of(
    path: &Path,
    program: Option<&OsStr>,
    at: Option<IpAddr>,
    group: u64,
    disabled: &Disabled,
) -> Result<HostPort, NodeError> {
    let until = Instant::now() + TIMEOUT;
    let program = program.filter(|_| geteuid().is_root());
    loop {
        let service = NodeService::connect(path);
        let asked = service.and_then(|it| it.host_port(at, GROUP_PORTS, Some(group), disabled));
        match (asked, program) {
            (asked, _) if Instant::now() >= until => return asked,
            (Err(NodeError::Absent(_)), Some(program)) => start(program, path)?,
            // The service has just ended.
            (Err(NodeError::Gone), _) => {}
            (asked, _) => return asked,
        }
        sleep(PAUSE);
    }
}

/// Runs `program` as a service at `path`, which others may do at the same time; returns when one of
/// these listens, or the program has ended.
fn start(program: &OsStr, path: &Path) -> Result<(), NodeError> {
    let failed = |why: String| NodeError::NotStarted(program.to_string_lossy().into_owned(), why);
    let run = || -> io::Result<(UnixStream, Child)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(TIMEOUT))?;
        let mut command = environment::command(program)?;
        command
            .args(ON_DEMAND_WORDS)
            .arg(path)
            // The service also serves other processes.
            .env_remove(DISABLE_VARIABLE)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(OwnedFd::from(theirs));
        Ok((ours, command.start()?))
    };
    let (said, mut starter) = run().map_err(|error| failed(error.to_string()))?;
    let lines = BufReader::new(said).lines();
    let mut lines = lines.map_while(Result::ok).fuse();
    let first = lines.next();
    let tells = |line: &String| line.contains(READY) || line.contains(RUNS_ALREADY);
    let runs = first.iter().any(tells) || lines.any(|line| tells(&line));
    // The service runs detached: a process that is still there is not one. The
    // program may itself have waited for all its children.
    let _ = starter.kill();
    let _ = starter.wait();
    let why = || first.unwrap_or_else(|| "it says nothing".to_owned());
    runs.then_some(()).ok_or_else(|| failed(why()))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_group_is_the_one_named_else_the_launchers_job_else_the_user() {
        let of = |named, set: &[(&str, &str)]| {
            let find = |name: &str| set.iter().find(|(known, _)| *known == name);
            group_among(named, |name| find(name).map(|(_, value)| value.into()))
        };
        let pmi = [
            ("PMI_JOBID", "9"),
            ("PMIX_NAMESPACE", "9"),
            ("SLURM_JOB_ID", "9"),
        ];
        let step = |id| [("SLURM_JOB_ID", "9"), ("SLURM_STEP_ID", id)];
        let all = [
            of(None, &[]),
            of(Some("9"), &pmi),
            of(Some("8"), &pmi),
            of(None, &pmi),
            of(None, &pmi[1..]),
            of(None, &pmi[2..]),
            of(None, &step("1")),
            of(None, &step("2")),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "{at}: {all:x?}");
        }
        assert_eq!(of(Some("9"), &[]), all[1]);
        assert_eq!(of(None, &pmi[..1]), all[3]);
        assert_eq!(of(None, &[("PMI_JOBID", "")]), all[0]);
    }

    #[test]
    fn a_program_that_is_no_service_is_told_with_its_own_words() {
        let told = |program: &str| {
            let path = Path::new("/nowhere/node.sock");
            start(OsStr::new(program), path).unwrap_err().to_string()
        };
        let why = told("/nowhere/portolan");
        assert!(
            why.contains("No such file") && why.contains("setting agent"),
            "{why}"
        );
        assert!(told("true").contains("it says nothing"));
        assert!(told("ls").contains("node"));
        // The wait for it has an end.
        let stays = std::env::temp_dir().join(format!("portolan-stays-{}", std::process::id()));
        fs::write(&stays, "#!/bin/sh\nexec sleep 1000\n").unwrap();
        fs::set_permissions(&stays, Permissions::from_mode(0o700)).unwrap();
        assert!(told(stays.to_str().unwrap()).contains("it says nothing"));
        fs::remove_file(stays).unwrap();
    }
}
