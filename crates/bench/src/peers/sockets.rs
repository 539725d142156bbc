//! A long message over kernel TCP while its sender or its receiver computes, as
//! programs do it: nonblocking sockets, a call before and calls after.

use std::net::TcpListener;

use portolan_hosts::failure::{Context, Result, fail};

use crate::control::{ANSWER_BYTES, Answer, ControlLine};
use crate::peers::tcp::Tcp;
use crate::ranks::asleep::Sleeps as _;
use crate::ranks::backoff::Backoff;
use crate::ranks::drive::Channel;
use crate::ranks::matched::compute;
use crate::ranks::rank::Site;

/// A connection of two ranks, who meet before each message: what is read of
/// one must not be of the next.
pub struct Sockets(Tcp);

impl Sockets {
    /// Says where it listens, unless it leads, and connects.
    pub fn meet(leads: bool, site: &Site, size_max: usize, line: &mut ControlLine) -> Result<Self> {
        let listener = TcpListener::bind((site.address()?, 0)).context("TCP")?;
        let offers = line.meet(listener.local_addr()?.to_string())?;
        let mut tcp = match offers.get(1) {
            Some(other) if leads => Tcp::connect(other, size_max)?,
            Some(_) => Tcp::accept(&listener, size_max)?,
            None => return fail("the other rank does not listen"),
        };
        if !leads {
            // It computes nothing: as our own it sleeps while it waits.
            tcp.set_sleeping(true)?;
        }
        line.say(&Answer::Ready)?;
        Ok(Self(tcp))
    }

    /// Begins to send or to receive, computes, and waits for the end: of what
    /// is sent, until 8 bytes say that it is there.
    pub fn lead(&mut self, size: usize, sends: bool, rounds: u64) -> Result<()> {
        if !sends {
            let mut taken = self.0.poll(size)?;
            compute(rounds);
            let mut backoff = Backoff::default();
            while taken == 0 {
                backoff.empty_poll()?;
                taken = self.0.poll(size)?;
            }
            return Ok(());
        }
        let mut sent = self.0.try_send(size)?;
        compute(rounds);
        let mut backoff = Backoff::default();
        while !sent {
            backoff.empty_poll()?;
            sent = self.0.try_send(size)?;
        }
        self.hear(ANSWER_BYTES)
    }

    /// The other side, which computes nothing.
    pub fn follow(&mut self, size: usize, leader_sends: bool) -> Result<()> {
        if !leader_sends {
            return self.say(size);
        }
        self.hear(size)?;
        self.say(ANSWER_BYTES)
    }

    fn say(&mut self, bytes: usize) -> Result<()> {
        let mut backoff = Backoff::default();
        while !self.0.try_send(bytes)? {
            backoff.empty_poll()?;
        }
        Ok(())
    }

    fn hear(&mut self, bytes: usize) -> Result<()> {
        let mut backoff = Backoff::default();
        while self.0.poll(bytes)? == 0 {
            backoff.empty_poll()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use super::*;

    /// More than the sockets hold, so that neither side's first call does it all.
    const SIZE: usize = 16 << 20;

    #[test]
    fn either_side_may_send_and_the_sender_waits_for_the_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap().to_string();
        // As ranks meet before each message.
        let [met, meet] = [(); 2].map({
            let barrier = Arc::new(Barrier::new(2));
            move |()| Arc::clone(&barrier)
        });
        let other = std::thread::spawn(move || {
            let mut other = Sockets(Tcp::accept(&listener, SIZE).unwrap());
            other.follow(SIZE, true).unwrap();
            met.wait();
            other.follow(SIZE, false).unwrap();
            other.0.received()
        });
        let mut leader = Sockets(Tcp::connect(&at, SIZE).unwrap());
        leader.lead(SIZE, true, 1_000).unwrap();
        assert_eq!(leader.0.received(), ANSWER_BYTES as u64);
        meet.wait();
        leader.lead(SIZE, false, 1_000).unwrap();
        assert_eq!(leader.0.received(), (ANSWER_BYTES + SIZE) as u64);
        assert_eq!(other.join().unwrap(), SIZE as u64);
    }
}
