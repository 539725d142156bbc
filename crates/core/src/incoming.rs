//! Messages that arrive in several parts.

use crate::memory::Buffer;
use crate::ports::{Charge, Meta};

/// Where the bytes go.
#[derive(Debug)]
pub enum Dest {
    /// To the port's buffer.
    Bound { buffer: Buffer, generation: u32 },
    /// To memory of the endpoint.
    Own {
        body: Vec<u8>,
        charge: Charge,
        charged: usize,
    },
}

/// A message of which parts are missing.
#[derive(Debug)]
pub struct Incoming {
    pub meta: Meta,
    pub args: Vec<u8>,
    pub total: u64,
    pub dest: Dest,
}

impl Incoming {
    /// Room for the whole message, if it is of a port.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match &mut self.dest {
            Dest::Bound { buffer, .. } => Some(buffer.as_mut_slice()),
            Dest::Own { body, .. } => Some(body),
        }
    }
}

/// All of them, by cookie.
#[derive(Default)]
pub struct Incomings {
    slots: Vec<Option<Incoming>>,
    free: Vec<usize>,
}

impl Incomings {
    /// Gives the cookie, never 0.
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

    /// Takes out all that come from a rank.
    pub fn drop_from(&mut self, rank: u32) -> Vec<Incoming> {
        let mut dropped = Vec::new();
        for (at, slot) in self.slots.iter_mut().enumerate() {
            if slot.as_ref().is_some_and(|i| i.meta.from == rank) {
                dropped.extend(slot.take());
                self.free.push(at);
            }
        }
        dropped
    }
}
