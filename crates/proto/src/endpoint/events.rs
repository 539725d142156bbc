//! Events for the caller.

use portolan_seal::Seal;

use super::Endpoint;
use crate::base::{Event, PeerEvent, PeerId};
use crate::memory::MemoryOwner;

impl<S: Seal> Endpoint<'_, S> {
    /// Returns the next event. Call until `None` after each call that may bring
    /// some: after [`crate::Rx::next`], before the part that it returned is
    /// used, and after timeouts, sent packets and news of a peer from outside.
    ///
    /// When a peer dies, the memory of long messages to it is released first.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.core.events.count == 0 && self.memory.pool.released.head.is_none() {
            return None;
        }
        self.next_event()
    }

    #[cold]
    fn next_event(&mut self) -> Option<Event> {
        let released = &mut self.memory.pool.released;
        if let Some(long) = released.pop_front(self.memory.longs) {
            let l = &mut self.memory.longs[long];
            l.memory = MemoryOwner::Back;
            let event = Event::Released(l.source, l.outcome);
            if l.ended {
                self.memory.free_long(long);
            }
            return Some(event);
        }
        let events = &mut self.core.events;
        if let Some(event) = events.pop() {
            return Some(event);
        }
        let from = events.peers_from;
        let known = self.core.peer_count as usize;
        let mut rest = self.peers[from.index()..known].iter();
        let ahead = rest.position(|p| !p.events.is_empty())?;
        let peer = PeerId::new(from.index() + ahead);
        let mine = &mut self.peers[peer].events;
        let event = mine.take()?;
        events.peers_from = peer;
        if mine.is_empty() {
            events.count -= 1;
            if events.count == 0 {
                events.peers_from = PeerId::NONE;
            }
        }
        Some(Event::Peer(peer, event))
    }

    /// Queues an event that no table carries; returns false if the queue is full.
    pub(crate) fn tell(&mut self, event: Event) -> bool {
        self.core.events.push(event)
    }

    /// Queues an event of a peer.
    pub(crate) fn tell_peer(&mut self, peer: PeerId, event: PeerEvent) {
        let mine = &mut self.peers[peer].events;
        let events = &mut self.core.events;
        events.count += u32::from(mine.is_empty());
        events.peers_from = events.peers_from.min(peer);
        mine.add(event);
    }

    /// Asserts that the count of pending events is right.
    pub(crate) fn check_events(&self) {
        let events = &self.core.events;
        let mut count = events.queued();
        let mut long = self.memory.pool.released.head;
        while long.is_some() {
            let l = &self.memory.longs[long];
            assert_eq!(l.memory, MemoryOwner::Untold, "long message {long}");
            long = l.next;
        }
        let known = &self.peers[..self.core.peer_count as usize];
        for (i, p) in (0..).map(PeerId).zip(known) {
            let waits = !p.events.is_empty();
            assert!(!waits || i >= events.peers_from, "events of peer {i}");
            count += u32::from(waits);
        }
        assert_eq!(count, events.count, "events that wait");
    }
}
