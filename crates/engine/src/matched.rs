//! Matched messages: the exchange, carried by the lanes.
//!
//! Messages of the exchange go to ports from [`MATCHED`] on, one for each kind, in two flows of
//! their own: those that matching order depends on as requests, the others as replies. Pulls of
//! all spaces are replies of one more flow, with a port for each space.

mod cache;
mod memory;
mod published;

use portolan_exchange::{self as exchange, KINDS, Kind, LaneTerms, Notify, Stream};
use portolan_ring::RegionKey;
use portolan_wire::Priority;

use self::cache::Cache;
pub use self::cache::{Extent, Released};
pub(crate) use self::memory::Row;
pub use self::memory::{Gather, Scatter, address_space, prepare};
pub use self::published::Published;
use crate::lanes::{Lane, Lanes};
use crate::outbound::Outbound;
use crate::values::{
    FLOWS_MAX, Meta, Misuse, PORTS_RESERVED, SPACES, SendOptions, Settings, SpaceId,
};

/// The port of the first kind of message.
pub const MATCHED: u16 = PORTS_RESERVED + 0x80;
/// The port of pulls of space 0; those of the other spaces follow.
const PULLS: u16 = MATCHED + 0x10;
const _: () = assert!(MATCHED + KINDS <= PULLS && PULLS as usize + SPACES <= u16::MAX as usize);
pub const FLOW_REQUESTS: u16 = FLOWS_MAX;
/// Flow of pulls. Requests and replies number their flows separately, and no other reply has
/// this one.
const FLOW_PULLS: u16 = FLOW_REQUESTS;
pub(crate) const FLOW_REPLIES: u16 = FLOWS_MAX + 1;

/// The exchange, over the engine's types of memory.
pub type Exchange = exchange::Exchange<Gather, Scatter>;

/// The exchange of a space, and its regions that are published on this host.
pub struct Part {
    /// The exchange.
    pub exchange: Exchange,
    pub(crate) published: Published,
    /// Regions that stay when the program ends their registration.
    pub(crate) cache: Cache,
    /// Buffer for pieces that are assembled to leave in one packet.
    pub(crate) scratch: Vec<u8>,
}

/// The exchanges of all spaces that take messages.
pub struct Matched {
    /// The program's own.
    pub own: Part,
    others: [Option<Box<Part>>; SPACES - 1],
    /// Space whose exchange has the schedule of pulls, which is one for all.
    has_pulls: SpaceId,
}

/// What an arrival may lead to: the exchanges, and the sending halves.
pub struct Onward<'a> {
    pub(crate) matched: &'a mut Matched,
    pub(crate) out: Outbound<'a>,
}

/// Lends these to a handler that needs them.
pub(crate) trait Lend {
    fn lend(&mut self) -> Onward<'_>;
}

impl Lend for Onward<'_> {
    #[inline]
    fn lend(&mut self) -> Onward<'_> {
        Onward {
            matched: self.matched,
            out: self.out.again(),
        }
    }
}

/// Minimum size of a request by shared memory, bytes: there is no queue on the way that it
/// could overflow.
const SHM_CHUNK: u64 = 1 << 20;

/// Position of the space in the number of an arriving part.
pub(crate) const SPACE_SHIFT: u32 = 60;

impl Part {
    fn new(config: &Settings, lanes: &Lanes, space: SpaceId) -> Self {
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
            number: space.index() as u8,
            // Strangers may come, and a key that the program chose is guessed soon.
            demand_salt: config.standalone,
            secret: config.secrets.tags,
            region_secret: config.secrets.regions,
            lanes: [host, network],
            ports: PORTS_RESERVED.into(),
            ..config.exchange
        });
        let by_network =
            |lane| matches!(lane, Some(Lane::Net(_) | Lane::Unmet(_) | Lane::Meeting(_)));
        for rank in (0..config.size).filter(|rank| by_network(lanes.get(*rank))) {
            exchange.set_lane(rank, exchange::Lane::Network);
        }
        Self {
            exchange,
            published: Published::default(),
            cache: Cache::new(config.regions_cached),
            scratch: Vec::new(),
        }
    }

    /// Tells the exchange which ranks are dead.
    pub(crate) fn mark_dead(&mut self, lanes: &Lanes, size: u32) {
        for rank in (0..size).filter(|rank| lanes.dead(*rank).is_some()) {
            self.exchange.peer_died(rank);
        }
    }

    /// Returns the exchange, and its published regions.
    pub(crate) const fn regions(&mut self) -> (&mut Exchange, &mut Published) {
        (&mut self.exchange, &mut self.published)
    }

    /// Prepares memory of a request that has left.
    pub(crate) fn make_ready(&mut self) {
        if let Some((memory, at, bytes)) = self.exchange.next_unready() {
            prepare(memory, at, bytes);
        }
    }
}

