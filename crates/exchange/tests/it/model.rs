//! Random programs on a random network, beside two plain lists for each rank.

mod many;

use std::collections::BTreeMap;

use self::many::Many;
use crate::common::{Cluster, Net, Pieces, Rng, Trouble};
use portolan_exchange::{
    Action, Completion, Config, InlineReceive, Kind, Memory, MessageId, Notify, OpError, OpId,
    Push, QueueId, Selector, SendOptions,
};

/// A receive that stands, until it is an operation.
const INLINE: OpId = OpId(0);

/// What a message is: who sent it, and the how-manieth of it that is.
type Name = (u32, u64);

fn bytes_of(name: Name, total: usize) -> Vec<u8> {
    let mut rng = Rng(u64::from(name.0) << 32 | name.1);
    (0..total).map(|_| rng.next() as u8).collect()
}

struct Sent {
    name: Name,
    to: u32,
    tag: u64,
    total: usize,
    data: Option<u64>,
}

/// One rank's program, and what it should see.
#[derive(Default)]
struct Program {
    sends: BTreeMap<OpId, usize>,
    /// Posted receives in order.
    posted: Vec<(OpId, Selector)>,
    /// Messages that arrived unexpected, in order: indices of all sends.
    unexpected: Vec<usize>,
    /// What each receive gets.
    expected: BTreeMap<OpId, usize>,
    room: BTreeMap<OpId, usize>,
    claimed: Vec<(MessageId, usize)>,
    /// Receives of many messages.
    many: BTreeMap<OpId, Many>,
    /// What each receive is for, and its place among all; one that stood was the first.
    places: BTreeMap<OpId, (usize, Selector)>,
}

/// Where their ends are told: the first queue of each rank.
const QUEUE: QueueId = QueueId(0);

struct Run {
    rng: Rng,
    cluster: Cluster,
    programs: Vec<Program>,
    sent: Vec<Sent>,
    /// Sends by (rank, to), in order, that have not begun to arrive.
    on_the_way: BTreeMap<(u32, u32), Vec<usize>>,
    counts: Vec<u64>,
    completed: usize,
    /// Where ranks die, receives from anybody meet only messages whose loss is known at once.
    any_source: bool,
}

/// What a run has seen: operations that ended, parts that senders wrote.
struct Seen {
    completed: usize,
    shared: usize,
}

fn fits(selector: &Selector, from: u32, tag: u64) -> bool {
    selector.source.is_none_or(|s| s == from) && (selector.tag ^ tag) & !selector.ignore == 0
}

impl Run {
    fn new(seed: u64, size: u32, deaths: bool) -> Self {
        let mut rng = Rng(seed);
        let pushes = [
            Push::default(),
            Push {
                whole: 0,
                first: 0,
                second: 0,
                ..Push::default()
            },
            Push {
                whole: 1 << 40,
                ..Push::default()
            },
            Push {
                whole: 100,
                first: 40,
                second: 90,
                overlap: rng.chance(50),
                masking: rng.chance(50),
            },
            Push {
                whole: 0,
                first: 64,
                second: 0,
                overlap: false,
                masking: false,
            },
        ];
        let net = Net {
            room: 1 + rng.below(6) as usize,
            push: pushes[rng.below(5) as usize],
            direct: rng.chance(60),
            forbidden: rng.chance(30),
            shares: rng.chance(60),
            trouble: Trouble {
                unshown: [0, 20, 60][rng.below(3) as usize],
                unwritten: [0, 20, 60][rng.below(3) as usize],
                busy: [0, 30, 80][rng.below(3) as usize],
                rng: rng.clone(),
                ..Trouble::default()
            },
            copied: rng.below(300) as usize,
            mixed: rng.chance(50).then(|| rng.clone()),
            ..Net::default()
        };
        let any_source = !deaths || !net.shares;
        let config = Config {
            secret: [rng.next(), rng.next()],
            pushed_bytes: 8 << 10,
            pushed_share: Some(4 << 10),
            offers_max: if rng.chance(20) { 3 } else { 1_000 },
            pull_window: 1 + rng.below(2_000),
            pull_chunk: 1 + rng.below(700),
            share_min: rng.below(2_000),
            late_bytes: [0, 8 << 10, 64 << 20][rng.below(3) as usize],
            ..Config::default()
        };
        let mut cluster = Cluster::new(size, &config, net);
        for rank in &mut cluster.ranks {
            assert_eq!(rank.open_queue(), QUEUE);
        }
        Self {
            cluster,
            programs: (0..size).map(|_| Program::default()).collect(),
            sent: Vec::new(),
            on_the_way: BTreeMap::new(),
            counts: vec![0; size as usize],
            completed: 0,
            any_source,
            rng,
        }
    }

