//! What was sent, and what may be delivered: the caller of both endpoints.

use std::collections::BTreeMap;

use portolan_proto::{
    DeathReason, Delivery, Endpoint, Event, Message, PeerEvent, PeerId, Rx, SourceId, Sources,
    Spare, Taken, Transmit, Verdict,
};
use portolan_wire::{ARGS_MAX, Body, MessageNo, Priority};

use crate::open_seal::Open;

/// A message that an endpoint accepted. Its port is its place in the list.
#[derive(Debug)]
pub(crate) struct Sent {
    pub peer: PeerId,
    pub priority: Priority,
    pub flow: u16,
    pub args: usize,
    pub total: u64,
    /// Of a long message: its memory was not given back yet.
    pub lent: bool,
    pub delivered: bool,
}

/// A message of which the first part was taken.
#[derive(Debug)]
struct Begun {
    message: MessageNo,
    port: u16,
    total: u64,
    cookie: u64,
    /// Ranges that were handed over, by start.
    covered: BTreeMap<u64, u64>,
}

/// What a caller has said of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It has introduced itself, and was not welcomed.
    Come,
    Known,
    Removed,
}

type MessageKey = (usize, PeerId, usize, u16);

/// The memory of both.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub now: u64,
    pub sent: [Vec<Sent>; 2],
    /// What each answers: see [`Record::verdict`].
    pub policy: [u8; 2],
    /// Packets were forged: any well-formed message may arrive.
    pub forged: bool,
    /// Somebody was given up: order and once hold for each life only.
    pub deaths: bool,
    /// Where peers come and go: who has a number, by endpoint and number.
    pub peers: Option<BTreeMap<(usize, PeerId), Standing>>,
    open: BTreeMap<MessageKey, Begun>,
    last: BTreeMap<(usize, usize, u16), u16>,
    cookies: u64,
}

/// What all messages are made of: the same again after [`PERIOD`] bytes.
static STUFF: [u8; 2048 + PERIOD] = {
    let mut stuff = [0; 2048 + PERIOD];
    let mut i = 0;
    while i < stuff.len() {
        stuff[i] = (i % PERIOD) as u8;
        i += 1;
    }
    stuff
};
/// A prime, so that no packet or fragment begins as another does.
const PERIOD: usize = 251;

/// `length` bytes of message `port` from `at` on, at most 2,048.
pub(crate) fn content(port: u16, at: u64, length: usize) -> &'static [u8] {
    let start = (u64::from(port) * 31 + at) % PERIOD as u64;
    &STUFF[start as usize..][..length]
}

/// The argument words of message `port`.
pub(crate) fn words(port: u16) -> [u64; ARGS_MAX] {
    std::array::from_fn(|i| u64::from(port) << 32 | i as u64)
}

impl Record {
    /// Nothing has happened yet; `forged` packets may come.
    pub fn new(forged: bool) -> Self {
        Self {
            now: 1_000_000,
            forged,
            ..Self::default()
        }
    }

    fn verdict(&mut self, me: usize, port: u16) -> Verdict {
        self.cookies += 1;
        let take = Verdict::Take(self.cookies);
        match (self.policy[me] % 4, port % 3) {
            (1, _) | (3, 1) => Verdict::NotNow,
            (2, _) | (3, 2) => Verdict::Refuse,
            _ => take,
        }
    }

    fn first_part(&mut self, me: usize, d: &Delivery<'_>) -> Verdict {
        let place = (me, d.peer, d.priority.index(), d.flow);
        assert!(d.args.len().is_multiple_of(8) && d.args.len() <= 8 * ARGS_MAX);
        assert!(d.total <= Body::UNIT << 32);
        assert_eq!(d.cookie, 0);
        assert_eq!(d.last, d.payload.len() as u64 == d.total);
        assert!(d.last || (d.payload.len() as u64).is_multiple_of(Body::UNIT));
        assert!(!self.open.contains_key(&place), "two messages at once");
        if !self.forged {
            self.genuine(me, d);
        }
        let verdict = self.verdict(me, d.port);
        let Verdict::Take(cookie) = verdict else {
            return verdict;
        };
        if !self.forged {
            let sent = &mut self.sent[1 - me][d.port as usize];
            assert!(!sent.delivered || self.deaths, "delivered twice");
            sent.delivered = true;
            let flow = (me, d.priority.index(), d.flow);
            if let Some(before) = self.last.insert(flow, d.port) {
                assert!(before < d.port || self.deaths, "out of order");
            }
        }
        if !d.last {
            let open = Begun {
                message: d.message,
                port: d.port,
                total: d.total,
                cookie,
                covered: BTreeMap::new(),
            };
            self.open.insert(place, open);
            self.cover(place, d);
        }
        verdict
    }

