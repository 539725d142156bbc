//! The receiving half of a port: which ring or inbox is looked at when.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use portolan_ring::{Consumer, Corrupt, InboxConsumer, Position, RingMessage};
use portolan_wire::Priority;

use super::super::segment::{Map, PeerState, Unknown, ring_owner_word};
use super::super::send::Outgoing;
use super::{Frame, HEAD_BYTES_MAX, PollError, extend, kind};

/// Quiet rings that one poll looks at.
const RINGS_A_POLL: usize = 8;

/// Messages from one ring in a row before the others get a look.
const STREAK_MAX: u32 = 64;

/// A pair ring that somebody fills for us.
#[derive(Debug)]
pub(super) struct Incoming {
    pub consumer: Consumer<'static>,
    pub from: u16,
    pub priority: Priority,
    pub ring: u32,
    /// It held nonsense; it is not read any more.
    pub corrupt: bool,
}

impl Incoming {
    #[inline(always)]
    pub fn is_ready(&self) -> bool {
        self.consumer.is_ready() && !self.corrupt
    }
}

/// The receiving half, apart so that sending can borrow the other.
#[derive(Debug)]
pub(super) struct Inlet {
    pub index: u16,
    /// The first is the one that had something last.
    pub rings: Vec<Incoming>,
    /// Messages from it in a row.
    pub streak: u32,
    /// Where the next look at quiet rings begins.
    pub cursor: usize,
    pub inboxes: [InboxConsumer<'static>; 2],
    pub head: Box<[u8; HEAD_BYTES_MAX]>,
    /// Room was freed that a sleeper may wait for.
    pub freed: bool,
}

impl Inlet {
    /// Looks at the ring that had something last, and at all else when it has
    /// nothing or has had its share.
    #[inline(always)]
    pub fn poll(
        &mut self,
        max: usize,
        map: &Map,
        take: &mut impl FnMut(u16, Priority, &Frame<'_>) -> bool,
    ) -> Result<usize, PollError> {
        if self.streak < STREAK_MAX {
            if self.rings.first().is_some_and(Incoming::is_ready) {
                let took = self.drain(0, max, map, take);
                if took != Ok(0) {
                    return took;
                }
            } else if self.rings.len() <= 1 && !self.inboxes.iter().any(InboxConsumer::is_ready) {
                // The usual end of a look that waits for one peer.
                return Ok(0);
            }
        }
        self.look_around(max, map, take)
    }

    /// Whether a peer's ring has messages, or an inbox has some, perhaps of that peer. One poll
    /// looks at few of many rings, so one that finds nothing says nothing of this.
    pub fn has_unread(&self, from: u16) -> bool {
        let in_ring = |ring: &Incoming| ring.from == from && ring.is_ready();
        self.inboxes.iter().any(InboxConsumer::is_ready) || self.rings.iter().any(in_ring)
    }

    /// Rings those who sleep for want of room.
    #[cold]
    pub fn tell_of_room(&mut self, out: &Outgoing, map: &Map) {
        self.freed = false;
        out.tell_of_room(map);
    }

    /// Looks at the inboxes and some rings.
    fn look_around(
        &mut self,
        max: usize,
        map: &Map,
        take: &mut impl FnMut(u16, Priority, &Frame<'_>) -> bool,
    ) -> Result<usize, PollError> {
        self.streak = 0;
        let mut took = 0;
        for priority in Priority::BY_URGENCY {
            if self.inboxes[priority.index()].is_ready() {
                took += self.read_inbox(priority, max - took, map, take)?;
                if took >= max {
                    return Ok(took);
                }
            }
        }
        for _ in 0..self.rings.len().min(RINGS_A_POLL) {
            self.cursor = if self.cursor + 1 < self.rings.len() {
                self.cursor + 1
            } else {
                0
            };
            let ring = &self.rings[self.cursor];
            if ring.is_ready() {
                let of_ring = self.drain(self.cursor, max - took, map, take)?;
                took += of_ring;
                let Some(last) = self.rings.len().checked_sub(1) else {
                    break;
                };
                if of_ring > 0 {
                    self.rings.swap(0, self.cursor.min(last));
                }
                if took >= max {
                    break;
                }
            }
        }
        Ok(took)
    }

    /// Reads ring number `at` of ours.
    #[inline(always)]
    fn drain(
        &mut self,
        at: usize,
        max: usize,
        map: &Map,
        take: &mut impl FnMut(u16, Priority, &Frame<'_>) -> bool,
    ) -> Result<usize, PollError> {
        let mut took = 0;
        let ring = &mut self.rings[at];
        while took < max {
            let message = match ring.consumer.peek() {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(Corrupt) => {
                    ring.corrupt = true;
                    return Err(PollError {
                        from: Some(ring.from),
                    });
                }
            };
            if message.tag() == kind::FRAME {
                if !deliver(&mut self.head, ring.from, ring.priority, &message, take) {
                    break;
                }
                took += 1;
                if ring.consumer.advance(&message) {
                    self.freed = true;
                }
            } else if message.tag() == kind::LEAVE {
                ring.consumer.advance(&message);
                self.close_ring(at, map);
                self.freed = true;
                break;
            } else {
                ring.corrupt = true;
                return Err(PollError {
                    from: Some(ring.from),
                });
            }
        }
        self.streak += took as u32;
        Ok(took)
    }

    fn read_inbox(
        &mut self,
        priority: Priority,
        max: usize,
        map: &Map,
        take: &mut impl FnMut(u16, Priority, &Frame<'_>) -> bool,
    ) -> Result<usize, PollError> {
        let Self {
            index,
            inboxes,
            rings,
            head,
            ..
        } = self;
        let mut control = 0;
        let mut corrupt = None;
        let dead = |from: u16| map.state(from) == PeerState::Dead;
        let polled = inboxes[priority.index()].poll(max, dead, |from, kind, message| {
            if kind == kind::FRAME && map.has(from) {
                return deliver(head, from, priority, message, take);
            }
            if !map.has(from) {
                match map.unknown(from) {
                    Unknown::Early => return false,
                    Unknown::Late => {}
                    Unknown::Corrupt => corrupt = Some(from),
                }
                control += 1;
                return true;
            }
            control += 1;
            let opened = kind == kind::SWITCH
                && Self::open_ring(rings, map, *index, from, priority, message);
            if !opened {
                corrupt = Some(from);
            }
            true
        });
        self.freed = true;
        match polled {
            Ok(taken) if corrupt.is_none() => Ok(taken - control),
            _ => Err(PollError {
                from: corrupt.filter(|from| map.has(*from)),
            }),
        }
    }

    /// Gives ring `at` back to the pool.
    pub fn close_ring(&mut self, at: usize, map: &Map) {
        let mut ring = self.rings.swap_remove(at);
        ring.consumer.publish();
        let held = ring_owner_word(ring.from, self.index, ring.priority);
        // Whatever else stands there, somebody has scribbled: leave it.
        let _ = map
            .ring_owner(self.index, ring.ring)
            .compare_exchange(held, 0, AcqRel, Relaxed);
    }

    /// Gives all rings of a peer back, with what may be in them.
    pub fn close_rings(&mut self, from: u16, map: &Map) {
        for at in (0..self.rings.len()).rev() {
            if self.rings[at].from == from {
                self.close_ring(at, map);
            }
        }
    }

    /// Takes up the ring that a peer announces.
    #[cold]
    fn open_ring(
        rings: &mut Vec<Incoming>,
        map: &Map,
        to: u16,
        from: u16,
        priority: Priority,
        message: &RingMessage<'_>,
    ) -> bool {
        let held = ring_owner_word(from, to, priority);
        let ring = match u32::try_from(message.word(0)) {
            Ok(ring)
                if ring < map.layout.rings
                    && map.ring_owner(to, ring).load(Acquire) == held
                    && rings.iter().all(|open| open.ring != ring) =>
            {
                ring
            }
            _ => return false,
        };
        let start = Position::unpack(message.word(1));
        rings.push(Incoming {
            consumer: Consumer::new(extend(map.ring(to, ring)), map.layout.ring, start),
            from,
            priority,
            ring,
            corrupt: false,
        });
        true
    }
}

/// Shows one frame; what fits a line is in private memory already.
#[inline(always)]
fn deliver(
    head: &mut [u8; HEAD_BYTES_MAX],
    from: u16,
    priority: Priority,
    message: &RingMessage<'static>,
    take: &mut impl FnMut(u16, Priority, &Frame<'_>) -> bool,
) -> bool {
    if let Some(head) = message.short_bytes() {
        return take(from, priority, &Frame { message, head });
    }
    let head = &mut head[..message.len().min(HEAD_BYTES_MAX)];
    message.copy_to(0, head);
    take(from, priority, &Frame { message, head })
}
