//! What ranks have done, and how fast.

use std::collections::BTreeMap;

use portolan::CALLS;
use portolan_boot::control::{HostView, RankView};

/// Tables of one entry: what a rank has done.
pub const TABLES: [&str; 4] = ["endpoint", "protocol", "fast_path", "host_port"];

/// Numbers that do not only grow: they are no counts.
pub const GAUGES: [&str; 10] = [
    "shm_peers",
    "udp_peers",
    "dead_peers",
    "unexpected_bytes",
    "queued_bytes",
    "free_frames",
    "held_frames",
    "waiting_seconds",
    "stopped",
    "joined",
];

/// Numbers that say something only together.
const STATE: [&str; 4] = ["waiting_call", "waiting_rank", "waiting_since", "closing"];

/// A rank's counts and gauges, by name.
pub fn numbers(rank: &RankView) -> BTreeMap<&str, u64> {
    let tables = TABLES.iter().filter_map(|name| rank.table(name));
    tables
        .filter_map(|table| Some((table, &table.rows.first()?.1)))
        .flat_map(|(table, row)| {
            table
                .fields
                .iter()
                .map(String::as_str)
                .zip(row.iter().copied())
        })
        .filter(|(name, _)| !STATE.contains(name))
        .collect()
}

/// What a rank waits in, for whom, and for how long, ns.
pub struct Wait {
    pub call: String,
    pub rank: Option<u64>,
    pub ns: u64,
}

/// What a rank waits for; none if it does not, or its wait is short yet.
pub fn waiting(host: &HostView, rank: &RankView) -> Option<Wait> {
    let number = |field| rank.number("endpoint", field);
    let call = usize::try_from(number("waiting_call")?)
        .ok()
        .filter(|call| *call > 0)?;
    let known = CALLS.get(call).copied();
    Some(Wait {
        call: known.map_or_else(|| format!("call {call}"), str::to_owned),
        rank: number("waiting_rank").filter(|rank| *rank != u64::from(u32::MAX)),
        ns: host.now_ns.saturating_sub(number("waiting_since")?),
    })
}

/// One look's numbers, for the rates until the next.
pub struct Sample {
    /// By rank: when, ns of its host's clock, and what.
    ranks: BTreeMap<u32, (u64, BTreeMap<String, u64>)>,
}

impl Sample {
    pub fn of(hosts: &[HostView]) -> Self {
        let mut ranks = BTreeMap::new();
        for host in hosts {
            for rank in &host.ranks {
                let numbers = numbers(rank).into_iter();
                let numbers = numbers
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect();
                ranks.insert(rank.rank, (host.now_ns, numbers));
            }
        }
        Self { ranks }
    }

    /// A rank's count.
    pub fn total(&self, rank: u32, name: &str) -> Option<u64> {
        self.ranks.get(&rank)?.1.get(name).copied()
    }

    /// How fast it grew since an earlier look, per second.
    pub fn rate(&self, before: &Self, rank: u32, name: &str) -> Option<f64> {
        let (now, then) = (self.ranks.get(&rank)?.0, before.ranks.get(&rank)?.0);
        let more = self
            .total(rank, name)?
            .checked_sub(before.total(rank, name)?)?;
        let ns = now.checked_sub(then).filter(|ns| *ns > 0)?;
        Some(more as f64 * 1e9 / ns as f64)
    }
}
