//! A program of MPI, built by each MPI's own compiler and started by its own launcher: its
//! messages go over Portolan's provider, over TCP, or by what the MPI has itself.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Instant;

use portolan_hosts::failure::{Context, Failure, Result, fail};
use portolan_hosts::lab::{Lab, RemoteShell};
use portolan_hosts::mpi::{Job, Mpi, Variable};

use crate::peers::mpi::compile;
use crate::peers::nas::Nas;
use crate::peers::program::{Fastest, MARK, TIMEOUT, first_error, hear_of, launcher};

const SOURCE: &str = include_str!("mpi_probe.c");

/// Where messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MpiTransport {
    /// Portolan's provider.
    Portolan,
    /// The MPI's TCP: the fastest of what it has.
    Tcp,
    /// libfabric's provider for TCP.
    Provider,
    /// The MPI's own shared memory.
    Own,
}

type Words = &'static [(&'static str, &'static str)];

impl MpiTransport {
    /// Its name in rows, behind that of the MPI.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portolan => "portolan",
            Self::Tcp => "tcp",
            Self::Provider => "provider-tcp",
            Self::Own => "own",
        }
    }

    /// Settings of the MPI that are tried; the fastest are measured.
    fn variants(self, mpi: Mpi) -> &'static [Words] {
        const OWN_TCP: Words = &[("OMPI_MCA_pml", "ob1"), ("OMPI_MCA_btl", "self,tcp")];
        const OMPI_FI_TCP: Words = &[
            ("OMPI_MCA_pml", "cm"),
            ("OMPI_MCA_mtl", "ofi"),
            ("OMPI_MCA_mtl_ofi_provider_include", "tcp;ofi_rxm,tcp"),
            (
                "OMPI_MCA_opal_common_ofi_provider_include",
                "tcp;ofi_rxm,tcp",
            ),
            ("FI_PROVIDER", "tcp,ofi_rxm"),
        ];
        const FI_TCP: Words = &[
            ("MPIR_CVAR_CH4_NETMOD", "ofi"),
            ("MPIR_CVAR_NOLOCAL", "1"),
            ("FI_PROVIDER", "tcp"),
        ];
        // Ways of other names are looked at with each message, though none takes it. Open MPI 5
        // calls shared memory otherwise, so it is not named.
        const NO_NETWORK: (&str, &str) = ("OMPI_MCA_btl", "^tcp,ofi,uct,openib,usnic");
        match (self, mpi) {
            (Self::Portolan, _) => &[&[]],
            (Self::Tcp, Mpi::Openmpi) => &[OWN_TCP, OMPI_FI_TCP],
            (Self::Provider, Mpi::Openmpi) => &[OMPI_FI_TCP],
            (Self::Tcp | Self::Provider, _) => &[FI_TCP],
            // One copy by process_vm_readv where that is allowed, or two.
            (Self::Own, Mpi::Openmpi) => &[
                &[("OMPI_MCA_pml", "ob1"), NO_NETWORK],
                &[
                    ("OMPI_MCA_pml", "ob1"),
                    NO_NETWORK,
                    ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
                ],
            ],
            (Self::Own, _) => &[&[("FI_PROVIDER", "tcp")]],
        }
    }
}

/// An MPI with the program.
pub struct Probe {
    pub mpi: Mpi,
    launcher: PathBuf,
    /// A file without a name, which goes with this process.
    program: File,
}

impl Probe {
    /// Builds the program.
    ///
    /// # Errors
    /// The MPI is not installed or was built without libfabric, or its compiler fails.
    pub fn build(mpi: Mpi) -> Result<Self> {
        let launcher = mpi.launcher_for_portolan()?;
        let compiler = Mpi::compiler(&launcher);
        let name = format!("portolan-{}-{}", mpi.name(), std::process::id());
        let path = std::env::temp_dir().join(name);
        let built = compile(&compiler, SOURCE, &path);
        let program = File::open(&path);
        let _ = fs::remove_file(&path);
        let output = built.map_err(|error| {
            Failure::new(format!(
                "--mpi {}: cannot run {}: {error}: install the MPI's compiler",
                mpi.name(),
                compiler.display()
            ))
        })?;
        if !output.status.success() {
            return fail(format!(
                "--mpi {}: {} cannot build a program: {}; are the MPI's headers and libraries installed?",
                mpi.name(),
                compiler.display(),
                first_error(&output.stderr)
            ));
        }
        let program = program.context(format!("opening {}", path.display()))?;
        Ok(Self {
            mpi,
            launcher,
            program,
        })
    }
}

/// What is run.
#[derive(Debug)]
pub struct Run {
    /// As the program's first argument.
    pub what: &'static str,
    pub milliseconds: u64,
    pub sizes: Vec<usize>,
    pub ranks: u32,
    /// The program, where it is not ours.
    pub nas: Option<Nas>,
}

