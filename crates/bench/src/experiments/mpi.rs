//! Programs of MPI over Portolan's provider, beside the same MPI over TCP and by its own
//! shared memory, and beside our own tag-matched messages.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use portolan_boot::LinkChoice;
use portolan_hosts::choices::{Bytes, value_name};
use portolan_hosts::failure::{Context, Result};
use portolan_hosts::lab::{Lab, RemoteShell};
use portolan_hosts::mpi::{Mpi, Variable, provider_folder};

use crate::experiment::{Experiment, Findings, Stage, rounds, wrong};
use crate::experiments::external_mpi::once;
use crate::options::Common;
use crate::pace::Timed;
use crate::peers::mpi_probe::{MpiTransport, Probe, Ran, Run, Started};
use crate::peers::nas::Nas;
use crate::peers::netpipe::Buffers;
use crate::ranks::matched::{Act, ExchangeSlice};
use crate::report::dimensions::Dimension;
use crate::report::stats::Series;
use crate::report::table::{Ratio, Row};

/// Length of a size's slice, milliseconds, where it was not asked for.
const SLICE_MS: u64 = 40;
/// Most processes.
const RANKS_MAX: u32 = 256;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// Time of a message one way: half of a round trip
    Pingpong,
    /// Messages of one process to another, 64 or 16 MB under way, answered once
    Bandwidth,
    /// The same, messages a second
    Rate,
    /// Time of an MPI_Allreduce (sum of doubles)
    Allreduce,
    /// Time of an MPI_Alltoall
    Alltoall,
    /// Time of an MPI_Bcast
    Bcast,
    /// Time from starting the launcher until it has ended, of a program that does nothing
    Start,
    /// Time of a program of the NAS Parallel Benchmarks (--nas), and how much of it is spent
    /// in calls of MPI
    Nas,
}

impl What {
    /// As the program takes it.
    const fn name(self) -> &'static str {
        match self {
            Self::Pingpong => "pingpong",
            Self::Bandwidth => "bandwidth",
            Self::Rate => "rate",
            Self::Allreduce => "allreduce",
            Self::Alltoall => "alltoall",
            Self::Bcast => "bcast",
            Self::Start => "start",
            Self::Nas => "nas",
        }
    }

    /// What is told of each size, or of the whole.
    const fn metrics(self) -> &'static [&'static str] {
        match self {
            Self::Pingpong => &["latency_us"],
            Self::Bandwidth => &["bandwidth_mb_s"],
            Self::Rate => &["rate_msg_s"],
            Self::Allreduce => &["allreduce_us"],
            Self::Alltoall => &["alltoall_us"],
            Self::Bcast => &["bcast_us"],
            Self::Start => &["job_ms"],
            Self::Nas => &["nas_s", "nas_mpi_s"],
        }
    }

    /// Sizes where none were asked for, bytes.
    const fn sizes(self) -> &'static [usize] {
        match self {
            Self::Pingpong => &[8, 65_536, 1 << 20],
            Self::Bandwidth => &[1 << 20],
            Self::Rate | Self::Allreduce | Self::Bcast => &[8],
            Self::Alltoall => &[8, 4096],
            Self::Start | Self::Nas => &[],
        }
    }

    /// The figure of messages of so many bytes that take so long.
    fn figure(self, size: usize, us: f64) -> f64 {
        match self {
            Self::Bandwidth => size as f64 / us,
            Self::Rate => 1e6 / us,
            _ => us,
        }
    }
}

/// What stands beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Beside {
    /// The same MPI over TCP: the fastest of its ways
    Tcp,
    /// The same MPI over libfabric's provider for TCP
    ProviderTcp,
    /// The same MPI by its own shared memory
    Own,
    /// Tag-matched messages of the native interface
    Native,
}

/// As it was asked for.
#[derive(Args)]
pub struct Asked {
    #[command(flatten)]
    pub common: Common,
    /// MPIs, whose launchers are in PATH
    #[arg(long, value_enum, value_name = "MPI[,MPI...]", value_delimiter = ',', default_values_t = [Mpi::Openmpi])]
    mpi: Vec<Mpi>,
    /// What to measure
    #[arg(long, value_enum, default_value = "pingpong")]
    what: What,
    /// Bytes of a message [default: by what is measured]
    #[arg(long, value_name = "BYTES[,BYTES...]", value_delimiter = ',')]
    size: Vec<Bytes>,
    /// Number of processes
    #[arg(short = 'n', long, value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u32).range(2..=i64::from(RANKS_MAX)))]
    ranks: u32,
    /// Peers to benchmark against in the same run
    #[arg(long, value_enum, value_name = "PEER[,PEER...]", value_delimiter = ',')]
    vs: Vec<Beside>,
    /// For --what nas: a program of the NAS Parallel Benchmarks 3.4, built by the compiler of
    /// the MPI, such as bin/mg.W.x
    #[arg(long, value_name = "FILE")]
    nas: Option<PathBuf>,
}

