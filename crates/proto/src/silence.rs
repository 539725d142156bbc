//! How long a peer has been silent, and what is due for that: a sign of life,
//! its death, the parking of a state out of use; and whether it is finished.

mod closed;

use crate::base::{Config, DeathReason, Unusual};
use closed::Closed;

/// Divisor of `silence_ns`: how long a peer is waited for whose port is closed,
/// or that has not answered a side that closes.
const GONE_PARTS: u64 = 8;

/// Keepalives, in one silence, to a peer that owes the rest of a message.
const KEEPALIVES: u64 = 16;

/// What follows from a silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// Nothing, so far.
    Nothing,
    /// The peer has not answered our first packets for long. Said once.
    StillConnecting,
    /// The peer is dead.
    Dead(DeathReason),
}

/// What is to be done for a peer of which something is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keepalive {
    /// Nothing: it was heard lately.
    Nothing,
    /// Ask for a sign of life.
    Ask,
    /// Give it up.
    GiveUp,
}

/// The silence of one peer. Plain data; times in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Silence {
    /// When a packet last verified; later if the silence was reset or deferred.
    pub heard_at: u64,
    /// Start of the silence that was last deferred: as deferred, and as it was
    /// at first.
    deferred_to: u64,
    deferred_from: u64,
    /// ICMP errors that say that the peer's port is closed.
    closed: Closed,
    /// Since when something waits for the peer; `u64::MAX`: nothing does.
    pub waiting_since: u64,
    waiting_told: bool,
    /// When anything last moved: an idle state is parked.
    used_at: u64,
    /// When a keepalive is due because something is awaited of the peer;
    /// `u64::MAX`: nothing is.
    keepalive_at: u64,
    /// Nothing more is taken, and no message that came in part is completed:
    /// the peer acknowledged our close, was removed, or is dead.
    pub finished: bool,
    /// After the peer was removed: until when messages sent before may be acknowledged, ns.
    pub part_by: u64,
}

impl Silence {
    /// State of a peer that becomes active at `now`.
    pub const fn new(now: u64) -> Self {
        Self {
            heard_at: now,
            deferred_to: 0,
            deferred_from: 0,
            closed: Closed::NO,
            waiting_since: u64::MAX,
            waiting_told: false,
            used_at: now,
            keepalive_at: u64::MAX,
            finished: false,
            part_by: 0,
        }
    }

    /// What is unusual about it.
    #[inline]
    pub const fn unusual(&self) -> Unusual {
        Unusual::ENDING.when(self.finished)
    }

    /// Notes that the peer lives.
    #[inline]
    pub const fn heard(&mut self, now: u64) {
        self.heard_at = now;
    }

    /// Notes that the state is in use.
    #[inline]
    pub const fn used(&mut self, now: u64) {
        self.used_at = now;
    }

    /// When the state was last used.
    pub const fn used_at(&self) -> u64 {
        self.used_at
    }

    /// The latest time at which anything happened.
    pub fn last_moment(&self) -> u64 {
        self.heard_at.max(self.used_at)
    }

    /// The peer is up; `waits`: something waits for it.
    pub const fn up(&mut self, now: u64, waits: bool) {
        self.heard_at = now;
        self.waiting_since = if waits { now } else { u64::MAX };
        self.waiting_told = false;
        self.keepalive_at = u64::MAX;
    }

    /// Something waits for the peer from `now` on, or since earlier.
    #[inline]
    pub fn wait(&mut self, now: u64) {
        self.waiting_since = self.waiting_since.min(now);
    }

    /// The peer has answered; what still waits for it waits from `now` on.
    #[inline]
    pub const fn wait_anew(&mut self, now: u64) {
        self.waiting_since = now;
    }

    /// Nothing waits for the peer any more.
    #[inline]
    pub const fn wait_no_more(&mut self) {
        self.waiting_since = u64::MAX;
    }

    /// Since when something waits for the peer.
    #[inline]
    pub const fn waiting_since(&self) -> Option<u64> {
        match self.waiting_since {
            u64::MAX => None,
            since => Some(since),
        }
    }

    /// Start of the silence: when the peer was last heard, or when something
    /// began to wait for it; later by the time for which that was deferred.
    fn since(&self) -> u64 {
        match self.waiting_since() {
            None => self.heard_at,
            Some(since) => since.max(self.heard_at),
        }
    }

    /// As [`Silence::since`], but never deferred.
    fn unheard_since(&self) -> u64 {
        match self.since() {
            since if since == self.deferred_to => self.deferred_from,
            since => since,
        }
    }

    /// How long something has waited for the silent peer; 0 if nothing waits.
    pub fn waits_for_ns(&self, now: u64) -> u64 {
        match self.waiting_since() {
            None => 0,
            Some(_) => now.saturating_sub(self.since()),
        }
    }

