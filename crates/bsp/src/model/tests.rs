//! The model on a perfect wire: parts arrive in any order, and processes run ahead of each
//! other.

use std::collections::{BTreeMap, VecDeque};

use portolan::{Gather, Scatter};

use super::{Arrived, Failure, Head, Intake, Part, Process, Rng, SuperstepExchange, Twin, Wire};
use crate::head::Common;
use crate::heads::heads;

const STEPS: u64 = 12;

/// Sent messages and expected parts: from, to, part, step.
#[derive(Default)]
struct Net {
    /// Heads by sender and receiver; those of one pair stay in order.
    heads: BTreeMap<(u32, u32), VecDeque<Vec<u8>>>,
    sent: BTreeMap<(u32, u32, Part, u64), (Gather, bool)>,
    expected: BTreeMap<(u32, u32, Part, u64), Scatter>,
}

struct Link<'a> {
    net: &'a mut Net,
    me: u32,
}

impl Wire for Link<'_> {
    fn send_head(&mut self, to: u32, head: &[u8]) -> Result<(), Failure> {
        let between = self.net.heads.entry((self.me, to)).or_default();
        between.push_back(head.to_vec());
        Ok(())
    }

    fn send(
        &mut self,
        to: u32,
        part: Part,
        step: u64,
        bytes: Gather,
        lent: bool,
    ) -> Result<(), Failure> {
        let key = (self.me, to, part, step);
        let before = self.net.sent.insert(key, (bytes, lent));
        assert!(before.is_none() && to != self.me, "each part goes once");
        Ok(())
    }

    fn expect(&mut self, from: u32, part: Part, step: u64, room: Scatter) -> Result<(), Failure> {
        let key = (from, self.me, part, step);
        assert!(self.net.expected.insert(key, room).is_none());
        Ok(())
    }

    fn room(&mut self, from: u32, bytes: u64) -> Result<Vec<u8>, Failure> {
        if bytes > 1 << 30 {
            return Err(Failure::Malformed { who: from });
        }
        Ok(vec![0x55; bytes as usize])
    }

    fn keep(&mut self, _memory: Vec<u8>) {}
}

struct Run {
    rng: Rng,
    net: Net,
    twin: Twin,
    processes: Vec<Process>,
    intakes: Vec<Intake>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let (size, long) = (1 + rng.below(9) as usize, rng.below(4) == 0);
        let twin = Twin::new(rng.below(1 << 32), size, long);
        let all = (0..size).map(|me| Process::new(me, &twin));
        let (processes, intakes) = all.unzip();
        Self {
            rng,
            net: Net::default(),
            twin,
            processes,
            intakes,
        }
    }

    fn begin(&mut self, me: usize) {
        let mut link = Link {
            net: &mut self.net,
            me: me as u32,
        };
        let begun = self.processes[me].begin(&mut self.twin, &mut link);
        begun.unwrap();
    }

    /// Delivers a head to a process, if one can arrive.
    fn arrive_head(&mut self, me: usize) {
        let of = |key: &(u32, u32)| key.1 as usize == me;
        let heads = self.net.heads.iter_mut().filter(|(key, _)| of(key));
        let mut ready: Vec<_> = heads.filter(|(_, between)| !between.is_empty()).collect();
        if ready.is_empty() {
            return;
        }
        let chosen = self.rng.below(ready.len() as u64) as usize;
        let (key, between) = &mut ready[chosen];
        let (from, head) = (key.0, between.pop_front().unwrap());
        let it = &mut self.processes[me];
        self.intakes[me].put(from, Head::step(&head), &head);
        assert_eq!(it.exchange().heads().0.broken(), None);
        if it.ends() {
            let mut link = Link {
                net: &mut self.net,
                me: me as u32,
            };
            it.look(&mut link).unwrap();
        }
    }

    /// Delivers a part to a process, if one can arrive.
    fn arrive(&mut self, me: usize) {
        let ready: Vec<_> = (self.net.expected.keys())
            .filter(|key| key.1 as usize == me && self.net.sent.contains_key(key))
            .copied()
            .collect();
        if ready.is_empty() {
            return;
        }
        let key = ready[self.rng.below(ready.len() as u64) as usize];
        let room = self.net.expected.remove(&key).unwrap();
        let bytes = self.net.sent.remove(&key).unwrap().0.into_vec();
        let mut rest = &bytes[..];
        let mut got = Vec::new();
        for mut buffer in room.into_buffers() {
            let (now, later) = rest.split_at(buffer.len().min(rest.len()));
            buffer.as_mut_slice()[..now.len()].copy_from_slice(now);
            rest = later;
            got = buffer.into_vec().unwrap_or_default();
            got.truncate(now.len());
        }
        assert!(rest.is_empty());
        let arrived = Arrived {
            from: key.0,
            part: key.2,
            length: Some(bytes.len() as u64),
            bytes: got,
        };
        let it = &mut self.processes[me];
        let mut link = Link {
            net: &mut self.net,
            me: me as u32,
        };
        it.take(arrived, &mut link).unwrap();
    }

    /// Whether memory of a process is yet to be read.
    fn lends(&self, me: usize) -> bool {
        let mut sent = self.net.sent.iter();
        sent.any(|(key, (_, lent))| key.0 as usize == me && *lent)
    }

    fn finish(&mut self, me: usize) {
        let it = &mut self.processes[me];
        let mut link = Link {
            net: &mut self.net,
            me: me as u32,
        };
        it.finish(&self.twin, &mut link).unwrap();
        it.settle();
    }

    fn go(mut self) {
        while self.processes.iter().any(|it| it.step() < STEPS) {
            let me = self.rng.below(self.processes.len() as u64) as usize;
            let it = &self.processes[me];
            if self.rng.below(2) == 0 {
                self.arrive_head(me);
            } else if it.ends() {
                if it.exchange().is_complete() && !self.lends(me) {
                    self.finish(me);
                } else {
                    self.arrive(me);
                }
            } else if it.step() < STEPS {
                self.begin(me);
            }
        }
        assert!(self.net.sent.is_empty() && self.net.expected.is_empty());
        assert!(self.net.heads.values().all(VecDeque::is_empty));
    }
}

