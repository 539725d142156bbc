//! What a simulated program does with what the protocol hands out, and how it
//! sends.

use portolan_proto::{
    DeathReason, Delivery, Endpoint, Event, Heard, Message, NetAddress, Outcome, PeerEvent, PeerId,
    Release, Rx, SendError, SourceId, Sources, Spare, Verdict,
};
use portolan_wire::{MessageNo, Priority};

use super::{App, Want, World};
use crate::content;
use crate::ledger::{MessageId, Planned};
use crate::net::Arrival;
use crate::rng::mix;
use crate::suite::SimSeal;

/// What came of a try to send.
pub(super) enum Sent {
    Done,
    Wait,
    Gone,
}

/// The world and an application, for the length of one call.
pub(super) struct Hands<'a> {
    pub world: &'a mut World,
    pub app: &'a mut App,
}

impl Hands<'_> {
    /// Sends a message, and notes it.
    pub fn send(&mut self, e: &mut Endpoint<'_, SimSeal>, want: &Want) -> Sent {
        let Some(peer) = self.app.peer_of[want.to] else {
            return Sent::Gone;
        };
        let now = self.world.now;
        let id = self.world.ledger.next_id();
        let life = self.app.life;
        let mut total = want.total;
        let nameless = want.args == 0 && total < content::TAG_BYTES_MIN;
        if nameless && !self.world.ledger.is_met(life, want.to) {
            total = content::TAG_BYTES_MIN;
        }
        let args: Vec<u64> = (0..want.args).map(|i| content::arg(id, i)).collect();
        let port = mix(id as u64) as u16;
        let mut long = want.long;
        if total > e.inline_max(peer, args.len()) as u64 && long.is_none() {
            long = Some(Release::Acknowledged);
        }
        let mut message = Message {
            priority: want.priority,
            flow: want.flow,
            port,
            args: &args,
            payload: &[],
        };
        let mut payload = Vec::new();
        let sent = match long {
            Some(release) => {
                let source = SourceId(id as u64);
                e.send_long(now, peer, &message, total, source, release)
            }
            None => {
                payload.resize(total as usize, 0);
                content::fill(id, 0, &mut payload);
                message.payload = &payload;
                e.send(now, peer, &message)
            }
        };
        match sent {
            Ok(MessageNo(number)) => {
                let plan = Planned {
                    priority: want.priority,
                    flow: want.flow,
                    port,
                    args,
                    total,
                    long,
                };
                let first = self.app.config.first_message;
                let ledger = &mut self.world.ledger;
                ledger.accepted(now, life, want.to, first, number, plan);
                self.world.trace.note(now, self.app.node, || {
                    format!(
                        "send #{id} to {} {:?} flow {} number {number}, {total} bytes{}",
                        want.to,
                        want.priority,
                        want.flow,
                        if long.is_some() { ", long" } else { "" }
                    )
                });
                Sent::Done
            }
            Err(SendError::NoCredit) => Sent::Wait,
            Err(SendError::PeerDead) => Sent::Gone,
            // The other side's flows are known only once it is up.
            Err(SendError::BadFlow) if want.flow > 0 => {
                let first = Want {
                    flow: 0,
                    ..want.clone()
                };
                self.send(e, &first)
            }
            Err(error) => panic!("send of {want:?} from node {}: {error:?}", self.app.node),
        }
    }

    fn verdict(&mut self, id: MessageId, d: &Delivery<'_>) -> Verdict {
        let app = &mut *self.app;
        let refuse = mix(id as u64 ^ 0x5ef5) % 1_000_000 < u64::from(app.refuse_ppm);
        if refuse && d.priority == Priority::Request {
            return Verdict::Refuse;
        }
        if app.blocked && d.priority == Priority::Request {
            return Verdict::NotNow;
        }
        if !self.world.calm && app.rng.ppm(app.not_now_ppm) {
            let at = self.world.now + app.rng.scale(1_000, 5_000_000);
            app.resume_at = Some(app.resume_at.map_or(at, |t| t.min(at)));
            return Verdict::NotNow;
        }
        Verdict::Take(id as u64)
    }

    /// Stops a flow, perhaps, for a while.
    fn stop(&mut self, e: &mut Endpoint<'_, SimSeal>, d: &Delivery<'_>) {
        let (now, app) = (self.world.now, &mut *self.app);
        let flow = (d.peer, d.priority, d.flow);
        let known = |(_, p, r, f): &(u64, PeerId, Priority, u16)| (*p, *r, *f) == flow;
        if self.world.calm || !app.stop_rng.ppm(app.stop_ppm) || app.stopped.iter().any(known) {
            return;
        }
        let until = now + app.stop_rng.scale(1_000, 20_000_000);
        app.stopped.push((until, d.peer, d.priority, d.flow));
        e.set_stopped(now, d.peer, d.priority, d.flow, true);
    }

    /// Lets flows go on whose time is over.
    pub(super) fn go_on(&mut self, e: &mut Endpoint<'_, SimSeal>) {
        let now = self.world.now;
        let over = |(until, ..): &mut (u64, PeerId, Priority, u16)| *until <= now;
        for (_, peer, priority, flow) in self.app.stopped.extract_if(.., over) {
            e.set_stopped(now, peer, priority, flow, false);
        }
    }

    fn answer(&mut self, e: &mut Endpoint<'_, SimSeal>, to: usize) {
        let app = &mut *self.app;
        if !app.rng.ppm(app.reply_ppm) {
            return;
        }
        let want = Want {
            to,
            priority: Priority::Reply,
            flow: app.rng.below(u64::from(app.config.flows)) as u16,
            total: app.rng.scale(1, 900),
            args: app.rng.index(4),
            long: None,
        };
        if matches!(self.send(e, &want), Sent::Wait) {
            self.app.waiting.push_back(want);
        }
    }
}

