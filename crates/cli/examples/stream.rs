//! A job for soaks: rank 0 sends rank 1 long messages, one after the other, until
//! the job is ended. Rank 1 says each second how many megabytes have come.
//!
//! `portolan run -n 2 -- stream`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use portolan::{Binding, Config, Endpoint};

fn main() {
    let ep = Endpoint::open(Config::default()).unwrap();
    let came = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&came);
    let add = Binding::to(move |_, m| _ = count.fetch_add(m.payload.len() as u64, Relaxed));
    ep.bind(1, add).unwrap();
    ep.barrier().unwrap();
    let message = vec![7; 1 << 20];
    while ep.rank() == 0 {
        ep.send(1, 1, &message).unwrap();
    }
    loop {
        let (start, before) = (Instant::now(), came.load(Relaxed));
        // It only ever times out.
        let _ = ep.wait_timeout(Duration::from_secs(1), || false);
        let bytes = (came.load(Relaxed) - before) as f64;
        println!("{:.0} MB/s", bytes / start.elapsed().as_secs_f64() / 1e6);
    }
}
