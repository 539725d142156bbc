//! Reports, at the end, messages that were never taken.

use super::CoreState;
use super::collective::LEFT;
use super::ports::PortState;
use crate::values::{Meta, SpaceId};

/// Entries that are reported one by one at the end.
const TOLD_MAX: usize = 8;

impl CoreState {
    /// Returns a sentence for each sender and port, or space, of messages that wait at ports
    /// that were never bound, or for spaces that were never opened.
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
            if meta.port == LEFT {
                continue;
            }
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
