//! The parameters of the LogP model (Culler and others): what a message costs
//! the processors at both ends, what the way between them takes, and how fast
//! one message can follow another.
//!
//! o_send is the mean time of a send among 16, to a receiver that does not
//! read; o_recv that of taking one of 16 that wait already, handler included;
//! neither rank has a helper thread. L is what is left of the time one way
//! (half a round trip) without both; g the gap between messages in a stream.

use std::sync::atomic::Ordering::Relaxed;

use clap::Args;
use portolan::SendError;
use portolan_hosts::failure::{Failure, Result, fail};
use portolan_sys::clock::now_ns;

use crate::conduct::answer;
use crate::control::{ControlLine, Order};
use crate::experiment::{Experiment, Findings, Stage, rounds};
use crate::experiments::paired::Paired;
use crate::job::{Helpers, Job};
use crate::options::{Common, Measure};
use crate::plan::Kind;
use crate::ranks::portolan::{Ours, PLAY, ours};
use crate::report::dimensions::Dimension;
use crate::report::stats::{Quartiles, Series};
use crate::report::table::Row;

/// Messages of a row: few enough for the smallest receive buffer.
const ROW: u64 = 16;
/// Rows of a slice.
const ROWS: u64 = 50;
/// Longest that a row may take to arrive.
const TIMEOUT_NS: u64 = 1_000_000_000;
/// Length of the slices of the parts that are other benches, ms.
const SLICE_MS: u64 = 20;
/// Bytes of a message.
const SIZE: usize = 8;

impl Ours {
    /// Sends a row of messages; gives the time that it took, ns.
    pub fn emit(&mut self, count: u64) -> Result<u64> {
        // What the last row left: acknowledgements.
        self.endpoint.progress().map_err(ours)?;
        let (to, message) = (self.peer(), [0x5a; SIZE]);
        let start_ns = now_ns();
        let mut sent = 0;
        while sent < count {
            match self.endpoint.try_send(to, PLAY, &message) {
                Ok(_) => sent += 1,
                Err(SendError::NoCredit) => {
                    return fail("a row of messages found no credit");
                }
                Err(error) => return Err(ours(error)),
            }
        }
        Ok(now_ns() - start_ns)
    }

    /// Takes a row of messages that wait; gives the time that it took, ns.
    pub fn absorb(&mut self, count: u64) -> Result<u64> {
        let from = self.peer() as usize;
        let target = self.absorbed + count;
        let start_ns = now_ns();
        while self.received[from].load(Relaxed) < target {
            self.endpoint.progress().map_err(ours)?;
            if now_ns() - start_ns > TIMEOUT_NS {
                return fail("a row of messages did not arrive within 1 s");
            }
        }
        self.absorbed = target;
        Ok(now_ns() - start_ns)
    }
}

/// As it was asked for.
#[derive(Args)]
pub struct Logp {
    #[command(flatten)]
    pub common: Common,
}

impl Experiment for Logp {
    /// Each link in turn.
    fn run(&self, stage: &mut Stage) -> Result<Findings> {
        let mut found = Findings::default();
        for mut common in self.common.each_link(stage.lab.as_ref()) {
            common.slice_ms.get_or_insert(SLICE_MS);
            let mut part = |kind| {
                let measure = Measure {
                    common: common.clone(),
                    ..Measure::default()
                };
                let part = Paired {
                    kind,
                    pattern: None,
                    measure,
                };
                Ok::<_, Failure>(part.run(stage)?.rows)
            };
            let latency = part(Kind::Latency)?;
            let rate = part(Kind::Rate)?;
            let sweep = part(Kind::Bandwidth)?;
            let spec = common.spec(stage.lab.as_ref(), 2)?;
            let job = Job::with_helpers(spec, Helpers::None);
            let (links, overheads) = stage.jobs([job], |[lines]| run(lines, common.slices()))?;
            let [link] = links;
            let row = common.setting(link, 2).row();
            found
                .rows
                .extend(parameters(&row, &overheads, &latency, &rate)?);
            let half_power = sweep
                .into_iter()
                .filter(|row| row.metric == "half_power_bytes");
            found.rows.extend(half_power);
        }
        Ok(found)
    }
}

