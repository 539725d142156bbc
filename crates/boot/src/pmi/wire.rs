//! Messages to and from a PMI server.
//!
//! | | a message |
//! | --- | --- |
//! | PMI-1 | `cmd=NAME key=value ...` and a line feed |
//! | PMI-2 | its length in 6 characters, then `cmd=NAME;key=value;...;` |

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::PmiError;

/// Longest answer, bytes: a value of 1,024 and the words around it, several times.
const ANSWER_BYTES_MAX: usize = 8192;
/// Most bytes of an answer that an error shows.
const SHOWN_MAX: usize = 120;
/// Characters of PMI-2's length, padded with blanks: by hydra in front, by Slurm behind.
const LENGTH_BYTES: usize = 6;

/// Format of a message: PMI-1 or PMI-2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    One,
    Two,
}

/// An operation, with its start and its timeout.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeout {
    pub doing: &'static str,
    since: Instant,
    limit: Duration,
}

impl Timeout {
    pub fn new(doing: &'static str, limit: Duration) -> Self {
        Self {
            doing,
            since: Instant::now(),
            limit,
        }
    }

    /// Returns the time that is left.
    fn left(&self) -> Result<Duration, PmiError> {
        let left = self.limit.checked_sub(self.since.elapsed());
        left.ok_or(PmiError::TimedOut {
            doing: self.doing,
            waited: self.limit,
        })
    }

    fn failed(&self, errno: Errno) -> PmiError {
        let doing = self.doing;
        match errno {
            Errno::PIPE | Errno::CONNRESET => PmiError::Gone { doing },
            errno => PmiError::Io {
                doing,
                error: errno.into(),
            },
        }
    }
}

/// The connection to the server.
#[derive(Debug)]
pub(super) struct Stream {
    socket: OwnedFd,
    /// Bytes received beyond the last answer.
    held: Vec<u8>,
}

impl Stream {
    pub const fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            held: Vec::new(),
        }
    }

    /// Sends a command.
    pub fn say(
        &self,
        format: Format,
        command: &str,
        pairs: &[(&str, &str)],
        timeout: Timeout,
    ) -> Result<(), PmiError> {
        let message = encode(format, command, pairs);
        let mut rest = &message[..];
        while !rest.is_empty() {
            self.wait(PollFlags::OUT, timeout)?;
            match send(
                &self.socket,
                rest,
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            ) {
                Ok(n) => rest = &rest[n..],
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(timeout.failed(errno)),
            }
        }
        Ok(())
    }

    /// Receives an answer.
    pub fn hear(&mut self, format: Format, timeout: Timeout) -> Result<Answer, PmiError> {
        let text = match format {
            Format::One => self.line(timeout)?,
            Format::Two => self.frame(timeout)?,
        };
        Answer::parse(format, &text, timeout.doing)
    }

    fn line(&mut self, timeout: Timeout) -> Result<Vec<u8>, PmiError> {
        loop {
            if let Some(end) = self.held.iter().position(|byte| *byte == b'\n') {
                let rest = self.held.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.held, rest);
                line.pop();
                return Ok(line);
            }
            self.fill(timeout)?;
        }
    }

    fn frame(&mut self, timeout: Timeout) -> Result<Vec<u8>, PmiError> {
        loop {
            if let Some((length, _)) = self.held.split_first_chunk::<LENGTH_BYTES>() {
                let number = std::str::from_utf8(length).ok();
                let number = number.and_then(|text| text.trim_matches(' ').parse::<usize>().ok());
                let Some(bytes) = number.filter(|n| *n <= ANSWER_BYTES_MAX) else {
                    return Err(malformed(&self.held, timeout.doing));
                };
                let end = LENGTH_BYTES + bytes;
                if self.held.len() >= end {
                    let rest = self.held.split_off(end);
                    let mut frame = std::mem::replace(&mut self.held, rest);
                    frame.drain(..LENGTH_BYTES);
                    return Ok(frame);
                }
            }
            self.fill(timeout)?;
        }
    }

    /// Receives what there is, at least one byte.
    fn fill(&mut self, timeout: Timeout) -> Result<(), PmiError> {
        if self.held.len() > ANSWER_BYTES_MAX {
            return Err(malformed(&self.held, timeout.doing));
        }
        let mut bytes = [0; 2048];
        loop {
            self.wait(PollFlags::IN, timeout)?;
            match recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => {
                    return Err(PmiError::Gone {
                        doing: timeout.doing,
                    });
                }
                Ok((n, _)) => {
                    self.held.extend(&bytes[..n]);
                    return Ok(());
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(timeout.failed(errno)),
            }
        }
    }

    fn wait(&self, flags: PollFlags, timeout: Timeout) -> Result<(), PmiError> {
        loop {
            let left = Timespec::try_from(timeout.left()?).expect("far below the clock's end");
            let mut fds = [PollFd::from_borrowed_fd(self.socket.as_fd(), flags)];
            match poll(&mut fds, Some(&left)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(timeout.failed(errno)),
            }
        }
    }
}

