//! The ring with one producer and one consumer.
//!
//! | lines | what |
//! | --- | --- |
//! | 1 | control: word 0 is how far the consumer has read |
//! | slots | header and up to 56 payload bytes each |
//! | data | payloads longer than that, each in consecutive lines |
//!
//! A message of up to 56 bytes moves one cache line: payload, length and
//! sequence number lie in its slot. The consumer knows where the next message
//! will appear and what number it will carry, so it reads that one word. It
//! says how far it has read only each quarter ring, and the producer looks
//! there only when its last knowledge says "full".

use crate::atomic::Ordering;
use crate::line::{CacheLine, Header, RingMessage, Room, Short, lines_of};
use crate::{Corrupt, INLINE_BYTES, ReserveError};

/// Sizes of a ring. Both ends must agree on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLayout {
    /// Slots, a power of two, at least 2.
    pub slots: u32,
    /// Lines for long payloads, a power of two, or 0 for none.
    pub data_lines: u32,
}

impl RingLayout {
    /// Whether the numbers are as their description asks.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.slots.is_power_of_two()
            && self.slots >= 2
            && self.slots <= 1 << 24
            && (self.data_lines == 0 || self.data_lines.is_power_of_two())
            && self.data_lines <= 1 << 24
    }

    /// Lines that a ring takes.
    #[must_use]
    pub const fn lines(&self) -> usize {
        1 + self.slots as usize + self.data_lines as usize
    }

    /// Makes the ring in `lines` empty at `start`, whatever stood there. Nobody
    /// uses it yet.
    ///
    /// # Panics
    /// If the numbers are not valid or do not fit `lines`.
    pub fn clear(&self, lines: &[CacheLine], start: Position) {
        let (_, slots, _) = self.split(lines);
        for position in (0..self.slots).map(|i| start.slots.wrapping_add(i)) {
            let before = Header {
                sequence: position.wrapping_add(1).wrapping_sub(self.slots),
                bytes: 0,
                tag: 0,
            };
            let header = slot(slots, position).header();
            header.store(before.pack(), Ordering::Relaxed);
        }
    }

    /// Longest payload that never blocks for want of a contiguous piece: a
    /// quarter of the data lines, so that a reader who reports each quarter
    /// always frees enough.
    #[must_use]
    pub const fn payload_bytes_max(&self) -> usize {
        let quarter = self.data_lines as usize / 4 * crate::LINE_BYTES;
        let most = if quarter > u16::MAX as usize {
            u16::MAX as usize
        } else {
            quarter
        };
        if most > INLINE_BYTES {
            most
        } else {
            INLINE_BYTES
        }
    }

    fn split<'m>(
        &self,
        lines: &'m [CacheLine],
    ) -> (&'m CacheLine, &'m [CacheLine], &'m [CacheLine]) {
        assert!(self.is_valid() && lines.len() == self.lines());
        let (control, rest) = lines.split_at(1);
        let (slots, data) = rest.split_at(self.slots as usize);
        (&control[0], slots, data)
    }
}

/// No message has been begun.
const NONE: u32 = u32::MAX;

/// The slot of message `number`, counted from 0.
#[inline(always)]
fn slot(slots: &[CacheLine], number: u32) -> &CacheLine {
    // A power of two, so the index is always within.
    &slots[number as usize & (slots.len() - 1)]
}

/// How many slots and data lines have gone by, modulo 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Slots.
    pub slots: u32,
    /// Data lines.
    pub data: u32,
}

impl Position {
    /// Both in one word.
    #[must_use]
    pub const fn pack(self) -> u64 {
        self.slots as u64 | (self.data as u64) << 32
    }

    /// Reverses [`Position::pack`]. Every word is a position.
    #[must_use]
    pub const fn unpack(word: u64) -> Self {
        Self {
            slots: word as u32,
            data: (word >> 32) as u32,
        }
    }

    /// First data line of a payload of `lines`, and the position behind it:
    /// a payload does not wrap, it starts again at the area's beginning.
    #[inline]
    fn place(self, lines: u32, area: u32) -> (u32, u32) {
        let at = self.data & area.wrapping_sub(1);
        if lines <= area - at {
            (at, self.data.wrapping_add(lines))
        } else {
            (0, self.data.wrapping_add(area - at + lines))
        }
    }
}

