//! Gets that read at once, even while the other process computes: its helper thread
//! answers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portolan::{Binding, Context, Endpoint, Message, SendError, SendOptions, WaitError};

use crate::areas::{Area, Outside, place};
use crate::failure::Failure;

/// Port of questions: superstep, slot, offset, bytes.
const ASKED: u16 = 1;
/// Port of answers: status, length of the area, and the bytes.
const ANSWERED: u16 = 2;
/// Most bytes in an answer.
const ANSWER_MAX: usize = 16 << 10;

const READ: u64 = 0;
/// The other process has not begun that superstep.
const EARLY: u64 = 1;
const UNKNOWN: u64 = 2;
const NULL: u64 = 3;
/// The range ends beyond the area, whose length is the next word.
const BEYOND: u64 = 4;

/// Areas that others may read, for the thread that answers.
#[derive(Debug, Default)]
struct Served {
    areas: Mutex<Vec<Option<Area>>>,
    /// Superstep to which the areas belong.
    step: AtomicU64,
}

/// Answer: status, length of the area, and the bytes read.
type Answer = Mutex<Option<(u64, u64, Vec<u8>)>>;

#[derive(Debug)]
pub struct Direct {
    served: Arc<Served>,
    answer: Arc<Answer>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Question: superstep, slot, offset, bytes.
type Question = [u64; 4];

impl Served {
    fn begin(&self, step: u64, areas: Option<&[Option<Area>]>) {
        if let Some(areas) = areas {
            areas.clone_into(&mut lock(&self.areas));
        }
        self.step.store(step, Ordering::Release);
    }

    fn answer(&self, context: &mut Context<'_>, m: &Message<'_>) {
        let mut read = [0; ANSWER_MAX];
        let question = [m.arg(0), m.arg(1), m.arg(2), m.arg(3)];
        let (args, length) = self.read(question, &mut read);
        // A dead caller needs no answer.
        let _ = context.reply_to(ANSWERED, &args, &read[..length]);
    }

    /// Reads what a question asks for; returns the answer's words, and the number of bytes read.
    fn read(&self, question: Question, room: &mut [u8; ANSWER_MAX]) -> ([u64; 2], usize) {
        let [step, slot, offset, bytes] = question;
        let fits = usize::try_from(bytes).ok();
        match fits.and_then(|bytes| room.get_mut(..bytes)) {
            _ if self.step.load(Ordering::Acquire) < step => ([EARLY, 0], 0),
            Some(into) => {
                // No area is popped before the caller has its answer.
                let areas = lock(&self.areas);
                match place(&areas, slot as u32, offset, bytes) {
                    Ok(from) => {
                        // SAFETY: a range of a registered area; the caller has to ensure that the
                        // program does not write there meanwhile.
                        unsafe { from.copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
                        ([READ, 0], into.len())
                    }
                    Err(Outside::Unknown) => ([UNKNOWN, 0], 0),
                    Err(Outside::Null) => ([NULL, 0], 0),
                    Err(Outside::Beyond(size)) => ([BEYOND, size], 0),
                }
            }
            None => ([UNKNOWN, 0], 0),
        }
    }
}

/// Reads from an area of another process, in as many questions as needed. `ask` returns an
/// answer: both its words, and the bytes read.
fn fetch(
    (from, step): (u32, u64),
    (slot, start): (u32, u64),
    into: &mut [u8],
    mut ask: impl FnMut(&Question) -> Result<(u64, u64, Vec<u8>), Failure>,
) -> Result<(), Failure> {
    let bytes = into.len() as u64;
    let mut offset = start;
    for part in into.chunks_mut(ANSWER_MAX) {
        let question = [step, slot.into(), offset, part.len() as u64];
        let read = loop {
            match ask(&question)? {
                (READ, _, read) if read.len() == part.len() => break read,
                (EARLY, ..) => std::thread::yield_now(),
                (why, size, _) => {
                    let why = match why {
                        UNKNOWN => Outside::Unknown,
                        NULL => Outside::Null,
                        BEYOND => Outside::Beyond(size),
                        _ => return Err(Failure::Malformed { who: from }),
                    };
                    return Err(Failure::OutsideThere {
                        offset: start,
                        bytes,
                        whose: from,
                        why,
                    });
                }
            }
        };
        part.copy_from_slice(&read);
        offset += part.len() as u64;
    }
    Ok(())
}

impl Direct {
    pub fn new(endpoint: &Endpoint) -> Result<Self, Failure> {
        let served = Arc::new(Served::default());
        let answer = Arc::new(Answer::default());
        let of_answer = Arc::clone(&answer);
        let take = move |_: &mut Context<'_>, m: &Message<'_>| {
            *lock(&of_answer) = Some((m.arg(0), m.arg(1), m.payload.to_vec()));
        };
        endpoint.bind(ANSWERED, Binding::to(take))?;
        let to_serve = Arc::clone(&served);
        let serve = move |context: &mut Context<'_>, m: &Message<'_>| to_serve.answer(context, m);
        endpoint.bind(ASKED, Binding::to(serve).any_thread())?;
        Ok(Self { served, answer })
    }

    /// Begins a superstep; `areas` if they have changed.
    pub fn begin(&self, step: u64, areas: Option<&[Option<Area>]>) {
        self.served.begin(step, areas);
    }

    /// Reads from an area of another process.
    pub fn get(
        &self,
        endpoint: &Endpoint,
        (from, step): (u32, u64),
        place: (u32, u64),
        into: &mut [u8],
    ) -> Result<(), Failure> {
        fetch((from, step), place, into, |question| {
            self.ask(endpoint, from, question)
        })
    }

