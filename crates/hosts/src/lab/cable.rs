//! What ties a host to a switch.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use super::tool::ip_batch;
use super::{Lab, last_byte, store};
use crate::failure::{Failure, Result};

/// A host's way to one of the lab's switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cable {
    pub host: u32,
    pub switch: u32,
}

impl Cable {
    /// The name of a device of its in the switches' network, by kind.
    pub fn device(self, kind: char) -> String {
        match self.switch {
            0 => format!("{kind}{}", self.host),
            _ => format!("{kind}{}b", self.host),
        }
    }

    /// The number of the host whose cable has a device of this kind.
    pub fn of_device(device: &str, kind: char) -> Option<Self> {
        let rest = device.strip_prefix(kind)?;
        let (number, switch) = match rest.strip_suffix('b') {
            Some(number) => (number, 1),
            None => (rest, 0),
        };
        let host = number.parse().ok()?;
        Some(Self { host, switch })
    }

    /// The host's device.
    pub fn interface(self) -> String {
        format!("eth{}", self.switch)
    }

    /// The switch.
    pub fn bridge(self) -> String {
        format!("br{}", self.switch)
    }
}

impl Lab {
    pub(super) fn switches(&self) -> Range<u32> {
        0..self.shape.switches
    }

    /// All cables, those to the first switch first.
    pub(super) fn cables(&self) -> impl Iterator<Item = Cable> + '_ {
        let hosts = 0..self.shape.hosts;
        self.switches()
            .flat_map(move |switch| hosts.clone().map(move |host| Cable { host, switch }))
    }

    /// Its place among [`Lab::cables`].
    pub(super) fn place_of(&self, cable: Cable) -> u32 {
        cable.switch * self.shape.hosts + cable.host
    }

    fn network_of(&self, switch: u32) -> [u8; 2] {
        match (switch, self.second) {
            (1, Some(network)) => network,
            _ => self.network,
        }
    }

    /// The networks that no other lab may have.
    pub(super) fn networks(&self) -> impl Iterator<Item = [u8; 2]> {
        std::iter::once(self.network).chain(self.second)
    }

    pub(super) fn ipv4_of(&self, cable: Cable) -> Ipv4Addr {
        let [x, y] = self.network_of(cable.switch);
        Ipv4Addr::new(10, x, y, last_byte(cable.host))
    }

    pub(super) fn ipv6_of(&self, cable: Cable) -> Ipv6Addr {
        let network = u16::from_be_bytes(self.network_of(cable.switch));
        let host = u16::from(last_byte(cable.host));
        // A unique local address (RFC 4193) whose global id begins with "ptl".
        Ipv6Addr::new(0xfd70, 0x746c, network, 0, 0, 0, 0, host)
    }

    /// An Ethernet address, locally administered.
    pub(super) fn mac_of(&self, cable: Cable) -> String {
        let [x, y] = self.network_of(cable.switch);
        format!("02:70:74:{x:02x}:{y:02x}:{:02x}", last_byte(cable.host))
    }
}

/// Pulls out the cables of a host, or plugs them in again; only that to
/// `switch` if one is named.
///
/// # Errors
/// No such switch, or none at all; not root.
pub fn plug(lab: &Lab, host: u32, switch: Option<u32>, up: bool) -> Result<()> {
    store::need_root()?;
    lab.need_switch("a cable is pulled out")?;
    if let Some(switch) = switch.filter(|switch| !lab.switches().contains(switch)) {
        return Err(Failure::usage(format!(
            "lab {} has no switch {switch}: it has {} (0 is that of eth0)",
            lab.name, lab.shape.switches
        )));
    }
    // At the switch's end, so that the host keeps addresses, routes and
    // neighbours: it sees that nothing is plugged in.
    let chosen = |cable: &Cable| cable.host == host && switch.is_none_or(|s| s == cable.switch);
    let state = if up { "up" } else { "down" };
    let lines: Vec<String> = lab
        .cables()
        .filter(chosen)
        .map(|cable| format!("link set {} {state}", cable.device('h')))
        .collect();
    ip_batch(&lab.switch_namespace(), &lines)
}
