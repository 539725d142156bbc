use std::io::{self, ErrorKind, IoSliceMut, Read};

use portolan::{Gather, Scatter};

use super::*;
use crate::exchange::Part;
use crate::wire::tag;

const STEP: u64 = 7;
const LOG: u64 = STEP << 24;

/// Stream that stops before each of these places once, and ends at the last.
struct Pipe<'a> {
    bytes: &'a [u8],
    at: usize,
    stops: Vec<usize>,
}

impl<'a> Pipe<'a> {
    fn new(bytes: &'a [u8], stops: impl IntoIterator<Item = usize>) -> Self {
        let stops: Vec<_> = stops.into_iter().chain([bytes.len()]).collect();
        Self {
            bytes,
            at: 0,
            stops,
        }
    }
}

impl Read for Pipe<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(into)])
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let Some(stop) = self.stops.first().copied() else {
            return Ok(0);
        };
        if stop == self.at {
            self.stops.remove(0);
            return Err(ErrorKind::WouldBlock.into());
        }
        let read = (&self.bytes[self.at..stop]).read_vectored(into)?;
        self.at += read;
        Ok(read)
    }
}

fn pieces() -> Gather {
    let long: Vec<u8> = (0..200).collect();
    Gather::from(long).and(Vec::new()).and(&b"piece"[..])
}

fn room(lengths: &[usize]) -> Scatter {
    let all = lengths.iter().map(|length| Scatter::from(vec![0; *length]));
    all.reduce(Scatter::and).unwrap()
}

/// Writes frames to a stream that takes `most()` bytes at once.
fn written(frames: Vec<(u64, Gather)>, mut most: impl FnMut() -> usize) -> Vec<u8> {
    let mut outgoing = Outgoing::default();
    let count = frames.len();
    for (tag, bytes) in frames {
        outgoing.push(tag, bytes);
    }
    let (mut stream, mut done) = (Vec::new(), 0);
    while !outgoing.is_empty() {
        let most = most();
        let send = |slices: &[IoSlice<'_>]| {
            let all = slices.iter().flat_map(|slice| slice.iter().copied());
            let before = stream.len();
            stream.extend(all.take(most));
            Ok(stream.len() - before)
        };
        outgoing.write(send, |_| done += 1).unwrap();
    }
    assert_eq!(done, count);
    stream
}

fn frames() -> Vec<(u64, Gather)> {
    vec![
        (HEAD, b"a head"[..].into()),
        (LOG, b"a log"[..].into()),
        (tag(Part::Pieces(3), STEP), pieces()),
        (tag(Part::Results, STEP), vec![9; 20].into()),
        (HEAD, b""[..].into()),
    ]
}

/// Reads a stream to its end, or until a part has to wait; returns tags and bytes of complete
/// frames, and the error.
fn read(pipe: &mut Pipe<'_>, incoming: &mut Incoming) -> (Vec<(u64, Vec<u8>)>, Option<Trouble>) {
    let mut all = Vec::new();
    loop {
        let came = incoming.read(pipe, |came| {
            all.push(match came {
                Came::Head(head) => (HEAD, head.to_vec()),
                Came::Part(tag, bytes) => (tag, bytes),
            });
        });
        match came {
            Ok(false) if incoming.waits() => return (all, None),
            Ok(_) => {}
            Err(trouble) => return (all, Some(trouble)),
        }
    }
}

fn expecting(parts: &[(u64, &[usize])]) -> Incoming {
    let mut incoming = Incoming::default();
    for (tag, lengths) in parts {
        assert_eq!(incoming.expect(*tag, room(lengths)).unwrap(), None);
    }
    incoming
}

#[test]
fn frames_pass_wherever_the_stream_stops() {
    let whole = written(frames(), || usize::MAX);
    for cut in 0..=whole.len() {
        let mut most = [cut, usize::MAX].into_iter();
        let parted = written(frames(), || most.next().unwrap_or(1));
        assert_eq!(parted, whole, "{cut}");
        for stops in [vec![cut], (cut..whole.len()).collect()] {
            let mut incoming = expecting(&[
                (LOG, &[5]),
                (tag(Part::Pieces(3), STEP), &[1, 0, 203, 1]),
                (tag(Part::Results, STEP), &[20]),
            ]);
            let (came, end) = read(&mut Pipe::new(&whole, stops), &mut incoming);
            assert!(matches!(end, Some(Trouble::Ended)), "{end:?}");
            assert!(!incoming.misses());
            let [head, log, pieces, results, last] = &came[..] else {
                panic!("{came:?}");
            };
            assert_eq!(*head, (HEAD, b"a head".to_vec()));
            assert_eq!(*log, (LOG, b"a log".to_vec()));
            assert_eq!(*pieces, (tag(Part::Pieces(3), STEP), vec![0]));
            assert_eq!(*results, (tag(Part::Results, STEP), vec![9; 20]));
            assert_eq!(*last, (HEAD, Vec::new()));
        }
    }
    for most in 1..40 {
        assert_eq!(written(frames(), || most), whole, "{most}");
    }
}

