//! Delay-led control for a directly connected subnet.
//!
//! The window opens quickly to its maximum and stays there unless the network
//! shows a queue. Time is cut into epochs of at least one round trip and half a
//! millisecond; each is judged as a whole, by its *smallest* round trip, so
//! that a late host slows nothing down. A suspicion is tested: the window is
//! cut, and the next epoch shows whether the network responds.
//!
//! - *Follow*: no standing queue above the target. If there is one, the window
//!   is cut until it is gone, but not below what the best recent delivery rate
//!   needs. Where the peer sends as much, the target is twice as long: there
//!   acknowledgements wait in the queue that the peer keeps in its direction.
//! - *Check*: after a cut. Where the queue does not shrink with our flight, or
//!   nothing is left to cut, others hold it (or a host is slow).
//! - *Compete*: beside a loss-led flow, yielding would starve us. The window
//!   grows and shrinks as in CUBIC's Reno-friendly part, and only losses that
//!   come with a full queue count.
//! - *Drain*: now and then in *Compete*, and when another flow seems to do so,
//!   the window is cut to a quarter for some epochs. If the queue vanishes, it
//!   was ours: back to *Follow*.
//! - *Look*: now and then in *Follow*, an eighth of the window for one epoch. A
//!   flow that began beside a standing queue learns the base round trip.
//! - *Trial*: in *Follow*, losses without delay may come from a buffer too
//!   small to show a delay. The window is cut; the cause was congestion only if
//!   that saves about as many packets as an overflow would have cost.

mod losses;

use super::{AckSample, FRACTION, WINDOW_MIN, fixed};

/// Packets at the start: a burst that the buffer of a small switch holds.
const INITIAL: u32 = 64;

/// Delay of a standing queue that is tolerated, ns; a quarter of the base round
/// trip comes on top. Far above what a host adds to its best of several round
/// trips, below a millisecond that applications would notice.
const TARGET_NS: u64 = 400_000;

/// An epoch lasts one round trip and at least this, ns.
const EPOCH_NS: u64 = 500_000;

/// The base round trip is the minimum of the last one to two of these, ns.
const BASE_NS: u64 = 10_000_000_000;

/// Epochs in a period; the best delivery rate is that of one to two periods.
const RATE_EPOCHS: u8 = 8;

/// Upper bound of the base round trip, ns, as the subnet is directly connected:
/// a flow that starts beside a standing queue must not believe its samples.
const BASE_MAX_NS: u64 = 300_000;

/// Longer round trips count as this, ns, so that products stay in range.
const RTT_MAX_NS: u64 = 60_000_000_000;

/// Strikes until a queue counts as foreign; above twice the target one adds
/// more. Flows like this one keep a queue near the target, so a far one
/// convinces sooner.
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

/// From this round trip on, ns, growth over time does not depend on it: else a
/// delay that is no queue would leave the window behind for seconds.
const GROWTH_NS: u64 = 2_000_000;

/// Epochs between two drains in Compete, at first and at most.
const DRAIN_FIRST: u8 = 16;
const DRAIN_LAST: u8 = 64;

/// Epochs that a drain waits for the queue to vanish: long enough for another
/// flow like this one to notice and join.
const DRAIN_EPOCHS: u8 = 4;

/// Minimum number of packets for a share of losses.
const TRIAL_PACKETS: u32 = 1024;

/// Minimum number of losses among them for a trial.
const TRIAL_LOSSES: u32 = 16;

/// Time for which the result of a trial holds, ns.
const BASELINE_NS: u64 = 500_000_000;

/// Epochs in a row with a queue, and more than two fifths of the packets lost,
/// until the window is cut whatever the phase: a circuit breaker (RFC 8084).
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

/// Measurements since the epoch began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Epoch {
    start: u64,
    /// Smallest round trip; `u64::MAX` without a sample.
    rtt: u64,
    acked: u32,
    lost: u32,
    marked: u32,
    /// Packets in flight when the epoch began, neither acknowledged nor lost yet.
    left: u32,
    /// The most packets in flight.
    flight: u32,
    /// Packets with messages that came the other way.
    came: u16,
    /// The flight still shrinks to a new window: nothing to judge yet.
    settling: bool,
}

