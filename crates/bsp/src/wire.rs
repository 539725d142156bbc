//! Transport of an exchange. Heads are messages to a port, whose handler stores them for the
//! exchange. Parts are matched messages: short ones are pushed, longer ones pulled by their
//! receiver. With `BSP_TRANSPORT=tcp` all go by the streams of [`tcp`](crate::tcp).

use std::time::Duration;

use portolan::c_edge::var_os;
use portolan::{
    Binding, Completion, Counters, Endpoint, Gather, Memory, Misuse, Notify, OpError, QueueId,
    Scatter, Selector, SendError, TaggedOptions, WaitError,
};

use crate::copy::Copier;
use crate::exchange::{Arrived, Part, SuperstepExchange, Wire};
use crate::failure::Failure;
use crate::head::Head;
use crate::heads::Intake;
use crate::spare::Spare;
use crate::tcp::Streams;

/// Environment variable that names the transport.
const TRANSPORT: &str = "BSP_TRANSPORT";

/// Port of heads; [`crate::direct`] has the next ports.
pub const HEADS: u16 = 0;

/// Bits of a tag for the part; the superstep is in the bits above.
const PART_BITS: u32 = 24;
/// Number of codes for parts other than messages of pieces.
const KINDS: u64 = 2;

/// Returns the tag of a part of a superstep.
pub fn tag(part: Part, step: u64) -> u64 {
    let part = match part {
        Part::Log => 0,
        Part::Results => 1,
        Part::Pieces(message) => KINDS + u64::from(message),
    };
    step << PART_BITS | part
}

/// Returns the superstep of a tag.
pub const fn step_of(tag: u64) -> u64 {
    tag >> PART_BITS
}

/// Returns the part of a tag.
pub fn part_of(tag: u64) -> Part {
    match tag & ((1 << PART_BITS) - 1) {
        0 => Part::Log,
        1 => Part::Results,
        message => Part::Pieces((message - KINDS) as u32),
    }
}

/// Transport of supersteps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The endpoint's links.
    Portolan,
    /// The kernel's TCP, for comparison.
    Tcp,
}

impl Transport {
    /// Returns the transport that the environment asks for.
    pub fn asked() -> Result<Self, String> {
        match var_os(TRANSPORT) {
            None => Ok(Self::Portolan),
            Some(name) if name == "portolan" => Ok(Self::Portolan),
            Some(name) if name == "tcp" => Ok(Self::Tcp),
            Some(name) => Err(format!(
                "{TRANSPORT} is {name:?}: give portolan or tcp, or unset it"
            )),
        }
    }
}

/// BSPlib's space on the endpoint of the process.
pub struct Engine {
    pub endpoint: Endpoint,
    expected: QueueId,
    sent: QueueId,
    /// Pending sends; `lent` are those with memory of the program.
    under_way: usize,
    lent: usize,
    /// Processes found dead.
    dead: Vec<u32>,
    spare: Spare,
    copier: Copier,
    /// Streams, if they carry supersteps instead.
    tcp: Option<Box<Streams>>,
}

impl From<Misuse> for Failure {
    fn from(error: Misuse) -> Self {
        Self::Endpoint(error.to_string())
    }
}

impl Engine {
    /// Opens the transport of `size` processes; heads go to `intake`.
    pub fn new(
        endpoint: Endpoint,
        size: u32,
        mut intake: Intake,
        transport: Transport,
    ) -> Result<Self, Failure> {
        let mut engine = Self {
            expected: endpoint.open_queue()?,
            sent: endpoint.open_queue()?,
            under_way: 0,
            lent: 0,
            dead: Vec::new(),
            spare: Spare::default(),
            copier: Copier::default(),
            tcp: None,
            endpoint,
        };
        if transport == Transport::Tcp {
            let streams = Streams::open(&mut engine, size, intake)?;
            engine.tcp = Some(Box::new(streams));
        } else {
            let take =
                Binding::to(move |_, m| intake.put(m.from, Head::step(m.payload), m.payload));
            engine.endpoint.bind(HEADS, take)?;
        }
        Ok(engine)
    }

