//! Peers that come and go, and forged packets of their kinds.

use portolan_proto::PeerId;
use portolan_proto::congestion::Mode;
use portolan_wire::{
    CHALLENGE_BYTES, CONNECT_CLEAR_BYTES, Challenge, Connect, EndpointId, INTRODUCTION_BYTES,
    IntroductionParts, Life,
};

use super::{Run, address};
use crate::open_seal::{introduced, mark_of};
use crate::record::Standing;

impl Run<'_> {
    /// An endpoint's caller lets in all that have come.
    pub(super) fn accept(&mut self, i: usize) {
        let Some(peers) = &mut self.record.peers else {
            return;
        };
        let come = |it: &&mut Standing| **it == Standing::Come;
        let mine = peers.range_mut((i, PeerId(0))..=(i, PeerId(u32::MAX)));
        let mine: Vec<PeerId> = mine
            .filter_map(|(at, it)| come(&it).then(|| *it = Standing::Known).map(|()| at.1))
            .collect();
        for peer in mine {
            self.with(i, |e, _, now| e.accept(now, peer, Mode::Lan));
        }
    }

    /// What the caller does about one peer.
    pub(super) fn change_peers(&mut self, i: usize) {
        let bits = self.input.byte();
        let peer = PeerId(u32::from(bits >> 3 & 3));
        let standing = |run: &Self| run.record.peers.as_ref()?.get(&(i, peer)).copied();
        match (bits & 7, standing(self)) {
            (0, _) => self.accept(i),
            (1, _) => self.add(i, 1 - i),
            (2, _) => self.add(i, 2),
            (3 | 4, Some(Standing::Known)) => {
                self.record.deaths = true;
                self.set(i, peer, Standing::Removed);
                self.with(i, |e, _, now| e.remove_peer(now, peer));
            }
            (5 | 6, Some(_)) => {
                let freed = self.with(i, |e, _, _| {
                    let before = e.unused_peers();
                    e.free_peer(peer);
                    e.unused_peers() > before
                });
                if freed {
                    self.record.forget(i, peer);
                    let peers = self.record.peers.as_mut().expect("they come and go");
                    peers.remove(&(i, peer));
                }
            }
            (7, Some(Standing::Known)) => {
                let strangers = self.with(i, |e, _, now| {
                    [e.silent_stranger(now), e.quietest_stranger(|_| true)]
                });
                for peer in strangers.into_iter().flatten() {
                    assert!(self.record.has(i, peer));
                }
            }
            _ => {}
        }
    }

    fn set(&mut self, i: usize, peer: PeerId, standing: Standing) {
        let peers = self.record.peers.as_mut().expect("they come and go");
        peers.insert((i, peer), standing);
    }

    /// Adds somebody by its address: one that is there may begin anew.
    fn add(&mut self, i: usize, other: usize) {
        let (id, life) = self.who[other];
        let (id, life, to) = (EndpointId(id), Life(life), address(other));
        self.record.deaths = true;
        let added = self.with(i, |e, _, _| match e.peer_of(id) {
            Some(peer) => {
                e.acknowledge(peer);
                e.revive(peer, to, Mode::Lan);
                Some(peer)
            }
            None => e.add_peer(id, life, to, Mode::Lan).ok(),
        });
        if let Some(peer) = added.filter(|peer| !self.record.is_used(i, *peer)) {
            self.set(i, peer, Standing::Known);
        }
    }

    /// What a forger learns from an introduction or a challenge.
    pub(super) fn overhear_introduction(&mut self, from: usize, to: usize, packet: &[u8]) {
        if let Ok(challenge) = Challenge::parse(packet) {
            self.nodes[from].asked[to] = challenge.nonce;
            return;
        }
        let mut bytes = packet.to_vec();
        let parts = IntroductionParts::parse(&mut bytes).expect("a packet of ours");
        let offer = Connect::parse(&parts.connect[CONNECT_CLEAR_BYTES..]).expect("an offer");
        assert_eq!(
            (offer.echo, offer.connection),
            (parts.echo, parts.connection)
        );
        self.nodes[from].offered[to] = (offer.connection, offer.nonce);
        self.nodes[from].marks[to] = *packet.last_chunk().expect("a mark");
    }

    /// An introduction of the other endpoint or of nobody, with what it was asked to echo or
    /// without.
    pub(super) fn forge_introduction(&mut self, i: usize) {
        let bits = self.input.byte();
        if !self.record.forged {
            return;
        }
        let from = if bits & 1 != 0 { 2 } else { 1 - i };
        let echo = if bits & 16 != 0 {
            self.nodes[i].asked[from]
        } else {
            0
        };
        let offered = if bits & 2 != 0 {
            echo
        } else {
            u64::from(self.input.byte())
        };
        let mut packet = self.connect_packet(i, from, bits & !6, offered);
        packet.resize(INTRODUCTION_BYTES, 0);
        let mut key = introduced(from);
        key[32] ^= self.input.byte();
        let connection = u32::from(self.input.byte());
        let (marked, mark) = IntroductionParts::write(&mut packet, connection, echo, &key);
        mark.copy_from_slice(&mark_of(marked));
        self.deliver(i, from, packet);
    }

    /// A challenge of the last introduction, or of another.
    pub(super) fn forge_challenge(&mut self, i: usize) {
        let bits = self.input.byte();
        if !self.record.forged {
            return;
        }
        let from = if bits & 1 != 0 { 2 } else { 1 - i };
        let mut mark = self.nodes[i].marks[from];
        mark[0] ^= bits & 2;
        let challenge = Challenge {
            connection: self.nodes[i].offered[from].0 ^ u32::from(bits >> 2 & 3),
            mark,
            nonce: u64::from(bits >> 4) + 1,
        };
        let mut packet = vec![0; CHALLENGE_BYTES];
        challenge.write(&mut packet);
        self.deliver(i, from, packet);
    }
}
