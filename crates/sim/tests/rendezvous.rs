//! Matched messages and one-sided memory over the protocol over a network that
//! loses, repeats, reorders, marks and spoils, and that is cut for a while; and
//! with either side killed at every step.

#[path = "rendezvous/node.rs"]
mod node;

use std::cell::RefCell;
use std::rc::Rc;

use node::memory::{ADDED, Access, untouched};
use node::{Ending, Node, Reach, content};
use portolan_exchange::{Census, OpError, Push};
use portolan_sim::net::{Faults, Network};

/// A program: what rank 0 sends and rank 1 receives, and when, microseconds.
struct Program {
    /// Tag and length of each message, and when it is sent.
    sends: Vec<(u64, usize, u64)>,
    /// Tag of each receive, and when it is posted.
    receives: Vec<(u64, u64)>,
    /// Accesses to the other's region: whose, which, and when.
    accesses: Vec<(usize, Access, u64)>,
    /// Nothing comes through from then until then, microseconds.
    cut: Option<(u64, u64)>,
    push: Push,
    /// The ranks are on one host and reach into each other's memory.
    near: bool,
}

/// Early and late receives of short, middling and long messages.
fn program(push: Push) -> Program {
    Program {
        sends: vec![
            (1, 100, 50),
            (2, 60_000, 60),
            (3, 3_000, 500),
            (4, 250_000, 510),
            (5, 0, 520),
            (6, 20_000, 2_500),
        ],
        receives: vec![(2, 0), (1, 10), (5, 15), (4, 1_500), (6, 1_600), (3, 3_000)],
        accesses: Vec::new(),
        cut: None,
        push,
        near: false,
    }
}

/// Accesses of both ranks, among messages.
fn accessing() -> Program {
    let put = |tag, at, bytes, signal| Access::Put {
        tag,
        at,
        bytes,
        signal,
    };
    let get = |at, bytes| Access::Get { at, bytes };
    Program {
        sends: vec![(1, 100, 50), (2, 60_000, 700)],
        receives: vec![(1, 0), (2, 300)],
        accesses: vec![
            (0, put(11, 8, 40, false), 40),
            (0, Access::Add, 45),
            (0, put(12, 100, 50_000, true), 60),
            // There is room for one signal at a time.
            (0, put(13, 50_200, 5_000, true), 61),
            (0, put(14, 55_300, 30, true), 62),
            (1, get(60_000, 30_000), 70),
            (0, Access::Add, 80),
            (1, Access::Add, 81),
            (1, put(15, 100, 3_000, true), 600),
            (0, get(60_000, 20), 900),
            (0, get(70_000, 20_000), 901),
            (0, Access::Add, 2_000),
        ],
        ..program(Push::default())
    }
}

fn programs() -> Vec<Program> {
    let near = Program {
        near: true,
        ..program(pushes()[1])
    };
    (pushes().map(program).into_iter())
        .chain([near, accessing()])
        .collect()
}

fn pushes() -> [Push; 3] {
    let zero = Push {
        whole: 0,
        first: 0,
        second: 0,
        ..Push::default()
    };
    let little = Push {
        whole: 500,
        first: 80,
        second: 4_000,
        overlap: false,
        masking: false,
    };
    [Push::default(), zero, little]
}

const ROUGH: Faults = Faults {
    delay_ns: 30_000,
    jitter_ns: 20_000,
    loss: 50_000,
    burst_start: 2_000,
    burst_end: 150_000,
    burst_loss: 900_000,
    repeat: 20_000,
    repeat_ns: 100_000,
    reorder: 50_000,
    reorder_ns: 200_000,
    corrupt: 5_000,
    truncate: 2_000,
    ..Faults::NONE
};

/// A queue that stands still now and then, and marks what waits in it.
const CONGESTED: Faults = Faults {
    delay_ns: 30_000,
    jitter_ns: 300_000,
    queued: true,
    loss: 5_000,
    mark: 200_000,
    ..Faults::NONE
};

const GENTLE: Faults = Faults {
    delay_ns: 30_000,
    ..Faults::NONE
};

/// After this a rank that awaits something asks for a sign of life.
const QUIET_NS: u64 = 1_500_000_000;