/// The program of an MPI over one of its ways.
pub struct Started<'a> {
    probe: &'a Probe,
    pub way: MpiTransport,
    /// What Portolan's provider takes.
    ours: Vec<Variable>,
    lab: Option<(&'a Lab, &'a RemoteShell)>,
    fastest: Fastest<(), Ran>,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Of each size, microseconds; of a program that is not ours, what it tells.
    pub told: Vec<f64>,
    /// From starting the launcher until it has ended, milliseconds.
    pub job_ms: f64,
}

impl Ran {
    /// What is compared.
    fn cost(&self) -> f64 {
        if self.told.is_empty() {
            return self.job_ms;
        }
        self.told.iter().map(|it| it.ln()).sum()
    }
}

impl<'a> Started<'a> {
    pub fn new(
        probe: &'a Probe,
        way: MpiTransport,
        ours: &[Variable],
        lab: Option<(&'a Lab, &'a RemoteShell)>,
    ) -> Self {
        let ours = if way == MpiTransport::Portolan {
            ours
        } else {
            &[]
        };
        Self {
            probe,
            way,
            ours: ours.to_vec(),
            lab,
            fastest: Fastest::new(),
        }
    }

    /// Which MPI it is.
    pub const fn mpi(&self) -> Mpi {
        self.probe.mpi
    }

    /// Its name in rows.
    pub fn name(&self) -> String {
        format!("{}-{}", self.probe.mpi.name(), self.way.name())
    }

    /// How it is run, in words.
    pub fn method(&self) -> String {
        let settings = self.way.variants(self.probe.mpi)[self.fastest.variant(())];
        let settings = settings.iter().map(|(name, to)| format!("{name}={to} "));
        format!(
            "{}{}",
            settings.collect::<String>(),
            self.probe.launcher.display()
        )
    }

    /// Runs it; the first time in all variants.
    ///
    /// # Errors
    /// It does not run, or prints no figures.
    pub fn run(&mut self, run: &Run) -> Result<Ran> {
        let mut fastest = std::mem::replace(&mut self.fastest, Fastest::new());
        let variants = self.way.variants(self.probe.mpi);
        let ran = fastest
            .of(
                (),
                variants.len(),
                |it| self.once(variants[it], run),
                Ran::cost,
            )
            .and_then(|chosen| {
                chosen.last = self.once(variants[chosen.variant], run)?;
                Ok(chosen.last.clone())
            });
        self.fastest = fastest;
        ran.context(self.name())
    }

    /// Our program and its arguments.
    fn own_program(&self, run: &Run) -> Vec<OsString> {
        let file = self.probe.program.as_raw_fd();
        let mut program = vec![
            format!("/proc/{}/fd/{file}", std::process::id()).into(),
            run.what.into(),
            run.milliseconds.to_string().into(),
        ];
        program.extend(run.sizes.iter().map(|size| size.to_string().into()));
        program
    }

    fn once(&self, settings: Words, run: &Run) -> Result<Ran> {
        let program: Vec<OsString> = match &run.nas {
            Some(nas) => vec![nas.program.clone().into()],
            None => self.own_program(run),
        };
        let settings = settings.iter().map(|(name, to)| (name.into(), to.into()));
        let hosts = self.lab.map(|(lab, _)| {
            let hosts = lab.hosts().min(run.ranks);
            let each = portolan_boot::launch::JobSpec::blocks(run.ranks, hosts);
            (0..)
                .zip(each)
                .map(|(host, ranks)| (format!("h{host}"), ranks))
                .collect()
        });
        let job = Job {
            mpi: self.probe.mpi,
            ranks: run.ranks,
            hosts: hosts.unwrap_or_default(),
            shell: self.lab.map(|(_, shell)| shell.path()),
            unbound: true,
            variables: settings.chain(self.ours.iter().cloned()).collect(),
            program: &program,
        };
        let machines = job.machine_file()?;
        let mut command = launcher(&self.probe.launcher, self.lab)?;
        command
            .args(job.arguments(machines.as_ref()))
            .envs(job.environment())
            // A bench is often run by root, which Open MPI refuses otherwise.
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        if let Some(nas) = &run.nas {
            command.current_dir(&nas.folder);
        }
        let started = Instant::now();
        let told = hear_of(&mut command, run.what, TIMEOUT, |output| {
            let text = String::from_utf8_lossy(&output.stdout);
            if run.nas.is_some() {
                return Nas::read(&text).map(Vec::from);
            }
            let line = text
                .lines()
                .find_map(|it| it.strip_prefix(MARK.trim_end()))?;
            let all: Vec<f64> = line
                .split_whitespace()
                .map_while(|it| it.parse().ok())
                .collect();
            let whole = all.len() == run.sizes.len() && output.status.success();
            whole.then_some(all)
        })?;
        let job_ms = started.elapsed().as_secs_f64() * 1e3;
        Ok(Ran { told, job_ms })
    }
}
