//! What every suite owes the protocol.

use portolan_seal::{
    Aegis, Aegis128L, Aes128Gcm, AesGcm, AnySeal, BadTag, CellOf, ChaCha, ChaCha20Poly1305,
    Checksum, KeyCell, Nonce, Null, Seal, Secret, SuiteId, Tag,
};

const KEY: Secret = Secret::new([0x5a; 32]);
const HEADER: [u8; 12] = [0x12, 1, 0, 0, 9, 8, 7, 6, 5, 4, 3, 2];
const NONCE: Nonce = Nonce {
    path: 3,
    number: 0x1_0000_0007,
};

fn body() -> Vec<u8> {
    (0..61).map(|i| i * 3).collect()
}

/// Every suite of a job, with a key in slot 1 of 3.
fn suites() -> Vec<AnySeal> {
    SuiteId::ALL
        .into_iter()
        .map(|id| {
            let mut seal = AnySeal::with_slots(id, 3);
            seal.install(1, &KEY);
            seal
        })
        .collect()
}

fn sealed(seal: &impl Seal) -> (Vec<u8>, Tag) {
    let mut body = body();
    let tag = seal.seal(1, NONCE, &HEADER, &mut body);
    (body, tag)
}

fn open(seal: &impl Seal, slot: usize, nonce: Nonce, sealed: &[u8], tag: &Tag) -> bool {
    let mut opened = sealed.to_vec();
    match seal.open(slot, nonce, &HEADER, &mut opened, tag) {
        Ok(()) => {
            assert_eq!(opened, body());
            true
        }
        Err(BadTag) => false,
    }
}

#[test]
fn seals_and_opens() {
    for seal in suites() {
        let (bytes, tag) = sealed(&seal);
        assert!(open(&seal, 1, NONCE, &bytes, &tag), "{}", seal.name());
        assert_eq!(bytes != body(), seal.id() != SuiteId::None);
    }
}

#[test]
fn any_changed_bit_is_a_bad_tag() {
    for seal in suites() {
        let (bytes, tag) = sealed(&seal);
        for bit in 0..8 {
            for i in 0..HEADER.len() {
                let mut header = HEADER;
                header[i] ^= 1 << bit;
                let got = seal.open(1, NONCE, &header, &mut bytes.clone(), &tag);
                assert_eq!(got, Err(BadTag), "{} header {i}.{bit}", seal.name());
            }
            for i in 0..bytes.len() {
                let mut bytes = bytes.clone();
                bytes[i] ^= 1 << bit;
                assert!(!open(&seal, 1, NONCE, &bytes, &tag), "body {i}.{bit}");
            }
            for i in 0..tag.len() {
                let mut tag = tag;
                tag[i] ^= 1 << bit;
                assert!(!open(&seal, 1, NONCE, &bytes, &tag), "tag {i}.{bit}");
            }
        }
        for bit in 0..32 {
            let path = NONCE.path ^ 1 << bit;
            assert!(!open(&seal, 1, Nonce { path, ..NONCE }, &bytes, &tag));
        }
        for bit in 0..64 {
            let number = NONCE.number ^ 1 << bit;
            assert!(!open(&seal, 1, Nonce { number, ..NONCE }, &bytes, &tag));
        }
        for end in 0..bytes.len() {
            assert!(!open(&seal, 1, NONCE, &bytes[..end], &tag));
        }
    }
}

#[test]
fn keys_belong_to_their_slot() {
    for mut seal in suites() {
        if seal.id() == SuiteId::None {
            continue;
        }
        let (bytes, tag) = sealed(&seal);
        seal.install(2, &Secret::new([0x5b; 32]));
        assert!(!open(&seal, 2, NONCE, &bytes, &tag), "another key");
        assert!(!open(&seal, 0, NONCE, &bytes, &tag), "empty");
        assert!(!open(&seal, 3, NONCE, &bytes, &tag), "missing");
        seal.remove(3);
        seal.remove(1);
        assert!(!open(&seal, 1, NONCE, &bytes, &tag), "removed");
        seal.install(1, &KEY);
        assert!(open(&seal, 1, NONCE, &bytes, &tag), "derived again");
        seal.install(1, &Secret::new([0; 32]));
        assert!(!open(&seal, 1, NONCE, &bytes, &tag), "replaced");
    }
}

#[test]
#[should_panic(expected = "installed key")]
fn nothing_is_sealed_without_a_key() {
    let seal = AnySeal::with_slots(SuiteId::AesGcm, 1);
    seal.seal(0, NONCE, &HEADER, &mut body());
}

