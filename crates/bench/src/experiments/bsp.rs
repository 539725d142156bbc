//! What BSPlib costs: a superstep, a word, a byte; over our links, over kernel
//! TCP and by other BSPlibs, beside what our own interfaces take for the same.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use portolan_boot::LinkChoice;
use portolan_boot::launch::{RANKS_MAX, Stop};
use portolan_hosts::failure::{Context, Failure, Result};
use portolan_hosts::lab::{Lab, RemoteShell};
use portolan_hosts::ranks::stops;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::conduct::{say_all, took};
use crate::control::{ControlLine, Order};
use crate::experiment::{Experiment, Findings, Stage, rounds, wrong};
use crate::options::Common;
use crate::pace::Timed;
use crate::peers::bsplib::{Bsplib, FIGURES};
use crate::peers::netpipe::Buffers;
use crate::ranks::matched::{Act, ExchangeSlice};
use crate::report::bsp_cache;
use crate::report::stats::Series;
use crate::report::table::{Ratio, Row};
use portolan_hosts::choices::value_name;

/// Length of a figure's slices together, milliseconds, where it was not asked for.
const FIGURE_MS: u64 = 20;
/// Bytes of a matched message: those of the probe's large put.
const LARGE: usize = 1 << 20;
/// Fewest and most barriers of a slice.
const BARRIERS: [u64; 2] = [16, 1_000_000];
/// Our BSPlib over kernel TCP.
const BSP_TCP: &str = "bsp-tcp";

/// A BSPlib to stand beside ours, as `--vs` takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Beside {
    /// Ours, over kernel TCP.
    Tcp,
    /// Another, with its folder.
    Other(String, PathBuf),
}

impl FromStr for Beside {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let is_name = |name: &str| {
            let fits = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
            !name.is_empty() && name.chars().all(fits) && !name.starts_with("portolan-")
        };
        match text.split_once('=') {
            None if text == "tcp" => Ok(Self::Tcp),
            Some((name, folder)) if is_name(name) && name != BSP_TCP && !folder.is_empty() => {
                Ok(Self::Other(name.to_owned(), folder.into()))
            }
            _ => Err(
                "give tcp, or NAME=DIR: a name of letters and digits for another BSPlib, and the \
                 folder in which (or in whose bin) its bspcc and bsprun are"
                    .to_owned(),
            ),
        }
    }
}

/// As it was asked for.
#[derive(Args)]
pub struct Bsp {
    #[command(flatten)]
    pub common: Common,
    /// Number of processes [default: 2; in a lab one on each host]
    #[arg(short = 'n', long, value_name = "P")]
    processes: Option<u32>,
    /// BSPlibs to benchmark against in the same run: tcp (this one over kernel TCP), or another with
    /// the folder of its bspcc and bsprun
    #[arg(long, value_name = "tcp|NAME=DIR[,...]", value_delimiter = ',')]
    vs: Vec<Beside>,
}

/// One that is measured: a slice of each figure in each round.
struct System<'a> {
    row: Row,
    library: &'a Bsplib,
    /// What its launcher is told.
    options: Vec<String>,
    figures: [Series; FIGURES.len()],
}

impl System<'_> {
    fn figure(&self, metric: &str) -> &Series {
        let place = FIGURES.iter().position(|(name, _)| *name == metric);
        &self.figures[place.expect("it is a figure")]
    }

    fn rows(&self, how: &str) -> Vec<Row> {
        let all = FIGURES.into_iter().zip(&self.figures);
        let figure =
            |((metric, what), values)| self.row.figure(metric, values, format!("{what}; {how}"));
        all.filter_map(figure).collect()
    }

    /// Its figures over what our own interfaces take, and over each other.
    fn over_references(&self, references: &References) -> Vec<Ratio> {
        let round_trip = references.round_trip.us.map(|us| 2.0 * us);
        let matched = references.matched.mb_s(LARGE);
        let over = |metric, name, divisor: &Series| {
            self.row.over(metric, self.figure(metric), name, divisor)
        };
        let all = [
            over("l_us", "round-trip", &round_trip),
            over("l_us", "barrier", &references.barrier),
            over("g_mb_s", "matched", &matched),
            over("g_hp_mb_s", "matched", &matched),
            over("scattered_us", "one-put", self.figure("whole_us")),
        ];
        all.into_iter().flatten().collect()
    }

    fn over(&self, other: &Self) -> Vec<Ratio> {
        let pairs = self.figures.iter().zip(&other.figures);
        let all = FIGURES.iter().zip(pairs);
        let figures = all.map(|((metric, _), (ours, theirs))| (*metric, ours, theirs));
        self.row.all_over(&other.row.system, figures)
    }
}

