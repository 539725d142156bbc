//! Handover: an endpoint, or a space, that closes tells others for whom it still holds
//! messages, and they pull these before a receive asks for them.

use std::collections::BTreeMap;

use portolan_proto::PeerId;
use portolan_wire::Priority;

use super::CoreState;
use super::collective::CLOSING;
use crate::matched::{FLOW_REPLIES, Onward};
use crate::values::{SPACES, SpaceId};

impl CoreState {
    /// Announces that this endpoint, or a space of it, closes: to ranks for which it holds
    /// messages, and to those in `stopped`, which have stopped flows of ours. What others offer
    /// is refused.
    pub(crate) fn say_closing(
        &mut self,
        on: &mut Onward<'_>,
        of: Option<SpaceId>,
        stopped: impl Iterator<Item = u32>,
    ) {
        let mut told: BTreeMap<u32, u16> = stopped.map(|rank| (rank, 0)).collect();
        let all = (0..SPACES).map(SpaceId::at);
        for space in all.filter(|id| of.is_none_or(|of| of == *id)) {
            let Some(part) = on.matched.at(space) else {
                continue;
            };
            part.exchange.refuse_offers();
            for rank in part.exchange.holds_for() {
                *told.entry(rank).or_default() |= space.bit();
            }
            self.work(on, space);
        }
        let (priority, all) = (Priority::Reply, u64::from(of.is_none()));
        for (rank, spaces) in told {
            let args = [spaces.into(), all];
            self.say(
                &mut on.out,
                rank,
                CLOSING,
                FLOW_REPLIES,
                priority,
                &args,
                Vec::new(),
            );
        }
    }

    /// Handles the announcement of a rank that closes, or whose spaces do. `spaces`: where it
    /// holds messages, a bit for each, also if not open here yet. `all`: its endpoint closes.
    pub(super) fn peer_closes(&mut self, on: &mut Onward<'_>, rank: u32, spaces: u64, all: bool) {
        let stranger = self.standalone()
            && on.out.net().is_ok_and(|net| {
                let view = net.tables.view();
                view.is_stranger(PeerId(rank - 1))
            });
        let each = (0..SPACES).map(SpaceId::at);
        for space in each.filter(|id| spaces & u64::from(id.bit()) != 0) {
            // A stranger does not make us allocate a space that no program has opened.
            if !stranger {
                on.matched.open(&self.settings, &self.lanes, space);
            }
            if let Some(part) = on.matched.at(space) {
                part.exchange.peer_closes(rank, stranger);
            }
            self.work(on, space);
        }
        if all {
            let room = self.settings.exchange.late_share();
            (self.aside).note_closing(rank, if stranger { 0 } else { room });
        }
        self.note_freed();
    }

    /// Whether requests of a rank are left unanswered: this endpoint has been closing for long,
    /// and a rank that goes on asking would delay that. A rank that closes too asks no more.
    pub(super) fn is_leaving(&self, from: u32) -> bool {
        self.leaving && !self.aside.is_closing(from)
    }
}
