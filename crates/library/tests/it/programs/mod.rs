//! What tests of C interfaces have in common: the library that programs are
//! linked with, and jobs of two processes that run them.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use portolan_boot::LinkChoice;
use portolan_boot::launch::{JobSpec, RankPlace, Running, SharedMemory, Starter};
use portolan_link::shm::{Segment, SegmentConfig};

/// What Rust's standard library needs of the system.
pub const SYSTEM: [&str; 4] = ["-lgcc_s", "-lpthread", "-lm", "-ldl"];

/// What the command prints.
pub fn succeeds(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Whether programs are to be C++ as well: `make check` does without where there
/// is no compiler for it, and says so.
pub fn with_cxx() -> bool {
    std::env::var_os("PORTOLAN_TEST_WITHOUT_CXX").is_none()
}

/// The static library that was built along with this test.
pub fn library() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let built = |path: &PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    fs::read_dir(exe.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with("libportolan_library-") && name.ends_with(".a")
        })
        .max_by_key(built)
        .expect("cargo builds the static library with the crate")
}

/// Processes of one program.
struct Programs<'a> {
    program: &'a Path,
    mode: &'a str,
    /// What their environment has beside ours.
    variables: &'a [(&'a str, &'a str)],
    /// Where their errors go, if it is not where ours go.
    errors: Option<&'a File>,
}

impl Starter for Programs<'_> {
    fn segment(&mut self, _host: u16, ranks: u32) -> io::Result<SharedMemory> {
        let other = |e: &dyn std::fmt::Display| io::Error::other(e.to_string());
        let segment = Segment::create(ranks, &SegmentConfig::default()).map_err(|e| other(&e))?;
        let descriptor = segment.duplicate_fd().map_err(|e| other(&e))?;
        Ok(SharedMemory {
            descriptor,
            mark_dead: Box::new(move |index| segment.mark_dead(index)),
        })
    }

    fn command(&mut self, _place: &RankPlace) -> Command {
        let mut command = Command::new(self.program);
        command.arg(self.mode).stdin(Stdio::null());
        // On a busy machine a close may take long.
        command.env("PORTOLAN_CLOSE_MS", "60000");
        command.envs(self.variables.iter().copied());
        if let Some(errors) = self.errors {
            command.stderr(errors.try_clone().unwrap());
        }
        command
    }

    fn started(&mut self, _place: &RankPlace, _pid: u32) {}
}

/// Runs a program, with one argument, as a job of two over each link; both
/// processes must end well.
pub fn run_pair(program: &Path, mode: &str) {
    for link in [LinkChoice::Auto, LinkChoice::Udp] {
        let (code, told) = run(program, mode, 2, link, None);
        let name = program.display();
        assert_eq!(code, 0, "{name} {mode} over {link:?}: {told}");
    }
}

/// Runs a program as a job of so many; gives its exit code, and what the launcher told.
pub fn run(
    program: &Path,
    mode: &str,
    ranks: u32,
    link: LinkChoice,
    errors: Option<&File>,
) -> (i32, String) {
    let spec = JobSpec {
        link,
        ..JobSpec::new(vec![ranks])
    };
    run_job(program, mode, spec, &[], errors)
}

/// The same of any job, with these variables beside those of this process.
pub fn run_job(
    program: &Path,
    mode: &str,
    spec: JobSpec,
    variables: &[(&str, &str)],
    errors: Option<&File>,
) -> (i32, String) {
    let mut starter = Programs {
        program,
        mode,
        variables,
        errors,
    };
    let mut told = Vec::new();
    let mut tell = |event| told.push(event);
    let job = Running::start(spec, &mut starter, Vec::new(), &mut tell).unwrap();
    let code = job.wait(&mut starter, &mut tell).unwrap();
    (code, format!("{told:?}"))
}
