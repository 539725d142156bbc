//! The sending half of the lane through shared memory.

use std::collections::VecDeque;
use std::mem::offset_of;

use portolan_link::shm::{Outlet, PeerState, ShmError};
use portolan_proto::{Field, Outcome, SourceId, field};
use portolan_wire::{BODY_BYTES, Body, HEAD_BYTES, MessageNo, Priority};

use super::choice::{Choice, ShmTransfer, Ticket};
use super::frame::{ASK, CONTROL_BYTES, MARK, OFFER, OFFER_BYTES, PART, control, write_head};
use crate::environment::Clock;
use crate::values::{Death, FLOWS_ALL, SendOptions, Source};
use crate::waiting::Ops;

const FLOWS: usize = FLOWS_ALL as usize;

/// Why nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShmFailure {
    /// No room now.
    Full,
    /// Longer than a frame.
    TooBig,
    /// The peer is gone, or its memory is corrupt.
    Gone(PeerState),
    /// There is no such peer.
    NoPeer,
}

impl From<ShmError> for ShmFailure {
    #[inline]
    fn from(e: ShmError) -> Self {
        match e {
            ShmError::Full => Self::Full,
            ShmError::TooBig(_) => Self::TooBig,
            ShmError::Gone(state) => Self::Gone(state),
            ShmError::Corrupt => Self::Gone(PeerState::Corrupt),
            ShmError::NoPeer => Self::NoPeer,
        }
    }
}

/// Whether a peer can copy from our memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copying {
    Unknown,
    Asked,
    Yes,
    No,
}

#[derive(Clone, Copy, Debug)]
pub struct TxPeer {
    numbers: [[MessageNo; FLOWS]; 2],
    /// Flows in which a long message is being streamed; other messages of these wait.
    streaming: [u16; 2],
    copying: Copying,
    /// Number of control frames for it that found no room.
    untold: u32,
    choice: Choice,
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
    ticket: Option<Ticket>,
}

/// What shows that a peer has all of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The peer has copied this message.
    Copied(SourceId),
    /// The peer has read what lies before a mark.
    Read(u64),
}

/// The sending half's own state.
#[derive(Debug)]
pub struct ShmTx {
    peers: Vec<TxPeer>,
    streams: VecDeque<Stream>,
    /// Trials in progress: the receiver, and what will show that it has the message.
    trials: Vec<(u16, Proof, Ticket)>,
    marks_sent: u64,
    /// Control frames that found no room.
    control: VecDeque<(u16, [u8; CONTROL_BYTES])>,
    frame_max: usize,
    /// Length from which messages are copied by the receiver, bytes; `usize::MAX` if that is
    /// switched off.
    copy_min: usize,
}

/// Lent messages above this length are streamed, bytes.
pub const STREAMED_MIN: usize = 16 << 10;

/// Number of control frames that wait for a peer at which its requests are left unread: more
/// than an honest peer has messages in flight.
const UNTOLD_MAX: u32 = 1 << 16;

/// Shortest and longest piece of a message that is streamed, bytes. The receiver copies one
/// while the next is written, so a short message has short pieces. Each costs both sides about
/// 50 ns.
const PIECES: [usize; 2] = [8 << 10, 32 << 10];

/// Returns the length of the pieces of a message of `total` bytes, if a frame has `room` for
/// them.
const fn piece(total: usize, room: usize) -> usize {
    let [least, most] = PIECES;
    let even = total / 16;
    let piece = match even {
        _ if even < least => least,
        _ if even > most => most,
        _ => even,
    };
    whole_units(if piece < room { piece } else { room })
}

/// Returns the most that fits `room` and leaves whole units to the bodies.
const fn whole_units(room: usize) -> usize {
    room / Body::UNIT as usize * Body::UNIT as usize
}

impl TxPeer {
    const fn new() -> Self {
        Self {
            numbers: [[MessageNo(0); FLOWS]; 2],
            streaming: [0; 2],
            copying: Copying::Unknown,
            untold: 0,
            choice: Choice::new(),
        }
    }

