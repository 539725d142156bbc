//! The exchange in which all ranks take part: each sends its address, then all
//! get the table.

use std::io;
use std::time::{Duration, Instant};

use super::agent_protocol::Order;
use super::member::Member;
use super::{Event, RankPlace, Running};
use crate::job::PeerInfo;
use crate::message::RECORDS_MAX;

/// Wait after which the launcher reports the missing ranks; then again each
/// time the wait has doubled.
const FIRST_WARNING: Duration = Duration::from_secs(5);
/// An exchange in progress.
pub(super) struct Round {
    since: Instant,
    warn_after: Duration,
    /// Among ranks that were started again only.
    again: bool,
}

impl Round {
    fn new(again: bool) -> Self {
        Self {
            again,
            since: Instant::now(),
            warn_after: FIRST_WARNING,
        }
    }

    /// When the next warning is due, or the exchange's timeout, `limit`.
    pub fn deadline(&self, limit: Option<Duration>) -> Option<Instant> {
        let warn = self.since.checked_add(self.warn_after);
        let limit = limit.and_then(|limit| self.since.checked_add(limit));
        warn.into_iter().chain(limit).min()
    }
}

impl Running {
    /// Reports missing ranks, or ends a job that has waited too long.
    pub(super) fn hurry_round(
        &mut self,
        now: Instant,
        tell: &mut dyn FnMut(Event),
    ) -> io::Result<()> {
        let Some(round) = &mut self.round else {
            return Ok(());
        };
        let waited = now - round.since;
        let warn = waited >= round.warn_after;
        if warn {
            round.warn_after *= 2;
        }
        let missing = self.missing();
        if self.spec.join_timeout.is_some_and(|limit| waited >= limit) {
            let why = format!(
                "{} did not join within {} s (programs join when they open their endpoint; \
                 --join-timeout changes the limit)",
                name_ranks(&missing),
                waited.as_secs()
            );
            self.end(why, 1, Duration::ZERO, tell)?;
        } else if warn {
            tell(Event::Waiting { missing, waited });
        }
        Ok(())
    }

    /// Returns the missing ranks: among ranks that were started again only those, else all.
    fn missing(&self) -> Vec<u32> {
        let new = self.newcomers();
        let missing = |m: &&Member| m.address.is_none();
        let rank = |m: &Member| m.place.rank;
        if new.is_empty() {
            return self.members.iter().filter(missing).map(rank).collect();
        }
        let new = new.iter().map(|&index| &self.members[index]);
        new.filter(missing).map(rank).collect()
    }

    pub(super) fn handle_join(
        &mut self,
        rank: u32,
        pid: u32,
        address: [u8; 64],
        tell: &mut dyn FnMut(Event),
    ) -> io::Result<()> {
        let member = &mut self.members[rank as usize];
        member.pid = pid;
        member.address = Some(address);
        let again = self.begun && !member.joined;
        self.round.get_or_insert_with(|| Round::new(again));
        self.check_round(tell)
    }

    /// Completes the exchange if all have come; ends a job whose exchange
    /// cannot complete any more.
    pub(super) fn check_round(&mut self, tell: &mut dyn FnMut(Event)) -> io::Result<()> {
        let Some(round) = &self.round else {
            return Ok(());
        };
        if self.ending.is_some() {
            return Ok(());
        }
        if round.again {
            let new = self.newcomers();
            let has_come = |index: &usize| self.members[*index].address.is_some();
            return if new.iter().all(has_come) {
                self.admit(&new)
            } else {
                Ok(())
            };
        }
        if self.missing().is_empty() {
            return self.send_table();
        }
        let gone = self
            .members
            .iter()
            .find_map(|m| match (m.ended, m.address) {
                (Some(how), None) => Some((m.place.rank, how)),
                _ => None,
            });
        if let Some((rank, how)) = gone {
            let why = format!("rank {rank} ended ({how}) before it joined the others");
            self.end(why, 1, self.spec.notice_grace, tell)?;
        }
        Ok(())
    }

    fn send_table(&mut self) -> io::Result<()> {
        let info = |member: &mut Member| {
            member.joined = true;
            let RankPlace {
                host_index,
                local_index,
                restarts,
                ..
            } = member.place;
            let peer = PeerInfo {
                address: member.address.take().expect("all have joined"),
                pid: member.pid,
                host_index,
                local_index,
                restarts,
                since: member.entry.map_or(0, |entry| entry.since),
            };
            member.entry = Some(peer);
            peer
        };
        let table: Vec<PeerInfo> = self.members.iter_mut().map(info).collect();
        self.round = None;
        self.begun = true;
        log::debug!("all {} ranks have joined", table.len());
        let mut first = 0;
        for part in table.chunks(RECORDS_MAX) {
            let peers = part.to_vec();
            let order = Order::Table { first, peers };
            self.order_all(&order)?;
            first += u32::try_from(part.len()).expect("at most RANKS_MAX");
        }
        Ok(())
    }
}

/// "rank 3", "ranks 1, 2 and 5", or the first few of many.
#[must_use]
fn name_ranks(ranks: &[u32]) -> String {
    const SHOWN: usize = 8;
    let text = |part: &[u32]| {
        part.iter()
            .map(u32::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    };
    match ranks {
        [] => "no rank".to_owned(),
        [one] => format!("rank {one}"),
        [first @ .., last] if ranks.len() <= SHOWN => format!("ranks {} and {last}", text(first)),
        _ => format!(
            "ranks {} and {} others",
            text(&ranks[..SHOWN]),
            ranks.len() - SHOWN
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_named() {
        assert_eq!(name_ranks(&[3]), "rank 3");
        assert_eq!(name_ranks(&[1, 2, 5]), "ranks 1, 2 and 5");
        let many: Vec<u32> = (0..20).collect();
        assert_eq!(
            name_ranks(&many),
            "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 12 others"
        );
    }
}
