//! Registered memory: what of it others may access, and how.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use portolan::c_edge::{EACCES, EFAULT, EINVAL, ENOENT, ENOKEY, ERANGE, Errno};
use portolan::{Buffer, Endpoint, RegionId, RemoteKey, Rights};

use crate::lock;
use crate::port::Port;

/// Where a registration begins, and its bytes.
type Extent = (u64, u64);

struct Registered {
    /// How often.
    count: u64,
    /// While anything is allowed.
    region: Option<(RegionId, RemoteKey)>,
}

/// What handlers look at too: they hold the endpoint, so no call of it may be
/// made with the table locked.
#[derive(Default)]
pub struct Table {
    rights: Rights,
    extents: BTreeMap<Extent, Registered>,
    /// No registration was longer since there was none.
    longest: u64,
}

/// An extent that others may access.
#[derive(Clone, Copy)]
pub struct Admitted {
    pub start: u64,
    pub bytes: u64,
    pub key: RemoteKey,
}

const fn allows(rights: Rights, asked: Rights) -> bool {
    (rights.allow_get() || !asked.allow_get()) && (rights.allow_put() || !asked.allow_put())
}

impl Table {
    /// The registrations that hold `at` and the byte before `end`.
    fn around(&self, at: u64, end: u64) -> impl Iterator<Item = (&Extent, &Registered)> {
        // Where nothing is long enough the range begins at its end.
        let from = end.saturating_sub(self.longest).min(at);
        let near = self.extents.range((from, 0)..=(at, u64::MAX)).rev();
        near.filter(move |((start, bytes), _)| start + bytes >= end)
    }

    pub fn holds(&self, at: u64, bytes: u64) -> bool {
        let end = at.checked_add(bytes);
        end.is_some_and(|end| self.around(at, end).next().is_some())
    }

    /// Whether others may access these bytes so, and where they lie.
    pub fn admit(&self, at: u64, bytes: u64, asked: Rights) -> Result<Admitted, Errno> {
        if !allows(self.rights, asked) {
            return Err(EACCES);
        }
        let mut all = at.checked_add(bytes).into_iter();
        let found = all.find_map(|end| {
            let mut around = self.around(at, end);
            around.find_map(|((start, bytes), it)| {
                let (_, key) = it.region?;
                Some(Admitted {
                    start: *start,
                    bytes: *bytes,
                    key,
                })
            })
        });
        found.ok_or_else(|| if self.holds(at, 1) { ERANGE } else { ENOKEY })
    }
}

#[derive(Default)]
pub struct RegisteredMemory {
    /// Held by who registers, deregisters or allows.
    order: Mutex<()>,
    table: Arc<Mutex<Table>>,
}

impl RegisteredMemory {
    pub fn table(&self) -> Arc<Mutex<Table>> {
        Arc::clone(&self.table)
    }

    pub fn holds(&self, at: *const u8, bytes: usize) -> Result<(), Errno> {
        let holds = lock(&self.table).holds(at as u64, bytes as u64);
        if holds { Ok(()) } else { Err(EFAULT) }
    }
}

/// # Safety
/// The memory is registered: valid until it was deregistered.
unsafe fn open(
    endpoint: &Endpoint,
    (start, bytes): Extent,
    rights: Rights,
) -> Result<Option<(RegionId, RemoteKey)>, Errno> {
    if rights == Rights::None {
        return Ok(None);
    }
    // SAFETY: the region is closed before the registration ends.
    let memory = unsafe { Buffer::lent(start as *mut u8, bytes as usize) };
    let region = endpoint
        .register(memory, None, rights)
        .map_err(|(e, _)| e)?;
    let key = endpoint.remote_key(region)?.ok_or(ENOENT)?;
    Ok(Some((region, key)))
}

impl Port {
    /// # Safety
    /// The memory is valid until it is deregistered as often, or the host port
    /// is closed.
    pub unsafe fn register(&self, start: *mut u8, bytes: usize) -> Result<(), Errno> {
        if start.is_null() {
            return Err(EFAULT);
        }
        let extent = (start as u64, bytes as u64);
        if bytes == 0 || bytes > isize::MAX as usize || extent.0.checked_add(extent.1).is_none() {
            return Err(EINVAL);
        }
        let _order = lock(&self.memory.order);
        let mut table = lock(&self.memory.table);
        if let Some(there) = table.extents.get_mut(&extent) {
            there.count += 1;
            return Ok(());
        }
        let rights = table.rights;
        drop(table);
        // SAFETY: it becomes registered.
        let region = unsafe { open(&self.endpoint, extent, rights) }?;
        let mut table = lock(&self.memory.table);
        table.longest = table.longest.max(extent.1);
        (table.extents).insert(extent, Registered { count: 1, region });
        Ok(())
    }

    pub fn deregister(&self, start: *mut u8, bytes: usize) -> Result<(), Errno> {
        let extent = (start as u64, bytes as u64);
        let _order = lock(&self.memory.order);
        let mut table = lock(&self.memory.table);
        let there = table.extents.get_mut(&extent).ok_or(ENOENT)?;
        there.count -= 1;
        if there.count > 0 {
            return Ok(());
        }
        let region = there.region;
        table.extents.remove(&extent);
        if table.extents.is_empty() {
            table.longest = 0;
        }
        drop(table);
        if let Some((region, _)) = region {
            self.endpoint.deregister(region)?;
        }
        Ok(())
    }

    /// Opens all that is registered anew, with other rights and other keys.
    pub fn allow(&self, rights: Rights) -> Result<(), Errno> {
        let _order = lock(&self.memory.order);
        self.close_all()?;
        let extents: Vec<Extent> = lock(&self.memory.table).extents.keys().copied().collect();
        for extent in extents {
            // SAFETY: who deregisters it waits for us.
            let region = match unsafe { open(&self.endpoint, extent, rights) } {
                Ok(region) => region,
                Err(why) => {
                    self.close_all()?;
                    return Err(why);
                }
            };
            if let Some(there) = lock(&self.memory.table).extents.get_mut(&extent) {
                there.region = region;
            }
        }
        lock(&self.memory.table).rights = rights;
        Ok(())
    }

    fn close_all(&self) -> Result<(), Errno> {
        let mut table = lock(&self.memory.table);
        table.rights = Rights::None;
        let regions = table.extents.values_mut();
        let regions: Vec<_> = regions.filter_map(|it| it.region.take()).collect();
        drop(table);
        for (region, _) in regions {
            self.endpoint.deregister(region)?;
        }
        Ok(())
    }
}
