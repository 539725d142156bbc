//! Delay-led control for a directly connected subnet.
//!
//! The window opens quickly to its maximum and stays there unless the network
//! shows a queue. Time is cut into epochs of at least one round trip and half
//! a millisecond; each is judged as a whole, by its *smallest* round trip, so
//! that a late host slows nothing down. What an epoch seems to say is tested
//! by doing: the window is cut, and the next epoch tells whether the network
//! answers.
//!
//! - *Follow*: no standing queue above the target. On one, the window is cut
//!   until it is gone, but not below what the best recent delivery rate needs.
//! - *Check*: after a cut. Where the queue does not shrink with our flight, or
//!   nothing is left to cut, others hold it (or a host is slow).
//! - *Compete*: beside a loss-led flow, yielding would starve us. The window
//!   grows and shrinks as in CUBIC's Reno-friendly part, and only losses that
//!   come with a full queue count.
//! - *Drain*: now and then in *Compete*, and when another flow seems to do so,
//!   the window is cut to a quarter for some epochs. If the queue vanishes, it
//!   was ours: back to *Follow*.
//! - *Look*: now and then in *Follow*, the same for one epoch. A flow that
//!   began beside a standing queue learns the base round trip.
//! - *Trial*: in *Follow*, losses without delay may come from a buffer too
//!   small to show a delay. The window is cut; only if that saves about as
//!   many as an overflow would have cost was it congestion.

mod losses;

use super::{AckSample, FRACTION, WINDOW_MIN, fixed};

/// Packets at the start: a burst that the buffer of a small switch holds.
const INITIAL: u32 = 64;

/// A standing queue of less delay is not acted on, ns; a quarter of the base
/// round trip comes on top. Far above what a host adds to its best of several
/// round trips, below a millisecond that applications would notice.
const TARGET_NS: u64 = 400_000;

/// An epoch lasts one round trip and at least this, ns.
const EPOCH_NS: u64 = 500_000;

/// The base round trip is the minimum of the last one to two of these, ns.
const BASE_NS: u64 = 10_000_000_000;

/// Epochs over which the best delivery rate is kept, once or twice.
const RATE_EPOCHS: u8 = 8;

/// The base round trip of a directly connected subnet is taken as this at
/// most, ns: a flow that starts beside a standing queue must not believe it.
const BASE_MAX_NS: u64 = 300_000;

/// A longer round trip is taken as this, ns, so that products stay in range.
const RTT_MAX_NS: u64 = 60_000_000_000;

/// Strikes until a queue counts as foreign. Flows like this one keep a queue
/// near the target, so one above twice the target convinces at once.
const STRIKES: u8 = 32;
const STRIKE_FAR: u8 = 16;
const STRIKE_NEAR: u8 = 3;

/// Epochs with a queue between two looks at the base round trip in Follow.
const LOOK_EPOCHS: u8 = 128;

/// The first such look, soon after the start.
const LOOK_FIRST: u8 = 8;

/// Growth in Compete for each window acknowledged, and the decrease on loss
/// and on marks, of 1024: as in CUBIC (RFC 9438, 4.3 and 4.6; RFC 8511).
const ALPHA: u64 = fixed(9) / 17;
const BETA_LOSS: u64 = 717;
const BETA_MARK: u64 = 870;

/// Of a longer round trip, ns, growth does not depend: else a delay that is
/// nobody's queue would leave it behind for seconds.
const GROWTH_NS: u64 = 2_000_000;

/// Epochs between two drains in Compete, at first and at most.
const DRAIN_FIRST: u8 = 16;
const DRAIN_LAST: u8 = 64;

/// Epochs that a drain waits for the queue to vanish: long enough for another
/// flow like this one to notice and join.
const DRAIN_EPOCHS: u8 = 4;

/// Packets that make a loss share worth comparing.
const TRIAL_PACKETS: u32 = 1024;

/// Losses fewer than this of them are not looked into.
const TRIAL_LOSSES: u32 = 16;

/// What a trial told about losses holds this long, ns.
const BASELINE_NS: u64 = 500_000_000;

/// Epochs with most packets lost and a queue, until the window is cut
/// whatever the phase: a circuit breaker (RFC 8084).
const BREAKER: u8 = 4;

/// Probes without answer after which the window starts again.
const TIMEOUTS_MAX: u8 = 4;

