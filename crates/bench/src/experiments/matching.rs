//! What it costs to bring receives and messages together, and whether that
//! grows with how many wait. No link, no message: the matcher alone.

use std::path::PathBuf;

use clap::Args;
use portolan_hosts::failure::{Context, Result, fail};
use portolan_hosts::ranks::{allowed_cores, bind_to};
use portolan_matching::{Arrival, Envelope, Matcher, Post, Selector};
use portolan_sys::clock::now_ns;

use crate::experiment::{Experiment, Findings, Stage, rounds};
use crate::options::slices;
use crate::report::dimensions::Dimension;
use crate::report::stats::{SLICES_MIN, Series};
use crate::report::table::{Ratio, Row};

/// How many wait at once; ratios are over the first.
const ENTRIES: [u64; 3] = [10, 1_000, 100_000];
/// Matches of a slice, of however many at once.
const MATCHES: u64 = 100_000;
/// Messages come from so many ranks in turn.
const SOURCES: u64 = 64;
/// As of a communicator, above tags that are counted.
const CONTEXT: u64 = 1 << 48;
/// The matcher's secret: which one makes no difference.
const SECRET: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9];

/// Which side waits for the other.
#[derive(Clone, Copy)]
enum Waiting {
    Messages,
    Receives,
}

/// One way to match.
struct Case {
    metric: &'static str,
    waiting: Waiting,
    any_source: bool,
}

const CASES: [Case; 4] = [
    Case {
        metric: "match_unexpected_ns",
        waiting: Waiting::Messages,
        any_source: false,
    },
    Case {
        metric: "match_posted_ns",
        waiting: Waiting::Receives,
        any_source: false,
    },
    Case {
        metric: "match_unexpected_any_ns",
        waiting: Waiting::Messages,
        any_source: true,
    },
    Case {
        metric: "match_posted_any_ns",
        waiting: Waiting::Receives,
        any_source: true,
    },
];

fn envelope(entry: u64) -> Envelope {
    Envelope {
        source: (entry % SOURCES) as u32,
        tag: CONTEXT | entry,
    }
}

impl Case {
    fn selector(&self, entry: u64) -> Selector {
        let Envelope { source, tag } = envelope(entry);
        if self.any_source {
            Selector::any(tag)
        } else {
            Selector::from(source, tag)
        }
    }

    /// So many wait, then each is matched, the last one first. Gives how many
    /// met whom they should.
    fn round(&self, matcher: &mut Matcher<u64, u64>, entries: u64) -> u64 {
        let mut met = 0;
        match self.waiting {
            Waiting::Messages => {
                for entry in 0..entries {
                    matcher.arrive(envelope(entry), entry);
                }
                for entry in (0..entries).rev() {
                    let post = matcher.post(self.selector(entry), entry);
                    met += u64::from(matches!(post, Post::Matched(it) if it.message == entry));
                }
            }
            Waiting::Receives => {
                for entry in 0..entries {
                    matcher.post(self.selector(entry), entry);
                }
                for entry in (0..entries).rev() {
                    let arrival = matcher.arrive(envelope(entry), entry);
                    met +=
                        u64::from(matches!(arrival, Arrival::Matched(it) if it.receive == entry));
                }
            }
        }
        met
    }
}

/// A case with so many entries, and its slices.
struct Cell {
    case: &'static Case,
    entries: u64,
    matcher: Matcher<u64, u64>,
    /// Time of a match, nanoseconds.
    values: Series,
}

impl Cell {
    fn new(case: &'static Case, entries: u64) -> Self {
        Self {
            case,
            entries,
            matcher: Matcher::new(SECRET),
            values: Series::default(),
        }
    }

    fn slice(&mut self) -> Result<f64> {
        // What others have taken of the caches meanwhile is had back first.
        self.case.round(&mut self.matcher, self.entries);
        let from = now_ns();
        let rounds = 0..MATCHES / self.entries;
        let of_round = |_| self.case.round(&mut self.matcher, self.entries);
        let met: u64 = rounds.map(of_round).sum();
        let taken = now_ns() - from;
        if met != MATCHES {
            return fail(format!("{met} of {MATCHES} messages met their receives"));
        }
        Ok(taken as f64 / MATCHES as f64)
    }

    fn row(&self) -> Option<Row> {
        let method = "to hold one and to match it, in interleaved slices of 100,000";
        let row = Row::of("matcher", 1).at(Dimension::Entries, self.entries);
        row.figure(self.case.metric, &self.values, method)
    }

    /// Over the same with fewest entries.
    fn over(&self, few: &Self) -> Option<Ratio> {
        let row = self.row()?;
        let metric = format!("{}_entries", row.metric);
        let ratio = row.over(&metric, &self.values, &row.system, &few.values)?;
        Some(ratio.likewise(Dimension::Entries, &row))
    }
}

/// Binds this process to a core; gives its number.
fn bind() -> Result<usize> {
    let allowed = allowed_cores().context("asking for the allowed cores")?;
    // The first core is where interrupts go.
    let core = *allowed.last().expect("there is one");
    bind_to(core).context(format!("binding to core {core}"))?;
    Ok(core as usize)
}

/// As it was asked for.
#[derive(Args)]
pub struct Matching {
    /// Slices of each figure
    #[arg(long, value_name = "N", default_value_t = SLICES_MIN, value_parser = slices)]
    slices: usize,
    /// Write rows and ratios to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Experiment for Matching {
    fn run(&self, stage: &mut Stage) -> Result<Findings> {
        stage.machine.pinned = vec![Some(bind()?)];
        let of_case = |case| ENTRIES.map(|entries| Cell::new(case, entries));
        let mut cells: Vec<[Cell; ENTRIES.len()]> = CASES.iter().map(of_case).collect();
        rounds(self.slices, |counts| {
            for cell in cells.iter_mut().flatten() {
                let value = cell.slice()?;
                if counts {
                    cell.values.keep(value, MATCHES);
                }
            }
            Ok(())
        })?;
        let over = |[few, more @ ..]: &[Cell; ENTRIES.len()]| {
            let ratios = more.iter().filter_map(|cell| cell.over(few));
            ratios.collect::<Vec<_>>()
        };
        Ok(Findings {
            rows: cells.iter().flatten().filter_map(Cell::row).collect(),
            ratios: cells.iter().flat_map(over).collect(),
            remarks: Vec::new(),
        })
    }
}
