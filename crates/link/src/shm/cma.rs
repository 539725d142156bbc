//! Copying straight between the memories of two processes.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use portolan_sys::process::{CopyError, own_pid, read_memory, write_memory};

use super::port::ShmPort;
use super::segment::{Map, identity};

/// What is known of a peer.
#[derive(Clone, Copy, Debug)]
enum Verdict {
    Unknown,
    /// Permitted; its pid, checked.
    Process(u32),
    Refused,
}

#[derive(Debug)]
pub(super) struct Cma {
    enabled: bool,
    verdicts: Vec<Verdict>,
    /// Peers read this to see that our pid means us.
    token: Box<u64>,
}

impl Cma {
    /// Shows in the segment who we are.
    pub fn new(map: &Map, index: u16, enabled: bool) -> Self {
        // Not a secret: only so that no other process has it by chance.
        let token = Box::new(RandomState::new().build_hasher().finish() | 1);
        let line = map.identity(index);
        line.word(identity::PID)
            .store(u64::from(own_pid()), Relaxed);
        line.word(identity::TOKEN_AT)
            .store(std::ptr::from_ref(&*token) as u64, Relaxed);
        line.word(identity::TOKEN).store(*token, Release);
        Self {
            enabled,
            verdicts: vec![Verdict::Unknown; usize::from(map.numbers())],
            token,
        }
    }

    /// Nothing is known of who has this number.
    pub fn forget(&mut self, peer: u16) {
        let peers = self.verdicts.len().max(usize::from(peer) + 1);
        self.verdicts.resize(peers, Verdict::Unknown);
        self.verdicts[usize::from(peer)] = Verdict::Unknown;
    }

    /// Whether it may be tried at all.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    fn look(&self, map: &Map, peer: u16) -> Verdict {
        debug_assert!(*self.token != 0);
        let line = map.identity(peer);
        let token = line.word(identity::TOKEN).load(Acquire);
        if token == 0 {
            // It has not opened yet.
            return Verdict::Unknown;
        }
        let at = line.word(identity::TOKEN_AT).load(Relaxed);
        let Ok(pid) = u32::try_from(line.word(identity::PID).load(Relaxed)) else {
            return Verdict::Refused;
        };
        let mut found = [0; 8];
        match read_memory(pid, at, &mut found) {
            Ok(()) if u64::from_ne_bytes(found) == token => Verdict::Process(pid),
            _ => Verdict::Refused,
        }
    }

    pub(super) fn copy_from(
        &mut self,
        map: &Map,
        peer: u16,
        remote: u64,
        into: &mut [u8],
    ) -> Result<(), CopyError> {
        read_memory(self.pid(map, peer)?, remote, into)
    }

    pub(super) fn pid(&mut self, map: &Map, peer: u16) -> Result<u32, CopyError> {
        if !self.enabled {
            return Err(CopyError::NotPermitted);
        }
        if map.state(peer).is_gone() {
            // Its pid may be another's by now.
            return Err(CopyError::Gone);
        }
        let known = &self.verdicts[usize::from(peer)];
        let verdict = match known {
            Verdict::Unknown => self.look(map, peer),
            other => *other,
        };
        self.verdicts[usize::from(peer)] = verdict;
        match verdict {
            Verdict::Process(pid) => Ok(pid),
            _ => Err(CopyError::NotPermitted),
        }
    }
}

impl ShmPort {
    /// Whether [`ShmPort::copy_from_peer`] works with this peer: it is open,
    /// in our pid namespace, and the system permits it.
    ///
    /// # Panics
    /// If the host has no endpoint `peer`.
    #[inline]
    pub fn can_copy(&mut self, peer: u16) -> bool {
        self.cma.pid(&self.map, peer).is_ok()
    }

    /// Fills `into` from address `remote` of the peer's process: one copy, by
    /// the kernel. The peer must keep the source until it is told.
    ///
    /// # Errors
    /// [`CopyError`]; `into` may be filled in part.
    ///
    /// # Panics
    /// If the host has no endpoint `peer`.
    pub fn copy_from_peer(
        &mut self,
        peer: u16,
        remote: u64,
        into: &mut [u8],
    ) -> Result<(), CopyError> {
        self.cma.copy_from(&self.map, peer, remote, into)
    }

    /// Copies `from` to address `remote` of the peer's process, which must
    /// have said that we may.
    ///
    /// # Errors
    /// [`CopyError`]; part of it may have been written.
    ///
    /// # Panics
    /// If the host has no endpoint `peer`.
    pub fn copy_to_peer(&mut self, peer: u16, remote: u64, from: &[u8]) -> Result<(), CopyError> {
        write_memory(self.cma.pid(&self.map, peer)?, remote, from)
    }
}
