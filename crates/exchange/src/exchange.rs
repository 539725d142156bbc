//! The state, and what waits for room.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use portolan_matching::Matcher;

use crate::credit::{IncastDetector, PUSHED_MIN, Peers, Room};
use crate::host::{Host, Refusal, Sent, Sink, Source};
use crate::inline::InlineSlot;
use crate::kind::Kind;
use crate::message::{Dest, Message, Part};
use crate::onesided::send_control;
use crate::ops::{Completion, Count, CounterId, Memory, OpId, Ops, QueueId};
use crate::pull::Pulls;
use crate::regions::Regions;
use crate::remote::TargetState;
use crate::serve::{Arriving, Served};
use crate::share::SHARE_MIN;
use crate::slab::Slab;

/// Settings of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// This process's rank.
    pub rank: u32,
    /// Ranks of the job.
    pub size: u32,
    /// Keys the hash of tags, and what tells regions apart that have the same key
    /// one after another: random, unknown to peers.
    pub secret: [u64; 2],
    /// Pushed bytes that are kept until a receive asks for them, in all. Each
    /// sender has [`PUSHED_MIN`] of its own, whatever this says. Default 4 MiB.
    pub pushed_bytes: u64,
    /// What one sender may have of it, the pushed buffer. `None`: what one message
    /// pushes at most, as [`Host::push`] says of that sender; all that sent the last
    /// long messages by ways with queues share that. Default `None`.
    pub pushed_share: Option<u64>,
    /// Offers of one sender that are kept. Default 65,536.
    pub offers_max: u32,
    /// Bytes that are asked for and have not come, of all senders together; of
    /// each only the first half is counted. At least 2. Default 512 KiB.
    pub pull_window: u64,
    /// Bytes that one request asks for. Default 128 KiB.
    pub pull_chunk: u64,
    /// Where sender and receiver can reach into each other's memory and the
    /// sender waits: both copy if so many bytes are missing, 128 at least.
    /// Default [`SHARE_MIN`].
    pub share_min: u64,
    /// Regions that may be registered at once. Default 65,536.
    pub regions_max: u32,
    /// One-sided accesses of one rank to this one's memory that may be under
    /// way: puts that arrive in parts, answers that have not left. At least
    /// 1. Default 1,024.
    pub accesses_max: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rank: 0,
            size: 1,
            secret: [0; 2],
            pushed_bytes: 4 << 20,
            pushed_share: None,
            offers_max: 1 << 16,
            pull_window: 512 << 10,
            pull_chunk: 128 << 10,
            share_min: SHARE_MIN,
            regions_max: 1 << 16,
            accesses_max: 1 << 10,
        }
    }
}

impl Config {
    /// What each sender may have kept here, if nothing else limits it.
    const fn part(&self) -> u64 {
        let others = if self.size > 2 { self.size - 1 } else { 1 };
        self.pushed_bytes / others as u64
    }
}

/// What an exchange holds at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Statistics {
    /// Operations that have not ended.
    pub operations: usize,
    /// Messages that no receive has met, or whose pushes are still coming.
    pub messages: usize,
    /// Bytes of theirs that are charged to their senders.
    pub pushed_bytes: u64,
    /// Payloads that have arrived in part.
    pub parts: usize,
    /// Second pushes that have not begun to arrive.
    pub second_pushes: usize,
    /// Bytes that were asked for and have not arrived, but for those that their
    /// sender writes itself.
    pub pulled_bytes: u64,
    /// Ranks for which something waits for room to be sent.
    pub backlogs: usize,
    /// Ranks towards which one-sided operations have not ended, or were not
    /// flushed.
    pub unflushed: usize,
    /// Regions that are registered, or are still in use.
    pub regions: usize,
    /// Accesses to them that are under way.
    pub accesses: u64,
}

/// Words of a message without payload, at most.
const SAID_MAX: usize = 5;

/// What was to be sent and found no room.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiting {
    /// A send's first message.
    Start(OpId),
    /// Its second push.
    Second(OpId),
    /// A message without payload.
    Say(Kind, [u64; SAID_MAX]),
    /// What was asked for of an offered message, for this receive: one of each.
    Answer { op: OpId, receive: u64 },
    /// The message of a one-sided operation other than a get.
    Remote(OpId),
    /// A request of a get.
    Ask { op: OpId, at: u64, bytes: u64 },
    /// The answer to one.
    Served(u64),
}

