//! An independent record of what was sent and what arrived.
//!
//! Keyed by (sender's life, receiver's life, priority, flow, message). It
//! knows nothing of packets: only what applications may rely on. Every breach
//! panics; the runner adds the seed.

use std::collections::BTreeMap;

use portolan_proto::{Credit, Delivery, Outcome, Release, Verdict};
use portolan_wire::Priority;

use crate::content::{self, TAG_BYTES_MIN};

/// Index of a message, in the order of acceptance over the whole run.
pub type MessageId = usize;
/// Index of an incarnation of a node.
pub type LifeId = usize;

type FlowKey = (usize, u16);

/// How far a message has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Accepted from the sender.
    Sent,
    /// Its first part was taken; more is to come.
    Begun,
    /// Every byte was handed over.
    Delivered,
    /// The receiver said never.
    Refused,
}

/// A message as its sender meant it.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Request or reply.
    pub priority: Priority,
    /// Flow.
    pub flow: u16,
    /// The receiver's port.
    pub port: u16,
    /// Argument words.
    pub args: Vec<u64>,
    /// Bytes.
    pub total: u64,
    /// For a long message: when its memory comes back.
    pub long: Option<Release>,
}

#[derive(Clone, Debug)]
struct Record {
    plan: Planned,
    line: usize,
    progress: Progress,
    /// Byte ranges handed over.
    got: Vec<(u64, u64)>,
    refusal_told: bool,
    released: Option<Outcome>,
}

/// One direction of an acquaintance, from the sender's side: from the first
/// message accepted until the sender hears of the receiver's death.
#[derive(Clone, Debug)]
struct SentDirection {
    from: LifeId,
    to_node: usize,
    opened_at: u64,
    first_message: u32,
    flows: BTreeMap<FlowKey, Vec<MessageId>>,
    ended: bool,
    /// The receiving end, once something arrived.
    end: Option<usize>,
    /// The receiver gave the sender up, which need not know.
    abandoned: bool,
}

/// The same from the receiver's side.
#[derive(Clone, Debug)]
struct End {
    at: LifeId,
    line: usize,
    next: BTreeMap<FlowKey, usize>,
}

#[derive(Clone, Debug)]
struct Life {
    node: usize,
    died_at: Option<u64>,
    closed: bool,
    lines: BTreeMap<usize, usize>,
    ends: BTreeMap<usize, usize>,
}

/// The record of a run.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    lives: Vec<Life>,
    lines: Vec<SentDirection>,
    ends: Vec<End>,
    messages: Vec<Record>,
    /// Messages handed over whole.
    pub delivered: u64,
    /// Messages refused by their receiver.
    pub refused: u64,
}

impl Ledger {
    /// A node begins a life.
    pub fn birth(&mut self, node: usize) -> LifeId {
        self.lives.push(Life {
            node,
            died_at: None,
            closed: false,
            lines: BTreeMap::new(),
            ends: BTreeMap::new(),
        });
        self.lives.len() - 1
    }

    /// It was killed.
    pub fn death(&mut self, life: LifeId, now: u64) {
        self.lives[life].died_at = Some(now);
    }

    /// It closes its endpoint of its own will.
    pub fn closing(&mut self, life: LifeId) {
        self.lives[life].closed = true;
    }

    /// The endpoint was told that a peer is dead: nothing more is promised
    /// about what was under way. What a peer sent before it closed may still
    /// be delivered.
    pub fn peer_dead(&mut self, life: LifeId, peer: usize, closed: bool) {
        if let Some(line) = self.lives[life].lines.remove(&peer) {
            self.lines[line].ended = true;
        }
        if !closed && let Some(end) = self.lives[life].ends.remove(&peer) {
            self.lines[self.ends[end].line].abandoned = true;
        }
    }

    /// The id that the next accepted message gets.
    #[must_use]
    pub fn next_id(&self) -> MessageId {
        self.messages.len()
    }

