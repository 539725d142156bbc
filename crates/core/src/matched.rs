//! Matched messages: the exchange, carried by the lanes.
//!
//! Its messages come to ports from [`MATCHED`] on, one for each kind, in two
//! flows of their own: what matching order depends on as requests, the rest as
//! replies.

mod begin;
mod cache;
mod memory;
mod published;
mod tasks;

use portolan_exchange::{self as exchange, Did, Incoming, KINDS, Kind, LaneTerms, Took};
use portolan_wire::Priority;

use self::cache::Cache;
pub use self::cache::{Extent, Released};
pub use self::memory::{Gather, Scatter};
use self::published::Published;
use self::tasks::prepare;
use crate::core::{Arrival, Core, Took as CoreTook};
use crate::lanes::Lanes;
use crate::message::SendOptions;
use crate::ops::News;
use crate::out::Out;
use crate::ports::PORTS_RESERVED;
use crate::send::FLOWS_MAX;
use crate::settings::Settings;

/// The port of the first kind of message.
pub const MATCHED: u16 = PORTS_RESERVED + 0x80;
const _: () = assert!(MATCHED as u32 + KINDS as u32 <= u16::MAX as u32);
pub const FLOW_REQUESTS: u16 = FLOWS_MAX;
const FLOW_REPLIES: u16 = FLOWS_MAX + 1;

/// Matched messages over memory of the engine's.
pub type Exchange = exchange::Exchange<Gather, Scatter>;

/// The exchange, and what others of this host see of its memory.
pub struct Matched {
    /// It.
    pub exchange: Exchange,
    published: Published,
    /// Of these, those that stay when the program ends their registration.
    cache: Cache,
    /// For pieces that are put together to leave in one packet.
    scratch: Vec<u8>,
}

/// A request by shared memory asks for so much at least, bytes: there is no
/// queue on the way that it could overflow.
const SHM_CHUNK: u64 = 1 << 20;

impl Matched {
    /// For an endpoint with these lanes.
    #[must_use]
    pub fn new(config: &Settings, lanes: &Lanes) -> Self {
        let host = LaneTerms {
            push: config.push_shm,
            queues: false,
            pull_min: SHM_CHUNK,
            direct: true,
        };
        let network = LaneTerms {
            push: config.push_net,
            queues: true,
            ..LaneTerms::default()
        };
        let mut exchange = Exchange::new(exchange::Config {
            rank: config.rank,
            size: config.size,
            // Peers choose tags; they do not know how ours are hashed.
            secret: [config.seed, config.life.rotate_left(32) ^ config.seed],
            lanes: [host, network],
            ports: PORTS_RESERVED.into(),
            ..config.exchange
        });
        for rank in (0..config.size).filter(|rank| lanes.peer(*rank).is_some()) {
            exchange.set_lane(rank, exchange::Lane::Network);
        }
        Self {
            exchange,
            published: Published::default(),
            cache: Cache::new(config.regions_cached),
            scratch: Vec::new(),
        }
    }

    /// The exchange, and which of its regions others of this host see.
    const fn regions(&mut self) -> (&mut Exchange, &mut Published) {
        (&mut self.exchange, &mut self.published)
    }

    /// Requests have left: makes memory ready that one of them is about.
    pub(crate) fn make_ready(&mut self) {
        if let Some((memory, at, bytes)) = self.exchange.next_unready() {
            prepare(memory, at, bytes);
        }
    }

    /// A further part of a message, of `len` bytes, which `fill` writes.
    pub(crate) fn place<R>(
        &mut self,
        part: u64,
        at: u64,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        if let Some(room) = self.exchange.room(part, at, len) {
            return fill(room);
        }
        self.scratch.resize(len, 0);
        let filled = fill(&mut self.scratch[..len]);
        (self.exchange).write_part(part, at, &self.scratch[..len]);
        filled
    }
}

