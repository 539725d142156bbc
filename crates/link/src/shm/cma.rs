//! Copying straight between the memories of two processes.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use portolan_sys::process::{CopyError, read_memory, write_memory};

use super::port::ShmPort;
use super::segment::{Map, identity};

/// Whether a peer's memory may be reached.
#[derive(Clone, Copy, Debug)]
enum Verdict {
    Unknown,
    Permitted,
    Refused,
}

/// What is known of a peer.
#[derive(Clone, Copy, Debug)]
struct Peer {
    /// Its process, as others than itself name it; 0: nobody has.
    pid: u32,
    verdict: Verdict,
}

const NOBODY: Peer = Peer {
    pid: 0,
    verdict: Verdict::Unknown,
};

#[derive(Debug)]
pub(super) struct Cma {
    enabled: bool,
    peers: Vec<Peer>,
    /// Peers read this to see that our pid means us.
    token: Box<u64>,
}

impl Cma {
    /// Shows in the segment who we are.
    pub fn new(map: &Map, index: u16, enabled: bool) -> Self {
        // Not a secret: only so that no other process has it by chance.
        let token = Box::new(RandomState::new().build_hasher().finish() | 1);
        let line = map.identity(index);
        line.word(identity::TOKEN_AT)
            .store(std::ptr::from_ref(&*token) as u64, Relaxed);
        line.word(identity::TOKEN).store(*token, Release);
        Self {
            enabled,
            peers: vec![NOBODY; usize::from(map.numbers())],
            token,
        }
    }

    /// Who has this number is process `pid`; 0: that is not known.
    pub fn set_process(&mut self, peer: u16, pid: u32) {
        let peers = self.peers.len().max(usize::from(peer) + 1);
        self.peers.resize(peers, NOBODY);
        self.peers[usize::from(peer)] = Peer { pid, ..NOBODY };
    }

    /// A peer's process; 0: it is not known.
    pub fn process(&self, peer: u16) -> u32 {
        self.peers[usize::from(peer)].pid
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
        let pid = self.process(peer);
        let mut found = [0; 8];
        match read_memory(pid, at, &mut found) {
            Ok(()) if u64::from_ne_bytes(found) == token => Verdict::Permitted,
            // No process is 0.
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
        let Peer { pid, verdict } = self.peers[usize::from(peer)];
        let verdict = match verdict {
            Verdict::Unknown => self.look(map, peer),
            known => known,
        };
        self.peers[usize::from(peer)].verdict = verdict;
        match verdict {
            Verdict::Permitted => Ok(pid),
            _ => Err(CopyError::NotPermitted),
        }
    }
}

impl ShmPort {
    /// Says that endpoint `peer` is process `pid`, as the kernel or the launcher names it to
    /// us: never by the peer's own word, for it could name a third process, and have us read
    /// and write there. Until this is said, or with 0, nothing is copied directly.
    pub fn set_process(&mut self, peer: u16, pid: u32) {
        self.cma.set_process(peer, pid);
    }

    /// Whether [`ShmPort::copy_from_peer`] works with this peer: it is open,
    /// in our pid namespace, [known](ShmPort::set_process), and the system permits it.
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
