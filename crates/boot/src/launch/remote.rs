//! The launcher's end of a connection to an agent on another host.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use super::agent_protocol::{Frames, FromHost, Garbled, PREAMBLE, Report};
use super::connection::{Came, Connection};
use super::plan::Greeting;
use crate::{Suite, Versions};

/// Most of the last output of the connection's program that is kept, bytes.
const SAID_BYTES_MAX: usize = 4096;

/// Why a host cannot take part, or no longer does.
#[derive(Debug, thiserror::Error)]
pub enum HostFailure {
    /// The program that connects could not be run.
    #[error("cannot run {program}: {error}")]
    Command {
        /// The program's name.
        program: String,
        /// The kernel's error.
        error: io::Error,
    },
    /// The connection ended.
    #[error(fmt = ended)]
    Ended {
        /// How its program ended, if it did.
        status: Option<ExitStatus>,
        /// The last of what it wrote to standard error.
        said: String,
        /// Whether the agent had greeted.
        greeted: bool,
    },
    /// Something else than an agent answers.
    #[error(
        "something else than Portolan's agent answers ({0:?}): what the login shell prints there \
         (~/.bashrc) must go, at least where no terminal is"
    )]
    Noise(String),
    /// Agent and launcher were built from different versions.
    #[error(
        "mixed versions: here is {launcher}, there {agent}; install one version on all hosts, or \
         name its folder with --prefix"
    )]
    Version {
        /// Versions of the launcher.
        launcher: Versions,
        /// Versions of the agent.
        agent: Versions,
    },
    /// No greeting within this time.
    #[error("no answer within {} s: is the host up, and can it be reached?", .0.as_secs())]
    Silent(Duration),
    /// The host had answered, and nothing was heard of it for this time.
    #[error(
        "nothing was heard of it for {:.1} s: is it up, and can it be reached?",
        .0.as_secs_f64()
    )]
    Vanished(Duration),
    /// The processor lacks the instructions of the suite that was asked for.
    #[error(
        "its processor has no instructions for {}: choose another --suite, or leave it out",
        .0.name()
    )]
    Suite(Suite),
    /// The agent has not answered an order to kill.
    #[error("its agent no longer answers")]
    Deaf,
    /// The host through which it was reached is lost.
    #[error("the host through which it was reached is lost")]
    WayLost,
    /// The agent sent what this version does not understand.
    #[error(
        "its agent sent {0}, which this version does not understand; install one version on all \
         hosts"
    )]
    Garbled(String),
    /// The agent cannot start its ranks; none was started.
    #[error("{why}")]
    Start {
        /// Exit code for the job.
        code: u8,
        /// Cause and remedy.
        why: String,
    },
}

fn ended(
    status: &Option<ExitStatus>,
    said: &str,
    _greeted: &bool,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    f.write_str("the connection ended")?;
    if let Some(status) = status {
        write!(f, " ({status})")?;
    }
    match said.trim() {
        "" => Ok(()),
        said => write!(f, ": {said}"),
    }
}

/// Input from a remote host.
pub(super) enum Heard {
    Report(Report),
    /// A line that the connection's program wrote to standard error.
    Line(String),
    /// Nothing more will come.
    Lost(HostFailure),
}

/// How an agent is reached.
pub(super) enum AgentRoute {
    /// By a program of our own.
    Own(Box<Connection>),
    /// By a program that this host's agent runs.
    Via(usize),
}

/// An agent on another host.
pub(super) struct Remote {
    pub way: AgentRoute,
    /// When the connection was begun.
    pub since: Instant,
    /// When something was last received.
    pub heard_at: Instant,
    frames: Frames,
    /// Whether the preamble was read.
    begun: bool,
    pub greeting: Option<Greeting>,
    /// Last lines of the program that connects, and the one that has no end yet.
    said: String,
    line: Vec<u8>,
    heard: VecDeque<Heard>,
    lost: bool,
}

