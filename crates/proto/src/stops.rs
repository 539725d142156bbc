//! Flows that their receiver has stopped: a flow that nobody takes from must not use
//! up what all flows of a pair share.
//!
//! The receiver says which flows of a peer are stopped, all of them in one chunk with
//! a number that counts up. Of these chunks one at a time is under way. The sender
//! keeps what it has for a stopped flow until a later chunk leaves the flow out.
//! Whoever has a flow stopped takes what was under way until then, and keeps it.
//!
//! Credit for that is given back once the peer has acknowledged the stop: from then on
//! nothing more of the flow leaves, so what comes of one stop is bounded, for a peer that
//! does as it is told, by twice the credit of a priority. For more than that no credit
//! is given until the flow goes on.

use portolan_seal::Seal;
use portolan_wire::{Chunk, Priority};

use crate::config::FLOWS_MAX;
use crate::conn::Conn;
use crate::endpoint::Endpoint;
use crate::interface::PeerId;
use crate::peer::PeerState;
use crate::reassembly::Took;
use crate::send::CHUNKS_MAX;
use crate::tables::NONE;

/// What is stopped between two endpoints, in both directions; flows are sets of bits, by
/// priority. Plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Stops {
    /// Flows of the peer that are to be stopped.
    wanted: [u16; 2],
    /// Those that the last chunk named, and its serial number.
    told: [u16; 2],
    serial: u16,
    /// The peer has not acknowledged that chunk.
    flying: bool,
    /// Of those, the flows whose stop it has acknowledged.
    heard: [u16; 2],
    /// Chunks of stopped flows for which no credit was given, and all of a priority.
    withheld: [[u32; FLOWS_MAX]; 2],
    pub all_withheld: [u32; 2],
    /// Chunks that came after the peer had acknowledged the stop.
    late: [[u32; FLOWS_MAX]; 2],
    /// Flows that the peer has stopped, and the serial number of the chunk that said so.
    pub theirs: [u16; 2],
    their_serial: u16,
    /// Frames that wait in those.
    pub frames: [u32; 2],
}

impl Stops {
    /// Whether the peer is yet to hear of something.
    #[inline]
    pub fn are_owed(&self) -> bool {
        self.wanted != self.told && !self.flying
    }

    /// Whether an acknowledgement tells that the peer has heard.
    #[inline]
    pub const fn are_flying(&self) -> bool {
        self.flying
    }

    /// Nothing is stopped, and both know it.
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
    const fn holds_back(&self, priority: Priority, flow: u16) -> bool {
        self.wanted[priority.index()] >> flow & 1 != 0
    }
}

impl Conn {
    /// Frames that wait in stopped flows, of each priority.
    fn count_stopped(&mut self) {
        let waiting = |p: usize| {
            let flows = self.tx[p].iter().enumerate();
            let stopped = flows.filter(|(f, _)| self.stops.theirs[p] >> f & 1 != 0);
            stopped.map(|(_, tx)| tx.frames).sum()
        };
        self.stops.frames = [waiting(0), waiting(1)];
    }
}

