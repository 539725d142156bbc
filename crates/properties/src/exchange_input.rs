//! An exchange whose peers say what they like, while its program sends,
//! receives, reaches into their memory and lets them reach into its own, and
//! while peers die and come back.
//!
//! Never a panic. Of the program's memory nothing is touched, and nothing told,
//! but what is received in or permitted, and a receive from one peer holds no
//! byte of another's. What peers can have kept is bounded. What one says ends
//! nothing that is another's. When all are dead, or the endpoint is closed,
//! every operation has ended and all memory is back.

mod end;
mod host;
mod peer;
mod program;

use portolan_exchange::{
    Completion, Config, Exchange, LaneTerms, MessageId, OpError, OpId, Push, RegionId,
};

use crate::input::Input;
use host::{Bytes, Carrier, FILL, PORTS, SIZE, Use, mark};
use peer::Part;

/// Steps of one run, at most.
const STEPS: usize = 400;
/// What a peer may have kept.
const SHARE: u64 = 8 << 10;
const OFFERS: u32 = 6;
const ACCESSES: u32 = 4;
const REGIONS: u32 = 8;
/// A kept message of a peer's is charged at least so much, or counts as an offer.
const LEAST: u64 = 128;

/// An operation of the program's.
#[derive(Clone, Copy, Debug)]
struct Op {
    id: OpId,
    /// Whom it depends on, if not on anybody.
    with: Option<u32>,
}

struct Run<'a> {
    input: Input<'a>,
    exchange: Exchange<Bytes, Bytes>,
    carrier: Carrier,
    ops: Vec<Op>,
    /// Those whose end nobody asks for.
    forgotten: Vec<OpId>,
    claimed: Vec<MessageId>,
    /// Registered regions, with the number of their memory.
    regions: Vec<(RegionId, usize)>,
    /// Keys and salts that peers know.
    keys: Vec<u64>,
    parts: Vec<Part>,
    /// Bytes of a payload came where they should not, or not all.
    wild: bool,
    /// A peer said that it has written to memory that it was published.
    lied: bool,
    /// It has begun to close.
    refuses: bool,
    dead: [bool; SIZE],
    /// Largest window of pulls so far, and longest part.
    window: u64,
    chunk: u64,
}

/// Reads a fuzzer's bytes as settings and steps, and takes them.
pub fn exchange_input(bytes: &[u8]) {
    let mut run = Run::new(bytes);
    for _ in 0..STEPS {
        if run.input.is_empty() {
            break;
        }
        run.step();
        run.work();
        run.is_bounded();
    }
    run.end();
}

