//! A stream of numbered messages for a given time, watched at its end: what
//! arrived when, and whether each came once. The conductor does something else
//! meanwhile: lets TCP flow beside it, or pulls out a cable.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use portolan::{Binding, SendError, SendOptions};
use portolan_hosts::failure::{Result, fail};
use portolan_sys::clock::now_ns;
use serde::{Deserialize, Serialize};

use crate::conduct::{answer, expect_ready};
use crate::control::{Answer, ControlLine, Order};
use crate::ranks::portolan::{LONG_BYTES, LongSends, Ours, PASSES, ours};
use crate::ranks::timeline::Timeline;

/// Port of the messages.
const STREAM: u16 = 6;
/// Time between the orders and the start, nanoseconds: both have heard by then.
pub const LEAD_NS: u64 = 5_000_000;
/// What is under way when the time is over gets so long to arrive, nanoseconds.
const DRAIN_NS: u64 = 20_000_000_000;

/// A rank's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
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
pub struct Received {
    /// When how much arrived.
    pub timeline: Timeline,
    /// Messages that arrived.
    messages: u64,
    /// Those of them that came again, or after a later one.
    pub again: u64,
}

impl Received {
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
    long: LongSends,
}

impl Source<'_> {
    fn try_send(&mut self) -> Result<bool> {
        let args = [self.sent];
        let options = SendOptions {
            args: &args,
            ..SendOptions::default()
        };
        let (endpoint, to, payload) = (&self.ours.endpoint, self.ours.peer(), &self.payload);
        let sent = if payload.len() < LONG_BYTES {
            endpoint
                .try_send_with(to, STREAM, &options, payload)
                .map(drop)
        } else {
            self.long
                .try_send(endpoint, (to, STREAM), &options, payload)
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
    fn pass(&self, part: &Stream) -> Result<()> {
        if self.endpoint.progress().map_err(ours)? == 0 && part.crowded {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Sends as fast as it can, then makes progress until the bench says stop.
    pub fn send_stream(&self, part: &Stream, line: &mut ControlLine) -> Result<()> {
        let mut source = Source {
            ours: self,
            payload: vec![0x5a; part.size].into(),
            sent: 0,
            long: LongSends::default(),
        };
        while now_ns() < part.start_ns {
            self.pass(part)?;
        }
        while now_ns() < part.end_ns {
            if !source.try_send()? {
                self.pass(part)?;
            }
        }
        line.say(&Answer::SentAll(source.sent))?;
        loop {
            for _ in 0..PASSES {
                self.pass(part)?;
            }
            if line.stops()? {
                return line.say(&Answer::Ready);
            }
        }
    }

    /// Receives until `Finish` has named what was sent and it is all there, or
    /// its time is over.
    pub fn receive_stream(&self, part: &Stream, line: &mut ControlLine) -> Result<()> {
        let tally = Arc::new(Tally::default());
        let count = Arc::clone(&tally);
        let mut binding = Binding::to(move |_, message| count.count(message.arg(0)));
        if part.size >= LONG_BYTES {
            binding = binding.with_buffer(vec![0; part.size]);
        }
        self.endpoint.bind(STREAM, binding).map_err(ours)?;
        line.say(&Answer::Ready)?;
        let size = part.size as u64;
        let mut timeline = Timeline::new(part.start_ns);
        let (mut seen, mut finish, mut empty) = (0, None, 0_u32);
        loop {
            self.pass(part)?;
            let messages = tally.messages.load(Relaxed);
            if messages > seen {
                timeline.note(now_ns(), (messages - seen) * size);
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
                    Some(order) => return fail(format!("the bench sent {order:?} to a receiver")),
                },
                Some((bytes, deadline_ns)) => {
                    if seen * size >= bytes || now_ns() > deadline_ns {
                        break;
                    }
                }
            }
        }
        line.say(&Answer::Received(Received {
            timeline,
            messages: seen,
            again: tally.again.load(Relaxed),
        }))
    }
}

/// Lets rank 0 send to rank 1, and does something else `meanwhile`. Gives how
/// many messages were sent, what became of them, and what came of the other.
pub fn through<T>(
    [sender, receiver]: [&mut ControlLine; 2],
    stream: &Stream,
    meanwhile: impl FnOnce() -> Result<T>,
) -> Result<(u64, Received, T)> {
    receiver.say(&Order::Receive(*stream))?;
    expect_ready(receiver)?;
    sender.say(&Order::Send(*stream))?;
    let done = meanwhile()?;
    let sent = answer!(sender, SentAll);
    receiver.say(&Order::Finish {
        bytes: sent * stream.size as u64,
        deadline_ns: now_ns() + DRAIN_NS,
    })?;
    let received = answer!(receiver, Received);
    sender.say(&Order::Stop)?;
    expect_ready(sender)?;
    Ok((sent, received, done))
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
        let received = Received {
            timeline: Timeline::default(),
            messages: of(&tally.messages),
            again: of(&tally.again),
        };
        assert_eq!((received.messages, received.again), (6, 2));
        // Of seven the last never came either.
        assert_eq!(received.lost(7), 3);
    }
}
