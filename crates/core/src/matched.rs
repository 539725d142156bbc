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
use crate::space::{SPACES, SpaceId};

/// The port of the first kind of message.
pub const MATCHED: u16 = PORTS_RESERVED + 0x80;
const _: () = assert!(MATCHED as u32 + KINDS as u32 <= u16::MAX as u32);
pub const FLOW_REQUESTS: u16 = FLOWS_MAX;
const FLOW_REPLIES: u16 = FLOWS_MAX + 1;

/// Matched messages over memory of the engine's.
pub type Exchange = exchange::Exchange<Gather, Scatter>;

/// The exchange of a space, and what others of this host see of its memory.
pub struct Part {
    /// It.
    pub exchange: Exchange,
    published: Published,
    /// Of these, those that stay when the program ends their registration.
    cache: Cache,
    /// For pieces that are put together to leave in one packet.
    scratch: Vec<u8>,
}

/// Those of all spaces that are open.
pub struct Matched {
    /// The program's own.
    pub own: Part,
    others: [Option<Box<Part>>; SPACES - 1],
    /// Whose exchange has the schedule of pulls, which is one for all.
    has_pulls: SpaceId,
}

/// A request by shared memory asks for so much at least, bytes: there is no
/// queue on the way that it could overflow.
const SHM_CHUNK: u64 = 1 << 20;

/// Where the number of a part that is arriving says of which space it is.
const SPACE_SHIFT: u32 = 60;

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
        // Peers choose tags; they do not know how ours are hashed. No two spaces name
        // regions alike.
        let seed = config.seed ^ space.salt();
        let mut exchange = Exchange::new(exchange::Config {
            rank: config.rank,
            size: config.size,
            number: space.index() as u8,
            secret: [seed, config.life.rotate_left(32) ^ config.seed],
            lanes: [host, network],
            ports: PORTS_RESERVED.into(),
            ..config.exchange
        });
        for rank in (0..config.size).filter(|rank| lanes.peer(*rank).is_some()) {
            exchange.set_lane(rank, exchange::Lane::Network);
        }
        for rank in (0..config.size).filter(|rank| lanes.dead(*rank).is_some()) {
            exchange.peer_died(rank);
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
}

impl Matched {
    /// For an endpoint with these lanes.
    #[must_use]
    pub fn new(config: &Settings, lanes: &Lanes) -> Self {
        Self {
            own: Part::new(config, lanes, SpaceId::PROGRAM),
            others: [const { None }; SPACES - 1],
            has_pulls: SpaceId::PROGRAM,
        }
    }

    /// A space is open from now on.
    pub(crate) fn open(&mut self, config: &Settings, lanes: &Lanes, space: SpaceId) {
        let mut part = Box::new(Part::new(config, lanes, space));
        if self.own.published.forbidden {
            part.forbid();
        }
        if let Some(place) = (space.index().checked_sub(1)).and_then(|at| self.others.get_mut(at)) {
            *place = Some(part);
        }
    }

    /// Makes memory ready that requests are about which have left, of other spaces than
    /// the program's; true if there is more.
    pub(crate) fn make_others_ready(&mut self) -> bool {
        let mut more = false;
        for part in self.others.iter_mut().flatten() {
            part.make_ready();
            more |= part.exchange.has_unready();
        }
        more
    }

    /// That of a space, to be looked at.
    #[inline(always)]
    pub fn part(&mut self, space: SpaceId) -> Option<&mut Part> {
        match space.index().checked_sub(1) {
            None => Some(&mut self.own),
            Some(at) => self.others.get_mut(at)?.as_deref_mut(),
        }
    }

    /// That of a space, with the schedule of pulls: it may ask for something.
    #[inline(always)]
    pub fn at(&mut self, space: SpaceId) -> Option<&mut Part> {
        if self.has_pulls != space {
            self.hand_pulls_to(space)?;
        }
        self.part(space)
    }

    /// The same, of one that is open.
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

    fn all(&self) -> impl Iterator<Item = &Part> {
        std::iter::once(&self.own).chain(self.others.iter().flatten().map(|it| &**it))
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Part> {
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
        for part in self.all_mut() {
            part.exchange.end_all();
        }
    }

    /// The space of a part that is arriving, and its number there.
    const fn number(part: u64) -> (SpaceId, u64) {
        let space = SpaceId::at((part >> SPACE_SHIFT) as usize);
        (space, part & !(u64::MAX << SPACE_SHIFT))
    }

    /// Bytes of the message or access that a part is of, as far as there is room.
    pub(crate) fn extent(&mut self, part: u64) -> u64 {
        let (space, part) = Self::number(part);
        self.part(space).map_or(0, |it| it.exchange.extent(part))
    }

    /// A further part of a message, of `len` bytes, which `fill` writes.
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
        // A process that is stopped in the middle of a copy may go on with it
        // later: memory that it may write to is not given back.
        if self.published.in_use() {
            let nothing = Exchange::new(exchange::Config::default());
            std::mem::forget(std::mem::replace(&mut self.exchange, nothing));
        }
    }
}

/// By what the table of the shared memory lane names a region of a space.
fn in_table(space: SpaceId, key: &exchange::RemoteKey) -> Option<u64> {
    Some(key.in_table()? ^ space.salt())
}

