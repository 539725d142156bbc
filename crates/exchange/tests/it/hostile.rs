//! A peer that sends words and payloads of its own making, of every kind: it
//! harms nobody, and what it makes others hold is bounded.

use std::collections::VecDeque;

use crate::common::{Cluster, Net, Pieces, Rng, StreamKey, Trouble};
use portolan_exchange::{
    Config, Incoming, IncomingOutcome, KINDS, Kind, Memory, Notify, OpError, OpId, Place, PutEnd,
    PutOptions, RegionId, RemoteKey, Rights, Selector, SendOptions, Signal,
};

const ATTACKER: u32 = 2;
/// Key of the region that the others use among themselves; not to be guessed.
const THEIRS: u64 = 0x7465_6873_5f69_7274;
const ACCESSES: u32 = 8;
const OFFERS: u32 = 16;

struct Run {
    rng: Rng,
    cluster: Cluster,
    /// Words that the attacker has seen, and may say again.
    words: Vec<u64>,
    /// What it has begun to send in parts: to whom, number, bytes.
    parts: Vec<(u32, u64, u64)>,
    /// What others have asked it for: who, answer, operation, place, bytes.
    asked: Vec<(u32, Kind, u64, u64, u64)>,
    /// What others lend it for reading.
    lent: Vec<(u32, OpId)>,
    /// What others have begun towards it.
    outgoing: Vec<(u32, OpId)>,
    /// Of the others' own traffic: operation and what it must bring.
    own: Vec<(u32, OpId, Option<Vec<u8>>)>,
    regions: Vec<(u32, RegionId)>,
    theirs: Vec<(RegionId, RemoteKey)>,
    tag: u64,
    took: [u32; KINDS as usize],
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let net = Net {
            room: 1 + rng.below(6) as usize,
            direct: rng.chance(50),
            forbidden: true,
            shares: rng.chance(50),
            trouble: Trouble {
                busy: 30,
                deaf: 30,
                rng: rng.clone(),
                ..Trouble::default()
            },
            copied: rng.below(300) as usize,
            mixed: rng.chance(50).then(|| rng.clone()),
            ..Net::default()
        };
        let config = Config {
            pushed_bytes: 16 << 10,
            pushed_share: Some(8 << 10),
            offers_max: OFFERS,
            pull_window: 1 + rng.below(5_000),
            pull_chunk: 1 + rng.below(700),
            share_min: 0,
            accesses_max: ACCESSES,
            secret: [rng.next(), rng.next()],
            ..Config::default()
        };
        let mut cluster = Cluster::new(3, &config, net);
        let (mut regions, mut theirs, mut words) = (Vec::new(), Vec::new(), vec![0, 1, 8]);
        for rank in 0..2 {
            for (key, rights) in [(1, Rights::Both), (2, Rights::Get), (3, Rights::None)] {
                let memory = Pieces::of(&[0; 2_000], &mut rng);
                let x = &mut cluster.ranks[rank as usize];
                let id = x.register(memory, Some(key), rights).expect("it is free");
                let bytes = x.remote_key(id).expect("open").to_bytes();
                words.extend([
                    key,
                    u64::from_le_bytes(bytes[8..].try_into().expect("8 bytes")),
                ]);
                regions.push((rank, id));
            }
            let memory = Pieces(vec![vec![0; 4_096]]);
            let x = &mut cluster.ranks[rank as usize];
            let id = x
                .register(memory, Some(THEIRS), Rights::Both)
                .expect("it is free");
            theirs.push((id, x.remote_key(id).expect("open")));
            regions.push((rank, id));
        }
        Self {
            rng,
            cluster,
            words,
            parts: Vec::new(),
            asked: Vec::new(),
            lent: Vec::new(),
            outgoing: Vec::new(),
            own: Vec::new(),
            regions,
            theirs,
            tag: 100,
            took: [0; KINDS as usize],
        }
    }

    fn word(&mut self) -> u64 {
        match self.rng.below(10) {
            0 => u64::MAX - self.rng.below(9),
            1 => 1 << self.rng.below(64),
            2 => self.rng.next(),
            3 => self.rng.below(3_000),
            4 => self.rng.below(4),
            _ => self.words[self.rng.below(self.words.len() as u64) as usize],
        }
    }

    /// Most of it makes sense, so that it comes far.
    fn sensible(&mut self, kind: Kind) -> Vec<u64> {
        let key = 1 + self.rng.below(3);
        let op = self.word();
        let offset = self.rng.below(260) * 8;
        let flags = [0, 1, 1 << 63, 1 << 63 | 1][self.rng.below(4) as usize];
        match kind {
            Kind::Offer => {
                let second = flags & 1 << 63 | self.rng.below(400);
                let (shares, address) = (self.rng.below(2) << 62, self.rng.below(2));
                let (tag, total) = (self.rng.below(2), self.rng.below(5_000));
                vec![tag, total, op, address, shares | second, 7]
            }
            Kind::Pull => vec![op, self.word(), self.rng.below(700), self.word(), op],
            Kind::Put => vec![key, 0, offset, op, flags, self.rng.below(10), op],
            Kind::Get => vec![key, 0, offset, 1_000, op, self.rng.below(500), 500],
            Kind::Atomic => {
                let (op_is, of, count) = (self.rng.below(20), 6 + self.rng.below(7), 1);
                let fetching = self.rng.below(2) << 16;
                vec![
                    key,
                    0,
                    offset,
                    op,
                    flags & 1 << 63 | op_is | of << 8 | fetching | count << 32,
                ]
            }
            Kind::Result => vec![op, self.rng.below(7)],
            _ => vec![op, self.word()],
        }
    }

    /// Answers what it was asked for, mostly: perhaps twice, perhaps in part.
    fn answer(&mut self) {
        if self.asked.is_empty() {
            return;
        }
        let at = self.rng.below(self.asked.len() as u64) as usize;
        let (to, mut kind, op, mut place, mut total) = self.asked[at];
        if self.rng.chance(50) {
            self.asked.remove(at);
        }
        if kind == Kind::Got && self.rng.chance(15) {
            (kind, place, total) = (Kind::Result, 1 + self.rng.below(5), 0);
        }
        if self.rng.chance(20) {
            total = self.rng.below(total + 2);
        }
        // Or says that it has written it.
        let mut words = vec![op, place];
        if kind == Kind::Pulled && self.rng.chance(30) {
            words.push(total);
            total = 0;
        }
        let args: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let first = if self.rng.chance(50) {
            total
        } else {
            self.rng.below(total + 1)
        };
        self.say(to, kind, &args, total, &vec![0xee; first as usize]);
    }

    fn say(&mut self, to: u32, kind: Kind, args: &[u8], total: u64, payload: &[u8]) {
        let m = Incoming {
            from: ATTACKER,
            kind,
            args,
            total,
            payload,
        };
        match self.cluster.with(to, |x| x.arrive(&m)) {
            IncomingOutcome::Part(number) => self.parts.push((to, number, total)),
            IncomingOutcome::Whole => {}
            IncomingOutcome::NotNow | IncomingOutcome::Refused => return,
        }
        if kind == Kind::Offer
            && let (Some(op), Some(second)) = (args.get(16..24), args.get(32..40))
        {
            let second = u64::from_le_bytes(second.try_into().expect("8 bytes"));
            let op = u64::from_le_bytes(op.try_into().expect("8 bytes"));
            let bytes = second & ((1 << 48) - 1);
            self.asked.push((to, Kind::Push, op, 0, bytes));
        }
        self.took[kind as usize] += 1;
    }

    fn attack(&mut self) {
        let to = self.rng.below(2) as u32;
        let kind = Kind::of(self.rng.below(u64::from(KINDS)) as u16).expect("there is");
        let mut words = if self.rng.chance(60) {
            self.sensible(kind)
        } else {
            (0..self.rng.below(9)).map(|_| self.word()).collect()
        };
        if self.rng.chance(20) && !words.is_empty() {
            let at = self.rng.below(words.len() as u64) as usize;
            words[at] = self.word();
        }
        let args: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let total = match self.rng.below(6) {
            // Of one element, or of that and another to compare with.
            0..=4 if kind == Kind::Atomic => 8 + 8 * self.rng.below(2),
            0 => 0,
            1 => self.word(),
            2 => self.rng.below(700),
            // What may have been asked for.
            3 => self.words[self.rng.below(self.words.len() as u64) as usize].min(1 << 20),
            _ => self.rng.below(2_500),
        };
        let payload = vec![0xee; self.rng.below(total.min(3_000) + 1) as usize];
        let payload = if self.rng.chance(50) && total <= 3_000 {
            vec![0xee; total as usize]
        } else {
            payload
        };
        let cut = self.rng.below(3).min(args.len() as u64) as usize;
        self.say(to, kind, &args[..args.len() - cut], total, &payload);
    }

    /// Goes on with a part, somehow.
    fn part(&mut self) {
        if self.parts.is_empty() {
            return;
        }
        let at = self.rng.below(self.parts.len() as u64) as usize;
        let (to, number, total) = self.parts[at];
        let (offset, bytes) = if self.rng.chance(70) {
            let offset = self.rng.below(total.min(5_000));
            (offset, self.rng.below((total - offset).min(500) + 1))
        } else {
            (self.word(), self.rng.below(3_000))
        };
        let x = &mut self.cluster.ranks[to as usize];
        let bytes = vec![0xee; bytes as usize];
        match x.room(number, offset, bytes.len()) {
            Some(room) => room.copy_from_slice(&bytes),
            None => x.write_part(number, offset, &bytes),
        }
        if self.rng.chance(50) {
            self.parts.swap_remove(at);
            self.cluster.with(to, |x| x.arrived(number));
        }
    }

    /// Takes what is sent to the attacker, and learns its words.
    fn listen(&mut self) {
        let ways: Vec<StreamKey> = self.cluster.busy();
        for way in ways.into_iter().filter(|way| way.1 == ATTACKER) {
            let Some(packet) = self
                .cluster
                .net
                .ways
                .get_mut(&way)
                .and_then(VecDeque::pop_front)
            else {
                continue;
            };
            for word in packet.args.chunks(8) {
                let word = u64::from_le_bytes(word.try_into().expect("8 bytes"));
                let at = self.rng.below(40) as usize;
                if at < self.words.len() {
                    self.words[at] = word;
                } else {
                    self.words.push(word);
                }
            }
            let word = |at: usize| {
                let word = packet.args.get(8 * at..8 * at + 8);
                word.map_or(0, |w| u64::from_le_bytes(w.try_into().expect("8 bytes")))
            };
            match packet.kind {
                Kind::Pull => {
                    let asked = (way.0, Kind::Pulled, word(3), word(1), word(2));
                    self.asked.push(asked);
                }
                Kind::Get => {
                    let asked = (way.0, Kind::Got, word(4), word(5), word(6) & !(1 << 63));
                    self.asked.push(asked);
                }
                Kind::Put | Kind::Atomic => {
                    let status = self.rng.below(7);
                    self.asked.push((way.0, Kind::Result, word(3), status, 0));
                }
                Kind::Flush => self.asked.push((way.0, Kind::Result, word(0), 0, 0)),
                _ => {}
            }
            self.lent.extend(packet.lent.map(|op| (way.0, op)));
            self.cluster.with(way.0, |x| x.resume());
        }
        if self.rng.chance(50)
            && let Some((rank, op)) = self.lent.pop()
        {
            self.cluster.ranks[rank as usize].released(op);
        }
    }

    /// Others deal with the attacker as with anybody.
    fn outgoing(&mut self) {
        let rank = self.rng.below(2) as u32;
        let bytes = self.rng.below(3_000) as usize;
        let pieces = Pieces::of(&vec![1; bytes], &mut self.rng);
        let place = Place {
            key: RemoteKey::any(1),
            offset: 0,
        };
        let (none, choice) = (Notify::default(), self.rng.below(9));
        let put = PutOptions {
            end: if self.rng.chance(50) {
                PutEnd::Local
            } else {
                PutEnd::Visible
            },
            ..PutOptions::default()
        };
        let options = SendOptions {
            sync: self.rng.chance(30),
            ..SendOptions::default()
        };
        let op = self.cluster.with(rank, |x| match choice {
            0 => x.post_receive(&Selector::from(ATTACKER, 0), pieces, none),
            1 => x.post_receive(&Selector::any(1), pieces, none),
            2 => x.put(ATTACKER, place, pieces, &put).expect("alive"),
            3 | 4 => x.get(ATTACKER, place, pieces, none).expect("alive"),
            5 => x.fetch_add(ATTACKER, place, 1, none).expect("alive"),
            6 => x.flush(ATTACKER, none).expect("alive"),
            _ => (x.post_send(ATTACKER, 0, &options, pieces)).expect("alive"),
        });
        if self.rng.chance(30) {
            self.cluster.ranks[rank as usize].fence(ATTACKER);
        }
        self.outgoing.push((rank, op));
    }

    /// The others' own traffic.
    fn deal(&mut self) {
        let from = self.rng.below(2) as u32;
        let to = 1 - from;
        let bytes = vec![self.tag as u8; self.rng.below(3_000) as usize];
        self.tag += 1;
        let (tag, none) = (self.tag, Notify::default());
        let place = Place {
            key: self.theirs[to as usize].1,
            offset: 0,
        };
        let (source, room) = (
            Pieces::of(&bytes, &mut self.rng),
            Pieces::of(&vec![0; bytes.len()], &mut self.rng),
        );
        match self.rng.below(3) {
            0 => {
                let options = SendOptions::default();
                let sent = (self.cluster).post_send(from, to, tag, &options, source);
                let selector = Selector::from(from, tag);
                let got = (self.cluster).with(to, |x| x.post_receive(&selector, room, none));
                self.own.push((from, sent.expect("alive"), None));
                self.own.push((to, got, Some(bytes)));
            }
            1 => {
                let options = PutOptions {
                    signal: Some(Signal { port: 1, word: tag }),
                    ..PutOptions::default()
                };
                let put = (self.cluster).with(from, |x| x.put(to, place, source, &options));
                self.own.push((from, put.expect("alive"), None));
            }
            _ => {
                let (id, _) = self.theirs[to as usize];
                let got = (self.cluster).with(from, |x| x.get(to, place, room, none));
                // Its content changes, but by nobody but these two.
                let memory = self.cluster.ranks[to as usize].region_memory(id);
                assert!(memory.is_some_and(|m| !m.bytes().contains(&0xee)));
                self.own.push((from, got.expect("alive"), None));
            }
        }
    }

    fn carry(&mut self) -> bool {
        let busy = self.cluster.busy();
        let ways: Vec<StreamKey> = busy.into_iter().filter(|w| w.1 != ATTACKER).collect();
        if ways.is_empty() {
            return false;
        }
        let way = ways[self.rng.below(ways.len() as u64) as usize];
        let cut = 64 * (1 + self.rng.below(20) as usize);
        self.cluster.carry(way, cut, |_, _| {});
        true
    }

    fn is_bounded(&self) {
        for rank in 0..2 {
            let statistics = self.cluster.ranks[rank as usize].statistics();
            assert!(
                statistics.accesses <= 2 * u64::from(ACCESSES),
                "{statistics:?}"
            );
            // Puts, and what its credit covers.
            let pushes = 2 * (u64::from(OFFERS) + (8 << 10) / 128);
            let most = pushes + 2 * u64::from(ACCESSES) + statistics.operations as u64;
            assert!(statistics.parts as u64 <= most, "{statistics:?}");
            assert!(statistics.messages as u64 <= pushes, "{statistics:?}");
            assert!(statistics.pushed_bytes <= 2 * (8 << 10), "{statistics:?}");
        }
    }

    fn finish(&mut self) {
        // The others' traffic comes to its end beside a peer that is silent.
        for turn in 0.. {
            assert!(turn < 1_000_000, "{:?}", self.own);
            self.listen();
            self.carry();
            for rank in 0..2 {
                self.cluster.with(rank, |x| x.resume());
            }
            let cluster = &mut self.cluster;
            self.own.retain(|(rank, op, bytes)| {
                let Some((done, memory)) = cluster.ranks[*rank as usize].take(*op) else {
                    return true;
                };
                assert_eq!(done.result, Ok(()));
                if let (Some(bytes), Some(Memory::Sink(sink))) = (bytes, memory) {
                    assert_eq!(sink.bytes(), *bytes);
                }
                false
            });
            if self.own.is_empty() {
                break;
            }
        }
        for (rank, op) in self.lent.drain(..) {
            self.cluster.ranks[rank as usize].released(op);
        }
        self.cluster.kill(ATTACKER);
        while self.carry() {}
        self.cluster.net.trouble.busy = 0;
        self.cluster.net.trouble.deaf = 0;
        for rank in 0..2 {
            self.cluster.with(rank, |x| x.resume());
        }
        for (rank, op) in std::mem::take(&mut self.outgoing) {
            let x = &mut self.cluster.ranks[rank as usize];
            // From anybody: nobody sends it anything.
            x.cancel(op);
            let (done, memory) = x.take(op).expect("it has ended");
            assert!(matches!(done.result, Ok(()) | Err(_)));
            assert_ne!(done.result, Err(OpError::Closed));
            assert!(memory.is_some() || done.total <= 8);
        }
        for (rank, id) in std::mem::take(&mut self.regions) {
            let back = self.cluster.ranks[rank as usize].deregister(id);
            assert!(back.expect("nobody uses it").is_some());
        }
        for rank in 0..2 {
            let x = &mut self.cluster.ranks[rank as usize];
            let any = Selector::from(ATTACKER, 0).ignoring(u64::MAX);
            let mut left = Vec::new();
            while let Some((id, _)) = x.claim(&any) {
                left.push(id);
            }
            for id in left {
                (self.cluster).with(rank, |x| x.discard(id, Pieces::default()));
            }
            self.cluster.is_idle(rank);
        }
    }
}

#[test]
fn nothing_that_a_peer_sends_does_harm() {
    let mut took = [0; KINDS as usize];
    for seed in 0..600 {
        let mut run = Run::new(seed);
        for _ in 0..400 {
            match run.rng.below(16) {
                0..=6 => run.attack(),
                7 => run.part(),
                12 => run.answer(),
                8 | 9 => run.listen(),
                10 => run.outgoing(),
                11 => run.deal(),
                _ => {
                    run.carry();
                }
            }
            run.is_bounded();
        }
        run.finish();
        for (all, one) in took.iter_mut().zip(run.took) {
            *all += one;
        }
    }
    // It has come as far as that every kind was taken.
    assert!(took.iter().all(|n| *n > 100), "{took:?}");
}
