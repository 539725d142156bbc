//! Ranks with an exchange each, and a network between them that is reliable
//! and keeps order within (sender, receiver, priority), but is slow, has little
//! room, and cuts messages into parts.

use std::collections::{BTreeMap, VecDeque};

use std::ops::Range;

use portolan_exchange::{
    Config, Did, Exchange, Incoming, IncomingOutcome, Kind, Lane, LaneTerms, Located, OpError,
    OpId, Outgoing, Payload, Place, Push, Range as MemoryRange, SendOptions, SendRefused, Signal,
    Sink, Source, Statistics, Stream, Task, Where,
};

pub mod memory;

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Memory in pieces, so that ranges are not always one slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces(pub Vec<Vec<u8>>);

impl Pieces {
    pub fn of(bytes: &[u8], rng: &mut Rng) -> Self {
        let mut rest = bytes;
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let n = if rng.chance(50) {
                rest.len()
            } else {
                1 + rng.below(rest.len() as u64) as usize
            };
            let (piece, more) = rest.split_at(n);
            pieces.push(piece.to_vec());
            rest = more;
        }
        Self(pieces)
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.0.concat()
    }

    /// The same with a hole, as of an address space: an empty piece in front, and whatever lies
    /// in [`HOLE`] is missing.
    pub fn with_hole(mut self) -> Self {
        self.0.insert(0, Vec::new());
        self
    }

    fn has(&self, at: u64, bytes: usize) -> bool {
        !self.may_lack() || !lies_in_hole(at as usize, bytes)
    }
}

/// Where memory with a hole has that.
const HOLE: Range<usize> = 700..900;

/// Whether any of these bytes would.
pub fn lies_in_hole(at: usize, bytes: usize) -> bool {
    bytes > 0 && at < HOLE.end && HOLE.start < at + bytes
}

impl Source for Pieces {
    fn len(&self) -> u64 {
        self.0.iter().map(|p| p.len() as u64).sum()
    }

    fn read(&self, at: u64, into: &mut [u8]) {
        let all = self.bytes();
        into.copy_from_slice(&all[at as usize..at as usize + into.len()]);
    }
}

impl Sink for Pieces {
    fn len(&self) -> u64 {
        Source::len(self)
    }

    fn may_lack(&self) -> bool {
        self.0.iter().any(Vec::is_empty)
    }

