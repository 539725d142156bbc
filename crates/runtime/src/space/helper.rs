//! The helper thread: keeps the network going while the program makes no calls. It moves data only;
//! handlers run in the program's calls, except those of ports that any thread may run.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use portolan_ring::HelperGuard;
use portolan_sys::clock::now_ns;
use portolan_sys::lives::Pulse;

use super::Inner;
use crate::config::OpenError;
use crate::sleep::Woken;
use crate::state::State;

/// Longest pause between two checks of a program that calls now and then, and of one that polls,
/// ns. A check takes the program's core for a moment, if all cores poll: a thousand a second cost a
/// tenth of its messages.
const PERIOD_MAX_NS: [u64; 2] = [1_000_000, 4_000_000];
/// A program that makes a call in each such time polls, ns.
const POLLS_NS: u64 = 10_000;

/// Whether a program that has made `calls` calls in `ns` ns polls.
fn polls(calls: u32, ns: u64) -> bool {
    u64::from(calls) * POLLS_NS >= ns.max(POLLS_NS)
}

/// Longest pause after one of `pause_ns`, in which the program has made `calls` calls, ns.
fn longest_after(pause_ns: u64, calls: u32) -> u64 {
    PERIOD_MAX_NS[usize::from(polls(calls, pause_ns))]
}

/// Shortest and longest pause between two passes while a long message arrives, ns. A computing
/// program loses a third of its core to packets that come every 58 us (200 Mbit/s) and are taken
/// one by one, a seventh if eight are taken at once.
const PAUSES_NS: [u64; 2] = [50_000, 500_000];
/// Packets per pass below which the pause grows, and above which it shrinks.
const MOVES: [usize; 2] = [8, 24];

/// The pauses while the program is away.
#[derive(Clone, Copy, Debug, Default)]
struct Pauses {
    ns: u64,
}

impl Pauses {
    /// Returns the pause after a pass that has moved `moved` packets, ns; 0 for none.
    fn after(&mut self, moved: usize) -> u64 {
        let [shortest, longest] = PAUSES_NS;
        let [few, many] = MOVES;
        if moved < few {
            self.ns = (2 * self.ns).clamp(shortest, longest);
        } else if moved > many {
            self.ns /= 2;
            if self.ns < shortest {
                self.ns = 0;
            }
        }
        self.ns
    }
}

/// The helper thread; it ends when this is dropped.
pub(crate) struct Helper {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    /// Starts the thread; `pulse` shows as long as it runs that this process lives.
    pub fn start(inner: &Arc<Inner>, pulse: Option<Pulse>) -> Result<Self, OpenError> {
        let theirs = Arc::clone(inner);
        let watched = pulse.is_some();
        let (holds, held) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("portolan-helper".to_owned())
            .stack_size(256 << 10)
            .spawn(move || {
                // Without the pulse the process's pidfd still reports its end.
                let _held = pulse.as_ref().and_then(|pulse| pulse.hold().ok());
                drop(holds);
                // If that is not permitted, the helper takes over 50 us later.
                let _ = portolan_sys::slice::end_sleeps_on_time();
                run(&theirs);
            })
            .map_err(OpenError::Thread)?;
        if watched {
            // Waits until the pulse is held: from then on the process's end is noticed at once.
            // Nothing is ever sent: the channel closes.
            let _ = held.recv();
        }
        Ok(Self {
            inner: Arc::clone(inner),
            thread: Some(thread),
        })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.inner.wait_set.stop_helper();
        // A handler that the helper runs may drop the endpoint: then the thread is this one.
        let other = |it: &JoinHandle<()>| it.thread().id() != std::thread::current().id();
        if let Some(thread) = self.thread.take().filter(other) {
            // Its panic would be a bug of ours, reported by the thread itself.
            let _ = thread.join();
        }
    }
}

fn run(inner: &Inner) {
    let stopped = || inner.wait_set.is_stopped();
    let mut period = inner.takeover_ns;
    let mut calls = inner.state.calls();
    let mut pauses = Pauses::default();
    while !stopped() {
        if !inner.wait_set.nap(period) {
            send_gathered(inner);
            continue;
        }
        let mut helped = false;
        while !stopped() && inner.state.calls() == calls && help(inner, &mut pauses) {
            helped = true;
        }
        let made = inner.state.calls().wrapping_sub(calls);
        let most = longest_after(period, made).max(inner.takeover_ns);
        if inner.state.calls() != calls {
            pauses = Pauses::default();
        }
        let guarded = period >= most && inner.state.calls() == calls && inner.wait_set.guard();
        calls = inner.state.calls();
        period = if helped || guarded {
            inner.takeover_ns
        } else {
            (period * 2).clamp(1, most)
        };
    }
}

/// Sends what waits to share a packet. If the program is in a call, this is soon tried again.
fn send_gathered(inner: &Inner) {
    if let Some(mut s) = inner.state.try_help() {
        s.flush();
        s.sleep.ask_no_more();
    }
}

/// The helper's hold of the endpoint.
type Hold<'e> = HelperGuard<'e, State>;

/// Takes the endpoint, unless the program has it or sleeps on its descriptors.
fn take(inner: &Inner) -> Option<Hold<'_>> {
    inner.state.try_help().filter(|s| !s.sleep.is_led())
}