    fn ask(
        &self,
        endpoint: &Endpoint,
        from: u32,
        args: &Question,
    ) -> Result<(u64, u64, Vec<u8>), Failure> {
        let options = SendOptions {
            args,
            ..SendOptions::PLAIN
        };
        let gone = |why: String| Failure::Died { who: from, why };
        match endpoint.send_with(from, ASKED, &options, &[]) {
            Ok(_) => {}
            Err(SendError::PeerDead { why, .. }) => return Err(gone(why.to_string())),
            Err(e) => return Err(Failure::Endpoint(e.to_string())),
        }
        loop {
            match endpoint.wait_until(|| lock(&self.answer).is_some()) {
                Ok(()) => break,
                Err(WaitError::PeerDead { rank, why }) if rank == from => {
                    return Err(gone(why.to_string()));
                }
                // The sync reports that death.
                Err(WaitError::PeerDead { .. }) => {}
                Err(e) => return Err(Failure::Endpoint(e.to_string())),
            }
        }
        Ok(lock(&self.answer).take().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Rng;

    /// Areas that a process has registered in each superstep: other memory each time, and NULL
    /// in some slots.
    struct Server {
        memory: Vec<Vec<Vec<u8>>>,
        served: Served,
        step: usize,
    }

    const STEPS: u64 = 4;
    const SLOTS: u64 = 4;

    impl Server {
        fn new(rng: &mut Rng) -> Self {
            let mut area = |step: u64, slot: u64| {
                // One in four is NULL.
                let longest = if rng.below(4) == 0 {
                    0
                } else {
                    3 * ANSWER_MAX as u64
                };
                let bytes = if longest == 0 {
                    0
                } else {
                    1 + rng.below(longest)
                };
                (0..bytes)
                    .map(|i| (i * 7 + slot * 31 + step * 101) as u8)
                    .collect()
            };
            let of_step = |step| (0..SLOTS).map(|slot| area(step, slot)).collect();
            let memory: Vec<_> = (0..STEPS).map(of_step).collect();
            let server = Self {
                memory,
                served: Served::default(),
                step: 0,
            };
            server.begin();
            server
        }

        fn begin(&self) {
            let areas = self.memory[self.step].iter().map(|bytes| {
                let start = if bytes.is_empty() {
                    0
                } else {
                    bytes.as_ptr().expose_provenance()
                };
                let bytes = bytes.len() as u64;
                Some(Area { start, bytes })
            });
            let areas: Vec<_> = areas.collect();
            self.served.begin(self.step as u64, Some(&areas));
        }

        /// Returns the correct result.
        fn expected(
            &self,
            step: u64,
            slot: u32,
            offset: u64,
            bytes: u64,
        ) -> Result<&[u8], Outside> {
            let area = self.memory[step as usize].get(slot as usize);
            let area = area.ok_or(Outside::Unknown)?;
            if area.is_empty() {
                return Err(Outside::Null);
            }
            let end = offset
                .checked_add(bytes)
                .filter(|end| *end <= area.len() as u64);
            let end = end.ok_or(Outside::Beyond(area.len() as u64))?;
            Ok(&area[offset as usize..end as usize])
        }
    }

    #[test]
    fn what_is_read_is_of_the_superstep_of_who_asks() {
        let mut late = 0;
        for seed in 0..2000 {
            let mut rng = Rng::new(seed);
            let mut server = Server::new(&mut rng);
            for step in 0..STEPS {
                let slot = rng.below(SLOTS + 1) as u32;
                let (offset, bytes) = match rng.below(8) {
                    0 => (u64::MAX - rng.below(9), 1 + rng.below(9)),
                    _ => (rng.below(1000), 1 + rng.below(2 * ANSWER_MAX as u64 + 9)),
                };
                let mut into = vec![0; bytes as usize];
                let mut room = [0; ANSWER_MAX];
                let fetched = fetch((1, step), (slot, offset), &mut into, |question| {
                    let (words, length) = server.served.read(*question, &mut room);
                    // The server catches up meanwhile.
                    if words[0] == EARLY {
                        late += 1;
                        server.step += usize::from(rng.below(3) == 0);
                        server.begin();
                    }
                    Ok((words[0], words[1], room[..length].to_vec()))
                });
                let expected = match server.expected(step, slot, offset, bytes) {
                    Ok(bytes) => Ok(bytes),
                    // The first part outside reports the error; parts before it have been read.
                    Err(why) => Err(Failure::OutsideThere {
                        offset,
                        bytes,
                        whose: 1,
                        why,
                    }),
                };
                assert_eq!(
                    fetched.map(|()| &into[..]),
                    expected,
                    "seed {seed}, step {step}"
                );
            }
        }
        assert!(late > 2000, "{late}");
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for (words, bytes) in [((READ, 0), 3), ((READ, 0), 5), ((BEYOND + 1, 0), 0)] {
            let answer = |_: &Question| Ok((words.0, words.1, vec![0; bytes]));
            let fetched = fetch((3, 0), (0, 0), &mut [0; 4], answer);
            assert_eq!(
                fetched,
                Err(Failure::Malformed { who: 3 }),
                "{words:?} {bytes}"
            );
        }
        // A part longer than any answer.
        let question = [0, 0, 0, ANSWER_MAX as u64 + 1];
        let answered = Served::default().read(question, &mut [0; ANSWER_MAX]);
        assert_eq!(answered, ([UNKNOWN, 0], 0));
    }
}