    fn read(&self, at: u64, into: &mut [u8]) -> bool {
        Source::read(self, at, into);
        self.has(at, into.len())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> bool {
        assert!(at + bytes.len() as u64 <= Sink::len(self));
        if !self.has(at, bytes.len()) {
            return false;
        }
        let mut places = self.0.iter_mut().flatten().skip(at as usize);
        for byte in bytes {
            *places.next().expect("within") = *byte;
        }
        true
    }

    fn slice(&mut self, at: u64, bytes: usize) -> Option<&mut [u8]> {
        match self.0.as_mut_slice() {
            [only] if !only.is_empty() => Some(&mut only[at as usize..at as usize + bytes]),
            _ => None,
        }
    }

    fn owned(bytes: Vec<u8>) -> Self {
        Self(vec![bytes])
    }

    fn into_owned(self) -> Vec<u8> {
        self.0.concat()
    }
}

/// A message on its way.
#[derive(Clone, Debug)]
pub struct Packet {
    pub kind: Kind,
    pub args: Vec<u8>,
    pub payload: Vec<u8>,
    /// The operation of the sender's whose payload it is.
    pub op: Option<OpId>,
    /// The sender's memory is read until it has arrived.
    pub lent: Option<OpId>,
    /// The receiver's number for what is arriving in parts, and how far it has.
    pub part: Option<(u64, usize)>,
}

/// Memory of a receive that its sender may write to.
#[derive(Debug)]
pub struct Published {
    pub to: u32,
    at: u64,
    pub bytes: u64,
    /// What was written, and where.
    written: Vec<(u64, Vec<u8>)>,
    /// Nobody begins to write any more.
    withdrawn: bool,
}

/// What goes wrong with memory that is published and with signals, in per cent of
/// all tries.
#[derive(Clone, Debug)]
pub struct Trouble {
    pub rng: Rng,
    /// It cannot be published.
    pub unshown: u64,
    /// It cannot be written.
    pub unwritten: u64,
    /// Somebody still writes.
    pub busy: u64,
    /// A program has no room for a signal.
    pub deaf: u64,
}

impl Default for Trouble {
    fn default() -> Self {
        Self {
            rng: Rng(0),
            unshown: 0,
            unwritten: 0,
            busy: 0,
            deaf: 0,
        }
    }
}

/// (from, to, reply).
pub type StreamKey = (u32, u32, Stream);

#[derive(Debug, Default)]
pub struct Net {
    pub ways: BTreeMap<StreamKey, VecDeque<Packet>>,
    pub room: usize,
    pub push: Push,
    /// Messages meet others' in queues.
    pub queues: bool,
    /// Ranks copy from each other's memory.
    pub direct: bool,
    /// ...but find that it is not permitted.
    pub forbidden: bool,
    pub dead: Vec<u32>,
    /// Senders wait, and help to copy.
    pub shares: bool,
    pub trouble: Trouble,
    /// Memory of receives that is published, by rank and key.
    pub published: BTreeMap<(u32, u64), Published>,
    /// Parts of messages that their senders have written.
    pub shared: usize,
    /// Memory that was given an address: by it, who and what.
    pub located: BTreeMap<u64, (u32, Vec<u8>)>,
    pub next_address: u64,
    /// Longest payload that leaves as a copy.
    pub copied: usize,
    /// Ranks put in and get from each other's regions themselves.
    pub direct_regions: bool,
    /// What came of the last such access.
    pub last_direct: Option<Result<(), OpError>>,
    /// Signals: who got which, from whom.
    pub signals: Vec<(u32, u32, Signal, u64)>,
    /// A message may begin to arrive while parts of those before it are
    /// missing.
    pub mixed: Option<Rng>,
    /// Ranges of memory that were made ready: whose, from where, how many bytes.
    pub prepared: Vec<(u32, u64, u64)>,
    /// Messages since the last look: whose, to whom, and where they wait.
    pub fresh: Vec<(u32, u32, Packet)>,
}

impl Net {
    /// Which message of a way is moved next.
    fn pick(&mut self, way: StreamKey) -> usize {
        let queue = self.ways.entry(way).or_default();
        let begun = queue.iter().take_while(|p| p.part.is_some()).count();
        match &mut self.mixed {
            Some(rng) => rng.below((begun as u64 + 1).min(queue.len() as u64)) as usize,
            None => 0,
        }
    }
}

pub type Rank = Exchange<Pieces, Pieces>;

/// Ports from here on do not exist.
pub const PORTS: u32 = 8;

pub struct At<'a> {
    pub net: &'a mut Net,
    pub rank: u32,
    /// All ranks; in the place of this one nothing.
    pub others: &'a mut [Rank],
}

fn words(args: &[u64]) -> Vec<u8> {
    args.iter().flat_map(|w| w.to_le_bytes()).collect()
}

fn read(bytes: u64, read: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut all = vec![0; bytes as usize];
    read(&mut all);
    all
}

