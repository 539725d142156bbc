//! One-sided access between the processes of a host: whoever wants bytes of
//! another's memory, or has some for it, finds the region in that process's
//! table and copies itself. The other need not run; it may even be stopped.
//!
//! The initiator checks key, rights and bounds. That is no wall: members of a
//! job trust each other, and the kernel alone decides who may reach into whom.

use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::Ordering::{Acquire, SeqCst};
use std::sync::atomic::fence;

use portolan_ring::{
    Exposed, Permission, PublishError, Region, RegionId, RegionKey, RegionOwner, RegionTable,
    RegionUse, Terms, UseWord, WithdrawError,
};
use portolan_sys::process::{
    CopyError, read_memory, read_memory_vectored, threads, write_memory_vectored,
};
use portolan_sys::raw::Errno;

use super::cma::Cma;
use super::outlet::Outlet;
use super::port::extend;
use super::segment::{Map, PeerState, identity};

/// Where in a region an access begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShmPlace {
    /// So many bytes behind its first.
    Offset(u64),
    /// At this address of its owner's process.
    Address(u64),
}

/// Why nothing was put or got. Except for [`OneSidedError::Fault`] and
/// [`OneSidedError::Gone`], which may come in the middle, nothing was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OneSidedError {
    /// The host has no endpoint of that index.
    #[error("this host has no endpoint of that index")]
    NoPeer,
    /// The peer has not opened yet: a message waits for it.
    #[error("the peer has not opened its endpoint yet")]
    NotOpen,
    /// The peer has closed or is dead; final.
    #[error(
        "the peer {}",
        if *.0 == PeerState::Closed { "has closed its endpoint" } else { "is dead" }
    )]
    Gone(PeerState),
    /// The peer lets nobody reach into its memory.
    #[error("the peer forbids one-sided access to its memory")]
    Forbidden,
    /// The peer has no region under this key.
    #[error("the peer has no memory region under this key")]
    NoKey,
    /// The peer may have this region, but not in its table: send a message.
    #[error("the peer's table does not tell of all its memory regions")]
    Elsewhere,
    /// The region exists, but its rights, these, do not include the access.
    #[error(
        "the memory region does not allow this access, but {}",
        match .0 {
            Permission::None => "none",
            Permission::Get => "get",
            Permission::Put => "put",
            Permission::Both => "put and get",
        }
    )]
    Denied(Permission),
    /// It begins before the region, which has so many bytes, or ends behind.
    #[error("the access is not within the memory region, which has {0} bytes")]
    OutOfBounds(u64),
    /// The system forbids it (Yama's ptrace_scope, seccomp, another user or
    /// pid namespace), lacks the call, or it is disabled: send a message.
    #[error("{}", CopyError::NotPermitted)]
    NotPermitted,
    /// So many bytes were copied: the rest is not mapped in the peer, or may
    /// not be written there.
    #[error("{}", CopyError::Fault(*.0))]
    Fault(usize),
    /// The kernel refused for another reason.
    #[error("{}", CopyError::Other(*.0))]
    Kernel(Errno),
}

impl OneSidedError {
    /// Whether a message to the peer may do what could not be done here.
    #[must_use]
    pub const fn asks_for_message(self) -> bool {
        matches!(self, Self::NotOpen | Self::Elsewhere | Self::NotPermitted)
    }
}

impl From<CopyError> for OneSidedError {
    fn from(e: CopyError) -> Self {
        match e {
            CopyError::NotPermitted | CopyError::Other(Errno::NOSYS) => Self::NotPermitted,
            CopyError::Gone => Self::Gone(PeerState::Dead),
            CopyError::Fault(bytes) => Self::Fault(bytes),
            CopyError::Other(e) => Self::Kernel(e),
        }
    }
}

/// How others name a region that is published.
#[derive(Clone, Copy, Debug)]
pub struct Naming {
    /// Its key and salt.
    pub key: RegionKey,
    /// Whether the key alone, with salt 0, does not name it.
    pub demands_salt: bool,
}

