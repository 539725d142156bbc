//! Frames in streams: a header with tag and length, then the bytes. Either end resumes where
//! the stream has stopped.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::iter::once;

use portolan::{Buffer, Gather, Scatter};

use super::is_later;
use crate::heads::HEAD_MAX;
use crate::spare::ADDRESSES;
use crate::wire::step_of;

/// Length of a header: tag, and number of bytes that follow.
const HEADER: usize = 16;
/// Tag of a head, which names its superstep itself.
pub const HEAD: u64 = u64::MAX;
/// Bytes read at once at the start of a frame; a head fits.
const BUFFER: usize = 8192;
const _: () = assert!(BUFFER >= HEADER + HEAD_MAX);
/// Most slices of memory in one system call.
const SLICES_MAX: usize = 64;

/// Why a stream cannot go on.
#[derive(Debug)]
pub enum Trouble {
    Ended,
    Io(io::Error),
    Malformed,
    /// Bytes that could not be allocated.
    NoMemory(u64),
}

#[derive(Debug)]
struct Frame {
    header: [u8; HEADER],
    bytes: Gather,
    /// Length of `bytes`.
    length: usize,
}

/// Frames to be sent.
#[derive(Debug, Default)]
pub struct Outgoing {
    frames: VecDeque<Frame>,
    /// Bytes of the first frame that have left.
    sent: usize,
}

impl Outgoing {
    pub fn push(&mut self, tag: u64, bytes: Gather) {
        let length: usize = bytes.slices().map(<[u8]>::len).sum();
        let header = u128::from(tag) | (length as u128) << 64;
        self.frames.push_back(Frame {
            header: header.to_le_bytes(),
            bytes,
            length,
        });
    }

    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub fn clear(&mut self) {
        self.frames.clear();
        self.sent = 0;
    }

