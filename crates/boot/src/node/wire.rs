//! Questions to the node service, and its answers.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, recv, recvmsg};

use crate::host_port::HostPortInfo;
use crate::socket;

/// Begins every question and every answer; the last byte is the version.
const MAGIC: [u8; 8] = *b"\0PTLNOD4";

/// Bytes of a question.
pub const QUESTION_BYTES: usize = 48;
/// Bytes of an answer before its text.
const HEAD_BYTES: usize = 16;
/// Longest text of an answer, bytes.
const TEXT_BYTES_MAX: usize = 1_008;

const MAY: u8 = 1;
const OPEN: u8 = 2;
const RELEASE: u8 = 3;
const COPY: u8 = 1;
const ONE_BUFFER: u8 = 2;

const BOUNDS: u8 = 1;
const GRANTED: u8 = 2;
const REFUSED: u8 = 3;
const UNSERVED: u8 = 4;
const ALLOCATE: u8 = 5;

/// What is asked of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// May this user have host ports?
    May,
    /// A host port.
    Open {
        /// On the interface with this address; none: the first that has one.
        at: Option<IpAddr>,
        /// Not even where the driver could do without a copy.
        copy: bool,
        /// A packet in one buffer only, also where it could lie in several.
        one_buffer: bool,
        /// So many will be asked for over this connection.
        ranks: u32,
    },
    /// The host port with this number is not needed any more.
    Release {
        /// Its number.
        number: u32,
    },
}

impl Question {
    /// Whether it is one that is not answered.
    #[must_use]
    pub const fn is_release(&self) -> bool {
        matches!(self, Self::Release { .. })
    }

    /// As it travels.
    #[must_use]
    pub fn encode(&self) -> [u8; QUESTION_BYTES] {
        let mut bytes = [0; QUESTION_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        match self {
            Self::May => bytes[8] = MAY,
            Self::Open {
                at,
                copy,
                one_buffer,
                ranks,
            } => {
                bytes[8] = OPEN;
                bytes[40..44].copy_from_slice(&ranks.to_le_bytes());
                bytes[9] = (u8::from(*copy) * COPY) | (u8::from(*one_buffer) * ONE_BUFFER);
                let at = match at {
                    None => Ipv6Addr::UNSPECIFIED,
                    Some(IpAddr::V4(ip)) => ip.to_ipv6_mapped(),
                    Some(IpAddr::V6(ip)) => *ip,
                };
                bytes[24..40].copy_from_slice(&at.octets());
            }
            Self::Release { number } => {
                bytes[8] = RELEASE;
                bytes[12..16].copy_from_slice(&number.to_le_bytes());
            }
        }
        bytes
    }

    /// What [`Self::encode`] gave; none for bytes that make no sense, also
    /// where what is to be zero is not.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; QUESTION_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| bytes[at..].first_chunk().map(|b| u32::from_le_bytes(*b));
        let ip = Ipv6Addr::from(*bytes[24..].first_chunk::<16>()?);
        let question = match bytes[8] {
            MAY => Self::May,
            OPEN => Self::Open {
                at: (!ip.is_unspecified()).then(|| ip.to_canonical()),
                copy: bytes[9] & COPY != 0,
                one_buffer: bytes[9] & ONE_BUFFER != 0,
                ranks: word(40)?,
            },
            RELEASE => Self::Release { number: word(12)? },
            _ => return None,
        };
        (question.encode() == *bytes).then_some(question)
    }
}

/// What the service answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This user may have host ports; within which bounds.
    Bounds(String),
    /// A host port, whose descriptors go along.
    Granted {
        /// What it is released by.
        number: u32,
        /// What it is.
        info: HostPortInfo,
    },
    /// None yet: packet memory goes along. Who asks takes its pages, so that they
    /// count as theirs, and asks again.
    Allocate {
        /// That it has.
        bytes: u32,
    },
    /// None, and why.
    Refused(String),
    /// None for anybody, and why: root can do without the service.
    Unserved(String),
}

