//! Waiting for one of many descriptors.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

/// Waits for `timeout`, or for ever, until descriptors in a set are ready.
/// Returns some of them: the word under which each was added, and its events.
pub(crate) fn ready(
    set: impl AsFd,
    timeout: Option<Duration>,
) -> io::Result<Vec<(u64, EventFlags)>> {
    let none = epoll::Event {
        flags: EventFlags::empty(),
        data: EventData::new_u64(0),
    };
    let mut events = [none; 64];
    let timeout = timeout.map(|t| Timespec {
        tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: t.subsec_nanos().into(),
    });
    let n = match epoll::wait(&set, &mut events[..], timeout.as_ref()) {
        // As after a stop: time has passed, and more may be ready.
        Err(Errno::INTR) => match epoll::wait(&set, &mut events[..], Some(&Timespec::default())) {
            Err(Errno::INTR) => 0,
            other => other?,
        },
        other => other?,
    };
    let event = |e: &epoll::Event| (e.data.u64(), { e.flags });
    Ok(events[..n].iter().map(event).collect())
}

/// Returns descriptors that are ready now.
pub(crate) fn ready_now(set: impl AsFd) -> io::Result<Vec<(u64, EventFlags)>> {
    ready(set, Some(Duration::ZERO))
}