/// The writing end. There is one for a ring, in one process.
#[derive(Debug)]
pub struct Producer<'m> {
    /// Slots that may be written without looking at the consumer.
    free: u32,
    tail: Position,
    /// The slot that comes next.
    next: &'m CacheLine,
    /// Of the message that was begun: its length, or [`NONE`].
    begun_bytes: u32,
    /// Of that message: where the data lines stand behind it.
    begun_data: u32,
    slots: &'m [CacheLine],
    data: &'m [CacheLine],
    /// What the consumer had read when we last looked.
    seen: Position,
    control: &'m CacheLine,
    payload_max: usize,
}

impl<'m> Producer<'m> {
    /// Takes the writing end of the ring in `lines`, empty at `start`.
    ///
    /// # Panics
    /// If `layout` is not valid or does not fit `lines`.
    #[must_use]
    pub fn new(lines: &'m [CacheLine], layout: RingLayout, start: Position) -> Self {
        let (control, slots, data) = layout.split(lines);
        Self {
            free: layout.slots,
            tail: start,
            next: slot(slots, start.slots),
            begun_bytes: NONE,
            begun_data: 0,
            slots,
            data,
            seen: start,
            control,
            payload_max: layout.payload_bytes_max(),
        }
    }

    /// Where the next message goes.
    #[must_use]
    pub fn position(&self) -> Position {
        self.tail
    }

    /// Whether the consumer has said that it read everything. It says so only
    /// now and then: `false` may be old.
    ///
    /// # Errors
    /// [`Corrupt`].
    pub fn is_drained(&mut self) -> Result<bool, Corrupt> {
        self.look()?;
        Ok(self.seen == self.tail)
    }

    fn look(&mut self) -> Result<(), Corrupt> {
        let seen = Position::unpack(self.control.header().load(Ordering::Acquire));
        let slots = self.tail.slots.wrapping_sub(seen.slots);
        let data = self.tail.data.wrapping_sub(seen.data);
        if slots as usize > self.slots.len() || data as usize > self.data.len() {
            return Err(Corrupt);
        }
        self.seen = seen;
        self.free = (self.slots.len() - slots as usize) as u32;
        Ok(())
    }

    #[inline(always)]
    fn data_is_free(&self, end: u32) -> bool {
        end.wrapping_sub(self.seen.data) as usize <= self.data.len()
    }

    /// Reserves a slot for `bytes` of payload. Dropping it uncommitted leaves
    /// the ring as it was.
    ///
    /// # Errors
    /// [`ReserveError`].
    #[inline]
    pub fn reserve(&mut self, bytes: usize) -> Result<RingSlot<'_, 'm>, ReserveError> {
        Ok(RingSlot {
            room: self.place(bytes)?,
            producer: self,
        })
    }

    /// [`Producer::reserve`] for callers that carry the slot in a value of
    /// their own: gives where `bytes` of payload go, up to
    /// [`Producer::finish`]. Beginning anew forgets what was begun.
    ///
    /// # Errors
    /// [`ReserveError`].
    #[cfg(not(loom))]
    #[inline(always)]
    pub fn begin(&mut self, bytes: usize) -> Result<std::ptr::NonNull<u8>, ReserveError> {
        Ok(self.place(bytes)?.start())
    }

    /// Shows what was begun to the consumer, with a tag for it.
    ///
    /// # Panics
    /// If nothing was begun.
    #[inline(always)]
    pub fn finish(&mut self, tag: u16) {
        assert!(self.begun_bytes != NONE, "nothing was begun");
        let bytes = std::mem::replace(&mut self.begun_bytes, NONE);
        self.tail.data = self.begun_data;
        self.show(bytes as usize, tag);
    }

    /// Shows a message of two parts to the consumer, with tag 0; false, and nothing has changed,
    /// if it does not fit a line, or there may be no room.
    #[cfg(not(loom))]
    #[inline(always)]
    pub fn push_short<const N: usize>(&mut self, head: &[u8; N], rest: &[u8]) -> bool {
        if self.free == 0 || rest.len() > const { INLINE_BYTES - N } {
            return false;
        }
        let mut room = Room::short(self.next, N + rest.len());
        let (to_head, to_rest) = room.bytes_mut().split_at_mut(N);
        to_head.copy_from_slice(head);
        to_rest.copy_from_slice(rest);
        self.show(N + rest.len(), 0);
        true
    }

    /// Shows the message in the next slot.
    #[inline(always)]
    fn show(&mut self, bytes: usize, tag: u16) {
        let number = self.tail.slots.wrapping_add(1);
        let header = Header {
            sequence: number,
            // No longer payload got a place.
            bytes: bytes as u16,
            tag,
        };
        self.next.header().store(header.pack(), Ordering::Release);
        self.tail.slots = number;
        self.free -= 1;
        self.next = slot(self.slots, number);
    }

