//! Peers that are programs of others: found, run by their own launchers, and
//! tried in all their variants until it is known which is the fastest here.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use portolan_hosts::failure::{Context, Failure, Result, fail};
use portolan_hosts::lab::{Lab, RemoteShell};
use portolan_hosts::ranks::{RANK_COMMAND, check_program};
use portolan_sys::children::Start;
use portolan_sys::clock::now_ns;
use rustix::process::{Pid, Signal, kill_process};

/// What rank 0 of a job prints begins with it.
pub const MARK: &str = "portolan-bench ";
/// Longest that one run may take.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// So long it has to end when it is asked to.
const GRACE: Duration = Duration::from_secs(10);

/// Which variant of a program is the fastest, case by case, and what its last
/// run gave.
pub struct Fastest<C, T>(Vec<Choice<C, T>>);

/// That of a case.
pub struct Choice<C, T> {
    case: C,
    /// Its place among the variants.
    pub variant: usize,
    /// What its last run gave.
    pub last: T,
}

impl<C: Copy + PartialEq, T> Fastest<C, T> {
    /// Nothing is known yet.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// That of a case. The first time each of so many variants is tried by `run`;
    /// the one with the smallest `figure` is chosen. Those that do not run are
    /// left out, unless none does.
    ///
    /// # Errors
    /// That of the last variant, where none runs.
    pub fn of(
        &mut self,
        case: C,
        variants: usize,
        run: impl Fn(usize) -> Result<T>,
        figure: impl Fn(&T) -> f64,
    ) -> Result<&mut Choice<C, T>> {
        let known = self.0.iter().position(|choice| choice.case == case);
        let place = known.unwrap_or(self.0.len());
        if known.is_none() {
            let mut best: Option<Choice<C, T>> = None;
            let mut trouble = None;
            for variant in 0..variants {
                match run(variant) {
                    Ok(last)
                        if best
                            .as_ref()
                            .is_none_or(|it| figure(&last) < figure(&it.last)) =>
                    {
                        best = Some(Choice {
                            case,
                            variant,
                            last,
                        });
                    }
                    Ok(_) => {}
                    Err(failure) => trouble = Some(failure),
                }
            }
            let best = best.ok_or_else(|| trouble.expect("there is a variant"))?;
            self.0.push(best);
        }
        Ok(&mut self.0[place])
    }

    /// The variant that was chosen; the first where none was.
    pub fn variant(&self, case: C) -> usize {
        let mut all = self.0.iter();
        all.find(|it| it.case == case).map_or(0, |it| it.variant)
    }
}

/// Whether the peer's programs are installed; each with the package that brings it.
///
/// # Errors
/// One is not.
pub fn check_installed(peer: &str, programs: &[(&str, &str)]) -> Result<()> {
    let path = std::env::var_os("PATH");
    for (program, package) in programs {
        check_program(program.as_ref(), path.as_deref()).map_err(|_| {
            Failure::new(format!(
                "--vs {peer}: there is no program {program} in PATH; install it (Debian: apt install {package}) or leave {peer} out"
            ))
        })?;
    }
    Ok(())
}

/// A program that ends with this process.
pub fn ends_with_us(program: impl AsRef<OsStr>) -> Result<Command> {
    let own = std::env::current_exe().context("finding the portolan command")?;
    let mut command = Command::new(own);
    command
        .args([RANK_COMMAND, "--parent", &std::process::id().to_string()])
        .arg("--")
        .arg(program)
        .stdin(Stdio::null());
    Ok(command)
}

/// A launcher that ends with this process: here, or on the first host of a lab, from where it
/// reaches the others.
pub fn launcher(program: &Path, lab: Option<(&Lab, &RemoteShell)>) -> Result<Command> {
    let Some((lab, shell)) = lab else {
        return ends_with_us(program);
    };
    let own = std::env::current_exe().context("finding the portolan command")?;
    let mut command = ends_with_us(own)?;
    command.args(["lab", "exec", lab.name(), "h0", "--"]);
    command.arg(program).envs(shell.variables());
    Ok(command)
}

/// A launcher's job.
pub struct Ran {
    started_ns: u64,
    /// What its rank 0 printed.
    pub told: f64,
    ended_ns: u64,
}

impl Ran {
    /// From its start until the time that rank 0 told, and until its end,
    /// milliseconds.
    pub fn times_ms(&self) -> [f64; 2] {
        [
            (self.told - self.started_ns as f64) / 1e6,
            (self.ended_ns - self.started_ns) as f64 / 1e6,
        ]
    }
}

