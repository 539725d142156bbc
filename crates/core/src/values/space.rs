//! Spaces: what each of several interfaces has of its own on an endpoint that they share.
//!
//! On the wire a space is a flow. The program's own space has flows 0 to 5, and 6 and 7
//! for its matched messages; each other space has one, for both. So wildcards, order,
//! stops and losses keep apart by themselves.

use super::Misuse;

/// Flows of the program's own space, of each priority.
pub const FLOWS_MAX: u16 = 6;

/// All flows: with those of matched messages, and one for each space.
pub const FLOWS_ALL: u16 = portolan_proto::FLOWS_MAX as u16;

/// Names a space; 0 is the program's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpaceId(u8);

/// Spaces that there can be, the program's own included: each of the others has a flow.
pub const SPACES: usize = 9;

/// The flow of space 1; the others follow.
pub const FIRST_FLOW: u16 = 8;
const _: () = assert!(FIRST_FLOW as usize + SPACES - 1 == portolan_proto::FLOWS_MAX);

impl SpaceId {
    // All that somebody uses are named here.

    /// The program's own.
    pub const PROGRAM: Self = Self(0);
    /// ATOLL's interface.
    pub const ATOLL: Self = Self(1);
    /// BSPlib's interface.
    pub const BSP: Self = Self(2);
    /// Free for libraries that others write.
    pub const OTHERS: [Self; 2] = [Self(7), Self(8)];

    /// By its number, 0 to 8.
    ///
    /// # Errors
    /// [`Misuse::NoSuchSpace`].
    pub const fn new(number: u32) -> Result<Self, Misuse> {
        if number < SPACES as u32 {
            Ok(Self(number as u8))
        } else {
            Err(Misuse::NoSuchSpace)
        }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0 as u32
    }

    /// Whose flow this is; of one that there is not, a space that is never open.
    #[inline(always)]
    pub(crate) const fn of_flow(flow: u16) -> Self {
        let number = flow.saturating_sub(FIRST_FLOW - 1);
        Self(if number < 0xff { number as u8 } else { 0xff })
    }

    /// Its flow of this number; a space but the program's has flow 0 alone.
    ///
    /// # Errors
    /// [`Misuse::BadFlow`].
    #[inline(always)]
    pub const fn flow(self, number: u16) -> Result<u16, Misuse> {
        match self {
            Self(0) if number < FLOWS_MAX => Ok(number),
            Self(1..) if number == 0 => Ok(self.first_flow()),
            Self(_) => Err(Misuse::BadFlow),
        }
    }

    /// The first of its flows.
    pub(crate) const fn first_flow(self) -> u16 {
        match self {
            Self(0) => 0,
            Self(space) => FIRST_FLOW - 1 + space as u16,
        }
    }

    /// The number that [`SpaceId::flow`] was given.
    #[inline(always)]
    pub(crate) const fn number_of(flow: u16) -> u16 {
        if flow < FIRST_FLOW { flow } else { 0 }
    }

    /// In a set of spaces.
    #[must_use]
    pub const fn bit(self) -> u16 {
        1 << self.0
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// Keeps apart what the spaces draw from the same random bits.
    pub(crate) const fn salt(self) -> u64 {
        (self.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) const fn at(index: usize) -> Self {
        Self(index as u8)
    }
}

impl std::fmt::Display for SpaceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::PROGRAM => f.write_str("the program"),
            Self::ATOLL => f.write_str("ATOLL"),
            Self::BSP => f.write_str("BSPlib"),
            Self(number) => write!(f, "space {number}"),
        }
    }
}
