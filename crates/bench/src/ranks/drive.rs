//! The patterns, over any channel: the same loops measure every system that
//! is code of ours, so that none has a kinder harness than another.

use hdrhistogram::Histogram;
use portolan_hosts::failure::{Failure, Result, fail};
use portolan_sys::clock::now_ns;
use portolan_sys::ticks::{ns_per_tick, ticks};

use crate::control::{Answer, ControlLine, Followed, Led, Op, Order, Sent};
use crate::report::cost::Cost;
use crate::slice::Rule;

/// One process's half of a system that moves messages to the other process.
///
/// Neither call waits, unless the channel sleeps; and then no longer than
/// [`crate::ranks::asleep::REST`]. What a message holds is up to the channel.
pub trait Channel {
    /// Whatever was sent arrives.
    const RELIABLE: bool;
    /// Empty polls after which a rank looks whether it is to stop: so many
    /// that it never does so while messages flow.
    const POLLS_PER_LOOK: u32;
    /// A poll that finds nothing sleeps until something comes.
    const SLEEPS: bool = false;

    /// Makes ready for a slice: what is left of the last one is dropped.
    fn begin(&mut self) -> Result<()>;

    /// Sends a message of `size` bytes; `false` if that cannot be done now or
    /// is not done yet: poll, then call it again with the same size.
    fn try_send(&mut self, size: usize) -> Result<bool>;

    /// A message has been sent in part.
    fn sending(&self) -> bool {
        false
    }

    /// Takes what has arrived; gives how many messages of `size` bytes that
    /// completed.
    fn poll(&mut self, size: usize) -> Result<u64>;

    /// Bytes that have arrived since the channel was made.
    fn received(&self) -> u64;

    /// Data packets sent since the channel was made, where it counts them.
    fn data_packets(&self) -> Option<u64> {
        None
    }
}

/// Round trips kept of one slice.
const SAMPLES_MAX: usize = 1 << 20;
/// A lossy channel's round trip after which the message is sent again.
const RESEND_NS: u64 = 10_000_000;
/// A lossy channel that brought nothing for this long has brought all.
const QUIET_NS: u64 = 2_000_000;
/// How long an answer may be late, nanoseconds.
const LATE_NS: u64 = 200_000_000;
/// Round trips before those that count go on for this long, and at least one.
const WARM_UP_NS: u64 = 1_000_000;

/// The measuring half of a rank: its samples and how to read the counter.
pub struct Meter {
    ns_per_tick: f64,
    samples: Vec<u64>,
}

impl Meter {
    /// Finds the counter's rate (10 ms).
    #[must_use]
    pub fn new() -> Self {
        Self {
            ns_per_tick: ns_per_tick(10_000_000),
            samples: Vec::with_capacity(SAMPLES_MAX),
        }
    }

    fn in_ticks(&self, ns: u64) -> u64 {
        (ns as f64 / self.ns_per_tick) as u64
    }

    /// Times `round_trip`, which waits for its own end, by `rule`.
    pub fn round_trips(&mut self, rule: &Rule, mut round_trip: impl FnMut()) -> Sent {
        let slice = self.rule_in_ticks(rule);
        let warm_up = Rule {
            slice_ns: self.in_ticks(WARM_UP_NS),
            operations: 1,
            ..slice
        };
        let mut sent = Sent::default();
        for rule in [warm_up, slice] {
            self.samples.clear();
            sent.operations = 0;
            let start = ticks();
            let mut last = start;
            loop {
                round_trip();
                let now = ticks();
                sent.operations += 1;
                if self.samples.len() < SAMPLES_MAX {
                    self.samples.push(now - last);
                }
                last = now;
                if !rule.goes_on(now - start, sent.operations) {
                    break;
                }
            }
            sent.elapsed_ns = ((last - start) as f64 * self.ns_per_tick) as u64;
        }
        sent
    }

    fn rule_in_ticks(&self, rule: &Rule) -> Rule {
        Rule {
            slice_ns: self.in_ticks(rule.slice_ns),
            cap_ns: self.in_ticks(rule.cap_ns),
            ..*rule
        }
    }

    /// The round trips of the last slice in tenths of a nanosecond, counted.
    pub fn counted(&self) -> Vec<(u64, u64)> {
        let mut histogram = new_histogram();
        for &sample in &self.samples {
            histogram.saturating_record((sample as f64 * self.ns_per_tick * 10.0) as u64);
        }
        histogram
            .iter_recorded()
            .map(|v| (v.value_iterated_to(), v.count_at_value()))
            .collect()
    }
}

