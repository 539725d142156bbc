//! Setup of the streams. Each process listens, and sends its address to lower-numbered ones
//! over the endpoint. They connect, and identify themselves by a random word that came with the
//! address: the endpoint may encrypt, and a stranger does not know the word.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use super::{ASK, Stream, Streams, is_later, wait_for};
use crate::exchange::{Part, Wire};
use crate::failure::Failure;
use crate::heads::Intake;
use crate::tcp::frames::{Incoming, Outgoing};
use crate::wire::Engine;

/// Length of the word, bytes.
const WORD: usize = 16;
/// Length of a listener's card: address, port, word.
const CARD: usize = 16 + 2 + WORD;
/// Length of a caller's first bytes: the word, and its number.
const HELLO: usize = WORD + 4;
/// Timeout of connecting: as long as ranks wait for each other by default.
const CONNECT: Duration = Duration::from_secs(60);
/// Most callers without a complete hello, beside the processes; one more drops the oldest.
const STRANGERS_MAX: usize = 64;

fn failed(what: &str, e: &io::Error) -> Failure {
    let files = Errno::from_io_error(e) == Some(Errno::MFILE);
    let remedy = if files {
        ": a process needs one for each other process (ulimit -n 1024)"
    } else {
        ""
    };
    Failure::Endpoint(format!("BSP_TRANSPORT=tcp: {what}: {e}{remedy}"))
}

impl Streams {
    /// Connects all processes with each other. Heads go to `intake`.
    pub fn open(engine: &mut Engine, size: u32, intake: Intake) -> Result<Self, Failure> {
        let me = engine.endpoint.rank();
        // Without an address, shared memory reaches all: they are on one host.
        let ip = engine.endpoint.ip().unwrap_or(Ipv4Addr::LOCALHOST.into());
        let listener = Listener::new(ip)?;
        for lower in 0..me {
            let card = listener.card.to_vec().into();
            engine.send(lower, Part::Log, 0, card, false)?;
        }
        for higher in me + 1..size {
            let room = engine.room(higher, CARD as u64)?.into();
            engine.expect(higher, Part::Log, 0, room)?;
        }
        let mut sockets: Vec<_> = (0..size).map(|_| None).collect();
        for _ in me + 1..size {
            let card = engine.next()?;
            let who = card.from;
            let bytes = card
                .bytes
                .first_chunk()
                .filter(|_| card.bytes.len() == CARD);
            let bytes = bytes.ok_or(Failure::Malformed { who })?;
            sockets[who as usize] = Some(connect(me, who, bytes)?);
        }
        let lower = listener.accept(me, |missing| {
            engine.endpoint.progress()?;
            match missing
                .iter()
                .find_map(|who| Some((*who, engine.endpoint.death(*who).ok()??)))
            {
                Some((who, why)) => {
                    let why = why.to_string();
                    Err(Failure::Died { who, why })
                }
                None => Ok(()),
            }
        })?;
        for (place, socket) in sockets.iter_mut().zip(lower) {
            *place = Some(socket);
        }
        let streams = (0..).zip(sockets).filter_map(|(who, socket)| {
            Some(Stream {
                who,
                socket: socket?,
                outgoing: Outgoing::default(),
                incoming: Incoming::default(),
                gone: None,
            })
        });
        Ok(Self {
            me,
            streams: streams.collect(),
            intake,
            arrived: VecDeque::new(),
        })
    }
}

/// Connects this process to another, by its card.
fn connect(me: u32, who: u32, card: &[u8; CARD]) -> Result<TcpStream, Failure> {
    let (ip, rest) = card.split_at(16);
    let (port, word) = rest.split_at(2);
    let malformed = Failure::Malformed { who };
    let (Some(ip), Some(port)) = (ip.first_chunk::<16>(), port.first_chunk()) else {
        return Err(malformed);
    };
    let at = SocketAddr::new(IpAddr::from(*ip).to_canonical(), u16::from_le_bytes(*port));
    let failed = |e| {
        let what = format!("no connection to process {who} at {at}, which must be open to TCP");
        failed(&what, &e)
    };
    let mut socket = TcpStream::connect_timeout(&at, CONNECT).map_err(failed)?;
    let hello = [word, &me.to_le_bytes()].concat();
    socket.write_all(&hello).map_err(failed)?;
    prepare(&socket).map_err(failed)?;
    Ok(socket)
}

