//! The ranks' output: whole lines, each with its rank before it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{ChildStderr, ChildStdout};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// A line longer than this is broken, so that memory stays bounded.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Names the descriptor that ends the thread, beside the streams' indices.
const FINISH: u64 = u64::MAX;

/// A rank's pipes.
type Pipes = (u32, Option<ChildStdout>, Option<ChildStderr>);

/// The thread that collects and writes. It is not the one that watches the
/// job: a reader who has stopped must not keep Ctrl-C from working.
pub struct Output {
    thread: JoinHandle<()>,
    finish: OwnedFd,
}

impl Output {
    /// Starts collecting. The second value becomes readable if standard
    /// output cannot be written any more.
    pub fn start(pipes: Vec<Pipes>, prefix: bool) -> io::Result<(Self, OwnedFd)> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let finish = eventfd(0, flags)?;
        let broken = eventfd(0, flags)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(FINISH);
        epoll::add(&epoll, &finish, data, epoll::EventFlags::IN)?;
        let mut streams = Vec::new();
        for (rank, out, err) in pipes {
            let out = out.map(|pipe| (OwnedFd::from(pipe), false));
            let err = err.map(|pipe| (OwnedFd::from(pipe), true));
            for (pipe, is_error) in out.into_iter().chain(err) {
                fcntl_setfl(&pipe, fcntl_getfl(&pipe)? | OFlags::NONBLOCK)?;
                let data = epoll::EventData::new_u64(streams.len() as u64);
                epoll::add(&epoll, &pipe, data, epoll::EventFlags::IN)?;
                let lines = Lines::new(prefix.then_some(rank));
                streams.push(Stream {
                    pipe: Some(pipe.into()),
                    is_error,
                    lines,
                });
            }
        }
        let writer = Writer {
            tell: broken.try_clone()?,
            readers_gone: false,
        };
        let thread = std::thread::Builder::new()
            .name("output".to_owned())
            .spawn(move || collect(&epoll, streams, writer))?;
        Ok((Self { thread, finish }, broken))
    }

    /// Writes what is left. All ranks have ended: what some process that fled
    /// its group may still write is not waited for.
    pub fn finish(self) {
        let _ = rustix::io::write(&self.finish, &1_u64.to_ne_bytes());
        let _ = self.thread.join();
    }
}

struct Stream {
    pipe: Option<File>,
    is_error: bool,
    lines: Lines,
}

impl Stream {
    /// Reads once; gives whether more may wait.
    fn pump(&mut self, writer: &mut Writer) -> bool {
        let Some(pipe) = &mut self.pipe else {
            return false;
        };
        let mut bytes = [0; 64 * 1024];
        let mut whole = Vec::new();
        match pipe.read(&mut bytes) {
            Ok(n) if n > 0 => self.lines.feed(&bytes[..n], &mut whole),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => {
                self.pipe = None;
                self.lines.end(&mut whole);
            }
        }
        writer.write(&whole, self.is_error);
        self.pipe.is_some()
    }
}

fn collect(epoll: &OwnedFd, mut streams: Vec<Stream>, mut writer: Writer) {
    loop {
        let none = epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        };
        let mut events = [none; 64];
        let n = epoll::wait(epoll, &mut events[..], None).unwrap_or(0);
        for event in &events[..n] {
            let index = event.data.u64();
            if index == FINISH {
                for stream in &mut streams {
                    while stream.pump(&mut writer) {}
                    let mut rest = Vec::new();
                    stream.lines.end(&mut rest);
                    writer.write(&rest, stream.is_error);
                }
                return;
            }
            if let Some(stream) = usize::try_from(index).ok().and_then(|i| streams.get_mut(i)) {
                stream.pump(&mut writer);
            }
        }
    }
}

struct Writer {
    tell: OwnedFd,
    readers_gone: bool,
}

impl Writer {
    fn write(&mut self, bytes: &[u8], is_error: bool) {
        if bytes.is_empty() {
            return;
        }
        if is_error {
            // Nobody can be told that messages cannot be told.
            let _ = write_fully(&mut io::stderr().lock(), &io::stderr(), bytes);
        } else if !self.readers_gone
            && write_fully(&mut io::stdout().lock(), &io::stdout(), bytes).is_err()
        {
            self.readers_gone = true;
            let _ = rustix::io::write(&self.tell, &1_u64.to_ne_bytes());
        }
    }
}

/// Writes all, also where the descriptor happens to be non-blocking.
fn write_fully(to: &mut impl Write, fd: &impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll(&mut [PollFd::new(fd, PollFlags::OUT)], None)?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    to.flush()
}

/// Cuts a stream into lines.
struct Lines {
    /// Before each line.
    prefix: Vec<u8>,
    /// The line that has no end yet.
    partial: Vec<u8>,
}

impl Lines {
    fn new(rank: Option<u32>) -> Self {
        let prefix = rank.map_or_else(Vec::new, |rank| format!("[{rank}] ").into_bytes());
        Self {
            prefix,
            partial: Vec::new(),
        }
    }

    /// Takes bytes and gives the lines that they complete.
    fn feed(&mut self, bytes: &[u8], whole: &mut Vec<u8>) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.partial.extend_from_slice(piece);
            if self.partial.ends_with(b"\n") {
                self.emit(whole);
            } else if self.partial.len() >= LINE_BYTES_MAX {
                self.partial.push(b'\n');
                self.emit(whole);
            }
        }
    }

    /// Gives the last line, which has no end; with a prefix it gets one.
    fn end(&mut self, whole: &mut Vec<u8>) {
        if !self.partial.is_empty() {
            if !self.prefix.is_empty() {
                self.partial.push(b'\n');
            }
            self.emit(whole);
        }
    }

    fn emit(&mut self, whole: &mut Vec<u8>) {
        whole.extend_from_slice(&self.prefix);
        whole.append(&mut self.partial);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(rank: Option<u32>, pieces: &[&str]) -> String {
        let mut lines = Lines::new(rank);
        let mut whole = Vec::new();
        for piece in pieces {
            lines.feed(piece.as_bytes(), &mut whole);
        }
        lines.end(&mut whole);
        String::from_utf8(whole).unwrap()
    }

    #[test]
    fn lines_are_whole_and_prefixed() {
        assert_eq!(
            cut(Some(3), &["a", "b\ncd\n", "\ne"]),
            "[3] ab\n[3] cd\n[3] \n[3] e\n"
        );
    }

    #[test]
    fn without_prefix_nothing_is_added() {
        assert_eq!(cut(None, &["a", "b\nc"]), "ab\nc");
    }

    #[test]
    fn an_endless_line_is_broken() {
        let long = "x".repeat(LINE_BYTES_MAX);
        assert_eq!(
            cut(Some(0), &[&long, "y\n"]),
            format!("[0] {long}\n[0] y\n")
        );
    }
}
