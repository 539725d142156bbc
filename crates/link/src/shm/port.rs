//! An endpoint's side of the segment: receiving, sleeping, peers' fates.

mod inlet;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use std::sync::atomic::fence;

use portolan_ring::{Corrupt, Fence, InboxConsumer, RingMessage, Short, SleepWord, Slumber};
use portolan_sys::barrier;
use portolan_sys::process::own_pid;
use portolan_sys::shared_doorbell::{Ringer, SharedDoorbell};
use portolan_wire::Priority;

use super::cma::Cma;
use super::onesided::OneSided;
use super::outlet::Outlet;
use super::segment::{Map, PeerState, SegmentConfig, SegmentError, control};
use super::send::Outgoing;
use inlet::{Incoming, Inlet};

/// Message kinds within ring and inbox.
pub(super) mod kind {
    pub const FRAME: u16 = 0;
    /// In an inbox: the sender goes on in the ring that is named.
    pub const SWITCH: u16 = 1;
    /// In a ring: the sender goes on in the inbox.
    pub const LEAVE: u16 = 2;
}

/// Bytes of a long frame that [`Frame::head`] shows: enough for every header
/// with all its argument words.
pub const HEAD_BYTES_MAX: usize = 256;

/// Memory that a peer has scribbled over. What came from it so far was
/// delivered; nothing more of it will be where a peer is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} of this host: {Corrupt}",
    .from.map_or("a process".to_owned(), |index| format!("endpoint {index}"))
)]
pub struct PollError {
    /// Whose ring it was; `None` for an inbox, which all others write.
    pub from: Option<u16>,
}

/// Whether an endpoint may now sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Slumbering {
    /// Yes: whoever sends from now on rings its doorbell.
    Yes,
    /// No: something waits already. Poll, or send again what found no room.
    No,
}

/// A frame that has arrived; valid during the call that shows it.
#[derive(Debug)]
pub struct Frame<'a> {
    message: &'a RingMessage<'static>,
    head: &'a [u8],
}

impl Frame<'_> {
    /// Bytes of the frame.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a length, not a container")]
    pub fn len(&self) -> usize {
        self.message.len()
    }

    /// Its first bytes, copied out of shared memory: all up to 56, else
    /// [`HEAD_BYTES_MAX`] at most.
    #[inline(always)]
    #[must_use]
    pub fn head(&self) -> &[u8] {
        self.head
    }

    /// Copies the bytes from `at` on until `into` is full. Check lengths by
    /// what [`Frame::head`] showed: the memory itself may change meanwhile.
    ///
    /// # Panics
    /// If the range ends beyond the frame.
    #[inline]
    pub fn copy_to(&self, at: usize, into: &mut [u8]) {
        self.message.copy_to(at, into);
    }

    /// As [`Frame::copy_to`], past the caches where the processor can: for
    /// messages that would not stay in them.
    ///
    /// # Panics
    /// As there.
    pub fn copy_beyond(&self, at: usize, into: &mut [u8]) {
        self.message.copy_beyond(at, into);
    }
}

/// A frame that fits a line, copied out of shared memory.
#[derive(Debug)]
pub struct ShortFrame {
    /// The frame.
    pub short: Short,
    /// Index of the sender.
    pub from: u16,
    /// Its priority.
    pub priority: Priority,
}

/// One endpoint of a host's segment. One thread at a time uses it.
#[derive(Debug)]
pub struct ShmPort {
    inlet: Inlet,
    pub(super) out: Outgoing,
    sleep: SleepWord<'static>,
    bell: SharedDoorbell,
    /// Peers whose end has been dealt with, by index.
    settled: Vec<bool>,
    pub(super) cma: Cma,
    onesided: OneSided,
    pub(super) whole: Vec<u8>,
    opened_by: u32,
    // Last: the lines above lie in it.
    pub(super) map: Map,
}