/// In order, by priority: requests, replies.
#[derive(Debug, Default)]
pub(crate) struct Backlog([VecDeque<Waiting>; 2]);

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
    /// Second pushes that have not begun to arrive: where they go, from where on, how
    /// many bytes.
    pub(crate) second_pushes: BTreeMap<(u32, u64), (Dest, u64, u64)>,
    pub(crate) pulls: Pulls,
    pub(crate) regions: Regions<K>,
    /// Others' puts that arrive in parts, and answers to their gets.
    pub(crate) puts: Slab<Arriving>,
    pub(crate) served: Slab<Served>,
    /// Ranks towards which one-sided operations are under way.
    pub(crate) targets: BTreeMap<u32, TargetState>,
    /// An access was not taken up.
    pub(crate) held_up: bool,
    backlogs: BTreeMap<u32, Backlog>,
    /// Vectors for messages that are kept, to be used again.
    pub(crate) spare: Vec<Vec<u8>>,
    /// Something that was not taken may be taken now.
    pub(crate) freed: bool,
    /// Receives that end once nobody writes to their memory any more.
    pub(crate) hiding: Vec<OpId>,
    /// Ranges of receives and gets that were asked for, and that are to be made
    /// ready once the requests have left.
    pub(crate) unready: VecDeque<(OpId, u64, u64)>,
}