/// A figure of a size, or of the whole.
type Column = (Option<usize>, &'static str);

/// A system's figures, by size.
struct Figures {
    name: String,
    method: String,
    of_size: Vec<Series>,
}

impl Figures {
    fn rows(&self, base: &Row, columns: &[Column]) -> Vec<Row> {
        let all = columns.iter().zip(&self.of_size);
        let row = |((size, metric), series): (&Column, &Series)| {
            let row = Row {
                system: self.name.clone(),
                ..base.clone()
            };
            let row = row.at_some(Dimension::Size, *size);
            row.figure(metric, series, self.method.as_str())
        };
        all.filter_map(row).collect()
    }

    fn over(&self, other: &Self, base: &Row, columns: &[Column]) -> Vec<Ratio> {
        let all = columns.iter().zip(self.of_size.iter().zip(&other.of_size));
        let ratio = |((size, metric), (ours, theirs)): (&Column, (&Series, &Series))| {
            let row = Row {
                system: self.name.clone(),
                ..base.clone()
            };
            let row = row.at_some(Dimension::Size, *size);
            row.over(metric, ours, &other.name, theirs)
        };
        all.filter_map(ratio).collect()
    }
}

impl Asked {
    fn sizes(&self) -> Result<Vec<usize>> {
        let asked: Vec<usize> = self.size.iter().map(|Bytes(size)| *size).collect();
        match self.what {
            What::Start | What::Nas if !asked.is_empty() => wrong(format!(
                "--what {} has no sizes: leave out --size",
                self.what.name()
            )),
            what if asked.is_empty() => Ok(what.sizes().to_vec()),
            What::Allreduce if asked.iter().any(|size| size % 8 > 0) => {
                wrong("--what allreduce adds doubles: give multiples of 8 bytes")
            }
            _ if asked.iter().any(|size| !(1..=1 << 28).contains(size)) => {
                wrong("--size: give 1 byte to 256M")
            }
            _ => Ok(once(&asked)),
        }
    }

    /// The ways of each MPI, ours first.
    fn ways(&self, lab: Option<&Lab>) -> Result<Vec<MpiTransport>> {
        let mut ways = vec![MpiTransport::Portolan];
        for beside in once(&self.vs) {
            ways.push(match beside {
                Beside::Tcp => MpiTransport::Tcp,
                Beside::ProviderTcp => MpiTransport::Provider,
                Beside::Own if lab.is_some() => {
                    return wrong(
                        "--vs own is shared memory, and a lab's hosts have none in common",
                    );
                }
                Beside::Own => MpiTransport::Own,
                Beside::Native if self.what != What::Pingpong || self.ranks != 2 => {
                    return wrong("--vs native measures --what pingpong of 2 processes");
                }
                Beside::Native => continue,
            });
        }
        Ok(ways)
    }

    /// The program that is not ours.
    fn nas(&self) -> Result<Option<Nas>> {
        match (&self.nas, self.what) {
            (None, What::Nas) => wrong(
                "--what nas runs a program of the NAS Parallel Benchmarks: build it by the MPI's \
                 compiler, and give its file: --nas bin/mg.W.x",
            ),
            (Some(_), What::Nas) if once(&self.mpi).len() > 1 => {
                wrong("--nas is a program of one MPI: give one to --mpi")
            }
            (Some(program), What::Nas) => Nas::new(program).map(Some),
            (Some(_), _) => wrong("--nas is for --what nas"),
            (None, _) => Ok(None),
        }
    }

    /// What has an MPI take our provider, as it was asked for.
    fn ours(&self, mpi: Mpi, shm: bool) -> Result<Vec<Variable>> {
        let own = std::env::current_exe().context("finding the portolan command")?;
        let folder = provider_folder(&own)?;
        let settings = self.common.standalone_settings(shm);
        let settings = settings.into_iter().map(|(name, value)| {
            let name = format!("PORTOLAN_{}", name.to_uppercase());
            (name.into(), value.into())
        });
        let mut all: Vec<Variable> = settings.collect();
        all.push(("PORTOLAN_AGENT".into(), own.into()));
        all.extend(mpi.over_portolan(&folder, true));
        Ok(all)
    }
}

impl Experiment for Asked {
    fn run(&self, stage: &mut Stage) -> Result<Findings> {
        let lab = stage.lab.clone();
        let sizes = self.sizes()?;
        let nas = self.nas()?;
        let ways = self.ways(lab.as_ref())?;
        let link = self.common.spec(lab.as_ref(), self.ranks)?.link;
        let shm = link == LinkChoice::Shm;
        let shell = lab.as_ref().map(RemoteShell::new).transpose()?;
        let place = lab.as_ref().zip(shell.as_ref());
        let probes = once(&self.mpi).into_iter().map(Probe::build);
        let probes = probes.collect::<Result<Vec<_>>>()?;
        let mut systems: Vec<Started> = Vec::new();
        for probe in &probes {
            let ours = self.ours(probe.mpi, shm)?;
            let of = |way: &MpiTransport| Started::new(probe, *way, &ours, place);
            systems.extend(ways.iter().map(of));
        }
        let run = Run {
            what: self.what.name(),
            milliseconds: self.common.slice_ns(SLICE_MS * 1_000_000) / 1_000_000,
            sizes: sizes.clone(),
            ranks: self.ranks,
            nas,
        };
        let of_size = |size: Option<usize>| self.what.metrics().iter().map(move |it| (size, *it));
        let columns: Vec<Column> = match self.what {
            What::Start | What::Nas => of_size(None).collect(),
            _ => sizes.iter().flat_map(|size| of_size(Some(*size))).collect(),
        };
        let empty = || {
            columns
                .iter()
                .map(|_| Series::default())
                .collect::<Vec<_>>()
        };
        let mut all: Vec<Vec<Series>> = systems.iter().map(|_| empty()).collect();
        let with_native = self.vs.contains(&Beside::Native);
        let mut native: Vec<Timed> = sizes.iter().map(|_| Timed::new()).collect();
        rounds(self.common.slices(), |counts| {
            for (system, series) in systems.iter_mut().zip(&mut all) {
                let ran = system.run(&run)?;
                let values = self.values(&sizes, &ran);
                let slots = series.iter_mut().filter(|_| counts);
                slots.zip(values).for_each(|(it, value)| it.keep(value, 1));
            }
            if with_native {
                let spec = self.common.spec(lab.as_ref(), 2)?;
                stage.job(spec, |lines| {
                    for (timed, size) in native.iter_mut().zip(&sizes) {
                        let slice = ExchangeSlice::of(Act::Matched(Buffers::Warm), *size);
                        timed.slice(lines, run.milliseconds * 1_000_000, (slice, 2), counts)?;
                    }
                    Ok(())
                })?;
            }
            Ok(())
        })?;

        let transport = match link {
            LinkChoice::Shm => "shm",
            LinkChoice::Xdp => "xdp",
            _ => "udp",
        };
        let base = self.common.setting(transport.to_owned(), self.ranks).row();
        let mut figures: Vec<Figures> = Vec::new();
        for (system, of_size) in systems.iter().zip(all) {
            let name = match system.way {
                MpiTransport::Portolan => format!("{}-{transport}", value_name(&system.mpi())),
                _ => system.name(),
            };
            let method = system.method();
            figures.push(Figures {
                name,
                method,
                of_size,
            });
        }
        let native = with_native.then(|| Figures {
            name: base.system.clone(),
            method: "tag-matched messages of the native interface, blocking".to_owned(),
            of_size: native.iter().map(|it| it.us.clone()).collect(),
        });
        let mut found = Findings::default();
        for own in figures.chunks(ways.len()) {
            for (figures, system) in own.iter().zip(&ways) {
                let plain = Row::of(figures.name.clone(), self.ranks);
                let base = if *system == MpiTransport::Portolan {
                    &base
                } else {
                    &plain
                };
                found.rows.extend(figures.rows(base, &columns));
            }
            let [ours, others @ ..] = own else { continue };
            for other in others.iter().chain(&native) {
                found.ratios.extend(ours.over(other, &base, &columns));
            }
        }
        if let Some(native) = &native {
            found.rows.extend(native.rows(&base, &columns));
        }
        Ok(found)
    }
}

impl Asked {
    fn values(&self, sizes: &[usize], ran: &Ran) -> Vec<f64> {
        match self.what {
            What::Start => vec![ran.job_ms],
            What::Nas => ran.told.clone(),
            what => {
                let all = sizes.iter().zip(&ran.told);
                all.map(|(size, us)| what.figure(*size, *us)).collect()
            }
        }
    }
}