/// Runs a launcher to its end, and times that; errors name it as `what`.
pub fn launch(command: &mut Command, what: &str) -> Result<Ran> {
    let started_ns = now_ns();
    let told = hear_of(command, what, TIMEOUT, told)?;
    let [told] = told;
    Ok(Ran {
        started_ns,
        told,
        ended_ns: now_ns(),
    })
}

/// Runs a program to its end, for `timeout` at most; `read` finds in what it
/// gave what is wanted.
pub fn hear_of<T>(
    command: &mut Command,
    what: &str,
    timeout: Duration,
    read: impl Fn(&Output) -> Option<T>,
) -> Result<T> {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .start()
        .context(what)?;
    let Some(output) = wait(child, timeout)? else {
        return fail(format!(
            "{what} does not end within {} s",
            timeout.as_secs()
        ));
    };
    read(&output).ok_or_else(|| {
        let (status, why) = (output.status, one_line(&output.stderr));
        Failure::new(if status.success() {
            format!("{what} ran, and did not print the figures that are expected of it: {why}")
        } else {
            format!("{what} cannot run here ({status}): {why}")
        })
    })
}

/// What a program said, in one line.
fn one_line(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let lines = said.lines().map(str::trim).filter(|it| !it.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

/// Why a compiler has failed, in one line: its first error, or all that it said.
pub fn first_error(said: &[u8]) -> String {
    let all = String::from_utf8_lossy(said);
    let error = all.lines().find(|line| line.contains("error"));
    error.map_or_else(|| one_line(said), |line| line.trim().to_owned())
}

/// What `child` printed; `None` if it had to be ended after `timeout`.
pub fn wait(mut child: Child, timeout: Duration) -> Result<Option<Output>> {
    if ends_within(&mut child, timeout)? {
        return Ok(Some(child.wait_with_output()?));
    }
    // A launcher that is asked takes its processes and files with it.
    kill_process(Pid::from_child(&child), Signal::TERM)?;
    if !ends_within(&mut child, GRACE)? {
        child.kill()?;
        child.wait()?;
    }
    Ok(None)
}

/// Whether `child` has ended by then.
fn ends_within(child: &mut Child, timeout: Duration) -> Result<bool> {
    let began = Instant::now();
    while child.try_wait()?.is_none() {
        if began.elapsed() > timeout {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(true)
}

/// So many numbers that rank 0 printed.
pub fn told<const N: usize>(output: &Output) -> Option<[f64; N]> {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix(MARK))?;
    let numbers = line.split_whitespace().map(str::parse);
    let numbers: Vec<f64> = numbers.collect::<std::result::Result<_, _>>().ok()?;
    numbers.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_rank_0_is_found() {
        let said = |text: &str| {
            let output = Command::new("printf").args(["%s", text]).output().unwrap();
            told::<1>(&output)
        };
        assert_eq!(said("noise\nportolan-bench 123456\n"), Some([123_456.0]));
        assert_eq!(said("portolan-bench 1 2\n"), None);
        assert_eq!(said("portolan-bench\n"), None);
        assert_eq!(said(""), None);
    }

    #[test]
    fn who_does_not_end_is_asked_first() {
        let file = std::env::temp_dir().join(format!("portolan-asked-{}", std::process::id()));
        let script = format!(
            "trap 'echo > {}; exit' TERM; while :; do sleep 0.01; done",
            file.display()
        );
        let run = |script: &str| Command::new("sh").args(["-c", script]).spawn().unwrap();
        let timeout = Duration::from_millis(500);
        assert!(wait(run(&script), timeout).unwrap().is_none());
        assert!(file.exists(), "it was not asked");
        std::fs::remove_file(&file).unwrap();
        assert!(wait(run("exit 3"), TIMEOUT).unwrap().is_some());
    }

    #[test]
    fn the_fastest_that_runs_is_kept() {
        let mut fastest = Fastest::new();
        let times = [Some(3.0), None, Some(1.0), Some(2.0)];
        let run = |variant: usize| match times[variant] {
            Some(us) => Ok(us),
            None => fail("it does not run"),
        };
        let chosen = fastest.of('a', 4, run, |us| *us).unwrap();
        assert_eq!((chosen.variant, chosen.last), (2, 1.0));
        // It is not tried again.
        let never = |_| -> Result<f64> { panic!("it is known") };
        fastest.of('a', 4, never, |us| *us).unwrap().last = 9.0;
        assert_eq!((fastest.variant('a'), fastest.variant('b')), (2, 0));
        assert!(fastest.of('b', 1, |_| fail("no"), |us| *us).is_err());
    }
}
