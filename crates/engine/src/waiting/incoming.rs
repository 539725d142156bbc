//! Messages that arrive in several parts.

use crate::values::{Buffer, Charge, Meta, SpaceId};

/// A buffer with a message in it.
#[derive(Debug)]
pub struct Filled {
    pub buffer: Buffer,
    /// Bytes of the message there; 0 if it never arrived whole.
    pub bytes: usize,
    /// Length of the message, bytes.
    pub total: u64,
    /// Generation of the binding that the message came to.
    pub generation: u32,
    /// Chosen by a placing function: not the port's buffer.
    pub placed: bool,
}

/// Destination of the bytes.
#[derive(Debug)]
pub enum Dest {
    /// The buffer of the port, or memory where this message alone was placed.
    Bound(Filled),
    /// Memory of the endpoint.
    Own {
        body: Vec<u8>,
        charge: Charge,
        charged: usize,
    },
    /// None yet: the message could not be taken.
    Aside(Parts),
    /// Set aside, and taken since: further parts go to this cookie. `None`: refused, and
    /// further parts are discarded.
    Passed(Option<u64>),
}

/// A long message that lies in its sender's memory until it is copied.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// Index of the peer.
    pub from: u16,
    /// Address of the message in the peer's memory.
    pub remote: u64,
    /// The peer's number of its operation.
    pub id: u64,
}

/// Parts that have arrived of a message that is set aside.
#[derive(Debug)]
pub struct Parts {
    pub first: Vec<u8>,
    /// Further parts, each with its offset.
    pub rest: Vec<(u64, Vec<u8>)>,
    /// No part is missing.
    pub complete: bool,
    /// Set if the message lies in its sender's memory.
    pub offer: Option<Offer>,
}

/// A message with parts missing, or set aside.
#[derive(Debug)]
pub struct Incoming {
    pub meta: Meta,
    pub args: Vec<u8>,
    pub total: u64,
    pub dest: Dest,
}

impl Incoming {
    /// Returns the memory that the message takes while it is set aside, bytes.
    pub fn bytes(&self) -> usize {
        let of_parts = match &self.dest {
            Dest::Aside(parts) => {
                let rest = parts.rest.iter().map(|(_, bytes)| bytes.len());
                parts.first.len() + rest.sum::<usize>()
            }
            _ => 0,
        };
        size_of::<Self>() + self.args.len() + of_parts
    }

    /// Returns the room for the message, if any; less than all of it if it is truncated.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match &mut self.dest {
            Dest::Bound(filled) => Some(filled.buffer.as_mut_slice()),
            Dest::Own { body, .. } => Some(body),
            Dest::Aside(_) | Dest::Passed(_) => None,
        }
    }
}

/// Incoming messages, by cookie.
#[derive(Default)]
pub struct Incomings {
    slots: Vec<Option<Incoming>>,
    free: Vec<usize>,
}

impl Incomings {
    /// Adds a message; returns its cookie, never 0.
    pub fn insert(&mut self, incoming: Incoming) -> u64 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[at] = Some(incoming);
        at as u64 + 1
    }

    pub fn get(&mut self, cookie: u64) -> Option<&mut Incoming> {
        self.slots
            .get_mut(cookie.checked_sub(1)? as usize)?
            .as_mut()
    }

    pub fn remove(&mut self, cookie: u64) -> Option<Incoming> {
        let at = cookie.checked_sub(1)? as usize;
        let incoming = self.slots.get_mut(at)?.take()?;
        self.free.push(at);
        Some(incoming)
    }

    /// Lends a message out, whose cookie stays in use until it is given back or freed.
    pub fn lend(&mut self, cookie: u64) -> Option<Incoming> {
        self.slots.get_mut(cookie.checked_sub(1)? as usize)?.take()
    }

    pub fn give_back(&mut self, cookie: u64, incoming: Incoming) {
        self.slots[cookie as usize - 1] = Some(incoming);
    }

    /// Frees the cookie of a message that is lent out.
    pub fn free(&mut self, cookie: u64) {
        self.free.push(cookie as usize - 1);
    }

    /// Discards, from now on, messages of a space that arrive in the program's memory; returns
    /// their metadata.
    pub fn let_go(&mut self, space: SpaceId) -> Vec<Meta> {
        let mut gone = Vec::new();
        for it in self.slots.iter_mut().flatten() {
            if it.meta.space() == space && matches!(it.dest, Dest::Bound { .. }) {
                it.dest = Dest::Passed(None);
                gone.push(it.meta);
            }
        }
        gone
    }

    /// Returns the metadata of a message.
    pub fn meta(&self, cookie: u64) -> Option<&Meta> {
        let slot = self.slots.get(cookie.checked_sub(1)? as usize)?;
        slot.as_ref().map(|it| &it.meta)
    }

    /// Takes out all messages of a dead rank, except those that are whole and only wait.
    pub fn drop_from(&mut self, rank: u32) -> Vec<Incoming> {
        let waits = |dest: &Dest| match dest {
            Dest::Aside(parts) => parts.complete && parts.offer.is_none(),
            _ => false,
        };
        let mut dropped = Vec::new();
        for (at, slot) in self.slots.iter_mut().enumerate() {
            if slot
                .as_ref()
                .is_some_and(|i| i.meta.from == rank && !waits(&i.dest))
            {
                dropped.extend(slot.take());
                self.free.push(at);
            }
        }
        dropped
    }
}