    fn further_part(&mut self, me: usize, d: &Delivery<'_>) {
        let place = (me, d.peer, d.priority.index(), d.flow);
        let open = self.open.get(&place).expect("its first part was taken");
        assert_eq!(
            (d.message, d.port, d.total, d.cookie),
            (open.message, open.port, open.total, open.cookie)
        );
        assert!(d.args.is_empty());
        if !self.forged {
            Self::same(d);
        }
        if self.cover(place, d) {
            self.open.remove(&place);
        }
    }

    /// Notes a part; says whether it completes its message.
    fn cover(&mut self, place: MessageKey, d: &Delivery<'_>) -> bool {
        let open = self.open.get_mut(&place).expect("it is open");
        let (start, end) = (d.offset, d.offset + d.payload.len() as u64);
        assert!(end <= d.total && (start < end || d.offset == 0));
        let (mut from, mut to) = (start, end);
        if let Some((&a, &b)) = open.covered.range(..end.max(1)).next_back() {
            assert!(b <= start, "a byte came twice");
            if b == start {
                from = a;
            }
        }
        if let Some(b) = open.covered.remove(&end) {
            to = b;
        }
        if from < to {
            open.covered.insert(from, to);
        }
        let whole = open.covered.get(&0) == Some(&d.total);
        assert_eq!(whole, d.last, "`last` says that every byte came");
        whole
    }

    /// The first part of a message that the other side sent, as it was sent.
    fn genuine(&self, me: usize, d: &Delivery<'_>) {
        let sent = self.sent[1 - me].get(d.port as usize).expect("was sent");
        if self.peers.is_none() {
            assert_eq!(d.peer, PeerId(0));
            assert_eq!(sent.peer, d.peer);
        }
        assert_eq!(
            (d.priority, d.flow, d.total, d.args.len()),
            (sent.priority, sent.flow, sent.total, 8 * sent.args)
        );
        for (have, want) in d.args.chunks(8).zip(words(d.port)) {
            assert_eq!(have, want.to_le_bytes());
        }
        Self::same(d);
    }

    fn same(d: &Delivery<'_>) {
        assert!(d.payload == content(d.port, d.offset, d.payload.len()));
    }

    /// An endpoint knows so many peers; from now on they come and go.
    pub fn peers_of(&mut self, me: usize, count: u32) {
        let known = (0..count).map(|peer| ((me, PeerId(peer)), Standing::Known));
        self.peers = Some(known.collect());
    }

    /// Whether somebody has a number.
    pub fn is_used(&self, me: usize, peer: PeerId) -> bool {
        let of = |all: &BTreeMap<_, _>| all.contains_key(&(me, peer));
        self.peers.as_ref().map_or(peer.0 < 2, of)
    }

    /// Whether an endpoint has a peer, and may talk to it.
    pub fn has(&self, me: usize, peer: PeerId) -> bool {
        let of = |all: &BTreeMap<_, _>| all.get(&(me, peer)) == Some(&Standing::Known);
        self.peers.as_ref().map_or(peer.0 < 2, of)
    }

    pub fn forget(&mut self, me: usize, peer: PeerId) {
        self.open.retain(|at, _| (at.0, at.1) != (me, peer));
    }

    /// Every long message's memory must be its owner's again.
    pub fn assert_nothing_lent(&self) {
        let lent = self.sent.iter().flatten().filter(|s| s.lent).count();
        assert_eq!(lent, 0, "long messages whose memory was not given back");
    }
}

/// The caller of one endpoint.
pub(crate) struct Hands<'a> {
    pub record: &'a mut Record,
    pub me: usize,
}

impl Sources for Hands<'_> {
    fn read(&self, source: SourceId, offset: u64, into: &mut [u8]) {
        let sent = &self.record.sent[self.me][source.0 as usize];
        assert!(sent.lent, "read after it was given back");
        assert!(offset + into.len() as u64 <= sent.total);
        into.copy_from_slice(content(source.0 as u16, offset, into.len()));
    }
}