impl Drop for Matched {
    fn drop(&mut self) {
        // A process that is stopped in the middle of a copy may go on with it
        // later: memory that it may write to is not given back.
        if self.published.in_use() {
            let nothing = Exchange::new(exchange::Config::default());
            std::mem::forget(std::mem::replace(&mut self.exchange, nothing));
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
    /// Does what the exchange wants to be done after it was told something; gives how
    /// much found room.
    #[inline]
    pub(crate) fn work(&mut self, matched: &mut Matched, out: &mut Out<'_>) -> usize {
        if matched.exchange.is_quiet() {
            return 0;
        }
        self.do_tasks(matched, out)
    }

    fn do_tasks(&mut self, matched: &mut Matched, out: &mut Out<'_>) -> usize {
        let Matched {
            exchange,
            published,
            scratch,
            ..
        } = matched;
        let mut done = 0;
        while let Some(task) = exchange.poll_task() {
            let did = self.act(published, scratch, out, task);
            done += usize::from(did != Did::NoRoom);
            exchange.did(did);
        }
        while let Some(rank) = exchange.poll_awaited() {
            if let Some(peer) = self.lanes.peer(rank) {
                out.net_await(peer);
            }
        }
        if exchange.take_freed() {
            self.note_freed();
        }
        self.attention |= exchange.has_backlog();
        done
    }

    /// A message of another rank's exchange.
    #[inline]
    pub(crate) fn arrive_matched(
        &mut self,
        matched: &mut Matched,
        out: &mut Out<'_>,
        a: &Arrival<'_>,
    ) -> CoreTook {
        let Some(kind) = Kind::of(a.meta.port - MATCHED) else {
            return CoreTook::Refused;
        };
        if self.leaving && !kind.is_reply() {
            return self.not_now();
        }
        if self.has_news() {
            self.tell_news(matched);
        }
        let message = Incoming {
            from: a.meta.from,
            kind,
            args: a.args,
            total: a.total,
            payload: a.payload,
        };
        let took = matched.exchange.arrive(&message);
        self.work(matched, out);
        let took = match took {
            Took::NotNow => return self.not_now(),
            Took::Refused => return CoreTook::Refused,
            Took::Whole => CoreTook::Whole,
            Took::Part(part) => CoreTook::Part(part),
        };
        if matches!(kind, Kind::Eager | Kind::Offer) {
            self.counters.received += 1;
            self.counters.bytes_received += a.total;
        }
        self.accesses += u64::from(kind.is_one_sided());
        took
    }

    /// Whether the exchange is to hear of something.
    #[inline(always)]
    pub(crate) const fn has_news(&self) -> bool {
        !self.ops.news.is_empty()
    }

    /// Tells the exchange what has happened; gives how much.
    pub(crate) fn tell_news(&mut self, matched: &mut Matched) -> usize {
        let told = self.ops.news.len();
        for news in self.ops.news.drain(..) {
            match news {
                News::Released(op) => matched.exchange.released(op),
                News::Died(rank) => matched.exchange.peer_died(rank),
                News::Port(port, open) => matched.exchange.set_port(port.into(), open),
            }
        }
        told
    }

    /// Tells the exchange of what has happened, and tries again what found no room.
    /// Gives how much moved.
    pub(crate) fn run_matched(&mut self, matched: &mut Matched, out: &mut Out<'_>) -> usize {
        let told = self.tell_news(matched);
        if told == 0 && !matched.exchange.has_backlog() {
            return 0;
        }
        matched.exchange.resume();
        told + self.work(matched, out)
    }

    /// A rank that had died is back, and reached by the network.
    pub(crate) fn welcome_matched(&mut self, matched: &mut Matched, out: &mut Out<'_>, rank: u32) {
        self.run_matched(matched, out);
        matched.exchange.peer_back(rank);
        matched.exchange.set_lane(rank, exchange::Lane::Network);
        self.work(matched, out);
    }
}
