//! The processes' side of their host's agent: the first runs it and sends it a
//! [`Brief`], all connect to it.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use portolan_sys::children::Start;
use portolan_sys::closing::Closer;
use portolan_sys::environment;
use portolan_sys::lives::{Lives, Pulse};
use portolan_sys::memory::Hidden;
use portolan_sys::process::{is_our_user, peer};
use portolan_sys::socket::{self, Received};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with,
    socketpair,
};
use rustix::process::geteuid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::events::HostCard;
use crate::codec::decode;
use crate::frame::{Frames, json};
use crate::message::{ToRank, Versions};

/// Timeout of the agent.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Head of the frame of the pre-shared key: its length, 33, and its kind. 32 bytes follow.
const MIX_HEAD: [u8; 5] = [33, 0, 0, 0, b'M'];

/// Arguments that run the `portolan` command as an agent of guests.
pub const GUEST_AGENT_WORDS: [&str; 2] = ["internal-agent", "--guests"];

/// Message of a host's first process to its agent.
#[derive(Serialize, Deserialize)]
pub(in crate::guest) struct Brief {
    pub versions: Versions,
    pub job_id: u64,
    /// The host's number.
    pub host: u16,
    /// Rank and process of each one to watch, by number on the host.
    pub watched: Vec<(u32, u32)>,
    /// A pre-shared key goes into the keys, and comes next.
    pub has_mix: bool,
    /// A host of which nothing was heard for this long is lost.
    pub silence: Duration,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The agent listens; other agents need these.
    Ready { port: u16, key: [u8; 32] },
    /// The agent cannot serve, for this reason.
    Refused { why: String },
}

/// An agent that was run and has not answered yet.
#[derive(Debug)]
pub(in crate::guest) struct Called {
    stream: OwnedFd,
    /// Process that runs the agent detached from this one, and ends.
    starter: Option<Child>,
}

/// An agent that listens.
#[derive(Debug)]
pub(in crate::guest) struct Present {
    stream: OwnedFd,
    pub port: u16,
    pub key: [u8; 32],
}

