//! The memory that the caller provides: plain tables, linked by indices.

mod conn;
mod events;
mod greeter;
mod kept;
mod network;
mod peer;
mod tokens;

use portolan_seal::random_number;
use portolan_wire::{EndpointId, Life};

use crate::base::{
    Config, ConnIndex, Counters, FrameIndex, List, LongIndex, PATHS_MAX, PeerId, WINDOW_SPAN,
};
use crate::memory::{Cargo, Flight, Long, Pool};
use crate::path::Path;

pub use conn::Conn;
pub(crate) use conn::Listed;
pub(crate) use events::{Events, PeerEvents};
pub(crate) use greeter::Greeter;
pub(crate) use kept::{Kept, KeptFurther, Parked};
pub use kept::{NOT_PARKED, PathSnapshot, PeerSnapshot};
pub use network::LocalNetwork;
pub(crate) use peer::{NO_PLACE, PEER_BITS, PeerBits};
pub use peer::{Peer, PeerState};
pub(crate) use tokens::Tokens;

/// Id and life of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Unique among members that share the secret.
    pub id: EndpointId,
    /// Fresh random bits for this incarnation.
    pub life: Life,
}

/// State of the endpoint as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Core {
    pub(crate) state: State,
    pub(crate) pool: Pool,
}

/// State of the endpoint beside the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) config: Config,
    pub(crate) me: Identity,
    pub(crate) queues: Queues,
    pub(crate) places: Places,
    /// Largest UDP payload that the interface of the first network takes now.
    pub(crate) packet_max: u16,
    /// Our networks, by number; the first may be unknown.
    pub(crate) networks: [LocalNetwork; PATHS_MAX],
    pub(crate) secret: SecretCell,
    pub(crate) random: Random,
    /// Entries of `peers` that are or were in use.
    pub(crate) peer_count: u32,
    /// Free entries among these, in the order of reuse.
    pub(crate) free_peers: List<PeerId>,
    pub(crate) free_peer_count: u32,
    /// Admission of strangers.
    pub(crate) greeter: Greeter,
    /// Number of the next connect packet: one space for all peers.
    pub(crate) connect_number: u64,
    /// Some peer may believe that there is no room for its chunks.
    pub(crate) full: bool,
    /// Earliest deadline of any connection; may be early.
    pub(crate) next_deadline: u64,
    /// Until then round trips show our want of a core, and not the network, ns.
    pub(crate) starved_until: u64,
    pub(crate) senders: Senders,
    /// Unverified connect packets that may still be opened.
    pub(crate) connect_tokens: Tokens,
    /// Packets and ICMP errors for which all peers may still be searched.
    pub(crate) search_tokens: Tokens,
    /// Restarted peers whose new life is not proven yet.
    pub(crate) pending: [Pending; PENDING],
    pub(crate) pending_next: u32,
    pub(crate) events: Events,
    /// Some held chunk may be taken: [`crate::Endpoint::resume`] hands it out.
    pub(crate) resumable: bool,
    pub(crate) counters: Counters,
    pub(crate) closing: bool,
    /// Number of peers with `close_owed`.
    pub(crate) closes_owed: u32,
}

/// Connections and connect packets that wait to leave. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Queues {
    /// Connect packets, sealed, for the peer in [`Cargo`]'s `conn`.
    pub connects: List<FrameIndex>,
    /// Connections that may have something to send.
    pub ready: List<ConnIndex>,
    /// Connections that owe only an acknowledgement which may wait.
    pub deferred: List<ConnIndex>,
    /// Connections that found no frame for what they must send.
    pub starved: List<ConnIndex>,
    /// With more frames free than this, a starved connection can go on.
    pub starved_above: u32,
    /// Packets in a row of the connection that is first in `ready`.
    pub burst: u32,
}

impl Queues {
    const EMPTY: Self = Self {
        connects: List::EMPTY,
        ready: List::EMPTY,
        deferred: List::EMPTY,
        starved: List::EMPTY,
        starved_above: u32::MAX,
        burst: 0,
    };
}