/// State of one path; windows in 1/65,536 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lan {
    window: u64,
    /// Window to return to after a cut in vain.
    restore: u64,
    window_max: u64,
    epoch: Epoch,
    phase: Phase,
    /// Delays up to this, ns, are no sign of a queue.
    late: u64,
    /// Delay by the queue that the peer's packets may keep in our
    /// acknowledgements' direction, ns.
    opposite: u32,
    /// Mean round trip of all packets, ns, in reordering; otherwise 0.
    mean: u64,
    /// Base round trip.
    base: u64,
    period: Period,
    paced_until: u64,
    pace: u64,
    /// Share marked, smoothed, of 1024.
    marks: u16,
    packet_bytes: u16,
    strikes: u8,
    look_in: u8,
    broken: u8,
    timeouts: u8,
    /// No congestion was seen yet: the window doubles.
    opening: bool,
    rate_epochs: u8,
    /// In Compete: packets sent before the last decrease, neither acknowledged nor lost yet.
    recovery: u32,
    /// A trial found a buffer that overflows before it shows a delay.
    tight: bool,
    rates: Rates,
    rival: Rival,
    losses: Losses,
    drains: Drains,
}

/// Period in which the next base round trip is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Period {
    /// Minimum so far.
    base: u64,
    until: u64,
}

/// Delivery rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Rates {
    /// Best rate, packets/s: of this period and of the last.
    next: u64,
    last: u64,
}

/// What Compete has seen of the flows that it shares a queue with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Rival {
    /// Largest round trip, decaying.
    peak: u64,
    /// Smallest round trip of the last epoch, and its smoothed value.
    last_rtt: u64,
    usual: u64,
    /// Last window, for as long as a return is near; otherwise 0.
    window: u64,
}

/// Losses, and what trials have shown of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Losses {
    acked: u32,
    lost: u32,
    /// Window of the last trial that lost less.
    fitting: u64,
    /// Share lost without congestion, of 65,536, if a trial has shown it.
    baseline: Option<u32>,
    baseline_until: u64,
}

