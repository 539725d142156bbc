//! The suite that every link has to pass: instantiate it with [`all`].
//!
//! It runs without injected faults; what a link may lose, repeat or reorder
//! by its capabilities is allowed for only where the suite says so.

use crate::{Link, LinkAddress, LinkError, TxFrame};

/// Two ends of a link under test, 0 and 1, that can reach each other.
pub trait Pair {
    /// The link.
    type Link: Link;

    /// An end.
    fn link(&mut self, end: usize) -> &mut Self::Link;

    /// The address under which the other end reaches it.
    fn address(&self, end: usize) -> LinkAddress;

    /// Lets what was sent arrive. Called between looks; a simulated network
    /// moves its clock here, a real one has nothing to do.
    fn settle(&mut self) {
        std::thread::yield_now();
    }

    /// Somebody else sends garbage to `end`, where that is possible.
    fn disturb(&mut self, end: usize) {
        let _ = end;
    }

    /// Frames that may wait at an end without being lost.
    fn waiting_max(&self) -> usize {
        64
    }
}

/// A check of the suite.
type Check<P> = fn(P);

/// Runs every check, each on a new pair.
///
/// # Panics
/// If a check fails; the check's name is printed before it runs.
pub fn all<P: Pair>(mut make: impl FnMut() -> P) {
    let checks: &[(&str, Check<P>)] = &[
        ("empty_gives_nothing", empty_gives_nothing),
        ("every_size_arrives_intact", every_size_arrives_intact),
        ("source_address_takes_a_reply", source_address_takes_a_reply),
        ("mixed_bursts_arrive", mixed_bursts_arrive),
        ("too_big_sends_nothing", too_big_sends_nothing),
        ("full_recovers", full_recovers),
        ("strangers_do_not_disturb", strangers_do_not_disturb),
    ];
    for (name, check) in checks {
        println!("conformance: {name}");
        check(make());
    }
}

/// Looks at an empty link until something arrives, this often.
const PATIENCE: usize = 20_000;

/// A small generator (SplitMix64), so that a run repeats exactly.
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.draw() % bound as u64) as usize
    }
}

