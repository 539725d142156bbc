//! The schedule of pulls: of all receives and gets the one that lacks least is next, and no more
//! is requested at once than the path to us can hold. Exchanges of an endpoint share one schedule,
//! since what they request meets in the same queue before us.

use alloc::collections::BTreeMap;

use super::{Late, Meeting};
use crate::values::OpId;

/// Divisor of the window if several ranks are asked at once: congestion control of one sender sees
/// its own bytes in time, but those of many meet in one queue before us.
const CROWD: u64 = 8;

/// Requests to ranks that the program knows, or to those that it does not: a stranger that never
/// answers keeps only strangers waiting.
#[derive(Debug, Default)]
struct Schedule {
    /// Receives and gets by bytes not yet requested and number of their exchange, with the rank
    /// they ask.
    waiting: BTreeMap<(u64, u8, OpId), u32>,
    /// Bytes requested and not arrived, by rank.
    outstanding: BTreeMap<u32, u64>,
}

impl Schedule {
    /// Returns the operation that is served next, of those towards ranks that may be asked.
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

    /// Bytes requested from a rank are here. Returns how many of them this schedule did not
    /// request.
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

/// The receiver's side. One exchange of an endpoint has it at a time: the caller passes it on by
/// [`crate::Exchange::swap_pulls`].
#[derive(Debug)]
pub(crate) struct Pulls {
    /// Schedule of unknown ranks, then of known ones. A rank may become known while requests are
    /// in flight.
    of: [Schedule; 2],
    window: u64,
    /// Exchange whose turn it is, if not the one that has this.
    pub turn: Option<u8>,
    /// Memory for messages that are pulled before a receive asks for them.
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

    /// Sets how many requested bytes may be in flight.
    pub const fn set_window(&mut self, window: u64) {
        self.window = window;
    }

    pub fn outstanding(&self) -> u64 {
        let each = self.of.iter().flat_map(|it| it.outstanding.values());
        each.sum()
    }

    /// Adds an operation that lacks `left` bytes, to be requested from a rank.
    pub fn wait(&mut self, exchange: u8, left: u64, id: OpId, (rank, known): (u32, bool)) {
        let of = &mut self.of[usize::from(known)];
        of.waiting.insert((left, exchange, id), rank);
    }

    /// Removes an operation that [`Self::wait`] added with the same arguments.
    pub fn wait_no_more(&mut self, exchange: u8, left: u64, id: OpId) {
        for of in &mut self.of {
            of.waiting.remove(&(left, exchange, id));
        }
    }

    /// Returns the operation that is served next, if it belongs to this exchange.
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

    /// Bytes that one request to this rank may ask for, at most `chunk`.
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

    /// Bytes requested from a rank are here, or will not come.
    pub fn came(&mut self, rank: u32, bytes: u64) {
        let others = (self.of.iter_mut()).fold(bytes, |bytes, of| of.came(rank, bytes));
        debug_assert_eq!(others, 0, "nothing comes that was not asked for");
    }

    /// Gives up a receive that is being pulled.
    pub fn forget(&mut self, exchange: u8, id: OpId, meeting: &Meeting) {
        self.wait_no_more(exchange, meeting.end - meeting.asked, id);
        self.came(meeting.from, meeting.due());
    }
}

impl Meeting {
    /// Bytes requested and not arrived, but for those that the sender writes to our memory: they
    /// take no room in a queue, so a slow sender keeps none from others.
    pub fn due(&self) -> u64 {
        let not_due = self.answered.max(self.published_end);
        self.asked.saturating_sub(not_due)
    }
}
