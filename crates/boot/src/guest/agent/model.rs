//! Tests agents on random cuts in virtual time: cuts lose their datagrams,
//! others are delayed and reordered.

use std::time::{Duration, Instant};

use portolan_seal::derive;

use super::events::{EventLog, HostCard, Word};
use crate::partition::model::{Chance, Plan};

const SILENCE: Duration = Duration::from_millis(2_500);
/// Silence after which a rank gives another up.
const RANKS_SILENCE: Duration = Duration::from_secs(3);
/// Longest delay of a datagram, ms.
const LATE: u64 = 100;
const STEP: Duration = Duration::from_millis(20);
/// The last cut begins before this, s, and ends 20 s later at most.
const LAST: u64 = 5;
/// Bound of a rank's wait for one that it does not hear: until it is reported
/// dead, or this rank is to end itself. Covers the silence, the deciding
/// agent's wait for more reports, and that agent's loss in the middle of it.
const BOUND: Duration = Duration::from_secs(10);

struct Host {
    events: EventLog,
    /// When its ranks end, if they do.
    ends_at: Option<Duration>,
    dead: Vec<u16>,
    /// When the rank here has last heard of each other one.
    heard: Vec<Duration>,
}

/// One rank a host, which has the host's number.
fn hosts(count: u16, start: Instant) -> Vec<Host> {
    let each = |events| Host {
        events,
        ends_at: None,
        dead: Vec::new(),
        heard: vec![Duration::ZERO; count.into()],
    };
    let key = |host: u16| [host as u8 + 1; 32];
    let card = |host: u16| HostCard {
        host,
        ip: [0; 16],
        port: 7,
        key: key(host),
        ranks: vec![host.into()],
    };
    let agent = |host: u16| {
        let others = (0..count).filter(|it| *it != host).map(card).collect();
        // A key agreement of two agents costs more than all their datagrams.
        let pair = |other: &HostCard| {
            let [low, high] = [host.min(other.host), host.max(other.host)];
            Some(derive(&key(low), &key(high)))
        };
        EventLog::with_secrets((host, key(host)), others, SILENCE, start, pair)
    };
    (0..count).map(agent).map(each).collect()
}

fn run(count: u16, seed: u64) {
    let mut chance = Chance::new(seed);
    let plan = Plan::random(count, LAST, &mut chance);
    // An agent that ends takes its ranks along, as when its host is lost.
    let lost = (chance.below(4) == 0).then(|| {
        let host = chance.below(count.into()) as u16;
        (
            host,
            Duration::from_secs(1) + chance.millis(1000 * (LAST - 1)),
        )
    });
    // Ranks that communicate, or agents alone.
    let talks = chance.below(2) == 0;
    let start = Instant::now();
    let mut all = hosts(count, start);
    let mut under_way: Vec<(Duration, u16, u16, Vec<u8>)> = Vec::new();
    let mut changed_at = Duration::ZERO;
    let end = Duration::from_secs(LAST + 20) + BOUND;
    let mut now = Duration::ZERO;
    while now < end {
        let at = start + now;
        let is_lost = |host: u16| lost.is_some_and(|(it, since)| it == host && now >= since);
        let is_gone = |all: &[Host], it: u16| {
            is_lost(it) || all[it as usize].ends_at.is_some_and(|at| now >= at)
        };
        let asks = talks && now.as_millis().is_multiple_of(100);
        let mut came: Vec<_> = Vec::new();
        under_way.retain_mut(|(due, from, to, bytes)| {
            let is_due = *due <= now;
            if is_due {
                came.push((*from, *to, std::mem::take(bytes)));
            }
            !is_due
        });
        for host in 0..count {
            // A host whose ranks have ended reports that for a second, like an agent.
            let speaks = all[host as usize]
                .ends_at
                .is_none_or(|at| now < at + Duration::from_secs(1));
            if is_lost(host) || !speaks {
                continue;
            }
            let mut words = Vec::new();
            for (_, _, bytes) in came.iter().filter(|(_, to, _)| *to == host) {
                words.extend(all[host as usize].events.hear(bytes, at));
            }
            for peer in (0..count).filter(|peer| asks && *peer != host) {
                let way = plan.passes(host, peer, now) && plan.passes(peer, host, now);
                let is_up = way && !is_gone(&all, peer);
                let it = &mut all[host as usize];
                let heard_at = it.heard[usize::from(peer)];
                if is_up && now < heard_at + RANKS_SILENCE {
                    it.heard[usize::from(peer)] = now;
                } else if !it.dead.contains(&peer)
                    && it.ends_at.is_none()
                    && now >= heard_at + RANKS_SILENCE
                {
                    it.events.give_up(peer.into(), at);
                    let waited = now - heard_at;
                    assert!(waited < BOUND, "seed {seed}: {host} waits for {peer}");
                }
            }
            let it = &mut all[host as usize];
            for ranks in it.events.doubts(at) {
                for rank in ranks.into_iter().filter(|_| talks) {
                    it.events.heard_of(rank, start + it.heard[rank as usize]);
                }
            }
            words.extend(it.events.judge(at));
            for word in words {
                match word {
                    Word::Died { rank, .. } => it.dead.push(rank as u16),
                    Word::Leave { .. } => it.ends_at = Some(now + Duration::from_millis(500)),
                    Word::Stopped { .. } => panic!("nobody is stopped"),
                }
                changed_at = now;
            }
            while let Some((to, bytes)) = it.events.next(at) {
                let to = (0..count).filter(|other| *other != host).nth(to).unwrap();
                if plan.passes(host, to, now) && !is_lost(to) {
                    let due = now + Duration::from_millis(1) + chance.millis(LATE);
                    under_way.push((due, host, to, bytes));
                }
            }
        }
        now += STEP;
    }
    let is_gone = |host: &u16| {
        lost.is_some_and(|(it, _)| it == *host) || all[usize::from(*host)].ends_at.is_some()
    };
    let gone: Vec<u16> = (0..count).filter(is_gone).collect();
    for (host, it) in (0..count).zip(&mut all) {
        it.dead.sort_unstable();
        assert!(
            gone.contains(&host) || it.dead == gone,
            "seed {seed}: {host} knows {:?}, {gone:?}",
            it.dead
        );
    }
    assert!(changed_at < end - SILENCE, "seed {seed}: {changed_at:?}");
}

#[test]
fn all_that_are_left_agree() {
    for seed in 0..10_000 {
        run([2, 3, 5, 8][seed as usize % 4], seed);
    }
}
