//! The end of a run: all peers are dead, or the endpoint is closed.

use portolan_exchange::{OpError, Selector, Statistics};

use super::Run;

/// Tries until nobody reads or writes memory of ours any more.
const TRIES: usize = 8;

impl Run<'_> {
    pub(super) fn end(mut self) {
        let closes = self.window.is_multiple_of(2);
        self.carrier.room = usize::MAX;
        if closes {
            // Nobody writes there any more.
            self.carrier.published.clear();
            self.exchange.end_all();
            // Registered as often as it was, a region is now one.
            self.regions.sort_by_key(|(id, _)| id.0);
            self.regions.dedup();
        } else {
            for rank in [1, 2] {
                self.die(rank);
            }
            for _ in 0..TRIES {
                self.exchange.resume();
                self.work();
            }
            assert!(!self.exchange.has_backlog());
            assert!(self.carrier.published.is_empty());
        }
        for op in std::mem::take(&mut self.carrier.lent) {
            self.exchange.released(op);
        }
        self.poll_inline(true);
        if !closes {
            self.discard_all();
            self.work();
        }
        // From anybody, or from ourselves: nobody sends it anything.
        for id in std::mem::take(&mut self.forgotten) {
            self.exchange.cancel(id);
            assert_eq!(self.exchange.is_done(id), None);
        }
        for op in std::mem::take(&mut self.ops) {
            self.exchange.cancel(op.id);
            let (done, memory) = self.exchange.take(op.id).expect("it has ended");
            let closed = done.result == Err(OpError::Closed);
            assert!(closes || self.refuses || !closed, "{done:?}");
            self.check(&done, memory);
        }
        while let Some((id, number)) = self.regions.pop() {
            let back = self.exchange.deregister(id).expect("nobody uses it");
            self.came_back(number, back);
        }
        if !closes {
            assert_eq!(self.exchange.statistics(), Statistics::default());
        }
    }

    /// Messages that are here whole, of the dead and of ourselves.
    fn discard_all(&mut self) {
        for id in std::mem::take(&mut self.claimed) {
            self.discard(id);
        }
        let any = Selector::any(0).ignoring(u64::MAX);
        while let Some((id, _)) = self.exchange.claim(&any) {
            self.discard(id);
        }
    }
}
