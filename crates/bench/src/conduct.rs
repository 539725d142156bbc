//! Runs a plan: gives the two ranks their turns, slice by slice, and reckons
//! up what they found.

use hdrhistogram::Histogram;
use portolan_hosts::failure::{Context, Failure, Result, fail};
use portolan_sys::clock::now_ns;

use crate::control::{Answer, ControlLine, Followed, Op, Order, SystemKind};
use crate::experiment::rounds;
use crate::loss::{Column, Loss};
use crate::plan::Plan;
use crate::ranks::drive::new_histogram;
use crate::ranks::rank::Site;
use crate::report::cost::Costs;
use crate::report::figure::{Slice, value};
use crate::report::stats::Series;
use crate::slice::Rule;

/// What a rank says in an answer of this kind.
macro_rules! answer {
    ($line:expr, $kind:ident) => {
        match $crate::conduct::hear($line)? {
            $crate::control::Answer::$kind(it) => it,
            other => return $crate::conduct::unexpected(&other),
        }
    };
}
pub(crate) use answer;

/// What each of some ranks says in an answer of this kind.
macro_rules! answers {
    ($lines:expr, $kind:ident) => {{
        let mut all = Vec::new();
        for line in $lines {
            all.push($crate::conduct::answer!(line, $kind));
        }
        all
    }};
}
pub(crate) use answers;

/// Time that what a slice has left unfinished gets to arrive, nanoseconds.
const DRAIN_NS: u64 = 10_000_000_000;

/// One figure in the making: a system at a size and a loss.
pub struct Cell {
    /// Which system.
    pub system: SystemKind,
    /// Which loss, by its place in the plan.
    pub column: usize,
    /// What is done.
    pub op: Op,
    slot: usize,
    /// A value a slice, where it has one.
    pub values: Series,
    /// Data packets sent against those needed, a value a slice.
    pub packets: Series,
    /// What both processes spent.
    pub costs: Costs,
    /// Round trips of all slices, tenths of a nanosecond.
    pub round_trips: Histogram<u64>,
    /// How a peer that measures for itself was asked to.
    pub note: Option<String>,
}

impl Cell {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(system: SystemKind, column: usize, op: Op, slot: usize) -> Self {
        Self {
            system,
            column,
            op,
            slot,
            values: Series::default(),
            packets: Series::default(),
            costs: Costs::default(),
            round_trips: new_histogram(),
            note: None,
        }
    }
}

/// Gives the ranks their turns.
pub struct Conductor<'a> {
    plan: &'a Plan,
    leader: &'a mut ControlLine,
    follower: &'a mut ControlLine,
    loss: &'a mut dyn Loss,
    sites: [Site; 2],
    /// Most payload of one of our packets, bytes, where the MTU is known.
    payload: Option<u64>,
    lossy_now: bool,
}

/// Systems that lose what is left of a slice by a new connection.
fn reconnects(system: SystemKind) -> bool {
    matches!(system, SystemKind::KernelTcp | SystemKind::KernelTls)
}

/// Systems that lose no message.
fn reliable(system: SystemKind) -> bool {
    !matches!(system, SystemKind::KernelUdp | SystemKind::RawXdp)
}

