//! Matched messages over the protocol over a network that loses, repeats,
//! reorders and spoils; and with either side killed at every step.

#[path = "rendezvous/node.rs"]
mod node;

use std::cell::RefCell;
use std::rc::Rc;

use node::{Ending, Node, Reach, content};
use portolan_exchange::{Census, OpError, Push};
use portolan_sim::net::{Faults, Network};

/// A program: what rank 0 sends and rank 1 receives, and when, microseconds.
struct Program {
    /// Tag and length of each message, and when it is sent.
    sends: Vec<(u64, usize, u64)>,
    /// Tag of each receive, and when it is posted.
    receives: Vec<(u64, u64)>,
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
        push,
        near: false,
    }
}

fn programs() -> Vec<Program> {
    let near = Program {
        near: true,
        ..program(pushes()[1])
    };
    (pushes().map(program).into_iter()).chain([near]).collect()
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

const GENTLE: Faults = Faults {
    delay_ns: 30_000,
    ..Faults::NONE
};

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
    let (mut now, mut steps, mut sent, mut received) = (0_u64, 0, 0, 0);
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
            && (0..2).all(|who| !alive[who] || nodes[who].is_idle());
        if over {
            return Outcome {
                nodes,
                steps,
                reach,
            };
        }
        let due = (0..2)
            .filter(|who| alive[*who])
            .map(|who| nodes[who].due(&net));
        let starts = [
            program.sends.get(sent).map(|s| s.2 * 1_000),
            program.receives.get(received).map(|r| r.1 * 1_000),
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
    for program in programs() {
        for seed in 0..60 {
            let mut outcome = run(&program, seed, ROUGH, None);
            check_whole(&program, &mut outcome);
            // The longer ones were copied by both sides.
            assert!(!program.near || outcome.reach().written == 3);
        }
    }
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
                failed += check_survivor(&program, &mut outcome.nodes[1 - who]);
                assert!(!program.near || outcome.reach().is_hidden(1 - who));
            }
        }
    }
    assert!(failed > 500, "{failed}");
}

#[test]
fn so_it_is_on_a_rough_network() {
    for program in programs() {
        for seed in 0..150 {
            let kill = Kill {
                who: seed as usize % 2,
                step: 3 + 2 * seed as usize,
                told: seed % 5 != 0,
            };
            let mut outcome = run(&program, seed, ROUGH, Some(kill));
            check_survivor(&program, &mut outcome.nodes[1 - kill.who]);
            assert!(!program.near || outcome.reach().is_hidden(1 - kill.who));
        }
    }
}

/// Every operation of a survivor has ended, and its memory is back. Gives how
/// many ended with the death.
fn check_survivor(program: &Program, node: &mut Node) -> usize {
    let endings = node.endings();
    assert_eq!(endings.len(), program.sends.len());
    let mut failed = 0;
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
