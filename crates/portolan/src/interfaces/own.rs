//! Chooses the address of this host that is announced to others, and the reason.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use portolan_sys::net::{
    Interface, NotASubnet, Route, Subnet, default_routes, interfaces, is_link_local,
};

use crate::open::OpenError;

/// Maximum number of interfaces that a reason names; a host may have hundreds of bridges.
const NAMED_MAX: usize = 3;
/// Hardware types: `ARPHRD_ETHER` and `ARPHRD_INFINIBAND`.
const CARDS: [u16; 2] = [1, 32];

/// Kind of an interface; the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// A network card, or an interface over one or several: a bond, a VLAN, a bridge
    /// with a card in it.
    Card,
    /// One end of a pair: the network of a container, or the way to one.
    Pair,
    /// A bridge without a card: it mostly connects containers of this host.
    Bridge,
    /// A tunnel, as VPNs have: slower than the network below it.
    Tunnel,
    /// Holds addresses; no packet leaves by it.
    Dummy,
    Loopback,
}

impl Kind {
    fn of(it: &Interface, all: &[Interface]) -> Self {
        let has_card = |bridge: &Interface| {
            let mut ports = all.iter().filter(|port| port.master == bridge.index);
            ports.any(|port| port.kind != "bridge" && Self::of(port, &[]) == Self::Card)
        };
        match &it.kind[..] {
            _ if it.loopback => Self::Loopback,
            "dummy" => Self::Dummy,
            "veth" | "netkit" => Self::Pair,
            "bridge" if has_card(it) => Self::Card,
            "bridge" | "openvswitch" => Self::Bridge,
            // Tunnels that imitate Ethernet; the others do not.
            "tun" | "vxlan" | "geneve" | "gretap" | "ip6gretap" | "erspan" | "ip6erspan" => {
                Self::Tunnel
            }
            _ if CARDS.contains(&it.hardware) => Self::Card,
            _ => Self::Tunnel,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Card => "a network card",
            Self::Pair => "a virtual cable (veth)",
            Self::Bridge => "a bridge",
            Self::Tunnel => "a tunnel",
            Self::Dummy => "a dummy",
            Self::Loopback => "the loopback",
        }
    }
}

/// The announced address, and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The address.
    pub ip: IpAddr,
    /// Name of its interface; empty if the launcher gave the address.
    pub interface: String,
    /// The reason for this address, as a sentence without a full stop.
    pub reason: String,
    /// All addresses that may be announced, each with its network, `ip` first. Empty if
    /// `ip` is the loopback's because there is no other.
    pub addresses: Vec<Subnet>,
    /// One address of each other interface, and the reason why it was not chosen.
    pub passed: Vec<(IpAddr, String)>,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.ip, self.reason)
    }
}

impl Told {
    /// The address by which the launcher knows this host.
    pub(crate) fn by_launcher(ip: IpAddr) -> Self {
        Self {
            interface: String::new(),
            ..Self::alone(ip, "the launcher knows this host by it")
        }
    }

    fn alone(ip: IpAddr, reason: impl Into<String>) -> Self {
        Self {
            ip,
            interface: "lo".to_owned(),
            reason: reason.into(),
            addresses: Vec::new(),
            passed: Vec::new(),
        }
    }
}

/// Chooses the address of this host that is announced to others. `interface` and `address`
/// are the settings of these names; what they name counts. Otherwise network cards
/// come first, then virtual cables, bridges, tunnels; among several of a kind the one that
/// leads to the default route, IPv4 first. An interface without a carrier comes after
/// those with one. The loopback's address is the last resort.
///
/// # Errors
/// [`OpenError::Interface`], [`OpenError::Address`]: a setting is malformed or names
/// nothing that this host has. The text lists this host's networks.
pub fn told(interface: Option<&str>, address: Option<&str>) -> Result<Told, OpenError> {
    let all = match interfaces() {
        Err(errno) if interface.is_none() && address.is_none() => {
            let why = format!("the kernel does not tell of interfaces ({errno})");
            return Ok(Told::alone(Ipv4Addr::LOCALHOST.into(), why));
        }
        all => all.unwrap_or_default(),
    };
    // If the routes cannot be read, the interfaces decide.
    let routes = [false, true].map(|v6| default_routes(v6).unwrap_or_default());
    among(&all, &routes, interface, address)
}

/// An address that could be announced.
struct Candidate<'a> {
    own: Subnet,
    it: &'a Interface,
    kind: Kind,
    /// Number of the default route whose packets have this source, and the interface
    /// by which they leave.
    leads: Option<(usize, &'a str)>,
}

impl Candidate<'_> {
    /// Sort key: the best candidate has the least.
    fn rank(&self) -> impl Ord + use<> {
        let goes_nowhere = self.kind >= Kind::Dummy;
        let route = self.leads.map_or(usize::MAX, |(number, _)| number);
        let v6 = self.own.ip.is_ipv6();
        (goes_nowhere, !self.it.carrier, self.kind, route, v6)
    }

    /// The reason why `best` was preferred.
    fn passed(&self, best: &Self) -> String {
        let name = &self.it.name;
        let leads = match self.leads {
            Some(_) => ", which leads to the default route,",
            None => "",
        };
        let is_last = self.kind >= Kind::Dummy;
        match (best.leads, self.leads) {
            _ if best.it.carrier && !self.it.carrier && !is_last => {
                format!("{name} has no carrier")
            }
            _ if self.kind != best.kind => format!("{name}{leads} is {}", self.kind.name()),
            (Some(_), None) => format!("{name} does not lead to the default route"),
            (Some(_), Some(_)) => format!("the default route by {name} comes later"),
            _ => format!("{name} comes later"),
        }
    }
}

