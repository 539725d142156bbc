//! The protocol between the agents of a job's hosts, as a pure state machine:
//! time is an argument, datagrams go in and come out.
//!
//! Each agent keeps a list of final facts: which ranks have ended on its host,
//! which hosts do not reach each other, which leave the job. It sends the list
//! to each other agent until that one has acknowledged it, and adds to it the
//! cuts and leavers that it receives: so these reach every host that others can
//! reach. A datagram:
//!
//! | bytes | field |
//! | --- | --- |
//! | 2, 8 | sender's host, its count of datagrams to the receiver's |
//! | n | the rest, [packed](crate::codec) and sealed |
//! | 16 | tag |
//!
//! The rest is the number of entries received of the receiver's list, an index
//! in the sender's list and the entries from there on, and ranks that are
//! stopped. It is sealed by a key that the two agents have agreed on for this
//! direction (X25519, as for guests themselves).
//!
//! Hosts that reach each other, directly or through others, are a part. A part
//! with at most half of the hosts leaves the job (see
//! [`goes_on`](crate::partition::goes_on)). In the part that goes on the agent
//! of the lowest host decides which others leave.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use portolan_seal::{AnySeal, Nonce, Seal, Secret, SuiteId, TAG_BYTES, Tag, pair_secret};
use serde::{Deserialize, Serialize};

use crate::How;
use crate::codec::{pack, unpack};
use crate::partition::{Cuts, SETTLE, goes_on};
use crate::silence::StallDetector;

/// Interval of heartbeats between agents.
const BEAT_EVERY: Duration = Duration::from_millis(500);
/// First interval at which unacknowledged entries are sent again; it doubles
/// each time, up to [`BEAT_EVERY`].
const RETRY: Duration = Duration::from_millis(5);
/// Interval at which the ranks here are asked about a silent host.
const ASK_EVERY: Duration = Duration::from_millis(250);
/// Most entries of the list, and most stopped ranks, in a datagram: all of it
/// fits the least packet of IPv6.
const FACTS_MAX: usize = 72;
const STOPPED_MAX: usize = 48;
/// Longest entry, bytes: an end, with the longest numbers.
const FACT_BYTES_MAX: usize = 1 + 5 + 1 + 1 + 5;
const HEADER_BYTES: usize = 10;
/// Longest datagram, bytes.
pub(super) const DATAGRAM_BYTES_MAX: usize =
    HEADER_BYTES + 5 + 5 + 1 + FACTS_MAX * FACT_BYTES_MAX + 1 + 5 * STOPPED_MAX + TAG_BYTES;
const _: () = assert!(DATAGRAM_BYTES_MAX <= 1280 - 48);
const KEY_LABEL: &[u8; 8] = b"ptl1agnt";

/// The agent of a host, as the others know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::guest) struct HostCard {
    /// The host's number in the job.
    pub host: u16,
    /// An address of the host, IPv4 mapped.
    pub ip: [u8; 16],
    pub port: u16,
    pub key: [u8; 32],
    /// The ranks that run there.
    pub ranks: Vec<u32>,
}

/// The end of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    pub rank: u32,
    /// None: it has left in good order.
    pub how: Option<How>,
}

/// A final fact, an entry of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Fact {
    /// A rank has ended on the sender's host.
    End(End),
    /// Two hosts do not reach each other.
    Cut(u16, u16),
    /// A host leaves the job.
    Out(u16),
}

/// What an agent is to report or do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// A rank on another host has died.
    Died {
        rank: u32,
        how: How,
    },
    Stopped {
        rank: u32,
    },
    /// This host leaves the job: it does not reach these.
    Leave {
        unreached: Vec<u16>,
    },
}

