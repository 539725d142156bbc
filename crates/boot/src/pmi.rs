//! A client of the process manager interface (PMI), by which processes that
//! another launcher started find each other: each puts values under keys, all
//! meet at a fence, then each gets what the others have put.
//!
//! Both versions of the protocol are spoken over an inherited descriptor
//! (`PMI_FD`); PMI-1 also over TCP (`PMI_PORT`). PMIx is spoken by a library
//! (`PMIX_NAMESPACE`). All that passes can be overheard: no secret may.

mod error;
mod one;
mod pmix;
#[cfg(test)]
mod tests;
mod two;
mod wire;

#[cfg(feature = "properties")]
pub(crate) use wire::answers_are_read;

use std::ffi::OsString;
use std::io;
use std::mem::ManuallyDrop;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{SocketType, sockopt};

use error::FENCE;
pub use error::PmiError;
use wire::{Answer, Stream, Timeout};

use crate::launch::RANKS_MAX;

/// Timeout of the server for what it can answer by itself. It shares its host
/// with the ranks, which may be many more than cores.
const BRIEF: Duration = Duration::from_secs(20);

/// Launchers that may start processes without PMI, and the variable that then
/// holds their number.
const WITHOUT: [(&str, &str); 2] = [
    ("Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE"),
    ("srun without --mpi=pmix or pmi2", "SLURM_STEP_NUM_TASKS"),
];

const OPENING: &str = "greeting";
const PUTTING: &str = "telling the job's other processes about this one";
const GETTING: &str = "asking about the job's other processes";
const LEAVING: &str = "leaving the job";

/// A process's connection to its launcher's server.
#[derive(Debug)]
pub(crate) struct Pmi {
    server: Server,
    /// This process's number, below `size`.
    pub rank: u32,
    /// Number of processes.
    pub size: u32,
}

/// Connection to the server.
#[derive(Debug)]
enum Server {
    Stream {
        /// Left open on drop: hydra kills a process that hangs up before it has
        /// finalized, which would cut off its last output.
        stream: ManuallyDrop<Stream>,
        spoken: Spoken,
    },
    Library(pmix::Speaker),
}

/// Version of the protocol, and its state.
#[derive(Debug)]
enum Spoken {
    One {
        /// Name of the job's key-value space.
        space: String,
        value_max: usize,
    },
    Two,
}

/// What the launcher has set in the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    way: PmiTransport,
    /// The launcher's name of the job; only those that speak PMI-2 set one.
    job: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PmiTransport {
    /// An inherited descriptor, rank and size.
    Inherited(i32, u32, u32),
    /// Address to connect to, and the number to give there.
    Port(String, u32),
    /// The library of PMIx.
    Library,
}