/// Places in the tables of connections and of parked state. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Places {
    pub free_conns: List<ConnIndex>,
    /// Connections that have memory.
    pub conn_count: u32,
    /// No connection at or above this index is in use.
    pub conns_used: u32,
    /// Places for parked state that peers have; they are never returned.
    pub parked_used: u32,
    /// A peer found no connection.
    pub lacks_conn: bool,
    /// When new connections are taken into use, and, where peers come and go,
    /// silent ones next removed to make room for others, ns; `u64::MAX`: there
    /// is no shortage.
    pub short_at: u64,
}

impl Places {
    const NONE: Self = Self {
        free_conns: List::EMPTY,
        conn_count: 0,
        conns_used: 0,
        parked_used: 0,
        lacks_conn: false,
        short_at: u64::MAX,
    };
}

/// Maximum number of pending handshakes with new lives.
pub(crate) const PENDING: usize = 16;

/// A peer's new life that has not echoed our nonce yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pending {
    pub peer: PeerId,
    pub life: Life,
    pub nonce: u64,
    pub connection: u32,
}

impl Pending {
    /// Empty: without a nonce.
    pub const NONE: Self = Self {
        peer: PeerId::NONE,
        life: Life(0),
        nonce: 0,
        connection: 0,
    };
}

/// The job secret, kept out of `Debug` output. Plain bytes, as the tables are.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SecretCell(pub [u8; 32]);

impl core::fmt::Debug for SecretCell {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("..")
    }
}

impl Default for State {
    fn default() -> Self {
        Self {
            config: Config::default(),
            me: Identity::default(),
            queues: Queues::EMPTY,
            places: Places::NONE,
            packet_max: 0,
            networks: [LocalNetwork::default(); PATHS_MAX],
            secret: SecretCell([0; 32]),
            random: Random {
                key: SecretCell([0; 32]),
                drawn: 0,
            },
            peer_count: 0,
            free_peers: List::EMPTY,
            free_peer_count: 0,
            greeter: Greeter::NEW,
            connect_number: 0,
            full: false,
            next_deadline: u64::MAX,
            starved_until: 0,
            senders: Senders::new(1, 0, 0),
            connect_tokens: Tokens::FULL,
            search_tokens: Tokens::FULL,
            pending: [Pending::NONE; PENDING],
            pending_next: 0,
            events: Events::NONE,
            resumable: false,
            counters: Counters::default(),
            closing: false,
            closes_owed: 0,
        }
    }
}

impl Core {
    /// Whether [`Endpoint::handle_timeouts`](crate::Endpoint::handle_timeouts) must be called now.
    #[inline]
    #[must_use]
    pub const fn is_due(&self, now: u64) -> bool {
        self.state.next_deadline <= now
    }

    /// As [`Endpoint::may_transmit`](crate::Endpoint::may_transmit).
    #[inline]
    #[must_use]
    pub const fn may_transmit(&self, flush_delayed_acks: bool) -> bool {
        self.state.may_transmit(flush_delayed_acks)
    }

    /// Whether [`Endpoint::poll_event`](crate::Endpoint::poll_event) has something.
    #[inline]
    #[must_use]
    pub const fn has_events(&self) -> bool {
        self.state.events.count > 0 || self.pool.released.head.is_some()
    }
}

impl State {
    /// Whether a packet may be there to leave; false is certain.
    #[inline]
    pub(crate) const fn may_transmit(&self, flush_delayed_acks: bool) -> bool {
        let q = &self.queues;
        !q.ready.is_empty()
            || (flush_delayed_acks && !q.deferred.is_empty())
            || self.full
            || !q.starved.is_empty()
            || !q.connects.is_empty()
    }

    /// Arms the timer for `at`.
    #[inline]
    pub(crate) const fn arm(&mut self, at: u64) {
        if at < self.next_deadline {
            self.next_deadline = at;
        }
    }