/// What our own interfaces take, in the same rounds.
struct References {
    round_trip: Timed,
    matched: Timed,
    barrier: Series,
    barriers: u64,
}

impl References {
    fn slice(&mut self, lines: &mut [ControlLine], slice_ns: u64, counts: bool) -> Result<()> {
        let small = ExchangeSlice::of(Act::Port, 8);
        let large = ExchangeSlice::of(Act::Matched(Buffers::Warm), LARGE);
        self.round_trip.slice(lines, slice_ns, (small, 2), counts)?;
        self.matched.slice(lines, slice_ns, (large, 2), counts)?;
        say_all(lines, &Order::Barriers(self.barriers))?;
        let us = took(lines)? as f64 / 1e3 / self.barriers as f64;
        if counts {
            self.barrier.keep(us, self.barriers);
        }
        let [least, most] = BARRIERS;
        self.barriers = ((slice_ns as f64 / 1e3 / us) as u64).clamp(least, most);
        Ok(())
    }

    fn rows(&self, ours: &Row) -> Vec<Row> {
        ours.figures([
            (
                "round_trip_us",
                &self.round_trip.us.map(|us| 2.0 * us),
                "8 bytes to a port of the native interface and back, blocking",
            ),
            ("barrier_us", &self.barrier, "a barrier of all processes"),
            (
                "matched_mb_s",
                &self.matched.mb_s(LARGE),
                "matched messages of 1 MiB: size over half of the round trip",
            ),
        ])
    }
}

impl Bsp {
    /// What `bsprun` of ours is told, for one of its transports.
    fn options(&self, transport: &str) -> Vec<String> {
        let network = &self.common.network;
        let all = [
            ("--transport", Some(transport.to_owned())),
            ("--lab", self.common.lab.clone()),
            ("--interface", network.interface.clone()),
            ("--security", Some(value_name(&network.security))),
            ("--suite", network.suite.as_ref().map(value_name)),
            ("--congestion", Some(value_name(&network.congestion))),
        ];
        let given = all
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        let words = given.flat_map(|(name, value)| [name.to_owned(), value]);
        words.chain(["--no-prefix".to_owned()]).collect()
    }

    /// Other BSPlibs with their folders; whether ours is to run over TCP too.
    fn others(&self) -> Result<(Vec<(&str, &Path)>, bool)> {
        let mut others: Vec<(&str, &Path)> = Vec::new();
        for beside in &self.vs {
            if let Beside::Other(name, folder) = beside {
                if others.iter().any(|(known, _)| known == name) {
                    return wrong(format!("--vs {name}: two of that name: give each its own"));
                }
                others.push((name, folder));
            }
        }
        Ok((others, self.vs.contains(&Beside::Tcp)))
    }
}

/// Refuses to call TCP what is none: a library that takes a name that no transport
/// has would take that of TCP without noticing it, too.
fn check_tcp(own: &Bsplib, mut options: Vec<String>) -> Result<()> {
    options.extend(["-x", "BSP_TRANSPORT=none-such"].map(ToOwned::to_owned));
    match own.run(&options, 2, 1, None) {
        Err(_) => Ok(()),
        Ok(_) => wrong(
            "--vs tcp: BSPlib beside portolan has no kernel TCP (it takes any BSP_TRANSPORT): \
             leave tcp out",
        ),
    }
}

/// Fails if a signal was to end the bench. Once a job of ours has caught signals, they
/// do not end this process by themselves.
fn check_stops(stops: &[Stop]) -> Result<()> {
    for stop in stops {
        let descriptor = PollFd::new(&stop.descriptor, PollFlags::IN);
        if poll(&mut [descriptor], Some(&Timespec::default()))? > 0 {
            let code = u8::try_from(stop.code).unwrap_or(1);
            return Err(Failure::with_code(code, stop.why.as_str()));
        }
    }
    Ok(())
}

