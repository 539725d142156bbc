//! Routes and interfaces, asked of the kernel by rtnetlink. For start-up and
//! connect, not for the data path.

use std::net::IpAddr;

use super::abi::{AF_INET, AF_INET6, ip_from_bytes, unmapped};
use super::netlink::{Attributes, NLM_F_DUMP, NLM_F_REQUEST, Netlink, push_attribute, word};
use crate::raw::Errno;

/// How packets to an address leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Index of the interface.
    pub interface: u32,
    /// Largest IP packet that goes that way as far as this host knows, bytes
    /// with IP header: the route's own limit or the interface's MTU.
    pub mtu: usize,
    /// A router stands between; otherwise the subnet is directly connected.
    pub routed: bool,
    /// That router.
    pub gateway: Option<IpAddr>,
    /// The address is this host's own.
    pub local: bool,
    /// The address that packets will carry as their source.
    pub source: Option<IpAddr>,
}

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its index (the scope of link-local addresses).
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Largest IP packet, bytes.
    pub mtu: usize,
    /// It is switched on.
    pub up: bool,
    /// It is the loopback.
    pub loopback: bool,
    /// Its Ethernet address, if it has one.
    pub mac: Option<[u8; 6]>,
    /// An XDP program is attached to it.
    pub xdp: bool,
    /// Its addresses with the length of their network prefix, bits.
    pub addresses: Vec<(IpAddr, u8)>,
}

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;

const RTN_LOCAL: u8 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_VIA: u16 = 18;
const RTAX_MTU: u16 = 2;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const XDP_ATTACHED_NONE: u8 = 0;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFF_UP: u32 = 1;
const IFF_LOOPBACK: u32 = 8;

impl Netlink {
    /// How packets to `ip` (from interface `scope` if that is not 0) leave; the MTU
    /// is 0 where the route itself has no limit.
    ///
    /// # Errors
    /// `ENETUNREACH` where no route leads there.
    pub fn route(&self, ip: IpAddr, scope: u32) -> Result<Route, Errno> {
        let ip = unmapped(ip);
        let mut body = vec![0; 12];
        match ip {
            IpAddr::V4(v4) => {
                body[0] = AF_INET as u8;
                body[1] = 32;
                push_attribute(&mut body, RTA_DST, &v4.octets());
            }
            IpAddr::V6(v6) => {
                body[0] = AF_INET6 as u8;
                body[1] = 128;
                push_attribute(&mut body, RTA_DST, &v6.octets());
            }
        }
        if scope != 0 {
            push_attribute(&mut body, RTA_OIF, &scope.to_ne_bytes());
        }
        let mut route = None;
        self.request(RTM_GETROUTE, NLM_F_REQUEST, &body, |kind, body| {
            if kind == RTM_NEWROUTE {
                route = parse_route(body).or(route);
            }
        })?;
        route.ok_or(Errno::NETUNREACH)
    }
}

/// How packets to `ip` (from interface `scope` if that is not 0) leave.
///
/// # Errors
/// `ENETUNREACH` where no route leads there, `EACCES` or `EPERM` where
/// netlink is not permitted.
pub fn route_to(ip: IpAddr, scope: u32) -> Result<Route, Errno> {
    let mut route = Netlink::open()?.route(ip, scope)?;
    if route.mtu == 0 {
        let interfaces = links()?;
        let interface = interfaces.iter().find(|link| link.index == route.interface);
        route.mtu = interface.ok_or(Errno::NODEV)?.mtu;
    }
    Ok(route)
}

/// The MTU of the way to `ip`, bytes of an IP packet.
///
/// # Errors
/// As [`route_to`].
pub fn mtu_towards(ip: IpAddr) -> Result<usize, Errno> {
    Ok(route_to(ip, 0)?.mtu)
}

/// Whether `ip` is on a subnet that this host is connected to (or is this
/// host), with no router between.
///
/// # Errors
/// As [`route_to`].
pub fn directly_connected(ip: IpAddr) -> Result<bool, Errno> {
    Ok(!Netlink::open()?.route(ip, 0)?.routed)
}

/// All interfaces of this network namespace with their addresses.
///
/// # Errors
/// `EACCES` or `EPERM` where netlink is not permitted.
pub fn interfaces() -> Result<Vec<Interface>, Errno> {
    let mut interfaces = links()?;
    // An ifaddrmsg of any family.
    Netlink::open()?.request(
        RTM_GETADDR,
        NLM_F_REQUEST | NLM_F_DUMP,
        &[0; 8],
        |kind, body| {
            if kind != RTM_NEWADDR {
                return;
            }
            if let Some((index, ip, prefix)) = parse_address(body)
                && let Some(interface) = interfaces.iter_mut().find(|link| link.index == index)
            {
                interface.addresses.push((ip, prefix));
            }
        },
    )?;
    Ok(interfaces)
}

fn links() -> Result<Vec<Interface>, Errno> {
    let mut links = Vec::new();
    // An ifinfomsg of any family.
    Netlink::open()?.request(
        RTM_GETLINK,
        NLM_F_REQUEST | NLM_F_DUMP,
        &[0; 16],
        |kind, body| {
            if kind == RTM_NEWLINK {
                links.extend(parse_link(body));
            }
        },
    )?;
    Ok(links)
}