impl Remote {
    /// Begins to connect.
    ///
    /// # Errors
    /// [`HostFailure::Command`].
    pub fn open(command: Command) -> Result<Self, HostFailure> {
        let program = command.get_program().to_string_lossy().into_owned();
        let connection =
            Connection::open(command).map_err(|error| HostFailure::Command { program, error })?;
        Ok(Self::new(AgentRoute::Own(Box::new(connection))))
    }

    /// Makes the state of an agent whose connection was just begun.
    pub fn new(way: AgentRoute) -> Self {
        Self {
            way,
            since: Instant::now(),
            heard_at: Instant::now(),
            frames: Frames::default(),
            begun: false,
            greeting: None,
            said: String::new(),
            line: Vec::new(),
            heard: VecDeque::new(),
            lost: false,
        }
    }

    pub fn take_heard(&mut self) -> Option<Heard> {
        self.heard.pop_front()
    }

    /// Reads all that has come over a connection of our own.
    ///
    /// # Errors
    /// A system call failed; nothing to retry.
    pub fn pump(&mut self) -> io::Result<()> {
        let mut came = VecDeque::new();
        if let AgentRoute::Own(connection) = &mut self.way {
            connection.pump(&mut came)?;
        }
        came.into_iter().for_each(|came| self.take(came));
        Ok(())
    }

    /// Handles what came over its connection.
    pub fn take(&mut self, came: Came) {
        if self.lost {
            return;
        }
        match came {
            Came::Bytes(bytes) => {
                self.heard_at = Instant::now();
                self.frames.feed(&bytes);
                if let Err(failure) = self.read_frames() {
                    self.lose(failure);
                }
            }
            Came::Errors(bytes) => {
                for byte in bytes {
                    if byte == b'\n' || self.line.len() >= SAID_BYTES_MAX {
                        self.end_line();
                    } else {
                        self.line.push(byte);
                    }
                }
            }
            Came::End(status) => {
                self.end_line();
                let said = self.said.clone();
                let greeted = self.greeting.is_some();
                self.lose(HostFailure::Ended {
                    status,
                    said,
                    greeted,
                });
            }
        }
    }

    fn end_line(&mut self) {
        let line = String::from_utf8_lossy(&self.line).trim_end().to_owned();
        self.line.clear();
        if line.is_empty() {
            return;
        }
        self.said.push_str(&line);
        self.said.push('\n');
        while self.said.len() > SAID_BYTES_MAX {
            let first = self.said.find('\n').map_or(self.said.len(), |at| at + 1);
            self.said.drain(..first);
        }
        self.heard.push_back(Heard::Line(line));
    }

    fn read_frames(&mut self) -> Result<(), HostFailure> {
        if !self.begun {
            let rest = self.frames.rest();
            let shown = rest.len().min(PREAMBLE.len());
            if rest[..shown] != PREAMBLE[..shown] {
                let text = String::from_utf8_lossy(&rest[..rest.len().min(60)]);
                return Err(HostFailure::Noise(text.into_owned()));
            }
            if shown < PREAMBLE.len() {
                return Ok(());
            }
            self.frames.skip(PREAMBLE.len());
            self.begun = true;
        }
        let garbled = |error: Garbled| HostFailure::Garbled(error.to_string());
        while let Some(content) = self.frames.next().map_err(garbled)? {
            let report = Report::decode(content).map_err(garbled)?;
            match report {
                Report::Said(FromHost::Hello(greeting)) if self.greeting.is_none() => {
                    if greeting.versions != Versions::ours() {
                        return Err(HostFailure::Version {
                            launcher: Versions::ours(),
                            agent: greeting.versions,
                        });
                    }
                    self.greeting = Some(greeting);
                }
                _ if self.greeting.is_none() => {
                    return Err(HostFailure::Garbled("no greeting".to_owned()));
                }
                Report::Said(FromHost::Failed { code, why }) => {
                    return Err(HostFailure::Start { code, why });
                }
                Report::Said(FromHost::Beat) => {}
                report => self.heard.push_back(Heard::Report(report)),
            }
        }
        Ok(())
    }

    /// Reports the loss; what comes later is discarded.
    fn lose(&mut self, failure: HostFailure) {
        self.lost = true;
        self.heard.push_back(Heard::Lost(failure));
    }
}