impl Called {
    /// Runs `program` as the agent of this host. Does not wait for it.
    pub fn run(program: &OsStr, brief: &Brief, mix: Option<&[u8; 32]>) -> Result<Self, String> {
        let flags = SocketFlags::CLOEXEC;
        let (stream, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(|errno| format!("no socket for the agent: {errno}"))?;
        let mut command =
            environment::command(program).map_err(|why| format!("no agent: {why}"))?;
        command
            .args(GUEST_AGENT_WORDS)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let starter = command
            .start()
            .map_err(|error| format!("no agent: {} cannot be run: {error}", program.display()))?;
        drop(command);
        let starter = Some(starter);
        Ok(Self {
            starter,
            ..Self::told(stream, brief, mix)
        })
    }

    /// Sends the brief over the stream to an agent.
    pub(super) fn told(stream: OwnedFd, brief: &Brief, mix: Option<&[u8; 32]>) -> Self {
        // If the agent is gone, `wait` reports that.
        let _ = say(&stream, &json(brief));
        if let Some(mix) = mix {
            let _ = say(&stream, &MIX_HEAD).and_then(|()| say(&stream, mix));
        }
        Self {
            stream,
            starter: None,
        }
    }

    /// Waits until the agent listens.
    pub fn wait(mut self) -> Result<Present, String> {
        let answer = hear(&self.stream, &mut Frames::default(), TIMEOUT);
        // A starter that still runs has failed. The program may itself have
        // waited for all its children.
        if let Some(starter) = &mut self.starter {
            let _ = starter.kill();
            let _ = starter.wait();
        }
        match answer {
            Ok(Answer::Ready { port, key }) => Ok(Present {
                stream: self.stream,
                port,
                key,
            }),
            Ok(Answer::Refused { why }) => Err(format!("the agent: {why}")),
            Err(why) => Err(format!("the agent does not answer: {why}")),
        }
    }
}

impl Present {
    /// Sends the agent the cards of the other hosts.
    pub fn introduce(self, hosts: &[HostCard]) -> Result<(), String> {
        say(&self.stream, &json(&hosts)).map_err(|error| format!("the agent is gone: {error}"))
    }
}

/// Returns the address at which the processes of a host find their agent.
pub(super) fn agent_address(job_id: u64) -> io::Result<SocketAddrUnix> {
    let name = format!("portolan-agent-{job_id:016x}-{}", geteuid().as_raw());
    Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

/// Connects to the agent of this host as number `index` there. Returns the
/// socket by which it reports on others, and the futex word by which it knows
/// that this process lives, if it watches words.
pub(in crate::guest) fn meet(job_id: u64, index: u16) -> Result<(OwnedFd, Option<Pulse>), String> {
    let said = |doing: &'static str| move |error: io::Error| format!("{doing} the agent: {error}");
    let open = || {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        connect(&socket, &agent_address(job_id)?)?;
        let uid = peer(socket.as_fd())?.uid;
        if !is_our_user(uid) {
            Closer::default().take(socket);
            return Err(io::Error::other(format!("user {uid} answers")));
        }
        wait(&socket, Instant::now() + TIMEOUT)?;
        Ok(socket)
    };
    let control = open().map_err(said("reaching"))?;
    let got = socket::receive(control.as_fd(), false).map_err(said("hearing"))?;
    let Some(Received {
        bytes, descriptors, ..
    }) = got
    else {
        return Err("the agent does not know this process".to_owned());
    };
    if !matches!(decode(&bytes), Some(ToRank::Watched)) {
        return Err("the agent says what this version does not understand".to_owned());
    }
    let pulse = descriptors.into_iter().next().map(|lives| {
        let pulse = Lives::from_fd(lives).ok();
        let pulse = pulse.and_then(|lives| Pulse::new(lives, index.into()));
        pulse.ok_or("the memory that the agent sent is not valid")
    });
    Ok((control, pulse.transpose()?))
}

/// Sends all of a frame.
pub(super) fn say(stream: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match send(stream, bytes, SendFlags::NOSIGNAL) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Receives the next message, within `limit`.
pub(super) fn hear<T: DeserializeOwned>(
    stream: &OwnedFd,
    frames: &mut Frames,
    limit: Duration,
) -> Result<T, String> {
    hear_as(stream, frames, limit, |body| {
        serde_json::from_slice(body).ok()
    })
}

/// Receives the pre-shared key; leaves nothing of it elsewhere.
pub(super) fn hear_mix(
    stream: &OwnedFd,
    frames: &mut Frames,
    limit: Duration,
) -> Result<Hidden<32>, String> {
    let read = |body: &[u8]| Hidden::copy_of(body.try_into().ok()?).ok();
    let mix = hear_as(stream, frames, limit, read)?;
    frames.wipe();
    Ok(mix)
}

fn hear_as<T>(
    stream: &OwnedFd,
    frames: &mut Frames,
    limit: Duration,
    read: impl Fn(&[u8]) -> Option<T>,
) -> Result<T, String> {
    let until = Instant::now() + limit;
    let mut bytes = Zeroizing::new([0; 4 << 10]);
    loop {
        let garbled = || "what it says makes no sense".to_owned();
        if let Some(content) = frames.next().map_err(|_| garbled())? {
            return read(content.get(1..).unwrap_or_default()).ok_or_else(garbled);
        }
        wait(stream, until).map_err(|error| error.to_string())?;
        match rustix::io::read(stream, &mut bytes[..]) {
            Ok(0) => return Err("it has gone".to_owned()),
            Ok(n) => frames.feed(&bytes[..n]),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(errno.to_string()),
        }
    }
}

/// Waits until something can be read.
pub(in crate::guest) fn wait(socket: impl AsFd, until: Instant) -> io::Result<()> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).expect("seconds");
        match poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
