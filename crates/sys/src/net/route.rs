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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its index (the scope of link-local addresses).
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Largest IP packet, bytes.
    pub mtu: usize,
    /// It is switched on.
    pub up: bool,
    /// It has a carrier: something is at its other end, as far as its driver knows.
    pub carrier: bool,
    /// It is the loopback.
    pub loopback: bool,
    /// What kind of device it imitates, as `ip link` calls it (`bridge`, `veth`,
    /// `tun`); empty for hardware.
    pub kind: String,
    /// What its link layer is, as the kernel counts it (`ARPHRD_ETHER` is 1).
    pub hardware: u16,
    /// Index of the bridge or bond that it is part of, or 0.
    pub master: u32,
    /// Its Ethernet address, if it has one.
    pub mac: Option<[u8; 6]>,
    /// An XDP program is attached to it.
    pub xdp: bool,
    /// Its addresses with the length of their network prefix, bits.
    pub addresses: Vec<(IpAddr, u8)>,
}

impl Interface {
    /// Whether it is of the kind that carries host ports, and up.
    #[must_use]
    pub const fn carries_host_ports(&self) -> bool {
        self.up && !self.loopback && self.mac.is_some() && !self.addresses.is_empty()
    }
}

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;

const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;
const RT_TABLE_MAIN: u8 = 254;
/// Of a route: its interface is down.
const RTNH_F_DEAD: u32 = 1;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_VIA: u16 = 18;
const RTAX_MTU: u16 = 2;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const XDP_ATTACHED_NONE: u8 = 0;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFF_UP: u32 = 1;
const IFF_LOOPBACK: u32 = 8;
const IFF_LOWER_UP: u32 = 1 << 16;

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

/// The default routes of IPv4 (or of IPv6, if `v6`) in the main table, those that the
/// kernel prefers first. Of a route with several next hops it is the first.
///
/// # Errors
/// `EACCES` or `EPERM` where netlink is not permitted.
pub fn default_routes(v6: bool) -> Result<Vec<Route>, Errno> {
    let mut found = Vec::new();
    // A rtmsg of this family, all else open.
    let mut request = [0; 12];
    request[0] = if v6 { AF_INET6 } else { AF_INET } as u8;
    Netlink::open()?.request(
        RTM_GETROUTE,
        NLM_F_REQUEST | NLM_F_DUMP,
        &request,
        |kind, body| {
            if kind == RTM_NEWROUTE {
                found.extend(parse_default(body));
            }
        },
    )?;
    found.sort_by_key(|(metric, _)| *metric);
    Ok(found.into_iter().map(|(_, route)| route).collect())
}

/// A default route of the main table that can be used, with its metric.
fn parse_default(body: &[u8]) -> Option<(u32, Route)> {
    let (fixed, attributes) = body.split_at_checked(12)?;
    let is_default = fixed[1] == 0 && fixed[4] == RT_TABLE_MAIN && fixed[7] == RTN_UNICAST;
    if !is_default || word(&fixed[8..])? & RTNH_F_DEAD != 0 {
        return None;
    }
    let metric = Attributes(attributes).find(|(kind, _)| *kind == RTA_PRIORITY);
    let metric = metric.and_then(|(_, data)| word(data)).unwrap_or(0);
    Some((metric, parse_route(body)?))
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
            // A rtnexthop, its attributes, and others of the same form.
            RTA_MULTIPATH => {
                let length = u16::from_ne_bytes(*data.first_chunk()?);
                route.interface = word(data.get(4..)?)?;
                for (kind, data) in Attributes(data.get(8..usize::from(length))?) {
                    route.go_by(kind, data);
                }
            }
            RTA_PREFSRC => route.source = ip_from_bytes(data),
            RTA_METRICS => {
                let mtu = Attributes(data).find(|(metric, _)| *metric == RTAX_MTU);
                route.mtu = mtu.and_then(|(_, data)| word(data)).unwrap_or(0) as usize;
            }
            kind => route.go_by(kind, data),
        }
    }
    Some(route)
}

impl Route {
    /// Takes in an attribute that names a router.
    fn go_by(&mut self, kind: u16, data: &[u8]) {
        let gateway = match kind {
            RTA_GATEWAY => ip_from_bytes(data),
            // Two bytes of address family come first.
            RTA_VIA => data.get(2..).and_then(ip_from_bytes),
            _ => return,
        };
        (self.routed, self.gateway) = (true, gateway);
    }
}

/// The text of an attribute that ends with a zero.
fn text(data: &[u8]) -> String {
    let text = data.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

fn parse_link(body: &[u8]) -> Option<Interface> {
    let (fixed, attributes) = body.split_at_checked(16)?;
    let flags = word(&fixed[8..])?;
    let mut link = Interface {
        index: word(&fixed[4..])?,
        up: flags & IFF_UP != 0,
        carrier: flags & IFF_LOWER_UP != 0,
        loopback: flags & IFF_LOOPBACK != 0,
        hardware: u16::from_ne_bytes([fixed[2], fixed[3]]),
        ..Interface::default()
    };
    for (kind, data) in Attributes(attributes) {
        match kind {
            IFLA_IFNAME => link.name = text(data),
            IFLA_MASTER => link.master = word(data)?,
            IFLA_LINKINFO => {
                let mut about = Attributes(data);
                let kind = about.find(|(kind, _)| *kind == IFLA_INFO_KIND);
                link.kind = kind.map_or_else(String::new, |(_, data)| text(data));
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
        assert!(lo.up && lo.carrier && lo.kind.is_empty() && lo.hardware == 772);
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

    #[test]
    fn default_routes_are_those_of_the_main_table_that_can_be_used() {
        let of = |length: u8, table: u8, kind: u8, flags: u32| {
            let mut body = vec![AF_INET as u8, length, 0, 0, table, 0, 0, kind];
            body.extend(flags.to_ne_bytes());
            push_attribute(&mut body, RTA_PRIORITY, &600u32.to_ne_bytes());
            push_attribute(&mut body, RTA_OIF, &3u32.to_ne_bytes());
            body
        };
        let (metric, route) = parse_default(&of(0, 254, 1, 0)).unwrap();
        assert_eq!((metric, route.interface, route.routed), (600, 3, false));
        for (length, table, kind, flags) in [
            (24, 254, 1, 0),
            (0, 255, 1, 0),
            (0, 254, 7, 0),
            (0, 254, 1, 1),
        ] {
            assert_eq!(parse_default(&of(length, table, kind, flags)), None);
        }
        for v6 in [false, true] {
            default_routes(v6).unwrap();
        }
    }

    #[test]
    fn of_several_next_hops_the_first_counts() {
        let mut hops = Vec::new();
        for (interface, gateway) in [(7_u32, 1_u8), (8, 2)] {
            hops.extend(16_u16.to_ne_bytes());
            hops.extend([0; 2]);
            hops.extend(interface.to_ne_bytes());
            push_attribute(&mut hops, RTA_GATEWAY, &[10, 0, 0, gateway]);
        }
        let mut body = vec![0; 12];
        push_attribute(&mut body, RTA_MULTIPATH, &hops);
        let route = parse_route(&body).unwrap();
        assert_eq!(route.interface, 7);
        assert_eq!(route.gateway, Some(IpAddr::from([10, 0, 0, 1])));
        for cut in 0..body.len() {
            parse_route(&body[..cut]);
        }
    }
}
