//! A cable that is pulled out for a moment under load: how soon a stream goes
//! on, and whether anything is missing.

use std::thread::sleep;
use std::time::Duration;

use clap::Args;
use portolan_hosts::choices::Bytes;
use portolan_hosts::failure::{Failure, Result};
use portolan_hosts::lab::{self, Lab};
use portolan_hosts::print::tell;
use portolan_sys::clock::now_ns;

use crate::control::ControlLine;
use crate::experiment::{Experiment, Findings, Progress, Stage, wrong};
use crate::job::two;
use crate::options::{Common, check_tcp_only};
use crate::peers::tcp_flow::TcpFlow;
use crate::plan::Peer;
use crate::ranks::stream::{LEAD_NS, Stream, through};
use crate::ranks::timeline::Timeline;
use crate::report::dimensions::Dimension;
use crate::report::stats::Series;
use crate::report::summary::tcp_row;
use crate::report::table::Row;

/// Outages by default: each takes seconds.
const OUTAGES: usize = 7;
/// The host whose cable is pulled out: the receiver's.
const UNPLUGGED: u32 = 1;
/// How long a stream flows before the outage, and how much of that it has to
/// settle, nanoseconds.
const BEFORE_NS: u64 = 500_000_000;
const SETTLE_NS: u64 = 200_000_000;
/// How long it goes on behind it.
const AFTER_NS: u64 = 1_000_000_000;
/// A rate that is as good as that before the outage.
const FULL: f64 = 0.9;
/// An outage that tells nothing is repeated so often.
const TRIES: usize = 10;

/// What the outages of a system showed.
#[derive(Default)]
struct Seen {
    /// From plugging in to the next arrival, ms.
    resume_ms: Series,
    /// From plugging in until the rate of before was there again, ms.
    full_ms: Series,
    /// Messages of each stream that never came, and that came again.
    lost: Series,
    again: Series,
    messages: u64,
}

/// When pulling out the cable began, when it was out, and when plugging it in
/// began.
type Moments = [u64; 3];

/// The cable is plugged in again when this ends.
struct PulledOut<'a>(&'a Lab);

impl Drop for PulledOut<'_> {
    fn drop(&mut self) {
        if let Err(failure) = lab::plug(self.0, UNPLUGGED, None, true) {
            tell(format_args!(
                "portolan: host h{UNPLUGGED} is still unplugged: {failure}"
            ));
        }
    }
}

/// As it was asked for.
#[derive(Args)]
pub struct Outage {
    #[command(flatten)]
    pub common: Common,
    /// Message size, bytes, or with K or M
    #[arg(long, value_name = "BYTES", default_value = "1000")]
    size: Bytes,
    /// How long the receiver's cable is unplugged, milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=2_000))]
    down_ms: u64,
    /// Peers to benchmark against in the same run: tcp
    #[arg(long, value_enum, value_name = "PEER", value_delimiter = ',')]
    vs: Vec<Peer>,
}

impl Experiment for Outage {
    fn run(&self, stage: &mut Stage) -> Result<Findings> {
        let Self {
            common,
            size,
            down_ms,
            vs,
        } = self;
        check_tcp_only("outage", vs)?;
        if common.slice_ms.is_some() {
            return wrong("--slice-ms: an outage is as long as --down-ms says");
        }
        let lab = stage.needs_lab(2, "pulls out a cable", "--hosts 2")?;
        let spec = common.spec(Some(&lab), 2)?;
        let down = Duration::from_millis(*down_ms);
        let outages = common.slices.unwrap_or(OUTAGES);
        let (link, [ours, tcp]) = stage.job(spec, |lines| {
            run(&lab, lines, size.0, outages, down, !vs.is_empty())
        })?;
        let row = common.setting(link, 2).row().at(Dimension::Size, size.0);
        let mut found = Findings {
            rows: ours.rows(&row)?,
            remarks: vec![ours.remark(&row)],
            ..Findings::default()
        };
        if !vs.is_empty() {
            found.rows.extend(tcp.rows(&tcp_row(2))?);
        }
        Ok(found)
    }
}

fn run(
    lab: &Lab,
    lines: &mut [ControlLine],
    size: usize,
    outages: usize,
    down: Duration,
    with_tcp: bool,
) -> Result<[Seen; 2]> {
    let [mut ours, mut tcp] = [Seen::default(), Seen::default()];
    let mut progress = Progress::new(outages);
    for outage in 1..=outages {
        progress.show(outage);
        let span = || {
            let start_ns = now_ns() + LEAD_NS;
            let down_ns = u64::try_from(down.as_nanos()).unwrap_or(u64::MAX);
            [start_ns, start_ns + BEFORE_NS + down_ns + AFTER_NS]
        };
        for _ in 0..TRIES {
            let [start_ns, end_ns] = span();
            let stream = Stream {
                size,
                start_ns,
                end_ns,
                crowded: false,
            };
            let (sent, received, moments) =
                through(two(lines)?, &stream, || interrupt(lab, start_ns, down))?;
            ours.lost.keep(received.lost(sent) as f64, 1);
            ours.again.keep(received.again as f64, 1);
            ours.messages += sent;
            if ours.keep(&received.timeline, start_ns, moments) {
                break;
            }
        }
        for _ in 0..if with_tcp { TRIES } else { 0 } {
            let [start_ns, end_ns] = span();
            let flow = TcpFlow::start(lab, 0, [start_ns, end_ns], None)?;
            let moments = interrupt(lab, start_ns, down)?;
            if tcp.keep(&flow.end()?, start_ns, moments) {
                break;
            }
        }
    }
    progress.done();
    Ok([ours, tcp])
}

