//! Endpoints of one host: they call each other and hand over their memory, as over unix
//! sockets. Calls come late, are refused, are given up while they are answered.

use std::os::fd::OwnedFd;

use portolan_engine::{Death, Lane, LocalRefused, NewPeer, ShmLane};
use portolan_link::shm::{Ringer, SegmentConfig, ShmPort};
use portolan_proto::congestion::Mode;
use portolan_seal::identity;
use portolan_wire::{EndpointId, Life};

use super::{CONNECT_NS, LifeId, MS, Meeting};
use crate::node::address;

/// Small, so that all of it gets full.
const SIZES: SegmentConfig = SegmentConfig {
    frame_bytes_max: 2_048,
    ring_slots: 8,
    ring_bytes: Some(16 << 10),
    rings: Some(2),
    inbox_slots: 16,
    inbox_frames: 2,
    regions: 4,
    remote_barrier: false,
};

/// Few, so that numbers are used again: a node and five others.
const ENDPOINTS: u16 = 6;

/// A node's memory, and what wakes it.
pub(super) struct Own {
    memory: OwnedFd,
    ringer: Ringer,
}

impl Own {
    fn handed(&self) -> (OwnedFd, Ringer) {
        let memory = self.memory.try_clone().expect("a descriptor is left");
        (memory, self.ringer.share())
    }
}

/// A call on its way.
pub(super) struct Call {
    from: LifeId,
    rank: u32,
    to: (EndpointId, Life),
    index: u16,
    /// When it arrives, or its answer does.
    pub due: u64,
    /// When nobody waits any longer for one that is not there.
    until: u64,
    /// By whom, who calls the caller this.
    answered: Option<(LifeId, u16)>,
}

/// The end of a killed process, that another is to hear of.
pub(super) struct End {
    by: LifeId,
    index: u16,
    /// Whose.
    of: LifeId,
    pub due: u64,
}

/// A node's memory, on a host where it is shared.
pub(super) fn memory(copy_min: usize) -> (Own, ShmLane) {
    let (port, own) = ShmPort::alone(ENDPOINTS, &SIZES, true).expect("there is memory");
    let (memory, ringer) = own;
    (
        Own { memory, ringer },
        ShmLane::new(port, &[], copy_min, 1 << 20),
    )
}

impl Meeting {
    fn place_of(&self, life: LifeId) -> Option<usize> {
        let is = |node: &Option<super::Node>| node.as_ref().is_some_and(|it| it.life == life);
        self.nodes.iter().position(is)
    }

    /// Something is to be sent.
    pub(super) fn call(&mut self, at: usize, rank: u32) {
        let due = self.now + self.rng.scale(1_000, 5 * MS);
        self.stop_calling(at, rank);
        let node = self.nodes[at].as_mut().expect("it lives");
        let Some(index) = node.engine.expect_near(rank) else {
            return node.engine.fall_back_to_network(rank, "full");
        };
        let to = node.engine.identity(rank).expect("it is known");
        self.calls.push(Call {
            from: node.life,
            rank,
            to,
            index,
            due,
            until: self.now + CONNECT_NS,
            answered: None,
        });
    }

    /// A call is given up, unless it was answered.
    pub(super) fn stop_calling(&mut self, at: usize, rank: u32) {
        let life = self.node(at).life;
        let ours = |call: &Call| call.from == life && call.rank == rank;
        let Some(call) = self.calls.iter().position(ours) else {
            return;
        };
        let call = self.calls.swap_remove(call);
        if !self.answered(at, &call) {
            self.node(at).engine.forget_near(call.index);
        }
    }

    /// Goes on with what is due; gives when the next is.
    pub(super) fn go_on_near(&mut self) -> Option<u64> {
        let now = self.now;
        while let Some(at) = self.calls.iter().position(|call| call.due <= now) {
            let call = self.calls.swap_remove(at);
            self.go_on(call);
        }
        while let Some(at) = self.ends.iter().position(|end| end.due <= now) {
            let end = self.ends.swap_remove(at);
            self.ended(&end);
        }
        let calls = self.calls.iter().map(|call| call.due);
        calls.chain(self.ends.iter().map(|end| end.due)).min()
    }

    fn go_on(&mut self, mut call: Call) {
        let Some(at) = self.place_of(call.from) else {
            // It has ended, and hears no answer.
            return;
        };
        if self.answered(at, &call) {
            return;
        }
        let to = |life: &[u8; 32]| identity(life) == (call.to.0.0, call.to.1.0);
        let there = self.nodes.iter().position(|node| {
            let key = node.as_ref().map(|it| it.key);
            key.as_ref().is_some_and(to)
        });
        let answer = match there {
            Some(_) if self.rng.one_in(8) => Err(LocalRefused::Never),
            Some(there) => self.take_up(there, at, call.index),
            None => Err(LocalRefused::NotNow),
        };
        match (answer, there) {
            (Ok(index), Some(there)) => {
                call.answered = Some((self.node(there).life, index));
                call.due = self.now + self.rng.scale(1_000, 5 * MS);
                self.calls.push(call);
            }
            (Err(LocalRefused::Never), _) => {
                self.note(at, || format!("{} shares no memory", call.rank));
                let engine = &mut self.node(at).engine;
                engine.forget_near(call.index);
                engine.fall_back_to_network(call.rank, "refused");
                self.node(at).next_pass = 0;
            }
            (_, None) if call.until <= self.now => {
                let engine = &mut self.node(at).engine;
                engine.forget_near(call.index);
                engine.lose_near(call.rank, Death::NoAnswer);
                self.node(at).next_pass = 0;
            }
            _ => {
                call.due = self.now + self.rng.scale(MS, 20 * MS);
                self.calls.push(call);
            }
        }
    }

