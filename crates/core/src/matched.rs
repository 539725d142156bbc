//! Matched messages: the exchange, carried by the lanes.
//!
//! Its messages come to ports from [`MATCHED`] on, one for each kind, in two
//! flows of their own: what matching order depends on as requests, the rest as
//! replies.

mod begin;
mod cache;
mod carrier;
mod memory;
mod published;

use portolan_exchange::{self as exchange, Incoming, KINDS, Kind, OpId, Push, Took};
use portolan_wire::Priority;

use self::cache::Cache;
pub use self::cache::{Extent, Released};
pub use self::carrier::Carrier;
pub use self::memory::{Gather, Scatter};
use self::published::Published;
use crate::core::{Arrival, Core, Took as CoreTook};
use crate::incoming::Dest;
use crate::lanes::Lane;
use crate::message::SendOptions;
use crate::out::Out;
use crate::ports::PORTS_RESERVED;
use crate::send::FLOWS_MAX;
use crate::settings::Settings;

/// The port of the first kind of message.
pub const MATCHED: u16 = PORTS_RESERVED + 0x80;
const _: () = assert!(MATCHED as u32 + KINDS as u32 <= u16::MAX as u32);
const FLOW_REQUESTS: u16 = FLOWS_MAX;
const FLOW_REPLIES: u16 = FLOWS_MAX + 1;

/// Matched messages over memory of the engine's.
pub type Exchange = exchange::Exchange<Gather, Scatter>;

/// The exchange, and what the engine has yet to tell it.
pub struct Matched {
    /// Out of its place only while it is at work.
    exchange: Option<Box<Exchange>>,
    published: Published,
    /// Of these, those that stay when the program ends their registration.
    cache: Cache,
    /// Ranks that have died.
    pub dead: Vec<u32>,
    /// How messages are pushed by shared memory (and to ourselves), and by the
    /// network.
    pub push: [Push; 2],
    /// For pieces that are put together to leave in one packet.
    scratch: Vec<u8>,
}

/// Settings of pushes by shared memory and to ourselves.
pub const SHM: usize = 0;
/// Those of pushes by the network.
pub const NET: usize = 1;

impl Matched {
    pub(crate) fn new(config: &Settings) -> Self {
        let exchange = exchange::Config {
            rank: config.rank,
            size: config.size,
            // Peers choose tags; they do not know how ours are hashed.
            secret: [config.seed, config.life.rotate_left(32) ^ config.seed],
            ..config.exchange
        };
        Self {
            exchange: Some(Box::new(Exchange::new(exchange))),
            published: Published::default(),
            cache: Cache::new(config.regions_cached),
            dead: Vec::new(),
            push: [config.push_shm, config.push_net],
            scratch: Vec::new(),
        }
    }

    /// The exchange, outside of its own work.
    #[inline]
    pub fn state(&mut self) -> &mut Exchange {
        self.exchange.as_mut().expect("it is at work nowhere")
    }

    /// The exchange, and which of its regions others of this host see.
    fn regions(&mut self) -> (&mut Exchange, &mut Published) {
        let Self {
            exchange,
            published,
            ..
        } = self;
        (exchange.as_mut().expect("it is at work nowhere"), published)
    }

    /// Whether something waits for room to be sent.
    #[inline]
    pub fn has_backlog(&self) -> bool {
        self.exchange.as_ref().is_some_and(|x| x.has_backlog())
    }

    /// Whether memory is to be made ready, now that its request has left.
    #[inline]
    pub fn has_unready(&self) -> bool {
        self.exchange.as_ref().is_some_and(|x| x.has_unready())
    }

    /// Whether something is awaited of a rank.
    pub fn awaits(&self, rank: u32) -> bool {
        // While the exchange is at work the answer would be old in a moment:
        // asking the rank for a sign of life does no harm.
        self.exchange.as_ref().is_none_or(|x| x.awaits(rank))
    }

    /// How messages to a rank are pushed.
    #[must_use]
    pub fn push_to(&self, lane: Option<Lane>) -> Push {
        self.push[if matches!(lane, Some(Lane::Net(_))) {
            NET
        } else {
            SHM
        }]
    }
}

