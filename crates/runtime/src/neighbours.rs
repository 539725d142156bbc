//! Endpoints of one host, outside of a job, exchange their memory.
//!
//! Each listens at an abstract unix socket named by its key. The caller, which wants to send to
//! another, connects there. Both check by the kernel's credentials whose process the other is; then
//! each hands over its memory, its doorbell and a pidfd of itself. Until then neither accepts
//! descriptors, where the kernel has `SO_PASSRIGHTS`: other users can connect too, and closing what
//! they sent may take as long as they like. So the called side speaks first.
//!
//! | message | bytes | descriptors |
//! | --- | --- | --- |
//! | ready, by the called | `R`, version | 0 |
//! | call | `C`, version, the index that the caller assigns to the called (2), a hash of the common secret (8), the caller's address (64) | 3 |
//! | answer | `A`, version, the index that the called assigns to the caller (2) | 3 |
//! | refusal | `N`, version, 1: final, 0: call again | 0 |
//!
//! If both call, the call of the endpoint with the lower id stands. The called side shares memory
//! once it has sent the answer; to a caller that has given up before, the answer cannot be sent. So
//! both agree.
//!
//! Any user of the host can connect, as often as it likes. A pass accepts few connections, and
//! after many of other users none for a second. A caller that never gets `ready` uses the network.

use std::collections::VecDeque;
use std::io;
use std::mem::take;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use portolan_engine::LocalRefused;
use portolan_seal::PUBLIC_KEY_BYTES;
use portolan_sys::clock::now_ns;
use portolan_sys::closing::{Closer, admits_descriptors};
use portolan_sys::epoll::Epoll;
use portolan_sys::memory::SharedMemory;
use portolan_sys::process::{Pidfd, is_of_our_user, own_pid, peer};
use portolan_sys::shared_doorbell::{Ringer, is_doorbell};
use portolan_sys::socket;
use portolan_wire::{ADDRESS_BYTES, EndpointId, KeyAddress, Life};

/// Token of these sockets in an endpoint's epoll set.
pub(crate) const TOKEN_NEAR: u64 = 5;

const VERSION: u8 = 2;
const READY: u8 = b'R';
const CALL: u8 = b'C';
const ANSWER: u8 = b'A';
const NO: u8 = b'N';

/// Backoff between two calls to an endpoint that does not listen (yet), ns: initial and maximum.
const RETRY_NS: [u64; 2] = [1_000_000, 64_000_000];
/// Timeout for the answer to a call, ns; then no memory is shared. The called program may compute,
/// but its helper thread answers.
const ANSWER_NS: u64 = 3_000_000_000;
/// Maximum number of callers that have not identified themselves yet.
const UNHEARD_MAX: usize = 64;
/// Interval at which accepting is retried while no descriptor is left, ns.
const DEAF_NS: u64 = 100_000_000;
/// Maximum number of connections that a pass accepts.
const ACCEPTS_MAX: usize = 8;
/// Connections of other users within a second after which none is accepted for the next.
const STRANGERS_MAX: u32 = 64;
const FLOOD_NS: u64 = 1_000_000_000;
/// Number of sockets waiting to be closed at which none is accepted, and the interval at which
/// closing is retried, ns.
const CLOSING_MAX: usize = 64;
const CLOSING_NS: u64 = 10_000_000;
/// Backlog of the listening socket.
const CALLS_MAX: i32 = 1024;

/// Identity of an endpoint, as derived from its key.
pub(crate) type Who = (EndpointId, Life);

/// What another endpoint hands over to share memory.
#[derive(Debug)]
pub(crate) struct Handed {
    /// Its memory.
    pub memory: OwnedFd,
    /// Doorbell that wakes it.
    pub ringer: Ringer,
    /// Pidfd: readable once its process has ended.
    pub process: Pidfd,
    /// Process id of the maker of its end of the socket, as the kernel reports it; 0: not visible
    /// here, or not the same as `process`.
    pub pid: u32,
    /// Index that it has assigned to us.
    pub us: u16,
}

