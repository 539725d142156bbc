//! Completion queues and counters; how messages are pushed and pulled; statistics.

use std::ffi::c_int;

use super::error::{EINVAL, Errno};
use super::matched::{completion, counter, queue};
use super::send::limit;
use super::types::{CCompletion, CPush, CStatistics, PUSH_MASKING, PUSH_OVERLAP, Record, read};
use super::{Slot, endpoint};
use crate::{Ended, Endpoint, Push};

interface! {
    fn portolan_queue_open(handle: *mut Endpoint, place: *mut u32) -> c_int {
        place = Slot::begun(place, 0), endpoint = endpoint(handle);
        place.store(endpoint.open_queue()?.0 + 1);
    }

    fn portolan_queue_close(handle: *mut Endpoint, number: u32) -> c_int {
        endpoint = endpoint(handle); endpoint.close_queue(queue(number))?
    }
}

/// Takes completions, `first` and then the queue's. Returns their number.
fn take(
    endpoint: &Endpoint,
    number: u32,
    first: Option<Ended>,
    (to, count): (&Record<CCompletion>, usize),
) -> Result<usize, Errno> {
    let mut taken = 0;
    let mut first = first;
    while taken < count {
        let next = match first.take() {
            Some(ended) => Some(ended),
            None => match endpoint.next_completion(queue(number)) {
                Ok(next) => next,
                // The completions taken so far are returned; the next call
                // reports this error.
                Err(_) if taken > 0 => None,
                Err(m) => return Err(m.into()),
            },
        };
        let Some(ended) = next else { break };
        to.fill_at(taken, &completion(endpoint, &ended.completion)?);
        taken += 1;
    }
    Ok(taken)
}

interface! {
    fn portolan_queue_read(
        handle: *mut Endpoint,
        number: u32,
        to: *mut CCompletion,
        count: usize,
    ) -> i64 {
        endpoint = endpoint(handle), to = Record::array(to, count);
        take(endpoint, number, None, (&to, count))?
    }

    fn portolan_queue_wait(
        handle: *mut Endpoint,
        number: u32,
        to: *mut CCompletion,
        count: usize,
        timeout_ns: i64,
    ) -> i64 {
        endpoint = endpoint(handle), to = Record::array(to, count);
        let first = endpoint.wait_completion(queue(number), limit(timeout_ns))?;
        take(endpoint, number, Some(first), (&to, count))?
    }

    fn portolan_counter_open(handle: *mut Endpoint, place: *mut u32) -> c_int {
        place = Slot::begun(place, 0), endpoint = endpoint(handle);
        place.store(endpoint.open_counter()?.0 + 1);
    }

    fn portolan_counter_close(handle: *mut Endpoint, number: u32) -> c_int {
        endpoint = endpoint(handle); endpoint.close_counter(counter(number))?
    }

    fn portolan_counter_value(
        handle: *mut Endpoint,
        number: u32,
        done: *mut u64,
        failed: *mut u64,
    ) -> c_int {
        endpoint = endpoint(handle), done = Slot::optional(done), failed = Slot::optional(failed);
        let count = endpoint.count(counter(number))?;
        done.store(count.done);
        failed.store(count.failed);
    }

    fn portolan_counter_wait(
        handle: *mut Endpoint,
        number: u32,
        ended: u64,
        done: *mut u64,
        failed: *mut u64,
        timeout_ns: i64,
    ) -> c_int {
        endpoint = endpoint(handle), done = Slot::optional(done), failed = Slot::optional(failed);
        let count = endpoint.wait_count(counter(number), ended, limit(timeout_ns))?;
        done.store(count.done);
        failed.store(count.failed);
    }
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
/// `from` is null or as the header says.
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

interface! {
    fn portolan_push_read(
        handle: *mut Endpoint,
        shm: *mut CPush,
        net: *mut CPush,
    ) -> c_int {
        endpoint = endpoint(handle), shm = Record::one(shm), net = Record::one(net);
        let pushes = endpoint.pushes()?;
        shm.fill(&to_c(pushes.0));
        net.fill(&to_c(pushes.1));
    }

    fn portolan_push_to(handle: *mut Endpoint, rank: u32, to: *mut CPush) -> c_int {
        endpoint = endpoint(handle), push = endpoint.push_to(rank), to = Record::one(to);
        to.fill(&to_c(push));
    }

    fn portolan_set_push(
        handle: *mut Endpoint,
        shm: *const CPush,
        net: *const CPush,
    ) -> c_int {
        endpoint = endpoint(handle), shm = of_c(shm), net = of_c(net);
        endpoint.set_push(shm, net)?
    }

    fn portolan_set_pushed_share(handle: *mut Endpoint, bytes: u64) -> c_int {
        endpoint = endpoint(handle); endpoint.set_pushed_share((bytes > 0).then_some(bytes))?
    }

    fn portolan_matched_statistics(
        handle: *mut Endpoint,
        to: *mut CStatistics,
    ) -> c_int {
        endpoint = endpoint(handle), c = endpoint.statistics(), to = Record::one(to);
        to.fill(&CStatistics {
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
        });
    }

    fn portolan_pull_read(
        handle: *mut Endpoint,
        window: *mut u64,
        chunk: *mut u64,
    ) -> c_int {
        endpoint = endpoint(handle), window = Slot::required(window), chunk = Slot::required(chunk);
        let sizes = endpoint.pull_sizes()?;
        window.store(sizes.0);
        chunk.store(sizes.1);
    }

    fn portolan_set_pull(handle: *mut Endpoint, window: u64, chunk: u64) -> c_int {
        endpoint = endpoint(handle); endpoint.set_pull_sizes(window, chunk)?
    }

    fn portolan_share_min_read(handle: *mut Endpoint, bytes: *mut u64) -> c_int {
        endpoint = endpoint(handle), bytes = Slot::required(bytes);
        bytes.store(endpoint.share_min()?);
    }

    fn portolan_set_share_min(handle: *mut Endpoint, bytes: u64) -> c_int {
        endpoint = endpoint(handle); endpoint.set_share_min(bytes)?
    }
}
