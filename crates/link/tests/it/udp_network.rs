//! The link `udp` on interfaces and routes that the test lays itself, in a
//! network namespace of its own thread. Needs root; says so where it cannot
//! run.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::thread;

use portolan_link::udp::{Udp, UdpConfig};
use portolan_link::{Link, LinkAddress, LinkError, TxFrame};
use portolan_sys::net::{directly_connected, interfaces, mtu_towards, route_to};
use portolan_sys::raw::Errno;
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Runs `test` in a new, empty network.
fn in_new_network(test: fn()) {
    let run = move || {
        // SAFETY: the descriptor table stays shared.
        if let Err(errno) = unsafe { unshare_unsafe(UnshareFlags::NEWNET) } {
            eprintln!("DID NOT RUN: a network namespace needs root: {errno}");
            return;
        }
        test();
    };
    thread::spawn(run).join().unwrap();
}

/// `ip` with these arguments; it inherits the thread's network.
fn ip(arguments: &str) {
    let mut command = Command::new("ip");
    let status = command.args(arguments.split_whitespace()).status();
    assert!(status.expect("run ip").success(), "ip {arguments}");
}

fn open(address: Option<IpAddr>, frame_max: Option<usize>) -> Udp {
    let config = UdpConfig {
        address,
        frame_max,
        ..UdpConfig::default()
    };
    Udp::open(&config).unwrap()
}

fn at(ip: impl Into<IpAddr>, port: u16) -> LinkAddress {
    let ip = match ip.into() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    LinkAddress { ip, port, scope: 0 }
}

#[test]
fn a_frame_beyond_the_interface_is_too_big() {
    in_new_network(|| {
        ip("link set lo mtu 1500 up");
        assert_eq!(mtu_towards(Ipv4Addr::LOCALHOST.into()), Ok(1_500));
        let own = |address| open(address, None).capabilities().frame_max;
        assert_eq!(own(Some(Ipv4Addr::LOCALHOST.into())), 1_472);
        assert_eq!(own(Some(Ipv6Addr::LOCALHOST.into())), 1_452);
        assert_eq!(own(None), 1_452);

        for (address, fits) in [
            (IpAddr::V4(Ipv4Addr::LOCALHOST), 1_472),
            (IpAddr::V6(Ipv6Addr::LOCALHOST), 1_452),
        ] {
            let (mut a, b) = (open(None, Some(9_000)), open(None, None));
            let to = at(address, b.local_address().unwrap().port);
            let bytes = vec![1; fits + 1];
            let frame = |len| TxFrame {
                to,
                bytes: &bytes[..len],
                ecn: true,
            };
            let big = frame(fits + 1);
            let good = frame(fits);
            // Alone, as a unit, and as the first of several units.
            for burst in [&[big][..], &[big; 10], &[big, good, big, good]] {
                assert_eq!(a.tx_burst(burst), Err(LinkError::TooBig(0)), "{address}");
            }
            assert!(a.uses_gso(), "that was no refusal of the device");
            assert_eq!(a.tx_burst(&[good; 10]), Ok(10));
            // What goes before it goes; then it is the first.
            assert_eq!(a.tx_burst(&[good, big]), Ok(1));
            assert_eq!(a.counters().tx_frames, 11);
        }
    });
}

#[test]
fn no_route_is_unreachable() {
    in_new_network(|| {
        ip("link set lo up");
        let nobody = Ipv4Addr::new(203, 0, 113, 77);
        assert_eq!(route_to(nobody.into(), 0), Err(Errno::NETUNREACH));
        let mut link = open(None, Some(1_452));
        let frame = TxFrame {
            to: at(nobody, 9),
            bytes: b"x",
            ecn: true,
        };
        let unreachable = LinkError::Unreachable(Errno::NETUNREACH.raw_os_error());
        assert_eq!(link.tx_burst(&[frame]), Err(unreachable));
        assert_eq!(link.tx_burst(&[frame; 3]), Err(unreachable));
        assert!(link.uses_gso());
    });
}

#[test]
fn the_network_is_seen_as_it_is_laid() {
    in_new_network(|| {
        ip("link set lo up");
        ip("link add left type veth peer name right");
        ip("address add 10.77.0.1/24 dev left");
        ip("address add fd77::1/64 dev left nodad");
        ip("link set left mtu 1400 up");
        ip("link set right up");
        ip("route add 10.78.0.0/16 via 10.77.0.2");
        ip("route add 10.79.0.0/16 via 10.77.0.2 mtu 1300");
        ip("route add fd78::/64 via fd77::2");

        let [near, far, narrow] =
            ["10.77.0.9", "10.78.0.9", "10.79.0.9"].map(|ip| ip.parse().unwrap());
        assert_eq!(directly_connected(near), Ok(true));
        assert_eq!(directly_connected(far), Ok(false));
        assert_eq!(directly_connected("fd77::9".parse().unwrap()), Ok(true));
        assert_eq!(directly_connected("fd78::9".parse().unwrap()), Ok(false));
        assert_eq!(mtu_towards(near), Ok(1_400));
        assert_eq!(mtu_towards(far), Ok(1_400));
        assert_eq!(mtu_towards(narrow), Ok(1_300));
        assert_eq!(mtu_towards("fd78::9".parse().unwrap()), Ok(1_400));

        let own: IpAddr = "10.77.0.1".parse().unwrap();
        let route = route_to(near, 0).unwrap();
        assert!(!route.local);
        assert_eq!(route.source, Some(own));
        assert!(route_to(own, 0).unwrap().local);

        let all = interfaces().unwrap();
        let left = all
            .iter()
            .find(|interface| interface.name == "left")
            .unwrap();
        assert_eq!(
            (left.index, left.mtu, left.up, left.loopback),
            (route.interface, 1_400, true, false)
        );
        assert!(left.addresses.contains(&(own, 24)), "{left:?}");
        assert!(
            left.addresses.contains(&("fd77::1".parse().unwrap(), 64)),
            "{left:?}"
        );

        // Frames are sized by the own address's interface, without one by
        // the largest that is not the loopback.
        assert_eq!(open(Some(own), None).capabilities().frame_max, 1_400 - 28);
        assert_eq!(open(None, None).capabilities().frame_max, 1_500 - 48);
    });
}

#[test]
fn without_ipv6_the_link_still_opens() {
    in_new_network(|| {
        ip("link set lo up");
        // Names below sys/net are those of the network of whoever opens them.
        let path = "/proc/sys/net/ipv6/conf/all/disable_ipv6";
        if let Err(error) = std::fs::write(path, "1") {
            eprintln!("DID NOT RUN: {path}: {error}");
            return;
        }
        assert!(std::net::UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_err());
        let (mut a, mut b) = (open(None, Some(1_452)), open(None, Some(1_452)));
        let to = at(Ipv4Addr::LOCALHOST, b.local_address().unwrap().port);
        let frame = TxFrame {
            to,
            bytes: b"hello",
            ecn: true,
        };
        assert_eq!(a.tx_burst(&[frame]), Ok(1));
        let mut looks = 0;
        while b.rx_burst(8, |_| ()) == Ok(0) {
            looks += 1;
            assert!(looks < 100_000);
            thread::yield_now();
        }
    });
}
