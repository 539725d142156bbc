//! A public key that is sealed to another, and what goes with it.

use portolan_seal::{
    AesGcm, AnySeal, INTRODUCED_BYTES, IntroducedKey, NO_PAIR, Null, Own, Pair, Paired, Seal,
    SuiteId, TAG_BYTES, Tag, mix_of, public_key,
};

const A: [u8; 32] = [1; 32];
const B: [u8; 32] = [2; 32];
const OTHER: [u8; 32] = [3; 32];

type Agreed = Paired<AnySeal, Vec<Own>, Vec<Pair>>;

/// Somebody who was told the public keys of others: they have the numbers from 0.
fn somebody(
    suite: SuiteId,
    private: &[u8; 32],
    file: Option<&[u8]>,
    others: &[[u8; 32]],
) -> Agreed {
    let mix = file.map(mix_of);
    let own = vec![Own::new(private, mix.as_ref().map(|mix| mix.as_bytes()))];
    let pairs = vec![NO_PAIR; 40];
    let mut seal = Paired::new(AnySeal::with_slots(suite, 1), own, pairs);
    for (peer, other) in (0..).zip(others) {
        seal.meet(peer, &public_key(other));
    }
    seal
}

const SEALED: [SuiteId; 2] = [SuiteId::AesGcm, SuiteId::ChaCha];
const FILES: [Option<&[u8]>; 3] = [None, Some(b"a file"), Some(b"another file")];

/// Checks P4.15.
#[test]
fn only_the_receiver_with_the_same_file_learns_the_key() {
    for suite in SEALED {
        for file in FILES {
            let key = somebody(suite, &A, file, &[B]).introduce(0).unwrap();
            for their_file in FILES {
                let opened = somebody(suite, &B, their_file, &[]).introduced(&key);
                let want = (file == their_file).then_some(public_key(&A));
                assert_eq!(opened, want, "{file:?} {their_file:?}");
            }
            for stranger in [A, OTHER] {
                let other = somebody(suite, &stranger, file, &[A, B]);
                assert_eq!(other.introduced(&key), None);
            }
        }
    }
}

#[test]
fn the_key_is_not_shown() {
    for file in FILES {
        let key = somebody(SuiteId::AesGcm, &A, file, &[B])
            .introduce(0)
            .unwrap();
        for known in [public_key(&A), public_key(&B), A] {
            for half in known.chunks(16) {
                assert!(!key.windows(16).any(|part| part == half));
            }
        }
    }
}

#[test]
fn any_changed_bit_is_noticed() {
    for file in FILES {
        let key = somebody(SuiteId::AesGcm, &A, file, &[B])
            .introduce(0)
            .unwrap();
        let b = somebody(SuiteId::AesGcm, &B, file, &[]);
        assert_eq!(b.introduced(&key), Some(public_key(&A)));
        for bit in 0..8 * INTRODUCED_BYTES {
            let mut other = key;
            other[bit / 8] ^= 1 << (bit % 8);
            // The curve ignores the highest bit of a public key; the derivation does not.
            assert_eq!(b.introduced(&other), None, "bit {bit}");
        }
    }
}

/// Checks P4.15.
#[test]
fn what_is_sealed_to_one_opens_at_no_other() {
    let mut a = somebody(SuiteId::AesGcm, &A, None, &[B, OTHER]);
    let (to_b, to_other) = (a.introduce(0).unwrap(), a.introduce(1).unwrap());
    // One ephemeral key serves a life.
    assert_eq!(to_b[..32], to_other[..32]);
    assert_ne!(to_b[32..], to_other[32..]);
    assert_ne!(
        to_b[..32],
        somebody(SuiteId::AesGcm, &OTHER, None, &[B])
            .introduce(0)
            .unwrap()[..32]
    );
    let b = somebody(SuiteId::AesGcm, &B, None, &[]);
    assert_eq!(b.introduced(&to_other), None);
    assert_eq!(b.introduced(&to_b), Some(public_key(&A)));
    // Nor with the parts of two.
    let mixed: IntroducedKey = core::array::from_fn(|i| if i < 64 { to_b[i] } else { to_other[i] });
    assert_eq!(b.introduced(&mixed), None);
}

