//! What the bench and its ranks say to each other: lines of JSON over a
//! socket pair that each rank inherits. Nothing of it goes over a system
//! that is being measured, and no rank looks at it while messages flow.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use portolan_hosts::failure::{Context, Failure, Result, fail};
use rustix::net::{RecvFlags, recv};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::experiments::forged::RankState;
use crate::experiments::idle::{Idling, Rested};
use crate::experiments::spray::{Spray, Sprayed};
use crate::experiments::stalled::{Part, Played};
use crate::ranks::asleep::Wait;
use crate::ranks::flood::{Flooded, Role, Turn};
use crate::ranks::matched::{ExchangeSlice, Exchanged};
use crate::ranks::rank::Site;
use crate::ranks::standalone::Step;
use crate::ranks::stream::{Received, Stream};
use crate::report::cost::Cost;
use crate::slice::Rule;

/// A system that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SystemKind {
    /// Ourselves, over whichever lane the job has.
    Portolan,
    /// Ourselves, by endpoints outside of the job.
    Standalone,
    /// Polled UDP sockets without a protocol.
    KernelUdp,
    /// Polled TCP sockets.
    KernelTcp,
    /// TLS 1.3 over polled TCP sockets.
    KernelTls,
    /// Bare AF_XDP without a protocol.
    RawXdp,
    /// A sequence word in a bare ring.
    ShmFloor,
    /// One cache line that goes back and forth.
    ShmLine,
    /// The best pipelined copy through shared memory.
    ShmCopy,
    /// `ucx_perftest`.
    Ucx,
}

/// How messages follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// A message there, one of the same size back; one way is half of that.
    Pingpong,
    /// A message there, 8 bytes back.
    Ping,
    /// A row of messages there, 8 bytes back after the last.
    Burst,
    /// Messages without an answer.
    Stream,
}

/// Messages of one burst.
pub const BURST: u64 = 64;
/// Bytes of the answer to a ping or a burst.
pub const ANSWER_BYTES: usize = 8;

/// What is done over and over in a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Op {
    /// How messages follow each other.
    pub pattern: Pattern,
    /// Bytes of a message.
    pub size: usize,
}

impl Op {
    /// Messages sent before an answer is waited for.
    #[must_use]
    pub fn row(&self) -> u64 {
        match self.pattern {
            Pattern::Burst => BURST,
            Pattern::Pingpong | Pattern::Ping | Pattern::Stream => 1,
        }
    }

    /// Bytes of the answer; `None` where there is none.
    #[must_use]
    pub fn answer(&self) -> Option<usize> {
        match self.pattern {
            Pattern::Pingpong => Some(self.size),
            Pattern::Ping | Pattern::Burst => Some(ANSWER_BYTES),
            Pattern::Stream => None,
        }
    }
}

