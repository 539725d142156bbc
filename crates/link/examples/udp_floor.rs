//! What the link `udp` adds to a hand-written socket loop.
//!
//! `udp_floor [NETNS_A NETNS_B IP_B]`: without arguments over the loopback,
//! with them between two network namespaces (as root). Prints the latency of
//! 8 bytes one way beside a polled `sendto`/`recvfrom` loop, in interleaved
//! slices, and the rate of a windowed stream of full frames.

use std::fs::File;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use portolan_link::udp::{Udp, UdpConfig};
use portolan_link::{Link, LinkAddress, TxFrame};
use portolan_sys::clock::now_ns;
use rustix::thread::{CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_setaffinity};

const SLICES: usize = 101;
const SLICE_NS: u64 = 5_000_000;
const STREAM_FRAMES: u64 = 200_000;
/// Frames under way in the stream: 212,992 bytes of receive buffer hold 184
/// where the kernel does not coalesce.
const WINDOW: u64 = 176;
const BURST: u64 = 44;

#[derive(Clone, Copy, Debug)]
enum Round {
    /// Echo on the raw socket, until an empty datagram comes.
    Raw,
    /// Echo on the link, likewise.
    Link,
    /// Receive a stream and answer with its count.
    Stream,
}

fn enter(core: usize, name_space: Option<&str>) {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).expect("pin to a core");
    if let Some(name) = name_space {
        let file = File::open(format!("/run/netns/{name}")).expect("open the name space");
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("setns");
    }
}

fn open_link() -> Udp {
    let config = UdpConfig {
        frame_max: Some(1_452),
        ..UdpConfig::default()
    };
    Udp::open(&config).expect("open the link")
}

fn open_raw(family: IpAddr) -> UdpSocket {
    let any: IpAddr = match family {
        IpAddr::V4(_) => [0; 4].into(),
        IpAddr::V6(_) => [0; 16].into(),
    };
    let socket = UdpSocket::bind((any, 0)).expect("bind");
    socket.set_nonblocking(true).expect("non-blocking");
    socket
}

fn raw_receive(socket: &UdpSocket, buffer: &mut [u8]) -> (usize, SocketAddr) {
    loop {
        match socket.recv_from(buffer) {
            Ok(got) => return got,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
        }
    }
}

/// Polls until a frame comes; gives its source and length.
fn link_receive(link: &mut Udp) -> (LinkAddress, usize) {
    let mut got = None;
    while got.is_none() {
        link.rx_burst(64, |frame| got = Some((frame.from, frame.bytes.len())))
            .expect("rx_burst");
    }
    got.expect("just set")
}

fn link_send(link: &mut Udp, to: LinkAddress, bytes: &[u8]) {
    let frame = TxFrame {
        to,
        bytes,
        ecn: true,
    };
    assert_eq!(link.tx_burst(&[frame]), Ok(1));
}

fn answer(
    ip: IpAddr,
    name_space: Option<&str>,
    rounds: &Receiver<Round>,
    ports: &Sender<[u16; 2]>,
) {
    enter(1, name_space);
    let raw = open_raw(ip);
    let mut link = open_link();
    let raw_port = raw.local_addr().expect("own address").port();
    let link_port = link.local_address().expect("own address").port;
    ports.send([raw_port, link_port]).expect("other thread");
    let mut buffer = [0; 2_048];
    for round in rounds {
        match round {
            Round::Raw => loop {
                let (len, from) = raw_receive(&raw, &mut buffer);
                raw.send_to(&buffer[..len], from).expect("send");
                if len == 0 {
                    break;
                }
            },
            Round::Link => loop {
                let (from, len) = link_receive(&mut link);
                link_send(&mut link, from, &buffer[..len]);
                if len == 0 {
                    break;
                }
            },
            Round::Stream => {
                let (mut got, mut told) = (0, 0);
                while got < STREAM_FRAMES {
                    let mut source = None;
                    let shown = link.rx_burst(64, |frame| source = Some(frame.from));
                    got += shown.expect("rx_burst") as u64;
                    if let Some(to) = source
                        && (got - told >= BURST || got == STREAM_FRAMES)
                    {
                        link_send(&mut link, to, &got.to_le_bytes());
                        told = got;
                    }
                }
                println!("receiver: {:?}", link.counters());
            }
        }
    }
}

/// Nanoseconds one way.
fn slice(mut exchange: impl FnMut()) -> f64 {
    let start = now_ns();
    let mut count = 0;
    loop {
        for _ in 0..100 {
            exchange();
        }
        count += 100;
        let spent = now_ns() - start;
        if spent > SLICE_NS {
            return spent as f64 / f64::from(2 * count);
        }
    }
}

