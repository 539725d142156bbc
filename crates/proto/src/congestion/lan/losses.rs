//! Losses as signs of a buffer that is too small to show a delay, of flows that
//! are led by losses, and of a broken path.

use super::super::{AckSample, WINDOW_MIN, fixed};
use super::{
    ALPHA, BASELINE_NS, BETA_LOSS, BETA_MARK, BREAKER, Epoch, GROWTH_NS, Lan, Phase, TRIAL_LOSSES,
    TRIAL_PACKETS,
};

impl Lan {
    /// Tests whether a smaller window avoids losses without delay.
    pub(super) fn look_at_losses(&mut self, now: u64, epoch: &Epoch) {
        if now >= self.losses.baseline_until {
            self.losses.baseline = None;
            self.tight = false;
        }
        let counted = self.count_losses(epoch);
        if let Some(baseline) = self.losses.baseline {
            let packets = u64::from(self.losses.acked) + u64::from(self.losses.lost);
            let usual = (packets * u64::from(baseline) * 3 / 2) >> 16;
            let chance = if self.tight { 4 } else { 8 };
            if u64::from(self.losses.lost) > usual + chance {
                self.congested(now);
                // Reordering makes the next such losses known late: a small step.
                let part = if self.mean > 0 { 1 } else { 3 };
                self.window -= self.window * part / 8;
                self.losses.acked = 0;
                self.losses.lost = 0;
                // Where cutting does not help, test again.
                self.losses.baseline_until = if self.window >= self.losses.fitting / 2 {
                    now.saturating_add(BASELINE_NS)
                } else {
                    now
                };
            }
            return;
        }
        let Some((lost, share)) = counted else {
            return;
        };
        if lost < TRIAL_LOSSES {
            return;
        }
        let window = self.window.min(fixed(epoch.flight));
        if window >= fixed(2 * WINDOW_MIN) {
            self.restore = self.window;
            // If a buffer overflows, this much arrives; at least a quarter
            // less, to show a difference.
            let arrives = (window * u64::from(65_536 - share)) >> 16;
            self.window = arrives.clamp(window / 4, window - window / 4);
            let least = self.window.max(fixed(WINDOW_MIN));
            let expected = 65_536 - ((arrives << 16) / least).min(65_536);
            let middle = (expected as u32).midpoint(share);
            // Bursts overflow a small buffer even where the window fits; with
            // many losses a smaller difference is beyond chance.
            let below = if share > 65_536 / 8 {
                middle.max(share / 16 * 13)
            } else {
                middle
            };
            self.phase = Phase::Trial { below };
        }
    }

    /// Losses and their share of 65,536 once enough packets were counted.
    fn count_losses(&mut self, epoch: &Epoch) -> Option<(u32, u32)> {
        self.losses.acked = self.losses.acked.saturating_add(epoch.acked);
        self.losses.lost = self.losses.lost.saturating_add(epoch.lost);
        let packets = u64::from(self.losses.acked) + u64::from(self.losses.lost);
        if packets < u64::from(TRIAL_PACKETS) {
            return None;
        }
        let lost = self.losses.lost;
        let share = (u64::from(lost) << 16) / packets;
        self.losses.acked = 0;
        self.losses.lost = 0;
        Some((lost, share as u32))
    }

    /// Ends a trial: judges by the losses after the cut.
    pub(super) fn end_trial(&mut self, now: u64, epoch: &Epoch, below: u32) {
        let Some((lost, share)) = self.count_losses(epoch) else {
            return;
        };
        self.phase = Phase::Follow;
        self.losses.baseline_until = now.saturating_add(BASELINE_NS);
        if share < below {
            self.congested(now);
            self.tight = true;
            self.losses.fitting = self.window;
            if lost >= TRIAL_LOSSES {
                // Better, and perhaps not yet good.
                return;
            }
        } else {
            self.window = self.restore;
            self.tight = false;
        }
        self.losses.baseline = Some(share);
    }

    /// Handles an acknowledgement in Compete, beside a loss-led flow.
    pub(super) fn compete(&mut self, sample: &AckSample, settled: u32) {
        let recovering = self.recovery > 0;
        self.recovery = self.recovery.saturating_sub(settled);
        if recovering {
            return;
        }
        // A loss counts if the queue was nearly full.
        let queue = sample.rtt_ns.unwrap_or(0).saturating_sub(self.base);
        let full = self.rival.peak.saturating_sub(self.base);
        let beta = if sample.lost_packets > 0 && queue >= full - full / 4 {
            BETA_LOSS
        } else if sample.ce_packets > 0 {
            BETA_MARK
        } else {
            if self.limited() {
                let acked = fixed(sample.acked_packets).min(self.window);
                let growth = ALPHA * self.rival.usual.max(GROWTH_NS) / GROWTH_NS;
                self.window += growth * acked / self.window;
                self.window = self.window.min(self.window_max);
            }
            return;
        };
        self.window = ((self.window * beta) >> 10).max(self.floor(&self.epoch).min(self.window));
        self.recovery = sample.in_flight_packets;
    }

    /// Whether more than two fifths of the packets were lost while a queue
    /// stood, for several epochs.
    pub(super) fn trips(&mut self, epoch: &Epoch, queue: u64) -> bool {
        let packets = u64::from(epoch.acked) + u64::from(epoch.lost);
        let most = u64::from(epoch.lost) * 5 > packets * 2;
        if most && queue > self.target() / 2 {
            self.broken += 1;
        } else {
            self.broken = 0;
        }
        if self.broken < BREAKER {
            return false;
        }
        self.broken = 0;
        true
    }
}
