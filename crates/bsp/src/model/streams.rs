//! The model over [frames](crate::tcp::frames) in byte streams, as by TCP: streams take and
//! return as much at once as the seed says, and stop anywhere.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read};

use portolan::{Gather, Scatter};

use super::{Arrived, Failure, Head, Intake, Part, Process, Rng, Twin, Wire, part_of, tag};
use crate::tcp::frames::{Came, HEAD, Incoming, Outgoing};

const STEPS: u64 = 6;
/// Most bytes in a stream.
const STREAM_MAX: usize = 9000;

/// Bound on turns; all programs take far fewer.
const TURNS_MAX: u64 = 2_000_000;

/// Bytes in flight, of which a read returns at most `now`.
#[derive(Default)]
struct Bytes {
    queue: VecDeque<u8>,
    now: usize,
}

impl Read for Bytes {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(into)])
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let most = self.now.min(self.queue.len());
        if most == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut places = into.iter_mut().flat_map(|it| it.iter_mut());
        let mut read = 0;
        while read < most
            && let Some(place) = places.next()
        {
            *place = self.queue.pop_front().expect("there are so many");
            read += 1;
        }
        self.now -= read;
        Ok(read)
    }
}

/// Stream from one process to another.
#[derive(Default)]
struct Stream {
    outgoing: Outgoing,
    bytes: Bytes,
    incoming: Incoming,
}

#[derive(Default)]
struct Net {
    /// Streams by sender, then receiver.
    streams: Vec<Vec<Stream>>,
    /// Parts by receiver.
    arrived: Vec<VecDeque<Arrived>>,
}

struct Link<'a> {
    net: &'a mut Net,
    me: u32,
}

fn arrived(from: u32, tag: u64, bytes: Vec<u8>) -> Arrived {
    Arrived {
        from,
        part: part_of(tag),
        bytes,
        length: None,
    }
}

impl Link<'_> {
    fn push(&mut self, to: u32, tag: u64, bytes: Gather) {
        let stream = &mut self.net.streams[self.me as usize][to as usize];
        stream.outgoing.push(tag, bytes);
    }
}

impl Wire for Link<'_> {
    fn send_head(&mut self, to: u32, head: &[u8]) -> Result<(), Failure> {
        self.push(to, HEAD, head.to_vec().into());
        Ok(())
    }

    fn send(
        &mut self,
        to: u32,
        part: Part,
        step: u64,
        bytes: Gather,
        _lent: bool,
    ) -> Result<(), Failure> {
        self.push(to, tag(part, step), bytes);
        Ok(())
    }

    fn expect(&mut self, from: u32, part: Part, step: u64, room: Scatter) -> Result<(), Failure> {
        let (me, tag) = (self.me as usize, tag(part, step));
        let stream = &mut self.net.streams[from as usize][me];
        if let Some(bytes) = stream.incoming.expect(tag, room).unwrap() {
            self.net.arrived[me].push_back(arrived(from, tag, bytes));
        }
        Ok(())
    }

    fn room(&mut self, _from: u32, bytes: u64) -> Result<Vec<u8>, Failure> {
        Ok(vec![0x55; bytes as usize])
    }

    fn keep(&mut self, _memory: Vec<u8>) {}
}

struct Run {
    rng: Rng,
    net: Net,
    twin: Twin,
    processes: Vec<Process>,
    intakes: Vec<Intake>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let (size, long) = (2 + rng.below(4) as usize, rng.below(2) == 0);
        let twin = Twin::new(rng.below(1 << 32), size, long);
        let (processes, intakes) = (0..size).map(|me| Process::new(me, &twin)).unzip();
        let streams = |_| (0..size).map(|_| Stream::default()).collect();
        let net = Net {
            streams: (0..size).map(streams).collect(),
            arrived: (0..size).map(|_| VecDeque::new()).collect(),
        };
        Self {
            rng,
            net,
            twin,
            processes,
            intakes,
        }
    }

    fn some_bytes(&mut self) -> usize {
        let most = [3, 40, 5000][self.rng.below(3) as usize];
        1 + self.rng.below(most) as usize
    }

    /// A process writes to another what the stream takes.
    fn write(&mut self, me: usize, to: usize) {
        let some = self.some_bytes();
        let Stream {
            outgoing, bytes, ..
        } = &mut self.net.streams[me][to];
        let some = some.min(STREAM_MAX - bytes.queue.len());
        if outgoing.is_empty() || some == 0 {
            return;
        }
        let send = |slices: &[IoSlice<'_>]| {
            let all = slices.iter().flat_map(|slice| slice.iter().copied());
            let before = bytes.queue.len();
            bytes.queue.extend(all.take(some));
            Ok(bytes.queue.len() - before)
        };
        outgoing.write(send, drop).unwrap();
    }

    fn read(&mut self, me: usize, from: usize) {
        let some = self.some_bytes();
        let Stream {
            bytes, incoming, ..
        } = &mut self.net.streams[from][me];
        bytes.now = some;
        let (intake, into) = (&mut self.intakes[me], &mut self.net.arrived[me]);
        let give = |came: Came<'_>| match came {
            Came::Head(head) => intake.put(from as u32, Head::step(head), head),
            Came::Part(tag, bytes) => into.push_back(arrived(from as u32, tag, bytes)),
        };
        incoming.read(bytes, give).unwrap();
    }

    /// Takes what has arrived, and ends the superstep if that was all.
    fn go_on(&mut self, me: usize) {
        let part = self.net.arrived[me].pop_front();
        let has_left = self.net.streams[me].iter().all(|it| it.outgoing.is_empty());
        let it = &mut self.processes[me];
        assert_eq!(it.exchange().heads().0.broken(), None);
        let mut link = Link {
            net: &mut self.net,
            me: me as u32,
        };
        if let Some(part) = part {
            return it.take(part, &mut link).unwrap();
        }
        it.look(&mut link).unwrap();
        if it.exchange().is_complete() && has_left {
            it.finish(&self.twin, &mut link).unwrap();
            it.settle();
        }
    }

    fn go(mut self) {
        let mut turns = 0;
        while self.processes.iter().any(|it| it.step() < STEPS) {
            turns += 1;
            assert!(turns < TURNS_MAX, "it does not go on");
            let size = self.processes.len() as u64;
            let (me, other) = (self.rng.below(size) as usize, self.rng.below(size) as usize);
            let it = &mut self.processes[me];
            match self.rng.below(3) {
                0 => self.write(me, other),
                1 => self.read(me, other),
                _ if it.ends() => self.go_on(me),
                _ if it.step() < STEPS => {
                    let mut link = Link {
                        net: &mut self.net,
                        me: me as u32,
                    };
                    it.begin(&mut self.twin, &mut link).unwrap();
                }
                _ => {}
            }
        }
        assert!(self.net.arrived.iter().all(VecDeque::is_empty));
        for it in self.net.streams.iter().flatten() {
            assert!(it.outgoing.is_empty() && it.bytes.queue.is_empty() && !it.incoming.misses());
        }
    }
}

#[test]
fn random_programs_do_over_streams_what_their_twins_do() {
    for seed in 0..150 {
        Run::new(seed).go();
    }
}
