//! The ledger itself must be able to fail.

use portolan_proto::PeerId;
use portolan_wire::MessageNo;

use super::*;

/// Two nodes; node 0 has sent messages of these sizes on flow 0.
struct Table {
    ledger: Ledger,
    lives: [LifeId; 2],
    /// When messages are sent.
    now: u64,
}

const FIRST: u32 = u32::MAX;

impl Table {
    fn new(sizes: &[u64]) -> Self {
        let mut ledger = Ledger::default();
        let lives = [ledger.birth(0), ledger.birth(1)];
        let mut table = Self {
            ledger,
            lives,
            now: 0,
        };
        for (i, &total) in sizes.iter().enumerate() {
            table.send(FIRST.wrapping_add(i as u32), total);
        }
        table
    }

    fn send(&mut self, number: u32, total: u64) -> MessageId {
        let plan = Planned {
            priority: Priority::Request,
            flow: 0,
            port: 9,
            args: Vec::new(),
            total,
            long: (total > 64).then_some(Release::Acknowledged),
        };
        self.ledger
            .accepted(self.now, self.lives[0], 1, FIRST, number, plan)
    }

    fn part(
        &mut self,
        id: MessageId,
        number: u32,
        total: u64,
        range: std::ops::Range<u64>,
        last: bool,
    ) {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        content::fill(id, range.start, &mut bytes);
        let delivery = Delivery {
            peer: PeerId(0),
            priority: Priority::Request,
            flow: 0,
            message: MessageNo(number),
            port: 9,
            args: &[],
            total,
            offset: range.start,
            payload: &bytes,
            last,
            cookie: id as u64,
        };
        if range.start == 0 {
            let found = self.ledger.offered(self.lives[1], 0, &delivery);
            assert_eq!(found, id);
            let verdict = Verdict::Take(id as u64);
            self.ledger
                .decided(self.lives[1], 0, id, &delivery, verdict);
        } else {
            self.ledger.part(self.lives[1], 0, &delivery);
        }
    }

    fn open(&self) -> usize {
        self.ledger.outstanding(None).count()
    }
}

#[test]
fn a_good_run_passes_over_a_wrap() {
    let mut t = Table::new(&[10, 20]);
    assert_eq!(t.open(), 2);
    t.part(0, FIRST, 10, 0..10, true);
    t.part(1, 0, 20, 0..20, true);
    assert_eq!((t.open(), t.ledger.delivered), (0, 2));
}

#[test]
#[should_panic(expected = "out of order")]
fn a_gap_is_seen() {
    let mut t = Table::new(&[10, 20]);
    t.part(1, 0, 20, 0..20, true);
}

#[test]
#[should_panic(expected = "out of order")]
fn a_repeat_is_seen() {
    let mut t = Table::new(&[10, 20]);
    t.part(0, FIRST, 10, 0..10, true);
    t.part(0, FIRST, 10, 0..10, true);
}

#[test]
#[should_panic(expected = "never sent")]
fn an_invention_is_seen() {
    let mut t = Table::new(&[10]);
    t.part(0, FIRST, 10, 0..10, true);
    t.part(1, 0, 10, 0..10, true);
}

#[test]
#[should_panic(expected = "length of message 0")]
fn a_wrong_length_is_seen() {
    let mut t = Table::new(&[10]);
    t.part(0, FIRST, 11, 0..11, true);
}

#[test]
fn parts_come_in_any_order() {
    let mut t = Table::new(&[300]);
    t.part(0, FIRST, 300, 0..64, false);
    t.part(0, FIRST, 300, 128..192, false);
    t.part(0, FIRST, 300, 192..300, false);
    t.part(0, FIRST, 300, 64..128, true);
    assert_eq!(t.open(), 1, "its memory is not back yet");
    t.ledger.released(0, Outcome::Done);
    assert_eq!(t.open(), 0);
}