/// Who is killed, and before which step.
#[derive(Clone, Copy)]
struct Kill {
    who: usize,
    step: usize,
    /// Somebody tells the other; else it has to notice.
    told: bool,
}

struct Outcome {
    nodes: [Node; 2],
    steps: usize,
    /// What rank 1, which has little to say, sent late in the cut.
    asked: u64,
    reach: Option<Rc<RefCell<Reach>>>,
}

impl Outcome {
    /// What the ranks have reached of each other's memory.
    fn reach(&self) -> std::cell::Ref<'_, Reach> {
        self.reach.as_ref().expect("they are near").borrow()
    }
}

/// Runs until nothing is under way any more.
fn run(program: &Program, seed: u64, faults: Faults, kill: Option<Kill>) -> Outcome {
    let mut net = Network::new(seed, 2);
    net.set_faults(faults);
    let reach = program.near.then(Rc::default);
    let mut nodes = [0, 1].map(|who| Node::new(who, seed, program.push, reach.clone()));
    let mut alive = [true; 2];
    let (mut now, mut steps, mut sent, mut received, mut accessed) = (0_u64, 0, 0, 0, 0);
    let cut = program.cut.map(|(from, until)| from * 1_000..until * 1_000);
    let (mut before, mut asked) = (0, 0);
    loop {
        if let Some(kill) = kill.filter(|kill| kill.step == steps) {
            alive[kill.who] = false;
            if let Some(reach) = &reach {
                reach.borrow_mut().die(kill.who);
            }
            // Of one that was never connected only others can tell.
            let survivor = &mut nodes[1 - kill.who];
            if kill.told || !survivor.is_up() {
                survivor.tell_of_death(now);
            }
        }
        steps += 1;
        while let Some(&(tag, bytes, _)) = program.sends.get(sent).filter(|s| s.2 * 1_000 <= now) {
            sent += 1;
            if alive[0] {
                nodes[0].send(now, tag, bytes);
            }
        }
        while let Some(&(tag, _)) = program
            .receives
            .get(received)
            .filter(|r| r.1 * 1_000 <= now)
        {
            received += 1;
            if alive[1] {
                nodes[1].receive(now, tag);
            }
        }
        while let Some(&(who, access, _)) = program
            .accesses
            .get(accessed)
            .filter(|a| a.2 * 1_000 <= now)
        {
            accessed += 1;
            if alive[who] {
                nodes[who].access(now, access);
            }
        }
        if let Some(cut) = &cut {
            net.set_cut(0, 1, cut.contains(&now));
            net.set_cut(1, 0, cut.contains(&now));
            let sent = nodes[1].packets_sent();
            if now < cut.start + QUIET_NS {
                before = sent;
            } else if cut.contains(&now) {
                asked = sent - before;
            }
            for who in 0..2 {
                // Of one that was never connected only others can tell.
                if nodes[who].is_bereft() && nodes[1 - who].is_strange() {
                    nodes[1 - who].tell_of_death(now);
                }
            }
        }
        net.advance(now);
        for who in 0..2 {
            if alive[who] {
                nodes[who].pass(now, &mut net);
            } else {
                net.clear_inbox(who);
            }
        }
        let over = sent == program.sends.len()
            && received == program.receives.len()
            && accessed == program.accesses.len()
            && cut.as_ref().is_none_or(|cut| now >= cut.end)
            && (0..2).all(|who| !alive[who] || nodes[who].is_idle());
        if over {
            return Outcome {
                nodes,
                steps,
                asked,
                reach,
            };
        }
        let due = (0..2)
            .filter(|who| alive[*who])
            .map(|who| nodes[who].due(&net));
        let starts = [
            program.sends.get(sent).map(|s| s.2 * 1_000),
            program.receives.get(received).map(|r| r.1 * 1_000),
            program.accesses.get(accessed).map(|a| a.2 * 1_000),
            cut.as_ref().map(|cut| cut.start).filter(|at| *at > now),
            cut.as_ref().map(|cut| cut.end).filter(|at| *at > now),
            net.next_time(),
        ];
        let next = due.chain(starts.into_iter().flatten()).min();
        let next = next.expect("something is under way, so something is due");
        now = next.max(now + 100);
        assert!(
            now < 60_000_000_000,
            "seed {seed}: it takes more than a minute"
        );
    }
}

