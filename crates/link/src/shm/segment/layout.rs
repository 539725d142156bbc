//! Sizes, and where everything lies by them.

use portolan_ring::{Fence, InboxLayout, LINE_BYTES, RegionsLayout, RingLayout};
use portolan_sys::barrier;

use super::{ENDPOINTS_MAX, HEADER_LINES, LINE_WORDS, SegmentError};

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

/// Where everything lies, from checked numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shm) struct Layout {
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
    pub(super) const WORDS: usize = 10;

    pub(super) fn new(endpoints: u32, config: &SegmentConfig) -> Result<Self, SegmentError> {
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

    pub(super) fn words(&self) -> [u64; Self::WORDS] {
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
    pub(super) fn parse(words: [u64; Self::WORDS]) -> Option<Self> {
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

    pub(super) const fn endpoint_lines(&self) -> usize {
        2 + 2 * self.inbox.lines()
    }

    /// Of the flows that one endpoint has stopped.
    pub(super) const fn stop_lines(&self) -> usize {
        self.endpoints.div_ceil(LINE_WORDS) as usize
    }

    pub(super) const fn owner_lines(&self) -> usize {
        self.rings.div_ceil(8) as usize
    }

    pub(super) const fn uses_at(&self) -> usize {
        HEADER_LINES + self.areas as usize * self.endpoint_lines()
    }

    pub(super) const fn regions_at(&self) -> usize {
        self.uses_at() + self.areas as usize
    }

    pub(super) const fn stops_at(&self) -> usize {
        self.regions_at() + self.areas as usize * self.regions.lines()
    }

    pub(super) const fn owners_at(&self) -> usize {
        self.stops_at() + self.areas as usize * self.stop_lines()
    }

    pub(super) const fn rings_at(&self) -> usize {
        self.owners_at() + self.owner_lines()
    }

    pub(super) const fn lines(&self) -> usize {
        self.rings_at() + self.rings as usize * self.ring.lines()
    }

    /// Of an endpoint outside of a job, whose own area alone it is.
    pub(super) fn of_one(endpoints: u16, config: &SegmentConfig) -> Result<Self, SegmentError> {
        let rings = Some(config.rings.unwrap_or(RINGS_OF_ONE));
        let layout = Self::new(endpoints.into(), &SegmentConfig { rings, ..*config })?;
        Ok(Self { areas: 1, ..layout })
    }
}
