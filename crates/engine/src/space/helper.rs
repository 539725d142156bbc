//! The helper thread: keeps the network going while the program makes no
//! calls. It moves data only; handlers run in the program's calls, but for
//! those of ports that were opened for any thread.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use portolan_ring::HelperGuard;
use portolan_sys::lives::Pulse;

use super::Inner;
use crate::config::OpenError;
use crate::sleep::Woken;
use crate::state::State;

/// Longest pause between two looks at a program that calls now and then, and at one that polls,
/// ns. A look takes the program's core for a moment, where all cores poll: a thousand a second
/// cost a tenth of its messages.
const PERIOD_MAX_NS: [u64; 2] = [1_000_000, 4_000_000];
/// A program polls that makes a call in each such time, ns.
const POLLS_NS: u64 = 10_000;

/// The longest pause behind one of so many ns, in which the program has made so many calls.
fn longest_after(pause_ns: u64, calls: u32) -> u64 {
    let polls = u64::from(calls) * POLLS_NS >= pause_ns.max(POLLS_NS);
    PERIOD_MAX_NS[usize::from(polls)]
}

/// Shortest and longest pause between two passes while a long message comes, ns.
/// A computing program loses a third of its core to packets that come every 58 us
/// (200 Mbit/s) and are taken one by one, a seventh where eight are taken at once.
const PAUSES_NS: [u64; 2] = [50_000, 500_000];
/// A pause is longer after a pass that has moved fewer packets, and shorter after
/// one that has moved more.
const MOVES: [usize; 2] = [8, 24];

/// The pauses while the program is away.
#[derive(Clone, Copy, Debug, Default)]
struct Pauses {
    ns: u64,
}

impl Pauses {
    /// The pause after a pass that has moved so many packets, ns; 0 for none.
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

/// The thread; it ends when this is dropped.
pub(crate) struct Helper {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    /// Starts it; `pulse` says as long as it runs that this process lives.
    pub fn start(inner: &Arc<Inner>, pulse: Option<Pulse>) -> Result<Self, OpenError> {
        let theirs = Arc::clone(inner);
        let watched = pulse.is_some();
        let (holds, held) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("portolan-helper".to_owned())
            .stack_size(256 << 10)
            .spawn(move || {
                // Without it the process's descriptor still tells of its end.
                let _held = pulse.as_ref().and_then(|pulse| pulse.hold().ok());
                drop(holds);
                run(&theirs);
            })
            .map_err(OpenError::Thread)?;
        if watched {
            // A process that ends from now on is missed at once. Nothing is
            // ever sent: the channel closes.
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
        // Where a handler of any thread's drops the endpoint the thread is its own.
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
        let away = || !stopped() && inner.state.calls() == calls;
        while away() && help(inner, away, &mut pauses) {
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

/// Lets what waits for more of its kind leave. If the program is in a call, it is looked
/// at again as soon.
fn send_gathered(inner: &Inner) {
    if let Some(mut s) = inner.state.try_help() {
        s.flush();
        s.sleep.ask_no_more();
    }
}

/// The helper's hold of the endpoint.
type Hold<'e> = HelperGuard<'e, State>;

/// Takes the endpoint, unless the program has it or sleeps on its own.
fn take(inner: &Inner) -> Option<Hold<'_>> {
    inner.state.try_help().filter(|s| !s.sleep.is_led())
}

/// Moves what there is, then sleeps until there is more; false if the program
/// does that itself. `away`: it has made no call since, and the helper is not to end.
fn help(inner: &Inner, away: impl Fn() -> bool, pauses: &mut Pauses) -> bool {
    let Some(s) = take(inner) else {
        return false;
    };
    match move_all(inner, s, away, pauses) {
        Moved::All(s) => sleep(inner, s),
        Moved::Wanted => false,
        Moved::Back => true,
    }
}

/// Why the helper moves no more.
enum Moved<'e> {
    /// There is nothing.
    All(Hold<'e>),
    /// The program waits for the endpoint.
    Wanted,
    /// It had it, or makes progress itself, after a pause.
    Back,
}

/// Moves what there is, with pauses where it comes in parts of long messages.
fn move_all<'e>(
    inner: &'e Inner,
    mut s: Hold<'e>,
    away: impl Fn() -> bool,
    pauses: &mut Pauses,
) -> Moved<'e> {
    s.core.run = false;
    loop {
        let long_parts = s.core.long_parts;
        let moved = s.pass();
        if moved == 0 {
            return Moved::All(s);
        }
        s.core.counters.helped += 1;
        if s.is_wanted() {
            s.core.run = true;
            return Moved::Wanted;
        }
        if s.core.long_parts == long_parts {
            continue;
        }
        let pause = pauses.after(moved);
        if pause == 0 {
            continue;
        }
        s.core.run = true;
        drop(s);
        inner.wait_set.pause(pause);
        s = match take(inner) {
            Some(s) if away() => s,
            _ => return Moved::Back,
        };
        s.core.run = false;
    }
}

/// Sleeps until there is something; false if the program makes progress itself.
fn sleep(inner: &Inner, mut s: Hold<'_>) -> bool {
    let idle = s.prepare(None);
    s.core.run = true;
    let Some(idle) = idle else {
        return true;
    };
    s.sleep.helper_sleeps(idle.due);
    drop(s);
    // An error would be ours; then the next look comes after a pause.
    let slept = inner.wait_set.help(idle.timeout);
    let Some(mut s) = inner.state.try_help() else {
        return false;
    };
    s.sleep.helper_is_up();
    if s.sleep.is_led() {
        return false;
    }
    s.awake(&Woken::from(&inner.wait_set.events, Some(0)));
    slept.is_ok()
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
        // One packet every so many ns, which a pass takes no time for.
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
