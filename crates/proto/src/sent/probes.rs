//! The probe clock of a path: when silence is answered by a ping or a resend.

use core::ops::RangeInclusive;

use crate::base::Config;

/// Probes before backoff doubles the wait for each: as many as the longest
/// burst of losses that a link is to get over at its own pace.
const PROMPT: u8 = 64;
/// Minimum number of probes, in one silence, of a peer that is waited for. That
/// many must be lost in a row before a live peer counts as dead, and one that
/// was cut off is heard that soon after it is back.
const PROBES: u64 = 100;

/// `PROMPT` and `PROBES` for a peer that has no room: with each probe, all that
/// it refused leaves.
const PROMPT_ROUNDS: u8 = 8;
const ROUNDS: u64 = 16;

/// Pings between two probes, if the number of unanswered probes is in this
/// range and packets were lost within this time: a burst of losses may still go
/// on, and each ping takes one loss out of it.
const ASKS: u8 = 7;
const ASKED: RangeInclusive<u8> = 2..=16;
const MOMENT_NS: u64 = 1_000_000_000;

/// The probe clock of one path. Plain data; times in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Probes {
    /// When the clock was last restarted.
    from: u64,
    /// Probes since the last answer.
    pub backoff: u8,
    /// Pings that leave before the next probe.
    asks: u8,
    /// Probes in a row without any answer by this path.
    quiet: u8,
    /// When packets were last found lost; 0: never.
    lost_at: u64,
    /// A ping must leave, to get an acknowledgement.
    ping_owed: bool,
    /// The next packet of chunks is a probe: it leaves regardless of the
    /// window, and asks for an acknowledgement.
    probe_owed: bool,
}

impl Probes {
    /// Starts the clock: something is in flight from now on.
    #[inline]
    pub const fn start(&mut self, now: u64) {
        self.from = now;
    }

    /// Restarts the clock after an answer.
    #[inline]
    pub const fn restart(&mut self, now: u64) {
        self.from = now;
        self.backoff = 0;
        self.asks = 0;
    }

    /// The path has answered.
    pub const fn answered(&mut self) {
        self.quiet = 0;
    }

    /// Packets were found lost.
    #[inline]
    pub const fn lost(&mut self, now: u64) {
        self.lost_at = now;
    }

    /// Probes since the last answer.
    #[inline]
    pub const fn backoff(&self) -> u8 {
        self.backoff
    }

    /// Probes in a row without any answer by this path.
    #[inline]
    pub const fn quiet(&self) -> u8 {
        self.quiet
    }

    /// Whether the clock fires as late as after an answer.
    #[inline]
    pub const fn is_calm(&self) -> bool {
        self.backoff == 0
    }

    /// When the clock fires. It runs `since` something waits, or since its last
    /// start if that is later; `answer_after(backoff)` is how long an answer
    /// may take. `waits_for_room`: packets to be sent again wait for room at
    /// the peer.
    #[inline]
    pub fn at(
        &self,
        since: u64,
        config: &Config,
        is_full: bool,
        answer_after: impl Fn(u8) -> u64,
        waits_for_room: impl FnOnce() -> bool,
    ) -> u64 {
        let from = self.from.max(since);
        let often = |probes: u64| (config.silence_ns / probes).max(1);
        // The usual case.
        if self.is_calm() && !is_full {
            return from.saturating_add(answer_after(0).min(often(PROBES)));
        }
        // Where packets are lost in bursts, several probes in a row often are.
        let waits_for_room = waits_for_room();
        let (prompt, probes) = if waits_for_room {
            (PROMPT_ROUNDS, ROUNDS)
        } else {
            (PROMPT, PROBES)
        };
        let wait = answer_after(self.backoff.saturating_sub(prompt));
        let parts = u64::from(1 + self.asks_between(waits_for_room));
        from.saturating_add(wait.min(often(probes)) / parts)
    }

    /// Pings between the last probe and the next.
    fn asks_between(&self, waits_for_room: bool) -> u8 {
        let lately = self.lost_at != 0 && self.from.saturating_sub(self.lost_at) < MOMENT_NS;
        if ASKED.contains(&self.backoff) && lately && !waits_for_room {
            ASKS
        } else {
            0
        }
    }

    /// The clock fired: owes a ping, if some are to leave before the next
    /// probe. Returns false if it is time for the probe.
    pub const fn ask(&mut self, now: u64) -> bool {
        if self.asks == 0 {
            return false;
        }
        self.asks -= 1;
        self.from = now;
        self.ping_owed = true;
        true
    }

    /// Counts a probe that is made now.
    pub const fn probe(&mut self, now: u64) {
        self.backoff = self.backoff.saturating_add(1);
        self.quiet = self.quiet.saturating_add(1);
        self.from = now;
    }

    /// Decides how many pings leave before the next probe.
    pub fn plan_asks(&mut self, waits_for_room: bool) {
        self.asks = self.asks_between(waits_for_room);
    }

    /// Owes a ping.
    #[inline]
    pub const fn owe_ping(&mut self) {
        self.ping_owed = true;
    }

    /// Whether a ping is owed.
    #[inline]
    pub const fn owes_ping(&self) -> bool {
        self.ping_owed
    }