/// To a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Order {
    /// Make your half of a system and say what the other needs to reach it.
    /// A system that is there already in this slot is replaced.
    Prepare {
        /// Its number from now on.
        slot: usize,
        /// Which.
        system: SystemKind,
        /// You are the one who sends first and measures.
        leads: bool,
        /// How to wait for a message.
        wait: Wait,
        /// The largest message that will be asked for.
        size_max: usize,
        /// The network loses packets.
        lossy: bool,
        /// Where you are.
        site: Site,
        /// Of an endpoint outside of the job.
        settings: Vec<(String, String)>,
    },
    /// What the other rank offered.
    Join {
        /// Which system.
        slot: usize,
        /// Its words.
        offer: String,
    },
    /// Answer what comes, until `Finish`.
    Follow {
        /// Which system.
        slot: usize,
        /// What will come.
        op: Op,
    },
    /// Measure for one slice.
    Lead {
        /// Which system.
        slot: usize,
        /// What to do.
        op: Op,
        /// For how long.
        rule: Rule,
    },
    /// To the follower: the leader has sent all; take what is on its way.
    Finish {
        /// Bytes that were sent since `Follow`, in whole messages.
        bytes: u64,
        /// When to give up, on the monotonic clock.
        deadline_ns: u64,
    },
    /// To the leader: the follower has ended.
    Stop,
    /// To a rank of the stalled bench: its part of a slice.
    Play(Part),
    /// To a rank of the stalled bench, after a slice: receive until `Stop`.
    Drain,
    /// To a rank of the spray bench: its part, then progress until `Stop`.
    Spray(Spray),
    /// To the sender of the logp bench: so many messages, one after the other.
    Emit(u64),
    /// To its receiver: take so many, which wait already.
    Absorb(u64),
    /// To a rank of the idle bench: talk to the others, then do nothing.
    Idle(Idling),
    /// To every rank of the barrier bench: so many barriers.
    Barriers(u64),
    /// To every rank of the ring bench: make your connections, from where you are.
    Circle(Site),
    /// To all that have them: pass the token on so often.
    Rounds {
        /// Ourselves or TCP.
        system: SystemKind,
        /// How often.
        count: u64,
    },
    /// To a rank of the incast and alltoall benches: make your connections.
    Flood(Role),
    /// Where the others listen, by rank.
    Meet(Vec<String>),
    /// To a rank that has them: a slice, then receive until `Stop`.
    Turn(Turn),
    /// To the sender of a stream for some time: send, then progress until
    /// `Stop`.
    Send(Stream),
    /// To its receiver: receive until `Finish`.
    Receive(Stream),
    /// To a rank on another host: a word to these every now and then until
    /// `Stop`.
    Trickle(Vec<u32>),
    /// To both ranks of a bench of matched messages: connect by TCP too, for
    /// messages of up to `size_max` bytes.
    Sockets {
        /// Where you are.
        site: Site,
        /// The largest message that will be asked for.
        size_max: usize,
    },
    /// To both ranks of a bench of matched messages: a slice.
    Exchange(ExchangeSlice),
    /// To a rank of the connect bench.
    Connect(Step),
    /// What do you know of others, and what has come to you?
    Report,
    /// End.
    Bye,
}

/// From a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// It is there.
    Hello {
        /// The link that its messages to rank 1 (or, of rank 1, to rank 0) take.
        link: String,
        /// The core that it is bound to.
        core: Option<usize>,
    },
    /// To `Prepare`: what the other needs to know.
    Offer(String),
    /// To `Join` and `Follow`: go ahead.
    Ready,
    /// The leader has sent all; it goes on making progress until `Stop`.
    Sent(Sent),
    /// To `Finish`.
    Followed(Followed),
    /// To `Stop`.
    Led(Led),
    /// To `Play`.
    Played(Played),
    /// To `Turn`: what was sent is there.
    Flooded(Flooded),
    /// To `Stop` after `Drain`: messages received since the start, by sender;
    /// after `Turn` all of them.
    Drained(Vec<u64>),
    /// To `Connect`: times, ns, of opening or adding, and of connecting or removing.
    Timed([Vec<u64>; 2]),
    /// Behind `Drained`, after `Turn`: what the slice has cost.
    Spent(Cost),
    /// To `Idle`.
    Rested(Rested),
    /// To `Spray`: what was sent is back. `Ready` follows after `Stop`.
    Sprayed(Sprayed),
    /// To `Emit`, `Absorb`, `Barriers` and `Rounds`: how long it took, ns.
    Took(u64),
    /// To `Send`: messages sent. `Ready` follows after `Stop`.
    SentAll(u64),
    /// To `Receive`, after `Finish`.
    Received(Received),
    /// To `Stop` after `Trickle`: the link that words to the first took.
    Trickled(String),
    /// To `ExchangeSlice`.
    Exchanged(Exchanged),
    /// To `Report`.
    State(RankState),
    /// It cannot.
    Failed(String),
}

/// What the leader knows when it has sent all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// First send, on the monotonic clock.
    pub start_ns: u64,
    /// From the first send to the last answer, or to the last send where none
    /// is waited for.
    pub elapsed_ns: u64,
    /// Operations done.
    pub operations: u64,
    /// Bytes sent, in whole messages.
    pub bytes: u64,
    /// The cap ended it, with something unfinished.
    pub cut: bool,
    /// One way in microseconds, from a peer that gives no single round trips.
    pub one_way_us: Option<f64>,
    /// Messages per second from a peer that measures for itself.
    pub messages_s: Option<f64>,
    /// How a peer that measures for itself was asked to.
    pub note: Option<String>,
}