struct Other {
    card: HostCard,
    /// Whether the end of each of its ranks is known.
    ended: Vec<bool>,
    /// Number of entries received of its list, and of ours that it has acknowledged.
    heard: u32,
    has: u32,
    /// Number of datagrams sent to it, and the highest number of those it sent.
    sent: u64,
    newest: u64,
    heard_at: Option<Instant>,
    /// When the ranks here are asked next whether they hear of it.
    ask_at: Instant,
    due: Instant,
    retry: Duration,
    /// Nothing is sent there or accepted from there any more: no agent listens,
    /// or no secret is shared with it.
    over: bool,
}

impl Other {
    fn is_empty(&self) -> bool {
        self.ended.iter().all(|ended| *ended)
    }
}

/// An agent's state in the protocol.
pub(super) struct EventLog {
    own: u16,
    seal: AnySeal,
    silence: Duration,
    stalls: StallDetector,
    facts: Vec<Fact>,
    stopped: Vec<u32>,
    others: Vec<Other>,
    cuts: Cuts,
    out: BTreeSet<u16>,
    /// New cuts or ends are to be judged.
    is_open: bool,
    /// When this agent decides which hosts leave, if that is its part.
    decide_at: Option<Instant>,
    /// This host leaves.
    leaves: bool,
}

/// Identity of an agent.
pub(super) struct Identity<'a> {
    /// Its host's number.
    pub host: u16,
    pub private: &'a [u8; 32],
    pub public: [u8; 32],
    /// Pre-shared key that goes into the keys.
    pub mix: Option<&'a [u8; 32]>,
}

impl EventLog {
    /// Makes the log of the agent `own`; `hosts` are all other hosts with agents.
    pub fn new(own: &Identity<'_>, hosts: Vec<HostCard>, silence: Duration, now: Instant) -> Self {
        let pair = |card: &HostCard| pair_secret(own.private, &card.key, own.mix);
        Self::with_secrets((own.host, own.public), hosts, silence, now, pair)
    }

    /// Makes the log of an agent with this host and public key. `pair` returns
    /// the secret that it shares with another agent.
    pub(super) fn with_secrets(
        (own, public): (u16, [u8; 32]),
        hosts: Vec<HostCard>,
        silence: Duration,
        now: Instant,
        pair: impl Fn(&HostCard) -> Option<Secret>,
    ) -> Self {
        let mut seal = AnySeal::with_slots(SuiteId::AesGcm, 2 * hosts.len());
        let mut others = Vec::with_capacity(hosts.len());
        for (at, card) in hosts.into_iter().enumerate() {
            let pair = pair(&card);
            if let Some(pair) = &pair {
                let mut key = |slot, from: &[u8; 32], to: &[u8; 32]| {
                    let info = [KEY_LABEL, &from[..], to].concat();
                    let key = seal.derive(pair.as_bytes(), &info);
                    seal.install(slot, &key);
                };
                key(2 * at, &public, &card.key);
                key(2 * at + 1, &card.key, &public);
            }
            others.push(Other {
                ended: vec![false; card.ranks.len()],
                card,
                heard: 0,
                has: 0,
                sent: 0,
                newest: 0,
                heard_at: None,
                ask_at: now,
                due: now,
                retry: RETRY,
                over: pair.is_none(),
            });
        }
        Self {
            own,
            seal,
            silence,
            stalls: StallDetector::new(BEAT_EVERY, now),
            facts: Vec::new(),
            stopped: Vec::new(),
            others,
            cuts: Cuts::default(),
            out: BTreeSet::new(),
            is_open: false,
            decide_at: None,
            leaves: false,
        }
    }

    /// Adds the end of a rank of this host.
    pub fn add(&mut self, end: End, now: Instant) {
        self.push(Fact::End(end), now);
    }

    /// Adds the cut that follows when a rank here has given up one on another host.
    pub fn give_up(&mut self, rank: u32, now: Instant) {
        let of = |other: &Other| {
            let at = other.card.ranks.iter().position(|it| *it == rank)?;
            (!other.ended[at]).then_some(other.card.host)
        };
        if let Some(host) = self.others.iter().find_map(of) {
            self.learn(Fact::Cut(self.own, host), now);
        }
    }