    /// Returns the peer `to`, if a message may begin in that flow now.
    #[inline(always)]
    fn of<'p>(
        peers: &'p mut [Self],
        to: u16,
        o: &SendOptions<'_>,
    ) -> Result<&'p mut Self, ShmFailure> {
        let peer = peers.get_mut(to as usize).ok_or(ShmFailure::NoPeer)?;
        if peer.streaming[o.priority.index()] & (1 << o.flow) != 0 {
            return Err(ShmFailure::Full);
        }
        Ok(peer)
    }
}

impl ShmTx {
    pub fn new(endpoints: usize, frame_max: usize, copy_min: usize) -> Self {
        Self {
            peers: vec![TxPeer::new(); endpoints],
            streams: VecDeque::new(),
            trials: Vec::new(),
            marks_sent: 0,
            control: VecDeque::new(),
            frame_max,
            copy_min,
        }
    }

    /// Resets an index for a new peer.
    pub fn begin(&mut self, index: u16) {
        let peers = self.peers.len().max(index as usize + 1);
        self.peers.resize(peers, TxPeer::new());
        self.peers[index as usize] = TxPeer::new();
    }

    /// Whether control frames for a peer wait for room.
    pub fn owes(&self, index: u16) -> bool {
        self.peers[index as usize].untold > 0
    }

    /// Returns what is read from outside: the state of each peer, and the fields in it.
    pub fn described(&self) -> (&[TxPeer], &'static [Field]) {
        const FIELDS: &[Field] = &[
            field!("streaming", TxPeer, streaming, Some(0)),
            Field {
                name: "next_request",
                offset: offset_of!(TxPeer, numbers),
                bytes: 4,
                idle: Some(0),
            },
        ];
        (&self.peers, FIELDS)
    }

    /// Drops what was in flight to a peer.
    pub fn forget(&mut self, index: u16) {
        self.streams.retain(|s| s.to != index);
        self.trials.retain(|(to, ..)| *to != index);
        self.control.retain(|(to, _)| *to != index);
        self.peers[index as usize].untold = 0;
        self.peers[index as usize].streaming = [0; 2];
    }

    /// Records a peer's answer whether it can copy from our memory.
    pub fn note_answer(&mut self, from: u16, yes: bool) {
        self.peers[from as usize].copying = if yes { Copying::Yes } else { Copying::No };
    }

    /// Records that a peer has all of a message.
    pub fn note_proof(&mut self, from: u16, proof: Proof, clock: &dyn Clock) {
        let trial = self.trials.iter().position(|t| (t.0, t.1) == (from, proof));
        if let Some(at) = trial {
            let (.., ticket) = self.trials.swap_remove(at);
            self.peers[from as usize].choice.done(&ticket, clock.now());
        }
    }

    #[inline]
    pub const fn inline_max(&self, args: usize) -> usize {
        self.frame_max - HEAD_BYTES - 8 * args
    }

    /// Sends a message without arguments that fits a line of the peer's ring. `None`:
    /// [`ShmTx::send`] does it, or says why not.
    #[inline(always)]
    pub fn send_short(
        &mut self,
        outlet: &mut Outlet<'_>,
        to: u16,
        port: u16,
        o: &SendOptions<'_>,
        payload: &[u8],
    ) -> Option<MessageNo> {
        if !o.args.is_empty() {
            return None;
        }
        let peer = TxPeer::of(&mut self.peers, to, o).ok()?;
        let next = &mut peer.numbers[o.priority.index()][o.flow as usize];
        let (number, bytes) = (*next, payload.len());
        let mut head = [0; HEAD_BYTES];
        write_head(&mut head, port, o, number, bytes, bytes as u64);
        let sent = outlet.send_short(to, o.priority, &head, payload);
        sent.then(|| {
            *next = number.next();
            number
        })
    }

