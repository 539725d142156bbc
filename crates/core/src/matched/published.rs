//! Regions as the other processes of this host see them: in the table of the
//! shared memory lane, by which they reach into this process themselves.

use std::collections::{BTreeMap, BTreeSet};

use portolan_exchange::{DeregisterError, RegionId, RegisterError, Rights, Sink as _};
use portolan_link::shm::{Exposed, Permission, RegionId as Entry, ShmPort, Terms};

use super::cache::{Extent, Released};
use super::memory::Scatter;
use super::{Exchange, Matched, Part, in_table};
use crate::clock::Clock;
use crate::engine::Engine;
use crate::network::Network;
use crate::out::{Out, withdraw};
use crate::space::SpaceId;

/// Which regions stand in the table.
#[derive(Debug, Default)]
pub struct Published {
    entries: BTreeMap<RegionId, Entry>,
    /// Open ones that do not, for want of room or since their memory is in
    /// several pieces: they are asked for by messages.
    withdrawn: BTreeSet<RegionId>,
    pub(super) forbidden: bool,
    /// Memory of receives that their senders write to, by key.
    receives: BTreeMap<u64, Entry>,
}

const fn shared(rights: Rights) -> Permission {
    match rights {
        Rights::None => Permission::None,
        Rights::Get => Permission::Get,
        Rights::Put => Permission::Put,
        Rights::Both => Permission::Both,
    }
}

impl Published {
    fn publish(
        &mut self,
        link: &mut ShmPort,
        space: SpaceId,
        exchange: &mut Exchange,
        id: RegionId,
    ) {
        if self.entries.contains_key(&id) || self.withdrawn.contains(&id) {
            // Registered once more.
            return;
        }
        if let Some(entry) = publish(link, space, exchange, id) {
            self.entries.insert(id, entry);
        } else {
            self.withdrawn.insert(id);
        }
    }

    /// Takes a region out of the table. False: somebody copies there now; try
    /// again.
    fn withdraw(&mut self, link: &mut ShmPort, id: RegionId) -> bool {
        self.withdrawn.remove(&id);
        let Some(entry) = self.entries.get(&id) else {
            return true;
        };
        if !withdraw(&mut link.outlet(), *entry) {
            return false;
        }
        self.entries.remove(&id);
        true
    }

    /// Whether others may still be writing to a region.
    pub fn in_use(&self) -> bool {
        !self.entries.is_empty() || self.publishes_receives()
    }

    /// Likewise, to memory that a receive gives back when it ends.
    pub fn publishes_receives(&self) -> bool {
        !self.receives.is_empty()
    }

    /// Lets a receive's sender write to its memory until
    /// [`Published::withdraw_receive`] says that it does not. False: it may not.
    pub fn publish_receive(&mut self, out: &mut Out<'_>, key: u64, memory: &mut [u8]) -> bool {
        // SAFETY: the exchange keeps the memory, which lies where it lies, until
        // it was withdrawn; or it stays for good, see `Part::drop`. It looks at
        // none of it before, and writes only behind this part of it.
        let memory = unsafe { Exposed::new(memory.as_mut_ptr() as u64, memory.len() as u64) };
        let entry = out.shm_show(key, memory);
        entry.is_some_and(|entry| self.receives.insert(key, entry).is_none())
    }

    /// Takes that back. False: somebody still writes; try again.
    pub fn withdraw_receive(&mut self, out: &mut Out<'_>, key: u64) -> bool {
        let withdrawn = (self.receives.get(&key)).is_none_or(|entry| out.shm_withdraw(*entry));
        if withdrawn {
            self.receives.remove(&key);
        }
        withdrawn
    }
}

impl Part {
    pub(super) fn forbid(&mut self) {
        self.exchange.forbid();
        self.published.forbidden = true;
    }
}