/// Mean times of sending and taking a message, us, by slice.
#[derive(Default)]
struct Overheads {
    send: Series,
    receive: Series,
}

fn run(lines: &mut [ControlLine], slices: usize) -> Result<Overheads> {
    let [sender, receiver] = lines else {
        return fail("two ranks measure overheads");
    };
    let took = |line: &mut ControlLine, order: Order| -> Result<u64> {
        line.say(&order)?;
        Ok(answer!(line, Took))
    };
    let mut found = Overheads::default();
    rounds(slices, |counts| {
        let (mut send_ns, mut receive_ns) = (0, 0);
        for _ in 0..ROWS {
            send_ns += took(sender, Order::Emit(ROW))?;
            receive_ns += took(receiver, Order::Absorb(ROW))?;
        }
        if counts {
            let mean = |ns: u64| ns as f64 / 1e3 / (ROW * ROWS) as f64;
            found.send.keep(mean(send_ns), ROW * ROWS);
            found.receive.keep(mean(receive_ns), ROW * ROWS);
        }
        Ok(())
    })?;
    Ok(found)
}

fn parameters(
    like: &Row,
    overheads: &Overheads,
    latency: &[Row],
    rate: &[Row],
) -> Result<Vec<Row>> {
    let of = |rows: &[Row], metric: &str| {
        rows.iter()
            .find(|row| row.metric == metric)
            .cloned()
            .ok_or_else(|| Failure::new(format!("a part of the bench gave no {metric}")))
    };
    let one_way = of(latency, "latency_us")?;
    let rate = of(rate, "rate_msg_s")?;
    let row = |metric: &str, q: Quartiles, method: &str| {
        let row = Row {
            metric: metric.to_owned(),
            n: q.count as u64 * ROW * ROWS,
            method: method.to_owned(),
            ..like.clone()
        };
        row.at(Dimension::Size, SIZE).with(&q)
    };
    let none = || Failure::new("no slice has given a figure");
    let send = overheads.send.quartiles().ok_or_else(none)?;
    let receive = overheads.receive.quartiles().ok_or_else(none)?;
    let rest = |one_way: f64| (one_way - send.median - receive.median).max(0.0);
    let way = Quartiles {
        q1: rest(one_way.q1),
        median: rest(one_way.p50),
        q3: rest(one_way.q3),
        count: one_way.slices,
    };
    let gap = Quartiles {
        q1: 1e6 / rate.q3,
        median: 1e6 / rate.p50,
        q3: 1e6 / rate.q1,
        count: rate.slices,
    };
    Ok(vec![
        row(
            "o_send_us",
            send,
            "mean time of a send, 16 in a row, receiver idle",
        ),
        row(
            "o_recv_us",
            receive,
            "mean time of taking one of 16 that wait",
        ),
        row(
            "l_us",
            way,
            "time one way less o_send and o_recv, at least 0",
        ),
        row("g_us", gap, "1 / messages per second of a stream"),
        one_way,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_one_way_is_the_latency_of_the_model() {
        let overheads = Overheads {
            send: Series::from([0.2; 3]),
            receive: Series::from([0.3; 3]),
        };
        let figure = |metric: &str, p50| Row {
            metric: metric.to_owned(),
            p50,
            q1: p50,
            q3: p50,
            slices: 3,
            ..Row::default()
        };
        let rows = parameters(
            &Row::default(),
            &overheads,
            &[figure("latency_us", 1.0)],
            &[figure("rate_msg_s", 4e6)],
        )
        .unwrap();
        let value = |metric: &str| rows.iter().find(|row| row.metric == metric).unwrap().p50;
        assert!((value("l_us") - 0.5).abs() < 1e-9);
        assert!((value("g_us") - 0.25).abs() < 1e-9);
        assert!(parameters(&Row::default(), &overheads, &[], &[]).is_err());
    }
}