impl From<u64> for Naming {
    fn from(key: u64) -> Self {
        Self {
            key: key.into(),
            demands_salt: false,
        }
    }
}

/// What a port needs for it: its own regions, and leave for its copies.
#[derive(Debug)]
pub(super) struct OneSided {
    regions: RegionOwner<'static>,
    copies: UseWord<'static>,
}

impl OneSided {
    pub fn new(map: &Map, index: u16) -> Self {
        Self {
            regions: RegionOwner::new(table(map, index)),
            copies: UseWord::new(extend(map.use_word(index))),
        }
    }

    /// Nobody begins a copy from here on.
    pub fn close(&mut self) {
        self.regions.invalidate_all();
    }

    /// Finds the region and checks everything: its owner's pid, and where in
    /// its memory the access begins. Nobody withdraws it meanwhile.
    fn begin(
        &mut self,
        map: &Map,
        cma: &mut Cma,
        access: &Access,
    ) -> Result<(RegionUse<'_>, u32, u64), OneSidedError> {
        let peer = access.peer;
        if !map.has(peer) {
            return Err(OneSidedError::NoPeer);
        }
        match map.state(peer) {
            PeerState::Alive => {}
            PeerState::Absent => return Err(OneSidedError::NotOpen),
            gone => return Err(OneSidedError::Gone(gone)),
        }
        let table = table(map, peer);
        let terms = table.terms();
        if terms == Terms::Forbidden {
            return Err(OneSidedError::Forbidden);
        }
        let held = self.copies.hold(peer, &table, access.key);
        // They may have changed since, before what we hold was withdrawn.
        fence(SeqCst);
        let held = match (held, table.terms()) {
            (_, Terms::Forbidden) => return Err(OneSidedError::Forbidden),
            (Some(held), _) => held,
            (None, Terms::Elsewhere) => return Err(OneSidedError::Elsewhere),
            (None, _) => return Err(OneSidedError::NoKey),
        };
        let at = access.check(&held.region())?;
        let pid = cma.pid(map, peer)?;
        Ok((held, pid, at))
    }
}

/// One access, as far as it can be checked.
struct Access {
    peer: u16,
    key: RegionKey,
    place: ShmPlace,
    bytes: u64,
    allowed: fn(Permission) -> bool,
}

impl Access {
    /// The address in the owner's process.
    fn check(&self, region: &Region) -> Result<u64, OneSidedError> {
        if !(self.allowed)(region.rights) {
            return Err(OneSidedError::Denied(region.rights));
        }
        let offset = match self.place {
            ShmPlace::Offset(offset) => Some(offset),
            ShmPlace::Address(at) => at.checked_sub(region.start),
        };
        let end = offset.and_then(|offset| offset.checked_add(self.bytes));
        match (offset, end) {
            (Some(offset), Some(end)) if end <= region.length => {
                // Only garbage in the table overflows.
                region.start.checked_add(offset)
            }
            _ => None,
        }
        .ok_or(OneSidedError::OutOfBounds(region.length))
    }
}

/// Pieces to read from may overlap: more than there can be is out of bounds.
fn total(pieces: impl Iterator<Item = usize>) -> u64 {
    pieces.fold(0, |sum, piece| sum.saturating_add(piece as u64))
}

fn table(map: &Map, index: u16) -> RegionTable<'static> {
    RegionTable::new(extend(map.regions(index)), map.layout.regions)
}

/// Whether an endpoint has ended and so copies nothing any more.
fn is_over(map: &Map, cma: &Cma, index: u16) -> bool {
    match map.state(index) {
        PeerState::Closed => true,
        // A killed process is marked before its last thread has left the
        // kernel, where it may be copying.
        PeerState::Dead | PeerState::Corrupt => !cma.runs(map, index),
        PeerState::Absent | PeerState::Alive => false,
    }
}