    /// Moves the start of the silence `ns` later, to `now` at most, unless it
    /// has lasted for `limit`.
    pub fn defer(&mut self, now: u64, ns: u64, limit: u64) {
        let since = self.since();
        self.deferred_from = self.unheard_since();
        if now.saturating_sub(self.deferred_from) < limit {
            self.heard_at = since.saturating_add(ns).min(now);
            self.deferred_to = self.heard_at;
        }
    }

    /// Notes an ICMP error that says that the peer's port is closed; returns
    /// whether it is the first of this silence.
    pub fn note_closed(&mut self, now: u64) -> bool {
        let unheard_since = self.unheard_since();
        self.closed.note(now, unheard_since)
    }

    /// Whether ICMP errors have long said that the peer's port is closed.
    fn is_closed(&self, config: &Config) -> bool {
        self.closed
            .is_lasting(self.unheard_since(), config.silence_ns)
    }

    /// Judges the silence at `now`. `connecting`: the peer was never heard of.
    /// `closing`: we close, or have removed the peer; and `unanswered`: many
    /// probes had no answer (P6.8).
    ///
    /// A peer is waited for less long if its port is closed, or if we close and
    /// it does not answer, as it is then gone: of two that close at once, the
    /// one whose close is acknowledged first does not wait to see its own
    /// acknowledgement arrive.
    pub fn judge(
        &mut self,
        now: u64,
        config: &Config,
        connecting: bool,
        closing: bool,
        unanswered: bool,
    ) -> Judgement {
        let closed = self.is_closed(config);
        let silent_for = if closed && self.waiting_since().is_some() {
            // ICMP errors show that the peer is gone, although we may have had no core.
            now.saturating_sub(self.unheard_since())
        } else {
            self.waits_for_ns(now)
        };
        if connecting {
            if silent_for >= config.connect_ns {
                return Judgement::Dead(DeathReason::NoAnswer);
            }
            if silent_for >= config.silence_ns && !self.waiting_told {
                self.waiting_told = true;
                return Judgement::StillConnecting;
            }
            return Judgement::Nothing;
        }
        let gone = closed || closing && unanswered;
        let parts = if gone { GONE_PARTS } else { 1 };
        if silent_for < config.silence_ns / parts {
            return Judgement::Nothing;
        }
        // A peer given up sooner because we close may live: it counts as closed.
        Judgement::Dead(if silent_for < config.silence_ns && closing {
            DeathReason::Closed
        } else {
            DeathReason::Silent
        })
    }

    /// When the silence must be judged, if nothing changes until then;
    /// `u64::MAX`: never.
    pub fn judge_at(&self, config: &Config, connecting: bool) -> u64 {
        if self.waiting_since().is_none() {
            return u64::MAX;
        }
        let since = self.since();
        let mut at = u64::MAX;
        if !connecting || !self.waiting_told {
            at = since.saturating_add(config.silence_ns);
        }
        if connecting {
            at = at.min(since.saturating_add(config.connect_ns));
        }
        if self.is_closed(config) {
            let first = self.unheard_since();
            at = at.min(first.saturating_add(config.silence_ns / GONE_PARTS));
        }
        at
    }

    /// Something is awaited of the peer, which is asked in time when it falls
    /// silent: when that is.
    pub fn keep_alive(&mut self, config: &Config) -> u64 {
        if !self.is_awaited() {
            self.keepalive_at = self.heard_at.saturating_add(config.silence_ns / 2);
        }
        self.keepalive_at
    }

    /// Something is awaited of the peer from `now` on. Until then it may have
    /// had nothing to send.
    pub fn begin_await(&mut self, now: u64, config: &Config) {
        if !self.is_awaited() {
            let asked_at = now.saturating_sub(config.silence_ns / 2);
            self.heard_at = self.heard_at.max(asked_at);
        }
    }

    /// Nothing is awaited of the peer any more.
    pub const fn await_nothing(&mut self) {
        self.keepalive_at = u64::MAX;
    }

    /// Whether something is awaited of the peer.
    pub const fn is_awaited(&self) -> bool {
        self.keepalive_at != u64::MAX
    }

    /// When [`Silence::keepalive`] is due; `u64::MAX`: not at all.
    pub const fn keepalive_at(&self) -> u64 {
        self.keepalive_at
    }

