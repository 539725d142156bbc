//! A client of the process manager interface (PMI), by which processes that
//! mpiexec.hydra or Slurm's srun started find each other: each puts values
//! under keys, all meet at a fence, then each gets what the others have put.
//!
//! Both versions of the protocol are spoken over an inherited descriptor
//! (`PMI_FD`); PMI-1 also over TCP (`PMI_PORT`). Whoever can listen sees all
//! that passes: no secret may.

mod error;
mod one;
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
use wire::{Answer, Patience, Stream};

use crate::launch::RANKS_MAX;

/// How long the server may take for what it can answer by itself. It shares
/// its host with the ranks, which may be many more than cores.
const BRIEF: Duration = Duration::from_secs(20);

/// Launchers that may start processes without PMI, and the variable that then
/// says how many.
const WITHOUT: [(&str, &str); 2] = [
    ("Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE"),
    ("srun without --mpi=pmi2", "SLURM_STEP_NUM_TASKS"),
];

const OPENING: &str = "greeting";
const PUTTING: &str = "telling the job's other processes about this one";
const GETTING: &str = "asking about the job's other processes";
const LEAVING: &str = "leaving the job";

/// A process's connection to the server of its launcher.
#[derive(Debug)]
pub(crate) struct Pmi {
    /// Left open when this is dropped: hydra kills a process that hangs up
    /// before it has finalized, which would cut off its last words.
    stream: ManuallyDrop<Stream>,
    spoken: Spoken,
    /// This process's number, below `size`.
    pub rank: u32,
    /// Number of processes.
    pub size: u32,
}

/// Which version is spoken, and what it needs.
#[derive(Debug)]
enum Spoken {
    One {
        /// Name of the job's key-value space.
        space: String,
        value_max: usize,
    },
    Two,
}

/// What the launcher said in the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    way: Way,
    /// Its name of the job; only launchers that speak PMI-2 give one.
    job: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Way {
    /// An inherited descriptor, rank and size.
    Inherited(i32, u32, u32),
    /// Where to connect, and under which number.
    Port(String, u32),
}

impl Found {
    /// StallDetector for a launcher in the environment, which `variable` reads; none
    /// if there is none, or it started this process alone.
    pub fn look(
        variable: impl Fn(&'static str) -> Option<OsString>,
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
        let way = if variable("PMI_FD").is_some() {
            let (rank, size) = (number("PMI_RANK")?, number("PMI_SIZE")?);
            Way::Inherited(number("PMI_FD")?.cast_signed(), rank, size)
        } else if let Some(port) = text("PMI_PORT") {
            Way::Port(port, number("PMI_ID")?)
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

/// Whether the server takes up the version that was asked for.
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
    /// Opens the exchange.
    pub fn open(found: &Found) -> Result<Self, PmiError> {
        match &found.way {
            Way::Inherited(number, rank, size) => {
                let stream = Stream::new(inherited(*number)?);
                Self::over(stream, *rank, *size, found.job.as_deref())
            }
            Way::Port(port, id) => {
                let mut stream = Stream::new(connect(port)?);
                let (rank, size) = one::introduce(&mut stream, *id)?;
                Self::over(stream, rank, size, None)
            }
        }
    }

    /// Over a connection that speaks PMI-1.
    #[cfg(test)]
    pub fn of_stream(socket: OwnedFd, rank: u32, size: u32) -> Result<Self, PmiError> {
        Self::over(Stream::new(socket), rank, size, None)
    }

    fn over(stream: Stream, rank: u32, size: u32, job: Option<&str>) -> Result<Self, PmiError> {
        let mut stream = ManuallyDrop::new(stream);
        if size > RANKS_MAX || rank >= size {
            return Err(PmiError::Variable {
                name: "PMI_SIZE",
                value: Some(format!("{size} with rank {rank}; at most {RANKS_MAX}")),
            });
        }
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
        Ok(Self {
            stream,
            spoken,
            rank,
            size,
        })
    }

    /// Puts a value of letters and digits under a key of the same and `-`.
    pub fn put(&mut self, key: &str, value: &str) -> Result<(), PmiError> {
        let limit = match &self.spoken {
            Spoken::One { value_max, .. } => *value_max,
            Spoken::Two => two::VALUE_MAX,
        };
        // Servers count the end of the string too, or do not.
        if value.len() >= limit {
            return Err(PmiError::ValueTooLong {
                bytes: value.len() + 1,
                limit,
            });
        }
        let patience = Patience::new(PUTTING, BRIEF);
        match &self.spoken {
            Spoken::One { space, .. } => one::put(&mut self.stream, space, key, value, patience),
            Spoken::Two => two::put(&mut self.stream, key, value, patience),
        }
    }

    /// Waits until all processes are here; what they have put before can then
    /// be got.
    pub fn fence(&mut self, limit: Duration) -> Result<(), PmiError> {
        let patience = Patience::new(FENCE, limit);
        match self.spoken {
            Spoken::One { .. } => one::fence(&mut self.stream, patience),
            Spoken::Two => two::fence(&mut self.stream, patience),
        }
    }

    /// What somebody has put under a key.
    pub fn get(&mut self, key: &str) -> Result<String, PmiError> {
        let patience = Patience::new(GETTING, BRIEF);
        match &self.spoken {
            Spoken::One { space, .. } => one::get(&mut self.stream, space, key, patience),
            Spoken::Two => two::get(&mut self.stream, key, patience),
        }
    }

    /// Says that this process needs the exchange no longer: its end is then
    /// no failure.
    pub fn finalize(mut self) -> Result<(), PmiError> {
        let patience = Patience::new(LEAVING, BRIEF);
        match self.spoken {
            Spoken::One { .. } => one::finalize(&mut self.stream, patience)?,
            Spoken::Two => two::finalize(&mut self.stream, patience)?,
        }
        drop(ManuallyDrop::into_inner(self.stream));
        Ok(())
    }

    /// Asks for the end of the whole job. There is no answer.
    pub fn abort(&mut self, code: u8) -> Result<(), PmiError> {
        let patience = Patience::new(LEAVING, BRIEF);
        match self.spoken {
            Spoken::One { .. } => one::abort(&self.stream, code, patience),
            Spoken::Two => two::abort(&self.stream, patience),
        }
    }
}