impl<'a> Run<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let mut input = Input(bytes);
        let (a, b, c) = (input.byte(), input.byte(), input.byte());
        let push = Push {
            whole: [0, 100, 1_000, u64::MAX][usize::from(b >> 2 & 3)],
            first: 50 * u64::from(b >> 4 & 3),
            second: 150 * u64::from(b >> 6),
            overlap: c & 1 != 0,
            masking: c & 2 != 0,
        };
        let terms = LaneTerms {
            push,
            queues: true,
            direct: true,
            ..LaneTerms::default()
        };
        let config = Config {
            size: SIZE as u32,
            secret: [3, 5],
            pushed_bytes: 2 * SHARE,
            pushed_share: Some(SHARE),
            offers_max: OFFERS,
            pull_window: 1 + 199 * u64::from(a & 15),
            pull_chunk: 1 + 50 * u64::from(a >> 4),
            share_min: 256,
            regions_max: REGIONS,
            accesses_max: ACCESSES,
            lanes: [terms; 2],
            ports: PORTS,
            ..Config::default()
        };
        let carrier = Carrier {
            room: usize::MAX,
            copied: 64 * u64::from(b & 3),
            located: c & 4 != 0,
            shares: c & 8 != 0,
            fetches: (c >> 4) % 3,
            directs: (c >> 6) % 3,
            ..Carrier::default()
        };
        let mut run = Self {
            input,
            window: config.pull_window,
            chunk: config.pull_chunk,
            exchange: Exchange::new(config),
            carrier,
            ops: Vec::new(),
            forgotten: Vec::new(),
            claimed: Vec::new(),
            regions: Vec::new(),
            keys: Vec::new(),
            parts: Vec::new(),
            wild: false,
            lied: false,
            refuses: false,
            dead: [false; SIZE],
        };
        run.register_all();
        run
    }

    fn step(&mut self) {
        let choice = self.input.byte();
        let from = 1 + u32::from(choice >> 7);
        match choice & 31 {
            0..=6 => self.say_anything(from),
            7..=11 => self.answer(from),
            12..=14 => self.part(),
            15..=25 => self.program(choice & 31),
            26 => {
                // Mostly enough, so that much goes on.
                let room = self.input.byte();
                self.carrier.room = if room < 64 { room.into() } else { usize::MAX };
                self.carrier.busy = room >> 6;
                self.carrier.deaf = room & 3;
                self.exchange.resume();
            }
            27 | 28 => self.release(),
            29 => {
                self.carrier.directs = self.input.byte() % 3;
                if let Some((memory, at, bytes)) = self.exchange.next_unready() {
                    memory.range(at, bytes);
                }
            }
            30 => self.carrier.doomed[from as usize] |= self.input.byte() < 32,
            _ => match self.input.byte() {
                0..24 => self.die(from),
                24..96 if self.dead[from as usize] => {
                    self.exchange.peer_back(from);
                    self.dead[from as usize] = false;
                    self.carrier.doomed[from as usize] = false;
                    self.carrier.heard[from as usize].clear();
                }
                96..128 => {
                    let stranger = self.input.byte() & 1 != 0;
                    self.exchange.peer_closes(from, stranger);
                }
                128..134 => {
                    // The program receives nothing more.
                    self.refuses = true;
                    self.claimed.clear();
                    self.exchange.refuse_offers();
                }
                _ => {
                    self.exchange.take_freed();
                }
            },
        }
    }

    /// Does all that the exchange wants to be done.
    fn work(&mut self) {
        while let Some(task) = self.exchange.poll_task() {
            let did = self.carrier.act(task);
            self.exchange.did(did);
        }
    }

    /// A message's memory is read no more.
    fn release(&mut self) {
        let choice = usize::from(self.input.byte());
        if !self.carrier.lent.is_empty() {
            let at = choice % self.carrier.lent.len();
            let op = self.carrier.lent.swap_remove(at);
            self.exchange.released(op);
        }
    }

    fn die(&mut self, rank: u32) {
        self.exchange.peer_died(rank);
        self.dead[rank as usize] = true;
        // What had begun to arrive does not go on.
        self.parts.retain(|part| part.from != rank);
        self.work();
        assert!(
            !self.exchange.awaits(rank)
                || !self.carrier.lent.is_empty()
                || !self.carrier.published.is_empty()
        );
    }

    /// Operations with others than this peer, that go on.
    fn others_than(&self, rank: u32) -> Vec<OpId> {
        let others = self
            .ops
            .iter()
            .filter(|op| op.with.is_some_and(|with| with != rank));
        others
            .map(|op| op.id)
            .filter(|id| self.exchange.is_done(*id) == Some(false))
            .collect()
    }

    /// They go on still.
    fn go_on_with(&self, others: &[OpId]) {
        for id in others {
            assert_eq!(self.exchange.is_done(*id), Some(false), "{id:?}");
        }
    }

    /// What peers have made us hold.
    fn is_bounded(&self) {
        let peers = SIZE as u64 - 1;
        let statistics = self.exchange.statistics();
        let (lent, claimed) = (self.carrier.lent.len() as u64, self.claimed.len() as u64);
        let operations = statistics.operations as u64;
        assert!(
            statistics.pushed_bytes <= SIZE as u64 * SHARE,
            "{statistics:?}"
        );
        assert!(
            statistics.accesses <= peers * u64::from(ACCESSES) + lent,
            "{statistics:?}"
        );
        let kept = peers * (u64::from(OFFERS) + SHARE / LEAST);
        // Our own to ourselves are there as well.
        let messages = kept + SHARE / LEAST + operations + claimed;
        assert!(statistics.messages as u64 <= messages, "{statistics:?}");
        assert!(
            statistics.second_pushes as u64 <= kept + operations,
            "{statistics:?}"
        );
        let parts = 2 * (kept + operations) + peers * u64::from(ACCESSES);
        assert!(
            statistics.parts as u64 <= parts + statistics.pulled_bytes,
            "{statistics:?}"
        );
        let pulled = peers.saturating_mul(self.window.saturating_add(self.chunk));
        assert!(statistics.pulled_bytes <= pulled, "{statistics:?}");
        assert!(statistics.backlogs < SIZE + 1 && statistics.unflushed < SIZE);
    }

    /// Memory that comes back from an operation is as the program expects it.
    fn check(&self, done: &Completion, memory: Option<portolan_exchange::Memory<Bytes, Bytes>>) {
        use portolan_exchange::{Action, Memory};
        match memory {
            Some(Memory::Source(source)) => {
                assert!(source.bytes.iter().all(|byte| *byte == mark(0)), "{done:?}");
            }
            Some(Memory::Sink(sink)) => self.check_sink(done, &sink),
            None => assert!(
                !matches!(
                    done.action,
                    Action::Send | Action::Receive | Action::Put | Action::Get
                ),
                "{done:?}"
            ),
        }
    }

    fn check_sink(&self, done: &Completion, sink: &Bytes) {
        let got = done.bytes as usize;
        assert!(got <= sink.bytes.len(), "{done:?}");
        use portolan_exchange::Action;
        if matches!(done.action, Action::Get | Action::Atomic) && done.peer == 0 {
            // Whoever was permitted has written there.
            return;
        }
        let of_peer = |byte: &u8| *byte == mark(done.peer);
        // Ranges of parts are the lane's to check; what it got wrong stays
        // within the memory of the receive. Of a message that was kept zeros
        // are where nothing came.
        let either = |byte: &u8| *byte == FILL || of_peer(byte) || self.wild && *byte == 0;
        // A receive from anybody may have been written in part by one that died.
        let before = |byte: &u8| {
            let lost =
                matches!(sink.of, Use::Anybody) && (1..SIZE as u32).any(|it| *byte == mark(it));
            *byte == FILL || lost || self.wild && *byte == 0
        };
        let (got, rest) = sink.bytes.split_at(got);
        let fits = match done.result {
            Ok(()) | Err(OpError::Truncated) if self.wild => sink.bytes.iter().all(either),
            Ok(()) | Err(OpError::Truncated) => {
                let came = got
                    .iter()
                    .all(|byte| of_peer(byte) || self.lied && matches!(*byte, FILL | 0));
                came && rest.iter().all(before)
            }
            Err(OpError::Cancelled) => sink.bytes.iter().all(before),
            Err(_) => sink.bytes.iter().all(|byte| either(byte) || before(byte)),
        };
        assert!(fits, "{done:?}: {got:x?}, {rest:x?}");
    }
}

/// Memory of an operation.
fn memory(with: Use, bytes: usize, fill: u8) -> Bytes {
    Bytes {
        bytes: vec![fill; bytes],
        of: with,
        pieces: bytes % 2 == 1,
    }
}
