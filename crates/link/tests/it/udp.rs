//! What is particular to the link `udp`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use portolan_link::udp::{BindError, Udp, UdpConfig};
use portolan_link::{Link, LinkAddress, LinkError, TxFrame};
use portolan_sys::features::Disabled;
use portolan_sys::net::{self, SocketOptions};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt;

const V4: Ipv4Addr = Ipv4Addr::LOCALHOST;

fn open(off: &str) -> Udp {
    let config = UdpConfig {
        frame_max: Some(1_452),
        disabled: Disabled::parse(off).unwrap(),
        ..UdpConfig::default()
    };
    Udp::open(&config).unwrap()
}

fn reach(link: &Udp, ip: Ipv6Addr) -> LinkAddress {
    LinkAddress {
        ip: ip.octets(),
        ..link.local_address().unwrap()
    }
}

fn send_all(link: &mut Udp, frames: &[TxFrame<'_>]) {
    let mut sent = 0;
    while sent < frames.len() {
        sent += link.tx_burst(&frames[sent..]).unwrap();
    }
}

/// Length and mark of every frame that waits.
fn drain(link: &mut Udp) -> Vec<(usize, bool)> {
    let mut got = Vec::new();
    for _ in 0..1_000 {
        link.rx_burst(64, |frame| got.push((frame.bytes.len(), frame.ce)))
            .unwrap();
        std::thread::yield_now();
    }
    got
}

/// Large frames from outside, so that `link` watches for more than lone
/// small ones.
fn wake(link: &mut Udp) {
    let stranger = UdpSocket::bind((V4, 0)).unwrap();
    let port = link.local_address().unwrap().port;
    for _ in 0..3 {
        stranger.send_to(&[0; 500], (V4, port)).unwrap();
    }
    assert_eq!(drain(link).len(), 3);
}

#[test]
fn a_burst_of_equal_frames_is_one_call() {
    let (mut a, mut b) = (open(""), open(""));
    wake(&mut b);
    let before = b.counters();
    let to = reach(&b, V4.to_ipv6_mapped());
    let bytes = [7; 1_452];
    let frame = TxFrame {
        to,
        bytes: &bytes,
        ecn: true,
    };
    assert_eq!(a.tx_burst(&[frame; 44]), Ok(44));
    let sent = a.counters();
    assert_eq!((sent.tx_calls, sent.tx_gso, sent.tx_frames), (1, 1, 44));
    assert_eq!(sent.tx_bytes, 44 * 1_452);
    assert_eq!(drain(&mut b), [(1_452, false); 44]);
    let got = b.counters();
    assert_eq!((got.rx_gro, got.rx_frames - before.rx_frames), (1, 44));
    // Every look is one call.
    assert_eq!(got.rx_calls - before.rx_calls, 1_000);
    assert_eq!(got.rx_empty - before.rx_empty, 999);

    // Two units do not fit one message, so they take two.
    assert_eq!(a.tx_burst(&[frame; 60]), Ok(60));
    assert_eq!(a.counters().tx_calls, 3);
}

#[test]
fn frames_of_several_sizes_or_peers_share_a_call() {
    let (mut a, mut b, mut c) = (open(""), open(""), open(""));
    let bytes = [7; 1_452];
    let to = [&b, &c].map(|link| reach(link, V4.to_ipv6_mapped()));
    let frames: Vec<_> = (0..20)
        .map(|i| TxFrame {
            to: to[i % 2],
            bytes: &bytes[..100 + i],
            ecn: true,
        })
        .collect();
    assert_eq!(a.tx_burst(&frames), Ok(20));
    let sent = a.counters();
    assert_eq!((sent.tx_calls, sent.tx_gso, sent.tx_frames), (1, 0, 20));
    assert_eq!(drain(&mut b).len() + drain(&mut c).len(), 20);
}

#[test]
fn features_stay_off() {
    let (mut a, mut b) = (open("gso,mmsg"), open("gro,mmsg"));
    assert!(!a.uses_gso() && !b.uses_gro());
    let to = reach(&b, V4.to_ipv6_mapped());
    let frame = TxFrame {
        to,
        bytes: &[7; 500],
        ecn: true,
    };
    assert_eq!(a.tx_burst(&[frame; 10]), Ok(10));
    assert_eq!((a.counters().tx_calls, a.counters().tx_gso), (10, 0));
    assert_eq!(drain(&mut b).len(), 10);

    // A sender with offload, a receiver without.
    let mut a = open("");
    send_all(&mut a, &[frame; 10]);
    assert_eq!(a.counters().tx_gso, 1);
    assert_eq!(drain(&mut b).len(), 10);
    assert_eq!(b.counters().rx_gro, 0);
}

#[test]
fn dense_traffic_is_received_in_batches() {
    let (mut a, mut b) = (open("gso"), open("gro"));
    let to = reach(&b, V4.to_ipv6_mapped());
    let frame = TxFrame {
        to,
        bytes: &[7; 100],
        ecn: true,
    };
    send_all(&mut a, &[frame; 100]);
    let mut calls = 0;
    let mut got = 0;
    while got < 100 {
        got += b.rx_burst(64, |_| ()).unwrap();
        calls += 1;
        assert!(calls < 1_000);
    }
    assert_eq!(got, 100);
    assert!(b.counters().rx_calls <= 12, "{:?}", b.counters());
}

#[test]
fn coalescing_comes_and_goes_with_the_traffic() {
    let (mut a, mut b) = (open(""), open(""));
    let to = reach(&b, V4.to_ipv6_mapped());
    let frame = TxFrame {
        to,
        bytes: &[7; 100],
        ecn: true,
    };
    let mut burst = |b: &mut Udp| {
        let before = b.counters().rx_gro;
        send_all(&mut a, &[frame; 40]);
        assert_eq!(drain(b), [(100, false); 40]);
        b.counters().rx_gro - before
    };
    // At first nobody expects a burst; the next one finds it switched on.
    assert_eq!(burst(&mut b), 0);
    assert_eq!(burst(&mut b), 1);
    assert_eq!(burst(&mut b), 1);
    for _ in 0..1_000 {
        assert_eq!(b.rx_burst(64, |_| ()), Ok(0));
    }
    assert_eq!(burst(&mut b), 1, "after a pause");
    let mut c = open("");
    for _ in 0..64 {
        send_all(&mut c, &[frame]);
        assert_eq!(drain(&mut b).len(), 1);
    }
    assert_eq!(burst(&mut b), 0, "after small messages");
    assert_eq!(burst(&mut b), 1);
}

#[test]
fn a_few_acknowledgements_or_a_probe_do_not_make_it_coalesce() {
    let (mut a, mut b) = (open("gso"), open(""));
    let to = reach(&b, V4.to_ipv6_mapped());
    for (len, count) in [(56, 12), (1_452, 1), (1_452, 2)] {
        let bytes = vec![7; len];
        let frame = TxFrame {
            to,
            bytes: &bytes,
            ecn: true,
        };
        send_all(&mut a, &vec![frame; count]);
        assert_eq!(drain(&mut b).len(), count);
    }
    // One unit of segmentation offload would come as one message.
    let mut c = open("");
    let frame = TxFrame {
        to,
        bytes: &[7; 100],
        ecn: true,
    };
    send_all(&mut c, &[frame; 8]);
    assert_eq!(drain(&mut b).len(), 8);
    assert_eq!(b.counters().rx_gro, 0);
}

#[test]
fn the_receive_buffer_holds_what_its_capacity_says() {
    for (len, ecn) in [(8, true), (1_452, true), (128, false)] {
        let (mut a, mut b) = (open("gso"), open(""));
        let to = reach(&b, V4.to_ipv6_mapped());
        let capacity = b.receive_capacity();
        let count = if len > 128 {
            capacity.full_packets
        } else {
            capacity.small_packets
        };
        let bytes = vec![1; len];
        let frame = TxFrame {
            to,
            bytes: &bytes,
            ecn,
        };
        send_all(&mut a, &vec![frame; count]);
        assert_eq!(drain(&mut b).len(), count, "{len} bytes");
    }
}

#[test]
fn drops_are_counted() {
    let (mut a, mut b) = (open("gso"), open(""));
    wake(&mut b);
    let to = reach(&b, V4.to_ipv6_mapped());
    let frame = TxFrame {
        to,
        bytes: &[1; 1_452],
        ecn: true,
    };
    let sent = 4 * b.receive_capacity().full_packets;
    send_all(&mut a, &vec![frame; sent]);
    let got = drain(&mut b).len();
    assert!(got < sent);
    // The kernel tells with the next packet that it takes.
    send_all(&mut a, &[frame]);
    assert_eq!(drain(&mut b).len(), 1);
    assert_eq!(b.counters().rx_dropped, (sent - got) as u64);
}

#[test]
fn congestion_marks_are_seen_on_both_families() {
    for ip in [IpAddr::V4(V4), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        let mut link = open("");
        wake(&mut link);
        let port = link.local_address().unwrap().port;
        let stranger = UdpSocket::bind((ip, 0)).unwrap();
        for (class, ce) in [(3, true), (2, false), (1, false), (0, false)] {
            match ip {
                IpAddr::V4(_) => sockopt::set_ip_tos(&stranger, class).unwrap(),
                IpAddr::V6(_) => sockopt::set_ipv6_tclass(&stranger, class.into()).unwrap(),
            }
            stranger.send_to(b"x", (ip, port)).unwrap();
            assert_eq!(drain(&mut link), [(1, ce)], "{ip}, class {class}");
        }
    }
}

#[test]
fn frames_leave_with_the_mark_that_they_ask_for() {
    for ip in [IpAddr::V4(V4), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        for off in ["", "ecn"] {
            let mut link = open(off);
            let receiver = net::UdpSocket::bind(&SocketOptions {
                address: Some(ip),
                scope: 0,
                port: 0,
                receive_buffer: 212_992,
                send_buffer: 212_992,
                ipv6: true,
                ecn: false,
                icmp_errors: false,
            })
            .unwrap();
            receiver.report_class(true).unwrap();
            let v6 = match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            let port = receiver.local_address().unwrap().port();
            let to = LinkAddress {
                ip: v6.octets(),
                port,
                scope: 0,
            };
            for ecn in [true, false] {
                // Alone, as a unit, and as one of several units.
                let frame = |len| TxFrame {
                    to,
                    bytes: &[1; 30][..len],
                    ecn,
                };
                send_all(&mut link, &[frame(5)]);
                send_all(&mut link, &[frame(6), frame(6)]);
                send_all(&mut link, &[frame(7), frame(9), frame(8)]);
                let mut classes = Vec::new();
                for _ in 0..1_000 {
                    classes.extend(
                        receiver
                            .receive(&mut [0; 100])
                            .map(|received| received.class),
                    );
                }
                let class = if ecn && off.is_empty() { 2 } else { 0 };
                assert_eq!(classes, [class; 6], "{ip}, off: {off:?}, ecn: {ecn}");
            }
        }
    }
}

#[test]
fn refusals_name_the_cause() {
    let mut link = open("");
    let taken = link.local_address().unwrap().port;
    let with = |address: Option<IpAddr>, port, off| {
        let disabled = Disabled::parse(off).unwrap();
        let config = UdpConfig {
            address,
            port,
            disabled,
            ..UdpConfig::default()
        };
        Udp::open(&config).map(|_| ()).unwrap_err()
    };
    let error = with(None, taken, "");
    assert!(matches!(error, BindError::PortInUse(at) if at.port() == taken));
    assert!(error.to_string().contains("choose another port"), "{error}");
    // An address of the documentation range is nobody's.
    let nobody = IpAddr::from([203, 0, 113, 77]);
    assert_eq!(with(Some(nobody), 0, ""), BindError::NotLocal(nobody));
    let v6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
    assert_eq!(with(Some(v6), 0, "ipv6"), BindError::NoIpv6(v6));

    // Port 0 is no destination.
    let to = LinkAddress {
        ip: V4.to_ipv6_mapped().octets(),
        ..LinkAddress::default()
    };
    let frame = TxFrame {
        to,
        bytes: b"x",
        ecn: true,
    };
    assert!(matches!(
        link.tx_burst(&[frame]),
        Err(LinkError::Unreachable(_))
    ));
    assert!(matches!(
        link.tx_burst(&[frame; 2]),
        Err(LinkError::Unreachable(_))
    ));
    assert!(link.uses_gso(), "that was not the device's refusal");
}

#[test]
fn v6_from_a_v4_socket_is_unreachable() {
    let mut link = open("ipv6");
    let to = LinkAddress {
        ip: Ipv6Addr::LOCALHOST.octets(),
        port: 9,
        scope: 0,
    };
    let frame = TxFrame {
        to,
        bytes: b"x",
        ecn: true,
    };
    assert!(matches!(
        link.tx_burst(&[frame]),
        Err(LinkError::Unreachable(_))
    ));
}

#[test]
fn a_dead_destination_does_not_stop_the_others() {
    let (mut a, mut b) = (open(""), open(""));
    let gone = UdpSocket::bind((V4, 0)).unwrap();
    let SocketAddr::V4(at) = gone.local_addr().unwrap() else {
        panic!("not IPv4")
    };
    drop(gone);
    let dead = LinkAddress {
        ip: at.ip().to_ipv6_mapped().octets(),
        port: at.port(),
        scope: 0,
    };
    let alive = reach(&b, V4.to_ipv6_mapped());
    for _ in 0..20 {
        for to in [dead, alive] {
            let frame = TxFrame {
                to,
                bytes: b"hello",
                ecn: true,
            };
            assert_eq!(a.tx_burst(&[frame]), Ok(1));
        }
        assert_eq!(a.rx_burst(8, |_| ()), Ok(0));
    }
    assert_eq!(drain(&mut b).len(), 20);
}

#[test]
fn the_descriptor_tells_when_a_frame_waits() {
    let (mut a, mut b) = (open(""), open(""));
    let readable = |link: &Udp| {
        let mut fds = [PollFd::from_borrowed_fd(link.fd(), PollFlags::IN)];
        let soon = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&soon)).unwrap() == 1
    };
    assert!(!readable(&b));
    let to = reach(&b, Ipv6Addr::LOCALHOST);
    let frame = TxFrame {
        to,
        bytes: b"x",
        ecn: true,
    };
    assert_eq!(a.tx_burst(&[frame]), Ok(1));
    let mut waits = 0;
    while !readable(&b) {
        waits += 1;
        assert!(waits < 100_000);
        std::thread::yield_now();
    }
    assert_eq!(drain(&mut b).len(), 1);
    assert!(!readable(&b));
}