/// Pacing goes on for this long after the last sign of congestion, ns.
const PACED_NS: u64 = 250_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Follow,
    /// The round trip and the flight, 1/65,536 packet, before the cut.
    Check {
        rtt: u64,
        flight: u64,
    },
    Compete,
    /// Epochs left.
    Drain(u8),
    /// Like a drain, in Follow and for one epoch: shows the base round trip.
    Look,
    /// Congestion if less than this share is lost, of 65,536.
    Trial {
        below: u32,
    },
}

/// What happened since the epoch began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Epoch {
    start: u64,
    /// Smallest round trip; `u64::MAX` without a sample.
    rtt: u64,
    acked: u32,
    lost: u32,
    marked: u32,
    /// Packets of the round that began with the epoch, not yet heard of.
    left: u32,
    /// The most packets in flight.
    flight: u32,
    /// The flight still shrinks to a new window: nothing to judge yet.
    settling: bool,
}

/// State of one path; windows in 1/65,536 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lan {
    window: u64,
    /// Where a cut in vain returns to.
    restore: u64,
    window_max: u64,
    epoch: Epoch,
    phase: Phase,
    /// Delays up to this, ns, tell of no queue.
    late: u64,
    /// The time that packets take on average, ns, if longer than round trips
    /// show.
    mean: u64,
    /// Base round trip, the minimum of the current period, and its end.
    base: u64,
    base_next: u64,
    base_until: u64,
    /// Best delivery rate, packets/s: of this period and of the last.
    rate_next: u64,
    rate_last: u64,
    /// Largest round trip in Compete, decaying.
    peak: u64,
    /// Smallest of the last epoch in Compete, and its smoothed course.
    last_rtt: u64,
    usual: u64,
    paced_until: u64,
    pace: u64,
    loss_acked: u32,
    loss_lost: u32,
    /// In Compete: packets still to be heard of since the last decrease.
    recovery: u32,
    /// The window that last proved to lose less.
    fitting: u64,
    /// The share of 65,536 lost without congestion, if a trial told.
    baseline: Option<u32>,
    baseline_until: u64,
    /// Share marked, smoothed, of 1024.
    marks: u16,
    packet_bytes: u16,
    rate_epochs: u8,
    strikes: u8,
    drain_in: u8,
    drain_gap: u8,
    look_in: u8,
    broken: u8,
    timeouts: u8,
    /// No congestion was seen yet: double.
    opening: bool,
    /// A drain of another is joined: none was in vain since our own.
    joins: bool,
    /// The last window in Compete, for as long as a return is near.
    competed: u64,
    /// A trial found a buffer that overflows before it shows a delay.
    tight: bool,
}

impl Lan {
    pub(super) fn new(packet_bytes: u16, window_max: u32) -> Self {
        let window = fixed(INITIAL.min(window_max));
        Self {
            window,
            restore: window,
            window_max: fixed(window_max),
            epoch: Epoch::new(0, 0, false),
            phase: Phase::Follow,
            late: 0,
            mean: 0,
            base: u64::MAX,
            base_next: u64::MAX,
            base_until: 0,
            rate_next: 0,
            rate_last: 0,
            peak: 0,
            last_rtt: 0,
            usual: 0,
            paced_until: 0,
            pace: 0,
            loss_acked: 0,
            loss_lost: 0,
            recovery: 0,
            baseline: None,
            baseline_until: 0,
            marks: 1024,
            packet_bytes,
            rate_epochs: 0,
            strikes: 0,
            drain_in: DRAIN_FIRST,
            drain_gap: DRAIN_FIRST,
            look_in: LOOK_FIRST,
            fitting: 0,
            broken: 0,
            timeouts: 0,
            opening: true,
            joins: true,
            competed: 0,
            tight: false,
        }
    }

    pub(super) fn window(&self) -> u32 {
        (self.window >> FRACTION) as u32
    }

    pub(super) fn rate(&self) -> u64 {
        self.pace
    }

    pub(super) fn on_sent(&mut self, in_flight_packets: u32) {
        self.epoch.flight = self.epoch.flight.max(in_flight_packets);
    }

    /// Whether the window was what limited the sender.
    fn limited(&self) -> bool {
        let window = self.window();
        self.epoch.flight.saturating_add(window / 8) >= window
    }

