//! Regions: registered, published to the processes of this host, withdrawn.

use portolan_exchange::{Admission, DeregisterRefused, RegionId, RegisterRefused};

use super::Engine;
use crate::environment::{Clock, Network};
use crate::matched::{Extent, Part, Released, Scatter};
use crate::values::{SPACES, SpaceId};

impl<N: Network, C: Clock> Engine<N, C> {
    /// Registers memory, and publishes it to the other processes of this host.
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
        if self.io.matched.of(space).cache.count(id) {
            // The cache counts itself how often the program has registered the region. No
            // memory comes back: this was not the only registration.
            self.exchange(space).deregister(id).ok();
        }
        self.show_region(space, id);
        Ok(id)
    }

    /// Closes a region that only the cache keeps. False: there is none.
    fn make_place(&mut self, space: SpaceId) -> bool {
        let made = self.io.matched.of(space).cache.evict();
        self.close_leaving(space);
        made
    }

    /// Publishes a registered region to the other processes of this host.
    pub fn show_region(&mut self, space: SpaceId, id: RegionId) {
        if let Some(shm) = &mut self.io.shm {
            let (exchange, published) = self.io.matched.of(space).regions();
            let before = published.terms();
            published.publish(&mut shm.link, space, exchange, id);
            if published.terms() != before {
                self.io.matched.say(&mut shm.link);
            }
        }
    }

    /// Withdraws a region that stays open from the table: others reach it by messages from now
    /// on. False: a copy is in progress there; try again.
    pub fn hide_region(&mut self, space: SpaceId, id: RegionId) -> bool {
        let Some(shm) = &mut self.io.shm else {
            return true;
        };
        self.io.matched.of(space).published.send_elsewhere_for(id);
        self.io.matched.say(&mut shm.link);
        let published = &mut self.io.matched.of(space).published;
        let hidden = published.withdraw(&mut shm.link, id);
        published.send_elsewhere_for(id);
        hidden
    }

    /// Ends one registration, if the memory is not being accessed.
    pub fn deregister_region(
        &mut self,
        space: SpaceId,
        id: RegionId,
    ) -> Result<Option<Scatter>, DeregisterRefused> {
        let (exchange, published) = self.io.matched.of(space).regions();
        let last = exchange.opened(id).is_none_or(|opened| opened.count == 1);
        let before = published.terms();
        // Accesses by message get the same answer as those through the table.
        exchange.shut(id);
        let withdrawn = match &mut self.io.shm {
            _ if !last => true,
            Some(shm) => published.withdraw(&mut shm.link, id),
            // Closed during a copy: nothing signals when that ends, so the memory never comes
            // back.
            None => !published.entries.contains_key(&id),
        };
        if !withdrawn {
            return Err(DeregisterRefused::InUse(1));
        }
        let ended = exchange.deregister(id);
        let changed = published.terms() != before;
        if let Some(shm) = self.io.shm.as_mut().filter(|_| changed) {
            self.io.matched.say(&mut shm.link);
        }
        ended
    }

    /// Registers lent memory, or finds its registration in the cache.
    pub fn register_cached(
        &mut self,
        space: SpaceId,
        memory: Scatter,
        extent: Extent,
    ) -> Result<RegionId, RegisterRefused> {
        self.close_leaving(space);
        if self.io.matched.of(space).published.forbidden {
            return Err(RegisterRefused::Forbidden);
        }
        if let Some(id) = self.io.matched.of(space).cache.find(&extent) {
            return Ok(id);
        }
        let registered = self.register_region(space, memory, None, extent.admission);
        let id = registered.map_err(|(error, _)| error)?;
        self.io.matched.of(space).cache.insert(extent, id);
        Ok(id)
    }

    /// Ends a registration of the program; the region may stay in the cache.
    pub fn release_cached(&mut self, space: SpaceId, id: RegionId) -> Released {
        let released = self.io.matched.of(space).cache.release(id);
        self.close_leaving(space);
        released
    }

    /// Closes regions that left the cache, except those being accessed.
    fn close_leaving(&mut self, space: SpaceId) {
        if !self.io.matched.of(space).cache.has_leaving() {
            return;
        }
        let mut cache = std::mem::take(&mut self.io.matched.of(space).cache);
        cache.close_leaving(|id| {
            let closed = self.deregister_region(space, id);
            !matches!(closed, Err(DeregisterRefused::InUse(_)))
        });
        self.io.matched.of(space).cache = cache;
    }

    /// Removes memory from the cache.
    pub fn forget_memory(&mut self, space: SpaceId, start: usize, bytes: usize) {
        self.io.matched.of(space).cache.forget(start, bytes);
    }

    /// Whether memory that was removed from the cache is no longer accessed.
    pub fn has_forgotten(&mut self, space: SpaceId, start: usize, bytes: usize) -> bool {
        self.close_leaving(space);
        !self.io.matched.of(space).cache.is_leaving(start, bytes)
    }

    /// Forbids one-sided access to this rank's memory, in all spaces.
    pub fn forbid_one_sided(&mut self) {
        for part in self.io.matched.all_mut() {
            part.forbid();
        }
        if let Some(shm) = &mut self.io.shm {
            self.io.matched.say(&mut shm.link);
        }
    }

    /// Withdraws regions, before the lanes close or when a space does. Copies in progress are
    /// waited for; later accesses learn by messages that we close. False: a copy is in
    /// progress; try again.
    pub fn withdraw_regions(&mut self, of: Option<SpaceId>) -> bool {
        let Some(shm) = &mut self.io.shm else {
            return true;
        };
        let all = (0..SPACES).map(SpaceId::at);
        let closing = || all.clone().filter(|id| of.is_none_or(|of| of == *id));
        for id in closing() {
            if let Some(part) = self.io.matched.part(id) {
                part.published.send_elsewhere();
            }
        }
        self.io.matched.say(&mut shm.link);
        let mut done = true;
        for id in closing() {
            if let Some(part) = self.io.matched.part(id) {
                done &= part.published.withdraw_all(&mut shm.link);
            }
        }
        done
    }

    /// After [`Engine::close_space`]: whether nothing of the space is in flight any more.
    pub fn space_has_left(&mut self, space: SpaceId) -> bool {
        let withdrawn = self.withdraw_regions(Some(space));
        let left = (self.io.matched.part(space)).is_none_or(|it| it.exchange.is_left());
        withdrawn && left && self.core.has_sent_all(space)
    }

    /// Whether others may still write to memory that goes back to the program when this
    /// endpoint, or the space, is closed.
    pub fn publishes_receives(&mut self, of: Option<SpaceId>) -> bool {
        let publishes = |part: &Part| part.published.publishes_receives();
        match of {
            None => self.io.matched.all().any(publishes),
            Some(space) => self
                .io
                .matched
                .part(space)
                .is_some_and(|part| publishes(part)),
        }
    }
}
