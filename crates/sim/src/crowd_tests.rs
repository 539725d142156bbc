//! One endpoint and many others: more than it has connections for at first.

use super::*;

const SECOND: u64 = 1_000 * MS;
/// Connections that each has memory for at first.
const ACTIVE: u32 = 4;
/// Where the others come to.
const HUB: usize = 0;

/// So many nodes, none of which knows another.
fn crowd(seed: u64, nodes: usize, frames: u32) -> Meeting {
    crowd_of(seed, nodes, 100, frames)
}

fn crowd_of(seed: u64, nodes: usize, peers: u32, frames: u32) -> Meeting {
    let config = Config {
        peers,
        active: ACTIVE,
        queue_frames: 64,
        frames,
        longs: 8,
        silence_ns: 30 * SECOND,
        connect_ns: 30 * SECOND,
        introduces: true,
        strangers: true,
        ..Config::default()
    };
    let faults = Faults {
        delay_ns: 20_000,
        ..Faults::NONE
    };
    Meeting::with(seed, Rng::new(mix(seed)), nodes, faults, config, false)
}

impl Meeting {
    fn life_of(&mut self, at: usize) -> LifeId {
        self.node(at).life
    }

    /// What a node calls another, which it adds if it must.
    fn number_of(&mut self, at: usize, life: LifeId) -> u32 {
        let known = |node: &Node| {
            let mut all = node.peers.iter();
            all.find(|(_, it)| it.life == Some(life)).map(|(n, _)| *n)
        };
        if known(self.node(at)).is_none() {
            self.add(at, life);
        }
        known(self.node(at)).expect("there is room")
    }

    /// Tries to send one message, again and again for so long; says whether it was accepted.
    fn tell(&mut self, from: usize, to: LifeId, length: u64, time: u64) -> bool {
        let (peer, end) = (self.number_of(from, to), self.now + time);
        let before = self.sent.len();
        loop {
            self.say(from, peer, length, false);
            if self.sent.len() > before {
                return true;
            }
            if self.now >= end {
                return false;
            }
            self.run_for(MS);
        }
    }

    /// Messages of a life that another was given.
    fn heard(&self, from: LifeId, to: LifeId) -> usize {
        let of = |it: &&(LifeId, LifeId, u64)| (it.0, it.1) == (from, to);
        self.got.iter().filter(of).count()
    }

    /// All nodes from 1 on have spoken to the hub; then they are killed, and so many messages
    /// to each are under way. Gives their lives.
    fn desert(&mut self, many: usize, each: u64, time: u64) {
        let hub = self.life_of(HUB);
        let gone: Vec<LifeId> = (1..=many).map(|at| self.life_of(at)).collect();
        for at in 1..=many {
            assert!(self.tell(at, hub, HEAD as u64, SECOND), "node {at}");
            self.run_for(SECOND);
            assert_eq!(self.heard(gone[at - 1], hub), 1, "of node {at}");
        }
        for at in 1..=many {
            self.end(at, true);
        }
        for life in gone {
            for _ in 0..each {
                self.tell(HUB, life, 1_000, time);
            }
        }
    }

    /// Two speak to each other, at once.
    fn converse(&mut self, one: usize, other: usize, time: u64) {
        let (a, b) = (self.life_of(one), self.life_of(other));
        assert!(self.tell(one, b, HEAD as u64, time), "{one} cannot begin");
        self.run_for(time);
        assert_eq!(self.heard(a, b), 1, "of {one}");
        assert!(
            self.tell(other, a, HEAD as u64, time),
            "{other} is kept back"
        );
        self.run_for(time);
        assert_eq!(self.heard(b, a), 1, "of {other}");
    }
}

#[test]
fn those_that_vanish_do_not_keep_newcomers_out() {
    const MANY: usize = 40;
    let mut meeting = crowd(1, MANY + 2, 1_024);
    meeting.desert(MANY, 1, 10 * MS);
    meeting.converse(MANY + 1, HUB, SECOND / 4);
}

