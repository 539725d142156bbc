//! How much of a matched message's time is hidden behind computing, of the
//! sender and of the receiver.

use clap::Args;
use portolan_hosts::choices::Bytes;
use portolan_hosts::failure::Result;

use crate::conduct::introduce;
use crate::control::{ControlLine, Order};
use crate::experiment::{Experiment, Findings, Stage, rounds};
use crate::options::{Common, check_sizes, check_tcp_only};
use crate::pace::{Pace, fit};
use crate::peers::netpipe::SIZE_MAX;
use crate::plan::{Peer, slice_of};
use crate::ranks::matched::{Act, ExchangeSlice, Exchanged, exchange};
use crate::report::cost;
use crate::report::dimensions::Dimension;
use crate::report::stats::Series;
use crate::report::summary::KERNEL_TCP;
use crate::report::table::{Ratio, Row};

/// Rounds of the loop by which its speed is found.
const FIRST_ROUNDS: u64 = 1_000_000;
/// Parts of a side's slice: the message, computing, both.
const PARTS: u64 = 3;

/// One of both sides, and its slices.
struct Side {
    sends: bool,
    tcp: bool,
    /// Of the three parts together.
    pace: Pace,
    /// Rounds of the loop in a microsecond.
    speed: Option<f64>,
    message_us: Series,
    computing_us: Series,
    both_us: Series,
    hidden: Series,
    cpu_us: Series,
}

impl Side {
    fn new((sends, tcp): (bool, bool)) -> Self {
        Self {
            sends,
            tcp,
            pace: Pace::new(),
            speed: None,
            message_us: Series::default(),
            computing_us: Series::default(),
            both_us: Series::default(),
            hidden: Series::default(),
            cpu_us: Series::default(),
        }
    }

    fn slice(
        &mut self,
        lines: &mut [ControlLine],
        size: usize,
        slice_ns: u64,
        counts: bool,
    ) -> Result<()> {
        let (warm_up, count) = self.pace.count(slice_ns);
        let Self { sends, tcp, .. } = *self;
        let mut of = |message, rounds| -> Result<[Exchanged; 2]> {
            let act = Act::Beside {
                sends,
                message,
                tcp,
                rounds,
            };
            let slice = ExchangeSlice {
                warm_up,
                count,
                ..ExchangeSlice::of(act, size)
            };
            exchange(lines, &slice)
        };
        let [alone, _] = of(true, 0)?;
        let speed = match self.speed {
            Some(speed) => speed,
            None => FIRST_ROUNDS as f64 / of(false, FIRST_ROUNDS)?[0].us,
        };
        let rounds = ((alone.us * speed) as u64).max(1);
        let [computing, _] = of(false, rounds)?;
        let [both, other] = of(true, rounds)?;
        self.speed = Some(rounds as f64 / computing.us);
        let elapsed_us = alone.elapsed_us + computing.elapsed_us + both.elapsed_us;
        self.pace.note((warm_up, count), elapsed_us);
        if counts {
            let cpu_ns = both.cost.cpu_ns + other.cost.cpu_ns;
            for (series, value) in [
                (&mut self.message_us, alone.us),
                (&mut self.computing_us, computing.us),
                (&mut self.both_us, both.us),
                (&mut self.hidden, hidden(alone.us, computing.us, both.us)),
                (&mut self.cpu_us, cpu_ns as f64 / 1e3 / count as f64),
            ] {
                series.keep(value, count);
            }
        }
        Ok(())
    }

    /// Where it stands; `ours` is our own row of that size.
    fn row(&self, ours: &Row, size: usize) -> Row {
        let row = if self.tcp {
            Row::of(KERNEL_TCP, 2)
        } else {
            ours.clone()
        };
        let computes = if self.sends { "sender" } else { "receiver" };
        row.at(Dimension::Size, size)
            .at(Dimension::Computes, computes)
    }

    /// Its figures over the same of another system's.
    fn over(&self, other: &Self, row: &Row) -> Vec<Ratio> {
        let figures = [
            ("message_us", &self.message_us, &other.message_us),
            ("both_us", &self.both_us, &other.both_us),
            ("hidden", &self.hidden, &other.hidden),
            (cost::OF_MESSAGE, &self.cpu_us, &other.cpu_us),
        ];
        row.all_over(KERNEL_TCP, figures)
    }

