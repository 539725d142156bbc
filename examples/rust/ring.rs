//! A token goes round all ranks; each adds its number to it.
//!
//! `portolan run -n 4 -- target/release/examples/ring [ROUNDS]`

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use portolan::{Binding, Config, Endpoint, SendOptions};

const TOKEN: u16 = 1;

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let rounds = match std::env::args().nth(1) {
        None => 1000,
        Some(n) => n
            .parse::<u64>()
            .map_err(|_| format!("not a number of rounds: {n}"))?,
    };
    let ep = Endpoint::open(Config::default())?;
    let (rank, size) = (ep.rank(), ep.size());
    let token = Arc::new(AtomicU64::new(0));
    let seen = Arc::new(AtomicU64::new(0));
    {
        let (token, seen) = (token.clone(), seen.clone());
        ep.bind(
            TOKEN,
            Binding::to(move |_, m| {
                token.store(m.arg(0), Ordering::Relaxed);
                seen.fetch_add(1, Ordering::Relaxed);
            }),
        )?;
    }
    ep.barrier()?;
    let next = (rank + 1) % size;
    let pass = |value: u64| {
        ep.send_with(
            next,
            TOKEN,
            &SendOptions {
                args: &[value],
                ..Default::default()
            },
            &[],
        )
    };
    let arrived = Cell::new(0);
    let await_token = || {
        ep.wait_until(|| seen.load(Ordering::Relaxed) > arrived.get())?;
        arrived.set(arrived.get() + 1);
        Ok::<u64, Box<dyn std::error::Error>>(token.load(Ordering::Relaxed))
    };
    let start = Instant::now();
    for round in 0..rounds {
        if rank == 0 {
            let sum = if round == 0 {
                0
            } else {
                token.load(Ordering::Relaxed)
            };
            pass(sum)?;
            await_token()?;
        } else {
            let sum = await_token()?;
            pass(sum + u64::from(rank))?;
        }
    }
    if rank == 0 {
        let took = start.elapsed();
        let expected = rounds * (u64::from(size) * u64::from(size - 1) / 2);
        let sum = token.load(Ordering::Relaxed);
        if sum != expected {
            return Err(format!("the token says {sum}, not {expected}").into());
        }
        let hop = took.as_secs_f64() * 1e6 / (rounds * u64::from(size)) as f64;
        println!("{rounds} rounds over {size} ranks: {hop:.2} us a hop, the sum is right: {sum}");
    }
    ep.barrier()?;
    ep.close()?;
    Ok(())
}

fn main() {
    if let Err(e) = run() {
        // In one write: ranks may share standard error.
        let line = format!("ring: {e}\n");
        eprint!("{line}");
        std::process::exit(1);
    }
}