/// What the follower saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Followed {
    /// Bytes that arrived.
    pub bytes: u64,
    /// When the last of them did, on the monotonic clock.
    pub last_ns: u64,
    /// All that was sent has arrived.
    pub complete: bool,
    /// What it cost, from `Follow` to here, where that is known.
    pub cost: Option<Cost>,
}

/// What the leader knows at the very end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Led {
    /// Round trips in tenths of a nanosecond, and how many there were of each.
    pub round_trips: Vec<(u64, u64)>,
    /// Data packets that left in this slice, resends too, where the system
    /// counts them.
    pub data_packets: Option<u64>,
    /// What it cost, until all was answered or, where no answer is waited for,
    /// until all had arrived; where that is known.
    pub cost: Option<Cost>,
}

/// One end of the conversation.
#[derive(Debug)]
pub struct ControlLine {
    stream: UnixStream,
    heard: Vec<u8>,
}

impl ControlLine {
    /// Over `stream`, which is in blocking mode.
    #[must_use]
    pub fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            heard: Vec::new(),
        }
    }

    /// Says `message`.
    pub fn say(&mut self, message: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.stream
            .write_all(&line)
            .context("the other end of the bench is gone")
    }

    /// Waits for the next message.
    pub fn hear<T: DeserializeOwned>(&mut self) -> Result<T> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(message);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return fail("the other end of the bench is gone"),
                Ok(count) => self.heard.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The next message, if it is there.
    pub fn try_hear<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let mut bytes = [0; 4096];
        match recv(&self.stream, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return fail("the other end of the bench is gone"),
            Ok((_, count)) => self.heard.extend_from_slice(&bytes[..count]),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(Failure::from(errno)),
        }
        self.take()
    }

    /// Whether the bench says stop; whatever else it says is wrong here.
    pub fn stops(&mut self) -> Result<bool> {
        match self.try_hear()? {
            None => Ok(false),
            Some(Order::Stop) => Ok(true),
            Some(order) => fail(format!("the bench sent {order:?} instead of Stop")),
        }
    }

    /// Waits until the bench says stop.
    pub fn await_stop(&mut self) -> Result<()> {
        match self.hear()? {
            Order::Stop => Ok(()),
            order => fail(format!("the bench sent {order:?} instead of Stop")),
        }
    }

    /// Offers where this rank listens; gives all ranks' offers.
    pub fn meet(&mut self, offer: String) -> Result<Vec<String>> {
        self.say(&Answer::Offer(offer))?;
        match self.hear()? {
            Order::Meet(offers) => Ok(offers),
            order => fail(format!("the bench sent {order:?} instead of addresses")),
        }
    }

    fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let Some(end) = self.heard.iter().position(|&byte| byte == b'\n') else {
            return Ok(None);
        };
        let line: Vec<u8> = self.heard.drain(..=end).collect();
        Ok(Some(serde_json::from_slice(&line)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_cross_whole_and_in_order() {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut a, mut b) = (ControlLine::new(a), ControlLine::new(b));
        assert_eq!(b.try_hear::<Order>().unwrap(), None);
        let op = Op {
            pattern: Pattern::Burst,
            size: 1 << 20,
        };
        a.say(&Order::Follow { slot: 3, op }).unwrap();
        a.say(&Order::Stop).unwrap();
        assert_eq!(b.hear::<Order>().unwrap(), Order::Follow { slot: 3, op });
        assert_eq!(b.try_hear::<Order>().unwrap(), Some(Order::Stop));
        let led = Led {
            round_trips: (0..5000).map(|k| (k, 1)).collect(),
            ..Led::default()
        };
        b.say(&Answer::Led(led.clone())).unwrap();
        assert_eq!(a.hear::<Answer>().unwrap(), Answer::Led(led));
        drop(b);
        assert!(a.hear::<Answer>().is_err());
    }
}
