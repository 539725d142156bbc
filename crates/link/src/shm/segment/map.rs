//! What is mapped, divided up.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use portolan_ring::{CacheLine, LINE_BYTES};
use portolan_sys::memory::{Mapping, SharedMemory};
use portolan_wire::Priority;

use super::layout::Layout;
use super::{
    HEADER_LINES, LINE_WORDS, MAGIC, PeerState, STOPS, SegmentConfig, SegmentError, VERSION,
    control, ring_owner_word,
};

/// The part of a mapped memory that belongs to one endpoint.
#[derive(Clone, Debug)]
pub(in crate::shm) struct Area {
    pub(super) memory: Arc<Mapping>,
    /// Which one of that memory: what its endpoint calls itself.
    pub itself: u16,
    /// What its endpoint calls us.
    pub us: u16,
}

impl Area {
    fn lines(&self, first: usize, count: usize) -> &[CacheLine] {
        &lines_of(&self.memory)[first..][..count]
    }
}

/// What to do with a message of whom we do not know.
pub(in crate::shm) enum Unknown {
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
pub(in crate::shm) struct Map {
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
    const fn is_of_own(&self) -> bool {
        self.layout.areas != self.layout.endpoints
    }

    /// What comes from a number that no endpoint has.
    pub fn unknown(&self, index: u16) -> Unknown {
        match self.is_of_own() {
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

    fn endpoint(&self, index: u16) -> &[CacheLine] {
        let lines = self.layout.endpoint_lines();
        let area = self.area(index);
        area.lines(HEADER_LINES + usize::from(area.itself) * lines, lines)
    }

    pub fn control(&self, index: u16) -> &CacheLine {
        &self.endpoint(index)[0]
    }

    pub fn identity(&self, index: u16) -> &CacheLine {
        &self.endpoint(index)[1]
    }

    pub fn inbox(&self, index: u16, priority: usize) -> &[CacheLine] {
        let lines = self.layout.inbox.lines();
        &self.endpoint(index)[2 + priority * lines..][..lines]
    }

    /// Where an endpoint says what it copies from or to.
    pub fn use_word(&self, index: u16) -> &AtomicU64 {
        let area = self.area(index);
        area.lines(self.layout.uses_at() + usize::from(area.itself), 1)[0].word(0)
    }

    /// The table of an endpoint's memory regions.
    pub fn regions(&self, index: u16) -> &[CacheLine] {
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

    pub fn ring(&self, to: u16, ring: u32) -> &[CacheLine] {
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

    pub(super) fn of_all(layout: Layout, memory: Mapping, us: u16) -> Self {
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

pub(super) fn write_header(memory: &Mapping, layout: &Layout) {
    let lines = lines_of(memory);
    for (i, word) in layout.words().into_iter().enumerate() {
        lines[1 + i / 8].word(i % 8).store(word, Relaxed);
    }
    lines[0].word(1).store(VERSION, Relaxed);
    lines[0].word(0).store(MAGIC, Release);
}

/// A mapping as lines. What does not fill a line at its end is left out.
#[must_use]
pub fn lines_of(memory: &Mapping) -> &[CacheLine] {
    // SAFETY: the mapping is page-aligned, as long as it says for as long as
    // `memory` lives, and cannot be truncated. A line is made of atomics, so
    // every content is valid and others may write it.
    unsafe {
        std::slice::from_raw_parts(memory.start().as_ptr().cast(), memory.bytes() / LINE_BYTES)
    }
}
