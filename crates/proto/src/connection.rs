//! The life of a connection: peers are added, connect, get keys and active
//! state, and end.

mod active;
mod death;
mod handshake;
mod introduction;
mod keys;
mod peers;
mod shortage;

pub use peers::AddPeerError;
