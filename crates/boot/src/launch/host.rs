//! The host's part of a job: starts its ranks, admits them, watches and
//! controls them, and reports deaths to their neighbours. The job's part, in
//! [`watch`](super::watch), may run in another process on another host.

mod deaths;
mod newcomers;

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use portolan_sys::memory::Hidden;
use portolan_sys::process::is_of_our_pid_namespace;
use portolan_sys::shared_doorbell::SharedDoorbells;
use portolan_sys::socket::{self, DESCRIPTORS_MAX, Received};
use rustix::event::epoll;
use rustix::process::Signal;

use super::agent_protocol::{FromHost, Order, Report, ToHost};
use super::plan::{HostPlan, Seat};
use super::rank::{HostDescriptors, Rank, With};
use super::remote_statistics;
use super::streams::{Input, Outputs};
use super::{LaunchError, RankPlace, Starter, Wanted};
use crate::codec::decode;
use crate::error::Refusal;
use crate::host_port::HostPort;
use crate::job::fill_random;
use crate::liveness::Liveness;
use crate::message::{
    GaveUp, Membership, ToLauncher, ToRank, Versions, encode_membership, key_check,
};
use crate::ready::ready_now;
use crate::{LinkChoice, RANK_VARIABLES};

/// Most descriptors that go before the doorbells: segment, futex words, and a
/// host port's five.
const DESCRIPTORS_BEFORE: usize = 7;

/// The ranks of one host. Dropping it kills them.
pub(super) struct Host {
    pub(super) plan: HostPlan,
    pub(super) ranks: Vec<Rank>,
    descriptors: HostDescriptors,
    liveness: Option<Liveness>,
    epoll: OwnedFd,
    outputs: Outputs,
    /// Whether the outputs' own epoll set is in `epoll`.
    outputs_watched: bool,
    input: Option<Input>,
    reports: VecDeque<Report>,
    alive: usize,
    /// Why the job is being ended; none while it is not.
    ending: Option<String>,
    drained: bool,
}

#[derive(Clone, Copy)]
enum Token {
    Outputs,
    Input,
    /// A rank is about to end.
    Bell,
    /// A check of the ranks is due.
    Timer,
    Control(usize),
    Process(usize),
}

impl Token {
    fn data(self) -> epoll::EventData {
        epoll::EventData::new_u64(match self {
            Self::Outputs => 0,
            Self::Input => 1,
            Self::Bell => 2,
            Self::Timer => 3,
            Self::Control(i) => i as u64 * 2 + 4,
            Self::Process(i) => i as u64 * 2 + 5,
        })
    }

    fn from_word(word: u64) -> Self {
        let index = || usize::try_from(word / 2 - 2).expect("made from an index");
        match word {
            0 => Self::Outputs,
            1 => Self::Input,
            2 => Self::Bell,
            3 => Self::Timer,
            _ if word.is_multiple_of(2) => Self::Control(index()),
            _ => Self::Process(index()),
        }
    }
}

impl Host {
    /// Starts all ranks of a host. [`Host::grant`] must set their host ports
    /// before [`Host::pump`] answers them. The calling thread must stay alive
    /// as long as they do, if they ask to be killed when their parent is.
    ///
    /// # Errors
    /// [`LaunchError`]; ranks started until then are killed.
    pub fn start(
        plan: HostPlan,
        secret: Rc<Hidden<32>>,
        seats: &[Seat],
        starter: &mut dyn Starter,
    ) -> Result<Self, LaunchError> {
        let mut host = Self {
            ranks: Vec::new(),
            descriptors: HostDescriptors {
                secret,
                segment: None,
                lives: None,
                doorbells: None,
            },
            liveness: None,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            outputs: Outputs::new()?,
            outputs_watched: false,
            input: None,
            reports: VecDeque::new(),
            alive: 0,
            ending: None,
            drained: false,
            plan,
        };
        let ranks = host.plan.ranks;
        host.begin_liveness()?;
        if ranks > 0 && !matches!(host.plan.link, LinkChoice::Udp | LinkChoice::Xdp) {
            let segment = starter.segment(host.plan.host_index, ranks);
            host.descriptors.segment = Some(segment.map_err(LaunchError::Segment)?);
            host.descriptors.doorbells = Some(SharedDoorbells::new(ranks as usize)?);
        }
        for local in 0..ranks {
            let seat = seats.get(local as usize).copied().unwrap_or_default();
            let place = RankPlace {
                rank: host.plan.first + local,
                host_index: host.plan.host_index,
                local_index: u16::try_from(local).expect("at most RANKS_MAX"),
                core: seat.core,
                restarts: 0,
            };
            host.start_rank(place, seat.shared, starter)?;
        }
        host.watch_outputs()?;
        Ok(host)
    }

