//! Serves other processes when their logs have arrived: answers gets, and writes puts, each
//! when it may.

use super::{PIECES_MAX, Part, SuperstepExchange, Wanted, Wire};
use crate::areas::{Areas, Pop};
use crate::check::{Access, conflict};
use crate::failure::Failure;
use crate::log::{AreaRange, Call, Calls};
use crate::queue::Queue;

/// Requests of one process.
#[derive(Debug, Default)]
struct Asked {
    results: Vec<u8>,
    places: Vec<Wanted>,
    puts: bool,
    messages: (usize, usize),
    popped: Vec<Pop>,
}

impl SuperstepExchange {
    /// Checks all calls of others, and answers their gets. If there are no gets at all, puts are
    /// written at once.
    pub(super) fn serve(&mut self, areas: &Areas, wire: &mut impl Wire) -> Result<(), Failure> {
        let (me, step) = (self.me, self.common.step);
        self.check(areas)?;
        let at_once = !self.wants && !self.gets;
        for who in 0..self.peers.len() as u32 {
            let pops = self.common.changes.pops as usize;
            if self.peers[who as usize].head.log() == 0 && pops == 0 {
                continue;
            }
            let asked = self.serve_one(who, at_once, areas)?;
            if asked.popped.len() != pops {
                return Err(Failure::Malformed { who });
            }
            self.hear_pops(who, &asked.popped)?;
            let peer = &mut self.peers[who as usize];
            (peer.places, peer.messages) = (asked.places, asked.messages);
            peer.puts = asked.puts && !at_once;
            if who == me {
                peer.results = asked.results;
            } else if !asked.results.is_empty() {
                self.sent += asked.results.len() as u64;
                wire.send(who, Part::Results, step, asked.results.into(), false)?;
            }
        }
        Ok(())
    }

    /// Records what a process means by its pops; they must agree with those of earlier processes.
    fn hear_pops(&mut self, who: u32, pops: &[Pop]) -> Result<(), Failure> {
        if self.popped.is_empty() {
            self.popped.extend(pops.iter().map(|pop| (*pop, who)));
        }
        for (it, pop) in self.popped.iter_mut().zip(pops) {
            let (before, other) = *it;
            let both = before.meet(*pop).ok_or(Failure::Popped { who, other })?;
            *it = (both, if both == before { other } else { who });
        }
        Ok(())
    }

    /// Finds conflicting accesses to this process's memory, if checks are on.
    fn check(&self, areas: &Areas) -> Result<(), Failure> {
        let Some(checks) = &self.checks else {
            return Ok(());
        };
        let mut all: Vec<Access> = checks.accesses(self.me).collect();
        all.extend(self.wanted.iter().flatten().map(|it| Access {
            start: it.into.addr(),
            bytes: it.bytes,
            writes: true,
            hp: it.hp,
            who: self.me,
            call: if it.hp { "bsp_hpget" } else { "bsp_get" },
        }));
        for who in 0..self.peers.len() as u32 {
            let mut calls = self.calls(who)?;
            while let Ok(Some(call)) = calls.read() {
                let (place, writes, call) = match call {
                    Call::Put(it, _) | Call::Piece(it) if it.hp => (it, true, "bsp_hpput"),
                    Call::Put(it, _) | Call::Piece(it) => (it, true, "bsp_put"),
                    Call::Get(it) if it.hp => (it, false, "bsp_hpget"),
                    Call::Get(it) => (it, false, "bsp_get"),
                    Call::Message { .. } | Call::Pop(_) => continue,
                };
                // Ranges outside of areas are reported by `serve_one`.
                if let Ok(start) = areas.place(place.slot, place.offset, place.bytes) {
                    all.push(Access {
                        start: start.addr(),
                        bytes: place.bytes as usize,
                        writes,
                        hp: place.hp,
                        who,
                        call,
                    });
                }
            }
        }
        let Some((a, b)) = conflict(all) else {
            return Ok(());
        };
        Err(Failure::Overlap {
            both: [(a.call, a.who), (b.call, b.who)],
            whose: self.me,
            bytes: (a.start + a.bytes).min(b.start + b.bytes) - b.start,
        })
    }

    /// Checks and serves the calls of one process, and gathers the results of its gets.
    fn serve_one(&self, who: u32, at_once: bool, areas: &Areas) -> Result<Asked, Failure> {
        let mut asked = Asked::default();
        let mut calls = self.calls(who)?;
        loop {
            words(&mut calls, areas, |word, into| {
                // Words may follow a get or a message, with no put before.
                asked.puts = true;
                if at_once {
                    // SAFETY: as `begin` requires.
                    unsafe { write(word, into) };
                }
            });
            let read = calls.read().map_err(|_| Failure::Malformed { who })?;
            let Some(call) = read else {
                return Ok(asked);
            };
            let find = |verb, place: AreaRange| {
                let AreaRange { offset, bytes, .. } = place;
                let outside = |why| Failure::Outside {
                    who,
                    verb,
                    offset,
                    bytes,
                    whose: self.me,
                    why,
                };
                areas.place(place.slot, offset, bytes).map_err(outside)
            };
            match call {
                Call::Put(place, bytes) => {
                    let into = find("puts", place)?;
                    asked.puts = true;
                    if at_once {
                        // SAFETY: as `begin` requires.
                        unsafe { write(bytes, into) };
                    }
                }
                Call::Get(place) => {
                    let from = find("gets", place)?;
                    let (at, bytes) = (asked.results.len(), place.bytes as usize);
                    grow(&mut asked.results, place.bytes, who)?;
                    asked.results.resize(at + bytes, 0);
                    // SAFETY: `bytes` bytes of a registered area, which stays valid until it is
                    // popped.
                    unsafe { from.copy_to_nonoverlapping(asked.results[at..].as_mut_ptr(), bytes) };
                }
                Call::Piece(place) => asked.places.push(Wanted {
                    into: find("puts", place)?,
                    bytes: place.bytes as usize,
                    hp: place.hp,
                }),
                Call::Message { tag, payload } => {
                    asked.messages.0 += 1;
                    asked.messages.1 += tag.len() + payload.len();
                }
                Call::Pop(pop) => asked.popped.push(pop),
            }
        }
    }

