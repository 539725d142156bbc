//! The lane through shared memory: the protocol's chunks in ring slots, and
//! long messages either streamed through the ring or copied at once by the
//! receiver out of the sender's memory.
//!
//! A frame is a head or body chunk as `wire` defines it, or one of these:
//!
//! | first byte | what | bytes that follow |
//! | --- | --- | --- |
//! | 0x80 | ask: can you copy from my memory? | |
//! | 0x81 | answer | 1: yes or no |
//! | 0x82 | offer: a long message, to be copied | 7 unused, address 8, operation 8, head chunk without payload |
//! | 0x83 | done with an offer | 1: refused, 6 unused, operation 8 |

use std::collections::VecDeque;

use portolan_link::shm::{Frame, Outlet, PeerState, ShmError, ShmPort, ShortFrame};
use portolan_proto::{Outcome, SourceId};
use portolan_wire::{ARGS_MAX, BODY_BYTES, Body, HEAD_BYTES, Head, MessageNo, Priority};

use crate::core::{Arrival, Core, Took};
use crate::error::Death;
use crate::message::SendOptions;
use crate::net::NetLane;
use crate::ops::Ops;
use crate::ports::Meta;
use crate::send::FLOWS_MAX;
use crate::ways::InShm;

const ASK: u8 = 0x80;
const ANSWER: u8 = 0x81;
const OFFER: u8 = 0x82;
const DONE: u8 = 0x83;
/// Bytes of an offer before its head chunk.
const OFFER_BYTES: usize = 24;
/// Bytes of an [`ASK`], [`ANSWER`] or [`DONE`].
const CONTROL_BYTES: usize = 16;

/// Frames that one pass takes.
const BURST: usize = 64;
const FLOWS: usize = FLOWS_MAX as usize;

/// Why nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShmFailure {
    /// No room now.
    Full,
    /// Longer than a frame.
    TooBig,
    /// The peer is gone, or its memory is no good.
    Gone,
    /// There is no such peer.
    NoPeer,
}

impl From<ShmError> for ShmFailure {
    #[inline]
    fn from(e: ShmError) -> Self {
        match e {
            ShmError::Full => Self::Full,
            ShmError::TooBig(_) => Self::TooBig,
            ShmError::Gone(_) | ShmError::Corrupt => Self::Gone,
            ShmError::NoPeer => Self::NoPeer,
        }
    }
}

/// Whether a peer can copy from our memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copying {
    Unknown,
    Asked,
    Yes,
    No,
}

#[derive(Clone, Copy, Debug)]
struct TxPeer {
    numbers: [[MessageNo; FLOWS]; 2],
    /// Flows in which a long message is being streamed; others wait.
    streaming: [u8; 2],
    copying: Copying,
}

/// A long message on its way through the ring.
#[derive(Clone, Copy, Debug)]
struct Stream {
    to: u16,
    priority: Priority,
    flow: u16,
    number: MessageNo,
    id: SourceId,
    sent: usize,
}

/// The sending half's own state.
#[derive(Debug)]
pub(crate) struct ShmTx {
    peers: Vec<TxPeer>,
    streams: VecDeque<Stream>,
    /// Control frames that found no room.
    control: VecDeque<(u16, [u8; CONTROL_BYTES])>,
    frame_max: usize,
    /// Messages from this length on are copied by the receiver; `usize::MAX`
    /// where that is switched off.
    copy_min: usize,
}

/// Writes a head chunk and its argument words; gives where the payload goes.
#[inline(always)]
fn write_head(
    out: &mut [u8],
    port: u16,
    o: &SendOptions<'_>,
    number: MessageNo,
    length: usize,
    total: u64,
) -> usize {
    let head = Head {
        priority: o.priority,
        flow: o.flow,
        message: number,
        port,
        total,
        args: &[],
        payload: &[],
    };
    let fixed = head.fixed(o.args.len() as u8, length as u16);
    out[..HEAD_BYTES].copy_from_slice(&fixed);
    if o.args.is_empty() {
        return HEAD_BYTES;
    }
    for (to, arg) in out[HEAD_BYTES..].chunks_exact_mut(8).zip(o.args) {
        to.copy_from_slice(&arg.to_le_bytes());
    }
    HEAD_BYTES + 8 * o.args.len()
}

