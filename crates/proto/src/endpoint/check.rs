//! Invariants between any two calls. For tests.

use core::hash::{Hash, Hasher};

use portolan_seal::Seal;
use portolan_wire::{Life, TAG_BYTES};

use crate::base::{ConnIndex, Counters, FrameIndex, List, LongIndex, PATHS_MAX, PeerId, Unusual};
use crate::endpoint::Endpoint;
use crate::inbound::RxFlow;
use crate::memory::{CHUNKS_AT, MemoryOwner, Use};
use crate::path::Path;
use crate::tables::{Conn, Listed, Parked, PeerState, State};

/// Chunks between an endpoint and a peer, by priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// The life of the peer.
    pub life: Life,
    /// Sent to the peer.
    pub sent: [u32; 2],
    /// Allowed by the peer.
    pub allowed: [u32; 2],
    /// Taken from the peer for good.
    pub taken: [u32; 2],
    /// How many beyond `taken` the peer may send.
    pub ahead: u32,
}

/// State of credit with a peer that is up.
pub(super) fn credit_with<S: Seal>(endpoint: &Endpoint<'_, S>, peer: PeerId) -> Option<Credit> {
    let p = endpoint.peers.get(peer.index())?;
    if p.state != PeerState::Up {
        return None;
    }
    let (outbound, inbound) = match endpoint.conns.get(p.conn.index()) {
        Some(c) => (c.outbound.kept, c.inbound.kept),
        None => {
            let parked = Parked::from_words(endpoint.parked.get(p.place as usize)?);
            (parked.outbound, parked.inbound)
        }
    };
    Some(Credit {
        life: p.life,
        sent: outbound.sent,
        allowed: outbound.credit,
        taken: inbound.taken,
        ahead: endpoint.hold_limit(),
    })
}

fn list_length<S: Seal>(endpoint: &Endpoint<'_, S>, list: List<FrameIndex>, usage: Use) -> u32 {
    let (mut at, mut n) = (list.head, 0);
    let mut last = FrameIndex::NONE;
    while at.is_some() {
        let cargo = &endpoint.memory.cargo[at];
        assert_eq!(cargo.usage, usage, "frame {at} in a list of {usage:?}");
        last = at;
        at = cargo.next;
        n += 1;
        assert!(n <= endpoint.core.config.frames, "a list runs in a circle");
    }
    assert_eq!(last, list.tail, "a list's tail is its last element");
    n
}

/// Feeds a hasher with all state that later behaviour may depend on:
/// without counters, and without the contents of free frames.
pub(super) fn hash_state<S: Seal>(endpoint: &Endpoint<'_, S>, state: &mut impl Hasher) {
    let own = State {
        counters: Counters::default(),
        ..*endpoint.core
    };
    own.hash(state);
    // What a turn was refused is set anew before the next.
    let mut pool = *endpoint.memory.pool;
    pool.refused_above = u32::MAX;
    pool.hash(state);
    endpoint.parked[endpoint.core.config.peers as usize..].hash(state);
    endpoint.peers[..endpoint.core.peer_count as usize].hash(state);
    // Parked state of an active peer is out of date, and not read.
    let known = &endpoint.peers[..endpoint.core.peer_count as usize];
    for p in known.iter().filter(|p| p.conn.is_none()) {
        endpoint.parked.get(p.place as usize).hash(state);
        let more = p.place as usize * (PATHS_MAX - 1);
        endpoint
            .parked_paths
            .get(more..more + PATHS_MAX - 1)
            .hash(state);
    }
    for conn in &*endpoint.conns {
        // Reasons that hold no more change nothing.
        let unusual = Unusual::NOTHING;
        Conn { unusual, ..*conn }.hash(state);
    }
    endpoint.paths.hash(state);
    endpoint.memory.longs.hash(state);
    for (i, cargo) in endpoint.memory.cargo.iter().enumerate() {
        let flight = &endpoint.memory.flights[i];
        if cargo.usage == Use::Free {
            cargo.next.hash(state);
            continue;
        }
        cargo.hash(state);
        flight.hash(state);
        let at = endpoint.memory.at(FrameIndex::new(i)) + CHUNKS_AT;
        let end = at + cargo.len as usize + TAG_BYTES;
        endpoint.memory.bytes[at - flight.ack_len as usize..end].hash(state);
    }
}

