//! The launcher's loop, from the start of the ranks to the end of the last.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::process::Signal;

use super::rank::With;
use super::{Event, OnDeath, Running};
use crate::error::Refusal;
use crate::job::PeerInfo;
use crate::message::{
    FromRank, RECORDS_MAX, ToLauncher, ToRank, Versions, decode_from_rank, encode_table, key_check,
};
use crate::socket::{self, DESCRIPTORS_MAX};

/// After this long the launcher says whom the others wait for; then again
/// each time the wait has doubled.
const FIRST_WARNING: Duration = Duration::from_secs(5);

/// A reason from outside to end the job: when `descriptor` becomes readable.
/// When it does again, ranks are killed at once.
#[derive(Debug)]
pub struct Stop {
    /// Readable when it is time.
    pub descriptor: OwnedFd,
    /// Exit code of the job.
    pub code: i32,
    /// For the user to read.
    pub why: String,
}

struct Ending {
    term_at: Instant,
    kill_at: Instant,
    termed: bool,
    killed: bool,
}

struct Round {
    since: Instant,
    warn_after: Duration,
}

struct Watch<'a> {
    job: &'a mut Running,
    stops: Vec<Stop>,
    epoll: OwnedFd,
    tell: &'a mut dyn FnMut(Event),
    code: Option<i32>,
    ending: Option<Ending>,
    /// The exchange that is under way: some have given their address.
    round: Option<Round>,
    alive: usize,
}

#[derive(Clone, Copy)]
enum Token {
    Control(usize),
    Process(usize),
    Stop(usize),
}

impl Token {
    fn data(self) -> epoll::EventData {
        let (kind, index) = match self {
            Self::Control(i) => (0, i),
            Self::Process(i) => (1, i),
            Self::Stop(i) => (2, i),
        };
        epoll::EventData::new_u64(index as u64 * 3 + kind)
    }

    fn from_data(data: epoll::EventData) -> Self {
        let value = data.u64();
        let index = usize::try_from(value / 3).expect("made from an index");
        match value % 3 {
            0 => Self::Control(index),
            1 => Self::Process(index),
            _ => Self::Stop(index),
        }
    }
}

impl Running {
    /// Serves the job until its last rank has ended; gives its exit code: that
    /// of the first rank that ended abnormally, else 0.
    ///
    /// # Errors
    /// The kernel refused to watch; the ranks are then killed.
    pub fn wait(mut self, stops: Vec<Stop>, tell: &mut dyn FnMut(Event)) -> io::Result<i32> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (index, rank) in self.ranks.iter().enumerate() {
            let control = rank.control.as_ref().expect("not yet closed");
            epoll::add(
                &epoll,
                control,
                Token::Control(index).data(),
                epoll::EventFlags::IN,
            )?;
            let data = Token::Process(index).data();
            epoll::add(&epoll, &rank.process, data, epoll::EventFlags::IN)?;
        }
        for (index, stop) in stops.iter().enumerate() {
            let data = Token::Stop(index).data();
            epoll::add(&epoll, &stop.descriptor, data, epoll::EventFlags::IN)?;
        }
        let alive = self.ranks.len();
        let job = &mut self;
        let (code, ending, round) = (None, None, None);
        Watch {
            job,
            stops,
            epoll,
            tell,
            code,
            ending,
            round,
            alive,
        }
        .run()
    }
}

