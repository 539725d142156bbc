//! Closing sockets that somebody else may have put descriptors into. Whoever
//! discards those closes them, which may take as long as their sender likes: a
//! socket with `SO_LINGER`, a file of a file system that does not answer.

use std::fs::{DirEntry, exists, read_dir, read_link};
use std::mem::{forget, take};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
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
/// then, and what blocks nevertheless keeps that thread alone. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Closer(Arc<CloseQueue>);

#[derive(Debug, Default)]
struct CloseQueue {
    waiting: Mutex<Waiting>,
    /// How many wait, to be seen without the lock.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Waiting {
    all: Vec<OwnedFd>,
    /// The thread that closed last, and since when.
    last: Option<(i32, Instant)>,
}

impl Closer {
    /// Takes `socket`, to be closed by [`Closer::close`], or at the end. Take it out
    /// of every epoll set before: it may stay open for as long as somebody likes.
    /// One to which the kernel [refuses](refuse_descriptors) descriptors is closed at
    /// once, and costs no thread.
    pub fn take(&self, socket: impl Into<OwnedFd>) {
        let socket = socket.into();
        if !is_empty(socket.as_fd()) {
            self.take_foreign(socket);
        }
    }

    /// Takes a socket that somebody else has made: what it refuses now it may have admitted
    /// before.
    pub fn take_foreign(&self, socket: OwnedFd) {
        self.change(|waiting| waiting.all.push(socket));
    }

    fn change(&self, change: impl FnOnce(&mut Waiting)) {
        let mut waiting = self
            .0
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        change(&mut waiting);
        self.0.count.store(waiting.all.len(), Relaxed);
    }

    /// How many wait for [`Closer::close`].
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.count.load(Relaxed)
    }

    /// Whether nothing waits for [`Closer::close`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Closes what waits, unless the thread before has not ended: at most one a
    /// second is begun then.
    pub fn close(&self) {
        self.change(Waiting::close);
    }
}