impl Sources for Hands<'_> {
    fn read(&self, source: SourceId, offset: u64, into: &mut [u8]) {
        let ledger = &self.world.ledger;
        ledger.read(self.app.life, source.0 as usize, offset, into);
    }
}

impl Hands<'_> {
    fn deliver(&mut self, e: &mut Endpoint<'_, SimSeal>, d: &Delivery<'_>) -> Verdict {
        self.app.delivered = true;
        let peer = self.app.node_of[d.peer.0 as usize];
        let life = self.app.life;
        let ledger = &mut self.world.ledger;
        let (id, verdict) = if d.offset > 0 {
            (ledger.part(life, peer, d), Verdict::Take(d.cookie))
        } else {
            let id = ledger.offered(life, peer, d);
            let verdict = self.verdict(id, d);
            self.world.ledger.decided(life, peer, id, d, verdict);
            self.stop(e, d);
            (id, verdict)
        };
        let now = self.world.now;
        self.world.trace.note(now, self.app.node, || {
            format!(
                "offered #{id} from {peer} {:?} flow {} number {}: {}..{} of {}: {verdict:?}",
                d.priority,
                d.flow,
                d.message.0,
                d.offset,
                d.offset + d.payload.len() as u64,
                d.total
            )
        });
        if d.last && d.priority == Priority::Request && matches!(verdict, Verdict::Take(_)) {
            self.answer(e, peer);
        }
        verdict
    }

    /// Takes all that came of a packet, or of what was held.
    pub fn take(&mut self, e: &mut Endpoint<'_, SimSeal>, mut rx: Rx<'_>) {
        loop {
            let delivery = rx.next(e);
            self.hear(e);
            let Some(delivery) = delivery else { return };
            let verdict = self.deliver(e, &delivery);
            rx.answer(e, verdict);
        }
    }

    /// Takes a packet.
    pub fn packet(
        &mut self,
        e: &mut Endpoint<'_, SimSeal>,
        from: NetAddress,
        packet: &mut Arrival,
    ) -> Option<Heard> {
        let mut spare = Spare::default();
        let rx = e.handle_packet(
            self.world.now,
            from,
            packet.ce,
            &mut packet.bytes,
            &mut spare,
        );
        self.hear(e);
        let rx = rx?;
        let heard = rx.heard();
        self.take(e, rx);
        heard
    }

    /// Takes what is held and was not wanted before.
    pub fn resume(&mut self, e: &mut Endpoint<'_, SimSeal>) {
        let mut spare = Spare::default();
        let rx = e.resume(self.world.now, &mut spare);
        self.take(e, rx);
    }

    /// Does what is due.
    pub fn timeouts(&mut self, e: &mut Endpoint<'_, SimSeal>) {
        e.handle_timeouts(self.world.now, |_| false);
        self.hear(e);
        if e.is_resumable() {
            self.resume(e);
        }
    }

    /// Hears what has happened.
    pub fn hear(&mut self, e: &mut Endpoint<'_, SimSeal>) {
        while let Some(event) = e.poll_event() {
            match event {
                Event::Released(source, outcome) => self.released(source, outcome),
                Event::Refused {
                    peer,
                    priority,
                    flow,
                    message,
                } => self.refused(peer, priority, flow, message),
                Event::Peer(peer, event) => self.peer_event(peer, event),
                Event::OtherSuite { .. } => unreachable!("all have one"),
            }
        }
    }

    fn released(&mut self, source: SourceId, outcome: Outcome) {
        let (now, node) = (self.world.now, self.app.node);
        self.world
            .trace
            .note(now, node, || format!("released #{}: {outcome:?}", source.0));
        self.world.ledger.released(source.0 as usize, outcome);
    }

    fn refused(&mut self, peer: PeerId, priority: Priority, flow: u16, message: MessageNo) {
        let peer = self.app.node_of[peer.0 as usize];
        let key = (priority.index(), flow);
        let ledger = &mut self.world.ledger;
        ledger.told_refused(self.app.life, peer, key, message.0);
    }

    fn peer_event(&mut self, peer: PeerId, event: PeerEvent) {
        if matches!(event, PeerEvent::Dead(_)) {
            self.app.gone.push(peer);
        }
        let peer = self.app.node_of[peer.0 as usize];
        let (now, node) = (self.world.now, self.app.node);
        self.world
            .trace
            .note(now, node, || format!("peer {peer}: {event:?}"));
        let PeerEvent::Dead(reason) = event else {
            return;
        };
        let lost = self.world.lost_at[peer].is_some();
        let i_lost = self.world.lost_at[node].is_some();
        let fair = match reason {
            DeathReason::Silent | DeathReason::NoAnswer => {
                lost || i_lost || self.world.silence_possible
            }
            // Nor has it answered our own close.
            // Nobody removes a peer here.
            DeathReason::Removed => false,
            DeathReason::Closed => lost || i_lost,
            DeathReason::Restarted | DeathReason::Told => lost,
        };
        assert!(
            fair,
            "node {node} thinks that living node {peer} is dead: {reason:?}"
        );
        let closed = reason == DeathReason::Closed;
        self.world.ledger.peer_dead(self.app.life, peer, closed);
    }
}