/// A histogram of times from 0.1 ns to 20 s, to three digits.
#[must_use]
pub fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 200_000_000_000, 3).expect("constant bounds are valid")
}

/// What came of a row of operations that were answered.
struct Rounds {
    operations: u64,
    messages: u64,
    elapsed: u64,
    cut: bool,
    /// The answer to a whole row had not come when the cap ended it.
    owed: u64,
}

/// Sends rows and waits for their answers by `rule`, whose times are ticks.
fn rounds<C: Channel>(
    channel: &mut C,
    op: &Op,
    answer: usize,
    rule: &Rule,
    resend: u64,
    samples: &mut Vec<u64>,
) -> Result<Rounds> {
    samples.clear();
    let start = ticks();
    let mut last = start;
    let mut done = Rounds {
        operations: 0,
        messages: 0,
        elapsed: 0,
        cut: false,
        owed: 0,
    };
    'slice: loop {
        let mut answers = 0;
        for _ in 0..op.row() {
            while !channel.try_send(op.size)? {
                answers += channel.poll(answer)?;
                if ticks() - start > rule.cap_ns {
                    done.cut = true;
                    break 'slice;
                }
            }
            done.messages += 1;
        }
        let mut empty = 0_u32;
        while answers == 0 {
            answers = channel.poll(answer)?;
            empty += 1;
            // The counter is read only once the answer is late.
            if empty.is_multiple_of(C::POLLS_PER_LOOK) {
                let now = ticks();
                if now - start > rule.cap_ns {
                    (done.cut, done.owed) = (true, 1);
                    break 'slice;
                }
                if !C::RELIABLE && now - last > resend {
                    last = now;
                    continue 'slice;
                }
            }
        }
        let now = ticks();
        done.operations += 1;
        if samples.len() < SAMPLES_MAX {
            samples.push(now - last);
        }
        last = now;
        if !rule.goes_on(now - start, done.operations) {
            break;
        }
    }
    done.elapsed = last - start;
    Ok(done)
}

/// Sends without an answer by `rule`, in nanoseconds.
fn stream<C: Channel>(channel: &mut C, op: &Op, rule: &Rule) -> Result<Sent> {
    // Time is looked at once in so many sends, or in so many refusals.
    let often = (65_536 / op.size.max(1)).clamp(1, 64) as u32;
    let start_ns = now_ns();
    let mut sent = Sent {
        start_ns,
        ..Sent::default()
    };
    let mut looks = 0_u32;
    loop {
        if channel.try_send(op.size)? {
            sent.operations += 1;
            looks += 64 / often;
        } else {
            channel.poll(op.size)?;
            looks += 1;
        }
        if looks < 64 {
            continue;
        }
        looks = 0;
        sent.elapsed_ns = now_ns() - start_ns;
        let over = sent.elapsed_ns >= rule.cap_ns;
        if over || (!channel.sending() && !rule.goes_on(sent.elapsed_ns, sent.operations)) {
            sent.cut = over;
            break;
        }
    }
    sent.bytes = sent.operations * op.size as u64;
    Ok(sent)
}

/// The leader's part of one slice.
pub fn lead<C: Channel>(
    channel: &mut C,
    op: &Op,
    rule: &Rule,
    meter: &mut Meter,
    line: &mut ControlLine,
) -> Result<Led> {
    channel.begin()?;
    let before = channel.data_packets();
    let begun = Cost::now();
    let mut owed = 0;
    let sent = match op.answer() {
        None => stream(channel, op, rule)?,
        Some(answer) => {
            let slice = meter.rule_in_ticks(rule);
            let warm_up = Rule {
                slice_ns: meter.in_ticks(WARM_UP_NS),
                operations: 1,
                ..slice
            };
            let resend = meter.in_ticks(RESEND_NS);
            let mut start_ns = now_ns();
            let mut done = rounds(channel, op, answer, &warm_up, resend, &mut meter.samples)?;
            // A warm-up in which nothing came back was the slice.
            if !done.cut {
                let warm_up = done.messages;
                start_ns = now_ns();
                done = rounds(channel, op, answer, &slice, resend, &mut meter.samples)?;
                done.messages += warm_up;
            }
            owed = done.owed;
            Sent {
                start_ns,
                elapsed_ns: (done.elapsed as f64 * meter.ns_per_tick) as u64,
                operations: done.operations,
                bytes: done.messages * op.size as u64,
                cut: done.cut,
                ..Sent::default()
            }
        }
    };
    let mut cost = begun.until_now();
    line.say(&Answer::Sent(sent))?;
    // What was sent may need us to get there. An answer that is late must not
    // be taken for the next slice's.
    let mut stopped_ns = None;
    while stopped_ns.is_none_or(|at| C::RELIABLE && owed > 0 && now_ns() - at < LATE_NS) {
        for _ in 0..C::POLLS_PER_LOOK {
            owed = owed.saturating_sub(channel.poll(op.answer().unwrap_or(op.size))?);
        }
        if stopped_ns.is_none() {
            match line.try_hear()? {
                None => {}
                Some(Order::Stop) => stopped_ns = Some(now_ns()),
                Some(order) => return fail(format!("the bench sent {order:?} to a leader")),
            }
        }
    }
    let mut round_trips = Vec::new();
    if op.answer().is_some() {
        round_trips = meter.counted();
    } else {
        cost = begun.until_now();
    }
    let sent_since = |before| Some(channel.data_packets()? - before);
    Ok(Led {
        round_trips,
        data_packets: before.and_then(sent_since),
        cost: Some(cost),
    })
}

