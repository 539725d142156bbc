//! Ourselves, through the native interface, as a program would.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use portolan::{
    Binding, Config, Endpoint, Notify, OpId, Priority, SendError, SendOptions, WaitError,
};
use portolan_hosts::failure::{Failure, Result};
use portolan_hosts::lab::Lab;
use portolan_sys::clock::now_ns;
use portolan_wire::{BODY_BYTES, HEADER_BYTES, TAG_BYTES};

use crate::control::{ControlLine, Followed, Led, Op};
use crate::experiments::stalled::{Part, Played};
use crate::experiments::threads::Calling;
use crate::ranks::asleep::{Asleep, REST, Sleeps, Wait};
use crate::ranks::drive::{self, Channel, Meter};
use crate::ranks::rank::System;
use crate::slice::Rule;

/// What is not payload in a packet in the middle of a message, with the
/// headers of IPv4 and UDP.
const PACKET_OVERHEAD: u64 = (20 + 8 + HEADER_BYTES + BODY_BYTES + TAG_BYTES) as u64;

/// Most payload of a packet between hosts of a lab, bytes.
pub fn payload_max(lab: &Lab) -> u64 {
    u64::from(lab.mtu()) - PACKET_OVERHEAD
}

/// Port of messages that are sent with a copy and handled where they arrive.
const SHORT: u16 = 1;
/// Port of messages that are sent without a copy and written to its buffer.
const LONG: u16 = 2;
/// Port of messages that are only counted.
pub const PLAY: u16 = 3;
/// The port of messages that nobody takes before the end, and their flow.
const UNTAKEN: u16 = 4;
const UNTAKEN_FLOW: SendOptions<'_> = SendOptions {
    flow: 1,
    priority: Priority::Request,
    args: &[],
    notify: Notify::NONE,
};
/// Bytes from which on a message is long: it may fill a packet.
pub const LONG_BYTES: usize = 1024;
/// A short message, of up to so many bytes.
const MESSAGE: [u8; LONG_BYTES] = [0x5a; LONG_BYTES];
/// Bytes of long messages under way before a sender waits for the first.
const UNDER_WAY_BYTES: usize = 8 << 20;
/// Long messages under way before a sender waits for the first.
const UNDER_WAY: usize = 64;
/// Passes between two looks at the clock or at the bench.
pub const PASSES: u32 = 64;

/// Long messages that the other has not got whole.
#[derive(Default)]
pub struct LongSends(VecDeque<OpId>);

impl LongSends {
    /// Sends another, unless too many are under way.
    pub fn try_send(
        &mut self,
        endpoint: &Endpoint,
        (to, port): (u32, u16),
        options: &SendOptions,
        message: &Arc<[u8]>,
    ) -> std::result::Result<(), SendError> {
        let ended = |op: &&mut OpId| endpoint.has_ended(**op).is_ok_and(|ended| ended);
        while let Some(op) = self.0.front_mut().filter(ended) {
            endpoint.forget(*op)?;
            self.0.pop_front();
        }
        if self.0.len() >= (UNDER_WAY_BYTES / message.len()).clamp(2, UNDER_WAY) {
            return Err(SendError::NoCredit);
        }
        let sent = endpoint.post_message(to, port, options, Arc::clone(message));
        self.0.push_back(sent.map_err(|(error, _)| error)?);
        Ok(())
    }
}

/// What has arrived. Only handlers write it, in this thread.
#[derive(Default)]
pub struct Arrived {
    /// Messages so far.
    pub messages: AtomicU64,
    bytes: AtomicU64,
}

impl Arrived {
    /// Another one has come.
    #[inline]
    pub fn count(&self, bytes: usize) {
        self.messages
            .store(self.messages.load(Relaxed) + 1, Relaxed);
        self.bytes
            .store(self.bytes.load(Relaxed) + bytes as u64, Relaxed);
    }
}

/// This rank's endpoint.
pub struct Ours {
    pub(crate) endpoint: Rc<Endpoint>,
    /// Messages received on [`PLAY`], by sender.
    pub(crate) received: Arc<[AtomicU64]>,
    /// Of the stalled bench: sent, by receiver.
    sent: Vec<u64>,
    untaken: u64,
    /// Of the logp and idle benches: messages taken, from each other rank.
    pub(crate) absorbed: u64,
}

/// Turns an error of the library into ours.
pub fn ours(error: impl std::fmt::Display) -> Failure {
    Failure::new(error.to_string())
}

