//! A program's run, and what is done to the ranks meanwhile.

use std::cell::RefCell;
use std::rc::Rc;

use portolan_sim::net::{NetCounters, Network};

use crate::node::{Node, Reach, Start};
use crate::program::{Program, Step};
use crate::wires::Wires;

/// After this a rank that awaits something asks for a sign of life.
const QUIET_NS: u64 = 1_500_000_000;
/// Whoever repeats old packets to those who are back does it at once, and again
/// after so long.
const REPEATED_NS: u64 = 2_000_000;

/// Who is killed, and before which step.
#[derive(Clone, Copy)]
pub struct Kill {
    pub who: usize,
    pub step: usize,
    /// Somebody tells the other; else it has to notice.
    pub told: bool,
    pub back: Option<Back>,
}

/// A killed rank begins a new life, in which both run the program again.
#[derive(Clone, Copy)]
pub struct Back {
    /// So long after its death, ns.
    pub after_ns: u64,
    /// And the other is told so long after that.
    pub told_ns: u64,
}

pub struct Outcome {
    pub nodes: [Node; 2],
    pub steps: usize,
    /// What rank 1, which has little to say, sent late in the cut.
    pub asked: u64,
    pub net: NetCounters,
    reach: Option<Rc<RefCell<Reach>>>,
}

impl Outcome {
    /// What the ranks have reached of each other's memory.
    pub fn reach(&self) -> std::cell::Ref<'_, Reach> {
        self.reach.as_ref().expect("they are near").borrow()
    }
}

/// A rank and how far it is.
struct Rank {
    node: Node,
    alive: bool,
    steps: Vec<(u64, Step)>,
    done: usize,
    /// When its round began, ns.
    since: u64,
}

impl Rank {
    fn next(&self) -> Option<(u64, Step)> {
        let step = self.steps.get(self.done).filter(|_| self.alive);
        step.map(|(at, step)| (self.since + at * 1_000, *step))
    }

    /// Does what is due.
    fn act(&mut self, now: u64) {
        while let Some((_, step)) = self.next().filter(|(at, _)| *at <= now) {
            self.done += 1;
            match step {
                Step::Send { tag, bytes } => self.node.send(now, tag, bytes),
                Step::Receive { tag, room } => self.node.receive(now, tag, room),
                Step::Access(access) => self.node.access(now, access),
            }
        }
    }

    /// Begins the program from its start.
    fn begin(&mut self, now: u64) {
        (self.done, self.since) = (0, now);
    }
}

struct Run<'a> {
    wires: &'a Wires,
    kill: Option<Kill>,
    start: Start,
    net: Network,
    ranks: [Rank; 2],
    /// When the killed rank is back, when the other is told so, and when what
    /// both had sent before comes once more.
    returns: [Option<u64>; 3],
    overheard: Vec<(usize, usize, Vec<u8>)>,
}

/// Runs until nothing is under way any more.
pub fn run(program: &Program, seed: u64, wires: &Wires, kill: Option<Kill>) -> Outcome {
    let start = Start {
        seed,
        push: program.push,
        reach: program.near.then(Rc::default),
        networks: wires.networks,
        has_ways: !wires.ways.is_empty(),
        round: 0,
    };
    let rank = |who| Rank {
        node: Node::new(who, &start),
        alive: true,
        steps: program.steps(who),
        done: 0,
        since: 0,
    };
    let ranks = [0, 1].map(rank);
    let run = Run {
        wires,
        kill,
        start,
        net: wires.network(seed),
        ranks,
        returns: [None; 3],
        overheard: Vec::new(),
    };
    run.finish()
}

