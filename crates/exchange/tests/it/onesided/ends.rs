//! Ends: what is taken, killed, drained.

use portolan_exchange::{Memory, OpError, Place};

use crate::onesided::run::{Answer, Run, What};

impl Run {
    pub fn reap(&mut self) {
        let open = std::mem::take(&mut self.open);
        for (rank, op) in open {
            if self.cluster.net.dead.contains(&rank) {
                continue;
            }
            let Some((done, memory)) = self.cluster.ranks[rank as usize].take(op) else {
                self.open.push((rank, op));
                continue;
            };
            let begun = &self.ops[&(rank, op)];
            assert_eq!(done.peer, begun.to);
            match (&begun.what, memory) {
                (What::Put { bytes, .. }, Some(Memory::Source(source))) => {
                    assert_eq!(source.bytes(), *bytes);
                }
                (What::Get(bytes), Some(Memory::Sink(sink))) => {
                    assert_eq!(sink.bytes().len(), *bytes);
                    if done.result.is_ok() {
                        assert_eq!(sink.bytes(), begun.got);
                    }
                }
                (What::Change(it), Some(Memory::Sink(sink))) => {
                    assert!(it.fetching);
                    if done.result.is_ok() {
                        assert_eq!(sink.bytes(), begun.got, "{it:?}");
                    }
                }
                (What::Change(it), None) if !it.fetching => {}
                (What::Add(_) | What::Swap(..) | What::Flush, None) => {}
                (what, memory) => panic!("{what:?} gave back {memory:?}"),
            }
            if done.result == Err(OpError::Cancelled) || begun.cancelled {
                assert!(begun.cancelled && done.result.is_err());
                continue;
            }
            if done.result == Err(OpError::PeerDead) {
                assert!(self.cluster.net.dead.contains(&begun.to));
                continue;
            }
            let due = match begun.what {
                // It may have ended before anything arrived.
                What::Put { local: true, .. } => begun.result.or(Some(Ok(()))),
                What::Flush => {
                    self.all_before(rank, op);
                    begun.result.or(Some(Ok(())))
                }
                _ => {
                    assert!(begun.landed, "{begun:?}");
                    begun.result.or(Some(Ok(())))
                }
            };
            assert_eq!(Some(done.result), due, "{begun:?}");
            if let What::Put {
                signal: Some(signal),
                local: false,
                ..
            } = &begun.what
                && done.result.is_ok()
            {
                let mut heard = self.cluster.net.signals.iter();
                assert!(heard.any(|(.., it, _)| it == signal));
            }
            assert_eq!(done.data, begun.found);
            let name = match done.result {
                Ok(()) => "done",
                Err(OpError::BadKey) => "key",
                Err(OpError::NotPermitted) => "rights",
                Err(OpError::OutOfBounds) => "bounds",
                Err(OpError::Unaligned) => "alignment",
                Err(OpError::NoPort) => "port",
                Err(why) => panic!("{why}"),
            };
            *self.ended.entry(name).or_default() += 1;
        }
    }

    pub fn cancel(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let (rank, op) = self.open[self.rng.below(self.open.len() as u64) as usize];
        if self.cluster.ranks[rank as usize].cancel(op) {
            let begun = self.ops.get_mut(&(rank, op)).expect("begun");
            assert!(!begun.landed);
            begun.cancelled = true;
        }
    }

    pub fn kill(&mut self, rank: u32) {
        self.cluster.kill(rank);
        let plain = &mut self.plain;
        self.parts.retain(|(way, _), (region, ..)| {
            if way.0 == rank {
                plain.regions[*region].uses -= 1;
            }
            way.0 != rank
        });
        self.served.retain(|name, answer| {
            if let (true, Answer::Later(region, ..)) = (name.0 == rank, &answer) {
                plain.regions[*region].uses -= 1;
            }
            name.0 != rank
        });
        self.look();
    }

    pub fn compare(&self) {
        for region in self.plain.regions.iter().filter(|r| !r.gone) {
            if self.cluster.net.dead.contains(&region.rank) {
                continue;
            }
            let x = &self.cluster.ranks[region.rank as usize];
            let memory = x.region_memory(region.id).expect("registered");
            assert_eq!(memory.bytes(), self.plain.memories[region.memory]);
        }
    }

    pub fn drain(&mut self) {
        for rank in self.alive() {
            for to in self.alive() {
                self.begin_as(rank, to, What::Flush, Place::default());
            }
        }
        self.cluster.net.trouble.deaf /= 2;
        for turn in 0.. {
            assert!(turn < 10_000, "it does not come to an end");
            while self.carry() && self.rng.chance(99) {}
            for rank in self.alive() {
                self.cluster.with(rank, |x| x.resume());
            }
            self.look();
            self.reap();
            let over = self.open.is_empty() && self.cluster.busy().is_empty();
            if over && self.signals_agree() == 0 {
                break;
            }
        }
        self.compare();
        let alive = self.alive();
        for at in 0..self.plain.regions.len() {
            while !self.plain.regions[at].gone && alive.contains(&self.plain.regions[at].rank) {
                self.deregister(at);
            }
        }
        for rank in alive {
            self.cluster.is_idle(rank);
        }
        self.signals = self.told.len();
    }
}
