//! Opening host ports, as whoever has the privilege.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use portolan_boot::{HostPort, HostPortInfo};
use portolan_link::udp::UdpConfig;
use portolan_link::xdp::{SHARES_MAX, Sharing, Sizes, memory_bytes, sizes};
use portolan_sys::features::Disabled;
use portolan_sys::memory::SharedMemory;
use portolan_sys::net::{Interface, UdpSocket, interfaces};
use portolan_sys::xdp::{self, PACKET_HEADROOM, XdpError};

use super::steering::Steering;

/// What the kernel's socket of a host port holds, bytes: as many packets as
/// wait for the fast path.
const RECEIVE_BUFFER: usize = 2_400 << 10;

const ETHERNET_HEADER: usize = 14;
/// The smallest and the largest chunk that the kernel takes.
const CHUNK_MIN: u32 = 2_048;
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
    queue: Option<Queue>,
}

/// A queue that the ranks of one host share. Other jobs, and other users, get
/// no part: each sees the packets of all.
struct Queue {
    /// What the ranks' sockets join.
    base: OwnedFd,
    memory: SharedMemory,
    sizes: Sizes,
    /// Who comes next, and for how many it is.
    next: Sharing,
}

/// The queue that is used of an interface.
const QUEUE: u32 = 0;

/// Steers no more to a host port.
struct Lease {
    ports: HostPorts,
    udp: u16,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(Ok((_, steering))) = &mut self.ports.lock().interface {
            steering.remove(self.udp);
        }
    }
}

impl Queue {
    /// Takes the queue of `interface` for `ranks` ranks.
    fn take(interface: &Interface, ranks: u32, disabled: &Disabled) -> Result<Self, String> {
        // A chunk holds a frame behind the kernel's headroom.
        let room = (CHUNK_MIN - PACKET_HEADROOM) as usize;
        let small = interface.mtu + ETHERNET_HEADER <= room;
        let chunk = if small { CHUNK_MIN } else { CHUNK_MAX };
        let next = Sharing {
            index: 0,
            count: ranks.clamp(1, SHARES_MAX),
        };
        let sizes = sizes(chunk, next.count);
        let bytes = memory_bytes(&sizes, next).ok_or("sizes make no sense")?;
        let memory = SharedMemory::create("portolan-packets", bytes).map_err(|e| e.to_string())?;
        let mut tries = 0;
        let base = loop {
            match xdp::open(&memory, &sizes, interface.index, QUEUE, disabled.zerocopy) {
                // The kernel frees a queue a while after its socket was closed.
                Err(XdpError::Busy) if tries < BUSY_TRIES => {
                    tries += 1;
                    std::thread::sleep(BUSY_PAUSE);
                }
                opened => break opened,
            }
        };
        Ok(Self {
            base: base.map_err(|e| format!("queue {QUEUE} of {}: {e}", interface.name))?,
            memory,
            sizes,
            next,
        })
    }
}

impl HostPorts {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        let Open { interface, queue } = &mut *open;
        let opened = interface.get_or_insert_with(|| {
            let interface = choose(at)?;
            let steering = Steering::attach(&interface)?;
            Ok((interface, steering))
        });
        let (interface, steering) = opened.as_mut().map_err(|why| why.clone())?;
        let queue = match queue {
            Some(queue) => queue,
            None => queue.insert(Queue::take(interface, ranks, disabled)?),
        };
        let sharing = queue.next;
        if sharing.index == sharing.count {
            // The parts of those that have ended are not given out again: the
            // kernel may still have some of their chunks.
            return Err(format!(
                "all {} parts of queue {QUEUE} of {} were given out",
                sharing.count, interface.name
            ));
        }
        let sizes = queue.sizes;
        let socket = xdp::join(queue.base.as_fd(), &sizes, interface.index, QUEUE)
            .map_err(|e| format!("queue {QUEUE} of {}: {e}", interface.name))?;
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
        steering.add(local.port(), &own, QUEUE, len_max, &socket)?;
        queue.next.index += 1;
        let memory: OwnedFd = queue.memory.duplicate_fd().map_err(|e| e.to_string())?;
        let info = HostPortInfo {
            sharing: [sharing.index, sharing.count],
            sizes: sizes.to_words(),
            interface: interface.index,
            name: interface.name.clone(),
            mac: interface.mac.unwrap_or_default(),
            mtu: u32::try_from(interface.mtu).unwrap_or(u32::MAX),
        };
        let descriptors = [memory, socket, udp.into()];
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
