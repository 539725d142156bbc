//! Closing sockets that somebody else may have put descriptors into. Whoever
//! discards those closes them, which may take as long as their sender likes: a
//! socket with `SO_LINGER`, a file of a file system that does not answer.

use std::fs::exists;
use std::mem::{forget, take};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::mpsc::channel;
use std::thread::Builder;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::socket_acceptconn;
use rustix::thread::{UnshareFlags, gettid, unshare_unsafe};

use crate::features::Disabled;
use crate::net::set_option;
use crate::process::option;
use crate::raw::{number, syscall};

const SOL_SOCKET: i32 = 1;
const SO_PASSRIGHTS: i32 = 83;

/// A thread that has not ended after this is not waited for any longer.
const THREAD_WAIT: Duration = Duration::from_secs(1);
const STACK_BYTES: usize = 64 << 10;

/// Has the kernel refuse descriptors that are sent to `socket`, or to one that it
/// accepts (`SO_PASSRIGHTS`), unless that is switched off.
///
/// # Errors
/// `NOPROTOOPT` before Linux 6.16.
pub fn refuse_descriptors(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    if Disabled::from_env().is_ok_and(|it| it.passrights) {
        return Ok(());
    }
    set_option(socket, SOL_SOCKET, SO_PASSRIGHTS, 0)
}

/// Lets descriptors be sent to `socket` again, which [`refuse_descriptors`] has had them refused.
///
/// # Errors
/// `NOPROTOOPT` before Linux 6.16, where they never were.
pub fn admit_descriptors(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    set_option(socket, SOL_SOCKET, SO_PASSRIGHTS, 1)
}

/// Whether descriptors may be sent to `socket`. One that was accepted has it from its listener,
/// as that was when the other side connected.
///
/// # Errors
/// `NOPROTOOPT` before Linux 6.16, where they may.
pub fn admits_descriptors(socket: BorrowedFd<'_>) -> Result<bool, Errno> {
    option(socket, SO_PASSRIGHTS as usize).map(|[admits]| admits != 0)
}

/// Whether nobody can have sent a descriptor to `socket`, nor to what waits there to be accepted.
fn is_empty(socket: BorrowedFd<'_>) -> bool {
    admits_descriptors(socket) == Ok(false) && socket_acceptconn(socket) == Ok(false)
}

/// Closes sockets by the end of a thread that has nothing else. No socket lingers
/// then, and what blocks nevertheless keeps that thread alone.
#[derive(Debug, Default)]
pub struct Closer {
    waiting: Vec<OwnedFd>,
    /// The thread that closed last, and since when.
    last: Option<(i32, Instant)>,
}

impl Closer {
    /// Takes `socket`, to be closed by [`Closer::close`], or at the end. Take it out
    /// of every epoll set before: it may stay open for as long as somebody likes.
    /// One to which the kernel [refuses](refuse_descriptors) descriptors is closed at
    /// once, and costs no thread.
    pub fn take(&mut self, socket: impl Into<OwnedFd>) {
        let socket = socket.into();
        if !is_empty(socket.as_fd()) {
            self.waiting.push(socket);
        }
    }

    /// Whether nothing waits for [`Closer::close`].
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many wait for [`Closer::close`].
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Closes what waits, unless the thread before has not ended: at most one a
    /// second is begun then.
    pub fn close(&mut self) {
        let is_busy = |(thread, since): &(i32, Instant)| {
            since.elapsed() < THREAD_WAIT
                && exists(format!("/proc/self/task/{thread}")).unwrap_or(false)
        };
        if self.is_idle() || self.last.as_ref().is_some_and(is_busy) {
            return;
        }
        let mut numbers: Vec<RawFd> = self.waiting.iter().map(AsRawFd::as_raw_fd).collect();
        numbers.sort_unstable();
        let (say, said) = channel();
        let (hand, handed) = channel::<Vec<OwnedFd>>();
        let work = move || {
            let _ = say.send((gettid().as_raw_nonzero().get(), keep_only(&numbers)));
            // Nothing, once those of the other threads are closed; or all, where
            // this thread has no table of its own.
            drop(handed.recv());
        };
        // Without a thread they wait on.
        let Ok(_) = Builder::new().stack_size(STACK_BYTES).spawn(work) else {
            return;
        };
        let Ok((thread, is_apart)) = said.recv() else {
            return;
        };
        self.last = Some((thread, Instant::now()));
        let sockets = take(&mut self.waiting);
        if is_apart {
            // The thread has them too: nothing ends by this.
            drop(sockets);
        } else {
            let _ = hand.send(sockets);
        }
    }
}

