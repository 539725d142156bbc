//! A rank's part of `incast` and `alltoall`: long messages to some of the
//! others, one under way to each, while as many come in: by ports or as matched
//! messages.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use portolan::{Binding, Notify, OpId, Selector, SendError, SendOptions, TaggedOptions};
use portolan_hosts::failure::{Context, Result, fail};
use portolan_sys::clock::now_ns;
use serde::{Deserialize, Serialize};

use crate::control::{ANSWER_BYTES, Answer, ControlLine, SystemKind};
use crate::peers::tcp::Tcp;
use crate::ranks::drive::Channel;
use crate::ranks::portolan::{Arrived, Ours, PASSES, ours};
use crate::ranks::rank::Site;
use crate::report::cost::Cost;

/// Port of messages from rank 0; those of the others follow. Each has a
/// buffer of its own, since they come at the same time.
const FROM: u16 = 64;
/// Tag of matched messages.
const TAG: u64 = 64;
/// Tag of the answers to those that are sent plainly.
const ANSWER: u64 = 65;
/// What is under way when a slice ends gets so long to arrive, nanoseconds.
const DRAIN_NS: u64 = 20_000_000_000;

/// How matched messages are sent, as `--matched` takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub enum Matched {
    /// Synchronous sends: only the first and second push leave before the receiver asks
    Sync,
    /// As the endpoint pushes them; the receiver answers each with 8 bytes
    Plain,
}

/// What a rank does in all slices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Role {
    /// To whom it sends.
    pub to: Vec<u32>,
    /// From whom it receives.
    pub from: Vec<u32>,
    /// Bytes of a message.
    pub size: usize,
    /// Ours are matched messages, sent so.
    pub matched: Option<Matched>,
    /// Where it is.
    pub site: Site,
}

/// One slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Ourselves or TCP.
    pub system: SystemKind,
    /// Start, on the monotonic clock.
    pub start_ns: u64,
    /// No message begins after it.
    pub end_ns: u64,
}

/// What a rank did in a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flooded {
    /// From the send of each message until its sender knew that it was there,
    /// ns.
    pub times_ns: Vec<u64>,
    /// When the last was there.
    pub last_ns: u64,
}

/// A rank's connections.
pub struct Flood {
    role: Role,
    message: Arc<[u8]>,
    arrived: Arc<Arrived>,
    out: Vec<Tcp>,
    inward: Vec<Tcp>,
    /// Messages received by TCP.
    taken: u64,
    /// Receives that are posted, one for each sender of matched messages.
    receives: Vec<(u32, OpId)>,
    /// Messages that they have received.
    received: u64,
}

/// Somebody to whom messages go.
trait Target {
    /// Begins or continues to send a message; whether it is whole on its way.
    fn send(&mut self) -> Result<bool>;
    /// Whether the message is there.
    fn is_there(&mut self) -> Result<bool>;
}

/// Sends to all targets until the time is over and all is there.
fn drive(
    targets: &mut [impl Target],
    turn: &Turn,
    mut serve: impl FnMut() -> Result<()>,
) -> Result<Flooded> {
    let mut found = Flooded::default();
    // Begun when, and wholly sent.
    let mut under_way: Vec<Option<(u64, bool)>> = vec![None; targets.len()];
    while now_ns() < turn.start_ns {
        serve()?;
    }
    loop {
        let now = now_ns();
        for (target, state) in targets.iter_mut().zip(&mut under_way) {
            *state = match *state {
                None if now < turn.end_ns => Some((now_ns(), target.send()?)),
                None => None,
                Some((since, false)) => Some((since, target.send()?)),
                Some((since, true)) if target.is_there()? => {
                    found.last_ns = now_ns();
                    found.times_ns.push(found.last_ns - since);
                    None
                }
                waiting => waiting,
            };
        }
        serve()?;
        if now >= turn.end_ns && under_way.iter().all(Option::is_none) {
            return Ok(found);
        }
        if now > turn.end_ns + DRAIN_NS {
            return fail("messages did not arrive within 20 s of the slice's end");
        }
    }
}

struct OursTo<'a> {
    ours: &'a Ours,
    rank: u32,
    message: &'a Arc<[u8]>,
    sending: Option<OpId>,
}

