//! The schedule of pulls: of all messages that are being received and all gets the one
//! that lacks least is next, and only so much at once as the way to us can hold.
//! Several exchanges of an endpoint share one: what they asked for meets in the same
//! queue before us.

use alloc::collections::BTreeMap;

use super::{Late, Meeting};
use crate::values::OpId;

/// Where several ranks are asked at once, this part of the window is for all of
/// them: what one sends its own congestion control sees in time, but what many
/// send at once meets in one queue before us.
const CROWD: u64 = 8;

/// What is asked of the ranks that the program knows, or of those that it does not: a stranger
/// that answers nothing for as long as it likes keeps only strangers waiting.
#[derive(Debug, Default)]
struct Schedule {
    /// Receives and gets by the bytes that have not been asked for, with the number of
    /// their exchange; and whom they ask.
    waiting: BTreeMap<(u64, u8, OpId), u32>,
    /// Bytes that were asked for and have not arrived, by rank.
    outstanding: BTreeMap<u32, u64>,
}

impl Schedule {
    /// The operation that is served next, of those towards ranks that may be asked.
    fn next(&self, window: u64) -> Option<(u64, u8, OpId)> {
        let window = match self.outstanding.len() {
            0 | 1 => window,
            _ => crowded(window),
        };
        // A rank counts for half of the window at most, so one silent rank does not stop the others.
        let counted: u64 = self
            .outstanding
            .values()
            .map(|due| (window / 2).min(*due))
            .sum();
        if counted >= window {
            return None;
        }
        let outstanding = &self.outstanding;
        let may_be_asked = |rank: &u32| outstanding.get(rank).is_none_or(|due| *due < window);
        let mut all = self.waiting.iter();
        all.find(|(_, rank)| may_be_asked(rank))
            .map(|(first, _)| *first)
    }

    /// Bytes that a rank was asked for are here. Gives how many of them another schedule asked for.
    fn came(&mut self, rank: u32, bytes: u64) -> u64 {
        let Some(due) = self.outstanding.get_mut(&rank) else {
            return bytes;
        };
        let here = bytes.min(*due);
        *due -= here;
        if *due == 0 {
            self.outstanding.remove(&rank);
        }
        bytes - here
    }
}

fn crowded(window: u64) -> u64 {
    (window / CROWD).max(2)
}

/// The receiver's side. Of several exchanges one at a time has it: whoever calls them
/// hands it on, by [`crate::Exchange::swap_pulls`].
#[derive(Debug)]
pub(crate) struct Pulls {
    /// The schedule of ranks that are not known, then of known ones. A rank may become known
    /// while requests are outstanding.
    of: [Schedule; 2],
    window: u64,
    /// Whose turn it is, if it is another's than that of the exchange that has it.
    pub turn: Option<u8>,
    /// Where messages go that are pulled before a receive asks for them.
    pub late: Late,
}

impl Pulls {
    pub fn new(window: u64, late_bytes: u64) -> Self {
        Self {
            of: Default::default(),
            window,
            turn: None,
            late: Late::new(late_bytes),
        }
    }

    /// From now on so much may be under way.
    pub const fn set_window(&mut self, window: u64) {
        self.window = window;
    }

    pub fn outstanding(&self) -> u64 {
        let each = self.of.iter().flat_map(|it| it.outstanding.values());
        each.sum()
    }

    /// An operation of an exchange lacks so many bytes that a rank is to be asked for.
    pub fn wait(&mut self, exchange: u8, left: u64, id: OpId, (rank, known): (u32, bool)) {
        let of = &mut self.of[usize::from(known)];
        of.waiting.insert((left, exchange, id), rank);
    }

    /// They are not to be asked for.
    pub fn wait_no_more(&mut self, exchange: u8, left: u64, id: OpId) {
        for of in &mut self.of {
            of.waiting.remove(&(left, exchange, id));
        }
    }

    /// The operation that is served next, if it is one of this exchange.
    pub fn next(&mut self, exchange: u8) -> Option<OpId> {
        for of in &mut self.of {
            let Some(first) = of.next(self.window) else {
                continue;
            };
            let (_, whose, id) = first;
            if whose == exchange {
                of.waiting.remove(&first);
                return Some(id);
            }
            self.turn = Some(whose);
        }
        None
    }

    /// What one request to this rank may ask for, of a `chunk`.
    pub fn share(&self, rank: u32, chunk: u64) -> u64 {
        let mut asked = self.of.iter().flat_map(|of| of.outstanding.keys());
        if asked.any(|other| *other != rank) {
            chunk.min(crowded(self.window) / 2)
        } else {
            chunk
        }
    }

    pub fn asked(&mut self, (rank, known): (u32, bool), bytes: u64) {
        if bytes > 0 {
            let of = &mut self.of[usize::from(known)];
            *of.outstanding.entry(rank).or_default() += bytes;
        }
    }

    /// Bytes that a rank was asked for are here, or will not come.
    pub fn came(&mut self, rank: u32, bytes: u64) {
        let others = (self.of.iter_mut()).fold(bytes, |bytes, of| of.came(rank, bytes));
        debug_assert_eq!(others, 0, "nothing comes that was not asked for");
    }

    /// A receive that is being pulled is given up.
    pub fn forget(&mut self, exchange: u8, id: OpId, meeting: &Meeting) {
        self.wait_no_more(exchange, meeting.end - meeting.asked, id);
        self.came(meeting.from, meeting.due());
    }
}

impl Meeting {
    /// Bytes that were asked for and have not arrived, but for those that the
    /// sender writes to memory of ours: they take room in no queue, so a sender
    /// that does not come to it keeps none from the others.
    pub fn due(&self) -> u64 {
        let not_due = self.answered.max(self.published_end);
        self.asked.saturating_sub(not_due)
    }
}
