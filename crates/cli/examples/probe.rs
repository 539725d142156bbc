//! A rank for the tests of `portolan run`, mostly without an engine.

use std::env;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use portolan::{Binding, Config, Endpoint};
use portolan_boot::{GaveUp, Job, Notice};
use portolan_wire::{Address, EndpointId, Life};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, getpid, kill_process};

fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["table"] => table(),
        ["secret"] => secret(),
        ["betray"] => betray(),
        ["talk"] => talk(),
        ["wait"] => wait(),
        ["die", rank, how] => die(rank.parse().unwrap(), how),
        ["large"] => large(),
        ["leave", rank, code] => leave(rank.parse().unwrap(), code.parse().unwrap()),
        ["spoilt"] => spoilt(),
        ["abort", code] => abort(code.parse().unwrap()),
        ["skip", rank] => skip(rank.parse().unwrap()),
        ["twice"] => twice(),
        ["other-version"] => other_version(),
        ["lines", count] => lines(count.parse().unwrap()),
        ["hear", address] => hear(address),
        ["say", address, count] => say(address, count.parse().unwrap()),
        _ => panic!("unknown: {words:?}"),
    }
}

fn attach() -> Job {
    Job::attach().unwrap_or_else(|error| {
        eprintln!("{error}");
        exit(1)
    })
}

/// An address that tells its rank.
fn address(rank: u32) -> [u8; 64] {
    let mut bytes = [0xa5; 64];
    bytes[..4].copy_from_slice(&rank.to_le_bytes());
    bytes
}

fn join(job: &mut Job) {
    let table = job.exchange(address(job.rank)).unwrap_or_else(|error| {
        println!("not joined: {error}");
        exit(1)
    });
    assert_eq!(table.len(), job.size as usize);
    for (rank, peer) in (0..).zip(&table) {
        assert_eq!(peer.address, address(rank));
    }
    let own = table[job.rank as usize];
    assert_eq!(own.pid, std::process::id());
    assert_eq!(
        (own.host_index, own.local_index),
        (job.host_index, job.local_index)
    );
}

fn table() {
    let mut job = attach();
    join(&mut job);
    println!(
        "rank {} of {} host {} of {} local {} of {:?} core {:?} segment {} doorbells {}",
        job.rank,
        job.size,
        job.host_index,
        job.hosts,
        job.local_index,
        job.local_ranks,
        job.core,
        job.segment.is_some(),
        job.doorbells.len()
    );
    println!(
        "name {}",
        rustix::system::uname().nodename().to_string_lossy()
    );
    println!("settings {:?}", job.settings);
    job.leave();
}

fn secret() {
    let mut job = attach();
    join(&mut job);
    tell_secret(&mut job);
    wait_for_abort(&mut job);
}

fn tell_secret(job: &mut Job) {
    let secret = job.take_secret().unwrap();
    let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("secret {hex} life {:x}", job.life);
}

/// Tells the job's secret, to the others a peer that says nothing.
fn betray() {
    let mut job = attach();
    let address = Address {
        port: 9,
        ip: Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets(),
        id: EndpointId(u64::from(job.rank) + 1),
        life: Life(job.life),
        host: 0,
    };
    job.exchange(address.to_bytes()).unwrap();
    tell_secret(&mut job);
    wait_for_abort(&mut job);
}

/// Ranks 1 and 2 talk to each other, and wait for their end.
fn talk() {
    let ep = Endpoint::open(Config::default()).unwrap();
    let heard = Arc::new(AtomicBool::new(false));
    let hears = Arc::clone(&heard);
    ep.bind(1, Binding::to(move |_, _| hears.store(true, Relaxed)))
        .unwrap();
    ep.send(3 - ep.rank(), 1, b"ahoy").unwrap();
    ep.wait_until(|| heard.load(Relaxed)).unwrap();
    println!("process {} talked", std::process::id());
    io::stdout().flush().unwrap();
    loop {
        std::thread::park();
    }
}

fn wait_for_abort(job: &mut Job) {
    io::stdout().flush().unwrap();
    while let Some(fd) = job.control_fd() {
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], None).unwrap();
        while let Some(notice) = job.poll_notice() {
            match notice {
                Notice::Died { rank, how } => println!("died: rank {rank}, {how}"),
                Notice::Left { rank } => println!("left: rank {rank}"),
                Notice::Back { rank, peer } => {
                    println!("back: rank {rank}, host {}", peer.host_index);
                }
                Notice::GivenUp { by } => println!("given up by rank {by}"),
                Notice::Doubted { ranks } => println!("doubted: ranks {ranks:?}"),
                Notice::Stopped { rank } => println!("stopped: rank {rank}"),
                Notice::Abort(why) => {
                    println!("abort: {why}");
                    return;
                }
            }
        }
    }
}

