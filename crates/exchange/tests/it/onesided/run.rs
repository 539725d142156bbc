//! A random program, and what it should see.

use std::collections::BTreeMap;

use portolan_exchange::{
    Config, DeregisterRefused, Notify, OpError, OpId, Place, PutEnd, PutOptions, RegisterRefused,
    RemoteKey, Rights, Signal,
};

use crate::common::memory::{Faults, Plain, PlainRegion};
use crate::common::{Cluster, Net, PORTS, Pieces, Rank, Rng, StreamKey, Trouble};
use crate::onesided::atomics::Change;

#[derive(Clone, Debug)]
pub enum What {
    Put {
        bytes: Vec<u8>,
        signal: Option<Signal>,
        local: bool,
    },
    Get(usize),
    Add(u64),
    Swap(u64, u64),
    Change(Change),
    Flush,
}

#[derive(Clone, Debug)]
pub struct Begun {
    pub to: u32,
    pub epoch: u64,
    pub what: What,
    pub place: Place,
    /// Done at the target, of a get: read.
    pub landed: bool,
    pub cancelled: bool,
    /// What it ends with, once that is decided.
    pub result: Option<Result<(), OpError>>,
    pub found: Option<u64>,
    pub got: Vec<u8>,
}

/// What a get is answered with.
pub enum Answer {
    /// Bytes of a region as they are when it leaves: where from, and how many.
    Later(usize, usize, usize),
    /// As they were when it was asked for.
    Now(Vec<u8>),
}

pub struct Run {
    pub rng: Rng,
    pub cluster: Cluster,
    pub plain: Plain,
    pub faults: Faults,
    pub ops: BTreeMap<(u32, OpId), Begun>,
    /// In the order in which they were begun, by (rank, target).
    pub order: BTreeMap<(u32, u32), Vec<OpId>>,
    pub open: Vec<(u32, OpId)>,
    pub fences: BTreeMap<(u32, u32), u64>,
    /// Puts that arrive in parts: region and place, and whether a part fell in a hole.
    pub parts: BTreeMap<(StreamKey, OpId), (usize, usize, bool)>,
    /// Answers to gets by (initiator, operation, place in it).
    pub served: BTreeMap<(u32, u64, u64), Answer>,
    pub signals: usize,
    pub told: Vec<(u32, u32, Signal, u64)>,
    pub ended: BTreeMap<&'static str, u32>,
}

impl Run {
    pub fn new(seed: u64, size: u32) -> Self {
        let mut rng = Rng(seed);
        let net = Net {
            room: 1 + rng.below(6) as usize,
            copied: rng.below(300) as usize,
            direct_regions: rng.chance(25),
            trouble: Trouble {
                deaf: [0, 30, 80][rng.below(3) as usize],
                rng: rng.clone(),
                ..Trouble::default()
            },
            mixed: rng.chance(50).then(|| rng.clone()),
            ..Net::default()
        };
        let config = Config {
            pull_window: 1 + rng.below(2_000),
            pull_chunk: 1 + rng.below(700),
            regions_max: if rng.chance(20) { 3 } else { 100 },
            accesses_max: 1 + rng.below(6) as u32,
            secret: [rng.next(), rng.next()],
            ..Config::default()
        };
        Self {
            cluster: Cluster::new(size, &config, net),
            plain: Plain::default(),
            faults: Faults::default(),
            ops: BTreeMap::new(),
            order: BTreeMap::new(),
            open: Vec::new(),
            fences: BTreeMap::new(),
            parts: BTreeMap::new(),
            served: BTreeMap::new(),
            signals: 0,
            told: Vec::new(),
            ended: BTreeMap::new(),
            rng,
        }
    }

    pub fn alive(&self) -> Vec<u32> {
        let all = 0..self.cluster.ranks.len() as u32;
        all.filter(|r| !self.cluster.net.dead.contains(r)).collect()
    }

    pub fn rights(&mut self) -> Rights {
        match self.rng.below(8) {
            0 => Rights::None,
            1 => Rights::Get,
            2 => Rights::Put,
            _ => Rights::Both,
        }
    }

