//! Why the process manager's exchange did not work.

use std::fmt;
use std::io;
use std::time::Duration;

/// What went wrong between this process and the PMI server of the launcher
/// that started it. Each is final for the process.
#[derive(Debug)]
pub enum PmiError {
    /// A variable of the launcher's is missing or makes no sense.
    Variable {
        /// Its name.
        name: &'static str,
        /// What it holds; none if it is not set.
        value: Option<String>,
    },
    /// A launcher has started several processes and offers no PMI: each would be
    /// a job of its own.
    Without {
        /// Which.
        launcher: &'static str,
        /// The variable by which it says how many.
        name: &'static str,
        /// How many.
        size: u32,
    },
    /// The descriptor that `PMI_FD` names is not open, or no socket.
    NoDescriptor(i32),
    /// The process has joined before, or uses the descriptor otherwise.
    AlreadyJoined,
    /// The server that `PMI_PORT` names does not answer.
    Connect {
        /// The variable's value.
        to: String,
        /// The kernel's answer.
        error: io::Error,
    },
    /// The server speaks another version.
    Version {
        /// What we asked for.
        wanted: u32,
        /// What it said.
        answer: String,
    },
    /// The server said no.
    Refused {
        /// To what.
        doing: &'static str,
        /// Its words, cut short.
        answer: String,
    },
    /// An answer that the protocol does not have.
    Malformed {
        /// To what.
        doing: &'static str,
        /// The answer, cut short.
        answer: String,
    },
    /// Another process has not put what each puts.
    NotThere {
        /// The key.
        key: String,
    },
    /// The server takes values of `limit` bytes at most.
    ValueTooLong {
        /// Bytes needed.
        bytes: usize,
        /// Bytes that it takes.
        limit: usize,
    },
    /// No answer in time.
    TimedOut {
        /// To what.
        doing: &'static str,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The server has closed the connection.
    Gone {
        /// When.
        doing: &'static str,
    },
    /// The kernel refused something.
    Io {
        /// What was being done.
        doing: &'static str,
        /// The kernel's answer.
        error: io::Error,
    },
}

/// What the exchange of all processes is called in messages.
pub(super) const FENCE: &str = "waiting for the job's other processes";

impl fmt::Display for PmiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let launcher = "the launcher's PMI server";
        match self {
            Self::Variable {
                name,
                value: Some(value),
            } => write!(
                f,
                "{name}={value:?} makes no sense; mpiexec.hydra and srun set it: unset PMI_FD and \
                 PMI_PORT to run alone"
            ),
            Self::Variable { name, value: None } => write!(
                f,
                "{name} is not set, but PMI_FD or PMI_PORT is; mpiexec.hydra and srun set all of \
                 them: unset those two to run alone"
            ),
            Self::Without {
                launcher,
                name,
                size,
            } => write!(
                f,
                "{launcher} has started {size} processes and offers no PMI, so they cannot find \
                 each other: use `portolan run`, mpiexec.hydra or srun --mpi=pmi2 (to be a job \
                 of one process all the same, unset {name})"
            ),
            Self::NoDescriptor(number) => write!(
                f,
                "PMI_FD names descriptor {number}, which is not a launcher's socket here: a \
                 wrapper closed it, or this is a child of a process that has joined the job; \
                 unset PMI_FD to run alone"
            ),
            Self::AlreadyJoined => write!(
                f,
                "this process has joined its job before, or its PMI_FD is used by something else \
                 (an MPI library?); join once and share the endpoint"
            ),
            Self::Connect { to, error } => write!(
                f,
                "{launcher} at PMI_PORT={to} does not answer: {error}; is the launcher still \
                 there, and does its host let connections in?"
            ),
            Self::Version { wanted, answer } => write!(
                f,
                "{launcher} does not speak PMI-{wanted}: {answer:?}; use mpiexec.hydra, or \
                 srun --mpi=pmi2"
            ),
            Self::Refused { doing, answer } => write!(f, "{doing}: {launcher} refused: {answer:?}"),
            Self::Malformed { doing, answer } => write!(
                f,
                "{doing}: {launcher} answered {answer:?}, which is not PMI; use mpiexec.hydra, or \
                 srun --mpi=pmi2"
            ),
            Self::NotThere { key } => write!(
                f,
                "another process has not told what each tells ({key}): do all of them use \
                 Portolan, in one version?"
            ),
            Self::ValueTooLong { bytes, limit } => write!(
                f,
                "{launcher} takes values of {limit} bytes, and {bytes} are needed; use \
                 mpiexec.hydra, or srun --mpi=pmi2"
            ),
            Self::TimedOut { doing, waited } if *doing == FENCE => write!(
                f,
                "{doing}: they did not come within {} s (processes join when they open their \
                 endpoint: do all? the setting join_ms changes the limit)",
                waited.as_secs_f32()
            ),
            Self::TimedOut { doing, waited } => write!(
                f,
                "{doing}: no answer of {launcher} within {} s; is the launcher stopped?",
                waited.as_secs_f32()
            ),
            Self::Gone { doing } => write!(
                f,
                "{doing}: {launcher} is gone; the launcher was ended, or ends the job"
            ),
            Self::Io { doing, error } => write!(f, "{doing}: {error}"),
        }
    }
}

impl std::error::Error for PmiError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Connect { error, .. } | Self::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}
