//! Measures the shm link beside its floors, two processes pinned to cores 0
//! and 1: `cargo run --release -p portolan-link --example shm_measure`.
//! For tuning; `portolan bench` is what claims are made with.

use std::os::fd::AsRawFd;
use std::process::Command;

use portolan_link::shm::floor::{Bounce, Copy, Ring, Side};
use portolan_link::shm::{Segment, SegmentConfig, ShmPort, lines_of};
use portolan_ring::Line;
use portolan_sys::clock::now_ns;
use portolan_sys::inherit::adopt_inherited;
use portolan_sys::memory::SharedMemory;
use portolan_sys::shared_doorbell::SharedDoorbells;
use portolan_wire::Priority::{Reply, Request};

const CHILD: &str = "PORTOLAN_MEASURE_CHILD";
const SLICES: usize = 101;
const PINGS: u64 = 1_000;
const WORDS: u64 = 5_000;
const COPIES: [(usize, usize); 6] = [
    (4 << 10, 256 << 10),
    (16 << 10, 256 << 10),
    (16 << 10, 1 << 20),
    (64 << 10, 256 << 10),
    (64 << 10, 1 << 20),
    (64 << 10, 4 << 20),
];
const SIZES: [usize; 4] = [64 << 10, 256 << 10, 1 << 20, 4 << 20];

fn copy_lines() -> usize {
    COPIES.iter().map(|c| Copy::lines(c.1)).sum()
}

fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set).unwrap();
}

/// Bytes moved by one measurement of a message size.
fn repeats(bytes: usize) -> usize {
    ((4 << 20) / bytes).max(2)
}

fn take_one(port: &mut ShmPort, mut f: impl FnMut(&[u8])) {
    let mut got = false;
    while !got {
        port.poll(1, |_, _, bytes| {
            f(bytes);
            got = true;
            true
        })
        .unwrap();
    }
}

fn put(port: &mut ShmPort, to: u16, bytes: &[u8]) {
    loop {
        if let Ok(mut slot) = port.reserve(to, if to == 1 { Request } else { Reply }, bytes.len()) {
            slot.bytes_mut().copy_from_slice(bytes);
            slot.commit();
            return;
        }
    }
}

fn put_lean(port: &mut ShmPort, value: u64) {
    let mut slot = port.reserve(1, Request, 8).unwrap();
    slot.bytes_mut().copy_from_slice(&value.to_le_bytes());
    slot.commit();
}

fn words(port: &mut ShmPort) -> [u64; 2] {
    let mut out = [0; 2];
    take_one(port, |b| {
        out = [0, 8].map(|at| u64::from_le_bytes(b[at..at + 8].try_into().unwrap()));
    });
    out
}

fn put_words(port: &mut ShmPort, to: u16, words: [u64; 2]) {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&words[0].to_le_bytes());
    bytes[8..].copy_from_slice(&words[1].to_le_bytes());
    put(port, to, &bytes);
}

/// Sends `from` as frames with a header of 12 bytes.
fn put_frames(port: &mut ShmPort, to: u16, from: &[u8]) {
    let payload = port.frame_bytes_max() / 64 * 64 - 64;
    for piece in from.chunks(payload) {
        loop {
            if let Ok(mut slot) = port.reserve(to, Request, piece.len() + 12) {
                slot.bytes_mut()[12..].copy_from_slice(piece);
                slot.commit();
                break;
            }
        }
    }
}

fn take_frames(port: &mut ShmPort, into: &mut [u8]) {
    let mut at = 0;
    while at < into.len() {
        port.poll_frames(8, |_, _, frame| {
            if at == into.len() {
                return false;
            }
            let end = at + frame.len() - 12;
            frame.copy_to(12, &mut into[at..end]);
            at = end;
            true
        })
        .unwrap();
    }
}

struct Stats(String, Vec<f64>);

fn note(stats: &mut Vec<Stats>, name: String, value: f64) {
    match stats.iter_mut().find(|s| s.0 == name) {
        Some(s) => s.1.push(value),
        None => stats.push(Stats(name, vec![value])),
    }
}

