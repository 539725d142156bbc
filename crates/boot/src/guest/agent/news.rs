//! What the agents of a job's hosts tell each other, as a pure machine: time
//! is an argument, datagrams go in and come out.
//!
//! Each agent keeps a list of what has ended on its host, and tells each other
//! agent of it until that one has heard. A datagram:
//!
//! | bytes | field |
//! | --- | --- |
//! | 2, 8 | sender's host, its count of datagrams to the receiver's |
//! | 4 | entries of the receiver's list that were heard |
//! | 4, 1, 9 n | the sender's list from this entry on: rank, kind, number |
//! | 1, 4 m | ranks that are stopped |
//! | 16 | tag |
//!
//! From the third field on it is sealed, by a key that the two agents have
//! agreed on for this direction (X25519, as for guests themselves).

use std::time::{Duration, Instant};

use portolan_seal::{AnySeal, Nonce, Seal, Secret, SuiteId, TAG_BYTES, Tag, pair_secret};
use serde::{Deserialize, Serialize};

use crate::How;
use crate::silence::Looks;

/// Agents let each other hear of them so often.
const BEAT_EVERY: Duration = Duration::from_millis(500);
/// What was told and not answered is told again after this, then after twice
/// as long, and so on.
const RETRY: Duration = Duration::from_millis(5);
/// Most entries of the list, and most stopped ranks, in a datagram: all of it
/// fits the least packet of IPv6.
const ENDS_MAX: usize = 96;
const STOPPED_MAX: usize = 48;
const END_BYTES: usize = 9;
const HEADER_BYTES: usize = 10;
/// Longest datagram.
pub(super) const DATAGRAM_BYTES_MAX: usize =
    HEADER_BYTES + 4 + 4 + 1 + ENDS_MAX * END_BYTES + 1 + 4 * STOPPED_MAX + TAG_BYTES;
const KEY_LABEL: &[u8; 8] = b"ptl1agnt";

/// The agent of a host, as the others know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::guest) struct HostCard {
    /// The host's number in the job.
    pub host: u16,
    /// An address of it, IPv4 mapped.
    pub ip: [u8; 16],
    pub port: u16,
    pub key: [u8; 32],
    /// Who runs there.
    pub ranks: Vec<u32>,
}

/// That a rank is no longer there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub rank: u32,
    /// None: it has left in good order.
    pub how: Option<How>,
}

impl End {
    fn encode(self) -> [u8; END_BYTES] {
        let (kind, number) = match self.how {
            None => (0, 0),
            Some(How::Exited(code)) => (1, code),
            Some(How::Killed(signal)) => (2, signal),
            Some(How::Lost) => (3, 0),
            Some(How::Replaced) => (4, 0),
            Some(How::Gone) => (5, 0),
        };
        let mut bytes = [0; END_BYTES];
        bytes[..4].copy_from_slice(&self.rank.to_le_bytes());
        bytes[4] = kind;
        bytes[5..].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; END_BYTES]) -> Option<Self> {
        let [r0, r1, r2, r3, kind, number @ ..] = *bytes;
        let number = i32::from_le_bytes(number);
        let how = match kind {
            0 => None,
            1 => Some(How::Exited(number)),
            2 => Some(How::Killed(number)),
            3 => Some(How::Lost),
            4 => Some(How::Replaced),
            5 => Some(How::Gone),
            _ => return None,
        };
        let rank = u32::from_le_bytes([r0, r1, r2, r3]);
        Some(Self { rank, how })
    }
}

/// What is known of a rank on another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Died { rank: u32, how: How },
    Stopped { rank: u32 },
}

struct Other {
    card: HostCard,
    /// Of its ranks: whose end is known.
    ended: Vec<bool>,
    /// Entries of its list that were heard, and of ours that it has heard.
    heard: u32,
    has: u32,
    /// Datagrams to it, and the newest of its own.
    sent: u64,
    newest: u64,
    heard_at: Option<Instant>,
    due: Instant,
    retry: Duration,
    /// Nobody there is listened to or spoken to any more: the host is lost, or
    /// has no agent.
    over: bool,
}