/// Asserts that every frame has exactly one owner and every counter agrees
/// with the lists.
pub(super) fn check<S: Seal>(endpoint: &Endpoint<'_, S>) {
    check_events(endpoint);
    let known = &endpoint.peers[..endpoint.core.peer_count as usize];
    let unused = known.iter().filter(|p| p.state == PeerState::Free).count();
    let (mut next, mut listed) = (endpoint.core.free_peers.head, 0);
    while next != PeerId::NONE {
        assert_eq!(endpoint.peers[next].state, PeerState::Free, "number {next}");
        (next, listed) = (endpoint.peers[next].next, listed + 1);
    }
    let counted = endpoint.core.free_peer_count as usize;
    assert_eq!((unused, listed), (counted, counted), "free numbers");
    let free = list_length(endpoint, endpoint.memory.pool.free, Use::Free);
    assert_eq!(free, endpoint.memory.pool.free_count, "free frames");
    let mut long = endpoint.memory.pool.free_longs;
    for _ in 0..endpoint.memory.pool.free_long_count {
        long = endpoint.memory.longs[long].next;
    }
    assert_eq!(long, LongIndex::NONE, "free long messages");
    let mut owned = free + list_length(endpoint, endpoint.core.queues.connects, Use::Passing);
    let mut held_all = 0;
    for (i, c) in endpoint.conns.iter().enumerate() {
        let conn = ConnIndex::new(i);
        if c.listed == Listed::Free {
            continue;
        }
        assert_eq!(
            endpoint.peers[c.peer].conn, conn,
            "peer and connection agree"
        );
        let holds = endpoint.find_unusual(conn);
        assert!(
            c.unusual.covers(holds),
            "{holds:?} holds of peer {}, not {:?}",
            c.peer,
            c.unusual
        );
        let mut queued = list_length(endpoint, c.outbound.resend, Use::Queued);
        queued += list_length(endpoint, c.outbound.control, Use::Queued);
        for (flows, pending) in c.outbound.tx.iter().zip(c.outbound.pending) {
            for (f, tx) in flows.iter().enumerate() {
                let frames = list_length(endpoint, tx.queue, Use::Queued);
                assert_eq!(frames, tx.frames, "frames in flow {f}");
                queued += frames;
                let marked = pending >> f & 1 == 1;
                assert_eq!(marked, !tx.is_empty(), "flow {f} is marked as pending");
            }
        }
        let held_in = |rx: &RxFlow| list_length(endpoint, rx.held, Use::Held);
        let held = c
            .inbound
            .rx
            .map(|flows| flows.iter().map(held_in).sum::<u32>());
        let mut flying = 0;
        for path in endpoint.conns[conn].paths.iter() {
            let p = &endpoint.paths[path];
            assert_eq!(p.conn, conn, "path and connection agree");
            for frame in p.sent.frames() {
                let cargo = &endpoint.memory.cargo[frame];
                assert_eq!(
                    (cargo.usage, endpoint.memory.flights[frame].path),
                    (Use::Flying, path)
                );
            }
            let count = p.sent.frames().count() as u32;
            assert_eq!(
                count, p.sent.flying,
                "in flight to peer {} by {}",
                c.peer, p.way.id
            );
            flying += count;
        }
        let mut paths = endpoint.conns[conn]
            .paths
            .iter()
            .map(|path| &endpoint.paths[path]);
        assert!(
            paths.any(|p| p.way.is_usable()),
            "peer {} is reached",
            c.peer
        );
        // Probes may be somewhat late where the estimate of round trips has sunk.
        let due = c
            .handshake
            .due
            .min(c.silence.keepalive_at())
            .min(c.inbound.refusals.retry_at);
        let armed = endpoint.core.next_deadline;
        assert!(
            armed <= due,
            "{due} is armed for peer {}, not {armed}",
            c.peer
        );
        let parting = endpoint
            .memory
            .cargo
            .iter()
            .filter(|m| m.usage == Use::Parting);
        queued += parting.filter(|m| m.conn == conn).count() as u32;
        assert_eq!(
            queued + flying,
            c.outbound.queued,
            "frames towards peer {}",
            c.peer
        );
        let towards = endpoint.memory.cargo.iter().enumerate().filter(|(f, m)| {
            let mine = m.conn == conn;
            let by = endpoint.memory.flights[FrameIndex::new(*f)].path;
            let path = endpoint.paths.get(by.index());
            let is_sent = |p: &Path| p.sent.frames().any(|frame| frame.index() == *f);
            let flying = m.usage == Use::Flying && path.is_some_and(is_sent);
            mine && m.is_reply() && (matches!(m.usage, Use::Queued | Use::Parting) || flying)
        });
        let replies = towards.count() as u32;
        assert_eq!(
            replies, c.outbound.queued_replies,
            "replies towards peer {}",
            c.peer
        );
        assert_eq!(held, c.inbound.held, "frames held of peer {}", c.peer);
        owned += queued + flying + held[0] + held[1];
        held_all += held[0] + held[1];
    }
    assert_eq!(
        held_all, endpoint.memory.pool.held_count,
        "frames held of all peers"
    );
    // The link has the rest, and reports when it is done.
    let frames = endpoint.memory.cargo.iter().zip(&*endpoint.memory.flights);
    let in_link = frames
        .filter(|(m, f)| f.in_link && matches!(m.usage, Use::Passing | Use::Leaving))
        .count() as u32;
    assert_eq!(
        owned + in_link,
        endpoint.core.config.frames,
        "every frame has an owner"
    );
}

/// Asserts that the count of pending events is right.
fn check_events<S: Seal>(endpoint: &Endpoint<'_, S>) {
    let events = &endpoint.core.events;
    let mut count = events.queued();
    let mut long = endpoint.memory.pool.released.head;
    while long.is_some() {
        let l = &endpoint.memory.longs[long];
        assert_eq!(l.memory, MemoryOwner::Untold, "long message {long}");
        long = l.next;
    }
    let known = &endpoint.peers[..endpoint.core.peer_count as usize];
    for (i, p) in (0..).map(PeerId).zip(known) {
        let waits = !p.events.is_empty();
        assert!(!waits || i >= events.peers_from, "events of peer {i}");
        count += u32::from(waits);
    }
    assert_eq!(count, events.count, "events that wait");
}
