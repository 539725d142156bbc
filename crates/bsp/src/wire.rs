//! The parts of an exchange as matched messages: short ones are pushed, and what is longer
//! is pulled by its receiver.

use portolan::{
    Completion, Endpoint, Gather, Misuse, Notify, OpError, QueueId, Scatter, Selector, SendError,
    TaggedOptions, WaitError,
};

use crate::exchange::{Arrived, Part, Wire};
use crate::failure::Failure;

/// Bits of a tag that name the part; the superstep stands above.
const PART_BITS: u32 = 24;
/// What is not the number of a message of pieces.
const KINDS: u64 = 3;

fn tag(part: Part, step: u64) -> u64 {
    let part = match part {
        Part::Head => 0,
        Part::Log => 1,
        Part::Results => 2,
        Part::Pieces(message) => KINDS + u64::from(message),
    };
    step << PART_BITS | part
}

fn part_of(tag: u64) -> Part {
    match tag & ((1 << PART_BITS) - 1) {
        0 => Part::Head,
        1 => Part::Log,
        2 => Part::Results,
        message => Part::Pieces((message - KINDS) as u32),
    }
}

/// Memory that is kept to be used again: so many at most.
const SPARE_MAX: usize = 64;

/// The space of BSPlib on the endpoint of the process.
pub struct Engine {
    pub endpoint: Endpoint,
    expected: QueueId,
    sent: QueueId,
    /// Sends of memory that is the program's, which have not ended.
    lent: usize,
    spare: Vec<Vec<u8>>,
}

impl From<Misuse> for Failure {
    fn from(error: Misuse) -> Self {
        Self::Endpoint(error.to_string())
    }
}

impl Engine {
    pub fn new(endpoint: Endpoint) -> Result<Self, Failure> {
        Ok(Self {
            expected: endpoint.open_queue()?,
            sent: endpoint.open_queue()?,
            lent: 0,
            spare: Vec::new(),
            endpoint,
        })
    }

    /// Waits for something that is expected.
    pub fn next(&mut self) -> Result<Arrived, Failure> {
        let ended = loop {
            match self.endpoint.wait_completion(self.expected, None) {
                Ok(ended) => break ended,
                // What was expected from it ends too, unless it has come.
                Err(WaitError::PeerDead { .. }) => {}
                Err(e) => return Err(Failure::Endpoint(e.to_string())),
            }
        };
        self.check(&ended.completion)?;
        Ok(Arrived {
            from: ended.completion.peer,
            part: part_of(ended.completion.tag),
            bytes: ended.into_received(),
        })
    }

    fn check(&self, done: &Completion) -> Result<(), Failure> {
        let who = done.peer;
        match done.result {
            Ok(()) => Ok(()),
            Err(OpError::PeerDead) => {
                let why = self.endpoint.death(who)?;
                let why = why.map_or_else(|| "it closed".to_owned(), |why| why.to_string());
                Err(Failure::Died { who, why })
            }
            Err(OpError::Truncated) => Err(Failure::Malformed { who }),
            Err(e) => Err(Failure::Endpoint(e.to_string())),
        }
    }

    /// Waits until nobody reads the program's memory any more, and forgets what has left.
    pub fn settle(&mut self) -> Result<(), Failure> {
        loop {
            let ended = if self.lent > 0 {
                match self.endpoint.wait_completion(self.sent, None) {
                    Ok(ended) => ended,
                    Err(WaitError::PeerDead { .. }) => continue,
                    Err(e) => return Err(Failure::Endpoint(e.to_string())),
                }
            } else {
                match self.endpoint.next_completion(self.sent)? {
                    Some(ended) => ended,
                    None => return Ok(()),
                }
            };
            self.lent -= ended.completion.context as usize;
        }
    }
}

fn notify(queue: QueueId, context: u64) -> Notify {
    Notify {
        context,
        queue: Some(queue),
        counter: None,
    }
}

impl Wire for Engine {
    fn send(
        &mut self,
        to: u32,
        part: Part,
        step: u64,
        bytes: Gather,
        lent: bool,
    ) -> Result<(), Failure> {
        let options = TaggedOptions {
            notify: notify(self.sent, lent.into()),
            ..TaggedOptions::default()
        };
        match (self.endpoint).post_send(to, tag(part, step), &options, bytes) {
            Ok(_) => {
                self.lent += usize::from(lent);
                Ok(())
            }
            // Whoever misses something of it says so.
            Err((SendError::PeerDead { .. }, _)) => Ok(()),
            Err((e, _)) => Err(Failure::Endpoint(e.to_string())),
        }
    }

    fn expect(&mut self, from: u32, part: Part, step: u64, room: Scatter) -> Result<(), Failure> {
        let selector = Selector::from(from, tag(part, step));
        match (self.endpoint).post_receive(&selector, room, notify(self.expected, 0)) {
            Ok(_) => Ok(()),
            Err(e) => Err(Failure::Endpoint(e.to_string())),
        }
    }

    fn room(&mut self, from: u32, bytes: u64) -> Result<Vec<u8>, Failure> {
        let too_long = |_| Failure::Malformed { who: from };
        let bytes = usize::try_from(bytes).map_err(too_long)?;
        let fits = |memory: &Vec<u8>| memory.capacity() >= bytes;
        let mut room = match self.spare.iter().rposition(fits) {
            Some(at) => self.spare.swap_remove(at),
            None => Vec::new(),
        };
        if room
            .try_reserve_exact(bytes.saturating_sub(room.len()))
            .is_err()
        {
            let (who, bytes) = (from, bytes as u64);
            return Err(Failure::NoMemory { who, bytes });
        }
        room.resize(bytes, 0);
        Ok(room)
    }

    fn keep(&mut self, memory: Vec<u8>) {
        if memory.capacity() > 0 && self.spare.len() < SPARE_MAX {
            self.spare.push(memory);
        }
    }
}
