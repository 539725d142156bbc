//! Queries to the job: their origin, and the hosts that have yet to answer.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

use portolan_sys::clock::now_ns;
use portolan_sys::process::Condition;
use rustix::event::epoll;

use super::Running;
use super::agent_protocol::{Order, ToHost};
use super::control_socket::ControlSocket;
use super::host::Host;
use super::remote_statistics;
use super::watch::{Side, Token, index_of};
use crate::control::{Answer, HostView, JobName, Look, Phase, RankView, Request};

/// Timeout of a host's answer; then it is reported silent.
const ANSWER_WAIT: Duration = Duration::from_secs(2);
/// Most queries at once.
const QUESTIONS_MAX: usize = 64;

/// Origin of a query: a client at our own socket, or at that of a host's agent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asker {
    ControlSocket(u64),
    Host(usize, u64),
}

struct Question {
    asker: Asker,
    /// Hosts that have yet to answer.
    waiting: BTreeSet<usize>,
    until: Instant,
}

/// The queries that are open.
#[derive(Default)]
pub(super) struct Questions {
    pub job_id: u64,
    socket: Option<ControlSocket>,
    open: BTreeMap<u64, Question>,
    next: u64,
}

impl Questions {
    /// When the next query times out.
    pub fn deadline(&self) -> Option<Instant> {
        self.open.values().map(|question| question.until).min()
    }
}

impl Running {
    pub(super) fn open_control_socket(&mut self, job_id: u64) {
        self.questions.job_id = job_id;
        let socket = ControlSocket::open(job_id).filter(|socket| {
            let data = Token::ControlSocket.data();
            epoll::add(
                &self.epoll,
                socket.descriptor(),
                data,
                epoll::EventFlags::IN,
            )
            .is_ok()
        });
        match &socket {
            Some(_) => log::debug!("asked as {}", JobName::own(job_id)),
            None => log::warn!("this job cannot be asked here: its name is taken"),
        }
        self.questions.socket = socket;
    }

    pub(super) fn handle_control(&mut self) -> io::Result<()> {
        let socket = self.questions.socket.as_mut();
        for (client, request) in socket.map_or(Ok(Vec::new()), ControlSocket::pump)? {
            self.handle_asked(Asker::ControlSocket(client), &request)?;
        }
        Ok(())
    }

    /// Handles a request to the job.
    pub(super) fn handle_asked(&mut self, asker: Asker, request: &Request) -> io::Result<()> {
        match request {
            Request::Look(look) => self.look(asker, *look),
            Request::Exclude { host } => {
                let done = self.exclude(host)?;
                self.answer(asker, done.map_or_else(Answer::Refused, |()| Answer::End));
                Ok(())
            }
        }
    }

    fn look(&mut self, asker: Asker, look: Look) -> io::Result<()> {
        if self.questions.open.len() >= QUESTIONS_MAX {
            let why = "the job is being asked too much; ask again".to_owned();
            self.answer(asker, Answer::Refused(why));
            return Ok(());
        }
        let ticket = self.questions.next;
        self.questions.next += 1;
        let mut waiting = BTreeSet::new();
        for host in 0..self.hosts.len() {
            if !self.has_ranks(host) {
                continue;
            }
            match &mut self.hosts[host] {
                Side::Here(part) => {
                    let view = part.view(look);
                    self.show(asker, host, view);
                }
                Side::There(_) => {
                    waiting.insert(host);
                    self.order(host, &Order::Said(ToHost::Look { ticket, look }))?;
                }
                Side::None => self.tell_silent(asker, host),
            }
        }
        if waiting.is_empty() {
            self.answer(asker, Answer::End);
            return Ok(());
        }
        let question = Question {
            asker,
            waiting,
            until: Instant::now() + ANSWER_WAIT,
        };
        self.questions.open.insert(ticket, question);
        Ok(())
    }

    /// Handles a host's answer.
    pub(super) fn handle_seen(&mut self, host: usize, ticket: u64, view: HostView) {
        let Some(question) = self.questions.open.get_mut(&ticket) else {
            return;
        };
        if !question.waiting.remove(&host) {
            return;
        }
        let (asker, over) = (question.asker, question.waiting.is_empty());
        self.show(asker, host, view);
        if over {
            self.questions.open.remove(&ticket);
            self.answer(asker, Answer::End);
        }
    }

    /// Ends queries that have timed out. Hosts that have not answered are reported silent.
    pub(super) fn end_late_questions(&mut self) {
        let now = Instant::now();
        let late =
            |(ticket, question): (&u64, &Question)| (question.until <= now).then_some(*ticket);
        let late: Vec<u64> = self.questions.open.iter().filter_map(late).collect();
        for ticket in late {
            let question = self.questions.open.remove(&ticket).expect("just seen");
            for host in question.waiting {
                self.tell_silent(question.asker, host);
            }
            self.answer(question.asker, Answer::End);
        }
    }

    pub(super) fn host_name(&self, host: usize) -> String {
        let name = self.spec.names.get(host);
        name.cloned().unwrap_or_else(|| host.to_string())
    }

    fn show(&mut self, asker: Asker, host: usize, mut view: HostView) {
        // An agent does not know the name, and is not to choose the number.
        view.name = self.host_name(host);
        view.host_index = index_of(host);
        // Ranks that are on another host now are shown there.
        let is_there = |rank: u32| {
            self.members
                .get(rank as usize)
                .is_some_and(|m| m.is_on(host))
        };
        view.ranks.retain(|view| is_there(view.rank));
        self.answer(asker, Answer::Host(view));
    }

    fn tell_silent(&mut self, asker: Asker, host: usize) {
        let name = self.host_name(host);
        let host_index = index_of(host);
        self.answer(asker, Answer::Silent { host_index, name });
    }

    fn answer(&mut self, asker: Asker, answer: Answer) {
        match asker {
            Asker::ControlSocket(client) => {
                if let Some(socket) = &mut self.questions.socket {
                    socket.answer(client, &answer);
                }
            }
            Asker::Host(host, ticket) => {
                let said = ToHost::Answered { ticket, answer };
                self.transmit(host, Order::Said(said).encode());
            }
        }
    }
}

impl Host {
    /// Returns the view of the ranks as they are now.
    pub(super) fn view(&self, look: Look) -> HostView {
        let mut left = remote_statistics::NUMBERS_MAX;
        let rank = |rank: &super::rank::Rank| {
            let seen = rank.greeted.filter(|&pid| pid != 0);
            let pid = seen.unwrap_or_else(|| rank.pid());
            let phase = match (rank.ended, rank.left, rank.joined, rank.greeted) {
                (Some(how), ..) => Phase::Ended(how),
                (None, true, ..) => Phase::Left,
                (None, false, true, _) => Phase::Joined,
                (None, false, false, Some(_)) => Phase::Opening,
                (None, false, false, None) => Phase::Started,
            };
            let process = match phase {
                Phase::Ended(_) => None,
                _ => Condition::of(pid).map(|it| it.state),
            };
            let read = match look {
                Look::Counters | Look::State if phase == Phase::Joined => {
                    remote_statistics::read(pid, &rank.tables, look == Look::State, &mut left)
                }
                _ => Ok(Vec::new()),
            };
            let unread = read.as_ref().err().copied();
            RankView {
                rank: rank.place.rank,
                pid,
                core: rank.place.core,
                restarts: rank.place.restarts,
                phase,
                process,
                tables: read.unwrap_or_default(),
                unread,
            }
        };
        HostView {
            host_index: self.plan.host_index,
            name: String::new(),
            now_ns: now_ns(),
            ranks: self.ranks.iter().map(rank).collect(),
        }
    }
}