    /// Whether something of this life has reached the peer's present one, so
    /// that a message without a name in it can be told from its number.
    #[must_use]
    pub fn is_met(&self, life: LifeId, peer: usize) -> bool {
        self.lives[life]
            .lines
            .get(&peer)
            .is_some_and(|&line| self.lines[line].end.is_some())
    }

    /// The protocol accepted a message and gave it a number.
    pub fn accepted(
        &mut self,
        now: u64,
        life: LifeId,
        peer: usize,
        first_message: u32,
        number: u32,
        plan: Planned,
    ) -> MessageId {
        let id = self.messages.len();
        let line = *self.lives[life].lines.entry(peer).or_insert_with(|| {
            self.lines.push(SentDirection {
                from: life,
                to_node: peer,
                opened_at: now,
                first_message,
                flows: BTreeMap::new(),
                ended: false,
                end: None,
                abandoned: false,
            });
            self.lines.len() - 1
        });
        let key = (plan.priority.index(), plan.flow);
        let flow = self.lines[line].flows.entry(key).or_default();
        assert_eq!(
            number,
            first_message.wrapping_add(flow.len() as u32),
            "message numbers of {key:?} are not consecutive"
        );
        flow.push(id);
        self.messages.push(Record {
            plan,
            line,
            progress: Progress::Sent,
            got: Vec::new(),
            refusal_told: false,
            released: None,
        });
        id
    }

    /// The protocol offers the first part of a message. Gives which it is.
    pub fn offered(&mut self, life: LifeId, peer: usize, d: &Delivery<'_>) -> MessageId {
        assert_eq!(d.offset, 0, "the first part does not start the message");
        let key = (d.priority.index(), d.flow);
        let named = content::name(d.args, d.payload);
        let end = match self.lives[life].ends.get(&peer) {
            Some(&end) => end,
            None => self.meet(life, peer, named),
        };
        let line = self.ends[end].line;
        let place = self.ends[end].next.get(&key).copied().unwrap_or(0);
        let expected = self.lines[line].first_message.wrapping_add(place as u32);
        assert_eq!(
            d.message.0, expected,
            "out of order: {key:?} from node {peer} to life {life}"
        );
        let flow = self.lines[line].flows.get(&key);
        let Some(&id) = flow.and_then(|f| f.get(place)) else {
            panic!("{key:?} message {expected} from node {peer} was never sent");
        };
        let record = &self.messages[id];
        if let Some(name) = named
            && (!record.plan.args.is_empty() || record.plan.total >= TAG_BYTES_MIN)
        {
            assert_eq!(name, id, "another message came under this number");
        }
        assert_eq!(record.progress, Progress::Sent, "message {id} came twice");
        assert_eq!(d.port, record.plan.port, "port of message {id}");
        assert_eq!(d.total, record.plan.total, "length of message {id}");
        let args: Vec<u8> = record
            .plan
            .args
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        assert_eq!(d.args, args, "argument words of message {id}");
        content::verify(id, 0, d.payload);
        assert_eq!(
            d.last,
            d.payload.len() as u64 == d.total,
            "end of message {id}"
        );
        id
    }

    /// Finds out whose messages these are.
    fn meet(&mut self, life: LifeId, peer: usize, named: Option<MessageId>) -> usize {
        let Some(record) = named.and_then(|id| self.messages.get(id)) else {
            panic!("life {life} got a message of node {peer} that nobody sent to it");
        };
        let line = record.line;
        let sender = &self.lines[line];
        assert_eq!(self.lives[sender.from].node, peer, "wrong sender named");
        assert_eq!(sender.to_node, self.lives[life].node, "wrong receiver");
        assert!(
            sender.end.is_none(),
            "messages of life {} reached a second acquaintance",
            sender.from
        );
        let end = self.ends.len();
        self.ends.push(End {
            at: life,
            line,
            next: BTreeMap::new(),
        });
        self.lines[line].end = Some(end);
        self.lives[life].ends.insert(peer, end);
        end
    }