/// The calls alone, without a second core: each socket sends to itself over
/// the loopback of this name space.
fn to_self(raw: &UdpSocket, link: &mut Udp) {
    let port = raw.local_addr().expect("own address").port();
    let to = LinkAddress {
        ip: std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets(),
        ..link.local_address().expect("own address")
    };
    let mut buffer = [0; 64];
    let mut best = [f64::MAX; 4];
    for _ in 0..SLICES {
        let figures = [
            slice(|| {
                raw.send_to(&[1; 8], ("127.0.0.1".parse::<IpAddr>().unwrap(), port))
                    .expect("send");
                raw_receive(raw, &mut buffer);
            }),
            slice(|| {
                link_send(link, to, &[1; 8]);
                link_receive(link);
            }),
            slice(|| assert!(raw.recv_from(&mut buffer).is_err())),
            slice(|| assert_eq!(link.rx_burst(64, |_| ()), Ok(0))),
        ];
        for (best, figure) in best.iter_mut().zip(figures) {
            *best = best.min(2.0 * figure);
        }
    }
    let [raw, link, raw_empty, link_empty] = best;
    println!("to itself, send and receive: raw {raw:.0} ns, link {link:.0} ns");
    println!("empty look: raw {raw_empty:.0} ns, link {link_empty:.0} ns");
}

fn stream(link: &mut Udp, to: LinkAddress) -> f64 {
    let bytes = [7; 1_452];
    let frame = TxFrame {
        to,
        bytes: &bytes,
        ecn: true,
    };
    let burst = [frame; BURST as usize];
    let (mut sent, mut acknowledged, mut quiet_since) = (0, 0, now_ns());
    let start = quiet_since;
    while acknowledged < STREAM_FRAMES {
        let count = BURST.min(STREAM_FRAMES - sent);
        if count > 0 && sent + count <= acknowledged + WINDOW {
            sent += link.tx_burst(&burst[..count as usize]).expect("tx_burst") as u64;
        }
        let shown = link.rx_burst(8, |frame| {
            let count = (*frame.bytes).try_into().map_or(0, u64::from_le_bytes);
            acknowledged = acknowledged.max(count);
        });
        if shown.expect("rx_burst") > 0 {
            quiet_since = now_ns();
        }
        assert!(
            now_ns() - quiet_since < 1_000_000_000,
            "a frame was lost: {acknowledged} of {sent}"
        );
    }
    let spent = (now_ns() - start) as f64;
    println!("sender: {:?}", link.counters());
    (STREAM_FRAMES * 1_452) as f64 / spent
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (here, there, ip) = match &arguments[..] {
        [here, there, ip] => (
            Some(here.clone()),
            Some(there.clone()),
            ip.parse().expect("an IP"),
        ),
        _ => (None, None, IpAddr::from([127, 0, 0, 1])),
    };
    let (rounds, rounds_rx) = channel();
    let (ports_tx, ports) = channel();
    let peer = thread::spawn(move || answer(ip, there.as_deref(), &rounds_rx, &ports_tx));
    enter(0, here.as_deref());
    let [raw_port, link_port] = ports.recv().expect("other thread");
    let (raw, mut link) = (open_raw(ip), open_link());
    let octets = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    let to = LinkAddress {
        ip: octets,
        port: link_port,
        scope: 0,
    };

    let mut ratios = Vec::new();
    let mut figures = [Vec::new(), Vec::new()];
    let mut buffer = [0; 64];
    for _ in 0..SLICES {
        rounds.send(Round::Raw).expect("other thread");
        let mut exchange = |len: usize| {
            raw.send_to(&[1; 8][..len], (ip, raw_port)).expect("send");
            raw_receive(&raw, &mut buffer);
        };
        let raw_ns = slice(|| exchange(8));
        exchange(0);

        rounds.send(Round::Link).expect("other thread");
        let mut exchange = |len: usize| {
            link_send(&mut link, to, &[1; 8][..len]);
            link_receive(&mut link);
        };
        let link_ns = slice(|| exchange(8));
        exchange(0);
        figures[0].push(raw_ns);
        figures[1].push(link_ns);
        ratios.push(link_ns / raw_ns);
    }
    for values in figures.iter_mut().chain([&mut ratios]) {
        values.sort_by(f64::total_cmp);
    }
    println!(
        "best slice: raw {:.0} ns, link {:.0} ns",
        figures[0][0], figures[1][0]
    );
    let [low, median, high] = [SLICES / 4, SLICES / 2, SLICES * 3 / 4].map(|at| ratios[at]);
    println!(
        "8 bytes one way: raw {:.0} ns, link {:.0} ns, ratio {median:.3} ({low:.3} to {high:.3})",
        figures[0][SLICES / 2],
        figures[1][SLICES / 2],
    );
    to_self(&raw, &mut link);
    rounds.send(Round::Stream).expect("other thread");
    println!("stream of full frames: {:.2} GB/s", stream(&mut link, to));
    drop(rounds);
    peer.join().expect("other thread");
}
