//! Supersteps over TCP of the kernel, for comparison: one stream between each two processes.
//! All else of the job, such as addresses and deaths, is the endpoint's.
//!
//! No call here waits for one receiver: streams take what they can, and any wait also reads
//! what all others send. So no two processes wait for each other.

mod connect;
pub mod frames;

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use portolan::{Endpoint, Gather, Scatter, WaitError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use crate::exchange::{Arrived, Part, SuperstepExchange};
use crate::failure::Failure;
use crate::head::Head;
use crate::heads::Intake;
use crate::spare::Spare;
use crate::tcp::frames::{Came, HEAD, Incoming, Outgoing, Trouble};
use crate::wire::{part_of, tag};

/// Time that a wait polls before it sleeps, as a wake-up costs more. The wait does not yield
/// the core: beside busy programs that may take a whole time slice of one, while a sleeper
/// runs at once when woken.
const SPIN: Duration = Duration::from_micros(30);
/// Interval at which a sleeping wait asks the endpoint for dead peers: the kernel may not
/// notice a lost host.
const ASK: Duration = Duration::from_millis(200);
/// Time for the endpoint to report why a stream has ended.
const REASON: Duration = Duration::from_secs(2);
/// Most streams that are read without polling first.
const FEW: usize = 4;

/// Stream between this process and another.
struct Stream {
    who: u32,
    socket: TcpStream,
    outgoing: Outgoing,
    incoming: Incoming,
    /// Why the stream has ended, if it has.
    gone: Option<String>,
}

pub struct Streams {
    me: u32,
    /// Streams by process, without this one.
    streams: Vec<Stream>,
    intake: Intake,
    arrived: VecDeque<Arrived>,
}

/// Condition of a wait.
#[derive(Clone, Copy)]
enum Until<'a> {
    /// More heads have arrived, or the deadline has passed.
    Heads(&'a SuperstepExchange, Option<Instant>),
    /// A part has arrived.
    Part,
    /// All outgoing bytes have left.
    Left,
    /// All others have closed.
    Closed,
}

impl Until<'_> {
    /// Whether the condition depends on this stream.
    fn needs(self, it: &Stream) -> bool {
        match self {
            Self::Heads(exchange, _) => exchange.misses(it.who),
            Self::Part => it.incoming.misses(),
            Self::Left => !it.outgoing.is_empty(),
            Self::Closed => it.gone.is_none(),
        }
    }

    /// Returns the longest sleep, and whether the deadline has passed.
    fn sleep(self) -> (Duration, bool) {
        match self {
            Self::Heads(_, Some(until)) => {
                let left = until.saturating_duration_since(Instant::now());
                (left.min(ASK), left.is_zero())
            }
            _ => (ASK, false),
        }
    }
}

impl Stream {
    fn end(&mut self, why: String) {
        self.gone = Some(why);
        // A process that misses data of the peer reports the death.
        self.outgoing.clear();
    }

    fn push(&mut self, tag: u64, bytes: Gather) {
        if self.gone.is_none() {
            self.outgoing.push(tag, bytes);
        }
    }

    /// Writes once; returns whether anything has left.
    fn write(&mut self, spare: &mut Spare) -> Result<bool, Failure> {
        if self.outgoing.is_empty() {
            return Ok(false);
        }
        let socket = &self.socket;
        let send = |bytes: &[io::IoSlice<'_>]| {
            let mut control = SendAncillaryBuffer::default();
            // No signal if the peer has closed.
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            Ok(sendmsg(socket, bytes, &mut control, flags)?)
        };
        let done = |sent: Gather| sent.into_vecs().for_each(|memory| spare.keep(memory));
        match self.outgoing.write(send, done) {
            Ok(()) => Ok(true),
            Err(e) if is_later(&e) => Ok(false),
            Err(e) if Errno::from_io_error(&e) == Some(Errno::FAULT) => {
                Err(Failure::Unreadable { to: self.who })
            }
            Err(_) => {
                // Data sent by the peer may still be there; reading reports its end.
                self.outgoing.clear();
                Ok(true)
            }
        }
    }
}