impl At<'_> {
    /// Does what an exchange wants to be done.
    pub fn act(&mut self, task: Task<'_, Pieces, Pieces>) -> Did {
        match task {
            Task::Locate(_, source) => {
                if !self.net.direct {
                    return Did::NotPossible;
                }
                self.net.next_address += 1 << 40;
                let address = self.net.next_address;
                let shares = self.net.shares;
                (self.net.located).insert(address, (self.rank, source.bytes()));
                Did::Located(Located { address, shares })
            }
            Task::Send(to, message) => self.send(to, &message),
            Task::Signal(from, signal, bytes) => self.signal(from, signal, bytes),
            Task::Prepare(MemoryRange { of, at, bytes }) => {
                assert!(at + bytes <= Sink::len(of));
                self.net.prepared.push((self.rank, at, bytes));
                Did::Done
            }
            Task::Publish(to, key, memory) => self.publish(to, key, &memory),
            Task::Withdraw(key, memory) => self.withdraw(key, memory),
            Task::CopyFrom(from, Where::Address(address), memory) => {
                self.fetch(from, address, memory)
            }
            Task::CopyFrom(from, Where::Region(place), MemoryRange { of, bytes, .. }) => {
                match self.direct(from, Kind::Get, &place, &[], bytes) {
                    Ok(bytes) => assert!(of.write(0, &bytes)),
                    Err(did) => return did,
                }
                Did::Done
            }
            Task::CopyTo(to, Where::Published(key), memory) => self.write(to, key, &memory),
            Task::CopyTo(to, Where::Region(place), memory) => {
                let done = self.direct(to, Kind::Put, &place, &memory.of.bytes(), 0);
                done.map_or_else(|did| did, |_| Did::Done)
            }
            Task::CopyFrom(..) | Task::CopyTo(..) => panic!("{task:?}"),
        }
    }

    fn send(&mut self, to: u32, m: &Outgoing<'_, Pieces, Pieces>) -> Did {
        if self.net.dead.contains(&to) {
            return Did::Dead;
        }
        let (payload, op) = match &m.payload {
            Payload::Nothing => (Vec::new(), None),
            Payload::Source(MemoryRange { of, at, bytes }) => (
                read(*bytes, |into| Source::read(*of, *at, into)),
                Some(m.op),
            ),
            Payload::Bytes(bytes) => (bytes.to_vec(), Some(m.op)),
            Payload::Region(MemoryRange { of, at, bytes }) => {
                let told = |into: &mut [u8]| assert!(Sink::read(*of, *at, into));
                (read(*bytes, told), Some(m.op))
            }
        };
        let lent = op.filter(|_| payload.len() > self.net.copied);
        let packet = Packet {
            kind: m.kind,
            args: words(m.args()),
            payload,
            op,
            lent,
            part: None,
        };
        let way = (self.rank, to, packet.kind.stream());
        let queue = self.net.ways.entry(way).or_default();
        if queue.len() >= self.net.room {
            return Did::NoRoom;
        }
        if packet.kind.is_one_sided() {
            self.net.fresh.push((self.rank, to, packet.clone()));
        }
        queue.push_back(packet);
        if lent.is_some() { Did::Lent } else { Did::Done }
    }

    fn signal(&mut self, from: u32, signal: Signal, bytes: u64) -> Did {
        assert!(signal.port < PORTS);
        let trouble = &mut self.net.trouble;
        if trouble.rng.chance(trouble.deaf) {
            return Did::NoRoom;
        }
        self.net.signals.push((self.rank, from, signal, bytes));
        Did::Done
    }

    fn publish(&mut self, to: u32, key: u64, memory: &MemoryRange<&mut Pieces>) -> Did {
        let trouble = &mut self.net.trouble;
        if !self.net.shares || trouble.rng.chance(trouble.unshown) {
            return Did::NotPossible;
        }
        let &MemoryRange { ref of, at, bytes } = memory;
        assert!(key != 0 && bytes > 0 && at + bytes <= Sink::len(*of));
        let published = Published {
            to,
            at,
            bytes,
            written: Vec::new(),
            withdrawn: false,
        };
        let before = self.net.published.insert((self.rank, key), published);
        assert!(before.is_none());
        Did::Done
    }

    fn withdraw(&mut self, key: u64, sink: &mut Pieces) -> Did {
        let key = (self.rank, key);
        let published = self.net.published.get_mut(&key).expect("it is published");
        published.withdrawn = true;
        let trouble = &mut self.net.trouble;
        if trouble.rng.chance(trouble.busy) {
            return Did::NoRoom;
        }
        for (at, bytes) in &published.written {
            sink.write(published.at + at, bytes);
        }
        self.net.published.remove(&key);
        Did::Done
    }

    fn write(&mut self, to: u32, key: u64, memory: &MemoryRange<&Pieces>) -> Did {
        let trouble = &mut self.net.trouble;
        if self.net.dead.contains(&to) || trouble.rng.chance(trouble.unwritten) {
            return Did::NotPossible;
        }
        let &MemoryRange { of, at, bytes } = memory;
        let published = self.net.published.get_mut(&(to, key));
        let Some(published) = published.filter(|it| !it.withdrawn) else {
            return Did::Refused(OpError::BadKey);
        };
        if bytes > published.bytes {
            return Did::Refused(OpError::OutOfBounds);
        }
        assert_eq!(published.to, self.rank);
        let part = read(bytes, |into| Source::read(of, at, into));
        published.written.push((0, part));
        self.net.shared += 1;
        Did::Done
    }

    fn fetch(&mut self, from: u32, address: u64, memory: MemoryRange<&mut Pieces>) -> Did {
        if self.net.forbidden {
            return Did::NotPossible;
        }
        if self.net.dead.contains(&from) {
            return Did::Dead;
        }
        let mut known = self.net.located.range(..=address);
        let (base, (owner, bytes)) = known.next_back().expect("it was given");
        assert_eq!(*owner, from);
        let start = (address - base) as usize;
        let bytes = &bytes[start..start + memory.bytes as usize];
        memory.of.write(memory.at, bytes);
        Did::Done
    }
}