    fn selector(&mut self, size: u32) -> Selector {
        let tag = self.rng.below(4);
        let base = if self.rng.chance(60) || !self.any_source {
            Selector::from(self.rng.below(u64::from(size)) as u32, tag)
        } else {
            Selector::any(tag)
        };
        match self.rng.below(4) {
            0 => base.ignoring(u64::MAX),
            1 => base.ignoring(1),
            _ => base,
        }
    }

    /// A message has begun to arrive: who gets it?
    fn arrives(&mut self, index: usize) {
        let Sent {
            name,
            to,
            tag,
            total,
            ..
        } = self.sent[index];
        let program = &mut self.programs[to as usize];
        match program
            .posted
            .iter()
            .position(|(_, s)| fits(s, name.0, tag))
        {
            Some(at) => {
                let (op, _) = program.posted[at];
                let many = program.many.get_mut(&op);
                let stays = match many {
                    Some(many) => {
                        many.take(index, total);
                        many.takes_more()
                    }
                    None => program.expected.insert(op, index).is_some(),
                };
                if !stays {
                    program.posted.remove(at);
                }
            }
            None => program.unexpected.push(index),
        }
    }

    fn send(&mut self, rank: u32) {
        let to = self.rng.below(self.programs.len() as u64) as u32;
        if self.cluster.net.dead.contains(&to) {
            return;
        }
        let total = match self.rng.below(4) {
            0 => 0,
            1 => self.rng.below(60),
            2 => self.rng.below(900),
            _ => self.rng.below(6_000),
        } as usize;
        let name = (rank, self.counts[rank as usize]);
        self.counts[rank as usize] += 1;
        let (tag, data) = (
            self.rng.below(4),
            self.rng.chance(30).then(|| self.rng.next()),
        );
        let bytes = bytes_of(name, total);
        let source = Pieces::of(&bytes, &mut self.rng);
        let options = SendOptions {
            data,
            sync: self.rng.chance(30),
            notify: Notify::default(),
        };
        let index = self.sent.len();
        self.sent.push(Sent {
            name,
            to,
            tag,
            total,
            data,
        });
        if to == rank {
            self.arrives(index);
        } else {
            self.on_the_way.entry((rank, to)).or_default().push(index);
        }
        let op = self.cluster.post_send(rank, to, tag, &options, source);
        let op = op.expect("the rank is alive");
        self.programs[rank as usize].sends.insert(op, index);
    }

