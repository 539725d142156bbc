//! Supersteps of BSPlib: each rank calls what a random program says, and ends its supersteps
//! as a process does on its endpoint (`crates/bsp/src/wire.rs`). What comes of each must be
//! what the twin has.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bsp::model::{Arrived, Failure, HEADS, Head, Intake, Part, Process, Twin, Wire, part_of, tag};
use portolan_engine::{Binding, Engine, Gather, PortId, Scatter, SendError, SendOptions, SpaceId};
use portolan_exchange::{
    Completion, Memory, Notify, OpError, OpId, Selector, SendOptions as TaggedOptions,
};

use super::events::Event;
use super::plan::{Doom, PHASES, Phase, Plan};
use super::rank::{Rank, SimClock};
use super::{MS, Stage};
use crate::link::SimLinks;
use crate::rng::Rng;

const SPACE: SpaceId = SpaceId::BSP;

/// The twin of all ranks.
#[derive(Clone)]
pub(super) struct SharedTwin(Arc<Mutex<Twin>>);

impl SharedTwin {
    pub fn new(plan: &Plan) -> Self {
        let twin = Twin::new(plan.seed, plan.hosts.len(), plan.long_puts);
        Self(Arc::new(Mutex::new(twin)))
    }

    fn lock(&self) -> MutexGuard<'_, Twin> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How far a rank has come.
enum Doing {
    /// Its space is yet to be opened.
    Begins(Intake),
    Computes,
    Ends,
    /// Others read memory of its program.
    Settles,
    Over,
    Failed(Failure),
    /// It is to be killed.
    Doomed,
}

/// The program of a rank.
pub(super) struct Supersteps {
    twin: SharedTwin,
    process: Process,
    doing: Doing,
    steps: u64,
    gap_ns: u64,
    rng: Rng,
    /// When it goes on by itself, ns.
    pub next_at: u64,
    posted: Posted,
}

/// What it has given to the engine.
struct Posted {
    /// Heads that found no credit.
    heads: VecDeque<(u32, Vec<u8>)>,
    /// Sends that have not ended, and whether they are of the program's memory.
    sent: Vec<(OpId, bool)>,
    expected: Vec<OpId>,
    dead: Vec<u32>,
    doom: Option<Doom>,
    /// The superstep that ends, and heads of it that have left.
    step: u64,
    left: u32,
    doomed: bool,
}

impl Posted {
    /// Whether it is not to do anything any more, now that it comes to this.
    fn dies(&mut self, phase: Phase) -> bool {
        let at = |doom: Doom| doom.step <= self.step && doom.phase == phase;
        self.doomed |= self.doom.is_some_and(at);
        self.doomed
    }
}

type SimEngine = Engine<SimLinks, SimClock>;

struct Link<'a> {
    engine: &'a mut SimEngine,
    posted: &'a mut Posted,
}

impl Link<'_> {
    /// Sends heads, as far as there is credit.
    fn send_heads(&mut self) {
        let plain = SendOptions::default().within(SPACE);
        let plain = plain.expect("it has this flow");
        while let Some((to, head)) = self.posted.heads.pop_front() {
            let now = self.engine.send_now::<false>(to, HEADS, &plain, &head);
            let sent = now.unwrap_or_else(|| self.engine.try_send(to, HEADS, &plain, &head));
            match sent {
                Ok(_) => {}
                Err(SendError::NoCredit) => return self.posted.heads.push_front((to, head)),
                Err(SendError::PeerDead { rank, .. }) => self.posted.dead.push(rank),
                Err(e) => panic!("a head to {to}: {e:?}"),
            }
        }
    }

    /// Notes a death that a wait would report; whether there was one.
    fn hear(&mut self) -> bool {
        let core = &mut self.engine.core;
        if !core.lanes.has_reports() || !core.events.is_empty() {
            return false;
        }
        let report = core.lanes.next_report(SPACE);
        self.posted.dead.extend(report.map(|(rank, _)| rank));
        report.is_some()
    }

    fn take(&mut self, op: OpId) -> Option<(Completion, Option<Memory<Gather, Scatter>>)> {
        let exchange = self.engine.exchange(SPACE);
        (exchange.is_done(op) == Some(true)).then(|| exchange.take(op).expect("it has ended"))
    }

    /// A part that has come.
    fn next(&mut self) -> Option<Result<Arrived, Failure>> {
        for at in 0..self.posted.expected.len() {
            let Some((done, memory)) = self.take(self.posted.expected[at]) else {
                continue;
            };
            self.posted.expected.swap_remove(at);
            let from = done.peer;
            return Some(match done.result {
                Ok(()) => Ok(Arrived {
                    from,
                    part: part_of(done.tag),
                    length: Some(done.bytes),
                    bytes: received(memory, done.bytes),
                }),
                Err(OpError::PeerDead) => Err(died(from)),
                Err(e) => panic!("a part from {from}: {e}"),
            });
        }
        None
    }
}

