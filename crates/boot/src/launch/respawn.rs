//! Starts ranks of a host that has left the job again on others, with the same
//! number and a new life. These join the ranks that have gone on.

use std::io;
use std::time::{Duration, Instant};

use super::agent_protocol::{Order, ToHost};
use super::watch::{Side, index_of};
use super::{Event, OnDeath, Running, Starter};
use crate::job::PeerInfo;
use crate::message::{How, RECORDS_MAX};

/// Time after the end of a rank by a signal in which its host may turn out to
/// be lost: a host that goes down ends its processes one after the other.
const DOUBT: Duration = Duration::from_secs(1);

/// A host on which a rank may be started.
#[derive(Debug, PartialEq, Eq)]
struct Room {
    host: usize,
    /// Ranks that run there.
    runs: usize,
    slots: u32,
}

/// Returns the first host with a free slot; else the one with the fewest ranks
/// for its slots, and that it is full.
fn choose(rooms: &[Room]) -> Option<(usize, bool)> {
    let free = rooms.iter().find(|room| room.runs < room.slots as usize);
    let load = |room: &&Room| (room.runs << 32) / room.slots.max(1) as usize;
    let next = free.or_else(|| rooms.iter().min_by_key(load))?;
    Some((next.host, free.is_none()))
}

/// Returns why a rank that was started again this often is not once more.
fn spent(times: u32) -> String {
    let often = match times {
        1 => "once".to_owned(),
        times => format!("{times} times"),
    };
    format!("it was started again {often} (--respawn {times})")
}

impl Running {
    /// Whether ranks of a lost host are started again now. Until all have
    /// joined there is no job to come back to.
    pub(super) fn respawns(&self) -> bool {
        self.spec.respawn > 0 && self.begun && self.ending.is_none()
    }

    /// Whether a rank that has ended just now is to be started on another host.
    pub(super) fn is_to_return(&self, rank: u32, how: How, orderly: bool) -> bool {
        let member = &self.members[rank as usize];
        let host = usize::from(member.place.host_index);
        let leaves = self.excluded.contains(host) || matches!(self.hosts[host], Side::None);
        let is_done = member.left || (orderly && how.code() == 0);
        self.respawns() && leaves && !is_done
    }

    /// Whether a rank that a signal has ended may be the first of a lost host:
    /// then judgement waits for that.
    pub(super) fn may_be_its_host(&mut self, rank: u32, how: How) -> bool {
        let host = usize::from(self.members[rank as usize].place.host_index);
        let is_there = matches!(self.hosts[host], Side::There(_));
        let doubt = self.respawns() && is_there && matches!(how, How::Killed(_));
        if doubt {
            self.doubts.push((rank, Instant::now() + DOUBT));
        }
        doubt
    }

    /// Resolves the doubts about a host that is lost: its ranks are started again.
    pub(super) fn confirm_doubts(&mut self, host: usize) {
        let members = &mut self.members;
        self.doubts.retain(|(rank, _)| {
            let member = &mut members[*rank as usize];
            let was = member.is_on(host);
            member.again |= was && !member.left;
            !was
        });
    }

    /// Resolves doubts after their time: the ranks have failed by themselves.
    pub(super) fn settle_doubts(
        &mut self,
        now: Instant,
        tell: &mut dyn FnMut(Event),
    ) -> io::Result<()> {
        while let Some(at) = self.doubts.iter().position(|(_, until)| now >= *until) {
            let (rank, _) = self.doubts.remove(at);
            if let Some(how) = self.members[rank as usize].ended {
                self.blame(rank, how, tell)?;
            }
            self.check_round(tell)?;
        }
        Ok(())
    }

    /// Whether a rank of the job is on a host.
    pub(super) fn has_ranks(&self, host: usize) -> bool {
        self.members.iter().any(|member| member.is_on(host))
    }

    /// Returns the hosts on which ranks may be started, except `but`.
    fn rooms(&self, but: &[usize]) -> Vec<Room> {
        let runs = |host| {
            let there = self.members.iter().filter(|m| m.is_on(host));
            there.filter(|m| m.ended.is_none()).count()
        };
        (0..self.hosts.len())
            .filter(|host| !matches!(self.hosts[*host], Side::None))
            .filter(|host| !self.excluded.contains(*host) && !but.contains(host))
            .map(|host| Room {
                host,
                runs: runs(host),
                slots: self.spec.slots.get(host).copied().unwrap_or_default(),
            })
            .collect()
    }

    /// Whether the job can go on without these hosts, on others.
    pub(super) fn can_move_from(&self, hosts: &[usize]) -> bool {
        self.respawns() && !self.rooms(hosts).is_empty()
    }

    fn place_for(&self, rank: u32) -> Result<(usize, bool), String> {
        let place = self.members[rank as usize].place;
        if place.restarts >= self.spec.respawn {
            return Err(spent(self.spec.respawn));
        }
        let partition = |host: usize| self.spec.partitions.get(host);
        let own = partition(place.host_index.into());
        let mut rooms = self.rooms(&[]);
        rooms.retain(|room| partition(room.host) == own);
        let of = own.map_or("", |_| " of its partition");
        choose(&rooms).ok_or_else(|| format!("no host{of} is left"))
    }

