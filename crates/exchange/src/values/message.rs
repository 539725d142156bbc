//! Messages that no receive has met, as the program knows them.

use portolan_matching::Envelope;

/// Names a message that was claimed; no receive sees it but the one that is
/// given it.
#[derive(Debug, PartialEq, Eq, Hash)]
#[must_use = "receive it or discard it: its sender may wait for that"]
pub struct MessageId(pub u64);

/// A message that waits for a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Probed {
    /// Rank of its sender.
    pub from: u32,
    /// Its tag.
    pub tag: u64,
    /// Its length, bytes.
    pub total: u64,
    /// What the sender sent beside the tag.
    pub data: Option<u64>,
}

impl Probed {
    /// What it is matched by.
    pub(crate) const fn envelope(&self) -> Envelope {
        Envelope {
            source: self.from,
            tag: self.tag,
        }
    }
}