/// The most that fits `room` and leaves whole units to the bodies.
const fn whole_units(room: usize) -> usize {
    room / Body::UNIT as usize * Body::UNIT as usize
}

impl ShmTx {
    #[inline]
    pub const fn inline_max(&self, args: usize) -> usize {
        self.frame_max - HEAD_BYTES - 8 * args
    }

    /// The caller has checked flow and number of arguments.
    #[inline]
    pub fn send(
        &mut self,
        outlet: &mut Outlet<'_>,
        to: u16,
        port: u16,
        o: &SendOptions<'_>,
        payload: &[u8],
    ) -> Result<MessageNo, ShmFailure> {
        let p = o.priority.index();
        let Some(peer) = self.peers.get_mut(to as usize) else {
            return Err(ShmFailure::NoPeer);
        };
        if peer.streaming[p] & (1 << o.flow) != 0 {
            return Err(ShmFailure::Full);
        }
        let bytes = HEAD_BYTES + 8 * o.args.len() + payload.len();
        let mut slot = outlet.reserve(to, o.priority, bytes)?;
        let next = &mut peer.numbers[p][o.flow as usize];
        let number = *next;
        *next = number.next();
        let out = slot.bytes_mut();
        let at = write_head(out, port, o, number, payload.len(), payload.len() as u64);
        out[at..].copy_from_slice(payload);
        slot.commit();
        Ok(number)
    }

    /// Begins a long message. What is not copied by the receiver is streamed
    /// by [`ShmLane::run`].
    pub fn send_long(
        &mut self,
        outlet: &mut Outlet<'_>,
        to: u16,
        port: u16,
        o: &SendOptions<'_>,
        source: &[u8],
        id: SourceId,
    ) -> Result<MessageNo, ShmFailure> {
        let p = o.priority.index();
        let Some(peer) = self.peers.get_mut(to as usize) else {
            return Err(ShmFailure::NoPeer);
        };
        if peer.streaming[p] & (1 << o.flow) != 0 {
            return Err(ShmFailure::Full);
        }
        let total = source.len() as u64;
        let copied = source.len() >= self.copy_min;
        let number = peer.numbers[p][o.flow as usize];
        if copied && peer.copying == Copying::Yes {
            let bytes = OFFER_BYTES + HEAD_BYTES + 8 * o.args.len();
            let mut slot = outlet.reserve(to, o.priority, bytes)?;
            let out = slot.bytes_mut();
            out[..8].copy_from_slice(&[OFFER, 0, 0, 0, 0, 0, 0, 0]);
            out[8..16].copy_from_slice(&(source.as_ptr() as u64).to_le_bytes());
            out[16..24].copy_from_slice(&id.0.to_le_bytes());
            write_head(&mut out[OFFER_BYTES..], port, o, number, 0, total);
            slot.commit();
        } else {
            let room = self.frame_max - HEAD_BYTES - 8 * o.args.len();
            let first = source.len().min(whole_units(room));
            let mut slot = outlet.reserve(to, o.priority, HEAD_BYTES + 8 * o.args.len() + first)?;
            let out = slot.bytes_mut();
            let at = write_head(out, port, o, number, first, total);
            out[at..].copy_from_slice(&source[..first]);
            slot.commit();
            peer.streaming[p] |= 1 << o.flow;
            self.streams.push_back(Stream {
                to,
                priority: o.priority,
                flow: o.flow,
                number,
                id,
                sent: first,
            });
            if copied && peer.copying == Copying::Unknown {
                peer.copying = Copying::Asked;
                self.tell(outlet, to, control(ASK, 0, 0));
            }
        }
        self.peers[to as usize].numbers[p][o.flow as usize] = number.next();
        Ok(number)
    }

