//! Other processes: whether they live, and their memory.

use std::io::{IoSlice, IoSliceMut};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, WaitId, WaitIdOptions, geteuid, setrlimit, waitid,
};

use crate::raw::{self, syscall};

#[cfg(target_arch = "x86_64")]
mod number {
    pub const GETRUSAGE: usize = 98;
    pub const PRLIMIT64: usize = 302;
    pub const SCHED_SETSCHEDULER: usize = 144;
    pub const PROCESS_VM_READV: usize = 310;
    pub const PROCESS_VM_WRITEV: usize = 311;
    pub const PIDFD_SEND_SIGNAL: usize = 424;
}
#[cfg(target_arch = "aarch64")]
mod number {
    pub const GETRUSAGE: usize = 165;
    pub const PRLIMIT64: usize = 261;
    pub const SCHED_SETSCHEDULER: usize = 119;
    pub const PROCESS_VM_READV: usize = 270;
    pub const PROCESS_VM_WRITEV: usize = 271;
    pub const PIDFD_SEND_SIGNAL: usize = 424;
}

/// Who is at the other end of a connected unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// User, as this user namespace numbers it.
    pub uid: u32,
    /// Process; none where this pid namespace does not see it.
    pub pid: Option<NonZeroU32>,
}

/// Asks the kernel who that is (`SO_PEERCRED`).
///
/// # Errors
/// What `getsockopt` answers.
pub fn peer(socket: BorrowedFd<'_>) -> Result<Peer, Errno> {
    const SO_PEERCRED: usize = 17;
    // `struct ucred`: process, user, group.
    let [pid, uid, _] = option(socket, SO_PEERCRED)?;
    let pid = NonZeroU32::new(pid);
    Ok(Peer { uid, pid })
}

/// Whether the process at the other end of a connected unix socket is of our user.
#[must_use]
pub fn is_of_our_user(socket: BorrowedFd<'_>) -> bool {
    peer(socket).is_ok_and(|who| is_our_user(who.uid))
}

/// Whether a user of whom the kernel tells is ours. A user namespace has one number for all users
/// that it does not know (user_namespaces(7)); who bears that one may be anybody.
#[must_use]
pub fn is_our_user(uid: u32) -> bool {
    uid == geteuid().as_raw() && (uid != number_of_unknown_users() || are_all_users_known())
}

fn number_of_unknown_users() -> u32 {
    let number = std::fs::read_to_string("/proc/sys/kernel/overflowuid");
    let number = number.ok().and_then(|it| it.trim().parse().ok());
    number.unwrap_or(65_534)
}

fn are_all_users_known() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

/// A network namespace, as the kernel tells it apart from all others since it
/// was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network([u32; 2]);

/// That of a socket (`SO_NETNS_COOKIE`): of an accepted Unix socket, the one in
/// which its peer was made.
///
/// # Errors
/// What `getsockopt` answers: `NOPROTOOPT` before Linux 5.14.
pub fn network(socket: BorrowedFd<'_>) -> Result<Network, Errno> {
    const SO_NETNS_COOKIE: usize = 71;
    option(socket, SO_NETNS_COOKIE).map(Network)
}

/// Words of an option of a socket.
pub(crate) fn option<const N: usize>(
    socket: BorrowedFd<'_>,
    name: usize,
) -> Result<[u32; N], Errno> {
    const SOL_SOCKET: usize = 1;
    let mut found = [0; N];
    let mut bytes = size_of_val(&found) as u32;
    let args = [
        socket.as_raw_fd() as usize,
        SOL_SOCKET,
        name,
        found.as_mut_ptr() as usize,
        (&raw mut bytes) as usize,
        0,
    ];
    // SAFETY: the kernel writes at most so many bytes to `found`, and how many
    // to `bytes`; both live beyond the call.
    unsafe { syscall(raw::number::GETSOCKOPT, args) }?;
    Ok(found)
}