    /// Writes the results of gets.
    pub(super) fn store_results(&self) -> Result<(), Failure> {
        for ((who, peer), wanted) in (0..).zip(&self.peers).zip(&self.wanted) {
            // SAFETY: as `begin` requires.
            unsafe { scatter(&peer.results, wanted, who)? };
        }
        Ok(())
    }

    /// Writes the puts of others, except pieces.
    pub(super) fn store_puts(&self, areas: &Areas) -> Result<(), Failure> {
        for (who, _) in (0..).zip(&self.peers).filter(|(_, peer)| peer.puts) {
            let mut calls = self.calls(who)?;
            while let Ok(Some(call)) = calls.read() {
                if let Call::Put(place, bytes) = call
                    && let Ok(into) = areas.place(place.slot, place.offset, place.bytes)
                {
                    // SAFETY: as `begin` requires.
                    unsafe { write(bytes, into) };
                    // SAFETY: as above.
                    words(&mut calls, areas, |word, into| unsafe { write(word, into) });
                }
            }
        }
        Ok(())
    }

    /// Writes the pieces of this process to itself.
    pub(super) fn store_own(&self) {
        let places = &self.peers[self.me as usize].places;
        for (place, piece) in places.iter().zip(&self.own) {
            // SAFETY: as `begin` requires; both may overlap.
            unsafe { piece.start().copy_to(place.into, place.bytes) };
        }
    }

    /// Writes staged pieces, and this process's own among them.
    pub(super) fn store_staged(&self) -> Result<(), Failure> {
        for (who, peer) in (0..).zip(&self.peers) {
            if who == self.me {
                self.store_own();
            }
            for (places, bytes) in peer.places.chunks(PIECES_MAX).zip(&peer.staged) {
                // SAFETY: as `begin` requires.
                unsafe { scatter(bytes, places, who)? };
            }
        }
        Ok(())
    }

    /// Puts messages into the queue.
    pub(super) fn fill(&self, queue: &mut Queue) -> Result<(), Failure> {
        let all = self.peers.iter().map(|peer| peer.messages);
        let (messages, bytes) = all.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
        if messages == 0 {
            return Ok(());
        }
        queue.reserve(messages, bytes);
        for (who, _) in (0..)
            .zip(&self.peers)
            .filter(|(_, peer)| peer.messages.0 > 0)
        {
            let mut calls = self.calls(who)?;
            while let Ok(Some(call)) = calls.read() {
                if let Call::Message { tag, payload } = call {
                    queue.push(tag, payload);
                }
            }
        }
        Ok(())
    }
}

/// Takes the puts of words that follow to the area of the call before, with their targets.
#[inline]
fn words(calls: &mut Calls<'_>, areas: &Areas, mut put: impl FnMut(&[u8], *mut u8)) {
    if let Ok((start, bytes)) = areas.whole(calls.slot()) {
        calls.words(bytes, |offset, word| {
            put(word, start.wrapping_add(offset as usize));
        });
    }
}

/// Reserves `bytes` more, as process `who` asks.
fn grow(memory: &mut Vec<u8>, bytes: u64, who: u32) -> Result<(), Failure> {
    let more = usize::try_from(bytes).unwrap_or(usize::MAX);
    let grown = memory.try_reserve(more);
    grown.map_err(|_| Failure::NoMemory { who, bytes })
}

/// Writes bytes of process `who` to consecutive places.
///
/// # Safety
/// The places may be written.
unsafe fn scatter(bytes: &[u8], places: &[Wanted], who: u32) -> Result<(), Failure> {
    let mut rest = bytes;
    for it in places {
        let cut = rest.split_at_checked(it.bytes);
        let (now, after) = cut.ok_or(Failure::Malformed { who })?;
        rest = after;
        // SAFETY: promised by the caller.
        unsafe { now.as_ptr().copy_to(it.into, it.bytes) };
    }
    Ok(())
}

/// Writes the bytes of a put. Most are words, whose copies need no call.
///
/// # Safety
/// `into` is valid for writes of `bytes.len()` bytes.
#[inline]
unsafe fn write(bytes: &[u8], into: *mut u8) {
    // SAFETY: promised by the caller.
    unsafe {
        match bytes.len() {
            8 => bytes.as_ptr().copy_to(into, 8),
            length => bytes.as_ptr().copy_to(into, length),
        }
    }
}