    /// Sends a control frame, now or as soon as there is room.
    fn tell(&mut self, outlet: &mut Outlet<'_>, to: u16, frame: [u8; CONTROL_BYTES]) {
        if !self.control.is_empty() || !say(outlet, to, &frame) {
            self.control.push_back((to, frame));
        }
    }

    fn has_work(&self) -> bool {
        !self.streams.is_empty() || !self.control.is_empty()
    }

    /// Sends what waits for room; gives how many frames.
    fn run(&mut self, outlet: &mut Outlet<'_>, ops: &mut Ops) -> usize {
        let mut moved = 0;
        while let Some((to, frame)) = self.control.front() {
            if !say(outlet, *to, frame) {
                break;
            }
            self.control.pop_front();
            moved += 1;
        }
        for _ in 0..self.streams.len() {
            let Some(mut stream) = self.streams.pop_front() else {
                break;
            };
            let (frames, over) = stream.run(outlet, ops, self.frame_max);
            moved += frames;
            match over {
                false => self.streams.push_back(stream),
                true => {
                    self.peers[stream.to as usize].streaming[stream.priority.index()] &=
                        !(1 << stream.flow);
                    ops.finish(stream.id, Outcome::Done, None);
                    moved += 1;
                }
            }
        }
        moved
    }
}

const fn control(kind: u8, flag: u8, id: u64) -> [u8; CONTROL_BYTES] {
    let [a, b, c, d, e, f, g, h] = id.to_le_bytes();
    [kind, flag, 0, 0, 0, 0, 0, 0, a, b, c, d, e, f, g, h]
}

/// False if there is no room.
fn say(outlet: &mut Outlet<'_>, to: u16, frame: &[u8; CONTROL_BYTES]) -> bool {
    match outlet.reserve(to, Priority::Reply, CONTROL_BYTES) {
        Ok(mut slot) => {
            slot.bytes_mut().copy_from_slice(frame);
            slot.commit();
            true
        }
        Err(ShmError::Full) => false,
        // Nobody is there to hear it.
        Err(_) => true,
    }
}

impl Stream {
    /// Sends bodies as long as there is room; gives how many, and whether
    /// that was all.
    fn run(&mut self, outlet: &mut Outlet<'_>, ops: &mut Ops, frame_max: usize) -> (usize, bool) {
        let mut frames = 0;
        // Gone with its peer, if it is not there.
        let Some(entry) = ops.get_mut(self.id) else {
            return (0, true);
        };
        let source = entry.source.as_slice();
        while self.sent < source.len() {
            let n = (source.len() - self.sent).min(whole_units(frame_max - BODY_BYTES));
            let mut slot = match outlet.reserve(self.to, self.priority, BODY_BYTES + n) {
                Ok(slot) => slot,
                Err(_) => return (frames, false),
            };
            let out = slot.bytes_mut();
            Body {
                priority: self.priority,
                flow: self.flow,
                message: self.number,
                fragment: (self.sent as u64 / Body::UNIT) as u32,
                payload: &[],
            }
            .write_header(out);
            out[BODY_BYTES..].copy_from_slice(&source[self.sent..self.sent + n]);
            slot.commit();
            self.sent += n;
            frames += 1;
        }
        (frames, true)
    }
}

/// A message that arrives in bodies.
#[derive(Clone, Copy, Debug, Default)]
struct Active {
    /// 0: its bytes are thrown away.
    cookie: u64,
    /// Bytes still missing; 0: no message.
    left: u64,
    at: u64,
}

/// The receiving half's own state.
#[derive(Debug)]
struct ShmRx {
    /// By peer, priority and flow.
    active: Vec<[[Active; FLOWS]; 2]>,
    /// Rank of each index.
    ranks: Vec<u32>,
    scratch: Vec<u8>,
}

/// The lane.
#[derive(Debug)]
pub(crate) struct ShmLane {
    pub link: ShmPort,
    pub tx: ShmTx,
    rx: ShmRx,
    /// The last pass left something where it was.
    pub blocked: bool,
}

