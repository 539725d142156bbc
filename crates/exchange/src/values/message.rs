//! Messages that no receive has met, as the program knows them.

use portolan_matching::Envelope;

/// Names a claimed message; only the receive that is given it takes the message.
#[derive(Debug, PartialEq, Eq, Hash)]
#[must_use = "receive it or discard it: its sender may wait for that"]
pub struct MessageId(pub u64);

/// A message that waits for a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Probed {
    /// Rank of the sender.
    pub from: u32,
    /// Tag of the message.
    pub tag: u64,
    /// Length of the message, bytes.
    pub total: u64,
    /// Word that the sender sent beside the tag.
    pub data: Option<u64>,
}

impl Probed {
    /// Source and tag, by which it is matched.
    pub(crate) const fn envelope(&self) -> Envelope {
        Envelope {
            source: self.from,
            tag: self.tag,
        }
    }
}
