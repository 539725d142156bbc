//! Which members have reached which barrier.

use std::collections::BTreeMap;

/// Maximum number of rounds of a barrier; a message of this round or beyond has no effect.
pub const ROUNDS: usize = 32;

/// Identifies a barrier of a group: counted anew when a member has come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch {
    /// Turn of the group's members, see [`crate::lanes::Returns`].
    pub turn: u32,
    /// Number of the barrier in that turn, from 1; wraps.
    pub count: u32,
}

#[derive(Clone, Copy)]
struct Barrier {
    epoch: Epoch,
    /// Latest count received in each round.
    arrived: [u32; ROUNDS],
    /// Why an epoch cannot end, and its count.
    failed: Option<(u32, Absence)>,
}

/// A member that another one reported missing from a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absence {
    pub rank: u32,
    /// Whether the rank has left in good order; else it has died.
    pub left: bool,
}

/// Bit of the word for [`Absence::left`]; the lower 32 bits hold the rank's number and one.
const LEFT_BIT: u64 = 1 << 32;

impl Absence {
    /// Reads the word *failed* of a barrier's message; `None`: all are here.
    pub const fn from_word(word: u64) -> Option<Self> {
        match (word as u32).checked_sub(1) {
            Some(rank) => Some(Self {
                rank,
                left: word & LEFT_BIT != 0,
            }),
            None => None,
        }
    }

    pub const fn word(self) -> u64 {
        (self.rank as u64 + 1) | if self.left { LEFT_BIT } else { 0 }
    }
}

impl Barrier {
    /// Makes the state of a turn of which nothing is known yet.
    const fn of(turn: u32) -> Self {
        Self {
            epoch: Epoch { turn, count: 0 },
            arrived: [0; ROUNDS],
            failed: None,
        }
    }
}

/// Barriers under way, by group. A process has few groups, and looks here in each pass of
/// a barrier.
#[derive(Default)]
pub struct Barriers(BTreeMap<u64, Barrier>);

impl Barriers {
    /// Returns the state of a group's turn; `None` if that is over.
    fn get(&mut self, group: u64, turn: u32) -> Option<&mut Barrier> {
        let b = self.0.entry(group).or_insert_with(|| Barrier::of(turn));
        if b.epoch.turn < turn {
            *b = Barrier::of(turn);
        }
        Some(b).filter(|b| b.epoch.turn == turn)
    }

    /// Begins the next barrier of a group in this turn.
    pub fn begin(&mut self, group: u64, turn: u32) -> Epoch {
        match self.get(group, turn) {
            Some(b) => {
                b.epoch.count = b.epoch.count.wrapping_add(1);
                b.epoch
            }
            // Others know already why this one cannot end.
            None => Epoch { turn, count: 1 },
        }
    }

    /// `Ok` if the message of a round has arrived, the missing rank if the epoch cannot end for
    /// that reason, `None` as long as neither is known.
    pub fn outcome(
        &mut self,
        group: u64,
        round: usize,
        epoch: Epoch,
    ) -> Option<Result<(), Absence>> {
        let b = self.get(group, epoch.turn)?;
        let reached = |count: u32| count.wrapping_sub(epoch.count) as i32 >= 0;
        if reached(b.arrived[round]) {
            return Some(Ok(()));
        }
        let failed = b.failed.filter(|(count, _)| reached(*count));
        failed.map(|(_, missing)| Err(missing))
    }

    pub fn fail(&mut self, group: u64, epoch: Epoch, missing: Absence) {
        if let Some(b) = self.get(group, epoch.turn) {
            b.failed = Some((epoch.count, missing));
        }
    }

    pub fn arrive(&mut self, group: u64, round: usize, epoch: Epoch) {
        if round < ROUNDS
            && let Some(b) = self.get(group, epoch.turn)
        {
            b.arrived[round] = epoch.count;
        }
    }
}