    pub fn register(&mut self, rank: u32) {
        let (key, rights) = (
            self.rng.chance(80).then(|| self.rng.below(5)),
            self.rights(),
        );
        let regions = self.plain.regions.iter();
        let held = regions.filter(|r| r.rank == rank && !r.gone).count();
        let max = self.cluster.ranks[rank as usize].statistics().regions;
        assert_eq!(max, held);
        let taken = key.and_then(|key| self.plain.taken(rank, key));
        let again: Vec<usize> = (0..self.plain.regions.len())
            .filter(|at| self.plain.regions[*at].rank == rank && !self.plain.regions[*at].gone)
            .collect();
        let x = &mut self.cluster.ranks[rank as usize];
        let (made, region) = if !again.is_empty() && self.rng.chance(50) {
            let of = again[self.rng.below(again.len() as u64) as usize];
            let of = self.plain.regions[of].clone();
            let (start, bytes) = match self.rng.below(4) {
                0 => (0, of.bytes),
                1 => (of.bytes, self.rng.below(2)),
                _ => {
                    let start = self.rng.below(of.bytes + 1) & !7;
                    (start, self.rng.below(of.bytes - start + 1))
                }
            };
            let made = x.register_again(of.id, start, bytes, key, rights);
            if !of.open {
                assert_eq!(made, Err(RegisterRefused::NoSuchRegion));
                return;
            }
            if start + bytes > of.bytes {
                assert_eq!(made, Err(RegisterRefused::OutOfBounds));
                return;
            }
            if let Some(at) = taken {
                let there = &mut self.plain.regions[at];
                if (there.memory, there.start, there.bytes, there.rights)
                    == (of.memory, of.start + start, bytes, rights)
                {
                    assert_eq!(made, Ok(there.id));
                    there.count += 1;
                    return;
                }
            }
            (made, (of.memory, of.start + start, bytes))
        } else {
            let bytes: Vec<u8> = (0..self.rng.below(3_000)).map(|i| i as u8).collect();
            let mut memory = Pieces::of(&bytes, &mut self.rng);
            let hole = self.rng.chance(25);
            if hole {
                memory = memory.with_hole();
            }
            let made = x.register(memory, key, rights).map_err(|(why, memory)| {
                assert_eq!(memory.bytes(), bytes);
                why
            });
            let memory = self.plain.memories.len();
            let region = (memory, 0, bytes.len() as u64);
            self.plain.memories.push(bytes);
            self.plain.holes.extend(hole.then_some(memory));
            (made, region)
        };
        match made {
            Ok(id) => {
                assert_eq!(taken, None);
                let x = &self.cluster.ranks[rank as usize];
                let full = x.remote_key(id).expect("it is open");
                assert!(key.is_none_or(|key| full.key() == key));
                let others = self.plain.regions.iter().filter(|r| r.rank == rank);
                assert!(others.into_iter().all(|r| r.key != full));
                let (memory, start, bytes) = region;
                self.plain.regions.push(PlainRegion {
                    rank,
                    id,
                    key: full,
                    rights,
                    memory,
                    start,
                    bytes,
                    count: 1,
                    uses: 0,
                    open: true,
                    gone: false,
                });
            }
            Err(RegisterRefused::KeyTaken) => assert!(taken.is_some()),
            Err(RegisterRefused::Full) => assert_eq!(held, 3),
            Err(why) => panic!("{why:?}"),
        }
    }

    pub fn deregister(&mut self, at: usize) {
        let region = &mut self.plain.regions[at];
        let made = self.cluster.ranks[region.rank as usize].deregister(region.id);
        if region.gone {
            assert_eq!(made, Err(DeregisterRefused::NoSuchRegion));
        } else if region.count > 1 {
            region.count -= 1;
            assert_eq!(made, Ok(None));
        } else {
            region.open = false;
            if region.uses > 0 {
                assert_eq!(made, Err(DeregisterRefused::InUse(region.uses)));
                return;
            }
            region.gone = true;
            let memory = region.memory;
            let back = made.expect("it is not in use");
            assert_eq!(back.is_some(), self.plain.sharers(memory) == 0);
            if let Some(back) = back {
                assert_eq!(back.bytes(), self.plain.memories[memory]);
            }
        }
    }

    pub fn place(&mut self, to: u32, bytes: u64) -> Place {
        let all: Vec<&PlainRegion> = (self.plain.regions.iter())
            .filter(|r| r.rank == to)
            .collect();
        if all.is_empty() || self.rng.chance(3) {
            let bytes = u128::from(self.rng.next()).to_le_bytes();
            let key = RemoteKey::from_bytes(bytes);
            return Place { key, offset: 0 };
        }
        // Mostly of the last ones: those are open.
        let back = self.rng.below(all.len().min(4) as u64) as usize;
        let region = all[all.len() - 1 - back];
        let key = if self.rng.chance(10) {
            RemoteKey::any(region.key.key())
        } else {
            region.key
        };
        let most = region.bytes.saturating_sub(bytes);
        let offset = match self.rng.below(30) {
            0 => u64::MAX - self.rng.below(3),
            1 => region.bytes + 1,
            2 => most + 1,
            3..=8 => self.rng.below(most + 1),
            _ => self.rng.below(most + 1) & !7,
        };
        Place { key, offset }
    }

