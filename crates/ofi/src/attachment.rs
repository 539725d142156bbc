//! An endpoint that is enabled: the engine's endpoint, who its peers are to the program, and
//! where its operations' ends are told.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use portolan::{
    ADDRESS_BYTES, AddPeerError, CounterId, Endpoint, MessageId, Notify, OpId, QueueId,
};

use crate::abi;
use crate::error::{EINVAL, Result};
use crate::fid::errno;
use crate::lookup::Lookup;

/// Where ends of one direction go, and with what flags calls begin that name none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Side {
    pub queue: Option<QueueId>,
    /// Good ends go there only where `FI_COMPLETION` is asked for.
    pub selective: bool,
    pub op_flags: u64,
}

/// Counters by what they count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    pub send: Option<CounterId>,
    pub recv: Option<CounterId>,
    pub read: Option<CounterId>,
    pub write: Option<CounterId>,
}

pub struct Attachment {
    pub endpoint: Endpoint,
    pub tx: Side,
    pub rx: Side,
    pub counters: Counters,
    /// Receives name who they are from.
    pub directed: bool,
    /// Numbers of peers, by the address vector's.
    peers: Lookup,
    /// The reverse.
    names: Lookup,
    /// Messages that were claimed, by the context that names them.
    pub claims: Mutex<HashMap<usize, MessageId>>,
    /// Where the memory of receives of many messages begins.
    pub many: Mutex<HashMap<OpId, usize>>,
    /// Less room than this ends such a receive.
    pub min_multi_recv: AtomicUsize,
}

impl Attachment {
    pub fn new(
        endpoint: Endpoint,
        [tx, rx]: [Side; 2],
        counters: Counters,
        directed: bool,
        min_multi_recv: usize,
    ) -> Self {
        Self {
            endpoint,
            tx,
            rx,
            counters,
            directed,
            peers: Lookup::default(),
            names: Lookup::default(),
            claims: Mutex::default(),
            many: Mutex::default(),
            min_multi_recv: AtomicUsize::new(min_multi_recv),
        }
    }

    /// The peer that a program names.
    #[inline]
    pub fn peer(&self, name: abi::Addr) -> Result<u32> {
        self.peers.get(name).ok_or(EINVAL)
    }

    /// What the program calls a peer, if it has inserted its address.
    pub fn name_of(&self, peer: u32) -> abi::Addr {
        self.names
            .get(peer.into())
            .map_or(abi::ADDR_NOTAVAIL, u64::from)
    }

    /// Adds the peer with an address as `name`.
    pub fn add(&self, name: u32, address: &[u8; ADDRESS_BYTES]) -> Result<()> {
        let peer = match self.endpoint.add_peer(address) {
            Ok(peer) => peer,
            Err(AddPeerError::Myself) => self.endpoint.rank(),
            Err(e) => return Err(errno(e)),
        };
        self.peers.set(name.into(), Some(peer));
        if self.names.get(peer.into()).is_none() {
            self.names.set(peer.into(), Some(name));
        }
        Ok(())
    }

    /// Forgets a name, and its peer where `other` is no further one of it.
    pub fn remove(&self, name: u32, other: Option<u32>) {
        let Some(peer) = self.peers.get(name.into()) else {
            return;
        };
        self.peers.set(name.into(), None);
        if self.names.get(peer.into()) == Some(name) {
            self.names.set(peer.into(), other);
        }
        if other.is_none() && peer != self.endpoint.rank() {
            // One that has died may be gone already.
            let _ = self.endpoint.remove_peer(peer);
        }
    }

    /// How the end of an operation is told. `flags` are those of the call.
    #[inline]
    pub fn notify(
        &self,
        side: &Side,
        counter: Option<CounterId>,
        context: usize,
        flags: u64,
    ) -> Notify {
        Notify {
            context: context as u64,
            queue: side.queue,
            counter,
            only_errors: side.selective && flags & abi::COMPLETION == 0,
        }
    }

    /// Of what is injected: a good end is nobody's business but a counter's.
    #[inline]
    pub fn notify_bad(&self, counter: Option<CounterId>) -> Notify {
        Notify {
            context: 0,
            queue: self.tx.queue,
            counter,
            only_errors: true,
        }
    }
}