    /// The ping has left.
    pub const fn pinged(&mut self) {
        self.ping_owed = false;
    }

    /// Makes the next packet of chunks a probe.
    pub const fn owe_probe(&mut self) {
        self.probe_owed = true;
    }

    /// Whether the next packet of chunks is a probe.
    #[inline]
    pub const fn owes_probe(&self) -> bool {
        self.probe_owed
    }

    /// The next packet of chunks leaves; returns whether it is a probe.
    #[inline]
    pub const fn take_probe(&mut self) -> bool {
        core::mem::replace(&mut self.probe_owed, false)
    }

    /// Nothing is owed any more.
    pub const fn forget(&mut self) {
        self.ping_owed = false;
        self.probe_owed = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const S: u64 = 1_000 * MS;

    /// When the clock fires for a silence of 8 s, where an answer takes 1 ms,
    /// doubled with each backoff.
    fn at(probes: &Probes, since: u64, full: bool, waits_for_room: bool) -> u64 {
        let config = Config {
            silence_ns: 8 * S,
            ..Config::default()
        };
        let answer_after = |backoff: u8| MS << backoff.min(20);
        probes.at(since, &config, full, answer_after, || waits_for_room)
    }

    fn probed(times: u8) -> Probes {
        let mut probes = Probes::default();
        (0..times).for_each(|_| probes.probe(S));
        probes
    }

    #[test]
    fn the_clock_runs_from_the_start_or_the_wait() {
        let mut probes = Probes::default();
        probes.start(10 * MS);
        assert_eq!(at(&probes, 0, false, false), 11 * MS);
        assert_eq!(at(&probes, 20 * MS, false, false), 21 * MS);
        // Some hundred probes in one silence at least.
        let config = Config {
            silence_ns: 8 * S,
            ..Config::default()
        };
        let slow = probes.at(0, &config, false, |_| S, || false);
        assert_eq!(slow, 10 * MS + 80 * MS);
    }

    #[test]
    fn waits_double_after_many_probes_and_sooner_where_the_peer_is_full() {
        assert_eq!(at(&probed(1), 0, false, false), S + MS);
        assert_eq!(at(&probed(64), 0, false, false), S + MS);
        assert_eq!(at(&probed(66), 0, false, false), S + 4 * MS);
        assert_eq!(at(&probed(255), 0, false, false), S + 80 * MS);
        assert_eq!(at(&probed(8), 0, true, true), S + MS);
        assert_eq!(at(&probed(10), 0, true, true), S + 4 * MS);
        assert_eq!(at(&probed(200), 0, true, true), S + 500 * MS);
        // A peer that is full, but refused nothing that waits.
        assert_eq!(at(&probed(66), 0, true, false), S + 4 * MS);
        assert_eq!(at(&probed(0), 0, true, true), MS);
    }

    #[test]
    fn pings_leave_between_probes_in_a_burst_of_losses() {
        let mut probes = probed(1);
        probes.lost(S);
        probes.plan_asks(false);
        assert!(!probes.ask(S), "after one probe it may be a single loss");
        probes.probe(S);
        probes.plan_asks(true);
        assert!(!probes.ask(S), "with each probe all leaves");
        probes.plan_asks(false);
        assert_eq!(at(&probes, 0, false, false), S + MS / 8);
        for asked in 1..=7 {
            assert!(probes.ask(S + asked), "{asked}");
            assert!(probes.owes_ping());
            assert_eq!(at(&probes, 0, false, false), S + asked + MS / 8);
            probes.pinged();
            assert!(!probes.owes_ping());
        }
        assert!(!probes.ask(2 * S));
        // Losses of a second ago count no more, nor does it go on for ever.
        probes.start(2 * S - 1);
        assert_eq!(at(&probes, 0, false, false), 2 * S - 1 + MS / 8);
        probes.start(2 * S);
        assert_eq!(at(&probes, 0, false, false), 2 * S + MS);
        let mut probes = probed(16);
        probes.lost(S);
        assert_eq!(at(&probes, 0, false, false), S + MS / 8);
        probes.probe(S);
        assert_eq!(at(&probes, 0, false, false), S + MS);
    }

    #[test]
    fn an_answer_ends_the_backoff_and_the_pings() {
        let mut probes = probed(3);
        assert_eq!((probes.backoff(), probes.quiet()), (3, 3));
        probes.lost(S);
        probes.plan_asks(false);
        probes.restart(2 * S);
        assert_eq!((probes.backoff(), probes.quiet()), (0, 3));
        assert!(probes.is_calm() && !probes.ask(2 * S));
        assert_eq!(at(&probes, 0, false, false), 2 * S + MS);
        probes.answered();
        assert_eq!(probes.quiet(), 0);
        let full = probed(255);
        assert_eq!((full.backoff(), full.quiet()), (255, 255));
    }

    #[test]
    fn what_is_owed_leaves_once() {
        let mut probes = Probes::default();
        probes.owe_probe();
        assert!(probes.owes_probe() && probes.take_probe() && !probes.take_probe());
        probes.owe_probe();
        probes.owe_ping();
        probes.forget();
        assert!(!probes.owes_probe() && !probes.owes_ping());
    }
}