    fn receive(&mut self, rank: u32) {
        let selector = self.selector(self.programs.len() as u32);
        let room = [0, 50, 700, 6_000, 6_000][self.rng.below(5) as usize];
        let sink = Pieces::of(&vec![0; room], &mut self.rng);
        if selector
            .source
            .is_some_and(|s| self.cluster.net.dead.contains(&s))
        {
            return;
        }
        let sent = &self.sent;
        let program = &mut self.programs[rank as usize];
        let fitting = |i: &usize| fits(&selector, sent[*i].name.0, sent[*i].tag);
        if self.rng.chance(25) {
            let room_min = self.rng.below(300);
            let notify = Notify {
                queue: Some(QUEUE),
                ..Notify::default()
            };
            let op = self.cluster.with(rank, |x| {
                x.post_receive_many(&selector, sink, room_min, notify)
            });
            let mut many = Many::new(selector, room, room_min as usize);
            while many.takes_more()
                && let Some(at) = program.unexpected.iter().position(fitting)
            {
                let index = program.unexpected.remove(at);
                many.take(index, sent[index].total);
            }
            let place = 1 + program.places.len();
            program.places.insert(op, (place, selector));
            if many.takes_more() {
                program.posted.push((op, selector));
            }
            program.many.insert(op, many);
            return;
        }
        let posted = if self.rng.chance(50) {
            let alone = !program.room.contains_key(&INLINE)
                && program.posted.is_empty()
                && !program.unexpected.iter().any(fitting);
            let posted = self.cluster.ranks[rank as usize].post_inline(&selector, sink);
            assert_eq!(posted.is_ok(), alone);
            posted
        } else {
            Err(sink)
        };
        let op = match posted {
            Ok(()) => INLINE,
            Err(sink) => self
                .cluster
                .with(rank, |x| x.post_receive(&selector, sink, Notify::default())),
        };
        program.room.insert(op, room);
        let place = if op == INLINE {
            0
        } else {
            1 + program.places.len()
        };
        program.places.insert(op, (place, selector));
        match program.unexpected.iter().position(fitting) {
            Some(at) => {
                let index = program.unexpected.remove(at);
                program.expected.insert(op, index);
            }
            None => program.posted.push((op, selector)),
        }
    }

    fn probe_or_claim(&mut self, rank: u32) {
        let selector = self.selector(self.programs.len() as u32);
        let sent = &self.sent;
        let program = &mut self.programs[rank as usize];
        let fitting = |i: &usize| fits(&selector, sent[*i].name.0, sent[*i].tag);
        let at = program.unexpected.iter().position(fitting);
        let probed = self.cluster.ranks[rank as usize].probe(&selector);
        assert_eq!(probed.is_some(), at.is_some());
        let (Some(probed), Some(at)) = (probed, at) else {
            return;
        };
        let index = program.unexpected[at];
        let it = &sent[index];
        assert_eq!(
            (probed.from, probed.tag, probed.total, probed.data),
            (it.name.0, it.tag, it.total as u64, it.data)
        );
        if self.rng.chance(50) {
            let (id, what) = self.cluster.ranks[rank as usize]
                .claim(&selector)
                .expect("it was probed");
            assert_eq!(what, probed);
            program.unexpected.remove(at);
            program.claimed.push((id, index));
        }
    }

    fn use_claimed(&mut self, rank: u32) {
        let Some((id, index)) = self.programs[rank as usize].claimed.pop() else {
            return;
        };
        if self.rng.chance(30) {
            self.cluster
                .with(rank, |x| x.discard(id, Pieces::default()));
            return;
        }
        let room = [0, 700, 6_000][self.rng.below(3) as usize];
        let sink = Pieces::of(&vec![0; room], &mut self.rng);
        let op = self
            .cluster
            .with(rank, |x| x.receive_claimed(id, sink, Notify::default()));
        let program = &mut self.programs[rank as usize];
        program.room.insert(op, room);
        program.expected.insert(op, index);
    }

    fn cancel(&mut self, rank: u32) {
        let program = &mut self.programs[rank as usize];
        let all = program.room.keys().chain(program.many.keys());
        let all: Vec<OpId> = all.copied().collect();
        if all.is_empty() {
            return;
        }
        let op = all[self.rng.below(all.len() as u64) as usize];
        let at = program.posted.iter().position(|(id, _)| *id == op);
        let x = &mut self.cluster.ranks[rank as usize];
        if op == INLINE {
            let sink = x.withdraw_inline();
            assert_eq!(sink.is_some(), at.is_some());
            if sink.is_some() {
                program.room.remove(&op);
            }
        } else {
            assert_eq!(x.cancel(op), at.is_some());
        }
        if let Some(at) = at {
            program.posted.remove(at);
        }
    }