/// Pulls out the cable while a stream flows, and plugs it in again.
fn interrupt(lab: &Lab, start_ns: u64, down: Duration) -> Result<Moments> {
    sleep(Duration::from_nanos(
        (start_ns + BEFORE_NS).saturating_sub(now_ns()),
    ));
    let down_ns = now_ns();
    let pulled_out = PulledOut(lab);
    lab::plug(lab, UNPLUGGED, None, false)?;
    let out_ns = now_ns();
    sleep(down);
    let up_ns = now_ns();
    drop(pulled_out);
    Ok([down_ns, out_ns, up_ns])
}

impl Seen {
    /// Whether the stream flowed before the outage and stopped during it. Else
    /// it tells nothing: on a busy machine a stream may begin late, or a
    /// receiver may take in late what had come before.
    fn keep(&mut self, arrived: &Timeline, start_ns: u64, moments: Moments) -> bool {
        let [down_ns, out_ns, up_ns] = moments;
        let Some([since_ns, resumed_ns]) = arrived.silence_at(up_ns) else {
            return false;
        };
        if since_ns <= start_ns || since_ns > out_ns.midpoint(up_ns) {
            return false;
        }
        let ms = |at_ns: u64| at_ns.saturating_sub(up_ns) as f64 / 1e6;
        let rate = arrived.mb_s([start_ns + SETTLE_NS, down_ns]);
        self.resume_ms.keep(ms(resumed_ns), 1);
        if let Some(full_ns) = arrived.reaches(FULL * rate, resumed_ns) {
            self.full_ms.keep(ms(full_ns), 1);
        }
        true
    }

    fn rows(&self, like: &Row) -> Result<Vec<Row>> {
        let figures = [
            (
                "resume_ms",
                &self.resume_ms,
                "from the order to plug in to the next arrival",
            ),
            (
                "full_rate_ms",
                &self.full_ms,
                "from the order to plug in until 0.9 of the rate before was there for 10 ms",
            ),
            (
                "messages_lost",
                &self.lost,
                "of a stream with an outage, by their numbers",
            ),
            (
                "messages_again",
                &self.again,
                "of a stream with an outage, by their numbers",
            ),
        ];
        let row = |(metric, values, method): (&str, &Series, &str)| {
            Some(Row {
                worst: values.seen().into_iter().reduce(f64::max),
                ..like.figure(metric, values, method)?
            })
        };
        let rows: Vec<Row> = figures.into_iter().filter_map(row).collect();
        match rows.first() {
            Some(row) if row.metric == "resume_ms" => Ok(rows),
            _ => Err(Failure::new(
                "no stream stopped when the cable was out: is something else connecting the hosts?",
            )),
        }
    }

    fn remark(&self, like: &Row) -> String {
        let sum = |values: &Series| values.seen().iter().sum::<f64>();
        format!(
            "{}: of {} messages {} were lost and {} came again",
            like.system,
            self.messages,
            sum(&self.lost),
            sum(&self.again)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_the_moment_of_plugging_in() {
        const MS: u64 = 1_000_000;
        let mut arrived = Timeline::new(0);
        for ms in (0..500).chain(1_520..2_000) {
            arrived.note(ms * MS, 1_000);
        }
        let mut seen = Seen::default();
        assert!(seen.keep(&arrived, 0, [500, 510, 1_500].map(|ms| ms * MS)));
        // It did not stop, stopped before the outage or late in it, or had not begun.
        for moments in [[1_700, 1_710, 1_800], [100, 110, 800]] {
            assert!(!seen.keep(&arrived, 0, moments.map(|ms| ms * MS)));
        }
        let mut late = Timeline::new(0);
        late.note(1_520 * MS, 1_000);
        assert!(!seen.keep(&late, 0, [500, 510, 1_500].map(|ms| ms * MS)));
        seen.lost.keep(0.0, 1);
        seen.again.keep(0.0, 1);
        let rows = seen.rows(&Row::default()).unwrap();
        let value = |metric: &str| rows.iter().find(|row| row.metric == metric).unwrap().p50;
        assert_eq!((value("resume_ms"), rows[0].n), (20.0, 1));
        // Nine of ten milliseconds suffice.
        assert_eq!(value("full_rate_ms"), 30.0);
        assert_eq!(value("messages_lost"), 0.0);
        assert!(Seen::default().rows(&Row::default()).is_err());
    }
}
