//! MPIs of others: their launchers, and what has them use Portolan's provider for libfabric.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use portolan_sys::children::Start;
use portolan_sys::environment;

use crate::failure::{Failure, Result, fail};
use crate::nameless::Nameless;

/// The provider's file, as libfabric looks for it.
pub const PROVIDER: &str = "libportolan-fi.so";

/// An MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mpi {
    /// Open MPI 4.1 or 5
    Openmpi,
    /// MPICH with libfabric, which Debian's has not
    Mpich,
    /// Intel MPI
    Intel,
}

/// A variable and its value.
pub type Variable = (OsString, OsString);

impl Mpi {
    /// As options name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Openmpi => "openmpi",
            Self::Mpich => "mpich",
            Self::Intel => "intel",
        }
    }

    /// As people call it.
    const fn title(self) -> &'static str {
        match self {
            Self::Openmpi => "Open MPI",
            Self::Mpich => "MPICH",
            Self::Intel => "Intel MPI",
        }
    }

    /// What it may be called in `PATH`; the name that only it has comes last.
    const fn launchers(self) -> &'static [&'static str] {
        match self {
            Self::Openmpi => &["mpirun", "mpirun.openmpi"],
            Self::Mpich => &["mpiexec.hydra", "mpirun", "mpirun.mpich"],
            Self::Intel => &["mpiexec.hydra", "mpirun"],
        }
    }

    /// Whether this is how its launcher answers to `--version`.
    fn answers(self, version: &str) -> bool {
        let has = |words: &[&str]| words.iter().any(|it| version.contains(it));
        match self {
            Self::Openmpi => has(&["Open MPI", "OpenRTE"]),
            Self::Mpich => has(&["HYDRA"]),
            Self::Intel => has(&["Intel(R) MPI"]),
        }
    }

    /// The compiler for C that belongs to a launcher of it.
    pub fn compiler(launcher: &Path) -> PathBuf {
        let name = launcher.file_name().unwrap_or_default().to_string_lossy();
        // Debian's say whose they are.
        let of = name.split_once('.').map(|(_, of)| of);
        launcher.with_file_name(match of {
            Some(of) if of != "hydra" => format!("mpicc.{of}"),
            _ => "mpicc".to_owned(),
        })
    }

    /// Its launcher, the first in `PATH`.
    ///
    /// # Errors
    /// There is none.
    pub fn launcher(self) -> Result<PathBuf> {
        let path = environment::var_os("PATH").unwrap_or_default();
        let folders = || env::split_paths(&path);
        let all = folders().flat_map(|it| self.launchers().iter().map(move |name| it.join(name)));
        let mut others = false;
        let mut found = all.filter(|it| it.is_file());
        found
            .find(|it| {
                let is_ours = says(it, "--version").is_some_and(|it| self.answers(&it));
                others |= !is_ours;
                is_ours
            })
            .ok_or_else(|| {
                let (names, title) = (self.launchers().join(", "), self.title());
                let what = match others {
                    true => format!("none of the launchers in PATH ({names}) is that of {title}"),
                    false => format!("its launcher ({names}) is not in PATH"),
                };
                let name = self.name();
                let remedy = "install it, or put its folder bin into PATH";
                Failure::with_code(127, format!("--mpi {name}: {what}: {remedy}"))
            })
    }

    /// The same, where its programs can use Portolan.
    ///
    /// # Errors
    /// There is none, or it is an MPICH without libfabric: that would run, but over something
    /// else. Others fail by themselves.
    pub fn launcher_for_portolan(self) -> Result<PathBuf> {
        let launcher = self.launcher()?;
        if self == Self::Mpich && matches!(self.uses_libfabric(&launcher), Ok(false)) {
            return fail(format!(
                "--mpi {}: {} was built without libfabric and cannot use Portolan: put the folder \
                 bin of another one first into PATH",
                self.name(),
                launcher.display()
            ));
        }
        Ok(launcher)
    }

    /// Whether the MPI of a launcher can use libfabric, by what its own program says.
    ///
    /// # Errors
    /// The program does not run.
    pub fn uses_libfabric(self, launcher: &Path) -> Result<bool> {
        let (program, option, word) = match self {
            Self::Openmpi => ("ompi_info", "--parsable", "mca:mtl:ofi:"),
            // Its devices: "ch4:ofi", or several.
            Self::Mpich => ("mpichversion", "-d", "ofi"),
            Self::Intel => return Ok(true),
        };
        let program = launcher.with_file_name(program);
        let said = says(&program, option).ok_or_else(|| {
            Failure::new(format!("{} does not run, which says so", program.display()))
        })?;
        Ok(said.contains(word))
    }

    /// What has it take the provider in `folder`, and fail where it cannot. On one host
    /// MPICH keeps to shared memory of its own; `alone` forbids that.
    pub fn over_portolan(self, folder: &Path, alone: bool) -> Vec<Variable> {
        let own: &[(&str, &str)] = match self {
            Self::Openmpi => &[
                ("OMPI_MCA_pml", "cm"),
                ("OMPI_MCA_mtl", "ofi"),
                ("OMPI_MCA_mtl_ofi_provider_include", "portolan"),
                ("OMPI_MCA_opal_common_ofi_provider_include", "portolan"),
                // Debian leaves out what does one-sided communication by messages, too.
                ("OMPI_MCA_osc", "^ucx"),
            ],
            Self::Mpich if alone => &[("MPIR_CVAR_CH4_NETMOD", "ofi"), ("MPIR_CVAR_NOLOCAL", "1")],
            Self::Mpich => &[("MPIR_CVAR_CH4_NETMOD", "ofi")],
            // Its library is libfabric's own, with another list of providers.
            Self::Intel => &[("I_MPI_FABRICS", "ofi"), ("I_MPI_OFI_PROVIDER", "portolan")],
        };
        let provider = [("FI_PROVIDER", "portolan")];
        let all = own.iter().chain(&provider);
        all.map(|(name, value)| (name.into(), value.into()))
            .chain([("FI_PROVIDER_PATH".into(), folder.into())])
            .collect()
    }
}

