//! Flows that are stopped between two endpoints.

use portolan_wire::Priority;

use crate::base::FLOWS_MAX;

/// Stopped flows between two endpoints, in both directions: sets of bits, by priority. Plain data.
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
    /// Flows that the peer has stopped, and the serial number of the chunk that said so.
    pub theirs: [u16; 2],
    their_serial: u16,
    /// Frames that wait in flows that the peer has stopped.
    pub frames: [u32; 2],
}

impl Stops {
    /// Whether a chunk with changes must be sent.
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
        let flows = [self.wanted, self.told, self.theirs];
        flows == [[0; 2]; 3] && !self.flying
    }

    /// Whether the peer has stopped any flow.
    pub const fn are_stopped(&self) -> bool {
        self.theirs[0] | self.theirs[1] != 0
    }

    /// Whether the peer has stopped a flow.
    #[inline]
    pub const fn is_stopped(&self, priority: Priority, flow: u16) -> bool {
        self.theirs[priority.index()] >> flow & 1 != 0
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

    /// Serial number of the next chunk, and the flows that it names.
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

    /// Whether the peer knows that a flow is stopped.
    pub const fn is_heard(&self, p: usize, f: usize) -> bool {
        self.heard[p] >> f & 1 != 0
    }

    /// Counts a chunk that came though the peer knew; returns whether it is one of `most` that can
    /// have been in flight.
    pub const fn note_late(&mut self, p: usize, f: usize, most: u32) -> bool {
        let expected = self.late[p][f] < most;
        self.late[p][f] += expected as u32;
        expected
    }

    /// Withholds the credit of one more chunk of a flow.
    pub const fn withhold(&mut self, p: usize, f: usize) {
        self.withheld[p][f] += 1;
        self.all_withheld[p] += 1;
    }

    /// Takes over the flows that the peer has stopped; returns false if `serial` is not new.
    pub const fn set_theirs(&mut self, serial: u16, flows: [u16; 2]) -> bool {
        if (serial.wrapping_sub(self.their_serial) as i16) <= 0 {
            return false;
        }
        self.their_serial = serial;
        self.theirs = flows;
        true
    }
}
