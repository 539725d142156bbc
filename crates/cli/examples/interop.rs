//! A rank that exchanges messages with the other one of its job, which may be
//! another implementation of the protocol (`interop/exchange.py`):
//!
//! `interop MESSAGES [lose|repeat|change]`
//!
//! Both know all messages beforehand. It fails where one of the other's is
//! missing, comes twice, out of order or changed. With a second word it breaks
//! one of its own, so that the other side has to notice.

use std::collections::{BTreeMap, VecDeque};
use std::process::exit;
use std::sync::{Arc, Mutex};

use portolan::{Binding, Config, Endpoint, Priority, SendOptions};

const PORT: u16 = 1;
/// The message that the second word is about.
const SPOILED: u64 = 40;

/// A message of a rank, the same as in `interop/exchange.py`.
#[derive(Debug, PartialEq, Eq)]
struct Sent {
    priority: Priority,
    flow: u16,
    words: Vec<u64>,
    payload: Vec<u8>,
}

/// The finalizer of splitmix64.
fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

fn message(sender: u32, index: u64) -> Sent {
    let value = mixed(u64::from(sender) << 32 | index);
    let longest = if index % 16 == 9 { 30_000 } else { 200 };
    let length = value % longest;
    let bytes = (0..=length / 8).flat_map(|i| mixed(value.wrapping_add(i)).to_le_bytes());
    let mut words = vec![index];
    words.resize(1 + (value >> 8 & 3) as usize, value);
    Sent {
        priority: match index % 7 {
            3 => Priority::Reply,
            _ => Priority::Request,
        },
        flow: (index % 3) as u16,
        words,
        payload: bytes.take(length as usize).collect(),
    }
}

/// What has come so far.
struct Checked {
    /// Messages that have yet to come, by priority and flow.
    expected: BTreeMap<(u8, u16), VecDeque<u64>>,
    left: u64,
}

impl Checked {
    fn new(sender: u32, count: u64) -> Self {
        let mut expected: BTreeMap<_, VecDeque<u64>> = BTreeMap::new();
        for index in 0..count {
            let Sent { priority, flow, .. } = message(sender, index);
            let of_flow = expected.entry((priority as u8, flow)).or_default();
            of_flow.push_back(index);
        }
        Self {
            expected,
            left: count,
        }
    }

    /// Ends the process where this is not the next one.
    fn take(&mut self, m: &portolan::Message<'_>) {
        let of_flow = self.expected.get_mut(&(m.priority as u8, m.flow));
        let Some(index) = of_flow.and_then(VecDeque::pop_front) else {
            eprintln!("interop: one message more than was sent: {:?}", m.number);
            exit(1);
        };
        let came = Sent {
            priority: m.priority,
            flow: m.flow,
            words: (0..m.arg_count()).map(|i| m.arg(i)).collect(),
            payload: m.payload.to_vec(),
        };
        if came != message(m.from, index) {
            let first = came.words.first();
            eprintln!("interop: not message {index}: {first:?}, or changed");
            exit(1);
        }
        self.left -= 1;
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let count: u64 = words[0].parse().expect("a number of messages");
    let spoil = words.get(1).map_or("", String::as_str);
    let ep = Endpoint::open(Config::default()).unwrap();
    let (rank, other) = (ep.rank(), 1 - ep.rank());
    let checked = Arc::new(Mutex::new(Checked::new(other, count)));
    let check = Arc::clone(&checked);
    let take = Binding::to(move |_, m| check.lock().unwrap().take(m));
    ep.bind(PORT, take).unwrap();
    for index in 0..count {
        let mut m = message(rank, index);
        let copies = match (index, spoil) {
            (SPOILED, "lose") => 0,
            (SPOILED, "repeat") => 2,
            _ => 1,
        };
        if (index, spoil) == (SPOILED, "change") {
            m.payload[0] ^= 1;
        }
        let options = SendOptions {
            flow: m.flow,
            priority: m.priority,
            args: &m.words,
            ..SendOptions::default()
        };
        for _ in 0..copies {
            ep.send_with(other, PORT, &options, &m.payload).unwrap();
        }
    }
    ep.wait_until(|| checked.lock().unwrap().left == 0).unwrap();
    ep.close().unwrap();
    println!("all {count} messages came, each once and as it was sent");
}
