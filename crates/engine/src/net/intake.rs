//! Hands to the core what the protocol delivers and reports.

use portolan_proto::{
    DeathReason, Delivery, Endpoint as View, Event as Happened, PeerEvent, PeerId, Rx, Spare,
    Taken, Verdict,
};

use super::failing::Failing;
use crate::core::{Arrival, ArrivalOutcome, Core, Finding};
use crate::environment::Clock;
use crate::matched::{Matched, Onward};
use crate::outbound::{NetTx, Outbound, Suites};
use crate::shm::ShmLane;
use crate::values::{Death, Event, Meta};

/// The core, and what else handles what the protocol delivers.
pub(super) struct Intake<'a> {
    pub core: &'a mut Core,
    pub peers: &'a mut Peers,
    pub shm: Option<&'a mut ShmLane>,
    pub clock: &'a dyn Clock,
    /// Cause of death for peers that are reported dead from outside.
    pub told: Death,
}

/// State of the lane's peers, and what its link must still learn of them.
pub(super) struct Peers {
    /// Rank of each peer.
    pub ranks: Vec<u32>,
    /// What the kernel refuses.
    pub failing: Failing,
    /// Peers that have died: their connection numbers go with them.
    pub gone: Vec<PeerId>,
}

impl Peers {
    /// Makes an intake without shared memory, for peers whose end is not reported from outside.
    #[inline]
    pub fn intake<'a>(&'a mut self, core: &'a mut Core, clock: &'a dyn Clock) -> Intake<'a> {
        Intake {
            core,
            peers: self,
            shm: None,
            clock,
            told: Death::Ended,
        }
    }
}

/// Length from which a message is long, bytes: a pause of the helper thread at its end is short
/// compared with its time on the way.
const LONG: u64 = 32 << 10;

