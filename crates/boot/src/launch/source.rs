//! Input of rank 0 on another host: what the launcher reads.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::epoll;
use rustix::io::Errno;

use super::Running;
use super::agent_protocol::{Order, STREAM_BYTES_MAX, ToHost};
use super::watch::Token;

/// Most input in flight to rank 0, bytes.
const INPUT_WINDOW_BYTES: u64 = 256 << 10;

/// Input of rank 0 on another host.
pub(super) struct Source {
    host: usize,
    descriptor: OwnedFd,
    /// Bytes that may be sent now.
    window: u64,
}

impl Source {
    pub fn new(host: usize, descriptor: OwnedFd, epoll: &OwnedFd) -> io::Result<Self> {
        let data = Token::Source.data();
        epoll::add(epoll, &descriptor, data, epoll::EventFlags::IN)?;
        Ok(Self {
            host,
            descriptor,
            window: INPUT_WINDOW_BYTES,
        })
    }
}

impl Running {
    /// Forwards what can be read, as far as rank 0 takes it.
    pub(super) fn handle_source(&mut self) -> io::Result<()> {
        let Some(source) = &mut self.source else {
            return Ok(());
        };
        let host = source.host;
        let room = usize::try_from(source.window).unwrap_or(usize::MAX);
        let mut bytes = vec![0; STREAM_BYTES_MAX.min(room)];
        let got = match rustix::io::read(&source.descriptor, &mut bytes[..]) {
            Err(Errno::INTR | Errno::AGAIN) => return Ok(()),
            Ok(n) => n,
            Err(_) => 0,
        };
        bytes.truncate(got);
        if got == 0 {
            self.source = None;
            return self.order(host, &Order::Said(ToHost::InputEnd));
        }
        source.window -= got as u64;
        if source.window == 0 {
            epoll::delete(&self.epoll, &source.descriptor)?;
        }
        self.order(host, &Order::Input(bytes))
    }

    pub(super) fn handle_input_taken(&mut self, bytes: u64) -> io::Result<()> {
        let Some(source) = &mut self.source else {
            return Ok(());
        };
        if source.window == 0 && bytes > 0 {
            let data = Token::Source.data();
            let flags = epoll::EventFlags::IN;
            epoll::add(&self.epoll, &source.descriptor, data, flags)?;
        }
        source.window = source.window.saturating_add(bytes).min(INPUT_WINDOW_BYTES);
        Ok(())
    }
}
