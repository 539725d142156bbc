//! The state of an exchange, its settings and statistics.

mod answers;
mod arrive;
mod completions;
mod end;
mod handover;
mod inline;
mod onesided;
mod pull;
mod receive;
mod regions;
mod send;
mod serve;
mod share;
mod task;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use portolan_matching::Matcher;

use self::handover::Early;
pub use self::inline::InlineReceive;
use self::inline::InlineSlot;
pub use self::send::{BYTES_MAX, SendOptions, SendRefused};
pub use self::share::SHARE_MIN;
use crate::state::{
    Dest, IncastDetector, LATE_SHARE, Message, Ops, Part, Peers, Pulls, Regions, Room, Served,
    Slab, TargetState, Waiting, Words,
};
use crate::values::{Kind, Lane, LaneTerms, OpId, PUSHED_MIN, Push, Sink, Source};

/// Settings of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// This process's rank.
    pub rank: u32,
    /// Ranks of the job.
    pub size: u32,
    /// Index of this exchange among those of an endpoint that share a schedule of pulls. Default
    /// 0.
    pub number: u8,
    /// Keys the hash of tags: random, unknown to peers.
    pub secret: [u64; 2],
    /// Secret from which keys and salts of regions come, and keys of memory that senders write to:
    /// random, and used for nothing else but exchanges of other numbers. A peer that guesses it
    /// reaches all regions.
    pub region_secret: [u8; 32],
    /// Pushed bytes that are kept until a receive asks for them, in all. Each
    /// sender has [`PUSHED_MIN`] of its own, whatever this says. Default 4 MiB.
    pub pushed_bytes: u64,
    /// Share of one sender, the pushed buffer. `None`: the largest charge of one message on its
    /// lane; on lanes with queues all senders of the last long messages share that. Default
    /// `None`.
    pub pushed_share: Option<u64>,
    /// Offers of one sender that are kept. Default 1,048,576.
    pub offers_max: u32,
    /// Bytes requested and not arrived, of all senders together; one sender counts for half the
    /// window at most. At least 2. Default 512 KiB.
    pub pull_window: u64,
    /// Bytes that one request asks for. Default 128 KiB.
    pub pull_chunk: u64,
    /// Terms of the lanes: within the host, and by the network.
    pub lanes: [LaneTerms; 2],
    /// Signals may name ports below this number. Default 65,536.
    pub ports: u32,
    /// Shortest rest of a message that both sides copy, bytes, if they can reach into each other's
    /// memory and the sender waits; 128 at least. Default [`SHARE_MIN`].
    pub share_min: u64,
    /// Whether regions registered with [`Salt::Default`](crate::Salt::Default) demand their salt.
    /// Default false.
    pub demand_salt: bool,
    /// Regions that may be registered at once. Default 65,536.
    pub regions_max: u32,
    /// Only ranks that are [known](Exchange::set_known) reach regions. Default false.
    pub regions_for_known: bool,
    /// One-sided accesses of one rank to this one's memory that may be in flight: puts that arrive
    /// in parts, answers that have not left. At least 1. Default 1,024.
    pub accesses_max: u32,
    /// Memory for messages that are pulled before a receive asks for them, bytes, of all exchanges
    /// of the endpoint together: allocated when used. One sender may hold an eighth of it, and so
    /// may all strangers together. Default 64 MiB.
    pub late_bytes: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rank: 0,
            size: 1,
            number: 0,
            secret: [0; 2],
            region_secret: [0; 32],
            pushed_bytes: 4 << 20,
            pushed_share: None,
            offers_max: 1 << 20,
            pull_window: 512 << 10,
            pull_chunk: 128 << 10,
            lanes: [LaneTerms::default(); 2],
            ports: 1 << 16,
            share_min: SHARE_MIN,
            demand_salt: false,
            regions_max: 1 << 16,
            regions_for_known: false,
            accesses_max: 1 << 10,
            late_bytes: 64 << 20,
        }
    }
}

impl Config {
    /// Bytes of [`Config::late_bytes`] that one sender may hold.
    #[must_use]
    pub const fn late_share(&self) -> usize {
        (self.late_bytes / LATE_SHARE) as usize
    }

    /// Pushed bytes that each sender may have kept here, if nothing else limits them.
    const fn part(&self) -> u64 {
        let others = if self.size > 2 { self.size - 1 } else { 1 };
        self.pushed_bytes / others as u64
    }
}

