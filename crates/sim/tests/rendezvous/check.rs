//! What must hold of the ranks when a run is over.

use portolan_exchange::{OpError, Statistics};

use crate::node::memory::{ADDED, Access, untouched};
use crate::node::{Ending, Node, content, in_round};
use crate::program::Program;
use crate::run::Outcome;

/// All has come as it was sent, and nothing is left of it.
pub fn check_whole(program: &Program, outcome: &mut Outcome) {
    for (who, node) in outcome.nodes.iter_mut().enumerate() {
        assert_eq!(check_operations(program, node, who, true), 0);
        check_nothing_is_left(node);
    }
}

/// Every operation of a survivor has ended, and its memory is back. Gives how
/// many ended with the death.
pub fn check_survivor(program: &Program, node: &mut Node, who: usize) -> usize {
    let failed = check_operations(program, node, who, false);
    node.drain();
    // What it has of the dead are whole messages that nobody asked for.
    let pushed_bytes = node.statistics().pushed_bytes;
    assert_eq!(
        node.statistics(),
        Statistics {
            pushed_bytes,
            ..Statistics::default()
        }
    );
    assert_eq!(node.lent(), 0);
    failed
}

/// With a rank that came back everything went well, and of the life before
/// nothing is left. Gives how many operations of the other ended with the death.
pub fn check_returned(program: &Program, outcome: &mut Outcome, killed: usize) -> usize {
    let mut failed = 0;
    for (who, node) in outcome.nodes.iter_mut().enumerate() {
        assert_eq!(node.round, 1);
        assert_eq!(node.first, u64::from(who == killed));
        failed += check_operations(program, node, who, true);
        check_nothing_is_left(node);
    }
    failed
}

fn check_nothing_is_left(node: &mut Node) {
    assert_eq!(node.statistics(), Statistics::default());
    assert_eq!(node.lent(), 0);
    node.check_tables();
}

/// A rank's operations have ended; in its last round all went well, if `whole`.
/// Gives how many ended with the other's death.
fn check_operations(program: &Program, node: &mut Node, who: usize, whole: bool) -> usize {
    let mut failed = 0;
    for round in node.first..=node.round {
        let last = round == node.round;
        let lost =
            check_messages(program, node, who, round) + check_accesses(program, node, who, round);
        assert!(lost == 0 || !(last && whole));
        failed += lost;
    }
    check_region(program, node, who, whole);
    failed
}

/// Gives how many of a round's sends or receives ended with the other's death.
fn check_messages(program: &Program, node: &mut Node, who: usize, round: u64) -> usize {
    let count = [program.sends.len(), program.receives.len()][who];
    let endings = node.endings(round);
    // A round ends early when the next begins.
    assert!(endings.len() == count || endings.len() < count && round < node.round);
    let lost = |ending: &Option<Ending>| {
        let Some(Ending { completion, bytes }) = ending else {
            return true;
        };
        match completion.result {
            Ok(()) => {
                let tag = completion.tag;
                let total = program.bytes_of(tag);
                assert_eq!(completion.bytes, total as u64);
                assert!(
                    bytes[..total] == content(in_round(round, tag), total),
                    "{tag} in round {round}"
                );
                false
            }
            Err(OpError::PeerDead) => true,
            Err(e) => panic!("{e}"),
        }
    };
    endings.iter().filter(|ending| lost(ending)).count()
}

/// Gives how many of a round's accesses ended with the other's death.
fn check_accesses(program: &Program, node: &mut Node, who: usize, round: u64) -> usize {
    let accesses = program.accesses.iter().filter(|access| access.0 == who);
    let count = accesses.clone().count();
    let endings = node.access_endings(round);
    assert!(endings.len() == count || endings.len() < count && round < node.round);
    let mut failed = 0;
    let mut found = Vec::new();
    for ((_, access, _), ending) in accesses.zip(endings) {
        let Some(Ending { completion, bytes }) = ending else {
            failed += 1;
            continue;
        };
        match (completion.result, access) {
            (Err(OpError::PeerDead), _) => failed += 1,
            (Err(e), _) => panic!("{e}"),
            (Ok(()), Access::Put { .. }) => {}
            (Ok(()), Access::Get { at, bytes: len }) => {
                // One of the two is in its first life.
                let of = round - node.first;
                assert!(bytes == untouched(of)[*at..*at + len], "round {round}");
            }
            (Ok(()), Access::Add) => found.extend(completion.data),
        }
    }
    // Each was executed once, in the order of beginning.
    assert!(found.is_sorted_by(|a, b| a < b), "{found:?}");
    assert!(found.iter().all(|word| word % ADDED == 0), "{found:?}");
    failed
}

/// A rank's region is its own again and holds what the other wrote and nothing
/// else; `whole`: in the last round the other was not thought dead.
fn check_region(program: &Program, node: &mut Node, who: usize, whole: bool) {
    let of_other = || program.accesses.iter().filter(move |a| a.0 != who);
    let region = node.deregister().expect("nobody reaches it");
    let mut expected = untouched(node.first);
    let (counter, rest) = region.split_at(8);
    let adds = of_other().filter(|a| matches!(a.1, Access::Add)).count() as u64;
    let rounds = node.first..=node.round;
    let counted = u64::from_le_bytes(counter.try_into().expect("8 bytes"));
    let most = ADDED * adds * rounds.clone().count() as u64;
    let least = ADDED * adds * u64::from(whole);
    assert!(
        counted % ADDED == 0 && (least..=most).contains(&counted),
        "{counted}"
    );
    let mut signals = node.signals().to_vec();
    for round in rounds {
        let last = round == node.round;
        let whole = last && whole;
        for (_, access, _) in of_other() {
            let Access::Put {
                tag,
                at,
                bytes,
                signal,
            } = *access
            else {
                continue;
            };
            let word = in_round(round, tag);
            let new = content(word, bytes);
            let told = signals.iter().position(|told| *told == word);
            told.map(|told| signals.remove(told));
            assert!(signal || told.is_none());
            assert!(told.is_some() || !(whole && signal), "{word}");
            let there = &region[at..at + bytes];
            if whole || last && told.is_some() {
                assert!(there == new, "{word}");
            }
            let old = &mut expected[at..at + bytes];
            for ((old, new), there) in old.iter_mut().zip(new).zip(there) {
                // What a put that did not end has written stays.
                if *there == new {
                    *old = new;
                }
            }
        }
    }
    assert!(signals.is_empty(), "{signals:?}");
    assert!(rest == &expected[8..]);
}
