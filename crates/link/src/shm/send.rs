//! An endpoint's side of the segment: sending.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, compiler_fence, fence};

use portolan_ring::{Corrupt, Fence, InboxProducer, Position, Producer, ReserveError, SleepWord};
use portolan_sys::shared_doorbell::Ringer;
use portolan_wire::Priority;

use super::port::{ShmPort, extend, kind};
use super::segment::{Map, PeerState, STOPS, control};

/// How much a lane must have carried in the inbox before it asks for a ring:
/// one for each frame, and one more for each line of it.
const HEAT: u32 = 16;

/// The most by which that doubles while the pool has no ring.
const HEAT_MAX: u32 = 1 << 14;

/// Why nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShmError {
    /// No room now: the peer must read first. Make progress and try again.
    #[error("{}", ReserveError::Full)]
    Full,
    /// The frame is longer than this many bytes.
    #[error("a frame here holds {0} bytes at most")]
    TooBig(usize),
    /// The peer has closed or is dead; final.
    #[error(fmt = gone)]
    Gone(PeerState),
    /// The host has no endpoint of that index.
    #[error("this host has no endpoint of that index")]
    NoPeer,
    /// The peer, or another process, has scribbled over the ring; final.
    #[error("{Corrupt}")]
    Corrupt,
}

fn gone(state: &PeerState, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match state {
        PeerState::Closed => f.write_str("the peer has closed its endpoint"),
        PeerState::Corrupt => write!(f, "{Corrupt}"),
        _ => f.write_str("the peer is dead"),
    }
}

/// Where a lane's frames go.
#[derive(Debug)]
enum LaneRoute {
    /// The inbox of all.
    Inbox,
    /// A ring of our own.
    Ring(u32, Producer<'static>),
    /// The inbox again, once the peer has read that we leave the ring.
    Leaving(u32, Position),
}

/// To one peer at one priority.
#[derive(Debug)]
pub(super) struct Lane {
    way: LaneRoute,
    inbox: InboxProducer<'static>,
    /// Counts down to the wish for a ring.
    heat: u32,
    /// What it starts from.
    heat_start: u32,
    /// Where the ring stood at the last look for quiet ones.
    quiet_at: Option<Position>,
}

#[derive(Debug)]
struct Peer {
    ringer: Ringer,
    state: &'static AtomicU64,
    sleep: SleepWord<'static>,
    lanes: [Lane; 2],
    room_wanted: &'static AtomicU64,
    /// Which flows of ours it has stopped.
    stops: &'static AtomicU64,
    /// Which flows of its we have stopped, as [`Map::stops`] says it.
    stopped: u64,
}

/// A send that found no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wait {
    to: u16,
    priority: Priority,
    /// In which flow; none can stop what goes in none.
    flow: Option<u16>,
    bytes: usize,
}

impl Peer {
    /// Whether it has stopped a flow of ours.
    #[inline(always)]
    fn has_stopped(&self, priority: Priority, flow: Option<u16>) -> bool {
        flow.is_some_and(|flow| self.stops.load(Acquire) & stop_bit(priority, flow) != 0)
    }
}

/// In that word: the sender is left for good.
const LEFT: u64 = 1 << 63;

/// In that word: the sender is to reach for no region itself.
const BARRED: u64 = 1 << 31;

/// Of a flow in the word of its sender; none where there is no such flow.
const fn stop_bit(priority: Priority, flow: u16) -> u64 {
    (flow < 31) as u64 * (1 << (flow % 32 + 32 * priority.index() as u16))
}

/// The sending half of a port.
#[derive(Debug)]
pub(super) struct Outgoing {
    index: u16,
    peers: Vec<Option<Peer>>,
    /// Sends that found no room since the last sleep.
    waits: Vec<Wait>,
    /// With whom the memory that is shared was found to make no sense.
    pub(super) corrupt: Vec<u16>,
}

/// Room for a frame in shared memory. Dropping it sends nothing.
#[derive(Debug)]
pub struct Slot<'p> {
    start: NonNull<u8>,
    bytes: usize,
    /// What was begun here lies in it.
    lane: &'p mut Lane,
    sleep: SleepWord<'static>,
    ringer: &'p Ringer,
}

