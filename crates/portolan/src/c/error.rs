//! Errors as negative errno values, with the meaning of each.

use std::ffi::{CStr, c_char, c_int};
use std::io;

use portolan_boot::{BootError, GuestError, PmiError};
use portolan_sys::memory::MemoryError;
use portolan_sys::net::BindError;
use portolan_sys::raw::Errno as Kernel;

use crate::{
    AddPeerError, Death, DeregisterError, Misuse, OpError, OpenError, RegisterError, SendError,
    WaitError,
};

/// A positive errno value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident = $kernel:ident: $text:literal;)*) => {
        $(
            /// See its text in [`meaning`].
            pub const $name: Errno = Errno(Kernel::$kernel.raw_os_error());
        )*

        /// Every error that the library itself returns, with its text.
        const MEANINGS: &[(Errno, &CStr)] = &[$(($name, $text)),*];
    };
}

errnos! {
    EAGAIN = AGAIN: c"no credit now: make progress and try again";
    EFAULT = FAULT: c"a null pointer where there must be none";
    EINVAL = INVAL: c"a value that is not possible, or a structure without its size";
    EIO = IO: c"a bug of the library, which it has caught";
    E2BIG = TOOBIG: c"too many argument words, or a structure with fields that this library does not know";
    ECHILD = CHILD: c"a forked child has no part in its parent's endpoint";
    EPERM = PERM: c"the endpoint was opened for a single thread, and this is another";
    EBUSY = BUSY: c"another thread is in a call of an endpoint that was opened for serialized threads";
    EDEADLK = DEADLK: c"called from within a handler or a condition (use the handler's context), or from a signal handler that interrupted a call";
    ESHUTDOWN = SHUTDOWN: c"the endpoint is closed";
    ENXIO = NXIO: c"no such rank, or nobody has this number any more";
    ENOENT = NOENT: c"no such operation, space, queue, counter, claimed message or region, or no longer";
    EACCES = ACCESS: c"not permitted: that port is the library's own (65,280 and above), that memory may not be accessed so, or a set-user-id program is in no job";
    ERANGE = RANGE: c"a flow above 5; or the access does not lie in its region, or nothing is mapped there";
    ENOKEY = NOKEY: c"the other side has no memory registered under this key, or no longer";
    EEXIST = EXIST: c"the key names another region here";
    ENOSPC = NOSPC: c"no more regions can be registered: deregister one; or no more peers added: remove one, or raise peers_max";
    EMSGSIZE = MSGSIZE: c"longer than a message can be, or than the memory for it";
    ECONNREFUSED = CONNREFUSED: c"the receiver refused the message: it closed the port, or has too little room";
    ETIMEDOUT = TIMEDOUT: c"the time was up";
    EPIPE = PIPE: c"the peer closed its endpoint, or this space";
    ECONNRESET = CONNRESET: c"the peer's process ended";
    EHOSTDOWN = HOSTDOWN: c"the peer stopped answering";
    EHOSTUNREACH = HOSTUNREACH: c"the peer never answered, or no link reaches it, or the kernel refuses packets here: is its host up, does UDP get through?";
    ESTALE = STALE: c"the peer was restarted";
    ENOTCONN = NOTCONN: c"the peer has removed this endpoint: add it again to go on";
    EOPNOTSUPP = OPNOTSUPP: c"without a launcher there are no barriers, broadcasts and groups; in a job no peers are added and removed; or the kernel does not permit copies by address, which an address space needs";
    EBADMSG = BADMSG: c"the peer wrote nonsense to shared memory";
    EALREADY = ALREADY: c"this process has joined its job, or opened the space, before";
    ECANCELED = CANCELED: c"the job was ended, or the operation cancelled";
    EKEYREJECTED = KEYREJECTED: c"the launcher refused this process: another version, or another secret";
    ECONNABORTED = CONNABORTED: c"the launcher is gone";
    ENOMEM = NOMEM: c"too little memory, or too little may be locked or shared";
    EADDRINUSE = ADDRINUSE: c"another program has the UDP port";
    EADDRNOTAVAIL = ADDRNOTAVAIL: c"the address is none of this host's";
    EBADF = BADF: c"the descriptor that PORTOLAN_JOB names is no launcher's socket here";
    EPROTO = PROTO: c"the launcher or a rank said what this version does not understand";
}