impl Ours {
    /// Opens the endpoint of the job that started this process.
    pub fn open(helper: bool, threads: Calling) -> Result<Self> {
        let helper = if helper { "on" } else { "off" };
        let config = Config::default().set("helper", helper);
        let endpoint = Endpoint::open(config.threads(threads.into())).map_err(ours)?;
        let size = endpoint.size() as usize;
        let received: Arc<[AtomicU64]> = (0..size).map(|_| AtomicU64::new(0)).collect();
        let count = Arc::clone(&received);
        let binding = Binding::to(move |_, message| {
            if let Some(count) = count.get(message.from as usize) {
                count.store(count.load(Relaxed) + 1, Relaxed);
            }
        });
        endpoint.bind(PLAY, binding).map_err(ours)?;
        Ok(Self {
            endpoint: Rc::new(endpoint),
            received,
            sent: vec![0; size],
            untaken: 0,
            absorbed: 0,
        })
    }

    /// Meets the others: nobody measures the first packets of a pair.
    pub fn meet(&self) -> Result<()> {
        self.endpoint.barrier().map_err(ours)
    }

    /// The other of two ranks.
    pub fn peer(&self) -> u32 {
        u32::from(self.endpoint.rank() == 0)
    }

    /// Its own rank, as an offset of ports.
    pub fn rank_port(&self) -> u16 {
        u16::try_from(self.endpoint.rank()).unwrap_or(u16::MAX)
    }

    /// The link to the other rank.
    pub fn link(&self) -> Result<String> {
        let (link, _why) = self.endpoint.lane(self.peer()).map_err(ours)?;
        Ok(link.to_owned())
    }

    /// This rank's half, for messages of up to `size_max` bytes.
    pub fn system(&self, size_max: usize, wait: Wait) -> Result<Box<dyn System>> {
        let channel = self.channel(size_max)?;
        let meter = Meter::new();
        Ok(match wait {
            Wait::Poll => Box::new(Half { channel, meter }),
            Wait::Block | Wait::Call => Box::new(Half {
                channel: Asleep(channel),
                meter,
            }),
        })
    }

    /// The two ranks as a channel, for messages of up to `size_max` bytes.
    pub fn channel(&self, size_max: usize) -> Result<Pair> {
        pair(&self.endpoint, self.peer(), size_max)
    }

    /// Meets the other ranks `count` times; gives the time that it took, ns.
    pub fn barriers(&self, count: u64) -> Result<u64> {
        // All have heard the order by the end of it.
        self.endpoint.barrier().map_err(ours)?;
        let start_ns = now_ns();
        for _ in 0..count {
            self.endpoint.barrier().map_err(ours)?;
        }
        Ok(now_ns() - start_ns)
    }

    /// Takes part in a slice of the stalled bench.
    pub fn play(&mut self, part: &Part) -> Result<Played> {
        let message = vec![0x5a; part.size];
        let rest = || {
            if part.crowded {
                std::thread::yield_now()
            }
        };
        while now_ns() < part.start_ns {
            self.endpoint.progress().map_err(ours)?;
            rest();
        }
        let before = self.counts();
        while now_ns() < part.end_ns {
            for _ in 0..PASSES {
                for &to in &part.to {
                    match self.endpoint.try_send(to, PLAY, &message) {
                        Ok(_) => self.sent[to as usize] += 1,
                        Err(SendError::NoCredit) => {}
                        Err(error) => return Err(ours(error)),
                    }
                }
                self.endpoint.progress().map_err(ours)?;
            }
            if let Some(to) = part.untaken_to {
                match self
                    .endpoint
                    .try_send_with(to, UNTAKEN, &UNTAKEN_FLOW, &message)
                {
                    Ok(_) => self.untaken += 1,
                    Err(SendError::NoCredit) => {}
                    Err(error) => return Err(ours(error)),
                }
            }
            rest();
        }
        let since = |(now, before): (u64, u64)| now - before;
        let received = self.counts().into_iter().zip(before).map(since).collect();
        Ok(Played {
            sent: self.sent.clone(),
            received,
            untaken: self.untaken,
        })
    }

    fn counts(&self) -> Vec<u64> {
        self.received
            .iter()
            .map(|count| count.load(Relaxed))
            .collect()
    }

    /// Receives until the bench says stop; gives what has come, by sender.
    pub fn drain(&mut self, line: &mut ControlLine) -> Result<Vec<u64>> {
        loop {
            for _ in 0..PASSES {
                self.endpoint.progress().map_err(ours)?;
            }
            if line.stops()? {
                return Ok(self.counts());
            }
            std::thread::yield_now();
        }
    }

    /// Sends rank 0 a message, or waits for those of all others and gives the
    /// time on the monotonic clock, ns.
    pub fn first_messages(&self) -> Result<Option<u64>> {
        if self.endpoint.rank() != 0 {
            self.endpoint.send(0, PLAY, &[0; 8]).map_err(ours)?;
            return Ok(None);
        }
        let others = self.endpoint.size() as usize - 1;
        let came = |count: &AtomicU64| count.load(Relaxed) > 0;
        self.endpoint
            .wait_until(|| self.received.iter().filter(|count| came(count)).count() >= others)
            .map_err(ours)?;
        Ok(Some(now_ns()))
    }

