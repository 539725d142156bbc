//! The node service: who asks, and what they get. One thread, which waits for
//! nobody; others only close connections.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use portolan_boot::launch::Stop;
use portolan_boot::node::{Answer, Heard, PACKET_MEMORY, Question, answer, hear};
use portolan_sys::closing::{Closer, refuse_descriptors};
use portolan_sys::epoll::Epoll;
use portolan_sys::features::Disabled;
use portolan_sys::memory::SharedMemory;
use portolan_sys::process::{Network, network, peer};
use portolan_sys::tell::tell;
use rustix::net::{Shutdown, SocketFlags, accept_with, getsockname, shutdown};

use super::book::Book;
use super::config::Config;
use super::interfaces::Interfaces;
use super::ports::{Lent, served};
use super::queue::{BUSY_PAUSE, BUSY_TRIES, Group, PortError};
use super::state::{Files, Given, State, open_sockets};
use crate::failure::{Failure, Result};

/// A connection that has no host port and asks nothing is closed after this.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How often it is looked whether host ports without a connection are held, and
/// how often for who asks for one.
const LOOK: Duration = Duration::from_millis(100);
const LOOK_FOR_CALLER: Duration = BUSY_PAUSE;

/// Connections that are taken before those that are there are heard again.
const ACCEPTS_MAX: u32 = 64;

const LISTENER: u64 = 0;
const STOP: u64 = 1;
const FIRST_CALLER: u64 = 2;

/// Somebody who has connected.
struct Caller {
    socket: OwnedFd,
    uid: u32,
    pid: u32,
    /// It is in another network than this service.
    strange: bool,
    heard: Instant,
    /// Packet memory whose pages it takes, and its bytes.
    lent: Option<(OwnedFd, u64)>,
    /// What waits for the kernel to free a queue.
    waiting: Option<Waiting>,
}

#[derive(Clone, Copy)]
struct Waiting {
    at: Option<IpAddr>,
    /// By the service, or by who asks.
    disabled: Disabled,
    ranks: u32,
    group: Group,
    tries: u32,
}

/// The service, at work.
pub struct Service {
    /// Or why it opens no host ports.
    able: std::result::Result<(), String>,
    /// Why it does not know what a service before it has given, until a host port
    /// opens.
    forgot: Option<String>,
    book: Book,
    disabled: Disabled,
    files: Files,
    network: Network,
    listener: OwnedFd,
    epoll: Epoll,
    callers: BTreeMap<u64, Caller>,
    /// Of connections: callers may have sent descriptors.
    closer: Closer,
    next: u64,
    interfaces: Interfaces,
    /// When the next interface is left.
    leaves: Option<Duration>,
    /// Somebody was refused.
    refused: bool,
}

/// Why somebody gets no queue, where it may be that of a job that the service has
/// `forgot`ten.
fn taken(why: &str, forgot: Option<&str>) -> String {
    match forgot {
        None => why.to_owned(),
        Some(forgot) => format!(
            "{why}, perhaps by a job that is older than the node service, whose state was lost \
             ({forgot}): try again when that job has ended"
        ),
    }
}

impl Service {
    /// Takes over what an earlier service has left, and listens. `folder` is this
    /// network in /proc, by which pins are found; `listener` does not block;
    /// `mounted`: the file system for BPF was not there.
    ///
    /// # Errors
    /// The kernel's, for people to read.
    pub fn new(
        config: Config,
        disabled: Disabled,
        files: Files,
        folder: u64,
        mounted: bool,
        listener: OwnedFd,
    ) -> Result<Self> {
        // Older kernels cannot.
        let _ = refuse_descriptors(listener.as_fd());
        let epoll = Epoll::new().map_err(Failure::os("making an epoll set"))?;
        epoll
            .add(listener.as_fd(), LISTENER)
            .map_err(Failure::os("listening"))?;
        let (left, forgot) = match files.read() {
            Ok(left) => (left, None),
            Err(why) => {
                tell(format_args!(
                    "portolan node: {why}: host ports that were given before go on through the \
                     kernel, and their queues stay taken until the jobs that have them end"
                ));
                (State::default(), Some(why))
            }
        };
        let open = open_sockets().map_err(Failure::io("reading /proc/net/udp"))?;
        let mut interfaces = Interfaces::new(folder);
        let held = interfaces.take_over(&left.given, &open);
        let book = Book::new(config, files.clone(), mounted || left.mounted, held)
            .map_err(Failure::io("writing the service's state"))?;
        Ok(Self {
            able: served(&disabled),
            forgot,
            book,
            disabled,
            files,
            network: network(listener.as_fd()).map_err(Failure::os("asking for this network"))?,
            listener,
            epoll,
            callers: BTreeMap::new(),
            closer: Closer::default(),
            next: FIRST_CALLER,
            interfaces,
            leaves: None,
            refused: false,
        })
    }

