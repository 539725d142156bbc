//! Frames on a stream of bytes: the length of what follows (32 bits, little
//! endian, at most [`FRAME_BYTES_MAX`]), and a [message](crate::codec).

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use serde::Serialize;
use zeroize::Zeroize;

use crate::codec::{KIND_PACKED, encode, pack};

/// Largest frame, bytes: a job description and the headers of hosts that relay it.
pub(crate) const FRAME_BYTES_MAX: usize = TASK_BYTES_MAX + 4096;

/// Largest job description, bytes: room for a large environment.
pub(crate) const TASK_BYTES_MAX: usize = 4 << 20;

/// Bytes that no launcher or agent of this version sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Garbled {
    /// A frame longer than [`FRAME_BYTES_MAX`], or without a kind.
    #[error("a message of {0} bytes")]
    Length(u32),
    /// A frame whose body is malformed.
    #[error("an unknown message of kind {0:#04x}")]
    Body(u8),
}

pub(crate) fn frame(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body: usize = parts.iter().map(|part| part.len()).sum();
    let mut bytes = Vec::with_capacity(body + 5);
    bytes.extend([0, 0, 0, 0, kind]);
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    with_length(bytes)
}

/// A frame that every version can read.
pub(crate) fn json(said: &impl Serialize) -> Vec<u8> {
    with_length([vec![0; 4], encode(said, true)].concat())
}

/// A frame that only this version can read.
pub(crate) fn packed(said: &impl Serialize) -> Vec<u8> {
    with_length(pack(&[0, 0, 0, 0, KIND_PACKED], said))
}

fn with_length(mut frame: Vec<u8>) -> Vec<u8> {
    let length = u32::try_from(frame.len() - 4).unwrap_or(u32::MAX);
    frame[..4].copy_from_slice(&length.to_le_bytes());
    frame
}

/// Splits a stream into frames. Holds at most one frame and what was fed last.
#[derive(Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    /// Offset of the next frame.
    at: usize,
}

impl Frames {
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Erases the bytes of frames that were read.
    pub fn wipe(&mut self) {
        let rest = self.rest().to_vec();
        self.bytes.zeroize();
        *self = Self { bytes: rest, at: 0 };
    }

    /// Bytes not yet read as frames.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Skips the next `bytes`.
    pub fn skip(&mut self, bytes: usize) {
        self.at += bytes.min(self.rest().len());
    }

    /// Returns the content of the next frame, if all of it has come.
    pub fn next(&mut self) -> Result<Option<&[u8]>, Garbled> {
        let Some((length, rest)) = self.rest().split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length);
        let bytes = length as usize;
        if bytes == 0 || bytes > FRAME_BYTES_MAX {
            return Err(Garbled::Length(length));
        }
        if rest.len() < bytes {
            return Ok(None);
        }
        let start = self.at + 4;
        self.at = start + bytes;
        Ok(Some(&self.bytes[start..self.at]))
    }
}

/// Bytes queued until a pipe has room.
#[derive(Default)]
pub(crate) struct Outgoing(VecDeque<u8>);

impl Outgoing {
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Writes as much as a descriptor that does not block takes; returns the
    /// number of bytes.
    pub fn flush(&mut self, to: BorrowedFd<'_>) -> io::Result<usize> {
        let mut written = 0;
        while !self.0.is_empty() {
            match rustix::io::write(to, self.0.as_slices().0) {
                Ok(n) => {
                    // Erased: a frame may hold the job's secret.
                    self.0.as_mut_slices().0[..n].fill(0);
                    self.0.drain(..n);
                    written += n;
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(written)
    }
}