impl Slot<'_> {
    /// Where the frame goes, as long as was asked for. Write only: others see
    /// it, and what stood there before is of no meaning. Do not linger: in
    /// ping-pong the peer is reading the very line.
    #[inline(always)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: ring or inbox gave these bytes for a message that is begun
        // and, as the lane is borrowed here, neither finished nor begun anew;
        // until it is finished no well-behaved process touches them.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// Sends the frame, and wakes the peer if it sleeps.
    #[inline(always)]
    pub fn commit(self) {
        let mut slot = ManuallyDrop::new(self);
        match &mut slot.lane.way {
            LaneRoute::Ring(_, ring) => ring.finish(kind::FRAME),
            _ => slot.lane.inbox.finish(kind::FRAME),
        }
        if slot.sleep.must_ring() {
            slot.ringer.ring();
        }
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        // In a ring, what is begun and not finished was never there.
        self.lane.inbox.abandon();
    }
}

impl ShmPort {
    /// Reserves room for a frame of `bytes` to peer `to`: write it through
    /// [`Slot::bytes_mut`], then [`Slot::commit`]. Frames to one peer at one
    /// priority arrive in the order in which they are committed.
    ///
    /// # Errors
    /// [`ShmError`]; nothing has changed.
    #[inline(always)]
    pub fn reserve(
        &mut self,
        to: u16,
        priority: Priority,
        bytes: usize,
    ) -> Result<Slot<'_>, ShmError> {
        self.out.reserve(&self.map, to, priority, None, bytes)
    }
}

impl Outgoing {
    pub fn new(map: &Map, index: u16, ringers: Vec<Ringer>) -> Self {
        let mut out = Self {
            index,
            peers: Vec::new(),
            waits: Vec::new(),
            corrupt: Vec::new(),
        };
        for (to, ringer) in (0..).zip(ringers) {
            out.add(map, to, ringer);
        }
        out
    }

    /// An endpoint has this number, and its area is mapped.
    pub fn add(&mut self, map: &Map, to: u16, ringer: Ringer) {
        let us = map.area(to).us;
        let lane = |priority| Lane {
            way: LaneRoute::Inbox,
            inbox: InboxProducer::new(extend(map.inbox(to, priority)), map.layout.inbox, us),
            heat: HEAT,
            heat_start: HEAT,
            quiet_at: None,
        };
        let line = extend(map.control(to));
        let peer = Peer {
            ringer,
            state: line.word(control::STATE),
            sleep: SleepWord::new(line, control::SLEEP, map.layout.fence),
            lanes: [lane(0), lane(1)],
            room_wanted: line.word(control::ROOM_WANTED),
            stops: extend(map.stops(to, us)),
            stopped: 0,
        };
        let peers = self.peers.len().max(usize::from(to) + 1);
        self.peers.resize_with(peers, || None);
        self.peers[usize::from(to)] = Some(peer);
    }

    /// Nothing is sent to an endpoint any more, and nobody has its number.
    pub fn remove(&mut self, map: &Map, to: u16) {
        self.forget_stops(map, to);
        self.waits.retain(|wait| wait.to != to);
        self.corrupt.retain(|other| *other != to);
        self.peers[usize::from(to)] = None;
    }

    fn peer(&mut self, index: u16) -> Option<&mut Peer> {
        self.peers.get_mut(usize::from(index))?.as_mut()
    }

    pub fn index(&self) -> u16 {
        self.index
    }

    /// As [`Outlet::send_short`](super::Outlet::send_short).
    #[inline(always)]
    pub fn send_short<const N: usize>(
        &mut self,
        to: u16,
        priority: Priority,
        head: &[u8; N],
        rest: &[u8],
    ) -> bool {
        let Some(Some(peer)) = self.peers.get_mut(usize::from(to)) else {
            return false;
        };
        let LaneRoute::Ring(_, ring) = &mut peer.lanes[priority.index()].way else {
            return false;
        };
        let sent =
            !PeerState::is_word_special(peer.state.load(Acquire)) && ring.push_short(head, rest);
        if sent && peer.sleep.must_ring() {
            peer.ringer.ring();
        }
        sent
    }