    /// Fails in a forked child. The endpoint detects forks itself, streams do not.
    #[inline]
    pub fn check_fork(&self) -> Result<(), Failure> {
        if self.tcp.is_some() {
            self.endpoint.counters()?;
        }
        Ok(())
    }

    /// Closes the transport once all that was sent has arrived.
    pub fn close(mut self) -> Result<(), Failure> {
        if let Some(tcp) = &mut self.tcp {
            tcp.close(&self.endpoint, &mut self.spare)?;
        }
        let closed = self.endpoint.close();
        closed.map_err(|e| Failure::Endpoint(e.to_string()))
    }

    /// Returns the link to another process: `shm`, `udp`, `xdp` or `tcp`.
    pub fn link(&self, other: u32) -> &'static str {
        if self.tcp.is_some() {
            return "tcp";
        }
        self.endpoint.lane(other).map_or("", |(name, _)| name)
    }

    pub fn counters(&self) -> Result<Counters, Failure> {
        Ok(self.endpoint.counters()?)
    }

    /// Copies `bytes`; `None` if there is no memory.
    pub fn copy(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut memory = self.spare.take(bytes.len())?;
        self.copier.copy(bytes, &mut memory);
        Some(memory)
    }

    /// Waits for more heads than the exchange has seen; false if that takes longer than the
    /// limit.
    #[inline]
    pub fn wait_heads(
        &mut self,
        exchange: &SuperstepExchange,
        seen: u32,
        limit: Option<Duration>,
    ) -> Result<bool, Failure> {
        if let Some(tcp) = &mut self.tcp {
            return tcp.wait_heads(&self.endpoint, &mut self.spare, exchange, seen, limit);
        }
        let (heads, step) = exchange.heads();
        loop {
            if let Some(who) = self.dead.iter().find(|who| exchange.misses(**who)) {
                return Err(self.died(*who)?);
            }
            let more = || heads.count(step) != seen || heads.broken().is_some();
            let waited = match limit {
                None => self.endpoint.wait_until(more),
                Some(limit) => self.endpoint.wait_timeout(limit, more),
            };
            match waited {
                Ok(()) => break,
                Err(WaitError::TimedOut) => return Ok(false),
                Err(WaitError::PeerDead { rank, .. }) => self.dead.push(rank),
                Err(e) => return Err(Failure::Endpoint(e.to_string())),
            }
        }
        match heads.broken() {
            Some(who) => Err(Failure::Malformed { who }),
            None => Ok(true),
        }
    }

    /// Waits for an expected part.
    pub fn next(&mut self) -> Result<Arrived, Failure> {
        if let Some(tcp) = &mut self.tcp {
            return tcp.next(&self.endpoint, &mut self.spare);
        }
        let ended = loop {
            match self.endpoint.wait_completion(self.expected, None) {
                Ok(ended) => break ended,
                // Parts expected from the peer end too, unless they have arrived.
                Err(WaitError::PeerDead { rank, .. }) => self.dead.push(rank),
                Err(e) => return Err(Failure::Endpoint(e.to_string())),
            }
        };
        self.check(&ended.completion)?;
        Ok(Arrived {
            from: ended.completion.peer,
            part: part_of(ended.completion.tag),
            length: Some(ended.completion.bytes),
            bytes: ended.into_received(),
        })
    }

    fn died(&self, who: u32) -> Result<Failure, Failure> {
        let why = self.endpoint.death(who)?;
        let why = why.map_or_else(|| "it closed".to_owned(), |why| why.to_string());
        Ok(Failure::Died { who, why })
    }

    fn check(&self, done: &Completion) -> Result<(), Failure> {
        let who = done.peer;
        match done.result {
            Ok(()) => Ok(()),
            Err(OpError::PeerDead) => Err(self.died(who)?),
            Err(OpError::Truncated) => Err(Failure::Malformed { who }),
            Err(e) => Err(Failure::Endpoint(e.to_string())),
        }
    }

    /// Waits until no send reads the program's memory any more, and reuses memory of ended sends.
    #[inline]
    pub fn settle(&mut self) -> Result<(), Failure> {
        if let Some(tcp) = &mut self.tcp {
            return tcp.settle(&self.endpoint, &mut self.spare);
        }
        while self.under_way > 0 {
            let ended = if self.lent > 0 {
                match self.endpoint.wait_completion(self.sent, None) {
                    Ok(ended) => ended,
                    Err(WaitError::PeerDead { rank, .. }) => {
                        self.dead.push(rank);
                        continue;
                    }
                    Err(e) => return Err(Failure::Endpoint(e.to_string())),
                }
            } else {
                match self.endpoint.next_completion(self.sent)? {
                    Some(ended) => ended,
                    None => return Ok(()),
                }
            };
            self.under_way -= 1;
            self.lent -= ended.completion.context as usize;
            if let Some(Memory::Source(sent)) = ended.memory {
                sent.into_vecs().for_each(|memory| self.spare.keep(memory));
            }
        }
        Ok(())
    }
}

