//! The memory that the endpoints of one host share.
//!
//! | lines | what |
//! | --- | --- |
//! | 3 | header: magic, version; numbers of endpoints and of areas, the settings |
//! | areas × | control line, identity line, inbox for requests, inbox for replies |
//! | areas × | use line, whose first word names the memory region that the endpoint copies from or to |
//! | areas × | table of the memory regions that the endpoint has published |
//! | areas × | a word for each sender: which of its flows the endpoint has stopped |
//! | rings / 8, rounded up | owner word of each pair ring: 0 free, else who sends to whom |
//! | rings × | pair rings |
//!
//! In a job one memory holds an area for each endpoint, and all share its rings. Outside of a
//! job each endpoint makes a memory with its own area alone; the rings in it are those
//! towards it.
//!
//! Everything in it is an offset or an index. All of it is derived from the
//! header once, from a checked copy, so that scribbling there moves nothing.

mod error;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use portolan_ring::{Fence, InboxLayout, LINE_BYTES, Line, RegionsLayout, RingLayout};
use portolan_sys::barrier;
use portolan_sys::memory::{Mapping, SharedMemory, duplicate};
use portolan_wire::Priority;

pub use error::SegmentError;

/// Endpoints of one host at most: an inbox names its senders in 12 bits.
pub const ENDPOINTS_MAX: u16 = 4_096;

/// "portolan", little-endian.
const MAGIC: u64 = 0x6e61_6c6f_7472_6f70;
const VERSION: u64 = 6;
const HEADER_LINES: usize = 3;
const LINE_WORDS: u16 = 8;

/// Words of an endpoint's control line. All but the last are read at each
/// send to it, and change when it opens, sleeps, wakes or ends.
pub(super) mod control {
    /// [`super::PeerState`].
    pub const STATE: usize = 0;
    /// The sleep word.
    pub const SLEEP: usize = 1;
    /// Not 0: somebody waits for room towards this endpoint.
    pub const ROOM_WANTED: usize = 2;
}

/// What stands in the owner word of a ring in use; both numbers are those that the memory's
/// endpoints have.
pub(super) fn ring_owner_word(from: u16, to: u16, priority: Priority) -> u64 {
    1 << 63 | u64::from(from) << 32 | u64::from(to) << 16 | priority.index() as u64
}

/// Words of an endpoint's identity line, written once when it opens.
pub(super) mod identity {
    pub const PID: usize = 0;
    /// Where in that process a token lies, and what it is: a pid of another
    /// pid namespace is told apart by it.
    pub const TOKEN_AT: usize = 1;
    pub const TOKEN: usize = 2;
}

/// Bytes of long frames in all pair rings together, if nothing else was asked.
const RINGS_BYTES: u32 = 64 << 20;
/// Those of one ring.
const RING_BYTES_MIN: u32 = 256 << 10;
const RING_BYTES_MAX: u32 = 2 << 20;

/// Pair rings towards an endpoint outside of a job, if nothing else was asked. Their pages
/// are taken when they are used.
const RINGS_OF_ONE: u32 = 32;

/// Sizes of a segment; the launcher decides, all others read them from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentConfig {
    /// Longest frame, bytes, 57 to 65,472. Default 65,472.
    pub frame_bytes_max: u32,
    /// Slots of a pair ring, a power of two. Default 128.
    pub ring_slots: u32,
    /// Bytes for long frames in a pair ring, a power of two, at least four
    /// frames. `None` (default): 2 MiB, twice what is written over before it
    /// has left the reader's cache, but not more than 64 MiB for all rings
    /// and not less than 256 KiB.
    pub ring_bytes: Option<u32>,
    /// Pair rings for all endpoints together; `None` (default): one for each
    /// sender, receiver and priority, but at most 8 for each endpoint.
    pub rings: Option<u32>,
    /// Slots of an inbox, a power of two. Default 128.
    pub inbox_slots: u32,
    /// Long frames that wait in an inbox, 1 to 1,024. Default 4.
    pub inbox_frames: u32,
    /// Memory regions that an endpoint can publish to the others, at most
    /// 65,536. Default 1,024, which takes 64 KiB for each endpoint.
    pub regions: u32,
    /// Leave memory barriers to who sleeps, where the kernel can (default);
    /// else every send executes one.
    pub remote_barrier: bool,
}

