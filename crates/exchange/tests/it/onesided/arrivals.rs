//! What has arrived, beside plain bytes.

use portolan_exchange::{Kind, OpError, OpId, Place, Rights};

use crate::common::{PORTS, Packet, StreamKey};
use crate::onesided::run::{Answer, Begun, Run, What};

fn word(packet: &Packet, index: usize) -> u64 {
    let bytes = packet.args.get(8 * index..8 * index + 8);
    bytes.map_or(0, |b| u64::from_le_bytes(b.try_into().expect("8 bytes")))
}

impl Run {
    /// What needs no messages.
    pub fn at_once(&mut self, rank: u32, op: OpId) {
        self.passes_fences(rank, op);
        let Begun {
            to, what, place, ..
        } = self.ops[&(rank, op)].clone();
        let (key, offset) = (place.key, place.offset);
        let plain = &mut self.plain;
        let (mut found, mut got) = (None, Vec::new());
        let result = match what {
            What::Put { bytes, .. } => plain
                .check(to, key, offset, bytes.len() as u64, Rights::Put)
                .and_then(|(region, at)| {
                    plain.lacks(region, at, bytes.len())?;
                    plain.write(region, at, &bytes);
                    Ok(())
                }),
            What::Get(bytes) => plain
                .check(to, key, offset, bytes as u64, Rights::Get)
                .and_then(|(region, at)| {
                    plain.lacks(region, at, bytes)?;
                    got = plain.read(region, at, bytes).to_vec();
                    Ok(())
                }),
            What::Add(_) | What::Swap(..) => {
                let new = |old: &[u8]| {
                    let old = u64::from_le_bytes(old.try_into().expect("8 bytes"));
                    let new = match what {
                        What::Add(add) => old.wrapping_add(add),
                        What::Swap(expected, new) if old == expected => new,
                        _ => old,
                    };
                    new.to_le_bytes().to_vec()
                };
                let old = plain.change(to, place, 8, Rights::Both, 8, new);
                old.map(|old| found = old.try_into().ok().map(u64::from_le_bytes))
            }
            What::Change(it) => {
                let new = |old: &[u8]| it.after(old);
                plain
                    .change(to, place, it.bytes(), it.rights(), it.aligned(), new)
                    .map(|old| {
                        found = it.data(&old);
                        got = old;
                    })
            }
            What::Flush => Ok(()),
        };
        let begun = self.ops.get_mut(&(rank, op)).expect("begun");
        begun.result = Some(result);
        begun.landed = true;
        begun.found = found;
        begun.got = got;
    }

    /// An operation is executed: all behind the last fence before it were.
    pub fn passes_fences(&self, rank: u32, op: OpId) {
        let this = &self.ops[&(rank, op)];
        for before in &self.order[&(rank, this.to)] {
            let other = &self.ops[&(rank, *before)];
            if other.epoch < this.epoch && !matches!(other.what, What::Flush) {
                assert!(other.landed || other.cancelled, "{other:?} before {this:?}");
            }
        }
    }

    /// All puts and atomics begun before an operation are done.
    pub fn all_before(&self, rank: u32, op: OpId) {
        let this = &self.ops[&(rank, op)];
        for before in self.order[&(rank, this.to)]
            .iter()
            .take_while(|o| **o != op)
        {
            let other = &self.ops[&(rank, *before)];
            if !matches!(other.what, What::Get(_) | What::Flush) {
                assert!(other.landed || other.cancelled, "{other:?} before {this:?}");
            }
        }
    }

    /// Answers to gets that have just left: their bytes were read now.
    pub fn look(&mut self) {
        for (_, to, packet) in std::mem::take(&mut self.cluster.net.fresh) {
            if packet.kind != Kind::Got {
                continue;
            }
            let name = (to, word(&packet, 0), word(&packet, 1));
            let due = match &self.served[&name] {
                Answer::Later(region, at, bytes) => self.plain.read(*region, *at, *bytes),
                Answer::Now(bytes) => bytes,
            };
            assert_eq!(packet.payload, due);
            let begun = self.ops.get_mut(&(to, OpId(name.1))).expect("begun");
            // A part of it may have been refused before.
            if begun.result.is_none() {
                assert_eq!(begun.got.len() as u64, name.2);
                begun.got.extend_from_slice(&packet.payload);
                if let What::Get(total) = begun.what {
                    begun.landed = begun.got.len() == total;
                }
            }
            if packet.lent.is_none() {
                self.answered(name);
            }
        }
    }

    /// The region of an answer is not read any more.
    fn answered(&mut self, name: (u32, u64, u64)) {
        if let Some(Answer::Later(region, ..)) = self.served.remove(&name) {
            self.plain.regions[region].uses -= 1;
        }
    }