impl Target for OursTo<'_> {
    fn send(&mut self) -> Result<bool> {
        let port = FROM + self.ours.rank_port();
        let message = Arc::clone(self.message);
        let options = SendOptions::default();
        match (self.ours.endpoint).post_message(self.rank, port, &options, message) {
            Ok(sending) => {
                self.sending = Some(sending);
                Ok(true)
            }
            Err((SendError::NoCredit, _)) => Ok(false),
            Err((error, _)) => Err(ours(error)),
        }
    }

    fn is_there(&mut self) -> Result<bool> {
        let Some(op) = self.sending else {
            return Ok(false);
        };
        let ended = self.ours.endpoint.has_ended(op).map_err(ours)?;
        if ended {
            self.ours.endpoint.forget(op).map_err(ours)?;
            self.sending = None;
        }
        Ok(ended)
    }
}

/// By matched messages.
struct MatchedTo<'a> {
    ours: &'a Ours,
    rank: u32,
    message: &'a Arc<[u8]>,
    how: Matched,
    /// The send, and the receive of the answer.
    under_way: Vec<OpId>,
}

impl Target for MatchedTo<'_> {
    fn send(&mut self) -> Result<bool> {
        // However short it is, its sender learns when it is there.
        let options = TaggedOptions {
            sync: self.how == Matched::Sync,
            ..TaggedOptions::default()
        };
        if self.how == Matched::Plain {
            let selector = Selector::from(self.rank, ANSWER);
            let room = vec![0; ANSWER_BYTES];
            let posted = (self.ours.endpoint).post_receive(&selector, room, Notify::default());
            self.under_way.push(posted.map_err(ours)?);
        }
        let message = Arc::clone(self.message);
        let posted = (self.ours.endpoint).post_send(self.rank, TAG, &options, message);
        self.under_way
            .push(posted.map_err(|(error, _)| ours(error))?);
        Ok(true)
    }

    fn is_there(&mut self) -> Result<bool> {
        while let Some(&op) = self.under_way.last() {
            let Some(ended) = self.ours.endpoint.poll_op(op).map_err(ours)? else {
                return Ok(false);
            };
            self.under_way.pop();
            if let Err(error) = ended.completion.result {
                return fail(format!("a message ended so: {error:?}"));
            }
        }
        Ok(true)
    }
}

/// Posts a receive of the next matched message of `from`.
fn post(ours_: &Ours, from: u32, room: Vec<u8>) -> Result<(u32, OpId)> {
    let selector = Selector::from(from, TAG);
    let posted = (ours_.endpoint).post_receive(&selector, room, Notify::default());
    Ok((from, posted.map_err(ours)?))
}

/// Looks for matched messages that have come, answers those that were sent
/// plainly, and posts receives of the next.
fn take_matched(
    ours_: &Ours,
    receives: &mut [(u32, OpId)],
    size: usize,
    how: Option<Matched>,
) -> Result<u64> {
    let mut taken = 0;
    for receive in receives {
        let Some(ended) = ours_.endpoint.poll_op(receive.1).map_err(ours)? else {
            continue;
        };
        let done = ended.completion;
        if done.result.is_err() || done.bytes != size as u64 {
            return fail(format!("a message ended so: {done:?}"));
        }
        let from = receive.0;
        *receive = post(ours_, from, ended.into_received())?;
        if how == Some(Matched::Plain) {
            let answered = (ours_.endpoint).send_tagged(from, ANSWER, &[0; ANSWER_BYTES]);
            answered.map_err(ours)?;
        }
        taken += 1;
    }
    Ok(taken)
}

struct TcpTo<'a> {
    stream: &'a mut Tcp,
    size: usize,
}

impl Target for TcpTo<'_> {
    fn send(&mut self) -> Result<bool> {
        self.stream.try_send(self.size)
    }

    fn is_there(&mut self) -> Result<bool> {
        Ok(self.stream.poll(ANSWER_BYTES)? > 0)
    }
}

/// Takes what has come by TCP, and answers each message.
fn take(inward: &mut [Tcp], size: usize) -> Result<u64> {
    let mut taken = 0;
    for stream in inward {
        let messages = stream.poll(size)?;
        for _ in 0..messages {
            while !stream.try_send(ANSWER_BYTES)? {}
        }
        taken += messages;
    }
    Ok(taken)
}