impl Default for SegmentConfig {
    fn default() -> Self {
        Self {
            frame_bytes_max: 65_472,
            ring_slots: 128,
            ring_bytes: None,
            rings: None,
            inbox_slots: 128,
            inbox_frames: 4,
            regions: 1_024,
            remote_barrier: true,
        }
    }
}

/// Whether an endpoint of the segment can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// It has not opened yet. What is sent waits for it.
    Absent,
    /// It is open.
    Alive,
    /// It closed in an orderly way.
    Closed,
    /// It was marked dead.
    Dead,
    /// Somebody has scribbled over its state: it may live.
    Corrupt,
}

/// State words of the gone: a stray write to that of one that lives makes
/// neither.
const CLOSED: u64 = 0x636c_6f73_6564_9b17;
/// That of one that lives and has stopped flows of somebody's.
pub(super) const STOPS: u64 = 0x7374_6f70_735a_e64d;
const DEAD: u64 = 0x6465_6164_c3e5_5d2b;

impl PeerState {
    /// What a state word says.
    #[inline(always)]
    pub(super) const fn of(word: u64) -> Self {
        match word {
            0 => Self::Absent,
            1 | STOPS => Self::Alive,
            CLOSED => Self::Closed,
            DEAD => Self::Dead,
            _ => Self::Corrupt,
        }
    }

    pub(super) const fn word(self) -> u64 {
        match self {
            Self::Absent => 0,
            Self::Alive => 1,
            Self::Closed => CLOSED,
            Self::Dead => DEAD,
            Self::Corrupt => u64::MAX,
        }
    }

    /// Whether a sender has to look closer: the endpoint is gone, or stops somebody.
    #[inline(always)]
    pub(super) const fn is_word_special(word: u64) -> bool {
        word > 1
    }

    /// Whether nothing can be sent to it any more.
    #[inline(always)]
    #[must_use]
    pub const fn is_gone(self) -> bool {
        matches!(self, Self::Closed | Self::Dead | Self::Corrupt)
    }
}

/// Where everything lies, from checked numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Who can send to an area's endpoint.
    pub endpoints: u16,
    /// As many as endpoints, or one.
    pub areas: u16,
    pub rings: u32,
    pub ring: RingLayout,
    pub inbox: InboxLayout,
    pub regions: RegionsLayout,
    pub frame_bytes_max: usize,
    pub fence: Fence,
}

impl Layout {
    const WORDS: usize = 10;

    fn new(endpoints: u32, config: &SegmentConfig) -> Result<Self, SegmentError> {
        if endpoints == 0 || endpoints > u32::from(ENDPOINTS_MAX) {
            return Err(SegmentError::Endpoints(endpoints));
        }
        let pairs = 2 * endpoints * (endpoints - 1);
        let check = |ok, name| {
            if ok {
                Ok(())
            } else {
                Err(SegmentError::Setting(name))
            }
        };
        let frame = config.frame_bytes_max;
        check((57..=65_472).contains(&frame), "frame_bytes_max")?;
        let rings = config.rings.unwrap_or(pairs.min(8 * endpoints));
        check(rings <= 1 << 20, "rings")?;
        let ring_bytes = config.ring_bytes.unwrap_or_else(|| {
            let share = RINGS_BYTES / rings.max(1);
            (1 << share.max(1).ilog2()).clamp(RING_BYTES_MIN, RING_BYTES_MAX)
        });
        let ring = RingLayout {
            slots: config.ring_slots,
            data_lines: ring_bytes / LINE_BYTES as u32,
        };
        check(
            config.ring_slots >= 4 && config.ring_slots <= 1 << 16,
            "ring_slots",
        )?;
        check(
            ring_bytes <= 64 << 20 && ring.is_valid() && ring.payload_bytes_max() >= frame as usize,
            "ring_bytes",
        )?;
        let inbox = InboxLayout {
            slots: config.inbox_slots,
            blocks: config.inbox_frames,
            block_lines: frame.div_ceil(LINE_BYTES as u32),
        };
        check((1..=1024).contains(&config.inbox_frames), "inbox_frames")?;
        check(
            config.inbox_slots <= 1 << 16 && inbox.is_valid(),
            "inbox_slots",
        )?;
        let regions = RegionsLayout {
            regions: config.regions,
        };
        check(regions.is_valid(), "regions")?;
        Ok(Self {
            endpoints: endpoints as u16,
            areas: endpoints as u16,
            rings,
            ring,
            inbox,
            regions,
            frame_bytes_max: frame as usize,
            fence: if config.remote_barrier && barrier::available() {
                Fence::Remote
            } else {
                Fence::Local
            },
        })
    }

