//! Process liveness of a host's ranks: that one is about to end, long before
//! its process is gone, and that one is stopped.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use portolan_sys::features::Disabled;
use portolan_sys::lives::{LifeWatch, Lives};
use portolan_sys::process::Condition;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::message::How;

/// Interval at which ranks are checked for being stopped: several times within
/// the silence after which a peer is given up.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Interval at which a rank is checked that released its futex word and seems to run.
const SETTLE: Duration = Duration::from_millis(1);
/// A rank that still runs this long after the release has become another program.
const REPLACED_AFTER: Duration = Duration::from_millis(20);

/// Watches the ranks of one host.
pub(crate) struct Liveness {
    /// None if robust futexes are disabled.
    lives: Option<(Arc<Lives>, LifeWatch)>,
    bell: Arc<OwnedFd>,
    lost: Receiver<usize>,
    timer: OwnedFd,
    /// Ranks whose end is not classified yet, by number on the host: since when.
    unclear: BTreeMap<usize, Instant>,
    look_at: Instant,
}

impl Liveness {
    /// Starts watching `ranks` ranks.
    pub fn start(ranks: u32) -> io::Result<Self> {
        // Errors in the variable were reported when the launcher began.
        let disabled = Disabled::from_env().unwrap_or_default();
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = Arc::new(eventfd(0, flags)?);
        let (tell, lost) = mpsc::channel();
        let ring = Arc::clone(&bell);
        let tell = move |index| {
            // Fails only while the `Liveness` is dropped.
            let _ = tell.send(index);
            let _ = write(&*ring, &1_u64.to_ne_bytes());
        };
        let lives = if disabled.robust {
            None
        } else {
            let lives = Lives::create(ranks as usize);
            let lives = Arc::new(lives.map_err(|error| io::Error::other(error.to_string()))?);
            let watch = LifeWatch::start(&lives, &disabled, tell)?;
            Some((lives, watch))
        };
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let liveness = Self {
            lives,
            bell,
            lost,
            timer: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            unclear: BTreeMap::new(),
            look_at: Instant::now() + LOOK_EVERY,
        };
        liveness.set_timer()?;
        Ok(liveness)
    }

    /// Returns the memory in which each rank holds a futex word; none if disabled.
    pub fn descriptor(&self) -> io::Result<Option<OwnedFd>> {
        let lives = self.lives.as_ref().map(|(lives, _)| lives.duplicate_fd());
        lives
            .transpose()
            .map_err(|error| io::Error::other(error.to_string()))
    }

    /// Readable when [`Liveness::dying`] has news.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Readable when a check is due.
    pub fn timer(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// If a check for stopped ranks is due, returns by how much it is late:
    /// time in which this process did not run itself. Schedules the next check.
    pub fn due_since(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let late = now.checked_duration_since(self.look_at)?;
        self.look_at = now + LOOK_EVERY;
        Some(late)
    }

    fn set_timer(&self) -> io::Result<()> {
        let wait = if self.unclear.is_empty() {
            let wait = self.look_at.saturating_duration_since(Instant::now());
            // Zero would disarm the timer.
            wait.max(Duration::from_nanos(1))
        } else {
            SETTLE
        };
        let it_value = Timespec {
            tv_sec: wait.as_secs().cast_signed(),
            tv_nsec: wait.subsec_nanos().into(),
        };
        let it_interval = Timespec::default();
        let times = Itimerspec {
            it_interval,
            it_value,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &times)?;
        Ok(())
    }

    /// Returns the ranks that are ending, by number on the host, and how.
    /// `process` returns the process of a rank that is still of interest.
    pub fn dying(
        &mut self,
        process: impl Fn(usize) -> Option<u32>,
    ) -> io::Result<Vec<(usize, How)>> {
        let mut bytes = [0; 8];
        let _ = read(&*self.bell, &mut bytes);
        let _ = read(&self.timer, &mut bytes);
        for index in self.lost.try_iter() {
            self.unclear.entry(index).or_insert_with(Instant::now);
        }
        let mut ends = Vec::new();
        self.unclear.retain(|&index, since| {
            let Some(pid) = process(index) else {
                return false;
            };
            let how = how_it_ends(Condition::of(pid), since.elapsed());
            ends.extend(how.map(|how| (index, how)));
            how.is_none()
        });
        self.set_timer()?;
        Ok(ends)
    }
}

/// Classifies the end of a process that has released its futex word; none: check again.
fn how_it_ends(condition: Option<Condition>, waited: Duration) -> Option<How> {
    match condition {
        None => Some(How::Gone),
        Some(it) if it.status != 0 => Some(How::of_status(it.status)),
        Some(it) if it.ending => Some(How::Exited(0)),
        // A core dump precedes the mark of the end.
        Some(_) if waited < REPLACED_AFTER => None,
        Some(_) => Some(How::Replaced),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_apart() {
        let of = |stopped, ending, status| {
            Some(Condition {
                state: 'R',
                stopped,
                ending,
                started: 0,
                status,
            })
        };
        assert_eq!(how_it_ends(None, Duration::ZERO), Some(How::Gone));
        assert_eq!(
            how_it_ends(of(false, true, 9), Duration::ZERO),
            Some(How::Killed(9))
        );
        assert_eq!(
            how_it_ends(of(false, false, 0x86), Duration::ZERO),
            Some(How::Killed(6)),
            "with a core"
        );
        assert_eq!(
            how_it_ends(of(false, true, 0x300), Duration::ZERO),
            Some(How::Exited(3))
        );
        assert_eq!(
            how_it_ends(of(false, true, 0), Duration::ZERO),
            Some(How::Exited(0))
        );
        assert_eq!(how_it_ends(of(false, false, 0), Duration::ZERO), None);
        assert_eq!(
            how_it_ends(of(false, false, 0), REPLACED_AFTER),
            Some(How::Replaced)
        );
    }

    #[test]
    fn a_rank_that_goes_without_a_word_is_reported_once() {
        let mut liveness = Liveness::start(2).unwrap();
        let lives = Lives::from_fd(liveness.descriptor().unwrap().unwrap()).unwrap();
        let pulse = portolan_sys::lives::Pulse::new(lives, 1).unwrap();
        let theirs = pulse.clone();
        std::thread::spawn(move || std::mem::forget(theirs.hold().unwrap()))
            .join()
            .unwrap();
        // This process runs on, so in the end it counts as another program.
        let ends = loop {
            let ends = liveness.dying(|_| Some(std::process::id())).unwrap();
            if !ends.is_empty() {
                break ends;
            }
            std::thread::sleep(SETTLE);
        };
        assert_eq!(ends, [(1, How::Replaced)]);
        assert_eq!(liveness.dying(|_| Some(1)).unwrap(), []);
        drop(pulse);
    }
}