/// The source addresses of packets on default routes, and the interface by which each
/// leaves; the most preferred route first.
fn sources<'a>(all: &'a [Interface], routes: &[Vec<Route>; 2]) -> Vec<(IpAddr, &'a Interface)> {
    let each = |v6: usize| routes[v6].iter().map(move |route| (v6 == 1, route));
    let source = |(v6, route): (bool, &Route)| {
        let by = all.iter().find(|it| it.index == route.interface)?;
        let own = by.addresses.iter();
        let own = own.filter(|(ip, _)| ip.is_ipv6() == v6 && !is_link_local(ip));
        let own: Vec<Subnet> = own.filter_map(|(ip, n)| Subnet::new(*ip, *n)).collect();
        // Among several addresses the kernel takes one of the router's network.
        let is_near = |own: &&Subnet| route.gateway.is_some_and(|ip| own.contains(ip));
        let of_it = own.iter().find(is_near).or(own.first());
        Some((route.source.or(of_it.map(|own| own.ip))?, by))
    };
    each(0).chain(each(1)).filter_map(source).collect()
}

fn among(
    all: &[Interface],
    routes: &[Vec<Route>; 2],
    interface: Option<&str>,
    address: Option<&str>,
) -> Result<Told, OpenError> {
    let first = match interface.map(|text| super::among(text, all)) {
        Some(Err(why)) => return Err(OpenError::Interface { why }),
        chosen => chosen
            .and_then(Result::ok)
            .unwrap_or_default()
            .first()
            .copied(),
    };
    let wrong = |why| OpenError::Address { why };
    let wanted = address.map(|text| {
        text.parse::<Subnet>().map_err(|NotASubnet| {
            wrong(format!(
                "{text:?}: give an IP address or a network (10.1.0.0/16); the setting interface \
                 takes names"
            ))
        })
    });
    let wanted = wanted.transpose()?;
    let named = |ip: IpAddr| match (wanted, first) {
        (None, None) => !ip.is_loopback() && !is_link_local(&ip),
        _ => wanted.is_none_or(|it| it.contains(ip)) && first.is_none_or(|it| it.ip == ip),
    };
    let sources = sources(all, routes);
    let candidate = |it| {
        move |(ip, n): &(IpAddr, u8)| Some((it, Subnet::new(*ip, *n).filter(|own| named(own.ip))?))
    };
    let up = all.iter().filter(|it| it.up);
    let found = up.flat_map(|it| it.addresses.iter().filter_map(candidate(it)));
    let found = found.map(|(it, own)| {
        let number = sources.iter().position(|(ip, _)| *ip == own.ip);
        let kind = Kind::of(it, all);
        Candidate {
            own,
            it,
            // A host with several ways to the network may have its address elsewhere.
            kind: number.map_or(kind, |i| kind.min(Kind::of(sources[i].1, all))),
            leads: number.map(|i| (i, &sources[i].1.name[..])),
        }
    });
    let mut found: Vec<_> = found.collect();
    found.sort_by_key(Candidate::rank);
    let Some((best, others)) = found.split_first() else {
        return match (address, first) {
            (None, _) => {
                let why = "there is no other network";
                Ok(Told::alone(Ipv4Addr::LOCALHOST.into(), why))
            }
            (Some(text), Some(first)) => Err(wrong(format!(
                "{text}, and the setting interface names {} first, which is not of it: give one \
                 of the two",
                first.ip
            ))),
            (Some(text), None) => Err(wrong(format!(
                "{text}, and no interface of this host that is up has such an address: it has {}",
                super::there(all)
            ))),
        };
    };
    let mut seen = vec![best.it.index];
    let mut passed = Vec::new();
    for other in others {
        if !seen.contains(&other.it.index) {
            seen.push(other.it.index);
            passed.push((other.own.ip, other.passed(best)));
        }
    }
    Ok(Told {
        ip: best.own.ip,
        interface: best.it.name.clone(),
        reason: reason(best, others, &passed, interface, address),
        addresses: found.iter().map(|it| it.own).collect(),
        passed,
    })
}

fn reason(
    best: &Candidate,
    others: &[Candidate],
    passed: &[(IpAddr, String)],
    interface: Option<&str>,
    address: Option<&str>,
) -> String {
    let name = &best.it.name;
    match (address, interface) {
        (Some(text), _) => return format!("{name}: the setting address is {text}"),
        (_, Some(text)) => return format!("{name}: the setting interface is {text}"),
        _ if passed.is_empty() => return format!("{name} is the only network"),
        _ => {}
    }
    let is_earlier = |number| move |it: &Candidate| it.leads.is_some_and(|(own, _)| own < number);
    match best.leads {
        Some((number, by)) if !others.iter().any(is_earlier(number)) => {
            format!("{by} leads to the default route")
        }
        _ => {
            let shown = passed.iter().take(NAMED_MAX);
            let shown: Vec<&str> = shown.map(|(_, why)| &why[..]).collect();
            let more = match passed.len().saturating_sub(NAMED_MAX) {
                0 => String::new(),
                more => format!(", and {more} more"),
            };
            format!("{name}: {}{more}", shown.join(", "))
        }
    }
}

#[cfg(test)]
mod tests;
