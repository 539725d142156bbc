//! Endpoints whose peers come and go: random steps, most of them such as bring that about.

use portolan_properties::peers_input;
use portolan_sim::rng::Rng;

const SEEDS: u64 = 8_000;

/// Steps that change peers, forge introductions and challenges, pass packets on, let time
/// pass, or send; of either endpoint.
const STEPS: [u8; 10] = [0x5f, 0x5f, 0x6f, 0x7f, 14, 14, 1, 0x11, 5, 6];

#[test]
fn peers_come_and_go() {
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed);
        let mut bytes = vec![rng.word() as u8];
        for _ in 0..rng.word() % 200 {
            let word = rng.word();
            let step = match word & 3 {
                0 => (word >> 8) as u8,
                _ => STEPS[(word >> 8) as usize % STEPS.len()] | (word >> 32) as u8 & 0x80,
            };
            bytes.extend([step, (word >> 40) as u8]);
            if word & 0x30 == 0 {
                bytes.push((word >> 48) as u8);
            }
        }
        let run = std::panic::catch_unwind(|| peers_input(&bytes));
        assert!(run.is_ok(), "seed {seed}: {bytes:02x?}");
    }
}
