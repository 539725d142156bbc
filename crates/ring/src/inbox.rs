//! The inbox: many producers, one consumer.
//!
//! | lines | what |
//! | --- | --- |
//! | 1 | control: word 0 counts claimed slots |
//! | blocks / 8, rounded up | one owner word for each block: 0 free, else producer + 1 |
//! | slots | header and up to 56 payload bytes, or the number of a block |
//! | blocks × block_lines | payloads longer than that |
//!
//! A producer claims a slot by putting its name into the slot's own header.
//! So when a producer dies between claim and commit, the consumer knows whose
//! slot it is and passes over it; and while one is merely slow, the others'
//! messages behind it are read ([`SKIP_WINDOW`] slots far).
//!
//! The header's sequence field is the slot's turn: `2 lap` free or claimed,
//! `2 lap + 1` committed. A block is freed by the consumer, so every producer
//! may use any.

use crate::atomic::{AtomicU64, Ordering};
use crate::line::{CacheLine, Header, RingMessage, Room, lines_of};
use crate::{Corrupt, INLINE_BYTES, ReserveError};

/// How many slots from the first unread one the consumer looks at, when that
/// one cannot be read yet.
pub const SKIP_WINDOW: u32 = 64;

/// Producers at most: their numbers travel in 12 bits.
const PRODUCERS_MAX: u16 = 1 << 12;
const KIND_SHIFT: u32 = 12;
/// Kinds that users may give to messages: below this.
const KINDS: u16 = 14;
const KIND_ABANDONED: u16 = 14;
const KIND_CLAIMED: u16 = 15;

/// Sizes of an inbox. All its users must agree on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboxLayout {
    /// Slots, a power of two, at least 2.
    pub slots: u32,
    /// Blocks for long payloads; may be 0.
    pub blocks: u32,
    /// Lines of a block.
    pub block_lines: u32,
}

impl InboxLayout {
    /// Whether the numbers are as their description asks.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.slots.is_power_of_two()
            && self.slots >= 2
            && self.slots <= 1 << 24
            && self.blocks <= 1 << 16
            && self.block_lines <= 1 << 10
    }

    const fn owner_lines(&self) -> usize {
        self.blocks.div_ceil(8) as usize
    }

    /// Lines that an inbox takes.
    #[must_use]
    pub const fn lines(&self) -> usize {
        1 + self.owner_lines()
            + self.slots as usize
            + self.blocks as usize * self.block_lines as usize
    }

    /// Longest payload.
    #[must_use]
    pub const fn payload_bytes_max(&self) -> usize {
        let block = self.block_lines as usize * crate::LINE_BYTES;
        if self.blocks == 0 || block <= INLINE_BYTES {
            INLINE_BYTES
        } else if block > u16::MAX as usize {
            u16::MAX as usize
        } else {
            block
        }
    }
}

/// The parts of an inbox, as both ends see them.
#[derive(Clone, Copy, Debug)]
struct Parts<'m> {
    slots: &'m [CacheLine],
    owners: &'m [CacheLine],
    blocks: &'m [CacheLine],
    layout: InboxLayout,
    lap_shift: u32,
}

impl<'m> Parts<'m> {
    fn new(lines: &'m [CacheLine], layout: InboxLayout) -> (&'m CacheLine, Self) {
        assert!(layout.is_valid() && lines.len() == layout.lines());
        let (control, rest) = lines.split_at(1);
        let (owners, rest) = rest.split_at(layout.owner_lines());
        let (slots, blocks) = rest.split_at(layout.slots as usize);
        let parts = Self {
            slots,
            owners,
            blocks,
            layout,
            lap_shift: layout.slots.trailing_zeros(),
        };
        (&control[0], parts)
    }

    #[inline(always)]
    fn slot(&self, position: u64) -> &'m CacheLine {
        &self.slots[position as usize & (self.slots.len() - 1)]
    }

    /// Turn of a slot that is free at `position`.
    #[inline(always)]
    fn turn(&self, position: u64) -> u32 {
        ((position >> self.lap_shift) as u32).wrapping_mul(2)
    }

    fn owner(&self, block: u32) -> &'m AtomicU64 {
        self.owners[block as usize / 8].word(block as usize % 8)
    }

    fn block(&self, block: u32, bytes: usize) -> &'m [CacheLine] {
        let start = block as usize * self.layout.block_lines as usize;
        &self.blocks[start..][..lines_of(bytes)]
    }
}