/// All has come as it was sent, and nothing is left of it.
fn check_whole(program: &Program, outcome: &mut Outcome) {
    for (who, node) in outcome.nodes.iter_mut().enumerate() {
        assert_eq!(check_accesses(program, node, who, true), 0);
    }
    let [sender, receiver] = &mut outcome.nodes;
    let sends = sender.endings();
    assert_eq!(sends.len(), program.sends.len());
    assert!(sends.iter().all(|e| e.completion.result.is_ok()));
    let receives = receiver.endings();
    assert_eq!(receives.len(), program.receives.len());
    for Ending { completion, bytes } in receives {
        let total = program
            .sends
            .iter()
            .find(|s| s.0 == completion.tag)
            .expect("it was sent")
            .1;
        assert_eq!(
            (completion.result, completion.bytes),
            (Ok(()), total as u64)
        );
        assert!(bytes[..total] == content(completion.tag, total));
    }
    for node in &mut outcome.nodes {
        assert_eq!(node.census(), Census::default());
        assert_eq!(node.lent(), 0);
    }
}

#[test]
fn all_of_it_arrives_over_a_rough_network() {
    let (mut written, mut unwritten) = (0, 0);
    for program in programs() {
        for seed in 0..60 {
            for faults in [ROUGH, CONGESTED] {
                let mut outcome = run(&program, seed, faults, None);
                check_whole(&program, &mut outcome);
                if program.near {
                    // The longer ones were copied by both sides, but where an answer
                    // waited for room.
                    let reach = outcome.reach();
                    assert!(reach.written + reach.unwritten <= 3);
                    written += reach.written;
                    unwritten += reach.unwritten;
                }
            }
        }
    }
    assert!(written > 200 && unwritten > 50, "{written} {unwritten}");
}

/// Programs over a network that is cut at many moments, for so long.
fn cut_programs(micros: u64) -> impl Iterator<Item = Program> {
    let messages = pushes().map(program).into_iter();
    messages.chain([accessing()]).flat_map(move |program| {
        (0..32).map(move |moment| {
            let from = moment * 100;
            Program {
                cut: Some((from, from + micros)),
                sends: program.sends.clone(),
                receives: program.receives.clone(),
                accesses: program.accesses.clone(),
                ..program
            }
        })
    })
}

#[test]
fn what_is_cut_off_for_a_while_is_waited_for() {
    let mut asked = 0;
    for program in cut_programs(2_000_000) {
        for faults in [GENTLE, ROUGH] {
            let mut outcome = run(&program, 7, faults, None);
            check_whole(&program, &mut outcome);
            asked += u32::from(outcome.asked > 0);
        }
    }
    // They were asked for signs of life.
    assert!(asked > 150, "{asked}");
}

#[test]
fn who_comes_back_after_too_long_is_dead_and_harmless() {
    let mut failed = 0;
    for mut program in cut_programs(5_000_000) {
        // What is begun when the other is back ends too, some way.
        program.sends.push((7, 500, 7_000_000));
        program.receives.push((7, 7_000_100));
        if !program.accesses.is_empty() {
            let both = [(0, Access::Add, 7_000_200), (1, Access::Add, 7_000_300)];
            program.accesses.extend(both);
        }
        for faults in [GENTLE, ROUGH] {
            let mut outcome = run(&program, 7, faults, None);
            for who in 0..2 {
                failed += check_survivor(&program, &mut outcome.nodes[who], who);
            }
        }
    }
    assert!(failed > 500, "{failed}");
}

#[test]
fn a_side_that_is_killed_at_any_step_leaves_nothing_behind() {
    let mut failed = 0;
    for program in programs() {
        let steps = run(&program, 7, GENTLE, None).steps;
        assert!(steps > 50, "{steps}");
        for step in 0..steps {
            for who in 0..2 {
                let kill = Kill {
                    who,
                    step,
                    // To notice takes seconds of the model's time.
                    told: step % 8 != 0,
                };
                let mut outcome = run(&program, 7, GENTLE, Some(kill));
                failed += check_survivor(&program, &mut outcome.nodes[1 - who], 1 - who);
                assert!(!program.near || outcome.reach().is_hidden(1 - who));
            }
        }
    }
    assert!(failed > 500, "{failed}");
}