    fn start_rank(
        &mut self,
        place: RankPlace,
        shares_core: bool,
        starter: &mut dyn Starter,
    ) -> Result<(), LaunchError> {
        let rank = place.rank;
        let mut command = starter.command(&place);
        let numbers = [rank, self.plan.size, place.local_index.into()];
        let numbers = numbers.map(|number| number.to_string());
        command.envs(RANK_VARIABLES.into_iter().zip(numbers));
        let mut started =
            Rank::spawn(place, command).map_err(|error| LaunchError::Spawn { rank, error })?;
        started.shares_core = shares_core;
        let pid = started.pid();
        starter.started(&place, pid);
        self.outputs.add(rank, &mut started.child)?;
        if let Some(pipe) = started.child.stdin.take() {
            let data = Token::Input.data();
            epoll::add(&self.epoll, &pipe, data, epoll::EventFlags::empty())?;
            self.input = Some(Input::new(pipe)?);
        }
        let index = self.ranks.len();
        let control = started.control.as_ref().expect("not yet closed");
        let data = Token::Control(index).data();
        epoll::add(&self.epoll, control, data, epoll::EventFlags::IN)?;
        let data = Token::Process(index).data();
        epoll::add(&self.epoll, &started.process, data, epoll::EventFlags::IN)?;
        self.ranks.push(started);
        self.alive += 1;
        self.say(FromHost::Started {
            rank,
            pid,
            local_index: place.local_index,
            core: place.core,
        });
        Ok(())
    }

    /// Returns the wanted host ports of ranks that have no result yet.
    pub fn wanted(&self) -> Vec<Wanted> {
        let wants = self.plan.wants_host_ports();
        let waiting = |rank: &&Rank| wants && rank.granted.is_none();
        let wanted = |rank: &Rank| Wanted {
            place: rank.place,
            ranks: self.plan.ranks,
            at: self.plan.ip,
        };
        self.ranks.iter().filter(waiting).map(wanted).collect()
    }

    /// Sets the results of the [wanted](Self::wanted) host ports, in that order.
    pub fn grant(&mut self, ports: impl IntoIterator<Item = Result<HostPort, String>>) {
        let waiting = self.ranks.iter_mut().filter(|rank| rank.granted.is_none());
        for (rank, port) in waiting.zip(ports) {
            rank.granted = Some(port.map(|port| {
                rank.host_port = Some(port.descriptors);
                rank.unbound = port.unbound;
                rank.lease = Some(port.lease);
                port.info
            }));
        }
    }

    /// Readable when [`Host::pump`] has something to do.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Takes the next report to the job.
    pub fn take_report(&mut self) -> Option<Report> {
        self.reports.pop_front()
    }

    fn say(&mut self, report: FromHost) {
        self.reports.push_back(Report::Said(report));
    }

    /// Handles all that has happened. Does not wait.
    ///
    /// # Errors
    /// A system call failed; nothing to retry.
    pub fn pump(&mut self) -> io::Result<()> {
        for (word, flags) in ready_now(&self.epoll)? {
            match Token::from_word(word) {
                Token::Outputs => self.pump_outputs()?,
                Token::Input if flags.contains(epoll::EventFlags::ERR) => {
                    self.close_input();
                }
                Token::Input => self.flush_input(None)?,
                Token::Bell | Token::Timer => self.check_liveness()?,
                Token::Control(index) => self.handle_control(index)?,
                Token::Process(index) => self.handle_process(index)?,
            }
        }
        Ok(())
    }

