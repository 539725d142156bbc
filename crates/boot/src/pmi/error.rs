//! Errors of the process manager's exchange.

use std::fmt;
use std::io;
use std::time::Duration;

/// An error between this process and the PMI server of the launcher that
/// started it. Each is final for the process.
#[derive(Debug, thiserror::Error)]
pub enum PmiError {
    /// A variable of the launcher's is missing or invalid.
    #[error(fmt = variable)]
    Variable {
        /// The variable's name.
        name: &'static str,
        /// Its value; none if it is not set.
        value: Option<String>,
    },
    /// A launcher has started several processes and offers no PMI: each would be
    /// a job of its own.
    #[error(
        "{launcher} has started {size} processes and offers neither PMI nor PMIx, so they cannot \
         find each other: use `portolan run`, mpiexec.hydra, mpirun of Open MPI 4 or 5, or srun \
         --mpi=pmix or pmi2 (to be a job of one process all the same, unset {name})"
    )]
    Without {
        /// The launcher's name.
        launcher: &'static str,
        /// The variable that holds the number of processes.
        name: &'static str,
        /// The number of processes.
        size: u32,
    },
    /// The descriptor that `PMI_FD` names is not open, or no socket.
    #[error(
        "PMI_FD names descriptor {0}, which is not a launcher's socket here: a wrapper closed it, \
         or this is a child of a process that has joined the job; unset PMI_FD to run alone"
    )]
    NoDescriptor(i32),
    /// The process has joined before, or something else uses the descriptor.
    #[error(
        "this process has joined its job before, or its PMI_FD is used by something else (an MPI \
         library?); join once and share the endpoint"
    )]
    AlreadyJoined,
    /// The server that `PMI_PORT` names does not answer.
    #[error(
        "the launcher's PMI server at PMI_PORT={to} does not answer: {error}; is the launcher \
         still there, and does its host let connections in?"
    )]
    Connect {
        /// The variable's value.
        to: String,
        /// The kernel's error.
        #[source]
        error: io::Error,
    },
    /// The server speaks another version.
    #[error(
        "the launcher's PMI server does not speak PMI-{wanted}: {answer:?}; use mpiexec.hydra, or \
         srun --mpi=pmi2"
    )]
    Version {
        /// The version that was asked for.
        wanted: u32,
        /// The server's answer.
        answer: String,
    },
    /// The server refused.
    #[error("{doing}: the launcher's PMI server refused: {answer:?}")]
    Refused {
        /// The operation.
        doing: &'static str,
        /// The answer, cut short.
        answer: String,
    },
    /// An answer that the protocol does not have.
    #[error(
        "{doing}: the launcher's PMI server answered {answer:?}, which is not PMI; use \
         mpiexec.hydra, or srun --mpi=pmi2"
    )]
    Malformed {
        /// The operation.
        doing: &'static str,
        /// The answer, cut short.
        answer: String,
    },
    /// Another process has not put a value that each process puts.
    #[error(
        "another process has not told what each tells ({key}): do all of them use Portolan, in one \
         version?"
    )]
    NotThere {
        /// The key.
        key: String,
    },
    /// The server takes values of `limit` bytes at most.
    #[error(
        "the launcher's PMI server takes values of {limit} bytes, and {bytes} are needed; use \
         mpiexec.hydra, or srun --mpi=pmi2"
    )]
    ValueTooLong {
        /// Bytes needed.
        bytes: usize,
        /// Most bytes that the server takes.
        limit: usize,
    },
    /// No answer in time.
    #[error(fmt = timed_out)]
    TimedOut {
        /// The operation.
        doing: &'static str,
        /// The timeout.
        waited: Duration,
    },
    /// The launcher speaks PMIx, and there is no library for it.
    #[error(
        "PMIX_NAMESPACE is set: the launcher speaks PMIx, whose library cannot be loaded: {error}; \
         install Debian's package libpmix2, or name the folder of the launcher's libpmix.so.2 in \
         LD_LIBRARY_PATH (unset PMIX_NAMESPACE to run alone)"
    )]
    NoLibrary {
        /// The loader's error.
        error: String,
    },
    /// The library is of a version that Portolan cannot call.
    #[error(
        "libpmix.so.2 {what}, and Portolan calls versions 4 and 5 of PMIx: install Debian 12's \
         package libpmix2, or name the folder of another libpmix.so.2 in LD_LIBRARY_PATH; \
         `portolan run` needs none"
    )]
    Library {
        /// What is wrong with the library.
        what: String,
    },
    /// The library refused.
    #[error(
        "{doing}: the launcher's PMIx library answers {answer}; is the launcher still there, and is \
         this one of the processes that it started? (unset PMIX_NAMESPACE to run alone)"
    )]
    LibraryFailed {
        /// The operation.
        doing: &'static str,
        /// The library's name and number of the error.
        answer: String,
    },
    /// A call of the library does not return.
    #[error(
        "{doing}: libpmix.so.2 has not returned within {} s: the launcher is stopped or gone, or \
         the library does not fit it; name the folder of the launcher's own libpmix.so.2 in \
         LD_LIBRARY_PATH, or use `portolan run` (the setting join_ms changes the limit)",
        .waited.as_secs_f32()
    )]
    Stuck {
        /// The operation.
        doing: &'static str,
        /// The timeout.
        waited: Duration,
    },
    /// The server has closed the connection.
    #[error("{doing}: the launcher's PMI server is gone; the launcher was ended, or ends the job")]
    Gone {
        /// The operation.
        doing: &'static str,
    },
    /// The kernel refused something.
    #[error("{doing}: {error}")]
    Io {
        /// The operation.
        doing: &'static str,
        /// The kernel's error.
        #[source]
        error: io::Error,
    },
}

/// Name of the exchange of all processes in messages.
pub(super) const FENCE: &str = "waiting for the job's other processes";

fn variable(name: &str, value: &Option<String>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match value {
        Some(value) => write!(
            f,
            "{name}={value:?} makes no sense; the launcher sets it: unset PMI_FD, PMI_PORT and \
             PMIX_NAMESPACE to run alone"
        ),
        None => write!(
            f,
            "{name} is not set, but PMI_FD, PMI_PORT or PMIX_NAMESPACE is; launchers set all that \
             belong together: unset those three to run alone"
        ),
    }
}

fn timed_out(doing: &str, waited: &Duration, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let seconds = waited.as_secs_f32();
    match doing {
        FENCE => write!(
            f,
            "{doing}: they did not come within {seconds} s (processes join when they open their \
             endpoint: do all? the setting join_ms changes the limit)"
        ),
        _ => write!(
            f,
            "{doing}: no answer of the launcher's PMI server within {seconds} s; is the launcher \
             stopped?"
        ),
    }
}
