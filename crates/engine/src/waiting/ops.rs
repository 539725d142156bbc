//! Long messages in flight, whose memory is lent until they are done.

use std::collections::{HashMap, hash_map};

use portolan_exchange::{OpError, OpId};
use portolan_proto::{Outcome, SourceId, Sources};
use portolan_wire::{MessageNo, Priority};

use crate::values::{FlowOf, PortId, Source, SpaceId};

/// Where the end of a message is reported.
pub enum Teller {
    Nobody,
    /// The program, by the operation of a message to a port.
    Message(SpaceId, OpId),
    /// The exchange, for a send of a matched message whose memory is read.
    Matched(SpaceId, OpId),
}

/// A long message in flight.
pub struct Entry {
    pub source: Source,
    pub to: u32,
    pub priority: Priority,
    pub flow: u16,
    pub number: MessageNo,
    pub teller: Teller,
    /// Bytes that are charged to the memory for copies.
    pub charged: usize,
    pub refused: bool,
}

impl Entry {
    const fn flow_of(&self) -> FlowOf {
        FlowOf {
            rank: self.to,
            priority: self.priority,
            flow: self.flow,
        }
    }
}

/// News for an exchange.
#[derive(Clone, Copy, Debug)]
pub enum News {
    /// A read of the memory of a space's operation has ended.
    Released(SpaceId, OpId),
    /// A message of a space's operation has arrived, or never will.
    Sent(SpaceId, OpId, MessageNo, Result<(), OpError>),
    /// A rank has died.
    Died(u32),
    /// A port takes signals from now on, or no more.
    Port(PortId, bool),
}

/// Long messages in flight, by source number.
pub struct Ops {
    slots: Vec<Option<Entry>>,
    free: Vec<u32>,
    /// Bytes of copies, in total and of each flow that has any.
    copied: usize,
    copied_of: HashMap<FlowOf, usize>,
    copied_max: usize,
    /// News that was not passed to the exchanges yet.
    pub news: Vec<News>,
}

impl Sources for Ops {
    fn read(&self, id: SourceId, offset: u64, into: &mut [u8]) {
        if let Some(Some(entry)) = self.slots.get(id.0 as usize) {
            entry.source.read(offset as usize, into);
        }
    }
}

impl Ops {
    pub fn new(copied_max: usize) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            copied: 0,
            copied_of: HashMap::new(),
            copied_max,
            news: Vec::new(),
        }
    }

    /// Charges a copy of `bytes` in a flow, if it fits. No flow takes more than it leaves to
    /// others, for it may be stopped.
    pub(crate) fn charge(&mut self, of: FlowOf, bytes: usize) -> bool {
        let own = self.copied_of.get(&of).copied().unwrap_or_default();
        let free = self.copied_max.saturating_sub(self.copied);
        // A single message may be longer than all the memory.
        let alone = own == 0 && bytes > self.copied_max && free > 0;
        let fits = alone || own.saturating_add(bytes) <= free;
        if fits {
            self.charge_beyond(of, bytes);
        }
        fits
    }

    /// Charges a copy, even beyond the limit.
    pub(crate) fn charge_beyond(&mut self, of: FlowOf, bytes: usize) {
        self.copied += bytes;
        *self.copied_of.entry(of).or_default() += bytes;
    }

    pub(crate) fn uncharge(&mut self, of: FlowOf, bytes: usize) {
        self.copied -= bytes;
        if let hash_map::Entry::Occupied(mut own) = self.copied_of.entry(of) {
            *own.get_mut() -= bytes;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }

    pub(crate) fn insert(&mut self, entry: Entry) -> SourceId {
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[at as usize] = Some(entry);
        SourceId(u64::from(at))
    }

    pub(crate) fn get_mut(&mut self, id: SourceId) -> Option<&mut Entry> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    /// Removes an entry, releases its charge, and returns it.
    pub(crate) fn remove(&mut self, id: SourceId) -> Option<Entry> {
        let entry = self.slots.get_mut(id.0 as usize)?.take()?;
        self.free.push(id.0 as u32);
        if entry.charged > 0 {
            self.uncharge(entry.flow_of(), entry.charged);
        }
        Some(entry)
    }

    /// Ends a message whose memory the link no longer reads.
    pub(crate) fn finish(&mut self, id: SourceId, outcome: Outcome) {
        let Some(entry) = self.remove(id) else { return };
        let result = match outcome {
            Outcome::Done if entry.refused => Err(OpError::Refused),
            Outcome::Done => Ok(()),
            Outcome::PeerDead => Err(OpError::PeerDead),
        };
        match entry.teller {
            Teller::Nobody => {}
            Teller::Matched(space, op) => self.news.push(News::Released(space, op)),
            Teller::Message(space, op) => {
                self.news.push(News::Sent(space, op, entry.number, result));
            }
        }
    }

    /// Ends messages to a dead rank. The protocol has released those that it had.
    pub(crate) fn peer_died(&mut self, rank: u32) {
        for at in 0..self.slots.len() {
            if self.slots[at].as_ref().is_some_and(|e| e.to == rank) {
                self.finish(SourceId(at as u64), Outcome::PeerDead);
            }
        }
    }

    /// Drops all messages: the endpoint is closed. The exchanges end the operations.
    pub(crate) fn end_all(&mut self) {
        for at in 0..self.slots.len() {
            self.remove(SourceId(at as u64));
        }
    }

    /// Marks a message refused; false if it is not in flight, or its end is not reported.
    pub(crate) fn refuse(
        &mut self,
        to: u32,
        priority: Priority,
        flow: u16,
        number: MessageNo,
    ) -> bool {
        let found =
            self.slots.iter_mut().flatten().find(|e| {
                e.to == to && e.priority == priority && e.flow == flow && e.number == number
            });
        match found {
            Some(entry) if !matches!(entry.teller, Teller::Nobody) => {
                entry.refused = true;
                true
            }
            _ => false,
        }
    }

    /// Whether messages of a space are in flight.
    pub(crate) fn is_of(&self, space: SpaceId) -> bool {
        let all = self.slots.iter().flatten();
        all.map(|it| SpaceId::of_flow(it.flow))
            .any(|it| it == space)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.len() == self.free.len()
    }
}
