//! Opening host ports, as whoever has the privilege.

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

use super::steering::Steering;

/// What the kernel's socket of a host port holds, bytes: as many packets as
/// wait for the fast path.
const RECEIVE_BUFFER: usize = 2_400 << 10;

const ETHERNET_HEADER: usize = 14;
/// The largest chunk that the kernel takes: a page.
const CHUNK_MAX: u32 = 4_096;

/// How often, and after what pause, a busy queue is tried again.
const BUSY_TRIES: u32 = 50;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

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
        let mut open = self.lock();
        let Open { interface, taken } = &mut *open;
        let opened = interface.get_or_insert_with(|| {
            let interface = choose(at)?;
            let steering = Steering::attach(&interface)?;
            Ok((interface, steering))
        });
        let (interface, steering) = opened.as_mut().map_err(|why| why.clone())?;
        let queue = 0;
        if taken.is_some() {
            return Err(format!(
                "queue {queue} of {} belongs to another rank",
                interface.name
            ));
        }
        // A chunk holds a frame behind the kernel's headroom.
        let small = interface.mtu + ETHERNET_HEADER <= (SIZES.chunk - PACKET_HEADROOM) as usize;
        let sizes = Sizes {
            chunk: if small { SIZES.chunk } else { CHUNK_MAX },
            ..SIZES
        };
        let bytes = sizes.area_bytes().ok_or("sizes make no sense")?;
        let area = SharedMemory::create("portolan-packets", bytes).map_err(|e| e.to_string())?;
        let copy = disabled.zerocopy;
        let mut tries = 0;
        let socket = loop {
            match xdp::open(&area, &sizes, interface.index, queue, copy) {
                // The kernel frees a queue a while after its socket was closed.
                Err(XdpError::Busy) if tries < BUSY_TRIES => {
                    tries += 1;
                    std::thread::sleep(BUSY_PAUSE);
                }
                opened => break opened,
            }
        }
        .map_err(|e| format!("queue {queue} of {}: {e}", interface.name))?;
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
    if disabled.xdp {
        return Err("xdp is switched off".to_owned());
    }
    if !rustix::process::geteuid().is_root() {
        return Err("only root may open one".to_owned());
    }
    if !xdp::available() {
        return Err(XdpError::Unknown.to_string());
    }
    Ok(())
}

/// The interface for packets to other hosts.
fn choose(at: Option<IpAddr>) -> Result<Interface, String> {
    let all = interfaces().map_err(|e| format!("asking the kernel for interfaces: {e}"))?;
    let usable = |i: &Interface| i.up && !i.loopback && i.mac.is_some() && !i.addresses.is_empty();
    let has = |i: &Interface| at.is_none_or(|at| i.addresses.iter().any(|(ip, _)| *ip == at));
    all.into_iter()
        .find(|i| usable(i) && has(i))
        .ok_or_else(|| "no Ethernet interface with an address".to_owned())
}