impl Run<'_> {
    fn finish(mut self) -> Outcome {
        let (mut now, mut steps) = (0_u64, 0);
        let (mut before, mut asked) = (0, 0);
        loop {
            if let Some(kill) = self.kill.filter(|kill| kill.step == steps) {
                self.kill(now, kill);
            }
            self.bring_back(now);
            steps += 1;
            self.ranks.iter_mut().for_each(|rank| rank.act(now));
            self.wires.change(now, &mut self.net);
            if let Some(cut) = &self.wires.cut {
                let sent = self.ranks[1].node.counters().packets_sent;
                if now < cut.time.start * 1_000 + QUIET_NS {
                    before = sent;
                } else if cut.lasts(now) {
                    asked = sent - before;
                }
                self.tell_of_the_bereft(now);
            }
            self.net.advance(now);
            for rank in &mut self.ranks {
                if rank.alive {
                    rank.node.pass(now, &mut self.net);
                } else {
                    rank.node.clear_inboxes(&mut self.net);
                }
            }
            if self.is_over(now) {
                return Outcome {
                    nodes: self.ranks.map(|rank| rank.node),
                    steps,
                    asked,
                    net: self.net.counters(),
                    reach: self.start.reach,
                };
            }
            let next = self.next_time(now).expect("what is under way is due");
            now = next.max(now + 100);
            assert!(
                now < 60_000_000_000,
                "seed {}: it takes more than a minute: {:?}",
                self.start.seed,
                self.ranks.map(|rank| rank.node.statistics()),
            );
        }
    }

    fn kill(&mut self, now: u64, kill: Kill) {
        let Kill { who, told, .. } = kill;
        self.ranks[who].alive = false;
        if let Some(reach) = &self.start.reach {
            reach.borrow_mut().die(who);
        }
        // Of one that was never connected only others can tell.
        let survivor = &mut self.ranks[1 - who].node;
        if told || !survivor.is_up() {
            survivor.tell_of_death(now);
        }
        if let Some(Back { after_ns, told_ns }) = kill.back {
            let [born, told] = [now + after_ns, now + after_ns + told_ns];
            self.returns = [born, told, told + REPEATED_NS].map(Some);
        }
    }

    /// Lets the killed rank's new life begin, and the other hear of it.
    fn bring_back(&mut self, now: u64) {
        let Some(who) = self.kill.map(|kill| kill.who) else {
            return;
        };
        let [born, told, repeated] = [0, 1, 2].map(|i| {
            let due = self.returns[i].take_if(|at| *at <= now);
            due.is_some()
        });
        let [killed, survivor] = match &mut self.ranks {
            [a, b] if who == 0 => [a, b],
            [a, b] => [b, a],
        };
        if born {
            self.overheard.append(&mut killed.node.overheard);
            self.start.round = 1;
            killed.node = Node::new(who, &self.start);
            killed.alive = true;
            killed.begin(now);
        }
        if told {
            self.overheard.append(&mut survivor.node.overheard);
            survivor.node.tell_of_return(now, self.start.round);
            survivor.begin(now);
        }
        if told || repeated {
            for (from, to, packet) in &self.overheard {
                self.net.inject(*from, *to, packet.clone());
            }
        }
    }

    /// Of one that was never connected only others can tell that it is dead.
    fn tell_of_the_bereft(&mut self, now: u64) {
        for who in 0..2 {
            if self.ranks[who].node.is_bereft() && self.ranks[1 - who].node.is_strange() {
                self.ranks[1 - who].node.tell_of_death(now);
            }
        }
    }

    fn is_over(&mut self, now: u64) -> bool {
        let networks = self.wires.networks;
        let cut = self.wires.cut.as_ref();
        self.returns == [None; 3]
            && cut.is_none_or(|cut| now >= cut.time.end * 1_000)
            && self
                .ranks
                .iter_mut()
                .all(|rank| !rank.alive || rank.next().is_none() && rank.node.is_idle(networks))
    }

    fn next_time(&self, now: u64) -> Option<u64> {
        let alive = self.ranks.iter().filter(|rank| rank.alive);
        let steps = self.ranks.iter().filter_map(Rank::next).map(|next| next.0);
        alive
            .map(|rank| rank.node.due(&self.net))
            .chain(steps)
            .chain(self.wires.next_change(now))
            .chain(self.net.next_time())
            .chain(self.returns.into_iter().flatten())
            .min()
    }
}
