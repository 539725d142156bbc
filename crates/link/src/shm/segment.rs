//! The memory that the endpoints of one host share.
//!
//! | lines | what |
//! | --- | --- |
//! | 3 | header: magic, version; number of endpoints, the settings |
//! | endpoints × | control line, identity line, inbox for requests, inbox for replies |
//! | endpoints × | use line, whose first word names the memory region that the endpoint copies from or to |
//! | endpoints × | table of the memory regions that the endpoint has published |
//! | endpoints × | a word for each sender: which of its flows the endpoint has stopped |
//! | rings / 8, rounded up | owner word of each pair ring: 0 free, else who sends to whom |
//! | rings × | pair rings |
//!
//! Everything in it is an offset or an index. All of it is derived from the
//! header once, from a checked copy, so that scribbling there moves nothing.

mod error;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use portolan_ring::{Fence, InboxLayout, LINE_BYTES, Line, RegionsLayout, RingLayout};
use portolan_sys::barrier;
use portolan_sys::memory::SharedMemory;
use portolan_wire::Priority;

pub use error::SegmentError;

/// Endpoints of one host at most: an inbox names its senders in 12 bits.
pub const ENDPOINTS_MAX: u16 = 4_096;

/// "portolan", little-endian.
const MAGIC: u64 = 0x6e61_6c6f_7472_6f70;
const VERSION: u64 = 5;
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

/// What stands in the owner word of a ring in use.
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
    pub endpoints: u16,
    pub rings: u32,
    pub ring: RingLayout,
    pub inbox: InboxLayout,
    pub regions: RegionsLayout,
    pub frame_bytes_max: usize,
    pub fence: Fence,
}

impl Layout {
    const WORDS: usize = 9;

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

    const fn lines(&self) -> usize {
        HEADER_LINES
            + self.endpoints as usize
                * (self.endpoint_lines() + 1 + self.regions.lines() + self.stop_lines())
            + self.owner_lines()
            + self.rings as usize * self.ring.lines()
    }
}

/// The mapped segment, divided up. Its lines live as long as it does.
#[derive(Debug)]
pub(super) struct Map {
    pub layout: Layout,
    memory: SharedMemory,
}

impl Map {
    fn lines(&self) -> &[Line] {
        lines_of(&self.memory)
    }

