//! Completion queues and counters; how messages are pushed and pulled; what is
//! held.

use std::ffi::c_int;

use super::error::{EFAULT, EINVAL, Errno};
use super::matched::{completion, counter, queue};
use super::send::limit;
use super::types::{
    CCompletion, CPush, CStatistics, PUSH_MASKING, PUSH_OVERLAP, check, read, write, write_at,
};
use super::{edge, endpoint, store};
use crate::{Count, Ended, Endpoint, Push};

/// Where a new queue's or counter's number is stored; 0 until there is one.
///
/// # Safety
/// `place` is null or may be written.
unsafe fn number<'a>(place: *mut u32) -> Result<&'a mut u32, Errno> {
    // SAFETY: see above.
    let place = unsafe { place.as_mut() }.ok_or(EFAULT)?;
    *place = 0;
    Ok(place)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_queue_open(handle: *mut Endpoint, place: *mut u32) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let (place, endpoint) = unsafe { (number(place)?, endpoint(handle)?) };
        *place = endpoint.open_queue()?.0 + 1;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_queue_close(handle: *mut Endpoint, number: u32) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        unsafe { endpoint(handle) }?.close_queue(queue(number))?;
        Ok(0)
    })
}

/// Takes completions, `first` and those that follow it.
///
/// # Safety
/// `to` may be written for `count` structures as long as the first one says.
unsafe fn take(
    endpoint: &Endpoint,
    number: u32,
    first: Option<Ended>,
    to: *mut CCompletion,
    count: usize,
) -> Result<i64, Errno> {
    let mut taken = 0;
    let mut first = first;
    while taken < count {
        let next = match first.take() {
            Some(ended) => Some(ended),
            None => match endpoint.next_completion(queue(number)) {
                Ok(next) => next,
                // What was taken is the program's; it hears of this when it
                // comes again.
                Err(_) if taken > 0 => None,
                Err(m) => return Err(m.into()),
            },
        };
        let Some(ended) = next else { break };
        let done = completion(endpoint, &ended.completion)?;
        // SAFETY: promised by the caller.
        unsafe { write_at(to, taken, &done) }?;
        taken += 1;
    }
    Ok(i64::try_from(taken).unwrap_or(i64::MAX))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_queue_read(
    handle: *mut Endpoint,
    number: u32,
    to: *mut CCompletion,
    count: usize,
) -> i64 {
    edge(|| {
        // SAFETY: promised by the caller.
        let endpoint = unsafe { endpoint(handle) }?;
        if count == 0 {
            return Err(EINVAL);
        }
        // SAFETY: promised by the caller.
        unsafe {
            check(to)?;
            take(endpoint, number, None, to, count)
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_queue_wait(
    handle: *mut Endpoint,
    number: u32,
    to: *mut CCompletion,
    count: usize,
    timeout_ns: i64,
) -> i64 {
    edge(|| {
        // SAFETY: promised by the caller.
        let endpoint = unsafe { endpoint(handle) }?;
        if count == 0 {
            return Err(EINVAL);
        }
        // SAFETY: promised by the caller.
        unsafe { check(to) }?;
        let first = endpoint.wait_completion(queue(number), limit(timeout_ns))?;
        // SAFETY: promised by the caller.
        unsafe { take(endpoint, number, Some(first), to, count) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_counter_open(handle: *mut Endpoint, place: *mut u32) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let (place, endpoint) = unsafe { (number(place)?, endpoint(handle)?) };
        *place = endpoint.open_counter()?.0 + 1;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_counter_close(handle: *mut Endpoint, number: u32) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        unsafe { endpoint(handle) }?.close_counter(counter(number))?;
        Ok(0)
    })
}

/// # Safety
/// Both are null or may be written.
unsafe fn store_count(count: Count, done: *mut u64, failed: *mut u64) {
    // SAFETY: see above.
    unsafe {
        store(done, count.done);
        store(failed, count.failed);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_counter_value(
    handle: *mut Endpoint,
    number: u32,
    done: *mut u64,
    failed: *mut u64,
) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let count = unsafe { endpoint(handle) }?.count(counter(number))?;
        // SAFETY: promised by the caller.
        unsafe { store_count(count, done, failed) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_counter_wait(
    handle: *mut Endpoint,
    number: u32,
    ended: u64,
    done: *mut u64,
    failed: *mut u64,
    timeout_ns: i64,
) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let endpoint = unsafe { endpoint(handle) }?;
        let count = endpoint.wait_count(counter(number), ended, limit(timeout_ns))?;
        // SAFETY: promised by the caller.
        unsafe { store_count(count, done, failed) };
        Ok(0)
    })
}

fn to_c(push: Push) -> CPush {
    let flag = |on, flag| if on { flag } else { 0 };
    CPush {
        size: 0,
        flags: flag(push.overlap, PUSH_OVERLAP) | flag(push.masking, PUSH_MASKING),
        whole: push.whole,
        first: push.first,
        second: push.second,
    }
}

/// # Safety
/// `from` is null or what the header says.
unsafe fn of_c(from: *const CPush) -> Result<Push, Errno> {
    // SAFETY: see above.
    let c = unsafe { read(from) }?;
    if c.flags & !(PUSH_OVERLAP | PUSH_MASKING) != 0 {
        return Err(EINVAL);
    }
    Ok(Push {
        whole: c.whole,
        first: c.first,
        second: c.second,
        overlap: c.flags & PUSH_OVERLAP != 0,
        masking: c.flags & PUSH_MASKING != 0,
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_push_read(
    handle: *mut Endpoint,
    shm: *mut CPush,
    net: *mut CPush,
) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let endpoint = unsafe { endpoint(handle) }?;
        // SAFETY: promised by the caller.
        unsafe { check(shm).and_then(|()| check(net)) }?;
        let pushes = endpoint.pushes()?;
        // SAFETY: promised by the caller.
        unsafe {
            write(shm, &to_c(pushes.0))?;
            write(net, &to_c(pushes.1))?;
        }
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_push_to(handle: *mut Endpoint, rank: u32, to: *mut CPush) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let push = unsafe { endpoint(handle) }?.push_to(rank)?;
        // SAFETY: promised by the caller.
        unsafe { write(to, &to_c(push)) }?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_set_push(
    handle: *mut Endpoint,
    shm: *const CPush,
    net: *const CPush,
) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let (endpoint, shm, net) = unsafe { (endpoint(handle)?, of_c(shm)?, of_c(net)?) };
        endpoint.set_push(shm, net)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_set_pushed_share(handle: *mut Endpoint, bytes: u64) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        unsafe { endpoint(handle) }?.set_pushed_share((bytes > 0).then_some(bytes))?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_matched_statistics(
    handle: *mut Endpoint,
    to: *mut CStatistics,
) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let c = unsafe { endpoint(handle) }?.statistics()?;
        let ours = CStatistics {
            size: 0,
            reserved: 0,
            operations: c.operations as u64,
            messages: c.messages as u64,
            pushed_bytes: c.pushed_bytes,
            parts: c.parts as u64,
            second_pushes: c.second_pushes as u64,
            pulled_bytes: c.pulled_bytes,
            backlogs: c.backlogs as u64,
            unflushed: c.unflushed as u64,
            regions: c.regions as u64,
            accesses: c.accesses,
        };
        // SAFETY: promised by the caller.
        unsafe { write(to, &ours) }?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_pull_read(
    handle: *mut Endpoint,
    window: *mut u64,
    chunk: *mut u64,
) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let endpoint = unsafe { endpoint(handle) }?;
        if window.is_null() || chunk.is_null() {
            return Err(EFAULT);
        }
        let sizes = endpoint.pull_sizes()?;
        // SAFETY: not null, so they may be written.
        unsafe {
            window.write(sizes.0);
            chunk.write(sizes.1);
        }
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_set_pull(handle: *mut Endpoint, window: u64, chunk: u64) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        unsafe { endpoint(handle) }?.set_pull_sizes(window, chunk)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_share_min_read(handle: *mut Endpoint, bytes: *mut u64) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let endpoint = unsafe { endpoint(handle) }?;
        if bytes.is_null() {
            return Err(EFAULT);
        }
        let least = endpoint.share_min()?;
        // SAFETY: not null, so it may be written.
        unsafe { bytes.write(least) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_set_share_min(handle: *mut Endpoint, bytes: u64) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        unsafe { endpoint(handle) }?.set_share_min(bytes)?;
        Ok(0)
    })
}
