//! Rate limits of work that anyone on the network can cause.

/// Default limit: times at once, and per second after that.
const USUAL: u32 = 1024;

/// Token bucket: how often something may still be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tokens {
    left: u32,
    most: u32,
    earned_at: u64,
}

impl Tokens {
    /// The default limit.
    pub const USUAL: u32 = USUAL;

    pub const FULL: Self = Self::full(USUAL);

    /// A full bucket: `most` times at once, and per second after that.
    pub const fn full(most: u32) -> Self {
        Self {
            left: most,
            most,
            earned_at: 0,
        }
    }

    /// Takes a token; returns whether there was one.
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

    /// Returns a token: the work was for an authentic packet.
    pub fn refund(&mut self) {
        self.left = (self.left + 1).min(self.most);
    }
}