impl At<'_> {
    /// An access by our own hand: what the target would do, at once.
    fn direct(
        &mut self,
        to: u32,
        kind: Kind,
        place: &Place,
        payload: &[u8],
        bytes: u64,
    ) -> Result<Vec<u8>, Did> {
        let target = &mut self.others[to as usize];
        if !self.net.direct_regions || self.net.dead.contains(&to) || target.has_backlog() {
            return Err(Did::NotPossible);
        }
        let key = u128::from_le_bytes(place.key.to_bytes());
        let (low, high) = (key as u64, (key >> 64) as u64);
        let args = match kind {
            Kind::Put => words(&[low, high, place.offset, 1]),
            _ => words(&[low, high, place.offset, bytes, 1, 0, bytes]),
        };
        let incoming = Incoming {
            from: self.rank,
            kind,
            args: &args,
            total: payload.len() as u64,
            payload,
        };
        // What it answers goes nowhere but to us.
        let mut net = Net {
            room: 1,
            copied: usize::MAX,
            ..Net::default()
        };
        let mut at = At {
            net: &mut net,
            rank: to,
            others: &mut [],
        };
        if target.arrive(&incoming) != IncomingOutcome::Whole {
            return Err(Did::NotPossible);
        }
        run(target, &mut at);
        let (_, _, answer) = net.fresh.pop().expect("it answers");
        let status = match (answer.kind, answer.args.get(8)) {
            (Kind::Result, Some(status)) => *status,
            _ => 0,
        };
        let result = match status {
            0 => Ok(()),
            1 => Err(OpError::BadKey),
            2 => Err(OpError::NotPermitted),
            3 => Err(OpError::OutOfBounds),
            _ => panic!("{answer:?}"),
        };
        self.net.last_direct = Some(result);
        result.map_err(Did::Refused)?;
        Ok(answer.payload)
    }
}

/// Does all that an exchange wants to be done.
fn run(x: &mut Rank, at: &mut At<'_>) {
    while let Some(task) = x.poll_task() {
        let did = at.act(task);
        x.did(did);
    }
}

pub struct Cluster {
    pub net: Net,
    pub ranks: Vec<Rank>,
}

impl Cluster {
    pub fn new(size: u32, config: &Config, net: Net) -> Self {
        let terms = LaneTerms {
            push: net.push,
            queues: net.queues,
            direct: true,
            ..LaneTerms::default()
        };
        let of = |rank| {
            let mut x = Exchange::new(Config {
                rank,
                size,
                lanes: [terms; 2],
                ports: PORTS,
                ..*config
            });
            for other in (0..size).filter(|other| *other != rank) {
                x.set_lane(other, Lane::Network);
            }
            x
        };
        Self {
            net,
            ranks: (0..size).map(of).collect(),
        }
    }

    /// Lets a rank do something, and then does what its exchange wants to be done.
    pub fn with<R>(&mut self, rank: u32, act: impl FnOnce(&mut Rank) -> R) -> R {
        let nothing = Exchange::new(Config::default());
        let mut x = std::mem::replace(&mut self.ranks[rank as usize], nothing);
        let mut at = At {
            net: &mut self.net,
            rank,
            others: &mut self.ranks,
        };
        let result = act(&mut x);
        run(&mut x, &mut at);
        self.ranks[rank as usize] = x;
        result
    }

