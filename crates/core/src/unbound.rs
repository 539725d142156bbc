//! Messages that came to ports that nobody has bound yet: who sent how many
//! where.

use crate::core::Core;
use crate::ports::{PORTS_RESERVED, PortState};

/// Entries that whoever watches the process can see.
const ROWS: usize = 16;
/// Entries that are told one by one at the end.
const TOLD_MAX: usize = 8;

/// The messages of one sender to one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The port.
    pub port: u16,
    /// The sender.
    pub from: u32,
    /// 0: the entry is free.
    pub messages: u64,
}

/// The first that came, for whoever watches; all are counted at the end.
#[derive(Debug, Default)]
pub struct Unbound {
    /// Where it lies stays the same when the endpoint is moved.
    pub rows: Box<[Row; ROWS]>,
}

impl Unbound {
    /// A message was kept.
    pub(crate) fn note(&mut self, port: u16, from: u32) {
        let of = |row: &&mut Row| row.messages > 0 && (row.port, row.from) == (port, from);
        if let Some(row) = self.rows.iter_mut().find(of) {
            row.messages += 1;
        } else if let Some(row) = self.rows.iter_mut().find(|row| row.messages == 0) {
            *row = Row {
                port,
                from,
                messages: 1,
            };
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
    /// What waits at ports that were never bound, a sentence for each sender
    /// and port.
    pub fn never_bound(&mut self) -> Vec<String> {
        let mut found: Vec<(u16, u32)> = Vec::new();
        for port in self.ports.with_held() {
            let slot = self.ports.get_or_make(port);
            if port >= PORTS_RESERVED || slot.state != PortState::Unbound {
                continue;
            }
            found.extend(slot.held.iter().map(|held| (port, held.meta.from)));
        }
        let mut aside: Vec<(u16, u32)> = self.metas_aside().map(|m| (m.port, m.from)).collect();
        aside.retain(|(port, _)| {
            *port < PORTS_RESERVED && self.ports.get_or_make(*port).state == PortState::Unbound
        });
        found.extend(aside);
        found.sort_unstable();
        let rows: Vec<Row> = (found.chunk_by(|a, b| a == b))
            .map(|same| Row {
                port: same[0].0,
                from: same[0].1,
                messages: same.len() as u64,
            })
            .collect();
        let me = self.rank;
        let line = |row: &Row| {
            let Row {
                port,
                from,
                messages,
            } = row;
            let (what, came) = match messages {
                1 => ("message", "was"),
                _ => ("messages", "were"),
            };
            format!(
                "rank {me}: {messages} {what} from rank {from} to port {port} {came} never taken, \
                 since it was never bound: bind ports before others send to them"
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
        for (port, from) in [(7, 1), (7, 1), (8, 1), (7, 2)] {
            unbound.note(port, from);
        }
        unbound.forget(|row| row.port == 8);
        for from in 3..100 {
            unbound.note(9, from);
        }
        let rows = unbound.rows.map(|row| (row.port, row.from, row.messages));
        assert_eq!(rows[..4], [(7, 1, 2), (9, 3, 1), (7, 2, 1), (9, 4, 1)]);
        assert_eq!(rows[ROWS - 1], (9, 16, 1));
    }
}
