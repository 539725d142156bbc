//! How the processes of a job find each other.
//!
//! A launcher ([`launch`]) passes each process one inherited descriptor, the
//! end of a socket pair whose number stands in `PORTOLAN_JOB`. All else travels
//! through that socket: the process's rank, the job's secret, and the
//! descriptors of shared memory. So no secret is on a command line or in an
//! environment. The process's side is [`Job`].
//!
//! Processes that another launcher started find each other through its PMI
//! server ([`Job::join`]). Only public keys pass through it.
#![forbid(unsafe_code)]

mod codec;
pub mod control;
mod error;
mod frame;
mod guest;
mod host;
mod host_port;
mod job;
pub mod launch;
mod liveness;
mod message;
pub mod node;
mod partition;
mod pmi;
#[cfg(feature = "properties")]
pub mod properties;
mod ready;
mod silence;

pub use error::{BootError, Refusal};
pub use guest::{GUEST_AGENT_WORDS, GuestError, GuestOptions, is_guest, serve_guests};
pub use host::host_identity;
pub use host_port::{HostPort, HostPortInfo, OwnHostPort, Unbound};
pub use job::{Job, Notice, PeerInfo, Reporter};
pub use message::{
    Congestion, Field, GaveUp, How, Lane, LinkChoice, Membership, Security, Suite, Table, Versions,
};
pub use pmi::PmiError;

/// The variable that names a process's end of its launcher's socket, `fd:5`.
pub const JOB_VARIABLE: &str = "PORTOLAN_JOB";

/// Variables with a rank's number, the number of ranks, and its number on its
/// host: for what needs them before the program joins, such as a shell script.
pub const RANK_VARIABLES: [&str; 3] = ["PORTOLAN_RANK", "PORTOLAN_SIZE", "PORTOLAN_LOCAL_RANK"];

/// Variable with the number of restarts of a rank (`portolan run --respawn`).
pub const RESTARTS_VARIABLE: &str = "PORTOLAN_RESTARTS";
