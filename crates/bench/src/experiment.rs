//! What all benches have in common: an experiment gets a machine, perhaps with a
//! lab, and gives figures, claims and remarks.

use std::io::IsTerminal;
use std::path::PathBuf;

use portolan_boot::launch::JobSpec;
use portolan_hosts::failure::{Context, Failure, Result};
use portolan_hosts::file::Output;
use portolan_hosts::lab::Lab;
use portolan_hosts::print::{counted, hide_progress, show_progress};
use portolan_hosts::ranks::allowed_cores;

use crate::control::ControlLine;
use crate::job::{Job, with_jobs};
use crate::ranks::rank::Site;
use crate::report::machine::{CpuTime, Machine};
use crate::report::table::{Ratio, Report, Row};

/// The arguments ask for what cannot be measured.
pub fn wrong<T>(text: impl Into<String>) -> Result<T> {
    Err(Failure::usage(text))
}

/// One of the benches, as it was asked for.
pub trait Experiment {
    /// Measures, after checking what it was asked for.
    ///
    /// # Errors
    /// What cannot be measured, and what can instead; what fails.
    fn run(&self, stage: &mut Stage) -> Result<Findings>;
}

/// What an experiment is called, where it runs, and where its figures go.
pub struct ExperimentSetup {
    /// Its name in reports.
    pub name: String,
    /// The file that is to have its figures too.
    pub json: Option<PathBuf>,
    /// The lab that it runs in.
    pub lab: Option<String>,
    /// Whether several processes are awake at once.
    pub polls: bool,
}

impl ExperimentSetup {
    /// One that is started without the options that most have.
    pub fn without_ranks(name: &str, json: &Option<PathBuf>, lab: Option<&String>) -> Self {
        Self {
            name: name.to_owned(),
            json: json.clone(),
            lab: lab.cloned(),
            polls: false,
        }
    }
}

/// What an experiment found.
#[derive(Default)]
pub struct Findings {
    /// Figures.
    pub rows: Vec<Row>,
    /// Claims.
    pub ratios: Vec<Ratio>,
    /// Remarks for the reader of the table.
    pub remarks: Vec<String>,
}

impl Findings {
    /// Those of another part, too.
    pub fn extend(&mut self, other: Self) {
        self.rows.extend(other.rows);
        self.ratios.extend(other.ratios);
        self.remarks.extend(other.remarks);
    }
}

/// What an experiment runs on.
pub struct Stage {
    /// The experiment's name.
    name: String,
    /// The lab, if it is to run in one.
    pub lab: Option<Lab>,
    /// The machine; who starts ranks notes their cores.
    pub machine: Machine,
}

impl Stage {
    /// The lab that the bench needs, of so many hosts at least; `why` follows the
    /// bench's name, and `options` are those of `lab up` that make a good one.
    pub fn needs_lab(&self, hosts: u32, why: &str, options: &str) -> Result<Lab> {
        let name = &self.name;
        match &self.lab {
            None => wrong(format!(
                "bench {name} {why}: add --lab NAME (portolan lab up NAME {options} makes one)"
            )),
            Some(lab) if lab.hosts() < hosts => wrong(format!(
                "lab {} has {} and bench {name} needs {hosts}: make one with {options}",
                lab.name(),
                counted(lab.hosts() as usize, "host")
            )),
            Some(lab) => Ok(lab.clone()),
        }
    }

    /// The lab of a bench of two ranks, if it is to run in one.
    pub fn lab_of_two(&self) -> Result<Option<Lab>> {
        let lab = self.lab.as_ref();
        lab.map(|_| self.needs_lab(2, "needs two hosts", "--hosts 2"))
            .transpose()
    }

    /// Where a rank on this host of the lab is, or on this one.
    pub fn site(&self, host: u32) -> Site {
        match &self.lab {
            Some(lab) => Site::in_lab(lab, host),
            None => Site::here(),
        }
    }

    /// Runs `work` over the lines to the ranks of a job. Gives the link between
    /// them too.
    ///
    /// # Errors
    /// As [`with_jobs`].
    pub fn job<T>(
        &mut self,
        spec: JobSpec,
        work: impl FnOnce(&mut [ControlLine]) -> Result<T>,
    ) -> Result<(String, T)> {
        let (links, found) = self.jobs([Job::new(spec)], |[lines]| work(lines))?;
        let [link] = links;
        Ok((link, found))
    }

    /// Likewise over several jobs at once, which get their turns. Ranks of the
    /// same number are on the same core.
    ///
    /// # Errors
    /// As [`with_jobs`].
    pub fn jobs<T, const N: usize>(
        &mut self,
        jobs: [Job; N],
        work: impl FnOnce([&mut [ControlLine]; N]) -> Result<T>,
    ) -> Result<([String; N], T)> {
        with_jobs(jobs, self.lab.as_ref(), &mut self.machine, work)
    }
}

/// Runs an experiment.
///
/// # Errors
/// As [`Experiment::run`]; the file for its figures cannot be written.
pub fn conduct(place: ExperimentSetup, experiment: &dyn Experiment) -> Result<Report> {
    let ExperimentSetup {
        name,
        json,
        lab,
        polls,
    } = place;
    let output = json.as_deref().map(Output::open).transpose()?;
    let cores = allowed_cores().context("asking for the allowed cores")?;
    if polls && cores.len() < 2 {
        return wrong(
            "two processes that poll on one core measure its scheduler: give the bench at least 2 cores",
        );
    }
    let mut stage = Stage {
        name,
        lab: lab.as_deref().map(Lab::open).transpose()?,
        machine: Machine {
            lab,
            ..Machine::here()
        },
    };
    let before = CpuTime::now();
    let Findings {
        rows,
        ratios,
        remarks,
    } = experiment.run(&mut stage)?;
    let report = Report {
        bench: stage.name,
        host: stage.machine,
        rows,
        ratios,
        steal: CpuTime::now().steal_since(&before),
        remarks,
    };
    if let Some(output) = output {
        output.write(&serde_json::to_vec_pretty(&report)?)?;
    }
    Ok(report)
}

/// Runs a round that warms up and so many that count, and shows how far it is;
/// `round` is told whether it counts.
///
/// # Errors
/// That of a round.
pub fn rounds(count: usize, mut round: impl FnMut(bool) -> Result<()>) -> Result<()> {
    let mut progress = Progress::new(count);
    for number in 0..=count {
        progress.show(number);
        round(number > 0)?;
    }
    progress.done();
    Ok(())
}

/// A line on the terminal that says how far it is.
pub struct Progress {
    rounds: usize,
    terminal: bool,
}

impl Progress {
    /// For `rounds` rounds that count.
    #[must_use]
    pub fn new(rounds: usize) -> Self {
        Self {
            rounds,
            terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Round `round` begins; 0 warms up.
    pub fn show(&mut self, round: usize) {
        if self.terminal {
            let step = format!("slice {round} of {}", self.rounds);
            show_progress(round, self.rounds, &step);
        }
    }

    /// Takes the line away.
    pub fn done(&mut self) {
        if self.terminal {
            hide_progress();
        }
    }
}