fn first(mut port: ShmPort, lines: &[Line]) {
    let (a, rest) = lines.split_at(Bounce::LINES);
    let (b, mut rest) = rest.split_at(Ring::LINES);
    let mut bounce = Bounce::new(a);
    let mut ring = Ring::new(b, Side::First);
    let mut copies: Vec<_> = COPIES
        .iter()
        .map(|&(chunk, size)| {
            let (mine, others) = rest.split_at(Copy::lines(size));
            rest = others;
            Copy::new(mine, chunk, size)
        })
        .collect();
    let mut stats = Vec::new();
    let mut target = vec![1u8; 4 << 20];
    // The way up to the pair ring.
    for _ in 0..100 {
        put(&mut port, 1, &[0; 8]);
        take_one(&mut port, |_| ());
    }
    for _ in 0..SLICES {
        let t = now_ns();
        bounce.ping(PINGS);
        note(
            &mut stats,
            "bounce ns".into(),
            (now_ns() - t) as f64 / PINGS as f64 / 2.0,
        );
        bounce.stop();
        let t = now_ns();
        ring.ping(PINGS);
        note(
            &mut stats,
            "ring ns".into(),
            (now_ns() - t) as f64 / PINGS as f64 / 2.0,
        );
        ring.stop();
        let t = now_ns();
        for i in 0..PINGS {
            put_lean(&mut port, i);
            while port
                .poll_frames(1, |_, _, f| f.head()[0] == i as u8)
                .unwrap()
                == 0
            {}
        }
        let ns = (now_ns() - t) as f64 / PINGS as f64 / 2.0;
        note(&mut stats, "port lean ns".into(), ns);
        for bytes in [8, 28, 56, 200] {
            let frame = vec![0; bytes];
            let t = now_ns();
            for _ in 0..PINGS {
                put(&mut port, 1, &frame);
                take_one(&mut port, |_| ());
            }
            let ns = (now_ns() - t) as f64 / PINGS as f64 / 2.0;
            note(&mut stats, format!("port {bytes} ns"), ns);
        }
        for bytes in [8, 28] {
            let frame = vec![0; bytes];
            let t = now_ns();
            for _ in 0..WORDS {
                put(&mut port, 1, &frame);
            }
            take_one(&mut port, |_| ());
            let ns = (now_ns() - t) as f64 / WORDS as f64;
            note(&mut stats, format!("port rate {bytes} M/s"), 1e3 / ns);
        }
        for bytes in SIZES {
            let total = (repeats(bytes) * bytes) as f64;
            // The other side sends; this one fills `target`.
            for (copy, (chunk, size)) in copies.iter_mut().zip(COPIES) {
                put(&mut port, 1, &[0; 8]);
                let t = now_ns();
                for _ in 0..repeats(bytes) {
                    assert!(copy.receive(&mut target[..bytes]));
                }
                let name = format!(
                    "{:>4} KiB copy {}K/{}K GB/s",
                    bytes >> 10,
                    chunk >> 10,
                    size >> 10
                );
                note(&mut stats, name, total / (now_ns() - t) as f64);
            }
            put(&mut port, 1, &[0; 8]);
            let t = now_ns();
            for _ in 0..repeats(bytes) {
                take_frames(&mut port, &mut target[..bytes]);
            }
            let name = format!("{:>4} KiB frames GB/s", bytes >> 10);
            note(&mut stats, name, total / (now_ns() - t) as f64);
            if !port.can_copy(1) {
                continue;
            }
            let t = now_ns();
            for _ in 0..repeats(bytes) {
                put_words(&mut port, 1, [0, 0]);
                let [at, len] = words(&mut port);
                port.copy_from_peer(1, at, &mut target[..len as usize])
                    .unwrap();
            }
            let name = format!("{:>4} KiB cma GB/s", bytes >> 10);
            note(&mut stats, name, total / (now_ns() - t) as f64);
            let t = now_ns();
            for _ in 0..repeats(bytes) {
                put_words(&mut port, 1, [target.as_ptr() as u64, 0]);
                let [at, len] = words(&mut port);
                port.copy_from_peer(1, at, &mut target[..len as usize / 2])
                    .unwrap();
                words(&mut port);
            }
            let name = format!("{:>4} KiB cma by both GB/s", bytes >> 10);
            note(&mut stats, name, total / (now_ns() - t) as f64);
        }
    }
    put(&mut port, 1, &[0]);
    for Stats(name, mut values) in stats {
        values.sort_by(f64::total_cmp);
        let q = |k: usize| values[values.len() * k / 4];
        let (least, most) = (values[0], values[values.len() - 1]);
        let (low, mid, high) = (q(1), q(2), q(3));
        println!("{name:<36} {mid:8.2}  ({low:.2} .. {high:.2}; {least:.2} .. {most:.2})");
    }
}