impl Matched {
    /// Makes the exchange of the program's own space, for an endpoint with these lanes.
    #[must_use]
    pub fn new(config: &Settings, lanes: &Lanes) -> Self {
        let mut own = Part::new(config, lanes, SpaceId::PROGRAM);
        own.mark_dead(lanes, config.size);
        Self {
            own,
            others: [const { None }; SPACES - 1],
            has_pulls: SpaceId::PROGRAM,
        }
    }

    /// Raises the number of ranks; the new ones are reached by the network.
    pub(crate) fn grow(&mut self, size: u32) {
        let others = self.others.iter_mut().flatten().map(|it| &mut **it);
        for part in std::iter::once(&mut self.own).chain(others) {
            let exchange = &mut part.exchange;
            for rank in exchange.grow(size) {
                exchange.set_lane(rank, exchange::Lane::Network);
            }
        }
    }

    /// Whether a message of a rank waits for a receive.
    pub(crate) fn holds_of(&self, rank: u32) -> bool {
        let others = self.others.iter().flatten().map(|it| &**it);
        std::iter::once(&self.own)
            .chain(others)
            .any(|it| it.exchange.holds_of(rank))
    }

    /// Makes a space take messages, if it did not: it is opened, or a closing peer has some for
    /// it. Dead ranks are [marked](Part::mark_dead) when what they had sent is taken.
    pub(crate) fn open(&mut self, config: &Settings, lanes: &Lanes, space: SpaceId) {
        if self.part(space).is_some() {
            return;
        }
        let mut part = Box::new(Part::new(config, lanes, space));
        for rank in (0..config.size).filter(|rank| self.own.exchange.knows(*rank)) {
            part.exchange.set_known(rank, true);
        }
        if self.own.published.forbidden {
            part.forbid();
        }
        if let Some(place) = (space.index().checked_sub(1)).and_then(|at| self.others.get_mut(at)) {
            *place = Some(part);
        }
    }

    /// Prepares memory of requests that have left, in spaces other than the program's; true if
    /// there is more.
    pub(crate) fn make_others_ready(&mut self) -> bool {
        let mut more = false;
        for part in self.others.iter_mut().flatten() {
            part.make_ready();
            more |= part.exchange.has_unready();
        }
        more
    }

    /// Returns the part of a space, to be read.
    #[inline(always)]
    pub fn part(&mut self, space: SpaceId) -> Option<&mut Part> {
        match space.index().checked_sub(1) {
            None => Some(&mut self.own),
            Some(at) => self.others.get_mut(at)?.as_deref_mut(),
        }
    }

    /// Returns the part of a space, with the schedule of pulls: it may request something.
    #[inline(always)]
    pub fn at(&mut self, space: SpaceId) -> Option<&mut Part> {
        if self.has_pulls != space {
            self.hand_pulls_to(space)?;
        }
        self.part(space)
    }

    /// Checks that the named queue and counter exist.
    ///
    /// # Errors
    /// [`Misuse::NoSuchQueue`], [`Misuse::NoSuchCounter`].
    pub fn check_notify(&mut self, space: SpaceId, notify: Notify) -> Result<(), Misuse> {
        let Some(Part { exchange, .. }) = self.part(space) else {
            return Ok(());
        };
        if notify.queue.is_some_and(|queue| !exchange.has_queue(queue)) {
            return Err(Misuse::NoSuchQueue);
        }
        match notify.counter {
            Some(counter) if exchange.count(counter).is_none() => Err(Misuse::NoSuchCounter),
            _ => Ok(()),
        }
    }

    /// Returns the part of an open space, with the schedule of pulls.
    #[inline(always)]
    pub fn of(&mut self, space: SpaceId) -> &mut Part {
        if self.has_pulls != space {
            self.hand_pulls_to(space);
        }
        let others = &mut self.others;
        let place = space.index().checked_sub(1);
        let other = place.and_then(|at| others.get_mut(at)?.as_deref_mut());
        other.unwrap_or(&mut self.own)
    }

