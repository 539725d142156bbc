//! The agent: on another host it plays the part that the launcher plays for
//! ranks of its own host, over a stream of orders and reports.
//!
//! The agent's ranks end with it, and it ends when its input does: so neither a
//! launcher nor a connection that dies leaves anything here.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use portolan_sys::environment;
use portolan_sys::memory::Hidden;
use rustix::event::epoll;
use rustix::io::Errno;
use zeroize::Zeroize;

use super::Starter;
use super::agent_protocol::{
    BEAT_EVERY, Frames, FromHost, Garbled, Order, Outgoing, PREAMBLE, Report, ToHost,
};
use super::connection::{Came, Connection};
use super::control_socket::ControlSocket;
use super::host::Host;
use super::plan::{Greeting, HostPlan, Seat, StartFailure, Task};
use super::streams::do_not_block;
use crate::host::keep_from_dumps;
use crate::ready::ready;
use crate::silence::StallDetector;

/// Timeout of the end of agents that were reached through this one, after its farewell.
const FAREWELL_WAIT: Duration = Duration::from_secs(1);

/// The launcher counts as gone or cut off after this multiple of the silence
/// that it allows us. Large, for it may only have been stopped.
const LAUNCHER_SILENCES: u32 = 8;
/// The launcher's limit until it has sent the plan.
const START_SILENCE: Duration = Duration::from_secs(30);

/// Callbacks that the agent's program provides.
pub trait Keeper {
    /// Prepares the start of `task` on `ranks` ranks.
    ///
    /// # Errors
    /// Cause and remedy; the job ends with its code.
    fn prepare(&mut self, task: &Task, ranks: u32) -> Result<Prepared, StartFailure>;

    /// Called when a program that reaches another host runs, as leader of
    /// process group `pid`.
    fn reached(&mut self, pid: u32);
}

/// Result of [`Keeper::prepare`].
pub struct Prepared {
    /// Starts the ranks.
    pub starter: Box<dyn Starter>,
    /// The core of each rank, if it is to be bound to one.
    pub cores: Vec<Option<u32>>,
}

/// Why an agent did not end in good order.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The launcher or the connection to it is gone. The agent's ranks were killed.
    #[error("the launcher is gone")]
    LauncherGone,
    /// The agent could not do its work. The reason was sent to the launcher, if
    /// it was still there.
    #[error("{0}")]
    Failed(String),
}

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

struct Agent<'a> {
    keeper: &'a mut dyn Keeper,
    input: OwnedFd,
    output: OwnedFd,
    epoll: OwnedFd,
    frames: Frames,
    waiting: Outgoing,
    host: Option<Host>,
    /// Starts its ranks.
    starter: Option<Box<dyn Starter>>,
    /// Connections to the agents of further hosts.
    relays: BTreeMap<u16, Connection>,
    /// Control socket for processes of this host.
    socket: Option<ControlSocket>,
    farewell: bool,
    heard_at: Instant,
    /// How long the launcher may be silent.
    silence: Duration,
    beat_at: Instant,
    stalls: StallDetector,
}

const INPUT: u64 = 0;
const OUTPUT: u64 = 1;
const HOST: u64 = 2;
const DOOR: u64 = u64::MAX;
/// First word of the relays, to which the host's number is added.
const RELAYS: u64 = 3;

/// Serves a launcher until it says farewell. The calling thread must stay
/// alive as long as the ranks do.
///
/// # Errors
/// [`AgentError`]; no rank is left then.
pub fn serve(
    input: OwnedFd,
    output: OwnedFd,
    greeting: Greeting,
    keeper: &mut dyn Keeper,
) -> Result<(), AgentError> {
    keep_from_dumps()?;
    let mut agent = Agent::new(input, output, keeper)?;
    agent.waiting.push(&PREAMBLE);
    agent.say(FromHost::Hello(greeting));
    let done = agent.run();
    if let Err(AgentError::Failed(why)) = &done {
        let why = why.clone();
        agent.say(FromHost::Failed { code: 1, why });
        let _ = agent.flush();
    }
    done
}

