//! A job for tests: all send a message to port 7 of the last rank, which binds
//! port 8 only; it goes on until a file is there.
//!
//! `portolan run -n 2 -- unbound FILE`

use std::path::Path;
use std::time::Duration;

use portolan::{Binding, Config, Endpoint};

fn main() {
    let file = std::env::args().nth(1).expect("which file ends it");
    let ep = Endpoint::open(Config::default()).unwrap();
    ep.bind(8, Binding::to(|_, _| ())).unwrap();
    let last = ep.size() - 1;
    ep.send(last, 7, b"lost").unwrap();
    ep.send(last, 8, b"taken").unwrap();
    ep.barrier().unwrap();
    println!("all is sent");
    while !Path::new(&file).exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    ep.close().unwrap();
}