fn second(mut port: ShmPort, lines: &[Line]) {
    let (a, rest) = lines.split_at(Bounce::LINES);
    let (b, mut rest) = rest.split_at(Ring::LINES);
    let mut bounce = Bounce::new(a);
    let mut ring = Ring::new(b, Side::Second);
    let mut copies: Vec<_> = COPIES
        .iter()
        .map(|&(chunk, size)| {
            let (mine, others) = rest.split_at(Copy::lines(size));
            rest = others;
            Copy::new(mine, chunk, size)
        })
        .collect();
    let source = vec![2u8; 4 << 20];
    let mut echo = Vec::new();
    let mut answer = |port: &mut ShmPort| {
        take_one(port, |b| {
            echo.clear();
            echo.extend_from_slice(b);
        });
        put(port, 0, &echo);
    };
    for _ in 0..100 {
        answer(&mut port);
    }
    for _ in 0..SLICES {
        bounce.pong();
        ring.pong();
        let mut lean = 0;
        while lean < PINGS {
            lean += port
                .poll_with(1, |outlet, _, _, f| {
                    let mut slot = outlet.reserve(0, Reply, 8).unwrap();
                    slot.bytes_mut().copy_from_slice(&f.head()[..8]);
                    slot.commit();
                    true
                })
                .unwrap() as u64;
        }
        for _ in 0..4 * PINGS {
            answer(&mut port);
        }
        for _ in 0..2 {
            let mut got = 0;
            while got < WORDS as usize {
                got += port.poll(64, |_, _, _| true).unwrap();
            }
            put(&mut port, 0, &[0]);
        }
        for bytes in SIZES {
            for copy in &mut copies {
                take_one(&mut port, |_| ());
                for _ in 0..repeats(bytes) {
                    copy.send(&source[..bytes]);
                }
            }
            take_one(&mut port, |_| ());
            for _ in 0..repeats(bytes) {
                put_frames(&mut port, 0, &source[..bytes]);
            }
            if !port.can_copy(0) {
                continue;
            }
            for _ in 0..repeats(bytes) {
                words(&mut port);
                put_words(&mut port, 0, [source.as_ptr() as u64, bytes as u64]);
            }
            for _ in 0..repeats(bytes) {
                let [to, _] = words(&mut port);
                put_words(&mut port, 0, [source.as_ptr() as u64, bytes as u64]);
                let half = bytes / 2;
                port.copy_to_peer(0, to + half as u64, &source[half..bytes])
                    .unwrap();
                put_words(&mut port, 0, [0, 0]);
            }
        }
    }
    // The other side may still be copying.
    take_one(&mut port, |_| ());
}

fn main() {
    let floor_lines = Bounce::LINES + Ring::LINES + copy_lines();
    if let Ok(numbers) = std::env::var(CHILD) {
        pin(1);
        let mut fds: Vec<_> = numbers
            .split(' ')
            .map(|n| adopt_inherited(n.parse().unwrap()).unwrap())
            .collect();
        let memory = SharedMemory::from_fd(fds.remove(0), None).unwrap();
        let segment = fds.remove(0);
        let mut port = ShmPort::attach(segment, 1, fds, true).unwrap();
        port.set_process(0, std::os::unix::process::parent_id());
        return second(port, &lines_of(&memory)[..floor_lines]);
    }
    pin(0);
    let memory = SharedMemory::create("floor", floor_lines * 64).unwrap();
    let segment = Segment::create(2, &SegmentConfig::default()).unwrap();
    let bells = SharedDoorbells::new(2).unwrap();
    let mut fds = vec![
        memory.duplicate_fd().unwrap(),
        segment.duplicate_fd().unwrap(),
    ];
    fds.extend(bells.duplicate_of(1).unwrap());
    for fd in &fds {
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty()).unwrap();
    }
    let numbers: Vec<_> = fds.iter().map(|fd| fd.as_raw_fd().to_string()).collect();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(CHILD, numbers.join(" "))
        .spawn()
        .unwrap();
    drop(fds);
    let ours = bells.duplicate_of(0).unwrap();
    let mut port = ShmPort::attach(segment.duplicate_fd().unwrap(), 0, ours, true).unwrap();
    port.set_process(1, child.id());
    first(port, &lines_of(&memory)[..floor_lines]);
    child.wait().unwrap();
}
