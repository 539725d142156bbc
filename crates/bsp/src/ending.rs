//! Ends of a program other than by bsp_end, and their messages.

use std::ffi::{c_int, c_uint, c_void};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::source;

/// Exit code of an aborted program.
const ABORTED: i32 = 1;

/// Longest search for the line of a call, s. The search takes up to half a second on a busy
/// machine.
const LOOKS_S: c_uint = 10;
const SIGALRM: c_int = 14;

/// Name of this process in messages, once known.
static NAME: Mutex<String> = Mutex::new(String::new());
/// Set when this process ends with an error.
static ENDS: AtomicBool = AtomicBool::new(false);
/// Process that is watched, and a function that returns whether it exits too early. A child
/// that it forks may exit.
static WATCHED: OnceLock<(u32, fn() -> bool)> = OnceLock::new();

unsafe extern "C" {
    fn _exit(code: c_int) -> !;
    // glibc: on_exit passes the exit code to the handler, which atexit does not.
    fn on_exit(handler: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    fn fflush(stream: *mut c_void) -> c_int;
    fn alarm(seconds: c_uint) -> c_uint;
    fn signal(number: c_int, handler: extern "C" fn(c_int)) -> usize;
}

/// Reports an error and ends the program: the launcher ends all processes when one ends so.
#[cold]
pub fn abort(call: &str, why: &str) -> ! {
    if call == "bsp_abort" {
        // The program's own text is printed as it is.
        end_all(&format!("{call}: {why}"));
    }
    let again = ENDS.swap(true, Ordering::Relaxed);
    // Written before the search for the line, which takes a while: the launcher may end this
    // process meanwhile.
    write(&format!("{}{call}: {why}", name()));
    // Where memory is short, the search may wait for ever.
    // SAFETY: the handler ends the process, and calls nothing else.
    unsafe {
        signal(SIGALRM, out_of_time);
        alarm(LOOKS_S);
    }
    let line = source::line(call);
    // SAFETY: as above.
    unsafe { alarm(0) };
    write(&line.map_or_else(|| "\n".to_owned(), |line| format!(" ({line})\n")));
    exit(again)
}

extern "C" fn out_of_time(_: c_int) {
    end_now();
}

/// Ends the program; the message lacks the line of the call.
#[cold]
pub fn end_all(text: &str) -> ! {
    let again = ENDS.swap(true, Ordering::Relaxed);
    say(text);
    exit(again)
}

/// Ends the program without a message: another process reports why.
pub fn end_silently() -> ! {
    exit(ENDS.swap(true, Ordering::Relaxed))
}

fn exit(again: bool) -> ! {
    if again {
        // In an exit handler of a program that is already ending.
        end_now();
    }
    std::process::exit(ABORTED);
}

/// Ends the process without its exit handlers.
pub fn end_now() -> ! {
    // SAFETY: only ends the process.
    unsafe { _exit(ABORTED) };
}

/// Prints a line in one write, as other processes may print at the same time.
pub fn say(text: &str) {
    write(&format!("{}{text}\n", name()));
}

fn name() -> String {
    let name = NAME.lock().unwrap_or_else(PoisonError::into_inner);
    let child = match WATCHED.get() {
        Some((process, _)) if *process != std::process::id() => "a forked child of ",
        _ => "",
    };
    format!("bsp: {child}{name}")
}

fn write(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Names this process in messages from now on. If it exits while `ends_early` returns true,
/// it reports that bsp_end is missing, and its exit code is not 0.
pub fn watch(name: String, ends_early: fn() -> bool) {
    *NAME.lock().unwrap_or_else(PoisonError::into_inner) = name;
    if WATCHED.set((std::process::id(), ends_early)).is_ok() {
        // SAFETY: the handler is as glibc calls it, and lives as long as this library, which
        // has threads and is not unloaded.
        unsafe { on_exit(exits, std::ptr::null_mut()) };
    }
}

extern "C" fn exits(code: c_int, _: *mut c_void) {
    let Some((process, ends_early)) = WATCHED.get() else {
        return;
    };
    if *process != std::process::id() || ENDS.load(Ordering::Relaxed) || !ends_early() {
        return;
    }
    say(&format!("it has ended without bsp_end: exit code {code}"));
    if code == 0 {
        // SAFETY: writes the program's buffered output, as exit would.
        unsafe { fflush(std::ptr::null_mut()) };
        end_now();
    }
}