    #[cold]
    fn hand_pulls_to(&mut self, space: SpaceId) -> Option<()> {
        self.part(space)?;
        for space in [std::mem::replace(&mut self.has_pulls, space), space] {
            let at = space.index().checked_sub(1);
            if let Some(other) = at.and_then(|at| self.others[at].as_deref_mut()) {
                self.own.exchange.swap_pulls(&mut other.exchange);
            }
        }
        Some(())
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Part> {
        std::iter::once(&self.own).chain(self.others.iter().flatten().map(|it| &**it))
    }

    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Part> {
        let others = self.others.iter_mut().flatten();
        std::iter::once(&mut self.own).chain(others.map(|it| &mut **it))
    }

    /// Whether something waits for room, or for others.
    pub fn has_backlog(&self) -> bool {
        self.all().any(|part| part.exchange.has_backlog())
    }

    /// Whether something depends on what a rank does next.
    pub(crate) fn awaits(&self, rank: u32) -> bool {
        self.all().any(|part| part.exchange.awaits(rank))
    }

    /// Ends all operations.
    pub(crate) fn end_all(&mut self) {
        for space in (0..SPACES).map(SpaceId::at) {
            if let Some(part) = self.at(space) {
                part.exchange.end_all();
            }
        }
    }

    /// Returns the space of an arriving part, and its number there.
    pub(crate) const fn number(part: u64) -> (SpaceId, u64) {
        let space = SpaceId::at((part >> SPACE_SHIFT) as usize);
        (space, part & !(u64::MAX << SPACE_SHIFT))
    }

    /// Returns the bytes of the message or access of a part, as far as there is room.
    pub(crate) fn extent(&mut self, part: u64) -> u64 {
        let (space, part) = Self::number(part);
        self.part(space).map_or(0, |it| it.exchange.extent(part))
    }

    /// Places a further part of a message: `len` bytes, written by `fill`.
    pub(crate) fn place<R>(
        &mut self,
        part: u64,
        at: u64,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let (space, part) = Self::number(part);
        let Some(it) = self.part(space) else {
            return fill(&mut vec![0; len]);
        };
        let Part {
            exchange, scratch, ..
        } = it;
        if let Some(room) = exchange.room(part, at, len) {
            return fill(room);
        }
        scratch.resize(len, 0);
        let filled = fill(&mut scratch[..len]);
        exchange.write_part(part, at, &scratch[..len]);
        filled
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // A process that is stopped in the middle of a copy may resume it later: memory that it
        // may write to is never freed.
        if self.published.in_use() {
            let nothing = Exchange::new(exchange::Config::default());
            std::mem::forget(std::mem::replace(&mut self.exchange, nothing));
        }
    }
}

/// Returns the key of a space's region in the table of the shared memory lane.
pub(crate) const fn in_table(space: SpaceId, key: &exchange::RemoteKey) -> RegionKey {
    let [key, salt] = key.in_table();
    let key = key ^ space.salt();
    RegionKey { key, salt }
}

/// Returns the flow of a space's exchange for requests.
pub(crate) const fn request_flow(space: SpaceId) -> u16 {
    match space.index() {
        0 => FLOW_REQUESTS,
        _ => space.first_flow(),
    }
}

/// Returns the port and the options of a message of this kind, for a space (P13.1).
pub(crate) const fn options(space: SpaceId, kind: Kind, args: &[u64]) -> (u16, SendOptions<'_>) {
    let port = MATCHED + kind as u16;
    let (port, flow, priority) = match (kind.stream(), space.index()) {
        (Stream::Requests, _) => (port, request_flow(space), Priority::Request),
        (Stream::Replies, 0) => (port, FLOW_REPLIES, Priority::Reply),
        (Stream::Replies, _) => (port, space.first_flow(), Priority::Reply),
        (Stream::Pulls, of) => (PULLS + of as u16, FLOW_PULLS, Priority::Reply),
    };
    let options = SendOptions {
        flow,
        priority,
        args,
        notify: Notify::NONE,
    };
    (port, options)
}

/// Returns the kind and the space of a message at a port from [`MATCHED`] on.
/// (P13.1, P13.2, P13.15)
pub(crate) const fn arrives(meta: &Meta) -> Option<(Kind, SpaceId)> {
    if meta.port >= PULLS {
        let of = (meta.port - PULLS) as usize;
        return if of < SPACES {
            Some((Kind::Pull, SpaceId::at(of)))
        } else {
            None
        };
    }
    match Kind::of(meta.port - MATCHED) {
        None | Some(Kind::Pull) => None,
        Some(kind) => Some((kind, meta.space())),
    }
}

#[cfg(test)]
mod tests {
    use portolan_wire::MessageNo;

    use super::*;

    fn meta(port: u16, flow: u16, priority: Priority) -> Meta {
        Meta {
            from: 1,
            port,
            flow,
            priority,
            number: MessageNo(0),
            direct: true,
        }
    }

    /// Checks P13.1, P13.2, P13.15.
    #[test]
    fn every_kind_of_every_space_arrives_as_it_was_sent() {
        for (at, space) in (0..SPACES).map(SpaceId::at).enumerate() {
            let all = (0..KINDS).map(|kind| Kind::of(kind).expect("there are so many"));
            for kind in all {
                let (port, o) = options(space, kind, &[]);
                let expected = match kind {
                    Kind::Pull => 0xff90 + at as u16,
                    _ => 0xff80 + kind as u16,
                };
                assert_eq!(port, expected);
                let meta = meta(port, o.flow, o.priority);
                assert_eq!(arrives(&meta), Some((kind, space)));
            }
            // A pull waits behind no answer.
            let of = |kind| {
                let (_, o) = options(space, kind, &[]);
                (o.priority, o.flow)
            };
            assert_ne!(of(Kind::Pull), of(Kind::Pulled));
            assert_ne!(of(Kind::Pull), of(Kind::Got));
        }
        let pull = MATCHED + Kind::Pull as u16;
        for port in [
            pull,
            MATCHED + KINDS,
            PULLS - 1,
            PULLS + SPACES as u16,
            u16::MAX,
        ] {
            assert_eq!(
                arrives(&meta(port, FLOW_PULLS, Priority::Reply)),
                None,
                "{port:x}"
            );
        }
    }
}