impl Flood {
    /// Binds ports, says where it listens, hears where the others do.
    pub fn new(ours_: &Ours, role: Role, line: &mut ControlLine) -> Result<Self> {
        let arrived = Arc::new(Arrived::default());
        for &rank in &role.from {
            let count = Arc::clone(&arrived);
            let binding = Binding::to(move |_, message| count.count(message.payload.len()))
                .with_buffer(vec![0; role.size]);
            let port = FROM + u16::try_from(rank).unwrap_or(u16::MAX);
            ours_.endpoint.bind(port, binding).map_err(ours)?;
        }
        let listener = TcpListener::bind((role.site.address()?, 0)).context("TCP")?;
        let offers = line.meet(listener.local_addr()?.to_string())?;
        // Connections wait to be accepted, so nobody waits for another.
        let connect = |&rank: &u32| match offers.get(rank as usize) {
            Some(offer) => Tcp::connect(offer, role.size),
            None => fail(format!("rank {rank} does not listen")),
        };
        let out = role.to.iter().map(connect).collect::<Result<_>>()?;
        let accept = |_| Tcp::accept(&listener, role.size);
        let inward = role.from.iter().map(accept).collect::<Result<_>>()?;
        let receives = match role.matched {
            Some(_) => (role.from.iter())
                .map(|&from| post(ours_, from, vec![0; role.size]))
                .collect::<Result<_>>()?,
            None => Vec::new(),
        };
        line.say(&Answer::Ready)?;
        Ok(Self {
            message: vec![0x5a; role.size].into(),
            role,
            arrived,
            out,
            inward,
            taken: 0,
            receives,
            received: 0,
        })
    }

    /// Takes part in a slice; then goes on receiving until the bench says
    /// stop, and says how many messages have come since the start, and what the
    /// slice has cost.
    pub fn turn(&mut self, ours_: &Ours, turn: &Turn, line: &mut ControlLine) -> Result<()> {
        let progress = || {
            for _ in 0..PASSES {
                if ours_.endpoint.progress().map_err(ours)? == 0 {
                    break;
                }
            }
            // There may be more ranks than cores.
            std::thread::yield_now();
            Ok(())
        };
        let begun = Cost::now();
        let (size, matched) = (self.role.size, self.role.matched);
        let is_ours = turn.system == SystemKind::Portolan;
        let (inward, taken) = (&mut self.inward, &mut self.taken);
        let (receives, received) = (&mut self.receives, &mut self.received);
        let mut serve = || {
            if is_ours {
                *received += take_matched(ours_, receives, size, matched)?;
                return progress();
            }
            *taken += take(inward, size)?;
            std::thread::yield_now();
            Ok(())
        };
        let found = if let Some(how) = matched.filter(|_| is_ours) {
            let target = |&rank: &u32| MatchedTo {
                ours: ours_,
                rank,
                message: &self.message,
                how,
                under_way: Vec::new(),
            };
            let mut targets: Vec<MatchedTo> = self.role.to.iter().map(target).collect();
            drive(&mut targets, turn, &mut serve)?
        } else if is_ours {
            let target = |&rank: &u32| OursTo {
                ours: ours_,
                rank,
                message: &self.message,
                sending: None,
            };
            let mut targets: Vec<OursTo> = self.role.to.iter().map(target).collect();
            drive(&mut targets, turn, &mut serve)?
        } else {
            let target = |stream| TcpTo { stream, size };
            let mut targets: Vec<TcpTo> = self.out.iter_mut().map(target).collect();
            drive(&mut targets, turn, &mut serve)?
        };
        line.say(&Answer::Flooded(found))?;
        loop {
            serve()?;
            if line.stops()? {
                // What its sender knows to be here has ended, and may have
                // been looked at by nobody.
                serve()?;
                break;
            }
        }
        let came = match (is_ours, matched) {
            (true, Some(_)) => self.received,
            (true, None) => self.arrived.messages.load(Relaxed),
            (false, _) => self.taken,
        };
        let cost = begun.until_now();
        line.say(&Answer::Drained(vec![came]))?;
        line.say(&Answer::Spent(cost))
    }
}