impl Found {
    /// Looks for a launcher in the environment, which `variable` reads; none if
    /// there is none, or it started this process alone. `is_open` checks
    /// whether a number is that of an inherited socket.
    ///
    /// If one launcher has started another, variables of both are set. An open
    /// descriptor belongs to the last one, for launchers close those of others.
    /// Without one, PMI goes before PMIx.
    pub fn look(
        variable: impl Fn(&'static str) -> Option<OsString>,
        is_open: impl Fn(i32) -> bool,
    ) -> Result<Option<Self>, PmiError> {
        let text = |name| variable(name).map(|value| value.to_string_lossy().into_owned());
        let need = |name| text(name).ok_or(PmiError::Variable { name, value: None });
        let number = |name| {
            let value = need(name)?;
            let parsed = value.parse::<u32>().ok();
            parsed
                .filter(|n| i32::try_from(*n).is_ok())
                .ok_or(PmiError::Variable {
                    name,
                    value: Some(value),
                })
        };
        let has_library = variable("PMIX_NAMESPACE").is_some();
        let open = || text("PMI_FD")?.parse().ok().filter(|fd| is_open(*fd));
        let way = if variable("PMI_FD").is_some() && (!has_library || open().is_some()) {
            let (rank, size) = (number("PMI_RANK")?, number("PMI_SIZE")?);
            PmiTransport::Inherited(number("PMI_FD")?.cast_signed(), rank, size)
        } else if let Some(port) = text("PMI_PORT") {
            PmiTransport::Port(port, number("PMI_ID")?)
        } else if has_library {
            // The library would fail without it, and report no reason.
            number("PMIX_RANK")?;
            PmiTransport::Library
        } else {
            let many = |name| text(name)?.parse().ok().filter(|size: &u32| *size > 1);
            let without = |&(launcher, name): &(&'static str, &'static str)| {
                let size = many(name)?;
                Some(PmiError::Without {
                    launcher,
                    name,
                    size,
                })
            };
            return WITHOUT.iter().find_map(without).map_or(Ok(None), Err);
        };
        let job = text("PMI_JOBID");
        if let Some(name) = &job
            && name.contains([' ', ';', '=', '\n'])
        {
            return Err(PmiError::Variable {
                name: "PMI_JOBID",
                value: job,
            });
        }
        Ok(Some(Self { way, job }))
    }
}

/// Whether a number is that of a socket that a launcher may have left open.
pub(crate) fn is_socket(number: i32) -> bool {
    let path = format!("/proc/self/fd/{number}");
    let target = std::fs::read_link(path).unwrap_or_default();
    number > 2 && target.to_string_lossy().starts_with("socket:")
}

fn inherited(number: i32) -> Result<OwnedFd, PmiError> {
    let socket =
        portolan_sys::inherit::adopt_inherited(number).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => PmiError::AlreadyJoined,
            _ => PmiError::NoDescriptor(number),
        })?;
    match sockopt::socket_type(&socket) {
        Ok(SocketType::STREAM) => Ok(socket),
        _ => Err(PmiError::NoDescriptor(number)),
    }
}

