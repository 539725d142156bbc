//! Packets that came back, because the port that they were sent to is closed.

use portolan_seal::Seal;
use portolan_wire::{Header, PacketType};

use crate::base::ConnIndex;
use crate::endpoint::Endpoint;
use crate::tables::{Listed, PeerState};

impl<S: Seal> Endpoint<'_, S> {
    /// Handles an ICMP error: the port of a packet's receiver is closed. `quote` is the packet's
    /// beginning. Anyone can send such an error, but a sender that does not see our packets has to
    /// guess the connection's number, and that of a packet that was not acknowledged yet. So one
    /// error is a hint, which brings an early ping. A peer is given up sooner only if errors keep
    /// coming and it is silent all that time (P6.10).
    #[cold]
    pub fn port_unreachable(&mut self, now: u64, quote: &[u8]) {
        let Ok(header) = Header::parse(quote) else {
            return;
        };
        if header.kind != PacketType::Data || !self.core.search_tokens.spend(now) {
            return;
        }
        let mut all = (0..self.core.conns_used as usize).map(ConnIndex::new);
        // Peers choose their numbers, so two may have chosen the same.
        let found = all.find_map(|conn| {
            let c = &self.conns[conn];
            let may_be = c.listed != Listed::Free
                && c.kept.connection_theirs == header.connection
                && self.peers[c.peer].state == PeerState::Up;
            let path = self.conns[conn].paths.get(header.path).filter(|_| may_be)?;
            let sent = &self.paths[path].sent;
            (sent.is_unacknowledged(header.number)).then_some((conn, path))
        });
        let Some((conn, path)) = found else {
            return;
        };
        if self.conns[conn].silence.note_closed(now) {
            self.path_mut(path).sent.probes.owe_ping();
            self.make_ready(conn);
        }
    }
}