/// Event returned by [`Neighbours::poll`].
#[derive(Debug)]
pub(crate) enum Met {
    /// An endpoint of this user calls: to be [answered](Neighbours::answer).
    Called {
        /// Number of the call.
        call: u64,
        /// Address of the caller.
        from: KeyAddress,
        /// What the caller has handed over.
        handed: Handed,
    },
    /// A call was answered: memory is shared.
    Answered {
        /// Rank that was called.
        rank: u32,
        /// Index that we have assigned to it.
        index: u16,
        /// What the called side has handed over.
        handed: Handed,
    },
    /// A call was refused; the rank is reached by the network.
    Refused {
        /// Rank that was called.
        rank: u32,
        /// Index that was reserved for it.
        index: u16,
        /// Reason, for people to read.
        why: &'static str,
    },
    /// No endpoint listened before the deadline.
    NoAnswer {
        /// Rank that was called.
        rank: u32,
        /// Index that was reserved for it.
        index: u16,
    },
}

#[derive(Debug)]
struct Call {
    rank: u32,
    to: Who,
    /// Index reserved for it.
    index: u16,
    /// Connection, once the other side listens.
    socket: Option<OwnedFd>,
    /// Whether our descriptors were sent, after the other side was ready.
    sent: bool,
    /// Time of the next try, or at which the answer is overdue, ns.
    due: u64,
    retry_ns: u64,
    /// Deadline for the other side to listen, ns.
    until: u64,
    /// Since when the other side's backlog is full, ns.
    full_since: Option<u64>,
}

/// An endpoint's listener, calls and callers.
#[derive(Debug)]
pub(crate) struct Neighbours {
    /// The endpoint's epoll set, on which it sleeps.
    events: Epoll,
    listener: OwnedFd,
    own: KeyAddress,
    /// Hash of the common secret; callers with another are refused.
    secret: [u8; 8],
    memory: OwnedFd,
    ringer: Ringer,
    calls: Vec<Call>,
    /// Connections whose callers have not identified themselves.
    unheard: VecDeque<OwnedFd>,
    /// Callers that wait for an answer, by number of the call.
    callers: Vec<(u64, OwnedFd)>,
    called: u64,
    /// Time until which no connection is accepted, ns; 0: they are.
    deaf_until: u64,
    /// Connections of other users, and since when they are counted, ns.
    strangers: (u32, u64),
    closer: Closer,
    /// Time at which closing is retried, ns, while sockets wait for it.
    close_at: Option<u64>,
}

/// Returns the name of the socket at which an endpoint listens.
fn name_of((id, life): Who) -> String {
    format!("portolan-endpoint-{:016x}{:016x}", id.0, life.0)
}

/// Returns the identity of the endpoint with this key.
pub(crate) fn who(key: &[u8; PUBLIC_KEY_BYTES]) -> Who {
    let (id, life) = portolan_seal::identity(key);
    (EndpointId(id), Life(life))
}

/// Socket that a message came by, and the closer for what came along.
type Origin<'a> = (BorrowedFd<'a>, &'a Closer);

/// Takes the three descriptors if they are of the expected kinds, and adds the process behind
/// `socket`. Others stay: they may be of files that take long to close.
fn handed(
    (socket, closer): Origin<'_>,
    descriptors: &mut Vec<OwnedFd>,
    us: [u8; 2],
) -> Option<Handed> {
    let [memory, ringer, process] = descriptors.as_slice() else {
        return None;
    };
    let fit = SharedMemory::is_one(memory.as_fd())
        && is_doorbell(ringer.as_fd())
        && Pidfd::check(process.as_fd()).is_ok();
    let three: Vec<OwnedFd> = if fit { take(descriptors) } else { return None };
    let [memory, ringer, process]: [OwnedFd; 3] = three.try_into().ok()?;
    let process = Pidfd::from_other(process).ok()?;
    // The socket's maker may have ended after passing it on; its process id may by now be
    // another's.
    let pid = peer(socket).ok()?.pid;
    let pid = pid.filter(|pid| process.number() == Some(*pid));
    Some(Handed {
        memory,
        ringer: Ringer::foreign(ringer, closer).ok()?,
        process,
        pid: pid.map_or(0, NonZeroU32::get),
        us: u16::from_le_bytes(us),
    })
}

