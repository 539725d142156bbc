//! How long one system is measured before it is the other's turn.

use serde::{Deserialize, Serialize};

/// Longest slice while operations are short, milliseconds.
pub const SLICE_MS_MAX: u64 = 100;
/// Operations that a slice waits for even when they take longer.
pub const OPERATIONS_MIN: u64 = 10;
/// No slice is longer than this, nanoseconds.
pub const CAP_NS: u64 = 2_000_000_000;

/// The rule by which a slice ends: after its time, or after ten operations
/// where they take longer, but never after the cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Time of the slice, nanoseconds.
    pub slice_ns: u64,
    /// Operations to wait for.
    pub operations: u64,
    /// The end in any case, nanoseconds.
    pub cap_ns: u64,
}

impl Rule {
    /// The rule for slices of `slice_ns`.
    #[must_use]
    pub fn new(slice_ns: u64) -> Self {
        Self {
            slice_ns,
            operations: OPERATIONS_MIN,
            cap_ns: CAP_NS,
        }
    }

    /// Whether a slice that began `elapsed_ns` ago goes on after `operations`.
    #[inline]
    #[must_use]
    pub fn goes_on(&self, elapsed_ns: u64, operations: u64) -> bool {
        elapsed_ns < self.slice_ns || (operations < self.operations && elapsed_ns < self.cap_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_ends_by_time_then_by_ten_operations_then_by_the_cap() {
        let rule = Rule::new(100_000_000);
        assert!(rule.goes_on(0, 0));
        assert!(rule.goes_on(99_999_999, 1_000_000));
        assert!(!rule.goes_on(100_000_000, 10));
        assert!(rule.goes_on(100_000_000, 9));
        assert!(rule.goes_on(1_999_999_999, 9));
        assert!(!rule.goes_on(2_000_000_000, 9));
        assert!(!rule.goes_on(2_000_000_000, 0));
    }
}
