//! An endpoint that is enabled: the engine's endpoint, who its peers are to the program, and
//! where its operations' ends are told.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use portolan::{
    Action, AddPeerError, Completion, CounterId, Endpoint, MessageId, Notify, OpId, QueueId,
};

use crate::abi;
use crate::cntr::Cntr;
use crate::error::{EINVAL, Result};
use crate::fid::{errno, lock};
use crate::lookup::Lookup;
use crate::name::Address;

/// Where ends of one direction go, and with what flags calls begin that name none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Side {
    pub queue: Option<QueueId>,
    /// Good ends go there only where `FI_COMPLETION` is asked for.
    pub selective: bool,
    pub op_flags: u64,
}

/// Counters by what they count.
#[derive(Debug, Default)]
pub struct Counters {
    pub send: OnceLock<CounterId>,
    pub recv: OnceLock<CounterId>,
    pub read: OnceLock<CounterId>,
    pub write: OnceLock<CounterId>,
    /// What others do to our memory.
    remote_read: OnceLock<CounterId>,
    remote_write: OnceLock<CounterId>,
}

impl Counters {
    /// As [`crate::ep::COUNTED`] has them.
    pub const fn all(&self) -> [&OnceLock<CounterId>; 6] {
        let [read, write] = self.remote();
        [&self.send, &self.recv, &self.read, &self.write, read, write]
    }

    /// Those of what others read and write.
    pub const fn remote(&self) -> [&OnceLock<CounterId>; 2] {
        [&self.remote_read, &self.remote_write]
    }
}

pub struct Attachment {
    pub endpoint: Endpoint,
    pub tx: Side,
    pub rx: Side,
    pub counters: Counters,
    /// The counters of libfabric that have some here.
    counted_by: Mutex<Vec<Weak<Cntr>>>,
    /// Receives name who they are from.
    pub directed: bool,
    /// Numbers of peers, by the address vector's.
    peers: Lookup,
    /// The reverse.
    names: Lookup,
    /// Messages that were claimed, by the context that names them.
    pub claims: Mutex<HashMap<usize, MessageId>>,
    /// Where the memory of receives of many messages begins. Whoever holds this may call the
    /// endpoint, so nobody may wait for it within such a call.
    many: Mutex<HashMap<OpId, usize>>,
    many_count: AtomicUsize,
    /// Less room than this ends such a receive.
    pub min_multi_recv: AtomicUsize,
}

impl Attachment {
    pub fn new(
        endpoint: Endpoint,
        [tx, rx]: [Side; 2],
        directed: bool,
        min_multi_recv: usize,
    ) -> Self {
        Self {
            endpoint,
            tx,
            rx,
            counters: Counters::default(),
            counted_by: Mutex::default(),
            directed,
            peers: Lookup::default(),
            names: Lookup::default(),
            claims: Mutex::default(),
            many: Mutex::default(),
            many_count: AtomicUsize::new(0),
            min_multi_recv: AtomicUsize::new(min_multi_recv),
        }
    }

    /// A counter counts something here.
    pub fn count_for(&self, cntr: &Arc<Cntr>) {
        lock(&self.counted_by).push(Arc::downgrade(cntr));
    }

    /// Counters keep what they have counted here, and count nothing more.
    pub fn leave_counters(self: &Arc<Self>) {
        for cntr in std::mem::take(&mut *lock(&self.counted_by)) {
            if let Some(cntr) = cntr.upgrade() {
                cntr.detach(self);
            }
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

    /// Begins a receive of many messages in memory that begins at `base`.
    pub fn begin_many(&self, base: usize, begin: impl FnOnce() -> Result<OpId>) -> Result<()> {
        let mut many = lock(&self.many);
        self.many_count.fetch_add(1, Ordering::Release);
        match begin() {
            Ok(op) => drop(many.insert(op, base)),
            Err(why) => {
                self.many_count.fetch_sub(1, Ordering::Release);
                return Err(why);
            }
        }
        Ok(())
    }

    /// Whether there are receives of many messages.
    #[inline]
    pub fn has_many(&self) -> bool {
        self.many_count.load(Ordering::Acquire) > 0
    }

    /// Where a message of such a receive lies; null for all others. Its end is its last.
    pub fn memory_of(&self, done: &Completion) -> *mut c_void {
        let mut many = lock(&self.many);
        if done.action == Action::ReceiveMany && many.remove(&done.op).is_some() {
            self.many_count.fetch_sub(1, Ordering::Release);
            return std::ptr::null_mut();
        }
        let base = many.get(&done.op);
        base.map_or(std::ptr::null_mut(), |base| {
            (base + done.at as usize) as *mut c_void
        })
    }

    /// Adds the peer with an address as `name`.
    pub fn add(&self, name: u32, address: &Address) -> Result<()> {
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

    /// Forgets a name; its peer is called `other` from now on. A removal changes this table
    /// alone: where the peer has no other name it still reaches this endpoint.
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
            let _ = self.endpoint.release_peer(peer);
        }
    }

    /// How the end of an operation is told. `flags` are those of the call.
    #[inline]
    pub fn notify(
        &self,
        side: &Side,
        counter: &OnceLock<CounterId>,
        context: usize,
        flags: u64,
    ) -> Notify {
        Notify {
            context: context as u64,
            queue: side.queue,
            counter: counter.get().copied(),
            only_errors: side.selective && flags & abi::COMPLETION == 0,
        }
    }

    /// Of what is injected: a good end is nobody's business but a counter's.
    #[inline]
    pub fn notify_bad(&self, counter: &OnceLock<CounterId>) -> Notify {
        Notify {
            context: 0,
            queue: self.tx.queue,
            counter: counter.get().copied(),
            only_errors: true,
        }
    }
}
