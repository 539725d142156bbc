//! Keys of regions are nothing that others can compute.

use std::collections::BTreeSet;

use crate::common::Pieces;
use portolan_exchange::{Config, Exchange, Rights};

/// Key and salt of a thousand regions.
fn keys(config: Config) -> Vec<[u64; 2]> {
    let mut x: Exchange<Pieces, Pieces> = Exchange::new(config);
    let mut one = || {
        let id = x.register(Pieces::default(), None, Rights::Get).unwrap();
        let bytes = x.remote_key(id).unwrap().to_bytes();
        let (key, salt) = bytes.split_at(8);
        [key, salt].map(|word| u64::from_le_bytes(word.try_into().unwrap()))
    };
    (0..1_000).map(|_| one()).collect()
}

/// Checks P13.11.
#[test]
fn other_secrets_and_other_numbers_draw_other_keys() {
    let config = Config {
        secret: [5, 6],
        region_secret: [7; 32],
        ..Config::default()
    };
    let mut other = config;
    other.region_secret[31] = 8;
    let number = Config {
        number: 1,
        ..config
    };
    let all: BTreeSet<u64> = [config, other, number]
        .into_iter()
        .flat_map(keys)
        .flatten()
        .collect();
    assert_eq!(all.len(), 3 * 2 * 1_000);
    let half = all.iter().filter(|word| *word >> 63 == 1).count();
    assert!((2_700..3_300).contains(&half), "{half} of 6,000");
}

/// The mixing step of `SplitMix64`, and its inverse.
fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn unmixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 31) ^ (z >> 62)).wrapping_mul(0x3196_42b2_d24d_8ec3);
    z = (z ^ (z >> 27) ^ (z >> 54)).wrapping_mul(0x96de_1b17_3f11_9089);
    z ^ (z >> 30) ^ (z >> 60)
}

/// Checks P13.11.
#[test]
fn a_thousand_keys_do_not_lead_to_the_next() {
    assert_eq!(unmixed(mixed(0x0123_4567_89ab_cdef)), 0x0123_4567_89ab_cdef);
    let keys = keys(Config {
        region_secret: [7; 32],
        ..Config::default()
    });
    // A step from one counter to the next, of each word that was told or its complement.
    let guesses: BTreeSet<u64> = keys
        .iter()
        .flatten()
        .flat_map(|word| [*word, !word])
        .flat_map(|word| (1..=2).map(move |step| mixed(unmixed(word).wrapping_add(step))))
        .collect();
    for word in keys.iter().flatten() {
        assert!(!guesses.contains(word) && !guesses.contains(&!word));
    }
    // Nor does a key tell the salt of its own region.
    assert!(keys.iter().all(|[key, salt]| *key != !salt && key != salt));
}