#[test]
fn so_it_is_on_a_rough_network() {
    for program in programs() {
        let mut failed = 0;
        for seed in 0..150 {
            let kill = Kill {
                who: seed as usize % 2,
                step: 3 + 2 * seed as usize,
                told: seed % 5 != 0,
            };
            let faults = [ROUGH, CONGESTED][seed as usize / 2 % 2];
            let mut outcome = run(&program, seed, faults, Some(kill));
            failed += check_survivor(&program, &mut outcome.nodes[1 - kill.who], 1 - kill.who);
            assert!(!program.near || outcome.reach().is_hidden(1 - kill.who));
        }
        assert!(failed > 150, "{failed}");
    }
}

/// Every operation of a survivor has ended, and its memory is back. Gives how
/// many ended with the death.
fn check_survivor(program: &Program, node: &mut Node, who: usize) -> usize {
    let endings = node.endings();
    assert_eq!(endings.len(), program.sends.len());
    let mut failed = check_accesses(program, node, who, false);
    for Ending { completion, bytes } in endings {
        match completion.result {
            Ok(()) => {
                let total = program
                    .sends
                    .iter()
                    .find(|s| s.0 == completion.tag)
                    .expect("it is one of them")
                    .1;
                assert!(bytes[..total] == content(completion.tag, total));
            }
            Err(OpError::PeerDead) => failed += 1,
            Err(e) => panic!("{e}"),
        }
    }
    node.drain();
    let census = node.census();
    // What it has of the dead are whole messages that nobody asked for.
    assert_eq!(
        Census {
            pushed_bytes: 0,
            ..census
        },
        Census::default()
    );
    assert_eq!(node.lent(), 0);
    failed
}

/// A rank's accesses have ended, and its region is its own again and holds what
/// the other wrote and nothing else; `whole`: nobody was thought dead. Gives how
/// many ended with the death.
fn check_accesses(program: &Program, node: &mut Node, who: usize, whole: bool) -> usize {
    let of = |rank| program.accesses.iter().filter(move |a| a.0 == rank);
    let mut failed = 0;
    let mut found = Vec::new();
    let endings = node.access_endings();
    assert_eq!(endings.len(), of(who).count());
    for ((_, access, _), ending) in of(who).zip(endings) {
        let Some(Ending { completion, bytes }) = ending else {
            failed += 1;
            continue;
        };
        match (completion.result, access) {
            (Err(OpError::PeerDead), _) => failed += 1,
            (Err(e), _) => panic!("{e}"),
            (Ok(()), Access::Put { .. }) => {}
            (Ok(()), Access::Get { at, bytes: len }) => {
                assert!(bytes == untouched()[*at..*at + len]);
            }
            (Ok(()), Access::Add) => found.extend(completion.data),
        }
    }
    // Each was executed once, in the order of beginning.
    assert!(found.is_sorted_by(|a, b| a < b), "{found:?}");
    assert!(found.iter().all(|word| word % ADDED == 0), "{found:?}");

    let region = node.deregister().expect("nobody reaches it");
    let mut expected = untouched();
    let (counter, rest) = region.split_at(8);
    let adds = of(1 - who).filter(|a| matches!(a.1, Access::Add)).count() as u64;
    let counted = u64::from_le_bytes(counter.try_into().expect("8 bytes"));
    assert!(counted % ADDED == 0 && counted <= ADDED * adds, "{counted}");
    assert!(!whole || counted == ADDED * adds);
    let mut signals = node.signals().to_vec();
    for (_, access, _) in of(1 - who) {
        let Access::Put {
            tag,
            at,
            bytes,
            signal,
        } = *access
        else {
            continue;
        };
        let new = content(tag, bytes);
        let told = signals.iter().position(|word| *word == tag);
        told.map(|told| signals.remove(told));
        assert!(signal || told.is_none());
        assert!(told.is_some() || !(whole && signal), "{tag}");
        let there = &region[at..at + bytes];
        if whole || told.is_some() {
            assert!(there == new);
        }
        let old = &mut expected[at..at + bytes];
        for ((old, new), there) in old.iter_mut().zip(new).zip(there) {
            // What a put that did not end has written stays.
            if *there == new {
                *old = new;
            }
        }
    }
    assert!(signals.is_empty(), "{signals:?}");
    assert!(rest == &expected[8..]);
    assert!(!node.keeps_room());
    failed
}