impl<'a> Agent<'a> {
    fn new(
        input: OwnedFd,
        output: OwnedFd,
        keeper: &'a mut dyn Keeper,
    ) -> Result<Self, AgentError> {
        do_not_block(&output)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64;
        epoll::add(&epoll, &input, data(INPUT), epoll::EventFlags::IN)?;
        epoll::add(&epoll, &output, data(OUTPUT), epoll::EventFlags::empty())?;
        let now = Instant::now();
        Ok(Self {
            keeper,
            input,
            output,
            epoll,
            frames: Frames::default(),
            waiting: Outgoing::default(),
            host: None,
            starter: None,
            relays: BTreeMap::new(),
            socket: None,
            farewell: false,
            heard_at: now,
            silence: START_SILENCE,
            beat_at: now,
            stalls: StallDetector::new(BEAT_EVERY, now),
        })
    }

    fn run(&mut self) -> Result<(), AgentError> {
        while !self.farewell {
            self.beat(Instant::now())?;
            self.flush()?;
            let left = self.beat_at.saturating_duration_since(Instant::now());
            for (word, flags) in ready(&self.epoll, Some(left))? {
                match word {
                    INPUT => self.listen()?,
                    OUTPUT if flags.contains(epoll::EventFlags::ERR) => {
                        return Err(AgentError::LauncherGone);
                    }
                    OUTPUT => {}
                    HOST => {
                        if let Some(host) = &mut self.host {
                            host.pump()?;
                        }
                    }
                    DOOR => self.pump_door()?,
                    relay => self.pump_relay(relay - RELAYS)?,
                }
            }
            while let Some(report) = self.host.as_mut().and_then(Host::take_report) {
                self.report(&report);
            }
        }
        let deadline = Instant::now() + FAREWELL_WAIT;
        for relay in self.relays.values_mut() {
            relay.finish(deadline);
        }
        Ok(())
    }

    /// Sends a heartbeat to the launcher when it is due; fails if the launcher is gone.
    fn beat(&mut self, now: Instant) -> Result<(), AgentError> {
        self.heard_at = (self.heard_at + self.stalls.late(now)).min(now);
        if now >= self.heard_at + self.silence {
            return Err(AgentError::LauncherGone);
        }
        if now >= self.beat_at {
            self.beat_at = now + BEAT_EVERY;
            // Queued bytes show life as well.
            if self.waiting.is_empty() {
                self.say(FromHost::Beat);
            }
        }
        Ok(())
    }

    fn report(&mut self, report: &Report) {
        self.waiting.push(&report.encode());
    }

    fn say(&mut self, report: FromHost) {
        self.report(&Report::Said(report));
    }