    /// One is called; gives what it calls the caller, and shares memory from then on.
    fn take_up(&mut self, at: usize, from: usize, us: u16) -> Result<u16, LocalRefused> {
        let caller = self.nodes[from].as_ref().expect("it lives");
        let (id, life) = identity(&caller.key);
        let new = NewPeer {
            id: EndpointId(id),
            life: Life(life),
            public_key: Some(caller.key),
            to: address(from),
            mode: Mode::Lan,
        };
        let (theirs, caller) = (
            caller.near.as_ref().expect("it shares").handed(),
            caller.life,
        );
        let (rank, is_new) = self.node(at).engine.accept_local(&new)?;
        self.stop_calling(at, rank);
        let node = self.node(at);
        let Some(index) = node.engine.expect_near(rank) else {
            if is_new {
                node.engine.finish_accept_local(rank, false);
            }
            return Err(LocalRefused::Never);
        };
        let mapped = node
            .engine
            .map_near(index, theirs, (us, std::process::id()));
        mapped.expect("it is sound");
        node.engine.meet(rank, index);
        if is_new {
            node.engine.finish_accept_local(rank, true);
        }
        node.seats.insert(index, caller);
        node.next_pass = 0;
        self.note(at, || format!("meets life {caller} as {rank}, {index}"));
        Ok(index)
    }

    /// Whether a call was answered: then memory is shared, wanted or not.
    fn answered(&mut self, at: usize, call: &Call) -> bool {
        let Some((life, us)) = call.answered else {
            return false;
        };
        let all = self.nodes.iter().flatten();
        let them = all.chain(&self.killed).find(|node| node.life == life);
        let theirs = them.map(|it| it.near.as_ref().expect("it shares").handed());
        let node = self.node(at);
        match theirs {
            Some(theirs) => {
                let mapped = node
                    .engine
                    .map_near(call.index, theirs, (us, std::process::id()));
                mapped.expect("it is sound");
                node.engine.meet(call.rank, call.index);
                node.seats.insert(call.index, life);
                node.next_pass = 0;
                let (rank, index) = (call.rank, call.index);
                self.note(at, || format!("has met life {life} as {rank}, {index}"));
                // It may have been killed since.
                if self.place_of(life).is_none() {
                    self.will_end(at, index, life);
                }
            }
            // It has closed since; its memory says so.
            None => unreachable!("who has closed is kept"),
        }
        true
    }

    fn will_end(&mut self, at: usize, index: u16, of: LifeId) {
        let due = self.now + self.rng.scale(1_000, 20 * MS);
        let by = self.node(at).life;
        self.ends.push(End { by, index, of, due });
    }

    /// A node has ended, killed or not.
    pub(super) fn end_near(&mut self, life: LifeId) {
        for at in 0..self.nodes.len() {
            let seats = self.nodes[at].as_ref().map(|node| node.seats.clone());
            for (index, _) in seats
                .unwrap_or_default()
                .into_iter()
                .filter(|s| s.1 == life)
            {
                self.will_end(at, index, life);
            }
        }
    }

    /// The kernel says that a process has ended.
    fn ended(&mut self, end: &End) {
        let Some(at) = self.place_of(end.by) else {
            return;
        };
        let (node, index) = (self.node(at), end.index);
        if node.seats.get(&index) != Some(&end.of) {
            // Its memory was given back before.
            return;
        }
        node.seats.remove(&index);
        let Some(shm) = &mut node.engine.io.shm else {
            return;
        };
        shm.link.mark_dead(index);
        let rank = shm.ranks()[usize::from(index)];
        if node.engine.core.lanes.get(rank) == Some(Lane::Shm(index)) {
            node.engine.handle_peer_death(rank, Death::Ended);
        }
        node.next_pass = 0;
    }

    /// What a look that is rarer than a pass finds: who has closed, and what is given back.
    pub(super) fn look(&mut self, at: usize) -> usize {
        let node = self.node(at);
        let Some(shm) = &mut node.engine.io.shm else {
            return 0;
        };
        let gone = shm.gone();
        let mut moved = gone.len();
        for (rank, why) in gone {
            node.engine.handle_peer_death(rank, why);
        }
        if let Some(shm) = &mut node.engine.io.shm {
            shm.link.tidy();
            for index in shm.free_left() {
                node.seats.remove(&index);
                moved += 1;
            }
        }
        moved
    }
}
