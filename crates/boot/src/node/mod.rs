//! Host ports from the node service, which opens them for users without
//! privilege: its frames, and the side of those who ask. The service itself is
//! the command `portolan node`.
//!
//! One asks over a socket that keeps message borders. With the answer that gives a
//! host port its four descriptors travel. Who asks for the first one of a queue is
//! given packet memory without pages, takes those, and asks again. A host port stays
//! with the connection that it was asked for over, until it is released or the
//! connection ends.

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

/// The service's folder. It belongs to who runs the service, root or a user for
/// that alone; only root can have made it.
pub const NODE_FOLDER: &str = "/run/portolan/node";

/// Where the service listens, unless it is told otherwise.
pub const NODE_SOCKET: &str = "/run/portolan/node/node.sock";

/// What the `portolan` command is told that is to be the service, at the socket that
/// stands behind, until its last host port is given back.
pub const ON_DEMAND_WORDS: [&str; 3] = ["node", "--on-demand", "--socket"];

/// What a service says when it listens.
pub const READY: &str = "portolan node: ready";

/// What it says where another listens.
pub const RUNS_ALREADY: &str = "a node service runs already";

/// What packet memory is called in `/proc/PID/maps`.
pub const PACKET_MEMORY: &str = "portolan-packets";

/// The variable that names another place.
pub const NODE_VARIABLE: &str = "PORTOLAN_NODE";

/// Where this user's jobs look for the service.
#[must_use]
pub fn node_socket() -> PathBuf {
    environment::var_os(NODE_VARIABLE).map_or_else(|| NODE_SOCKET.into(), PathBuf::from)
}

/// The kernel's number of the calling thread's network namespace; 0 where
/// /proc does not say.
#[must_use]
pub fn own_network() -> u64 {
    std::fs::metadata("/proc/thread-self/ns/net").map_or(0, |about| about.ino())
}