/// Takes the endpoint when the program's call is over, unless that takes long or the program polls.
fn take_soon(inner: &Inner, calls: u32, since: u64) -> Option<Hold<'_>> {
    let mut pause = POLLS_NS;
    loop {
        inner.wait_set.pause(pause);
        pause *= 2;
        let (made, took) = (inner.state.calls().wrapping_sub(calls), now_ns() - since);
        let held = take(inner);
        let gives_up = polls(made, took) || took >= inner.takeover_ns;
        if held.is_some() || gives_up || inner.wait_set.is_stopped() {
            return held;
        }
    }
}

/// Moves what there is, then sleeps until there is more, as long as the program calls only now and
/// then. Returns false if the program makes progress itself.
fn help(inner: &Inner, pauses: &mut Pauses) -> bool {
    let seen = |calls: u32| (inner.state.calls().wrapping_sub(calls), now_ns());
    let mut held = take(inner);
    while let Some(s) = held {
        let (mut calls, mut since) = seen(0);
        let slept = match move_all(inner, s, pauses) {
            Moved::All(s) => sleep(inner, s),
            Moved::Wanted => Slept::Taken,
            Moved::Back => return true,
        };
        held = match slept {
            Slept::Rung => return true,
            Slept::Up(s) => Some(s),
            Slept::Due => take(inner),
            Slept::Taken => {
                // The program may be in one call, such as one that answers what was moved.
                (calls, since) = seen(0);
                take_soon(inner, calls, since)
            }
        };
        let (made, now) = seen(calls);
        if inner.wait_set.is_stopped() || polls(made, now - since) {
            return held.is_some();
        }
    }
    false
}

/// Why the helper stopped moving data.
enum Moved<'e> {
    /// Nothing is left.
    All(Hold<'e>),
    /// The program waits for the endpoint.
    Wanted,
    /// After a pause, the program has the endpoint, or makes progress itself.
    Back,
}

/// Moves what there is, with pauses while it comes in parts of long messages.
fn move_all<'e>(inner: &'e Inner, mut s: Hold<'e>, pauses: &mut Pauses) -> Moved<'e> {
    let calls = inner.state.calls();
    let away = || !inner.wait_set.is_stopped() && inner.state.calls() == calls;
    s.core.set_run(false);
    loop {
        let long_parts = s.core.long_parts;
        let moved = s.pass();
        if moved == 0 {
            return Moved::All(s);
        }
        s.core.counters.helped += 1;
        if s.is_wanted() {
            s.core.set_run(true);
            return Moved::Wanted;
        }
        if s.core.long_parts == long_parts {
            continue;
        }
        let pause = pauses.after(moved);
        if pause == 0 {
            continue;
        }
        s.core.set_run(true);
        drop(s);
        inner.wait_set.pause(pause);
        s = match take(inner) {
            Some(s) if away() => s,
            _ => return Moved::Back,
        };
        s.core.set_run(false);
    }
}

/// How a sleep has ended.
enum Slept<'e> {
    /// A descriptor is readable, or something is due. The program is in no call.
    Up(Hold<'e>),
    /// The sleep did not begin: there is something to do at once.
    Due,
    /// The program has rung the helper's bell.
    Rung,
    /// The program makes progress itself.
    Taken,
}

/// Sleeps until there is something to do.
fn sleep<'e>(inner: &'e Inner, mut s: Hold<'e>) -> Slept<'e> {
    let idle = s.prepare(None);
    s.core.set_run(true);
    let Some(idle) = idle else {
        return Slept::Due;
    };
    s.sleep.helper_sleeps(idle.due);
    drop(s);
    let slept = inner.wait_set.help(idle.timeout);
    let Some(mut s) = inner.state.try_help() else {
        return Slept::Taken;
    };
    let rung = s.sleep.helper_is_up();
    if s.sleep.is_led() {
        return Slept::Taken;
    }
    s.awake(&Woken::from(&inner.wait_set.events, Some(0)));
    match slept {
        Ok(()) if rung => Slept::Rung,
        Ok(()) => Slept::Up(s),
        // An error would be a bug of ours; the next check then comes after a pause.
        Err(_) => Slept::Taken,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_polls_is_left_alone_for_long() {
        let [often, seldom] = PERIOD_MAX_NS;
        for (calls, longest) in [(0, often), (1, often), (99, often), (100, seldom)] {
            assert_eq!(longest_after(1_000_000, calls), longest, "{calls}");
        }
        assert_eq!((longest_after(1, 0), longest_after(1, 1)), (often, seldom));
    }

    #[test]
    fn pauses_are_as_long_as_some_packets_take() {
        let mut pauses = Pauses::default();
        // One packet every `every` ns; a pass takes no time.
        let mut settle = |every: u64| {
            let mut moved = 1;
            for _ in 0..20 {
                moved = (pauses.after(moved) / every).max(1) as usize;
            }
            pauses.ns
        };
        assert_eq!(settle(58_000), PAUSES_NS[1]);
        for every in [25_000, 12_000, 5_000] {
            let packets = settle(every) / every;
            assert!(
                (MOVES[0]..=MOVES[1]).contains(&(packets as usize)),
                "{every}"
            );
        }
        assert!(settle(1_000) <= PAUSES_NS[0]);
        assert_eq!(pauses.after(1_000), 0);
    }
}