fn connect(port: &str) -> Result<OwnedFd, PmiError> {
    let failed = |error| PmiError::Connect {
        to: port.to_owned(),
        error,
    };
    let mut last = io::ErrorKind::NotFound.into();
    for address in port.to_socket_addrs().map_err(failed)? {
        match TcpStream::connect_timeout(&address, BRIEF) {
            Ok(stream) => return Ok(stream.into()),
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

/// Fails unless the server accepts the version that was asked for.
fn agreed(answer: Answer, wanted: u32) -> Result<(), PmiError> {
    let shown = answer.shown();
    let other = || PmiError::Version {
        wanted,
        answer: shown.clone(),
    };
    match answer.expect("response_to_init") {
        Ok(answer) if answer.number("pmi_version")? == wanted => Ok(()),
        Ok(_) | Err(PmiError::Refused { .. }) => Err(other()),
        Err(error) => Err(error),
    }
}

impl Pmi {
    /// Opens the exchange. `limit`: timeout of each call of a PMIx library that
    /// needs no other process.
    pub fn open(found: &Found, limit: Duration) -> Result<Self, PmiError> {
        match &found.way {
            PmiTransport::Inherited(number, rank, size) => {
                let stream = Stream::new(inherited(*number)?);
                Self::over(stream, *rank, *size, found.job.as_deref())
            }
            PmiTransport::Port(port, id) => {
                let mut stream = Stream::new(connect(port)?);
                let (rank, size) = one::introduce(&mut stream, *id)?;
                Self::over(stream, rank, size, None)
            }
            PmiTransport::Library => {
                let (speaker, rank, size) = pmix::open(limit)?;
                checked("PMIX_RANK", rank, size)?;
                let server = Server::Library(speaker);
                Ok(Self { server, rank, size })
            }
        }
    }

    /// Opens the exchange over a connection that speaks PMI-1.
    #[cfg(test)]
    pub fn of_stream(socket: OwnedFd, rank: u32, size: u32) -> Result<Self, PmiError> {
        Self::over(Stream::new(socket), rank, size, None)
    }

    fn over(stream: Stream, rank: u32, size: u32, job: Option<&str>) -> Result<Self, PmiError> {
        let mut stream = ManuallyDrop::new(stream);
        checked("PMI_SIZE", rank, size)?;
        let spoken = match job {
            None => one::init(&mut stream)?,
            Some(job) => {
                let (spoken, own, all) = two::init(&mut stream, job, rank)?;
                if (own, all) != (rank, size) {
                    return Err(PmiError::Malformed {
                        doing: OPENING,
                        answer: format!("rank {own} of {all} instead of {rank} of {size}"),
                    });
                }
                spoken
            }
        };
        let server = Server::Stream { stream, spoken };
        Ok(Self { server, rank, size })
    }

    /// Puts a value of letters and digits under a key of the same and `-`.
    pub fn put(&mut self, key: &str, value: &str) -> Result<(), PmiError> {
        let (stream, spoken) = match &mut self.server {
            Server::Stream { stream, spoken } => (stream, spoken),
            Server::Library(speaker) => return speaker.put(key, value),
        };
        let limit = match spoken {
            Spoken::One { value_max, .. } => *value_max,
            Spoken::Two => two::VALUE_MAX,
        };
        // Some servers count the string's terminator too.
        if value.len() >= limit {
            return Err(PmiError::ValueTooLong {
                bytes: value.len() + 1,
                limit,
            });
        }
        let timeout = Timeout::new(PUTTING, BRIEF);
        match spoken {
            Spoken::One { space, .. } => one::put(stream, space, key, value, timeout),
            Spoken::Two => two::put(stream, key, value, timeout),
        }
    }

    /// Waits until all processes have come; then what they had put can be got.
    pub fn fence(&mut self, limit: Duration) -> Result<(), PmiError> {
        let timeout = Timeout::new(FENCE, limit);
        match &mut self.server {
            Server::Stream { stream, spoken } => match spoken {
                Spoken::One { .. } => one::fence(stream, timeout),
                Spoken::Two => two::fence(stream, timeout),
            },
            Server::Library(speaker) => speaker.fence(limit),
        }
    }

    /// Returns what `rank` has put under a key.
    pub fn get(&mut self, rank: u32, key: &str) -> Result<String, PmiError> {
        let timeout = Timeout::new(GETTING, BRIEF);
        match &mut self.server {
            Server::Stream { stream, spoken } => match spoken {
                Spoken::One { space, .. } => one::get(stream, space, key, timeout),
                Spoken::Two => two::get(stream, key, timeout),
            },
            Server::Library(speaker) => speaker.get(rank, key),
        }
    }

    /// Returns a socket that reports deaths as an agent does; none where the
    /// launcher cannot.
    pub fn deaths(&self) -> Option<OwnedFd> {
        match &self.server {
            Server::Stream { .. } => None,
            Server::Library(speaker) => speaker.deaths(),
        }
    }

    /// Tells the server that this process needs the exchange no longer: its end
    /// is then no failure.
    pub fn finalize(self) -> Result<(), PmiError> {
        let timeout = Timeout::new(LEAVING, BRIEF);
        match self.server {
            Server::Stream { mut stream, spoken } => {
                match spoken {
                    Spoken::One { .. } => one::finalize(&mut stream, timeout)?,
                    Spoken::Two => two::finalize(&mut stream, timeout)?,
                }
                drop(ManuallyDrop::into_inner(stream));
                Ok(())
            }
            Server::Library(speaker) => speaker.finalize(),
        }
    }

    /// Asks for the end of the whole job. There is no answer.
    pub fn abort(&mut self, code: u8) -> Result<(), PmiError> {
        let timeout = Timeout::new(LEAVING, BRIEF);
        match &self.server {
            Server::Stream { stream, spoken } => match spoken {
                Spoken::One { .. } => one::abort(stream, code, timeout),
                Spoken::Two => two::abort(stream, timeout),
            },
            Server::Library(speaker) => speaker.abort(code),
        }
    }
}

/// Fails unless the rank is below the size, and the size at most [`RANKS_MAX`].
fn checked(name: &'static str, rank: u32, size: u32) -> Result<(), PmiError> {
    if size <= RANKS_MAX && rank < size {
        return Ok(());
    }
    Err(PmiError::Variable {
        name,
        value: Some(format!("{size} with rank {rank}; at most {RANKS_MAX}")),
    })
}