    #[inline(always)]
    pub fn reserve(
        &mut self,
        map: &Map,
        to: u16,
        priority: Priority,
        flow: Option<u16>,
        bytes: usize,
    ) -> Result<Slot<'_>, ShmError> {
        let Some(Some(peer)) = self.peers.get_mut(usize::from(to)) else {
            return Err(ShmError::NoPeer);
        };
        if bytes > map.layout.frame_bytes_max {
            return Err(ShmError::TooBig(map.layout.frame_bytes_max));
        }
        let state = peer.state.load(Acquire);
        let wait = Wait {
            to,
            priority,
            flow,
            bytes,
        };
        if PeerState::is_word_special(state) {
            if state != STOPS {
                return Err(ShmError::Gone(PeerState::of(state)));
            }
            if peer.has_stopped(priority, flow) {
                return Err(note_wait(&mut self.waits, wait));
            }
        }
        let Peer {
            lanes,
            ringer,
            sleep,
            ..
        } = peer;
        let (lane, sleep) = (&mut lanes[priority.index()], *sleep);
        if !matches!(lane.way, LaneRoute::Ring(..)) {
            lane.choose_way(map, to, priority, bytes);
        }
        let begun = match &mut lane.way {
            LaneRoute::Ring(_, ring) => ring.begin(bytes),
            LaneRoute::Inbox => lane.inbox.begin(bytes),
            LaneRoute::Leaving(..) => Err(ReserveError::Full),
        };
        let refusal = match begun {
            Ok(start) => {
                return Ok(Slot {
                    start,
                    bytes,
                    lane,
                    sleep,
                    ringer,
                });
            }
            Err(e) => e,
        };
        Err(refused(
            (&mut self.waits, &mut self.corrupt),
            refusal,
            wait,
            map,
        ))
    }

    /// As [`Outlet::set_stopped`](super::Outlet::set_stopped).
    pub fn set_stopped(
        &mut self,
        map: &Map,
        peer: u16,
        priority: Priority,
        flow: u16,
        stopped: bool,
    ) {
        let Some(it) = self.peer(peer) else {
            return;
        };
        let bit = stop_bit(priority, flow);
        it.stopped = if stopped {
            it.stopped | bit
        } else {
            it.stopped & !bit
        };
        self.publish_stops(map, peer);
        if !stopped {
            self.tell_of_room(map);
        }
    }

    /// As [`Outlet::set_barred`](super::Outlet::set_barred).
    pub fn set_barred(&mut self, map: &Map, peer: u16, barred: bool) {
        if let Some(it) = self.peer(peer) {
            it.stopped = it.stopped & !BARRED | if barred { BARRED } else { 0 };
            self.publish_stops(map, peer);
        }
    }

    /// As [`Outlet::is_barred`](super::Outlet::is_barred).
    pub fn is_barred(&self, peer: u16) -> bool {
        let it = self.peers.get(usize::from(peer)).and_then(Option::as_ref);
        it.is_some_and(|it| it.stops.load(Acquire) & BARRED != 0)
    }

    /// Nothing of ours is a peer's any more that was lent to it.
    pub fn leave(&mut self, map: &Map, peer: u16) {
        if let Some(it) = self.peer(peer) {
            it.stopped = LEFT;
            self.publish_stops(map, peer);
            // What was lent changes behind this.
            fence(SeqCst);
        }
    }

    /// Whether a peer has left us.
    pub fn has_left(&self, peer: u16) -> bool {
        // Behind what was read of it.
        fence(SeqCst);
        let it = self.peers.get(usize::from(peer)).and_then(Option::as_ref);
        it.is_none_or(|it| it.stops.load(Acquire) & LEFT != 0)
    }

    /// Stops no flow of a peer's any more: it is gone.
    pub fn forget_stops(&mut self, map: &Map, peer: u16) {
        if let Some(it) = self.peer(peer) {
            it.stopped = 0;
            self.publish_stops(map, peer);
        }
    }

    fn publish_stops(&mut self, map: &Map, peer: u16) {
        let stopped = self.peer(peer).map_or(0, |it| it.stopped);
        map.stops(self.index, peer).store(stopped, Release);
        let stops = |peer: &Peer| peer.stopped & !BARRED != 0;
        let any = self.peers.iter().flatten().any(stops);
        // Behind the word: who sees this sees that one too.
        map.set_stopping(self.index, any);
    }

    /// Rings those who sleep for want of room towards us. After making some, looking whether
    /// anybody wants it takes the same care as after sending.
    pub fn tell_of_room(&self, map: &Map) {
        match map.layout.fence {
            Fence::Local => fence(SeqCst),
            Fence::Remote => compiler_fence(SeqCst),
        }
        let wanted = map.control(self.index).word(control::ROOM_WANTED);
        if wanted.load(Relaxed) != 0 && wanted.swap(0, AcqRel) != 0 {
            self.ring_those_without_room();
        }
    }

    /// Whether a send has met a full ring since the last sleep.
    pub fn waits_for_room(&self) -> bool {
        !self.waits.is_empty()
    }

    /// Asks those peers to ring when they have made room.
    pub fn want_room(&self) {
        for wait in &self.waits {
            // Behind the sleep word: who sees this sees that one too.
            if let Some(peer) = &self.peers[usize::from(wait.to)] {
                peer.room_wanted.store(1, Release);
            }
        }
    }

    /// Whether one of those sends would find room now, or never.
    pub fn has_room(&mut self, map: &Map) -> bool {
        let Self { peers, waits, .. } = self;
        waits.iter().any(|wait| {
            let Wait {
                to,
                priority,
                bytes,
                ..
            } = *wait;
            let Some(peer) = &mut peers[usize::from(to)] else {
                return true;
            };
            if PeerState::of(peer.state.load(Acquire)).is_gone() {
                return true;
            }
            if peer.has_stopped(priority, wait.flow) {
                return false;
            }
            let lane = &mut peer.lanes[priority.index()];
            match &mut lane.way {
                LaneRoute::Ring(_, ring) => !matches!(ring.reserve(bytes), Err(ReserveError::Full)),
                LaneRoute::Inbox => lane.inbox.has_room(bytes),
                LaneRoute::Leaving(ring, _) => {
                    map.ring_owner(to, *ring).load(Acquire) != map.our_ring_word(to, priority)
                }
            }
        })
    }

    pub fn forget_waits(&mut self) {
        self.waits.clear();
    }

    /// Wakes every peer that sleeps for room.
    pub fn ring_those_without_room(&self) {
        for peer in self.peers.iter().flatten() {
            if peer.sleep.must_ring_for_room() {
                peer.ringer.ring();
            }
        }
    }

    /// Wakes every peer that sleeps.
    pub fn ring_all(&self) {
        for peer in self.peers.iter().flatten() {
            if peer.sleep.must_ring() {
                peer.ringer.ring();
            }
        }
    }

    /// Begins to leave each ring in which nothing was sent since last time.
    pub fn leave_quiet_rings(&mut self) {
        for peer in self.peers.iter_mut().flatten() {
            for lane in &mut peer.lanes {
                if lane.leave_if_quiet() && peer.sleep.must_ring() {
                    peer.ringer.ring();
                }
            }
        }
    }

    /// Takes back our rings to a peer that is gone.
    pub fn settle(&mut self, map: &Map, to: u16) {
        let Some(peer) = self.peer(to) else { return };
        for priority in Priority::BY_URGENCY {
            let held = map.our_ring_word(to, priority);
            let lane = &mut peer.lanes[priority.index()];
            let (ring, position) = match &lane.way {
                LaneRoute::Inbox => continue,
                LaneRoute::Ring(ring, producer) => (*ring, producer.position()),
                LaneRoute::Leaving(ring, position) => (*ring, *position),
            };
            let owner = map.ring_owner(to, ring);
            if owner.load(Acquire) == held {
                // The next pair goes on where we stopped.
                map.ring(to, ring)[0]
                    .word(0)
                    .store(position.pack(), Relaxed);
                let _ = owner.compare_exchange(held, 0, AcqRel, Relaxed);
            }
            lane.way = LaneRoute::Inbox;
        }
    }
}

