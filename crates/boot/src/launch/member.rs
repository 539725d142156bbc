//! A rank as the job sees it.

use super::RankPlace;
use crate::job::PeerInfo;
use crate::message::How;

/// A rank, wherever it runs.
pub(super) struct Member {
    pub(super) place: RankPlace,
    /// Hosts on which it ran before, each of which has left the job.
    pub(super) former: Vec<u16>,
    /// Leader of its process group; 0 until it is known.
    pub(super) leader: u32,
    /// Its process, as the kernel of its host reports when it joins; 0 if that
    /// is not known.
    pub(super) pid: u32,
    /// Its address in the present exchange.
    pub(super) address: Option<[u8; 64]>,
    /// Whether it has been through an exchange.
    pub(super) joined: bool,
    /// Its entry in the table.
    pub(super) entry: Option<PeerInfo>,
    /// Whether it closed its endpoint in good order.
    pub(super) left: bool,
    pub(super) ended: Option<How>,
    /// Whether its host has left, and it is to be started on another.
    pub(super) again: bool,
    /// Whether its end was reported to the others.
    pub(super) death_reported: bool,
    /// Whether it is being killed, because another has given it up or it is stopped for too long.
    pub(super) given_up: bool,
}

impl Member {
    pub fn new(place: RankPlace) -> Self {
        Self {
            place,
            former: Vec::new(),
            leader: 0,
            pid: 0,
            address: None,
            joined: false,
            entry: None,
            left: false,
            ended: None,
            again: false,
            death_reported: false,
            given_up: false,
        }
    }

    /// Returns the rank in its next life, on another host.
    pub fn next_life(&self, host_index: u16) -> Self {
        let mut former = self.former.clone();
        former.push(self.place.host_index);
        Self {
            former,
            entry: self.entry,
            ..Self::new(RankPlace {
                rank: self.place.rank,
                host_index,
                local_index: 0,
                core: None,
                restarts: self.place.restarts + 1,
            })
        }
    }

    pub fn is_on(&self, host: usize) -> bool {
        usize::from(self.place.host_index) == host
    }

    /// Whether it ran on a host that it has left.
    pub fn was_on(&self, host: usize) -> bool {
        self.former
            .iter()
            .any(|former| usize::from(*former) == host)
    }
}
