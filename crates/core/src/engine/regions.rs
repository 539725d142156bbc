//! Memory that others may access: registered, shown to the processes of this host, taken
//! back.

use portolan_exchange::{Admission, DeregisterRefused, RegionId, RegisterRefused};

use super::Engine;
use crate::environment::{Clock, Network};
use crate::matched::{Extent, Part, Released, Scatter};
use crate::values::{SPACES, SpaceId};

impl<N: Network, C: Clock> Engine<N, C> {
    /// Registers memory, and shows it to the others of this host.
    pub fn register_region(
        &mut self,
        space: SpaceId,
        memory: Scatter,
        key: Option<u64>,
        admission: Admission,
    ) -> Result<RegionId, (RegisterRefused, Scatter)> {
        let mut memory = memory;
        loop {
            match self.exchange(space).register(memory, key, admission) {
                Ok(id) => {
                    self.show_region(space, id);
                    return Ok(id);
                }
                Err((RegisterRefused::Full, back)) if self.make_place(space) => memory = back,
                Err(error) => return Err(error),
            }
        }
    }

    /// Registers memory of a region once more.
    pub fn register_again(
        &mut self,
        space: SpaceId,
        of: RegionId,
        start: u64,
        bytes: u64,
        key: Option<u64>,
        admission: Admission,
    ) -> Result<RegionId, RegisterRefused> {
        let id = loop {
            match self
                .exchange(space)
                .register_again(of, start, bytes, key, admission)
            {
                Ok(id) => break id,
                Err(RegisterRefused::Full) if self.make_place(space) => {}
                Err(error) => return Err(error),
            }
        };
        if self.matched.of(space).cache.count(id) {
            // It counts itself how often the program has registered it. Nothing comes
            // back: this was not the only time.
            self.exchange(space).deregister(id).ok();
        }
        self.show_region(space, id);
        Ok(id)
    }

    /// Closes a region that is only kept to be found. False: there is none.
    fn make_place(&mut self, space: SpaceId) -> bool {
        let made = self.matched.of(space).cache.evict();
        self.close_leaving(space);
        made
    }

    /// Shows a region that was registered.
    pub fn show_region(&mut self, space: SpaceId, id: RegionId) {
        if let Some(shm) = &mut self.shm {
            let (exchange, published) = self.matched.of(space).regions();
            let before = published.terms();
            published.publish(&mut shm.link, space, exchange, id);
            if published.terms() != before {
                self.matched.say(&mut shm.link);
            }
        }
    }

    /// Takes a region that stays open out of the table: others reach it by messages from now
    /// on. False: somebody still copies there; try again.
    pub fn hide_region(&mut self, space: SpaceId, id: RegionId) -> bool {
        let Some(shm) = &mut self.shm else {
            return true;
        };
        self.matched.of(space).published.send_elsewhere_for(id);
        self.matched.say(&mut shm.link);
        let published = &mut self.matched.of(space).published;
        let hidden = published.withdraw(&mut shm.link, id);
        published.send_elsewhere_for(id);
        hidden
    }

    /// Takes one registration back, if nobody accesses the memory.
    pub fn deregister_region(
        &mut self,
        space: SpaceId,
        id: RegionId,
    ) -> Result<Option<Scatter>, DeregisterRefused> {
        let (exchange, published) = self.matched.of(space).regions();
        let last = exchange.opened(id).is_none_or(|opened| opened.count == 1);
        let before = published.terms();
        // Whoever comes by messages is told as whoever looks in the table is.
        exchange.shut(id);
        let withdrawn = match &mut self.shm {
            _ if !last => true,
            Some(shm) => published.withdraw(&mut shm.link, id),
            // Closed while somebody was still copying: nobody tells when that
            // ends, so the memory never comes back.
            None => !published.entries.contains_key(&id),
        };
        if !withdrawn {
            return Err(DeregisterRefused::InUse(1));
        }
        let ended = exchange.deregister(id);
        let changed = published.terms() != before;
        if let Some(shm) = self.shm.as_mut().filter(|_| changed) {
            self.matched.say(&mut shm.link);
        }
        ended
    }

