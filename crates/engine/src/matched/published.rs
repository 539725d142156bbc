//! Regions that are published in the table of the shared memory lane. By it the other processes
//! of this host access this one's memory directly.

use std::collections::{BTreeMap, BTreeSet};

use portolan_exchange::{RegionId, Rights, Sink as _};
use portolan_link::shm::{Exposed, Naming, Permission, RegionId as Entry, ShmPort, Terms};

use super::{Exchange, Matched, Part, in_table};
use crate::outbound::{Outbound, withdraw};
use crate::values::SpaceId;

/// The regions in the table.
#[derive(Debug, Default)]
pub struct Published {
    pub(crate) entries: BTreeMap<RegionId, Entry>,
    /// Open regions that are not in the table, for want of room or since their memory is in
    /// several pieces: they are accessed by messages.
    withdrawn: BTreeSet<RegionId>,
    pub(crate) forbidden: bool,
    /// Memory of receives that is published for their senders to write to, by key.
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
    /// Returns what holds for all regions of the space.
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

    /// Withdraws a region from the table. False: a copy is in progress there; try again.
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

    /// Makes peers that do not find this region in the table access it by messages.
    pub fn send_elsewhere_for(&mut self, id: RegionId) {
        self.withdrawn.insert(id);
    }

    /// As [`Published::send_elsewhere_for`], for all regions.
    pub fn send_elsewhere(&mut self) {
        self.withdrawn.extend(self.entries.keys());
    }

    /// Withdraws everything from the table. False: a copy is in progress; try again.
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

    /// Whether others may still be writing to memory that a receive returns when it ends.
    pub fn publishes_receives(&self) -> bool {
        !self.receives.is_empty()
    }

    /// Lets a receive's sender write to its memory until [`Published::withdraw_receive`]
    /// returns true. False: it may not.
    pub fn publish_receive(&mut self, out: &mut Outbound<'_>, key: u64, memory: &mut [u8]) -> bool {
        // SAFETY: the exchange keeps the memory, at its place, until it was withdrawn; or it
        // stays for good, see `Part::drop`. The exchange reads none of it before, and writes
        // only beside this part of it.
        let memory = unsafe { Exposed::new(memory.as_mut_ptr() as u64, memory.len() as u64) };
        let Ok(shm) = out.shm() else {
            return false;
        };
        let shown = shm.outlet.publish(key, memory, Permission::Put);
        shown.is_ok_and(|entry| self.receives.insert(key, entry).is_none())
    }

    /// Withdraws the memory of a receive. False: its sender still writes; try again.
    pub fn withdraw_receive(&mut self, out: &mut Outbound<'_>, key: u64) -> bool {
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
    /// Sets in the table what holds for all spaces together.
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
    // SAFETY: the memory stays where it is until `withdraw` has returned true, or for good. Its
    // owner lets it change at any time; the references to it that the exchange makes live for
    // one copy of bytes, from which nothing is concluded.
    let memory = unsafe { Exposed::new(start, opened.bytes) };
    link.outlet().publish(naming, memory, rights).ok()
}
