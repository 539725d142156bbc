//! The lab: a virtual cluster of network namespaces on a switch.
//!
//! Host i of lab NAME is the network namespace `ptl-NAME-hi`, with a UTS and
//! a mount namespace of its own; the switch is a bridge in `ptl-NAME-sw`.
//! Namespaces are held by bind mounts, so no process needs to stay:
//!
//! - `/run/netns/ptl-NAME-*`: network namespaces, where `ip netns` sees them;
//! - `/run/portolan/lab/NAME/`: `lab.json`, `hosts` (the hosts' /etc/hosts),
//!   `hi.mnt` and `hi.uts`; `ecn` where ports mark packets, `bpf`,
//!   `impair.json` and perhaps `wire.json` while packets suffer on purpose, `offload.json` once
//!   offload was switched off.
//!
//! `/run/portolan/lab` is a mount that propagates nowhere, as the kernel
//! demands of a place where mount namespaces are kept.

mod build;
#[cfg(test)]
mod built;
mod command;
mod enter;
mod host;
mod impair;
mod impairment;
mod late;
mod line;
mod loss;
mod offload;
mod remove;
mod status;
mod store;
#[cfg(test)]
mod tests;
mod tool;
mod wire;
mod wires;

use std::fmt::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};
#[cfg(test)]
pub use built::Built;
pub use command::{Arguments, command};
pub use host::{HostArguments, become_host};
use line::Line;
pub use loss::{Loss, LossCounters};
pub use offload::Offload;
pub use wire::{WIRE_COMMAND, WireArguments, become_wire};

/// The hidden command that sets up a host's namespaces.
pub const HOST_COMMAND: &str = "internal-lab-host";

/// Most hosts of a lab: they share a /24 network.
pub const HOSTS_MAX: u32 = 250;
/// MTU of a lab unless asked otherwise, bytes: plain Ethernet's.
pub const MTU_DEFAULT: u32 = 1500;
/// Least MTU: IPv6 needs 1,280.
const MTU_MIN: u32 = 1280;
/// Largest MTU of a veth.
const MTU_MAX: u32 = 65_535;
const NAME_CHARS_MAX: usize = 32;

/// What a lab is asked for with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    hosts: u32,
    mtu: u32,
    #[serde(default)]
    line: Option<Line>,
}

impl Shape {
    /// Checks its numbers; those of its line are.
    fn check(&self) -> Result<()> {
        let Self { hosts, mtu, .. } = *self;
        if hosts == 0 || hosts > HOSTS_MAX {
            return Err(Failure::usage(format!(
                "a lab of {hosts} hosts cannot be: give --hosts 1 to {HOSTS_MAX}"
            )));
        }
        if !(MTU_MIN..=MTU_MAX).contains(&mtu) {
            return Err(Failure::usage(format!(
                "an MTU of {mtu} bytes cannot be: give --mtu {MTU_MIN} to {MTU_MAX}"
            )));
        }
        Ok(())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} hosts and MTU {}", self.hosts, self.mtu)?;
        match &self.line {
            Some(line) => write!(f, ", {line}"),
            None => Ok(()),
        }
    }
}

/// A lab as its file describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lab {
    name: String,
    #[serde(flatten)]
    shape: Shape,
    /// Second and third byte of its IPv4 network, and part of its IPv6 one.
    network: [u8; 2],
    /// It was built to the end.
    ready: bool,
}