/// What a program answers to an option. Both of its outputs are one pipe, since reading two
/// at once asks more of the kernel, and panics where that is forbidden.
fn says(program: &Path, option: &str) -> Option<String> {
    let (mut reader, writer) = std::io::pipe().ok()?;
    let mut command = Command::new(program);
    command.arg(option).stdin(Stdio::null());
    command.stdout(writer.try_clone().ok()?).stderr(writer);
    let mut child = command.start().ok()?;
    // It has the writing ends, too.
    drop(command);
    let mut said = Vec::new();
    let read = reader.read_to_end(&mut said);
    let _ = child.wait();
    read.ok()?;
    Some(String::from_utf8_lossy(&said).into_owned())
}

/// The folder of the provider, beside the command `own` or where it is installed.
///
/// # Errors
/// It is not there.
pub fn provider_folder(own: &Path) -> Result<PathBuf> {
    let beside = own.parent().unwrap_or(Path::new("/"));
    // Debian's packages have libraries by architecture.
    let triplet = format!("../lib/{}-linux-gnu/portolan", env::consts::ARCH);
    let places = [
        beside.to_owned(),
        beside.join("../lib/portolan"),
        beside.join(triplet),
    ];
    let found = places.iter().find(|it| it.join(PROVIDER).is_file());
    let found = found.and_then(|it| it.canonicalize().ok());
    found.ok_or_else(|| {
        let places = places.map(|it| it.display().to_string());
        Failure::new(format!(
            "there is no {PROVIDER} in {}: build it (make build), or install it",
            places.join(" or in ")
        ))
    })
}

/// Cores that this process may use.
fn cores() -> u32 {
    thread::available_parallelism().map_or(1, usize::from) as u32
}

