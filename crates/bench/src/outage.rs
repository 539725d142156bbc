//! A cable that is pulled out for a moment under load: how soon a stream goes
//! on, and whether anything is missing.

use std::thread::sleep;
use std::time::Duration;

use portolan_hosts::failure::{Failure, Result};
use portolan_hosts::lab::{self, Lab};
use portolan_hosts::print::tell;
use portolan_sys::clock::now_ns;

use super::conduct::Progress;
use super::control::Line;
use super::course::Course;
use super::job::{Helpers, two, with_lines};
use super::options::Outage;
use super::plan::{Peer, wrong};
use super::pour::{LEAD_NS, Pour, through};
use super::report::{Report, Row};
use super::stats::Quartiles;
use super::summary::tcp_row;
use super::tcp_flow::TcpFlow;
use super::watch::Watch;
use super::{Found, check, through_shm};

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
    resume_ms: Vec<f64>,
    /// From plugging in until the rate of before was there again, ms.
    full_ms: Vec<f64>,
    /// Messages of each stream that never came, and that came again.
    lost: Vec<f64>,
    again: Vec<f64>,
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

/// Measures outages under a stream, ours and TCP's in turns.
pub fn bench(asked: Outage) -> Result<Found> {
    let Outage {
        common,
        size,
        down_ms,
        vs,
    } = asked;
    check(common.json.as_deref(), 2)?;
    if vs.iter().any(|peer| *peer != Peer::Tcp) {
        return wrong("bench outage runs beside --vs tcp only");
    }
    if common.slice_ms.is_some() {
        return wrong("--slice-ms: an outage is as long as --down-ms says");
    }
    let Some(lab) = common.lab.as_deref().map(Lab::open).transpose()? else {
        return wrong(
            "bench outage pulls out a cable: add --lab NAME (portolan lab up NAME makes one)",
        );
    };
    if lab.hosts() < 2 {
        return wrong(format!(
            "lab {} has one host and the bench needs two: make one with --hosts 2",
            lab.name()
        ));
    }
    let shm = through_shm(&common, Some(&lab))?;
    let spec = common.spec(2, true, shm)?;
    let mut watch = Watch::begin(common.lab.as_deref());
    let down = Duration::from_millis(down_ms);
    let outages = common.slices.unwrap_or(OUTAGES);
    let (link, [ours, tcp]) =
        with_lines(spec, Some(&lab), Helpers::All, &mut watch.host, |lines| {
            run(&lab, lines, size.0, outages, down, !vs.is_empty())
        })?;
    let like = Row {
        size: Some(size.0),
        ..common.setting(link, 2).row()
    };
    let mut rows = ours.rows(&like)?;
    if !vs.is_empty() {
        rows.extend(tcp.rows(&tcp_row())?);
    }
    let report = Report {
        remarks: vec![ours.remark(&like)],
        ..watch.report("outage", rows)
    };
    Ok((common.json, report))
}

fn run(
    lab: &Lab,
    lines: &mut [Line],
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
            let pour = Pour {
                size,
                start_ns,
                end_ns,
                crowded: false,
            };
            let (sent, caught, moments) =
                through(two(lines)?, &pour, || interrupt(lab, start_ns, down))?;
            ours.lost.push(caught.lost(sent) as f64);
            ours.again.push(caught.again as f64);
            ours.messages += sent;
            if ours.keep(&caught.course, start_ns, moments) {
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
    fn keep(&mut self, course: &Course, start_ns: u64, moments: Moments) -> bool {
        let [down_ns, out_ns, up_ns] = moments;
        let Some([since_ns, resumed_ns]) = course.silence_at(up_ns) else {
            return false;
        };
        if since_ns <= start_ns || since_ns > out_ns.midpoint(up_ns) {
            return false;
        }
        let ms = |at_ns: u64| at_ns.saturating_sub(up_ns) as f64 / 1e6;
        let rate = course.mb_s([start_ns + SETTLE_NS, down_ns]);
        self.resume_ms.push(ms(resumed_ns));
        self.full_ms
            .extend(course.reaches(FULL * rate, resumed_ns).map(ms));
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
        let row = |(metric, values, method): (&str, &Vec<f64>, &str)| {
            let q = Quartiles::of(values)?;
            let row = Row {
                metric: metric.to_owned(),
                worst: values.iter().copied().reduce(f64::max),
                n: values.len() as u64,
                method: method.to_owned(),
                ..like.clone()
            };
            Some(row.with(&q))
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
        let sum = |values: &[f64]| values.iter().sum::<f64>();
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
        let mut course = Course::new(0);
        for ms in (0..500).chain(1_520..2_000) {
            course.note(ms * MS, 1_000);
        }
        let mut seen = Seen::default();
        assert!(seen.keep(&course, 0, [500, 510, 1_500].map(|ms| ms * MS)));
        // It did not stop, stopped before the outage or late in it, or had not begun.
        for moments in [[1_700, 1_710, 1_800], [100, 110, 800]] {
            assert!(!seen.keep(&course, 0, moments.map(|ms| ms * MS)));
        }
        let mut late = Course::new(0);
        late.note(1_520 * MS, 1_000);
        assert!(!seen.keep(&late, 0, [500, 510, 1_500].map(|ms| ms * MS)));
        seen.lost.push(0.0);
        seen.again.push(0.0);
        let rows = seen.rows(&Row::default()).unwrap();
        let value = |metric: &str| rows.iter().find(|row| row.metric == metric).unwrap().p50;
        assert_eq!((value("resume_ms"), rows[0].n), (20.0, 1));
        // Nine of ten milliseconds suffice.
        assert_eq!(value("full_rate_ms"), 30.0);
        assert_eq!(value("messages_lost"), 0.0);
        assert!(Seen::default().rows(&Row::default()).is_err());
    }
}
