//! The ranks of `portolan tune`: rank 0 says what is measured, and finds.

use std::collections::HashMap;
use std::path::PathBuf;

use portolan::tuned::{self, Link};
use portolan::{Config, Endpoint};
use portolan_bench::ours;
use portolan_hosts::failure::{Failure, Result};
use portolan_hosts::print::print;
use portolan_sys::clock::now_ns;
use serde::{Deserialize, Serialize};

use super::choose::{Times, best, mean, ratios, up_to, worth};
use super::report::{Finding, Found, Kept};
use super::step::{ANSWERS, Case, ORDERS, Stage, Step, heard, send_json};
use super::values::Values;

/// The hidden command that is a rank.
pub const TUNE_RANK_COMMAND: &str = "internal-tune-rank";
/// Stands before lines for the command that started the ranks.
pub const MARK: &str = "portolan-tune ";
/// Sizes by which it is found how long a message may be that is pushed whole.
const WHOLE: [usize; 10] = [
    512,
    1 << 10,
    2 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
];
/// What is tried for BTP(1) and BTP(2), the least first.
const FIRST: [u64; 2] = [0, 1 << 10];
const SECOND: [u64; 5] = [0, 4 << 10, 15 << 10, 32 << 10, 64 << 10];
/// What is tried for the window and the chunk of pulls, likewise.
const WINDOWS: [u64; 6] = [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20];
const CHUNKS: [u64; 5] = [16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10];
/// Sizes by which it is found from where on both sides copy.
const SHARED: [usize; 10] = [
    16 << 10,
    32 << 10,
    64 << 10,
    96 << 10,
    128 << 10,
    192 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    2 << 20,
];
/// They do not in any message that there is, bytes.
const NEVER: u64 = 1 << 40;
/// A long message, bytes.
const LONG: usize = 1 << 20;
/// The least of many that all send to one, if they are to be pulled.
const FLOOD: u64 = 64 << 10;
/// Time of a step, nanoseconds, and how often its case is done at least and at most.
const STEP_NS: u64 = 15_000_000;
const COUNT: (u64, u64) = (3, 100);

/// Of a rank.
#[derive(clap::Args)]
pub struct RankArguments {
    /// Rounds of each comparison
    #[arg(long)]
    rounds: usize,
    /// The link that must be in use
    #[arg(long)]
    link: Option<String>,
    /// Save nothing
    #[arg(long)]
    dry_run: bool,
    /// Use the folder of all users
    #[arg(long)]
    system: bool,
    /// Measure nothing; remove the saved values
    #[arg(long)]
    forget: bool,
}

/// What rank 0 tells the others.
#[derive(Serialize, Deserialize)]
enum Order {
    Step(Step),
    Keep(String, Vec<String>, Vec<(String, u64)>),
    Forget(Vec<String>),
    End,
}

/// A line for the command.
#[derive(Serialize, Deserialize)]
pub enum Said {
    /// So many of so many steps are done.
    Progress(usize, usize),
    Found(Found),
}

/// A link by its name.
pub fn link_of(name: &str) -> Result<Link> {
    let found = Link::ALL.into_iter().find(|link| link.name() == name);
    found.ok_or_else(|| Failure::new(format!("link {name} has nothing to be tuned")))
}

/// The folder that files are kept in.
pub fn folder(system: bool) -> Result<PathBuf> {
    if system {
        return Ok(PathBuf::from(tuned::SYSTEM_FOLDER));
    }
    tuned::own_folder().ok_or_else(|| {
        Failure::new(format!(
            "there is no folder to keep files in: set HOME, XDG_CONFIG_HOME or {}",
            tuned::FOLDER_VARIABLE
        ))
    })
}

/// Removes the files of links.
pub fn forget(system: bool, links: &[Link]) -> Vec<Kept> {
    let host = tuned::host();
    let one = |link: &Link| {
        let forgotten = folder(system).and_then(|folder| {
            let doing = format!("removing {}", tuned::path_in(&folder, *link).display());
            tuned::forget(&folder, *link).map_err(Failure::io(doing))
        });
        forgotten.transpose().map(|done| Kept::new(&host, done))
    };
    links.iter().filter_map(one).collect()
}

/// The life of a rank.
pub fn main(arguments: &RankArguments) -> Result<()> {
    let endpoint = Endpoint::open(Config::default()).map_err(ours)?;
    let mut rank = Rank {
        stage: Stage::new(endpoint),
        system: arguments.system,
    };
    if rank.stage.endpoint.rank() > 0 {
        while rank.obey()? {}
    } else {
        let found = Leader {
            others: 1..rank.stage.endpoint.size(),
            rank: &mut rank,
            rounds: arguments.rounds,
            times_us: HashMap::new(),
            steps: (0, 0),
        }
        .lead(arguments)?;
        say(&Said::Found(found))?;
    }
    rank.stage.endpoint.close().map_err(ours)
}