/// What a message of this kind is sent with, of a space.
const fn options(space: SpaceId, kind: Kind, args: &[u64]) -> SendOptions<'_> {
    let (flow, priority) = if kind.is_reply() {
        (FLOW_REPLIES, Priority::Reply)
    } else {
        (FLOW_REQUESTS, Priority::Request)
    };
    let flow = if space.index() == 0 {
        flow
    } else {
        space.first_flow()
    };
    SendOptions {
        flow,
        priority,
        args,
    }
}

impl Core {
    /// Does what a space's exchange wants to be done after it was told something; gives
    /// how much found room.
    #[inline]
    pub(crate) fn work(
        &mut self,
        matched: &mut Matched,
        out: &mut Out<'_>,
        space: SpaceId,
    ) -> usize {
        match matched.part(space) {
            Some(part) if !part.exchange.is_quiet() => self.do_tasks(matched, out, space),
            _ => 0,
        }
    }

    fn do_tasks(&mut self, matched: &mut Matched, out: &mut Out<'_>, space: SpaceId) -> usize {
        let (mut done, mut space) = (0, space);
        loop {
            let Some(Part {
                exchange,
                published,
                scratch,
                ..
            }) = matched.at(space)
            else {
                return done;
            };
            while let Some(task) = exchange.poll_task() {
                let did = self.act(published, scratch, out, space, task);
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
            let unready = space != SpaceId::PROGRAM && exchange.has_unready();
            self.attention |= unready || exchange.has_backlog();
            let Some(next) = exchange.next_turn() else {
                return done;
            };
            space = SpaceId::at(next.into());
            if let Some(part) = matched.at(space) {
                part.exchange.take_turn();
            }
        }
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
        let space = a.meta.space();
        let Some(part) = matched.at(space) else {
            return self.not_now();
        };
        let message = Incoming {
            from: a.meta.from,
            kind,
            args: a.args,
            total: a.total,
            payload: a.payload,
        };
        let took = part.exchange.arrive(&message);
        self.work(matched, out, space);
        let took = match took {
            Took::NotNow => return self.not_now(),
            Took::Refused => return CoreTook::Refused,
            Took::Whole => CoreTook::Whole,
            Took::Part(part) => CoreTook::Part(part | (space.index() as u64) << SPACE_SHIFT),
        };
        if matches!(kind, Kind::Eager | Kind::Offer) {
            self.count_arrival(a.meta.flow, a.total as usize);
        }
        self.accesses += u64::from(kind.is_one_sided());
        took
    }

    /// All of a part has arrived.
    pub(crate) fn part_arrived(&mut self, matched: &mut Matched, out: &mut Out<'_>, part: u64) {
        let (space, part) = Matched::number(part);
        if let Some(it) = matched.at(space) {
            it.exchange.arrived(part);
            self.work(matched, out, space);
        }
    }

    /// Whether the exchanges are to hear of something.
    #[inline(always)]
    pub(crate) const fn has_news(&self) -> bool {
        !self.ops.news.is_empty()
    }

    /// Tells the exchanges what has happened; gives how much. What others than the
    /// program's then want to be done is done by [`Core::run_matched`].
    pub(crate) fn tell_news(&mut self, matched: &mut Matched) -> usize {
        let told = self.ops.news.len();
        for news in self.ops.news.drain(..) {
            match news {
                News::Released(space, op) => {
                    self.attention |= space != SpaceId::PROGRAM;
                    if let Some(part) = matched.at(space) {
                        part.exchange.released(op);
                    }
                }
                News::Port(port, open) => {
                    self.attention |= port.space != SpaceId::PROGRAM;
                    if let Some(part) = matched.at(port.space) {
                        part.exchange.set_port(port.number.into(), open);
                    }
                }
                News::Died(rank) => {
                    self.attention = true;
                    for space in (0..SPACES).map(SpaceId::at) {
                        if let Some(part) = matched.at(space) {
                            part.exchange.peer_died(rank);
                        }
                    }
                }
            }
        }
        told
    }

    /// Tells the exchanges of what has happened, and tries again what found no room.
    /// Gives how much moved.
    pub(crate) fn run_matched(&mut self, matched: &mut Matched, out: &mut Out<'_>) -> usize {
        let told = self.tell_news(matched);
        let mut moved = told;
        for space in (0..SPACES).map(SpaceId::at) {
            let Some(part) = matched.part(space) else {
                continue;
            };
            if told > 0 || part.exchange.has_backlog() {
                if let Some(part) = matched.at(space) {
                    part.exchange.resume();
                }
                moved += self.work(matched, out, space);
            }
        }
        moved
    }

    /// A rank that had died is back, and reached by the network.
    pub(crate) fn welcome_matched(&mut self, matched: &mut Matched, out: &mut Out<'_>, rank: u32) {
        self.run_matched(matched, out);
        for space in (0..SPACES).map(SpaceId::at) {
            if let Some(part) = matched.at(space) {
                part.exchange.peer_back(rank);
                part.exchange.set_lane(rank, exchange::Lane::Network);
                self.work(matched, out, space);
            }
        }
    }
}