    /// Whether anything of the endpoint comes before the next message, or with it.
    #[inline]
    pub(crate) const fn is_unusual(&self) -> bool {
        self.closes_owed > 0 || self.may_transmit(false)
    }
}

/// Current senders, which share the receive buffer. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Senders {
    pub count: u32,
    /// Packets that each may have in flight to us.
    pub share: u64,
    /// When they were counted, ns.
    pub counted_at: u64,
}

/// Interval at which the current senders are counted, ns.
const COUNT_EVERY_NS: u64 = 1_000_000;
/// Smallest share of the receive buffer, packets.
const SHARE_MIN: u64 = 2;

impl Senders {
    /// Whether it is time to count them anew.
    #[inline]
    pub const fn is_due(&self, now: u64) -> bool {
        now.saturating_sub(self.counted_at) >= COUNT_EVERY_NS
    }

    /// `count` senders, 1 or more, which share a receive buffer of `packets`; counted at `now`.
    pub fn new(count: u32, packets: u32, now: u64) -> Self {
        let share = u64::from(packets / count);
        Self {
            count,
            share: share.clamp(SHARE_MIN, WINDOW_SPAN as u64),
            counted_at: now,
        }
    }
}

/// Source of random numbers. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Random {
    key: SecretCell,
    /// Number of those drawn.
    drawn: u64,
}

impl Random {
    /// Draws the next random number, never 0. Peers see some as nonces, which
    /// reveal nothing of the others.
    pub fn draw(&mut self) -> u64 {
        self.drawn += 1;
        random_number(&self.key.0, self.drawn).max(1)
    }
}

/// Number of entries of each table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Entries of `peers`.
    pub peers: usize,
    /// Entries of `parked`.
    pub parked: usize,
    /// Entries of `parked_paths`.
    pub parked_paths: usize,
    /// Entries of `conns`.
    pub conns: usize,
    /// Entries of `paths`.
    pub paths: usize,
    /// Entries of `cargo` and of `flights`: frames.
    pub frames: usize,
    /// Entries of `longs`.
    pub longs: usize,
    /// Bytes of `frames`.
    pub frame_bytes: usize,
}

impl Layout {
    /// Initial layout for a configuration.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        Self {
            peers: config.peers as usize,
            // Each peer may come to have a connection.
            parked: config.peers as usize + usize::from(config.introduces) * Greeter::PLACES,
            parked_paths: match config.more_paths {
                0 => 0,
                _ => config.peers as usize * (PATHS_MAX - 1),
            },
            conns: config.active as usize,
            paths: config.active as usize + config.more_paths as usize,
            frames: config.frames as usize,
            longs: config.longs as usize,
            frame_bytes: config.frames as usize * config.frame_bytes as usize,
        }
    }

    /// Layout for a configuration with the maximum number of connections.
    #[must_use]
    pub fn most(config: &Config) -> Self {
        let mut all = Self::of(config);
        let more = config.connections() - config.active;
        if more > 0 {
            // A connection and its first path share an index, so that new ones
            // follow all further paths.
            all.paths += more as usize;
            all.conns = all.paths;
        }
        all
    }
}

/// The tables of one endpoint, borrowed for one call.
#[derive(Debug)]
pub struct Tables<'m> {
    /// State of the endpoint as a whole.
    pub core: &'m mut Core,
    /// Peers, and entries for more: fewer than [`Layout::peers`], if the caller
    /// adds some when [`crate::Endpoint::unused_peers`] are few.
    pub peers: &'m mut [Peer],
    /// Parked state of peers that had a connection. Not touched before it is
    /// needed: fresh memory costs nothing until then. Where peers introduce
    /// themselves, used nonces follow.
    pub parked: &'m mut [PeerSnapshot],
    /// Parked state of further paths.
    pub parked_paths: &'m mut [PathSnapshot],
    /// Active state of peers. This table and `paths` may grow: see
    /// [`crate::Endpoint::wanted_connections`].
    pub conns: &'m mut [Conn],
    /// Active state of paths.
    pub paths: &'m mut [Path],
    /// What each frame carries.
    pub cargo: &'m mut [Cargo],
    /// How each frame has left.
    pub flights: &'m mut [Flight],
    /// Long messages under way.
    pub longs: &'m mut [Long],
    /// The frames' bytes.
    pub frames: &'m mut [u8],
}