/// Says something to the command; where it is gone there is nothing to do.
fn say(said: &Said) -> Result<()> {
    print(format_args!("{MARK}{}\n", serde_json::to_string(said)?)).map(drop)
}

struct Rank {
    stage: Stage,
    system: bool,
}

impl Rank {
    /// Does as rank 0 says; false: that was all.
    fn obey(&mut self) -> Result<bool> {
        match heard(&self.stage.endpoint, 0, ORDERS)? {
            Order::Step(step) => {
                self.stage.step(&step)?;
            }
            Order::Keep(link, notes, values) => {
                let kept = vec![self.keep(link_of(&link)?, &notes, &values)];
                send_json(&self.stage.endpoint, 0, ANSWERS, &kept)?;
            }
            Order::Forget(links) => {
                let links = links.iter().map(|it| link_of(it));
                let kept = forget(self.system, &links.collect::<Result<Vec<_>>>()?);
                send_json(&self.stage.endpoint, 0, ANSWERS, &kept)?;
            }
            Order::End => return Ok(false),
        }
        Ok(true)
    }

    fn keep(&self, link: Link, notes: &[String], values: &[(String, u64)]) -> Kept {
        let values: Vec<(&str, u64)> = (values.iter())
            .map(|(name, value)| (name.as_str(), *value))
            .collect();
        let kept = folder(self.system).and_then(|folder| {
            let doing = format!("writing {}", tuned::path_in(&folder, link).display());
            tuned::keep(&folder, link, notes, &values).map_err(Failure::io(doing))
        });
        Kept::new(&tuned::host(), kept)
    }
}

/// To receivers that wait and to late ones.
fn early_and_late(sizes: &[usize]) -> Vec<Case> {
    let both = |&size: &usize| [Case::Early(size), Case::Late(size)];
    sizes.iter().flat_map(both).collect()
}

/// Rank 0.
struct Leader<'a> {
    rank: &'a mut Rank,
    others: std::ops::Range<u32>,
    rounds: usize,
    /// How long a case takes, all about it included.
    times_us: HashMap<Case, f64>,
    /// Done, and of how many.
    steps: (usize, usize),
}