fn wait() {
    let mut job = attach();
    join(&mut job);
    println!("waiting");
    wait_for_abort(&mut job);
}

fn die(who: u32, how: &str) {
    let mut job = attach();
    join(&mut job);
    if job.rank == who {
        match how {
            "abort" => std::process::abort(),
            code => exit(code.parse().unwrap()),
        }
    }
    wait_for_abort(&mut job);
}

/// The last rank is killed, with so much memory that the kernel needs a while; the others fail
/// as soon as they are told.
fn large() {
    let ep = Endpoint::open(Config::default()).unwrap();
    if ep.rank() + 1 == ep.size() {
        let memory = vec![1_u8; 400 << 20];
        std::hint::black_box(&memory);
        kill_process(getpid(), Signal::KILL).unwrap();
    }
    ep.barrier().unwrap_err();
    ep.close().unwrap();
    exit(1)
}

/// Rank `who` leaves in good order, and ends with `code`; the others end once they are told.
fn leave(who: u32, code: i32) {
    let mut job = attach();
    join(&mut job);
    if job.rank != who {
        loop {
            match job.poll_notice() {
                Some(Notice::Left { rank }) => break println!("left: rank {rank}"),
                Some(other) => panic!("{other:?}"),
                None => {}
            }
            let fd = job.control_fd().unwrap();
            poll(&mut [PollFd::new(&fd, PollFlags::IN)], None).unwrap();
        }
    }
    job.leave();
    if job.rank == who {
        exit(code);
    }
}

/// Two ranks say that what they share makes no sense; each ends once it has
/// heard so of the other.
fn spoilt() {
    let mut job = attach();
    join(&mut job);
    job.give_up(1 - job.rank, 0, GaveUp::Corrupt);
    while !matches!(job.poll_notice(), Some(Notice::GivenUp { .. })) {
        let fd = job.control_fd().unwrap();
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], None).unwrap();
    }
    job.leave();
}

fn abort(code: u8) {
    let mut job = attach();
    join(&mut job);
    if job.rank == 0 {
        job.abort(code);
    }
    wait_for_abort(&mut job);
}

/// Rank `who` ends in good order, but without joining.
fn skip(who: u32) {
    let mut job = attach();
    if job.rank != who {
        join(&mut job);
    }
}

fn twice() {
    let _job = attach();
    match Job::attach() {
        Ok(_) => panic!("attached twice"),
        Err(error) => println!("second: {error}"),
    }
}

fn other_version() {
    let variable = env::var(portolan_boot::JOB_VARIABLE).unwrap();
    let number = variable.strip_prefix("fd:").unwrap().parse().unwrap();
    let socket = portolan_sys::inherit::adopt_inherited(number).unwrap();
    let hello =
        br#"J{"Hello":{"versions":{"portolan":"9.8.7","boot":1,"wire":1},"pid":1,"more":true}}"#;
    rustix::io::write(&socket, hello).unwrap();
    let mut answer = [0; 4096];
    let n = rustix::io::read(&socket, &mut answer).unwrap();
    println!("{}", String::from_utf8_lossy(&answer[..n]));
}

/// Lines written in pieces, so that whoever mixes ranks mixes within lines.
fn lines(count: u32) {
    let job = attach();
    let mut out = io::stdout().lock();
    for n in 0..count {
        for piece in [
            format!("rank {} ", job.rank),
            format!("line {n}"),
            "\n".to_owned(),
        ] {
            rustix::io::write(&out, piece.as_bytes()).unwrap();
        }
    }
    out.flush().unwrap();
}

fn hear(address: &str) {
    let socket = UdpSocket::bind((address, 7777)).unwrap();
    println!("bound");
    io::stdout().flush().unwrap();
    std::thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        exit(0);
    });
    // Each is answered: an answer, too, may be lost.
    let mut bytes = [0; 64];
    loop {
        let (n, from) = socket.recv_from(&mut bytes).unwrap();
        let _ = socket.send_to(&bytes[..n], from);
    }
}

fn say(address: &str, count: u32) {
    let any = if address.contains(':') {
        "[::]:0"
    } else {
        "0.0.0.0:0"
    };
    let socket = UdpSocket::bind(any).unwrap();
    let say = || {
        // The answer to the last one, "nobody listens", is an error of this.
        let _ = socket.send_to(b"hello", (address, 7777));
    };
    if count > 1 {
        (0..count).for_each(|_| say());
        return;
    }
    // One datagram may be lost, as when an address is being resolved.
    socket
        .set_read_timeout(Some(Duration::from_millis(250)))
        .unwrap();
    let mut bytes = [0; 64];
    for _ in 0..20 {
        say();
        if let Ok(n) = socket.recv(&mut bytes) {
            println!("answer {}", String::from_utf8_lossy(&bytes[..n]));
            return;
        }
    }
    panic!("no answer from {address}");
}
