//! Opening host ports, as whoever has the privilege.

use std::any::Any;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portolan_boot::{HostPort, HostPortInfo, Unbound};
use portolan_link::udp::UdpConfig;
use portolan_link::xdp::packet_max;
use portolan_sys::features::Disabled;
use portolan_sys::memory::SharedMemory;
use portolan_sys::net::{Interface, UdpSocket, interfaces};
use portolan_sys::xdp::{self, XdpError};

use super::pins::Pins;
use super::queue::{
    Binding, Group, PortError, QUEUE, Queue, failed, modes, patiently, refuse_missing,
};
use super::steering::{SHARERS, SharedProgram, Steering};

/// What the kernel's socket of a host port holds, bytes: as many packets as
/// wait for the fast path.
const RECEIVE_BUFFER: usize = 2_400 << 10;

const ETHERNET_HEADER: u32 = 14;
/// The host ports of one network.
#[derive(Clone, Default)]
pub struct HostPorts(Arc<Mutex<Open>>);

/// Those of several networks, whose interfaces share programs: each program
/// that is attached has the kernel wait for all processors.
#[derive(Default)]
pub struct Networks {
    made: u32,
    shared: SharedProgram,
}

impl Networks {
    /// Those of one more network.
    pub fn another(&mut self) -> HostPorts {
        if self.made.is_multiple_of(SHARERS) {
            self.shared = SharedProgram::default();
        }
        self.made += 1;
        HostPorts(Arc::new(Mutex::new(Open {
            shared: self.shared.clone(),
            ..Open::default()
        })))
    }
}

#[derive(Default)]
struct Open {
    shared: SharedProgram,
    /// The interface, with its program; or why there is none.
    interface: Option<Result<(Interface, Steering), String>>,
    queue: Option<Queue>,
}

/// What whoever asks for a host port has for it already.
#[derive(Clone, Copy, Default)]
pub struct Lent<'a> {
    /// Packet memory, for the first of a group.
    pub memory: Option<&'a OwnedFd>,
    /// The gate of a host port that it had before.
    pub gate: Option<&'a OwnedFd>,
}

/// Gives a host port back.
struct Lease {
    ports: HostPorts,
    udp: u16,
    /// Of the queue that is open.
    part: Option<u32>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut open = self.ports.lock();
        if let Some(Ok((_, steering))) = &mut open.interface {
            steering.remove(self.udp);
        }
        // One that was taken over is of a queue that we do not have.
        if let (Some(queue), Some(part)) = (&mut open.queue, self.part)
            && queue.take_back(part)
        {
            open.queue = None;
        }
    }
}

impl HostPorts {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a host port, one of `ranks` in all, on the interface that has
    /// address `at`, or else the first that has one. To be called by a thread
    /// in that network.
    ///
    /// # Errors
    /// Why there is none, for people to read.
    pub fn open(
        &self,
        at: Option<IpAddr>,
        ranks: u32,
        disabled: &Disabled,
    ) -> Result<HostPort, String> {
        possible(disabled)?;
        let mut open = self.lock();
        let Open {
            interface, shared, ..
        } = &mut *open;
        interface.get_or_insert_with(|| {
            let interface = choose(at, |_| true)?;
            let steering = Steering::attach(&interface, shared)?;
            Ok((interface, steering))
        });
        drop(open);
        patiently(|| self.open_now(Group::Connection(0), ranks, disabled, Lent::default()))
    }

    /// Binds `socket`, and before the first one what it joins, once all ranks
    /// have mapped their rings.
    fn bind(&self, socket: &OwnedFd, disabled: &Disabled) -> Result<(), String> {
        let mut open = self.lock();
        let Open {
            interface: Some(Ok((interface, _))),
            queue: Some(queue),
            ..
        } = &mut *open
        else {
            return Err("its queue was given back".to_owned());
        };
        let (base, index) = (queue.base.as_fd(), interface.index);
        if matches!(queue.binding, Binding::Last) {
            let modes = modes(disabled, queue.multi_buffer);
            let bind = || xdp::bind_first(base, index, QUEUE, modes);
            let bound = patiently(|| bind().map_err(|e| failed(&interface.name, e)));
            queue.binding = Binding::Tried(bound);
        }
        if let Binding::Tried(Err(why)) = &queue.binding {
            return Err(why.clone());
        }
        xdp::join(socket.as_fd(), base, index, QUEUE)
            .map_err(|e| format!("queue {QUEUE} of {}: {e}", interface.name))
    }

    /// Those of `interface`, whose program stays when this process ends: the
    /// one that was left there, or a new one.
    ///
    /// # Errors
    /// Why not, for people to read.
    pub fn pinned(interface: Interface, pins: &Pins) -> Result<Self, String> {
        let steering = Steering::attach_pinned(&interface, pins)?;
        let open = Open {
            interface: Some(Ok((interface, steering))),
            ..Open::default()
        };
        Ok(Self(Arc::new(Mutex::new(open))))
    }

