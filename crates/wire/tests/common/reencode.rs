//! The property behind the fuzz target: whatever parses is written back as
//! the same bytes, and nothing panics.

use portolan_wire::{
    ADDRESS_BYTES, Ack, Address, CONNECT_BYTES, CONNECT_CLEAR_BYTES, Chunks, Connect, ConnectIds,
    Flags, HEADER_BYTES, Header, PacketType,
};

/// Reads `bytes` as each format in turn, and then as a packet. Returns which
/// they are: an address, the clear part of a connect packet, its rest, an
/// acknowledgement, chunks, a connect packet, a data packet with a chunk.
pub fn all(bytes: &[u8]) -> [bool; 7] {
    let (connects, data) = packet(bytes);
    [
        address(bytes),
        connect_ids(bytes),
        connect(bytes),
        ack(bytes).is_some(),
        chunks(bytes),
        connects,
        data,
    ]
}

/// Whether it is a connect packet, and whether it is a data packet.
fn packet(bytes: &[u8]) -> (bool, bool) {
    let Ok(header) = Header::parse(bytes) else {
        return (false, false);
    };
    assert_eq!(header.to_bytes(), bytes[..HEADER_BYTES]);
    match header.kind {
        PacketType::Connect => {
            let rest = bytes.get(CONNECT_CLEAR_BYTES..).unwrap_or_default();
            (connect_ids(bytes) && connect(rest), false)
        }
        PacketType::Data => {
            let mut at = HEADER_BYTES;
            if header.flags.has(Flags::HAS_ACK) {
                match ack(&bytes[at..]) {
                    Some(n) => at += n,
                    None => return (false, false),
                }
            }
            (false, chunks(&bytes[at..]))
        }
    }
}

fn address(bytes: &[u8]) -> bool {
    let Ok(address) = Address::parse(bytes) else {
        return false;
    };
    assert_eq!(address.to_bytes(), bytes[..ADDRESS_BYTES]);
    true
}

fn connect_ids(bytes: &[u8]) -> bool {
    let Ok(ids) = ConnectIds::parse(bytes) else {
        return false;
    };
    let mut out = [0; CONNECT_CLEAR_BYTES];
    out[..HEADER_BYTES].copy_from_slice(&bytes[..HEADER_BYTES]);
    ids.write(&mut out);
    assert_eq!(out, bytes[..CONNECT_CLEAR_BYTES]);
    true
}

fn connect(bytes: &[u8]) -> bool {
    let Ok(connect) = Connect::parse(bytes) else {
        return false;
    };
    let mut out = [0xff; CONNECT_BYTES - CONNECT_CLEAR_BYTES];
    connect.write(&mut out);
    assert_eq!(out, bytes[..out.len()]);
    true
}

/// Gives the bytes of the acknowledgement, if there is one.
fn ack(bytes: &[u8]) -> Option<usize> {
    let (ack, n) = Ack::parse(bytes).ok()?;
    let mut out = vec![0xff; n];
    ack.write(&mut out);
    assert_eq!(out, bytes[..n]);
    Some(n)
}

/// Whether there is one.
fn chunks(bytes: &[u8]) -> bool {
    let mut out = vec![0xff; bytes.len()];
    let mut at = 0;
    let mut chunks = Chunks::new(bytes);
    while let Some(chunk) = chunks.next() {
        let Ok(chunk) = chunk else {
            assert!(chunks.next().is_none(), "goes on after an error");
            assert_eq!(out[..at], bytes[..at]);
            return at > 0;
        };
        let n = chunk.write(&mut out[at..]);
        assert!(n > 0, "no progress");
        at += n;
    }
    assert_eq!(out[..at], bytes[..at]);
    // The walk ends with the bytes or at padding.
    assert!(bytes.get(at).is_none_or(|first| first & 7 == 0));
    at > 0
}
