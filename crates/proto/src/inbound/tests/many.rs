//! One sender and three receivers: a frame is done once all of them have confirmed it, and what any
//! of them misses leaves again, to all.

extern crate std;

use std::collections::BTreeSet;
use std::vec;
use std::vec::Vec;

use portolan_wire::{Ack, Chunks, Priority};

use super::Receiver;
use crate::base::{PathIndex, Release, Verdict, WINDOW_SPAN};
use crate::congestion::AckSample;
use crate::inbound::ChunkOutcome;
use crate::memory::Use;
use crate::outbound::tests::{ROOM, Sender};
use crate::received::{Contents, Received};
use crate::sent::tests::{MS, path, send, take};
use crate::sent::{Confirms, Finding, Sent};
use Priority::{Reply, Request};

/// Number of the first packet.
const FIRST: u64 = 50;

/// What one receiver has confirmed, by all of its acknowledgements.
struct Known {
    largest: u64,
    came: BTreeSet<u64>,
    limit: u64,
    credit: [u32; 2],
    delay_ns: u64,
}

/// What all receivers have confirmed.
struct All([Known; 3]);

impl Known {
    fn new(credit: u32) -> Self {
        Self {
            largest: FIRST - 1,
            came: BTreeSet::new(),
            limit: FIRST + 100,
            credit: [credit; 2],
            delay_ns: 0,
        }
    }

    /// Takes over an acknowledgement, which may have come late.
    fn take(&mut self, ack: &Ack, next: u64) {
        let (largest, base) = ack.covers(next);
        let oldest = FIRST.max((largest + 1).saturating_sub(WINDOW_SPAN as u64));
        self.came.extend(oldest..base);
        self.came
            .extend((base..=largest).filter(|&n| ack.has(n, base)));
        self.largest = self.largest.max(largest);
        self.limit = self.limit.max(ack.limit(self.limit));
        for (mine, new) in self.credit.iter_mut().zip(ack.credit) {
            *mine = new.max(*mine);
        }
        self.delay_ns = ack.delay_ns();
    }
}

impl All {
    fn least<T: Ord>(&self, of: impl Fn(&Known) -> T) -> T {
        self.0.iter().map(of).min().unwrap()
    }
}

impl Confirms for All {
    fn limit(&self, _: u64) -> u64 {
        self.least(|it| it.limit)
    }

    fn covers(&self, _: u64) -> (u64, u64) {
        let largest = self.least(|it| it.largest);
        let missing = (FIRST..=largest).find(|&n| !self.has(n, FIRST));
        (largest, missing.unwrap_or(largest + 1))
    }

    fn has(&self, number: u64, _: u64) -> bool {
        self.0.iter().all(|it| it.came.contains(&number))
    }

    fn delay_ns(&self) -> u64 {
        let slowest = self.0.iter().min_by_key(|it| it.largest);
        slowest.unwrap().delay_ns
    }
}

/// A packet on its way: its number and its chunks.
type Packet = (u64, Vec<u8>);

/// One sender and three receivers.
struct Cast {
    now: u64,
    sender: Sender,
    sent: Sent,
    all: All,
    peers: [(Received, Receiver); 3],
    /// Frames that were given up.
    lost: u32,
}

impl Cast {
    fn new() -> Self {
        let peer = || {
            let mut received = Received::resume(0, 0, 0);
            received.begin(FIRST, 100);
            (received, Receiver::new(0))
        };
        let mut cast = Self {
            now: MS,
            sender: Sender::new(),
            sent: path(),
            all: All([0; 3].map(|_| Known::new(16))),
            peers: [0; 3].map(|_| peer()),
            lost: 0,
        };
        cast.sender.out.kept.credit = [16; 2];
        cast.sent.limit = FIRST + 100;
        cast
    }

    /// Sends all that may leave.
    fn send(&mut self) -> Vec<Packet> {
        let mut packets = Vec::new();
        while self.sent.is_open(0)
            && let Some(pick) = self.sender.pick(ROOM, false)
        {
            let number = self.sent.next;
            self.sent.count(self.now);
            self.sent.take_number(number);
            self.sender.cargo(pick.frame).usage = Use::Flying;
            let flight = self.sender.flight(pick.frame);
            (flight.path, flight.number, flight.sent_at) = (PathIndex::new(0), number, self.now);
            let bytes = self.sender.store.memory().packet_bytes(pick.frame) as u32;
            self.sent.left(self.now, number, pick.frame, bytes);
            let memory = self.sender.store.memory();
            packets.push((number, memory.chunks(pick.frame).to_vec()));
        }
        packets
    }