    fn words(&self) -> [u64; Self::WORDS] {
        [
            u64::from(self.endpoints),
            u64::from(self.rings),
            u64::from(self.ring.slots),
            u64::from(self.ring.data_lines),
            u64::from(self.inbox.slots),
            u64::from(self.inbox.blocks),
            self.frame_bytes_max as u64,
            u64::from(self.fence == Fence::Remote),
            u64::from(self.regions.regions),
            u64::from(self.areas),
        ]
    }

    /// Checks what somebody wrote into a header as strictly as settings.
    fn parse(words: [u64; Self::WORDS]) -> Option<Self> {
        let mut small = [0u32; Self::WORDS];
        for (small, word) in small.iter_mut().zip(words) {
            *small = u32::try_from(word).ok()?;
        }
        let config = SegmentConfig {
            frame_bytes_max: small[6],
            ring_slots: small[2],
            ring_bytes: Some(small[3].checked_mul(LINE_BYTES as u32)?),
            rings: Some(small[1]),
            inbox_slots: small[4],
            inbox_frames: small[5],
            regions: small[8],
            remote_barrier: false,
        };
        let mut layout = Self::new(small[0], &config).ok()?;
        match small[9] {
            1 => layout.areas = 1,
            all if all == small[0] => {}
            _ => return None,
        }
        if small[7] != 0 {
            layout.fence = Fence::Remote;
        }
        Some(layout)
    }

    const fn endpoint_lines(&self) -> usize {
        2 + 2 * self.inbox.lines()
    }

    /// Of the flows that one endpoint has stopped.
    const fn stop_lines(&self) -> usize {
        self.endpoints.div_ceil(LINE_WORDS) as usize
    }

    const fn owner_lines(&self) -> usize {
        self.rings.div_ceil(8) as usize
    }

    const fn uses_at(&self) -> usize {
        HEADER_LINES + self.areas as usize * self.endpoint_lines()
    }

    const fn regions_at(&self) -> usize {
        self.uses_at() + self.areas as usize
    }

    const fn stops_at(&self) -> usize {
        self.regions_at() + self.areas as usize * self.regions.lines()
    }

    const fn owners_at(&self) -> usize {
        self.stops_at() + self.areas as usize * self.stop_lines()
    }

    const fn rings_at(&self) -> usize {
        self.owners_at() + self.owner_lines()
    }

    const fn lines(&self) -> usize {
        self.rings_at() + self.rings as usize * self.ring.lines()
    }

    /// Of an endpoint outside of a job, whose own area alone it is.
    fn of_one(endpoints: u16, config: &SegmentConfig) -> Result<Self, SegmentError> {
        let rings = Some(config.rings.unwrap_or(RINGS_OF_ONE));
        let layout = Self::new(endpoints.into(), &SegmentConfig { rings, ..*config })?;
        Ok(Self { areas: 1, ..layout })
    }
}

/// The part of a mapped memory that belongs to one endpoint.
#[derive(Clone, Debug)]
pub(super) struct Area {
    memory: Arc<Mapping>,
    /// Which one of that memory: what its endpoint calls itself.
    pub itself: u16,
    /// What its endpoint calls us.
    pub us: u16,
}

impl Area {
    fn lines(&self, first: usize, count: usize) -> &[Line] {
        &lines_of(&self.memory)[first..][..count]
    }
}

/// What to do with a message of whom we do not know.
pub(super) enum Unknown {
    /// Leave it: he is about to be known.
    Early,
    /// Pass over it: he was known.
    Late,
    /// There can be none.
    Corrupt,
}

/// Everything that is mapped, divided up: an area for each endpoint, by our number for it.
/// The lines of one live until it is taken out.
#[derive(Debug)]
pub(super) struct Map {
    pub layout: Layout,
    areas: Vec<Option<Area>>,
    /// Numbers of those who may write to us already, though we have not mapped their memory.
    awaited: Vec<u16>,
}

