//! The agent of a host whose processes another launcher started. The first
//! process there runs it; it ends when they have. It watches their liveness and
//! reports deaths to them and to other agents.
//!
//! A job without agents goes on: on one host the end of a process is then
//! noticed by its descriptor, on another by its silence.

pub(super) mod call;
mod events;
mod watched_rank;

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use portolan_seal::public_key;
use portolan_sys::closing::{Closer, refuse_descriptors};
use portolan_sys::memory::Hidden;
use portolan_sys::process::{Condition, Pidfd, is_our_user, peer};
use rustix::event::epoll;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, accept_with, bind, connect,
    getsockname, ipproto, listen, recv, send, socket_with, sockopt,
};
use rustix::process::Signal;

use crate::How;
use crate::error::BootError;
use crate::frame::{Frames, json};
use crate::host::keep_from_dumps;
use crate::job::random_secret;
use crate::liveness::Liveness;
use crate::message::{ToRank, Versions};
use crate::ready::ready;
use call::{Answer, Brief, agent_address};
pub(super) use events::HostCard;
use events::{DATAGRAM_BYTES_MAX, End, EventLog, Identity, Word};
use watched_rank::WatchedRank;

/// Timeout of other agents' acknowledgements, once all processes here have ended.
const FAREWELL_WAIT: Duration = Duration::from_secs(1);
/// Between sending the processes of a host that leaves the job the reason,
/// SIGTERM, and SIGKILL.
const NOTICE_GRACE: Duration = Duration::from_millis(500);
const TERM_GRACE: Duration = Duration::from_secs(2);
/// Timeout of each message from the process that runs the agent.
const BRIEF_WAIT: Duration = Duration::from_secs(5);

/// Words of the descriptors in the epoll set.
const LISTENER: u64 = 0;
const BELL: u64 = 1;
const TIMER: u64 = 2;
const INPUT: u64 = 3;
const NETWORK: u64 = 4;
/// First word of the watched ranks, two each: process, socket.
const WATCHED: u64 = 8;
/// First word of the sockets to other agents.
const OTHERS: u64 = 1 << 32;

struct Agent {
    brief: Brief,
    /// Pre-shared key that goes into the keys.
    mix: Option<Hidden<32>>,
    private: Hidden<32>,
    epoll: OwnedFd,
    listener: OwnedFd,
    /// Closes connections of processes that are not awaited, which may hold descriptors.
    closer: Closer,
    /// Bound to every address. `others` has a connected socket for each other
    /// agent besides, since only such a one reports that no agent listens.
    network: OwnedFd,
    port: u16,
    others: Vec<OwnedFd>,
    liveness: Liveness,
    lives: Option<OwnedFd>,
    watched: Vec<WatchedRank>,
    /// None until the other hosts are known.
    events: Option<EventLog>,
    input: Option<(OwnedFd, Frames)>,
    /// Signals to the processes here and when they are due, if this host leaves the job.
    endings: Vec<(Instant, Signal)>,
}

/// Serves the process at the other end of `input`, and its neighbours, until
/// they have ended.
///
/// # Errors
/// [`BootError::Io`]: the kernel refused something. The other end is sent the
/// reason if the agent could not begin.
pub fn serve_guests(input: OwnedFd) -> Result<(), BootError> {
    serve(input).map_err(BootError::io("running the agent of a host"))
}

fn serve(input: OwnedFd) -> io::Result<()> {
    keep_from_dumps()?;
    let mut frames = Frames::default();
    let brief: Brief = call::hear(&input, &mut frames, BRIEF_WAIT).map_err(io::Error::other)?;
    let made = if brief.versions == Versions::ours() {
        let mix = brief
            .has_mix
            .then(|| call::hear_mix(&input, &mut frames, BRIEF_WAIT));
        let mix = mix.transpose().map_err(io::Error::other)?;
        Agent::new(brief, mix, (input.try_clone()?, frames)).map_err(|error| error.to_string())
    } else {
        Err(format!("the agent was built with {}", Versions::ours()))
    };
    let answer = match &made {
        Ok(agent) => Answer::Ready {
            port: agent.port,
            key: public_key(&agent.private),
        },
        Err(why) => Answer::Refused { why: why.clone() },
    };
    call::say(&input, &json(&answer))?;
    drop(input);
    match made {
        Ok(mut agent) => {
            let ended = agent.run();
            // Connections of strangers may wait to be accepted.
            agent.closer.take(agent.listener);
            ended
        }
        Err(why) => Err(io::Error::other(why)),
    }
}

