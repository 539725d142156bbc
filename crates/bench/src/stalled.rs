//! What a receiver that makes no call does to everybody else.
//!
//! Four ranks: 0 sends to 1, 1 sends to 2, and in every other slice 0 sends
//! to 3 too, which has bound its port, makes no call and has no helper. 0, 1
//! and 2 are awake all the time, 3 sleeps outside the library all the time.
//! After each slice all receive until nothing is on its way.

use portolan_hosts::failure::{Result, fail};
use portolan_sys::clock::now_ns;
use serde::{Deserialize, Serialize};

use super::conduct::{Progress, hear, unexpected};
use super::control::{Answer, Line, Order};
use super::report::{Ratio, Row};
use super::stats::{Quartiles, paired};

/// Ranks of the bench.
pub const RANKS: u32 = 4;
/// The rank that stalls.
pub const STALLED: u32 = 3;
/// Largest message: one packet, so that messages are what is counted.
pub const SIZE_MAX: usize = 1024;
/// Time between the order and the start of a slice, nanoseconds: all have
/// heard it by then.
const LEAD_NS: u64 = 2_000_000;
/// Time that what a slice has left gets to arrive, nanoseconds.
const DRAIN_NS: u64 = 5_000_000_000;

/// A rank's part of a slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// To whom it sends, in turns.
    pub to: Vec<u32>,
    /// Bytes of a message.
    pub size: usize,
    /// More ranks are awake than there are cores: yield often, so that they
    /// take turns of microseconds and not of the scheduler's milliseconds.
    pub crowded: bool,
    /// Start, on the monotonic clock.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
}

/// What a rank did in a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Played {
    /// Messages sent, by receiver, since the bench began.
    pub sent: Vec<u64>,
    /// Messages received in this slice, by sender.
    pub received: Vec<u64>,
}

/// What the slices gave: messages per second, without and with traffic.
#[derive(Default)]
pub struct Found {
    /// From 0 to 1.
    sender: [Vec<Option<f64>>; 2],
    /// From 1 to 2.
    other: [Vec<Option<f64>>; 2],
    /// Sent to the stalled rank in slices with traffic.
    towards: Vec<f64>,
    counts: [[u64; 2]; 2],
}

/// Runs the slices over the lines to the four ranks.
pub fn run(lines: &mut [Line], size: usize, slices: usize, slice_ns: u64) -> Result<Found> {
    let crowded = std::thread::available_parallelism().map_or(1, usize::from) < STALLED as usize;
    let mut found = Found::default();
    let mut progress = Progress::new(slices);
    let mut stalled_before = 0;
    for round in 0..=slices {
        progress.show(round);
        for traffic in [false, true] {
            let start_ns = now_ns() + LEAD_NS;
            let end_ns = start_ns + slice_ns;
            let to_of = |rank: u32| match rank {
                0 if traffic => vec![1, STALLED],
                0 => vec![1],
                1 => vec![2],
                _ => vec![],
            };
            let awake = 0..STALLED;
            for rank in awake.clone() {
                let part = Part {
                    to: to_of(rank),
                    size,
                    crowded,
                    start_ns,
                    end_ns,
                };
                lines[rank as usize].say(&Order::Play(part))?;
            }
            let mut played = Vec::new();
            for rank in awake {
                match hear(&mut lines[rank as usize])? {
                    Answer::Played(it) => played.push(it),
                    other => return unexpected(&other),
                }
            }
            drain(lines, &played)?;
            if round == 0 {
                stalled_before = played[0].sent[STALLED as usize];
                continue;
            }
            let seconds = slice_ns as f64 / 1e9;
            let of = usize::from(traffic);
            let (sender, other) = (played[1].received[0], played[2].received[1]);
            found.sender[of].push(Some(sender as f64 / seconds));
            found.other[of].push(Some(other as f64 / seconds));
            found.counts[of][0] += sender;
            found.counts[of][1] += other;
            if traffic {
                let sent = played[0].sent[STALLED as usize];
                found.towards.push((sent - stalled_before) as f64);
                stalled_before = sent;
            }
        }
    }
    progress.done();
    Ok(found)
}

/// Has all ranks receive until everything sent has arrived.
fn drain(lines: &mut [Line], played: &[Played]) -> Result<()> {
    let deadline_ns = now_ns() + DRAIN_NS;
    loop {
        for line in &mut *lines {
            line.say(&Order::Drain)?;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
        let mut arrived = Vec::new();
        for line in &mut *lines {
            line.say(&Order::Stop)?;
            match hear(line)? {
                Answer::Drained(received) => arrived.push(received),
                other => return unexpected(&other),
            }
        }
        let missing: u64 = (0..played.len())
            .flat_map(|from| (0..lines.len()).map(move |to| (from, to)))
            .map(|(from, to)| played[from].sent[to] - arrived[to][from])
            .sum();
        if missing == 0 {
            return Ok(());
        }
        if now_ns() > deadline_ns {
            return fail(format!(
                "{missing} messages did not arrive within 5 s of receiving"
            ));
        }
    }
}

impl Found {
    /// As rows and claims; `like` carries what all rows have in common.
    pub fn report(&self, like: &Row) -> (Vec<Row>, Vec<Ratio>, Vec<String>) {
        let mut rows = Vec::new();
        let mut ratios = Vec::new();
        let pairs = [
            ("0-1", "rate_sender_to_others", &self.sender),
            ("1-2", "rate_other_pairs", &self.other),
        ];
        for (place, (pair, metric, values)) in pairs.into_iter().enumerate() {
            for traffic in [false, true] {
                let seen: Vec<f64> = values[usize::from(traffic)]
                    .iter()
                    .flatten()
                    .copied()
                    .collect();
                let Some(q) = Quartiles::of(&seen) else {
                    continue;
                };
                let row = Row {
                    metric: "rate_msg_s".to_owned(),
                    pair: Some(pair.to_owned()),
                    stalled_traffic: Some(traffic),
                    n: self.counts[usize::from(traffic)][place],
                    ..like.clone()
                };
                rows.push(row.with(&q));
            }
            let q = paired(&values[1], &values[0]);
            ratios.extend(q.map(|q| like.over(metric, &like.system).with(&q)));
        }
        let remark = Quartiles::of(&self.towards).map(|q| {
            format!("{}: the stalled receiver was sent {} messages in a slice, then none fitted any more", like.system, q.median)
        });
        (rows, ratios, remark.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_divide_slices_with_traffic_by_slices_without() {
        let slices = |rate: f64| vec![Some(rate); 21];
        let found = Found {
            sender: [slices(100.0), slices(90.0)],
            other: [slices(200.0), slices(198.0)],
            towards: vec![64.0; 21],
            counts: [[1, 2], [3, 4]],
        };
        let like = Row {
            system: "portolan-shm".into(),
            size: Some(8),
            ranks: 4,
            ..Row::default()
        };
        let (rows, ratios, remarks) = found.report(&like);
        assert_eq!(rows.len(), 4);
        assert!(rows.iter().all(|row| row.ranks == 4 && row.slices == 21));
        assert_eq!(rows[1].stalled_traffic, Some(true));
        assert_eq!((rows[1].p50, rows[1].n), (90.0, 3));
        let medians: Vec<(&str, f64)> = ratios
            .iter()
            .map(|r| (r.metric.as_str(), r.median))
            .collect();
        assert_eq!(
            medians,
            [("rate_sender_to_others", 0.9), ("rate_other_pairs", 0.99)]
        );
        assert!(remarks[0].contains("64"));
    }
}
