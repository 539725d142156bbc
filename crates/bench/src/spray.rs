//! Spraying (Donaldson, Hill and McEwan, section 3.2): a rank sends i messages
//! before it reads any reflection; the gap is the time from the first send to
//! the last reflection, divided by i. With 1 message it is the round trip;
//! with many it shows what happens when buffers are full.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use portolan::{Binding, SendError};
use portolan_hosts::failure::{Result, fail};
use portolan_hosts::lab::Lab;
use portolan_sys::clock::now_ns;
use serde::{Deserialize, Serialize};

use super::conduct::{Progress, expect_ready, hear, unexpected};
use super::control::{Answer, Line, Order};
use super::options::Common;
use super::plan::wrong;
use super::portolan::{Arrived, Ours, PASSES, ours};
use super::report::{Report, Row};
use super::stats::Quartiles;
use super::watch::Watch;
use super::{Found, check, job, links, through_shm};

/// Bytes of a message: as published.
const SIZES: [usize; 2] = [4, 1400];
/// Most messages by default.
pub const MESSAGES: u64 = 1_000_000;
/// Slices of each figure by default: a million messages take a while.
const SLICES: usize = 5;
/// Nothing has come back for so long: it never will.
const PATIENCE_NS: u64 = 20_000_000_000;
/// Port whose messages are reflected.
const SPRAY: u16 = 4;
/// Port of reflections.
const BACK: u16 = 5;

/// A rank's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jet {
    /// Bytes of a message.
    pub size: usize,
    /// Messages to send; 0: only reflect.
    pub count: u64,
}

/// What a rank that sprayed found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sprayed {
    /// From the first send to the last reflection, ns.
    pub elapsed_ns: u64,
    /// Messages sent before the first was refused for want of credit.
    pub unread: u64,
    /// From the first send to that, or to the last send, ns.
    pub burst_ns: u64,
}

impl Ours {
    /// Sprays, or only reflects, until the bench says stop.
    pub fn spray(&self, jet: &Jet, line: &mut Line) -> Result<()> {
        let back = Arc::new(Arrived::default());
        let count = Arc::clone(&back);
        // A reflection that finds no credit waits in the engine, and more
        // messages are not taken while too many wait.
        let reflect = Binding::to(|context, message| {
            let _ = context.reply_to(BACK, &[], message.payload);
        });
        let note = Binding::to(move |_, message| count.count(message.payload.len()));
        for (port, binding) in [(SPRAY, reflect), (BACK, note)] {
            self.endpoint.bind(port, binding).map_err(ours)?;
        }
        line.say(&Answer::Ready)?;
        if jet.count > 0 {
            let sprayed = self.emit_and_collect(jet, &back)?;
            line.say(&Answer::Sprayed(sprayed))?;
        }
        loop {
            for _ in 0..PASSES {
                self.endpoint.progress().map_err(ours)?;
            }
            match line.try_hear()? {
                None => {}
                Some(Order::Stop) => return line.say(&Answer::Ready),
                Some(order) => {
                    return fail(format!("the bench sent {order:?} to a rank that sprays"));
                }
            }
        }
    }

    fn emit_and_collect(&self, jet: &Jet, back: &Arrived) -> Result<Sprayed> {
        let message = vec![0x5a; jet.size];
        let to = self.peer();
        let mut sprayed = Sprayed::default();
        let (mut sent, mut refused) = (0, false);
        let start_ns = now_ns();
        while sent < jet.count {
            match self.endpoint.try_send(to, SPRAY, &message) {
                Ok(_) => sent += 1,
                Err(SendError::NoCredit) => {
                    if !refused {
                        refused = true;
                        sprayed.unread = sent;
                        sprayed.burst_ns = now_ns() - start_ns;
                    }
                    self.endpoint.progress().map_err(ours)?;
                }
                Err(error) => return Err(ours(error)),
            }
        }
        if !refused {
            sprayed.unread = sent;
            sprayed.burst_ns = now_ns() - start_ns;
        }
        let (mut seen, mut seen_ns) = (0, now_ns());
        while back.messages.load(Relaxed) < jet.count {
            for _ in 0..PASSES {
                if self.endpoint.progress().map_err(ours)? == 0
                    && back.messages.load(Relaxed) >= jet.count
                {
                    break;
                }
            }
            let came = back.messages.load(Relaxed);
            if came > seen {
                (seen, seen_ns) = (came, now_ns());
            } else if now_ns() - seen_ns > PATIENCE_NS {
                return fail(format!(
                    "{came} of {} messages came back, then none for 20 s",
                    jet.count
                ));
            }
        }
        sprayed.elapsed_ns = now_ns() - start_ns;
        Ok(sprayed)
    }
}

/// One figure in the making.
struct Cell {
    size: usize,
    both: bool,
    count: u64,
    gaps: Vec<f64>,
    unread: Vec<f64>,
    unpaced: Vec<f64>,
}