impl<S: Seal> Endpoint<'_, S> {
    /// Tells a peer to send nothing more of a flow, or to go on. What it has sent until
    /// it hears of that comes nevertheless: the caller takes it.
    pub fn set_stopped(
        &mut self,
        now: u64,
        peer: PeerId,
        priority: Priority,
        flow: u16,
        stopped: bool,
    ) {
        let conn = self.peers.get(peer.0 as usize).map_or(NONE, |p| p.conn);
        let Some(c) = self.conns.get_mut(conn as usize) else {
            // Neither side has anything of the other's: nothing was stopped.
            return;
        };
        let dead = matches!(self.peers[peer.0 as usize].state, PeerState::Dead(_));
        if flow >= self.core.config.flows || dead || stopped == c.stops.holds_back(priority, flow) {
            return;
        }
        c.used_at = now;
        let (p, f) = (priority.index(), flow as usize);
        c.stops.wanted[p] ^= 1 << f;
        if stopped {
            // The last chunk named it, and no other is under way: the peer knows.
            let known = if c.stops.flying { 0 } else { c.stops.told[p] };
            c.stops.heard[p] |= known & 1 << f;
        } else {
            c.stops.heard[p] &= !(1 << f);
            c.stops.late[p][f] = 0;
            self.give_withheld(conn, p, 1 << f);
        }
        self.make_ready(conn);
    }

    /// Tells the peer of what has changed, if there is a frame for it.
    #[cold]
    pub(crate) fn tell_stops(&mut self, now: u64, conn: u32) {
        let stops = &self.conns[conn as usize].stops;
        let (serial, flows) = (stops.serial.wrapping_add(1), stops.wanted);
        let Some(frame) = self.queue_control(now, conn, &Chunk::Stopped { serial, flows }) else {
            return;
        };
        self.meta[frame as usize].stops = true;
        let stops = &mut self.conns[conn as usize].stops;
        (stops.serial, stops.told, stops.flying) = (serial, flows, true);
    }

    /// The peer has acknowledged what it was told: of what it stopped for nothing more
    /// leaves, so what has come of that counts as taken.
    #[cold]
    pub(crate) fn stops_acked(&mut self, conn: u32) {
        let stops = &mut self.conns[conn as usize].stops;
        stops.flying = false;
        for p in 0..2 {
            let stops = &mut self.conns[conn as usize].stops;
            let stopped = stops.told[p] & stops.wanted[p];
            let fresh = stopped & !stops.heard[p];
            stops.heard[p] = stopped;
            self.give_withheld(conn, p, fresh);
        }
        if self.conns[conn as usize].stops.are_owed() {
            self.make_ready(conn);
        }
    }

    /// Gives the credit that was not given for some flows.
    fn give_withheld(&mut self, conn: u32, p: usize, flows: u16) {
        let stops = &mut self.conns[conn as usize].stops;
        let mut taken = 0;
        for (f, withheld) in stops.withheld[p].iter_mut().enumerate() {
            if flows >> f & 1 != 0 {
                taken += core::mem::take(withheld);
            }
        }
        stops.all_withheld[p] -= taken;
        if taken > 0 {
            self.give_credit(conn, p, taken);
        }
    }

    /// A chunk of a flow was taken for good: gives credit for it, unless the flow is
    /// stopped and the peer may not know it yet.
    #[inline]
    pub(crate) fn note_taken(&mut self, conn: u32, priority: Priority, flow: u16) {
        let stops = &self.conns[conn as usize].stops;
        if !stops.holds_back(priority, flow)
            || !self.withhold(conn, priority.index(), flow as usize)
        {
            self.give_credit(conn, priority.index(), 1);
        }
    }

    #[cold]
    fn withhold(&mut self, conn: u32, p: usize, f: usize) -> bool {
        let under_way = self.hold_limit() + CHUNKS_MAX;
        let stops = &mut self.conns[conn as usize].stops;
        if stops.heard[p] >> f & 1 != 0 {
            if stops.late[p][f] < under_way {
                stops.late[p][f] += 1;
                return false;
            }
            self.core.counters.unstopped += 1;
        }
        stops.withheld[p][f] += 1;
        stops.all_withheld[p] += 1;
        true
    }

    /// The peer says which flows it has stopped.
    #[cold]
    pub(crate) fn handle_stopped(
        &mut self,
        now: u64,
        conn: u32,
        serial: u16,
        flows: [u16; 2],
    ) -> Took {
        if (flows[0] | flows[1]).checked_shr(self.core.config.flows.into()) > Some(0) {
            return Took::Bad;
        }
        let c = &mut self.conns[conn as usize];
        if (serial.wrapping_sub(c.stops.their_serial) as i16) <= 0 {
            // A repeat, or overtaken by a later one.
            return Took::Yes;
        }
        c.stops.their_serial = serial;
        c.stops.theirs = flows;
        c.count_stopped();
        let waits = c.has_queue();
        if waits {
            c.waiting_since = c.waiting_since.min(now);
        }
        if !waits && self.flying(conn) == 0 {
            // It lets us wait: whether it lives is asked from time to time.
            self.conns[conn as usize].waiting_since = u64::MAX;
        }
        if self.conns[conn as usize].stops.are_stopped() {
            self.arm_keepalive(conn);
        }
        self.make_ready(conn);
        Took::Yes
    }
}
