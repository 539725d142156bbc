//! Spaces: what each of several interfaces has of its own on a shared endpoint.
//!
//! On the wire a space is a flow. The program's own space has flows 0 to 5, and 6 and 7 for its
//! matched messages; each other space has one, for both. So wildcards, order, stops and losses
//! are separate without further work.

use super::Misuse;

/// Number of flows of the program's own space, for each priority.
pub const FLOWS_MAX: u16 = 6;

/// Number of all flows: those above, those of matched messages, and one for each other space.
pub const FLOWS_ALL: u16 = portolan_proto::FLOWS_MAX as u16;

/// Names a space; 0 is the program's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpaceId(u8);

/// Number of spaces, the program's own included: each of the others has a flow.
pub const SPACES: usize = 9;

/// The flow of space 1; the others follow.
pub const FIRST_FLOW: u16 = 8;
const _: () = assert!(FIRST_FLOW as usize + SPACES - 1 == portolan_proto::FLOWS_MAX);

impl SpaceId {
    // All spaces in use are named here.

    /// The program's own.
    pub const PROGRAM: Self = Self(0);
    /// ATOLL's interface.
    pub const ATOLL: Self = Self(1);
    /// BSPlib's interface.
    pub const BSP: Self = Self(2);
    /// Free for third-party libraries.
    pub const OTHERS: [Self; 2] = [Self(7), Self(8)];

    /// Returns the space with this number, 0 to 8.
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

    /// Returns the space's number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0 as u32
    }

    /// Returns the space that owns a flow; for an invalid flow, a space that is never open.
    /// (P13.15)
    #[inline(always)]
    pub(crate) const fn of_flow(flow: u16) -> Self {
        let number = flow.saturating_sub(FIRST_FLOW - 1);
        Self(if number < 0xff { number as u8 } else { 0xff })
    }

    /// Returns the flow on the wire for flow `number` of the space. Spaces other than the
    /// program's have flow 0 alone.
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

    /// Returns the space's first flow.
    pub(crate) const fn first_flow(self) -> u16 {
        match self {
            Self(0) => 0,
            Self(space) => FIRST_FLOW - 1 + space as u16,
        }
    }

    /// Returns the number that [`SpaceId::flow`] was called with.
    #[inline(always)]
    pub(crate) const fn number_of(flow: u16) -> u16 {
        if flow < FIRST_FLOW { flow } else { 0 }
    }

    /// Returns the space's bit in a set of spaces.
    #[must_use]
    pub const fn bit(self) -> u16 {
        1 << self.0
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns a value that keeps apart what spaces derive from the same random bits.
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