impl Agent {
    fn new(brief: Brief, mix: Option<Hidden<32>>, input: (OwnedFd, Frames)) -> io::Result<Self> {
        let private = random_secret()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let watch = |fd: &dyn AsFd, word| {
            let data = epoll::EventData::new_u64(word);
            epoll::add(&epoll, fd, data, epoll::EventFlags::IN)
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind(&listener, &agent_address(brief.job_id)?)?;
        // Fails before Linux 6.16.
        let _ = refuse_descriptors(listener.as_fd());
        listen(
            &listener,
            i32::try_from(brief.watched.len()).unwrap_or(i32::MAX),
        )?;
        watch(&listener, LISTENER)?;
        let network = udp(None)?;
        let port = SocketAddr::try_from(getsockname(&network)?)?.port();
        watch(&network, NETWORK)?;
        let liveness = Liveness::start(brief.watched.len() as u32)?;
        let lives = liveness.descriptor()?;
        watch(&liveness.bell(), BELL)?;
        watch(&liveness.timer(), TIMER)?;
        watch(&input.0, INPUT)?;
        let mut watched = Vec::with_capacity(brief.watched.len());
        for (at, &(rank, pid)) in (0..).zip(&brief.watched) {
            let process = Pidfd::open(pid)?;
            watch(&process, WATCHED + 2 * at)?;
            watched.push(WatchedRank::new(rank, pid, process));
        }
        Ok(Self {
            mix,
            private,
            listener,
            closer: Closer::default(),
            network,
            port,
            others: Vec::new(),
            liveness,
            lives,
            watched,
            events: None,
            input: Some(input),
            endings: Vec::new(),
            epoll,
            brief,
        })
    }

    fn run(&mut self) -> io::Result<()> {
        let mut end_at = None;
        loop {
            let now = Instant::now();
            if self.watched.iter().all(WatchedRank::has_ended) {
                let until = *end_at.get_or_insert(now + FAREWELL_WAIT);
                if now >= until || self.events.as_ref().is_none_or(EventLog::is_told) {
                    return Ok(());
                }
            }
            let due = self.events.as_ref().and_then(EventLog::due);
            let ending = self.endings.first().map(|(at, _)| *at);
            let due = due.into_iter().chain(end_at).chain(ending).min();
            let left = due.map(|at| at.saturating_duration_since(now));
            let woken = ready(&self.epoll, left)?;
            for (word, _) in woken {
                match word {
                    LISTENER => self.accept_rank(),
                    BELL | TIMER => self.check_liveness()?,
                    INPUT => self.meet_others()?,
                    NETWORK => self.listen(None),
                    OTHERS.. => self.listen(Some((word - OTHERS) as usize)),
                    member if (member - WATCHED).is_multiple_of(2) => {
                        self.mark_dead((member - WATCHED) as usize / 2);
                    }
                    member => self.hear((member - WATCHED) as usize / 2),
                }
            }
            self.spread();
            self.end_wards();
        }
    }

    /// Accepts the connection of an awaited process; closes that of any other.
    fn accept_rank(&mut self) {
        let Ok(other) = accept_with(&self.listener, SocketFlags::CLOEXEC) else {
            return;
        };
        let own = peer(other.as_fd()).ok();
        let own = own.filter(|who| is_our_user(who.uid));
        let pid = own.and_then(|who| who.pid).map(NonZeroU32::get);
        let awaited = |pid| self.watched.iter().position(|it| it.awaits(pid));
        let Some(at) = pid.and_then(awaited) else {
            self.closer.take(other);
            self.closer.close();
            return;
        };
        let data = epoll::EventData::new_u64(WATCHED + 2 * at as u64 + 1);
        if epoll::add(&self.epoll, &other, data, epoll::EventFlags::IN).is_ok() {
            self.watched[at].accept_rank(other, self.lives.as_ref().map(AsFd::as_fd));
        }
    }

    /// Handles the messages of a watched rank.
    fn hear(&mut self, at: usize) {
        let member = &mut self.watched[at];
        member.flush();
        let (rank, said) = (member.rank, member.hear());
        if said.leaves {
            self.tell_others(End { rank, how: None });
        }
        for other in said.corrupt {
            if let Some(at) = self.watched.iter().position(|member| member.rank == other) {
                let by = rank;
                self.watched[at].send(ToRank::GivenUp { by }.encode().into());
                self.watch_room(at);
            }
        }
        let is_here = |other: &u32| self.watched.iter().find(|member| member.rank == *other);
        // A rank of this host is not cut off from it: it does not answer.
        for member in said.gave_up.iter().filter_map(is_here) {
            if member.rank != rank && member.is_missed() {
                member.signal(Signal::KILL);
            }
        }
        // If the kernel refuses packets, neither rank is killed for it.
        let given_up = said.gave_up.iter().chain(&said.cut_off);
        for other in given_up.filter(|other| is_here(other).is_none()) {
            if let Some(events) = &mut self.events {
                events.give_up(*other, Instant::now());
            }
        }
        if let Some(events) = &mut self.events {
            for (other, ago) in said.heard {
                let at = Instant::now().checked_sub(ago);
                at.into_iter().for_each(|at| events.heard_of(other, at));
            }
        }
        self.watch_room(at);
    }

    /// Waits for room in a watched rank's socket while messages are queued.
    fn watch_room(&self, at: usize) {
        let member = &self.watched[at];
        if let Some(control) = &member.control {
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, member.is_behind());
            let data = epoll::EventData::new_u64(WATCHED + 2 * at as u64 + 1);
            // Added when the rank connected; closing removes it.
            let _ = epoll::modify(&self.epoll, control, data, flags);
        }
    }

