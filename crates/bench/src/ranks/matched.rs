//! Slices of the benches of matched messages, as ranks measure them. Rank 0
//! leads: it measures. Both do as many exchanges as they are told, so neither
//! has to look whether it is to stop.

use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use portolan::{Binding, Endpoint, Notify, Push, Selector, TaggedOptions};
use portolan_hosts::failure::{Result, fail};
use portolan_sys::clock::now_ns;
use portolan_sys::memory::give_back;
use portolan_sys::ticks::{ns_per_tick, ticks};
use serde::{Deserialize, Serialize};

use crate::conduct::{hear, unexpected};
use crate::control::{Answer, ControlLine, Order};
use crate::experiments::threads::Callers;
use crate::job::two;
use crate::peers::memcpy::Walk;
use crate::peers::netpipe::{Buffers, SIZE_MAX};
use crate::peers::sockets::Sockets;
use crate::ranks::backoff::Backoff;
use crate::ranks::drive::Channel;
use crate::ranks::portolan::{Ours, Pair, ours};
use crate::ranks::rank::Site;
use crate::ranks::rma_regions::RmaRegions;
use crate::report::cost::Cost;

/// Cold buffers lie in so much for sending and as much for receiving, bytes:
/// as NetPIPE's do.
const POOL: usize = 10_000_000;
/// Tag of what is measured.
const TAG: u64 = 1;
/// Port by which ranks meet: it is no matched message and takes none's credit.
const MEET: u16 = 4;

/// How messages are to be pushed. What is left open is as the endpoint has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushMode {
    /// Longest message that is pushed whole, bytes.
    pub whole: Option<u64>,
    /// BTP(1), bytes.
    pub first: Option<u64>,
    /// BTP(2), bytes.
    pub second: Option<u64>,
    /// Push-and-acknowledge overlapping; default as the endpoint has it.
    pub overlap: Option<bool>,
    /// Address translation overhead masking; likewise.
    pub masking: Option<bool>,
    /// From how many bytes on both sides copy by shared memory.
    pub share: Option<u64>,
}

impl PushMode {
    fn push(&self, usual: &Push) -> Push {
        Push {
            whole: self.whole.unwrap_or(usual.whole),
            first: self.first.unwrap_or(usual.first),
            second: self.second.unwrap_or(usual.second),
            overlap: self.overlap.unwrap_or(usual.overlap),
            masking: self.masking.unwrap_or(usual.masking),
        }
    }
}

/// What is done over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Act {
    /// A matched message there and one back, blocking.
    Matched(Buffers),
    /// The same by a port.
    Port,
    /// A put there and one back: each rank waits until the other's shows in its
    /// memory.
    Put,
    /// Rank 0 gets from rank 1.
    Get,
    /// Rank 0 registers memory and ends that again.
    Register,
    /// Matched messages there and back of so many threads of either rank.
    Threads(u32),
    /// A matched message from rank 1 to rank 0: they call so long after they
    /// have met, ns.
    Timed {
        /// The receiver.
        receiver_ns: u64,
        /// The sender.
        sender_ns: u64,
    },
    /// A matched message, or computing, or both at once on rank 0.
    Beside {
        /// Rank 0 sends; otherwise it receives.
        sends: bool,
        /// There is a message.
        message: bool,
        /// By kernel TCP: [`Desk::connect`] came before.
        tcp: bool,
        /// Rank 0 goes so many times round a loop while its message is under
        /// way.
        rounds: u64,
    },
}

/// A slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExchangeSlice {
    /// What is done.
    pub act: Act,
    /// Bytes of a message.
    pub size: usize,
    /// How messages are pushed.
    pub push: PushMode,
    /// Set what each sender may push before it is asked, bytes.
    pub pushed_share: Option<u64>,
    /// Exchanges before those that count.
    pub warm_up: u64,
    /// Exchanges that count.
    pub count: u64,
}

impl ExchangeSlice {
    /// Pushed as the endpoint has it. How often, its pace says.
    pub fn of(act: Act, size: usize) -> Self {
        Self {
            act,
            size,
            push: PushMode::default(),
            pushed_share: None,
            warm_up: 0,
            count: 0,
        }
    }
}

/// What a rank says after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Exchanged {
    /// Mean time of the middle 80 % of all exchanges, us. Of rank 0.
    pub us: f64,
    /// Time until all were done, us.
    pub elapsed_us: f64,
    /// What those that count have cost.
    pub cost: Cost,
    /// How messages were pushed: `whole`, `first` and `second`, bytes.
    pub push: [u64; 3],
}