    fn carry(&mut self) -> bool {
        let busy = self.cluster.busy();
        if busy.is_empty() {
            return false;
        }
        let way = busy[self.rng.below(busy.len() as u64) as usize];
        let cut = 64 * (1 + self.rng.below(20) as usize);
        let mut began = false;
        self.cluster.carry(way, cut, |packet, bytes| {
            began = bytes.start == 0 && matches!(packet.kind, Kind::Eager | Kind::Offer);
        });
        if began {
            let order = self.on_the_way.entry((way.0, way.1)).or_default();
            let index = order.remove(0);
            self.arrives(index);
        }
        true
    }

    /// What became of a receive that stands.
    fn look_at_the_standing(&mut self, rank: u32) {
        let program = &mut self.programs[rank as usize];
        match self.cluster.ranks[rank as usize].poll_inline() {
            None => {}
            Some(InlineReceive::Waits(_)) => panic!("that is not told"),
            Some(InlineReceive::Ended(done, sink)) => {
                assert_eq!(done.op, INLINE);
                self.ended(rank, done, Some(Memory::Sink(sink)));
            }
            Some(InlineReceive::Became(op)) => {
                let room = program.room.remove(&INLINE).expect("it posted");
                program.room.insert(op, room);
                if let Some(place) = program.places.remove(&INLINE) {
                    program.places.insert(op, place);
                }
                if let Some(index) = program.expected.remove(&INLINE) {
                    program.expected.insert(op, index);
                }
                for (id, _) in &mut program.posted {
                    if *id == INLINE {
                        *id = op;
                    }
                }
            }
        }
    }

    /// Takes what has ended and checks it.
    fn reap(&mut self, rank: u32) {
        self.look_at_the_standing(rank);
        let ids: Vec<OpId> = {
            let program = &self.programs[rank as usize];
            program
                .room
                .keys()
                .chain(program.sends.keys())
                .copied()
                .collect()
        };
        for op in ids {
            let Some((done, memory)) = self.cluster.ranks[rank as usize].take(op) else {
                continue;
            };
            self.ended(rank, done, memory);
        }
        while let Some((done, memory)) = self.cluster.ranks[rank as usize].next_of(QUEUE) {
            self.many_ended(rank, &done, memory);
        }
    }

    /// An operation has ended: is it as it should be?
    fn ended(&mut self, rank: u32, done: Completion, memory: Option<Memory<Pieces, Pieces>>) {
        let op = done.op;
        self.completed += 1;
        let program = &mut self.programs[rank as usize];
        let lost = done.result == Err(OpError::PeerDead);
        if done.action == Action::Send {
            let index = program.sends.remove(&op).expect("a send");
            let it = &self.sent[index];
            assert!(done.result.is_ok() || (lost && self.cluster.net.dead.contains(&it.to)));
            let Some(Memory::Source(source)) = memory else {
                panic!("a send gives its memory back");
            };
            assert_eq!(source.bytes(), bytes_of(it.name, it.total));
            return;
        }
        let room = program.room.remove(&op).expect("a receive");
        let Some(Memory::Sink(sink)) = memory else {
            panic!("a receive gives its memory back");
        };
        assert_eq!(sink.bytes().len(), room);
        if done.result == Err(OpError::Cancelled) {
            assert!(!program.expected.contains_key(&op));
            return;
        }
        if lost {
            program.posted.retain(|(id, _)| *id != op);
            let from = program
                .expected
                .get(&op)
                .map_or(done.peer, |i| self.sent[*i].name.0);
            assert!(self.cluster.net.dead.contains(&from), "{from} is alive");
            return;
        }
        let index = program.expected.remove(&op).expect("it met a message");
        let it = &self.sent[index];
        let got = it.total.min(room);
        assert_eq!(
            (done.peer, done.tag, done.data),
            (it.name.0, it.tag, it.data)
        );
        assert_eq!((done.total, done.bytes), (it.total as u64, got as u64));
        assert_eq!(done.result.is_ok(), it.total <= room);
        assert_eq!(sink.bytes()[..got], bytes_of(it.name, it.total)[..got]);
    }