impl Tables<'_> {
    /// Makes an endpoint of default entries. `secret` is shared by all members.
    /// `random` must be fresh random bits that nothing else uses: connection
    /// numbers and handshake nonces come from them. The tables keep copies of
    /// both, and must not be dumped.
    ///
    /// # Panics
    /// If the tables are not of [`Layout::of`] the configuration, or a setting
    /// is out of range: errors of the caller.
    pub fn init(&mut self, config: &Config, me: Identity, secret: &[u8; 32], random: &[u8; 32]) {
        let layout = Layout::of(config);
        assert!(self.peers.len() <= layout.peers);
        assert_eq!(self.parked.len(), layout.parked);
        assert_eq!(self.parked_paths.len(), layout.parked_paths);
        assert_eq!(self.conns.len(), layout.conns);
        assert_eq!(self.paths.len(), layout.paths);
        assert_eq!(self.cargo.len(), layout.frames);
        assert_eq!(self.flights.len(), layout.frames);
        assert_eq!(self.longs.len(), layout.longs);
        assert_eq!(self.frames.len(), layout.frame_bytes);
        config.assert_valid();
        let Core { state, pool } = &mut *self.core;
        *state = State {
            config: *config,
            me,
            packet_max: config.packet_max,
            connect_number: config.first_packet,
            senders: Senders::new(1, config.receive_packets, 0),
            ..State::default()
        };
        // Written in place: a `State` on the stack would leave a copy there.
        state.secret.0 = *secret;
        state.random.key.0 = *random;
        *pool = Pool::new(config);
        self.conns.fill(Conn::default());
        self.paths.fill(Path::default());
        self.cargo.fill(Cargo::default());
        self.flights.fill(Flight::default());
        self.longs.fill(Long::default());
        for i in (0..layout.frames).rev().map(FrameIndex::new) {
            pool.free.push_front(self.cargo, i);
        }
        pool.free_count = config.frames;
        for i in (0..layout.longs).rev().map(LongIndex::new) {
            self.longs[i].next = pool.free_longs;
            pool.free_longs = i;
            pool.free_long_count += 1;
        }
        for i in (0..layout.conns).rev().map(ConnIndex::new) {
            state.places.free_conns.push_front(self.conns, i);
        }
        state.places.conn_count = config.active;
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn who_has_seen_a_nonce_computes_no_other() {
        let mut random = Random {
            key: SecretCell([7; 32]),
            drawn: 0,
        };
        let mut drawn: std::vec::Vec<u64> = (0..1_000).map(|_| random.draw()).collect();
        // If a number were the generator's state mixed by invertible steps, it
        // would reveal all that follow.
        let undo = |z: u64, shift: u32| (1..=64 / shift).fold(z, |all, i| all ^ z >> (shift * i));
        for two in drawn.windows(2) {
            let mut state = undo(two[0], 31);
            state = undo(state.wrapping_mul(0x3196_42b2_d24d_8ec3), 27);
            state = undo(state.wrapping_mul(0x96de_1b17_3f11_9089), 30);
            let mut next = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            next = (next ^ (next >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            next = (next ^ (next >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            assert_ne!(next ^ (next >> 31), two[1]);
        }
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 1_000);
    }

    #[test]
    fn the_secret_is_not_shown() {
        let core = State {
            secret: SecretCell([0xab; 32]),
            ..State::default()
        };
        let text = std::format!("{core:?}");
        assert!(text.contains("secret: .."), "{text}");
        assert!(!text.contains("171") && !text.contains("ab, ab"), "{text}");
    }
}