const fn free(turn: u32) -> u64 {
    Header {
        sequence: turn,
        bytes: 0,
        tag: 0,
    }
    .pack()
}

const fn claimed(turn: u32, producer: u16) -> u64 {
    Header {
        sequence: turn,
        bytes: 0,
        tag: KIND_CLAIMED << KIND_SHIFT | producer,
    }
    .pack()
}

/// A writing end. There is one for each producer number.
#[derive(Debug)]
pub struct InboxProducer<'m> {
    tail: &'m AtomicU64,
    parts: Parts<'m>,
    producer: u16,
    begun: Option<Begun<'m>>,
}

/// A slot that is claimed and not yet committed.
#[derive(Debug)]
struct Begun<'m> {
    line: &'m CacheLine,
    turn: u32,
    bytes: u16,
    block: Option<u32>,
}

impl<'m> InboxProducer<'m> {
    /// Takes producer number `producer`'s end of the inbox in `lines`.
    ///
    /// # Panics
    /// If `layout` is not valid or does not fit `lines`, or `producer` is
    /// beyond 4,095.
    #[must_use]
    pub fn new(lines: &'m [CacheLine], layout: InboxLayout, producer: u16) -> Self {
        assert!(producer < PRODUCERS_MAX);
        let (control, parts) = Parts::new(lines, layout);
        Self {
            tail: control.header(),
            parts,
            producer,
            begun: None,
        }
    }

    /// Claims a slot for `bytes` of payload. Commit it soon: until then later
    /// messages of others get by only within [`SKIP_WINDOW`]. Dropping it
    /// gives it up.
    ///
    /// # Errors
    /// [`ReserveError::Full`], [`ReserveError::TooBig`].
    pub fn reserve(&mut self, bytes: usize) -> Result<InboxSlot<'_, 'm>, ReserveError> {
        Ok(InboxSlot {
            room: self.place(bytes)?,
            owner: self,
        })
    }

    /// [`InboxProducer::reserve`] for callers that carry the slot in a value
    /// of their own: gives where `bytes` of payload go, up to
    /// [`InboxProducer::finish`] or [`InboxProducer::abandon`].
    ///
    /// # Errors
    /// As [`InboxProducer::reserve`].
    #[cfg(not(loom))]
    pub fn begin(&mut self, bytes: usize) -> Result<std::ptr::NonNull<u8>, ReserveError> {
        Ok(self.place(bytes)?.start())
    }

    /// Shows what was begun to the consumer.
    ///
    /// # Panics
    /// If nothing was begun, or `kind` is 14 or more.
    pub fn finish(&mut self, kind: u16) {
        assert!(kind < KINDS);
        let begun = self.begun.take().expect("nothing was begun");
        self.publish(&begun, kind, begun.bytes);
    }

    /// Gives up what was begun, if anything was.
    pub fn abandon(&mut self) {
        if let Some(begun) = self.begun.take() {
            if let Some(block) = begun.block {
                self.parts.owner(block).store(0, Ordering::Release);
            }
            self.publish(&begun, KIND_ABANDONED, 0);
        }
    }

    fn publish(&self, begun: &Begun<'_>, kind: u16, bytes: u16) {
        let header = Header {
            sequence: begun.turn.wrapping_add(1),
            bytes,
            tag: kind << KIND_SHIFT | self.producer,
        };
        begun.line.header().store(header.pack(), Ordering::Release);
    }

