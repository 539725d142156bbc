//! Host ports of this process: passed by the launcher, or requested by the process
//! itself, outside of a job.

use std::any::Any;
use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Mutex;

use portolan_boot::node::{group_of, host_port_of, node_socket};
use portolan_boot::{HostPort, LinkChoice, OwnHostPort};
use portolan_runtime as engine;
use portolan_runtime::Address;
use portolan_sys::net::{Netlink, interfaces};

use crate::interfaces::Told;
use crate::open::OpenError;
use crate::settings::Settings;

/// Why a process with the setting `port` has no host port.
pub(crate) const OWN_PORT: &str = "it has a port of its own, and the setting port is not 0";

/// Holds a host port; any thread may drop it.
pub(crate) type Lease = Mutex<Box<dyn Any + Send>>;

/// Converts an address to the standard library's type.
fn ip_of(address: &Address) -> IpAddr {
    let ip = Ipv6Addr::from(address.ip);
    ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4)
}

/// How this rank reaches other hosts.
pub(crate) enum NetworkAccess {
    /// By a host port on this interface.
    HostPort {
        interface: u32,
        name: String,
        /// Bytes of the longest packet, where the interface takes longer ones.
        packet_max: Option<u32>,
    },
    /// By its socket; with the reason, if a host port was requested.
    Socket { why: Option<String> },
}

impl NetworkAccess {
    /// The link to a peer at `address` on another host, and the reason for it.
    pub fn to_host(&self, address: &Address) -> (&'static str, Cow<'static, str>) {
        match self {
            Self::HostPort {
                interface, name, ..
            } => {
                let route = Netlink::open().and_then(|kernel| kernel.route(ip_of(address), 0));
                let leaves_there = route.is_ok_and(|route| route.interface == *interface);
                if leaves_there {
                    ("xdp", format!("another host: {self}").into())
                } else {
                    let why = format!("another host, not by {name}, where the host port is");
                    ("udp", why.into())
                }
            }
            Self::Socket { why: None } => ("udp", "another host".into()),
            Self::Socket { why: Some(_) } => ("udp", format!("another host; {self}").into()),
        }
    }
}

impl fmt::Display for NetworkAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HostPort {
                name, packet_max, ..
            } => {
                write!(f, "host port on {name}")?;
                let most = packet_max.map(|most| write!(f, ", packets of up to {most} bytes"));
                most.unwrap_or(Ok(()))
            }
            Self::Socket { why: None } => f.write_str("socket"),
            Self::Socket { why: Some(why) } => write!(f, "no host port: {why}"),
        }
    }
}

/// Maps a host port, or returns the reason why that failed.
pub(crate) fn map(
    config: &engine::Config,
    port: OwnHostPort,
) -> Result<(NetworkAccess, engine::MappedHostPort), String> {
    let OwnHostPort {
        info,
        descriptors,
        first,
    } = port;
    let [area, socket, udp, gate] = descriptors;
    let [index, count] = info.sharing;
    let sizes = engine::HostPortSizes::from_words(info.sizes);
    let most = engine::host_port_packet_max(sizes.chunk, info.mtu, info.multi_buffer);
    let port = engine::HostPort {
        area,
        socket,
        first,
        udp,
        gate,
        sizes,
        sharing: engine::HostPortSharing { index, count },
        multi_buffer: info.multi_buffer,
        interface: info.interface,
        mac: info.mac,
        mtu: info.mtu,
    };
    let mapped = engine::MappedHostPort::map(config, port).map_err(|e| e.to_string())?;
    let way = NetworkAccess::HostPort {
        interface: info.interface,
        name: info.name,
        packet_max: (most < info.mtu).then_some(most),
    };
    Ok((way, mapped))
}

/// Requests a host port on the interface of this process's own address, in the queue
/// group that is set, and maps it; or returns the reason why there is none.
fn ask(
    settings: &Settings,
    config: &engine::Config,
    own: &Told,
) -> Result<(NetworkAccess, engine::MappedHostPort, Lease), String> {
    let disabled = &config.udp.disabled;
    if disabled.xdp {
        return Err("xdp is switched off".to_owned());
    }
    if config.udp.port != 0 {
        return Err(OWN_PORT.to_owned());
    }
    let carries = interfaces()
        .unwrap_or_default()
        .into_iter()
        .any(|it| it.carries_host_ports() && it.addresses.iter().any(|(ip, _)| *ip == own.ip));
    if !carries {
        return Err(format!("no Ethernet interface has the address {}", own.ip));
    }
    let program = settings.text("agent").map(OsStr::new);
    let group = group_of(settings.text("group"));
    let asked = host_port_of(&node_socket(), program, Some(own.ip), group, disabled);
    let HostPort {
        info,
        lease,
        descriptors,
        ..
    } = asked.map_err(|error| error.to_string())?;
    let port = OwnHostPort {
        info,
        descriptors,
        first: None,
    };
    let (way, mapped) = map(config, port)?;
    Ok((way, mapped, Mutex::new(lease)))
}

/// The host port of an endpoint outside of a job, if `link` requests one. The result is
/// logged.
///
/// # Errors
/// [`OpenError::NoHostPort`]: none, and `link` permits nothing else.
pub(crate) fn outside(
    link: LinkChoice,
    settings: &Settings,
    config: &engine::Config,
    own: Option<&Told>,
) -> Result<Option<(engine::MappedHostPort, Lease)>, OpenError> {
    let asked = match (link, own) {
        (LinkChoice::Auto | LinkChoice::Xdp, Some(own)) => ask(settings, config, own),
        _ => return Ok(None),
    };
    match asked {
        Ok((way, port, lease)) => {
            log::info!("other hosts are reached by xdp: {way}");
            Ok(Some((port, lease)))
        }
        Err(why) if link == LinkChoice::Xdp => Err(OpenError::NoHostPort { why }),
        Err(why) => {
            let why = Some(why);
            log::info!(
                "other hosts are reached by udp: {}",
                NetworkAccess::Socket { why }
            );
            Ok(None)
        }
    }
}