    /// A receive from anybody whose message was lost: it stands at its place, or has met
    /// another one that waited.
    fn stood_again(&mut self, rank: u32, dead: u32, place: usize, op: OpId) {
        let program = &mut self.programs[rank as usize];
        let (_, selector) = program.places[&op];
        let x = &mut self.cluster.ranks[rank as usize];
        program.expected.remove(&op);
        if x.is_from_anybody(op) {
            let after = |(other, _): &(OpId, Selector)| program.places[other].0 > place;
            let at = program.posted.iter().position(after);
            let at = at.unwrap_or(program.posted.len());
            program.posted.insert(at, (op, selector));
            return;
        }
        let ended = x.take(op);
        let sent = &self.sent;
        let is_it = |index: &usize| {
            let it = &sent[*index];
            let dead_and_whole = ended.as_ref().is_some_and(|(done, _)| {
                (done.peer, done.tag, done.total, done.data)
                    == (dead, it.tag, it.total as u64, it.data)
            });
            fits(&selector, it.name.0, it.tag) && (it.name.0 != dead || dead_and_whole)
        };
        let at = program.unexpected.iter().position(is_it);
        let index = program.unexpected.remove(at.expect("it has met a message"));
        program.expected.insert(op, index);
        if let Some((done, memory)) = ended {
            self.ended(rank, done, memory);
        }
    }

    fn alive(&self) -> Vec<u32> {
        let all = 0..self.programs.len() as u32;
        all.filter(|r| !self.cluster.net.dead.contains(r)).collect()
    }

    /// Receives all that was sent, and cancels what gets nothing.
    fn drain(&mut self) {
        for turn in 0.. {
            assert!(
                turn < 10_000,
                "it does not come to an end: {:?}",
                self.cluster.busy()
            );
            while self.carry() && self.rng.chance(95) {}
            let mut open = 0;
            for rank in self.alive() {
                while !self.programs[rank as usize].claimed.is_empty() {
                    self.use_claimed(rank);
                }
                let posted: Vec<OpId> = self.programs[rank as usize]
                    .posted
                    .iter()
                    .map(|p| p.0)
                    .collect();
                for op in posted {
                    if self.rng.chance(10) {
                        let x = &mut self.cluster.ranks[rank as usize];
                        if op == INLINE {
                            assert!(x.withdraw_inline().is_some());
                            self.programs[rank as usize].room.remove(&op);
                        } else {
                            assert!(x.cancel(op));
                        }
                        self.programs[rank as usize]
                            .posted
                            .retain(|(id, _)| *id != op);
                    }
                }
                while self.cluster.ranks[rank as usize]
                    .probe(&Selector::any(0).ignoring(u64::MAX))
                    .is_some()
                {
                    self.receive(rank);
                }
                self.cluster.with(rank, |x| x.resume());
                self.reap(rank);
                open += self.cluster.ranks[rank as usize].statistics().operations;
            }
            if open == 0 && self.cluster.busy().is_empty() {
                break;
            }
        }
        for rank in self.alive() {
            self.cluster.is_idle(rank);
            assert!(self.programs[rank as usize].many.is_empty());
            let mut published = self.cluster.net.published.keys();
            assert!(published.all(|(owner, _)| *owner != rank));
        }
    }
}

