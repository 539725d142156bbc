//! Channels that sleep in the kernel until a message comes, as programs do that
//! leave the processor to others.

use std::time::Duration;

use portolan_hosts::failure::Result;
use serde::{Deserialize, Serialize};

use crate::ranks::drive::Channel;

/// How a rank waits for a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    /// Poll all the time
    #[default]
    Poll,
    /// Sleep in the kernel until a message arrives
    Block,
    /// Wait in a blocking call, as programs do; Portolan's polls briefly before it sleeps
    Call,
}

impl Wait {
    /// Whether it waits in calls that may sleep.
    pub fn may_sleep(self) -> bool {
        self != Self::Poll
    }
}

/// Longest sleep: then a rank looks whether the slice is over.
pub const REST: Duration = Duration::from_millis(5);

/// A channel that can sleep, for [`REST`] at most.
pub trait Sleeps: Channel {
    /// What it needs before its calls sleep, and undoes so that they do not.
    fn set_sleeping(&mut self, on: bool) -> Result<()>;

    /// As [`Channel::try_send`], but it sleeps while there is no room.
    fn send_asleep(&mut self, size: usize) -> Result<bool> {
        self.try_send(size)
    }

    /// As [`Channel::poll`], but it sleeps until something comes.
    fn poll_asleep(&mut self, size: usize) -> Result<u64> {
        self.poll(size)
    }
}

/// A channel whose calls sleep.
pub struct Asleep<C>(pub C);

impl<C: Sleeps> Channel for Asleep<C> {
    const RELIABLE: bool = C::RELIABLE;
    // An empty poll has slept: messages do not flow.
    const POLLS_PER_LOOK: u32 = 1;
    const SLEEPS: bool = true;

    fn begin(&mut self) -> Result<()> {
        // What is left of the last slice is read until there is no more.
        self.0.set_sleeping(false)?;
        self.0.begin()?;
        self.0.set_sleeping(true)
    }

    #[inline]
    fn try_send(&mut self, size: usize) -> Result<bool> {
        self.0.send_asleep(size)
    }

    fn sending(&self) -> bool {
        self.0.sending()
    }

    #[inline]
    fn poll(&mut self, size: usize) -> Result<u64> {
        self.0.poll_asleep(size)
    }

    fn received(&self) -> u64 {
        self.0.received()
    }

    fn data_packets(&self) -> Option<u64> {
        self.0.data_packets()
    }
}