/// No rank.
const NOBODY: u32 = u32::MAX;

impl ShmLane {
    /// `ranks`: the rank of each index, and of our own.
    pub fn new(link: ShmPort, ranks: &[(u16, u32)], copy_min: usize) -> Self {
        let endpoints = link.endpoints() as usize;
        let frame_max = link.frame_bytes_max();
        let mut by_index = vec![NOBODY; endpoints];
        for (index, rank) in ranks {
            if let Some(slot) = by_index.get_mut(*index as usize) {
                *slot = *rank;
            }
        }
        let peer = TxPeer {
            numbers: [[MessageNo(0); FLOWS]; 2],
            streaming: [0; 2],
            copying: Copying::Unknown,
        };
        Self {
            tx: ShmTx {
                peers: vec![peer; endpoints],
                streams: VecDeque::new(),
                control: VecDeque::new(),
                frame_max,
                copy_min,
            },
            rx: ShmRx {
                active: vec![[[Active::default(); FLOWS]; 2]; endpoints],
                ranks: by_index,
                scratch: vec![0; frame_max],
            },
            link,
            blocked: false,
        }
    }

    /// One pass: what has arrived, what waits for room. Gives how much moved.
    #[inline]
    pub fn pass(&mut self, core: &mut Core, net: Option<&mut NetLane>) -> usize {
        let Self {
            link,
            tx,
            rx,
            blocked,
        } = self;
        *blocked = false;
        let mut net = net;
        let mut moved = 0;
        while moved < BURST
            && let Some(frame) = link.peek_short()
        {
            let mut ways = InShm {
                outlet: &mut link.outlet(),
                tx,
                net: net.as_deref_mut(),
            };
            if !rx.take_short(core, &mut ways, &frame) {
                break;
            }
            link.advance_short();
            moved += 1;
        }
        if moved > 0 {
            link.end_short();
        } else if !link.is_quiet() {
            let polled = link.poll_with(BURST, |outlet, from, priority, frame| {
                let mut ways = InShm {
                    outlet,
                    tx,
                    net: net.as_deref_mut(),
                };
                let taken = rx.take(core, &mut ways, from, priority, frame);
                *blocked |= !taken;
                taken
            });
            moved = match polled {
                Ok(n) => n,
                Err(e) => {
                    if let Some(rank) = e.from.and_then(|from| rx.rank(from)) {
                        core.suspects.push((rank, Death::Corrupt));
                        core.attention = true;
                    }
                    1
                }
            };
        }
        if tx.has_work() {
            moved += tx.run(&mut link.outlet(), &mut core.ops);
        }
        moved
    }

    /// Forgets what was under way with a peer.
    pub fn forget(&mut self, index: u16) {
        let at = index as usize;
        self.tx.streams.retain(|s| s.to != index);
        self.tx.control.retain(|(to, _)| *to != index);
        self.tx.peers[at].streaming = [0; 2];
        self.rx.active[at] = [[Active::default(); FLOWS]; 2];
    }

    /// Ranks whose endpoints are gone though nobody has said so.
    pub fn gone(&self) -> Vec<(u32, Death)> {
        let state = |index: usize| self.link.peer_state(index as u16);
        (self.rx.ranks.iter().enumerate())
            .filter(|(index, rank)| **rank != NOBODY && state(*index).is_gone())
            .map(|(index, rank)| (*rank, why(state(index))))
            .collect()
    }

    pub fn why(&self, index: u16) -> Death {
        why(self.link.peer_state(index))
    }

    /// A peer will not be asked about again.
    pub fn settle(&mut self, index: u16) {
        self.rx.ranks[index as usize] = NOBODY;
    }

    pub fn idle(&self) -> bool {
        !self.tx.has_work()
    }
}

fn why(state: PeerState) -> Death {
    match state {
        PeerState::Closed => Death::Closed,
        _ => Death::Ended,
    }
}

impl ShmRx {
    fn rank(&self, from: u16) -> Option<u32> {
        self.ranks
            .get(from as usize)
            .copied()
            .filter(|r| *r != NOBODY)
    }

