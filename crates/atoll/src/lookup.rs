//! Put and get by address: ATOLL names remote bytes by their address there,
//! Portolan by a region's key and an offset. The target is asked which region
//! holds them, by a message that its helper thread answers while the program
//! computes; what it said is kept until the key is refused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use portolan::c_edge::{EACCES, EINVAL, ENOKEY, EPROTO, ERANGE, Errno, failure};
use portolan::{
    Binding, Buffer, Endpoint, Event, Gather, Notify, OpId, Place, PutOptions, RemoteKey, Rights,
    SendOptions, WaitError,
};

use crate::lock;
use crate::memory::{Admitted, Table};
use crate::port::Port;

/// The ports of questions and of answers.
const ASK: u16 = 1;
const ANSWER: u16 = 2;

/// Extents of other ranks that are kept; they are asked for again.
const KNOWN_MAX: usize = 4096;

/// What may be asked for.
const GET: u64 = 1;
const PUT: u64 = 2;

/// What an answer may be; the first is well.
const SAID: [Option<Errno>; 4] = [None, Some(EACCES), Some(ENOKEY), Some(ERANGE)];

type Answer = Result<Admitted, Errno>;

#[derive(Default)]
struct Asked {
    made: u64,
    /// By number: who was asked, and what came.
    open: BTreeMap<u64, (u32, Option<Answer>)>,
}

impl Asked {
    fn answer(&mut self, number: u64, from: u32, answer: Answer) {
        if let Some((asked, place)) = self.open.get_mut(&number)
            && *asked == from
        {
            place.get_or_insert(answer);
        }
    }
}

pub struct Lookups {
    asked: Arc<Mutex<Asked>>,
    known: Mutex<BTreeMap<(u32, u64), (u64, RemoteKey)>>,
}

fn answer_of(m: &portolan::Message<'_>) -> Answer {
    let said = usize::try_from(m.arg(1)).ok();
    match said.and_then(|at| SAID.get(at)) {
        None => Err(EPROTO),
        Some(Some(why)) => Err(*why),
        Some(None) => {
            let key = u128::from(m.arg(5)) << 64 | u128::from(m.arg(4));
            Ok(Admitted {
                start: m.arg(2),
                bytes: m.arg(3),
                key: RemoteKey::from_bytes(key.to_le_bytes()),
            })
        }
    }
}

/// What a question is answered with.
fn words(table: &Mutex<Table>, m: &portolan::Message<'_>) -> [u64; 6] {
    let asked = match m.arg(3) {
        GET => Rights::Get,
        PUT => Rights::Put,
        _ => Rights::Both,
    };
    let (said, extent) = match lock(table).admit(m.arg(1), m.arg(2), asked) {
        Ok(extent) => (0, Some(extent)),
        Err(why) => {
            let at = SAID.iter().position(|said| *said == Some(why));
            (at.unwrap_or(1) as u64, None)
        }
    };
    let (start, bytes, key) = extent.map_or((0, 0, 0), |it| {
        (it.start, it.bytes, u128::from_le_bytes(it.key.to_bytes()))
    });
    [m.arg(0), said, start, bytes, key as u64, (key >> 64) as u64]
}

impl Lookups {
    pub fn start(endpoint: &Endpoint, table: Arc<Mutex<Table>>) -> Result<Self, Errno> {
        let asked = Arc::new(Mutex::new(Asked::default()));
        let (of_answers, of_deaths) = (Arc::clone(&asked), Arc::clone(&asked));
        let answers = Binding::to(move |_, m| {
            lock(&of_answers).answer(m.arg(0), m.from, answer_of(m));
        });
        let answers = answers.on_error(move |_, event| {
            if let Event::PeerDead { rank, why, .. } = *event {
                for (from, place) in lock(&of_deaths).open.values_mut() {
                    if *from == rank {
                        place.get_or_insert(Err(why.into()));
                    }
                }
            }
        });
        endpoint.bind(ANSWER, answers.any_thread())?;
        let questions = Binding::to(move |context, m| {
            // One that is not answered was asked by a rank that is dead.
            let _ = context.reply_to(ANSWER, &words(&table, m), &[]);
        });
        endpoint.bind(ASK, questions.any_thread())?;
        Ok(Self {
            asked,
            known: Mutex::default(),
        })
    }
}