fn refuse(caller: BorrowedFd<'_>, why: LocalRefused) -> io::Result<()> {
    let for_good = u8::from(why == LocalRefused::Never);
    socket::send(caller, &[NO, VERSION, for_good], &[], false)
}

impl Neighbours {
    /// Listens as the endpoint at `own`, with its memory and what rings its doorbell. Callers with
    /// another `secret` (a hash of one) are refused.
    ///
    /// # Errors
    /// No socket or other descriptor is available.
    pub fn listen(
        own: KeyAddress,
        secret: u64,
        (memory, ringer): (OwnedFd, Ringer),
    ) -> io::Result<Self> {
        let listener = socket::listen(&name_of(who(&own.key)), CALLS_MAX)?;
        let events = Epoll::new()?;
        events.add(listener.as_fd(), TOKEN_NEAR)?;
        Ok(Self {
            events,
            listener,
            own,
            secret: secret.to_le_bytes(),
            memory,
            ringer,
            calls: Vec::new(),
            unheard: VecDeque::new(),
            callers: Vec::new(),
            called: 0,
            deaf_until: 0,
            strangers: (0, 0),
            close_at: None,
            closer: Closer::default(),
        })
    }

    /// Epoll set that reports [`TOKEN_NEAR`] when there may be something to [poll](Self::poll).
    pub fn events(&self) -> Epoll {
        self.events.share()
    }

    /// Whether a call, by us or to us, is unanswered.
    pub const fn is_meeting(&self) -> bool {
        !self.callers.is_empty() || !self.calls.is_empty()
    }

    /// When to poll at the latest, ns of the monotonic clock.
    pub fn next_timeout(&self) -> Option<u64> {
        let calls = self.calls.iter().map(|call| call.due);
        // A doorbell may have been queued for closing since the last pass.
        let close_at = (self.close_at).or_else(|| (!self.closer.is_empty()).then_some(0));
        calls
            .chain((self.deaf_until > 0).then_some(self.deaf_until))
            .chain(close_at)
            .min()
    }

    /// Calls the endpoint `to`, which is `rank` here and gets `index`. It need not listen before
    /// `until`, ns of the monotonic clock.
    pub fn call(&mut self, rank: u32, to: Who, index: u16, until: u64) {
        self.calls.push(Call {
            rank,
            to,
            index,
            socket: None,
            sent: false,
            due: now_ns(),
            retry_ns: RETRY_NS[0],
            until,
            full_since: None,
        });
    }

    /// Ends a call. Returns the index reserved for the called, and what it has handed over if it
    /// has answered by now.
    pub fn cancel_call(&mut self, rank: u32) -> Option<(u16, Option<Handed>)> {
        let at = self.calls.iter().position(|call| call.rank == rank)?;
        let call = self.calls.swap_remove(at);
        let last = call.socket.and_then(|socket| self.last_answer(socket));
        self.end_pass();
        Some((call.index, last))
    }

    /// Answers a caller, which gets `index` or is refused. Returns false if the answer could not be
    /// sent.
    pub fn answer(&mut self, call: u64, index: Result<u16, LocalRefused>) -> bool {
        let Some(at) = self.callers.iter().position(|(other, _)| *other == call) else {
            return false;
        };
        let (_, socket) = self.callers.swap_remove(at);
        let sent = match index {
            Ok(index) => {
                let [low, high] = index.to_le_bytes();
                let answer = [ANSWER, VERSION, low, high];
                self.hand_to(socket.as_fd(), &answer)
            }
            Err(why) => refuse(socket.as_fd(), why),
        };
        self.closer.take(socket);
        sent.is_ok()
    }