/// The follower's part of one slice.
pub fn follow<C: Channel>(channel: &mut C, op: &Op, line: &mut ControlLine) -> Result<Followed> {
    channel.begin()?;
    let begun = Cost::now();
    line.say(&Answer::Ready)?;
    let base = channel.received();
    let (mut owed, mut seen, mut arrived) = (0, base, false);
    let mut last_ns = now_ns();
    let mut empty = 0_u32;
    let mut finish: Option<(u64, u64)> = None;
    loop {
        owed += channel.poll(op.size)?;
        if let Some(answer) = op.answer() {
            while owed >= op.row() && channel.try_send(answer)? {
                owed -= op.row();
            }
        }
        if channel.received() != seen {
            seen = channel.received();
            (arrived, empty) = (!C::SLEEPS, 0);
            if C::SLEEPS {
                // The next look comes when the next message does.
                last_ns = now_ns();
            }
            continue;
        }
        if arrived {
            (arrived, last_ns) = (false, now_ns());
        }
        empty += 1;
        let bytes = seen - base;
        if let Some((target, deadline_ns)) = finish {
            let now = now_ns();
            let complete = bytes >= target;
            let over = now >= deadline_ns || (!C::RELIABLE && now - last_ns > QUIET_NS);
            if complete || over {
                return Ok(Followed {
                    bytes,
                    last_ns,
                    complete,
                    cost: Some(begun.until_now()),
                });
            }
        } else if empty.is_multiple_of(C::POLLS_PER_LOOK) {
            finish = match line.try_hear()? {
                None => None,
                Some(Order::Finish { bytes, deadline_ns }) => Some((bytes, deadline_ns)),
                Some(order) => {
                    return Err(Failure::new(format!(
                        "the bench sent {order:?} to a follower"
                    )));
                }
            };
        }
    }
}

#[cfg(test)]
pub mod tests {
    use std::collections::VecDeque;
    use std::os::unix::net::UnixStream;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::control::Pattern;

    /// One slice over both halves of a channel, the follower in a thread; the
    /// test conducts.
    pub fn slice<C: Channel + Send>(
        leader: &mut C,
        follower: &mut C,
        op: Op,
        rule: Rule,
    ) -> (Sent, Followed, Led) {
        let pair = || {
            let (a, b) = UnixStream::pair().unwrap();
            (ControlLine::new(a), ControlLine::new(b))
        };
        let ((mut to_leader, mut leads), (mut to_follower, mut follows)) = (pair(), pair());
        std::thread::scope(|scope| {
            let following = scope.spawn(move || follow(follower, &op, &mut follows).unwrap());
            assert_eq!(to_follower.hear::<Answer>().unwrap(), Answer::Ready);
            let leading = scope
                .spawn(move || lead(leader, &op, &rule, &mut Meter::new(), &mut leads).unwrap());
            let Answer::Sent(sent) = to_leader.hear().unwrap() else {
                panic!("no Sent")
            };
            let deadline_ns = sent.start_ns + rule.cap_ns;
            to_follower
                .say(&Order::Finish {
                    bytes: sent.bytes,
                    deadline_ns,
                })
                .unwrap();
            let followed = following.join().unwrap();
            to_leader.say(&Order::Stop).unwrap();
            (sent, followed, leading.join().unwrap())
        })
    }

