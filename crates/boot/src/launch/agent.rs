//! The agent: on another host it plays the part that the launcher plays for
//! ranks of its own host, over a stream of orders and reports.
//!
//! Its ranks end with it, and it ends when its input does: so neither a
//! launcher nor a connection that dies leaves anything here.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use rustix::io::Errno;

use super::Starter;
use super::host::Host;
use super::plan::{Greeting, HostPlan, Seat, StartFailure, Task};
use super::ready::ready;
use super::streams::do_not_block;
use super::talk::{Frames, FromHost, Order, Outgoing, PREAMBLE, Report, ToHost};

/// What an agent's user provides, once it is known what is to be started.
pub struct Prepared {
    /// Starts the ranks.
    pub starter: Box<dyn Starter>,
    /// The core of each rank, if it is to be bound to one.
    pub cores: Vec<Option<u32>>,
}

/// Why an agent ended otherwise than in good order.
#[derive(Debug)]
pub enum AgentError {
    /// The launcher or the connection to it is gone. Its ranks were killed.
    LauncherGone,
    /// It could not do its work. The launcher was told, if it was still there.
    Failed(String),
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LauncherGone => write!(f, "the launcher is gone"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for AgentError {}

impl From<io::Error> for AgentError {
    fn from(error: io::Error) -> Self {
        Self::Failed(format!("the agent: {error}"))
    }
}

impl From<Errno> for AgentError {
    fn from(error: Errno) -> Self {
        io::Error::from(error).into()
    }
}

struct Agent {
    input: OwnedFd,
    output: OwnedFd,
    epoll: OwnedFd,
    frames: Frames,
    waiting: Outgoing,
    host: Option<Host>,
    farewell: bool,
}

const INPUT: u64 = 0;
const OUTPUT: u64 = 1;
const HOST: u64 = 2;

/// Serves a launcher until it says farewell. `prepare` gets what is to be
/// started and on how many ranks, or says why that cannot be. The calling
/// thread must stay alive as long as the ranks do.
///
/// # Errors
/// [`AgentError`]; no rank is left then.
pub fn serve(
    input: OwnedFd,
    output: OwnedFd,
    greeting: Greeting,
    prepare: &mut dyn FnMut(&Task, u32) -> Result<Prepared, StartFailure>,
) -> Result<(), AgentError> {
    do_not_block(&output)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let data = epoll::EventData::new_u64;
    epoll::add(&epoll, &input, data(INPUT), epoll::EventFlags::IN)?;
    epoll::add(&epoll, &output, data(OUTPUT), epoll::EventFlags::empty())?;
    let mut agent = Agent {
        input,
        output,
        epoll,
        frames: Frames::default(),
        waiting: Outgoing::default(),
        host: None,
        farewell: false,
    };
    agent.waiting.push(&PREAMBLE);
    agent.report(&Report::Said(FromHost::Hello(greeting)))?;
    let done = agent.run(prepare);
    if let Err(AgentError::Failed(why)) = &done {
        let why = why.clone();
        let _ = agent.report(&Report::Said(FromHost::Failed { code: 1, why }));
    }
    done
}

impl Agent {
    fn run(
        &mut self,
        prepare: &mut dyn FnMut(&Task, u32) -> Result<Prepared, StartFailure>,
    ) -> Result<(), AgentError> {
        while !self.farewell {
            for (word, flags) in ready(&self.epoll, None)? {
                match word {
                    INPUT => self.listen(prepare)?,
                    HOST => {
                        if let Some(host) = &mut self.host {
                            host.pump()?;
                        }
                    }
                    _ if flags.contains(epoll::EventFlags::ERR) => {
                        return Err(AgentError::LauncherGone);
                    }
                    _ => {}
                }
            }
            while let Some(report) = self.host.as_mut().and_then(Host::take_report) {
                self.waiting.push(&report.encode());
            }
            self.flush()?;
        }
        Ok(())
    }

    fn report(&mut self, report: &Report) -> Result<(), AgentError> {
        self.waiting.push(&report.encode());
        self.flush()
    }

    fn flush(&mut self) -> Result<(), AgentError> {
        let to: BorrowedFd<'_> = self.output.as_fd();
        self.waiting
            .flush(to)
            .map_err(|_| AgentError::LauncherGone)?;
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::OUT, !self.waiting.is_empty());
        let data = epoll::EventData::new_u64(OUTPUT);
        epoll::modify(&self.epoll, &self.output, data, flags)?;
        Ok(())
    }

    fn listen(
        &mut self,
        prepare: &mut dyn FnMut(&Task, u32) -> Result<Prepared, StartFailure>,
    ) -> Result<(), AgentError> {
        let mut bytes = vec![0; 64 << 10];
        // It was said to be readable, so this does not wait.
        let n = match rustix::io::read(&self.input, &mut bytes[..]) {
            Err(Errno::INTR | Errno::AGAIN) => return Ok(()),
            Ok(n) if n > 0 => n,
            _ => return Err(AgentError::LauncherGone),
        };
        self.frames.feed(&bytes[..n]);
        loop {
            let order = match self.frames.next() {
                Ok(None) => return Ok(()),
                Ok(Some(content)) => Order::decode(content),
                Err(error) => Err(error),
            };
            let order = order.map_err(|error| {
                AgentError::Failed(format!(
                    "the agent heard {error}, which this version does not understand; install \
                     one version on all hosts"
                ))
            })?;
            match order {
                Order::Said(ToHost::Start { plan, task }) if self.host.is_none() => {
                    self.start(plan, &task, prepare)?;
                }
                Order::Said(ToHost::Farewell) => self.farewell = true,
                order => {
                    if let Some(host) = &mut self.host {
                        host.handle(&order)?;
                    }
                }
            }
        }
    }

    fn start(
        &mut self,
        plan: HostPlan,
        task: &Task,
        prepare: &mut dyn FnMut(&Task, u32) -> Result<Prepared, StartFailure>,
    ) -> Result<(), AgentError> {
        let started = prepare(task, plan.ranks).and_then(|mut prepared| {
            let seats = Seat::each(&prepared.cores);
            Host::start(plan, &seats, prepared.starter.as_mut()).map_err(|error| StartFailure {
                code: 1,
                why: error.to_string(),
            })
        });
        match started {
            Ok(host) => {
                let data = epoll::EventData::new_u64(HOST);
                epoll::add(&self.epoll, host.descriptor(), data, epoll::EventFlags::IN)?;
                self.host = Some(host);
                Ok(())
            }
            Err(StartFailure { code, why }) => {
                self.report(&Report::Said(FromHost::Failed { code, why }))
            }
        }
    }
}