    fn place(&mut self, bytes: usize) -> Result<Room<'m>, ReserveError> {
        self.abandon();
        if bytes > self.parts.layout.payload_bytes_max() {
            return Err(ReserveError::TooBig);
        }
        // The block first: a slot that nobody fills is in the way of others.
        let block = if bytes > INLINE_BYTES {
            Some(self.claim_block()?)
        } else {
            None
        };
        let Some(position) = self.claim_slot() else {
            if let Some(block) = block {
                self.parts.owner(block).store(0, Ordering::Release);
            }
            return Err(ReserveError::Full);
        };
        let line = self.parts.slot(position);
        self.begun = Some(Begun {
            line,
            turn: self.parts.turn(position),
            // Checked above.
            bytes: bytes as u16,
            block,
        });
        Ok(match block {
            None => Room::short(line, bytes),
            Some(block) => {
                line.word(1).store(u64::from(block), Ordering::Relaxed);
                Room::long(self.parts.block(block, bytes), bytes)
            }
        })
    }

    /// Whether `bytes` of payload would find room now, as far as one look
    /// tells: others may be quicker.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        let position = self.tail.load(Ordering::Acquire);
        let header = self.parts.slot(position).header().load(Ordering::Acquire);
        let turn = self.parts.turn(position);
        let slot = Header::unpack(header).sequence.wrapping_sub(turn) as i32 >= 0;
        let block = |b| self.parts.owner(b).load(Ordering::Acquire) == 0;
        slot && (bytes <= INLINE_BYTES || (0..self.parts.layout.blocks).any(block))
    }

    fn claim_block(&mut self) -> Result<u32, ReserveError> {
        let blocks = self.parts.layout.blocks;
        let mine = u64::from(self.producer) + 1;
        // Producers begin at different blocks, so that they rarely meet.
        (0..blocks)
            .map(|i| (u32::from(self.producer) + i) % blocks)
            .find(|&block| {
                self.parts
                    .owner(block)
                    .compare_exchange(0, mine, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            })
            .ok_or(ReserveError::Full)
    }

    fn claim_slot(&mut self) -> Option<u64> {
        let mut position = self.tail.load(Ordering::Relaxed);
        // Each round that ends without a slot, another producer has got one;
        // the bound only keeps a scribbled tail from holding us here.
        for _ in 0..2 * self.parts.slots.len() {
            let turn = self.parts.turn(position);
            let header = self.parts.slot(position).header();
            let now = header.load(Ordering::Acquire);
            if now == free(turn) {
                let mine = claimed(turn, self.producer);
                let claim =
                    header.compare_exchange(now, mine, Ordering::Acquire, Ordering::Relaxed);
                if claim.is_ok() {
                    self.advance_tail(position);
                    return Some(position);
                }
            } else if (Header::unpack(now).sequence.wrapping_sub(turn) as i32) < 0 {
                // Still of the lap before: the consumer has not read it.
                return None;
            }
            self.advance_tail(position);
            let tail = self.tail.load(Ordering::Relaxed);
            position = if tail > position {
                tail
            } else {
                position.wrapping_add(1)
            };
        }
        None
    }

    /// The tail is a hint that whoever finds a slot taken moves on.
    fn advance_tail(&self, position: u64) {
        let _ = self.tail.compare_exchange(
            position,
            position.wrapping_add(1),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }
}

/// A claimed slot of an inbox.
#[derive(Debug)]
pub struct InboxSlot<'p, 'm> {
    room: Room<'m>,
    owner: &'p mut InboxProducer<'m>,
}

impl InboxSlot<'_, '_> {
    /// Where the payload goes. Write only: other processes see it.
    #[cfg(not(loom))]
    #[inline]
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

    /// Shows the message to the consumer.
    ///
    /// # Panics
    /// If `kind` is 14 or more.
    pub fn commit(self, kind: u16) {
        self.owner.finish(kind);
    }
}

impl Drop for InboxSlot<'_, '_> {
    fn drop(&mut self) {
        // After a commit there is nothing to give up.
        self.owner.abandon();
    }
}

/// The reading end. There is one for an inbox, in one process.
#[derive(Debug)]
pub struct InboxConsumer<'m> {
    /// The first unread slot's header, and what it holds while nothing came.
    next: &'m AtomicU64,
    quiet: u64,
    head: u64,
    parts: Parts<'m>,
    /// Bit i: slot head + i has been read already.
    ahead: u64,
    /// Producers that have a message further ahead which cannot be read or
    /// was left, for the rest of a pass: a bit each.
    left: Box<[u64]>,
    any_left: bool,
}

