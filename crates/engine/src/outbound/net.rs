//! The sending half of the network lane, and the protocol's tables that it uses.

use portolan_proto as proto;
use portolan_proto::congestion::Mode;
use portolan_proto::{AddPeerError, NetAddress};
use portolan_proto::{
    Endpoint as View, Identity, Layout, PeerId, Release, SourceId, Tables, key_slots,
};
use portolan_ring::{MemoryError, Table, Wiped};
use portolan_seal::{AnySeal, KeyMemory, Own, PUBLIC_KEY_BYTES, Pair, Paired, Seal, SuiteId};
use portolan_wire::{EndpointId, HEAD_BYTES, Life, MessageNo, Priority};

use crate::outbound::gathering::Gathering;

/// Key material of the network lane.
pub struct Credentials<'a> {
    /// Identity of this endpoint.
    pub me: Identity,
    /// Cipher suite.
    pub suite: SuiteId,
    /// Secret that all members of the job share.
    pub secret: &'a [u8; 32],
    /// If keys are agreed on: the private key, and the mix that all members have, if any.
    pub agreement: Option<(&'a [u8; 32], Option<&'a [u8; 32]>)>,
    /// Fresh random bits for nonces and connection numbers.
    pub random: &'a [u8; 32],
}

/// The protocol's tables, in memory that a fork wipes.
pub struct ProtoTables {
    core: Wiped<proto::Core>,
    peers: Wiped<proto::Peer>,
    parked: Table<proto::PeerSnapshot>,
    parked_paths: Table<proto::PathSnapshot>,
    conns: Wiped<proto::Conn>,
    paths: Wiped<proto::Path>,
    cargo: Wiped<proto::Cargo>,
    flights: Wiped<proto::Flight>,
    longs: Wiped<proto::Long>,
    frames: Table<u8>,
    seal: Suites,
}

/// Everything that seals packets.
pub type Suites = Paired<AnySeal<KeyTables>, Wiped<Own>, Table<Pair>>;

/// Memory for keys: a fork wipes it.
pub enum KeyTables {}

impl KeyMemory for KeyTables {
    type Table<C> = Wiped<C>;
    type Error = MemoryError;

    fn table<C: Default>(most: usize) -> Result<Wiped<C>, MemoryError> {
        Wiped::with_room(most)
    }

    fn grow<C: Default>(table: &mut Wiped<C>, cells: usize) {
        table.grow(cells, C::default);
    }
}

/// A peer to be added to the protocol.
#[derive(Clone, Copy, Debug)]
pub struct NewPeer {
    /// Its id.
    pub id: EndpointId,
    /// Its current life.
    pub life: Life,
    /// Its public key, if keys are agreed on.
    pub public_key: Option<[u8; PUBLIC_KEY_BYTES]>,
    /// Its address.
    pub to: NetAddress,
    /// Congestion mode of the path to it.
    pub mode: Mode,
}

/// Number of entries for peers that are made at once, if peers come and go.
const PEERS_AT_ONCE: usize = 64;