    pub fn what(&mut self, itself: bool) -> What {
        let length = match self.rng.below(4) {
            0 => self.rng.below(9),
            1 => self.rng.below(60),
            _ => self.rng.below(2_500),
        };
        match self.rng.below(20) {
            0..=8 => What::Put {
                bytes: (0..length).map(|_| self.rng.next() as u8).collect(),
                signal: (!itself && self.rng.chance(30)).then(|| Signal {
                    port: self.rng.below(u64::from(PORTS) + 2) as u32,
                    word: self.rng.next(),
                }),
                local: self.rng.chance(50),
            },
            9..=13 => What::Get(length as usize),
            14 => What::Add(self.rng.next()),
            15..=16 => What::Change(Change::any(&mut self.rng)),
            17 => What::Swap(self.rng.below(2) * 0x0706_0504_0302_0100, self.rng.next()),
            _ => What::Flush,
        }
    }

    pub fn begin(&mut self, rank: u32) {
        let to = self.rng.below(self.cluster.ranks.len() as u64) as u32;
        if self.cluster.net.dead.contains(&to) {
            return;
        }
        let what = self.what(rank == to);
        let place = match &what {
            What::Put { bytes, .. } => self.place(to, bytes.len() as u64),
            What::Get(bytes) => self.place(to, *bytes as u64),
            What::Add(_) | What::Swap(..) => self.place(to, 8),
            What::Change(it) => self.place(to, it.bytes() as u64),
            What::Flush => Place::default(),
        };
        self.begin_as(rank, to, what, place);
    }

    pub fn begin_as(&mut self, rank: u32, to: u32, what: What, place: Place) {
        self.cluster.net.last_direct = None;
        let (made, rng) = (what.clone(), &mut self.rng);
        let none = Notify::default();
        let op = match made {
            What::Put {
                bytes,
                signal,
                local,
            } => {
                let source = Pieces::of(&bytes, rng);
                let end = if local {
                    PutEnd::Local
                } else {
                    PutEnd::Visible
                };
                let options = PutOptions {
                    end,
                    signal,
                    notify: none,
                };
                let put = |x: &mut Rank| x.put(to, place, source, &options);
                self.cluster.with(rank, put).map_err(|(why, _)| why)
            }
            What::Get(bytes) => {
                let sink = Pieces::of(&vec![0; bytes], rng);
                let get = |x: &mut Rank| x.get(to, place, sink, none);
                self.cluster.with(rank, get).map_err(|(why, _)| why)
            }
            What::Add(add) => self
                .cluster
                .with(rank, |x| x.fetch_add(to, place, add, none)),
            What::Swap(old, new) => self
                .cluster
                .with(rank, |x| x.compare_swap(to, place, old, new, none)),
            What::Change(it) if it.fetching => {
                let sink = Pieces::of(&vec![0; it.bytes()], rng);
                let fetch = |x: &mut Rank| x.fetch_atomic(to, place, &it.what(), sink, none);
                self.cluster.with(rank, fetch).map_err(|(why, _)| why)
            }
            What::Change(it) => {
                let change = |x: &mut Rank| x.atomic(to, place, &it.what(), none);
                self.cluster.with(rank, change)
            }
            What::Flush => self.cluster.with(rank, |x| x.flush(to, none)),
        };
        let op = op.expect("the rank is alive");
        let begun = Begun {
            to,
            epoch: self.fences.get(&(rank, to)).copied().unwrap_or(0),
            what,
            place,
            landed: false,
            cancelled: false,
            result: None,
            found: None,
            got: Vec::new(),
        };
        self.ops.insert((rank, op), begun);
        self.order.entry((rank, to)).or_default().push(op);
        self.open.push((rank, op));
        let direct = self.cluster.net.last_direct.take();
        if rank == to || direct.is_some() {
            self.at_once(rank, op);
            let result = self.ops[&(rank, op)].result;
            assert!(
                direct.is_none() || direct == result,
                "{direct:?} {result:?}"
            );
            let begun = self.ops.get_mut(&(rank, op)).expect("begun");
            if let (Some(Err(why)), What::Put { local: true, .. }) = (direct, &begun.what) {
                // As of one that went by a message, the next flush tells.
                begun.result = Some(Ok(()));
                self.faults.note(rank, to, why);
            }
        }
        self.look();
    }
}