/// Makes small frames leave at once, and no call block.
fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket.set_nonblocking(true)
}

struct Listener {
    socket: TcpListener,
    card: [u8; CARD],
}

/// Connection whose hello is not complete.
struct Caller {
    socket: TcpStream,
    hello: [u8; HELLO],
    said: usize,
}

impl Caller {
    /// Reads at most the rest of the hello; `None` if the connection has ended.
    fn read(&mut self) -> Option<()> {
        match (&self.socket).read(&mut self.hello[self.said..]) {
            Ok(0) => None,
            Ok(read) => {
                self.said += read;
                Some(())
            }
            Err(e) => is_later(&e).then_some(()),
        }
    }

    /// Returns the caller's number, if that is below `most` and the word is right.
    fn number(&self, word: &[u8], most: u32) -> Option<u32> {
        let who = u32::from_le_bytes(*self.hello.last_chunk()?);
        (self.hello.starts_with(word) && who < most).then_some(who)
    }
}

impl Listener {
    fn new(ip: IpAddr) -> Result<Self, Failure> {
        let what = format!("nobody can connect to this process at {ip}");
        let failed = |e| failed(&what, &e);
        let socket = TcpListener::bind((ip, 0)).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let port = socket.local_addr().map_err(failed)?.port();
        let ip: Ipv6Addr = match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let mut card = [0; CARD];
        card[..16].copy_from_slice(&ip.octets());
        card[16..18].copy_from_slice(&port.to_le_bytes());
        getrandom(&mut card[18..], GetRandomFlags::empty()).map_err(|e| failed(e.into()))?;
        Ok(Self { socket, card })
    }

    /// Accepts the first `count` processes. `idle` gets the missing ones when nothing happens.
    fn accept(
        self,
        count: u32,
        mut idle: impl FnMut(&[u32]) -> Result<(), Failure>,
    ) -> Result<Vec<TcpStream>, Failure> {
        let word = &self.card[18..];
        let mut callers: VecDeque<Caller> = VecDeque::new();
        let mut known: Vec<Option<TcpStream>> = (0..count).map(|_| None).collect();
        while known.iter().any(Option::is_none) {
            let sockets = callers
                .iter()
                .map(|it| PollFd::new(&it.socket, PollFlags::IN));
            let listener = PollFd::new(&self.socket, PollFlags::IN);
            let mut polled: Vec<_> = sockets.chain([listener]).collect();
            wait_for(&mut polled, ASK);
            if polled.iter().all(|it| it.revents().is_empty()) {
                let missing = (0..count).filter(|who| known[*who as usize].is_none());
                idle(&missing.collect::<Vec<_>>())?;
            }
            self.answer(&mut callers, count as usize + STRANGERS_MAX)?;
            for mut it in std::mem::take(&mut callers) {
                let is_open = it.read().is_some();
                if it.said < HELLO {
                    callers.extend(is_open.then_some(it));
                } else if let Some(who) = it.number(word, count) {
                    known[who as usize].get_or_insert(it.socket);
                }
            }
        }
        Ok(known.into_iter().flatten().collect())
    }

    /// Accepts pending connections; keeps at most `most`.
    fn answer(&self, callers: &mut VecDeque<Caller>, most: usize) -> Result<(), Failure> {
        loop {
            match self.socket.accept() {
                Ok((socket, _)) => {
                    prepare(&socket).map_err(|e| failed("a connection cannot be used", &e))?;
                    if callers.len() == most {
                        callers.pop_front();
                    }
                    callers.push_back(Caller {
                        socket,
                        hello: [0; HELLO],
                        said: 0,
                    });
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if is_gone(&e) => {}
                Err(e) => return Err(failed("a connection cannot be taken", &e)),
            }
        }
    }
}

/// Whether the caller has hung up, or the call was interrupted.
fn is_gone(e: &io::Error) -> bool {
    let kinds = [io::ErrorKind::ConnectionAborted, io::ErrorKind::Interrupted];
    kinds.contains(&e.kind())
}

#[cfg(test)]
mod tests;
