//! Groups of ranks, and the state of their collective operations.

mod barriers;
mod broadcast;

use std::sync::Arc;

pub use self::barriers::{Absence, Barriers, Epoch, ROUNDS};
pub use self::broadcast::{Broadcast, broadcast_head_bytes, broadcast_meta};
use crate::values::SpaceId;

/// Some ranks of the job, in an order that all of them agree on.
#[derive(Clone, Debug)]
pub struct Group {
    id: u64,
    space: SpaceId,
    ranks: Arc<[u32]>,
}

impl Group {
    /// Makes a group of these ranks. Every member must pass the same list.
    #[must_use]
    pub fn new(ranks: &[u32]) -> Self {
        let mut id = 0xcbf2_9ce4_8422_2325_u64;
        for rank in ranks {
            id = (id ^ u64::from(*rank))
                .wrapping_mul(0x0100_0000_01b3)
                .rotate_left(17);
        }
        // 0 is the whole job.
        Self {
            id: id.max(1),
            space: SpaceId::PROGRAM,
            ranks: ranks.into(),
        }
    }

    /// Makes the group of all ranks of a job.
    pub fn world(size: u32) -> Self {
        Self {
            id: 0,
            space: SpaceId::PROGRAM,
            ranks: (0..size).collect(),
        }
    }

    /// Returns a group of the same ranks whose operations are separate, those of this space.
    #[must_use]
    pub fn within(&self, space: SpaceId) -> Self {
        Self {
            id: self.id ^ space.salt(),
            space,
            ranks: Arc::clone(&self.ranks),
        }
    }

    pub(crate) const fn space(&self) -> SpaceId {
        self.space
    }

    /// Returns the members, in order.
    #[must_use]
    pub fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// Returns the number that names the group in messages.
    pub const fn id(&self) -> u64 {
        self.id
    }
}
