//! Packet sizes: limits of links and interfaces, and probes.

use portolan_seal::Seal;
use portolan_wire::{HEADER_BYTES, TAG_BYTES};

use crate::base::{PATHS_MAX, PathIndex, PeerId};
use crate::endpoint::Endpoint;
use crate::path::Path;

impl<S: Seal> Endpoint<'_, S> {
    /// The link refused a packet of `bytes` on a path as too big: from now on
    /// packets have at most `max`, or if that is 0 what every path takes, until
    /// a search has found more.
    pub fn packet_too_big(&mut self, now: u64, peer: PeerId, path: u8, bytes: usize, max: usize) {
        let Some(p) = self.peers.get(peer.index()) else {
            return;
        };
        if p.conn.is_some()
            && let Some(path) = self.conns[p.conn].paths.get(path)
        {
            let [bytes, max] = [bytes, max].map(|n| n.min(usize::from(u16::MAX)) as u16);
            let p = self.path_mut(path);
            p.sent.mtu.refused(now, bytes, max);
            let at = p.sent.mtu.due();
            self.arm(at);
        }
    }

    /// Sets the size of packets (UDP payload) that the interface of one of our
    /// networks takes now, at most [`crate::Config::packet_max`]: frames have
    /// room for no more.
    pub fn set_packet_max(&mut self, now: u64, network: u8, size: usize) {
        let size = size.min(usize::from(self.core.config.packet_max)) as u16;
        if usize::from(network) >= PATHS_MAX || size == self.own_packet_max(network) {
            return;
        }
        match usize::from(network) {
            0 => self.core.packet_max = size,
            at if self.core.networks[at].packet_max > 0 => {
                self.core.networks[at].packet_max = size.max(1);
            }
            _ => return,
        }
        for path in (0..self.paths.len()).map(PathIndex::new) {
            let Path { conn, way, .. } = self.paths[path];
            if conn.is_none() || !self.conns[conn].handshake.is_keyed() {
                continue;
            }
            if self.network_of(self.conns[conn].peer, way.id) == network {
                self.path_mut(path).sent.mtu.set_own(now, size);
                self.make_ready(conn);
            }
        }
    }

    /// Size of packets that our interface on a network takes now.
    pub(crate) fn own_packet_max(&self, network: u8) -> u16 {
        match usize::from(network) {
            0 => self.core.packet_max,
            at => self.core.networks[at].packet_max,
        }
    }

    /// Size of the probe to send now, if one is due.
    pub(crate) fn mtu_probe_due(&mut self, now: u64, path: PathIndex) -> Option<u16> {
        let p = self.path_mut(path);
        if now < p.sent.mtu.due() {
            return None;
        }
        let size = p.sent.mtu.probe(now, p.sent.next);
        let room = self.memory.chunk_room(u16::MAX) + HEADER_BYTES + TAG_BYTES;
        (size > 0).then_some(size.min(room as u16))
    }
}