    fn rows(&self, row: &Row) -> Vec<Row> {
        let [message, both] = if self.tcp {
            [
                "nonblocking calls; of what is sent, until 8 bytes come back",
                "one nonblocking call, computing, more calls until the end",
            ]
        } else {
            ["post and wait", "post, compute, wait"]
        };
        let figures = [
            (
                "hidden",
                &self.hidden,
                "(message + computing - both) / the shorter of message and computing",
            ),
            ("message_us", &self.message_us, message),
            (
                "computing_us",
                &self.computing_us,
                "a loop without a message",
            ),
            ("both_us", &self.both_us, both),
            (
                cost::OF_MESSAGE,
                &self.cpu_us,
                "processor time of both processes for a message with computing, the computing too",
            ),
        ];
        let figure = |(metric, values, method): (&str, &Series, &str)| {
            let method = format!("{method}; means of the middle 80 % of each interleaved slice");
            row.figure(metric, values, method)
        };
        figures.into_iter().filter_map(figure).collect()
    }
}

/// The share of the shorter one that took no time of its own.
fn hidden(message: f64, computing: f64, both: f64) -> f64 {
    (message + computing - both) / message.min(computing)
}

/// As it was asked for.
#[derive(Args)]
pub struct Overlap {
    #[command(flatten)]
    pub common: Common,
    /// Message size, bytes, or with K or M
    #[arg(long, value_name = "BYTES", default_value = "1M")]
    size: Bytes,
    /// Peers to benchmark against in the same run: tcp
    #[arg(long, value_enum, value_name = "PEER", value_delimiter = ',')]
    vs: Vec<Peer>,
}

impl Experiment for Overlap {
    /// Both sides in turns.
    fn run(&self, stage: &mut Stage) -> Result<Findings> {
        let Self {
            common,
            size: Bytes(size),
            vs,
        } = self;
        let size = *size;
        check_sizes([size], 1..=SIZE_MAX)?;
        check_tcp_only("overlap", vs)?;
        let lab = stage.lab_of_two()?;
        let slices = common.slices();
        let systems = &[false, true][..1 + usize::from(!vs.is_empty())];
        let of_system = |&tcp: &bool| [(true, tcp), (false, tcp)].map(Side::new);
        let mut sides: Vec<Side> = systems.iter().flat_map(of_system).collect();
        let slice_ns = PARTS * common.slice_ns(slice_of(PARTS as usize * sides.len(), slices));
        let spec = common.spec(lab.as_ref(), 2)?;
        let sites = [0, 1].map(|host| stage.site(host));
        let (link, ()) = stage.job(spec, |lines| {
            if !vs.is_empty() {
                for (line, site) in lines.iter_mut().zip(sites) {
                    line.say(&Order::Sockets {
                        site,
                        size_max: size,
                    })?;
                }
                introduce(lines)?;
            }
            rounds(slices, |counts| {
                let paces = sides.iter_mut().map(|side| &mut side.pace);
                fit(paces, slice_ns, slices);
                let mut each = sides.iter_mut();
                each.try_for_each(|side| side.slice(lines, size, slice_ns, counts))
            })
        })?;
        let ours = common.setting(link, 2).row();
        let rows = sides
            .iter()
            .flat_map(|side| side.rows(&side.row(&ours, size)));
        let mut found = Findings {
            rows: rows.collect(),
            ..Findings::default()
        };
        let (own, tcp) = sides.split_at(2);
        for (own, tcp) in own.iter().zip(tcp) {
            found.ratios.extend(own.over(tcp, &own.row(&ours, size)));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_no_time_of_its_own_is_hidden() {
        assert_eq!(hidden(10.0, 10.0, 10.0), 1.0);
        assert_eq!(hidden(10.0, 10.0, 20.0), 0.0);
        assert_eq!(hidden(10.0, 20.0, 25.0), 0.5);
        assert!(hidden(10.0, 10.0, 22.0) < 0.0);
    }
}