    /// Records that a rank here has heard of one on another host.
    pub fn heard_of(&mut self, rank: u32, at: Instant) {
        let mut others = self.others.iter_mut();
        if let Some(other) = others.find(|other| other.card.ranks.contains(&rank)) {
            other.heard_at = other.heard_at.map(|heard_at| heard_at.max(at));
        }
    }

    /// Records that this agent runs at `now`, as it does at least every half
    /// second. Time in which it did not run counts as no host's silence.
    pub fn ran(&mut self, now: Instant) {
        let late = self.stalls.late(now);
        for other in &mut self.others {
            other.heard_at = other.heard_at.map(|at| (at + late).min(now));
        }
    }

    /// Adds a cut or a leaver, unless it is known.
    fn learn(&mut self, fact: Fact, now: Instant) {
        let is_new = match fact {
            Fact::Cut(one, other) => self.cuts.add(one, other),
            Fact::Out(host) => self.out.insert(host),
            Fact::End(_) => false,
        };
        if is_new {
            self.is_open = true;
            self.push(fact, now);
        }
    }

    fn push(&mut self, fact: Fact, now: Instant) {
        self.facts.push(fact);
        for other in &mut self.others {
            (other.due, other.retry) = (now, RETRY);
        }
    }

    /// Sets the ranks of this host that are stopped now.
    pub fn set_stopped(&mut self, ranks: Vec<u32>) {
        self.stopped = ranks;
    }

    /// Whether all agents that take part have acknowledged the whole list.
    pub fn is_told(&self) -> bool {
        let all = self.facts.len() as u32;
        let hears = |other: &&Other| self.is_with_us(other);
        self.others.iter().filter(hears).all(|it| it.has == all)
    }

    /// When [`EventLog::next`], [`EventLog::judge`] or [`EventLog::doubts`] has something.
    pub fn due(&self) -> Option<Instant> {
        let live = self.others.iter().filter(|other| !other.over);
        let silent = |other: &Other| {
            let at = other.heard_at.filter(|_| self.is_missed(other))?;
            Some((at + self.silence).min(other.ask_at.max(at + self.ask_after())))
        };
        live.flat_map(|it| [Some(it.due), silent(it)])
            .chain([self.decide_at])
            .flatten()
            .min()
    }

    /// Silence after which the ranks here are asked about a host.
    fn ask_after(&self) -> Duration {
        self.silence * 3 / 4
    }

    /// Whether a host takes part in the job, as far as is known.
    fn is_with_us(&self, other: &Other) -> bool {
        !other.over && !other.is_empty() && !self.out.contains(&other.card.host)
    }

    /// Whether a host's silence would be news.
    fn is_missed(&self, other: &Other) -> bool {
        self.is_with_us(other) && !self.cuts.contains(self.own, other.card.host)
    }

    /// Returns the next datagram, and the index among `others` of the host that it is for.
    pub fn next(&mut self, now: Instant) -> Option<(usize, Vec<u8>)> {
        let mut others = self.others.iter_mut().enumerate();
        let (at, other) = others.find(|(_, other)| !other.over && other.due <= now)?;
        let first = (other.has as usize).min(self.facts.len());
        let facts = &self.facts[first..self.facts.len().min(first + FACTS_MAX)];
        (other.due, other.retry) = match facts {
            [] => (now + BEAT_EVERY, RETRY),
            _ => (now + other.retry, BEAT_EVERY.min(2 * other.retry)),
        };
        other.sent += 1;
        // A part in turn, if they are many.
        let mut turns = self.stopped.chunks(STOPPED_MAX);
        let turn = other.sent as usize % turns.len().max(1);
        let stopped = turns.nth(turn).unwrap_or_default();
        let header = [&self.own.to_le_bytes()[..], &other.sent.to_le_bytes()].concat();
        let mut bytes = pack(&header, &(other.heard, first as u32, facts, stopped));
        let nonce = Nonce {
            path: 0,
            number: other.sent,
        };
        let (header, body) = bytes.split_at_mut(HEADER_BYTES);
        let tag = self.seal.seal(2 * at, nonce, header, body);
        bytes.extend(tag);
        Some((at, bytes))
    }