    /// Begins a send.
    pub fn post_send(
        &mut self,
        rank: u32,
        to: u32,
        tag: u64,
        options: &SendOptions,
        source: Pieces,
    ) -> Result<OpId, (SendRefused, Pieces)> {
        self.with(rank, |x| x.post_send(to, tag, options, source))
    }

    /// Nothing is under way with a rank any more, and nothing awaited.
    pub fn is_idle(&self, rank: u32) {
        let x = &self.ranks[rank as usize];
        assert_eq!(x.statistics(), Statistics::default(), "rank {rank}");
        assert!((0..self.ranks.len() as u32).all(|other| !x.awaits(other)));
    }

    /// Changes how all push.
    pub fn set_push(&mut self, push: Push) {
        self.net.push = push;
        for rank in 0..self.ranks.len() as u32 {
            self.with(rank, |x| x.set_pushes([push; 2]));
        }
    }

    /// Ways with something on them.
    pub fn busy(&self) -> Vec<StreamKey> {
        let ways = self.net.ways.iter();
        ways.filter(|(_, q)| !q.is_empty())
            .map(|(w, _)| *w)
            .collect()
    }

    /// Moves a message of a way, or a part of it. Tells of what has
    /// arrived of a message: which bytes. False if it was not taken.
    pub fn carry(
        &mut self,
        way: StreamKey,
        cut: usize,
        mut seen: impl FnMut(&Packet, Range<usize>),
    ) -> bool {
        let (from, to, _) = way;
        let index = self.net.pick(way);
        let queue = self.net.ways.entry(way).or_default();
        let Some(mut packet) = queue.remove(index) else {
            return false;
        };
        let total = packet.payload.len();
        let mut done = true;
        match packet.part {
            None => {
                // Those fit one packet.
                let is_one = matches!(packet.kind, Kind::Atomic | Kind::Result);
                let first = if total > cut && !is_one { cut } else { total };
                let incoming = Incoming {
                    from,
                    kind: packet.kind,
                    args: &packet.args,
                    total: total as u64,
                    payload: &packet.payload[..first],
                };
                match self.with(to, |x| x.arrive(&incoming)) {
                    IncomingOutcome::NotNow => {
                        let queue = self.net.ways.entry(way).or_default();
                        queue.insert(index, packet);
                        return false;
                    }
                    IncomingOutcome::Part(number) => {
                        assert!(first < total);
                        packet.part = Some((number, first));
                        done = false;
                        seen(&packet, 0..first);
                    }
                    IncomingOutcome::Whole => {
                        assert_eq!(first, total);
                        seen(&packet, 0..first);
                    }
                    IncomingOutcome::Refused => assert!(!packet.kind.is_one_sided(), "{packet:?}"),
                }
            }
            Some((number, at)) => {
                let n = cut.min(total - at);
                let bytes = &packet.payload[at..at + n];
                let x = &mut self.ranks[to as usize];
                match x.room(number, at as u64, n) {
                    Some(room) => room.copy_from_slice(bytes),
                    None => x.write_part(number, at as u64, bytes),
                }
                seen(&packet, at..at + n);
                packet.part = Some((number, at + n));
                done = at + n == total;
                if done {
                    self.with(to, |x| x.arrived(number));
                }
            }
        }
        if !done {
            let queue = self.net.ways.entry(way).or_default();
            queue.insert(index, packet);
        } else if let Some(op) = packet.lent {
            self.ranks[from as usize].released(op);
        }
        self.with(from, |x| x.resume());
        self.with(to, |x| x.resume());
        true
    }

    /// A rank dies: what is on its way from it is lost, others are told.
    pub fn kill(&mut self, rank: u32) {
        self.net.dead.push(rank);
        let size = self.ranks.len() as u32;
        let ways: Vec<StreamKey> = self.net.ways.keys().copied().collect();
        for way in ways {
            if way.0 == rank || way.1 == rank {
                for packet in self.net.ways.remove(&way).into_iter().flatten() {
                    if let Some(op) = packet.lent {
                        self.ranks[way.0 as usize].released(op);
                    }
                }
            }
        }
        for other in (0..size).filter(|other| *other != rank) {
            if !self.net.dead.contains(&other) {
                self.with(other, |x| x.peer_died(rank));
            }
        }
    }
}
