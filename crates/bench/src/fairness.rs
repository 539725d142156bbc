//! One flow of ours and one of kernel TCP on the same line of a lab: each
//! alone, and both at once.

use portolan_hosts::failure::{Failure, Result};
use portolan_hosts::lab::Lab;
use portolan_sys::clock::now_ns;

use super::conduct::Progress;
use super::control::Line;
use super::course::Course;
use super::job::{Helpers, two, with_lines};
use super::options::Fairness;
use super::plan::wrong;
use super::pour::{LEAD_NS, Pour, through};
use super::report::{Report, Row};
use super::stats::Quartiles;
use super::summary::tcp_row;
use super::tcp_flow::TcpFlow;
use super::watch::Watch;
use super::{Found, check, through_shm};

/// Millions of bytes per second of a system, slice by slice: alone, and beside
/// the other.
#[derive(Default)]
struct Kept {
    alone: Vec<f64>,
    beside: Vec<f64>,
}

/// The two that share a line.
#[derive(Default)]
struct Shared {
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

/// Measures both.
pub fn bench(asked: Fairness) -> Result<Found> {
    let Fairness {
        common,
        size,
        span_ms,
        tcp: control,
    } = asked;
    check(common.json.as_deref(), 2)?;
    if common.slice_ms.is_some() {
        return wrong("--slice-ms is too short for TCP to settle: use --span-ms");
    }
    let Some(lab) = common.lab.as_deref().map(Lab::open).transpose()? else {
        return wrong(
            "bench fairness needs a line with a rate: add --lab NAME (portolan lab up NAME --rate \
             200mbit --buffer 64k makes one)",
        );
    };
    let Some(rate) = lab.rate_bits_per_s().filter(|_| lab.hosts() > 1) else {
        return wrong(format!(
            "bench fairness shares a line with a rate between two hosts, and lab {} has none: make \
             one with --hosts 2 --rate 200mbit --buffer 64k",
            lab.name()
        ));
    };
    let shm = through_shm(&common, Some(&lab))?;
    let spec = common.spec(2, true, shm)?;
    let mut watch = Watch::begin(common.lab.as_deref());
    let span_ns = span_ms * 1_000_000;
    let start_tcp = |span| TcpFlow::start(&lab, tcp_from(&lab), span, control.as_deref());
    let measure = |lines: &mut [Line]| run(&start_tcp, lines, size.0, common.slices(), span_ns);
    let (link, shared) = with_lines(spec, Some(&lab), Helpers::All, &mut watch.host, measure)?;
    let ours = Row {
        size: Some(size.0),
        ..common.setting(link, 2).row()
    };
    let mut tcp = tcp_row();
    tcp.congestion = control.or(tcp.congestion);
    let method = format!(
        "bytes that arrived in {span_ms} ms, after {} ms to settle",
        span_ms / 2
    );
    let (mut rows, mut ratios) = (Vec::new(), Vec::new());
    for (kept, like, other) in [
        (&shared.ours, &ours, &tcp.system),
        (&shared.tcp, &tcp, &ours.system),
    ] {
        for (values, beside) in [(&kept.alone, None), (&kept.beside, Some(other))] {
            let row = Row {
                beside: beside.cloned(),
                n: values.len() as u64,
                method: method.clone(),
                ..like.clone()
            };
            rows.extend(figures(values, rate, &row)?);
        }
        let share = Quartiles::of(&shares(&kept.beside, rate));
        ratios.extend(share.map(|q| like.over("link_share", "line").with(&q)));
    }
    let mut remarks = Vec::new();
    if let Some(name) = &tcp.congestion {
        remarks.push(format!("{}: congestion control {name}", tcp.system));
    }
    if tcp_from(&lab) == 0 {
        remarks.push(
            "both flows leave by one host, in whose queue TCP holds itself back (TCP small \
             queues): with a third host they meet in the switch"
                .to_owned(),
        );
    }
    let report = Report {
        ratios,
        remarks,
        ..watch.report("fairness", rows)
    };
    Ok((common.json, report))
}

/// Shares of a line of `rate` bits per second; payload alone counts.
fn shares(mb_s: &[f64], rate: u64) -> Vec<f64> {
    mb_s.iter().map(|mb_s| mb_s * 8e6 / rate as f64).collect()
}

/// What arrived per second, and which share of the line that is.
fn figures(values: &[f64], rate: u64, like: &Row) -> Result<[Row; 2]> {
    let row = |metric: &str, values: &[f64]| {
        let q = Quartiles::of(values).ok_or_else(|| Failure::new("no slice has a figure"))?;
        let row = Row {
            metric: metric.to_owned(),
            worst: values.iter().copied().reduce(f64::min),
            ..like.clone()
        };
        Ok::<_, Failure>(row.with(&q))
    };
    Ok([
        row("goodput_mb_s", values)?,
        row("link_share", &shares(values, rate))?,
    ])
}

fn run(
    start_tcp: &dyn Fn([u64; 2]) -> Result<TcpFlow>,
    lines: &mut [Line],
    size: usize,
    slices: usize,
    span_ns: u64,
) -> Result<Shared> {
    let mut shared = Shared::default();
    let mut progress = Progress::new(slices);
    for round in 0..=slices {
        progress.show(round);
        for turn in [Turn::Ours, Turn::Tcp, Turn::Both] {
            let start_ns = now_ns() + LEAD_NS;
            let settled_ns = start_ns + span_ns / 2;
            let end_ns = settled_ns + span_ns;
            let rate = |course: Course| course.mb_s([settled_ns, end_ns]);
            let tcp = || match turn {
                Turn::Ours => Ok(None),
                Turn::Tcp | Turn::Both => start_tcp([start_ns, end_ns]).map(Some),
            };
            let pour = Pour {
                size,
                start_ns,
                end_ns,
                crowded: turn == Turn::Both,
            };
            let (ours, tcp) = match turn {
                Turn::Tcp => (None, tcp()?),
                Turn::Ours | Turn::Both => {
                    let (_, caught, tcp) = through(two(lines)?, &pour, tcp)?;
                    (Some(caught.course), tcp)
                }
            };
            let tcp = tcp.map(TcpFlow::end).transpose()?;
            if round == 0 {
                continue;
            }
            let both = turn == Turn::Both;
            for (kept, course) in [(&mut shared.ours, ours), (&mut shared.tcp, tcp)] {
                let values = if both {
                    &mut kept.beside
                } else {
                    &mut kept.alone
                };
                values.extend(course.map(rate));
            }
        }
    }
    progress.done();
    Ok(shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_payload_over_the_rate() {
        let rows = figures(&[5.0, 10.0, 15.0], 200_000_000, &Row::default()).unwrap();
        assert_eq!((rows[0].p50, rows[0].worst), (10.0, Some(5.0)));
        assert_eq!((rows[1].p50, rows[1].worst), (0.4, Some(0.2)));
        assert_eq!(rows[1].metric, "link_share");
        assert!(figures(&[], 1, &Row::default()).is_err());
    }
}
