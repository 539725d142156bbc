//! Host ports: queues of this host's network interfaces that processes drive
//! themselves. Opening one needs privilege, using it does not.

mod ports;
mod steering;
#[cfg(test)]
mod tests;

pub use ports::{HostPorts, possible};