    /// Sends what the stream takes at once; `done` gets frames that have left completely.
    pub fn write(
        &mut self,
        send: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>,
        mut done: impl FnMut(Gather),
    ) -> io::Result<()> {
        let frames = self.frames.iter();
        let all = frames.flat_map(|it| once(&it.header[..]).chain(it.bytes.slices()));
        let mut skip = self.sent;
        let rest = all.filter_map(|slice| {
            let cut = skip.min(slice.len());
            skip -= cut;
            (cut < slice.len()).then(|| IoSlice::new(&slice[cut..]))
        });
        let rest: Vec<_> = rest.take(SLICES_MAX).collect();
        self.sent += send(&rest)?;
        while let Some(first) = self.frames.front()
            && self.sent >= HEADER + first.length
        {
            self.sent -= HEADER + first.length;
            self.frames
                .pop_front()
                .into_iter()
                .for_each(|it| done(it.bytes));
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
struct Header {
    tag: u64,
    bytes: usize,
}

/// Part that is arriving, and its target.
#[derive(Debug)]
struct Body {
    tag: u64,
    places: Vec<Buffer>,
    /// Index of the place, and the bytes written there.
    at: (usize, usize),
    left: usize,
    /// The part was not expected when it began.
    early: bool,
}

impl Body {
    fn new(header: Header, places: Vec<Buffer>, early: bool) -> Result<Self, Trouble> {
        let room: usize = places.iter().map(Buffer::len).sum();
        if room != header.bytes {
            return Err(Trouble::Malformed);
        }
        Ok(Self {
            tag: header.tag,
            places,
            at: (0, 0),
            left: room,
            early,
        })
    }

    /// Reads once.
    fn read(&mut self, from: &mut impl Read) -> io::Result<usize> {
        let (place, mut skip) = self.at;
        let places = self.places[place..].iter_mut().map(|it| {
            let cut = std::mem::take(&mut skip);
            IoSliceMut::new(&mut it.as_mut_slice()[cut..])
        });
        let mut places: Vec<_> = places.take(SLICES_MAX).collect();
        let read = from.read_vectored(&mut places)?;
        self.left -= read;
        let mut rest = read;
        while rest > 0 {
            let (place, at) = &mut self.at;
            let now = rest.min(self.places[*place].len() - *at);
            rest -= now;
            *at += now;
            if *at == self.places[*place].len() {
                self.at = (*place + 1, 0);
            }
        }
        Ok(read)
    }

    /// Takes what it can of bytes already read; returns their number.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        // Reading from memory has no errors.
        while self.left > 0 && !rest.is_empty() && self.read(&mut rest).is_ok() {}
        bytes.len() - rest.len()
    }

    /// Returns the first place's bytes if that is a vector; else none.
    fn into_vec(self) -> Vec<u8> {
        let first = self.places.into_iter().next();
        first.and_then(Buffer::into_vec).unwrap_or_default()
    }
}

/// Frame that has arrived completely.
#[derive(Debug, PartialEq, Eq)]
pub enum Came<'a> {
    Head(&'a [u8]),
    /// Tag and bytes; no bytes if they were received in place.
    Part(u64, Vec<u8>),
}

/// Incoming frames.
///
/// A part that is not expected stays in the stream, so that it can be received in its place
/// later. If another part is expected meanwhile, the first one is kept in memory.
#[derive(Debug)]
pub struct Incoming {
    buffer: Box<[u8]>,
    /// Bytes `start..end` of `buffer` have been read and not been taken.
    start: usize,
    end: usize,
    header: Option<Header>,
    body: Option<Body>,
    expected: Vec<(u64, Scatter)>,
    early: Vec<(u64, Vec<u8>)>,
}

impl Default for Incoming {
    fn default() -> Self {
        Self {
            buffer: vec![0; BUFFER].into(),
            start: 0,
            end: 0,
            header: None,
            body: None,
            expected: Vec::new(),
            early: Vec::new(),
        }
    }
}

impl Incoming {
    /// Expects a part; returns it, if it was kept.
    pub fn expect(&mut self, tag: u64, room: Scatter) -> Result<Option<Vec<u8>>, Trouble> {
        if let Some(at) = self.early.iter().position(|(early, _)| *early == tag) {
            let (_, bytes) = self.early.swap_remove(at);
            return store(tag, room, &bytes).map(Some);
        }
        self.expected.push((tag, room));
        Ok(None)
    }

    /// Whether an expected part has not arrived.
    pub fn misses(&self) -> bool {
        !self.expected.is_empty() || self.body.is_some()
    }

    fn is_at_part(&self) -> bool {
        self.body.is_none() && self.header.is_some_and(|it| it.tag != HEAD)
    }

    /// Whether the next part has to wait until it is expected: nothing is to be read.
    pub fn waits(&self) -> bool {
        self.is_at_part() && self.expected.is_empty()
    }

    /// Whether there is something to do without reading.
    pub fn is_ready(&self) -> bool {
        self.is_at_part() && !self.expected.is_empty()
    }

    /// Reads once, unless it must wait; `give` gets complete frames. False if nothing arrived.
    pub fn read(
        &mut self,
        from: &mut impl Read,
        mut give: impl FnMut(Came<'_>),
    ) -> Result<bool, Trouble> {
        if self.take(&mut give)? {
            return Ok(true);
        }
        if self.waits() {
            return Ok(false);
        }
        let read = match &mut self.body {
            Some(body) => body.read(from),
            None => self.fill(from),
        };
        match read {
            Ok(0) => Err(Trouble::Ended),
            Ok(_) => self.take(&mut give).map(|_| true),
            Err(e) if is_later(&e) => Ok(false),
            Err(e) => Err(Trouble::Io(e)),
        }
    }

    fn fill(&mut self, from: &mut impl Read) -> io::Result<usize> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let read = from.read(&mut self.buffer[self.end..])?;
        self.end += read;
        Ok(read)
    }

    /// Takes frames that have been read; returns whether any became complete.
    fn take(&mut self, give: &mut impl FnMut(Came<'_>)) -> Result<bool, Trouble> {
        let mut given = false;
        loop {
            let bytes = &self.buffer[self.start..self.end];
            if let Some(body) = &mut self.body {
                self.start += body.take(bytes);
                if body.left > 0 {
                    return Ok(given);
                }
                if let Some(body) = self.body.take() {
                    self.end_part(body, give)?;
                }
                (self.header, given) = (None, true);
                continue;
            }
            let Some(header) = self.header else {
                let Some(header) = bytes.first_chunk::<HEADER>() else {
                    return Ok(given);
                };
                self.header = Some(parse(header)?);
                self.start += HEADER;
                continue;
            };
            if header.tag == HEAD {
                let Some(head) = bytes.get(..header.bytes) else {
                    return Ok(given);
                };
                give(Came::Head(head));
                self.start += header.bytes;
                (self.header, given) = (None, true);
                continue;
            }
            // A caller that has just got something may expect this part in a moment.
            self.body = match self.expected.iter().position(|(tag, _)| *tag == header.tag) {
                Some(at) => {
                    let room = self.expected.swap_remove(at).1;
                    Some(Body::new(header, room.into_buffers(), false)?)
                }
                None if given || self.expected.is_empty() => return Ok(given),
                None => Some(self.keep(header)?),
            };
        }
    }

    /// Allocates memory for a part that arrives before it is expected.
    fn keep(&self, header: Header) -> Result<Body, Trouble> {
        let step = step_of(header.tag);
        let is_same = |tag: u64| step_of(tag) == step;
        if !self.expected.iter().all(|(tag, _)| is_same(*tag))
            || self.early.iter().any(|(tag, _)| *tag == header.tag)
        {
            return Err(Trouble::Malformed);
        }
        let mut memory = Vec::new();
        let got = memory.try_reserve_exact(header.bytes);
        got.map_err(|_| Trouble::NoMemory(header.bytes as u64))?;
        memory.resize(header.bytes, 0);
        Body::new(header, vec![memory.into()], true)
    }

    fn end_part(&mut self, body: Body, give: &mut impl FnMut(Came<'_>)) -> Result<(), Trouble> {
        let (tag, early) = (body.tag, body.early);
        let bytes = body.into_vec();
        if !early {
            give(Came::Part(tag, bytes));
            return Ok(());
        }
        // The part may have become expected while it arrived.
        match self.expected.iter().position(|(it, _)| *it == tag) {
            Some(at) => {
                let room = self.expected.swap_remove(at).1;
                give(Came::Part(tag, store(tag, room, &bytes)?));
            }
            None => self.early.push((tag, bytes)),
        }
        Ok(())
    }
}

fn parse(header: &[u8; HEADER]) -> Result<Header, Trouble> {
    let both = u128::from_le_bytes(*header);
    let (tag, bytes) = (both as u64, (both >> 64) as u64);
    let most = if tag == HEAD { HEAD_MAX } else { ADDRESSES };
    match usize::try_from(bytes) {
        Ok(bytes) if bytes <= most => Ok(Header { tag, bytes }),
        _ => Err(Trouble::Malformed),
    }
}

/// Writes a kept part to its places.
fn store(tag: u64, room: Scatter, bytes: &[u8]) -> Result<Vec<u8>, Trouble> {
    let header = Header {
        tag,
        bytes: bytes.len(),
    };
    let mut body = Body::new(header, room.into_buffers(), false)?;
    body.take(bytes);
    Ok(body.into_vec())
}

#[cfg(test)]
mod tests;
