//! Places in other ranks' memory, and options of puts.

use super::{Notify, RemoteKey};

/// A place in the memory of another rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// The region.
    pub key: RemoteKey,
    /// Offset in the region, bytes.
    pub offset: u64,
}

/// Notifies the target's program of a put once its bytes are visible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Signal {
    /// Port at the target.
    pub port: u32,
    /// Word of the program's choice.
    pub word: u64,
}

/// When a put ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PutEnd {
    /// When its bytes are visible at the target, or were refused there.
    #[default]
    Visible,
    /// When its memory belongs to the program again; the target does not answer. The next
    /// [`flush`](crate::Exchange::flush) reports a failure.
    Local,
}

/// Options of a put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PutOptions {
    /// When the put ends.
    pub end: PutEnd,
    /// Signal for the target's program. Default none.
    pub signal: Option<Signal>,
    /// How its end is reported.
    pub notify: Notify,
}
