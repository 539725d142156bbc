//! Host ports: queues of this host's network interfaces that processes drive
//! themselves. Opening one needs privilege, using it does not. The node service
//! (`portolan node`) opens them for users without.

mod book;
mod check;
mod clean;
mod command;
mod config;
mod interfaces;
mod limits;
mod pins;
mod ports;
mod privileges;
mod query;
mod queue;
mod rules;
mod service;
mod state;
mod steering;
#[cfg(test)]
mod tests;

pub use command::{Arguments, run};
pub use config::CONFIG_FILE;
pub use ports::{Networks, try_out};
pub use query::{Opener, reachable, service};
pub use queue::ONE_BUFFER_MAX;
pub use rules::way_to_queue;
