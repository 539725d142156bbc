//! The receiving half of the lane through shared memory.

use portolan_link::shm::Frame;
use portolan_proto::SourceId;
use portolan_wire::{ARGS_MAX, BODY_BYTES, HEAD_BYTES, Priority};

use super::{FLOWS, NOBODY};
use crate::core::{Arrival, ArrivalOutcome, Core};
use crate::matched::Onward;
use crate::outbound::Proof;
use crate::outbound::frame::{
    ANSWER, ASK, DONE, MARK, OFFER, OFFER_BYTES, PART, control, meta, payload_at, total,
};
use crate::values::{Death, Message, Meta};
use crate::waiting::{Entry, Offer};

/// A message that arrives in bodies.
#[derive(Clone, Copy, Debug, Default)]
struct Active {
    /// Where its parts go; 0: they are discarded.
    cookie: u64,
    /// Bytes still missing; 0: no message.
    left: u64,
    at: u64,
    /// Longer than what the caches hold.
    vast: bool,
}

/// The receiving half's own state.
#[derive(Debug)]
pub(crate) struct ShmRx {
    /// By peer, priority and flow.
    active: Vec<[[Active; FLOWS]; 2]>,
    /// Rank of each index.
    ranks: Vec<u32>,
    /// Priorities at which each peer sends nothing more: a bit for each.
    parted: Vec<u8>,
    /// When each peer last sent something, as the count of arrivals then. Short frames from a
    /// ring do not count.
    used: Vec<u64>,
    arrivals: u64,
    scratch: Vec<u8>,
    /// Length above which messages do not stay in the caches, bytes: each copy would evict what
    /// the previous one has brought there.
    cached_max: u64,
}

impl ShmRx {
    /// `ranks`: the rank of each index, [`NOBODY`] for none.
    pub fn new(endpoints: usize, ranks: Vec<u32>, frame_max: usize, cached_max: u64) -> Self {
        Self {
            active: vec![[[Active::default(); FLOWS]; 2]; endpoints],
            ranks,
            parted: vec![0; endpoints],
            used: vec![0; endpoints],
            arrivals: 0,
            scratch: vec![0; frame_max],
            cached_max,
        }
    }

    /// Drops what was in flight from a peer.
    pub fn forget(&mut self, index: u16) {
        self.active[index as usize] = [[Active::default(); FLOWS]; 2];
    }

    /// Assigns a free index to a rank.
    pub fn begin(&mut self, index: u16, rank: u32) {
        let (at, endpoints) = (index as usize, self.ranks.len().max(index as usize + 1));
        self.active
            .resize(endpoints, [[Active::default(); FLOWS]; 2]);
        self.ranks.resize(endpoints, NOBODY);
        self.parted.resize(endpoints, 0);
        self.used.resize(endpoints, 0);
        self.forget(index);
        self.ranks[at] = rank;
        self.parted[at] = 0;
        self.used[at] = self.arrivals;
    }

    /// Returns when a peer last sent something, as a count that grows.
    pub fn used(&self, index: u16) -> u64 {
        self.used[index as usize]
    }

    /// Notes that a peer sends nothing more.
    pub fn set_parted(&mut self, index: u16) {
        self.parted[index as usize] = 0b11;
    }

    /// Whether a peer has announced that it sends nothing more.
    pub fn has_parted(&self, index: u16) -> bool {
        self.parted[index as usize] == 0b11
    }

    /// Returns the rank of each index.
    pub fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// Stops checks on a peer.
    pub fn settle(&mut self, index: u16) {
        self.ranks[index as usize] = NOBODY;
    }

    pub fn rank(&self, from: u16) -> Option<u32> {
        let rank = *self.ranks.get(from as usize)?;
        (rank != NOBODY).then_some(rank)
    }

