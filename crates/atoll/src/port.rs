//! This process's host port, and its connections.

use std::collections::{BTreeSet, VecDeque};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use portolan::c_edge::{EALREADY, EBADF, ECHILD, EINVAL, ENXIO, Errno};
use portolan::{Config, Endpoint, SpaceId, Threads};

use crate::errors::ENOTCONN;
use crate::lock;
use crate::lookup::Lookups;
use crate::memory::RegisteredMemory;
use crate::messages::{Inbox, Sends};

pub struct Port {
    pub endpoint: Endpoint,
    pub id: i32,
    pub sends: Sends,
    pub inbox: Mutex<Inbox>,
    pub memory: RegisteredMemory,
    pub lookups: Lookups,
    connected: Mutex<BTreeSet<u32>>,
    /// Deaths that were told to waits which do not depend on those ranks: the next
    /// receive from any of them tells.
    pub missed: Mutex<VecDeque<Errno>>,
}

static PORT: Mutex<Option<Arc<Port>>> = Mutex::new(None);
/// The process that has opened it, 0 while there is none: a forked child must
/// not wait for locks that threads of its parent held.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// Why it was not opened.
static WHY: Mutex<String> = Mutex::new(String::new());

/// The host port of this process.
pub fn ours() -> Result<Arc<Port>, Errno> {
    match OWNER.load(Ordering::Acquire) {
        0 => Err(EBADF),
        pid if pid != process::id() => Err(ECHILD),
        _ => lock(&PORT).clone().ok_or(EBADF),
    }
}

/// The same, by its id.
pub fn named(id: i32) -> Result<Arc<Port>, Errno> {
    ours().and_then(|port| if port.id == id { Ok(port) } else { Err(EBADF) })
}

pub fn why() -> String {
    lock(&WHY).clone()
}

pub fn open() -> Result<i32, Errno> {
    let refuse = |errno, why: &str| {
        why.clone_into(&mut lock(&WHY));
        Err(errno)
    };
    match OWNER.load(Ordering::Acquire) {
        0 => {}
        pid if pid != process::id() => {
            return Err(ECHILD);
        }
        _ => return refuse(EALREADY, "this process has opened its host port before"),
    }
    let mut place = lock(&PORT);
    if place.is_some() {
        return refuse(EALREADY, "this process has opened its host port before");
    }
    let endpoint =
        match Endpoint::attach(SpaceId::ATOLL, Config::default().threads(Threads::Multiple)) {
            Ok(endpoint) => endpoint,
            Err(e) => return refuse(Errno::from(&e), &e.to_string()),
        };
    let port = Port::of(endpoint)?;
    let id = port.id;
    *place = Some(Arc::new(port));
    OWNER.store(process::id(), Ordering::Release);
    Ok(id)
}

pub fn finish(id: i32, how: i32) -> Result<(), Errno> {
    let port = named(id)?;
    let lost = match how {
        0 => Ok(()),
        1 => port.all_consumed(),
        _ => return Err(EINVAL),
    };
    // Of two threads one closes it.
    lock(&PORT).take().ok_or(EBADF)?;
    let closed = port.endpoint.close();
    lost?;
    closed.map_err(Errno::from)
}

impl Port {
    fn of(endpoint: Endpoint) -> Result<Self, Errno> {
        let id = i32::try_from(endpoint.rank()).map_err(|_| ENXIO)?;
        let memory = RegisteredMemory::default();
        let lookups = Lookups::start(&endpoint, memory.table())?;
        Ok(Self {
            id,
            sends: Sends::start(&endpoint)?,
            inbox: Mutex::default(),
            memory,
            lookups,
            connected: Mutex::default(),
            missed: Mutex::default(),
            endpoint,
        })
    }

    pub fn rank(&self, id: i32) -> Result<u32, Errno> {
        let rank = u32::try_from(id).map_err(|_| ENXIO)?;
        if rank < self.endpoint.size() {
            Ok(rank)
        } else {
            Err(ENXIO)
        }
    }

    /// The rank of a host port that there is a connection to.
    pub fn peer(&self, id: i32) -> Result<u32, Errno> {
        let rank = self.rank(id)?;
        if lock(&self.connected).contains(&rank) {
            Ok(rank)
        } else {
            Err(ENOTCONN)
        }
    }

    pub fn connect(&self, id: i32) -> Result<(), Errno> {
        let rank = self.rank(id)?;
        if let Some(why) = self.endpoint.death(rank)? {
            return Err(why.into());
        }
        lock(&self.connected).insert(rank);
        Ok(())
    }

    pub fn disconnect(&self, id: i32) -> Result<(), Errno> {
        let rank = self.rank(id)?;
        if lock(&self.connected).remove(&rank) {
            Ok(())
        } else {
            Err(ENOTCONN)
        }
    }
}
