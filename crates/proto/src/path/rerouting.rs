//! When a path that stays congested is to take another way between the same
//! addresses. Networks with several of equal cost choose by a hash in which
//! the UDP source port counts (ECMP, RFC 2992), so another port may lead past
//! what is full.
//!
//! As Protective Load Balancing does (Qureshi and others, SIGCOMM 2022), round
//! trips are counted that the path limited; here what comes of a change is
//! looked at too, since only a better rate shows that the ways differ.
//!
//! - *Watch*: after some spans in a row of which the path limited most round
//!   trips the way is left. How many is drawn anew each time: pairs that share
//!   it should not all leave at once.
//! - *Settle*: the first few round trips by another way. The window is that of
//!   before, so what is much worse now does not become better.
//! - *Judge*: if the span after them is better by a quarter, the pair stays.
//!   Otherwise it tries the next way, and after the last it returns to the first
//!   and rests.

use crate::base::Reroute;

/// Round trips of a span, and of them those that the path must limit.
const ROUNDS: u8 = 16;
const ROUNDS_LIMITED: u8 = 12;
/// Round trips in which a new way settles.
const ROUNDS_SETTLE: u8 = 4;
/// A round trip counts as this long at least, ns: two epochs of the congestion
/// control.
const ROUND_NS: u64 = 1_000_000;
/// Spans after which a way is left: as many, or up to three more.
const SPANS: u8 = 2;
/// Ways that are tried. Of two all tries miss the other once in 64 times.
const TRIES: u8 = 6;
/// How long a pair rests after a change for the better, and after the first
/// search in vain; doubled after each further one up to the longest, ns.
const REST_NS: u64 = 1_000_000_000;
const REST_NS_MAX: u64 = 64 * REST_NS;
/// What a span that took longer is compared with is out of date, ns.
const STALE_NS: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Watch,
    Settle,
    Judge,
}

/// What an acknowledgement shows of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    pub now: u64,
    /// The largest number acknowledged, and the next to be sent.
    pub largest: u64,
    pub next: u64,
    pub acked: u32,
    /// There was nothing more to send.
    pub idle: bool,
    /// The congestion window, not what the receiver takes, stops the sender;
    /// and it is used up.
    pub narrow: bool,
    pub full: bool,
}

/// State of one path. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rerouting {
    phase: Phase,
    /// Spans in a row that the path limited, and after how many it is left; 0:
    /// to be drawn.
    spans: u8,
    patience: u8,
    /// Ways that were tried since the first was left.
    tries: u8,
    /// Of the span: when it began, its round trips so far, those that the path
    /// limited, packets acknowledged.
    span_at: u64,
    rounds: u8,
    limited: u8,
    acked: u32,
    /// Of the round trip: when it began, the number whose acknowledgement ends
    /// it, whether there was nothing to send, whether the window was used up.
    round_at: u64,
    round_to: u64,
    idle: bool,
    full: bool,
    /// Packets a second on the way that was left.
    before: u64,
    rest_ns: u64,
    rests_until: u64,
    /// The first number that left by the present way.
    first: u64,
}

impl Rerouting {
    pub const NONE: Self = Self {
        phase: Phase::Watch,
        spans: 0,
        patience: 0,
        tries: 0,
        span_at: 0,
        rounds: 0,
        limited: 0,
        acked: 0,
        round_at: 0,
        round_to: 0,
        idle: false,
        full: false,
        before: 0,
        rest_ns: REST_NS,
        rests_until: 0,
        first: 0,
    };

    /// Whether two numbers left by the same way, the larger of which is not
    /// older than the last change: otherwise the order in which they arrive
    /// tells nothing.
    #[inline]
    pub const fn same_way(&self, number: u64, larger: u64) -> bool {
        number >= self.first || larger < self.first
    }

    /// Whether there is nothing to look at.
    #[inline]
    pub const fn is_off(&self, now: u64, idle: bool) -> bool {
        self.round_to == 0 && (idle || now < self.rests_until)
    }

    /// Looks at an acknowledgement. `random` is drawn from when a way that is
    /// to be left is first seen.
    pub fn see(&mut self, sight: &Sight, random: impl FnOnce() -> u64) -> Option<Reroute> {
        let Sight { now, largest, .. } = *sight;
        if self.round_to == 0 {
            self.begin_span(now);
            self.begin_round(sight);
            return None;
        }
        self.acked = self.acked.saturating_add(sight.acked);
        self.idle |= sight.idle;
        self.full |= sight.full;
        if largest < self.round_to || now.saturating_sub(self.round_at) < ROUND_NS {
            return None;
        }
        self.rounds += 1;
        self.limited += u8::from(!self.idle && self.full && sight.narrow);
        self.begin_round(sight);
        let span = match self.phase {
            Phase::Settle => ROUNDS_SETTLE,
            Phase::Watch | Phase::Judge => ROUNDS,
        };
        if self.rounds < span {
            return None;
        }
        let limited = self.limited >= ROUNDS_LIMITED;
        let all_limited = self.limited == self.rounds;
        let took = now.saturating_sub(self.span_at).max(1);
        let rate = u64::from(self.acked).saturating_mul(1_000_000_000) / took;
        self.begin_span(now);
        match self.phase {
            Phase::Watch => self.watch(limited, rate, random),
            Phase::Settle if all_limited && rate < self.before / 4 * 3 => self.go_on(now),
            Phase::Settle => {
                self.phase = Phase::Judge;
                None
            }
            Phase::Judge if rate > self.before / 4 * 5 => {
                self.rest_ns = REST_NS;
                self.rest(now);
                None
            }
            Phase::Judge if took > STALE_NS => {
                self.rest(now);
                None
            }
            Phase::Judge if limited => self.go_on(now),
            // Too little was sent to tell.
            Phase::Judge => None,
        }
    }

    fn begin_span(&mut self, now: u64) {
        self.span_at = now;
        (self.rounds, self.limited, self.acked) = (0, 0, 0);
    }

    fn begin_round(&mut self, sight: &Sight) {
        self.round_at = sight.now;
        self.round_to = sight.next.max(1);
        (self.idle, self.full) = (sight.idle, false);
    }

    fn watch(&mut self, limited: bool, rate: u64, random: impl FnOnce() -> u64) -> Option<Reroute> {
        if !limited {
            self.spans = 0;
            // A span begins anew when there is something to send.
            self.round_to = 0;
            return None;
        }
        if self.spans == 0 {
            self.patience = SPANS + (random() % 4) as u8;
        }
        self.spans += 1;
        if self.spans < self.patience {
            return None;
        }
        self.before = rate;
        self.tries = 1;
        self.phase = Phase::Settle;
        Some(Reroute::Leave)
    }

    /// The present way is not better.
    fn go_on(&mut self, now: u64) -> Option<Reroute> {
        if self.tries < TRIES {
            self.tries += 1;
            self.phase = Phase::Settle;
            return Some(Reroute::Next);
        }
        self.rest(now);
        self.rest_ns = (self.rest_ns * 2).min(REST_NS_MAX);
        Some(Reroute::Return)
    }

    fn rest(&mut self, now: u64) {
        self.phase = Phase::Watch;
        self.spans = 0;
        self.round_to = 0;
        self.rests_until = now.saturating_add(self.rest_ns);
    }

    /// What was asked for is done: `next` is the first number by the new way.
    pub fn rerouted(&mut self, next: u64) {
        self.first = next;
    }

    /// There is no other way.
    pub fn cannot(&mut self, now: u64) {
        self.rest_ns = REST_NS_MAX;
        self.rest(now);
    }
}

#[cfg(test)]
#[path = "rerouting_tests.rs"]
mod tests;