/// What an exchange holds at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Statistics {
    /// Operations that have not ended.
    pub operations: usize,
    /// Messages that no receive has met, or whose pushes are still coming.
    pub messages: usize,
    /// Bytes of these messages that are charged to their senders.
    pub pushed_bytes: u64,
    /// Payloads that have arrived in part.
    pub parts: usize,
    /// Second pushes that have not begun to arrive.
    pub second_pushes: usize,
    /// Bytes requested and not arrived, but for those that the sender writes itself.
    pub pulled_bytes: u64,
    /// Ranks for which something waits for room to be sent.
    pub backlogs: usize,
    /// Ranks towards which one-sided operations have not ended, or were not
    /// flushed.
    pub unflushed: usize,
    /// Regions that are registered, or are still in use.
    pub regions: usize,
    /// Accesses to regions that are in flight.
    pub accesses: u64,
}

/// The matched messages and the one-sided memory of an endpoint.
#[derive(Debug)]
pub struct Exchange<S, K> {
    pub(crate) config: Config,
    /// [`Config::part`].
    part: u64,
    pub(crate) matcher: Matcher<OpId, u64>,
    pub(crate) inline: Option<InlineSlot<K>>,
    pub(crate) ops: Ops<S, K>,
    pub(crate) messages: Slab<Message>,
    pub(crate) parts: Slab<Part>,
    pub(crate) peers: Peers,
    pub(crate) incast: IncastDetector,
    /// Second pushes that have not begun to arrive, by sender and its operation: destination,
    /// offset, length.
    pub(crate) second_pushes: BTreeMap<(u32, u64), (Dest, u64, u64)>,
    pub(crate) pulls: Pulls,
    pub(crate) regions: Regions<K>,
    /// Answers with bytes to others' accesses.
    pub(crate) served: Slab<Served>,
    /// State of one-sided operations in flight, by target.
    pub(crate) targets: BTreeMap<u32, TargetState>,
    /// Whether an access was not admitted.
    pub(crate) held_up: bool,
    /// Ports that signals may not name any more.
    closed: BTreeSet<u32>,
    /// Closed by its owner.
    pub(crate) is_over: bool,
    /// Closing has begun: offers that no receive meets are refused.
    pub(crate) is_refusing: bool,
    /// Senders whose messages are pulled before a receive asks for them.
    pub(crate) early: BTreeMap<u32, Early>,
    /// Senders in `early` whose first message waits for room, and the rank whose turn is next.
    pub(crate) waiting: BTreeSet<u32>,
    pub(crate) next_waiting: u32,
    /// Messages that are being pulled before a receive asks for them, by the operation that pulls.
    pub(crate) handovers: BTreeMap<OpId, u64>,
    /// Receives from any source whose message was lost with its sender: they are to be posted
    /// again.
    pub(crate) again: Vec<OpId>,
    /// See [`Exchange::holds_any`].
    pub(crate) held: Option<OpId>,
    /// Spare vectors for messages that are kept.
    pub(crate) spare: Vec<Vec<u8>>,
    /// A message that was not taken may be taken now.
    pub(crate) freed: bool,
    /// Receives that end once their published memory can be withdrawn.
    pub(crate) hiding: Vec<OpId>,
    /// Requested ranges of receives and gets, to be prepared once the requests have left.
    pub(crate) unready: VecDeque<(OpId, u64, u64)>,
}

