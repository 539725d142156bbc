//! Gets that read at once, also while the other process computes: its helper thread
//! answers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portolan::{Binding, Context, Endpoint, Message, SendError, SendOptions, WaitError};

use crate::areas::{Area, Outside, place};
use crate::failure::Failure;

/// Where questions go to: superstep, slot, offset, bytes.
const ASKED: u16 = 1;
/// Where answers go to: what became of it, and the bytes.
const ANSWERED: u16 = 2;
/// Bytes of one answer.
const ANSWER_MAX: usize = 16 << 10;

const READ: u64 = 0;
/// The other process has not begun that superstep.
const EARLY: u64 = 1;
const UNKNOWN: u64 = 2;
const NULL: u64 = 3;
/// The area has so many bytes, as the next word says.
const BEYOND: u64 = 4;

/// What others may read, for the thread that answers.
#[derive(Debug, Default)]
struct Served {
    areas: Mutex<Vec<Option<Area>>>,
    /// The superstep that they are of.
    step: AtomicU64,
}

/// An answer: its first word, the bytes of an area, and what was read.
type Answer = Mutex<Option<(u64, u64, Vec<u8>)>>;

#[derive(Debug)]
pub struct Direct {
    served: Arc<Served>,
    answer: Arc<Answer>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Served {
    fn answer(&self, context: &mut Context<'_>, m: &Message<'_>) {
        let (step, slot, offset, bytes) = (m.arg(0), m.arg(1), m.arg(2), m.arg(3));
        let mut read = [0; ANSWER_MAX];
        let fits = usize::try_from(bytes).ok();
        let (args, length) = match fits.and_then(|bytes| read.get_mut(..bytes)) {
            _ if self.step.load(Ordering::Acquire) < step => ([EARLY, 0], 0),
            Some(into) => {
                // Nothing is popped before the answer has been read.
                let areas = lock(&self.areas);
                match place(&areas, slot as u32, offset, bytes) {
                    Ok(from) => {
                        // SAFETY: so many bytes of a registered area; who asks has to see to
                        // it that the program does not write them meanwhile.
                        unsafe { from.copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
                        ([READ, 0], into.len())
                    }
                    Err(Outside::Unknown) => ([UNKNOWN, 0], 0),
                    Err(Outside::Null) => ([NULL, 0], 0),
                    Err(Outside::Beyond(size)) => ([BEYOND, size], 0),
                }
            }
            None => ([UNKNOWN, 0], 0),
        };
        // Who asked and is gone needs none.
        let _ = context.reply_to(ANSWERED, &args, &read[..length]);
    }
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

    /// A superstep begins; `areas`, if they are others than before.
    pub fn begin(&self, step: u64, areas: Option<&[Option<Area>]>) {
        if let Some(areas) = areas {
            areas.clone_into(&mut lock(&self.served.areas));
        }
        self.served.step.store(step, Ordering::Release);
    }

    /// Reads from an area of another process.
    pub fn get(
        &self,
        endpoint: &Endpoint,
        (from, step): (u32, u64),
        (slot, offset): (u32, u64),
        into: &mut [u8],
    ) -> Result<(), Failure> {
        let bytes = into.len() as u64;
        let mut offset = offset;
        for part in into.chunks_mut(ANSWER_MAX) {
            let args = [step, slot.into(), offset, part.len() as u64];
            let read = loop {
                match self.ask(endpoint, from, &args)? {
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
                            offset,
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

    fn ask(
        &self,
        endpoint: &Endpoint,
        from: u32,
        args: &[u64],
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
                // The sync finds out.
                Err(WaitError::PeerDead { .. }) => {}
                Err(e) => return Err(Failure::Endpoint(e.to_string())),
            }
        }
        Ok(lock(&self.answer).take().unwrap_or_default())
    }
}