/// Borrows from `map` for as long as the port that holds it lives.
pub(super) fn extend<T: ?Sized>(part: &T) -> &'static T {
    // SAFETY: every caller passes a part of the mapping of the `Map` that the
    // port keeps in its last field, so the part outlives whoever holds the
    // result; no such reference leaves the port's own methods.
    unsafe { &*std::ptr::from_ref(part) }
}

impl ShmPort {
    /// Opens endpoint `index` of the segment behind `segment`, with its share of
    /// the doorbells ([`SharedDoorbells::of`](super::SharedDoorbells::of)). `cma`:
    /// whether copying straight between processes may be tried.
    ///
    /// # Errors
    /// [`SegmentError`].
    pub fn attach(
        segment: OwnedFd,
        index: u16,
        mut doorbells: Vec<OwnedFd>,
        cma: bool,
    ) -> Result<Self, SegmentError> {
        let map = Map::open(segment, index)?;
        let layout = map.layout;
        if index >= layout.endpoints {
            return Err(SegmentError::NoIndex(index));
        }
        let own = doorbells.pop().map(SharedDoorbell::try_from);
        let ringers = doorbells.into_iter().map(Ringer::try_from).collect();
        let (Some(Ok(bell)), Ok(ringers)) = (own, ringers) else {
            return Err(SegmentError::Doorbells(layout.endpoints));
        };
        Self::over(map, index, bell, ringers, cma)
    }

    /// Opens an endpoint outside of a job, in a memory of its own: it is number 0, and meets
    /// others one by one ([`ShmPort::connect`]), of which there are less than `endpoints` at a
    /// time. All on a host say the same. With it comes what others are to connect to.
    ///
    /// # Errors
    /// [`SegmentError`].
    pub fn alone(
        endpoints: u16,
        config: &SegmentConfig,
        cma: bool,
    ) -> Result<(Self, (OwnedFd, Ringer)), SegmentError> {
        let (map, memory) = Map::create(endpoints, config)?;
        let (bell, ringer) = SharedDoorbell::new().map_err(|_| SegmentError::Bell)?;
        let port = Self::over(map, 0, bell, vec![ringer.share()], cma)?;
        Ok((port, (memory, ringer)))
    }

    fn over(
        map: Map,
        index: u16,
        bell: SharedDoorbell,
        ringers: Vec<Ringer>,
        cma: bool,
    ) -> Result<Self, SegmentError> {
        let layout = map.layout;
        if ringers.len() != usize::from(map.numbers()) {
            return Err(SegmentError::Doorbells(map.numbers()));
        }
        if layout.fence == Fence::Remote {
            barrier::register().map_err(|_| SegmentError::Barrier)?;
        }
        let own = extend(map.control(index));
        let (absent, alive) = (PeerState::Absent.word(), PeerState::Alive.word());
        own.word(control::STATE)
            .compare_exchange(absent, alive, AcqRel, Relaxed)
            .map_err(|_| SegmentError::Taken(index))?;
        let inbox = |p| InboxConsumer::new(extend(map.inbox(index, p)), layout.inbox);
        Ok(Self {
            inlet: Inlet {
                index,
                rings: Vec::new(),
                streak: 0,
                cursor: 0,
                inboxes: [inbox(0), inbox(1)],
                head: Box::new([0; HEAD_BYTES_MAX]),
                freed: false,
            },
            out: Outgoing::new(&map, index, ringers),
            bell,
            sleep: SleepWord::new(own, control::SLEEP, layout.fence),
            settled: vec![false; usize::from(map.numbers())],
            cma: Cma::new(&map, index, cma),
            onesided: OneSided::new(&map, index),
            // Whatever length somebody scribbles into a header fits.
            whole: vec![0; usize::from(u16::MAX)],
            opened_by: own_pid(),
            map,
        })
    }

    /// Our index on the host.
    #[must_use]
    pub fn index(&self) -> u16 {
        self.out.index()
    }

    /// How many numbers endpoints of this host have, we among them; some may be nobody's.
    #[must_use]
    pub fn endpoints(&self) -> u16 {
        self.map.numbers()
    }

