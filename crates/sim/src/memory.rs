//! The memory of an endpoint, owned, so that it can be moved and compared.

use crate::rng::bytes_of;
use portolan_proto::{
    Cargo, Config, Conn, Core, Flight, Identity, Layout, Long, Path, PathSnapshot, Peer,
    PeerSnapshot, Tables,
};

/// Tables of one endpoint. Cloning it and dropping the original moves every
/// table to another address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EndpointMemory {
    core: Box<Core>,
    peers: Vec<Peer>,
    parked: Vec<PeerSnapshot>,
    parked_paths: Vec<PathSnapshot>,
    conns: Vec<Conn>,
    paths: Vec<Path>,
    cargo: Vec<Cargo>,
    flights: Vec<Flight>,
    longs: Vec<Long>,
    frames: Vec<u8>,
}

impl EndpointMemory {
    /// Tables as the configuration asks, initialised.
    #[must_use]
    pub fn new(config: &Config, me: Identity, secret: &[u8; 32], seed: u64) -> Self {
        let layout = Layout::of(config);
        let mut memory = Self {
            core: Box::default(),
            peers: vec![Peer::default(); layout.peers],
            parked: vec![portolan_proto::NOT_PARKED; layout.parked],
            parked_paths: vec![PathSnapshot::default(); layout.parked_paths],
            conns: vec![Conn::default(); layout.conns],
            paths: vec![Path::default(); layout.paths],
            cargo: vec![Cargo::default(); layout.frames],
            flights: vec![Flight::default(); layout.frames],
            longs: vec![Long::default(); layout.longs],
            frames: vec![0; layout.frame_bytes],
        };
        memory.tables().init(config, me, secret, &bytes_of(seed));
        memory
    }

    /// The tables, for one call.
    pub fn tables(&mut self) -> Tables<'_> {
        Tables {
            core: &mut self.core,
            peers: &mut self.peers,
            parked: &mut self.parked,
            parked_paths: &mut self.parked_paths,
            conns: &mut self.conns,
            paths: &mut self.paths,
            cargo: &mut self.cargo,
            flights: &mut self.flights,
            longs: &mut self.longs,
            frames: &mut self.frames,
        }
    }

    /// Makes room for so many connections, with as many paths.
    pub fn grow(&mut self, count: usize) {
        self.conns.resize(count, Conn::default());
        self.paths.resize(count, Path::default());
    }

    /// Makes room for one more connection; returns how many entries there are now.
    pub fn grow_by_one(&mut self) -> usize {
        self.grow(self.paths.len() + 1);
        self.paths.len()
    }

    /// Frames in use, in words.
    #[must_use]
    pub fn frames_in_use(&self) -> Vec<String> {
        let all = self.cargo.iter().zip(&self.flights).enumerate();
        all.map(|(i, (cargo, flight))| format!("{i}: {cargo:?} {flight:?}"))
            .filter(|text| !text.contains("usage: Free"))
            .collect()
    }

    /// Copies everything to fresh allocations; overwrites and frees the old.
    pub fn relocate(&mut self) {
        let fresh = self.clone();
        self.frames.fill(0xdd);
        *self = fresh;
    }
}
