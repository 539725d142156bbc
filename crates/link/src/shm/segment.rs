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
mod layout;
mod map;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use portolan_ring::LINE_BYTES;
use portolan_sys::memory::{SharedMemory, duplicate};
use portolan_wire::Priority;

pub use self::error::SegmentError;
use self::layout::Layout;
pub use self::layout::SegmentConfig;
pub use self::map::lines_of;
use self::map::write_header;
pub(super) use self::map::{Map, Unknown};

/// Endpoints of one host at most: an inbox names its senders in 12 bits.
pub const ENDPOINTS_MAX: u16 = 4_096;

/// "portolan", little-endian.
const MAGIC: u64 = 0x6e61_6c6f_7472_6f70;
const VERSION: u64 = 8;
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
    /// Where in the endpoint's process a token lies, and what it is: a process that has its
    /// pid in another pid namespace is told apart by it.
    pub const TOKEN_AT: usize = 0;
    pub const TOKEN: usize = 1;
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
    use std::sync::atomic::Ordering::Relaxed;

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