/// A job of an MPI.
#[derive(Debug)]
pub struct Job<'a> {
    /// Whose launcher starts it.
    pub mpi: Mpi,
    /// Number of processes.
    pub ranks: u32,
    /// Hosts with the ranks of each, which together are all; without any this host has all.
    pub hosts: Vec<(String, u32)>,
    /// What reaches hosts in the place of ssh.
    pub shell: Option<PathBuf>,
    /// No process is bound to a core: the hosts of a lab have them in common.
    pub unbound: bool,
    /// What all ranks have in their environment.
    pub variables: Vec<Variable>,
    /// The program and its arguments.
    pub program: &'a [OsString],
}

impl Job<'_> {
    /// What the launcher has in its environment: it hands this on, but some name by name.
    pub fn environment(&self) -> Vec<Variable> {
        let own: &[(&str, &str)] = match self.mpi {
            // More ranks than cores are our user's choice.
            Mpi::Openmpi => &[
                ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
                ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
            ],
            Mpi::Intel if self.unbound => &[("I_MPI_PIN", "0")],
            Mpi::Mpich | Mpi::Intel => &[],
        };
        // It sees that ranks outnumber the cores of a host, but not that hosts have the same.
        let idle: &[(&str, &str)] = match self.mpi {
            Mpi::Openmpi if self.unbound && self.ranks > cores() => {
                &[("OMPI_MCA_mpi_yield_when_idle", "1")]
            }
            _ => &[],
        };
        // It refuses root, and only root can enter a lab.
        let root: &[(&str, &str)] = match (self.mpi, &self.shell) {
            (Mpi::Openmpi, Some(_)) => &[
                ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
                ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            ],
            _ => &[],
        };
        let own = own.iter().chain(idle).chain(root);
        let own = own.map(|(name, value)| (name.into(), value.into()));
        own.chain(self.variables.iter().cloned()).collect()
    }

    /// The number of ranks of each host for Intel's launcher. Its list of hosts takes names alone,
    /// and gives each as many ranks as it has cores.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn machine_file(&self) -> Result<Option<Nameless>> {
        if self.mpi != Mpi::Intel || self.hosts.is_empty() {
            return Ok(None);
        }
        let line = |(name, ranks): &(String, u32)| format!("{name}:{ranks}\n");
        Nameless::new(&self.hosts.iter().map(line).collect::<String>()).map(Some)
    }

    /// The launcher's arguments, with the [machine file](Self::machine_file).
    pub fn arguments(&self, machines: Option<&Nameless>) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        let mut add = |all: &[&OsStr]| words.extend(all.iter().map(|it| (*it).to_owned()));
        add(&["-n".as_ref(), self.ranks.to_string().as_ref()]);
        let hosts: Vec<String> = (self.hosts.iter())
            .map(|(name, ranks)| format!("{name}:{ranks}"))
            .collect();
        let hosts = hosts.join(",");
        match self.mpi {
            Mpi::Openmpi => {
                if !hosts.is_empty() {
                    add(&["--host".as_ref(), hosts.as_ref()]);
                }
                if let Some(shell) = &self.shell {
                    add(&["--mca".as_ref(), "plm_rsh_agent".as_ref(), shell.as_ref()]);
                }
                if self.unbound {
                    add(&["--bind-to".as_ref(), "none".as_ref()]);
                }
                for (name, _) in &self.variables {
                    add(&["-x".as_ref(), name]);
                }
            }
            Mpi::Mpich | Mpi::Intel => {
                if let Some(file) = machines {
                    add(&["-machinefile".as_ref(), file.path().as_ref()]);
                } else if !hosts.is_empty() {
                    add(&["-hosts".as_ref(), hosts.as_ref()]);
                }
                if let Some(shell) = &self.shell {
                    add(&["-launcher".as_ref(), "ssh".as_ref()]);
                    add(&["-launcher-exec".as_ref(), shell.as_ref()]);
                }
            }
        }
        words.extend_from_slice(self.program);
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_known_by_what_they_say() {
        for (mpi, says) in [
            (Mpi::Openmpi, "mpirun.openmpi (OpenRTE) 4.1.4"),
            (Mpi::Openmpi, "mpirun (Open MPI) 5.0.11"),
            (Mpi::Mpich, "HYDRA build details:\n    Version: 4.0.2"),
            (
                Mpi::Intel,
                "Intel(R) MPI Library for Linux* OS, Version 2021.18.1",
            ),
        ] {
            for other in [Mpi::Openmpi, Mpi::Mpich, Mpi::Intel] {
                assert_eq!(other.answers(says), other == mpi, "{other:?} {says}");
            }
        }
    }

    #[test]
    fn a_compiler_belongs_to_a_launcher() {
        for (launcher, compiler) in [
            ("/usr/bin/mpirun.openmpi", "/usr/bin/mpicc.openmpi"),
            ("/opt/bin/mpiexec.hydra", "/opt/bin/mpicc"),
            ("/opt/bin/mpirun", "/opt/bin/mpicc"),
        ] {
            assert_eq!(Mpi::compiler(Path::new(launcher)), Path::new(compiler));
        }
    }

    #[test]
    fn ranks_of_a_lab_that_outnumber_the_cores_yield_them() {
        let yields = |mpi, ranks, unbound| {
            let job = Job {
                mpi,
                ranks,
                hosts: Vec::new(),
                shell: None,
                unbound,
                variables: Vec::new(),
                program: &[],
            };
            let all = job.environment();
            all.iter().any(|it| it.0 == "OMPI_MCA_mpi_yield_when_idle")
        };
        assert!(yields(Mpi::Openmpi, cores() + 1, true));
        assert!(!yields(Mpi::Openmpi, cores(), true));
        assert!(!yields(Mpi::Openmpi, cores() + 1, false));
        assert!(!yields(Mpi::Mpich, cores() + 1, true));
    }

    #[test]
    fn a_job_names_its_hosts_and_variables() {
        let program: Vec<OsString> = ["prog", "-n"].map(Into::into).into();
        let of = |mpi, hosts: &[(&str, u32)]| {
            let job = Job {
                mpi,
                ranks: 3,
                hosts: hosts
                    .iter()
                    .map(|(name, n)| ((*name).to_owned(), *n))
                    .collect(),
                shell: (!hosts.is_empty()).then(|| PathBuf::from("/sh")),
                unbound: !hosts.is_empty(),
                variables: vec![("A".into(), "b".into())],
                program: &program,
            };
            let machines = job.machine_file().unwrap();
            let words = job.arguments(machines.as_ref()).join(OsStr::new(" "));
            let file = machines.as_ref().map(Nameless::path);
            let text = file.as_ref().map(|it| std::fs::read_to_string(it).unwrap());
            let file = file.map_or(String::new(), |it| it.display().to_string());
            let words = words.into_string().unwrap();
            words.replace(&file, &text.unwrap_or_default())
        };
        let hosts = [("h0", 2), ("h1", 1)];
        let more = "--host h0:2,h1:1 --mca plm_rsh_agent /sh --bind-to none";
        assert_eq!(
            of(Mpi::Openmpi, &hosts),
            format!("-n 3 {more} -x A prog -n")
        );
        let more = "-hosts h0:2,h1:1 -launcher ssh -launcher-exec /sh";
        assert_eq!(of(Mpi::Mpich, &hosts), format!("-n 3 {more} prog -n"));
        let more = "-machinefile h0:2\nh1:1\n -launcher ssh -launcher-exec /sh";
        assert_eq!(of(Mpi::Intel, &hosts), format!("-n 3 {more} prog -n"));
        assert_eq!(of(Mpi::Openmpi, &[]), "-n 3 -x A prog -n");
        assert_eq!(of(Mpi::Intel, &[]), "-n 3 prog -n");
    }
}
