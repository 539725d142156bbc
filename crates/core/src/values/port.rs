//! What names ports, flows and messages that have arrived.

use portolan_wire::{MessageNo, Priority};

use super::SpaceId;

/// Ports from this number on are the engine's own.
pub const PORTS_RESERVED: u16 = 0xff00;

/// Which memory a waiting message is charged to.
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
    /// Its number there.
    pub number: u16,
}

impl PortId {
    /// Whether the program may name it.
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

/// What names a message.
#[derive(Clone, Copy, Debug)]
pub struct Meta {
    /// Rank of the sender.
    pub from: u32,
    /// The port that it is for.
    pub port: u16,
    /// Its flow.
    pub flow: u16,
    /// Request or reply.
    pub priority: Priority,
    /// Its number within sender, priority and flow.
    pub number: MessageNo,
    /// It came from its sender, not by way of others.
    pub direct: bool,
}

/// A flow towards or from a rank, of one priority: what is sent in it keeps its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowOf {
    pub rank: u32,
    pub priority: Priority,
    pub flow: u16,
}

impl Meta {
    /// The port that it is for.
    #[inline(always)]
    pub const fn port_id(&self) -> PortId {
        PortId {
            space: self.space(),
            number: self.port,
        }
    }

    /// The space that it is for.
    #[inline(always)]
    pub const fn space(&self) -> SpaceId {
        SpaceId::of_flow(self.flow)
    }

    /// The flow that it came in.
    #[inline(always)]
    pub const fn flow_of(&self) -> FlowOf {
        FlowOf {
            rank: self.from,
            priority: self.priority,
            flow: self.flow,
        }
    }
}