    fn endpoint(&self, index: u16) -> &[Line] {
        assert!(index < self.layout.endpoints);
        let lines = self.layout.endpoint_lines();
        &self.lines()[HEADER_LINES + usize::from(index) * lines..][..lines]
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

    fn uses_at(&self) -> usize {
        HEADER_LINES + usize::from(self.layout.endpoints) * self.layout.endpoint_lines()
    }

    /// Where an endpoint says what it copies from or to.
    pub fn use_word(&self, index: u16) -> &AtomicU64 {
        assert!(index < self.layout.endpoints);
        self.lines()[self.uses_at() + usize::from(index)].word(0)
    }

    fn regions_at(&self) -> usize {
        self.uses_at() + usize::from(self.layout.endpoints)
    }

    /// The table of an endpoint's memory regions.
    pub fn regions(&self, index: u16) -> &[Line] {
        assert!(index < self.layout.endpoints);
        let lines = self.layout.regions.lines();
        let start = self.regions_at() + usize::from(index) * lines;
        &self.lines()[start..][..lines]
    }

    fn stops_at(&self) -> usize {
        let lines = self.layout.regions.lines();
        self.regions_at() + usize::from(self.layout.endpoints) * lines
    }

    /// Which flows of `from` are stopped by `to`, who alone writes it: a bit for each flow
    /// of a request, and from bit 32 on of a reply.
    pub fn stops(&self, to: u16, from: u16) -> &AtomicU64 {
        assert!(to < self.layout.endpoints && from < self.layout.endpoints);
        let row = self.stops_at() + usize::from(to) * self.layout.stop_lines();
        let (line, word) = (from / LINE_WORDS, from % LINE_WORDS);
        self.lines()[row + usize::from(line)].word(word.into())
    }

    fn rings_at(&self) -> usize {
        self.stops_at() + usize::from(self.layout.endpoints) * self.layout.stop_lines()
    }

    pub fn ring_owner(&self, ring: u32) -> &AtomicU64 {
        assert!(ring < self.layout.rings);
        self.lines()[self.rings_at() + ring as usize / 8].word(ring as usize % 8)
    }

    pub fn ring(&self, ring: u32) -> &[Line] {
        assert!(ring < self.layout.rings);
        let lines = self.layout.ring.lines();
        let start = self.rings_at() + self.layout.owner_lines() + ring as usize * lines;
        &self.lines()[start..][..lines]
    }

    pub fn state(&self, index: u16) -> PeerState {
        PeerState::of(self.control(index).word(control::STATE).load(Acquire))
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

    /// Maps a segment that a launcher made.
    pub fn open(fd: OwnedFd) -> Result<Self, SegmentError> {
        let memory = SharedMemory::from_fd(fd, None)?;
        let lines = lines_of(&memory);
        if lines.len() < HEADER_LINES {
            return Err(SegmentError::Foreign);
        }
        let word = |line: usize, i: usize| lines[line].word(i).load(Acquire);
        let layout = Layout::parse(std::array::from_fn(|i| word(1 + i / 8, i % 8)));
        match layout {
            Some(layout)
                if word(0, 0) == MAGIC
                    && word(0, 1) == VERSION
                    && layout.lines() == lines.len() =>
            {
                Ok(Self { layout, memory })
            }
            _ => Err(SegmentError::Foreign),
        }
    }
}

/// A mapping as lines. What does not fill a line at its end is left out.
#[must_use]
pub fn lines_of(memory: &SharedMemory) -> &[Line] {
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
pub struct Segment(Map);

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
        let lines = lines_of(&memory);
        for (i, word) in layout.words().into_iter().enumerate() {
            lines[1 + i / 8].word(i % 8).store(word, Relaxed);
        }
        lines[0].word(1).store(VERSION, Relaxed);
        lines[0].word(0).store(MAGIC, Release);
        Ok(Self(Map { layout, memory }))
    }

    /// Another descriptor of it, for a process that attaches; close-on-exec.
    ///
    /// # Errors
    /// [`SegmentError::Memory`] when no descriptor is left.
    pub fn duplicate_fd(&self) -> Result<OwnedFd, SegmentError> {
        Ok(self.0.memory.duplicate_fd()?)
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
        self.0.memory.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_created_is_opened_with_the_same_layout() {
        for endpoints in [1, 2, 5] {
            let s = Segment::create(endpoints, &SegmentConfig::default()).unwrap();
            assert_eq!(
                Segment::bytes(endpoints, &SegmentConfig::default()).unwrap(),
                s.0.memory.bytes()
            );
            let map = Map::open(s.duplicate_fd().unwrap()).unwrap();
            assert_eq!(map.layout, s.0.layout);
            assert_eq!(s.state(0), PeerState::Absent);
            let last = map.layout.rings.checked_sub(1).map(|r| map.ring(r));
            let all = map.lines().as_ptr_range();
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
            let owners = map.lines()[..map.rings_at()].as_ptr_range().end.addr();
            assert!(stops[1] + 8 <= owners);
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
        let open = |m: &SharedMemory| Map::open(m.duplicate_fd().unwrap()).unwrap_err();
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
        ] {
            let s = Segment::create(3, &SegmentConfig::default()).unwrap();
            let word = s.0.lines()[at.0].word(at.1);
            for garbage in [0, word.load(Relaxed) + 1, word.load(Relaxed) * 2, u64::MAX] {
                word.store(garbage, Relaxed);
                assert_eq!(open(&s.0.memory), SegmentError::Foreign, "{at:?} {garbage}");
            }
        }
    }
}