impl Map {
    /// How many numbers there are, of endpoints or of nobody.
    pub fn numbers(&self) -> u16 {
        self.areas.len() as u16
    }

    pub fn has(&self, index: u16) -> bool {
        self.find(index).is_some()
    }

    #[inline(always)]
    fn find(&self, index: u16) -> Option<&Area> {
        self.areas.get(usize::from(index))?.as_ref()
    }

    #[inline(always)]
    pub fn area(&self, index: u16) -> &Area {
        self.find(index).expect("an endpoint of this host")
    }

    /// Whether we have a memory of our own, and others come and go.
    const fn is_alone(&self) -> bool {
        self.layout.areas != self.layout.endpoints
    }

    /// What comes from a number that no endpoint has.
    pub fn unknown(&self, index: u16) -> Unknown {
        match self.is_alone() {
            true if self.awaited.contains(&index) => Unknown::Early,
            true => Unknown::Late,
            false => Unknown::Corrupt,
        }
    }

    pub fn is_awaiting(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// Somebody who is to have this number may write to us from now on, or does not.
    pub fn set_awaited(&mut self, index: u16, awaited: bool) {
        self.awaited.retain(|other| *other != index);
        if awaited {
            self.awaited.push(index);
        }
    }

    /// An endpoint has a number from now on.
    pub fn add(&mut self, index: u16, area: Area) {
        if self.areas.len() <= usize::from(index) {
            self.areas.resize(usize::from(index) + 1, None);
        }
        self.areas[usize::from(index)] = Some(area);
        self.set_awaited(index, false);
    }

    /// Nothing refers to an endpoint's memory any more.
    pub fn remove(&mut self, index: u16) {
        self.areas[usize::from(index)] = None;
    }

    fn endpoint(&self, index: u16) -> &[Line] {
        let lines = self.layout.endpoint_lines();
        let area = self.area(index);
        area.lines(HEADER_LINES + usize::from(area.itself) * lines, lines)
    }

    pub fn control(&self, index: u16) -> &Line {
        &self.endpoint(index)[0]
    }

    pub fn identity(&self, index: u16) -> &Line {
        &self.endpoint(index)[1]
    }

    pub fn inbox(&self, index: u16, priority: usize) -> &[Line] {
        let lines = self.layout.inbox.lines();
        &self.endpoint(index)[2 + priority * lines..][..lines]
    }

    /// Where an endpoint says what it copies from or to.
    pub fn use_word(&self, index: u16) -> &AtomicU64 {
        let area = self.area(index);
        area.lines(self.layout.uses_at() + usize::from(area.itself), 1)[0].word(0)
    }

    /// The table of an endpoint's memory regions.
    pub fn regions(&self, index: u16) -> &[Line] {
        let (area, lines) = (self.area(index), self.layout.regions.lines());
        let first = self.layout.regions_at() + usize::from(area.itself) * lines;
        area.lines(first, lines)
    }

    /// Which flows of a sender, as `to` numbers it, are stopped by `to`, who alone writes it:
    /// a bit for each flow of a request, and from bit 32 on of a reply.
    pub fn stops(&self, to: u16, sender: u16) -> &AtomicU64 {
        let (area, lines) = (self.area(to), self.layout.stop_lines());
        let first = self.layout.stops_at() + usize::from(area.itself) * lines;
        let (line, word) = (sender / LINE_WORDS, sender % LINE_WORDS);
        area.lines(first, lines)[usize::from(line)].word(word.into())
    }

    /// Of a ring towards an endpoint.
    pub fn ring_owner(&self, to: u16, ring: u32) -> &AtomicU64 {
        assert!(ring < self.layout.rings);
        let line = self.layout.owners_at() + ring as usize / 8;
        self.area(to).lines(line, 1)[0].word(ring as usize % 8)
    }

    pub fn ring(&self, to: u16, ring: u32) -> &[Line] {
        assert!(ring < self.layout.rings);
        let lines = self.layout.ring.lines();
        let first = self.layout.rings_at() + ring as usize * lines;
        self.area(to).lines(first, lines)
    }

    /// What stands in the owner word of a ring by which we send to an endpoint.
    pub fn our_ring_word(&self, to: u16, priority: Priority) -> u64 {
        let area = self.area(to);
        ring_owner_word(area.us, area.itself, priority)
    }

    /// What has become of an endpoint; whose number nobody has is as good as dead.
    #[inline(always)]
    pub fn state(&self, index: u16) -> PeerState {
        match self.find(index) {
            Some(_) => PeerState::of(self.control(index).word(control::STATE).load(Acquire)),
            None if self.awaited.contains(&index) => PeerState::Absent,
            None => PeerState::Dead,
        }
    }

    pub fn set_state(&self, index: u16, state: PeerState) {
        self.control(index)
            .word(control::STATE)
            .store(state.word(), Release);
    }

    /// Says whether the endpoint that is ours stops flows of anybody's, so that senders
    /// look closer. Whoever was marked dead stays so.
    pub fn set_stopping(&self, index: u16, stopping: bool) {
        let words = [PeerState::Alive.word(), STOPS];
        let (from, to) = (words[usize::from(!stopping)], words[usize::from(stopping)]);
        let state = self.control(index).word(control::STATE);
        let _ = state.compare_exchange(from, to, AcqRel, Relaxed);
    }

    /// The endpoint that is ours has closed, unless it was marked dead.
    pub fn close(&self, index: u16) {
        self.set_stopping(index, false);
        let (alive, closed) = (PeerState::Alive.word(), PeerState::Closed.word());
        let state = self.control(index).word(control::STATE);
        let _ = state.compare_exchange(alive, closed, AcqRel, Relaxed);
    }

    /// Maps a segment that a launcher made; we are number `index` in it.
    pub fn open(fd: OwnedFd, index: u16) -> Result<Self, SegmentError> {
        let (layout, memory) = open(SharedMemory::from_fd(fd, None)?)?;
        if layout.areas != layout.endpoints {
            return Err(SegmentError::Foreign);
        }
        Ok(Self::of_all(layout, memory, index))
    }

    fn of_all(layout: Layout, memory: Mapping, us: u16) -> Self {
        let memory = Arc::new(memory);
        let area = |itself| Area {
            memory: Arc::clone(&memory),
            itself,
            us,
        };
        let areas = (0..layout.areas).map(|itself| Some(area(itself)));
        Self {
            layout,
            areas: areas.collect(),
            awaited: Vec::new(),
        }
    }

    /// Makes the memory of an endpoint outside of a job, which calls itself 0.
    pub fn create(endpoints: u16, config: &SegmentConfig) -> Result<(Self, OwnedFd), SegmentError> {
        let layout = Layout::of_one(endpoints, config)?;
        let fd = SharedMemory::unallocated("portolan", layout.lines() * LINE_BYTES)?;
        SharedMemory::allocate(fd.as_fd(), layout.rings_at() * LINE_BYTES)?;
        let memory = SharedMemory::from_fd(fd, None)?;
        write_header(&memory, &layout);
        let (memory, fd) = memory.into_parts();
        Ok((Self::of_all(layout, memory, 0), fd))
    }

    /// Maps the memory of another such endpoint, which calls us `us`.
    pub fn area_of(&self, fd: OwnedFd, us: u16) -> Result<Area, SegmentError> {
        let (layout, memory) = open(SharedMemory::from_fd(fd, None)?)?;
        // Only the same settings have the same layout, and each has an area of its own.
        if layout != self.layout || us >= layout.endpoints {
            return Err(SegmentError::Foreign);
        }
        Ok(Area {
            memory: Arc::new(memory),
            itself: 0,
            us,
        })
    }
}

/// Checks what stands in a memory's header.
fn open(memory: SharedMemory) -> Result<(Layout, Mapping), SegmentError> {
    let (memory, _) = memory.into_parts();
    let lines = lines_of(&memory);
    if lines.len() < HEADER_LINES {
        return Err(SegmentError::Foreign);
    }
    let word = |line: usize, i: usize| lines[line].word(i).load(Acquire);
    let layout = Layout::parse(std::array::from_fn(|i| word(1 + i / 8, i % 8)));
    match layout {
        Some(layout)
            if word(0, 0) == MAGIC && word(0, 1) == VERSION && layout.lines() == lines.len() =>
        {
            Ok((layout, memory))
        }
        _ => Err(SegmentError::Foreign),
    }
}

fn write_header(memory: &Mapping, layout: &Layout) {
    let lines = lines_of(memory);
    for (i, word) in layout.words().into_iter().enumerate() {
        lines[1 + i / 8].word(i % 8).store(word, Relaxed);
    }
    lines[0].word(1).store(VERSION, Relaxed);
    lines[0].word(0).store(MAGIC, Release);
}

/// A mapping as lines. What does not fill a line at its end is left out.
#[must_use]
pub fn lines_of(memory: &Mapping) -> &[Line] {
    // SAFETY: the mapping is page-aligned, as long as it says for as long as
    // `memory` lives, and cannot be truncated. A line is made of atomics, so
    // every content is valid and others may write it.
    unsafe {
        std::slice::from_raw_parts(memory.start().as_ptr().cast(), memory.bytes() / LINE_BYTES)
    }
}

/// The launcher's side of a segment: it makes it, passes its descriptor on,
/// and may mark endpoints dead.
#[derive(Debug)]
pub struct Segment(Map, OwnedFd);

impl Segment {
    /// Bytes of memory that a segment for `endpoints` takes.
    ///
    /// # Errors
    /// [`SegmentError::Endpoints`], [`SegmentError::Setting`].
    pub fn bytes(endpoints: u32, config: &SegmentConfig) -> Result<usize, SegmentError> {
        Ok(Layout::new(endpoints, config)?.lines() * LINE_BYTES)
    }