    /// Sends `said`, with the descriptors for sharing memory with us.
    fn hand_to(&self, to: BorrowedFd<'_>, said: &[u8]) -> io::Result<()> {
        let process = Pidfd::open(own_pid())?;
        let ours = [self.memory.as_fd(), self.ringer.as_fd(), process.as_fd()];
        socket::send(to, said, &ours, false)
    }

    /// Accepts callers. [`Self::poll`] follows, and at the end [`Self::end_pass`].
    pub fn begin_pass(&mut self) {
        self.accept(now_ns());
    }

    /// Closes what waits to be closed.
    pub fn end_pass(&mut self) {
        self.closer.close();
        let waits = !self.closer.is_empty();
        self.close_at = waits.then(|| now_ns() + CLOSING_NS);
    }

    /// Returns the next event. Does not wait.
    pub fn poll(&mut self) -> Option<Met> {
        if let Some(met) = self.hear_callers() {
            return Some(met);
        }
        let now = now_ns();
        for at in 0..self.calls.len() {
            if let Some(met) = self.go_on(at, now) {
                self.calls.swap_remove(at);
                return Some(met);
            }
        }
        None
    }

    fn close(&mut self, socket: OwnedFd) {
        let _ = self.events.remove(socket.as_fd());
        self.closer.take(socket);
    }

    /// Abandons a call. After the shutdown no answer can be sent; one that was sent before is here.
    fn last_answer(&mut self, socket: OwnedFd) -> Option<Handed> {
        socket::shut(socket.as_fd());
        let last = self.receive(socket.as_fd());
        self.close(socket);
        match last {
            Heard::Answer(handed) => Some(handed),
            _ => None,
        }
    }

    /// Accepts connections, few at a time: other users can connect too, as often as they like.
    fn accept(&mut self, now: u64) {
        if self.deaf_until > 0 {
            if now < self.deaf_until {
                return;
            }
            if self.events.add(self.listener.as_fd(), TOKEN_NEAR).is_err() {
                self.deaf_until = now + DEAF_NS;
                return;
            }
            self.deaf_until = 0;
        }
        for _ in 0..ACCEPTS_MAX {
            if self.closer.len() >= CLOSING_MAX {
                return self.be_deaf(now + CLOSING_NS);
            }
            let other = match socket::accept(self.listener.as_fd()) {
                Ok(Some(other)) => other,
                Ok(None) => return,
                Err(_) => return self.be_deaf(now + DEAF_NS),
            };
            if is_of_our_user(other.as_fd()) {
                self.accept_call(other);
                continue;
            }
            // The other side finds that we are another user's, too.
            self.closer.take(other);
            if now >= self.strangers.1 + FLOOD_NS {
                self.strangers = (0, now);
            }
            self.strangers.0 += 1;
            if self.strangers.0 >= STRANGERS_MAX {
                return self.be_deaf(now + FLOOD_NS);
            }
        }
    }

    /// Accepts none until `until`. Otherwise the listener would wake sleepers again and again.
    fn be_deaf(&mut self, until: u64) {
        let _ = self.events.remove(self.listener.as_fd());
        self.deaf_until = until;
    }

    /// Sends `ready` to a process of our user that has connected.
    fn accept_call(&mut self, other: OwnedFd) {
        // Older kernels never refuse descriptors.
        let _ = socket::admit_descriptors(other.as_fd());
        let sent = socket::send(other.as_fd(), &[READY, VERSION], &[], false);
        if sent.is_err() || self.events.add(other.as_fd(), TOKEN_NEAR).is_err() {
            self.closer.take(other);
            return;
        }
        if self.unheard.len() >= UNHEARD_MAX
            && let Some(first) = self.unheard.pop_front()
        {
            self.close(first);
        }
        self.unheard.push_back(other);
    }