/// The calling process's limits of something.
///
/// # Errors
/// A filter (seccomp) refuses the question.
pub fn limits(of: Resource) -> Result<Rlimit, Errno> {
    let mut found = [0_u64; 2];
    let args = [0, of as usize, 0, found.as_mut_ptr() as usize, 0, 0];
    // SAFETY: the kernel writes two words to `found`, which is ours.
    unsafe { syscall(number::PRLIMIT64, args) }?;
    let [current, maximum] = found.map(|limit| (limit != u64::MAX).then_some(limit));
    Ok(Rlimit { current, maximum })
}

/// Its soft limit of something; none also where nothing is known.
#[must_use]
pub fn soft_limit(of: Resource) -> Option<u64> {
    limits(of).ok()?.current
}

/// From now on a limit of file sizes (`ulimit -f`) is told to the calling thread as
/// an error (`FBIG`) and not by a signal, which ends processes.
pub fn hear_of_file_limit() {
    // SAFETY: the set is plain data that the calls fill, and it lives beyond them;
    // a blocked signal stays away from this thread alone, which causes it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGXFSZ);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}

/// Raises the soft limit of open files as far as the hard one allows.
///
/// # Errors
/// What `prlimit` answers.
pub fn raise_open_files() -> Result<(), Errno> {
    let mut limit = limits(Resource::Nofile)?;
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)
}

/// A process, held by descriptor: its number is not reused under us.
#[derive(Debug)]
pub struct Pidfd(OwnedFd);

impl Pidfd {
    /// Opens process `pid` of our own pid namespace.
    ///
    /// # Errors
    /// `SRCH` when there is none, `NOSYS` before Linux 5.3, `PERM` where a
    /// seccomp profile forbids it.
    pub fn open(pid: u32) -> Result<Self, Errno> {
        let pid = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .ok_or(Errno::SRCH)?;
        rustix::process::pidfd_open(pid, PidfdFlags::empty()).map(Self)
    }

    /// One that somebody else has opened.
    ///
    /// # Errors
    /// `BADF` or `INVAL`: it is none.
    pub fn from_other(fd: OwnedFd) -> Result<Self, Errno> {
        Self::check(fd.as_fd()).map(|()| Self(fd))
    }

    /// Whether a descriptor is one. The question waits for nobody.
    ///
    /// # Errors
    /// `BADF` or `INVAL`: it is none.
    pub fn check(fd: BorrowedFd<'_>) -> Result<(), Errno> {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::PidFd(fd), look) {
            // No child of ours.
            Ok(_) | Err(Errno::CHILD) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// The process's number in the pid namespace of this `/proc`; none once it has ended, or where
    /// the kernel does not say.
    #[must_use]
    pub fn number(&self) -> Option<NonZeroU32> {
        let info = format!("/proc/thread-self/fdinfo/{}", self.0.as_raw_fd());
        let info = std::fs::read_to_string(info).ok()?;
        // -1 of one that was waited for, 0 of one that is not seen here.
        let number = info.lines().find_map(|line| line.strip_prefix("Pid:"))?;
        number.trim().parse().ok()
    }

    /// Whether the process has ended. Of a killed one this turns true only
    /// when its memory has been torn down, which takes long for a large one.
    #[must_use]
    pub fn has_exited(&self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let now = Timespec::default();
        matches!(poll(&mut fds, Some(&now)), Ok(n) if n > 0)
    }

    /// Signals the process group that bears its number, if that is not another
    /// by now: the group may outlive the process.
    ///
    /// # Errors
    /// `SRCH` when nothing is left of the group, `INVAL` before Linux 6.9.
    pub fn signal_group(&self, signal: Signal) -> Result<(), Errno> {
        const PROCESS_GROUP: usize = 1 << 2;
        let fd = self.0.as_raw_fd() as usize;
        let args = [fd, signal.as_raw() as usize, 0, PROCESS_GROUP, 0, 0];
        // SAFETY: no memory is passed.
        unsafe { syscall(number::PIDFD_SEND_SIGNAL, args) }.map(|_| ())
    }
}

/// Readable once the process has ended.
impl AsFd for Pidfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Why bytes of another process could not be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// The system forbids it (Yama's ptrace_scope, seccomp, another user).
    #[error(
        "copying between processes is not permitted: set kernel.yama.ptrace_scope to 0 or add \
         CAP_SYS_PTRACE to the container; PORTOLAN_DISABLE=cma does without"
    )]
    NotPermitted,
    /// The process is gone.
    #[error("the process is gone")]
    Gone,
    /// It stopped after so many bytes: the rest is not mapped there.
    #[error("the other process's memory ends after {0} bytes")]
    Fault(usize),
    /// The kernel lacks the call, or something else.
    #[error("copying between processes failed ({0})")]
    Other(Errno),
}