    /// What the receiver made of an offer.
    pub fn decided(
        &mut self,
        life: LifeId,
        peer: usize,
        id: MessageId,
        d: &Delivery<'_>,
        v: Verdict,
    ) {
        if v == Verdict::NotNow {
            return;
        }
        let end = self.lives[life].ends[&peer];
        let key = (d.priority.index(), d.flow);
        *self.ends[end].next.entry(key).or_insert(0) += 1;
        let record = &mut self.messages[id];
        if v == Verdict::Refuse {
            record.progress = Progress::Refused;
            self.refused += 1;
            return;
        }
        record.got.push((0, d.payload.len() as u64));
        record.progress = Progress::Begun;
        if d.last {
            record.progress = Progress::Delivered;
            self.delivered += 1;
        }
    }

    /// A further part came.
    pub fn part(&mut self, life: LifeId, peer: usize, d: &Delivery<'_>) -> MessageId {
        let id = d.cookie as MessageId;
        let record = &mut self.messages[id];
        assert_eq!(
            record.progress,
            Progress::Begun,
            "message {id} is not under way"
        );
        let line = &self.lines[record.line];
        let end = line.end.map(|e| self.ends[e].at);
        assert_eq!(end, Some(life), "part of message {id} at another life");
        assert_eq!(self.lives[line.from].node, peer, "part of another sender");
        assert_eq!(d.priority, record.plan.priority);
        assert_eq!(d.flow, record.plan.flow);
        assert_eq!(d.total, record.plan.total);
        assert!(d.args.is_empty() && !d.payload.is_empty());
        let (from, to) = (d.offset, d.offset + d.payload.len() as u64);
        assert!(to <= d.total, "part beyond the end of message {id}");
        content::verify(id, from, d.payload);
        let at = record.got.partition_point(|&(start, _)| start < from);
        assert!(
            at == 0 || record.got[at - 1].1 <= from,
            "bytes of message {id} came twice"
        );
        assert!(
            record.got.get(at).is_none_or(|&(start, _)| to <= start),
            "bytes of message {id} came twice"
        );
        record.got.insert(at, (from, to));
        if at + 1 < record.got.len() && record.got[at + 1].0 == to {
            record.got[at].1 = record.got.remove(at + 1).1;
        }
        if at > 0 && record.got[at - 1].1 == from {
            record.got[at - 1].1 = record.got.remove(at).1;
        }
        let whole = record.got == [(0, d.total)];
        assert_eq!(d.last, whole, "end of message {id}: {:?}", record.got);
        if whole {
            record.progress = Progress::Delivered;
            self.delivered += 1;
        }
        id
    }

    /// The sender was told that a message was refused.
    pub fn told_refused(&mut self, life: LifeId, peer: usize, key: FlowKey, number: u32) {
        let Some(&line) = self.lives[life].lines.get(&peer) else {
            panic!("a refusal from node {peer}, to which nothing was sent");
        };
        let line = &self.lines[line];
        let place = number.wrapping_sub(line.first_message) as usize;
        let Some(&id) = line.flows.get(&key).and_then(|f| f.get(place)) else {
            panic!("refusal of a message that was never sent: {key:?} {number}");
        };
        let record = &mut self.messages[id];
        assert_eq!(
            record.progress,
            Progress::Refused,
            "message {id} was not refused"
        );
        assert!(!record.refusal_told, "refusal of message {id} told twice");
        record.refusal_told = true;
    }

    /// The protocol reads a long message's bytes.
    pub fn read(&self, life: LifeId, id: MessageId, offset: u64, into: &mut [u8]) {
        // Read while it is being accepted: not on record yet.
        if let Some(record) = self.messages.get(id) {
            assert_eq!(self.lines[record.line].from, life, "source of another life");
            assert!(
                record.released.is_none(),
                "message {id} read after its release"
            );
            assert!(
                offset + into.len() as u64 <= record.plan.total,
                "read beyond the end"
            );
        }
        content::fill(id, offset, into);
    }