    /// Packets come to a receiver.
    fn come<'p>(&mut self, to: usize, packets: impl IntoIterator<Item = &'p Packet>) {
        let (received, receiver) = &mut self.peers[to];
        for (number, chunks) in packets {
            if received.is_replay(*number) {
                continue;
            }
            let mut contents = Contents::Taken;
            for chunk in Chunks::new(chunks) {
                if receiver.take(&chunk.unwrap()) != ChunkOutcome::Yes {
                    contents = Contents::Refused;
                }
            }
            received.note(self.now, *number, contents, false);
        }
    }

    fn ack(&mut self, from: usize) -> Ack {
        let (received, receiver) = &mut self.peers[from];
        let credit = receiver.inbound.credit(receiver.limit);
        received.acknowledged();
        Ack {
            credit,
            ..received.ack(self.now, 100)
        }
    }

    /// The sender reads an acknowledgement of what a receiver has now.
    fn confirm(&mut self, from: usize) {
        let ack = self.ack(from);
        self.read(from, &ack);
    }

    fn read(&mut self, from: usize, ack: &Ack) {
        let Self {
            now,
            sent,
            all,
            sender,
            ..
        } = self;
        all.0[from].take(ack, sent.next);
        let covers = sent.read(&*all).expect("it speaks of what was sent");
        sender
            .out
            .grant([0, 1].map(|p| all.least(|it| it.credit[p])));
        let report = sent.begin_report(*now, covers, false, 0);
        let mut sample = AckSample::default();
        for number in report.numbers() {
            let flights = &*sender.store.flights;
            match sent.find(*now, &*all, &report, number, |frame| flights[frame].sent_at) {
                Finding::Nothing => {}
                Finding::Arrived(frame) => {
                    sent.acked(*now, sender.store.memory().packet_bytes(frame));
                    sample.acked_packets += 1;
                    sender.acked(frame);
                }
                Finding::Missing(frame) => {
                    let bytes = sender.store.memory().packet_bytes(frame);
                    sent.lost(*now, number, bytes, false);
                    sample.lost_packets += 1;
                    self.lost += 1;
                    sender.lose(frame, number);
                }
                Finding::Spurious | Finding::Late(_) => drop_copies(*now, sent, sender, number),
            }
        }
        sent.advance();
        sent.end_report(report.largest());
        sent.adapt(*now, &mut sample, None, false);
    }

    /// No answer came in time: the oldest packet is given up.
    fn probe(&mut self) {
        self.sent.probe(self.now, false);
        let frame = self.sent.oldest().unwrap();
        let number = self.sender.flight(frame).number;
        let bytes = self.sender.store.memory().packet_bytes(frame);
        self.sent.lost(self.now, number, bytes, true);
        self.sender.lose(frame, number);
    }

    /// Asserts that each receiver has all that was sent, and that no frame is in use.
    fn assert_settled(&mut self) {
        assert!(self.sender.out.is_settled());
        assert_eq!((self.sent.flying, self.sent.flying_bytes), (0, 0));
        while self.sender.store.released().is_some() {}
        self.sender.store.assert_free();
        let complete = self.peers[0].1.complete();
        for (_, receiver) in &mut self.peers {
            // Flows may overtake each other.
            assert_eq!(receiver.complete().len(), complete.len());
            assert!(complete.iter().all(|it| receiver.complete().contains(it)));
            assert!(receiver.inbound.is_quiet());
            // Each chunk counts once, however often it came.
            assert_eq!(receiver.inbound.kept.taken, self.sender.out.kept.sent);
            receiver.store.assert_free();
        }
    }
}

/// A packet that was given up has come to all: its copies need not.
fn drop_copies(now: u64, sent: &mut Sent, sender: &mut Sender, number: u64) {
    let path = PathIndex::new(0);
    for copy in sent.numbers() {
        if let Some(frame) = sent.frame(copy)
            && sender.flight(frame).left_as(path, number).is_some()
        {
            sent.settle(copy);
            sent.acked(now, sender.store.memory().packet_bytes(frame));
            sender.acked(frame);
        }
    }
    let Sender { store, out } = sender;
    while let Some(frame) = out.take_arrived(&mut store.memory(), path, number) {
        out.settled(&mut store.memory(), frame);
    }
}

