//! A job for tests that do something to it while it runs: a token goes round
//! all ranks, each of which adds its number, until a file is there.
//!
//! `portolan run -n 2 -- round FILE`

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use portolan::{Binding, Config, Endpoint, SendOptions};

const TOKEN: u16 = 1;
/// Said instead of 0 with a token that is the last.
const LAST: u64 = 1;

fn main() {
    let file = std::env::args().nth(1).expect("which file ends it");
    let ep = Endpoint::open(Config::default()).unwrap();
    let (rank, size) = (u64::from(ep.rank()), u64::from(ep.size()));
    let (came, token) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new([0; 2])));
    let (count, keep) = (Arc::clone(&came), Arc::clone(&token));
    let take = Binding::to(move |_, m| {
        *keep.lock().unwrap() = [m.arg(0), m.arg(1)];
        count.fetch_add(1, Relaxed);
    });
    ep.bind(TOKEN, take).unwrap();
    ep.barrier().unwrap();
    let pass = |args: [u64; 2]| {
        let options = SendOptions {
            args: &args,
            ..SendOptions::default()
        };
        let next = (ep.rank() + 1) % ep.size();
        ep.send_with(next, TOKEN, &options, &[]).unwrap();
    };
    let (mut sum, mut rounds, mut last) = (0, 0, 0);
    while last != LAST {
        if rank == 0 {
            last = u64::from(Path::new(&file).exists());
            pass([sum, last]);
        }
        rounds += 1;
        ep.wait_until(|| came.load(Relaxed) == rounds).unwrap();
        let [so_far, is_last] = *token.lock().unwrap();
        (sum, last) = (so_far, is_last);
        if rank != 0 {
            pass([sum + rank, last]);
        }
    }
    if rank == 0 {
        assert_eq!(sum, rounds * (size * (size - 1) / 2));
        println!("{rounds} rounds: the sum is right");
    }
    ep.barrier().unwrap();
    ep.close().unwrap();
}