impl Watch<'_> {
    fn run(mut self) -> io::Result<i32> {
        while self.alive > 0 {
            let timeout = self
                .next_deadline()
                .map(|at| at.saturating_duration_since(Instant::now()));
            let timeout = timeout.map(|t| Timespec {
                tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: t.subsec_nanos().into(),
            });
            let none = epoll::Event {
                flags: epoll::EventFlags::empty(),
                data: epoll::EventData::new_u64(0),
            };
            let mut events = [none; 64];
            let n = match epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()) {
                Err(Errno::INTR) => 0,
                other => other?,
            };
            for event in &events[..n] {
                match Token::from_data(event.data) {
                    Token::Control(index) => self.handle_control(index)?,
                    Token::Process(index) => self.handle_process(index)?,
                    Token::Stop(index) => self.handle_stop(index),
                }
            }
            self.handle_time();
        }
        Ok(self.code.unwrap_or(0))
    }

    fn next_deadline(&self) -> Option<Instant> {
        if let Some(ending) = &self.ending {
            return match (ending.termed, ending.killed) {
                (false, _) => Some(ending.term_at),
                (true, false) => Some(ending.kill_at),
                (true, true) => None,
            };
        }
        let round = self.round.as_ref()?;
        let warn = round.since.checked_add(round.warn_after);
        let limit = self
            .job
            .spec
            .join_timeout
            .and_then(|t| round.since.checked_add(t));
        [warn, limit].into_iter().flatten().min()
    }

    fn handle_time(&mut self) {
        let now = Instant::now();
        if let Some(ending) = &mut self.ending {
            let mut signals = Vec::new();
            if !ending.termed && now >= ending.term_at {
                ending.termed = true;
                // A stopped process takes SIGTERM only once it continues.
                signals.extend([Signal::TERM, Signal::CONT]);
            }
            if !ending.killed && now >= ending.kill_at {
                ending.killed = true;
                signals.push(Signal::KILL);
            }
            for rank in self.job.ranks.iter().filter(|r| r.ended.is_none()) {
                signals.iter().for_each(|&signal| rank.signal(signal));
            }
        } else if let Some(round) = &mut self.round {
            let waited = now - round.since;
            let warn = waited >= round.warn_after;
            if warn {
                round.warn_after *= 2;
            }
            let missing = self.missing();
            if self
                .job
                .spec
                .join_timeout
                .is_some_and(|limit| waited >= limit)
            {
                let why = format!(
                    "{} did not join within {} s (programs join when they open their endpoint; \
                     --join-timeout changes the limit)",
                    name_ranks(&missing),
                    waited.as_secs()
                );
                self.end(why, 1, Duration::ZERO);
            } else if warn {
                (self.tell)(Event::Waiting { missing, waited });
            }
        }
    }

    fn missing(&self) -> Vec<u32> {
        let ranks = self.job.ranks.iter();
        ranks
            .filter(|r| r.address.is_none())
            .map(|r| r.place.rank)
            .collect()
    }

    /// Sends to a rank, and asks to hear of room if there is too little.
    fn send(&mut self, index: usize, bytes: Rc<[u8]>, with: With) {
        let host = usize::from(self.job.ranks[index].place.host_index);
        self.job.ranks[index].send(bytes, with, &self.job.hosts[host]);
        self.watch_room(index);
    }

    fn watch_room(&self, index: usize) {
        let rank = &self.job.ranks[index];
        if let Some(control) = &rank.control {
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, rank.is_behind());
            // It was added at the start and leaves when it is closed.
            let _ = epoll::modify(&self.epoll, control, Token::Control(index).data(), flags);
        }
    }

    /// Tells all that have attached, except `but`.
    fn broadcast(&mut self, message: &ToRank, but: Option<usize>) {
        let bytes: Rc<[u8]> = message.encode().into();
        for index in 0..self.job.ranks.len() {
            let rank = &self.job.ranks[index];
            if Some(index) != but && rank.greeted.is_some() && rank.ended.is_none() {
                self.send(index, bytes.clone(), With::nothing());
            }
        }
    }

    /// Begins to end the job, unless that has begun.
    fn end(&mut self, why: String, code: i32, grace: Duration) {
        if self.ending.is_some() {
            return;
        }
        self.code.get_or_insert(code);
        let term_at = Instant::now() + grace;
        let kill_at = term_at + self.job.spec.term_grace;
        self.ending = Some(Ending {
            term_at,
            kill_at,
            termed: false,
            killed: false,
        });
        self.broadcast(&ToRank::Abort { why: why.clone() }, None);
        (self.tell)(Event::Ending { why });
    }

    fn handle_stop(&mut self, index: usize) {
        let stop = &self.stops[index];
        let mut bytes = [0; 8];
        let _ = rustix::io::read(&stop.descriptor, &mut bytes);
        let (why, code) = (stop.why.clone(), stop.code);
        match &mut self.ending {
            Some(ending) if ending.termed => ending.kill_at = Instant::now(),
            Some(ending) => ending.term_at = Instant::now(),
            None => self.end(why, code, Duration::ZERO),
        }
    }

    fn handle_process(&mut self, index: usize) -> io::Result<()> {
        let Some(how) = self.job.ranks[index].reap()? else {
            return Ok(());
        };
        // What it said last may still wait in its socket.
        self.handle_control(index)?;
        self.close_control(index);
        let rank = &self.job.ranks[index];
        let _ = epoll::delete(&self.epoll, &rank.process);
        let (place, pid) = (rank.place, rank.pid());
        let orderly = rank.left || !rank.joined;
        let abnormal = how.code() != 0;
        self.alive -= 1;
        let expected = self.ending.is_some();
        (self.tell)(Event::Ended {
            place,
            pid,
            how,
            orderly,
            expected,
        });
        if !self.job.ranks[index].left {
            for doorbell in &self.job.hosts[usize::from(place.host_index)].doorbells {
                // It can fail only with a full counter, and then the bell rings.
                let _ = rustix::io::write(doorbell, &1_u64.to_ne_bytes());
            }
        }
        if abnormal || !orderly {
            self.broadcast(
                &ToRank::Died {
                    rank: place.rank,
                    how,
                },
                Some(index),
            );
        }
        if abnormal && !expected {
            self.code.get_or_insert(how.code());
            if self.job.spec.on_death == OnDeath::End && self.alive > 0 {
                let why = format!("rank {} ended by {how}", place.rank);
                self.end(why, how.code(), self.job.spec.notice_grace);
            }
        }
        self.check_round();
        Ok(())
    }

    fn close_control(&mut self, index: usize) {
        if let Some(control) = self.job.ranks[index].control.take() {
            let _ = epoll::delete(&self.epoll, &control);
        }
    }

    fn handle_control(&mut self, index: usize) -> io::Result<()> {
        let host = usize::from(self.job.ranks[index].place.host_index);
        self.job.ranks[index].flush(&self.job.hosts[host]);
        while let Some(control) = &self.job.ranks[index].control {
            match socket::receive(control.as_fd(), false) {
                Ok(Some(message)) => self.handle_message(index, &message.bytes)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(None) | Err(_) => self.close_control(index),
            }
        }
        self.watch_room(index);
        Ok(())
    }

    fn handle_message(&mut self, index: usize, bytes: &[u8]) -> io::Result<()> {
        let number = self.job.ranks[index].place.rank;
        match decode_from_rank(bytes) {
            Ok(FromRank::Said(ToLauncher::Hello { versions, pid })) => {
                self.handle_hello(index, versions, pid)?;
            }
            Ok(FromRank::Said(ToLauncher::Lanes(lanes))) => {
                (self.tell)(Event::Lanes {
                    rank: number,
                    lanes,
                });
            }
            Ok(FromRank::Said(ToLauncher::Leave)) => self.job.ranks[index].left = true,
            Ok(FromRank::Said(ToLauncher::Abort { code })) => {
                let why = format!("rank {number} asked for it, with exit code {code}");
                self.end(why, code.into(), Duration::ZERO);
            }
            Ok(FromRank::Join { address, check }) => self.handle_join(index, address, check),
            Err(_) => {
                let why = format!(
                    "rank {number} sent what this version of Portolan does not understand; \
                     build program and launcher from one version"
                );
                self.end(why, 1, Duration::ZERO);
            }
        }
        Ok(())
    }

    fn refuse(&mut self, index: usize, why: Refusal) {
        let rank = self.job.ranks[index].place.rank;
        self.send(
            index,
            ToRank::Refused(why.clone()).encode().into(),
            With::nothing(),
        );
        (self.tell)(Event::Refused { rank, why });
        self.end(
            format!("rank {rank} was not let in"),
            1,
            self.job.spec.notice_grace,
        );
    }

    fn handle_hello(&mut self, index: usize, versions: Versions, pid: u32) -> io::Result<()> {
        if versions != Versions::ours() {
            let launcher = Versions::ours();
            self.refuse(
                index,
                Refusal::Version {
                    launcher,
                    process: versions,
                },
            );
            return Ok(());
        }
        let welcome = self.job.welcome(index)?;
        let segment = welcome.shared;
        let host = usize::from(self.job.ranks[index].place.host_index);
        let doorbells = self.job.hosts[host].doorbells.len();
        let first = doorbells.min(DESCRIPTORS_MAX - 1);
        let bytes = ToRank::Welcome(Box::new(welcome)).encode().into();
        self.send(
            index,
            bytes,
            With {
                segment,
                doorbells: 0..first,
            },
        );
        let mut at = first;
        while at < doorbells {
            let end = doorbells.min(at + DESCRIPTORS_MAX);
            let with = With {
                segment: false,
                doorbells: at..end,
            };
            self.send(index, ToRank::Doorbells.encode().into(), with);
            at = end;
        }
        self.job.ranks[index].greeted = Some(pid);
        // What it missed by coming late.
        for other in 0..self.job.ranks.len() {
            let dead = &self.job.ranks[other];
            if let (Some(how), true, false) = (dead.ended, dead.joined, dead.left) {
                let died = ToRank::Died {
                    rank: dead.place.rank,
                    how,
                };
                self.send(index, died.encode().into(), With::nothing());
            }
        }
        if self.ending.is_some() {
            let why = "the job was ending when this rank came".to_owned();
            self.send(
                index,
                ToRank::Abort { why }.encode().into(),
                With::nothing(),
            );
        }
        Ok(())
    }

    fn handle_join(&mut self, index: usize, address: [u8; 64], check: u64) {
        let spec = &self.job.spec;
        let rank = self.job.ranks[index].place.rank;
        if check != key_check(&self.job.secret, self.job.job_id, spec.security, spec.suite) {
            self.refuse(index, Refusal::KeyCheck { rank });
            return;
        }
        self.job.ranks[index].address = Some(address);
        if self.round.is_none() {
            self.round = Some(Round {
                since: Instant::now(),
                warn_after: FIRST_WARNING,
            });
        }
        if self.job.ranks.iter().all(|r| r.address.is_some()) {
            self.send_table();
        } else {
            self.check_round();
        }
    }

    /// Ends a job whose exchange cannot end any more.
    fn check_round(&mut self) {
        if self.round.is_none() || self.ending.is_some() {
            return;
        }
        let gone = self
            .job
            .ranks
            .iter()
            .find_map(|r| match (r.ended, r.address) {
                (Some(how), None) => Some((r.place.rank, how)),
                _ => None,
            });
        if let Some((rank, how)) = gone {
            let why = format!("rank {rank} ended ({how}) before it joined the others");
            self.end(why, 1, self.job.spec.notice_grace);
        }
    }

    fn send_table(&mut self) {
        let ranks = &mut self.job.ranks;
        let table: Vec<PeerInfo> = ranks
            .iter_mut()
            .map(|rank| {
                rank.joined = true;
                PeerInfo {
                    address: rank.address.take().expect("all have joined"),
                    pid: rank.greeted.unwrap_or_default(),
                    host_index: rank.place.host_index,
                    local_index: rank.place.local_index,
                }
            })
            .collect();
        self.round = None;
        let mut first = 0;
        for part in table.chunks(RECORDS_MAX) {
            let bytes: Rc<[u8]> = encode_table(first, part).into();
            for index in 0..table.len() {
                self.send(index, bytes.clone(), With::nothing());
            }
            first += u32::try_from(part.len()).expect("at most RANKS_MAX");
        }
    }
}

/// "rank 3", "ranks 1, 2 and 5", or the first few of many.
#[must_use]
pub(super) fn name_ranks(ranks: &[u32]) -> String {
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
    use crate::message::How;

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

    #[test]
    fn codes_are_a_shells() {
        assert_eq!(How::Exited(3).code(), 3);
        assert_eq!(How::Killed(9).code(), 137);
        assert_eq!(How::Killed(11).to_string(), "signal 11 (SIGSEGV)");
    }
}
