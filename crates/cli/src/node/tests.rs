//! Host ports between two hosts of a lab. Needs root.

use std::any::Any;
use std::net::{IpAddr, UdpSocket};

use portolan_link::conformance::{self, Pair};
use portolan_link::udp::{Udp, UdpConfig};
use portolan_link::xdp::{HostPort, Sizes, Xdp};
use portolan_link::{Capabilities, Link, LinkAddress, LinkError, RxFrame, TxFrame};
use portolan_sys::clock::now_ns;
use portolan_sys::features::Disabled;

use super::ports::HostPorts;
use crate::lab::{Built, Lab};

/// Opens a host port on a host of the lab.
fn open(lab: &Lab, host: u32) -> (Xdp, Box<dyn Any + Send>) {
    let ports = HostPorts::default();
    let opened = lab
        .in_host(host, || Ok(ports.open(None, &Disabled::default())))
        .unwrap()
        .unwrap();
    let portolan_boot::HostPort {
        info,
        lease,
        descriptors,
    } = opened;
    let [area, socket, udp] = descriptors;
    let port = HostPort {
        area,
        socket,
        udp,
        sizes: Sizes::from_words(info.sizes),
        interface: info.interface,
        mac: info.mac,
        mtu: info.mtu,
    };
    // Routes and neighbours are those of the thread's network.
    let adopt = || Ok(Xdp::adopt(port, &UdpConfig::default()).unwrap());
    (lab.in_host(host, adopt).unwrap(), lease)
}

/// One end, either link, that makes its calls in its own network and always
/// knows the time.
enum End {
    Fast(Box<Xdp>),
    Plain(Box<Udp>),
}

/// The beginning of every frame: only what looks like a packet of ours, with
/// header and tag, is steered.
const HEAD: [u8; 28] = {
    let mut head = [0; 28];
    head[0] = 0x12;
    head
};

impl Link for End {
    fn capabilities(&self) -> Capabilities {
        let link = match self {
            Self::Fast(link) => link.capabilities(),
            Self::Plain(link) => link.capabilities(),
        };
        Capabilities {
            frame_max: link.frame_max - HEAD.len(),
            ..link
        }
    }

    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> Result<usize, LinkError> {
        let whole: Vec<_> = frames.iter().map(|f| [&HEAD, f.bytes].concat()).collect();
        let frames: Vec<_> = frames
            .iter()
            .zip(&whole)
            .map(|(frame, bytes)| TxFrame { bytes, ..*frame })
            .collect();
        let sent = match self {
            Self::Fast(link) => {
                link.set_now(now_ns());
                link.tx_burst(&frames)
            }
            Self::Plain(link) => link.tx_burst(&frames),
        };
        sent.map_err(|error| match error {
            LinkError::TooBig(most) => LinkError::TooBig(most.saturating_sub(HEAD.len())),
            error => error,
        })
    }

    fn rx_burst(
        &mut self,
        max: usize,
        mut sink: impl FnMut(RxFrame<'_>),
    ) -> Result<usize, LinkError> {
        let sink = |frame: RxFrame<'_>| {
            sink(RxFrame {
                bytes: &mut frame.bytes[HEAD.len()..],
                ..frame
            });
        };
        match self {
            Self::Fast(link) => {
                link.set_now(now_ns());
                link.rx_burst(max, sink)
            }
            Self::Plain(link) => link.rx_burst(max, sink),
        }
    }
}

impl End {
    fn local(&self) -> LinkAddress {
        match self {
            Self::Fast(link) => link.local_address().unwrap(),
            Self::Plain(link) => link.local_address().unwrap(),
        }
    }
}

/// Which IP two ends use.
#[derive(Clone, Copy)]
enum Family {
    V4,
    V6,
}

struct Two {
    ends: [End; 2],
    addresses: [LinkAddress; 2],
    stranger: UdpSocket,
    _leases: Vec<Box<dyn Any + Send>>,
}

impl Two {
    /// h0 has a host port, h1 has one if `both`.
    fn open(lab: &Lab, family: Family, both: bool) -> Self {
        let mut leases = Vec::new();
        let mut fast = |host| {
            let (link, lease) = open(lab, host);
            leases.push(lease);
            End::Fast(Box::new(link))
        };
        let plain = || lab.in_host(1, || Ok(Udp::open(&UdpConfig::default()).unwrap()));
        let ends = [
            fast(0),
            if both {
                fast(1)
            } else {
                End::Plain(Box::new(plain().unwrap()))
            },
        ];
        let ip = |host| match family {
            Family::V4 => lab.ipv4(host).to_ipv6_mapped(),
            Family::V6 => lab.ipv6(host),
        };
        let addresses = [0, 1].map(|end| LinkAddress {
            ip: ip(end as u32).octets(),
            ..ends[end].local()
        });
        let stranger = lab.in_host(0, || Ok(UdpSocket::bind("[::]:0").unwrap()));
        Self {
            ends,
            addresses,
            stranger: stranger.unwrap(),
            _leases: leases,
        }
    }

    fn fast(&self, end: usize) -> &Xdp {
        match &self.ends[end] {
            End::Fast(link) => link,
            End::Plain(_) => panic!("it has no host port"),
        }
    }
}

impl Pair for Two {
    type Link = End;

    fn link(&mut self, end: usize) -> &mut End {
        &mut self.ends[end]
    }

    fn address(&self, end: usize) -> LinkAddress {
        self.addresses[end]
    }

    fn disturb(&mut self, end: usize) {
        let LinkAddress { ip, port, .. } = self.addresses[end];
        let to = (IpAddr::from(ip), port);
        self.stranger.send_to(&[0x5a; 100], to).unwrap();
    }
}

#[test]
fn a_host_port_passes_the_conformance_suite() {
    let built = Built::up("t-unit-xdp");
    for family in [Family::V4, Family::V6] {
        for both in [true, false] {
            conformance::all(|| Two::open(&built.0, family, both));
        }
    }
}

#[test]
fn packets_go_past_the_kernel_in_both_directions() {
    let built = Built::up("t-unit-past");
    for family in [Family::V4, Family::V6] {
        let mut two = Two::open(&built.0, family, true);
        for from in [0, 1] {
            let to = two.addresses[1 - from];
            for n in 0..200_u32 {
                let bytes = &n.to_le_bytes();
                let ecn = n % 2 == 0;
                let frame = TxFrame { to, bytes, ecn };
                assert_eq!(two.ends[from].tx_burst(&[frame]), Ok(1));
                let mut got = Vec::new();
                let mut looks = 0;
                while got.is_empty() && looks < 10_000 {
                    looks += 1;
                    let take = |frame: RxFrame<'_>| got.push(frame.bytes.to_vec());
                    two.ends[1 - from].rx_burst(8, take).unwrap();
                }
                assert_eq!(got, [bytes]);
            }
        }
        for end in [0, 1] {
            let counters = two.fast(end).counters();
            assert_eq!((counters.tx_frames, counters.rx_frames), (200, 200));
            assert_eq!((counters.tx_kernel, counters.lost), (0, 0));
            assert_eq!(two.fast(end).kernel_counters().rx_frames, 0);
        }
    }
}