    /// Ends.
    pub fn close(self) -> Result<()> {
        self.endpoint
            .bind(UNTAKEN, Binding::default())
            .map_err(ours)?;
        self.endpoint.close().map_err(ours)
    }
}

/// An endpoint and one of its peers as a channel, for messages of up to `size_max` bytes.
pub fn pair(endpoint: &Rc<Endpoint>, peer: u32, size_max: usize) -> Result<Pair> {
    let arrived = Arc::new(Arrived::default());
    let counter = || {
        let arrived = Arc::clone(&arrived);
        Binding::to(move |_, message| arrived.count(message.payload.len()))
    };
    endpoint.bind(SHORT, counter()).map_err(ours)?;
    if size_max >= LONG_BYTES {
        let binding = counter().with_buffer(vec![0; size_max]);
        endpoint.bind(LONG, binding).map_err(ours)?;
    }
    Ok(Pair {
        endpoint: Rc::clone(endpoint),
        peer,
        arrived,
        taken: 0,
        message: Arc::from([]),
        long: LongSends::default(),
    })
}

/// The two ranks as a channel.
pub struct Pair {
    endpoint: Rc<Endpoint>,
    peer: u32,
    arrived: Arc<Arrived>,
    /// Messages that polls have given.
    taken: u64,
    /// The long message that is sent.
    message: Arc<[u8]>,
    long: LongSends,
}

impl Pair {
    /// Makes the long message, if it is another one.
    fn make_long(&mut self, size: usize) {
        if self.message.len() != size {
            self.message = vec![0x5a; size].into();
        }
    }

    /// Messages that have come since this was last asked.
    #[inline]
    fn take(&mut self) -> u64 {
        let messages = self.arrived.messages.load(Relaxed);
        let new = messages - self.taken;
        self.taken = messages;
        new
    }
}

impl Channel for Pair {
    const RELIABLE: bool = true;
    const POLLS_PER_LOOK: u32 = 4096;

    fn begin(&mut self) -> Result<()> {
        self.taken = self.arrived.messages.load(Relaxed);
        Ok(())
    }

    #[inline]
    fn try_send(&mut self, size: usize) -> Result<bool> {
        let sent = if size >= LONG_BYTES {
            self.make_long(size);
            let (to, options) = ((self.peer, LONG), SendOptions::default());
            self.long
                .try_send(&self.endpoint, to, &options, &self.message)
        } else {
            let sent = self.endpoint.try_send(self.peer, SHORT, &MESSAGE[..size]);
            sent.map(drop)
        };
        match sent {
            Ok(()) => Ok(true),
            Err(SendError::NoCredit) => Ok(false),
            Err(error) => Err(ours(error)),
        }
    }

    #[inline]
    fn poll(&mut self, _size: usize) -> Result<u64> {
        self.endpoint.progress().map_err(ours)?;
        Ok(self.take())
    }

    #[inline]
    fn received(&self) -> u64 {
        self.arrived.bytes.load(Relaxed)
    }

    fn data_packets(&self) -> Option<u64> {
        self.endpoint
            .counters()
            .ok()
            .map(|counters| counters.protocol.data_packets_sent)
    }
}

impl Sleeps for Pair {
    fn set_sleeping(&mut self, _on: bool) -> Result<()> {
        // The library has calls of each kind; that a wait sleeps at once is a
        // setting of the job.
        Ok(())
    }

    #[inline]
    fn send_asleep(&mut self, size: usize) -> Result<bool> {
        let sent = if size >= LONG_BYTES {
            self.make_long(size);
            self.endpoint.send(self.peer, LONG, &self.message)
        } else {
            self.endpoint.send(self.peer, SHORT, &MESSAGE[..size])
        };
        sent.map(|_| true).map_err(ours)
    }

    #[inline]
    fn poll_asleep(&mut self, _size: usize) -> Result<u64> {
        let (arrived, taken) = (&self.arrived.messages, self.taken);
        match (self.endpoint).wait_timeout(REST, || arrived.load(Relaxed) != taken) {
            Ok(()) | Err(WaitError::TimedOut) => Ok(self.take()),
            Err(error) => Err(ours(error)),
        }
    }
}

/// The channel with what measures it.
struct Half<C> {
    channel: C,
    meter: Meter,
}

impl<C: Channel> System for Half<C> {
    fn offer(&mut self) -> Result<String> {
        Ok(String::new())
    }

    fn join(&mut self, _offer: &str) -> Result<()> {
        Ok(())
    }

    fn lead(&mut self, op: &Op, rule: &Rule, line: &mut ControlLine) -> Result<Led> {
        drive::lead(&mut self.channel, op, rule, &mut self.meter, line)
    }

    fn follow(&mut self, op: &Op, line: &mut ControlLine) -> Result<Followed> {
        drive::follow(&mut self.channel, op, line)
    }
}
