//! Any BSPlib as a peer, ours too: the probe, a plain program, built by its
//! `bspcc` and run by its `bsprun`.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use portolan_hosts::failure::{Context, Result, fail};
use portolan_hosts::lab::{Lab, RemoteShell};
use portolan_sys::children::Start;

use crate::experiment::wrong;
use crate::peers::program::{TIMEOUT, first_error, hear_of, launcher};

const SOURCE: &str = include_str!("../../../../examples/bsp/probe.c");

/// Figures that the probe prints, in their order, with how it gets each.
pub const FIGURES: [(&str, &str); 9] = [
    ("r_mflop_s", "a daxpy of 1,024 doubles in each process"),
    ("l_us", "an empty superstep"),
    (
        "exchange_us",
        "a superstep in which each process puts 8 bytes to each other one",
    ),
    (
        "g_word_us",
        "4,096 puts of 8 bytes to scattered places of all others, less an empty superstep, over \
         their number",
    ),
    (
        "g_mb_s",
        "bytes of a process, over a superstep in which each puts 1 MiB to its right neighbour",
    ),
    ("g_hp_mb_s", "the same by bsp_hpput"),
    (
        "total_exchange_us",
        "a superstep in which each process puts 64 KiB to each other one",
    ),
    (
        "scattered_us",
        "a superstep with 100,000 puts of 8 bytes to scattered places of the right neighbour",
    ),
    (
        "whole_us",
        "a superstep with one put of 800,000 bytes to the right neighbour",
    ),
];

/// A BSPlib that can be run.
pub struct Bsplib {
    name: String,
    launcher: PathBuf,
    /// The probe: a file without a name, which goes with this process.
    program: File,
}

impl Bsplib {
    /// Builds the probe with the BSPlib whose commands are in `folder`, or in the
    /// folder `bin` in there; errors call it `name`.
    ///
    /// # Errors
    /// Its commands are not there; its compiler fails.
    pub fn build(name: &str, folder: &Path) -> Result<Self> {
        let find = |command: &str| {
            let mut places = [folder.join(command), folder.join("bin").join(command)].into_iter();
            match places.find(|path| path.is_file()) {
                Some(path) => Ok(path),
                None => wrong(format!(
                    "{name}: there is no {command} in {}, nor in its folder bin",
                    folder.display()
                )),
            }
        };
        let (compiler, launcher) = (find("bspcc")?, find("bsprun")?);
        let room = std::env::temp_dir().join(format!("portolan-{name}-{}", std::process::id()));
        fs::create_dir(&room).context(format!("making {}", room.display()))?;
        let program = compile(&compiler, &room);
        let _ = fs::remove_dir_all(&room);
        Ok(Self {
            program: program.context(format!("{name}: {}", compiler.display()))?,
            name: name.to_owned(),
            launcher,
        })
    }

    /// Runs it once, for so many milliseconds a figure; `options` are its
    /// launcher's. With a lab it is started on the first host, and is told by variables of
    /// MPIs how to reach the others. Gives all figures.
    ///
    /// # Errors
    /// It does not run, or does not print them.
    pub fn run(
        &self,
        options: &[String],
        processes: u32,
        ms: u64,
        lab: Option<(&Lab, &RemoteShell)>,
    ) -> Result<[f64; 9]> {
        let (own, program) = (std::process::id(), self.program.as_raw_fd());
        let mut command = launcher(&self.launcher, lab)?;
        if lab.is_some() {
            // The hosts of a lab have memory in common, which hosts have not.
            command.env("UCX_TLS", "tcp,self");
        }
        command
            .args(options)
            .args(["-n", &processes.to_string()])
            .arg(format!("/proc/{own}/fd/{program}"))
            .arg(ms.to_string())
            // Below many a BSPlib is Open MPI. It refuses root otherwise, and more
            // processes than cores.
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        let what = format!("{}: the probe with {processes} processes", self.name);
        hear_of(&mut command, &what, TIMEOUT, told)
    }
}

/// The program, opened.
fn compile(compiler: &Path, room: &Path) -> Result<File> {
    let [source, program] = ["probe.c", "probe"].map(|name| room.join(name));
    fs::write(&source, SOURCE)?;
    let output = Command::new(compiler)
        .args(["-O2", "-o"])
        .args([&program, &source])
        .start_and_read()?;
    if !output.status.success() {
        let why = first_error(&output.stderr);
        return fail(format!("cannot build a program: {why}"));
    }
    Ok(File::open(&program)?)
}

/// All figures, from lines "NAME VALUE"; many a launcher puts the process's number
/// before them.
fn told(output: &Output) -> Option<[f64; 9]> {
    let text = String::from_utf8_lossy(&output.stdout);
    let mut figures = [0.0; 9];
    for ((name, _), figure) in FIGURES.iter().zip(&mut figures) {
        let value = text.lines().find_map(|line| {
            let mut words = line.split_whitespace().rev();
            let value = words.next();
            value.filter(|_| words.next() == Some(name))
        });
        *figure = value?.parse().ok().filter(|it: &f64| it.is_finite())?;
    }
    output.status.success().then_some(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str, code: u8) -> Option<[f64; 9]> {
        let script = format!("cat; exit {code}");
        let mut command = Command::new("sh");
        let output = command.args(["-c", &format!("printf '%s' '{text}'; {script}")]);
        told(&output.stdin(std::process::Stdio::null()).output().unwrap())
    }

    #[test]
    fn all_figures_are_found_or_none() {
        let mut lines = FIGURES.map(|(name, _)| format!("{name} 2.5\n"));
        lines[1].insert_str(0, "[0] ");
        let text = format!("noise\n{}", lines.concat());
        assert_eq!(said(&text, 0), Some([2.5; 9]));
        assert_eq!(said(&text, 1), None);
        assert_eq!(said(&text.replace("\ng_mb_s 2.5", ""), 0), None);
        assert_eq!(said(&text.replace("l_us 2.5", "l_us nan"), 0), None);
    }

    #[test]
    fn what_has_no_compiler_or_a_broken_one_is_named_and_leaves_nothing() {
        let folder = std::env::temp_dir().join(format!("portolan-bspcc-{}", std::process::id()));
        fs::create_dir_all(folder.join("bin")).unwrap();
        let build = || Bsplib::build("lib-a", &folder).err().unwrap().to_string();
        assert!(build().contains("there is no bspcc in"), "{}", build());
        std::os::unix::fs::symlink("/bin/false", folder.join("bin/bspcc")).unwrap();
        assert!(build().contains("there is no bsprun in"), "{}", build());
        std::os::unix::fs::symlink("/bin/false", folder.join("bin/bsprun")).unwrap();
        assert!(build().contains("cannot build"), "{}", build());
        fs::remove_dir_all(&folder).unwrap();
        let room = std::env::temp_dir().join(format!("portolan-lib-a-{}", std::process::id()));
        assert!(!room.exists());
    }
}