impl Matched {
    /// Says in the table what it tells of all spaces together.
    fn say(&self, link: &mut ShmPort) {
        let published = || self.all().map(|part| &part.published);
        link.set_terms(if published().any(|it| it.forbidden) {
            Terms::Forbidden
        } else if published().all(|it| it.withdrawn.is_empty()) {
            Terms::Complete
        } else {
            Terms::Elsewhere
        });
    }
}

fn publish(
    link: &mut ShmPort,
    space: SpaceId,
    exchange: &mut Exchange,
    id: RegionId,
) -> Option<Entry> {
    let opened = exchange.opened(id)?;
    let (key, rights) = (in_table(space, &opened.key)?, shared(opened.rights));
    let bytes = usize::try_from(opened.bytes).ok()?;
    let slice = opened.memory.slice(opened.start, bytes)?;
    // SAFETY: the memory stays where it is until `hide` has said that nobody
    // copies any more, or for good. Whoever registered it lets it change at any
    // time; the references to it that the exchange makes live for one copy of
    // bytes, from which nothing is concluded.
    let memory = unsafe { Exposed::new(slice.as_mut_ptr() as u64, opened.bytes) };
    link.publish(key, memory, rights).ok()
}

impl<N: Network, C: Clock> Engine<N, C> {
    /// Registers memory, and shows it to the others of this host.
    pub fn register_region(
        &mut self,
        space: SpaceId,
        memory: Scatter,
        key: Option<u64>,
        rights: Rights,
    ) -> Result<RegionId, (RegisterError, Scatter)> {
        let mut memory = memory;
        loop {
            match self.exchange(space).register(memory, key, rights) {
                Ok(id) => {
                    self.show_region(space, id);
                    return Ok(id);
                }
                Err((RegisterError::Full, back)) if self.make_place(space) => memory = back,
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
        rights: Rights,
    ) -> Result<RegionId, RegisterError> {
        let id = loop {
            match self
                .exchange(space)
                .register_again(of, start, bytes, key, rights)
            {
                Ok(id) => break id,
                Err(RegisterError::Full) if self.make_place(space) => {}
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
            published.publish(&mut shm.link, space, exchange, id);
            self.matched.say(&mut shm.link);
        }
    }

    /// Takes one registration back, if nobody accesses the memory.
    pub fn deregister_region(
        &mut self,
        space: SpaceId,
        id: RegionId,
    ) -> Result<Option<Scatter>, DeregisterError> {
        let (exchange, published) = self.matched.of(space).regions();
        let last = exchange.opened(id).is_none_or(|opened| opened.count == 1);
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
            return Err(DeregisterError::InUse(1));
        }
        let ended = exchange.deregister(id);
        if let Some(shm) = &mut self.shm {
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
    ) -> Result<RegionId, RegisterError> {
        self.close_leaving(space);
        if self.matched.of(space).published.forbidden {
            return Err(RegisterError::Forbidden);
        }
        if let Some(id) = self.matched.of(space).cache.find(&extent) {
            return Ok(id);
        }
        let registered = self.register_region(space, memory, None, extent.rights);
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
            !matches!(closed, Err(DeregisterError::InUse(_)))
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

    /// Before the lanes close: who copies now is waited for, who comes learns
    /// by messages that we close. False: somebody still copies; try again.
    pub fn withdraw_regions(&mut self) -> bool {
        let Some(shm) = &mut self.shm else {
            return true;
        };
        let link = &mut shm.link;
        if !self.matched.own.published.forbidden {
            link.set_terms(Terms::Elsewhere);
        }
        let mut done = true;
        for published in self.matched.all_mut().map(|part| &mut part.published) {
            let ids: Vec<RegionId> = published.entries.keys().copied().collect();
            for id in ids {
                done &= published.withdraw(link, id);
            }
            (published.receives).retain(|_, entry| !withdraw(&mut link.outlet(), *entry));
            done &= !published.publishes_receives();
        }
        done
    }

    /// Whether others may still write to memory that the program has back once
    /// we are closed.
    pub fn publishes_receives(&self) -> bool {
        (self.matched.all()).any(|part| part.published.publishes_receives())
    }
}
