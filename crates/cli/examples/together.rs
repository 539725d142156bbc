//! A rank for tests of cut networks. For so many seconds, or until the file of
//! that path is there, all who live meet in barriers, and each tells all others
//! where it is; with `death` until one is dead or has left, with `dead=N` until N
//! are dead; with `silence` who does not hear one leaves at once. It says at its
//! end whom it knows to be dead, and how long its longest call took.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use portolan::{Binding, Config, Death, Endpoint, Group, SendOptions};

fn main() {
    let until = std::env::args().nth(1).unwrap();
    let ep = Endpoint::open(Config::default()).unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(1)
    });
    let heard = Arc::new(AtomicU64::new(0));
    let log = Arc::clone(&heard);
    let count = Binding::to(move |_, _| _ = log.fetch_add(1, Ordering::Relaxed));
    ep.bind(1, count).unwrap();
    // Everybody has heard of everybody before anything is cut.
    ep.barrier().unwrap();
    for rank in 0..ep.size() {
        ep.send(rank, 1, b"").unwrap();
    }
    let all = u64::from(ep.size());
    ep.wait_until(|| heard.load(Ordering::Relaxed) >= all)
        .unwrap();
    ep.barrier().unwrap();
    println!("all are here");
    let (start, mut longest) = (Instant::now(), Duration::ZERO);
    let lives = |rank: &u32| ep.death(*rank).unwrap().is_none();
    let living = || (0..ep.size()).filter(lives).collect::<Vec<_>>();
    let (mut met, mut last) = (0, Instant::now());
    let is_silent = |rank: u32| ep.death(rank).unwrap() == Some(Death::Silent);
    // Those that came to their end earlier have closed.
    let is_dead = |rank: &u32| !matches!(ep.death(*rank).unwrap(), None | Some(Death::Closed));
    let dead = || (0..ep.size()).filter(is_dead).collect::<Vec<_>>();
    let goes_on = || match until.as_str() {
        "death" => living().len() == ep.size() as usize,
        "silence" => !(0..ep.size()).any(is_silent),
        file if file.starts_with('/') => !Path::new(file).exists(),
        count if count.starts_with("dead=") => dead().len() < count[5..].parse().unwrap(),
        seconds => start.elapsed() < Duration::from_secs(seconds.parse().unwrap()),
    };
    while goes_on() {
        let ranks = living();
        let began = Instant::now();
        let done = ep.barrier_of(&Group::new(&ranks));
        longest = longest.max(began.elapsed());
        if done.is_ok() {
            (met, last) = (met + 1, Instant::now());
        }
        let began = Instant::now();
        let _ = ep.broadcast(&ranks, 1, &SendOptions::default(), b"here");
        longest = longest.max(began.elapsed());
        std::thread::sleep(Duration::from_millis(20));
    }
    let (longest, since) = (longest.as_millis(), last.elapsed().as_millis());
    println!(
        "rank {} knows dead {:?}, met {met}, last {since} ms ago, longest {longest}",
        ep.rank(),
        dead()
    );
    if until != "silence" {
        // Not before all that live have said so.
        let _ = ep.barrier_of(&Group::new(&living()));
    }
    let _ = ep.close();
}
