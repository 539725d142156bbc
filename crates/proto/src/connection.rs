//! The life of a connection: peers are added, connect, get keys and active
//! state, and end.

mod active;
mod death;
mod handshake;
mod introduction;
mod keys;
mod peers;
mod shortage;

pub use keys::key_slots;
pub(crate) use keys::{nonce, rx_slot, tx_slot};
pub use peers::AddPeerError;
