//! The shorter way to the peer that nearly all packets go to.
//!
//! The kernel finds a route anew for every packet of an unconnected socket:
//! 0.4 us. Who has sent a good many packets in a row to one address gets a
//! second socket at the same own port, connected there. The peer sees no
//! difference. What that peer sends arrives in that socket, all else in the
//! first one, which is then looked at less often while it has nothing.

use portolan_sys::net::{SocketOptions, UdpSocket};

use super::receive::Port;
use crate::LinkAddress;

/// Packets in a row to one address, with none to the present peer, that make
/// it the new one.
const STREAK: u32 = 512;
/// Times in a row after which no socket is tried any more. A process that has just been forked has
/// a copy of the one before for a moment, and three may not share the port.
const FAILURES_MAX: u8 = 4;
/// Time between two looks at the first socket, ns: at first, and at most, once looks have found
/// nothing. The kernel keeps what comes there; a look that finds nothing costs 0.3 us.
const MAIN_EVERY_NS: u64 = 3_000;
const MAIN_EVERY_NS_MAX: u64 = 12_000;

/// Whom the second socket is for.
#[derive(Debug)]
pub(super) struct Direct {
    pub port: Port,
    pub to: LinkAddress,
    /// The socket was empty once: what came between its bind and its connect is read.
    pub is_drained: bool,
}

/// Who gets a socket of their own, and how often the other one is looked at.
#[derive(Debug)]
pub(super) struct Choice {
    candidate: LinkAddress,
    streak: u32,
    /// The clock when the first socket was last looked at, ns.
    main_at: u64,
    /// Time from that look to the next, ns; 0: it found something.
    main_every: u64,
    /// Times in a row that a socket could not be made.
    failures: u8,
}

impl Default for Choice {
    fn default() -> Self {
        Self {
            candidate: LinkAddress::default(),
            streak: 0,
            main_at: 0,
            main_every: MAIN_EVERY_NS,
            failures: 0,
        }
    }
}

impl Choice {
    /// A packet has left for `to` by the first socket.
    #[inline]
    pub fn note(&mut self, to: &LinkAddress) {
        if *to == self.candidate {
            self.streak = self.streak.saturating_add(1);
        } else {
            self.candidate = *to;
            self.streak = 0;
        }
    }

    /// A packet has left by the second socket.
    #[inline]
    pub fn note_direct(&mut self) {
        self.streak = 0;
    }

    /// Who is to get a socket.
    #[inline]
    pub fn chosen(&self) -> Option<LinkAddress> {
        (self.streak >= STREAK && self.failures < FAILURES_MAX).then_some(self.candidate)
    }

    /// Opens it.
    #[cold]
    pub fn open(&mut self, main: &UdpSocket, options: &SocketOptions) -> Option<Direct> {
        self.streak = 0;
        let to = self.candidate;
        let raw = main.destination(&to.ip, to.port, to.scope)?;
        match main.connected(options, &raw) {
            Ok(socket) => {
                self.failures = 0;
                Some(Direct {
                    port: Port::new(socket),
                    to,
                    is_drained: false,
                })
            }
            Err(_) => {
                self.failures += 1;
                None
            }
        }
    }

    /// Whether the first socket is to be looked at, though the second exists.
    #[inline]
    pub fn main_is_due(&self, now: u64) -> bool {
        now.wrapping_sub(self.main_at) >= self.main_every
    }

    /// The first socket is to be looked at next.
    pub fn look_at_main(&mut self) {
        self.main_every = 0;
    }

    /// The first socket was looked at.
    #[inline]
    pub fn looked_at_main(&mut self, now: u64, found: bool) {
        self.main_at = now;
        self.main_every = if found {
            0
        } else {
            (2 * self.main_every).clamp(MAIN_EVERY_NS, MAIN_EVERY_NS_MAX)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_row_to_one_address_is_chosen() {
        let mut choice = Choice::default();
        let to = |port| LinkAddress {
            port,
            ..LinkAddress::default()
        };
        for _ in 0..10 * STREAK {
            choice.note(&to(1));
            choice.note(&to(2));
        }
        assert_eq!(choice.chosen(), None);
        for _ in 0..=STREAK {
            choice.note(&to(2));
        }
        assert_eq!(choice.chosen(), Some(to(2)));
        choice.note_direct();
        assert_eq!(choice.chosen(), None);
    }

    #[test]
    fn the_first_socket_is_not_forgotten() {
        let mut choice = Choice::default();
        choice.looked_at_main(1_000, true);
        assert!(choice.main_is_due(1_000));
        // The longer it has nothing, the later it is looked at again.
        for every in [3_000, 6_000, 12_000, 12_000] {
            choice.looked_at_main(1_000, false);
            assert!(!choice.main_is_due(1_000 + every - 1));
            assert!(choice.main_is_due(1_000 + every));
        }
        choice.looked_at_main(1_000, true);
        assert!(choice.main_is_due(1_000));
    }
}