impl Answer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, number, text) = match self {
            Self::Bounds(text) => (BOUNDS, 0, text.clone()),
            Self::Granted { number, info } => {
                let info = serde_json::to_string(info).expect("plain data in memory");
                (GRANTED, *number, info)
            }
            Self::Allocate { bytes } => (ALLOCATE, *bytes, String::new()),
            Self::Refused(why) => (REFUSED, 0, why.clone()),
            Self::Unserved(why) => (UNSERVED, 0, why.clone()),
        };
        let text = cut(&text);
        let length = u16::try_from(text.len()).expect("at most TEXT_BYTES_MAX");
        let mut bytes = Vec::with_capacity(HEAD_BYTES + text.len());
        bytes.extend(MAGIC);
        bytes.extend([kind, 0]);
        bytes.extend(length.to_le_bytes());
        bytes.extend(number.to_le_bytes());
        bytes.extend(text);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, text) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let length = u16::from_le_bytes([head[10], head[11]]);
        if head[..8] != MAGIC || usize::from(length) != text.len() {
            return None;
        }
        let number = u32::from_le_bytes(*head[12..].first_chunk()?);
        let words = || String::from_utf8(text.to_vec()).ok();
        Some(match head[8] {
            BOUNDS => Self::Bounds(words()?),
            GRANTED => Self::Granted {
                number,
                info: serde_json::from_slice(text).ok()?,
            },
            ALLOCATE => Self::Allocate { bytes: number },
            REFUSED => Self::Refused(words()?),
            UNSERVED => Self::Unserved(words()?),
            _ => return None,
        })
    }
}

/// The beginning of a text, to the last character that fits.
fn cut(text: &str) -> &[u8] {
    let fits = |at: &usize| text.is_char_boundary(*at);
    let end = (0..=text.len().min(TEXT_BYTES_MAX)).rev().find(fits);
    &text.as_bytes()[..end.unwrap_or(0)]
}

/// What came over a connection to the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A question.
    Question(Question),
    /// Bytes that are none.
    Garbled,
    /// Nothing yet.
    Nothing,
    /// The other side is gone.
    End,
}

/// Takes the next question from a connection, without waiting. A message with
/// descriptors is none, and is not taken: that would close them.
#[must_use]
pub fn hear(connection: BorrowedFd<'_>) -> Heard {
    // One byte more shows what is too long.
    let mut bytes = [0; QUESTION_BYTES + 1];
    let parts = &mut [IoSliceMut::new(&mut bytes)];
    let no_control = &mut RecvAncillaryBuffer::default();
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    let seen = loop {
        match recvmsg(connection, parts, no_control, flags) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Heard::Nothing,
            seen => break seen,
        }
    };
    match seen {
        Ok(seen) if seen.flags.contains(ReturnFlags::CTRUNC) => Heard::Garbled,
        Ok(seen) if seen.bytes > 0 => {
            // It is the first still: nobody else reads here.
            let _ = recv(connection, &mut [0; 1], RecvFlags::DONTWAIT);
            Question::decode(&bytes[..seen.bytes]).map_or(Heard::Garbled, Heard::Question)
        }
        _ => Heard::End,
    }
}

/// Answers over a connection, with the descriptors of a host port, without
/// waiting.
///
/// # Errors
/// `WouldBlock` if the other side does not read, `BrokenPipe` if it is gone:
/// it got nothing, and the connection is of no more use.
pub fn answer(
    connection: BorrowedFd<'_>,
    answer: &Answer,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    socket::send(connection, &answer.encode(), descriptors, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_answers_come_back_as_they_went() {
        let at = |text: &str| Some(text.parse().unwrap());
        let open = |at, copy, one_buffer| Question::Open {
            at,
            copy,
            one_buffer,
            ranks: 3,
        };
        for question in [
            Question::May,
            open(None, false, false),
            open(at("10.1.2.3"), true, false),
            open(at("fd00::7"), false, true),
            open(None, true, true),
            Question::Release {
                number: 0xdead_beef,
            },
        ] {
            assert_eq!(Question::decode(&question.encode()), Some(question));
        }
        let info = HostPortInfo {
            interface: 3,
            name: "eth0".to_owned(),
            mac: [2, 0, 0, 0, 0, 9],
            mtu: 9000,
            sharing: [1, 2],
            multi_buffer: true,
            unbound: false,
            sizes: [1, 2, 3, 4, 5, 6],
        };
        for answer in [
            Answer::Bounds("of 3".to_owned()),
            Answer::Granted { number: 7, info },
            Answer::Allocate { bytes: 5 << 20 },
            Answer::Refused("no".to_owned()),
            Answer::Unserved("old".to_owned()),
        ] {
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
    }

    #[test]
    fn whatever_is_changed_in_a_question_is_seen_or_another_question() {
        let good = Question::Release { number: 1 }.encode();
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bytes = good;
                bytes[at] ^= 1 << bit;
                let found = Question::decode(&bytes);
                // Only its number may differ.
                let number = (12..16).contains(&at);
                assert_eq!(found.is_some(), number, "byte {at}, bit {bit}: {found:?}");
            }
        }
        assert_eq!(Question::decode(&good[..47]), None);
        assert_eq!(Question::decode(&[&good[..], &[0]].concat()), None);
        assert_eq!(Question::decode(&[]), None);
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let answer = Answer::Refused("é".repeat(600));
        let Some(Answer::Refused(why)) = Answer::decode(&answer.encode()) else {
            panic!("no reason")
        };
        assert_eq!(why, "é".repeat(504));
    }
}
