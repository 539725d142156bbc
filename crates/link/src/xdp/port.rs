//! The source port of what goes past the kernel to one address. Network cards
//! with several queues choose by it.

/// Packets that go mis_steered are judged after so long and so many packets by one
/// source port: what left earlier has arrived, and its news come back.
const SETTLE_NS: u64 = 5_000_000;
const SETTLE_FRAMES: u64 = 8;
/// Source ports that are tried for an address, until the next try begins after
/// the pause, ns. Of a card with 16 queues all miss one in 62 times.
const TRIES: u32 = 64;
const PAUSE_NS: u64 = 60_000_000_000;
/// Where they are from: RFC 6335, section 6.
const PORTS: std::ops::RangeInclusive<u16> = 49_152..=65_535;

/// The source port towards one address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourcePort {
    /// Our own: that which we receive at.
    own: u16,
    now: u16,
    /// Others that were tried since it last rested, and until when it does.
    tries: u32,
    rests_until: u64,
    /// Packets go mis_steered: since when, how many had been sent before, and when
    /// that was last heard.
    mis_steered: Option<(u64, u64, u64)>,
}

impl SourcePort {
    /// Our own port.
    #[must_use]
    pub const fn new(own: u16) -> Self {
        Self {
            own,
            now: own,
            tries: 0,
            rests_until: 0,
            mis_steered: None,
        }
    }

    /// The present one.
    #[must_use]
    pub const fn get(&self) -> u16 {
        self.now
    }

    /// Packets arrive there by a detour, of which `sent` have left in all. True
    /// if it is another port from now on.
    pub fn mis_steered(&mut self, now: u64, sent: u64) -> bool {
        if now < self.rests_until {
            return false;
        }
        let (since, before) = match self.mis_steered {
            Some((since, before, heard)) if now - heard < SETTLE_NS => (since, before),
            _ => (now, sent),
        };
        self.mis_steered = Some((since, before, now));
        if now - since < SETTLE_NS || sent - before < SETTLE_FRAMES {
            return false;
        }
        if self.tries == TRIES {
            self.tries = 0;
            self.rests_until = now + PAUSE_NS;
            self.become_own();
        } else {
            self.tries += 1;
            self.try_other();
        }
        true
    }

    /// A packet took another way on purpose: it is that which is seen there.
    pub const fn reset_doubt(&mut self) {
        self.mis_steered = None;
    }

    /// Our own from now on. True if it was not.
    pub fn become_own(&mut self) -> bool {
        let other = self.now != self.own;
        self.now = self.own;
        self.mis_steered = None;
        other
    }

    fn try_other(&mut self) {
        self.now = other_port(self.own, self.now);
        self.mis_steered = None;
    }
}

/// A source port to be tried after `last`; neither that nor our own.
fn other_port(own: u16, last: u16) -> u16 {
    let count = u32::from(PORTS.end() - PORTS.start()) + 1;
    // Hits each port once before it comes around (Hull and Dobell).
    let next = |port: u16| {
        let step = (u32::from(port) * 4_093 + u32::from(own) * 2 + 1) % count;
        PORTS.start() + step as u16
    };
    match next(last) {
        port if port == own => next(port),
        port => port,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ports_are_tried_before_one_comes_again() {
        for own in [7_000, 49_152, 60_001] {
            let mut seen = std::collections::HashSet::new();
            let mut port = SourcePort::new(own);
            while seen.insert(port.get()) {
                port.try_other();
            }
            // Our own is tried at the start only.
            let all = usize::from(PORTS.end() - PORTS.start());
            assert!(seen.len() >= all, "{} of {all} with {own}", seen.len());
        }
    }

    #[test]
    fn what_goes_astray_leaves_from_another_port_once_it_settled() {
        let mut port = SourcePort::new(7_000);
        assert!(!port.mis_steered(1, 100));
        assert!(!port.mis_steered(SETTLE_NS - 1, 108), "too soon");
        assert!(port.mis_steered(SETTLE_NS + 1, 108));
        let first = port.get();
        assert_ne!(first, 7_000);
        // Too few since, or not heard for long, or it was meant to.
        assert!(!port.mis_steered(SETTLE_NS + 2, 109));
        assert!(!port.mis_steered(2 * SETTLE_NS + 1, 116));
        assert!(!port.mis_steered(4 * SETTLE_NS, 200));
        port.reset_doubt();
        assert!(!port.mis_steered(5 * SETTLE_NS - 1, 300));
        assert_eq!(port.get(), first);
        assert!(port.become_own() && !port.become_own());
    }

    #[test]
    fn after_so_many_tries_it_rests_with_its_own() {
        let mut port = SourcePort::new(7_000);
        let (mut now, mut changes) = (0, 0);
        while port.get() != 7_000 || changes == 0 {
            now += SETTLE_NS / 4;
            changes += u32::from(port.mis_steered(now, now));
        }
        assert_eq!(changes, TRIES + 1);
        assert!(!port.mis_steered(now + PAUSE_NS - 1, now));
    }
}