impl<'a> Conductor<'a> {
    /// Over the lines to both ranks, which are at `sites`.
    pub fn new(
        plan: &'a Plan,
        [leader, follower]: [&'a mut ControlLine; 2],
        loss: &'a mut dyn Loss,
        sites: [Site; 2],
        payload: Option<u64>,
    ) -> Self {
        Self {
            plan,
            leader,
            follower,
            loss,
            sites,
            payload,
            lossy_now: false,
        }
    }

    /// Measures everything.
    pub fn run(&mut self) -> Result<Vec<Cell>> {
        let mut cells = self.begin()?;
        rounds(self.plan.slices, |counts| self.round(counts, &mut cells))?;
        self.set(&Column::CLEAN)?;
        Ok(cells)
    }

    /// Has the ranks make all systems; gives the figures, without values yet.
    pub fn begin(&mut self) -> Result<Vec<Cell>> {
        let cells = self.cells();
        let mut prepared = Vec::new();
        for cell in &cells {
            if !prepared.contains(&cell.slot) {
                prepared.push(cell.slot);
                self.prepare(cell.slot, cell.system)?;
            }
        }
        Ok(cells)
    }

    /// Gives every figure one slice. The first round warms up caches, congestion
    /// windows and estimates, and does not count.
    pub fn round(&mut self, counts: bool, cells: &mut [Cell]) -> Result<()> {
        let rule = Rule::new(self.plan.slice_ns);
        let mut column = usize::MAX;
        for cell in cells {
            if cell.column != column {
                column = cell.column;
                self.enter(column)?;
                // What an endpoint has learnt in the last column is not
                // this column's; peers have a connection for each.
                let ours = [SystemKind::Portolan, SystemKind::Standalone];
                if self.plan.columns.len() > 1 && ours.contains(&cell.system) {
                    let warm_up = Rule {
                        slice_ns: rule.slice_ns / 10,
                        operations: 1,
                        ..rule
                    };
                    self.slice(cell, &warm_up)?;
                }
            }
            self.enter(column)?;
            let slice = self.slice(cell, &rule)?;
            if counts {
                self.keep(cell, &slice, &rule)?;
            }
        }
        Ok(())
    }

    /// All figures, in the order of a round: a loss at a time, in it a size
    /// at a time, in it the systems in turn.
    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for column in 0..self.plan.columns.len() {
            for &size in &self.plan.sizes {
                for (place, &system) in self.plan.systems.iter().enumerate() {
                    let own = if reconnects(system) { column } else { 0 };
                    let slot = place + own * self.plan.systems.len();
                    let op = Op {
                        pattern: self.plan.pattern,
                        size,
                    };
                    cells.push(Cell::new(system, column, op, slot));
                }
            }
        }
        cells
    }

    /// From now on packets fare as the column says.
    fn enter(&mut self, column: usize) -> Result<()> {
        self.set(&self.plan.columns[column])
    }

    fn set(&mut self, column: &Column) -> Result<()> {
        if !column.is_clean() || self.lossy_now {
            self.loss.set(column)?;
            self.lossy_now = !column.is_clean();
        }
        Ok(())
    }

    /// Has both ranks make a system, and tells each the other's offer.
    fn prepare(&mut self, slot: usize, system: SystemKind) -> Result<()> {
        let mut offers = [String::new(), String::new()];
        for (leads, offer) in [(false, 0), (true, 1)] {
            let site = self.sites[usize::from(!leads)].clone();
            let line = if leads {
                &mut *self.leader
            } else {
                &mut *self.follower
            };
            line.say(&Order::Prepare {
                slot,
                system,
                leads,
                wait: self.plan.wait,
                size_max: self.plan.size_max(),
                lossy: self.plan.lossy,
                site,
                settings: self.plan.settings.clone(),
            })?;
            offers[offer] = answer!(line, Offer);
        }
        let [of_follower, of_leader] = offers;
        // At the same time: a handshake takes both.
        let join = |offer| Order::Join { slot, offer };
        self.leader.say(&join(of_follower))?;
        self.follower.say(&join(of_leader))?;
        expect_ready(self.leader)?;
        expect_ready(self.follower)
    }

    /// One system's turn. Afterwards nothing of it is on its way.
    fn slice(&mut self, cell: &Cell, rule: &Rule) -> Result<Slice> {
        let (slot, op) = (cell.slot, cell.op);
        self.follower.say(&Order::Follow { slot, op })?;
        expect_ready(self.follower)?;
        self.leader.say(&Order::Lead {
            slot,
            op,
            rule: *rule,
        })?;
        let sent = answer!(self.leader, Sent);
        let deadline_ns = sent.start_ns + rule.cap_ns;
        let followed = self.finish_following(sent.bytes, deadline_ns)?;
        let unfinished = reliable(cell.system) && (!followed.complete || sent.cut);
        if unfinished {
            self.set(&Column::CLEAN)?;
            if !reconnects(cell.system) {
                self.drain(cell, sent.bytes - followed.bytes)?;
            }
        }
        self.leader.say(&Order::Stop)?;
        let led = answer!(self.leader, Led);
        if unfinished && reconnects(cell.system) {
            self.prepare(slot, cell.system)?;
        }
        Ok(Slice {
            sent,
            followed,
            led,
        })
    }