impl<'m> InboxConsumer<'m> {
    /// Takes the reading end of the inbox in `lines`, fresh or never read.
    ///
    /// # Panics
    /// If `layout` is not valid or does not fit `lines`.
    #[must_use]
    pub fn new(lines: &'m [CacheLine], layout: InboxLayout) -> Self {
        let parts = Parts::new(lines, layout).1;
        Self {
            next: parts.slot(0).header(),
            quiet: free(parts.turn(0)),
            head: 0,
            parts,
            ahead: 0,
            left: vec![0; PRODUCERS_MAX as usize / 64].into(),
            any_left: false,
        }
    }

    /// Whether something stands at the head that a pass would look at.
    #[inline(always)]
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.next.load(Ordering::Acquire) != self.quiet
    }

    /// Shows up to `max` messages to `take(from, kind, message)`, each
    /// producer's in order. `false` leaves that message, and whatever follows
    /// from the same producer, to the next pass. `dead(producer)` says whose
    /// unfinished slots are to be passed over. Gives how many were taken.
    ///
    /// # Errors
    /// [`Corrupt`]; the slot that was so is passed over.
    #[inline(always)]
    pub fn poll(
        &mut self,
        max: usize,
        dead: impl FnMut(u16) -> bool,
        take: impl FnMut(u16, u16, &RingMessage<'m>) -> bool,
    ) -> Result<usize, Corrupt> {
        if !self.is_ready() {
            return Ok(0);
        }
        self.pass(max, dead, take)
    }

    fn pass(
        &mut self,
        max: usize,
        mut dead: impl FnMut(u16) -> bool,
        mut take: impl FnMut(u16, u16, &RingMessage<'m>) -> bool,
    ) -> Result<usize, Corrupt> {
        if std::mem::take(&mut self.any_left) {
            self.left.fill(0);
        }
        let mut taken = 0;
        let mut offset = 0;
        let window = SKIP_WINDOW.min(self.parts.slots.len() as u32);
        while taken < max && offset < window {
            if self.ahead & 1 << offset != 0 {
                offset += 1;
                continue;
            }
            let position = self.head.wrapping_add(u64::from(offset));
            let (line, turn) = (self.parts.slot(position), self.parts.turn(position));
            let word = line.header().load(Ordering::Acquire);
            let header = Header::unpack(word);
            let from = header.tag & (PRODUCERS_MAX - 1);
            let kind = header.tag >> KIND_SHIFT;
            if word == free(turn) {
                // Slots are claimed in order: nothing is behind it.
                break;
            }
            if header.sequence == turn && kind == KIND_CLAIMED {
                if !dead(from) {
                    // It may commit this one and more while we go on.
                    self.leave(from);
                    offset += 1;
                    continue;
                }
                // Unless it was committed just now; then it is read next time.
                let next = free(turn.wrapping_add(2));
                if line
                    .header()
                    .compare_exchange(word, next, Ordering::Release, Ordering::Relaxed)
                    .is_ok()
                {
                    self.finish(&mut offset);
                }
                continue;
            }
            if header.sequence != turn.wrapping_add(1) || kind == KIND_CLAIMED {
                self.release(position);
                self.finish(&mut offset);
                return Err(Corrupt);
            }
            if kind != KIND_ABANDONED {
                if self.is_left(from) {
                    offset += 1;
                    continue;
                }
                match self.message(line, header) {
                    Ok((message, block)) => {
                        if !take(from, kind, &message) {
                            self.leave(from);
                            offset += 1;
                            continue;
                        }
                        taken += 1;
                        if let Some(block) = block {
                            self.parts.owner(block).store(0, Ordering::Release);
                        }
                    }
                    Err(Corrupt) => {
                        self.release(position);
                        self.finish(&mut offset);
                        return Err(Corrupt);
                    }
                }
            }
            self.release(position);
            self.finish(&mut offset);
        }
        Ok(taken)
    }

    fn leave(&mut self, producer: u16) {
        self.left[producer as usize / 64] |= 1 << (producer % 64);
        self.any_left = true;
    }

    fn is_left(&self, producer: u16) -> bool {
        self.any_left && self.left[producer as usize / 64] & 1 << (producer % 64) != 0
    }

    fn message(
        &self,
        line: &CacheLine,
        header: Header,
    ) -> Result<(RingMessage<'m>, Option<u32>), Corrupt> {
        let bytes = header.bytes as usize;
        if bytes <= INLINE_BYTES {
            return Ok((RingMessage::short(line, header), None));
        }
        let block = line.word(1).load(Ordering::Relaxed);
        if bytes > self.parts.layout.payload_bytes_max()
            || block >= u64::from(self.parts.layout.blocks)
        {
            return Err(Corrupt);
        }
        let block = block as u32;
        let lines = self.parts.block(block, bytes);
        Ok((RingMessage::long(lines, header), Some(block)))
    }

    /// Gives the slot at `position` to the producers of the next lap.
    fn release(&self, position: u64) {
        let next = free(self.parts.turn(position).wrapping_add(2));
        self.parts
            .slot(position)
            .header()
            .store(next, Ordering::Release);
    }

    /// The slot at head + `offset` is done; head moves to the first that is not.
    fn finish(&mut self, offset: &mut u32) {
        self.ahead |= 1 << *offset;
        let done = self.ahead.trailing_ones();
        self.ahead = self.ahead.checked_shr(done).unwrap_or(0);
        self.head = self.head.wrapping_add(u64::from(done));
        self.next = self.parts.slot(self.head).header();
        self.quiet = free(self.parts.turn(self.head));
        *offset = (*offset + 1).saturating_sub(done);
    }

    /// Frees the blocks that a dead producer holds, if none of its messages
    /// waits any more. Gives false while some do: call again after a pass.
    pub fn forget(&mut self, producer: u16) -> bool {
        if self.is_ready() {
            return false;
        }
        let held = u64::from(producer) + 1;
        for block in 0..self.parts.layout.blocks {
            let _ = self.parts.owner(block).compare_exchange(
                held,
                0,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LAYOUT: InboxLayout = InboxLayout {
        slots: 4,
        blocks: 2,
        block_lines: 2,
    };

    fn lines() -> Vec<CacheLine> {
        std::iter::repeat_with(CacheLine::default)
            .take(LAYOUT.lines())
            .collect()
    }

    fn send(p: &mut InboxProducer<'_>, bytes: &[u8]) -> Result<(), ReserveError> {
        let mut slot = p.reserve(bytes.len())?;
        slot.bytes_mut().copy_from_slice(bytes);
        slot.commit(0);
        Ok(())
    }

    fn all(c: &mut InboxConsumer<'_>, refuse: Option<u16>, dead: bool) -> Vec<(u16, Vec<u8>)> {
        let mut got = Vec::new();
        c.poll(
            usize::MAX,
            |_| dead,
            |from, _, m| {
                if Some(from) == refuse {
                    return false;
                }
                let mut bytes = vec![0; m.len()];
                m.copy_to(0, &mut bytes);
                got.push((from, bytes));
                true
            },
        )
        .unwrap();
        got
    }

    #[test]
    fn messages_of_all_lengths_come_in_order_over_many_laps() {
        let lines = lines();
        let mut a = InboxProducer::new(&lines, LAYOUT, 1);
        let mut b = InboxProducer::new(&lines, LAYOUT, 4095);
        let mut c = InboxConsumer::new(&lines, LAYOUT);
        assert!(!c.is_ready());
        for round in 0..300usize {
            let bytes = vec![round as u8; round % (LAYOUT.payload_bytes_max() + 1)];
            send(&mut a, &bytes).unwrap();
            send(&mut b, &bytes).unwrap();
            send(&mut a, &[7]).unwrap();
            assert_eq!(
                all(&mut c, None, false),
                [(1, bytes.clone()), (4095, bytes), (1, vec![7])]
            );
        }
        assert!(!c.is_ready());
        assert_eq!(
            a.reserve(LAYOUT.payload_bytes_max() + 1).unwrap_err(),
            ReserveError::TooBig
        );
    }

    #[test]
    fn slots_and_blocks_run_out_and_come_back() {
        let lines = lines();
        let mut a = InboxProducer::new(&lines, LAYOUT, 0);
        let mut c = InboxConsumer::new(&lines, LAYOUT);
        let long = [3; 100];
        send(&mut a, &long).unwrap();
        send(&mut a, &long).unwrap();
        assert_eq!(send(&mut a, &long), Err(ReserveError::Full));
        send(&mut a, &[1]).unwrap();
        send(&mut a, &[2]).unwrap();
        assert_eq!(send(&mut a, &[3]), Err(ReserveError::Full));
        assert_eq!(all(&mut c, None, false).len(), 4);
        // A claim that finds no slot gives its block back.
        for _ in 0..4 {
            send(&mut a, &[0]).unwrap();
        }
        for _ in 0..4 {
            assert_eq!(send(&mut a, &long), Err(ReserveError::Full));
        }
        assert_eq!(all(&mut c, None, false).len(), 4);
        send(&mut a, &long).unwrap();
        send(&mut a, &long).unwrap();
    }

    #[test]
    fn a_message_left_holds_back_its_producer_only() {
        let lines = lines();
        let mut a = InboxProducer::new(&lines, LAYOUT, 1);
        let mut b = InboxProducer::new(&lines, LAYOUT, 2);
        let mut c = InboxConsumer::new(&lines, LAYOUT);
        send(&mut a, &[1]).unwrap();
        send(&mut b, &[2]).unwrap();
        send(&mut a, &[3]).unwrap();
        send(&mut b, &[4]).unwrap();
        assert_eq!(all(&mut c, Some(1), false), [(2, vec![2]), (2, vec![4])]);
        // The slot at the head is still held: the inbox is full.
        assert_eq!(send(&mut b, &[5]), Err(ReserveError::Full));
        assert_eq!(all(&mut c, Some(2), false), [(1, vec![1]), (1, vec![3])]);
        send(&mut b, &[5]).unwrap();
        assert_eq!(all(&mut c, None, false), [(2, vec![5])]);
    }

    #[test]
    fn a_producer_that_stops_or_dies_between_claim_and_commit_is_passed() {
        let lines = lines();
        let mut a = InboxProducer::new(&lines, LAYOUT, 1);
        let mut b = InboxProducer::new(&lines, LAYOUT, 2);
        let mut c = InboxConsumer::new(&lines, LAYOUT);
        let stopped = a.reserve(100).unwrap();
        send(&mut b, &[1]).unwrap();
        send(&mut b, &[2]).unwrap();
        assert_eq!(all(&mut c, None, false), [(2, vec![1]), (2, vec![2])]);
        assert!(c.is_ready() && !c.forget(1));
        // It dies: its slot is passed over, its block comes back.
        std::mem::forget(stopped);
        assert_eq!(all(&mut c, None, true), []);
        assert!(c.forget(1));
        let mut a = InboxProducer::new(&lines, LAYOUT, 1);
        for _ in 0..2 {
            send(&mut b, &[0; 100]).unwrap();
        }
        assert_eq!(all(&mut c, None, true).len(), 2);
        // One that is given up is passed over too.
        drop(a.reserve(100).unwrap());
        drop(a.reserve(1).unwrap());
        send(&mut a, &[9; 128]).unwrap();
        send(&mut b, &[9; 128]).unwrap();
        assert_eq!(all(&mut c, None, false).len(), 2);
    }

    #[test]
    fn impossible_values_are_errors_and_do_not_stop_the_others() {
        let lines = lines();
        let mut a = InboxProducer::new(&lines, LAYOUT, 1);
        let mut c = InboxConsumer::new(&lines, LAYOUT);
        send(&mut a, &[0; 100]).unwrap();
        send(&mut a, &[2]).unwrap();
        lines[2].word(1).store(2, Ordering::Relaxed);
        let mut poll = || c.poll(9, |_| false, |_, _, m| m.word(0) == 2);
        assert_eq!(poll(), Err(Corrupt));
        assert_eq!(poll(), Ok(1));
        // A tail far off is not followed for ever.
        for tail in [1 << 40, u64::MAX, 1] {
            lines[0].header().store(tail, Ordering::Relaxed);
            let _ = send(&mut a, &[1]);
        }
    }
}
