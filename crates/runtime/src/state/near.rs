//! Shared memory with endpoints of this host, outside of a job, and the end of their processes.

use std::os::fd::AsFd;

use portolan_engine::{Death, Lane, LocalRefused, NewPeer};
use portolan_link::shm::SegmentError;
use portolan_proto::NetAddress;
use portolan_sys::clock::now_ns;
use portolan_sys::process::Pidfd;
use portolan_wire::KeyAddress;

use super::{State, TOKEN_NEAR_PID};
use crate::neighbours::{Handed, Met, Neighbours, who};

/// Interval at which others of this host are polled, ns; and while a call is unanswered.
const LOOK_NS: u64 = 1_000_000;
const MEETING_LOOK_NS: u64 = 10_000;

/// State for sharing memory with endpoints that come and go.
pub(crate) struct Near {
    neighbours: Neighbours,
    /// When others were last polled, ns.
    pub(super) looked_at: u64,
    /// Identifier of this host.
    host: u64,
    /// Timeout for a called endpoint to listen, ns.
    connect_ns: u64,
    /// Processes that write to our memory, by the index of their endpoint.
    processes: Vec<(u16, Pidfd)>,
}

impl Near {
    pub const fn new(neighbours: Neighbours, host: u64, connect_ns: u64) -> Self {
        Self {
            neighbours,
            looked_at: 0,
            host,
            connect_ns,
            processes: Vec::new(),
        }
    }
}

impl State {
    /// Listens to others of this host from now on.
    pub fn set_near(&mut self, near: Near) {
        self.near = Some(near);
    }

    /// Whether an endpoint with `host` in its address can share memory with us.
    pub fn is_near(&self, host: u64) -> bool {
        (self.near.as_ref()).is_some_and(|near| host != 0 && near.host == host)
    }