    /// Makes a segment for `endpoints`, numbered from 0.
    ///
    /// # Errors
    /// As [`Segment::bytes`], and [`SegmentError::Memory`].
    pub fn create(endpoints: u32, config: &SegmentConfig) -> Result<Self, SegmentError> {
        let layout = Layout::new(endpoints, config)?;
        let memory = SharedMemory::create("portolan", layout.lines() * LINE_BYTES)?;
        write_header(&memory, &layout);
        let (memory, fd) = memory.into_parts();
        Ok(Self(Map::of_all(layout, memory, 0), fd))
    }

    /// Another descriptor of it, for a process that attaches; close-on-exec.
    ///
    /// # Errors
    /// [`SegmentError::Memory`] when no descriptor is left.
    pub fn duplicate_fd(&self) -> Result<OwnedFd, SegmentError> {
        Ok(duplicate(self.1.as_fd())?)
    }

    /// How many endpoints it is for.
    #[must_use]
    pub fn endpoints(&self) -> u16 {
        self.0.layout.endpoints
    }

    /// What has become of an endpoint.
    ///
    /// # Panics
    /// If there is no endpoint `index`.
    #[must_use]
    pub fn state(&self, index: u16) -> PeerState {
        self.0.state(index)
    }

    /// Says that an endpoint is dead, unless it has closed. Whoever waits for
    /// it sees it at the next look; ring the doorbells of those who sleep.
    ///
    /// # Panics
    /// If there is no endpoint `index`.
    pub fn mark_dead(&self, index: u16) {
        if self.state(index) != PeerState::Closed {
            self.0.set_state(index, PeerState::Dead);
        }
    }
}

impl AsFd for Segment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.1.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_created_is_opened_with_the_same_layout() {
        for endpoints in [1, 2, 5] {
            let s = Segment::create(endpoints, &SegmentConfig::default()).unwrap();
            let bytes = Segment::bytes(endpoints, &SegmentConfig::default()).unwrap();
            let map = Map::open(s.duplicate_fd().unwrap(), 0).unwrap();
            let all = lines_of(&map.area(0).memory);
            assert_eq!(bytes, all.len() * LINE_BYTES);
            assert_eq!(map.layout, s.0.layout);
            assert_eq!(s.state(0), PeerState::Absent);
            let last = map.layout.rings.checked_sub(1).map(|r| map.ring(0, r));
            let all = all.as_ptr_range();
            let end = last.map_or(all.end, |l| l.as_ptr_range().end);
            assert_eq!(end, all.end);
            // What lies one behind the other does not overlap.
            let index = endpoints as u16 - 1;
            let inbox = map.inbox(index, 1).as_ptr_range();
            let uses = [map.use_word(0), map.use_word(index)].map(|it| it.as_ptr().addr());
            assert_eq!(inbox.end.addr(), uses[0]);
            assert_eq!(uses[1] + LINE_BYTES, map.regions(0).as_ptr().addr());
            let regions = map.regions(index).as_ptr_range();
            let stops = [(0, 0), (index, index)].map(|(to, from)| map.stops(to, from));
            let stops = stops.map(|it| it.as_ptr().addr());
            assert_eq!(stops[0], regions.end.addr());
            let owners = map.layout.owners_at() * LINE_BYTES;
            assert!(stops[1] + 8 <= all.start.addr() + owners);
        }
    }