#[test]
fn random_programs_do_what_their_twins_do() {
    for seed in 0..400 {
        Run::new(seed).go();
    }
}

/// Process 0 of several, without calls, which is ending its superstep.
fn begun(run: &Run, link: &mut Link<'_>) -> (Intake, SuperstepExchange) {
    let (intake, heads) = heads(run.twin.size as u32);
    let mut exchange = SuperstepExchange::new(0, run.twin.size as u32, heads);
    let areas = &run.processes[0].areas;
    // SAFETY: nothing is written.
    unsafe { exchange.begin(&Common::default(), 0, areas, link) }.unwrap();
    (intake, exchange)
}

#[test]
fn a_head_that_makes_no_sense_is_refused() {
    let mut runs = (0..).map(Run::new);
    let mut run = runs.find(|run| run.twin.size > 1).unwrap();
    for seed in 0..4000 {
        let mut net = Net::default();
        let mut link = Link {
            net: &mut net,
            me: 0,
        };
        let (mut intake, mut exchange) = begun(&run, &mut link);
        for from in 1..run.twin.size as u32 {
            let log: Vec<u8> = (0..run.rng.below(40)).map(|i| (i * seed) as u8).collect();
            let (calls, data) = log.split_at(run.rng.below(log.len() as u64 + 1) as usize);
            let mut bytes = Vec::new();
            let head = Head::of((calls, data), false);
            head.write(&Common::default(), &mut bytes);
            let length = bytes.len();
            bytes.extend_from_slice(&log);
            let mut malformed = true;
            match seed % 5 {
                0 => bytes.truncate(run.rng.below(length as u64) as usize),
                1 => bytes.push(0),
                2 if !log.is_empty() => _ = bytes.pop(),
                3 => {
                    let (at, noise) = (run.rng.below(length as u64), run.rng.below(256) as u8);
                    bytes[at as usize] ^= noise;
                    malformed = false;
                }
                _ => malformed = false,
            }
            intake.put(from, Head::step(&bytes), &bytes);
            let taken = match exchange.heads().0.broken() {
                Some(who) => Err(Failure::Malformed { who }),
                None => exchange.look(&run.processes[0].areas, &mut link),
            };
            if malformed {
                assert_eq!(taken, Err(Failure::Malformed { who: from }));
            }
            if taken.is_err() {
                break;
            }
        }
    }
}
