//! A sleep on the endpoint's descriptors: what it needs, and what ended it.

use portolan_sys::epoll::{Epoll, READY_MAX};

/// What a sleep needs, so that it can run without the state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idle {
    /// Longest duration, ns; `None`: no limit.
    pub timeout: Option<u64>,
    /// Latest wake-up, ns of the monotonic clock; `u64::MAX`: no limit.
    pub due: u64,
}

/// Tokens of the descriptors that ended a sleep.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Woken {
    tokens: [u64; READY_MAX],
    count: usize,
    /// Whether the sleep failed: the tokens then say nothing.
    failed: bool,
}

impl Woken {
    /// Sleeps until a descriptor of `set` is readable, for `timeout` ns at most.
    pub fn from(set: &Epoll, timeout: Option<u64>) -> Self {
        let mut woken = Self::default();
        let slept = set.wait(timeout, |token| woken.push(token));
        // An error would be a bug of ours; the wait then spins.
        woken.failed = slept.is_err();
        woken
    }

    fn push(&mut self, token: u64) {
        if self.count < READY_MAX {
            self.tokens[self.count] = token;
            self.count += 1;
        }
    }

    pub fn tokens(&self) -> &[u64] {
        &self.tokens[..self.count]
    }

    /// Whether a descriptor with this token was readable, or may have been.
    pub fn has(&self, token: u64) -> bool {
        self.failed || self.count == READY_MAX || self.tokens().contains(&token)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use portolan_sys::doorbell::Doorbell;

    use super::*;

    #[test]
    fn who_rang_is_known_unless_too_many_did() {
        let bells: Vec<Doorbell> = (0..READY_MAX).map(|_| Doorbell::new().unwrap()).collect();
        let set = Epoll::new().unwrap();
        for (name, bell) in (10..).zip(&bells) {
            set.add(bell.as_fd(), name).unwrap();
        }
        bells[3].ring();
        let woken = Woken::from(&set, None);
        assert_eq!(woken.tokens(), [13]);
        assert!(woken.has(13) && !woken.has(14));
        // More may be readable.
        bells.iter().for_each(Doorbell::ring);
        assert!(Woken::from(&set, None).has(99));
    }
}