impl<S: Source, K: Sink> Exchange<S, K> {
    /// Makes an exchange without operations.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            matcher: Matcher::new(config.secret),
            inline: None,
            ops: Ops::new(config.size, config.lanes),
            messages: Slab::new(),
            parts: Slab::new(),
            peers: Peers::new(config.size),
            incast: IncastDetector::new(),
            second_pushes: BTreeMap::new(),
            pulls: Pulls::new(config.pull_window.max(2), config.late_bytes),
            regions: Regions::new(
                config.regions_max,
                config.demand_salt,
                Words::new(&config.region_secret, config.number),
            ),
            served: Slab::new(),
            targets: BTreeMap::new(),
            held_up: false,
            closed: BTreeSet::new(),
            is_over: false,
            is_refusing: false,
            early: BTreeMap::new(),
            waiting: BTreeSet::new(),
            next_waiting: 0,
            handovers: BTreeMap::new(),
            again: Vec::new(),
            held: None,
            spare: Vec::new(),
            freed: false,
            hiding: Vec::new(),
            unready: VecDeque::new(),
            part: config.part(),
            config,
        }
    }

    /// Whether [`Exchange::next_unready`] has something.
    #[inline]
    #[must_use]
    pub fn has_unready(&self) -> bool {
        !self.unready.is_empty()
    }

    /// Returns memory to be prepared for one request that has left, and its range, while the bytes
    /// are on their way (address translation overhead masking). One at a time, since others' bytes
    /// may come meanwhile.
    pub fn next_unready(&mut self) -> Option<(&mut K, u64, u64)> {
        let (id, at, bytes) = loop {
            let (id, at, bytes) = self.unready.pop_front()?;
            let here = (self.ops.meeting(id)).is_some_and(|it| it.came >= at + bytes);
            // Bytes that are here, or whose operation has ended, need nothing.
            if !here && self.ops.sink(id).is_some() {
                break (id, at, bytes);
            }
        };
        let (memory, start) = self.ops.sink(id)?;
        Some((memory, start + at, bytes))
    }

    /// Raises the number of ranks; returns the new ones.
    pub fn grow(&mut self, size: u32) -> core::ops::Range<u32> {
        let new = self.config.size..size.max(self.config.size);
        self.config.size = new.end;
        self.part = self.config.part();
        self.ops.lanes.grow(new.end);
        self.peers.grow(new.end);
        new
    }

    /// Whether a message waits for a receive, or a completion for the program, that names this
    /// rank.
    #[must_use]
    pub fn holds_of(&self, rank: u32) -> bool {
        let mut messages = self.messages.iter();
        let mut ended = (self.ops.slab.iter()).filter_map(|(id, _)| self.completion(OpId(id)));
        messages.any(|(_, message)| message.what.from == rank) || ended.any(|it| it.peer == rank)
    }

    /// Sets the lane to a rank from which nothing is awaited. Default [`Lane::Host`].
    pub fn set_lane(&mut self, rank: u32, lane: Lane) {
        self.ops.lanes.set(rank, lane);
    }

    /// Sets whether the program knows a rank. Default false. With [`Config::regions_for_known`]
    /// accesses of other ranks end with [`crate::OpError::NotPermitted`].
    pub fn set_known(&mut self, rank: u32, known: bool) {
        self.ops.lanes.set_known(rank, known);
    }

    /// Whether the program knows a rank.
    #[must_use]
    pub fn knows(&self, rank: u32) -> bool {
        self.ops.lanes.knows(rank)
    }

    /// Whether a rank may reach regions, if it has the key and the region the rights.
    #[must_use]
    pub fn may_reach(&self, rank: u32) -> bool {
        !self.config.regions_for_known || rank == self.config.rank || self.knows(rank)
    }

    /// Terms of the lane to a rank.
    #[must_use]
    pub fn terms(&self, rank: u32) -> &LaneTerms {
        self.ops.lanes.of(rank)
    }

    /// How messages are pushed, within the host and by the network.
    #[must_use]
    pub fn pushes(&self) -> [Push; 2] {
        self.ops.lanes.pushes()
    }

    /// Sets how messages that have not left are pushed, within the host and by the network.
    pub fn set_pushes(&mut self, pushes: [Push; 2]) {
        self.ops.lanes.set_pushes(pushes);
        self.tell_room();
    }

    /// Sets whether signals may name a port. Default true.
    pub fn set_port(&mut self, port: u32, open: bool) {
        if open {
            self.closed.remove(&port);
        } else {
            self.closed.insert(port);
        }
    }

    pub(crate) fn has_port(&self, port: u32) -> bool {
        port < self.config.ports && !self.closed.contains(&port)
    }

    /// Returns a rank by [`Lane::Network`] from which something new is awaited. If it falls silent
    /// while [`Exchange::awaits`] is true, it is to be asked for a sign of life.
    #[inline]
    pub fn poll_awaited(&mut self) -> Option<u32> {
        self.ops.lanes.next_news()
    }

    /// Whether an operation or a message depends on what a rank by [`Lane::Network`]
    /// does next.
    #[must_use]
    pub fn awaits(&self, rank: u32) -> bool {
        self.ops.lanes.awaits(rank) || self.stands(|selector| selector.source == Some(rank))
    }

    /// This process's rank.
    #[must_use]
    pub const fn rank(&self) -> u32 {
        self.config.rank
    }

    /// Current statistics.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics {
            operations: self.ops.live() + usize::from(self.stands(|_| true)),
            messages: self.messages.len(),
            pushed_bytes: self.peers.met().map(|(_, peer)| peer.kept()).sum(),
            parts: self.parts.len(),
            second_pushes: self.second_pushes.len(),
            pulled_bytes: self.pulls.outstanding(),
            backlogs: (self.peers.met().filter(|(_, it)| !it.lines.are_empty())).count(),
            unflushed: self.targets.len(),
            regions: self.regions.len(),
            accesses: self.regions.uses(),
        }
    }

    /// Room for the pushed bytes of a sender.
    pub(crate) fn room_of(&self, from: u32) -> Room {
        let room = match self.config.pushed_share {
            Some(bytes) => Room::of(bytes),
            None => {
                let terms = self.terms(from);
                let most = terms.push.most();
                let senders = self.incast.senders();
                if senders > 1 && terms.queues {
                    // More would overflow the queue before us; the rest is pulled, in turns.
                    Room::of(most / senders)
                } else {
                    Room::for_push(most)
                }
            }
        };
        if room.bytes > self.part {
            let bytes = self.part.max(PUSHED_MIN);
            let slack = room.slack.min(bytes / 2);
            Room { bytes, slack }
        } else if room.bytes < PUSHED_MIN {
            Room::of(PUSHED_MIN)
        } else {
            room
        }
    }

    /// Sets [`Config::pushed_share`], bytes; at least [`PUSHED_MIN`]. Credit granted before stays
    /// until it is used.
    pub fn set_pushed_share(&mut self, bytes: Option<u64>) {
        self.config.pushed_share = bytes;
        self.tell_room();
    }

    /// Reports new credit limits to senders.
    fn tell_room(&mut self) {
        let me = self.config.rank;
        let met: Vec<u32> = (self.peers.met())
            .filter(|(rank, peer)| *rank != me && !peer.dead)
            .map(|(rank, _)| rank)
            .collect();
        let updates: Vec<(u32, u64)> = (met.into_iter())
            .filter_map(|rank| {
                let room = self.room_of(rank);
                Some((rank, self.peers.get(rank)?.limit_update(room)?))
            })
            .collect();
        for (rank, limit) in updates {
            self.say(rank, Kind::Credit, [limit]);
        }
    }

    /// Sets [`Config::pull_window`] and [`Config::pull_chunk`], bytes. Requests that have left are
    /// not changed.
    pub fn set_pull(&mut self, window: u64, chunk: u64) {
        (self.config.pull_window, self.config.pull_chunk) = (window, chunk);
        self.pulls.set_window(window.max(2));
        self.ask();
    }

    /// Window and chunk, as [`Exchange::set_pull`] takes them.
    #[must_use]
    pub fn pull_sizes(&self) -> (u64, u64) {
        (self.config.pull_window, self.config.pull_chunk)
    }

    /// Sets [`Config::share_min`], bytes, for messages that are received or sent from now on.
    pub const fn set_share_min(&mut self, bytes: u64) {
        self.config.share_min = bytes;
    }

    /// Current [`Config::share_min`], bytes.
    #[must_use]
    pub const fn share_min(&self) -> u64 {
        self.config.share_min
    }

    /// Whether a message that was not taken may be taken now; resets the flag.
    pub const fn take_freed(&mut self) -> bool {
        core::mem::replace(&mut self.freed, false)
    }

    /// Whether nothing is to be done, reported or retried: a cheap test, for after every message.
    #[inline]
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        !(self.has_backlog() || self.freed || self.ops.lanes.has_news())
    }

    /// Whether a task waits, or peers still write to our memory: [`Exchange::resume`] tries again.
    #[inline]
    #[must_use]
    pub fn has_backlog(&self) -> bool {
        !self.peers.out.is_empty() || !self.hiding.is_empty()
    }

    /// Queues a message without payload.
    pub(crate) fn say<const WORDS: usize>(&mut self, to: u32, kind: Kind, words: [u64; WORDS]) {
        self.peers.push(to, Waiting::say(kind, words));
    }

    /// Tries again what found no room, and receives that could not end.
    pub fn resume(&mut self) {
        self.peers.out.retry();
        self.end_hidden();
    }

    /// Reports that one message no longer reads its lent memory: a send's, a put's, a region's.
    pub fn released(&mut self, op: OpId) {
        if self.region_released(op) {
            return;
        }
        if let Some(send) = self.ops.send(op) {
            send.lent = send.lent.saturating_sub(1);
            self.end_send(op);
        } else if let Some(remote) = self.ops.remote(op) {
            remote.lent = remote.lent.saturating_sub(1);
            self.end_answered(op);
        }
    }

    /// Counts messages in flight that read a send's memory.
    pub(crate) fn note_lent(&mut self, op: OpId, lent: u32) {
        if let Some(send) = self.ops.send(op) {
            send.lent += lent;
        }
    }
}