fn encode(format: Format, command: &str, pairs: &[(&str, &str)]) -> Vec<u8> {
    let (between, end) = match format {
        Format::One => (" ", "\n"),
        Format::Two => (";", ";"),
    };
    let mut text = format!("cmd={command}");
    for (key, value) in pairs {
        debug_assert!(!value.contains([' ', ';', '=', '\n']) && !key.contains([' ', ';', '=']));
        text += &format!("{between}{key}={value}");
    }
    text += end;
    match format {
        Format::One => text.into_bytes(),
        Format::Two => format!("{:6}{text}", text.len()).into_bytes(),
    }
}

/// An answer of the server: the command's name, then pairs.
#[derive(Debug)]
pub(super) struct Answer {
    text: String,
    pairs: Vec<(String, String)>,
    doing: &'static str,
}

impl Answer {
    fn parse(format: Format, bytes: &[u8], doing: &'static str) -> Result<Self, PmiError> {
        let wrong = || malformed(bytes, doing);
        let text = std::str::from_utf8(bytes).map_err(|_| wrong())?;
        let words = match format {
            Format::One => text.split(' '),
            Format::Two => text.strip_suffix(';').ok_or_else(wrong)?.split(';'),
        };
        let mut pairs: Vec<(String, String)> = Vec::new();
        for word in words.filter(|word| !word.is_empty()) {
            let (key, value) = word.split_once('=').ok_or_else(wrong)?;
            if pairs.iter().any(|(known, _)| known == key) {
                return Err(wrong());
            }
            pairs.push((key.to_owned(), value.to_owned()));
        }
        Ok(Self {
            text: text.to_owned(),
            pairs,
            doing,
        })
    }

    /// Fails unless this answers with `command` and reports success.
    pub fn expect(self, command: &str) -> Result<Self, PmiError> {
        match self.pairs.first() {
            Some((key, name)) if key == "cmd" && name == command => {}
            _ => return Err(self.malformed()),
        }
        match self.get("rc").map(str::parse::<i64>) {
            None | Some(Ok(0)) => Ok(self),
            Some(Ok(_)) => Err(PmiError::Refused {
                doing: self.doing,
                answer: self.shown(),
            }),
            Some(Err(_)) => Err(self.malformed()),
        }
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        let pair = self.pairs.iter().find(|(known, _)| known == key);
        pair.map(|(_, value)| value.as_str())
    }

    /// Returns a value that must be there.
    pub fn need(&self, key: &str) -> Result<&str, PmiError> {
        self.get(key).ok_or_else(|| self.malformed())
    }

    /// Returns a number that must be there.
    pub fn number(&self, key: &str) -> Result<u32, PmiError> {
        let number = self.need(key)?.parse();
        number.map_err(|_| self.malformed())
    }

    pub fn malformed(&self) -> PmiError {
        malformed(self.text.as_bytes(), self.doing)
    }

    /// Returns the answer as an error shows it.
    pub fn shown(&self) -> String {
        shown(self.text.as_bytes())
    }
}

/// Reads bytes as a server's answer. Returns whether they answer a request for a value.
#[cfg(feature = "properties")]
pub(crate) fn answers_are_read(bytes: &[u8]) -> bool {
    let mut understood = false;
    for format in [Format::One, Format::Two] {
        if let Ok(answer) = Answer::parse(format, bytes, "fuzzing") {
            let _ = answer.number("size");
            understood |= answer.expect("get_result").is_ok();
        }
    }
    understood
}

fn malformed(bytes: &[u8], doing: &'static str) -> PmiError {
    PmiError::Malformed {
        doing,
        answer: shown(bytes),
    }
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_MAX)]).into_owned()
}