#[test]
#[should_panic(expected = "came twice")]
fn overlapping_parts_are_seen() {
    let mut t = Table::new(&[300]);
    t.part(0, FIRST, 300, 0..64, false);
    t.part(0, FIRST, 300, 128..192, false);
    t.part(0, FIRST, 300, 64..192, false);
}

#[test]
#[should_panic(expected = "end of message 0")]
fn an_early_end_is_seen() {
    let mut t = Table::new(&[300]);
    t.part(0, FIRST, 300, 0..64, false);
    t.part(0, FIRST, 300, 128..192, true);
}

#[test]
#[should_panic(expected = "released twice")]
fn a_double_release_is_seen() {
    let mut t = Table::new(&[300]);
    t.ledger.released(0, Outcome::Done);
    t.ledger.released(0, Outcome::Done);
}

#[test]
#[should_panic(expected = "read after its release")]
fn a_late_read_is_seen() {
    let mut t = Table::new(&[300]);
    t.ledger.released(0, Outcome::Done);
    t.ledger.read(t.lives[0], 0, 0, &mut [0; 8]);
}

#[test]
#[should_panic(expected = "second acquaintance")]
fn a_message_that_crosses_a_restart_is_seen() {
    let mut t = Table::new(&[10, 20]);
    t.part(0, FIRST, 10, 0..10, true);
    t.ledger.death(t.lives[1], 5);
    t.lives[1] = t.ledger.birth(1);
    t.part(1, 0, 20, 0..20, true);
}

#[test]
fn death_excuses_what_was_under_way() {
    let mut t = Table::new(&[10, 20]);
    t.part(0, FIRST, 10, 0..10, true);
    t.ledger.death(t.lives[1], 5);
    assert_eq!(t.open(), 0);
    t.ledger.peer_dead(t.lives[0], 1, false);
    // A new acquaintance begins at the first number again, after the death.
    t.now = 6;
    let id = t.send(FIRST, 30);
    assert_eq!(t.open(), 1);
    t.lives[1] = t.ledger.birth(1);
    t.part(id, FIRST, 30, 0..30, true);
    assert_eq!(t.open(), 0);
}

#[test]
#[should_panic(expected = "was not refused")]
fn an_unfounded_refusal_is_seen() {
    let mut t = Table::new(&[10]);
    t.ledger.told_refused(t.lives[0], 1, (0, 0), FIRST);
}

/// What the sender and the receiver count where all but two of 100 chunks were
/// taken, and 50 are allowed beyond.
fn credit() -> [Credit; 2] {
    let none = Credit {
        life: portolan_wire::Life(0),
        sent: [7; 2],
        allowed: [57; 2],
        taken: [9; 2],
        ahead: 50,
    };
    let from = Credit {
        sent: [FIRST.wrapping_add(100), 7],
        allowed: [FIRST.wrapping_add(148), 57],
        ..none
    };
    let to = Credit {
        taken: [FIRST.wrapping_add(98), 7],
        ..none
    };
    [from, to]
}

#[test]
fn credit_may_lag_while_chunks_are_under_way() {
    let [from, to] = credit();
    Ledger::credit(&from, &to, 0, false);
}

#[test]
#[should_panic(expected = "2 chunks of credit of priority 0 are lost")]
fn lost_credit_is_noticed() {
    let [from, to] = credit();
    Ledger::credit(&from, &to, 0, true);
}

#[test]
#[should_panic(expected = "1 chunks of priority 1 were taken that were never sent")]
fn credit_for_repeats_is_noticed() {
    let [from, mut to] = credit();
    to.taken[1] += 1;
    Ledger::credit(&from, &to, 1, false);
    Ledger::credit(&from, &to, 0, false);
}

#[test]
#[should_panic(expected = "more credit than is allowed")]
fn credit_beyond_what_is_allowed_is_noticed() {
    let [mut from, to] = credit();
    from.allowed[0] = from.allowed[0].wrapping_add(1);
    Ledger::credit(&from, &to, 0, false);
}