fn died(who: u32) -> Failure {
    let why = "simulated".into();
    Failure::Died { who, why }
}

/// The bytes that came in one buffer of the exchange's; none where they went to their places.
fn received(memory: Option<Memory<Gather, Scatter>>, bytes: u64) -> Vec<u8> {
    let Some(Memory::Sink(sink)) = memory else {
        return Vec::new();
    };
    let first = sink.into_buffers().into_iter().next();
    let mut all = first.and_then(|it| it.into_vec()).unwrap_or_default();
    all.truncate(bytes as usize);
    all
}

impl Wire for Link<'_> {
    fn send_head(&mut self, to: u32, head: &[u8]) -> Result<(), Failure> {
        if self.posted.dies(Phase::Heads(self.posted.left)) {
            return Ok(());
        }
        self.posted.left += 1;
        self.posted.heads.push_back((to, head.to_vec()));
        self.send_heads();
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
        let phase = match part {
            Part::Log => Phase::Log,
            Part::Results => Phase::Results,
            Part::Pieces(_) => Phase::Pieces,
        };
        if self.posted.dies(phase) {
            return Ok(());
        }
        let options = TaggedOptions::default();
        let posted = (self.engine).post_tagged(SPACE, to, tag(part, step), &options, bytes);
        match posted {
            Ok(op) => self.posted.sent.push((op, lent)),
            Err((SendError::PeerDead { .. }, _)) => {}
            Err((e, _)) => panic!("{part:?} to {to}: {e:?}"),
        }
        Ok(())
    }

    fn expect(&mut self, from: u32, part: Part, step: u64, room: Scatter) -> Result<(), Failure> {
        let selector = Selector::from(from, tag(part, step));
        let posted = (self.engine).post_receive(SPACE, &selector, room, Notify::default());
        self.posted
            .expected
            .push(posted.expect("the rank is there"));
        Ok(())
    }

    fn room(&mut self, _from: u32, bytes: u64) -> Result<Vec<u8>, Failure> {
        Ok(vec![0x55; bytes as usize])
    }

    fn keep(&mut self, _memory: Vec<u8>) {}
}

impl Supersteps {
    pub fn new(plan: &Plan, twin: &SharedTwin, rank: usize) -> Self {
        let (process, intake) = Process::new(rank, &twin.lock());
        let mut rng = Rng::new(plan.seed ^ (rank as u64 + 1) << 24);
        Self {
            twin: twin.clone(),
            process,
            doing: Doing::Begins(intake),
            steps: plan.supersteps,
            gap_ns: plan.gap_ns,
            next_at: rng.below(4 * plan.gap_ns),
            rng,
            posted: Posted {
                heads: VecDeque::new(),
                sent: Vec::new(),
                expected: Vec::new(),
                dead: Vec::new(),
                doom: plan.doom.filter(|doom| doom.rank == rank),
                step: 0,
                left: 0,
                doomed: false,
            },
        }
    }

    /// Supersteps that it has ended, and how it dies, if that is so.
    pub fn ended(&self) -> (u64, Option<Phase>) {
        let doom = self.posted.doom.filter(|_| self.posted.doomed);
        (self.process.step(), doom.map(|doom| doom.phase))
    }

    /// Whether it has ended its last superstep, or could not end one.
    pub const fn is_over(&self) -> bool {
        matches!(self.doing, Doing::Over | Doing::Failed(_))
    }

