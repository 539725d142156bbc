//! Messages to ports that are not bound yet: number by sender and port.

use crate::values::PortId;

/// Number of entries, which are visible from outside the process.
const ROWS: usize = 16;

/// The messages of one sender to one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The port.
    pub port: u16,
    /// Its space.
    pub space: u16,
    /// The sender.
    pub from: u32,
    /// Number of messages; 0: the entry is free.
    pub messages: u64,
}

impl Row {
    const fn new(port: PortId, from: u32, messages: u64) -> Self {
        Self {
            port: port.number,
            space: port.space.number() as u16,
            from,
            messages,
        }
    }

    pub(crate) const fn is_at(&self, port: PortId) -> bool {
        self.port == port.number && self.space as u32 == port.space.number()
    }
}

/// The first senders and ports, for observers; all messages are counted at the end.
#[derive(Debug, Default)]
pub struct Unbound {
    /// Boxed: the address stays the same when the endpoint is moved.
    pub rows: Box<[Row; ROWS]>,
}

impl Unbound {
    /// Counts a kept message.
    pub(crate) fn note(&mut self, port: PortId, from: u32) {
        let of = |row: &&mut Row| row.messages > 0 && row.is_at(port) && row.from == from;
        if let Some(row) = self.rows.iter_mut().find(of) {
            row.messages += 1;
        } else if let Some(row) = self.rows.iter_mut().find(|row| row.messages == 0) {
            *row = Row::new(port, from, 1);
        }
    }

    /// Frees the entries for which `gone` returns true.
    pub(crate) fn forget(&mut self, gone: impl Fn(&Row) -> bool) {
        for row in self.rows.iter_mut().filter(|row| gone(row)) {
            *row = Row::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::SpaceId;

    #[test]
    fn the_first_senders_and_ports_are_seen() {
        let mut unbound = Unbound::default();
        let at = |number| PortId {
            space: SpaceId::PROGRAM,
            number,
        };
        for (port, from) in [(7, 1), (7, 1), (8, 1), (7, 2)] {
            unbound.note(at(port), from);
        }
        unbound.forget(|row| row.is_at(at(8)));
        for from in 3..100 {
            unbound.note(at(9), from);
        }
        let rows = unbound.rows.map(|row| (row.port, row.from, row.messages));
        assert_eq!(rows[..4], [(7, 1, 2), (9, 3, 1), (7, 2, 1), (9, 4, 1)]);
        assert_eq!(rows[ROWS - 1], (9, 16, 1));
    }
}