impl Waiting {
    fn close(&mut self) {
        let is_busy = |(thread, since): &(i32, Instant)| {
            since.elapsed() < THREAD_WAIT
                && exists(format!("/proc/self/task/{thread}")).unwrap_or(false)
        };
        if self.all.is_empty() || self.last.as_ref().is_some_and(is_busy) {
            return;
        }
        let mut numbers: Vec<RawFd> = self.all.iter().map(AsRawFd::as_raw_fd).collect();
        numbers.sort_unstable();
        let (say, said) = channel();
        let (hand, handed) = channel::<Vec<OwnedFd>>();
        let work = move || {
            // SAFETY: this thread uses no descriptor from now on but those that it is
            // handed where this fails, and ends.
            let is_apart = unsafe { unshare_unsafe(UnshareFlags::FILES) }.is_ok();
            // Nobody waits for what comes now: closing another's file may block too.
            let _ = say.send((gettid().as_raw_nonzero().get(), is_apart));
            if is_apart {
                keep_only(&numbers);
            }
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
        let sockets = take(&mut self.all);
        if is_apart {
            // The thread has them too: nothing ends by this.
            drop(sockets);
        } else {
            let _ = hand.send(sockets);
        }
    }
}

/// What waits for a thread that has not ended is left to the end of the process.
impl Drop for Waiting {
    fn drop(&mut self) {
        self.close();
        take(&mut self.all).into_iter().for_each(forget);
    }
}

/// Closes all but `numbers`, which are in order, in the calling thread's own table of
/// descriptors. Files come last: a file system that does not answer (FUSE, NFS) keeps each that
/// closes one, and a socket or a pipe that stayed open meanwhile would keep its peer.
fn keep_only(numbers: &[RawFd]) {
    let is_kept = |number: &RawFd| numbers.binary_search(number).is_ok();
    let pathless = |entry: DirEntry| {
        let to = read_link(entry.path()).ok()?;
        let number: RawFd = entry.file_name().to_str()?.parse().ok()?;
        (!to.starts_with("/") && !is_kept(&number)).then_some(number)
    };
    let listed = read_dir("/proc/thread-self/fd").into_iter().flatten();
    let first: Vec<RawFd> = listed.flatten().filter_map(pathless).collect();
    let close = |from: u32, to: u32| {
        let args = [from as usize, to as usize, 0, 0, 0, 0];
        // SAFETY: these numbers are of this thread's table, which nobody uses.
        let _ = unsafe { syscall(number::CLOSE_RANGE, args) };
    };
    for number in first {
        close(number.unsigned_abs(), number.unsigned_abs());
    }
    let numbers = numbers.iter().map(|it| it.unsigned_abs());
    let mut from = 0;
    for kept in numbers.chain([u32::MAX]) {
        if from < kept {
            close(from, kept - 1);
        }
        from = kept.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc::Receiver;

    use rustix::io::{FdFlags, fcntl_getfd};
    use rustix::net::sockopt::set_socket_linger;

    use crate::shared_doorbell::Ringer;
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
        let closer = Closer::default();
        let [first, second] = accepted;
        closer.take(first);
        assert_eq!(closer.len(), 1);
        closer.take(second);
        assert_eq!(closer.len(), 1 + usize::from(!refuses));
        let waiting = closer.len();
        closer.take(listener);
        assert_eq!(closer.len(), waiting + 1);
        let again = socket::pair().unwrap().0;
        let _ = refuse_descriptors(again.as_fd());
        let _ = admit_descriptors(again.as_fd());
        closer.take(again);
        assert_eq!(closer.len(), waiting + 2);
        while !closer.is_empty() {
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
        let closer = Closer::default();
        for socket in sockets {
            closer.take(socket);
            closer.close();
        }
        while !closer.is_empty() {
            closer.close();
        }
        assert!(start.elapsed() < LINGER / 3, "{:?}", start.elapsed());
        // A doorbell that somebody else has made holds one, though it refuses them by now.
        let (socket, _peer) = lingering();
        let (bell, ringer) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::DGRAM,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        socket::send(bell.as_fd(), b"?", &[socket.as_fd()], false).unwrap();
        drop((bell, socket));
        let _ = refuse_descriptors(ringer.as_fd());
        let start = Instant::now();
        drop(Ringer::foreign(ringer, &closer).unwrap());
        closer.close();
        drop(closer);
        assert!(start.elapsed() < LINGER / 3, "{:?}", start.elapsed());
        // Others' descriptors stay.
        assert!(
            peers
                .iter()
                .all(|it| fcntl_getfd(it) == Ok(FdFlags::CLOEXEC))
        );
    }

    /// Serves a file system of one file, whose flush at each close it leaves unanswered until
    /// `go_on` closes, and then counts it. It must not wait for ever: nobody could kill this
    /// process then. See fuse(4) and the kernel's fuse.h.
    fn serve_slow_files(device: &File, go_on: &Receiver<()>, flushed: &AtomicU32) {
        const LOOKUP: u32 = 1;
        const GETATTR: u32 = 3;
        const OPEN: u32 = 14;
        const FLUSH: u32 = 25;
        const INIT: u32 = 26;
        const FORGET: u32 = 2;
        let attributes = |number: u64| {
            let mode = if number == 1 { 0o40_755 } else { 0o100_666 };
            [number, 0, 0, 0, 0, 0, 0, mode << 32, 1, 0, 4096]
        };
        let mut request = vec![0; 1 << 20];
        while let Ok(bytes) = (&*device).read(&mut request) {
            let word = |at: usize| u64::from_le_bytes(request[at..at + 8].try_into().unwrap());
            let (op, unique, node) = ((word(0) >> 32) as u32, word(8), word(16));
            assert!(bytes >= 40);
            let (error, words): (u64, Vec<u64>) = match op {
                // Version 7.31; few requests at once, of at most 4,096 bytes.
                INIT => (
                    0,
                    vec![31 << 32 | 7, 4096, 4096 << 32 | 9 << 16 | 12, 1, 0, 0, 0, 0],
                ),
                LOOKUP => (0, [&[2, 0, 100, 100, 0][..], &attributes(2)].concat()),
                GETATTR => (0, [&[100, 0][..], &attributes(node)].concat()),
                OPEN => (0, vec![7, 0]),
                FLUSH => {
                    let _ = go_on.recv_timeout(10 * LINGER);
                    flushed.fetch_add(1, Ordering::Relaxed);
                    (0, Vec::new())
                }
                FORGET => continue,
                // ENOSYS
                _ => (38, Vec::new()),
            };
            let length = 16 + 8 * words.len() as u64;
            let error = u64::from((error as i32).wrapping_neg().cast_unsigned());
            let answer = [&[error << 32 | length, unique][..], &words].concat();
            let answer: Vec<u8> = answer.iter().flat_map(|word| word.to_le_bytes()).collect();
            let _ = (&*device).write_all(&answer);
        }
    }

    #[test]
    fn a_file_system_that_does_not_answer_keeps_nobody() {
        let device = File::options().read(true).write(true).open("/dev/fuse");
        let Ok(device) = device else {
            eprintln!("*** A FILE SYSTEM THAT DOES NOT ANSWER DID NOT RUN: needs /dev/fuse ***");
            return;
        };
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0",
            device.as_raw_fd()
        );
        let options = std::ffi::CString::new(options).unwrap();
        let (go_on, wait) = channel();
        let flushed = Arc::new(AtomicU32::new(0));
        // Its mounts go with this thread.
        std::thread::spawn(move || {
            // SAFETY: what the kernel reads lives beyond the calls; descriptors stay shared.
            let mounted = unsafe {
                unshare_unsafe(UnshareFlags::NEWNS).unwrap();
                let (private, none) = (libc::MS_REC | libc::MS_PRIVATE, std::ptr::null());
                libc::mount(c"none".as_ptr(), c"/".as_ptr(), none, private, none.cast());
                let data = options.as_ptr().cast();
                libc::mount(
                    c"slow".as_ptr(),
                    c"/mnt".as_ptr(),
                    c"fuse".as_ptr(),
                    0,
                    data,
                )
            };
            assert_eq!(mounted, 0, "{}", std::io::Error::last_os_error());
            let count = Arc::clone(&flushed);
            std::thread::spawn(move || serve_slow_files(&device, &wait, &count));
            let file = File::open("/mnt/file").unwrap();
            let (socket, peer) = socket::pair().unwrap();
            let closer = Closer::default();
            closer.take_foreign(socket);
            closer.close();
            assert!(closer.is_empty());
            // Sockets of others are not among what stays open meanwhile.
            let (other, end) = socket::pair().unwrap();
            drop(other);
            assert!(socket::receive(end.as_fd(), true).unwrap().is_none());
            assert_eq!(flushed.load(Ordering::Relaxed), 0, "nobody waits for it");
            drop(go_on);
            assert!(socket::receive(peer.as_fd(), true).unwrap().is_none());
            drop(file);
        })
        .join()
        .unwrap();
    }
}