    pub(super) fn on_ack(&mut self, now: u64, sample: &AckSample) {
        let settled = sample.acked_packets.saturating_add(sample.lost_packets);
        if sample.acked_packets > 0 {
            self.timeouts = 0;
        }
        if sample.mean_ns > 0 && self.mean == 0 {
            // It was disorder that looked like a queue.
            self.window = self.window.max(self.restore);
            self.phase = Phase::Follow;
            self.opening = true;
        }
        self.late = sample.late_ns.min(RTT_MAX_NS);
        self.mean = sample.mean_ns.min(RTT_MAX_NS);
        let epoch = &mut self.epoch;
        epoch.acked = epoch.acked.saturating_add(sample.acked_packets);
        epoch.lost = epoch.lost.saturating_add(sample.lost_packets);
        epoch.marked = epoch.marked.saturating_add(sample.ce_packets);
        epoch.left = epoch
            .left
            .saturating_sub(settled)
            .min(sample.in_flight_packets);
        if let Some(rtt) = sample.rtt_ns {
            self.see(now, rtt.clamp(1, RTT_MAX_NS));
        }
        if self.phase == Phase::Compete && !self.epoch.settling {
            self.compete(sample, settled);
        }
        let epoch = &self.epoch;
        if epoch.left > 0 {
            return;
        }
        if epoch.settling {
            self.begin(now, sample, false);
        } else if epoch.rtt != u64::MAX
            && now.saturating_sub(epoch.start) >= EPOCH_NS.max(2 * self.mean)
        {
            let before = self.window;
            self.judge(now);
            self.window = self.window.clamp(fixed(WINDOW_MIN), self.window_max);
            self.repace(now);
            let settle = self.window < before;
            self.begin(now, sample, settle);
        }
    }

    pub(super) fn on_timeout(&mut self) {
        // One lost tail says nothing; a long silence means that all known
        // about the path is old.
        self.timeouts = self.timeouts.saturating_add(1);
        if self.timeouts == TIMEOUTS_MAX {
            if !matches!(self.phase, Phase::Follow | Phase::Compete) {
                self.window = self.restore;
            }
            self.window = self.window.min(fixed(INITIAL));
            self.phase = Phase::Follow;
        }
    }

    fn begin(&mut self, now: u64, sample: &AckSample, settling: bool) {
        self.epoch = Epoch::new(now, sample.in_flight_packets, settling);
    }

    fn see(&mut self, now: u64, rtt: u64) {
        self.epoch.rtt = self.epoch.rtt.min(rtt);
        self.peak = self.peak.max(rtt);
        self.base = self.base.min(rtt).min(BASE_MAX_NS);
        self.base_next = self.base_next.min(rtt);
        if now >= self.base_until {
            if self.base_until != 0 {
                // It rises slowly: a foreign queue may stand for long without
                // becoming the base.
                let most = self.base + self.base / 16 + 1_000;
                self.base = self.base_next.min(most).min(BASE_MAX_NS);
                self.base_next = rtt;
            }
            self.base_until = now.saturating_add(BASE_NS);
        }
    }

    fn target(&self) -> u64 {
        TARGET_NS + self.base / 4 + self.late
    }

    /// How much longer packets take than the epoch's round trip, ns.
    const fn behind(&self) -> u64 {
        self.mean.saturating_sub(self.epoch.rtt)
    }

    /// Never cut below by delay: the best recent rate over three quarters of
    /// base round trip and target. Less than all of it, so that flows which
    /// share a queue all cut, and converge. Lost packets take room too, and so
    /// do those whose acknowledgement was lost.
    fn floor(&self, epoch: &Epoch) -> u64 {
        let arriving = self.flight_at((self.base + self.target()) / 4 * 3);
        let lost = (u64::from(epoch.lost) << 11) / u64::from(epoch.acked.max(1));
        let more = (arriving * lost.min(1024)) >> 10;
        (arriving + more).min(self.window_max)
    }

    /// The window that the best recent rate needs for a round trip.
    fn flight_at(&self, rtt: u64) -> u64 {
        let rtt = rtt.saturating_add(self.behind());
        let rate = u128::from(self.rate_next.max(self.rate_last));
        let window = ((rate * u128::from(rtt)) << FRACTION) / 1_000_000_000;
        u64::try_from(window)
            .unwrap_or(u64::MAX)
            .clamp(fixed(WINDOW_MIN), self.window_max)
    }

