//! Short messages in a row to one peer share packets. The first ones leave at once; those
//! behind them wait for the next pass. The caller that switches this on must make one soon.
//! Most programs that send several in a row wait for something next.

use portolan_proto::PeerId;

/// Messages in a row that leave at once: few programs send more before they compute.
const AT_ONCE: u32 = 2;

/// Gap between two messages above which they are not in one row, ns.
const APART_NS: u64 = 10_000;

/// Bytes of chunks that share a packet of Ethernet's usual size.
const BYTES_MAX: usize = 1_400;

/// Messages that calls outside of passes have sent.
#[derive(Debug, Default)]
pub struct Gathering {
    on: bool,
    to: Option<PeerId>,
    in_a_row: u32,
    bytes: usize,
    last_at: u64,
    waits: bool,
}

impl Gathering {
    pub const fn switch_on(&mut self) {
        self.on = true;
    }

    /// Notes a message that was passed to the protocol; `bytes`: length of its chunk.
    #[inline]
    pub fn add(&mut self, now: u64, to: PeerId, bytes: usize) {
        if self.to != Some(to) || now.saturating_sub(self.last_at) > APART_NS {
            (self.to, self.in_a_row) = (Some(to), 0);
        }
        self.last_at = now;
        self.in_a_row += 1;
        self.bytes += bytes;
        // If another one would find no room, nothing is waited for.
        let room = self.bytes + bytes <= BYTES_MAX;
        self.waits = self.on && self.in_a_row > AT_ONCE && room;
    }

    /// Whether the next message surely leaves alone: gathering is off, or the message is one of
    /// the first of its row. Asks for no clock.
    #[inline]
    pub fn is_alone(&self, to: PeerId) -> bool {
        !self.on || self.in_a_row < AT_ONCE || self.to != Some(to)
    }

    /// Makes what is there leave at the end of the call.
    #[inline]
    pub const fn hurry(&mut self) {
        self.waits = false;
    }

    /// Notes that all has left.
    #[inline]
    pub const fn left(&mut self) {
        self.bytes = 0;
        self.waits = false;
    }

    /// Notes a pass, which ends the row.
    #[inline]
    pub const fn pass(&mut self) {
        self.in_a_row = 0;
    }

    /// Whether what is there may wait for the next pass.
    #[inline(always)]
    pub const fn waits(&self) -> bool {
        self.waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PeerId = PeerId(1);
    const B: PeerId = PeerId(2);

    fn on() -> Gathering {
        let mut it = Gathering::default();
        it.switch_on();
        it
    }

    /// Sends a chunk of 44 bytes; returns whether it may wait.
    fn sends(it: &mut Gathering, now: u64, to: PeerId) -> bool {
        it.add(now, to, 44);
        let waits = it.waits();
        if !waits {
            it.left();
        }
        waits
    }

    #[test]
    fn the_first_leave_at_once_and_so_does_a_full_packet() {
        let mut it = on();
        let waited = (0..200)
            .map(|now| sends(&mut it, now, A))
            .collect::<Vec<_>>();
        assert_eq!(waited[..3], [false, false, true]);
        let full = waited.iter().filter(|waits| !**waits).count() - 2;
        assert_eq!(full, 198 / (BYTES_MAX / 44));
    }

    #[test]
    fn a_pass_another_peer_and_a_pause_begin_a_row() {
        let mut it = on();
        let three = |it: &mut Gathering, now| {
            assert!(!sends(it, now, A));
            assert!(!sends(it, now, A));
            assert!(sends(it, now, A));
        };
        three(&mut it, 0);
        it.pass();
        it.left();
        three(&mut it, 1);
        assert!(!sends(&mut it, 2, B));
        three(&mut it, 3);
        three(&mut it, 4 + APART_NS);
        it.hurry();
        assert!(!it.waits());
    }

    #[test]
    fn the_first_of_a_row_are_known_without_a_clock() {
        let mut it = on();
        for now in 0..u64::from(AT_ONCE) {
            assert!(it.is_alone(A));
            sends(&mut it, now, A);
        }
        assert!(!it.is_alone(A) && it.is_alone(B));
        it.pass();
        assert!(it.is_alone(A));
    }

    #[test]
    fn who_has_not_asked_sends_all_at_once() {
        let mut it = Gathering::default();
        assert!((0..9).all(|now| !sends(&mut it, now, A)));
    }
}