/// Pieces of ours in one call, where there may be several.
const PIECES: usize = 64;

/// Copies between pieces of ours, (address, bytes) each, and what lies at
/// `remote` and behind it in process `pid`; up to `N` pieces a call.
///
/// # Safety
/// All pieces are valid for what the call does with them.
unsafe fn transfer<const N: usize>(
    call: usize,
    pid: u32,
    pieces: impl Iterator<Item = (usize, usize)>,
    remote: u64,
) -> Result<(), CopyError> {
    let mut pieces = pieces.filter(|(_, bytes)| *bytes > 0).fuse();
    let mut here = [(0, 0); N];
    let mut count = 0;
    let mut done = 0;
    loop {
        while count < N
            && let Some(piece) = pieces.next()
        {
            here[count] = piece;
            count += 1;
        }
        if count == 0 {
            return Ok(());
        }
        let bytes: usize = here[..count].iter().map(|piece| piece.1).sum();
        let ours = here.map(|(start, bytes)| [start, bytes]);
        let there = [(remote as usize).wrapping_add(done), bytes];
        let args = [
            pid as usize,
            ours.as_ptr() as usize,
            count,
            there.as_ptr() as usize,
            1,
            0,
        ];
        // SAFETY: both vectors live across the call; the caller vouches for
        // our range; the remote range is checked by the kernel.
        let copied = match unsafe { syscall(call, args) } {
            Ok(0) | Err(Errno::FAULT) => return Err(CopyError::Fault(done)),
            Ok(n) => n,
            Err(Errno::INTR) => 0,
            Err(Errno::PERM | Errno::ACCESS) => return Err(CopyError::NotPermitted),
            Err(Errno::SRCH) => return Err(CopyError::Gone),
            Err(e) => return Err(CopyError::Other(e)),
        };
        done += copied;
        count = behind(&mut here[..count], copied);
    }
}

/// Makes `pieces` those behind the first `bytes` of them; gives how many.
fn behind(pieces: &mut [(usize, usize)], mut bytes: usize) -> usize {
    let mut whole = 0;
    for (start, length) in &mut *pieces {
        let part = bytes.min(*length);
        (*start, *length) = (*start + part, *length - part);
        bytes -= part;
        whole += usize::from(*length == 0);
    }
    pieces.copy_within(whole.., 0);
    pieces.len() - whole
}

/// From now on the calling thread goes before all that are not real-time ones,
/// whenever it is ready (`SCHED_FIFO`, lowest priority). Its children do not.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE`; what else the kernel answers.
pub fn go_first() -> Result<(), Errno> {
    const FIFO: usize = 1;
    const RESET_ON_FORK: usize = 0x4000_0000;
    let priority: i32 = 1;
    let args = [
        0,
        FIFO | RESET_ON_FORK,
        &raw const priority as usize,
        0,
        0,
        0,
    ];
    // SAFETY: the priority, all of `struct sched_param`, lives across the call.
    unsafe { syscall(number::SCHED_SETSCHEDULER, args) }.map(drop)
}

/// How often the calling thread has given up its core to wait for something.
#[must_use]
pub fn thread_sleeps() -> u64 {
    const THREAD: usize = 1;
    // SAFETY: all of it is numbers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let args = [THREAD, &raw mut usage as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes one `struct rusage`, which is exclusively ours.
    // It fails for a bad address or a word other than `THREAD` only.
    let _ = unsafe { syscall(number::GETRUSAGE, args) };
    usage.ru_nvcsw.unsigned_abs()
}

/// Copies from address `remote` of process `pid` until `into` is full.
///
/// # Errors
/// [`CopyError`]; `into` may then be filled in part.
pub fn read_memory(pid: u32, remote: u64, into: &mut [u8]) -> Result<(), CopyError> {
    let piece = std::iter::once((into.as_mut_ptr() as usize, into.len()));
    // SAFETY: the piece is exclusively ours.
    unsafe { transfer::<1>(number::PROCESS_VM_READV, pid, piece, remote) }
}