    pub fn next_timeout(&mut self) -> Option<u64> {
        let near = self
            .near
            .as_ref()
            .and_then(|it| it.neighbours.next_timeout());
        [self.engine.next_timeout(), near]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether others of this host must be polled by time: a program that pauses between its passes
    /// makes few of them.
    #[inline]
    pub(super) fn is_look_due(&self) -> bool {
        let (Some(near), Some(net)) = (&self.near, &self.engine.io.net) else {
            return false;
        };
        let every = if near.neighbours.is_meeting() {
            MEETING_LOOK_NS
        } else {
            LOOK_NS
        };
        net.now().saturating_sub(near.looked_at) >= every
    }

    /// Whether a call or a retry is due.
    pub(super) fn near_is_due(&self) -> bool {
        let due = self
            .near
            .as_ref()
            .and_then(|it| it.neighbours.next_timeout());
        due.is_some_and(|due| due <= now_ns())
    }

    /// Calls a rank of this host, since something is to be sent to it.
    pub(super) fn call(&mut self, rank: u32) {
        self.stop_calling(rank);
        let Some(index) = self.engine.expect_near(rank) else {
            self.engine
                .fall_back_to_network(rank, "as many share memory as can");
            return;
        };
        let (Some(near), Some(who)) = (&mut self.near, self.engine.identity(rank)) else {
            self.engine.forget_near(index);
            return;
        };
        let until = now_ns().saturating_add(near.connect_ns);
        near.neighbours.call(rank, who, index, until);
        self.hear_near();
    }

    /// Ends a call: nothing is to be sent to the rank any more, or it has called us. If it has
    /// answered by now, memory is shared with it.
    pub fn stop_calling(&mut self, rank: u32) {
        let Some(near) = &mut self.near else { return };
        if let Some((index, answer)) = near.neighbours.cancel_call(rank) {
            match answer {
                Some(handed) => self.answered(rank, index, handed),
                None => self.engine.forget_near(index),
            }
        }
    }

    /// Handles what others of this host send, and retries calls. Returns the number of events.
    pub(super) fn hear_near(&mut self) -> usize {
        let mut events = 0;
        if let Some(near) = &mut self.near {
            near.neighbours.begin_pass();
        }
        while let Some(near) = &mut self.near
            && let Some(met) = near.neighbours.poll()
        {
            events += 1;
            match met {
                Met::Called { call, from, handed } => self.called(call, &from, handed),
                Met::Answered {
                    rank,
                    index,
                    handed,
                } => self.answered(rank, index, handed),
                Met::Refused { rank, index, why } => {
                    self.engine.forget_near(index);
                    self.engine.fall_back_to_network(rank, why);
                }
                Met::NoAnswer { rank, index } => {
                    self.engine.forget_near(index);
                    self.engine.lose_near(rank, Death::NoAnswer);
                }
            }
        }
        if let Some(near) = &mut self.near {
            near.neighbours.end_pass();
        }
        events
    }

    /// Handles a call: takes it up, or refuses it.
    fn called(&mut self, call: u64, from: &KeyAddress, handed: Handed) {
        if let Err(why) = self.take_up(call, from, handed)
            && let Some(near) = &mut self.near
        {
            near.neighbours.answer(call, Err(why));
        }
    }

    fn take_up(
        &mut self,
        call: u64,
        from: &KeyAddress,
        handed: Handed,
    ) -> Result<(), LocalRefused> {
        let new = self.new_peer(from);
        let (rank, is_new) = self.engine.accept_local(&new)?;
        let met = self.take_up_as(rank, call, handed);
        if is_new {
            self.engine.finish_accept_local(rank, met == Ok(true));
        }
        met.map(|_| ())
    }

    /// Maps the caller's memory and answers. Returns whether memory is shared now.
    fn take_up_as(&mut self, rank: u32, call: u64, handed: Handed) -> Result<bool, LocalRefused> {
        self.stop_calling(rank);
        let index = self.engine.expect_near(rank).ok_or(LocalRefused::Never)?;
        let process = self.map(index, handed).map_err(|e| {
            log::info!("{}: its memory: {e}", self.core.named(rank));
            LocalRefused::Never
        })?;
        let answered = (self.near.as_mut()).is_some_and(|it| it.neighbours.answer(call, Ok(index)));
        if answered {
            self.meet(rank, index, process);
        } else {
            // The caller has given up, and writes nothing.
            self.engine.unmap_near(index);
        }
        Ok(answered)
    }

    /// Handles an answer: the rank shares memory with us from now on, whether we still want that or
    /// not.
    fn answered(&mut self, rank: u32, index: u16, handed: Handed) {
        match self.map(index, handed) {
            Ok(process) => self.meet(rank, index, process),
            Err(e) => {
                let why = format!("the memory that it hands over cannot be used: {e}");
                self.engine.fall_back_to_network(rank, &why);
            }
        }
    }

    /// Maps what was handed over, under the index reserved for it. On failure the index is free
    /// again.
    fn map(&mut self, index: u16, handed: Handed) -> Result<Pidfd, SegmentError> {
        let memory = (handed.memory, handed.ringer);
        let mapped = self.engine.map_near(index, memory, (handed.us, handed.pid));
        if mapped.is_err() {
            self.engine.forget_near(index);
        }
        mapped.map(|()| handed.process)
    }

    /// Describes the endpoint at an address to the protocol.
    pub fn new_peer(&self, address: &KeyAddress) -> NewPeer {
        let (id, life) = who(&address.key);
        NewPeer {
            id,
            life,
            public_key: Some(address.key),
            to: NetAddress {
                ip: address.ip,
                port: address.port,
            },
            mode: self.own_network.congestion_towards(address.ip),
        }
    }

    fn meet(&mut self, rank: u32, index: u16, process: Pidfd) {
        let events = &self.sleep.wait_set.events;
        let _ = events.add(process.as_fd(), TOKEN_NEAR_PID + u64::from(index));
        if let Some(near) = &mut self.near {
            near.processes.push((index, process));
        }
        log::info!("{} shares memory with this endpoint", self.core.named(rank));
        self.engine.meet(rank, index);
        // Sleepers relied on having no writer to our memory.
        self.sleep.end_sleep();
        self.notify_progress();
    }

    /// Handles the end of a process that writes to our memory.
    pub(super) fn near_ended(&mut self, index: u16) {
        let processes = self.near.iter().flat_map(|near| &near.processes);
        let mut of_it = processes.filter(|(of, _)| *of == index);
        // The index may be another process's by now.
        if !of_it.any(|(_, process)| process.has_exited()) {
            return;
        }
        self.forget_process(index);
        let Some(shm) = &mut self.engine.io.shm else {
            return;
        };
        shm.link.mark_dead(index);
        let rank = shm.ranks().get(usize::from(index)).copied();
        if let Some(rank) = rank
            && self.core.lanes.get(rank) == Some(Lane::Shm(index))
        {
            self.handle_peer_death(rank, Death::Ended);
        }
    }

    /// Releases what belonged to endpoints that write nothing more.
    pub(super) fn free_near(&mut self) {
        let freed = self.engine.io.shm.as_mut().map(|shm| shm.free_left());
        for index in freed.unwrap_or_default() {
            self.forget_process(index);
        }
    }

    fn forget_process(&mut self, index: u16) {
        let Some(near) = &mut self.near else { return };
        if let Some(at) = near.processes.iter().position(|(of, _)| *of == index) {
            let (_, process) = near.processes.swap_remove(at);
            let _ = self.sleep.wait_set.events.remove(process.as_fd());
        }
    }

    /// Stops listening, at the end: no endpoint can call any more.
    pub fn leave_near(&mut self) {
        self.near = None;
    }
}
