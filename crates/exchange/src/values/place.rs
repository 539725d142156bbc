//! Places in others' memory, and how they are written to.

use super::{Notify, RemoteKey};

/// A place in the memory of another rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// The region.
    pub key: RemoteKey,
    /// Bytes from its beginning.
    pub offset: u64,
}

/// What the target's program is told of a put once its bytes are visible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Signal {
    /// The port there.
    pub port: u32,
    /// Any word.
    pub word: u64,
}

/// When a put ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PutEnd {
    /// When its bytes are visible at the target, or were refused there.
    #[default]
    Visible,
    /// When its memory is the program's again; the target does not answer.
    /// Whether all went well, the next [`flush`](crate::Exchange::flush) tells.
    Local,
}

/// How a put is done beside where to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PutOptions {
    /// When it ends.
    pub end: PutEnd,
    /// What the target's program is told. Default nothing.
    pub signal: Option<Signal>,
    /// How its end is told.
    pub notify: Notify,
}