    /// Serves until one of `stops`; `on_demand`: also until the last host port is given
    /// back, or nobody comes. Host ports that are held then stay as they
    /// are; where there is none, nothing stays attached.
    ///
    /// # Errors
    /// The kernel refused to say what happens: our bug.
    pub fn serve(mut self, stops: &[Stop], on_demand: bool) -> Result<()> {
        for stop in stops {
            self.epoll
                .add(stop.descriptor.as_fd(), STOP)
                .map_err(Failure::os("catching signals"))?;
        }
        let began = Instant::now();
        let mut stopped = false;
        while !(stopped || on_demand && self.is_unused(began)) {
            let mut ready = Vec::new();
            let timeout = self.pause(on_demand).map(|pause| pause.as_nanos() as u64);
            self.epoll
                .wait(timeout, |token| ready.push(token))
                .map_err(Failure::os("waiting for requests"))?;
            for token in ready {
                match token {
                    LISTENER => self.accept(),
                    STOP => stopped = true,
                    caller => self.listen(caller),
                }
            }
            self.retry();
            self.close_silent();
            self.look();
            self.closer.close();
        }
        if on_demand && self.book.is_empty() {
            // Nobody looks after what an endpoint has started.
            self.files.remove();
        } else {
            self.files.remove_socket();
        }
        if self.book.is_empty() {
            self.interfaces.keep(|_| false, Duration::ZERO);
        }
        self.book.close();
        // Those who wait to be accepted may have sent something, too.
        self.closer.take(self.listener);
        for caller in self.callers.into_values() {
            self.closer.take(caller.socket);
        }
        Ok(())
    }

    /// How long nothing has to be done unless something happens.
    fn pause(&self, on_demand: bool) -> Option<Duration> {
        if self.callers.values().any(|it| it.waiting.is_some()) {
            return Some(BUSY_PAUSE);
        }
        let silence = (on_demand || !self.callers.is_empty()).then_some(SILENCE_MAX / 4);
        let look = (self.book.has_orphans() || !self.closer.is_empty()).then_some(LOOK);
        [silence, look, self.leaves].into_iter().flatten().min()
    }

    /// Whether a service that `began` then is of no use to anybody.
    fn is_unused(&self, began: Instant) -> bool {
        let came = self.book.has_given() || self.refused || began.elapsed() >= SILENCE_MAX;
        came && self.callers.is_empty() && self.book.is_empty()
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for _ in 0..ACCEPTS_MAX {
            // Level-triggered: the next one is told of again.
            let Ok(socket) = accept_with(&self.listener, flags) else {
                return;
            };
            if let Err(socket) = self.admit(socket) {
                self.closer.take(socket);
            }
        }
    }

    /// Gives back who may not stay.
    fn admit(&mut self, socket: OwnedFd) -> std::result::Result<(), OwnedFd> {
        let Ok(who) = peer(socket.as_fd()) else {
            return Err(socket);
        };
        let uid = who.uid;
        let own = self.callers.values().filter(|it| it.uid == uid).count();
        let admitted = self.book.admit(uid, own, self.callers.len());
        let pid = admitted.and_then(|()| {
            let unseen = "the node service cannot see the process that asks: ask from its own \
                          process namespace, or from one within it";
            who.pid.ok_or_else(|| Some(unseen.to_owned()))
        });
        let pid = match pid {
            Ok(pid) => pid.get(),
            Err(why) => {
                if let Some(why) = why {
                    // Nothing is left to do for who does not take the answer.
                    let _ = answer(socket.as_fd(), &Answer::Refused(why), &[]);
                }
                return Err(socket);
            }
        };
        // One that the kernel does not tell is no known one.
        let strange = network(socket.as_fd()).ok() != Some(self.network);
        if self.epoll.add(socket.as_fd(), self.next).is_err() {
            return Err(socket);
        }
        let caller = Caller {
            socket,
            uid,
            pid,
            strange,
            heard: Instant::now(),
            lent: None,
            waiting: None,
        };
        self.callers.insert(self.next, caller);
        self.next += 1;
        Ok(())
    }