    #[test]
    fn a_stray_write_ends_nobody() {
        let alive = PeerState::Alive.word();
        let values = (0..64).map(|bit| alive ^ 1 << bit).chain(0..1 << 16);
        for word in values.chain([u64::MAX, u64::MAX / 255]) {
            let state = PeerState::of(word);
            assert!(!matches!(state, PeerState::Closed | PeerState::Dead));
            assert_eq!(state.is_gone(), PeerState::is_word_special(word));
        }
        let all = [
            PeerState::Absent,
            PeerState::Alive,
            PeerState::Closed,
            PeerState::Dead,
            PeerState::Corrupt,
        ];
        assert_eq!(all.map(|state| PeerState::of(state.word())), all);
    }

    #[test]
    fn settings_out_of_range_are_named() {
        let bytes =
            |endpoints, config: SegmentConfig| Segment::bytes(endpoints, &config).unwrap_err();
        let d = SegmentConfig::default();
        for n in [0, 4097, u32::MAX] {
            assert_eq!(bytes(n, d), SegmentError::Endpoints(n));
        }
        let ring_bytes = Some(32 << 10);
        let cases = [
            (SegmentConfig { ring_bytes, ..d }, "ring_bytes"),
            (
                SegmentConfig {
                    frame_bytes_max: 65_473,
                    ..d
                },
                "frame_bytes_max",
            ),
            (
                SegmentConfig {
                    frame_bytes_max: 0,
                    ..d
                },
                "frame_bytes_max",
            ),
            (
                SegmentConfig {
                    ring_slots: 100,
                    ..d
                },
                "ring_bytes",
            ),
            (SegmentConfig { ring_slots: 0, ..d }, "ring_slots"),
            (
                SegmentConfig {
                    inbox_slots: 3,
                    ..d
                },
                "inbox_slots",
            ),
            (
                SegmentConfig {
                    inbox_frames: 0,
                    ..d
                },
                "inbox_frames",
            ),
            (
                SegmentConfig {
                    rings: Some(u32::MAX),
                    ..d
                },
                "rings",
            ),
            (
                SegmentConfig {
                    regions: 65_537,
                    ..d
                },
                "regions",
            ),
        ];
        for (config, name) in cases {
            assert_eq!(bytes(2, config), SegmentError::Setting(name), "{config:?}");
        }
    }

    #[test]
    fn a_foreign_memory_is_refused() {
        let zeros = SharedMemory::create("zeros", 100_000).unwrap();
        let open = |m: &SharedMemory| Map::open(m.duplicate_fd().unwrap(), 0).unwrap_err();
        assert_eq!(open(&zeros), SegmentError::Foreign);
        assert_eq!(
            open(&SharedMemory::create("tiny", 10).unwrap()),
            SegmentError::Foreign
        );
        // Every word of the header matters.
        for at in [
            (0, 0),
            (0, 1),
            (1, 0),
            (1, 2),
            (1, 3),
            (1, 4),
            (1, 5),
            (2, 0),
            (2, 1),
        ] {
            let s = Segment::create(3, &SegmentConfig::default()).unwrap();
            let word = lines_of(&s.0.area(0).memory)[at.0].word(at.1);
            for garbage in [0, word.load(Relaxed) + 1, word.load(Relaxed) * 2, u64::MAX] {
                word.store(garbage, Relaxed);
                let opened = Map::open(s.duplicate_fd().unwrap(), 0);
                assert_eq!(
                    opened.unwrap_err(),
                    SegmentError::Foreign,
                    "{at:?} {garbage}"
                );
            }
        }
    }
}