impl Cma {
    /// Whether a peer that was marked dead still has a thread that could
    /// copy. Where we may not look, the mark is believed.
    fn runs(&self, map: &Map, peer: u16) -> bool {
        let line = map.identity(peer);
        let token = line.word(identity::TOKEN).load(Acquire);
        let at = line.word(identity::TOKEN_AT).load(Acquire);
        let has_token = |thread| {
            let mut found = [0; 8];
            read_memory(thread, at, &mut found).is_ok() && u64::from_ne_bytes(found) == token
        };
        self.is_enabled() && threads(self.process(peer)).any(has_token)
    }
}

impl Outlet<'_> {
    /// Lets the other processes of the host reach `memory` by a key, which
    /// may be that of a region withdrawn before, even with a copy of it still
    /// under way. Nothing says that they do.
    ///
    /// # Errors
    /// [`PublishError`]; nothing has changed.
    pub fn publish(
        &mut self,
        naming: impl Into<Naming>,
        memory: Exposed,
        rights: Permission,
    ) -> Result<RegionId, PublishError> {
        let Naming { key, demands_salt } = naming.into();
        self.onesided.regions.publish(Region {
            key,
            start: memory.start(),
            length: memory.bytes(),
            rights,
            demands_salt,
        })
    }

    /// Takes a region back. From the first call on nobody begins a copy;
    /// when it is `Ok`, all have ended and the memory is ours alone again.
    /// One that was killed in a copy holds nothing up. Do this with all
    /// regions before the port is dropped, which waits for nobody.
    ///
    /// # Errors
    /// - [`WithdrawError::InUse`]: that peer still copies. Try again later;
    ///   it may take long where the peer is stopped in the middle of a copy.
    /// - [`WithdrawError::NoRegion`]: it was withdrawn before.
    pub fn try_withdraw(&mut self, id: RegionId) -> Result<(), WithdrawError> {
        let (map, cma) = (self.map, &*self.cma);
        let users = (0..map.numbers()).filter(|index| map.has(*index));
        let users = users.map(|index| (index, map.area(index).us, map.use_word(index)));
        self.onesided
            .regions
            .try_withdraw(id, users, |index| is_over(map, cma, index))
    }

    /// Says what holds for all our regions. Default [`Terms::Complete`].
    /// [`Terms::Elsewhere`] while some are not in the table, for example
    /// because it is full; [`Terms::Forbidden`] where a policy rules out
    /// one-sided access: what was published before is closed too then.
    pub fn set_terms(&mut self, terms: Terms) {
        self.onesided.regions.set_terms(terms);
    }

    /// Copies `from`, one piece behind the other, into a region of `peer`.
    /// When it returns, the peer sees the bytes; it is told nothing.
    ///
    /// # Errors
    /// [`OneSidedError`].
    pub fn put(
        &mut self,
        peer: u16,
        key: impl Into<RegionKey>,
        place: ShmPlace,
        from: &[IoSlice<'_>],
    ) -> Result<(), OneSidedError> {
        let access = Access {
            peer,
            key: key.into(),
            place,
            bytes: total(from.iter().map(|piece| piece.len())),
            allowed: Permission::allow_put,
        };
        let (_held, pid, at) = self.onesided.begin(self.map, self.cma, &access)?;
        Ok(write_memory_vectored(pid, at, from)?)
    }

    /// Fills `into`, one piece behind the other, from a region of `peer`.
    ///
    /// # Errors
    /// [`OneSidedError`].
    pub fn get(
        &mut self,
        peer: u16,
        key: impl Into<RegionKey>,
        place: ShmPlace,
        into: &mut [IoSliceMut<'_>],
    ) -> Result<(), OneSidedError> {
        let access = Access {
            peer,
            key: key.into(),
            place,
            bytes: total(into.iter().map(|piece| piece.len())),
            allowed: Permission::allow_get,
        };
        let (_held, pid, at) = self.onesided.begin(self.map, self.cma, &access)?;
        Ok(read_memory_vectored(pid, at, into)?)
    }
}
