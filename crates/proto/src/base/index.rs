//! Indices of the tables: one type for each table.

use super::list::List;

/// Index of an entry in a table.
pub(crate) trait TableIndex: Copy + Default + PartialEq {
    /// No entry; the default.
    const NONE: Self;

    /// The entry's place in its table.
    fn index(self) -> usize;
}

macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(u32);

        impl $name {
            pub(crate) const NONE: Self = Self(u32::MAX);

            /// Index of the entry at `place`, below 2^32.
            #[inline]
            pub(crate) const fn new(place: usize) -> Self {
                Self(place as u32)
            }

            /// The entry's place in its table.
            #[inline]
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }

            /// Whether there is an entry.
            #[inline]
            pub(crate) const fn is_some(self) -> bool {
                !self.is_none()
            }

            /// Whether there is no entry.
            #[inline]
            pub(crate) const fn is_none(self) -> bool {
                self.0 == Self::NONE.0
            }
        }

        impl Default for $name {
            #[inline]
            fn default() -> Self {
                Self::NONE
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl TableIndex for $name {
            const NONE: Self = Self::NONE;

            #[inline]
            fn index(self) -> usize {
                self.index()
            }
        }
    };
}

index! {
    /// A connection: the active state of a peer.
    ConnIndex
}
index! {
    /// A path of a connection.
    PathIndex
}
index! {
    /// A frame of the shared pool.
    FrameIndex
}
index! {
    /// A long message under way.
    LongIndex
}

impl ConnIndex {
    /// Path 0 of the connection, at the same place in its own table.
    #[inline]
    pub(crate) const fn first_path(self) -> PathIndex {
        PathIndex(self.0)
    }
}

impl FrameIndex {
    /// A value that is no frame; `what` is 1 to 8 and tells several of them apart.
    pub(crate) const fn beyond(what: u32) -> Self {
        Self(u32::MAX - what)
    }
}

impl List<ConnIndex> {
    pub const fn is_empty(self) -> bool {
        self.head.is_none()
    }
}

impl List<FrameIndex> {
    pub const fn is_empty(self) -> bool {
        self.head.is_none()
    }
}

/// Makes a table indexable by its own index type only.
macro_rules! indexed {
    ($entry:ty, $index:ty) => {
        impl core::ops::Index<$index> for [$entry] {
            type Output = $entry;

            #[inline(always)]
            fn index(&self, at: $index) -> &$entry {
                &self[at.index()]
            }
        }

        impl core::ops::IndexMut<$index> for [$entry] {
            #[inline(always)]
            fn index_mut(&mut self, at: $index) -> &mut $entry {
                &mut self[at.index()]
            }
        }
    };
}

pub(crate) use indexed;
