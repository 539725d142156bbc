//! Which key is in which slot of the seal, and how each is derived.
//!
//! Every key is `derive(job secret, info)`; `info` is, in this order and
//! little-endian: label (8 bytes), suite name (24 bytes, zero padded),
//! sender's id and life, receiver's id and life; for data keys also the
//! sender's and the receiver's nonce and the phase (8 bytes each).

use portolan_seal::{Seal, Secret};
use portolan_wire::{EndpointId, Life};

use crate::base::{ConnIndex, PeerId};
use crate::endpoint::Endpoint;
use crate::keys::{CONNECT_SLOT, Keys, Ready, SLOTS, Settled, key_slots, rx_slot, tx_slot};

const CONNECT_LABEL: &[u8; 8] = b"ptl1conn";
const DATA_LABEL: &[u8; 8] = b"ptl1data";
const LABEL: usize = 8;
const SUITE: usize = 24;

/// One direction of a pair.
pub(crate) type Direction = [(EndpointId, Life); 2];

impl<S: Seal> Endpoint<'_, S> {
    /// Keeps P3.2.
    fn info(
        &self,
        label: &[u8; LABEL],
        ends: Direction,
        rest: &[u64],
        out: &mut [u8; 96],
    ) -> usize {
        out[..LABEL].copy_from_slice(label);
        let name = self.seal.name().as_bytes();
        out[LABEL..][..name.len()].copy_from_slice(name);
        let mut at = LABEL + SUITE;
        let ends = [ends[0].0.0, ends[0].1.0, ends[1].0.0, ends[1].1.0];
        for word in ends.iter().chain(rest) {
            out[at..at + 8].copy_from_slice(&word.to_le_bytes());
            at += 8;
        }
        at
    }

    /// Installs the key of connect packets in a direction; returns its slot.
    pub(crate) fn install_connect_key(&mut self, peer: PeerId, ends: Direction) -> usize {
        let mut info = [0; 96];
        let n = self.info(CONNECT_LABEL, ends, &[], &mut info);
        let secret = &self.core.secret.0;
        let key = self.seal.derive_with(peer.0, secret, &info[..n]);
        self.seal.install(CONNECT_SLOT, &key);
        CONNECT_SLOT
    }

    fn data_key(&mut self, conn: ConnIndex, sending: bool, phase: u32) -> Secret {
        let c = &self.conns[conn];
        let peer = c.peer;
        let p = &self.peers[peer];
        let theirs = c.kept.nonce_theirs;
        let me = (self.core.me.id, self.core.me.life);
        let they = (p.id, p.life);
        let (ends, nonces) = if sending {
            ([me, they], [p.nonce_mine, theirs])
        } else {
            ([they, me], [theirs, p.nonce_mine])
        };
        let mut info = [0; 96];
        let rest = [nonces[0], nonces[1], u64::from(phase)];
        let n = self.info(DATA_LABEL, ends, &rest, &mut info);
        self.seal
            .derive_with(peer.0, &self.core.secret.0, &info[..n])
    }

    /// Expands the key to seal with in a phase.
    pub(crate) fn install_tx(&mut self, conn: ConnIndex, phase: u32) {
        let key = self.data_key(conn, true, phase);
        self.seal.install(tx_slot(conn, phase), &key);
    }

    /// Expands the key to open with in a phase.
    pub(crate) fn install_rx(&mut self, conn: ConnIndex, phase: u32) {
        let key = self.data_key(conn, false, phase);
        self.seal.install(rx_slot(conn, phase), &key);
    }

    /// Expands every key that the connection's present phases need.
    pub(crate) fn install_keys(&mut self, conn: ConnIndex) {
        let keys = &self.conns[conn].kept.keys;
        let (tx, rx) = (keys.sending, keys.receiving);
        self.install_tx(conn, tx);
        if tx > 0 {
            self.install_tx(conn, tx - 1);
        }
        self.install_rx(conn, rx);
        self.install_rx(conn, rx + 1);
        if rx > 0 {
            self.install_rx(conn, rx - 1);
        } else {
            self.seal.remove(rx_slot(conn, rx + 2));
        }
    }

    /// Forgets a connection's keys.
    pub(crate) fn remove_keys(&mut self, conn: ConnIndex) {
        for slot in 0..SLOTS {
            self.seal.remove(key_slots(conn.index()) + slot);
        }
    }

    /// Begins the next phase to send in, when the old one's packets are all
    /// settled: then no sealed frame needs a key older than the last.
    pub(crate) fn maybe_rekey(&mut self, conn: ConnIndex) {
        let limit = self.core.config.rekey_packets.min(self.seal.packets_max());
        let Some(over) = self.conns[conn].kept.keys.over(limit) else {
            return;
        };
        let mut ready = true;
        for path in self.conns[conn].paths.iter() {
            let p = self.path_mut(path);
            let settled = Settled {
                acked_to: p.sent.acked_to,
                lowest: if p.sent.flying == 0 {
                    u64::MAX
                } else {
                    p.sent.lowest
                },
                usable: p.way.is_usable(),
            };
            let it = p.phases.is_ready(settled);
            // A peer does not acknowledge mere acknowledgements unasked.
            if it == Ready::Unconfirmed && Keys::asks(over) {
                p.sent.probes.owe_ping();
            }
            ready &= it == Ready::Yes;
        }
        if !ready {
            return;
        }
        let next = self.conns[conn].kept.keys.begin();
        for path in self.conns[conn].paths.iter() {
            let p = self.path_mut(path);
            p.phases.begin_sending(p.sent.next);
        }
        self.install_tx(conn, next);
        self.core.counters.rekeys += 1;
    }
}
