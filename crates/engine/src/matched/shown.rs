//! Regions as the other processes of this host see them: in the table of the
//! shared memory lane, by which they reach into this process themselves.

use std::collections::{BTreeMap, BTreeSet};

use portolan_exchange::{DeregisterError, RegionId, RegisterError, Rights, Sink as _};
use portolan_link::shm::{Exposed, RegionId as Entry, Rights as Shared, ShmPort, Terms};

use super::State as Exchange;
use super::memory::Scatter;
use crate::state::State;

/// Which regions stand in the table.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    entries: BTreeMap<RegionId, Entry>,
    /// Open ones that do not, for want of room or since their memory is in
    /// several pieces: they are asked for by messages.
    hidden: BTreeSet<RegionId>,
    forbidden: bool,
}

const fn shared(rights: Rights) -> Shared {
    match rights {
        Rights::None => Shared::None,
        Rights::Get => Shared::Get,
        Rights::Put => Shared::Put,
        Rights::Both => Shared::Both,
    }
}

impl Shown {
    fn show(&mut self, link: &mut ShmPort, exchange: &mut Exchange, id: RegionId) {
        if self.entries.contains_key(&id) || self.hidden.contains(&id) {
            // Registered once more.
            return;
        }
        if let Some(entry) = publish(link, exchange, id) {
            self.entries.insert(id, entry);
        } else {
            self.hidden.insert(id);
            self.say(link);
        }
    }

    fn say(&self, link: &mut ShmPort) {
        link.set_terms(if self.forbidden {
            Terms::Forbidden
        } else if self.hidden.is_empty() {
            Terms::Complete
        } else {
            Terms::Elsewhere
        });
    }

    /// Takes a region out of the table. False: somebody copies there now; try
    /// again.
    fn hide(&mut self, link: &mut ShmPort, id: RegionId) -> bool {
        if self.hidden.remove(&id) {
            self.say(link);
        }
        let Some(entry) = self.entries.get(&id) else {
            return true;
        };
        if let Err(portolan_link::shm::WithdrawError::InUse(_)) = link.try_withdraw(*entry) {
            return false;
        }
        self.entries.remove(&id);
        true
    }

    /// Whether others may still be writing to a region.
    pub fn in_use(&self) -> bool {
        !self.entries.is_empty()
    }
}

fn publish(link: &mut ShmPort, exchange: &mut Exchange, id: RegionId) -> Option<Entry> {
    let opened = exchange.opened(id)?;
    let (key, rights) = (opened.key.in_table()?, shared(opened.rights));
    let bytes = usize::try_from(opened.bytes).ok()?;
    let slice = opened.memory.slice(opened.start, bytes)?;
    // SAFETY: the memory stays where it is until `hide` has said that nobody
    // copies any more, or for good. Whoever registered it lets it change at any
    // time; the references to it that the exchange makes live for one copy of
    // bytes, from which nothing is concluded.
    let memory = unsafe { Exposed::new(slice.as_mut_ptr() as u64, opened.bytes) };
    link.publish(key, memory, rights).ok()
}

impl State {
    /// Registers memory, and shows it to the others of this host.
    pub fn register_region(
        &mut self,
        memory: Scatter,
        key: Option<u64>,
        rights: Rights,
    ) -> Result<RegionId, (RegisterError, Scatter)> {
        let matched = &mut self.core.matched;
        let id = matched.state().register(memory, key, rights)?;
        if let Some(shm) = &mut self.shm {
            let (exchange, shown) = matched.regions();
            shown.show(&mut shm.link, exchange, id);
        }
        Ok(id)
    }

    /// Takes one registration back, if nobody accesses the memory.
    pub fn deregister_region(&mut self, id: RegionId) -> Result<Option<Scatter>, DeregisterError> {
        let (exchange, shown) = self.core.matched.regions();
        let last = exchange.opened(id).is_none_or(|opened| opened.count == 1);
        // Whoever comes by messages is told as whoever looks in the table is.
        exchange.shut(id);
        let hidden = match &mut self.shm {
            _ if !last => true,
            Some(shm) => shown.hide(&mut shm.link, id),
            // Closed while somebody was still copying: nobody tells when that
            // ends, so the memory never comes back.
            None => !shown.entries.contains_key(&id),
        };
        if !hidden {
            return Err(DeregisterError::InUse(1));
        }
        exchange.deregister(id)
    }

    /// Nobody may reach into this rank's memory any more.
    pub fn forbid_one_sided(&mut self) {
        let (exchange, shown) = self.core.matched.regions();
        exchange.forbid();
        shown.forbidden = true;
        if let Some(shm) = &mut self.shm {
            shown.say(&mut shm.link);
        }
    }

    /// Before the lanes close: who copies now is waited for, who comes learns
    /// by messages that we close. False: somebody still copies; try again.
    pub fn hide_regions(&mut self) -> bool {
        let Some(shm) = &mut self.shm else {
            return true;
        };
        let (_, shown) = self.core.matched.regions();
        if !shown.forbidden {
            shm.link.set_terms(Terms::Elsewhere);
        }
        let ids: Vec<RegionId> = shown.entries.keys().copied().collect();
        let kept = (ids.into_iter()).filter(|id| !shown.hide(&mut shm.link, *id));
        kept.count() == 0
    }
}