    /// Sends a message in one frame. The caller has checked flow and number of arguments.
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
        let peer = TxPeer::of(&mut self.peers, to, o)?;
        let bytes = HEAD_BYTES + 8 * o.args.len() + payload.len();
        let mut slot = outlet.reserve_in(to, o.priority, o.flow, bytes)?;
        let next = &mut peer.numbers[p][o.flow as usize];
        let number = *next;
        *next = number.next();
        let out = slot.bytes_mut();
        let at = write_head(out, port, o, number, payload.len(), payload.len() as u64);
        out[at..].copy_from_slice(payload);
        slot.commit();
        Ok(number)
    }

    /// Begins a long message. If the receiver does not copy it, it is streamed by
    /// [`ShmTx::run`].
    #[expect(clippy::too_many_arguments, reason = "the fields of a message")]
    pub fn send_long(
        &mut self,
        outlet: &mut Outlet<'_>,
        to: u16,
        port: u16,
        o: &SendOptions<'_>,
        source: &Source,
        id: SourceId,
        clock: &dyn Clock,
    ) -> Result<MessageNo, ShmFailure> {
        let p = o.priority.index();
        let peer = TxPeer::of(&mut self.peers, to, o)?;
        let total = source.len() as u64;
        let long = source.len() >= self.copy_min;
        let choosing = long && peer.copying == Copying::Yes;
        let whole = source.as_slice().filter(|_| choosing);
        let way = match whole {
            Some(_) => peer.choice.way(total),
            None => ShmTransfer::Ring,
        };
        let number = peer.numbers[p][o.flow as usize];
        if let Some(whole) = whole.filter(|_| way == ShmTransfer::Copy) {
            let bytes = OFFER_BYTES + HEAD_BYTES + 8 * o.args.len();
            let mut slot = outlet.reserve_in(to, o.priority, o.flow, bytes)?;
            let out = slot.bytes_mut();
            out[..8].copy_from_slice(&[OFFER, 0, 0, 0, 0, 0, 0, 0]);
            out[8..16].copy_from_slice(&(whole.as_ptr() as u64).to_le_bytes());
            out[16..24].copy_from_slice(&id.0.to_le_bytes());
            write_head(&mut out[OFFER_BYTES..], port, o, number, 0, total);
            slot.commit();
            if let Some(ticket) = peer.choice.begin(way, total, clock.now()) {
                self.trials.push((to, Proof::Copied(id), ticket));
            }
        } else {
            let room = self.frame_max - HEAD_BYTES - 8 * o.args.len();
            let first = source.len().min(piece(source.len(), room));
            let bytes = HEAD_BYTES + 8 * o.args.len() + first;
            let mut slot = outlet.reserve_in(to, o.priority, o.flow, bytes)?;
            let out = slot.bytes_mut();
            let at = write_head(out, port, o, number, first, total);
            source.read(0, &mut out[at..]);
            slot.commit();
            peer.streaming[p] |= 1 << o.flow;
            self.streams.push_back(Stream {
                to,
                priority: o.priority,
                flow: o.flow,
                number,
                id,
                sent: first,
                ticket: whole.and_then(|_| peer.choice.begin(way, total, clock.now())),
            });
            if long {
                self.may_copy(outlet, to);
            }
        }
        self.peers[to as usize].numbers[p][o.flow as usize] = number.next();
        Ok(number)
    }

    /// Whether a peer may copy from our memory, as far as it has answered. Asks it if it has
    /// not.
    pub fn may_copy(&mut self, outlet: &mut Outlet<'_>, to: u16) -> bool {
        let Some(peer) = self.peers.get_mut(to as usize) else {
            return false;
        };
        if self.copy_min != usize::MAX && peer.copying == Copying::Unknown {
            peer.copying = Copying::Asked;
            self.send_control(outlet, to, control(ASK, 0, 0));
        }
        self.peers[to as usize].copying == Copying::Yes
    }

    /// Whether a peer reads its control frames: else its requests are left unread.
    pub fn may_tell(&self, to: u16) -> bool {
        self.peers[to as usize].untold < UNTOLD_MAX
    }

    /// Sends a control frame, now or as soon as there is room.
    pub fn send_control(&mut self, outlet: &mut Outlet<'_>, to: u16, frame: [u8; CONTROL_BYTES]) {
        let untold = &mut self.peers[to as usize].untold;
        if *untold > 0 || !say(outlet, to, &frame) {
            *untold += 1;
            self.control.push_back((to, frame));
        }
    }

    pub fn has_work(&self) -> bool {
        !self.streams.is_empty() || !self.control.is_empty()
    }

    /// Sends what waits for room; returns how much moved.
    pub fn run(&mut self, outlet: &mut Outlet<'_>, ops: &mut Ops) -> usize {
        let mut moved = self.run_control(outlet);
        for _ in 0..self.streams.len() {
            let Some(mut stream) = self.streams.pop_front() else {
                break;
            };
            let (frames, over) = stream.run(outlet, ops, self.frame_max);
            moved += frames;
            match over && self.mark(outlet, &stream) {
                false => self.streams.push_back(stream),
                true => {
                    let peer = &mut self.peers[stream.to as usize];
                    peer.streaming[stream.priority.index()] &= !(1 << stream.flow);
                    ops.finish(stream.id, Outcome::Done);
                    moved += 1;
                }
            }
        }
        moved
    }

    /// Sends control frames that found no room, in order for each peer, whether others read
    /// theirs or not.
    fn run_control(&mut self, outlet: &mut Outlet<'_>) -> usize {
        let before = self.control.len();
        let peers = &mut self.peers;
        let mut full = Vec::new();
        self.control.retain(|(to, frame)| {
            if full.contains(to) {
                return true;
            }
            if !say(outlet, *to, frame) {
                full.push(*to);
                return true;
            }
            peers[*to as usize].untold -= 1;
            false
        });
        before - self.control.len()
    }

    /// Marks the end of what was sent for a trial; false if there is no room.
    fn mark(&mut self, outlet: &mut Outlet<'_>, stream: &Stream) -> bool {
        let Some(ticket) = stream.ticket else {
            return true;
        };
        let mark = self.marks_sent;
        let said = say_with(outlet, stream.to, stream.priority, &control(MARK, 0, mark));
        if said {
            self.marks_sent += 1;
            self.trials.push((stream.to, Proof::Read(mark), ticket));
        }
        said
    }
}