fn parse_route(body: &[u8]) -> Option<Route> {
    let (fixed, attributes) = body.split_at_checked(12)?;
    let local = fixed[7] == RTN_LOCAL;
    let mut route = Route {
        interface: 0,
        mtu: 0,
        routed: false,
        gateway: None,
        local,
        source: None,
    };
    for (kind, data) in Attributes(attributes) {
        match kind {
            RTA_OIF => route.interface = word(data)?,
            RTA_GATEWAY => (route.routed, route.gateway) = (true, ip_from_bytes(data)),
            // Two bytes of address family come first.
            RTA_VIA => {
                (route.routed, route.gateway) = (true, data.get(2..).and_then(ip_from_bytes))
            }
            RTA_PREFSRC => route.source = ip_from_bytes(data),
            RTA_METRICS => {
                let mtu = Attributes(data).find(|(metric, _)| *metric == RTAX_MTU);
                route.mtu = mtu.and_then(|(_, data)| word(data)).unwrap_or(0) as usize;
            }
            _ => {}
        }
    }
    Some(route)
}

fn parse_link(body: &[u8]) -> Option<Interface> {
    let (fixed, attributes) = body.split_at_checked(16)?;
    let flags = word(&fixed[8..])?;
    let mut link = Interface {
        index: word(&fixed[4..])?,
        name: String::new(),
        mtu: 0,
        up: flags & IFF_UP != 0,
        loopback: flags & IFF_LOOPBACK != 0,
        mac: None,
        xdp: false,
        addresses: Vec::new(),
    };
    for (kind, data) in Attributes(attributes) {
        match kind {
            IFLA_IFNAME => {
                let name = data.split(|byte| *byte == 0).next().unwrap_or_default();
                link.name = String::from_utf8_lossy(name).into_owned();
            }
            IFLA_ADDRESS => link.mac = data.try_into().ok(),
            IFLA_MTU => link.mtu = word(data)? as usize,
            IFLA_XDP => {
                link.xdp = Attributes(data).any(|(kind, data)| {
                    kind == IFLA_XDP_ATTACHED && data.first() != Some(&XDP_ATTACHED_NONE)
                });
            }
            _ => {}
        }
    }
    Some(link)
}

fn parse_address(body: &[u8]) -> Option<(u32, IpAddr, u8)> {
    let (fixed, attributes) = body.split_at_checked(8)?;
    let (mut address, mut local) = (None, None);
    for (kind, data) in Attributes(attributes) {
        match kind {
            IFA_ADDRESS => address = ip_from_bytes(data),
            IFA_LOCAL => local = ip_from_bytes(data),
            _ => {}
        }
    }
    // On point-to-point interfaces IFA_ADDRESS is the other end.
    Some((word(&fixed[4..])?, local.or(address)?, fixed[1]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn loopback_is_direct_and_local() {
        let route = route_to(Ipv4Addr::LOCALHOST.into(), 0).unwrap();
        assert!(route.local && !route.routed);
        assert!(directly_connected(Ipv4Addr::LOCALHOST.into()).unwrap());
        let interfaces = interfaces().unwrap();
        let lo = interfaces.iter().find(|link| link.loopback).unwrap();
        assert!(lo.up);
        assert!(
            lo.addresses.contains(&(Ipv4Addr::LOCALHOST.into(), 8)),
            "{lo:?}"
        );
        assert_eq!(mtu_towards(Ipv4Addr::LOCALHOST.into()).unwrap(), lo.mtu);
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
        assert_eq!(route_to(mapped.into(), 0), Ok(route));
        assert_eq!(route_to(Ipv4Addr::LOCALHOST.into(), lo.index), Ok(route));
    }

    #[test]
    fn no_route_is_an_error() {
        // An address that is reserved for documentation, under a scope that
        // no interface has.
        let ip = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
        assert!(route_to(ip.into(), 0x7fff_ffff).is_err());
    }

    #[test]
    fn a_gateway_makes_a_route_routed_and_metrics_limit_it() {
        let mut body = vec![0; 12];
        push_attribute(&mut body, RTA_OIF, &3u32.to_ne_bytes());
        let direct = parse_route(&body).unwrap();
        assert_eq!((direct.interface, direct.routed, direct.mtu), (3, false, 0));
        push_attribute(&mut body, RTA_GATEWAY, &[10, 0, 0, 1]);
        push_attribute(&mut body, RTA_PREFSRC, &[10, 0, 0, 2]);
        let mut metrics = Vec::new();
        push_attribute(&mut metrics, 1, &1u32.to_ne_bytes());
        push_attribute(&mut metrics, RTAX_MTU, &1400u32.to_ne_bytes());
        push_attribute(&mut body, RTA_METRICS | 0x8000, &metrics);
        let routed = parse_route(&body).unwrap();
        assert_eq!((routed.routed, routed.mtu), (true, 1400));
        assert_eq!(routed.gateway, Some(IpAddr::from([10, 0, 0, 1])));
        assert_eq!(routed.source, Some(IpAddr::from([10, 0, 0, 2])));
        // A cut answer ends the walk and never panics.
        for cut in 0..body.len() {
            parse_route(&body[..cut]);
        }
    }
}