impl Experiment for Bsp {
    /// Each round has a job of ours for the references, which is over before the
    /// probe runs: queues of a network card are one job's at a time.
    fn run(&self, stage: &mut Stage) -> Result<Findings> {
        let common = &self.common;
        let lab = stage.lab.clone();
        let processes = self.processes.or(lab.as_ref().map(Lab::hosts)).unwrap_or(2);
        if !(2..=RANKS_MAX).contains(&processes) {
            return wrong(format!("-n {processes}: give 2 to {RANKS_MAX} processes"));
        }
        let (others, with_tcp) = self.others()?;
        let transport = match common.spec(lab.as_ref(), processes)?.link {
            LinkChoice::Shm => "shm",
            LinkChoice::Xdp => "xdp",
            _ => "udp",
        };
        let mut found = Findings::default();
        let shell = lab.as_ref().map(RemoteShell::new).transpose()?;
        let away = lab.as_ref().zip(shell.as_ref());
        // From here on no signal leaves a folder behind.
        let stops = stops()?;
        let own = std::env::current_exe().context("finding the portolan command")?;
        let own = Bsplib::build("bsp", own.parent().unwrap_or(Path::new("/")))
            .context("BSPlib's commands belong beside portolan: make build puts them there")?;
        if with_tcp {
            check_tcp(&own, self.options(transport))?;
        }
        let build = |(name, folder): &(&str, &Path)| Bsplib::build(name, folder);
        let libraries = others.iter().map(build).collect::<Result<Vec<_>>>()?;

        let ours = common.setting(transport.to_owned(), processes).row();
        let tcp = Row::of(BSP_TCP, processes);
        let of_ours = [(ours.clone(), transport), (tcp, "tcp")];
        let of_ours = of_ours.into_iter().take(1 + usize::from(with_tcp));
        let of_ours = of_ours.map(|(row, transport)| (row, &own, self.options(transport)));
        let row = |(name, _): &(&str, &Path)| Row::of(*name, processes);
        let of_others = others.iter().map(row).zip(&libraries);
        let all = of_ours.chain(of_others.map(|(row, library)| (row, library, Vec::new())));
        let system = |(row, library, options)| System {
            row,
            library,
            options,
            figures: Default::default(),
        };
        let mut systems: Vec<System> = all.map(system).collect();
        let mut references = References {
            round_trip: Timed::new(),
            matched: Timed::new(),
            barrier: Series::default(),
            barriers: BARRIERS[0],
        };
        let slice_ns = common.slice_ns(FIGURE_MS * 1_000_000);
        rounds(common.slices(), |counts| {
            check_stops(&stops)?;
            let spec = common.spec(lab.as_ref(), processes)?;
            stage.job(spec, |lines| references.slice(lines, slice_ns, counts))?;
            for system in &mut systems {
                let ms = slice_ns / 1_000_000;
                // Ours takes the lab as an option.
                let away = away.filter(|_| !std::ptr::eq(system.library, &own));
                let ran = system.library.run(&system.options, processes, ms, away);
                check_stops(&stops)?;
                let figures = ran?;
                let slots = system.figures.iter_mut().filter(|_| counts);
                slots.zip(figures).for_each(|(it, value)| it.keep(value, 1));
            }
            Ok(())
        })?;

        let how = format!(
            "median of slices of {} ms together, a run of the program in each round",
            slice_ns / 1_000_000
        );
        found.rows = references.rows(&ours);
        for system in &systems {
            found.rows.extend(system.rows(&how));
            found.ratios.extend(system.over_references(&references));
        }
        if let [ours, others @ ..] = &systems[..] {
            let over = others.iter().flat_map(|other| ours.over(other));
            found.ratios.extend(over);
        }
        for (system, link) in systems.iter().zip([transport, "tcp"]) {
            if std::ptr::eq(system.library, &own) {
                let median = |metric| Some(system.figure(metric).quartiles()?.median);
                let all = ["r_mflop_s", "l_us", "g_word_us", "g_mb_s"].map(median);
                found.remarks.push(bsp_cache::keep(link, processes, all));
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_has_a_name_and_a_folder() {
        let other = |name: &str, folder: &str| Ok(Beside::Other(name.into(), folder.into()));
        assert_eq!("tcp".parse(), Ok(Beside::Tcp));
        assert_eq!("mpi=/opt/bsp".parse(), other("mpi", "/opt/bsp"));
        assert_eq!("b-1.2=here=there".parse(), other("b-1.2", "here=there"));
        for wrong in [
            "",
            "udp",
            "=x",
            "mpi=",
            "a/b=x",
            "bsp-tcp=x",
            "portolan-shm=x",
        ] {
            assert!(wrong.parse::<Beside>().is_err(), "{wrong}");
        }
    }
}
