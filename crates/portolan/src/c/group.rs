//! Barriers and broadcasts.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::error::{EINVAL, ENXIO, Errno};
use super::send::{Sending, bytes};
use super::types::CSendOptions;
use super::{Slot, endpoint, slice};
use crate::{Endpoint, Group, Misuse};

/// The ranks of a call; `None` is all of them.
///
/// # Safety
/// `group` is null or from [`portolan_group_open`] and not freed.
unsafe fn members<'a>(group: *const Group) -> Result<Option<&'a Group>, Errno> {
    // SAFETY: see above.
    Ok(unsafe { group.as_ref() })
}

interface! {
    fn portolan_group_open(
        handle: *mut Endpoint,
        ranks: *const u32,
        count: usize,
        group: *mut *mut Group,
    ) -> c_int {
        group = Slot::begun(group, null_mut()), endpoint = endpoint(handle),
        ranks = slice(ranks, count);
        if endpoint.job_id() == 0 {
            return Err(Misuse::NoJob.into());
        }
        let mut sorted = ranks.to_vec();
        sorted.sort_unstable();
        if sorted.is_empty() || sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(EINVAL);
        }
        if sorted.last().is_some_and(|last| *last >= endpoint.size()) {
            return Err(ENXIO);
        }
        group.store(Box::into_raw(Box::new(Group::new(ranks))));
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_group_free(group: *mut Group) {
    if !group.is_null() {
        // SAFETY: `portolan_group_open` made it of a box, the caller passes it back.
        drop(unsafe { Box::from_raw(group) });
    }
}

interface! {
    fn portolan_barrier(handle: *mut Endpoint, group: *const Group) -> c_int {
        endpoint = endpoint(handle), group = members(group);
        match group {
            None => endpoint.barrier()?,
            Some(group) => endpoint.barrier_of(group)?,
        }
    }

    fn portolan_broadcast(
        handle: *mut Endpoint,
        group: *const Group,
        port: u16,
        data: *const c_void,
        length: usize,
        options: *const CSendOptions,
    ) -> c_int {
        endpoint = endpoint(handle), group = members(group), o = Sending::read(options),
        data = bytes(data, length);
        if !o.wait {
            return Err(EINVAL);
        }
        match group {
            None => {
                let all: Vec<u32> = (0..endpoint.size()).collect();
                endpoint.broadcast(&all, port, &o.options, data)?;
            }
            Some(group) => endpoint.broadcast(group.ranks(), port, &o.options, data)?,
        }
    }
}
