//! Regions as the other processes of this host see them: in the table of the
//! shared memory lane, by which they reach into this process themselves.

use std::collections::{BTreeMap, BTreeSet};

use portolan_exchange::{RegionId, Rights, Sink as _};
use portolan_link::shm::{Exposed, Naming, Permission, RegionId as Entry, ShmPort, Terms};

use super::{Exchange, Matched, Part, in_table};
use crate::out::{Out, withdraw};
use crate::values::SpaceId;

/// Which regions stand in the table.
#[derive(Debug, Default)]
pub struct Published {
    pub(crate) entries: BTreeMap<RegionId, Entry>,
    /// Open ones that do not, for want of room or since their memory is in
    /// several pieces: they are asked for by messages.
    withdrawn: BTreeSet<RegionId>,
    pub(crate) forbidden: bool,
    /// Memory of receives that their senders write to, by key.
    pub(crate) receives: BTreeMap<u64, Entry>,
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
    /// What holds for all regions of the space.
    pub fn terms(&self) -> Terms {
        match (self.forbidden, self.withdrawn.is_empty()) {
            (true, _) => Terms::Forbidden,
            (_, false) => Terms::Elsewhere,
            _ => Terms::Complete,
        }
    }

    pub fn publish(
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
    pub fn withdraw(&mut self, link: &mut ShmPort, id: RegionId) -> bool {
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

    /// A peer that does not find this region in the table is to ask by messages.
    pub fn send_elsewhere_for(&mut self, id: RegionId) {
        self.withdrawn.insert(id);
    }

    /// As [`Published::send_elsewhere_for`], for all regions.
    pub fn send_elsewhere(&mut self) {
        self.withdrawn.extend(self.entries.keys());
    }

    /// Takes everything out of the table. False: somebody copies there now; try again.
    pub fn withdraw_all(&mut self, link: &mut ShmPort) -> bool {
        let link = &mut link.outlet();
        self.entries.retain(|_, entry| !withdraw(link, *entry));
        self.receives.retain(|_, entry| !withdraw(link, *entry));
        !self.in_use()
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
        // none of it before, and writes only beside this part of it.
        let memory = unsafe { Exposed::new(memory.as_mut_ptr() as u64, memory.len() as u64) };
        let Ok(shm) = out.shm() else {
            return false;
        };
        let shown = shm.outlet.publish(key, memory, Permission::Put);
        shown.is_ok_and(|entry| self.receives.insert(key, entry).is_none())
    }

    /// Takes that back. False: somebody still writes; try again.
    pub fn withdraw_receive(&mut self, out: &mut Out<'_>, key: u64) -> bool {
        let mut withdraw = |entry| out.shm().is_ok_and(|shm| withdraw(&mut shm.outlet, entry));
        let withdrawn = self.receives.get(&key).is_none_or(|entry| withdraw(*entry));
        if withdrawn {
            self.receives.remove(&key);
        }
        withdrawn
    }
}

impl Part {
    pub(crate) fn forbid(&mut self) {
        self.exchange.forbid();
        self.published.forbidden = true;
    }
}

impl Matched {
    /// Says in the table what it tells of all spaces together.
    pub(crate) fn say(&self, link: &mut ShmPort) {
        let is_said = |terms| self.all().any(|part| part.published.terms() == terms);
        let mut all = [Terms::Forbidden, Terms::Elsewhere].into_iter();
        let terms = all.find(|terms| is_said(*terms));
        link.outlet().set_terms(terms.unwrap_or(Terms::Complete));
    }
}

fn publish(
    link: &mut ShmPort,
    space: SpaceId,
    exchange: &mut Exchange,
    id: RegionId,
) -> Option<Entry> {
    let opened = exchange.opened(id)?;
    let rights = shared(opened.rights);
    let naming = Naming {
        key: in_table(space, &opened.key),
        demands_salt: opened.demands_salt,
    };
    let bytes = usize::try_from(opened.bytes).ok()?;
    let start = if opened.memory.is_address_space() {
        opened.start
    } else {
        opened.memory.slice(opened.start, bytes)?.as_mut_ptr() as u64
    };
    // SAFETY: the memory stays where it is until `hide` has said that nobody
    // copies any more, or for good. Whoever registered it lets it change at any
    // time; the references to it that the exchange makes live for one copy of
    // bytes, from which nothing is concluded.
    let memory = unsafe { Exposed::new(start, opened.bytes) };
    link.outlet().publish(naming, memory, rights).ok()
}
