//! Flows of the peer that we have stopped.

use portolan_wire::Priority;

use crate::base::{Counters, FLOWS_MAX};
use crate::memory::CHUNKS_MAX;

/// Flows of the peer that we have stopped: sets of bits, by priority. Plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Stops {
    /// Flows of the peer that are to be stopped.
    wanted: [u16; 2],
    /// Flows that the last chunk named, and its serial number.
    told: [u16; 2],
    serial: u16,
    /// The peer has not acknowledged that chunk.
    flying: bool,
    /// Flows whose stop the peer has acknowledged.
    heard: [u16; 2],
    /// Chunks of stopped flows whose credit is withheld: by flow, and all of a priority.
    withheld: [[u32; FLOWS_MAX]; 2],
    pub all_withheld: [u32; 2],
    /// Chunks that came after the peer had acknowledged the stop.
    late: [[u32; FLOWS_MAX]; 2],
}

impl Stops {
    /// Whether a chunk with changes must be sent (P7.11).
    #[inline]
    pub fn are_owed(&self) -> bool {
        self.wanted != self.told && !self.flying
    }

    /// Whether a chunk waits for its acknowledgement.
    #[inline]
    pub const fn are_flying(&self) -> bool {
        self.flying
    }

    /// Whether nothing is stopped, and both sides know it.
    pub fn is_quiet(&self) -> bool {
        [self.wanted, self.told] == [[0; 2]; 2] && !self.flying
    }

    /// Whether we have stopped a flow of the peer's.
    #[inline]
    pub const fn holds_back(&self, priority: Priority, flow: u16) -> bool {
        self.wanted[priority.index()] >> flow & 1 != 0
    }

    /// Stops a flow of the peer that was not stopped.
    pub const fn stop(&mut self, p: usize, f: usize) {
        self.wanted[p] |= 1 << f;
        // If the last chunk named the flow and was acknowledged, the peer knows.
        let known = if self.flying { 0 } else { self.told[p] };
        self.heard[p] |= known & 1 << f;
    }

    /// Lets a stopped flow of the peer go on.
    pub const fn go_on(&mut self, p: usize, f: usize) {
        self.wanted[p] &= !(1 << f);
        self.heard[p] &= !(1 << f);
        self.late[p][f] = 0;
    }

    /// Serial number of the next chunk, and the flows that it names (P7.9).
    pub const fn next_chunk(&self) -> (u16, [u16; 2]) {
        (self.serial.wrapping_add(1), self.wanted)
    }

    /// Notes that the next chunk has a frame.
    pub const fn queued(&mut self, serial: u16, flows: [u16; 2]) {
        (self.serial, self.told, self.flying) = (serial, flows, true);
    }

    /// The peer has acknowledged the chunk. Returns the flows, by priority, of which nothing more
    /// leaves from now on.
    pub fn acked(&mut self) -> [u16; 2] {
        self.flying = false;
        let stopped = [0, 1].map(|p| self.told[p] & self.wanted[p]);
        let fresh = [0, 1].map(|p| stopped[p] & !self.heard[p]);
        self.heard = stopped;
        fresh
    }

    /// Releases the withheld credit of some flows; returns it, in chunks.
    pub fn release(&mut self, p: usize, flows: u16) -> u32 {
        let mut taken = 0;
        for (f, withheld) in self.withheld[p].iter_mut().enumerate() {
            if flows >> f & 1 != 0 {
                taken += core::mem::take(withheld);
            }
        }
        self.all_withheld[p] -= taken;
        taken
    }

    /// Whether the credit of one more chunk of a stopped flow, of which `limit` may be undelivered,
    /// is withheld; counts the chunk. It is not if the peer knew of the stop, and the chunk can
    /// have been in flight.
    #[cold]
    pub fn withholds(&mut self, p: usize, f: usize, limit: u32, counters: &mut Counters) -> bool {
        if self.heard[p] >> f & 1 != 0 {
            if self.late[p][f] < limit + CHUNKS_MAX {
                self.late[p][f] += 1;
                return false;
            }
            counters.unstopped += 1;
        }
        self.withheld[p][f] += 1;
        self.all_withheld[p] += 1;
        true
    }
}