fn is_later(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

impl Streams {
    fn stream(&mut self, who: u32) -> &mut Stream {
        &mut self.streams[who as usize - usize::from(who > self.me)]
    }

    pub fn send_head(&mut self, to: u32, head: &[u8], spare: &mut Spare) {
        let it = self.stream(to);
        it.push(HEAD, head.to_vec().into());
        // Heads still go to all others after an error, so that they learn what this process
        // found. The next wait meets the error again.
        let _ = it.write(spare);
    }

    /// Queues a part, which leaves in the next wait.
    pub fn send(&mut self, to: u32, part: Part, step: u64, bytes: Gather) {
        self.stream(to).push(tag(part, step), bytes);
    }

    pub fn expect(
        &mut self,
        from: u32,
        part: Part,
        step: u64,
        room: Scatter,
    ) -> Result<(), Failure> {
        let expected = self.stream(from).incoming.expect(tag(part, step), room);
        if let Some(bytes) = expected.map_err(|e| trouble(from, e))? {
            self.arrived.push_back(Arrived {
                from,
                part,
                bytes,
                length: None,
            });
        }
        Ok(())
    }

    /// Waits for more heads than the exchange has seen; false if that takes longer than the
    /// limit.
    pub fn wait_heads(
        &mut self,
        endpoint: &Endpoint,
        spare: &mut Spare,
        exchange: &SuperstepExchange,
        seen: u32,
        limit: Option<Duration>,
    ) -> Result<bool, Failure> {
        let (heads, step) = exchange.heads();
        let until = limit.map(|limit| Instant::now() + limit);
        while heads.count(step) == seen {
            if let Some(who) = heads.broken() {
                return Err(Failure::Malformed { who });
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(false);
            }
            self.wait(endpoint, spare, Until::Heads(exchange, until))?;
        }
        Ok(true)
    }

    /// Waits for an expected part.
    pub fn next(&mut self, endpoint: &Endpoint, spare: &mut Spare) -> Result<Arrived, Failure> {
        loop {
            if let Some(arrived) = self.arrived.pop_front() {
                return Ok(arrived);
            }
            self.wait(endpoint, spare, Until::Part)?;
        }
    }

    /// Waits until the kernel has all that was sent: no thread sends for this process while it
    /// computes.
    pub fn settle(&mut self, endpoint: &Endpoint, spare: &mut Spare) -> Result<(), Failure> {
        while self.streams.iter().any(|it| !it.outgoing.is_empty()) {
            self.wait(endpoint, spare, Until::Left)?;
        }
        Ok(())
    }

    /// Waits until all others have received everything, which they report by closing too.
    pub fn close(&mut self, endpoint: &Endpoint, spare: &mut Spare) -> Result<(), Failure> {
        self.settle(endpoint, spare)?;
        for it in &self.streams {
            // A stream that has ended has no connection to shut down.
            let _ = it.socket.shutdown(Shutdown::Write);
        }
        while self.streams.iter().any(|it| it.gone.is_none()) {
            self.wait(endpoint, spare, Until::Closed)?;
        }
        Ok(())
    }

    /// Waits until anything has moved, or the deadline has passed.
    fn wait(
        &mut self,
        endpoint: &Endpoint,
        spare: &mut Spare,
        until: Until<'_>,
    ) -> Result<(), Failure> {
        let mut began = None;
        loop {
            if self.pass(spare, Duration::ZERO)? {
                return Ok(());
            }
            let mut lost = self
                .streams
                .iter()
                .filter(|it| it.gone.is_some() && until.needs(it));
            if let Some(it) = lost.next() {
                let why = it.gone.clone().unwrap_or_default();
                return Err(died(endpoint, it.who, why));
            }
            if began.get_or_insert_with(Instant::now).elapsed() < SPIN {
                continue;
            }
            let (limit, is_late) = until.sleep();
            if is_late || self.pass(spare, limit)? {
                return Ok(());
            }
            endpoint.progress()?;
            for it in self.streams.iter_mut().filter(|it| until.needs(it)) {
                if let Some(why) = endpoint.death(it.who)? {
                    it.end(why.to_string());
                    return Ok(());
                }
            }
        }
    }

    /// Writes and reads once wherever possible; returns whether anything moved. If nothing was
    /// written, waits at most `limit` until something is possible.
    fn pass(&mut self, spare: &mut Spare, limit: Duration) -> Result<bool, Failure> {
        let mut moved = false;
        for it in &mut self.streams {
            moved |= it.write(spare)?;
        }
        let asks = !limit.is_zero() || self.streams.len() > FEW;
        let readable = asks.then(|| self.poll(if moved { Duration::ZERO } else { limit }));
        let Self {
            streams,
            intake,
            arrived,
            ..
        } = self;
        for (at, it) in streams.iter_mut().enumerate() {
            let is_readable = readable.as_ref().is_none_or(|all| all[at]);
            if it.gone.is_some() || !(is_readable || it.incoming.is_ready()) {
                continue;
            }
            let from = it.who;
            let give = |came: Came<'_>| match came {
                Came::Head(head) => intake.put(from, Head::step(head), head),
                Came::Part(tag, bytes) => arrived.push_back(Arrived {
                    from,
                    part: part_of(tag),
                    bytes,
                    length: None,
                }),
            };
            match it.incoming.read(&mut &it.socket, give) {
                Ok(came) => moved |= came,
                Err(e) => match trouble(from, e) {
                    Failure::Died { why, .. } => {
                        it.end(why);
                        moved = true;
                    }
                    other => return Err(other),
                },
            }
        }
        Ok(moved)
    }

    /// Returns which streams can be read.
    fn poll(&self, limit: Duration) -> Vec<bool> {
        let events = |it: &Stream| {
            let mut events = PollFlags::empty();
            events.set(PollFlags::IN, !it.incoming.waits());
            events.set(PollFlags::OUT, !it.outgoing.is_empty());
            // Without events the kernel still reports that a stream has ended.
            let is_of_use = it.gone.is_none() && !events.is_empty();
            is_of_use.then_some(events)
        };
        let (mut polled, mut places) = (Vec::new(), Vec::new());
        for (at, it) in self.streams.iter().enumerate() {
            if let Some(events) = events(it) {
                polled.push(PollFd::new(&it.socket, events));
                places.push(at);
            }
        }
        let is_ready = self.streams.iter().any(|it| it.incoming.is_ready());
        wait_for(&mut polled, if is_ready { Duration::ZERO } else { limit });
        let mut readable = vec![false; self.streams.len()];
        for (at, it) in places.into_iter().zip(&polled) {
            readable[at] = !(it.revents() - PollFlags::OUT).is_empty();
        }
        readable
    }
}

fn trouble(who: u32, trouble: Trouble) -> Failure {
    let died = |why| Failure::Died { who, why };
    match trouble {
        Trouble::Ended => died("it closed its connection".to_owned()),
        Trouble::Io(e) => died(format!("its connection broke: {e}")),
        Trouble::Malformed => Failure::Malformed { who },
        Trouble::NoMemory(bytes) => Failure::NoMemory { who, bytes },
    }
}

/// Returns why a process died: the endpoint's reason, which may come later than the stream's.
fn died(endpoint: &Endpoint, who: u32, why: String) -> Failure {
    let until = Instant::now() + REASON;
    loop {
        if let Ok(Some(why)) = endpoint.death(who) {
            let why = why.to_string();
            return Failure::Died { who, why };
        }
        let left = until.saturating_duration_since(Instant::now());
        match endpoint.wait_timeout(left, || false) {
            // This peer or another has died.
            Err(WaitError::PeerDead { .. }) => {}
            _ => return Failure::Died { who, why },
        }
    }
}

/// Polls until one is ready, at most `limit`.
fn wait_for(polled: &mut [PollFd<'_>], limit: Duration) {
    let limit = Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    // If interrupted, the caller polls again.
    let _ = poll(polled, Some(&limit));
}
