//! Names of ports, flows and messages that have arrived.

use portolan_wire::{MessageNo, Priority};

use super::SpaceId;

/// First of the ports that are reserved for the engine.
pub const PORTS_RESERVED: u16 = 0xff00;

/// Budget that a waiting message is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    Unexpected,
    Queued,
}

/// A port of a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortId {
    /// The space.
    pub space: SpaceId,
    /// Number within the space.
    pub number: u16,
}

impl PortId {
    /// Whether the program may use the port.
    pub const fn is_programs(self) -> bool {
        self.number < PORTS_RESERVED
    }

    #[inline(always)]
    pub(crate) const fn index(self) -> usize {
        self.space.index() << 16 | self.number as usize
    }

    pub(crate) const fn at(index: usize) -> Self {
        Self {
            space: SpaceId::at(index >> 16),
            number: index as u16,
        }
    }
}

/// Origin, destination and number of a message.
#[derive(Clone, Copy, Debug)]
pub struct Meta {
    /// Rank of the sender.
    pub from: u32,
    /// Destination port.
    pub port: u16,
    /// Flow of the message.
    pub flow: u16,
    /// Request or reply.
    pub priority: Priority,
    /// Sequence number within sender, priority and flow.
    pub number: MessageNo,
    /// Received from the sender itself, not by way of others.
    pub direct: bool,
}

/// A flow to or from a rank, of one priority: its messages keep their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowOf {
    pub rank: u32,
    pub priority: Priority,
    pub flow: u16,
}

impl Meta {
    /// Returns the destination port.
    #[inline(always)]
    pub const fn port_id(&self) -> PortId {
        PortId {
            space: self.space(),
            number: self.port,
        }
    }

    /// Returns the destination space.
    #[inline(always)]
    pub const fn space(&self) -> SpaceId {
        SpaceId::of_flow(self.flow)
    }

    /// Returns the flow that the message arrived in.
    #[inline(always)]
    pub const fn flow_of(&self) -> FlowOf {
        FlowOf {
            rank: self.from,
            priority: self.priority,
            flow: self.flow,
        }
    }
}