    #[inline(always)]
    fn place(&mut self, bytes: usize) -> Result<Room<'m>, ReserveError> {
        if bytes > INLINE_BYTES {
            return self.place_long(bytes);
        }
        if self.free == 0 {
            self.find_free()?;
        }
        self.begun_bytes = bytes as u32;
        self.begun_data = self.tail.data;
        Ok(Room::short(self.next, bytes))
    }

    #[cold]
    fn find_free(&mut self) -> Result<(), ReserveError> {
        self.look()?;
        if self.free == 0 {
            return Err(ReserveError::Full);
        }
        Ok(())
    }

    #[inline(never)]
    fn place_long(&mut self, bytes: usize) -> Result<Room<'m>, ReserveError> {
        if bytes > self.payload_max {
            return Err(ReserveError::TooBig);
        }
        let lines = lines_of(bytes);
        let (at, end) = self.tail.place(lines as u32, self.data.len() as u32);
        if self.free == 0 || !self.data_is_free(end) {
            self.look()?;
            if self.free == 0 || !self.data_is_free(end) {
                return Err(ReserveError::Full);
            }
        }
        self.begun_bytes = bytes as u32;
        self.begun_data = end;
        Ok(Room::long(&self.data[at as usize..][..lines], bytes))
    }
}

/// A reserved slot of a [`Producer`].
#[derive(Debug)]
pub struct RingSlot<'p, 'm> {
    room: Room<'m>,
    producer: &'p mut Producer<'m>,
}

impl RingSlot<'_, '_> {
    /// Where the payload goes. Write only: other processes see it.
    #[cfg(not(loom))]
    #[inline(always)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.room.bytes_mut()
    }

    /// Writes payload word `index`.
    ///
    /// # Panics
    /// Beyond the payload.
    pub fn set_word(&mut self, index: usize, value: u64) {
        self.room.set_word(index, value);
    }

    /// Shows the message to the consumer, with a tag for it.
    #[inline(always)]
    pub fn commit(self, tag: u16) {
        self.producer.finish(tag);
    }
}

/// The reading end. There is one for a ring, in one process.
#[derive(Debug)]
pub struct Consumer<'m> {
    /// The slot in which the next message will appear, and its number there.
    next: &'m CacheLine,
    expected: u32,
    /// Where the producer is told next.
    tell_at: u32,
    head: Position,
    slots: &'m [CacheLine],
    data: &'m [CacheLine],
    /// What the producer has been told.
    told: Position,
    control: &'m CacheLine,
    payload_max: usize,
}

impl<'m> Consumer<'m> {
    /// Takes the reading end of the ring in `lines`, which is read from
    /// `start` on.
    ///
    /// # Panics
    /// If `layout` is not valid or does not fit `lines`.
    #[must_use]
    pub fn new(lines: &'m [CacheLine], layout: RingLayout, start: Position) -> Self {
        let (control, slots, data) = layout.split(lines);
        Self {
            next: slot(slots, start.slots),
            expected: start.slots.wrapping_add(1),
            tell_at: start.slots.wrapping_add(layout.slots.div_ceil(4)),
            head: start,
            slots,
            data,
            told: start,
            control,
            payload_max: layout.payload_bytes_max(),
        }
    }

    /// How far it has read.
    #[must_use]
    pub fn position(&self) -> Position {
        self.head
    }