    /// Starts ranks again that have died with their host, once all ranks of
    /// that host have ended.
    pub(super) fn restart_dead(
        &mut self,
        starter: &mut dyn Starter,
        tell: &mut dyn FnMut(Event),
    ) -> io::Result<()> {
        if self.spec.respawn == 0 {
            return Ok(());
        }
        let waits = |host| {
            let mut there = self.members.iter().filter(|m| m.is_on(host));
            there.any(|m| m.ended.is_none())
        };
        let due: Vec<u32> = self
            .members
            .iter()
            .filter(|m| m.again && !waits(m.place.host_index.into()))
            .map(|m| m.place.rank)
            .collect();
        for rank in due {
            self.members[rank as usize].again = false;
            match self.place_for(rank) {
                _ if self.ending.is_some() => {}
                Ok((host, crowded)) => self.restart(rank, (host, crowded), starter, tell)?,
                Err(why) => self.give_up(rank, why, tell)?,
            }
        }
        Ok(())
    }

    fn restart(
        &mut self,
        rank: u32,
        (host, crowded): (usize, bool),
        starter: &mut dyn Starter,
        tell: &mut dyn FnMut(Event),
    ) -> io::Result<()> {
        let member = &mut self.members[rank as usize];
        *member = member.next_life(index_of(host));
        let restarts = member.place.restarts;
        self.alive += 1;
        self.drained[host] = false;
        if rank == 0 {
            // Input that its first life has read cannot be read again.
            self.source = None;
        }
        tell(Event::Restarting {
            rank,
            host_index: index_of(host),
            restarts,
            crowded,
        });
        match &mut self.hosts[host] {
            Side::Here(part) => part.restart(rank, restarts, starter),
            _ => self.order(host, &Order::Said(ToHost::Restart { rank, restarts }))?,
        }
        self.hear(host, tell)
    }

    /// Gives up a rank of a host that has left: it stays dead.
    fn give_up(&mut self, rank: u32, why: String, tell: &mut dyn FnMut(Event)) -> io::Result<()> {
        tell(Event::NotRestarted { rank, why });
        let member = &self.members[rank as usize];
        let host = usize::from(member.place.host_index);
        // A user who excludes a host wants the rest to go on.
        if !self.excluded.was_wanted(host) {
            let is_killed = self.excluded.contains(host);
            let code = member.ended.filter(|_| !is_killed).map_or(1, How::code);
            self.code.get_or_insert(code);
            if self.spec.on_death == OnDeath::End && self.alive > 0 {
                let why = format!("rank {rank} died with its host");
                return self.end(why, code, self.spec.notice_grace, tell);
            }
        }
        self.check_round(tell)
    }

    /// Returns the ranks that were started again and have not joined yet.
    pub(super) fn newcomers(&self) -> Vec<usize> {
        let is_new = |m: &super::member::Member| !m.joined && m.ended.is_none();
        (0..self.members.len())
            .filter(|rank| self.begun && is_new(&self.members[*rank]))
            .collect()
    }

    /// Admits ranks that were started again, all of which have come: each gets
    /// the present table, and all others their new entries.
    pub(super) fn admit(&mut self, newcomers: &[usize]) -> io::Result<()> {
        self.round = None;
        let mut back = Vec::new();
        for &index in newcomers {
            self.returns += 1;
            let since = self.returns;
            let member = &mut self.members[index];
            let Some(address) = member.address.take() else {
                continue;
            };
            let peer = PeerInfo {
                address,
                pid: member.pid,
                host_index: member.place.host_index,
                local_index: member.place.local_index,
                restarts: member.place.restarts,
                since,
            };
            member.joined = true;
            member.entry = Some(peer);
            back.push((member.place.rank, peer));
        }
        let table: Vec<PeerInfo> = self
            .members
            .iter()
            .filter_map(|m| {
                let pid = m.ended.map_or(m.pid, |_| 0);
                Some(PeerInfo { pid, ..m.entry? })
            })
            .collect();
        let gone = |m: &super::member::Member| match (m.left, m.ended) {
            (false, None) => None,
            (true, _) => Some((m.place.rank, None)),
            (false, how) => Some((m.place.rank, how)),
        };
        let gone: Vec<_> = self.members.iter().filter_map(gone).collect();
        for (to, peer) in &back {
            let host = usize::from(peer.host_index);
            let to = *to;
            let gone = gone.clone();
            self.order(host, &Order::Said(ToHost::Gone { to, gone }))?;
            let mut first = 0;
            for part in table.chunks(RECORDS_MAX) {
                let peers = part.to_vec();
                self.order(host, &Order::TableFor { to, first, peers })?;
                first += u32::try_from(part.len()).expect("at most RANKS_MAX");
            }
        }
        for (rank, peer) in back {
            log::info!("rank {rank} is back, on host {}", peer.host_index);
            self.order_all(&Order::Back { rank, peer })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_words_where_they_are_one() {
        assert!(spent(1).contains("again once (--respawn 1)"));
        assert!(spent(2).contains("again 2 times (--respawn 2)"));
    }

    #[test]
    fn free_slots_come_first_then_the_least_loaded() {
        let room = |host, runs, slots| Room { host, runs, slots };
        assert_eq!(choose(&[]), None);
        let rooms = [room(0, 2, 2), room(3, 1, 4), room(4, 0, 1)];
        assert_eq!(choose(&rooms), Some((3, false)));
        let rooms = [room(0, 2, 2), room(3, 4, 4), room(4, 3, 4), room(5, 1, 1)];
        assert_eq!(choose(&rooms), Some((4, false)));
        let rooms = [room(0, 3, 2), room(3, 5, 4), room(5, 2, 1)];
        assert_eq!(choose(&rooms), Some((3, true)));
        // Without slots each rank counts the same.
        let rooms = [room(1, 3, 0), room(2, 1, 0)];
        assert_eq!(choose(&rooms), Some((2, true)));
    }
}