impl<S: Source, K: Sink> Exchange<S, K> {
    /// Nothing is under way.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            matcher: Matcher::new(config.secret),
            inline: None,
            ops: Ops::new(),
            messages: Slab::new(),
            parts: Slab::new(),
            peers: Peers::new(config.size),
            incast: IncastDetector::new(),
            second_pushes: BTreeMap::new(),
            pulls: Pulls::new(config.pull_window.max(2)),
            regions: Regions::new(config.regions_max, config.secret[0] ^ config.secret[1]),
            puts: Slab::new(),
            served: Slab::new(),
            targets: BTreeMap::new(),
            held_up: false,
            backlogs: BTreeMap::new(),
            spare: Vec::new(),
            freed: false,
            hiding: Vec::new(),
            unready: VecDeque::new(),
            part: config.part(),
            config,
        }
    }

    /// Whether [`Exchange::make_ready`] has something to do.
    #[inline]
    #[must_use]
    pub fn has_unready(&self) -> bool {
        !self.unready.is_empty()
    }

    /// Requests have left: makes the memory ready that one of them is about
    /// (address translation overhead masking), while its bytes are on their way.
    /// One at a time, since others' bytes may come meanwhile.
    pub fn make_ready(&mut self, host: &mut impl Host<Source = S, Sink = K>) {
        while let Some((id, at, bytes)) = self.unready.pop_front() {
            let here = (self.ops.meeting(id)).is_some_and(|it| it.came >= at + bytes);
            // What is here, or has ended, needs nothing.
            let sink = match self.ops.receive(id) {
                Some(_) if here => None,
                Some(receive) => receive.sink.as_mut(),
                None => self.ops.remote(id).and_then(|remote| remote.sink.as_mut()),
            };
            if let Some(sink) = sink {
                return host.prepare(sink, at, bytes);
            }
        }
    }

    /// This process's rank.
    #[must_use]
    pub const fn rank(&self) -> u32 {
        self.config.rank
    }

    /// Whether an operation has ended; `None`: there is none of that number,
    /// or its end was taken.
    #[inline]
    #[must_use]
    pub fn is_done(&self, op: OpId) -> Option<bool> {
        self.ops.is_done(op)
    }

    /// How an operation ended, and its memory; `None` while it has not.
    pub fn take(&mut self, op: OpId) -> Option<(Completion, Option<Memory<S, K>>)> {
        self.ops.take(op)
    }

    /// The same, without the memory: of lent memory there is nothing to give
    /// back.
    #[inline]
    pub fn finish(&mut self, op: OpId) -> Option<Completion> {
        self.ops.finish(op)
    }

    /// What there is at this moment.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics {
            operations: self.ops.live() + usize::from(self.stands(|_| true)),
            messages: self.messages.len(),
            pushed_bytes: self.peers.met().map(|(_, peer)| peer.kept()).sum(),
            parts: self.parts.len(),
            second_pushes: self.second_pushes.len(),
            pulled_bytes: self.pulls.outstanding(),
            backlogs: self.backlogs.len(),
            unflushed: self.targets.len(),
            regions: self.regions.len(),
            accesses: self.regions.uses(),
        }
    }

    /// What a sender may have kept here.
    pub(crate) fn room_of(&self, host: &impl Host<Source = S, Sink = K>, from: u32) -> Room {
        let room = match self.config.pushed_share {
            Some(bytes) => Room::of(bytes),
            None => {
                let most = host.push(from).most();
                let senders = self.incast.senders();
                if senders > 1 && host.has_queues(from) {
                    // Beyond that they would overflow the queue before us; what they
                    // do not push is pulled, in turns.
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

    /// Changes what one sender may have kept here, bytes, as
    /// [`Config::pushed_share`]; at least [`PUSHED_MIN`]. What was granted before
    /// stays granted until it is used.
    pub fn set_pushed_share(
        &mut self,
        host: &mut impl Host<Source = S, Sink = K>,
        bytes: Option<u64>,
    ) {
        self.config.pushed_share = bytes;
        self.tell_room(host);
    }

    /// Tells all who may push more than they know. To be called when what
    /// [`Host::push`] says has changed.
    pub fn tell_room(&mut self, host: &mut impl Host<Source = S, Sink = K>) {
        let me = self.config.rank;
        let met: Vec<u32> = (self.peers.met())
            .filter(|(rank, peer)| *rank != me && !peer.dead)
            .map(|(rank, _)| rank)
            .collect();
        let updates: Vec<(u32, u64)> = (met.into_iter())
            .filter_map(|rank| {
                let room = self.room_of(host, rank);
                Some((rank, self.peers.get(rank)?.limit_update(room)?))
            })
            .collect();
        for (rank, limit) in updates {
            self.say(host, rank, Kind::Credit, [limit]);
        }
    }

    /// Changes how messages are pulled: bytes asked for that have not come, of
    /// all senders together, and bytes that one request asks for. What was asked
    /// for before stays so.
    pub fn set_pull(
        &mut self,
        host: &mut impl Host<Source = S, Sink = K>,
        window: u64,
        chunk: u64,
    ) {
        (self.config.pull_window, self.config.pull_chunk) = (window, chunk);
        self.pulls.set_window(window.max(2));
        self.ask(host);
    }

    /// How messages are pulled: as [`Exchange::set_pull`] takes it.
    #[must_use]
    pub fn pull_sizes(&self) -> (u64, u64) {
        (self.config.pull_window, self.config.pull_chunk)
    }

    /// Changes from how many missing bytes on both sides copy: of what others
    /// send from now on, and of what this rank sends.
    pub const fn set_share_min(&mut self, bytes: u64) {
        self.config.share_min = bytes;
    }

    /// From how many missing bytes on both sides copy.
    #[must_use]
    pub const fn share_min(&self) -> u64 {
        self.config.share_min
    }

    /// Operations that have ended so far.
    #[must_use]
    pub const fn ends(&self) -> u64 {
        self.ops.ends()
    }

    /// Makes a completion queue. It never drops: it holds at most what was
    /// begun.
    pub fn open_queue(&mut self) -> QueueId {
        self.ops.open_queue()
    }

    /// Whether there is such a queue.
    #[must_use]
    pub fn has_queue(&self, queue: QueueId) -> bool {
        self.ops.has_queue(queue)
    }

    /// Closes a queue: what it holds, and what would still come to it, is
    /// forgotten.
    pub fn close_queue(&mut self, queue: QueueId) {
        self.ops.close_queue(queue);
    }

    /// The oldest completion in a queue, with the operation's memory.
    pub fn next_of(&mut self, queue: QueueId) -> Option<(Completion, Option<Memory<S, K>>)> {
        self.ops.next_of(queue)
    }

    /// Completions in a queue.
    #[must_use]
    pub fn queue_len(&self, queue: QueueId) -> usize {
        self.ops.queue_len(queue)
    }

    /// Makes a counter, at zero.
    pub fn open_counter(&mut self) -> CounterId {
        self.ops.open_counter()
    }

    /// Closes a counter.
    pub fn close_counter(&mut self, counter: CounterId) {
        self.ops.close_counter(counter);
    }

    /// What a counter has counted; `None`: there is no such counter.
    #[must_use]
    pub fn count(&self, counter: CounterId) -> Option<Count> {
        self.ops.count(counter)
    }

    /// Whether something was not taken that may be taken now; asked once.
    pub const fn take_freed(&mut self) -> bool {
        core::mem::replace(&mut self.freed, false)
    }

    /// Whether something waits for room to be sent, or for others to be done
    /// with memory of ours: [`Exchange::resume`] tries again.
    #[inline]
    #[must_use]
    pub fn has_backlog(&self) -> bool {
        !self.backlogs.is_empty() || !self.hiding.is_empty()
    }

    pub(crate) fn waits_for(&self, to: u32, kind: Kind) -> bool {
        let backlog = self.backlogs.get(&to);
        backlog.is_some_and(|b| !b.0[usize::from(kind.is_reply())].is_empty())
    }

    /// Replies to a rank that wait for room.
    pub(crate) fn replies_waiting(&self, to: u32) -> usize {
        self.backlogs
            .get(&to)
            .map_or(0, |backlog| backlog.0[1].len())
    }

    pub(crate) fn put_off(&mut self, to: u32, what: Waiting) {
        let queues = &mut self.backlogs.entry(to).or_default().0;
        match what {
            Waiting::Say(..) | Waiting::Answer { .. } | Waiting::Served(_) => {
                queues[1].push_back(what);
            }
            Waiting::Start(_) | Waiting::Remote(_) | Waiting::Ask { .. } => {
                queues[0].push_back(what);
            }
            // Before the next offer: where the receiver takes no more of
            // those, this may be what it lacks to end one.
            Waiting::Second(_) => queues[0].push_front(what),
        }
    }

    pub(crate) fn drop_backlog(&mut self, to: u32) {
        self.backlogs.remove(&to);
    }

    /// Says something without payload, now or when there is room.
    pub(crate) fn say<const WORDS: usize>(
        &mut self,
        host: &mut impl Host<Source = S, Sink = K>,
        to: u32,
        kind: Kind,
        words: [u64; WORDS],
    ) {
        let mut args = [0; SAID_MAX];
        args[..WORDS].copy_from_slice(&words);
        if self.waits_for(to, kind) || send_control(host, to, kind, &args) == Err(Refusal::NoRoom) {
            self.put_off(to, Waiting::Say(kind, args));
        }
    }

    /// Tries again what found no room, and what could not end. Gives how much
    /// did.
    pub fn resume(&mut self, host: &mut impl Host<Source = S, Sink = K>) -> usize {
        let mut sent = self.end_hidden(host);
        let ranks: Vec<u32> = self.backlogs.keys().copied().collect();
        for to in ranks {
            // Replies first.
            for reply in [1, 0] {
                while let Some(next) =
                    (self.backlogs.get_mut(&to)).and_then(|backlog| backlog.0[reply].pop_front())
                {
                    if self.try_again(host, to, next) == Err(Refusal::NoRoom) {
                        let backlog = self.backlogs.entry(to).or_default();
                        backlog.0[reply].push_front(next);
                        break;
                    }
                    sent += 1;
                    if reply == 1 {
                        self.hold_no_more();
                    }
                }
            }
            let backlog = self.backlogs.get(&to);
            if backlog.is_some_and(|b| b.0.iter().all(VecDeque::is_empty)) {
                self.backlogs.remove(&to);
            }
        }
        sent
    }

    fn try_again(
        &mut self,
        host: &mut impl Host<Source = S, Sink = K>,
        to: u32,
        what: Waiting,
    ) -> Result<(), Refusal> {
        match what {
            Waiting::Start(op) => self.start(host, op),
            Waiting::Second(op) => self.send_second(host, op),
            Waiting::Say(kind, args) => send_control(host, to, kind, &args),
            Waiting::Answer { op, receive } => self.answer_due(host, op, receive),
            Waiting::Remote(op) => self.send_remote(host, op),
            Waiting::Ask { op, at, bytes } => self.send_ask(host, op, at, bytes),
            Waiting::Served(number) => self.send_served(host, number),
        }
    }

    /// The caller is done with reading lent memory for one message: a send's, a
    /// put's, a region's.
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

    /// Notes how a message with a send's bytes has left.
    pub(crate) fn note_lent(&mut self, op: OpId, sent: Sent) {
        if sent == Sent::Lent
            && let Some(send) = self.ops.send(op)
        {
            send.lent += 1;
        }
    }
}