    fn judge(&mut self, now: u64) {
        self.note_rate(now);
        let epoch = self.epoch;
        let queue = epoch.rtt.saturating_sub(self.base);
        let target = self.target();
        if self.trips(&epoch, queue) {
            self.congested(now);
            self.window /= 2;
            self.phase = Phase::Follow;
            return;
        }
        match self.phase {
            Phase::Follow => self.follow(now, &epoch, queue),
            Phase::Check { rtt, flight } => {
                if queue <= target {
                    self.phase = Phase::Follow;
                    return;
                }
                // Alone, the round trip follows the flight.
                let all = u128::from(rtt + self.behind());
                let expected = all * u128::from(flight_of(self.window, &epoch));
                let expected = (expected / u128::from(flight.max(1))) as u64;
                let expected = expected.saturating_sub(self.behind()).max(self.base);
                if expected < rtt - rtt / 8 && epoch.rtt > expected.midpoint(rtt) {
                    self.strike(queue);
                } else {
                    self.strikes /= 2;
                }
                self.cut(now, &epoch, queue);
            }
            Phase::Compete => {
                self.peak = self.peak.saturating_sub(self.peak / 16).max(epoch.rtt);
                self.usual = self.usual - self.usual / 8 + epoch.rtt / 8;
                self.drain_in = self.drain_in.saturating_sub(1);
                // A TCP flow that backs off takes less from the queue at once.
                let other_drains = epoch.rtt < self.last_rtt / 4 * 3;
                self.last_rtt = epoch.rtt;
                if queue < target / 4 {
                    self.follow_again();
                } else if self.drain_in == 0 || (other_drains && self.joins) {
                    self.joins = self.drain_in == 0;
                    self.restore = self.window;
                    self.window /= 4;
                    self.phase = Phase::Drain(DRAIN_EPOCHS);
                }
            }
            Phase::Drain(left) => {
                // Alone, a quarter of the flight leaves a quarter of the queue
                // at most.
                let ours = self.peak.saturating_sub(self.base) / 16 * 5;
                if queue <= ours.max(target / 4) {
                    self.follow_again();
                } else if left > 1 {
                    self.phase = Phase::Drain(left - 1);
                } else {
                    self.window = self.restore;
                    self.phase = Phase::Compete;
                    self.last_rtt = 0;
                    self.recovery = 0;
                    self.drain_gap = (self.drain_gap * 2).min(DRAIN_LAST);
                    self.drain_in = self.drain_gap - odd(now);
                }
            }
            Phase::Look => {
                self.window = self.restore;
                self.phase = Phase::Follow;
            }
            Phase::Trial { below } => {
                if queue > target {
                    self.phase = Phase::Follow;
                    self.cut(now, &epoch, queue);
                } else {
                    self.end_trial(now, &epoch, below);
                }
            }
        }
    }

    fn follow(&mut self, now: u64, epoch: &Epoch, queue: u64) {
        self.note_marks(now, epoch);
        if queue > self.target() {
            self.cut(now, epoch, queue);
            return;
        }
        self.strikes = self.strikes.saturating_sub(1);
        if self.strikes == 0 {
            self.competed = 0;
        }
        if epoch.marked > 0 {
            return;
        }
        if self.mean > 0 && self.opening && epoch.lost > epoch.acked / 16 {
            // Disorder hides the queue that has overflowed.
            self.opening = false;
            self.window /= 2;
            return;
        }
        self.grow(queue);
        self.look_at_losses(now, epoch);
        // A few packets in flight stall where many are lost.
        let sound = epoch.lost <= epoch.acked / 16;
        let standing = !self.opening && queue > self.target() / 4;
        if self.phase == Phase::Follow && standing && sound {
            self.look_in = self.look_in.saturating_sub(1);
            if self.look_in == 0 {
                self.look_in = LOOK_EPOCHS - odd(now);
                self.restore = self.window;
                self.window /= 8;
                self.phase = Phase::Look;
            }
        }
    }

    fn follow_again(&mut self) {
        self.phase = Phase::Follow;
        // A short look may have been wrong: little speaks for going back.
        self.strikes = STRIKES - STRIKE_FAR;
        self.competed = self.window.max(self.restore);
        self.look_in = LOOK_FIRST;
    }

    fn strike(&mut self, queue: u64) {
        self.strikes += if queue > 2 * self.target() {
            STRIKE_FAR
        } else {
            STRIKE_NEAR
        };
    }

    fn note_rate(&mut self, now: u64) {
        let elapsed = now.saturating_sub(self.epoch.start).max(1);
        let rate = u64::from(self.epoch.acked) * 1_000_000_000 / elapsed;
        self.rate_next = self.rate_next.max(rate);
        self.rate_epochs += 1;
        if self.rate_epochs >= RATE_EPOCHS {
            self.rate_epochs = 0;
            self.rate_last = self.rate_next;
            self.rate_next = 0;
        }
    }

