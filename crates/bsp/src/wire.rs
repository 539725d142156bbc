//! The parts of an exchange as matched messages: short ones are pushed, and what is longer
//! is pulled by its receiver.

use portolan::{
    Completion, Endpoint, Misuse, Notify, OpError, QueueId, Selector, SendError, TaggedOptions,
    WaitError,
};

use crate::exchange::{Arrived, Part, Wire};
use crate::failure::Failure;

/// Bits of a tag that name the part; the superstep stands above.
const PART_BITS: u32 = 2;

const fn tag(part: Part, step: u64) -> u64 {
    step << PART_BITS | part as u64
}

const fn part_of(tag: u64) -> Part {
    match tag & ((1 << PART_BITS) - 1) {
        0 => Part::Head,
        1 => Part::Log,
        _ => Part::Results,
    }
}

/// The space of BSPlib on the endpoint of the process.
pub struct Engine {
    pub endpoint: Endpoint,
    expected: QueueId,
    sent: QueueId,
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

    /// Forgets what was sent and has left.
    pub fn tidy(&mut self) -> Result<(), Failure> {
        while self.endpoint.next_completion(self.sent)?.is_some() {}
        Ok(())
    }
}

impl Wire for Engine {
    fn send(&mut self, to: u32, part: Part, step: u64, bytes: Vec<u8>) -> Result<(), Failure> {
        let options = TaggedOptions {
            notify: Notify {
                queue: Some(self.sent),
                ..Notify::default()
            },
            ..TaggedOptions::default()
        };
        match (self.endpoint).post_send(to, tag(part, step), &options, bytes) {
            // Whoever misses something of it says so.
            Ok(_) | Err((SendError::PeerDead { .. }, _)) => Ok(()),
            Err((e, _)) => Err(Failure::Endpoint(e.to_string())),
        }
    }

    fn expect(&mut self, from: u32, part: Part, step: u64, bytes: u64) -> Result<(), Failure> {
        let too_long = |_| Failure::Malformed { who: from };
        let mut room = Vec::new();
        let bytes = usize::try_from(bytes).map_err(too_long)?;
        if room.try_reserve_exact(bytes).is_err() {
            return Err(Failure::Endpoint(format!(
                "this superstep needs {bytes} bytes for what process {from} puts and sends, and \
                 there is not so much memory: do it in several supersteps"
            )));
        }
        room.resize(bytes, 0);
        let notify = Notify {
            queue: Some(self.expected),
            ..Notify::default()
        };
        let selector = Selector::from(from, tag(part, step));
        match self.endpoint.post_receive(&selector, room, notify) {
            Ok(_) => Ok(()),
            Err(e) => Err(Failure::Endpoint(e.to_string())),
        }
    }
}