#[test]
fn those_that_vanish_give_frames_back_when_they_are_needed() {
    const MANY: usize = 12;
    let mut meeting = crowd(2, MANY + 2, 64);
    // More than there are frames for.
    meeting.desert(MANY, 16, 0);
    meeting.converse(MANY + 1, HUB, SECOND);
}

#[test]
fn those_that_vanish_give_their_numbers_back_before_others() {
    const MANY: usize = 10;
    let mut meeting = crowd_of(6, MANY + 5, MANY as u32 + 2, 1_024);
    let quiet = MANY + 1;
    meeting.converse(quiet, HUB, SECOND);
    meeting.desert(MANY, 1, 10 * MS);
    meeting.run_for(SECOND);
    // All numbers are taken with the first of them.
    for at in quiet + 1..MANY + 5 {
        meeting.converse(at, HUB, SECOND);
    }
    let life = meeting.life_of(quiet);
    let known = meeting.node(HUB).peers.values();
    let lives: Vec<Option<LifeId>> = known.map(|it| it.life).collect();
    assert!(lives.contains(&Some(life)), "{life} of {lives:?}");
}

#[test]
fn peers_that_are_not_up_do_not_keep_back_what_others_are_sent() {
    const MANY: usize = 40;
    for (each, frames) in [(1, 1_024), (20, 128)] {
        let mut meeting = crowd(3, MANY + 2, frames);
        let gone: Vec<LifeId> = (1..=MANY).map(|at| meeting.life_of(at)).collect();
        (1..=MANY).for_each(|at| meeting.end(at, true));
        for life in gone {
            for _ in 0..each {
                meeting.tell(HUB, life, 1_000, 0);
            }
            // Its turn comes, whatever waits for the others.
            meeting.run_for(10 * MS);
        }
        meeting.converse(HUB, MANY + 1, SECOND / 4);
    }
}

#[test]
fn long_messages_to_peers_that_are_not_up_leave_room_for_others() {
    const MANY: usize = 12;
    let mut meeting = crowd(4, MANY + 2, 1_024);
    let gone: Vec<LifeId> = (1..=MANY).map(|at| meeting.life_of(at)).collect();
    (1..=MANY).for_each(|at| meeting.end(at, true));
    for life in gone {
        meeting.tell(HUB, life, 20_000, 0);
        meeting.run_for(10 * MS);
    }
    let (hub, life) = (meeting.life_of(HUB), meeting.life_of(MANY + 1));
    assert!(meeting.tell(HUB, life, 20_000, SECOND / 4));
    meeting.run_for(SECOND / 4);
    assert_eq!(meeting.heard(hub, life), 1);
}

#[test]
fn more_than_can_be_active_at_first_are_served_alike() {
    const MANY: usize = 24;
    let mut meeting = crowd(5, MANY + 1, 1_024);
    let hub = meeting.life_of(HUB);
    let lives: Vec<LifeId> = (1..=MANY).map(|at| meeting.life_of(at)).collect();
    // Each asks as often as it may, and gets an answer to each.
    let mut asked = [0; MANY];
    for _ in 0..400 {
        for (at, &life) in lives.iter().enumerate() {
            let (came, answered) = (meeting.heard(life, hub), meeting.heard(hub, life));
            if asked[at] == answered && meeting.tell(at + 1, hub, HEAD as u64, 0) {
                asked[at] += 1;
            }
            if came > answered {
                meeting.tell(HUB, life, HEAD as u64, 0);
            }
        }
        meeting.run_for(MS / 5);
    }
    let answers = lives.iter().map(|&life| meeting.heard(hub, life));
    let answers: Vec<usize> = answers.collect();
    let (least, most) = (answers.iter().min().unwrap(), answers.iter().max().unwrap());
    assert!(*least > 20 && 2 * least > *most, "{answers:?}");
}