/// What waits for a thread that has not ended is left to the end of the process.
impl Drop for Closer {
    fn drop(&mut self) {
        self.close();
        take(&mut self.waiting).into_iter().for_each(forget);
    }
}

/// Gives the calling thread a table of descriptors of its own, with `numbers`
/// alone, which are in order. False: it has none.
fn keep_only(numbers: &[RawFd]) -> bool {
    // SAFETY: the caller uses no descriptor from now on but those that it is
    // handed where this fails, and ends.
    if unsafe { unshare_unsafe(UnshareFlags::FILES) }.is_err() {
        return false;
    }
    let numbers = numbers.iter().map(|it| it.unsigned_abs());
    let mut from = 0;
    for kept in numbers.chain([u32::MAX]) {
        if from < kept {
            let args = [from as usize, kept as usize - 1, 0, 0, 0, 0];
            // SAFETY: these numbers are of this thread's table, which nobody uses.
            let _ = unsafe { syscall(number::CLOSE_RANGE, args) };
        }
        from = kept.saturating_add(1);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use rustix::io::{FdFlags, fcntl_getfd};
    use rustix::net::sockopt::set_socket_linger;

    use crate::socket;

    const LINGER: Duration = Duration::from_secs(3);

    /// A socket whose close takes so long, unless its peer is closed.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[0; 1 << 16]).is_ok() {}
        socket.set_nonblocking(false).unwrap();
        set_socket_linger(&socket, Some(LINGER)).unwrap();
        (socket.into(), peer)
    }

    #[test]
    fn what_can_hold_no_descriptor_needs_no_thread() {
        let name = format!("portolan-test-closing-{}", std::process::id());
        let listener = socket::listen(&name, 4).unwrap();
        let _ = admit_descriptors(listener.as_fd());
        let early = socket::call(&name).unwrap();
        let refuses = refuse_descriptors(listener.as_fd()).is_ok();
        let late = socket::call(&name).unwrap();
        let accepted = [(); 2].map(|()| socket::accept(listener.as_fd()).unwrap().unwrap());
        // What was there before may hold some.
        let sent = [&early, &late].map(|it| {
            let sent = socket::send(it.as_fd(), b"?", &[it.as_fd()], false);
            sent.is_ok()
        });
        assert_eq!(sent, [true, !refuses]);
        let mut closer = Closer::default();
        let [first, second] = accepted;
        closer.take(first);
        assert_eq!(closer.waiting(), 1);
        closer.take(second);
        assert_eq!(closer.waiting(), 1 + usize::from(!refuses));
        let waiting = closer.waiting();
        closer.take(listener);
        assert_eq!(closer.waiting(), waiting + 1);
        let again = socket::pair().unwrap().0;
        let _ = refuse_descriptors(again.as_fd());
        let _ = admit_descriptors(again.as_fd());
        closer.take(again);
        assert_eq!(closer.waiting(), waiting + 2);
        while !closer.is_idle() {
            closer.close();
        }
    }

    #[test]
    fn what_lingers_keeps_nobody() {
        let (socket, _peer) = lingering();
        let start = Instant::now();
        drop(socket);
        assert!(start.elapsed() >= LINGER, "it does not linger");
        let (sockets, peers): (Vec<_>, Vec<_>) = (0..3).map(|_| lingering()).unzip();
        let start = Instant::now();
        let mut closer = Closer::default();
        for socket in sockets {
            closer.take(socket);
            closer.close();
        }
        while !closer.is_idle() {
            closer.close();
        }
        assert!(start.elapsed() < LINGER / 3, "{:?}", start.elapsed());
        // Others' descriptors stay.
        assert!(
            peers
                .iter()
                .all(|it| fcntl_getfd(it) == Ok(FdFlags::CLOEXEC))
        );
    }
}
