//! Places of the fields in tables that are read from outside: by a monitor of
//! the process, also while that computes or is stopped. Nothing here runs while
//! messages move.

use core::mem::offset_of;

use crate::base::ConnIndex;
use crate::path::Path;
use crate::tables::{Conn, Core};

/// A field of an entry of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name.
    pub name: &'static str,
    /// Offset in the entry, bytes.
    pub offset: usize,
    /// Length: 1, 2, 4 or 8 bytes, an unsigned number.
    pub bytes: usize,
    /// Value in an idle entry, if the field shows that: an entry with another
    /// value is worth looking at.
    pub idle: Option<u64>,
}

/// Bytes of the field that a getter returns.
#[must_use]
pub const fn width<T, U>(_: fn(&T) -> &U) -> usize {
    size_of::<U>()
}

/// A [`Field`] from its name, the entry's type, the path to it, and its value
/// in an idle entry, if it has one.
#[macro_export]
macro_rules! field {
    ($name:literal, $entry:ty, $($path:ident).+) => {
        $crate::field!($name, $entry, $($path).+, None)
    };
    ($name:literal, $entry:ty, $($path:ident).+, $idle:expr) => {
        $crate::Field {
            name: $name,
            offset: core::mem::offset_of!($entry, $($path).+),
            bytes: $crate::width(|entry: &$entry| &entry.$($path).+),
            idle: $idle,
        }
    };
}

/// Field of one of a pair of numbers, by priority.
const fn of_pair(name: &'static str, pair: usize, priority: usize, idle: Option<u64>) -> Field {
    Field {
        name,
        offset: pair + 4 * priority,
        bytes: 4,
        idle,
    }
}

/// Counters of the protocol, in [`Core`].
pub const COUNTER_FIELDS: &[Field] = &[
    field!("packets_sent", Core, state.counters.packets_sent),
    field!("packet_bytes_sent", Core, state.counters.bytes_sent),
    field!("data_packets_sent", Core, state.counters.data_packets_sent),
    field!("resent", Core, state.counters.resent),
    field!("acks_sent", Core, state.counters.acks_sent),
    field!("probes_sent", Core, state.counters.probes_sent),
    field!("paths_given_up", Core, state.counters.paths_given_up),
    field!("rerouted", Core, state.counters.rerouted),
    field!("cut", Core, state.counters.cut),
    field!("spurious", Core, state.counters.spurious),
    field!("packets_received", Core, state.counters.packets_received),
    field!("packet_bytes_received", Core, state.counters.bytes_received),
    field!("duplicates", Core, state.counters.duplicates),
    field!("held", Core, state.counters.held),
    field!("unstopped", Core, state.counters.unstopped),
    field!("rekeys", Core, state.counters.rekeys),
    field!("dropped_version", Core, state.counters.drops.version),
    field!("dropped_malformed", Core, state.counters.drops.malformed),
    field!("dropped_unknown", Core, state.counters.drops.unknown),
    field!("dropped_bad_tag", Core, state.counters.drops.bad_tag),
    field!("dropped_replay", Core, state.counters.drops.replay),
    field!("dropped_no_room", Core, state.counters.drops.no_room),
    field!("dropped_limited", Core, state.counters.drops.limited),
    field!("free_frames", Core, pool.free_count),
    field!("held_frames", Core, pool.held_count),
];

/// Fields of an active peer, in [`Conn`].
pub const CONN_FIELDS: &[Field] = &[
    field!("peer", Conn, peer),
    field!("queued", Conn, outbound.queued, Some(0)),
    field!("waiting_since", Conn, silence.waiting_since, Some(u64::MAX)),
    field!("heard_at", Conn, silence.heard_at),
    field!("connect_next", Conn, handshake.due, Some(u64::MAX)),
    of_pair("held_requests", offset_of!(Conn, inbound.held), 0, Some(0)),
    of_pair("held_replies", offset_of!(Conn, inbound.held), 1, Some(0)),
    of_pair(
        "requests_sent",
        offset_of!(Conn, outbound.kept.sent),
        0,
        None,
    ),
    of_pair(
        "replies_sent",
        offset_of!(Conn, outbound.kept.sent),
        1,
        None,
    ),
    of_pair(
        "request_credit",
        offset_of!(Conn, outbound.kept.credit),
        0,
        None,
    ),
    of_pair(
        "reply_credit",
        offset_of!(Conn, outbound.kept.credit),
        1,
        None,
    ),
    field!("key_phase", Conn, kept.keys.sending),
];

/// Fields of a path of such a peer, in [`Path`].
pub const PATH_FIELDS: &[Field] = &[
    field!("entry", Path, conn, Some(ConnIndex::NONE.index() as u64)),
    field!("path", Path, way.id),
    field!("usable", Path, way.usable),
    field!("in_flight", Path, sent.flying),
    field!("in_flight_bytes", Path, sent.flying_bytes),
    field!("lowest_unacknowledged", Path, sent.lowest),
    field!("acknowledged_to", Path, sent.acked_to),
    field!("probes_in_vain", Path, sent.probes.backoff),
    field!("received_to", Path, received.next),
    field!("received_all_to", Path, received.base),
    field!("next_packet", Path, sent.next),
    field!("packet_limit", Path, sent.limit),
    field!("packet_max", Path, sent.mtu.confirmed),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::PeerId;

    #[test]
    fn fields_lie_within_their_entries() {
        for (fields, size) in [
            (COUNTER_FIELDS, size_of::<Core>()),
            (CONN_FIELDS, size_of::<Conn>()),
            (PATH_FIELDS, size_of::<Path>()),
        ] {
            for field in fields {
                assert!(matches!(field.bytes, 1 | 2 | 4 | 8), "{field:?}");
                assert!(field.offset + field.bytes <= size, "{field:?}");
            }
        }
    }

    #[test]
    fn a_free_entry_is_idle() {
        let conn = Conn::default();
        assert_eq!((conn.peer, conn.outbound.queued), (PeerId::NONE, 0));
        assert_eq!(
            (conn.silence.waiting_since, conn.handshake.due),
            (u64::MAX, u64::MAX)
        );
    }
}
