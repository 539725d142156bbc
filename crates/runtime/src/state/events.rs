//! News of others from the launcher and the kernel: which died, left, came back.

use std::os::fd::AsFd;
use std::time::Duration;

use portolan_engine::{Death, Lane, Restarted};
use portolan_sys::clock::now_ns;
use portolan_sys::epoll::Epoll;

use super::{State, TOKEN_WATCH};
use crate::config::Notice;

/// Longest wait for the launcher to report how a process ended, ns: its host may be busy.
const HOW_NS_MAX: u64 = 250_000_000;

impl State {
    pub fn hear(&mut self) -> usize {
        let mut events = 0;
        let Some(mut watch) = self.watch.take() else {
            return 0;
        };
        // Removed before polling: that may close the descriptor.
        let _ = watch.fd().map(|fd| self.sleep.wait_set.events.remove(fd));
        while let Some(notice) = watch.poll() {
            events += 1;
            self.launcher_is_late = false;
            match notice {
                Notice::Died(rank, why) => self.ended(rank, why),
                // Only a rank that shares memory with us can judge it.
                Notice::GivenUp(rank) => {
                    if let Some(Lane::Shm(_)) = self.core.lanes.get(rank) {
                        self.handle_peer_death(rank, Death::Corrupt);
                    }
                }
                Notice::Stopped(rank) => self.reset_silence_timer(rank),
                Notice::Doubted(ranks) => {
                    if let Some((ago, rank)) = self.last_heard(&ranks) {
                        watch.has_heard(rank, ago);
                    }
                }
                Notice::Left(rank) => self.handle_peer_death(rank, Death::Closed),
                Notice::Back(it) => self.handle_peer_restart(&it),
                Notice::Ending(why) => {
                    log::info!("rank {}: the job is being ended: {why}", self.core.rank);
                    self.ending = Some(why);
                }
            }
        }
        let _ = watch
            .fd()
            .map(|fd| self.sleep.wait_set.events.add(fd, TOKEN_WATCH));
        self.watch = Some(watch);
        events
    }

    /// Returns which of `ranks` was heard last, and how long ago.
    fn last_heard(&mut self, ranks: &[u32]) -> Option<(Duration, u32)> {
        let heard = |&rank: &u32| Some((self.engine.heard_at(rank)?, rank));
        let (at, rank) = ranks.iter().filter_map(heard).max()?;
        Some((Duration::from_nanos(now_ns().saturating_sub(at)), rank))
    }

    /// Waits for the launcher to report how a rank's process ended, for [`HOW_NS_MAX`] at most.
    /// A launcher that let one such wait pass is not waited for again until it reports something:
    /// it may be stopped, and many ranks may have ended.
    fn ask_how(&mut self, rank: u32) {
        let until = now_ns() + HOW_NS_MAX;
        self.hear();
        while !self.launcher_is_late
            && !matches!(self.core.lanes.get(rank), Some(Lane::Dead(_)) | None)
        {
            // Without a launcher, or a descriptor to spare, the cause stays unknown.
            let Some(one) = self.watch.as_ref().and_then(|watch| {
                let one = Epoll::new().ok()?;
                one.add(watch.fd()?, 0).ok()?;
                Some(one)
            }) else {
                return;
            };
            let left = until.saturating_sub(now_ns());
            match one.wait(Some(left), |_| ()) {
                Ok(1..) if left > 0 => {}
                Ok(_) => self.launcher_is_late = true,
                Err(_) => return,
            }
            self.hear();
        }
    }

    /// Returns how a rank ended of which another reports `said`: the launcher may tell this
    /// rank later than that one.
    pub fn how_ended(&mut self, rank: u32, said: Death) -> Death {
        let said = self.engine.refine_death(rank, said);
        if said == Death::Ended {
            self.ask_how(rank);
        }
        self.core.lanes.dead(rank).unwrap_or(said)
    }

    /// Handles the end of a rank's process.
    pub fn ended(&mut self, rank: u32, how: Death) {
        if let Some(at) = self.pids.iter().position(|(r, _)| *r == rank) {
            let (_, pid) = self.pids.remove(at);
            let _ = self.sleep.wait_set.events.remove(pid.as_fd());
        }
        self.handle_peer_death(rank, how);
    }

    /// Reads what a rank has still sent, then marks it dead.
    pub(super) fn handle_peer_death(&mut self, rank: u32, why: Death) {
        let why = self.engine.refine_death(rank, why);
        if why == Death::Ended {
            // The kernel, or a mark in shared memory, may be faster than the launcher.
            self.ask_how(rank);
        }
        self.engine.handle_peer_death(rank, why);
    }

    /// Takes in a rank that is back in a new life.
    fn handle_peer_restart(&mut self, it: &Restarted) {
        // The table of ranks may include this return already.
        if it.since <= self.core.lanes.returns.since(it.rank) {
            return;
        }
        self.ended(it.rank, Death::Restarted);
        self.engine.handle_peer_restart(it);
    }
}