    /// Handles the end of a watched rank's process.
    fn mark_dead(&mut self, at: usize) {
        // Its last messages may still wait in its socket.
        self.hear(at);
        let _ = epoll::delete(&self.epoll, &self.watched[at].process);
        self.watched[at].end();
        if self.watched[at].has_left() {
            // Others see its process end, and ask how.
            let rank = self.watched[at].rank;
            self.notify_ranks(&ToRank::Left { rank }, Some(at));
        }
        // The exit status is known until its parent has collected it.
        let dead = Condition::of(self.watched[at].pid).filter(|it| it.state == 'Z');
        self.report_death(at, dead.map_or(How::Gone, |it| How::of_status(it.status)));
    }

    fn check_liveness(&mut self) -> io::Result<()> {
        let watched = &self.watched;
        let of_interest = |at: usize| watched.get(at).filter(|w| w.is_missed()).map(|w| w.pid);
        let dying = self.liveness.dying(of_interest)?;
        let due = self.liveness.due_since().is_some();
        for (at, how) in dying {
            // Its last message may be that it leaves.
            self.hear(at);
            self.report_death(at, how);
        }
        if due {
            self.look_for_stopped();
        }
        Ok(())
    }

    /// Reports a watched rank's death, unless that was reported or the rank has left.
    fn report_death(&mut self, at: usize, how: How) {
        if !self.watched[at].is_missed() {
            return;
        }
        self.watched[at].cause = Some(how);
        let rank = self.watched[at].rank;
        self.notify_ranks(&ToRank::Died { rank, how }, Some(at));
        let how = Some(how);
        self.tell_others(End { rank, how });
    }

    fn look_for_stopped(&mut self) {
        let is_stopped = |member: &&WatchedRank| {
            member.is_missed() && Condition::of(member.pid).is_some_and(|it| it.stopped)
        };
        let stopped: Vec<u32> = self
            .watched
            .iter()
            .filter(is_stopped)
            .map(|w| w.rank)
            .collect();
        for &rank in &stopped {
            self.vouch(rank);
        }
        if let Some(events) = &mut self.events {
            events.set_stopped(stopped);
        }
    }

    /// Tells the watched ranks that a silent one is stopped. Repeated, so a
    /// rank without room is left out: nothing piles up.
    fn vouch(&mut self, rank: u32) {
        let bytes: Rc<[u8]> = ToRank::Stopped { rank }.encode().into();
        for at in 0..self.watched.len() {
            let member = &mut self.watched[at];
            if member.rank != rank && !member.is_behind() {
                member.send(bytes.clone());
                self.watch_room(at);
            }
        }
    }

    fn notify_ranks(&mut self, message: &ToRank, but: Option<usize>) {
        let bytes: Rc<[u8]> = message.encode().into();
        for at in 0..self.watched.len() {
            if Some(at) != but {
                self.watched[at].send(bytes.clone());
                self.watch_room(at);
            }
        }
    }

    fn tell_others(&mut self, end: End) {
        if let Some(events) = &mut self.events {
            events.add(end, Instant::now());
            self.spread();
        }
    }

