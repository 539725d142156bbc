//! Opening host ports, as whoever has the privilege.

use std::any::Any;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use portolan_boot::{HostPort, HostPortInfo};
use portolan_link::udp::UdpConfig;
use portolan_link::xdp::{SIZES, Sizes};
use portolan_sys::features::Disabled;
use portolan_sys::memory::SharedMemory;
use portolan_sys::net::{Interface, UdpSocket, interfaces};
use portolan_sys::xdp::{self, PACKET_HEADROOM, XdpError};

use super::pins::Pins;
use super::steering::Steering;

/// What the kernel's socket of a host port holds, bytes: as many packets as
/// wait for the fast path.
const RECEIVE_BUFFER: usize = 2_400 << 10;

const ETHERNET_HEADER: usize = 14;
/// The largest chunk that the kernel takes: a page.
const CHUNK_MAX: u32 = 4_096;

/// How often, and after what pause, a busy queue is tried again: the kernel
/// frees it a while after its socket was closed.
pub const BUSY_TRIES: u32 = 50;
pub const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// The host ports of one network.
#[derive(Clone, Default)]
pub struct HostPorts(Arc<Mutex<Open>>);

#[derive(Default)]
struct Open {
    /// The interface, with its program; or why there is none.
    interface: Option<Result<(Interface, Steering), String>>,
    /// The UDP port of who has the queue.
    taken: Option<u16>,
}

/// Why there is no host port.
#[derive(Debug)]
pub enum PortError {
    /// The kernel has not yet freed the queue of a socket that was closed, or
    /// somebody else has it.
    Busy(String),
    /// For this reason.
    Failed(String),
}

impl PortError {
    /// Whether it may pass by itself.
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Busy(_))
    }
}

impl From<String> for PortError {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// Gives a host port back.
struct Lease {
    ports: HostPorts,
    udp: u16,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut open = self.ports.lock();
        if let Some(Ok((_, steering))) = &mut open.interface {
            steering.remove(self.udp);
        }
        if open.taken == Some(self.udp) {
            open.taken = None;
        }
    }
}

impl HostPorts {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a host port on the interface that has address `at`, or else the
    /// first that has one. To be called by a thread in that network.
    ///
    /// # Errors
    /// Why there is none, for people to read.
    pub fn open(&self, at: Option<IpAddr>, disabled: &Disabled) -> Result<HostPort, String> {
        possible(disabled)?;
        let attach = || {
            let interface = choose(at, |_| true)?;
            let steering = Steering::attach(&interface, None)?;
            Ok((interface, steering))
        };
        self.lock().interface.get_or_insert_with(attach);
        let mut tries = 0;
        loop {
            match self.open_now(disabled) {
                Err(error) if error.is_busy() && tries < BUSY_TRIES => {
                    tries += 1;
                    std::thread::sleep(BUSY_PAUSE);
                }
                Err(PortError::Busy(why) | PortError::Failed(why)) => return Err(why),
                Ok(port) => return Ok(port),
            }
        }
    }

    /// Those of `interface`, whose program stays when this process ends: the
    /// one that was left there, or a new one.
    ///
    /// # Errors
    /// Why not, for people to read.
    pub fn pinned(interface: Interface, pins: &Pins) -> Result<Self, String> {
        let steering = Steering::attach(&interface, Some(pins))?;
        let open = Open {
            interface: Some(Ok((interface, steering))),
            taken: None,
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
        open.taken = kept.first().copied();
        let lease = |udp| {
            let ports = self.clone();
            let lease: Box<dyn Any + Send> = Box::new(Lease { ports, udp });
            (udp, lease)
        };
        kept.into_iter().map(lease).collect()
    }

    /// Goes by what the interface's addresses and MTU are now.
    pub fn refresh(&self, now: Interface) {
        if let Some(Ok((interface, _))) = &mut self.lock().interface {
            *interface = now;
        }
    }

    /// Opens a host port, if the kernel gives the queue at once.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn open_now(&self, disabled: &Disabled) -> Result<HostPort, PortError> {
        let mut open = self.lock();
        let Open { interface, taken } = &mut *open;
        let none = || Err("no interface was chosen".to_owned());
        let opened = interface.get_or_insert_with(none);
        let (interface, steering) = opened.as_mut().map_err(|why| why.clone())?;
        let queue = 0;
        if taken.is_some() {
            let name = &interface.name;
            return Err(format!("queue {queue} of {name} belongs to another rank").into());
        }
        let sizes = sizes(interface);
        let bytes = sizes
            .area_bytes()
            .ok_or_else(|| "sizes make no sense".to_owned())?;
        let area = SharedMemory::create("portolan-packets", bytes).map_err(|e| e.to_string())?;
        let copy = disabled.zerocopy;
        let socket = xdp::open(&area, &sizes, interface.index, queue, copy).map_err(|e| {
            let why = format!("queue {queue} of {}: {e}", interface.name);
            match e {
                XdpError::Busy => PortError::Busy(why),
                _ => PortError::Failed(why),
            }
        })?;
        let config = UdpConfig {
            disabled: *disabled,
            ..UdpConfig::default()
        };
        let udp = UdpSocket::bind(&config.options()).map_err(|e| e.to_string())?;
        udp.force_receive_buffer(RECEIVE_BUFFER)
            .map_err(|e| format!("the kernel's socket of a host port: {e}"))?;
        let local = udp.local_address().map_err(|e| e.to_string())?;
        let own: Vec<IpAddr> = interface.addresses.iter().map(|(ip, _)| *ip).collect();
        let len_max = sizes.chunk - PACKET_HEADROOM;
        steering.add(local.port(), &own, queue, len_max, &socket)?;
        *taken = Some(local.port());
        let area: OwnedFd = area.duplicate_fd().map_err(|e| e.to_string())?;
        let info = HostPortInfo {
            sizes: sizes.to_words(),
            interface: interface.index,
            name: interface.name.clone(),
            mac: interface.mac.unwrap_or_default(),
            mtu: u32::try_from(interface.mtu).unwrap_or(u32::MAX),
        };
        let descriptors = [area, socket, udp.into()];
        let lease = Lease {
            ports: self.clone(),
            udp: local.port(),
        };
        Ok(HostPort {
            info,
            lease: Box::new(lease),
            descriptors,
        })
    }
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

/// Whether an interface is of the kind that carries host ports, and up.
pub fn carries(it: &Interface) -> bool {
    it.up && !it.loopback && it.mac.is_some() && !it.addresses.is_empty()
}

/// Of a host port on an interface.
fn sizes(interface: &Interface) -> Sizes {
    // A chunk holds a frame behind the kernel's headroom.
    let small = interface.mtu + ETHERNET_HEADER <= (SIZES.chunk - PACKET_HEADROOM) as usize;
    Sizes {
        chunk: if small { SIZES.chunk } else { CHUNK_MAX },
        ..SIZES
    }
}

/// Packet memory of a host port on an interface, bytes.
pub fn area_bytes(interface: &Interface) -> usize {
    sizes(interface).area_bytes().unwrap_or_default()
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
    let mut found = all.into_iter().filter(|i| carries(i) && has(i)).peekable();
    let Some(first) = found.peek().map(|i| i.name.clone()) else {
        return Err("no Ethernet interface with an address".to_owned());
    };
    found
        .find(allows)
        .ok_or_else(|| format!("interface {first} may not carry host ports (interfaces)"))
}
