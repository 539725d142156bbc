//! The thresholds: their settings, defaults and names by link.

use portolan::tuned::Link;
use portolan::{Push, SETTINGS};
use serde::{Deserialize, Serialize};

/// What is tuned, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Values {
    /// Longest message that is pushed whole.
    pub whole: u64,
    /// BTP(1).
    pub first: u64,
    /// BTP(2).
    pub second: u64,
    /// Asked for and not there yet, of all senders.
    pub window: u64,
    /// Of one request.
    pub chunk: u64,
    /// From how many bytes on both sides copy, by shared memory.
    pub share: u64,
}

impl Values {
    /// The defaults of a link, whatever was tuned or set.
    pub fn defaults(link: Link) -> Self {
        let of = |name: &str| {
            let row = SETTINGS.iter().find(|row| row.name == name);
            row.and_then(|row| row.default.parse().ok()).unwrap_or(0)
        };
        let [whole, first, second] = [0, 1, 2].map(|place| of(link.settings()[place]));
        Self {
            whole,
            first,
            second,
            window: of("pull_window"),
            chunk: of("pull_chunk"),
            share: of("share_min"),
        }
    }

    /// As an endpoint takes them.
    pub fn push(&self) -> Push {
        Push {
            whole: self.whole,
            first: self.first,
            second: self.second,
            ..Push::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_settings() {
        for link in Link::ALL {
            let values = Values::defaults(link);
            let whole = if link == Link::Shm {
                128 << 10
            } else {
                64 << 10
            };
            let usual = Push {
                whole,
                ..Push::default()
            };
            assert_eq!(values.push(), usual, "{link}");
            assert_eq!((values.window, values.chunk), (512 << 10, 128 << 10));
            assert_eq!(values.share, 128 << 10);
        }
    }
}