    fn listen(&mut self, number: u64) {
        let Some(caller) = self.callers.get_mut(&number) else {
            return;
        };
        caller.heard = Instant::now();
        let (uid, waits) = (caller.uid, caller.waiting.is_some());
        match hear(caller.socket.as_fd()) {
            Heard::Nothing => {}
            Heard::End => self.close(number),
            // Who waits for an answer asks for nothing else.
            Heard::Question(question) if !waits || question.is_release() => {
                self.handle(number, uid, question);
            }
            Heard::Question(_) | Heard::Garbled => self.expel(number),
        }
    }

    fn handle(&mut self, number: u64, uid: u32, question: Question) {
        if let Question::Release { number: port } = question {
            // As many as were given.
            if !self.book.release(number, port) {
                self.expel(number);
            }
            return;
        }
        if let Err(why) = self.book.count(uid) {
            self.answer(number, &Answer::Refused(why));
            return;
        }
        if let Err(why) = &self.able {
            let why = why.clone();
            self.answer(number, &Answer::Unserved(why));
            return;
        }
        match question {
            Question::Open { .. } if self.callers.get(&number).is_none_or(|it| it.strange) => {
                let why = "the node service here is of another network namespace";
                self.answer(number, &Answer::Refused(why.to_owned()));
            }
            Question::Open {
                at,
                copy,
                one_buffer,
                ranks,
                group,
            } => {
                let ranks = ranks.min(self.book.config.user_ports);
                let group =
                    group.map_or(Group::Connection(number), |name| Group::Named { uid, name });
                let disabled = Disabled {
                    zerocopy: self.disabled.zerocopy || copy,
                    multibuffer: self.disabled.multibuffer || one_buffer,
                    ..self.disabled
                };
                let waiting = Waiting {
                    at,
                    disabled,
                    ranks,
                    group,
                    tries: 0,
                };
                self.open(number, waiting);
            }
            _ => {
                let Config {
                    user_ports,
                    user_memory_mib,
                    ..
                } = self.book.config;
                let bounds = format!(
                    "up to {user_ports} host ports with {user_memory_mib} MiB of packet memory"
                );
                self.answer(number, &Answer::Bounds(bounds));
            }
        }
    }

    /// Sends away who makes no sense.
    fn expel(&mut self, number: u64) {
        let why = "the node service does not understand the question: use the `portolan` of its \
                   version";
        self.answer(number, &Answer::Refused(why.to_owned()));
        self.close(number);
    }

    /// Answers who is there; who does not take it is sent away.
    fn answer(&mut self, number: u64, what: &Answer) {
        self.refused |= matches!(what, Answer::Refused(_));
        if let Some(caller) = self.callers.get(&number)
            && answer(caller.socket.as_fd(), what, &[]).is_err()
        {
            self.close(number);
        }
    }

    fn close(&mut self, number: u64) {
        if let Some(Caller { socket, .. }) = self.callers.remove(&number) {
            let _ = self.epoll.remove(socket.as_fd());
            let _ = shutdown(&socket, Shutdown::Both);
            self.closer.take(socket);
        }
        self.book.leave(number);
    }

    /// Gives a host port, or says why not, or has the caller wait.
    fn open(&mut self, number: u64, asked: Waiting) {
        let opened = self.try_open(number, &asked);
        let settling = self.book.is_settling();
        let Some(caller) = self.callers.get_mut(&number) else {
            return;
        };
        match opened {
            Ok(()) => {}
            Err(error) if (settling || error.is_busy()) && asked.tries < BUSY_TRIES => {
                let tries = asked.tries + 1;
                caller.waiting = Some(Waiting { tries, ..asked });
            }
            Err(PortError::Busy(why)) => {
                let why = taken(&why, self.forgot.as_deref());
                self.answer(number, &Answer::Refused(why));
            }
            Err(PortError::Failed(why)) => self.answer(number, &Answer::Refused(why)),
        }
    }

