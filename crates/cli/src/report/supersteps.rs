//! Profiles of BSPlib programs (`bsprun --profile`): where the time of each process went,
//! and the supersteps that cost most.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use maud::{Markup, html};
use portolan_hosts::failure::{Failure, Result};

use super::page::table;
use super::plot::number;
use super::read::Strange;

/// What the names of their files end in.
const SUFFIX: &str = ".bsp.tsv";
/// Supersteps in the table.
const ROWS: usize = 20;
/// Columns of the timeline, in all rows together: what a browser draws at once.
const BINS_MAX: usize = 20_000;
/// Of one row.
const WIDTH: usize = 720;
const HEIGHT: usize = 16;
/// Computing, communicating, waiting.
const COLOURS: [(&str, &str); 3] = [
    ("computing", "#0072b2"),
    ("communicating", "#e69f00"),
    ("waiting", "#bcbd22"),
];

/// A superstep of one process.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    number: u64,
    start_us: f64,
    /// Computing, communicating, waiting: one behind the other.
    times_us: [f64; 3],
    sent: f64,
    received: f64,
    /// Packets, acknowledgements, resends, duplicates.
    counts: [f64; 4],
}

/// A process's file.
#[derive(Clone, Debug, Default)]
struct Process {
    number: u32,
    /// How many processes it was one of.
    of: u32,
    link: String,
    began_us: f64,
    l_us: f64,
    g_word_us: f64,
    steps: Vec<Step>,
}

/// A run: the processes of all files.
pub struct Profile(Vec<Process>);