/// Sprays over each link in turn.
pub fn bench(common: Common, messages: u64) -> Result<Found> {
    if !(1..=100_000_000).contains(&messages) {
        return wrong(format!("--messages {messages}: give 1 to 100000000"));
    }
    check(common.json.as_deref(), 2)?;
    let lab = common.lab.as_deref().map(Lab::open).transpose()?;
    let mut watch = Watch::begin(common.lab.as_deref());
    let slices = common.slices.unwrap_or(SLICES);
    let mut rows = Vec::new();
    for &link in links(&common, lab.as_ref()) {
        let of_link = Common {
            link,
            ..common.clone()
        };
        let shm = through_shm(&of_link, lab.as_ref())?;
        let spec = of_link.spec(2, lab.is_some(), shm)?;
        let mut cells = cells(messages);
        let (link, ()) = job::with_lines(
            spec,
            lab.as_ref(),
            job::Helpers::All,
            &mut watch.host,
            |lines| run(lines, &mut cells, slices),
        )?;
        let like = of_link.setting(link, 2).row();
        rows.extend(
            cells
                .iter()
                .flat_map(|cell| cell.rows(&like, cell.count == messages)),
        );
    }
    let remarks = vec![
        "published (100 Mbit/s Ethernet, 4 bytes): 8.2 us between unpaced sends, 21 us steady and paced, 95 us round trip"
            .to_owned(),
    ];
    let report = Report {
        remarks,
        ..watch.report("spray", rows)
    };
    Ok((common.json, report))
}

/// Every size, from one side and from both, with 1, 10, 100, ... messages.
fn cells(messages: u64) -> Vec<Cell> {
    let counts: Vec<u64> = std::iter::successors(Some(1), |count| Some(count * 10))
        .take_while(|count| *count < messages)
        .chain([messages])
        .collect();
    let mut cells = Vec::new();
    for size in SIZES {
        for both in [false, true] {
            cells.extend(counts.iter().map(|&count| Cell {
                size,
                both,
                count,
                gaps: Vec::new(),
                unread: Vec::new(),
                unpaced: Vec::new(),
            }));
        }
    }
    cells
}

fn run(lines: &mut [Line], cells: &mut [Cell], slices: usize) -> Result<()> {
    let mut progress = Progress::new(slices);
    for round in 0..=slices {
        progress.show(round);
        for cell in &mut *cells {
            let sprayed = turn(lines, cell)?;
            if round == 0 {
                continue;
            }
            // With two that spray, the slower one counts.
            let slowest = sprayed.iter().map(|s| s.elapsed_ns).max().unwrap_or(0);
            cell.gaps.push(slowest as f64 / 1e3 / cell.count as f64);
            let first = &sprayed[0];
            cell.unread.push(first.unread as f64);
            cell.unpaced
                .push(first.burst_ns as f64 / 1e3 / first.unread.max(1) as f64);
        }
    }
    progress.done();
    Ok(())
}

/// One figure's turn; what each rank that sprayed found, rank 0 first.
fn turn(lines: &mut [Line], cell: &Cell) -> Result<Vec<Sprayed>> {
    let sprayers = if cell.both { 2 } else { 1 };
    // The one that only reflects is ready before the other begins.
    for (rank, line) in lines.iter_mut().enumerate().rev() {
        let count = if rank < sprayers { cell.count } else { 0 };
        line.say(&Order::Spray(Jet {
            size: cell.size,
            count,
        }))?;
        expect_ready(line)?;
    }
    let mut sprayed = Vec::new();
    for line in &mut lines[..sprayers] {
        match hear(line)? {
            Answer::Sprayed(it) => sprayed.push(it),
            other => return unexpected(&other),
        }
    }
    for line in lines {
        line.say(&Order::Stop)?;
        expect_ready(line)?;
    }
    Ok(sprayed)
}

impl Cell {
    /// The gap; of the most messages, too, how the first of them fared.
    fn rows(&self, like: &Row, most: bool) -> Vec<Row> {
        let figures = [
            (
                "gap_us",
                &self.gaps,
                "time from the first send to the last reflection / messages",
            ),
            (
                "unpaced_gap_us",
                &self.unpaced,
                "time between two sends until the first is refused for want of credit",
            ),
            (
                "messages_unread",
                &self.unread,
                "messages sent until then, without reading a reflection",
            ),
        ];
        figures
            .into_iter()
            .take(if most { 3 } else { 1 })
            .filter_map(|(metric, values, method)| {
                let q = Quartiles::of(values)?;
                let row = Row {
                    metric: metric.to_owned(),
                    size: Some(self.size),
                    messages: Some(self.count),
                    pattern: Some(if self.both { "both" } else { "one" }.to_owned()),
                    n: self.count * q.count as u64,
                    method: method.to_owned(),
                    ..like.clone()
                };
                Some(row.with(&q))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_ten_and_the_most_are_sprayed() {
        let counts = |messages| -> Vec<u64> {
            let cells = cells(messages);
            assert_eq!(cells.len() % 4, 0);
            cells[..cells.len() / 4].iter().map(|c| c.count).collect()
        };
        assert_eq!(counts(1), [1]);
        assert_eq!(counts(1_000), [1, 10, 100, 1_000]);
        assert_eq!(counts(2_500), [1, 10, 100, 1_000, 2_500]);
    }
}