/// Returns the text of an error, positive or negative.
#[must_use]
pub fn meaning(error: i32) -> &'static CStr {
    let wanted = error.unsigned_abs();
    match MEANINGS.iter().find(|(e, _)| e.0.unsigned_abs() == wanted) {
        Some((_, text)) => text,
        None if wanted == 0 => c"no error",
        None => c"an error of a system call: see errno(3)",
    }
}

#[unsafe(no_mangle)]
extern "C" fn portolan_strerror(error: c_int) -> *const c_char {
    meaning(error).as_ptr()
}

// The engine's errors may grow. One without an arm here maps to `EINVAL` if it is misuse,
// to `ECONNRESET` if it is a death, and else to `EIO`.

impl From<Misuse> for Errno {
    fn from(m: Misuse) -> Self {
        match m {
            Misuse::BadFlow => ERANGE,
            Misuse::TooManyArgs => E2BIG,
            Misuse::Forked => ECHILD,
            Misuse::WrongThread => EPERM,
            Misuse::Concurrent => EBUSY,
            Misuse::InHandler => EDEADLK,
            Misuse::Closed => ESHUTDOWN,
            Misuse::BadRank => ENXIO,
            Misuse::ReservedPort => EACCES,
            Misuse::SpaceOpen => EALREADY,
            Misuse::NoJob | Misuse::InJob => EOPNOTSUPP,
            Misuse::NoSuchSpace
            | Misuse::NoSuchQueue
            | Misuse::NoSuchCounter
            | Misuse::NoSuchMessage => ENOENT,
            _ => EINVAL,
        }
    }
}

impl From<Death> for Errno {
    fn from(why: Death) -> Self {
        match why {
            Death::Closed => EPIPE,
            Death::Ended | Death::Exited(_) | Death::Killed(_) | Death::Replaced => ECONNRESET,
            Death::Silent | Death::HostLost => EHOSTDOWN,
            Death::NoAnswer | Death::Unreachable | Death::CutOff(_) => EHOSTUNREACH,
            Death::Restarted => ESTALE,
            Death::Corrupt => EBADMSG,
            Death::Removed => ENOTCONN,
            Death::Nobody => ENXIO,
            _ => ECONNRESET,
        }
    }
}

impl From<SendError> for Errno {
    #[cold]
    fn from(e: SendError) -> Self {
        match e {
            SendError::NoCredit => EAGAIN,
            SendError::PeerDead { why, .. } => why.into(),
            SendError::TooLong => EMSGSIZE,
            SendError::Misuse(m) => m.into(),
            _ => EIO,
        }
    }
}

impl From<WaitError> for Errno {
    #[cold]
    fn from(e: WaitError) -> Self {
        match e {
            WaitError::PeerDead { why, .. } => why.into(),
            WaitError::NoCredit => EAGAIN,
            WaitError::Refused => ECONNREFUSED,
            WaitError::Truncated(_) | WaitError::TooLong => EMSGSIZE,
            WaitError::NoSuchOperation => ENOENT,
            WaitError::TimedOut => ETIMEDOUT,
            WaitError::Misuse(m) => m.into(),
            _ => EIO,
        }
    }
}

/// Only the endpoint knows how a peer died: see [`super::failure`].
impl From<OpError> for Errno {
    fn from(e: OpError) -> Self {
        match e {
            OpError::PeerDead => ECONNRESET,
            OpError::Truncated => EMSGSIZE,
            OpError::Cancelled => ECANCELED,
            OpError::Closed => ESHUTDOWN,
            OpError::BadKey => ENOKEY,
            OpError::NotPermitted | OpError::Forbidden => EACCES,
            OpError::OutOfBounds => ERANGE,
            OpError::Unaligned => EINVAL,
            OpError::NoPort | OpError::Refused => ECONNREFUSED,
            _ => EIO,
        }
    }
}

impl From<RegisterError> for Errno {
    fn from(e: RegisterError) -> Self {
        match e {
            RegisterError::Forbidden => EACCES,
            RegisterError::KeyTaken => EEXIST,
            RegisterError::Full => ENOSPC,
            RegisterError::OutOfBounds => ERANGE,
            RegisterError::NoSuchRegion => ENOENT,
            RegisterError::NotPossible => EOPNOTSUPP,
            RegisterError::Misuse(m) => m.into(),
            _ => EIO,
        }
    }
}

impl From<DeregisterError> for Errno {
    fn from(e: DeregisterError) -> Self {
        match e {
            DeregisterError::NoSuchRegion => ENOENT,
            DeregisterError::Misuse(m) => m.into(),
            _ => EIO,
        }
    }
}

