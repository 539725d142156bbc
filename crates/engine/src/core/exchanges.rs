//! Passes news to the exchanges, and executes their tasks by `tasks`.

use portolan_exchange::{self as exchange, Did, Incoming, IncomingOutcome, Kind, Stream};

use super::{Arrival, ArrivalOutcome, CoreState, WORK};
use crate::matched::{Matched, Onward, Part, SPACE_SHIFT, arrives};
use crate::values::{SPACES, SpaceId};
use crate::waiting::News;

impl CoreState {
    /// Executes the tasks of a space's exchange; returns the number that found room.
    #[inline]
    pub(crate) fn work(&mut self, on: &mut Onward<'_>, space: SpaceId) -> usize {
        match on.matched.part(space) {
            Some(part) if !part.exchange.is_quiet() => self.do_tasks(on, space),
            _ => 0,
        }
    }

    fn do_tasks(&mut self, on: &mut Onward<'_>, space: SpaceId) -> usize {
        let (mut done, mut space) = (0, space);
        loop {
            let Some(Part {
                exchange,
                published,
                scratch,
                ..
            }) = on.matched.at(space)
            else {
                return done;
            };
            while let Some(task) = exchange.poll_task() {
                let did = self.act(published, scratch, &mut on.out, space, task);
                done += usize::from(did != Did::NoRoom);
                exchange.did(did);
            }
            while let Some(rank) = exchange.poll_awaited() {
                if let (Some(peer), Ok(net)) = (self.lanes.peer(rank), on.out.net()) {
                    net.await_peer(peer);
                }
            }
            if exchange.take_freed() {
                self.note_freed();
            }
            if exchange.has_unready() || exchange.has_backlog() {
                self.note_work();
            }
            let Some(next) = exchange.next_turn() else {
                return done;
            };
            space = SpaceId::at(next.into());
            if let Some(part) = on.matched.at(space) {
                part.exchange.take_turn();
            }
        }
    }

    /// Handles a message of another rank's exchange.
    #[inline]
    pub(crate) fn arrive_matched(
        &mut self,
        on: &mut Onward<'_>,
        a: &Arrival<'_>,
    ) -> ArrivalOutcome {
        let Some((kind, space)) = arrives(&a.meta) else {
            return ArrivalOutcome::Refused;
        };
        if kind.stream() == Stream::Requests && self.is_leaving(a.meta.from) {
            return self.not_now();
        }
        if self.has_news() {
            self.tell_news(on.matched);
        }
        let Some(part) = on.matched.at(space) else {
            // A space that is not open has offered nothing that could be pulled.
            return match kind.stream() {
                Stream::Pulls => ArrivalOutcome::Refused,
                Stream::Requests | Stream::Replies => self.not_now(),
            };
        };
        // Before a space opens, messages of closing peers are taken, but no accesses.
        if kind.is_one_sided() && !self.is_open(space) {
            return self.not_now();
        }
        let message = Incoming {
            from: a.meta.from,
            kind,
            args: a.args,
            total: a.total,
            payload: a.payload,
        };
        let took = part.exchange.arrive(&message);
        self.work(on, space);
        let took = match took {
            IncomingOutcome::NotNow => return self.not_now(),
            IncomingOutcome::Refused => return ArrivalOutcome::Refused,
            IncomingOutcome::Whole => ArrivalOutcome::Whole,
            IncomingOutcome::Part(part) => {
                ArrivalOutcome::Part(part | (space.index() as u64) << SPACE_SHIFT)
            }
        };
        if matches!(kind, Kind::Eager | Kind::Offer) {
            self.count_arrival(a.meta.flow, a.total as usize);
        }
        self.accesses += u64::from(kind.is_one_sided());
        took
    }

    /// Completes a message of several parts, all of which have arrived.
    pub(crate) fn part_arrived(&mut self, on: &mut Onward<'_>, part: u64) {
        let (space, part) = Matched::number(part);
        if let Some(it) = on.matched.at(space) {
            it.exchange.arrived(part);
            self.work(on, space);
        }
    }

    /// Whether there is news for the exchanges.
    #[inline(always)]
    pub(crate) const fn has_news(&self) -> bool {
        !self.ops.news.is_empty()
    }

    /// Notes that there may be news for the exchanges.
    pub(crate) const fn note_news(&mut self) {
        if self.has_news() {
            self.note_work();
        }
    }

    /// Passes news to the exchanges; returns how much. Resulting tasks of spaces other than the
    /// program's are executed by [`CoreState::run_matched`].
    pub(crate) fn tell_news(&mut self, matched: &mut Matched) -> usize {
        let told = self.ops.news.len();
        for news in self.ops.news.drain(..) {
            match news {
                News::Released(space, op) => {
                    if space != SpaceId::PROGRAM {
                        self.unusual |= WORK;
                    }
                    if let Some(part) = matched.at(space) {
                        part.exchange.released(op);
                    }
                }
                News::Sent(space, op, number, result) => {
                    if let Some(part) = matched.part(space) {
                        part.exchange.end_message(op, number.0.into(), result);
                    }
                }
                News::Port(port, open) => {
                    if port.space != SpaceId::PROGRAM {
                        self.unusual |= WORK;
                    }
                    if let Some(part) = matched.at(port.space) {
                        part.exchange.set_port(port.number.into(), open);
                    }
                }
                News::Died(rank) => {
                    self.unusual |= WORK;
                    for space in (0..SPACES).map(SpaceId::at) {
                        if let Some(part) = matched.at(space) {
                            part.exchange.peer_died(rank);
                        }
                    }
                }
            }
        }
        told
    }

    /// Passes news to the exchanges, and retries what found no room. Returns how much moved.
    pub(crate) fn run_matched(&mut self, on: &mut Onward<'_>) -> usize {
        let told = self.tell_news(on.matched);
        let mut moved = told;
        for space in (0..SPACES).map(SpaceId::at) {
            let Some(part) = on.matched.part(space) else {
                continue;
            };
            if told > 0 || part.exchange.has_backlog() {
                if let Some(part) = on.matched.at(space) {
                    part.exchange.resume();
                }
                moved += self.work(on, space);
            }
        }
        moved
    }

    /// Switches a rank to shared memory, also what was begun for the network.
    pub(crate) fn meet_matched(on: &mut Onward<'_>, rank: u32) {
        for space in (0..SPACES).map(SpaceId::at) {
            if let Some(part) = on.matched.part(space) {
                part.exchange.set_lane(rank, exchange::Lane::Host);
            }
        }
    }

    /// Tells the exchanges that a dead rank is back, and reached by the network.
    pub(crate) fn welcome_matched(&mut self, on: &mut Onward<'_>, rank: u32) {
        self.run_matched(on);
        for space in (0..SPACES).map(SpaceId::at) {
            if let Some(part) = on.matched.at(space) {
                part.exchange.peer_back(rank);
                part.exchange.set_lane(rank, exchange::Lane::Network);
                self.work(on, space);
            }
        }
    }
}