impl Port {
    /// Asks a rank which of its registrations holds these bytes.
    fn ask(&self, rank: u32, at: u64, bytes: u64, want: u64) -> Answer {
        let number = {
            let mut asked = lock(&self.lookups.asked);
            asked.made += 1;
            let number = asked.made;
            asked.open.insert(number, (rank, None));
            number
        };
        let answer = self.wait_for_answer(number, rank, [number, at, bytes, want]);
        lock(&self.lookups.asked).open.remove(&number);
        answer
    }

    fn wait_for_answer(&self, number: u64, rank: u32, question: [u64; 4]) -> Answer {
        let options = SendOptions {
            args: &question,
            ..SendOptions::default()
        };
        self.endpoint.send_with(rank, ASK, &options, &[])?;
        let come = || {
            let asked = lock(&self.lookups.asked);
            asked.open.get(&number).and_then(|(_, answer)| *answer)
        };
        loop {
            match self.endpoint.wait_until(|| come().is_some()) {
                Ok(()) => {}
                Err(WaitError::PeerDead { rank: dead, why }) if dead == rank => {
                    return come().unwrap_or(Err(why.into()));
                }
                Err(WaitError::PeerDead { why, .. }) => {
                    lock(&self.missed).push_back(why.into());
                }
                Err(e) => return Err(e.into()),
            }
            if let Some(answer) = come() {
                return answer;
            }
        }
    }

    /// Accesses bytes of another rank's by their address there.
    fn access(
        &self,
        rank: u32,
        at: u64,
        bytes: u64,
        want: u64,
        begin: impl Fn(Place) -> Result<OpId, Errno>,
    ) -> Result<(), Errno> {
        let known = lock(&self.lookups.known)
            .range((rank, 0)..=(rank, at))
            .next_back()
            .map(|((_, start), (len, key))| (*start, *len, *key))
            .filter(|(start, len, _)| bytes <= *len && at - start <= len - bytes);
        if let Some((start, _, key)) = known {
            let offset = at - start;
            match self.end_of(begin(Place { key, offset })?) {
                // Deregistered, or other rights hold.
                Err(ENOKEY) => drop(lock(&self.lookups.known).remove(&(rank, start))),
                ended => return ended,
            }
        }
        let it = self.ask(rank, at, bytes, want)?;
        let offset = at.checked_sub(it.start).ok_or(EPROTO)?;
        let mut known = lock(&self.lookups.known);
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert((rank, it.start), (it.bytes, it.key));
        drop(known);
        self.end_of(begin(Place {
            key: it.key,
            offset,
        })?)
    }

    fn end_of(&self, op: OpId) -> Result<(), Errno> {
        let ended = self.endpoint.wait_end(op, None)?;
        failure(&self.endpoint, &ended.completion)?.map_or(Ok(()), Err)
    }

    /// The rank, if the access may be tried.
    fn reach(&self, id: i32, here: *const u8, there: u64, bytes: usize) -> Result<u32, Errno> {
        let rank = self.peer(id)?;
        self.memory.holds(here, bytes)?;
        let apart = (here as u64).abs_diff(there) >= bytes as u64;
        if id == self.id && !apart {
            return Err(EINVAL);
        }
        Ok(rank)
    }

    /// # Safety
    /// What is registered here is valid, and nobody changes these bytes.
    pub unsafe fn put(
        &self,
        dest: i32,
        here: *const u8,
        there: u64,
        bytes: usize,
    ) -> Result<(), Errno> {
        let rank = self.reach(dest, here, there, bytes)?;
        self.access(rank, there, bytes as u64, PUT, |place| {
            // SAFETY: the operation is waited for.
            let from = unsafe { Gather::lent(here, bytes) };
            let begun = (self.endpoint).post_put(rank, place, from, &PutOptions::default());
            Ok(begun.map_err(|(e, _)| e)?)
        })
    }

    /// # Safety
    /// What is registered here is valid, and nobody touches these bytes.
    pub unsafe fn get(
        &self,
        src: i32,
        here: *mut u8,
        there: u64,
        bytes: usize,
    ) -> Result<(), Errno> {
        let rank = self.reach(src, here, there, bytes)?;
        self.access(rank, there, bytes as u64, GET, |place| {
            // SAFETY: the operation is waited for.
            let into = unsafe { Buffer::lent(here, bytes) };
            let begun = (self.endpoint).post_get(rank, place, into, Notify::default());
            Ok(begun.map_err(|(e, _)| e)?)
        })
    }
}