/// Reads the profile in a folder, if there is one; and files that are none.
pub fn read(folder: &Path) -> Result<(Option<Profile>, Vec<Strange>)> {
    let reading = || Failure::io(format!("reading {}", folder.display()));
    let (mut processes, mut strange) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(folder).map_err(reading())? {
        let path = entry.map_err(reading())?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.ends_with(SUFFIX) {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(|e| e.to_string());
        match text.and_then(|text| parse(&text)) {
            Ok(process) => processes.push((name.into_owned(), process)),
            Err(why) => strange.push((name.into_owned(), why)),
        }
    }
    let processes = of_the_last_run(processes, &mut strange);
    let profile = (!processes.is_empty()).then_some(Profile(processes));
    Ok((profile, strange))
}

/// A run with fewer processes leaves files of one before it: they are no part of it.
fn of_the_last_run(all: Vec<(String, Process)>, strange: &mut Vec<Strange>) -> Vec<Process> {
    let last = (all.iter().map(|(_, it)| it)).max_by(|a, b| a.began_us.total_cmp(&b.began_us));
    let of = last.map_or(0, |it| it.of);
    let mut processes = Vec::new();
    for (name, it) in all {
        if it.of == of {
            processes.push(it);
        } else {
            let why = format!("it is of a run before, with {} processes", it.of);
            strange.push((name, why));
        }
    }
    processes.sort_by_key(|it| it.number);
    processes
}

fn parse(text: &str) -> std::result::Result<Process, String> {
    let mut lines = text.lines();
    let head = lines.next().and_then(|line| line.strip_prefix("# "));
    let head: BTreeMap<&str, &str> = (head.ok_or("it is no profile")?.split('\t'))
        .filter_map(|field| field.split_once(' '))
        .collect();
    let figure = |name: &str| -> std::result::Result<f64, String> {
        let figure = head.get(name).and_then(|it| it.trim().parse().ok());
        figure
            .filter(is_sane)
            .ok_or(format!("its first line has no {name}"))
    };
    let columns: Vec<&str> = lines.next().unwrap_or_default().split('\t').collect();
    let mut process = Process {
        number: figure("process")? as u32,
        of: figure("processes")? as u32,
        link: head.get("link").copied().unwrap_or_default().to_owned(),
        began_us: figure("began_us")?,
        l_us: figure("l_us")?,
        g_word_us: figure("g_word_us")?,
        steps: Vec::new(),
    };
    let place = |name: &str| {
        let place = columns.iter().position(|it| *it == name);
        place.ok_or(format!("it has no column {name}"))
    };
    let mut places = Vec::new();
    for name in [
        "superstep",
        "start_us",
        "compute_us",
        "communicate_us",
        "wait_us",
        "sent_bytes",
        "received_bytes",
        "packets",
        "acks",
        "resends",
        "duplicates",
    ] {
        places.push(place(name)?);
    }
    for (at, line) in (3..).zip(lines) {
        let fields: Vec<&str> = line.split('\t').collect();
        let value = |place: &usize| fields.get(*place)?.parse().ok().filter(is_sane);
        let values: Option<Vec<f64>> = places.iter().map(value).collect();
        let values = values.ok_or(format!("line {at} is damaged"))?;
        process.steps.push(Step {
            number: values[0] as u64,
            start_us: values[1],
            times_us: [values[2], values[3], values[4]],
            sent: values[5],
            received: values[6],
            counts: [values[7], values[8], values[9], values[10]],
        });
    }
    Ok(process)
}

/// No time and no count is negative, or lasts for a year.
fn is_sane(value: &f64) -> bool {
    (0.0..1e18).contains(value)
}

/// A superstep over all processes: the longest times, and the sum of all counts.
#[derive(Clone, Copy, Debug, Default)]
struct Whole {
    number: u64,
    /// From the first's beginning to the last's end, as each process counts.
    total_us: f64,
    times_us: [f64; 3],
    /// The most bytes that one process sent or received.
    h: f64,
    counts: [f64; 4],
}

impl Profile {
    pub fn section(&self) -> Markup {
        let Self(processes) = self;
        let steps = processes.iter().map(|it| it.steps.len()).max();
        let link = processes.first().map_or("", |it| &it.link);
        html! {
            h2 id="supersteps" { "Supersteps" }
            p {
                (processes.len()) " processes, " (steps.unwrap_or_default()) " supersteps"
                @if !link.is_empty() { ", link " (link) }
            }
            figure {
                (self.timeline())
                figcaption {
                    "A row for each process, over time. In each column, from below: "
                    @for (at, (name, colour)) in COLOURS.iter().enumerate() {
                        @if at > 0 { ", " }
                        span style=(format!("color: {colour}")) { "\u{25a0} " } (name)
                    }
                }
            }
            h3 { "The supersteps that cost most" }
            (self.costliest())
            p.faint {
                "Times are the longest of any process, in microseconds. h is the most bytes that \
                 one process sent or received. The prediction is computing + g h + l, from the \
                 last bench of the same hosts, link and number of processes. Counts are of all \
                 processes."
            }
        }
    }

    fn timeline(&self) -> Markup {
        let Self(processes) = self;
        let first = processes
            .iter()
            .map(|it| it.began_us)
            .fold(f64::MAX, f64::min);
        let end = |it: &Process| {
            let last = it.steps.last().map_or(0.0, |step| {
                step.start_us + step.times_us.iter().sum::<f64>()
            });
            it.began_us - first + last
        };
        let length = processes.iter().map(end).fold(0.0, f64::max).max(1.0);
        let bins = (BINS_MAX / processes.len().max(1)).clamp(20, WIDTH / 2);
        let height = processes.len() * (HEIGHT + 4) + 20;
        html! {
            svg viewBox=(format!("0 0 {} {height}", WIDTH + 40)) role="img" {
                @for (row, process) in processes.iter().enumerate() {
                    @let y = row * (HEIGHT + 4);
                    text x="0" y=(y + 13) font-size="12" fill="currentColor" { (process.number) }
                    @for (bin, shares) in shares(process, process.began_us - first, length, bins).iter().enumerate() {
                        @let x = 40.0 + bin as f64 * WIDTH as f64 / bins as f64;
                        @let width = WIDTH as f64 / bins as f64;
                        @for (at, (_, colour)) in COLOURS.iter().enumerate() {
                            @let below: f64 = shares[..at].iter().sum();
                            @if shares[at] > 0.005 {
                                rect x=(format!("{x:.1}")) width=(format!("{width:.1}")) fill=(colour)
                                    y=(format!("{:.1}", y as f64 + HEIGHT as f64 * (1.0 - below - shares[at])))
                                    height=(format!("{:.1}", HEIGHT as f64 * shares[at])) {}
                            }
                        }
                    }
                }
                text x="40" y=(height - 4) font-size="12" fill="currentColor" { "0" }
                text x=(WIDTH + 40) y=(height - 4) font-size="12" fill="currentColor" text-anchor="end" {
                    (number(length / 1000.0)) " ms"
                }
            }
        }
    }

    fn costliest(&self) -> Markup {
        let mut all: BTreeMap<u64, Whole> = BTreeMap::new();
        for step in self.0.iter().flat_map(|it| &it.steps) {
            let whole = all.entry(step.number).or_default();
            whole.number = step.number;
            whole.total_us = whole.total_us.max(step.times_us.iter().sum());
            for (most, time) in whole.times_us.iter_mut().zip(step.times_us) {
                *most = most.max(time);
            }
            whole.h = whole.h.max(step.sent).max(step.received);
            for (sum, count) in whole.counts.iter_mut().zip(step.counts) {
                *sum += count;
            }
        }
        let mut all: Vec<Whole> = all.into_values().collect();
        all.sort_by(|a, b| {
            b.total_us
                .total_cmp(&a.total_us)
                .then(a.number.cmp(&b.number))
        });
        let (l, g) = self
            .0
            .first()
            .map_or((0.0, 0.0), |it| (it.l_us, it.g_word_us));
        let cells = |it: &Whole| {
            let prediction = it.times_us[0] + g * it.h / 8.0 + l;
            let prediction = if l > 0.0 {
                number(prediction)
            } else {
                String::new()
            };
            let mut cells = vec![it.number.to_string(), number(it.total_us)];
            cells.extend(it.times_us.map(number));
            cells.extend([number(it.h), prediction]);
            cells.extend(it.counts.map(number));
            cells
        };
        let head = [
            "superstep",
            "time",
            "computing",
            "communicating",
            "waiting",
            "h",
            "prediction",
            "packets",
            "acknowledgements",
            "resends",
            "duplicates",
        ];
        table(&head, 0..=10, all.iter().take(ROWS).map(cells))
    }
}

/// What shares of each part of a length a process spent on what.
fn shares(process: &Process, offset: f64, length: f64, bins: usize) -> Vec<[f64; 3]> {
    let mut shares = vec![[0.0; 3]; bins];
    let bin_us = length / bins as f64;
    for step in &process.steps {
        let mut at = offset + step.start_us;
        for (what, time) in step.times_us.into_iter().enumerate() {
            let (from, to) = (at, at + time);
            at = to;
            let first = (from / bin_us) as usize;
            let last = ((to / bin_us) as usize).min(bins - 1);
            for (bin, share) in (first..=last).zip(shares.iter_mut().skip(first)) {
                let start = bin as f64 * bin_us;
                let part = to.min(start + bin_us) - from.max(start);
                share[what] += part.max(0.0) / bin_us;
            }
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "# process 1\tprocesses 2\tlink shm\tbegan_us 1000\tl_us 2\tg_word_us 0.5\tg_mb_s 1\n\
                        superstep\tstart_us\tcompute_us\tcommunicate_us\twait_us\tsent_bytes\t\
                        received_bytes\tpackets\tacks\tresends\tduplicates\n";

    #[test]
    fn a_file_is_read_and_damage_named() {
        let process = parse(&format!("{HEAD}0\t0\t10\t5\t5\t8\t16\t1\t2\t3\t4\n")).unwrap();
        assert_eq!((process.number, process.steps.len()), (1, 1));
        assert_eq!(process.steps[0].times_us, [10.0, 5.0, 5.0]);
        let why = |text: &str| parse(text).unwrap_err();
        assert_eq!(why("no"), "it is no profile");
        assert_eq!(why("# process 1\n"), "its first line has no processes");
        assert_eq!(
            why(&format!("{HEAD}0\t0\t-1\t5\t5\t8\t16\t1\t2\t3\t4\n")),
            "line 3 is damaged"
        );
        assert_eq!(why(&format!("{HEAD}0\t0\n")), "line 3 is damaged");
        assert_eq!(
            why(&HEAD.replace("wait_us", "wait")),
            "it has no column wait_us"
        );
    }

    #[test]
    fn files_of_a_run_before_are_left_out() {
        let of = |number, of, began_us| {
            let it = Process {
                number,
                of,
                began_us,
                ..Process::default()
            };
            (format!("{number}"), it)
        };
        let mut strange = Vec::new();
        let all = vec![of(2, 3, 10.0), of(1, 2, 21.0), of(0, 2, 20.0)];
        let run = of_the_last_run(all, &mut strange);
        assert_eq!(run.iter().map(|it| it.number).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(strange.len(), 1);
        assert_eq!(strange[0].0, "2");
    }

    #[test]
    fn shares_are_of_each_part() {
        let step = |start_us, times_us| Step {
            start_us,
            times_us,
            ..Step::default()
        };
        let process = Process {
            steps: vec![step(0.0, [10.0, 5.0, 5.0]), step(20.0, [0.0, 20.0, 0.0])],
            ..Process::default()
        };
        let shares = shares(&process, 0.0, 40.0, 4);
        assert_eq!(
            shares,
            [
                [1.0, 0.0, 0.0],
                [0.0, 0.5, 0.5],
                [0.0, 1.0, 0.0],
                [0.0, 1.0, 0.0]
            ]
        );
    }
}