/// As [`read_memory`], into several pieces one after the other.
///
/// # Errors
/// [`CopyError`]; `into` may then be filled in part.
pub fn read_memory_vectored(
    pid: u32,
    remote: u64,
    into: &mut [IoSliceMut<'_>],
) -> Result<(), CopyError> {
    let pieces = into
        .iter_mut()
        .map(|piece| (piece.as_mut_ptr() as usize, piece.len()));
    // SAFETY: the pieces are exclusively ours.
    unsafe { transfer::<PIECES>(number::PROCESS_VM_READV, pid, pieces, remote) }
}

/// Copies all of `from` to address `remote` of process `pid`.
///
/// # Errors
/// [`CopyError`]; part of it may then have been written.
pub fn write_memory(pid: u32, remote: u64, from: &[u8]) -> Result<(), CopyError> {
    let piece = std::iter::once((from.as_ptr() as usize, from.len()));
    // SAFETY: the kernel only reads the piece.
    unsafe { transfer::<1>(number::PROCESS_VM_WRITEV, pid, piece, remote) }
}

/// As [`write_memory`], from several pieces one after the other.
///
/// # Errors
/// [`CopyError`]; part of it may then have been written.
pub fn write_memory_vectored(pid: u32, remote: u64, from: &[IoSlice<'_>]) -> Result<(), CopyError> {
    let pieces = from
        .iter()
        .map(|piece| (piece.as_ptr() as usize, piece.len()));
    // SAFETY: the kernel only reads the pieces.
    unsafe { transfer::<PIECES>(number::PROCESS_VM_WRITEV, pid, pieces, remote) }
}

/// The threads of process `pid`, its first one included while /proc shows it
/// (as a zombie too). None where there is no such process or no /proc.
pub fn threads(pid: u32) -> impl Iterator<Item = u32> {
    std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Whether the kernel lets us reach into process `pid`. It says nothing of
/// pid namespaces: see that the memory is the peer's by a token in it.
#[must_use]
pub fn cma_permitted(pid: u32) -> bool {
    // Nothing is mapped at 0; the kernel checks permission before that.
    matches!(
        read_memory(pid, 0, &mut [0]),
        Ok(()) | Err(CopyError::Fault(_))
    )
}

/// What `/proc/PID/stat` says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The kernel's letter for what it does: R runs, S sleeps, D waits for a
    /// device, T and t are stopped, Z has ended.
    pub state: char,
    /// A signal or a debugger has stopped it.
    pub stopped: bool,
    /// It is ending, or has ended and was not waited for.
    pub ending: bool,
    /// When it was started, clock ticks after the host was: with the number it
    /// names one process.
    pub started: u64,
    /// Its status as of wait(2), once it is known that it ends; 0 before that,
    /// and where we may not trace it.
    pub status: u32,
}

impl Condition {
    /// Looks at process `pid`; none if there is no such.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// See proc_pid_stat(5): fields 3 (state), 9 (flags), 22 (start) and 52 (exit
    /// code).
    fn parse(stat: &str) -> Option<Self> {
        /// PF_EXITING of the kernel's sched.h.
        const EXITING: u32 = 4;
        // The name, field 2, may hold anything.
        let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let flags: u32 = fields.nth(5)?.parse().ok()?;
        let started = fields.nth(12)?.parse().ok()?;
        let status: u32 = fields.nth(29)?.parse().ok()?;
        Some(Self {
            state,
            stopped: matches!(state, 'T' | 't'),
            ending: matches!(state, 'Z' | 'X') || flags & EXITING != 0,
            started,
            status,
        })
    }
}

/// Whether process `pid` is of the caller's pid namespace, so that its neighbours there know it
/// by that number too. See proc_pid_status(5): `NSpid` has a number for each namespace.
#[must_use]
pub fn is_of_our_pid_namespace(pid: u32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else {
        return false;
    };
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_some_and(|it| it.split_ascii_whitespace().count() == 1)
}

/// The calling thread, and how long it was ready and waited for a core since it began, ns; `None`
/// where the kernel does not tell. See proc_pid_schedstat(5).
#[must_use]
pub fn waited_for_core() -> Option<(u64, u64)> {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let waited = times.split_ascii_whitespace().nth(1)?.parse().ok()?;
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    Some((thread.unsigned_abs().into(), waited))
}

/// Our own process id, as our pid namespace names it.
#[must_use]
pub fn own_pid() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_descriptor_tells_the_number_of_its_process_until_that_has_ended() {
        let own = Pidfd::open(own_pid()).unwrap();
        assert_eq!(own.number(), NonZeroU32::new(own_pid()));
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let process = Pidfd::open(child.id()).unwrap();
        assert_eq!(process.number(), NonZeroU32::new(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(process.number(), None);
    }

    #[test]
    fn a_user_that_the_namespace_does_not_know_is_not_ours() {
        const CHILD: &str = "PORTOLAN_TEST_UNKNOWN_USER";
        const NAME: &str = "process::tests::a_user_that_the_namespace_does_not_know_is_not_ours";
        let own = geteuid().as_raw();
        if std::env::var_os(CHILD).is_some() {
            assert_eq!(own, number_of_unknown_users());
            assert!(!is_our_user(own));
            return;
        }
        assert!(is_our_user(own));
        let mut command = Command::new("unshare");
        command.arg("--user").arg(std::env::current_exe().unwrap());
        let status = command.args(["--exact", NAME]).env(CHILD, "1").status();
        assert!(status.unwrap().success());
    }

    #[test]
    fn each_thread_counts_its_own_sleeps() {
        let before = thread_sleeps();
        let nap = || std::thread::sleep(std::time::Duration::from_millis(1));
        (0..5).for_each(|_| nap());
        assert!(thread_sleeps() >= before + 5);
        let other = std::thread::spawn(thread_sleeps);
        assert!(other.join().unwrap() < before + 5);
    }

    #[test]
    fn a_thread_that_goes_first_is_a_real_time_one() {
        let policy = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let mut fields = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace();
            // The third of them is the first behind the name.
            fields.nth(41 - 3).unwrap().to_owned()
        };
        std::thread::spawn(move || {
            assert_eq!(policy(), "0");
            match go_first() {
                Ok(()) => assert_eq!(policy(), "1"),
                Err(error) => assert_eq!(error, Errno::PERM),
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_child_is_seen_to_end() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let fd = Pidfd::open(child.id()).unwrap();
        assert!(!fd.has_exited());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(fd.has_exited());
        assert_eq!(Pidfd::open(0).unwrap_err(), Errno::SRCH);
        assert!(Pidfd::open(u32::MAX).is_err());
    }

    #[test]
    fn conditions_are_told_apart() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let signal = |signal| {
            let pid = Pid::from_raw(pid.cast_signed()).unwrap();
            rustix::process::kill_process(pid, signal).unwrap();
        };
        let wait_for = |wanted: fn(Condition) -> bool| {
            while !wanted(Condition::of(pid).unwrap()) {
                std::thread::yield_now();
            }
        };
        wait_for(|c| !c.stopped && !c.ending && c.status == 0);
        signal(rustix::process::Signal::STOP);
        wait_for(|c| c.stopped && !c.ending);
        signal(rustix::process::Signal::KILL);
        wait_for(|c| c.ending && c.status == 9);
        child.wait().unwrap();
        assert_eq!(Condition::of(pid), None);
        assert_eq!(Condition::parse("1 (a) b) S"), None);
    }

    #[test]
    fn memory_is_copied_both_ways() {
        // Our own process is always permitted, unless the call is filtered.
        let pid = own_pid();
        if !cma_permitted(pid) {
            eprintln!("process_vm_readv is not permitted here: not tested");
            return;
        }
        let source: Vec<u8> = (0..100_000u32).map(|i| i as u8).collect();
        let mut copy = vec![0; source.len()];
        read_memory(pid, source.as_ptr() as u64, &mut copy).unwrap();
        assert_eq!(copy, source);
        let mut target = vec![0u8; 3];
        write_memory(pid, target.as_mut_ptr() as u64, &[1, 2, 3]).unwrap();
        assert_eq!(target, [1, 2, 3]);
        assert_eq!(read_memory(pid, 0, &mut [0; 8]), Err(CopyError::Fault(0)));
        assert_eq!(read_memory(pid, 0, &mut []), Ok(()));
    }

    #[test]
    fn pieces_are_copied_one_after_the_other() {
        let pid = own_pid();
        if !cma_permitted(pid) {
            eprintln!("*** process_vm_writev IS NOT PERMITTED HERE: NOT TESTED ***");
            return;
        }
        // More pieces than one call takes, empty ones among them.
        let source: Vec<Vec<u8>> = (0..200u8).map(|i| vec![i; usize::from(i) % 7]).collect();
        let whole = source.concat();
        let mut target = vec![0u8; whole.len() + 1];
        let at = target.as_mut_ptr() as u64;
        let from: Vec<_> = source.iter().map(|piece| IoSlice::new(piece)).collect();
        write_memory_vectored(pid, at, &from).unwrap();
        assert_eq!(target[..whole.len()], whole);
        assert_eq!(target[whole.len()], 0);
        let mut copy: Vec<Vec<u8>> = source.iter().map(|piece| vec![0; piece.len()]).collect();
        let mut into: Vec<_> = copy.iter_mut().map(|it| IoSliceMut::new(it)).collect();
        read_memory_vectored(pid, at, &mut into).unwrap();
        assert_eq!(copy, source);
        assert_eq!(write_memory_vectored(pid, 0, &[]), Ok(()));
    }

    #[test]
    fn a_copy_that_meets_a_hole_says_how_far_it_came() {
        let pid = own_pid();
        if !cma_permitted(pid) {
            eprintln!("*** process_vm_writev IS NOT PERMITTED HERE: NOT TESTED ***");
            return;
        }
        use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
        const PAGE: usize = 65_536;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel picks the address; nobody refers to the second
        // half, which nobody can reach from here on.
        let start = unsafe {
            let none = std::ptr::null_mut();
            let start =
                rustix::mm::mmap_anonymous(none, 2 * PAGE, access, MapFlags::PRIVATE).unwrap();
            rustix::mm::mprotect(start.byte_add(PAGE), PAGE, MprotectFlags::empty()).unwrap();
            start
        };
        let at = start as u64;
        let bytes = vec![7; 100];
        let pieces: Vec<_> = (0..1_000).map(|_| IoSlice::new(&bytes)).collect();
        let written = write_memory_vectored(pid, at, &pieces);
        assert_eq!(written, Err(CopyError::Fault(PAGE)));
        let mut copy = vec![0; 2 * PAGE];
        let read = read_memory(pid, at, &mut copy);
        assert_eq!(read, Err(CopyError::Fault(PAGE)));
        assert!(copy[..PAGE].iter().all(|byte| *byte == 7));
        // SAFETY: mapped above, referred to by nobody.
        unsafe { rustix::mm::munmap(start, 2 * PAGE).unwrap() };
    }

    #[test]
    fn what_was_copied_in_part_goes_on_in_its_middle() {
        let pieces = [(100, 10), (200, 20), (300, 30)];
        for (bytes, left) in [
            (0, &pieces[..]),
            (9, &[(109, 1), (200, 20), (300, 30)]),
            (10, &[(200, 20), (300, 30)]),
            (29, &[(219, 1), (300, 30)]),
            (31, &[(301, 29)]),
            (60, &[]),
        ] {
            let mut here = pieces;
            let count = behind(&mut here, bytes);
            assert_eq!(here[..count], *left);
        }
    }

    #[test]
    fn threads_are_listed() {
        let (send, receive) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || receive.recv());
        let here: Vec<u32> = threads(own_pid()).collect();
        assert!(here.contains(&own_pid()) && here.len() >= 2, "{here:?}");
        drop(send);
        let _ = other.join();
        assert_eq!(threads(u32::MAX).count(), 0);
    }

    #[test]
    fn a_process_that_is_gone_is_not_permitted() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert!(!cma_permitted(pid));
    }
}
