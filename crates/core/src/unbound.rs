//! Messages that came to ports that nobody has bound yet: who sent how many
//! where.

use crate::core::Core;
use crate::ports::{Meta, PortId, PortState};
use crate::space::SpaceId;

/// Entries that whoever watches the process can see.
const ROWS: usize = 16;
/// Entries that are told one by one at the end.
const TOLD_MAX: usize = 8;

/// The messages of one sender to one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The port.
    pub port: u16,
    /// Its space.
    pub space: u16,
    /// The sender.
    pub from: u32,
    /// 0: the entry is free.
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

/// The first that came, for whoever watches; all are counted at the end.
#[derive(Debug, Default)]
pub struct Unbound {
    /// Where it lies stays the same when the endpoint is moved.
    pub rows: Box<[Row; ROWS]>,
}

impl Unbound {
    /// A message was kept.
    pub(crate) fn note(&mut self, port: PortId, from: u32) {
        let of = |row: &&mut Row| row.messages > 0 && row.is_at(port) && row.from == from;
        if let Some(row) = self.rows.iter_mut().find(of) {
            row.messages += 1;
        } else if let Some(row) = self.rows.iter_mut().find(|row| row.messages == 0) {
            *row = Row::new(port, from, 1);
        }
    }

    /// Messages wait no more.
    pub(crate) fn forget(&mut self, gone: impl Fn(&Row) -> bool) {
        for row in self.rows.iter_mut().filter(|row| gone(row)) {
            *row = Row::default();
        }
    }
}

impl Core {
    /// What waits at ports that were never bound, and for spaces that were never opened, a
    /// sentence for each sender and port, or space.
    pub fn never_bound(&mut self) -> Vec<String> {
        let mut found: Vec<(SpaceId, Option<u16>, u32)> = Vec::new();
        for port in self.ports.with_held() {
            let slot = self.ports.get_or_make(port);
            if port.is_programs() && slot.state == PortState::Unbound {
                let held = slot.held.iter();
                found.extend(held.map(|held| (port.space, Some(port.number), held.meta.from)));
            }
        }
        let aside: Vec<Meta> = self.metas_aside().copied().collect();
        for meta in aside {
            let (space, port) = (meta.space(), meta.port_id());
            if !self.is_open(space) {
                found.push((space, None, meta.from));
            } else if port.is_programs() && self.ports.get_or_make(port).state == PortState::Unbound
            {
                found.push((space, Some(port.number), meta.from));
            }
        }
        found.sort_unstable();
        let rows: Vec<_> = (found.chunk_by(|a, b| a == b))
            .map(|same| (same[0], same.len()))
            .collect();
        let me = self.rank;
        let line = |((space, port, from), messages): &((SpaceId, Option<u16>, u32), usize)| {
            let (what, came) = match messages {
                1 => ("message", "was"),
                _ => ("messages", "were"),
            };
            let (to, why) = match (*space, port) {
                (SpaceId::PROGRAM, Some(port)) => (
                    format!("to port {port}"),
                    "it was never bound: bind ports before others send to them",
                ),
                (space, Some(port)) => (
                    format!("to port {port} of {space}"),
                    "it was never bound: bind ports before others send to them",
                ),
                (space, None) => (
                    format!("to {space}"),
                    "it was never opened: open it in every process of the job",
                ),
            };
            format!(
                "rank {me}: {messages} {what} from rank {from} {to} {came} never taken, since {why}"
            )
        };
        let mut lines: Vec<String> = rows.iter().take(TOLD_MAX).map(line).collect();
        if let Some(more @ 1..) = rows.len().checked_sub(TOLD_MAX) {
            lines.push(format!(
                "rank {me}: the same holds for {more} more pairs of sender and port"
            ));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
