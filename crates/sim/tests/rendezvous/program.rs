//! What the model's ranks are to do.

use portolan_exchange::Push;

use crate::node::memory::Access;

/// A program: what rank 0 sends and rank 1 receives, and when, microseconds.
#[derive(Clone)]
pub struct Program {
    /// Tag and length of each message, and when it is sent.
    pub sends: Vec<(u64, usize, u64)>,
    /// Tag of each receive, and when it is posted.
    pub receives: Vec<(u64, u64)>,
    /// Accesses to the other's region: whose, which, and when.
    pub accesses: Vec<(usize, Access, u64)>,
    pub push: Push,
    /// The ranks are on one host and reach into each other's memory.
    pub near: bool,
}

/// What a rank does at a time.
#[derive(Clone, Copy)]
pub enum Step {
    Send { tag: u64, bytes: usize },
    Receive { tag: u64, room: usize },
    Access(Access),
}

impl Program {
    /// What a rank does and when, microseconds, in order.
    pub fn steps(&self, who: usize) -> Vec<(u64, Step)> {
        let sends = self.sends.iter().filter(|_| who == 0);
        let receives = self.receives.iter().filter(|_| who == 1);
        let accesses = self.accesses.iter().filter(|access| access.0 == who);
        let mut steps: Vec<(u64, Step)> = sends
            .map(|&(tag, bytes, at)| (at, Step::Send { tag, bytes }))
            .chain(receives.map(|&(tag, at)| {
                // For more than comes.
                let room = self.bytes_of(tag) + 1_000;
                (at, Step::Receive { tag, room })
            }))
            .chain(accesses.map(|&(_, access, at)| (at, Step::Access(access))))
            .collect();
        steps.sort_by_key(|(at, _)| *at);
        steps
    }

    /// Bytes of the message of a tag.
    pub fn bytes_of(&self, tag: u64) -> usize {
        let sent = self.sends.iter().find(|send| send.0 == tag);
        sent.expect("it is one of them").1
    }
}

/// Early and late receives of short, middling and long messages.
fn messages(push: Push) -> Program {
    Program {
        sends: vec![
            (1, 100, 50),
            (2, 60_000, 60),
            (3, 3_000, 500),
            (4, 250_000, 510),
            (5, 0, 520),
            // Pushed whole before anybody asks for it.
            (8, 2_000, 530),
            (6, 20_000, 2_500),
        ],
        receives: vec![
            (2, 0),
            (1, 10),
            (5, 15),
            (4, 1_500),
            (6, 1_600),
            (3, 3_000),
            (8, 3_100),
        ],
        accesses: Vec::new(),
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
        ..messages(Push::default())
    }
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

/// Those of ranks on different hosts.
pub fn far_programs() -> impl Iterator<Item = Program> {
    let messages = pushes().map(messages).into_iter();
    messages.chain([accessing()])
}

pub fn programs() -> impl Iterator<Item = Program> {
    let near = Program {
        near: true,
        ..messages(pushes()[1])
    };
    far_programs().chain([near])
}
