//! What has happened and the caller has not asked for yet.
//!
//! A long message and a peer carry their own events in the tables, so none is
//! lost, however late [`Endpoint::poll_event`] is called. All other events are
//! few: what would bring one too many is not taken, and comes again.

use portolan_seal::Seal;

use crate::endpoint::Endpoint;
use crate::interface::{DeathReason, Event, PeerEvent, PeerId};
use crate::pool::List;
use crate::send::Memory;
use crate::tables::NONE;

/// Refused messages and congested ways that can wait to be told of: as many as
/// one packet brings.
const QUEUE: usize = 2 * crate::FLOWS_MAX;

/// Events that wait. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Events {
    /// Long messages, queued events, and peers with events.
    count: u32,
    /// Long messages whose memory is the caller's again.
    released: List,
    queue: [Option<Event>; QUEUE],
    /// No peer before this one has an event.
    peers_from: u32,
}

impl Events {
    pub const NONE: Self = Self {
        count: 0,
        released: List::EMPTY,
        queue: [None; QUEUE],
        peers_from: NONE,
    };
}

/// Events of one peer, in a byte. In each life of it they are at most a silence,
/// its end and the death. Of a life that began and ended untold only the death is
/// told of, as that of the life before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PeerEvents(u8);

impl PeerEvents {
    const WAITING: u8 = 1;
    const UP: u8 = 2;
    const DEAD: u8 = 4;
    /// The same of the life after the death.
    const WAITING_AGAIN: u8 = 8;
    const UP_AGAIN: u8 = 16;
    const REASON_AT: u32 = 5;

    const REASONS: [DeathReason; 5] = [
        DeathReason::Closed,
        DeathReason::Silent,
        DeathReason::NoAnswer,
        DeathReason::Restarted,
        DeathReason::Told,
    ];

    const fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn add(&mut self, event: PeerEvent) {
        let again = self.0 & Self::DEAD != 0;
        match event {
            PeerEvent::Waiting if again => self.0 |= Self::WAITING_AGAIN,
            PeerEvent::Waiting => self.0 |= Self::WAITING,
            PeerEvent::Up if again => self.0 |= Self::UP_AGAIN,
            PeerEvent::Up => self.0 |= Self::UP,
            PeerEvent::Dead(why) => {
                self.0 &= Self::WAITING | Self::UP;
                self.0 |= Self::DEAD | (why as u8) << Self::REASON_AT;
            }
        }
    }

    /// The first of them.
    fn take(&mut self) -> Option<PeerEvent> {
        let first = self.0 & self.0.wrapping_neg();
        self.0 &= !first;
        Some(match first {
            Self::WAITING | Self::WAITING_AGAIN => PeerEvent::Waiting,
            Self::UP | Self::UP_AGAIN => PeerEvent::Up,
            Self::DEAD => {
                let why = usize::from(self.0 >> Self::REASON_AT);
                self.0 &= (1 << Self::REASON_AT) - 1;
                PeerEvent::Dead(Self::REASONS[why])
            }
            _ => return None,
        })
    }
}

impl<S: Seal> Endpoint<'_, S> {
    /// What has happened, one thing at a time. To be called until `None` after
    /// each call that may bring something: with each [`crate::Rx::next`] before
    /// what that returns is looked at, and after timeouts, sent packets and
    /// news of a peer from outside.
    ///
    /// Of a peer that died the memory of long messages is given back first.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.core.events.count == 0 {
            return None;
        }
        self.next_event()
    }

    #[cold]
    fn next_event(&mut self) -> Option<Event> {
        let events = &mut self.core.events;
        if let Some(long) = events.released.pop_front(self.longs) {
            events.count -= 1;
            let l = &mut self.longs[long as usize];
            l.memory = Memory::Back;
            let event = Event::Released(l.source, l.outcome);
            if l.ended {
                self.free_long(long);
            }
            return Some(event);
        }
        if let Some(event) = events.queue[0] {
            events.count -= 1;
            events.queue.copy_within(1.., 0);
            events.queue[QUEUE - 1] = None;
            return Some(event);
        }
        let from = events.peers_from;
        let mut rest = self.peers[from as usize..].iter();
        let peer = from + rest.position(|p| !p.events.is_empty())? as u32;
        let mine = &mut self.peers[peer as usize].events;
        let event = mine.take()?;
        events.peers_from = peer;
        if mine.is_empty() {
            events.count -= 1;
            if events.count == 0 {
                events.peers_from = NONE;
            }
        }
        Some(Event::Peer(PeerId(peer), event))
    }

    /// The memory of a long message is the caller's again.
    pub(crate) fn tell_released(&mut self, long: u32) {
        self.core.events.released.push_back(self.longs, long);
        self.core.events.count += 1;
    }

    /// Queues an event that stands in no table; false if too many wait.
    pub(crate) fn tell(&mut self, event: Event) -> bool {
        let events = &mut self.core.events;
        let Some(free) = events.queue.iter_mut().find(|e| e.is_none()) else {
            return false;
        };
        *free = Some(event);
        events.count += 1;
        true
    }

    /// Something happened to a peer.
    pub(crate) fn tell_peer(&mut self, peer: u32, event: PeerEvent) {
        let mine = &mut self.peers[peer as usize].events;
        let events = &mut self.core.events;
        events.count += u32::from(mine.is_empty());
        events.peers_from = events.peers_from.min(peer);
        mine.add(event);
    }

    /// Asserts that as many events wait as are counted.
    pub(crate) fn check_events(&self) {
        let events = &self.core.events;
        let mut count = events.queue.iter().flatten().count() as u32;
        let mut long = events.released.head;
        while long != NONE {
            let l = &self.longs[long as usize];
            assert_eq!(l.memory, Memory::Untold, "long message {long}");
            count += 1;
            long = l.next;
        }
        for (i, p) in (0..).zip(&*self.peers) {
            let waits = !p.events.is_empty();
            assert!(!waits || i >= events.peers_from, "events of peer {i}");
            count += u32::from(waits);
        }
        assert_eq!(count, events.count, "events that wait");
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    fn told(events: &[PeerEvent]) -> Vec<PeerEvent> {
        let mut waiting = PeerEvents::default();
        events.iter().for_each(|&e| waiting.add(e));
        let told = core::iter::from_fn(|| waiting.take()).collect();
        assert!(waiting.is_empty());
        told
    }

    #[test]
    fn events_of_two_lives_come_in_their_order() {
        use PeerEvent::{Dead, Up, Waiting};
        for why in PeerEvents::REASONS {
            for all in [
                &[Waiting, Up, Dead(why), Waiting, Up][..],
                &[Up, Dead(why), Up],
                &[Dead(why), Waiting],
                &[Dead(why)],
                &[Waiting],
            ] {
                assert_eq!(told(all), all);
            }
        }
    }

    #[test]
    fn of_a_life_that_nobody_heard_of_the_death_is_told() {
        use PeerEvent::{Dead, Up};
        let (first, second) = (DeathReason::Silent, DeathReason::Closed);
        let all = [Up, Dead(first), Up, Dead(second), Up];
        assert_eq!(told(&all), [Up, Dead(second), Up]);
    }
}