/// More places than one call takes, longer than the buffer.
#[test]
fn many_pieces_are_received_in_their_places() {
    const PIECES: usize = 3 * SLICES_MAX + 1;
    let piece = |number: usize| vec![number as u8; 300];
    let all: Vec<u8> = (0..PIECES).flat_map(piece).collect();
    let sent = (0..PIECES).map(|number| Gather::from(piece(number)));
    let bytes = written(vec![(LOG, sent.reduce(Gather::and).unwrap())], || 70_001);
    let mut memory = vec![0_u8; all.len()];
    let places = memory.chunks_mut(100).map(|place| {
        // SAFETY: the memory outlives the reads below, and no other code touches it.
        Scatter::from(unsafe { Buffer::lent(place.as_mut_ptr(), place.len()) })
    });
    let places = places.reduce(Scatter::and).unwrap();
    let mut incoming = Incoming::default();
    assert_eq!(incoming.expect(LOG, places).unwrap(), None);
    let (came, _) = read(&mut Pipe::new(&bytes, [10, 20_000]), &mut incoming);
    assert_eq!(came, [(LOG, Vec::new())]);
    drop(incoming);
    assert!(memory == all);
}

#[test]
fn a_part_waits_in_the_stream_until_it_is_expected() {
    let long = vec![5; 3 * BUFFER];
    let bytes = written(vec![(LOG, long.clone().into())], || usize::MAX);
    let mut pipe = Pipe::new(&bytes, []);
    let mut incoming = Incoming::default();
    let none = |_: Came<'_>| panic!("it is not expected");
    assert!(incoming.read(&mut pipe, none).unwrap());
    assert!(incoming.waits() && !incoming.is_ready());
    assert!(!incoming.read(&mut pipe, none).unwrap());
    assert_eq!(pipe.at, BUFFER);
    incoming.expect(LOG, room(&[long.len()])).unwrap();
    assert!(incoming.is_ready() && !incoming.waits());
    let (came, _) = read(&mut pipe, &mut incoming);
    assert_eq!(came, [(LOG, long)]);
}

/// Results follow pieces, whose places are known only once the results are here.
#[test]
fn what_stands_before_an_expected_part_is_kept() {
    let late = tag(Part::Pieces(3), STEP);
    let bytes = written(frames(), || usize::MAX);
    for cut in 0..=bytes.len() {
        let mut incoming = expecting(&[(LOG, &[5]), (tag(Part::Results, STEP), &[20])]);
        let mut pipe = Pipe::new(&bytes, [cut]);
        let mut came = Vec::new();
        let mut kept = None;
        for _ in 0..20 {
            let read = incoming.read(&mut pipe, |it| {
                came.push(match it {
                    Came::Head(_) => HEAD,
                    Came::Part(tag, _) => tag,
                });
            });
            // As soon as the stream has stopped, the part has arrived, is arriving or is to arrive.
            if pipe.stops.len() == 1 && kept.is_none() && came.contains(&LOG) {
                let early = incoming.expect(late, room(&[5, 200])).unwrap();
                assert!(early.as_ref().is_none_or(|it| *it == [0, 1, 2, 3, 4]));
                came.extend(early.is_some().then_some(late));
                kept = Some(());
            }
            if read.is_err() {
                break;
            }
        }
        came.sort_unstable();
        let all = [LOG, tag(Part::Results, STEP), late, HEAD, HEAD];
        assert_eq!(came, all, "{cut}");
        assert!(!incoming.misses() && incoming.early.is_empty());
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let frame = |tag: u64, bytes: usize| {
        let header = u128::from(tag) | (bytes as u128) << 64;
        header.to_le_bytes().to_vec()
    };
    let results = tag(Part::Results, STEP);
    let other = |step: u64| tag(Part::Pieces(0), step);
    let twice = [frame(other(STEP), 0), frame(other(STEP), 0)].concat();
    for bytes in [
        frame(HEAD, HEAD_MAX + 1),
        frame(LOG, ADDRESSES + 1),
        frame(LOG, usize::MAX),
        // The room is shorter, and longer.
        frame(results, 21),
        frame(results, 19),
        frame(other(STEP + 1), 1),
        twice,
    ] {
        let mut incoming = expecting(&[(results, &[20])]);
        let (came, trouble) = read(&mut Pipe::new(&bytes, []), &mut incoming);
        assert!(came.is_empty());
        assert!(matches!(trouble, Some(Trouble::Malformed)), "{trouble:?}");
    }
    let mut incoming = expecting(&[(results, &[20])]);
    let (_, trouble) = read(&mut Pipe::new(&frame(LOG, ADDRESSES), []), &mut incoming);
    assert!(matches!(trouble, Some(Trouble::NoMemory(bytes)) if bytes == ADDRESSES as u64));
    // The part is kept, and then expected with another length.
    let bytes = [frame(LOG, 1), vec![0]].concat();
    let mut incoming = expecting(&[(results, &[20])]);
    let (_, trouble) = read(&mut Pipe::new(&bytes, []), &mut incoming);
    assert!(matches!(trouble, Some(Trouble::Ended)), "{trouble:?}");
    let trouble = incoming.expect(LOG, room(&[2])).unwrap_err();
    assert!(matches!(trouble, Trouble::Malformed), "{trouble:?}");
}