    pub fn carry(&mut self) -> bool {
        let busy = self.cluster.busy();
        if busy.is_empty() {
            return false;
        }
        let way = busy[self.rng.below(busy.len() as u64) as usize];
        let cut = 64 * (1 + self.rng.below(20) as usize);
        let mut seen = None;
        self.cluster.carry(way, cut, |packet, bytes| {
            seen = Some((packet.clone(), bytes));
        });
        if let Some((packet, bytes)) = seen {
            match packet.kind {
                Kind::Put => self.put_arrives(way, &packet, bytes),
                Kind::Get => self.get_arrives(way, &packet),
                Kind::Got if bytes.end == packet.payload.len() => {
                    let name = (way.1, word(&packet, 0), word(&packet, 1));
                    self.answered(name);
                }
                Kind::Atomic => {
                    let op = OpId(word(&packet, 3));
                    self.at_once(way.0, op);
                }
                Kind::Flush => {
                    let op = OpId(word(&packet, 0));
                    self.passes_fences(way.0, op);
                    self.all_before(way.0, op);
                    let begun = self.ops.get_mut(&(way.0, op)).expect("begun");
                    begun.landed = true;
                    begun.result = Some(self.faults.take(way.0, way.1));
                }
                _ => {}
            }
        }
        self.look();
        true
    }

    pub fn put_arrives(&mut self, way: StreamKey, packet: &Packet, bytes: std::ops::Range<usize>) {
        let (from, to, _) = way;
        let op = packet.op.expect("of a put");
        let whole = bytes.end == packet.payload.len();
        let begun = &self.ops[&(from, op)];
        let What::Put {
            bytes: all,
            signal,
            local,
        } = begun.what.clone()
        else {
            panic!("{begun:?}");
        };
        if bytes.start == 0 {
            self.passes_fences(from, op);
            let Place { key, offset } = begun.place;
            let checked = (self.plain).check(to, key, offset, all.len() as u64, Rights::Put);
            let ported = checked.and_then(|(region, at)| match signal {
                Some(signal) if signal.port >= PORTS => Err(OpError::NoPort),
                _ => {
                    self.plain.lacks(region, at, bytes.end)?;
                    Ok((region, at))
                }
            });
            match ported {
                Ok((region, at)) => {
                    self.parts.insert((way, op), (region, at, false));
                    self.plain.regions[region].uses += 1;
                }
                Err(why) => {
                    let begun = self.ops.get_mut(&(from, op)).expect("begun");
                    begun.landed = true;
                    begun.result = Some(if local { Ok(()) } else { Err(why) });
                    if local {
                        self.faults.note(from, to, why);
                    }
                }
            }
        }
        if let Some((region, at, lacks)) = self.parts.get_mut(&(way, op)) {
            let (region, place, len) = (*region, *at + bytes.start, bytes.len());
            match self.plain.lacks(region, place, len) {
                Ok(()) => (self.plain).write(region, place, &packet.payload[bytes]),
                Err(_) => *lacks = true,
            }
            let lacks = *lacks;
            if whole {
                self.parts.remove(&(way, op));
                self.plain.regions[region].uses -= 1;
                let begun = self.ops.get_mut(&(from, op)).expect("begun");
                begun.landed = true;
                let why = OpError::OutOfBounds;
                begun.result = Some(if lacks && !local { Err(why) } else { Ok(()) });
                if lacks && local {
                    self.faults.note(from, to, why);
                }
                if let Some(signal) = signal.filter(|_| !lacks) {
                    self.told.push((to, from, signal, all.len() as u64));
                }
            }
        }
        self.signals_agree();
    }

    /// Each program has heard the signals of each rank in order, as far as it has;
    /// tells how many there are to come.
    pub fn signals_agree(&self) -> usize {
        let alive = self.alive();
        let mut missing = 0;
        for whose in alive {
            for from in 0..self.cluster.ranks.len() as u32 {
                let mut heard = (self.cluster.net.signals.iter())
                    .filter(|signal| (signal.0, signal.1) == (whose, from));
                for told in (self.told.iter()).filter(|it| (it.0, it.1) == (whose, from)) {
                    match heard.next() {
                        Some(signal) => assert_eq!(signal, told),
                        None => missing += 1,
                    }
                }
                assert_eq!(heard.next(), None);
            }
        }
        missing
    }

    pub fn get_arrives(&mut self, way: StreamKey, packet: &Packet) {
        let (from, to, _) = way;
        let op = OpId(word(packet, 4));
        self.passes_fences(from, op);
        let begun = self.ops.get_mut(&(from, op)).expect("begun");
        let What::Get(total) = begun.what else {
            panic!("{begun:?}");
        };
        let Place { key, offset } = begun.place;
        let (skip, bytes) = (word(packet, 5), (word(packet, 6) & !(1 << 63)) as usize);
        let checked = (self.plain).check(to, key, offset, total as u64, Rights::Get);
        let there = checked.and_then(|(region, at)| {
            let at = at + skip as usize;
            self.plain.lacks(region, at, bytes)?;
            Ok((region, at))
        });
        match there {
            Err(why) => {
                begun.landed = true;
                begun.result.get_or_insert(Err(why));
            }
            Ok((region, at)) => {
                let holed = self
                    .plain
                    .holes
                    .contains(&self.plain.regions[region].memory);
                let answer = if holed {
                    Answer::Now(self.plain.read(region, at, bytes).to_vec())
                } else {
                    self.plain.regions[region].uses += 1;
                    Answer::Later(region, at, bytes)
                };
                self.served.insert((from, op.0, skip), answer);
            }
        }
    }
}
