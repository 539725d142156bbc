//! What goes on between the ranks of a job, for finding a hang.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use portolan_boot::control::{HostView, JobName, RankView, TableView};
use portolan_hosts::print::counted;

use super::counters::waiting;
use super::view::{process, span};

/// An entry of a table, its numbers by name.
struct Entry<'a> {
    table: &'a TableView,
    index: u32,
    row: &'a [u64],
}

impl Entry<'_> {
    fn get(&self, field: &str) -> u64 {
        let at = self.table.fields.iter().position(|name| name == field);
        at.and_then(|at| self.row.get(at)).copied().unwrap_or(0)
    }

    /// Of counters that wrap: how far one is ahead of another.
    fn ahead(&self, field: &str, of: &str) -> i32 {
        (self.get(field) as u32)
            .wrapping_sub(self.get(of) as u32)
            .cast_signed()
    }
}

fn entries<'a>(rank: &'a RankView, table: &str) -> Vec<Entry<'a>> {
    let table = rank.table(table);
    let entry = |table: &'a TableView| {
        table.rows.iter().map(move |(index, row)| Entry {
            table,
            index: *index,
            row,
        })
    };
    table.into_iter().flat_map(entry).collect()
}

/// The rank of each index, as a table says.
fn ranks(rank: &RankView, table: &str) -> BTreeMap<u64, u64> {
    let entries = entries(rank, table);
    entries
        .iter()
        .map(|e| (u64::from(e.index), e.get("rank")))
        .collect()
}

fn whom(ranks: &BTreeMap<u64, u64>, index: u64) -> String {
    ranks
        .get(&index)
        .map_or_else(|| "?".to_owned(), u64::to_string)
}

/// All ranks.
pub fn text(job: &JobName, hosts: &[HostView]) -> String {
    let mut text = format!("job {job}\n");
    for host in hosts {
        for rank in &host.ranks {
            one(&mut text, host, rank);
        }
    }
    text
}

fn one(text: &mut String, host: &HostView, rank: &RankView) {
    let _ = write!(
        text,
        "rank {} on host {}: process {}, {}, {}",
        rank.rank,
        host.name,
        rank.pid,
        rank.phase,
        process(rank)
    );
    if let Some(core) = rank.core {
        let _ = write!(text, ", core {core}");
    }
    text.push('\n');
    if let Some(why) = rank.unread {
        let _ = writeln!(text, "  {why}");
    }
    if let Some(wait) = waiting(host, rank) {
        let whom = wait
            .rank
            .map_or(String::new(), |rank| format!(" for rank {rank}"));
        let _ = writeln!(
            text,
            "  waits in {}{whom} since {}",
            wait.call,
            span(wait.ns)
        );
    }
    net(text, host, rank);
    shm(text, rank);
    for (table, what) in [
        ("kept_from", "no handler has taken"),
        ("unexpected_from", "no port was bound for"),
    ] {
        for entry in entries(rank, table) {
            let bytes = entry.get("bytes");
            let _ = writeln!(
                text,
                "  from rank {}: {bytes} bytes that {what}",
                entry.index
            );
        }
    }
    for entry in entries(rank, "unbound") {
        let (from, port) = (entry.get("from"), entry.get("port"));
        let messages = counted(entry.get("messages") as usize, "message");
        let of = match entry.get("space") {
            0 => String::new(),
            space => format!(" of space {space}"),
        };
        let _ = writeln!(
            text,
            "  from rank {from}: {messages} to port {port}{of}, which is not bound"
        );
    }
    for table in rank.tables.iter().filter(|table| table.left_out > 0) {
        let _ = writeln!(
            text,
            "  {} more in {}: not shown",
            table.left_out, table.name
        );
    }
}

fn net(text: &mut String, host: &HostView, rank: &RankView) {
    for (link, of) in [("udp", "udp_rank"), ("xdp", "xdp_rank")] {
        peers(text, host, rank, link, &ranks(rank, of));
    }
}

/// Those that a link of the network leads to.
fn peers(text: &mut String, host: &HostView, rank: &RankView, link: &str, of: &BTreeMap<u64, u64>) {
    let ago = |at: u64| span(host.now_ns.saturating_sub(at));
    let paths = entries(rank, &format!("{link}_path"));
    for conn in entries(rank, link) {
        let mine: Vec<_> = paths
            .iter()
            .filter(|path| path.get("entry") == u64::from(conn.index))
            .collect();
        let sum = |field: &str| mine.iter().map(|path| path.get(field)).sum::<u64>();
        let _ = write!(
            text,
            "  {link}, rank {}: {} packets in flight ({} bytes), {} queued",
            whom(of, conn.get("peer")),
            sum("in_flight"),
            sum("in_flight_bytes"),
            conn.get("queued")
        );
        if mine.len() > 1 {
            for (at, path) in mine.iter().enumerate() {
                let (by, packets) = (path.get("path"), path.get("in_flight"));
                let lead = if at == 0 { ", by" } else { " and" };
                let _ = match path.get("usable") {
                    0 => write!(text, "{lead} path {by} (it does not answer)"),
                    _ => write!(text, "{lead} path {by} ({packets})"),
                };
            }
        }
        if conn.get("waiting_since") != u64::MAX {
            let since = ago(conn.get("waiting_since"));
            let _ = write!(text, ", nothing acknowledged since {since}");
            let probes = sum("probes_in_vain");
            if probes > 0 {
                let _ = write!(text, " ({probes} probes)");
            }
        }
        if conn.get("connect_next") != u64::MAX {
            text.push_str(", connecting");
        }
        let _ = write!(text, ", heard {} ago", ago(conn.get("heard_at")));
        let packets = sum("packet_limit").saturating_sub(sum("next_packet"));
        let _ = write!(
            text,
            ", credit for {} requests, {} replies, {packets} packets",
            conn.ahead("request_credit", "requests_sent"),
            conn.ahead("reply_credit", "replies_sent")
        );
        let held = (conn.get("held_requests"), conn.get("held_replies"));
        if held != (0, 0) {
            let _ = write!(
                text,
                ", holds {} requests and {} replies of it",
                held.0, held.1
            );
        }
        text.push('\n');
    }
}

fn shm(text: &mut String, rank: &RankView) {
    let of = ranks(rank, "shm_rank");
    for peer in entries(rank, "shm") {
        let _ = write!(
            text,
            "  shm, rank {}: {} requests sent",
            whom(&of, u64::from(peer.index)),
            peer.get("next_request")
        );
        if peer.get("streaming") != 0 {
            text.push_str(", a long message is on its way through the ring");
        }
        text.push('\n');
    }
}
