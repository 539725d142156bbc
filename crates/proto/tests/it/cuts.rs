//! A sender may cut a message otherwise when it sends it again: whatever a
//! packet brings counts as received, so all of it must be kept.

use crate::common::{Pair, address};
use portolan_proto::{Config, PeerId};
use portolan_seal::{Checksum, Nonce, Seal};
use portolan_wire::{
    Body, Chunk, Flags, HEADER_BYTES, Head, Header, MessageNo, PacketType, Priority, TAG_BYTES,
};

/// Bytes of the message that is sent twice.
const TOTAL: usize = 256;

fn head(message: u32, bytes: &[u8], total: usize) -> Chunk<'_> {
    Chunk::Head(Head {
        priority: Priority::Request,
        flow: 0,
        message: MessageNo(message),
        port: 3,
        total: total as u64,
        args: &[],
        payload: bytes,
    })
}

fn body(message: u32, fragment: usize, bytes: &[u8]) -> Chunk<'_> {
    Chunk::Body(Body {
        priority: Priority::Request,
        flow: 0,
        message: MessageNo(message),
        fragment: fragment as u32,
        payload: bytes,
    })
}

/// What node 0 hands over of the packets, one chunk each, of a peer that has
/// sent one message before.
fn delivered(chunks: &[Chunk<'_>]) -> Vec<Vec<u8>> {
    let mut pair = Pair::new(&Config::default());
    pair.send(1, b"warm");
    pair.run(1_000_000_000, |_| true);
    pair.send(1, b"last");
    pair.flush(1, true, &mut |_| true);
    let first = Header::parse(&pair.wire[0][0]).unwrap();
    pair.deliver(0);
    for (i, chunk) in chunks.iter().enumerate() {
        let number = u64::from(first.number) + 1 + i as u64;
        let header = Header {
            kind: PacketType::Data,
            flags: Flags::NONE,
            path: 0,
            connection: first.connection,
            number: number as u32,
        }
        .to_bytes();
        let mut packet = header.to_vec();
        packet.resize(2_048, 0);
        let end = HEADER_BYTES + chunk.write(&mut packet[HEADER_BYTES..]);
        let nonce = Nonce { path: 0, number };
        let tag = Checksum.seal(0, nonce, &header, &mut packet[HEADER_BYTES..end]);
        packet[end..end + TAG_BYTES].copy_from_slice(&tag);
        packet.truncate(end + TAG_BYTES);
        let now = pair.now;
        pair.nodes[0].with(|e, log| {
            log.packet(e, now, address(2), false, &mut packet);
            e.check();
        });
    }
    let malformed = pair.nodes[0].with(|e, _| e.counters().drops.malformed);
    assert_eq!(malformed, 0);
    assert_eq!(
        pair.nodes[0].with(|e, _| e.peer_state(PeerId(0))),
        portolan_proto::PeerState::Up
    );
    let got = pair.nodes[0].log.got.iter().skip(2);
    got.map(|(_, _, bytes)| bytes.clone()).collect()
}

/// Checks P2.22.
#[test]
fn a_longer_cut_of_a_head_completes_a_message() {
    let bytes: Vec<u8> = (0..TOTAL).map(|i| i as u8).collect();
    let [short, long] = [64, TOTAL].map(|n| &bytes[..n]);
    // Its turn has come: the first head is handed over at once.
    let got = delivered(&[head(2, short, TOTAL), head(2, long, TOTAL)]);
    assert_eq!(got, [long]);
    // It comes too early, and is held.
    let got = delivered(&[head(3, short, TOTAL), head(3, long, TOTAL), head(2, b"", 0)]);
    assert_eq!(got, [&[][..], long]);
    // The shorter one last changes nothing.
    let got = delivered(&[head(3, long, TOTAL), head(3, short, TOTAL), head(2, b"", 0)]);
    assert_eq!(got, [&[][..], long]);
}

/// Checks P2.22.
#[test]
fn a_longer_cut_of_a_part_that_is_held_completes_a_message() {
    let bytes: Vec<u8> = (0..TOTAL).map(|i| i as u8).collect();
    let parts = [&bytes[64..128], &bytes[64..]];
    for order in [[0, 1], [1, 0]] {
        let [a, b] = order.map(|i: usize| body(2, 1, parts[i]));
        let got = delivered(&[a, b, head(2, &bytes[..64], TOTAL)]);
        assert_eq!(got, [&bytes[..]]);
    }
}
