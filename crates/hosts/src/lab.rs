//! The lab: a virtual cluster of network namespaces on one or two switches, or
//! two of them joined by a cable.
//!
//! Host i of lab NAME is the network namespace `ptl-NAME-hi`, with a UTS and
//! a mount namespace of its own; the switches are bridges in `ptl-NAME-sw`.
//! Namespaces are held by bind mounts, so no process needs to stay:
//!
//! - `/run/netns/ptl-NAME-*`: network namespaces, where `ip netns` sees them;
//! - `/run/portolan/lab/NAME/`: `lab.json`, `hosts` (the hosts' /etc/hosts),
//!   `hi.mnt` and `hi.uts`, `hi.run` (the host's /run/portolan); `ecn` where
//!   ports mark packets, `bpf`, `impair.json` and perhaps `wire.json` while
//!   packets suffer on purpose, `offload.json` once offload was switched off.
//!
//! `/run/portolan/lab` is a mount that propagates nowhere, as the kernel
//! demands of a place where mount namespaces are kept.

mod build;
#[cfg(test)]
mod built;
mod cable;
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
mod shell;
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
use crate::print::counted;
#[cfg(test)]
pub use built::Built;
use cable::Cable;
pub use cable::plug;
pub use command::{Arguments, command};
pub use host::{HostArguments, become_host};
pub use impair::impair;
pub use impairment::{Burst, Impairment};
use line::LabLink;
pub use loss::{Loss, LossCounters};
pub use offload::Offload;
pub use shell::{RemoteShell, SHELL_COMMAND, ShellArguments, remote_shell};
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
/// Most queues of an interface: more than cores that a lab has.
const QUEUES_MAX: u32 = 64;
/// Most switches.
const SWITCHES_MAX: u32 = 2;
/// Largest MTU of a veth at which the kernel (6.18) attaches XDP programs that
/// do not understand packets in several buffers, bytes: a page without the
/// room before and behind the packet and Ethernet's header.
const PLAIN_XDP_MTU_MAX: u32 = 3506;
const NAME_CHARS_MAX: usize = 32;

/// What a lab is asked for with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    hosts: u32,
    mtu: u32,
    #[serde(default)]
    line: Option<LabLink>,
    /// Of every device between a host and its switch.
    #[serde(default = "one")]
    queues: u32,
    /// Each host has an interface on each.
    #[serde(default = "one")]
    switches: u32,
    /// Two hosts are joined directly: the switch has no device.
    #[serde(default)]
    cable: bool,
}

/// What labs had before they could have more.
fn one() -> u32 {
    1
}

impl Shape {
    /// Checks its numbers; those of its line are.
    fn check(&self) -> Result<()> {
        let Self {
            hosts,
            mtu,
            queues,
            switches,
            cable,
            line,
        } = *self;
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
        if !(1..=QUEUES_MAX).contains(&queues) {
            return Err(Failure::usage(format!(
                "an interface of {queues} queues cannot be: give --queues 1 to {QUEUES_MAX}"
            )));
        }
        if !(1..=SWITCHES_MAX).contains(&switches) {
            return Err(Failure::usage(format!(
                "a lab of {switches} switches cannot be: give --switches 1 or {SWITCHES_MAX}"
            )));
        }
        if cable && (hosts != 2 || switches != 1 || line.is_some()) {
            return Err(Failure::usage(
                "--cable joins two hosts without a switch: give --hosts 2, and neither --switches \
                 nor --rate, --buffer and --ecn, which are the switch's",
            ));
        }
        Ok(())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} and MTU {}",
            counted(self.hosts as usize, "host"),
            self.mtu
        )?;
        if let Some(line) = &self.line {
            write!(f, ", {line}")?;
        }
        if self.queues > 1 {
            write!(f, ", {} queues", self.queues)?;
        }
        if self.switches > 1 {
            write!(f, ", {} switches", self.switches)?;
        }
        if self.cable {
            write!(f, ", joined by a cable")?;
        }
        Ok(())
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
    /// Those of the network on the second switch.
    #[serde(default)]
    second: Option<[u8; 2]>,
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
                    "no lab is up, or this is a host of one".to_owned()
                } else {
                    format!("up: {}", others.join(", "))
                };
                Err(Failure::usage(format!(
                    "lab {name} does not exist ({up}); `portolan lab up NAME --hosts N` makes one"
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

    /// Rate of its lines, bits per second.
    #[must_use]
    pub fn rate_bits_per_s(&self) -> Option<u64> {
        self.shape.line.map(|line| line.rate.bits_per_s())
    }

    /// Whether each host has an interface on a second switch.
    #[must_use]
    pub fn has_two_switches(&self) -> bool {
        self.shape.switches > 1
    }

    /// The switch's ports, at which something is to be done.
    ///
    /// # Errors
    /// Its two hosts are joined by a cable.
    fn need_switch(&self, doing: &str) -> Result<()> {
        if !self.shape.cable {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "lab {} is two hosts joined by a cable, and {doing} at a switch: make a lab without \
             --cable",
            self.name
        )))
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

    /// The IPv4 address of a host, on the first switch.
    #[must_use]
    pub fn ipv4(&self, host: u32) -> Ipv4Addr {
        self.ipv4_of(Cable { host, switch: 0 })
    }

    /// The IPv6 address of a host, on the first switch.
    #[must_use]
    pub fn ipv6(&self, host: u32) -> Ipv6Addr {
        self.ipv6_of(Cable { host, switch: 0 })
    }

    /// The name of a host's network namespace.
    #[must_use]
    pub fn host_namespace(&self, host: u32) -> String {
        format!("ptl-{}-h{host}", self.name)
    }

    /// The name of the switches' network namespace. Its device `hi` is the
    /// other end of host i's cable, `br0` the bridge; `hib` and `br1` are those
    /// of the second switch.
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
            let mut cables = self.cables();
            let found = cables.find(|&c| address == self.ipv4_of(c) || address == self.ipv6_of(c));
            found.map(|cable| cable.host)
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
        for cable in self.cables() {
            let host = cable.host;
            // A host's name is that of its first address.
            let name = match cable.switch {
                0 => format!("h{host}"),
                _ => format!("h{host}-{}", cable.interface()),
            };
            let _ = writeln!(text, "{} {name}", self.ipv4_of(cable));
            let _ = writeln!(text, "{} {name}", self.ipv6_of(cable));
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

    /// The host's own /run/portolan, as it is seen from outside.
    fn run_folder(&self, host: u32) -> PathBuf {
        self.folder().join(format!("h{host}.run"))
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
