//! Spraying (Donaldson, Hill and McEwan, section 3.2): a rank sends i messages
//! before it reads any reflection; the gap is the time from the first send to
//! the last reflection, divided by i. With 1 message it is the round trip;
//! with many it shows what happens when buffers are full.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use clap::Args;
use portolan::{Binding, SendError};
use portolan_hosts::failure::{Result, fail};
use portolan_sys::clock::now_ns;
use serde::{Deserialize, Serialize};

use crate::conduct::{answers, expect_ready};
use crate::control::{Answer, ControlLine, Order};
use crate::experiment::{Experiment, Findings, Stage, rounds, wrong};
use crate::options::Common;
use crate::ranks::portolan::{Arrived, Ours, PASSES, ours};
use crate::report::dimensions::Dimension;
use crate::report::stats::Series;
use crate::report::table::Row;

/// Bytes of a message: as published.
const SIZES: [usize; 2] = [4, 1400];
/// Most messages by default.
pub const MESSAGES: u64 = 1_000_000;
/// Slices of each figure by default: a million messages take a while.
const SLICES: usize = 5;
/// Nothing has come back for so long: it never will.
const TIMEOUT_NS: u64 = 20_000_000_000;
/// Port whose messages are reflected.
const SPRAYED: u16 = 4;
/// Port of reflections.
const BACK: u16 = 5;

/// A rank's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spray {
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
    pub fn spray(&self, part: &Spray, line: &mut ControlLine) -> Result<()> {
        let back = Arc::new(Arrived::default());
        let count = Arc::clone(&back);
        // A reflection that finds no credit waits in the engine, and more
        // messages are not taken while too many wait.
        let reflect = Binding::to(|context, message| {
            let _ = context.reply_to(BACK, &[], message.payload);
        });
        let note = Binding::to(move |_, message| count.count(message.payload.len()));
        for (port, binding) in [(SPRAYED, reflect), (BACK, note)] {
            self.endpoint.bind(port, binding).map_err(ours)?;
        }
        line.say(&Answer::Ready)?;
        if part.count > 0 {
            let sprayed = self.emit_and_collect(part, &back)?;
            line.say(&Answer::Sprayed(sprayed))?;
        }
        loop {
            for _ in 0..PASSES {
                self.endpoint.progress().map_err(ours)?;
            }
            if line.stops()? {
                return line.say(&Answer::Ready);
            }
        }
    }

    fn emit_and_collect(&self, part: &Spray, back: &Arrived) -> Result<Sprayed> {
        let message = vec![0x5a; part.size];
        let to = self.peer();
        let mut sprayed = Sprayed::default();
        let (mut sent, mut refused) = (0, false);
        let start_ns = now_ns();
        while sent < part.count {
            match self.endpoint.try_send(to, SPRAYED, &message) {
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
        while back.messages.load(Relaxed) < part.count {
            for _ in 0..PASSES {
                if self.endpoint.progress().map_err(ours)? == 0
                    && back.messages.load(Relaxed) >= part.count
                {
                    break;
                }
            }
            let came = back.messages.load(Relaxed);
            if came > seen {
                (seen, seen_ns) = (came, now_ns());
            } else if now_ns() - seen_ns > TIMEOUT_NS {
                return fail(format!(
                    "{came} of {} messages came back, then none for 20 s",
                    part.count
                ));
            }
        }
        sprayed.elapsed_ns = now_ns() - start_ns;
        Ok(sprayed)
    }
}

/// As it was asked for.
#[derive(Args)]
pub struct Spraying {
    #[command(flatten)]
    pub common: Common,
    /// Largest number of messages; 1, 10, 100 and so on below it are measured too
    #[arg(long, value_name = "N", default_value_t = MESSAGES)]
    messages: u64,
}

/// One figure in the making.
struct Cell {
    size: usize,
    both: bool,
    count: u64,
    gaps: Series,
    unread: Series,
    unpaced: Series,
}

impl Experiment for Spraying {
    /// Over each link in turn.
    fn run(&self, stage: &mut Stage) -> Result<Findings> {
        let messages = self.messages;
        if !(1..=100_000_000).contains(&messages) {
            return wrong(format!("--messages {messages}: give 1 to 100000000"));
        }
        let mut found = Findings::default();
        for common in self.common.each_link(stage.lab.as_ref()) {
            let spec = common.spec(stage.lab.as_ref(), 2)?;
            let mut cells = cells(messages);
            let slices = common.slices.unwrap_or(SLICES);
            let (link, ()) = stage.job(spec, |lines| run(lines, &mut cells, slices))?;
            let row = common.setting(link, 2).row();
            let rows = |cell: &Cell| cell.rows(&row, cell.count == messages);
            found.rows.extend(cells.iter().flat_map(rows));
        }
        found.remarks = vec![
            "published (100 Mbit/s Ethernet, 4 bytes): 8.2 us between unpaced sends, 21 us steady and paced, 95 us round trip"
                .to_owned(),
        ];
        Ok(found)
    }
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
                gaps: Series::default(),
                unread: Series::default(),
                unpaced: Series::default(),
            }));
        }
    }
    cells
}

fn run(lines: &mut [ControlLine], cells: &mut [Cell], slices: usize) -> Result<()> {
    rounds(slices, |counts| {
        for cell in &mut *cells {
            let sprayed = turn(lines, cell)?;
            if !counts {
                continue;
            }
            // With two that spray, the slower one counts.
            let slowest = sprayed.iter().map(|s| s.elapsed_ns).max().unwrap_or(0);
            let (first, n) = (&sprayed[0], cell.count);
            cell.gaps.keep(slowest as f64 / 1e3 / n as f64, n);
            cell.unread.keep(first.unread as f64, n);
            let unread = first.unread.max(1) as f64;
            cell.unpaced.keep(first.burst_ns as f64 / 1e3 / unread, n);
        }
        Ok(())
    })
}

/// One figure's turn; what each rank that sprayed found, rank 0 first.
fn turn(lines: &mut [ControlLine], cell: &Cell) -> Result<Vec<Sprayed>> {
    let sprayers = if cell.both { 2 } else { 1 };
    // The one that only reflects is ready before the other begins.
    for (rank, line) in lines.iter_mut().enumerate().rev() {
        let count = if rank < sprayers { cell.count } else { 0 };
        line.say(&Order::Spray(Spray {
            size: cell.size,
            count,
        }))?;
        expect_ready(line)?;
    }
    let sprayed = answers!(&mut lines[..sprayers], Sprayed);
    for line in lines {
        line.say(&Order::Stop)?;
        expect_ready(line)?;
    }
    Ok(sprayed)
}

impl Cell {
    /// The gap; of the most messages, too, how the first of them fared.
    fn rows(&self, row: &Row, most: bool) -> Vec<Row> {
        let sides = if self.both { "both" } else { "one" };
        let row = row.clone().at(Dimension::Size, self.size);
        let row = row
            .at(Dimension::Messages, self.count)
            .at(Dimension::Pattern, sides);
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
        row.figures(figures.into_iter().take(if most { 3 } else { 1 }))
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