#[test]
fn frame_size_follows_the_interface() {
    let own = |address| {
        let config = UdpConfig {
            address,
            ..UdpConfig::default()
        };
        Udp::open(&config).unwrap().capabilities().frame_max
    };
    // The loopback's MTU exceeds what UDP can name.
    assert_eq!(own(Some(IpAddr::V4(V4))), 65_507);
    let any = own(None);
    assert!((1..=65_507).contains(&any));
}

#[test]
fn whoever_gets_nearly_all_packets_gets_a_socket() {
    for ip in [V4.to_ipv6_mapped(), Ipv6Addr::LOCALHOST] {
        let (mut a, mut b, mut c) = (open(""), open(""), open(""));
        let to = reach(&b, ip);
        let back = reach(&a, ip);
        let mut now = 1;
        let mut tick = |link: &mut Udp| {
            now += 1_000;
            link.set_now(now);
            let mut got = Vec::new();
            link.rx_burst(64, |f| got.push((f.from.port, f.bytes[0])))
                .unwrap();
            got
        };
        fn frame(to: LinkAddress, bytes: &[u8]) -> TxFrame<'_> {
            TxFrame {
                to,
                bytes,
                ecn: true,
            }
        }
        // Ping-pong, while a third sends now and then: nothing is lost, and
        // each comes from where it was sent.
        let mut strangers = 0;
        for i in 0..2_000_u32 {
            let byte = [i as u8];
            if i % 50 == 0 {
                assert_eq!(c.tx_burst(&[frame(back, &[255])]), Ok(1));
            }
            assert_eq!(a.tx_burst(&[frame(to, &byte)]), Ok(1));
            let got = loop {
                let got = tick(&mut b);
                if !got.is_empty() {
                    break got;
                }
            };
            assert_eq!(got, [(back.port, i as u8)]);
            assert_eq!(b.tx_burst(&[frame(back, &byte)]), Ok(1));
            let mut answers = Vec::new();
            while !answers.contains(&(to.port, i as u8)) {
                answers.extend(tick(&mut a));
            }
            strangers += answers.len() - 1;
        }
        for _ in 0..100 {
            strangers += tick(&mut a).len();
        }
        assert_eq!(strangers, 40);
        let direct = a.counters().tx_direct;
        assert!((1_000..2_000).contains(&direct), "{direct}");

        // Another becomes the favourite, if not at once: a process that another test starts has a
        // copy of the socket until it begins its program.
        let other = reach(&c, ip);
        for _ in 0..4_000 {
            assert_eq!(a.tx_burst(&[frame(other, &[1])]), Ok(1));
            while tick(&mut c).is_empty() {}
            tick(&mut a);
        }
        assert!(a.counters().tx_direct > direct + 1_000);
        // The first is still heard.
        assert_eq!(b.tx_burst(&[frame(back, &[9])]), Ok(1));
        let mut heard = Vec::new();
        for _ in 0..100 {
            heard.extend(tick(&mut a));
        }
        assert_eq!(heard, [(to.port, 9)]);

        // Nobody else can take the port meanwhile.
        let taken = Udp::open(&UdpConfig {
            port: back.port,
            ..UdpConfig::default()
        });
        assert!(matches!(taken, Err(BindError::PortInUse(_))), "{taken:?}");
    }
}