    /// Registers lent memory, or finds that it is registered.
    pub fn register_cached(
        &mut self,
        space: SpaceId,
        memory: Scatter,
        extent: Extent,
    ) -> Result<RegionId, RegisterRefused> {
        self.close_leaving(space);
        if self.matched.of(space).published.forbidden {
            return Err(RegisterRefused::Forbidden);
        }
        if let Some(id) = self.matched.of(space).cache.find(&extent) {
            return Ok(id);
        }
        let registered = self.register_region(space, memory, None, extent.admission);
        let id = registered.map_err(|(error, _)| error)?;
        self.matched.of(space).cache.insert(extent, id);
        Ok(id)
    }

    /// The program ends a registration, which is perhaps kept.
    pub fn release_cached(&mut self, space: SpaceId, id: RegionId) -> Released {
        let released = self.matched.of(space).cache.release(id);
        self.close_leaving(space);
        released
    }

    /// Closes what the cache has no place for any more, but where somebody is in it.
    fn close_leaving(&mut self, space: SpaceId) {
        if !self.matched.of(space).cache.has_leaving() {
            return;
        }
        let mut cache = std::mem::take(&mut self.matched.of(space).cache);
        cache.close_leaving(|id| {
            let closed = self.deregister_region(space, id);
            !matches!(closed, Err(DeregisterRefused::InUse(_)))
        });
        self.matched.of(space).cache = cache;
    }

    /// Forgets memory that the cache has found so far.
    pub fn forget_memory(&mut self, space: SpaceId, start: usize, bytes: usize) {
        self.matched.of(space).cache.forget(start, bytes);
    }

    /// Whether nobody is in memory any more that was forgotten.
    pub fn has_forgotten(&mut self, space: SpaceId, start: usize, bytes: usize) -> bool {
        self.close_leaving(space);
        !self.matched.of(space).cache.is_leaving(start, bytes)
    }

    /// Nobody may reach into this rank's memory any more, of any space.
    pub fn forbid_one_sided(&mut self) {
        for part in self.matched.all_mut() {
            part.forbid();
        }
        if let Some(shm) = &mut self.shm {
            self.matched.say(&mut shm.link);
        }
    }

    /// Before the lanes close, or when a space does: who copies now is waited for, who comes
    /// learns by messages that we close. False: somebody still copies; try again.
    pub fn withdraw_regions(&mut self, of: Option<SpaceId>) -> bool {
        let Some(shm) = &mut self.shm else {
            return true;
        };
        let all = (0..SPACES).map(SpaceId::at);
        let closing = || all.clone().filter(|id| of.is_none_or(|of| of == *id));
        for id in closing() {
            if let Some(part) = self.matched.part(id) {
                part.published.send_elsewhere();
            }
        }
        self.matched.say(&mut shm.link);
        let mut done = true;
        for id in closing() {
            if let Some(part) = self.matched.part(id) {
                done &= part.published.withdraw_all(&mut shm.link);
            }
        }
        done
    }

    /// After [`Core::close_space`]: whether nothing of the space is under way any more.
    pub fn space_has_left(&mut self, space: SpaceId) -> bool {
        let withdrawn = self.withdraw_regions(Some(space));
        let left = (self.matched.part(space)).is_none_or(|it| it.exchange.is_left());
        withdrawn && left && self.core.has_sent_all(space)
    }

    /// Whether others may still write to memory that the program has back once we, or the
    /// space, are closed.
    pub fn publishes_receives(&mut self, of: Option<SpaceId>) -> bool {
        let publishes = |part: &Part| part.published.publishes_receives();
        match of {
            None => self.matched.all().any(publishes),
            Some(space) => self.matched.part(space).is_some_and(|part| publishes(part)),
        }
    }
}