/// Kills a rank, and forgets what that has made void in the reference.
fn kill(run: &mut Run, dead: u32) {
    // Receives from anybody that have met a message of its which is not here.
    let mut open = BTreeMap::new();
    for rank in run.alive() {
        run.look_at_the_standing(rank);
        let (program, x) = (
            &run.programs[rank as usize],
            &run.cluster.ranks[rank as usize],
        );
        let met = program.expected.iter().filter(|(op, index)| {
            let selector = program.places.get(op).map(|(_, selector)| *selector);
            run.sent[**index].name.0 == dead
                && selector.is_some_and(|it| it.source.is_none())
                && x.is_done(**op) == Some(false)
        });
        let mut met: Vec<(usize, OpId)> = met.map(|(op, _)| (program.places[op].0, *op)).collect();
        met.sort_unstable();
        open.insert(rank, met);
    }
    run.cluster.kill(dead);
    for rank in run.alive() {
        for (place, op) in open.remove(&rank).unwrap_or_default() {
            run.stood_again(rank, dead, place, op);
        }
        let unexpected: Vec<usize> = std::mem::take(&mut run.programs[rank as usize].unexpected);
        // Whether a message of a dead rank stays depends on how far it had
        // come: the exchange says, the content is still checked.
        let x = &mut run.cluster.ranks[rank as usize];
        let mut kept = Vec::new();
        let mut theirs = 0;
        while let Some((id, what)) = x.claim(&Selector::from(dead, 0).ignoring(u64::MAX)) {
            let at = unexpected.iter().position(|i| {
                let it = &run.sent[*i];
                it.name.0 == dead
                    && it.tag == what.tag
                    && it.total as u64 == what.total
                    && it.data == what.data
            });
            kept.push((id, unexpected[at.expect("it was sent")]));
            theirs += 1;
        }
        assert!(theirs <= unexpected.len());
        let program = &mut run.programs[rank as usize];
        program.claimed.extend(kept);
        program.unexpected = unexpected
            .into_iter()
            .filter(|i| run.sent[*i].name.0 != dead)
            .collect();
        program.posted.retain(|(_, s)| s.source != Some(dead));
    }
    run.on_the_way
        .retain(|(from, to), _| *from != dead && *to != dead);
}

fn run(seed: u64, deaths: bool) -> Seen {
    let size = 2 + (seed % 3) as u32;
    let mut run = Run::new(seed, size, deaths);
    let steps = 40 + run.rng.below(200);
    for _ in 0..steps {
        let alive = run.alive();
        let rank = alive[run.rng.below(alive.len() as u64) as usize];
        match run.rng.below(20) {
            0..=4 => run.send(rank),
            5..=8 => run.receive(rank),
            9 => run.probe_or_claim(rank),
            10 => run.use_claimed(rank),
            11 => run.cancel(rank),
            12 => run.reap(rank),
            13 if deaths && alive.len() > 1 && run.rng.chance(10) => kill(&mut run, rank),
            14 => {
                // It goes on all the same: what it offers is only taken sooner.
                let other = alive[run.rng.below(alive.len() as u64) as usize];
                let stranger = run.rng.chance(50);
                (run.cluster).with(rank, |x| x.peer_closes(other, stranger));
            }
            _ => {
                run.carry();
            }
        }
    }
    run.drain();
    Seen {
        completed: run.completed,
        shared: run.cluster.net.shared,
    }
}

fn runs(seeds: std::ops::Range<u64>, deaths: bool) {
    let seen: Vec<Seen> = seeds.map(|seed| run(seed, deaths)).collect();
    let completed: usize = seen.iter().map(|it| it.completed).sum();
    let shared: usize = seen.iter().map(|it| it.shared).sum();
    assert!(completed > 50_000 && shared > 500, "{completed}, {shared}");
}

#[test]
fn matching_and_bytes_are_those_of_plain_lists() {
    runs(0..3_000, false);
}

#[test]
fn deaths_end_what_depends_on_them_and_nothing_else() {
    runs(10_000..13_000, true);
}
