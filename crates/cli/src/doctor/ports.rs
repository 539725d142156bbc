//! Host ports, opened for a moment on each interface where that is harmless.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use portolan_boot::HostPortInfo;
use portolan_boot::node::node_socket;
use portolan_hosts::node::{ONE_BUFFER_MAX, Opener, reachable, service, try_out};
use portolan_sys::features::Disabled;
use portolan_sys::net::{Interface, interfaces};

use super::Finding;

/// How to have it tried on cards, some of which reset their link then.
pub const TRY: &str = "portolan doctor --host-ports does";

/// What came of a rank's host port on an interface, for people to read.
#[derive(Clone, Debug)]
pub enum Port {
    /// What it is like.
    Opens(String),
    /// Why there is none.
    None(String),
    /// Nobody asked for it on a card.
    Untried,
}

/// What came of it on each interface.
pub struct Ports {
    all: BTreeMap<u32, Port>,
    /// About what they need beside an interface, where root looks.
    pub finding: Option<Finding>,
}

impl Ports {
    /// Opens one after the other; on network cards only if `on_cards`.
    pub fn look(disabled: &Disabled, on_cards: bool) -> Self {
        let (works, finding) = tried(disabled);
        let fast = reachable(disabled).and(works);
        let served = service().is_ok();
        let each = interfaces().unwrap_or_default().into_iter();
        let each = each.filter(|it| !it.loopback && !it.addresses.is_empty());
        let all = each.map(|it| {
            let possible = fast.clone().and_then(|()| possible(&it, served));
            let port = match possible.map(|()| on_cards || served || !is_card(&it)) {
                Ok(true) => open(&it, disabled).map_or_else(Port::None, Port::Opens),
                Ok(false) => Port::Untried,
                Err(why) => Port::None(why),
            };
            (it.index, port)
        });
        Self {
            all: all.collect(),
            finding,
        }
    }

    /// On the interface of this number.
    pub fn on(&self, index: u32) -> Port {
        let none = || Port::None("the interface has no address".to_owned());
        self.all.get(&index).cloned().unwrap_or_else(none)
    }
}

/// What of host ports can be tried without an interface, where root looks; and
/// the line about it.
fn tried(disabled: &Disabled) -> (Result<(), String>, Option<Finding>) {
    let name = "host-ports";
    if !rustix::process::geteuid().is_root() || disabled.xdp {
        return (Ok(()), None);
    }
    match try_out(disabled) {
        Ok(found) => (Ok(()), Some(Finding::ok(name, found))),
        Err(why) => {
            let found = format!("none, so that udp is used between hosts: {why}");
            let remedy = "a kernel that has run them (docs/operations.md)";
            (Err(why), Some(Finding::slower(name, found, remedy)))
        }
    }
}

/// Whether an interface could have one, as far as it says itself.
fn possible(it: &Interface, served: bool) -> Result<(), String> {
    let no = |why: &str| Err(why.to_owned());
    match it {
        it if it.mac.is_none() => no("it is no Ethernet"),
        it if !it.carries_host_ports() => no("it is down"),
        // The service's own program serves all.
        it if it.xdp && !served => no("another XDP program, or a running job, has it"),
        _ => Ok(()),
    }
}

/// Whether it is hardware, or passes for it.
fn is_card(it: &Interface) -> bool {
    Path::new("/sys/class/net")
        .join(&it.name)
        .join("device")
        .exists()
}

fn open(it: &Interface, disabled: &Disabled) -> Result<String, String> {
    let at: Option<IpAddr> = it.addresses.first().map(|(ip, _)| *ip);
    let port = Opener::default().open(&node_socket(), at, 1, disabled)?;
    Ok(packets(&port.info))
}

/// How long the packets of a host port can be, where that is not as long as the
/// interface takes.
fn packets(port: &HostPortInfo) -> String {
    if port.mtu as usize > ONE_BUFFER_MAX && !port.multi_buffer {
        format!("a host port, with packets of up to {ONE_BUFFER_MAX} bytes")
    } else {
        "a host port".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::networks::tests::eth;
    use super::*;

    #[test]
    fn why_there_is_no_host_port_is_said() {
        for (it, served, part) in [
            (Interface { mac: None, ..eth() }, false, "no Ethernet"),
            (Interface { up: false, ..eth() }, false, "down"),
            (Interface { xdp: true, ..eth() }, false, "another XDP"),
        ] {
            let why = possible(&it, served).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
        assert_eq!(possible(&Interface { xdp: true, ..eth() }, true), Ok(()));
        assert_eq!(possible(&eth(), false), Ok(()));
    }

    #[test]
    fn packets_that_are_shorter_than_the_interfaces_are_told() {
        let port = |mtu, multi_buffer| HostPortInfo {
            interface: 2,
            name: "eth0".to_owned(),
            mac: [2; 6],
            mtu,
            sharing: [0, 1],
            multi_buffer,
            unbound: false,
            sizes: [0; 6],
        };
        assert_eq!(packets(&port(1500, false)), "a host port");
        assert_eq!(packets(&port(9000, true)), "a host port");
        assert!(packets(&port(9000, false)).ends_with("of up to 3826 bytes"));
    }
}
