//! From what the ranks say of a slice to its figure.

use crate::control::{Followed, Led, Op, Pattern, Sent};
use crate::plan::Kind;
use crate::slice::Rule;

/// What a slice gave.
#[derive(Debug, Default)]
pub struct Slice {
    pub sent: Sent,
    pub followed: Followed,
    pub led: Led,
}

/// A slice's figure; `None` where it has none.
pub fn value(kind: Kind, op: &Op, slice: &Slice, rule: &Rule, reliable: bool) -> Option<f64> {
    let Slice {
        sent,
        followed,
        led,
    } = slice;
    if kind.times_each() {
        return sent
            .one_way_us
            .or_else(|| Some(median(&led.round_trips)? / 10.0 / 1e3 / 2.0));
    }
    let size = op.size as f64;
    let mb_s = match (op.pattern, sent.messages_s, sent.one_way_us) {
        (Pattern::Pingpong, _, Some(one_way_us)) => size / one_way_us,
        (_, Some(messages_s), _) => messages_s * size / 1e6,
        (Pattern::Stream, ..) => {
            // Until the last byte; where that did not come, until the end of
            // waiting for it. What nobody promised is not waited for.
            let end = if followed.complete || !reliable {
                followed.last_ns
            } else {
                sent.start_ns + rule.cap_ns
            };
            followed.bytes as f64 * 1e3 / end.saturating_sub(sent.start_ns).max(1) as f64
        }
        (pattern, ..) => {
            let ways = if pattern == Pattern::Pingpong {
                2.0
            } else {
                1.0
            };
            let bytes = (sent.operations * op.row()) as f64 * size * ways;
            match sent.operations {
                0 => followed.bytes as f64 * 1e3 / rule.cap_ns as f64,
                _ => bytes * 1e3 / sent.elapsed_ns as f64,
            }
        }
    };
    Some(if kind == Kind::Rate {
        mb_s * 1e6 / size
    } else {
        mb_s
    })
}

/// The median of counted values.
fn median(counted: &[(u64, u64)]) -> Option<f64> {
    let total: u64 = counted.iter().map(|(_, count)| count).sum();
    let mut below = 0;
    for &(value, count) in counted {
        below += count;
        if 2 * below >= total {
            return Some(value as f64);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Rule = Rule {
        slice_ns: 100_000_000,
        operations: 10,
        cap_ns: 2_000_000_000,
    };

    fn stream(size: usize) -> Op {
        Op {
            pattern: Pattern::Stream,
            size,
        }
    }

    #[test]
    fn one_way_is_half_of_the_median_round_trip() {
        let op = Op {
            pattern: Pattern::Pingpong,
            size: 8,
        };
        let of = |slice: &Slice| value(Kind::Latency, &op, slice, &RULE, true);
        let timed = Slice {
            led: Led {
                round_trips: vec![(2_000, 3), (3_000, 4), (9_000, 2)],
                ..Led::default()
            },
            ..Slice::default()
        };
        assert_eq!(of(&timed), Some(0.15));
        assert_eq!(of(&Slice::default()), None);
        let told = Slice {
            sent: Sent {
                one_way_us: Some(0.2),
                ..Sent::default()
            },
            ..Slice::default()
        };
        assert_eq!(of(&told), Some(0.2));
    }

    #[test]
    fn a_stream_is_timed_until_its_last_byte() {
        let slice = Slice {
            sent: Sent {
                start_ns: 1_000,
                bytes: 3_000_000,
                ..Sent::default()
            },
            followed: Followed {
                bytes: 3_000_000,
                last_ns: 1_001_000,
                complete: true,
                ..Followed::default()
            },
            ..Slice::default()
        };
        let of = |kind, size| value(kind, &stream(size), &slice, &RULE, true);
        assert_eq!(of(Kind::Bandwidth, 1 << 20), Some(3_000.0));
        assert_eq!(of(Kind::Rate, 8), Some(375_000_000.0));
    }

    #[test]
    fn a_stream_that_stalls_is_timed_until_the_cap_and_counts_its_bytes() {
        let slice = Slice {
            sent: Sent {
                start_ns: 0,
                bytes: 8_000_000,
                cut: true,
                ..Sent::default()
            },
            followed: Followed {
                bytes: 500_000,
                last_ns: 1_000_000,
                complete: false,
                ..Followed::default()
            },
            ..Slice::default()
        };
        let of = |reliable| value(Kind::Bandwidth, &stream(1 << 20), &slice, &RULE, reliable);
        assert_eq!(of(true), Some(0.25));
        // Datagrams that are lost are not waited for.
        assert_eq!(of(false), Some(500.0));
    }

    #[test]
    fn answered_rows_are_timed_by_the_leader() {
        let of = |pattern, operations| {
            let op = Op {
                pattern,
                size: 1_000,
            };
            let slice = Slice {
                sent: Sent {
                    elapsed_ns: 1_000_000,
                    operations,
                    ..Sent::default()
                },
                followed: Followed {
                    bytes: 4_000,
                    ..Followed::default()
                },
                ..Slice::default()
            };
            value(Kind::Bandwidth, &op, &slice, &RULE, true)
        };
        assert_eq!(of(Pattern::Ping, 10), Some(10.0));
        assert_eq!(of(Pattern::Pingpong, 10), Some(20.0));
        assert_eq!(of(Pattern::Burst, 10), Some(640.0));
        assert_eq!(of(Pattern::Ping, 0), Some(0.002));
    }
}