    fn hear_callers(&mut self) -> Option<Met> {
        for _ in 0..self.unheard.len() {
            let socket = self.unheard.pop_front()?;
            match self.receive(socket.as_fd()) {
                Heard::Nothing => self.unheard.push_back(socket),
                Heard::Call(secret, ..) if secret != self.secret => {
                    let _ = refuse(socket.as_fd(), LocalRefused::Never);
                    self.close(socket);
                }
                Heard::Call(_, from, handed) => {
                    if self.calls_first(who(&from.key)) {
                        let _ = refuse(socket.as_fd(), LocalRefused::NotNow);
                        self.close(socket);
                        continue;
                    }
                    let _ = self.events.remove(socket.as_fd());
                    self.called += 1;
                    let call = self.called;
                    self.callers.push((call, socket));
                    return Some(Met::Called { call, from, handed });
                }
                Heard::Nonsense => {
                    // Or no descriptor was left for what the caller handed over.
                    let _ = refuse(socket.as_fd(), LocalRefused::Never);
                    self.close(socket);
                }
                _ => self.close(socket),
            }
        }
        None
    }

    /// Whether our own call to a caller stands: it has been sent, and our id is lower.
    fn calls_first(&self, other: Who) -> bool {
        let is_sent = |call: &Call| call.to == other && call.sent;
        who(&self.own.key) < other && self.calls.iter().any(is_sent)
    }

    /// Advances a call; returns the event that ends it.
    fn go_on(&mut self, at: usize, now: u64) -> Option<Met> {
        let Call { rank, index, .. } = self.calls[at];
        let refused = |why| Some(Met::Refused { rank, index, why });
        let answered = |handed| {
            Some(Met::Answered {
                rank,
                index,
                handed,
            })
        };
        let Some(socket) = self.calls[at].socket.take() else {
            return if self.calls[at].due <= now {
                self.try_to_call(at, now)
            } else {
                None
            };
        };
        match self.receive(socket.as_fd()) {
            Heard::Nothing if now < self.calls[at].due => {
                self.calls[at].socket = Some(socket);
                None
            }
            Heard::Ready if !self.calls[at].sent => {
                if self.hand_over(index, socket.as_fd()).is_ok() {
                    self.calls[at].sent = true;
                    self.calls[at].socket = Some(socket);
                } else {
                    self.close(socket);
                    self.call_again(at, now);
                }
                None
            }
            Heard::Nothing => match self.last_answer(socket) {
                Some(handed) => answered(handed),
                None => refused("it does not answer at its unix socket"),
            },
            Heard::Answer(handed) => {
                self.close(socket);
                answered(handed)
            }
            Heard::Refusal => {
                self.close(socket);
                refused("it shares no memory with this endpoint")
            }
            // The other side has ended, or calls us.
            Heard::Later | Heard::End => {
                self.close(socket);
                self.call_again(at, now);
                None
            }
            Heard::Ready | Heard::Call(..) | Heard::Nonsense => {
                self.close(socket);
                refused(
                    "its answer at its unix socket cannot be read, or no descriptor is left here (ulimit -n)",
                )
            }
        }
    }

    fn call_again(&mut self, at: usize, now: u64) {
        let call = &mut self.calls[at];
        call.sent = false;
        call.due = (now + call.retry_ns).min(call.until.max(now + 1));
        call.retry_ns = (2 * call.retry_ns).min(RETRY_NS[1]);
    }

