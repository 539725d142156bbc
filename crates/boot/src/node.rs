//! Host ports from the node service, which opens them for users without privilege: its messages and
//! its clients' side. The service itself is the command `portolan node`.
//!
//! Clients connect by a socket that keeps message borders. The answer that grants a host port
//! carries its four descriptors. The client that asks for the first one of a queue gets packet
//! memory without pages, allocates those, and asks again. A host port stays with the connection
//! that asked for it, until it is released or the connection ends.

mod client;
mod group;
mod policy;
mod wire;

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use portolan_sys::environment;

pub use client::{NodeError, NodeService};
pub use group::{group_of, host_port_of};
pub use policy::{NO_ONE_SIDED, NODE_CONFIG, NoOneSided, PolicyError, no_one_sided};
pub use wire::{Answer, Heard, QUESTION_BYTES_MAX, Question, answer, hear};

/// The service's folder, owned by the user that runs the service: root, or one
/// for that alone. Only root can have made it.
pub const NODE_FOLDER: &str = "/run/portolan/node";

/// Where the service listens by default.
pub const NODE_SOCKET: &str = "/run/portolan/node/node.sock";

/// Arguments that run the `portolan` command as the service, until its last host port is released.
/// The path of the socket follows.
pub const ON_DEMAND_WORDS: [&str; 3] = ["node", "--on-demand", "--socket"];

/// Output of a service once it listens.
pub const READY: &str = "portolan node: ready";

/// Output of a service where another listens.
pub const RUNS_ALREADY: &str = "a node service runs already";

/// Name of packet memory in `/proc/PID/maps`.
pub const PACKET_MEMORY: &str = "portolan-packets";

/// The variable that names another socket.
pub const NODE_VARIABLE: &str = "PORTOLAN_NODE";

/// Returns where this user's jobs look for the service.
#[must_use]
pub fn node_socket() -> PathBuf {
    environment::var_os(NODE_VARIABLE).map_or_else(|| NODE_SOCKET.into(), PathBuf::from)
}

/// Returns the kernel's number of the calling thread's network namespace; 0 if
/// /proc does not list it.
#[must_use]
pub fn own_network() -> u64 {
    std::fs::metadata("/proc/thread-self/ns/net").map_or(0, |about| about.ino())
}