    /// Takes over those of `held` UDP ports that are steered still, with what
    /// gives each back; steers no more to others.
    pub fn take_over(&self, held: &[u16]) -> Vec<(u16, Box<dyn Any + Send>)> {
        let mut open = self.lock();
        let Some(Ok((_, steering))) = &mut open.interface else {
            return Vec::new();
        };
        let (kept, left): (Vec<u16>, Vec<u16>) = steering
            .steered()
            .into_iter()
            .partition(|udp| held.contains(udp));
        left.into_iter().for_each(|udp| steering.remove(udp));
        let lease = |udp| {
            let ports = self.clone();
            let part = None;
            let lease: Box<dyn Any + Send> = Box::new(Lease { ports, udp, part });
            (udp, lease)
        };
        kept.into_iter().map(lease).collect()
    }

    /// Goes by what the interface and its addresses and MTU are now.
    ///
    /// # Errors
    /// It is another one, to which no program can be attached.
    pub fn refresh(&self, now: Interface, pins: &Pins) -> Result<(), String> {
        if let Some(Ok((interface, steering))) = &mut self.lock().interface {
            steering.attach_again(&now, pins)?;
            *interface = now;
        }
        Ok(())
    }

    /// Whether somebody has the AF_XDP socket of a host port, by its UDP port.
    pub fn is_open(&self, udp: u16) -> bool {
        match &self.lock().interface {
            Some(Ok((_, steering))) => steering.is_open(udp),
            _ => false,
        }
    }

    /// Where the word lies that says which process holds the queue's rings:
    /// the memory, and how far in.
    #[cfg(test)]
    pub fn holder(&self) -> Option<(OwnedFd, u64)> {
        let open = self.lock();
        let queue = open.queue.as_ref()?;
        let at = queue.sizes.area_bytes()?;
        Some((queue.memory.duplicate_fd().ok()?, at as u64))
    }

    /// Whether `group` has the queue.
    pub fn is_of(&self, group: Group) -> bool {
        let open = self.lock();
        open.queue
            .as_ref()
            .is_some_and(|queue| queue.group == group)
    }

    /// Opens a host port, one of `ranks` of `group` in all, if the kernel gives
    /// the queue at once.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn open_now(
        &self,
        group: Group,
        ranks: u32,
        disabled: &Disabled,
        lent: Lent<'_>,
    ) -> Result<HostPort, PortError> {
        let mut open = self.lock();
        let Open {
            interface, queue, ..
        } = &mut *open;
        let none = || Err("no interface was chosen".to_owned());
        let opened = interface.get_or_insert_with(none);
        let (interface, steering) = opened.as_mut().map_err(|why| why.clone())?;
        let name = &interface.name;
        let queue = match queue {
            Some(queue) if queue.group != group => {
                return Err(
                    format!("queue {QUEUE} of {name} belongs to another job or group").into(),
                );
            }
            Some(queue) => queue,
            None => queue.insert(Queue::take(interface, group, ranks, disabled, lent.memory)?),
        };
        let sharing = queue.vacant().ok_or_else(|| {
            let parts = queue.parts();
            format!("all {parts} parts of queue {QUEUE} of {name} were given out")
        })?;
        let (sizes, multi_buffer) = (queue.sizes, queue.multi_buffer);
        let mtu = u32::try_from(interface.mtu).unwrap_or(u32::MAX);
        if matches!(queue.binding, Binding::Tried(_)) {
            let why = "was bound when other ranks had mapped its rings (Linux before 6.4)";
            return Err(format!("queue {QUEUE} of {name} {why}").into());
        }
        let failed = |e| format!("queue {QUEUE} of {name}: {e}");
        let socket = xdp::further(&sizes).map_err(failed)?;
        let first = match queue.binding {
            Binding::First => {
                let base = queue.base.as_fd();
                xdp::join(socket.as_fd(), base, interface.index, QUEUE).map_err(failed)?;
                None
            }
            _ => Some(duplicate(&queue.base)?),
        };
        let config = UdpConfig {
            disabled: *disabled,
            ..UdpConfig::default()
        };
        let (udp, port) = steering.reserve(|| {
            let udp = UdpSocket::bind(&config.options()).map_err(|e| e.to_string())?;
            let port = udp.local_address().map_err(|e| e.to_string())?.port();
            Ok(((udp, port), port))
        })?;
        let addresses: Vec<IpAddr> = interface.addresses.iter().map(|(ip, _)| *ip).collect();
        let len_max = packet_max(sizes.chunk, mtu, multi_buffer) + ETHERNET_HEADER;
        let gate = udp
            .force_receive_buffer(RECEIVE_BUFFER)
            .map_err(|e| format!("the kernel's socket of a host port: {e}"))
            .and_then(|()| {
                let own = (&udp, port);
                steering.add(own, &addresses, QUEUE, len_max, &socket, lent.gate)
            });
        let gate = match gate {
            Ok(gate) => gate,
            Err(why) => {
                steering.remove(port);
                return Err(why.into());
            }
        };
        queue.give();
        let memory: OwnedFd = queue.memory.duplicate_fd().map_err(|e| e.to_string())?;
        let info = HostPortInfo {
            sharing: [sharing.index, sharing.count],
            multi_buffer,
            unbound: first.is_some(),
            sizes: sizes.to_words(),
            interface: interface.index,
            name: interface.name.clone(),
            mac: interface.mac.unwrap_or_default(),
            mtu,
        };
        let unbound = match first {
            None => None,
            Some(first) => {
                let (ports, socket) = (self.clone(), duplicate(&socket)?);
                let disabled = *disabled;
                let bind = Box::new(move || ports.bind(&socket, &disabled));
                Some(Unbound { first, bind })
            }
        };
        let descriptors = [memory, socket, udp.into(), gate];
        let lease = Lease {
            ports: self.clone(),
            udp: port,
            part: Some(sharing.index),
        };
        Ok(HostPort {
            info,
            lease: Box::new(lease),
            descriptors,
            unbound,
        })
    }
}