#[cold]
fn note_wait(waits: &mut Vec<Wait>, wait: Wait) -> ShmError {
    if !waits.contains(&wait) {
        waits.push(wait);
    }
    ShmError::Full
}

#[cold]
fn refused(
    (waits, corrupt): (&mut Vec<Wait>, &mut Vec<u16>),
    e: ReserveError,
    wait: Wait,
    map: &Map,
) -> ShmError {
    match e {
        ReserveError::Full => note_wait(waits, wait),
        ReserveError::TooBig => ShmError::TooBig(map.layout.frame_bytes_max),
        ReserveError::Corrupt => {
            if !corrupt.contains(&wait.to) {
                corrupt.push(wait.to);
            }
            ShmError::Corrupt
        }
    }
}

impl Lane {
    /// Leaves the inbox for a ring when much has been sent, and takes it up
    /// again when the peer has seen us leave.
    #[cold]
    fn choose_way(&mut self, map: &Map, to: u16, priority: Priority, bytes: usize) {
        let held = map.our_ring_word(to, priority);
        if let LaneRoute::Leaving(ring, _) = self.way {
            if map.ring_owner(to, ring).load(Acquire) == held {
                return;
            }
            self.way = LaneRoute::Inbox;
            self.heat = self.heat_start;
        }
        let lines = (bytes / portolan_ring::LINE_BYTES) as u32;
        self.heat = self.heat.saturating_sub(1 + lines);
        if self.heat > 0 {
            return;
        }
        let ring = self.claim_ring(map, held, to);
        self.heat_start = match ring {
            Some(_) => HEAT,
            None => (2 * self.heat_start).min(HEAT_MAX),
        };
        self.heat = self.heat_start;
        if let Some((ring, producer)) = ring {
            self.way = LaneRoute::Ring(ring, producer);
            self.quiet_at = None;
        }
    }

