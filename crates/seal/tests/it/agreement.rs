//! Secrets from public keys: `docs/protocol-vectors.txt`, which other
//! libraries computed, and what each side of a pair, and who stands between,
//! computes.

use std::collections::BTreeMap;

use portolan_seal::{
    AesGcm, NO_PAIR, Own, Pair, Paired, Seal, identity, mix_of, pair_secret, public_key,
};

/// The values of the file by name.
fn vectors() -> BTreeMap<&'static str, Vec<u8>> {
    let mut all: BTreeMap<_, Vec<u8>> = BTreeMap::new();
    let mut name = "";
    for line in include_str!("../../../../docs/protocol-vectors.txt").lines() {
        match line.strip_prefix("  ") {
            Some(hex) => all.entry(name).or_default().extend(
                (0..hex.len())
                    .step_by(2)
                    .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()),
            ),
            None => name = line,
        }
    }
    all
}

/// Checks P3.6, P3.7.
#[test]
fn pairs_agree_as_the_vectors_say() {
    let all = vectors();
    let get = |name: &str| &all[name][..];
    let key = |name: &str| -> [u8; 32] { get(name).try_into().unwrap() };
    let [a, b] = ["pair-private-a", "pair-private-b"].map(key);
    assert_eq!(public_key(&a), key("pair-public-a"));
    assert_eq!(public_key(&b), key("pair-public-b"));
    for (public, both) in [
        ("pair-public-a", "pair-id-and-life-a"),
        ("pair-public-b", "pair-id-and-life-b"),
    ] {
        let (id, life) = identity(&key(public));
        assert_eq!([id.to_le_bytes(), life.to_le_bytes()].concat(), get(both));
    }
    let mix = mix_of(get("pair-file"));
    assert_eq!(mix.as_bytes(), get("pair-mix"));
    for (private, public) in [(&a, "pair-public-b"), (&b, "pair-public-a")] {
        for (mix, secret) in [
            (None, "pair-secret"),
            (Some(mix.as_bytes()), "pair-secret-with-mix"),
        ] {
            let got = pair_secret(private, &key(public), mix).unwrap();
            assert_eq!(got.as_bytes(), get(secret));
        }
    }
}

const A: [u8; 32] = [1; 32];
const B: [u8; 32] = [2; 32];
/// Of one who can alter the exchange of public keys.
const MIDDLE: [u8; 32] = [3; 32];

#[test]
fn who_alters_the_exchange_is_kept_out_by_the_mix() {
    let mix = mix_of(b"what only members have, and no listener does");
    let mix = mix.as_bytes();
    let middle = public_key(&MIDDLE);
    // To A it was said that this is B's key.
    let of_a = |mix| pair_secret(&A, &middle, mix).unwrap();
    let of_middle = |mix| pair_secret(&MIDDLE, &public_key(&A), mix).unwrap();
    assert!(of_a(None) == of_middle(None), "so the file is needed");
    assert!(of_a(Some(mix)) != of_middle(None));
    let guess = mix_of(b"another file");
    assert!(of_a(Some(mix)) != of_middle(Some(guess.as_bytes())));
}

/// Checks P3.8.
#[test]
fn public_keys_of_small_order_give_nothing() {
    let mut one = [0; 32];
    one[0] = 1;
    assert!(pair_secret(&A, &[0; 32], None).is_none());
    assert!(pair_secret(&A, &one, None).is_none());
}

type Agreed = Paired<AesGcm, Vec<Own>, Vec<Pair>>;

fn seal_of(private: [u8; 32], peers: &[[u8; 32]]) -> Agreed {
    let pairs = vec![NO_PAIR; peers.len()];
    let own = vec![Own::new(&private, None)];
    let mut seal = Paired::new(AesGcm::with_slots(1), own, pairs);
    for (peer, public) in (0..).zip(peers) {
        seal.meet(peer, public);
    }
    seal
}

/// What `docs/protocol.md` derives keys for.
fn info(from: (u64, u64), to: (u64, u64)) -> Vec<u8> {
    let mut info = b"ptl1connaes-128-gcm".to_vec();
    info.resize(32, 0);
    for word in [from.0, from.1, to.0, to.1] {
        info.extend(word.to_le_bytes());
    }
    info
}

#[test]
fn each_pair_derives_from_its_own_secret() {
    let keys: Vec<[u8; 32]> = (10..40).map(|n| public_key(&[n; 32])).collect();
    let publics = [&keys[..], &[public_key(&A), public_key(&B)]].concat();
    let (mut a, mut b) = (seal_of(A, &publics), seal_of(B, &publics));
    // By numbers, which are each side's own.
    let (of_a, of_b) = (30, 31);
    let (me, they) = (identity(&public_key(&A)), identity(&public_key(&B)));
    let [mine, theirs] = [[8; 32], [9; 32]];
    let forth = info(me, they);
    let back = info(they, me);
    // Twice: agreed on first, then kept.
    for _ in 0..2 {
        assert!(a.derive_with(of_b, &mine, &forth) == b.derive_with(of_a, &theirs, &forth));
        assert!(a.derive_with(of_b, &mine, &back) == b.derive_with(of_a, &theirs, &back));
    }
    assert!(a.derive_with(of_b, &mine, &forth) != a.derive_with(of_b, &mine, &back));
    assert!(a.derive_with(of_b, &mine, &forth) != a.derive_with(0, &mine, &forth));
    let direct = pair_secret(&A, &public_key(&B), None).unwrap();
    let from = |secret: &[u8; 32]| AesGcm::with_slots(0).derive(secret, &forth);
    assert!(a.derive_with(of_b, &mine, &forth) == from(direct.as_bytes()));
    // Nobody has that number, or nobody is asked for: the secret of one's own.
    assert!(a.derive_with(32, &mine, &forth) == from(&mine));
    assert!(a.derive_with(u32::MAX, &mine, &forth) == from(&mine));
    assert!(a.derive(&mine, &forth) == from(&mine));
}

#[test]
fn a_number_may_be_another_peers_later() {
    let [one, other] = [21, 22].map(|n| public_key(&[n; 32]));
    let (mut a, mine) = (seal_of(A, &[one]), [8; 32]);
    let from = |secret: &[u8; 32]| AesGcm::with_slots(0).derive(secret, b"info");
    let of = |public| from(pair_secret(&A, public, None).unwrap().as_bytes());
    assert!(a.derive_with(0, &mine, b"info") == of(&one));
    a.meet(0, &other);
    assert!(a.derive_with(0, &mine, b"info") == of(&other));
    a.forget(0);
    assert!(a.derive_with(0, &mine, b"info") == from(&mine));
    // No secret with whom there can be none; and none that was another's before.
    a.meet(0, &[0; 32]);
    for _ in 0..2 {
        assert!(a.derive_with(0, &mine, b"info") == from(&mine));
    }
    a.meet(0, &one);
    assert!(a.derive_with(0, &mine, b"info") == of(&one));
}

#[test]
fn without_an_own_key_the_jobs_secret_rules() {
    let mut plain: Agreed = Paired::new(AesGcm::with_slots(1), Vec::new(), Vec::new());
    plain.meet(0, &public_key(&B));
    let info = info((1, 2), (3, 4));
    assert!(plain.derive_with(0, &A, &info) == AesGcm::with_slots(1).derive(&A, &info));
}
