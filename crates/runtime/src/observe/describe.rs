//! Where an endpoint's counters and state lie in this process's memory. An observer reads them
//! itself, so that the program need not be able to answer, and pays nothing.

use portolan_engine::{NetLane, ShmLane, UnboundRow};
use portolan_link::xdp::{GATE_COUNTERS, Xdp, XdpCounters};
use portolan_proto::{self as proto, Field, field};

use crate::network::{First, Links};
use crate::state::State;

/// A table of entries with named numbers in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Name of what the table holds.
    pub name: &'static str,
    /// Address of the first entry, valid while the endpoint is open.
    pub address: u64,
    /// Distance from one entry to the next, bytes.
    pub stride: usize,
    /// Number of entries.
    pub count: usize,
    /// Fields of each entry.
    pub fields: Vec<Field>,
}

const ENDPOINT_FIELDS: &[Field] = &[
    field!("sent", State, engine.core.state.counters.sent),
    field!("bytes_sent", State, engine.core.state.counters.bytes_sent),
    field!("received", State, engine.core.state.counters.received),
    field!(
        "bytes_received",
        State,
        engine.core.state.counters.bytes_received
    ),
    field!("kept", State, engine.core.state.counters.kept),
    field!("not_now", State, engine.core.state.counters.not_now),
    field!("no_credit", State, engine.core.state.counters.no_credit),
    field!("refused", State, engine.core.state.counters.refused),
    field!("deaths", State, engine.core.state.counters.deaths),
    field!("helped", State, engine.core.state.counters.helped),
    field!("sleeps", State, engine.core.state.counters.sleeps),
    field!("tx_failed", State, engine.core.state.counters.tx_failed),
    field!("direct", State, engine.core.state.counters.direct),
    field!("shared", State, engine.core.state.counters.shared),
    field!("shm_peers", State, engine.core.state.lanes.count.shm),
    field!("udp_peers", State, engine.core.state.lanes.count.net),
    field!("dead_peers", State, engine.core.state.lanes.count.dead),
    field!(
        "unexpected_bytes",
        State,
        engine.core.state.own.unexpected.used
    ),
    field!("queued_bytes", State, engine.core.state.own.queued.used),
    field!("waiting_call", State, waiting.call),
    field!("waiting_rank", State, waiting.rank),
    field!("waiting_since", State, waiting.since),
    field!("closing", State, engine.core.state.closing),
];

const UNBOUND_FIELDS: &[Field] = &[
    field!("port", UnboundRow, port),
    field!("space", UnboundRow, space),
    field!("from", UnboundRow, from),
    field!("messages", UnboundRow, messages, Some(0)),
];

fn table<T>(name: &'static str, entries: &[T], fields: &[Field]) -> Table {
    Table {
        name,
        address: entries.as_ptr() as u64,
        stride: size_of::<T>(),
        count: entries.len(),
        fields: fields.to_vec(),
    }
}

/// A table of bare numbers.
fn list<T>(name: &'static str, numbers: &[T], field: &'static str, idle: Option<u64>) -> Table {
    let field = Field {
        name: field,
        offset: 0,
        bytes: size_of::<T>(),
        idle,
    };
    table(name, numbers, &[field])
}

/// Returns all tables of a state that lies, or will lie, at `address`. What else it points to does
/// not move.
pub(crate) fn tables(state: &mut State, address: u64) -> Vec<Table> {
    let mut all = vec![Table {
        name: "endpoint",
        address,
        stride: size_of::<State>(),
        count: 1,
        fields: ENDPOINT_FIELDS.to_vec(),
    }];
    let core = &state.core;
    all.push(list(
        "kept_from",
        core.own.queued.by_sender(),
        "bytes",
        Some(0),
    ));
    all.push(list(
        "unexpected_from",
        core.own.unexpected.by_sender(),
        "bytes",
        Some(0),
    ));
    all.push(table("unbound", &core.unbound.rows[..], UNBOUND_FIELDS));
    if let Some(net) = &mut state.io.net {
        all.extend(describe_net(net));
    }
    if let Some(shm) = &state.io.shm {
        all.extend(describe_shm(shm));
    }
    all
}

fn describe_net(net: &mut NetLane<Links>) -> Vec<Table> {
    let (fast, names) = match &net.link.first {
        First::Udp(_) => (None, ["udp_rank", "udp", "udp_path"]),
        First::Xdp(link) => (Some(describe_fast(link)), ["xdp_rank", "xdp", "xdp_path"]),
    };
    let (tables, ranks) = net.described();
    let net = [
        table(
            "protocol",
            std::slice::from_ref(tables.core),
            proto::COUNTER_FIELDS,
        ),
        list(names[0], ranks, "rank", None),
        table(names[1], tables.conns, proto::CONN_FIELDS),
        table(names[2], tables.paths, proto::PATH_FIELDS),
    ];
    net.into_iter().chain(fast.into_iter().flatten()).collect()
}

const FAST_FIELDS: &[Field] = &[
    field!("fast_packets_sent", XdpCounters, tx_frames),
    field!("fast_packet_bytes_sent", XdpCounters, tx_bytes),
    field!("sent_by_kernel", XdpCounters, tx_kernel),
    field!("fast_packets_received", XdpCounters, rx_frames),
    field!("fast_packet_bytes_received", XdpCounters, rx_bytes),
    field!("fast_path_lost", XdpCounters, lost),
    field!("source_ports_tried", XdpCounters, tried),
];

/// Tables of a host port: what came past the kernel, and what the BPF program that steers it there
/// does.
fn describe_fast(link: &Xdp) -> [Table; 2] {
    let counting = link.gate().counting();
    let names = GATE_COUNTERS.into_iter().enumerate();
    let field = |(at, name)| Field {
        name,
        offset: at * size_of::<u64>(),
        bytes: size_of::<u64>(),
        idle: None,
    };
    [
        table(
            "fast_path",
            std::slice::from_ref(link.counters()),
            FAST_FIELDS,
        ),
        Table {
            name: "host_port",
            address: counting.as_ptr() as u64,
            stride: size_of_val(counting),
            count: 1,
            fields: names.map(field).collect(),
        },
    ]
}

fn describe_shm(shm: &ShmLane) -> Vec<Table> {
    let (peers, fields) = shm.tx.described();
    vec![
        list("shm_rank", shm.ranks(), "rank", None),
        table("shm", peers, fields),
    ]
}