    fn note_marks(&mut self, now: u64, epoch: &Epoch) {
        // DCTCP (RFC 8257, 3.3): decrease by half the share marked.
        let share = (u64::from(epoch.marked) << 10) / u64::from(epoch.acked.max(1));
        let share = share.min(1024) as u16;
        self.marks = self.marks - self.marks / 16 + share / 16;
        if epoch.marked > 0 {
            self.congested(now);
            self.window -= (self.window * u64::from(self.marks.min(1024))) >> 11;
        }
    }

    fn congested(&mut self, now: u64) {
        self.opening = false;
        self.paced_until = now.saturating_add(PACED_NS);
    }

    /// Cuts the window so far that, alone, a quarter of the target would
    /// stand; at most by half, as the flight may not fill the window. Where
    /// nothing is left to cut, the queue cannot be ours.
    fn cut(&mut self, now: u64, epoch: &Epoch, queue: u64) {
        if self.strikes == 0 && self.phase == Phase::Follow {
            self.restore = self.window;
        }
        let wanted = self.base + self.target() / 4;
        let flight = u128::from(self.window.min(fixed(epoch.flight)));
        let scaled =
            flight * u128::from(wanted + self.behind()) / u128::from(epoch.rtt + self.behind());
        let scaled = u64::try_from(scaled).unwrap_or(u64::MAX);
        let window = scaled.max(self.window / 2).max(self.floor(epoch));
        let blocked = window >= self.window;
        if blocked {
            self.phase = Phase::Follow;
            self.strike(queue);
        }
        if self.strikes >= STRIKES {
            self.phase = Phase::Compete;
            let returns = self.competed > 0;
            // Half of what our best recent rate would need by now.
            let half = self.flight_at(epoch.rtt) / 2;
            self.window = self.window.max(self.restore).max(half).max(self.competed);
            self.strikes = 0;
            self.peak = epoch.rtt;
            self.usual = epoch.rtt;
            self.last_rtt = 0;
            self.recovery = 0;
            (self.drain_gap, self.drain_in) = (DRAIN_FIRST, DRAIN_FIRST);
            if returns {
                // The last drain misled.
                self.drain_gap = DRAIN_LAST;
                self.drain_in = DRAIN_LAST - odd(now);
            }
        } else if !blocked {
            self.congested(now);
            self.phase = Phase::Check {
                rtt: epoch.rtt,
                flight: flight_of(self.window, epoch),
            };
            self.window = window;
        }
    }

    fn grow(&mut self, queue: u64) {
        if !self.limited() {
            return;
        }
        let step = if self.tight {
            fixed(1) / 4
        } else if queue > self.target() / 2 {
            fixed(1)
        } else if self.opening {
            self.window
        } else {
            let step = fixed(1).max(self.window / 32);
            if self.mean > 0 {
                // Disorder asks for a larger flight at the same rate.
                let needed = self.flight_at(self.epoch.rtt) / 4 * 3;
                needed.saturating_sub(self.window).clamp(step, self.window)
            } else {
                step
            }
        };
        self.window = (self.window + step).min(self.window_max);
    }

    fn repace(&mut self, now: u64) {
        self.pace = 0;
        // Acknowledgements out of order come in heaps.
        let competes = self.phase == Phase::Compete;
        if now < self.paced_until || self.mean > 0 || competes {
            // At most the round trip aimed at: more than the window lets
            // through, so that this spreads bursts and limits nothing.
            let rtt = if competes {
                self.usual
            } else {
                self.epoch.rtt.min(self.base + self.target()) + self.behind()
            };
            let bytes = u128::from(self.window) * u128::from(self.packet_bytes);
            let bytes = if self.mean > 0 {
                bytes * 17 / 16
            } else {
                bytes * 5 / 4
            };
            let rate = bytes * 1_000_000_000 / u128::from(rtt);
            self.pace = u64::try_from(rate >> FRACTION).unwrap_or(u64::MAX).max(1);
        }
    }
}

impl Epoch {
    const fn new(start: u64, left: u32, settling: bool) -> Self {
        Self {
            start,
            rtt: u64::MAX,
            acked: 0,
            lost: 0,
            marked: 0,
            left,
            flight: 0,
            settling,
        }
    }
}

