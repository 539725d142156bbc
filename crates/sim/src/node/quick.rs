//! The quick ways beside the usual ones, over copied tables: both must do the same.

use std::hash::{DefaultHasher, Hasher};

use portolan_proto::{
    Counters, Delivery, Endpoint, Event, Message, NetAddress, PeerId, Rx, Sources, Spare, Taken,
    Verdict,
};
use portolan_seal::{Null, Seal};
use portolan_wire::{ARGS_MAX, Priority};

use super::Want;
use crate::memory::EndpointMemory;
use crate::suite::{Opener, SimSeal};

/// Sends a message that an application wants to send by both ways, each over a copy of `memory`.
/// Returns whether the quick way was free.
///
/// # Panics
/// If packet or state differ.
pub fn send_both_ways(
    memory: &EndpointMemory,
    now: u64,
    peer: PeerId,
    want: &Want,
    sources: &impl Sources,
) -> bool {
    let args = [7; ARGS_MAX];
    let payload = vec![5; want.total as usize];
    let message = Message {
        priority: want.priority,
        flow: want.flow,
        port: 3,
        args: &args[..want.args],
        payload: &payload,
    };
    // Keys change neither lengths nor state, and a nonce must not be used twice.
    let seal = &mut Null;
    let mut quick = memory.clone();
    let mut e = Endpoint::new(quick.tables(), seal);
    let Some((number, t)) = e.send_one(now, peer, &message) else {
        assert!(quick == *memory, "the quick way has done something in vain");
        return false;
    };
    let packet = e.frame(&t).to_vec();
    let mut usual = memory.clone();
    let mut e = Endpoint::new(usual.tables(), seal);
    assert_eq!(e.send(now, peer, &message), Ok(number));
    assert_eq!(e.poll_transmit(now, false, sources), Some(t));
    assert_eq!(e.frame(&t), packet);
    assert!(quick == usual, "the quick way ends in another state");
    true
}

/// A packet that has arrived.
pub struct Packet<'a> {
    pub from: NetAddress,
    pub ce: bool,
    pub bytes: &'a [u8],
}

/// What a packet has brought about.
#[derive(Debug, Default, PartialEq)]
struct Brought {
    deliveries: Vec<String>,
    events: Vec<Event>,
    packets: Vec<Vec<u8>>,
    counters: Counters,
    /// Digest of the state at the end.
    state: u64,
}

impl Brought {
    /// What an application does with a message; now and then it answers by another.
    fn deliver<S: Seal>(&mut self, e: &mut Endpoint<'_, S>, now: u64, d: &Delivery<'_>) -> Verdict {
        self.deliveries.push(format!("{d:?}"));
        if d.message.0 % 4 == 1 {
            let reply = Message {
                priority: Priority::Reply,
                flow: d.flow,
                port: 3,
                args: &[],
                payload: b"answer",
            };
            let sent = e.send(now, d.peer, &reply);
            self.deliveries.push(format!("{sent:?}"));
        }
        match d.message.0.wrapping_mul(0x9e37_79b9) >> 29 {
            0 => Verdict::Refuse,
            1 => Verdict::NotNow,
            _ => Verdict::Take(9),
        }
    }

    fn read<S: Seal>(&mut self, e: &mut Endpoint<'_, S>, now: u64, mut rx: Rx<'_>) {
        while let Some(delivery) = rx.next(e) {
            let verdict = self.deliver(e, now, &delivery);
            rx.answer(e, verdict);
        }
    }

    /// Lets leave whatever may.
    fn flush<S: Seal>(&mut self, e: &mut Endpoint<'_, S>, now: u64, sources: &impl Sources) {
        while let Some(t) = e.poll_transmit(now, true, sources) {
            self.packets.push(e.frame(&t).to_vec());
            e.transmitted(t.frame);
        }
        self.events.extend(std::iter::from_fn(|| e.poll_event()));
        e.check();
        self.counters = *e.counters();
        let mut hasher = DefaultHasher::new();
        e.hash_state(&mut hasher);
        self.state = hasher.finish();
    }
}

/// Lines in which the tables of the quick and the usual way differ.
fn differences(quick: &EndpointMemory, usual: &EndpointMemory) -> String {
    let [quick, usual] = [quick, usual].map(|memory| format!("{memory:#?}"));
    let lines = quick.lines().zip(usual.lines()).filter(|(a, b)| a != b);
    lines
        .map(|(a, b)| format!("{} | {}\n", a.trim(), b.trim()))
        .collect()
}

/// Lets leave what waits in a copy of `memory`, then takes a packet by both ways, each over a copy
/// of that, and lets leave what then may.
/// Returns whether the quick way took the packet's one chunk to its end: the way of `[whole
/// messages, further parts]`.
///
/// # Panics
/// If what is handed out, events, packets or state differ.
pub fn take_both_ways(
    memory: &EndpointMemory,
    seal: &SimSeal,
    now: u64,
    packet: &Packet<'_>,
    sources: &impl Sources,
) -> [bool; 2] {
    let seal = &mut Opener(seal);
    let spare = &mut Spare::default();
    // Other connections that wait would take other frames, as the two ways free theirs sooner or
    // later.
    let mut memory = memory.clone();
    let mut e = Endpoint::new(memory.tables(), seal);
    Brought::default().flush(&mut e, now, sources);
    let mut quick = memory.clone();
    let mut e = Endpoint::new(quick.tables(), seal);
    let Some(foreseen) = e.foresee(packet.from, packet.ce, packet.bytes) else {
        return [false; 2];
    };
    let mut by_quick = Brought::default();
    let mut bytes = packet.bytes.to_vec();
    let mut taken = [false; 2];
    match e.take_foreseen(now, foreseen, &mut bytes, spare) {
        Taken::Nothing => {}
        Taken::One(one) => {
            let verdict = by_quick.deliver(&mut e, now, one.delivery());
            let is_first = one.delivery().offset == 0;
            match e.answer_one(one, verdict) {
                Some(rx) => by_quick.read(&mut e, now, rx),
                None => taken = [is_first, !is_first],
            }
        }
        Taken::Rest(rx) => by_quick.read(&mut e, now, rx),
    }
    by_quick.flush(&mut e, now, sources);

    let mut usual = memory.clone();
    let mut e = Endpoint::new(usual.tables(), seal);
    let mut by_usual = Brought::default();
    let mut bytes = packet.bytes.to_vec();
    if let Some(rx) = e.handle_packet(now, packet.from, packet.ce, &mut bytes, spare) {
        by_usual.read(&mut e, now, rx);
    }
    by_usual.flush(&mut e, now, sources);
    let differ = || differences(&quick, &usual);
    assert_eq!(by_quick, by_usual, "{}", differ());
    taken
}