    fn try_to_call(&mut self, at: usize, now: u64) -> Option<Met> {
        let Call {
            rank,
            to,
            index,
            until,
            ..
        } = self.calls[at];
        let refused = |why| Some(Met::Refused { rank, index, why });
        if now >= until {
            return Some(Met::NoAnswer { rank, index });
        }
        let socket = match socket::call(&name_of(to)) {
            Ok(socket) => socket,
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                self.calls[at].full_since = None;
                self.call_again(at, now);
                return None;
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let since = *self.calls[at].full_since.get_or_insert(now);
                if now.saturating_sub(since) >= ANSWER_NS {
                    return refused("it does not answer at its unix socket");
                }
                self.call_again(at, now);
                return None;
            }
            Err(_) => return refused("its unix socket cannot be reached, or none is left here"),
        };
        if !is_of_our_user(socket.as_fd()) {
            self.closer.take(socket);
            return refused("it is another user's");
        }
        // Older kernels never refuse descriptors.
        let _ = socket::admit_descriptors(socket.as_fd());
        if self.events.add(socket.as_fd(), TOKEN_NEAR).is_err() {
            self.closer.take(socket);
            self.call_again(at, now);
            return None;
        }
        let call = &mut self.calls[at];
        call.socket = Some(socket);
        call.due = now + ANSWER_NS;
        None
    }

    /// Sends the call to a side that is ready, and assigns it `index`.
    fn hand_over(&self, index: u16, to: BorrowedFd<'_>) -> io::Result<()> {
        let [low, high] = index.to_le_bytes();
        let mut call = vec![CALL, VERSION, low, high];
        call.extend(self.secret);
        call.extend(self.own.to_bytes());
        self.hand_to(to, &call)
    }

    fn receive(&mut self, socket: BorrowedFd<'_>) -> Heard {
        let (bytes, mut descriptors) = match socket::receive(socket, false) {
            Ok(Some(got)) => (got.bytes, got.descriptors),
            Ok(None) => return Heard::End,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Heard::Nothing,
            Err(_) => return Heard::Nonsense,
        };
        let heard = heard((socket, &self.closer), &bytes, &mut descriptors);
        // Unexpected descriptors.
        descriptors
            .into_iter()
            .for_each(|it| self.closer.take_foreign(it));
        heard
    }
}

/// Leaves all sockets to the closer: descriptors that lie unread in them could block a close.
impl Drop for Neighbours {
    fn drop(&mut self) {
        let calls = self.calls.drain(..).filter_map(|call| call.socket);
        let callers = self.callers.drain(..).map(|(_, socket)| socket);
        for socket in calls.chain(callers).chain(self.unheard.drain(..)) {
            self.closer.take(socket);
        }
        // Connections not yet accepted may hold descriptors.
        if admits_descriptors(self.listener.as_fd()) != Ok(false)
            && let Ok(listener) = self.listener.try_clone()
        {
            self.closer.take(listener);
        }
        self.closer.close();
    }
}

enum Heard {
    Nothing,
    Ready,
    Call([u8; 8], KeyAddress, Handed),
    Answer(Handed),
    Refusal,
    Later,
    Nonsense,
    End,
}

fn heard(from: Origin<'_>, bytes: &[u8], descriptors: &mut Vec<OwnedFd>) -> Heard {
    match bytes {
        [READY, VERSION] => Heard::Ready,
        [CALL, VERSION, low, high, rest @ ..] if rest.len() == 8 + ADDRESS_BYTES => {
            let (secret, address) = rest.split_at(8);
            let caller = KeyAddress::parse(address).ok();
            let handed = handed(from, descriptors, [*low, *high]);
            match (secret.try_into(), caller, handed) {
                (Ok(secret), Some(caller), Some(handed)) => Heard::Call(secret, caller, handed),
                _ => Heard::Nonsense,
            }
        }
        [ANSWER, VERSION, low, high] => {
            handed(from, descriptors, [*low, *high]).map_or(Heard::Nonsense, Heard::Answer)
        }
        [NO, VERSION, 0] => Heard::Later,
        [NO, VERSION, _] => Heard::Refusal,
        _ => Heard::Nonsense,
    }
}
