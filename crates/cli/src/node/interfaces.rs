//! The interfaces that carry host ports of the node service.

use std::collections::BTreeMap;
use std::net::IpAddr;

use portolan_boot::HostPort;
use portolan_sys::features::Disabled;
use portolan_sys::net::{Interface, interfaces};
use portolan_sys::tell::tell;

use super::config::Config;
use super::pins::Pins;
use super::ports::{HostPorts, PortError, choose, queue_bytes};
use super::state::Given;

/// The host ports of each interface that has some.
pub struct Interfaces {
    /// This network, as the kernel numbers it.
    network: u64,
    attached: BTreeMap<u32, HostPorts>,
}

/// What gives a host port back.
pub type Lease = Box<dyn std::any::Any + Send>;

impl Interfaces {
    /// None yet.
    pub fn new(network: u64) -> Self {
        Self {
            network,
            attached: BTreeMap::new(),
        }
    }

    /// The interface for a host port.
    ///
    /// # Errors
    /// Why there is none, for people to read.
    pub fn choose(&self, at: Option<IpAddr>, config: &Config) -> Result<Interface, String> {
        choose(at, |it| config.allows(&it.name))
    }

    /// Packet memory that one host port of `ranks` takes, bytes, and what is
    /// taken now for it: that of all if it is the first of its group.
    pub fn cost(&self, on: &Interface, group: u64, ranks: u32) -> (u64, u64) {
        let (all, count) = queue_bytes(on, ranks);
        let each = all.div_ceil(count.into());
        let goes_on = self
            .attached
            .get(&on.index)
            .is_some_and(|it| it.is_of(group));
        (each, if goes_on { each } else { all })
    }

    /// Opens a host port on an interface, one of `ranks` of `group`.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn open(
        &mut self,
        on: Interface,
        group: u64,
        ranks: u32,
        disabled: &Disabled,
    ) -> Result<HostPort, PortError> {
        let index = on.index;
        if let Some(ports) = self.attached.get(&index) {
            ports.refresh(on);
        } else {
            let ports = HostPorts::pinned(on, &self.pins(index))?;
            // Nobody has been given what may be left there.
            ports.take_over(&[]);
            self.attached.insert(index, ports);
        }
        self.attached[&index].open_now(group, ranks, disabled)
    }

    /// Takes over what an earlier service has left: of `given` host ports those
    /// that are steered still, each with its lease. Undoes the rest.
    pub fn take_over(&mut self, given: Vec<Given>) -> Vec<(Given, Lease)> {
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
            let held: Vec<u16> = here.iter().map(|it| it.udp).collect();
            for (udp, lease) in ports.take_over(&held) {
                let whose = here.iter().find(|it| it.udp == udp);
                kept.extend(whose.map(|it| ((*it).clone(), lease)));
            }
            self.attached.insert(index, ports);
        }
        self.keep(|index| kept.iter().any(|(it, _)| it.interface == index));
        kept
    }

    /// Leaves the interfaces that are not in use.
    pub fn keep(&mut self, used: impl Fn(u32) -> bool) {
        let unused: Vec<u32> = self
            .attached
            .keys()
            .copied()
            .filter(|i| !used(*i))
            .collect();
        for index in unused {
            self.attached.remove(&index);
            // What cannot be undone now is undone by the next service.
            let _ = self.pins(index).discard();
        }
    }

    fn pins(&self, index: u32) -> Pins {
        Pins::of(self.network, index)
    }
}
