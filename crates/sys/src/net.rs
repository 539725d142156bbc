//! UDP sockets and what the kernel says about routes and interfaces.
//!
//! rustix makes the calls at start. Those of the data path are ours: they
//! carry control messages (`UDP_SEGMENT`, `UDP_GRO`, traffic class) that
//! rustix does not know, and share one encoding of addresses.

mod abi;
mod icmp;
mod neighbour;
mod netlink;
mod receive;
mod refusal;
mod route;
mod send;
mod size;
mod socket;
mod subnet;

pub(crate) use abi::MSG_DONTWAIT;
pub use abi::RawAddress;
pub use icmp::IcmpError;
pub use neighbour::{Change, Changes, Neighbour};
pub use netlink::Netlink;
pub use receive::Received;
pub use route::{
    Interface, Route, default_routes, directly_connected, interfaces, mtu_towards, route_to,
};
pub use send::{SEGMENTS_MAX, SendUnit, UNITS_MAX};
pub(crate) use socket::set_option;
pub use socket::{BindError, SocketOptions, UdpSocket};
pub use subnet::{NotASubnet, Subnet, is_link_local};