/// `len` bytes that no other tag or length begins like, from 8 bytes up.
fn pattern(tag: u64, len: usize) -> Vec<u8> {
    let mut random = Random(tag.wrapping_mul(0x1_0001).wrapping_add(len as u64));
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend(random.draw().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Sends all frames, however often it takes; receives into `got` whenever the
/// link is full.
fn send_all<P: Pair>(pair: &mut P, from: usize, frames: &[Vec<u8>], got: &mut Vec<Vec<u8>>) {
    let to = pair.address(1 - from);
    let burst: Vec<_> = frames
        .iter()
        .map(|bytes| TxFrame {
            to,
            bytes,
            ecn: true,
        })
        .collect();
    let mut sent = 0;
    let mut waits = 0;
    while sent < burst.len() {
        match pair.link(from).tx_burst(&burst[sent..]) {
            Ok(count) => {
                assert!((1..=burst.len() - sent).contains(&count), "taken: {count}");
                sent += count;
            }
            Err(LinkError::Full) => {
                waits += 1;
                assert!(waits < PATIENCE, "full for good");
                pair.settle();
                receive(pair, 1 - from, got);
            }
            Err(error) => panic!("frame {sent} of {}: {error:?}", burst.len()),
        }
    }
}

/// One look: takes what `end` shows from the other end; gives how many, from
/// anybody. Overwrites each frame, as decryption in place would.
fn receive<P: Pair>(pair: &mut P, end: usize, got: &mut Vec<Vec<u8>>) -> usize {
    let peer = pair.address(1 - end);
    let mut seen = 0;
    let shown = pair.link(end).rx_burst(32, |frame| {
        seen += 1;
        if frame.from == peer {
            got.push(frame.bytes.to_vec());
        }
        frame.bytes.fill(0xa5);
    });
    let shown = shown.expect("rx_burst");
    assert_eq!(shown, seen, "count and frames shown differ");
    shown
}

/// Looks until `count` frames of the other end have come.
fn receive_until<P: Pair>(pair: &mut P, end: usize, count: usize, got: &mut Vec<Vec<u8>>) {
    let mut waits = 0;
    while got.len() < count {
        if receive(pair, end, got) == 0 {
            waits += 1;
            assert!(waits < PATIENCE, "{} of {count} frames came", got.len());
            pair.settle();
        }
    }
}

/// What came is what was sent, in order where the link promises that.
fn assert_same<P: Pair>(pair: &mut P, mut sent: Vec<Vec<u8>>, mut got: Vec<Vec<u8>>) {
    if !pair.link(0).capabilities().ordered {
        sent.sort();
        got.sort();
    }
    assert_eq!(sent.len(), got.len(), "number of frames");
    for (index, (sent, got)) in sent.iter().zip(&got).enumerate() {
        assert_eq!(sent.len(), got.len(), "length of frame {index}");
        assert!(
            sent == got,
            "frame {index} of {} bytes was altered or moved",
            sent.len()
        );
    }
}

fn empty_gives_nothing<P: Pair>(mut pair: P) {
    for end in [0, 1] {
        for _ in 0..100 {
            assert_eq!(receive(&mut pair, end, &mut Vec::new()), 0);
        }
        assert_eq!(pair.link(end).tx_burst(&[]), Ok(0));
    }
}

fn every_size_arrives_intact<P: Pair>(mut pair: P) {
    let frame_max = pair.link(0).capabilities().frame_max;
    let sizes = (1..=frame_max).filter(|size| {
        // All small ones, all near the limit, and some between.
        *size <= 300 || frame_max - size <= 20 || size % 61 == 0
    });
    for size in sizes {
        let sent = vec![pattern(1, size)];
        let mut got = Vec::new();
        send_all(&mut pair, 0, &sent, &mut got);
        receive_until(&mut pair, 1, 1, &mut got);
        assert_same(&mut pair, sent, got);
    }
}

fn source_address_takes_a_reply<P: Pair>(mut pair: P) {
    let asked = [pattern(2, 40)];
    send_all(&mut pair, 0, &asked, &mut Vec::new());
    let mut source = None;
    for _ in 0..PATIENCE {
        let shown = pair.link(1).rx_burst(1, |frame| source = Some(frame.from));
        if shown.expect("rx_burst") > 0 {
            break;
        }
        pair.settle();
    }
    let to = source.expect("a frame");
    assert_eq!(to, pair.address(0));
    let answer = pattern(3, 41);
    assert_eq!(
        pair.link(1).tx_burst(&[TxFrame {
            to,
            bytes: &answer,
            ecn: false
        }]),
        Ok(1)
    );
    let mut got = Vec::new();
    receive_until(&mut pair, 0, 1, &mut got);
    assert_eq!(got, [answer]);
}

fn mixed_bursts_arrive<P: Pair>(mut pair: P) {
    let frame_max = pair.link(0).capabilities().frame_max;
    let burst_max = pair.waiting_max();
    let mut random = Random(4);
    for round in 0..60 {
        let mut sent = Vec::new();
        let count = 1 + random.below(burst_max);
        while sent.len() < count {
            let size = match random.below(4) {
                0 => frame_max,
                1 => 8,
                _ => 8 + random.below(frame_max.saturating_sub(8)).min(2_000),
            };
            // Runs of one size, whose last may be shorter, are what links
            // put together.
            for _ in 0..1 + random.below(12) {
                sent.push(pattern(sent.len() as u64, size));
            }
            if random.below(2) == 0 {
                sent.push(pattern(
                    sent.len() as u64,
                    8 + random.below(size.saturating_sub(8).max(1)),
                ));
            }
        }
        sent.truncate(count);
        let from = round % 2;
        let mut got = Vec::new();
        send_all(&mut pair, from, &sent, &mut got);
        receive_until(&mut pair, 1 - from, sent.len(), &mut got);
        assert_same(&mut pair, sent, got);
    }
}

fn too_big_sends_nothing<P: Pair>(mut pair: P) {
    let frame_max = pair.link(0).capabilities().frame_max;
    let to = pair.address(1);
    let frame = |bytes| TxFrame {
        to,
        bytes,
        ecn: true,
    };
    let (big, good) = (pattern(5, frame_max + 1), pattern(6, 30));
    for burst in [
        &[frame(&big)][..],
        &[frame(&big), frame(&big)],
        &[frame(&big), frame(&good)],
    ] {
        let limit = match pair.link(0).tx_burst(burst) {
            Err(LinkError::TooBig(limit)) => limit,
            other => panic!("{other:?} for a frame of {} bytes", big.len()),
        };
        assert!(limit == 0 || limit == frame_max, "limit {limit}");
    }
    // In a burst, what stands before it goes and what stands behind waits.
    let burst = [frame(&good), frame(&good), frame(&big), frame(&good)];
    let taken = pair
        .link(0)
        .tx_burst(&burst)
        .expect("the first frames can go");
    assert!((1..=2).contains(&taken), "taken: {taken}");
    assert!(matches!(
        pair.link(0).tx_burst(&burst[2..]),
        Err(LinkError::TooBig(_))
    ));
    let last = pattern(7, 31);
    let mut got = Vec::new();
    send_all(&mut pair, 0, std::slice::from_ref(&last), &mut got);
    receive_until(&mut pair, 1, taken + 1, &mut got);
    let mut sent = vec![good; taken];
    sent.push(last);
    assert_same(&mut pair, sent, got);
}

fn full_recovers<P: Pair>(mut pair: P) {
    const TRIES: u64 = 20_000;
    let reliable = pair.link(0).capabilities().reliable;
    let to = pair.address(1);
    let mut sent = Vec::new();
    let mut full = false;
    for tag in 0..TRIES {
        let bytes = pattern(tag, 64);
        match pair.link(0).tx_burst(&[TxFrame {
            to,
            bytes: &bytes,
            ecn: true,
        }]) {
            Ok(count) => assert_eq!(count, 1),
            Err(LinkError::Full) => {
                full = true;
                break;
            }
            Err(error) => panic!("{error:?}"),
        }
        sent.push(bytes);
    }
    // What may lose frames may drop them instead of saying so.
    assert!(
        full || !reliable,
        "took {TRIES} frames that nobody received"
    );
    let mut got = Vec::new();
    if reliable {
        receive_until(&mut pair, 1, sent.len(), &mut got);
        assert_same(&mut pair, sent, got);
    } else {
        let mut quiet = 0;
        while quiet < 100 {
            let shown = receive(&mut pair, 1, &mut got);
            quiet = if shown == 0 { quiet + 1 } else { 0 };
            pair.settle();
        }
        assert!(
            got.len() >= pair.waiting_max().min(sent.len()),
            "only {} came",
            got.len()
        );
        got.iter()
            .for_each(|bytes| assert!(sent.contains(bytes), "altered"));
    }
    let fresh = vec![pattern(TRIES, 64), pattern(TRIES + 1, 65)];
    let mut got = Vec::new();
    send_all(&mut pair, 0, &fresh, &mut got);
    receive_until(&mut pair, 1, 2, &mut got);
    assert_same(&mut pair, fresh, got);
}

fn strangers_do_not_disturb<P: Pair>(mut pair: P) {
    for round in 0..20 {
        let sent: Vec<_> = (0..5).map(|tag| pattern(tag, 20 + round * 40)).collect();
        let mut got = Vec::new();
        pair.disturb(1);
        send_all(&mut pair, 0, &sent[..3], &mut got);
        pair.disturb(1);
        send_all(&mut pair, 0, &sent[3..], &mut got);
        receive_until(&mut pair, 1, sent.len(), &mut got);
        assert_same(&mut pair, sent, got);
    }
}
