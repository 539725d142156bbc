//! A stream of numbered messages for a given time, watched at its end: what
//! arrived when, and whether each came once. The conductor does something else
//! meanwhile: lets TCP flow beside it, or pulls out a cable.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use portolan::{Binding, Op as Sending, SendError, SendOptions};
use portolan_hosts::failure::{Result, fail};
use portolan_sys::clock::now_ns;
use serde::{Deserialize, Serialize};

use super::conduct::{expect_ready, hear, unexpected};
use super::control::{Answer, Line, Order};
use super::course::Course;
use super::portolan::{LONG_BYTES, Ours, PASSES, ours, under_way_max};

/// Port of the messages.
const POUR: u16 = 6;
/// Time between the orders and the start, nanoseconds: both have heard by then.
pub const LEAD_NS: u64 = 5_000_000;
/// What is under way when the time is over gets so long to arrive, nanoseconds.
const DRAIN_NS: u64 = 20_000_000_000;

/// A rank's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pour {
    /// Bytes of a message.
    pub size: usize,
    /// Start, on the monotonic clock.
    pub start_ns: u64,
    /// No message begins after it.
    pub end_ns: u64,
    /// Others need the ranks' cores too: a pass that moves nothing gives way.
    pub crowded: bool,
}

/// What the receiver saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caught {
    /// When how much arrived.
    pub course: Course,
    /// Messages that arrived.
    messages: u64,
    /// Those of them that came again, or after a later one.
    pub again: u64,
}

impl Caught {
    /// How many of `sent` messages never came.
    #[must_use]
    pub fn lost(&self, sent: u64) -> u64 {
        sent.saturating_sub(self.messages - self.again)
    }
}

/// What the handler has seen. Only the rank's thread writes it.
#[derive(Default)]
struct Tally {
    next: AtomicU64,
    messages: AtomicU64,
    again: AtomicU64,
}

impl Tally {
    fn count(&self, number: u64) {
        let add = |count: &AtomicU64, by| count.store(count.load(Relaxed) + by, Relaxed);
        add(&self.messages, 1);
        let next = self.next.load(Relaxed);
        if number < next {
            add(&self.again, 1);
        } else {
            self.next.store(number + 1, Relaxed);
        }
    }
}

/// The sender's messages.
struct Source<'a> {
    ours: &'a Ours,
    payload: Arc<[u8]>,
    sent: u64,
    /// Long ones that the other has not got whole.
    under_way: VecDeque<Sending>,
}

impl Source<'_> {
    fn try_send(&mut self) -> Result<bool> {
        let args = [self.sent];
        let options = SendOptions {
            args: &args,
            ..SendOptions::default()
        };
        let (endpoint, to) = (&self.ours.endpoint, self.ours.peer());
        let size = self.payload.len();
        let sent = if size < LONG_BYTES {
            endpoint
                .try_send_with(to, POUR, &options, &self.payload)
                .map(drop)
        } else {
            while self.under_way.front().is_some_and(Sending::is_done) {
                self.under_way.pop_front();
            }
            if self.under_way.len() >= under_way_max(size) {
                return Ok(false);
            }
            endpoint
                .send_owned(to, POUR, &options, Arc::clone(&self.payload))
                .map(|sending| self.under_way.push_back(sending))
                .map_err(|(error, _)| error)
        };
        match sent {
            Ok(()) => {
                self.sent += 1;
                Ok(true)
            }
            Err(SendError::NoCredit) => Ok(false),
            Err(error) => Err(ours(error)),
        }
    }
}

impl Ours {
    fn pass(&self, pour: &Pour) -> Result<()> {
        if self.endpoint.progress().map_err(ours)? == 0 && pour.crowded {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Sends as fast as it can, then makes progress until the bench says stop.
    pub fn pour(&self, pour: &Pour, line: &mut Line) -> Result<()> {
        let mut source = Source {
            ours: self,
            payload: vec![0x5a; pour.size].into(),
            sent: 0,
            under_way: VecDeque::new(),
        };
        while now_ns() < pour.start_ns {
            self.pass(pour)?;
        }
        while now_ns() < pour.end_ns {
            if !source.try_send()? {
                self.pass(pour)?;
            }
        }
        line.say(&Answer::Poured(source.sent))?;
        loop {
            for _ in 0..PASSES {
                self.pass(pour)?;
            }
            match line.try_hear()? {
                None => {}
                Some(Order::Stop) => return line.say(&Answer::Ready),
                Some(order) => return fail(format!("the bench sent {order:?} to a source")),
            }
        }
    }

    /// Receives until `Finish` has named what was sent and it is all there, or
    /// its time is over.
    pub fn catch(&self, pour: &Pour, line: &mut Line) -> Result<()> {
        let tally = Arc::new(Tally::default());
        let count = Arc::clone(&tally);
        let mut binding = Binding::to(move |_, message| count.count(message.arg(0)));
        if pour.size >= LONG_BYTES {
            binding = binding.with_buffer(vec![0; pour.size]);
        }
        self.endpoint.bind(POUR, binding).map_err(ours)?;
        line.say(&Answer::Ready)?;
        let size = pour.size as u64;
        let mut course = Course::new(pour.start_ns);
        let (mut seen, mut finish, mut empty) = (0, None, 0_u32);
        loop {
            self.pass(pour)?;
            let messages = tally.messages.load(Relaxed);
            if messages > seen {
                course.note(now_ns(), (messages - seen) * size);
                seen = messages;
            }
            empty += 1;
            if !empty.is_multiple_of(PASSES) {
                continue;
            }
            match finish {
                None => match line.try_hear()? {
                    None => {}
                    Some(Order::Finish { bytes, deadline_ns }) => {
                        finish = Some((bytes, deadline_ns));
                    }
                    Some(order) => return fail(format!("the bench sent {order:?} to a drain")),
                },
                Some((bytes, deadline_ns)) => {
                    if seen * size >= bytes || now_ns() > deadline_ns {
                        break;
                    }
                }
            }
        }
        line.say(&Answer::Caught(Caught {
            course,
            messages: seen,
            again: tally.again.load(Relaxed),
        }))
    }
}

/// Lets rank 0 pour to rank 1, and does something else `meanwhile`. Gives how
/// many messages were sent, what became of them, and what came of the other.
pub fn through<T>(
    [source, drain]: [&mut Line; 2],
    pour: &Pour,
    meanwhile: impl FnOnce() -> Result<T>,
) -> Result<(u64, Caught, T)> {
    drain.say(&Order::Catch(*pour))?;
    expect_ready(drain)?;
    source.say(&Order::Pour(*pour))?;
    let done = meanwhile()?;
    let sent = match hear(source)? {
        Answer::Poured(sent) => sent,
        other => return unexpected(&other),
    };
    drain.say(&Order::Finish {
        bytes: sent * pour.size as u64,
        deadline_ns: now_ns() + DRAIN_NS,
    })?;
    let caught = match hear(drain)? {
        Answer::Caught(caught) => caught,
        other => return unexpected(&other),
    };
    source.say(&Order::Stop)?;
    expect_ready(source)?;
    Ok((sent, caught, done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_left_out_is_lost_and_one_that_was_seen_came_again() {
        let tally = Tally::default();
        for number in [0, 1, 4, 4, 2, 5] {
            tally.count(number);
        }
        let of = |count: &AtomicU64| count.load(Relaxed);
        let caught = Caught {
            course: Course::default(),
            messages: of(&tally.messages),
            again: of(&tally.again),
        };
        assert_eq!((caught.messages, caught.again), (6, 2));
        // Of seven the last never came either.
        assert_eq!(caught.lost(7), 3);
    }
}