    /// Takes a whole message that fits a line; false leaves it where it is,
    /// whatever it is.
    #[inline(always)]
    fn take_short(
        &mut self,
        core: &mut Core,
        ways: &mut InShm<'_, '_>,
        frame: &ShortFrame,
    ) -> bool {
        let head = frame.bytes();
        let Some(rank) = self.rank(frame.from) else {
            return false;
        };
        let Some(payload_at) = payload_at(head) else {
            return false;
        };
        let a = Arrival {
            meta: meta(head, rank, frame.priority),
            args: &head[HEAD_BYTES..payload_at],
            total: total(head),
            payload: &head[payload_at..],
        };
        a.is_whole() && Self::hand_over(core, ways, &a)
    }

    /// A whole message has arrived; false if it is to stay.
    #[inline(always)]
    fn hand_over(core: &mut Core, ways: &mut InShm<'_, '_>, a: &Arrival<'_>) -> bool {
        match core.arrive(ways, a) {
            // Parts there are only of a message in parts.
            Took::Whole | Took::Part(_) => true,
            Took::NotNow => false,
            Took::Refused => {
                core.refuse_kept(ways, &a.meta);
                true
            }
        }
    }

    /// Takes one frame; false leaves it where it is.
    fn take(
        &mut self,
        core: &mut Core,
        ways: &mut InShm<'_, '_>,
        from: u16,
        priority: Priority,
        frame: &Frame<'_>,
    ) -> bool {
        let head = frame.head();
        let Some(rank) = self.rank(from) else {
            return true;
        };
        if let Some(payload_at) = payload_at(head) {
            let meta = meta(head, rank, priority);
            let flow = meta.flow;
            let total = total(head);
            let payload = if frame.len() == head.len() {
                &head[payload_at..]
            } else {
                let n = frame.len() - payload_at;
                let scratch = &mut self.scratch[..n];
                frame.copy_to(payload_at, scratch);
                scratch
            };
            let a = Arrival {
                meta,
                args: &head[HEAD_BYTES..payload_at],
                total,
                payload,
            };
            if a.is_whole() {
                return Self::hand_over(core, ways, &a);
            }
            if flow as usize >= FLOWS || total < payload.len() as u64 {
                return self.distrust(core, from);
            }
            let sent = payload.len() as u64;
            let cookie = match core.arrive(ways, &a) {
                Took::NotNow => return false,
                Took::Part(cookie) => cookie,
                Took::Refused => {
                    core.refuse_kept(ways, &meta);
                    0
                }
                Took::Whole => 0,
            };
            self.active[from as usize][priority.index()][flow as usize] = Active {
                cookie,
                left: total - sent,
                at: sent,
            };
            return true;
        }
        self.take_other(core, ways, from, priority, frame)
    }