    /// Takes a free ring and announces it, behind our messages in the inbox.
    fn claim_ring(&mut self, map: &Map, held: u64, to: u16) -> Option<(u32, Producer<'static>)> {
        let rings = map.layout.rings;
        let area = map.area(to);
        // Pairs begin at different rings, so that they rarely meet.
        let pairs = u32::from(area.us) * u32::from(map.layout.areas);
        let first = (pairs + u32::from(area.itself)) * 2;
        let ring = (0..rings)
            .map(|i| (first.wrapping_add(i)) % rings)
            .find(|&ring| {
                let owner = map.ring_owner(to, ring);
                owner.load(Relaxed) == 0 && owner.compare_exchange(0, held, AcqRel, Relaxed).is_ok()
            })?;
        let lines = extend(map.ring(to, ring));
        let start = Position::unpack(lines[0].word(0).load(Acquire));
        map.layout.ring.clear(lines, start);
        let Ok(mut slot) = self.inbox.reserve(16) else {
            map.ring_owner(to, ring).store(0, Release);
            return None;
        };
        slot.set_word(0, u64::from(ring));
        slot.set_word(1, start.pack());
        slot.commit(kind::SWITCH);
        Some((ring, Producer::new(lines, map.layout.ring, start)))
    }

    /// True when the peer has been told that we leave.
    fn leave_if_quiet(&mut self) -> bool {
        let LaneRoute::Ring(ring, producer) = &mut self.way else {
            return false;
        };
        let position = producer.position();
        if self.quiet_at != Some(position) {
            self.quiet_at = Some(position);
            return false;
        }
        let Ok(slot) = producer.reserve(0) else {
            return false;
        };
        slot.commit(kind::LEAVE);
        self.way = LaneRoute::Leaving(*ring, producer.position());
        true
    }
}