    /// Returns the message in a frame, if it has all of it. Its flow is as it travels.
    #[inline(always)]
    pub fn whole<'f>(&self, head: &'f [u8], from: u16, priority: Priority) -> Option<Message<'f>> {
        let rank = self.rank(from)?;
        let payload_at = payload_at(head)?;
        let meta = meta(head, rank, priority);
        let message = Message {
            from: rank,
            port: meta.port,
            flow: meta.flow,
            priority,
            number: meta.number,
            payload: &head[payload_at..],
            total: total(head),
            args: &head[HEAD_BYTES..payload_at],
        };
        (message.total == message.payload.len() as u64).then_some(message)
    }

    /// Takes one frame; false leaves it where it is.
    pub fn take(
        &mut self,
        core: &mut Core,
        on: &mut Onward<'_>,
        from: u16,
        priority: Priority,
        frame: &Frame<'_>,
    ) -> bool {
        let head = frame.head();
        if let Some([PART, flag]) = head.first_chunk()
            && *flag == priority.index() as u8
            && let Some(parted) = self.parted.get_mut(from as usize)
        {
            if !core.standalone() {
                return self.distrust(core, from);
            }
            *parted |= 1 << priority.index();
            if let Some(rank) = self.rank(from) {
                core.suspect(rank, Death::Removed);
            }
            return true;
        }
        let Some(rank) = self.rank(from) else {
            return true;
        };
        self.arrivals += 1;
        self.used[from as usize] = self.arrivals;
        if let Some(payload_at) = payload_at(head) {
            let payload = if frame.len() == head.len() {
                &head[payload_at..]
            } else {
                let n = frame.len() - payload_at;
                let scratch = &mut self.scratch[..n];
                frame.copy_to(payload_at, scratch);
                scratch
            };
            // Built in place. A copy would load at once what was just stored in pieces: that
            // stall (store forwarding) doubled the time of a message.
            let a = Arrival {
                meta: meta(head, rank, priority),
                args: &head[HEAD_BYTES..payload_at],
                total: total(head),
                payload,
            };
            if a.is_whole() {
                return hand_over(core, on, &a);
            }
            let flow = a.meta.flow;
            let (total, sent) = (a.total, a.payload.len() as u64);
            let begun = &self.active[from as usize][priority.index()];
            let free = begun.get(flow as usize).is_some_and(|it| it.left == 0);
            if !free || total < sent {
                return self.distrust(core, from);
            }
            let cookie = match core.arrive(on, &a) {
                ArrivalOutcome::NotNow => return false,
                ArrivalOutcome::Part(cookie) => cookie,
                ArrivalOutcome::Refused => {
                    core.refuse_kept(&mut on.out, &a.meta);
                    0
                }
                ArrivalOutcome::Whole => 0,
            };
            self.active[from as usize][priority.index()][flow as usize] = Active {
                cookie,
                left: total - sent,
                at: sent,
                vast: on.matched.extent(cookie).max(total) > self.cached_max,
            };
            return true;
        }
        self.take_other(core, on, from, priority, frame)
    }

    fn take_other(
        &mut self,
        core: &mut Core,
        on: &mut Onward<'_>,
        from: u16,
        priority: Priority,
        frame: &Frame<'_>,
    ) -> bool {
        let head = frame.head();
        // What has to be answered waits for room for the answer.
        if matches!(head.first(), Some(&(ASK | OFFER | MARK))) && !on.out.near().tx.may_tell(from) {
            return false;
        }
        let word = |at: usize| {
            head.get(at..at + 8)
                .map(|w| u64::from_le_bytes([w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]]))
        };
        match head.first() {
            Some(lead) if lead & 7 == 2 && *lead < 16 && head.len() >= BODY_BYTES => {
                let flow = u16::from_le_bytes([head[2], head[3]]) as usize;
                let n = (frame.len() - BODY_BYTES) as u64;
                let Some(active) = self.active[from as usize][priority.index()].get_mut(flow)
                else {
                    return self.distrust(core, from);
                };
                // Bodies are never empty: behind the last, the cookie may be another message's.
                if n == 0 || n > active.left {
                    return self.distrust(core, from);
                }
                let Active {
                    cookie, at, vast, ..
                } = *active;
                active.left -= n;
                active.at += n;
                let last = active.left == 0;
                if cookie != 0 {
                    core.place(on.matched, cookie, at, n as usize, |into| {
                        if vast {
                            frame.copy_beyond(BODY_BYTES, into);
                        } else {
                            frame.copy_to(BODY_BYTES, into);
                        }
                    });
                    if last {
                        core.finish(on, cookie);
                    }
                }
                true
            }
            Some(&ASK) => {
                let shm = on.out.near();
                let can = shm.outlet.can_copy(from);
                shm.send_control(from, control(ANSWER, can.into(), 0));
                true
            }
            Some(&ANSWER) => {
                let yes = head.get(1) == Some(&1);
                on.out.near().tx.note_answer(from, yes);
                true
            }
            Some(&MARK) => {
                let Some(mark) = word(8) else {
                    return self.distrust(core, from);
                };
                if head.get(1) == Some(&1) {
                    let clock = on.out.clock;
                    on.out.near().tx.note_proof(from, Proof::Read(mark), clock);
                } else {
                    on.out.near().send_control(from, control(MARK, 1, mark));
                }
                true
            }
            Some(&DONE) => {
                let Some(id) = word(8).map(SourceId) else {
                    return self.distrust(core, from);
                };
                // Only operations to that peer: another process wrote the number.
                let rank = self.rank(from);
                if let Some(entry) = core.ops.get_mut(id).filter(|e| Some(e.to) == rank) {
                    if head.get(1) == Some(&1) {
                        let Entry {
                            to,
                            priority,
                            flow,
                            number,
                            ..
                        } = *entry;
                        core.refused(to, priority, flow, number);
                    }
                    let clock = on.out.clock;
                    on.out.near().tx.note_proof(from, Proof::Copied(id), clock);
                    core.finish_op(id);
                }
                true
            }
            Some(&OFFER) => {
                let (Some(remote), Some(id)) = (word(8), word(16)) else {
                    return self.distrust(core, from);
                };
                let offer = Offer { from, remote, id };
                self.take_offer(core, on, priority, head, offer)
            }
            _ => self.distrust(core, from),
        }
    }

    /// Copies a long message out of the sender's memory.
    fn take_offer(
        &mut self,
        core: &mut Core,
        on: &mut Onward<'_>,
        priority: Priority,
        frame: &[u8],
        offer: Offer,
    ) -> bool {
        let from = offer.from;
        let head = &frame[OFFER_BYTES..];
        let (Some(rank), Some(args)) = (self.rank(from), head.get(1)) else {
            return true;
        };
        let args_end = HEAD_BYTES + 8 * *args as usize;
        if *args as usize > ARGS_MAX || args_end > head.len() {
            return self.distrust(core, from);
        }
        let total = total(head);
        let a = Arrival {
            meta: meta(head, rank, priority),
            args: &head[HEAD_BYTES..args_end],
            total,
            payload: &[],
        };
        match core.arrive_offer(on, &a, offer) {
            Some(ArrivalOutcome::NotNow) => return false,
            Some(took) => offer.answer(core, on, &a, took),
            None => {}
        }
        true
    }

    /// Suspects a peer of corrupt shared memory. Returns true.
    #[cold]
    pub fn distrust(&self, core: &mut Core, from: u16) -> bool {
        if let Some(rank) = self.rank(from) {
            core.suspect(rank, Death::Corrupt);
        }
        true
    }
}

/// Hands over what [`ShmRx::whole`] returned; false if it is to stay.
#[inline(never)]
pub(crate) fn hand_over_whole(core: &mut Core, on: &mut Onward<'_>, message: &Message<'_>) -> bool {
    let a = Arrival {
        meta: Meta {
            from: message.from,
            port: message.port,
            flow: message.flow,
            priority: message.priority,
            number: message.number,
            direct: true,
        },
        args: message.args,
        total: message.total,
        payload: message.payload,
    };
    hand_over(core, on, &a)
}

/// Hands over a whole message; false if it is to stay.
fn hand_over(core: &mut Core, on: &mut Onward<'_>, a: &Arrival<'_>) -> bool {
    match core.arrive(on, a) {
        // A whole message has no further parts.
        ArrivalOutcome::Whole | ArrivalOutcome::Part(_) => true,
        ArrivalOutcome::NotNow => false,
        ArrivalOutcome::Refused => {
            core.refuse_kept(&mut on.out, &a.meta);
            true
        }
    }
}