/// Five messages of a packet each have left.
fn five() -> (Cast, Vec<Packet>) {
    let mut cast = Cast::new();
    for _ in 0..5 {
        cast.sender.send(Request, 0, 900);
    }
    let packets = cast.send();
    assert_eq!(packets.len(), 5);
    (cast, packets)
}

fn but<'p>(packets: &'p [Packet], missing: &'p [u64]) -> impl Iterator<Item = &'p Packet> {
    packets.iter().filter(|it| !missing.contains(&it.0))
}

#[test]
fn a_frame_is_done_once_all_have_confirmed_it() {
    let (mut cast, packets) = five();
    for to in [0, 1] {
        cast.come(to, &packets);
        cast.confirm(to);
    }
    // The third has said nothing.
    assert_eq!((cast.sent.flying, cast.sent.numbers()), (5, 50..55));
    cast.come(2, &packets[..3]);
    cast.confirm(2);
    assert_eq!((cast.sent.flying, cast.sent.numbers()), (2, 53..55));
    assert_eq!(cast.sender.out.queued, 2);
    cast.come(2, &packets[3..]);
    cast.confirm(2);
    assert_eq!(cast.lost, 0);
    cast.assert_settled();
}

#[test]
fn what_any_of_them_misses_leaves_again_once() {
    let (mut cast, packets) = five();
    for (to, missing) in [[51, 51], [53, 53], [50, 51]].iter().enumerate() {
        cast.come(to, but(&packets, missing));
        cast.confirm(to);
    }
    assert_eq!((cast.lost, cast.sent.flying), (3, 0));
    let again = cast.send();
    let lost = [0, 1, 3].map(|i: usize| &packets[i].1);
    assert_eq!(
        again.iter().map(|it| it.0).collect::<Vec<_>>(),
        [55, 56, 57]
    );
    assert!(again.iter().map(|it| &it.1).eq(lost));
    for to in 0..3 {
        cast.come(to, &again);
        cast.confirm(to);
    }
    assert_eq!(cast.send(), []);
    let duplicates = [0, 1, 2].map(|i: usize| cast.peers[i].1.counters.duplicates);
    assert_eq!(duplicates, [2, 2, 1]);
    cast.assert_settled();
}

#[test]
fn nothing_is_given_up_before_the_slowest_has_come_as_far() {
    let (mut cast, packets) = five();
    cast.come(0, but(&packets, &[51]));
    cast.confirm(0);
    cast.come(1, &packets);
    cast.confirm(1);
    cast.come(2, &packets[..1]);
    cast.confirm(2);
    assert_eq!((cast.lost, cast.sent.numbers()), (0, 51..55));
    // As soon as it has, what another misses is given up.
    cast.come(2, &packets[1..3]);
    cast.confirm(2);
    assert_eq!((cast.lost, cast.sent.flying), (1, 2));
    cast.come(2, &packets[3..]);
    cast.confirm(2);
    let again = cast.send();
    assert_eq!((again.len(), &again[0].1), (1, &packets[1].1));
    for to in [1, 2, 0] {
        cast.come(to, &again);
        cast.confirm(to);
    }
    cast.assert_settled();
}

#[test]
fn the_slowest_bounds_numbers_and_credit() {
    let (mut cast, packets) = five();
    let bounds = |cast: &Cast| (cast.sent.limit, cast.sender.out.kept.credit);
    for to in 0..3 {
        assert_eq!(bounds(&cast), (FIRST + 100, [16; 2]));
        cast.come(to, &packets);
        cast.confirm(to);
    }
    assert_eq!(bounds(&cast), (FIRST + 105, [21, 16]));
    // One of them wants no message now, and holds what comes.
    cast.peers[1].1.verdict = Verdict::NotNow;
    let send_all = |cast: &mut Cast| {
        loop {
            let packets = cast.send();
            if packets.is_empty() {
                break;
            }
            for to in 0..3 {
                cast.come(to, &packets);
                cast.confirm(to);
            }
        }
    };
    for _ in 0..20 {
        cast.sender.send(Request, 0, 900);
    }
    send_all(&mut cast);
    assert_eq!(
        (cast.sender.out.kept.sent[0], cast.sender.out.queued),
        (21, 4)
    );
    assert_eq!(cast.all.0[0].credit, [37, 16]);
    cast.peers[1].1.verdict = Verdict::Take(7);
    cast.peers[1].1.resume();
    cast.confirm(1);
    send_all(&mut cast);
    assert_eq!(cast.lost, 0);
    cast.assert_settled();
}