impl Leader<'_> {
    fn tell_all(&self, order: &Order) -> Result<()> {
        let endpoint = &self.rank.stage.endpoint;
        let mut others = self.others.clone();
        others.try_for_each(|to| send_json(endpoint, to, ORDERS, order))
    }

    fn lead(&mut self, arguments: &RankArguments) -> Result<Found> {
        let size = self.rank.stage.endpoint.size();
        if size < 2 {
            return Err(Failure::new("it takes two ranks to measure"));
        }
        let (lane, why) = self.rank.stage.endpoint.lane(1).map_err(ours)?;
        if let Some(asked) = &arguments.link
            && asked != lane
        {
            return Err(Failure::new(format!(
                "messages to rank 1 go by {lane}, not by {asked}: {why}"
            )));
        }
        let link = link_of(lane)?;
        let keeps = !arguments.dry_run && !arguments.forget;
        if keeps && why.starts_with("same host") && (link != Link::Shm || size > 2) {
            return Err(Failure::new(format!(
                "ranks 0 and 1 are on one host ({why}), of which the link between hosts shows \
                 nothing: give each host one slot (--hosts A,B), or --dry-run"
            )));
        }
        let mut found = Found::new(link, size);
        if arguments.forget {
            let links = match &arguments.link {
                Some(_) => vec![link],
                None => Link::ALL.to_vec(),
            };
            let names = links.iter().map(|link| link.name().to_owned()).collect();
            self.tell_all(&Order::Forget(names))?;
            found.kept = forget(self.rank.system, &links);
            self.collect(&mut found)?;
        } else {
            found.findings = self.find(link)?;
            if !arguments.dry_run {
                let (notes, values) = (found.notes(), found.values());
                self.tell_all(&Order::Keep(lane.to_owned(), notes.clone(), values.clone()))?;
                found.kept = vec![self.rank.keep(link, &notes, &values)];
                self.collect(&mut found)?;
            }
        }
        self.tell_all(&Order::End)?;
        Ok(found)
    }

    /// What the others say of their files.
    fn collect(&self, found: &mut Found) -> Result<()> {
        for from in self.others.clone() {
            let of: Vec<Kept> = heard(&self.rank.stage.endpoint, from, ANSWERS)?;
            found.kept.extend(of);
        }
        // Ranks of one host have one file.
        found.kept.sort();
        found.kept.dedup();
        Ok(())
    }

    /// Measures all thresholds, those of shorter messages first: each with what
    /// was found before it.
    fn find(&mut self, link: Link) -> Result<Vec<Finding>> {
        let defaults = Values::defaults(link);
        let mut values = defaults;
        let many = self.others.len() >= 2;
        let pushes = 1 + FIRST.len() * SECOND.len();
        let incast = usize::from(many);
        let others = match link {
            Link::Shm => 2 * 2 * SHARED.len(),
            Link::Udp | Link::Xdp => (1 + incast) * (2 + WINDOWS.len() + CHUNKS.len()),
        };
        self.steps.1 = (self.rounds + 1) * (2 * 2 * WHOLE.len() + (4 + incast) * pushes + others);
        let names = link.settings();

        let mut findings = vec![self.whole(names[0], &mut values)?];

        let flooding = FLOOD.max(2 * values.whole) as usize;
        let flood: Vec<Case> = many.then_some(Case::Incast(flooding)).into_iter().collect();
        let to_one = if many {
            format!(", and of {flooding} bytes of all to one: time of all and of the slowest")
        } else {
            String::new()
        };
        let around = (2 * values.whole as usize).clamp(16 << 10, LONG);
        let sizes = [around, (4 * around).min(LONG)];
        let cases = early_and_late(&sizes);
        // Nothing is pushed of what both sides copy; where the kernel permits that to
        // nobody, the rest of longer messages goes as here.
        let share = std::mem::replace(&mut values.share, NEVER);
        let pairs = FIRST.iter().flat_map(|&first| {
            SECOND.map(|second| Values {
                first,
                second,
                ..values
            })
        });
        let tried = [values].into_iter().chain(pairs).collect::<Vec<_>>();
        let [shorter, longer] = sizes;
        let what = format!(
            "messages of {shorter} and {longer} bytes to receivers that wait and to late \
             ones{to_one}"
        );
        let cases = [&cases[..], &flood].concat();
        let gain = self.better(&mut values, &tried, &cases)?;
        values.share = share;
        findings.push(Finding::new(
            names[1],
            defaults.first,
            values.first,
            gain,
            &what,
        ));
        findings.push(Finding::new(
            names[2],
            defaults.second,
            values.second,
            gain,
            &what,
        ));

        if link == Link::Shm {
            findings.push(self.shared(names[3], &mut values)?);
        } else {
            let what = format!("messages of {LONG} bytes there and back{to_one}");
            let long = [&[Case::Back(LONG)][..], &flood].concat();
            findings.extend(self.pulls([names[3], names[4]], &mut values, &long, &what)?);
        }
        Ok(findings)
    }

    /// How much is asked for at once: the window first.
    fn pulls(
        &mut self,
        names: [&'static str; 2],
        values: &mut Values,
        cases: &[Case],
        what: &str,
    ) -> Result<[Finding; 2]> {
        let before = *values;
        let windows = WINDOWS.map(|window| Values {
            window,
            // Two requests at least are under way.
            chunk: values.chunk.min(window / 2),
            ..*values
        });
        let tried = [*values].into_iter().chain(windows).collect::<Vec<_>>();
        let gain = self.better(values, &tried, cases)?;
        let of_window = Finding::new(names[0], before.window, values.window, gain, what);

        let with_window = values.chunk;
        let chunks = CHUNKS.map(|chunk| Values { chunk, ..*values });
        let fitting = chunks
            .into_iter()
            .filter(|it| it.chunk <= values.window / 2);
        let tried = [*values].into_iter().chain(fitting).collect::<Vec<_>>();
        let own = self.better(values, &tried, cases)?;
        // The window may have changed it already.
        let gain = match own {
            None if with_window != before.chunk => gain,
            own => own,
        };
        let of_chunk = Finding::new(names[1], before.chunk, values.chunk, gain, what);
        Ok([of_window, of_chunk])
    }

    /// Up to which length messages are better pushed whole.
    fn whole(&mut self, name: &'static str, values: &mut Values) -> Result<Finding> {
        let default = values.whole;
        let many = self.others.len() >= 2;
        let now = WHOLE.iter().filter(|size| **size as u64 <= default).count();
        let pushed = [0, u64::MAX].map(|whole| Values { whole, ..*values });
        let gain = self.changeover(values, &WHOLE, now, &pushed, |values, count| {
            let whole = count.checked_sub(1).map_or(0, |last| WHOLE[last] as u64);
            // What one sender gains may fill the way to a receiver of many.
            let flood = (count > now && many).then_some(Case::Incast(whole as usize));
            (Values { whole, ..values }, flood)
        })?;
        let what = "messages of 512 to 262144 bytes, pushed whole or not, to receivers that wait \
                    and to late ones; where three take part, all may send them to one";
        Ok(Finding::new(name, default, values.whole, gain, what))
    }

    /// From which length on both sides copy.
    fn shared(&mut self, name: &'static str, values: &mut Values) -> Result<Finding> {
        let default = values.share;
        let sizes: Vec<usize> = (SHARED.into_iter())
            .filter(|size| *size as u64 > values.whole)
            .collect();
        let now = sizes
            .iter()
            .filter(|size| (**size as u64) < default)
            .count();
        let apart = [0, NEVER].map(|share| Values { share, ..*values });
        let gain = self.changeover(values, &sizes, now, &apart, |values, count| {
            let share = sizes.get(count).map_or(NEVER, |first| *first as u64);
            (Values { share, ..values }, None)
        })?;
        let what = "messages of 16384 to 2097152 bytes that are not pushed whole, copied by both \
                    sides or not, to receivers that wait and to late ones";
        Ok(Finding::new(name, default, values.share, gain, what))
    }

    /// Changes `values` so that messages of another count of `sizes` than `now`
    /// go as with the second of `ways`, and longer ones as with the first, if that
    /// is better. `of` gives the values for a count, and what else must not
    /// become worse.
    fn changeover(
        &mut self,
        values: &mut Values,
        sizes: &[usize],
        now: usize,
        ways: &[Values; 2],
        of: impl Fn(Values, usize) -> (Values, Option<Case>),
    ) -> Result<Option<f64>> {
        let times = self.compare(ways, &early_and_late(sizes))?;
        let of_cases = ratios(&times[1], &times[0]);
        let of_sizes: Vec<f64> = of_cases.chunks(2).map(mean).collect();
        let mut counts = 0..=sizes.len();
        loop {
            let count = up_to(&of_sizes, counts);
            if worth(&of_sizes, now, count).is_none() {
                return Ok(None);
            }
            let (others, beside) = of(*values, count);
            let mut cases = early_and_late(&sizes[count.min(now)..count.max(now)]);
            cases.extend(beside);
            let gain = self.confirmed(values, others, &cases)?;
            if gain.is_some() {
                return Ok(gain);
            }
            // A smaller change may still be one for the better.
            counts = if count > now {
                now..=count - 1
            } else {
                count + 1..=now
            };
        }
    }

    /// Changes `values`, which stand first in `tried`, if something is better;
    /// gives its times over theirs.
    fn better(
        &mut self,
        values: &mut Values,
        tried: &[Values],
        cases: &[Case],
    ) -> Result<Option<f64>> {
        let times = self.compare(tried, cases)?;
        match best(&times) {
            Some((place, _)) => self.confirmed(values, tried[place], cases),
            None => Ok(None),
        }
    }

    /// Changes `values` if the others are better once more: of many some are by
    /// chance.
    fn confirmed(
        &mut self,
        values: &mut Values,
        others: Values,
        cases: &[Case],
    ) -> Result<Option<f64>> {
        let times = self.compare(&[*values, others], cases)?;
        let found = best(&times).map(|(_, gain)| gain);
        if found.is_some() {
            *values = others;
        }
        Ok(found)
    }

    /// Gives each candidate its turn in each round.
    fn compare(&mut self, tried: &[Values], cases: &[Case]) -> Result<Vec<Times>> {
        let figures = cases.iter().map(|case| case.figures()).sum();
        let mut all: Vec<Times> = vec![vec![Vec::new(); figures]; tried.len()];
        for round in 0..=self.rounds {
            let mut figure = 0;
            for &case in cases {
                for (values, times) in tried.iter().zip(&mut all) {
                    let found = self.step(case, *values)?;
                    // The first round warms up.
                    if round > 0 {
                        for (times, us) in times[figure..].iter_mut().zip(found) {
                            times.push(us);
                        }
                    }
                }
                figure += case.figures();
            }
        }
        Ok(all)
    }

    fn step(&mut self, case: Case, values: Values) -> Result<Vec<f64>> {
        let (least, most) = COUNT;
        let count = match self.times_us.get(&case) {
            Some(us) => ((STEP_NS as f64 / 1e3 / us) as u64).clamp(least, most),
            None => least,
        };
        let step = Step {
            case,
            values,
            count,
        };
        self.tell_all(&Order::Step(step))?;
        let start_ns = now_ns();
        let found = self.rank.stage.step(&step)?;
        let us = (now_ns() - start_ns) as f64 / 1e3 / count as f64;
        self.times_us.insert(case, us.max(0.1));
        self.steps.0 += 1;
        if self.steps.0.is_multiple_of(16) {
            say(&Said::Progress(self.steps.0, self.steps.1))?;
        }
        Ok(found)
    }
}