impl From<AddPeerError> for Errno {
    fn from(e: AddPeerError) -> Self {
        match e {
            AddPeerError::NoAddress(_) | AddPeerError::Myself => EINVAL,
            AddPeerError::Full => ENOSPC,
            AddPeerError::Misuse(m) => m.into(),
            _ => EIO,
        }
    }
}

impl From<io::Error> for Errno {
    fn from(e: io::Error) -> Self {
        e.raw_os_error().map_or(EIO, Self)
    }
}

impl From<&OpenError> for Errno {
    fn from(e: &OpenError) -> Self {
        match e {
            OpenError::Boot(e) => of_boot(e),
            OpenError::Space(m) => (*m).into(),
            OpenError::Setting(_)
            | OpenError::Disable(_)
            | OpenError::SecretFile(_)
            | OpenError::OtherThreads { .. }
            | OpenError::OtherSetting { .. }
            | OpenError::Interface { .. }
            | OpenError::Address { .. } => EINVAL,
            OpenError::NotOneHost { .. }
            | OpenError::NotShared { .. }
            | OpenError::NoHostPort { .. } => EHOSTUNREACH,
            OpenError::BadAddress { .. } => EPROTO,
            OpenError::Engine(e) => of_engine(e),
        }
    }
}

fn of_boot(e: &BootError) -> Errno {
    match e {
        BootError::BadVariable(_) => EINVAL,
        BootError::NoDescriptor(_) => EBADF,
        BootError::Untrusted => EACCES,
        BootError::AlreadyAttached => EALREADY,
        BootError::Refused(_) => EKEYREJECTED,
        BootError::Aborted(_) => ECANCELED,
        BootError::LauncherGone => ECONNABORTED,
        BootError::Garbled => EPROTO,
        BootError::Pmi(e) => of_pmi(e),
        BootError::Guest(GuestError::Unreachable { .. }) => EHOSTUNREACH,
        BootError::Guest(_) => EPROTO,
        BootError::Io { error, .. } => error.raw_os_error().map_or(EIO, Errno),
    }
}

fn of_pmi(e: &PmiError) -> Errno {
    match e {
        PmiError::Variable { .. } | PmiError::Without { .. } => EINVAL,
        PmiError::NoDescriptor(_) => EBADF,
        PmiError::AlreadyJoined => EALREADY,
        PmiError::TimedOut { .. } | PmiError::Stuck { .. } => ETIMEDOUT,
        PmiError::Gone { .. } => ECONNABORTED,
        PmiError::Connect { error, .. } | PmiError::Io { error, .. } => {
            error.raw_os_error().map_or(EIO, Errno)
        }
        _ => EPROTO,
    }
}

fn of_engine(e: &portolan_runtime::OpenError) -> Errno {
    use portolan_runtime::OpenError as E;
    match e {
        E::Bind(BindError::PortInUse(_)) => EADDRINUSE,
        E::Bind(BindError::NotLocal(_) | BindError::NoIpv6(_)) => EADDRNOTAVAIL,
        E::Bind(BindError::Denied(_)) => EACCES,
        E::Bind(BindError::System(_, errno)) => Errno(errno.raw_os_error()),
        E::Memory(MemoryError::NotSealed | MemoryError::WrongSize(..))
        | E::Shm(_)
        | E::HostPort(_) => EPROTO,
        E::Memory(_) => ENOMEM,
        E::Setting(_) => EINVAL,
        E::Unreachable(..) => EHOSTUNREACH,
        E::System(_, errno) => Errno(*errno),
        E::Thread(error) => Errno(error.raw_os_error().unwrap_or(Kernel::AGAIN.raw_os_error())),
        _ => EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(value: c_int) -> &'static CStr {
        // SAFETY: the function returns texts that live as long as the library.
        unsafe { CStr::from_ptr(portolan_strerror(value)) }
    }

    #[test]
    fn every_error_has_a_text_of_its_own() {
        for (at, (errno, text)) in MEANINGS.iter().enumerate() {
            assert!(
                MEANINGS[..at].iter().all(|(e, t)| e != errno && t != text),
                "{text:?}"
            );
            for sign in [1, -1] {
                assert_eq!(said(sign * errno.0), *text);
            }
        }
        let other = said(-i32::MAX);
        assert_ne!(other, said(0));
        assert_eq!(other, said(i32::MIN));
    }
}
