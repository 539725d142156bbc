//! One flow of ours and one of kernel TCP on the same line of a lab: each
//! alone, and both at once.

use clap::Args;
use portolan_hosts::choices::Bytes;
use portolan_hosts::failure::Result;
use portolan_hosts::lab::Lab;
use portolan_sys::clock::now_ns;

use crate::control::ControlLine;
use crate::experiment::{Experiment, Findings, Stage, rounds, wrong};
use crate::job::two;
use crate::options::Common;
use crate::peers::tcp_flow::TcpFlow;
use crate::ranks::stream::{LEAD_NS, Stream, through};
use crate::ranks::timeline::Timeline;
use crate::report::dimensions::Dimension;
use crate::report::stats::Series;
use crate::report::summary::tcp_row;
use crate::report::table::Row;

/// Millions of bytes per second of a system, slice by slice: alone, and beside
/// the other.
#[derive(Default)]
struct Kept {
    alone: Series,
    beside: Series,
}

/// The two that share a line.
#[derive(Default)]
struct SharedLine {
    ours: Kept,
    tcp: Kept,
}

/// Which flows there are in a slice.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Ours,
    Tcp,
    Both,
}

/// The host that TCP sends from: the third, if there is one, so that the two
/// meet in the switch. In a host's own queue TCP holds itself back (TCP small
/// queues), whatever shares it.
fn tcp_from(lab: &Lab) -> u32 {
    if lab.hosts() > 2 { 2 } else { 0 }
}

/// As it was asked for.
#[derive(Args)]
pub struct Fairness {
    #[command(flatten)]
    pub common: Common,
    /// Message size, bytes, or with K or M
    #[arg(long, value_name = "BYTES", default_value = "64K")]
    size: Bytes,
    /// Measured time of a slice, milliseconds; before it the flows settle for half as long
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(20..=60_000))]
    span_ms: u64,
    /// Congestion control of the TCP flow, by the kernel's name, for example
    /// cubic or bbr [default: that of the kernel's settings]
    #[arg(long, value_name = "NAME")]
    tcp: Option<String>,
}

impl Experiment for Fairness {
    fn run(&self, stage: &mut Stage) -> Result<Findings> {
        let Self {
            common,
            size,
            span_ms,
            tcp: control,
        } = self;
        if common.slice_ms.is_some() {
            return wrong("--slice-ms is too short for TCP to settle: use --span-ms");
        }
        let options = "--hosts 2 --rate 200mbit --buffer 64k";
        let lab = stage.needs_lab(2, "needs a line with a rate", options)?;
        let Some(rate) = lab.rate_bits_per_s() else {
            return wrong(format!(
                "bench fairness shares a line with a rate between two hosts, and lab {} has none: \
                 make one with {options}",
                lab.name()
            ));
        };
        let spec = common.spec(Some(&lab), 2)?;
        let start_tcp = |span| TcpFlow::start(&lab, tcp_from(&lab), span, control.as_deref());
        let (link, shared) = stage.job(spec, |lines| {
            run(
                &start_tcp,
                lines,
                size.0,
                common.slices(),
                span_ms * 1_000_000,
            )
        })?;
        let ours = common.setting(link, 2).row().at(Dimension::Size, size.0);
        let tcp = tcp_row(2).at_some(Dimension::Congestion, control.as_deref());
        let method = format!(
            "bytes that arrived in {span_ms} ms, after {} ms to settle",
            span_ms / 2
        );
        let mut found = Findings::default();
        for (kept, row, other) in [
            (&shared.ours, &ours, &tcp.system),
            (&shared.tcp, &tcp, &ours.system),
        ] {
            let beside = row.clone().at(Dimension::Beside, other.as_str());
            found.rows.extend(figures(&kept.alone, rate, row, &method));
            found
                .rows
                .extend(figures(&kept.beside, rate, &beside, &method));
            let share = shares(&kept.beside, rate).quartiles();
            (found.ratios).extend(share.map(|q| row.ratio("link_share", "line").with(&q)));
        }
        let name = tcp.dimensions.plain(Dimension::Congestion);
        if !name.is_empty() {
            let remark = format!("{}: congestion control {name}", tcp.system);
            found.remarks.push(remark);
        }
        if tcp_from(&lab) == 0 {
            found.remarks.push(
                "both flows leave by one host, in whose queue TCP holds itself back (TCP small \
                 queues): with a third host they meet in the switch"
                    .to_owned(),
            );
        }
        Ok(found)
    }
}

/// Shares of a line of `rate` bits per second; payload alone counts.
fn shares(mb_s: &Series, rate: u64) -> Series {
    mb_s.map(|mb_s| mb_s * 8e6 / rate as f64)
}

/// What arrived per second, and which share of the line that is.
fn figures(values: &Series, rate: u64, row: &Row, method: &str) -> Vec<Row> {
    let figure = |metric: &str, values: &Series| {
        Some(Row {
            worst: values.seen().into_iter().reduce(f64::min),
            ..row.figure(metric, values, method)?
        })
    };
    let rows = [
        figure("goodput_mb_s", values),
        figure("link_share", &shares(values, rate)),
    ];
    rows.into_iter().flatten().collect()
}

fn run(
    start_tcp: &dyn Fn([u64; 2]) -> Result<TcpFlow>,
    lines: &mut [ControlLine],
    size: usize,
    slices: usize,
    span_ns: u64,
) -> Result<SharedLine> {
    let mut shared = SharedLine::default();
    rounds(slices, |counts| {
        for turn in [Turn::Ours, Turn::Tcp, Turn::Both] {
            let start_ns = now_ns() + LEAD_NS;
            let settled_ns = start_ns + span_ns / 2;
            let end_ns = settled_ns + span_ns;
            let rate = |arrived: Timeline| arrived.mb_s([settled_ns, end_ns]);
            let tcp = || match turn {
                Turn::Ours => Ok(None),
                Turn::Tcp | Turn::Both => start_tcp([start_ns, end_ns]).map(Some),
            };
            let stream = Stream {
                size,
                start_ns,
                end_ns,
                crowded: turn == Turn::Both,
            };
            let (ours, tcp) = match turn {
                Turn::Tcp => (None, tcp()?),
                Turn::Ours | Turn::Both => {
                    let (_, received, tcp) = through(two(lines)?, &stream, tcp)?;
                    (Some(received.timeline), tcp)
                }
            };
            let tcp = tcp.map(TcpFlow::end).transpose()?;
            for (kept, arrived) in [(&mut shared.ours, ours), (&mut shared.tcp, tcp)] {
                let values = match turn {
                    Turn::Both => &mut kept.beside,
                    Turn::Ours | Turn::Tcp => &mut kept.alone,
                };
                if let Some(arrived) = arrived.filter(|_| counts) {
                    values.keep(rate(arrived), 1);
                }
            }
        }
        Ok(())
    })?;
    Ok(shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_payload_over_the_rate() {
        let values = Series::from([5.0, 10.0, 15.0]);
        let rows = figures(&values, 200_000_000, &Row::default(), "");
        assert_eq!((rows[0].p50, rows[0].worst), (10.0, Some(5.0)));
        assert_eq!((rows[1].p50, rows[1].worst), (0.4, Some(0.2)));
        assert_eq!(rows[1].metric, "link_share");
        assert!(figures(&Series::default(), 1, &Row::default(), "").is_empty());
    }
}