/// Sends a control frame; false if there is no room.
fn say(outlet: &mut Outlet<'_>, to: u16, frame: &[u8; CONTROL_BYTES]) -> bool {
    let of_requests = [PART, Priority::Request.index() as u8];
    let priority = if frame[..2] == of_requests {
        Priority::Request
    } else {
        Priority::Reply
    };
    say_with(outlet, to, priority, frame)
}

fn say_with(
    outlet: &mut Outlet<'_>,
    to: u16,
    priority: Priority,
    frame: &[u8; CONTROL_BYTES],
) -> bool {
    match outlet.reserve(to, priority, CONTROL_BYTES) {
        Ok(mut slot) => {
            slot.bytes_mut().copy_from_slice(frame);
            slot.commit();
            true
        }
        Err(ShmError::Full) => false,
        // There is no peer to receive it.
        Err(_) => true,
    }
}

impl Stream {
    /// Sends bodies as long as there is room; returns their number, and whether that was all.
    fn run(&mut self, outlet: &mut Outlet<'_>, ops: &mut Ops, frame_max: usize) -> (usize, bool) {
        let mut frames = 0;
        // If the entry is missing, it went with its peer.
        let Some(entry) = ops.get_mut(self.id) else {
            return (0, true);
        };
        let source = &entry.source;
        while self.sent < source.len() {
            let n = (source.len() - self.sent).min(piece(source.len(), frame_max - BODY_BYTES));
            let mut slot =
                match outlet.reserve_in(self.to, self.priority, self.flow, BODY_BYTES + n) {
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
            source.read(self.sent, &mut out[BODY_BYTES..]);
            slot.commit();
            self.sent += n;
            frames += 1;
        }
        (frames, true)
    }
}

/// Returns how a peer has died, by its state.
pub fn why(state: PeerState) -> Death {
    match state {
        PeerState::Closed => Death::Closed,
        PeerState::Corrupt => Death::Corrupt,
        _ => Death::Ended,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use portolan_link::shm::{Segment, SegmentConfig, SharedDoorbells, ShmPort};

    use super::super::choice::TRIAL;
    use super::super::frame::DONE;
    use super::*;
    use crate::environment::CountingClock;
    use crate::values::Payload;
    use crate::waiting::{Entry, Teller};

    const BYTES: usize = 1 << 20;

    /// Three endpoints of a segment, all in this process.
    fn ports() -> [ShmPort; 3] {
        let segment = Segment::create(3, &SegmentConfig::default()).unwrap();
        let bells = SharedDoorbells::new(3).unwrap();
        [0, 1, 2].map(|index| {
            let fds = bells.duplicate_of(usize::from(index)).unwrap();
            let fd = segment.duplicate_fd().unwrap();
            let mut port = ShmPort::attach(fd, index, fds, true).unwrap();
            (0..3).for_each(|peer| port.set_process(peer, std::process::id()));
            port
        })
    }

    /// Returns the kinds of frames that arrived; tells the sender what was read.
    fn read(port: &mut ShmPort, tx: &mut ShmTx, clock: &CountingClock) -> Vec<u8> {
        let mut kinds = Vec::new();
        let word = |frame: &[u8], at: usize| frame[at..at + 8].try_into().map(u64::from_le_bytes);
        let polled = port.poll(usize::MAX, |_, _, frame| {
            match frame[0] {
                OFFER => {
                    let id = SourceId(word(frame, 16).unwrap());
                    tx.note_proof(1, Proof::Copied(id), clock);
                }
                MARK => tx.note_proof(1, Proof::Read(word(frame, 8).unwrap()), clock),
                _ => {}
            }
            kinds.push(frame[0]);
            true
        });
        polled.unwrap();
        kinds
    }

    #[test]
    fn of_a_trial_by_the_ring_the_end_is_marked_and_heard_of() {
        let clock = CountingClock::default();
        let [mut from, mut to, _] = ports();
        let mut tx = ShmTx::new(3, from.frame_bytes_max(), 64 << 10);
        let mut ops = Ops::new(0);
        tx.note_answer(1, true);
        let mut marks = Vec::new();
        for _ in 0..3 * TRIAL {
            let memory: Arc<[u8]> = vec![1; BYTES].into();
            let id = ops.insert(Entry {
                source: Source::Given(Payload::Shared(Arc::clone(&memory))),
                to: 1,
                priority: Priority::Request,
                flow: 0,
                number: MessageNo(0),
                teller: Teller::Nobody,
                charged: 0,
                refused: false,
            });
            let source = Source::Given(Payload::Shared(memory));
            let options = SendOptions::default();
            let sent = tx.send_long(&mut from.outlet(), 1, 0, &options, &source, id, &clock);
            sent.unwrap();
            let mut kinds = Vec::new();
            while kinds.is_empty() || tx.has_work() {
                tx.run(&mut from.outlet(), &mut ops);
                kinds.extend(read(&mut to, &mut tx, &clock));
            }
            kinds.extend(read(&mut to, &mut tx, &clock));
            let last = kinds.last().copied();
            assert!(kinds[..kinds.len() - 1].iter().all(|kind| *kind != MARK));
            marks.push(last == Some(MARK));
            if kinds[0] == OFFER {
                ops.remove(id);
            }
        }
        let expected = (0..3 * TRIAL).map(|at| (TRIAL..2 * TRIAL).contains(&at));
        assert!(marks.into_iter().eq(expected));
        // What was measured decides from now on.
        assert!(tx.trials.is_empty());
        assert!(tx.peers[1].choice.has_both(BYTES as u64));
    }

    #[test]
    fn who_does_not_read_holds_up_nobody_else() {
        let [mut from, mut deaf, mut other] = ports();
        let mut tx = ShmTx::new(3, from.frame_bytes_max(), usize::MAX);
        let mut ops = Ops::new(0);
        let mut told = 0;
        while tx.may_tell(1) {
            tx.send_control(&mut from.outlet(), 1, control(DONE, 0, told));
            told += 1;
        }
        tx.send_control(&mut from.outlet(), 2, control(DONE, 0, 7));
        let read = |port: &mut ShmPort, numbers: &mut Vec<u64>| {
            let polled = port.poll(usize::MAX, |_, _, frame| {
                numbers.push(u64::from_le_bytes(frame[8..16].try_into().unwrap()));
                true
            });
            polled.unwrap()
        };
        let mut numbers = Vec::new();
        assert_eq!(read(&mut other, &mut numbers), 1);
        assert_eq!(numbers, [7]);
        // The peer reads again, and gets all, in order.
        numbers.clear();
        while read(&mut deaf, &mut numbers) > 0 || tx.has_work() {
            tx.run(&mut from.outlet(), &mut ops);
        }
        assert!(numbers.into_iter().eq(0..told) && tx.may_tell(1));
    }
}
