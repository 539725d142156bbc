//! What the protocol asks of the engine while packets are taken and sent.

use portolan_proto::{
    DeathReason, Delivery, Endpoint as View, Host, Outcome, PeerEvent, PeerId, Reroute, SourceId,
    Verdict,
};
use portolan_wire::{MessageNo, Priority};

use super::Suites;
use super::failing::Failing;
use crate::clock::Clock;
use crate::core::{Arrival, Core, Took};
use crate::error::Death;
use crate::matched::Matched;
use crate::message::Event;
use crate::out::{NetOut, Out};
use crate::ports::Meta;
use crate::shm::ShmLane;

/// What the protocol asks of the engine.
pub(super) struct NetHost<'a> {
    pub core: &'a mut Core,
    pub matched: &'a mut Matched,
    pub ranks: &'a [u32],
    pub now: u64,
    pub shm: Option<&'a mut ShmLane>,
    pub clock: &'a dyn Clock,
    /// How a peer ended that is told to have.
    pub told: Death,
    /// What the kernel refuses.
    pub failing: &'a Failing,
    /// Takes those that have died.
    pub gone: &'a mut Vec<PeerId>,
    /// Takes those whose way is to be changed, where the link can do that.
    pub rerouted: Option<&'a mut Vec<(PeerId, Reroute)>>,
}

/// From this length on a message is long, bytes: a pause of the helper thread at its
/// end is little beside what it takes on its way.
const LONG: u64 = 32 << 10;

impl NetHost<'_> {
    fn rank(&self, peer: PeerId) -> u32 {
        self.ranks[peer.0 as usize]
    }
}

impl Host<Suites> for NetHost<'_> {
    #[inline]
    fn deliver(&mut self, endpoint: &mut View<'_, Suites>, d: Delivery<'_>) -> Verdict {
        let mut out = Out {
            net: Some(NetOut::Packet(endpoint.again(), self.now)),
            shm: self.shm.as_deref_mut().map(ShmLane::sender),
            clock: self.clock,
        };
        if d.cookie != 0 {
            let fill = |into: &mut [u8]| into.copy_from_slice(d.payload);
            let bytes = d.payload.len();
            (self.core).place(self.matched, d.cookie, d.offset, bytes, fill);
            self.core.long_parts += u64::from(d.total >= LONG);
            if d.last {
                self.core.finish(self.matched, &mut out, d.cookie);
            }
            return Verdict::Take(0);
        }
        let arrival = Arrival {
            meta: Meta {
                from: self.ranks[d.peer.0 as usize],
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
        match self.core.arrive(self.matched, &mut out, &arrival) {
            Took::Whole => Verdict::Take(0),
            Took::Part(cookie) => Verdict::Take(cookie),
            Took::NotNow => Verdict::NotNow,
            Took::Refused => Verdict::Refuse,
        }
    }

    fn read(&mut self, source: SourceId, offset: u64, into: &mut [u8]) {
        self.core.ops.read(source, offset, into);
    }

    fn released(&mut self, source: SourceId, outcome: Outcome) {
        self.core.released(source, outcome);
    }

    fn refused(&mut self, peer: PeerId, priority: Priority, flow: u16, message: MessageNo) {
        let to = self.rank(peer);
        self.core.refused(to, priority, flow, message);
    }

    fn peer_event(&mut self, peer: PeerId, event: PeerEvent) {
        let rank = self.rank(peer);
        match event {
            PeerEvent::Up => log::debug!("rank {}: rank {rank} is up", self.core.rank),
            PeerEvent::Waiting => {
                let failure = self.failing.of(peer);
                log::info!(
                    "rank {}: rank {rank} does not answer ({failure:?})",
                    self.core.rank
                );
                self.core.emit(Event::PeerSilent { rank, failure });
            }
            PeerEvent::Dead(why) => {
                self.gone.push(peer);
                let silent = matches!(why, DeathReason::Silent | DeathReason::NoAnswer);
                let failure = self.failing.of(peer).filter(|_| silent);
                let why = failure.map_or(death(why, self.told), Death::CutOff);
                self.core.mark_dead(rank, why);
            }
        }
    }

    fn awaits(&mut self, peer: PeerId) -> bool {
        let rank = self.rank(peer);
        self.matched.exchange.awaits(rank)
    }

    fn reroute(&mut self, peer: PeerId, path: u8, how: Reroute) -> bool {
        // Sockets, as further networks have, cannot change their port.
        let rank = self.rank(peer);
        let Some(rerouted) = self.rerouted.as_deref_mut().filter(|_| path == 0) else {
            return false;
        };
        log::info!("the way to rank {rank} stays congested: {how:?}");
        rerouted.push((peer, how));
        true
    }
}

/// `told`: how those ended of whom we were told.
const fn death(why: DeathReason, told: Death) -> Death {
    match why {
        DeathReason::Closed => Death::Closed,
        DeathReason::Silent => Death::Silent,
        DeathReason::NoAnswer => Death::NoAnswer,
        DeathReason::Restarted => Death::Restarted,
        DeathReason::Told => told,
    }
}