    /// Receives the other hosts' agents from the process that ran this one.
    fn meet_others(&mut self) -> io::Result<()> {
        let Some((input, mut frames)) = self.input.take() else {
            return Ok(());
        };
        let _ = epoll::delete(&self.epoll, &input);
        // The sender is at most descheduled: its message comes in one piece.
        let Ok(hosts) = call::hear::<Vec<HostCard>>(&input, &mut frames, BRIEF_WAIT) else {
            return Ok(());
        };
        for (at, card) in (0..).zip(&hosts) {
            let to = SocketAddr::new(IpAddr::V6(Ipv6Addr::from(card.ip)), card.port);
            let socket = udp(Some(self.port))?;
            // Without a route its packets are lost.
            let _ = connect(&socket, &to);
            let data = epoll::EventData::new_u64(OTHERS + at);
            epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN)?;
            self.others.push(socket);
        }
        let own = Identity {
            host: self.brief.host,
            private: &self.private,
            public: public_key(&self.private),
            mix: self.mix.as_deref(),
        };
        let now = Instant::now();
        let mut events = EventLog::new(&own, hosts, self.brief.silence, now);
        for member in self.watched.iter().filter(|member| !member.is_missed()) {
            let (rank, how) = (member.rank, member.cause);
            events.add(End { rank, how }, now);
        }
        self.events = Some(events);
        Ok(())
    }

    /// Sends what is due to the other agents, and handles lost hosts.
    fn spread(&mut self) {
        let now = Instant::now();
        let Some(events) = &mut self.events else {
            return;
        };
        let mut absent = Vec::new();
        while let Some((at, bytes)) = events.next(now) {
            let sent = send(&self.others[at], &bytes, SendFlags::NOSIGNAL);
            if sent == Err(rustix::io::Errno::CONNREFUSED) {
                absent.push(at);
            }
        }
        absent.into_iter().for_each(|at| events.refused(at));
        events.ran(now);
        let words = events.judge(now);
        let doubts = events.doubts(now);
        self.heed(words);
        for ranks in doubts {
            self.notify_ranks(&ToRank::Doubted { ranks }, None);
        }
    }

    /// Acts on what follows from other agents' news.
    fn heed(&mut self, words: Vec<Word>) {
        for word in words {
            match word {
                Word::Died { rank, how } => self.notify_ranks(&ToRank::Died { rank, how }, None),
                Word::Stopped { rank } => self.vouch(rank),
                Word::Leave { unreached } => self.leave(&unreached),
            }
        }
    }

    /// Takes this host out of the job: its processes get the reason, SIGTERM, and SIGKILL.
    fn leave(&mut self, unreached: &[u16]) {
        let why = format!(
            "this host (number {}) is cut off from others of the job ({unreached:?}), which go \
             on without it",
            self.brief.host
        );
        self.notify_ranks(&ToRank::Abort { why }, None);
        let ask_at = Instant::now() + NOTICE_GRACE;
        self.endings = vec![
            (ask_at, Signal::TERM),
            // A stopped process takes SIGTERM only once it continues.
            (ask_at, Signal::CONT),
            (ask_at + TERM_GRACE, Signal::KILL),
        ];
    }

    fn end_wards(&mut self) {
        let now = Instant::now();
        while let Some((_, signal)) = self.endings.first().filter(|(at, _)| *at <= now) {
            let living = self.watched.iter().filter(|member| !member.has_ended());
            living.for_each(|member| member.signal(*signal));
            self.endings.remove(0);
        }
    }

    /// Receives from other agents: on the socket to one, or on that of all.
    fn listen(&mut self, other: Option<usize>) {
        let mut bytes = [0; DATAGRAM_BYTES_MAX + 1];
        loop {
            let socket = other.map_or(&self.network, |at| &self.others[at]);
            let Some(events) = &mut self.events else {
                // Too early: the sender repeats it.
                let _ = recv(socket, &mut bytes, RecvFlags::empty());
                return;
            };
            let words = match recv(socket, &mut bytes, RecvFlags::empty()) {
                Ok((n, _)) => events.hear(&bytes[..n], Instant::now()),
                Err(rustix::io::Errno::CONNREFUSED) => {
                    other.into_iter().for_each(|at| events.refused(at));
                    continue;
                }
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return,
            };
            self.heed(words);
        }
    }
}

/// Opens a socket for datagrams to and from other agents, at every address of
/// the host and a free port, or at one that another of our sockets has.
fn udp(port: Option<u16>) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let open = |family| socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP));
    let any = |ip: IpAddr| SocketAddr::new(ip, port.unwrap_or(0));
    let socket = open(AddressFamily::INET6).and_then(|socket| {
        sockopt::set_ipv6_v6only(&socket, false)?;
        sockopt::set_socket_reuseport(&socket, true)?;
        bind(&socket, &any(Ipv6Addr::UNSPECIFIED.into()))?;
        Ok(socket)
    });
    Ok(socket?)
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