/// Checks P3.8.
#[test]
fn keys_of_small_order_give_nothing() {
    // All that there are (RFC 7748, section 6.1, asks for a result that is not zero), and with
    // the highest bit, which the curve ignores.
    let word = |text: &str| -> [u8; 32] {
        core::array::from_fn(|i| u8::from_str_radix(&text[2 * i..][..2], 16).unwrap())
    };
    let points = [
        [0; 32],
        word("0100000000000000000000000000000000000000000000000000000000000000"),
        word("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
        word("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
        word("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
        word("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
        word("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    ];
    let mut a = somebody(SuiteId::AesGcm, &A, None, &[B]);
    let good = a.introduce(0).unwrap();
    for mut point in points {
        for _ in 0..2 {
            let mut key = good;
            key[..32].copy_from_slice(&point);
            assert_eq!(a.introduced(&key), None, "{point:02x?}");
            // Towards whoever states such a key as its own.
            a.meet(1, &point);
            assert_eq!(a.introduce(1), None, "{point:02x?}");
            point[31] ^= 0x80;
        }
    }
}

/// Checks P4.17.
#[test]
fn without_security_nothing_is_hidden() {
    for file in FILES {
        let key = somebody(SuiteId::None, &A, file, &[B])
            .introduce(0)
            .unwrap();
        assert_eq!(key[..32], [0; 32]);
        assert_eq!(key[32..64], public_key(&A));
        assert_eq!(key[64..], [0; TAG_BYTES]);
        for receiver in [B, OTHER] {
            let it = somebody(SuiteId::None, &receiver, None, &[]);
            assert_eq!(it.introduced(&key), Some(public_key(&A)));
        }
        // Nobody takes that for sealed.
        assert_eq!(
            somebody(SuiteId::AesGcm, &B, file, &[]).introduced(&key),
            None
        );
    }
}

#[test]
fn the_sealed_key_stays_until_somebody_else_has_the_number() {
    // More than are remembered at a time.
    let others: Vec<[u8; 32]> = (100..140).map(|n| [n; 32]).collect();
    for suite in SuiteId::ALL {
        let mut a = somebody(suite, &A, None, &others);
        let first: Vec<_> = (0..40).map(|peer| a.introduce(peer).unwrap()).collect();
        for peer in [0, 16, 32, 0, 0, 39, 1] {
            assert_eq!(a.introduce(peer).unwrap(), first[peer as usize]);
        }
        for (peer, key) in first.iter().enumerate() {
            let it = somebody(suite, &others[peer], None, &[]);
            assert_eq!(it.introduced(key), Some(public_key(&A)));
        }
        a.introduce(3).unwrap();
        a.meet(3, &public_key(&B));
        let to_b = a.introduce(3).unwrap();
        let b = somebody(suite, &B, None, &[]);
        assert_eq!(b.introduced(&to_b), Some(public_key(&A)));
        assert_eq!(to_b == first[3], suite == SuiteId::None);
        a.forget(3);
        assert_eq!(a.introduce(3), None, "nobody has that number");
        a.meet(3, &public_key(&others[3]));
        assert_eq!(a.introduce(3).unwrap(), first[3]);
        assert_eq!(a.introduce(40), None, "nor this one, ever");
    }
}

/// Checks P4.16.
#[test]
fn marks_show_who_was_told_the_key_of_the_receiver() {
    let packet: Vec<u8> = (0..216).map(|i| i as u8).collect();
    for suite in SuiteId::ALL {
        // Neither the sender nor the file counts.
        let a = somebody(suite, &A, Some(b"a file"), &[B, OTHER]);
        let b = somebody(suite, &B, None, &[]);
        let mark = a.mark(0, &packet).unwrap();
        assert_eq!(
            somebody(suite, &OTHER, None, &[B]).mark(0, &packet),
            Some(mark)
        );
        assert!(b.has_own_mark(&packet, &mark));
        assert!(!a.has_own_mark(&packet, &mark));
        let to_other = a.mark(1, &packet).unwrap();
        assert!(!b.has_own_mark(&packet, &to_other));
        for bit in 0..8 * TAG_BYTES {
            let mut other: Tag = mark;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!b.has_own_mark(&packet, &other), "bit {bit} of the mark");
        }
        for bit in 0..8 * packet.len() {
            let mut other = packet.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!b.has_own_mark(&other, &mark), "bit {bit} of the packet");
        }
        assert!(!b.has_own_mark(&packet[..215], &mark));
        assert_eq!(a.mark(2, &packet), None, "nobody has that number");
        assert_eq!(a.mark(99, &packet), None);
    }
}

/// Checks P4.19.
#[test]
fn fingerprints_are_ones_own() {
    let a = somebody(SuiteId::AesGcm, &A, None, &[]);
    let words: [&[u8]; 2] = [b"address", b"key"];
    let one = a.fingerprint(&words);
    assert_ne!(one, 0);
    assert_eq!(a.fingerprint(&words), one);
    assert_eq!(
        somebody(SuiteId::AesGcm, &A, None, &[B]).fingerprint(&words),
        one
    );
    let others: [&[&[u8]]; 4] = [
        &[b"address"],
        &[b"addresS", b"key"],
        &[b"address", b"kez"],
        &[],
    ];
    for other in others {
        assert_ne!(a.fingerprint(other), one);
    }
    assert_ne!(
        somebody(SuiteId::AesGcm, &B, None, &[]).fingerprint(&words),
        one
    );
}

#[test]
fn who_has_no_key_introduces_nobody() {
    fn does_nothing(seal: &mut impl Seal) {
        seal.meet(0, &public_key(&B));
        assert_eq!(seal.introduce(0), None);
        assert_eq!(seal.introduced(&[0; INTRODUCED_BYTES]), None);
        assert!(!seal.has_own_mark(b"packet", &[0; TAG_BYTES]));
        assert_eq!(seal.fingerprint(&[b"word"]), 0);
        seal.forget(0);
    }
    let job: Paired<_, Vec<Own>, Vec<Pair>> =
        Paired::new(AesGcm::with_slots(1), Vec::new(), vec![NO_PAIR]);
    does_nothing(&mut { job });
    does_nothing(&mut AesGcm::with_slots(1));
    does_nothing(&mut Null);
}
