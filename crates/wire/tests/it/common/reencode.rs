//! The property behind the fuzz target: whatever parses is written back as
//! the same bytes, and nothing panics.

use portolan_wire::{
    ADDRESS_BYTES, Ack, Address, CHALLENGE_BYTES, CONNECT_BYTES, CONNECT_CLEAR_BYTES, Challenge,
    Chunks, Connect, ConnectIds, Flags, HEADER_BYTES, Header, INTRODUCTION_BYTES,
    IntroductionParts, PacketType, TAG_BYTES,
};

/// Reads `bytes` as each format in turn, and then as a packet. Returns which
/// they are: an address, the clear part of a connect packet, its rest, an
/// acknowledgement, chunks, then a packet of each type: connect, data with a chunk,
/// introduction, challenge.
pub fn all(bytes: &[u8]) -> [bool; 9] {
    let kind = packet(bytes);
    let is = |wanted| kind == Some(wanted);
    [
        address(bytes),
        connect_ids(bytes),
        connect(bytes),
        ack(bytes).is_some(),
        chunks(bytes),
        is(PacketType::Connect),
        is(PacketType::Data),
        is(PacketType::Introduction),
        is(PacketType::Challenge),
    ]
}

/// Of which type it is, if its content is of that too.
fn packet(bytes: &[u8]) -> Option<PacketType> {
    let header = Header::parse(bytes).ok()?;
    assert_eq!(header.to_bytes(), bytes[..HEADER_BYTES]);
    let fits = match header.kind {
        PacketType::Connect => {
            let rest = bytes.get(CONNECT_CLEAR_BYTES..).unwrap_or_default();
            connect_ids(bytes) && connect(rest)
        }
        PacketType::Data => {
            let mut at = HEADER_BYTES;
            if header.flags.has(Flags::HAS_ACK) {
                at += ack(&bytes[at..])?;
            }
            chunks(&bytes[at..])
        }
        PacketType::Introduction => introduction(bytes),
        PacketType::Challenge => challenge(bytes),
    };
    fits.then_some(header.kind)
}

fn introduction(bytes: &[u8]) -> bool {
    let mut read = bytes.to_vec();
    let Ok(parts) = IntroductionParts::parse(&mut read) else {
        return false;
    };
    let (marked, mark) = IntroductionParts::marked(bytes).expect("it has its length");
    assert_eq!(marked.len() + TAG_BYTES, INTRODUCTION_BYTES);
    let mut out = vec![0xff; INTRODUCTION_BYTES];
    out[..parts.connect.len()].copy_from_slice(parts.connect);
    let (again, into) = IntroductionParts::write(&mut out, parts.connection, parts.echo, parts.key);
    assert_eq!(again, marked);
    into.copy_from_slice(mark);
    assert_eq!(out, bytes);
    true
}

fn challenge(bytes: &[u8]) -> bool {
    let Ok(challenge) = Challenge::parse(bytes) else {
        return false;
    };
    let mut out = vec![0xff; CHALLENGE_BYTES];
    challenge.write(&mut out);
    assert_eq!(out, bytes);
    true
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
    let parsed = Ack::parse(bytes);
    assert_eq!(Ack::length(bytes), parsed.map(|(_, n)| n));
    let (ack, n) = parsed.ok()?;
    if let Ok(fixed) = bytes[..n].try_into() {
        assert_eq!(Ack::without_bitmap(fixed), ack);
    }
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