    fn flush(&mut self) -> Result<(), AgentError> {
        self.waiting
            .flush(self.output.as_fd())
            .map_err(|_| AgentError::LauncherGone)?;
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::OUT, !self.waiting.is_empty());
        let data = epoll::EventData::new_u64(OUTPUT);
        epoll::modify(&self.epoll, &self.output, data, flags)?;
        Ok(())
    }

    fn listen(&mut self) -> Result<(), AgentError> {
        let mut bytes = vec![0; 64 << 10];
        // The input is readable, so this does not wait.
        let n = match rustix::io::read(&self.input, &mut bytes[..]) {
            Err(Errno::INTR | Errno::AGAIN) => return Ok(()),
            Ok(n) if n > 0 => n,
            _ => return Err(AgentError::LauncherGone),
        };
        self.heard_at = Instant::now();
        self.frames.feed(&bytes[..n]);
        bytes[..n].zeroize();
        loop {
            let order = match self.frames.next() {
                Ok(None) => return Ok(()),
                Ok(Some(content)) => Order::decode(content),
                Err(error) => Err(error),
            };
            self.obey(order)?;
        }
    }

    fn obey(&mut self, order: Result<Order, Garbled>) -> Result<(), AgentError> {
        let order = order.map_err(|error| {
            AgentError::Failed(format!(
                "the agent heard {error}, which this version does not understand; install one \
                 version on all hosts"
            ))
        })?;
        match order {
            Order::All(content) => {
                let frame = Order::All(content.clone()).encode();
                for relay in self.relays.values_mut() {
                    relay.send(&frame);
                }
                // These are not nested, so this ends.
                let order = Order::decode(&content);
                if !matches!(order, Ok(Order::All(_))) {
                    self.obey(order)?;
                }
            }
            Order::Relay { host, bytes } => {
                if let Some(relay) = self.relays.get_mut(&host) {
                    relay.send(&bytes);
                }
            }
            Order::Said(ToHost::Reach { host, command }) => self.reach(host, &command)?,
            Order::Said(ToHost::Cut { host }) => drop(self.relays.remove(&host)),
            Order::Start { secret, plan, task } if self.host.is_none() => {
                self.frames.wipe();
                self.start(*plan, secret, &task)?;
            }
            Order::Said(ToHost::Restart { rank, restarts }) => {
                if let (Some(host), Some(starter)) = (&mut self.host, &mut self.starter) {
                    host.restart(rank, restarts, starter.as_mut());
                }
            }
            Order::Said(ToHost::Answered { ticket, answer }) => {
                if let Some(socket) = &mut self.socket {
                    socket.answer(ticket, &answer);
                }
            }
            Order::Said(ToHost::Farewell) => self.farewell = true,
            order => {
                if let Some(host) = &mut self.host {
                    host.handle(&order)?;
                }
            }
        }
        Ok(())
    }

    /// Forwards queries to the launcher.
    fn pump_door(&mut self) -> Result<(), AgentError> {
        let asked = self
            .socket
            .as_mut()
            .map_or(Ok(Vec::new()), ControlSocket::pump)?;
        for (ticket, request) in asked {
            self.say(FromHost::Asked { ticket, request });
        }
        Ok(())
    }

    fn start(
        &mut self,
        plan: HostPlan,
        secret: Rc<Hidden<32>>,
        task: &Task,
    ) -> Result<(), AgentError> {
        self.socket = ControlSocket::open(plan.job_id);
        if let Some(socket) = &self.socket {
            let data = epoll::EventData::new_u64(DOOR);
            epoll::add(
                &self.epoll,
                socket.descriptor(),
                data,
                epoll::EventFlags::IN,
            )?;
        }
        self.silence = plan.host_silence.saturating_mul(LAUNCHER_SILENCES);
        let prepared = self.keeper.prepare(task, plan.ranks);
        let started = prepared.and_then(|mut prepared| {
            let seats = Seat::each(&prepared.cores);
            let starter = prepared.starter.as_mut();
            let started = Host::start(plan, secret, &seats, starter);
            let mut host = started.map_err(|error| StartFailure {
                code: 1,
                why: error.to_string(),
            })?;
            host.grant(starter.host_ports(&host.wanted()));
            Ok((host, prepared.starter))
        });
        match started {
            Ok((host, starter)) => {
                self.starter = Some(starter);
                let data = epoll::EventData::new_u64(HOST);
                epoll::add(&self.epoll, host.descriptor(), data, epoll::EventFlags::IN)?;
                self.host = Some(host);
            }
            Err(StartFailure { code, why }) => self.say(FromHost::Failed { code, why }),
        }
        Ok(())
    }

    /// Connects to the agent of another host.
    fn reach(&mut self, host: u16, command: &[OsString]) -> Result<(), AgentError> {
        let Some((program, arguments)) = command.split_first() else {
            return Ok(());
        };
        let connection = environment::command(program).and_then(|mut command| {
            command.args(arguments);
            Connection::open(command)
        });
        match connection {
            Ok(connection) => {
                self.keeper.reached(connection.pid());
                let data = epoll::EventData::new_u64(RELAYS + u64::from(host));
                let descriptor = connection.descriptor();
                epoll::add(&self.epoll, descriptor, data, epoll::EventFlags::IN)?;
                self.relays.insert(host, connection);
            }
            Err(error) => {
                let bytes = format!("cannot run {}: {error}\n", program.display()).into_bytes();
                self.report(&Report::RelayErrors { host, bytes });
                let status = None;
                self.say(FromHost::RelayEnded { host, status });
            }
        }
        Ok(())
    }

    fn pump_relay(&mut self, host: u64) -> Result<(), AgentError> {
        let mut came = VecDeque::new();
        let host = u16::try_from(host).expect("made from one");
        if let Some(relay) = self.relays.get_mut(&host) {
            relay.pump(&mut came)?;
        }
        for came in came {
            match came {
                Came::Bytes(bytes) => self.report(&Report::Relayed { host, bytes }),
                Came::Errors(bytes) => self.report(&Report::RelayErrors { host, bytes }),
                Came::End(status) => {
                    self.relays.remove(&host);
                    let status = status.map(ExitStatusExt::into_raw);
                    self.say(FromHost::RelayEnded { host, status });
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::plan::Greeting;
    use crate::launch::{RankPlace, SharedMemory};
    use crate::message::{How, ToLauncher, key_check};
    use crate::{Congestion, LinkChoice, Security, Suite, Versions};
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::process::Command;
    use std::thread::JoinHandle;

    /// Starts what the task says, without a segment.
    struct Plain(Task);

    impl Starter for Plain {
        fn segment(&mut self, _host_index: u16, _ranks: u32) -> io::Result<SharedMemory> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn command(&mut self, place: &RankPlace) -> Command {
            let words = self.0.program(place.local_index).unwrap();
            let mut command = Command::new(&words[0]);
            command
                .args(&words[1..])
                .stdout(std::process::Stdio::piped());
            command
        }

        fn started(&mut self, _place: &RankPlace, _pid: u32) {}
    }

    struct Here;

    impl Keeper for Here {
        fn prepare(&mut self, task: &Task, ranks: u32) -> Result<Prepared, StartFailure> {
            Ok(Prepared {
                starter: Box::new(Plain(task.clone())),
                cores: vec![None; ranks as usize],
            })
        }

        fn reached(&mut self, _pid: u32) {}
    }

    #[test]
    fn time_in_which_it_did_not_run_is_not_the_launchers_silence() {
        let ends = || UnixStream::pair().unwrap();
        let ((input, _launcher), (output, _reader)) = (ends(), ends());
        let mut here = Here;
        let mut agent = Agent::new(input.into(), output.into(), &mut here).unwrap();
        let mut now = agent.heard_at;
        // The agent was stopped, for a minute and then for an hour.
        for seconds in [60, 3600] {
            now += Duration::from_secs(seconds);
            agent.beat(now).unwrap();
        }
        // Two steps of these counted.
        for _ in 2..START_SILENCE.as_millis() / BEAT_EVERY.as_millis() - 1 {
            now += BEAT_EVERY;
            agent.beat(now).unwrap();
        }
        let gone = agent.beat(now + BEAT_EVERY);
        assert!(matches!(gone, Err(AgentError::LauncherGone)), "{gone:?}");
    }

    /// An agent and the launcher's end of its streams, after the greeting.
    fn agent() -> (UnixStream, JoinHandle<Result<(), AgentError>>) {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(move || {
            let (input, output) = (theirs.try_clone().unwrap().into(), theirs.into());
            let greeting = Greeting {
                versions: Versions::ours(),
                aes: true,
                aegis: true,
                ip: None,
            };
            serve(input, output, greeting, &mut Here)
        });
        let mut preamble = [0; PREAMBLE.len()];
        ours.read_exact(&mut preamble).unwrap();
        assert_eq!(preamble, PREAMBLE);
        let mut frames = Frames::default();
        assert!(matches!(
            hear(&mut ours, &mut frames),
            Some(Report::Said(FromHost::Hello(_)))
        ));
        (ours, thread)
    }

    /// The next report; none at the end.
    fn hear(from: &mut UnixStream, frames: &mut Frames) -> Option<Report> {
        loop {
            if let Some(content) = frames.next().unwrap() {
                return Some(Report::decode(content).unwrap());
            }
            let mut bytes = [0; 512];
            match from.read(&mut bytes) {
                Ok(n) if n > 0 => frames.feed(&bytes[..n]),
                _ => return None,
            }
        }
    }

    fn start(words: &[&str]) -> Vec<u8> {
        let plan = HostPlan {
            host_index: 0,
            hosts: 1,
            first: 0,
            ranks: 1,
            size: 1,
            spare: 0,
            job_id: 1,
            partitions: Vec::new(),
            security: Security::Encrypt,
            suite: Suite::Aes128Gcm,
            link: LinkChoice::Udp,
            congestion: Congestion::Auto,
            settings: BTreeMap::new(),
            host_silence: Duration::from_secs(2),
            stopped_limit: None,
            ip: None,
        };
        let program = words.iter().map(OsString::from).collect();
        let task = Task {
            programs: vec![(1, program)],
            ..Task::default()
        };
        let (secret, plan) = (Rc::new(Hidden::new().unwrap()), Box::new(plan));
        Order::Start { secret, plan, task }.encode()
    }

    #[test]
    fn a_rank_is_started_heard_and_seen_to_its_end() {
        let (mut launcher, agent) = agent();
        launcher
            .write_all(&start(&["sh", "-c", "echo hi; exit 3"]))
            .unwrap();
        let mut frames = Frames::default();
        let (mut out, mut ended) = (Vec::new(), None);
        loop {
            match hear(&mut launcher, &mut frames).expect("not yet over") {
                Report::Output { bytes, .. } => out.extend(bytes),
                Report::Said(FromHost::Ended { how, .. }) => ended = Some(how),
                Report::Said(FromHost::Drained) => break,
                _ => {}
            }
        }
        assert_eq!(
            (out.as_slice(), ended),
            (&b"hi\n"[..], Some(How::Exited(3)))
        );
        let farewell = Order::Said(ToHost::Farewell).encode();
        launcher.write_all(&farewell).unwrap();
        agent.join().unwrap().unwrap();
    }

    /// Returns what an agent reports of a rank that joins by hand, and claims to be process 1,
    /// after the program `before`: the process that joined, and the one that the agent started.
    fn joined(before: &[&str]) -> (u32, u32) {
        let versions = Versions::ours();
        let hello = ToLauncher::Hello { versions, pid: 1 }.encode();
        let secret = Hidden::new().unwrap();
        let check = key_check(&secret, 1, Security::Encrypt, Suite::Aes128Gcm);
        let address = [7; 64];
        let join = ToLauncher::Join { address, check }.encode();
        // Each argument is written as one message.
        let script = r#"n=${PORTOLAN_JOB#fd:}; for m; do printf "$m" >&$n; done; sleep 1000"#;
        let escaped = |message: Vec<u8>| -> String {
            let octal = |byte: &u8| format!("\\{byte:03o}");
            message.iter().map(octal).collect()
        };
        let (hello, join) = (escaped(hello), escaped(join));
        let words = [before, &["bash", "-c", script, "-", &hello, &join]].concat();
        let (mut launcher, agent) = agent();
        launcher.write_all(&start(&words)).unwrap();
        let mut frames = Frames::default();
        let mut started = 0;
        let joined = loop {
            match hear(&mut launcher, &mut frames).expect("not yet over") {
                Report::Said(FromHost::Started { pid, .. }) => started = pid,
                Report::Joined { pid, .. } => break pid,
                Report::Said(FromHost::Ended { how, .. }) => panic!("it ended: {how}"),
                _ => {}
            }
        };
        drop(launcher);
        let _ = agent.join().unwrap();
        (joined, started)
    }

    #[test]
    fn the_kernel_says_which_process_joins() {
        let (joined, started) = joined(&[]);
        assert_eq!(joined, started);
    }

    #[test]
    fn a_process_of_another_pid_namespace_joins_without_a_number() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("*** PROCESSES OF OTHER PID NAMESPACES DID NOT JOIN: needs root ***");
            return;
        }
        let (joined, _) = joined(&["unshare", "--pid", "--fork", "--kill-child"]);
        assert_eq!(joined, 0);
    }

    #[test]
    fn ranks_end_with_the_connection() {
        let (mut launcher, agent) = agent();
        launcher.write_all(&start(&["sleep", "1000"])).unwrap();
        let mut frames = Frames::default();
        let Some(Report::Said(FromHost::Started { pid, .. })) = hear(&mut launcher, &mut frames)
        else {
            panic!("not started")
        };
        drop(launcher);
        assert!(matches!(
            agent.join().unwrap(),
            Err(AgentError::LauncherGone)
        ));
        // The process was reaped, so its number is free.
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn what_makes_no_sense_ends_an_agent_with_a_word() {
        let all = Order::All(b"?".to_vec()).encode();
        for wrong in [&b"\x02\0\0\0?!"[..], &[0; 4], &[0xff; 4], &all] {
            let (mut launcher, agent) = agent();
            launcher.write_all(wrong).unwrap();
            let mut frames = Frames::default();
            let said = hear(&mut launcher, &mut frames);
            let Some(Report::Said(FromHost::Failed { why, .. })) = said else {
                panic!("{wrong:?}: {said:?}")
            };
            assert!(why.contains("install one version on all hosts"), "{why}");
            let done = agent.join().unwrap();
            assert!(matches!(done, Err(AgentError::Failed(_))), "{done:?}");
        }
    }
}