    fn take_other(
        &mut self,
        core: &mut Core,
        ways: &mut InShm<'_, '_>,
        from: u16,
        priority: Priority,
        frame: &Frame<'_>,
    ) -> bool {
        let head = frame.head();
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
                if n > active.left {
                    return self.distrust(core, from);
                }
                let Active { cookie, at, .. } = *active;
                active.left -= n;
                active.at += n;
                let last = active.left == 0;
                if cookie != 0 {
                    core.place(cookie, at, n as usize, |into| {
                        frame.copy_to(BODY_BYTES, into)
                    });
                    if last {
                        core.finish(ways, cookie);
                    }
                }
                true
            }
            Some(&ASK) => {
                let can = ways.outlet.can_copy(from);
                ways.tx
                    .tell(ways.outlet, from, control(ANSWER, can.into(), 0));
                true
            }
            Some(&ANSWER) => {
                let yes = head.get(1) == Some(&1);
                ways.tx.peers[from as usize].copying = if yes { Copying::Yes } else { Copying::No };
                true
            }
            Some(&DONE) => {
                let Some(id) = word(8).map(SourceId) else {
                    return self.distrust(core, from);
                };
                if head.get(1) == Some(&1)
                    && let Some(entry) = core.ops.get_mut(id)
                {
                    entry.refused = true;
                }
                // Only operations to that peer: another process wrote the number.
                if core
                    .ops
                    .get_mut(id)
                    .is_some_and(|e| Some(e.to) == self.rank(from))
                {
                    core.finish_op(id);
                }
                true
            }
            Some(&OFFER) => {
                let (Some(remote), Some(id)) = (word(8), word(16)) else {
                    return self.distrust(core, from);
                };
                self.take_offer(core, ways, from, priority, head, remote, id)
            }
            _ => self.distrust(core, from),
        }
    }

    /// Copies a long message out of the sender's memory.
    #[expect(clippy::too_many_arguments, reason = "the fields of an offer")]
    fn take_offer(
        &mut self,
        core: &mut Core,
        ways: &mut InShm<'_, '_>,
        from: u16,
        priority: Priority,
        frame: &[u8],
        remote: u64,
        id: u64,
    ) -> bool {
        let head = &frame[OFFER_BYTES..];
        let (Some(rank), Some(args)) = (self.rank(from), head.get(1)) else {
            return true;
        };
        let args_end = HEAD_BYTES + 8 * *args as usize;
        if args_end > head.len() {
            return self.distrust(core, from);
        }
        let total = total(head);
        let a = Arrival {
            meta: meta(head, rank, priority),
            args: &head[HEAD_BYTES..args_end],
            total,
            payload: &[],
        };
        match core.arrive(ways, &a) {
            Took::NotNow => return false,
            Took::Refused => ways.tx.tell(ways.outlet, from, control(DONE, 1, id)),
            Took::Whole => ways.tx.tell(ways.outlet, from, control(DONE, 0, id)),
            Took::Part(cookie) => {
                let Some(incoming) = core.incoming.get(cookie) else {
                    return true;
                };
                let into = incoming.bytes_mut();
                let into = &mut into[..total as usize];
                let copied = ways.outlet.copy_from_peer(from, remote, into);
                // One that closes takes back what it lent: looked at after the
                // copy, its state tells whether the bytes were still those.
                match copied {
                    Ok(()) if !ways.outlet.peer_state(from).is_gone() => {
                        ways.tx.tell(ways.outlet, from, control(DONE, 0, id));
                        core.finish(ways, cookie);
                    }
                    _ => {
                        // It closed or died, or lent us memory that it does not have.
                        core.suspects.push((rank, Death::Ended));
                        core.attention = true;
                    }
                }
            }
        }
        true
    }

    /// What a peer sent makes no sense.
    #[cold]
    fn distrust(&self, core: &mut Core, from: u16) -> bool {
        if let Some(rank) = self.rank(from) {
            core.suspects.push((rank, Death::Corrupt));
            core.attention = true;
        }
        true
    }
}

/// Where the payload of a head chunk begins; `None` for all else.
#[inline(always)]
fn payload_at(head: &[u8]) -> Option<usize> {
    let &[lead, args] = head.first_chunk()?;
    let at = HEAD_BYTES + 8 * args as usize;
    (lead & 7 == 1 && lead < 16 && args as usize <= ARGS_MAX && at <= head.len()).then_some(at)
}

/// The little-endian word at `at` of a head chunk.
#[inline(always)]
fn word<const N: usize>(head: &[u8], at: usize) -> [u8; N] {
    head[at..at + N].try_into().unwrap_or([0; N])
}

/// What a head chunk, at least [`HEAD_BYTES`] long, names.
#[inline(always)]
fn meta(head: &[u8], from: u32, priority: Priority) -> Meta {
    Meta {
        from,
        port: u16::from_le_bytes(word(head, 8)),
        flow: u16::from_le_bytes(word(head, 2)),
        priority,
        number: MessageNo(u32::from_le_bytes(word(head, 4))),
    }
}

/// Length of the message that a head chunk begins.
#[inline(always)]
fn total(head: &[u8]) -> u64 {
    u64::from_le_bytes(word(head, 12))
}
