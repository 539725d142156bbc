//! The interfaces that carry host ports of the node service.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use portolan_boot::HostPort;
use portolan_sys::features::Disabled;
use portolan_sys::net::{Interface, interfaces};
use portolan_sys::tell::tell;

use super::config::Config;
use super::pins::Pins;
use super::ports::{HostPorts, Lent, choose};
use super::queue::{Group, PortError, queue_bytes};
use super::state::Given;

/// The host ports of each interface that has some.
pub struct Interfaces {
    /// This network, as the kernel numbers it.
    network: u64,
    attached: BTreeMap<u32, HostPorts>,
    /// Those that carry none, since when.
    unused: BTreeMap<u32, Instant>,
}

/// Packet memory for a host port, bytes.
pub struct Cost {
    /// That it takes.
    pub each: u64,
    /// That is taken now for it: that of all if it is the first of its group.
    pub now: u64,
    /// That is to be lent for it, if it is the first.
    pub memory: Option<u64>,
}

/// What gives a host port back.
pub type Lease = Box<dyn std::any::Any + Send>;

impl Interfaces {
    /// None yet.
    pub fn new(network: u64) -> Self {
        Self {
            network,
            attached: BTreeMap::new(),
            unused: BTreeMap::new(),
        }
    }

    /// The interface for a host port.
    ///
    /// # Errors
    /// Why there is none, for people to read.
    pub fn choose(&self, at: Option<IpAddr>, config: &Config) -> Result<Interface, String> {
        choose(at, |it| config.allows(&it.name))
    }

    /// What one host port of `ranks` takes.
    pub fn cost(&self, on: &Interface, group: Group, ranks: u32) -> Cost {
        let (all, count, memory) = queue_bytes(on, ranks);
        let each = all.div_ceil(count.into());
        let ports = self.attached.get(&on.index);
        if ports.is_some_and(|it| it.is_of(group)) {
            let (now, memory) = (each, None);
            return Cost { each, now, memory };
        }
        let (now, memory) = (all, Some(memory));
        Cost { each, now, memory }
    }

    /// Opens a host port on an interface, one of `ranks` of `group`.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn open(
        &mut self,
        on: Interface,
        group: Group,
        ranks: u32,
        disabled: &Disabled,
        lent: Lent<'_>,
    ) -> Result<HostPort, PortError> {
        let index = on.index;
        if let Some(ports) = self.attached.get(&index) {
            ports.refresh(on, &self.pins(index))?;
        } else {
            let ports = HostPorts::pinned(on, &self.pins(index))?;
            // Nobody has been given what may be left there.
            ports.take_over(&[]);
            self.attached.insert(index, ports);
        }
        self.attached[&index].open_now(group, ranks, disabled, lent)
    }

    /// Whether somebody has one of the sockets of a host port, `open` being the
    /// UDP sockets that are.
    pub fn holds(&self, given: &Given, open: &BTreeSet<(u16, u64)>) -> bool {
        let ports = || self.attached.get(&given.interface);
        given.is_bound(open) || ports().is_some_and(|it| it.is_open(given.udp))
    }

    /// Takes over what an earlier service has left: of `given` host ports those
    /// that the program knows and that are held, each with its lease. Undoes the
    /// rest.
    pub fn take_over(
        &mut self,
        given: &[Given],
        open: &BTreeSet<(u16, u64)>,
    ) -> Vec<(Given, Lease)> {
        let mut kept = Vec::new();
        let present = interfaces().unwrap_or_default();
        for (index, pins) in Pins::all(self.network) {
            let here: Vec<&Given> = given.iter().filter(|it| it.interface == index).collect();
            let interface = present.iter().find(|it| it.index == index);
            let Some(interface) = interface.filter(|_| !here.is_empty()) else {
                let _ = pins.discard();
                continue;
            };
            let ports = match HostPorts::pinned(interface.clone(), &pins) {
                Ok(ports) => ports,
                Err(why) => {
                    let name = &interface.name;
                    tell(format_args!(
                        "portolan node: host ports of {name} go on through the kernel: {why}"
                    ));
                    let _ = pins.discard();
                    continue;
                }
            };
            let is_held = |it: &&&Given| it.is_bound(open) || ports.is_open(it.udp);
            let held: Vec<u16> = here.iter().filter(is_held).map(|it| it.udp).collect();
            for (udp, lease) in ports.take_over(&held) {
                let whose = here.iter().find(|it| it.udp == udp);
                kept.extend(whose.map(|it| ((*it).clone(), lease)));
            }
            self.attached.insert(index, ports);
        }
        kept
    }

    /// Leaves the interfaces that have not been in use for so long: some cards
    /// lose packets when a program comes or goes. Gives how long the next one
    /// stays.
    pub fn keep(&mut self, used: impl Fn(u32) -> bool, linger: Duration) -> Option<Duration> {
        let now = Instant::now();
        let (unused, pins) = (&mut self.unused, |index| Pins::of(self.network, index));
        let mut next: Option<Duration> = None;
        self.attached.retain(|index, _| {
            if used(*index) {
                unused.remove(index);
                return true;
            }
            let since = *unused.entry(*index).or_insert(now);
            let left = linger.saturating_sub(now - since);
            if left.is_zero() {
                unused.remove(index);
                // What cannot be undone now is undone by the next service.
                let _ = pins(*index).discard();
                return false;
            }
            next = Some(next.map_or(left, |next| next.min(left)));
            true
        });
        next
    }

    fn pins(&self, index: u32) -> Pins {
        Pins::of(self.network, index)
    }
}
