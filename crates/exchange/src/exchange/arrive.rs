//! Messages that arrive from other ranks.

use alloc::vec::Vec;

use super::Exchange;
use super::send::BYTES_MAX;
use crate::state::{Arriving, Dest, Origin, Part};
use crate::values::{
    Incoming, IncomingOutcome, Kind, OVERHEAD, OVERLAP, OpId, PUSHED_MIN, Probed, SECOND, SHARES,
    SYNC, Sink, Source, UNWANTED, Words,
};

/// The number of a message that is never kept.
const NO_MESSAGE: u64 = u64::MAX;

/// Destination of bytes of a payload.
enum Target<'a, K> {
    /// Memory, the offset there, and how many bytes fit.
    Sink(&'a mut K, u64, usize),
    /// The body of a message that is kept.
    Body(&'a mut [u8]),
}

impl<S: Source, K: Sink> Exchange<S, K> {
    /// Takes a message, or the first part of one (P13.2).
    #[inline]
    pub fn arrive(&mut self, m: &Incoming<'_>) -> IncomingOutcome {
        if self.is_over && m.kind != Kind::Done {
            return match m.is_whole() {
                true => IncomingOutcome::Whole,
                false => self.rest(m.from, Dest::Message(NO_MESSAGE)),
            };
        }
        match self.peers.get(m.from) {
            Some(peer) if !peer.dead => {}
            _ => return IncomingOutcome::Refused,
        }
        if m.payload.len() as u64 > m.total {
            return IncomingOutcome::Refused;
        }
        match m.kind {
            Kind::Eager => self.arrive_eager(m),
            Kind::Offer => self.arrive_offer(m),
            Kind::Push => self.arrive_push(m),
            Kind::Pulled => self.arrive_pulled(m),
            Kind::Put => self.arrive_put(m),
            Kind::Got => self.arrive_got(m),
            Kind::Atomic | Kind::Result if !m.is_whole() => IncomingOutcome::Refused,
            Kind::Atomic => self.arrive_atomic(m),
            Kind::Result => self.arrive_result(m),
            _ if m.total > 0 => IncomingOutcome::Refused,
            Kind::Pull => {
                let words = Words(m.args);
                let args = [0, 1, 2, 3, 4].map(|i| words.or_zero(i));
                self.asked(m.from, args);
                IncomingOutcome::Whole
            }
            Kind::Done => {
                let words = Words(m.args);
                let wanted = words.or_zero(1) != UNWANTED;
                self.answered(m.from, OpId(words.or_zero(0)), wanted);
                IncomingOutcome::Whole
            }
            Kind::Credit => {
                if let Some(peer) = self.peers.get(m.from) {
                    peer.limit = peer.limit.max(Words(m.args).or_zero(0));
                }
                IncomingOutcome::Whole
            }
            Kind::Get => self.arrive_get(m),
            Kind::Flush => self.arrive_flush(m),
        }
    }

    /// Counts `bytes` pushed bytes of a message of `total`; false: beyond the sender's credit.
    /// (P13.3)
    fn charge(&mut self, from: u32, bytes: u64, total: u64) -> bool {
        let Some(peer) = self.peers.get(from) else {
            return false;
        };
        let fits = (peer.taken.checked_add(bytes)).is_some_and(|taken| taken <= peer.told);
        if fits {
            peer.taken += bytes;
            if total > PUSHED_MIN && self.ops.lanes.of(from).queues {
                self.incast.note(from);
            }
        }
        fits
    }

    fn arrive_eager(&mut self, m: &Incoming<'_>) -> IncomingOutcome {
        let words = Words(m.args);
        let Some(tag) = words.get(0) else {
            return IncomingOutcome::Refused;
        };
        let charge = m.total.saturating_add(OVERHEAD);
        if !self.charge(m.from, charge, m.total) {
            // A push beyond the sender's credit waits.
            return IncomingOutcome::NotNow;
        }
        let what = Probed {
            from: m.from,
            tag,
            total: m.total,
            data: words.get(1),
        };
        let missing = u32::from(!m.is_whole());
        if missing == 0 && self.end_standing(&what, m.payload) {
            self.free_pushed(m.from, charge);
            return IncomingOutcome::Whole;
        }
        if let Some(id) = self.first_receive(&what) {
            if missing == 0 {
                self.ops.receive_whole(id, &what, m.payload);
                self.free_pushed(m.from, charge);
                return IncomingOutcome::Whole;
            }
            self.meet(id, &what, Origin::Eager, m.total, missing, true);
            self.write(id, 0, m.payload);
            self.free_pushed(m.from, charge);
            return self.rest(m.from, Dest::Receive(id));
        }
        let body = self.body(m.payload, m.total);
        let number = self.keep(what, Origin::Eager, body, charge, missing, true);
        if missing == 0 {
            return IncomingOutcome::Whole;
        }
        self.rest(m.from, Dest::Message(number))
    }

    /// Keeps P13.4, P13.5.
    fn arrive_offer(&mut self, m: &Incoming<'_>) -> IncomingOutcome {
        let words = Words(m.args);
        let (Some(tag), Some(total), Some(op)) = (words.get(0), words.get(1), words.get(2)) else {
            return IncomingOutcome::Refused;
        };
        let (address, flags) = (words.or_zero(3), words.or_zero(4));
        let (first, second, overlap) = (m.total, flags & SECOND, flags & OVERLAP != 0);
        let Some(pushed) = first.checked_add(second).filter(|pushed| *pushed <= total) else {
            return IncomingOutcome::Refused;
        };
        if total > BYTES_MAX || self.second_pushes.contains_key(&(m.from, op)) {
            return IncomingOutcome::Refused;
        }
        let what = Probed {
            from: m.from,
            tag,
            total,
            data: words.get(5),
        };
        let full =
            (self.peers.get(m.from)).is_some_and(|peer| peer.offers >= self.config.offers_max);
        let envelope = what.envelope();
        let is_unmet = |this: &Self| {
            !this.stands(|selector| selector.fits(&envelope))
                && this.matcher.peek_posted(&envelope).is_none()
        };
        if full && !self.is_refusing && is_unmet(self) {
            return IncomingOutcome::NotNow;
        }
        if !self.charge(m.from, pushed, total) {
            return IncomingOutcome::NotNow;
        }
        let origin = Origin::Offer {
            op,
            address,
            shares: flags & SHARES != 0,
            sync: flags & SYNC != 0,
        };
        let missing = u32::from(!m.is_whole()) + u32::from(second > 0);
        let dest = if self.is_refusing && is_unmet(self) {
            self.say(m.from, Kind::Done, [op, UNWANTED]);
            self.free_pushed(m.from, pushed);
            Dest::Message(NO_MESSAGE)
        } else if let Some(id) = self.first_receive(&what) {
            self.meet(id, &what, origin, pushed, missing, overlap);
            self.write(id, 0, m.payload);
            // The request first: a report of credit can wait for it.
            self.fetch_rest(id);
            self.settle(id);
            self.free_pushed(m.from, pushed);
            Dest::Receive(id)
        } else {
            let body = self.body(m.payload, pushed);
            let number = self.keep(what, origin, body, pushed, missing, overlap);
            self.note_late(m.from, number);
            Dest::Message(number)
        };
        if second > 0 {
            self.ops.lanes.expect(m.from, 1);
            self.second_pushes
                .insert((m.from, op), (dest, first, second));
        }
        if m.is_whole() {
            IncomingOutcome::Whole
        } else {
            self.rest(m.from, dest)
        }
    }

    /// Keeps P13.6.
    fn arrive_push(&mut self, m: &Incoming<'_>) -> IncomingOutcome {
        let key = (m.from, Words(m.args).or_zero(0));
        match self.second_pushes.get(&key) {
            Some(&(dest, at, bytes)) if bytes == m.total => {
                self.second_pushes.remove(&key);
                self.ops.lanes.expect(m.from, -1);
                self.begin_part(m, dest, at, None)
            }
            _ => IncomingOutcome::Refused,
        }
    }

    fn arrive_pulled(&mut self, m: &Incoming<'_>) -> IncomingOutcome {
        let words = Words(m.args);
        let (id, at) = (OpId(words.or_zero(0)), words.or_zero(1));
        if m.total == 0 {
            return self.was_written(m.from, id, at, words.or_zero(2));
        }
        if !self.was_asked(m.from, id, at, m.total) {
            return IncomingOutcome::Refused;
        }
        self.begin_part(m, Dest::Receive(id), at, Some(m.total))
    }

    /// Begins a payload that goes to `dest`, from `at` on; `pulled`: bytes of the request that it
    /// answers.
    pub(crate) fn begin_part(
        &mut self,
        m: &Incoming<'_>,
        dest: Dest,
        at: u64,
        pulled: Option<u64>,
    ) -> IncomingOutcome {
        let number = self.parts.insert(Part {
            from: m.from,
            dest,
            at,
            pulled,
            lacks: false,
        });
        self.write_part(number, 0, m.payload);
        if m.is_whole() {
            self.arrived(number);
            IncomingOutcome::Whole
        } else {
            IncomingOutcome::Part(number)
        }
    }

    /// Begins the rest of a payload whose first bytes were written; it goes to `dest`.
    pub(crate) fn rest(&mut self, from: u32, dest: Dest) -> IncomingOutcome {
        IncomingOutcome::Part(self.parts.insert(Part {
            from,
            dest,
            at: 0,
            pulled: None,
            lacks: false,
        }))
    }

    /// Body of a message that is kept: the bytes here, and room for `bytes` in all.
    fn body(&mut self, come: &[u8], bytes: u64) -> Vec<u8> {
        let mut body = self.vector(bytes);
        body.extend_from_slice(come);
        body.resize(bytes as usize, 0);
        body
    }

    /// Where `bytes` bytes of a partly arrived payload go, from `at` on; `None`: nowhere.
    #[inline]
    fn target(&mut self, part: u64, at: u64, bytes: usize) -> Option<Target<'_, K>> {
        let part = *self.parts.get(part)?;
        let at = part.at.checked_add(at)?;
        let end = at.checked_add(bytes as u64)?;
        let (memory, at, most) = match part.dest {
            Dest::Receive(id) => {
                let (meeting, sink, start) = self.ops.met(id)?;
                // Bytes beyond the receive's memory are dropped.
                let fits = meeting.want.checked_sub(at)?.min(bytes as u64);
                return Some(Target::Sink(sink, start + at, fits as usize));
            }
            Dest::Message(number) => {
                let body = &mut self.messages.get_mut(number)?.body;
                return body.get_mut(at as usize..end as usize).map(Target::Body);
            }
            Dest::Put(Arriving { spot, bytes, .. }) => {
                (self.regions.memory_mut(spot.region)?, spot.at + at, bytes)
            }
            Dest::Get(id) => {
                let sink = self.ops.remote(id)?.sink.as_mut()?;
                (sink, at, part.at + part.pulled.unwrap_or(0))
            }
            Dest::Nowhere => return None,
        };
        (end <= most).then_some(Target::Sink(memory, at, bytes))
    }

    /// Where `bytes` bytes of a partly arrived payload go, from `at` on. `None`: not to one piece;
    /// pass them to [`Exchange::write_part`].
    #[inline]
    pub fn room(&mut self, part: u64, at: u64, bytes: usize) -> Option<&mut [u8]> {
        match self.target(part, at, bytes)? {
            Target::Sink(sink, at, fits) if fits == bytes => sink.slice(at, bytes),
            Target::Sink(..) => None,
            Target::Body(body) => Some(body),
        }
    }

    /// Writes bytes of a partly arrived payload, from `at` on.
    pub fn write_part(&mut self, part: u64, at: u64, bytes: &[u8]) {
        let written = match self.target(part, at, bytes.len()) {
            Some(Target::Sink(sink, at, fits)) => fits == 0 || sink.write(at, &bytes[..fits]),
            Some(Target::Body(body)) => {
                body.copy_from_slice(bytes);
                true
            }
            None => true,
        };
        if !written && let Some(part) = self.parts.get_mut(part) {
            part.lacks = true;
        }
    }

    /// Length of the received message, put or get that a partly arrived payload belongs to, as far
    /// as it fits; else 0.
    pub fn extent(&mut self, part: u64) -> u64 {
        let Some(part) = self.parts.get(part).copied() else {
            return 0;
        };
        match part.dest {
            Dest::Receive(id) => self.ops.meeting(id).map_or(0, |meeting| meeting.want),
            Dest::Get(id) => self.ops.remote(id).map_or(0, |remote| remote.total),
            Dest::Put(put) => put.bytes,
            Dest::Message(_) | Dest::Nowhere => 0,
        }
    }

    /// Ends a payload that has arrived in full.
    pub fn arrived(&mut self, part: u64) {
        let Some(part) = self.parts.remove(part) else {
            return;
        };
        match (part.dest, part.pulled) {
            (Dest::Receive(id), Some(bytes)) => self.answer_ends(id, bytes),
            (Dest::Receive(id), None) => {
                if let Some(meeting) = self.ops.meeting(id) {
                    meeting.pushes = meeting.pushes.saturating_sub(1);
                    self.fetch_rest(id);
                    self.settle(id);
                }
            }
            (Dest::Message(number), _) => {
                if let Some(message) = self.messages.get_mut(number) {
                    message.pushes = message.pushes.saturating_sub(1);
                    if message.pushes == 0 {
                        self.move_body(number);
                        self.hand_over(part.from);
                    }
                }
            }
            (Dest::Put(put), _) => self.put_part_ends(part.from, Some((&put, part.lacks))),
            (Dest::Nowhere, _) => self.put_part_ends(part.from, None),
            (Dest::Get(id), bytes) => self.got(id, bytes.unwrap_or(0)),
        }
    }
}