    /// A long message's memory came back.
    pub fn released(&mut self, id: MessageId, outcome: Outcome) {
        let record = &mut self.messages[id];
        assert!(record.released.is_none(), "message {id} released twice");
        let release = record.plan.long;
        assert!(release.is_some(), "message {id} had no memory to release");
        record.released = Some(outcome);
    }

    /// Whether nothing more is promised about a message's arrival.
    fn excused(&self, line: &SentDirection) -> bool {
        let sender = &self.lives[line.from];
        if line.ended || line.abandoned || sender.died_at.is_some() || sender.closed {
            return true;
        }
        let gone = |life: &Life| life.died_at.is_some() || life.closed;
        match line.end {
            Some(end) => gone(&self.lives[self.ends[end].at]),
            // Acknowledged but held by a receiver that died since.
            None => self.lives.iter().any(|life| {
                life.node == line.to_node
                    && (life.closed || life.died_at.is_some_and(|at| at >= line.opened_at))
            }),
        }
    }

    /// Messages that have neither come through nor been given up, of one
    /// priority or both.
    pub fn outstanding(&self, priority: Option<Priority>) -> impl Iterator<Item = MessageId> {
        self.messages
            .iter()
            .enumerate()
            .filter(move |(_, m)| priority.is_none_or(|p| m.plan.priority == p))
            .filter(|(_, m)| {
                let settled = match m.progress {
                    Progress::Delivered => true,
                    Progress::Refused => m.refusal_told,
                    Progress::Sent | Progress::Begun => false,
                };
                let memory_back = m.plan.long.is_none() || m.released.is_some();
                let line = &self.lines[m.line];
                // A dead or closed sender's callbacks are gone with it; a living one
                // gets its memory back whatever became of the peer.
                let sender = &self.lives[line.from];
                let gone = sender.died_at.is_some() || sender.closed;
                !(settled || self.excused(line)) || !(memory_back || gone)
            })
            .map(|(id, _)| id)
    }

    /// A message in words.
    #[must_use]
    pub fn describe(&self, id: MessageId) -> String {
        let m = &self.messages[id];
        let line = &self.lines[m.line];
        format!(
            "message {id}: node {} (life {}) > node {} (life {:?}), {:?} flow {} number {}, {} bytes, {} args, {:?}, got {:?}, long {:?}, released {:?}, refusal told {}",
            self.lives[line.from].node,
            line.from,
            line.to_node,
            line.end.map(|e| self.ends[e].at),
            m.plan.priority,
            m.plan.flow,
            self.number(id),
            m.plan.total,
            m.plan.args.len(),
            m.progress,
            m.got,
            m.plan.long,
            m.released,
            m.refusal_told,
        )
    }

    fn number(&self, id: MessageId) -> u32 {
        let m = &self.messages[id];
        let line = &self.lines[m.line];
        let flow = &line.flows[&(m.plan.priority.index(), m.plan.flow)];
        let place = flow.binary_search(&id).unwrap_or(0);
        line.first_message.wrapping_add(place as u32)
    }

    /// What two that know each other count of what the first sends, which has
    /// cut so many chunks: never more is granted than is allowed ahead of what
    /// was taken, nor more taken than was sent. `whole`: all that was sent has
    /// been taken, so that all credit must be back.
    pub fn credit(from: &Credit, to: &Credit, cut: u64, whole: bool) {
        for p in 0..2 {
            let beyond = |a: u32, b: u32| i64::from(a.wrapping_sub(b) as i32);
            let more = beyond(to.taken[p], from.sent[p]);
            assert!(
                more <= cut as i64,
                "{more} chunks of priority {p} were taken that were never sent, {cut} were cut"
            );
            assert!(
                beyond(from.allowed[p], to.taken[p]) <= i64::from(to.ahead),
                "more credit than is allowed ahead of what was taken: {from:?} {to:?}"
            );
            assert!(
                !whole || more >= 0,
                "{} chunks of credit of priority {p} are lost",
                -more
            );
        }
    }

    /// Messages accepted so far.
    #[must_use]
    pub fn accepted_count(&self) -> usize {
        self.messages.len()
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