impl Hands<'_> {
    /// Takes all that came of a packet, or of what was held.
    pub fn take(&mut self, endpoint: &mut Endpoint<'_, Open>, mut rx: Rx<'_>) {
        loop {
            let delivery = rx.next(endpoint);
            self.hear(endpoint);
            let Some(delivery) = delivery else { return };
            let verdict = self.deliver(endpoint, &delivery);
            rx.answer(endpoint, verdict);
        }
    }

    /// Takes what came of a packet that was foreseen.
    pub fn take_quick(&mut self, endpoint: &mut Endpoint<'_, Open>, taken: Taken<'_>) {
        self.hear(endpoint);
        match taken {
            Taken::Nothing => {}
            Taken::One(one) => {
                let verdict = self.deliver(endpoint, one.delivery());
                match endpoint.answer_one(one, verdict) {
                    None => self.hear(endpoint),
                    Some(rx) => self.take(endpoint, rx),
                }
            }
            Taken::Rest(rx) => self.take(endpoint, rx),
        }
    }

    /// Takes what is held and may be taken now.
    pub fn resume(&mut self, endpoint: &mut Endpoint<'_, Open>) {
        let mut spare = Spare::default();
        let rx = endpoint.resume(self.record.now, &mut spare);
        self.take(endpoint, rx);
    }

    /// Hears what has happened.
    pub fn hear(&mut self, endpoint: &mut Endpoint<'_, Open>) {
        while let Some(event) = endpoint.poll_event() {
            match event {
                Event::Released(source, _) => self.released(source),
                Event::Refused { flow, .. } => assert!(flow < 8),
                Event::Peer(peer, event) => self.peer_event(peer, event),
                Event::OtherSuite { .. } => unreachable!("all have one"),
            }
        }
    }

    fn deliver(&mut self, endpoint: &mut Endpoint<'_, Open>, d: &Delivery<'_>) -> Verdict {
        assert!(d.flow < 8);
        assert!(self.record.has(self.me, d.peer), "of nobody's peer");
        if self.is_open(d) {
            self.record.further_part(self.me, d);
            return Verdict::Take(0);
        }
        let verdict = self.record.first_part(self.me, d);
        if self.record.policy[self.me] & 4 != 0 && d.priority == Priority::Request {
            self.send(endpoint, d.peer, Priority::Reply, d.flow, 1, 40, false);
        }
        verdict
    }

    fn released(&mut self, source: SourceId) {
        let sent = &mut self.record.sent[self.me][source.0 as usize];
        assert!(sent.lent, "given back twice");
        sent.lent = false;
    }

    fn peer_event(&mut self, peer: PeerId, event: PeerEvent) {
        match event {
            // What it sent before may still be handed over.
            PeerEvent::Dead(DeathReason::Closed | DeathReason::Removed) => {
                self.record.deaths = true;
            }
            PeerEvent::Dead(_) => {
                self.record.deaths = true;
                self.record.forget(self.me, peer);
            }
            PeerEvent::Up => {
                assert!(self.record.has(self.me, peer), "not welcomed");
                self.record.forget(self.me, peer);
            }
            PeerEvent::Come => {
                let peers = self.record.peers.as_mut().expect("nobody may come");
                peers.insert((self.me, peer), Standing::Come);
            }
            PeerEvent::Waiting => {}
        }
    }

    fn is_open(&self, d: &Delivery<'_>) -> bool {
        let place = (self.me, d.peer, d.priority.index(), d.flow);
        self.record.open.contains_key(&place)
    }

    /// Sends a message of `args` words and `total` bytes if it is taken; where `quick` and free, by
    /// the quick way, as the packet that is returned.
    #[allow(clippy::too_many_arguments, reason = "the caller has drawn each")]
    pub fn send(
        &mut self,
        endpoint: &mut Endpoint<'_, Open>,
        peer: PeerId,
        priority: Priority,
        flow: u16,
        args: usize,
        total: usize,
        quick: bool,
    ) -> Option<Transmit> {
        let port = self.record.sent[self.me].len() as u16;
        let message = Message {
            priority,
            flow,
            port,
            args: &words(port)[..args],
            payload: content(port, 0, total),
        };
        let now = self.record.now;
        let one = quick.then(|| endpoint.send_one(now, peer, &message));
        let one = one.flatten().map(|(_, t)| t);
        if one.is_some() || endpoint.send(now, peer, &message).is_ok() {
            self.note(peer, &message, total as u64, false);
        }
        one
    }

    /// Notes a message that was taken.
    pub fn note(&mut self, peer: PeerId, m: &Message<'_>, total: u64, lent: bool) {
        self.record.sent[self.me].push(Sent {
            peer,
            priority: m.priority,
            flow: m.flow,
            args: m.args.len(),
            total,
            lent,
            delivered: false,
        });
    }
}
