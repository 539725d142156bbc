//! How often what anybody on the network can cause is done.

/// What anybody on the network can cause: so often at once, and per second
/// after that, where nothing else is said.
const USUAL: u32 = 1024;

/// How often something may still be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tokens {
    left: u32,
    most: u32,
    earned_at: u64,
}

impl Tokens {
    /// What most may be done.
    pub const USUAL: u32 = USUAL;

    pub const FULL: Self = Self::full(USUAL);

    /// So often at once, and per second after that.
    pub const fn full(most: u32) -> Self {
        Self {
            left: most,
            most,
            earned_at: 0,
        }
    }

    /// Whether it may be done once more, now.
    pub fn spend(&mut self, now: u64) -> bool {
        let per_token = 1_000_000_000 / u64::from(self.most);
        let earned = now.saturating_sub(self.earned_at) / per_token;
        if earned > 0 {
            self.earned_at = now;
            let sum = u64::from(self.left).saturating_add(earned);
            self.left = sum.min(u64::from(self.most)) as u32;
        }
        let allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        allowed
    }

    /// It was done for who may have it.
    pub fn refund(&mut self) {
        self.left = (self.left + 1).min(self.most);
    }
}