#[test]
fn a_tail_that_one_misses_leaves_again_with_a_probe() {
    let (mut cast, packets) = five();
    for to in 0..3 {
        cast.come(to, &packets[..if to == 1 { 4 } else { 5 }]);
        cast.confirm(to);
    }
    // No later number shows the gap.
    assert_eq!((cast.lost, cast.sent.flying), (0, 1));
    cast.probe();
    let again = cast.send();
    assert_eq!(again, [(55, packets[4].1.clone())]);
    for to in 0..3 {
        cast.come(to, &again);
        cast.confirm(to);
    }
    cast.assert_settled();
}

#[test]
fn a_copy_is_not_needed_once_the_first_has_come_to_all() {
    // Given up by a gap, or by a probe; the copy waits, or is in flight.
    for (probed, leaves) in [(false, false), (false, true), (true, false), (true, true)] {
        let (mut cast, packets) = five();
        let late: &[u64] = if probed { &[54] } else { &[52] };
        for (to, missing) in [&[], late, &[]].into_iter().enumerate() {
            cast.come(to, but(&packets, missing));
            cast.confirm(to);
        }
        if probed {
            cast.probe();
        }
        let copies = if leaves { cast.send().len() } else { 0 };
        assert_eq!((copies, cast.sender.out.queued), (usize::from(leaves), 1));
        cast.come(1, &packets);
        cast.confirm(1);
        assert_eq!(cast.send(), []);
        cast.assert_settled();
    }
}

#[test]
fn an_acknowledgement_that_comes_late_changes_nothing() {
    let (mut cast, packets) = five();
    cast.come(0, &packets[..2]);
    let old = cast.ack(0);
    for to in 0..3 {
        cast.come(to, &packets);
    }
    (0..2).for_each(|from| cast.confirm(from));
    cast.read(0, &old);
    assert_eq!(cast.sent.flying, 5);
    cast.confirm(2);
    assert_eq!(cast.lost, 0);
    cast.assert_settled();
}

#[test]
fn all_get_all_though_each_loses_a_part() {
    let mut random = 7_u64;
    let mut lucky = |of: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        random >> 33 & 7 < of
    };
    let mut cast = Cast::new();
    cast.sender.send_long(Request, 1, 40_000, Release::Copied);
    cast.sender
        .send_long(Reply, 1, 20_000, Release::Acknowledged);
    for i in 0..24 {
        let priority = if i % 3 == 0 { Reply } else { Request };
        cast.sender
            .send(priority, 2 + i % 4, 300 + 10 * usize::from(i));
    }
    let mut rounds = 0;
    while !cast.sender.out.is_settled() {
        rounds += 1;
        assert!(rounds < 1_000);
        cast.now += MS;
        let packets = cast.send();
        for to in 0..3 {
            let came: Vec<_> = packets.iter().filter(|_| lucky(6)).collect();
            // Some come in another order.
            let (early, late): (Vec<_>, Vec<_>) = came.into_iter().partition(|_| lucky(6));
            cast.come(to, early);
            cast.come(to, late);
        }
        for from in 0..3 {
            if lucky(6) {
                cast.confirm(from);
            }
        }
        if packets.is_empty() && cast.sent.flying > 0 {
            cast.probe();
        }
    }
    assert!(cast.lost > 20, "{}", cast.lost);
    assert_eq!(cast.peers[0].1.complete().len(), 26);
    cast.assert_settled();
}

#[test]
fn three_that_say_alike_count_as_one() {
    let mut came = vec![50, 51, 53, 54, 58, 59, 61];
    for _ in 0..5 {
        let (mut one, mut three) = (path(), path());
        send(&mut one, 0, 14);
        send(&mut three, 0, 14);
        let mut received = Received::resume(0, 0, 0);
        received.begin(FIRST, 100);
        for &number in &came {
            received.note(0, number, Contents::Taken, false);
        }
        let ack = received.ack(0, 100);
        let mut all = All([0; 3].map(|_| Known::new(0)));
        all.0.iter_mut().for_each(|it| it.take(&ack, one.next));
        let found = take(&mut one, MS, &ack);
        assert_eq!(take(&mut three, MS, &all), found);
        assert_eq!(found.0.len(), came.len());
        assert_eq!(one, three);
        came.pop();
    }
}