    /// Nothing that it has sent is under way.
    pub fn is_done(&self) -> bool {
        self.is_over() && self.posted.sent.is_empty() && self.posted.heads.is_empty()
    }

    pub const fn failure(&self) -> Option<&Failure> {
        match &self.doing {
            Doing::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    pub const fn is_doomed(&self) -> bool {
        matches!(self.doing, Doing::Doomed)
    }

    /// How far it has come, in words.
    pub fn report(&self) -> String {
        let doing = match &self.doing {
            Doing::Begins(_) => "begins".into(),
            Doing::Computes => "computes".into(),
            Doing::Ends => {
                let ranks = 0..self.twin.lock().size;
                let missing: Vec<usize> = ranks.filter(|it| self.misses(*it)).collect();
                format!("without heads {missing:?}")
            }
            Doing::Settles => "settles".into(),
            Doing::Over => "over".into(),
            Doing::Failed(failure) => failure.to_string(),
            Doing::Doomed => "doomed".into(),
        };
        let Posted {
            heads,
            sent,
            expected,
            dead,
            ..
        } = &self.posted;
        format!(
            "superstep {}: {doing}, heads {}, sent {}, expected {}, dead {dead:?}",
            self.process.step(),
            heads.len(),
            sent.len(),
            expected.len(),
        )
    }

    /// Whether it waits for the head of a rank.
    pub fn misses(&self, rank: usize) -> bool {
        let exchange = self.process.exchange();
        matches!(self.doing, Doing::Ends) && exchange.misses(rank as u32)
    }

    fn go_on(&mut self, engine: &mut SimEngine, now: u64) -> bool {
        let posted = &mut self.posted;
        let waiting = posted.heads.len();
        let mut link = Link { engine, posted };
        link.send_heads();
        let mut moved = link.posted.heads.len() < waiting;
        let mut at = 0;
        while at < link.posted.sent.len() {
            if link.take(link.posted.sent[at].0).is_some() {
                link.posted.sent.swap_remove(at);
                moved = true;
            } else {
                at += 1;
            }
        }
        loop {
            match self.one(engine, now) {
                Ok(false) => return moved,
                Ok(true) => {}
                Err(failure) => self.doing = Doing::Failed(failure),
            }
            if self.posted.doomed {
                self.doing = Doing::Doomed;
            }
            moved = true;
        }
    }

    /// One thing after the other; whether there was anything to do.
    fn one(&mut self, engine: &mut SimEngine, now: u64) -> Result<bool, Failure> {
        let Self {
            process, posted, ..
        } = self;
        let mut link = Link { engine, posted };
        match &self.doing {
            Doing::Begins(_) | Doing::Computes if self.next_at > now => return Ok(false),
            Doing::Begins(_) => {
                let before = std::mem::replace(&mut self.doing, Doing::Computes);
                if let Doing::Begins(intake) = before {
                    open(engine, intake);
                }
            }
            Doing::Computes => {
                link.posted.step = process.step();
                link.posted.left = 0;
                self.next_at = u64::MAX;
                self.doing = Doing::Ends;
                process.begin(&mut self.twin.lock(), &mut link)?;
            }
            Doing::Ends if process.exchange().is_complete() => {
                if !link.posted.dies(Phase::End) {
                    process.finish(&self.twin.lock(), &mut link)?;
                    self.doing = Doing::Settles;
                }
            }
            Doing::Ends => return go_on_ending(process, &mut link),
            Doing::Settles if link.posted.sent.iter().any(|it| it.1) => return Ok(link.hear()),
            Doing::Settles => {
                process.settle();
                if process.step() == self.steps {
                    self.doing = Doing::Over;
                } else {
                    self.doing = Doing::Computes;
                    self.next_at = now + self.rng.below(2 * self.gap_ns);
                }
            }
            Doing::Over | Doing::Failed(_) | Doing::Doomed => return Ok(false),
        }
        Ok(true)
    }
}

/// Looks at heads that have come, or takes a part; whether there was one.
fn go_on_ending(process: &mut Process, link: &mut Link<'_>) -> Result<bool, Failure> {
    let exchange = process.exchange();
    let Some(seen) = exchange.heads_seen() else {
        return match link.next() {
            Some(arrived) => process.take(arrived?, link).map(|()| true),
            None => Ok(link.hear()),
        };
    };
    let mut dead = link.posted.dead.iter();
    if let Some(who) = dead.find(|who| exchange.misses(**who)) {
        return Err(died(*who));
    }
    let (heads, step) = exchange.heads();
    if let Some(who) = heads.broken() {
        return Err(Failure::Malformed { who });
    }
    if heads.count(step) == seen {
        return Ok(link.hear());
    }
    process.look(link).map(|()| true)
}

/// Opens the space: what has come before that is taken in the next pass.
fn open(engine: &mut SimEngine, mut intake: Intake) {
    engine.open_space(SPACE).expect("it was never opened");
    let take = Binding::to(move |_, m| intake.put(m.from, Head::step(m.payload), m.payload));
    let port = PortId {
        space: SPACE,
        number: HEADS,
    };
    let bound = engine.core.bind(port, take);
    bound.expect("it is the program's");
}

impl Rank {
    /// Whether it does nothing more in supersteps.
    pub(super) fn has_left_supersteps(&self) -> bool {
        let program = self.supersteps.as_ref();
        program.is_none_or(|it| it.is_over() || it.is_doomed())
    }

    /// Goes on with its supersteps; whether it has come further.
    pub(super) fn go_on_supersteps(&mut self, now: u64) -> bool {
        let Some(it) = &mut self.supersteps else {
            return false;
        };
        let opens = matches!(it.doing, Doing::Begins(_));
        let moved = it.go_on(&mut self.engine, now);
        if opens && !matches!(it.doing, Doing::Begins(_)) {
            self.spaces.push(SPACE);
        }
        moved
    }
}

impl Stage {
    /// Each rank that lives has ended its last superstep, or could not end one.
    pub(super) fn supersteps_over(&mut self) -> bool {
        let all = self.ranks.iter().flatten();
        let mut programs = all.filter_map(|rank| rank.supersteps.as_ref());
        programs.all(Supersteps::is_over)
    }

    /// A rank does nothing more in supersteps: it is to die, has failed, or has ended all.
    pub(super) fn end_supersteps(&mut self, at: usize) {
        let Some(it) = self.ranks[at]
            .as_ref()
            .and_then(|it| it.supersteps.as_ref())
        else {
            return;
        };
        let mut dies = it.is_doomed();
        if let Some(failure) = it.failure() {
            let step = it.ended().0;
            (self.trace).note(self.now, at, || format!("superstep {step}: {failure}"));
            let Failure::Died { who, .. } = *failure else {
                panic!("rank {at}: {failure}");
            };
            let book = self.book.lock();
            let is_dead = book
                .lives
                .iter()
                .any(|it| it.lost && it.rank == who as usize);
            let fair = is_dead || self.plan.silence_possible();
            assert!(fair, "rank {at} thinks that living rank {who} is dead");
            // As a program does: others may wait for it alone.
            dies = true;
        }
        if dies {
            let late = self.rng.scale(1, 2 * MS);
            self.at(self.now + late, Event::Kill(at));
        }
    }

    /// Kills those that are to die soon.
    pub(super) fn kill_ended(&mut self) {
        for at in 0..self.ranks.len() {
            let ends = |rank: &Rank| match &rank.supersteps {
                Some(it) => it.is_doomed() || it.failure().is_some(),
                None => true,
            };
            if self.ranks[at].as_ref().is_some_and(ends) {
                self.kill(at);
            }
        }
    }

    /// Supersteps that were ended, ranks that could not end one, and those that died in each
    /// phase.
    pub(super) fn count_supersteps(&self) -> (u64, u64, [u64; PHASES]) {
        let all = self.ranks.iter().flatten().chain(&self.killed);
        let (mut steps, mut failed, mut phases) = (0, 0, [0; PHASES]);
        for it in all.filter_map(|rank| rank.supersteps.as_ref()) {
            let (ended, phase) = it.ended();
            steps += ended;
            failed += u64::from(it.failure().is_some());
            if let Some(phase) = phase {
                phases[phase.number()] += 1;
            }
        }
        (steps, failed, phases)
    }
}