    /// Carries out an order of the job.
    ///
    /// # Errors
    /// The kernel refused something; nothing to retry.
    pub fn handle(&mut self, order: &Order) -> io::Result<()> {
        match order {
            Order::Table { first, peers } => {
                let (first, peers) = (*first, peers.clone());
                let bytes: Rc<[u8]> = ToRank::Table { first, peers }.encode().into();
                for index in 0..self.ranks.len() {
                    self.ranks[index].joined = true;
                    self.send(index, bytes.clone(), With::nothing());
                }
            }
            Order::TableFor { to, first, peers } => self.send_table_to(*to, *first, peers),
            Order::Back { rank, peer } => self.tell_back(*rank, *peer),
            Order::Input(bytes) => self.flush_input(Some(Some(bytes)))?,
            Order::Said(said) => match said {
                ToHost::Died { rank, how } => {
                    let (rank, how) = (*rank, *how);
                    if !self.is_here(rank) {
                        self.broadcast(&ToRank::Died { rank, how }, None);
                    }
                }
                ToHost::Stopped { rank } => {
                    if !self.is_here(*rank) {
                        self.vouch(*rank);
                    }
                }
                ToHost::Left { rank } => self.tell_left(*rank),
                ToHost::Gone { to, gone } => self.tell_gone(*to, gone),
                ToHost::Abort { why } => {
                    self.broadcast(&ToRank::Abort { why: why.clone() }, None);
                    self.ending = Some(why.clone());
                }
                // A stopped process takes SIGTERM only once it continues.
                ToHost::Terminate => self.signal(&[Signal::TERM, Signal::CONT]),
                ToHost::Kill => self.signal(&[Signal::KILL]),
                ToHost::KillRank { rank } => {
                    if let Some(index) = self.find(*rank) {
                        self.ranks[index].signal(Signal::KILL);
                    }
                }
                ToHost::InputEnd => self.flush_input(Some(None))?,
                ToHost::Taken { bytes } => {
                    self.outputs.give_room(*bytes);
                    self.pump_outputs()?;
                }
                ToHost::Restart { .. }
                | ToHost::Reach { .. }
                | ToHost::Cut { .. }
                | ToHost::Beat
                | ToHost::Answered { .. }
                | ToHost::Farewell => {}
                ToHost::Look { ticket, look } => {
                    let (ticket, view) = (*ticket, self.view(*look));
                    self.say(FromHost::Seen { ticket, view });
                }
            },
            Order::Start { .. } | Order::Relay { .. } | Order::All(_) => {}
        }
        Ok(())
    }

    fn signal(&self, signals: &[Signal]) {
        for rank in self.ranks.iter().filter(|r| r.ended.is_none()) {
            signals.iter().for_each(|&signal| rank.signal(signal));
        }
    }

    fn pump_outputs(&mut self) -> io::Result<()> {
        self.outputs.pump(&mut self.reports)?;
        self.watch_outputs()?;
        self.check_drained();
        Ok(())
    }

    /// Polls the outputs only while there is room to report them.
    fn watch_outputs(&mut self) -> io::Result<()> {
        let wanted = self.outputs.has_room();
        if wanted && !self.outputs_watched {
            let data = Token::Outputs.data();
            epoll::add(
                &self.epoll,
                &self.outputs.epoll,
                data,
                epoll::EventFlags::IN,
            )?;
        } else if !wanted && self.outputs_watched {
            epoll::delete(&self.epoll, &self.outputs.epoll)?;
        }
        self.outputs_watched = wanted;
        Ok(())
    }

    fn check_drained(&mut self) {
        if self.alive == 0 && !self.drained && self.outputs.is_over() {
            self.drained = true;
            self.say(FromHost::Drained);
        }
    }

    /// Writes queued input, after taking more of it or its end.
    fn flush_input(&mut self, more: Option<Option<&Vec<u8>>>) -> io::Result<()> {
        let Some(input) = &mut self.input else {
            return Ok(());
        };
        match more {
            Some(bytes) => input.push(bytes.map(Vec::as_slice), &mut self.reports),
            None => input.flush(&mut self.reports),
        }
        // A pipe that was closed has left the set.
        if let Some(pipe) = input.pipe() {
            let mut flags = epoll::EventFlags::empty();
            flags.set(epoll::EventFlags::OUT, input.is_behind());
            epoll::modify(&self.epoll, pipe, Token::Input.data(), flags)?;
        }
        Ok(())
    }

    /// Discards input, now and later: rank 0 reads no more.
    fn close_input(&mut self) {
        if let Some(input) = &mut self.input {
            input.close();
            input.flush(&mut self.reports);
        }
    }

    /// Sends to a rank, and waits for room if there is too little.
    fn send(&mut self, index: usize, bytes: Rc<[u8]>, with: With) {
        self.ranks[index].send(bytes, with, &self.descriptors);
        self.watch_room(index);
    }