    /// A keepalive is due, and something is still awaited: what is to be done.
    /// While `connecting` no ping can leave (P6.9).
    pub fn keepalive(&mut self, now: u64, config: &Config, connecting: bool) -> Keepalive {
        let silence = config.silence_ns;
        let quiet = now.saturating_sub(self.heard_at);
        let patience = if connecting {
            config.connect_ns
        } else {
            silence
        };
        if quiet >= patience || !connecting && quiet >= silence / 2 && self.is_closed(config) {
            self.keepalive_at = u64::MAX;
            return Keepalive::GiveUp;
        }
        if connecting || quiet < silence / 2 {
            let wait = if connecting { patience } else { silence / 2 };
            self.keepalive_at = self.heard_at.saturating_add(wait);
            return Keepalive::Nothing;
        }
        self.keepalive_at = now.saturating_add((silence / KEEPALIVES).max(1));
        Keepalive::Ask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// A silence of 8 s, and 30 s to connect.
    fn config() -> Config {
        Config {
            silence_ns: 8 * S,
            connect_ns: 30 * S,
            ..Config::default()
        }
    }

    /// A peer that was heard at 10 s, and that something waits for since 12 s.
    fn waited_for() -> Silence {
        let mut silence = Silence::new(0);
        silence.heard(10 * S);
        silence.wait(12 * S);
        silence
    }

    /// The judgement of a peer that is up.
    fn judge(silence: &mut Silence, now: u64) -> Judgement {
        silence.judge(now, &config(), false, false, false)
    }

    const DEAD: Judgement = Judgement::Dead(DeathReason::Silent);

    #[test]
    fn a_peer_that_nothing_waits_for_does_not_die() {
        let mut silence = Silence::new(0);
        assert_eq!(judge(&mut silence, u64::MAX), Judgement::Nothing);
        assert_eq!(silence.judge_at(&config(), false), u64::MAX);
        assert_eq!(silence.waits_for_ns(u64::MAX), 0);
        silence.wait(5 * S);
        silence.wait_no_more();
        assert_eq!(judge(&mut silence, u64::MAX), Judgement::Nothing);
    }

    /// Checks P6.8.
    #[test]
    fn a_silence_counts_from_the_last_packet_or_the_beginning_of_the_wait() {
        let mut silence = waited_for();
        assert_eq!(silence.waits_for_ns(15 * S), 3 * S);
        assert_eq!(silence.judge_at(&config(), false), 20 * S);
        assert_eq!(judge(&mut silence, 20 * S - 1), Judgement::Nothing);
        assert_eq!(judge(&mut silence, 20 * S), DEAD);
        // Something else that begins to wait changes nothing.
        silence.wait(13 * S);
        assert_eq!(silence.judge_at(&config(), false), 20 * S);
        silence.heard(14 * S);
        assert_eq!(silence.judge_at(&config(), false), 22 * S);
        silence.wait_anew(15 * S);
        assert_eq!(silence.judge_at(&config(), false), 23 * S);
    }

    #[test]
    fn a_peer_that_connects_has_longer_and_is_reported_once() {
        let mut silence = waited_for();
        let mut judge = |now| silence.judge(now, &config(), true, false, false);
        assert_eq!(judge(20 * S - 1), Judgement::Nothing);
        assert_eq!(judge(20 * S), Judgement::StillConnecting);
        assert_eq!(judge(20 * S), Judgement::Nothing);
        assert_eq!(judge(42 * S - 1), Judgement::Nothing);
        assert_eq!(judge(42 * S), Judgement::Dead(DeathReason::NoAnswer));
        assert_eq!(silence.judge_at(&config(), true), 42 * S);
        assert_eq!(waited_for().judge_at(&config(), true), 20 * S);
        // Once the peer is up, all begins anew.
        silence.up(50 * S, false);
        assert_eq!(silence.judge_at(&config(), false), u64::MAX);
        silence.up(50 * S, true);
        assert_eq!(silence.judge_at(&config(), true), 58 * S);
    }

    #[test]
    fn a_side_that_closes_waits_an_eighth_for_a_peer_that_does_not_answer() {
        let mut silence = waited_for();
        let mut judge = |now, unanswered| silence.judge(now, &config(), false, true, unanswered);
        assert_eq!(judge(13 * S - 1, true), Judgement::Nothing);
        assert_eq!(judge(13 * S, false), Judgement::Nothing);
        assert_eq!(judge(13 * S, true), Judgement::Dead(DeathReason::Closed));
        assert_eq!(judge(20 * S, false), DEAD);
    }

    #[test]
    fn a_closed_port_counts_once_errors_have_kept_coming() {
        let mut silence = waited_for();
        assert!(silence.note_closed(12 * S));
        assert!(!silence.note_closed(12 * S + 8 * S / 20 - 1));
        assert_eq!(judge(&mut silence, 13 * S), Judgement::Nothing);
        assert!(!silence.note_closed(12 * S + 8 * S / 20));
        assert_eq!(silence.judge_at(&config(), false), 13 * S);
        assert_eq!(judge(&mut silence, 13 * S - 1), Judgement::Nothing);
        assert_eq!(judge(&mut silence, 13 * S), DEAD);
        // Heard of again: errors from before are void.
        silence.heard(14 * S);
        assert_eq!(silence.judge_at(&config(), false), 22 * S);
        assert!(silence.note_closed(15 * S));
    }

    #[test]
    fn a_silence_is_deferred_up_to_a_limit() {
        let mut silence = waited_for();
        silence.defer(15 * S, 2 * S, 20 * S);
        assert_eq!(silence.judge_at(&config(), false), 22 * S);
        // Never beyond the present.
        silence.defer(16 * S, 100 * S, 20 * S);
        assert_eq!(silence.judge_at(&config(), false), 24 * S);
        // The silence began at 12 s, whatever was deferred.
        silence.defer(32 * S, S, 20 * S);
        assert_eq!(silence.judge_at(&config(), false), 24 * S);
        // A new one counts by itself.
        silence.heard(40 * S);
        silence.defer(59 * S, S, 20 * S);
        assert_eq!(silence.judge_at(&config(), false), 49 * S);
    }

    #[test]
    fn a_closed_port_is_judged_by_the_silence_that_was_not_deferred() {
        let mut silence = waited_for();
        silence.note_closed(12 * S);
        silence.note_closed(13 * S);
        silence.defer(13 * S, S, 80 * S);
        assert_eq!(silence.judge_at(&config(), false), 13 * S);
        assert_eq!(judge(&mut silence, 13 * S), DEAD);
    }

    /// Checks P6.9.
    #[test]
    fn a_peer_of_which_something_is_awaited_is_asked_after_half_a_silence() {
        let (config, mut silence) = (config(), Silence::new(10 * S));
        assert!(!silence.is_awaited());
        assert_eq!(silence.keep_alive(&config), 14 * S);
        silence.heard(12 * S);
        // Armed already: when that is due, it looks when the peer was heard.
        assert_eq!(silence.keep_alive(&config), 14 * S);
        assert_eq!(
            silence.keepalive(14 * S, &config, false),
            Keepalive::Nothing
        );
        assert_eq!(silence.keepalive_at(), 16 * S);
        assert_eq!(silence.keepalive(16 * S, &config, false), Keepalive::Ask);
        assert_eq!(silence.keepalive_at(), 16 * S + S / 2);
        assert_eq!(
            silence.keepalive(20 * S - 1, &config, false),
            Keepalive::Ask
        );
        assert_eq!(silence.keepalive(20 * S, &config, false), Keepalive::GiveUp);
        assert!(!silence.is_awaited());
    }

    #[test]
    fn a_closed_port_is_not_asked_again() {
        let (config, mut silence) = (config(), Silence::new(10 * S));
        silence.keep_alive(&config);
        silence.note_closed(11 * S);
        silence.note_closed(12 * S);
        assert_eq!(
            silence.keepalive(14 * S - 1, &config, false),
            Keepalive::Nothing
        );
        assert_eq!(silence.keepalive(14 * S, &config, false), Keepalive::GiveUp);
    }

    #[test]
    fn no_ping_leaves_before_there_is_a_connection() {
        let (config, mut silence) = (config(), Silence::new(10 * S));
        silence.keep_alive(&config);
        assert_eq!(silence.keepalive(20 * S, &config, true), Keepalive::Nothing);
        assert_eq!(silence.keepalive_at(), 40 * S);
        assert_eq!(silence.keepalive(40 * S, &config, true), Keepalive::GiveUp);
        assert_eq!(silence.keepalive_at(), u64::MAX);
    }

    #[test]
    fn what_is_awaited_from_now_on_was_not_owed_before() {
        let (config, mut silence) = (config(), Silence::new(0));
        silence.begin_await(100 * S, &config);
        assert_eq!(silence.heard_at, 96 * S);
        assert_eq!(silence.keep_alive(&config), 100 * S);
        silence.begin_await(200 * S, &config);
        assert_eq!(silence.heard_at, 96 * S);
        silence.await_nothing();
        silence.heard(199 * S);
        silence.begin_await(200 * S, &config);
        assert_eq!(silence.heard_at, 199 * S);
    }

    #[test]
    fn the_last_moment_is_that_of_either() {
        let mut silence = Silence::new(5);
        silence.used(7);
        assert_eq!((silence.last_moment(), silence.used_at()), (7, 7));
        silence.heard(9);
        assert_eq!((silence.last_moment(), silence.used_at()), (9, 7));
    }

    #[test]
    fn a_peer_that_takes_nothing_more_is_unusual() {
        let mut silence = Silence::new(5);
        assert!(silence.unusual().is_nothing());
        silence.finished = true;
        assert_eq!(silence.unusual(), Unusual::ENDING);
    }
}