impl ProtoTables {
    /// Makes the tables of an endpoint without peers.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn new(config: &proto::Config, credentials: &Credentials<'_>) -> Result<Self, MemoryError> {
        let suite = credentials.suite;
        let layout = Layout::of(config);
        // Without security there are no keys. None are agreed on either, but a peer that
        // introduces itself still sends its public key.
        let sealed = suite != SuiteId::None;
        let most = Layout::most(config);
        let agreement = (credentials.agreement).filter(|_| sealed || config.introduces);
        let own = Wiped::new(agreement.iter().len(), || {
            let (private, mix) = agreement.expect("one entry, or none is made");
            Own::new(private, mix)
        })?;
        let pairs = Table::wiped(agreement.map_or(0, |_| layout.peers))?;
        let mut seal = AnySeal::new(suite, key_slots(most.conns))?;
        seal.grow(key_slots(layout.conns));
        let mut tables = Self {
            core: Wiped::new(1, proto::Core::default)?,
            peers: Wiped::with_room(layout.peers)?,
            parked: Table::wiped(layout.parked)?,
            parked_paths: Table::wiped(layout.parked_paths)?,
            conns: Wiped::with_room(most.conns)?,
            paths: Wiped::with_room(most.paths)?,
            cargo: Wiped::new(layout.frames, proto::Cargo::default)?,
            flights: Wiped::new(layout.frames, proto::Flight::default)?,
            longs: Wiped::new(layout.longs, proto::Long::default)?,
            frames: Table::wiped(layout.frame_bytes)?,
            seal: Paired::new(seal, own, pairs),
        };
        let Credentials {
            me, secret, random, ..
        } = *credentials;
        let at_once = if config.introduces {
            PEERS_AT_ONCE
        } else {
            layout.peers
        };
        tables.peers.grow(at_once, proto::Peer::default);
        tables.conns.grow(layout.conns, proto::Conn::default);
        tables.paths.grow(layout.paths, proto::Path::default);
        let (mut own, _) = tables.split();
        own.init(config, me, secret, random);
        Ok(tables)
    }

    /// Adds a peer.
    ///
    /// # Errors
    /// As [`View::add_peer`].
    pub fn add_peer(&mut self, it: &NewPeer) -> Result<PeerId, AddPeerError> {
        let (tables, seal) = self.split();
        let added = View::new(tables, seal).add_peer(it.id, it.life, it.to, it.mode)?;
        if let Some(key) = &it.public_key {
            seal.meet(added.0, key);
        }
        Ok(added)
    }

    /// Keeps entries free for strangers: makes memory for some more, as long as there may be
    /// more.
    pub(crate) fn evict_peers(&mut self) {
        if self.view().unused_peers() < PEERS_AT_ONCE / 2 {
            let more = self.peers.len() + PEERS_AT_ONCE;
            self.peers.grow(more, proto::Peer::default);
        }
    }

    /// Makes as many connections as the protocol [wants](View::wanted_connections).
    #[cold]
    pub(crate) fn grow_connections(&mut self, count: usize) {
        self.conns.grow(count, proto::Conn::default);
        self.paths.grow(count, proto::Path::default);
        self.seal.inner_mut().grow(key_slots(count));
    }

    /// Returns the protocol's own tables, and the seal.
    #[inline]
    pub fn split(&mut self) -> (Tables<'_>, &mut Suites) {
        let tables = Tables {
            core: &mut self.core[0],
            peers: &mut self.peers,
            parked: &mut self.parked,
            parked_paths: &mut self.parked_paths,
            conns: &mut self.conns,
            paths: &mut self.paths,
            cargo: &mut self.cargo,
            flights: &mut self.flights,
            longs: &mut self.longs,
            frames: &mut self.frames,
        };
        (tables, &mut self.seal)
    }

    /// The protocol's state beside its tables.
    #[inline]
    pub(crate) fn core(&self) -> &proto::Core {
        &self.core[0]
    }

    /// Returns the protocol over these tables.
    #[inline]
    pub fn view(&mut self) -> View<'_, Suites> {
        let (tables, seal) = self.split();
        View::new(tables, seal)
    }
}

/// The sending half of the network lane.
pub struct NetTx {
    pub(crate) tables: ProtoTables,
    /// The clock as of the last pass or send, ns.
    pub(crate) now: u64,
    /// A handler outside of a pass of this lane has sent something.
    pub(crate) dirty: bool,
    /// Messages that may share packets.
    pub(crate) gathering: Gathering,
}

impl NetTx {
    pub(crate) fn send(
        &mut self,
        peer: PeerId,
        m: &proto::Message<'_>,
    ) -> Result<MessageNo, proto::SendError> {
        self.dirty = true;
        let now = self.now;
        let sent = self.tables.view().send(now, peer, m);
        match &sent {
            Ok(_) => {
                let bytes = HEAD_BYTES + size_of_val(m.args) + m.payload.len();
                self.gathering.add(now, peer, bytes);
            }
            Err(_) => self.gathering.hurry(),
        }
        sent
    }

    pub(crate) fn send_long(
        &mut self,
        peer: PeerId,
        m: &proto::Message<'_>,
        total: u64,
        source: SourceId,
        release: Release,
    ) -> Result<MessageNo, proto::SendError> {
        self.dirty = true;
        self.gathering.hurry();
        let now = self.now;
        self.tables
            .view()
            .send_long(now, peer, m, total, source, release)
    }

    /// Tells a peer to send nothing more in a flow, or to go on.
    pub fn set_stopped(&mut self, peer: PeerId, priority: Priority, flow: u16, stopped: bool) {
        self.dirty = true;
        self.gathering.hurry();
        let now = self.now;
        (self.tables.view()).set_stopped(now, peer, priority, flow, stopped);
    }

    /// Notes that the program waits for something from a peer.
    pub fn await_peer(&mut self, peer: PeerId) {
        self.tables.view().await_peer(self.now, peer);
    }

    pub(crate) fn inline_max(&mut self, peer: PeerId, args: usize) -> usize {
        self.tables.view().inline_max(peer, args)
    }
}