/// 0 to 15 out of the clock: flows that drain in turn and never together
/// would never see the queue empty.
fn odd(now: u64) -> u8 {
    (now.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as u8
}

/// The part of the flight that arrives.
fn flight_of(window: u64, epoch: &Epoch) -> u64 {
    let packets = u64::from(epoch.acked) + u64::from(epoch.lost);
    let share = (u64::from(epoch.acked) << 16) / packets.max(1);
    (window.min(fixed(epoch.flight)) * share) >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    /// A path with a base round trip and a window that the flight fills.
    fn path(base: u64, packets: u32) -> Lan {
        Lan {
            base,
            window: fixed(packets),
            opening: false,
            ..Lan::new(1_400, 512)
        }
    }

    /// An epoch of that round trip in which all of the flight arrived.
    fn epoch(rtt: u64, flight: u32) -> Epoch {
        Epoch {
            rtt,
            flight,
            acked: flight,
            ..Epoch::new(0, 0, false)
        }
    }

    #[test]
    fn only_what_arrives_counts_as_flight() {
        let lossy = Epoch {
            acked: 30,
            lost: 10,
            ..epoch(US, 80)
        };
        assert_eq!(flight_of(fixed(100), &lossy), fixed(60));
        assert_eq!(flight_of(fixed(40), &lossy), fixed(30));
        assert_eq!(flight_of(fixed(40), &epoch(US, 0)), 0);
    }

    #[test]
    fn a_cut_leaves_a_quarter_of_the_target() {
        // The target is 475 us: of 780 us, 300 + 475 / 4 are to stay.
        let mut lan = path(300 * US, 64);
        lan.cut(0, &epoch(780 * US, 64), 480 * US);
        assert_eq!(lan.window(), 34);
        let Phase::Check { rtt, flight } = lan.phase else {
            panic!("{:?}", lan.phase);
        };
        assert_eq!((rtt, flight), (780 * US, fixed(64)));
        // At most by half.
        let mut lan = path(300 * US, 64);
        lan.cut(0, &epoch(3_000 * US, 64), 2_700 * US);
        assert_eq!(lan.window(), 32);
    }

    #[test]
    fn in_disorder_a_delay_tells_of_a_queue_only_beyond_the_lateness_seen() {
        for (late, follows) in [(370 * US, false), (380 * US, true)] {
            let mut lan = Lan {
                late,
                mean: 2_000 * US,
                epoch: epoch(900 * US, 64),
                ..path(100 * US, 64)
            };
            lan.judge(50_000 * US);
            assert_eq!(lan.phase == Phase::Follow, follows, "{late}");
        }
    }

    #[test]
    fn in_disorder_a_window_is_for_the_mean_time_of_packets() {
        // Of 2,000 us, 1,000 show as round trip: of 1,000 + 1,000, 300 + 475 /
        // 4 + 1,000 are to stay.
        let mut lan = Lan {
            mean: 2_000 * US,
            epoch: epoch(1_000 * US, 128),
            ..path(300 * US, 128)
        };
        lan.cut(0, &lan.epoch.clone(), 700 * US);
        assert_eq!(lan.window(), 90);
        // And it is paced, a little faster than that.
        lan.repace(PACED_NS);
        let rate = 90 * 1_400 * 17 / 16 * 1_000_000 / (775 + 1_000);
        assert!(lan.rate().abs_diff(rate) < rate / 50, "{}", lan.rate());
    }

    #[test]
    fn disorder_seen_first_starts_again_and_losses_end_that() {
        let mut lan = Lan {
            restore: fixed(100),
            phase: Phase::Compete,
            ..path(100 * US, 64)
        };
        let sample = AckSample {
            mean_ns: 1_000 * US,
            in_flight_packets: 64,
            ..AckSample::default()
        };
        lan.on_ack(0, &sample);
        assert_eq!((lan.window(), lan.phase), (100, Phase::Follow));
        for (lost, window) in [(6, 200), (7, 50)] {
            let mut lan = lan;
            let epoch = Epoch {
                acked: 100,
                lost,
                ..epoch(100 * US, 100)
            };
            lan.epoch = epoch;
            lan.follow(0, &epoch, 0);
            assert_eq!(lan.window(), window, "{lost}");
        }
    }

    #[test]
    fn marks_cut_by_half_their_share_and_nothing_grows_meanwhile() {
        let mut lan = path(100 * US, 64);
        lan.epoch = Epoch {
            marked: 64,
            ..epoch(100 * US, 64)
        };
        lan.follow(0, &lan.epoch.clone(), 0);
        assert_eq!(lan.window, fixed(32));
        lan.epoch = epoch(100 * US, 32);
        lan.follow(0, &lan.epoch.clone(), 0);
        assert_eq!(lan.window, fixed(33));
    }

    #[test]
    fn in_competition_a_round_trip_that_falls_by_a_quarter_is_joined() {
        for (rtt, drains) in [(1_600 * US, false), (1_490 * US, true)] {
            let mut lan = Lan {
                phase: Phase::Compete,
                last_rtt: 2_000 * US,
                epoch: epoch(rtt, 64),
                ..path(100 * US, 64)
            };
            lan.judge(10 * US);
            assert_eq!(matches!(lan.phase, Phase::Drain(_)), drains, "{rtt}");
            assert_eq!(lan.window(), if drains { 16 } else { 64 });
        }
    }

    #[test]
    fn a_cut_tells_of_others_only_if_the_queue_should_have_shrunk() {
        // The flight is a tenth smaller, or a fifth; the queue is the same.
        for (flight, strikes) in [(72, 4), (64, 8 + STRIKE_FAR)] {
            let mut lan = Lan {
                phase: Phase::Check {
                    rtt: 2_000 * US,
                    flight: fixed(80),
                },
                strikes: 8,
                epoch: epoch(2_000 * US, flight),
                ..path(100 * US, 80)
            };
            lan.judge(500 * US);
            assert_eq!(lan.strikes, strikes, "{flight}");
        }
        // It shrank as our flight did.
        let mut lan = Lan {
            phase: Phase::Check {
                rtt: 2_000 * US,
                flight: fixed(80),
            },
            strikes: 8,
            epoch: epoch(1_000 * US, 40),
            ..path(100 * US, 80)
        };
        lan.judge(500 * US);
        assert_eq!(lan.strikes, 4);
    }

    #[test]
    fn in_competition_losses_count_with_a_full_queue_once_a_round() {
        let lan = Lan {
            phase: Phase::Compete,
            peak: 2_100 * US,
            epoch: epoch(2_100 * US, 100),
            ..path(100 * US, 100)
        };
        let sample = AckSample {
            acked_packets: 9,
            lost_packets: 1,
            rtt_ns: Some(2_000 * US),
            in_flight_packets: 90,
            ..AckSample::default()
        };
        let mut full = lan;
        full.compete(&sample, 10);
        assert_eq!(full.window, (fixed(100) * BETA_LOSS) >> 10);
        // What is left of that flight says nothing more.
        for _ in 0..9 {
            full.compete(&sample, 10);
        }
        assert_eq!(full.window(), 70);
        full.compete(&sample, 10);
        assert_eq!(full.window(), 49);
        // A loss that no queue explains, and a mark.
        let mut random = lan;
        random.compete(
            &AckSample {
                rtt_ns: Some(1_500 * US),
                ..sample
            },
            10,
        );
        assert_eq!(random.window, fixed(100) + ALPHA * 9 / 100);
        let mut marked = lan;
        marked.compete(
            &AckSample {
                lost_packets: 0,
                ce_packets: 1,
                ..sample
            },
            10,
        );
        assert_eq!(marked.window, (fixed(100) * BETA_MARK) >> 10);
    }

    #[test]
    fn the_base_round_trip_rises_slowly() {
        let mut lan = Lan {
            base_next: 200 * US,
            base_until: 1,
            ..path(100 * US, 64)
        };
        lan.see(1, 150 * US);
        assert_eq!(lan.base, 107_250);
        assert_eq!((lan.base_next, lan.base_until), (150 * US, 1 + BASE_NS));
        lan.see(2, 90 * US);
        assert_eq!((lan.base, lan.base_next), (90 * US, 90 * US));
        assert_eq!(lan.target(), TARGET_NS + 22_500);
    }

    #[test]
    fn a_standing_queue_is_looked_into_where_little_is_lost() {
        // A quarter of the target is 106 us; one of 16 may be lost.
        for (queue, lost, looks) in [
            (150 * US, 4, true),
            (100 * US, 4, false),
            (150 * US, 5, false),
        ] {
            let mut lan = Lan {
                look_in: 1,
                ..path(100 * US, 64)
            };
            let epoch = Epoch {
                lost,
                ..epoch(100 * US + queue, 64)
            };
            lan.epoch = epoch;
            lan.follow(0, &epoch, queue);
            assert_eq!(lan.phase == Phase::Look, looks, "{queue} {lost}");
            assert_eq!(lan.window(), if looks { 8 } else { 66 });
        }
    }

    #[test]
    fn a_drain_ends_when_the_queue_was_ours_or_in_vain() {
        // Five sixteenths of the largest queue are 500 us.
        let at = |left: u8, queue: u64| {
            let mut lan = Lan {
                phase: Phase::Drain(left),
                peak: 1_700 * US,
                restore: fixed(100),
                epoch: epoch(100 * US + queue, 25),
                ..path(100 * US, 25)
            };
            lan.judge(7);
            lan
        };
        assert_eq!(at(4, 490 * US).phase, Phase::Follow);
        assert_eq!(at(4, 510 * US).phase, Phase::Drain(3));
        let vain = at(1, 510 * US);
        assert_eq!((vain.phase, vain.window()), (Phase::Compete, 100));
        assert!(odd(7) > 1);
        assert_eq!(vain.drain_in, 2 * DRAIN_FIRST - odd(7));
    }

    #[test]
    fn losses_beyond_what_was_usual_cut() {
        // Usual is one of a hundred: of 925 or so, 13 and a chance of 8.
        for (lost, until, window) in [(25, 9, 40), (21, 9, 64), (25, 5, 64)] {
            let mut lan = Lan {
                baseline: Some(655),
                baseline_until: until,
                ..path(100 * US, 64)
            };
            let epoch = Epoch {
                acked: 900,
                lost,
                ..epoch(100 * US, 64)
            };
            lan.look_at_losses(5, &epoch);
            assert_eq!(lan.window(), window, "{lost} {until}");
        }
    }

    #[test]
    fn a_trial_cuts_and_believes_what_it_sees() {
        let mut lan = path(100 * US, 64);
        let seen = |acked: u32, lost: u32| Epoch {
            acked,
            lost,
            ..epoch(100 * US, 64)
        };
        lan.look_at_losses(0, &seen(1_000, 100));
        // A quarter less; congestion if less than half the share is lost.
        assert_eq!(lan.window(), 48);
        assert_eq!(lan.phase, Phase::Trial { below: 2_978 });
        let tried = lan;
        // Too few packets to tell.
        lan.end_trial(0, &seen(900, 10), 2_978);
        assert_eq!(lan.phase, tried.phase);
        for (lost, window, tight, baseline) in [
            (10, 48, true, Some(10 << 16)),
            (20, 48, true, None),
            (80, 64, false, Some(80 << 16)),
        ] {
            let mut lan = tried;
            lan.end_trial(0, &seen(1_100 - lost, lost), 2_978);
            assert_eq!(lan.phase, Phase::Follow);
            assert_eq!((lan.window(), lan.tight), (window, tight), "{lost}");
            assert_eq!(lan.baseline, baseline.map(|b: u32| b / 1_100));
        }
        // As much as half the share is no congestion.
        let mut lan = tried;
        lan.end_trial(0, &seen(1_100 - 50, 50), (50 << 16) / 1_100);
        assert!(!lan.tight);
    }

    #[test]
    fn the_circuit_breaks_after_four_epochs_of_most_lost() {
        for (lost, breaks) in [(41, true), (39, false)] {
            let mut lan = path(100 * US, 64);
            let epoch = Epoch {
                acked: 100 - lost,
                lost,
                ..epoch(400 * US, 64)
            };
            let tripped = [(); 8].map(|()| lan.trips(&epoch, 300 * US));
            let expected = [3, 7].map(|i| (i, breaks));
            for (i, trips) in tripped.into_iter().enumerate() {
                let due = expected.iter().any(|&(at, breaks)| at == i && breaks);
                assert_eq!(trips, due, "{lost} {i}");
            }
        }
    }

    #[test]
    fn paced_is_a_quarter_more_than_the_window_for_a_while_after_congestion() {
        let mut lan = Lan {
            epoch: epoch(140 * US, 64),
            ..path(100 * US, 64)
        };
        lan.congested(0);
        lan.repace(PACED_NS - 1);
        assert_eq!(lan.rate(), 64 * 1_400 * 5 / 4 * 1_000_000 / 140);
        lan.repace(PACED_NS);
        assert_eq!(lan.rate(), 0);
    }

    #[test]
    fn four_probes_in_a_row_without_an_answer_start_again() {
        let mut lan = path(100 * US, 512);
        (0..3).for_each(|_| lan.on_timeout());
        lan.on_ack(
            0,
            &AckSample {
                acked_packets: 1,
                in_flight_packets: 1,
                ..AckSample::default()
            },
        );
        (0..3).for_each(|_| lan.on_timeout());
        assert_eq!(lan.window(), 512);
        lan.on_timeout();
        assert_eq!(lan.window(), INITIAL);
    }
}