fn duplicate(socket: &OwnedFd) -> Result<OwnedFd, String> {
    socket.try_clone().map_err(|e| e.to_string())
}

/// Whether this process can open host ports at all, as far as can be told
/// without one.
///
/// # Errors
/// Why not, for people to read.
pub fn possible(disabled: &Disabled) -> Result<(), String> {
    switched_on(disabled)?;
    if !rustix::process::geteuid().is_root() {
        return Err("only root may open one".to_owned());
    }
    if !xdp::available() {
        return Err(XdpError::Unknown.to_string());
    }
    Ok(())
}

/// Whether rings can be mapped once their sockets are bound, found by doing it.
///
/// # Errors
/// Why none can be mapped at all, for people to read.
fn remaps(disabled: &Disabled) -> Result<bool, String> {
    // Somebody else may be trying it at the same loopback.
    let tried = patiently(|| xdp::try_out().map_err(|e| failed("the loopback", e)))?;
    Ok(tried && !disabled.remap)
}

/// What the node service says where it opens none.
///
/// # Errors
/// Why it opens none, for people to read.
pub fn served(disabled: &Disabled) -> Result<(), String> {
    let area = SharedMemory::create("portolan-try", 1).map_err(|e| e.to_string())?;
    refuse_missing(&area)?;
    if remaps(disabled)? {
        return Ok(());
    }
    // Whoever has an unbound socket can bind it to any interface, and the
    // settings name some.
    Err(
        "before Linux 6.4 rings are mapped before their sockets are bound, and whom the node \
         service gave an unbound socket could bind it anywhere: only jobs that root starts have \
         host ports"
            .to_owned(),
    )
}

/// Loads the program, attached to nothing, and maps a ring: what of host ports
/// can be tried without an interface. Gives what was found, for people to read.
///
/// # Errors
/// What this host lacks, for people to read.
pub fn try_out(disabled: &Disabled) -> Result<String, String> {
    possible(disabled)?;
    Steering::load().map(drop)?;
    let order = if remaps(disabled)? {
        "of bound sockets, so that the node service can open host ports for users too"
    } else {
        "before they are bound (Linux before 6.4), so that only jobs that root starts have host \
         ports"
    };
    Ok(format!(
        "the XDP program loads, and AF_XDP rings can be mapped {order}"
    ))
}

/// Whether host ports are wanted at all.
///
/// # Errors
/// They are not, for people to read.
pub fn switched_on(disabled: &Disabled) -> Result<(), String> {
    if disabled.xdp {
        return Err("xdp is switched off".to_owned());
    }
    Ok(())
}

/// The interface for packets to other hosts, of those that `allows` lets
/// through.
///
/// # Errors
/// There is none, for people to read.
pub fn choose(
    at: Option<IpAddr>,
    allows: impl Fn(&Interface) -> bool,
) -> Result<Interface, String> {
    let all = interfaces().map_err(|e| format!("asking the kernel for interfaces: {e}"))?;
    let has = |i: &Interface| at.is_none_or(|at| i.addresses.iter().any(|(ip, _)| *ip == at));
    let mut found = all
        .into_iter()
        .filter(|i| i.carries_host_ports() && has(i))
        .peekable();
    let Some(first) = found.peek().map(|i| i.name.clone()) else {
        return Err("no Ethernet interface with an address".to_owned());
    };
    found
        .find(allows)
        .ok_or_else(|| format!("interface {first} may not carry host ports (interfaces)"))
}