impl Other {
    fn is_empty(&self) -> bool {
        self.ended.iter().all(|ended| *ended)
    }
}

/// See above.
pub(super) struct News {
    own: u16,
    seal: AnySeal,
    silence: Duration,
    looks: Looks,
    ends: Vec<End>,
    stopped: Vec<u32>,
    others: Vec<Other>,
}

/// Who an agent is to the others.
pub(super) struct Identity<'a> {
    /// Its host's number.
    pub host: u16,
    pub private: &'a Secret,
    pub public: [u8; 32],
    /// What goes into the keys besides.
    pub mix: Option<&'a Secret>,
}

impl News {
    /// An agent that is alone on its `host` of the job.
    pub fn new(own: &Identity<'_>, hosts: Vec<HostCard>, silence: Duration, now: Instant) -> Self {
        let mut seal = AnySeal::with_slots(SuiteId::AesGcm, 2 * hosts.len());
        let mut others = Vec::with_capacity(hosts.len());
        for (at, card) in hosts.into_iter().enumerate() {
            let pair = pair_secret(own.private, &card.key, own.mix);
            if let Some(pair) = &pair {
                let mut key = |slot, from: &[u8; 32], to: &[u8; 32]| {
                    let info = [KEY_LABEL, &from[..], to].concat();
                    let key = seal.derive(pair, &info);
                    seal.install(slot, &key);
                };
                key(2 * at, &own.public, &card.key);
                key(2 * at + 1, &card.key, &own.public);
            }
            others.push(Other {
                ended: vec![false; card.ranks.len()],
                card,
                heard: 0,
                has: 0,
                sent: 0,
                newest: 0,
                heard_at: None,
                due: now,
                retry: RETRY,
                over: pair.is_none(),
            });
        }
        Self {
            own: own.host,
            seal,
            silence,
            looks: Looks::new(BEAT_EVERY, now),
            ends: Vec::new(),
            stopped: Vec::new(),
            others,
        }
    }

    /// A rank of this host is no longer there.
    pub fn add(&mut self, end: End, now: Instant) {
        self.ends.push(end);
        for other in &mut self.others {
            (other.due, other.retry) = (now, RETRY);
        }
    }

    /// The ranks of this host that are stopped now.
    pub fn set_stopped(&mut self, ranks: Vec<u32>) {
        self.stopped = ranks;
    }

    /// Whether all who listen have heard of all that ended.
    pub fn is_told(&self) -> bool {
        let all = self.ends.len() as u32;
        let hears = |other: &&Other| !other.over && !other.is_empty();
        self.others.iter().filter(hears).all(|it| it.has == all)
    }

    /// When [`News::next`] or [`News::lost`] has something.
    pub fn due(&self) -> Option<Instant> {
        let live = self.others.iter().filter(|other| !other.over);
        let silent = |other: &Other| other.heard_at.map(|at| at + self.silence);
        live.flat_map(|it| [Some(it.due), silent(it).filter(|_| !it.is_empty())])
            .flatten()
            .min()
    }

    /// The next datagram, and the number among the others of the host that it
    /// is for.
    pub fn next(&mut self, now: Instant) -> Option<(usize, Vec<u8>)> {
        let mut others = self.others.iter_mut().enumerate();
        let (at, other) = others.find(|(_, other)| !other.over && other.due <= now)?;
        let first = (other.has as usize).min(self.ends.len());
        let ends = &self.ends[first..self.ends.len().min(first + ENDS_MAX)];
        (other.due, other.retry) = match ends {
            [] => (now + BEAT_EVERY, RETRY),
            _ => (now + other.retry, BEAT_EVERY.min(2 * other.retry)),
        };
        other.sent += 1;
        let mut bytes = Vec::with_capacity(DATAGRAM_BYTES_MAX);
        bytes.extend(self.own.to_le_bytes());
        bytes.extend(other.sent.to_le_bytes());
        bytes.extend(other.heard.to_le_bytes());
        bytes.extend((first as u32).to_le_bytes());
        bytes.push(ends.len() as u8);
        ends.iter().for_each(|end| bytes.extend(end.encode()));
        // All in turn, where they are many.
        let turn = self.stopped.len().div_ceil(STOPPED_MAX).max(1);
        let skip = STOPPED_MAX * (other.sent as usize % turn);
        let stopped = self.stopped.iter().skip(skip).take(STOPPED_MAX);
        bytes.push(stopped.len() as u8);
        stopped.for_each(|rank| bytes.extend(rank.to_le_bytes()));
        let nonce = Nonce {
            path: 0,
            number: other.sent,
        };
        let (header, body) = bytes.split_at_mut(HEADER_BYTES);
        let tag = self.seal.seal(2 * at, nonce, header, body);
        bytes.extend(tag);
        Some((at, bytes))
    }