/// When the queue is next drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Drains {
    due_in: u8,
    gap: u8,
    /// Drains of other flows are joined: none was in vain since our own.
    joins: bool,
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
            opposite: 0,
            mean: 0,
            base: u64::MAX,
            period: Period {
                base: u64::MAX,
                until: 0,
            },
            paced_until: 0,
            pace: 0,
            marks: 1024,
            packet_bytes,
            strikes: 0,
            look_in: LOOK_FIRST,
            broken: 0,
            timeouts: 0,
            opening: true,
            rate_epochs: 0,
            recovery: 0,
            tight: false,
            rates: Rates::default(),
            rival: Rival::default(),
            losses: Losses::default(),
            drains: Drains {
                due_in: DRAIN_FIRST,
                gap: DRAIN_FIRST,
                joins: true,
            },
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
            // Reordering looked like a queue.
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
        let came = u16::try_from(sample.came_packets).unwrap_or(u16::MAX);
        epoch.came = epoch.came.saturating_add(came);
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
        // One lost tail says nothing; after a long silence all that is known
        // about the path is out of date.
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
        self.rival.peak = self.rival.peak.max(rtt);
        self.base = self.base.min(rtt).min(BASE_MAX_NS);
        self.period.base = self.period.base.min(rtt);
        if now >= self.period.until {
            if self.period.until != 0 {
                // The base rises slowly: a foreign queue may stand for long
                // without becoming the base.
                let most = self.base + self.base / 16 + 1_000;
                self.base = self.period.base.min(most).min(BASE_MAX_NS);
                self.period.base = rtt;
            }
            self.period.until = now.saturating_add(BASE_NS);
        }
    }

    fn target(&self) -> u64 {
        TARGET_NS + u64::from(self.opposite) + self.base / 4 + self.late
    }

    /// Mean round trip of all packets beyond the smallest of the epoch, ns.
    const fn behind(&self) -> u64 {
        self.mean.saturating_sub(self.epoch.rtt)
    }

    /// Lower bound of cuts for delay: the best recent rate over three quarters
    /// of base round trip and target. Less than all of it, so that flows which
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
        let rate = u128::from(self.rates.next.max(self.rates.last));
        let window = ((rate * u128::from(rtt)) << FRACTION) / 1_000_000_000;
        u64::try_from(window)
            .unwrap_or(u64::MAX)
            .clamp(fixed(WINDOW_MIN), self.window_max)
    }

    fn judge(&mut self, now: u64) {
        self.note_rate(now);
        let epoch = self.epoch;
        // The peer keeps a queue near the target in its direction, if it sends as much.
        let acked = u64::from(epoch.acked.max(1));
        // The peer sends in bursts, and an epoch may see none of them.
        let seen = (TARGET_NS * u64::from(epoch.came).min(acked) / acked) as u32;
        self.opposite = seen.max(self.opposite - self.opposite / 8);
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
                self.rival.peak = self
                    .rival
                    .peak
                    .saturating_sub(self.rival.peak / 16)
                    .max(epoch.rtt);
                self.rival.usual = self.rival.usual - self.rival.usual / 8 + epoch.rtt / 8;
                self.drains.due_in = self.drains.due_in.saturating_sub(1);
                // A TCP flow that backs off takes less from the queue at once.
                let other_drains = epoch.rtt < self.rival.last_rtt / 4 * 3;
                self.rival.last_rtt = epoch.rtt;
                if queue < target / 4 {
                    self.follow_again();
                } else if self.drains.due_in == 0 || (other_drains && self.drains.joins) {
                    self.drains.joins = self.drains.due_in == 0;
                    self.restore = self.window;
                    self.window /= 4;
                    self.phase = Phase::Drain(DRAIN_EPOCHS);
                }
            }
            Phase::Drain(left) => {
                // Alone, a quarter of the flight leaves a quarter of the queue
                // at most.
                let ours = self.rival.peak.saturating_sub(self.base) / 16 * 5;
                if queue <= ours.max(target / 4) {
                    self.follow_again();
                } else if left > 1 {
                    self.phase = Phase::Drain(left - 1);
                } else {
                    self.window = self.restore;
                    self.phase = Phase::Compete;
                    self.rival.last_rtt = 0;
                    self.recovery = 0;
                    self.drains.gap = (self.drains.gap * 2).min(DRAIN_LAST);
                    self.drains.due_in = self.drains.gap - odd(now);
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
            self.rival.window = 0;
        }
        if epoch.marked > 0 {
            return;
        }
        if self.mean > 0 && self.opening && epoch.lost > epoch.acked / 16 {
            // Reordering hides the queue that has overflowed.
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
        // A short look may have been wrong: little is needed to go back.
        self.strikes = STRIKES - STRIKE_FAR;
        self.rival.window = self.window.max(self.restore);
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
        self.rates.next = self.rates.next.max(rate);
        self.rate_epochs += 1;
        if self.rate_epochs >= RATE_EPOCHS {
            self.rate_epochs = 0;
            self.rates.last = self.rates.next;
            self.rates.next = 0;
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
            let returns = self.rival.window > 0;
            // Half of what our best recent rate would need by now.
            let half = self.flight_at(epoch.rtt) / 2;
            self.window = self
                .window
                .max(self.restore)
                .max(half)
                .max(self.rival.window);
            self.strikes = 0;
            self.rival.peak = epoch.rtt;
            self.rival.usual = epoch.rtt;
            self.rival.last_rtt = 0;
            self.recovery = 0;
            (self.drains.gap, self.drains.due_in) = (DRAIN_FIRST, DRAIN_FIRST);
            if returns {
                // The last drain misled.
                self.drains.gap = DRAIN_LAST;
                self.drains.due_in = DRAIN_LAST - odd(now);
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
                // Reordering asks for a larger flight at the same rate.
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
        // In reordering many acknowledgements come at once.
        let competes = self.phase == Phase::Compete;
        if now < self.paced_until || self.mean > 0 || competes {
            // At most the round trip aimed at: more than the window lets
            // through, so that this spreads bursts and limits nothing.
            let rtt = if competes {
                self.rival.usual
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
            came: 0,
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
mod tests;
