//! BSPlib in Rust: prefix sums. Each process has a block of the numbers from 1 to N, and
//! makes of each number the sum of all up to it.
//!
//! `portolan run -n 4 -- target/release/examples/bsp-sum [N]`

use bsp::Bsp;

fn spmd(bsp: &mut Bsp, count: u64) {
    let (p, me) = (u64::from(bsp.nprocs()), u64::from(bsp.pid()));
    let first = |process: u64| count * process / p;
    let mut sums: Vec<u64> = (first(me) + 1..=first(me + 1)).collect();
    for i in 1..sums.len() {
        sums[i] += sums[i - 1];
    }

    // All get to know the sum of each block.
    let blocks = bsp.push_reg::<u64>(p as usize);
    bsp.sync();
    let own = sums.last().copied().unwrap_or(0);
    for to in 0..bsp.nprocs() {
        bsp.put(to, &[own], blocks, me as usize);
    }
    bsp.sync();
    let before: u64 = bsp[blocks][..me as usize].iter().sum();
    sums.iter_mut().for_each(|sum| *sum += before);
    bsp.pop_reg(blocks);

    // The first sees whether all are right: the tag says where a block begins.
    bsp.set_tagsize(size_of::<u64>());
    bsp.sync();
    bsp.send(0, &first(me), &sums);
    bsp.sync();
    let mut right = 0;
    while let Some((start, sums)) = bsp.hpmove::<u64, u64>() {
        for (n, &sum) in (start + 1..).zip(sums) {
            if sum != n * (n + 1) / 2 {
                bsp.abort(&format!("the sum up to {n} is {sum}"));
            }
            right += 1;
        }
    }
    if bsp.pid() == 0 && right != count {
        bsp.abort(&format!("{right} sums have come, not {count}"));
    }
    if bsp.pid() == 0 {
        println!(
            "{count} sums in {p} processes, in {:.3} ms",
            bsp.time() * 1e3
        );
    }
}

fn main() {
    let count = match std::env::args().nth(1) {
        None => 1000,
        Some(n) => match n.parse::<u64>() {
            Ok(count @ 1..=100_000_000) => count,
            _ => {
                eprintln!("{n}: give a number from 1 to 100000000\nusage: bsp-sum [N]");
                std::process::exit(2);
            }
        },
    };
    bsp::run(bsp::nprocs(), |bsp| spmd(bsp, count));
}