/// Lets both ranks do it; gives what they say.
pub fn exchange(lines: &mut [ControlLine], slice: &ExchangeSlice) -> Result<[Exchanged; 2]> {
    let [leader, follower] = two(lines)?;
    for line in [&mut *leader, &mut *follower] {
        line.say(&Order::Exchange(*slice))?;
    }
    let mut said = [Exchanged::default(); 2];
    for (line, said) in [leader, follower].into_iter().zip(&mut said) {
        match hear(line)? {
            Answer::Exchanged(exchanged) => *said = exchanged,
            other => return unexpected(&other),
        }
    }
    Ok(said)
}

/// Mean of the middle 80 %: a tenth at either end is left out, as Push-Pull
/// Messaging has it (section 3).
fn middle(samples: &mut [u64]) -> f64 {
    samples.sort_unstable();
    let cut = samples.len() / 10;
    let kept = &samples[cut..samples.len() - cut];
    kept.iter().sum::<u64>() as f64 / kept.len() as f64
}

/// Computes without a look at anything.
pub fn compute(rounds: u64) {
    let mut x = 1_u64;
    for _ in 0..rounds {
        x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

/// Computes until then, on the monotonic clock; gives when it ended.
pub fn compute_until(ns: u64) -> u64 {
    loop {
        let now = now_ns();
        if now >= ns {
            return now;
        }
        compute(100);
    }
}

/// Words of the other rank, as they come by the port.
#[derive(Default)]
struct Words {
    count: AtomicU64,
    last: AtomicU64,
}

/// What a rank needs for these slices.
pub struct Desk {
    endpoint: Rc<Endpoint>,
    peer: u32,
    leads: bool,
    port: Pair,
    words: Arc<Words>,
    heard: u64,
    usual: (Push, u64),
    /// What is sent lies in the first half.
    pools: Vec<u8>,
    walks: [Walk; 2],
    /// What is received without a call that waits for it.
    room: Vec<u8>,
    /// What is sent likewise.
    message: Arc<[u8]>,
    /// Memory for puts and gets.
    regions: Option<RmaRegions>,
    sockets: Option<Sockets>,
    ns_per_tick: f64,
    samples: Vec<u64>,
}

impl Desk {
    /// Of one of two ranks.
    pub fn new(of: &Ours) -> Result<Self> {
        let endpoint = Rc::clone(&of.endpoint);
        let peer = of.peer();
        let words = Arc::new(Words::default());
        let hear = Arc::clone(&words);
        let binding = Binding::to(move |_, message| {
            if let Ok(word) = <[u8; 8]>::try_from(message.payload) {
                hear.last.store(u64::from_ne_bytes(word), Relaxed);
                hear.count.store(hear.count.load(Relaxed) + 1, Relaxed);
            }
        });
        endpoint.bind(MEET, binding).map_err(ours)?;
        Ok(Self {
            usual: (
                endpoint.push_to(peer).map_err(ours)?,
                endpoint.share_min().map_err(ours)?,
            ),
            leads: endpoint.rank() == 0,
            port: of.channel(SIZE_MAX)?,
            endpoint,
            peer,
            words,
            heard: 0,
            // Written, so that the kernel has given the pages.
            pools: vec![1; 2 * POOL],
            walks: [Walk::through(POOL), Walk::through(POOL)],
            room: Vec::new(),
            message: Arc::from([]),
            regions: None,
            sockets: None,
            ns_per_tick: ns_per_tick(10_000_000),
            samples: Vec::new(),
        })
    }

    /// Connects by TCP too.
    pub fn connect(&mut self, site: &Site, size_max: usize, line: &mut ControlLine) -> Result<()> {
        self.sockets = Some(Sockets::meet(self.leads, site, size_max, line)?);
        Ok(())
    }

    /// Does its part of a slice.
    pub fn exchange(&mut self, slice: &ExchangeSlice) -> Result<Exchanged> {
        let (push, share) = &self.usual;
        let (push, share) = (slice.push.push(push), slice.push.share.unwrap_or(*share));
        self.endpoint.set_push(push, push).map_err(ours)?;
        self.endpoint.set_share_min(share).map_err(ours)?;
        if slice.pushed_share.is_some() {
            self.endpoint
                .set_pushed_share(slice.pushed_share)
                .map_err(ours)?;
        }
        self.message = vec![0x5a; slice.size].into();
        self.room = vec![1; slice.size];
        self.port.begin()?;
        if matches!(slice.act, Act::Put | Act::Get | Act::Register) {
            self.regions = Some(RmaRegions::open(&self.endpoint, self.peer, slice.size)?);
        }
        // Both have heard the order, and how messages are pushed.
        self.meet()?;
        let start_ns = now_ns();
        self.samples.clear();
        self.times(slice, slice.warm_up)?;
        self.samples.clear();
        let begun = Cost::now();
        self.times(slice, slice.count)?;
        let cost = begun.until_now();
        let elapsed_us = (now_ns() - start_ns) as f64 / 1e3;
        if let Some(regions) = self.regions.take() {
            self.await_leader()?;
            regions.close()?;
        }
        let us = match self.samples.len() {
            0 => 0.0,
            _ => middle(&mut self.samples) / 1e3,
        };
        Ok(Exchanged {
            us,
            elapsed_us,
            cost,
            push: [push.whole, push.first, push.second],
        })
    }

    fn times(&mut self, slice: &ExchangeSlice, count: u64) -> Result<()> {
        let Act::Threads(callers) = slice.act else {
            return (0..count).try_for_each(|_| self.once(slice));
        };
        let callers = Callers {
            endpoint: &self.endpoint,
            peer: self.peer,
            leads: self.leads,
            count: callers,
            size: slice.size,
        };
        let all = callers.run(count)?;
        let half = |ticks: u64| (ticks as f64 * self.ns_per_tick / 2.0) as u64;
        self.samples.extend(all.into_iter().map(half));
        Ok(())
    }

    fn once(&mut self, slice: &ExchangeSlice) -> Result<()> {
        match slice.act {
            Act::Matched(buffers) => {
                let places = self.places(slice.size, buffers);
                let start = ticks();
                self.there_and_back(slice.size, places)?;
                self.keep_half(start);
                Ok(())
            }
            Act::Threads(_) => fail("threads do all their exchanges at once"),
            Act::Port => {
                let start = ticks();
                if self.leads {
                    self.send_by_port(slice.size)?;
                    self.receive_by_port(slice.size)?;
                } else {
                    self.receive_by_port(slice.size)?;
                    self.send_by_port(slice.size)?;
                }
                self.keep_half(start);
                Ok(())
            }
            Act::Put => {
                let start = ticks();
                if let Some(regions) = &mut self.regions {
                    regions.there_and_back()?;
                }
                self.keep_half(start);
                Ok(())
            }
            Act::Get | Act::Register => {
                let start = ticks();
                if let Some(regions) = self.regions.as_mut().filter(|_| self.leads) {
                    match slice.act {
                        Act::Get => regions.get()?,
                        _ => regions.register()?,
                    }
                }
                self.keep(start);
                Ok(())
            }
            Act::Timed {
                receiver_ns,
                sender_ns,
            } => self.timed(slice.size, receiver_ns, sender_ns),
            Act::Beside {
                sends,
                message: true,
                tcp: true,
                rounds,
            } => self.beside_tcp(slice.size, sends, rounds),
            Act::Beside {
                sends,
                message,
                rounds,
                ..
            } => self.beside(slice.size, sends, message, rounds),
        }
    }

    /// Half of a round trip that has ended.
    fn keep_half(&mut self, start: u64) {
        self.keep_share(start, 0.5);
    }

    /// The time of what has ended.
    fn keep(&mut self, start: u64) {
        self.keep_share(start, 1.0);
    }

    fn keep_share(&mut self, start: u64, share: f64) {
        if self.leads {
            let ns = (ticks() - start) as f64 * self.ns_per_tick * share;
            self.samples.push(ns as u64);
        }
    }

    /// Serves the leader, awake, until it is done.
    fn await_leader(&mut self) -> Result<()> {
        self.tell(0)?;
        self.heard += 1;
        let mut backoff = Backoff::default();
        while self.words.count.load(Relaxed) < self.heard {
            self.endpoint.progress().map_err(ours)?;
            backoff.empty_poll()?;
        }
        Ok(())
    }

    /// Where the next messages lie: what is sent, and what is received.
    fn places(&mut self, size: usize, buffers: Buffers) -> [usize; 2] {
        if buffers == Buffers::Warm {
            // One buffer for both, as NetPIPE has it.
            return [0, 0];
        }
        let [from, into] = &mut self.walks;
        let [from, into] = [from.advance(size), POOL + into.advance(size)];
        if buffers == Buffers::Fresh {
            give_back(&mut self.pools[into..into + size]);
        }
        [from, into]
    }

    fn there_and_back(&mut self, size: usize, [from, into]: [usize; 2]) -> Result<()> {
        let Self {
            endpoint,
            peer,
            leads,
            pools,
            ..
        } = self;
        let send = |pools: &[u8]| {
            let message = &pools[from..from + size];
            endpoint.send_tagged(*peer, TAG, message).map_err(ours)
        };
        if *leads {
            send(pools)?;
        }
        let selector = Selector::from(*peer, TAG);
        let room = &mut pools[into..into + size];
        endpoint.receive_tagged(&selector, room).map_err(ours)?;
        if *leads { Ok(()) } else { send(pools) }
    }

    fn send_by_port(&mut self, size: usize) -> Result<()> {
        let mut backoff = Backoff::default();
        while !self.port.try_send(size)? {
            self.port.poll(size)?;
            backoff.empty_poll()?;
        }
        Ok(())
    }

    fn receive_by_port(&mut self, size: usize) -> Result<()> {
        let mut backoff = Backoff::default();
        while self.port.poll(size)? == 0 {
            backoff.empty_poll()?;
        }
        Ok(())
    }

    /// A word to the other rank.
    fn tell(&self, word: u64) -> Result<()> {
        let word = word.to_ne_bytes();
        let sent = self.endpoint.send(self.peer, MEET, &word);
        sent.map(drop).map_err(ours)
    }

    /// The next word of the other rank.
    fn hear(&mut self) -> Result<u64> {
        self.heard += 1;
        let (words, heard) = (&self.words, self.heard);
        self.endpoint
            .wait_until(|| words.count.load(Relaxed) >= heard)
            .map_err(ours)?;
        Ok(self.words.last.load(Relaxed))
    }

    /// Both are here.
    fn meet(&mut self) -> Result<()> {
        self.tell(0)?;
        self.hear().map(drop)
    }

    /// The leader receives. Time is from the later one's call until it has the
    /// message: all before is computing.
    fn timed(&mut self, size: usize, receiver_ns: u64, sender_ns: u64) -> Result<()> {
        if !self.leads {
            let met_ns = self.hear()?;
            let start_ns = compute_until(met_ns + sender_ns);
            let message = &self.message;
            self.endpoint
                .send_tagged(self.peer, TAG, message)
                .map_err(ours)?;
            return self.tell(start_ns);
        }
        let met_ns = now_ns();
        self.tell(met_ns)?;
        let start_ns = compute_until(met_ns + receiver_ns);
        self.receive(size)?;
        let end_ns = now_ns();
        let later_ns = self.hear()?.max(start_ns);
        self.samples.push(end_ns.saturating_sub(later_ns));
        Ok(())
    }

    /// The leader begins its part, computes, and waits for the end.
    fn beside(&mut self, size: usize, sends: bool, message: bool, rounds: u64) -> Result<()> {
        self.meet()?;
        if !self.leads {
            return match (message, sends) {
                (false, _) => Ok(()),
                (true, true) => self.receive(size),
                (true, false) => (self.endpoint)
                    .send_tagged(self.peer, TAG, &self.message)
                    .map_err(ours),
            };
        }
        let room = if message && !sends {
            std::mem::take(&mut self.room)
        } else {
            Vec::new()
        };
        let begun_ns = now_ns();
        let under_way = match (message, sends) {
            (false, _) => None,
            (true, true) => {
                let (options, message) = (TaggedOptions::default(), Arc::clone(&self.message));
                let posted = (self.endpoint).post_send(self.peer, TAG, &options, message);
                Some(posted.map_err(|(error, _)| ours(error))?)
            }
            (true, false) => {
                let selector = Selector::from(self.peer, TAG);
                let posted = (self.endpoint).post_receive(&selector, room, Notify::default());
                Some(posted.map_err(ours)?)
            }
        };
        compute(rounds);
        let ended = under_way.map(|op| self.endpoint.wait_end(op, None));
        self.samples.push(now_ns() - begun_ns);
        let Some(ended) = ended.transpose().map_err(ours)? else {
            return Ok(());
        };
        if ended.completion.result.is_err() {
            return fail(format!("a message ended so: {:?}", ended.completion));
        }
        if !sends {
            self.room = ended.into_received();
        }
        Ok(())
    }

    /// Likewise by TCP.
    fn beside_tcp(&mut self, size: usize, sends: bool, rounds: u64) -> Result<()> {
        self.meet()?;
        let Some(sockets) = &mut self.sockets else {
            return fail("the bench began a slice by TCP before its connection");
        };
        if !self.leads {
            return sockets.follow(size, sends);
        }
        let begun_ns = now_ns();
        sockets.lead(size, sends, rounds)?;
        self.samples.push(now_ns() - begun_ns);
        Ok(())
    }

    /// Waits for the message.
    fn receive(&mut self, size: usize) -> Result<()> {
        let selector = Selector::from(self.peer, TAG);
        let room = &mut self.room[..size];
        let received = self.endpoint.receive_tagged(&selector, room);
        received.map(drop).map_err(ours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_at_either_end_does_not_count() {
        let mut samples: Vec<u64> = (0..10).rev().collect();
        (samples[0], samples[9]) = (1_000_000, 0);
        // 1 to 8.
        assert_eq!(middle(&mut samples), 4.5);
        assert_eq!(middle(&mut [7, 9]), 8.0);
    }

    #[test]
    fn a_way_changes_what_it_names() {
        let usual = Push::default();
        assert_eq!(PushMode::default().push(&usual), usual);
        let mode = PushMode {
            first: Some(7),
            overlap: Some(false),
            ..PushMode::default()
        };
        let changed = Push {
            first: 7,
            overlap: false,
            ..usual
        };
        assert_eq!(mode.push(&usual), changed);
    }
}