impl Intake<'_> {
    fn rank(&self, peer: PeerId) -> u32 {
        let known = self.peers.ranks.get(peer.0 as usize);
        // A peer that has just introduced itself was assigned no rank yet.
        known.map_or(peer.0 + 1, |rank| *rank)
    }

    /// Takes all deliveries of a packet, or of held chunks. Events before a part are handled
    /// before it.
    #[inline]
    pub fn take(&mut self, matched: &mut Matched, tx: &mut NetTx, rx: &mut Rx<'_>) {
        let mut view = tx.tables.view();
        loop {
            let delivery = rx.next(&mut view);
            self.hear(&mut view);
            let Some(delivery) = delivery else { return };
            let verdict = self.deliver(matched, tx, &delivery);
            view = tx.tables.view();
            rx.answer(&mut view, verdict);
        }
    }

    /// Takes what came of a packet that was foreseen: as [`Intake::take`], once the events before
    /// it are handled.
    #[inline]
    pub fn take_quick(&mut self, matched: &mut Matched, tx: &mut NetTx, taken: Taken<'_>) {
        match taken {
            Taken::Nothing => {}
            Taken::One(one) => {
                let verdict = self.deliver(matched, tx, one.delivery());
                match tx.tables.view().answer_one(one, verdict) {
                    None if !tx.tables.core().has_events() => {}
                    None => self.hear(&mut tx.tables.view()),
                    Some(mut rx) => self.take(matched, tx, &mut rx),
                }
            }
            Taken::Rest(mut rx) => self.take(matched, tx, &mut rx),
        }
    }

    /// Handles timeouts that are due.
    pub fn handle_timeouts(&mut self, matched: &mut Matched, tx: &mut NetTx, spare: &mut Spare) {
        let awaits = |peer| matched.awaits(self.rank(peer));
        let now = tx.now;
        let mut view = tx.tables.view();
        view.handle_timeouts(now, awaits);
        self.hear(&mut view);
        if view.is_resumable() {
            let mut rx = view.resume(now, spare);
            self.take(matched, tx, &mut rx);
        }
    }

    /// Handles events of the protocol.
    #[inline]
    pub fn hear(&mut self, view: &mut View<'_, Suites>) {
        while let Some(event) = view.poll_event() {
            self.note(event);
        }
    }

    #[cold]
    fn note(&mut self, event: Happened) {
        match event {
            Happened::Released(source, outcome) => self.core.released(source, outcome),
            Happened::Refused {
                peer,
                priority,
                flow,
                message,
            } => {
                let to = self.rank(peer);
                self.core.refused(to, priority, flow, message);
            }
            Happened::Peer(peer, event) => self.peer_event(peer, event),
            Happened::OtherSuite { peer, ours, theirs } => (self.core.tell)(format_args!(
                "portolan: {} seals its packets by {} and this process by {}: set `suite` to the \
                 same for both",
                self.core.named(self.rank(peer)),
                theirs.name(),
                ours.name(),
            )),
        }
    }

    #[inline]
    fn deliver(&mut self, matched: &mut Matched, tx: &mut NetTx, d: &Delivery<'_>) -> Verdict {
        let out = Outbound {
            net: Some(tx),
            shm: self.shm.as_deref_mut().map(ShmLane::sender),
            clock: self.clock,
        };
        let mut on = Onward { matched, out };
        if d.cookie != 0 {
            let fill = |into: &mut [u8]| into.copy_from_slice(d.payload);
            let bytes = d.payload.len();
            (self.core).place(on.matched, d.cookie, d.offset, bytes, fill);
            self.core.long_parts += u64::from(d.total >= LONG);
            if d.last {
                self.core.finish(&mut on, d.cookie);
            }
            return Verdict::Take(0);
        }
        let arrival = Arrival {
            meta: Meta {
                from: self.peers.ranks[d.peer.0 as usize],
                port: d.port,
                flow: d.flow,
                priority: d.priority,
                number: d.message,
                direct: true,
            },
            args: d.args,
            total: d.total,
            payload: d.payload,
        };
        match self.core.arrive(&mut on, &arrival) {
            ArrivalOutcome::Whole => Verdict::Take(0),
            ArrivalOutcome::Part(cookie) => Verdict::Take(cookie),
            ArrivalOutcome::NotNow => Verdict::NotNow,
            ArrivalOutcome::Refused => Verdict::Refuse,
        }
    }

    fn peer_event(&mut self, peer: PeerId, event: PeerEvent) {
        let rank = self.rank(peer);
        match event {
            PeerEvent::Come => self.core.find(Finding::Come(rank)),
            PeerEvent::Up => log::debug!("{} is up", self.core.named(rank)),
            PeerEvent::Waiting => {
                let failure = self.peers.failing.of(peer);
                log::info!("{} does not answer ({failure:?})", self.core.named(rank));
                self.core
                    .emit_to_all(Event::PeerSilent { rank, failure }, 0);
            }
            PeerEvent::Dead(why) => {
                self.peers.gone.push(peer);
                let silent = matches!(why, DeathReason::Silent | DeathReason::NoAnswer);
                let failure = self.peers.failing.of(peer).filter(|_| silent);
                let why = failure.map_or(death(why, self.told), Death::CutOff);
                if why == Death::Nobody {
                    // The program itself has removed the peer.
                    self.core.set_dead(rank, why);
                } else {
                    self.core.mark_dead(rank, why);
                }
                if self.core.standalone() {
                    self.core.find(Finding::Departed(rank));
                }
            }
        }
    }
}

/// Returns the cause of death; `told`: for those reported from outside.
const fn death(why: DeathReason, told: Death) -> Death {
    match why {
        DeathReason::Closed => Death::Closed,
        DeathReason::Silent => Death::Silent,
        DeathReason::NoAnswer => Death::NoAnswer,
        DeathReason::Restarted => Death::Restarted,
        DeathReason::Told => told,
        DeathReason::Removed => Death::Removed,
    }
}
