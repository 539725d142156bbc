//! What messages and receives are matched on.

use crate::index::Key;

/// What a message is matched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// The rank that it comes from.
    pub source: u32,
    /// The tag that its sender gave it.
    pub tag: u64,
}

/// Which messages a receive, a probe or a claim is for: those whose source is
/// the same, or any, and whose tag is the same in all bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Selector {
    /// The rank that the message comes from; `None`: any.
    pub source: Option<u32>,
    /// The tag.
    pub tag: u64,
    /// Bits of the tag that do not count. 0: all count; `u64::MAX`: any tag.
    pub ignore: u64,
}

impl Selector {
    /// Messages of `source` with this tag.
    #[must_use]
    pub const fn from(source: u32, tag: u64) -> Self {
        Self {
            source: Some(source),
            tag,
            ignore: 0,
        }
    }

    /// Messages with this tag, whoever they come from.
    #[must_use]
    pub const fn any(tag: u64) -> Self {
        Self {
            source: None,
            tag,
            ignore: 0,
        }
    }

    /// Whether a message with this envelope is one of them.
    #[must_use]
    pub const fn fits(&self, envelope: &Envelope) -> bool {
        let source = match self.source {
            Some(source) => source == envelope.source,
            None => true,
        };
        source && (self.tag ^ envelope.tag) & !self.ignore == 0
    }

    /// Likewise, but for these bits of the tag, which do not count.
    #[must_use]
    pub const fn ignoring(self, bits: u64) -> Self {
        Self {
            ignore: bits,
            ..self
        }
    }
}

impl Envelope {
    /// That of a message whose exact key this is.
    pub(crate) const fn of(key: &Key) -> Self {
        Self {
            source: key.source,
            tag: key.tag,
        }
    }
}

/// What of an envelope counts. Selectors of one shape that fit the same
/// message have the same key, and no others have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    any_source: bool,
    ignore: u64,
}

impl Shape {
    /// Of receives from one source, with every bit of the tag.
    pub const EXACT: Self = Self {
        any_source: false,
        ignore: 0,
    };

    pub const fn of(selector: &Selector) -> Self {
        Self {
            any_source: selector.source.is_none(),
            ignore: selector.ignore,
        }
    }

    /// The key of a message; `lane` keeps shapes in one index apart.
    #[inline]
    pub const fn key(&self, lane: u32, envelope: &Envelope) -> Key {
        Key {
            tag: envelope.tag & !self.ignore,
            source: if self.any_source { 0 } else { envelope.source },
            lane,
        }
    }

    /// The selector that a key of this shape stands for. Bits that do not count
    /// are 0.
    pub fn selector(&self, key: &Key) -> Selector {
        Selector {
            source: (!self.any_source).then_some(key.source),
            tag: key.tag,
            ignore: self.ignore,
        }
    }

    /// The key of the messages that `selector`, of this shape, is for.
    #[inline]
    pub fn wanted(&self, lane: u32, selector: &Selector) -> Key {
        let envelope = Envelope {
            source: selector.source.unwrap_or(0),
            tag: selector.tag,
        };
        self.key(lane, &envelope)
    }
}