    /// Takes a datagram. What does not verify, was heard before or makes no
    /// sense changes nothing.
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
        let (ours, rest) = body.split_first_chunk()?;
        let (first, rest) = rest.split_first_chunk()?;
        let (&count, rest) = rest.split_first()?;
        let (ends, rest) = rest.split_at_checked(usize::from(count) * END_BYTES)?;
        let (&count, stopped) = rest.split_first()?;
        let (stopped, []) = stopped.as_chunks::<4>() else {
            return None;
        };
        let (ends, _) = ends.as_chunks::<END_BYTES>();
        let ends = ends.iter().map(End::decode).collect::<Option<Vec<_>>>()?;
        if usize::from(count) != stopped.len() {
            return None;
        }
        other.newest = number;
        other.heard_at = Some(now);
        let (ours, first) = (u32::from_le_bytes(*ours), u32::from_le_bytes(*first));
        let all = self.ends.len() as u32;
        if ours > other.has && ours <= all {
            other.has = ours;
            if ours == all {
                (other.due, other.retry) = (now + BEAT_EVERY, RETRY);
            }
        }
        let mut words = Vec::new();
        if !ends.is_empty() {
            // It waits for an answer.
            other.due = now;
        }
        // A list that goes on beyond what was heard is of no use.
        let known = other.heard.checked_sub(first)? as usize;
        for end in ends.iter().skip(known) {
            other.heard += 1;
            let Some(index) = other.card.ranks.iter().position(|it| *it == end.rank) else {
                continue;
            };
            let was = std::mem::replace(&mut other.ended[index], true);
            if let (false, Some(how)) = (was, end.how) {
                let rank = end.rank;
                words.push(Word::Died { rank, how });
            }
        }
        for rank in stopped.iter().map(|bytes| u32::from_le_bytes(*bytes)) {
            if other.card.ranks.contains(&rank) {
                words.push(Word::Stopped { rank });
            }
        }
        Some(words)
    }

    /// Host number `at` answers that no agent is there: its own has died, and
    /// the ranks there may live.
    pub fn refused(&mut self, at: usize) {
        if let Some(other) = self.others.get_mut(at) {
            other.over = true;
        }
    }

    /// The ranks of hosts that have fallen silent. One that was never heard is
    /// not missed: something between may keep agents apart.
    pub fn lost(&mut self, now: Instant) -> Vec<u32> {
        let late = self.looks.late(now);
        let mut ranks = Vec::new();
        for other in self.others.iter_mut().filter(|other| !other.over) {
            other.heard_at = other.heard_at.map(|at| (at + late).min(now));
            let is_silent = |at: Instant| now >= at + self.silence;
            if other.heard_at.is_some_and(is_silent) && !other.is_empty() {
                other.over = true;
                let left = other.card.ranks.iter().zip(&other.ended);
                ranks.extend(left.filter(|(_, ended)| !**ended).map(|(rank, _)| rank));
            }
        }
        ranks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan_seal::public_key;

    const SILENCE: Duration = Duration::from_millis(2_500);

    /// Agents of hosts with two ranks each.
    fn agents(count: u16, now: Instant) -> Vec<News> {
        let private = |host: u16| Secret::new([host as u8 + 1; 32]);
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
            News::new(&own, others, SILENCE, now)
        };
        (0..count).map(each).collect()
    }

    /// Carries what is due between two agents; gives what the second hears.
    fn carry(from: &mut News, to: &mut News, now: Instant) -> Vec<Word> {
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
        // Lost five times, at growing distances.
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
        // The answer is due at once, and is none to be answered.
        assert_eq!(b.due(), Some(now));
        assert_eq!(carry(&mut b, &mut a, now), []);
        assert!(a.is_told());
        assert_eq!(a.next(now), None);
        // Again, as if the answer had been lost: nothing new.
        a.others[0].has = 0;
        a.others[0].due = now;
        assert_eq!(carry(&mut a, &mut b, now), []);
        assert!(b.next(now).is_some(), "but answered");
        // Whoever left is not told of.
        a.add(End { rank: 0, how: None }, now);
        assert_eq!(carry(&mut a, &mut b, now), []);
        let later = now + 2 * SILENCE;
        assert_eq!(b.lost(later), [0; 0], "nobody is left to be missed");
    }

    #[test]
    fn many_ends_come_in_parts_and_in_order() {
        let now = Instant::now();
        let [mut a, mut b] = agents(2, now).try_into().ok().unwrap();
        let ranks: Vec<u32> = (100..100 + 3 * ENDS_MAX as u32).collect();
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

    /// Looks as an agent does that runs all the time: nobody is lost.
    fn look(agent: &mut News, from: Instant, until: Instant) {
        let mut now = from;
        while now < until {
            now = (now + BEAT_EVERY).min(until);
            assert_eq!(agent.lost(now), [0; 0]);
        }
    }

    #[test]
    fn who_did_not_run_counts_that_as_nobodys_silence() {
        let start = Instant::now();
        let [mut a, mut b] = agents(2, start).try_into().ok().unwrap();
        carry(&mut b, &mut a, start);
        let mut now = start;
        // It was stopped three times: each costs one step.
        for seconds in [20, 3, 3600] {
            now += Duration::from_secs(seconds);
            assert_eq!(a.lost(now), [0; 0], "{seconds} s");
        }
        let left = SILENCE - 3 * BEAT_EVERY;
        look(&mut a, now, now + left - RETRY);
        assert_eq!(a.lost(now + left), [2, 3]);
    }

    #[test]
    fn a_silent_host_is_lost_and_one_without_agent_is_not() {
        let start = Instant::now();
        let [mut a, mut b, mut c] = agents(3, start).try_into().ok().unwrap();
        let (_, bytes) = b.next(start).unwrap();
        a.hear(&bytes, start);
        look(&mut a, start, start + SILENCE - RETRY);
        // Of the third nothing was ever heard.
        assert_eq!(a.lost(start + SILENCE), [2, 3]);
        assert_eq!(a.lost(start + 2 * SILENCE), [0; 0], "once");
        let (_, late) = b.next(start + SILENCE).unwrap();
        a.hear(&late, start + SILENCE);
        assert_eq!(a.others[0].newest, 1, "the dead are not listened to");
        let (_, bytes) = c.next(start).unwrap();
        a.hear(&bytes, start);
        a.refused(1);
        assert_eq!(a.lost(start + 3 * SILENCE), [0; 0]);
        a.add(killed(0), start);
        assert!(a.is_told() && a.next(start).is_none(), "nobody listens");
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
        // A member that tells of ranks which are not its own, or garbage.
        let [mut a, mut b] = agents(2, now).try_into().ok().unwrap();
        a.add(killed(3), now);
        a.set_stopped(vec![2]);
        assert_eq!(carry(&mut a, &mut b, now), []);
        assert_eq!(End::decode(&[9; END_BYTES]), None);
        assert!(carry(&mut b, &mut a, now).is_empty() && a.is_told());
    }

    #[test]
    fn a_different_secret_is_heard_by_nobody() {
        let now = Instant::now();
        let [a, mut b] = agents(2, now).try_into().ok().unwrap();
        let private = Secret::new([1; 32]);
        let own = Identity {
            host: 0,
            private: &private,
            public: public_key(&private),
            mix: Some(&Secret::new([5; 32])),
        };
        let hosts = a.others.iter().map(|other| other.card.clone()).collect();
        let mut mixed = News::new(&own, hosts, SILENCE, now);
        mixed.add(killed(1), now);
        assert_eq!(carry(&mut mixed, &mut b, now), []);
        assert_eq!(b.others[0].newest, 0);
    }
}