    /// Takes in what is still on its way. The leader makes progress until it hears `Stop`.
    fn drain(&mut self, cell: &Cell, mut missing: u64) -> Result<()> {
        while missing > 0 {
            let (slot, op) = (cell.slot, cell.op);
            self.follower.say(&Order::Follow { slot, op })?;
            expect_ready(self.follower)?;
            let rest = self.finish_following(missing, now_ns() + DRAIN_NS)?;
            missing -= rest.bytes.min(missing);
            // On a busy machine it may take long.
            if rest.bytes == 0 && missing > 0 {
                return fail(format!(
                    "{:?}: none of {missing} bytes arrived within 10 s although nothing is lost any \
                     more",
                    cell.system
                ));
            }
        }
        Ok(())
    }

    fn finish_following(&mut self, bytes: u64, deadline_ns: u64) -> Result<Followed> {
        self.follower.say(&Order::Finish { bytes, deadline_ns })?;
        Ok(answer!(self.follower, Followed))
    }

    fn keep(&self, cell: &mut Cell, slice: &Slice, rule: &Rule) -> Result<()> {
        let is_reliable = reliable(cell.system);
        let figure = value(self.plan.kind, &cell.op, slice, rule, is_reliable);
        cell.values.values.push(figure);
        cell.costs.keep(self.plan.kind, &cell.op, slice);
        let Slice { sent, led, .. } = slice;
        for &(round_trip, count) in &led.round_trips {
            cell.round_trips
                .record_n(round_trip, count)
                .map_err(|error| {
                    Failure::new(format!("a round trip of {round_trip} / 10 ns: {error}"))
                })?;
        }
        cell.values.n += sent.operations;
        if sent.note.is_some() {
            cell.note.clone_from(&sent.note);
        }
        let lost = self.plan.columns[cell.column].loss / 100.0;
        let ratio =
            |(sent_packets, payload)| packets_ratio(sent_packets, payload, sent.bytes, lost);
        let packets = led.data_packets.zip(self.payload).map(ratio);
        cell.packets.values.push(packets);
        Ok(())
    }
}

/// Data packets sent against those that a transport without a resend too many
/// needs.
fn packets_ratio(packets: u64, payload: u64, bytes: u64, lost: f64) -> f64 {
    packets as f64 / (bytes.div_ceil(payload) as f64 / (1.0 - lost))
}

/// The next answer; a rank's failure is ours.
pub fn hear(line: &mut ControlLine) -> Result<Answer> {
    match line.hear()? {
        Answer::Failed(why) => Err(Failure::new(why)),
        answer => Ok(answer),
    }
}

/// Waits for `Ready`.
pub fn expect_ready(line: &mut ControlLine) -> Result<()> {
    match hear(line)? {
        Answer::Ready => Ok(()),
        other => unexpected(&other),
    }
}

/// Tells all ranks.
pub fn say_all(lines: &mut [ControlLine], order: &Order) -> Result<()> {
    lines.iter_mut().try_for_each(|line| line.say(order))
}

/// How long it took rank 0 to do what all were told to, ns.
pub fn took(lines: &mut [ControlLine]) -> Result<u64> {
    let elapsed = answers!(lines, Took);
    Ok(elapsed.first().copied().unwrap_or_default().max(1))
}

/// Hears the offers of all ranks, tells each all of them, and waits until all
/// have met.
pub fn introduce(lines: &mut [ControlLine]) -> Result<()> {
    let offers = answers!(&mut *lines, Offer);
    say_all(lines, &Order::Meet(offers))?;
    lines.iter_mut().try_for_each(expect_ready)
}

/// A rank said something else than it was asked for.
pub fn unexpected<T>(answer: &Answer) -> Result<T> {
    fail(format!("a rank answered {answer:?} at the wrong time"))
}

/// Both ranks' greetings, and what they say of themselves.
pub fn greet(line: &mut ControlLine) -> Result<(String, Option<usize>)> {
    match hear(line).context("starting the bench's ranks")? {
        Answer::Hello { link, core } => Ok((link, core)),
        other => unexpected(&other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_set_against_what_loss_makes_necessary() {
        assert_eq!(packets_ratio(125, 1_000, 99_001, 0.2), 1.0);
        assert_eq!(packets_ratio(125, 1_000, 100_000, 0.0), 1.25);
    }
}
