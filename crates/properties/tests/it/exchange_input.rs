//! An exchange between peers that say what they like: random runs.

use portolan_properties::exchange_input;
use portolan_sim::rng::Rng;

const SEEDS: u64 = 6_000;

/// The shortest come first, so that what fails first is short.
#[test]
fn random_peers_do_no_harm() {
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed);
        let bytes: Vec<u8> = (0..30 + seed / 8).map(|_| rng.word() as u8).collect();
        exchange_input(&bytes);
    }
}