    fn watch_room(&self, index: usize) {
        let rank = &self.ranks[index];
        if let Some(control) = &rank.control {
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, rank.is_behind());
            // Added at the start; closing removes it.
            let _ = epoll::modify(&self.epoll, control, Token::Control(index).data(), flags);
        }
    }

    /// Sends to all ranks that have attached, except `but`. Newcomers learn of
    /// others with their table.
    fn broadcast(&mut self, message: &ToRank, but: Option<usize>) {
        let bytes: Rc<[u8]> = message.encode().into();
        for index in 0..self.ranks.len() {
            let rank = &self.ranks[index];
            let is_new = rank.place.restarts > 0 && !rank.joined;
            let is_about_others = !matches!(message, ToRank::Abort { .. });
            let hears = rank.greeted.is_some() && !(is_new && is_about_others);
            if Some(index) != but && hears && rank.ended.is_none() {
                self.send(index, bytes.clone(), With::nothing());
            }
        }
    }

    fn handle_process(&mut self, index: usize) -> io::Result<()> {
        let Some(how) = self.ranks[index].reap()? else {
            return Ok(());
        };
        // Its last messages may still wait in its socket.
        self.handle_control(index)?;
        self.close_control(index);
        let ended = &self.ranks[index];
        let _ = epoll::delete(&self.epoll, &ended.process);
        let (place, pid, left) = (ended.place, ended.pid(), ended.left);
        let orderly = left || !ended.joined;
        self.alive -= 1;
        self.bind_host_ports();
        let rank = place.rank;
        // Others see its process end, and ask how: it left, whatever its exit code.
        if left {
            self.broadcast(&ToRank::Left { rank }, Some(index));
        }
        if how.code() != 0 || !orderly {
            self.report_death(index, how);
        } else {
            self.mark_dead(place.local_index);
        }
        // Its last output is reported before its end.
        self.outputs.rank_ended(rank);
        self.outputs.pump(&mut self.reports)?;
        self.say(FromHost::Ended {
            rank,
            pid,
            how,
            left,
        });
        self.pump_outputs()
    }

    fn close_control(&mut self, index: usize) {
        if let Some(control) = self.ranks[index].control.take() {
            let _ = epoll::delete(&self.epoll, &control);
        }
    }

    fn handle_control(&mut self, index: usize) -> io::Result<()> {
        self.ranks[index].flush(&self.descriptors);
        while let Some(control) = &self.ranks[index].control {
            match socket::receive(control.as_fd(), false) {
                Ok(Some(message)) => self.handle_message(index, &message)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(None) | Err(_) => self.close_control(index),
            }
        }
        self.watch_room(index);
        Ok(())
    }

    fn handle_message(&mut self, index: usize, message: &Received) -> io::Result<()> {
        let rank = self.ranks[index].place.rank;
        match decode(&message.bytes) {
            Some(ToLauncher::Hello { versions, .. }) => {
                let pid = message.sender.map_or(0, NonZeroU32::get);
                self.handle_hello(index, versions, pid)?;
            }
            Some(ToLauncher::Lanes(lanes)) => self.say(FromHost::Lanes { rank, lanes }),
            Some(ToLauncher::Tables(tables)) => {
                self.ranks[index].tables = remote_statistics::sensible(tables);
            }
            Some(ToLauncher::GaveUp { ranks, why }) => {
                if why == GaveUp::Corrupt {
                    self.tell_given_up(rank, &ranks);
                }
                self.say(FromHost::GaveUp { rank, ranks, why });
            }
            // For agents of guests.
            Some(ToLauncher::Heard { .. }) => {}
            Some(ToLauncher::Leave) => {
                self.ranks[index].left = true;
                self.say(FromHost::Left { rank });
            }
            Some(ToLauncher::Abort { code }) => self.say(FromHost::AbortAsked { rank, code }),
            Some(ToLauncher::Join { address, check }) => self.handle_join(index, address, check),
            None => self.say(FromHost::Garbled { rank }),
        }
        Ok(())
    }

    fn refuse(&mut self, index: usize, why: Refusal) {
        let rank = self.ranks[index].place.rank;
        let bytes = ToRank::Refused(why.clone()).encode().into();
        self.send(index, bytes, With::nothing());
        self.say(FromHost::Refused { rank, why });
    }

    fn handle_hello(&mut self, index: usize, versions: Versions, pid: u32) -> io::Result<()> {
        if versions != Versions::ours() {
            let launcher = Versions::ours();
            let process = versions;
            self.refuse(index, Refusal::Version { launcher, process });
            return Ok(());
        }
        let membership = self.membership(index)?;
        let (segment, lives) = (membership.shared, membership.watched);
        // What rings each rank here, and its own receiving end.
        let doorbells = if segment {
            self.plan.ranks as usize + 1
        } else {
            0
        };
        let first = doorbells.min(DESCRIPTORS_MAX - DESCRIPTORS_BEFORE);
        let host_port = matches!(membership.host_port, Some(Ok(_)));
        let bytes = encode_membership(&membership).into();
        let with = With {
            secret: true,
            segment,
            lives,
            host_port,
            doorbells: 0..first,
        };
        self.send(index, bytes, with);
        let mut at = first;
        while at < doorbells {
            let end = doorbells.min(at + DESCRIPTORS_MAX);
            let with = With {
                doorbells: at..end,
                ..With::nothing()
            };
            self.send(index, ToRank::Doorbells.encode().into(), with);
            at = end;
        }
        self.ranks[index].greeted = Some(pid);
        if self.ending.is_some() {
            let why = "the job was ending when this rank came".to_owned();
            let bytes = ToRank::Abort { why }.encode().into();
            self.send(index, bytes, With::nothing());
        }
        Ok(())
    }

    /// Returns the answer to the greeting of rank `index`.
    fn membership(&self, index: usize) -> io::Result<Membership> {
        let plan = &self.plan;
        let rank = &self.ranks[index];
        let mut life = [0; 8];
        fill_random(&mut life)?;
        Ok(Membership {
            rank: rank.place.rank,
            size: plan.size,
            job_id: plan.job_id,
            security: plan.security,
            suite: plan.suite,
            link: plan.link,
            congestion: plan.congestion,
            life: u64::from_le_bytes(life),
            restarts: rank.place.restarts,
            host_index: plan.host_index,
            hosts: plan.hosts,
            local_index: rank.place.local_index,
            partitions: plan.partitions.clone(),
            local_ranks: self.ranks.iter().map(|rank| rank.place.rank).collect(),
            core: rank.place.core,
            core_shared: rank.shares_core,
            settings: plan.settings.clone(),
            ip: plan.ip,
            host_port: match (&rank.granted, &rank.host_port) {
                (Some(Ok(_)), None) => Some(Err("it was given to this rank before".to_owned())),
                (granted, _) => granted.clone(),
            },
            // The segment was made for those that were here from the start.
            shared: self.descriptors.segment.is_some() && rank.place.restarts == 0,
            watched: self.descriptors.lives.is_some() && (index as u64) < self.words().into(),
        })
    }

    fn handle_join(&mut self, index: usize, address: [u8; 64], check: u64) {
        let HostPlan {
            job_id,
            security,
            suite,
            ..
        } = &self.plan;
        let rank = self.ranks[index].place.rank;
        if check != key_check(&self.descriptors.secret, *job_id, *security, *suite) {
            self.refuse(index, Refusal::KeyCheck { rank });
            return;
        }
        self.ranks[index].has_come = true;
        self.bind_host_ports();
        // Its neighbours copy from and to the process of this number. In another pid namespace the
        // number differs.
        let greeted = self.ranks[index].greeted;
        let pid = greeted.filter(|&pid| is_of_our_pid_namespace(pid));
        let pid = pid.unwrap_or_default();
        self.reports
            .push_back(Report::Joined { rank, pid, address });
    }
}

impl Host {
    /// Binds the host ports that are mapped before that, once all living ranks
    /// here have joined, and so have mapped theirs. None has its table before,
    /// so no rank waits for more.
    fn bind_host_ports(&mut self) {
        let is_late = |rank: &Rank| rank.ended.is_none() && !rank.has_come;
        if self.ranks.iter().any(is_late) {
            return;
        }
        for index in 0..self.ranks.len() {
            let unbound = self.ranks[index].unbound.take();
            if let Some(Err(why)) = unbound.map(|it| (it.bind)()) {
                let bytes = ToRank::NotBound { why }.encode().into();
                self.send(index, bytes, With::nothing());
            }
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let running = |r: &&mut Rank| r.ended.is_none();
        for rank in self.ranks.iter_mut().filter(running) {
            rank.signal(Signal::KILL);
        }
        for rank in self.ranks.iter_mut().filter(running) {
            let _ = rank.child.wait();
        }
    }
}