#[test]
fn suites_do_not_understand_each_other() {
    let suites = suites();
    for from in &suites {
        let (bytes, tag) = sealed(from);
        for to in &suites {
            assert_eq!(open(to, 1, NONCE, &bytes, &tag), from.id() == to.id());
        }
    }
}

/// As the protocol derives them: purpose, suite and phase in `info`.
#[test]
fn phases_suites_and_directions_have_keys_of_their_own() {
    let suites = suites();
    let mut keys = Vec::new();
    for seal in &suites {
        for direction in [[1, 2], [2, 1]] {
            for phase in [0, 1] {
                let info = [seal.name().as_bytes(), &direction, &[phase]].concat();
                keys.push(seal.derive(KEY.as_bytes(), &info));
            }
        }
    }
    for (i, a) in keys.iter().enumerate() {
        assert_ne!(*a, KEY);
        assert!(keys[..i].iter().all(|b| a != b), "key {i}");
    }
    let mut seal = AesGcm::with_slots(2);
    seal.install(1, &keys[0]);
    let (bytes, tag) = sealed(&seal);
    seal.install(0, &keys[1]);
    assert!(!open(&seal, 0, NONCE, &bytes, &tag));
}

/// AES takes the first 16 bytes of the key material, ChaCha20 all 32.
#[test]
fn key_bytes_in_use() {
    for (id, used) in [(SuiteId::AesGcm, 16), (SuiteId::ChaCha, 32)] {
        let mut seal = AnySeal::with_slots(id, 2);
        seal.install(1, &KEY);
        let (bytes, tag) = sealed(&seal);
        for i in 0..32 {
            let mut key = *KEY.as_bytes();
            key[i] ^= 1;
            seal.install(0, &Secret::new(key));
            assert_eq!(open(&seal, 0, NONCE, &bytes, &tag), i >= used, "byte {i}");
        }
    }
}

/// The engine lays the cells where a fork wipes them, and makes the suite
/// anew around them.
#[test]
fn keys_stay_in_the_callers_memory() {
    let mut cells = [KeyCell::EMPTY, KeyCell::default()];
    Aegis::new(&mut cells[..]).install(1, &KEY);
    assert!(cells[0].is_empty() && !cells[1].is_empty());
    let mut seal = Aegis::new(&mut cells[..]);
    let (bytes, tag) = sealed(&seal);
    assert!(open(&seal, 1, NONCE, &bytes, &tag));
    seal.remove(1);
    assert!(cells[1].is_empty());
}

#[test]
fn limits_and_names() {
    let limits: Vec<_> = suites().iter().map(Seal::packets_max).collect();
    assert_eq!(limits, [1 << 31, 1 << 23, 1 << 31, u64::MAX]);
    assert_eq!(Aegis::with_slots(0).packets_max(), 1 << 31);
    assert_eq!(AesGcm::with_slots(0).packets_max(), 1 << 23);
    assert_eq!(ChaCha::with_slots(0).packets_max(), 1 << 31);
    for (id, seal) in SuiteId::ALL.into_iter().zip(suites()) {
        assert_eq!(seal.id(), id);
        assert_eq!(seal.name(), id.name());
        assert_eq!(id.name().parse(), Ok(id));
    }
    assert_eq!(Checksum.name(), "none");
    assert_eq!(SuiteId::default(), SuiteId::Aegis);
    let error = "rot13".parse::<SuiteId>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "unknown cipher suite; there are aegis-128l, aes-128-gcm, chacha20-poly1305, none"
    );
}

#[test]
fn a_key_cell_is_no_larger_than_promised() {
    assert_eq!(size_of::<CellOf<Aegis128L>>(), 24);
    assert_eq!(size_of::<CellOf<Aes128Gcm>>(), 560);
    assert_eq!(size_of::<CellOf<ChaCha20Poly1305>>(), 560);
}

#[test]
fn a_bad_tag_says_what_it_is() {
    let said = BadTag.to_string();
    assert_eq!(
        said,
        "the packet's tag does not fit its key, number or content"
    );
}

#[test]
fn no_key_byte_is_printed() {
    assert_eq!(format!("{KEY:?}"), "Secret(..)");
    assert_eq!(Secret::from([0x5a; 32]), KEY);
}

#[test]
fn null_accepts_anything() {
    let (bytes, tag) = sealed(&Null);
    assert_eq!((bytes, tag), (body(), [0; 16]));
    assert!(open(&Null, 9, NONCE, &body(), &[7; 16]));
    assert_eq!((Null.name(), Null.packets_max()), ("null", u64::MAX));
}