    /// Maps the memory of another endpoint outside of a job, and gives it the number `index`,
    /// which nobody has. `ringer` wakes it, and it calls us `us`.
    ///
    /// # Errors
    /// [`SegmentError::Foreign`], [`SegmentError::Memory`]; nothing has changed.
    pub fn connect(
        &mut self,
        index: u16,
        (memory, ringer): (OwnedFd, Ringer),
        us: u16,
    ) -> Result<(), SegmentError> {
        if self.map.has(index) || index >= self.map.layout.endpoints {
            return Err(SegmentError::NoIndex(index));
        }
        let area = self.map.area_of(memory, us)?;
        self.map.add(index, area);
        self.out.add(&self.map, index, ringer);
        self.cma.set_process(index, 0);
        let numbers = self.settled.len().max(usize::from(index) + 1);
        self.settled.resize(numbers, false);
        self.settled[usize::from(index)] = false;
        Ok(())
    }

    /// Who is to have the number `index` may write to us from now on, though its memory is not
    /// mapped yet: what it writes stays. Or it does not, and what it has written is nobody's.
    pub fn set_awaited(&mut self, index: u16, awaited: bool) {
        self.map.set_awaited(index, awaited);
    }

    /// Takes the memory of an endpoint out that writes nothing to us any more. False: what it
    /// has written waits to be read; ask again later.
    ///
    /// # Panics
    /// If nobody has this number.
    pub fn disconnect(&mut self, index: u16) -> bool {
        let mut empty = true;
        for inbox in &mut self.inlet.inboxes {
            empty &= inbox.forget(index);
        }
        if empty {
            // Those towards it are its to give back: it may not have read all yet.
            self.inlet.close_rings(index, &self.map);
            self.out.remove(&self.map, index);
            self.map.remove(index);
        }
        empty
    }

    /// Whether an endpoint's memory is mapped under this number.
    #[must_use]
    pub fn has(&self, index: u16) -> bool {
        self.map.has(index)
    }

    /// Below which all numbers are.
    #[must_use]
    pub fn endpoints_max(&self) -> u16 {
        self.map.layout.endpoints
    }

