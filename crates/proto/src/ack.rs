//! What has arrived: the replay window, and the acknowledgement built from it.

use portolan_seal::Seal;
use portolan_wire::{Ack, BITMAP_WORDS_MAX};

use crate::config::WINDOW_SPAN;
use crate::conn::{Owed, REPLAY_BITS};
use crate::endpoint::Endpoint;
use crate::path::Path;

/// Unit of the delay field, ns.
pub(crate) const DELAY_UNIT_NS: u64 = 64;

impl Path {
    const fn place(number: u64) -> (usize, u64) {
        let bit = number % REPLAY_BITS;
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    /// Whether a number was received before or is too old to tell.
    pub(crate) const fn is_replay(&self, number: u64) -> bool {
        if number >= self.rx_next {
            return false;
        }
        if self.rx_next - number > REPLAY_BITS {
            return true;
        }
        let (word, bit) = Self::place(number);
        self.seen[word] & bit != 0
    }

    /// Whether a number is known to have been received.
    const fn has(&self, number: u64) -> bool {
        number >= self.unsure_to && self.is_replay(number)
    }

    /// Notes that a number came; says whether it shows a new gap. One whose
    /// chunks found no room is a gap itself: acknowledgements show it as
    /// missing, and so its chunks are sent again.
    pub(crate) fn note(&mut self, now: u64, number: u64, taken: bool) -> bool {
        let mut gap = false;
        if number >= self.rx_next {
            gap = number > self.rx_next;
            let skipped = number - self.rx_next;
            if skipped >= REPLAY_BITS {
                self.seen.fill(0);
            } else {
                for n in self.rx_next..=number {
                    let (word, bit) = Self::place(n);
                    self.seen[word] &= !bit;
                }
            }
            self.rx_next = number + 1;
            self.largest_at = now;
        }
        if taken {
            let (word, bit) = Self::place(number);
            self.seen[word] |= bit;
        }
        // Only as far back as a bitmap reaches: the sender's window is no wider.
        self.base = self
            .base
            .max(self.rx_next.saturating_sub(WINDOW_SPAN as u64));
        while self.base < self.rx_next && self.has(self.base) {
            self.base += 1;
        }
        gap
    }

    /// The acknowledgement as of now, without limits and credit.
    fn ack(&self, now: u64) -> Ack {
        let largest = self.rx_next.wrapping_sub(1);
        let delay = now.saturating_sub(self.largest_at) / DELAY_UNIT_NS;
        let mut ack = Ack {
            path: self.id,
            delay: delay.min(u64::from(u16::MAX)) as u16,
            ce: self.ce,
            largest: largest as u32,
            base: self.base as u32,
            words: 0,
            ..Ack::default()
        };
        let span = (self.rx_next - self.base) as usize;
        if span > 0 {
            ack.words = span.div_ceil(64).min(BITMAP_WORDS_MAX) as u8;
            for i in 0..span {
                if self.has(self.base + i as u64) {
                    ack.bitmap[i / 64] |= 1 << (i % 64);
                }
            }
        }
        ack
    }
}

impl<S: Seal> Endpoint<'_, S> {
    /// An acknowledgement must leave in this pass.
    pub(crate) fn owe_now(&mut self, path: u32) {
        let p = self.path_mut(path);
        p.owed = Owed::Now;
        let conn = p.conn;
        self.make_ready(conn);
    }

    /// What an acknowledgement tells beside packets must leave in this pass: by
    /// the path that the peer uses, for others may lead nowhere.
    pub(crate) fn owe_news(&mut self, conn: u32) {
        self.owe_now(self.conns[conn as usize].heard_by);
    }

    /// An acknowledgement must leave, but may ride on an answer.
    pub(crate) fn owe_delayed(&mut self, path: u32) {
        let p = self.path_mut(path);
        p.owed = p.owed.max(Owed::Delayed);
        let conn = p.conn;
        self.make_deferred(conn);
    }

    /// The acknowledgement that leaves now. What it grants is remembered.
    pub(crate) fn make_ack(&mut self, now: u64, path: u32) -> Ack {
        let room = self.room(now, path);
        let p = self.path_mut(path);
        let conn = p.conn;
        let mut ack = p.ack(now);
        p.granted = p.granted.max(p.rx_next.saturating_add(room));
        ack.packet_limit = p.granted as u32;
        ack.credit = self.credit(conn);
        ack
    }

    /// An acknowledgement with so much credit has left with a packet.
    pub(crate) fn ack_left(&mut self, path: u32, credit: [u32; 2]) {
        let p = self.path_mut(path);
        p.owed = Owed::Nothing;
        p.unacked = 0;
        let conn = p.conn;
        self.conns[conn as usize].advertised = credit;
    }
}
