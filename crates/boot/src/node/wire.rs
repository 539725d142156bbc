//! Questions to the node service, and its answers.

use std::io::{self, IoSliceMut};
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use portolan_sys::socket;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, recv, recvmsg};
use serde::{Deserialize, Serialize, Serializer};

use crate::codec::{pack, unpack};
use crate::host_port::HostPortInfo;

/// First bytes of every question and every answer; the last one is the version.
/// The rest is [packed](crate::codec).
const MAGIC: [u8; 8] = *b"\0PTLNOD6";

/// Longest question, bytes.
pub const QUESTION_BYTES_MAX: usize = 48;
/// Longest text of an answer, bytes.
const TEXT_BYTES_MAX: usize = 1_008;

/// A question to the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// Asks whether this user may have host ports.
    May,
    /// Asks for a host port.
    Open {
        /// The address of the interface; none: the first that has one.
        at: Option<IpAddr>,
        /// Copy packets even where the driver could do without.
        copy: bool,
        /// One buffer a packet, even where it could span several.
        one_buffer: bool,
        /// Number of host ports that will be asked for and share a queue.
        ranks: u32,
        /// Group of this user that shares the queue, over any of its connections; none: this
        /// connection only.
        group: Option<u64>,
    },
    /// Releases a host port.
    Release {
        /// Its number.
        number: u32,
    },
}

impl Question {
    /// Whether the question has no answer.
    #[must_use]
    pub const fn is_release(&self) -> bool {
        matches!(self, Self::Release { .. })
    }

    /// Encodes the question.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        pack(&MAGIC, self)
    }

    /// Decodes what [`Self::encode`] returned; none for malformed bytes, and
    /// for another encoding of the same question.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let question: Self = unpack(bytes.strip_prefix(&MAGIC)?)?;
        (question.encode() == bytes).then_some(question)
    }
}

/// An answer of the service. Long texts are cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// This user may have host ports, within these bounds.
    Bounds(#[serde(serialize_with = "cut")] String),
    /// A host port; its descriptors come with the answer.
    Granted {
        /// Its number, by which it is released.
        number: u32,
        /// Its description.
        info: HostPortInfo,
    },
    /// No host port yet: packet memory comes with the answer. The client
    /// allocates its pages, so that they count as its own, and asks again.
    Allocate {
        /// Size of the memory.
        bytes: u32,
    },
    /// No host port, for this reason.
    Refused(#[serde(serialize_with = "cut")] String),
    /// No host port for any user, for this reason: root can do without the service.
    Unserved(#[serde(serialize_with = "cut")] String),
}

impl Answer {
    pub(super) fn encode(&self) -> Vec<u8> {
        pack(&MAGIC, self)
    }

    /// Decodes an answer; none for malformed bytes.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        unpack(bytes.strip_prefix(&MAGIC)?)
    }
}

/// Serializes the beginning of a text, to the last character that fits.
fn cut<S: Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
    let fits = |at: &usize| text.is_char_boundary(*at);
    let end = (0..=text.len().min(TEXT_BYTES_MAX)).rev().find(fits);
    to.serialize_str(&text[..end.unwrap_or(0)])
}

/// What was received over a connection to the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A question.
    Question(Question),
    /// Bytes that are no question.
    Garbled,
    /// Nothing yet.
    Nothing,
    /// The other side is gone.
    End,
}

/// Takes the next question from a connection, without waiting. A message with
/// descriptors is none, and stays in the queue: taking it would close them.
#[must_use]
pub fn hear(connection: BorrowedFd<'_>) -> Heard {
    // One byte more shows what is too long.
    let mut bytes = [0; QUESTION_BYTES_MAX + 1];
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
            // Still the first message: only this function reads here.
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
/// nothing was sent, and the connection is of no more use.
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
            ranks: u32::MAX,
            group: at.map(|_| u64::MAX),
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
            let bytes = question.encode();
            assert!(bytes.len() <= QUESTION_BYTES_MAX);
            assert_eq!(Question::decode(&bytes), Some(question));
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
        let question = Question::Release { number: 1 };
        let good = question.encode();
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[at] ^= 1 << bit;
                let found = Question::decode(&bytes);
                assert_ne!(found, Some(question), "byte {at}, bit {bit}");
                assert!(found.is_none() || at >= MAGIC.len(), "byte {at}, bit {bit}");
            }
            assert_eq!(Question::decode(&good[..at]), None);
        }
        assert_eq!(Question::decode(&[&good[..], &[0]].concat()), None);
        // An equal number in a longer encoding.
        let [start @ .., 1] = &good[..] else {
            panic!("{good:?}")
        };
        assert_eq!(Question::decode(&[start, &[0x81, 0]].concat()), None);
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
