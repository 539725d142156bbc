//! An enabled endpoint: the engine's endpoint, the program's names of its peers, and where
//! its completions are reported.

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

/// Where completions of one direction go, and the flags of calls that name none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Side {
    pub queue: Option<QueueId>,
    /// Whether successes are reported only on request (`FI_COMPLETION`).
    pub selective: bool,
    pub op_flags: u64,
}

/// Counters by the events that they count.
#[derive(Debug, Default)]
pub struct Counters {
    pub send: OnceLock<CounterId>,
    pub recv: OnceLock<CounterId>,
    pub read: OnceLock<CounterId>,
    pub write: OnceLock<CounterId>,
    /// Accesses of peers to this process's memory.
    remote_read: OnceLock<CounterId>,
    remote_write: OnceLock<CounterId>,
}

impl Counters {
    /// All counters, in the order of [`crate::ep::COUNTED`].
    pub const fn all(&self) -> [&OnceLock<CounterId>; 6] {
        let [read, write] = self.remote();
        [&self.send, &self.recv, &self.read, &self.write, read, write]
    }

    /// Counters of peers' reads and writes.
    pub const fn remote(&self) -> [&OnceLock<CounterId>; 2] {
        [&self.remote_read, &self.remote_write]
    }
}

pub struct Attachment {
    pub endpoint: Endpoint,
    pub tx: Side,
    pub rx: Side,
    pub counters: Counters,
    /// libfabric's counters that have an engine's counter here.
    counted_by: Mutex<Vec<Weak<Cntr>>>,
    /// Whether receives select by source.
    pub directed: bool,
    /// The engine's numbers of peers, by name.
    peers: Lookup,
    /// Names, by the engine's numbers.
    names: Lookup,
    /// Claimed messages, by their contexts.
    pub claims: Mutex<HashMap<usize, MessageId>>,
    /// Addresses of the memory of receives of many messages. A holder of this lock may call the
    /// endpoint, so no code within such a call may wait for the lock.
    many: Mutex<HashMap<OpId, usize>>,
    many_count: AtomicUsize,
    /// A receive of many messages ends when less room is left, bytes.
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

    /// Records that a counter counts something here.
    pub fn count_for(&self, cntr: &Arc<Cntr>) {
        lock(&self.counted_by).push(Arc::downgrade(cntr));
    }

    /// Detaches all counters, which keep what they have counted here.
    pub fn leave_counters(self: &Arc<Self>) {
        for cntr in std::mem::take(&mut *lock(&self.counted_by)) {
            if let Some(cntr) = cntr.upgrade() {
                cntr.detach(self);
            }
        }
    }

    /// The engine's number of a peer, by its name.
    #[inline]
    pub fn peer(&self, name: abi::Addr) -> Result<u32> {
        self.peers.get(name).ok_or(EINVAL)
    }

    /// The name of a peer; `FI_ADDR_NOTAVAIL` if its address was not inserted.
    pub fn name_of(&self, peer: u32) -> abi::Addr {
        self.names
            .get(peer.into())
            .map_or(abi::ADDR_NOTAVAIL, u64::from)
    }

    /// Begins a receive of many messages in memory at address `base`.
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

    /// Address of a message of such a receive; null for all others. The receive's own completion
    /// is its last.
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

    /// Removes a name; its peer is called `other` from now on. A peer without another name is
    /// released, but still reaches this endpoint.
    pub fn remove(&self, name: u32, other: Option<u32>) {
        let Some(peer) = self.peers.get(name.into()) else {
            return;
        };
        self.peers.set(name.into(), None);
        if self.names.get(peer.into()) == Some(name) {
            self.names.set(peer.into(), other);
        }
        if other.is_none() && peer != self.endpoint.rank() {
            // A dead peer may be gone already.
            let _ = self.endpoint.release_peer(peer);
        }
    }

    /// How an operation's completion is reported. `flags`: those of the call.
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

    /// How an injected operation is reported: a success to the counter only.
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