    /// Handles a datagram. One that does not verify, was received before or is
    /// malformed changes nothing.
    pub fn hear(&mut self, bytes: &[u8], now: Instant) -> Vec<Word> {
        self.read(bytes, now).unwrap_or_default()
    }

    fn read(&mut self, bytes: &[u8], now: Instant) -> Option<Vec<Word>> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let (body, tag) = rest.split_last_chunk::<TAG_BYTES>()?;
        let [h0, h1, number @ ..] = *header;
        let (from, number) = (u16::from_le_bytes([h0, h1]), u64::from_le_bytes(number));
        let at = self.others.iter().position(|it| it.card.host == from)?;
        let other = &mut self.others[at];
        if other.over || number <= other.newest {
            return None;
        }
        let mut body = body.to_vec();
        let tag: &Tag = tag;
        let nonce = Nonce { path: 0, number };
        self.seal
            .open(2 * at + 1, nonce, header, &mut body, tag)
            .ok()?;
        let (ours, first, facts, stopped): (u32, u32, Vec<Fact>, Vec<u32>) = unpack(&body)?;
        other.newest = number;
        self.is_open |= other.heard_at.replace(now).is_none();
        let all = self.facts.len() as u32;
        if ours > other.has && ours <= all {
            other.has = ours;
            if ours == all {
                (other.due, other.retry) = (now + BEAT_EVERY, RETRY);
            }
        }
        let is_out = self.out.contains(&from);
        let mut words = Vec::new();
        let mut learned = Vec::new();
        if !facts.is_empty() {
            // The sender waits for an acknowledgement.
            other.due = now;
        }
        // Entries behind a gap are of no use.
        let known = other.heard.checked_sub(first)? as usize;
        for fact in facts.into_iter().skip(known) {
            other.heard += 1;
            let Fact::End(end) = fact else {
                learned.push(fact);
                continue;
            };
            self.is_open = true;
            let Some(index) = other.card.ranks.iter().position(|it| *it == end.rank) else {
                continue;
            };
            let was = std::mem::replace(&mut other.ended[index], true);
            if let (false, false, Some(how)) = (was, is_out, end.how) {
                let rank = end.rank;
                words.push(Word::Died { rank, how });
            }
        }
        for rank in stopped {
            if other.card.ranks.contains(&rank) {
                words.push(Word::Stopped { rank });
            }
        }
        for fact in learned {
            words.extend(self.died_by(fact));
            self.learn(fact, now);
        }
        Some(words)
    }

    /// Returns the ranks that are dead by a fact, if it is new.
    fn died_by(&self, fact: Fact) -> Vec<Word> {
        let Fact::Out(host) = fact else {
            return Vec::new();
        };
        let how = How::Lost;
        let hosts = self.others.iter().filter(|other| other.card.host == host);
        let hosts = hosts.filter(|_| !self.out.contains(&host));
        let ranks = hosts.flat_map(|other| other.card.ranks.iter().zip(&other.ended));
        ranks
            .filter(|(_, ended)| !**ended)
            .map(|(&rank, _)| Word::Died { rank, how })
            .collect()
    }

    /// Handles the answer of host number `at` that no agent listens there: it
    /// has died, and the ranks there may live.
    pub fn refused(&mut self, at: usize) {
        if let Some(other) = self.others.get_mut(at) {
            other.over = true;
            // The host counts no longer, and may have been the one that decides.
            self.is_open = true;
        }
    }

    /// Returns the ranks of hosts of which nothing has been heard for long, by
    /// host: those here are to be asked whether they have.
    pub fn doubts(&mut self, now: Instant) -> Vec<Vec<u32>> {
        let after = self.ask_after();
        let mut doubts = Vec::new();
        for at in 0..self.others.len() {
            let is_missed = self.is_missed(&self.others[at]);
            let other = &mut self.others[at];
            let is_quiet = other.heard_at.is_some_and(|at| now >= at + after);
            if is_missed && is_quiet && now >= other.ask_at {
                other.ask_at = now + ASK_EVERY;
                doubts.push(other.card.ranks.clone());
            }
        }
        doubts
    }

    /// Returns what follows from hosts that have fallen silent and from cuts. A
    /// host that was never heard does not count as silent: something between
    /// may keep agents apart.
    pub fn judge(&mut self, now: Instant) -> Vec<Word> {
        for at in 0..self.others.len() {
            let other = &self.others[at];
            let is_silent = other.heard_at.is_some_and(|at| now >= at + self.silence);
            if is_silent && self.is_missed(other) {
                self.learn(Fact::Cut(self.own, other.card.host), now);
            }
        }
        let is_due = self.decide_at.is_some_and(|at| now >= at);
        if self.leaves || !(self.is_open || is_due) {
            return Vec::new();
        }
        self.is_open = false;
        let counts = |it: &&Other| !it.over && !it.is_empty() && it.heard_at.is_some();
        let hosts = self.others.iter().filter(counts).map(|it| it.card.host);
        let hosts: BTreeSet<u16> = hosts.chain([self.own]).collect();
        let left: BTreeSet<u16> = hosts.difference(&self.out).copied().collect();
        let part = self.cuts.part_of(self.own, &left);
        if self.out.contains(&self.own) || !goes_on(&part, &hosts) {
            (self.leaves, self.decide_at) = (true, None);
            let unreached = match self.cuts.of(self.own).collect::<Vec<_>>() {
                cut if cut.is_empty() => left.difference(&part).copied().collect(),
                cut => cut,
            };
            return vec![Word::Leave { unreached }];
        }
        let beyond = left.difference(&part).copied();
        let leavers = self.cuts.leavers(|host| part.contains(&host));
        let leavers: Vec<u16> = beyond.chain(leavers).collect();
        if part.first() != Some(&self.own) || leavers.is_empty() {
            self.decide_at = None;
            return Vec::new();
        }
        if now < *self.decide_at.get_or_insert(now + SETTLE) {
            return Vec::new();
        }
        self.decide_at = None;
        let mut words = Vec::new();
        for host in leavers {
            words.extend(self.died_by(Fact::Out(host)));
            self.learn(Fact::Out(host), now);
        }
        // This host may be one of them.
        words.extend(self.judge(now));
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan_seal::public_key;

    const SILENCE: Duration = Duration::from_millis(2_500);

    /// Agents of hosts with two ranks each.
    fn agents(count: u16, now: Instant) -> Vec<EventLog> {
        let private = |host: u16| [host as u8 + 1; 32];
        let card = |host: u16| HostCard {
            host,
            ip: [0; 16],
            port: 7,
            key: public_key(&private(host)),
            ranks: vec![2 * u32::from(host), 2 * u32::from(host) + 1],
        };
        let each = |host| {
            let own = Identity {
                host,
                private: &private(host),
                public: public_key(&private(host)),
                mix: None,
            };
            let others = (0..count).filter(|it| *it != host).map(card).collect();
            EventLog::new(&own, others, SILENCE, now)
        };
        (0..count).map(each).collect()
    }

    /// Carries what is due between two agents; returns the words of the second.
    fn carry(from: &mut EventLog, to: &mut EventLog, now: Instant) -> Vec<Word> {
        let mut words = Vec::new();
        while let Some((_, bytes)) = from.next(now) {
            words.extend(to.hear(&bytes, now));
        }
        words
    }

    fn killed(rank: u32) -> End {
        let how = Some(How::Killed(9));
        End { rank, how }
    }

    #[test]
    fn an_end_is_told_at_once_and_until_it_was_heard() {
        let start = Instant::now();
        let [mut a, mut b] = agents(2, start).try_into().ok().unwrap();
        assert_eq!(carry(&mut a, &mut b, start), []);
        assert_eq!(carry(&mut b, &mut a, start), []);
        let mut now = start + Duration::from_millis(10);
        a.add(killed(1), now);
        assert!(!a.is_told());
        // Lost five times, at growing intervals.
        for n in 0..5 {
            assert!(a.next(now).is_some() && a.next(now).is_none());
            assert_eq!(a.due(), Some(now + RETRY * 2_u32.pow(n)));
            now = a.due().unwrap();
        }
        let how = How::Killed(9);
        assert_eq!(
            carry(&mut a, &mut b, now),
            [Word::Died { rank: 1, how }],
            "at last"
        );
        // The answer is due at once, and needs none itself.
        assert_eq!(b.due(), Some(now));
        assert_eq!(carry(&mut b, &mut a, now), []);
        assert!(a.is_told());
        assert_eq!(a.next(now), None);
        // Again, as if the answer had been lost: nothing new.
        a.others[0].has = 0;
        a.others[0].due = now;
        assert_eq!(carry(&mut a, &mut b, now), []);
        assert!(b.next(now).is_some(), "but answered");
        // A rank that left is not reported.
        a.add(End { rank: 0, how: None }, now);
        assert_eq!(carry(&mut a, &mut b, now), []);
        let later = now + 2 * SILENCE;
        assert_eq!(judged(&mut b, later), [], "nobody is left to be missed");
    }

    #[test]
    fn many_ends_come_in_parts_and_in_order() {
        let now = Instant::now();
        let [mut a, mut b] = agents(2, now).try_into().ok().unwrap();
        let ranks: Vec<u32> = (100..100 + 3 * FACTS_MAX as u32).collect();
        b.others[0].card.ranks = ranks.clone();
        b.others[0].ended = vec![false; ranks.len()];
        ranks.iter().for_each(|rank| a.add(killed(*rank), now));
        a.set_stopped(ranks.clone());
        let (mut now, mut died, mut stopped) = (now, Vec::new(), Vec::new());
        for _ in 0..20 {
            for word in carry(&mut a, &mut b, now) {
                match word {
                    Word::Died { rank, .. } => died.push(rank),
                    Word::Stopped { rank } => stopped.push(rank),
                    Word::Leave { .. } => panic!("{word:?}"),
                }
            }
            carry(&mut b, &mut a, now);
            now = a.due().unwrap();
        }
        assert_eq!(died, ranks);
        stopped.sort_unstable();
        stopped.dedup();
        assert_eq!(stopped, ranks, "in turn");
    }

    #[test]
    fn who_did_not_run_counts_that_as_nobodys_silence() {
        let start = Instant::now();
        let [mut a, mut b] = agents(2, start).try_into().ok().unwrap();
        carry(&mut b, &mut a, start);
        let mut now = start;
        for seconds in [20, 3, 3600] {
            now += Duration::from_secs(seconds);
            a.ran(now);
            assert_eq!(judged(&mut a, now), [], "{seconds} s");
        }
        // Each pause cost one step.
        let left = SILENCE - 3 * BEAT_EVERY;
        assert_eq!(a.judge(now + left - RETRY), []);
        assert_eq!(judged(&mut a, now + left), lost([2, 3]));
    }

    /// Returns the words about hosts that fall silent, by `now`.
    fn judged(events: &mut EventLog, now: Instant) -> Vec<Word> {
        let mut words = events.judge(now);
        words.extend(events.judge(now + SETTLE));
        words
    }

    fn lost(ranks: [u32; 2]) -> Vec<Word> {
        let how = How::Lost;
        ranks.map(|rank| Word::Died { rank, how }).into()
    }

    #[test]
    fn a_silent_host_is_lost_and_one_without_agent_is_not() {
        let start = Instant::now();
        let [mut a, mut b, mut c] = agents(3, start).try_into().ok().unwrap();
        let (_, bytes) = b.next(start).unwrap();
        a.hear(&bytes, start);
        assert_eq!(a.judge(start + SILENCE - RETRY), []);
        // Nothing was ever heard of the third.
        assert_eq!(judged(&mut a, start + SILENCE), lost([2, 3]));
        assert_eq!(judged(&mut a, start + 2 * SILENCE), [], "once");
        let (_, bytes) = c.next(start).unwrap();
        a.hear(&bytes, start);
        a.refused(1);
        assert_eq!(judged(&mut a, start + 3 * SILENCE), []);
    }

    #[test]
    fn what_ranks_hear_of_a_host_is_a_sign_of_life() {
        let start = Instant::now();
        let [mut a, mut b] = agents(2, start).try_into().ok().unwrap();
        a.heard_of(2, start);
        let (_, bytes) = b.next(start).unwrap();
        a.hear(&bytes, start);
        let quiet = start + SILENCE * 3 / 4;
        assert_eq!(a.doubts(quiet - RETRY), [[0; 0]; 0]);
        assert_eq!(a.doubts(quiet), [[2, 3]]);
        assert_eq!(a.doubts(quiet), [[0; 0]; 0], "not all the time");
        assert_eq!(a.doubts(quiet + ASK_EVERY), [[2, 3]]);
        a.heard_of(3, quiet);
        assert_eq!(a.doubts(quiet + ASK_EVERY * 2), [[0; 0]; 0]);
        assert_eq!(judged(&mut a, start + SILENCE), []);
        assert_eq!(judged(&mut a, quiet + SILENCE), lost([2, 3]));
    }

    #[test]
    fn of_two_halves_the_one_with_the_lowest_host_goes_on() {
        let start = Instant::now();
        let [mut a, mut b] = agents(2, start).try_into().ok().unwrap();
        carry(&mut a, &mut b, start);
        carry(&mut b, &mut a, start);
        assert_eq!(judged(&mut a, start + SILENCE), lost([2, 3]));
        let unreached = vec![0];
        assert_eq!(judged(&mut b, start + SILENCE), [Word::Leave { unreached }]);
    }

    #[test]
    fn what_others_put_in_changes_nothing() {
        let now = Instant::now();
        let [mut a, mut b, mut c] = agents(3, now).try_into().ok().unwrap();
        a.add(killed(1), now);
        let (_, to_b) = a.next(now).unwrap();
        for at in 0..to_b.len() {
            let mut bytes = to_b.clone();
            bytes[at] ^= 1;
            assert_eq!(b.hear(&bytes, now), [], "byte {at}");
            assert_eq!(b.hear(&to_b[..at], now), []);
        }
        assert_eq!(c.hear(&to_b, now), [], "for another");
        assert!(b.others.iter().all(|other| other.heard_at.is_none()));
        assert_eq!(b.hear(&to_b, now).len(), 1);
        assert_eq!(b.hear(&to_b, now), [], "repeated");
        // A member that reports ranks of others, or garbage.
        let [mut a, mut b] = agents(2, now).try_into().ok().unwrap();
        a.add(killed(3), now);
        a.set_stopped(vec![2]);
        assert_eq!(carry(&mut a, &mut b, now), []);
        assert_eq!(unpack::<Fact>(&[9; 9]), None);
        assert!(carry(&mut b, &mut a, now).is_empty() && a.is_told());
    }

    #[test]
    fn a_different_secret_is_heard_by_nobody() {
        let now = Instant::now();
        let [a, mut b] = agents(2, now).try_into().ok().unwrap();
        let private = [1; 32];
        let own = Identity {
            host: 0,
            private: &private,
            public: public_key(&private),
            mix: Some(&[5; 32]),
        };
        let hosts = a.others.iter().map(|other| other.card.clone()).collect();
        let mut mixed = EventLog::new(&own, hosts, SILENCE, now);
        mixed.add(killed(1), now);
        assert_eq!(carry(&mut mixed, &mut b, now), []);
        assert_eq!(b.others[0].newest, 0);
    }
}
