//! Plain values: errors, messages and events, memory, settings, counters, and the numbers
//! of ports and spaces.

mod counters;
mod error;
mod memory;
mod message;
mod port;
mod settings;
mod space;

pub use self::counters::Counters;
pub use self::error::{
    Death, DeregisterError, Failure, Misuse, RegisterError, SendError, WaitError,
};
pub use self::memory::{Buffer, Payload, Source, read_pieces};
pub use self::message::{Event, Message, SendOptions};
pub use self::port::{Charge, FlowOf, Meta, PORTS_RESERVED, PortId};
pub use self::settings::{Secrets, Settings};
pub use self::space::{FIRST_FLOW, FLOWS_ALL, FLOWS_MAX, SPACES, SpaceId};
