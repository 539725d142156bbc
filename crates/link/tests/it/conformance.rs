//! The conformance suite on the link `udp`, with each feature on and off.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use portolan_link::LinkAddress;
use portolan_link::conformance::{self, Pair};
use portolan_link::udp::{Udp, UdpConfig};
use portolan_sys::features::Disabled;

struct UdpPair {
    ends: [Udp; 2],
    addresses: [LinkAddress; 2],
    stranger: UdpSocket,
}

impl UdpPair {
    fn open(own: Option<IpAddr>, reach: IpAddr, frame_max: usize, off: &str) -> Self {
        let config = UdpConfig {
            address: own,
            frame_max: Some(frame_max),
            disabled: Disabled::parse(off).unwrap(),
            ..UdpConfig::default()
        };
        let ends = [0, 1].map(|_| Udp::open(&config).unwrap());
        let ip = match reach {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        let addresses = [0, 1].map(|end| {
            let local: LinkAddress = ends[end].local_address().unwrap();
            LinkAddress { ip, ..local }
        });
        Self {
            ends,
            addresses,
            stranger: UdpSocket::bind((reach, 0)).unwrap(),
        }
    }
}

impl Pair for UdpPair {
    type Link = Udp;

    fn link(&mut self, end: usize) -> &mut Udp {
        &mut self.ends[end]
    }

    fn address(&self, end: usize) -> LinkAddress {
        self.addresses[end]
    }

    fn disturb(&mut self, end: usize) {
        let ip = self.stranger.local_addr().unwrap().ip();
        for len in [0, 1, 17, 1_400, 9_000] {
            let to = (ip, self.addresses[end].port);
            self.stranger.send_to(&vec![0xee; len], to).unwrap();
        }
    }
}

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

fn run(own: Option<IpAddr>, reach: IpAddr, frame_max: usize, off: &str) {
    conformance::all(|| UdpPair::open(own, reach, frame_max, off));
}

#[test]
fn udp_any_address_over_v4() {
    run(None, V4, 1_452, "");
}

#[test]
fn udp_any_address_over_v6() {
    run(None, V6, 1_452, "");
}

#[test]
fn udp_own_v4() {
    run(Some(V4), V4, 1_472, "");
}

#[test]
fn udp_own_v6() {
    run(Some(V6), V6, 1_452, "");
}

#[test]
fn udp_without_ipv6() {
    run(None, V4, 1_472, "ipv6");
}

#[test]
fn udp_without_gso() {
    run(None, V4, 1_452, "gso");
}

#[test]
fn udp_without_gro() {
    run(None, V6, 1_452, "gro");
}

#[test]
fn udp_without_any_offload() {
    run(None, V4, 1_452, "gso,gro,mmsg,ecn");
}

#[test]
fn udp_without_ecn() {
    run(None, V6, 1_452, "ecn");
}