fn notify(queue: QueueId, context: u64) -> Notify {
    Notify {
        context,
        queue: Some(queue),
        ..Notify::NONE
    }
}

impl Wire for Engine {
    #[inline]
    fn send_head(&mut self, to: u32, head: &[u8]) -> Result<(), Failure> {
        if let Some(tcp) = &mut self.tcp {
            tcp.send_head(to, head, &mut self.spare);
            return Ok(());
        }
        match self.endpoint.send(to, HEADS, head) {
            Ok(_) => Ok(()),
            // A process that misses data of the peer reports the death.
            Err(SendError::PeerDead { rank, .. }) => {
                self.dead.push(rank);
                Ok(())
            }
            Err(e) => Err(Failure::Endpoint(e.to_string())),
        }
    }

    fn send(
        &mut self,
        to: u32,
        part: Part,
        step: u64,
        bytes: Gather,
        lent: bool,
    ) -> Result<(), Failure> {
        if let Some(tcp) = &mut self.tcp {
            tcp.send(to, part, step, bytes);
            return Ok(());
        }
        let options = TaggedOptions {
            notify: notify(self.sent, lent.into()),
            ..TaggedOptions::default()
        };
        match (self.endpoint).post_send(to, tag(part, step), &options, bytes) {
            Ok(_) => {
                self.under_way += 1;
                self.lent += usize::from(lent);
                Ok(())
            }
            // A process that misses data of the peer reports the death.
            Err((SendError::PeerDead { .. }, _)) => Ok(()),
            Err((e, _)) => Err(Failure::Endpoint(e.to_string())),
        }
    }

    fn expect(&mut self, from: u32, part: Part, step: u64, room: Scatter) -> Result<(), Failure> {
        if let Some(tcp) = &mut self.tcp {
            return tcp.expect(from, part, step, room);
        }
        let selector = Selector::from(from, tag(part, step));
        match (self.endpoint).post_receive(&selector, room, notify(self.expected, 0)) {
            Ok(_) => Ok(()),
            Err(e) => Err(Failure::Endpoint(e.to_string())),
        }
    }

    fn room(&mut self, from: u32, bytes: u64) -> Result<Vec<u8>, Failure> {
        let too_long = |_| Failure::Malformed { who: from };
        let length = usize::try_from(bytes).map_err(too_long)?;
        let memory = self.spare.take(length);
        let mut memory = memory.ok_or(Failure::NoMemory { who: from, bytes })?;
        memory.resize(length, 0);
        Ok(memory)
    }

    fn keep(&mut self, memory: Vec<u8>) {
        self.spare.keep(memory);
    }
}