impl Lab {
    /// The lab `name`, which must be up.
    ///
    /// # Errors
    /// It does not exist, or its building was interrupted.
    pub fn open(name: &str) -> Result<Self> {
        check_name(name)?;
        match store::read(name)? {
            Some(lab) if lab.ready => Ok(lab),
            Some(_) => Err(Failure::usage(format!(
                "lab {name} was not built to the end: run `portolan lab up {name}` again"
            ))),
            None => {
                let others: Vec<String> = store::list()?.into_iter().map(|lab| lab.name).collect();
                let up = if others.is_empty() {
                    "no lab is up".to_owned()
                } else {
                    format!("up: {}", others.join(", "))
                };
                Err(Failure::usage(format!(
                    "lab {name} does not exist ({up}): make it with \
                     `portolan lab up {name} --hosts N`"
                )))
            }
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of hosts.
    #[must_use]
    pub fn hosts(&self) -> u32 {
        self.shape.hosts
    }

    /// Whether its ports mark packets.
    fn marks(&self) -> bool {
        self.shape.line.is_some_and(|line| line.ecn.is_some())
    }

    /// MTU of every device, bytes.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        self.shape.mtu
    }

    /// The IPv4 address of a host.
    #[must_use]
    pub fn ipv4(&self, host: u32) -> Ipv4Addr {
        let [x, y] = self.network;
        Ipv4Addr::new(10, x, y, last_byte(host))
    }

    /// The IPv6 address of a host.
    #[must_use]
    pub fn ipv6(&self, host: u32) -> Ipv6Addr {
        let network = u16::from_be_bytes(self.network);
        let host = u16::from(last_byte(host));
        // A unique local address (RFC 4193) whose global id begins with "ptl".
        Ipv6Addr::new(0xfd70, 0x746c, network, 0, 0, 0, 0, host)
    }

    /// The Ethernet address of a host, locally administered.
    fn mac(&self, host: u32) -> String {
        let [x, y] = self.network;
        format!("02:70:74:{x:02x}:{y:02x}:{:02x}", last_byte(host))
    }

    /// The name of a host's network namespace.
    #[must_use]
    pub fn host_namespace(&self, host: u32) -> String {
        format!("ptl-{}-h{host}", self.name)
    }

    /// The name of the switch's network namespace. Its device `hi` is the
    /// port of host i, `br0` the bridge.
    #[must_use]
    pub fn switch_namespace(&self) -> String {
        format!("ptl-{}-sw", self.name)
    }

    /// All network namespaces: the switch's, then the hosts'.
    fn namespaces(&self) -> Vec<String> {
        let hosts = (0..self.shape.hosts).map(|host| self.host_namespace(host));
        std::iter::once(self.switch_namespace())
            .chain(hosts)
            .collect()
    }

    /// Finds a host by name (`h1`), number or address.
    ///
    /// # Errors
    /// It is none of the lab's.
    pub fn find_host(&self, text: &str) -> Result<u32> {
        let number = text.strip_prefix('h').unwrap_or(text).parse().ok();
        let by_address = || {
            let address: std::net::IpAddr = text.parse().ok()?;
            (0..self.shape.hosts).find(|&h| address == self.ipv4(h) || address == self.ipv6(h))
        };
        number
            .filter(|&host| host < self.shape.hosts)
            .or_else(by_address)
            .ok_or_else(|| {
                let (name, last) = (&self.name, self.shape.hosts - 1);
                Failure::usage(format!(
                    "lab {name} has no host {text}: it has h0 to h{last}"
                ))
            })
    }

    /// What stands in the hosts' /etc/hosts.
    fn hosts_file(&self) -> String {
        let mut text =
            String::from("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n");
        for host in 0..self.shape.hosts {
            let _ = writeln!(text, "{} h{host}", self.ipv4(host));
            let _ = writeln!(text, "{} h{host}", self.ipv6(host));
        }
        text
    }

    /// Where its files are.
    fn folder(&self) -> PathBuf {
        store::folder(&self.name)
    }

    fn mount_file(&self, host: u32) -> PathBuf {
        self.folder().join(format!("h{host}.mnt"))
    }

    fn uts_file(&self, host: u32) -> PathBuf {
        self.folder().join(format!("h{host}.uts"))
    }
}

/// The file that holds a network namespace.
fn namespace_file(namespace: &str) -> PathBuf {
    PathBuf::from("/run/netns").join(namespace)
}

fn last_byte(host: u32) -> u8 {
    u8::try_from(host + 1).expect("at most HOSTS_MAX hosts")
}

fn check_name(name: &str) -> Result<()> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if name.is_empty()
        || name.len() > NAME_CHARS_MAX
        || name.starts_with('-')
        || !name.chars().all(good)
    {
        return Err(Failure::usage(format!(
            "{name:?} cannot name a lab: use 1 to {NAME_CHARS_MAX} of a-z, A-Z, 0-9 and -"
        )));
    }
    Ok(())
}
