//! Streams of bytes as peers: the kernel's TCP, polled and never waiting, and
//! what goes over it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;

use portolan_hosts::failure::{Context, Result, fail};
use rustix::net::sockopt::{set_tcp_congestion, tcp_congestion};

use crate::ranks::asleep::{REST, Sleeps};
use crate::ranks::drive::Channel;

/// Least room to receive into, bytes: what a program that reads a stream has.
const ROOM_MIN: usize = 64 << 10;

/// What carries bytes. No call waits, unless the connection sleeps.
pub trait Bytes {
    /// The connection below.
    fn connection(&self) -> &TcpStream;

    /// Takes as many of these as it can now; gives how many.
    fn send(&mut self, bytes: &[u8]) -> Result<usize>;

    /// Whether all that it took has left.
    fn flush(&mut self) -> Result<bool> {
        Ok(true)
    }

    /// Fills the room with what has come; gives how many bytes that is.
    fn receive(&mut self, room: &mut [u8]) -> Result<usize>;
}

/// Sets a connection's congestion control, and returns its name. That is the kernel's
/// default, except for BBR on a network that loses nothing: BBR paces, and reached a third
/// of cubic's bandwidth between hosts of a lab. There it is cubic, or reno where cubic is
/// not allowed. Under loss BBR is the fastest.
fn choose_congestion(connection: impl AsFd, lossy: bool) -> Result<String> {
    let name = tcp_congestion(&connection)?;
    if lossy || !name.starts_with("bbr") {
        return Ok(name);
    }
    let allowed = |name: &&str| set_tcp_congestion(&connection, name).is_ok();
    let chosen = ["cubic", "reno"].into_iter().find(allowed);
    Ok(chosen.map_or(name, str::to_owned))
}

/// The congestion control of this process's connections on such a network.
pub fn congestion(lossy: bool) -> Option<String> {
    let any = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
    choose_congestion(&any, lossy).ok()
}

/// What became of reading: 0 if nothing has come.
#[inline]
pub fn taken(by: &str, read: io::Result<usize>) -> Result<usize> {
    match read {
        Ok(0) => fail(format!("{by}: the other process has closed the connection")),
        Ok(count) => Ok(count),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        Err(error) => Err(error).context(format!("{by} receive")),
    }
}

/// Messages over a stream of bytes.
pub struct Messages<B> {
    by: B,
    out: Vec<u8>,
    out_at: usize,
    room: Vec<u8>,
    fill: usize,
    partial: usize,
    received: u64,
}

/// Those over one connection.
pub type Tcp = Messages<TcpStream>;

impl<B: Bytes> Messages<B> {
    /// Over a connection that stands, with TCP_NODELAY.
    pub fn over(by: B, size_max: usize) -> Result<Self> {
        by.connection().set_nodelay(true)?;
        by.connection().set_nonblocking(true)?;
        Ok(Self {
            by,
            out: vec![0x5a; size_max],
            out_at: 0,
            room: vec![0; size_max.max(ROOM_MIN)],
            fill: 0,
            partial: 0,
            received: 0,
        })
    }

    /// Sets the congestion control that is fastest on a network that loses packets, or on
    /// one that does not.
    pub fn on_network(self, lossy: bool) -> Result<Self> {
        choose_congestion(self.by.connection(), lossy)?;
        Ok(self)
    }
}

impl Tcp {
    /// Connects to `offer`.
    pub fn connect(offer: &str, size_max: usize) -> Result<Self> {
        let stream = TcpStream::connect(offer).context(format!("connecting to {offer}"))?;
        Self::over(stream, size_max)
    }

    /// Takes the connection that waits at `listener`.
    pub fn accept(listener: &TcpListener, size_max: usize) -> Result<Self> {
        let (stream, _) = listener.accept().context("accepting a TCP connection")?;
        Self::over(stream, size_max)
    }
}

impl Bytes for TcpStream {
    fn connection(&self) -> &TcpStream {
        self
    }

    #[inline]
    fn send(&mut self, bytes: &[u8]) -> Result<usize> {
        match self.write(bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            sent => sent.context("TCP send"),
        }
    }

    #[inline]
    fn receive(&mut self, room: &mut [u8]) -> Result<usize> {
        taken("TCP", self.read(room))
    }
}

impl<B: Bytes> Channel for Messages<B> {
    const RELIABLE: bool = true;
    // About half a millisecond of empty calls.
    const POLLS_PER_LOOK: u32 = 1024;

    fn begin(&mut self) -> Result<()> {
        Ok(())
    }

    #[inline]
    fn try_send(&mut self, size: usize) -> Result<bool> {
        self.out_at += self.by.send(&self.out[self.out_at..size])?;
        let whole = self.out_at == size && self.by.flush()?;
        if whole {
            self.out_at = 0;
        }
        Ok(whole)
    }

    fn sending(&self) -> bool {
        self.out_at > 0
    }

    #[inline]
    fn poll(&mut self, size: usize) -> Result<u64> {
        let count = self.by.receive(&mut self.room[self.fill..])?;
        self.fill += count;
        if self.fill == self.room.len() {
            self.fill = 0;
        }
        self.received += count as u64;
        self.partial += count;
        let messages = self.partial / size;
        self.partial %= size;
        Ok(messages as u64)
    }

    fn received(&self) -> u64 {
        self.received
    }
}

impl<B: Bytes> Sleeps for Messages<B> {
    fn set_sleeping(&mut self, on: bool) -> Result<()> {
        let connection = self.by.connection();
        connection.set_nonblocking(!on)?;
        connection.set_read_timeout(Some(REST))?;
        Ok(connection.set_write_timeout(Some(REST))?)
    }
}