    /// Whether a message waits.
    #[inline(always)]
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.next.header().load(Ordering::Acquire) as u32 == self.expected
    }

    /// Whether the next slot holds a message or what stood there a lap before,
    /// in a ring that was [cleared](RingLayout::clear): else somebody has
    /// scribbled over it, and no message will ever appear.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let sequence = self.next.header().load(Ordering::Acquire) as u32;
        let ahead = self.expected.wrapping_sub(sequence);
        ahead == 0 || ahead as usize == self.slots.len()
    }

    /// The next message, if one waits. It stays there until [`Consumer::advance`].
    ///
    /// # Errors
    /// [`Corrupt`].
    #[inline(always)]
    pub fn peek(&self) -> Result<Option<RingMessage<'m>>, Corrupt> {
        let header = Header::unpack(self.next.header().load(Ordering::Acquire));
        if header.sequence != self.expected {
            return Ok(None);
        }
        if header.bytes as usize <= INLINE_BYTES {
            return Ok(Some(RingMessage::short(self.next, header)));
        }
        self.peek_long(header).map(Some)
    }

    #[inline(never)]
    fn peek_long(&self, header: Header) -> Result<RingMessage<'m>, Corrupt> {
        if header.bytes as usize > self.payload_max {
            return Err(Corrupt);
        }
        let lines = lines_of(header.bytes as usize);
        let (at, _) = self.head.place(lines as u32, self.data.len() as u32);
        Ok(RingMessage::long(
            &self.data[at as usize..][..lines],
            header,
        ))
    }

    /// The next message, if one waits that fits a line and has tag 0: the
    /// shortest look. It stays there until [`Consumer::advance_short`].
    #[inline(always)]
    #[must_use]
    pub fn peek_short(&self) -> Option<Short> {
        let header = self.next.header().load(Ordering::Acquire);
        if header as u32 != self.expected {
            return None;
        }
        // The tag stands above the length: one look at both.
        Short::of(self.next, (header >> 32) as usize)
    }

    /// Goes on behind what [`Consumer::peek_short`] gave last. True when the
    /// producer has now been told of freed room.
    #[inline(always)]
    pub fn advance_short(&mut self) -> bool {
        self.head.slots = self.expected;
        self.next = slot(self.slots, self.expected);
        self.expected = self.expected.wrapping_add(1);
        if self.head.slots == self.tell_at {
            self.publish();
            return true;
        }
        false
    }

    /// Goes on behind `message`, which [`Consumer::peek`] gave last. True when
    /// the producer has now been told of freed room.
    #[inline(always)]
    pub fn advance(&mut self, message: &RingMessage<'_>) -> bool {
        let told = self.advance_short();
        let enough = message.len() > INLINE_BYTES && self.advance_data(message.len());
        if enough && !told {
            self.publish();
        }
        told || enough
    }

    /// True when so much of the data lines is free that it should be told.
    fn advance_data(&mut self, bytes: usize) -> bool {
        let area = self.data.len() as u32;
        (_, self.head.data) = self.head.place(lines_of(bytes) as u32, area);
        self.head.data.wrapping_sub(self.told.data) >= area / 4
    }

    /// Tells the producer how far it has read.
    pub fn publish(&mut self) {
        self.told = self.head;
        self.tell_at = (self.head.slots).wrapping_add(self.slots.len().div_ceil(4) as u32);
        self.control
            .header()
            .store(self.head.pack(), Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LAYOUT: RingLayout = RingLayout {
        slots: 4,
        data_lines: 16,
    };

    fn lines() -> Vec<CacheLine> {
        std::iter::repeat_with(CacheLine::default)
            .take(LAYOUT.lines())
            .collect()
    }

    fn send(p: &mut Producer<'_>, bytes: &[u8], tag: u16) -> Result<(), ReserveError> {
        let mut slot = p.reserve(bytes.len())?;
        slot.bytes_mut().copy_from_slice(bytes);
        slot.commit(tag);
        Ok(())
    }

    fn receive(c: &mut Consumer<'_>) -> Option<(Vec<u8>, u16)> {
        let message = c.peek().unwrap()?;
        let mut bytes = vec![0; message.len()];
        message.copy_to(0, &mut bytes);
        c.advance(&message);
        Some((bytes, message.tag()))
    }

    #[test]
    fn a_slot_that_was_scribbled_over_is_told_from_an_empty_one() {
        let lines = lines();
        for garbage in [0, 5, 0x5a5a_5a5a_5a5a_5a5a, u64::MAX] {
            for start in [0, 2, u32::MAX - 1] {
                let start = Position {
                    slots: start,
                    data: 0,
                };
                LAYOUT.clear(&lines, start);
                let mut producer = Producer::new(&lines, LAYOUT, start);
                let mut consumer = Consumer::new(&lines, LAYOUT, start);
                for n in 0..3 * LAYOUT.slots {
                    assert!(consumer.is_sound() && !consumer.is_ready());
                    send(&mut producer, &[1; 60], 0).unwrap();
                    assert!(consumer.is_sound() && consumer.is_ready(), "{n}");
                    receive(&mut consumer).unwrap();
                }
                for line in &lines {
                    line.word(0).store(garbage, Ordering::Relaxed);
                }
                assert!(!consumer.is_sound(), "{garbage:x} {start:?}");
            }
        }
    }

    #[test]
    fn every_length_arrives_in_order_across_the_wrap_of_all_counters() {
        let lines = lines();
        let start = Position {
            slots: u32::MAX - 5,
            data: u32::MAX - 20,
        };
        let mut p = Producer::new(&lines, LAYOUT, start);
        let mut c = Consumer::new(&lines, LAYOUT, start);
        c.publish();
        for round in 0..1000usize {
            let bytes: Vec<u8> = (0..round % (LAYOUT.payload_bytes_max() + 1))
                .map(|i| (i + round) as u8)
                .collect();
            send(&mut p, &bytes, round as u16).unwrap();
            assert!(c.is_ready());
            assert_eq!(receive(&mut c), Some((bytes, round as u16)));
            assert!(!c.is_ready());
        }
    }

    #[test]
    fn two_parts_that_fit_a_line_are_shown_at_once_and_in_order() {
        let lines = lines();
        let mut p = Producer::new(&lines, LAYOUT, Position::default());
        let mut c = Consumer::new(&lines, LAYOUT, Position::default());
        for round in 0..200_u8 {
            let rest = vec![round; usize::from(round) % (INLINE_BYTES - 2)];
            let frame = [&[round, 1], &rest[..]].concat();
            // Only the other way asks the consumer for room.
            if !p.push_short(&[round, 1], &rest) {
                send(&mut p, &frame, 0).unwrap();
            }
            send(&mut p, &[round; 60], 0).unwrap();
            let short = c.peek_short().unwrap();
            assert_eq!(short.bytes(), frame);
            c.advance_short();
            assert!(c.peek_short().is_none(), "longer than a line");
            assert_eq!(receive(&mut c), Some((vec![round; 60], 0)));
        }
        send(&mut p, &[], 1).unwrap();
        assert!(c.peek_short().is_none(), "another tag");
        assert!(!p.push_short(&[0; 2], &[0; INLINE_BYTES - 1]));
        while p.push_short(&[0; 2], &[0; INLINE_BYTES - 2]) {}
        assert_eq!(send(&mut p, &[], 0), Err(ReserveError::Full));
    }

    #[test]
    fn a_full_ring_refuses_and_reading_makes_room() {
        let lines = lines();
        let mut p = Producer::new(&lines, LAYOUT, Position::default());
        let mut c = Consumer::new(&lines, LAYOUT, Position::default());
        for i in 0..4 {
            send(&mut p, &[i], 0).unwrap();
        }
        assert_eq!(send(&mut p, &[4], 0), Err(ReserveError::Full));
        assert_eq!(p.is_drained(), Ok(false));
        assert_eq!(receive(&mut c).unwrap().0, [0]);
        send(&mut p, &[4], 0).unwrap();
        for i in 1..5 {
            assert_eq!(receive(&mut c).unwrap().0, [i]);
        }
        assert_eq!(receive(&mut c), None);
        assert_eq!(p.is_drained(), Ok(true));
        // Data lines run out before slots do.
        let long = vec![9; LAYOUT.payload_bytes_max()];
        for _ in 0..4 {
            send(&mut p, &long, 0).unwrap();
        }
        while receive(&mut c).is_some() {}
        let odd = vec![8; 3 * 64];
        let mut sent = 0;
        while send(&mut p, &odd, 0).is_ok() {
            sent += 1;
        }
        assert!((3..=5).contains(&sent), "{sent}");
        assert_eq!(
            p.reserve(LAYOUT.payload_bytes_max() + 1).unwrap_err(),
            ReserveError::TooBig
        );
    }

    #[test]
    fn a_slot_dropped_uncommitted_was_never_there() {
        let lines = lines();
        let mut p = Producer::new(&lines, LAYOUT, Position::default());
        let mut c = Consumer::new(&lines, LAYOUT, Position::default());
        p.reserve(100).unwrap().bytes_mut().fill(1);
        p.reserve(8).unwrap().set_word(0, 5);
        send(&mut p, b"real", 3).unwrap();
        assert_eq!(receive(&mut c), Some((b"real".to_vec(), 3)));
        assert_eq!(receive(&mut c), None);
    }

    #[test]
    fn impossible_values_are_errors() {
        let lines = lines();
        let mut p = Producer::new(&lines, LAYOUT, Position::default());
        let c = Consumer::new(&lines, LAYOUT, Position::default());
        // A length that the data lines cannot hold.
        let header = Header {
            sequence: 1,
            bytes: u16::MAX,
            tag: 0,
        };
        lines[1].header().store(header.pack(), Ordering::Relaxed);
        assert!(matches!(c.peek(), Err(Corrupt)));
        // A reader ahead of the writer.
        lines[0].header().store(1, Ordering::Relaxed);
        assert_eq!(p.is_drained(), Err(Corrupt));
        for i in 0..4 {
            send(&mut p, &[i], 0).unwrap();
        }
        lines[0].header().store(5, Ordering::Relaxed);
        assert_eq!(send(&mut p, &[4], 0), Err(ReserveError::Corrupt));
    }
}
