//! Barriers and broadcasts.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::error::{EFAULT, EINVAL, ENXIO};
use super::send::{Sending, bytes};
use super::types::CSendOptions;
use super::{edge, endpoint, slice};
use crate::{Endpoint, Group};

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_group_open(
    handle: *mut Endpoint,
    ranks: *const u32,
    count: usize,
    group: *mut *mut Group,
) -> c_int {
    edge(|| {
        if group.is_null() {
            return Err(EFAULT);
        }
        // SAFETY: not null, so it may be written.
        unsafe { group.write(null_mut()) };
        // SAFETY: promised by the caller.
        let (endpoint, ranks) = unsafe { (endpoint(handle)?, slice(ranks, count)?) };
        let mut sorted = ranks.to_vec();
        sorted.sort_unstable();
        if sorted.is_empty() || sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(EINVAL);
        }
        if sorted.last().is_some_and(|last| *last >= endpoint.size()) {
            return Err(ENXIO);
        }
        // SAFETY: as above.
        unsafe { group.write(Box::into_raw(Box::new(Group::new(ranks)))) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_group_free(group: *mut Group) {
    if !group.is_null() {
        // SAFETY: `portolan_group_open` made it of a box, the caller gives it up.
        drop(unsafe { Box::from_raw(group) });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_barrier(handle: *mut Endpoint, group: *const Group) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let (endpoint, group) = unsafe { (endpoint(handle)?, group.as_ref()) };
        match group {
            None => endpoint.barrier()?,
            Some(group) => endpoint.barrier_of(group)?,
        }
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_broadcast(
    handle: *mut Endpoint,
    group: *const Group,
    port: u16,
    data: *const c_void,
    length: usize,
    options: *const CSendOptions,
) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let (endpoint, group) = unsafe { (endpoint(handle)?, group.as_ref()) };
        // SAFETY: promised by the caller.
        let (o, data) = unsafe { (Sending::read(options)?, bytes(data, length)?) };
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
        Ok(0)
    })
}