impl Drop for Matched {
    fn drop(&mut self) {
        // A process that is stopped in the middle of a copy may go on with it
        // later: memory that it may write to is not given back.
        if self.published.in_use() {
            std::mem::forget(self.exchange.take());
        }
    }
}

/// What a message of this kind is sent with.
const fn options(kind: Kind, args: &[u64]) -> SendOptions<'_> {
    let (flow, priority) = if kind.is_reply() {
        (FLOW_REPLIES, Priority::Reply)
    } else {
        (FLOW_REQUESTS, Priority::Request)
    };
    SendOptions {
        flow,
        priority,
        args,
    }
}

impl Core {
    /// Lets the exchange work, with the lanes to carry its messages.
    #[inline]
    pub fn exchange<R>(
        &mut self,
        out: &mut Out<'_>,
        act: impl FnOnce(&mut Exchange, &mut Carrier<'_>) -> R,
    ) -> R {
        let mut state = self
            .matched
            .exchange
            .take()
            .expect("it is at work nowhere else");
        let result = act(
            &mut state,
            &mut Carrier {
                core: self,
                out: out.again(),
            },
        );
        if state.take_freed() {
            self.note_freed();
        }
        self.attention |= state.has_backlog();
        self.matched.exchange = Some(state);
        result
    }

    /// A message of another rank's exchange.
    #[inline]
    pub(crate) fn arrive_matched(&mut self, out: &mut Out<'_>, a: &Arrival<'_>) -> CoreTook {
        let Some(kind) = Kind::of(a.meta.port - MATCHED) else {
            return CoreTook::Refused;
        };
        if self.leaving && !kind.is_reply() {
            return self.not_now();
        }
        let message = Incoming {
            from: a.meta.from,
            kind,
            args: a.args,
            total: a.total,
            payload: a.payload,
        };
        let took = self.exchange(out, |x, carrier| x.arrive(carrier, &message));
        let took = match took {
            Took::NotNow => return self.not_now(),
            Took::Refused => return CoreTook::Refused,
            Took::Whole => CoreTook::Whole,
            Took::Part(part) => self.begin_arrival(a, Dest::Matched(part)),
        };
        if matches!(kind, Kind::Eager | Kind::Offer) {
            self.counters.received += 1;
            self.counters.bytes_received += a.total;
        }
        self.accesses += u64::from(kind.is_one_sided());
        took
    }

    /// A further part of such a message.
    pub(crate) fn place_matched<R>(
        &mut self,
        part: u64,
        at: u64,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> Option<R> {
        let Matched {
            exchange: Some(state),
            scratch,
            ..
        } = &mut self.matched
        else {
            return None;
        };
        if let Some(room) = state.room(part, at, len) {
            return Some(fill(room));
        }
        scratch.resize(len, 0);
        let filled = fill(&mut scratch[..len]);
        state.write_part(part, at, &scratch[..len]);
        Some(filled)
    }

    /// All of such a message is here.
    pub(crate) fn finish_matched(&mut self, out: &mut Out<'_>, part: u64) {
        self.exchange(out, |x, carrier| x.arrived(carrier, part));
    }

    /// Whether the exchange is to be told of something.
    #[inline(always)]
    pub(crate) fn matched_has_news(&self) -> bool {
        !self.ops.released.is_empty()
    }

    /// Tells the exchange of reads that have ended and of deaths, and tries
    /// again what found no room. Gives how much moved.
    pub(crate) fn run_matched(&mut self, out: &mut Out<'_>) -> usize {
        let released: Vec<OpId> = std::mem::take(&mut self.ops.released);
        let dead = std::mem::take(&mut self.matched.dead);
        let moved = released.len() + dead.len();
        if moved == 0 && !self.matched.has_backlog() {
            return 0;
        }
        moved
            + self.exchange(out, |x, carrier| {
                for op in released {
                    x.released(op);
                }
                for rank in dead {
                    x.peer_died(carrier, rank);
                }
                x.resume(carrier)
            })
    }

    /// A rank that had died is back.
    pub(crate) fn welcome_matched(&mut self, out: &mut Out<'_>, rank: u32) {
        self.run_matched(out);
        self.exchange(out, |x, carrier| x.peer_back(carrier, rank));
    }
}
