//! Taking packets apart: which connection, which key, seen before, authentic?

use portolan_seal::{Seal, Tag};
use portolan_wire::{
    Ack, Chunk, Chunks, Flags, HEADER_BYTES, Header, PacketNo, PacketType, TAG_BYTES, WireError,
};

use crate::config::PATHS_MAX;
use crate::endpoint::{Endpoint, PEER_BITS};
use crate::host::{DeathReason, Heard, Host, NetAddress, PeerEvent, PeerId};
use crate::keys::{nonce, rx_slot};
use crate::path::Path;
use crate::peer::PeerState;
use crate::reassembly::Took;
use crate::tables::NONE;

/// Explicitly acknowledged at once: this part of what was granted has come.
const GRANT_PARTS: u64 = 2;
/// Packets in a row that came by a detour before the peer hears it: one now and
/// then takes it on purpose.
pub(crate) const DETOURS: u8 = 4;

impl<S: Seal> Endpoint<'_, S> {
    /// Takes a packet from the network, decrypting it in place. `ce`: it
    /// carried the congestion mark. Nothing of it is believed before its tag
    /// was checked, but what picks connection, key and replay window. Gives
    /// whom it is from if it was taken and is no connect packet.
    pub fn handle_packet(
        &mut self,
        now: u64,
        from: NetAddress,
        ce: bool,
        packet: &mut [u8],
        host: &mut impl Host<S>,
    ) -> Option<Heard> {
        let header = match Header::parse(packet) {
            Ok(header) => header,
            Err(WireError::Version(_)) => {
                self.core.counters.drops.version += 1;
                return None;
            }
            Err(_) => {
                self.core.counters.drops.malformed += 1;
                return None;
            }
        };
        match header.kind {
            PacketType::Connect => {
                self.handle_connect(now, from, packet, host);
                None
            }
            PacketType::Data => self.handle_data(now, from, header, ce, packet, host),
        }
    }

    /// Tells of each packet of a peer whether it came by a detour. If several in
    /// a row did, the peer hears it, which may know another way.
    #[inline]
    pub fn note_detour(&mut self, peer: PeerId, detour: bool) {
        let conn = self.peers.get(peer.0 as usize).map_or(NONE, |p| p.conn);
        if let Some(c) = self.conns.get_mut(conn as usize) {
            let count = c.detours.saturating_add(1).min(DETOURS);
            c.detours = if detour { count } else { 0 };
        }
    }

    /// The connection that a number of ours stands for.
    fn find_connection(&mut self, now: u64, connection: u32) -> Option<u32> {
        let peer = connection & ((1 << PEER_BITS) - 1);
        if peer >= self.core.peer_count {
            return None;
        }
        let p = &self.peers[peer as usize];
        if p.connection_mine != connection {
            return None;
        }
        match p.state {
            PeerState::Up | PeerState::Dead(DeathReason::Closed) => {
                // Keys must be derived to check the tag: not at any rate.
                if p.conn == NONE && !self.core.connect_tokens.spend(now) {
                    self.core.counters.drops.limited += 1;
                    return None;
                }
                self.activate(now, peer)
            }
            PeerState::New | PeerState::Connecting if p.conn != NONE => {
                self.conns[p.conn as usize].keyed.then_some(p.conn)
            }
            _ => None,
        }
    }

    /// The phase whose key sealed a packet, by its bit and number.
    const fn phase_of(current: u32, p: &Path, bit: bool, number: u64) -> u32 {
        if (current & 1 == 1) == bit {
            current
        } else if number < p.phase_rx_first && current > 0 {
            current - 1
        } else {
            current + 1
        }
    }

    fn handle_data(
        &mut self,
        now: u64,
        from: NetAddress,
        header: Header,
        ce: bool,
        packet: &mut [u8],
        host: &mut impl Host<S>,
    ) -> Option<Heard> {
        let length = packet.len();
        let Some(conn) = self.find_connection(now, header.connection) else {
            self.core.counters.drops.unknown += 1;
            return None;
        };
        if length < HEADER_BYTES + TAG_BYTES || usize::from(header.path) >= PATHS_MAX {
            self.core.counters.drops.malformed += 1;
            return None;
        }
        let known = self.path_of(conn, header.path);
        let Some(path) = known.or_else(|| self.open_path(conn, header.path)) else {
            self.core.counters.drops.no_room += 1;
            return None;
        };
        let p = &self.paths[path as usize];
        let number = PacketNo(p.rx_next).nearest(header.number).0;
        if p.is_replay(number) {
            self.core.counters.drops.replay += 1;
            return None;
        }
        let current = self.conns[conn as usize].kept.phase_rx;
        let phase = Self::phase_of(current, p, header.flags.has(Flags::KEY_PHASE), number);
        let (clear, rest) = packet.split_at_mut(HEADER_BYTES);
        let (body, tag) = rest.split_at_mut(length - HEADER_BYTES - TAG_BYTES);
        let tag: &Tag = (&*tag).try_into().expect("the length was checked");
        if self
            .seal
            .open(
                rx_slot(conn, phase),
                nonce(header.path, number),
                clear,
                body,
                tag,
            )
            .is_err()
        {
            self.core.counters.drops.bad_tag += 1;
            if known.is_none() {
                self.release_path(path);
            }
            if !self.conns[conn as usize].proven && self.is_quiet(conn) {
                self.deactivate(conn);
            }
            return None;
        }
        if !self.conns[conn as usize].proven {
            self.conns[conn as usize].proven = true;
            self.core.connect_tokens.refund();
        }
        self.core.counters.packets_received += 1;
        self.core.counters.bytes_received += length as u64;
        if phase == current + 1 {
            self.conns[conn as usize].kept.phase_rx = phase;
            for other in self.paths_of(conn) {
                self.path_mut(other).phase_rx_first = u64::MAX;
            }
            self.path_mut(path).phase_rx_first = number;
            self.install_rx(conn, phase + 1);
        }
        if known.is_none() {
            self.keep_path(conn, header.path);
        }
        self.note_source(conn, path, from);
        let p = self.path_mut(path);
        if p.phase_rx_first == u64::MAX && phase == current {
            p.phase_rx_first = number;
        }
        let heard = Heard {
            peer: PeerId(self.conns[conn as usize].peer),
            path: header.path,
            detour: header.flags.has(Flags::DETOUR),
        };
        self.conns[conn as usize].busy = true;
        self.authentic(now, path, header, number, ce, body, host);
        self.conns[conn as usize].busy = false;
        Some(heard)
    }

    /// Works on the opened body of a packet.
    #[allow(clippy::too_many_arguments, reason = "one packet's parts, used once")]
    fn authentic(
        &mut self,
        now: u64,
        path: u32,
        header: Header,
        number: u64,
        ce: bool,
        body: &[u8],
        host: &mut impl Host<S>,
    ) {
        let p = &mut self.paths[path as usize];
        let conn = p.conn;
        let c = &mut self.conns[conn as usize];
        c.heard_at = now;
        c.heard_by = path;
        c.used_at = now;
        c.confirmed = true;
        let peer = c.peer;
        p.ce = p.ce.wrapping_add(u32::from(ce));
        if matches!(
            self.peers[peer as usize].state,
            PeerState::New | PeerState::Connecting
        ) {
            self.become_up(now, conn, host);
        }
        if number >= self.paths[path as usize].rx_next {
            let full = [Flags::REQUESTS_FULL, Flags::REPLIES_FULL].map(|f| header.flags.has(f));
            self.peer_full(now, conn, full);
        }
        let mut at = 0;
        if header.flags.has(Flags::HAS_ACK) {
            let Ok((ack, bytes)) = Ack::parse(body) else {
                self.core.counters.drops.malformed += 1;
                return;
            };
            at = bytes;
            self.take_ack(now, conn, &ack, host);
            self.go_on_after_refusals(conn, host);
        }
        if self.conns[conn as usize].peer != peer {
            return;
        }
        let eliciting = self.handle_chunks(now, path, &body[at..], host);
        // The host may have been told of a death and have the state released.
        if self.conns[conn as usize].peer != peer {
            return;
        }
        let Some(eliciting) = eliciting else {
            let gap = self.path_mut(path).note(now, number, false);
            // Who asks must hear that somebody lives here.
            if gap || header.flags.has(Flags::ACK_WANTED) {
                self.owe_now(path);
            }
            return;
        };
        let p = self.path_mut(path);
        let gap = p.note(now, number, true);
        if eliciting {
            p.unacked += 1;
        }
        let granted = p.granted.saturating_sub(p.rx_next);
        if gap || (eliciting && u64::from(p.unacked) * GRANT_PARTS > granted) {
            self.owe_now(path);
        } else if header.flags.has(Flags::ACK_WANTED) {
            self.owe_delayed(path);
        }
    }

    /// Handles the chunks of a packet; says whether there were any, or `None`
    /// if one found no room and the packet counts as lost.
    fn handle_chunks(
        &mut self,
        now: u64,
        path: u32,
        chunks: &[u8],
        host: &mut impl Host<S>,
    ) -> Option<bool> {
        let conn = self.paths[path as usize].conn;
        let mut eliciting = false;
        for chunk in Chunks::new(chunks) {
            let took = match chunk {
                Ok(Chunk::Head(head)) => {
                    self.conns[conn as usize].last_data_at = now.max(1);
                    self.handle_head(conn, &head, host)
                }
                Ok(Chunk::Body(body)) => {
                    self.conns[conn as usize].last_data_at = now.max(1);
                    self.handle_body(conn, &body, host)
                }
                Ok(Chunk::Refuse {
                    priority,
                    flow,
                    message,
                }) => {
                    if self.handle_refuse(now, conn, priority, flow, message, host) {
                        Took::Yes
                    } else {
                        Took::Bad
                    }
                }
                Ok(Chunk::Close) => {
                    self.handle_close(path, host);
                    Took::Yes
                }
                Ok(Chunk::Ping) => {
                    let bytes = HEADER_BYTES + chunks.len() + TAG_BYTES;
                    if self.path_mut(path).mtu.heard(now, bytes) {
                        self.make_ready(conn);
                    }
                    Took::Yes
                }
                Ok(Chunk::Networks(networks)) => {
                    self.handle_networks(now, conn, networks);
                    Took::Yes
                }
                Err(_) => Took::Bad,
            };
            eliciting = true;
            match took {
                Took::Yes => {}
                Took::Bad => {
                    self.core.counters.drops.malformed += 1;
                    break;
                }
                Took::NoRoom(priority) => {
                    self.core.counters.drops.no_room += 1;
                    self.note_full(conn, priority);
                    return None;
                }
            }
        }
        Some(eliciting)
    }

    /// The peer closes: it is dead from now on, but its close is acknowledged.
    fn handle_close(&mut self, path: u32, host: &mut impl Host<S>) {
        let conn = self.paths[path as usize].conn;
        let peer = self.conns[conn as usize].peer;
        if matches!(self.peers[peer as usize].state, PeerState::Dead(_)) {
            self.owe_now(path);
            return;
        }
        // What it acknowledged before has arrived.
        self.settle_deferred_ack(conn, host);
        self.drop_sending(conn, host);
        self.peers[peer as usize].state = PeerState::Dead(DeathReason::Closed);
        self.owe_now(path);
        host.peer_event(PeerId(peer), PeerEvent::Dead(DeathReason::Closed));
        self.go_on_after_refusals(conn, host);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_packet_follows_from_bit_and_number() {
        let phase_of = Endpoint::<portolan_seal::Checksum>::phase_of;
        let p = Path {
            phase_rx_first: 100,
            ..Path::default()
        };
        for (current, bit) in [(0, false), (1, true), (2, false), (3, true)] {
            for number in [0, 99, 100, 101, 5_000] {
                assert_eq!(phase_of(current, &p, bit, number), current);
                // The other bit: older ones come late, newer ones begin a phase.
                let other = if number >= 100 || current == 0 {
                    current + 1
                } else {
                    current - 1
                };
                assert_eq!(phase_of(current, &p, !bit, number), other);
            }
        }
    }
}
