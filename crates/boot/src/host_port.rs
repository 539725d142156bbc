//! Host ports as they are passed to ranks: see `portolan-link`, module `xdp`.

use std::any::Any;
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

/// Description of a host port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPortInfo {
    /// Index of the interface.
    pub interface: u32,
    /// The interface's name.
    pub name: String,
    /// The interface's Ethernet address.
    pub mac: [u8; 6],
    /// The interface's MTU, bytes of an IP packet.
    pub mtu: u32,
    /// Share of the queue: index of this host port, and number of host ports there.
    pub sharing: [u32; 2],
    /// A packet may span several chunks.
    pub multi_buffer: bool,
    /// The sockets are not bound yet: their rings are mapped first.
    pub unbound: bool,
    /// Bytes of a chunk, number of chunks, and entries of the receive,
    /// transmit, fill and completion rings.
    pub sizes: [u32; 6],
}

/// A share of a network interface's queue, to be handed to a process.
pub struct HostPort {
    /// Description.
    pub info: HostPortInfo,
    /// Dropped when the process has ended, which stops steering packets to it.
    pub lease: Box<dyn Any + Send>,
    /// Packet area, AF_XDP socket, UDP socket and gate.
    pub descriptors: [OwnedFd; 4],
    /// Set where the kernel maps the rings of unbound sockets only.
    pub unbound: Option<Unbound>,
}

/// Remaining setup of a host port whose rings are mapped before its sockets are bound.
pub struct Unbound {
    /// Socket whose fill and completion ring all host ports of the queue share.
    pub first: OwnedFd,
    /// Binds both sockets, or returns why it cannot. Called once all host ports
    /// of the queue have mapped those rings.
    pub bind: Box<dyn FnOnce() -> Result<(), String> + Send>,
}

/// A share of a network interface's queue that this process was given. Using it
/// needs no privilege.
#[derive(Debug)]
pub struct OwnHostPort {
    /// Description.
    pub info: HostPortInfo,
    /// Packet area, AF_XDP socket, UDP socket and gate.
    pub descriptors: [OwnedFd; 4],
    /// [`Unbound::first`], if the sockets are not bound yet.
    pub first: Option<OwnedFd>,
}
