//! Host ports, as they are passed to ranks: see `portolan-link`, module `xdp`.

use std::any::Any;
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

/// What is to be known of a host port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPortInfo {
    /// Index of the interface.
    pub interface: u32,
    /// Its name.
    pub name: String,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Its MTU, bytes of an IP packet.
    pub mtu: u32,
    /// Which part of the queue it has: its number there, and how many have one.
    pub sharing: [u32; 2],
    /// A packet may lie in several chunks.
    pub multi_buffer: bool,
    /// Its sockets are not bound yet: their rings are mapped first.
    pub unbound: bool,
    /// Bytes of a chunk, chunks, and entries of the receive, transmit, fill
    /// and completion rings.
    pub sizes: [u32; 6],
}

/// A part of a queue of a network interface that is to be given to a process.
pub struct HostPort {
    /// What it is.
    pub info: HostPortInfo,
    /// Dropped when the process has ended: nothing is steered to it any more.
    pub lease: Box<dyn Any + Send>,
    /// Its packet area, its AF_XDP socket, its UDP socket and its gate.
    pub descriptors: [OwnedFd; 4],
    /// Where the kernel maps the rings of unbound sockets only.
    pub unbound: Option<Unbound>,
}

/// What is left to do for a host port whose rings are mapped before its sockets
/// are bound.
pub struct Unbound {
    /// The socket whose fill and completion ring all at the queue have in common.
    pub first: OwnedFd,
    /// Binds both sockets, to be called once all of the queue have mapped those
    /// rings; or says why they cannot be.
    pub bind: Box<dyn FnOnce() -> Result<(), String> + Send>,
}

/// A part of a queue of a network interface that this process was given. It
/// needs no privilege to use it.
#[derive(Debug)]
pub struct OwnHostPort {
    /// What it is.
    pub info: HostPortInfo,
    /// Its packet area, its AF_XDP socket, its UDP socket and its gate.
    pub descriptors: [OwnedFd; 4],
    /// Where it is not bound yet: [`Unbound::first`].
    pub first: Option<OwnedFd>,
}
