//! How a stream arrived over time.

use serde::{Deserialize, Serialize};

/// Length of a bin, nanoseconds: fine beside what is measured with it, tens of
/// milliseconds and more.
const BIN_NS: u64 = 1_000_000;
/// Bins over which a rate is taken that is to be found again: several packets
/// even on slow lines.
const WINDOW: usize = 10;
/// A gap between arrivals that is kept as a silence, nanoseconds.
const SILENCE_NS: u64 = 5_000_000;

/// Bytes that arrived, millisecond by millisecond.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    start_ns: u64,
    bins: Vec<u64>,
    last_ns: u64,
    silences: Vec<[u64; 2]>,
}

impl Timeline {
    /// From `start_ns` on, on the monotonic clock.
    #[must_use]
    pub fn new(start_ns: u64) -> Self {
        Self {
            start_ns,
            last_ns: start_ns,
            silences: Vec::new(),
            bins: Vec::new(),
        }
    }

    /// So many bytes have come.
    pub fn note(&mut self, now_ns: u64, bytes: u64) {
        if now_ns.saturating_sub(self.last_ns) > SILENCE_NS {
            self.silences.push([self.last_ns, now_ns]);
        }
        self.last_ns = self.last_ns.max(now_ns);
        let bin = (now_ns.saturating_sub(self.start_ns) / BIN_NS) as usize;
        if self.bins.len() <= bin {
            self.bins.resize(bin + 1, 0);
        }
        self.bins[bin] += bytes;
    }

    /// Bytes in all.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bins.iter().sum()
    }

    /// The last arrival before a time in which nothing came, and the next one.
    #[must_use]
    pub fn silence_at(&self, at_ns: u64) -> Option<[u64; 2]> {
        let mut all = self.silences.iter().copied();
        all.find(|[since_ns, resumed_ns]| (since_ns..resumed_ns).contains(&&at_ns))
    }

    fn bin(&self, at_ns: u64) -> usize {
        (at_ns.saturating_sub(self.start_ns) / BIN_NS) as usize
    }

    /// Millions of bytes per second between two times, whole milliseconds.
    #[must_use]
    pub fn mb_s(&self, [from_ns, to_ns]: [u64; 2]) -> f64 {
        let (from, to) = (self.bin(from_ns), self.bin(to_ns));
        let came = self.bins.iter().take(to).skip(from).sum::<u64>();
        came as f64 * 1e3 / ((to - from).max(1) as u64 * BIN_NS) as f64
    }

    /// When, from `from_ns` on, so many millions of bytes per second had come
    /// for ten milliseconds: their end.
    #[must_use]
    pub fn reaches(&self, mb_s: f64, from_ns: u64) -> Option<u64> {
        let needed = mb_s * (WINDOW as u64 * BIN_NS) as f64 / 1e3;
        let from = self.bin(from_ns).min(self.bins.len());
        let found = self.bins[from..]
            .windows(WINDOW)
            .position(|bins| bins.iter().sum::<u64>() as f64 >= needed)?;
        Some(self.start_ns + (from + found + WINDOW) as u64 * BIN_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// 1,000 bytes each millisecond, but for 100 to 200 ms; then half as many
    /// for 50 ms.
    fn timeline() -> Timeline {
        let mut timeline = Timeline::new(7 * MS);
        for ms in (0..100).chain(200..400) {
            let bytes = if (200..250).contains(&ms) { 500 } else { 1_000 };
            timeline.note((7 + ms) * MS, bytes);
        }
        timeline
    }

    #[test]
    fn a_silence_ends_with_an_arrival_and_the_rate_comes_back_later() {
        let timeline = timeline();
        let silence = Some([(7 + 99) * MS, (7 + 200) * MS]);
        for at_ms in [99, 150, 199] {
            assert_eq!(timeline.silence_at((7 + at_ms) * MS), silence);
        }
        assert_eq!(timeline.silence_at((7 + 98) * MS), None);
        assert_eq!(timeline.silence_at((7 + 200) * MS), None);
        let before = timeline.mb_s([7 * MS, 107 * MS]);
        assert!((before - 1.0).abs() < 1e-9, "{before}");
        // 9 of 10 ms at the full rate make 0.95 of it.
        assert_eq!(
            timeline.reaches(0.9 * before, (7 + 200) * MS),
            Some((7 + 258) * MS)
        );
        assert_eq!(timeline.reaches(1.1, 7 * MS), None);
        assert_eq!(timeline.bytes(), 100_000 + 25_000 + 150_000);
    }

    #[test]
    fn times_beyond_what_came_are_empty() {
        let timeline = timeline();
        assert_eq!(timeline.mb_s([900 * MS, 950 * MS]), 0.0);
        assert_eq!(timeline.reaches(0.1, 900 * MS), None);
        assert_eq!(Timeline::new(5).silence_at(5), None);
    }
}