    /// Sizes of messages on their way, in memory; takes so many at most.
    type SizeQueue = Arc<Mutex<VecDeque<usize>>>;

    struct MemoryChannel {
        out: SizeQueue,
        into: SizeQueue,
        room: usize,
        received: u64,
        sent: u64,
        /// Stops delivering after so many messages.
        stalls_after: u64,
    }

    fn memory(room: usize, stalls_after: u64) -> (MemoryChannel, MemoryChannel) {
        let (a, b) = (SizeQueue::default(), SizeQueue::default());
        let half = |out: &SizeQueue, into: &SizeQueue, stalls_after| MemoryChannel {
            out: Arc::clone(out),
            into: Arc::clone(into),
            room,
            received: 0,
            sent: 0,
            stalls_after,
        };
        (half(&a, &b, u64::MAX), half(&b, &a, stalls_after))
    }

    impl Channel for MemoryChannel {
        const RELIABLE: bool = true;
        const POLLS_PER_LOOK: u32 = 64;

        fn begin(&mut self) -> Result<()> {
            Ok(())
        }

        fn try_send(&mut self, size: usize) -> Result<bool> {
            let mut out = self.out.lock().unwrap();
            let room = out.len() < self.room;
            if room {
                out.push_back(size);
                self.sent += 1;
            }
            Ok(room)
        }

        fn poll(&mut self, size: usize) -> Result<u64> {
            if self.stalls_after == 0 {
                return Ok(0);
            }
            let Some(bytes) = self.into.lock().unwrap().pop_front() else {
                return Ok(0);
            };
            assert_eq!(bytes, size);
            self.stalls_after -= 1;
            self.received += bytes as u64;
            Ok(1)
        }

        fn received(&self) -> u64 {
            self.received
        }

        fn data_packets(&self) -> Option<u64> {
            Some(self.sent)
        }
    }

    #[test]
    fn every_pattern_counts_what_it_sent() {
        for pattern in [
            Pattern::Pingpong,
            Pattern::Ping,
            Pattern::Burst,
            Pattern::Stream,
        ] {
            let (mut leader, mut follower) = memory(16, u64::MAX);
            let op = Op { pattern, size: 100 };
            let rule = Rule {
                slice_ns: 0,
                operations: 10,
                cap_ns: 10_000_000_000,
            };
            let (sent, followed, led) = slice(&mut leader, &mut follower, op, rule);
            assert!(sent.operations >= 10 && !sent.cut, "{pattern:?}: {sent:?}");
            assert!(followed.complete, "{pattern:?}: {followed:?}");
            assert_eq!(sent.bytes, leader.sent * 100, "{pattern:?}");
            assert_eq!(followed.bytes, sent.bytes, "{pattern:?}");
            assert_eq!(led.data_packets, Some(leader.sent), "{pattern:?}");
            let timed: u64 = led.round_trips.iter().map(|(_, count)| count).sum();
            let answered = op.answer().is_some();
            assert_eq!(
                timed,
                if answered { sent.operations } else { 0 },
                "{pattern:?}"
            );
            assert_eq!(follower.sent > 0, answered, "{pattern:?}");
        }
    }

    #[test]
    fn a_stream_that_stalls_is_cut_and_counts_its_bytes() {
        let (mut leader, mut follower) = memory(4, 3);
        let op = Op {
            pattern: Pattern::Stream,
            size: 100,
        };
        let rule = Rule {
            slice_ns: 0,
            operations: 10,
            cap_ns: 20_000_000,
        };
        let (sent, followed, _) = slice(&mut leader, &mut follower, op, rule);
        assert!(sent.cut && sent.elapsed_ns >= rule.cap_ns, "{sent:?}");
        // The last four fill the way; how many got through depends on who ran.
        assert_eq!(sent.bytes, leader.sent * 100);
        assert!(followed.bytes <= 300 && followed.bytes < sent.bytes);
        assert!(!followed.complete);
    }

    #[test]
    fn round_trips_that_stall_are_cut() {
        let (mut leader, mut follower) = memory(4, 0);
        let op = Op {
            pattern: Pattern::Pingpong,
            size: 8,
        };
        let rule = Rule {
            slice_ns: 0,
            operations: 10,
            cap_ns: 20_000_000,
        };
        let (sent, followed, _) = slice(&mut leader, &mut follower, op, rule);
        assert!(sent.cut && sent.operations == 0, "{sent:?}");
        assert_eq!(
            (sent.bytes, followed.bytes, followed.complete),
            (8, 0, false)
        );
    }
}
