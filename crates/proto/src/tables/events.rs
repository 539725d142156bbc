//! Events that the caller has not polled yet.
//!
//! Long messages and peers carry their own events in the tables, so none is
//! lost, however late [`crate::Endpoint::poll_event`] is called. Other events
//! are queued: a chunk whose event finds no room is not taken, and is sent
//! again.

use crate::base::{DeathReason, Event, FLOWS_MAX, PeerEvent, PeerId};

/// Refused messages that can wait to be reported: twice what one packet brings.
const QUEUE: usize = 2 * FLOWS_MAX;

/// Pending events. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Events {
    /// Number of peers with events, and of queued events.
    pub count: u32,
    queue: [Option<Event>; QUEUE],
    /// No peer before this one has an event.
    pub peers_from: PeerId,
    /// Other suites of peers that were reported, a bit for each.
    pub suites: u8,
}

impl Events {
    pub const NONE: Self = Self {
        count: 0,
        queue: [None; QUEUE],
        peers_from: PeerId::NONE,
        suites: 0,
    };

    /// Queues an event that no table carries; returns false if the queue is full.
    pub fn push(&mut self, event: Event) -> bool {
        let Some(free) = self.queue.iter_mut().find(|e| e.is_none()) else {
            return false;
        };
        *free = Some(event);
        self.count += 1;
        true
    }

    /// Removes and returns the first queued event.
    pub fn pop(&mut self) -> Option<Event> {
        let event = self.queue[0]?;
        self.count -= 1;
        self.queue.copy_within(1.., 0);
        self.queue[QUEUE - 1] = None;
        Some(event)
    }

    /// Number of queued events.
    pub fn queued(&self) -> u32 {
        self.queue.iter().flatten().count() as u32
    }
}

/// Pending events of one peer, in 16 bits. Each life has at most a silence, its
/// end and a death. If a life began and ended unreported, only its death is
/// reported, in place of the death before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PeerEvents(u16);

impl PeerEvents {
    const WAITING: u16 = 1;
    const UP: u16 = 2;
    const DEAD: u16 = 4;
    /// Events of the life after the death, which may begin with an introduction.
    const COME: u16 = 8;
    const WAITING_AGAIN: u16 = 16;
    const UP_AGAIN: u16 = 32;
    const REASON_AT: u32 = 6;

    const REASONS: [DeathReason; 6] = [
        DeathReason::Closed,
        DeathReason::Silent,
        DeathReason::NoAnswer,
        DeathReason::Restarted,
        DeathReason::Told,
        DeathReason::Removed,
    ];

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn add(&mut self, event: PeerEvent) {
        let again = self.0 & (Self::DEAD | Self::COME) != 0;
        match event {
            PeerEvent::Come => self.0 |= Self::COME,
            PeerEvent::Waiting if again => self.0 |= Self::WAITING_AGAIN,
            PeerEvent::Waiting => self.0 |= Self::WAITING,
            PeerEvent::Up if again => self.0 |= Self::UP_AGAIN,
            PeerEvent::Up => self.0 |= Self::UP,
            PeerEvent::Dead(why) => {
                self.0 &= Self::WAITING | Self::UP;
                self.0 |= Self::DEAD | (why as u16) << Self::REASON_AT;
            }
        }
    }

    /// Removes and returns the first event.
    pub fn take(&mut self) -> Option<PeerEvent> {
        let first = self.0 & self.0.wrapping_neg();
        self.0 &= !first;
        Some(match first {
            Self::COME => PeerEvent::Come,
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
