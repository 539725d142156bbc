//! Secrets from public keys: `docs/protocol-vectors.txt`, which other
//! libraries computed, and what each side of a pair, and who stands between,
//! computes.

use std::collections::BTreeMap;

use portolan_seal::{AesGcm, Own, Pair, Paired, Seal, identity, mix_of, pair_secret, public_key};

/// The values of the file by name.
fn vectors() -> BTreeMap<&'static str, Vec<u8>> {
    let mut all: BTreeMap<_, Vec<u8>> = BTreeMap::new();
    let mut name = "";
    for line in include_str!("../../../docs/protocol-vectors.txt").lines() {
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

#[test]
fn public_keys_of_small_order_give_nothing() {
    let mut one = [0; 32];
    one[0] = 1;
    assert!(pair_secret(&A, &[0; 32], None).is_none());
    assert!(pair_secret(&A, &one, None).is_none());
}

type Agreed = Paired<AesGcm, Vec<Own>, Vec<Pair>>;

fn seal_of(private: [u8; 32], peers: &[[u8; 32]]) -> Agreed {
    Paired::new(
        AesGcm::with_slots(1),
        vec![Own::new(&private, None)],
        peers.iter().map(Pair::with).collect(),
    )
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
    let (a, b) = (seal_of(A, &publics), seal_of(B, &publics));
    let (me, they) = (identity(&public_key(&A)), identity(&public_key(&B)));
    let [mine, theirs] = [[8; 32], [9; 32]];
    let forth = info(me, they);
    let back = info(they, me);
    // Twice: agreed on first, then kept.
    for _ in 0..2 {
        assert!(a.derive(&mine, &forth) == b.derive(&theirs, &forth));
        assert!(a.derive(&mine, &back) == b.derive(&theirs, &back));
    }
    assert!(a.derive(&mine, &forth) != a.derive(&mine, &back));
    let direct = pair_secret(&A, &public_key(&B), None).unwrap();
    assert!(a.derive(&mine, &forth) == AesGcm::with_slots(0).derive(direct.as_bytes(), &forth));
    // Another life, another's pair, oneself, nobody: the secret of one's own.
    let others = identity(&keys[0]);
    for info in [
        info(me, (they.0, they.1 ^ 1)),
        info((me.0, me.1 ^ 1), they),
        info(others, they),
        info(me, me),
        info(me, (5, 6)),
        forth[..60].to_vec(),
    ] {
        assert!(a.derive(&mine, &info) == AesGcm::with_slots(0).derive(&mine, &info));
    }
}

#[test]
fn without_an_own_key_the_jobs_secret_rules() {
    let plain: Agreed = Paired::new(AesGcm::with_slots(1), Vec::new(), Vec::new());
    let info = info((1, 2), (3, 4));
    assert!(plain.derive(&A, &info) == AesGcm::with_slots(1).derive(&A, &info));
}