    /// Whether nobody else can write to our memory.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.map.numbers() == 1 && !self.map.is_awaiting()
    }

    /// Longest frame, bytes.
    #[must_use]
    pub fn frame_bytes_max(&self) -> usize {
        self.map.layout.frame_bytes_max
    }

    /// Shows about `max` arrived frames to `take(from, priority, bytes)`.
    /// `false` leaves the frame where it is, for a later call, and with it
    /// what follows from the same peer at the same priority; nothing else is
    /// held up. Gives how many were taken. A frame longer than a line is
    /// copied once on its way: [`ShmPort::poll_frames`] spares that.
    ///
    /// # Errors
    /// [`PollError`], once for each ring that it befell.
    #[inline]
    pub fn poll(
        &mut self,
        max: usize,
        mut take: impl FnMut(u16, Priority, &[u8]) -> bool,
    ) -> Result<usize, PollError> {
        let Self {
            inlet,
            out,
            map,
            whole,
            ..
        } = self;
        let mut take = |from, priority, frame: &Frame<'_>| {
            if frame.len() == frame.head().len() {
                return take(from, priority, frame.head());
            }
            let bytes = &mut whole[..frame.len()];
            frame.copy_to(0, bytes);
            take(from, priority, bytes)
        };
        let took = inlet.poll(max, map, &mut take);
        if inlet.freed {
            inlet.tell_of_room(out, map);
        }
        took
    }

    /// Whether something of this peer's may wait to be polled, though a poll found nothing.
    #[must_use]
    pub fn has_unread(&self, from: u16) -> bool {
        self.inlet.has_unread(from)
    }

    /// As [`ShmPort::poll`], but a long frame shows its head only, and is
    /// copied by [`Frame::copy_to`] to where it belongs.
    ///
    /// # Errors
    /// [`PollError`].
    #[inline]
    pub fn poll_frames(
        &mut self,
        max: usize,
        mut take: impl FnMut(u16, Priority, &Frame<'_>) -> bool,
    ) -> Result<usize, PollError> {
        self.poll_with(max, |_, from, priority, frame| take(from, priority, frame))
    }

    /// As [`ShmPort::poll_frames`], with the port's sending half, so that a
    /// frame can be answered while it is looked at.
    ///
    /// # Errors
    /// [`PollError`].
    #[inline]
    pub fn poll_with(
        &mut self,
        max: usize,
        mut take: impl FnMut(&mut Outlet<'_>, u16, Priority, &Frame<'_>) -> bool,
    ) -> Result<usize, PollError> {
        let Self {
            inlet,
            out,
            map,
            cma,
            onesided,
            ..
        } = self;
        let mut outlet = Outlet {
            out,
            map,
            cma,
            onesided,
        };
        let mut take = |from, priority, frame: &Frame<'_>| take(&mut outlet, from, priority, frame);
        let took = inlet.poll(max, map, &mut take);
        if inlet.freed {
            inlet.tell_of_room(out, map);
        }
        took
    }

    /// The next frame of the ring that had something last, if it fits a
    /// line: the shortest look there is. Then [`ShmPort::advance_short`].
    /// `None` says only that [`ShmPort::poll_with`] is to look, unless the port
    /// [is quiet](ShmPort::is_quiet).
    #[inline(always)]
    #[must_use]
    pub fn peek_short(&self) -> Option<ShortFrame> {
        const { assert!(kind::FRAME == 0, "the tag of what is found here") };
        let ring = self.inlet.rings.first()?;
        let short = ring.consumer.peek_short()?;
        (!ring.corrupt).then_some(ShortFrame {
            short,
            from: ring.from,
            priority: ring.priority,
        })
    }

    /// Goes on behind the frame that [`ShmPort::peek_short`] gave last. Returns how many came
    /// from its ring in a row; the others get a look by [`ShmPort::poll_with`].
    #[inline(always)]
    pub fn advance_short(&mut self) -> u32 {
        let inlet = &mut self.inlet;
        if let Some(ring) = inlet.rings.first_mut()
            && ring.consumer.advance_short()
        {
            inlet.tell_of_room(&self.out, &self.map);
        }
        inlet.streak += 1;
        inlet.streak
    }

    /// Whether nothing waits, as far as one look tells: the usual case while
    /// one peer's answer is awaited.
    #[inline(always)]
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let inlet = &self.inlet;
        match inlet.rings.as_slice() {
            [] => {}
            [ring] if !ring.is_ready() => {}
            _ => return false,
        }
        !inlet.inboxes.iter().any(InboxConsumer::is_ready) && self.out.corrupt.is_empty()
    }

    /// Ends a row of frames from one ring: it has nothing.
    #[inline(always)]
    pub fn end_streak(&mut self) {
        self.inlet.streak = 0;
    }

    /// The sending half alone.
    #[inline(always)]
    pub fn outlet(&mut self) -> Outlet<'_> {
        Outlet {
            out: &mut self.out,
            map: &self.map,
            cma: &mut self.cma,
            onesided: &mut self.onesided,
        }
    }

    /// A peer with whom the memory that is shared was found to make no sense,
    /// by a send that met [`ShmError::Corrupt`](super::ShmError::Corrupt) or
    /// before a sleep; each finding is told once.
    #[inline(always)]
    pub fn take_corrupt(&mut self) -> Option<u16> {
        self.out.corrupt.pop()
    }

    /// Prepares to sleep until the doorbell rings. After
    /// [`Slumbering::Yes`], wait for [`ShmPort`]'s descriptor (`AsFd`) to be
    /// readable; in every case call [`ShmPort::sleep_cancel`] afterwards.
    /// Where a send has met [`ShmError::Full`](super::ShmError::Full) since,
    /// the bell rings for room too.
    pub fn sleep_prepare(&mut self) -> Slumbering {
        let waits = self.out.waits_for_room();
        let slumber = if waits {
            Slumber::ArrivalsAndRoom
        } else {
            Slumber::Arrivals
        };
        self.sleep.prepare(slumber, || {});
        if waits {
            self.out.want_room();
            fence(SeqCst);
        }
        if self.map.layout.fence == Fence::Remote && barrier::everywhere().is_err() {
            // It worked when we attached; without it nobody may sleep.
            return Slumbering::No;
        }
        if self.find_corrupt() || self.is_ready() || (waits && self.out.has_room(&self.map)) {
            Slumbering::No
        } else {
            Slumbering::Yes
        }
    }

    /// Whether a ring will never again have something because of what was
    /// scribbled over it: [`ShmPort::take_corrupt`] tells of it.
    fn find_corrupt(&mut self) -> bool {
        let unsound = |ring: &&mut Incoming| !ring.corrupt && !ring.consumer.is_sound();
        for ring in self.inlet.rings.iter_mut().filter(unsound) {
            ring.corrupt = true;
            self.out.corrupt.push(ring.from);
        }
        !self.out.corrupt.is_empty()
    }

    /// Forgets which flows of a peer were stopped.
    pub fn forget_stops(&mut self, peer: u16) {
        self.out.forget_stops(&self.map, peer);
    }

    /// Says that we are awake, and silences the doorbell.
    pub fn sleep_cancel(&mut self) {
        self.sleep.cancel();
        self.out.forget_waits();
        self.bell.clear();
    }

    /// Whether a poll would find something.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.inlet.inboxes.iter().any(InboxConsumer::is_ready)
            || self.inlet.rings.iter().any(Incoming::is_ready)
    }

    /// Whether a peer sends to us through a ring of its own.
    #[must_use]
    pub fn has_ring(&self, index: u16) -> bool {
        self.inlet.rings.iter().any(|ring| ring.from == index)
    }

    /// Whether peer `index` can be reached.
    ///
    /// # Panics
    /// If the host has no endpoint `index`.
    #[inline]
    #[must_use]
    pub fn peer_state(&self, index: u16) -> PeerState {
        self.map.state(index)
    }

    /// As [`Outlet::has_left`].
    #[must_use]
    pub fn has_left(&self, index: u16) -> bool {
        self.out.has_left(index)
    }

    /// Says that peer `index` is dead, unless it has closed, and wakes all
    /// who sleep, so that they see it.
    ///
    /// # Panics
    /// If the host has no endpoint `index`.
    pub fn mark_dead(&mut self, index: u16) {
        if self.map.has(index) && self.peer_state(index) != PeerState::Closed {
            self.map.set_state(index, PeerState::Dead);
        }
        self.out.ring_all();
    }

    /// Rarely needed work, to be done about once a second: gives back rings
    /// that we have not used since the last call, and what the dead held.
    pub fn tidy(&mut self) {
        self.find_corrupt();
        self.out.leave_quiet_rings();
        for index in 0..self.endpoints() {
            let gone = self.map.has(index) && self.map.state(index).is_gone();
            if gone && !self.settled[usize::from(index)] {
                self.settled[usize::from(index)] = self.settle(index);
            }
        }
    }

    /// Takes back what a peer that is gone holds; false while messages of its
    /// still wait.
    fn settle(&mut self, index: u16) -> bool {
        self.out.settle(&self.map, index);
        let inlet = &mut self.inlet;
        let mut empty = true;
        for i in (0..inlet.rings.len()).rev() {
            if inlet.rings[i].from != index {
                continue;
            }
            if inlet.rings[i].is_ready() {
                empty = false;
            } else {
                inlet.close_ring(i, &self.map);
            }
        }
        if self.map.state(index) == PeerState::Dead {
            for inbox in &mut inlet.inboxes {
                empty &= inbox.forget(index);
            }
        }
        empty
    }
}

impl Drop for ShmPort {
    fn drop(&mut self) {
        // A forked child drops a copy; the endpoint is its parent's.
        if own_pid() == self.opened_by {
            self.onesided.close();
            self.map.close(self.index());
            self.out.ring_all();
        }
    }
}

/// What a poll can wait for in the kernel: readable when somebody has rung.
impl AsFd for ShmPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
