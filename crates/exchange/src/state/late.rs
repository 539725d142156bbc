//! Memory for messages that are pulled before a receive asks for them, of closing senders and of
//! others: allocated when used, and bounded for each sender.

use alloc::collections::BTreeMap;

/// Divisor of the bounds: one sender may hold an eighth of the memory, and so may all strangers
/// together, of which one may hold an eighth of that eighth.
pub(crate) const LATE_SHARE: u64 = 8;

/// Memory held for one sender.
#[derive(Clone, Copy, Debug)]
struct Held {
    bytes: u64,
    stranger: bool,
}

/// One for all exchanges of an endpoint; passed on with the schedule of pulls.
#[derive(Debug)]
pub(crate) struct Late {
    max: u64,
    held: BTreeMap<u32, Held>,
    /// Bytes held for all senders, and for strangers among them.
    all: u64,
    strangers: u64,
    /// Exchanges whose messages wait for room: one bit each.
    waiting: u16,
}

impl Late {
    pub const fn new(max: u64) -> Self {
        Self {
            max,
            held: BTreeMap::new(),
            all: 0,
            strangers: 0,
            waiting: 0,
        }
    }

    /// Takes `bytes` bytes for a sender; false: no room.
    pub fn take(&mut self, from: u32, stranger: bool, bytes: u64) -> bool {
        let own = self.held(from);
        let fits = own.saturating_add(bytes) <= self.share(stranger)
            && self.all.saturating_add(bytes) <= self.max
            && !(stranger && self.strangers.saturating_add(bytes) > self.share(false));
        if fits {
            let held = self.held.entry(from).or_insert(Held { bytes: 0, stranger });
            held.bytes += bytes;
            self.all += bytes;
            self.strangers += if held.stranger { bytes } else { 0 };
        }
        fits
    }

    /// Bytes held for a sender.
    pub fn held(&self, from: u32) -> u64 {
        self.held.get(&from).map_or(0, |held| held.bytes)
    }

    /// Number of senders with bytes held.
    pub fn senders(&self) -> usize {
        self.held.len()
    }

    /// Bytes that one sender may hold at most.
    pub const fn share(&self, stranger: bool) -> u64 {
        let share = self.max / LATE_SHARE;
        if stranger { share / LATE_SHARE } else { share }
    }

    /// Frees bytes of a sender; returns an exchange other than `exchange` that waits for room.
    pub fn give_back(&mut self, exchange: u8, from: u32, bytes: u64) -> Option<u8> {
        if let Some(held) = self.held.get_mut(&from) {
            let bytes = bytes.min(held.bytes);
            held.bytes -= bytes;
            self.all -= bytes;
            self.strangers -= if held.stranger { bytes } else { 0 };
            if held.bytes == 0 {
                self.held.remove(&from);
            }
        }
        let others = self.waiting & !(1 << exchange);
        (others != 0).then(|| others.trailing_zeros() as u8)
    }

    /// Sets whether messages of an exchange wait for room.
    pub const fn set_waiting(&mut self, exchange: u8, waits: bool) {
        let bit = 1 << exchange;
        self.waiting = if waits {
            self.waiting | bit
        } else {
            self.waiting & !bit
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_has_an_eighth_and_strangers_have_one_together() {
        let mut late = Late::new(800);
        assert!(late.take(1, false, 100));
        assert!(!late.take(1, false, 1));
        // One stranger may hold an eighth of that.
        assert!(!late.take(2, true, 13));
        for stranger in 20..28 {
            assert!(late.take(stranger, true, 12));
        }
        assert!(!late.take(28, true, 12));
        assert_eq!(late.give_back(0, 20, 12), None);
        assert!(late.take(28, true, 12));
        assert_eq!(late.give_back(0, 28, 12), None);
        for known in 5..11 {
            assert!(late.take(known, false, 100));
        }
        assert!(late.take(11, false, 16));
        assert!(!late.take(12, false, 1));
    }

    #[test]
    fn who_waits_in_another_exchange_hears_of_room() {
        let mut late = Late::new(80);
        assert!(late.take(1, false, 10));
        late.set_waiting(3, true);
        assert_eq!(late.give_back(3, 1, 5), None);
        assert_eq!(late.give_back(0, 1, 5), Some(3));
        late.set_waiting(3, false);
        assert_eq!(late.give_back(0, 1, 5), None);
    }
}