    fn try_open(&mut self, number: u64, asked: &Waiting) -> std::result::Result<(), PortError> {
        self.book.take_back(&self.interfaces, LOOK_FOR_CALLER);
        let Some(Caller { uid, pid, .. }) = self.callers.get(&number) else {
            return Ok(());
        };
        let (uid, pid) = (*uid, *pid);
        let interface = self.interfaces.choose(asked.at, &self.book.config)?;
        let Waiting { group, ranks, .. } = *asked;
        let cost = self.interfaces.cost(&interface, group, ranks);
        self.book.check_bounds(uid, cost.now)?;
        if let Some(bytes) = cost.memory.filter(|bytes| self.lacks(number, *bytes)) {
            return Ok(self.lend(number, bytes)?);
        }
        let (index, name) = (interface.index, interface.name.clone());
        let lent = self.callers.get(&number).and_then(|it| it.lent.as_ref());
        let lent = Lent {
            memory: lent.map(|(memory, _)| memory),
            gate: self.book.spare_gate(uid),
        };
        let port = (self.interfaces).open(interface, group, ranks, &asked.disabled, lent)?;
        let failed = |e: rustix::io::Errno| format!("a host port's socket: {e}");
        let [_, _, udp, gate] = &port.descriptors;
        let gate = gate
            .try_clone()
            .map_err(|e| format!("a host port's gate: {e}"))?;
        let address = getsockname(udp).map_err(failed)?;
        let given = Given {
            uid,
            pid,
            interface: index,
            name,
            udp: SocketAddr::try_from(address).map_err(failed)?.port(),
            inode: rustix::fs::fstat(udp).map_err(failed)?.st_ino,
            bytes: cost.each,
        };
        // Whoever finds it written down finds it given, or its socket closed.
        let granted = Answer::Granted {
            number: self.book.enter(number, given, port.lease, gate)?,
            info: port.info,
        };
        self.forgot = None;
        let descriptors = port.descriptors.each_ref().map(AsFd::as_fd);
        if let Some(caller) = self.callers.get_mut(&number) {
            // Another queue gets its own.
            caller.lent = None;
            if answer(caller.socket.as_fd(), &granted, &descriptors).is_err() {
                self.close(number);
            }
        }
        Ok(())
    }

    /// Whether a caller has no packet memory of so many bytes.
    fn lacks(&self, number: u64, bytes: u64) -> bool {
        let lent = self.callers.get(&number).and_then(|it| it.lent.as_ref());
        lent.is_none_or(|(_, lent)| *lent != bytes)
    }

    /// Lends a caller packet memory. It is ours, since to close what somebody
    /// sends may take as long as they like; its pages are theirs.
    fn lend(&mut self, number: u64, bytes: u64) -> std::result::Result<(), String> {
        let Some(caller) = self.callers.get_mut(&number) else {
            return Ok(());
        };
        let size = u32::try_from(bytes).map_err(|e| e.to_string())?;
        let memory = SharedMemory::unallocated(PACKET_MEMORY, size as usize);
        let memory = memory.map_err(|e| e.to_string())?;
        let lends = Answer::Allocate { bytes: size };
        let taken = answer(caller.socket.as_fd(), &lends, &[memory.as_fd()]);
        caller.lent = Some((memory, bytes));
        if taken.is_err() {
            self.close(number);
        }
        Ok(())
    }

    /// Tries again what waits for the kernel.
    fn retry(&mut self) {
        let waiting =
            |(number, caller): (&u64, &mut Caller)| Some((*number, caller.waiting.take()?));
        let all: Vec<_> = self.callers.iter_mut().filter_map(waiting).collect();
        for (number, asked) in all {
            self.open(number, asked);
        }
    }

    fn close_silent(&mut self) {
        let is_silent = |(number, caller): &(&u64, &Caller)| {
            let silent = caller.heard.elapsed() >= SILENCE_MAX && caller.waiting.is_none();
            silent && !self.book.has(**number)
        };
        let silent: Vec<u64> = (self.callers.iter().filter(is_silent))
            .map(|(number, _)| *number)
            .collect();
        silent.into_iter().for_each(|number| self.close(number));
    }

    /// Takes back what is not held any more, and leaves interfaces that carry
    /// nothing.
    fn look(&mut self) {
        self.book.take_back(&self.interfaces, LOOK);
        if self.callers.values().all(|it| it.waiting.is_none()) {
            let linger = Duration::from_secs(self.book.config.linger_seconds.into());
            let used = |index| self.book.uses(index);
            self.leaves = self.interfaces.keep(used, linger);
        }
    }
}
